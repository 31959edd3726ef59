"""The functions: what each of them returns, and each error, after which nothing is written."""
import json
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, derive, event, message, texts
from rollout_helpers import user, well
from conftest import connect, load, one, rows, shell

DAY = 86400000


@pytest.fixture(params=["main", "attached", "transaction"])
def place(request, path, tmp_path):
    """A connection whose rollouts are in main, in an attached schema with an
    odd name, or in main inside an open transaction."""
    db = connect(path)
    if request.param == "attached":
        db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
        one(db, "SELECT blackbox_install('a \"b', 'all')")
    else:
        one(db, "SELECT blackbox_install('main', 'all')")
    if request.param == "transaction":
        db.execute("BEGIN")
    yield db
    well(db)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.close()


def test_life_of_a_conversation(place):
    db = place
    rollout = one(db, "SELECT rollout_create(?, 'help me')", ID.upper())
    assert rollout == ID
    assert one(db, "SELECT rollout_resume(?)", ID) == 0
    assert append(db, ID, user("hi"), event("exec_command_begin"),
                  message("assistant", "hello")) == 2
    assert one(db, "SELECT rollout_resume(?)", ID) == 2
    assert rows(db, "SELECT * FROM rollout_dropped(?)", ID) == [
        ("event_msg", "exec_command_begin", 1, 29)]
    history = json.loads(one(db, "SELECT rollout_history(?)", ID))
    assert history["type"] == "resumed"
    assert history["payload"]["conversationId"] == ID
    assert history["payload"]["rolloutId"] == ID
    assert [i["type"] for i in history["payload"]["history"]] == [
        "session_meta", "event_msg", "response_item"]
    assert history["payload"]["history"][0]["payload"]["instructions"] == "help me"
    assert history["payload"]["history"][1] == user("hi")
    assert one(db, "SELECT rollout_archive(?)", ID) == 1
    assert one(db, "SELECT rollout_archive(?)", ID) == 0
    assert [r[0] for r in rows(db, "SELECT id FROM rollout_list(10)")] == [ID]
    assert one(db, "SELECT rollout_delete(?)", ID) == 1
    assert one(db, "SELECT rollout_delete(?)", ID) == 0
    assert one(db, "SELECT rollout_history(?)", ID) == '{"type":"new"}'


