"""payload_queue in mode memory: rows wait, are written together, and are never lost."""
import json
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import MODULE, connect, one, rows
from payload_helpers import CALL, CALLED, ROW, in_memory, put, setting, stored, waiting
from payload_helpers import check, quoted

WAITING = "SELECT rows, bytes FROM payload_waiting"


@pytest.fixture
def queue(db):
    return in_memory(db)


# ---- when it is written


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("size", [1, 3, 20])
def test_a_full_batch_is_written(queue, how, size):
    setting(queue, "flush_batch_size", size)
    events = [f"e{i}" for i in range(size)]
    put(queue, *events[:-1], how=how)
    assert stored(queue) == [] and waiting(queue) == events[:-1]
    assert one(queue, "SELECT rows FROM payload_waiting") == size - 1
    put(queue, events[-1], how=how)
    assert stored(queue) == events and waiting(queue) == []
    assert rows(queue, WAITING) == [(0, 0)]


def test_a_flush_writes_every_column(queue):
    bodies = [None, "", "é🤖\0x", b"\xff\0", 5, 1.5]
    start = int(time.time()) * 1000
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S.00", time.gmtime(start / 1000))
    for i, body in enumerate(bodies):
        assert one(queue, "SELECT payload_queue(?, 'ag', ?, ?, ?)",
                   f"e{i}", body, body, start + i) == 1
    assert rows(queue, "SELECT event_id, request_body, timestamp FROM payload_queue") \
        == [(f"e{i}", body, start + i) for i, body in enumerate(bodies)]
    sizes = [r[0] for r in rows(queue, "SELECT size_bytes FROM payload_queue")]
    assert one(queue, "SELECT payload_flush()") == len(bodies)
    assert rows(queue, "SELECT event_id, agent_id, purpose, pinned, "
                "kill_switch_event_id, created_at FROM event_payloads") \
        == [(f"e{i}", "ag", "archive", 0, None, f"{stamp}{i}Z")
            for i in range(len(bodies))]
    as_text = [str(b) if isinstance(b, (int, float)) else b for b in bodies]
    assert [r[0] for r in rows(queue, "SELECT request_body FROM event_payloads")] \
        == as_text
    assert [r[0] for r in rows(queue, "SELECT size_bytes FROM event_payloads")] == sizes
    assert len({r[0] for r in rows(queue, "SELECT id FROM event_payloads")}) == 6
    assert {len(r[0]) for r in rows(queue, "SELECT id FROM event_payloads")} == {36}


def test_the_interval_counts_from_the_oldest(queue):
    setting(queue, "flush_interval_ms", 1000)
    put(queue, "e1")
    time.sleep(1.1)
    assert stored(queue) == []  # at the next call
    put(queue, "e2")
    assert stored(queue) == ["e1", "e2"]
    put(queue, "e3")
    assert waiting(queue) == ["e3"]


def test_payload_flush_returns_the_number_of_rows(queue):
    assert one(queue, "SELECT payload_flush()") == 0
    put(queue, "e1", "e2")
    assert one(queue, "SELECT payload_flush()") == 2
    assert one(queue, "SELECT payload_flush()") == 0
    assert stored(queue) == ["e1", "e2"]


def test_a_setting_made_here_or_elsewhere_is_seen(queue, path):
    put(queue, "e1", "e2")
    setting(queue, "flush_batch_size", 3)
    put(queue, "e3")
    assert stored(queue) == ["e1", "e2", "e3"]
    other = connect(path)
    setting(other, "flush_batch_size", 1)
    time.sleep(0.6)
    put(queue, "e4")
    assert len(stored(queue)) == 4


def test_waiting_rows_are_not_visible_and_not_of_other_connections(queue, path):
    put(queue, "e1")
    other = connect(path)
    assert stored(queue) == stored(other) == [] and waiting(other) == []
    assert one(other, "SELECT payload_flush()") == 0
    assert waiting(queue) == ["e1"]


def test_waiting_tells_rows_bytes_and_age(queue):
    assert rows(queue, "SELECT * FROM payload_waiting") \
        == [(0, 0, None, None, "this connection")]
    put(queue, "e1", "e2", body="é")
    found = rows(queue, "SELECT * FROM payload_waiting")[0]
    assert found[:2] == (2, 6) and found[3:] == (None, "this connection")
    assert abs(found[2] - time.time() * 1000) < 60000


