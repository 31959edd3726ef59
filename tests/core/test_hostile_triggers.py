"""Triggers of others that keep rows out: evidence is saved whole, or not at all."""
import sqlite3

import pytest

from conftest import connect, one, rows

IGNORE = ("CREATE TRIGGER mine {} ON event_payloads WHEN NEW.event_id = 'e2' "
          "BEGIN SELECT RAISE(IGNORE); END")


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("when", ["BEFORE INSERT", "AFTER INSERT"])
@pytest.mark.parametrize("call", [
    """SELECT payload_save_evidence('k', '[{"eventId":"e1","agentId":"a"},
       {"eventId":"e2","agentId":"a"},{"eventId":"e3","agentId":"a"}]')""",
    "SELECT payload_kill_switch('ring', 'a', 'k')"])
def test_evidence_is_saved_whole_or_not_at_all(path, begin, when, call):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e1'),('a','e2'),('a','e3')")
    db.execute(IGNORE.format(when))
    db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match="MisuseError.* only 2 of 3"):
        db.execute(call)
    assert one(db, "SELECT count(*) FROM event_payloads") == 0
    assert one(db, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 3
    db.execute("DROP TRIGGER mine")
    assert one(db, call) == 3
    assert one(db, "SELECT count(*) FROM payload_pins") == 3


def test_a_trigger_that_keeps_a_queued_row_out_is_seen_in_what_a_flush_returns(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    db.execute("INSERT INTO blackbox_settings(name, value)"
               " VALUES('payload.queue_mode', 'memory')")
    one(db, "SELECT payload_queue('e0', 'a', 'q', 'r')")
    one(db, "SELECT payload_flush()")
    for event in ("e1", "e2", "e3"):
        one(db, "SELECT payload_queue(?, 'a', 'q', 'r')", event)
    db.execute(IGNORE.format("BEFORE INSERT"))
    assert one(db, "SELECT payload_flush()") == 2
    assert rows(db, "SELECT event_id FROM event_payloads ORDER BY event_id") == [
        ("e0",), ("e1",), ("e3",)]
    assert one(db, "SELECT rows FROM payload_waiting") == 0
