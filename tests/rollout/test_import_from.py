"""rollout_import_from(): the sessions of programs that keep them in SQLite."""
import json
import sqlite3

import pytest

from rollout_helpers import well
from conftest import DATA, connect, needs_data, one, rows

AT = 1784278800000
OPENCODE = """
CREATE TABLE session(id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT,
  time_created INTEGER, time_updated INTEGER, odd BLOB, "a ""b.main.c'" TEXT, far REAL);
CREATE TABLE message(id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);
CREATE TABLE part(id TEXT PRIMARY KEY, message_id TEXT, data TEXT);
INSERT INTO session VALUES
  ('s1', NULL, '/one', 'A title', %(at)d, %(at)d, x'00ff', 'x"y' || char(10), 9e999),
  ('s2', 's1', '/one', 'An agent', %(at)d + 5000, 0, NULL, NULL, 1.5),
  ('s3', 's2', '/one', 'An agent of it', %(at)d + 6000, 0, NULL, NULL, 1.5);
INSERT INTO message VALUES
  ('m2', 's1', %(at)d + 2000, '{"role":"assistant","modelID":"m","cost":0.25,"tokens":
    {"input":1,"output":2,"reasoning":4,"cache":{"read":8,"write":16}},"time":{"created":%(at)d}}'),
  ('m1', 's1', %(at)d + 1000, '{"role":"user"}'),
  ('m3', 's2', %(at)d + 5001, '{"role":"user"}'),
  ('m4', 's3', %(at)d + 6001, '{"role":"assistant","modelID":"m","tokens":{"input":32}}'),
  ('m5', 's1', %(at)d + 3000, 'damaged {');
INSERT INTO part VALUES
  ('p1', 'm1', '{"type":"text","text":"first"}'),
  ('p2', 'm1', '{"type":"text","text":"a file","synthetic":true}'),
  ('p3', 'm2', '{"type":"text","text":"yes","time":{"start":%(at)d}}'),
  ('p4', 'm2', '{"type":"tool","state":{"output":"a needle in it"}}'),
  ('p5', 'm3', '{"type":"text","text":"of an agent"}');
""" % {"at": AT}
GOOSE = """
CREATE TABLE sessions(id TEXT PRIMARY KEY, name TEXT, description TEXT, working_dir TEXT,
  created_at TIMESTAMP);
CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content_json TEXT,
  created_timestamp INTEGER);
INSERT INTO sessions VALUES('1', 'named', '', '/g', '2026-07-17 09:00:00'),
  ('2', '', 'told', '/h', '2026-07-17 09:00:00');
INSERT INTO messages VALUES(2, '1', 'assistant', '[{"type":"text","text":"no"}]', 1784278802),
  (1, '1', 'user', '[{"type":"text","text":"hi"}]', 1784278801),
  (3, '2', 'user', 'not JSON', 1784278803);
"""
CURSOR = """
CREATE TABLE cursorDiskKV(key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
INSERT INTO cursorDiskKV VALUES
  ('bubbleId:c1:b2', CAST('{"type":2,"text":"no","timestamp":1784278802000}' AS BLOB)),
  ('bubbleId:c1:b1', '{"type":1,"text":"hi","timestamp":1784278801000,
    "workspaceProjectDir":"/c"}'),
  ('bubbleId:c1:b0', '{"type":1,"rawText":"more"}'),
  ('bubbleId:c1:b3', NULL), ('bubbleId:c1:b4', '{damaged'), ('bubbleId:c1:b5', x'00ff'),
  ('bubbleId:alone:b1', '{"type":1,"text":"alone"}'), ('other', 'x'),
  ('composerData:c1', '{"composerId":"c1","name":"named","createdAt":1784278800000,
    "fullConversationHeadersOnly":[{"bubbleId":"b1"},"odd",{"bubbleId":"b2"},{"bubbleId":"b0"}]}');
"""


def zstd(*blocks, size=None):
    """A frame of bytes, and of (byte, number) pairs; it tells its size if that is given."""
    head = b"\x00\x50" if size is None else b"\xa0" + size.to_bytes(4, "little")
    frame = b"\x28\xb5\x2f\xfd" + head
    for i, block in enumerate(blocks):
        last = i == len(blocks) - 1
        kind, n = (0, len(block)) if isinstance(block, bytes) else (2, block[1])
        frame += (n << 3 | kind | last).to_bytes(3, "little")
        frame += block if isinstance(block, bytes) else block[0]
    return frame


