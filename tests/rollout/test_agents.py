"""The files of more agents: found, told apart, read and given back, by rows of formats.

The samples were made for these tests, in the forms that the agents write."""
import json
import random

import pytest

from rollout_helpers import AT, exported, exported_as_parent, lines, well
from conftest import one, rows

ID = "11111111-1111-4111-8111-111111111111"
MS = 1784278800000


def text(what, **more):
    return {"type": "text", "text": what, **more}


def claude(i, role, content):
    return {"type": role, "sessionId": ID, "uuid": f"u{i}", "parentUuid": f"u{i - 1}" if i else None,
            "timestamp": AT % i, "cwd": "/w", "message": {"role": role, "content": content}}


def steps(*steps):
    return [{"status": "done", "type": kind, kind: value} for kind, value in steps]


def event(i, kind, **more):
    return json.dumps({"id": f"e{i}", "timestamp": f"2026-07-17T09:00:0{i}.123456", "kind": kind, **more}, indent=2)


def request(i, prompt, *response, **more):
    return {"requestId": f"r{i}", "message": {"text": prompt, "parts": []}, "response": list(response),
            "timestamp": MS + i, "modelId": "copilot/m", **more}


PROMPT_META = {"result": {"metadata": {"promptTokens": 7, "outputTokens": 3, "resolvedModel": "m-1"}}}
POSIT = {"providerOptions": {"providerMetadata": {"positai": {
    "timestamp": MS + 1, "modelId": "m", "usage": {
        "inputTokens": 10, "outputTokens": 5, "cacheReadTokens": 2, "cacheWriteTokens": 1}}}}}

