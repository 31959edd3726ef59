"""What a call costs: the price that holds for a model, a day and a long prompt, in rules,
reports and usage alike."""
import gzip
import hashlib
import json
import random
import sqlite3

import pytest

from conftest import DATA, ROOT, needs_data, one, rows

AT = 1768953600000  # 2026-01-21
DAY = 86400000
TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
          "output_tokens")


def price(db, model, input, output, **more):
    """A row of prices, for a million tokens."""
    row = {"model": model, "input": input, "output": output, **more}
    db.execute(f"INSERT INTO blackbox_prices({', '.join(row)}) "
               f"VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def usage(input=0, write=0, read=0, output=0, hour=0, reasoning=0):
    return {**dict(zip(TOKENS, (input, write, read, output))),
            "cache_creation": {"ephemeral_1h_input_tokens": hour},
            "output_tokens_details": {"thinking_tokens": reasoning}}


def told(db, model, at=AT, **tokens):
    """The cost of a call, as usage has it."""
    line = {"type": "assistant", "sessionId": "s", "message": {
        "role": "assistant", "content": [], "model": model, "usage": usage(**tokens)}}
    db.execute("DELETE FROM rollouts")
    one(db, "SELECT rollout_import(?, NULL, ?)", json.dumps(line), at)
    return one(db, "SELECT cost FROM rollout_usage")


def watched(db, model, at=AT, **tokens):
    """The cost of a call, as the rule of budgets has it."""
    if not rows(db, "SELECT 1 FROM sqlite_schema WHERE name = 'ring'"):
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=100)")
        db.execute("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'")
    db.execute("UPDATE payload_rules SET enabled = rule = 'budget_cost'")
    agent = str(random.random())
    body = json.dumps({"type": "message", "model": model, "role": "assistant",
                       "content": [], "usage": usage(**tokens)})
    request = json.dumps({"model": model, "messages": [{"role": "user", "content": "x"}]})
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) "
               "VALUES (?, 'e', ?, ?, ?)", (agent, request, body, at))
    return one(db, "SELECT count FROM payload_loops('ring', ?) WHERE rule = 'budget_cost'", agent)


def reported(db, model, at=AT, **tokens):
    """The cost of a call, as the report of a kill switch has it."""
    body = json.dumps({"type": "message", "model": model, "role": "assistant",
                       "content": [], "usage": usage(**tokens)})
    switch = str(random.random())
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body, "
               "purpose, pinned, kill_switch_event_id, created_at, size_bytes) VALUES "
               "(?1, 'e', 'a', '{}', ?2, 'evidence', 1, ?1, "
               "strftime('%Y-%m-%dT%H:%M:%fZ', ?3 / 1000.0, 'unixepoch'), 2 + length(?2))",
               (switch, body, at))
    return json.loads(one(db, "SELECT blackbox_report('kill_switch', ?, ?)", switch,
                          '{"format":"json"}'))["usage"]["cost"]


@pytest.fixture(params=[told, watched, reported])
def cost(request, db):
    return lambda model, at=AT, **tokens: request.param(db, model, at, **tokens)


def close(value):
    return pytest.approx(value, abs=1.1e-6)


def test_each_kind_of_token_has_its_price(db, cost):
    price(db, "m", 2, 10, cache_write=3, cache_write_1h=5, cache_read=0.5, reasoning=20)
    assert cost("m", input=10000, write=3000, hour=1000, read=40000, output=500,
                reasoning=200) == close(
        (10000 * 2 + 2000 * 3 + 1000 * 5 + 40000 * 0.5 + 300 * 10 + 200 * 20) / 1e6)


def test_a_price_without_its_own_columns(db, cost):
    """An hour in the cache costs twice the input, the rest what input and output cost."""
    price(db, "m", 2, 10)
    assert cost("m", input=1000, write=3000, hour=1000, read=4000, output=500,
                reasoning=200) == close((1000 * 2 + 2000 * 2 + 1000 * 4 + 4000 * 2 + 500 * 10)
                                        / 1e6)


def test_more_for_an_hour_than_written_is_not_counted(db, cost):
    price(db, "m", 2, 10)
    assert cost("m", write=1000, hour=5000) == close(1000 * 4 / 1e6)


@pytest.mark.parametrize("model", [
    "claude-opus-4-5", "claude-opus-4-5-20251101", "anthropic/claude-opus-4-5",
    "anthropic/claude-opus-4-5-20251101", "claude-opus-4-5@20251101", "a/b/claude-opus-4-5",
    "claude-opus-4-5-2025-11-01", "claude-opus-4-5-latest"])
def test_a_model_with_a_date_or_a_vendor_has_the_price_of_its_name(db, cost, model):
    price(db, "claude-opus-4-5", 5, 25)
    price(db, "claude-opus-4", 15, 75)
    assert cost(model, input=1000) == close(5000 / 1e6)