THREAD = json.dumps({
    "version": "0.3.0", "title": "named", "model": {"provider": "p", "model": "m"}, "messages": [
        {"User": {"id": "1", "content": [{"Text": "hi"}, {"Mention": {"content": "x"}}]}},
        {"Agent": {"content": [{"Thinking": {"text": "hm"}}, {"Text": "no"}], "tool_results": {}}},
        "Resume"]}).encode()
OLD_THREAD = json.dumps({"version": "0.2.0", "summary": "x", "messages": [
    {"id": 1, "role": "user", "segments": [{"type": "thinking", "text": "hm"},
                                           {"type": "text", "text": "before"}]},
    {"id": 2, "role": "assistant", "segments": [{"type": "text", "text": "yes"}]}]})
ZED = """
CREATE TABLE threads(id TEXT PRIMARY KEY, summary TEXT, updated_at TEXT, data_type TEXT, data BLOB,
  parent_id TEXT, folder_paths TEXT, created_at TEXT);
INSERT INTO threads VALUES
  ('z1', 'named', '2026-07-17T09:00:02+00:00', 'zstd', x'%s', NULL, '/z', NULL),
  ('z2', 'older', '2026-07-17T09:00:00+00:00', 'json', '%s', 'z1', '/z', NULL),
  ('z3', 'no size', '2026-07-17T09:00:00+00:00', 'zstd', x'%s', NULL, '/z', NULL),
  ('z4', 'damaged', '2026-07-17T09:00:00+00:00', 'zstd', x'%s', NULL, '/z', NULL),
  ('z5', 'nothing', '2026-07-17T09:00:00+00:00', 'zstd', NULL, NULL, '/z', NULL);
""" % (zstd(THREAD, size=len(THREAD)).hex(), OLD_THREAD,
       zstd(THREAD[:10], (b" ", 60000), THREAD[10:]).hex(), zstd(THREAD)[:-9].hex())
HERMES = """
CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL,
  content TEXT, tool_calls TEXT, timestamp REAL NOT NULL);
INSERT INTO messages VALUES(1, 'h', 'user', 'hi', NULL, 1784278800.25),
  (2, 'h', 'assistant', NULL, '[{"id":"c"}]', 1784278801.5),
  (3, 'h', 'tool', 'a needle', NULL, 1784278802.0), (4, 'i', 'user', 'again', NULL, 1784278803);
"""
INLINE = """
CREATE TABLE cursorDiskKV(key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
INSERT INTO cursorDiskKV VALUES
  ('composerData:c1', '{"composerId":"c1","name":"named","createdAt":1784278800000,"conversation":[
    {"type":1,"bubbleId":"b1","text":"hi"}, {"type":2,"bubbleId":"b2","text":"no"}, "odd",
    {"type":1,"bubbleId":"b3","text":"twice"}, {"type":1,"text":"without an id"}]}'),
  ('bubbleId:c1:b3', '{"type":1,"text":"newer"}');
"""
STORES = {
    "opencode": (OPENCODE, "opencode", [
        (None, "s1", "/one", "A title", "first", 1, "m", 9),
        ("s2", "s1", "/one", "An agent", "of an agent", 1, None, 4),
        ("s3", "s1", "/one", "An agent of it", None, 0, "m", 3)]),
    "goose": (GOOSE, "goose-store", [
        (None, "1", "/g", "named", "hi", 1, None, 4),
        (None, "2", "/h", "told", "not JSON", 1, None, 3)]),
    "cursor": (CURSOR, "cursor-store", [
        (None, "alone", "", None, "alone", 1, None, 3),
        (None, "c1", "/c", "named", "hi", 2, None, 8)]),
    "zed": (ZED, "zed", [
        (None, "z1", "/z", "named", "hi", 1, "m", 5),
        (None, "z3", "/z", "named", "hi", 1, "m", 5),
        (None, "z4", "/z", "damaged", None, 0, None, 2),
        (None, "z5", "/z", "nothing", None, 0, None, 2),
        ("z2", "z1", "/z", "older", "before", 1, None, 4)]),
    "hermes": (HERMES, "hermes", [
        (None, "h", "", None, "hi", 1, None, 4), (None, "i", "", None, "again", 1, None, 2)]),
}


def attach(db, path, sql, name='a "b'):
    made = sqlite3.connect(path)
    made.executescript(sql)
    made.close()
    db.execute(f"ATTACH ? AS \"{name.replace(chr(34), chr(34) * 2)}\"", (str(path),))


