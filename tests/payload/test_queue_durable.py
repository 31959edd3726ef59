"""payload_queue in mode durable: a row is in the file when the call returns."""
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import MODULE, archive_faults, by_hand, connect, one, problems, rows
from payload_helpers import CALL, CALLED, ROW, push, put, setting, stored, waiting
from payload_helpers import quoted

HOWS = [CALL, ROW, CALLED]
DAY = 86400000


@pytest.fixture
def archive(db):
    db.execute("PRAGMA synchronous=OFF")
    setting(db, "enabled", 1)
    return db


def test_the_durable_mode_is_the_default(archive):
    assert rows(archive, "SELECT value, \"default\", range FROM blackbox_settings "
                "WHERE name = 'payload.queue_mode'") \
        == [("durable", "durable", "durable, memory")]
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*not in the range"):
        setting(archive, "queue_mode", "lazy")


@pytest.mark.parametrize("how", HOWS)
def test_a_row_is_in_the_file_when_the_call_returns(archive, path, how):
    other = sqlite3.connect(path)
    for i in range(3):
        put(archive, f"e{i}", how=how)
        assert stored(other) == [f"e{j}" for j in range(i + 1)]
    assert waiting(archive) == []
    assert one(archive, "SELECT payload_flush()") == 0


def test_a_row_is_written_with_every_column(archive):
    bodies = [None, "", "é🤖\0x", b"\xff\0", 5]
    for i, body in enumerate(bodies):
        assert one(archive, "SELECT payload_queue(?, 'ag', ?, ?, ?)", f"e{i}", body,
                   body, 1700000000000 + i) == 1
    found = rows(archive, "SELECT event_id, agent_id, request_body, response_body, "
                 "size_bytes, purpose, pinned, created_at FROM event_payloads "
                 "ORDER BY rowid")
    texts = [None, "", "é🤖\0x", b"\xff\0", "5"]
    assert found == [
        (f"e{i}", "ag", body, body,
         2 * len(body.encode() if isinstance(body, str) else body or b""),
         "archive", 0, f"2023-11-14T22:13:20.00{i}Z")
        for i, body in enumerate(texts)]
    assert len({r[0] for r in rows(archive, "SELECT id FROM event_payloads")}) == 5


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_in_a_transaction_a_row_is_part_of_it(archive, path, how, begin, end):
    other = sqlite3.connect(path)
    put(archive, "before", how=how)
    archive.execute(begin)
    put(archive, "e1", how=how)
    archive.execute("SAVEPOINT inner")
    put(archive, "e2", how=how)
    archive.execute("ROLLBACK TO inner")
    put(archive, "e3", how=how)
    assert stored(archive) == ["before", "e1", "e3"] and waiting(archive) == []
    assert stored(other) == ["before"]
    archive.execute(end)
    left = ["before", "e1", "e3"] if end == "COMMIT" else ["before"]
    assert stored(archive) == stored(other) == left


def test_several_rows_of_one_statement_are_all_or_nothing(archive):
    for begin in ("", "BEGIN"):
        archive.execute(begin)
        with pytest.raises(sqlite3.IntegrityError, match="event_id must be text"):
            archive.execute("INSERT INTO payload_queue(event_id, agent_id) "
                            "VALUES('e1','a'),('e2','a'),(NULL,'a')")
        assert stored(archive) == []
    archive.execute("COMMIT")
    archive.execute("INSERT OR IGNORE INTO payload_queue(event_id, agent_id) "
                    "VALUES('i1','a'),(NULL,'a'),('i2','a')")
    assert stored(archive) == ["i1", "i2"]


def test_inside_a_statement_that_writes(archive):
    archive.execute("CREATE TABLE t(x UNIQUE)")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        archive.execute("INSERT INTO t SELECT payload_queue('e' || value, 'a', 'q', 'r') "
                        "FROM json_each('[1,2]')")
    assert stored(archive) == []
    archive.execute("INSERT INTO t SELECT value + payload_queue('f' || value, 'a', 'q', 'r') "
                    "FROM json_each('[1,2]')")
    assert stored(archive) == ["f1", "f2"]


