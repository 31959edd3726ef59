"""A hold, and each push under it, writes digests of the held exchanges into the log."""
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows

pytestmark = pytest.mark.all_domains


@pytest.fixture
def held(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES"
               " ('a', 'e1', 'x'), ('a', 'e2', 'y'), ('b', 'e3', 'z')")
    one(db, "SELECT retention_hold('agent', 'a', 'case 7', 'ann', 'asked')")
    return db


def noted(db):
    return rows(db, "SELECT subject, agent_id, event_id FROM blackbox_log"
                    " WHERE kind = 'held' ORDER BY n")


def problems(db):
    return rows(db, "SELECT problem FROM blackbox_check WHERE object = 'ring'")


def change(db, path, sql):
    db.close()
    by_hand(path, sql)
    return connect(path)


def test_a_hold_and_a_push_under_it_note_what_is_held(held):
    assert noted(held) == [("ring/1", "a", "e1"), ("ring/2", "a", "e2")]
    held.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES"
                 " ('a', 'e4', 'w'), ('b', 'e5', 'v')")
    assert noted(held)[2:] == [("ring/3", "a", "e4")]
    one(held, "SELECT retention_hold('event', 'e2', 'case 8', 'ann', 'asked')")
    assert noted(held)[3:] == [("ring/2", "a", "e2")]  # what the new hold keeps
    assert problems(held) == []


