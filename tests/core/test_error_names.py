"""Every error that blackbox raises has a name: "<Name>Error: what was wrong"."""
import re

import pytest

from conftest import ROOT, connect, one

NAMED = re.compile(r"[A-Z][A-Za-z]+Error: \S")
# Messages of SQLite itself.
OTHERS = {"", "out of memory", "wrong number of arguments to function %s()"}


def raises(text):
    """The literal texts of the RAISE calls of a file."""
    return re.findall(r"RAISE\s*\(\s*\w+\s*,\s*'((?:[^']|'')*)'", text)


def constraints(text):
    """The names of the constraints of a file, which SQLite shows as the message."""
    return re.findall(r'CONSTRAINT "([^"]*)"', text)


def fails(text):
    """The formats of the bxFail and bxRefuse calls of a file."""
    for call in re.findall(r"\bbx(?:Fail|Refuse)\s*\((.*?)\);", text, re.S):
        yield "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call))


def prefixed(text):
    """Whether a prefix at the end gives all unnamed errors of a file a name."""
    return re.findall(r'bxErrPrefix\(&?\w+(?:->|\.)?\w*, "(\w+Error: )', text)


@pytest.mark.parametrize("path", sorted(ROOT.glob("sql/*.sql")), ids=lambda p: p.name)
def test_every_raise_and_constraint_begins_with_an_error_name(path):
    text = path.read_text()
    assert len(raises(text)) == len(re.findall(r"\bRAISE\s*\((?!IGNORE)", text))
    assert [said for said in raises(text) + constraints(text) if not NAMED.match(said)] == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("ext/**/*.c")), ids=lambda p: f"{p.parent.name}-{p.name}")
def test_every_bxfail_begins_with_an_error_name(path):
    text = path.read_text()
    nameless = {f for f in fails(text)
                if not NAMED.match(f) and not f.startswith("%s")} - OTHERS
    assert not nameless or prefixed(text), nameless


def test_the_search_finds_the_raises_and_the_bxfails():
    assert sum(len(raises(p.read_text())) for p in ROOT.glob("sql/*.sql")) > 60
    assert sum(len(constraints(p.read_text())) for p in ROOT.glob("sql/*.sql")) > 10
    assert sum(len(list(fails(p.read_text()))) for p in ROOT.glob("ext/*/*.c")) > 150


@pytest.mark.parametrize("sql, name", [
    ("SELECT payload_stats()", "NotInstalledError: Database not initialized: "),
    ("SELECT rollout_append('a', '[]')", "Error: "),
    ("SELECT blackbox_install('nowhere')", "NotFoundError: "),
])
def test_every_error_that_a_caller_sees_has_a_name(sql, name):
    with pytest.raises(Exception) as told:
        one(connect(), sql)
    assert name in str(told.value)


def test_an_ambiguous_schema_is_an_error_with_a_name():
    db = connect()
    db.execute("ATTACH ':memory:' AS other")
    one(db, "SELECT blackbox_install('main', 'all')")
    one(db, "SELECT blackbox_install('other')")
    with pytest.raises(Exception, match="^AmbiguousSchemaError: both main"):
        one(db, "SELECT payload_stats()")
