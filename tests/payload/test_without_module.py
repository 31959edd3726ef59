"""What a connection without the module can read and do, and what it cannot."""
import sqlite3

import pytest

from conftest import connect, one, overwrite_pages, rows, shell
from payload_helpers import check, push


@pytest.fixture
def plain(db, path):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    for i in range(5):
        push(db, "a", f"e{i}", "q", None, i)
    push(db, "b", "kept")
    one(db, "SELECT payload_kill_switch('ring', 'b', 'k')")
    other = sqlite3.connect(path, isolation_level=None)
    yield other
    other.close()


def test_the_tables_behind_a_ring_are_readable(plain):
    assert rows(plain, "SELECT event_id, request_body, timestamp, seq FROM ring_slots "
                "WHERE agent_id = 'a' ORDER BY seq") \
        == [(f"e{i}", "q", i, i + 1) for i in (2, 3, 4)]
    assert rows(plain, "SELECT agent_id, given, rolled, saved, rows FROM ring_agents") \
        == [("a", 5, 2, 0, 3), ("b", 1, 0, 1, 0)]
    assert rows(plain, "SELECT body FROM ring_texts WHERE id = -1") == [(3,)]
    with pytest.raises(sqlite3.OperationalError, match="no such module"):
        plain.execute("SELECT * FROM ring")


def test_the_archive_works_whole(plain, db):
    assert rows(plain, "SELECT event_id, kill_switch_event_id, purpose, pinned "
                "FROM event_payloads") == [("kept", "k", "evidence", 1)]
    plain.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, "
                  "purpose) VALUES('n', 'a', 'é', 'archive')")
    assert one(plain, "SELECT size_bytes FROM event_payloads WHERE event_id='n'") == 2
    plain.execute("DELETE FROM event_payloads WHERE pinned = 0")
    assert one(plain, "SELECT count(*) FROM event_payloads") == 1
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        plain.execute("DELETE FROM event_payloads")
    plain.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
                  "SELECT id, 'Ann', 'closed' FROM event_payloads")
    plain.execute("DELETE FROM event_payloads")
    plain.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.pack', 0)")
    for view in ("payload_pins", "blackbox_settings", "retention_log", "retention_rules"):
        plain.execute(f"SELECT * FROM {view}").fetchall()
    assert check(db) == []


def test_agents_are_stopped_by_plain_sql(plain, db):
    plain.execute("INSERT INTO payload_agents(agent_id, stopped_at, stopped_by) VALUES('a', 1, 'Ann')")
    push(db, "a", "e9")
    assert rows(plain, "SELECT stopped_by, went_on FROM payload_agents") == [("Ann", 1)]
    plain.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('n', 'a', 'archive')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k2')") == 3  # what it did is kept
    db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('a', 'Ann', 'mended')")
    push(db, "a", "e9")
    assert rows(plain, "SELECT kind, actor, reason FROM blackbox_log "
                "WHERE kind IN ('stop', 'start')") \
        == [("start", "Ann", "mended")]
    assert check(db) == []


def test_the_schema_survives_an_alter_and_a_vacuum(plain, db):
    plain.execute("CREATE TABLE app(x)")
    plain.execute("ALTER TABLE app RENAME TO app2")
    plain.execute("ALTER TABLE app2 ADD COLUMN y")
    plain.execute("ALTER TABLE app2 RENAME COLUMN y TO z")
    plain.execute("ALTER TABLE app2 DROP COLUMN z")
    plain.execute("VACUUM")
    plain.execute("REINDEX")
    plain.execute("ANALYZE")
    assert one(plain, "PRAGMA integrity_check") == "ok"
    assert one(plain, "PRAGMA quick_check") == "ok"
    push(db, "a", "e5")
    assert rows(db, "SELECT event_id FROM ring") == [("e3",), ("e4",), ("e5",)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_the_stock_shell_reads_the_file(plain, path):
    assert shell(path, "SELECT event_id FROM ring_slots ORDER BY seq") == "e2\ne3\ne4\n"
    assert "PinnedError" in shell(path, "DELETE FROM event_payloads")


def test_damage_to_a_page_is_found_by_the_integrity_check(db, path):
    for i in range(100):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, "
                   "purpose) VALUES(?, 'a', hex(zeroblob(3000)), 'archive')", (i,))
    size, last = one(db, "PRAGMA page_size"), one(db, "PRAGMA page_count")
    db.close()
    overwrite_pages(path, [last], size)  # of a long text
    assert one(connect(path), "PRAGMA integrity_check") != "ok"
