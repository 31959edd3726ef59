"""Tokens as rows: each call counts once, sums are exact, and agree with a peer."""
import gzip
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess

import pytest

from rollout_helpers import AT, ID, OTHER, THIRD, append, create, derive, event, lines, load
from rollout_helpers import well
from conftest import DATA, connect, needs_data, one, rollout_faults, rows

SUMS = "calls, input_fresh, cache_write, cache_read, output, reasoning"


def answer(i, message, output, session="s", **more):
    """A line of Claude Code."""
    return {"type": "assistant", "sessionId": session, "timestamp": AT % i, "requestId": "r",
            "message": {"role": "assistant", "id": message, "model": "claude", "content": [],
                        "usage": {"input_tokens": 3, "cache_creation_input_tokens": 5,
                                  "cache_read_input_tokens": 7, "output_tokens": output}}, **more}


def price(db, model, input, output, **more):
    """A row of prices, for a million tokens."""
    row = {"model": model, "input": input, "output": output, **more}
    db.execute(f"INSERT INTO blackbox_prices({', '.join(row)}) "
               f"VALUES ({', '.join('?' * len(row))})", tuple(row.values()))


def count(total, last=10):
    """A token_count of Codex, with running totals."""
    return event("token_count", info={
        "total_token_usage": {"input_tokens": total, "cached_input_tokens": total // 2,
                              "output_tokens": total // 10, "reasoning_output_tokens": 1},
        "last_token_usage": {"input_tokens": last, "cached_input_tokens": 4, "output_tokens": 6,
                             "reasoning_output_tokens": 2}})


def context(model):
    return {"type": "turn_context", "payload": {"model": model}}


def meta(rollout, **more):
    return {"type": "session_meta", "timestamp": AT % 0, "payload": {"id": rollout, **more}}


def same_by_the_rules(db):
    """What C wrote is what the views of plain SQL find, and the check agrees."""
    well(db)
    before = rows(db, "SELECT * FROM rollout_calls ORDER BY 1")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollout_calls ORDER BY 1") == before
    well(db)


def test_the_usage_of_one_conversation_is_found_without_reading_all(db):
    text = lines(*(answer(0, f"m{i}", i + 1, f"s{i // 2}") for i in range(400)))
    load(db, text)
    mine = one(db, "SELECT id FROM rollouts WHERE source_id = 's7'")
    steps = [0]

    def cost(sql, *args):
        steps[0] = 0
        return rows(db, sql, *args), steps[0]

    def step():
        steps[0] += 1
    db.set_progress_handler(step, 10)
    everything, much = cost("SELECT * FROM rollout_usage")
    some, little = cost("SELECT * FROM rollout_usage WHERE rollout = ?", mine)
    assert some == [row for row in everything if row[0] == mine] and len(some) == 2
    assert little < much / 20
    sums, little = cost("SELECT * FROM rollout_usage_sums WHERE rollout = ?", mine)
    everything, much = cost("SELECT * FROM rollout_usage_sums")
    assert sums == [row for row in everything if row[0] == mine] and little < much / 20
    facts, much = cost("SELECT * FROM rollout_facts")
    assert cost("SELECT * FROM rollout_facts WHERE id = 1")[1] < much / 20
    assert rows(db, "SELECT rollout FROM rollout_usage WHERE rollout = upper(?)", mine) == []
    assert rows(db, "SELECT count(*) FROM rollout_usage WHERE rollout = upper(?) COLLATE NOCASE "
                    "AND rollout IS NOT NULL", mine) == [(2,)]
    assert rows(db, "SELECT count(*) FROM rollout_usage WHERE rollout IN (?, 'x', NULL)",
                mine) == [(2,)]
    assert rows(db, "SELECT count(*) FROM rollouts CROSS JOIN rollout_usage ON rollout = id") == [
        (400,)]


@pytest.mark.parametrize("way", ["function", "begin", "row"])
def test_a_message_that_is_told_on_several_lines_counts_once(db, way):
    text = lines(answer(0, "m1", 9), answer(1, "m1", 11), answer(2, "m2", 1), answer(3, "m1", 4))
    if way == "begin":
        db.execute("BEGIN")
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?))", (text,))
    rollout = load(db, text)["rolloutId"]
    if way == "begin":
        db.execute("COMMIT")
    assert rows(db, "SELECT rollout, sequence, model, input_fresh, cache_write, cache_read, "
                "output, reasoning, source FROM rollout_usage ORDER BY sequence") == [
        (rollout, 1, "claude", 3, 5, 7, 11, 0, "claude-code"),
        (rollout, 3, "claude", 3, 5, 7, 1, 0, "claude-code")]
    assert rows(db, f"SELECT day, model, {SUMS} FROM rollout_usage_days") == [
        ("2026-07-17", "claude", 2, 6, 10, 14, 12, 0)]
    same_by_the_rules(db)


