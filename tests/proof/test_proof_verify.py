"""proof_verify() finds what was done to a file behind its guards."""
import shutil
import sqlite3

import pytest

from conftest import connect, one, rows
from proof_helpers import (enable, evidence, head, problems, proof_of, sha, unguarded, verdicts,
                           verify)


@pytest.fixture(scope="module")
def original(installed, tmp_path_factory):
    """A log with 4 rows of evidence, one of them unpinned, a receipt and a verdict."""
    path = tmp_path_factory.mktemp("original") / "test.db"
    shutil.copyfile(installed, path)
    db = enable(connect(path))
    evidence(db, 4)
    verdicts(db, 1)
    head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e3'")
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at)"
               " VALUES('old', 'a', 'archive', '2001-01-01')")
    one(db, "SELECT payload_cleanup()")
    assert problems(db) == [] and one(db, "SELECT size FROM proof_state") == 11
    db.close()
    return path


@pytest.fixture
def kept(original, path):
    shutil.copyfile(original, path)
    return path


def told(path, noted=None):
    """The first problem: its leaf, kind, and words."""
    db = connect(path)
    found = problems(db, noted)
    db.close()
    return found[0] if found else None


# what is done, and the leaf, kind and words of the first problem
FORGED = [
    ("UPDATE event_payloads SET request_body = 'bodx 1' WHERE event_id = 'e1'",
     3, "evidence", "was altered"),
    ("UPDATE event_payloads SET created_at = '2020-01-01' WHERE event_id = 'e0'",
     1, "evidence", "was altered"),
    ("UPDATE payload_ledger SET token = token + 1 WHERE pin = 2", 2, "pin", "was altered"),
    ("UPDATE payload_ledger SET reason = 'another' WHERE pin = 4", 9, "unpin", "was altered"),
    ("UPDATE retention_log SET actor = 'another'", 10, "receipt", "was altered"),
    ("UPDATE payload_verdicts SET sentence = 'no loop'", 8, "verdict", "was altered"),
    ("DELETE FROM event_payloads WHERE event_id = 'e1'", 3, "evidence", "was removed outside"),
    ("DELETE FROM payload_ledger WHERE pin = 3", 4, "pin", "was removed outside"),
    ("DELETE FROM retention_log", 10, "receipt", "was removed outside"),
    ("DELETE FROM payload_verdicts", 8, "verdict", "was removed outside"),
    ("UPDATE payload_ledger SET at = NULL WHERE pin = 4", 9, "unpin", "was removed outside"),
    ("UPDATE proof_salts SET salt = zeroblob(32) WHERE leaf = 1", 1, "evidence", "was altered"),
    ("UPDATE proof_salts SET salt = x'00' WHERE leaf = 1", 1, "evidence", "salt is damaged"),
    ("UPDATE proof_salts SET leaf = 5 WHERE leaf = 3", 3, "evidence", "salt is that of another"),
    ("DELETE FROM proof_salts WHERE leaf = 3", 3, "evidence", "its salt was removed"),
    ("DELETE FROM proof_salts WHERE leaf = 2", 2, "pin", "its salt was removed"),
    ("DELETE FROM proof_salts WHERE leaf = 10", 10, "receipt", "its salt was removed"),
    ("UPDATE proof_leaves SET mark = zeroblob(32) WHERE leaf = 4", 4, "pin", "was altered"),
    ("UPDATE proof_leaves SET at = at + 1 WHERE leaf = 4", 0, None, "leaves from this one on"),
    ("UPDATE proof_leaves SET mark = zeroblob(32) WHERE leaf = 7", 0, None,
     "leaves from this one on"),
    ("UPDATE proof_leaves SET mark = x'00' WHERE leaf = 4", 4, None, "leaf is damaged"),
    ("UPDATE proof_leaves SET thing = thing + 8 WHERE leaf = 4", 4, "pin",
     "salt is that of another"),
    ("UPDATE proof_leaves SET thing = 1000 WHERE leaf = 4", 4, None, "leaf is damaged"),
    ("DELETE FROM proof_leaves WHERE leaf = 4", 4, None, "leaf is missing"),
    ("DELETE FROM proof_leaves WHERE leaf = 10", 10, None, "leaf is missing, and all after"),
    ("UPDATE proof_leaves SET leaf = CASE leaf WHEN 2 THEN -2 WHEN 4 THEN -4 ELSE leaf END",
     2, None, "leaf is missing"),
    ("UPDATE proof_state SET frontier = substr(frontier, 33) || substr(frontier, 1, 32)", 0, None,
     "leaves from this one on"),
    ("INSERT INTO proof_salts VALUES(999 * 8 + 1, 3, zeroblob(32))", None, None, "salts for"),
    ("UPDATE payload_ledger SET pin = 1000 WHERE pin = 3", 4, "pin", "was removed outside"),
    ("INSERT INTO retention_log(id, at, domain, rule, rows, bytes) VALUES(0, 1, 'd', 'r', 1, 1)",
     None, "receipt", "has no leaf: it was put in"),
    ("UPDATE payload_ledger SET at = 5, actor = 'x' WHERE pin = 1", None, "unpin",
     "has no leaf: it was put in"),
]


