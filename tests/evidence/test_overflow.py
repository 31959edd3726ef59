"""A buffer in memory whose oldest rows move to a file and back."""
import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest

from conftest import ROOT, archive_faults, connect, one, rows
from evidence_helpers import ADD, well

MAKE = ("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer("
        "overflow='main', max_size_bytes=100000")


def open_buffer(path, more=""):
    db = connect(path)
    db.execute(MAKE + more + ")")
    return db


def fill(db, first, last, size=5000):
    for i in range(first, last):
        db.execute(ADD, (f"r{i:03}", i, json.dumps({"n": i}), bytes([i % 251]) * size))


def owner(db):
    return one(db, "SELECT owner FROM evidence_stats('rec')")


@pytest.fixture
def rec(path):
    db = open_buffer(path)
    yield db
    db.close()


def places(db):
    return dict(rows(db, "SELECT storage, count(*) FROM rec GROUP BY 1"))


def test_the_oldest_rows_move_above_80_percent_and_reads_are_the_same(rec):
    fill(rec, 0, 15)
    assert places(rec) == {"memory": 15}
    fill(rec, 15, 17)
    assert places(rec)["disk"] >= 2
    assert one(rec, "SELECT max(timestamp) FROM rec WHERE storage = 'disk'") < \
        one(rec, "SELECT min(timestamp) FROM rec WHERE storage = 'memory'")
    assert one(rec, "SELECT memory_bytes FROM evidence_stats('rec')") <= 80_000
    for i, row in enumerate(rows(rec, "SELECT id, timestamp, action, screenshot "
                                      "FROM rec ORDER BY timestamp")):
        assert row == (f"r{i:03}", i, json.dumps({"n": i}), bytes([i]) * 5000)
    stats = json.loads(one(rec, "SELECT evidence_stats('rec')"))
    assert stats["usingOverflow"] is True and stats["screenshotCount"] == 17
    assert stats["totalSize"] == one(rec, "SELECT sum(size_bytes) FROM rec")
    assert one(rec, "SELECT json_array_length(evidence_export('rec'), '$.actions')") == 17
    well(rec)


def test_prune_counts_both_tiers_and_reaches_the_file(rec):
    fill(rec, 0, 60)
    total = one(rec, "SELECT total_size FROM evidence_stats('rec')")
    assert total <= 90_000
    assert one(rec, "SELECT count(screenshot) FROM evidence__overflow") == one(
        rec, "SELECT count(*) FROM rec WHERE storage = 'disk' AND screenshot IS NOT NULL")
    assert one(rec, "SELECT count(*) FROM rec_gone") == 0
    assert one(rec, "SELECT count(*) FROM rec WHERE screenshot IS NULL") == 60 - one(
        rec, "SELECT screenshot_count FROM evidence_stats('rec')")
    well(rec)
    for i in range(60, 90):
        rec.execute(ADD, (f"r{i}", i, json.dumps({"x": "y" * 20000}), None))
    assert one(rec, "SELECT total_size FROM evidence_stats('rec')") <= 90_000
    assert one(rec, "SELECT sum(rows) FROM rec_log") > 60
    well(rec)


def test_the_receipt_of_an_approval_counts_both_tiers(rec):
    for i in range(21):
        action = json.dumps({"id": f"r{i:02}", "networkData": {"recentRequests": ["y" * 4000]}})
        rec.execute(ADD, (f"r{i:02}", i, action, None))
    assert set(places(rec)) == {"disk", "memory"}
    before = one(rec, "SELECT sum(size_bytes) FROM rec")
    rec.execute("DELETE FROM rec_log")
    rec.execute("SELECT evidence_prune_for_approval('rec')")
    lost = before - one(rec, "SELECT sum(size_bytes) FROM rec")
    assert lost > 21 * 3900
    assert rows(rec, "SELECT rule, bytes, oldest, newest FROM rec_log") == [
        ("approval", lost, 0, 20)]
    well(rec)


def test_flush_moves_the_rest_in_and_out_of_a_transaction(rec):
    fill(rec, 0, 4)
    rec.execute("BEGIN")
    assert one(rec, "SELECT evidence_flush('rec')") == 4
    assert places(rec) == {"disk": 4}
    rec.execute("ROLLBACK")
    assert places(rec) == {"memory": 4}
    assert one(rec, "SELECT evidence_flush('rec')") == 4
    assert one(rec, "SELECT evidence_flush('rec')") == 0
    assert one(rec, "SELECT memory_bytes FROM evidence_stats('rec')") == 0
    assert one(rec, "SELECT rows FROM evidence_owners") == 4
    well(rec)


