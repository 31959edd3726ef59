"""Automatic and explicit pruning: what is removed first, what stays, what is reported."""
import json
import random
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from evidence_helpers import ADD, MAKE, well


def names(db, where="1"):
    return [r[0] for r in rows(db, f"SELECT id FROM rec WHERE {where} ORDER BY timestamp")]


def fill(db, count, shot=400, first=0, confidence=None):
    for i in range(first, first + count):
        chain = {} if confidence is None else {"fallbackChain": {"strategies": [
            {"confidence": 0}, {"confidence": confidence(i)}, {"confidence": "9"}, 7]}}
        db.execute(ADD, (f"r{i}", i, json.dumps(chain, separators=(",", ":")),
                         bytes(shot) if shot else None))


@pytest.fixture
def rec(path):
    db = connect(path)
    db.execute(MAKE + "(max_size_bytes=10000)")
    yield db
    db.close()


def test_a_row_of_a_file_that_says_it_overflowed_stops_nothing(rec, path):
    fill(rec, 3)
    by_hand(path, "UPDATE rec_rows SET place = 1 WHERE id = 'r1'")
    assert one(rec, "SELECT evidence_prune_for_approval('rec') ->> '$.screenshotsRemoved'") == 3
    assert rows(rec, "SELECT problem FROM blackbox_check WHERE object LIKE 'rec%'") != []


def test_prunes_above_the_threshold_not_at_it(rec):
    fill(rec, 17, 398)  # 17 * 500 = 8,500
    rec.execute(ADD, ("at", 100, "{}", bytes(398)))  # 9,000 is the threshold
    assert one(rec, "SELECT sum(size_bytes) FROM rec") == 9000
    assert one(rec, "SELECT evidence_needs_pruning('rec')") == 1
    assert rows(rec, "SELECT * FROM rec_log") == []
    rec.execute(ADD, ("above", 101, "{}", None))
    # down to 8,000 with the new row: 1,102 bytes, three screenshots
    assert names(rec, "screenshot IS NULL") == ["r0", "r1", "r2", "above"]
    assert one(rec, "SELECT evidence_needs_pruning('rec')") == 0
    assert rows(rec, "SELECT rule, rows, screenshots, bytes, oldest, newest "
                     "FROM rec_log") == [("threshold", 0, 3, 3 * 398, 0, 2)]
    well(rec)


def test_screenshots_go_before_actions_and_pins_stay(rec):
    fill(rec, 10, 700)
    rec.execute("UPDATE rec SET pinned = 1 WHERE id IN ('r0', 'r3')")
    large = json.dumps({"x": "y" * 4600}, separators=(",", ":"))
    rec.execute(ADD, ("big", 50, large, None))
    # 4,708 bytes come, beside which 3,292 may stay: 7 screenshots go
    assert names(rec, "screenshot IS NOT NULL") == ["r0", "r3", "r9"]
    assert len(names(rec)) == 11
    rec.execute(ADD, ("new", 51, large, None))
    # the last screenshot is not enough, and neither are the small actions
    assert names(rec) == ["r0", "r3", "new"]
    assert names(rec, "screenshot IS NOT NULL") == ["r0", "r3"]
    well(rec)


@pytest.mark.parametrize("begin", [False, True])
def test_pins_that_fill_the_buffer_are_an_error_that_says_so(rec, begin):
    fill(rec, 8, 1000)
    rec.execute("UPDATE rec SET pinned = 1")
    fill(rec, 1, 400, first=8)
    if begin:
        rec.execute("BEGIN")
    before = rows(rec, "SELECT * FROM rec")
    with pytest.raises(sqlite3.IntegrityError, match="BufferFullError.*8816 of 10000.*1302"):
        rec.execute(ADD, ("x", 99, "{}", bytes(1200)))
    with pytest.raises(sqlite3.IntegrityError, match="BufferFullError"):
        rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 8000)")
    assert rows(rec, "SELECT * FROM rec") == before
    rec.execute(ADD, ("y", 99, "{}", bytes(1000)))  # room after everything else was removed
    assert names(rec) == [f"r{i}" for i in range(8)] + ["y"]
    well(rec)


