"""retention_sweep(): removes what the plan lists, oldest due first, with receipts."""
import json
import random
import sqlite3
import time

import pytest

from conftest import by_hand, connect, one, rows
from holds_helpers import check
from retention_helpers import DAY, SESSION, T0, archive, notes, own_rule, plan

OTHER = SESSION.replace("a3f8", "b3f8")


def sweep(db, *args):
    return json.loads(one(db, f"SELECT retention_sweep({','.join('?' * len(args))})", *args))


def cache(db, task, at, session=SESSION, metadata=None, expires=None):
    db.execute("SELECT cache_write(?, ?, 'turn0000', '[1]', 'd', ?, ?, ?)",
               (session, task, metadata, at, expires))


def conversation(db, n, at, days):
    one(db, "SELECT rollout_create(?, NULL, ?, NULL, ?)",
        f"5973b6c0-94b8-487b-a530-{n:012x}", days, at)


def orphan(db, owner, seen, *pinned):
    db.execute("INSERT INTO evidence_owners(owner, buffer, claim, seen) VALUES(?, 'b', 'c', ?)",
               (owner, seen))
    for i, pin in enumerate(pinned):
        db.execute("INSERT INTO evidence__overflow(owner, id, timestamp, action_bytes,"
                   " screenshot_bytes, pruned, pinned, confidence, action) "
                   "VALUES(?, ?, ?, 2, 0, 0, ?, 1, '{}')",
                   (owner, f"x{i}", seen, pin))


def receipts(db):
    return rows(db, "SELECT domain, rule, actor, rows, bytes FROM retention_log ORDER BY id")


def test_nothing_due_is_no_work(db):
    assert sweep(db) == {"removed": 0, "bytes": 0, "byRule": {}, "left": {}, "more": False}
    assert receipts(db) == []


def test_a_sweep_goes_in_steps_from_the_oldest_due_on(db):
    notes(db, T0 + 1 * DAY, T0 + 3 * DAY, T0 + 5 * DAY)
    own_rule(db)  # due after a day
    for i in range(3):
        conversation(db, i, T0, 2 * i + 1)  # due on days 1, 3 and 5
    now = T0 + 50 * DAY
    order = plan(db, now, "rule, key")
    assert [rule for rule, key in order] == ["rollout.expired", "mine"] * 3
    while order:
        done = sweep(db, 2, now)
        assert done["removed"] == 2 and done["more"] == (len(order) > 2)
        order = order[2:]
        assert plan(db, now, "rule, key") == order


@pytest.mark.parametrize("begin", [False, True])
def test_everything_that_goes_has_a_receipt(db, begin):
    archive(db, "p", T0, body="12345")
    archive(db, "q", T0, pinned=1)
    conversation(db, 1, T0, 1)
    orphan(db, "o", T0, 0, 1)
    notes(db, 5, 6)
    own_rule(db)
    cache(db, "task0001", T0)
    if begin:
        db.execute("BEGIN")
    done = sweep(db)
    assert done["byRule"] == {"cache.idle": 1, "evidence.orphans": 1, "mine": 2,
                              "payload.age": 1, "rollout.expired": 1}
    assert done["removed"] == 6 and not done["more"]
    got = {(rule, actor, n) for domain, rule, actor, n, size in receipts(db)}
    assert got == {("idle", None, 1), ("evidence.orphans", None, 1),
                   ("mine", "retention_sweep", 2), ("payload.age", None, 1),
                   ("rollout.expired", None, 1)}
    assert sum(row[4] for row in receipts(db)) == done["bytes"]
    assert plan(db) == [("payload.age", "q", "pinned"), ("evidence.orphans", "o/x1", "pinned")]
    assert rows(db, "SELECT id FROM event_payloads") == [("q",)]
    if begin:
        db.execute("ROLLBACK")
        assert one(db, "SELECT count(*) FROM notes") == 2 and receipts(db) == []
    assert check(db) == []


@pytest.mark.parametrize("begin", [False, True])
def test_a_sweep_as_a_row(db, begin):
    notes(db, 5, 6)
    own_rule(db)
    if begin:
        db.execute("BEGIN")
    db.execute("INSERT INTO blackbox_call VALUES('retention_sweep', '[1]')")
    assert rows(db, "SELECT id FROM notes") == [(2,)]


