"""rollout_export(id, format): what others read, and ATIF back again."""
import gzip
import json
import random
import sqlite3

import pytest

from rollout_helpers import ID, append, create, exported, lines, load, message, user
from conftest import DATA, needs_data, one, problems, rows

RECORDED = sorted(DATA.glob("rollouts/*/*")) + sorted(
    path for path in DATA.glob("formats/*/**/*") if path.suffix == ".jsonl")


def export(db, kind, rollout=ID):
    return one(db, "SELECT rollout_export(?, ?)", rollout, kind)


def atif(db, rollout=ID):
    return json.loads(export(db, "atif", rollout))


def spans(db, rollout=ID):
    trace = json.loads(export(db, "otlp", rollout))
    (resource,) = trace["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    return scope["spans"]


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


STEP = {"step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content",
        "tool_calls", "observation", "metrics", "llm_call_count", "is_copied_context", "extra"}


def valid_atif(whole):
    """What version 1.8 of the format asks for."""
    assert whole["schema_version"] == "ATIF-v1.8"
    assert not set(whole) - {"schema_version", "session_id", "trajectory_id", "agent", "steps", "notes",
                             "final_metrics", "continued_trajectory_ref", "extra", "subagent_trajectories"}
    assert {"name", "version"} <= set(whole["agent"]) <= {"name", "version", "model_name", "tool_definitions", "extra"}
    assert [step["step_id"] for step in whole["steps"]] == list(range(1, len(whole["steps"]) + 1))
    for step in whole["steps"]:
        assert not set(step) - STEP
        assert step["source"] in ("system", "user", "agent") and isinstance(step["message"], (str, list))
        if step["source"] != "agent":
            assert not {"model_name", "reasoning_content", "tool_calls", "metrics"} & set(step)
        ids = [call["tool_call_id"] for call in step.get("tool_calls", [])]
        assert len(ids) == len(set(ids))
        for call in step.get("tool_calls", []):
            assert call["function_name"] and isinstance(call["arguments"], dict)
        for result in step.get("observation", {"results": []})["results"]:
            assert result.get("source_call_id", None) in (*ids, None)
    assert whole["final_metrics"]["total_steps"] == len(whole["steps"])
    return whole


CLAUDE = [
    {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Fix <b>it</b> ![x](http://y)"}},
    {"type": "assistant", "uuid": "a1", "requestId": "r1", "message": {
        "id": "m1", "role": "assistant", "model": "claude-opus-4-5", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "I read `<a>` first.\n```\n<b>\n"},
            {"type": "tool_use", "id": "t1", "name": "Edit", "input": {
                "file_path": "/w/a.c", "old_string": "one\ntwo\nthree", "new_string": "one\n2\nthree"}},
            {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "make ```"}}],
        "usage": {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 3,
                  "output_tokens": 7}}},
    {"type": "user", "uuid": "u2", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "broken"}],
         "is_error": True},
        {"type": "tool_result", "tool_use_id": "t1", "content": "done"}]}},
    {"type": "assistant", "uuid": "a2", "requestId": "r2", "message": {
        "id": "m2", "role": "assistant", "model": "claude-opus-4-5", "content": [{"type": "text", "text": "Done."}],
        "usage": {"input_tokens": 1, "output_tokens": 2}}},
]


def claude(db):
    return load(db, lines(*({"sessionId": ID, "version": "2.1.0", "cwd": "/w",
                             "timestamp": "2026-07-17T09:00:%02dZ" % i, **item}
                            for i, item in enumerate(CLAUDE))))


def test_atif_has_steps_with_calls_results_and_tokens(db):
    claude(db)
    whole = valid_atif(atif(db))
    assert whole["agent"] == {"name": "claude-code", "version": "2.1.0", "model_name": "claude-opus-4-5"}
    ask, work, end = whole["steps"]
    assert (ask["source"], ask["message"]) == ("user", CLAUDE[0]["message"]["content"])
    assert work["reasoning_content"] == "Hm." and work["timestamp"] == "2026-07-17T09:00:01.000Z"
    assert [call["function_name"] for call in work["tool_calls"]] == ["Edit", "Bash"]
    assert work["observation"]["results"] == [
        {"source_call_id": "t1", "content": "done"},
        {"source_call_id": "t2", "content": "broken", "extra": {"is_error": True}}]
    assert work["metrics"] == {"prompt_tokens": 123, "completion_tokens": 7, "cached_tokens": 3,
                               "extra": {"cache_write_tokens": 20, "reasoning_tokens": 0}}
    assert (end["message"], end["llm_call_count"], end["extra"]) == ("Done.", 1, {"sequence": 4})
    assert whole["final_metrics"]["total_prompt_tokens"] == 124
    assert whole["extra"]["cwd"] == "/w"


