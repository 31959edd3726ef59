"""Statements that try to remove a receipt, or to remove rows without one."""
import sqlite3

import pytest

from conftest import connect, one, rows
from hostile_helpers import connection, fresh, made, run


@pytest.mark.parametrize("statement", [
    "DELETE FROM retention_log",
    "UPDATE retention_log SET rows = 0", "UPDATE blackbox_log SET reason = 'x'",
    "DELETE FROM blackbox_log", "INSERT INTO blackbox_log(domain, kind) VALUES('x', 'unpin')"])
def test_receipts_stay(fresh, statement):
    db = sqlite3.connect(fresh, isolation_level=None)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    before = rows(db, "SELECT * FROM retention_log"), rows(db, "SELECT * FROM blackbox_log")
    assert len(before[0]) == 1
    with pytest.raises(sqlite3.OperationalError, match="because it is a view"):
        db.execute(statement)
    assert (rows(db, "SELECT * FROM retention_log"), rows(db, "SELECT * FROM blackbox_log")) == before


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_replaced_row_is_counted_with_the_others(fresh, begin):
    db = connection(fresh, 0, 1)
    db.execute(begin)
    for _ in range(3):
        db.execute("REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
                   "VALUES('mine0', 'new', 'x', 'archive')")
    assert one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'manual'") == 3


# What tries to have rows deleted without a receipt: statements on the tables of blackbox, and
# TEMP triggers. A receipt stands for the rows, or check tells of it.
HIDERS = {
    "a bulk act that never began": "UPDATE payload__state SET work = 'bulk'",
    "a bulk act that ended before": """
        UPDATE payload__state SET work = 'bulk';
        DELETE FROM event_payloads WHERE id = 'mine0';
        UPDATE payload__state SET work = 0""",
    "a bulk act in a trigger": """
        CREATE TEMP TRIGGER t BEFORE DELETE ON main.event_payloads BEGIN
          UPDATE payload__state SET work = 'bulk'; END""",
    "the receipt is emptied": """
        CREATE TEMP TRIGGER t AFTER DELETE ON main.event_payloads BEGIN
          UPDATE blackbox__open SET rows = 0, bytes = 0; DELETE FROM blackbox__open; END""",
    "no receipt is written": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.blackbox__open BEGIN
          SELECT RAISE(IGNORE); END""",
    "no receipt gets into the log": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.blackbox__log BEGIN
          SELECT RAISE(IGNORE); END""",
}
DELETES = ["DELETE FROM event_payloads WHERE purpose = 'archive' AND pinned = 0",
           "SELECT payload_clear_archive()", "SELECT payload_cleanup(0)"]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("delete", DELETES)
@pytest.mark.parametrize("hider", HIDERS)
def test_a_delete_has_its_receipt_or_check_tells_of_it(fresh, hider, delete, begin):
    db = connect(fresh)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    before = one(db, "SELECT count(*) FROM event_payloads")
    db.execute(begin)
    run(db, HIDERS[hider])
    run(db, delete)
    if begin:
        db.execute("COMMIT")
    gone = before - one(db, "SELECT count(*) FROM event_payloads")
    if one(db, "SELECT coalesce(sum(rows), 0) FROM retention_log") != gone:
        assert rows(db, "SELECT * FROM blackbox_check") != []


RUNNING = "UPDATE rollout__act SET rule = 'x'"


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("hider", [
    RUNNING, "DELETE FROM rollout__act",
    "CREATE TEMP TRIGGER t BEFORE DELETE ON main.rollout__heads BEGIN " + RUNNING + "; END"])
@pytest.mark.parametrize("delete", [
    "DELETE FROM rollouts", "DELETE FROM rollout__heads",
    "SELECT rollout_cleanup_expired(253402300799999)"])
def test_no_conversation_is_deleted_without_a_receipt(db, hider, delete, begin):
    for _ in range(3):
        one(db, "SELECT rollout_create(NULL)")
    db.execute(begin)
    run(db, hider)
    run(db, delete)
    if begin:
        db.execute("COMMIT")
    left = one(db, "SELECT count(*) FROM rollout__heads")
    if one(db, "SELECT coalesce(sum(rows), 0) FROM retention_log") != 3 - left:
        assert "rows" in hider and rows(db, "SELECT * FROM blackbox_check") != []


@pytest.mark.parametrize("delete", ["DELETE FROM cache_items", "DELETE FROM cache_sessions"])
def test_no_result_of_a_tool_is_deleted_without_a_receipt(db, delete):
    one(db, "SELECT cache_write('conv_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f', 'task0001', "
        "'turn0001', '12345', 'd')")
    db.execute("DELETE FROM cache_state")
    db.execute(delete)
    assert one(db, "SELECT sum(rows) FROM retention_log") == 1
