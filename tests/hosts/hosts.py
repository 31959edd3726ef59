"""One scenario in every host that can load the module: the same lines, byte for byte.

    hosts.py [name ...]    all of HOSTS, or those whose names contain one of these

Each program of tests/hosts/programs runs rows.sql, in which every change is a row, and functions.sql, which does the
same through functions, on one new file. It prints the version of its SQLite, and then what rows.expected and
functions.expected say. What waits in the queue at the end is in the file when the host has closed its connection. A
host that is not installed is skipped, with the reason. `make test-hosts` installs them.
"""
import contextlib
import os
import pathlib
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "hosts"
PROGRAMS = HERE / "programs"
BUILD = ROOT / "build" / "hosts"
NODE_MODULES = BUILD / "node_modules"
NODE = NODE_MODULES / "node" / "bin" / "node"  # a newer one than may be on PATH
MODULE = ROOT / ("blackbox" + (".dylib" if sys.platform == "darwin" else ".so"))
SCENARIOS = ["rows", "functions"]
PYTHON = sys.executable
JAR = pathlib.Path("/usr/share/java/sqlite-jdbc.jar")
GOPATH = pathlib.Path("/usr/share/gocode")
GO = {"GO111MODULE": "off", "GOPATH": str(GOPATH), "GOFLAGS": ""}
CRATES = pathlib.Path("/usr/share/cargo/registry")
ODBC = pathlib.Path("/usr/lib/x86_64-linux-gnu/odbc/libsqlite3odbc.so")


class Unavailable(Exception):
    """The reason why a host is not available."""


def asked():
    """`make test` leaves most hosts to `make test-hosts`, which sets this."""
    if os.environ.get("BLACKBOX_HOSTS") != "1":
        raise Unavailable("make test-hosts runs it")


def run(*command, **options):
    """What a command prints, and how it ended."""
    env = {**os.environ, **options.pop("env", {})}
    done = subprocess.run([str(word) for word in command], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=600, **options)
    return done.returncode, done.stdout.decode(errors="replace")


def build(*command, **options):
    code, told = run(*command, **options)
    assert code == 0, told


def need(found, package):
    if not found:
        raise Unavailable(f"{package} is not installed")


def python_module(name, package):
    need(run(PYTHON, "-c", f"import {name}")[0] == 0, package)


def program(name, package):
    need(shutil.which(name), package)


def npm(name):
    """A package of npm, whose installation may have failed."""
    if not (NODE_MODULES / name).is_dir():
        raise Unavailable(f"npm did not install {name}: see {BUILD / 'npm.log'}")
    return name


# Each of these returns the command of a host, to which module, file and scenarios are added, and
# the environment. It may use the folder.

def shell(folder):
    program("sqlite3", "sqlite3")
    return ["sh", PROGRAMS / "shell.sh", MODULE], {}


def python(folder):
    return [PYTHON, PROGRAMS / "python.py", MODULE], {}


def apsw(folder):
    python_module("apsw", "python3-apsw")
    return [PYTHON, PROGRAMS / "apsw.py", MODULE], {}


def odbc(folder):
    python_module("pyodbc", "python3-pyodbc")
    need(ODBC.exists(), "libsqliteodbc")
    (folder / "odbcinst.ini").write_text(f"[SQLite3]\nDriver={ODBC}\n")
    return [PYTHON, PROGRAMS / "odbc.py", MODULE], {"ODBCSYSINI": str(folder)}


def perl(folder):
    program("perl", "perl")
    need(run("perl", "-MDBD::SQLite", "-e", "1")[0] == 0, "libdbd-sqlite3-perl")
    return ["perl", PROGRAMS / "perl.pl", MODULE], {}


def php_has(name, package):
    program("php", "php-cli")
    need(name in run("php", "-m")[1].split(), package)


def php(folder):
    php_has("sqlite3", "php-sqlite3")
    return ["php", "-d", f"sqlite3.extension_dir={MODULE.parent}", PROGRAMS / "sqlite3.php", MODULE.name], {}


def pdo(folder):
    php_has("pdo_sqlite", "php-sqlite3")
    php_has("FFI", "the FFI of PHP")
    return ["php", "-d", "ffi.enable=1", PROGRAMS / "pdo.php", MODULE], {}


def ruby(folder):
    program("ruby", "ruby")
    need(run("ruby", "-e", "require 'sqlite3'")[0] == 0, "ruby-sqlite3")
    return ["ruby", PROGRAMS / "ruby.rb", MODULE], {}


def tcl(folder):
    program("tclsh", "tcl")
    need(run("tclsh", input=b"package require sqlite3")[0] == 0, "libsqlite3-tcl")
    return ["tclsh", PROGRAMS / "tcl.tcl", MODULE], {}


def jdbc(folder):
    program("java", "default-jdk-headless")
    need(JAR.exists(), "libxerial-sqlite-jdbc-java")
    return ["java", "-cp", JAR, PROGRAMS / "Jdbc.java", MODULE], {}


def go_packages():
    program("go", "golang-go")
    need((GOPATH / "src/github.com/mattn/go-sqlite3").is_dir(), "golang-github-mattn-go-sqlite3-dev")


def go(folder):
    go_packages()
    build("go", "build", "-tags", "libsqlite3", "-o", folder / "host", PROGRAMS / "mattn.go", env=GO)
    return [folder / "host", MODULE], {}


