"""The formats of agents: found by the content, kept byte for byte, read by rows."""
import gzip
import json
import sqlite3

import pytest

from rollout_helpers import (
    AT, ID, OTHER, append, exported, exported_as_parent, lines, load, load_unknown, message, user, well)
from conftest import DATA, connect, needs_data, one, rows


def said(i, role, text, **more):
    """A line of Claude Code."""
    return {"type": role, "sessionId": "s1", "timestamp": AT % i,
            "message": {"role": role, "content": text}, **more}


MS = 1784278800000
CLAUDE = lines(
    {"type": "file-history-snapshot", "messageId": "m"},
    said(0, "user", "first", cwd="/a", gitBranch="main"),
    said(1, "user", "<command-name>/clear</command-name>", cwd="/b", gitBranch="main"),
    said(2, "assistant", [{"type": "text", "text": "yes"}], requestId="r"),
    said(3, "user", [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]),
    said(4, "user", [{"type": "text", "text": "second"}]),
    {"type": "ai-title", "aiTitle": "A title", "sessionId": "s1"})
SAMPLES = {
    "claude-code": (CLAUDE, (2, "first", "/b", "A title", None)),
    "qwen": (lines(
        {"type": "user", "sessionId": "q", "timestamp": AT % 0, "cwd": "/q",
         "message": {"role": "user", "parts": [{"text": "hi"}]}},
        {"type": "assistant", "sessionId": "q", "timestamp": AT % 1, "model": "qwen3",
         "message": {"role": "model", "parts": [{"text": "no", "thought": True}]}}),
        (1, "hi", "/q", None, "qwen3")),
    "gemini": (lines(
        {"sessionId": "g", "startTime": AT % 0, "kind": "main"},
        {"id": "1", "timestamp": AT % 1, "type": "user", "content": [{"text": "hi"}]},
        {"id": "2", "timestamp": AT % 2, "type": "gemini", "content": "x", "model": "g3"},
        {"$set": {"messages": [
            {"id": "3", "timestamp": AT % 3, "type": "user", "content": "again"},
            {"id": "4", "timestamp": AT % 4, "type": "gemini", "content": "y", "model": "g4"}],
            "lastUpdated": AT % 5}}), (2, "hi", "", None, "g4")),
    "pi": (lines(
        {"type": "session", "version": 3, "id": "p", "timestamp": AT % 0, "cwd": "/p"},
        {"type": "model_change", "id": "a", "timestamp": AT % 1, "modelId": "m1"},
        {"type": "message", "id": "b", "timestamp": AT % 2,
         "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}},
        {"type": "session_info", "name": "named"}), (1, "hi", "/p", "named", "m1")),
    "copilot": (lines(
        {"type": "session.start", "timestamp": AT % 0,
         "data": {"sessionId": OTHER, "context": {"cwd": "/c"}}},
        {"type": "session.model_change", "timestamp": AT % 1, "data": {"newModel": "m"}},
        {"type": "user.message", "timestamp": AT % 2, "data": {"content": "hi"}}),
        (1, "hi", "/c", None, "m")),
    "goose": (lines(
        {"description": "named", "id": "2025_1", "working_dir": "/g", "created_at": AT % 0},
        {"id": "1", "role": "user", "created": 1784278801,
         "content": [{"type": "text", "text": "hi"}]}), (1, "hi", "/g", "named", None)),
    "cursor": (lines(
        {"role": "user", "message": {"content": [{"type": "text", "text": "hi"}]}},
        {"type": "turn_ended", "status": "success"}), (1, "hi", "", None, None)),
    "codex-history": (lines({"session_id": ID, "ts": 1784278801, "text": "hi"}),
                      (1, "hi", "", None, None)),
    "deepseek": (lines(
        {"type": "session", "version": 0, "id": "session-d", "createdAt": MS, "cwd": "/d"},
        {"type": "session/title", "seq": 1, "time": MS, "data": {"title": "named"}},
        {"type": "user/message", "time": MS, "data": {
            "content": [{"type": "text", "text": "hi"}], "source": {"kind": "user"}}},
        {"type": "user/message", "time": MS, "data": {
            "content": [{"type": "text", "text": "x"}], "source": {"kind": "plugin"}}}),
        (1, "hi", "/d", "named", None)),
    "kimi": (lines(
        {"type": "metadata", "protocol_version": "1.4", "created_at": MS},
        {"type": "context.append_message", "time": MS, "message": {
            "role": "user", "content": [{"type": "text", "text": "hi"}]}},
        {"type": "context.append_loop_event", "time": MS, "event": {
            "type": "content.part", "part": {"type": "text", "text": "no"}}},
        {"type": "usage.record", "time": MS, "model": "k2", "usageScope": "turn",
         "usage": {"inputOther": 1, "output": 2}}), (1, "hi", "", None, "k2")),
    "grok": (lines(
        *[{"timestamp": MS // 1000, "params": {"sessionId": "g", "update": {
            "sessionUpdate": kind, "content": {"type": "text", "text": text}}}}
          for kind, text in (("user_message_chunk", "hi"), ("agent_message_chunk", "no"))],
        {"info": {"id": "g", "cwd": "/x"}, "session_summary": "", "generated_title": "named"}),
        (1, "hi", "/x", "named", None)),
    "antigravity": (lines(
        {"source": "USER_EXPLICIT", "created_at": AT % 1, "content": "hi"},
        {"source": "MODEL", "created_at": AT % 2, "content": "no"}), (1, "hi", "", None, None)),
    "cline": (json.dumps({"version": 1, "sessionId": "c", "messages": [
        {"id": "1", "role": "user", "ts": MS, "content": [{"type": "text", "text": "hi"}]},
        {"id": "2", "role": "assistant", "ts": MS, "content": "no"},
        {"id": "3", "role": "user", "ts": MS, "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "out"}]}]}, indent=2) + "\n",
        (1, "hi", "", None, None)),
    "aider": ("# aider chat started at 2026-07-17 09:00:00\n\n#### hi\n#### you\n\n"
              "> Added a.py\n\nno:\n```\n#### in a fence\n\n> x\n```\n\n#### again\n",
              (2, "hi\nyou", "", None, None)),
    "cline-task": (json.dumps([
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "no"}, {"role": "user", "content": "go on"},
        {"role": "user", "content": "[ERROR] You did not use a tool in"},
        {"role": "user", "content": "go on"}]), (3, "hi", "", None, None)),
    "unknown": (lines({"a": 1}, {"type": "x", "timestamp": AT % 1}, [1]),
                (0, None, "", None, None)),
}


@pytest.mark.parametrize("way", ["function", "begin", "row", "attached"])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_found_read_and_given_back(db, tmp_path, name, way):
    text, shown = SAMPLES[name]
    if way == "attached":
        db = connect(tmp_path / "main.db")
        db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
        one(db, "SELECT blackbox_install('a \"b', 'rollout')")
    if way == "begin":
        db.execute("BEGIN")
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?1, NULL, NULL, ?2))",
                   (text, "unknown" if name == "unknown" else None))
    read = load_unknown if name == "unknown" else load
    report = read(db, text)
    rollout = report["rolloutId"]
    assert report["format"] == name and report["rolloutIds"] == [rollout]
    assert report["known"] == (name != "unknown")
    assert (report["bad"], report["errors"]) == (0, [])
    assert report["new"] == (0 if way == "row" else report["items"])
    assert exported(db, rollout) == text.encode()
    assert rows(db, "SELECT turns, first_user_message, cwd, title, model, format FROM rollouts") == [
        (*shown, "codex" if name == "codex" else name)]
    assert read(db, text)["new"] == 0
    assert exported(db, rollout) == text.encode()
    well(db)
    before = rows(db, "SELECT * FROM rollouts")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollouts") == before
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    if name != "codex-history":
        assert exported_as_parent(db, fork).endswith(text.encode())
        assert read(db, exported(db, fork))["new"] == 0
    well(db)