# format: the files by their paths, what lists show, the roles of the context, and the tokens
AGENTS = {
    "grok-chat": ({"grok/sessions/%2Fw%2Fapp/g1/chat_history.jsonl": lines(
        {"type": "system", "content": "be brief"},
        {"type": "user", "content": [text("<user_info>\nOS\n</user_info>")], "synthetic_reason": "info"},
        {"type": "user", "content": [text("hi")]},
        {"type": "assistant", "content": "I look.", "model_id": "g", "tool_calls": [
            {"id": "t", "name": "read_file", "arguments": "{}"}]},
        {"type": "tool_result", "tool_call_id": "t", "content": "out"})},
        (1, "hi", "/w/app", None, "g"), ["user", "user", "assistant", "tool"], None),
    "kiro": ({f"kiro/sessions/cli/{ID}.json": json.dumps(
        {"session_id": ID, "cwd": "/w", "title": "named", "created_at": AT % 0, "updated_at": AT % 3}, indent=2),
        f"kiro/sessions/cli/{ID}.jsonl": lines(
        {"version": "v1", "kind": "Prompt", "data": {"message_id": "1", "content": [
            {"kind": "text", "data": "hi"}], "meta": {"timestamp": 1784278801}}},
        {"version": "v1", "kind": "AssistantMessage", "data": {"message_id": "2", "content": [
            {"kind": "text", "data": "I look."},
            {"kind": "toolUse", "data": {"toolUseId": "t", "name": "shell", "input": {"command": "ls"}}}]}},
        {"version": "v1", "kind": "ToolResults", "data": {"message_id": "3", "content": [
            {"kind": "toolResult", "data": {"toolUseId": "t", "status": "success",
                                            "content": [{"kind": "text", "data": "out"}]}}]}})},
        (1, "hi", "/w", "named", None), ["user", "assistant"], None),
    "kiro-ide": ({"ws/sess_0123/messages.jsonl": lines(
        {"timestamp": AT % 0, "payload": {"type": "user", "content": "hi"}},
        {"timestamp": AT % 1, "payload": {"type": "assistant", "content": "yes", "reasoningModelId": "k"}},
        {"timestamp": AT % 2, "payload": {"type": "tool_call", "toolName": "x", "toolCallId": "t", "args": {}}},
        {"timestamp": AT % 3, "payload": {"type": "tool_result", "toolCallId": "t", "content": "out"}})},
        (1, "hi", "", None, "k"), ["user", "assistant"], None),
    "gptme": ({"logs/2026-07-17-some-topic/conversation.jsonl": lines(
        {"role": "system", "content": "be brief", "timestamp": "2026-07-17T09:00:00.000001"},
        {"role": "user", "content": "hi", "timestamp": "2026-07-17T09:00:01.000001"},
        {"role": "assistant", "content": "yes", "timestamp": "2026-07-17T09:00:02.000001", "metadata": {
            "model": "m", "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 2,
                                    "cache_creation_tokens": 1}}})},
        (1, "hi", "", None, "m"), ["system", "user", "assistant"], (10, 1, 2, 5)),
    "vibe": ({"logs/session/session_20260717_090000_ab/messages.jsonl": lines(
        {"role": "user", "content": "hi", "message_id": "1"},
        {"role": "assistant", "content": "", "message_id": "2", "tool_calls": [
            {"id": "t", "index": 0, "function": {"name": "bash", "arguments": "{}"}}]},
        {"role": "tool", "content": "out", "name": "bash", "tool_call_id": "t"}),
        "logs/session/session_20260717_090000_ab/meta.json": json.dumps(
        {"session_id": "ab", "start_time": AT % 0, "git_branch": "main", "title": "named",
         "environment": {"working_directory": "/w"}, "config": {"active_model": "m"}}, indent=2)},
        (1, "hi", "/w", "named", "m"), ["user", "assistant", "tool"], None),
    "qwenpaw": ({"qwenpaw/ws/sessions/console/u1.json": json.dumps({"agent": {"memory": {"content": [
        [{"id": "1", "name": "user", "role": "user", "content": [text("hi")],
          "timestamp": "2026-07-17 09:00:00.000"}, []],
        [{"id": "2", "name": "Paw", "role": "assistant", "timestamp": "2026-07-17 09:00:01.000", "content": [
            text("I look."), {"type": "tool_use", "id": "t", "name": "ls", "input": {}, "raw_input": "{}"}]}, []],
        [{"id": "3", "name": "system", "role": "system", "timestamp": "2026-07-17 09:00:02.000", "content": [
            {"type": "tool_result", "id": "t", "name": "ls", "output": [text("out")]}]}, []]]}}})},
        (1, "hi", "", None, None), ["user", "assistant", "system"], None),
    "posit": ({f"workspaces/a1b2/{ID}/conversation.json": json.dumps(
        {"schemaVersion": "3", "root": {"id": ID, "title": "named", "timestamp": MS,
                                        "metadata": {"kind": "main", "model": {"id": "m"}}},
         "messages": [{"id": "n1", "parentId": ID, "isActive": True, "lmMessageIds": [0, 1]}], "files": []},
        indent=2), f"workspaces/a1b2/{ID}/lm-messages.jsonl": lines(
        {"id": 0, "message": {"role": "user", "content": "hi"}},
        {"id": 1, "message": {"role": "assistant", "content": [text("I look."), {
            "type": "tool-call", "toolCallId": "t", "toolName": "read", "input": {}}], **POSIT}},
        {"id": 2, "message": {"role": "tool", "content": [{
            "type": "tool-result", "toolCallId": "t", "output": {"type": "text", "value": "out"}}]}})},
        (1, "hi", "", "named", "m"), ["user", "assistant", "tool"], (10, 1, 2, 5)),
    "openhands": ({"conversations/086c7ecf/base_state.json": json.dumps(
        {"id": "086c7ecf", "agent": {"llm": {"model": "m"}}, "workspace": {"working_dir": "/w"}}),
        "conversations/086c7ecf/events/event-00000-a.json": event(
            0, "MessageEvent", source="user", llm_message={"role": "user", "content": [text("hi")]}),
        "conversations/086c7ecf/events/event-00001-b.json": event(
            1, "ActionEvent", source="agent", thought=[text("I look.")], tool_name="terminal", tool_call_id="t",
            action={"command": "ls", "kind": "TerminalAction"}),
        "conversations/086c7ecf/events/event-00002-c.json": event(
            2, "ObservationEvent", source="environment", tool_call_id="t", action_id="e1",
            observation={"content": [text("out")], "kind": "TerminalObservation"}),
        "conversations/086c7ecf/events/event-00003-d.json": event(
            3, "MessageEvent", source="agent", llm_message={"role": "assistant", "content": [text("yes")]})},
        (1, "hi", "/w", None, "m"), ["user", "assistant"], None),
    "copilot-chat": ({f"workspaceStorage/h/chatSessions/{ID}.json": json.dumps(
        {"version": 3, "sessionId": ID, "creationDate": MS, "customTitle": "named", "requests": [
            request(1, "hi", {"value": "yes"}, {"kind": "toolInvocationSerialized", "toolId": "copilot_readFile",
                                                "toolCallId": "t"}, **PROMPT_META)]}, indent=2)},
        (1, "hi", "", None, "copilot/m"), ["user", "assistant"], (7, 0, 0, 3)),
    "amp": ({f"threads/T-{ID}.json": json.dumps(
        {"v": 5, "id": f"T-{ID}", "created": MS, "title": "named", "messages": [
            {"role": "user", "messageId": 0, "content": [text("hi")]},
            {"role": "assistant", "messageId": 1, "content": [
                text("I look."), {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}],
             "usage": {"model": "m", "inputTokens": 10, "outputTokens": 5, "cacheReadInputTokens": 2,
                       "cacheCreationInputTokens": 1, "timestamp": AT % 1}},
            {"role": "user", "messageId": 2, "content": [{
                "type": "tool_result", "toolUseID": "t", "run": {"status": "done", "result": {"output": "out"}}}]}]})},
        (1, "hi", "", None, "m"), ["user", "assistant", "user"], (10, 1, 2, 5)),
    "windsurf": ({f".windsurf/transcripts/{ID}.jsonl": lines(*steps(
        ("user_input", {"user_response": "hi"}), ("planner_response", {"response": "yes"}),
        ("code_action", {"path": "a.py", "new_content": "x"})))},
        (1, "hi", "", None, None), ["user", "assistant"], None),
    "zencoder": ({f".zencoder/sessions/{ID}.jsonl": lines(
        {"id": ID, "chatId": "c", "modelId": "m", "creationReason": "newChat", "createdAt": AT % 0, "updatedAt": AT % 1},
        {"role": "system", "content": "Working directory: /w"},
        {"role": "user", "content": [text("hi", tag="user-input")], "createdAt": AT % 1},
        {"role": "assistant", "content": [text("I look."), {
            "type": "tool-call", "toolCallId": "t", "toolName": "Read", "input": {}}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "t", "content": [text("out")]}]},
        {"role": "finish", "reason": "endTurn"})},
        (1, "hi", "", None, None), ["user", "assistant", "tool"], None),
    "qoder": ({f".qoder/projects/-w/{ID}.jsonl": lines(
        claude(0, "user", "hi"), claude(1, "assistant", [text("I look."), {
            "type": "tool_use", "id": "t", "name": "Read", "input": {}}]),
        claude(2, "user", [{"type": "tool_result", "tool_use_id": "t", "content": "out"}]))},
        (1, "hi", "/w", None, None), ["user", "assistant", "user"], None),
}
TOOL = {"kiro", "kiro-ide", "grok-chat", "vibe", "qwenpaw", "posit", "openhands", "amp", "zencoder", "qoder"}


