"""OpenTelemetry: the spans of language models, in each of their dialects."""
import json

import pytest

from rollout_helpers import ID, exported, load, well
from conftest import connect, one, rows

NANO = 1784278800000000000


def value(v):
    kinds = {str: "stringValue", bool: "boolValue", int: "intValue", float: "doubleValue"}
    if isinstance(v, list):
        return {"arrayValue": {"values": [value(x) for x in v]}}
    if isinstance(v, dict):
        return {"kvlistValue": {"values": pairs(v)}}
    return {kinds[type(v)]: str(v) if type(v) is int else v}


def pairs(values):
    return [{"key": k, "value": value(v)} for k, v in values.items()]


def span(i, attributes, trace="a" * 32, parent=None, events=(), name="chat m"):
    return {"traceId": trace, "spanId": f"{i:016x}", **({"parentSpanId": parent} if parent else {}),
            "name": name, "kind": 3, "startTimeUnixNano": str(NANO + i * 10**9),
            "endTimeUnixNano": str(NANO + i * 10**9 + 5), "attributes": pairs(attributes),
            "events": [{"name": n, "timeUnixNano": "1", "attributes": pairs(a)}
                       for n, a in events], "status": {}}


def otlp(*spans, end="\n"):
    """A line, with two lists of spans if there are more than two."""
    groups = [spans[:2], spans[2:]] if len(spans) > 2 else [spans]
    return json.dumps({"resourceSpans": [{
        "resource": {"attributes": pairs({"service.name": "agent"})},
        "scopeSpans": [{"scope": {"name": "s"}, "spans": list(g)} for g in groups]}]}) + end


def text(role, *texts):
    return {"role": role, "parts": [{"type": "text", "content": t} for t in texts]}


CALL = {"role": "assistant", "parts": [
    {"type": "reasoning", "content": "hm"},
    {"type": "tool_call", "id": "c1", "name": "ls", "arguments": {"at": "/"}}]}
RESULT = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1",
                                     "response": "bin etc"}]}
NEWEST = otlp(
    span(1, {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "talk",
             "gen_ai.request.model": "m", "gen_ai.response.model": "m-1",
             "gen_ai.input.messages": json.dumps([text("user", "what is here?")]),
             "gen_ai.output.messages": json.dumps([CALL]),
             "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7,
             "gen_ai.usage.cache_read.input_tokens": 60,
             "gen_ai.usage.cache_creation.input_tokens": 10,
             "gen_ai.usage.reasoning.output_tokens": 2}, parent="f" * 16),
    span(2, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ls",
             "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.result": "bin etc"}, parent="f" * 16),
    span(3, {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "talk",
             "gen_ai.response.model": "m-1",
             "gen_ai.input.messages": json.dumps([text("user", "what is here?"), CALL, RESULT]),
             "gen_ai.output.messages": [text("assistant", "two", "folders")],
             "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 5,
             "gen_ai.usage.cache_read.input_tokens": 100}, parent="f" * 16),
    span(0xff, {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "talk",
                "gen_ai.input.messages": json.dumps([text("user", "what is here?")]),
                "gen_ai.usage.input_tokens": 220, "gen_ai.usage.output_tokens": 12}))
TRACELOOP = otlp(
    span(1, {"traceloop.association.properties.session_id": "s", "llm.request.type": "chat",
             "gen_ai.request.model": "m", "gen_ai.prompt.0.role": "system",
             "gen_ai.prompt.0.content": "be brief",
             "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "what is here?",
             "gen_ai.completion.0.role": "assistant",
             "gen_ai.completion.0.tool_calls.0.id": "c1",
             "gen_ai.completion.0.tool_calls.0.name": "ls",
             "gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 7,
             "gen_ai.usage.cache_read_input_tokens": 60,
             "gen_ai.usage.cache_creation_input_tokens": 10}),
    span(2, {"traceloop.span.kind": "tool", "traceloop.entity.output": "bin etc"}),
    span(3, {"traceloop.association.properties.session_id": "s", "llm.request.type": "chat",
             "gen_ai.request.model": "m",
             **{f"gen_ai.prompt.{i}.{k}": v for i in range(12)
                for k, v in (("role", "tool" if i == 11 else "user"), ("content", f"bin {i}"))},
             "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "two\nfolders",
             "gen_ai.usage.prompt_tokens": 120, "gen_ai.usage.completion_tokens": 5,
             "gen_ai.usage.cache_read_input_tokens": 100}))
