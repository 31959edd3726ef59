"""Statements that try to remove a receipt, or to remove rows without one."""
import sqlite3
import time

import pytest

from conftest import connect, one, rows
from hostile_helpers import connection, fresh, made, run


BULK = """
    UPDATE payload_state SET bulk = 1;
    DELETE FROM event_payloads WHERE id = 'mine0'"""


def test_a_delete_always_has_its_receipt(fresh):
    db = connect(fresh)
    run(db, BULK)
    assert one(db, "SELECT sum(rows) FROM retention_log") == 1
    run(db, "UPDATE payload_state SET removed = (SELECT max(id) FROM retention_log)")
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
    db.execute("INSERT INTO payload_clear(actor) VALUES('Ann')")
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
    assert one(db, "SELECT sum(rows) FROM retention_log") == 3


def test_a_bulk_act_that_a_trigger_breaks_off_is_found(fresh):
    db = connect(fresh)
    db.execute("CREATE TEMP TRIGGER t BEFORE UPDATE ON main.retention_log BEGIN "
               "SELECT RAISE(IGNORE); END")
    db.execute("INSERT INTO payload_clear(actor) VALUES('Ann')")
    db.execute("DROP TRIGGER t")
    assert [r[1:] for r in rows(db, "SELECT * FROM blackbox_check")] == [
        ("retention_log", "receipt 1 was never closed: a trigger stopped a bulk delete")]
