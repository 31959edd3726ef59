"""payload_calls(), payload_usage(), payload_prompt() and payload_tools(): what an exchange says."""
import gzip
import json
import sqlite3

import pytest

import exchange_reader
from conftest import DATA, connect, needs_data, one, rows

CALLS = "SELECT kind, call_id, tool, arguments, result, is_error, turn, body FROM payload_calls(?, ?)"
USAGE = "SELECT model, input, cache_write, cache_read, output, reasoning FROM payload_usage(?, ?)"


def calls(db, request, response=None):
    bodies = [body if body is None or isinstance(body, (str, bytes)) else json.dumps(body)
              for body in (request, response)]
    return rows(db, CALLS, *bodies)


def chat(*messages):
    return {"model": "m", "messages": list(messages)}


def call(call_id, arguments, name="f"):
    return {"role": "assistant", "content": None, "tool_calls": [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


USER = {"role": "user", "content": "go"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "done"}


@needs_data
def test_every_call_and_result_of_the_recordings_is_found(db):
    found = {"call": 0, "result": 0}
    for line in gzip.open(DATA / "payloads.jsonl.gz"):
        exchange = json.loads(line)
        request, response = exchange["request"], exchange["response"]
        have = [(kind, call_id, tool if kind == "call" else None,
                 exchange_reader.parsed(arguments)) for kind, call_id, tool, arguments, *_
                in calls(db, request, response)]
        want = exchange_reader.read(request, response)
        key = lambda row: json.dumps(row, sort_keys=True)
        assert sorted(map(key, have)) == sorted(map(key, want)), exchange["event_id"]
        for kind, *_ in want:
            found[kind] += 1
    assert found == {"call": 8818, "result": 7970}


@needs_data
def test_the_tokens_of_the_recordings_are_counted(db):
    counted = 0
    for line in gzip.open(DATA / "payloads.jsonl.gz"):
        exchange = json.loads(line)
        response = exchange["response"]
        if not isinstance(response, dict):
            continue
        usage = response.get("usage") or response.get("usageMetadata") or {}
        have = rows(db, USAGE, json.dumps(exchange["request"]), json.dumps(response))
        if not have:
            assert not set(usage) & {"input_tokens", "prompt_tokens", "promptTokenCount"}
            continue
        counted += 1
        model, fresh, write, read, output, reasoning = have[0]
        if "prompt_tokens" in usage:
            assert fresh + (read or 0) == usage["prompt_tokens"]
            assert output == usage["completion_tokens"]
        elif "promptTokenCount" in usage:
            assert fresh + (read or 0) == usage["promptTokenCount"]
            assert output == usage.get("candidatesTokenCount", 0) + (reasoning or 0) \
                or "candidatesTokenCount" not in usage
        elif response.get("object") == "response":
            assert fresh + (read or 0) + (write or 0) == usage["input_tokens"]
            assert output == usage["output_tokens"]
        elif response.get("type") == "message":
            assert (fresh, output) == (usage["input_tokens"], usage["output_tokens"])
            assert read == usage.get("cache_read_input_tokens")
        else:
            assert (fresh, output) == (usage["inputTokens"], usage["outputTokens"])
        if "model" in response and not exchange["source"].startswith("entireio"):
            assert model == response["model"]
    assert counted == 580


# ---- chat.completions


def test_calls_and_results_of_a_chat_in_their_order(db):
    request = chat(USER, call("c1", '{"b": 1, "a": [1.0, {"d":0,"c":null}]}'), RESULT,
                   {"role": "user", "content": [{"type": "text", "text": "more"}]})
    response = {"choices": [{"message": call("c2", "{}", "g")}]}
    assert calls(db, request, response) == [
        ("call", "c1", "f", '{"a":[1.0,{"c":null,"d":0}],"b":1}', None, None, 1, "request"),
        ("result", "c1", "f", None, "done", 0, 1, "request"),
        ("call", "c2", "g", "{}", None, None, 2, "response")]


def test_a_stream_of_a_chat_is_put_together(db):
    def chunk(index, **piece):
        return "data: " + json.dumps({"choices": [{"delta": {"tool_calls": [
            {"index": index, **piece}]}}]}) + "\n\n"
    response = (
        chunk(0, id="c1", function={"name": "f", "arguments": ""})
        + chunk(0, function={"arguments": '{"b":'})
        + chunk(1, id="c2", function={"name": "g", "arguments": '{"x"'})
        + chunk(0, function={"arguments": '2,"a":1}'})
        + ": a comment\r\n"
        + chunk(1, function={"arguments": ":0}"})
        + 'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,'
          '"prompt_tokens_details":{"cached_tokens":2}}}\r\n\r\ndata: [DONE]\n')
    for body in response, response.replace("data: ", ""):
        assert [row[:4] for row in calls(db, chat(USER), body)] == [
            ("call", "c1", "f", '{"a":1,"b":2}'), ("call", "c2", "g", '{"x":0}')]
        assert rows(db, USAGE, None, body) == [(None, 7, None, 2, 4, None)]


def test_the_older_form_of_a_call(db):
    request = chat(USER, {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
                   {"role": "function", "name": "f", "content": "ok"})
    assert [row[:5] for row in calls(db, request)] == [
        ("call", None, "f", "{}", None), ("result", None, "f", None, "ok")]


def test_arguments_that_are_not_json_stay_as_they_are(db):
    for text in ('{"a": ', "*** Begin Patch\n+é", "", '{"a":1} x'):
        assert calls(db, chat(call("c", text)))[0][3] == text


# ---- what is passed over


def test_keys_may_have_escapes_and_the_first_of_equal_ones_counts(db):
    body = json.dumps(chat(call("c1", "{}")))
    assert calls(db, body.replace("messages", "mess\\u0061ges")) == calls(db, body) != []
    twice = body[:-1] + ',"messages":[' + json.dumps(call("c2", "{}")) + "]}"
    assert [row[1] for row in calls(db, twice)] == ["c1"]
    assert calls(db, body.replace('"id"', f'"{"x" * 300}":1,"\\u0069d"')) == calls(db, body)


@pytest.mark.parametrize("other", [
    '{"a":[1,{"b":"\\u00e9"}],"c":null}', "{}", "[]", '""', "-1.5e3", "true"])
@pytest.mark.parametrize("where", ["first", "middle", "last", "everywhere"])
def test_what_nobody_looks_for_is_passed_over(db, other, where):
    first, middle, last = (f'"o{i}" : {other} ' if where in (name, "everywhere") else f'"o{i}":0'
                           for i, name in enumerate(("first", "middle", "last")))
    message = json.dumps(call("c1", '{"x":1}'))[1:]
    body = f'{{ {first},"messages":[{{{middle},{message}],{last}}}'
    assert [row[:4] for row in calls(db, body)] == [("call", "c1", "f", '{"x":1}')]


@pytest.mark.parametrize("bad", ['{"a" 1}', '{"a":}', "[1,]", '{"a":1,}', "nul", '"\\x"', "'a'", ""])
def test_what_is_passed_over_must_be_json(db, bad):
    body = json.dumps(chat(call("c1", "{}")))
    assert calls(db, f'{body[:-1]},"other":{bad}}}') == []
    assert calls(db, f'{{"other":{bad},{body[1:]}') == []


# ---- the other formats


@pytest.mark.parametrize("stream", [False, True])
def test_writes_to_a_cache_that_keep_for_an_hour_are_told(db, stream):
    usage = {"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 100,
             "output_tokens": 7, "cache_creation": {"ephemeral_5m_input_tokens": 8,
                                                    "ephemeral_1h_input_tokens": 12}}
    response = json.dumps({"type": "message", "model": "claude", "content": [], "usage": usage})
    if stream:
        start = {"type": "message_start", "message": {"model": "claude", "usage": usage}}
        end = {"type": "message_delta", "usage": {"output_tokens": 9}}
        response = "".join(f"event: x\ndata: {json.dumps(e)}\n\n" for e in (start, end))
    assert rows(db, "SELECT * FROM payload_usage(NULL, ?)", response) == [
        ("claude", 3, 20, 100, 9 if stream else 7, None, 12)]


def test_more_tokens_than_anybody_can_use_are_bounded(db):
    usage = ('{"input_tokens":1e300,"output_tokens":"9223372036854775807",'
             '"cache_read_input_tokens":9223372036854775807}')
    response = '{"type":"message","model":"claude","content":[],"usage":%s}' % usage
    assert rows(db, "SELECT input, output, cache_read FROM payload_usage(NULL, ?)", response) == [
        (10 ** 12, 10 ** 12, 10 ** 12)]


def test_a_chat_of_anthropic(db):
    request = {"system": "s", "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"b": 1, "a": 2}},
            {"type": "tool_use", "id": "t2", "name": "run", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [
                {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True},
            {"type": "text", "text": "a reminder"}]}]}
    response = {"type": "message", "model": "claude", "content": [
        {"type": "tool_use", "id": "t3", "name": "run", "input": {"x": "é"}}],
        "usage": {"input_tokens": 3, "cache_creation_input_tokens": 20,
                  "cache_read_input_tokens": 100, "output_tokens": 7}}
    assert [row[:7] for row in calls(db, request, response)] == [
        ("call", "t1", "read", '{"a":2,"b":1}', None, None, 1),
        ("call", "t2", "run", "{}", None, None, 1),
        ("result", "t1", "read", None, "one\ntwo", 0, 1),
        ("result", "t2", "run", None, "no", 1, 1),
        ("call", "t3", "run", '{"x":"é"}', None, None, 1)]
    assert rows(db, USAGE, json.dumps(request), json.dumps(response)) \
        == [("claude", 3, 20, 100, 7, None)]


def test_a_stream_of_anthropic(db):
    events = [
        {"type": "message_start", "message": {"model": "claude", "usage": {
            "input_tokens": 5, "cache_read_input_tokens": 50, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {
            "type": "tool_use", "id": "t1", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 0, "delta": {
            "type": "input_json_delta", "partial_json": '{"q": '}},
        {"type": "content_block_delta", "index": 0, "delta": {
            "type": "input_json_delta", "partial_json": '"x"}'}},
        {"type": "content_block_start", "index": 1, "content_block": {
            "type": "tool_use", "id": "t2", "name": "g", "input": {}}},
        {"type": "message_delta", "usage": {"output_tokens": 30}}]
    body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
    assert [row[:4] for row in calls(db, None, body)] == [
        ("call", "t1", "f", '{"q":"x"}'), ("call", "t2", "g", "{}")]
    assert rows(db, USAGE, None, body) == [("claude", 5, None, 50, 30, None)]


def test_the_responses_format_whole_and_as_a_stream(db):
    items = [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
             {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "+x"}]
    request = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "go"}]},
                         *items,
                         {"type": "function_call_output", "call_id": "c1", "output": "Error: no"},
                         {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"}]}
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 3}}
    response = {"object": "response", "model": "gpt", "output": items, "usage": usage}
    stream = "".join(f"data: {json.dumps(e)}\n\n" for e in [
        *({"type": "response.output_item.done", "item": item} for item in items),
        {"type": "response.completed", "response": response}])
    for body in response, stream:
        assert [row[:6] for row in calls(db, request, body)] == [
            ("call", "c1", "f", '{"a":1}', None, None),
            ("call", "c2", "patch", "+x", None, None),
            ("result", "c1", "f", None, "Error: no", 1),
            ("result", "c2", "patch", None, "ok", 0),
            ("call", "c1", "f", '{"a":1}', None, None),
            ("call", "c2", "patch", "+x", None, None)]
        text = body if isinstance(body, str) else json.dumps(body)
        assert rows(db, USAGE, json.dumps(request), text) == [("gpt", 6, None, 4, 5, 3)]


def test_gemini_whole_as_lines_and_as_an_array(db):
    request = {"contents": [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"b": 1, "a": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"b": 2, "a": 1}}}]}]}
    response = {"candidates": [{"content": {"parts": [{"functionCall": {"name": "g", "args": {}}}]}}],
                "modelVersion": "gemini", "usageMetadata": {
                    "promptTokenCount": 8, "cachedContentTokenCount": 3,
                    "candidatesTokenCount": 2, "thoughtsTokenCount": 6}}
    text = json.dumps(response)
    for body in text, f"data: {text}\r\n\r\n", f"[{text}]", json.dumps([response], indent=1):
        assert [row[:5] for row in calls(db, request, body)] == [
            ("call", None, "f", '{"a":1,"b":1}', None),
            ("result", None, "f", None, '{"a":1,"b":2}'),
            ("call", None, "g", "{}", None)]
        assert rows(db, USAGE, None, body) == [("gemini", 5, None, 3, 8, 6)]