def take(db, program, name='a "b'):
    return json.loads(one(db, "SELECT rollout_import_from(?, ?)", program, name))


def lines(db, program):
    """What the rows became, in order."""
    return [json.loads(payload) for payload, in rows(
        db, "SELECT payload FROM rollout_items WHERE payload ->> '$.store' = ? "
        "ORDER BY rollout, sequence", program)]


@pytest.mark.parametrize("way", ["function", "begin", "row"])
@pytest.mark.parametrize("program", STORES)
def test_a_store_is_read_whole_and_only_once(db, tmp_path, program, way):
    sql, name, shown = STORES[program]
    attach(db, tmp_path / "theirs.db", sql)
    before = (tmp_path / "theirs.db").read_bytes()
    if way == "begin":
        db.execute("BEGIN")
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import_from', json_array(?, ?))",
                   (program, 'a "b'))
    report = take(db, program)
    assert report["format"] == name and len(report["rolloutIds"]) == len(shown)
    assert (report["bad"], report["errors"]) == (0, [])
    assert report["rolloutId"] == report["rolloutIds"][0]
    assert report["new"] == (0 if way == "row" else report["items"]) and report["items"] > 0
    assert rows(db, "SELECT agent, source_id, cwd, title, first_user_message, turns, model, "
                "item_count FROM rollouts ORDER BY agent, source_id") == shown
    assert {f for f, in rows(db, "SELECT format FROM rollouts")} == {name}
    again = take(db, program)
    assert (again["new"], again["items"], again["rolloutIds"]) == (
        0, report["items"], report["rolloutIds"])
    well(db)
    seen = rows(db, "SELECT * FROM rollouts ORDER BY id")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollouts ORDER BY id") == seen
    if way == "begin":
        db.execute("COMMIT")
    assert (tmp_path / "theirs.db").read_bytes() == before


def test_every_column_of_a_row_is_kept(db, tmp_path):
    attach(db, tmp_path / "theirs.db", OPENCODE, "theirs")
    take(db, "opencode", "theirs")
    first = next(x for x in lines(db, "opencode") if x["row"]["id"] == "s1")
    assert first["row"] == {
        "id": "s1", "parent_id": None, "directory": "/one", "title": "A title",
        "time_created": AT, "time_updated": AT, "odd": "00FF", "a \"b.main.c'": 'x"y\n',
        "far": "Inf"}
    assert [x["row"]["id"] for x in lines(db, "opencode") if x["session"] == "s1"
            and "agent" not in x] == ["s1", "m1", "p1", "p2", "m2", "p3", "p4", "m5"]
    assert [x["row"]["data"] for x in lines(db, "opencode") if x["row"]["id"] == "m5"] == [
        "damaged {"]


def test_bubbles_come_in_the_order_that_the_composer_has(db, tmp_path):
    attach(db, tmp_path / "theirs.db", CURSOR, "theirs")
    take(db, "cursor", "theirs")
    got = [(x["row"]["key"], x.get("role")) for x in lines(db, "cursor") if x["session"] == "c1"]
    assert got[:4] == [("composerData:c1", None), ("bubbleId:c1:b1", "user"),
                       ("bubbleId:c1:b2", "assistant"), ("bubbleId:c1:b0", "user")]
    assert sorted(got[4:]) == [(f"bubbleId:c1:b{i}", None) for i in (3, 4, 5)]


def test_bubbles_inside_of_a_composer_are_read_unless_they_are_rows(db, tmp_path):
    attach(db, tmp_path / "theirs.db", INLINE, "theirs")
    rollout = take(db, "cursor", "theirs")["rolloutId"]
    assert {t for t, in rows(db, "SELECT text FROM rollout_messages")} == {
        "hi", "no", "newer", "without an id"}
    assert rows(db, "SELECT first_user_message, turns FROM rollouts WHERE id = ?", rollout) == [
        ("hi", 3)]
    assert take(db, "cursor", "theirs")["new"] == 0
    well(db)