def test_keep_last_n_holds_screenshots_at_every_store(rec):
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', 'keep-last-n')")
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_screenshots', 3)")
    fill(rec, 6, 50)
    assert names(rec, "screenshot IS NOT NULL") == ["r3", "r4", "r5"]
    rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'r3'")
    fill(rec, 2, 50, first=6)
    assert names(rec, "screenshot IS NOT NULL") == ["r3", "r5", "r6", "r7"]
    rec.execute("UPDATE rec SET screenshot = x'01' WHERE id = 'r0'")
    assert names(rec, "screenshot IS NOT NULL") == ["r3", "r5", "r6", "r7"]
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_screenshots', 1)")
    assert names(rec, "screenshot IS NOT NULL") == ["r3", "r7"]
    assert rows(rec, "SELECT rule, sum(screenshots) FROM rec_log GROUP BY 1") == [
        ("max_screenshots", 7)]
    well(rec)


@pytest.mark.parametrize("late", [False, True])
def test_confidence_based_prunes_the_highest_confidence_first(rec, late):
    policy = "INSERT INTO rec(rec, value) VALUES('retention_policy', 'confidence-based')"
    if not late:
        rec.execute(policy)
    sure = [.5, .9, .1, .9, .95, .3, .9, .2, .4, .6]
    fill(rec, 10, 700, confidence=lambda i: sure[i])
    if late:
        rec.execute(policy)
    rec.execute(ADD, ("x", 99, "{}", bytes(1700)))
    order = sorted(range(10), key=lambda i: (-sure[i], i))
    gone = names(rec, "screenshot IS NULL")
    assert gone and set(gone) == {f"r{i}" for i in order[: len(gone)]}
    assert len(names(rec)) == 11
    rec.execute("UPDATE rec SET action = '{\"fallbackChain\":{\"strategies\":"
                "[{\"confidence\":0.99}]}}' WHERE id = 'r2'")
    rec.execute(ADD, ("y", 100, "{}", bytes(1700)))
    assert "r2" in names(rec, "screenshot IS NULL")
    well(rec)


def test_a_strategy_without_confidence_has_the_weight_of_its_type(rec):
    weights = {"coordinates": .6, "vision_ocr": .7, "css_selector": .75,
               "evidence_scoring": .8, "dom_selector": .85, "cdp_power": .9,
               "cdp_semantic": .95}
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', 'confidence-based')")
    for i, (kind, weight) in enumerate(weights.items()):
        chain = [{"type": "coordinates"}, {"type": kind, "confidence": None}]
        rec.execute(ADD, (kind, i, json.dumps({"fallbackChain": {"strategies": chain}}), b"1"))
    for i, chain in enumerate([[{"type": "cdp_semantic", "confidence": .1}],
                               [{"type": "made_up"}, 5], []]):
        rec.execute(ADD, (f"x{i}", 90 + i, json.dumps(
            {"fallbackChain": {"strategies": chain}}), b"1"))
    want = {**weights, "x0": .1, "x1": -1, "x2": -1}
    assert dict(rows(rec, "SELECT id, confidence FROM rec_rows")) == want
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', 'keep-all')")
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', 'confidence-based')")
    assert dict(rows(rec, "SELECT id, confidence FROM rec_rows")) == want


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_row_may_be_as_large_as_the_buffer_and_prunes_what_it_must(rec, begin):
    fill(rec, 15, 400)
    rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'r3'")
    pinned = one(rec, "SELECT size_bytes FROM rec WHERE id = 'r3'")
    rec.execute(begin)
    before = rows(rec, "SELECT * FROM rec")
    for sql in ("INSERT INTO rec(id, timestamp, action, screenshot) "
                "VALUES('big', 99, '{}', zeroblob(9899))",
                "UPDATE rec SET screenshot = zeroblob(9899) WHERE id = 'r1'"):
        with pytest.raises(sqlite3.DataError, match="DataTooLargeError.*10001.*is 10000"):
            rec.execute(sql)
        with pytest.raises(sqlite3.IntegrityError, match="BufferFullError"):
            rec.execute(sql.replace("9899", "9898"))
        assert rows(rec, "SELECT * FROM rec") == before
    most = 10_000 - pinned - 102
    rec.execute(f"UPDATE rec SET screenshot = zeroblob({most}) WHERE id = 'r1'")
    assert sorted(names(rec)) == ["r1", "r3"]
    rec.execute("INSERT INTO rec(id, timestamp, action, screenshot) "
                f"VALUES('big', 99, '{{}}', zeroblob({most}))")
    assert sorted(names(rec)) == ["big", "r3"]
    assert one(rec, "SELECT capacity_used FROM evidence_stats('rec')") == 1
    well(rec)



