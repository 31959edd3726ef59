"""A flush is one statement: what happens to it while it runs."""
import re
import sqlite3
import time

import pytest

from conftest import archive_faults, connect, one, rows
from payload_helpers import CALL, ROW, in_memory, put, setting, stored, waiting

KEEP_OUT = ("CREATE TRIGGER keep_out BEFORE INSERT ON event_payloads "
            "WHEN NEW.event_id = 'e2' BEGIN SELECT RAISE(IGNORE); END")


@pytest.fixture
def queue(db):
    return in_memory(db)


@pytest.mark.parametrize("mode", ["memory", "durable"])
@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_trigger_keeps_a_row_out_as_it_does_with_an_insert(queue, how, mode):
    setting(queue, "flush_batch_size", 3)
    setting(queue, "queue_mode", mode)
    queue.execute(KEEP_OUT)
    put(queue, "e1", "e2", "e3", how=how)
    assert stored(queue) == ["e1", "e3"] and waiting(queue) == []


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_row_that_is_queued_during_a_flush_waits_for_the_next(queue, how):
    setting(queue, "flush_batch_size", 3)
    queue.execute("CREATE TEMP TRIGGER echo AFTER INSERT ON main.event_payloads "
                  "WHEN NEW.event_id IN ('e1', 'e3') BEGIN "
                  "SELECT payload_queue('of ' || NEW.event_id, 'a', '', ''); END")
    put(queue, "e1", "e2", "e3", how=how)
    assert stored(queue) == ["e1", "e2", "e3"]
    assert waiting(queue) == ["of e1", "of e3"]
    assert rows(queue, "SELECT rows FROM payload_waiting") == [(2,)]
    assert one(queue, "SELECT payload_flush()") == 2
    assert sorted(stored(queue)) == ["e1", "e2", "e3", "of e1", "of e3"]


def test_a_table_of_the_same_name_does_not_keep_rows_from_being_written(queue):
    setting(queue, "flush_batch_size", 2)
    queue.execute("CREATE TABLE payload_queue(job)")
    put(queue, "e1", "e2", "e3", how=CALL)
    assert stored(queue) == ["e1", "e2"]
    assert one(queue, "SELECT payload_flush()") == 1
    assert stored(queue) == ["e1", "e2", "e3"]