OPENINFERENCE = otlp(
    span(1, {"session.id": "s", "openinference.span.kind": "LLM", "llm.model_name": "m",
             "llm.input_messages.0.message.role": "user",
             "llm.input_messages.0.message.contents.0.message_content.type": "text",
             "llm.input_messages.0.message.contents.0.message_content.text": "what is here?",
             "llm.output_messages.0.message.role": "assistant",
             "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "ls",
             "llm.token_count.prompt": 100, "llm.token_count.completion": 7,
             "llm.token_count.prompt_details.cache_read": 60,
             "llm.token_count.prompt_details.cache_write": 10}),
    span(2, {"session.id": "s", "openinference.span.kind": "TOOL", "output.value": "bin etc"}),
    span(3, {"session.id": "s", "openinference.span.kind": "LLM", "llm.model_name": "m",
             "llm.input_messages.0.message.role": "tool",
             "llm.input_messages.0.message.content": "bin 11",
             "llm.output_messages.0.message.content": "two\nfolders",
             "llm.token_count.prompt": 120, "llm.token_count.completion": 5,
             "llm.token_count.prompt_details.cache_read": 100, "llm.cost.total": 0.25}))
EVENTS = otlp(
    span(1, {"gen_ai.system": "x", "gen_ai.request.model": "m", "gen_ai.conversation.id": "e",
             "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7,
             "gen_ai.usage.cache_read.input_tokens": 60,
             "gen_ai.usage.cache_creation.input_tokens": 10}, events=[
                 ("gen_ai.system.message", {"content": "be brief"}),
                 ("gen_ai.user.message", {"content": "what is here?"}),
                 ("gen_ai.choice", {"tool_calls": "[]", "finish_reason": "tool"}),
                 ("exception", {"exception.type": "E"})]),
    span(2, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": "bin etc"}),
    span(3, {"gen_ai.system": "x", "gen_ai.request.model": "m", "gen_ai.conversation.id": "e",
             "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 5,
             "gen_ai.usage.cache_read.input_tokens": 100}, events=[
                 ("gen_ai.content.prompt", {"gen_ai.prompt": json.dumps(
                     [{"role": "user", "content": "x"}, {"role": "tool", "content": "bin 11"}])}),
                 ("gen_ai.content.completion", {"gen_ai.completion": json.dumps(
                     [{"role": "assistant", "content": "two\nfolders"}])})]))
DIALECTS = {"newest": NEWEST, "traceloop": TRACELOOP, "openinference": OPENINFERENCE,
            "events": EVENTS}


@pytest.mark.parametrize("way", ["function", "row"])
@pytest.mark.parametrize("name", DIALECTS)
def test_spans_of_each_dialect_say_the_same(db, name, way):
    line = DIALECTS[name]
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?))", (line,))
    report = load(db, line)
    assert (report["format"], report["bad"], len(report["rolloutIds"])) == ("otel", 0, 1)
    rollout = report["rolloutId"]
    assert one(db, "SELECT rollout_export(?)", rollout) == line
    assert load(db, line)["new"] == 0
    assert rows(db, "SELECT turns, first_user_message, model, format FROM rollouts") == [
        (1, "what is here?", "m-1" if name == "newest" else "m", "otel")]
    assert rows(db, "SELECT type FROM rollout_items WHERE sequence BETWEEN 1 AND 3") == [
        ("chat",), ("execute_tool",), ("chat",)]
    assert ("assistant", "two\nfolders") in rows(db, "SELECT role, text FROM rollout_messages")
    assert ("bin etc",) in rows(db, "SELECT value FROM rollout_facts WHERE fact = 'tool'")
    assert rows(db, "SELECT sequence, input_fresh, cache_write, cache_read, output FROM "
                "rollout_usage ORDER BY sequence") == [(1, 30, 10, 60, 7), (3, 20, 0, 100, 5)]
    well(db)
    before = rows(db, "SELECT * FROM rollouts")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollouts") == before
    well(db)
    one(db, "SELECT rollout_search_install()")
    assert {r for r, in rows(db, "SELECT role FROM rollout_search('bin e*')")} == {"tool"}
    assert ("assistant",) in rows(db, "SELECT role FROM rollout_search('folders')")