def test_a_row_larger_than_a_smaller_maximum_goes(rec):
    rec.execute(ADD, ("a", 1, "{}", bytes(4000)))
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 3000)")
    assert rows(rec, "SELECT id, screenshot FROM rec") == [("a", None)]
    well(rec)


def test_max_screenshots_is_used_with_keep_last_n_only(rec):
    fill(rec, 5)
    limit = "INSERT INTO rec(rec, value) VALUES('max_screenshots', 3)"
    for policy in "keep-all", "confidence-based":
        rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', ?)", (policy,))
        rec.execute(limit)
        assert one(rec, "SELECT count(screenshot) FROM rec") == 5
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', 'keep-last-n')")
    assert one(rec, "SELECT count(screenshot) FROM rec") == 3
    well(rec)


def test_a_smaller_maximum_prunes_at_once(rec):
    fill(rec, 17)
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 5000)")
    assert one(rec, "SELECT evidence_needs_pruning('rec')") == 0
    assert 3500 < one(rec, "SELECT total_size FROM evidence_stats('rec')") <= 4000
    well(rec)


def test_prune_on_request_and_prune_screenshots(rec):
    fill(rec, 17)
    done = json.loads(one(rec, "SELECT evidence_prune('rec')"))
    assert done == {"beforeSize": 8534, "afterSize": 7734, "actionsRemoved": 0,
                    "screenshotsRemoved": 2, "duration": done["duration"]}
    again = json.loads(one(rec, "SELECT evidence_prune('rec')"))
    assert again["screenshotsRemoved"] == again["actionsRemoved"] == 0
    assert one(rec, "SELECT evidence_prune_screenshots('rec', 4)") == 11
    assert names(rec, "screenshot IS NOT NULL") == ["r13", "r14", "r15", "r16"]
    assert one(rec, "SELECT evidence_prune_screenshots('rec', 4)") == 0
    rec.execute("INSERT INTO blackbox_call(command, arguments) "
                "VALUES('evidence_prune_screenshots', '[\"rec\", 1]')")
    assert names(rec, "screenshot IS NOT NULL") == ["r16"]
    for sql in ("SELECT evidence_prune_screenshots('rec', -1)",
                "SELECT evidence_prune_screenshots('rec', 'x')"):
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
            rec.execute(sql)
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError.*'nope'"):
        rec.execute("SELECT evidence_prune('nope')")
    well(rec)


def test_equal_times_go_in_order_of_arrival(rec):
    for i in range(30):
        rec.execute(ADD, (f"r{i:02}", 5, "{}", bytes(400)))
    kept = [r[0] for r in rows(rec, "SELECT id FROM rec WHERE screenshot IS NOT NULL")]
    assert kept == [f"r{i:02}" for i in range(30 - len(kept), 30)]
    well(rec)


@pytest.mark.parametrize("policy", ["keep-all", "keep-last-n", "confidence-based"])
def test_random_acts_keep_counters_exact_and_the_buffer_within_its_size(path, policy):
    pick = random.Random(policy)
    db = connect(path)
    db.execute(MAKE + f"(max_size_bytes=20000, retention_policy='{policy}'"
               + (", max_screenshots=6)" if policy == "keep-last-n" else ")"))
    for step in range(400):
        act = pick.random()
        name = f"r{pick.randrange(40)}"
        shot = bytes(pick.randrange(1, 2500)) if pick.random() < .7 else None
        try:
            if act < .55:
                db.execute(ADD.replace("INSERT", "INSERT OR REPLACE"),
                           (name, pick.randrange(100), json.dumps(
                               {"x": "y" * pick.randrange(300)}), shot))
            elif act < .7:
                db.execute("UPDATE rec SET screenshot = ? WHERE id = ?", (shot, name))
            elif act < .85:
                db.execute("DELETE FROM rec WHERE id = ?", (name,))
            else:
                db.execute("UPDATE rec SET pinned = ? WHERE id = ?",
                           (int(pick.random() < .3), name))
        except sqlite3.IntegrityError as error:
            assert "Pinned" in str(error) or "BufferFull" in str(error)
        assert one(db, "SELECT bytes FROM rec_state") <= 20000
    well(db)
    assert one(db, "SELECT count(*) FROM rec") > 3


