"""Every call that changes data waits for another writer, as busy_timeout says.

SQLite waits only in a transaction that has not read anything yet. So the first statement of
every call must be a write, also in the first call of a connection, and inside BEGIN."""
import shutil
import sqlite3
import threading

import pytest

from conftest import connect, one

ID = "conv_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
ROLLOUT = "11111111-1111-4111-8111-111111111111"
OTHER = "22222222-2222-4222-8222-222222222222"
CALLS = {
    "blackbox_install": [],
    "payload_cleanup": [],
    "payload_clear_archive": [],
    "payload_extract": ["ring", "a"],
    "payload_kill_switch": ["ring", "a", "k"],
    "payload_save_evidence": ["k", '[{"eventId":"e","agentId":"a"}]'],
    "payload_unpin": ["p", "me", "why"],
    "cache_cleanup_orphans": [],
    "cache_cleanup_outdated": [],
    "cache_clear_session": [ID],
    "cache_delete": [f"{ID}_task0001_turn0001"],
    "cache_update": [f"{ID}_task0001_turn0001", "2", "d"],
    "cache_use_preset": ["recycle"],
    "cache_write": [ID, "task0001", "turn0002", "1", "d"],
    "evidence_clear": ["rec"],
    "evidence_prune": ["rec"],
    "evidence_prune_for_approval": ["rec"],
    "evidence_prune_screenshots": ["rec", 1],
    "rollout_append": [ROLLOUT, '{"type":"compacted","payload":{}}'],
    "rollout_archive": [ROLLOUT],
    "rollout_cleanup_expired": [],
    "rollout_create": [OTHER],
    "rollout_delete": [ROLLOUT],
    "rollout_fork": [ROLLOUT, 0],
    "rollout_import": ['{"type":"session_meta","payload":{"id":"%s"}}' % OTHER],
    "rollout_resume": [ROLLOUT],
    "rollout_shutdown": [ROLLOUT],
}


ROWS = [
    "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e2')",
    "INSERT INTO rec(id, action) VALUES('i2', '{}')",
    "INSERT INTO rollout_log(rollout_id, type, payload) "
    f"VALUES('{ROLLOUT}', 'compacted', '{{}}')",
    "INSERT INTO blackbox_call(command) VALUES('payload_cleanup')",
]
STATEMENTS = {
    name: (f"SELECT {name}({', '.join('?' * len(given))})", given)
    for name, given in CALLS.items()
} | {row.split("(")[0]: (row, []) for row in ROWS}
# refused inside a transaction
ALONE = ["rollout_shutdown"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A file with something to change for each call."""
    path = tmp_path_factory.mktemp("waiting") / "test.db"
    db = connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=OFF")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("DROP VIEW payload_rows")  # for blackbox_install()
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    db.execute("INSERT INTO rec(id, action) VALUES('i', '{}')")
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('p', 'e', 'a', 'evidence')")
    one(db, "SELECT cache_write(?, 'task0001', 'turn0001', '1', 'd')", ID)
    one(db, "SELECT rollout_create(?)", ROLLOUT)
    db.close()
    return path


@pytest.mark.parametrize(
    "name, begin",
    [(name, "") for name in STATEMENTS]
    + [(name, "BEGIN") for name in STATEMENTS if name not in ALONE],
)
def test_the_first_call_of_a_connection_waits_for_another_writer(filled, path, name, begin):
    shutil.copy(filled, path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    db = connect(path, timeout=30)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.05, other.execute, ["COMMIT"])
    release.start()
    try:
        db.execute(begin)
        db.execute(*STATEMENTS[name]).fetchall()
    finally:
        release.join()
        db.close()
        other.close()