def test_a_payload_is_the_span_with_one_object_of_attributes(db):
    load(db, NEWEST)
    item = json.loads(one(db, "SELECT payload FROM rollout_items WHERE sequence = 1"))
    assert item["parentSpanId"] == "f" * 16 and item["name"] == "chat m"
    said = item["attributes"]["gen_ai"]
    assert said["input"]["messages"] == [text("user", "what is here?")]
    assert said["output"]["messages"] == [CALL]
    assert said["usage"]["cache_read"] == {"input_tokens": 60}
    assert item["resource"] == {"service": {"name": "agent"}}
    third = json.loads(one(db, "SELECT payload FROM rollout_items WHERE sequence = 3"))
    assert third["attributes"]["gen_ai"]["output"]["messages"] == [
        text("assistant", "two", "folders")]


def test_names_make_objects_and_lists_in_any_order(db):
    odd = {"b.10": "ten", "b.9": "nine", "a": 1, "a.b.c": 2, "a-b": True, "": "x", ".": "y",
           "n..m": -5, "q\"\\\n.\u20ac": 1.5, "m.1": 1, "m.1a": 2, "m.02": 3, "m.2": 4,
           "deep" + ".x" * 60: 7, "list": [1, "2", [False]], "big": 10**15}
    spans = [span(1, {**odd, "gen_ai.input.messages": "no [JSON", "gen_ai.conversation.id": "c"}),
             span(2, {k: odd[k] for k in reversed(odd)})]
    spans[1]["attributes"] += [{"key": "e", "value": {}}, {"key": "a", "value": {"intValue": 9}},
                               {"key": "i", "value": {"intValue": "007"}},
                               {"nokey": 1}, 5, {"key": "f", "value": {"doubleValue": "NaN"}}]
    line = otlp(*spans)
    report = load(db, line)
    assert (report["bad"], one(db, "SELECT rollout_export(?)", report["rolloutId"])) == (0, line)
    for i in (1, 2):
        said = json.loads(one(db, "SELECT payload FROM rollout_items WHERE sequence = ?", i))
        said = said["attributes"]
        assert said["b"] == ["nine", "ten"] and said["a"] == 1 and said["a.b.c"] == 2
        assert said["a-b"] is True and said['q"\\\n'] == {"\u20ac": 1.5} and said["big"] == 10**15
        assert said["m"] == {"1": 1, "1a": 2, "02": 3, "2": 4} and said["n"] == {"": {"m": -5}}
        assert said["list"] == [1, "2", [False]] and "deep" in said
    assert said["e"] is None and said["i"] == "007" and said["f"] == "NaN"
    well(db)


