"""What follows from the items: it cannot be changed by mistake, the check finds missing and
wrong values, and a rebuild computes them again."""
import json
import random
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, derive, event, message, user, well
from conftest import ROOT, connect, one, problems, rows, shell

TABLES = ("_about", "_marks", "_data", "_segments", "drops")


def stored(db):
    """Everything that is stored of conversations."""
    heads = rows(db, "SELECT no, id, created, updated, expires_at, status, last_sequence, "
                     "user_sequence, turns, bytes, title, named, behind FROM rollout__heads ORDER BY no")
    return heads, [rows(db, f"SELECT * FROM rollout_{table} ORDER BY 1, 2")
                   for table in TABLES]


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

# ---------------------------------------------------- items by plain INSERT

@pytest.mark.parametrize("payload", ["'{'", "'not json'", "''", "'{''a'':1}'", "'[1,]'", "7"])
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE",
                                  "INSERT OR FAIL"])
def test_a_plain_insert_puts_no_payload_that_is_not_json(told, payload, verb):
    before = stored(told)
    with pytest.raises(sqlite3.IntegrityError, match="must be JSON"):
        told.execute(f"{verb} INTO rollout_items(rollout, type, payload) "
                     f"VALUES ('{ID}', 'token_count', {payload})")
    assert stored(told) == before


@pytest.mark.parametrize("later, number", [([], None), ([user("hi")], 2), ([event("x"), user("a")], 3)])
@pytest.mark.parametrize("way", ["append", "rebuild", "another"])
def test_a_type_with_nul_is_no_user_event_once_it_is_read(db, later, number, way):
    """SQLite reads a JSON string up to its NUL, so the guard takes it for one."""
    db.execute("REPLACE INTO blackbox_settings(name, value) VALUES('rollout.policy', 'everything')")
    create(db)
    for item in [event("user_message\0x"), *later]:
        db.execute("INSERT INTO rollout_log(rollout_id, type, payload) SELECT ?1, ?2 ->> 'type', "
                   "?2 -> 'payload'", (ID, json.dumps(item)))
    assert problems(db) == []
    if way == "append":
        append(db, ID)
    elif way == "another":
        create(db, OTHER)
        append(db, OTHER, event("x"))
    else:
        one(db, "SELECT rollout_rebuild()")
    assert one(db, "SELECT user_sequence FROM rollout__heads WHERE id = ?", ID) == number
    assert rows(db, "SELECT 1 FROM rollout__heads WHERE behind NOTNULL") == []
    well(db)


@pytest.mark.parametrize("key", ['"r\\u006fle":"user"', '"role":"us\\u0065r"'])
def test_a_user_event_that_only_the_module_reads_is_no_contradiction(db, key):
    create(db)
    db.execute("INSERT INTO rollout_items(rollout, type, payload) VALUES(?, 'response_item', ?)",
               (ID, '{"type":"message",%s,"content":"hi"}' % key))
    assert problems(db) == []
    append(db, ID)
    assert one(db, "SELECT user_sequence FROM rollout__heads") == 1
    well(db)


@pytest.mark.parametrize("values, reason", [
    ("-1, 'x', '1'", "whole milliseconds"),
    ("1.5, 'x', '1'", "whole milliseconds"), ("1, '', '1'", "1 to 100 bytes"),
    ("1, NULL, '1'", "1 to 100 bytes"), ("1, x'61', '1'", "1 to 100 bytes"),
    ("1, 'x', x'31'", "must be JSON")])
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR IGNORE", "INSERT OR FAIL"])
def test_a_wrong_item_is_not_counted_whatever_follows_an_error(told, verb, values, reason):
    before = stored(told)
    with pytest.raises(sqlite3.IntegrityError, match=reason):
        told.execute(f"{verb} INTO rollout_items(rollout, timestamp, type, payload) "
                     f"VALUES ('{ID}', {values})")
    assert stored(told) == before


def test_an_item_that_a_trigger_ignores_is_refused(told):
    told.execute("CREATE TRIGGER mine BEFORE INSERT ON rollout__data "
                 "WHEN NEW.type = 'x' BEGIN SELECT RAISE(IGNORE); END")
    before = stored(told)
    with pytest.raises(sqlite3.IntegrityError, match="InvalidItemError: .* was ignored"):
        told.execute(f"INSERT INTO rollout_items(rollout, type, payload) VALUES ('{ID}', 'x', '1')")
    assert stored(told) == before
    told.execute("DROP TRIGGER mine")
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
    with pytest.raises(sqlite3.Error, match="MisuseError: a trigger on rollout__data"):
        if way == "function":
            append(db, ID, *items)
        else:
            db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, ?))",
                       (ID, json.dumps(items)))
    assert stored(db) == before
    well(db)


