"""The tables behind a ring were changed by hand: every call returns a result or an error, never
a crash, and blackbox_check() reports it."""
import itertools
import os
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from payload_helpers import push

FULL = bool(os.environ.get("BLACKBOX_FULL"))
VALUES = [None, -1, 0, 1, 7, 2 ** 31, 2 ** 46, 2 ** 62, -(2 ** 63), 2 ** 63 - 1,
          0.5, 1e300, "", "7", "text", "x" * 5000, b"", b"\x00\xff"]
COLUMNS = {
    "ring_agents": ["agent_id", "no", "window", "kept", "given", "rolled", "cleared",
                    "saved", "rows", "bytes", "at", "page"],
    "ring_slots": ["id", "seq", "timestamp", "size_bytes", "agent_id", "event_id",
                   "request_body", "response_body"],
    "ring_texts": ["id", "body"],
}
OPERATIONS = [
    "SELECT * FROM ring",
    "SELECT seq FROM ring WHERE agent_id = 'a' ORDER BY seq DESC",
    "SELECT agent_id, count(*), sum(size_bytes) FROM ring GROUP BY agent_id",
    "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')",
    "INSERT INTO ring(agent_id, event_id) VALUES('b', 'e'), ('c', 'e')",
    "INSERT INTO ring(ring, value) VALUES('window', 2)",
    "INSERT INTO ring(ring, value) VALUES('window', 9)",
    "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')",
    "SELECT payload_extract('ring', 'b')",
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'b', 'k')",
    "DELETE FROM ring WHERE agent_id = 'a'",
    "DELETE FROM ring",
    "SELECT * FROM blackbox_check",
    "ALTER TABLE ring RENAME TO r2",
    "ALTER TABLE r2 RENAME TO ring",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("damage") / "ring.db"
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    for agent, i in itertools.product("ab", range(5)):
        push(db, agent, f"e{i}")
    db.close()
    return path.read_bytes()


@pytest.fixture
def ring(made, path):
    path.write_bytes(made)
    db = connect(path)
    db.execute("PRAGMA synchronous=OFF")
    yield db
    db.close()


def problems(db):
    return rows(db, "SELECT object, problem FROM blackbox_check")


def survives(db):
    """Every operation returns a result or an error. Returns the operations that failed."""
    failed = []
    for sql in OPERATIONS:
        try:
            db.execute(sql).fetchall()
        except sqlite3.Error as e:
            failed.append((sql, e))
    return failed


@pytest.mark.parametrize("table, column, values", [
    (table, column, VALUES if FULL else VALUES[i % 18::18] + [2 ** 62])
    for table, columns in COLUMNS.items() for i, column in enumerate(columns)])
@pytest.mark.parametrize("where", ["", "WHERE oid % 2"] if FULL else [""])
def test_any_value_in_any_column_is_an_error_and_not_a_crash(made, table, column, values, where):
    if table != "ring_slots":
        where = where.replace("oid % 2", "'a' IN (agent_id)" if "agents" in table
                              else "k = 'window'")
    for value in values:
        plain, db = sqlite3.connect(":memory:", isolation_level=None), connect()
        plain.deserialize(made)
        try:
            plain.execute(f"UPDATE OR IGNORE {table} SET {column} = ? {where}", (value,))
        except sqlite3.IntegrityError:
            continue  # the schema refused it
        db.deserialize(plain.serialize())
        for sql, error in survives(db):
            assert not isinstance(error, sqlite3.InterfaceError), (sql, value)
            assert "out of memory" not in str(error), (sql, value)
        db.close()


@pytest.mark.parametrize(
    "damage, where",
    [("UPDATE ring_agents SET window = 0", "ring_agents"),
     ("UPDATE ring_agents SET window = 'three'", "ring_agents"),
     ("UPDATE ring_agents SET no = -1 WHERE agent_id = 'a'", "ring_agents"),
     ("UPDATE ring_agents SET kept = 4", "ring_agents"),
     ("UPDATE ring_agents SET kept = NULL", "ring_agents"),
     ("UPDATE ring_agents SET given = given + 1", "ring_agents"),
     ("UPDATE ring_agents SET rolled = rolled + 1", "ring_agents"),
     ("UPDATE ring_agents SET rows = 1", "ring_agents"),
     ("UPDATE ring_agents SET bytes = 0", "ring_agents"),
     ("UPDATE ring_agents SET given = NULL", "ring_agents"),
     ("UPDATE ring_agents SET rows = NULL", "ring_agents"),
     ("DELETE FROM ring_agents WHERE agent_id = 'a'", "ring_slots"),
     ("UPDATE ring_slots SET agent_id = 'b'", "ring_slots"),
     ("UPDATE ring_slots SET agent_id = NULL", "ring_slots"),
     ("UPDATE ring_slots SET id = id + 100", "ring_slots"),
     ("UPDATE ring_slots SET seq = seq + 1", "ring"),
     ("UPDATE ring_slots SET seq = NULL", "ring"),
     ("UPDATE ring_slots SET size_bytes = 0", "ring_agents"),
     ("DELETE FROM ring_texts WHERE id < 0", "ring_texts"),
     ("UPDATE ring_texts SET body = 0 WHERE id = -1", "ring"),
     ("UPDATE ring_texts SET body = 'x' WHERE id = -1", "ring"),
     ("DROP TABLE ring_slots", "ring"), ("DROP TABLE ring_agents", "ring"),
     ("DROP TABLE ring_texts", "ring")])
