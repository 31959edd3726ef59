"""Triggers of the user on the tables of conversations, and what they may do."""
import json
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, event, message, user, well
from conftest import connect, one, rows

ECHO = ("CREATE TRIGGER echo AFTER INSERT ON rollout__data WHEN NEW.type = 'turn_context' "
        "BEGIN INSERT INTO rollout_log(rollout_id, type, payload) SELECT id, 'event_msg', "
        "'{\"type\":\"token_count\"}' FROM rollout__heads WHERE no = NEW.id >> 32; END")
CONTEXT = {"type": "turn_context", "payload": {}}
ELSEWHERE = f"INSERT INTO rollout_log(rollout_id, type, payload) VALUES ('{OTHER}', " \
    "'compacted', '{}'); END"


def call(db, how, rollout, *items):
    text = json.dumps(items)
    if how == "function":
        db.execute("SELECT rollout_append(?, ?)", (rollout, text)).fetchall()
    elif how == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', ?)",
                   (json.dumps([rollout, text]),))
    else:
        for item in items:
            db.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                       "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                       (rollout, json.dumps(item)))


def state(db):
    return rows(db, "SELECT * FROM rollout__heads"), rows(db, "SELECT * FROM rollout__data")


def test_counting_the_drops_is_part_of_the_append(db):
    create(db)
    db.execute("CREATE TRIGGER no BEFORE INSERT ON rollout_drops BEGIN "
               "SELECT RAISE(ABORT, 'no drops'); END")
    before = state(db)
    for how in "function", "row":
        db.execute("BEGIN")
        with pytest.raises(sqlite3.Error, match="Write failed: no drops"):
            call(db, how, ID, user("a"), {"type": "unheard_of", "payload": {}})
        if db.in_transaction:  # SQLite has rolled back what the row was in
            db.execute("COMMIT")
        assert state(db) == before
    db.execute("DROP TRIGGER no")
    for i, how in enumerate(("function", "row"), 1):
        call(db, how, ID, {"type": "unheard_of", "payload": {"type": "x"}},
             {"type": "unheard_of"}, {"type": "unheard_of"})
        assert rows(db, "SELECT item_type, payload_type, items FROM rollout_dropped(?) "
                        "ORDER BY 2", ID) == [("unheard_of", "", 2 * i),
                                              ("unheard_of", "x", i)]


def test_rows_that_a_users_trigger_keeps_are_not_in_the_receipt(db):
    for rollout in ID, OTHER, THIRD:
        create(db, rollout, ttl=0, now=1000)
    db.execute("CREATE TRIGGER pin BEFORE DELETE ON rollout__heads WHEN OLD.no = 2 "
               "BEGIN SELECT RAISE(IGNORE); END")
    assert one(db, "SELECT rollout_cleanup_expired(5000)") == 2
    assert rows(db, "SELECT rule, rows FROM retention_log") == [("rollout.expired", 2)]
    assert one(db, "SELECT rollout_cleanup_expired(5000)") == 0
    assert rows(db, "SELECT rule, rows FROM retention_log") == [("rollout.expired", 2)]


# ---- updates

def test_only_an_event_names_a_conversation(db):
    named = '{"type":"thread_name_updated","thread_name":"no","title":"yes"}'
    db.execute("INSERT INTO rollouts(id, session_meta) VALUES (?, ?)", (ID, named))
    db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, 'response_item', ?)",
               (ID, named))
    assert one(db, "SELECT title FROM rollouts") == "yes"


def test_an_item_without_payload_cannot_become_a_message(db):
    create(db)
    db.execute("INSERT INTO rollout_items(rollout, type) VALUES (?, 'event_msg')", (ID,))
    for payload in ('{"type":"user_message","message":"hi"}', '{"role":"user"}'):
        with pytest.raises(sqlite3.IntegrityError, match="keeps type, role"):
            db.execute("UPDATE rollout_items SET payload = ? WHERE sequence = 1", (payload,))
    db.execute("UPDATE rollout_items SET payload = '{\"note\":1}' WHERE sequence = 1")
    well(db)


def test_a_rollback_cannot_change_its_number_of_turns(db):
    create(db)
    append(db, ID, user("a"), user("b"), event("thread_rolled_back", num_turns=1))
    change = "UPDATE rollout_items SET payload = ? WHERE sequence = 3"
    for payload in event("thread_rolled_back", num_turns=2), event("thread_rolled_back"):
        with pytest.raises(sqlite3.IntegrityError, match="number of turns"):
            db.execute(change, (json.dumps(payload["payload"]),))
    db.execute(change, ('{"type":"thread_rolled_back","num_turns":1,"why":"redacted"}',))
    assert one(db, "SELECT turns FROM rollouts") == 1
    well(db)


# ---- images

def image(*texts):
    parts = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "response_item", "payload": {
        "type": "message", "role": "user",
        "content": [*parts[:1], {"type": "input_image", "image_url": "data:"}, *parts[1:]]}}


@pytest.mark.parametrize("item, text", [
    (image("<image name=[Image #1]>", "</image>", "look"), "look"),
    (image("<image>", "</image>", "look", "here"), "look\nhere"),
    (image("<image name=[Image #1]>", "</image>"), ""), (image(), "")])