def test_create_makes_an_id_and_takes_all_arguments(db):
    made = one(db, "SELECT rollout_create(NULL)")
    assert len(made) == 36 and made[14] == "4"
    meta = '{ "id":"%s", "timestamp" : "x", "cwd":"/w" }' % ID
    one(db, "SELECT rollout_create(?, NULL, 1.5, ?, 1000)", ID, meta)
    assert rows(db, "SELECT created, expires_at, session_meta, cwd FROM rollouts "
                "WHERE id = ?", ID) == [(1000, 1000 + DAY * 3 // 2, meta, "/w")]
    one(db, "SELECT rollout_create(?, 'i', 'permanent', '{\"x\":1}', 2000)", OTHER)
    assert json.loads(one(
        db, "SELECT session_meta FROM rollouts WHERE id = ?", OTHER)) == {
        "x": 1, "id": OTHER, "timestamp": "1970-01-01T00:00:02.000Z",
        "instructions": "i"}
    assert one(db, "SELECT expires_at FROM rollouts WHERE id = ?", OTHER) is None
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.ttl_days', 1)")
    create(db, THIRD, None, 5)
    assert one(db, "SELECT expires_at FROM rollouts WHERE id = ?", THIRD) == 5 + DAY


@pytest.mark.parametrize("bad", [
    None, 5, b"x", "", "abc", ID[:-1], ID + "a", ID.replace("-", "_"), "x" * 5000,
])
@pytest.mark.parametrize("call", [
    "rollout_resume(?)", "rollout_append(?, '[]')", "rollout_archive(?)",
    "rollout_delete(?)", "rollout_history(?)", "rollout_shutdown(?)",
    "rollout_fork(?)", "rollout_export(?)",
])
def test_an_id_that_is_not_a_uuid_is_refused(db, call, bad):
    with pytest.raises(sqlite3.Error, match="Invalid conversation ID: "):
        db.execute(f"SELECT {call}", (bad,))


@pytest.mark.parametrize("call, message", [
    ("rollout_create('nope')", "Invalid conversation ID: 'nope'"),
    (f"rollout_create('{OTHER}', 5.5, -1)", "Invalid TTL: -1"),
    (f"rollout_create('{OTHER}', NULL, 'forever')", "Invalid TTL: 'forever'"),
    (f"rollout_create('{OTHER}', NULL, 1e300)", "Invalid TTL"),
    (f"rollout_create('{OTHER}', NULL, x'00')", "Invalid TTL"),
    (f"rollout_create('{OTHER}', NULL, NULL, '[]')", "Invalid session meta"),
    (f"rollout_create('{OTHER}', NULL, NULL, '{{')", "Invalid session meta"),
    (f"rollout_create('{OTHER}', NULL, NULL, NULL, -1)", "now must be"),
    (f"rollout_create('{ID}')", f"RolloutExistsError: {ID}"),
    (f"rollout_resume('{OTHER}')", f"Rollout not found: {OTHER}"),
    (f"rollout_append('{OTHER}', '[]')", f"Rollout not found: {OTHER}"),
    (f"rollout_shutdown('{OTHER}')", f"Rollout not found: {OTHER}"),
    (f"rollout_flush('{OTHER}')", f"Rollout not found: {OTHER}"),
    (f"rollout_fork('{OTHER}')", f"Rollout not found: {OTHER}"),
    (f"rollout_export('{OTHER}')", f"Rollout not found: {OTHER}"),
    (f"rollout_fork('{ID}', 9)", "Invalid turn: 9; .* has 0 turns"),
    (f"rollout_fork('{ID}', -1)", "turn must be"),
    (f"rollout_fork('{ID}', 0, '{ID}')", f"RolloutExistsError: {ID}"),
    (f"rollout_fork('{ID}', 0, 'x')", "Invalid conversation ID: 'x'"),
    ("rollout_cleanup_expired('x')", "now must be"),
    ("rollout_cleanup_expired(NULL, 0)", "limit must be"),
    ("rollout_page(0)", "Invalid page size: 0"),
    ("rollout_page(101)", "Invalid page size: 101"),
    ("rollout_page('10')", "Invalid page size: '10'"),
    ("rollout_page(NULL)", "Invalid page size: NULL"),
    ("rollout_page(10, 'x')", "Invalid cursor: 'x'"),
    ("rollout_page(10, 5)", "Invalid cursor: 5"),
    ("rollout_page(10, '')", "Invalid cursor: ''"),
    (f"rollout_page(10, '|{ID}')", "Invalid cursor"),
    (f"rollout_page(10, '-1|{ID}')", "Invalid cursor"),
    (f"rollout_page(10, '1|{ID}x')", "Invalid cursor"),
    (f"rollout_page(10, '99999999999999999999|{ID}')", "Invalid cursor"),
    ("rollout_page(10, '1|' || x'00')", "Invalid cursor"),
    ("rollout_import(NULL)", "Invalid rollout file"),
    ("rollout_import('')", "Invalid rollout file"),
    ("rollout_import(x'20')", "Invalid rollout file.*none of its 1 lines"),
    ("rollout_import('{}', NULL, 1, 'nosuch')", "there is no format 'nosuch'; SELECT"),
    ("rollout_import('{}', 'x')", "no format of rollout_formats"),
])
@pytest.mark.parametrize("begin", [False, True])
def test_bad_calls_change_nothing(db, call, message, begin):
    create(db)
    before = list(db.iterdump())
    if begin:
        db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match=message):
        db.execute(f"SELECT {call}").fetchall()
    if begin:
        db.execute("COMMIT")
    assert list(db.iterdump()) == before


BAD_ITEMS = [
    (None, "items must be text"), (b"[]", "items must be text"),
    ("", "not empty"), ("5", "must be a JSON array"), ('"x"', "must be a JSON"),
    ("null", "must be a JSON array"), ("[", "malformed JSON"), ("{", "malformed"),
    ("[{}]", "item 0 has no type"), ("{}", "item 0 has no type"),
    ('[{"type":"compacted","payload":1},5]', "item 1 is not an object, got 5"),
    ('[{"type":"compacted"},null]', "item 1 is not an object, got null"),
    ('[[{"type":"x"}]]', 'item 0 is not an object, got '),
    ('[{"type":"compacted","payload":{}},"x"]', 'item 1 is not an object, got "x"'),
    ('[{"type":5}]', "item 0 has no type"), ('[{"type":""}]', "has no type"),
    ('[{"type":null}]', "item 0 has no type"), ('[{"type":[]}]', "has no type"),
    ('[{"type":"%s"}]' % ("x" * 101), "1 to 100 bytes"),
    ("[" * 3000 + "]" * 3000, "malformed JSON"),
    ('[{"type":"compacted","payload":{}}] x', "malformed JSON"),
    ("[{'type':'compacted'}]", "malformed JSON"),
    ('["{\\"type\\":\\"compacted\\",\\"payload\\":{}}"]',
     'item 0 is not an object, got "{'),
    ('[{"type":"comp\\ud83dacted","payload":{}}]', "half a surrogate pair"),
    ('[{"type":"comp\\u0000acted","payload":{}}]', "without a NUL"),
]


@pytest.mark.parametrize("items, message", BAD_ITEMS)
@pytest.mark.parametrize("way", ["function", "begin", "row", "row in begin"])
def test_bad_items_write_nothing(db, items, message, way):
    create(db)
    append(db, ID, user("before"))
    before = list(db.iterdump())
    if "begin" in way:
        db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="Invalid item format: .*" + message):
        if "row" in way:
            if not isinstance(items, str):
                items = None
            db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', "
                       "json_array(?, ?))", (ID, items))
        else:
            db.execute("SELECT rollout_append(?, ?)", (ID, items))
    if "begin" in way:
        db.execute("COMMIT")
    assert list(db.iterdump()) == before


