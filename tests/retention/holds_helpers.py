"""What the tests of holds share: one thing of every kind, and ways to lose it."""
from conftest import one, rows

ID = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
FORK = "019d0000-1111-7222-8333-444455556666"
SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
OTHER = "conv_b3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
LATER = 4102444800000  # 2100
USER = '{"type":"event_msg","payload":{"type":"user_message","message":"hello"}}'


def fill(db, db_name="main"):
    """Rows of every domain that a hold can keep, and others beside them."""
    s = '"' + db_name.replace('"', '""') + '".'
    # old rows stay until a test asks for a clean-up
    db.execute(f"UPDATE {s}blackbox_settings SET value = 1000000000000 "
               "WHERE name = 'payload.history_until'")
    db.execute(f"INSERT INTO {s}event_payloads(id, event_id, agent_id, request_body, "
               "purpose, kill_switch_event_id, created_at) VALUES "
               "('p1', 'e1', 'a', 'q1', 'archive', NULL, '2001-01-01 00:00:00'),"
               "('p2', 'e2', 'a', 'q2', 'archive', NULL, '2001-01-02 00:00:00'),"
               "('p3', 'e3', 'b', 'q3', 'archive', 'k1', '2001-01-03 00:00:00')")
    db.execute(f"INSERT INTO {s}event_payloads(id, event_id, agent_id, request_body, "
               "purpose, created_at) VALUES "
               "('v1', 'e4', 'c', 'q4', 'evidence', '2001-01-01 00:00:00')")
    db.execute(f"INSERT INTO {s}payload_unpins(payload_id, actor, reason) "
               "VALUES('v1', 'ann', 'looked at')")
    db.execute(f"INSERT INTO {s}rollouts(id, created, expires_at) VALUES('{ID}', 1000, 2000)")
    for text in ("one", "two"):
        db.execute(f"INSERT INTO {s}rollout_items(rollout, timestamp, type, payload) "
                   f"VALUES('{ID}', 1500, 'event_msg', "
                   f"""'{{"type":"user_message","message":"{text}"}}')""")
    for session, turn in ((SESSION, "f4e8g1h1"), (SESSION, "f4e8g1h2"), (OTHER, "f4e8g1h1")):
        db.execute(f"INSERT INTO {s}cache_items(session_id, task_id, turn_id, timestamp, "
                   f"description, data) VALUES('{session}', 'a7b3c9d2', '{turn}', 1000, "
                   "'what it is', '[1]')")


def hold(db, kind, key, owner="case-1", until=None):
    """A hold, also on what comes later."""
    return one(db, "SELECT retention_hold(?, ?, ?, 'ann', 'asked by court', ?, "
               "'{\"remember\":true}')", kind, key, owner, until)


def release(db, kind, key, owner="case-1"):
    return one(db, "SELECT retention_release(?, ?, ?, 'bob', 'case closed')", kind, key, owner)


def check(db):
    """What is wrong when the log has its leaves."""
    one(db, "SELECT proof_head()")
    return rows(db, "SELECT * FROM blackbox_check")


def contents(db):
    """Everything that a user can lose."""
    return {table: rows(db, f"SELECT * FROM {table} ORDER BY 1, 2") for table in (
        "event_payloads", "rollout_items", "cache_items", "evidence__overflow")}


# What each kind of hold keeps: the key, a query of it, and statements that would lose it.
LOSSES = {
    "agent": ("a", "SELECT id, request_body FROM event_payloads WHERE agent_id = 'a'", [
        "DELETE FROM event_payloads WHERE id = 'p1'",
        "DELETE FROM event_payloads",
        "UPDATE event_payloads SET request_body = 'x'",
        "UPDATE event_payloads SET agent_id = 'z' WHERE id = 'p2'",
        "UPDATE event_payloads SET id = 'z' WHERE id = 'p2'",
        "UPDATE OR REPLACE event_payloads SET id = 'p1' WHERE id = 'p3'",
        "UPDATE OR REPLACE event_payloads SET rowid = (SELECT rowid FROM event_payloads "
        "WHERE id = 'p1') WHERE id = 'p3'",
        "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
        "VALUES('p1', 'e1', 'z', 'archive')",
        "REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) SELECT rowid, "
        "'z', 'e1', 'z', 'archive' FROM event_payloads WHERE id = 'p1'",
        "INSERT INTO event_payloads(id, event_id, agent_id, purpose) VALUES('p1', 'e1', 'z', "
        "'archive') ON CONFLICT(id) DO UPDATE SET request_body = 'x'"]),
    "event": ("e2", "SELECT id, request_body FROM event_payloads WHERE event_id = 'e2'", [
        "DELETE FROM event_payloads WHERE id = 'p2'",
        "UPDATE event_payloads SET event_id = 'z' WHERE id = 'p2'"]),
    "kill_switch": ("k1", "SELECT id, request_body FROM event_payloads "
                    "WHERE kill_switch_event_id = 'k1'", [
        "DELETE FROM event_payloads WHERE id = 'p3'",
        "UPDATE event_payloads SET kill_switch_event_id = NULL"]),
    "evidence": ("v1", "SELECT id, request_body FROM event_payloads WHERE id = 'v1'", [
        "DELETE FROM event_payloads WHERE id = 'v1'",
        "UPDATE event_payloads SET purpose = 'archive' WHERE id = 'v1'",
        "UPDATE event_payloads SET created_at = '2030-01-01 00:00:00' WHERE id = 'v1'"]),
    "rollout": (ID, f"SELECT * FROM rollout_items WHERE rollout = '{ID}'", [
        f"DELETE FROM rollouts WHERE id = '{ID}'",
        f"REPLACE INTO rollouts(id) VALUES('{ID}')",
        """UPDATE rollout_items SET payload = '{"type":"user_message","message":"x"}'
            WHERE sequence = 1""",
        "DELETE FROM rollout_items"]),
    "session": (SESSION, f"SELECT * FROM cache_items WHERE session_id = '{SESSION}'", [
        "DELETE FROM cache_items", "DELETE FROM cache_sessions",
        f"DELETE FROM cache_sessions WHERE session_id = '{SESSION}'",
        "UPDATE cache_items SET data = '[2]' WHERE turn_id = 'f4e8g1h1'",
        "UPDATE cache_items SET description = 'other'",
        "UPDATE OR REPLACE cache_items SET turn_id = 'f4e8g1h2' WHERE turn_id = 'f4e8g1h1'",
        "REPLACE INTO cache_items(session_id, task_id, turn_id, description, data) "
        f"VALUES('{SESSION}', 'a7b3c9d2', 'f4e8g1h1', 'x', '[3]')",
        "INSERT INTO cache_items(session_id, task_id, turn_id, description, data) "
        f"VALUES('{SESSION}', 'a7b3c9d2', 'f4e8g1h1', 'x', '[3]') "
        "ON CONFLICT(storage_key) DO UPDATE SET data = excluded.data"]),
}
