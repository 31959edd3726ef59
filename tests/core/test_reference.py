"""docs/reference.md is what tools/reference.py makes of the sources."""
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import reference  # noqa: E402


def test_the_page_is_that_of_the_sources():
    assert reference.PAGE.read_text() == reference.reference(), "run tools/reference.py"


def test_a_function_that_no_page_shows_is_told(capsys):
    assert reference.signature("payload_stats", 3, 4) == "?"
    assert "no page in docs/ shows payload_stats() with 3 to 4 arguments" in capsys.readouterr().err


def test_every_function_has_its_arguments():
    assert "?)" not in reference.PAGE.read_text()