# ------------------------------------------- items of plain SQL are derived later

def plainly(db, *items, rollout=ID, at=1000):
    for each in items:
        db.execute("INSERT INTO rollout_log(rollout_id, type, payload, timestamp) "
                   "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload', ?3",
                   (rollout, json.dumps(each), at))


SHOWN = "item_count, has_user_event, title, updated, turns, first_user_message, model"


def test_lists_need_no_module_and_the_rest_follows_with_the_next_call(db):
    for rollout in (ID, OTHER):
        create(db, rollout, "permanent", now=500)
    plainly(db, turn_context(model="m"), message("user", "<skill>s"), user("hello"),
            event("thread_name_updated", thread_name="Named"),
            event("thread_name_updated", thread_name=""))
    assert rows(db, f"SELECT {SHOWN} FROM rollouts WHERE id = ?", ID) == [
        (6, 1, "Named", 1000, 0, None, None)]
    well(db)
    append(db, OTHER, user("another"))
    assert rows(db, f"SELECT {SHOWN} FROM rollouts WHERE id = ?", ID) == [
        (6, 1, "Named", 1000, 1, "hello", "m")]
    well(db)


def test_calls_that_read_see_what_is_not_derived(db):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    create(db, ID, "permanent", now=500)
    plainly(db, user("one"), message("assistant", "1"), turn_context(cwd="/w"),
            {"type": "compacted", "payload": {"replacement_history": [{"role": "user"}]}},
            user("two"), message("assistant", "2"), user("three"), message("assistant", "3"),
            event("thread_rolled_back", num_turns=1))
    db.execute("PRAGMA query_only = ON")
    read = {
        "list": rows(db, "SELECT title, cwd, first_user_message FROM rollout_list(5)"),
        "page": json.loads(one(db, "SELECT rollout_page(5)"))["items"],
        "context": rows(db, "SELECT sequence, payload FROM rollout_context(?)", ID)}
    assert read["list"] == [(None, "/w", "one")]
    assert [item["first_user_message"] for item in read["page"]] == ["one"]
    assert [sequence for sequence, _ in read["context"]] == [4, 6]
    db.execute("PRAGMA query_only = OFF")
    append(db, ID)
    assert read["list"] == rows(db, "SELECT title, cwd, first_user_message FROM rollout_list(5)")
    assert read["context"] == rows(db, "SELECT sequence, payload FROM rollout_context(?)", ID)


def test_a_call_derives_a_bounded_number_of_items_of_others(db):
    create(db, ID, "permanent", now=500)
    create(db, OTHER, "permanent", now=500)
    db.execute("BEGIN")
    plainly(db, *[user(str(i)) for i in range(1500)])
    db.execute("COMMIT")
    counts = []
    for _ in range(3):
        append(db, OTHER)
        well(db)
        counts.append(one(db, "SELECT turns FROM rollouts WHERE id = ?", ID))
    assert counts == [1000, 1500, 1500]


@pytest.mark.parametrize("command, arguments", [
    ("rollout_append", [ID, '{"type":5}']), ("rollout_fork", [ID, 9]),
    ("rollout_create", [THIRD, None, None, "[]"])])
def test_a_command_that_is_refused_writes_nothing_of_what_waits(db, command, arguments):
    create(db, ID, "permanent", now=500)
    db.execute("BEGIN")
    plainly(db, user("a"))
    with pytest.raises(sqlite3.Error, match="Error: "):
        db.execute("INSERT INTO blackbox_call VALUES (?, ?)", (command, json.dumps(arguments)))
    assert db.in_transaction
    db.execute("COMMIT")
    assert rows(db, "SELECT item_count, turns FROM rollouts") == [(2, 0)]
    assert one(db, "SELECT rollout_fork(?, 1, ?)", ID, OTHER) == OTHER
    assert rows(db, "SELECT item_count, turns FROM rollouts") == [(2, 1), (2, 1)]
    well(db)


