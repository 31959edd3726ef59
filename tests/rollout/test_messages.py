"""The history of conversations of other programs than Codex: branches, calls, compactions."""
import gzip
import json

import pytest

from rollout_helpers import AT, well
from conftest import DATA, needs_data, one, rows


def load(db, *objects):
    text = "".join(json.dumps(o) + "\n" for o in objects)
    report = json.loads(one(db, "SELECT rollout_import(?)", text))
    assert report["bad"] == 0
    return report["rolloutId"]


def context(db, rollout, *more):
    marks = ", ?" * len(more)
    return [json.loads(p) for p, in rows(
        db, f"SELECT payload FROM rollout_context(?{marks})", rollout, *more)]


def orphans(db, rollout):
    return rows(db, "SELECT sequence, kind, call_id FROM rollout_orphans(?)", rollout)


def claude(i, up, role, content, **more):
    return {"type": role, "sessionId": "s", "uuid": f"u{i}", "parentUuid": up and f"u{up}",
            "timestamp": AT % i, "message": {"role": role, "content": content, "id": f"m{i}"},
            **more}


def use(name):
    return {"type": "tool_use", "id": name, "name": "ls", "input": {}}


def got(name):
    return {"type": "tool_result", "tool_use_id": name, "content": "x"}


def text(what):
    return {"type": "text", "text": what}


TREE = [claude(1, None, "user", "first"),
        {"type": "system", "sessionId": "s", "uuid": "u2", "parentUuid": "u1"},
        claude(3, 2, "assistant", [text("a"), use("t1")]), claude(4, 3, "assistant", [use("t2")]),
        claude(5, 3, "user", [got("t1")]), claude(6, 4, "user", [got("t2")]),
        claude(7, 6, "user", "a way that was given up"), claude(8, 7, "assistant", [text("no")]),
        claude(9, 6, "user", "another way"), claude(10, 9, "assistant", [text("yes")]),
        claude(11, 9, "user", "aside", isSidechain=True)]


def test_the_live_branch_has_the_results_of_all_calls(db):
    rollout = load(db, *TREE)
    assert [m["content"] for m in context(db, rollout)] == [
        "first", [text("a"), use("t1")], [use("t2")], [got("t1")], [got("t2")], "another way",
        [text("yes")]]
    assert {tuple(m) for m in context(db, rollout)} == {("role", "content")}
    assert orphans(db, rollout) == [] and context(db, rollout, "without") == context(db, rollout)
    assert rows(db, "SELECT sequence, item_id, parent, live FROM rollout_tree(?) "
                "WHERE sequence IN (1, 2, 5, 6, 8, 9)", rollout) == [
        (1, "u1", None, 1), (2, "u2", 1, 1), (5, "u5", 3, 1), (6, "u6", 4, 1), (8, "u8", 7, 0),
        (9, "u9", 6, 1)]
    well(db)


def test_a_summary_begins_a_new_tree(db):
    rollout = load(db, *TREE,
                   {"type": "system", "subtype": "compact_boundary", "sessionId": "s",
                    "uuid": "u12", "parentUuid": None, "logicalParentUuid": "u10"},
                   claude(13, 12, "user", "what was", isCompactSummary=True),
                   claude(14, 13, "user", "go on"), claude(15, 14, "assistant", [text("ok")]))
    assert [m["content"] for m in context(db, rollout)] == ["what was", "go on", [text("ok")]]


def test_parts_without_their_other_half_are_told_and_left_out(db):
    rollout = load(db, claude(1, None, "user", "first"),
                   claude(2, 1, "assistant", [text("a"), use("t1"), use("t2")]),
                   claude(3, 2, "user", [got("t2"), got("t9")]),
                   claude(4, 3, "assistant", [use("t3")]))
    assert orphans(db, rollout) == [(2, "call", "t1"), (3, "result", "t9"), (4, "call", "t3")]
    assert [m["content"] for m in context(db, rollout, "without")] == [
        "first", [text("a"), use("t2")], [got("t2")]]
    assert len(context(db, rollout)) == 4


def test_an_agent_has_a_history_of_its_own(db):
    side = {"isSidechain": True, "agentId": "a"}
    load(db, claude(1, None, "user", "first"), claude(2, None, "user", "task", **side),
         claude(3, 2, "assistant", [text("done")], **side))
    for rollout, said in rows(db, "SELECT id, first_user_message FROM rollouts"):
        assert [m["content"] for m in context(db, rollout)] == {
            "first": ["first"], "task": ["task", [text("done")]]}[said]


def pi(i, up, **more):
    return {"id": f"e{i}", "parentId": up and f"e{up}", "timestamp": AT % i, **more}


def test_pi_goes_on_from_its_summary(db):
    def said(i, up, role, *parts, **more):
        return pi(i, up, type="message", message={"role": role, "content": list(parts), **more})
    call = {"type": "toolCall", "id": "c1", "name": "ls", "arguments": {}}
    rollout = load(
        db, {"type": "session", "version": 3, "id": "p", "timestamp": AT % 0, "cwd": "/p"},
        said(1, None, "user", text("one")), said(2, 1, "assistant", text("two")),
        said(3, 2, "user", text("three")), said(4, 3, "assistant", call),
        said(5, 4, "toolResult", text("x"), toolCallId="c1"),
        said(6, 3, "user", text("given up")),
        pi(7, 5, type="compaction", summary="one and two", firstKeptEntryId="e3"),
        said(8, 7, "user", text("go on")), said(9, 8, "assistant", {**call, "id": "c2"}))
    whole = context(db, rollout)
    assert [m["role"] for m in whole] == ["user", "user", "assistant", "toolResult", "user",
                                          "assistant"]
    assert whole[0] == {"role": "user", "content": "one and two"}
    assert whole[3]["toolCallId"] == "c1"
    assert orphans(db, rollout) == [(10, "call", "c2")]
    assert len(context(db, rollout, "without")) == 5


