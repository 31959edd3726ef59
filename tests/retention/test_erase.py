"""blackbox_erase(): everything of a key goes, for good, and does not come back for a time."""
import hashlib
import json
import sqlite3

import pytest

from conftest import by_hand, connect, one, problems, rows
from holds_helpers import FORK, ID, OTHER, SESSION, check, fill, hold, release

CANARY = "kanarie-7731"
NONE = '{"erased":true,"left":[]}'


def erase(db, kind, key, options='{"remember":true}'):
    """What there is of the key, which may be nothing."""
    return json.loads(one(db, "SELECT blackbox_erase(?, ?, 'ann', 'asked by him', ?)",
                          kind, key, options))


def parts(certificate, name="erased"):
    return {part["from"]: part["rows"] for part in certificate[name]}


@pytest.fixture
def full(db):
    fill(db)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    db.execute("CREATE VIRTUAL TABLE temp.fast USING payload_ring(window=9)")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    for ring in ("ring", "fast"):
        for agent, event in (("a", "e1"), ("a", "e2"), ("b", "e1")):
            db.execute(f"INSERT INTO {ring}(agent_id, event_id, request_body) "
                       "VALUES(?, ?, 'q')", (agent, event))
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
               "('payload.queue_mode', 'memory')")
    db.execute("SELECT payload_queue('e1', 'a', 'q', 'r'), payload_queue('e9', 'b', 'q', 'r')")
    return db


def left(db, table, column):
    return sorted(r[0] for r in rows(db, f"SELECT {column} FROM {table}"))


def test_an_agent_goes_from_archive_rings_and_queue(full):
    certificate = erase(full, "agent", "a")
    assert parts(certificate) == {"event_payloads": 2, "ring": 2, "fast": 2, "payload_queue": 1}
    assert (certificate["rows"], certificate["heldBack"]) == (7, [])
    for table in ("event_payloads", "ring", "fast", "payload_queue", "ring_agents",
                  "fast_agents"):
        assert "a" not in left(full, table, "agent_id"), table
    assert left(full, "ring", "agent_id") == ["b"]
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_an_event_goes_and_the_rest_of_its_agent_stays(full):
    certificate = erase(full, "event", "e1")
    assert parts(certificate) == {"event_payloads": 1, "ring": 2, "fast": 2, "payload_queue": 1}
    assert left(full, "ring", "event_id") == ["e2"]
    assert left(full, "event_payloads", "id") == ["p2", "p3", "v1"]
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_a_kill_switch_goes(full):
    assert parts(erase(full, "kill_switch", "k1")) == {"event_payloads": 1}
    assert left(full, "event_payloads", "id") == ["p1", "p2", "v1"]


def test_a_session_goes(full):
    certificate = erase(full, "session", SESSION)
    assert parts(certificate) == {"cache_sessions": 1}
    assert left(full, "cache_items", "session_id") == [OTHER]
    assert rows(full, "SELECT rule, rows FROM retention_log WHERE domain = 'cache'") == [
        ("erase", 2)]
    assert rows(full, "SELECT session, rule FROM cache_state") == [(None, None)]


def test_a_conversation_goes_with_its_index_and_items_of_forks_stay(full):
    full.execute("UPDATE rollouts SET expires_at = 'permanent'")
    one(full, "SELECT rollout_fork(?, 1, ?)", ID, FORK)
    shown = rows(full, "SELECT sequence, payload FROM rollout_items WHERE rollout = ?", FORK)
    one(full, "SELECT rollout_search_install()")
    assert parts(erase(full, "rollout", ID.upper())) == {"rollouts": 1}
    assert left(full, "rollouts", "id") == [FORK]
    assert rows(full, "SELECT sequence, payload FROM rollout_items") == shown
    assert rows(full, "SELECT rollout FROM rollout_search('two')") == []
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_a_buffer_and_a_ring_are_emptied(full):
    for i in range(3):
        full.execute("INSERT INTO rec(id, timestamp, action) VALUES(?, 1, '{}')", (f"x{i}",))
    assert parts(erase(full, "buffer", "REC")) == {"rec": 3}
    assert parts(erase(full, "buffer", "ring")) == {"ring": 3}
    assert left(full, "rec", "id") == left(full, "ring", "event_id") == []
    assert left(full, "ring_agents", "agent_id") == []
    full.execute("INSERT INTO rec(id, timestamp, action) VALUES('x', 1, '{}')")
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_the_overflow_of_a_lost_buffer_goes(full):
    full.execute("CREATE VIRTUAL TABLE temp.spill USING evidence_buffer(max_size_bytes=1000, "
                 "overflow='main')")
    for i in range(6):
        full.execute("INSERT INTO spill(id, timestamp, action) VALUES(?, ?, ?)",
                     (f"a{i}", 1000 + i, json.dumps({"x": CANARY + "y" * 120})))
    one(full, "SELECT evidence_flush('spill')")
    owner, n = rows(full, "SELECT owner, rows FROM evidence_owners")[0]
    assert n > 0
    stored = one(full, "SELECT count(*) FROM spill")
    assert parts(erase(full, "text", CANARY))["spill"] == stored
    assert left(full, "evidence__overflow", "id") == left(full, "spill", "id") == []
    full.execute("INSERT INTO evidence__overflow(owner, id, timestamp, action_bytes, "
                 "screenshot_bytes, pruned, pinned, confidence) "
                 "VALUES(?, 'z', 1, 2, 0, 0, 1, 1)", (owner,))
    with pytest.raises(sqlite3.Error, match="PinnedError"):
        erase(full, "buffer", owner)
    assert parts(erase(full, "buffer", owner, '{"unpin":true}')) == {"evidence__overflow": 1}
    assert left(full, "evidence_owners", "owner") == []