def test_a_redaction_of_what_is_not_derived_is_derived_redacted(db):
    create(db, ID, "permanent", now=500)
    plainly(db, user("a secret"), user("more"))
    db.execute("UPDATE rollout_items SET payload = replace(payload, 'secret', '-') "
               "WHERE sequence = 1")
    db.execute("UPDATE rollout_items SET payload = payload WHERE sequence = 2")
    append(db, ID)
    assert one(db, "SELECT first_user_message FROM rollouts") == "a -"
    assert rows(db, "SELECT domain, subject, detail FROM blackbox_log "
                    "WHERE kind = 'redaction'") == [("rollout", ID, '{"sequence":1}')]
    well(db)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_redacted_first_message_is_gone_at_once_and_read_again(db, deleted):
    create(db, ID, "permanent", now=500)
    append(db, ID, user("a secret"))
    assert one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER) == OTHER
    if deleted:
        one(db, "SELECT rollout_delete(?)", ID)
    db.execute("UPDATE rollout_items SET payload = replace(payload, 'secret', '-') "
               "WHERE sequence = 1 AND rollout = ?", (OTHER,))
    assert set(rows(db, "SELECT first_user_message FROM rollouts")) == {(None,)}
    assert set(rows(db, "SELECT first_user_message FROM rollout_list(5)")) == {("a -",)}
    well(db)
    create(db, THIRD)
    assert set(rows(db, "SELECT first_user_message FROM rollouts WHERE turns")) == {("a -",)}
    assert rows(db, "SELECT 1 FROM rollout__heads WHERE behind IS NOT NULL") == []
    well(db)


def test_the_search_finds_items_of_plain_sql_after_the_next_call(db):
    create(db, ID, "permanent", now=500)
    one(db, "SELECT rollout_search_install()")
    plainly(db, user("a needle"), user("a secret"))
    assert rows(db, "SELECT * FROM rollout_search('needle')") == []
    db.execute("UPDATE rollout_items SET payload = replace(payload, 'secret', '---') "
               "WHERE sequence = 2")
    create(db, OTHER)
    assert rows(db, "SELECT sequence, role FROM rollout_search('needle')") == [(1, "user")]
    assert rows(db, "SELECT * FROM rollout_search('secret')") == []
    one(db, "SELECT rollout_search_remove()")
    append(db, ID, user("no index"))
    well(db)


def test_a_changed_reading_counts_from_the_next_call_on_even_after_a_rollback(db):
    create(db, ID, "permanent", now=500)
    append(db, ID, user("a"))
    reading = ("INSERT INTO blackbox_places(format, kind, type, place) "
               "VALUES ('mine', 'user', 'compacted', ?)")
    db.execute("BEGIN")
    db.execute(reading, ("$.x",))
    append(db, ID, {"type": "compacted", "payload": {"x": "b"}})
    assert one(db, "SELECT turns FROM rollouts") == 2
    db.execute("ROLLBACK")
    db.execute(reading, ("$.y",))
    append(db, ID, {"type": "compacted", "payload": {"x": "b", "y": "<mine>"}})
    assert one(db, "SELECT turns FROM rollouts") == 2
    db.execute("INSERT INTO blackbox_places(format, kind, place) VALUES ('', 'preamble', '<mine>')")
    append(db, ID, {"type": "compacted", "payload": {"y": "<mine>"}})
    assert one(db, "SELECT turns FROM rollouts") == 2
    db.execute("DELETE FROM blackbox_places WHERE place = '<mine>'")
    append(db, ID, user("c"), {"type": "compacted", "payload": {"y": "<mine>"}})
    assert one(db, "SELECT turns FROM rollouts") == 4
    compacted = {"type": "compacted", "payload": {"y": "d"}}
    for end, turns in ("ROLLBACK", 5), ("COMMIT", 6):
        db.execute("BEGIN")
        append(db, ID, compacted)
        db.execute("UPDATE blackbox_places SET type = 'other' WHERE format = 'mine'")
        append(db, ID, compacted)
        db.execute(end)
        append(db, ID, compacted)
        assert one(db, "SELECT turns FROM rollouts") == turns


