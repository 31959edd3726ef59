"""Waiting rows are dropped, by DELETE FROM payload_queue and by a clear."""
import sqlite3

import pytest

from conftest import connect, one, rows
from payload_helpers import in_memory, put, setting, stored, waiting
from payload_helpers import quoted

LOG = ("SELECT rule, actor, rows, bytes, minute IS NOT NULL, oldest, newest "
       "FROM retention_log ORDER BY id")


@pytest.fixture
def queue(db):
    return in_memory(db)


def put_at(db, *times):
    for i in times:
        one(db, "SELECT payload_queue(?, 'a', 'qq', 'r', ?)", f"e{i}", i)


def test_delete_drops_rows_with_a_receipt(queue, path):
    put_at(queue, 1, 2, 3, 4)
    cursor = queue.execute("DELETE FROM payload_queue WHERE event_id IN ('e2', 'e3')")
    assert cursor.rowcount == 2
    assert waiting(queue) == ["e1", "e4"]
    assert rows(queue, "SELECT rows, bytes FROM payload_waiting") == [(2, 6)]
    assert rows(queue, LOG) == [("payload.queue", None, 2, 6, 1, 2, 3)]
    assert queue.execute("DELETE FROM payload_queue WHERE event_id = 'e2'").rowcount == 0
    put_at(queue, 5)
    queue.execute("DELETE FROM payload_queue WHERE rowid = "
                  "(SELECT max(rowid) FROM payload_queue)")
    assert one(queue, "SELECT payload_flush()") == 2
    assert stored(queue) == ["e1", "e4"]
    assert rows(queue, "SELECT sum(rows) FROM retention_log") == [(3,)]
    assert rows(queue, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_rows_deleted_in_a_transaction_come_back_with_its_rollback(queue, end):
    put(queue, "e1", "e2", "e3", "e4")
    queue.execute("BEGIN")
    queue.execute("DELETE FROM payload_queue WHERE event_id = 'e1'")
    put(queue, "e5")
    queue.execute("SAVEPOINT a")
    queue.execute("DELETE FROM payload_queue WHERE event_id = 'e2'")
    queue.execute("SAVEPOINT b")
    queue.execute("DELETE FROM payload_queue WHERE event_id = 'e3'")
    queue.execute("RELEASE b")
    assert waiting(queue) == ["e4", "e5"]
    queue.execute("ROLLBACK TO a")
    assert waiting(queue) == ["e2", "e3", "e4", "e5"]
    queue.execute("DELETE FROM payload_queue WHERE event_id = 'e4'")
    queue.execute("RELEASE a")
    queue.execute("SAVEPOINT c")
    queue.execute("DELETE FROM payload_queue WHERE event_id = 'e5'")
    queue.execute("ROLLBACK TO c")
    assert waiting(queue) == ["e2", "e3", "e5"]
    queue.execute(end)
    left = ["e2", "e3", "e5"] if end == "COMMIT" else ["e1", "e2", "e3", "e4"]
    assert waiting(queue) == left
    assert one(queue, "SELECT coalesce(sum(rows), 0) FROM retention_log") \
        == (2 if end == "COMMIT" else 0)
    assert rows(queue, "SELECT rows, bytes FROM payload_waiting") \
        == [(len(left), 2 * len(left))]
    assert one(queue, "SELECT payload_flush()") == len(left)
    assert stored(queue) == left


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_delete_that_fails_half_way_drops_nothing(queue, begin):
    put(queue, "e1", "e2", "e3")
    queue.execute("CREATE TRIGGER stop BEFORE UPDATE ON blackbox__open WHEN "
                  "NEW.rows > 1 BEGIN SELECT RAISE(ABORT, 'no more'); END")
    queue.execute(begin)
    with pytest.raises(sqlite3.DatabaseError, match="no more"):
        queue.execute("DELETE FROM payload_queue")
    assert queue.in_transaction == bool(begin)
    assert waiting(queue) == ["e1", "e2", "e3"]
    assert rows(queue, "SELECT rows FROM payload_waiting") == [(3,)]
    assert rows(queue, "SELECT * FROM retention_log") == []


def test_a_waiting_row_cannot_be_changed(queue):
    put(queue, "e1")
    with pytest.raises(sqlite3.OperationalError, match="ReadOnlyError"):
        queue.execute("UPDATE payload_queue SET event_id = 'x'")


@pytest.mark.parametrize("how", ["SELECT payload_clear_archive()",
                                 "INSERT INTO blackbox_call(command) "
                                 "VALUES('payload_clear_archive')"])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_clear_removes_the_waiting_rows(queue, path, how, begin):
    queue.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at) "
                  "VALUES('old', 'a', 'archive', '1970-01-01T00:00:00.009Z')")
    put_at(queue, 1, 2, 3)
    queue.execute(begin)
    result = queue.execute(how).fetchall()
    assert result == ([(4,)] if "SELECT" in how else [])
    assert waiting(queue) == [] and stored(queue) == []
    if begin:
        queue.execute("ROLLBACK")
        assert waiting(queue) == ["e1", "e2", "e3"] and stored(queue) == ["old"]
        queue.execute(how).fetchall()
    assert rows(queue, LOG) == [("clear", "payload_clear_archive", 4, 9, 0, 1, 9)]
    assert one(queue, "SELECT payload_flush()") == 0
    queue.close()
    assert stored(connect(path)) == []


