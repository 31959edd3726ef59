"""Several processes on one file: totals, quotas, kills."""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from cache_helpers import A, B, T0, exact, setting, text
from conftest import FULL, ROOT, one, rows

CHECK = (ROOT / "sql" / "cache_check.sql").read_text().rstrip(";\n")

SESSIONS = ["conv_00000000-0000-4000-8000-%012d" % i for i in range(8)]

WRITER = """
import random, sqlite3, sys
sys.path[:0] = [{tests!r}, {tests!r} + "/cache"]
from cache_helpers import text
from conftest import connect, one
path, mine, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
db = connect(path, timeout=60)
rnd = random.Random(seed)
shared = {shared!r}
refused = 0
print("ready", flush=True)
for i in range(count):
    session = rnd.choice([mine, shared])
    try:
        pick = rnd.random()
        if pick < 0.7:
            one(db, "SELECT cache_write(?,?,'turn0000',?,'d')", session,
                "task%04d" % rnd.randrange(30), text(rnd.randrange(2, 900)))
        elif pick < 0.8:
            db.execute("REPLACE INTO cache_items(session_id, task_id, turn_id,"
                       " description, data) VALUES(?,?,'turn0000','d',?)",
                       (session, "task%04d" % rnd.randrange(30), text(300)))
        elif pick < 0.9:
            db.execute("DELETE FROM cache_items WHERE session_id = ? AND task_id = ?",
                       (session, "task%04d" % rnd.randrange(30)))
        elif pick < 0.98:
            rows = db.execute("SELECT storage_key FROM cache_list(?) LIMIT 1", (session,)).fetchall()
            for (key,) in rows:
                db.execute("SELECT cache_read(?)", (key,)).fetchone()
        else:
            one(db, "SELECT cache_clear_session(?)", session)
    except sqlite3.IntegrityError as error:
        assert "QuotaExceededError" in str(error), error
        refused += 1
    except sqlite3.OperationalError as error:  # deleted between list and read
        assert "ItemNotFoundError" in str(error), error
print(refused)
"""


def start(path, mine, seed, count):
    code = WRITER.format(tests=str(ROOT / "tests"), shared=B)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), mine, str(seed), str(count)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("on_quota", ["reject", "evict_oldest"])
def test_totals_are_exact_when_eight_processes_write(db, path, on_quota):
    db.execute("PRAGMA journal_mode = WAL")
    setting(db, "session_quota_bytes", 4000)
    setting(db, "total_quota_bytes", 20_000)
    setting(db, "on_quota", on_quota)
    running = [start(path, s, i, 150 if FULL else 50) for i, s in enumerate(SESSIONS)]
    looks = 0
    while any(p.poll() is None for p in running):
        # every read sees one committed state
        session, total, wrong = db.execute(
            "SELECT (SELECT max(total_size) FROM cache_sessions),"
            " (SELECT sum(total_size) FROM cache_sessions),"
            f" (SELECT count(*) FROM ({CHECK}))").fetchone()
        assert (session or 0) <= 4000 and (total or 0) <= 20_000 and wrong == 0
        looks += 1
        time.sleep(0.002)
    outputs = [p.communicate() for p in running]
    assert all(p.returncode == 0 for p in running), outputs
    assert looks > 5
    exact(db)
    if on_quota == "reject":
        assert sum(int(out.split()[1]) for out, _ in outputs) > 0
    else:
        assert one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'evict'") > 0


def test_killed_writers_leave_whole_statements(db, path):
    db.execute("PRAGMA journal_mode = WAL")
    setting(db, "session_quota_bytes", 4000)
    setting(db, "on_quota", "evict_oldest")
    rnd = random.Random(5)
    for turn in range(60 if FULL else 3):
        running = [start(path, s, turn * 10 + i, 10**9) for i, s in enumerate(SESSIONS[:3])]
        for process in running:
            assert process.stdout.readline() == "ready\n"
        time.sleep(0.05 + rnd.random() * 0.15)
        for process in running:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        exact(db)
        assert one(db, "SELECT coalesce(max(total_size), 0) FROM cache_sessions") <= 4000
    assert one(db, "SELECT count(*) FROM cache_sessions") > 0
    assert one(db, "PRAGMA integrity_check") == "ok"


def test_a_clear_that_is_killed_is_whole_or_not_at_all(db, path):
    db.execute("PRAGMA journal_mode = DELETE")
    done = set()
    for turn in range(8):
        db.execute("BEGIN")
        for i in range(300):
            one(db, "SELECT cache_write(?,?,'turn0000',?,'d')", A, "%08d" % i, text(5000))
        db.execute("COMMIT")
        code = ("import sys; sys.path.insert(0, sys.argv[2]); from conftest import"
                " connect, one; db = connect(sys.argv[1], timeout=30);"
                " print('x', flush=True); one(db, 'SELECT cache_clear_session(?)',"
                f" '{A}')")
        process = subprocess.Popen([sys.executable, "-c", code, str(path), str(ROOT / "tests")],
                                   stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        time.sleep(0.002 * turn)
        process.kill()
        process.communicate()
        count = one(db, "SELECT count(*) FROM cache_items")
        assert count in (0, 300)
        assert one(db, "SELECT count(*) FROM cache_sessions") == (count > 0)
        done.add(count)
        exact(db)


def test_every_failing_page_leaves_all_as_it_was(db):
    """A file that cannot grow any more, one page at a time."""
    setting(db, "on_quota", "evict_oldest")
    setting(db, "session_quota_bytes", 40_000)
    for i in range(20):
        one(db, "SELECT cache_write(?,?,'turn0000',?,'d',NULL,?)", A, "%08d" % i, text(2000), T0 + i)
    before = rows(db, "SELECT storage_key, data_size FROM cache_items ORDER BY id")
    used = one(db, "PRAGMA page_count")
    failed = 0
    for more in range(0, 12):
        db.execute(f"PRAGMA max_page_count = {used + more}")
        db.execute("BEGIN")
        db.execute("UPDATE cache_sessions SET last_accessed_at = last_accessed_at + 1")
        try:
            db.execute("SELECT cache_write(?,'task0001','turn0001',?,'d')", (A, text(30_000)))
        except sqlite3.OperationalError as error:
            assert "StorageUnavailableError" in str(error)
            failed += 1
            assert db.in_transaction
            assert rows(db, "SELECT storage_key, data_size FROM cache_items ORDER BY id") == before
            exact(db)
        db.execute("ROLLBACK")
        exact(db)
    assert failed > 0