def walk(db, folder):
    report = json.loads(one(db, "SELECT rollout_import_dir(?)", str(folder)))
    assert (report["unknown"], report["failed"], report["bad"], report["errors"]) == (0, 0, 0, [])
    return report["new"]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_lands_as_itself(db, tmp_path, name):
    files, shown, roles, tokens = AGENTS[name]
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(data)
    assert walk(db, tmp_path) > 0
    assert rows(db, "SELECT format, turns, first_user_message, cwd, title, model FROM rollouts") == [
        (name, *shown)]
    rollout, source = rows(db, "SELECT id, coalesce(source_id, id) FROM rollouts")[0]
    assert source.replace(str(tmp_path), "") in "/".join(["", *files])  # the id that the agent gave it, or its path
    data = exported(db, rollout).decode()
    assert len(data) == sum(map(len, files.values())) and all(f in data for f in files.values())
    db.execute("UPDATE rollout_sources SET mtime = 0")
    assert walk(db, tmp_path) == 0
    assert exported(db, rollout).decode() == data
    assert [t for t, in rows(db, "SELECT type FROM rollout_context(?)", rollout)] == roles
    assert rows(db, "SELECT * FROM rollout_orphans(?)", rollout) == []
    found = {(r, t) for r, t in rows(db, "SELECT fact, value FROM rollout_facts WHERE fact IN "
                                     "('user', 'assistant', 'tool')")}
    assert ("user", "hi") in found
    assert (("tool", "out") in found) == (name in TOOL)
    assert ("assistant", "yes") in found or ("assistant", "I look.") in found or name == "vibe"
    assert rows(db, "SELECT input_fresh, cache_write, cache_read, output FROM rollout_usage") == (
        [tokens] if tokens else [])
    well(db)


