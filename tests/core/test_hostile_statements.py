"""Single statements that try to remove evidence: every verb and conflict clause, on every column.

Each of them is either refused or leaves every pinned row and every record unchanged."""
import itertools
import re
import sqlite3

import pytest

from conftest import connect, one, rows
from hostile_helpers import (CLAUSES, COLUMNS, connection, fresh, guarded, made, make, problems,
                             refused_without_journal, sampled)

VIEWS = ("blackbox_log", "payload_pins", "payload_agent_log", "payload_unpins")


def statements(kind):
    """Single statements: every verb and conflict clause, on every column."""
    columns = COLUMNS + (() if kind == "own" else ("more", "number"))
    values = ("NULL", "'other'", "1", "0", "x'00'", "'e4'")
    for clause, column, value in itertools.product(CLAUSES, columns, values):
        yield f"UPDATE {clause} event_payloads SET {column} = {value} WHERE id = 'victim'"
        if value == "NULL":
            yield f"UPDATE {clause} event_payloads SET {column} = {value}"
    for clause, id in itertools.product(CLAUSES, ("victim", "pinned", "VICTIM2", "victim2",
                                                  "Victim")):
        yield f"UPDATE {clause} event_payloads SET id = '{id}' WHERE id = 'mine0'"
        yield f"UPDATE {clause} event_payloads SET id = lower(id), pinned = 0"
        yield (f"UPDATE {clause} event_payloads SET rowid = (SELECT rowid FROM "
               f"event_payloads WHERE id = '{id}') WHERE id = 'mine0'")
        yield (f"UPDATE {clause} event_payloads SET event_id = 'E1', agent_id = 'a' "
               "WHERE id = 'mine0'")
        yield (f"UPDATE {clause} event_payloads SET kill_switch_event_id = 'k1' "
               "WHERE id = 'mine0'")
        for more, end in (("", ""), ("", " ON CONFLICT DO NOTHING"),
                          ("", " ON CONFLICT(id) DO UPDATE SET request_body = 'x'"),
                          ("", " ON CONFLICT(id) DO UPDATE SET id = 'gone', pinned = 0"),
                          ("rowid, ", "")):
            rid = f"(SELECT rowid FROM event_payloads WHERE id = '{id}'), " if more else ""
            for new in (id, "new"):
                yield (f"INSERT {clause} INTO event_payloads({more}id, event_id, "
                       f"agent_id, purpose, kill_switch_event_id) VALUES({rid}'{new}', "
                       f"'e1', 'a', 'archive', 'k1'){end}")
        yield (f"INSERT {clause} INTO event_payloads(rowid, event_id, agent_id, purpose, "
               f"id) SELECT rowid, 'x', 'x', 'evidence', NULL FROM event_payloads "
               f"WHERE id = '{id}'")
        yield f"INSERT {clause} INTO event_payloads SELECT * FROM event_payloads"
        yield f"INSERT {clause} INTO payload_pins(id) VALUES('{id}')"
        yield f"DELETE FROM event_payloads WHERE id = '{id}'"
    for view in VIEWS:
        yield f"DELETE FROM {view}"
        for clause in CLAUSES:
            yield f"INSERT {clause} INTO {view} SELECT * FROM {view}"
            yield f"UPDATE {clause} {view} SET at = 5"
    yield "DELETE FROM event_payloads"
    yield "DELETE FROM event_payloads WHERE rowid IN (SELECT rowid FROM event_payloads)"
    yield "UPDATE payload_unpins SET actor = 'x'"


@pytest.mark.parametrize("module", [0, 1])
@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_no_single_statement_changes_pinned_rows(made, fresh, module, recursive, begin):
    db = connection(fresh, module, recursive)
    before = guarded(db)
    assert [len(part) for part in before] == [3, 3, 5]
    first = 4 * module + 2 * recursive + bool(begin)
    for statement in sampled(statements(made[1]), 8, first):
        db.execute("SAVEPOINT each" if not begin else begin)
        try:
            db.execute(statement)
        except sqlite3.Error:
            pass
        after = guarded(db)
        assert after == before, statement
        if db.in_transaction:
            db.execute("ROLLBACK")
    db.close()
    check = [r for r in rows(connect(fresh), "SELECT * FROM blackbox_check")]
    assert check == []


@pytest.mark.parametrize("module", [0, 1])
def test_no_single_statement_that_is_committed_changes_pinned_rows(made, fresh, module):
    """The statements one after the other in autocommit: each may use the results of those
    before."""
    db = connection(fresh, module, 0)
    before = guarded(db)
    for statement in sampled(statements(made[1]), 2, module):
        try:
            db.execute(statement)
        except sqlite3.Error:
            pass
        assert guarded(db) == before, statement
    db = connect(fresh)
    one(db, "SELECT blackbox_install('main', 'payload')")
    one(db, "SELECT proof_head()")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("statement", [
    "INSERT INTO {0} SELECT * FROM {0} LIMIT 1", "INSERT INTO {0}(at) VALUES(5)",
    "UPDATE {0} SET actor = 'Ann'", "DELETE FROM {0}", "REPLACE INTO {0}(at) VALUES(5)"])
def test_no_ordinary_statement_writes_the_log(fresh, view, statement):
    db = connect(fresh)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    before = rows(db, "SELECT * FROM blackbox_log")
    try:
        db.execute(statement.format(view))
        assert view == "payload_agent_log" and ("SELECT" in statement or "INSERT" not in statement)  # of no row
    except sqlite3.Error as error:
        assert re.search("it is a view|ReadOnlyError|ValidationError|NotFoundError|no column", str(error))
    assert rows(db, "SELECT * FROM blackbox_log") == before
    assert problems(fresh) == []


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "blobopen"),
                    reason="Python 3.11 has incremental blobs")
@pytest.mark.parametrize("column, table", [
    *((c, "event_payloads") for c in ("id", "event_id", "request_body", "purpose", "created_at")),
    *((c, "blackbox__log") for c in ("subject", "kind", "event_id"))])
def test_an_incremental_blob_write_is_refused_or_found(fresh, column, table):
    db = sqlite3.connect(fresh, isolation_level=None)
    rowid = one(db, f"SELECT min(rowid) FROM {table}")
    try:
        with db.blobopen(table, column, rowid) as blob:
            blob.write(b"Z")
    except sqlite3.OperationalError as refused:
        assert re.search("indexed column|generated columns", str(refused))  # the latter in 3.53 and later
        return
    db.close()
    assert any("was altered" in problem for problem in problems(fresh))


@pytest.mark.parametrize("kind", ["own", "adopted"])
@pytest.mark.parametrize("statement", [
    "UPDATE event_payloads SET request_body = 'x' || id",
    "DELETE FROM event_payloads",
    "UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine0'",
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) VALUES"
    "('mine0', 'x', 'x', 'archive'), ('victim', 'y', 'y', 'archive')"])
def test_without_a_journal_pinned_rows_hold(tmp_path, kind, statement):
    """The guards refuse a statement before it changes a pinned row. (Its mark that REPLACE takes a
    row is not rolled back, and check finds it.)"""
    make(tmp_path / "off.db", kind)
    db = connect(tmp_path / "off.db")
    before = guarded(db)
    refused_without_journal(db, statement)
    assert guarded(db) == before
    assert rows(db, "SELECT * FROM blackbox_check WHERE object <> 'payload__state'") == []
    one(db, "SELECT payload_cleanup()")
    assert rows(db, "SELECT * FROM blackbox_check") == []
