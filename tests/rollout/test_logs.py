"""OpenTelemetry: the log records of language models, and of agents."""
import json

import pytest

from rollout_helpers import ID, exported, load, well
from test_spans import NANO, otlp, pairs, span, text, value
from conftest import connect, one, rows

TRACE = "a" * 32


def record(i, event, body=None, call=None, named=True, **attributes):
    """A log record; the name of its event is a member, or an attribute of older programs."""
    attributes = {k.replace("__", "."): v for k, v in attributes.items()}
    if not named and event:
        attributes["event.name"] = event
    return {"timeUnixNano": str(NANO + i * 10**9), "observedTimeUnixNano": str(NANO),
            "severityNumber": 9, **({"body": value(body)} if body is not None else {}),
            **({"eventName": event} if named and event else {}), "attributes": pairs(attributes),
            **({"traceId": TRACE, "spanId": f"{call:016x}"} if call else {})}


def logs(*records, end="\n"):
    return json.dumps({"resourceLogs": [{
        "resource": {"attributes": pairs({"service.name": "agent"})},
        "scopeLogs": [{"scope": {"name": "s"}, "logRecords": list(records)}]}]}) + end


def call(i, span_id, named, *messages):
    """The records of a call: its history, and the answer."""
    made = [record(i + j, f"gen_ai.{kind}.message", body, span_id, named,
                   gen_ai__conversation__id="talk")
            for j, (kind, body) in enumerate(messages[:-1])]
    return [*made, record(i + 9, "gen_ai.choice", {
        "index": 0, "finish_reason": "stop", "message": messages[-1]}, span_id, named,
        gen_ai__conversation__id="talk")]


SYSTEM = ("system", {"content": "be brief"})
USER = ("user", {"content": "what is here?"})
CALLS = [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]
ASKED = ("assistant", {"role": "assistant", "tool_calls": CALLS})
RESULT = ("tool", {"id": "c1", "content": "bin etc"})
ANSWER = {"role": "assistant", "content": "two folders"}


def history(named=True):
    """Two calls, each with all messages until then, and then a call of the next turn."""
    first = call(0, 1, named, SYSTEM, USER, ASKED[1])
    second = call(10, 2, named, SYSTEM, USER, ASKED, RESULT, ANSWER)
    third = call(20, 3, named, SYSTEM, USER, ASKED, RESULT, ("assistant", ANSWER),
                 ("user", {"content": [{"type": "text", "text": "and there?"}]}), ANSWER)
    return first, second, third


@pytest.mark.parametrize("named", [True, False], ids=["member", "attribute"])
@pytest.mark.parametrize("way", ["function", "begin", "row"])
def test_messages_that_calls_repeat_begin_one_turn_each(db, way, named):
    first, second, third = history(named)
    data = logs(*first, *second[:3]) + logs(*second[3:]) + logs(*third)
    if way == "begin":
        db.execute("BEGIN")
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?))", (data,))
    report = load(db, data)
    assert (report["format"], report["items"], report["bad"]) == ("otel", 15, 0)
    assert exported(db, report["rolloutId"]) == data.encode() and load(db, data)["new"] == 0
    assert rows(db, "SELECT source_id, turns, first_user_message FROM rollouts") == [
        ("talk", 2, "what is here?")]
    said = rows(db, "SELECT fact, value FROM rollout_facts ORDER BY id")
    assert [v for f, v in said if f == "user"] == ["what is here?", "and there?"]
    assert [v for f, v in said if f == "assistant" and v] == ["two folders"] * 2
    assert {v for f, v in said if f == "tool"} == {"bin etc"}
    well(db)
    before = rows(db, "SELECT * FROM rollouts")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollouts") == before


def test_a_payload_is_the_record_with_what_it_says(db):
    odd = record(5, None, {"a": 1, "b": {"c": ["x"]}}, x=1)
    load(db, logs(*history()[0], odd, record(6, "mine.event", "a text"),
                  record(7, None, None), {"body": {}, "severityNumber": 1}))
    made = [json.loads(p) for p, in rows(
        db, "SELECT payload FROM rollout_items WHERE sequence > 0 ORDER BY sequence")]
    assert [m["event"] for m in made] == [
        "gen_ai.system.message", "gen_ai.user.message", "gen_ai.choice", "log", "mine.event",
        "log", "log"]
    assert made[0]["attributes"]["gen_ai"]["input"]["messages"] == [
        {"content": "be brief", "role": "system"}]
    assert "newest" not in made[0] and made[1]["newest"] is True
    assert made[2]["attributes"]["gen_ai"]["output"]["messages"] == [
        {"role": "assistant", "finish_reason": "stop", "tool_calls": CALLS}]
    assert made[3]["body"] == {"a": 1, "b": {"c": ["x"]}} and made[3]["attributes"] == {"x": 1}
    assert made[4]["body"] == "a text" and "body" not in made[5] and made[6]["body"] is None
    assert made[0]["resource"] == {"service": {"name": "agent"}}
    types = [t for t, in rows(db, "SELECT type FROM rollout_items WHERE sequence > 0")]
    assert types == [m["event"] for m in made]
    well(db)


