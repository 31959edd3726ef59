"""What follows from the items: it cannot be changed by mistake, the check finds missing and
wrong values, and a rebuild computes them again."""
import json
import random
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, event, message, user, well
from conftest import ROOT, connect, one, problems, rows, shell

TABLES = ("heads", "about", "turns", "_marks", "_data", "segments", "drops")


def stored(db):
    """Everything that is stored of conversations. stamp and looked are only counters."""
    heads = rows(db, "SELECT no, id, created, updated, expires_at, status, last_sequence, "
                     "user_sequence, turns, bytes FROM rollout_heads ORDER BY no")
    return heads, [rows(db, f"SELECT * FROM rollout_{table} ORDER BY 1, 2")
                   for table in TABLES[1:]]


def meta(**more):
    return json.dumps({"id": ID, "timestamp": "x", **more})


@pytest.fixture
def told(db):
    """A conversation with turns, a rollback and a compaction, and two forks."""
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.ttl_days', 30000)")
    one(db, "SELECT rollout_create(?, NULL, 'permanent', ?, 1000)", ID, meta(
        source="cli", cwd="/w", originator="me", cli_version="9", model_provider="p",
        title="T"))
    append(db, ID, message("user", "<environment_context>x"), user("first"),
           message("assistant", "yes"), message("user", "second"), now=2000)
    append(db, ID, event("thread_rolled_back", num_turns=1), user("third"),
           {"type": "compacted", "payload": {"replacement_history": [{}]}}, now=1500)
    one(db, "SELECT rollout_fork(?, 1, ?, 3000)", ID, OTHER)
    append(db, OTHER, user("of the fork"), event("token_count"), now=4000)
    one(db, "SELECT rollout_fork(?, NULL, ?, 5000)", OTHER, THIRD)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    return db


# ------------------------------------------------------------------- guards

@pytest.mark.parametrize("change", [
    "updated = 0", "updated = 9000000000000", "user_sequence = NULL", "user_sequence = 2",
    "last_sequence = 99", "last_sequence = -1", "turns = 0", "bytes = 5", "looked = 99",
    "created = 5", "id = '00000000-0000-4000-8000-000000000000'", "no = 77", "stamp = 7",
    "stamp = -1"])
@pytest.mark.parametrize("begin", [False, True])
def test_an_upsert_cannot_hide_or_falsify_a_conversation(told, change, begin):
    before = stored(told)
    for sql in ("INSERT INTO rollout_heads(id) VALUES (:id) ON CONFLICT (id) DO UPDATE SET ",
                "UPDATE rollout_heads SET ", "UPDATE OR REPLACE rollout_heads SET ",
                "UPDATE OR IGNORE rollout_heads SET "):
        if begin:
            told.execute("BEGIN")
        with pytest.raises(sqlite3.IntegrityError, match="ReadOnlyError: only status and expires_at"):
            told.execute(sql + change + (" WHERE id = :id" if "UPDATE roll" in sql
                                         or "OR " in sql else ""), {"id": ID})
        if begin:
            told.execute("COMMIT")
    assert stored(told) == before