def test_a_new_dialect_is_an_insert(db):
    request = {"talk": [{"who": "tool", "ref": "1", "out": "x", "state": "bad"}],
               "did": {"what": "f", "with": {"z": 1}, "ref": 1}}
    assert calls(db, request) == []
    db.execute("INSERT INTO blackbox_places(format, source, kind, place, call_id, tool, arguments) "
               "VALUES('mine', 'request', 'call', '$.did', '.ref', '.name|.what', '.with')")
    db.execute("INSERT INTO blackbox_places(format, source, kind, conditions, place, call_id, "
               "result, is_error) VALUES('mine', 'request', 'result', "
               "'{\"$.talk[].who\":\"tool\",\"$.talk[].state\":\"bad\"}', '$.talk[]', '.ref', '.out', "
               "'.state=bad')")
    assert [row[:6] for row in calls(db, request)] == [
        ("result", "1", None, None, "x", 1), ("call", "1", "f", '{"z":1}', None, None)]


# ---- the prompt and the tools


@pytest.mark.parametrize("request_body, prompt", [
    (chat(USER, {"role": "assistant", "content": "ok"}), "go"),
    (chat(USER, {"role": "user", "content": [{"type": "image_url"}]}), "go"),
    (chat({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
     "a\nb"),
    (chat({"role": "system", "content": "be"}, {"role": "assistant", "content": "last"}), "last"),
    ({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}, "hi"),
    ({"input": [{"role": "user", "content": "q"}, {"type": "reasoning"}]}, "q"),
    ({"prompt": "once", "input": "second"}, "once"),
    ({"input": "second"}, "second"),
    ({"messages": []}, None),
    ([1, 2], None),
])
def test_the_prompt_is_what_the_user_said_last(db, request_body, prompt):
    assert one(db, "SELECT payload_prompt(?)", json.dumps(request_body)) == prompt


def test_the_tools_are_sorted_names(db):
    request = {"tools": [{"type": "function", "function": {"name": "b"}},
                         {"type": "function", "function": {"name": "a"}}],
               "tool_choice": {"type": "function", "function": {"name": "b"}}}
    assert one(db, "SELECT payload_tools(?)", json.dumps(request)) == "fn:a,fn:b,tool:b"
    request = {"tools": [{"name": "x", "input_schema": {}}], "tool_choice": {"type": "any"}}
    assert one(db, "SELECT payload_tools(?)", json.dumps(request)) == "fn:x"
    assert one(db, "SELECT payload_tools(?)", json.dumps(chat(USER))) is None


# ---- bodies that are no such thing


DEEP = 100000


@pytest.mark.parametrize("body", [
    None, "", "hello", "null", "[]", "{}", "17", '"messages"', "{", '{"messages":', "data:", "data: {",
    '{"messages":{"role":"tool"}', '{"messages":null,"contents":3,"input":{"a":[]}}',
    "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"messages":' * 3000, '{"a":' * 2000 + "1" + "}" * 2000,
    '{"messages":[' + "[" * 2000 + "]" * 2000 + "]}", "\x00", '{"messages":[]}\x00', b"", b"\x1f\x8b\x08",
    b"\xff" * 100, 17, 2.5, "data: " + "x" * 100000, "\n" * 1000, '{"choices":[{"delta":7}]}',
])
def test_a_body_that_is_no_exchange_gives_no_rows(db, body):
    assert calls_of(db, body, body) == []
    assert rows(db, USAGE, body, body) == []
    assert one(db, "SELECT payload_tools(?)", body) is None


def calls_of(db, *bodies):
    return rows(db, CALLS, *bodies)


def test_a_nul_in_a_line_spoils_that_line_only(db):
    good = 'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]}}]}\n'
    assert len(calls_of(db, None, "data: {\x00}\n" + good)) == 1
    assert len(calls_of(db, None, 'data: {"a":"\\u0000"}\n' + good)) == 1


def test_a_body_may_be_a_blob(db):
    body = json.dumps(chat(call("c", "{}"))).encode()
    assert calls_of(db, body, None)[0][:3] == ("call", "c", "f")
    db.execute("CREATE TABLE t(b)")
    db.execute("INSERT INTO t VALUES(?)", (body,))
    assert rows(db, "SELECT kind, typeof(b), b = ? FROM t, payload_calls(b, NULL)", body) \
        == [("call", "blob", 1)]


def test_odd_characters_survive(db):
    request = ('{"messages":[{"r\\u006fle":"t\\u006fol","tool_call_id":"\\ud83d\\ude00",'
               '"content":"a\\u0000b\\ud800\\n\\u00e9\\/"},'
               '{"tool_calls":[{"id":"c","function":{"name":"f","arguments":'
               '"{\\"\\\\u0062\\":\\"\\\\ud800\\\\u0001\\\\n\\",\\"a\\":\\"\\\\ud83d\\\\ude00\\"}"}}]}]}')
    db.text_factory = bytes
    result, found = calls_of(db, request, None)
    assert result[1] == "😀".encode()
    assert result[4] == "a\x00b\ufffd\né/".encode()
    assert found[3] == '{"a":"😀","b":"\\ud800\\u0001\\n"}'.encode()


def test_keys_are_sorted_by_what_they_mean(db):
    arguments = json.dumps({"b": 1, "\u00e9": 2, "a": {"z": 1, "y": [{"d": 1, "c": 2}]}, "": 0})
    assert calls(db, chat(call("c", arguments)))[0][3] \
        == '{"":0,"a":{"y":[{"c":2,"d":1}],"z":1},"b":1,"é":2}'
    assert calls(db, chat(call("c", '{"b":1,"a":1,"b":0}')))[0][3] == '{"a":1,"b":1,"b":0}'


def test_large_bodies(db):
    line = json.dumps(chat(*[RESULT] * 1000, call("c", json.dumps({"x": "y" * 10_000_000}))))
    found = calls_of(db, line, None)
    assert (len(found), len(found[-1][3])) == (1001, 10_000_008)
    many = "[" + "1," * 9_000_000 + "1]"
    assert calls_of(db, many, many) == []


def test_many_calls_take_time_in_proportion(db):
    """A result looks for its call, and a message for its results, among its neighbours only."""
    messages = [m for i in range(20000) for m in (USER, call(f"c{i}", "{}"), RESULT)]
    assert len(calls(db, chat(*messages))) == 40000


def test_without_the_tables_it_says_so(path):
    db = connect(path)
    for sql in (CALLS, USAGE):
        with pytest.raises(sqlite3.DatabaseError, match=r"SELECT blackbox_install\('main', 'payload'\)"):
            rows(db, sql, "{}", None)


def test_the_formats_are_those_of_the_schema_in_use(db, tmp_path):
    db.execute("ATTACH ? AS 'odd \"name'", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install(?)", 'odd "name')
    db.execute("DELETE FROM main.blackbox_places")
    one(db, "SELECT blackbox_use(?)", 'odd "name')
    assert len(calls(db, chat(RESULT))) == 1
    one(db, "SELECT blackbox_use('main')")
    assert calls(db, chat(RESULT)) == []


def test_it_works_in_a_view_and_inside_a_transaction(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE VIEW used AS SELECT r.event_id, c.tool FROM ring AS r, "
               "payload_calls(r.request_body, r.response_body) AS c")
    db.execute("BEGIN")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e', ?)",
               (json.dumps(chat(call("c", "{}"))),))
    assert rows(db, "SELECT * FROM used") == [("e", "f")]
    db.execute("ROLLBACK")
    assert rows(db, "SELECT * FROM used") == []


def test_formats_that_are_kept_follow_every_change(db, path):
    body = {"did": {"what": "f", "with": {}}}
    new = ("INSERT INTO blackbox_places(format, source, kind, place, tool, arguments) "
           "VALUES('mine', 'request', 'call', '$.did', '.what', '.with')")
    gone = "DELETE FROM blackbox_places WHERE format = 'mine'"
    assert calls(db, body) == []
    other = sqlite3.connect(path, isolation_level=None)
    for writer in (db, other):
        for statement, found in ((new, 1), (gone, 0)):
            writer.execute(statement)
            assert len(calls(db, body)) == len(calls(db, body)) == found
            for end, after in (("ROLLBACK", found), ("COMMIT", 1 - found)):
                db.execute("BEGIN")
                db.execute(gone if found else new)
                assert len(calls(db, body)) == 1 - found
                db.execute(end)
                db.execute("BEGIN IMMEDIATE")
                assert len(calls(db, body)) == after
                db.execute("COMMIT")
            db.execute(new if found else gone)
    other.close()


# ---- the tools that a provider has, and other programs' formats

RESPONSES = {  # the call, its result, and the tool, arguments, result and error that they are
    "local_shell_call": (
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "local_shell_call_output", "id": "c1", "output": "a.c"},
        ("local_shell_call", '{"command":["ls"],"env":{},"type":"exec"}', "a.c", 0)),
    "shell_call": (
        {"type": "shell_call", "id": "sh_1", "call_id": "c1", "status": "completed",
         "action": {"commands": ["make"], "timeout_ms": 1000, "max_output_length": 4096}},
        {"type": "shell_call_output", "call_id": "c1", "max_output_length": 4096, "output": [
            {"stdout": "", "stderr": "no rule", "outcome": {"type": "exit", "exit_code": 2}}]},
        ("shell_call", '{"commands":["make"],"max_output_length":4096,"timeout_ms":1000}',
         '[{"outcome":{"exit_code":2,"type":"exit"},"stderr":"no rule","stdout":""}]', 1)),
    "computer_call": (
        {"type": "computer_call", "id": "cu_1", "call_id": "c1", "status": "completed",
         "action": {"type": "click", "button": "left", "x": 405, "y": 157}},
        {"type": "computer_call_output", "call_id": "c1", "output": {
            "type": "computer_screenshot", "image_url": "data:image/png;base64,iVBOR"}},
        ("computer_call", '{"button":"left","type":"click","x":405,"y":157}',
         '{"image_url":"data:image/png;base64,iVBOR","type":"computer_screenshot"}', 0)),
    "apply_patch_call": (
        {"type": "apply_patch_call", "id": "apc_1", "call_id": "c1", "status": "completed",
         "operation": {"type": "update_file", "path": "a.py", "diff": "@@\n-x\n+y"}},
        {"type": "apply_patch_call_output", "call_id": "c1", "status": "failed", "output": "no such text"},
        ("apply_patch_call", '{"diff":"@@\\n-x\\n+y","path":"a.py","type":"update_file"}', "no such text", 1)),
}