def test_markdown_folds_tools_and_shows_edits_as_diffs(db):
    claude(db)
    text = export(db, "markdown")
    assert "## User, 2026-07-17 09:00\n\nFix &lt;b>it&lt;/b> !\\[x](http://y)\n\n## Agent, " in text
    assert "I read `<a>` first.\n```\n<b>\n\n```\n\n" in text
    assert ("<details><summary>Edit: /w/a.c</summary>\n\n```diff\n one\n-two\n+2\n three\n```\n\n"
            "```\ndone\n```\n\n</details>") in text
    assert "<summary>Bash: make ``` (failed)</summary>\n\n````\nmake ```\n````\n\n```\nbroken\n```" in text
    assert "- Tokens: 124 read, 9 written" in text and text.count("<details>") == text.count("</details>") == 3


@pytest.mark.parametrize("old, new, lines_", [
    ("a", "b", "-a\n+b\n"), ("", "a\nb", "+a\n+b\n"), ("a\nb", "", "-a\n-b\n"), ("a\n", "a\nb\n", " a\n+b\n"),
    ("x\na\ny", "x\ny", " x\n-a\n y\n"), ("a", "a", " a\n"), ("b", "a\nb", "-b\n+a\n+b\n"), ("a\na", "a", None),
])
def test_a_diff_has_the_lines_of_both_texts(db, old, new, lines_):
    create(db)
    append(db, ID, {"type": "response_item", "payload": {
        "type": "function_call", "name": "edit", "call_id": "c",
        "arguments": json.dumps({"old_string": old, "new_string": new})}})
    text = export(db, "markdown")
    diff = text.split("```diff\n")[1].split("```")[0]
    assert lines_ in (None, diff)
    shown = [l for l in diff.splitlines()]
    assert [l[1:] for l in shown if l[0] != "+"] == old.splitlines()
    assert [l[1:] for l in shown if l[0] != "-"] == new.splitlines()