def test_the_formats_are_listed_and_a_new_one_is_an_insert(db):
    assert {f for f, in rows(db, "SELECT format FROM rollout_formats WHERE kind = 'lines'")} >= \
        set(SAMPLES) - {"unknown"} | {"codex"}
    text = lines({"type": "head", "made_by": "mine", "created_at": 1782295200000},
                 {"type": "append", "message": {"role": "user", "content": "why?"},
                  "time": 1782295201000})
    with pytest.raises(sqlite3.Error, match="no format of rollout_formats .* knows it; INSERT"):
        load(db, text)
    assert rows(db, "SELECT * FROM rollouts") == []
    db.execute("INSERT INTO rollout_formats(format, mark, time) "
               "VALUES ('mine', '{\"$.none|$.made_by\":true}', '$.time|$.created_at')")
    db.execute("INSERT INTO blackbox_places(format, kind, type, conditions, place) VALUES "
               "('mine', 'user', 'append', '{\"$.message.role\":\"user\"}', '$.message.content')")
    assert load(db, text)["format"] == "mine"
    assert rows(db, "SELECT turns, first_user_message, created, updated FROM rollouts") == [
        (1, "why?", 1782295200000, 1782295201000)]
    well(db)
    with pytest.raises(sqlite3.Error, match="ValidationError: there is no format 'nosuch'"):
        load(db, text, None, None, "nosuch")
    assert load(db, text, OTHER, None, "pi")["format"] == "pi"


