#!/usr/bin/env python3
"""released.py: makes the file of this version that every later version has to open (make released).

<version>.db.gz is a file with something of everything, and <version>.json.gz has what its users
read in it: queries with their rows. test_released.py opens those of all versions. A file that was
released is never made again; that of the version in ext/blackbox.h is, until its release."""
import gzip
import json
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from conftest import ROOT, connect, one, rows  # noqa: E402

VERSION = re.search(r'BLACKBOX_VERSION "(.*)"', (ROOT / "ext/blackbox.h").read_text())[1]
TALK = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
READ = [
    "SELECT id, event_id, agent_id, store_text(request_body), store_text(response_body), size_bytes,"
    " purpose, pinned, kill_switch_event_id, created_at, meta FROM event_payloads ORDER BY id",
    "SELECT agent_id, event_id, request_body, response_body, timestamp, size_bytes, seq, meta"
    " FROM ring ORDER BY agent_id, seq",
    "SELECT agent_id, given, rolled, cleared, saved, rows, bytes FROM ring_agents ORDER BY agent_id",
    "SELECT * FROM rec ORDER BY id",
    "SELECT n, at, domain, kind, subject, actor, reason, rows, bytes, detail FROM blackbox_log"
    " ORDER BY n",
    "SELECT * FROM payload_pins ORDER BY 1", "SELECT * FROM payload_unpins ORDER BY 1",
    "SELECT * FROM payload_verdicts ORDER BY 1", "SELECT * FROM payload_agents ORDER BY 1",
    "SELECT * FROM retention_holds ORDER BY 1",
    "SELECT * FROM rollouts ORDER BY id", "SELECT * FROM rollout_items ORDER BY 1, 2",
    "SELECT * FROM cache_items ORDER BY 1", "SELECT * FROM cache_sessions ORDER BY 1",
    "SELECT name, value FROM blackbox_settings ORDER BY name",
]


def words(n, seed=0):
    return " ".join(f"word{(i * 7919 + seed) % 9973}" for i in range(n))


def push(db, agent, n, first=0):
    """A conversation that grows; some of it is a blob, or has no answer."""
    text = words(120, len(agent))
    for i in range(first, first + n):
        text += f' "turn {i}" ' + words(30, i)
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp, meta)"
                   " VALUES(?, ?, ?, ?, ?, ?)",
                   (agent, f"{agent}{i}", text.encode() if i % 9 == 4 else text,
                    None if i % 7 == 3 else words(20, i), 1_700_000_000_000 + i, '{"status":200}'))


def record(db):
    """Something of everything."""
    one(db, "SELECT blackbox_install('main', 'all')")
    one(db, "SELECT rollout_search_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    for agent, n in (("a", 45), ("b", 12), ("stopped", 25)):
        push(db, agent, n)
    db.execute("DELETE FROM ring WHERE agent_id = 'a' AND seq = 40")
    one(db, "SELECT payload_kill_switch('ring', 'stopped', 'k1', 'ann', 'loops')")
    for i in range(40):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, "
                   "size_bytes, purpose) VALUES(?, 'a', ?, 'r', ?, 'archive')",
                   (f"e{i}", words(400), len(words(400)) + 1))
    one(db, "SELECT payload_save_evidence('k2', '[{\"eventId\":\"s\",\"agentId\":\"b\",\"requestBody\":\"rm\"}]')")
    one(db, "SELECT payload_unpin(id, 'bob', 'done') FROM event_payloads WHERE kill_switch_event_id = 'k2'")
    one(db, "SELECT payload_pack(30)")
    one(db, "SELECT retention_hold('event', 'e3', 'case', 'ann', 'why')")
    for i in range(9):
        db.execute("INSERT INTO rec(id, timestamp, action, pinned) VALUES(?, ?, ?, ?)",
                   (f"x{i}", i, json.dumps({"tool": "click", "at": i}), i == 3))
    one(db, "SELECT rollout_create(?, 'be brief', 900)", TALK)
    one(db, "SELECT rollout_append(?, ?)", TALK, json.dumps([
        {"type": "user", "message": {"role": "user", "content": "Where is the parcel?"}},
        {"type": "assistant", "message": {"role": "assistant", "content": "It is in Hamburg."}}]))
    db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES(?, 'user', '{\"x\":1}')", (TALK,))
    one(db, "SELECT cache_write(?, 'a7b3c9d2', 'f4e8g1h9', '[1,2]', 'two')", SESSION)
    one(db, "SELECT proof_head()")


def read(db):
    def plain(value):
        return {"hex": value.hex()} if isinstance(value, bytes) else value
    return [[sql, [list(map(plain, row)) for row in rows(db, sql)]] for sql in READ]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "made.db"
        db = connect(path)
        record(db)
        found = read(db)
        db.execute("VACUUM")
        db.close()
        for suffix, data in (("db", path.read_bytes()), ("json", json.dumps(found).encode())):
            (HERE / f"{VERSION}.{suffix}.gz").write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main()
