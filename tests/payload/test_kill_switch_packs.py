"""A kill switch with payload.pack: its rows are packed before they are written."""
import json
import random
import sqlite3

import pytest

from conftest import by_hand, one, problems, rows
from payload_helpers import push, setting

pytestmark = pytest.mark.all_domains  # the body store is another domain


def words(seed, n):
    """Text of about n bytes."""
    make = random.Random(seed)
    return " ".join("".join(make.choices("abcdefghij", k=make.randint(2, 8)))
                    for _ in range(n // 6))


def packed(db):
    return [row[0] for row in db.execute(
        "SELECT event_id FROM event_payloads WHERE substr(request_body, 1, 4) = x'b1627801'"
        " ORDER BY event_id")]


def talk(db, n=6, agent="a", ring="ring"):
    """Pushes a conversation. Returns its requests."""
    texts = [json.dumps({"messages": [words(i, 9000) for i in range(k + 1)]}) for k in range(n)]
    for k, text in enumerate(texts):
        push(db, agent, f"e{k}", text, f"answer {k} " * 20, ring=ring)
    return texts


@pytest.mark.parametrize("schema", ["main", "temp"])
def test_a_kill_switch_packs_what_it_saves(db, schema):
    db.execute(f"CREATE VIRTUAL TABLE {schema}.r USING payload_ring")
    setting(db, "pack", 1)
    texts = talk(db, ring=f"{schema}.r")
    push(db, "a", "short", "tiny", None, ring=f"{schema}.r")
    push(db, "a", "number", 42, None, ring=f"{schema}.r")
    assert one(db, "SELECT payload_kill_switch('r', 'a', 'k')") == 8
    found = rows(db, "SELECT event_id, typeof(request_body), size_bytes, pinned, created_ms > 0"
                     " FROM event_payloads ORDER BY rowid")
    assert [row[:2] for row in found] == [(f"e{k}", "blob") for k in range(6)] + [
        ("short", "text"), ("number", "text")]
    assert [row[2] for row in found[:6]] == [
        len(text) + 20 * len(f"answer {k} ") for k, text in enumerate(texts)]
    assert rows(db, "SELECT request_body, response_body FROM payload_rows ORDER BY rowid") == [
        (text, f"answer {k} " * 20) for k, text in enumerate(texts)] + [
            ("tiny", None), ("42", None)]
    assert one(db, "SELECT kept_bytes FROM store__state") < sum(map(len, texts)) / 3
    assert one(db, "SELECT sum(bytes) = (SELECT packed FROM payload__state) FROM payload__packed")
    assert one(db, "SELECT pack = (SELECT max(rowid) FROM event_payloads) FROM payload__state")
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_verify()") == []


def test_a_kill_switch_packs_no_blob_and_nothing_that_is_archived(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    same = words(1, 3000)
    push(db, "a", "blob", b"\x00blob" * 600, "text " * 100)
    push(db, "a", "same", same, "r")
    push(db, "a", "new", words(2, 3000), "r")
    db.executemany("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body,"
                   " purpose) VALUES(?, 'a', ?, 'r', 'archive')",
                   [("same", same), ("other", words(3, 3000))])
    setting(db, "pack", 1)
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 3
    assert rows(db, "SELECT event_id, typeof(request_body),"
                    " substr(request_body, 1, 4) = x'b1627801' FROM event_payloads WHERE pinned"
                    " ORDER BY event_id") == [
        ("blob", "blob", 0), ("new", "blob", 1), ("same", "text", 0)]
    assert one(db, "SELECT request_body = CAST(? AS BLOB) FROM payload_rows"
                   " WHERE event_id = 'blob'", b"\x00blob" * 600)
    assert one(db, "SELECT pack FROM payload__state") == 0  # other waits to be packed
    one(db, "SELECT payload_pack()")
    assert packed(db) == ["blob", "new", "other", "same"]
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_verify()") == []


def test_a_damaged_store_does_not_stop_a_kill_switch(db, path):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    setting(db, "pack", 1)
    talk(db)
    by_hand(path, "UPDATE store__state SET next = -1")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 6
    assert packed(db) == []
    assert rows(db, "SELECT rule FROM retention_refusals") == [("payload.pack",)]
    assert one(db, "SELECT count(*) FROM payload_pins") == 6
    assert rows(db, "SELECT * FROM proof_verify()") == []


def test_a_kill_switch_fills_several_packs(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    setting(db, "pack", 1)
    bodies = [words(i, 30000) for i in range(30)]
    for i, body in enumerate(bodies):
        push(db, f"a{i % 2}", f"e{i}", body, None)
    assert one(db, "SELECT payload_kill_switch('ring', 'a0', 'k')") == 15
    assert one(db, "SELECT payload_kill_switch('ring', 'a1', 'l')") == 15
    assert one(db, "SELECT count(*) FROM store__packs WHERE pack > 0") > 2
    assert {row[0] for row in db.execute("SELECT request_body FROM payload_rows")} == set(bodies)
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_verify()") == []


def test_a_kill_switch_that_fails_leaves_no_row_for_the_next(db):
    """Rows that waited for others are gone: the statement that writes them is used again."""
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    setting(db, "pack", 1)
    fails = [True]

    def store_text(value):
        if fails[0]:
            raise ValueError("refused")
        return value

    db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
               " VALUES('e2', 'a', ?, 'archive')", (words(2, 3000),))
    for i in range(4):
        push(db, "a", f"e{i}", words(i, 3000), None)
    push(db, "b", "other", words(9, 3000), None)
    db.create_function("store_text", 1, store_text)
    with pytest.raises(sqlite3.OperationalError):
        one(db, "SELECT payload_kill_switch('ring', 'a', 'k1')")
    fails[0] = False
    assert one(db, "SELECT payload_kill_switch('ring', 'b', 'k2')") == 1
    assert rows(db, "SELECT event_id, kill_switch_event_id FROM event_payloads WHERE pinned") == [
        ("other", "k2")]
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k3')") == 4
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 5


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "setlimit"), reason="Python 3.11 sets limits")
def test_a_host_that_limits_parameters_saves_rows_one_by_one(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    setting(db, "pack", 1)
    texts = talk(db)
    db.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 10)
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 6
    assert len(packed(db)) == 6
    assert [row[0] for row in rows(db, "SELECT request_body FROM payload_rows ORDER BY rowid")] == texts
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_verify()") == []
