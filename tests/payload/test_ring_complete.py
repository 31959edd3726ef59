"""A request is pushed alone, and gets its response later: in the ring, or in the evidence."""
import json
import sqlite3

import pytest

import sessions
from conftest import connect, one, rows
from payload_helpers import push, setting, steps

pytestmark = pytest.mark.all_domains
META = json.dumps({"url": "https://api", "status": 200, "error": None})
COMPLETE = ("INSERT INTO ring(ring, agent_id, event_id, response_body, meta)"
            " VALUES('complete', ?3, ?4, ?1, ?2)")
UPDATE = "UPDATE ring SET response_body = ?1, meta = ?2 WHERE agent_id = ?3 AND event_id = ?4"
HOW = pytest.mark.parametrize("how", [COMPLETE, UPDATE])
EVIDENCE = ("SELECT request_body, response_body, meta, size_bytes FROM event_payloads"
            " ORDER BY rowid")


@pytest.fixture(params=["main", "temp", 'a"b'])
def ring(db, request):
    if request.param == 'a"b':
        db.execute("ATTACH ':memory:' AS \"a\"\"b\"")
        one(db, "SELECT blackbox_install('a\"b')")
        one(db, "SELECT blackbox_use('a\"b')")
    schema = request.param.replace('"', '""')
    db.execute(f'CREATE VIRTUAL TABLE "{schema}".ring USING payload_ring(window=5)')
    return db


@pytest.fixture
def main(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    return db


def request(db, event="e1", agent="a", meta=None, body="question"):
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, meta, timestamp)"
               " VALUES(?, ?, ?, ?, 5000)", (agent, event, body, meta))


def there(db, sql):
    """Rows of the archive of the ring."""
    attached = any(row[1] == 'a"b' for row in rows(db, "PRAGMA database_list"))
    for table in "event_payloads", "payload_pins", "blackbox_log":
        sql = sql.replace(f"FROM {table}", f'FROM "a""b".{table}') if attached else sql
    return rows(db, sql)


def healthy(db):
    one(db, "SELECT proof_head()")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert rows(db, "SELECT * FROM proof_verify") == []


@HOW
def test_an_exchange_gets_its_response_and_meta_once(ring, how):
    request(ring, meta='{"url":"https://api"}')
    push(ring, "a", "e2")
    ring.execute(how, ("ánswer", META, "a", "e1"))
    assert rows(ring, "SELECT event_id, request_body, response_body, timestamp, size_bytes, seq,"
                      " meta FROM ring WHERE seq = 1") \
        == [("e1", "question", "ánswer", 5000, 15, 1, META)]
    assert rows(ring, "SELECT given, rolled, rows, bytes FROM ring_agents") == [(2, 0, 2, 17)]
    with pytest.raises(sqlite3.Error, match="NotFoundError" if how == COMPLETE
                       else "ReadOnlyError"):
        ring.execute(how, ("other", META, "a", "e1"))
    assert one(ring, "SELECT response_body FROM ring WHERE seq = 1") == "ánswer"
    healthy(ring)


@HOW
def test_the_newest_exchange_of_the_event_is_completed(main, how):
    for i in range(3):
        request(main, body=f"try {i}")
    main.execute(how, ("answer", None, "a", "e1"))
    assert rows(main, "SELECT response_body FROM ring") == [(None,), (None,), ("answer",)]
    if how == UPDATE:  # of all exchanges of the event, of which the newest has its response
        with pytest.raises(sqlite3.IntegrityError, match="ReadOnlyError"):
            main.execute(UPDATE, ("later", None, "a", "e1"))
        how = UPDATE + " AND response_body IS NULL"
    main.execute(how, ("later", None, "a", "e1"))
    assert rows(main, "SELECT response_body FROM ring") == [(None,), ("later",), ("answer",)]


def test_an_update_that_meets_an_older_exchange_with_a_response_passes_it(main):
    push(main, "a", "e1")
    request(main)
    main.execute(UPDATE, ("answer", None, "a", "e1"))
    assert rows(main, "SELECT response_body FROM ring") == [("r",), ("answer",)]


@HOW
def test_meta_that_is_not_given_stays(main, how):
    request(main, meta='{"url":"u"}')
    main.execute(how, ("answer", None, "a", "e1"))
    assert one(main, "SELECT meta FROM ring") == '{"url":"u"}'