LOG = [{"kind": 0, "v": {"version": 3, "sessionId": ID, "creationDate": MS, "requests": []}},
       {"kind": 2, "k": ["requests"], "v": [request(1, "hi")]},
       {"kind": 2, "k": ["requests", 0, "response"], "v": [{"value": "yes"}, {"value": "no"}]},
       {"kind": 1, "k": ["requests", 0, "result"], "v": PROMPT_META["result"]},
       {"kind": 1, "k": ["customTitle"], "v": "named"},
       {"kind": 2, "k": ["requests"], "v": [request(2, "more", {"value": "wel"})]},
       {"kind": 2, "k": ["requests", 1, "response"], "v": [{"value": "well"}], "i": 0},
       {"kind": 1, "k": ["requests", 1, "modelId"], "v": "copilot/other"},
       {"kind": 1, "k": ["requests", 1, "vote"]}, {"kind": 3, "k": ["requests", 1, "agent"]}]


def requests(db, rollout=ID):
    return [json.loads(p) for p, in rows(
        db, "SELECT payload FROM rollout_items WHERE rollout = ? AND sequence > 0 ORDER BY sequence", rollout)]


def test_the_changes_of_a_chat_of_copilot_are_made(db, tmp_path):
    file = tmp_path / "chatSessions" / f"{ID}.jsonl"
    file.parent.mkdir()
    file.write_text(lines(*LOG))
    assert walk(db, tmp_path) == 2
    assert rows(db, "SELECT id, format, turns, first_user_message, model FROM rollouts") == [
        (ID, "copilot-chat", 2, "hi", "copilot/other")]
    assert requests(db) == [request(1, "hi", {"value": "yes"}, {"value": "no"}, **PROMPT_META),
                            request(2, "more", {"value": "well"}, modelId="copilot/other")]
    assert rows(db, "SELECT input_fresh, output, model FROM rollout_usage") == [(7, 3, "m-1")]
    assert exported(db, ID).decode() == lines(*LOG)
    again = json.loads(one(db, "SELECT rollout_import(?, ?)", lines(*LOG), str(file)))
    assert (again["lines"], again["items"], again["new"], again["bad"]) == (10, 2, 0, 0)
    well(db)


