"""What an insert into the archive removes: at most two rows that are due, in plain SQL."""
import sqlite3

import pytest

from conftest import ROOT, archive_faults, cache_faults, connect, one, rollout_faults, rows
from retention_helpers import DAY, SESSION, T0, archive
from test_clock import now, set_seen


def plain(path=":memory:"):
    """A connection without the module, on a database with the schema."""
    db = sqlite3.connect(str(path), isolation_level=None)
    for name in "core", "payload", "payload_detection", "payload_rules":
        db.executescript((ROOT / "sql" / f"{name}.sql").read_text())
    return db


def ids(db):
    return [row[0] for row in rows(db, "SELECT id FROM event_payloads ORDER BY rowid")]


def old(db, *names, pinned=0):
    for i, name in enumerate(names):
        archive(db, name, T0 + i, pinned=pinned)


@pytest.fixture(params=["plain", "module"])
def filled(request, path):
    """An archive with five rows that are due."""
    db = plain(path)
    if request.param == "module":
        db.close()
        db = connect(path)
    old(db, *"abcde")
    return db


@pytest.mark.parametrize("begin", [False, True])
def test_every_insert_removes_the_two_oldest_rows_that_are_due(filled, begin):
    if begin:
        filled.execute("BEGIN")
    assert ids(filled) == list("abcde")
    for n, left in enumerate(["cde", "e", "", ""]):
        archive(filled, f"n{n}", now())
        assert [i for i in ids(filled) if len(i) == 1] == list(left)
    assert rows(filled, "SELECT domain, rule, rows, bytes, oldest, newest FROM retention_log") == [
        ("payload", "payload.age", 5, 5, T0, T0 + 4)]
    assert archive_faults(filled) == []


def test_an_archive_that_others_fill_is_kept_to_its_days(path):
    db = plain(path)
    for day in range(40, 0, -1):
        archive(db, f"d{day}", now() - day * DAY - 5000)
    for n in range(20):
        archive(db, f"n{n}", now())
    left = [i for i in ids(db) if i[0] == "d"]
    assert left == ["d6", "d5", "d4", "d3", "d2", "d1"]


def test_the_period_is_that_of_the_setting(filled):
    filled.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.retention_days', 365)")
    archive(filled, "recent", now() - 364 * DAY)
    archive(filled, "new", now())
    assert "recent" in ids(filled) and "a" not in ids(filled)
    filled.execute("UPDATE blackbox_settings SET value = 30 "
                   "WHERE name = 'payload.retention_days'")
    filled.execute("DELETE FROM event_payloads WHERE length(id) = 1")
    archive(filled, "newer", now())
    assert ids(filled) == ["new", "newer"]


def test_what_is_pinned_or_history_stays(filled):
    filled.execute("UPDATE event_payloads SET pinned = 1 WHERE id IN ('a', 'b')")
    filled.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.history_until', ?)", (T0 + 2,))
    archive(filled, "new", now())
    assert ids(filled) == ["a", "b", "c", "new"]


def test_a_row_that_is_old_itself_removes_nothing(filled):
    old(filled, "x", "y")
    filled.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, created_at)"
                   " SELECT id || '2', event_id, agent_id, purpose, created_at"
                   " FROM event_payloads")
    assert len(ids(filled)) == 14


@pytest.mark.parametrize("begin", [False, True])
def test_the_limit_in_bytes_holds_at_the_same_time(filled, begin):
    filled.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.max_bytes', 12)")
    if begin:
        filled.execute("BEGIN")
    for n in range(4):
        archive(filled, f"n{n}", now() - 100_000 + 1000 * n, body="12345")
        assert one(filled, "SELECT sum(size_bytes) FROM event_payloads") <= 12
        assert archive_faults(filled) == []
    assert ids(filled) == ["n2", "n3"]
    got = dict(rows(filled, "SELECT rule, sum(rows) FROM retention_log GROUP BY rule"))
    assert sum(got.values()) == 7 and set(got) <= {"payload.age", "payload.bytes"}


def test_evidence_removes_nothing(filled):
    filled.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose)"
                   " VALUES('k', 'e', 'a', 'evidence')")
    assert ids(filled) == [*"abcde", "k"]


