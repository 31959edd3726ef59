"""Holds on rings and evidence buffers: the module looks at them, and with
the first hold."""
import json
import shutil
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from holds_helpers import check, hold, release

RING = "it's a \"ring\""


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def push(db, agent, event, ring=RING):
    db.execute(f"INSERT INTO {quoted(ring)}(agent_id, event_id, request_body, timestamp) "
               "VALUES(?, ?, 'q', 1000)", (agent, event))


@pytest.fixture
def ring(db):
    """A ring of three rows for each of two agents."""
    db.execute(f"CREATE VIRTUAL TABLE {quoted(RING)} USING payload_ring(window=3)")
    for i in range(3):
        push(db, "a", f"a{i}")
        push(db, "b", f"b{i}")
    return db


def of(db, agent):
    return [r[0] for r in rows(db, f"SELECT event_id FROM {quoted(RING)} WHERE agent_id = ? "
                               "ORDER BY seq", agent)]


LOSSES = [
    "DELETE FROM {ring} WHERE agent_id = 'a'", "DELETE FROM {ring}",
    "SELECT payload_extract({text}, 'a')",
]
KEEPS = ["INSERT INTO {ring}({ring}, value) VALUES('window', 2)",
         "INSERT INTO {ring}({ring}, value) VALUES('max_bytes', 1)",
         "INSERT INTO {ring}(agent_id, event_id) VALUES('a', 'x'), ('a', 'y'), ('a', 'z')"]

def said(statement):
    def suffixed(suffix):
        return quoted(RING + suffix)
    return statement.format(ring=quoted(RING), slots=suffixed("_slots"),
                            agents=suffixed("_agents"),
                            text="'" + RING.replace("'", "''") + "'")


@pytest.mark.parametrize("kind, key", [("agent", "a"), ("event", "a0"), ("buffer", RING)])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_rows_of_a_ring_survive_every_statement(ring, kind, key, begin):
    hold(ring, kind, key)
    kept = of(ring, "a")
    if begin:
        ring.execute(begin)
    for loss in LOSSES:
        with pytest.raises(sqlite3.Error, match="HeldError"):
            ring.execute(said(loss)).fetchall()
        assert "a0" in of(ring, "a"), loss
    for statement in KEEPS:
        ring.execute(said(statement))
        assert "a0" in of(ring, "a"), statement
    if begin:
        ring.execute("ROLLBACK")
    assert "a0" in of(ring, "a") and kept == ["a0", "a1", "a2"]
    assert [row[2] for row in check(ring) if "beyond the window" not in row[2]
            and "max_bytes" not in row[2]] == []


@pytest.mark.parametrize("kind, key", [("agent", "a"), ("event", "a0"), ("buffer", RING)])
def test_a_push_goes_on_and_what_is_held_stays_beyond_the_window(ring, kind, key):
    hold(ring, kind, key, "case-9")
    for i in range(3, 8):
        push(ring, "a", f"a{i}")
    kept = ["a0"] if kind == "event" else ["a0", "a1", "a2", "a3", "a4"]
    assert of(ring, "a") == kept + ["a5", "a6", "a7"]
    assert rows(ring, f"SELECT seq FROM {quoted(RING)} WHERE agent_id = 'a' AND seq < 6"
                      " ORDER BY seq DESC") == [(int(e[1]) + 1,) for e in reversed(kept)]
    assert [row[2] for row in check(ring)] == [
        "holds keep exchanges beyond the window, or kept them until now"]
    for window in (5, 2):
        ring.execute(said("INSERT INTO {ring}({ring}, value) VALUES('window', %d)" % window))
        push(ring, "a", f"w{window}")
    assert of(ring, "a")[-2:] == ["w5", "w2"] and set(kept) < set(of(ring, "a"))
    assert one(ring, "SELECT sum(given - rolled - cleared - saved - rows) FROM "
               + quoted(RING + "_agents")) == 0
    assert one(ring, "SELECT payload_kill_switch(?, 'a', 'k')", RING) \
        == (3 if kind == "event" else 10)
    release(ring, kind, key, "case-9")
    for i in range(10):
        push(ring, "a", f"n{i}")
    assert of(ring, "a") == ["n8", "n9"]
    assert check(ring) == []