def test_otlp_has_a_span_for_each_call_of_a_model_and_of_a_tool(db):
    claude(db)
    agent, first, edit, bash, last = spans(db)
    assert [s["name"] for s in (agent, first, edit, bash, last)] == [
        "invoke_agent claude-code", "chat claude-opus-4-5", "execute_tool Edit", "execute_tool Bash",
        "chat claude-opus-4-5"]
    assert len({s["spanId"] for s in spans(db)}) == 5 and {len(s["spanId"]) for s in spans(db)} == {16}
    assert {s["traceId"] for s in spans(db)} == {ID.replace("-", "")} and "parentSpanId" not in agent
    assert all(s["parentSpanId"] == agent["spanId"] for s in spans(db)[1:])
    assert all(s["endTimeUnixNano"] >= s["startTimeUnixNano"] for s in spans(db))
    said = attributes(first)
    assert (said["gen_ai.provider.name"], said["gen_ai.operation.name"], said["gen_ai.usage.input_tokens"],
            said["gen_ai.usage.cache_write.input_tokens"]) == ("anthropic", "chat", "123", "20")
    assert json.loads(said["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": CLAUDE[0]["message"]["content"]}]}]
    (out,) = json.loads(said["gen_ai.output.messages"])
    assert [part["type"] for part in out["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert said["gen_ai.response.finish_reasons"] == {"values": [{"stringValue": "tool_call"}]}
    assert out["finish_reason"] == "tool_call" and out["parts"][3]["arguments"] == {"command": "make ```"}
    assert [part["response"] for part in json.loads(attributes(last)["gen_ai.input.messages"])[0]["parts"]] == [
        "done", "broken"]
    assert attributes(bash)["error.type"] == "tool_error" and bash["status"] == {"code": 2}
    assert attributes(edit)["gen_ai.tool.call.result"] == "done"


def test_an_exported_trace_is_imported_with_the_same_tokens(db):
    claude(db)
    report = load(db, export(db, "otlp"))
    assert (report["format"], report["items"], report["bad"]) == ("otel", 5, 0)
    tokens = "SELECT sum(input_fresh), sum(cache_write), sum(cache_read), sum(output) FROM rollout_usage WHERE rollout = ?"
    assert rows(db, tokens, report["rolloutId"]) == rows(db, tokens, ID) == [(101, 20, 3, 9)]
    assert one(db, "SELECT first_user_message FROM rollouts WHERE id = ?", report["rolloutId"]) == (
        CLAUDE[0]["message"]["content"])
    assert export(db, "otlp", report["rolloutId"]) == export(db, "otlp")


# Every member that the format has, in a file as a program may write it.
TRAJECTORY = {
    "schema_version": "ATIF-v1.8", "session_id": "run-7", "trajectory_id": "t-1",
    "agent": {"name": "a", "version": "1", "model_name": "m", "extra": {"k": [1.50, None]}, "tool_definitions": [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}]},
    "notes": "é\u2028", "continued_trajectory_ref": "next.json", "extra": {"request": {"model": "m"}},
    "steps": [
        {"step_id": 1, "source": "system", "message": "Be brief."},
        {"step_id": 2, "timestamp": "2026-07-17T09:00:00Z", "source": "user", "message": [
            {"type": "text", "text": "Look"},
            {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}}]},
        {"step_id": 3, "timestamp": "2026-07-17T09:00:05Z", "source": "agent", "model_name": "m2",
         "reasoning_effort": "high", "message": "", "reasoning_content": "So.", "tool_calls": [
             {"tool_call_id": "c1", "function_name": "f", "arguments": {}, "extra": {"retry": 1}}],
         "observation": {"results": [{"source_call_id": "c1", "content": "42", "subagent_trajectory_ref": [
             {"trajectory_id": "s-1"}], "extra": {"score": 0.5}}]},
         "metrics": {"prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 4, "cost_usd": 0.25,
                     "prompt_token_ids": [1, 2], "logprobs": [-0.5], "extra": {}}, "llm_call_count": 1},
        {"step_id": 4, "source": "agent", "message": "It is 42.", "is_copied_context": False},
    ],
    "final_metrics": {"total_prompt_tokens": 9, "total_completion_tokens": 2, "total_steps": 4},
    "subagent_trajectories": [{"schema_version": "ATIF-v1.8", "trajectory_id": "s-1", "agent": {
        "name": "b", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": "sub"}]}],
}


@pytest.mark.parametrize("form", [{"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])
def test_atif_comes_back_as_it_was(db, form):
    text = json.dumps(TRAJECTORY, **form) + "\n"
    report = load(db, text)
    rollout = report["rolloutId"]
    assert (report["format"], report["items"], report["bad"]) == ("atif", 4, 0)
    assert export(db, "atif", rollout) == text == one(db, "SELECT rollout_export(?)", rollout)
    assert load(db, text)["new"] == 0
    assert rows(db, "SELECT source_id, turns, first_user_message, model, title FROM rollouts WHERE id = ?", rollout) == [
        ("t-1", 1, "Look", "m2", None)]
    assert rows(db, "SELECT model, input_fresh, cache_read, output, cost FROM rollout_usage") == [("m2", 5, 4, 2, .25)]
    assert [r for r, in rows(db, "SELECT payload ->> 'role' FROM rollout_context(?)", rollout)] == [
        "user", "assistant", "assistant"]
    text = export(db, "markdown", rollout)
    assert "42" in text and "Prompt of the system</summary>\n\n```\nBe brief." in text and len(spans(db, rollout)) == 4


def made_text(make):
    return "".join(make.choices(["a", "é", "\u2028", "\U0001f600", '"', "\\", "\n", "\0", "<b>", "```", "{", "]", "\ufeff",
                                 "null", "$.a", "%s", "\ud83d"], k=make.choice((0, 1, 4, 10, 100))))


def made_value(make, depth=0):
    kind = make.randrange(7 if depth < 3 else 5)
    if kind == 5:
        return [made_value(make, depth + 1) for _ in range(make.randrange(4))]
    if kind == 6:
        return {made_text(make): made_value(make, depth + 1) for _ in range(make.randrange(4))}
    return (None, make.random() < .5, make.randrange(-10**12, 10**12), make.random() * 1e9, made_text(make))[kind]


def some_of(make, **members):
    """Some members, in any order."""
    names = [name for name in members if make.random() < .6]
    make.shuffle(names)
    return {name: members[name]() for name in names}


def made_step(make, number):
    calls = [{"tool_call_id": f"c{number}-{i}", "function_name": made_text(make), "arguments": {
        made_text(make): made_value(make)}} for i in range(make.randrange(4))]
    return {"step_id": number, "source": make.choice(("system", "user", "agent")), "message": make.choice((
        made_text(make), [{"type": "text", "text": made_text(make)}, {"type": "image", "source": {"path": "i.png"}}])),
        **some_of(make, timestamp=lambda: f"2026-07-17T09:00:{number:02}.5+02:00", extra=lambda: made_value(make),
                  model_name=lambda: made_text(make), reasoning_content=lambda: made_text(make),
                  tool_calls=lambda: calls, is_copied_context=lambda: make.random() < .5, observation=lambda: {
                      "results": [{"source_call_id": call["tool_call_id"], "content": made_text(make)} for call in calls]},
                  metrics=lambda: {"prompt_tokens": make.randrange(99), "completion_tokens": make.randrange(99),
                                   "cached_tokens": make.randrange(99), "cost_usd": make.random()})}


@pytest.mark.parametrize("seed", range(12))
def test_any_trajectory_comes_back_as_it_was(db, seed):
    make = random.Random(seed)
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'rollout.pack'", (seed % 2,))
    whole = {"schema_version": "ATIF-v1.8", "agent": {"name": made_text(make), "version": "1", **some_of(
        make, model_name=lambda: made_text(make), extra=lambda: made_value(make))},
        "steps": [made_step(make, i + 1) for i in range(make.choice((0, 1, 5, 40)))], **some_of(
        make, session_id=lambda: made_text(make), trajectory_id=lambda: made_text(make), notes=lambda: made_text(make),
        final_metrics=lambda: made_value(make), extra=lambda: made_value(make))}
    text = (make.choice(("", "\n", "\ufeff")) + json.dumps(whole, indent=make.choice((None, 2, "\t")))
            + make.choice(("", "\n", " \n\n")))
    report = load(db, text)
    assert (report["format"], report["bad"]) == ("atif", 0)
    assert export(db, "atif", report["rolloutId"]) == text
    for kind in "markdown", "otlp":
        export(db, kind, report["rolloutId"])
    assert problems(db) == []


def test_an_export_of_another_program_comes_back_as_it_was(db):
    claude(db)
    text = export(db, "atif")
    again = load(db, text)
    assert again["rolloutId"] != ID and again["new"] == 3
    assert export(db, "atif", again["rolloutId"]) == text


def test_atif_has_the_prompt_the_tools_and_the_raw_request_of_the_archive(db):
    one(db, "SELECT blackbox_install('main', 'payload,store')")
    claude(db)
    request = {"model": "claude-opus-4-5", "system": [{"type": "text", "text": "You are"}, {"type": "text", "text": "x"}],
               "tools": [{"name": "Bash", "description": "runs",
                          "input_schema": {"type": "object", "default": None}}], "messages": [], "metadata": "x" * 5000}
    insert = ("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, purpose)"
              " VALUES(?, ?, ?, '{}', 'archive')")
    db.execute(insert, ("e1", ID, "no JSON"))
    assert atif(db)["extra"]["raw_request"] == "no JSON"
    db.execute(insert, ("e2", ID, json.dumps(request)))
    db.execute(insert, ("e3", "other", "{}"))
    db.execute(insert, ("e4", ID, '{"system":"Write a title"}'))  # not the conversation itself
    db.execute("INSERT INTO event_payloads(event_id, agent_id, response_body, purpose) VALUES('e5', ?, '{}', 'archive')",
               (ID,))
    for packed in (False, True):
        if packed:
            assert one(db, "SELECT payload_pack() ->> '$.rows'") > 0
        whole = valid_atif(atif(db))
        assert whole["extra"]["raw_request"] == request
        assert whole["steps"][0] == {"step_id": 1, "timestamp": "2026-07-17T09:00:00.000Z", "source": "system",
                                     "message": "You are\nx"}
        assert whole["agent"]["tool_definitions"] == [{"type": "function", "function": {
            "name": "Bash", "description": "runs", "parameters": {"type": "object", "default": None}}}]
    first = attributes(spans(db)[1])
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "You are\nx"}]
    assert json.loads(first["gen_ai.tool.definitions"]) == [{
        "type": "function", "name": "Bash", "description": "runs", "parameters": {"type": "object", "default": None}}]
    assert "Prompt of the system</summary>\n\n```\nYou are\nx\n" in export(db, "markdown")


@pytest.mark.parametrize("request_, prompt, tools", [
    ({"instructions": "be"}, "be", None),
    ({"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "x"}]}, "be", None),
    ({"messages": [{"role": "developer", "content": [{"type": "text", "text": "be"}]}]}, "be", None),
    ({"systemInstruction": {"parts": [{"text": "be"}]}, "tools": [{"functionDeclarations": [
        {"name": "f", "parametersJsonSchema": {"type": "object"}}]}]}, "be", ["f"]),
    ({"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "name": "g"},
                {"type": "web_search"}, 5]}, None, ["f", "g", "web_search"]),
    ({"system": 5, "tools": {}, "messages": 1}, None, None), ([], None, None),
])
def test_requests_of_any_vendor_have_prompt_and_tools(db, request_, prompt, tools):
    one(db, "SELECT blackbox_install('main', 'payload')")
    create(db)
    append(db, ID, user("hello"))
    db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose) VALUES('e', ?, ?, 'archive')",
               (ID, json.dumps(request_)))
    whole = valid_atif(atif(db))
    assert [s["message"] for s in whole["steps"]] == [*filter(None, [prompt]), "hello"]
    found = whole["agent"].get("tool_definitions")
    assert (found and [tool["function"]["name"] for tool in found]) == tools


def test_a_message_that_a_recorder_writes_twice_comes_once(db):
    create(db)
    append(db, ID, message("user", "<environment_context>x"), message("user", "hi"), user("hi"),
           {"type": "event_msg", "payload": {"type": "agent_message", "message": "yes"}}, message("assistant", "yes"),
           {"type": "response_item", "payload": {"type": "function_call", "name": "shell", "call_id": "c",
                                                 "arguments": "not JSON"}},
           {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "o"}},
           {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "lost", "output": "p"}})
    steps = valid_atif(atif(db))["steps"]
    assert [(s["source"], s["message"]) for s in steps] == [
        ("system", "<environment_context>x"), ("user", "hi"), ("agent", "yes")]
    assert steps[2]["tool_calls"][0]["arguments"] == {"input": "not JSON"}
    assert steps[2]["observation"]["results"] == [{"source_call_id": "c", "content": "o"}, {"content": "p"}]


def test_a_result_before_its_call_belongs_to_it(db):
    create(db)
    append(db, ID, user("hi"),
           {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "o"}},
           {"type": "response_item", "payload": {"type": "function_call", "name": "f", "call_id": "c",
                                                 "arguments": "{}"}})
    assert valid_atif(atif(db))["steps"][1]["observation"]["results"] == [{"source_call_id": "c", "content": "o"}]
    assert rows(db, "SELECT input, output, is_error FROM rollout_tool_calls") == [("{}", "o", 0)]