def cargo_project(folder, main):
    """A project with rusqlite, from the packages of Debian; returns its program."""
    program("cargo", "cargo")
    found = sorted(CRATES.glob("rusqlite-*"))
    need(found, "librust-rusqlite-dev")
    version = found[0].name.split("-")[1]
    (folder / "src").mkdir()
    (folder / ".cargo").mkdir()
    (folder / "src" / "main.rs").write_text(main)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "flight"\nversion = "0.1.0"\nedition = "2021"\n'
        f'[dependencies]\nrusqlite = {{ version = "{version}", features = ["load_extension"] }}\n')
    (folder / ".cargo" / "config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "here"\n[source.here]\ndirectory = "{CRATES}"\n')
    build("cargo", "build", "--offline", "--quiet", cwd=folder)
    return folder / "target" / "debug" / "flight"


def rust(folder):
    return [cargo_project(folder, (PROGRAMS / "rusqlite.rs").read_text()), MODULE], {}


def luajit(folder):
    program("luajit", "luajit")
    return ["luajit", PROGRAMS / "luajit.lua", MODULE], {}


def compile_c(folder, *args):
    build(*shlex.split(os.environ.get("CC", "cc")), "-o", folder / "host", PROGRAMS / "host.c", *args)
    return [folder / "host", MODULE], {}


def c_dlopen(folder):
    return compile_c(folder, "-lsqlite3")


def c_static(folder):
    library = ROOT / "build" / "libblackbox.a"
    need(library.exists(), "build/libblackbox.a (make static)")
    # Without the flags of the make that runs the tests, whose jobs are not for this one.
    code, libs = run("env", "-u", "MAKEFLAGS", "make", "-s", "libs", cwd=ROOT)
    assert code == 0, libs
    return compile_c(folder, "-DSQLITE_CORE", library, "-lsqlite3", *libs.split())


def in_node(node, name, *args):
    """Packages are found in the folder of the program, so it is copied beside them."""
    program(str(node), "node")
    copy = BUILD / f"{name}.mjs"
    shutil.copy(PROGRAMS / copy.name, copy)
    return [node, copy, *args, MODULE], {}


def better_sqlite3(folder):
    return in_node("node", "better-sqlite3", npm("better-sqlite3"))


def libsql(folder):
    return in_node("node", "better-sqlite3", npm("libsql"))


def node_sqlite3(folder):
    npm("sqlite3")
    return in_node("node", "sqlite3")


def node_sqlite(folder):
    npm("node")
    return in_node(NODE, "node-sqlite")


def bun(folder):
    npm("bun")
    return [NODE_MODULES / ".bin" / "bun", PROGRAMS / "bun.ts", MODULE], {}


QUICK = {
    "sqlite3 shell": shell,
    "Python sqlite3": python,
    "C, dlopen": c_dlopen,
    "C, static": c_static,
}
HOSTS = {
    **QUICK,
    "Python apsw": apsw,
    "ODBC, pyodbc": odbc,
    "Perl DBD::SQLite": perl,
    "PHP SQLite3": php,
    "PHP PDO": pdo,
    "Ruby sqlite3": ruby,
    "Tcl sqlite3": tcl,
    "Java JDBC, xerial": jdbc,
    "Go mattn/go-sqlite3": go,
    "Rust rusqlite": rust,
    "LuaJIT FFI": luajit,
    "Node better-sqlite3": better_sqlite3,
    "Node sqlite3": node_sqlite3,
    "Node libsql": libsql,
    "Node node:sqlite": node_sqlite,
    "bun bun:sqlite": bun,
}


def expected():
    return "".join((HERE / f"{name}.expected").read_text() for name in SCENARIOS)


def drive(host, folder):
    """Runs a host on a new file in a folder: the version of its SQLite, and what it printed."""
    command, env = host(folder)
    code, told = run(*command, folder / "flight.db", *(HERE / f"{name}.sql" for name in SCENARIOS), env=env)
    assert code == 0, told
    with contextlib.closing(sqlite3.connect(folder / "flight.db")) as db:
        closed = db.execute("SELECT event_id FROM event_payloads WHERE event_id GLOB 'w?' ORDER BY 1").fetchall()
    assert closed == [("w1",), ("w2",)], "closing has not written what waited"
    version, _, lines = told.partition("\n")
    return version, lines


def differences(lines):
    """The lines that differ from those expected, as a user of diff would see them."""
    import difflib
    return "\n".join(difflib.unified_diff(expected().splitlines(), lines.splitlines(), "expected", "printed",
                                          lineterm="", n=0))


def main(words):
    failed = 0
    counts = {"ok": 0, "skipped": 0}
    print(f"{'host':<22}{'SQLite':<10}{'seconds':>7}  result")
    for name, host in HOSTS.items():
        if words and not any(word in name for word in words):
            continue
        version, details, start = "", "", time.time()
        with tempfile.TemporaryDirectory(prefix="blackbox") as folder:
            try:
                version, lines = drive(host, pathlib.Path(folder))
                result = "ok" if lines == expected() else "FAILED"
                details = differences(lines)
            except Unavailable as reason:
                result = f"skipped: {reason}"
            except AssertionError as error:
                result, details = "FAILED", str(error)
        failed += result == "FAILED"
        print(f"{name:<22}{version:<10}{time.time() - start:>7.1f}  {result}", flush=True)
        if details:
            print(details)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
