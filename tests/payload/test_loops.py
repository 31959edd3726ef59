"""Rules on loops: what a ring finds while exchanges are pushed, and what it does then."""
import json
import sqlite3

import pytest

import scenarios
import sessions
from conftest import DATA, by_hand, connect, needs_data, one, protects, rows, shell
from payload_helpers import calls_of, setting, steps

VERDICTS = ("SELECT rule, level, count, threshold, tool, seqs, tokens, action "
            "FROM payload_verdicts ORDER BY id")


def watch(db, mode="record", ring="ring", only=None):
    """A ring that looks for loops; only: the one rule that is enabled."""
    db.execute(f"CREATE VIRTUAL TABLE {ring} USING payload_ring(window=30)")
    setting(db, "on_loop", mode)
    if only:
        db.execute("UPDATE payload_rules SET enabled = (rule = ?)", (only,))
    return db


def push(db, exchanges, agent="a", ring="ring", first=0):
    for i, (request, response, at) in enumerate(exchanges):
        db.execute(f"INSERT INTO {ring}(agent_id, event_id, request_body, response_body, "
                   "timestamp) VALUES(?, ?, ?, ?, ?)", (agent, f"e{first + i}", request, response, at))


def found(db, rule=None):
    return [row for row in rows(db, VERDICTS) if rule in (None, row[0])]


def calls(count, tool="f", arguments=None, result="same"):
    """Calls whose arguments and results may depend on their number."""
    value = lambda given, i: given(i) if callable(given) else given
    return [(tool, value(arguments or {}, i), value(result, i)) for i in range(count)]


SAME = calls(4)
DIFFERENT = calls(20, arguments=lambda i: {"x": i}, result=lambda i: "abcdefghijklmnopqrst"[i])


# ---- what is found


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
@pytest.mark.parametrize("schema", ["main", "temp", "odd \"name"])
@pytest.mark.parametrize("name", sorted(set(sessions.LOOPS) - {"ABCDABCD"}))
def test_a_loop_is_stopped_within_12_calls(db, tmp_path, name, schema, inside):
    home = "main"
    if schema.startswith("odd"):
        home = '"' + schema.replace('"', '""') + '"'
        db.execute(f"ATTACH ? AS {home}", (str(tmp_path / "other.db"),))
        one(db, "SELECT blackbox_install(?, 'payload')", schema)
    ring = ("temp." if schema == "temp" else home + ".") + "ring"
    db.execute(f"CREATE VIRTUAL TABLE {ring} USING payload_ring")
    setting(db, "on_loop", "kill_switch", home)
    if inside:
        db.execute("BEGIN")
    stopped = f"SELECT stopped_at FROM {home}.payload_agents WHERE agent_id = 'a'"
    for i, exchange in enumerate(sessions.chat(sessions.LOOPS[name])):
        push(db, [exchange], ring=ring, first=i)
        if one(db, stopped) is not None:
            break
    assert i <= 12  # exchange i brings the result of call i
    verdict = rows(db, f"SELECT action, kill_switch_event_id FROM {home}.payload_verdicts")
    assert verdict[-1][0] == "kill_switch"
    saved = rows(db, f"SELECT event_id, kill_switch_event_id FROM {home}.event_payloads ORDER BY rowid")
    assert saved == [(f"e{n}", verdict[-1][1]) for n in range(i + 1)]
    assert one(db, f"SELECT count(*) FROM {ring}") == 0
    if inside:
        db.execute("COMMIT")
    if schema != "temp":
        assert rows(db, "SELECT * FROM blackbox_check") == []


@needs_data
def test_no_recorded_session_is_stopped(db):
    watch(db, ring="temp.ring")
    known = sessions.recorded(DATA)
    for name, exchanges in known.items():
        push(db, exchanges, agent=name)
    assert len(known) > 200
    assert rows(db, "SELECT agent_id, sentence FROM payload_verdicts WHERE level = 'stop'") == []
    made = {step["agent"]: step["made"] for step in steps(db, "temp.ring_slots")}
    assert sum(made.values()) > 2500


# rule: exchanges of which the last one makes it reach its threshold
REACHED = {
    "no_progress": list(sessions.chat(SAME)),
    "same_error": list(sessions.chat(calls(6, arguments=lambda i: {"x": "abcdef"[i]}, result="Error: no"))),
    "errors": list(sessions.chat(calls(6, arguments=lambda i: {"x": i}, result=lambda i: f"Error: {i}"))),
    "repeat": list(sessions.chat(calls(10, result=lambda i: "abcdefghij"[i]))),
}


@pytest.mark.parametrize("rule", REACHED)
def test_each_threshold_is_reached_and_not_before(db, rule):
    watch(db, only=rule)
    push(db, REACHED[rule][:-1])
    assert found(db) == []
    push(db, REACHED[rule][-1:])
    (verdict,) = found(db)
    assert verdict[0] == rule and verdict[2] == verdict[3]


@pytest.mark.parametrize("rule, threshold", [
    ("budget_tokens", 440), ("budget_calls", 4), ("budget_cost", 0.00132)])
def test_a_rule_that_is_off_by_default_is_reached_when_it_is_enabled(db, rule, threshold):
    assert one(db, "SELECT enabled FROM payload_rules WHERE rule = ?", rule) == 0
    watch(db, only=rule)
    db.execute("INSERT INTO blackbox_prices(model, input, output, cache_write, cache_read) "
               "VALUES('m', 1, 23, 0, 0)")
    db.execute("UPDATE payload_rules SET threshold = ? WHERE rule = ?", (threshold, rule))
    exchanges = list(sessions.chat(DIFFERENT))
    push(db, exchanges[:3])
    assert found(db) == []
    push(db, exchanges[3:8])
    assert [v[0] for v in found(db)] == [rule]


