"""Triggers of a user, at random: on the archive, the settings and a table of the user, with every
kind of hostile statement in them, while other hostile statements run. Pinned rows and their records
stay, and each pin keeps its row."""
import random
import sqlite3

import pytest

from conftest import connect, rows
from hostile_helpers import FULL, fresh, guarded, made  # noqa: F401

TABLES = ("event_payloads", "event_payloads", "app", "blackbox_settings")
TIMES = [f"{when} {verb}" for when in ("BEFORE", "AFTER")
         for verb in ("INSERT", "UPDATE", "DELETE")]
PUT = "INTO event_payloads({}event_id, agent_id, purpose) {}"
HOSTILE = [
    "DELETE FROM event_payloads", "UPDATE event_payloads SET pinned = 1 - pinned",
    "UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'",
    "UPDATE event_payloads SET request_body = 'x', pinned = 1 WHERE id = 'victim'",
    "UPDATE event_payloads SET purpose = 'archive', pinned = 0",
    "UPDATE event_payloads SET purpose = 'evidence' WHERE id = 'mine1'",
    "UPDATE event_payloads SET id = NULL", "UPDATE event_payloads SET rowid = -1 "
    "WHERE id = 'mine1'", "UPDATE event_payloads SET id = 'late' WHERE id = 'mine1'",
    "UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine1'",
    "UPDATE OR REPLACE event_payloads SET pinned = 1 WHERE id = 'mine0'",
    "UPDATE OR IGNORE event_payloads SET pinned = 1, size_bytes = 9 WHERE id = 'mine0'",
    "UPDATE event_payloads SET event_id = 'E1', agent_id = 'a', kill_switch_event_id = 'k1' "
    "WHERE id = 'mine1'",
    "REPLACE " + PUT.format("id, ", "VALUES('victim', 'x', 'x', 'archive')"),
    "REPLACE " + PUT.format("rowid, id, ", "SELECT rowid, 'new', 'x', 'x', 'archive' "
                            "FROM event_payloads WHERE id = 'victim'"),
    "REPLACE " + PUT.format("kill_switch_event_id, ", "VALUES('k1', 'e1', 'a', 'evidence')"),
    "INSERT OR IGNORE " + PUT.format("id, ", "VALUES('victim', 'x', 'x', 'evidence')"),
    "INSERT " + PUT.format("id, ", "VALUES('fresh', 'e9', 'x', 'evidence')"),
    "INSERT INTO event_payloads SELECT * FROM event_payloads WHERE true "
    "ON CONFLICT(id) DO UPDATE SET pinned = 0",
    "UPDATE payload_pins SET id = 'mine1'", "DELETE FROM payload_pins", "DELETE FROM payload_unpins",
    "REPLACE INTO payload_pins(id) VALUES('victim')",
    "DELETE FROM blackbox_settings", "INSERT INTO app VALUES('victim')", "UPDATE app SET x = 1",
    "REPLACE INTO blackbox_settings(name, value) VALUES('payload.retention_days', 1)",
    "REPLACE INTO blackbox_settings(name, value) VALUES('payload.max_bytes', 1)",
    "INSERT INTO event_payloads(event_id, agent_id, kill_switch_event_id, purpose) "
    "VALUES('e4', 'b', 'k', 'evidence')",
    "INSERT INTO event_payloads(id, event_id, agent_id, purpose, created_at) "
    "VALUES('victim', 'e', 'a', 'archive', '2020-01-01')",
    "UPDATE retention_log SET rows = 0", "DELETE FROM blackbox_log",
    "INSERT INTO blackbox_log(domain, kind, subject) VALUES('payload', 'unpin', 'victim')",
]
LOST = ("SELECT id FROM payload_pins WHERE id NOT IN (SELECT id FROM event_payloads "
        "WHERE id IS NOT NULL)")


def attempt(db, statement):
    try:
        db.execute(statement)
    except sqlite3.Error:
        pass
    if not db.in_transaction:
        db.execute("BEGIN")


def tried(db, chance):
    """Makes one or two triggers, runs some statements, and takes everything back."""
    triggers = []
    for i in range(chance.choice((1, 1, 2))):
        body = chance.sample(HOSTILE + ["SELECT RAISE(IGNORE)"] * 8, chance.choice((1, 1, 2, 3)))
        triggers.append(f"CREATE TRIGGER t{i} {chance.choice(TIMES)} ON "
                        f"{chance.choice(TABLES)} BEGIN {'; '.join(body)}; END")
    statements = chance.sample(HOSTILE, 3)
    db.execute("BEGIN")
    for trigger in triggers:
        db.execute(trigger)
    for statement in statements:
        attempt(db, statement)
    found = guarded(db), rows(db, LOST)
    db.execute("ROLLBACK")
    return found, triggers + statements


@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("unchecked", [0, 1])
def test_no_trigger_and_statements_at_random(fresh, recursive, unchecked):  # noqa: F811
    chance = random.Random(f"{recursive} {unchecked}")
    db = sqlite3.connect(fresh, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    db.execute(f"PRAGMA ignore_check_constraints = {unchecked}")
    db.execute("CREATE TABLE app(x)")
    before = guarded(db), []
    for _ in range(5000 if FULL else 25):
        found, what = tried(db, chance)
        assert found == before, what
    db.close()
    assert rows(connect(fresh), "SELECT * FROM blackbox_check") == []
