"""The tests in C of this folder: each program is a test."""
import os

import pytest

from conftest import ROOT, run_program

PROGRAMS = ["disturb", "io", "damage"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path):
    run_program(name, tmp_path)


def test_inputs_that_nobody_expects(tmp_path):
    count = 20000 if os.environ.get("BLACKBOX_FULL") else 300
    seeds = sorted((ROOT / "tests" / "faults" / "seeds").iterdir())
    told = run_program("replay", tmp_path, count, *seeds)
    assert told.count(f"{count + 1} inputs") == len(seeds)
