"""With trusted_schema off, SQLite before 3.41 refuses JSON functions in a schema.

In a CHECK, an index or a generated column, such a function makes the whole file unreadable. So
these must not contain one. In a trigger or view, only the statement that uses it fails."""
import re
import sqlite3

import pytest

from conftest import connect, one, rows

CALL = re.compile(r"\bjson\w*\s*\(|->", re.IGNORECASE)


@pytest.fixture
def full(db):
    """A file with every table that blackbox makes."""
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("CREATE VIRTUAL TABLE temp.fast USING evidence_buffer(overflow='main')")
    one(db, "SELECT rollout_search_install()")
    return db


def test_no_table_or_index_calls_a_json_function(full):
    found = []
    for name, sql in rows(full, "SELECT name, sql FROM sqlite_schema WHERE type "
                          "IN ('table', 'index') AND sql IS NOT NULL"):
        code = re.sub(r'"[^"]*"|--[^\n]*', "", sql)  # names and comments
        if CALL.search(code):
            found.append(name)
    assert found == []
    assert len(rows(full, "SELECT 1 FROM sqlite_schema WHERE type = 'table'")) > 20


@pytest.mark.parametrize("module", [False, True])
def test_every_table_can_be_read_with_an_untrusted_schema(full, path, module):
    full.execute("CREATE TABLE app(x)")
    db = connect(path) if module else sqlite3.connect(path)
    db.execute("PRAGMA trusted_schema = OFF")
    tables = [r[0] for r in db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table'"
        " AND sql NOT LIKE 'CREATE VIRTUAL%'")]
    assert {"app", "cache_items", "event_payloads"} < set(tables)
    for table in tables:
        db.execute(f'SELECT * FROM "{table}"').fetchall()
    db.execute("INSERT INTO app VALUES(1)")