def test_clear_writes_the_rows_that_wait_for_another_schema(queue, tmp_path):
    put(queue, "e1")
    queue.execute("ATTACH ? AS 'o ''ther'", (str(tmp_path / "o.db"),))
    one(queue, "SELECT blackbox_install('o ''ther')")
    one(queue, "SELECT blackbox_use('o ''ther')")
    assert one(queue, "SELECT payload_clear_archive()") == 0
    assert waiting(queue) == [] and stored(queue, "main") == ["e1"]


def test_the_receipt_is_in_the_schema_for_which_the_rows_waited(queue, tmp_path):
    schema = quoted('o "ther')
    queue.execute(f"ATTACH ? AS {schema}", (str(tmp_path / "o.db"),))
    one(queue, "SELECT blackbox_install('o \"ther')")
    setting(queue, "enabled", 1, schema)
    setting(queue, "queue_mode", "memory", schema)
    one(queue, "SELECT blackbox_use('o \"ther')")
    put(queue, "e1")
    queue.execute("DELETE FROM payload_queue")
    assert rows(queue, f"SELECT rule, rows FROM {schema}.retention_log") \
        == [("payload.queue", 1)]
    assert rows(queue, "SELECT * FROM main.retention_log") == []
    put(queue, "e2")
    queue.execute(f"DETACH {schema}")
    with pytest.raises(sqlite3.OperationalError, match="no such table: o"):
        queue.execute("DELETE FROM payload_queue")
    assert waiting(queue) == ["e2"]


# ---- while a query reads the queue


def test_a_row_that_is_being_read_stays_readable_after_its_delete(queue, path):
    """A flush, a delete or an insert during a query."""
    put(queue, "e1", "e2", "e3", body="x" * 5000)
    found = rows(queue, "SELECT event_id, payload_flush(), length(request_body) "
                 "FROM payload_queue")
    assert found == [("e1", 3, 5000), ("e2", 0, 5000), ("e3", 0, 5000)]
    put(queue, "f1", "f2", "f3", body="x" * 5000)
    cursor = queue.execute("SELECT event_id, request_body FROM payload_queue")
    assert cursor.fetchone()[0] == "f1"
    queue.execute("DELETE FROM payload_queue")
    put(queue, "g1")
    assert [r[0] for r in cursor.fetchall()] in (["f2"], ["f2", "f3"], [], ["f3"])
    assert waiting(queue) == ["g1"]
    found = rows(queue, "SELECT payload_queue('n', 'a', 'q', 'r') FROM payload_queue")
    assert found == [(1,)] and waiting(queue) == ["g1", "n"]
