"""retention_plan(): what would go, oldest due first; it only reads."""
import sqlite3

import pytest

from conftest import connect, one, rows
from retention_helpers import DAY, SESSION, T0, archive, iso, notes, own_rule, plan


def cache(db, task, at, session=SESSION):
    db.execute("SELECT cache_write(?, ?, 'turn0000', '[1]', 'd', NULL, ?)", (session, task, at))


def test_an_empty_database_has_an_empty_plan(db):
    assert plan(db) == []
    assert plan(db, T0) == []


def test_the_plan_lists_the_due_rows_of_every_domain_in_the_order_they_fell_due(db):
    archive(db, "old", T0)
    archive(db, "kept", T0 + 1, pinned=1)
    archive(db, "young", T0 + 90 * DAY)
    one(db, "SELECT rollout_create('5973b6c0-94b8-487b-a530-2aeb6098ae0e', NULL, 3, NULL, ?)", T0)
    cache(db, "task0001", T0)
    db.execute("INSERT INTO evidence_owners(owner, buffer, claim, seen) VALUES('o', 'b', 'c', ?)",
               (T0,))
    db.execute("INSERT INTO evidence__overflow VALUES(1, 'o', 'x', ?, 5, 0, 0, 0, 1, 0, "
               "'{\"a\"', NULL)", (T0,))
    assert plan(db, T0 + 60 * DAY, 'domain, "table", rule, key, at, due, age_ms, blocked_by') == [
        ("cache", "cache_sessions", "cache.idle", SESSION, T0, T0 + DAY, 60 * DAY, None),
        ("rollout", "rollouts", "rollout.expired", "5973b6c0-94b8-487b-a530-2aeb6098ae0e",
         T0 + 3 * DAY, T0 + 3 * DAY, 57 * DAY, None),
        ("payload", "event_payloads", "payload.age", "old", T0, T0 + 7 * DAY, 60 * DAY, None),
        ("payload", "event_payloads", "payload.age", "kept", T0 + 1, T0 + 1 + 7 * DAY,
         60 * DAY - 1, "pinned"),
        ("evidence", "evidence__overflow", "evidence.orphans", "o/x", T0, T0 + 30 * DAY,
         60 * DAY, None)]
    assert plan(db, T0 + DAY) == []


def test_a_row_is_due_after_its_age_and_not_at_it(db):
    archive(db, "p", T0)
    assert plan(db, T0 + 7 * DAY) == []
    assert plan(db, T0 + 7 * DAY + 1) == [("payload.age", "p", None)]
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.retention_days', 30)")
    assert plan(db, T0 + 7 * DAY + 1) == []
    assert plan(db, T0 + 30 * DAY + 1, "reason") == [("payload.retention_days = 30",)]


@pytest.mark.parametrize("begin", [False, True])
def test_the_plan_only_reads(db, begin):
    archive(db, "p", T0)
    notes(db, 5)
    own_rule(db)
    if begin:
        db.execute("BEGIN")
    before, image = db.total_changes, db.serialize() if hasattr(db, "serialize") else None
    assert len(plan(db)) == 2
    assert db.total_changes == before
    if image is not None:
        assert db.serialize() == image


def test_the_plan_reads_a_database_that_cannot_be_written(path, tmp_path):
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'all')")
    archive(db, "p", T0)
    db.close()
    db = connect(f"file:{path}?mode=ro", uri=True)
    assert plan(db) == [("payload.age", "p", None)]


def test_the_plan_of_an_attached_schema_with_a_quoted_name(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "o ""v"', (str(tmp_path / "other.db"),))
    db.execute("""SELECT blackbox_install('o "v', 'all')""")
    archive(db, "p", T0, schema='o ""v')
    db.execute('CREATE TABLE "o ""v"."my ""n"("k ""k" TEXT PRIMARY KEY, "t ""t" INTEGER)')
    db.execute('INSERT INTO "o ""v"."my ""n" VALUES(\'a\', 7)')
    own_rule(db, table='my "n', key='k "k', time='t "t')
    assert plan(db) == [("mine", "a", None), ("payload.age", "p", None)]


def test_a_plan_needs_the_domain(path):
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'payload')")
    with pytest.raises(sqlite3.Error, match="blackbox_install"):
        plan(db)