def test_flush_without_overflow_says_what_to_do(path):
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer")
    db.execute(ADD, ("a", 1, "{}", None))
    with pytest.raises(sqlite3.OperationalError, match="MisuseError.*'overflow', 'main'"):
        db.execute("SELECT evidence_flush('rec')")
    db.execute("INSERT INTO rec(rec, value) VALUES('overflow', 'main')")
    assert one(db, "SELECT evidence_flush('rec')") == 1
    with pytest.raises(sqlite3.IntegrityError, match="the overflow has 1 rows of rec"):
        db.execute("INSERT INTO rec(rec, value) VALUES('overflow', '')")
    one(db, "SELECT evidence_clear('rec')")
    db.execute("INSERT INTO rec(rec, value) VALUES('overflow', '')")
    assert rows(db, "SELECT * FROM evidence_owners") == []
    db.execute("CREATE VIRTUAL TABLE disk USING evidence_buffer")
    assert one(db, "SELECT evidence_flush('disk')") == 0
    well(db)


def test_overflowed_rows_can_be_changed_and_deleted(rec):
    fill(rec, 0, 6)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute("UPDATE rec SET screenshot = x'0102' WHERE id = 'r001'")
    rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'r002'")
    rec.execute("UPDATE rec SET action = '{\"new\":1}' WHERE id = 'r003'")
    rec.execute("DELETE FROM rec WHERE id = 'r004'")
    rec.execute("REPLACE INTO rec(id, timestamp, action) VALUES('r005', 9, '{\"v\":2}')")
    assert rows(rec, "SELECT id, action, length(screenshot), pinned, storage FROM rec") == [
        ("r000", '{"n": 0}', 5000, 0, "disk"), ("r001", '{"n": 1}', 2, 0, "memory"),
        ("r002", '{"n": 2}', 5000, 1, "memory"), ("r003", '{"new":1}', 5000, 0, "memory"),
        ("r005", '{"v":2}', None, 0, "memory")]
    assert one(rec, "SELECT group_concat(id) FROM evidence__overflow") == "r000"
    assert one(rec, "SELECT evidence_flush('rec')") == 4
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        rec.execute("DELETE FROM rec WHERE id = 'r002'")
    assert one(rec, "SELECT evidence_clear('rec')") == 4
    assert one(rec, "SELECT group_concat(id) FROM evidence__overflow") == "r002"
    assert rows(rec, "SELECT rule, sum(rows) FROM retention_log GROUP BY 1") == [
        ("released", 9)]
    well(rec)


