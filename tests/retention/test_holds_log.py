"""The log has digests of the archive rows that a hold keeps: what is done to them behind the
guards is found. What may be done to them, and what is done after the hold, is not told."""
import sqlite3
import time

import pytest

from conftest import connect, one, protects, rows

pytestmark = pytest.mark.skipif(protects(), reason="this SQLite protects the tables of the log")
HOLD = "SELECT retention_hold(?, ?, 'case', 'Ann', 'a lawsuit', NULL, '{\"remember\":true}')"
RELEASE = "SELECT retention_release(?, ?, 'case', 'Ann', 'it is over')"
AS_ROW = ("INSERT INTO retention_holds(kind, key, owner, actor, reason) VALUES"
          "(?, ?, 'case', 'Ann', 'a lawsuit')")
ROW = ("INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body, purpose,"
       " created_at) VALUES(?, ?, ?, 'a question', 'an answer', ?,"
       " strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))")
NOTED = "SELECT coalesce(sum(rows), 0) FROM blackbox_log WHERE kind = 'held'"
FOUND = "SELECT problem FROM proof_verify() WHERE problem LIKE 'row % of event_payloads was %'"
KEYS = {"agent": "a", "event": "e1", "evidence": "h1", "kill_switch": "k"}


@pytest.fixture
def held(path):
    db = connect(path)
    db.execute("PRAGMA synchronous = OFF")
    one(db, "SELECT blackbox_install('main', 'payload,retention,store')")
    for number in 1, 2, 3:
        db.execute(ROW, (f"h{number}", f"e{number}", "a", "archive"))
    db.execute(ROW, ("other", "e9", "b", "archive"))
    yield db
    db.close()


def under_trigger(db, sql):
    """Temporary triggers take the hold away while a statement runs."""
    db.executescript(f"""
        CREATE TEMP TABLE saved AS SELECT * FROM retention__in_force;
        CREATE TEMP TRIGGER t1 BEFORE UPDATE ON main.event_payloads
        BEGIN DELETE FROM retention__in_force; END;
        CREATE TEMP TRIGGER t2 BEFORE DELETE ON main.event_payloads
        BEGIN DELETE FROM retention__in_force; END;
        {sql};
        DROP TRIGGER t1; DROP TRIGGER t2;
        INSERT INTO retention__in_force SELECT * FROM saved;
        DROP TABLE saved;""")


def without_holds(db, sql):
    db.executescript(f"""
        CREATE TEMP TABLE saved AS SELECT * FROM retention__in_force;
        DELETE FROM retention__in_force;
        {sql};
        INSERT INTO retention__in_force SELECT * FROM saved;
        DROP TABLE saved;""")


def told(db):
    one(db, "SELECT proof_head()")
    found = [problem for problem, in rows(db, FOUND)]
    checked = [problem for problem, in rows(db, "SELECT problem FROM blackbox_check")
               if "schema of payload had been damaged" not in problem]
    assert len(found) == len(checked), checked
    assert all(line.endswith(problem) for problem, line in zip(found, checked)), checked
    return " ".join(found)


WHOLE = {
    "changed": "UPDATE event_payloads SET response_body = 'nothing' WHERE id = 'h1'",
    "emptied": "UPDATE event_payloads SET request_body = NULL WHERE id = 'h1'",
    "with another type": "UPDATE event_payloads SET response_body = CAST('an answer' AS BLOB) "
                         "WHERE id = 'h1'",
    "dated back": "UPDATE event_payloads SET created_at = '2020-01-01T00:00:00.000Z' "
                  "WHERE id = 'h1'",
    "noted": "UPDATE event_payloads SET meta = '{}' WHERE id = 'h1'",
    "of somebody else": "UPDATE event_payloads SET agent_id = 'x', event_id = 'x' "
                        "WHERE id = 'h1'",
    "made evidence of another text": "UPDATE event_payloads SET response_body = 'nothing', "
                                     "purpose = 'evidence' WHERE id = 'h1'",
}
GONE = {
    "removed": "DELETE FROM event_payloads WHERE id = 'h1'",
}


