"""Receipts older than 30 days become one a day and rule; what is left can still be verified."""
import contextlib
import time

import pytest

from conftest import one, rows
from proof_helpers import check, head, problems, proof_of, receipts, size, write

DAY = 86_400_000
NOW = int(time.time() * 1000)
OLD = NOW // DAY * DAY - 100 * DAY

SUMS = "SELECT subject, rows, bytes, oldest, newest, detail ->> '$.day' FROM blackbox_log" \
       " WHERE kind = 'removal' AND detail IS NOT NULL ORDER BY at"


def pages(db):
    return one(db, "PRAGMA page_count") - one(db, "PRAGMA freelist_count")


def prove(db, times=1):
    """Calls that write and prove."""
    for _ in range(times):
        write(db, 1)
        head(db)


def day(at):
    return time.strftime("%Y-%m-%d", time.gmtime(at / 1000))


@contextlib.contextmanager
def unfolded(db):
    """The clock cannot be trusted meanwhile, so that old receipts are not folded."""
    db.execute("UPDATE retention__clock SET seen = seen - 8 * 86400000")
    yield
    db.execute("UPDATE retention__clock SET seen = seen + 8 * 86400000")


def test_receipts_of_a_day_and_rule_become_one_with_their_sums(db):
    for i in range(3):
        receipts(db, OLD + i * DAY, 100)
        receipts(db, OLD + i * DAY + 1, 50, rule="other")
    head(db)
    assert sorted(rows(db, SUMS)) == sorted(
        (rule, 2 * n, 10 * n, 0, n + 4, day(OLD + i * DAY))
        for i in range(3) for rule, n in (("mine", 100), ("other", 50)))
    assert one(db, "SELECT count(*) FROM blackbox__log") == 6
    assert rows(db, "SELECT sum(rows), count(*), count(minute) FROM retention_log") == [(900, 6, 0)]
    assert problems(db) == [] and rows(db, "SELECT * FROM blackbox_check") == []


def test_a_step_is_bounded_and_the_sums_of_the_steps_are_added_up(db):
    with unfolded(db):
        receipts(db, OLD, 1400)
        head(db)
    left = []
    for _ in range(3):
        prove(db)
        left.append(one(db, "SELECT count(*) FROM blackbox__log WHERE subject IS NULL"))
    assert left == [888, 376, 0]
    assert [(r[1], r[4]) for r in rows(db, SUMS)] == [(2800, 1404)]
    assert one(db, "SELECT detail ->> '$.leaves' FROM blackbox__log WHERE kind IS NULL") == 1402
    assert problems(db) == []  # (the leaves that do not fit are gone)


def test_only_receipts_are_folded_and_only_old_ones(db):
    db.execute("INSERT INTO blackbox__log(at, domain, kind, subject) SELECT ?, 'user', value, 's'"
               " FROM json_each('[\"pin\",\"unpin\",\"hold\",\"release\",\"erasure\",\"kill_switch\"]')",
               (OLD,))
    receipts(db, OLD, 1, rule="alone")
    receipts(db, OLD, 10)
    receipts(db, NOW - 29 * DAY, 10)
    receipts(db, OLD, 10)  # after one that is not old enough
    receipts(db, NOW + DAY, 10)
    head(db)
    assert rows(db, "SELECT kind, count(*) FROM blackbox_log WHERE n < 18 GROUP BY 1 ORDER BY 1") \
        == [(k, 1) for k in ("erasure", "hold", "kill_switch", "pin", "release", "removal", "unpin")]
    assert rows(db, "SELECT first, last FROM blackbox__folded") == [(7, 16)]
    assert one(db, "SELECT count(*) FROM blackbox__log WHERE kind IS NULL") == 1 + 30 + 1
    assert problems(db) == []


def test_a_clock_that_cannot_be_trusted_folds_nothing(db):
    with unfolded(db):
        receipts(db, OLD, 10)
        head(db)
        assert rows(db, SUMS) == []


def test_a_receipt_that_was_altered_is_not_folded_away(db):
    with unfolded(db):
        receipts(db, OLD, 100)
        head(db)
    db.execute("UPDATE blackbox__log SET bytes = 9 WHERE n = 50")
    prove(db, 3)
    assert rows(db, SUMS) == [] and [p[2] for p in problems(db)] == [50]


def test_no_number_of_a_row_is_used_again(db):
    receipts(db, OLD, 10)
    head(db)
    assert rows(db, "SELECT n FROM blackbox__log") == [(11,)]  # the sum
    receipts(db, OLD, 1)
    head(db)
    assert rows(db, "SELECT n FROM blackbox__log") == [(13,)]
    assert rows(db, "SELECT first, last, kept FROM blackbox__folded") == [(0, 11, 0)]


