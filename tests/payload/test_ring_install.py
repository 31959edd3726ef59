"""CREATE VIRTUAL TABLE ring USING payload_ring is the whole set-up."""
import sqlite3

import pytest

from conftest import connect, one, rows
from payload_helpers import push


def domains(db, schema="main"):
    return [row[0] for row in rows(db, f"SELECT domain FROM {schema}.blackbox_domains")]


def fires(db, ring="ring"):
    push(db, "a", ring=ring)
    assert one(db, "SELECT payload_kill_switch(?, 'a', 'k')", ring) > 0
    one(db, "SELECT proof_head()")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("schema", ["main", "temp"])
def test_a_ring_installs_the_archive(path, schema):
    db = connect(path)
    db.execute(f"CREATE VIRTUAL TABLE {schema}.ring USING payload_ring")
    assert domains(db) == ["core", "payload"]
    fires(db)
    assert one(db, "SELECT blackbox_install()") == "main: core, payload"


def test_a_ring_of_an_attached_schema_installs_it_there():
    db = connect()
    db.execute("ATTACH ':memory:' AS \"a b\"")
    db.execute('CREATE VIRTUAL TABLE "a b".ring USING payload_ring')
    assert domains(db, '"a b"') == ["core", "payload"]
    assert rows(db, "SELECT * FROM main.sqlite_schema") == []
    fires(db)


def test_a_ring_in_temp_uses_the_archive_that_there_is():
    db = connect()
    db.execute("ATTACH ':memory:' AS side")
    one(db, "SELECT blackbox_install('side')")
    db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring")
    assert rows(db, "SELECT * FROM main.sqlite_schema") == []
    fires(db)


def test_a_ring_in_temp_can_be_made_beside_a_file_that_cannot_be_written(path):
    connect(path).execute("CREATE TABLE app(x)")
    db = connect(f"file:{path}?mode=ro", uri=True)
    db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring")
    push(db, "a", ring="temp.ring")
    with pytest.raises(sqlite3.OperationalError, match="blackbox_install"):
        one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")


def test_what_other_domains_there_are_stays(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'cache')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    assert domains(db) == ["cache", "core", "payload"]
    fires(db)


@pytest.mark.parametrize("end", ["ROLLBACK", "COMMIT", "ROLLBACK TO s", "RELEASE s"])
def test_in_a_transaction_it_is_a_part_of_it(path, end):
    db = connect(path)
    db.execute("SAVEPOINT s" if "s" in end else "BEGIN")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "a")
    db.execute(end)
    made = rows(db, "SELECT name FROM sqlite_schema")
    if "ROLLBACK" in end:
        assert made == []
        if db.in_transaction:
            db.execute("RELEASE s")
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    fires(db)


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("taken, what", [
    ("CREATE TABLE payload_pins(x)", "table payload_pins of another program"),
    ("CREATE VIEW retention_log AS SELECT 1", "view retention_log of another program"),
    ("CREATE TABLE ring_slots(x)", "ring_slots")])
def test_a_name_that_is_taken_is_refused_with_the_reason(path, taken, what, begin):
    db = connect(path)
    db.execute(taken)
    if begin:
        db.execute("BEGIN")
        db.execute("CREATE TABLE app(x)")
    before = rows(db, "SELECT type, name, sql FROM sqlite_schema")
    with pytest.raises(sqlite3.Error, match=what):
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    assert rows(db, "SELECT type, name, sql FROM sqlite_schema") == before
    assert db.in_transaction == begin


def test_an_archive_of_another_program_is_taken_over_by_an_install_first(path):
    db = connect(path)
    db.execute("CREATE TABLE event_payloads(id TEXT PRIMARY KEY, event_id TEXT NOT NULL,"
               " agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT, size_bytes INTEGER"
               " NOT NULL DEFAULT 0, purpose TEXT NOT NULL, pinned INTEGER NOT NULL DEFAULT 0,"
               " kill_switch_event_id TEXT, created_at TEXT NOT NULL DEFAULT (datetime('now')))")
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose)"
               " VALUES('i', 'e', 'a', 'archive')")
    with pytest.raises(sqlite3.Error, match="event_payloads of another program; run SELECT bla"):
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    one(db, "SELECT blackbox_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    fires(db)
    assert one(db, "SELECT count(*) FROM event_payloads") == 2


def test_a_kill_switch_for_an_agent_that_the_ring_has_never_seen_says_so(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "a")
    for sql in ("SELECT payload_kill_switch('ring', 'A', 'k')",
                "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'A', 'k')",
                "INSERT OR IGNORE INTO ring(ring, agent_id, event_id)"
                " VALUES('kill_switch', 'A', 'k')"):
        with pytest.raises(sqlite3.OperationalError,
                           match="NotFoundError: ring 'ring' has never seen agent 'A'"):
            db.execute(sql).fetchall()
    assert one(db, "SELECT count(*) FROM blackbox_log") == 0
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 0