@pytest.mark.parametrize("items", [
    [{"type": "response_item", "payload": {"type": "function_call"}}],
    [{"type": "compacted", "payload": {}}, {"type": "session_meta", "payload": {}}],
    [{"type": "session_meta", "payload": []}],
])
@pytest.mark.parametrize("way", [
    "SELECT rollout_append(:id, :items)",
    "INSERT INTO blackbox_call VALUES "
    "('rollout_append', json_array(:id, :items))"])
def test_item_0_is_the_session_meta(db, items, way):
    db.execute("INSERT INTO rollout__heads(id) VALUES (?)", (ID,))
    with pytest.raises(sqlite3.Error, match="Invalid item format: item 0 of"):
        db.execute(way, {"id": ID, "items": json.dumps(items)})
    assert texts(db, ID) == []
    db.execute(way, {"id": ID, "items": json.dumps(
        [{"type": "session_meta", "payload": {"id": ID, "cwd": "/w"}}])})
    assert one(db, "SELECT cwd FROM rollouts WHERE id = ?", ID) == "/w"
    well(db)


def test_create_takes_the_id_of_the_session_meta(db):
    assert one(db, "SELECT rollout_create(NULL, NULL, NULL, ?)",
               json.dumps({"id": ID.upper()})) == ID
    assert len(one(db, "SELECT rollout_create(NULL, NULL, NULL, '{}')")) == 36
    with pytest.raises(sqlite3.Error, match="Invalid conversation ID: 'x'"):
        db.execute("SELECT rollout_create(NULL, NULL, NULL, '{\"id\":\"x\"}')")


def test_create_completes_what_is_null(db):
    one(db, "SELECT rollout_create(?, NULL, NULL, ?, 1000)", ID,
        '{"id":null,"timestamp":null,"cwd":"/w"}')
    assert json.loads(one(db, "SELECT session_meta FROM rollouts")) == {
        "id": ID, "timestamp": "1970-01-01T00:00:01.000Z", "cwd": "/w"}