def test_a_background_fork_with_equal_messages_adds_only_its_own(db):
    load(db, lines(answer(0, "m1", 9), answer(1, "m2", 1)))
    load(db, lines(answer(0, "m1", 9, "t"), answer(1, "m2", 1, "t"), answer(2, "m3", 2, "t")))
    assert rows(db, f"SELECT {SUMS} FROM rollout_usage_days") == [(3, 9, 15, 21, 12, 0)]
    same_by_the_rules(db)


@pytest.mark.parametrize("bound", [
    "1784278803000", "1784278803000.5", "'1784278803000'", "'x'", "NULL", "x'00'", "-1", "9e99"])
def test_calls_since_a_time_are_those_of_a_look_at_all(db, bound):
    load(db, lines(*(answer(i, f"m{i}", i) for i in range(1, 6))))
    load(db, lines(*(answer(i, f"n{i}", i, session="t") for i in range(1, 6))))
    one_id = one(db, "SELECT id FROM rollouts")
    for op in (">", ">=", "<", "<=", "=", "IS"):
        for more in ("", f" AND rollout = '{one_id}'", f" AND timestamp > 1784278802000 AND {bound} < timestamp",
                     " AND rollout = NULL"):
            asked = f"SELECT call FROM rollout_usage WHERE timestamp {op} {bound}{more} ORDER BY call"
            assert rows(db, asked) == rows(db, asked.replace("timestamp ", "+timestamp ")), asked
    joined = (f"SELECT count(u.call) FROM (VALUES (0), ({bound})) AS b LEFT JOIN rollout_usage AS u "
              "ON u.timestamp >= b.column1 GROUP BY b.column1 ORDER BY b.column1")
    assert rows(db, joined) == rows(db, joined.replace("u.timestamp", "+u.timestamp"))


@pytest.mark.parametrize("way", ["function", "one by one", "row", "log"])
def test_running_totals_count_once_and_belong_to_the_model_of_their_turn(db, way):
    create(db)
    items = [context("m1"), count(10), count(10), count(20), context("m2"), count(30), count(30)]
    if way == "function":
        append(db, ID, *items, now=86400000)
    elif way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, ?, ?))",
                   (ID, json.dumps(items), 86400000))
    for item in items if way in ("one by one", "log") else []:
        if way == "log":
            db.execute("INSERT INTO rollout_log(rollout_id, type, payload, timestamp) "
                       "SELECT ?1, ?2 ->> 'type', ?2 -> 'payload', ?3",
                       (ID, json.dumps(item), 86400000))
        else:
            append(db, ID, item, now=86400000)
    derive(db)
    assert rows(db, f"SELECT day, model, {SUMS} FROM rollout_usage_days ORDER BY model") == [
        ("1970-01-02", "m1", 2, 12, 0, 8, 12, 4), ("1970-01-02", "m2", 1, 6, 0, 4, 6, 2)]
    same_by_the_rules(db)


def test_a_fork_that_replays_its_parent_counts_only_what_is_new(db):
    parent = [meta(ID), context("m"), count(10), count(20)]
    load(db, lines(*parent))
    fork = [meta(OTHER, forked_from_id=ID), *parent[1:], count(35)]
    load(db, lines(*fork))
    load(db, lines(meta(THIRD, forked_from_id=OTHER), *fork[1:], count(50)))
    load(db, lines(meta("00000000-0000-4000-8000-000000000000"), context("m"), count(10)))
    assert rows(db, "SELECT calls FROM rollout_usage_days") == [(5,)]
    same_by_the_rules(db)


