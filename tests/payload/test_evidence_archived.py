"""An archived exchange that is saved as evidence is stored once: its row becomes the evidence."""
import json
import sqlite3

import pytest

from conftest import connect, one, rows
from payload_helpers import push, quoted

KILL = "SELECT payload_kill_switch('ring', 'a', ?)"
ROW = "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'a', ?)"
SAVE = "SELECT payload_save_evidence(?, ?)"
ALL = ("SELECT id, purpose, pinned, kill_switch_event_id, created_ms "
       "FROM payload_rows ORDER BY id")
T = 1700000000000


def archive(db, id, event="e", agent="a", request="q", response="r", at=T, schema="main"):
    db.execute(
        f"INSERT INTO {quoted(schema)}.event_payloads(id, event_id, agent_id, "
        "request_body, response_body, purpose, created_at) VALUES(?, ?, ?, ?, ?, "
        "'archive', strftime('%Y-%m-%dT%H:%M:%fZ', ? / 1000.0, 'unixepoch'))",
        (id, event, agent, request, response, at))


def element(event="e", agent="a", request="q", response="r", at=T):
    return {"eventId": event, "agentId": agent, "requestBody": request,
            "responseBody": response, "timestamp": at}


@pytest.fixture(params=["", "BEGIN"])
def ring(db, request):
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute(request.param)
    yield db
    if db.in_transaction:
        db.execute("COMMIT")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("how", [KILL, ROW])
def test_the_row_becomes_the_evidence(ring, how):
    archive(ring, "mine", at=T + 300)
    archive(ring, "other agent", agent="b")
    push(ring, "a", "e", "q", "r", T)
    push(ring, "a", "new", "q", "r", T)
    result = ring.execute(how, ("k",)).fetchone()
    assert result == ((2,) if how == KILL else None)
    found = rows(ring, ALL)
    assert found[1:] == [("mine", "evidence", 1, "k", T),
                         ("other agent", "archive", 0, None, T)]
    assert found[0][1:] == ("evidence", 1, "k", T) and len(found[0][0]) == 36
    assert rows(ring, "SELECT kill_switch_event_id FROM payload_pins") == [("k",)] * 2
    assert rows(ring, "SELECT * FROM retention_log") == []
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        ring.execute("DELETE FROM event_payloads WHERE id = 'mine'")
    push(ring, "a", "e", "q", "r", T)  # the same once more adds nothing
    assert one(ring, KILL, "k") == 0
    assert len(rows(ring, ALL)) == 3


@pytest.mark.parametrize("change", [
    {"event": "E"}, {"agent": "A"}, {"request": "Q"}, {"request": None},
    {"request": b"q"}, {"response": None}, {"response": "r "},
    {"request": "qr", "response": ""}])
def test_an_exchange_that_differs_is_stored_beside_the_archived_row(ring, change):
    archive(ring, "kept", **change)
    push(ring, "a", "e", "q", "r", T)
    assert one(ring, KILL, "k") == 1
    assert ("kept", "archive", 0, None, T) in rows(ring, ALL)
    assert len(rows(ring, ALL)) == 2


