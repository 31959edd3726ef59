"""Each kind of report shows what it should, in every format."""
import gzip
import json
import random
import re
import sqlite3

import pytest

from conftest import DATA, connect, needs_data, one, rows
from report_helpers import as_json, fire, one_exchange, page, push, ring

SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
TALE = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"


def looped(db, mode="kill_switch"):
    """A ring in which an agent calls the same tool until the switch is pulled. Returns its id."""
    if not rows(db, "SELECT 1 FROM sqlite_schema WHERE name = 'ring'"):
        ring(db)
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', ?)", (mode,))
    messages = [{"role": "user", "content": "go"}]
    for i in range(5):
        push(db, f"e{i}", json.dumps({"model": "m1", "messages": messages}), json.dumps({
            "choices": [{"message": {"tool_calls": [{"id": f"c{i}", "function": {
                "name": "get_order", "arguments": "{}"}}]}}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 2}}), time=1760000000000 + i)
        messages = messages + [
            {"role": "assistant", "tool_calls": [
                {"id": f"c{i}", "function": {"name": "get_order", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": f"c{i}", "content": "closed"}]
    return one(db, "SELECT kill_switch_event_id FROM event_payloads")


def facts(report):
    return {fact["name"]: fact["value"] for fact in report["facts"]}


def table(report, name):
    return next(t for t in report["tables"] if t["id"] == name)["rows"]


def test_a_kill_switch_says_why_it_was_pulled(db):
    switch = looped(db)
    report = as_json(db, "kill_switch", switch)
    assert {name: report["verdict"][name] for name in ("rule", "level", "count", "tool")} == {
        "rule": "no_progress", "level": "stop", "count": 4, "tool": "get_order"}
    assert report["verdict"]["items"] == [1, 2, 3, 4]
    assert [item.get("verdict", False) for item in report["items"]] == [True] * 4 + [False]
    assert [item["repeat"] for item in report["items"]] == [1] * 5
    assert {item["title"] for item in report["items"]} == {"get_order"}
    assert report["usage"]["input"] == 45 and report["usage"]["output"] == 10
    assert {(pin["what"], pin["actor"]) for pin in report["pins"]} == {
        ("kill switch: 5 exchanges pinned", "rule no_progress"), ("agent: stop", "rule no_progress")}
    assert facts(report)["Agent"] == "a" and facts(report)["Exchanges"] == 5
    assert facts(report)["Stop"] == "stopped at 08:53:20; went on: 0 calls after"
    made = page(db, "kill_switch", switch)
    assert "the same result Kill switch " + switch + ", a report of blackbox, made " in made.text
    assert facts(report)["Rule"] == "no_progress (stop), 4 of 4" and facts(report)["Asked first"] == "go"
    assert report["items"][3]["said"] == "closed"
    assert [a.get("class").split() for tag, a in made.tags if tag == "tr" and a.get("id")] == [
        ["verdict", "repeat"]] * 4 + [["repeat"]]
    assert report["proof"]["state"] == "ok" and {i["leaf"]["state"] for i in report["items"]} == {"whole"}


def test_the_exchanges_of_a_verdict_are_found_when_the_ring_had_others_before(db):
    ring(db)
    for i in range(60):
        push(db, f"x{i}", '{"messages":[{"role":"user","content":"old %d"}]}' % i, "{}", time=1000 + i)
    switch = looped(db)
    report = as_json(db, "kill_switch", switch)
    assert [i["id"] for i in report["items"] if i.get("verdict")] == ["e0", "e1", "e2", "e3"]


def test_a_kill_switch_says_how_the_agent_went_on(db):
    """Also after it was started, and stopped once more."""
    switch = looped(db)
    for i in range(59):
        push(db, f"m{i}", "more", None, time=1760000060000 + i)
    one(db, "SELECT payload_kill_switch('ring', 'a', 'by hand')")
    for started in False, True:
        if started:
            db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('a', 'Ann', 'mended')")
        report = as_json(db, "kill_switch", switch)
        assert facts(report)["Stop"] == "stopped at 08:53:20; went on: 59 calls after"
        assert facts(report)["Exchanges"] == 5 + 50  # as many as the window
        assert "stopped at 08:53:20; went on: 59 calls after" in page(db, "kill_switch", switch).text
        assert "Stop" not in facts(as_json(db, "kill_switch", "by hand"))
    push(db, "m", "more", None, time=1760000061000)
    assert facts(as_json(db, "kill_switch", switch))["Stop"].endswith("went on: 59 calls after")
    db.execute("UPDATE payload_agents SET stopped_at = 1760000070000, stopped_by = 'Ann'")
    push(db, "n", "more", None, time=1760000071000)
    one(db, "SELECT payload_kill_switch('ring', 'a', 'later')")
    assert facts(as_json(db, "kill_switch", "later"))["Stop"] == "stopped at 08:54:30; went on: 1 call after"


def test_a_kill_switch_says_who_unpinned_and_what_went(db):
    one_exchange(db, "q", "r")
    one(db, "SELECT payload_unpin(id, 'alice', 'case is closed') FROM event_payloads")
    db.execute("DELETE FROM event_payloads")
    report = as_json(db, "kill_switch", "k")
    assert [(pin["actor"], pin["reason"], pin["status"]) for pin in report["pins"]] == [
        ("a caller", None, None), ("alice", "case is closed", "unpinned")]
    assert report["items"] == []
    assert table(report, "receipts")[0][1:5] == ["manual", None, 1, 2]
    assert "alice" in page(db, "kill_switch", "k").text


@pytest.mark.parametrize("pull", [
    "SELECT payload_kill_switch('ring', 'a', 'k', 'Ann', 'it deletes tests')",
    "INSERT INTO ring(ring, agent_id, event_id, actor, reason)"
    " VALUES('kill_switch', 'a', 'k', 'Ann', 'it deletes tests')",
    "INSERT INTO main.blackbox_call VALUES('payload_kill_switch',"
    """ '["ring", "a", "k", "Ann", "it deletes tests"]')"""])
def test_a_kill_switch_says_who_pulled_it_when_and_why(db, pull):
    ring(db)
    push(db, "e1", "q", "r")
    db.execute(pull).fetchall()
    at, = rows(db, "SELECT at FROM blackbox_log WHERE kind = 'kill_switch'")[0]
    assert as_json(db, "kill_switch", "k")["pins"] == [{
        "time": at, "what": "kill switch: 1 exchanges pinned", "actor": "Ann",
        "reason": "it deletes tests", "status": "1 pinned now"}]
    shown = page(db, "kill_switch", "k").text
    assert "Ann" in shown and "it deletes tests" in shown


@pytest.mark.all_domains
def test_holds_are_shown(db):
    one_exchange(db, "q", "r")
    one(db, "SELECT retention_hold('agent', 'a', 'case-18', 'bob', 'audit')")
    for kind, key in ("kill_switch", "k"), ("agent", "a"), ("database", "main"):
        assert [pin["what"] for pin in as_json(db, kind, key)["pins"] if pin["actor"] ==
                "case-18 (bob)"] == ["hold: agent a"]


def test_a_loaded_price_is_enough_for_the_budget_and_for_the_report(db):
    """The rule pulls the switch, and the page of the switch shows the cost."""
    one(db, "SELECT rollout_load_prices(?, 'mine')",
        '{"claude-opus-4-5": {"input": 5, "output": 25}}')
    db.execute("UPDATE blackbox_settings SET value = 'kill_switch' WHERE name = 'payload.on_loop'")
    db.execute("UPDATE payload_rules SET enabled = 1, threshold = 7 WHERE rule = 'budget_cost'")
    ring(db)
    said = {"type": "message", "role": "assistant", "model": "claude-opus-4-5-20251101",
            "content": [], "usage": {
                "input_tokens": 0, "cache_creation_input_tokens": 300000, "output_tokens": 100000,
                "cache_creation": {"ephemeral_1h_input_tokens": 100000}}}
    paid = .2 * 5 + .1 * 10 + .1 * 25
    asked = {"messages": [{"role": "user", "content": "go"}]}
    for i in 1, 2:
        assert rows(db, "SELECT * FROM payload_verdicts") == []
        push(db, f"e{i}", json.dumps(asked), json.dumps(said))
    switch, sentence = rows(db, "SELECT kill_switch_event_id, sentence FROM payload_verdicts")[0]
    assert f"cost {2 * paid:g}" in sentence
    assert as_json(db, "kill_switch", switch)["usage"]["cost"] == pytest.approx(2 * paid)
    assert f"{2 * paid:.4f} (blackbox_prices)" in page(db, "kill_switch", switch).text


@pytest.mark.all_domains
def test_output_that_a_program_writes_too_early_is_told_as_recorded(db):
    line = {"type": "assistant", "requestId": "r", "message": {
        "id": "m", "role": "assistant", "model": "claude", "content": [],
        "usage": {"input_tokens": 3, "output_tokens": 1}}}
    other = {"type": "gemini", "id": "1", "timestamp": "2026-01-01T00:00:00Z", "model": "g",
             "content": "x", "tokens": {"input": 10, "output": 5}}
    for i, (said, source) in enumerate([(line, "as recorded"), (other, None)]):
        id = json.loads(one(db, "SELECT rollout_import(?, NULL, NULL, ?)", json.dumps(said),
                            ("claude-code", "gemini")[i]))["rolloutId"]
        assert as_json(db, "rollout", id)["usage"]["outputSource"] == source
        assert ("Output tokens, as recorded" in page(db, "rollout", id).text) == (i == 0)
        text = one(db, "SELECT blackbox_report('rollout', ?, '{\"format\":\"md\"}')", id)
        assert ("Output tokens, as recorded |" in text) == (i == 0)
        for view in "usage", "usage_sums":
            assert rows(db, f"SELECT output_source FROM rollout_{view} WHERE rollout = ?", id) == [
                (source,)]


def test_costs_come_from_the_prices(db):
    db.execute("INSERT INTO blackbox_prices(model, input, cache_write, cache_read, output)"
               " VALUES('m1', 1000000, 0, 0, 2000000)")
    switch = looped(db)
    assert as_json(db, "kill_switch", switch)["usage"]["cost"] == 45 + 20


def test_an_agent_has_what_is_in_rings_and_in_the_archive(db):
    ring(db)
    db.execute("CREATE VIRTUAL TABLE temp.\"my 'ring\" USING payload_ring(window=9)")
    push(db, "e1", "q1", "r1", time=1000)
    fire(db, "k1")
    push(db, "e2", "q2", "r2", time=2000)
    db.execute("INSERT INTO \"my 'ring\"(agent_id, event_id, request_body, timestamp)"
               " VALUES('a', 'e3', 'q3', 3000), ('b', 'e9', 'q9', 3000)")
    for event, at in ("e2", "1970-01-01T00:00:02.000Z"), ("e4", "1970-01-01T00:00:04.000Z"):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose,"
                   " created_at) VALUES(?, 'a', 'q', 'archive', ?)", (event, at))
    report = as_json(db, "agent", "a", bodies="all")
    assert [(item["id"], item["status"]) for item in report["items"]] == [
        ("e1", "evidence, pinned"), ("e2", "archive"), ("e3", "in the ring my 'ring"),
        ("e4", "archive")]
    assert report["items"][2]["parts"][0]["text"] == "q3"
    assert table(report, "rings") == [["ring", 2, 0, 0, 1, 1, 4], ["my 'ring", 1, 0, 0, 0, 1, 2]]


def test_an_agent_that_was_only_recorded_has_its_verdict(db):
    looped(db, "record")
    report = as_json(db, "agent", "a")
    assert report["verdict"]["action"] == "record"
    assert report["verdict"]["items"] == [1, 2, 3, 4]


@pytest.mark.all_domains
def test_a_conversation_has_turns_marks_tokens_and_relations(db):
    one(db, "SELECT rollout_create(?, 'be brief', 'permanent', NULL, 1000)", TALE)
    call = {"type": "response_item", "payload": {
        "type": "function_call", "name": "shell", "arguments": '{"command":"make"}'}}
    one(db, "SELECT rollout_append(?, ?, 2000)", TALE, json.dumps([
        {"type": "event_msg", "payload": {"type": "user_message", "message": "Why is it red?"}},
        call, call,
        {"type": "event_msg", "payload": {"type": "token_count", "info": {
            "total_token_usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13},
            "last_token_usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}}}},
        {"type": "compacted", "payload": {"message": "short", "replacement_history": []}},
        {"type": "event_msg", "payload": {"type": "user_message", "message": "And now?"}},
        {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}]))
    fork = one(db, "SELECT rollout_fork(?)", TALE)
    one(db, "SELECT rollout_append(?, ?, 3000)", fork, json.dumps(
        {"type": "event_msg", "payload": {"type": "user_message", "message": "Go on"}}))
    report = as_json(db, "rollout", TALE.upper(), bodies="all")
    items = report["items"]
    assert [item["n"] for item in items] == list(range(1, len(items) + 1))
    assert [(i["type"], i["title"], i["turn"]) for i in items[1:4]] == [
        ("event_msg", "Why is it red?", 1), ("response_item", "shell make", 1), ("response_item", "shell make", 1)]
    assert [i.get("repeat") for i in items[2:4]] == [1, 1]
    assert [i["mark"] for i in items if "mark" in i] == ["compaction", "rollback"]
    assert report["usage"]["output"] == 3 and items[4]["tokens"] == {"input": 10, "output": 3}
    assert [row[:2] for row in table(report, "related")] == [["fork", fork]]
    forked = as_json(db, "rollout", fork)
    assert [i["mark"] for i in forked["items"] if "mark" in i][-1] == "fork"
    assert facts(forked)["Forked from"] == TALE
    assert len(forked["items"]) == len(items) + 1


@pytest.mark.all_domains
def test_a_conversation_tells_what_is_not_derived_yet(db):
    one(db, "SELECT rollout_create(?)", TALE)
    db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, 'event_msg', ?)",
               (TALE, '{"type":"user_message","message":"hi"}'))
    name = "Items without turns and usage yet"
    assert facts(as_json(db, "rollout", TALE))[name] == 1
    one(db, "SELECT rollout_append(?, '[]')", TALE)
    assert name not in facts(as_json(db, "rollout", TALE))


@pytest.mark.all_domains
def test_a_recording_has_its_screenshots(db):
    db.execute("CREATE VIRTUAL TABLE \"my 'rec\" USING evidence_buffer(max_size_bytes=100000)")
    action = '{"id":"a1","type":"click","url":"https://example.com/","target":{"selector":"#save"}}'
    shot = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    db.execute("INSERT INTO \"my 'rec\"(timestamp, action, screenshot) VALUES(1000, ?, ?)",
               (action, shot))
    db.execute("INSERT INTO \"my 'rec\"(id, timestamp, action, pinned) VALUES('a2', 2000, '{}', 1)")
    for name in "my 'rec", "main.my 'rec":
        made = page(db, "evidence", name)
        first, second = made.report["items"]
        assert [p["role"] for p in first["parts"]] == ["action", "screenshot"]
        assert first["parts"][1]["type"] == "image/png"
        assert made.part(first["parts"][0]) == action.encode()
        assert made.part(first["parts"][1]) == shot
        assert (first["title"], second["status"]) == ("https://example.com/", "pinned")
        assert facts(made.report)["Screenshots"] == 1


@pytest.mark.all_domains
def test_a_session_of_the_cache_has_its_results(db):
    one(db, "SELECT cache_write(?, 'a7b3c9d2', 'f4e8g1h6', '[1,2]', 'the list', NULL, 1000)",
        SESSION)
    report = as_json(db, "session", SESSION)
    item, = report["items"]
    assert (item["kind"], item["title"], item["parts"][0]["text"]) == ("result", "the list", "[1,2]")
    assert facts(report)["Results"] == 1


@pytest.mark.all_domains
def test_a_database_shows_what_is_in_it_and_what_is_wrong(db):
    looped(db)
    one(db, "SELECT rollout_create(?)", TALE)
    db.execute("DROP TRIGGER blackbox_settings_rename")
    report = as_json(db, "database", "main")
    assert report["items"] == []
    assert ["payload", 1] in [row[:2] for row in table(report, "domains")]
    assert table(report, "agents")[0][:2] == ["a", 5]
    assert table(report, "switches")[0][1:5:3] == [5, "no_progress"]
    assert table(report, "rings")[0][:4] == ["ring", 50, 1, 5]
    assert table(report, "rollouts")[0][::8] == [TALE, TALE]
    assert table(report, "wrong")[1:] == [
        ["blackbox_settings_rename", None, "trigger is missing; run blackbox_install()"]]
    assert "trigger is missing" in page(db, "database", "main").text


def test_a_database_in_an_attached_schema_with_an_odd_name(path, tmp_path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'report')")
    db.execute('ATTACH ? AS "a ""b.c"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('a \"b.c', 'payload')")
    db.execute('CREATE VIRTUAL TABLE "a ""b.c".r USING payload_ring')
    db.execute("INSERT INTO \"a \"\"b.c\".r(agent_id, event_id, request_body) VALUES('x', 'e', 'q')")
    one(db, "SELECT payload_kill_switch('r', 'x', 'k')")
    assert table(as_json(db, "database", 'a "b.c'), "rings")[0][0] == "r"
    assert as_json(db, "kill_switch", "k")["items"][0]["parts"][0]["text"] == "q"
    assert as_json(db, "agent", "x")["items"][0]["id"] == "e"


def test_markdown_is_text_that_means_nothing(db):
    odd = ("[x](javascript:alert(1)) <img src=x> @octocat `a` | b \\ #1\nhttps://e.org *b* \u202e www.e.org "
           "\x9b2J \u061c")
    ring(db)
    push(db, odd, odd, odd, agent=odd)
    fire(db, odd, odd)
    text = one(db, "SELECT blackbox_report('kill_switch', ?, '{\"format\":\"md\"}')", odd)
    assert text.startswith("# Kill switch ")
    assert "| No. | Time | What | Model | Status | Size |" in text
    for bad in "@octocat", " `a`", " #1", "https://e", " *b*", "\u202e", "www.e", "\x9b", "\u061c":
        assert bad not in text, bad
    assert not re.search(r"(?<!\\)[\[<]", text.split("```")[0])


def test_markdown_escapes_only_what_would_be_misread(db):
    """As a reader of Markdown has it, every text is what it was. Ordinary ones stand as they are."""
    reader = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable(["table", "strikethrough"])
    dice = random.Random(4)
    said = ["make test-all -> exit 2 (it's \"done\"), a_b_c + 1.5!", "x" * 30 + "@", "# a #", "AT&T & &amp; &#65;"]
    while len(said) < 50:
        said.append("".join(dice.choice("ab 1*_`~[]()<>!&#;:/.|\\-+={}$@^'\"") for _ in range(40)).strip() or "x")
    ring(db)
    for i, text in enumerate(said):
        push(db, f"e{i}", "{}", "a " + text, time=1760000000000 + i)
    fire(db)
    text = one(db, "SELECT blackbox_report('kill_switch', 'k', '{\"format\":\"md\"}')")
    assert f"| a {said[0]} |" in text and "&#34;" not in text
    cells = [token for token in reader.parse(text) if token.type == "inline"]
    at = next(i for i, token in enumerate(cells) if token.content == "No.")
    for given, cell in zip(said, cells[at + 6 + 2::6]):
        assert {child.type for child in cell.children} == {"text"}
        assert " ".join(cell.children[0].content.split()) == " ".join(("a " + given).split())


def test_bounds_are_told(db):
    ring(db)
    for i in range(10):
        push(db, f"e{i}", f"{i}" * 100, None, time=1000 + i)
    fire(db)
    report = as_json(db, "kill_switch", "k", items=4, bytes=250)
    assert [item["id"] for item in report["items"]] == ["e6", "e7", "e8", "e9"]
    assert ["text" in item["parts"][0] for item in report["items"]] == [False, False, True, True]
    assert report["leftOut"] == {"items": 6, "bodies": 2, "bytes": 200}
    made = page(db, "kill_switch", "k", items=4, bytes=250)
    assert ("Left out The bounds of this report leave out 6 older items,"
            " and the bodies of 2 items (200 bytes).") in made.text
    assert made.report["items"][0]["parts"][0]["pieces"] == []
    assert as_json(db, "kill_switch", "k", items=0)["leftOut"]["items"] == 10


def test_shared_text_begins_where_it_is_new(db):
    ring(db)
    body = "".join(f"line {i} {'x' * 50}\n" for i in range(40))
    push(db, "e1", body, None, time=1000)
    push(db, "e2", body + "more", None, time=2000)
    fire(db)
    part = as_json(db, "kill_switch", "k")["items"][1]["parts"][0]
    assert part["from"] > 2000 and (body + "more")[part["from"]:] == part["text"]


def test_without_bodies_there_are_none(db):
    one_exchange(db, "question", "answer")
    made = page(db, "kill_switch", "k", bodies="none")
    assert made.report["items"][0]["parts"][0]["pieces"] == []
    assert made.report["items"][0]["title"] == "answer"
    assert not [a for a, _ in made.scripts if a.get("class") == "block"]


def test_an_agent_with_more_than_is_shown_is_not_read_whole(db):
    db.executemany(
        "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose, created_at)"
        " VALUES(?, 'a', 'q', 'archive', ?)",
        [(f"e{i}", f"2999-01-01T00:00:{i:02}.000Z") for i in range(30)])
    report = as_json(db, "agent", "a", items=3)
    assert [item["id"] for item in report["items"]] == ["e27", "e28", "e29"]
    assert report["leftOut"]["items"] == 27


@pytest.mark.parametrize("pragma", ["trusted_schema = OFF", "query_only = ON"])
@pytest.mark.all_domains
def test_every_kind_reads_only_and_in_a_file_that_is_not_trusted(db, pragma):
    switch = looped(db)
    one(db, "SELECT rollout_create(?)", TALE)
    one(db, "SELECT cache_write(?, 'a7b3c9d2', 'f4e8g1h6', '[1,2]', 'the list', NULL, 1000)",
        SESSION)
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute(f"PRAGMA {pragma}")
    odd = "trusted" in pragma and sqlite3.sqlite_version_info < (3, 41)  # the view rollouts
    for kind, key in (("kill_switch", switch), ("agent", "a"), ("rollout", TALE),
                      ("session", SESSION), ("evidence", "rec"), ("database", "main")):
        if kind != "rollout" or not odd:
            assert as_json(db, kind, key)["kind"] == kind


def test_a_file_that_cannot_be_written(path, db):
    one_exchange(db, "q", "r")
    other = connect(f"file:{path}?mode=ro", uri=True)
    assert len(as_json(other, "kill_switch", "k")["items"]) == 1


def test_a_line_is_no_longer_than_a_block(db):
    ring(db)
    dice = random.Random(1)
    for i in range(20):
        push(db, f"e{i}", dice.randbytes(20_000).hex(), None, time=1000 + i)
    fire(db)
    lines = [len(r[0]) for r in rows(
        db, "SELECT line FROM blackbox_report_lines('kill_switch', 'k')")]
    assert len(lines) > 10 and max(lines) < 90_000 < sum(lines) / 4


@needs_data
def test_recorded_exchanges_are_whole_and_take_less(db):
    ring(db)
    with gzip.open(DATA / "payloads.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line, _ in zip(lines, range(60))]
    agent = found[-1]["agent_id"]
    for i, row in enumerate(found):
        bodies = [b if isinstance(b, str) else json.dumps(b, ensure_ascii=False)
                  for b in (row["request"], row["response"])]
        push(db, row["event_id"], *bodies, agent=row["agent_id"], time=1000 + i)
    fire(db, "k", agent)
    made = page(db, "kill_switch", "k", redact="none")
    stored = rows(db, "SELECT request_body, response_body FROM payload_rows"
                  " WHERE kill_switch_event_id = 'k' ORDER BY created_ms")
    for item, bodies in zip(made.report["items"], stored):
        assert [made.part(part).decode() for part in item["parts"]] == [b for b in bodies if b]
        assert item["title"]
    assert sum(len(t) for a, t in made.scripts if a.get("class") == "block") < sum(
        len(b or "") for row in stored for b in row) / 3


@pytest.mark.parametrize("kind, key, options, message", [
    ("x", "k", None, "kind must be kill_switch, agent, rollout, evidence, session or database"),
    ("kill_switch", None, None, "key must be text"),
    ("kill_switch", "k", "[]", "options must be a JSON object"),
    ("kill_switch", "k", "{", "options must be a JSON object"),
    ("kill_switch", "k", '{"colour":1}', "there is no option 'colour'"),
    ("kill_switch", "k", '{"format":"pdf"}', "format must be html, md or json, got 'pdf'"),
    ("kill_switch", "k", '{"bodies":1}', "bodies must be shared, all or none, got 1"),
    ("kill_switch", "k", '{"items":-1}', "items must be a whole number from 0 to"),
    ("kill_switch", "k", '{"bytes":"a"}', "bytes must be a whole number from 0 to"),
    ("kill_switch", "k", '{"redact":7.5}', "NotFoundError: the profile '7.5' has no enabled rule"),
    ("kill_switch", "k", None, "NotFoundError: there is no kill switch 'k'"),
    ("agent", "k", None, "NotFoundError: there is no agent 'k'"),
    ("rollout", "k", None, "NotFoundError: there is no conversation 'k'"),
    ("evidence", "k", None, "NotFoundError: there is no evidence_buffer table 'k'"),
    ("session", "k", None, "NotFoundError: there is no session of the cache 'k'"),
    ("database", "k", None, "NotFoundError: there is no schema with tables of blackbox named 'k'"),
])
@pytest.mark.all_domains
def test_what_is_not_right_is_refused(db, kind, key, options, message):
    for sql in ("SELECT blackbox_report(?, ?, ?)",
                "SELECT * FROM blackbox_report_lines(?, ?, ?)"):
        with pytest.raises(sqlite3.Error) as error:
            db.execute(sql, (kind, key, options)).fetchall()
        assert message in str(error.value)


def test_lines_end_when_what_they_are_of_changes(db):
    one_exchange(db, "question" * 1000, "answer")
    cursor = db.execute("SELECT line FROM blackbox_report_lines('kill_switch', 'k')")
    cursor.fetchone()
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads")
    db.execute("DELETE FROM event_payloads")
    with pytest.raises(sqlite3.OperationalError, match="ChangedError: item .* is gone"):
        cursor.fetchall()


def test_a_report_in_a_transaction_sees_it_and_changes_nothing(db):
    db.execute("BEGIN")
    one_exchange(db, "q", "r")
    before = db.total_changes
    assert len(as_json(db, "kill_switch", "k")["items"]) == 1
    assert db.total_changes == before
    db.execute("COMMIT")


def test_damaged_verdicts_do_not_stop_a_report(db):
    switch = looped(db)
    db.execute("UPDATE payload_verdicts SET seqs = '[1,', count = 'x', sentence = x'ff00'")
    report = as_json(db, "kill_switch", switch)
    assert report["verdict"]["items"] == [1, 2, 3, 4] and report["verdict"]["count"] == "x"


def test_packed_bodies_show_their_text(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,store,report')")
    ring(db)
    body = json.dumps({"messages": [{"role": "user", "content": "abc " * 3000}]})
    push(db, "e1", body, body)
    fire(db)
    one(db, "SELECT payload_pack()")
    assert one(db, "SELECT typeof(request_body) FROM event_payloads") == "blob"
    parts = as_json(db, "kill_switch", "k", bodies="all")["items"][0]["parts"]
    assert [part["text"] for part in parts] == [body, body]


def bash(n, tool, **arguments):
    return {"type": "message", "role": "assistant", "content": [
        {"type": "tool_use", "id": f"t{n}", "name": tool, "input": arguments}]}


@pytest.mark.parametrize("tool, arguments, result, bad, title", [
    ("Bash", {"command": "make test"}, "Exit code 2\nFAIL", True, "Bash make test → exit 2"),
    ("Bash", {"command": ["bash", "-lc", "make\ntest"]}, "ok", False, "Bash bash -lc make …"),
    ("shell", {"command": ["git", "diff"]}, '{"output":"x","metadata":{"exit_code":1}}', False, "shell git diff → exit 1"),
    ("exec", {"cmd": "ls"}, "Process exited with code 0\nOutput:\nError: none", False, "exec ls"),
    ("Edit", {"file_path": "/a/b.go", "old_string": "x\ny\nz", "new_string": "x\nY\nY\nz"}, "", False, "Edit b.go"),
    ("MultiEdit", {"file_path": "b.go", "edits": [{"old_string": "x", "new_string": ""}, {"old_string": "", "new_string": "y\nz"}]},
     "", False, "MultiEdit b.go"),
    ("Write", {"file_path": "/a/b.go", "content": "1\n2\n"}, "", False, "Write b.go"),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a/x.c\n-1\n+2\n+3\n*** Add File: y.c\n+4\n*** End Patch"},
     "", False, None),
    ("Grep", {"pattern": "TODO", "path": "src"}, "none", False, "Grep TODO"),
    ("get_order", {"id": 7, "note": "", "deep": {"a": 1}}, "Error: gone\nmore", False, 'get_order deep={"a":1}, id=7, note= → error: gone …'),
    ("noop", {}, None, True, "noop → error"),
])
def test_the_title_of_a_call_is_the_tools_and_says_how_it_ended(db, tool, arguments, result, bad, title):
    ring(db)
    push(db, "e1", '{"messages":[{"role":"user","content":"go"}]}', json.dumps(bash(1, tool, **arguments)), time=1000)
    back = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": result, "is_error": bad}]}
    push(db, "e2", json.dumps({"messages": [{"role": "user", "content": "go"}, bash(1, tool, **arguments), back]}), "done", time=2000)
    fire(db)
    first, second = as_json(db, "kill_switch", "k")["items"]
    if title is not None:
        assert first["title"] == title
    assert ("error" in first) == ("→" in first["title"]) and "error" not in second
    assert (first["asked"], "asked" in second) == (True, False)


def test_what_a_provider_and_the_meta_say_is_an_error(db):
    ring(db)
    for i, (response, meta) in enumerate([
            ('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', None),
            ('event: error\ndata: {"type":"error","error":{"message":"too long"}}\n\n', None),
            ('{"error":"model not found"}', None), (None, '{"status":429,"error":"rate"}'), (None, '{"status":500}'),
            (None, '{"error":"ECONNRESET"}'), ("fine", '{"status":200}'), ('{"error":null,"content":[]}', "{}"),
            ("fine", '{"status":"ok"}'), ("fine", '{"status":"completed","error":""}'), ("fine", '{"error":false}'),
            ("fine", '{"error":[]}'), (None, '{"status":"error","error":"x"}'), (None, '{"status":"503 Busy"}')]):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, meta, timestamp)"
                   " VALUES('a', ?, '{}', ?, ?, ?)", (f"e{i}", response, meta, 1000 + i))
    fire(db)
    assert [item.get("error") for item in as_json(db, "kill_switch", "k")["items"]] == [
        "error: Overloaded", "error: too long", "error: model not found", "HTTP 429: rate", "HTTP 500",
        "error: ECONNRESET", *6 * [None], "error: x", "HTTP 503"]
    made = page(db, "kill_switch", "k")
    assert sum("bad" in a.get("class", "") for tag, a in made.tags if tag == "tr") == 8


@pytest.mark.parametrize("response, error", [
    ('data: {"choices":[{"delta":{"content":"hi"}}]}\n\ndata: {"error":{"message":"boom","code":500}}\n\n', "error: boom"),
    ('data: {"choices":[{"delta":{}}]}\r\n\r\ndata: {"id":"x","error":{"code":502}}\r\n\r\n', "error: 502"),
    ('event: response.created\ndata: {"response":{"error":null}}\n\nevent: response.failed\n'
     'data: {"type":"response.failed","response":{"error":{"code":"c","message":"boom"}}}\n\n', "error: boom"),
    ('event: error\ndata: {"type":"error","code":"c","message":"boom"}\n\n', "error: boom"),
    ('{"response":"half of"}\n{"error":"the runner stopped"}\n', "error: the runner stopped"),
    ('[{"candidates":[]},{"error":{"code":503,"message":"overloaded"}}]', "error: overloaded"),
    ('{"response":"","error":"boom"}', "error: boom"), ("Error: no route\nto host", "Error: no route …"),
    ('data: {"response":{"error":null,"output":[{"type":"mcp_call","error":"bad"}]}}\n\n', None),
    ('{"choices":[{"message":{"role":"assistant","content":"It exited with code 1."}}]}', None),
    ('{"type":"message","role":"assistant","content":[{"type":"text","text":"Exit code 2 {\\"error\\":{}}"}]}', None),
    ('data: {"choices":[{"delta":{"content":"Exit code 2"}}]}\n\n', None), ("Errors are handled", None)])
def test_an_error_in_a_stream_is_one_and_what_a_model_says_of_errors_is_none(db, response, error):
    ring(db)
    push(db, "e1", '{"messages":[{"role":"user","content":"go"}]}', response, time=1000)
    fire(db)
    assert as_json(db, "kill_switch", "k")["items"][0].get("error") == error


def test_markdown_says_once_what_it_is_of(db):
    ring(db)
    push(db, "e1", '{"messages":[{"role":"user","content":"go"}]}', "done", time=1000)
    fire(db)
    for kind, key, name in ("kill_switch", "k", "Kill switch"), ("agent", "a", "Agent"):
        made = one(db, "SELECT blackbox_report(?, ?, '{\"format\":\"md\"}')", kind, key)
        assert made.count(f"| {name} | {key} |") == 1


def test_only_calls_with_the_same_result_repeat(db):
    """Two answers "ok" are no repeat, nor is a call whose result is another one."""
    ring(db)
    messages = [{"role": "user", "content": "go"}]
    for i, (call, result) in enumerate([("a", "1"), ("a", "2"), ("a", "2"), ("b", "2")]):
        push(db, f"e{i}", json.dumps({"messages": messages}), json.dumps(bash(i, call)), time=1000 + i)
        messages = messages + [bash(i, call), {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": f"t{i}", "content": result}]}]
    push(db, "e8", json.dumps({"messages": messages}), "ok", time=2000)
    push(db, "e9", '{"messages":[]}', "ok", time=2001)
    fire(db)
    assert [item.get("repeat") for item in as_json(db, "kill_switch", "k")["items"]] == [None, 1, 1, None, None, None]


@pytest.mark.all_domains
def test_a_conversation_names_its_calls_results_and_bookkeeping(db):
    one(db, "SELECT rollout_create(?)", TALE)
    one(db, "SELECT rollout_append(?, ?)", TALE, json.dumps([
        {"type": "event_msg", "payload": {"type": "user_message", "message": "Why is it red?"}},
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Why is it red?"}]}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c2", "output": "early"}},
        {"type": "response_item", "payload": {"type": "function_call", "name": "exec", "call_id": "c1",
                                              "arguments": '{"cmd":"make"}'}},
        {"type": "response_item", "payload": {"type": "function_call", "name": "exec", "call_id": "c2",
                                              "arguments": '{"cmd":"ls"}'}},
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c1",
                                              "output": "Process exited with code 2\nOutput:\nred"}},
        {"type": "event_msg", "payload": {"type": "token_count", "info": None}},
        {"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "It is mended."}]}}]))
    report = as_json(db, "rollout", TALE)
    items = report["items"][-8:]
    assert report["title"] == "Why is it red?" and facts(report)["Asked first"] == "Why is it red?"
    assert [item.get("role") for item in items] == [
        "user", "user", "result", "call", "call", "result", None, "assistant"]
    assert [item.get("quiet", False) for item in items] == [False] * 6 + [True, False]
    first = items[0]["n"]
    assert [item.get("other") for item in items] == [None, None, first + 4, first + 5, first + 2, first + 3, None, None]
    assert [item["title"] for item in items[3:5]] == ["exec make → exit 2", "exec ls"]
    assert items[3]["said"] == "red"


def test_the_result_of_a_command_is_called_what_it_said(db):
    """Codex writes a head before it, which is the same for all."""
    one(db, "SELECT blackbox_install('main', 'rollout')")
    one(db, "SELECT rollout_create(?)", TALE)
    head = "Command: /bin/zsh -lc 'go test ./...'\nChunk ID: 1a2b3c\nWall time: 0.1 seconds\nProcess exited with code 0\nOutput:\n"
    one(db, "SELECT rollout_append(?, ?)", TALE, json.dumps([
        {"type": "response_item", "payload": {"type": "function_call_output", "call_id": f"c{i}", "output": output}}
        for i, output in enumerate((head + "\nok 12 tests", head, "Output:\nplain"))]))
    assert [item["title"] for item in as_json(db, "rollout", TALE)["items"]][-3:] == [
        "ok 12 tests", head.split("\n")[0], "Output:"]
