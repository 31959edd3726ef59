"""The kill switch: all of an agent's rows become evidence, or all stay."""
import json
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from payload_helpers import push, quoted

CALL = "SELECT payload_kill_switch('ring', ?, ?)"
ROW = "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', ?, ?)"
EVIDENCE = ("SELECT event_id, agent_id, request_body, response_body, size_bytes, "
            "pinned, kill_switch_event_id, created_at FROM event_payloads "
            "WHERE purpose = 'evidence' ORDER BY rowid")


def fill(db, n=3, agent="a", ring="ring"):
    for i in range(n):
        push(db, agent, f"e{i}", "é" * i, None, 1700000000000 + i, ring=ring)


def snapshot(db, ring="ring"):
    return (rows(db, f"SELECT rowid, * FROM {ring}"),
            rows(db, f"SELECT * FROM {ring}_agents"))


@pytest.fixture(params=["main", "temp"])
def ring(db, request):
    db.execute("PRAGMA synchronous=OFF")
    db.execute(f"CREATE VIRTUAL TABLE {request.param}.ring USING payload_ring")
    return db


@pytest.mark.parametrize("how", [CALL, ROW])
def test_rows_become_pinned_evidence_oldest_first(ring, how):
    fill(ring)
    fill(ring, 2, "other")
    result = ring.execute(how, ("a", "k")).fetchone()
    assert result == ((3,) if how == CALL else None)
    assert rows(ring, EVIDENCE) == [
        (f"e{i}", "a", "é" * i, None, 2 * i, 1, "k", f"2023-11-14T22:13:20.00{i}Z")
        for i in range(3)]
    assert rows(ring, "SELECT agent_id, seq FROM ring") == [("other", 1), ("other", 2)]
    assert rows(ring, "SELECT agent_id, given, saved, rows, bytes FROM ring_agents") \
        == [("a", 3, 3, 0, 0), ("other", 2, 0, 2, 2)]
    assert all(len(r[0]) == 36 for r in rows(ring, "SELECT id FROM event_payloads"))
    for statement in ("DELETE FROM event_payloads",
                      "UPDATE event_payloads SET request_body = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            ring.execute(statement)
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_order_is_that_of_seq_when_the_ring_has_gone_round(ring):
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 4)")
    fill(ring, 10)
    assert one(ring, CALL, "a", "k") == 4
    assert [r[0] for r in rows(ring, EVIDENCE)] == ["e6", "e7", "e8", "e9"]


@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_second_kill_switch_adds_nothing_twice_also_after_new_pushes(ring, how):
    fill(ring)
    ring.execute(how, ("a", "k"))
    ring.execute(how, ("a", "k"))
    assert one(ring, CALL, "a", "k") == 0
    assert len(rows(ring, EVIDENCE)) == 3
    fill(ring)  # the same exchanges once more
    push(ring, "a", "new")
    ring.execute(how, ("a", "k"))
    assert [r[0] for r in rows(ring, EVIDENCE)] == ["e0", "e1", "e2", "new"]
    assert one(ring, "SELECT count(*) FROM ring") == 0
    assert rows(ring, "SELECT given, saved FROM ring_agents") == [(7, 7)]
    fill(ring)
    assert one(ring, CALL, "a", "another") == 3


def test_exchanges_that_differ_in_any_field_are_all_saved(ring):
    base = dict(agent="a", event="e", request="q", response="r", timestamp=5)
    push(ring, **base)
    assert one(ring, CALL, "a", "k") == 1
    for i, change in enumerate([{"event": "E"}, {"request": "Q"}, {"request": None},
                                {"request": b"q"}, {"response": None},
                                {"timestamp": 6}, {"agent": "A"}]):
        changed = {**base, **change}
        for expected in (1, 0):
            push(ring, **changed)
            assert one(ring, CALL, changed["agent"], "k") == expected


