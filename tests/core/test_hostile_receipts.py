"""Statements that try to remove a receipt, or to remove rows without one."""
import sqlite3
import time

import pytest

from conftest import connect, one, rows
from hostile_helpers import connection, fresh, made, run


BULK = """
    UPDATE payload__state SET bulk = 1;
    DELETE FROM event_payloads WHERE id = 'mine0'"""


def test_a_delete_always_has_its_receipt(fresh):
    db = connect(fresh)
    run(db, BULK)
    assert one(db, "SELECT sum(rows) FROM retention_log") == 1
    run(db, "UPDATE payload__state SET removed = (SELECT max(id) FROM retention_log)")
    time.sleep(0.002)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine1'")
    assert one(db, "SELECT sum(rows) FROM retention_log") == 2


@pytest.mark.parametrize("statement", [
    "INSERT INTO retention_log(id, at, domain, rule, rows, bytes) "
    "VALUES(9223372036854775807, 0, 'x', 'x', 1, 1)",
    "REPLACE INTO retention_log SELECT * FROM retention_log",
    "DELETE FROM retention_log", "UPDATE retention_log SET rows = 0",
    "UPDATE retention_log SET bytes = NULL", "UPDATE retention_log SET rule = 'x'",
    "UPDATE retention_log SET minute = NULL",
    "UPDATE OR REPLACE retention_log SET id = id + 20000",
    "UPDATE retention_log SET at = 0", "UPDATE retention_log SET oldest = NULL",
    "UPDATE retention_log SET newest = 5", "UPDATE retention_log SET rows = -1",
    "UPDATE retention_log SET rows = 0 WHERE rule = 'clear'",
    "UPDATE retention_log SET bytes = 0 WHERE rule = 'clear'",
    "UPDATE retention_log SET oldest = newest + 1 WHERE rule = 'clear'",
    "DELETE FROM retention_log WHERE rule = 'clear'"])
def test_receipts_stay(fresh, statement):
    db = sqlite3.connect(fresh, isolation_level=None)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    db.execute("INSERT INTO payload__clear(actor) VALUES('Ann')")
    before = rows(db, "SELECT * FROM retention_log")
    assert len(before) == 2
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    assert rows(db, "SELECT * FROM retention_log") == before


@pytest.mark.parametrize("recursive", [0, 1])
def test_another_receipt_takes_no_place(fresh, recursive):
    db = connection(fresh, 0, recursive)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    before = rows(db, "SELECT * FROM retention_log")
    db.execute("REPLACE INTO retention_log(at, domain, rule, rows, bytes, minute) "
               "SELECT at, domain, rule, 0, 0, minute FROM retention_log")
    assert rows(db, "SELECT * FROM retention_log WHERE id = 1") == before


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_replaced_row_is_counted_with_the_others(fresh, begin):
    db = connection(fresh, 0, 1)
    db.execute(begin)
    for _ in range(3):
        db.execute("REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
                   "VALUES('mine0', 'new', 'x', 'archive')")
    assert one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'manual'") == 3


