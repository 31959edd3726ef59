"""The sessions in README.md and docs/ of the oracle print the same with the module of the
checkout, and an install writes the same rows."""
import pytest

import contents
import intended
from conftest import ROOT, console, run_session
from pair import ORACLE, Pair, needs_oracle, told

pytestmark = needs_oracle
PAGES = [page for page in [ORACLE / "README.md", *sorted((ORACLE / "docs").glob("*.md"))]
         if page.exists() and console(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_session_prints_the_same(page, tmp_path):
    steps = [statement for statement, _ in console(page.read_text())]
    oracle = run_session(tmp_path / "oracle.db", steps, ORACLE)
    checkout = run_session(
        tmp_path / "checkout.db", [intended.translated(step) for step in steps], ROOT)
    assert len(oracle) == len(checkout) == len(steps)
    found = []
    for i, (step, *printed) in enumerate(zip(steps, oracle, checkout), 1):
        alone = intended.unexplained(step, *(text.splitlines() for text in printed))
        if alone != [[], []]:
            found.append(told(i, step, *alone))
    assert not found, "\n".join(found)


def test_an_install_writes_the_same_rows(tmp_path):
    with Pair(tmp_path) as pair:
        contents.compare(pair, contents.LISTS)
        pair.run("CREATE VIRTUAL TABLE ring USING payload_ring")
        pair.run("CREATE VIRTUAL TABLE rec USING evidence_buffer")
        contents.check(pair)