# What a call runs last: the INSERT, and then, sometimes, the look at the version.
LAST = ('INSERT INTO "main".event_payloads', 'SELECT format FROM "main".blackbox_domains')


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_call_that_is_stopped_before_the_row_has_stored_nothing(archive, begin):
    """(SQLite calls a progress handler again after an INSERT that is complete.)"""
    setting(archive, "flush_batch_size", 1)
    put(archive, "first")
    seen, stop, last, stopped, failed = 0, 0, "", {}, set()

    def trace(sql):
        nonlocal last
        last = sql

    def progress():
        nonlocal seen
        seen += 1
        if seen == stop:
            stopped[f"e{stop}"] = last
        return seen == stop

    while stop <= seen:
        stop, seen = stop + 1, 0
        if begin:
            archive.execute(begin)
        archive.set_trace_callback(trace)
        archive.set_progress_handler(progress, 1)
        try:
            put(archive, f"e{stop}")
        except sqlite3.OperationalError as e:
            assert "interrupted" in str(e)
            failed.add(f"e{stop}")
        archive.set_progress_handler(None, 1)
        archive.set_trace_callback(None)
        if archive.in_transaction:
            archive.execute("COMMIT")
    assert len(failed) > 3 and set(stopped) - failed <= set(stored(archive))
    for event in set(stored(archive)) & failed:
        assert any(sql in stopped[event] for sql in LAST), event


