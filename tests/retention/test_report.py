"""retention_report(): where the bytes are, and what gives them back. And dump, restore, uninstall."""
import sqlite3

import pytest

from conftest import connect, one, rows, shell
from retention_helpers import DAY, SESSION, T0, archive, notes, own_rule, plan

PARTS = ["cache", "evidence", "payload", "rollout", "store", "user", "file", "free", "wal"]


def report(db, columns="*", now=None):
    got = rows(db, f"SELECT part, {columns} FROM retention_report(?)", now)
    assert [row[0] for row in got] == PARTS
    return {row[0]: row[1:] for row in got}


def test_an_empty_file(db):
    got = report(db, "rows, bytes, due_rows, due_bytes")
    assert got["payload"] == got["cache"] == got["rollout"] == got["evidence"] == (0, 0, 0, 0)
    assert got["user"] == (None, None, 0, 0)
    assert got["file"] == (None, None, None, None)


def test_what_each_domain_uses_and_what_a_sweep_would_remove(db):
    archive(db, "p", T0, body="12345")
    archive(db, "q", T0, body="123", pinned=1)
    one(db, "SELECT rollout_create('5973b6c0-94b8-487b-a530-2aeb6098ae0e', NULL, 3, NULL, ?)", T0)
    db.execute("SELECT cache_write(?, 'task0001', 'turn0001', '[1]', 'd', NULL, ?)", (SESSION, T0))
    notes(db, 5, 6)
    own_rule(db)
    before = report(db, "rows, bytes, due_rows, due_bytes")
    assert before["payload"] == (2, 8, 1, 5)
    assert before["cache"] == (1, 3, 1, 3)
    assert before["rollout"][0] == 1 and before["rollout"][1] == before["rollout"][3] > 100
    assert before["user"] == (None, None, 2, 24)
    due = sum(row[3] for part, row in before.items() if row[3])
    assert one(db, "SELECT retention_sweep() ->> '$.bytes'") == due
    after = report(db, "rows, due_rows")
    assert after["payload"] == (1, 0) and after["cache"] == after["rollout"] == (0, 0)
    assert after["user"] == (None, 0)


def test_what_a_sweep_frees_in_an_older_file_only_vacuum_gives_back(path):
    db = connect(path)
    db.execute("CREATE TABLE app(x)")
    db.execute("SELECT blackbox_install('main', 'all')")
    for i in range(50):
        archive(db, f"p{i}", T0 + i, body="x" * 10000)
    full = report(db, "page_bytes, given_back_by")
    assert full["free"][1] == "VACUUM" and full["file"][0] == path.stat().st_size
    one(db, "SELECT retention_sweep()")
    swept = report(db, "page_bytes, given_back_by")
    assert swept["file"] == full["file"] and swept["free"][0] > full["free"][0] + 400_000
    db.execute("VACUUM")
    left = full["file"][0] - swept["free"][0]
    assert report(db, "page_bytes")["file"][0] <= left + 8192  # it packs pages in its own way
    assert report(db, "page_bytes")["free"] == (0,)


def test_a_file_that_can_shrink_in_steps_says_so(path):
    db = connect(path)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("SELECT blackbox_install('main', 'all')")
    assert report(db, "given_back_by")["free"] == ("PRAGMA incremental_vacuum",)


def test_the_write_ahead_log_counts(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    db.execute("SELECT blackbox_install('main', 'all')")
    said = report(db, "page_bytes, given_back_by")["wal"]
    assert said == (path.with_name(path.name + "-wal").stat().st_size,
                    "PRAGMA wal_checkpoint(TRUNCATE)") and said[0] > 0
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert report(db, "page_bytes")["wal"] == (0,)


@pytest.mark.parametrize("arguments", ["'x'", "-1", "1.5"])
def test_arguments_are_checked(db, arguments):
    with pytest.raises(sqlite3.Error, match="ValidationError"):
        rows(db, f"SELECT * FROM retention_report({arguments})")


def test_a_report_only_reads(db):
    archive(db, "p", T0)
    before = db.total_changes
    report(db)
    assert db.total_changes == before


# ----------------------------------------------------- dump, restore, uninstall


def test_rules_and_the_newest_time_survive_dump_and_restore(path, tmp_path):
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'payload,retention,cache')")
    archive(db, "p", T0)
    notes(db, 5)
    own_rule(db)
    own_rule(db, rule="gone", table="nowhere")
    one(db, "SELECT retention_sweep(1)")
    seen = one(db, "SELECT seen FROM retention__clock")
    db.close()
    copy = tmp_path / "copy.db"
    shell(copy, stdin=shell(path, ".dump"))
    db = connect(copy)
    assert one(db, "SELECT seen FROM retention__clock") == seen
    assert rows(db, "SELECT rule, times FROM retention_refusals") == [("gone", 1)]
    assert plan(db) == [("payload.age", "p", None)]
    problems = rows(db, "SELECT problem FROM blackbox_check")
    assert len(problems) == 1 and "rule gone" in problems[0][0]
    assert one(db, "SELECT retention_sweep() ->> '$.removed'") == 1


def test_the_domain_goes_alone(path):
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'payload,retention')")
    archive(db, "p", T0)
    own_rule(db, rule="gone", table="nowhere")
    one(db, "SELECT retention_sweep()")
    assert one(db, "SELECT blackbox_uninstall('main', 'retention')") == "main: core, payload"
    assert rows(db, "SELECT subject FROM blackbox_log WHERE kind = 'refusal'") == [("gone",)]
    assert rows(db, "SELECT * FROM blackbox_check") == []
    with pytest.raises(sqlite3.Error, match="blackbox_install"):
        plan(db, T0 + 9 * DAY)
    db.execute("SELECT blackbox_install()")
    assert rows(db, "SELECT rule FROM retention_rules WHERE domain = 'user'") == [("gone",)]