@pytest.mark.parametrize("sql, leaf, kind, words", FORGED)
def test_what_is_done_behind_the_guards_is_found(kept, sql, leaf, kind, words):
    unguarded(kept, sql)
    first = told(kept)
    assert first[:2] == (leaf, kind) and words in first[3], first


def test_blackbox_check_lists_what_is_wrong_with_the_log(kept):
    unguarded(kept, "UPDATE event_payloads SET created_at = '2020-01-01' WHERE rowid = 2")
    db = connect(kept)
    assert ("main", "proof_leaves") in [r[:2] for r in rows(db, "SELECT * FROM blackbox_check")]


def swap(path, first, second, with_salts):
    """Exchanges two leaves."""
    unguarded(path, *(sql.format(first, second) for sql in [
        "UPDATE proof_leaves SET leaf = -1 WHERE leaf = {0}",
        "UPDATE proof_leaves SET leaf = {0} WHERE leaf = {1}",
        "UPDATE proof_leaves SET leaf = {1} WHERE leaf = -1"] + with_salts * [
            "UPDATE proof_salts SET leaf = CASE leaf WHEN {0} THEN {1} ELSE {0} END"
            " WHERE leaf IN ({0}, {1})"]))


def test_a_swapped_pair_is_found(kept):
    swap(kept, 2, 4, False)
    assert told(kept)[:2] == (2, "pin")


def test_a_swapped_pair_with_its_salts_is_found_by_the_root(kept):
    swap(kept, 2, 4, True)
    assert told(kept)[0] == 0 and "altered, or exchanged" in told(kept)[3]


def test_evidence_put_in_by_plain_sql_is_found_as_waiting(kept):
    db = sqlite3.connect(kept, isolation_level=None)
    evidence(db, 2)
    db.close()
    leaf, kind, key, words = told(kept)
    assert (leaf, kind, key) == (None, "pin", 5) and "has no leaf yet, nor have 1" in words


def test_an_unpin_by_plain_sql_is_found_as_waiting(kept):
    db = sqlite3.connect(kept, isolation_level=None)
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) SELECT id, 'me', 'why'"
               " FROM payload_pins LIMIT 1")
    db.execute("DELETE FROM event_payloads WHERE pinned = 0")  # by the rules
    db.close()
    db = connect(kept)
    assert [p[:3] for p in problems(db)] == [(None, None, None)]
    head(db)
    assert problems(db) == []


def forged_log(db):
    """What somebody does who rewrites everything: a new tree over what there is now."""
    hashes = []
    for leaf, thing, at, mark in rows(
            db, "SELECT leaf, thing, at, mark FROM proof_leaves ORDER BY leaf"):
        entry = bytes([thing & 7]) + (thing >> 3).to_bytes(8, "big") + at.to_bytes(8, "big") + mark
        hashes.append(sha(b"\0", entry))
    frontier, left = b"", hashes
    while left:
        k = 1 << len(left).bit_length() - 1
        part, left = left[:k], left[k:]
        while len(part) > 1:
            part = [sha(b"\1", part[i], part[i + 1]) for i in range(0, len(part), 2)]
        frontier += part[0]
    return len(hashes), frontier


def rewrite(path, leaves):
    """Alters pin 2 with its leaf, keeps so many leaves, and makes the tree anew."""
    db = sqlite3.connect(path, isolation_level=None)
    token = one(db, "SELECT token FROM payload_ledger WHERE pin = 2")
    salt = one(db, "SELECT salt FROM proof_salts WHERE leaf = 2")
    content = sha(b"\1" + (2).to_bytes(8, "big"), b"\3" + (5).to_bytes(8, "big") + b"other",
                  b"\1" + token.to_bytes(8, "big"))
    unguarded(path, "UPDATE payload_ledger SET id = 'other' WHERE pin = 2",
              "UPDATE event_payloads SET id = 'other' WHERE event_id = 'e1'",
              ("UPDATE proof_leaves SET mark = ? WHERE leaf = 2", sha(salt, content)))
    if leaves < 11:
        unguarded(path, ("DELETE FROM proof_leaves WHERE leaf >= ?", leaves),
                  ("DELETE FROM proof_salts WHERE leaf >= ?", leaves))
    unguarded(path, ("UPDATE proof_state SET size = ?, frontier = ?", *forged_log(db)))
    db.close()


