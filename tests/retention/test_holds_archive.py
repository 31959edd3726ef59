"""The guards of held rows of the archive are always there, and fit its table."""
import json
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from holds_helpers import LATER, check, fill, hold, release
from retention_helpers import DAY, archive
from test_clock import now, set_seen

KINDS = pytest.mark.parametrize("kind, key", [
    ("agent", "a"), ("event", "e1"), ("kill_switch", "k1"), ("evidence", "p1")])
THEIRS = """
CREATE TABLE event_payloads(
  number INTEGER PRIMARY KEY, id TEXT UNIQUE, event_id TEXT NOT NULL, agent_id TEXT NOT NULL,
  request_body TEXT, response_body TEXT, size_bytes INTEGER NOT NULL DEFAULT 0,
  purpose TEXT NOT NULL, pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT,
  created_at TEXT NOT NULL, "a ""serial"" " TEXT COLLATE NOCASE UNIQUE, note TEXT);
INSERT INTO event_payloads VALUES
  (1, 'p1', 'e1', 'a', 'q', 'r', 2, 'archive', 0, NULL, '2001-01-01 00:00:00', 's1', 'n'),
  (2, 'p2', 'e2', 'b', 'q', 'r', 2, 'archive', 0, NULL, '2001-01-01 00:00:00', 's2', 'n');
"""


@KINDS
def test_a_hold_changes_rows_and_never_the_schema(db, path, kind, key):
    version = one(db, "PRAGMA schema_version")
    fill(db)
    hold(db, kind, key)
    with pytest.raises(sqlite3.Error, match="HeldError"):
        db.execute("DELETE FROM event_payloads")
    release(db, kind, key)
    if kind == "kill_switch":  # (no row of a ring has one)
        assert one(db, "PRAGMA schema_version") == version
    assert check(db) == []


def test_a_first_hold_as_a_row_holds_at_once(db, path):
    plain = sqlite3.connect(path, isolation_level=None)
    archive(db, "p", now())
    plain.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason) "
                  "VALUES('agent', 'a', 'case-1', 'ann', 'asked')")
    with pytest.raises(sqlite3.Error, match="HeldError"):
        plain.execute("DELETE FROM event_payloads")


def test_an_archive_that_is_installed_after_the_hold_is_guarded(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'retention')")
    hold(db, "agent", "a")
    one(db, "SELECT blackbox_install('main', 'payload')")
    assert check(db) == []
    archive(db, "p", now())
    db.execute("UPDATE event_payloads SET agent_id = 'a'")
    with pytest.raises(sqlite3.Error, match="HeldError"):
        db.execute("DELETE FROM event_payloads")


def test_a_table_of_another_program_is_guarded_with_all_its_columns(path):
    by_hand(path, THEIRS)
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,retention')")
    hold(db, "agent", "a")
    assert check(db) == []
    before = rows(db, "SELECT * FROM event_payloads WHERE agent_id = 'a'")
    columns = ("id, event_id, agent_id, purpose, created_at, \"a \"\"serial\"\" \"")
    for sql in (
            "UPDATE event_payloads SET note = 'x'",
            "UPDATE event_payloads SET number = 9 WHERE number = 1",
            "UPDATE event_payloads SET \"a \"\"serial\"\" \" = 'x' WHERE number = 1",
            "UPDATE OR REPLACE event_payloads SET \"a \"\"serial\"\" \" = 'S1' WHERE number = 2",
            "UPDATE OR REPLACE event_payloads SET number = 1 WHERE number = 2",
            "UPDATE OR REPLACE event_payloads SET id = 'p1' WHERE number = 2",
            f"REPLACE INTO event_payloads({columns}) VALUES('p9', 'e', 'z', 'archive', "
            "'2001-01-01', 'S1')",
            f"REPLACE INTO event_payloads(number, {columns}) VALUES(1, 'p9', 'e', 'z', "
            "'archive', '2001-01-01', 's9')"):
        with pytest.raises(sqlite3.IntegrityError, match="HeldError|keeps its id"):
            db.execute(sql)
        assert rows(db, "SELECT * FROM event_payloads WHERE agent_id = 'a'") == before
    db.execute(f"INSERT OR IGNORE INTO event_payloads({columns}) VALUES('p9', 'e', 'z', "
               "'archive', '2001-01-01', 'S1')")
    db.execute("UPDATE event_payloads SET note = 'x' WHERE number = 2")
    assert rows(db, "SELECT id, note FROM event_payloads") == [("p1", "n"), ("p2", "x")]