def test_an_upsert_changes_status_and_expiry(told):
    told.execute("INSERT INTO rollout_heads(id, status) VALUES (?, 'archived') ON CONFLICT (id) "
                 "DO UPDATE SET status = excluded.status, expires_at = 9000000000000", (ID,))
    assert rows(told, "SELECT status, expires_at, item_count FROM rollouts WHERE id = ?", ID) == [
        ("archived", 9000000000000, 8)]
    assert rows(told, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("column", ["updated", "user_sequence", "last_sequence", "turns",
                                    "bytes", "looked", "stamp"])
def test_an_insert_gives_no_counters(db, column):
    with pytest.raises(sqlite3.IntegrityError, match="ReadOnlyError: the counters"):
        db.execute(f"INSERT INTO rollout_heads(id, {column}) VALUES (?, 5)", (ID,))
    with pytest.raises(sqlite3.IntegrityError, match="ReadOnlyError: the counters"):
        db.execute("INSERT INTO rollouts(id, updated) VALUES (?, 5)", (ID,))
    assert rows(db, "SELECT * FROM rollout_heads") == []


UNKNOWN = ("INSERT INTO rollout_heads(id{names}) VALUES ('%s'{values}) ON CONFLICT (id) "
           "DO UPDATE SET status = excluded.status" % ID)


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("recursive", [0, 1])
def test_an_upsert_of_an_unknown_id_makes_a_whole_conversation(db, begin, recursive):
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.ttl_days', 2)")
    if begin:
        db.execute("BEGIN")
    for _ in range(2):  # the second one meets it
        db.execute(UNKNOWN.format(names=", created, status", values=", 1000, 'archived'"))
    if begin:
        db.execute("COMMIT")
    assert rows(db, "SELECT status, expires_at, created, updated, item_count FROM rollouts") == [
        ("archived", 1000 + 2 * 86400000, 1000, 1000, 1)]
    made = json.loads(one(db, "SELECT session_meta FROM rollouts"))
    one(db, "SELECT rollout_create(?, NULL, NULL, NULL, 1000)", OTHER)
    like = json.loads(one(db, "SELECT session_meta FROM rollouts WHERE id = ?", OTHER))
    assert made == {**like, "id": ID}
    append(db, ID, user("hi"), now=2000)
    assert one(db, "SELECT first_user_message FROM rollout_list(5, NULL, 3000)") == "hi"
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_an_upsert_of_an_unknown_id_takes_the_expiry_that_is_given(db):
    db.execute(UNKNOWN.format(names=", expires_at", values=", 9000000000000"))
    assert rows(db, "SELECT expires_at, item_count FROM rollouts") == [(9000000000000, 1)]


@pytest.mark.parametrize("sql", [
    "INSERT INTO rollout_heads(id) VALUES ('%s')" % OTHER,
    "INSERT INTO rollouts(id) VALUES ('%s')" % OTHER,
    "INSERT INTO rollout_forks(parent, id) VALUES ('%s', '%s')" % (ID, OTHER)])
@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("column", ["last_sequence", "looked"])
def test_a_trigger_starts_a_whole_conversation_or_none(db, sql, column, recursive):
    """While an item is read (looked), the trigger that reads is running."""
    create(db)
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    db.execute(f"CREATE TRIGGER mine AFTER UPDATE OF {column} ON rollout_heads "
               f"WHEN NEW.id = '{ID}' BEGIN {sql}; END")
    log = ("INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, 'compacted', '{}')",
           (ID,))
    if recursive or column == "last_sequence":
        db.execute(*log)
        assert one(db, "SELECT count(*) FROM rollouts") == 2
    else:
        with pytest.raises(sqlite3.IntegrityError, match="recursive_triggers = ON"):
            db.execute(*log)
        assert one(db, "SELECT count(*) FROM rollouts") == 1
    db.execute("DROP TRIGGER mine")
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ---------------------------------------------------- items by plain INSERT

@pytest.mark.parametrize("payload", ["'{'", "'not json'", "''", "'{''a'':1}'", "'[1,]'"])
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE",
                                  "INSERT OR FAIL"])
def test_a_plain_insert_puts_no_payload_that_is_not_json(told, payload, verb):
    before = stored(told)
    for sql in (f"{verb} INTO rollout__data(id, timestamp, type, payload) "
                f"VALUES ((1 << 32) + 8, 1, 'token_count', {payload})",
                f"{verb} INTO rollout_items(rollout, type, payload) "
                f"VALUES ('{ID}', 'token_count', {payload})",
                f"{verb} INTO rollout__imports(rollout, now, timestamp, type, payload) "
                f"VALUES ('{ID}', 1, 1, 'token_count', {payload})"):
        with pytest.raises(sqlite3.IntegrityError, match="must be well-formed JSON"):
            told.execute(sql)
    assert stored(told) == before


@pytest.mark.parametrize("key", ["(1 << 32) + 9", "(1 << 32) + 4294967295", "(9 << 32)",
                                 "NULL", "5", "-1", "(2 << 32) + 1", "(2 << 32) + 2"])
def test_a_plain_insert_leaves_no_gap(told, key):
    before = stored(told)
    for verb in "INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE":
        with pytest.raises(sqlite3.IntegrityError, match="SequenceError: items must be appended"):
            told.execute(f"{verb} INTO rollout__data(id, timestamp, type, payload) "
                         f"VALUES ({key}, 1, 'x', '1')")
    assert stored(told) == before


@pytest.mark.parametrize("column", ["look", "looked", "stamp"])
def test_the_items_have_no_column_that_instructs(told, column):
    for table in "rollout__data", "rollout__imports":
        with pytest.raises(sqlite3.OperationalError, match="no column named"):
            told.execute(f"INSERT INTO {table}({column}) VALUES (0)")