@pytest.mark.parametrize("refuse", [
    "CREATE TRIGGER mine BEFORE DELETE ON event_payloads BEGIN SELECT RAISE(ABORT, 'no'); END",
    "CREATE TRIGGER mine after delete on EVENT_payloads BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
    "CREATE TABLE mine(p REFERENCES event_payloads(id)); INSERT INTO mine VALUES('a');"
    "PRAGMA foreign_keys = ON",
])
def test_a_write_never_fails_because_a_row_cannot_go(filled, refuse):
    filled.executescript(refuse)
    archive(filled, "new", now())
    archive(filled, "newer", now())
    assert ids(filled) == [*"abcde", "new", "newer"]
    assert rows(filled, "SELECT rule, rows, bytes FROM retention_log") == [
        ("payload.age refused", 0, 0)]


def test_a_clock_in_doubt_removes_nothing_and_fails_no_write(filled):
    set_seen(filled, now() - 8 * DAY)
    archive(filled, "new", now())
    assert ids(filled) == [*"abcde", "new"]


def test_an_upsert_or_replace_of_a_row_that_is_due(filled):
    filled.execute("REPLACE INTO event_payloads(id, event_id, agent_id, purpose)"
                   " VALUES('a', 'e', 'a', 'archive')")
    assert ids(filled) == ["d", "e", "a"]
    filled.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose)"
                   " VALUES('a', 'e', 'a', 'archive') ON CONFLICT(id) DO NOTHING")
    filled.execute("INSERT OR IGNORE INTO event_payloads(id, event_id, agent_id, purpose)"
                   " VALUES('a', 'e', 'a', 'archive')")
    assert ids(filled) == ["d", "e", "a"]


@pytest.mark.parametrize("recursive", [0, 1])
def test_the_settings_are_kept_as_numbers(filled, recursive):
    filled.execute(f"PRAGMA recursive_triggers = {recursive}")
    for sql in ("INSERT INTO blackbox_settings(name, value) VALUES('payload.retention_days', 9)",
                "REPLACE INTO blackbox_settings(name, value) VALUES('payload.retention_days', 8)",
                "UPDATE blackbox_settings SET value = 7 WHERE name = 'payload.history_until'",
                "DELETE FROM blackbox_settings"):
        filled.execute(sql)
        assert archive_faults(filled) == []
    filled.execute("UPDATE payload__state SET kept_ms = 5")
    assert [row[0] for row in archive_faults(filled)] == ["payload__state"]


@pytest.mark.parametrize("trusted", ["ON", "OFF"])
def test_an_untrusted_schema_works_too(filled, trusted):
    filled.execute(f"PRAGMA trusted_schema = {trusted}")
    archive(filled, "new", now())
    assert ids(filled) == [*"cde", "new"]


# ------------------------------------------------------------ the other domains


def conversation(db, n, days):
    db.execute("INSERT INTO rollouts(id, created, expires_at) VALUES(?, ?, ?)",
               (f"5973b6c0-94b8-487b-a530-{n:012x}", now() - 90 * DAY, now() + days * DAY))


def domains(path, *names):
    """A connection without the module."""
    db = sqlite3.connect(path, isolation_level=None)
    for name in names:
        db.executescript((ROOT / "sql" / f"{name}.sql").read_text())
    return db


def test_a_new_conversation_removes_two_expired_ones(path):
    db = domains(path, "core", "rollout", "rollout_formats", "rollout_usage",
             "rollout_tables")
    for n, days in (4, 10), (1, -30), (2, -20), (3, -10):
        conversation(db, n, days)
    conversation(db, 5, 20)
    conversation(db, 6, -50)  # itself expired: it is history, and removes nothing
    assert [id[-1] for id, in rows(db, "SELECT id FROM rollouts ORDER BY id")] == list("3456")
    assert (one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'rollout.expired'")
            or 0) == 2
    assert rollout_faults(db) == []


@pytest.mark.parametrize("sql", [
    "CREATE TRIGGER mine BEFORE DELETE ON rollout__heads BEGIN SELECT RAISE(ABORT, 'no'); END",
    "CREATE TABLE mine(id REFERENCES rollout__heads(id)); PRAGMA foreign_keys = ON",
])
def test_a_new_conversation_never_fails_because_an_expired_one_cannot_go(path, sql):
    db = domains(path, "core", "rollout", "rollout_formats", "rollout_usage",
             "rollout_tables")
    conversation(db, 1, -30)
    db.executescript(sql)
    conversation(db, 2, 30)
    assert one(db, "SELECT count(*) FROM rollouts") == 2


def item(db, turn, expires_at, session=SESSION):
    db.execute("INSERT INTO cache_items(session_id, task_id, turn_id, description, data,"
               " expires_at) VALUES(?, 'task0001', ?, 'd', '1', ?)",
               (session, f"turn{turn:04}", expires_at))