def test_a_file_that_is_attached_in_place_of_another_has_its_own_rules(db, tmp_path):
    for name in "ab":
        db.execute("ATTACH ? AS x", (str(tmp_path / name),))
        one(db, "SELECT blackbox_install('x', 'rollout')")
        one(db, "SELECT blackbox_use('x')")
        create(db, ID, "permanent", now=500)
        if name == "a":
            db.execute("INSERT INTO x.blackbox_places(format, kind, type, place) "
                       "VALUES ('mine', 'user', 'compacted', '$.x')")
        db.execute("DETACH x")
    for name, turns in ("a", 4), ("b", 0), ("a", 8), ("b", 0):
        db.execute("ATTACH ? AS x", (str(tmp_path / name),))
        for i in range(4):
            append(db, ID, {"type": "compacted", "payload": {"x": str(i)}})
        assert one(db, "SELECT turns FROM x.rollouts") == turns
        db.execute("DETACH x")


# ------------------------------------------------------- check and rebuild

@pytest.mark.parametrize("sql, words", [
    ("UPDATE rollout__heads SET updated = 5 WHERE no = 1", "updated is 5, its newest own item"),
    ("UPDATE rollout__heads SET user_sequence = NULL WHERE no = 1", "first user event is item 1"),
    ("UPDATE rollout__heads SET user_sequence = 2 WHERE no = 3", "first user event is item 1"),
    ("UPDATE rollout__heads SET turns = 0 WHERE no = 1", "turns is 0, the items have 2"),
    ("UPDATE rollout__heads SET turns = 1 WHERE no = 2", "turns is 1, the items have 2"),
    ("UPDATE rollout__heads SET bytes = 0 WHERE no = 2", "bytes is 0"),
    ("UPDATE rollout__heads SET last_sequence = 4 WHERE no = 1", "last_sequence is 4"),
    ("DELETE FROM rollout__about WHERE no = 1", "its row in rollout__about is missing"),
    ("DELETE FROM rollout__about", "its row in rollout__about is missing"),
    ("UPDATE rollout__about SET cwd = '/x' WHERE no = 1", "its cwd is not the newest"),
    ("UPDATE rollout__about SET source = NULL WHERE no = 3", "are not those of its session_meta"),
    ("UPDATE rollout__about SET first_user_message = 'y' WHERE no = 1", "not that of its first"),
    ("UPDATE rollout__about SET prompt_id = NULL", "not that of its first"),
    ("INSERT INTO rollout__about(no) VALUES (9)", "row 9 belongs to no conversation"),
    ("DELETE FROM rollout__marks WHERE kind = 'turn'", "its turns are not those of its items"),
    ("DELETE FROM rollout__marks WHERE kind = 'rollback'", "its compactions and rollbacks"),
])
@pytest.mark.parametrize("begin", [False, True])
def test_the_check_finds_wrong_derived_rows_and_a_rebuild_repairs_them(told, sql, words, begin):
    before = stored(told)
    told.execute(sql)
    assert words in str(rows(told, "SELECT * FROM blackbox_check"))
    if begin:
        told.execute("BEGIN")
    assert one(told, "SELECT rollout_rebuild()") == 3
    if begin:
        told.execute("COMMIT")
    told.execute("DELETE FROM rollout__about WHERE no = 9")
    assert rows(told, "SELECT * FROM blackbox_check") == []
    assert stored(told) == before


def test_a_rebuild_of_one_leaves_the_others(told):
    told.execute("UPDATE rollout__heads SET turns = 7, updated = 1")
    assert one(told, "SELECT rollout_rebuild(?)", OTHER.upper()) == 1
    assert rows(told, "SELECT id, turns FROM rollouts ORDER BY created") == [
        (ID, 7), (OTHER, 2), (THIRD, 7)]
    one(told, "SELECT rollout_rebuild(?)", ID)
    told.execute("INSERT INTO blackbox_call VALUES ('rollout_rebuild', json_array(?))", (THIRD,))
    assert rows(told, "SELECT * FROM blackbox_check") == []


def test_a_rebuild_of_nothing_wrong_changes_nothing(told):
    before = stored(told)
    one(told, "SELECT rollout_rebuild()")
    assert stored(told) == before


