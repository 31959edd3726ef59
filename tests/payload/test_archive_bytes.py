"""payload.max_bytes: the archive has a limit in bytes, and the oldest rows go first."""
import random
import sqlite3

import pytest

from conftest import ROOT, archive_faults, connect, one, problems, rows

NO_LIMIT = 9 * 10 ** 15
LIMIT = "INSERT OR REPLACE INTO {}blackbox_settings(name, value) VALUES('payload.max_bytes', ?)"
PUT = ("INSERT{} INTO {}event_payloads(id, event_id, agent_id, request_body, purpose, created_at)"
       " VALUES(?, 'e', 'a', ?, ?, ?)")


def limit(db, value, schema=""):
    db.execute(LIMIT.format(schema), (value,))


def put(db, id, size, second=0, purpose="archive", conflict="", schema=""):
    minute, second = divmod(second, 60)
    db.execute(PUT.format(conflict, schema),
               (id, "x" * size, purpose, f"2026-01-01T00:{minute:02}:{second:02}.000Z"))


def ids(db, schema=""):
    return [r[0] for r in rows(db, f"SELECT id FROM {schema}event_payloads ORDER BY id")]


def receipts(db, schema=""):
    return rows(db, f"SELECT rule, sum(rows), sum(bytes) FROM {schema}retention_log GROUP BY 1")


def counted(db, schema=""):
    return rows(db, f"SELECT bytes, cap FROM {schema}payload__state")


def whole(db, schema=""):
    faults = archive_faults(db, schema.rstrip(".") or "main")
    return [row for row in faults if row[0] == "payload__state"] == []