def test_a_thread_is_kept_with_the_rows_of_its_messages(db, tmp_path):
    attach(db, tmp_path / "theirs.db", ZED, "theirs")
    take(db, "zed", "theirs")
    first = [x for x in lines(db, "zed") if x["session"] == "z1" and "agent" not in x]
    whole = json.loads(THREAD)
    assert [x["row"] for x in first[1:]] == whole.pop("messages")
    assert first[0]["row"]["data"] == whole and first[0]["row"]["data_type"] == "zstd"
    assert [x.get("role") for x in first] == [None, "user", "assistant", None]
    damaged = next(x for x in lines(db, "zed") if x["session"] == "z4")
    assert damaged["row"]["data"] == zstd(THREAD)[:-9].hex().upper()
    assert {t for t, in rows(db, "SELECT text FROM rollout_messages")} == {"hi", "no", "before", "yes"}


def test_a_thread_that_goes_on_gets_only_its_new_messages(db):
    db.executescript(ZED)
    take(db, "zed", "main")
    thread = json.loads(THREAD)
    thread["messages"].append({"User": {"id": "9", "content": [{"Text": "more"}]}})
    db.execute("UPDATE threads SET updated_at = '2026-07-17T10:00:00+00:00', data = ? "
               "WHERE id = 'z1'", (json.dumps(thread).encode(),))
    assert take(db, "zed", "main")["new"] == 2
    assert take(db, "zed", "main")["new"] == 0
    well(db)


def test_a_session_that_cannot_be_read_keeps_out_no_other(db):
    db.executescript(GOOSE)
    db.execute("INSERT INTO sessions(id, name) VALUES('0', CAST(x'ff' AS TEXT))")
    report = take(db, "goose", "main")
    assert (report["new"], report["bad"], len(report["rolloutIds"])) == (5, 1, 2)
    assert report["errors"] == [
        {"line": 1, "reason": "not UTF-8; correct the row, and import again"}]
    db.execute("DELETE FROM sessions WHERE id <> '0'")
    assert take(db, "goose", "main")["rolloutId"] is None
    well(db)


def test_a_body_that_is_not_utf8_or_has_a_nul_is_kept_as_bytes(db):
    db.executescript(ZED.split("INSERT")[0])
    bodies = [zstd(THREAD.replace(b"hi", b"\xff\xfe")), THREAD + b"\0more", zstd(THREAD + b"\0more")]
    for i, body in enumerate(bodies):
        db.execute("INSERT INTO threads(id, data) VALUES(?, ?)", (f"z{i}", body))
    report = take(db, "zed", "main")
    assert (report["items"], report["bad"]) == (3, 0)
    assert [x["row"]["data"] for x in sorted(lines(db, "zed"), key=lambda x: x["session"])] == [
        body.hex().upper() for body in bodies]


def test_a_thread_may_be_much_longer_than_its_frame(db):
    whole = json.dumps({"messages": [{"User": {"content": [{"Text": "x" * 3200}]}}]}).encode()
    frame = zstd(whole[:1], *[(b" ", 131072)] * 300, whole[1:])
    db.executescript(ZED.split("INSERT")[0])
    db.execute("INSERT INTO threads(id, data) VALUES('z', ?)", (frame,))
    assert take(db, "zed", "main")["items"] == 2
    assert one(db, "SELECT turns FROM rollouts") == 1


def test_sub_agents_and_tokens_count_for_the_session_at_the_root(db, tmp_path):
    attach(db, tmp_path / "theirs.db", OPENCODE, "theirs")
    root = take(db, "opencode", "theirs")["rolloutIds"][0]
    assert rows(db, "SELECT agent, parent FROM rollouts WHERE agent IS NOT NULL ORDER BY 1") == [
        ("s2", root), ("s3", root)]
    assert rows(db, "SELECT model, input_fresh, cache_write, cache_read, output, reasoning, cost "
                "FROM rollout_usage ORDER BY input_fresh") == [
        ("m", 1, 16, 8, 6, 4, 0.25), ("m", 32, 0, 0, 0, 0, None)]
    assert rows(db, "SELECT subagents, input_fresh FROM rollout_usage_sums WHERE rollout = ? "
                "ORDER BY 1", root) == [(0, 1), (1, 32)]
    one(db, "SELECT rollout_search_install()")
    assert len(rows(db, "SELECT * FROM rollout_search('needle')")) == 1


def test_rows_that_came_or_changed_since_are_taken(db, tmp_path):
    attach(db, tmp_path / "theirs.db", OPENCODE, "theirs")
    take(db, "opencode", "theirs")
    db.execute("UPDATE theirs.part SET data = json_set(data, '$.text', 'yes and no') WHERE id = 'p3'")
    db.execute("INSERT INTO theirs.part VALUES('p9', 'm5', '{\"type\":\"text\"}')")
    assert take(db, "opencode", "theirs")["new"] == 2
    assert take(db, "opencode", "theirs")["new"] == 0
    well(db)