def test_columns_with_another_collation_are_compared_byte_for_byte(path):
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute(
        "CREATE TABLE event_payloads(id TEXT PRIMARY KEY, "
        "event_id TEXT NOT NULL COLLATE NOCASE, agent_id TEXT NOT NULL COLLATE "
        "NOCASE, request_body TEXT COLLATE RTRIM, response_body TEXT, size_bytes "
        "INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL, pinned INTEGER NOT "
        "NULL DEFAULT 0, kill_switch_event_id TEXT, created_at TEXT NOT NULL, "
        "cost REAL)")
    plain.close()
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    for name, change in {"event": {"event": "E"}, "agent": {"agent": "A"},
                         "body": {"request": "q "}, "same": {}}.items():
        archive(db, name, **change)
    db.execute("UPDATE event_payloads SET cost = 1.5")
    push(db, "a", "e", "q", "r", T)
    assert one(db, KILL, "k") == 1
    assert rows(db, "SELECT id, cost FROM event_payloads WHERE purpose = 'evidence'") \
        == [("same", 1.5)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_of_equal_archived_rows_the_nearest_in_time_is_used_and_each_once(ring):
    for i, at in enumerate([T - 5000, T + 40, T - 30, T + 9000]):
        archive(ring, str(i), at=at)
    push(ring, "a", "e", "q", "r", T)
    assert one(ring, KILL, "k1") == 1
    evidence = "SELECT id FROM event_payloads WHERE kill_switch_event_id = ?"
    assert rows(ring, evidence, "k1") == [("2",)]
    for _ in range(2):
        push(ring, "a", "e", "q", "r", T)
    assert one(ring, KILL, "k2") == 2
    assert sorted(rows(ring, evidence, "k2")) == [("0",), ("1",)]
    assert one(ring, "SELECT count(*) FROM event_payloads") == 4


def test_fifty_exchanges_of_one_event_are_matched(ring):
    for i in range(50):
        push(ring, "a", "e", f"q{i % 3}", "r", T + i)
        archive(ring, f"p{i:02d}", request=f"q{i % 3}", at=T + i)
    assert one(ring, KILL, "k") == 50
    assert rows(ring, ALL) == [(f"p{i:02d}", "evidence", 1, "k", T + i)
                               for i in range(50)]


def test_rows_that_are_not_plain_archive_rows_are_not_used(ring):
    archive(ring, "pinned")
    archive(ring, "of a kill switch")
    archive(ring, "lost pin")
    ring.execute("UPDATE event_payloads SET pinned = 1 WHERE id = 'pinned'")
    ring.execute("UPDATE event_payloads SET kill_switch_event_id = 'k0' "
                 "WHERE id = 'of a kill switch'")
    ring.execute("DELETE FROM event_payloads WHERE id = 'lost pin'")
    push(ring, "a", "e", "q", "r", T)
    assert one(ring, KILL, "k") == 1
    assert one(ring, "SELECT count(*) FROM event_payloads WHERE id NOT IN "
               "('pinned', 'of a kill switch') AND purpose = 'evidence'") == 1


def test_payload_save_evidence_uses_the_archived_row(ring):
    archive(ring, "p1")
    archive(ring, "p2", event="e2", request='{"a":1}', response=None)
    given = json.dumps([element(), element("e2", request={"a": 1}, response=None),
                        element("e3")])
    assert one(ring, SAVE, "k", given) == 3
    assert one(ring, SAVE, "k", given) == 0
    found = {r[0]: r[1:4] for r in rows(ring, ALL)}
    assert found["p1"] == found["p2"] == ("evidence", 1, "k") and len(found) == 3


@pytest.mark.parametrize("schema", ["other", 'o"t\'h er'])
def test_an_archived_row_becomes_evidence_in_an_attached_schema(db, tmp_path, schema):
    q = quoted(schema)
    db.execute(f"ATTACH ? AS {q}", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install(?)", schema)
    db.execute(f"CREATE VIRTUAL TABLE {q}.ring USING payload_ring")
    archive(db, "p1")
    archive(db, "p2", schema=schema)
    push(db, "a", "e", "q", "r", T, ring=f"{q}.ring")
    assert one(db, KILL, "k") == 1
    assert rows(db, f"SELECT id, purpose FROM {q}.event_payloads") == [("p2", "evidence")]
    assert rows(db, "SELECT id, purpose FROM event_payloads") == [("p1", "archive")]


def test_evidence_is_stored_although_a_trigger_keeps_the_archived_row(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    archive(db, "p1")
    db.execute("CREATE TRIGGER mine BEFORE UPDATE ON event_payloads "
               "WHEN OLD.id = 'p1' BEGIN SELECT RAISE(IGNORE); END")
    push(db, "a", "e", "q", "r", T)
    assert one(db, KILL, "k") == 1  # the evidence is saved all the same
    assert one(db, "SELECT count(*) FROM event_payloads WHERE purpose = 'evidence' "
               "AND id <> 'p1'") == 1


def test_a_trigger_that_ignores_the_evidence_makes_the_kill_switch_fail(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    archive(db, "p1", event="unlike")
    db.execute("CREATE TRIGGER mine BEFORE INSERT ON event_payloads BEGIN UPDATE "
               "event_payloads SET pinned = 1; SELECT RAISE(IGNORE); END")
    push(db, "a", "e", "q", "r", T)
    with pytest.raises(sqlite3.OperationalError, match="only 0 of 1 exchanges"):
        one(db, KILL, "k")
    assert one(db, "SELECT count(*) FROM ring") == 1
    assert one(db, "SELECT pinned FROM event_payloads") == 0


def test_the_search_for_the_archived_row_is_bounded(db):
    """Measured in VM steps: 4,000 rows of the event do not cost more."""
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")

    def steps(n):
        db.execute("BEGIN")
        db.execute("DELETE FROM event_payloads")
        for i in range(n):
            archive(db, f"x{i}", request=f"q{i}", at=T + i)
        push(db, "a", "e", "unlike", "r", T - 1)
        count = 0

        def step():
            nonlocal count
            count += 1

        db.set_progress_handler(step, 1)
        one(db, KILL, "k")
        db.set_progress_handler(None, 0)
        db.execute("ROLLBACK")
        return count

    steps(1)  # the first statement of a connection may take more
    assert steps(4000) < steps(100) + 50