def test_instructions_are_given_once(db):
    with pytest.raises(sqlite3.Error, match="Invalid session meta.*instructions"):
        one(db, "SELECT rollout_create(?, 'a', NULL, '{\"instructions\":\"b\"}')", ID)
    one(db, "SELECT rollout_create(?, 'a', NULL, '{\"instructions\":\"a\"}')", ID)
    one(db, "SELECT rollout_create(?, 'a', NULL, '{\"instructions\":null}')", OTHER)
    assert rows(db, "SELECT session_meta ->> 'instructions' FROM rollouts") == [("a",), ("a",)]


def test_invalid_utf8_and_nul_are_refused(db):
    create(db)
    for text in ("CAST(x'5b7b2274797065223a22ff227d5d' AS TEXT)",
                 "'[]' || char(0)"):
        with pytest.raises(sqlite3.Error, match="Invalid item format"):
            db.execute(f"SELECT rollout_append('{ID}', {text})")


def test_a_payload_over_the_limit_is_refused(db):
    create(db)
    before = one(db, "PRAGMA page_count")
    with pytest.raises(sqlite3.Error, match="Invalid item format: item 0 has a "
                       "payload of 100000002 bytes, and the limit is 67108864"):
        db.execute("SELECT rollout_append(?, ?)", (
            ID, '{"type":"compacted","payload":"%s"}' % ("x" * 100000000)))
    assert one(db, "PRAGMA page_count") == before
    with pytest.raises(sqlite3.IntegrityError, match="Invalid item format"):
        db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES "
                   "(?, 'compacted', ?)", (ID, '"%s"' % ("x" * 67108864)))
    assert one(db, "SELECT rollout_resume(?)", ID) == 0


def test_append_takes_one_item_or_an_array_in_any_schema(place):
    db = place
    create(db)
    assert append(db, ID) == 0
    assert one(db, "SELECT rollout_append(?, ?)", ID,
               ' {"type":"compacted","payload":{ "b" : 1.0e5, "b":"\\u00e9" }}') == 1
    assert one(db, "SELECT rollout_append(?, ?)", ID,
               '[{"payload":{"x":[ 1E+2 ]},"extra":1,"type":"Compacted"}]') == 1
    assert texts(db, ID)[1:] == [
        (1, '{ "b" : 1.0e5, "b":"\\u00e9" }'), (2, '{"x":[ 1E+2 ]}')]
    assert append(db, ID, {"type": "compacted"}, {"type": "nope"}) == 0
    assert rows(db, "SELECT item_type, payload_type, items FROM "
                "rollout_dropped(?)", ID) == [("compacted", "", 1), ("nope", "", 1)]
    append(db, ID, {"type": "compacted", "payload": 1,
                    "timestamp": "2030-01-02T03:04:05.678Z"},
           {"type": "compacted", "payload": 1, "timestamp": 77},
           {"type": "compacted", "payload": 1, "timestamp": "noon"},
           now=1700000000000)
    assert [t for t, in rows(
        db, "SELECT timestamp FROM rollout_range(?, 2)", ID)] == [
        1893553445678, 77, 1700000000000]
    assert rows(db, "SELECT updated, last_sequence FROM rollouts") == [
        (1893553445678, 5)]


