"""What gets a leaf, when, and what does not."""
import json
import sqlite3

import pytest

from conftest import connect, load, one, rows
from proof_helpers import (check, dossier, evidence, head, log, problems, proof_of, sha, size,
                           unguarded, write)

RING = "CREATE VIRTUAL TABLE {} USING payload_ring(window=5)"
PUSH = "INSERT INTO {}(agent_id, event_id, request_body, timestamp) VALUES('a', ?, ?, ?)"
PINNED = ["pin", "pin", "kill_switch"]


def ring(db, name="ring", n=2):
    db.execute(RING.format(name))
    for i in range(n):
        db.execute(PUSH.format(name), (f"e{i}", f"question {i}", 1000 + i))
    return db


@pytest.mark.parametrize("begin", ["", "BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("fire", [
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'a', 'k')",
    "INSERT INTO main.blackbox_call VALUES('payload_kill_switch', '[\"ring\",\"a\",\"k\"]')"])
def test_a_kill_switch_gives_its_rows_leaves(db, begin, fire):
    ring(db)
    db.execute(begin or "SELECT 1")
    db.execute(fire).fetchall()
    assert log(db) == PINNED
    if begin:
        db.execute("COMMIT")
    assert log(db) == PINNED
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_pending") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("name", ["ring", "temp.ring", '"my ""log"".ring'])
def test_rings_of_other_schemas_give_leaves_where_their_archive_is(db, tmp_path, name):
    db.execute("ATTACH ? AS 'my \"log\"'", (str(tmp_path / "other.db"),))
    schema = "main"
    if name.startswith('"'):
        name, schema = '"my ""log""".ring', '"my ""log"""'
        one(db, "SELECT blackbox_install('my \"log\"', 'all')")
        one(db, "SELECT blackbox_use('my \"log\"')")
    ring(db, name)
    one(db, "SELECT payload_kill_switch(?, 'a', 'k')", name.replace('"my ""log"""', 'my "log"'))
    assert log(db, schema) == PINNED
    assert problems(db) == [] and "\n3\n" in head(db)
    for row in rows(db, f"SELECT id FROM {schema}.event_payloads"):
        assert len(proof_of(db, "evidence", row[0])["fields"]) == 23
    if schema != "main":
        assert size(db) == 0
        unguarded(tmp_path / "other.db", "UPDATE event_payloads SET request_body = 'x'")
        assert [p[1] for p in problems(db)] == ["pin", "pin"]


@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO s"])
def test_what_is_rolled_back_has_no_leaves(db, end):
    ring(db)
    db.execute("BEGIN")
    db.execute("SAVEPOINT s")
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert len(log(db)) == 3
    db.execute(end)
    assert log(db) == []
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert log(db) == PINNED
    if end != "ROLLBACK":
        db.execute("COMMIT")
    assert problems(db) == []


@pytest.mark.parametrize("call", [
    "SELECT payload_kill_switch('ring', 'a', 'k')", "SELECT proof_head()",
    "INSERT INTO main.blackbox_call VALUES('proof_head', '[]')"])
def test_what_plain_sql_wrote_is_taken_in_by_the_next_call_that_writes(db, path, call):
    ring(db)
    plain = sqlite3.connect(path, isolation_level=None)
    evidence(plain, 2)
    plain.close()
    assert log(db) == []
    assert rows(db, "SELECT * FROM proof_pending") == [("pin", 2, 1)]
    db.execute(call).fetchall()
    assert log(db)[:2] == PINNED[:2] and problems(db) == []
    assert len(proof_of(db, "row", 1)["fields"]) == 23


def test_a_leaf_of_a_pin_has_the_fields_of_its_row(db):
    evidence(db)
    head(db)
    row = one(db, "SELECT id FROM event_payloads")
    fields = {f["name"]: f for f in proof_of(db, "pin", row)["fields"]}
    assert list(fields) == sorted(fields) and [n for n in fields if n.startswith("row.")] == [
        "row.agent_id", "row.created_at", "row.event_id", "row.id", "row.kill_switch_event_id",
        "row.meta", "row.purpose", "row.request_body", "row.response_body"]
    salt = sha(one(db, "SELECT salt FROM blackbox__log"), b"row.request_body")
    body = fields["row.request_body"]
    assert (body["type"], body["salt"], body["hash"]) == (3, salt.hex(),
                                                         sha(salt, b"\3", b"body 0").hex())


