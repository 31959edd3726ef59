"""Steps of holds and erasures have leaves; what was erased leaves no salt."""
import json
import sqlite3

import pytest

from conftest import connect, one, rows
from proof_helpers import (dossier, enable, evidence, head, log, problems, proof_of, unguarded,
                           verify)

ERASE = "SELECT blackbox_erase('agent', 'a', 'clerk', 'request 9', '{\"unpin\":true}')"


@pytest.mark.parametrize("begin", ["SELECT 1", "BEGIN"])
def test_the_steps_of_a_hold_have_leaves_in_their_own_transaction(db, begin):
    enable(db)
    db.execute(begin)
    one(db, "SELECT retention_hold('agent', 'a', 'case 7', 'clerk', 'asked for')")
    assert log(db) == [("hold", 1, 1)]
    one(db, "SELECT retention_release('agent', 'a', 'case 7', 'clerk', 'closed')")
    assert log(db) == [("hold", 1, 1), ("hold", 2, 1)]
    assert problems(db) == [] and proof_of(db, "hold", 2)["leaf"] == 1


def test_a_hold_by_plain_sql_waits(db, path):
    enable(db)
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("INSERT INTO retention_holds(kind, \"key\", owner, actor, reason)"
                  " VALUES('session', 'x', 'case 7', 'clerk', 'asked for')")
    plain.close()
    assert rows(db, "SELECT * FROM proof_pending") == [("hold", 1, 1)]
    head(db)
    assert log(db) == [("hold", 1, 1)] and problems(db) == []


def test_an_erasure_closes_the_leaves_of_what_it_removes(db, path):
    enable(db)
    evidence(db, 2)
    noted = head(db)
    known = [proof_of(db, "leaf", i) for i in (1, 3)]
    one(db, ERASE)
    assert log(db) == [("pin", 1, 1), ("evidence", 1, 0), ("pin", 2, 1), ("evidence", 2, 0),
                       ("unpin", 2, 1), ("unpin", 1, 1), ("erasure", 1, 1)]
    assert problems(db) == problems(db, noted) == []
    assert verify.verify(dossier(db, noted), verify.read_head(noted), True)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    db.close()
    file = path.read_bytes()
    for proof in known:
        assert bytes.fromhex(proof["salt"]) not in file
        assert bytes.fromhex(proof["commitment"]) in file


@pytest.mark.parametrize("sql, kind", [
    ("UPDATE retention_hold_log SET reason = 'another'", "hold"),
    ("DELETE FROM retention_hold_log", "hold"),
    ("UPDATE retention_erasures SET actor = 'another'", "erasure"),
    ("DELETE FROM retention_erasures", "erasure")])
def test_a_step_or_an_erasure_that_was_altered_or_removed_is_found(db, path, sql, kind):
    enable(db)
    one(db, "SELECT retention_hold('session', 'x', 'case 7', 'clerk', 'asked for')")
    one(db, "SELECT blackbox_erase('event', 'nothing', 'clerk', 'request 9')")
    assert problems(db) == []
    db.close()
    unguarded(path, sql)
    db = connect(path)
    assert [p[1] for p in problems(db)] == [kind]


def test_a_kill_switch_under_a_hold_has_its_leaves(db):
    enable(db)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    one(db, "SELECT retention_hold('agent', 'a', 'case 7', 'clerk', 'asked for')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    assert log(db) == [("hold", 1, 1), ("pin", 1, 1), ("evidence", 1, 1)]
    assert problems(db) == []
    assert json.loads(one(db, "SELECT proof_of('evidence', id) FROM event_payloads"))["leaf"] == 2