def test_a_text_with_a_nul_goes_on_after_it(db):
    text = "a\0b\\u0000c"
    create(db)
    append(db, ID, user(text), message("assistant", text), *(
        {"type": "response_item", "payload": payload} for payload in (
            {"type": "function_call", "call_id": "c", "name": "say",
             "arguments": json.dumps({"command": text})},
            {"type": "function_call", "call_id": "d", "name": "say", "arguments": text},
            {"type": "function_call_output", "call_id": "c", "output": text})))
    said, model = valid_atif(atif(db))["steps"]
    assert said["message"] == text and model["message"] == text
    assert [call["arguments"] for call in model["tool_calls"]] == [
        {"command": text}, {"input": text}]
    assert model["observation"]["results"][0]["content"] == text
    chat, *tools = spans(db)[1:]
    assert json.loads(attributes(chat)["gen_ai.input.messages"])[0]["parts"][0]["content"] == text
    assert [json.loads(attributes(tool)["gen_ai.tool.call.arguments"]) for tool in tools] == [
        {"command": text}, {"input": text}]
    assert export(db, "markdown").count("a\ufffdb\\u0000c") >= 4


def test_an_empty_conversation_and_a_fork_are_exported(db):
    create(db)
    assert valid_atif(atif(db))["steps"] == [] and len(spans(db)) == 1
    append(db, ID, user("hi"))
    fork = one(db, "SELECT rollout_fork(?)", ID)
    assert [s["message"] for s in valid_atif(atif(db, fork))["steps"]] == ["hi"]
    assert "hi" in export(db, "markdown", fork)


