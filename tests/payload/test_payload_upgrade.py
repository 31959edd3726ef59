"""One install upgrades a database of version 1.

version1.sql was dumped from a database that blackbox 1 made: archive row a1, pinned archive row
p1, evidence v1 and v2, evidence 'free' that was unpinned, evidence 'again' that was unpinned
and pinned again, evidence 'gone' that was unpinned and deleted, and evidence 'lost' that was
deleted by bypassing the guards."""
import pathlib
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows

VERSION1 = (pathlib.Path(__file__).parent / "version1.sql").read_text()
RECORDS = ("SELECT payload_id, actor, reason, event_id, agent_id, "
           "kill_switch_event_id FROM payload_unpins ORDER BY payload_id")
LOST = [("payload_pins", "row lost was pinned and is gone")]


@pytest.fixture
def old(path):
    by_hand(path, VERSION1)
    return connect(path)


def check(db):
    return rows(db, "SELECT object, problem FROM blackbox_check")


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_pins_and_records_are_kept(old, begin):
    payloads = rows(old, "SELECT rowid, * FROM event_payloads")
    records = rows(old, RECORDS)
    times = rows(old, "SELECT payload_id, at, pin FROM payload_unpins ORDER BY 1")
    old.execute(begin)
    assert one(old, "SELECT blackbox_install()").startswith("main: ")
    if begin:
        old.execute("COMMIT")
    assert rows(old, "SELECT rowid, * FROM event_payloads") == payloads
    assert rows(old, RECORDS) == records and len(records) == 3
    assert rows(old, "SELECT payload_id, at, pin FROM payload_unpins "
                "ORDER BY 1") == times
    assert rows(old, "SELECT id FROM payload_pins ORDER BY id") \
        == [("again",), ("lost",), ("p1",), ("v1",), ("v2",)]
    assert rows(old, "SELECT domain, version FROM blackbox_domains "
                "WHERE domain IN ('core', 'payload')") == [("core", 3), ("payload", 2)]
    # of every pin whose row is there
    assert one(old, "SELECT count(hash) FROM payload_pins") == 4
    assert check(old) == LOST
    assert rows(old, "SELECT name FROM sqlite_schema WHERE name GLOB 'payload_*1' "
                "OR name = 'payload_insert_rowid'") == []


def test_guards_hold_after_an_upgrade(old):
    one(old, "SELECT blackbox_install()")
    for id in ("p1", "v1", "v2", "again"):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            old.execute("DELETE FROM event_payloads WHERE id = ?", (id,))
    old.execute("DELETE FROM event_payloads WHERE id = 'free'")
    assert one(old, "SELECT payload_unpin('again', 'Ann', 'again')") == 1
    assert one(old, "SELECT payload_unpin('lost', 'Ann', 'known')") == 1
    assert check(old) == []


def test_a_second_install_changes_nothing(old):
    one(old, "SELECT blackbox_install()")
    version = one(old, "PRAGMA schema_version")
    ledger = rows(old, "SELECT * FROM payload_ledger")
    one(old, "SELECT blackbox_install()")
    assert one(old, "PRAGMA schema_version") == version
    assert rows(old, "SELECT * FROM payload_ledger") == ledger


def test_the_schema_is_that_of_a_new_database(old, tmp_path):
    one(old, "SELECT blackbox_install('main', 'payload')")
    new = connect(tmp_path / "new.db")
    one(new, "SELECT blackbox_install('main', 'payload')")
    select = ("SELECT type, name, tbl_name, sql FROM sqlite_schema "
              "WHERE name <> 'sqlite_sequence' ORDER BY 1, 2")
    assert rows(old, select) == rows(new, select)


def test_an_upgrade_that_fails_changes_nothing(old):
    old.execute("CREATE TABLE payload_ledger_x(x)")
    old.execute("CREATE TRIGGER payload_ledger AFTER INSERT ON payload_ledger_x "
                "BEGIN SELECT 1; END")
    old.execute("CREATE INDEX payload_pinned ON payload_ledger_x(x)")
    old.execute("CREATE VIEW payload_protected AS SELECT 1")
    old.execute("CREATE TABLE blackbox_probe(x)")
    before = rows(old, "SELECT * FROM sqlite_schema"), rows(old, RECORDS)
    with pytest.raises(sqlite3.OperationalError, match="blackbox_probe of another program"):
        one(old, "SELECT blackbox_install()")
    assert (rows(old, "SELECT * FROM sqlite_schema"), rows(old, RECORDS)) == before


@pytest.mark.parametrize("call", [
    "SELECT payload_unpin('v1', 'a', 'r')", "SELECT payload_stats()",
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "SELECT payload_save_evidence('k', '[]')", "SELECT payload_cleanup()"])
def test_functions_that_need_the_new_schema_say_so(old, call):
    old.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    old.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    with pytest.raises(sqlite3.OperationalError,
                       match=r"VersionError: .*blackbox_install\('main'\)"):
        old.execute(call)


def test_records_that_a_broken_trigger_left_are_carried_over(path):
    """Version 1 could leave a record without a pin, and a pin with the number of a pin that had
    ended."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(VERSION1 + """
        DROP TRIGGER payload_unpins_check; DROP TRIGGER payload_unpins_insert;
        DROP TRIGGER payload_pins_insert;
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('v1', 'mallory', 'broke off');
        INSERT INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('reused', 'e', 'a', 'archive');
        INSERT INTO payload_pins(pin, id)
        SELECT pin, 'reused' FROM payload_unpins WHERE payload_id = 'free';
    """)
    db.close()
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    assert one(db, "SELECT at FROM payload_unpins WHERE actor = 'mallory'") == 0
    assert one(db, "SELECT count(*) FROM payload_pins WHERE id IN ('v1', 'reused')") == 2
    for id in "v1", "reused":
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            db.execute("DELETE FROM event_payloads WHERE id = ?", (id,))


# As it was while each INSERT fired payload_settling, payload_pinning and payload_written.
THREE = """
DROP TRIGGER payload_insert;
DROP VIEW payload_landing;
CREATE TRIGGER payload_insert AFTER INSERT ON event_payloads
BEGIN
  INSERT INTO payload_settling(rid, wanted, wrong)
  VALUES (NEW.rowid, NEW.purpose = 'evidence',
          NEW.size_bytes IS NOT coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0));
  INSERT INTO payload_pinning(id, wanted) VALUES (NEW.id, NEW.pinned <> 0 OR NEW.purpose = 'evidence');
  INSERT INTO payload_written(rid, id, written) VALUES (NEW.rowid, NEW.id, 1);
END;
"""


def test_a_file_whose_inserts_fire_three_triggers_works_and_gets_the_one(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    wanted = rows(db, schema)
    db.executescript(THREE)
    db.execute("INSERT INTO blackbox_settings VALUES('payload.enabled', 1), "
               "('payload.queue_mode', 'memory')")
    db.close()
    db = connect(path)
    one(db, "SELECT payload_queue('e1', 'a', 'q', 'r')")
    assert one(db, "SELECT payload_flush()") == 1
    assert "payload_insert" in [row[0] for row in check(db)]
    one(db, "SELECT blackbox_install()")
    assert rows(db, schema) == wanted and check(db) == []
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
               "VALUES('v', 'e2', 'a', 'qq', 'evidence')")
    assert rows(db, "SELECT event_id, size_bytes, pinned FROM event_payloads ORDER BY 1") \
        == [("e1", 2, 0), ("e2", 2, 1)]
    assert rows(db, "SELECT id FROM payload_pins") == [("v",)]