def test_a_sweep_of_an_attached_schema_with_a_quoted_name(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "o ""v"', (str(tmp_path / "other.db"),))
    db.execute("""SELECT blackbox_install('o "v', 'all')""")
    archive(db, "p", T0, schema='o ""v')
    db.execute('CREATE TABLE "o ""v"."my ""n"("k ""k" TEXT PRIMARY KEY, "t ""t" INTEGER)')
    db.execute("CREATE TABLE main.\"my \"\"n\"(x)")
    db.execute('INSERT INTO "o ""v"."my ""n" VALUES(\'a\', 7)')
    own_rule(db, rule='r"1', table='my "n', key='k "k', time='t "t')
    assert sweep(db)["byRule"] == {'r"1': 1, "payload.age": 1}
    assert plan(db) == []


@pytest.mark.parametrize("format, unit", [("ms", 1), ("s", 1000), ("text", None)])
def test_rows_of_one_time_are_taken_by_their_key(db, format, unit):
    at = "2020-01-01 00:00:00" if unit is None else T0 // unit
    notes(db, *[at] * 7)
    own_rule(db, format=format)
    for left in (5, 3, 1, 0):
        sweep(db, 2)
        assert one(db, "SELECT count(*) FROM notes") == left
        assert rows(db, "SELECT id FROM notes") == [(i,) for i in range(8 - left, 8)]


def test_keys_of_any_type_and_collation(db):
    db.execute("CREATE TABLE notes(id PRIMARY KEY COLLATE NOCASE, at) WITHOUT ROWID")
    keys = [1, 2.5, "B", "a", "c", b"x"]
    db.executemany("INSERT INTO notes VALUES(?, 5)", [(key,) for key in keys])
    own_rule(db)
    assert [row[1] for row in plan(db)] == keys
    while keys:
        assert sweep(db, 2)["removed"] == 2
        keys = keys[2:]
        assert {row[0] for row in rows(db, "SELECT id FROM notes")} == set(keys)


def test_the_rowid_can_be_the_key(db):
    db.execute("CREATE TABLE notes(at)")
    db.execute("INSERT INTO notes VALUES(5), (6)")
    own_rule(db, key="rowid")
    assert sweep(db, 1)["removed"] == 1
    assert rows(db, "SELECT rowid FROM notes") == [(2,)]


def test_a_view_of_the_user_is_swept_through_its_trigger(db):
    notes(db, 5, 6)
    db.execute("CREATE VIEW drafts AS SELECT id AS key, 3 AS bytes, at,"
               " NULL AS blocked_by FROM notes WHERE id > 1")
    db.execute("CREATE TRIGGER draft INSTEAD OF DELETE ON drafts BEGIN"
               " DELETE FROM notes WHERE id = OLD.key; END")
    db.execute("INSERT INTO retention_rules(rule, \"view\", age_ms) VALUES('d', 'drafts', 10)")
    assert sweep(db) == {"removed": 1, "bytes": 3, "byRule": {"d": 1}, "left": {}, "more": False}
    assert rows(db, "SELECT id FROM notes") == [(1,)]
    assert receipts(db) == [("user", "d", "retention_sweep", 1, 3)]


def test_rows_without_a_key_do_not_protect_the_others(db):
    for table in "notes", "other":
        db.execute(f"CREATE TABLE {table}(id TEXT PRIMARY KEY, at)")
        db.execute(f"INSERT INTO {table} VALUES(NULL, 1), ('a', 5), (x'00', 6)")
        own_rule(db, rule=table, table=table)
    assert sweep(db)["byRule"] == {"notes": 2, "other": 2}
    assert rows(db, "SELECT id FROM notes") == [(None,)]


def test_what_is_blocked_in_the_plan_stays_even_if_the_sweep_frees_it(db):
    cache(db, "task0001", T0, metadata='{"kind":"tool_result"}', expires=T0 + 1)
    now = T0 + 2 * DAY
    assert plan(db, now, "rule, blocked_by") == [
        ("cache.expired", None), ("cache.idle", "tool_result")]
    notes(db, 5)
    assert sweep(db, 10, now)["byRule"] == {"cache.expired": 1}
    assert plan(db, now, "rule, blocked_by") == [("cache.idle", None)]


def test_idle_sessions_with_a_tool_result_go_by_a_rule_of_their_own(db):
    for session in (SESSION, OTHER):
        cache(db, "task0001", T0, session, metadata='{"kind":"tool_result"}')
        cache(db, "task0002", T0, session)
    one(db, "SELECT retention_hold('session', ?, 'case', 'ann', 'asked')", OTHER)
    assert "cache.abandoned" not in dict(plan(db, T0 + 30 * DAY, "rule, key"))
    now = T0 + 30 * DAY + 1
    assert sorted(plan(db, now, "rule, key, bytes, reason, blocked_by")) == [
        ("cache.abandoned", SESSION, 6, "cache.max_idle_days = 30", None),
        ("cache.abandoned", OTHER, 6, "cache.max_idle_days = 30", "held"),
        ("cache.idle", SESSION, 6, "cache.idle_ms = 86400000", "tool_result"),
        ("cache.idle", OTHER, 6, "cache.idle_ms = 86400000", "tool_result")]
    report = "SELECT due_rows, due_bytes FROM retention_report(?) WHERE part = 'cache'"
    assert rows(db, report, now) == [(1, 6)]
    assert sweep(db, 10, now) == {
        "removed": 1, "bytes": 6, "byRule": {"cache.abandoned": 1},
        "left": {"held": 1, "tool_result": 1}, "more": False}
    assert receipts(db) == [("cache", "abandoned", None, 2, 6)]
    assert rows(db, "SELECT session_id, item_count FROM cache_sessions") == [(OTHER, 2)]
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('cache.max_idle_days', 36500)")
    one(db, "SELECT retention_release('session', ?, 'case', 'ann', 'over')", OTHER)
    assert plan(db, now, "rule, blocked_by") == [("cache.idle", "tool_result")]
    assert sweep(db, 10, now)["removed"] == 0


@pytest.mark.parametrize("rule, when", [
    ("cache.abandoned", 31), ("cache.age", 2), ("cache.expired", 2), ("cache.idle", 2)])
def test_a_refused_rule_of_the_cache_leaves_no_note_behind(db, rule, when):
    own = '{"kind":"tool_result"}' if rule == "cache.abandoned" else None
    cache(db, "task0001", T0, metadata=own, expires=T0 + 1 if rule == "cache.expired" else None)
    if rule == "cache.age":
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('cache.max_age_days', 1)")
    table = one(db, 'SELECT "table" FROM retention_rules WHERE rule = ?', rule)
    db.execute(f"CREATE TRIGGER mine BEFORE DELETE ON {table} "
               "BEGIN SELECT RAISE(ABORT, 'mine'); END")
    assert rule not in sweep(db, 10, T0 + when * DAY)["byRule"]
    assert rows(db, "SELECT message FROM retention_refusals WHERE rule = ?", rule) == [("mine",)]
    db.execute("DROP TRIGGER mine")
    db.execute("DELETE FROM cache_items")
    assert [r[1] for r in receipts(db)][-1:] in (["manual"], [rule[6:]], ["idle"])
    assert rows(db, "SELECT rule FROM cache_state") == [(None,)]


# ------------------------------------------------------------------- refusals


def refusals(db):
    return rows(db, "SELECT rule, message, times FROM retention_refusals")


def test_a_rule_whose_table_is_gone_is_refused_and_stops_no_other(db):
    notes(db, 5)
    own_rule(db)
    own_rule(db, rule="gone", table="nowhere")
    assert sweep(db)["byRule"] == {"mine": 1}
    assert refusals(db) == [("gone", "there is no table 'nowhere' with a unique column 'id'", 1)]
    db.execute("CREATE TABLE nowhere(id INTEGER PRIMARY KEY, at, body)")
    sweep(db)
    assert refusals(db) == [("gone", "there is no table 'nowhere' with a unique column 'id'", 1)]


def test_a_refusal_is_written_once_a_day_and_another_one_at_once(db, path):
    own_rule(db, rule="gone", table="nowhere")
    for _ in range(3):
        sweep(db)
    assert refusals(db) == [("gone", "there is no table 'nowhere' with a unique column 'id'", 1)]
    db.execute("CREATE TABLE nowhere(id INTEGER PRIMARY KEY)")
    sweep(db)
    assert [r[2] for r in refusals(db)] == [1, 1]
    db.execute("DROP TABLE nowhere")
    by_hand(path, "UPDATE blackbox__log SET at = at - 86400001")
    before = one(db, "SELECT max(at) FROM retention_refusals")
    sweep(db)
    sweep(db)
    assert rows(db, "SELECT times, at > ? FROM retention_refusals WHERE message LIKE "
                "'there is no%'", before) == [(2, 1)]
    assert rows(db, "SELECT DISTINCT domain, kind, subject FROM blackbox_log") == [
        ("user", "refusal", "gone")]


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("refuse", [
    "CREATE TRIGGER mine BEFORE DELETE ON notes BEGIN SELECT RAISE(ABORT, 'mine stay'); END",
    "CREATE TRIGGER mine BEFORE DELETE ON notes WHEN OLD.id = 2 BEGIN"
    " SELECT RAISE(FAIL, 'mine stay'); END",
    "CREATE TABLE child(note REFERENCES notes); INSERT INTO child VALUES(2);"
    "PRAGMA foreign_keys = ON",
])
def test_a_delete_that_is_refused_leaves_the_rows_of_that_rule(db, refuse, begin):
    notes(db, 5, 6, 7)
    own_rule(db)
    conversation(db, 1, T0, 1)
    db.executescript(refuse)
    if begin:
        db.execute("BEGIN")
    done = sweep(db, 2)
    assert done["byRule"].get("rollout.expired") == 1 and not done["more"]
    left = one(db, "SELECT count(*) FROM notes")
    assert left == 3 - done["byRule"].get("mine", 0)
    assert len(refusals(db)) == 1 and refusals(db)[0][0] == "mine"
    assert sum(n for _, rule, _, n, _ in receipts(db) if rule == "mine") == 3 - left
    assert rows(db, "SELECT * FROM blackbox__open WHERE minute = 0") == []


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_delete_that_is_refused_stops_no_other_rule_of_a_sweep_as_a_row(db, begin):
    notes(db, 5, 6, 7)
    own_rule(db)
    conversation(db, 1, T0, 1)
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON notes"
               " BEGIN SELECT RAISE(ABORT, 'mine stay'); END")
    db.execute(begin)
    db.execute("INSERT INTO blackbox_call VALUES('retention_sweep', '[2]')")
    if begin:
        db.execute("COMMIT")
    assert refusals(db) == [("mine", "mine stay", 1)]
    assert [row[1] for row in receipts(db)] == ["rollout.expired"]
    assert one(db, "SELECT count(*) FROM notes") == 3