@pytest.fixture
def plain():
    """The rules alone, without the module."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    for name in ("core", "payload", "payload_detection", "payload_rules"):
        db.executescript((ROOT / "sql" / f"{name}.sql").read_text())
    yield db
    db.close()


def test_without_the_setting_nothing_is_limited(plain):
    put(plain, "p1", 1000)
    assert counted(plain) == [(1000, NO_LIMIT)]
    assert one(plain, "SELECT value FROM blackbox_settings WHERE name = 'payload.max_bytes'") == 0


@pytest.mark.parametrize("begin", [True, False])
def test_the_oldest_rows_go_with_a_receipt(plain, begin):
    limit(plain, 300)
    if begin:
        plain.execute("BEGIN")
    for i, age in enumerate((3, 1, 2, 4)):
        put(plain, f"p{age}", 100, age)
    if begin:
        plain.execute("COMMIT")
    assert ids(plain) == ["p2", "p3", "p4"] and counted(plain) == [(300, 300)]
    assert rows(plain, "SELECT rule, rows, bytes, oldest, newest, minute IS NULL FROM retention_log"
                ) == [("payload.bytes", 1, 100, 1767225601000, 1767225601000, 0)]
    assert whole(plain)


def test_a_rollback_takes_the_removal_and_the_sum_back(plain):
    limit(plain, 300)
    for i in range(3):
        put(plain, f"p{i}", 100, i)
    plain.execute("BEGIN")
    put(plain, "p9", 250, 9)
    assert ids(plain) == ["p9"]
    plain.execute("ROLLBACK")
    assert ids(plain) == ["p0", "p1", "p2"] and counted(plain) == [(300, 300)]
    assert receipts(plain) == [] and whole(plain)


def test_a_row_that_is_older_than_all_others_goes_itself(plain):
    limit(plain, 200)
    put(plain, "p8", 100, 8)
    put(plain, "p9", 100, 9)
    plain.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose,"
                  " created_at) VALUES('old', 'e', 'a', ?, 'archive', '2020-01-01')", ("x" * 50,))
    assert ids(plain) == ["p8", "p9"] and receipts(plain) == [("payload.bytes", 1, 50)]


@pytest.mark.parametrize("statement", [
    "UPDATE event_payloads SET pinned = 1 WHERE id = 'p1'",
    "UPDATE event_payloads SET purpose = 'evidence' WHERE id = 'p1'"])
def test_pinned_rows_and_evidence_neither_count_nor_go(plain, statement):
    limit(plain, 200)
    put(plain, "p1", 150, 1)
    plain.execute(statement)
    assert counted(plain) == [(0, 200)]
    put(plain, "ev", 5000, 0, "evidence")
    for i in range(2, 9):
        put(plain, f"p{i}", 100, i)
    assert ids(plain) == ["ev", "p1", "p7", "p8"] and whole(plain)


def test_an_unpinned_row_counts_again_and_is_not_refused(plain):
    limit(plain, 200)
    plain.execute(PUT.format("", ""), ("big", "x" * 500, "evidence", "2025-01-01"))
    put(plain, "p1", 100, 1)
    plain.execute("INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('big', 'Ann', 'done')")
    assert counted(plain) == [(100, 200)]  # evidence that was unpinned is still evidence
    plain.execute("UPDATE event_payloads SET purpose = 'archive' WHERE id = 'big'")
    assert counted(plain) == [(600, 200)]
    put(plain, "p2", 10, 2)
    assert ids(plain) == ["p1", "p2"] and counted(plain) == [(110, 200)] and whole(plain)


@pytest.mark.parametrize("conflict", ["", " OR IGNORE", " OR REPLACE", " OR FAIL"])
def test_a_row_that_is_larger_than_the_limit_is_refused(plain, conflict):
    limit(plain, 100)
    put(plain, "p1", 100)
    with pytest.raises(sqlite3.IntegrityError, match="QuotaExceededError: this row has more bytes"):
        put(plain, "p2", 101, 5, conflict=conflict)
    assert ids(plain) == ["p1"] and counted(plain) == [(100, 100)]
    put(plain, "ev", 101, purpose="evidence")
    plain.execute("UPDATE event_payloads SET response_body = 'x'")  # a late response
    put(plain, "p3", 1, 5)
    assert ids(plain) == ["ev", "p3"] and whole(plain)


def test_a_write_removes_at_most_100_rows(plain):
    for i in range(250):
        put(plain, f"p{i:03}", 10, i)
    limit(plain, 2500)
    put(plain, "x", 2500, 300)
    assert len(ids(plain)) == 151
    put(plain, "y", 1, 301)
    put(plain, "z", 1, 302)
    assert ids(plain) == ["y", "z"] and counted(plain) == [(2, 2500)]
    assert receipts(plain) == [("payload.bytes", 251, 5000)] and whole(plain)


def test_a_limit_and_room_cost_the_same_however_much_is_stored(plain):
    """In VM steps. Room takes at most three INSERTs for a row that goes, and 200 steps for the
    look at what is due."""
    def steps(work, *args):
        count = []
        plain.set_progress_handler(lambda: count.append(1), 1)
        work(plain, *args)
        plain.set_progress_handler(None, 0)
        return len(count)

    def costs(first, last):
        for i in range(first, last):
            put(plain, f"p{i:05}", 10, i)
        insert = steps(put, f"q{last}", 10, last)
        lower = steps(limit, counted(plain)[0][0])
        one_goes = steps(put, f"r{last}", 10, last)
        assert counted(plain)[0][0] == counted(plain)[0][1]
        limit(plain, counted(plain)[0][0] - 200)
        many_go = steps(put, f"s{last}", 10, last)
        assert receipts(plain)[0][1] == 22
        plain.execute("DELETE FROM blackbox__open")
        limit(plain, 0)
        assert one_goes - insert < 3 * insert + 200 and many_go - insert < 21 * 3 * insert
        return insert, lower, one_goes, many_go

    plain.execute("UPDATE blackbox_settings SET value = 365 WHERE name = 'payload.retention_days'")
    put(plain, "first", 10)
    few = costs(0, 200)
    assert all(abs(a - b) < 5 for a, b in zip(few, costs(200, 3000)))


def test_a_lower_limit_makes_room_and_0_or_a_delete_ends_it(plain):
    for i in range(5):
        put(plain, f"p{i}", 100, i)
    limit(plain, 250)
    assert counted(plain) == [(500, 250)]
    put(plain, "p5", 10, 6)
    assert ids(plain) == ["p3", "p4", "p5"] and counted(plain) == [(210, 250)]
    plain.execute("UPDATE blackbox_settings SET value = 120 WHERE name = 'payload.max_bytes'")
    put(plain, "p6", 0, 7)
    assert ids(plain) == ["p4", "p5", "p6"] and counted(plain) == [(110, 120)]
    plain.execute("DELETE FROM event_payloads WHERE id IN ('p5', 'p6')")
    limit(plain, 0)
    assert counted(plain) == [(100, NO_LIMIT)]
    put(plain, "p9", 1000)
    limit(plain, 5000)
    assert counted(plain) == [(1100, 5000)]
    plain.execute("DELETE FROM blackbox_settings")
    assert counted(plain) == [(1100, NO_LIMIT)] and whole(plain)


@pytest.mark.parametrize("value", [-1, 1 << 47, 1.5, "x"])
def test_refuses_other_limits(plain, value):
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        limit(plain, value)


REFUSE = [
    "CREATE TRIGGER mine BEFORE DELETE ON event_payloads BEGIN SELECT RAISE(ABORT, 'never'); END",
    "create trigger payloadish after delete on EVENT_payloads BEGIN SELECT RAISE(ROLLBACK, 'never'); END",
    "CREATE TABLE mine(p References \"Event_Payloads\"(id)); INSERT INTO mine VALUES('p0');"
    "PRAGMA foreign_keys = ON"]
MORE = {
    "an insert": "INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose, created_at)"
                 " VALUES('p9', 'e', 'a', '123456', 'archive', '2026-02-02')",
    "an update": "UPDATE event_payloads SET request_body = '1234567890' WHERE id = 'p1'",
    "a lower limit": "UPDATE blackbox_settings SET value = 7 WHERE name = 'payload.max_bytes'",
    "an unpinned row": "INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('pin', 'Ann', 'x')",
}


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("write", MORE)
@pytest.mark.parametrize("refuse", REFUSE)
def test_a_write_goes_on_if_no_room_can_be_made_and_the_log_says_it(plain, refuse, write, begin):
    limit(plain, 10)
    plain.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose, pinned,"
                  " created_at) VALUES('pin', 'e', 'a', '123456', 'archive', 1, '2026-01-01')")
    put(plain, "p0", 4, 1)
    put(plain, "p1", 4, 2)
    plain.executescript(refuse)
    if begin:
        plain.execute("BEGIN")
    plain.execute(MORE[write])
    plain.execute(MORE["an insert"].replace("'p9'", "'p10'"))
    assert {"p0", "p1", "p10"} < set(ids(plain)) and one(
        plain, "SELECT bytes > cap FROM payload__state")
    assert rows(plain, "SELECT domain, rule, rows, bytes"
                " FROM retention_log") == [("payload", "payload.bytes refused", 0, 0)]
    assert whole(plain)
    with pytest.raises(sqlite3.IntegrityError, match="never|FOREIGN KEY"):
        plain.execute("DELETE FROM event_payloads WHERE id IN ('p0', 'p1')")
    if plain.in_transaction and not begin:
        plain.execute("ROLLBACK")


def test_room_is_made_again_when_nothing_refuses_it(plain):
    limit(plain, 300)
    plain.execute(REFUSE[0])
    for i in range(6):
        put(plain, f"p{i}", 100, i)
    assert len(ids(plain)) == 6
    plain.execute("DROP TRIGGER mine")
    put(plain, "p6", 100, 6)
    assert ids(plain) == ["p4", "p5", "p6"] and whole(plain)
    assert receipts(plain) == [("payload.bytes", 4, 400), ("payload.bytes refused", 0, 0)]


def test_rows_without_a_date_count_and_do_not_go(plain):
    put(plain, "p0", 100)
    plain.execute("DROP TRIGGER payload_update")
    plain.execute("UPDATE event_payloads SET created_at = 'yesterday'")
    limit(plain, 250)
    for i in range(1, 4):
        put(plain, f"p{i}", 100, i)
    assert ids(plain) == ["p0", "p3"] and counted(plain) == [(200, 250)]


def act(db, rng, step):
    """One change of any kind. Some of them fail, and then they must change nothing."""
    id, other = f"p{rng.randrange(12)}", f"p{rng.randrange(12)}"
    body, age = "x" * rng.randrange(120), f"2026-01-01T00:00:{rng.randrange(60):02}.000Z"
    kind = rng.randrange(11)
    if kind < 5:
        conflict = rng.choice(["", " OR REPLACE", " OR IGNORE", " OR REPLACE"])
        db.execute(PUT.format(conflict, ""), (id, body, rng.choice(["archive"] * 5 + ["evidence"]), age))
    elif kind == 5:
        db.execute(PUT.format("", "") + " ON CONFLICT(id) DO UPDATE SET request_body = 'upsert'",
                   (id, body, "archive", age))
    elif kind == 6:
        db.execute("UPDATE OR REPLACE event_payloads SET id = ? WHERE id = ?", (id, other))
    elif kind == 7:
        db.execute("UPDATE event_payloads SET request_body = ?, created_at = ?, size_bytes = 7"
                   " WHERE id = ?", (body, age, id))
    elif kind == 8:
        db.execute(rng.choice(["UPDATE OR REPLACE event_payloads SET rowid = ? WHERE id = ?",
                               "INSERT OR REPLACE INTO event_payloads(rowid, id, event_id, agent_id,"
                               " purpose, size_bytes) VALUES(?, ?, 'e', 'a', 'archive', 99)"]),
                   (rng.randrange(1, 15), id))
    elif kind == 9:
        db.execute("UPDATE event_payloads SET pinned = 1 WHERE id = ?", (id,))
        db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) VALUES(?, 'a', 'b')", (other,))
    else:
        db.execute(rng.choice(["DELETE FROM event_payloads WHERE id = ?",
                               "DELETE FROM event_payloads WHERE created_ms < unixepoch('2026-01-01"
                               " 00:00:10') * 1000 AND id <> ? AND pinned = 0"]), (id,))


@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_the_sum_is_exact_whatever_is_done(plain, seed, recursive):
    plain.execute(f"PRAGMA recursive_triggers = {recursive}")
    rng = random.Random(seed)
    limit(plain, 400)
    done = 0
    for step in range(250):
        if step == 125:
            limit(plain, 250)
        before = plain.total_changes
        try:
            act(plain, rng, step)
            done += 1
        except sqlite3.IntegrityError:
            pass
        assert one(plain, "SELECT bytes FROM payload__state") == one(
            plain, "SELECT coalesce(sum(size_bytes), 0) FROM event_payloads"
            " WHERE purpose = 'archive' AND pinned = 0"), step
    put(plain, "last", 1, 59)
    assert one(plain, "SELECT bytes <= cap FROM payload__state")
    assert whole(plain) and done > 100


# ---- with the module


def test_in_an_attached_schema_with_a_quoted_name(tmp_path):
    db = connect(tmp_path / "main.db")
    db.execute("ATTACH ? AS \"pay 'loads\"", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install(?, 'payload')", "pay 'loads")
    schema = "\"pay 'loads\"."
    limit(db, 200, schema)
    for i in range(5):
        put(db, f"p{i}", 100, i, schema=schema)
    assert ids(db, schema) == ["p3", "p4"] and receipts(db, schema) == [("payload.bytes", 3, 300)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_in_defensive_mode_with_an_untrusted_schema(db, path):
    one(db, "SELECT blackbox_install('main', 'payload')")
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("PRAGMA trusted_schema = 0")
    if hasattr(plain, "setconfig"):
        plain.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    limit(plain, 200)
    for i in range(5):
        put(plain, f"p{i}", 100, i)
    assert ids(plain) == ["p3", "p4"]


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_the_queue_keeps_the_limit(db, mode):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), ('payload.queue_mode', ?)",
               (mode,))
    limit(db, 1000)
    for i in range(30):
        one(db, "SELECT payload_queue(?, 'a', ?, '')", f"e{i}", "x" * 100)
    one(db, "SELECT payload_flush()")
    assert counted(db) == [(1000, 1000)]
    with pytest.raises(sqlite3.IntegrityError, match="have 1001 bytes, but payload.max_bytes.* is 1000"):
        one(db, "SELECT payload_queue('big', 'a', ?, 'x')", "x" * 1000)
    with pytest.raises(sqlite3.IntegrityError, match="have 1001 bytes"):
        db.execute("INSERT INTO payload_queue(event_id, agent_id, request_body) VALUES('b', 'a', ?)",
                   ("x" * 1001,))
    assert one(db, "SELECT count(*) FROM payload_queue") == 0
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_payload_cleanup_removes_what_a_lower_limit_left(db):
    db.executemany(PUT.format("", ""), [(f"p{i:04}", "x" * 10, "archive", f"2026-01-01 00:00:{i % 60:02}")
                                       for i in range(1000)])
    limit(db, 2000)
    assert len(ids(db)) == 1000
    assert one(db, "SELECT payload_cleanup(3650, NULL, 300) ->> '$.rows'") == 300
    assert one(db, "SELECT payload_cleanup(3650) ->> '$.rows'") == 500
    assert one(db, "SELECT payload_cleanup(3650) ->> '$.rows'") == 0
    assert counted(db) == [(2000, 2000)] and receipts(db) == [("payload.bytes", 800, 8000)]


def test_install_counts_again_and_the_check_tells_that_it_must(db):
    limit(db, 1000)
    put(db, "p1", 100)
    db.execute("UPDATE payload__state SET bytes = 5")
    assert one(db, "SELECT problem FROM blackbox_check") == \
        "its bytes are not those of the archive; run blackbox_install()"
    one(db, "SELECT blackbox_install()")
    assert "changed" in one(db, "SELECT problem FROM blackbox_check")  # the install tells of it
    assert problems(db) == [] and counted(db) == [(100, 1000)]


def test_a_replace_by_another_unique_index_is_subtracted(db):
    db.execute("CREATE UNIQUE INDEX theirs ON event_payloads(event_id, agent_id)")
    one(db, "SELECT blackbox_install()")
    limit(db, 1000)
    put(db, "p1", 100)
    put(db, "p2", 50, conflict=" OR REPLACE")
    assert ids(db) == ["p2"] and counted(db) == [(50, 1000)]
    put(db, "p3", 70, conflict=" OR IGNORE")
    db.execute(PUT.format("", "").replace("'e'", "'e2'"), ("p4", "four", "archive", "2026-01-01"))
    assert counted(db) == [(54, 1000)]
    db.execute("UPDATE OR REPLACE event_payloads SET event_id = 'e' WHERE id = 'p4'")
    assert ids(db) == ["p4"] and counted(db) == [(4, 1000)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_an_uninstall_removes_the_limit(db):
    limit(db, 1000)
    one(db, "SELECT blackbox_uninstall('main', 'payload')")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name LIKE 'payload%'") == []