NOW = "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"
ARCHIVE = "DELETE FROM event_payloads WHERE purpose = 'archive' AND pinned = 0"
# Triggers that try to have rows deleted without a receipt. Each is tried with a plain
# DELETE, and with a bulk act.
HIDERS = {
    "a bulk act in the name of a receipt of less than nothing": f"""
        CREATE TEMP TRIGGER t BEFORE DELETE ON main.event_payloads BEGIN
          INSERT INTO retention_log(at, domain, rule, rows, bytes)
          VALUES({NOW}, 'payload', 'x', -1, -9999);
          UPDATE payload__state SET bulk = 1,
                 removed = (SELECT max(id) FROM retention_log); END""",
    "a bulk act in the name of an empty receipt": f"""
        CREATE TEMP TRIGGER t BEFORE DELETE ON main.event_payloads BEGIN
          INSERT INTO retention_log(at, domain, rule, rows, bytes)
          VALUES({NOW}, 'payload', 'x', 0, 0);
          UPDATE payload__state SET bulk = 1,
                 removed = (SELECT max(id) FROM retention_log); END""",
    "the receipt is emptied": """
        CREATE TEMP TRIGGER t AFTER DELETE ON main.event_payloads BEGIN
          UPDATE retention_log SET rows = 0, bytes = 0;
          DELETE FROM retention_log; END""",
    "the receipt is deleted before it counts": """
        CREATE TEMP TRIGGER t BEFORE DELETE ON main.event_payloads BEGIN
          DELETE FROM retention_log WHERE rows = 0; END""",
    "the bulk act is forgotten": """
        CREATE TEMP TRIGGER t BEFORE DELETE ON main.event_payloads BEGIN
          UPDATE payload__state SET bulk = 0, removed = 0; END""",
    "no receipt is written": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.retention_log BEGIN
          SELECT RAISE(IGNORE); END""",
    "no receipt is counted": """
        CREATE TEMP TRIGGER t BEFORE UPDATE ON main.retention_log BEGIN
          SELECT RAISE(IGNORE); END""",
    "no receipt is written, and none counted": """
        CREATE TEMP TRIGGER t1 BEFORE INSERT ON main.retention_log BEGIN
          SELECT RAISE(IGNORE); END;
        CREATE TEMP TRIGGER t2 BEFORE UPDATE ON main.retention_log BEGIN
          SELECT RAISE(IGNORE); END""",
}


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("receipts", [0, 1])
@pytest.mark.parametrize("delete", [ARCHIVE, "INSERT INTO payload__clear(actor) VALUES('Ann')",
                                    "INSERT INTO payload__sweep(before) VALUES(9e15)"])
@pytest.mark.parametrize("hider", HIDERS)
def test_no_trigger_hides_a_delete(fresh, hider, delete, receipts, begin):
    db = sqlite3.connect(fresh, isolation_level=None)
    if receipts:
        db.execute("DELETE FROM event_payloads WHERE id = 'freed'")
    db.execute(begin)
    run(db, HIDERS[hider])
    run(db, delete)
    run(db, "UPDATE retention_log SET rows = 0 WHERE rows < 0;"
        "DELETE FROM retention_log WHERE rows <= 0;"
        "UPDATE payload__state SET bulk = 0, removed = 0")
    if begin:
        db.execute("COMMIT")
    left = one(db, "SELECT count(*) FROM event_payloads")
    assert one(db, "SELECT coalesce(sum(rows), 0) FROM retention_log") == 6 - left


RUNNING = "UPDATE rollout_act SET rule = 'x'"


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("hider", [
    RUNNING, RUNNING + ", rows = 1", "DELETE FROM rollout_act",
    "CREATE TEMP TRIGGER t BEFORE DELETE ON main.rollout_heads BEGIN " + RUNNING + "; END",
    "CREATE TEMP TRIGGER t BEFORE INSERT ON main.retention_log BEGIN "
    "SELECT RAISE(IGNORE); END",
    "CREATE TEMP TRIGGER t BEFORE UPDATE ON main.retention_log BEGIN "
    "SELECT RAISE(IGNORE); END"])
@pytest.mark.parametrize("delete", [
    "DELETE FROM rollouts", "DELETE FROM rollout_heads",
    "INSERT INTO rollout_cleanup(now) VALUES(253402300799999)"])
def test_no_conversation_is_deleted_without_a_receipt(db, hider, delete, begin):
    for _ in range(3):
        one(db, "SELECT rollout_create(NULL)")
    db.execute(begin)
    run(db, hider)
    run(db, delete)
    if begin:
        db.execute("COMMIT")
    left = one(db, "SELECT count(*) FROM rollout_heads")
    assert one(db, "SELECT coalesce(sum(rows), 0) FROM retention_log") == 3 - left


@pytest.mark.parametrize("delete", ["DELETE FROM cache_items", "DELETE FROM cache_sessions"])
def test_no_result_of_a_tool_is_deleted_without_a_receipt(db, delete):
    one(db, "SELECT cache_write('conv_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f', 'task0001', "
        "'turn0001', '12345', 'd')")
    db.execute("DELETE FROM cache_state")
    db.execute(delete)
    assert one(db, "SELECT sum(rows) FROM retention_log") == 1


@pytest.mark.parametrize("values", ["-1, 0", "0, -1", "'x', 0", "0.5, 0", "NULL, 0", "0, x'00'"])
def test_a_receipt_has_whole_numbers(fresh, values):
    db = sqlite3.connect(fresh, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: rows and bytes"):
        db.execute("INSERT INTO retention_log(at, domain, rule, rows, bytes) "
                   f"VALUES(0, 'mine', 'x', {values})")
