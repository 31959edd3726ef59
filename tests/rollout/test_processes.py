"""Several processes, sudden death, and what is on disk after a flush."""
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from common import ID, OTHER, append, create, texts, user, well
from conftest import ROOT, connect, one, rows

WRITER = f"""
import json, sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
path, rollout, name, count, size = sys.argv[1:]
db = connect(path)
db.execute("PRAGMA busy_timeout = 60000")
db.execute("PRAGMA synchronous = NORMAL")
for i in range(int(count)):
    items = [{{"type": "event_msg", "payload": {{"type": "agent_message",
             "message": f"{{name}} {{i}} {{k}}"}}}} for k in range(int(size))]
    one(db, "SELECT rollout_append(?, ?)", rollout, json.dumps(items))
    print(i, flush=True)
"""


def writer(path, rollout, name, count, size=3, **options):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), rollout, name, str(count),
         str(size)], stdout=subprocess.PIPE, text=True, **options)


def messages(db, rollout):
    """(name, call, index) of each item in order; checks the sequences."""
    items = texts(db, rollout)
    assert [s for s, _ in items] == list(range(len(items)))
    out = []
    for _, payload in items[1:]:
        name, call, index = json.loads(payload)["message"].split()
        out.append((name, int(call), int(index)))
    return out


@pytest.fixture
def wal(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    one(db, "SELECT blackbox_install()")
    yield db
    well(db)
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


def whole_calls(items, name, size):
    """The calls of one writer, each of them whole and unbroken in order."""
    mine = [(call, index) for who, call, index in items if who == name]
    assert [index for _, index in mine] == list(range(size)) * (len(mine) // size)
    return [call for call, index in mine if index == 0]


def test_two_processes_append_to_one_conversation(wal, path):
    create(wal)
    both = [writer(path, ID, name, 150) for name in "ab"]
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    items = messages(wal, ID)
    assert len(items) == 900
    for name in "ab":
        assert whole_calls(items, name, 3) == list(range(150))
    # the items of one call stand together
    assert all(items[i][:2] == items[i - 1][:2] for i in range(900) if i % 3)


def test_ten_processes_append_to_ten_conversations(wal, path):
    ids = [f"5973b6c0-94b8-487b-a530-00000000000{i}" for i in range(10)]
    for rollout in ids:
        create(wal, rollout)
    ten = [writer(path, rollout, "w", 20) for rollout in ids]
    for process in ten:
        process.communicate(timeout=120)
        assert process.returncode == 0
    for rollout in ids:
        assert whole_calls(messages(wal, rollout), "w", 3) == list(range(20))


def test_killed_writers_lose_nothing_they_were_told_of(wal, path):
    """One writer is killed at a random moment, again and again, while another
    goes on. Every call that returned is there, whole; so are all of the
    other's; at most one call more of the dead one."""
    rng = random.Random(7)
    create(wal)
    rounds = 25 if os.environ.get("BLACKBOX_FULL") else 6
    steady = writer(path, ID, "steady", 60 * rounds)
    told = {}
    for n in range(rounds):
        victim = writer(path, ID, f"v{n}", 100000)
        victim.stdout.readline()
        time.sleep(rng.random() * 0.2)
        victim.send_signal(signal.SIGKILL)
        told[f"v{n}"] = 1 + len(victim.communicate()[0].split())
    steady.communicate(timeout=200)
    assert steady.returncode == 0
    items = messages(wal, ID)
    assert whole_calls(items, "steady", 3) == list(range(60 * rounds))
    for name, count in told.items():
        calls = whole_calls(items, name, 3)
        assert calls == list(range(len(calls)))
        assert len(calls) in (count, count + 1)


def test_first_write_waits_for_another_writer(wal, path):
    """The very first call of a connection waits too, though it has to find
    its schema first."""
    create(wal)
    wal.execute("BEGIN IMMEDIATE")
    process = writer(path, ID, "w", 1)
    time.sleep(0.7)
    assert process.poll() is None
    append(wal, ID, {"type": "event_msg", "payload": {
        "type": "agent_message", "message": "first 0 0"}})
    wal.execute("COMMIT")
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert [m[0] for m in messages(wal, ID)] == ["first", "w", "w", "w"]


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "TRUNCATE", "PERSIST"])
def test_killed_in_a_transaction(path, mode):
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {mode}")
    one(db, "SELECT blackbox_install()")
    create(db)
    append(db, ID, user("kept"))
    one(db, "SELECT rollout_flush()")
    script = f"""
import os, sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
db = connect({str(path)!r})
db.execute("PRAGMA cache_size = 2")
db.execute("BEGIN")
one(db, "SELECT rollout_fork(?)", {ID!r})
for _ in range(50):
    one(db, "SELECT rollout_append(?, ?)", {ID!r},
        '[{{"type":"compacted","payload":"%s"}}]' % ("x" * 5000))
one(db, "SELECT rollout_delete(?)", {ID!r})
os.kill(os.getpid(), 9)
"""
    db.close()
    assert subprocess.run([sys.executable, "-c", script]).returncode == -9
    db = connect(path)
    assert len(texts(db, ID)) == 2
    well(db)
    assert one(db, "PRAGMA integrity_check") == "ok"


