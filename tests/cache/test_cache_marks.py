"""The marks of reads: they are counted, and a read never waits or locks."""
import json
import sqlite3
import time

import pytest

from cache_helpers import A, B, T0, exact, key, put, setting, used
from conftest import connect, load, one, rows

SECOND = 1000
K = key(A, "task0001")
LAST = "SELECT last_accessed_at FROM cache_sessions WHERE session_id = ?"
HITS = "SELECT hits, last_accessed_at FROM cache_sessions WHERE session_id = ?"


@pytest.fixture(params=["WAL", "DELETE", "TRUNCATE"])
def shared(request, db, path):
    """Two connections to one file that holds an item written at T0."""
    db.execute(f"PRAGMA journal_mode = {request.param}").fetchall()
    put(db, A, "task0001", "[1]")
    other = connect(path, timeout=5)
    yield db, other
    other.close()


def read(db, now, k=K):
    return json.loads(one(db, "SELECT cache_read(?,NULL,?)", k, now))["data"]


def took(act):
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def test_reads_are_counted_and_written_once_in_an_interval(shared):
    db, other = shared
    read(db, T0 + 11 * SECOND)  # the session was marked 11 seconds ago
    assert one(other, LAST, A) == T0 + 11 * SECOND
    assert rows(other, HITS, A) == [(1, T0 + 11 * SECOND)]
    version = one(other, "PRAGMA data_version")
    for i in range(5):
        read(db, T0 + (12 + i) * SECOND)
    assert one(other, "PRAGMA data_version") == version  # nothing was written
    read(db, T0 + 22 * SECOND)
    assert rows(other, HITS, A) == [(7, T0 + 22 * SECOND)]
    assert one(other, LAST, A) == T0 + 22 * SECOND
    exact(other)


def test_a_session_just_written_is_not_marked_at_once(shared):
    db, other = shared
    version = one(other, "PRAGMA data_version")
    read(db, T0 + 5)
    assert one(other, "PRAGMA data_version") == version
    assert one(other, LAST, A) == T0


def test_notes_that_are_left_are_written_when_the_connection_closes(shared):
    db, other = shared
    for i in range(3):
        read(db, T0 + i)
    assert rows(other, HITS, A) == [(0, T0)]
    db.close()
    assert rows(other, HITS, A) == [(3, T0 + 2)]
    assert one(other, LAST, A) == T0 + 2
    exact(other)


def test_a_read_beside_a_busy_writer_returns_at_once(shared):
    db, other = shared
    db.execute("PRAGMA busy_timeout = 5000")
    setting(db, "mark_interval_ms", 0)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE cache_items SET description = 'other'")
    for i in range(5):
        assert took(lambda: read(db, T0 + 60 * SECOND + i)) < 1
    assert rows(db, HITS, A) == [(0, T0)]
    other.execute("COMMIT")
    read(db, T0 + 70 * SECOND)  # no note is lost
    assert rows(other, HITS, A) == [(6, T0 + 70 * SECOND)]
    exact(other)


def test_a_read_beside_a_reader_returns_at_once(shared):
    """With a rollback journal even a COMMIT would wait for the other reader."""
    db, other = shared
    db.execute("PRAGMA busy_timeout = 5000")
    setting(db, "mark_interval_ms", 0)
    other.execute("BEGIN")
    other.execute("SELECT * FROM cache_items").fetchall()
    for i in range(5):
        assert took(lambda: read(db, T0 + 60 * SECOND + i)) < 1
    other.execute("SELECT * FROM cache_items").fetchall()  # and the other writer is not blocked
    other.execute("COMMIT")
    read(db, T0 + 70 * SECOND)
    assert rows(other, HITS, A) == [(6, T0 + 70 * SECOND)]


def test_a_read_inside_a_transaction_takes_no_lock(shared):
    db, other = shared
    setting(db, "mark_interval_ms", 0)
    db.execute("BEGIN")
    read(db, T0 + 60 * SECOND)
    other.execute("PRAGMA busy_timeout = 0")
    other.execute("BEGIN IMMEDIATE")  # the write lock is free
    other.execute("ROLLBACK")
    db.execute("UPDATE cache_items SET description = 'mine'")  # and this connection can take it
    read(db, T0 + 61 * SECOND)  # the connection has it now, so the marks join
    assert rows(db, HITS, A) == [(2, T0 + 61 * SECOND)]
    db.execute("COMMIT")
    assert rows(other, HITS, A) == [(2, T0 + 61 * SECOND)]