@pytest.mark.parametrize("event_first", [False, True])
def test_a_message_with_an_image_is_one_turn(db, item, text, event_first):
    create(db)
    pair = [item, user(text)]
    append(db, ID, *(reversed(pair) if event_first else pair))
    assert rows(db, "SELECT turns, coalesce(first_user_message, '') FROM rollouts") == [
        (1, text)]
    append(db, ID, message("assistant", "seen"), event("thread_rolled_back", num_turns=1))
    assert rows(db, "SELECT turns FROM rollouts") == [(0,)]
    assert rows(db, "SELECT * FROM rollout_context(?)", ID) == []
    well(db)


# ---- damage inside a transaction

def damage(db):
    db.execute("DROP TRIGGER rollout_data_update")
    db.execute("UPDATE rollout__data SET payload = '{\"b' WHERE id & 4294967295 IN (0, 2)")


@pytest.mark.parametrize("read", [
    "SELECT rollout_history(?)", "SELECT * FROM rollout_context(?)",
    "SELECT rollout_fork(?)", "SELECT rollout_export(?)"])
def test_reading_a_damaged_item_leaves_the_transaction_open(db, read):
    create(db)
    append(db, ID, user("a"), {"type": "compacted", "payload": {"replacement_history": []}})
    damage(db)
    db.execute("CREATE TABLE mine(x)")
    db.execute("BEGIN")
    db.execute("INSERT INTO mine VALUES (1)")
    try:
        rows(db, read, ID)
        assert "export" in read
    except sqlite3.DatabaseError as error:
        assert "Corrupted rollout" in str(error)
    db.execute("INSERT INTO mine VALUES (2)")
    db.execute("COMMIT")
    assert rows(db, "SELECT x FROM mine") == [(1,), (2,)]


def test_a_conversation_is_shut_down_in_its_own_file(path, tmp_path):
    db = connect(path)
    for name in "a1", "b 2":
        db.execute(f'ATTACH ? AS "{name}"', (str(tmp_path / name),))
        one(db, "SELECT blackbox_install(?, 'all')", name)
    one(db, "SELECT blackbox_use('a1')")
    create(db)
    one(db, "SELECT rollout_shutdown(?)", ID)
    with pytest.raises(sqlite3.Error, match="shut down"):
        append(db, ID, user("a"))
    one(db, "SELECT blackbox_use('b 2')")
    create(db)
    assert append(db, ID, user("a")) == 1


@pytest.mark.all_domains
def test_a_cascade_into_another_domain_has_its_own_receipt(db):
    for rollout in ID, OTHER:
        create(db, rollout, ttl=0, now=1000)
    db.executemany("INSERT INTO event_payloads(event_id, agent_id, purpose) "
                   "VALUES (?, 'a', 'archive')", [("e",)] * 6)
    db.execute("CREATE TRIGGER mine AFTER DELETE ON rollout__heads BEGIN DELETE FROM "
               "event_payloads WHERE id IN (SELECT id FROM event_payloads LIMIT 3); END")
    assert one(db, "SELECT rollout_cleanup_expired(5000)") == 2
    assert rows(db, "SELECT domain, rows, bytes > 0 FROM retention_log ORDER BY rows") == [
        ("rollout", 2, 1), ("payload", 6, 0)]


@pytest.mark.parametrize("value", ["5", "1.5", "true", "null", "{}", "[\"x\"]"])
@pytest.mark.parametrize("payload", [
    '{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}',
    '{"type":"message","role":"user","content":%s}'])
def test_values_that_are_not_text_become_null(db, value, payload):
    create(db)
    for kind, text in (("response_item", payload % value),
                       ("event_msg", '{"type":"user_message","message":%s}' % value),
                       ("event_msg", '{"type":"agent_message","data":{"message":%s}}' % value)):
        db.execute("INSERT INTO rollout_items(rollout, type, payload) VALUES (?, ?, ?)",
                   (ID, kind, text))
    assert rows(db, "SELECT DISTINCT value FROM rollout_facts "
                "WHERE fact IN ('user', 'assistant')") == [(None,)]
    assert one(db, "SELECT first_user_message FROM rollouts") is None
    well(db)


@pytest.mark.parametrize("text", [
    "<image name=foo> tag breaks my page, is it <b>valid</b>", "<image name=", "<image> x",
    "see </image>"])
def test_text_that_is_like_an_image_tag_is_text(db, text):
    create(db)
    append(db, ID, image(text))
    assert one(db, "SELECT text FROM rollout_messages") == text


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("start", [
    f"SELECT rollout_create('{OTHER}')", f"INSERT INTO rollouts(id) VALUES('{OTHER}')",
    f"SELECT rollout_fork('{ID}', NULL, '{OTHER}')"])
