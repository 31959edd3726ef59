"""The newest time seen: a clock that jumps ahead stops the rules until it is confirmed."""
import sqlite3
import time

import pytest

from conftest import connect, one, problems, rows
from retention_helpers import DAY, SESSION, T0, archive, iso, notes, own_rule, plan

HOUR = 3_600_000
CONFIRM = ["SELECT retention_confirm_clock()",
           "INSERT INTO blackbox_call(command) VALUES('retention_confirm_clock')"]
CLEANUPS = ["SELECT * FROM retention_plan", "SELECT retention_sweep()",
            "SELECT payload_cleanup()", "SELECT payload_cleanup(3)",
            "SELECT rollout_cleanup_expired()", "SELECT cache_cleanup_orphans()",
            "SELECT cache_cleanup_outdated()"]


def now():
    return int(time.time() * 1000)


def seen(db):
    return one(db, "SELECT seen FROM retention__clock")


def set_seen(db, ms):
    """As if the file had been written at that time and not since."""
    db.execute("UPDATE retention__clock SET seen = ?", (ms,))


@pytest.mark.parametrize("sql", CLEANUPS)
def test_a_clock_that_has_jumped_ahead_stops_every_rule(db, sql):
    archive(db, "p", T0)
    notes(db, 5)
    own_rule(db)
    set_seen(db, now() - 8 * DAY)
    with pytest.raises(sqlite3.Error, match="ClockError.*retention_confirm_clock"):
        rows(db, sql)
    assert rows(db, "SELECT id FROM event_payloads") == [("p",)]
    set_seen(db, now() - 6 * DAY)
    rows(db, sql)


@pytest.mark.parametrize("how", CONFIRM)
def test_a_confirmed_clock_goes_on(db, how):
    archive(db, "p", T0)
    then = now() - 30 * DAY
    set_seen(db, then)
    db.execute(how)
    assert abs(seen(db) - now()) < 60_000
    assert one(db, "SELECT retention_sweep() ->> '$.removed'") == 1
    assert rows(db, "SELECT domain, kind, oldest, newest - oldest > 29 * 86400000 "
                "FROM blackbox_log LIMIT 1") == [("core", "clock", then, 1)]
    assert rows(db, "SELECT rule FROM retention_log") == [("payload.age",)]


def test_the_error_says_both_times_and_the_limit(db):
    set_seen(db, now() - 30 * DAY - 1000)
    with pytest.raises(sqlite3.Error) as error:
        plan(db)
    stamp = time.strftime("%Y-%m-%dT%H:", time.gmtime())
    assert "30 days after" in str(error.value) and "more than 7 days" in str(error.value)
    assert stamp in str(error.value)


def test_a_given_time_is_neither_checked_nor_remembered(db):
    archive(db, "p", T0)
    then = now() - 30 * DAY
    set_seen(db, then)
    assert len(plan(db, T0 + 8 * DAY)) == 1
    assert one(db, "SELECT retention_sweep(10, ?) ->> '$.removed'", T0 + 8 * DAY) == 1
    one(db, "SELECT retention_sweep(10, ?)", now() + 1000 * DAY)
    assert seen(db) == then


def test_a_clock_behind_the_newest_time_removes_nothing_early(db):
    archive(db, "p", now() - 6 * DAY)
    ahead = now() + 5 * DAY
    set_seen(db, ahead)
    assert plan(db) == []
    one(db, "SELECT retention_sweep()")
    archive(db, "q", now())
    assert seen(db) == ahead
    assert one(db, "SELECT count(*) FROM event_payloads") == 2
    one(db, "SELECT retention_confirm_clock()")
    assert abs(seen(db) - now()) < 60_000


def test_reading_writes_nothing(db):
    set_seen(db, now() - 3 * DAY)
    before = db.total_changes
    plan(db)
    assert db.total_changes == before and abs(seen(db) + 3 * DAY - now()) < 60_000


@pytest.mark.parametrize("write", [
    "SELECT retention_sweep()", "SELECT payload_cleanup()", "SELECT cache_cleanup_orphans()",
    "SELECT rollout_cleanup_expired()",
    "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e', 'a', 'archive')",
    "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e', 'a', 'evidence')",
    "INSERT INTO event_payloads(event_id, agent_id, purpose, created_at) "
    "VALUES('e', 'a', 'archive', '2020-01-01')",
])
def test_writes_and_clean_ups_remember_the_time_once_an_hour(db, write):
    set_seen(db, now() - DAY + HOUR)
    db.execute(write)
    assert abs(seen(db) - now()) < 60_000
    then = now() - HOUR // 2
    set_seen(db, then)
    db.execute(write)
    assert seen(db) == then


def test_a_write_remembers_no_time_that_is_in_doubt(db):
    archive(db, "old", T0)
    then = now() - 30 * DAY
    set_seen(db, then)
    archive(db, "new", now())
    assert seen(db) == then
    assert rows(db, "SELECT id FROM event_payloads ORDER BY rowid") == [("old",), ("new",)]
    one(db, "SELECT retention_confirm_clock()")
    archive(db, "newer", now())
    assert rows(db, "SELECT id FROM event_payloads ORDER BY rowid") == [("new",), ("newer",)]


class Clock:
    """The clock of a connection to a file, as SQL reads it."""

    def __init__(self, db):
        self.ms = now()
        db.create_function("unixepoch", 0, lambda *_: self.ms // 1000)
        db.create_function("julianday", 1, lambda *_: self.ms / 86400000.0 + 2440587.5)

    def write(self, db, after, key):
        self.ms += after
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, created_at) "
                   "VALUES(?, 'e', 'a', 'archive', ?)", (key, iso(self.ms)))