def test_a_mark_does_not_spoil_a_cursor_that_is_open(shared):
    """If another connection changed the file, the open cursor could not write."""
    db, other = shared
    setting(db, "mark_interval_ms", 0)
    put(db, A, "task0002", "[2]")
    cursor = db.execute("SELECT storage_key FROM cache_items")
    assert cursor.fetchone()
    read(db, T0 + 60 * SECOND)
    db.execute("UPDATE cache_items SET description = 'while reading'")
    assert len(cursor.fetchall()) == 1
    read(db, T0 + 61 * SECOND)
    assert rows(other, HITS, A) == [(2, T0 + 61 * SECOND)]


def test_notes_are_written_when_there_is_no_room_for_another(shared):
    db, other = shared
    setting(db, "strict_session_ids", 0)
    with db:
        db.execute("BEGIN")
        for i in range(100):
            put(db, "s%d" % i, "task0001", "[1]")
    for i in range(100):
        read(db, T0 + 1, key("s%d" % i, "task0001"))
    assert one(other, "SELECT sum(hits) FROM cache_sessions") >= 64
    db.close()
    assert one(other, "SELECT sum(hits) FROM cache_sessions") == 100


def test_nothing_is_written_where_the_host_forbids_it(shared, path):
    db, other = shared
    setting(db, "mark_interval_ms", 0)
    version = one(other, "PRAGMA data_version")
    db.execute("PRAGMA query_only = ON")
    assert read(db, T0 + 60 * SECOND) == [1]
    db.execute("PRAGMA query_only = OFF")
    readonly = load(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None))
    assert read(readonly, T0 + 60 * SECOND) == [1]
    readonly.close()
    denied = connect(path)
    denied.set_authorizer(lambda action, *rest: sqlite3.SQLITE_DENY
                          if (action, rest[0]) == (sqlite3.SQLITE_UPDATE, "cache_sessions")
                          else sqlite3.SQLITE_OK)
    assert read(denied, T0 + 60 * SECOND) == [1]
    denied.close()
    assert one(other, "PRAGMA data_version") == version


def test_reads_in_memory_are_counted():
    db = connect()
    one(db, "SELECT blackbox_install('main', 'cache')")
    put(db, A, "task0001", "[1]")
    for i in range(3):
        read(db, T0 + 60 * SECOND + i * 20 * SECOND)
    assert rows(db, HITS, A) == [(3, T0 + 100 * SECOND)]


def test_reads_in_an_attached_schema_are_counted(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('a \"b', 'all')")
    one(db, "SELECT cache_write(?,'task0001','turn0000','[1]','d',NULL,?)", A, T0)
    read(db, T0 + 60 * SECOND)
    assert rows(db, HITS.replace("cache_", '"a ""b".cache_'), A) == [
        (1, T0 + 60 * SECOND)]
    read(db, T0 + 61 * SECOND)
    db.close()
    other = connect(tmp_path / "other.db")
    assert rows(other, HITS, A) == [(2, T0 + 61 * SECOND)]


def test_clean_up_counts_the_reads_of_its_own_connection(db):
    put(db, A, "task0001", "[1]")
    put(db, B, "task0001", "[1]")
    setting(db, "mark_interval_ms", 86_400_000)
    read(db, T0 + 5000)
    assert one(db, LAST, A) == T0  # noted only
    one(db, "SELECT cache_cleanup_orphans(1000, ?)", T0 + 5500)
    assert rows(db, "SELECT session_id, last_accessed_at FROM cache_sessions") == [
        (A, T0 + 5000)]


# ------------------------------------------------------------------ hits ----

def test_hits_belong_to_the_session(db):
    put(db, A, "task0001", "[1]")
    put(db, B, "task0001", "[1]")
    used(db, A, hits=7)
    one(db, "SELECT cache_write(?,'task0001','turn0000','[2]','d')", A)
    put(db, A, "task0001", "[3]", how="REPLACE")
    used(db, B)
    assert json.loads(one(db, "SELECT cache_stats(?)", A))["hits"] == 7
    assert json.loads(one(db, "SELECT cache_stats()"))["hits"] == 8
    db.execute("DELETE FROM cache_sessions WHERE session_id = ?", (A,))
    assert json.loads(one(db, "SELECT cache_stats()"))["hits"] == 1
    exact(db)