def test_a_rebuild_of_what_is_not_there_is_refused(db):
    with pytest.raises(sqlite3.Error, match="RolloutNotFoundError: Rollout not found"):
        db.execute("SELECT rollout_rebuild(?)", (OTHER,))
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
    told.execute("UPDATE rollout__heads SET turns = 9, bytes = 0 WHERE no = 1")
    one(told, "SELECT rollout_rebuild(?)", ID)
    assert rows(told, "SELECT turns, cwd, title, source FROM rollouts WHERE id = ?", ID) == [
        (2, "/w", "T", "cli")]
    found = str(rows(told, "SELECT * FROM blackbox_check"))
    assert "item 3: the payload is not JSON" in found and "turns is" not in found


@pytest.mark.parametrize("tables", [["about"], ["marks"], ["marks", "about"]])
def test_a_rebuild_restores_the_rows_of_a_lost_table(told, tables):
    before = stored(told)
    for table in tables:
        told.execute(f"DROP TABLE rollout__{table}")
    one(told, "SELECT blackbox_install()")
    assert "rollout_rebuild() derives" in str(problems(told))
    one(told, "SELECT rollout_rebuild()")
    assert problems(told) == []
    assert stored(told) == before


def test_a_conversation_without_a_session_meta_is_found(db):
    db.execute("INSERT INTO rollout__heads(id) VALUES (?)", (ID,))
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
    db.execute("DELETE FROM rollout__marks")
    db.execute("DELETE FROM rollout__about")
    db.execute("UPDATE rollout__heads SET turns = 5, user_sequence = 7, "
               "updated = 0, bytes = 1")
    assert one(db, "SELECT rollout_rebuild()") == len(there)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert stored(db) == before


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
            db.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                       "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                       (ID, json.dumps(item)))
    elif way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, ?))",
                   (ID, json.dumps(items)))
    else:
        for some in [items] if way == "function" else [[i] for i in items]:
            append(db, ID, *some)
    if way == "rebuild":
        db.execute("DELETE FROM rollout__about")
        one(db, "SELECT rollout_rebuild()")
    derive(db)
    assert rows(db, f"SELECT {', '.join(shown)} FROM rollouts") == [tuple(shown.values())]
    assert one(db, "SELECT count(*) FROM rollout_list(5)") == (len(items) > 1)
    well(db)


def test_a_title_that_a_user_gave_outlives_items_and_redaction(told):
    told.execute("UPDATE rollouts SET title = 'mine' WHERE id = ?", (ID,))
    append(told, ID, event("thread_name_updated", thread_name="theirs"))
    told.execute("UPDATE rollouts SET session_meta = json_set(session_meta, '$.cwd', '-', "
                 "'$.title', '-') WHERE id = ?", (ID,))
    append(told, ID)
    assert rows(told, "SELECT title, cwd FROM rollouts WHERE id = ?", ID) == [("mine", "-")]
    one(told, "SELECT rollout_rebuild()")
    assert rows(told, "SELECT title, cwd FROM rollouts WHERE id = ?", ID) == [("mine", "-")]
    well(told)


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


def test_a_delete_takes_what_was_derived_by_ranges(db):
    """A trigger for each item took 99 steps of SQLite an item, ranges take 46."""
    create(db, ID)
    items = [user("do it"), message("assistant", "yes"),
             {"type": "response_item", "payload": {"type": "function_call", "name": "ls", "call_id": "c", "arguments": "{}"}},
             {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "x"}}]
    append(db, ID, *items * 100)
    steps = [0]
    db.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 1)
    db.execute("DELETE FROM rollouts")
    db.set_progress_handler(None, 0)
    assert steps[0] < 60 * 400
    assert [one(db, f"SELECT count(*) FROM {table}") for table in
            ("rollout__data", "rollout__marks", "rollout__texts", "rollout_calls")] == [0, 0, 0, 0]


# ------------------------------------------------------- appends in a row

def due(db):
    return one(db, "SELECT count(*) FROM rollout__marks WHERE id < 0")


def redact(db):
    db.execute("UPDATE rollout_items SET payload = replace(payload, 'said', 'gone') WHERE sequence = 1")


def by_somebody_else(db):
    other = connect(one(db, "SELECT file FROM pragma_database_list WHERE name = 'main'"))
    redact(other)
    other.close()


def before_a_rollback(db):
    redact(db)
    db.execute("BEGIN")
    append(db, ID, user("a"))
    append(db, ID, user("b"))
    assert due(db) == 0
    db.execute("ROLLBACK")