def test_an_export_is_imported_as_the_same_conversation(db, tmp_path):
    attach(db, tmp_path / "theirs.db", GOOSE, "theirs")
    rollout = take(db, "goose", "theirs")["rolloutId"]
    text = one(db, "SELECT rollout_export(?)", rollout)
    other = connect()
    one(other, "SELECT blackbox_install('main', 'all')")
    report = json.loads(one(other, "SELECT rollout_import(?)", text))
    assert (report["rolloutId"], report["format"]) == (rollout, "goose-store")
    assert one(other, "SELECT rollout_export(?)", rollout) == text


def test_the_tables_may_be_in_the_schema_of_the_rollouts(db):
    db.executescript(GOOSE)
    assert take(db, "goose", "main")["new"] == 5 and take(db, "goose", "MAIN")["new"] == 0
    well(db)


def test_a_store_without_sessions_gives_none(db):
    db.execute("CREATE TABLE cursorDiskKV(key, value)")
    assert take(db, "cursor", "main") == {
        "rolloutId": None, "rolloutIds": [], "format": "cursor-store", "known": True, "lines": 0, "items": 0,
        "new": 0, "bad": 0, "errors": []}


def test_parents_in_a_circle_end(db):
    db.executescript(OPENCODE)
    db.execute("UPDATE session SET parent_id = 's3' WHERE id = 's1'")
    assert take(db, "opencode", "main")["bad"] == 0
    well(db)


@pytest.mark.parametrize("program, schema, text", [
    ("opencode", "nosuch", "there is no schema 'nosuch'; ATTACH"),
    ("Goose", "main", "no database of 'Goose' can be read; the programs are"),
    ("goose", "main", "schema 'main' has no table 'sessions', which a database of goose has"),
    (None, "main", "program"), ("goose", None, "schema"), ("goose", 5, "schema")])
def test_what_cannot_be_read_is_said(db, program, schema, text):
    with pytest.raises(sqlite3.Error, match=text) as error:
        take(db, program, schema)
    assert "ValidationError: " in str(error.value)


def test_a_format_that_is_gone_is_said(db):
    db.execute("DELETE FROM rollout_formats WHERE format = 'opencode'")
    with pytest.raises(sqlite3.IntegrityError, match="has no format 'opencode'; INSERT it again"):
        take(db, "opencode", "main")


def test_nothing_is_taken_if_a_later_session_fails(db, tmp_path):
    attach(db, tmp_path / "theirs.db", GOOSE, "theirs")
    db.execute("CREATE TRIGGER no BEFORE INSERT ON rollout__heads "
               "WHEN (SELECT count(*) FROM rollout__heads) > 0 BEGIN SELECT RAISE(ABORT, 'no'); END")
    for begin in ("SELECT 1", "BEGIN"):
        db.execute(begin)
        with pytest.raises(sqlite3.Error):
            take(db, "goose", "theirs")
        assert one(db, "SELECT count(*) FROM rollout__heads") == 0
    with pytest.raises(sqlite3.Error, match="MisuseError: .* cannot run as a row inside"):
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import_from', "
                   "json_array('goose', 'theirs'))")
    db.execute("COMMIT")
    with pytest.raises(sqlite3.Error, match="no"):
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import_from', "
                   "json_array('goose', 'theirs'))")
    assert one(db, "SELECT count(*) FROM rollout__heads") == 0


@needs_data
@pytest.mark.parametrize("program, file", [
    ("opencode", "opencode/opencode.sql"), ("goose", "goose/sessions/goose.sql"),
    ("zed", "zed/zed.sql"), ("hermes", "hermes/profiles/architect/hermes.sql")])
def test_the_samples_are_read(db, tmp_path, program, file):
    if not (DATA / "formats").is_dir():
        pytest.skip("no samples beside the project")
    attach(db, tmp_path / "theirs.db", (DATA / "formats" / file).read_text(), "theirs")
    assert take(db, program, "theirs")["bad"] == 0
    said = [s for s, in rows(db, "SELECT first_user_message FROM rollouts WHERE turns = 1")]
    assert len(said) == one(db, "SELECT count(*) FROM rollouts")
    assert any(word in said[0] for word in ("sqlite fixture", "thread", "loop", "zed"))
    well(db)
