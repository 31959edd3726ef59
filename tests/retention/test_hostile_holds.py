"""Statements that try to remove or change what a hold keeps.

Every verb, conflict clause and column, one after the other, with and without the module: each is
refused or leaves what is held as it was."""
import itertools
import sqlite3

import pytest

from conftest import connect, one, rows
from holds_helpers import ID, SESSION, fill, hold

CLAUSES = ("", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT", "OR ROLLBACK")
VALUES = ("NULL", "'other'", "1", "x'00'")
TABLES = {
    "event_payloads": ("id", "event_id", "agent_id", "request_body", "response_body", "purpose",
                       "pinned", "kill_switch_event_id", "created_at", "size_bytes", "rowid"),
    "rollouts": ("id", "status", "expires_at", "last_sequence", "session_meta", "title"),
    "rollout_items": ("rollout", "sequence", "timestamp", "type", "payload"),
    "cache_sessions": ("session_id", "created_at", "kept_size"),
    "cache_items": ("id", "session_id", "task_id", "turn_id", "timestamp", "description", "data",
                    "custom_metadata"),
    "retention_holds": ("kind", "key", "owner", "until", "at", "released", "found"),
    "retention_hold_log": ("step", "at", "kind", "key", "owner", "act", "until"),
    "blackbox_log": ("n", "at", "domain", "kind", "subject", "detail"),
}
HELD = {
    "event_payloads": "SELECT rowid, id, event_id, agent_id, request_body, response_body "
                      "FROM event_payloads WHERE id IN ('p1', 'p2', 'p3', 'v1')",
    "rollout_items": "SELECT * FROM rollout_items",
    "cache_items": "SELECT id, session_id, task_id, turn_id, description, data, timestamp, "
                   f"custom_metadata FROM cache_items WHERE session_id = '{SESSION}'",
    "holds": "SELECT * FROM retention_holds",
    "log": "SELECT * FROM retention_hold_log",
}


def statements():
    for table, columns in TABLES.items():
        for clause, column, value in itertools.product(CLAUSES, columns, VALUES):
            yield f"UPDATE {clause} {table} SET {column} = {value}"
        for clause, column in itertools.product(CLAUSES[:3], columns):
            yield (f"UPDATE {clause} {table} SET {column} = (SELECT {column} FROM {table} "
                   f"ORDER BY 1 LIMIT 1)")
        for clause in CLAUSES:
            yield f"INSERT {clause} INTO {table} SELECT * FROM {table}"
        yield f"DELETE FROM {table}"
        yield f"DELETE FROM {table} WHERE rowid > 0" if "items" in table else \
              f"DELETE FROM {table} WHERE true ORDER BY 1"
    for clause, id in itertools.product(CLAUSES, ("p1", "p3", "v1")):
        yield (f"INSERT {clause} INTO event_payloads(id, event_id, agent_id, purpose) "
               f"VALUES('{id}', 'x', 'x', 'archive')")
        yield (f"INSERT {clause} INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
               f"SELECT rowid, 'x', 'x', 'x', 'archive' FROM event_payloads WHERE id = '{id}'")
        yield (f"INSERT {clause} INTO event_payloads(id, event_id, agent_id, purpose) VALUES("
               f"'{id}', 'x', 'x', 'archive') ON CONFLICT(id) DO UPDATE SET request_body = 'x'")
    for clause in CLAUSES:
        yield (f"INSERT {clause} INTO cache_items(session_id, task_id, turn_id, description, "
               f"data) VALUES('{SESSION}', 'a7b3c9d2', 'f4e8g1h1', 'x', '[9]')")
        yield f"INSERT {clause} INTO rollouts(id) VALUES('{ID}')"
    yield "SELECT rollout_cleanup_expired(253402300799999)"
    for view in ("rollouts", "retention_holds"):
        yield f"DELETE FROM {view}"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("held") / "made.db"
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    fill(db)
    for kind, key in (("agent", "a"), ("event", "e3"), ("evidence", "v1"), ("rollout", ID),
                      ("session", SESSION)):
        hold(db, kind, key)
    db.close()
    return path


@pytest.mark.parametrize("module", [False, True])
@pytest.mark.parametrize("recursive", [0, 1])
def test_no_statement_removes_or_changes_what_is_held(made, module, recursive):
    db = connect(made) if module else sqlite3.connect(made, isolation_level=None)
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    db.execute("PRAGMA synchronous = OFF")
    before = {name: rows(db, query) for name, query in HELD.items()}
    assert all(before.values())
    count = 0
    for statement in statements():
        db.execute("BEGIN")
        try:
            db.execute(statement)
        except sqlite3.Error:
            pass
        for name, query in HELD.items():
            assert rows(db, query) == before[name] or (
                name == "rollout_items" and "INTO rollout" in statement), (statement, name)
        if db.in_transaction:
            db.execute("ROLLBACK")
        count += 1
    assert count > 1000
    db.close()
    assert rows(connect(made), "SELECT * FROM blackbox_check") == []


NESTED = {
    "a delete from a trigger on a receipt": """
        CREATE TRIGGER mine AFTER INSERT ON blackbox__open BEGIN
          DELETE FROM event_payloads WHERE id = 'p1'; END;
        DELETE FROM event_payloads WHERE id = 'free';""",
    "a delete inside a delete": """
        CREATE TRIGGER mine AFTER DELETE ON event_payloads BEGIN
          DELETE FROM event_payloads WHERE id = 'p1'; END;
        DELETE FROM event_payloads WHERE id = 'free';""",
    "a table of the same name in temp": """
        CREATE TEMP TABLE retention__in_force(kind, key, owner, until, step);
        CREATE TEMP TABLE retention__holds(kind, key, owner, until, step);
        DELETE FROM event_payloads WHERE id = 'p1';""",
}


@pytest.mark.parametrize("trick", NESTED)
def test_no_trick_of_several_statements(db, trick):
    fill(db)
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('free', 'x', 'x', 'archive')")
    hold(db, "agent", "a")
    before = rows(db, HELD["event_payloads"])
    with pytest.raises(sqlite3.Error):
        db.executescript(NESTED[trick])
    assert rows(db, HELD["event_payloads"]) == before
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'p1'")