def test_rows_that_a_trigger_keeps_silently_do_not_count(db):
    notes(db, 5, 6, 7)
    own_rule(db)
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON notes WHEN OLD.id < 3"
               " BEGIN SELECT RAISE(IGNORE); END")
    assert sweep(db) == {"removed": 1, "bytes": 12, "byRule": {"mine": 1},
                         "left": {"refused": 2}, "more": False}
    assert receipts(db) == [("user", "mine", "retention_sweep", 1, 12)]
    assert sweep(db, 1) == {"removed": 0, "bytes": 0, "byRule": {}, "left": {"refused": 2},
                            "more": False}
    assert len(receipts(db)) == 1


def test_a_trigger_that_keeps_the_oldest_rows_does_not_starve_the_others(db):
    archive(db, "p", T0)
    conversation(db, 1, T0, 100)
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads"
               " BEGIN SELECT RAISE(IGNORE); END")
    assert sweep(db, 1)["byRule"] == {"rollout.expired": 1}
    assert rows(db, "SELECT id FROM event_payloads") == [("p",)]
    assert [row[1] for row in receipts(db)] == ["rollout.expired"]


@pytest.mark.parametrize("sql", [
    "DELETE FROM retention_refusals", "UPDATE retention_refusals SET message = 'x'",
    "INSERT INTO retention_refusals(rule, message) VALUES('r', 'm')"])
