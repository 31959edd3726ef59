"""A comparison can fail: here one module is on both sides, and translations make them differ."""
import pytest

import intended
from conftest import MODULE
from intended import Difference, Translation
from pair import Pair

ID = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
MAKE_ID = "lower(hex(randomblob(4)) || '-aaaa-4aaa-8aaa-' || hex(randomblob(6)))"


@pytest.fixture(autouse=True)
def nothing_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(intended, "USED", tmp_path / "used")


def compared(tmp_path, statements, translations, differences=(), **options):
    """What a pair finds when the checkout gets other statements."""
    pair = Pair(tmp_path, None, (MODULE, MODULE), differences,
                [Translation(*entry, "a test") for entry in translations])
    with pair:
        for statement in statements:
            pair.run(statement, **options)
        found, pair.found = pair.found, []
    return "\n".join(found)


@pytest.mark.parametrize("other", [
    "SELECT 2", "SELECT 1.0", "SELECT '1'", "SELECT NULL", "SELECT x'31'",
    "SELECT 1 UNION SELECT 2",
    "SELECT 1 WHERE false", "SELECT nothing", "BEGIN"])
def test_another_answer_is_found(other, tmp_path):
    told = compared(tmp_path, ["SELECT 1"], [(r"^SELECT 1$", other)])
    assert "oracle:" in told and "checkout:" in told


@pytest.mark.parametrize("one, other", [
    ("CREATE VIEW v AS SELECT 1 AS a", "CREATE VIEW v AS SELECT 1 AS b"),
    ("VALUES (1), (2)", "VALUES (2), (1)"),
    ("SELECT abs(-9223372036854775808)", "SELECT json('{')"),
    ("INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1), (2)"),
    ("INSERT INTO t VALUES (NULL)", "INSERT INTO u VALUES (NULL)"),
    ("BEGIN", "SELECT 1")])
def test_names_order_errors_counts_and_transactions_count(one, other, tmp_path):
    setup = ["CREATE TABLE IF NOT EXISTS t(a NOT NULL)", "CREATE TABLE u(a CHECK (a > 1))"]
    assert compared(tmp_path, [*setup, f"/**/ {one}", "SELECT * FROM v"], [(r"^/\*\*/ .*", other)])


def test_order_can_be_left_out_but_not_how_often_a_row_is_there(tmp_path):
    assert not compared(tmp_path / "a", ["VALUES (1), (2)"], [(".*1.*", "VALUES (2), (1)")],
                        ordered=False)
    assert compared(tmp_path / "b", ["VALUES (1), (1), (2)"], [(".*1.*", "VALUES (1), (2), (2)")],
                    ordered=False)


def test_random_ids_must_be_the_same_ones_each_time(tmp_path):
    made = ["CREATE TABLE t(a, b)", f"INSERT INTO t SELECT {MAKE_ID}, {MAKE_ID}"]
    for name, other, same in (("a", "SELECT a, b", True), ("b", "SELECT b, a", False),
                              ("c", "SELECT a, a", False)):
        told = compared(tmp_path / name, [*made, "SELECT a, b FROM t", "/**/ SELECT a, b FROM t"],
                        [(r"^/\*\*/ SELECT a, b", other)])
        assert (told == "") == same, name
    twins = ["CREATE TABLE t(a, b)", f"INSERT INTO t SELECT {MAKE_ID}, 1 UNION SELECT {MAKE_ID}, 1",
             "SELECT a FROM t ORDER BY 1", "UPDATE t SET b = rowid",
             "SELECT * FROM t", "/**/ SELECT * FROM t"]
    for name, other, same in (("e", "*", True), ("f", "max(a) OVER (), b", False)):
        told = compared(tmp_path / name, twins, [(r"^/\*\*/ SELECT \*", f"SELECT {other}")])
        assert (told == "") == same, name
    given = ["CREATE TABLE t(a)", f"INSERT INTO t SELECT {MAKE_ID}", "SELECT a FROM t"]
    assert compared(tmp_path / "d", [*given[:2], f"SELECT a, '{ID}' FROM t", given[2]],
                    [(r"^SELECT a FROM t", f"SELECT '{ID}'")])


def test_an_intended_difference_is_no_more_than_what_it_says(tmp_path):
    statements, change = ["SELECT 'old' AS a"], [("'old'", "'new'")]
    entry = Difference("SELECT 'old'", r"^\('old',\)$", r"^\('new',\)$", "a test")
    assert not compared(tmp_path / "a", statements, change, [entry])
    assert len(list(intended.USED.iterdir())) == 2  # the entry and the translation
    for i, wrong in enumerate([
            entry._replace(statement="SELECT 'other'"), entry._replace(oracle="'x'"),
            entry._replace(checkout="'x'"), entry._replace(oracle=None),
            entry._replace(checkout=None)]):
        assert compared(tmp_path / str(i), statements, change, [wrong]), wrong
    assert compared(tmp_path / "b", statements, [("'old'", "'new' AS a UNION SELECT 'more'")],
                    [entry])


def test_entries_that_nothing_used_are_told(monkeypatch):
    entries = [Difference("a", None, "b", "c"), Difference("d", None, "e", "f")]
    monkeypatch.setattr(intended, "DIFFERENCES", entries)
    monkeypatch.setattr(intended, "TRANSLATIONS", [])
    monkeypatch.setattr(intended, "LEFT_OUT", [])
    monkeypatch.setattr(intended, "TESTS", [])
    intended.use(entries[0])
    assert intended.stale() == entries[1:]