@pytest.mark.parametrize("kind", ["html", "ATIF", "", 5, b"atif"])
def test_an_unknown_format_is_refused(db, kind):
    create(db)
    with pytest.raises(sqlite3.Error, match="ValidationError: "):
        export(db, kind)
    assert exported(db) and one(db, "SELECT rollout_export(?, NULL)", ID) == one(db, "SELECT rollout_export(?)", ID)


@needs_data
@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.name[-20:])
def test_recorded_sessions_are_exported_in_every_format(db, file):
    data = file.read_bytes()
    report = load(db, gzip.decompress(data) if file.suffix == ".gz" else data, str(file))
    for rollout in report["rolloutIds"]:
        whole = valid_atif(atif(db, rollout))
        told, turns = rows(db, "SELECT (SELECT sum(input_fresh + cache_write + cache_read) FROM rollout_usage "
                           "WHERE rollout = id), turns FROM rollouts WHERE id = ?", rollout)[0]
        assert sum(s["source"] == "user" for s in whole["steps"]) == turns
        calls = [c for s in whole["steps"] for c in s.get("tool_calls", [])]
        results = [r for s in whole["steps"] for r in s.get("observation", {"results": []})["results"]]
        assert all("source_call_id" in r for r in results)
        if any(s["source"] == "agent" for s in whole["steps"]):
            assert whole["final_metrics"].get("total_prompt_tokens") == told
        names = [s["name"].split()[0] for s in spans(db, rollout)]
        assert names.count("execute_tool") == len(calls) and names[0] == "invoke_agent"
        text = export(db, "markdown", rollout)
        assert text.count("<details><summary>") >= len(calls)
        back = load(db, export(db, "atif", rollout))
        assert back["bad"] == 0 and back["items"] == len(whole["steps"])
        assert load(db, export(db, "otlp", rollout))["bad"] == 0