def test_sub_agents_count_under_their_parent_as_well(db):
    agent = {"isSidechain": True, "agentId": "a"}
    report = load(db, lines(answer(0, "m1", 9), answer(1, "m2", 5, **agent)))
    mine, agents = report["rolloutIds"]
    assert set(rows(db, "SELECT rollout, subagents, calls, output FROM rollout_usage_sums")) == {
        (mine, 0, 1, 9), (mine, 1, 1, 5), (agents, 0, 1, 5)}
    db.execute("DELETE FROM rollouts WHERE id = ?", (agents,))
    assert rows(db, "SELECT rollout, calls FROM rollout_usage_sums") == [(mine, 1)]
    assert one(db, "SELECT count(*) FROM rollout_calls") == 1
    same_by_the_rules(db)


def test_the_cost_is_told_or_computed_from_a_list_with_its_digest(db):
    load(db, lines(answer(0, "m1", 9)))
    assert rows(db, "SELECT cost, cost_source FROM rollout_usage_days") == [(None, None)]
    price(db, "claude", 1, 4, cache_write=2, cache_read=3)
    computed = (3 + 5 * 2 + 7 * 3 + 9 * 4) / 1e6
    for view in "usage", "usage_days", "usage_sums":
        assert rows(db, f"SELECT cost, cost_source FROM rollout_{view}") == [
            (pytest.approx(computed), "computed")]
    load(db, lines(answer(1, "m2", 1, costUSD=0.5)))
    assert rows(db, "SELECT cost, cost_source FROM rollout_usage_days") == [
        (pytest.approx(computed + 0.5), "mixed")]
    same_by_the_rules(db)