@pytest.mark.parametrize("damage", [*WHOLE, *GONE])
@pytest.mark.parametrize("how", [under_trigger, without_holds])
def test_a_held_row_that_is_changed_behind_the_guards_is_found(held, how, damage):
    one(held, HOLD, "agent", "a")
    one(held, HOLD, "event", "e9")
    assert one(held, NOTED) == 4
    assert told(held) == ""
    how(held, WHOLE.get(damage) or GONE[damage])
    was = "was changed" if damage in WHOLE else "was removed"
    assert told(held) == (f"row h1 of event_payloads {was}, though a hold on agent:a keeps it: "
                          "this row of the log has its digest")


@pytest.mark.parametrize("kind", ["agent", "event", "evidence"])
@pytest.mark.parametrize("place", [HOLD, AS_ROW])
def test_every_kind_of_hold_on_the_archive_has_its_digests(held, path, kind, place):
    plain = sqlite3.connect(path, isolation_level=None)
    if place is HOLD:
        one(held, HOLD, kind, KEYS[kind])
    else:
        plain.execute(AS_ROW, (kind, KEYS[kind]))
        assert one(held, NOTED) == 0
        one(held, "SELECT proof_head()")
    assert one(held, NOTED) == (3 if kind == "agent" else 1)
    without_holds(held, WHOLE["changed"])
    assert "row h1 of event_payloads was changed" in told(held)


def test_evidence_that_was_unpinned_is_still_held(held):
    held.execute("UPDATE event_payloads SET purpose = 'evidence', kill_switch_event_id = 'k'"
                 " WHERE id = 'h1'")
    one(held, HOLD, "kill_switch", "k")
    one(held, "SELECT payload_unpin('h1', 'Ann', 'closed')")
    assert told(held) == ""
    without_holds(held, "DROP TRIGGER payload_guard; "
                  "UPDATE event_payloads SET created_at = '2020-01-01' WHERE id = 'h1'")
    one(held, "SELECT blackbox_install()")
    assert "row h1 of event_payloads was changed" in told(held)


def test_rows_that_come_later_have_digests_after_the_next_call(held, path):
    one(held, HOLD, "agent", "a")
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute(ROW, ("late", "e4", "a", "archive"))
    plain.execute(ROW, ("beside", "e4", "b", "archive"))
    assert one(held, NOTED) == 3
    one(held, "SELECT payload_cleanup()")
    assert one(held, NOTED) == 4
    one(held, "SELECT payload_cleanup()")
    assert one(held, NOTED) == 4
    without_holds(held, WHOLE["changed"].replace("h1", "late"))
    assert "row late of event_payloads was changed" in told(held)


def test_a_head_takes_in_a_row_that_came_later(held, path):
    one(held, HOLD, "agent", "a")
    noted = one(held, "SELECT proof_head()")
    assert one(held, "SELECT proof_head()") == noted
    held.execute(ROW, ("late", "e4", "a", "archive"))
    held.execute("PRAGMA query_only = ON")
    assert one(held, "SELECT proof_head()") == noted
    held.execute("PRAGMA query_only = OFF")
    other = connect(path, timeout=0)
    held.execute("BEGIN IMMEDIATE")
    for begin in "", "BEGIN":
        other.execute(begin)
        assert one(other, "SELECT proof_head()") == noted
    other.execute("COMMIT")
    held.execute("COMMIT")
    held.execute("CREATE TABLE notebook AS SELECT proof_head() AS head")
    assert one(held, "SELECT head FROM notebook") == noted and one(held, NOTED) == 3
    assert one(held, "SELECT proof_head()") != noted
    assert one(held, NOTED) == 4
    held.execute(ROW, ("row", "e4", "a", "archive"))
    held.execute("INSERT INTO main.blackbox_call VALUES('proof_head', '[]')")
    assert one(held, NOTED) == 5
    without_holds(held, WHOLE["changed"].replace("h1", "late"))
    assert "row late of event_payloads was changed" in told(held)