@pytest.mark.parametrize("at", range(3))
def test_a_span_that_can_be_no_item_is_kept_in_a_line_of_several_conversations(db, at):
    spans = [span(i, {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": name})
             for i, name in enumerate(("one", "two"))]
    spans.insert(at, span(9, {"gen_ai.input.messages": "[" * 960 + "]" * 960}, name="too deep"))
    line = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    report = load(db, json.dumps(line) + "\n")
    assert (report["items"], report["bad"]) == (2, 1)
    whole = [exported(db, r) for r in report["rolloutIds"]]
    assert sorted(w.count(b"too deep") for w in whole) == [0, 1]
    assert load(db, whole[0] + whole[1])["new"] == 0
    well(db)


def test_a_byte_order_mark_hides_no_name_of_a_trace(db):
    first, second = span(1, {"gen_ai.operation.name": "execute_tool"}), span(
        2, {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "one"})
    assert len(load(db, "\ufeff" + otlp(first, second))["rolloutIds"]) == 1


def test_a_line_of_several_conversations_becomes_lines_of_each(db):
    a = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "one",
         "gen_ai.input.messages": json.dumps([text("user", "first")])}
    b = {**a, "gen_ai.conversation.id": "two",
         "gen_ai.input.messages": json.dumps([text("user", "second")])}
    tool = {"gen_ai.operation.name": "execute_tool"}
    spans = [span(1, tool, "1" * 32), span(2, b, "2" * 32), span(3, a, "1" * 32),
             span(4, tool, "3" * 32), span(5, tool, "2" * 32)]
    data = ("\ufeffdamaged\n" + otlp(*spans, end=" \r\n") + "damaged, too\n" + otlp(span(6, a)) +
            otlp(span(7, b), span(8, a), end="") + "\nand the end")
    report = load(db, data)
    assert (report["items"], report["new"], report["bad"]) == (8, 8, 3)
    assert len(report["rolloutIds"]) == 3
    whole = [one(db, "SELECT rollout_export(?)", r) for r in report["rolloutIds"]]
    found = [s["spanId"][-1] for w in whole for line in w.splitlines() if line[:1] == "{"
             for r in json.loads(line)["resourceSpans"] for c in r["scopeSpans"]
             for s in c["spans"]]
    assert found == list("13682574")
    assert rows(db, "SELECT first_user_message, turns FROM rollouts ORDER BY 1") == [
        (None, 0), ("first", 3), ("second", 2)]
    assert "".join(whole).count("damaged") == 2 and "".join(whole).count("and the end") == 1
    for end, new in (("", 0), ("\n", 0), ("\n" + otlp(span(9, a)), 1)):
        assert load(db, data + end)["new"] == new
    well(db)
    again = connect()
    one(again, "SELECT blackbox_install('main', 'all')")
    for i, text_of in enumerate(whole):
        assert load(again, text_of)["rolloutIds"] == [report["rolloutIds"][i]]
        assert one(again, "SELECT rollout_export(?)", report["rolloutIds"][i]) == text_of
    well(again)


def test_two_objects_on_a_line_are_divided_between_them(db):
    a, b = {"gen_ai.conversation.id": "one"}, {"gen_ai.conversation.id": "two"}
    data = (otlp(span(1, a), end="") + otlp(span(2, b), span(3, a), end="") +
            otlp(span(4, b), end="") + otlp(span(5, a), span(6, b)) +
            otlp(span(7, a), end="") + otlp(span(8, b)))
    report = load(db, data)
    assert (report["items"], report["bad"], len(report["rolloutIds"])) == (8, 0, 2)
    again = connect()
    one(again, "SELECT blackbox_install('main', 'rollout')")
    for rollout in report["rolloutIds"]:
        whole = one(db, "SELECT rollout_export(?)", rollout)
        assert load(again, whole)["rolloutIds"] == [rollout]
        assert one(again, "SELECT rollout_export(?)", rollout) == whole
    items = "SELECT rollout, sequence, payload FROM rollout_items WHERE sequence > 0 ORDER BY 1, 2"
    assert rows(again, items) == rows(db, items) and len(rows(db, items)) == 8


def test_a_file_of_spans_grows(db):
    data = otlp(*[span(i, {"gen_ai.conversation.id": "c"}) for i in range(1, 4)]) + otlp(
        span(4, {"gen_ai.conversation.id": "c"}))
    for end in range(data.index("\n") + 1, len(data) + 1, 97):
        report = load(db, data[:end])
        assert one(db, "SELECT rollout_export(?)", report["rolloutId"]) == data[:end]
    assert load(db, data)["bad"] == 0
    assert one(db, "SELECT item_count FROM rollouts") == 5
    well(db)


def test_a_dialect_is_an_insert(db):
    line = otlp(span(1, {"mine.said.0.by": "user", "mine.said.0.what": "hi", "mine.chat": "c",
                         "mine.kind": "ask"}))
    db.execute("INSERT INTO rollout_attributes(format, attribute, name) VALUES "
               "('otel', 'mine.said.*.by', 'gen_ai.input.messages.*.role'), "
               "('otel', 'mine.said.*.what', 'gen_ai.input.messages.*.content'), "
               "('otel', 'mine.chat', 'gen_ai.conversation.id')")
    db.execute("INSERT INTO rollout_attributes(format, attribute, name, only, value) VALUES "
               "('otel', 'mine.kind', 'gen_ai.operation.name', 'ask', 'chat')")
    load(db, line)
    assert rows(db, "SELECT source_id, turns, first_user_message FROM rollouts") == [
        ("c", 1, "hi")]
    well(db)


def test_spans_that_are_no_spans_are_kept(db):
    for data in ('{"resourceSpans":[{"scopeSpans":[{"spans":[1,{},[],{"attributes":5}]}]}]}\n',
                 '{"resourceSpans":[]}\n', '{"resourceSpans":{"a":1}}\n' + otlp(span(1, {}))):
        db.execute("DELETE FROM rollouts")
        try:
            report = load(db, data)
        except Exception as error:
            assert "none of its 1 lines can be read" in str(error)
            continue
        assert one(db, "SELECT rollout_export(?)", report["rolloutId"]) == data
        well(db)


def test_spans_go_to_the_conversation_that_is_given(db):
    assert load(db, NEWEST, ID)["rolloutIds"] == [ID]
    assert load(db, otlp(span(9, {"gen_ai.conversation.id": "talk"})), ID)["new"] == 1
    assert one(db, "SELECT item_count FROM rollouts") == 6