def test_a_failure_has_meta_alone(main):
    request(main)
    main.execute("UPDATE ring SET meta = ? WHERE agent_id = 'a'", (META,))
    assert rows(main, "SELECT response_body, meta, size_bytes FROM ring") == [(None, META, 8)]


@pytest.mark.parametrize("sql, error", [
    ("UPDATE ring SET request_body = 'x'", "ReadOnlyError"),
    ("UPDATE ring SET event_id = 'x', response_body = 'r'", "ReadOnlyError"),
    ("UPDATE ring SET agent_id = 'b'", "ReadOnlyError"),
    ("UPDATE ring SET seq = 9", "ReadOnlyError"),
    ("UPDATE ring SET ring = 'complete'", "ReadOnlyError"),
    ("UPDATE ring SET meta = '{'", "ValidationError: meta must be JSON or NULL"),
    ("UPDATE ring SET meta = x'7b7d'", "ValidationError"),
    ("INSERT INTO ring(agent_id, event_id, meta) VALUES('a', 'e9', 'no')", "ValidationError"),
    ("INSERT INTO ring(agent_id, event_id, meta) VALUES('a', 'e9', '\"'||printf('%070000d', 1)"
     "||'\"')", "ValidationError: meta"),
    ("INSERT INTO ring(ring, agent_id, event_id, response_body) VALUES('complete','a','e7','r')",
     "NotFoundError"),
    ("INSERT INTO ring(ring, agent_id, event_id, response_body) VALUES('complete','b','e1','r')",
     "NotFoundError"),
    ("INSERT INTO ring(ring, agent_id, response_body) VALUES('complete', 'a', 'r')",
     "ValidationError"),
])
@pytest.mark.parametrize("begin", [False, True])
def test_what_is_refused_changes_nothing(main, sql, error, begin):
    request(main)
    before = rows(main, "SELECT * FROM ring")
    if begin:
        main.execute("BEGIN")
        main.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.Error, match=error):
        main.execute(sql)
    assert main.in_transaction == begin
    assert rows(main, "SELECT * FROM ring") == before


@HOW
def test_a_rollback_takes_it_back(ring, how):
    request(ring)
    for begin, end in ("BEGIN", "ROLLBACK"), ("SAVEPOINT s", "ROLLBACK TO s"):
        ring.execute(begin)
        ring.execute(how, ("answer", META, "a", "e1"))
        assert one(ring, "SELECT response_body FROM ring") == "answer"
        ring.execute(end)
        assert rows(ring, "SELECT response_body, meta, size_bytes FROM ring") == [(None, None, 8)]


@pytest.mark.parametrize("size", [0, 1, 500, 4000, 100_000])
@pytest.mark.parametrize("first", [10, 3000, 50_000])
def test_responses_of_every_size(main, first, size):
    for i in range(12):
        body = "q" * (first + 97 * i)
        request(main, f"e{i}", body=body)
        main.execute(COMPLETE, ("r" * size, META, "a", f"e{i}"))
        assert rows(main, "SELECT request_body, response_body, meta, size_bytes FROM ring"
                          " WHERE event_id = ?", f"e{i}") \
            == [(body, "r" * size, META, len(body) + size)]
    assert rows(main, "SELECT * FROM blackbox_check") == []


