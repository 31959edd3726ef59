"""proof_verify() finds what was done to a file behind its guards."""
import shutil
import sqlite3

import pytest

from conftest import connect, one, rows
from proof_helpers import (evidence, head, problems, proof_of, receipts, size, unguarded, write)

OLD = 1_600_000_000_000 // 86_400_000 * 86_400_000  # the beginning of a day in 2020


@pytest.fixture(scope="module")
def original(installed, tmp_path_factory):
    """Rows 1 and 2 pin evidence; 3 pinned what row 4 unpinned; 5 to 300 are notes. Of the receipts
    301 to 310 row 312 is the sum."""
    path = tmp_path_factory.mktemp("original") / "test.db"
    shutil.copyfile(installed, path)
    db = connect(path)
    evidence(db, 3)
    head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e2'")
    write(db, 296)
    receipts(db, OLD, 10)
    write(db, 1)
    head(db)
    assert rows(db, "SELECT first, last FROM blackbox__folded") == [(300, 309)]
    assert problems(db) == [] and size(db) == 312
    db.close()
    return path


@pytest.fixture
def kept(original, path):
    shutil.copyfile(original, path)
    return path


def told(path, noted=None):
    db = connect(path)
    found = problems(db, noted)
    db.close()
    return found


HASH = "zeroblob(32)"
# what is done, and the leaf, kind, number and words of the first problem
FORGED = [
    # rows of the log
    ("UPDATE blackbox__log SET actor = 'another' WHERE n = 7", 6, "note", 7, "was altered"),
    ("UPDATE blackbox__log SET rows = rows + 1 WHERE n = 7", 6, "note", 7, "was altered"),
    ("UPDATE blackbox__log SET rows = x'33' WHERE n = 7", 6, "note", 7, "was altered"),
    ("UPDATE blackbox__log SET at = at + 1 WHERE n = 300", 299, "note", 300, "was altered"),
    ("UPDATE blackbox__log SET salt = randomblob(16) WHERE n = 7", 6, "note", 7, "was altered"),
    ("UPDATE blackbox__log SET salt = x'' WHERE n = 7", 6, "note", 7, "was altered"),
    ("UPDATE blackbox__log SET reason = 'another' WHERE n = 4", 3, "unpin", 4, "was altered"),
    ("UPDATE blackbox__log SET agent_id = 'b' WHERE n = 1", 0, "pin", 1, "was altered"),
    ("UPDATE blackbox__log SET rows = 21 WHERE n = 312", 311, "removal", 312, "was altered"),
    ("DELETE FROM blackbox__log WHERE n = 7", 6, None, 7, "was removed"),
    ("DELETE FROM blackbox__log WHERE n = 1", 0, None, 1, "was removed"),
    ("DELETE FROM blackbox__log WHERE n = 312", 311, None, 312, "was removed"),
    ("DELETE FROM blackbox__log WHERE n = 311", 310, None, 311, "was removed"),
    ("UPDATE blackbox__log SET n = 5000 WHERE n = 7", 6, None, 7, "was removed"),
    ("INSERT INTO blackbox__log(n, domain) VALUES(305, 'user')",
     304, "removal", 305, "is there, though"),
    # the rows that pins are on
    ("UPDATE event_payloads SET request_body = 'bodx 1' WHERE event_id = 'e1'",
     1, "pin", 2, "was altered"),
    ("UPDATE event_payloads SET request_body = CAST(request_body AS BLOB) WHERE event_id = 'e1'",
     1, "pin", 2, "was altered"),
    ("UPDATE event_payloads SET created_at = '2020-01-01' WHERE event_id = 'e0'",
     0, "pin", 1, "was altered"),
    ("UPDATE event_payloads SET response_body = request_body, request_body = NULL"
     " WHERE event_id = 'e1'", 1, "pin", 2, "was altered"),
    ("UPDATE event_payloads SET id = 'other' WHERE event_id = 'e1'", 1, "pin", 2, "is missing"),
    ("DELETE FROM event_payloads WHERE event_id = 'e1'", 1, "pin", 2, "is missing"),
    ("DELETE FROM payload__pins WHERE n = 2", 1, "pin", 2, "is missing"),
    ("UPDATE payload__pins SET n = 9 WHERE n = 2", 1, "pin", 2, "is missing"),
    ("INSERT INTO payload__pins(id, n) VALUES('x', 900)", None, None, 900, "payload__pins has"),
    ("INSERT INTO payload__pins(id, n) SELECT id, 3 FROM event_payloads WHERE event_id = 'e2'",
     2, "pin", 3, "has ended by the log"),
    # the tree
    (f"UPDATE blackbox__leaves SET hash = {HASH} WHERE leaf = 7", 7, "note", 8, "was altered"),
    (f"UPDATE blackbox__leaves SET hash = {HASH} WHERE leaf = 2", 0, None, None, "this one to 255"),
    ("UPDATE blackbox__leaves SET hash = x'00' WHERE leaf = 7", 7, None, None, "leaf is damaged"),
    ("DELETE FROM blackbox__leaves WHERE leaf = 7", 7, None, None, "leaf is missing"),
    ("DELETE FROM blackbox__leaves WHERE leaf > 200", 201, None, None, "this one to 311"),
    ("UPDATE blackbox__leaves SET leaf = -1 WHERE leaf = 7", 0, "pin", 1, "does not count"),
    (f"INSERT INTO blackbox__leaves VALUES(312, {HASH}, 9)", 312, None, None, "beyond the size"),
    (f"UPDATE blackbox__leaves SET hash = {HASH} WHERE leaf < 0", 0, None, None,
     "leaves from this one to 255"),
    ("DELETE FROM blackbox__leaves WHERE leaf < 0", 0, None, None, "leaves from this one to 255"),
    (f"INSERT INTO blackbox__leaves VALUES(-(1 << 48) - 1, {HASH}, NULL)", None, None, None,
     "more or few"),
    ("UPDATE blackbox__tree SET frontier = substr(frontier, 33) || substr(frontier, 1, 32)",
     256, None, None, "the root that is stored"),
    ("UPDATE blackbox__tree SET size = 304, frontier = substr(frontier, 1, 96)",
     304, None, None, "beyond the size"),
    ("UPDATE blackbox__tree SET size = 319, frontier = frontier || zeroblob(96)",
     312, None, None, "this one to 318 are missing"),
    # what is folded
    ("INSERT INTO blackbox__folded(first, last, kept) VALUES(6, 6, 7)", 6, "note", 7,
     "is there, though"),
    ("UPDATE blackbox__folded SET last = last + 1", 310, "note", 311, "is there, though"),
    ("UPDATE blackbox__folded SET first = 301", 300, None, 301, "was removed"),
    ("DELETE FROM blackbox__folded", 300, None, 301, "was removed"),
    ("INSERT INTO blackbox__folded(first, last, kept) VALUES(900, 902, 7)", None, None, None,
     "has 3 leaves more"),
]