# --------------------------------------------------------------------------------- a text

@pytest.mark.parametrize("text, stored", [
    (CANARY, CANARY), ("sie sagte \"nein\"", "sie sagte \\\"nein\\\""),
    ("grüße an 😀", "gr\\u00fc\\u00dfe an \\ud83d\\ude00"), ("Ünï", "\\u00DCn\\u00EF"),
    ("a\"b\\c", "{\\\"x\\\":\\\"a\\\\\\\"b\\\\\\\\c\\\"}")])
def test_a_text_is_found_anywhere_in_the_forms_of_json(full, text, stored):
    body = '{"x":"' + stored + '"}'
    full.execute("INSERT INTO event_payloads(id, event_id, agent_id, response_body, purpose) "
                 "VALUES('c', 'e', 'z', ?, 'archive')", (body,))
    full.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('z', 'e', ?)",
                 (body.encode(),))
    full.execute("SELECT payload_queue('e', 'z', ?, 'r')", (body,))
    full.execute("INSERT INTO rec(id, timestamp, action, screenshot) VALUES('c', 1, ?, ?)",
                 ('{"n":' + body + "}", b"\x00" + body.encode()))
    full.execute("INSERT INTO cache_items(session_id, task_id, turn_id, description, data) "
                 "VALUES(?, 'a7b3c9d2', 'f4e8g1h9', 'x', ?)", (OTHER, body))
    full.execute("UPDATE rollouts SET expires_at = 'permanent'")
    full.execute("INSERT INTO rollout_items(rollout, type, payload) VALUES(?, 'event_msg', ?)",
                 (ID, '{"type":"user_message","message":"so: ' + stored + ' !"}'))
    one(full, "SELECT rollout_search_install()")
    certificate = erase(full, "text", text)
    assert parts(certificate) == {"event_payloads": 1, "ring": 1, "payload_queue": 1, "rec": 1,
                                  "cache_items": 1, "rollout_items": 1}
    assert certificate["refusedUntil"] is None
    assert "[erased]" in one(full, "SELECT payload ->> 'message' FROM rollout_items "
                             "WHERE sequence = 3")
    assert erase(full, "text", text)["rows"] == 0
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_what_stood_around_an_item_in_its_file_loses_the_text(full):
    item = one(full, "SELECT max(id) FROM rollout__data")
    full.execute("UPDATE rollout__data SET (before, after) = (?2, ?3) WHERE id = ?1",
                 (item, b"\xff{" + CANARY.encode(), b"\0" + CANARY.encode() + b"}"))
    erase(full, "text", CANARY)
    assert rows(full, "SELECT before, after FROM rollout__data WHERE id = ?", item) == [
        (b"\xff{[erased]", b"\0[erased]}")]


def test_a_title_and_a_session_meta_lose_the_text(full):
    full.execute("UPDATE rollouts SET title = ?, session_meta = "
                 "json_set(session_meta, '$.cwd', ?)", (CANARY, "/home/" + CANARY))
    erase(full, "text", CANARY)
    assert rows(full, "SELECT title, cwd, session_meta ->> 'cwd' FROM rollouts") == [
        ("[erased]", "/home/[erased]", "/home/[erased]")]
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_a_text_is_refused_that_is_short(full):
    with pytest.raises(sqlite3.Error, match="ValidationError: .* at least 4 bytes, got 'abc'"):
        erase(full, "text", "abc")


