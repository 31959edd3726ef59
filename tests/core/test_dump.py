"""What .dump of the sqlite3 shell writes restores a file that is the same."""
import pytest

from conftest import MODULE, connect, one, problems, rows, shell


def everything(db):
    """The rows of every ordinary table."""
    return {table: sorted(map(repr, rows(db, f'SELECT * FROM "{table}"'))) for table, in rows(
        db, "SELECT name FROM sqlite_schema WHERE type = 'table' "
        "AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite_%'")}


def restored(path, copy, *load):
    assert shell(*load, copy, stdin=shell(*load, path, ".dump")) == ""
    return connect(copy)


@pytest.fixture
def recorded(tmp_path):
    db = connect(tmp_path / "a.db")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO rec(id, timestamp, action, pinned) VALUES('x', 1, '{}', 1)")
    for i in range(30):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose) "
                   "VALUES(?, 'a', ?, 'archive')", (f"e{i}", "body " * 500 + str(i)))
        db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', ?, 'q')",
                   (f"e{i}",))
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    one(db, "SELECT rollout_search_install()")
    one(db, "SELECT rollout_create('5973b6c0-94b8-487b-a530-2aeb6098ae0e')")
    db.execute("INSERT INTO cache_items(session_id, task_id, turn_id, description, data) "
               "VALUES('conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n', 'a7b3c9d2', 'f4e8g1h9', 'x', "
               "'[]')")
    one(db, "SELECT retention_hold('event', 'e3', 'case', 'ann', 'why')")
    return db


MODULE_TOO = ("-cmd", f".load {MODULE}")


@pytest.mark.parametrize("load, packed, bound", [
    ((), False, 0), ((), False, 100), ((), True, 100), (MODULE_TOO, True, 100)])
def test_a_dump_restores_a_file_that_is_the_same(recorded, tmp_path, load, packed,
                                                     bound):
    if packed:
        one(recorded, "SELECT payload_pack()")
    bytes = one(recorded, "SELECT bytes FROM payload__state")
    recorded.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.max_bytes'",
                     (bound and bytes + bound,))
    one(recorded, "SELECT proof_head()")
    before = everything(recorded)
    db = restored(tmp_path / "a.db", tmp_path / "b.db", *load)
    assert everything(db) == before and problems(db) == []
    for i in range(40):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose) "
                   "VALUES('n', 'n', ?, 'archive')", ("n" * 2000,))
    stored = one(db, "SELECT bytes FROM payload__state")
    assert stored <= bytes + bound if bound else stored > bytes
    one(db, "SELECT proof_head()")
    assert problems(db) == []


def test_a_dump_cuts_a_body_at_a_nul_and_check_names_it(recorded, tmp_path):
    recorded.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
                     "VALUES('nul', 'e', 'a', ?, 'archive')", ("be\0fore",))
    db = restored(tmp_path / "a.db", tmp_path / "b.db")
    assert one(db, "SELECT request_body FROM event_payloads WHERE id = 'nul'") == "be"
    assert [r for r in rows(db, "SELECT problem FROM blackbox_check") if "size" in r[0]] != []
