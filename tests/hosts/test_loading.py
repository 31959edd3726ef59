"""The module as a file: what it exports, who can load it, how it installs."""
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from conftest import MODULE, ROOT, connect, one, run_program, shell

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")


def output(*command, **options):
    return subprocess.run(
        [str(word) for word in command],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    ).stdout


@linux
def test_the_module_exports_two_symbols():
    lines = output("nm", "-D", "--defined-only", MODULE).splitlines()
    assert [line.split()[-1] for line in lines] == [
        "sqlite3_blackbox_init", "sqlite3_extension_init"]


@linux
def test_needs_libc_and_libuuid_only():
    needed = re.findall(r"NEEDED.*\[(.*?)\.so", output("readelf", "-d", MODULE))
    assert sorted(needed) == ["libc", "libuuid"]


def test_shell_loads_it():
    version = one(connect(), "SELECT blackbox_version()")
    told = shell(
        ":memory:",
        stdin=".load ./blackbox\nSELECT blackbox_version();\n"
        ".load ./blackbox\nSELECT load_extension('./blackbox');\n",
    )
    assert told.split() == [version]


@pytest.mark.skipif(shutil.which("sqlcipher") is None, reason="no sqlcipher")
def test_a_host_with_an_old_sqlite_is_told():
    """SQLCipher of Debian 12 has SQLite 3.15, without JSON."""
    version = output("sqlcipher", ":memory:", "SELECT sqlite_version()").strip()
    if tuple(map(int, version.split("."))) >= (3, 38):
        pytest.skip("this one is new enough")
    done = subprocess.run(["sqlcipher", ":memory:", f".load {MODULE}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert f"blackbox needs SQLite 3.38.0 or later, this is {version}" in done.stdout


def test_python_loads_it_and_flushes_at_exit(tmp_path):
    script = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[2], isolation_level=None)
db.enable_load_extension(True)
db.load_extension(sys.argv[1])
db.execute("SELECT blackbox_install('main', 'all')")
db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
           "('payload.queue_mode', 'memory')")
for i in range(3):
    db.execute("SELECT payload_queue('e', 'a', 'q', 'r')").fetchone()
assert not db.execute("SELECT * FROM event_payloads").fetchall()
keep = db.execute("VALUES(1), (2)")
next(keep)
"""
    path = tmp_path / "exit.db"
    output(sys.executable, "-c", script, MODULE, path)
    assert one(sqlite3.connect(path), "SELECT count(*) FROM event_payloads") == 3


@linux
def test_programs_load_it(tmp_path):
    maps = pathlib.Path("/proc/self/maps").read_text()
    library = re.search(r"\S*/libsqlite3\.so\S*", maps)
    if library is None:
        pytest.skip("this Python has its own SQLite inside")
    copy = tmp_path / "libcopy.so"
    shutil.copy(library.group(), copy)
    other = shutil.copy(MODULE, tmp_path / "other.so")
    run_program("loading", tmp_path, MODULE, library.group(), copy, other)


def test_a_statically_linked_program_works(tmp_path):
    told = run_program("static", tmp_path)
    first = "main: "
    lines = told.splitlines()
    assert len(lines) == 6 and lines[0].startswith(first)
    assert lines[1:3] == ["1", "0"]


@pytest.mark.parametrize("name", ["recorder", "libblackbox", "blackbox-0.1", "1"])
def test_a_file_of_any_name_loads(tmp_path, name):
    shutil.copy(MODULE, tmp_path / (name + pathlib.Path(MODULE).suffix))
    code = f"""
import sqlite3
db = sqlite3.connect(":memory:")
db.enable_load_extension(True)
db.load_extension({str(tmp_path / name)!r} + {pathlib.Path(MODULE).suffix!r})
print(db.execute("SELECT blackbox_version()").fetchone()[0])
"""
    assert output(sys.executable, "-c", code).strip() == one(
        connect(), "SELECT blackbox_version()")


def refusal(path):
    """The message if the module does not load, or None."""
    try:
        connect(path, timeout=0).close()
    except sqlite3.Error as error:
        return str(error)


def test_a_locked_or_damaged_file_is_told(path):
    """From 3.48 on, SQLite reads the schema before the first statement."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE t(a)")
    other.execute("BEGIN EXCLUSIVE")
    locked = refusal(path)
    other.execute("COMMIT")
    assert refusal(path) is None
    path.write_bytes(b"not a database" * 100)
    damaged = refusal(path)
    if sqlite3.sqlite_version_info < (3, 48):
        assert locked is damaged is None
    else:
        assert "blackbox is not loaded: database is locked" in locked
        assert "blackbox is not loaded: file is not a database" in damaged


@linux
def test_make_install_installs_what_a_program_needs(tmp_path):
    output(
        "make", "-s", "install", "PREFIX=/opt/bb", f"DESTDIR={tmp_path}", cwd=ROOT
    )
    prefix = tmp_path / "opt" / "bb"
    assert {
        str(file.relative_to(prefix)) for file in prefix.rglob("*") if file.is_file()
    } == {
        "lib/" + pathlib.Path(MODULE).name,
        "lib/pkgconfig/blackbox.pc",
        "include/blackbox.h",
        "share/blackbox/otlp.py",
        "share/blackbox/sign.py",
        "share/blackbox/verify.py",
        "share/blackbox/prices.json",
        *("share/blackbox/" + f.name for f in (ROOT / "sql").glob("*.sql")),
    }
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(str(prefix / "lib" / "blackbox"))
    version = one(db, "SELECT blackbox_version()")
    if shutil.which("pkg-config"):
        env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
        ask = lambda *words: output("pkg-config", *words, "blackbox", env=env).strip()
        assert ask("--modversion") == version
        assert ask("--variable=module").startswith("/opt/bb/lib/blackbox")
        assert ask("--variable=sqldir") == "/opt/bb/share/blackbox"
        assert "-I/opt/bb/include" in ask("--cflags")