@pytest.mark.parametrize("mode", ["delete", "wal", "persist"])
@pytest.mark.parametrize("kind", ["agent", "session", "rollout", "text"])
def test_no_canary_is_left_in_the_file_or_the_log(tmp_path, kind, mode):
    path = tmp_path / "canary.db"
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("PRAGMA secure_delete = 0")
    one(db, "SELECT blackbox_install('main', 'all')")
    one(db, "SELECT rollout_search_install()")
    fill(db)
    body = json.dumps({"text": (CANARY + " ") * 300})
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    for i in range(20):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose) "
                   "VALUES('e', ?, ?, 'archive')",
                   ("him@home" if i % 2 else "her", body if i % 2 and kind in ("agent", "text")
                    else "other" * 300))
    if kind in ("agent", "text"):
        for i in range(5):
            db.execute("INSERT INTO ring(agent_id, event_id, request_body) "
                       "VALUES('him@home', 'e', ?)", (body,))
    if kind in ("session", "text"):
        db.execute("INSERT INTO cache_items(session_id, task_id, turn_id, description, data) "
                   "VALUES(?, 'a7b3c9d2', 'f4e8g1h9', ?, ?)", (SESSION, CANARY, body))
    if kind in ("rollout", "text"):
        db.execute("UPDATE rollouts SET expires_at = 'permanent'")
        for i in range(5):
            db.execute("INSERT INTO rollout_items(rollout, type, payload) VALUES(?, 'event_msg',"
                       " ?)", (ID, json.dumps({"type": "user_message", "message":
                                               f"{i} {CANARY} {i}"})))
    files = [path, tmp_path / "canary.db-wal", tmp_path / "canary.db-journal"]

    def found():
        return any(CANARY.encode() in f.read_bytes() for f in files if f.exists())
    db.execute("PRAGMA wal_checkpoint")
    assert found()
    certificate = erase(db, kind, {"agent": "him@home", "session": SESSION, "rollout": ID,
                                   "text": CANARY}[kind])
    assert certificate["rows"] > 0
    assert one(db, "PRAGMA secure_delete") == 0
    for statement in certificate["then"].split(";"):
        db.execute(statement).fetchall()
    assert not found()
    assert one(db, "SELECT blackbox_erased(?)", json.dumps(certificate)) == NONE
    assert check(db) == []


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_an_actor_and_a_reason_in_the_log_lose_the_text_and_the_log_verifies(tmp_path, mode):
    path = tmp_path / "log.db"
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {mode}")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e1'), ('a', 'e2')")
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k', 'Ann', ?)", f"{CANARY} complained")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) SELECT id, ?, 'why' "
               "FROM event_payloads WHERE event_id = 'e1'", (CANARY,))
    one(db, "SELECT retention_hold('agent', 'b', 'o', ?, ?, NULL, '{\"remember\":true}')",
        CANARY, CANARY)
    before = rows(db, "SELECT n, kind, subject FROM blackbox_log")
    noted = one(db, "SELECT proof_head()")
    certificate = erase(db, "text", CANARY)
    assert certificate["erased"] == [
        {"from": "blackbox_log", "rows": 3, "bytes": 3 * len(CANARY) + len(f"{CANARY} complained")}]
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert not any(CANARY.encode() in f.read_bytes() for f in tmp_path.iterdir())
    log = rows(db, "SELECT n, kind, subject FROM blackbox_log")
    assert log[:len(before)] == before and log[len(before):] == [
        (len(before) + i + 1, "erasure", subject)
        for i, subject in enumerate(["row:3", "row:4", "row:5", None])]
    assert rows(db, "SELECT kind, actor, reason FROM blackbox_log WHERE n IN (3, 4, 5)") == [
        ("kill_switch", "Ann", None), ("unpin", None, "why"), ("hold", None, None)]
    assert rows(db, "SELECT * FROM proof_verify UNION ALL SELECT * FROM proof_verify(?)",
                noted) == []
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert erase(db, "text", CANARY)["rows"] == 0


@pytest.mark.parametrize("kind", ["rollout", "text"])
def test_no_part_of_a_text_is_left_in_the_search_index(db, kind):
    one(db, "SELECT rollout_search_install()")
    for id in (ID, FORK):
        one(db, "SELECT rollout_create(?, NULL, 'permanent')", id)
        one(db, "SELECT rollout_append(?, ?)", id, json.dumps(
            [{"type": "event_msg", "payload": {"type": "user_message", "message":
              "Ω7Ж and more" if id == ID else "something else"}}] * 8))

    def found():
        return one(db, "SELECT count(*) FROM rollout_fts_data WHERE instr(block, ?)",
                   "ω7ж".encode())
    assert found() > 0
    erase(db, kind, ID if kind == "rollout" else "Ω7Ж and")
    assert found() == 0
    assert rows(db, "SELECT DISTINCT rollout FROM rollout_search('something')") == [(FORK,)]


def test_sums_of_calls_lose_the_name_of_a_model(db):
    line = {"type": "assistant", "sessionId": "s", "timestamp": "2026-07-17T09:00:00Z", "message": {
        "role": "assistant", "id": "m", "model": "canary-model", "content": [],
        "usage": {"input_tokens": 3, "output_tokens": 4}}}
    one(db, "SELECT rollout_import(?)", json.dumps(line) + "\n")
    assert rows(db, "SELECT model, calls FROM rollout_usage_days") == [("canary-model", 1)]
    erase(db, "text", "canary-model")
    left = rows(db, "SELECT model, calls, output FROM rollout_usage_days")
    assert [row[1:] for row in left] == [(1, 4)] and "canary" not in left[0][0]
    assert rows(db, "SELECT model FROM rollout__sums") == [left[0][:1]]
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ------------------------------------------------------------------------- every column

NAME = "kanarie-agent"
TOOL = "kanarie_tool"


def chat(text):
    """Exchanges in which one tool is called again and again."""
    messages = [{"role": "user", "content": text}]
    for i in range(9):
        said = {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": TOOL, "arguments": "{}"}}]}
        yield json.dumps({"model": "m", "messages": messages}), json.dumps(
            {"choices": [{"message": said}]})
        messages += [said, {"role": "tool", "tool_call_id": f"c{i}", "content": "same"}]


def where(db, text):
    """Every column of every table that has a text."""
    return [(table, column) for table, in rows(
        db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'retention__in_force' "
        "AND sql NOT LIKE 'CREATE VIRTUAL%'")
        for column in [r[1] for r in rows(db, f'PRAGMA table_info("{table}")')]
        if one(db, f'SELECT EXISTS (SELECT 1 FROM "{table}" WHERE instr(CAST("{column}" AS BLOB), '
               "CAST(? AS BLOB)))", text)]


@pytest.fixture
def watched(db):
    """What blackbox writes about one agent, in every table that it has."""
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=30)")
    db.execute("UPDATE blackbox_settings SET value = 'kill_switch' WHERE name = 'payload.on_loop'")
    for i, (request, response) in enumerate(chat(CANARY)):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, meta) "
                   "VALUES(?, ?, ?, ?, ?)", (NAME, f"kanarie-e{i}", request, response,
                                             json.dumps({"user": CANARY})))
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('other', 'e')")
    db.execute("INSERT INTO payload_allows(agent_id, tool, actor, reason) VALUES(?, ?, ?, 'why')",
               (NAME, TOOL, CANARY))
    one(db, "SELECT payload_kill_switch('ring', ?, 'kanarie-k', 'ann', ?)", NAME, CANARY)
    hold(db, "agent", NAME)
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES(?, 'kanarie-last')", (NAME,))
    one(db, "SELECT proof_head()")
    release(db, "agent", NAME)
    return db