def test_what_makes_progress_is_not_found(db):
    watch(db)
    push(db, sessions.chat(DIFFERENT), "a")
    push(db, sessions.chat(calls(20, result=lambda i: "abcdefghijklmnopqrst"[i]), gap=20000), "polling")
    push(db, sessions.chat(sessions.LOOPS["clock in the result"], gap=60000), "watching the clock")
    turns = [exchange for turn in range(4) for exchange in sessions.chat(SAME[:3], user=f"turn {turn}")]
    push(db, turns, "asked again")
    assert found(db) == []


def test_what_a_user_says_between_does_not_hide_a_loop(db):
    watch(db)
    messages, exchanges = [], []
    for i in range(8):
        if i % 3 == 0:
            messages.append({"role": "user", "content": "again"})
        messages += [{"role": "assistant", "tool_calls": [
            {"id": f"c{i}", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": f"c{i}", "content": "same"}]
        exchanges.append((json.dumps({"messages": messages}), "{}", i))
    push(db, exchanges)
    assert [(v[0], v[2]) for v in found(db)] == [("no_progress", 4), ("no_progress", 7)]  # once a turn
    assert [step["turn"] for step in calls_of(db)] == [1 + i // 3 for i in range(8)]


SCENARIOS = [(name, make, name not in scenarios.MISSED) for name, make in scenarios.LOOPS.items()] \
    + [(name, make, False) for name, make in scenarios.INNOCENT.items()]


def test_the_bounds_of_the_scenarios():
    assert len(scenarios.LOOPS) >= 60 and len(scenarios.INNOCENT) >= 40
    assert len(scenarios.MISSED) <= 0.1 * len(scenarios.LOOPS) and scenarios.MISSED <= set(scenarios.LOOPS)


@pytest.mark.parametrize("make, loops", [row[1:] for row in SCENARIOS], ids=[row[0] for row in SCENARIOS])
def test_scenarios(db, make, loops):
    watch(db)
    push(db, make())
    assert bool([row for row in found(db) if row[1] == "stop"]) is loops, rows(db, "SELECT sentence FROM payload_verdicts")


# ---- the wire formats


def responses_items(i):
    call = {"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"}
    return call, {"type": "function_call_output", "call_id": f"c{i}", "output": "same"}


def stateful(count):
    """The Responses format with previous_response_id: a request has what is new."""
    asked = [{"role": "user", "content": "go"}]
    for i in range(count):
        call, output = responses_items(i)
        yield json.dumps({"input": asked}), json.dumps({"object": "response", "output": [call]}), i
        asked = [output]
    yield json.dumps({"input": asked}), "{}", count


def gemini(count):
    contents = [{"role": "user", "parts": [{"text": "go"}]}]
    for i in range(count + 1):
        call = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
        yield json.dumps({"contents": contents}), json.dumps({"candidates": [{"content": call}]}), i
        contents = contents + [call, {"role": "user", "parts": [
            {"functionResponse": {"name": "f", "response": {"x": 1}}}]}]


def anthropic(count):
    """The mark of what is cached moves from message to message."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "go"}]}]
    for i in range(count + 1):
        use = [{"type": "tool_use", "id": f"t{i}", "name": "f", "input": {}}]
        marked = json.loads(json.dumps(messages))
        for message in marked[-3:]:
            message["content"][-1]["cache_control"] = {"type": "ephemeral"}
        yield json.dumps({"messages": marked}), json.dumps({"type": "message", "content": use}), i
        messages += [{"role": "assistant", "content": use}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": f"t{i}", "content": "same"}]}]


def streamed(count):
    for request, response, at in sessions.chat(calls(count)):
        (message,) = [choice["message"] for choice in json.loads(response)["choices"]]
        pieces = [{"choices": [{"delta": {"tool_calls": [{"index": 0, **call}]}}]}
                  for call in message.get("tool_calls", [])]
        yield request, "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces), at


@pytest.mark.parametrize("form", [stateful, gemini, anthropic, streamed])
def test_each_call_is_counted_once_in_each_format(db, form):
    watch(db)
    exchanges = list(form(9))
    push(db, exchanges[:4])
    assert found(db) == []
    push(db, exchanges[4:])
    assert [v[:4] for v in found(db, "no_progress")] == [("no_progress", "stop", 4, 4)]
    assert len(calls_of(db, error=1)) == 9
    assert max(step["turn"] for step in steps(db)) == 1


def test_parallel_calls_find_their_results_by_id_in_any_order(db):
    watch(db)
    said = {"role": "assistant", "tool_calls": [
        {"id": f"c{i}", "function": {"name": "f", "arguments": json.dumps({"x": i % 2})}} for i in range(8)]}
    results = [{"role": "tool", "tool_call_id": f"c{i}", "content": f"result {'ab'[i % 2]}"}
               for i in reversed(range(8))]
    push(db, [(json.dumps({"messages": [{"role": "user", "content": "go"}, said, *results]}), None, 1)])
    assert [v[:3] for v in found(db, "no_progress")] == [("no_progress", "stop", 4)]
    assert one(db, "SELECT sentence FROM payload_verdicts") == (
        "a repeated a block of calls that ends with f 4 times, and nothing new came back")


def test_an_exchange_that_is_none_is_pushed_and_says_nothing(db):
    watch(db)
    for body in (None, "", "hello", b"\x00\xff", "{", "[" * 5000, '{"messages":[' + "1," * 50, 7):
        push(db, [(body, body, 1)])
    assert one(db, "SELECT count(*) FROM ring") == 8
    assert found(db) == [] and calls_of(db) == []
    assert rows(db, "SELECT typeof(request_body) FROM ring WHERE seq IN (4, 8) ORDER BY seq") \
        == [("blob",), ("integer",)]


def test_only_what_is_new_is_read_and_a_changed_head_is_noticed(db):
    watch(db)
    exchanges = list(sessions.chat(DIFFERENT))
    push(db, exchanges[:15])
    newest = steps(db)[-1]
    assert newest["items"] == 29 and newest["head"] > 0.6 * len(exchanges[14][0])
    changed = exchanges[15][0].replace("Do it.", "Do other things.")
    push(db, [(changed, exchanges[15][1], 16)], first=15)
    push(db, exchanges[16:], first=16)
    assert len(calls_of(db, error=1)) == 20
    assert found(db) == []


# ---- what is done


def test_off_is_the_default_and_keeps_nothing(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, sessions.chat(calls(10)))
    assert found(db) == [] and len(steps(db)) == 0


def test_a_verdict_explains_itself(db):
    watch(db)
    push(db, sessions.chat(SAME))
    assert rows(db, "SELECT at, ring, agent_id, rule, level, count, threshold, tool, turn, seqs, "
                "tokens, sentence, action, kill_switch_event_id FROM payload_verdicts") == [
        (4000, "ring", "a", "no_progress", "stop", 4, 4, "f", 1, "[1,2,3,4]", 330,
         "a called f 4 times with the same arguments and got the same result", "record", None)]


def evidence_of(db, rule):
    return [[tuple(step.values()) for step in json.loads(text)]
            for text, in rows(db, "SELECT evidence FROM payload_verdicts WHERE rule = ?", rule)]


def test_a_verdict_says_which_calls_it_means_and_what_was_new_last(db):
    watch(db)
    push(db, sessions.chat([("edit", {"x": 1}, "written")] + calls(4)))
    assert evidence_of(db, "no_progress") == [[(2, "f", "new"), (3, "f", "again"), (4, "f", "again"), (5, "f", "again")]]


def test_the_last_news_before_a_long_loop_and_before_errors(db):
    watch(db)
    push(db, sessions.chat([("edit", {"x": 1}, "written")] + calls(
        6, arguments=lambda i: {"x": "abcdef"[i]}, result="Error: no")))
    assert evidence_of(db, "same_error") == [[(1, "edit", "new")] + [(i, "f", "error") for i in range(2, 8)]]


def test_the_same_loop_is_raised_once_a_turn(db):
    watch(db)
    exchanges = list(sessions.chat(calls(9)))
    push(db, exchanges)
    assert len(found(db, "no_progress")) == 1
    messages = json.loads(exchanges[-1][0])["messages"] + [
        {"role": "assistant", "content": "done"}, {"role": "user", "content": "once more"}]
    for i in range(4):
        messages += [{"role": "assistant", "tool_calls": [
            {"id": f"d{i}", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": f"d{i}", "content": "same"}]
    push(db, [(json.dumps({"messages": messages}), None, 99999)])
    assert len(found(db, "no_progress")) == 2


@pytest.mark.parametrize("agent, rule, tool, until, allowed", [
    ("a", "no_progress", "f", None, True), (None, None, None, None, True),
    ("a", None, None, 4001, True), ("a", None, None, 3999, False),
    ("b", None, None, None, False), ("a", "errors", None, None, False), (None, None, "g", None, False)])
def test_what_a_human_allowed_is_not_raised(db, agent, rule, tool, until, allowed):
    watch(db, "kill_switch")
    db.execute("INSERT INTO payload_allows(agent_id, rule, tool, until, actor, reason) "
               "VALUES(?, ?, ?, ?, 'Ann', 'it waits for a build')", (agent, rule, tool, until))
    push(db, sessions.chat(SAME))
    assert (found(db) == []) is allowed
    assert one(db, "SELECT count(*) FROM ring") == (5 if allowed else 0)


def test_an_agent_has_a_mode_of_its_own(db):
    watch(db, "off")
    db.execute("INSERT INTO payload_agents(agent_id, on_loop) VALUES('watched', 'kill_switch')")
    for agent in "watched", "other":
        push(db, sessions.chat(SAME), agent)
    setting(db, "on_loop", "record")
    db.execute("INSERT INTO payload_agents(agent_id, on_loop) VALUES('left alone', 'off')")
    push(db, sessions.chat(SAME), "left alone")
    assert rows(db, "SELECT agent_id, action FROM payload_verdicts") == [("watched", "kill_switch")]


def test_record_and_then_kill_switch(db):
    watch(db)
    exchanges = list(sessions.chat(calls(8)))
    push(db, exchanges[:6])
    setting(db, "on_loop", "kill_switch")
    push(db, exchanges[6:7])
    assert [v[-1] for v in found(db, "no_progress")] == ["record", "kill_switch"]


AFTER = ("SELECT event_id, request_body, response_body FROM payload_rows "
         "WHERE request_body LIKE 'more%' ORDER BY rowid")


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
@pytest.mark.parametrize("schema", ["main", "temp"])
def test_what_a_stopped_agent_does_is_recorded_and_added_to_the_evidence(db, schema, inside):
    ring = f"{schema}.ring"
    watch(db, "kill_switch", ring)
    push(db, sessions.chat(SAME), ring=ring)
    if inside:
        db.execute("BEGIN")
    more = [(f"more {i}", f"answer {i}", i) for i in range(40)]
    push(db, more, ring=ring)
    push(db, [("more", None, 1)], agent="b", ring=ring)
    if inside:
        db.execute("COMMIT")
    assert rows(db, AFTER) == [(f"e{i}", *row[:2]) for i, row in enumerate(more[:30])]  # the window
    assert rows(db, "SELECT DISTINCT purpose, pinned, kill_switch_event_id FROM event_payloads") \
        == rows(db, "SELECT 'evidence', 1, kill_switch_event_id FROM payload_verdicts")
    assert rows(db, f"SELECT request_body FROM {ring} WHERE agent_id = 'a' ORDER BY seq") \
        == [(row[0],) for row in more[10:]]
    assert rows(db, "SELECT went_on FROM payload_agents") == [(40,)]
    assert len(found(db)) == 1
    switch = one(db, "SELECT kill_switch_event_id FROM payload_verdicts")
    assert one(db, "SELECT payload_kill_switch(?, 'a', ?)", ring, switch) == 10
    if schema == "main":
        assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_stopped_agent_that_loops_on_is_stopped_once(db):
    watch(db, "kill_switch")
    push(db, sessions.chat(calls(12)))
    push(db, sessions.chat(calls(12, tool="g"), user="another thing"))
    assert [v[-1] for v in found(db)].count("kill_switch") == 1
    assert one(db, "SELECT count(*) FROM blackbox_log WHERE kind = 'kill_switch'") == 1
    assert one(db, "SELECT count(DISTINCT kill_switch_event_id) FROM event_payloads") == 1


def test_a_stop_by_hand_may_name_its_evidence(db):
    watch(db, "off")
    push(db, [("before", "answer", 1)])
    one(db, "SELECT payload_kill_switch('ring', 'a', 'night-1')")
    db.execute("INSERT INTO payload_agents(agent_id, stopped_at, stopped_by, kill_switch_event_id) "
               "VALUES('a', 5, 'Ann', 'night-1'), ('b', 5, 'Ann', NULL)")
    push(db, [("more", "answer", 6)])
    push(db, [("more", "answer", 6)], agent="b")
    assert rows(db, "SELECT request_body FROM payload_rows ORDER BY rowid") == [("before",), ("more",)]
    assert rows(db, "SELECT agent_id, went_on FROM payload_agents") == [("a", 1), ("b", 1)]
    assert one(db, "SELECT count(*) FROM ring") == 2


def test_a_person_stops_an_agent_with_a_reason(db):
    stop = "INSERT INTO payload_agent_log(agent_id, act, actor, reason, at) VALUES(?, ?, ?, ?, ?)"
    db.execute(stop, ("a", "stop", "Ann", "deletes tests", 7))
    db.execute(stop, ("a", "stop", "Ben", "as Ann says", 9))
    assert rows(db, "SELECT agent_id, stopped_at, stopped_by, starts FROM payload_agents") \
        == [("a", 7, "Ann", 0)]
    for wrong in (("a", "pause", "Ann", "r", 1), ("a", "stop", " ", "r", 1), (None, "stop", "Ann", "r", 1),
                  ("a", "stop", b"Ann", "r", 1), ("a", "stop", "Ann", None, 1)):
        with pytest.raises(sqlite3.IntegrityError, match="^ValidationError: (act|actor|reason|agent_id) must be"):
            db.execute(stop, wrong)
    db.execute("DELETE FROM payload_agents")
    assert one(db, "SELECT count(*) FROM blackbox_check WHERE object = 'payload_agents'") > 0
    db.execute(stop, ("a", "stop", "Ann", "again", 11))
    db.execute(stop, ("a", "start", "Ann", "mended", 12))
    assert rows(db, "SELECT act, actor, reason, starts, at FROM payload_agent_log") == [
        ("stop", "Ann", "deletes tests", 0, 7), ("stop", "Ben", "as Ann says", 0, 9),
        ("stop", "Ann", "again", 0, 11), ("start", "Ann", "mended", 1, 12)]
    one(db, "SELECT proof_head()")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_response_that_comes_after_the_stop_completes_ring_and_evidence(db):
    watch(db, "kill_switch")
    push(db, sessions.chat(SAME))
    push(db, [("more", None, 7)])
    db.execute("INSERT INTO ring(ring, agent_id, event_id, response_body) "
               "VALUES('complete', 'a', 'e0', 'late')")
    assert rows(db, AFTER) == [("e0", "more", "late")]
    assert rows(db, "SELECT request_body, response_body FROM ring") == [("more", "late")]
    assert one(db, "SELECT went_on FROM payload_agents") == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_evidence_of_a_stopped_agent_that_cannot_be_saved_does_not_refuse_the_push(db):
    watch(db, "kill_switch")
    push(db, sessions.chat(SAME))
    db.execute("CREATE TRIGGER refuse BEFORE INSERT ON event_payloads BEGIN "
               "SELECT RAISE(ABORT, 'not today'); END")
    push(db, [("more", None, 7)])
    assert one(db, "SELECT count(*) FROM ring") == 1
    assert one(db, "SELECT reason FROM blackbox_log WHERE kind = 'passed_over'") == "not today"
    db.execute("DROP TRIGGER refuse")
    db.execute("CREATE TRIGGER echo AFTER INSERT ON event_payloads BEGIN INSERT INTO ring(agent_id, "
               "event_id, request_body) VALUES('a', 'echo', 'echo'); END")
    push(db, [("more", None, 8)])
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq") == [("more",), ("more",), ("echo",)]


def test_an_agent_is_started_with_a_reason_and_a_rule_stops_it_again(db):
    watch(db, "kill_switch")
    push(db, sessions.chat(SAME))
    push(db, [("more", None, 1)])
    for statement in ("UPDATE payload_agents SET stopped_at = NULL", "DELETE FROM payload_agents",
                      "REPLACE INTO payload_agents(agent_id) VALUES('a')",
                      "UPDATE payload_agents SET agent_id = 'c'"):
        db.execute("SAVEPOINT s")
        db.execute(statement)
        assert rows(db, "SELECT problem FROM blackbox_check WHERE object = 'payload_agents'") == [
            ("agent a was stopped, and started without payload_agent_log",)]
        db.execute("ROLLBACK TO s")
        db.execute("RELEASE s")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    for values in "('a', '', 'r')", "('a', 'Ann', NULL)", "('b', 'Ann', 'r')":
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError|NotFoundError"):
            db.execute(f"INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES{values}")
    db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('a', 'Ann', 'mended')")
    assert rows(db, "SELECT kind, actor, reason FROM blackbox_log "
                "WHERE kind IN ('stop', 'start')") == [
        ("stop", "rule no_progress", None), ("start", "Ann", "mended")]
    assert rows(db, "SELECT starts, went_on, kill_switch_event_id FROM payload_agents") == [(1, 0, None)]
    assert rows(db, "SELECT starts FROM payload_agent_log") == [(0,), (1,)]
    assert rows(db, "SELECT actor, reason, subject FROM blackbox_log WHERE kind = 'kill_switch'") \
        == rows(db, "SELECT 'rule ' || rule, sentence, kill_switch_event_id FROM payload_verdicts")
    exchanges = list(sessions.chat(calls(4), user="after the start"))
    push(db, exchanges[:4])
    assert len(found(db)) == 1
    push(db, exchanges[4:])
    assert [v[-1] for v in found(db)] == ["kill_switch"] * 2
    push(db, [("more", None, 2)])
    assert rows(db, "SELECT went_on, kill_switch_event_id FROM payload_agents") \
        == rows(db, "SELECT 1, max(kill_switch_event_id) FROM payload_verdicts WHERE id = 2")


def test_a_start_forgets_the_calls_before_it(db):
    """Also when the agent was stopped by hand, and its ring was not emptied."""
    watch(db)
    exchanges = list(sessions.chat(calls(6)))
    push(db, exchanges[:4])
    db.execute("INSERT INTO payload_agents(agent_id, stopped_at, stopped_by) VALUES('a', 1, 'Ann')")
    db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('a', 'Ann', 'go on')")
    push(db, exchanges[4:])
    assert found(db) == []


# ---- triggers of users


def test_a_trigger_of_the_user_sees_each_verdict(db):
    watch(db, "kill_switch")
    db.executescript("CREATE TABLE webhooks(body); CREATE TRIGGER tell AFTER INSERT ON payload_verdicts "
                     "BEGIN INSERT INTO webhooks VALUES(NEW.agent_id || ': ' || NEW.sentence); END;")
    push(db, sessions.chat(SAME))
    assert rows(db, "SELECT * FROM webhooks") \
        == [("a: a called f 4 times with the same arguments and got the same result",)]


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
@pytest.mark.parametrize("ring", ["ring", "temp.ring"])
def test_a_trigger_that_refuses_the_verdict_does_not_refuse_the_push(db, ring, inside):
    watch(db, "kill_switch", ring)
    db.execute("CREATE TRIGGER refuse BEFORE INSERT ON payload_verdicts BEGIN "
               "SELECT RAISE(ABORT, 'not today'); END")
    exchanges = list(sessions.chat(SAME + SAME[:2]))
    push(db, exchanges[:4], ring=ring)
    if inside:
        db.execute("BEGIN")
    push(db, exchanges[4:-1], ring=ring)
    if inside:
        db.execute("COMMIT")
    assert one(db, f"SELECT count(*) FROM {ring}") == len(exchanges) - 1
    assert one(db, "SELECT count(*) FROM event_payloads") == 0
    assert rows(db, "SELECT subject, reason, agent_id FROM blackbox_log WHERE kind = 'passed_over'") \
        == [(ring, "not today", "a")]  # once a day
    db.execute("DROP TRIGGER refuse")
    push(db, exchanges[-1:], ring=ring)
    assert [v[-1] for v in found(db)] == ["kill_switch"]
    assert one(db, "SELECT count(*) FROM event_payloads") == len(exchanges)


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
def test_a_kill_switch_that_fails_does_not_refuse_the_push(db, inside):
    watch(db, "kill_switch")
    db.execute("CREATE TRIGGER refuse BEFORE INSERT ON event_payloads BEGIN "
               "SELECT RAISE(ABORT, 'not today'); END")
    exchanges = list(sessions.chat(SAME))
    if inside:
        db.execute("BEGIN")
    push(db, exchanges)
    if inside:
        db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM ring") == len(exchanges)
    assert one(db, "SELECT reason FROM blackbox_log WHERE kind = 'passed_over'") == "not today"
    db.execute("DROP TRIGGER refuse")
    kill = one(db, "SELECT kill_switch_event_id FROM payload_verdicts")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', ?)", kill) == len(exchanges)


def test_a_trigger_that_takes_the_transaction_away_refuses_the_push(db):
    watch(db, "kill_switch")
    db.execute("CREATE TRIGGER refuse BEFORE INSERT ON payload_verdicts BEGIN "
               "SELECT RAISE(ROLLBACK, 'not today'); END")
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges[:4])
    db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="not today"):
        push(db, exchanges[4:])
    assert not db.in_transaction and one(db, "SELECT count(*) FROM ring") == 4


def test_what_a_trigger_on_verdicts_pushes_is_recorded(db):
    watch(db)
    db.execute("CREATE TRIGGER again AFTER INSERT ON payload_verdicts BEGIN "
               "INSERT INTO ring(agent_id, event_id) VALUES('a', 'again'); END")
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges)
    assert one(db, "SELECT event_id FROM ring ORDER BY seq DESC LIMIT 1") == "again"
    assert one(db, "SELECT count(*) FROM ring") == len(exchanges) + 1 and len(found(db)) == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ---- transactions, connections, files


def test_a_rollback_forgets_what_was_pushed(db):
    watch(db)
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges[:2])
    for _ in range(3):
        db.execute("BEGIN")
        push(db, exchanges[2:])
        assert len(found(db)) == 1
        db.execute("ROLLBACK")
    db.execute("BEGIN")
    push(db, exchanges[2:3])
    db.execute("SAVEPOINT s")
    push(db, exchanges[3:])
    db.execute("ROLLBACK TO s")
    assert found(db) == []
    push(db, exchanges[3:4])
    db.execute("COMMIT")
    assert found(db) == []
    push(db, exchanges[4:])
    assert len(found(db)) == 1


def test_a_setting_counts_at_once_also_when_it_is_rolled_back(db):
    watch(db, "off")
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges[:1])
    db.execute("BEGIN")
    setting(db, "on_loop", "record")
    push(db, exchanges[:1])
    assert len(steps(db)) == 1
    db.execute("ROLLBACK")
    push(db, exchanges[:1])
    assert len(steps(db)) == 0


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
@pytest.mark.parametrize("ring", ["ring", "temp.ring"])
def test_a_rule_that_changes_counts_at_the_next_push(db, ring, inside):
    watch(db, ring=ring, only="no_progress")
    exchanges = list(sessions.chat(calls(6)))
    if inside:
        db.execute("BEGIN")
    push(db, exchanges[:3], ring=ring)
    db.execute("UPDATE payload_rules SET threshold = 5 WHERE rule = 'no_progress'")
    push(db, exchanges[3:5], ring=ring)
    assert found(db) == []
    push(db, exchanges[5:6], ring=ring)
    assert [row[2:4] for row in found(db)] == [(5, 5)]


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
def test_steps_that_somebody_changed_are_read_again(db, inside):
    if protects():
        pytest.skip("this connection may not write ring_slots")
    watch(db)
    exchanges = list(sessions.chat(calls(6)))
    if inside:
        db.execute("BEGIN")
    push(db, exchanges[:3])
    db.execute("UPDATE ring_slots SET steps = NULL")
    push(db, exchanges[3:4])
    assert len(steps(db)) == 2  # that of the newest call of the request, and its own
    assert found(db) == []


@pytest.mark.parametrize("ring", ["ring", "temp.ring"])
def test_connections_in_turn_see_each_other(db, path, ring):
    watch(db, "off", ring)
    other = connect(path)
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges[:1], ring=ring)
    setting(other, "on_loop", "record")
    if ring == "temp.ring":
        one(db, "SELECT count(*) FROM ring")
        db.execute("CREATE TEMP TABLE t(x)")
        db.execute("INSERT INTO t VALUES(1)")  # so that it looks before a second has passed
        push(db, exchanges, ring=ring)
    else:
        push(db, exchanges[:1])
        for i in range(1, 5):
            push(other if i % 2 else db, exchanges[i:i + 1])
    assert len(found(other)) == 1
    other.close()


def test_rules_may_come_after_the_ring(path):
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, sessions.chat(SAME))
    one(db, "SELECT blackbox_install('main', 'payload')")
    setting(db, "on_loop", "record")
    push(db, sessions.chat(SAME), "b")
    assert len(found(db)) == 1



def test_it_goes_on_after_reopening_and_in_a_copy(db, path, tmp_path):
    watch(db)
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges[:3])
    db.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    db.close()
    for file in path, tmp_path / "copy.db":
        again = connect(file)
        push(again, exchanges[3:])
        assert len(found(again)) == 1
        again.close()


def test_a_dump_keeps_rules_and_verdicts(db, path, tmp_path):
    watch(db)
    db.execute("UPDATE payload_rules SET threshold = 3 WHERE rule = 'no_progress'")
    push(db, sessions.chat(SAME))
    kept = found(db), rows(db, "SELECT * FROM payload_rules")
    db.execute("DROP TABLE ring")
    db.close()
    dump = shell(path, ".dump")
    shell(tmp_path / "again.db", stdin=dump)
    again = connect(tmp_path / "again.db")
    assert (found(again), rows(again, "SELECT * FROM payload_rules")) == kept
    watch_again = "CREATE VIRTUAL TABLE ring USING payload_ring"
    again.execute(watch_again)
    push(again, sessions.chat(SAME), "b")
    assert len(found(again)) == 2


def test_an_agent_that_goes_takes_its_steps_along(db, path):
    watch(db)
    db.execute("INSERT INTO ring(ring, value) VALUES('idle_days', 1)")
    push(db, sessions.chat(SAME))
    db.execute("DELETE FROM ring")
    by_hand(path, "UPDATE ring_agents SET at = at - 90000000")
    push(db, sessions.chat(SAME), "b")
    assert rows(db, "SELECT DISTINCT agent_id FROM ring_agents") == [("b",)]
    assert len({step["agent"] for step in steps(db)}) == 1


def test_many_agents_are_told_apart(db):
    """More than are kept in memory, in turn."""
    watch(db, only="no_progress")
    exchanges = list(sessions.chat(SAME))
    db.execute("BEGIN")
    for i, exchange in enumerate(exchanges):
        for agent in range(140):
            if i < 4 or agent % 7:
                push(db, [exchange], f"agent {agent}")
    assert one(db, "SELECT count(DISTINCT agent_id) FROM payload_verdicts") == 120
    assert one(db, "SELECT count(*) FROM payload_verdicts") == 120


def test_steps_are_few_and_small(db, path):
    watch(db)
    push(db, sessions.chat(calls(300, arguments=lambda i: {"x": i}, result=lambda i: f"{i} é" * 9)))
    assert len(steps(db)) == 31  # those of the window, and the one whose result came first
    assert one(db, "SELECT max(length(steps)) FROM ring_slots") < 400


def test_defensive_mode_and_an_untrusted_schema(path):
    script = (".load ./blackbox\n.dbconfig defensive on\n.dbconfig trusted_schema off\n"
              "SELECT blackbox_install('main', 'payload');\n"
              "CREATE VIRTUAL TABLE ring USING payload_ring;\n"
              "INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', 'kill_switch');\n")
    for request, response, at in sessions.chat(SAME):
        script += ("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) "
                   f"VALUES('a', 'e', '{request}', '{response}', {at});\n")
    script += "SELECT action FROM payload_verdicts; SELECT count(*) FROM event_payloads;\n"
    assert shell(path, stdin=script).splitlines()[-2:] == ["kill_switch", "5"]


# ---- the tables


def test_the_log_keeps_the_verdicts_and_stops(db):
    watch(db)
    push(db, sessions.chat(SAME))
    (sentence,), = rows(db, "SELECT sentence FROM payload_verdicts")
    db.execute("UPDATE payload_verdicts SET sentence = ''")
    db.execute("DELETE FROM payload_verdicts")
    assert rows(db, "SELECT subject, reason, agent_id FROM blackbox_log WHERE kind = 'verdict'") \
        == [("no_progress", sentence, "a")]
    db.execute("INSERT INTO payload_agent_log(agent_id, act, actor, reason) VALUES('a', 'stop', 'Ann', 'r')")
    for act in "UPDATE payload_agent_log SET reason = ''", "DELETE FROM payload_agent_log":
        with pytest.raises(sqlite3.OperationalError, match="ReadOnlyError"):
            db.execute(act)


@pytest.mark.parametrize("sql", [
    "INSERT INTO payload_rules VALUES('mine', 1, 'stop', 1, 1, NULL, 'x')",
    "UPDATE payload_rules SET rule = 'mine' WHERE rule = 'repeat'",
    "INSERT INTO payload_allows(rule, actor, reason) VALUES('no_progess', 'Ann', 'a poll')",
    "INSERT INTO payload_allows(rule, actor) VALUES('repeat', 'Ann')",
    "INSERT INTO payload_allows(rule, actor, reason) VALUES('repeat', ' ', 'a poll')"])
def test_a_rule_that_nobody_knows_and_an_allow_without_a_reason_are_refused(db, sql):
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        db.execute(sql)
    assert one(db, "SELECT count(*) FROM payload_rules") == 7
    db.execute("DELETE FROM payload_rules WHERE rule = 'repeat'")
    one(db, "SELECT blackbox_install()")
    assert one(db, "SELECT count(*) FROM payload_rules") == 7


@pytest.mark.parametrize("change", [
    "threshold = 101", "threshold = 0", "threshold = 'x'", "span = 0", "span = 101", "level = 'warn'",
    "enabled = 2", "pause_ms = -1"])
def test_a_rule_that_could_not_be_reached_is_refused(db, change):
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"UPDATE payload_rules SET {change} WHERE rule = 'no_progress'")


@pytest.mark.parametrize("column, value", [
    ("on_loop", "on"), ("on_loop", 7)])
def test_the_ranges_of_an_agent(db, column, value):
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(f"INSERT INTO payload_agents(agent_id, {column}) VALUES('a', ?)", (value,))


# ---- loops and backtest


LOOPS = 'SELECT rule, count, "left", tool, seqs, sentence FROM payload_loops(?, ?) WHERE enabled'


def test_payload_loops_says_how_far_a_rule_is_from_its_threshold(db):
    watch(db)
    push(db, list(sessions.chat(SAME))[:4])
    seen = {row[0]: row[1:] for row in rows(db, LOOPS, "ring", "a")}
    assert seen["no_progress"] == (3, 1, "f", "[1,2,3]",
                                   "a called f 3 times with the same arguments and got the same result")
    assert seen["errors"] == (0, 6, None, None, None)
    assert rows(db, LOOPS, "ring", "nobody") == []
    push(db, sessions.chat(SAME), "b")
    assert one(db, "SELECT count(DISTINCT agent_id) FROM payload_loops('ring')") == 2
    with pytest.raises(sqlite3.Error, match="NotFoundError"):
        rows(db, LOOPS, "rong", None)


def test_backtest_finds_in_the_evidence_what_was_found(db):
    watch(db, "kill_switch")
    push(db, sessions.chat(SAME))
    kill = one(db, "SELECT kill_switch_event_id FROM payload_verdicts")
    before = one(db, "SELECT total_changes()")
    for what in (kill, None, None), ("a", None, None), ("a", 0, 4000):
        assert rows(db, "SELECT agent_id, event_id, at, rule, count, threshold, tool, seqs, tokens "
                    "FROM payload_backtest(?, ?, ?)", *what) \
            == [("a", "e4", 4000, "no_progress", 4, 4, "f", "[1,2,3,4]", 330)]
    assert rows(db, "SELECT * FROM payload_backtest('a', 0, 3999)") == []
    assert rows(db, "SELECT * FROM payload_backtest('nobody')") == []
    db.execute("UPDATE payload_rules SET threshold = 3 WHERE rule = 'no_progress'")
    assert rows(db, "SELECT event_id, count FROM payload_backtest('a')") == [("e3", 3)]
    assert one(db, "SELECT total_changes()") - before == 1  # the rule


def test_backtest_shows_the_calls_so_that_a_person_can_judge(db):
    watch(db, "kill_switch")
    push(db, sessions.chat([("read", {"path": "a.c"}, "x" * 200)] + calls(
        4, arguments={"cmd": "make"}, result="Error: no\nrule")))
    (shown, evidence), = rows(db, "SELECT calls, evidence FROM payload_backtest('a') WHERE rule = 'no_progress'")
    assert shown.splitlines() == ['read {"path":"a.c"}', "  = " + "x" * 100 + "..."] \
        + ['f {"cmd":"make"}', "  error: Error: no rule"] * 4
    assert json.loads(evidence) == json.loads(one(db, "SELECT evidence FROM payload_verdicts"))


def test_backtest_of_the_archive_keeps_agents_apart(db):
    for agent in "ab":
        for i, (request, response, at) in enumerate(sessions.chat(calls(3))):
            db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, "
                       "purpose, created_at) VALUES(?, ?, ?, ?, 'archive', "
                       "strftime('%Y-%m-%dT%H:%M:%fZ', ?, 'unixepoch'))",
                       (f"{agent}{i}", agent, request, response, 1790000000 + at / 1000))
    assert rows(db, "SELECT * FROM payload_backtest('a')") == []
    db.execute("UPDATE payload_rules SET threshold = 3 WHERE rule = 'no_progress'")
    assert rows(db, "SELECT agent_id, event_id FROM payload_backtest('b')") == [("b", "b3")]


# ---- what fails beside the record


@pytest.mark.all_domains
@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
def test_an_erased_event_does_not_stop_the_switch(db, inside):
    watch(db, "kill_switch")
    exchanges = list(sessions.chat(calls(5)))  # the erased one has no steps
    push(db, exchanges[:2])
    one(db, "SELECT blackbox_erase('event', 'e1', 'ann', 'asked')")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e1')")
    if inside:
        db.execute("BEGIN")
    push(db, exchanges[2:], first=2)
    if inside:
        db.execute("COMMIT")
    assert [v[-1] for v in found(db)] == ["kill_switch"]
    assert rows(db, "SELECT event_id FROM ring WHERE seq < 7") == [("e1",)]
    assert one(db, "SELECT saved FROM ring_agents") == 5
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 5
    assert rows(db, "SELECT rows, agent_id FROM blackbox_log WHERE kind = 'passed_over'") == [(1, "a")]
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "BEGIN"])
@pytest.mark.parametrize("lost", [
    "blackbox_places", "blackbox_prices",
    "payload_rules", "payload_agents", "payload_verdicts", "payload_allows", "blackbox_settings",
    "retention__in_force", "blackbox__log"])
def test_a_push_goes_on_whatever_is_lost_beside_it(db, lost, inside):
    watch(db, "kill_switch")
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges[:1])
    db.execute(f"DROP TABLE {lost}")
    if inside:
        db.execute("BEGIN")
    push(db, exchanges[1:])
    if inside:
        db.execute("COMMIT")
    assert one(db, "SELECT given FROM ring_agents") == len(exchanges)


def test_the_largest_numbers_stop_nothing(db):
    watch(db, "kill_switch")
    largest = 2**63 - 1
    db.execute("INSERT INTO payload_verdicts(id, at, ring, agent_id, rule, level, count, threshold,"
               " turn, thing, seqs, tokens, sentence, action) VALUES(?, 1, 'r', 'z', 'text', 'stop',"
               " 1, 1, 1, 1, '[]', 1, 's', 'record')", (largest,))
    db.execute("INSERT INTO blackbox__log(n, domain, kind) VALUES(?, 'core', 'x')", (largest,))
    exchanges = list(sessions.chat(SAME))
    push(db, exchanges)
    assert one(db, "SELECT given FROM ring_agents") == len(exchanges)
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == len(exchanges)
