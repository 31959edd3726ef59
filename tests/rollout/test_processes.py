"""Several processes, killed processes, and what is on disk after a flush."""
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from rollout_helpers import ID, append, create, texts, user, well
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
    one(db, "SELECT blackbox_install('main', 'all')")
    yield db
    well(db)
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


def whole_calls(items, name, size):
    """The calls of one writer, each complete and in order."""
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
    # the items of one call are contiguous
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
    """One writer is killed at a random moment, again and again, while another continues. Every
    call that returned is stored completely, and so are all calls of the other writer. At
    most one more call of the killed writer is stored."""
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
    """The first call of a connection waits too, although it must find its schema first."""
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
def test_a_process_killed_in_a_transaction_leaves_nothing_of_it(path, mode):
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {mode}")
    one(db, "SELECT blackbox_install('main', 'all')")
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

def test_flush_and_shutdown_are_refused_inside_a_transaction(db):
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
    one(db, "SELECT blackbox_install('main', 'all')")
    assert one(db, "SELECT rollout_flush()") == 0


def test_flush_leaves_settings_alone(path):
    for mode in ("WAL", "DELETE"):
        db = connect(path)
        db.execute(f"PRAGMA journal_mode = {mode}")
        one(db, "SELECT blackbox_install('main', 'all')")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA user_version = 77")
        assert one(db, "SELECT rollout_flush()") == 1
        assert one(db, "PRAGMA synchronous") == 1
        assert one(db, "PRAGMA user_version") == 77
        assert one(db, "PRAGMA journal_mode") == mode.lower()
        db.close()


def test_flush_works_as_a_row_of_blackbox_call(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    call = "INSERT INTO blackbox_call VALUES ('rollout_flush', NULL)"
    with pytest.raises(sqlite3.Error, match="Flush failed: the statement that calls"):
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
    """Observed at the level of files: after the last write to each file it is synced, also when
    a reader holds the log back, where a checkpoint would sync nothing. With a journal that
    is deleted, its folder is synced too."""
    script = f"""
import os, sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
db = connect({str(path)!r})
db.execute("PRAGMA journal_mode = {mode}")
one(db, "SELECT blackbox_install('main', 'all')")
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


def test_flush_is_refused_in_a_statement_that_writes(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    create(db)
    db.execute("CREATE TABLE t(x)")
    db.execute("INSERT INTO t VALUES (0)")
    for sql in ("UPDATE t SET x = rollout_flush()", "INSERT INTO t SELECT rollout_flush()"):
        with pytest.raises(sqlite3.Error, match="is a transaction itself"):
            db.execute(sql)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("UPDATE t SET x = rollout_flush()")
    assert rows(db, "SELECT x FROM t") == [(1,)]


def test_flush_leaves_the_user_version_to_others(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    other = sqlite3.connect(path, isolation_level=None)
    for version in range(1, 6):
        other.execute(f"PRAGMA user_version = {version}")
        one(db, "SELECT rollout_flush()")
        assert one(other, "PRAGMA user_version") == version


def test_shutdown_of_a_file_that_cannot_be_written(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    create(db)
    db.close()
    db = connect(f"file:{path}?mode=ro", uri=True)
    assert one(db, "SELECT rollout_shutdown(?)", ID) == 1


def test_an_error_at_the_end_of_the_savepoint_has_the_prefix(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    create(db)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM rollout__heads").fetchall()
    db.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.OperationalError, match="^WriteError: Write failed: database is locked"):
        db.execute("SELECT rollout_delete(?)", (ID,))
    assert one(db, "SELECT count(*) FROM rollouts") == 1


RACE = """
import sqlite3, sys
sys.path.insert(0, sys.argv[2])
from conftest import connect, one
from rollout_helpers import ID, append, create, user
db = connect(sys.argv[1], timeout=10)
print("on", flush=True)
while True:
    create(db)
    append(db, ID, *[user(f"m{i}") for i in range(20)])
    one(db, "SELECT rollout_delete(?)", ID)
"""


def test_a_read_shows_a_conversation_as_one_writer_left_it(wal, path):
    writer = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.path.insert(0, %r);" % str(ROOT / "tests") + RACE,
         str(path), str(ROOT / "tests" / "rollout")], stdout=subprocess.PIPE)
    try:
        writer.stdout.readline()
        seen = set()
        until = time.monotonic() + 20
        while time.monotonic() < until and len(seen) < 2 or time.monotonic() < until - 18:
            history = json.loads(one(wal, "SELECT rollout_history(?)", ID))
            seen.add(history["type"])
            if history["type"] == "resumed":
                assert len(history["payload"]["history"]) in (1, 21)
            try:
                assert len(one(wal, "SELECT rollout_export(?)", ID).splitlines()) in (1, 21)
            except sqlite3.Error as e:
                assert "Rollout not found" in str(e)
        assert seen == {"new", "resumed"}
    finally:
        writer.kill()
        writer.wait()


@pytest.mark.parametrize("call", ["rollout_search_install", "rollout_search_remove"])
def test_installing_and_removing_the_search_wait_for_another_writer(wal, path, call):
    if not one(wal, "SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'"):
        pytest.skip("no FTS5")
    create(wal)
    one(wal, "SELECT rollout_search_install()")
    done = []

    def run():
        db = connect(path, timeout=30)
        done.append(one(db, f"SELECT {call}()"))
        db.close()

    wal.execute("BEGIN IMMEDIATE")
    append(wal, ID, user("x"))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(0.3)
    assert done == []
    wal.execute("COMMIT")
    thread.join()
    assert done == [1]
