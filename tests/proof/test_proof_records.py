"""What gets a leaf, when, and what does not."""
import json
import sqlite3
import time

import pytest

from conftest import connect, load, one, rows
from proof_helpers import (dossier, enable, evidence, head, log, problems, proof_of, verdicts,
                           verify)

RING = "CREATE VIRTUAL TABLE {} USING payload_ring(window=5)"
PUSH = "INSERT INTO {}(agent_id, event_id, request_body, timestamp) VALUES('a', ?, ?, ?)"
PINNED = [("pin", 1, 1), ("evidence", 1, 1), ("pin", 2, 1), ("evidence", 2, 1)]


def ring(db, name="ring", n=2):
    db.execute(RING.format(name))
    for i in range(n):
        db.execute(PUSH.format(name), (f"e{i}", f"question {i}", 1000 + i))
    return db


@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("fire", [
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'a', 'k')",
    "INSERT INTO blackbox_call VALUES('payload_kill_switch', '[\"ring\",\"a\",\"k\"]')"])
def test_a_kill_switch_gives_its_evidence_leaves(db, begin, fire):
    enable(ring(db))
    db.execute(begin or "SELECT 1")
    db.execute(fire).fetchall()
    assert log(db) == PINNED
    if begin:
        db.execute("COMMIT")
    assert log(db) == PINNED
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_pending") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("name", ["ring", "temp.ring", '"my ""log"".ring"'])
def test_rings_of_other_schemas_give_leaves_where_their_archive_is(db, tmp_path, name):
    db.execute("ATTACH ? AS 'my \"log\"'", (str(tmp_path / "other.db"),))
    schema = "main"
    if name.startswith('"'):
        name, schema = '"my ""log""".ring', '"my ""log"""'
        one(db, "SELECT blackbox_install('my \"log\"')")
        one(db, "SELECT blackbox_use('my \"log\"')")
    enable(db, schema)
    ring(db, name)
    one(db, "SELECT payload_kill_switch(?, 'a', 'k')", name.replace('"my ""log"""', 'my "log"'))
    assert log(db, schema) == PINNED
    assert problems(db) == []
    assert "\n4\n" in head(db)
    assert len(dossier_of(db, schema)) == 4


def dossier_of(db, schema):
    return [proof_of(db, kind, key) for kind, key in
            [("pin", 1), ("pin", 2)]
            + [("evidence", r[0]) for r in rows(db, f"SELECT id FROM {schema}.event_payloads")]]


@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO s"])
def test_what_is_rolled_back_has_no_leaves(db, end):
    enable(ring(db))
    db.execute("BEGIN")
    db.execute("SAVEPOINT s")
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert len(log(db)) == 4
    db.execute(end)
    assert log(db) == []
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert log(db) == PINNED
    if end != "ROLLBACK":
        db.execute("COMMIT")
    assert problems(db) == []


def test_nothing_is_written_while_proof_is_off(db, path):
    ring(db)
    state = rows(db, "SELECT * FROM proof_state")
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads")
    head(db)
    assert rows(db, "SELECT * FROM proof_state") == state
    for table in ("leaves", "salts", "nodes"):
        assert one(db, f"SELECT count(*) FROM proof_{table}") == 0
    assert problems(db) == []


def test_what_was_recorded_before_is_taken_in_when_proof_is_switched_on(db):
    ring(db)
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    enable(db)
    assert rows(db, "SELECT * FROM proof_pending") == [("pin", 2, 1)]
    assert [p[1:3] for p in problems(db)] == [("pin", 1)]
    head(db)
    assert log(db) == PINNED and problems(db) == []


@pytest.mark.parametrize("call", [
    "SELECT payload_kill_switch('ring', 'b', 'k')", "SELECT payload_cleanup()",
    "SELECT retention_sweep()", "SELECT proof_head()",
    "INSERT INTO blackbox_call VALUES('proof_head', '[]')"])
