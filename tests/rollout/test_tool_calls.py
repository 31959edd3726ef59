"""One form for every format: rollout_messages and rollout_tool_calls."""
import json

import pytest

from rollout_helpers import ID, OTHER, append, create, derive, lines, load, user, well
from conftest import one, problems, rows

FAILED = ("SELECT tool, input ->> 'command', output, duration FROM rollout_tool_calls "
          "WHERE is_error AND started >= 1767225600000 ORDER BY started")
EDITED = ("SELECT DISTINCT file FROM rollout_tool_calls "
          "WHERE edits AND started >= 1767225600000 ORDER BY 1")
AT = "2026-01-01T00:00:0%d.000Z"


def claude(kind, second, *content):
    return {"type": kind, "sessionId": "s", "timestamp": AT % second,
            "message": {"role": kind, "content": [*content]}}


CLAUDE = lines(
    claude("user", 0, {"type": "text", "text": "do it"}),
    claude("assistant", 1, {"type": "text", "text": "yes"},
           {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "make"}},
           {"type": "tool_use", "id": "b", "name": "Edit", "input": {"file_path": "/w/a.c"}},
           {"type": "tool_use", "id": "c", "name": "Read", "input": {"file_path": "/w/b.c"}}),
    claude("user", 3, {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True},
           {"type": "tool_result", "tool_use_id": "b", "content": "changed"}))
PATCH = "*** Begin Patch\n*** Update File: x.c\n*** Add File: y.c\n*** End Patch"


def codex(kind, call, second, **more):
    return {"timestamp": AT % second, "type": "response_item",
            "payload": {"type": kind, "call_id": call, **more}}


CODEX = (
    codex("function_call", "a", 1, name="shell", arguments='{"command":"make"}'),
    codex("function_call_output", "a", 3, output="Exit code: 2\nno"),
    codex("custom_tool_call", "b", 4, name="apply_patch", input=PATCH),
    codex("custom_tool_call_output", "b", 5, output="done"))


def test_which_calls_failed_and_which_files_were_edited_is_one_select(db):
    load(db, CLAUDE)
    assert rows(db, FAILED) == [("Bash", "make", "no", 2000)]
    assert rows(db, EDITED) == [("/w/a.c",)]
    assert rows(db, "SELECT tool, is_error, file, output FROM rollout_tool_calls ORDER BY 1") == [
        ("Bash", 1, None, "no"), ("Edit", 0, "/w/a.c", "changed"), ("Read", None, "/w/b.c", None)]
    assert rows(db, "SELECT n, role, text FROM rollout_messages ORDER BY n") == [
        (1, "user", "do it"), (2, "assistant", "yes")]
    well(db)


@pytest.mark.parametrize("way", ["at once", "one by one", "plain"])
def test_calls_of_codex_are_the_same_however_they_come(db, way):
    create(db)
    if way == "at once":
        append(db, ID, *CODEX)
    for item in CODEX if way == "one by one" else ():
        append(db, ID, item)
    for item in CODEX if way == "plain" else ():
        db.execute("INSERT INTO rollout_items(rollout, type, payload, timestamp) VALUES"
                   " (?, ?, ?, unixepoch(?) * 1000)",
                   (ID, item["type"], json.dumps(item["payload"]), item["timestamp"]))
    derive(db)
    assert rows(db, FAILED) == [("shell", "make", "Exit code: 2\nno", 2000)]
    assert rows(db, EDITED) == [("x.c",), ("y.c",)]
    before = rows(db, "SELECT * FROM rollout_tool_calls ORDER BY n, file")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollout_tool_calls ORDER BY n, file") == before
    well(db)


def test_a_fork_shows_messages_and_the_calls_stay_with_who_made_them(db):
    create(db)
    append(db, ID, user("one"), *CODEX)
    one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    assert sorted(rows(db, "SELECT rollout, text FROM rollout_messages")) == [
        (OTHER, "one"), (ID, "one")]
    assert {r for r, in rows(db, "SELECT rollout FROM rollout_tool_calls")} == {ID}
    one(db, "SELECT rollout_delete(?)", ID)
    assert rows(db, "SELECT rollout, text FROM rollout_messages") == [(OTHER, "one")]
    assert {r for r, in rows(db, "SELECT rollout FROM rollout_tool_calls")} == {None}
    one(db, "SELECT rollout_delete(?)", OTHER)
    assert rows(db, "SELECT * FROM rollout__texts") == []