def test_a_chat_of_copilot_that_grows_has_each_request_once(db, tmp_path):
    file = tmp_path / f"{ID}.jsonl"
    log = [*LOG, {"kind": 2, "k": ["requests"], "v": [request(3, "more")]},
           {"kind": 1, "k": ["requests", 2, "response"], "v": [{"value": "end"}]}]
    for n in range(1, len(log) + 1):
        file.write_text(lines(*log[:n]))
        walk(db, tmp_path)
        assert exported(db, ID).decode() == lines(*log[:n])
    assert [c for c, in rows(db, "SELECT payload ->> '$.content' FROM rollout_context(?) WHERE type = 'user'", ID)
            ] == ["hi", "more", "more"]
    assert rows(db, "SELECT turns, first_user_message FROM rollouts") == [(3, "hi")]
    assert rows(db, "SELECT sum(input_fresh) FROM rollout_usage") == [(7,)]
    # VS Code writes the file anew, as one value, when it has many changes
    whole = json.dumps({"kind": 0, "v": {**LOG[0]["v"], "requests": requests(db)[-1:]}}) + "\n"
    file.write_text(whole)
    assert walk(db, tmp_path) == 1 and exported(db, ID).decode() == whole  # it has spaces now
    assert rows(db, "SELECT turns FROM rollouts") == [(3,)]
    well(db)


def test_what_is_no_change_of_a_chat_is_bad_and_kept(db, tmp_path):
    odd = [{"kind": 2, "k": ["requests", 9, "response"], "v": []}, {"kind": 1, "k": [], "v": 1}, {"kind": 7},
           {"kind": 1, "k": ["a", "b"], "v": 1}, {"kind": 2, "k": ["requests"], "v": 5}, {"kind": 0, "v": []},
           {"kind": 2, "k": ["requests"], "i": 7}, {"kind": 1, "k": ["requests", "x"], "v": 1}, [1], "x",
           {"kind": 1, "k": ["version"] * 200, "v": 1}, {"kind": 1, "k": [["requests"]], "v": 1}]
    data = "\ufeff" + lines(*LOG[:2], *odd) + "\n" + lines(LOG[2]) + '{"kind":1,"k":["requests"'
    report = json.loads(one(db, "SELECT rollout_import(?)", data))
    assert (report["items"], report["bad"], report["lines"]) == (1, len(odd) + 1, len(odd) + 5)
    assert [e["line"] for e in report["errors"]] == [*range(3, len(odd) + 3), len(odd) + 5]
    assert requests(db) == [request(1, "hi", {"value": "yes"}, {"value": "no"})]
    assert exported(db, ID).decode() == data
    raw = data.encode().replace(b"yes", b"y\xff")
    db.execute("DELETE FROM rollouts")
    assert json.loads(one(db, "SELECT rollout_import(?)", raw))["new"] == 1
    assert requests(db)[0]["response"][0] == {"value": "y\ufffd"} and exported(db, ID) == raw
    well(db)


def test_a_fork_of_a_chat_of_copilot_has_its_requests_alone(db):
    one(db, "SELECT rollout_import(?)", lines(*LOG))
    whole, part = one(db, "SELECT rollout_fork(?)", ID), one(db, "SELECT rollout_fork(?, 1)", ID)
    assert exported_as_parent(db, whole).decode() == lines(*LOG)
    assert [json.loads(line) for line in exported(db, part).decode().splitlines()] == requests(db)[:1]