@pytest.mark.parametrize("sql", [
    "INSERT INTO blackbox_places(format, kind, type, conditions, place) "
    "VALUES ('x', 'user', 'x', '[]', '$.a')",
    "INSERT INTO blackbox_places(format, kind, type, conditions, place) "
    "VALUES ('x', 'user', 'x', '{\"a\":1}', '$.a')",
    "INSERT INTO blackbox_places(format, kind, type, place) VALUES ('x', 'user', 'x', 'a')",
    "UPDATE blackbox_places SET place = 'a' WHERE kind = 'title'", "UPDATE rollout_formats SET mark = '{'",
    "INSERT INTO rollout_formats(format, mark) VALUES ('x', '{')",
    "INSERT INTO rollout_formats(format, mark) VALUES (NULL, '{}')",
    "INSERT INTO rollout_formats(format, mark, type) VALUES ('x', '{}', '')",
    "INSERT INTO rollout_attributes(format, attribute, name) VALUES ('otel', '', 'x')",
    "INSERT INTO blackbox_places(format, kind, type, place) VALUES ('x', 'other', 'x', '$.a')"])
def test_a_row_that_cannot_work_is_refused(db, sql):
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(sql)


def test_a_format_with_an_empty_place_reads_lines(db):
    db.execute("INSERT INTO rollout_formats(format, mark, rank, items, conversation, time) "
               "VALUES ('mine', '{\"$.x\":true}', 1, '', '', '')")
    assert load(db, lines({"x": 1, "type": "y"}))["items"] == 1
    well(db)


def test_a_rule_that_was_rolled_back_is_forgotten(db):
    append_to = load(db, CLAUDE)["rolloutId"]
    db.execute("BEGIN")
    db.execute("INSERT INTO blackbox_places(format, kind, place) VALUES ('', 'preamble', 'third')")
    load(db, lines(said(5, "user", "third")), append_to)
    assert one(db, "SELECT turns FROM rollouts") == 2
    db.execute("ROLLBACK")
    db.execute("INSERT INTO blackbox_places(format, kind, place) VALUES ('', 'preamble', 'fourth')")
    load(db, lines(said(5, "user", "third")), append_to)
    assert one(db, "SELECT turns FROM rollouts") == 3
    well(db)


# -------------------------------------------------------------- every byte

CODEX = ('{"timestamp":"2026-04-08T12:58:53.226Z","ordinal":1,"type":"session_meta",'
         '"payload":{"id":"%s"}}\n' % ID +
         '{"timestamp":"2026-04-08T12:58:53.226123Z","type":"event_msg","payload":'
         '{"type":"user_message","message":"x"},"trace":"t"}\n'
         '{"timestamp":"yesterday","type":"compacted","payload":{}}'
         '{"type":"compacted","payload":[]}\n')