def test_the_numbers_end_and_are_used_again(db, begin, start):
    create(db)
    db.execute("UPDATE rollout__heads SET no = 2147483647")
    for name, key in ("data", "id"), ("segments", "owner"):
        shift = "<< 32" if key == "id" else ""
        db.execute(f"UPDATE rollout__{name} SET {key} = 2147483647 {shift}")
    db.execute("UPDATE rollout__segments SET rollout = 2147483647")
    db.execute("UPDATE rollout__about SET no = 2147483647")
    db.execute(begin)
    with pytest.raises(sqlite3.IntegrityError, match="RangeError: rollout numbers end at"):
        db.execute(start).fetchall()
    db.execute("DELETE FROM rollouts")
    create(db)
    assert rows(db, "SELECT no, id FROM rollout__heads") == [(1, ID)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_number_that_is_used_again_gets_nothing_of_the_old_one(db):
    """The items of a deleted conversation that a fork shows belong to its number."""
    create(db)
    append(db, ID, user("hi"))
    one(db, f"SELECT rollout_fork('{ID}', NULL, '{OTHER}')")
    db.execute(f"DELETE FROM rollouts WHERE id = '{ID}'")
    create(db)
    assert rows(db, "SELECT no, id FROM rollout__heads ORDER BY no") == [(2, OTHER), (3, ID)]
    db.execute(f"DELETE FROM rollouts WHERE id = '{ID}'")
    create(db)
    assert rows(db, "SELECT no, id FROM rollout__heads ORDER BY no") == [(2, OTHER), (3, ID)]
    assert one(db, f"SELECT count(*) FROM rollout_items WHERE rollout = '{ID}'") == 1
    db.execute("DELETE FROM rollouts")
    assert one(db, "SELECT count(*) FROM rollout__data") == 0
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ---- what an append remembers for the next one

TURNS_ON = "UPDATE blackbox_settings SET value = 'everything' WHERE name = 'rollout.policy'"
SAID = "VALUES ('%s', 'event_msg', '{\"type\":\"user_message\",\"message\":\"mine\"}')"


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("does, finds", [
    ("UPDATE rollouts SET expires_at = 1", "RolloutExpiredError"),
    (f"INSERT INTO rollout_log(rollout_id, type, payload) {SAID % ID}", [(9, None), (0, None)]),
    (f"INSERT INTO rollout_log(rollout_id, type, payload) {SAID % OTHER}", [(8, None), (1, None)]),
    ("UPDATE rollout_items SET payload = replace(payload, 'x', 'y') WHERE sequence = 1", [(8, None), (0, None)]),
    (TURNS_ON, [(10, None), (0, None)])])
def test_the_next_append_sees_what_a_trigger_did_in_an_append(db, does, finds, whole):
    create(db)
    create(db, OTHER)
    for i in range(4):
        append(db, ID, user(f"x{i}"), {"type": "unheard_of", "payload": {}})
    db.execute(f"CREATE TRIGGER mine AFTER INSERT ON rollout__data WHEN NEW.type = 'turn_context' BEGIN {does}; END")
    append(db, ID, user("more"))
    if whole:
        db.execute("BEGIN")
    append(db, ID, CONTEXT)
    try:
        for _ in range(2):
            append(db, ID, user("after"), {"type": "unheard_of", "payload": {}})
        found = rows(db, "SELECT last_sequence, behind FROM rollout__heads ORDER BY no")
    except sqlite3.Error as error:
        found = str(error).split(":")[0]
    assert found == finds
    if whole:
        db.execute("COMMIT")
    well(db)


@pytest.mark.parametrize("whole", [False, True])
def test_an_append_sees_what_a_statement_has_left_that_failed(db, whole):
    create(db)
    db.execute("CREATE TRIGGER mine AFTER UPDATE OF expires_at ON rollout__heads WHEN NEW.expires_at = 1 "
               "BEGIN SELECT RAISE(FAIL, 'and yet it stays'); END")
    append(db, ID, user("a"))
    append(db, ID, user("b"))
    if whole:
        db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="stays"):
        db.execute("UPDATE rollouts SET expires_at = 1")
    with pytest.raises(sqlite3.Error, match="RolloutExpiredError"):
        append(db, ID, user("c"))


def test_how_items_are_read_stays_until_the_end_of_the_append(db):
    """A trigger of it changes that, and reads."""
    create(db)
    db.execute("CREATE TABLE mine(x)")
    db.execute("CREATE TRIGGER mine AFTER INSERT ON rollout__data WHEN NEW.type = 'turn_context' BEGIN "
               "INSERT INTO blackbox_places(kind, format, type, conditions, place, part) WITH i(n) AS (SELECT 1 "
               "UNION ALL SELECT n + 1 FROM i WHERE n < 300) SELECT 'user', 'f' || n, 'aa', '{}', '$.a', 'b' FROM i; "
               f"INSERT INTO mine SELECT count(*) FROM rollout_context('{ID}'); END")
    db.execute("BEGIN")
    db.execute("INSERT INTO mine VALUES (0)")
    append(db, ID, *[message("user", f"m{i}") for i in range(40)], CONTEXT)
    db.execute("COMMIT")
    assert rows(db, "SELECT DISTINCT part FROM rollout__texts") == [(None,)]
    assert one(db, "SELECT count(*) FROM mine") == 2