def test_rows_of_a_lost_connection_can_be_resumed(path):
    code = textwrap.dedent(f"""
        import os, signal, sys
        sys.path.insert(0, {str(ROOT / 'tests')!r})
        sys.path.insert(0, {str(ROOT / 'tests' / 'evidence')!r})
        from test_overflow import *
        db = open_buffer({str(path)!r})
        fill(db, 0, 30)
        db.execute("UPDATE rec SET pinned = 1 WHERE id = 'r029'")
        db.execute("SELECT evidence_flush('rec')")
        fill(db, 30, 32)
        print(owner(db), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert child.returncode == -signal.SIGKILL, child.stderr
    lost = child.stdout.strip()
    db = open_buffer(path, f", resume='{lost}'")
    assert owner(db) == lost
    assert one(db, "SELECT count(*) FROM rec") == 30
    assert rows(db, "SELECT id, length(screenshot), pinned FROM rec WHERE pinned") == [
        ("r029", 5000, 1)]
    fill(db, 40, 44)
    assert one(db, "SELECT count(*) FROM rec") == 34
    well(db)


def test_resume_takes_the_rows_from_the_buffer_that_had_them(rec, path):
    fill(rec, 0, 5)
    one(rec, "SELECT evidence_flush('rec')")
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError.*evidence_owners"):
        open_buffer(path, ", resume='nobody'")
    new = open_buffer(path, f", resume='{owner(rec)}'")
    fill(new, 10, 12)
    for begin in (False, True):
        if begin:
            rec.execute("BEGIN")
        with pytest.raises(sqlite3.OperationalError, match="OwnerError.*rec"):
            rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'r001'")
        with pytest.raises(sqlite3.OperationalError, match="OwnerError"):
            fill(rec, 20 + 20 * begin, 40 + 20 * begin)
            rec.execute("SELECT evidence_flush('rec')")
    rec.execute("ROLLBACK")
    rec.execute("DROP TABLE temp.rec")
    assert one(new, "SELECT count(*) FROM rec") == 7
    assert one(new, "SELECT sum(length(screenshot)) FROM rec") == 7 * 5000
    well(new)


def test_drop_takes_the_overflowed_rows_and_pins_prevent_it(rec):
    fill(rec, 0, 5)
    rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'r001'")
    one(rec, "SELECT evidence_flush('rec')")
    with pytest.raises(sqlite3.Error):
        rec.execute("DROP TABLE rec")
    rec.execute("UPDATE rec SET pinned = 0")
    rec.execute("DROP TABLE rec")
    assert one(rec, "SELECT count(screenshot) FROM evidence__overflow") == 0
    assert rows(rec, "SELECT * FROM evidence_owners") == []


@pytest.mark.parametrize("begin", [False, True])
def test_full_disk_and_locked_file_fail_cleanly(rec, path, begin):
    fill(rec, 0, 15)
    if begin:
        rec.execute("BEGIN")
    pages = one(rec, "PRAGMA page_count")
    one(rec, f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        fill(rec, 15, 17)
    one(rec, "PRAGMA max_page_count = 100000")
    if rec.in_transaction:
        rec.execute("ROLLBACK")
    stored = one(rec, "SELECT count(*) FROM rec")
    if begin:
        assert stored == 15  # a full disk ends the transaction
    assert one(rec, "SELECT sum(length(screenshot)) FROM rec") == 5000 * stored
    well(rec)
    fill(rec, 17, 20)
    other = sqlite3.connect(path, isolation_level=None)
    rec.execute("PRAGMA busy_timeout = 20")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        fill(rec, 20, 40)
    stored = one(rec, "SELECT count(*) FROM rec")
    other.execute("ROLLBACK")
    assert one(rec, "SELECT count(action) FROM rec") == stored
    assert one(rec, "SELECT count(screenshot) FROM rec") == one(
        rec, "SELECT screenshot_count FROM evidence_stats('rec')")
    fill(rec, 40, 43)
    well(rec)


def test_a_sweep_that_finds_the_file_locked_is_done_later(rec, path):
    fill(rec, 0, 6)
    one(rec, "SELECT evidence_flush('rec')")
    other = sqlite3.connect(path, isolation_level=None)
    rec.execute("PRAGMA busy_timeout = 20")
    other.execute("BEGIN IMMEDIATE")
    rec.execute("DELETE FROM rec WHERE id < 'r003'")
    other.execute("ROLLBACK")
    assert one(rec, "SELECT count(*) FROM rec") == 3
    assert one(rec, "SELECT count(*) FROM evidence__overflow") == 6
    rec.execute("DELETE FROM rec WHERE id = 'r003'")
    assert one(rec, "SELECT count(*) FROM evidence__overflow") == 2
    assert one(rec, "SELECT count(*) FROM rec_gone") == 0
    well(rec)


def test_two_buffers_share_one_overflow(rec, path):
    other = open_buffer(path)
    fill(rec, 0, 5)
    fill(other, 0, 7)
    one(rec, "SELECT evidence_flush('rec')")
    one(other, "SELECT evidence_flush('rec')")
    one(rec, "SELECT evidence_clear('rec')")
    assert one(other, "SELECT sum(length(screenshot)) FROM rec") == 7 * 5000
    assert one(rec, "SELECT count(*) FROM rec") == 0
    well(other)


def test_overflow_in_an_attached_file_with_a_quoted_name(path, tmp_path):
    db = connect(path)
    db.execute("ATTACH ? AS \"o \"\"v\"", (str(tmp_path / "o.db"),))
    db.execute("CREATE VIRTUAL TABLE temp.\"r \"\"x\" USING evidence_buffer("
               "overflow='o \"v')")
    db.execute("INSERT INTO \"r \"\"x\"(id, action) VALUES('a', '{\"k\":1}')")
    assert one(db, "SELECT evidence_flush('r \"x')") == 1
    assert rows(db, "SELECT id, action, storage FROM \"r \"\"x\"") == [
        ("a", '{"k":1}', "disk")]
    assert rows(db, "SELECT name FROM main.sqlite_schema") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("schema", ["temp", "nowhere"])
def test_overflow_must_be_a_file(path, schema):
    db = connect(path)
    with pytest.raises(sqlite3.Error, match="ValidationError.*main or an attached"):
        db.execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer("
                   f"overflow='{schema}')")


def test_overflowed_rows_expire_after_orphan_days_with_a_receipt(rec, path):
    fill(rec, 0, 3)
    rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'r002'")
    one(rec, "SELECT evidence_flush('rec')")
    plain = sqlite3.connect(path, isolation_level=None)
    rule = plain.execute("SELECT \"view\", setting, unit_ms FROM retention_rules "
                         "WHERE domain = 'evidence'").fetchone()
    assert rule == ("evidence_due", "evidence.orphan_days", 86_400_000)
    due = plain.execute("SELECT key, bytes, at, blocked_by FROM evidence_due "
                        "ORDER BY key").fetchall()
    assert [d[0].split("/")[1] for d in due] == ["r000", "r001", "r002"]
    assert [d[3] for d in due] == ["in use", "in use", "pinned"]
    assert due[0][1] == 5108 and due[0][2] > 1_600_000_000_000
    with pytest.raises(sqlite3.IntegrityError, match="NotDueError"):
        plain.execute("DELETE FROM evidence_due")  # its buffer is in use
    assert len(rows(rec, "SELECT action FROM rec")) == 3
    plain.execute("UPDATE evidence_owners SET seen = seen - 31 * 86400000")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        plain.execute("DELETE FROM evidence_due")
    plain.execute("DELETE FROM evidence_due WHERE blocked_by IS NULL")
    assert plain.execute("SELECT rule, rows, bytes FROM retention_log").fetchall() == [
        ("evidence.orphans", 2, 2 * 5108)]
    assert plain.execute("SELECT rows FROM evidence_owners").fetchone() == (1,)
    plain.execute("UPDATE evidence__overflow SET pinned = 0")
    plain.execute("DELETE FROM evidence__overflow")
    assert plain.execute("SELECT rule, rows FROM retention_log ORDER BY id").fetchall() == [
        ("evidence.orphans", 2), ("manual", 1)]
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError.*missing"):
        rows(rec, "SELECT action FROM rec")
    assert archive_faults(plain, domain="evidence") == []


def test_a_delete_keeps_the_overflow_counters_and_the_check_finds_the_rest(path):
    db = open_buffer(path)
    fill(db, 0, 4)
    one(db, "SELECT evidence_flush('rec')")
    db.execute("DELETE FROM evidence__overflow WHERE rid = 3")
    assert archive_faults(db, domain="evidence") == []
    for sql in ("UPDATE evidence_owners SET rows = 9",
                "REPLACE INTO evidence__overflow SELECT * FROM evidence__overflow"):
        db.execute("BEGIN")
        db.execute(sql)
        assert "counters differ" in archive_faults(db, domain="evidence")[0][1]
        db.execute("ROLLBACK")


def test_evidence_that_the_file_lost_is_named(rec, path):
    fill(rec, 0, 4)
    one(rec, "SELECT evidence_flush('rec')")
    fill(rec, 4, 5)
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("DELETE FROM evidence__overflow WHERE id = 'r001'")
    plain.execute("UPDATE evidence__overflow SET action = NULL WHERE id = 'r002'")
    with pytest.raises(sqlite3.DatabaseError, match="screenshot of evidence 'r001'"):
        rows(rec, "SELECT screenshot FROM rec")
    exported = json.loads(one(rec, "SELECT evidence_export('rec')"))
    assert exported["metadata"]["damaged"] == ["r001", "r002"]
    assert exported["metadata"]["originalActionCount"] == 5
    assert len(exported["actions"]) == 3
    told = str(rows(rec, "SELECT * FROM blackbox_check"))
    assert "nothing in the overflow for 'r001'" in told and "r000" not in told
    done = json.loads(one(rec, "SELECT evidence_prune_for_approval('rec')"))
    assert [p["id"] for p in done["problems"]] == ["r001", "r002"]
    rec.execute("DELETE FROM rec WHERE id IN ('r001', 'r002')")
    assert len(rows(rec, "SELECT action FROM rec")) == 3


def test_owners_without_rows_are_removed_from_the_list(path):
    for _ in range(3):
        db = open_buffer(path)
        fill(db, 0, 2)
        db.close()
    keeper = open_buffer(path)
    fill(keeper, 0, 2)
    one(keeper, "SELECT evidence_flush('rec')")
    one(keeper, "SELECT evidence_clear('rec')")
    other = open_buffer(path)
    fill(other, 0, 2)
    one(other, "SELECT evidence_flush('rec')")
    assert rows(other, "SELECT rows FROM evidence_owners") == [(2,)]
    fill(keeper, 0, 1)
    assert one(keeper, "SELECT evidence_flush('rec')") == 1
    assert rows(other, "SELECT owner, rows FROM evidence_owners ORDER BY rows") == [
        (owner(keeper), 1), (owner(other), 2)]
    well(keeper)


EMPTY = {
    "row by row": "DELETE FROM rec",
    "clear": "SELECT evidence_clear('rec')",
    "back": "UPDATE rec SET action = '{\"n\":1}'",
}


@pytest.mark.parametrize("how", EMPTY)
@pytest.mark.parametrize("begin", [False, True])
def test_an_owner_goes_with_its_last_row_and_comes_again(rec, how, begin):
    fill(rec, 0, 3)
    one(rec, "SELECT evidence_flush('rec')")
    name = owner(rec)
    if begin:
        rec.execute("BEGIN")
    rec.execute(EMPTY[how]).fetchall()
    assert rows(rec, "SELECT * FROM evidence_owners") == []
    fill(rec, 5, 7)
    one(rec, "SELECT evidence_flush('rec')")
    listed = [(name, "rec", 5 if how == "back" else 2)]
    assert rows(rec, "SELECT owner, buffer, rows FROM evidence_owners") == listed
    if begin:
        rec.execute("ROLLBACK")
        assert rows(rec, "SELECT owner, rows FROM evidence_owners") == [(name, 3)]
    rec.execute("DELETE FROM rec")
    assert rows(rec, "SELECT * FROM evidence_owners") == []
    assert archive_faults(rec, domain="evidence") == []
    well(rec)


def test_a_buffer_whose_rows_the_file_lost_can_let_go_of_them(rec, path):
    fill(rec, 0, 3)
    one(rec, "SELECT evidence_flush('rec')")
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("DELETE FROM evidence__overflow")
    for i in range(3):
        rec.execute("DELETE FROM rec WHERE id = ?", (f"r{i:03}",))
    assert rows(plain, "SELECT * FROM evidence_owners") == []
    well(rec)


def test_a_buffer_whose_rows_were_taken_over_fails_at_every_write(rec, path):
    fill(rec, 0, 3)
    one(rec, "SELECT evidence_flush('rec')")
    fill(rec, 3, 5)
    other = open_buffer(path, f", resume='{owner(rec)}'")
    for sql in ("DELETE FROM rec WHERE id = 'r000'", "SELECT evidence_clear('rec')",
                "SELECT evidence_flush('rec')", "UPDATE rec SET pinned = 1"):
        with pytest.raises(sqlite3.OperationalError, match="OwnerError.*storage = 'memory'"):
            rec.execute(sql).fetchall()
    assert len(rows(rec, "SELECT id, action, screenshot FROM rec "
                         "WHERE storage = 'memory'")) == 2
    rec.execute("DROP TABLE rec")
    assert len(rows(other, "SELECT action, screenshot FROM rec")) == 3


@pytest.mark.parametrize("when", ["create", "before", "after"])
def test_the_highest_confidence_is_pruned_first_also_after_a_resume(path, when):
    policy = "retention_policy='confidence-based'"
    setting = "INSERT INTO rec(rec, value) VALUES('retention_policy', 'confidence-based')"
    db = open_buffer(path)
    for i, confidence in enumerate((0.1, 0.9, 0.5)):
        db.execute(ADD, (f"r{i}", i, json.dumps({"fallbackChain": {"strategies": [
            {"type": "a", "confidence": confidence}]}}), bytes(25000)))
    one(db, "SELECT evidence_flush('rec')")
    if when == "before":
        db.execute(setting)
    name = owner(db)
    db.close()
    db = open_buffer(path, f", resume='{name}'" + (
        "" if when == "after" else f", {policy}"))
    if when == "after":
        db.execute(setting)
    db.execute(ADD, ("new", 9, "{}", bytes(20000)))
    assert rows(db, "SELECT id FROM rec WHERE screenshot IS NULL") == [("r1",)]


@pytest.mark.parametrize("call", [
    "evidence_prune_for_approval", "evidence_clear", "evidence_prune_screenshots"])
def test_a_buffer_whose_rows_were_taken_over_changes_nothing_inside_begin(rec, path, call):
    fill(rec, 0, 3)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute(ADD, ("m", 9, '{"networkData":{"a":1}}', b"shot"))
    open_buffer(path, f", resume='{owner(rec)}'").close()
    before = rows(rec, "SELECT * FROM rec WHERE storage = 'memory'")
    rec.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="OwnerError"):
        rec.execute("INSERT INTO blackbox_call VALUES(?, ?)", (call, '["rec", 0]' if
                    call != "evidence_clear" else '["rec"]'))
    rec.execute("COMMIT")
    assert rows(rec, "SELECT * FROM rec WHERE storage = 'memory'") == before
    assert rows(rec, "SELECT count(*) FROM rec") == [(4,)]


def test_a_refused_overflow_leaves_the_old_one_in_use(rec):
    rec.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="ValidationError.*got 'nodb'"):
        rec.execute("INSERT INTO rec(rec, value) VALUES('overflow', 'nodb')")
    rec.execute("COMMIT")
    fill(rec, 0, 17)
    assert places(rec)["disk"] >= 2
    well(rec)


def test_a_renamed_buffer_is_listed_by_its_new_name(rec):
    fill(rec, 0, 3)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute("ALTER TABLE temp.rec RENAME TO tape")
    assert rows(rec, "SELECT buffer, rows FROM evidence_owners") == [("tape", 3)]


def test_an_overflow_that_was_detached_is_named(path, tmp_path):
    db = connect(path)
    db.execute("ATTACH ? AS ov", (str(tmp_path / "ov.db"),))
    db.execute(MAKE.replace("'main'", "'ov'") + ")")
    fill(db, 0, 3)
    one(db, "SELECT evidence_flush('rec')")
    db.execute("DETACH ov")
    for sql in ("SELECT action FROM rec", "SELECT evidence_prune_for_approval('rec')",
                "SELECT evidence_export('rec')", "SELECT evidence_export_replay('rec')",
                "SELECT evidence_export_puppeteer('rec')", "SELECT evidence_export('rec', 1)",
                "UPDATE rec SET pinned = 1",
                "INSERT INTO rec(rec, value) VALUES('retention_policy', 'confidence-based')"):
        with pytest.raises(sqlite3.OperationalError,
                           match="OverflowError: .* not in schema ov .*ATTACH"):
            db.execute(sql).fetchall()
    db.execute("ATTACH ? AS ov", (str(tmp_path / "ov.db"),))
    assert len(rows(db, "SELECT action FROM rec")) == 3


def test_approval_waits_for_another_writer_of_the_file(path):
    """The first access of the file is a write, so that no snapshot is too old."""
    db = connect(path, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA busy_timeout = 20000")
    db.execute(MAKE + ")")
    fill(db, 0, 3)
    one(db, "SELECT evidence_flush('rec')")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE more(x)")
    done = []
    thread = threading.Thread(target=lambda: done.append(
        one(db, "SELECT evidence_prune_for_approval('rec')")))
    thread.start()
    thread.join(0.3)
    assert done == []
    other.execute("COMMIT")
    thread.join()
    assert json.loads(done[0])["screenshotsRemoved"] == 3


@pytest.mark.parametrize("act", [
    "INSERT INTO rec(id, timestamp, action, screenshot) VALUES('new', 99, '{}', zeroblob(49000))",
    "UPDATE rec SET screenshot = zeroblob(49000) WHERE id = 'm'",
    "INSERT INTO rec(rec, value) VALUES('max_size_bytes', 20000)",
    "INSERT INTO rec(rec, value) VALUES('retention_policy', 'keep-last-n')",
    "INSERT INTO rec(rec, value) VALUES('prune_threshold', 0.1)"])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_buffer_whose_rows_were_taken_over_prunes_none_of_them(rec, path, act, begin):
    for name, value in (("retention_policy", "keep-last-n"), ("max_screenshots", 1),
                        ("retention_policy", "keep-all")):
        rec.execute("INSERT INTO rec(rec, value) VALUES(?, ?)", (name, value))
    fill(rec, 0, 10)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute(ADD, ("m", 90, "{}", b"shot"))
    open_buffer(path, f", resume='{owner(rec)}'").close()
    state = "SELECT bytes, screenshots, max_size_bytes, retention_policy FROM rec_state"
    before = rows(rec, state), rows(rec, "SELECT rid, screenshot_bytes FROM rec_rows")
    rec.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match="OwnerError"):
        rec.execute(act)
    assert (rows(rec, state),
            rows(rec, "SELECT rid, screenshot_bytes FROM rec_rows")) == before
    if begin:
        rec.execute("COMMIT")
    rec.execute(ADD, ("small", 91, "{}", None))  # needs no room


def test_a_resume_into_a_smaller_buffer_prunes_at_once(path):
    db = open_buffer(path)
    fill(db, 0, 10)
    one(db, "SELECT evidence_flush('rec')")
    mine = owner(db)
    db.close()
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer(overflow='main',"
               f"max_size_bytes=20000,retention_policy='keep-last-n',"
               f"max_screenshots=2,resume='{mine}')")
    assert rows(db, "SELECT id FROM rec WHERE screenshot IS NOT NULL") == [
        ("r008",), ("r009",)]
    assert one(db, "SELECT capacity_used <= 1 FROM evidence_stats") == 1
    assert one(db, "SELECT count(screenshot) FROM evidence__overflow") == 2
    well(db)


def test_a_resumed_buffer_knows_how_many_actions_were_pruned(path):
    db = open_buffer(path)
    for i in range(40):
        db.execute(ADD, (f"r{i:03}", i, json.dumps({"n": "x" * 5000}), None))
    kept = one(db, "SELECT count(*) FROM rec")
    one(db, "SELECT evidence_flush('rec')")
    mine = owner(db)
    db.close()
    assert 0 < kept < 20
    new = open_buffer(path, f", resume='{mine}'")
    told = json.loads(one(new, "SELECT evidence_export('rec')"))["metadata"]
    assert told["originalActionCount"] == 40
    assert told["missingActionCount"] == 40 - kept


def test_a_screenshot_deleted_from_the_overflow_is_reported(rec, path):
    fill(rec, 0, 4)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', 'keep-last-n')")
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_screenshots', 3)")
    plain = sqlite3.connect(path, isolation_level=None)
    assert rows(plain, "SELECT rid FROM evidence__overflow WHERE screenshot NOT NULL") == [
        (2,), (3,), (4,)]
    assert rows(plain, "SELECT rule, rows, bytes FROM retention_log") == [
        ("released", 0, 5000)]
    plain.execute("UPDATE evidence__overflow SET screenshot = NULL, screenshot_bytes = 0 "
                  "WHERE rid = 3")
    assert {r[0] for r in rows(rec, "SELECT problem FROM blackbox_check")} == {
        "the counters differ from the rows", "no screenshot in the overflow for 'r002'"}


def test_a_buffer_without_overflowed_rows_gets_a_new_owner(rec, path):
    fill(rec, 0, 3)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert one(rec, "SELECT evidence_clear('rec')") == 3  # the sweep waits
    other.execute("COMMIT")
    mine = owner(rec)
    new = open_buffer(path, f", resume='{mine}'")
    fill(rec, 10, 12)
    fill(rec, 20, 22, size=40000)
    one(rec, "SELECT evidence_flush('rec')")
    assert owner(rec) != mine
    assert one(rec, "SELECT count(*) FROM rec") == 4
    assert one(new, "SELECT count(*) FROM rec") == 3
    well(rec)
    well(new)


def test_an_overflow_of_a_later_version_is_refused(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("UPDATE blackbox_domains SET format = 9 WHERE domain = 'evidence'")
    with pytest.raises(sqlite3.OperationalError, match="VersionError"):
        db.execute(MAKE + ")")


def test_damaged_json_in_the_file_is_found(rec):
    fill(rec, 0, 2)
    one(rec, "SELECT evidence_flush('rec')")
    rec.execute("UPDATE evidence__overflow SET action = 'x{' WHERE rid = 1")
    assert "damaged JSON in the overflow of 'r000'" in str(
        rows(rec, "SELECT problem FROM blackbox_check"))
