"""One form for every format: rollout_messages and rollout_tool_calls."""
import json

import pytest

from rollout_helpers import ID, OTHER, append, create, derive, lines, load, user, well
from conftest import one, problems, rows

FAILED = ("SELECT tool, input ->> 'command', output, duration FROM rollout_tool_calls "
          "WHERE is_error AND started >= 1767225600000 ORDER BY started")
EDITED = ("SELECT DISTINCT file FROM rollout_tool_calls "
          "WHERE edits AND started >= 1767225600000 ORDER BY 1")
AT = "2026-01-01T00:00:0%d.000Z"


def claude(kind, second, *content):
    return {"type": kind, "sessionId": "s", "timestamp": AT % second,
            "message": {"role": kind, "content": [*content]}}


CLAUDE = lines(
    claude("user", 0, {"type": "text", "text": "do it"}),
    claude("assistant", 1, {"type": "text", "text": "yes"},
           {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "make"}},
           {"type": "tool_use", "id": "b", "name": "Edit", "input": {"file_path": "/w/a.c"}},
           {"type": "tool_use", "id": "c", "name": "Read", "input": {"file_path": "/w/b.c"}}),
    claude("user", 3, {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True},
           {"type": "tool_result", "tool_use_id": "b", "content": "changed"}))
PATCH = "*** Begin Patch\n*** Update File: x.c\n*** Add File: y.c\n*** End Patch"


def codex(kind, call, second, **more):
    return {"timestamp": AT % second, "type": "response_item",
            "payload": {"type": kind, "call_id": call, **more}}


CODEX = (
    codex("function_call", "a", 1, name="shell", arguments='{"command":"make"}'),
    codex("function_call_output", "a", 3, output="Exit code: 2\nno"),
    codex("custom_tool_call", "b", 4, name="apply_patch", input=PATCH),
    codex("custom_tool_call_output", "b", 5, output="done"))


def test_which_calls_failed_and_which_files_were_edited_is_one_select(db):
    load(db, CLAUDE)
    assert rows(db, FAILED) == [("Bash", "make", "no", 2000)]
    assert rows(db, EDITED) == [("/w/a.c",)]
    assert rows(db, "SELECT tool, is_error, file, output FROM rollout_tool_calls ORDER BY 1") == [
        ("Bash", 1, None, "no"), ("Edit", 0, "/w/a.c", "changed"), ("Read", None, "/w/b.c", None)]
    assert rows(db, "SELECT n, role, text FROM rollout_messages ORDER BY n") == [
        (1, "user", "do it"), (2, "assistant", "yes")]
    well(db)


@pytest.mark.parametrize("way", ["at once", "one by one", "plain"])
def test_calls_of_codex_are_the_same_however_they_come(db, way):
    create(db)
    if way == "at once":
        append(db, ID, *CODEX)
    for item in CODEX if way == "one by one" else ():
        append(db, ID, item)
    for item in CODEX if way == "plain" else ():
        db.execute("INSERT INTO rollout_items(rollout, type, payload, timestamp) VALUES"
                   " (?, ?, ?, unixepoch(?) * 1000)",
                   (ID, item["type"], json.dumps(item["payload"]), item["timestamp"]))
    derive(db)
    assert rows(db, FAILED) == [("shell", "make", "Exit code: 2\nno", 2000)]
    assert rows(db, EDITED) == [("x.c",), ("y.c",)]
    before = rows(db, "SELECT * FROM rollout_tool_calls ORDER BY n, file")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollout_tool_calls ORDER BY n, file") == before
    well(db)


def test_a_fork_shows_messages_and_the_calls_stay_with_who_made_them(db):
    create(db)
    append(db, ID, user("one"), *CODEX)
    one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    assert sorted(rows(db, "SELECT rollout, text FROM rollout_messages")) == [
        (OTHER, "one"), (ID, "one")]
    assert {r for r, in rows(db, "SELECT rollout FROM rollout_tool_calls")} == {ID}
    one(db, "SELECT rollout_delete(?)", ID)
    assert rows(db, "SELECT rollout, text FROM rollout_messages") == [(OTHER, "one")]
    assert {r for r, in rows(db, "SELECT rollout FROM rollout_tool_calls")} == {None}
    one(db, "SELECT rollout_delete(?)", OTHER)
    assert rows(db, "SELECT * FROM rollout__texts") == []