def inside_a_transaction(db):
    db.execute("BEGIN")
    append(db, ID, user("a"))
    redact(db)
    append(db, ID, user("b"))
    assert due(db) == 0
    db.execute("ROLLBACK")
    redact(db)


@pytest.mark.parametrize("way", [redact, by_somebody_else, before_a_rollback, inside_a_transaction])
@pytest.mark.parametrize("whole", [0, 1])
def test_appends_in_a_row_see_what_waits_since(db, way, whole):
    create(db)
    append(db, ID, user("said"))
    if whole:
        db.execute("BEGIN")
        append(db, ID, user("in a transaction"))
        db.execute("COMMIT")
    for text in "xyz":
        append(db, ID, user(text))
    way(db)
    assert due(db) > 0
    append(db, ID, user("after"))
    assert due(db) == 0
    assert rows(db, "SELECT text FROM rollout_messages WHERE n = 1") == [("gone",)]
    well(db)


def test_texts_have_their_numbers_without_a_gap_after_a_rollback(db):
    create(db)
    for end in ("COMMIT", "ROLLBACK", "COMMIT"):
        append(db, ID, user("alone"))
        db.execute("BEGIN")
        append(db, ID, user("a"))
        append(db, ID, user("b"))
        db.execute(end)
    append(db, ID, user("last"))
    assert [n for n, in rows(db, "SELECT n FROM rollout__texts")] == [*range(1, 9)]
    one(db, "SELECT rollout_delete(?)", ID)
    create(db, OTHER)
    append(db, OTHER, user("after"))
    assert rows(db, "SELECT n FROM rollout__texts") == [(9,)]
    well(db)


@pytest.mark.parametrize("seed", range(6))
def test_turns_are_the_same_when_appends_are_rolled_back_between(db, seed):
    dice = random.Random(seed)
    for rollout in (ID, OTHER):
        create(db, rollout)
    for _ in range(120):
        end = dice.choice(["COMMIT", "ROLLBACK", None, None, None])
        if end:
            db.execute("BEGIN")
        for _ in range(dice.randint(1, 4)):
            text = dice.choice("ab")
            item = dice.choice([user(text), user(text), message("user", text), event("entered_review_mode"),
                                event("thread_rolled_back", num_turns=1), message("assistant", "said")])
            append(db, dice.choice([ID, ID, ID, OTHER]), item)
            if dice.random() < .05:
                db.execute("UPDATE rollout_items SET payload = replace(payload, 'said', 'gone') WHERE sequence > 4")
        if end:
            db.execute(end)
    derive(db)
    well(db)
    marks = rows(db, "SELECT * FROM rollout__marks ORDER BY 1"), rows(db, "SELECT turns FROM rollouts")
    assert len(marks[0]) > 40
    one(db, "SELECT rollout_rebuild()")
    assert marks == (rows(db, "SELECT * FROM rollout__marks ORDER BY 1"), rows(db, "SELECT turns FROM rollouts"))


def test_an_append_that_cannot_commit_is_not_remembered(db, path):
    create(db)
    append(db, ID, user("a"))
    append(db, ID, user("b"))
    db.execute("PRAGMA busy_timeout = 0")
    reader = sqlite3.connect(path)
    held = reader.execute("SELECT id FROM rollout__data")
    held.fetchone()
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            append(db, ID, user("lost"), user("lost"))
    held.close()
    append(db, ID, user("c"))
    assert rows(db, "SELECT n, text FROM rollout_messages") == [(1, "a"), (2, "b"), (3, "c")]
    well(db)


@pytest.mark.parametrize("whole", [False, True])
def test_appends_go_on_in_a_backup_that_replaces_their_database(db, whole):
    create(db)
    append(db, ID, user("a"))
    copy = sqlite3.connect(":memory:")
    db.backup(copy)
    for policy in "everything", "codex":
        for i in range(3):
            append(db, ID, user(f"lost {i}"))
        if whole:
            db.execute("BEGIN")
            append(db, ID, user("lost"))
            db.execute("COMMIT")
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'rollout.policy'", (policy,))
        append(db, ID, user("lost"), {"type": "unheard_of", "payload": {}})
        copy.backup(db)
        append(db, ID, user("b"), {"type": "unheard_of", "payload": {}})
        append(db, ID, user("b"))
        assert rows(db, "SELECT last_sequence, turns FROM rollouts") == [(3, 3)]
        well(db)