@pytest.mark.parametrize("data", [
    CODEX.encode(), CODEX.encode().rstrip(b"\n"), CODEX.replace("\n", "\r\n").encode(),
    b"\xef\xbb\xbf" + CODEX.encode(), b"\xef\xbb\xbfdamaged\n" + CODEX.encode(),
    b"dam\xffaged\n" + CODEX.encode() + b'{"type":"x', CODEX.replace("\n", "\n\n \t\n").encode(),
    CODEX.encode() + b"a\x00b\n" + CODEX.encode()[-20:], CLAUDE.encode() + b'{"type":"us',
    b"\xef\xbb\xbf" + CLAUDE.replace("\n", "\r\n").encode(), b"  " + CLAUDE.encode() + b"\n\n",
    b"no\nformat \"at\" all\n{\"x\":1}\n", b"one",
], ids=range(13))
@pytest.mark.parametrize("way", ["function", "row"])
def test_an_export_gives_back_the_file(db, data, way):
    if way == "row":
        db.execute("INSERT INTO blackbox_call SELECT 'rollout_import', "
                   "json_array(CAST(? AS TEXT), ?, NULL, ?)",
                   (data, ID, None if b"type" in data else "unknown")) if b"\xff" not in data else None
        if b"\xff" in data or b"\x00" in data:
            return
    read = load if b"type" in data else load_unknown
    report = read(db, data, ID)
    assert exported(db, report["rolloutId"]) == data
    again = read(db, data, ID)
    assert again["new"] == 0 and again["items"] == report["items"]
    assert exported(db, report["rolloutId"]) == data
    well(db)


def test_a_second_mark_is_a_part_of_the_line_wherever_that_is(db):
    data = b"\xef\xbb\xbf" * 2 + CODEX.encode()
    report = load(db, data, ID)
    assert load(db, CODEX.encode().replace(b"yesterday", b"today") + data, OTHER)["bad"] == \
        report["bad"] == 1


def test_a_file_that_begins_with_a_mark_may_follow_another_one(db):
    data = CODEX.encode() + b"\xef\xbb\xbf" + CODEX.replace("yesterday", "today").encode()
    report = load(db, data, ID)
    assert (report["bad"], report["items"]) == (0, 8)
    assert exported(db, ID) == data


@pytest.mark.parametrize("text", [CODEX, CLAUDE], ids=["codex", "claude"])
def test_a_file_that_grows_is_taken_up_at_every_byte(db, text):
    data = text.encode()
    first = data.index(b"\n", data.index(b"\n") + 1) + 1  # the second line names it
    for end in [*range(first, len(data), 7), len(data)]:
        report = load(db, data[:end])
        assert exported(db, report["rolloutId"]) == data[:end]
    assert report["bad"] == 0 and one(db, "SELECT count(*) FROM rollout__heads") == 1
    fresh = connect()
    one(fresh, "SELECT blackbox_install('main', 'all')")
    load(fresh, data)
    assert rows(db, "SELECT sequence, type, payload FROM rollout_items") == \
        rows(fresh, "SELECT sequence, type, payload FROM rollout_items")
    well(db)


def test_a_file_that_was_cut_rewritten_or_continued_here_adds_what_is_new(db):
    rollout = load(db, CLAUDE)["rolloutId"]
    append(db, rollout, message("assistant", "of this program"))
    more = lines(said(6, "user", "third"))
    assert load(db, CLAUDE + more)["new"] == 1
    assert load(db, CLAUDE + more)["new"] == 0
    tail = "".join(CLAUDE.splitlines(True)[3:]) + more + lines(said(7, "user", "fourth"))
    assert load(db, tail)["new"] == 1
    assert rows(db, "SELECT turns FROM rollouts") == [(4,)]
    well(db)


def test_what_was_redacted_does_not_come_back(db):
    rollout = load(db, CLAUDE)["rolloutId"]
    db.execute("UPDATE rollout_items SET payload = json_set(payload, '$.message.content', '-') "
               "WHERE sequence = 2")
    assert load(db, CLAUDE)["new"] == 0
    assert load(db, CLAUDE + lines(said(7, "user", "more")))["new"] == 1
    assert b"first" not in exported(db, rollout)
    assert one(db, "SELECT first_user_message FROM rollouts") == "-"
    well(db)


def test_lines_without_a_time_are_known_when_the_time_of_the_file_is_another(db):
    def told(at, *texts):
        return lines({"type": "first", "a": "x" * 60}, {"type": "head", "time": AT % at},
                     *({"type": "user", "text": t} for t in texts))
    load_unknown(db, told(1, "a", "a", "b", "c"))
    db.execute("UPDATE rollout_items SET payload = json_set(payload, '$.text', '-') "
               "WHERE payload ->> '$.text' = 'b'")
    assert load_unknown(db, told(2, "a", "a", "b", "c", "a", "b"))["new"] == 3
    assert load_unknown(db, told(2, "a", "a", "b", "c", "a", "b"))["new"] == 0
    assert [t for t, in rows(db, "SELECT payload ->> '$.text' FROM rollout_items "
                             "WHERE type = 'user' ORDER BY sequence")] == list("aa-cab")
    well(db)