def test_a_completion_makes_room(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(max_bytes=100)")
    for i in range(10):
        request(db, f"e{i}", f"a{i}")
    db.execute(COMPLETE, ("r" * 50, None, "a3", "e3"))
    assert rows(db, "SELECT agent_id FROM ring") \
        == [(f"a{i}",) for i in (3, 5, 6, 7, 8, 9)]
    assert one(db, "SELECT sum(size_bytes) FROM ring") == 98
    assert rows(db, "SELECT * FROM blackbox_check") == []


def kill(db):
    request(db, meta='{"url":"u"}')
    push(db, "a", "e2")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k', 'ann', 'loops')") == 2


def test_a_kill_switch_takes_meta_along(ring):
    kill(ring)
    assert there(ring, EVIDENCE) == [("question", None, '{"url":"u"}', 8), ("q", "r", None, 2)]
    healthy(ring)


def test_evidence_is_completed_once_and_logged(ring):
    kill(ring)
    ring.execute(COMPLETE, ("late", META, "a", "e1"))
    assert there(ring, EVIDENCE) == [("question", "late", '{"url":"u"}', 12), ("q", "r", None, 2)]
    assert there(ring, "SELECT kind, event_id, agent_id FROM blackbox_log"
                      " WHERE kind = 'complete'") == [("complete", "e1", "a")]
    assert there(ring, "SELECT event_id, detail FROM blackbox_log"
                      " WHERE kind = 'late_meta'") == [("e1", META)]
    assert there(ring, "SELECT DISTINCT actor, reason FROM payload_pins") == [("ann", "loops")]
    healthy(ring)
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError"):
        ring.execute(COMPLETE, ("again", META, "a", "e1"))


def test_evidence_that_was_completed_and_then_altered_is_found(db, path):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    kill(db)
    db.execute(COMPLETE, ("late", META, "a", "e1"))
    healthy(db)
    db.execute("DROP TRIGGER payload_guard")
    db.execute("UPDATE event_payloads SET response_body = 'kate' WHERE event_id = 'e1'")
    assert [row[0] for row in rows(db, "SELECT problem FROM proof_verify")] != []


def test_plain_sql_completes_evidence_once_and_is_logged(main):
    kill(main)
    main.execute("UPDATE event_payloads SET response_body = 'late' WHERE event_id = 'e1'")
    assert one(main, "SELECT count(*) FROM blackbox_log WHERE kind = 'complete'") == 1
    for sql in ("UPDATE event_payloads SET response_body = 'x' WHERE event_id = 'e1'",
                "UPDATE event_payloads SET meta = NULL WHERE event_id = 'e1'"):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            main.execute(sql)
    healthy(main)


def test_a_failure_completes_evidence_with_meta_alone_once(main):
    request(main)
    assert one(main, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    for meta in META, META, "{}":
        main.execute(COMPLETE, (None, meta, "a", "e1"))
        assert rows(main, EVIDENCE) == [("question", None, META, 8)]
    assert rows(main, "SELECT detail FROM blackbox_log WHERE kind = 'late_meta'") == [("{}",)]
    healthy(main)


def test_a_held_exchange_keeps_its_meta(main):
    request(main, meta='{"url":"u"}')
    one(main, "SELECT retention_hold('agent', 'a', 'case 7', 'ann', 'asked')")
    main.execute(COMPLETE, ("answer", META, "a", "e1"))
    assert rows(main, "SELECT response_body, meta FROM ring") == [("answer", '{"url":"u"}')]
    assert rows(main, "SELECT subject, agent_id, event_id, detail FROM blackbox_log"
                " WHERE kind = 'late_meta'") == [("ring/1", "a", "e1", META)]
    healthy(main)


def test_evidence_that_is_complete_cannot_lose_its_response(main):
    kill(main)
    for sql in ("UPDATE event_payloads SET request_body = 'x', response_body = 'r'",
                "UPDATE event_payloads SET response_body = 'r', agent_id = 'b'",
                "UPDATE event_payloads SET response_body = NULL",
                "UPDATE event_payloads SET response_body = 'r', created_at = '2020-01-01'"):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            main.execute(sql)


def test_a_held_exchange_is_completed_in_the_ring_and_in_the_evidence(main):
    request(main)
    one(main, "SELECT retention_hold('agent', 'a', 'case 7', 'ann', 'asked')")
    main.execute("BEGIN")
    main.execute(COMPLETE, ("answer", META, "a", "e1"))
    main.execute("ROLLBACK")
    assert one(main, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    main.execute(COMPLETE, ("answer", META, "a", "e1"))
    assert rows(main, "SELECT response_body, meta FROM ring") == [("answer", META)]
    assert rows(main, EVIDENCE) == [("question", "answer", META, 14)]
    healthy(main)
    assert one(main, "SELECT payload_kill_switch('ring', 'a', 'k')") == 0


def test_meta_leaves_the_ring_with_extract(main):
    request(main, meta=META)
    push(main, "a", "e2")
    first, second = json.loads(one(main, "SELECT payload_extract('ring', 'a')"))
    assert first["meta"] == json.loads(META) and "meta" not in second


def test_a_process_that_dies_leaves_its_request(path):
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    request(db, meta='{"url":"u"}')
    other = connect(path)
    other.execute(COMPLETE, ("answer", None, "a", "e1"))
    assert rows(db, "SELECT response_body, meta FROM ring") == [("answer", '{"url":"u"}')]


def test_a_trigger_completes(main):
    main.execute("CREATE TABLE answers(event, body)")
    main.execute("CREATE TRIGGER t AFTER INSERT ON answers BEGIN INSERT INTO ring(ring, agent_id,"
                 " event_id, response_body) VALUES('complete', 'a', NEW.event, NEW.body); END")
    request(main)
    main.execute("INSERT INTO answers VALUES('e1', 'answer')")
    assert one(main, "SELECT response_body FROM ring") == "answer"


# ---- the rules see what is completed ----

def completes(db, exchanges, ring="ring"):
    for i, (request, response, at) in enumerate(exchanges):
        db.execute(f"INSERT INTO {ring}(agent_id, event_id, request_body, timestamp) "
                   "VALUES('a', ?, ?, ?)", (f"e{i}", request, at))
        db.execute(f"INSERT INTO {ring}(ring, agent_id, event_id, response_body) "
                   "VALUES('complete', 'a', ?, ?)", (f"e{i}", response))


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("name", ["ring", "temp.ring"])
def test_steps_are_the_same_whether_a_response_comes_at_once_or_later(db, begin, name):
    exchanges = list(sessions.chat([("f", {"x": i % 3}, str(i)) for i in range(7)]))
    found = []
    setting(db, "on_loop", "record")
    for late in False, True:
        db.execute(f"CREATE VIRTUAL TABLE {name} USING payload_ring")
        db.execute(begin)
        if late:
            completes(db, exchanges, name)
        else:
            for i, (request, response, at) in enumerate(exchanges):
                db.execute(f"INSERT INTO {name}(agent_id, event_id, request_body, response_body, "
                           "timestamp) VALUES('a', ?, ?, ?, ?)", (f"e{i}", request, response, at))
        if begin:
            db.execute("COMMIT")
        found.append(steps(db, f"{name}_slots"))
        db.execute(f"DROP TABLE {name}")
    assert len(found[0]) == 8 and found[0] == found[1]


def test_a_response_that_comes_later_is_seen_at_once(main):
    ring = main
    setting(ring, "on_loop", "kill_switch")
    ring.execute("UPDATE payload_rules SET enabled = rule = 'budget_calls', threshold = 3")
    completes(ring, list(sessions.chat([("f", {"x": i}, str(i)) for i in range(5)]))[:3])
    assert rows(ring, "SELECT rule, action FROM payload_verdicts") \
        == [("budget_calls", "kill_switch")]
    assert rows(ring, "SELECT event_id, response_body IS NULL FROM event_payloads ORDER BY rowid") \
        == [("e0", 0), ("e1", 0), ("e2", 0)]
    assert rows(ring, "SELECT * FROM ring") == rows(ring, "SELECT * FROM blackbox_check") == []


def test_a_rule_never_refuses_a_completion(main):
    setting(main, "on_loop", "record")
    request(main)
    main.execute("INSERT INTO payload_agents(agent_id, stopped_at, stopped_by) VALUES('a', 1, 'ann')")
    main.execute("ALTER TABLE payload_rules RENAME TO away")
    main.execute(COMPLETE, ("late", None, "a", "e1"))
    assert rows(main, "SELECT response_body FROM ring") == [("late",)]
    assert one(main, "SELECT count(*) FROM blackbox_log WHERE kind = 'passed_over'") == 1


def test_a_completion_that_fails_after_its_slot_leaves_nothing(main):
    request(main, body="x" * 3000)
    main.execute("CREATE TABLE notes(x)")
    main.execute("CREATE TRIGGER theirs BEFORE UPDATE OF page ON ring_agents "
                 "BEGIN SELECT RAISE(ABORT, 'no'); END")
    for begin in ("", "BEGIN"):
        if begin:
            main.execute(begin)
            main.execute("INSERT INTO notes VALUES(1)")
        with pytest.raises(sqlite3.OperationalError, match="no"):
            main.execute(COMPLETE, ("y" * 400, None, "a", "e1"))
        assert not main.in_transaction  # SQLite rolled it back, and said so
        assert rows(main, "SELECT response_body, size_bytes FROM ring") == [(None, 3000)]
        assert rows(main, "SELECT * FROM notes") == []