def test_a_pin_that_has_ended_is_proved_by_its_leaf_alone(db):
    evidence(db)
    head(db)
    row = one(db, "SELECT id FROM event_payloads")
    before = proof_of(db, "evidence", row)
    one(db, "SELECT payload_unpin(?, 'me', 'why')", row)
    db.execute("DELETE FROM event_payloads")
    with pytest.raises(sqlite3.DatabaseError, match="NotFoundError"):
        proof_of(db, "evidence", row)
    after = proof_of(db, "row", 1)
    assert after["fields"] is None and after["hash"] == before["hash"]
    head(db)
    assert check(dossier(db), everything=True) and problems(db) == []


def test_a_pin_that_ended_before_its_leaf_has_no_fields_of_the_row(db, path):
    plain = sqlite3.connect(path, isolation_level=None)
    evidence(plain)
    plain.execute("INSERT INTO payload_unpins(payload_id, actor, reason)"
                  " SELECT id, 'me', 'why' FROM payload__pins")
    plain.close()
    head(db)
    assert log(db) == ["pin", "unpin"] and len(proof_of(db, "row", 1)["fields"]) == 14
    assert problems(db) == []


def test_a_row_that_is_pinned_again_has_two_leaves(db):
    evidence(db)
    row = one(db, "SELECT id FROM event_payloads")
    one(db, "SELECT payload_unpin(?, 'me', 'why')", row)
    db.execute("UPDATE event_payloads SET pinned = 1")
    head(db)
    assert log(db) == ["pin", "unpin", "pin"] and proof_of(db, "evidence", row)["n"] == 3
    assert problems(db) == []


def test_packed_evidence_is_the_same_evidence(db):
    """A packed body is a reference, and what has a leaf is the text."""
    evidence(db, 3, body="body " * 500)
    noted = head(db)
    row = one(db, "SELECT id FROM event_payloads")
    before = proof_of(db, "evidence", row)
    for step, kind in (("SELECT payload_pack()", "blob"), ("VACUUM", "blob"),
                       ("SELECT payload_unpack()", "text"), ("VACUUM", "text")):
        db.execute(step).fetchall()
        assert one(db, "SELECT typeof(request_body) FROM event_payloads") == kind
        assert problems(db) == problems(db, noted) == []
        after = proof_of(db, "evidence", row)
        assert after == before and check([after], noted)


def test_a_call_takes_in_at_most_20000(db):
    write(db, 20_500)
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('o', 'a', 'archive')")
    one(db, "SELECT payload_clear_archive()")
    assert size(db) == 20_000 and problems(db)[0][2] == 20_001
    head(db)
    assert size(db) == 20_501 and problems(db) == []


def test_the_receipt_of_a_minute_is_taken_in_when_the_minute_is_over(db):
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) VALUES"
               " ('a', 'e', 'a', 'archive')")
    db.execute("DELETE FROM event_payloads WHERE id = 'a'")
    head(db)
    assert log(db) == []
    db.execute("UPDATE blackbox__open SET minute = minute - 3")
    head(db)
    assert log(db) == ["removal"] and problems(db) == []
    assert rows(db, "SELECT * FROM blackbox__open") == []


def test_the_proof_is_a_part_of_core(path):
    db = connect(path)
    assert one(db, "SELECT blackbox_install('main', 'proof')") == "main: core"
    write(db, 2)
    head(db)
    assert log(db) == ["note", "note"] and problems(db) == []
    with pytest.raises(sqlite3.DatabaseError, match="NotFoundError"):
        proof_of(db, "evidence", "x")
    one(db, "SELECT blackbox_install()")
    evidence(db)
    head(db)
    assert log(db) == ["note", "note", "pin"] and problems(db) == []
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_pins_of_a_domain_that_was_removed_are_proved_by_their_leaves(db):
    evidence(db)
    head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads")
    one(db, "SELECT blackbox_uninstall('main', 'payload', 'force')")
    head(db)
    assert problems(db) == []