def test_an_agent_is_left_in_no_column_and_the_log_verifies(watched):
    assert {"payload_verdicts", "payload_agents", "payload_allows", "ring_agents", "ring_slots",
            "event_payloads", "blackbox__log"} <= {table for table, _ in where(watched, NAME)}
    noted = one(watched, "SELECT proof_head()")
    certificate = erase(watched, "agent", NAME, '{"unpin":true}')
    assert where(watched, NAME) == []
    assert where(watched, TOOL) == []
    assert one(watched, "SELECT blackbox_erased(?) ->> 'left'", json.dumps(certificate)) == "[]"
    assert rows(watched, "SELECT * FROM proof_verify(?)", noted) == []
    assert rows(watched, "SELECT * FROM blackbox_check") == []
    assert rows(watched, "SELECT agent_id FROM ring_agents") == [("other",)]


@pytest.mark.parametrize("text", ["kanarie", TOOL, "kanarie-k"])
def test_a_text_is_left_in_no_column_and_the_log_verifies(watched, text):
    assert where(watched, text) != []
    noted = one(watched, "SELECT proof_head()")
    certificate = erase(watched, "text", text, '{"unpin":true}')
    assert where(watched, text) == []
    assert one(watched, "SELECT blackbox_erased(?)", json.dumps(certificate)) == NONE
    assert rows(watched, "SELECT * FROM proof_verify(?)", noted) == []
    assert rows(watched, "SELECT * FROM blackbox_check") == []


def test_the_id_of_a_kill_switch_that_a_rule_pulled_is_left_in_no_column(watched):
    key = one(watched, "SELECT kill_switch_event_id FROM payload_agents WHERE stopped_at NOTNULL")
    assert ("payload_agents", "kill_switch_event_id") in where(watched, key)
    certificate = erase(watched, "kill_switch", key, '{"unpin":true}')
    assert parts(certificate)["payload_agents"] == 1
    assert where(watched, key) == []
    assert one(watched, "SELECT stopped_at NOTNULL FROM payload_agents WHERE agent_id = ?", NAME)
    assert one(watched, "SELECT blackbox_erased(?)", json.dumps(certificate)) == NONE
    assert problems(watched) == []


def test_the_usage_of_a_call_loses_a_text_and_stays(full):
    said = {"type": "assistant", "uuid": "u1", "sessionId": "s1", "timestamp": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "model": CANARY, "id": CANARY + "1",
                        "content": [{"type": "text", "text": "x"}],
                        "usage": {"input_tokens": 3, "output_tokens": 4}}}
    one(full, "SELECT rollout_import(?)", json.dumps(said))
    assert ("rollout_calls", "model") in where(full, CANARY)
    erase(full, "text", CANARY)
    assert where(full, CANARY) == []
    assert rows(full, "SELECT model, output FROM rollout_calls WHERE output = 4") == [("[erased]", 4)]
    assert problems(full) == []


def reads_a_pack(sql):
    """The data of a pack, not the list of its pieces, which is the row of -pack."""
    return "SELECT data" in sql and "store__packs WHERE pack" in sql and "pack = -?" not in sql


def test_a_text_is_looked_for_in_packs_of_many_agents_one_after_the_other(path):
    """The rows lie in turns, their texts by agents, and more packs than are kept in memory."""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,store,retention')")
    db.execute(
        "INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, purpose)"
        " WITH c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < 399)"
        " SELECT 'e' || i, 'a' || (i % 20), hex(randomblob(7500)) || iif(i = 200, ?, ''),"
        " hex(randomblob(500)), 'archive' FROM c", (CANARY,))
    one(db, "SELECT payload_pack(1000)")
    packs, read = one(db, "SELECT packs FROM store_stats"), []
    assert packs > 20
    db.set_trace_callback(lambda sql: reads_a_pack(sql) and read.append(sql))
    assert parts(erase(db, "text", CANARY)) == {"event_payloads": 1}
    db.set_trace_callback(None)
    assert packs <= len(read) <= 2.2 * packs, len(read)
    assert one(db, "SELECT count(*) FROM event_payloads") == 399 and problems(db) == []


def test_a_text_is_looked_for_in_packs_of_conversations_that_took_turns(path):
    """Each pack has items of all of them, as they were packed after each turn."""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'rollout,store,retention')")
    ids = [f"019d0000-1111-7222-8333-{i:012x}" for i in range(10)]
    db.executemany("INSERT INTO rollouts(id) VALUES(?)", [(id,) for id in ids])
    for turn in range(25):
        for id in ids:
            said = one(db, "SELECT hex(randomblob(15000))") + CANARY * (turn == 20 and id == ids[3])
            db.execute("INSERT INTO rollout_items(rollout, type, payload) VALUES(?, 'event_msg', ?)",
                       (id, json.dumps({"type": "user_message", "message": said})))
        one(db, "SELECT rollout_pack()")
    packs, read = one(db, "SELECT packs FROM store_stats"), []
    assert packs > 20
    certificate = json.dumps(erase(db, "text", CANARY))
    assert json.loads(certificate)["rows"] == 1
    db.set_trace_callback(lambda sql: reads_a_pack(sql) and read.append(sql))
    one(db, "SELECT blackbox_erased(?)", certificate)
    db.set_trace_callback(None)
    assert packs - 16 <= len(read) <= 2.2 * packs, len(read)
    assert problems(db) == []