def test_what_a_hold_allows_is_not_told(held, path):
    held.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    one(held, HOLD, "agent", "a")
    text = "a long text of which the store has pieces " * 200
    held.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
                 " VALUES('long', 'e5', 'a', ?, 'archive')", (text,))
    one(held, "SELECT payload_pack()")
    assert one(held, "SELECT typeof(request_body) FROM event_payloads WHERE id = 'long'") == "blob"
    assert told(held) == "" and one(held, NOTED) == 4
    one(held, "SELECT payload_unpack()")
    assert told(held) == ""
    held.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body)"
                 " VALUES('a', 'e1', 'a question', 'an answer')")
    one(held, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert rows(held, "SELECT purpose FROM event_payloads WHERE event_id = 'e1' ORDER BY 1") == [
        ("archive",), ("evidence",)]
    held.execute("UPDATE event_payloads SET pinned = 1 WHERE id = 'h2'")
    assert told(held) == ""
    held.execute("VACUUM")
    assert told(held) == ""


def test_what_is_done_after_the_hold_is_not_told(held):
    one(held, HOLD, "agent", "a")
    one(held, RELEASE, "agent", "a")
    held.execute(WHOLE["changed"])
    assert told(held) == ""
    one(held, HOLD, "agent", "a")
    assert told(held) == "" and one(held, NOTED) == 6
    without_holds(held, WHOLE["dated back"])
    assert "row h1 of event_payloads was changed" in told(held)


def test_a_hold_whose_time_is_over_tells_nothing_and_the_next_one_begins_anew(held):
    until = int(time.time() * 1000) + 300
    one(held, "SELECT retention_hold('agent', 'a', 'case', 'Ann', 'a lawsuit', ?)", until)
    time.sleep(1.4)  # the guards look at seconds
    held.execute(WHOLE["changed"])
    assert told(held) == ""
    one(held, HOLD, "agent", "a")
    assert told(held) == "" and one(held, NOTED) == 6


def test_another_owner_and_a_longer_time_keep_the_digests(held):
    one(held, HOLD, "agent", "a")
    one(held, HOLD.replace("case", "other"), "agent", "a")
    one(held, RELEASE, "agent", "a")
    held.execute("UPDATE retention_holds SET until = NULL, actor = 'Ann', reason = 'longer'")
    assert one(held, NOTED) == 3
    without_holds(held, WHOLE["changed"])
    assert "row h1 of event_payloads was changed" in told(held)


def test_digests_of_a_large_hold_are_taken_in_steps(held):
    held.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 140) "
                 "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose) "
                 "SELECT 'e', 'a', printf('%.*c', 500000, 'x'), 'archive' FROM n")
    one(held, HOLD, "agent", "a")
    assert 128 <= one(held, NOTED) < 143
    for _ in range(10):
        one(held, "SELECT payload_cleanup()")
    assert one(held, NOTED) == 143
    assert told(held) == ""


def test_rows_with_lower_numbers_than_before_have_digests_as_well(held):
    """As a copy of the file by .dump may give them."""
    one(held, HOLD, "agent", "a")
    guard = one(held, "SELECT sql FROM sqlite_schema WHERE name = 'payload_guard'")
    held.execute("DROP TRIGGER payload_guard")
    held.execute("UPDATE event_payloads SET rowid = rowid + 1000")
    one(held, "SELECT payload_cleanup()")
    held.execute("UPDATE event_payloads SET rowid = rowid - 900")
    held.execute(guard)
    held.execute(ROW, ("late", "e4", "a", "archive"))
    one(held, "SELECT payload_cleanup()")
    assert one(held, "SELECT count(*) FROM blackbox_log WHERE kind = 'held' "
               "AND detail LIKE '%late%'") == 1
    assert told(held) == ""
