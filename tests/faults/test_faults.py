"""The tests in C of this folder: each program is a test."""
import subprocess

import pytest

from conftest import ROOT

PROGRAMS = ["disturb"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path):
    done = subprocess.run(
        [ROOT / "build" / "test" / name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
    )
    told = done.stdout.decode(errors="replace")
    assert done.returncode == 0, told[-5000:]