def test_a_damaged_payload_has_no_text_and_stops_nothing(db):
    load(db, CLAUDE)
    db.execute("DROP TRIGGER rollout_data_update")
    db.execute("UPDATE rollout__data SET payload = '{damaged' WHERE id & 4294967295 = 2")
    assert rows(db, FAILED) == [("Bash", None, "no", 2000)]
    assert rows(db, "SELECT role, text FROM rollout_messages ORDER BY n") == [
        ("user", "do it"), ("assistant", None)]
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, FAILED) == rows(db, EDITED) == []
    assert rows(db, "SELECT role, text FROM rollout_messages") == [("user", "do it")]


def test_a_redacted_call_keeps_its_result_and_loses_its_file(db):
    load(db, CLAUDE)
    db.execute("UPDATE rollout_items SET payload = replace(payload, '/w/a.c', '-') "
               "WHERE sequence = 2")
    assert rows(db, EDITED) == [(None,)]
    load(db, lines({"type": "user", "sessionId": "t", "message": {"role": "user", "content": "x"}}))
    assert rows(db, EDITED) == [("-",)]
    assert rows(db, FAILED) == [("Bash", "make", "no", 2000)]


@pytest.mark.parametrize("sql", [
    "DELETE FROM rollout__texts WHERE tool = 'Bash'", "UPDATE rollout__texts SET file = 'z'",
    "UPDATE rollout__texts SET place = '$.x' WHERE role = 'user'",
    "INSERT INTO rollout__texts(id, role) VALUES ((1 << 32) + 1, 'user')"])
def test_the_check_finds_wrong_texts_and_a_rebuild_repairs_them(db, sql):
    load(db, CLAUDE)
    before = rows(db, "SELECT * FROM rollout_tool_calls")
    db.execute(sql)
    assert [p for p in problems(db) if "what it says is not in rollout__texts" in str(p)]
    one(db, "SELECT rollout_rebuild()")
    assert problems(db) == []
    assert rows(db, "SELECT * FROM rollout_tool_calls") == before


@pytest.mark.parametrize("sql, index", [
    (FAILED, "rollout_call"), (EDITED, "rollout_call"),
    (f"SELECT text FROM rollout_messages WHERE rollout = '{ID}'", "rollout_text"),
    (f"SELECT tool FROM rollout_tool_calls WHERE rollout = '{ID}'", "rollout_text")])
def test_a_question_is_answered_by_an_index(db, sql, index):
    plan = [row[-1] for row in rows(db, "EXPLAIN QUERY PLAN " + sql)]
    assert any(f"USING INDEX {index} (" in step for step in plan), plan
    assert not any("AUTOMATIC" in step or step in ("SCAN t", "SCAN d") for step in plan), plan


def output(call):
    return {"type": "response_item", "payload": {"type": "function_call_output", "call_id": call,
                                                 "output": "out of " + call}}


def call(name):
    return {"type": "response_item", "payload": {"type": "function_call", "call_id": name,
                                                 "name": "shell", "arguments": "{}"}}


OUTPUTS = "SELECT call_id, output FROM rollout_tool_calls WHERE output IS NOT NULL"


def test_among_results_without_calls_one_finds_an_earlier_call(db):
    create(db)
    append(db, ID, call("early"))
    append(db, ID, *(output(f"none {i}") for i in range(20)), output("early"))
    assert rows(db, OUTPUTS) == [("early", "out of early")]
    append(db, ID, call("far"), *(call(str(i)) for i in range(1990)),
           *(output(f"none {i}") for i in range(8)), output("far"))
    assert rows(db, OUTPUTS + " AND call_id = 'far'") == [("far", "out of far")]
    well(db)


def test_results_without_calls_take_a_bounded_time_each(db):
    create(db)
    append(db, ID, *(output(f"none {i}") for i in range(2500)))
    steps = 0

    def count():
        nonlocal steps
        steps += 1000
    db.set_progress_handler(count, 1000)
    append(db, ID, *(output(f"more {i}") for i in range(500)))
    db.set_progress_handler(None, 0)
    assert steps < 500 * 600


def parts(kind, *content, name="content"):
    return {"type": kind, "message": {"role": kind, name: [*content]}}