def test_a_table_with_the_same_columns_is_not_taken_for_the_queue(queue):
    queue.execute("CREATE TABLE payload_queue(id, event_id, agent_id, request_body, "
                  "response_body, timestamp, size_bytes)")
    queue.execute("INSERT INTO payload_queue VALUES('i', 'x', 'a', '', '', 1, 0)")
    put(queue, "e1", how=CALL)
    assert one(queue, "SELECT payload_flush()") == 1
    assert stored(queue) == ["e1"]


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_ids_are_of_version_7_and_begin_with_the_time(queue, mode):
    setting(queue, "queue_mode", mode)
    for how in (CALL, ROW):
        for time in (0, 1700000000123, 253402300799999):
            queue.execute(
                "SELECT payload_queue('e', 'a', '', '', ?)" if how == CALL else
                "INSERT INTO payload_queue(event_id, agent_id, timestamp) "
                "VALUES('e', 'a', ?)", (time,)).fetchall()
        if mode == "memory":
            assert one(queue, "SELECT payload_flush()") == 3
        found = rows(queue, "SELECT id, created_ms FROM payload_rows ORDER BY created_ms")
        assert len(found) == len({i for i, _ in found}) == (3 if how == CALL else 6)
        for i, time in found:
            assert re.fullmatch("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                "[0-9a-f]{12}", i)
            assert int(i[:8] + i[9:13], 16) == time


def test_created_at_is_what_strftime_makes_of_it(queue):
    setting(queue, "queue_mode", "durable")
    days = [0, 58, 59, 789, 790, 11016, 11017, 18322, 47540, 47541, 2932896]
    times = [d * 86400000 + ms for d in days for ms in (0, 1, 59999, 3599999, 86399999)]
    queue.execute("BEGIN")
    for time in times:
        queue.execute("SELECT payload_queue(?, 'a', '', '', ?)", (f"e{time}", time))
    queue.execute("COMMIT")
    for time in times:
        assert rows(queue, "SELECT created_at = strftime('%Y-%m-%dT%H:%M:%fZ', ? / 1000.0, "
                    "'unixepoch') FROM event_payloads WHERE event_id = ?",
                    time, f"e{time}") == [(1,)]


def test_settings_are_read_anew_after_a_statement_that_failed(queue):
    """The queue expects the changes of the statement that calls it. Another
    statement may make as many."""
    queue.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        queue.execute("INSERT INTO payload_queue(event_id, agent_id) "
                      "VALUES('e1', 'a'), (NULL, 'a')")
    queue.execute("UPDATE blackbox_settings SET value = 'durable' "
                  "WHERE name = 'payload.queue_mode'")
    put(queue, "e2", how=ROW)
    assert stored(queue) == ["e2"]
    queue.execute("ROLLBACK")


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_flush_that_is_stopped_at_its_very_end_writes_no_row_twice(queue, how):
    setting(queue, "flush_batch_size", 3)
    put(queue, "e1", "e2", "e3", how=how)  # prepares what is kept
    calls, stop = [], [0]
    queue.set_progress_handler(lambda: calls.append(1) or len(calls) == stop[0], 1)
    put(queue, "f1", "f2", how=how)
    calls.clear()
    put(queue, "f3", how=how)
    total, late, tried = len(calls), 0, range(-200, 200, 2)
    for i in tried:
        put(queue, f"{i} a", f"{i} b", how=how)
        calls.clear()
        stop[0] = total - i
        try:
            put(queue, f"{i} c", how=how)
            late += 1
        except sqlite3.OperationalError:
            pass
        stop[0] = 0
        queue.execute("SELECT payload_flush()").fetchall()
    queue.set_progress_handler(None, 0)
    events = stored(queue)
    assert len(events) == len(set(events))
    assert {f"{i} {c}" for i in tried for c in "ab"} <= set(events)
    assert 0 < late < len(tried)


def test_a_row_that_is_packed_at_once_is_not_taken_back(queue):
    """A packing that is stopped comes after its row has left the queue."""
    one(queue, "SELECT blackbox_install('main', 'store')")
    setting(queue, "flush_batch_size", 4)
    setting(queue, "pack", 1)
    calls, stop, kept = [], [0], []
    queue.set_progress_handler(lambda: calls.append(1) or len(calls) == stop[0], 1)
    for name in "abc":  # prepares what is kept
        put(queue, *(name + c for c in "123"), body="x" * 3000)
        calls.clear()
        put(queue, name + "4", body="x" * 3000)
    total = len(calls)
    for i in range(40):
        put(queue, f"{i} a", f"{i} b", f"{i} c", body="x" * 3000)
        calls.clear()
        stop[0] = 2 * total - total * i // 20
        try:
            put(queue, f"{i} d", body="x" * 3000)
            kept.append(f"{i} d")
        except sqlite3.OperationalError:
            pass
        stop[0] = 0
        queue.execute("SELECT payload_flush()").fetchall()
    queue.set_progress_handler(None, 0)
    events = stored(queue)
    assert len(events) == len(set(events)) and 0 < len(kept) < 40
    assert {f"{i} {c}" for i in range(40) for c in "abc"} | set(kept) <= set(events)


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_trigger_that_fails_without_undoing_writes_no_row_twice(queue, how):
    setting(queue, "flush_batch_size", 3)
    queue.execute("CREATE TRIGGER fails BEFORE INSERT ON event_payloads "
                  "WHEN NEW.event_id = 'e2' BEGIN SELECT RAISE(FAIL, 'no e2'); END")
    put(queue, "e1", "e2", how=how)
    put(queue, "e3", how=how)
    part = ["e1"] if how == ROW else []
    assert stored(queue) == part and waiting(queue) == ["e1", "e2", "e3"]
    queue.execute("DROP TRIGGER fails")
    assert one(queue, "SELECT payload_flush()") == 3 - len(part)
    assert stored(queue) == ["e1", "e2", "e3"]


def test_a_flush_writes_all_or_nothing_though_another_table_fails_without_undoing(queue):
    queue.execute("CREATE TABLE seen(event TEXT UNIQUE ON CONFLICT FAIL)")
    queue.execute("CREATE TRIGGER sees BEFORE INSERT ON event_payloads "
                  "BEGIN INSERT INTO seen VALUES(NEW.event_id); END")
    put(queue, "e1", "e2", "e2", "e3")
    with pytest.raises(sqlite3.DatabaseError, match="UNIQUE"):
        queue.execute("SELECT payload_flush()")
    assert stored(queue) == [] and waiting(queue) == ["e1", "e2", "e2", "e3"]
    queue.execute("DROP TRIGGER sees")
    assert one(queue, "SELECT payload_flush()") == 4
    assert stored(queue) == ["e1", "e2", "e2", "e3"]


def test_a_flush_that_rolls_back_makes_its_statement_fail(queue):
    setting(queue, "flush_batch_size", 2)
    queue.execute("CREATE TRIGGER undoes BEFORE INSERT ON event_payloads "
                  "WHEN NEW.event_id = 'e2' BEGIN SELECT RAISE(ROLLBACK, 'no e2'); END")
    put(queue, "e1", how=ROW)
    with pytest.raises(sqlite3.DatabaseError, match="no e2"):
        put(queue, "e2", how=ROW)
    assert stored(queue) == [] and waiting(queue) == ["e1"]


def test_a_flush_that_is_stopped_keeps_all_of_its_statement_or_nothing(queue):
    setting(queue, "flush_batch_size", 2)
    two = "INSERT INTO payload_queue(event_id, agent_id) VALUES(?1 || 'x', 'a'), (?1 || 'y', 'a')"
    calls, stop, kept = [], [0], []
    queue.set_progress_handler(lambda: calls.append(1) or len(calls) == stop[0], 1)
    for x in "abcd":
        calls.clear()
        queue.execute(two, (x,))
    tried = range(1, 2 * len(calls), len(calls) // 30)
    for i in tried:
        stop[0] = 0
        queue.execute("SELECT payload_flush()").fetchall()
        put(queue, f"before {i}", how=ROW)
        calls.clear()
        stop[0] = i
        try:
            queue.execute(two, (f"{i} ",))
            kept.append(i)
        except sqlite3.OperationalError:
            pass
    queue.set_progress_handler(None, 0)
    queue.execute("SELECT payload_flush()").fetchall()
    events = stored(queue)
    both = [i for i in tried if f"{i} x" in events]  # SQLite may stop a statement that is complete
    assert 0 < len(kept) < len(tried) and set(kept) <= set(both) and len(both) <= len(kept) + 1
    assert sorted(events) == sorted(
        [x + y for x in "abcd" for y in "xy"] + [f"before {i}" for i in tried]
        + [f"{i} {y}" for i in both for y in "xy"])


def two_files(tmp_path, last):
    """A connection to the first of two files, and the second, which last makes."""
    for name, sql in ("a.db", "CREATE TABLE other(x)"), ("b.db", last):
        db = connect(tmp_path / name)
        one(db, "SELECT blackbox_install()")
        in_memory(db).execute(sql)
        db.close()
    db = connect()
    db.execute("ATTACH ? AS s", (str(tmp_path / "a.db"),))
    put(db, "e1")
    assert one(db, "SELECT payload_flush()") == 1
    db.execute("DETACH s")
    db.execute("ATTACH ? AS s", (str(tmp_path / "b.db"),))
    return db


def test_another_file_under_the_name_of_a_schema_has_its_own_triggers(tmp_path):
    db = two_files(tmp_path, KEEP_OUT)
    put(db, "e1", "e2", "e3")
    assert one(db, "SELECT payload_flush()") == 2
    assert stored(db, "s") == ["e1", "e3"] and waiting(db) == []


def test_another_file_under_the_name_of_a_schema_has_its_own_settings(tmp_path):
    db = two_files(tmp_path, "UPDATE blackbox_settings SET value = 0 "
                   "WHERE name = 'payload.enabled'")
    with pytest.raises(sqlite3.OperationalError, match="ArchiveDisabledError"):
        put(db, "e1")
    assert waiting(db) == []


VALUES = ["", "text", "h\u00e9\u2713", "with\0a NUL", "x" * 100000, b"blob\0\xff", b"", 7, 2.5, None]


@pytest.mark.parametrize("history", [0, 1])
def test_values_of_every_type_arrive_as_they_were_given(queue, history):
    """Also one by one, which is how history is written."""
    setting(queue, "flush_batch_size", 50)
    setting(queue, "history_until", 1)
    at = 1500000000123 if history else int(time.time() * 1000)
    for i, value in enumerate(VALUES):
        one(queue, "SELECT payload_queue(?, 'a', ?, ?, ?)", f"e{i}", value, VALUES[-1 - i], at + i)
    given = "SELECT event_id, agent_id, request_body, response_body, created_at{} ORDER BY event_id"
    before = rows(queue, given.format(" FROM payload_queue"))
    assert [row[2] for row in before] == VALUES and before[0][4].endswith("Z")
    assert one(queue, "SELECT payload_flush()") == len(VALUES)
    after = rows(queue, given.format(" FROM event_payloads"))
    text = [str(v) if isinstance(v, (int, float)) else v for v in VALUES]  # the column's affinity
    assert [row[2:4] for row in after] == list(zip(text, text[::-1]))
    assert [row[:2] + row[4:] for row in after] == [row[:2] + row[4:] for row in before]
    assert archive_faults(queue) == []


def test_a_value_that_a_query_holds_outlives_its_row(queue):
    """The query reads on while the rows are flushed, and others are queued."""
    put(queue, "e1", "e2", body="x" * 5000)
    cursor = queue.execute("SELECT event_id, request_body FROM payload_queue")
    first = cursor.fetchone()
    assert one(queue, "SELECT payload_flush()") == 2
    put(queue, "e3", body="y" * 5000)
    assert [first] + cursor.fetchall() == [("e1", "x" * 5000), ("e2", "x" * 5000)]


def test_a_trigger_may_read_the_queue_while_it_is_flushed(queue):
    queue.execute("CREATE TABLE seen(event, longest, rows)")
    queue.execute("CREATE TEMP TRIGGER watch AFTER INSERT ON main.event_payloads BEGIN INSERT INTO "
                  "seen SELECT NEW.event_id, max(request_body), count(*) FROM payload_queue; END")
    put(queue, "e1", body="a" * 3000)
    put(queue, "e2", body="b" * 3000)
    assert one(queue, "SELECT payload_flush()") == 2
    assert rows(queue, "SELECT * FROM seen") == [(e, "b" * 3000, 2) for e in ("e1", "e2")]
    assert waiting(queue) == [] and stored(queue) == ["e1", "e2"]