@pytest.mark.parametrize("model", ["claude-opus-4-5-fast", "claude-opus-4-50", "opus-4-5",
                                   "claude-opus-4-5-2025110", "x-claude-opus-4-5", ""])
def test_another_model_has_no_price(db, cost, model):
    price(db, "claude-opus-4-5", 5, 25)
    assert not cost(model, input=1000)


def test_the_longest_name_wins(db, cost):
    for i, model in enumerate(["m", "v/m", "m-20251101", "v/m-20251101"]):
        price(db, model, i + 1, 1)
        assert cost("v/m-20251101", input=1000000) == close(i + 1)
    assert cost("w/m-20251101", input=1000000) == close(3)


def test_a_price_holds_from_its_day_on(db, cost):
    for day, input in ("2026-01-10", 1), ("2026-01-20", 2), ("2026-01-30", 3):
        price(db, "m", input, 1, since=day)
    for days, paid in (-100, 1), (-10, 1), (-2, 1), (-1, 2), (0, 2), (8, 2), (9, 3), (100, 3):
        assert cost("m", AT + days * DAY, input=1000000) == close(paid)


def test_a_long_prompt_costs_more_in_all_its_tokens(db, cost):
    price(db, "m", 1, 10, since="2026-01-01")
    price(db, "m", 2, 15, since="2026-01-01", above=200000)
    price(db, "m", 4, 20, since="2026-01-01", above=500000)
    price(db, "m", 9, 9, since="2025-01-01", above=300000)
    assert cost("m", input=200000, output=1000) == close(.2 + .01)
    assert cost("m", input=100000, write=50000, read=50001, output=1000) == close(.400002 + .015)
    assert cost("m", input=400000, output=1000) == close(.8 + .015)
    assert cost("m", input=500001) == close(2.000004)


def test_rules_reports_and_usage_agree(db):
    """Any prices and any tokens."""
    dice = random.Random(4)
    for _ in range(60):
        def maybe(top):
            return dice.choice([None, round(dice.uniform(0, top), 3)])
        row = {"model": dice.choice(["m", "v/m", "m-20260101", "n"]),
               "input": dice.choice([0, 1, 2.5]), "output": dice.choice([0, 10]),
               "since": f"2026-01-{dice.randint(10, 30)}",
               "above": dice.choice([0, 0, 1000, 200000]), "cache_write": maybe(3),
               "cache_write_1h": maybe(5), "cache_read": maybe(1), "reasoning": maybe(20)}
        db.execute(f"INSERT OR REPLACE INTO blackbox_prices({', '.join(row)}) "
                   f"VALUES ({', '.join('?' * len(row))})", tuple(row.values()))
        call = {"model": dice.choice(["m", "v/m", "w/m-20260101", "v/n"]),
                "at": AT + dice.randint(-20, 20) * DAY,
                "input": dice.randint(1, 300000), "write": dice.randint(0, 100000),
                "hour": dice.randint(0, 200000), "read": dice.randint(0, 300000),
                "output": dice.randint(0, 9000), "reasoning": dice.randint(0, 9000)}
        first, second, third = (way(db, **call) for way in (told, watched, reported))
        assert close(first or 0) == second
        assert close(first or 0) == (third or 0)


def test_a_list_is_loaded_with_its_date_and_digest(db):
    text = json.dumps({
        "sample_spec": {"input_cost_per_token": 0, "output_cost_per_token": 0, "mode": "chat"},
        "a": {"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
              "cache_creation_input_token_cost": 3.75e-06, "cache_read_input_token_cost": 3e-07,
              "cache_creation_input_token_cost_above_1hr": 6e-06,
              "output_cost_per_reasoning_token": 2e-05,
              "input_cost_per_token_above_200k_tokens": 6e-06,
              "output_cost_per_token_above_200k_tokens": 2.25e-05,
              "cache_creation_input_token_cost_above_1hr_above_200k_tokens": 1.2e-05,
              "input_cost_per_token_above_200k_tokens_priority": 1},
        "b": {"input": 2, "output": 8}, "c": {"input": 2}, "d": 5,
        "e": {"input": "2", "output": None}, "f": {"input": -1, "output": 2},
        "g": [{"input": 1, "output": 2, "since": "2025-01-01", "above": 100000}, {"input": 3}]})
    assert one(db, "SELECT rollout_load_prices(?, 'all', '2026-11-01')", text) == 3
    digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert rows(db, "SELECT * FROM blackbox_prices") == [
        ("a", "2026-11-01", 0, 3, 15, 3.75, 6, .3, 20, "all", "2026-11-01", digest),
        ("a", "2026-11-01", 200000, 6, 22.5, None, 12, None, None, "all", "2026-11-01", digest),
        ("b", "2026-11-01", 0, 2, 8, None, None, None, None, "all", "2026-11-01", digest),
        ("g", "2025-01-01", 100000, 1, 2, None, None, None, None, "all", "2026-11-01", digest)]
    one(db, "SELECT rollout_load_prices('{\"a\":{\"input\":1,\"output\":1}}', 'x', '2026-11-01')")
    assert rows(db, "SELECT above, input, list FROM blackbox_prices WHERE model = 'a'") == [
        (0, 1, "x")]
    db.execute("INSERT INTO blackbox_call VALUES ('rollout_load_prices', "
               "json_array('{\"b\":{\"input\":1,\"output\":1}}', 'newer'))")
    assert rows(db, "SELECT since = date('now'), input, list FROM blackbox_prices "
                "WHERE model = 'b' ORDER BY since") == [(0, 2, "all"), (1, 1, "newer")]


