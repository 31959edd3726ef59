"""Full disks, killed processes, interrupts: nothing is half done."""
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest

from conftest import FULL, ROOT, connect, one, rows
from evidence_helpers import ADD, MAKE, action, well

ROUNDS = 40 if FULL else 6


def whole(db):
    well(db)
    assert one(db, "PRAGMA integrity_check") == "ok"


@pytest.mark.parametrize("begin", [False, True])
def test_full_disk_in_a_store_changes_nothing(path, begin):
    db = connect(path)
    db.execute(MAKE)
    for i in range(10):
        db.execute(ADD, (f"a{i}", i, json.dumps(action(i)), bytes(10000)))
    before = rows(db, "SELECT * FROM rec")
    pages = one(db, "PRAGMA page_count")
    for spare in range(0, 14, 2):
        one(db, f"PRAGMA max_page_count = {pages + spare}")
        if begin:
            db.execute("BEGIN")
        with pytest.raises(sqlite3.OperationalError, match="full"):
            db.execute(ADD, ("x", 99, json.dumps(action(99)), bytes(60000)))
        if db.in_transaction:
            db.execute("ROLLBACK")
        assert rows(db, "SELECT * FROM rec") == before
    one(db, "PRAGMA max_page_count = 100000")
    db.execute(ADD, ("x", 99, json.dumps(action(99)), bytes(60000)))
    whole(db)


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_killed_writers_leave_a_whole_buffer(path, journal):
    db = connect(path)
    one(db, f"PRAGMA journal_mode = {journal}")
    db.execute(MAKE + "(max_size_bytes=400000)")
    db.close()
    code = textwrap.dedent(f"""
        import sys, json
        sys.path.insert(0, {str(ROOT / 'tests')!r})
        sys.path.insert(0, {str(ROOT / 'tests' / 'evidence')!r})
        from conftest import connect
        from evidence_helpers import action
        db = connect({str(path)!r})
        n = int(sys.argv[1])
        print("ready", flush=True)
        while True:
            n += 1
            db.execute("INSERT INTO rec(id, timestamp, action, screenshot) "
                       "VALUES(?, ?, ?, ?)",
                       (f"k{{n}}", n, json.dumps(action(n)), bytes(20000)))
            print(n, flush=True)
            if n % 7 == 0:
                db.execute("SELECT evidence_prune_for_approval('rec', 3)")
    """)
    pick = random.Random(journal)
    stored = 0
    for _ in range(ROUNDS):
        child = subprocess.Popen([sys.executable, "-c", code, str(stored)],
                                 stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n"
        time.sleep(pick.uniform(.02, .25))
        child.send_signal(signal.SIGKILL)
        told = [int(line) for line in child.stdout.read().split()]
        child.wait()
        db = connect(path)
        whole(db)
        newest = one(db, "SELECT max(timestamp) FROM rec") or 0
        assert newest >= (told[-1] if told else stored)
        stored = newest
        assert one(db, "SELECT total_size FROM evidence_stats('rec')") <= 400_000
        db.close()
    assert stored > 0


@pytest.mark.parametrize("schema", ["main", "temp"])
def test_interrupts_at_any_point_leave_it_as_it_was(path, schema):
    db = connect(path)
    over = "(max_size_bytes=60000" + (", overflow='main')" if schema == "temp" else ")")
    db.execute(MAKE.replace("TABLE rec", f"TABLE {schema}.rec") + over)
    for i in range(14):
        db.execute(ADD, (f"a{i}", i, json.dumps(action(i)), bytes(1500)))
    want = "SELECT id, timestamp, action, screenshot, pruned FROM rec ORDER BY rowid"
    step = 60 if FULL else 900
    for sql, values in [
        (ADD, ("x", 99, json.dumps(action(99)), bytes(9000))),
        ("SELECT evidence_prune_for_approval('rec', 1)", ()),
        ("DELETE FROM rec", ()),
    ]:
        before = rows(db, want)
        for countdown in range(step, 200_000, step):
            left = [countdown // 20]

            def tick():
                left[0] -= 1
                return left[0] < 0

            db.set_progress_handler(tick, 20)
            try:
                db.execute(sql, values).fetchall()
                break
            except sqlite3.OperationalError as error:
                assert "interrupted" in str(error)
            finally:
                db.set_progress_handler(None, 0)
            assert rows(db, want) == before
            well(db)
        else:
            raise AssertionError("never finished")
        assert rows(db, want) != before
    whole(db)


def test_close_with_kept_statements_is_clean(path):
    db = connect(path)
    db.execute(MAKE)
    db.execute("CREATE VIRTUAL TABLE temp.t USING evidence_buffer(overflow='main')")
    for name in ("rec", "t"):
        db.execute(ADD.replace("rec", name), ("a", 1, "{}", b"1"))
        one(db, "SELECT evidence_stats(?)", name)
    db.close()
    again = sqlite3.connect(path)
    again.execute("BEGIN EXCLUSIVE")
    assert again.execute("SELECT count(*) FROM rec_rows").fetchone() == (1,)


@pytest.mark.parametrize("call", [
    "SELECT payload_extract('ring', 'a')", "SELECT payload_kill_switch('ring', 'a', 'k')",
    "SELECT evidence_prune_for_approval('rec', 1)", "SELECT evidence_prune('rec')",
    "DELETE FROM rec", "DELETE FROM ring",
    "SELECT blackbox_erase('agent', 'a', 'me', 'why')"])
def test_a_table_that_sqlite_disconnects_is_freed_at_the_end_of_the_call(path, call):
    """An interrupt of a write rolls back, and a changed schema is forgotten with its tables."""
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute(MAKE)
    for i in range(8):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e', ?)",
                   ("x" * (3000 + i),))
        db.execute(ADD, (f"i{i}", i, json.dumps(action(i)), b"x" * 3000))
    stopped = 0
    for stop in (*range(1, 40, 3 if FULL else 6), *range(40, 1500, 70 if FULL else 140)):
        one(db, "SELECT count(*) FROM ring")
        db.execute("BEGIN")
        db.execute("CREATE TABLE more(a)")
        calls = iter(range(stop))
        db.set_progress_handler(lambda: next(calls, None) is None, 3)
        try:
            db.execute(call).fetchall()
        except sqlite3.OperationalError:
            stopped += not db.in_transaction
        db.set_progress_handler(None, 0)
        if db.in_transaction:
            db.execute("ROLLBACK")
        db.execute("BEGIN")
        db.execute("CREATE TABLE more(a)")
        db.execute("DROP TABLE more")
        db.execute("COMMIT")
    assert stopped > 0
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.close()
