"""The C tests of this folder: each program is a test."""
import pytest

from conftest import run_program

PROGRAMS = ["statements"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_passes(name, tmp_path):
    run_program(name, tmp_path)