# ------------------------------------------------------------------- flush

def test_flush_and_shutdown_inside_a_transaction(db):
    create(db)
    db.execute("BEGIN")
    append(db, ID, user("x"))
    with pytest.raises(sqlite3.Error, match="Flush failed: a transaction is open"):
        db.execute("SELECT rollout_flush(?)", (ID,))
    with pytest.raises(sqlite3.Error, match="Shutdown failed: a transaction"):
        db.execute("SELECT rollout_shutdown(?)", (ID,))
    assert append(db, ID, user("y")) == 1  # so it was not shut down
    db.execute("COMMIT")
    assert one(db, "SELECT rollout_flush(?)", ID) == 1
    assert one(db, "SELECT rollout_flush()") == 1


def test_flush_without_a_file():
    db = connect()
    one(db, "SELECT blackbox_install()")
    assert one(db, "SELECT rollout_flush()") == 0


def test_flush_leaves_settings_alone(path):
    for mode in ("WAL", "DELETE"):
        db = connect(path)
        db.execute(f"PRAGMA journal_mode = {mode}")
        one(db, "SELECT blackbox_install()")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA user_version = 77")
        assert one(db, "SELECT rollout_flush()") == 1
        assert one(db, "PRAGMA synchronous") == 1
        assert one(db, "PRAGMA user_version") == 77
        assert one(db, "PRAGMA journal_mode") == mode.lower()
        db.close()


def test_flush_as_a_row(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    call = "INSERT INTO blackbox_call VALUES ('rollout_flush', NULL)"
    with pytest.raises(sqlite3.Error, match="Flush failed: the statement around"):
        db.execute(call)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(call)


def test_flush_waits_for_nobody_under_wal(wal, path):
    create(wal)
    reader = connect(path)
    reader.execute("BEGIN")
    one(reader, "SELECT count(*) FROM rollouts")
    writer_db = connect(path)
    append(wal, ID, user("x"))
    writer_db.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    assert one(wal, "SELECT rollout_flush()") == 1
    assert time.monotonic() - start < 2
    writer_db.execute("ROLLBACK")
    reader.execute("COMMIT")


@pytest.mark.skipif(not shutil.which("strace"), reason="no strace")
@pytest.mark.parametrize("mode, level, held", [
    ("WAL", "NORMAL", 0), ("WAL", "NORMAL", 1), ("WAL", "OFF", 0),
    ("DELETE", "NORMAL", 0), ("DELETE", "OFF", 0), ("TRUNCATE", "NORMAL", 0)])
def test_flush_syncs_what_was_written(path, tmp_path, mode, level, held):
    """Seen from below: after the last write to each file comes a sync of it,
    also when a reader holds the log back, where a checkpoint would sync
    nothing. With a journal that is deleted, its folder is synced as well."""
    script = f"""
import os, sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
db = connect({str(path)!r})
db.execute("PRAGMA journal_mode = {mode}")
one(db, "SELECT blackbox_install()")
one(db, "SELECT rollout_create(?)", {ID!r})
if {held}:
    reader = connect({str(path)!r})
    reader.execute("BEGIN")
    one(reader, "SELECT count(*) FROM rollouts")
db.execute("PRAGMA synchronous = {level}")
one(db, "SELECT rollout_append(?, ?)", {ID!r}, '[{{"type":"compacted","payload":1}}]')
os.write(2, b"BEFORE\\n")
one(db, "SELECT rollout_flush()")
os.write(2, b"AFTER\\n")
"""
    log = tmp_path / "strace"
    done = subprocess.run(
        ["strace", "-f", "-y", "-o", str(log), "-e",
         "trace=write,pwrite64,fsync,fdatasync,unlink,unlinkat,ftruncate",
         sys.executable, "-c", script])
    if done.returncode != 0:
        pytest.skip("strace cannot run here")
    unsynced = set()
    for text in log.read_text().splitlines():
        file = re.search(r"\((\d+)<([^>]*)>", text)
        gone = re.search(r'unlink(?:at)?\(.*?"([^"]*-journal)"', text)
        if "AFTER" in text:
            break
        if gone:
            unsynced.discard(gone.group(1))
            unsynced.add(os.path.dirname(gone.group(1)))
        elif file and file.group(2).startswith(str(tmp_path)):
            if "sync(" in text:
                unsynced.discard(file.group(2))
            elif not file.group(2).endswith("-shm"):
                unsynced.add(file.group(2))
        if "BEFORE" in text:
            before = set(unsynced)
    assert unsynced == set(), unsynced
    assert before, "nothing was left to sync: the test shows nothing"