@pytest.mark.parametrize("first", ['{"type":"a"}', "# aider chat started at 1", "no JSON"])
def test_many_blank_lines_take_no_more_time_than_others(db, first):
    data = first + "\n" * 300000 + "more\n"
    report = (load if "aider" in first else load_unknown)(db, data)
    assert (report["lines"], report["items"]) == (300001, 2)
    assert exported(db, report["rolloutId"]) == data.encode()


def test_many_conversations_in_a_file_are_found_by_their_names(db):
    data = lines(*({"session_id": f"s{i % 400}", "ts": i, "text": f"{i}"} for i in range(800)))
    report = load(db, data)
    assert len(report["rolloutIds"]) == len(set(report["rolloutIds"])) == 400
    assert rows(db, "SELECT DISTINCT item_count FROM rollouts") == [(3,)]
    assert load(db, data)["new"] == 0


def test_a_text_that_is_too_long_for_an_item_is_kept_beside_it(db):
    data = b"one\n" + b"x" * 67108863 + b"\ntwo\n"
    report = load_unknown(db, data)
    assert (report["items"], report["bad"]) == (2, 1)
    assert "more than 67108864 bytes" in report["errors"][0]["reason"]
    assert exported(db, report["rolloutId"]) == data


def test_several_conversations_in_a_file_become_several(db):
    other = lines(said(5, "user", "of another", sessionId="s2"))
    agent = lines(said(6, "user", "of an agent", isSidechain=True, agentId="a1"),
                  said(7, "assistant", "x", isSidechain=True, agentId="a1"))
    report = load(db, CLAUDE + agent + other + lines(said(8, "user", "last")))
    assert len(report["rolloutIds"]) == 3 and report["rolloutId"] == report["rolloutIds"][0]
    assert rows(db, "SELECT source_id, agent, first_user_message, turns, parent FROM rollouts "
                "ORDER BY created, id") == [
        ("s1", None, "first", 3, None), ("s2", None, "of another", 1, None),
        ("s1", "a1", "of an agent", 1, report["rolloutId"])]
    assert exported(db, report["rolloutIds"][1]) == agent.encode()
    assert exported(db, report["rolloutIds"][2]) == other.encode()
    again = connect()
    one(again, "SELECT blackbox_install('main', 'all')")
    assert load(again, agent)["rolloutId"] == report["rolloutIds"][1]
    assert rows(again, "SELECT parent FROM rollouts") == [(report["rolloutId"],)]
    well(db)


def test_a_snapshot_adds_only_what_is_new(db):
    def said(i, **more):
        return {"id": f"g{i}", "timestamp": AT % i, "type": "user", "content": f"{i}", **more}
    head = {"sessionId": "g", "startTime": AT % 0, "kind": "main"}
    data = lines(head, said(1), {"$set": {"messages": [said(1), said(2)]}},
                 {"$set": {"messages": [said(1), said(2), said(3, content="x")]}},
                 {"$set": {"messages": [said(1), said(2)]}}, said(4), said(4))
    report = load(db, data)
    assert report["items"] == 6 and exported(db, report["rolloutId"]) == data.encode()
    assert rows(db, "SELECT turns FROM rollouts") == [(5,)]
    assert load(db, data + lines({"$set": {"messages": [said(4), said(5)]}}))["new"] == 1
    assert load(db, data)["new"] == 0
    well(db)


def test_a_message_with_the_result_of_a_tool_begins_no_turn(db):
    def said(role, *content):
        return {"role": role, "created": 1784278801, "content": list(content)}
    text = {"type": "text", "text": "hi"}
    result = {"type": "toolResponse", "id": "t", "toolResult": {
        "status": "success", "value": [{"type": "text", "text": "a needle"}]}}
    load(db, lines({"id": "1", "working_dir": "/g"}, said("user", text),
                   said("assistant", {"type": "toolRequest", "id": "t"}), said("user", result)))
    assert rows(db, "SELECT turns, first_user_message FROM rollouts") == [(1, "hi")]
    assert rows(db, "SELECT value FROM rollout_facts WHERE fact = 'tool'") == [("a needle",)]
    well(db)


