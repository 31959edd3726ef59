"""The tests in C of this folder: each program is a test."""
import pytest

from conftest import run_program

PROGRAMS = ["disturb", "io", "damage"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path):
    run_program(name, tmp_path)