def test_refusals_are_no_receipts_and_cannot_be_changed(db, sql):
    own_rule(db, rule="gone", table="nowhere")
    sweep(db)
    assert receipts(db) == []
    with pytest.raises(sqlite3.OperationalError, match="because it is a view"):
        db.execute(sql)


@pytest.mark.parametrize("arguments, error", [
    ("0", "limit"), ("-1", "limit"), ("'x'", "limit"), ("1, 'x'", "now"), ("1, -1", "now")])
def test_arguments_are_checked(db, arguments, error):
    notes(db, 5)
    own_rule(db)
    with pytest.raises(sqlite3.Error, match=f"ValidationError: {error}"):
        db.execute(f"SELECT retention_sweep({arguments})")
    assert len(plan(db)) == 1


# ------------------------------------------------------------- plan equals act


def fill(db, rng, now):
    """Something of every kind around the times at which it falls due."""
    def near(age):
        return now - age + rng.choice([-DAY, -1, 0, 1, DAY]) * rng.randrange(3)

    db.execute("UPDATE blackbox_settings SET value = 9e12 WHERE name = 'payload.history_until'")
    retention = rng.choice([1, 7, 30])
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.retention_days', ?)", (retention,))
    for i in range(rng.randrange(8)):
        archive(db, f"p{i}", near(retention * DAY), "x" * rng.randrange(9), rng.random() < 0.3)
    for i in range(rng.randrange(6)):
        at = near(10 * DAY)
        conversation(db, i, at, rng.choice([1, 9, 10, 11]))
    for i in range(rng.randrange(4)):
        orphan(db, f"o{i}", near(30 * DAY), *[rng.randrange(2) for _ in range(rng.randrange(3))])
    if rng.random() < 0.5:
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('cache.max_age_days', ?)",
                   (rng.choice([0.5, 1, 3]),))
    for i in range(rng.randrange(8)):
        at = near(rng.choice([1, 3]) * DAY)
        cache(db, f"task000{i}", at, rng.choice([SESSION, OTHER]),
              rng.choice([None, '{"kind":"tool_result"}']), rng.choice([None, at + DAY]))
    for name, format in ("a", "ms"), ("b", "s"), ("c", "text"):
        if rng.random() < 0.6:
            times = [near(DAY) for _ in range(rng.randrange(5))]
            if format == "s":
                times = [t // 1000 if rng.random() < 0.5 else t / 1000 for t in times]
            if format == "text":
                times = [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t // 1000))
                         for t in times]
            notes(db, *times, table=name)
            own_rule(db, rule=name, table=name, format=format)


def things(db):
    """Every thing that a rule could take, by the table in which the plan lists it."""
    found = set()
    for table, key in (("event_payloads", "id"), ("rollouts", "id"),
                       ("cache_items", "storage_key"), ("cache_sessions", "session_id"),
                       ("evidence__overflow", "owner || '/' || id"),
                       ("a", "id"), ("b", "id"), ("c", "id")):
        if one(db, "SELECT count(*) FROM sqlite_schema WHERE name = ?", table):
            found |= {(table, key) for key, in rows(db, f"SELECT {key} FROM {table}")}
    return found


@pytest.mark.parametrize("seed", range(14, 29))
def test_the_plan_is_exactly_what_goes(seed):
    rng = random.Random(seed)
    now = int(time.time() * 1000) - rng.randrange(100) * DAY
    db = connect()
    db.execute("SELECT blackbox_install('main', 'all')")
    fill(db, rng, now)
    steps = 0
    while True:
        before = things(db)
        planned = plan(db, now, '"table", key, rule, blocked_by')
        free = [row[:3] for row in planned if row[3] is None]
        limit = rng.randrange(1, 6)
        done = sweep(db, limit, now)
        gone = before - things(db)
        due = {row[:2] for row in free[:limit]}
        # an item that is due goes with its session, if that is due as well
        cascade = {thing for thing in gone if thing[0] == "cache_items"
                   and ("cache_sessions", thing[1].rsplit("_", 2)[0]) in due}
        assert gone - cascade == due - cascade
        assert done["removed"] <= len(free[:limit])
        assert done["more"] == (len(free) > limit)
        steps += 1
        if not free:
            break
    assert steps < 60
    assert [row for row in plan(db, now, "blocked_by") if row[0] is None] == []
    assert rows(db, "SELECT * FROM blackbox_check") == []
