"""Triggers of a user on event_payloads that act on a protected row while a statement runs.

Every trigger, every statement in it, and every statement that fires it. A protected row stays as it
was, whether it is pinned or held."""
import itertools
import sqlite3

import pytest

from conftest import connect, one, rows

ROW = "(id, event_id, agent_id, purpose) VALUES("
RID = "(SELECT rowid FROM event_payloads WHERE id = '{}')"
INNER = {
    "replaces it by id": "INSERT OR REPLACE INTO event_payloads" + ROW + "'{0}', 'x', 'x', 'archive')",
    "replaces it by rowid":
        "INSERT OR REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
        "SELECT rowid, 'new', 'x', 'x', 'archive' FROM event_payloads WHERE id = '{0}'",
    "takes its id": "UPDATE OR REPLACE event_payloads SET id = '{0}' WHERE id = 'other'",
    "takes its rowid":
        "UPDATE OR REPLACE event_payloads SET rowid = " + RID + " WHERE id = 'other'",
    "deletes it": "DELETE FROM event_payloads WHERE id = '{0}'",
    "changes it": "UPDATE OR REPLACE event_payloads SET agent_id = 'x', request_body = 'x' "
                  "WHERE id = '{0}'",
    "ignores": "SELECT RAISE(IGNORE)",
}
OUTER = [
    "INSERT OR REPLACE INTO event_payloads" + ROW + "'free', 'x', 'x', 'archive')",
    "INSERT INTO event_payloads" + ROW + "'new2', 'x', 'x', 'evidence')",
    "REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
    "SELECT rowid, 'new3', 'x', 'x', 'archive' FROM event_payloads WHERE id = 'free'",
    "INSERT OR REPLACE INTO event_payloads" + ROW + "'{0}', 'x', 'x', 'archive')",
    "UPDATE OR REPLACE event_payloads SET id = 'free' WHERE id = 'free2'",
    "UPDATE OR REPLACE event_payloads SET id = '{0}' WHERE id = 'free2'",
    "UPDATE event_payloads SET request_body = 'longer', purpose = 'evidence' WHERE id = 'free'",
    "DELETE FROM event_payloads WHERE id = 'free'",
]
WHEN = [" ".join(pair) for pair in itertools.product(("BEFORE", "AFTER"),
                                                     ("INSERT", "UPDATE", "DELETE"))]
# What may fire a trigger of this kind: REPLACE deletes.
FIRES = {"INSERT": lambda sql: not sql.startswith(("UPDATE", "DELETE")),
         "UPDATE": lambda sql: sql.startswith("UPDATE"),
         "DELETE": lambda sql: "REPLACE" in sql or sql.startswith("DELETE")}
PROTECTED = ("evidence", "pinned", "held")


@pytest.fixture(scope="module")
def made():
    db = connect(":memory:")
    one(db, "SELECT blackbox_install('main', 'payload,retention')")
    for id, agent, purpose, pinned in (
            ("evidence", "a", "evidence", 1), ("pinned", "a", "archive", 1),
            ("held", "h", "archive", 0), ("free", "a", "archive", 0),
            ("free2", "a", "archive", 0), ("other", "a", "archive", 0)):
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose, "
                   "pinned) VALUES(?, 'e', ?, 'q', ?, ?)", (id, agent, purpose, pinned))
    one(db, "SELECT retention_hold('agent', 'h', 'case 7', 'Ann', 'a law suit')")
    yield db
    db.close()


def copy(made, module):
    db = connect(":memory:") if module else sqlite3.connect(":memory:", isolation_level=None)
    made.backup(db)
    return db


def protected(db):
    return (rows(db, "SELECT rowid, * FROM event_payloads WHERE id IN ('evidence', 'pinned', "
                 "'held') ORDER BY rowid"), rows(db, "SELECT * FROM payload__pins ORDER BY n"))


@pytest.mark.parametrize("module, recursive", [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("inner", INNER)
def test_a_trigger_of_a_user_changes_no_protected_row(made, inner, module, recursive):
    broken = []
    db = copy(made, module)
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    if recursive and hasattr(db, "setlimit"):
        db.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 30)
    before = protected(db)
    for id, when in itertools.product(PROTECTED, WHEN):
        db.execute(f"CREATE TRIGGER mine {when} ON event_payloads BEGIN {INNER[inner].format(id)}; "
                   "END")
        for outer in OUTER:
            if not FIRES[when.split()[1]](outer):
                continue
            db.execute("BEGIN")
            try:
                db.execute(outer.format(id))
            except sqlite3.Error:
                pass
            kept, pins = protected(db)
            if kept != before[0] or pins[:len(before[1])] != before[1]:
                broken.append((id, when, outer.format(id)))
            if db.in_transaction:
                db.execute("ROLLBACK")
        db.execute("DROP TRIGGER mine")
    assert not broken, broken
    db.close()
