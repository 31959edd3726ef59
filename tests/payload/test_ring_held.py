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
    assert len(noted(held)) == 3  # each digest once
    assert problems(held) == []


def test_a_held_exchange_that_was_changed_is_found(held, path):
    db = change(held, path, "UPDATE ring_slots SET request_body = 'q' WHERE event_id = 'e2'")
    assert problems(db) == [("exchange 2 of agent a is held and was changed: its digest is not "
                             "that in the log",)]


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
    held.execute("ALTER TABLE ring RENAME TO tape")
    held.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    held.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e9', 'w')")
    assert noted(held)[-1] == ("ring/1", "a", "e9")
    one(held, "SELECT proof_head()")
    assert rows(held, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("before", [0, 500])
def test_a_bound_below_what_is_held_takes_the_rest(held, begin, before):
    held.execute("INSERT INTO ring(ring, value) VALUES('max_bytes', ?)", (before,))
    held.execute(begin)
    held.execute("CREATE TABLE other(x)")
    held.execute("INSERT INTO ring(ring, value) VALUES('max_bytes', 1)")
    assert held.in_transaction == bool(begin)
    assert rows(held, "SELECT event_id FROM ring") == [("e1",), ("e2",)]
    held.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('b', 'e6', 'more')")
    assert rows(held, "SELECT event_id FROM ring") == [("e1",), ("e2",), ("e6",)]
    assert problems(held) == [("holds keep exchanges of 2 bytes, more than max_bytes",)]
