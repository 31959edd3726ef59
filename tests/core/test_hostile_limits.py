"""A host may forbid long patterns of LIKE and GLOB (SQLITE_LIMIT_LIKE_PATTERN_LENGTH; SQLite
recommends 50 for SQL of strangers). What is allowed stays so, and what is refused too."""
import sqlite3

import pytest

from conftest import connect, one, problems, rows

pytestmark = pytest.mark.skipif(not hasattr(sqlite3.Connection, "setlimit"),
                                reason="Python 3.11 sets limits")
EVIDENCE = ("INSERT INTO event_payloads(id, event_id, agent_id, purpose, created_at) "
            "VALUES(?, 'e', 'a', 'evidence', ?)")
UNPIN = "INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('x', ?, ?)"
HEAD = "INSERT INTO rollouts(id) VALUES('5973b6c0-94b8-487b-a530-2aeb6098ae{}')"


def limited(path, length):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, length)
    return db


def test_guards_need_no_longer_pattern(path):
    db = limited(path, 50)
    for date in ("2026-01-31T23:59:59.999Z", "2026-01-31 12:00", "2026-01-31"):
        db.execute(EVIDENCE, (date, date))
    for date in ("2026-13-31T12:00:00.000Z", "2026-01-31T24:00:00.000Z", "12:00", "now",
                 b"2026-01-31T12:00:00.000Z", 5):
        with pytest.raises(sqlite3.IntegrityError, match="created_at must be a date"):
            db.execute(EVIDENCE, ("y", date))
    db.execute(EVIDENCE, ("x", "2026-01-31T12:00:00.000Z"))
    for actor, reason, named in (("", "r", "actor"), ("a\x07", "r", "actor"),
                                 ("a", "\u200b", "reason"), ("a", b"r", "reason")):
        with pytest.raises(sqlite3.IntegrityError, match="visible text"):
            db.execute(UNPIN, (actor, reason))
    db.execute(UNPIN, ("Ann", "closed\n"))
    db.execute("DELETE FROM event_payloads WHERE id = 'x'")
    db.execute(HEAD.format("0e"))
    for end in ("0G", "-e", "0"):
        with pytest.raises(sqlite3.IntegrityError, match="Invalid conversation ID"):
            db.execute(HEAD.format(end))
    assert one(db, "SELECT count(*) FROM rollouts") == 1


def test_everything_works_with_patterns_of_fifty(path):
    db = limited(path, 50)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    db.execute("INSERT INTO rec(id, timestamp, action) VALUES('a', 1, '{}')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    one(db, "SELECT evidence_prune_for_approval('rec')")
    assert "puppeteerSteps" in one(db, "SELECT evidence_export_puppeteer('rec')")
    one(db, "SELECT cache_write('conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n', 'a7b3c9d2', "
        "'f4e8g1h1', '[1]', 'one')")
    id = one(db, "SELECT rollout_create(NULL)")
    assert one(db, "SELECT rollout_append(?, ?)", id, '{"type":"event_msg","payload":{"type":'
               '"user_message","message":"hi"}}') == 1
    assert one(db, "SELECT payload_unpin((SELECT id FROM payload_pins), 'Ann', 'closed')") == 1
    db.execute("ALTER TABLE ring RENAME TO tape")
    db.execute("DROP TRIGGER payload_delete_guard")
    one(db, "SELECT blackbox_install()")
    assert problems(db) == []
    assert one(db, "SELECT count(*) FROM payload_pins") == 0
    one(db, "SELECT blackbox_uninstall('main', NULL, 'force')")