@pytest.mark.parametrize("line, usage", [
    ({"type": "gemini", "id": "1", "timestamp": AT % 1, "model": "g", "content": "x",
      "tokens": {"input": 10, "cached": 4, "output": 5, "thoughts": 3}}, ("g", 6, 0, 4, 8, 3)),
    ({"type": "assistant", "uuid": "1", "model": "q", "message": {"parts": []},
      "usageMetadata": {"promptTokenCount": 10, "cachedContentTokenCount": 4,
                        "candidatesTokenCount": 5, "thoughtsTokenCount": 3}},
     ("q", 6, 0, 4, 8, 3)),
    ({"type": "message", "id": "1", "timestamp": AT % 1, "message": {
        "role": "assistant", "model": "p", "usage": {
            "input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.5}}}},
     ("p", 1, 4, 3, 2, 0)),
    ({"type": "assistant", "message": {"usage": {"input_tokens": 0}}}, None),
    ({"type": "assistant", "message": {"usage": "none"}}, None),
])
def test_other_formats_tell_their_tokens(db, line, usage):
    load(db, lines({"type": "x", "payload": {}}, line), ID, None, "cursor")
    assert rows(db, "SELECT model, input_fresh, cache_write, cache_read, output, reasoning "
                "FROM rollout_usage") == ([usage] if usage else [])
    same_by_the_rules(db)


def test_calls_and_formats_cannot_be_changed_by_mistake(db):
    load(db, lines(answer(0, "m1", 9)))
    for sql in ("UPDATE blackbox_places SET place = 'x' WHERE kind = 'usage'",
                "INSERT INTO blackbox_places(format, kind, type, conditions, place) "
                "VALUES ('x', 'usage', 'x', '[', '$.x')"):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(sql)
    db.execute("UPDATE rollout_calls SET output = 1")
    assert "its usage is missing or wrong" in str(rollout_faults(db))
    one(db, "SELECT rollout_rebuild()")
    assert rollout_faults(db) == []


@pytest.mark.parametrize("view", ["usage", "usage_days", "usage_sums"])
def test_no_query_of_usage_makes_an_automatic_index(db, view):
    for column, in rows(db, "SELECT name FROM pragma_table_xinfo(?)", f"rollout_{view}"):
        for condition in ("= ?", "IN (?, 'x')", "> ?",
                          "= (SELECT max(list) || ? FROM blackbox_prices)"):
            plan = rows(db, f"EXPLAIN QUERY PLAN SELECT count(*) FROM rollout_{view} "
                        f"WHERE {column} {condition}", "x")
            assert not [row for row in plan if "AUTOMATIC" in row[3]], column


# -------------------------------------------------------------------- a peer

def real_sessions(folder):
    """The recorded sessions, in the places where a peer looks for them."""
    homes = {"claude": folder / ".claude/projects/p", "codex": folder / ".codex/sessions/2026"}
    for kind, home in homes.items():
        home.mkdir(parents=True)
        for file in sorted((DATA / "rollouts" / kind).iterdir()):
            data = gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()
            yield kind, home / file.name.removesuffix(".gz"), data


def without_repeats(data):
    """A Codex session without the token counts that repeat the totals before."""
    last, kept = None, []
    for text in data.decode().splitlines(True):
        try:
            total = json.loads(text)["payload"]["info"]["total_token_usage"]
        except (ValueError, KeyError, TypeError):
            total = None
        if total is None or total != last:
            kept.append(text)
        last = total or last
    return "".join(kept).encode()


@needs_data
@pytest.mark.skipif(not shutil.which("ccusage") or not shutil.which("ccusage-codex"),
                    reason="ccusage is not installed (npm install ccusage@18 @ccusage/codex@18)")
def test_a_peer_counts_the_same_tokens_by_day_and_model(db, tmp_path):
    for kind, path, data in real_sessions(tmp_path):
        load(db, data)
        path.write_bytes(without_repeats(data) if kind == "codex" else data)
    env = {**os.environ, "HOME": str(tmp_path), "TZ": "UTC"}

    def peer(*command):
        return json.loads(subprocess.run([*command, "daily", "--json", "--offline"], env=env,
                                         capture_output=True, check=True).stdout)["daily"]
    theirs = {(d["date"], m["modelName"]): (
        m["inputTokens"], m["cacheCreationTokens"], m["cacheReadTokens"], m["outputTokens"])
        for d in peer("ccusage") for m in d["modelBreakdowns"]}
    months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
    for d in peer("ccusage-codex"):
        month, day, year = d["date"].replace(",", "").split()
        for model, m in d["models"].items():
            theirs[f"{year}-{months.index(month) + 1:02}-{day}", model] = (
                m["inputTokens"] - m["cachedInputTokens"], 0, m["cachedInputTokens"],
                m["outputTokens"])
    ours = {(day, model): tuple(more) for day, model, *more in rows(
        db, "SELECT day, model, input_fresh, cache_write, cache_read, output "
        "FROM rollout_usage_days")}
    assert ours == theirs and len(ours) == 15


@needs_data
def test_usage_of_real_sessions_is_that_of_the_rules(db, tmp_path):
    for _, _, data in real_sessions(tmp_path):
        load(db, data)
    assert rows(db, "SELECT source, count(*), sum(output) FROM rollout_usage GROUP BY 1") == [
        ("claude-code", 524, 324485), ("codex", 1036, 409279)]
    same_by_the_rules(db)


def days(db):
    """rollout_usage_days, as the rows of rollout_usage say it."""
    found = {}
    for at, model, source, *numbers in rows(
            db, "SELECT timestamp, model, cost_source, cost, output_source, 1, input_fresh, cache_write, "
                "cache_read, output, reasoning, cache_write_1h FROM rollout_usage"):
        day = found.setdefault((at // 86_400_000, model), [[], [], [], [0] * 7])
        for kept, value in zip(day, (source, *numbers[:2])):
            kept.append(value)
        day[3] = [a + b for a, b in zip(day[3], numbers[2:])]
    return sorted(
        (one(db, "SELECT date(? * 86400, 'unixepoch')", day), model, *total,
         round(sum(c for c in costs if c is not None), 9) if any(c is not None for c in costs) else None,
         "reported" if set(sources) == {"reported"} else "mixed" if "reported" in sources
         else "computed" if "computed" in sources else None,
         max(filter(None, told), default=None))
        for (day, model), (sources, costs, told, total) in found.items())


def same_days(db, check=True):
    assert days(db) == sorted(
        (*row[:-3], round(row[-3], 9) if row[-3] is not None else None, *row[-2:]) for row in rows(
            db, f"SELECT day, model, {SUMS}, cache_write_1h, cost, cost_source, output_source "
                "FROM rollout_usage_days"))
    assert not check or rollout_faults(db) == []


def call(i, name, output, prompt=3, model="claude", day=17, **more):
    """A line of Claude Code, with a prompt of so many tokens."""
    line = answer(i, name, output, **more)
    line["timestamp"] = f"2026-07-{day:02}T09:00:{i % 60:02}Z"
    line["message"] |= {"model": model}
    line["message"]["usage"] |= {"input_tokens": prompt, "output_tokens_details": {
        "thinking_tokens": 4 if i % 3 else output + 5}}
    return line


def test_the_sums_of_days_are_those_of_the_calls(db):
    price(db, "claude", 3, 15, cache_read=0.3)
    price(db, "claude", 6, 22.5, above=200_000)
    price(db, "claude", 30, 15, since="2026-07-19")
    price(db, "opus", 5, 25)
    same_days(db)
    load(db, lines(*(call(i, f"m{i}", i, 100 + i, day=17 + i // 20) for i in range(60))))
    same_days(db)
    # a tier begins among the prompts of one conversation, and after those of another
    load(db, lines(*(call(i, f"t{i}", i, 190_000 + 1000 * i, session="t") for i in range(40))))
    load(db, lines(*(call(i, f"b{i}", i, 300_000 + i, session="big") for i in range(9))))
    load(db, lines(*(call(i, f"o{i}", i, model="opus-20260101", session="o", costUSD=0.25 if i % 2 else None)
                     for i in range(9))))
    same_days(db)
    # larger outputs of calls that are there, in the same file and in another one
    mine = one(db, "SELECT id FROM rollouts WHERE source_id = 's'")
    one(db, "SELECT rollout_append(?, ?)", mine, json.dumps([call(59, "m59", 900), call(60, "m60", 2)]))
    same_days(db)
    load(db, lines(*(call(i, f"m{i}", 1000 + i, session="copy") for i in range(5, 62))))
    same_days(db)
    assert one(db, "SELECT max(calls) < 1000 FROM rollout_usage_days") == 1
    # a fork outlives what it shares
    fork = one(db, "SELECT rollout_fork(?, NULL, NULL, NULL, 30)", mine)
    one(db, "SELECT rollout_append(?, ?)", fork, json.dumps([call(70, "f1", 7, 250_000)]))
    same_days(db)
    one(db, "SELECT rollout_delete(?)", mine)
    assert one(db, "SELECT count(*) FROM rollout_usage WHERE rollout IS NULL") > 20
    same_days(db, check=False)  # what the copy tells, too, went with the conversation
    db.execute("DELETE FROM rollouts WHERE source_id = 't'")
    same_days(db, check=False)
    one(db, "SELECT rollout_rebuild()")
    same_days(db)
    db.execute("BEGIN")
    db.execute("DELETE FROM rollouts")
    assert rows(db, "SELECT * FROM rollout_usage_days") == [] == days(db)
    db.execute("ROLLBACK")
    same_days(db)
    db.execute("DELETE FROM rollout__sums WHERE no = (SELECT max(no) FROM rollout__sums)")
    found = list(set(rollout_faults(db)))
    assert len(found) == 1 and "the sums of its calls are not" in found[0][-1], found
    one(db, "SELECT rollout_rebuild()")
    same_days(db)


def test_the_sums_of_days_read_a_row_for_a_conversation(db):
    load(db, lines(*(call(0, f"m{i}", i + 1, session=f"s{i // 100}") for i in range(1000))))
    steps = [0]
    db.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 10)
    assert one(db, "SELECT calls FROM rollout_usage_days") == 1000
    few, steps[0] = steps[0], 0
    rows(db, "SELECT * FROM rollout_usage")
    assert few < steps[0] / 20


def test_calls_of_last_week_read_no_older_conversations(db):
    for day in range(1, 25):
        load(db, lines(*(call(0, f"m{day}-{i}", i + 1, day=day, session=f"s{day}") for i in range(50))))
    last = one(db, "SELECT max(timestamp) FROM rollout_usage")
    steps = [0]
    db.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 10)
    assert one(db, "SELECT count(*) FROM rollout_usage WHERE timestamp >= ?", last) == 50
    few, steps[0] = steps[0], 0
    assert one(db, "SELECT count(*) FROM rollout_usage WHERE +timestamp >= ?", last) == 50
    assert few < steps[0] / 8
