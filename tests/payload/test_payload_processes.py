"""Several processes and connections on one file: nothing lost, no gap."""
import collections
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from conftest import MODULE, connect, one, rows

FULL = bool(os.environ.get("BLACKBOX_FULL"))
WORK = 400 if FULL else 40
PRELUDE = f"""
import sqlite3, sys
path, me, work = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, isolation_level=None, timeout=60)
db.execute("PRAGMA synchronous=OFF")
db.enable_load_extension(True)
db.load_extension({MODULE!r})
sys.stdin.readline()
"""
PUSH = """
for i in range(work):
    for agent in ("shared", "own " + me):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, timestamp) "
                   "VALUES(?,?,?,?)", (agent, f"{me} {i}", "x" * (i % 50 * 100), i))
"""
PUSH_IN_TRANSACTIONS = """
for i in range(0, work, 10):
    db.execute("BEGIN IMMEDIATE")
    for j in range(i, i + 10):
        for agent in ("shared", "own " + me):
            db.execute("INSERT INTO ring(agent_id, event_id) VALUES(?,?)",
                       (agent, f"{me} {j}"))
    db.execute("COMMIT" if i % 20 == 0 else "ROLLBACK")
"""
KILL = """
for i in range(work):
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('shared', ?)",
               (f"{me} {i}",))
    if i % 7 == int(me):
        db.execute("SELECT payload_kill_switch('ring', 'shared', ?)", (me,)).fetchall()
"""
QUEUE = """
for i in range(work):
    db.execute("SELECT payload_queue(?, 'a', 'q', 'r')", (f"{me} {i}",)).fetchall()
db.close()
"""
SAVE = """
for i in range(5):
    db.execute("SELECT payload_save_evidence('k', json_array(json_object('eventId', "
               "?, 'agentId', 'a', 'timestamp', 1)))", (f"e {i}",)).fetchall()
"""
INSTALL = """
print(db.execute("SELECT blackbox_install()").fetchone()[0])
"""


def run(path, body, n=4, work=WORK):
    """Runs the same body in n processes that start together."""
    started = [subprocess.Popen(
        [sys.executable, "-c", PRELUDE + body, str(path), str(i), str(work)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True) for i in range(n)]
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=300) for process in started]
    assert [e[1] for e in ended] == [""] * n
    return [e[0] for e in ended]


@pytest.fixture(params=["delete", "wal"] + ["truncate", "persist"] * FULL)
def ring(db, request):
    db.execute(f"PRAGMA journal_mode={request.param}")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=10)")
    return db


def counters(db):
    return {r[0]: r[1:] for r in rows(
        db, "SELECT agent_id, given, rolled, cleared, saved, rows FROM ring_agents")}


def test_pushes_of_several_processes(ring, path):
    run(path, PUSH)
    assert counters(ring) == {
        "shared": (4 * WORK, 4 * WORK - 10, 0, 0, 10),
        **{f"own {i}": (WORK, WORK - 10, 0, 0, 10) for i in range(4)}}
    assert [r[0] for r in rows(ring, "SELECT seq FROM ring WHERE agent_id='shared' "
                               "ORDER BY seq")] \
        == list(range(4 * WORK - 9, 4 * WORK + 1))
    for i in range(4):
        assert rows(ring, "SELECT event_id, seq FROM ring WHERE agent_id = ? "
                    "ORDER BY seq", f"own {i}") \
            == [(f"{i} {j}", j + 1) for j in range(WORK - 10, WORK)]
    last = collections.defaultdict(int)  # each process's pushes keep their order
    for (event,) in rows(ring, "SELECT event_id FROM ring WHERE agent_id='shared' "
                         "ORDER BY seq"):
        me, i = event.split()
        assert int(i) >= last[me]
        last[me] = int(i)
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_transactions_of_several_processes(ring, path):
    run(path, PUSH_IN_TRANSACTIONS)
    done = len(range(0, WORK, 20)) * 10
    assert counters(ring) == {
        "shared": (4 * done, 4 * done - 10, 0, 0, 10),
        **{f"own {i}": (done, done - 10, 0, 0, 10) for i in range(4)}}
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_kill_switches_while_others_push(ring, path):
    run(path, KILL)
    given, rolled, cleared, saved, left = counters(ring)["shared"]
    assert given == 4 * WORK == rolled + saved + left and cleared == 0
    evidence = rows(ring, "SELECT kill_switch_event_id, event_id FROM event_payloads")
    assert len(evidence) == len(set(evidence)) == saved
    still = {r[0] for r in rows(ring, "SELECT event_id FROM ring")}
    assert not still & {e[1] for e in evidence} and len(still) == left
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_queues_of_several_processes(ring, path):
    run(path, QUEUE)
    stored = [r[0] for r in rows(ring, "SELECT event_id FROM event_payloads "
                                 "ORDER BY rowid")]
    assert sorted(stored) == sorted(f"{p} {i}" for p in range(4) for i in range(WORK))
    for process in "0123":
        mine = [int(e.split()[1]) for e in stored if e.startswith(process + " ")]
        assert mine == sorted(mine)


def test_the_same_evidence_saved_by_several_processes_is_there_once(ring, path):
    run(path, SAVE)
    assert sorted(r[0] for r in rows(ring, "SELECT event_id FROM event_payloads")) \
        == [f"e {i}" for i in range(5)]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_processes_that_install_together(path, mode):
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA journal_mode={mode}")
        db.execute("CREATE TABLE t(x)")
    db.close()
    assert len(set(run(path, INSTALL))) == 1
    db = connect(path)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT count(*) FROM blackbox_domains WHERE domain='payload'") == 1


def test_threads_with_a_connection_each(ring, path):
    problems = []

    def work(me):
        try:
            db = connect(path, timeout=60)
            db.execute("PRAGMA synchronous=OFF")
            for i in range(WORK):
                db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', ?)",
                           (f"{me} {i}",))
                one(db, "SELECT payload_queue(?, 'a', 'q', 'r')", f"{me} {i}")
            db.close()
        except Exception as e:  # noqa: BLE001  shown by the assertion below
            problems.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert counters(ring)["a"] == (4 * WORK, 4 * WORK - 10, 0, 0, 10)
    assert one(ring, "SELECT count(*) FROM event_payloads") == 4 * WORK


@pytest.mark.parametrize("ring", ["wal"], indirect=True)
def test_a_reader_keeps_its_snapshot(ring, path):
    other = connect(path)
    for i in range(5):
        ring.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', ?)", (i,))
    other.execute("BEGIN")
    before = rows(other, "SELECT * FROM ring")
    for i in range(20):
        ring.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', ?)", (i,))
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    assert one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')") == 2
    assert rows(other, "SELECT * FROM ring") == before
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'late')")
    other.execute("COMMIT")
    assert rows(other, "SELECT * FROM ring") == []
    other.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'late')")
    assert rows(ring, "SELECT event_id, seq FROM ring") == [("late", 26)]