@pytest.mark.parametrize("kind", RESPONSES)
def test_the_tools_of_the_responses_format(db, kind):
    item, output, (tool, arguments, result, error) = RESPONSES[kind]
    response = {"object": "response", "output": [item]}
    stream = f"data: {json.dumps({'type': 'response.output_item.done', 'item': item})}\n\n"
    for body in response, stream:
        assert [row[:6] for row in calls(db, {"input": [item, output]}, body)] == [
            ("call", "c1", tool, arguments, None, None), ("result", "c1", tool, None, result, error),
            ("call", "c1", tool, arguments, None, None)]


@pytest.mark.parametrize("end, result, error", [
    ({"status": "completed", "output": "3 issues", "error": None}, "3 issues", 0),
    ({"status": "failed", "output": None, "error": "not found"}, "not found", 1)])
def test_a_call_of_mcp_has_its_result(db, end, result, error):
    item = {"type": "mcp_call", "id": "mcp_1", "server_label": "tracker", "name": "list", "arguments": "{}", **end}
    for bodies in ({"input": [item]}, None), (None, {"object": "response", "output": [item]}):
        assert [row[:6] for row in calls(db, *bodies)] == [
            ("call", "mcp_1", "list", "{}", None, None), ("result", "mcp_1", "list", None, result, error)]


