"""The tarballs and sqlpkg.json, from dist/."""
import hashlib
import json
import re
import sqlite3
import subprocess
import tarfile

import pytest

from packages_helpers import BUILD, DIST, ROOT, run, the

SQLITE = BUILD / "node_modules/better-sqlite3/deps/sqlite3"


def test_the_loadable_tarball_has_a_module_that_loads(tmp_path):
    with tarfile.open(the("blackbox-*-loadable-*.tar.gz")) as tar:
        assert tar.getnames() == ["LICENSE", "NOTICE", "blackbox.so", "prices.json"]
        tar.extractall(tmp_path)
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(str(tmp_path / "blackbox"))
    assert db.execute("SELECT blackbox_install('main', 'cache')").fetchone() == (
        "main: cache, core",)
    prices = (tmp_path / "prices.json").read_text()
    assert db.execute("SELECT rollout_load_prices(?, 'prices.json') > 20", (prices,)).fetchone()[0]
    with tarfile.open(the("sqlite-blackbox-[0-9]*.tgz")) as tar:
        assert tar.extractfile("package/prices.json").read().decode() == prices
    for told in (run("python3", "-m", "zipfile", "-l", the("*.whl"), cwd=tmp_path),
                 run("dpkg-deb", "-c", the("*.deb"), cwd=tmp_path)):
        assert "/prices.json" in told


def test_the_module_of_the_packages_exports_its_entry_points_alone_and_needs_two_libraries(
        tmp_path):
    with tarfile.open(the("blackbox-*-loadable-*.tar.gz")) as tar:
        tar.extractall(tmp_path)
    names = run("nm", "-D", "--defined-only", "blackbox.so", cwd=tmp_path).split()[2::3]
    assert names == ["sqlite3_blackbox_init", "sqlite3_extension_init"]
    needed = [line.split()[1] for line in run("objdump", "-p", "blackbox.so", cwd=tmp_path)
              .splitlines() if "NEEDED" in line]
    assert needed == ["libuuid.so.1", "libc.so.6"]


def test_the_licences_of_the_libraries_in_the_module_go_with_it(tmp_path):
    with tarfile.open(the("blackbox-*-loadable-*.tar.gz")) as tar:
        notice = tar.extractfile("NOTICE").read().decode()
    for words in ("code of libssl-dev", "code of libzstd-dev", "code of zlib1g-dev",
                  "Redistributions in binary form"):
        assert words in notice
    with tarfile.open(the("sqlite-blackbox-*-*.tgz")) as tar:
        assert tar.extractfile("package/NOTICE").read().decode() == notice
    names = run("python3", "-m", "zipfile", "-l", the("*.whl"), cwd=tmp_path)
    assert "dist-info/NOTICE" in names
    assert "/NOTICE" in run("dpkg-deb", "-c", the("*.deb"), cwd=tmp_path)


def test_sqlpkg_json_names_the_tarball_of_this_platform_with_its_checksum():
    spec = json.loads((DIST / "sqlpkg.json").read_text())
    assert spec["owner"] and spec["name"] == "blackbox" and "payload_queue" in spec["symbols"]
    name = spec["assets"]["files"]["linux-amd64"].replace("{version}", spec["version"])
    path = DIST / spec["assets"]["path"] / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert spec["assets"]["checksums"] == {name: f"sha256-{digest}"}


def test_the_checksums_are_those_of_the_files():
    told = run("sha256sum", "-c", "checksums.txt", cwd=DIST).splitlines()
    assert len(told) == 7 and all(line.endswith(": OK") for line in told)


def test_the_same_input_gives_the_same_bytes(tmp_path):
    for name in ("blackbox.c", "blackbox.h"):
        (tmp_path / name).write_bytes((DIST / name).read_bytes())
    version = json.loads((DIST / "sqlpkg.json").read_text())["version"]
    subprocess.run(["python3", ROOT / "packages/build.py", ROOT / "blackbox.so", version,
                    tmp_path], check=True)
    made = [path for path in tmp_path.iterdir() if path.name != "checksums.txt"]
    assert len(made) == 8
    assert [p.name for p in made if p.read_bytes() != (DIST / p.name).read_bytes()] == []


def test_a_repository_becomes_the_address_of_the_tarballs(tmp_path):
    for name in ("blackbox.c", "blackbox.h"):
        (tmp_path / name).write_bytes((DIST / name).read_bytes())
    subprocess.run(["python3", ROOT / "packages/build.py", ROOT / "blackbox.so", "9.8.7",
                    tmp_path, "https://example.com/me/blackbox"], check=True)
    spec = json.loads((tmp_path / "sqlpkg.json").read_text())
    assert spec["version"] == "9.8.7" and spec["repository"] == "https://example.com/me/blackbox"
    assert spec["assets"]["path"] == "{repository}/releases/download/{version}"


@pytest.fixture
def one_file(tmp_path):
    """A folder with blackbox.c and blackbox.h alone, and a program that uses them."""
    with tarfile.open(the("blackbox-*-amalgamation.tar.gz")) as tar:
        tar.extractall(tmp_path)
    (tmp_path / "main.c").write_text(
        (ROOT / "tests/hosts/static.c").read_text().replace("../../ext/", ""))
    return tmp_path


def commands():
    """The compilations that docs/packages.md shows, with libcrypto and libzstd as Debian has them."""
    text = (ROOT / "docs/packages.md").read_text().replace("\\\n", "")
    found = re.findall(r"^cc .*$", text, re.M)
    assert len(found) == 2
    return [command.split()[1:] for command in found]


def test_the_one_c_file_compiles_into_a_program_as_the_docs_say(one_file):
    run("cc", "-O0", *commands()[0], cwd=one_file)
    assert run("./program", cwd=one_file).splitlines()[-1] == "0"


def test_the_one_c_file_compiles_into_a_module_as_the_docs_say(one_file):
    run("cc", "-O0", *commands()[1], cwd=one_file)
    told = run("sqlite3", ":memory:", "-cmd", ".load ./blackbox", "SELECT blackbox_version()",
               cwd=one_file)
    assert told.strip() == json.loads((DIST / "sqlpkg.json").read_text())["version"]


@pytest.mark.skipif(not SQLITE.is_dir(), reason="better-sqlite3 is not installed")
def test_the_one_c_file_compiles_beside_the_amalgamation_of_sqlite(one_file):
    for name in ("sqlite3.c", "sqlite3.h", "sqlite3ext.h"):
        (one_file / name).write_bytes((SQLITE / name).read_bytes())
    run("cc", "-O0", "-DSQLITE_CORE", "-I.", "-o", "program", "main.c", "blackbox.c", "sqlite3.c",
        "-luuid", "-lcrypto", "-lzstd", "-lz", "-lm", cwd=one_file)
    assert run("./program", cwd=one_file).splitlines()[-1] == "0"


def test_the_docs_name_the_files_that_are_built():
    named = re.findall(r"^\| `(\S+)`", (ROOT / "docs/packages.md").read_text(), re.M)
    named.append("checksums.txt")
    built = {path.name for path in DIST.iterdir()} - {"blackbox.c", "blackbox.h"}
    assert set(name.rstrip(",") for name in named) == built