@pytest.fixture
def folded(db):
    """Ten days of receipts, folded; heads of all kinds of sizes, and what they were of."""
    heads = []
    for i in range(10):
        receipts(db, OLD + i * DAY, 144, 600_000)
        db.execute("INSERT INTO blackbox__log(domain, kind, subject) VALUES('user', 'hold', 's')")
        heads.append(head(db))
    prove(db, 12)
    return db, heads


def test_old_heads_and_the_rows_that_are_left_can_be_verified(folded):
    db, heads = folded
    assert one(db, "SELECT count(*) FROM blackbox__leaves WHERE leaf >= 0") < 300 < 1450 < size(db)
    assert problems(db) == []
    for old in heads:
        assert problems(db, old) == []
        proofs = [proof_of(db, "head", old)]
        proofs += [proof_of(db, "leaf", r[0]) for r in rows(
            db, "SELECT leaf FROM blackbox__leaves WHERE leaf >= 0")]
        assert check(proofs, old)
    assert rows(db, "SELECT count(*) FROM proof_export WHERE path LIKE 'tile/0/%'")[0][0] == 1


def test_a_head_that_the_log_did_not_note_cannot_be_compared_later(db):
    with unfolded(db):
        receipts(db, OLD, 100)
        one(db, "SELECT payload_clear_archive()")
        unnoted = one(db, "SELECT proof_tile('checkpoint')")
        receipts(db, OLD, 300)
        noted = head(db)
    prove(db)
    assert problems(db, noted) == []
    assert "were folded since" in problems(db, unnoted)[0][3]
    assert problems(db) == []


def test_a_forged_leaf_node_or_sum_of_what_is_folded_is_found(folded):
    db, heads = folded
    for sql in ["UPDATE blackbox__leaves SET hash = zeroblob(32) WHERE leaf = -(1 << 48) - 1",
                "UPDATE blackbox__leaves SET hash = zeroblob(32) WHERE leaf > -(1 << 48) AND leaf < 0",
                "DELETE FROM blackbox__leaves WHERE leaf > -(1 << 48) AND leaf < 0",
                "UPDATE blackbox__folded SET last = last - 1",
                "UPDATE blackbox__folded SET at = at - 1",
                "UPDATE blackbox__folded SET rows = rows + 1",
                "UPDATE blackbox__log SET at = at - 86400000, rows = 0 WHERE n ="
                " (SELECT max(n) FROM blackbox__log WHERE kind IS NULL)",
                "UPDATE blackbox__log SET bytes = bytes - 1 WHERE n = (SELECT max(n)"
                " FROM blackbox__log WHERE kind IS NULL)"]:
        db.execute("BEGIN")
        assert db.execute(sql).rowcount > 0
        assert problems(db) != [], sql
        db.execute("ROLLBACK")
    assert problems(db) == []


def test_leaves_stay_where_a_hash_is_damaged_that_a_row_beside_them_needs(db):
    db.execute("INSERT INTO blackbox__log(at, domain, kind, subject) VALUES(?, 'user', 'pin', 's')",
               (OLD,))
    with unfolded(db):
        receipts(db, OLD, 300)
        head(db)
    (hash,) = db.execute("SELECT hash FROM blackbox__leaves WHERE leaf = 0").fetchone()
    db.execute("UPDATE blackbox__leaves SET hash = x'00' WHERE leaf = 0")
    count = "SELECT count(*) FROM blackbox__leaves WHERE leaf BETWEEN 0 AND 127"
    prove(db)
    assert one(db, count) == 128
    assert one(db, "SELECT sum(rows) FROM blackbox__log") >= 600
    db.execute("UPDATE blackbox__leaves SET hash = ? WHERE leaf = 0", (hash,))
    assert problems(db) == []


def test_a_range_has_the_sum_of_its_rule_and_day(folded):
    """Who writes a sum of another day, with a leaf, can fold a receipt; its range tells."""
    db, _ = folded
    sums = "SELECT n FROM blackbox__log WHERE kind IS NULL ORDER BY n LIMIT 1"
    for change in "at = at - 86400000", "rows = 0", "bytes = 9", "subject = 'another'":
        db.execute("BEGIN")
        db.execute(f"UPDATE blackbox__log SET {change} WHERE n = ({sums})")
        assert "was folded, and the sum of its rule and day is not there, or less" in [
            p[3] for p in problems(db)], change
        db.execute("ROLLBACK")
    assert problems(db) == []


def test_what_is_folded_of_a_year_of_one_receipt_a_minute_adds_less_than_760_kb(db):
    before = pages(db)
    for i in range(73):
        receipts(db, OLD - i * DAY, 1440)
        head(db)
        prove(db)
    assert size(db) > 73 * 1440 and one(db, "SELECT sum(rows) FROM retention_log") == 73 * 2880
    assert one(db, "SELECT count(*) FROM retention_log") == 73
    assert (pages(db) - before) * one(db, "PRAGMA page_size") < 165_000  # in 335 days
    assert problems(db) == []