def test_what_is_left_in_the_file_is_told(tmp_path):
    db = connect(tmp_path / "left.db")
    one(db, "SELECT blackbox_install('main', 'payload,retention')")
    db.execute("PRAGMA secure_delete = 0")
    db.execute("CREATE TABLE mine(body)")
    db.execute("INSERT INTO mine VALUES(?)", (CANARY * 2,))
    certificate = json.dumps(erase(db, "text", CANARY))
    said = json.loads(one(db, "SELECT blackbox_erased(?)", certificate))
    assert said == {"erased": False, "left": [{"from": "the file", "rows": 2, "bytes": 0}]}
    db.execute("DELETE FROM mine")
    assert not json.loads(one(db, "SELECT blackbox_erased(?)", certificate))["erased"]
    db.execute("VACUUM")
    assert one(db, "SELECT blackbox_erased(?)", certificate) == NONE
    with pytest.raises(sqlite3.Error, match="ValidationError: the certificate"):
        one(db, "SELECT blackbox_erased('{}')")


@pytest.mark.parametrize("kind, key", [
    ("buffer", "recording"), ("buffer", "exchanges"), ("agent", "notes_by_body"), ("text", "notes_by")])
def test_names_of_the_schema_are_not_left_of_anything(tmp_path, kind, key):
    db = connect(tmp_path / "names.db")
    one(db, "SELECT blackbox_install('main', 'payload,evidence,retention')")
    db.execute("CREATE VIRTUAL TABLE recording USING evidence_buffer")
    db.execute("CREATE VIRTUAL TABLE exchanges USING payload_ring(window=2)")
    db.execute("CREATE TABLE notes(body)")
    db.execute("CREATE INDEX notes_by_body ON notes(body)")
    db.execute("INSERT INTO recording(id, timestamp, action) VALUES('x', 1, '{}')")
    db.execute("INSERT INTO exchanges(agent_id, event_id, request_body)"
               " VALUES('notes_by_body', 'e', 'notes_by')")
    certificate = erase(db, kind, key)
    db.executescript(certificate["then"])
    assert one(db, "SELECT blackbox_erased(?)", json.dumps(certificate)) == NONE
    db.execute("INSERT INTO notes VALUES(?)", (key,))
    assert json.loads(one(db, "SELECT blackbox_erased(?)", json.dumps(certificate))) == {
        "erased": False, "left": [{"from": "the file", "rows": 2, "bytes": 0}]}


@pytest.mark.parametrize("type, payload", [
    (CANARY, {"type": CANARY, "message": CANARY}), ("event_msg", {"type": CANARY}),
    (CANARY + "x" * 86, {"type": "user_message", "role": CANARY})])
def test_the_type_of_an_item_loses_the_text(full, type, payload):
    full.execute("UPDATE rollouts SET expires_at = 'permanent'")
    one(full, "SELECT rollout_append(?, ?)", ID, json.dumps([{"type": "event_msg", "payload":
        {"type": "user_message", "message": "x"}}]))
    full.execute("UPDATE rollout__data SET type = ? WHERE id = (SELECT max(id) FROM "
                 "rollout__data)", (type,))
    by = json.dumps(payload)
    full.execute("UPDATE rollout__data SET payload = ? WHERE id = (SELECT max(id) FROM "
                 "rollout__data)", (by,))
    assert parts(erase(full, "text", CANARY))["rollout_items"] == 1
    assert where(full, CANARY) == []
    assert one(full, "SELECT count(*) FROM rollout_items") == 4


# ------------------------------------------------------------------------- pins and holds