def test_what_a_model_thought_is_not_what_it_said(db):
    parts = [{"type": kind, "text": kind} for kind in ("thinking", "text", "think", "reasoning")]
    load(db, lines({"role": "user", "message": {"content": [*parts]}}))
    assert rows(db, "SELECT text FROM rollout_messages") == [("text",)]
    assert rows(db, "SELECT first_user_message FROM rollouts") == [("text",)]
    well(db)


def test_what_users_typed_is_kept_apart_from_their_sessions(db):
    history = lines({"session_id": ID, "ts": 1784278801, "text": "hi"})
    report = load(db, history)
    assert report["rolloutId"] != ID and load(db, history)["new"] == 0
    assert load(db, CODEX)["rolloutId"] == ID
    assert rows(db, "SELECT format, source_id, turns FROM rollouts ORDER BY 1") == [
        ("codex", None, 1), ("codex-history", ID, 1)]
    well(db)


# --------------------------------------------------------------- text files

AIDER = SAMPLES["aider"][0]


def test_lines_of_text_become_what_was_said(db):
    report = load(db, AIDER)
    assert (report["items"], report["lines"]) == (5, AIDER.count("\n"))
    assert rows(db, "SELECT fact, value FROM rollout_facts ORDER BY id") == [
        ("user", "hi\nyou"), ("tool", "Added a.py"),
        ("assistant", "no:\n```\n#### in a fence\n\n> x\n```"), ("user", "again")]
    assert rows(db, "SELECT source_id, created FROM rollouts") == [
        ("2026-07-17 09:00:00", MS)]
    assert [json.loads(p)["content"] for p, in rows(
        db, "SELECT payload FROM rollout_context(?)", report["rolloutId"])][::2] == [
        "hi\nyou", "again"]


@pytest.mark.parametrize("write", [str, lambda t: "\ufeff\n" + t.replace("\n", "\r\n")])
def test_a_file_of_text_has_several_conversations_and_grows(db, write):
    more = AIDER.replace("09:00:00", "10:00:00").replace("hi", "later")
    data = write(AIDER + "\n" + more)
    ids = set()
    for end in (data.index(s, 9) for s in ("> Added", "no:", "#### again", "# aider", "#### later")):
        report = load(db, data[:end].encode())
        ids |= set(report["rolloutIds"])
        assert b"".join(exported(db, r) for r in report["rolloutIds"]) == data[:end].encode()
    report = load(db, data.encode())
    assert set(report["rolloutIds"]) == ids and len(ids) == 2 and report["bad"] == 0
    assert b"".join(exported(db, r) for r in report["rolloutIds"]) == data.encode()
    assert rows(db, "SELECT first_user_message, turns FROM rollouts ORDER BY created") == [
        ("hi\nyou", 2), ("later\nyou", 2)]
    assert load(db, data)["new"] == 0
    well(db)


def test_a_fence_that_was_cut_off_ends_with_the_conversation(db):
    data = "# aider chat started at 1\n#### a\n```\ncut\n# aider chat started at 2\n#### b\n```\n"
    ids = load(db, data)["rolloutIds"]
    assert rows(db, "SELECT source_id, first_user_message FROM rollouts ORDER BY 1") == [
        ("1", "a"), ("2", "b")]
    assert b"".join(exported(db, r) for r in ids) == data.encode()


def test_a_format_of_text_is_two_inserts(db):
    db.execute("INSERT INTO rollout_formats(format, mark) VALUES "
               "('mine', '{\"$.format\":\"mine\"}')")
    db.execute("INSERT INTO blackbox_places(format, kind, type, place) VALUES "
               "('mine', 'start', 'a_head', '== '), ('mine', 'line', 'user', 'me: ')")
    report = load(db, "== one\nme: hi\nnothing\nme: you\n")
    assert (report["format"], report["items"]) == ("mine", 2)
    assert rows(db, "SELECT type, payload ->> '$.text' FROM rollout_items WHERE sequence = 2") == [
        ("user", "hi\nyou")]
    damaged = b"== two\nme: \xff!\xe2\x82\n"
    report = load(db, damaged)
    assert (report["format"], report["items"], report["bad"]) == ("mine", 2, 0)
    assert one(db, "SELECT payload ->> '$.text' FROM rollout_items WHERE rollout = ? AND "
               "sequence = 2", report["rolloutId"]) == "\ufffd!\ufffd\ufffd"
    assert exported(db, report["rolloutId"]) == damaged
    damaged = b"== three\nme: \x00\n"
    report = load_unknown(db, damaged)
    assert (report["items"], report["bad"]) == (1, 1)
    assert exported(db, report["rolloutId"]) == damaged
    db.execute("DELETE FROM blackbox_places WHERE format = 'mine'")
    load_unknown(db, "== two\nme: hi\n")
    well(db)