def test_a_hold_on_another_row_does_not_refuse_a_push(ring):
    hold(ring, "event", "a2")
    for event in ("a3", "a4"):
        push(ring, "a", event)
    assert of(ring, "a") == ["a2", "a3", "a4"]
    push(ring, "a", "a5")
    assert of(ring, "a") == ["a2", "a3", "a4", "a5"]
    assert one(ring, "SELECT payload_kill_switch(?, 'a', 'k')", RING) == 4
    assert of(ring, "a") == ["a2"]
    push(ring, "a", "a6")
    release(ring, "event", "a2")
    for _ in range(2):
        push(ring, "a", "a7")
    assert check(ring) == []
    assert of(ring, "a") == ["a6", "a7", "a7"]


def test_a_hold_counts_in_its_own_transaction(ring):
    ring.execute("BEGIN")
    push(ring, "a", "a3")
    ring.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason) "
                 "VALUES('buffer', lower(?), 'case-1', 'ann', 'asked')", (RING,))
    push(ring, "a", "a4")
    assert of(ring, "a") == ["a1", "a2", "a3", "a4"]
    ring.execute("ROLLBACK")
    push(ring, "a", "a4")
    assert of(ring, "a") == ["a1", "a2", "a4"]


def test_an_agent_that_comes_after_the_hold_is_held(ring):
    hold(ring, "agent", "late")
    for i in range(3):
        push(ring, "late", f"l{i}")
    push(ring, "late", "l3")
    assert of(ring, "late") == ["l0", "l1", "l2", "l3"]


def test_a_hold_that_has_ended_by_its_time_lets_a_push_through(ring, path):
    hold(ring, "agent", "a", until=4102444800000)
    ring.close()
    by_hand(path, "UPDATE retention__in_force SET until = 1000")
    db = connect(path)
    push(db, "a", "new")
    assert of(db, "a") == ["a1", "a2", "new"]


def test_a_hold_released_without_the_module_lets_a_push_through(ring, path):
    hold(ring, "agent", "a")
    hold(ring, "event", "a0")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE retention_holds SET released = 1, actor = 'x', reason = 'y' "
               "WHERE kind = 'agent'")
    push(ring, "a", "new")
    assert of(ring, "a") == ["a0", "a1", "a2", "new"]
    db.execute("UPDATE retention_holds SET released = 1, actor = 'x', reason = 'y'")
    push(ring, "a", "newer")
    assert of(ring, "a") == ["a2", "new", "newer"]
    assert {r[1] for r in check(ring)} <= {"blackbox__log"}  # no leaves yet


def test_a_kill_switch_saves_a_held_agent_and_leaves_its_rows(ring):
    hold(ring, "agent", "a")
    fire = "SELECT payload_kill_switch(?, ?, 'k')"
    assert one(ring, fire, RING, "a") == 3
    assert of(ring, "a") == ["a0", "a1", "a2"]
    assert one(ring, fire, RING, "a") == 0
    assert one(ring, fire, RING, "b") == 3
    assert of(ring, "b") == []
    assert check(ring) == []