@pytest.mark.parametrize("values, reason", [
    ("-1, 'x', '1'", "whole milliseconds"), ("NULL, 'x', '1'", "whole milliseconds"),
    ("1.5, 'x', '1'", "whole milliseconds"), ("1, '', '1'", "1 to 100 bytes"),
    ("1, NULL, '1'", "1 to 100 bytes"), ("1, x'61', '1'", "1 to 100 bytes"),
    ("1, 'x', x'31'", "a payload is JSON text")])
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR IGNORE", "INSERT OR FAIL"])
def test_a_wrong_item_is_not_counted_whatever_follows_an_error(told, verb, values, reason):
    before = stored(told)
    for into in ("rollout__data(id, timestamp, type, payload) VALUES ((1 << 32) + 8, ",
                 f"rollout__imports(rollout, timestamp, type, payload) VALUES ('{ID}', "):
        with pytest.raises(sqlite3.IntegrityError, match=reason):
            told.execute(f"{verb} INTO {into}{values})")
    assert stored(told) == before


@pytest.mark.parametrize("recursive", [0, 1])
def test_the_next_item_is_not_counted_if_a_trigger_ignores_it(told, recursive):
    told.execute(f"PRAGMA recursive_triggers = {recursive}")
    told.execute("CREATE TRIGGER mine BEFORE INSERT ON rollout__data "
                 "WHEN NEW.type = 'x' BEGIN SELECT RAISE(IGNORE); END")
    before = stored(told)
    for sql in (f"INSERT INTO rollout_items(rollout, type, payload) VALUES ('{ID}', 'x', '1')",
                f"INSERT INTO rollout__imports(rollout, timestamp, type, payload) "
                f"VALUES ('{ID}', 1, 'x', '1')"):
        told.execute(sql)
        assert stored(told) == before
    told.execute("DROP TRIGGER mine")
    well(told)


def test_a_plain_insert_of_the_next_item_counts_as_any_other(told):
    told.execute("INSERT INTO rollout__data(id, timestamp, type, payload) VALUES "
                 "((1 << 32) + 8, 9000, 'event_msg', ?)",
                 (json.dumps(user("next")["payload"]),))
    assert rows(told, "SELECT item_count, turns, updated FROM rollouts WHERE id = ?", ID) == [
        (9, 3, 9000)]
    well(told)


@pytest.mark.parametrize("way", ["function", "row"])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_an_item_that_a_trigger_ignores_is_not_counted(db, way, which):
    create(db)
    db.execute("CREATE TRIGGER quiet BEFORE INSERT ON rollout__data WHEN NEW.payload LIKE "
               "'%quiet%' BEGIN SELECT RAISE(IGNORE); END")
    items = [user("a"), user("b"), user("c")]
    items[which] = user("quiet")
    before = stored(db)
    if way == "function":
        with pytest.raises(sqlite3.Error, match="MisuseError: a trigger on rollout__data"):
            append(db, ID, *items)
        assert stored(db) == before
    else:
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, ?))",
                   (ID, json.dumps(items)))
        assert one(db, "SELECT item_count FROM rollouts") == 3
    well(db)


# ------------------------------------------------------- check and rebuild

def forge(db, sql):
    guard = one(db, "SELECT sql FROM sqlite_schema WHERE name = 'rollout_heads_keep'")
    db.execute("DROP TRIGGER rollout_heads_keep")
    db.execute(sql)
    db.execute(guard)


