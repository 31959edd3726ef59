"""A process that is killed while it pushes and fires the kill switch."""
import random
import signal
import subprocess
import sys
import time

import pytest

from conftest import MODULE, connect, one, rows

WINDOW = 1000  # nothing rolls out, so a missing row is a loss

# Prints what was acknowledged: "p <seq>" and "k <seq>".
CHILD = f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
db.enable_load_extension(True)
db.load_extension({MODULE!r})
seq = db.execute("SELECT coalesce(max(given), 0) FROM ring_agents").fetchone()[0]
while True:
    seq += 1
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) "
               "VALUES('a', ?, ?)", (str(seq), "x" * (seq % 40 * 300) + str(seq)))
    print("p", seq, flush=True)
    if seq % 5 == 0:
        db.execute("SELECT payload_kill_switch('ring', 'a', ?)", (str(seq),)).fetchone()
        print("k", seq, flush=True)
"""


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_every_acknowledged_exchange_is_in_the_ring_or_in_the_evidence(path, mode):
    db = connect(path)
    one(db, f"PRAGMA journal_mode = {mode}")
    one(db, "SELECT blackbox_install('main', 'payload')")
    db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={WINDOW})")
    db.close()
    dice = random.Random(7)
    last = 0
    for _ in range(12):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)],
                                 stdout=subprocess.PIPE, text=True)
        first = child.stdout.readline()
        time.sleep(dice.random() * 0.15)
        child.send_signal(signal.SIGKILL)
        told = (first + child.stdout.read()).split("\n")
        child.wait()
        db = connect(path)
        there = [int(r[0]) for r in rows(db, "SELECT event_id FROM ring "
                                         "UNION ALL SELECT event_id FROM event_payloads")]
        acknowledged = [int(line[2:]) for line in told[:-1] if line.startswith("p ")]
        last = max([last, *acknowledged])
        given = one(db, "SELECT given FROM ring_agents")
        assert given in (last, last + 1)
        assert sorted(there) == list(range(1, given + 1))
        for event, body in rows(db, "SELECT event_id, request_body FROM ring UNION ALL "
                                "SELECT event_id, request_body FROM event_payloads"):
            assert body == "x" * (int(event) % 40 * 300) + event
        assert rows(db, "SELECT * FROM blackbox_check") == []
        assert one(db, "PRAGMA integrity_check") == "ok"
        last = given
        db.close()
    assert last > 12
