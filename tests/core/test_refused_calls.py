"""How a call ends if it may not write, is stopped, or is refused by SQLite."""
import sqlite3

import pytest

from conftest import connect, one, rows, write_schema

SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
ID = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
KILL = "SELECT payload_kill_switch('ring', 'a', 'k1')"


@pytest.fixture
def ring(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, timestamp)"
               " VALUES('a', 'e1', 'q1', 1000)")
    return db


def test_an_open_statement_that_writes_is_named(ring):
    cursor = ring.execute("PRAGMA journal_mode = WAL")
    with pytest.raises(sqlite3.OperationalError) as e:
        ring.execute(KILL)
    told = str(e.value)
    assert told.startswith("MisuseError: payload_kill_switch() changes data")
    assert "PRAGMA journal_mode = WAL; step that statement to its end" in told
    cursor.fetchall()
    assert one(ring, KILL)


def test_the_statement_around_the_call_is_named(ring):
    ring.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.OperationalError,
                       match=r"INSERT INTO t SELECT payload_kill_switch.*; "
                             r"step that statement .*INSERT INTO blackbox_call"):
        ring.execute("INSERT INTO t " + KILL)
    assert rows(ring, "SELECT * FROM t") == []


@pytest.mark.parametrize("call", [
    "blackbox_use('main')",
    f"cache_write('{SESSION}', 'a7b3c9d2', 'f4e8g1h1', '[1]', 'what')",
    f"cache_clear_session('{SESSION}')",
    "payload_queue('e', 'a', 'q', 'r')",
    "evidence_export('rec')",
])
def test_a_function_of_one_statement_runs_inside_another_statement(db, call):
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("CREATE TABLE t(x)")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    db.execute("INSERT INTO t SELECT " + call)
    assert one(db, "SELECT count(*) FROM t") == 1


@pytest.mark.parametrize("call", [
    "blackbox_install('main')", "payload_cleanup()", "payload_extract('ring', 'a')",
    "payload_save_evidence('k', '[]')", "cache_cleanup_outdated()",
    "cache_delete('a')", "evidence_clear('rec')", "rollout_create(NULL)",
    f"rollout_append('{ID}', '{{}}')", "rollout_search_install()",
])
def test_a_function_that_needs_a_savepoint_is_refused_inside_another_statement(ring, call):
    ring.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    ring.execute("DROP TRIGGER payload_delete_guard")  # so install has to do
    ring.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.OperationalError, match="cannot run inside"):
        ring.execute("INSERT INTO t SELECT " + call)
    assert rows(ring, "SELECT * FROM t") == []


@pytest.mark.parametrize("call", [
    KILL, "SELECT payload_extract('ring', 'a')", "SELECT evidence_clear('rec')"])
def test_a_locked_file_is_not_taken_for_a_table_that_is_missing(ring, path, call):
    ring.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    ring.close()
    db = connect(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError) as e:
        db.execute(call)
    assert "locked" in str(e.value) and "NotFound" not in str(e.value)
    other.execute("ROLLBACK")
    other.close()
    db.close()


@pytest.mark.parametrize("call", [
    KILL, "SELECT payload_extract('ring', 'a')"])
def test_a_table_that_may_not_be_read_is_not_missing(ring, call):
    ring.set_authorizer(lambda action, name, *_: sqlite3.SQLITE_DENY
                        if action == sqlite3.SQLITE_READ and name == "ring"
                        else sqlite3.SQLITE_OK)
    with pytest.raises(sqlite3.DatabaseError) as e:
        ring.execute(call)
    ring.set_authorizer(None)
    assert "not authorized" in str(e.value) and "NotFound" not in str(e.value)


def deny(db, table):
    db.set_authorizer(lambda action, name, *_: sqlite3.SQLITE_DENY
                      if action == sqlite3.SQLITE_READ and name == table
                      else sqlite3.SQLITE_OK)


@pytest.mark.parametrize("table", ["payload__pins", "event_payloads", "ring_slots"])
def test_a_check_that_may_not_read_is_not_reported_as_a_problem(ring, table):
    deny(ring, table)
    with pytest.raises(sqlite3.DatabaseError, match="prohibited|not authorized"):
        ring.execute("SELECT * FROM blackbox_check").fetchall()
    ring.set_authorizer(None)
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_figures_of_a_table_that_may_not_be_read_are_refused(ring):
    ring.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    deny(ring, "rec")
    with pytest.raises(sqlite3.DatabaseError, match="prohibited|not authorized"):
        ring.execute("SELECT * FROM evidence_stats").fetchall()
    ring.set_authorizer(None)
    assert len(rows(ring, "SELECT * FROM evidence_stats")) == 1


@pytest.mark.parametrize("sql", [
    "SELECT * FROM blackbox_check", "SELECT payload_queue('e', 'a', 'q', 'r')"])
def test_a_lock_is_told_where_settings_and_rules_are_read(ring, path, sql):
    ring.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.enabled'")
    ring.close()
    db = connect(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        db.execute(sql).fetchall()
    other.execute("ROLLBACK")
    other.close()
    db.execute(sql).fetchall()
    db.close()


def test_a_table_that_cannot_be_connected_is_not_missing(ring):
    write_schema(ring, "INSERT INTO sqlite_schema VALUES('table', 'tape', 'tape', 0, "
                       "'CREATE VIRTUAL TABLE tape USING payload_tape')")
    ring.execute("PRAGMA writable_schema = RESET")
    with pytest.raises(sqlite3.OperationalError, match="no such module: payload_tape"):
        ring.execute("SELECT payload_kill_switch('tape', 'a', 'k')")


@pytest.mark.parametrize("interrupt", [0, 1])
def test_rows_written_after_a_stopped_call_stay(ring, path, interrupt):
    """On a connection whose statements expire between the calls."""
    ring.execute("CREATE TABLE app(x INTEGER)")
    seen, stop, kept = 0, 0, 0

    def progress():
        nonlocal seen
        seen += 1
        if seen == stop:
            if not interrupt:
                return 1
            ring.interrupt()
        return 0

    while True:
        stop += 7
        seen = 0
        if stop % 2:
            ring.execute("ATTACH ':memory:' AS gone")
            ring.execute("DETACH gone")
        ring.set_progress_handler(progress, 1)
        try:
            rows(ring, "SELECT payload_cleanup(1, 1000000000000), "
                       "payload_save_evidence('k', '[]')")
        except sqlite3.OperationalError as e:
            # From 3.41 on a statement can be stopped while it is prepared. SQLite then
            # goes on to compare the columns of a subquery that it has not read.
            assert "interrupted" in str(e) or "expected 0 columns for ''" in str(e)
        ring.set_progress_handler(None, 1)
        assert not ring.in_transaction, stop
        ring.execute("INSERT INTO app VALUES(?)", (stop,))
        kept += 1
        if seen < stop:
            break
    assert kept > 10
    ring.close()
    db = connect(path)
    assert one(db, "SELECT count(*) FROM app") == kept
    db.close()