@pytest.fixture
def plain(tmp_path):
    """A file with one old row, on a connection without the module, and its clock."""
    db = connect(tmp_path / "plain.db")
    one(db, "SELECT blackbox_install('main', 'payload,retention')")
    archive(db, "old", T0)
    db.close()
    db = sqlite3.connect(tmp_path / "plain.db", isolation_level=None)
    return db, Clock(db)


def kept(db):
    return [r[0] for r in rows(db, "SELECT id FROM event_payloads ORDER BY rowid")]


def test_after_a_day_of_steady_time_plain_sql_trusts_the_clock_and_the_log_says_so(plain, tmp_path):
    db, clock = plain
    then = seen(db)
    for i, after in enumerate([9 * DAY, HOUR, 22 * HOUR]):
        clock.write(db, after, f"p{i}")
        assert (kept(db)[0], seen(db)) == ("old", then)
    clock.write(db, 2 * HOUR, "p3")
    assert "old" not in kept(db) and seen(db) == clock.ms // 1000 * 1000
    said = ("core", "trusted", then, seen(db))
    log = "SELECT domain, subject, oldest, newest FROM blackbox_log WHERE kind = 'clock'"
    assert rows(db, log) == [said]
    db.close()
    db = connect(tmp_path / "plain.db")
    set_seen(db, now())
    one(db, "SELECT payload_cleanup()")
    assert [r[:3] for r in rows(db, log + " AND n")] == [said[:3]]
    assert len(rows(db, log)) == 1 and problems(db) == []


def test_another_jump_begins_the_day_anew(plain):
    db, clock = plain
    for i, after in enumerate([9 * DAY, 9 * DAY, 23 * HOUR, 300 * DAY, 23 * HOUR]):
        clock.write(db, after, f"p{i}")
        assert kept(db)[0] == "old"
    clock.write(db, 2 * HOUR, "p9")
    assert kept(db)[0] != "old"


def test_a_clock_that_comes_back_from_a_jump_is_trusted_at_once(plain):
    db, clock = plain
    db.execute("UPDATE blackbox_settings SET value = 365 WHERE name = 'payload.retention_days'")
    clock.write(db, 90 * DAY, "ahead")
    clock.write(db, 2 * HOUR - 90 * DAY, "back")
    assert seen(db) == clock.ms // 1000 * 1000
    clock.write(db, 90 * DAY, "ahead again")
    assert seen(db) < clock.ms - 89 * DAY


def test_a_file_that_was_idle_for_nine_days_keeps_no_more_than_before(plain):
    db, clock = plain
    clock.write(db, 9 * DAY, "p")
    for i in range(300):
        clock.write(db, DAY // 10, f"q{i}")
    assert len(kept(db)) < 100


def test_a_jump_ahead_ends_no_hold_of_its_day(plain):
    db, clock = plain
    db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason, until) "
               "VALUES('event', 'e', 'o', 'ann', 'why', ?)", (clock.ms + 2 * HOUR,))
    clock.write(db, 9 * DAY, "p")
    assert one(db, "SELECT count(*) FROM retention_holds") == 1


@pytest.mark.parametrize("jump", [2, 6, 30])
def test_a_jump_ahead_ends_no_hold(plain, tmp_path, jump):
    db, clock = plain
    until = clock.ms + int(1.5 * DAY)
    for kind, key in (("event", "e"), ("session", SESSION)):
        db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason, until) "
                   "VALUES(?, ?, 'o', 'ann', 'why', ?)", (kind, key, until))
    for i, after in enumerate([jump * DAY, 2 * HOUR, 20 * HOUR]):
        clock.write(db, after, f"p{i}")
        assert one(db, "SELECT count(*) FROM retention_holds") == 2
        with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
            db.execute("DELETE FROM event_payloads WHERE id = 'old'")
    clock.write(db, 5 * HOUR, "p9")
    assert one(db, "SELECT count(*) FROM retention_holds") == 0


@pytest.mark.parametrize("sql", [
    "UPDATE retention__clock SET seen = NULL",
])
def test_the_newest_time_is_guarded(db, sql):
    before = seen(db)
    with pytest.raises(sqlite3.Error):
        db.execute(sql)
    assert seen(db) == before


def test_a_time_far_ahead_is_a_problem(db):
    """It would end the holds."""
    set_seen(db, now() + 2 * DAY)
    assert "after the clock" in one(db, "SELECT problem FROM blackbox_check")
    one(db, "SELECT retention_confirm_clock()")
    assert problems(db) == []


@pytest.mark.parametrize("values", ["-1, -4", "NULL, NULL", "-1, 9", "9, -1"])
def test_no_plain_insert_takes_from_a_receipt(db, values):
    archive(db, "p", T0)
    db.execute("DELETE FROM event_payloads")
    before = rows(db, "SELECT rows, bytes FROM retention_log")
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO retention_log(at, domain, rule, rows, bytes) "
                   f"VALUES(unixepoch() * 1000, 'payload', 'manual', {values})")
    assert rows(db, "SELECT rows, bytes FROM retention_log") == before != []


def test_a_lost_row_stops_the_rules_and_is_a_problem(db):
    archive(db, "p", T0)
    db.execute("DELETE FROM retention__clock")
    assert ("retention__clock",) in rows(db, "SELECT object FROM blackbox_check")
    with pytest.raises(sqlite3.Error, match="CorruptedDataError.*retention__clock"):
        plan(db)
    archive(db, "q", now())
    assert one(db, "SELECT count(*) FROM event_payloads") == 2
    db.execute("SELECT blackbox_install()")
    assert problems(db) == []
    assert len(plan(db)) == 1