# What somebody does to a held exchange, and what is found.
DAMAGES = {
    "changed": ("UPDATE ring_slots SET request_body = 'q' WHERE event_id = 'e2'", "changed"),
    "response without a digest":
        ("UPDATE ring_slots SET response_body = 'r' WHERE event_id = 'e2'", "changed"),
    "newest removed": (
        "DELETE FROM ring_slots WHERE event_id = 'e2';"
        "UPDATE ring_agents SET given = 1, rows = 1, bytes = 1 WHERE agent_id = 'a'", "removed"),
    "oldest rolled": (
        "DELETE FROM ring_slots WHERE event_id = 'e1';"
        "UPDATE ring_agents SET rolled = 1, rows = 1, bytes = 1 WHERE agent_id = 'a'", "removed"),
    "all removed": (
        "DELETE FROM ring_slots WHERE agent_id = 'a'; DELETE FROM ring_agents WHERE agent_id = 'a'",
        "removed"),
    "another agent's": (
        "UPDATE ring_slots SET agent_id = 'c' WHERE agent_id = 'a';"
        "UPDATE ring_agents SET agent_id = 'c' WHERE agent_id = 'a'", "removed"),
    "exchanged": (
        "UPDATE ring_slots SET event_id = 'x' WHERE event_id = 'e1';"
        "UPDATE ring_slots SET event_id = 'e1', request_body = 'x' WHERE event_id = 'e2';"
        "UPDATE ring_slots SET event_id = 'e2', request_body = 'y' WHERE event_id = 'x'",
        "changed"),
    "the ring": ("DROP TABLE ring_slots; DROP TABLE ring_agents", "removed"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_held_exchange_that_was_changed_or_removed_is_found(held, path, damage):
    sql, word = DAMAGES[damage]
    noted_head = one(held, "SELECT proof_head()")
    db = change(held, path, sql)
    one(db, "SELECT proof_head()")
    for told in (rows(db, "SELECT problem FROM blackbox_check WHERE object = 'blackbox__log'"),
                 rows(db, "SELECT problem FROM proof_verify")):
        assert any(f"of ring ring was {word}, though a hold on agent:a" in row[0] for row in told)
    assert rows(db, "SELECT * FROM proof_verify(?)", noted_head) == []  # of what came before


def test_a_digest_that_was_taken_anew_hides_no_change(held, path):
    db = change(held, path, "UPDATE ring_slots SET request_body = 'q' WHERE event_id = 'e2'")
    one(db, "SELECT retention_hold('event', 'e2', 'case 8', 'eve', 'asked')")
    assert [row[0].split(":")[0] for row in rows(db, "SELECT problem FROM proof_verify")] == [
        "exchange 2 of agent a of ring ring was changed, though a hold on agent"]


def test_what_is_held_may_be_completed_and_parked_and_released(held, path):
    for event in "e2", "e1":
        held.execute("INSERT INTO ring(ring, agent_id, event_id, response_body, meta)"
                     " VALUES('complete', 'a', ?, 'late', '{}')", (event,))
    for i in range(12):
        held.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', ?)", (f"f{i}",))
    held.execute("INSERT INTO ring(ring, value) VALUES('window', 3)")
    one(held, "SELECT payload_kill_switch('ring', 'a', 'k')")
    one(held, "SELECT retention_hold('agent', 'a', 'case 7', 'ann', 'again')")
    one(held, "SELECT proof_head()")
    assert one(held, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 14
    assert rows(held, "SELECT problem FROM blackbox_check WHERE object = 'blackbox__log'") == []
    one(held, "SELECT retention_release('agent', 'a', 'case 7', 'ann', 'closed')")
    held.execute("DELETE FROM ring WHERE agent_id = 'a'")
    assert rows(held, "SELECT * FROM blackbox_check") == []
    one(held, "SELECT retention_hold('agent', 'a', 'case 7', 'ann', 'again')")
    assert rows(held, "SELECT * FROM blackbox_check") == []


def test_a_ring_with_held_exchanges_keeps_its_name(held):
    with pytest.raises(sqlite3.Error, match="HeldError: ring ring cannot be renamed"):
        held.execute("ALTER TABLE ring RENAME TO tape")
    one(held, "SELECT retention_release('agent', 'a', 'case 7', 'ann', 'closed')")
    held.execute("ALTER TABLE ring RENAME TO tape")
    assert rows(held, "SELECT * FROM blackbox_check") == []


def test_an_exchange_that_is_not_held_is_not_looked_at(held, path):
    db = change(held, path, "UPDATE ring_slots SET request_body = 'q' WHERE event_id = 'e3'")
    assert problems(db) == []


def test_a_push_goes_on_when_its_digest_cannot_be_written(held):
    held.execute("CREATE TRIGGER mine BEFORE INSERT ON blackbox__log WHEN NEW.kind = 'held'"
                 " BEGIN SELECT RAISE(ABORT, 'no'); END")
    for begin, end in ("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT"):
        held.execute(begin)
        held.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e9', 'w')")
        held.execute(end)
    assert one(held, "SELECT count(*) FROM ring WHERE event_id = 'e9'") == 2


def test_the_first_push_of_an_agent_is_noted_in_a_ring_that_takes_the_name_of_another(held):
    held.execute("DELETE FROM ring WHERE agent_id = 'b'")
    held.execute("CREATE VIRTUAL TABLE tape USING payload_ring(window=5)")
    held.execute("ALTER TABLE tape RENAME TO other")
    held.execute("CREATE VIRTUAL TABLE tape USING payload_ring(window=5)")
    held.execute("INSERT INTO tape(agent_id, event_id, request_body) VALUES('a', 'e9', 'w')")
    assert noted(held)[-1] == ("tape/1", "a", "e9")
    one(held, "SELECT proof_head()")
    assert rows(held, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("before", [0, 500])
def test_a_bound_below_what_is_held_is_for_the_rest(held, begin, before):
    held.execute("INSERT INTO ring(ring, value) VALUES('max_bytes', ?)", (before,))
    held.execute(begin)
    held.execute("CREATE TABLE other(x)")
    held.execute("INSERT INTO ring(ring, value) VALUES('max_bytes', 1)")
    assert held.in_transaction == bool(begin)
    assert rows(held, "SELECT event_id FROM ring") == [("e1",), ("e2",), ("e3",)]
    held.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('b', 'e6', 'more')")
    assert rows(held, "SELECT event_id FROM ring") == [("e1",), ("e2",), ("e6",)]
    assert problems(held) == [("holds keep exchanges of 2 bytes, more than max_bytes",)]


def test_what_holds_on_agents_keep_leaves_max_bytes_to_the_others(held):
    held.execute("INSERT INTO ring(ring, value) VALUES('max_bytes', 40)")
    one(held, "SELECT retention_hold('agent', 'a', 'case 8', 'ann', 'asked again')")
    push = "INSERT INTO ring(agent_id, event_id, request_body) VALUES(?, ?, ?)"
    for i in range(9):
        held.execute(push, ("a", f"h{i}", "x" * 100))
        held.execute(push, (f"o{i % 4}", f"n{i}", "y" * 10))
    assert one(held, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 11
    assert rows(held, "SELECT event_id FROM ring WHERE agent_id <> 'a' ORDER BY event_id") == [
        ("n4",), ("n6",), ("n7",), ("n8",)]  # that of the agent that pushed longest ago goes
    assert rows(held, "SELECT kind FROM blackbox_log WHERE kind = 'passed_over'") == []
    assert ("holds keep exchanges of 902 bytes, more than max_bytes",) in problems(held)
    for owner in "case 7", "case 8":
        one(held, "SELECT retention_release('agent', 'a', ?, 'ann', 'done')", owner)
    for i in range(9):
        held.execute(push, ("o1", f"m{i}", "y" * 10))
    assert one(held, "SELECT sum(size_bytes) FROM ring") <= 40