def test_append_reads_any_order_of_members(db):
    """The stored payload is that of the item, compact, in whatever order its members are."""
    payloads = ['{"type":"x","payload":{"type":"y"}}', '{"type":"a","b":[{"type":'
                '"c","payload":{"type":"d"}},{"type":"e","payload":{"type":"f"}}]}',
                '{"a":"}},{"}', '{"type":"a\\"b"}', "1.50", "null", '"},"', "[]",
                '{"type":"x"}', '{"type":7}', "{}"]
    forms = ['{"type":"t","payload":%s}', '{"payload":%s,"type":"t"}',
             '{"type":"t","payload":%s,"k":1}', '{"type":"t","k":{},"payload":%s}',
             '{ "type" : "t" , "payload" : %s }',
             '{"type":"t","payload":%s,"payload":{"type":"second"}}',
             '{"timestamp":5,"type":"t","payload":%s}']
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    create(db)
    want = []
    for form in forms:  # alike, and then all of them mixed
        one(db, "SELECT rollout_append(?, ?)", ID,
            "[%s]" % ",".join(form % payload for payload in payloads))
        want += payloads
    one(db, "SELECT rollout_append(?, ?)", ID, "[%s]" % ",".join(
        form % payload for payload in payloads for form in forms))
    want += [payload for payload in payloads for _ in forms]
    assert [payload for _, payload in texts(db, ID)[1:]] == want


def test_an_id_is_checked_before_the_items(db):
    with pytest.raises(sqlite3.Error, match="^InvalidIdError: "):
        db.execute("SELECT rollout_append('x', '[')")


def test_append_knows_user_messages_however_they_are_written(db):
    for rollout, item in [
        (ID, '{"type":"response_item","payload":{"role":"\\u0075ser",'
         '"content":"x","type":"message"}}'),
        (OTHER, '{"type":"ResponseItem","payload":{"type":"Message",'
         '"role":"user","content":"x"}}'),
        (THIRD, '{"type":"event\\u005fmsg","payload":{"type":"user_mess\\u0061ge",'
         '"message":"x"}}'),
    ]:
        create(db, rollout)
        one(db, "SELECT rollout_append(?, ?)", rollout, item)
        assert rows(db, "SELECT turns, first_user_message FROM rollouts "
                    "WHERE id = ?", rollout) == [(1, "x")]


def test_policy_agrees_with_the_schema(db):
    """Function and view decide the same for every pair of types and both spellings."""
    def pascal(name):
        return "".join(word.capitalize() for word in name.split("_"))
    pairs = rows(db, "SELECT item_type, payload_type FROM rollout_policy") + [
        ("event_msg", "nope"), ("nope", "message"), ("event_msg", "*")]
    items = []
    for outer, inner in pairs:
        payload = {} if inner in ("*", "") else {"type": inner, "role": "user"}
        items += [{"type": outer, "payload": payload},
                  {"type": pascal(outer), "payload": {
                      k: pascal(v) if k == "type" else v
                      for k, v in payload.items()}}]
    items.append({"type": "compacted"})
    for preset in ("codex", "everything"):
        db.execute("REPLACE INTO blackbox_settings(name, value) VALUES('rollout.policy', ?)",
                   (preset,))
        for rollout in (ID, OTHER):
            one(db, "SELECT rollout_delete(?)", rollout)
            create(db, rollout)
        kept = append(db, ID, *items)
        for item in items:
            db.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                       "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
                       (OTHER, json.dumps(item)))
        derive(db)
        assert texts(db, ID)[1:] == texts(db, OTHER)[1:]
        assert len(texts(db, ID)) == kept + 1
        assert rows(db, "SELECT * FROM rollout_dropped(?)", ID) == rows(
            db, "SELECT * FROM rollout_dropped(?)", OTHER)
        assert rows(db, "SELECT turns, has_user_event, bytes - length("
                    "session_meta) FROM rollouts WHERE id = ?", ID) == rows(
            db, "SELECT turns, has_user_event, bytes - length(session_meta) "
            "FROM rollouts WHERE id = ?", OTHER)
        assert kept == (len(items) if preset == "everything" else kept)
    well(db)