def test_what_plain_sql_wrote_is_taken_in_by_the_next_call(db, path, call):
    enable(ring(db))
    plain = sqlite3.connect(path, isolation_level=None)
    evidence(plain, 2)
    plain.close()
    assert log(db) == []
    assert rows(db, "SELECT * FROM proof_pending") == [("pin", 2, 1)]
    db.execute(call).fetchall()
    assert log(db) == PINNED and problems(db) == []
    assert one(db, "SELECT count(hash) FROM payload_ledger") == 2  # as the kill switch does it


def test_each_act_has_its_leaf_in_its_own_transaction(db):
    enable(db)
    saved = json.dumps([{"eventId": "e", "agentId": "a", "requestBody": "q",
                         "timestamp": 1000}])
    one(db, "SELECT payload_save_evidence('k', ?)", saved)
    assert log(db) == PINNED[:2]
    row = one(db, "SELECT id FROM event_payloads")
    one(db, "SELECT payload_unpin(?, 'me', 'a mistake')", row)
    assert log(db) == [("pin", 1, 1), ("evidence", 1, 0), ("unpin", 1, 1)]
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at)"
               " VALUES('old', 'a', 'archive', '2001-01-01')")
    one(db, "SELECT payload_cleanup()")
    assert log(db)[3:] == [("receipt", 1, 1)]
    assert problems(db) == []
    assert proof_of(db, "unpin", 1)["leaf"] == 2


def test_a_row_that_is_pinned_again_has_two_leaves(db):
    enable(db)
    evidence(db)
    row = one(db, "SELECT id FROM event_payloads")
    one(db, "SELECT payload_unpin(?, 'me', 'why')", row)
    db.execute("UPDATE event_payloads SET pinned = 1")
    head(db)
    assert log(db) == [("pin", 1, 1), ("unpin", 1, 1), ("pin", 2, 1), ("evidence", 2, 1)]
    assert proof_of(db, "evidence", row)["number"] == 2
    assert problems(db) == []


LOOP = [{"role": "user", "content": "go"}]