# ------------------------------------------------- files that are one value

def document(*texts, **more):
    return {"sessionId": "c", "messages": [
        {"id": f"m{i}", "role": "user", "ts": MS + i, "content": t}
        for i, t in enumerate(texts)], **more}


@pytest.mark.parametrize("write", [
    lambda d: json.dumps(d, indent=2), lambda d: json.dumps(d), lambda d: json.dumps(d) + "\n",
    lambda d: "\ufeff\r\n" + json.dumps(d, indent="\t").replace("\n", "\r\n") + "\r\n\r\n"],
    ids=["several lines", "one line", "a newline", "BOM and CRLF"])
def test_a_file_that_is_one_value_is_read_and_grows(db, write):
    small = write(document("first", "again", "again", updated=1)).encode()
    report = load(db, small)
    assert (report["format"], report["items"], report["bad"]) == ("cline", 3, 0)
    assert exported(db, report["rolloutId"]) == small and load(db, small)["new"] == 0
    large = write(document("first", "again", "again", "more", updated=1)).encode()
    again = load(db, large)
    assert (again["rolloutId"], again["new"]) == (report["rolloutId"], 1)
    assert exported(db, report["rolloutId"]) == large and load(db, large)["new"] == 0
    assert rows(db, "SELECT source_id, turns FROM rollouts") == [("c", 4)]
    well(db)


def test_a_list_of_messages_has_the_id_of_its_first_message(db):
    first = [{"role": "user", "content": "hi"}]
    report = load(db, json.dumps(first, indent=1))
    assert load(db, json.dumps(first * 2, indent=1))["rolloutIds"] == report["rolloutIds"]
    assert one(db, "SELECT turns FROM rollouts") == 2
    well(db)


def test_a_session_of_gemini_may_be_one_value(db):
    said = [{"id": f"{i}", "timestamp": AT % i, "type": kind, "content": "x"}
            for i, kind in ((1, "user"), (2, "gemini"), (3, "user"))]
    text = json.dumps({"sessionId": "g", "startTime": AT % 0, "messages": said}, indent=2)
    report = load(db, text)
    assert (report["format"], report["items"]) == ("gemini", 3)
    assert exported(db, report["rolloutId"]) == text.encode()
    assert rows(db, "SELECT source_id, turns FROM rollouts") == [("g", 2)]
    well(db)


def test_a_summary_of_another_program_is_not_known(db):
    for line in {"type": "x", "session_summary": "y"}, {"type": "x", "generated_title": "y"}:
        load_unknown(db, lines(line))
    assert {t for t, in rows(db, "SELECT type FROM rollout_items WHERE sequence = 1")} == {"x"}


def test_files_with_the_same_short_first_line_are_not_one_conversation(db):
    for text in "one", "two":
        assert load(db, lines(
            {"type": "metadata", "protocol_version": "1.4"},
            {"type": "context.append_message", "message": {"role": "user", "content": text}}))[
                "new"] == 2
    assert rows(db, "SELECT format, turns FROM rollouts") == [("kimi", 1)] * 2


def test_files_that_begin_alike_are_not_one_conversation(db):
    for text in (json.dumps({"a" * 50: i}, indent=1) for i in range(2)):
        assert load_unknown(db, text)["new"] == 3
    assert one(db, "SELECT count(*) FROM rollouts") == 2


def test_lines_that_are_one_value_each_become_conversations(db):
    one_, two = document("of one"), document("of two", "more", sessionId="d")
    report = load(db, lines(one_, two))
    assert (report["items"], len(report["rolloutIds"])) == (3, 2)
    assert rows(db, "SELECT source_id, turns FROM rollouts ORDER BY 1") == [("c", 1), ("d", 2)]
    assert b"".join(exported(db, r) for r in report["rolloutIds"]) == lines(one_, two).encode()
    well(db)