def test_an_agent_without_rows_saves_none(ring):
    push(ring, "nobody")
    ring.execute("DELETE FROM ring")
    assert one(ring, CALL, "nobody", "k") == 0
    ring.execute(ROW, ("nobody", "k"))
    assert rows(ring, "SELECT rows FROM ring_agents") == [(0,)]
    assert rows(ring, EVIDENCE) == []


def test_the_kill_switch_works_though_the_archive_is_off(ring):
    for value in (0, 1):
        ring.execute("INSERT OR REPLACE INTO main.blackbox_settings(name, value) "
                     "VALUES('payload.enabled', ?)", (value,))
        fill(ring)
        assert one(ring, CALL, "a", f"k{value}") == 3


def test_the_kill_switch_saves_a_window_of_10000(ring):
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 10000)")
    ring.execute("WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < "
                 "10500) INSERT INTO ring(agent_id, event_id, request_body, "
                 "timestamp) SELECT 'a', i, i, i FROM n")
    assert one(ring, CALL, "a", "k") == 10000
    assert rows(ring, "SELECT count(*), sum(request_body), min(CAST(event_id AS INT)) "
                "FROM event_payloads") == [(10000, sum(range(501, 10501)), 501)]
    assert one(ring, "SELECT count(*) FROM ring") == 0


def test_large_bodies_are_byte_identical(ring):
    bodies = [bytes(range(256)) * 4000, "\0é🤖" * 70000, "x" * 2_000_000, b"", ""]
    for i, body in enumerate(bodies):
        push(ring, "a", f"e{i}", body, body, i)
    one(ring, CALL, "a", "k")
    assert [r[:2] for r in rows(ring, "SELECT request_body, response_body "
                                "FROM event_payloads ORDER BY event_id")] \
        == [(b, b) for b in bodies]


# ---- all of it or nothing


def test_rollback_takes_it_back(ring):
    fill(ring)
    before = snapshot(ring)
    for how in (CALL, ROW):
        ring.execute("BEGIN")
        ring.execute(how, ("a", "k")).fetchall()
        assert one(ring, "SELECT count(*) FROM event_payloads") == 3
        ring.execute("ROLLBACK")
        assert snapshot(ring) == before and rows(ring, EVIDENCE) == []
        ring.execute("SAVEPOINT s")
        ring.execute(how, ("a", "k")).fetchall()
        ring.execute("ROLLBACK TO s")
        assert snapshot(ring) == before and rows(ring, EVIDENCE) == []
        ring.execute("RELEASE s")
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def refuse(db):
    """Evidence of event e2 cannot be written."""
    db.execute("CREATE TRIGGER main.refuse BEFORE INSERT ON event_payloads "
               "WHEN NEW.event_id = 'e2' BEGIN SELECT RAISE(ABORT, 'no e2'); END")


def full(db):
    db.execute("CREATE TABLE main.filler(x)")
    pages = one(db, "PRAGMA main.page_count")
    db.execute(f"PRAGMA main.max_page_count={pages}")