def test_mcp_and_others_run_by_the_server_of_anthropic(db):
    blocks = [{"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "s", "input": {"a": 1}},
              {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True,
               "content": [{"type": "text", "text": "no"}]}]
    found = [("call", "m1", "echo", '{"a":1}', None, None), ("result", "m1", "echo", None, "no", 1)]
    stream = "".join(f"data: {json.dumps({'type': 'content_block_start', 'index': i, 'content_block': b})}\n\n"
                     for i, b in enumerate(blocks))
    for bodies in (chat({"role": "assistant", "content": blocks}), None), \
            (None, {"type": "message", "content": blocks}), (None, stream):
        assert [row[:6] for row in calls(db, *bodies)] == found


def test_ollama_whole_and_as_lines(db):
    made = [{"function": {"name": "f", "arguments": {"b": 1, "a": 2}}}]
    request = chat(USER, {"role": "assistant", "content": "", "tool_calls": made},
                   {"role": "tool", "tool_name": "f", "content": "11 degrees"})
    response = {"model": "llama", "message": {"role": "assistant", "content": "", "tool_calls": made},
                "done": True, "prompt_eval_count": 26, "eval_count": 7}
    lines = [{"model": "llama", "message": {"role": "assistant", "content": "", "tool_calls": made}, "done": False},
             {"model": "llama", "message": {"role": "assistant", "content": ""}, "done": True,
              "prompt_eval_count": 26, "eval_count": 7}]
    for body in json.dumps(response), "\n".join(map(json.dumps, lines)):
        assert [row[:6] for row in calls(db, request, body)] == [
            ("call", None, "f", '{"a":2,"b":1}', None, None),
            ("result", None, "f", None, "11 degrees", 0),
            ("call", None, "f", '{"a":2,"b":1}', None, None)]
        assert rows(db, USAGE, None, body) == [("llama", 26, None, None, 7, None)]


def constructor(kind, **values):
    return {"lc": 1, "type": "constructor", "id": ["langchain_core", "messages", kind], "kwargs": values}


def test_langchain_in_its_three_spellings(db):
    said = {"content": "", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c1", "type": "tool_call"}],
            "usage_metadata": {"input_tokens": 10, "output_tokens": 5, "input_token_details": {"cache_read": 4}}}
    result = {"content": "bad", "tool_call_id": "c1", "name": "f", "status": "error"}
    spellings = [
        ([{"type": "human", "content": "go"}, {"type": "ai", **said}, {"type": "tool", **result}], {"type": "ai", **said}),
        ([{"type": "human", "data": {"content": "go"}}, {"type": "ai", "data": said},
          {"type": "tool", "data": {**result, "content": "Error: bad"}}], {"type": "ai", "data": said}),
        ([constructor("HumanMessage", content="go"), constructor("AIMessage", **said),
          constructor("ToolMessage", **result)], constructor("AIMessage", **said))]
    for messages, response in spellings:
        request = {"messages": messages}
        assert [row[:4] + row[5:7] for row in calls(db, request, response)] == [
            ("call", "c1", "f", '{"a":1}', None, 1), ("result", "c1", "f", None, 1, 1),
            ("call", "c1", "f", '{"a":1}', None, 1)]
        assert one(db, "SELECT payload_prompt(?)", json.dumps(request)) == "go"
    assert rows(db, USAGE, None, json.dumps(spellings[0][1])) == [(None, 6, None, 4, 5, None)]