def looping(db, event, calls):
    steps = [step for i in range(calls) for step in (
        {"role": "assistant", "tool_calls": [
            {"id": f"c{i}", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": f"c{i}", "content": "same"})]
    db.execute(PUSH.format("ring"), (event, json.dumps({"messages": LOOP + steps}), 9000))


@pytest.mark.parametrize("mode", ["record", "kill_switch"])
def test_a_verdict_and_what_it_does_have_leaves(db, mode):
    enable(db)
    db.execute("INSERT INTO blackbox_settings VALUES('payload.on_loop', ?)", (mode,))
    db.execute(RING.format("ring"))
    looping(db, "e1", 3)
    looping(db, "e2", 5)
    found = rows(db, "SELECT id FROM payload_verdicts")
    assert found == [(1,)]
    assert log(db)[0] == ("verdict", 1, 1)
    assert len(log(db)) == (1 if mode == "record" else 5)
    assert problems(db) == []
    db.execute("DELETE FROM payload_verdicts")
    assert problems(db) == []
    looping(db, "e3", 6)  # another verdict has another number
    assert one(db, "SELECT coalesce(min(id), 2) FROM payload_verdicts") == 2


def test_a_verdict_that_was_deleted_leaves_a_leaf_without_a_salt(db):
    enable(db)
    verdicts(db, 3)
    head(db)
    db.execute("DELETE FROM payload_verdicts WHERE id = 2")
    later(db)
    assert log(db) == [("verdict", 1, 1), ("verdict", 2, 0), ("verdict", 3, 1),
                       ("receipt", 1, 1)]
    assert problems(db) == []


def later(db):
    """As if the minute of the newest receipts were over; takes them in."""
    db.execute("DROP TRIGGER retention_log_update")
    db.execute("UPDATE retention_log SET minute = minute - 3 WHERE id NOT IN"
               " (SELECT thing >> 3 FROM proof_salts WHERE thing & 7 = 5)")
    one(db, "SELECT blackbox_install()")
    head(db)


def test_a_receipt_of_a_minute_waits_until_the_minute_is_over(db):
    enable(db)
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) VALUES"
               " ('a', 'e', 'a', 'archive'), ('b', 'e', 'a', 'archive')")
    db.execute("DELETE FROM event_payloads WHERE id = 'a'")
    head(db)
    assert log(db) == [] and problems(db) == []
    assert rows(db, "SELECT * FROM proof_pending") == [("receipt", 1, 1)]
    one(db, "SELECT payload_clear_archive()")  # its receipt does not wait
    assert log(db) == [("receipt", 2, 1)]
    later(db)
    assert log(db) == [("receipt", 2, 1), ("receipt", 1, 1)] and problems(db) == []
    assert one(db, "SELECT receipts FROM proof_state") == 2


def test_receipts_that_the_log_of_receipts_drops_lose_their_salts(db):
    enable(db)
    fill = ("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO"
            " retention_log(at, domain, rule, rows, bytes) SELECT 1, 'user', 'r', 1, 1 FROM n")
    db.execute(fill, (9_990,))
    head(db)
    db.execute(fill, (20,))
    head(db)
    assert one(db, "SELECT count(*) FROM proof_log WHERE NOT open") == 10
    assert one(db, "SELECT min(number) FROM proof_log WHERE open") == 11
    assert problems(db) == []
    assert verify.verify(dossier_range(db, 9_995, 10_010))


def dossier_range(db, first, end):
    return [proof_of(db, "leaf", i) for i in range(first, end)]


def test_a_call_takes_in_at_most_20000(db):
    enable(db)
    verdicts(db, 20_500)
    one(db, "SELECT payload_cleanup()")
    assert one(db, "SELECT size, verdicts FROM proof_state") == 20_000
    assert rows(db, "SELECT * FROM proof_pending") == [("verdict", 500, 20_001)]
    head(db)
    assert one(db, "SELECT size FROM proof_state") == 20_500 and problems(db) == []


def test_only_some_domains_are_needed(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'proof')")
    enable(db)
    db.execute("INSERT INTO retention_log(at, domain, rule, rows, bytes)"
               " VALUES(1, 'user', 'mine', 1, 1)")
    head(db)
    assert log(db) == [("receipt", 1, 1)] and problems(db) == []
    assert rows(db, "SELECT * FROM proof_pending") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError|no such table"):
        proof_of(db, "evidence", "x")
    one(db, "SELECT blackbox_install()")
    evidence(db)
    head(db)
    assert len(log(db)) == 3 and problems(db) == []


def test_a_head_can_be_read_without_writing(db, path):
    enable(db)
    evidence(db)
    read = load(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None))
    assert "\n0\n" in head(read)
    assert head(db).split("\n")[1] == "2"
    assert head(read) == head(db)
    with pytest.raises(sqlite3.OperationalError, match="NotInstalled"):
        head(connect())


def test_a_head_in_a_transaction_waits_for_no_one_if_it_has_nothing_to_do(db, path):
    enable(db)
    evidence(db)
    noted = head(db)
    other = connect(path, timeout=0)
    db.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN")
    assert head(other) == noted
    other.execute("COMMIT")
    db.execute("COMMIT")


def test_a_damaged_log_does_not_stop_a_kill_switch(db):
    enable(ring(db))
    db.execute("DROP TABLE proof_salts")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 2
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 2
    assert any("proof_salts" in r[1] + r[2] for r in rows(db, "SELECT * FROM blackbox_check"))
    with pytest.raises(sqlite3.OperationalError, match="proof_salts"):
        head(db)


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("how", [
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'a', 'k')",
    """INSERT INTO blackbox_call VALUES('payload_kill_switch', '["ring", "a", "k"]')"""])
def test_a_trigger_of_the_user_that_refuses_leaves_the_records_waiting(db, how, begin):
    enable(ring(db))
    db.execute("CREATE TRIGGER mine BEFORE INSERT ON proof_leaves WHEN NEW.leaf = 2"
               " BEGIN SELECT RAISE(ABORT, 'no'); END")
    db.execute(begin)
    db.execute(how).fetchall()
    if begin:
        db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 2
    assert log(db) == []
    assert one(db, "SELECT count(*) FROM proof_leaves") == 2  # they do not count
    db.execute("DROP TRIGGER mine")
    head(db)
    assert log(db) == PINNED and problems(db) == []
    assert one(db, "SELECT count(*) FROM proof_salts") == 4


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_trigger_of_the_user_that_rolls_back_makes_the_kill_switch_fail(db, begin):
    """Otherwise it would succeed, and the evidence were gone."""
    enable(ring(db))
    db.execute("CREATE TRIGGER mine BEFORE INSERT ON proof_leaves WHEN NEW.leaf = 2"
               " BEGIN SELECT RAISE(ROLLBACK, 'all back'); END")
    db.execute(begin)
    with pytest.raises(sqlite3.Error, match="all back"):
        db.execute("INSERT INTO ring(ring, agent_id, event_id) "
                   "VALUES('kill_switch', 'a', 'k')")
    assert not db.in_transaction
    assert rows(db, "SELECT count(*) FROM ring") == [(2,)]
    assert one(db, "SELECT count(*) FROM event_payloads") == 0


def test_times_and_salts_are_new_for_each_leaf(db):
    enable(db)
    evidence(db, 3)
    before = int(time.time() * 1000)
    head(db)
    salts = rows(db, "SELECT DISTINCT salt FROM proof_salts WHERE length(salt) = 32")
    assert len(salts) == 6
    assert all(abs(r[0] - before) < 60_000 for r in rows(db, "SELECT at FROM proof_leaves"))


def test_what_was_erased_cannot_be_guessed_from_its_leaf(db):
    """Who knows the content cannot confirm it without the salt."""
    enable(db)
    evidence(db, 1)
    head(db)
    row = one(db, "SELECT id FROM event_payloads")
    known = proof_of(db, "evidence", row)
    one(db, "SELECT payload_unpin(?, 'clerk', 'erase it')", row)
    assert proof_of(db, "leaf", 1)["salt"] is None
    salt = bytes.fromhex(known["salt"])
    db.execute("DELETE FROM event_payloads")
    db.execute("VACUUM")
    assert salt not in open(one(db, "SELECT file FROM pragma_database_list"), "rb").read()
    assert verify.verify(dossier(db), None, True)
    with pytest.raises(sqlite3.DatabaseError, match="NotFoundError"):
        proof_of(db, "evidence", row)


def test_a_column_that_is_added_later_is_not_part_of_older_evidence(db):
    enable(db)
    evidence(db)
    head(db)
    db.execute("ALTER TABLE event_payloads ADD COLUMN more TEXT DEFAULT 'x'")
    one(db, "SELECT blackbox_install()")
    evidence(db)
    head(db)
    assert rows(db, "SELECT columns FROM payload_ledger") == [(10,), (11,)]
    assert problems(db) == [] and len(log(db)) == 4


@pytest.mark.parametrize("number", [2**59, 2**63 - 1])
def test_a_verdict_with_a_number_that_is_too_large_waits_and_stops_nothing(db, number):
    enable(ring(db))
    verdicts(db, 2)
    db.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'payload_verdicts'", (number - 1,))
    verdicts(db, 1)
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert log(db) == PINNED + [("verdict", 1, 1), ("verdict", 2, 1)]
    assert rows(db, "SELECT * FROM proof_pending") == [("verdict", 1, number)]
    assert [p[1] for p in problems(db)] == ["verdict"]


def test_packed_evidence_is_the_same_evidence(db):
    """A packed body is a reference, and what has a leaf is the text."""
    if not one(db, "SELECT count(*) FROM pragma_function_list WHERE name = 'payload_pack'"):
        pytest.skip("there is no store")
    enable(db)
    evidence(db, 3, body="body " * 500)
    noted = head(db)
    row = one(db, "SELECT id FROM event_payloads")
    before = proof_of(db, "evidence", row)
    one(db, "SELECT payload_pack()")
    assert one(db, "SELECT typeof(request_body) FROM event_payloads") == "blob"
    assert problems(db) == [] and head(db) == noted
    assert proof_of(db, "evidence", row) == before
    evidence(db, 1, body="more " * 500)
    one(db, "SELECT payload_pack()")
    head(db)
    assert len(log(db)) == 8 and problems(db, noted) == problems(db) == []