@pytest.mark.parametrize("text", [
    json.dumps(document("x"), indent=1)[:-1], json.dumps(document("x"), indent=1) + "x",
    json.dumps({"no": {"format": [1]}}, indent=1)], ids=["cut off", "text after it", "not known"])
def test_a_value_that_is_no_session_is_kept_line_by_line(db, text):
    report = load_unknown(db, text)
    assert report["lines"] == len(text.splitlines())
    assert exported(db, report["rolloutId"]) == text.encode()
    well(db)


def test_a_byte_that_is_not_utf_8_costs_one_character(db):
    first = lines(said(0, "user", "x", sessionId="s2")).encode().replace(b'"x"', b'"a\xffb\xe2\x82"')
    data = first + CLAUDE.encode() + lines(said(5, "user", "of another", sessionId="s2")).encode()
    report = load(db, data)
    assert report["bad"] == 0 and len(report["rolloutIds"]) == 2
    assert report["errors"] == [
        {"line": 1, "reason": "bytes that are not UTF-8; U+FFFD stands for each of them"}]
    assert rows(db, "SELECT source_id, first_user_message FROM rollouts ORDER BY 1") == [
        ("s1", "first"), ("s2", "a\ufffdb\ufffd\ufffd")]
    assert load(db, data)["new"] == 0
    assert exported(db, report["rolloutIds"][1]).startswith(first)
    well(db)


def test_a_file_of_one_value_that_is_not_utf_8_is_read_and_given_back(db):
    told = document("xyz", "more")
    data = json.dumps(told, indent=1).encode().replace(b"xyz", b"x\xffz")
    report = load(db, data)
    assert (report["bad"], report["items"], len(report["errors"])) == (0, 2, 1)
    assert one(db, "SELECT first_user_message FROM rollouts") == "x\ufffdz"
    assert exported(db, report["rolloutId"]) == data
    assert load(db, data)["new"] == 0
    repaired = json.dumps(told, indent=1).encode()
    assert load(db, repaired)["new"] == 1
    assert exported(db, report["rolloutId"]) == repaired
    well(db)


def test_forks_and_deletes_keep_what_stands_around_items(db):
    rollout = load(db, CODEX)["rolloutId"]
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    db.execute("DELETE FROM rollouts WHERE id = ?", (rollout,))
    assert exported(db, fork).endswith(CODEX[CODEX.index("\n") + 1:].encode())
    db.execute("DELETE FROM rollouts")
    assert rows(db, "SELECT * FROM rollout__data") == []


@pytest.mark.parametrize("escaped", ['"m\\u0065ssage"', '"\\u0072ole"', '"t\\u0065xt"'])
def test_an_escape_in_a_key_is_read_as_sqlite_reads_it(db, escaped):
    plain = json.loads('"%s"' % escaped.strip('"'))
    text = CLAUDE.replace('"%s"' % plain, escaped)
    assert text != CLAUDE
    report = load(db, text, ID, None, "claude-code")
    assert report["bad"] == 0
    assert exported(db, ID) == text.encode()
    well(db)


# ------------------------------------------------------------ real sessions

def samples():
    folder = DATA / "formats"
    found = [f for f in sorted(folder.rglob("*")) if f.suffix in (".jsonl", ".json", ".md")
             and "descriptions" not in f.parts]
    return found + (sorted((DATA / "rollouts" / "claude").iterdir()) if found else [])


@needs_data
def test_all_samples_and_real_sessions_come_back(db):
    for file in samples():
        data = gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()
        try:
            report = load(db, data)
        except sqlite3.IntegrityError:
            report = load_unknown(db, data)
        assert (report["new"], report["bad"]) == (report["items"], 0), file
        assert exported(db, report["rolloutId"]) == data, file
        assert load(db, data, None, None, report["format"])["new"] == 0, file
    assert rows(db, "SELECT format, count(*), sum(turns > 0) FROM rollouts GROUP BY 1") == [
        ("aider", 1, 1), ("antigravity", 1, 1), ("claude-code", 6, 6), ("cline", 1, 1), ("cline-task", 2, 2),
        ("codex", 1, 1), ("copilot", 1, 1), ("cursor", 1, 1), ("deepseek", 1, 1),
        ("gemini", 2, 2), ("goose", 1, 1), ("grok", 2, 1), ("kimi", 1, 1), ("pi", 4, 4),
        ("qwen", 1, 1), ("unknown", 5, 0)]
    well(db)