@pytest.mark.parametrize("sql, words", [
    ("UPDATE rollout_heads SET updated = 5 WHERE no = 1", "updated is 5, its newest own item"),
    ("UPDATE rollout_heads SET user_sequence = NULL WHERE no = 1", "first user event is item 1"),
    ("UPDATE rollout_heads SET user_sequence = 2 WHERE no = 3", "first user event is item 1"),
    ("UPDATE rollout_heads SET turns = 0 WHERE no = 1", "turns is 0, the items have 2"),
    ("UPDATE rollout_heads SET turns = 1 WHERE no = 2", "turns is 1, the items have 2"),
    ("UPDATE rollout_heads SET bytes = 0 WHERE no = 2", "bytes is 0"),
    ("UPDATE rollout_heads SET last_sequence = 4 WHERE no = 1", "last_sequence is 4"),
    ("DELETE FROM rollout_about WHERE no = 1", "its row in rollout_about is missing"),
    ("DELETE FROM rollout_about", "its row in rollout_about is missing"),
    ("UPDATE rollout_about SET cwd = '/x' WHERE no = 1", "its cwd is not the newest"),
    ("UPDATE rollout_about SET source = NULL WHERE no = 3", "are not those of its session_meta"),
    ("UPDATE rollout_about SET first_user_message = 'y' WHERE no = 1", "not that of its first"),
    ("UPDATE rollout_about SET prompt_id = NULL", "not that of its first"),
    ("INSERT INTO rollout_about(no) VALUES (9)", "row 9 belongs to no conversation"),
    ("DELETE FROM rollout_turns", "turns is 2, the items have 0"),
    ("DELETE FROM rollout__marks WHERE kind = 'rollback'", None),
])
@pytest.mark.parametrize("begin", [False, True])
def test_the_check_finds_wrong_derived_rows_and_a_rebuild_repairs_them(told, sql, words, begin):
    before = stored(told)
    forge(told, sql)
    if words:
        assert words in str(rows(told, "SELECT * FROM blackbox_check"))
    if begin:
        told.execute("BEGIN")
    assert one(told, "SELECT rollout_rebuild()") == 3
    if begin:
        told.execute("COMMIT")
    told.execute("DELETE FROM rollout_about WHERE no = 9")
    assert rows(told, "SELECT * FROM blackbox_check") == []
    assert stored(told) == before


def test_a_rebuild_of_one_leaves_the_others(told):
    forge(told, "UPDATE rollout_heads SET turns = 7, updated = 1")
    assert one(told, "SELECT rollout_rebuild(?)", OTHER.upper()) == 1
    assert rows(told, "SELECT id, turns FROM rollouts ORDER BY created") == [
        (ID, 7), (OTHER, 2), (THIRD, 7)]
    told.execute("INSERT INTO rollout_rebuilds(id) VALUES (?)", (ID,))
    told.execute("INSERT INTO blackbox_call VALUES ('rollout_rebuild', json_array(?))", (THIRD,))
    assert rows(told, "SELECT * FROM blackbox_check") == []


def test_a_rebuild_of_nothing_wrong_changes_nothing(told):
    before = stored(told)
    one(told, "SELECT rollout_rebuild()")
    assert stored(told) == before


@pytest.mark.parametrize("call", ["SELECT rollout_rebuild('%s')" % OTHER,
                                  "INSERT INTO rollout_rebuilds(id) VALUES ('%s')" % OTHER])
def test_a_rebuild_of_what_is_not_there_is_refused(db, call):
    with pytest.raises(sqlite3.Error, match="RolloutNotFoundError: Rollout not found"):
        db.execute(call)
    with pytest.raises(sqlite3.Error, match="InvalidIdError"):
        db.execute("SELECT rollout_rebuild('x')")
    assert one(db, "SELECT rollout_rebuild()") == 0


def test_a_title_that_a_user_gave_outlives_a_rebuild(told):
    told.execute("UPDATE rollouts SET title = 'mine' WHERE id = ?", (ID,))
    one(told, "SELECT rollout_rebuild()")
    assert one(told, "SELECT title FROM rollouts WHERE id = ?", ID) == "mine"


def test_damaged_payloads_do_not_stop_a_rebuild(told):
    told.execute("DROP TRIGGER rollout_data_update")
    told.execute("UPDATE rollout__data SET payload = '{oops' WHERE id IN (1 << 32, (1 << 32) + 3)")
    forge(told, "UPDATE rollout_heads SET turns = 9, bytes = 0 WHERE no = 1")
    one(told, "SELECT rollout_rebuild(?)", ID)
    assert rows(told, "SELECT turns, cwd, title, source FROM rollouts WHERE id = ?", ID) == [
        (2, "/w", "T", "cli")]
    found = str(rows(told, "SELECT * FROM blackbox_check"))
    assert "item 3: the payload is not JSON" in found and "turns is" not in found


@pytest.mark.parametrize("tables", [["about"], ["turns"], ["_marks", "about", "turns"]])
def test_an_install_restores_the_rows_of_a_lost_table(told, tables):
    before = stored(told)
    for table in tables:
        told.execute(f"DROP TABLE rollout_{table}")
    assert rows(told, "SELECT * FROM blackbox_check") != []
    one(told, "SELECT blackbox_install()")
    assert problems(told) == []
    if tables != ["turns"]:
        assert stored(told) == before
    one(told, "SELECT rollout_rebuild()")
    assert stored(told) == before