@pytest.mark.parametrize("how", [CALL, ROW])
def test_in_an_attached_file_with_a_quoted_name(path, tmp_path, how):
    db, schema = connect(path), 'at "t\'d'
    db.execute(f"ATTACH ? AS {quoted(schema)}", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install(?)", schema)
    setting(db, "enabled", 1, quoted(schema))
    put(db, "e1", how=how)
    assert stored(sqlite3.connect(tmp_path / "o.db")) == ["e1"]


KILLED = f"""
import sqlite3, os, sys, threading, time
def work(me):
    db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
    db.enable_load_extension(True)
    db.load_extension({MODULE!r})
    keep.append(db)
    for i in range(19):
        db.execute("SELECT payload_queue(?, 'a', 'q', 'r')", (f"{{me}} {{i}}",)).fetchone()
keep = []
threads = [threading.Thread(target=work, args=(i,)) for i in range(10)]
[t.start() for t in threads]
[t.join() for t in threads]
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode, left", [("durable", 190), ("memory", 0)])
def test_a_killed_process_with_many_connections(archive, path, mode, left):
    archive.execute("PRAGMA journal_mode=WAL")
    setting(archive, "queue_mode", mode)
    setting(archive, "flush_interval_ms", 60000)
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    assert len(stored(archive)) == left


WRITERS = f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.enable_load_extension(True)
db.load_extension({MODULE!r})
for i in range(200):
    db.execute("BEGIN")
    db.execute("SELECT payload_queue(?, 'a', 'q', 'r')", (str(i),)).fetchone()
    db.execute("COMMIT")
"""


def test_writers_in_transactions_wait_for_each_other(archive, path):
    """A read before the first write would make SQLite refuse to wait."""
    archive.execute("PRAGMA journal_mode=WAL")
    runs = [subprocess.Popen([sys.executable, "-c", WRITERS, str(path)],
                             stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(run.wait(), run.stderr.read()) for run in runs] == [(0, "")] * 3
    assert len(stored(archive)) == 600


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_locked_or_full_file_is_an_error_and_nothing_waits(archive, path, how):
    archive.execute("PRAGMA busy_timeout=0")
    put(archive, "e1", how=how)
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked") as caught:
        put(archive, "e2", how=how)
    assert caught.value.sqlite_errorname == "SQLITE_BUSY"
    other.execute("COMMIT")
    archive.execute(f"PRAGMA max_page_count={one(archive, 'PRAGMA page_count')}")
    with pytest.raises(sqlite3.OperationalError, match="full") as caught:
        put(archive, "e3", body="x" * 100000, how=how)
    assert caught.value.sqlite_errorname == "SQLITE_FULL"
    assert stored(archive) == ["e1"] and waiting(archive) == []


def test_a_change_of_mode_is_seen_and_keeps_the_order(archive, path):
    setting(archive, "queue_mode", "memory")
    setting(archive, "flush_interval_ms", 60000)
    put(archive, "e1", "e2")
    assert waiting(archive) == ["e1", "e2"]
    setting(archive, "queue_mode", "durable")
    put(archive, "e3")
    assert stored(archive) == ["e1", "e2", "e3"] and waiting(archive) == []
    other = connect(path)
    setting(other, "queue_mode", "memory")
    time.sleep(0.6)
    put(archive, "e4")
    assert waiting(archive) == ["e4"]


@pytest.mark.parametrize("how", HOWS)
def test_a_setting_is_seen_between_two_rows(archive, how):
    for _ in range(3):
        put(archive, "e", how=how)
        setting(archive, "enabled", 0)
        with pytest.raises(sqlite3.OperationalError, match="ArchiveDisabledError"):
            put(archive, "f", how=how)
        setting(archive, "enabled", 1)
    assert stored(archive) == ["e"] * 3


# ---- mode memory


def test_the_first_row_after_a_silence_is_written_at_once(archive):
    setting(archive, "queue_mode", "memory")
    setting(archive, "flush_interval_ms", 1000)
    put(archive, "e1")
    assert waiting(archive) == ["e1"]
    one(archive, "SELECT payload_flush()")
    time.sleep(1.1)
    put(archive, "e2")
    assert stored(archive) == ["e1", "e2"] and waiting(archive) == []
    put(archive, "e3")
    assert waiting(archive) == ["e3"]
    time.sleep(1.1)
    archive.execute("INSERT INTO payload_queue(event_id, agent_id) VALUES('e4', 'a')")
    assert stored(archive) == ["e1", "e2", "e3", "e4"]


# ---- the expiry work of a write


def expired(db, n):
    db.execute("WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
               "INSERT INTO event_payloads(event_id, agent_id, purpose, created_at) "
               "SELECT 'old', 'a', 'archive', '2020-01-01' FROM n", (n,))


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_row_carries_bounded_expiry_work(archive, how, begin):
    expired(archive, 5)
    archive.execute(begin)
    left = []
    for _ in range(4):
        put(archive, "new", how=how)
        left.append(stored(archive).count("old"))
    assert left == [3, 1, 0, 0]
    assert one(archive, "SELECT sum(rows) FROM retention_log WHERE rule = 'payload.age'") == 5


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_failing_clean_up_never_stops_a_row(archive, how, begin):
    expired(archive, 1)
    archive.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads "
                    "BEGIN SELECT RAISE(ABORT, 'mine stay'); END")
    archive.execute(begin)
    put(archive, "new", how=how)
    assert stored(archive) == ["old", "new"]


# ---- rows that are past the retention when they come


@pytest.mark.parametrize("mode", ["durable", "memory"])
@pytest.mark.parametrize("how", [CALL, ROW])
def test_history_stays_until_clean_up_is_asked_for(archive, path, mode, how):
    setting(archive, "queue_mode", mode)
    setting(archive, "flush_batch_size", 2)
    how = how.replace("'r')", "'r', ?)").replace("response_body)",
                                                 "response_body, timestamp)")
    now = int(time.time() * 1000)
    for event, at in [("h0", 0), ("h1", 1000), ("h2", now - 8 * DAY), ("h3", 5000)]:
        archive.execute(how, (event, "q", at)).fetchall()
    db = connect(path)  # on every connection
    for _ in range(4):
        put(db, "new")
        put(archive, "new")
    one(archive, "SELECT payload_flush()")
    assert [e for e in stored(archive) if e != "new"] == ["h0", "h1", "h2", "h3"]
    assert one(archive, "SELECT value FROM blackbox_settings "
               "WHERE name = 'payload.history_until'") == now - 8 * DAY
    # Rows that were new then expire normally later.
    put(archive, "ages")
    one(archive, "SELECT payload_flush()")
    archive.execute("UPDATE event_payloads SET created_at = strftime("
                    "'%Y-%m-%dT%H:%M:%fZ', ? / 1000.0, 'unixepoch') "
                    "WHERE event_id = 'ages'", (now - 7.5 * DAY,))
    put(connect(path), "new", "new", "new")
    assert "ages" not in stored(archive) and "h2" in stored(archive)
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 4
    assert {e for e in stored(archive)} == {"new"}


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_history_that_is_rolled_back_marks_nothing(archive, how):
    how = how.replace("'r')", "'r', 1000)").replace("response_body)",
                                                    "response_body, timestamp)")
    archive.execute("BEGIN")
    put(archive, "h", how=how)
    archive.execute("ROLLBACK")
    assert rows(archive, "SELECT name FROM blackbox_settings WHERE value <> \"default\"") \
        == [("payload.enabled",)]
    put(archive, "h", how=how)
    put(connect(one(archive, "SELECT file FROM pragma_database_list")), "new")
    assert stored(archive) == ["h", "new"]


def test_history_that_is_written_at_close_stays_too(archive, path):
    setting(archive, "queue_mode", "memory")
    db = connect(path)
    one(db, "SELECT payload_queue('h', 'a', 'q', 'r', 1000)")
    assert waiting(db) == ["h"]
    db.close()
    put(archive, "new")
    one(archive, "SELECT payload_flush()")
    assert stored(archive) == ["h", "new"]


def test_payload_cleanup_uses_a_retention_of_one_day(archive):
    setting(archive, "retention_days", 1)
    now = int(time.time() * 1000)
    put(archive, "new")
    archive.execute("UPDATE event_payloads SET created_at = strftime("
                    "'%Y-%m-%dT%H:%M:%fZ', ? / 1000.0, 'unixepoch')", (now - 1.5 * DAY,))
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 1


def test_history_by_plain_sql(archive, path):
    plain = sqlite3.connect(path, isolation_level=None)
    load = ("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose, created_at)"
            " VALUES(?, 'a', 'é', 'archive', ?)")
    plain.execute("UPDATE blackbox_settings SET value = unixepoch('2020-01-02') * 1000"
                  " WHERE name = 'payload.history_until'")
    plain.execute(load, ("h", "2020-01-01T00:00:00.000Z"))
    plain.execute(load, ("new", time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())))
    with pytest.raises(sqlite3.IntegrityError, match="created_at must be a date"):
        plain.execute(load, ("h", "2020"))
    with pytest.raises(sqlite3.IntegrityError):
        plain.execute(load, ("h", None))
    put(archive, "e")
    assert stored(archive) == ["h", "new", "e"]
    assert rows(plain, "SELECT size_bytes FROM event_payloads") == [(2,), (2,), (2,)]
    assert rows(archive, "SELECT * FROM blackbox_check") == []