def release(db):
    db.execute("DROP TRIGGER IF EXISTS main.refuse")
    db.execute("PRAGMA main.max_page_count=1000000")


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("begin", ["", "BEGIN", "SAVEPOINT s"])
@pytest.mark.parametrize("obstacle, message", [(refuse, "no e2"), (full, "full")])
def test_evidence_that_cannot_be_written_leaves_the_ring(ring, how, begin, obstacle,
                                                         message):
    for i in range(5):
        push(ring, "a", f"e{i}", "q" * 9000, "r", i)
    before = snapshot(ring)
    obstacle(ring)
    ring.execute(begin)
    if begin:
        push(ring, "b", ring="ring") if obstacle is refuse else None
        before = snapshot(ring)
    with pytest.raises(sqlite3.Error, match=message):
        ring.execute(how, ("a", "k"))
    assert snapshot(ring) == before
    assert rows(ring, EVIDENCE) == []
    if ring.in_transaction:
        ring.execute("COMMIT" if begin == "BEGIN" else "RELEASE s")
    assert snapshot(ring) == before
    release(ring)
    ring.execute(how, ("a", "k"))
    assert [r[0] for r in rows(ring, EVIDENCE)] == [f"e{i}" for i in range(5)]
    assert one(ring, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 0
    assert rows(ring, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("begin", ["", "BEGIN", "SAVEPOINT s"])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_locked_archive_leaves_the_ring(ring, path, how, begin, mode):
    ring.execute(f"PRAGMA main.journal_mode={mode}")
    ring.execute("PRAGMA busy_timeout=0")
    fill(ring)
    before = snapshot(ring)
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    ring.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match="locked") as caught:
        ring.execute(how, ("a", "k"))
    assert caught.value.sqlite_errorname == "SQLITE_BUSY"
    if begin:
        ring.execute("ROLLBACK" if begin == "BEGIN" else "RELEASE s")
    other.execute("COMMIT")
    assert snapshot(ring) == before and rows(ring, EVIDENCE) == []
    ring.execute(how, ("a", "k"))
    assert len(rows(ring, EVIDENCE)) == 3


def test_a_ring_that_cannot_be_emptied_saves_nothing(ring):
    """The second step fails, and the evidence is rolled back with it: for a row inside BEGIN,
    with the whole transaction."""
    fill(ring)
    schema = "temp" if rows(ring, "SELECT 1 FROM temp.sqlite_schema") else "main"
    ring.execute(f"CREATE TRIGGER {schema}.stuck BEFORE DELETE ON ring_slots BEGIN "
                 "SELECT RAISE(ABORT, 'stuck'); END")
    before = snapshot(ring)
    for begin in ("", "BEGIN"):
        ring.execute(begin)
        with pytest.raises(sqlite3.IntegrityError, match="stuck"):
            ring.execute(CALL, ("a", "k"))
        assert snapshot(ring) == before and rows(ring, EVIDENCE) == []
    ring.execute("COMMIT")
    for begin in ("", "BEGIN"):
        ring.execute(begin)
        with pytest.raises(sqlite3.OperationalError, match="stuck"):
            ring.execute(ROW, ("a", "k"))
        assert not ring.in_transaction
        assert snapshot(ring) == before and rows(ring, EVIDENCE) == []
    ring.execute(f"DROP TRIGGER {schema}.stuck")
    ring.execute(ROW, ("a", "k"))
    assert [r[0] for r in rows(ring, EVIDENCE)] == ["e0", "e1", "e2"]
    assert one(ring, "SELECT count(*) FROM ring") == 0


@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("trigger, message", [
    ("BEFORE INSERT ON event_payloads WHEN NEW.event_id = 'e1' "
     "BEGIN SELECT RAISE(IGNORE); END", "only 2 of 3 exchanges"),
    ("AFTER INSERT ON event_payloads WHEN NEW.purpose = 'evidence' BEGIN "
     "INSERT INTO ring(agent_id, event_id) VALUES('a', 'log of ' || NEW.event_id);"
     "END", "writes into ring ring")])
def test_a_trigger_that_would_lose_exchanges_makes_the_kill_switch_fail(
        db, how, begin, trigger, message):
    db.execute("PRAGMA trusted_schema = 1")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    fill(db)
    before = snapshot(db)
    db.execute("CREATE TRIGGER mine " + trigger)
    db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match=message):
        db.execute(how, ("a", "k"))
    inside = {r[2] for r in rows(db, "SELECT rowid, * FROM ring")}
    assert {"e0", "e1", "e2"} <= inside
    if db.in_transaction:
        db.execute("COMMIT")
    assert snapshot(db) == before and rows(db, EVIDENCE) == []
    assert one(db, "SELECT saved FROM ring_agents") == 0
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert len(found) == 1 and "trigger mine" in found[0][1]
    db.execute("DROP TRIGGER mine")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("conflict", ["IGNORE", "REPLACE", "ABORT"])