# ---- the archive switch


@pytest.mark.parametrize("how", [CALL, ROW, CALLED])
def test_a_queue_that_is_switched_off_says_so(db, how):
    for value in (None, 0):
        if value is not None:
            setting(db, "enabled", value)
        for begin in ("", "BEGIN"):
            db.execute(begin)
            with pytest.raises(sqlite3.OperationalError,
                               match="ArchiveDisabledError: payload.enabled is 0 in "
                               "schema main.*payload.on_disabled"):
                db.execute(how, ("e", "q"))
        db.execute("COMMIT")
        with pytest.raises(sqlite3.OperationalError, match="ArchiveDisabledError"):
            db.execute(ROW.replace("INSERT", "INSERT OR IGNORE"), ("e", "q"))
        assert rows(db, WAITING) == [(0, 0)]
        assert one(db, "SELECT payload_flush()") == 0 and stored(db) == []
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) "
               "VALUES('plain', 'a', 'archive')")
    assert stored(db) == ["plain"]


@pytest.mark.parametrize("how", [CALL, ROW, CALLED])
def test_a_queue_that_is_switched_off_can_return_0_instead(db, how):
    setting(db, "on_disabled", "ignore")
    assert db.execute(how, ("e", "q")).fetchone() == ((0,) if how == CALL else None)
    assert rows(db, WAITING) == [(0, 0)] and stored(db) == []
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*not in the range"):
        setting(db, "on_disabled", "nothing")