def test_an_expired_conversation_is_refused_by_name_and_not_shown(db):
    create(db, ID, 1, 1000)
    append(db, ID, user("x"), now=1000 + DAY)
    for call in ("rollout_append(?, '[]')", "rollout_resume(?)",
                 "rollout_fork(?)"):
        with pytest.raises(sqlite3.Error, match="Rollout expired"):
            db.execute(f"SELECT {call}", (ID,))
    with pytest.raises(sqlite3.Error, match=f"Rollout expired: {ID}, at 86401000"):
        append(db, ID, user("x"), now=1001 + DAY)
    assert '"message":"x"' in one(db, "SELECT rollout_export(?)", ID)
    assert one(db, "SELECT rollout_resume(?, ?)", ID, 1000 + DAY) == 1
    assert one(db, "SELECT rollout_history(?)", ID) == '{"type":"new"}'
    assert rows(db, "SELECT * FROM rollout_range(?)", ID) == []
    assert rows(db, "SELECT * FROM rollout_list(10)") == []
    assert len(rows(db, "SELECT * FROM rollout_list(10, NULL, 1000)")) == 1
    assert one(db, "SELECT count(*) FROM rollouts") == 1
    assert one(db, "SELECT rollout_cleanup_expired(?)", 1000 + DAY) == 0
    assert one(db, "SELECT rollout_cleanup_expired(?)", 1001 + DAY) == 1
    assert one(db, "SELECT rollout_cleanup_expired()") == 0


def test_ttl_zero_and_cleanup_limit(db):
    for i in range(5):
        create(db, f"5973b6c0-94b8-487b-a530-00000000000{i}", 0, 1000 + i)
    create(db, ID, "permanent", 0)
    assert one(db, "SELECT rollout_cleanup_expired(1002, 10)") == 2
    assert one(db, "SELECT rollout_cleanup_expired(NULL, 2)") == 2
    assert one(db, "SELECT rollout_cleanup_expired(NULL, 2)") == 1
    assert [r for r, in rows(db, "SELECT id FROM rollouts")] == [ID]
    assert one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'rollout.expired'") == 5


def test_shutdown_is_a_state_of_the_connection(db, path):
    create(db)
    create(db, OTHER)
    assert one(db, "SELECT rollout_shutdown(?)", ID) == 1
    assert one(db, "SELECT rollout_shutdown(?)", ID) == 0
    with pytest.raises(sqlite3.Error, match=f"Rollout is shut down: {ID}"):
        append(db, ID, user("x"))
    assert append(db, OTHER, user("x")) == 1
    second = connect(path)
    assert append(second, ID, user("x")) == 1
    second.close()
    assert one(db, "SELECT rollout_resume(?)", ID) == 1
    assert append(db, ID, user("x")) == 1
    for i in range(20):
        made = one(db, "SELECT rollout_create(NULL)")
        assert one(db, "SELECT rollout_shutdown(?)", made) == 1


def test_every_function_says_that_rollout_is_not_installed(path):
    db = connect(path)
    for call in ("rollout_create(NULL)", f"rollout_append('{ID}', '[]')",
                 "rollout_page(1)", "rollout_flush()", f"rollout_history('{ID}')",
                 "rollout_cleanup_expired()", "rollout_search_install()"):
        with pytest.raises(sqlite3.Error, match="NotInstalledError: Database not "
                           r"initialized: .*blackbox_install\('main', 'rollout'\)"):
            db.execute(f"SELECT {call}")
    with pytest.raises(sqlite3.Error, match="Database not initialized"):
        db.execute("SELECT * FROM rollout_list(10)").fetchall()


def test_functions_can_be_called_as_rows_of_blackbox_call(db):
    call = "INSERT INTO blackbox_call VALUES (?, ?)"
    db.execute(call, ("rollout_create", json.dumps([ID])))
    db.execute("BEGIN")
    db.execute(call, ("rollout_append", json.dumps([ID, json.dumps([
        user("a"), event("nope"), user("b")])])))
    db.execute(call, ("rollout_fork", json.dumps([ID, 1, OTHER])))
    db.execute(call, ("rollout_archive", json.dumps([ID])))
    db.execute("COMMIT")
    assert rows(db, "SELECT id, item_count, status FROM rollouts ORDER BY 1") == [
        (OTHER, 2, "active"), (ID, 3, "archived")]
    db.execute(call, ("rollout_delete", json.dumps([ID])))
    db.execute(call, ("rollout_cleanup_expired", "[9000000000000]"))
    assert one(db, "SELECT count(*) FROM rollouts") == 0
    well(db)


