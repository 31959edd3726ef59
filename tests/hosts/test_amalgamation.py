"""The amalgamation compiles alone, into a module and into a program."""
import os
import shlex
import shutil
import sqlite3
import subprocess

import pytest

from conftest import FULL, ROOT, SUFFIX

FLAGS = ("-std=c11 -O0 -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes "
         "-Werror -fvisibility=hidden").split()


def compile_c(*args):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    done = subprocess.run([*compiler, *FLAGS, *map(str, args)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def dist(tmp_path):
    """The two files, and nothing else of the project, in a folder."""
    subprocess.run(["make", "-s", "amalgamation"], cwd=ROOT, check=True)
    for name in ("blackbox.c", "blackbox.h"):
        shutil.copy(ROOT / "dist" / name, tmp_path)
    return tmp_path


def test_the_one_file_form_compiles_into_a_module(dist):
    module = dist / f"blackbox{SUFFIX}"
    if not FULL:  # make test compiles it into a program (see test_loading.py)
        return compile_c("-fsyntax-only", dist / "blackbox.c")
    compile_c("-shared", "-fPIC", "-Wl,--exclude-libs,ALL", "-o", module,
              dist / "blackbox.c", "-luuid", "-l:libcrypto.a",
              "-l:libzstd.a", "-l:libz.a")
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(str(module))
    db.execute("SELECT blackbox_install('main', 'all')")
    assert db.execute("SELECT * FROM blackbox_check").fetchall() == []


@pytest.mark.skipif(not FULL, reason="make test-full compiles all of it once more")
def test_the_library_is_linked_into_a_program(tmp_path):
    subprocess.run(["make", "-s", "static"], cwd=ROOT, check=True)
    compile_c("-o", tmp_path / "program", ROOT / "tests" / "hosts" / "static.c",
              ROOT / "build" / "libblackbox.a", "-lsqlite3", "-luuid", "-l:libcrypto.a",
              "-l:libzstd.a", "-l:libz.a")
    told = subprocess.run([tmp_path / "program"], check=True, stdout=subprocess.PIPE, text=True)
    assert told.stdout.splitlines()[-1] == "0"


CPP = """#include <cstdio>
#include "blackbox.h"
int main() {
  sqlite3 *db = nullptr;
  sqlite3_open(":memory:", &db);
  std::printf("%d\\n", sqlite3_blackbox_init(db, nullptr, nullptr));
  return sqlite3_close(db);
}
"""


def test_the_header_can_be_included_by_cpp(dist):
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler")
    (dist / "main.cpp").write_text(CPP)
    subprocess.run(["c++", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                    "main.cpp"], cwd=dist, check=True)
