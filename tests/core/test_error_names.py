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


def fails(text):
    """The formats of the bxFail calls of a file."""
    for call in re.findall(r"\bbxFail\s*\((.*?)\);", text, re.S):
        yield "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', call))


def prefixed(text):
    """Whether a prefix at the end gives all unnamed errors of a file a name."""
    return re.findall(r'bxPrefix\(&?\w+(?:->|\.)?\w*, "(\w+Error: )', text)


@pytest.mark.parametrize("path", sorted(ROOT.glob("sql/*.sql")), ids=lambda p: p.name)
def test_raise(path):
    assert [text for text in raises(path.read_text()) if not NAMED.match(text)] == []


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("ext/**/*.c")), ids=lambda p: f"{p.parent.name}-{p.name}")
def test_fail(path):
    text = path.read_text()
    nameless = {f for f in fails(text)
                if not NAMED.match(f) and not f.startswith("%s")} - OTHERS
    assert not nameless or prefixed(text), nameless


def test_there_are_many_of_both():
    assert sum(len(raises(p.read_text())) for p in ROOT.glob("sql/*.sql")) > 100
    assert sum(len(list(fails(p.read_text()))) for p in ROOT.glob("ext/*/*.c")) > 150


@pytest.mark.parametrize("sql, name", [
    ("SELECT payload_stats()", "NotInstalledError: Database not initialized: "),
    ("SELECT rollout_append('a', '[]')", "Error: "),
    ("SELECT blackbox_install('nowhere')", "NotFoundError: "),
])
def test_what_a_caller_sees(sql, name):
    with pytest.raises(Exception) as told:
        one(connect(), sql)
    assert name in str(told.value)


def test_two_schemas():
    db = connect()
    db.execute("ATTACH ':memory:' AS other")
    one(db, "SELECT blackbox_install()")
    one(db, "SELECT blackbox_install('other')")
    with pytest.raises(Exception, match="^AmbiguousSchemaError: ambiguous: both main"):
        one(db, "SELECT payload_stats()")