def test_the_statement_that_the_message_names_turns_it_on(tmp_path):
    db, schema = connect(), 'at "t'
    db.execute(f"ATTACH ? AS {quoted(schema)}", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install(?)", schema)
    with pytest.raises(sqlite3.OperationalError, match="ArchiveDisabled") as caught:
        put(db, "e")
    told = str(caught.value)
    db.execute(told[told.index("UPDATE"):told.index(" to enable")])
    put(db, "e")
    assert stored(db, quoted(schema)) == ["e"]


def test_rows_staged_before_switching_off_are_still_written(queue):
    put(queue, "e1")
    setting(queue, "enabled", 0)
    setting(queue, "on_disabled", "ignore")
    assert one(queue, CALL, "e2", "q") == 0
    assert one(queue, "SELECT payload_flush()") == 1
    assert stored(queue) == ["e1"]


def test_bad_rows_are_refused_though_switched_off(db):
    with pytest.raises(sqlite3.IntegrityError, match="event_id must be text"):
        db.execute(CALL, (None, "q"))


# ---- close


def run_python(path, body, kill=False):
    code = f"""
import sqlite3, os, sys
db = sqlite3.connect({str(path)!r}, isolation_level=None)
db.enable_load_extension(True)
db.load_extension({MODULE!r})
def put(n, start=0):
    for i in range(start, start + n):
        db.execute("SELECT payload_queue(?, 'a', 'q', 'r')", (f"e{{i}}",)).fetchall()
{body}
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True, timeout=60)


ENDINGS = {
    "close": "put(5); db.close()",
    "exit without close": "put(5)",
    "sys.exit": "put(5); sys.exit(0)",
    "an exception": "put(5); raise SystemExit('stopped')",
    "delete": "put(5); del db",
    "with an open cursor": "put(5); c = db.execute('VALUES(1),(2)'); next(c); "
                           "db.close()",
    "with callbacks": "put(5); db.set_trace_callback(print); db.set_authorizer(lambda *a: 1); "
                      "db.set_progress_handler(lambda: 1, 1); db.close()",
    "inside a transaction": "put(5); db.execute('BEGIN'); db.execute('CREATE TABLE t(x)'); "
                            "put(1, 5); db.close()",
    "with a temp ring": "db.execute('CREATE VIRTUAL TABLE temp.r USING payload_ring')"
                        "; put(5); db.close()",
    "by rows": "[db.execute(\"INSERT INTO payload_queue(event_id, agent_id) "
               "VALUES(?, 'a')\", (f'e{i}',)) for i in range(5)]; db.close()",
}


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_rest_is_written_when_the_connection_closes(queue, path, ending, mode):
    queue.execute(f"PRAGMA journal_mode={mode}")
    done = run_python(path, ENDINGS[ending])
    assert "Traceback" not in done.stderr and done.returncode in (0, 1)
    assert stored(queue) == [f"e{i}" for i in range(5)]
    assert rows(queue, "SELECT name FROM sqlite_schema WHERE name = 't'") == []
    assert rows(queue, "SELECT * FROM blackbox_check") == []


def test_waiting_rows_are_lost_when_the_process_is_killed(queue, path):
    done = run_python(path, "put(5); os.kill(os.getpid(), 9)")
    assert done.returncode == -9
    assert stored(queue) == []


def test_closing_a_connection_writes_its_rows(queue, path):
    put(queue, "e1", "e2")
    queue.close()
    db = connect(path)
    assert stored(db) == ["e1", "e2"]


def test_close_with_an_archive_in_an_attached_file(path, tmp_path):
    other, schema = tmp_path / "o'ther.db", 'at "t'
    db = connect(path)
    db.execute(f"ATTACH ? AS {quoted(schema)}", (str(other),))
    one(db, "SELECT blackbox_install(?)", schema)
    setting(db, "enabled", 1, quoted(schema))
    setting(db, "queue_mode", "memory", quoted(schema))
    put(db, "e1", "e2")
    assert one(db, "SELECT payload_flush()") == 2
    put(db, "e3")
    db.close()
    assert stored(connect(other)) == ["e1", "e2", "e3"]


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN EXCLUSIVE", "SAVEPOINT s"])
@pytest.mark.parametrize("detach", [False, True])
def test_close_writes_rows_for_an_attached_file(path, tmp_path, mode, begin, detach):
    """Also if the file is locked by the connection that closes, or was detached."""
    if begin and detach:
        return  # DETACH is refused in a transaction
    db, schema = connect(path), quoted("at \"t'd")
    db.execute(f"ATTACH ? AS {schema}", (str(tmp_path / "o.db"),))
    db.execute(f"PRAGMA {schema}.journal_mode={mode}")
    one(db, "SELECT blackbox_install(?)", "at \"t'd")
    setting(db, "enabled", 1, schema)
    setting(db, "queue_mode", "memory", schema)
    put(db, "e1", "e2", how=CALL)
    put(db, "e3", how=ROW)
    db.execute(begin)
    if begin:  # which the end of the connection rolls back, as any other row
        put(db, "e4")
        db.execute(f"CREATE TABLE {schema}.mine(x)")
    if detach:
        db.execute(f"DETACH {schema}")
    db.close()
    other = connect(tmp_path / "o.db")
    assert stored(other) == ["e1", "e2", "e3"]
    assert one(other, "SELECT count(*) FROM sqlite_schema WHERE name = 'mine'") == 0
    assert check(other) == []


def test_close_of_a_database_without_a_file_loses_no_one_else(tmp_path):
    db = connect()
    one(db, "SELECT blackbox_install()")
    setting(db, "enabled", 1)
    setting(db, "queue_mode", "memory")
    put(db, "e1")
    db.close()


def test_close_while_another_holds_the_lock_waits_for_it(queue, path):
    """The busy timeout of the closing connection no longer applies; the flush has its own."""
    put(queue, "e1")
    holder = subprocess.Popen(
        [sys.executable, "-c", f"""
import sqlite3, sys, time
db = sqlite3.connect({str(path)!r}, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
time.sleep(0.3)
db.execute("COMMIT")
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    holder.stdin.write("go\n")
    holder.stdin.flush()
    queue.close()
    assert holder.wait() == 0
    assert stored(connect(path)) == ["e1"]


# ---- transactions


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"])
def test_inside_a_transaction_rows_wait_and_are_a_part_of_it(queue, how, begin, end):
    if begin == "SAVEPOINT s":
        end = "RELEASE s" if end == "COMMIT" else "ROLLBACK"
    setting(queue, "flush_batch_size", 2)
    put(queue, "before", how=how)
    queue.execute(begin)
    put(queue, "e1", "e2", "e3", how=how)
    assert stored(queue) == []
    queue.execute("SAVEPOINT flushed")
    assert one(queue, "SELECT payload_flush()") == 4
    assert stored(queue) == ["before", "e1", "e2", "e3"] and waiting(queue) == []
    queue.execute("ROLLBACK TO flushed")
    assert stored(queue) == []
    queue.execute("SAVEPOINT inner")
    put(queue, "e4", how=how)
    queue.execute("ROLLBACK TO inner")
    queue.execute(end)
    left = ["before"] + ["e1", "e2", "e3"] * (end in ("COMMIT", "RELEASE s"))
    assert waiting(queue) == left and stored(queue) == []
    assert rows(queue, WAITING) == [(len(left), 2 * len(left))]
    put(queue, "after", how=how)
    assert stored(queue) == left + ["after"]


def test_a_rollback_of_the_first_row_takes_the_table_of_the_queue_along(queue, path):
    for event in "ab":
        queue.execute("BEGIN")
        put(queue, event)
        queue.execute("ROLLBACK")
        assert waiting(queue) == [] and one(queue, "SELECT payload_flush()") == 0
    put(queue, "c")
    queue.close()
    assert stored(connect(path)) == ["c"]


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_rollback_brings_back_rows_that_a_statement_after_it_would_write(queue, how):
    put(queue, "e1", how=how)
    queue.execute("BEGIN")
    queue.execute("DELETE FROM payload_queue")
    put(queue, "e2", how=how)
    queue.execute("ROLLBACK")
    put(queue, "e3", how=how)
    assert one(queue, "SELECT payload_flush()") == 2
    assert stored(queue) == ["e1", "e3"]


# ---- a locked file


def test_rows_are_taken_while_the_file_cannot_even_be_read(queue, path):
    queue.execute("PRAGMA busy_timeout=0")
    setting(queue, "flush_batch_size", 2)
    put(queue, "e1")
    other = connect(path)
    other.execute("BEGIN EXCLUSIVE")
    time.sleep(0.6)  # the settings are due to be read again
    try:
        put(queue, "e2", "e3")
    finally:
        other.execute("COMMIT")
    assert waiting(queue) == ["e1", "e2", "e3"]
    assert one(queue, "SELECT payload_flush()") == 3
    assert stored(queue) == ["e1", "e2", "e3"]


# ---- a flush that fails


def locked(db, path):
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    return other, lambda: other.execute("COMMIT")


def full(db, path):
    db.execute(f"PRAGMA max_page_count={one(db, 'PRAGMA page_count')}")
    return None, lambda: db.execute("PRAGMA max_page_count=1000000")


def refused(db, path):
    db.execute("CREATE TRIGGER refuse BEFORE INSERT ON event_payloads WHEN "
               "NEW.event_id = 'e2' BEGIN SELECT RAISE(ABORT, 'no e2'); END")
    return None, lambda: db.execute("DROP TRIGGER refuse")


OBSTACLES = [(locked, "locked"), (full, "full"), (refused, "no e2")]


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("obstacle, message", OBSTACLES)
def test_a_failed_flush_keeps_every_row_in_order_and_reports(queue, path, obstacle,
                                                             message, how, mode):
    queue.execute(f"PRAGMA journal_mode={mode}")
    queue.execute("PRAGMA busy_timeout=0")
    setting(queue, "flush_batch_size", 4)
    setting(queue, "flush_interval_ms", 1000)
    events = [f"e{i}" for i in range(6)]
    put(queue, *events[:3], body="x" * 9000, how=how)
    keep, remove = obstacle(queue, path)
    if obstacle in (locked, full) and how == ROW:
        # the statement itself cannot begin, or is undone with its flush
        with pytest.raises(sqlite3.OperationalError, match=message):
            put(queue, events[3], body="x" * 9000, how=how)
        assert waiting(queue) == events[:3]
        put(queue, *events[3:], body="x" * 9000, how=CALL)
    else:
        put(queue, *events[3:], body="x" * 9000, how=how)
    assert waiting(queue) == events and stored(queue) == []
    assert message in one(queue, "SELECT error FROM payload_waiting")
    with pytest.raises(sqlite3.Error, match="Flush failed: .*" + message):
        queue.execute("SELECT payload_flush()")
    assert waiting(queue) == events and stored(queue) == []
    remove()
    assert one(queue, "SELECT payload_flush()") == 6
    assert stored(queue) == events
    assert rows(queue, "SELECT error FROM payload_waiting") == [(None,)]
    assert rows(queue, "SELECT * FROM blackbox_check") == []


def test_an_automatic_flush_tries_again_after_the_interval(queue, path):
    setting(queue, "flush_batch_size", 1)
    setting(queue, "flush_interval_ms", 1000)
    queue.execute("PRAGMA busy_timeout=0")
    other, remove = locked(queue, path)
    put(queue, "e1")
    remove()
    put(queue, "e2")
    assert waiting(queue) == ["e1", "e2"]  # not at every call
    time.sleep(1.1)
    put(queue, "e3")
    assert stored(queue) == ["e1", "e2", "e3"]


def test_the_code_of_a_failed_flush_is_the_real_one(queue, path):
    queue.execute("PRAGMA busy_timeout=0")
    put(queue, "e1")
    other, remove = locked(queue, path)
    with pytest.raises(sqlite3.OperationalError) as caught:
        queue.execute("SELECT payload_flush()")
    assert caught.value.sqlite_errorname == "SQLITE_BUSY"
    remove()
    one(queue, "SELECT payload_flush()")
    put(queue, "e2", body="x" * 100000)
    _, remove = full(queue, path)
    with pytest.raises(sqlite3.OperationalError) as caught:
        queue.execute("SELECT payload_flush()")
    assert caught.value.sqlite_errorname == "SQLITE_FULL"
    remove()
    assert one(queue, "SELECT payload_flush()") == 1


# ---- the row path


def test_several_rows_of_one_statement_that_fails_half_way(queue):
    put(queue, "before")
    for begin in ("", "BEGIN"):
        queue.execute(begin)
        with pytest.raises(sqlite3.IntegrityError, match="event_id must be text"):
            queue.execute("INSERT INTO payload_queue(event_id, agent_id) "
                          "VALUES('e1','a'),('e2','a'),(NULL,'a')")
        assert waiting(queue) == ["before"]
    queue.execute("COMMIT")
    queue.execute("INSERT OR IGNORE INTO payload_queue(event_id, agent_id) "
                  "VALUES('i1','a'),(NULL,'a'),('i2','a')")
    assert waiting(queue)[-2:] == ["i1", "i2"]


def test_more_rows_than_a_batch_in_one_statement(queue):
    setting(queue, "flush_batch_size", 3)
    queue.execute("WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 50)"
                  " INSERT INTO payload_queue(event_id, agent_id) "
                  "SELECT 'e' || i, 'a' FROM n")
    assert stored(queue) == [f"e{i}" for i in range(1, 49)]
    assert waiting(queue) == ["e49", "e50"]


@pytest.mark.parametrize("mode", ["durable", "memory"])
@pytest.mark.parametrize("schema", ["main", "theirs"])
@pytest.mark.parametrize("act", [
    "INSERT INTO payload_queue(event_id, agent_id) VALUES(NEW.event, 'a')",
    "SELECT payload_queue(NEW.event, 'a', 'q', 'r')"])
def test_a_trigger_cannot_queue_a_row(queue, mode, schema, act):
    setting(queue, "queue_mode", mode)
    queue.execute("ATTACH ':memory:' AS theirs")
    queue.execute(f"CREATE TABLE {schema}.calls(event)")
    queue.execute(f"CREATE TRIGGER {schema}.record AFTER INSERT ON calls BEGIN {act}; END")
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of"):
        queue.execute(f"INSERT INTO {schema}.calls VALUES('e1')")
    assert one(queue, "SELECT count(*) FROM calls") == 0
    assert stored(queue) + waiting(queue) == []


def test_a_trigger_of_the_connection_queues_rows_by_the_function(queue):
    queue.execute("CREATE TABLE calls(event)")
    queue.execute("CREATE TEMP TRIGGER record AFTER INSERT ON main.calls BEGIN "
                  "SELECT payload_queue(NEW.event, 'a', 'q', 'r'); END")
    queue.execute("INSERT INTO calls VALUES('e1'), ('e2')")
    assert waiting(queue) == ["e1", "e2"]


def test_a_trigger_inserts_into_the_archive(queue):
    queue.execute("CREATE TABLE calls(event)")
    queue.execute("CREATE TRIGGER record AFTER INSERT ON calls BEGIN INSERT INTO "
                  "event_payloads(event_id, agent_id, purpose) "
                  "VALUES(NEW.event, 'a', 'archive'); END")
    queue.execute("INSERT INTO calls VALUES('e1'), ('e2')")
    assert stored(queue) == ["e1", "e2"]


def test_a_batch_that_is_written_with_the_callers_row(queue):
    """A flush by the row path is part of the commit of the statement."""
    setting(queue, "flush_batch_size", 1)
    with pytest.raises(sqlite3.IntegrityError, match="event_id must be text"):
        queue.execute("INSERT INTO payload_queue(event_id, agent_id) VALUES('e', 'a'), (NULL, 'a')")
    assert waiting(queue) == [] and stored(queue) == []


@pytest.mark.parametrize(
    "statement, message",
    [("UPDATE payload_queue SET event_id = 'x'", "ReadOnlyError"),
     ("INSERT INTO payload_queue(event_id, agent_id, size_bytes) VALUES('e','a',1)",
      "computed by the queue"),
     ("INSERT INTO payload_queue(event_id, agent_id, id) VALUES('e','a','i')",
      "computed by the queue"),
     ("INSERT INTO payload_queue(event_id, agent_id, created_at) VALUES('e','a','2026')",
      "computed by the queue"),
     ("INSERT INTO payload_queue(event_id) VALUES('e')", "agent_id must be text"),
     ("INSERT INTO payload_waiting(rows) VALUES(1)", "may not be modified")])
def test_an_insert_into_the_queue_refuses_bad_values(queue, statement, message):
    put(queue, "e1")
    with pytest.raises(sqlite3.Error, match=message):
        queue.execute(statement)
    assert waiting(queue) == ["e1"]


@pytest.mark.parametrize(
    "arguments, message",
    [((None, "a", "q", "r"), "event_id must be text"),
     (("", "a", "q", "r"), "not empty"), (("e", None, "q", "r"), "agent_id"),
     ((b"e", "a", "q", "r"), "a blob"), (("e\0", "a", "q", "r"), "NUL"),
     (("e", "x" * 1025, "q", "r"), "1024"),
     (("e", "a", "q", "r", "now"), "timestamp must be a time"),
     (("e", "a", "q", "r", -1), "timestamp"), (("e", "a", "q", "r", 1.5), "timestamp"),
     (("e", "a", "q", "r", 253402300800000), "timestamp"),
     (("e", "a", "q", "r", b"1"), "timestamp")])
def test_bad_arguments(queue, arguments, message):
    marks = ",".join("?" * len(arguments))
    with pytest.raises(sqlite3.IntegrityError, match=message):
        queue.execute(f"SELECT payload_queue({marks})", arguments)
    with pytest.raises(sqlite3.IntegrityError, match=message):
        queue.execute(f"INSERT INTO payload_queue VALUES({marks}"
                      f"{',NULL' * (6 - len(arguments))})", arguments)
    assert waiting(queue) == []
    for wrong in ("", "'e'", "'e','a','q'", "1,2,3,4,5,6"):
        with pytest.raises(sqlite3.OperationalError, match="wrong number"):
            queue.execute(f"SELECT payload_queue({wrong})")


def test_inside_a_statement_that_writes_it_only_stages(queue):
    setting(queue, "flush_batch_size", 2)
    queue.execute("CREATE TABLE t(x)")
    queue.execute("INSERT INTO t SELECT payload_queue('e' || value, 'a', 'q', 'r') "
                  "FROM json_each('[1,2,3,4,5]')")
    assert one(queue, "SELECT sum(x) FROM t") == 5
    assert stored(queue) == [] and len(waiting(queue)) == 5
    put(queue, "e6")
    assert stored(queue) == [f"e{i}" for i in range(1, 7)]
    queue.execute("CREATE TABLE u(x UNIQUE)")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        queue.execute("INSERT INTO u SELECT payload_queue('f' || value, 'a', 'q', 'r') "
                      "FROM json_each('[1,2,3]')")
    assert stored(queue) + waiting(queue) == [f"e{i}" for i in range(1, 7)]


def test_payload_queue_works_as_a_row_of_blackbox_call(queue):
    queue.execute("INSERT INTO blackbox_call VALUES('payload_queue', "
                  "'[\"e1\", \"a\", \"q\", \"r\", 1000]')")
    assert rows(queue, "SELECT event_id, timestamp FROM payload_queue") == [("e1", 1000)]
    flush = "INSERT INTO blackbox_call(command) VALUES('payload_flush')"
    queue.execute("BEGIN")
    queue.execute(flush)
    assert waiting(queue) == [] and stored(queue) == ["e1"]
    queue.execute("ROLLBACK")
    assert waiting(queue) == ["e1"] and stored(queue) == []
    queue.execute(flush)
    assert waiting(queue) == [] and stored(queue) == ["e1"]


# ---- the expiry work of a write


def test_a_flush_carries_bounded_expiry_work(queue):
    queue.execute("WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < "
                  "100) INSERT INTO event_payloads(event_id, agent_id, purpose, "
                  "created_at) SELECT 'old', 'a', 'archive', '2020-01-01' FROM n")
    for left in (96, 92, 88):
        put(queue, "new")
        put(queue, "new")
        one(queue, "SELECT payload_flush()")
        assert stored(queue).count("old") == left
    assert one(queue, "SELECT sum(rows) FROM retention_log WHERE rule = 'payload.age'") == 12


def test_a_failing_clean_up_never_stops_a_flush(queue):
    queue.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at)"
                  " VALUES('old', 'a', 'archive', '2020-01-01')")
    queue.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads "
                  "BEGIN SELECT RAISE(ABORT, 'mine stay'); END")
    put(queue, "new")
    assert one(queue, "SELECT payload_flush()") == 1
    assert stored(queue) == ["old", "new"]
    assert rows(queue, "SELECT error FROM payload_waiting") == [(None,)]
    queue.execute("DROP TRIGGER mine")
    assert check(queue) == []