def test_a_damaged_payload_has_no_text_and_stops_nothing(db):
    load(db, CLAUDE)
    db.execute("DROP TRIGGER rollout_data_update")
    db.execute("UPDATE rollout__data SET payload = '{damaged' WHERE id & 4294967295 = 2")
    assert rows(db, FAILED) == [("Bash", None, "no", 2000)]
    assert rows(db, "SELECT role, text FROM rollout_messages ORDER BY n") == [
        ("user", "do it"), ("assistant", None)]
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, FAILED) == rows(db, EDITED) == []
    assert rows(db, "SELECT role, text FROM rollout_messages") == [("user", "do it")]


def test_a_redacted_call_keeps_its_result_and_loses_its_file(db):
    load(db, CLAUDE)
    db.execute("UPDATE rollout_items SET payload = replace(payload, '/w/a.c', '-') "
               "WHERE sequence = 2")
    assert rows(db, EDITED) == [(None,)]
    load(db, lines({"type": "user", "sessionId": "t", "message": {"role": "user", "content": "x"}}))
    assert rows(db, EDITED) == [("-",)]
    assert rows(db, FAILED) == [("Bash", "make", "no", 2000)]


@pytest.mark.parametrize("sql", [
    "DELETE FROM rollout__texts WHERE tool = 'Bash'", "UPDATE rollout__texts SET file = 'z'",
    "UPDATE rollout__texts SET place = '$.x' WHERE role = 'user'",
    "INSERT INTO rollout__texts(id, role) VALUES ((1 << 32) + 1, 'user')"])
def test_the_check_finds_wrong_texts_and_a_rebuild_repairs_them(db, sql):
    load(db, CLAUDE)
    before = rows(db, "SELECT * FROM rollout_tool_calls")
    db.execute(sql)
    assert [p for p in problems(db) if "what it says is not in rollout__texts" in str(p)]
    one(db, "SELECT rollout_rebuild()")
    assert problems(db) == []
    assert rows(db, "SELECT * FROM rollout_tool_calls") == before


@pytest.mark.parametrize("sql, index", [
    (FAILED, "rollout_call"), (EDITED, "rollout_call"),
    (f"SELECT text FROM rollout_messages WHERE rollout = '{ID}'", "rollout_text"),
    (f"SELECT tool FROM rollout_tool_calls WHERE rollout = '{ID}'", "rollout_text")])
def test_a_question_is_answered_by_an_index(db, sql, index):
    plan = [row[-1] for row in rows(db, "EXPLAIN QUERY PLAN " + sql)]
    assert any(f"USING INDEX {index} (" in step for step in plan), plan
    assert not any("AUTOMATIC" in step or step in ("SCAN t", "SCAN d") for step in plan), plan


def output(call):
    return {"type": "response_item", "payload": {"type": "function_call_output", "call_id": call,
                                                 "output": "out of " + call}}


def call(name):
    return {"type": "response_item", "payload": {"type": "function_call", "call_id": name,
                                                 "name": "shell", "arguments": "{}"}}


OUTPUTS = "SELECT call_id, output FROM rollout_tool_calls WHERE output IS NOT NULL"


def test_among_results_without_calls_one_finds_an_earlier_call(db):
    create(db)
    append(db, ID, call("early"))
    append(db, ID, *(output(f"none {i}") for i in range(20)), output("early"))
    assert rows(db, OUTPUTS) == [("early", "out of early")]
    append(db, ID, call("far"), *(call(str(i)) for i in range(1990)),
           *(output(f"none {i}") for i in range(8)), output("far"))
    assert rows(db, OUTPUTS + " AND call_id = 'far'") == [("far", "out of far")]
    well(db)


def test_results_without_calls_take_a_bounded_time_each(db):
    create(db)
    append(db, ID, *(output(f"none {i}") for i in range(2500)))
    steps = 0

    def count():
        nonlocal steps
        steps += 1000
    db.set_progress_handler(count, 1000)
    append(db, ID, *(output(f"more {i}") for i in range(500)))
    db.set_progress_handler(None, 0)
    assert steps < 500 * 600