@pytest.mark.parametrize("sql, leaf, kind, n, words", FORGED)
def test_what_is_done_behind_the_guards_is_found(kept, sql, leaf, kind, n, words):
    unguarded(kept, sql)
    first = told(kept)[0]
    assert first[:3] == (leaf, kind, n) and words in first[3], first


def test_a_row_that_was_removed_as_if_it_were_folded_is_found(kept):
    unguarded(kept, "DELETE FROM blackbox__log WHERE n = 7",
              "INSERT INTO blackbox__folded(first, last, kept) VALUES(6, 6, 7)")
    assert [p[3] for p in told(kept)] \
        == ["is not what blackbox__folded has of the last leaf of its range",
            "blackbox__folded has 1 leaves more than the sums of receipts stand for",
            "was folded, and the sum of its rule and day is not there, or less"]


def test_two_rows_that_were_exchanged_are_found(kept):
    unguarded(kept, *(f"UPDATE blackbox__log SET n = {b} WHERE n = {a}"
                      for a, b in [(7, 5000), (9, 7), (5000, 9)]))
    assert [p[:3] for p in told(kept)] == [(6, "note", 7), (8, "note", 9)]


def test_a_request_and_a_response_that_were_renamed_into_each_other_are_found(kept):
    db = sqlite3.connect(kept, isolation_level=None)
    db.execute("PRAGMA writable_schema = ON")
    db.execute(
        "UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'request_body TEXT', 'swap'),"
        " 'response_body TEXT', 'request_body TEXT'), 'swap', 'response_body TEXT')"
        " WHERE name = 'event_payloads'")
    db.close()
    names = [r[1] for r in rows(connect(kept), "PRAGMA table_info(event_payloads)")]
    assert names.index("response_body") < names.index("request_body")
    assert [p[:3] for p in told(kept)] == [(0, "pin", 1), (1, "pin", 2)]


def test_a_column_of_the_user_is_nobodys_forgery(kept):
    db = connect(kept)
    noted = head(db)
    db.execute("ALTER TABLE event_payloads ADD COLUMN more TEXT DEFAULT 'x'")
    evidence(db)
    one(db, "SELECT payload_cleanup()")
    assert problems(db) == problems(db, noted) == [] and size(db) == 313


def test_all_problems_are_told_up_to_100_and_how_many_there_are_more(kept):
    unguarded(kept, "UPDATE blackbox__log SET actor = 'x' WHERE n BETWEEN 5 AND 104")
    assert len(told(kept)) == 100
    unguarded(kept, "UPDATE blackbox__log SET actor = 'x' WHERE n BETWEEN 5 AND 300")
    found = told(kept)
    assert len(found) == 101 and found[-1] == (None, None, None, "and 196 more")


def test_blackbox_check_lists_what_is_wrong_with_the_log(kept):
    unguarded(kept, "UPDATE blackbox__log SET actor = 'another' WHERE n = 7")
    db = connect(kept)
    assert rows(db, "SELECT * FROM blackbox_check") \
        == [("main", "blackbox__log",
             "leaf 6 row 7: was altered: the row, its salt, or the leaf is another")]