def change(state, entry):
    """A change as VS Code makes it, of what is there."""
    if entry["kind"] == 0:
        return entry["v"]
    here = state
    for step in entry["k"][:-1]:
        here = here[step]
    last = entry["k"][-1]
    if entry["kind"] == 1:
        here[last] = entry["v"]
    elif entry["kind"] == 3:
        del here[last]
    else:
        values = here[last] or []
        here[last] = values[:entry.get("i", len(values))] + entry.get("v", [])
    return state


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_make_what_vs_code_makes(db, seed):
    chance = random.Random(seed)
    names = ["a", "b c", 'q"', "\u00e9\u4e2d", "\\", "message"]

    def value(deep=3):
        kind = chance.randrange(6 if deep else 4)
        if kind == 4:
            return {chance.choice(names): value(deep - 1) for _ in range(3)}
        if kind == 5:
            return [value(deep - 1) for _ in range(chance.randrange(4))]
        return [chance.randrange(100), None, chance.choice(names) * 3, True][kind]

    def place(here):
        steps = []
        while True:
            inside = list(here) if isinstance(here, dict) else list(range(len(here)))
            step = chance.choice(inside)
            steps.append(step)
            if not isinstance(here[step], (dict, list)) or not here[step] or chance.random() < 0.3:
                return steps
            here = here[step]

    state = {"sessionId": ID, "creationDate": MS, "requests": [
        {"requestId": f"r{i}", "x": value(), "response": [value()]} for i in range(3)]}
    log = [{"kind": 0, "v": json.loads(json.dumps(state))}]
    for _ in range(40):
        where = ["requests", *place(state["requests"])]
        here = state
        for step in where:
            here = here[step]
        if where[-1] == "requestId" or len(where) == 2:
            continue
        if isinstance(here, list) or here is None:
            entry = {"kind": 2, "k": where, "v": [value() for _ in range(chance.randrange(3))]}
            if isinstance(here, list) and chance.random() < 0.4:
                entry["i"] = chance.randrange(len(here) + 1)
        elif isinstance(where[-1], str) and chance.random() < 0.2:
            entry = {"kind": 3, "k": where}
        elif isinstance(here, dict) and chance.random() < 0.5:
            entry = {"kind": 1, "k": [*where, chance.choice(names)], "v": value()}
        else:
            entry = {"kind": 1, "k": where, "v": value()}
        log.append(entry)
        state = change(state, json.loads(json.dumps(entry)))
    text = "".join(json.dumps(e, ensure_ascii=chance.random() < 0.5, separators=chance.choice(
        [(",", ":"), (" , ", " : ")])) + "\n" for e in log)
    report = json.loads(one(db, "SELECT rollout_import(?)", text))
    assert report["bad"] == 0 and exported(db, ID).decode() == text
    assert requests(db) == state["requests"]


def test_the_store_of_warp_is_read(db):
    db.executescript("""
        ATTACH ':memory:' AS theirs;
        CREATE TABLE theirs.agent_conversations(id, conversation_id, conversation_data, last_modified_at);
        CREATE TABLE theirs.ai_queries(id, exchange_id, conversation_id, start_ts, input, working_directory,
                                       output_status, model_id);
        INSERT INTO theirs.agent_conversations VALUES (1, 'c1', '{"a":1}', '2026-07-17 09:00:09');
        INSERT INTO theirs.ai_queries VALUES
          (2, 'e2', 'c1', '2026-07-17 09:00:02.000000', '[{"ActionResult":{}}]', '/w', '"Completed"', 'auto'),
          (1, 'e1', 'c1', '2026-07-17 09:00:01.000000', '[{"Query":{"text":"hi","context":[]}}]', '/w',
           '"Completed"', 'auto-genius'), (3, 'e3', 'c2', '2026-07-17 09:00:03', '[]', NULL, NULL, NULL);""")
    report = json.loads(one(db, "SELECT rollout_import_from('warp', 'theirs')"))
    assert (report["format"], report["new"], report["bad"]) == ("warp", 5, 0)
    assert rows(db, "SELECT source_id, turns, first_user_message, cwd, model FROM rollouts ORDER BY 1") == [
        ("c1", 1, "hi", "/w", "auto"), ("c2", 0, None, "", None)]
    assert json.loads(one(db, "SELECT rollout_import_from('warp', 'theirs')"))["new"] == 0
    well(db)