def test_a_rewrite_of_the_same_length_is_found_with_a_noted_head_alone(kept):
    db = connect(kept)
    noted = head(db)
    db.close()
    rewrite(kept, 11)
    db = connect(kept)
    assert head(db) != noted and head(db).split("\n")[1] == noted.split("\n")[1]
    assert [p[:2] for p in problems(db)] == [(3, "evidence")]  # the row has another id
    found = problems(db, noted)
    assert len(found) == 1 and "not those of the head: the log was rewritten" in found[0][3]
    with pytest.raises(sqlite3.DatabaseError, match="ProofError: there is no such proof"):
        one(db, "SELECT proof_of('head', ?)", noted)


def test_a_tail_that_was_cut_is_found_with_a_noted_head(kept):
    db = connect(kept)
    noted = head(db)
    db.close()
    rewrite(kept, 10)
    unguarded(kept, "DELETE FROM retention_log", "UPDATE proof_state SET receipts = 0")
    db = connect(kept)
    assert "its end was cut off" in problems(db, noted)[0][3]


def test_an_old_head_of_another_log_is_found(kept):
    other = "blackbox/other\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
    assert "is of the log blackbox/other" in told(kept, other)[3]


def test_since_a_noted_head_only_what_is_new_is_read(kept):
    db = connect(kept)
    noted = head(db)
    evidence(db, 2)
    head(db)
    db.close()
    unguarded(kept, "UPDATE event_payloads SET request_body = 'x' WHERE rowid = 2")
    assert told(kept, noted) is None
    assert told(kept)[:2] == (3, "evidence")
    unguarded(kept, "UPDATE event_payloads SET request_body = 'x' WHERE rowid = 6")
    assert told(kept, noted)[:2] == (14, "evidence")


def test_a_signature_after_the_head_is_not_read(db):
    enable(db)
    verdicts(db, 3)
    noted = head(db)
    assert problems(db, noted + "\n\u2014 me Az3grl...\n") == []


@pytest.mark.parametrize("bad", [
    "", "x", "o\n1\n", "o\n01\n" + "A" * 43 + "=\n", "o\n1\n" + "A" * 42 + "B=\n", "\n1\nx\n",
    "o\n-1\n" + "A" * 43 + "=\n", "o\n1\n" + "A" * 43 + "=x\n", "o" * 201 + "\n0\nx\n"])
def test_what_is_no_head_is_refused(db, bad):
    with pytest.raises(sqlite3.DatabaseError, match="ValidationError: head must be"):
        problems(db, bad)


@pytest.mark.parametrize("kind, key, error", [
    ("pin", 99, "NotFoundError"), ("pin", 0, "ValidationError"), ("pin", "x", "ValidationError"),
    ("evidence", "x", "NotFoundError"), ("evidence", None, "ValidationError"),
    ("row", 1, "ValidationError: kind must be"), ("leaf", 11, "ValidationError"),
    ("head", "x", "ValidationError: head must be"), (None, 1, "ValidationError: kind")])
def test_a_proof_of_what_is_not_in_the_log_is_refused(kept, kind, key, error):
    db = connect(kept)
    with pytest.raises(sqlite3.DatabaseError, match=error):
        one(db, "SELECT proof_of(?, ?)", kind, key)


def test_no_proof_is_made_of_what_was_altered(kept):
    unguarded(kept, "UPDATE event_payloads SET request_body = 'x' WHERE event_id = 'e1'")
    db = connect(kept)
    row = one(db, "SELECT id FROM event_payloads WHERE event_id = 'e1'")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: evidence 2 is not what"):
        one(db, "SELECT proof_of('evidence', ?)", row)
    assert verify.verify([proof_of(db, "leaf", 0)])


def test_a_state_that_is_damaged_is_told(kept):
    unguarded(kept, "UPDATE proof_state SET frontier = x''")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: the row of proof_state"):
        told(kept)
    db = connect(kept)
    assert any("proof_state" in r[2] for r in rows(db, "SELECT * FROM blackbox_check"))


def test_no_more_problems_are_listed_than_somebody_reads(db, path):
    enable(db)
    verdicts(db, 400)
    head(db)
    db.close()
    unguarded(path, "UPDATE payload_verdicts SET sentence = 'x'")
    db = connect(path)
    assert len(problems(db)) == 100
