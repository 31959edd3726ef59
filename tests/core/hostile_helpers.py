"""What the tests of hostile statements share: a file with pinned evidence, a pinned archive row,
and rows that are not protected."""
import os
import sqlite3

import pytest

from conftest import connect, one, rows

FULL = bool(os.environ.get("BLACKBOX_FULL"))
VICTIMS = ("victim", "VICTIM2", "pinned")
COLUMNS = ("id", "event_id", "agent_id", "request_body", "response_body",
           "size_bytes", "purpose", "pinned", "kill_switch_event_id", "created_at")
CLAUSES = ("", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT", "OR ROLLBACK")
ADOPTED = """
CREATE TABLE event_payloads(
  more TEXT COLLATE NOCASE DEFAULT 'Extra', number,
  id TEXT COLLATE NOCASE PRIMARY KEY, event_id TEXT COLLATE NOCASE NOT NULL,
  agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL,
  pinned INTEGER DEFAULT 0, kill_switch_event_id TEXT,
  created_at TEXT NOT NULL DEFAULT (datetime('now')), UNIQUE (event_id, agent_id));
CREATE UNIQUE INDEX theirs ON event_payloads(kill_switch_event_id COLLATE NOCASE);
"""
PUT = ("INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
       "response_body, purpose, pinned, kill_switch_event_id, created_at) VALUES "
       "('victim', 'e1', 'a', 'q', 'r', 'evidence', 1, 'K1', '2026-01-01 00:00:00'),"
       "('VICTIM2', 'E2', 'a', NULL, 'r', 'evidence', 1, NULL, '2026-01-01 00:00:00'),"
       "('pinned', 'e3', 'a', 'q', 'r', 'archive', 1, NULL, '2026-01-01 00:00:00'),"
       "('mine0', 'e4', 'b', 'q', 'r', 'archive', 0, NULL, '2026-01-01 00:00:00'),"
       "('mine1', 'e5', 'b', 'q', 'r', 'archive', 0, NULL, '2026-01-01 00:00:00')")
KINDS = ["own", "adopted", "adopted later"]


def make(path, kind):
    """A file whose rows of the log have leaves."""
    db = connect(path)
    db.execute("PRAGMA synchronous=OFF")
    if kind != "own":
        db.executescript(ADOPTED)
    if kind == "adopted later":
        db.execute(PUT)
        db.execute("UPDATE event_payloads SET number = 1")
    one(db, "SELECT blackbox_install('main', 'payload')")
    if kind != "adopted later":
        db.execute(PUT)
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('freed', 'e6', 'c', 'evidence')")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
               "VALUES('freed', 'Ann', 'case closed')")
    one(db, "SELECT proof_head()")  # gives leaves
    db.close()


def guarded(db):
    """What must not change: the pinned rows, and the records of pins and unpins."""
    ids = ", ".join(f"'{id}'" for id in VICTIMS)
    return (rows(db, "SELECT rowid, *, typeof(request_body) FROM main.event_payloads "
                 f"WHERE id COLLATE BINARY IN ({ids}) ORDER BY rowid"),
            rows(db, f"SELECT * FROM main.payload_pins WHERE id IN ({ids}, 'freed')"),
            rows(db, f"SELECT * FROM main.blackbox_log WHERE subject IN ({ids}, 'freed')"))


def problems(path):
    """What blackbox_check() finds in a file, on a connection of its own."""
    db = connect(path)
    found = [f"{row[1]}: {row[2]}" for row in rows(db, "SELECT * FROM blackbox_check")]
    db.close()
    return found


@pytest.fixture(scope="module", params=KINDS)
def made(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("hostile") / "made.db"
    make(path, request.param)
    return path.read_bytes(), request.param


@pytest.fixture
def fresh(made, tmp_path):
    path = tmp_path / "fresh.db"
    path.write_bytes(made[0])
    return path


def sampled(cases, every, first):
    """With BLACKBOX_FULL all cases, else one in so many, from the first on: tests that begin with
    different ones try all of them together."""
    return (case for i, case in enumerate(cases) if FULL or i % every == first % every)


def connection(path, module, recursive):
    db = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=OFF")
    db.execute(f"PRAGMA recursive_triggers={recursive}")
    return db


def run(db, script):
    """Every statement of a script, even if others fail."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if not sqlite3.complete_statement(statement):
            continue
        try:
            db.execute(statement).fetchall()
        except sqlite3.Error:
            pass
        statement = ""


def refused_without_journal(db, statement):
    """What the statement wrote before it was refused stays."""
    if one(db, "PRAGMA journal_mode = OFF") != "off":
        pytest.skip("defensive mode refuses it")
    db.execute("BEGIN")
    with pytest.raises(sqlite3.Error):
        db.execute(statement)
    db.execute("COMMIT")