def test_a_bound_is_for_what_no_hold_on_an_agent_keeps(db):
    db.execute(f"CREATE VIRTUAL TABLE {quoted(RING)} USING payload_ring(window=9, max_bytes=6)")
    for i in range(3):
        push(db, "a", f"a{i}")
    for i in range(3):
        push(db, "b", f"b{i}")
    hold(db, "agent", "a", "case-5")
    for i in range(3, 6):
        push(db, "c", f"c{i}")
    assert (of(db, "a"), of(db, "b")) == (["a0", "a1", "a2"], ["b0", "b1", "b2"])
    hold(db, "agent", "c", "case-5")
    for i in range(4):
        push(db, "d", f"d{i}")
    assert (of(db, "a"), of(db, "b"), of(db, "c"), of(db, "d")) == (
        ["a0", "a1", "a2"], ["b1", "b2"], ["c3", "c4", "c5"], ["d0", "d1", "d2", "d3"])
    assert rows(db, "SELECT 1 FROM blackbox_log WHERE kind = 'passed_over'") == []
    assert check(db) == []
    push(db, "a", "a3")
    assert [row[2] for row in check(db)] == [
        "holds keep exchanges of 7 bytes, more than max_bytes"]


def test_an_idle_agent_that_is_held_stays(db, path):
    db.execute(f"CREATE VIRTUAL TABLE {quoted(RING)} USING payload_ring(window=9, idle_days=1)")
    push(db, "a", "a0")
    push(db, "b", "b0")
    hold(db, "agent", "a")
    by_hand(path, f"UPDATE {quoted(RING + '_agents')} SET at = at - 864000000")
    push(db, "c", "c0")
    assert (of(db, "a"), of(db, "b"), of(db, "c")) == (["a0"], [], ["c0"])
    assert check(db) == []


@pytest.mark.parametrize("kind, key", [("agent", "a"), ("event", "a1"), ("buffer", RING)])
def test_a_ring_with_held_rows_cannot_be_dropped(ring, kind, key):
    hold(ring, kind, key)
    with pytest.raises(sqlite3.Error, match="HeldError|constraint"):
        ring.execute(said("DROP TABLE {ring}"))
    assert of(ring, "a") == ["a0", "a1", "a2"]
    release(ring, kind, key)
    ring.execute(said("DROP TABLE {ring}"))
    left = [r[0] for r in rows(ring, "SELECT name FROM sqlite_schema") if RING in r[0]]
    assert left == []


def test_a_ring_without_held_rows_can_be_dropped_and_renamed(ring):
    hold(ring, "agent", "other")
    ring.execute(said("ALTER TABLE {ring} RENAME TO \"new 'name'\""))
    assert check(ring) == []
    hold(ring, "agent", "a")
    with pytest.raises(sqlite3.Error, match="HeldError"):
        ring.execute("DELETE FROM \"new 'name'\" WHERE agent_id = 'a'")
    hold(ring, "buffer", "NEW 'NAME'")
    release(ring, "agent", "a")
    with pytest.raises(sqlite3.Error, match="HeldError: ring new 'name' cannot be renamed"):
        ring.execute("ALTER TABLE \"new 'name'\" RENAME TO other")
    ring.execute("CREATE VIRTUAL TABLE empty USING payload_ring")
    hold(ring, "buffer", "empty")
    with pytest.raises(sqlite3.Error, match="HeldError: empty is held by case-1 under this"):
        ring.execute("ALTER TABLE empty RENAME TO other")
    release(ring, "buffer", "empty")
    release(ring, "buffer", "new 'name'")
    ring.execute("DROP TABLE \"new 'name'\"")
    assert check(ring) == []


def test_a_hold_changes_nothing_in_the_schema_of_a_ring(ring):
    def objects():
        return rows(ring, "SELECT name, sql FROM sqlite_schema WHERE name GLOB ? || '*'", RING)
    before = objects()
    hold(ring, "agent", "a")
    push(ring, "b", "b3")
    assert objects() == before and len(before) == 4
    release(ring, "agent", "a")
    assert objects() == before


def test_a_ring_that_is_made_later_is_held(db):
    hold(db, "agent", "a")
    db.execute(f"CREATE VIRTUAL TABLE {quoted(RING)} USING payload_ring(window=2)")
    push(db, "a", "a0")
    push(db, "a", "a1")
    push(db, "a", "a2")
    assert of(db, "a") == ["a0", "a1", "a2"]