def test_statistics_count_what_waits(queue):
    put(queue, "e1", body="12345")
    stats = json.loads(one(queue, "SELECT payload_stats()"))
    assert (stats["waiting"], stats["waitingBytes"], stats["archive"]) == (1, 6, 0)


@pytest.mark.parametrize("end", ["flush", "close"])
def test_rows_go_to_the_schema_that_they_were_queued_for(queue, path, tmp_path, end):
    queue.execute("ATTACH ? AS o", (str(tmp_path / "o.db"),))
    one(queue, "SELECT blackbox_install('o')")
    setting(queue, "enabled", 1, "o")
    setting(queue, "queue_mode", "memory", "o")
    one(queue, "SELECT blackbox_use('o')")
    put(queue, "for o")
    one(queue, "SELECT blackbox_use('main')")
    put(queue, "for main")
    assert waiting(queue) == ["for o", "for main"]
    one(queue, "SELECT blackbox_use('o')")
    put(queue, "also for o")
    if end == "flush":
        one(queue, "SELECT payload_flush()")
    else:
        queue.close()
    assert stored(connect(path)) == ["for main"]
    assert stored(connect(tmp_path / "o.db")) == ["for o", "also for o"]


def test_rows_for_a_file_that_was_detached_wait_for_it(queue, tmp_path):
    queue.execute("ATTACH ? AS o", (str(tmp_path / "o.db"),))
    one(queue, "SELECT blackbox_install('o')")
    setting(queue, "enabled", 1, "o")
    setting(queue, "queue_mode", "memory", "o")
    one(queue, "SELECT blackbox_use('o')")
    put(queue, "e")
    queue.execute("DETACH o")
    with pytest.raises(sqlite3.OperationalError, match="FlushError.*no such table: o\\."):
        queue.execute("SELECT payload_flush()")
    assert waiting(queue) == ["e"] and stored(queue, "main") == []
    queue.execute("ATTACH ? AS o", (str(tmp_path / "o.db"),))
    assert one(queue, "SELECT payload_flush()") == 1
    assert stored(queue, "o") == ["e"]


def test_after_a_flush_that_was_asked_for_the_next_batch_is_not_late(queue, path):
    setting(queue, "flush_batch_size", 2)
    queue.execute("PRAGMA busy_timeout=0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    put(queue, "a", "b", "c")
    other.execute("COMMIT")
    assert waiting(queue) == ["a", "b", "c"]
    assert one(queue, "SELECT payload_flush()") == 3
    put(queue, "d", "e")
    assert stored(queue) == ["a", "b", "c", "d", "e"]


def test_a_queue_that_is_off_takes_no_row_even_if_others_wait(queue, tmp_path):
    queue.execute("ATTACH ? AS o", (str(tmp_path / "o.db"),))
    one(queue, "SELECT blackbox_install('o')")
    one(queue, "SELECT blackbox_use('main')")
    put(queue, "e")
    one(queue, "SELECT blackbox_use('o')")
    for begin in "", "BEGIN":
        queue.execute(begin)
        with pytest.raises(sqlite3.OperationalError, match="ArchiveDisabledError"):
            put(queue, "f")
        assert waiting(queue) == ["e"]
