"""What can be counted of `make weigh` stays below its ceiling, and the ceiling follows it down.

The ceilings, and the bounds that are the aim, are in FIGURES of tools/weigh.py."""
import math
import re
import shutil
import sqlite3
import sys

import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import weigh  # noqa: E402

# Every version of SQLite compiles statements in its own way: these are compared on that of
# Debian 12 alone. How many instructions they take also depends on how SQLite and libc were built.
VARIES = re.compile("instructions|opcodes|memory")
VERSION = "3.40.1"
SLACK = 0.05
COARSE = re.compile("instructions|memory|text|lines")  # have some room, so that a fix fits in


@pytest.fixture(params=["counted", "instructions"])
def figures(request, tmp_path_factory):
    """Figures with their ceilings and bounds."""
    by_valgrind = request.param == "instructions"
    if by_valgrind and (sqlite3.sqlite_version != VERSION or not shutil.which("valgrind")):
        pytest.skip(f"needs valgrind, and SQLite {VERSION}")
    folder = tmp_path_factory.mktemp("weigh")
    found = weigh.instructions(folder, False) if by_valgrind else weigh.counted(folder)
    assert set(found) <= set(weigh.FIGURES)
    return [(figure, found[figure], ceiling, bound)
            for figure, (ceiling, bound) in weigh.FIGURES.items()
            if ceiling is not None and ("instructions" in figure) == by_valgrind
            and (sqlite3.sqlite_version == VERSION or not VARIES.search(figure))]


def lowest(figure, value, bound):
    """The ceiling that a figure should have."""
    if COARSE.search(figure):
        value *= 1.02
        unit = 0.1 if value < 1000 else 10 ** (len(str(int(value))) - 3)
        value = round(math.ceil(value / unit) * unit, 1)
    return max(value, bound or 0)


def test_no_figure_is_above_its_ceiling_nor_far_below(figures):
    above = [f"{figure}: {value:,} is more than {ceiling:,}; the aim is {bound or 'less'}"
             for figure, value, ceiling, bound in figures if value > ceiling]
    loose = [f"lower the ceiling of {figure!r} to {lowest(figure, value, bound):_}"
             for figure, value, ceiling, bound in figures
             if max(value, bound or 0) < ceiling * (1 - SLACK)]
    assert not above + loose, "\n".join(above + loose)