def test_a_head_can_be_read_without_writing(db, path):
    evidence(db)
    read = load(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None))
    assert "\n0\n" in head(read)
    assert head(db).split("\n")[1] == "1"
    assert head(read) == head(db)
    with pytest.raises(sqlite3.OperationalError, match="NotInstalled"):
        head(connect())


def test_a_head_in_a_transaction_waits_for_no_one_if_it_has_nothing_to_do(db, path):
    evidence(db)
    noted = head(db)
    other = connect(path, timeout=0)
    db.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN")
    assert head(other) == noted
    other.execute("COMMIT")
    db.execute("COMMIT")


@pytest.mark.parametrize("harm", [
    "DROP TABLE blackbox__tree", "DROP TABLE blackbox__leaves",
    "UPDATE blackbox__tree SET frontier = x'00'", "DELETE FROM blackbox__tree",
    "INSERT INTO blackbox__leaves VALUES(0, x'00', 0)"])
def test_a_damaged_tree_does_not_stop_a_kill_switch(db, harm):
    ring(db)
    db.execute(harm)
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 2
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 2
    assert rows(db, "SELECT * FROM blackbox_check") != []
    if harm.startswith("D") and "nodes" not in harm:  # nodes are not needed yet
        with pytest.raises(sqlite3.DatabaseError):
            head(db)


def test_a_trigger_of_the_user_that_refuses_a_leaf_leaves_the_rows_waiting(db):
    ring(db)
    db.execute("CREATE TRIGGER mine BEFORE INSERT ON blackbox__leaves WHEN NEW.leaf = 2"
               " BEGIN SELECT RAISE(ABORT, 'no'); END")
    assert ("main", "blackbox__leaves") in [r[:2] for r in rows(db, "SELECT * FROM blackbox_check")]
    for begin, end in (("BEGIN", "COMMIT"), ("SELECT 1", "SELECT 1")):
        db.execute(begin)
        assert one(db, "SELECT payload_kill_switch('ring', 'a', ?)", begin) in (0, 2)
        db.execute(end)
        assert log(db) == [] and one(db, "SELECT count(*) FROM blackbox__leaves WHERE leaf >= 0") == 0
    db.execute("DROP TRIGGER mine")
    head(db)
    assert log(db)[:3] == PINNED and problems(db) == []


def test_a_trigger_of_the_user_that_rolls_back_makes_the_call_fail(db):
    ring(db)
    db.execute("CREATE TRIGGER mine BEFORE INSERT ON blackbox__leaves"
               " BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
    with pytest.raises(sqlite3.DatabaseError, match="no"):
        one(db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert one(db, "SELECT count(*) FROM event_payloads") == 0


def test_salts_are_new_for_each_row(db):
    write(db, 300)
    assert one(db, "SELECT count(DISTINCT salt) FROM blackbox__log WHERE length(salt) = 16") == 300


LOOP = [{"role": "user", "content": "go"}]


def looping(db, event, calls):
    steps = [step for i in range(calls) for step in (
        {"role": "assistant", "tool_calls": [
            {"id": f"c{i}", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": f"c{i}", "content": "same"})]
    db.execute(PUSH.format("ring"), (event, json.dumps({"messages": LOOP + steps}), 9000))


@pytest.mark.parametrize("mode", ["record", "kill_switch"])
def test_a_verdict_and_what_it_does_have_leaves(db, mode):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', ?)", (mode,))
    db.execute(RING.format("ring"))
    for n in range(1, 6):
        looping(db, f"e{n}", n)
    assert size(db) == one(db, "SELECT count(*) FROM blackbox__log") == len(log(db)) > 0
    assert "verdict" in log(db) and ("pin" in log(db)) == (mode == "kill_switch")
    assert problems(db) == []


def test_a_size_that_was_set_back_is_mended_and_told(db):
    write(db, 5)
    head(db)
    db.execute("UPDATE blackbox__tree SET size = 4, frontier = substr(frontier, 1, 32)")
    write(db, 1)
    one(db, "SELECT payload_clear_archive()")
    assert size(db) == 7 and "blackbox__tree had been damaged" in problems(db)[0][3]
