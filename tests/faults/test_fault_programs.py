"""The C tests of this folder: each program is a test, in parts that can run in parallel."""
import os
import subprocess
import sys

import pytest

from conftest import ROOT, run_program

PARTS = {"disturb": 4, "io": 2, "damage": 2, "writes": 1}
SEEDS = sorted((ROOT / "tests" / "faults" / "seeds").iterdir())


@pytest.mark.parametrize(
    "name, part",
    [(name, f"{i}/{n}") for name, n in PARTS.items() for i in range(n)],
)
def test_every_operation_survives_every_fault_of_the_program(name, part, tmp_path):
    run_program(name, tmp_path, part)


def test_random_changes_of_the_seeds_cause_no_error_of_memory(tmp_path):
    count = 20000 if os.environ.get("BLACKBOX_FULL") else 15
    told = run_program("replay", tmp_path, count, *SEEDS)
    assert told.count(f"{count + 1} inputs") == len(SEEDS)


def test_random_changes_of_bundles_and_notes_are_refused():
    done = subprocess.run([sys.executable, ROOT / "tests" / "faults" / "fuzz.py",
                           "600" if os.environ.get("BLACKBOX_FULL") else "1", "7"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