def test_a_hold_placed_without_the_module_keeps_a_ring(ring, path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason) "
               "VALUES('buffer', lower(?), 'case-1', 'ann', 'asked')", (RING,))
    push(ring, "a", "new")
    assert of(ring, "a") == ["a0", "a1", "a2", "new"]


def test_a_temporary_ring_is_not_reached(db):
    hold(db, "agent", "a")
    db.execute("CREATE VIRTUAL TABLE temp.fast USING payload_ring(window=1)")
    push(db, "a", "a0", "fast")
    push(db, "a", "a1", "fast")
    assert rows(db, "SELECT event_id FROM fast") == [("a1",)]


# ------------------------------------------------------------------------- evidence buffers

@pytest.fixture
def rec(db):
    db.execute("CREATE VIRTUAL TABLE \"my 'rec'\" USING evidence_buffer(max_size_bytes=2000)")
    for i in range(4):
        store(db, i)
    return db


def store(db, i):
    db.execute("INSERT INTO \"my 'rec'\"(id, timestamp, action, screenshot) VALUES(?, ?, ?, ?)",
               (f"x{i}", 1000 + i, json.dumps({"n": i}), b"s" * 200))


def test_a_hold_that_is_a_row_counts_at_once_and_changes_no_schema(rec, path):
    version = one(rec, "PRAGMA schema_version")
    by_hand(path, "INSERT INTO retention_holds(kind, key, owner, actor, reason) "
                  "VALUES('buffer', 'my ' || char(39) || 'rec' || char(39), 'c', 'ann', 'asked')")
    with pytest.raises(sqlite3.Error, match="HeldError"):
        rec.execute("DELETE FROM \"my 'rec'\"")
    assert one(rec, "PRAGMA schema_version") == version
    assert check(rec) == []


@pytest.mark.parametrize("loss", [
    "DELETE FROM {rec}", "DELETE FROM {rec} WHERE id = 'x1'", "UPDATE {rec} SET action = '{{}}'",
    "UPDATE {rec} SET screenshot = NULL", "UPDATE {rec} SET timestamp = 5",
    "REPLACE INTO {rec}(id, timestamp, action) VALUES('x1', 1, '{{}}')",
    "SELECT evidence_clear('my ''rec''')", "SELECT evidence_prune_screenshots('my ''rec''', 1)",
    "SELECT evidence_prune_for_approval('my ''rec''')", "DROP TABLE {rec}",
    "ALTER TABLE {rec} RENAME TO other",
    "INSERT INTO {rec}({rec}, value) VALUES('max_size_bytes', 1000)"])
def test_a_held_buffer_survives_every_statement(rec, loss):
    hold(rec, "buffer", "MY 'rec'")
    before = rows(rec, "SELECT * FROM \"my 'rec'\"")
    with pytest.raises(sqlite3.Error, match="HeldError|constraint"):
        rec.execute(loss.format(rec="\"my 'rec'\"")).fetchall()
    assert rows(rec, "SELECT * FROM \"my 'rec'\"") == before
    assert check(rec) == []


def test_a_held_buffer_grows_until_it_must_prune(rec):
    hold(rec, "buffer", "my 'rec'")
    store(rec, 4)
    with pytest.raises(sqlite3.IntegrityError, match="HeldError: a hold keeps this buffer"):
        for i in range(5, 9):
            store(rec, i)
    assert one(rec, "SELECT count(*) FROM \"my 'rec'\"") >= 5
    release(rec, "buffer", "my 'rec'")
    for i in range(5, 9):
        store(rec, i)
    rec.execute("DROP TABLE \"my 'rec'\"")
    assert check(rec) == []


def test_a_copy_of_a_file_is_held_as_well(ring, path, tmp_path):
    hold(ring, "agent", "a")
    ring.close()
    copy = tmp_path / "copy.db"
    shutil.copyfile(path, copy)
    db = connect(copy)
    push(db, "a", "new")
    assert of(db, "a") == ["a0", "a1", "a2", "new"]