def test_what_waits_is_counted_in_one_row(kept):
    db = sqlite3.connect(kept, isolation_level=None)
    evidence(db, 2)
    db.close()
    db = connect(kept)
    assert [p[:3] for p in problems(db)] == [(None, "pin", 313)]
    assert "rows that wait: 2, which" in problems(db)[0][3]
    assert rows(db, "SELECT * FROM proof_pending") == [("pin", 2, 313)]
    assert rows(db, "SELECT problem FROM blackbox_check") == [("row 313: " + problems(db)[0][3],)]
    head(db)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert problems(db) == rows(db, "SELECT * FROM proof_pending") == []


def test_a_statement_that_writes_can_keep_the_head_but_not_give_leaves(db):
    one(db, "SELECT payload_save_evidence('k', '[{\"eventId\":\"e\",\"agentId\":\"a\"}]')")
    db.execute("CREATE TABLE notebook AS SELECT proof_head() AS head")
    assert one(db, "SELECT head FROM notebook") == head(db)
    assert rows(db, "SELECT -leaf FROM blackbox__leaves WHERE leaf < 0") == [(1,)]
    evidence(db, 1)
    with pytest.raises(sqlite3.OperationalError, match="MisuseError: proof_head"):
        db.execute("INSERT INTO notebook SELECT proof_head()")


def test_a_row_that_went_before_it_had_a_leaf_is_found_for_ever(kept):
    db = sqlite3.connect(kept, isolation_level=None)
    evidence(db, 2)
    db.close()
    unguarded(kept, "DELETE FROM blackbox__log WHERE n = 313",
              "DELETE FROM payload__pins WHERE n = 313")
    db = connect(kept)
    assert [p[:3] for p in problems(db)] == [(None, None, 313), (None, "pin", 314)]
    assert "before it had a leaf" in problems(db)[0][3]
    for _ in range(2):
        head(db)
        assert [p[:3] for p in problems(db)] == [(312, None, 313)]
        assert "was removed" in problems(db)[0][3]
    assert size(db) == 314


def test_an_unpin_by_plain_sql_waits_and_ends_the_pin(kept):
    db = sqlite3.connect(kept, isolation_level=None)
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) SELECT id, 'me', 'why'"
               " FROM payload__pins LIMIT 1")
    db.execute("DELETE FROM event_payloads WHERE pinned = 0")  # by the rules
    db.close()
    db = connect(kept)
    assert [p[:3] for p in problems(db)] == [(None, "unpin", 313)]
    head(db)
    assert problems(db) == []


def rewrite(path, leaves):
    """Alters row 7, keeps so many rows, and makes the leaf and the tree anew."""
    unguarded(path, "UPDATE blackbox__log SET actor = 'other' WHERE n = 7")
    db = connect(path)
    db.execute("SAVEPOINT s")
    db.execute("DELETE FROM blackbox__leaves")
    db.execute("UPDATE blackbox__tree SET size = 0, frontier = x''")
    db.execute("DELETE FROM blackbox__log WHERE n > ?", (leaves,))
    head(db)
    db.execute("RELEASE s")
    assert size(db) == leaves
    db.close()


@pytest.fixture
def plain(path):
    """A log of which everything can be made anew."""
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    write(db, 12)
    noted = head(db)
    db.close()
    return noted


def test_a_rewrite_of_the_same_length_is_found_with_a_noted_head_alone(path, plain):
    rewrite(path, 12)
    db = connect(path)
    assert head(db) != plain and head(db).split("\n")[1] == plain.split("\n")[1]
    assert problems(db) == []
    found = problems(db, plain)
    assert len(found) == 1 and "not those of the head: the log was rewritten" in found[0][3]
    with pytest.raises(sqlite3.DatabaseError, match="ProofError: there is no such proof"):
        one(db, "SELECT proof_of('head', ?)", plain)


def test_a_tail_that_was_cut_is_found_with_a_noted_head(path, plain):
    rewrite(path, 10)
    assert told(path) == []
    assert "its end was cut off" in told(path, plain)[0][3]


def test_an_old_head_of_another_log_is_found(kept):
    other = "blackbox/other\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
    assert "is of the log blackbox/other" in told(kept, other)[0][3]


def test_since_a_noted_head_only_what_is_new_is_read(kept):
    db = connect(kept)
    noted = head(db)
    write(db, 2)
    head(db)
    db.close()
    unguarded(kept, "UPDATE blackbox__log SET actor = 'x' WHERE n = 7")
    assert told(kept, noted) == []
    unguarded(kept, "UPDATE blackbox__log SET actor = 'x' WHERE n = 314")
    assert [p[:3] for p in told(kept, noted)] == [(313, "note", 314)]


def test_a_proof_of_what_was_altered_is_refused(kept):
    unguarded(kept, "UPDATE blackbox__log SET actor = 'x' WHERE n = 7")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: row 7 of the log"):
        proof_of(connect(kept), "row", 7)