def test_an_install_mends_an_attached_file_with_an_odd_name(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('a \"b', 'rollout')")
    create(db)
    append(db, ID, user("hello"))
    db.execute('DROP TABLE "a ""b".rollout_about')
    one(db, "SELECT blackbox_install('a \"b')")
    assert one(db, "SELECT first_user_message FROM rollout_list(5)") == "hello"
    assert problems(db) == []


def test_a_conversation_without_a_session_meta_is_found(db):
    db.execute("INSERT INTO rollout_heads(id, stamp) VALUES (?, 1)", (ID,))
    assert rows(db, "SELECT object, problem FROM blackbox_check") == [
        (ID, "it has no session_meta; DELETE it, or append one")]
    append(db, ID, {"type": "session_meta", "payload": {"id": ID}})
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("seed", range(6))
def test_a_rebuild_derives_what_the_inserts_did(db, seed):
    """Random histories, with forks, rollbacks and deleted parents."""
    dice = random.Random(seed)
    ids = [f"5973b6c0-94b8-487b-a530-{i:012x}" for i in range(6)]
    create(db, ids[0], "permanent", 1000)
    there = ids[:1]
    for fresh in ids[1:] * 2 + ids[1:]:
        for _ in range(4):
            append(db, dice.choice(there), *[dice.choice([
                user("a"), user("b"), message("user", "a"), message("user", "<skill>s"),
                message("assistant", "c"), event("token_count"),
                event("thread_rolled_back", num_turns=dice.randrange(4)),
                {"type": "compacted", "payload": {"replacement_history": []}}])
                for _ in range(dice.randrange(1, 5))], now=dice.randrange(1000, 9000))
        if fresh not in there:
            parent = dice.choice(there)
            turns = one(db, "SELECT turns FROM rollouts WHERE id = ?", parent)
            one(db, "SELECT rollout_fork(?, ?, ?)", parent,
                dice.choice([None, dice.randrange(turns + 1)]), fresh)
            there.append(fresh)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    before = stored(db)
    db.execute("DELETE FROM rollout_turns")
    db.execute("DELETE FROM rollout__marks")
    db.execute("DELETE FROM rollout_about")
    db.execute("UPDATE rollout_heads SET stamp = stamp + 1, turns = 5, user_sequence = 7, "
               "updated = 0, bytes = 1")
    assert one(db, "SELECT rollout_rebuild()") == len(there)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert stored(db) == before


def test_the_schema_alone_rebuilds(tmp_path):
    """In the stock shell, with the files of sql/."""
    path = tmp_path / "plain.db"
    files = "".join((ROOT / "sql" / f"{name}.sql").read_text()
                    for name in ("core", "rollout", "rollout_formats", "rollout_usage", "rollout_upkeep",
             "rollout_tables"))
    assert shell(path, stdin=files + f"""
INSERT INTO rollouts(id, cwd) VALUES ('{ID}', '/w');
INSERT INTO rollout_log(rollout_id, type, payload)
VALUES ('{ID}', 'event_msg', '{{"type":"user_message","message":"hi"}}');
DELETE FROM rollout_about;
SELECT count(*) > 0 FROM rollout__check;
INSERT INTO rollout_rebuilds(id) SELECT id FROM rollout_heads;
SELECT count(*) FROM rollout__check;
SELECT cwd, first_user_message FROM rollouts;
""") == "1\n0\n/w|hi\n"


# ------------------------------------- what programs write as if users said it

def turn_context(**more):
    return {"type": "turn_context", "payload": more}


KNOWN = [
    ([message("user", "<recommended_plugins>x"), message("user", "<user_action> <context>y"),
      user("mine")], {"turns": 1, "first_user_message": "mine"}),
    ([event("entered_review_mode", prompt="look"), message("user", "look"), user("look"),
      message("user", "look"), message("assistant", "ok"), user("thanks")],
     {"turns": 2, "first_user_message": "look"}),
    ([user("look"), event("entered_review_mode"), user("look"), message("assistant", "ok")],
     {"turns": 1}),
    ([user("again"), message("assistant", "ok"), user("again")], {"turns": 2}),
    ([turn_context(cwd="/a", model="m1"), user("x"), turn_context(cwd="/b", model="m2")],
     {"cwd": "/b", "model": "m2"}),
    ([user("x"), event("thread_name_updated", thread_name="Named"),
      event("thread_name_updated", thread_name="")], {"title": "Named"}),
    ([event("thread_goal_updated", goal={"objective": "win"}), message("assistant", "so")],
     {"turns": 0, "has_user_event": 1, "first_user_message": "win"}),
    ([event("thread_goal_updated", objective="win"), user("x")],
     {"turns": 1, "first_user_message": "win"}),
    ([event("exec_command_end", exit_code=0)], {"item_count": 2}),
]


@pytest.mark.parametrize("items, shown", KNOWN)
@pytest.mark.parametrize("way", ["function", "one by one", "row", "rebuild", "log"])
def test_what_lists_show_is_right_however_items_come(db, items, shown, way):
    create(db)
    if way == "log":
        for item in items:
            db.execute("INSERT INTO rollout_log(rollout_id, item) VALUES (?, ?)",
                       (ID, json.dumps(item)))
    elif way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, ?))",
                   (ID, json.dumps(items)))
    else:
        for some in [items] if way == "function" else [[i] for i in items]:
            append(db, ID, *some)
    if way == "rebuild":
        db.execute("DELETE FROM rollout_about")
        one(db, "SELECT rollout_rebuild()")
    assert rows(db, f"SELECT {', '.join(shown)} FROM rollouts") == [tuple(shown.values())]
    assert one(db, "SELECT count(*) FROM rollout_list(5)") == (len(items) > 1)
    well(db)