@pytest.mark.parametrize("arguments, said", [
    (("[]", "x"), "list must be a JSON object"), (("{", "x"), "list must be a JSON object"),
    ((None, "x"), "list"), (("{}", None), "name"), (("{}", "x"), "the list has no model"),
    (('{"a":{"input":1,"output":1}}', "x", "1.1.26"), "date must be the date of the list"),
    (('{"a":{"input":1,"output":1,"since":"soon"}}', "x"), "since is a day")])
def test_a_list_that_cannot_be_read_changes_nothing(db, arguments, said):
    marks = ", ".join("?" * len(arguments))
    with pytest.raises(sqlite3.Error, match="ValidationError: .*" + said):
        one(db, f"SELECT rollout_load_prices({marks})", *arguments)
    assert rows(db, "SELECT * FROM blackbox_prices") == []


@pytest.mark.parametrize("more", [
    {"input": -1}, {"output": "much"}, {"cache_read": -0.1}, {"since": "2026-13-01"},
    {"since": "yesterday"}, {"above": "long"}, {"above": -1}, {"cache_write_1h": b"5"}])
def test_a_row_that_is_no_price_is_refused(db, more):
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: since is a day"):
        price(db, **{"model": "m", "input": 1, "output": 1, **more})


# ------------------------------------------------------------ the shipped file

def shipped(db):
    text = (ROOT / "packages/prices.json").read_text()
    about = json.loads(text)["about"]
    assert one(db, "SELECT rollout_load_prices(?, 'packages/prices.json')",
               text) == len(json.loads(text)) - 1
    return about


def test_the_shipped_file_says_its_date_and_source(db):
    about = shipped(db)
    assert rows(db, "SELECT DISTINCT list_date FROM blackbox_prices") == [(about["date"],)]
    assert [s.split(":")[0] for s in about["sources"]] == ["Anthropic", "OpenAI", "Google"]
    assert rows(db, "SELECT model FROM blackbox_prices WHERE cache_read > input "
                "OR cache_write < input OR output < input") == []


def theirs(data):
    """What a Claude Code session cost, computed from its lines alone, with the prices of the
    models in it: USD for a million tokens of input, output, cache writes and reads."""
    listed = {"claude-opus-4-6": (5, 25, 6.25, .5), "claude-opus-4-7": (5, 25, 6.25, .5),
              "claude-opus-4-8": (5, 25, 6.25, .5)}
    calls, days = {}, {}
    for line in map(json.loads, data.decode().splitlines()):
        message = line.get("message")
        if line.get("type") != "assistant" or "usage" not in message:
            continue
        used = message["usage"]
        hour = used["cache_creation"]["ephemeral_1h_input_tokens"]
        if message["model"] not in listed:
            continue
        input, output, write, read = listed[message["model"]]
        paid = (used["input_tokens"] * input + hour * 2 * input
                + (used["cache_creation_input_tokens"] - hour) * write
                + used["cache_read_input_tokens"] * read + used["output_tokens"] * output) / 1e6
        key = message["id"], line.get("requestId")
        first = calls.setdefault(key, (line["timestamp"][:10], paid))
        calls[key] = first[0], max(first[1], paid)
    for day, paid in calls.values():
        days[day] = days.get(day, 0) + paid
    return days


@needs_data
def test_recorded_days_cost_what_their_lines_say(db):
    """Each session is read alone, so that it is seen in which an hour of cache counts."""
    shipped(db)
    compared = 0
    for file in sorted((DATA / "rollouts/claude").iterdir()):
        data = gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()
        db.execute("DELETE FROM rollouts")
        one(db, "SELECT rollout_import(?)", data.decode())
        ours = dict(rows(db, "SELECT day, sum(cost) FROM rollout_usage_days "
                         "WHERE model <> '<synthetic>' GROUP BY day"))
        assert ours == pytest.approx(theirs(data), rel=1e-9)
        compared += len(ours)
    assert compared >= 5