def test_row_from_a_users_trigger(db):
    create(db)
    db.execute("CREATE TABLE turns(text)")
    db.execute("CREATE TRIGGER t AFTER INSERT ON turns BEGIN INSERT INTO "
               "rollout_log(rollout_id, type, payload) VALUES ('%s', 'event_msg', "
               "json_object('type', 'user_message', 'message', NEW.text)); END" % ID)
    db.execute("INSERT INTO turns VALUES ('a'), ('b')")
    derive(db)
    assert one(db, "SELECT turns FROM rollouts") == 2


def test_functions_are_for_the_top_level_only(db):
    with pytest.raises(sqlite3.Error, match="unsafe use of rollout_create"):
        db.execute("CREATE VIEW v AS SELECT rollout_create(NULL)")
        db.execute("SELECT * FROM v")
    db.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.Error, match="cannot run inside a statement"):
        db.execute("INSERT INTO t SELECT rollout_create(NULL)")


def test_triggers_are_refused_or_work_with_an_untrusted_schema(db):
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("CREATE TABLE t(x)")
    db.execute("CREATE VIEW v AS SELECT json_valid(x) FROM t")
    try:
        rows(db, "SELECT * FROM v")
    except sqlite3.OperationalError:  # a bug of SQLite before 3.41
        with pytest.raises(sqlite3.Error, match="Write failed: unsafe use of "
                           ".*PRAGMA trusted_schema = ON"):
            create(db)
        assert one(db, "SELECT rollout_page(5)").startswith('{"items":[]')
        return
    create(db)
    assert append(db, ID, user("x")) == 1
    db.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
               "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload'",
               (ID, json.dumps(user("y"))))
    assert one(db, "SELECT rollout_delete(?)", ID) == 1


def test_the_functions_work_in_defensive_mode(path):
    from conftest import MODULE
    out = shell(path, stdin=f"""
.dbconfig defensive on
.load {MODULE}
SELECT blackbox_install('main', 'rollout');
SELECT rollout_create('{ID}');
SELECT rollout_append('{ID}', '[{{"type":"compacted","payload":{{}}}}]');
SELECT item_count FROM rollouts;
SELECT rollout_search_install();
SELECT rollout_cleanup_expired(9000000000000);
SELECT count(*) FROM blackbox_check;
""")
    assert out.split()[-6:] == [ID, "1", "2", "0", "1", "0"], out


def test_two_schemas_are_ambiguous_until_one_is_chosen(db, tmp_path):
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('other', 'all')")
    one(db, "SELECT blackbox_use('other')")
    create(db)
    assert one(db, "SELECT count(*) FROM main.rollout__heads") == 0
    assert one(db, "SELECT count(*) FROM other.rollout__heads") == 1


def test_temp_tables_of_the_same_name_do_not_catch_writes(db):
    for name in ("rollout__data", "rollout__heads", "rollout_log"):
        db.execute(f"CREATE TEMP TABLE {name}(a)")
    create(db)
    append(db, ID, user("x"))
    assert one(db, "SELECT count(*) FROM main.rollout__data") == 2
    for name in ("rollout__data", "rollout__heads", "rollout_log"):
        assert one(db, f"SELECT count(*) FROM temp.{name}") == 0
        db.execute(f"DROP TABLE temp.{name}")


def test_full_disk_changes_nothing(db):
    create(db)
    append(db, ID, user("x"))
    big = [event("agent_message", message="x" * 3000) for _ in range(20)]
    for way in ("function", "begin", "row", "row in begin"):
        before = texts(db, ID)
        db.execute("PRAGMA max_page_count = %d" % (one(db, "PRAGMA page_count") + 3))
        if "begin" in way:
            db.execute("BEGIN")
        with pytest.raises(sqlite3.Error, match="Write failed: .*full") as failed:
            if "row" in way:
                db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', "
                           "json_array(?, ?))", (ID, json.dumps(big)))
            else:
                append(db, ID, *big)
        assert failed.value.sqlite_errorcode & 255 == 13  # SQLITE_FULL
        assert texts(db, ID) == before
        if db.in_transaction:
            db.execute("COMMIT")
        assert texts(db, ID) == before
        well(db)
    db.execute("PRAGMA max_page_count = 1000000")
    assert append(db, ID, *big) == 20