GIVEN = {"command": "make"}
# format: a call, and its result that says that it failed
FORMS = {
    "atif": ({"type": "agent", "step_id": 1, "tool_calls": [
        {"tool_call_id": "a", "function_name": "sh", "arguments": GIVEN}]},
        {"type": "agent", "step_id": 2, "observation": {"results": [
            {"source_call_id": "a", "content": "no", "extra": {"is_error": True}}]}}),
    "copilot": ({"type": "tool.execution_start", "data": {
        "toolCallId": "a", "toolName": "sh", "arguments": GIVEN}},
        {"type": "tool.execution_complete", "data": {
            "toolCallId": "a", "success": False, "error": {"message": "no"}}}),
    "cursor": ({"type": "bubble", "row": {"value": {"toolFormerData": {
        "toolCallId": "a", "name": "sh", "rawArgs": json.dumps(GIVEN), "result": "no", "status": "error"}}}},),
    "gemini": ({"type": "gemini", "toolCalls": [{"id": "a", "name": "sh", "args": GIVEN, "status": "error",
                                                 "resultDisplay": "no"}]},),
    "grok": ({"type": "tool_call", "params": {"update": {"toolCallId": "a", "title": "sh", "rawInput": GIVEN}}},
             {"type": "tool_call_update", "params": {"update": {
                 "toolCallId": "a", "status": "failed", "content": [{"content": {"text": "no"}}]}}}),
    "kimi": ({"type": "tool.call", "event": {"toolCallId": "a", "toolName": "sh", "args": GIVEN}},
             {"type": "tool.result", "event": {"toolCallId": "a", "result": {"output": "no", "isError": True}}}),
    "kiro": ({"type": "AssistantMessage", "data": {"content": [
        {"kind": "toolUse", "data": {"toolUseId": "a", "name": "sh", "input": GIVEN}}]}},
        {"type": "ToolResults", "data": {"content": [
            {"kind": "toolResult", "data": {"toolUseId": "a", "content": "no", "status": "error"}}]}}),
    "opencode": ({"type": "part", "row": {"data": {"type": "tool", "callID": "a", "tool": "sh", "state": {
        "input": GIVEN, "error": "no", "status": "error"}}}},),
    "openhands": ({"type": "ActionEvent", "tool_call_id": "a", "tool_name": "sh", "action": GIVEN},
                  {"type": "ObservationEvent", "tool_call_id": "a", "observation": {
                      "content": "no", "is_error": True}}),
    "pi": (parts("assistant", {"type": "toolCall", "id": "a", "name": "sh", "arguments": GIVEN}) | {"type": "message"},
           {"type": "message", "message": {"role": "toolResult", "toolCallId": "a", "isError": True,
                                           "content": [{"type": "text", "text": "no"}]}}),
    "qwen": (parts("assistant", {"functionCall": {"id": "a", "name": "sh", "args": GIVEN}}, name="parts"),
             parts("tool_result", {"functionResponse": {"id": "a", "response": {"error": "no"}}}, name="parts")),
    "AI SDK": ({"type": "assistant", "content": [
        {"type": "tool-call", "toolCallId": "a", "toolName": "sh", "input": GIVEN}]},
        {"type": "tool", "content": [{"type": "tool-result", "toolCallId": "a", "isError": True,
                                      "output": {"type": "error-text", "value": "no"}}]}),
    "OpenAI": ({"type": "assistant", "content": None, "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "sh", "arguments": json.dumps(GIVEN)}}]},
        {"type": "tool", "tool_call_id": "a", "content": "Exit code: 1 no"}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["at once", "one by one"])
def test_calls_of_each_form_are_rows_of_one_form(db, form, way):
    create(db)
    db.execute("UPDATE blackbox_settings SET value = 'everything' WHERE name = 'rollout.policy'")
    items = [{"type": line["type"], "payload": line, "timestamp": AT % i}
             for i, line in enumerate(FORMS[form], 1)]
    for batch in [items] if way == "at once" else [[item] for item in items]:
        append(db, ID, *batch)
    found = rows(db, "SELECT n, tool, input ->> 'command', substr(output, -2), is_error, duration, call_id "
                     "FROM rollout_tool_calls")
    took = (len(items) - 1) * 1000
    assert [row[:5] for row in found] == [(1, "sh", "make", "no", 1)], found
    assert found[0][5:] in ((took, "a"), (None, "a"), (took, None), (None, None))
    well(db)