def test_a_title_that_a_user_gave_outlives_items_and_redaction(told):
    told.execute("UPDATE rollouts SET title = 'mine' WHERE id = ?", (ID,))
    append(told, ID, event("thread_name_updated", thread_name="theirs"))
    told.execute("UPDATE rollouts SET session_meta = json_set(session_meta, '$.cwd', '-', "
                 "'$.title', '-') WHERE id = ?", (ID,))
    assert rows(told, "SELECT title, cwd FROM rollouts WHERE id = ?", ID) == [("mine", "-")]
    one(told, "SELECT rollout_rebuild()")
    assert rows(told, "SELECT title, cwd FROM rollouts WHERE id = ?", ID) == [("mine", "-")]
    assert rows(told, "SELECT * FROM blackbox_check") == []


def test_a_fork_and_a_rollback_cut_at_what_the_user_said(db):
    create(db)
    append(db, ID, user("one"), message("user", "<recommended_plugins>"), user("two"),
           message("user", "<user_action>"), user("three"))
    fork = one(db, "SELECT rollout_fork(?, 1)", ID)
    assert rows(db, "SELECT turns, item_count FROM rollouts WHERE id = ?", fork) == [(1, 3)]
    append(db, ID, event("thread_rolled_back", num_turns=1))
    assert [json.loads(p).get("content") for p, in rows(
        db, "SELECT payload FROM rollout_context(?)", ID)] == [
        [{"type": "output_text", "text": t}] for t in ("<recommended_plugins>", "<user_action>")]


def item(kind, **more):
    return {"type": "response_item", "payload": {"type": kind, **more}}


@pytest.mark.parametrize("compacted", [False, True])
def test_orphans_are_told_and_left_out(db, compacted):
    create(db)
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    items = [item("function_call_output", call_id="lost", output="x"),
             item("function_call", call_id="a", name="f"), item("ghost_snapshot", id="call"),
             item("function_call_output", call_id="a", output="x"),
             item("custom_tool_call", call_id="cut", name="f"), message("assistant", "call")]
    if compacted:
        items = [{"type": "compacted", "payload": {
            "replacement_history": [i["payload"] for i in items]}}]
    append(db, ID, *items)
    assert rows(db, "SELECT kind, call_id, type FROM rollout_orphans(?)", ID) == [
        ("result", "lost", "function_call_output"), ("call", "cut", "custom_tool_call")]
    kinds = [json.loads(p)["type"] for p, in rows(
        db, "SELECT payload FROM rollout_context(?, 'without')", ID)]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert len(rows(db, "SELECT * FROM rollout_context(?)", ID)) == 5
    with pytest.raises(sqlite3.Error, match="orphans must be 'with' or 'without'"):
        rows(db, "SELECT * FROM rollout_context(?, 'x')", ID)