def test_stats_scalar_and_table(rec, tmp_path):
    empty = json.loads(one(rec, "SELECT evidence_stats('rec')"))
    assert empty == {"totalSize": 0, "actionCount": 0, "screenshotCount": 0,
                     "oldestTimestamp": None, "newestTimestamp": None,
                     "capacityUsed": 0, "usingOverflow": False}
    fill(rec, 3)
    full = json.loads(one(rec, "SELECT evidence_stats('rec')"))
    assert full == {"totalSize": 1506, "actionCount": 3, "screenshotCount": 3,
                    "oldestTimestamp": 0, "newestTimestamp": 2,
                    "capacityUsed": .1506, "usingOverflow": False}
    rec.execute("CREATE VIRTUAL TABLE temp.other USING evidence_buffer")
    rec.execute("ATTACH ? AS b", (str(tmp_path / "b.db"),))
    rec.execute("CREATE VIRTUAL TABLE b.third USING evidence_buffer")
    assert sorted(rows(rec, "SELECT schema, buffer, total_size, capacity_used, "
                            "needs_pruning, owner FROM evidence_stats")) == [
        ("b", "third", 0, 0, 0, None), ("main", "rec", 1506, .1506, 0, None),
        ("temp", "other", 0, 0, 0, None)]
    assert rows(rec, "SELECT action_count FROM evidence_stats('main.rec')") == [(3,)]
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError"):
        rows(rec, "SELECT * FROM evidence_stats('none')")


def test_receipts_of_plain_deletes_share_a_row(rec):
    fill(rec, 5, 10)
    rec.execute("DELETE FROM rec WHERE timestamp < 3")
    rec.execute("UPDATE rec SET screenshot = NULL WHERE id = 'r3'")
    assert one(rec, "SELECT count(DISTINCT minute) = count(*) FROM rec_log") == 1
    assert rows(rec, "SELECT rule, sum(rows), sum(screenshots), sum(bytes) FROM rec_log") \
        == [("manual", 3, 4, 3 * 112 + 10)]
    one(rec, "SELECT evidence_clear('rec')")
    assert rows(rec, "SELECT rows, bytes FROM rec_log WHERE rule = 'clear'") == [
        (2, 102 + 112)]


def test_or_ignore_does_not_skip_a_row_for_which_there_is_no_room(rec):
    fill = "INSERT OR IGNORE INTO rec(id, timestamp, action, screenshot, pinned) " \
        "VALUES(?, 1, ?, zeroblob(4000), 1)"
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 10000)")
    rec.execute(fill, ("a", "{}"))
    rec.execute(fill, ("a", "{}"))
    rec.execute(fill, ("b", "no json"))
    rec.execute(fill, ("b", "{}"))
    with pytest.raises(sqlite3.Error, match="BufferFullError"):
        rec.execute(fill, ("c", "{}"))
    assert rows(rec, "SELECT id FROM rec") == [("a",), ("b",)]
    rec.execute("INSERT INTO rec(id, timestamp, action) VALUES('s', 1, '{}')")
    with pytest.raises(sqlite3.Error, match="BufferFullError"):
        rec.execute("UPDATE OR IGNORE rec SET screenshot = zeroblob(4000) WHERE id = 's'")
    assert one(rec, "SELECT screenshot FROM rec WHERE id = 's'") is None


@pytest.mark.parametrize("policy", ["keep-all", "confidence-based"])
@pytest.mark.parametrize("alike", [False, True])
def test_pruning_seeks_in_an_index_also_among_equal_rows(rec, policy, alike):
    """The number of VM steps for twice the rows is at most twice as high."""
    def steps(n):
        rec.execute("SELECT evidence_clear('rec')")
        rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 100000000)")
        rec.execute(
            "WITH RECURSIVE c(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM c WHERE i < ?) "
            "INSERT INTO rec(id, timestamp, action, screenshot) SELECT 'r' || i, "
            "CASE WHEN ?2 THEN 5 ELSE i END, json_object('fallbackChain', json_object("
            "'strategies', json_array(json_object('type', 'a', 'confidence', "
            "CASE WHEN ?2 THEN 0.9 ELSE i / 1e6 END)))), zeroblob(1000) FROM c", (n, alike))
        count = [0]
        def tick():
            count[0] += 1
        rec.set_progress_handler(tick, 1000)
        rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', ?)", (n * 800,))
        rec.set_progress_handler(None, 0)
        assert one(rec, "SELECT count(*) FROM rec WHERE screenshot IS NULL") > n / 4
        return count[0]
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', ?)", (policy,))
    assert steps(1600) < 2.5 * steps(800)