def test_gemini_takes_back_and_has_results_beside_calls(db):
    def said(i, **more):
        return {"id": f"g{i}", "timestamp": AT % i, **more}
    reply = {"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "x"}}}
    rollout = load(
        db, {"sessionId": "g", "startTime": AT % 0, "kind": "main"},
        said(1, type="user", content="one"),
        said(2, type="gemini", content="look", toolCalls=[
            {"id": "c1", "name": "ls", "args": {"a": 1}, "result": [reply]},
            {"id": "c2", "name": "rm", "args": {}}]),
        said(3, type="user", content=[{"text": "wrong"}]),
        said(4, type="gemini", content="no"), {"$rewindTo": "g3"},
        said(5, type="user", content=[{"text": "two"}]))
    calls = [{"functionCall": {"id": "c1", "name": "ls", "args": {"a": 1}}},
             {"functionCall": {"id": "c2", "name": "rm", "args": {}}}]
    assert context(db, rollout) == [
        {"role": "user", "parts": [{"text": "one"}]},
        {"role": "model", "parts": [{"text": "look"}, *calls]},
        {"role": "user", "parts": [reply]}, {"role": "user", "parts": [{"text": "two"}]}]
    assert orphans(db, rollout) == [(3, "call", "c2")]
    assert context(db, rollout, "without")[1]["parts"] == [{"text": "look"}, calls[0]]


def test_qwen_and_goose_have_histories(db):
    def qwen(i, up, kind, *parts):
        return {"type": kind, "sessionId": "q", "uuid": f"q{i}", "parentUuid": up and f"q{up}",
                "timestamp": AT % i, "message": {
                    "role": "model" if kind == "assistant" else "user", "parts": list(parts)}}
    rollout = load(db, qwen(1, None, "user", {"text": "one"}),
                   qwen(2, 1, "assistant", {"functionCall": {"id": "c", "name": "ls"}}),
                   qwen(3, 2, "tool_result", {"functionResponse": {"id": "c", "name": "ls"}}))
    assert [m["role"] for m in context(db, rollout)] == ["user", "model", "user"]
    assert orphans(db, rollout) == []
    rollout = load(
        db, {"id": "x", "working_dir": "/g", "created_at": AT % 0},
        {"id": "1", "role": "user", "created": 1784278801, "content": [text("hi")]},
        {"id": "2", "role": "assistant", "created": 1784278802,
         "content": [{"type": "toolRequest", "id": "c", "toolCall": {}}]},
        {"id": "3", "role": "user", "created": 1784278803,
         "content": [{"type": "toolResponse", "id": "c", "toolResult": {}}]},
        {"id": "4", "role": "user", "created": 1784278804,
         "content": [{"type": "toolResponse", "id": "d", "toolResult": {}}]})
    assert len(context(db, rollout)) == 4
    assert orphans(db, rollout) == [(5, "result", "d")]
    assert len(context(db, rollout, "without")) == 3


def test_opencode_has_its_parts(db):
    def part(i, role, **data):
        return {"store": "opencode", "session": "o", "type": "part", "role": role,
                "row": {"id": f"p{i}", "data": data}}
    rollout = load(db, part(1, "user", type="text", text="one"),
                   part(2, "assistant", type="step-start"),
                   part(3, "assistant", type="tool", callID="c",
                        state={"status": "completed", "output": "x"}),
                   part(4, "assistant", type="tool", callID="d", state={"status": "running"}))
    assert [m["type"] for m in context(db, rollout)] == ["text", "tool", "tool"]
    assert orphans(db, rollout) == [(4, "call", "d")]
    assert len(context(db, rollout, "without")) == 2


def test_a_history_by_rows_of_ones_own(db):
    db.execute("INSERT INTO rollout_formats(format, mark, rank) VALUES "
               "('mine', '{\"$.by\":true}', 1)")
    db.execute("INSERT INTO rollout_histories(format, type, role, content) VALUES "
               "('mine', 'say', '$.by', '$.what')")
    rollout = load(db, {"type": "say", "by": "user", "what": "hi"}, {"type": "x", "by": "y"})
    assert context(db, rollout) == [{"role": "user", "content": "hi"}]


@needs_data
@pytest.mark.parametrize("kind", ["claude"])
def test_a_recorded_session_has_a_history_that_is_complete(db, kind):
    for file in sorted((DATA / "rollouts" / kind).iterdir()):
        data = gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()
        rollout = json.loads(one(db, "SELECT rollout_import(?)", data))["rolloutId"]
        lines = [json.loads(line) for line in data.splitlines()]
        said = [o for o in lines if o["type"] in ("user", "assistant")]
        assert len(context(db, rollout)) == len(said), file
        assert len(orphans(db, rollout)) == (1 if file.name.startswith("88db") else 0)
        assert len(context(db, rollout, "without")) >= len(said) - 1