def test_a_locked_database_is_an_error_with_its_code(db, path):
    create(db)
    db.execute("PRAGMA busy_timeout = 50")
    other = connect(path)
    other.execute("BEGIN IMMEDIATE")
    for call, prefix in [
        (f"rollout_append('{ID}', '[]')", "Write failed: "),
        ("rollout_create(NULL)", "Write failed: "),
        (f"rollout_delete('{ID}')", "Write failed: "),
        ("rollout_cleanup_expired()", "Cleanup failed: "),
    ]:
        with pytest.raises(sqlite3.Error, match=prefix + "database is locked") as e:
            db.execute(f"SELECT {call}")
        assert e.value.sqlite_errorcode & 255 == 5  # SQLITE_BUSY
    other.execute("COMMIT")
    assert append(db, ID, user("x")) == 1


def test_reading_works_on_a_read_only_file(db, path):
    create(db)
    append(db, ID, user("x"))
    db.close()
    only = load(sqlite3.connect(f"file:{path}?mode=ro", uri=True,
                                isolation_level=None))
    assert one(only, "SELECT rollout_resume(?)", ID) == 1
    assert len(json.loads(one(only, "SELECT rollout_page(5)"))["items"]) == 1
    with pytest.raises(sqlite3.Error, match="Write failed: .*readonly"):
        append(only, ID, user("y"))


def test_an_empty_payload_type_is_a_payload(db):
    create(db)
    db.execute("INSERT INTO rollout_policy(preset, item_type, payload_type) "
               "VALUES ('bare', 'note', '')")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'bare')")
    assert append(db, ID, {"type": "note", "payload": {"type": ""}}, {"type": "note"}) == 1


def test_a_violation_of_a_users_own_key_keeps_its_message(db):
    create(db)
    db.execute("CREATE TABLE audit(x UNIQUE)")
    db.execute("CREATE TRIGGER au AFTER INSERT ON rollout__data "
               "BEGIN INSERT INTO audit VALUES (NEW.type); END")
    append(db, ID, user("a"))
    with pytest.raises(sqlite3.IntegrityError, match="Write failed: UNIQUE.*audit.x"):
        append(db, ID, user("b"))


def test_a_new_conversation_with_the_id_of_one_that_was_shut_down_works(db):
    create(db)
    one(db, "SELECT rollout_shutdown(?)", ID)
    with pytest.raises(sqlite3.Error, match="Rollout is shut down"):
        append(db, ID, user("a"))
    one(db, "SELECT rollout_delete(?)", ID)
    db.execute("INSERT INTO rollouts(id) VALUES (?)", (ID,))
    assert append(db, ID, user("a")) == 1
    assert one(db, "SELECT rollout_shutdown(?)", ID) == 1
    assert one(db, "SELECT rollout_shutdown(?)", ID) == 0


def test_fork_of_an_expired_parent_names_it(db):
    create(db, ID, now=1000)
    db.execute("UPDATE rollouts SET expires_at = 2000")
    with pytest.raises(sqlite3.IntegrityError, match=f"Rollout expired: {ID}, at 2000"):
        one(db, "SELECT rollout_fork(?)", ID)


@pytest.mark.parametrize("kind", ["user", "assistant"])
def test_the_time_of_a_delete_grows_with_the_items_of_that_conversation_only(db, kind):
    """The number of VM steps for twice the items is at most twice as high."""
    def steps(n):
        create(db)
        append(db, ID, *[message(kind, f"m{i}") for i in range(n)])
        count = [0]
        def tick():
            count[0] += 1
        db.set_progress_handler(tick, 100)
        one(db, "SELECT rollout_delete(?)", ID)
        db.set_progress_handler(None, 0)
        return count[0]
    assert steps(800) < 2.5 * steps(400)