def test_a_body_that_is_a_text_is_what_was_said(db):
    load(db, logs(record(1, "gen_ai.user.message", "hi"), record(2, "gen_ai.choice", "yes"),
                  record(3, "gen_ai.user.message", {"text": "not known"})))
    assert rows(db, "SELECT role, text FROM rollout_messages") == [
        ("user", "hi"), ("assistant", "yes")]
    third = json.loads(one(db, "SELECT payload FROM rollout_items WHERE sequence = 3"))
    assert third["body"] == {"text": "not known"}
    well(db)


def details(i, call_id=1, **more):
    return record(i, "gen_ai.client.inference.operation.details", None, call_id, **{
        "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "talk",
        "gen_ai.response.model": "m-1",
        "gen_ai.input.messages": json.dumps([text("user", "what is here?")]),
        "gen_ai.output.messages": [text("assistant", "two", "folders")],
        "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 60, **more})


USAGE = "SELECT model, input_fresh, cache_read, output FROM rollout_usage"


def test_the_details_of_a_call_are_read_as_its_span(db):
    load(db, logs(details(1)))
    assert rows(db, "SELECT turns, first_user_message, model FROM rollouts") == [
        (1, "what is here?", "m-1")]
    assert rows(db, "SELECT text FROM rollout_messages WHERE role = 'assistant'") == [
        ("two\nfolders",)]
    assert rows(db, USAGE) == [("m-1", 40, 60, 7)]
    well(db)


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_with_spans_and_records_counts_a_call_once(db, order):
    both = [otlp(span(1, {
        "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "talk",
        "gen_ai.response.model": "m-1", "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60, "gen_ai.usage.output_tokens": 7,
        "gen_ai.input.messages": json.dumps([text("user", "what is here?")])}, TRACE)),
        logs(details(1))]
    report = load(db, "".join(both[::order]) + '{"resourceMetrics":[]}\n')
    assert (report["items"], len(report["rolloutIds"])) == (2, 1)
    assert rows(db, "SELECT turns FROM rollouts") == [(1,)] and len(rows(db, USAGE)) == 1
    assert exported(db, report["rolloutId"]).endswith(b'{"resourceMetrics":[]}\n')
    well(db)


def test_records_of_agents_tell_prompts_tokens_and_costs(db):
    def agent(i, event, **more):
        return record(i, event, None, None, False, **more)
    claude = [agent(1, "user_prompt", session__id=ID, prompt="of Claude"),
              agent(2, "api_request", session__id=ID, model="c", input_tokens=3,
                    output_tokens="5", cache_read_tokens=7, cache_creation_tokens=0,
                    cost_usd=0.25, request_id="r")]
    codex = [agent(3, "codex.user_prompt", conversation__id="x", prompt="of Codex"),
             agent(4, "codex.sse_event", conversation__id="x", event__kind="response.completed",
                   model="g", input_token_count="100", cached_token_count="40",
                   output_token_count="10", reasoning_token_count="4"),
             agent(5, "codex.sse_event", conversation__id="x", event__kind="response.created"),
             agent(6, "codex.tool_result", conversation__id="x", output="a needle")]
    gemini = [agent(7, "gemini_cli.user_prompt", session__id="y", prompt="of Gemini")]
    report = load(db, logs(*claude, *codex) + logs(*gemini))
    assert (report["bad"], len(report["rolloutIds"])) == (0, 3)
    assert rows(db, "SELECT source_id, first_user_message, turns, model FROM rollouts "
                "ORDER BY created") == [
        (ID, "of Claude", 1, "c"), ("x", "of Codex", 1, "g"), ("y", "of Gemini", 1, None)]
    assert rows(db, USAGE + " ORDER BY model") == [("c", 3, 7, 5), ("g", 60, 40, 10)]
    assert rows(db, "SELECT cost, cost_source FROM rollout_usage WHERE model = 'c'") == [
        (0.25, "reported")]
    assert ("a needle",) in rows(db, "SELECT value FROM rollout_facts WHERE fact = 'tool'")
    assert rows(db, "SELECT count(*) FROM rollouts WHERE id = ?", ID) == [(0,)]
    well(db)
    before = rows(db, "SELECT * FROM rollout_calls")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollout_calls") == before


def test_records_of_several_conversations_become_lines_of_each(db):
    a, b = ({"gen_ai__conversation__id": c} for c in "ab")
    said = [record(i, "gen_ai.user.message", {"content": c}, named=False, **w)
            for i, (c, w) in enumerate([("1", a), ("2", b), ("3", a)])]
    report = load(db, logs(*said) + logs(said[1]))
    assert rows(db, "SELECT source_id, turns FROM rollouts ORDER BY 1") == [("a", 2), ("b", 2)]
    again = connect()
    one(again, "SELECT blackbox_install('main', 'rollout')")
    for rollout in report["rolloutIds"]:
        whole = exported(db, rollout)
        assert load(again, whole)["rolloutIds"] == [rollout] and exported(again, rollout) == whole
    well(again)


def test_a_file_of_records_over_several_lines_is_one_value(db):
    data = json.dumps(json.loads(logs(*history()[0])), indent=2)
    report = load(db, data)
    assert (report["format"], report["items"]) == ("otel", 3)
    assert exported(db, report["rolloutId"]) == data.encode() and load(db, data)["new"] == 0
    well(db)
