"""The schema alone: every rule holds without the module."""
import json
import shutil
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, texts, well
from conftest import ROOT, connect, one, rollout_faults, rows, shell

IntegrityError = sqlite3.IntegrityError


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A database that the stock shell made, by running the files twice."""
    path = tmp_path_factory.mktemp("schema") / "template.db"
    files = ("rollout", "rollout_formats", "rollout_histories", "rollout_usage",
             "rollout_tables")
    for name in ("core", *files, *files):
        text = (ROOT / "sql" / f"{name}.sql").read_text()
        assert shell(path, stdin="BEGIN;" + text + "COMMIT;") == ""
    return path


@pytest.fixture(params=[0, 1], ids=["recursive off", "recursive on"])
def plain(path, template, request):
    """A connection without the module."""
    shutil.copy(template, path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute(f"PRAGMA recursive_triggers = {request.param}")
    yield db
    well(db)
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


def module(db, sql, *args):
    """Calls a function on another connection, which has the module."""
    other = connect(one(db, "SELECT file FROM pragma_database_list"))
    found = one(other, sql, *args)
    other.close()
    return found


def start(db, rollout=ID, **columns):
    names = ", ".join(["id", *columns])
    marks = ", ".join("?" * (1 + len(columns)))
    db.execute(f"INSERT INTO rollouts({names}) VALUES ({marks})",
               (rollout, *columns.values()))


def log(db, kind, rollout=ID, item_type="event_msg", **payload):
    db.execute(
        "INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, ?, ?)",
        (rollout, item_type, json.dumps({"type": kind, **payload})))


def head(db, columns, rollout=ID):
    """Columns of a conversation. What lists need is kept without the module; the rest is
    derived by its next call that writes."""
    if "turns" in columns or "first_user" in columns or "cwd" in columns:
        module(db, "SELECT rollout_append(?, '[]', 0)", rollout)
    return rows(db, f"SELECT {columns} FROM rollouts WHERE id = ?", rollout)[0]


@pytest.mark.parametrize("columns, message", [
    ({"turns": 1}, "ReadOnlyError"), ({"item_count": 0}, "ReadOnlyError"),
    ({"last_sequence": 0}, "ReadOnlyError"), ({"bytes": 0}, "ReadOnlyError"),
    ({"has_user_event": 0}, "ReadOnlyError"),
    ({"first_user_message": "x"}, "ReadOnlyError"),
    ({"cwd": "/w"}, "ReadOnlyError"), ({"source": "x", "session_meta": "{}"}, "ReadOnlyError"),
])
def test_insert_refuses_values_that_it_could_not_keep(plain, columns, message):
    with pytest.raises(IntegrityError, match=message):
        start(plain, **columns)
    assert rows(plain, "SELECT * FROM rollouts") == []


def test_insert_keeps_every_column(plain):
    about = {"cwd": "/w", "originator": "me", "cli_version": "9", "source": "cli",
             "model_provider": "p", "title": "T", "forked_from": OTHER}
    meta = {**about, "forked_from_id": OTHER}
    start(plain, session_meta=json.dumps(meta))
    assert head(plain, "title") == ("T",)
    assert head(plain, ", ".join(about)) == tuple(about.values())
    start(plain, THIRD)
    assert set(json.loads(head(plain, "session_meta", THIRD)[0])) == {
        "id", "timestamp", "cwd", "originator", "cli_version", "instructions"}


def test_insert_reads_the_id_of_the_session_meta(plain):
    plain.execute("INSERT INTO rollouts(session_meta) VALUES (?)",
                  (json.dumps({"id": ID.upper()}),))
    assert head(plain, "id") == (ID,)


@pytest.mark.parametrize("meta", [
    "[]", "5", "{", json.dumps({"id": OTHER}), json.dumps({"x": 1}), None])
def test_session_meta_stays_one(plain, meta):
    start(plain)
    before = rows(plain, "SELECT * FROM rollouts")
    with pytest.raises(IntegrityError, match="Invalid"):
        plain.execute("UPDATE rollouts SET session_meta = ?", (meta,))
    assert rows(plain, "SELECT * FROM rollouts") == before
    plain.execute("UPDATE rollouts SET session_meta = ?",
                  (json.dumps({"id": ID, "cwd": "/new"}),))
    assert head(plain, "cwd") == ("/new",)


@pytest.mark.parametrize("view, time, message", [
    ("rollout_log", "yesterday", "Invalid item format: a timestamp"),
    ("rollout_log", -1, "Invalid item format: a timestamp"),
    ("rollout_items", "yesterday", "Invalid item format: a timestamp"),
    ("rollout_items", 3000, "Rollout expired"),
    ("rollout_log", 3000, "Rollout expired"),
])
def test_a_time_of_an_item_that_is_not_valid_is_refused(plain, view, time, message):
    start(plain, created=1000, expires_at=2000)
    key = "rollout" if view == "rollout_items" else "rollout_id"
    sql = f"INSERT INTO {view}({key}, type, payload, timestamp) " \
        "VALUES (?, 'compacted', '{}', ?)"
    with pytest.raises(IntegrityError, match=message):
        plain.execute(sql, (ID, time))
    plain.execute(sql, (ID, 1500))
    assert head(plain, "item_count") == (2,)


@pytest.mark.parametrize("view", ["rollout_log", "rollout_items"])
def test_a_type_has_no_nul(plain, view):
    start(plain)
    key = "rollout" if view == "rollout_items" else "rollout_id"
    with pytest.raises(IntegrityError, match="Invalid item format"):
        plain.execute(f"INSERT INTO {view}({key}, type, payload) "
                      "VALUES (?, 'compacted' || char(0), '{}')", (ID,))


def test_insert_makes_session_meta_and_counters(plain):
    start(plain, ID.upper(), created=1000, title="T")
    assert head(plain, "created, updated, item_count, last_sequence, "
                "has_user_event, status, title") == (1000, 1000, 1, 0, 0, "active", "T")
    assert head(plain, "expires_at")[0] == 1000 + 60 * 86400000
    meta = json.loads(head(plain, "session_meta")[0])
    assert meta["id"] == ID and meta["timestamp"] == "1970-01-01T00:00:01.000Z"
    assert texts(plain, ID)[0][0] == 0
    assert head(plain, "bytes")[0] == len(head(plain, "session_meta")[0])


def test_insert_without_id_is_refused(plain):
    with pytest.raises(IntegrityError, match="Invalid conversation ID"):
        plain.execute("INSERT INTO rollouts(title) VALUES ('a')")
    assert rows(plain, "SELECT * FROM rollouts") == []


def test_counters_follow_every_insert(plain):
    start(plain, created=5, expires_at="permanent")
    log(plain, "token_count")
    assert head(plain, "item_count, has_user_event, turns") == (2, 0, 0)
    log(plain, "user_message", message="é" * 300)
    assert head(plain, "item_count, last_sequence, has_user_event, turns, "
                "first_user_message") == (3, 2, 1, 1, "é" * 200)
    plain.execute(
        "INSERT INTO rollout_items(rollout, timestamp, type, payload) "
        "VALUES (?, 9000000000000, 'x', '1')", (ID,))
    assert head(plain, "item_count, updated") == (4, 9000000000000)
    plain.execute(
        "INSERT INTO rollout_items(rollout, timestamp, type, payload) "
        "VALUES (?, 7, 'x', '1')", (ID,))
    assert head(plain, "item_count, updated") == (5, 9000000000000)
    assert head(plain, "bytes")[0] == sum(
        len(payload.encode()) for _, payload in texts(plain, ID))


@pytest.mark.parametrize("item_type, payload, is_user, is_turn", [
    ("event_msg", {"type": "user_message", "message": "x"}, 1, 1),
    ("EventMsg", {"type": "UserMessage", "data": {"message": "x"}}, 1, 1),
    ("response_item", {"type": "message", "role": "user", "content": "x"}, 1, 1),
    ("response_item", {"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "<environment_context>x"}]}, 1, 0),
    ("response_item", {"type": "message", "role": "assistant", "content": "x"},
     0, 0),
    ("event_msg", {"type": "agent_message", "message": "x"}, 0, 0),
    ("compacted", {"type": "user_message", "message": "x"}, 0, 0),
])
def test_user_events_and_turns_are_counted_by_kind(
        plain, item_type, payload, is_user, is_turn):
    start(plain)
    plain.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                  "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                  (ID, json.dumps({"type": item_type, "payload": payload})))
    assert head(plain, "item_count, has_user_event, turns") == (
        2, is_user, is_turn)


def test_the_guard_finds_what_the_rows_of_codex_find(plain):
    """rollout_log_insert repeats them, because to evaluate rows doubles its size."""
    plain.execute("INSERT INTO blackbox_settings(name, value) "
                  "VALUES ('rollout.policy', 'everything')")
    found = rows(plain, "SELECT kind, type, conditions, place FROM blackbox_places "
                 "WHERE format = 'codex' AND kind IN ('user', 'goal', 'title')")
    for number, (kind, item_type, conditions, place) in enumerate(found):
        rollout = f"5973b6c0-94b8-487b-a530-0000000000{number:02}"
        start(plain, rollout)
        fields = {path[2:]: text for path, text in json.loads(conditions).items() if text}
        log(plain, None, rollout, item_type, **{**fields, place.split(".")[-1]: "it"})
        assert head(plain, "has_user_event, title", rollout) == (
            (0, "it") if kind == "title" else (1, None))
    assert len(found) == 5


def test_a_message_told_twice_is_one_turn(plain):
    start(plain)
    for _ in range(2):
        log(plain, "message", item_type="response_item", role="user",
            content=[{"type": "input_text", "text": "yes"}])
        log(plain, "user_message", message="yes")
    log(plain, "user_message", message="no")
    assert head(plain, "turns") == (3,)
    assert rows(plain, "SELECT id & 4294967295 FROM rollout__marks WHERE kind = 'turn' ORDER BY number") == [
        (1,), (3,), (5,)]


def tell(db, text, rollout=ID):
    log(db, "message", rollout, "response_item", role="user", content=text)


def turns(db, rollout=ID):
    module(db, "SELECT rollout_append(?, '[]', 0)", rollout)
    return rows(db, "SELECT t.number, t.id & 4294967295 FROM rollout__marks AS t JOIN "
                    "rollout__heads AS h ON h.no = t.id >> 32 WHERE h.id = ? AND t.kind = 'turn' ORDER BY t.id", rollout)


def test_a_message_after_a_rollback_is_new(plain):
    start(plain)
    tell(plain, "c")
    tell(plain, "d")
    log(plain, "thread_rolled_back", num_turns=1)
    assert head(plain, "turns") == (1,)
    log(plain, "user_message", message="c")
    assert head(plain, "turns") == (2,)
    assert turns(plain) == [(0, 1), (1, 2), (1, 4)]
    tell(plain, "c")  # told twice again
    assert head(plain, "turns") == (2,)
    log(plain, "thread_rolled_back", num_turns=0)  # takes nothing back
    tell(plain, "c")
    assert head(plain, "turns") == (2,)


def test_a_message_after_a_rollback_that_a_fork_shares_is_new(plain):
    start(plain)
    tell(plain, "c")
    tell(plain, "d")
    log(plain, "thread_rolled_back", num_turns=1)
    fork(plain, None)
    log(plain, "user_message", OTHER, message="c")
    assert head(plain, "turns", OTHER) == (2,)
    assert turns(plain, OTHER) == [(1, 4)]


@pytest.mark.parametrize("sql", [
    "INSERT INTO rollout_items(rollout, sequence, type, payload) "
    f"VALUES ('{ID}', 7, 'x', '1')",
    "INSERT INTO rollout_items(rollout, sequence, type, payload) "
    f"VALUES ('{ID}', 1, 'x', '1')",
    "UPDATE rollout_items SET sequence = 9 WHERE sequence = 1",
    "UPDATE rollout_items SET type = 'y'",
    "DELETE FROM rollout_items WHERE sequence = 1",
    "UPDATE rollouts SET item_count = 5",
    "UPDATE rollouts SET updated = 5",
    "REPLACE INTO rollouts(id) VALUES ('%s')" % ID,
    "INSERT INTO rollouts(id) VALUES ('%s')" % ID,
    "INSERT INTO rollouts(id, last_sequence) VALUES ('%s', 5)" % OTHER,
])
def test_history_cannot_be_broken(plain, sql):
    start(plain)
    log(plain, "user_message", message="keep me")
    before = list(plain.iterdump())
    for begin in (False, True):
        if begin:
            plain.execute("BEGIN")
        with pytest.raises(sqlite3.Error):
            plain.execute(sql)
        if begin:
            plain.execute("COMMIT")
        assert [line for line in plain.iterdump() if "blackbox__probe" not in line
                ] == [line for line in before if "blackbox__probe" not in line]


def test_insert_or_ignore_keeps_the_history(plain):
    start(plain)
    log(plain, "user_message", message="keep me")
    for _ in range(2):
        plain.execute("INSERT OR IGNORE INTO rollouts(id, title) VALUES (?, 'x')",
                      (ID,))
    assert head(plain, "item_count, title") == (2, None)
    start(plain, OTHER)  # what it left does not stop the next one
    assert head(plain, "item_count", OTHER) == (1,)


@pytest.mark.parametrize("columns", [
    {"status": "gone"}, {"expires_at": "soon"}, {"expires_at": -1},
    {"expires_at": 1.5}, {"created": "now"}, {"session_meta": "[]"},
    {"session_meta": "{"}, {"session_meta": '{"id":"%s"}' % OTHER},
])
def test_bad_rows_are_refused(plain, columns):
    with pytest.raises(IntegrityError, match="Invalid"):
        start(plain, **columns)
    assert rows(plain, "SELECT * FROM rollout__heads") == []
    assert rows(plain, "SELECT * FROM rollout__data") == []


@pytest.mark.parametrize("rollout", [
    "", "x", ID[:-1], ID + "0", ID.replace("-", "0"), ID.replace("4", "0", 3),
    "5973b6c0-94b8-087b-a530-2aeb6098ae0e", "5973b6c0-94b8-487b-c530-2aeb6098ae0e",
    "5973b6c0-94b8-487b-a530-2aeb6098ag0e", "00000000-0000-0000-0000-000000000000",
])
def test_bad_ids_are_refused(plain, rollout):
    with pytest.raises(IntegrityError, match="Invalid conversation ID"):
        start(plain, rollout)


@pytest.mark.parametrize("columns, message", [
    ((ID, None, None), "Invalid item format"), ((ID, "", "{}"), "Invalid item format"),
    ((ID, b"x", "{}"), "Invalid item format"), ((ID, "compacted", b"{}"), "Invalid item format"),
    ((ID, "compacted", 1), "Invalid item format"), ((ID, "event_msg", "{"), "Invalid item format"),
    ((ID, "compacted", "[" * 5000 + "]" * 5000), "Invalid item format"),
    ((OTHER, "compacted", "{}"), "Rollout not found"), ((OTHER, "unknown", "{}"), "Rollout not found"),
    ((None, "compacted", "{}"), "Rollout not found"),
])
@pytest.mark.parametrize("view", ["rollout_log(rollout_id", "rollout_items(rollout"])
def test_bad_items_are_refused(plain, view, columns, message):
    plain.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    start(plain)
    with pytest.raises(IntegrityError, match=message):
        plain.execute(f"INSERT INTO {view}, type, payload) VALUES (?, ?, ?)", columns)
    assert head(plain, "item_count") == (1,)


def test_expired_refuses_appends_until_given_time(plain):
    start(plain, created=1000, expires_at=2000)
    put = ("INSERT INTO rollout_log(rollout_id, type, payload, timestamp) "
           "VALUES (?, 'compacted', '{}', ?)")
    plain.execute(put, (ID, 2000))
    with pytest.raises(IntegrityError, match="Rollout expired"):
        plain.execute(put, (ID, 2001))
    with pytest.raises(IntegrityError, match="Rollout expired"):
        plain.execute(put, (ID, None))
    plain.execute("UPDATE rollouts SET expires_at = 'permanent'")
    plain.execute(put, (ID, 2001))
    assert head(plain, "item_count, expires_at") == (3, None)


def test_payload_keeps_every_byte(plain):
    text = '{ "b" : 1.0e5, "a":1E+2, "a" : "\\u00e9\\/", "d":[ ] }'
    start(plain)
    plain.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                  "VALUES (?, 'compacted', ?)", (ID, text))
    assert texts(plain, ID)[1] == (1, text)


def test_policy_drops_and_counts(plain):
    start(plain)
    for _ in range(2):
        log(plain, "exec_command_begin")
    plain.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                  "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                  (ID, '{"type":"compacted"}'))
    log(plain, "Message", item_type="ResponseItem")
    assert head(plain, "item_count") == (2,)
    size = len(json.dumps({"type": "exec_command_begin"}))
    assert rows(plain, "SELECT item_type, payload_type, items, bytes "
                "FROM rollout_drops") == [
        ("compacted", "", 1, 0), ("event_msg", "exec_command_begin", 2, 2 * size)]


def test_policy_is_data(plain):
    start(plain)
    plain.execute("INSERT INTO rollout_policy(preset, item_type, payload_type, "
                  "keep) VALUES ('mine', '*', '*', 1), "
                  "('mine', 'event_msg', 'token_count', 0)")
    plain.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'mine')")
    log(plain, "TokenCount", item_type="EventMsg")
    log(plain, "anything", item_type="whatever")
    assert [p for _, p in texts(plain, ID)][1:] == ['{"type": "anything"}']
    plain.execute("UPDATE blackbox_settings SET value = 'everything' "
                  "WHERE name = 'rollout.policy'")
    plain.execute("DELETE FROM rollout_policy WHERE preset = 'mine'")
    plain.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                  "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                  (ID, '{"type":"odd"}'))
    assert texts(plain, ID)[-1] == (2, None)
    with pytest.raises(IntegrityError, match="ValidationError"):
        plain.execute("UPDATE blackbox_settings SET value = 'mine' WHERE name = 'rollout.policy'")


def test_redaction_reaches_list_and_size(plain):
    start(plain)
    log(plain, "user_message", message="my key is SECRET")
    plain.execute("UPDATE rollout_items SET payload = replace(payload, 'SECRET', "
                  "'***') WHERE sequence = 1")
    assert head(plain, "first_user_message") == ("my key is ***",)
    for sql in ("UPDATE rollout_items SET payload = '{' WHERE sequence = 1",
                "UPDATE rollout_items SET payload = '{\"type\":\"x\"}' "
                "WHERE sequence = 1"):
        with pytest.raises(IntegrityError, match="Invalid item format"):
            plain.execute(sql)
    plain.execute("UPDATE rollouts SET title = 'new', session_meta = json_set("
                  "session_meta, '$.cwd', '/x')")
    assert head(plain, "title, cwd") == ("new", "/x")


def fork(db, turn, rollout=OTHER, parent=ID):
    module(db, "SELECT rollout_fork(?, ?, ?)", parent, turn, rollout)


def make_turns(db, count, rollout=ID):
    for i in range(count):
        log(db, "user_message", rollout, message=f"turn {i}")
        log(db, "agent_message", rollout, message=f"answer {i}")


@pytest.mark.parametrize("turn, items", [
    (0, 1), (1, 3), (2, 5), (3, 7), (None, 7)])
def test_fork_shares_what_comes_before_the_turn(plain, turn, items):
    start(plain)
    make_turns(plain, 3)
    fork(plain, turn)
    assert texts(plain, OTHER)[1:] == texts(plain, ID)[1:items]
    assert head(plain, "item_count, forked_from", OTHER) == (items, ID)
    assert one(plain, "SELECT count(*) FROM rollout__data") == 8
    log(plain, "user_message", OTHER, message="mine")
    assert texts(plain, OTHER)[-1][0] == items
    assert head(plain, "item_count") == (7,)
    assert head(plain, "turns, has_user_event", OTHER) == (
        (3 if turn is None else turn) + 1, 1)


def test_forks_of_forks_outlive_each_other(plain):
    start(plain)
    make_turns(plain, 3)
    fork(plain, 2)
    make_turns(plain, 2, OTHER)
    fork(plain, 3, THIRD, OTHER)
    make_turns(plain, 1, THIRD)
    whole = {r: texts(plain, r) for r in (ID, OTHER, THIRD)}
    assert [s for s, _ in whole[THIRD]] == list(range(9))
    plain.execute("DELETE FROM rollouts WHERE id = ?", (ID,))
    assert texts(plain, OTHER) == whole[OTHER]
    assert texts(plain, THIRD) == whole[THIRD]
    well(plain)
    plain.execute("DELETE FROM rollouts WHERE id = ?", (OTHER,))
    assert texts(plain, THIRD) == whole[THIRD]
    well(plain)
    plain.execute("DELETE FROM rollouts WHERE id = ?", (THIRD,))
    for table in ("data", "segments", "marks", "about", "heads"):
        assert one(plain, f"SELECT count(*) FROM rollout__{table}") == 0


def test_receipts_add_up_to_what_was_stored(plain):
    start(plain)
    make_turns(plain, 3)
    fork(plain, 2)
    make_turns(plain, 2, OTHER)
    total = one(plain, "SELECT sum(length(CAST(payload AS BLOB))) "
                "FROM rollout__data")
    plain.execute("DELETE FROM rollouts WHERE id = ?", (ID,))
    left = one(plain, "SELECT sum(length(CAST(payload AS BLOB))) "
               "FROM rollout__data")
    assert one(plain, "SELECT sum(bytes) FROM retention_log") == total - left
    plain.execute("DELETE FROM rollouts WHERE id = ?", (OTHER,))
    assert one(plain, "SELECT sum(bytes) FROM retention_log") == total
    assert one(plain, "SELECT sum(rows) FROM retention_log") == 2
    assert one(plain, "SELECT DISTINCT rule FROM retention_log") == "manual"


def test_cleanup_takes_the_oldest_first_with_a_receipt(plain):
    for i in range(6):
        start(plain, f"5973b6c0-94b8-487b-a530-00000000000{i}", created=10,
              expires_at=100 + i if i < 5 else "permanent")
    plan = rows(plain, "SELECT id, bytes FROM rollouts WHERE expires_at < 104 ORDER BY expires_at")
    assert module(plain, "SELECT rollout_cleanup_expired(104, 3)") == 3
    left = {r for r, in rows(plain, "SELECT id FROM rollouts")}
    assert left.isdisjoint(key for key, _ in plan[:3]) and len(left) == 3
    assert module(plain, "SELECT rollout_cleanup_expired(104)") == 1
    assert module(plain, "SELECT rollout_cleanup_expired(104)") == 0
    assert rows(plain, "SELECT rule, rows, bytes, oldest, newest "
                "FROM retention_log ORDER BY id") == [
        ("rollout.expired", 4, sum(b for _, b in plan), 10, 10)]
    assert one(plain, "SELECT count(*) FROM rollouts") == 2


def test_check_finds_what_was_tampered_with(path, plain):
    start(plain)
    log(plain, "user_message", message="x")
    plain.execute("UPDATE rollout__heads SET last_sequence = 9, bytes = 1, turns = 7")
    plain.execute("DROP TRIGGER rollout_data_update")
    plain.execute("UPDATE rollout__data SET payload = '{' WHERE id & 15 = 1")
    found = " ".join(p for _, p in rollout_faults(plain))
    for word in ("last_sequence is 9", "bytes is 1", "turns is 7", "not JSON"):
        assert word in found
    plain.execute("DELETE FROM rollouts")


def test_conflict_clauses_inside_a_transaction_that_rolls_back(plain):
    start(plain)
    plain.execute("BEGIN")
    make_turns(plain, 2)
    plain.execute("SAVEPOINT a")
    plain.execute("DELETE FROM rollouts")
    plain.execute("ROLLBACK TO a")
    assert head(plain, "item_count") == (5,)
    plain.execute("ROLLBACK")
    assert head(plain, "item_count") == (1,)


@pytest.mark.parametrize("view", ["rollout_log", "rollout_items"])
def test_a_type_has_100_bytes(plain, view):
    start(plain)
    plain.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    key = "rollout" if view == "rollout_items" else "rollout_id"
    sql = f"INSERT INTO {view}({key}, type, payload) VALUES (?, ?, '{{}}')"
    with pytest.raises(IntegrityError, match="1 to 100 bytes"):
        plain.execute(sql, (ID, "é" * 51))
    plain.execute(sql, (ID, "é" * 50))
    assert head(plain, "item_count") == (2,)


@pytest.mark.parametrize("change", [
    "DELETE FROM rollout_policy", "UPDATE rollout_policy SET preset = 'other' WHERE preset = 'codex'"])
def test_a_preset_without_rows_keeps_everything(plain, change):
    start(plain)
    log(plain, "exec_command_begin")
    assert head(plain, "item_count") == (1,)
    plain.execute(change)
    log(plain, "exec_command_begin")
    assert head(plain, "item_count") == (2,)
    module(plain, "SELECT rollout_append(?, ?)", ID,
           '{"type":"event_msg","payload":{"type":"exec_command_begin"}}')
    assert head(plain, "item_count") == (3,)
    assert any("has no row" in problem for _, problem in rollout_faults(plain))
    plain.execute("INSERT INTO rollout_policy(preset, item_type) VALUES ('codex', 'compacted')")


@pytest.mark.parametrize("key", ["replacement_history", "replacementHistory"])
def test_a_compaction_keeps_its_history(plain, key):
    start(plain)
    log(plain, None, item_type="compacted", **{key: [{"secret": 1}]})
    for bad in ('{"message":"s"}', '{"%s":null}' % key, '[]'):
        with pytest.raises(IntegrityError, match="replacement history"):
            plain.execute("UPDATE rollout_items SET payload = ? WHERE sequence = 1", (bad,))
    plain.execute("UPDATE rollout_items SET payload = ? WHERE sequence = 1",
                  ('{"%s":[{"secret":0}]}' % key,))
    log(plain, None, item_type="compacted", message="none")
    with pytest.raises(IntegrityError, match="replacement history"):
        plain.execute("UPDATE rollout_items SET payload = ? WHERE sequence = 2",
                      ('{"%s":[]}' % key,))


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("skip", [
    "AFTER INSERT ON main.rollout__heads", "BEFORE DELETE ON main.rollout__heads",
    "BEFORE INSERT ON main.rollout__segments"])
def test_a_trigger_that_skips_others_lets_no_replace_through(plain, begin, recursive, skip):
    start(plain)
    start(plain, OTHER)
    log(plain, "user_message", OTHER, message="keep me")
    before = rows(plain, "SELECT * FROM rollout__heads"), rows(plain, "SELECT * FROM rollout__data")
    plain.execute(f"PRAGMA recursive_triggers = {recursive}")
    plain.execute(f"CREATE TEMP TRIGGER skip {skip} BEGIN SELECT RAISE(IGNORE); END")
    for statement in (f"REPLACE INTO rollouts(id) VALUES ('{OTHER}')",
                      f"INSERT OR REPLACE INTO rollouts(id, title) VALUES ('{ID}', 'x')"):
        plain.execute(begin)
        with pytest.raises(IntegrityError, match="RolloutExistsError|ReadOnlyError"):
            plain.execute(statement)
        if begin:
            plain.execute("COMMIT")
        assert (rows(plain, "SELECT * FROM rollout__heads"),
                rows(plain, "SELECT * FROM rollout__data")) == before


def test_deleted_rows_come_back_when_the_file_runs_again(plain, path):
    was = {table: rows(plain, f"SELECT * FROM {table} ORDER BY 1, 2")
           for table in ("rollout_policy", "blackbox_settings")}
    prefixes = rows(plain, "SELECT place FROM blackbox_places WHERE kind = 'preamble' ORDER BY 1")
    plain.execute("INSERT INTO rollout_policy(preset, item_type) VALUES ('mine', '*')")
    plain.execute("DELETE FROM rollout_policy WHERE preset = 'codex' "
                  "AND item_type <> 'compacted'")
    plain.execute("DELETE FROM rollout_policy WHERE preset = 'everything'")
    plain.execute("DELETE FROM blackbox_places WHERE kind = 'preamble'")
    for name in ("core", "rollout", "rollout_formats", "rollout_usage",
             "rollout_tables"):
        assert shell(path, stdin=(ROOT / "sql" / f"{name}.sql").read_text()) == ""
    assert rows(plain, "SELECT place FROM blackbox_places WHERE kind = 'preamble' ORDER BY 1") == prefixes
    plain.execute("DELETE FROM rollout_policy WHERE preset = 'mine'")
    assert {table: rows(plain, f"SELECT * FROM {table} ORDER BY 1, 2")
            for table in was} == was


def test_an_empty_payload_type_is_a_payload(plain):
    start(plain)
    plain.execute("INSERT INTO rollout_policy(preset, item_type, payload_type) "
                  "VALUES ('bare', 'note', '')")
    plain.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'bare')")
    plain.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                  "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                  (ID, '{"type":"note","payload":{"type":""}}'))
    plain.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                  "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                  (ID, '{"type":"note"}'))
    assert head(plain, "item_count") == (2,)