# ------------------------------------ what a row that is packed first must not pass ----


def to_be_packed(db):
    for name in ("enabled", "pack"):
        setting(db, name, 1)
    return "x" * 3000


@pytest.mark.all_domains
def test_a_trigger_with_a_name_like_ours_sees_a_row_that_would_be_packed(db):
    body = to_be_packed(db)
    put(db, "first", body=body)
    db.execute("CREATE TRIGGER payload_mine BEFORE INSERT ON event_payloads"
               " WHEN NEW.event_id = 'no' BEGIN SELECT RAISE(IGNORE); END")
    put(db, "no", "yes", body=body)
    assert stored(db) == ["first", "yes"]
    assert one(db, "SELECT bytes FROM payload__state") == 2 * 3001
    assert archive_faults(db) == []
    db.execute("DROP TRIGGER payload_mine")
    assert problems(db) == []


@pytest.mark.all_domains
def test_a_packed_row_does_not_get_the_rowid_that_means_none(db):
    body = to_be_packed(db)
    db.execute("INSERT INTO event_payloads(rowid, id, event_id, agent_id, purpose)"
               " VALUES(-2, 'x', 'e', 'a', 'archive')")
    with pytest.raises(sqlite3.IntegrityError, match="rowid not -1"):
        put(db, "e", body=body)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "a", "e1", body, body)
    push(db, "a", "e2", body, body)
    with pytest.raises(sqlite3.Error, match="rowid not -1"):
        one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert rows(db, "SELECT rowid FROM event_payloads") == [(-2,)]


@pytest.mark.all_domains
def test_a_mask_that_is_longer_than_the_limit_leaves_the_transaction(db):
    to_be_packed(db)
    setting(db, "secrets", "mask")
    body = '{"password":"q1"}' * 60
    setting(db, "max_bytes", len(body) + 1)
    db.execute("BEGIN")
    db.execute("CREATE TABLE mine(x)")
    with pytest.raises(sqlite3.IntegrityError, match="QuotaExceededError"):
        put(db, "e", body=body, how=ROW)
    db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM mine") == 0 and stored(db) == []
    assert archive_faults(db) == []


@pytest.mark.all_domains
def test_an_older_module_writes_nothing_into_a_newer_store(db, path):
    body = to_be_packed(db)
    put(db, "e0", "e0", "e0", "e1", body=body)
    db.execute("DELETE FROM event_payloads WHERE event_id = 'e0'")
    by_hand(path, "UPDATE blackbox_domains SET format = 2 WHERE domain = 'store'")
    newer = connect(path)
    before = [rows(newer, f"SELECT * FROM store__{name}") for name in ("state", "texts", "packs")]
    put(newer, "e2", body=body)
    for call in ("payload_pack()", "store_pack('[]', 'main')", "payload_cleanup()",
                 "store_tend('main', 1)"):
        with pytest.raises(sqlite3.OperationalError, match="VersionError: .* format 2 of store"):
            one(newer, f"SELECT {call}")
    assert before == [rows(newer, f"SELECT * FROM store__{name}")
                      for name in ("state", "texts", "packs")]
    assert one(newer, "SELECT request_body FROM event_payloads WHERE event_id = 'e2'") == body