def write(path, turn, session=SESSION):
    db = connect(path)
    one(db, "SELECT cache_write(?, 'task0001', ?, '1', 'd')", session, f"turn{turn:04}")
    db.close()


def test_an_item_that_the_module_writes_removes_two_expired_ones(path):
    db = domains(path, "core", "cache")
    for n in 1, 2, 3, 4:
        item(db, n, now() + DAY)
    for n, days in (1, -30), (2, -20), (3, -10):
        db.execute("UPDATE cache_items SET expires_at = ? WHERE turn_id = ?",
                   (now() + days * DAY, f"turn{n:04}"))
    item(db, 5, now() - 50 * DAY)  # plain SQL removes nothing
    assert one(db, "SELECT count(*) FROM cache_items") == 5
    write(path, 6)
    assert [int(turn[4:]) for turn, in rows(
        db, "SELECT turn_id FROM cache_items ORDER BY turn_id")] == [2, 3, 4, 6]
    assert (one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'expired'")
            or 0) == 2
    assert cache_faults(db) == []


@pytest.mark.parametrize("sql", [
    "CREATE TRIGGER mine BEFORE DELETE ON cache_items BEGIN SELECT RAISE(ABORT, 'no'); END",
    "CREATE TABLE mine(id REFERENCES cache_items(storage_key)); PRAGMA foreign_keys = ON",
    f"INSERT INTO retention_holds(kind, key, owner, actor, reason)"
    f" VALUES('session', '{SESSION}', 'o', 'a', 'r')",
])
def test_a_new_item_never_fails_because_an_expired_one_cannot_go(path, sql):
    db = domains(path, "core", "retention", "cache")
    item(db, 1, now() - DAY)
    db.executescript(sql)
    write(path, 2, session=SESSION[:-1] + "x")
    assert one(db, "SELECT count(*) FROM cache_items") == 2


def owner(db, name, seen, *pinned):
    db.execute("INSERT INTO evidence_owners(owner, buffer, claim, seen) VALUES(?, 'b', 'c', ?)",
               (name, seen))
    for i, pin in enumerate(pinned):
        db.execute("INSERT INTO evidence__overflow(owner, id, timestamp, action_bytes,"
                   " screenshot_bytes, pruned, pinned, confidence, action) "
                   "VALUES(?, ?, 5, 2, 0, 0, ?, 1, '{}')",
                   (name, f"x{i}", pin))


def test_a_new_buffer_removes_two_rows_of_orphaned_evidence(path):
    db = domains(path, "core", "evidence")
    owner(db, "old", now() - 40 * DAY, 1, 0, 0, 0)
    owner(db, "young", now() - 20 * DAY, 0)
    assert one(db, "SELECT count(*) FROM evidence__overflow WHERE owner = 'old'") == 4
    connect(path).execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer(overflow='main')")
    assert one(db, "SELECT count(*) FROM evidence__overflow WHERE owner = 'old'") == 2
    assert one(db, "SELECT count(*) FROM evidence__overflow WHERE pinned") == 1
    assert one(db, "SELECT count(*) FROM evidence__overflow") == 3
    assert archive_faults(db, domain="evidence") == []


@pytest.mark.parametrize("write", [
    lambda db: conversation(db, 1, 5),
    lambda db: write(one(db, "SELECT file FROM pragma_database_list"), 1),
])
def test_new_things_of_every_domain_remember_the_time(path, write):
    db = domains(path, "core", "rollout", "rollout_formats", "rollout_usage",
             "rollout_tables", "evidence", "cache")
    set_seen(db, now() - DAY + 3600000)
    write(db)
    assert abs(one(db, "SELECT seen FROM retention__clock") - now()) < 60_000


def test_an_insert_costs_the_same_however_much_is_stored(path):
    """In VM steps, with rows that are due, a limit in bytes, and statistics that mislead."""
    db = plain(path)
    db.execute("UPDATE blackbox_settings SET value = 10000 WHERE name = 'payload.max_bytes'")

    def steps(n):
        db.execute("BEGIN")
        for i in range(n):
            archive(db, f"r{i}", now() - 1000 * (n - i), body="")
        db.execute("ANALYZE")
        count = []
        db.set_progress_handler(lambda: count.append(1), 1)
        archive(db, "new", now(), body="12345")
        db.set_progress_handler(None, 0)
        db.execute("ROLLBACK")
        return len(count)

    steps(1)
    assert steps(5000) < steps(50) + 100