@pytest.mark.parametrize("schema", ["main", 'odd "name'])
@pytest.mark.parametrize("begin", [False, True])
def test_any_schema_is_exported_also_in_a_transaction(db, schema, begin):
    if schema != "main":
        db.execute("ATTACH ':memory:' AS " + '"' + schema.replace('"', '""') + '"')
    db.execute("PRAGMA trusted_schema = 0")
    one(db, "SELECT blackbox_install(?, 'payload,rollout')", schema)
    one(db, "SELECT blackbox_use(?)", schema)
    if begin:
        db.execute("BEGIN")
    name = '"' + schema.replace('"', '""') + '"'
    claude(db)
    db.execute(f"INSERT INTO {name}.event_payloads(event_id, agent_id, request_body, purpose)"
               " VALUES('e', ?, '{\"system\":\"be\"}', 'archive')", (ID,))
    assert [s["message"] for s in valid_atif(atif(db))["steps"]][:1] == ["be"]
    assert len(spans(db)) == 5 and "## Agent" in export(db, "markdown")
    if begin:
        db.execute("ROLLBACK")
        with pytest.raises(sqlite3.Error, match="NotFound"):
            export(db, "atif")


def test_no_text_becomes_a_tag_or_an_image_or_takes_what_follows(db):
    reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    marks = ["`", "``", "```", "````", "~~~", "~~~~", "<img src=e>", "<b>", "![p](http://e)", "\n", "\n\n", "    ", "  ",
             "- ", "> ", "1. ", "a", "\\", "|", "a | b\n---|---\n", "\r", "\t", "```x\n", "```a`b\n", "<!-- ", "# h\n"]
    chosen = random.Random(1)

    def tokens(some):
        for token in some:
            yield token
            yield from tokens(token.children or [])

    for n in range(300):
        text = "".join(chosen.choices(marks, k=chosen.randrange(1, 25)))
        rollout = one(db, "SELECT rollout_create(?)", f"00000000-0000-4000-8000-{n:012}")
        append(db, rollout, user(text), user("END"))
        read = list(tokens(reader.parse(export(db, "markdown", rollout))))
        assert "image" not in {token.type for token in read}, repr(text)
        assert not [token for token in read if token.type.startswith("html") and token.content[:2] in ("<i", "<b", "<!")]
        assert [token.content for token in read if token.type == "inline"].count("END") == 1, repr(text)


def test_a_tool_without_a_name_is_unknown(db):
    create(db)
    append(db, ID, {"type": "response_item", "payload": {
        "type": "function_call", "name": "", "call_id": "k", "arguments": "{}"}})
    (call,) = valid_atif(atif(db))["steps"][0]["tool_calls"]
    assert call == {"tool_call_id": "k", "function_name": "unknown", "arguments": {}}
    assert [span["name"] for span in spans(db)][-1] == "execute_tool unknown"