def test_pinned_evidence_needs_its_argument_and_is_unpinned_on_record(full):
    full.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
                 "VALUES('ev', 'e', 'a', 'q', 'evidence')")
    full.execute("INSERT INTO rec(id, timestamp, action, pinned) VALUES('x', 1, ?, 1)",
                 (json.dumps({"t": CANARY}),))
    before = rows(full, "SELECT * FROM event_payloads")
    with pytest.raises(sqlite3.Error, match="PinnedError: 1 rows of event_payloads are pinned"):
        erase(full, "agent", "a")
    with pytest.raises(sqlite3.Error, match="PinnedError: 1 rows of rec are pinned"):
        erase(full, "text", CANARY)
    assert rows(full, "SELECT * FROM event_payloads") == before
    assert rows(full, "SELECT * FROM retention_erasures") == []
    assert len(left(full, "ring", "agent_id")) == 3
    assert erase(full, "agent", "a", '{"unpin":true}')["unpinned"] == 1
    assert erase(full, "text", CANARY, '{"unpin":true}')["unpinned"] == 1
    assert rows(full, "SELECT payload_id, actor, reason FROM payload_unpins WHERE payload_id = "
                "'ev'") == [("ev", "ann", "asked by him")]
    assert left(full, "event_payloads", "id") == ["p3", "v1"]
    assert rows(full, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("kind, key", [
    ("agent", "a"), ("event", "e1"), ("kill_switch", "k1"), ("rollout", ID),
    ("session", SESSION), ("buffer", "rec")])
def test_what_is_held_itself_cannot_be_erased(full, kind, key):
    hold(full, kind, key, "case-3")
    with pytest.raises(sqlite3.Error, match=f"HeldError: {kind} {key} is held by case-3"):
        erase(full, kind, key)
    release(full, kind, key, "case-3")
    erase(full, kind, key)


def test_the_certificate_tells_what_is_held_back_and_by_whom(full):
    hold(full, "event", "e1", "case-3")
    hold(full, "rollout", ID, "case-4")
    hold(full, "session", SESSION, "case-5")
    full.execute("INSERT INTO rollout_items(rollout, timestamp, type, payload) VALUES(?, 1, "
                 "'event_msg', ?)", (ID, json.dumps({"type": "user_message",
                                                     "message": CANARY})))
    certificate = erase(full, "agent", "a")
    assert parts(certificate) == {"event_payloads": 1, "ring": 1, "fast": 2}
    assert {part["from"]: (part["rows"], part["by"]) for part in certificate["heldBack"]} == {
        "event_payloads": (1, ["event e1 by case-3"]), "ring": (1, ["event e1 by case-3"]),
        "payload_queue": (1, ["event e1 by case-3"])}
    certificate = erase(full, "text", CANARY)
    assert (parts(certificate), parts(certificate, "heldBack")) == ({}, {"rollout_items": 1})
    assert one(full, "SELECT held_back FROM retention_erasures ORDER BY id LIMIT 1") == 3
    assert rows(full, "SELECT * FROM blackbox_check") == []


# ----------------------------------------------------------------- it does not come back

def test_late_writes_under_the_key_are_refused_on_any_connection(full, path):
    for kind, key in (("agent", "a"), ("event", "e3"), ("kill_switch", "k9"), ("rollout", ID),
                      ("session", SESSION)):
        erase(full, kind, key)
    full.execute("DELETE FROM payload_queue")
    db = sqlite3.connect(path, isolation_level=None)
    for late in ("INSERT INTO event_payloads(event_id, agent_id, purpose) "
                 "VALUES('e', 'a', 'archive')",
                 "INSERT INTO event_payloads(event_id, agent_id, purpose) "
                 "VALUES('e3', 'z', 'archive')",
                 "INSERT INTO event_payloads(event_id, agent_id, purpose, kill_switch_event_id) "
                 "VALUES('e', 'z', 'evidence', 'k9')",
                 f"INSERT INTO rollouts(id) VALUES('{ID}')",
                 "INSERT INTO cache_items(session_id, task_id, turn_id, description, data) "
                 f"VALUES('{SESSION}', 'a7b3c9d2', 'f4e8g1h9', 'x', '[]')"):
        with pytest.raises(sqlite3.IntegrityError, match="ErasedError"):
            db.execute(late)
    with pytest.raises(sqlite3.IntegrityError, match="ErasedError"):
        full.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) "
               "VALUES('e', 'other', 'archive')")
    full.execute("INSERT INTO ring(agent_id, event_id) VALUES('b', 'e')")
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_an_erasure_changes_no_schema(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,cache,rollout,retention')")
    before = one(db, "PRAGMA schema_version")
    erase(db, "agent", "a")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('retention.refuse_days', 0)")
    erase(db, "session", SESSION)
    assert one(db, "PRAGMA schema_version") == before


def test_after_its_time_a_key_can_be_used_again(full, path):
    erase(full, "agent", "a")
    until = one(full, "SELECT until FROM retention__in_force")
    assert until - one(full, "SELECT at FROM retention_erasures") == 30 * 86400000
    full.execute("DELETE FROM payload_queue")
    full.close()
    by_hand(path, f"UPDATE retention__clock SET seen = {until}")
    db = connect(path)
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) "
               "VALUES('e', 'a', 'archive')")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('retention.refuse_days', 0)")
    assert erase(db, "agent", "zz")["refusedUntil"] is None
    assert rows(db, "SELECT * FROM retention__in_force") == []
    assert [row[1] for row in problems(db)] == ["retention__clock"]  # which was put ahead


def test_rows_that_wait_elsewhere_do_not_come_back_and_do_not_block_the_others(full, path):
    other = connect(path)
    other.execute("SELECT payload_queue('e1', 'b', 'q', 'r'), payload_queue('e2', 'a', 'q', 'r'),"
                  " payload_queue('e3', 'b', 'q', 'r')")
    third = connect(path)
    third.execute("SELECT payload_queue('e4', 'a', 'q', 'r'), payload_queue('e5', 'b', 'q', 'r')")
    erase(full, "agent", "a")
    one(other, "SELECT payload_flush()")
    third.close()
    assert left(other, "event_payloads WHERE agent_id IN ('a', 'b')", "event_id") == [
        "e1", "e3", "e3", "e5"]
    assert rows(other, "SELECT rows FROM retention_log WHERE rule = 'erased'") == [(2,)]


def test_what_waits_and_is_held_is_written_before_a_clear_and_survives_it(full):
    hold(full, "agent", "a")
    assert one(full, "SELECT payload_clear_archive()") == 2
    assert rows(full, "SELECT * FROM payload_queue") == []
    assert rows(full, "SELECT DISTINCT agent_id FROM event_payloads WHERE purpose = 'archive'") == [
        ("a",)]