def test_no_conflict_clause_hides_a_failure(ring, begin, conflict):
    fill(ring)
    before = snapshot(ring)
    refuse(ring)
    ring.execute(begin)
    with pytest.raises(sqlite3.Error, match="no e2"):
        ring.execute(ROW.replace("INSERT", f"INSERT OR {conflict}"), ("a", "k"))
    if begin:
        ring.execute("COMMIT")
    assert snapshot(ring) == before and rows(ring, EVIDENCE) == []


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("how", [CALL, ROW])
def test_a_kill_switch_fired_by_its_own_writes_is_refused(db, how, same):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    fill(db)
    agent = "a" if same else "log"
    db.execute("CREATE TRIGGER mine AFTER INSERT ON event_payloads BEGIN "
               "INSERT INTO ring(agent_id, event_id) VALUES('log', NEW.event_id); "
               "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', "
               f"'{agent}', hex(randomblob(8))); END")
    with pytest.raises(sqlite3.Error, match="fired from inside itself"):
        db.execute(how, ("a", "k"))
    db.execute("DROP TRIGGER mine")
    assert one(db, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 3
    assert one(db, CALL, "a", "k") == 3


def test_old_pragmas_of_the_connection_change_nothing(ring):
    fill(ring)
    ring.execute("PRAGMA count_changes = ON")
    ring.execute("PRAGMA empty_result_callbacks = ON")
    assert one(ring, CALL, "a", "k") == 3


@pytest.mark.parametrize("how", [CALL, ROW])
def test_equal_exchanges_of_one_agent_all_become_evidence(ring, how):
    fill(ring, 1, "first")
    ring.execute(how, ("first", "k"))
    for _ in range(3):
        push(ring, "a", "e", "q", "r", 5)
    ring.execute(how, ("a", "k"))
    assert [r[:2] for r in rows(ring, EVIDENCE)] == [("e0", "first")] + 3 * [("e", "a")]


# ---- where


@pytest.mark.parametrize("schema", ["other", 'o"t\'h er', "main.x"])
def test_an_attached_ring_saves_into_its_own_file(db, tmp_path, schema):
    q = quoted(schema)
    db.execute(f"ATTACH ? AS {q}", (str(tmp_path / "o.db"),))
    db.execute(f"CREATE VIRTUAL TABLE {q}.ring USING payload_ring")
    fill(db, ring=f"{q}.ring")
    assert one(db, CALL, "a", "k") == 3
    fill(db, ring=f"{q}.ring")
    db.execute(f"INSERT INTO {q}.ring(ring, agent_id, event_id) "
               "VALUES('kill_switch', 'a', 'k2')")
    assert one(db, f"SELECT count(*) FROM {q}.event_payloads") == 6
    assert one(db, "SELECT count(*) FROM main.event_payloads") == 0


def test_a_ring_in_temp_asks_which_of_two_archives(db, tmp_path):
    db.execute("ATTACH ? AS other", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install('other')")
    db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring")
    fill(db)
    for how in (CALL, ROW):
        with pytest.raises(sqlite3.OperationalError, match="AmbiguousSchemaError"):
            db.execute(how, ("a", "k"))
    assert one(db, "SELECT count(*) FROM ring") == 3
    one(db, "SELECT blackbox_use('other')")
    assert one(db, CALL, "a", "k") == 3
    assert one(db, "SELECT count(*) FROM other.event_payloads") == 3


def test_rings_of_one_name_temp_first_and_by_schema(db, tmp_path):
    db.execute("ATTACH ? AS other", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install('other')")
    one(db, "SELECT blackbox_use('main')")
    for i, schema in enumerate(("temp", "main", "other"), 1):
        db.execute(f"CREATE VIRTUAL TABLE {schema}.ring USING payload_ring")
        fill(db, i, ring=f"{schema}.ring")
    call = "SELECT payload_kill_switch(?, 'a', ?)"
    assert one(db, call, "other.ring", "k1") == 3
    assert one(db, call, "ring", "k2") == 1
    assert one(db, call, "MAIN.RING", "k3") == 2
    assert one(db, call, "temp.ring", "k4") == 0
    assert one(db, "SELECT count(*) FROM other.event_payloads") == 3


def test_the_kill_switch_works_in_a_database_in_memory(tmp_path):
    db = connect()
    one(db, "SELECT blackbox_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    fill(db)
    assert one(db, CALL, "a", "k") == 3


@pytest.mark.parametrize("name", ["nothing", "t", "main.nothing", "nowhere.ring",
                                  "event_payloads", "ring_slots", "ring.", ".ring"])
def test_names_that_are_not_a_ring_are_refused(ring, name):
    ring.execute("CREATE TABLE t(agent_id)")
    for call in ("payload_kill_switch(?, 'a', 'k')", "payload_extract(?, 'a')"):
        with pytest.raises(sqlite3.OperationalError,
                           match="NotFoundError: there is no payload_ring table"):
            ring.execute("SELECT " + call, (name,))


@pytest.mark.parametrize(
    "ring_name, agent, event, message",
    [(None, "a", "k", "table name must be text"), (b"ring", "a", "k", "a blob"),
     ("", "a", "k", "not empty"), ("ring", None, "k", "agent_id must be text, got N"),
     ("ring", "", "k", "not empty"), ("ring", b"a", "k", "a blob"),
     ("ring", "a", None, "event_id must be text"), ("ring", "a", "", "not empty"),
     ("ring", "a\0", "k", "NUL"), ("ring", "a", "k\0", "NUL"),
     ("ring", "x" * 1025, "k", "1024"), ("ring", "a", "x" * 1025, "1024")])
def test_bad_arguments(ring, ring_name, agent, event, message):
    fill(ring)
    with pytest.raises(sqlite3.IntegrityError, match=message):
        ring.execute("SELECT payload_kill_switch(?,?,?)", (ring_name, agent, event))
    if ring_name == "ring":
        with pytest.raises(sqlite3.IntegrityError, match=message):
            ring.execute(ROW, (agent, event))
    assert one(ring, "SELECT count(*) FROM ring") == 3
    assert rows(ring, EVIDENCE) == []


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("column", ["request_body", "response_body"])
def test_extract_of_a_blob_names_it_and_takes_nothing(ring, column, begin):
    fill(ring)
    ring.execute(f"INSERT INTO ring(agent_id, event_id, {column}) VALUES('a', 'b1', x'00')")
    before = rows(ring, "SELECT * FROM ring")
    seq = one(ring, "SELECT max(seq) FROM ring WHERE agent_id = 'a'")
    ring.execute(begin)
    with pytest.raises(sqlite3.IntegrityError,
                       match=f"ValidationError: {column} of event b1 .seq {seq}. of "
                       "agent a is a blob.*SELECT the rows from ring and DELETE"):
        ring.execute("SELECT payload_extract('ring', 'a')")
    assert rows(ring, "SELECT * FROM ring") == before
    ring.execute("DELETE FROM ring WHERE event_id = 'b1'")
    assert len(json.loads(one(ring, "SELECT payload_extract('ring', 'a')"))) \
        == len([r for r in before if r[0] == "a"]) - 1


# ---- other writers


WRITERS = {
    "kill switch": CALL.replace("?, ?", "'a', 'k'"),
    "kill switch again": CALL.replace("?, ?", "'a', 'old'"),
    "kill switch row": ROW.replace("?, ?", "'a', 'k'"),
    "extract": "SELECT payload_extract('ring', 'a')",
    "push": "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')",
    "window": "INSERT INTO ring(ring, value) VALUES('window', 1)",
    "delete": "DELETE FROM ring WHERE agent_id = 'a'",
    "save": "SELECT payload_save_evidence('k', '[{\"eventId\":\"e\","
            "\"agentId\":\"a\"}]')",
    "cleanup": "SELECT payload_cleanup(0, 1700000000000)",
    "clear": "SELECT payload_clear_archive()",
    "unpin": "SELECT payload_unpin('pinned', 'a', 'r')",
    "flush": "SELECT payload_flush()",
    "queue": "SELECT payload_queue('e', 'a', 'q', 'r')",
    "install": "SELECT blackbox_install()",
    "call row": "INSERT INTO blackbox_call VALUES('payload_clear_archive', NULL)",
    "kill switch call row": "INSERT INTO blackbox_call VALUES("
                            "'payload_kill_switch', '[\"ring\",\"a\",\"k\"]')",
}


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_a_commit_in_between_never_makes_a_call_fail(ring, path, name, warm):
    """Before each inner statement, another connection tries to commit. If a read had preceded
    the first write, the write would be refused at once."""
    ring.execute("PRAGMA main.journal_mode=WAL")
    ring.execute("PRAGMA main.synchronous=OFF")
    ring.execute("CREATE TABLE noise(x)")
    ring.execute("INSERT INTO main.blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    ring.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
                 "VALUES('pinned', 'e', 'a', 'evidence')")
    ring.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at)"
                 " VALUES('e', 'a', 'archive', '2020-01-01')")
    fill(ring)
    one(ring, CALL, "a", "old")
    one(ring, "SELECT payload_queue('e', 'a', 'q', 'r')")
    fill(ring)
    db = ring
    if not warm and rows(ring, "SELECT 1 FROM main.sqlite_schema WHERE name='ring'"):
        db = connect(path)
    other = sqlite3.connect(path, isolation_level=None, timeout=0)
    commits = []

    def interfere(sql):
        try:
            other.execute("INSERT INTO noise VALUES(1)")
            commits.append(sql)
        except sqlite3.OperationalError:
            pass

    if name == "install":
        db.execute("DROP TRIGGER payload_delete_guard")
    db.set_trace_callback(interfere)
    db.execute(WRITERS[name]).fetchall()
    db.set_trace_callback(None)
    assert commits


def test_the_first_kill_switch_of_a_connection_in_temp(db, path):
    """The search for the archive reads, which must not make the write fail."""
    db.execute("PRAGMA main.journal_mode=WAL")
    db.execute("CREATE TABLE noise(x)")
    mine = connect(path)
    mine.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring(window=5)")
    fill(mine)
    commits = []

    def interfere(sql):
        try:
            db.execute("INSERT INTO noise VALUES(1)")
            commits.append(sql)
        except sqlite3.OperationalError:
            pass

    db.execute("PRAGMA busy_timeout=0")
    mine.set_trace_callback(interfere)
    assert one(mine, CALL, "a", "k") == 3
    mine.set_trace_callback(None)
    assert commits and len(rows(mine, EVIDENCE)) == 3


def test_a_pin_names_who_pulled_its_own_switch(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    for actor in "Ann", "Bob":
        push(db, "a", "for " + actor)
        one(db, "SELECT payload_kill_switch('ring', 'a', 'k', ?, 'why')", actor)
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k', 'Cid', 'nothing left')") == 0
    assert rows(db, "SELECT event_id, actor FROM payload_pins JOIN event_payloads USING (id)"
                " ORDER BY pin") == [("for Ann", "Ann"), ("for Bob", "Bob")]
    assert rows(db, "SELECT actor, rows FROM blackbox_log WHERE kind = 'kill_switch'") == [
        ("Ann", 1), ("Bob", 1), ("Cid", 0)]
    # Who pulls the switch of one agent has not saved what plain SQL saved of another.
    db.execute("INSERT INTO event_payloads(kill_switch_event_id, agent_id, event_id, purpose)"
               " VALUES('kk', 'b', 'of b', 'evidence')")
    push(db, "a", "of a")
    one(db, "SELECT payload_kill_switch('ring', 'a', 'kk', 'Ann', 'why')")
    assert rows(db, "SELECT event_id, p.actor, p.reason FROM payload_pins AS p JOIN event_payloads"
                " USING (id) WHERE event_id GLOB 'of *' ORDER BY pin") == [
        ("of b", None, None), ("of a", "Ann", "why")]


def test_a_kill_switch_has_not_saved_what_was_there_before_it(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    for event in "planted", "saved", "later":
        if event == "saved":
            push(db, "a", event)
            one(db, "SELECT payload_kill_switch('ring', 'a', 'k', 'Ann', 'why')")
        else:
            db.execute("INSERT INTO event_payloads(purpose, kill_switch_event_id, agent_id, event_id)"
                       " VALUES('evidence', 'k', 'a', ?)", (event,))
    assert rows(db, "SELECT event_id, actor FROM payload_pins JOIN event_payloads"
                " USING (id) ORDER BY pin") == [
        ("planted", None), ("saved", "Ann"), ("later", None)]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("actor, reason", [
    ("", "why"), ("Ann", ""), (b"Ann", "why"), ("A\0", "why")])
def test_a_bad_actor_or_reason_saves_nothing(db, actor, reason, begin):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "a")
    db.execute(begin)
    for pull in ("SELECT payload_kill_switch('ring', 'a', 'k', ?, ?)",
                 "INSERT INTO ring(ring, agent_id, event_id, actor, reason) "
                 "VALUES('kill_switch', 'a', 'k', ?, ?)"):
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError: (actor|reason) must be"):
            db.execute(pull, (actor, reason)).fetchall()
    assert one(db, "SELECT count(*) FROM ring") == 1
    assert rows(db, "SELECT * FROM blackbox_log") == []


# ---- what was erased


@pytest.mark.all_domains
@pytest.mark.parametrize("how", [CALL, ROW])
@pytest.mark.parametrize("kind, key, saved", [("event", "e1", 2), ("agent", "a", 0)])
def test_what_was_erased_does_not_keep_the_rest_from_being_saved(db, how, kind, key, saved):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    if kind == "event":
        one(db, "SELECT blackbox_erase('event', 'e1', 'ann', 'asked', '{\"remember\":true}')")
    for i in range(3):
        push(db, "a", f"e{i}")
    if kind == "agent":
        by_hand(rows(db, "PRAGMA database_list")[0][2],
                "INSERT INTO retention__in_force(kind, key, owner, until) "
                "VALUES('erased agent', 'a', '', 4102444800000)")
    db.execute(how, ("a", "k")).fetchall()
    assert one(db, "SELECT count(*) FROM event_payloads WHERE kill_switch_event_id = 'k'") == saved
    left = [r[0] for r in rows(db, "SELECT event_id FROM ring ORDER BY seq")]
    assert left == (["e1"] if saved else ["e0", "e1", "e2"])
    assert rows(db, "SELECT rows, bytes, agent_id FROM blackbox_log WHERE kind = 'passed_over'") == [
        (3 - saved, 2 * (3 - saved), "a")]
    assert one(db, "SELECT given = rows + saved FROM ring_agents") == 1
    assert rows(db, "SELECT * FROM blackbox_check WHERE object GLOB 'ring*'") == []


@pytest.mark.all_domains
def test_an_agent_that_was_erased_does_not_come_back(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    push(db, "a", "e")
    one(db, "SELECT blackbox_erase('agent', 'a', 'ann', 'asked')")
    assert rows(db, "SELECT agent_id FROM ring_agents") == []
    with pytest.raises(sqlite3.IntegrityError, match="ErasedError"):
        push(db, "a", "e")
    push(db, "b", "e")


def test_a_table_of_another_that_is_missing_is_not_made(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE TRIGGER mine AFTER INSERT ON event_payloads BEGIN"
               " INSERT INTO theirs VALUES(1); END")
    push(db, "a", "e")
    db.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="no such table: main.theirs"):
        db.execute(ROW, ("a", "k"))
    assert db.in_transaction
    db.execute("COMMIT")
    assert rows(db, "SELECT kind FROM blackbox_log") == []
    assert rows(db, "SELECT event_id FROM ring") == [("e",)]


CORE = ["blackbox__log", "blackbox__tree", "blackbox__leaves", "blackbox__open", "blackbox__probe",
        "retention__in_force", "retention__clock", "retention_rules",
        "blackbox_settings", "store_dropped"]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("call", [
    "SELECT payload_kill_switch('ring', 'a', 'k', 'Ann', 'why')",
    "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'a', 'k')"])
@pytest.mark.parametrize("table", CORE)
def test_evidence_is_saved_though_a_table_of_core_was_dropped(db, table, call, begin):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("INSERT INTO event_payloads(purpose, kill_switch_event_id, agent_id, event_id)"
               " VALUES('evidence', 'o', 'b', 'old')")
    one(db, "SELECT proof_head()")
    push(db, "a", "e")
    db.execute(f"DROP TABLE {table}")
    db.execute(begin)
    db.execute(call).fetchall()
    if begin:
        db.execute("COMMIT")
    assert rows(db, "SELECT event_id, pinned FROM event_payloads WHERE kill_switch_event_id = 'k'"
                ) == [("e", 1)]
    assert rows(db, "SELECT count(*) FROM ring") == [(0,)]
    assert one(db, "SELECT count(*) FROM blackbox_log WHERE kind = 'kill_switch'") == 1
    told = str(rows(db, "SELECT * FROM blackbox_check"))
    assert table in told, told
    if table == "blackbox__log":
        assert "was removed" in told and "schema of core had been damaged" in told


# ---- rows that the module pins itself


@pytest.mark.parametrize("mine", [None, "AFTER INSERT", "BEFORE INSERT"])
def test_all_of_them_are_pinned_whoever_has_a_trigger(ring, mine):
    """After it, evidence of plain SQL with the same id is pinned as before."""
    fill(ring, 5)
    if mine:
        ring.execute(f"CREATE TEMP TRIGGER mine {mine} ON main.event_payloads BEGIN SELECT 1; END")
    assert one(ring, CALL, "a", "k") == 5
    ring.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, kill_switch_event_id)"
                 " VALUES('e', 'a', 'evidence', 'k')")
    assert one(ring, "SELECT count(*) FROM payload_pins WHERE kill_switch_event_id = 'k'") == 6
    assert one(ring, "SELECT count(*) FROM blackbox_log WHERE kind = 'pin'") == 6
    ring.execute("DROP TRIGGER IF EXISTS mine")
    one(ring, "SELECT proof_head()")
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_a_blob_that_is_the_reference_of_another_row_is_refused(ring):
    ring.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, request_body)"
                 " VALUES('p', 'e', 'a', 'archive', ?)", ("text " * 1000,))
    one(ring, "SELECT blackbox_install('main', 'store')")
    one(ring, "SELECT payload_pack()")
    reference = one(ring, "SELECT request_body FROM event_payloads WHERE id = 'p'")
    assert isinstance(reference, bytes)
    push(ring, "a", "e1", b"\x00blob", None)
    push(ring, "a", "e2", "text", None)
    assert one(ring, CALL, "a", "k1") == 2
    push(ring, "a", "e3", reference, None)
    push(ring, "a", "e4", "text", None)
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        ring.execute(CALL, ("a", "k2")).fetchall()
    assert one(ring, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 2
    assert rows(ring, "SELECT * FROM blackbox_check") == []