def test_held_rows_count_for_max_bytes_and_a_write_without_room_goes_on(db):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.max_bytes', 100)")
    archive(db, "old", now() - 5000, "o" * 60)
    hold(db, "event", "e")
    db.execute("UPDATE blackbox_settings SET value = 101 WHERE name = 'payload.max_bytes'")
    assert check(db) == []
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
               "VALUES('b', 'f', 'a', ?, 'archive')", ("b" * 40,))
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
               "VALUES('c', 'f', 'a', ?, 'archive')", ("c" * 41,))
    assert rows(db, "SELECT id FROM event_payloads ORDER BY id") == [("c",), ("old",)]
    hold(db, "event", "f")
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
               "VALUES('d', 'f', 'a', ?, 'archive')", ("d" * 42,))
    assert rows(db, "SELECT id FROM event_payloads ORDER BY id") == [("c",), ("d",), ("old",)]
    assert "payload.bytes refused" in [r[0] for r in rows(db, "SELECT rule FROM retention_log")]
    release(db, "event", "e")
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
               "VALUES('g', 'g', 'a', 'g', 'archive')")
    assert rows(db, "SELECT id FROM event_payloads ORDER BY id") == [("c",), ("d",), ("g",)]
    assert check(db) == []


def test_a_row_stays_that_holds_leave_no_room_for_and_the_log_says_so(db):
    """Until the next write, which takes it as the oldest: so nothing that is acknowledged is gone."""
    archive(db, "old", now() - 5000, "o" * 60)
    hold(db, "event", "e")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.max_bytes', 50)")
    for id in "bcd":
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
                   "VALUES(?, 'f', 'a', 'b', 'archive')", (id,))
        assert rows(db, "SELECT id FROM event_payloads ORDER BY id") == [(id,), ("old",)]
    assert "payload.bytes refused" in [r[0] for r in rows(db, "SELECT rule FROM retention_log")]
    assert json.loads(one(db, "SELECT payload_cleanup()"))["left"]["held"] == 1
    assert check(db) == []


def test_a_clock_that_has_jumped_does_not_end_a_hold(db, path):
    archive(db, "p", now())
    hold(db, "event", "e", until=LATER)
    db.close()
    by_hand(path, f"UPDATE retention__in_force SET until = {now() - DAY}")
    db = connect(path)
    set_seen(db, now() - 8 * DAY)  # the machine says that it is 8 days later
    assert one(db, "SELECT count(*) FROM retention_holds") == 1
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        db.execute("DELETE FROM event_payloads")
    one(db, "SELECT retention_confirm_clock()")
    assert one(db, "SELECT count(*) FROM retention_holds") == 0
    db.execute("DELETE FROM event_payloads")


def test_a_clock_that_went_back_does_not_make_a_hold_last_longer(db, path):
    archive(db, "p", now())
    hold(db, "event", "e", until=LATER)
    db.close()
    by_hand(path, f"UPDATE retention__in_force SET until = {now() + DAY}")
    db = connect(path)
    set_seen(db, now() + 2 * DAY)
    db.execute("DELETE FROM event_payloads")


@pytest.mark.parametrize("event", [
    "BEFORE DELETE ON main.event_payloads", "BEFORE UPDATE ON main.event_payloads",
    "AFTER DELETE ON main.event_payloads"])
def test_a_trigger_of_the_user_is_no_way_around_a_hold(db, event):
    archive(db, "p", now())
    archive(db, "q", now())
    hold(db, "evidence", "p")
    db.execute(f"CREATE TEMP TRIGGER mine {event} BEGIN SELECT RAISE(IGNORE); END")
    for sql in ("DELETE FROM event_payloads", "UPDATE event_payloads SET request_body = 'z'",
                "DELETE FROM event_payloads WHERE pinned = 0", "UPDATE event_payloads SET id = 'z' WHERE id = 'p'",
                "UPDATE OR REPLACE event_payloads SET id = 'p' WHERE id = 'q'",
                "UPDATE OR REPLACE event_payloads SET rowid = 1 WHERE id = 'q'",
                "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
                "VALUES('p', 'f', 'b', 'archive')",
                "REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
                "VALUES(1, 'z', 'f', 'b', 'archive')"):
        try:
            db.execute(sql)
        except sqlite3.IntegrityError as error:
            assert str(error).startswith(("HeldError", "MisuseError", "ValidationError: a row keeps"))
        assert ("p", "x") in rows(db, "SELECT id, request_body FROM event_payloads")