# -------------------------------------------------------------------------------- records

def test_the_record_proves_a_key_and_does_not_tell_it(full):
    certificate = erase(full, "text", "his secret name")
    (number, kind, salt, digest, actor, reason), = rows(
        full, "SELECT id, kind, salt, digest, actor, reason FROM retention_erasures")
    assert (number, kind, actor, reason) == (certificate["erasure"], "text", "ann",
                                             "asked by him")
    assert hashlib.sha256(f"{salt}\ntext\nhis secret name".encode()).hexdigest() == digest
    again = erase(full, "text", "his secret name")
    assert one(full, "SELECT count(DISTINCT digest) FROM retention_erasures") == 2
    assert again["rows"] == 0


@pytest.mark.parametrize("statement", [
    "DELETE FROM retention_erasures", "UPDATE retention_erasures SET actor = 'x'",
    "REPLACE INTO retention_erasures SELECT * FROM retention_erasures"])
def test_no_statement_changes_the_record(full, path, statement):
    erase(full, "agent", "a")
    db = sqlite3.connect(path, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="because it is a view"):
        db.execute(statement)


@pytest.mark.parametrize("damage", [
    "DELETE FROM blackbox__log WHERE kind = 'erasure' AND n < (SELECT max(n) FROM blackbox__log)",
    "DELETE FROM blackbox__log WHERE n = (SELECT max(n) FROM blackbox__log)",
    "UPDATE blackbox__log SET actor = 'x' WHERE kind = 'erasure'",
    "UPDATE blackbox__log SET detail = replace(detail, 'digest\":\"', 'digest\":\"0')"])
def test_check_finds_erasures_that_were_removed_or_changed(full, path, damage):
    full.execute("INSERT INTO blackbox_settings(name, value) VALUES('retention.refuse_days', 0)")
    erase(full, "agent", "a")
    erase(full, "agent", "zz")
    assert rows(full, "SELECT * FROM blackbox_check") == []
    full.close()
    by_hand(path, damage)
    assert "blackbox__log" in [r[1] for r in rows(connect(path), "SELECT * FROM blackbox_check")]


def test_an_erasure_is_a_row_of_the_log(full):
    certificate = erase(full, "agent", "a")
    assert rows(full, "SELECT n, at, domain, subject, actor, reason, rows, bytes FROM "
                "blackbox_log WHERE kind = 'erasure'") == [
        (certificate["erasure"], certificate["at"], "retention", None, "ann", "asked by him",
         certificate["rows"], certificate["bytes"])]
    assert rows(full, "SELECT held_back, until FROM retention_erasures") == [
        (0, certificate["refusedUntil"])]


@pytest.mark.parametrize("damage, object", [
    ("DELETE FROM blackbox__log WHERE kind = 'erasure'", "retention__in_force"),
    ("DELETE FROM retention__in_force", "retention__in_force"),
    ("UPDATE retention__in_force SET until = 5", "retention__in_force"),
    ("INSERT INTO retention__in_force(kind, key, owner, until) "
     "VALUES('erased agent', 'q', '', 99)", "retention__in_force")])
def test_check_finds_a_broken_record(full, path, damage, object):
    erase(full, "agent", "a")
    erase(full, "agent", "zz")
    full.execute("DELETE FROM payload_queue")
    full.close()
    by_hand(path, damage)
    db = connect(path)
    assert object in [r[1] for r in rows(db, "SELECT * FROM blackbox_check")]


@pytest.mark.parametrize("arguments, said", [
    (("user", "a", "x", "y"), "kind must be agent"), (("agent", "", "x", "y"), "key"),
    (("agent", "a", "", "y"), "actor"), (("agent", "a", " ", "y"), "actor"),
    (("agent", "a", "x", "\u200b"), "reason"), (("agent", "a", "x", None), "reason"),
    (("agent", "a", "x", "y", "1"), "options"), (("agent", "a", "x", "y", '{"all":true}'),
                                                 "options")])
def test_an_erasure_says_what_is_wrong_with_it_and_changes_nothing(full, arguments, said):
    marks = ", ".join("?" * len(arguments))
    with pytest.raises(sqlite3.Error, match=f"ValidationError.*{said}"):
        one(full, f"SELECT blackbox_erase({marks})", *arguments)
    assert len(left(full, "event_payloads", "id")) == 4
    assert len(left(full, "payload_queue", "agent_id")) == 2


@pytest.mark.parametrize("begin", [False, True])
def test_an_erasure_is_undone_with_its_transaction(full, begin):
    before = [rows(full, f"SELECT * FROM {table}") for table in
              ("event_payloads", "ring", "fast", "payload_queue", "rollout_items")]
    full.execute("BEGIN")
    if begin:
        full.execute("INSERT INTO rollouts(id) VALUES(?)", (FORK,))
    assert erase(full, "agent", "a")["rows"] == 7
    full.execute("ROLLBACK")
    assert [rows(full, f"SELECT * FROM {table}") for table in
            ("event_payloads", "ring", "fast", "payload_queue", "rollout_items")] == before
    full.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    assert check(full) == []


def test_a_call_as_a_row_erases(full):
    full.execute("INSERT INTO blackbox_call(command, arguments) VALUES('blackbox_erase', "
                 "'[\"agent\",\"a\",\"ann\",\"asked\"]')")
    assert rows(full, "SELECT kind, rows FROM retention_erasures") == [("agent", 7)]