def test_check_finds_every_damage_of_a_ring(ring, path, damage, where):
    assert problems(ring) == []
    by_hand(path, damage)
    found = problems(ring)
    assert any(where in row[0] for row in found), found


@pytest.mark.parametrize(
    "damage, table",
    [("UPDATE ring_agents SET window = 0", "ring_agents"),
     ("UPDATE ring_agents SET window = 2 << 40", "ring_agents"),
     ("UPDATE ring_agents SET kept = 7", "ring_agents"),
     ("UPDATE ring_agents SET no = -5 WHERE agent_id = 'a'", "ring_agents"),
     ("UPDATE ring_agents SET given = -5", "ring_agents"),
     ("UPDATE ring_agents SET given = 9223372036854775807", "ring_agents"),
     ("UPDATE ring_agents SET no = 9223372036854775807 WHERE agent_id = 'a'",
      "ring_agents"),
     ("DELETE FROM ring_texts WHERE id < 0", "ring_texts"),
     ("DROP TABLE ring_slots", "ring_slots"), ("DROP TABLE ring_agents", "ring_agents"),
     ("DROP TABLE ring_texts", "ring_texts")])
def test_a_push_into_a_damaged_ring_names_the_table_and_changes_nothing(ring, path, damage, table):
    by_hand(path, damage)
    plain = sqlite3.connect(path, isolation_level=None)
    there = rows(plain, "SELECT name FROM sqlite_schema WHERE type = 'table' AND "
                 "name LIKE 'ring#_%' ESCAPE '#'")
    before = [rows(plain, f"SELECT * FROM {name}") for (name,) in there]
    for begin in ("", "BEGIN"):
        ring.execute(begin)
        with pytest.raises(sqlite3.DatabaseError, match=table):
            push(ring, "a")
        if begin and ring.in_transaction:
            ring.execute("COMMIT")
    assert [rows(plain, f"SELECT * FROM {name}") for (name,) in there] == before
    plain.close()


def test_a_number_that_was_set_too_high_lets_no_new_agent_in(ring, path):
    by_hand(path, "UPDATE ring_agents SET no = 9223372036854775807 "
                  "WHERE agent_id = 'a'")
    with pytest.raises(sqlite3.DatabaseError, match="table ring_agents"):
        push(ring, "new")
    assert rows(ring, "SELECT * FROM ring_agents WHERE agent_id = 'new'") == []
    push(ring, "b")


def test_damage_has_the_code_for_it(ring, path):
    by_hand(path, "UPDATE ring_agents SET window = 0")
    for sql in ("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')",
                "SELECT * FROM ring", "SELECT payload_extract('ring', 'a')"):
        with pytest.raises(sqlite3.DatabaseError,
                           match="CorruptedDataError: table ring_agents") as caught:
            ring.execute(sql).fetchall()
        assert caught.value.sqlite_errorname.startswith("SQLITE_CORRUPT")


def test_a_damaged_ring_can_be_dropped(ring, path):
    by_hand(path, "UPDATE ring_agents SET window = 0; DROP TABLE ring_slots")
    ring.execute("DROP TABLE ring")
    assert rows(ring, "SELECT name FROM sqlite_schema WHERE name LIKE 'ring%'") == []
    assert problems(ring) == []


def test_check_goes_on_past_what_it_cannot_check(ring, path):
    ring.execute("CREATE VIRTUAL TABLE second USING payload_ring")
    push(ring, "a", ring="second")
    by_hand(path, "DROP TABLE ring_agents; UPDATE second_agents SET rows = 9")
    ring.execute("DROP TRIGGER payload_delete_guard")
    found = [row[0] for row in problems(ring)]
    assert "ring" in found and "second_agents" in found
    assert "payload_delete_guard" in found


def test_check_names_a_slot_without_event(ring, path):
    by_hand(path, "UPDATE ring_slots SET event_id = NULL WHERE seq = 4 AND agent_id = 'a'")
    assert len(rows(ring, "SELECT * FROM blackbox_check")) == 1
