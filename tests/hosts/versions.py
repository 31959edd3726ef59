"""The tests in Python on other versions of SQLite, as hosts have them.

    versions.py [version ...]    all of LIBRARIES, or those named

Each library is built from the amalgamation inside a release of better-sqlite3,
which npm fetches, with the options of Debian's. Python's sqlite3 takes it up
through LD_LIBRARY_PATH. Each is run with defensive mode off and on (see
defensive.c). What a run prints is left in build/versions.
"""
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "versions"

# SQLite: the release of better-sqlite3 that carries it
LIBRARIES = {
    "3.38.2": "7.5.1",
    "3.40.0": "8.0.1",
    "3.41.0": "8.2.0",
    "3.44.2": "9.2.0",
    "3.45.0": "9.3.0",
    "3.46.0": "11.2.0",
    "3.47.2": "11.7.2",
    "3.50.2": "12.2.0",
    "3.54.1": "13.2.0",
}

# Compiling takes a third of the time without optimisation, and the tests longer.
LEVEL = "-O1" if __name__ == "__main__" or os.environ.get("BLACKBOX_FULL") else "-O0"

INNER = "sqlite3.tar.gz"  # the folder in older releases

OPTIONS = """THREADSAFE=1 ENABLE_COLUMN_METADATA ENABLE_FTS3
ENABLE_FTS3_PARENTHESIS ENABLE_FTS5 ENABLE_RTREE ENABLE_DBSTAT_VTAB
ENABLE_STMTVTAB ENABLE_MATH_FUNCTIONS ENABLE_UNLOCK_NOTIFY
ENABLE_PREUPDATE_HOOK ENABLE_SESSION ENABLE_UPDATE_DELETE_LIMIT
LIKE_DOESNT_MATCH_BLOBS MAX_VARIABLE_NUMBER=250000 SECURE_DELETE SOUNDEX
USE_URI EXTRA_INIT=defensiveStart""".split()

# These tests run programs, which are linked with one library, or tests once more.
LEFT_OUT = ["tests/core/test_weight.py", "tests/faults", "tests/hosts/test_host_programs.py",
            "tests/hosts/test_hosts.py", "tests/hosts/test_snippets.py",
            "tests/hosts/test_versions.py", "tests/differential/test_oracle_tests.py"]


class Unavailable(Exception):
    """The reason why a library is not available."""


def run(command, **options):
    try:
        done = subprocess.run([str(word) for word in command], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              **options)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} gave no answer") from None
    return done.returncode, done.stdout


def unpack(archive, folder):
    with tarfile.open(archive) as packed:
        for member in packed.getmembers():
            name = pathlib.PurePath(member.name).name
            if member.isfile() and name in ("sqlite3.c", "sqlite3.h", INNER):
                with open(folder / name, "wb") as file:
                    shutil.copyfileobj(packed.extractfile(member), file)


def amalgamation(release, folder):
    """Fetches a release, and leaves its sqlite3.c and sqlite3.h in a folder."""
    code, told = run(["npm", "pack", "--silent", f"better-sqlite3@{release}"],
                     cwd=folder, timeout=300)
    if code != 0:
        raise Unavailable(f"npm cannot fetch better-sqlite3@{release}: "
                          + " ".join(told.split())[-300:])
    unpack(next(folder.glob("*.tgz")), folder)
    if (folder / INNER).exists():
        unpack(folder / INNER, folder)


def compile_library(version, folder):
    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        source = pathlib.Path(name)
        amalgamation(LIBRARIES[version], source)
        if f'#define SQLITE_VERSION        "{version}"' not in \
                (source / "sqlite3.h").read_text():
            raise Unavailable(f"better-sqlite3@{LIBRARIES[version]} does not "
                              f"carry SQLite {version}")
        made = source / "libsqlite3.so.0"
        code, told = run([
            *os.environ.get("CC", "cc").split(), LEVEL, "-w", "-fPIC", "-shared",
            "-Wl,-soname,libsqlite3.so.0", f"-I{source}", "-o", made,
            *(f"-DSQLITE_{option}" for option in OPTIONS), source / "sqlite3.c",
            ROOT / "tests" / "hosts" / "defensive.c", "-lm", "-ldl", "-lpthread"])
        assert code == 0, told
        folder.mkdir(exist_ok=True)
        made.rename(folder / made.name)


def library(version):
    """The folder with libsqlite3.so.0 of that version. One process builds it if it does not
    exist, while others wait."""
    folder = BUILD / version
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "libsqlite3.so.0").exists():
            compile_library(version, folder)
    return folder


def environment(version, defensive):
    env = {**os.environ, "LD_LIBRARY_PATH": str(library(version)),
           "BLACKBOX_DEFENSIVE": str(int(defensive))}
    for name in [name for name in env if name.startswith("PYTEST_")]:
        del env[name]
    _, told = run([sys.executable, "-c",
                   "import sqlite3; print(sqlite3.sqlite_version)"], env=env)
    if told.strip() != version:
        raise Unavailable("this Python does not take its SQLite from the system: "
                          f"with that of {version} it has {told.strip()}")
    return env


def test(version, defensive, tests, *options):
    """Runs pytest on that library. Returns its exit code and output."""
    env = environment(version, defensive)
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(tempfile.TemporaryDirectory())
        return run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                    f"--basetemp={base}/t", "--tb=short", *options, *tests,
                    *(f"--ignore={path}" for path in LEFT_OUT)],
                   env=env, cwd=ROOT)


def parallel():
    return run([ROOT / ".ci" / "need", "parallel"])[1].split()


def counts(told):
    """The counts in the last line of pytest: passed, failed, skipped."""
    line = told.strip().splitlines()[-1] if told.strip() else ""
    found = dict((word, int(n)) for n, word in re.findall(r"(\d+) (\w+)", line))
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return found.get("passed", 0), failed, found.get("skipped", 0)


def main(chosen):
    unknown = [version for version in chosen if version not in LIBRARIES]
    if unknown:
        sys.exit(f"{unknown[0]} is none of {', '.join(LIBRARIES)}")
    sums = [0, 0, 0]
    print("SQLite   defensive  passed  failed  skipped  seconds")
    for version in chosen or LIBRARIES:
        for defensive in (False, True):
            mode = "on" if defensive else "off"
            head = f"{version:<8} {mode:<9}"
            start = time.time()
            try:
                code, told = test(version, defensive, ["tests"], *parallel())
            except Unavailable as reason:
                print(head, "not run:", reason, flush=True)
                sums[2] += 1
                continue
            (BUILD / f"{version}-{mode}.txt").write_text(told)
            n = counts(told)
            if code != 0 and n[1] == 0:
                n = (n[0], 1, n[2])
            print(head, "%7d %7d %8d %8.0f" % (*n, time.time() - start), flush=True)
            for line in told.splitlines():
                if line.startswith(("FAILED", "ERROR")):
                    print("  " + line)
            sums = [a + b for a, b in zip(sums, n)]
    print("%d passed, %d failed, %d skipped" % tuple(sums))
    sys.exit(1 if sums[1] else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