# -------------------------------------------------- the names of programs


@pytest.fixture
def bob(db):
    """A conversation that its program names bob, as the session of the OpenAI Agents SDK does."""
    db.execute("SELECT blackbox_install('main', 'all')")
    db.execute("INSERT INTO rollouts(id, session_meta) VALUES(?, ?)", (
        ID, '{"blackbox":{"format":"openai-agents","id":"bob"}}'))
    one(db, "SELECT rollout_append(?, ?)", ID,
        '[{"type":"response_item","payload":{"type":"message","role":"user","content":"hi"}}]')
    assert rows(db, "SELECT source_id FROM rollouts") == [("bob",)]
    return db


def test_a_session_is_the_conversation_that_its_program_names_so(bob):
    report = one(bob, "SELECT blackbox_report('session', 'bob', '{\"format\":\"json\"}')")
    assert json.loads(report)["kind"] == "rollout" and json.loads(report)["key"] == ID
    assert one(bob, "SELECT retention_hold('session', 'bob', 'case', 'ann', 'asked')") == 1
    assert rows(bob, "SELECT kind, key, found FROM retention_holds") == [("rollout", ID, 1)]
    for wrong in ("DELETE FROM rollouts", "SELECT blackbox_erase('session', 'bob', 'ann', 'why')"):
        with pytest.raises(sqlite3.Error, match="HeldError"):
            bob.execute(wrong).fetchall()
    assert one(bob, "SELECT retention_release('session', 'bob', 'case', 'ann', 'closed')") == 0
    with pytest.raises(sqlite3.Error, match="NotFoundError.*'case' on session 'bob'"):
        one(bob, "SELECT retention_release('session', 'bob', 'case', 'ann', 'closed')")
    certificate = erase(bob, "session", "bob")
    assert parts(certificate)["rollouts"] == 1
    assert one(bob, "SELECT blackbox_erased(?) ->> 'erased'", json.dumps(certificate)) == 1
    assert rows(bob, "SELECT kind FROM retention_erasures ORDER BY id") == [("rollout",), ("session",)]
    with pytest.raises(sqlite3.Error, match="ErasedError"):
        bob.execute("INSERT INTO rollouts(id) VALUES(?)", (ID,))
    assert check(bob) == []


def test_a_session_by_the_id_of_its_conversation_is_found_too(bob):
    assert one(bob, "SELECT retention_hold('session', ?, 'case', 'ann', 'asked')", ID.upper()) == 1
    assert rows(bob, "SELECT kind, key FROM retention_holds") == [("rollout", ID)]


def test_a_session_of_the_cache_and_a_conversation_of_one_name_are_both_held_and_erased(bob):
    bob.execute("UPDATE blackbox_settings SET value = 0 WHERE name = 'cache.strict_session_ids'")
    bob.execute("INSERT INTO cache_items(session_id, task_id, turn_id, timestamp, description, data) "
                "VALUES('bob', 't', 'u', 1000, 'what it is', '[1]')")
    assert one(bob, "SELECT retention_hold('session', 'bob', 'case', 'ann', 'asked')") == 1
    assert rows(bob, "SELECT kind, key FROM retention_holds ORDER BY kind") \
        == [("rollout", ID), ("session", "bob")]
    assert one(bob, "SELECT blackbox_report('session', 'bob', '{\"format\":\"json\"}') "
               "->> 'kind'") == "session"
    one(bob, "SELECT retention_release('session', 'bob', 'case', 'ann', 'closed')")
    assert rows(bob, "SELECT * FROM retention_holds") == []
    assert {"rollouts", "cache_sessions"} <= set(parts(erase(bob, "session", "bob")))


@pytest.mark.parametrize("kind", ["agent", "event", "kill_switch", "rollout", "session", "buffer"])
def test_what_finds_nothing_says_so_unless_it_is_to_be_remembered(full, kind):
    before = rows(full, "SELECT count(*) FROM blackbox_log")
    with pytest.raises(sqlite3.Error, match=f"NotFoundError: there is nothing of {kind} 'nobody'"):
        one(full, "SELECT blackbox_erase(?, 'nobody', 'ann', 'why')", kind)
    with pytest.raises(sqlite3.Error, match=f"NotFoundError: there is no {kind} 'nobody'"):
        one(full, "SELECT retention_hold(?, 'nobody', 'case', 'ann', 'why')", kind)
    assert rows(full, "SELECT count(*) FROM blackbox_log") == before
    assert rows(full, "SELECT * FROM retention_holds") == []
    assert erase(full, kind, "nobody")["rows"] == 0
    assert one(full, "SELECT retention_hold(?, 'nobody', 'case', 'ann', 'why', NULL, "
               "'{\"remember\":true}')", kind) == 1
    with pytest.raises(sqlite3.Error, match="the member remember.* true or false, got '1'"):
        one(full, "SELECT retention_hold(?, 'nobody', 'case', 'ann', 'why', NULL, '1')", kind)


def test_an_agent_that_is_in_a_ring_alone_is_found(db):
    db.execute("SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE tape USING payload_ring")
    db.execute("INSERT INTO tape(agent_id, event_id) VALUES('a', 'e1')")
    for kind, key in (("agent", "a"), ("event", "e1"), ("buffer", "tape")):
        assert one(db, "SELECT retention_hold(?, ?, 'case', 'ann', 'why')", kind, key) == 1
    assert check(db) == []
