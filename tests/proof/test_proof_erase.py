"""A field of the log can be erased, and the leaf of its row still verifies."""
import json

import pytest

from conftest import one, rows, run_program
from proof_helpers import check, dossier, evidence, head, problems, proof_of, sha, write


def erase(db, n, *names, by="bob"):
    """What bxLogErase() does, as the manual says it."""
    proof = proof_of(db, "row", n)
    for field in proof["fields"]:
        if field["type"] == 5:
            continue
        gone = field["name"] in names
        db.execute("INSERT INTO blackbox__erased VALUES(?, ?, ?, ?, ?)", (
            n, field["name"], field["type"] if gone else None,
            None if gone else bytes.fromhex(field["salt"]),
            bytes.fromhex(field["hash"]) if gone else None))
    db.execute("INSERT INTO blackbox__log(domain, kind, subject, detail) VALUES"
               "('core', 'erasure', 'row:' || ?, json_object('fields', json(?)))",
               (n, json.dumps(names)))
    db.execute("INSERT INTO blackbox__log(domain, kind, detail, actor, reason) VALUES"
               "('retention', 'erasure', '{\"kind\":\"text\"}', ?, 'asked')", (by,))
    head(db)
    db.execute("UPDATE blackbox__log SET salt = x'' WHERE n = ?", (n,))
    for name in names:
        if not name.startswith("row."):
            db.execute(f"UPDATE blackbox__log SET {name} = NULL WHERE n = ?", (n,))


def test_the_module_erases_a_field_and_the_leaf_verifies(tmp_path):
    run_program("vectors", tmp_path)


@pytest.mark.parametrize("names", [["actor"], ["reason", "actor"]])
def test_an_erased_field_keeps_its_hash(db, names):
    write(db, 3)
    noted = head(db)
    before = proof_of(db, "row", 2)
    erase(db, 2, *names)
    assert problems(db) == [] and problems(db, noted) == []
    after = proof_of(db, "row", 2)
    assert after["hash"] == before["hash"]
    assert check(dossier(db), everything=True)[1:] == ["ERASED: actor of row 2, see row None"]
    for field in after["fields"]:
        assert field["type"] == 5 or (field["salt"] is None) == (field["name"] in names)


def test_an_erased_field_cannot_be_guessed(db):
    write(db, 1)
    head(db)
    salt = one(db, "SELECT salt FROM blackbox__log")
    erase(db, 1, "actor")
    found = [f["hash"] for f in proof_of(db, "row", 1)["fields"] if f["name"] == "actor"]
    assert found == [sha(sha(salt, b"actor"), b"\3me").hex()]
    assert salt not in [value for row in rows(db, "SELECT salt FROM blackbox__erased") for value in row]


@pytest.mark.parametrize("forged", [
    "UPDATE blackbox__log SET actor = 'another' WHERE n = 1",
    "UPDATE blackbox__log SET subject = 'another' WHERE n = 1",
    "UPDATE blackbox__erased SET hash = zeroblob(32) WHERE name = 'actor'",
    "UPDATE blackbox__erased SET salt = zeroblob(32) WHERE name = 'kind'",
    "UPDATE blackbox__erased SET type = 1 WHERE name = 'actor'",
    "DELETE FROM blackbox__erased WHERE name = 'rows'",
    "UPDATE blackbox__log SET salt = randomblob(16) WHERE n = 1"])
def test_what_is_forged_of_an_erased_row_is_found(db, forged):
    write(db, 1)
    head(db)
    erase(db, 1, "actor")
    assert problems(db) == []
    db.execute(forged)
    assert [p[2] for p in problems(db)] == [1]


def test_an_erasure_that_does_not_say_by_whom_is_none(db):
    write(db, 1)
    noted = head(db)
    write(db, 1)
    head(db)
    erase(db, 2, "actor", by=None)
    for found in problems(db), problems(db, noted):
        assert [p[2:] for p in found] == [(2, "blackbox__erased has fields of it, and no row of "
                                          "the log says that they were erased")]


def test_no_field_of_pinned_evidence_is_erased(db):
    evidence(db)
    head(db)
    db.execute("DROP TRIGGER payload_guard")
    erase(db, 1, "row.request_body", "agent_id")
    db.execute("UPDATE event_payloads SET request_body = NULL")
    assert [p[2] for p in problems(db)] == [1]