def test_a_domain_that_is_not_installed_is_not_in_the_plan(path):
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'retention,payload')")
    archive(db, "p", T0)
    assert plan(db) == [("payload.age", "p", None)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("now", ["'x'", "-1", "1.5", "x'00'"])
def test_now_must_be_a_time(db, now):
    with pytest.raises(sqlite3.Error, match="ValidationError: now"):
        rows(db, f"SELECT * FROM retention_plan({now})")


def test_a_dropped_view_leaves_the_other_rules_and_is_a_problem(db):
    archive(db, "p", T0)
    db.execute("CREATE VIEW mine AS SELECT 1 AS key, 1 AS bytes, 0 AS at, NULL AS blocked_by")
    db.execute("INSERT INTO retention_rules(rule, \"view\", age_ms) VALUES('a.mine', 'mine', 10)")
    db.execute("DROP VIEW mine")
    assert plan(db) == [("payload.age", "p", None)]
    problems = rows(db, "SELECT problem FROM blackbox_check WHERE object = 'retention_rules'")
    assert problems == [("rule a.mine is not applied: no such table: main.mine;"
                         " correct the rule, or delete it",)]


# ------------------------------------------------------------- rules of users


@pytest.mark.parametrize("format, times", [
    ("ms", (T0 - 1, T0, "5", None, 1e3)),
    ("s", (T0 // 1000 - 1, T0 // 1000, "5", None, 1.5)),
    ("text", (iso(T0 - 1), iso(T0), "5", None, "1970-01-02 00:00")),
])
def test_a_rule_on_a_table_of_the_user(db, format, times):
    notes(db, *times)
    own_rule(db, format=format)
    assert [row[1] for row in plan(db, T0 + DAY)] == [5, 1]
    assert plan(db, T0 + DAY, "domain, \"table\", bytes") == [
        ("user", "notes", 11 + len(str(times[4]))), ("user", "notes", 11 + len(str(times[0])))]


def test_a_time_with_a_zone_counts_in_utc(db):
    notes(db, "2026-01-10T00:30:00+14:00", "2026-01-09T12:00:00-11:00")
    own_rule(db, format="text")
    at = 1767956400000  # 2026-01-09T11:00:00Z
    assert [row[1] for row in plan(db, at + DAY)] == [1]
    assert [row[1] for row in plan(db, at + 12 * 3600000 + DAY + 1)] == [1, 2]


def test_text_in_a_column_of_numbers_is_never_due(db):
    db.execute("CREATE TABLE notes(id INTEGER PRIMARY KEY, at TEXT)")
    db.execute("INSERT INTO notes VALUES(1, 5), (2, '9')")
    own_rule(db)
    assert plan(db) == []


def test_a_row_without_a_key_stays(db):
    db.execute("CREATE TABLE notes(id TEXT PRIMARY KEY, at)")
    db.execute("INSERT INTO notes VALUES(NULL, 5), ('a', 6)")
    own_rule(db)
    assert plan(db) == [("mine", None, "its key is NULL"), ("mine", "a", None)]


def test_a_view_of_the_user_can_have_a_condition(db):
    notes(db, 5, 6)
    db.execute("CREATE VIEW drafts AS SELECT id AS key, 1 AS bytes, at,"
               " NULL AS blocked_by FROM notes WHERE id > 1")
    db.execute("INSERT INTO retention_rules(rule, \"view\", age_ms) VALUES('d', 'drafts', 10)")
    assert plan(db, 17, '"table", key, reason') == [("drafts", 2, "age_ms = 10")]


@pytest.mark.parametrize("change, problem", [
    ({"table": "nowhere"}, "there is no table 'nowhere'"),
    ({"key": "nokey"}, "no table 'notes' with a unique column 'nokey'"),
    ({"time": "notime"}, "no such column: notes.notime"),
    ({"key": "body"}, "no table 'notes' with a unique column 'body'"),
    ({"table": "EVENT_payloads"}, "belongs to blackbox"),
    ({"table": "ring_slots", "key": "slot", "time": "timestamp"}, "belongs to blackbox"),
    ({"table": "ring_slots", "key": "id", "time": "timestamp"}, "belongs to blackbox"),
    ({"table": "blackbox__log", "key": "n"}, "belongs to blackbox"),
    ({"table": "sqlite_schema", "key": "rootpage", "time": "rootpage"}, "there is no table"),
    ({"table": "ring", "key": "seq", "time": "timestamp"}, "there is no table"),
])
def test_a_rule_that_cannot_be_applied_is_a_problem_and_stops_no_other(db, change, problem):
    notes(db, 5)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    own_rule(db)
    own_rule(db, **{"rule": "bad", **change})
    assert plan(db) == [("mine", 1, None)]
    found = rows(db, "SELECT problem FROM blackbox_check")
    assert len(found) == 1 and problem in found[0][0] and "rule bad is not applied" in found[0][0]


@pytest.mark.parametrize("change", [
    {"age": 0}, {"age": -5}, {"age": "x"}, {"age": None}, {"format": "days"}, {"table": None},
    {"key": None}, {"time": None}, {"rule": ""}, {"rule": None},
])
def test_a_rule_is_checked_when_it_is_written(db, change):
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError|NOT NULL.*rule"):
        own_rule(db, **change)
    own_rule(db)
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        db.execute("UPDATE retention_rules SET age_ms = 'x' WHERE rule = 'mine'")
