"""Conversations that were imported: items in their own format, their policy, forks, and the export."""
import json
import sqlite3

import pytest

from rollout_helpers import (
    AT, ID, OTHER, append, create, event, exported, exported_as_parent, lines, load, message, texts, user, well)
from conftest import connect, one, rows

SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"


def claude(kind, text, uuid, parent=None, **more):
    return {"parentUuid": parent, "sessionId": SESSION, "type": kind, "message": {"role": kind, "content": text},
            "uuid": uuid, "timestamp": AT % len(text), **more}


SAID = [claude("user", "one", "u1"), claude("assistant", "two", "u2", "u1"),
        claude("user", "three", "u3", "u2"), claude("assistant", "four", "u4", "u3")]
ASKED = {"type": "user", "message": {"role": "user", "content": "more"}}


def loaded(db):
    load(db, lines(*SAID))
    return SESSION


def own(db, rollout):
    return [json.loads(line) for line in exported(db, rollout).decode().splitlines()]


@pytest.mark.parametrize("way", ["function", "begin", "row", "attached"])
def test_a_line_of_the_own_format_is_kept_and_derived(db, tmp_path, way):
    if way == "attached":
        db = connect(tmp_path / "main.db")
        db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
        one(db, "SELECT blackbox_install('a \"b', 'rollout')")
    fork = one(db, "SELECT rollout_fork(?, 1)", loaded(db))
    given = claude("user", "is it", "u9", "u2", isSidechain=False)
    if way == "begin":
        db.execute("BEGIN")
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, ?))",
                   (fork, json.dumps([given])))
    else:
        assert append(db, fork, given) == 1
    assert rows(db, "SELECT sequence, type FROM rollout_items WHERE rollout = ? AND sequence > 2", fork) == [(3, "user")]
    assert json.loads(texts(db, fork)[3][1]) == given
    assert rows(db, "SELECT turns, item_count FROM rollouts WHERE id = ?", fork) == [(2, 4)]
    assert rows(db, "SELECT n, role, text FROM rollout_messages WHERE rollout = ? AND n > 2", fork) == [
        (3, "user", "is it")]
    assert rows(db, "SELECT timestamp FROM rollout_items WHERE rollout = ? AND sequence = 3", fork) == [(1784278805000,)]
    assert rows(db, "SELECT * FROM rollout_dropped(?)", fork) == []
    assert one(db, "SELECT payload ->> '$.content' FROM rollout_context(?) WHERE sequence = 3", fork) == "is it"
    assert own(db, fork)[2] == {**given, "sessionId": fork}
    well(db)
    before = rows(db, "SELECT * FROM rollouts")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT * FROM rollouts") == before


def test_a_message_gets_what_it_lacks_for_the_chain(db):
    fork = one(db, "SELECT rollout_fork(?, 1)", loaded(db))
    answer = {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "so"}]}}
    assert append(db, fork, ASKED, {"type": "summary", "summary": "s", "leafUuid": "u2"}, answer, now=5000) == 3
    assert append(db, fork, ASKED) == 1
    found = own(db, fork)[2:]
    asked, summary, answered, again = found
    assert summary == {"type": "summary", "summary": "s", "leafUuid": "u2"}  # no message
    assert {k: asked[k] for k in ASKED} == ASKED and asked["timestamp"] == "1970-01-01T00:00:05.000Z"
    assert [part["parentUuid"] for part in (asked, answered, again)] == ["u2", asked["uuid"], answered["uuid"]]
    assert {part["sessionId"] for part in own(db, fork) if part is not summary and "sessionId" in part} == {fork}
    assert len({part["uuid"] for part in (asked, answered, again)}) == 3
    assert [json.loads(p)["content"] for p, in rows(db, "SELECT payload FROM rollout_context(?)", fork)] == [
        "one", "two", "more", answer["message"]["content"], "more"]
    with pytest.raises(sqlite3.Error, match="InvalidItemError: .* item 1 has no type"):
        append(db, fork, ASKED, {"message": {"role": "user"}})
    assert len(own(db, fork)) == 6
    well(db)


def test_the_parent_of_a_fork_stays_as_it_is(db):
    rollout = loaded(db)
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    append(db, fork, ASKED)
    assert exported(db, rollout).decode() == lines(*SAID)
    append(db, rollout, {**ASKED, "uuid": "own", "parentUuid": "u1"})
    assert own(db, rollout)[4] == {**ASKED, "uuid": "own", "parentUuid": "u1", "sessionId": rollout,
                                   "timestamp": own(db, rollout)[4]["timestamp"]}
    assert "own" not in exported(db, fork).decode()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_what_is_appended_begins_on_a_line_of_its_own(db, end):
    text = lines(*SAID)[:-1] + end
    load(db, text)
    append(db, SESSION, ASKED)
    whole = exported(db, SESSION).decode()
    assert whole.startswith(text) and [json.loads(l)["type"] for l in whole.splitlines()][4:] == ["user"]
    assert load(db, whole)["new"] == 0 and exported(db, SESSION).decode() == whole
    well(db)


def test_an_export_comes_back_in_an_empty_file_and_goes_on(db, tmp_path):
    fork = one(db, "SELECT rollout_fork(?, 1)", loaded(db))
    append(db, fork, ASKED)
    db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, 'assistant', ?)",
               (fork, json.dumps(claude("assistant", "plain\nsql", "u8", "u2"), indent=1)))
    whole = exported(db, fork)
    assert [json.loads(line)["type"] for line in whole.splitlines()] == ["user", "assistant"] * 2
    assert [line for line, in rows(db, "SELECT line FROM rollout_export(?)", fork)] == whole.decode().splitlines()
    other = connect(tmp_path / "other.db")
    one(other, "SELECT blackbox_install('main', 'rollout')")
    report = load(other, whole)
    assert (report["rolloutId"], report["format"], report["new"]) == (fork, "claude-code", 4)
    assert exported(other, fork) == whole
    grown = whole + json.dumps({**SAID[0], "sessionId": fork, "uuid": "u12"}).encode() + b"\n"
    report = load(db, grown)
    assert (report["rolloutIds"], report["new"]) == ([fork], 1)
    assert exported(db, fork) == grown and rows(db, "SELECT count(*) FROM rollouts") == [(2,)]
    again = one(db, "SELECT rollout_fork(?)", fork)
    assert exported_as_parent(db, again) == grown.replace(fork.encode(), SESSION.encode())
    well(db)


def test_a_fork_whose_file_is_imported_by_its_path_grows(db, tmp_path):
    fork = one(db, "SELECT rollout_fork(?, 1)", loaded(db))
    file = tmp_path / f"{fork}.jsonl"
    file.write_bytes(exported(db, fork))
    one(db, "SELECT rollout_import_dir(?)", str(tmp_path))
    with file.open("a") as more:
        more.write(lines({**SAID[2], "sessionId": fork, "uuid": "u20"}))
    assert json.loads(one(db, "SELECT rollout_import_dir(?)", str(tmp_path)))["new"] == 1
    assert exported(db, fork) == file.read_bytes()
    assert rows(db, "SELECT count(*) FROM rollouts") == [(2,)]


CODEX = lines({"timestamp": AT % 1, "type": "session_meta", "payload": {"id": ID, "timestamp": AT % 1, "cwd": "/w"}},
              {"timestamp": AT % 2, **user("hello")}, {"timestamp": AT % 3, **message("assistant", "yes")})


@pytest.mark.parametrize("way", ["append", "log"])
def test_an_imported_conversation_keeps_everything(db, way):
    load(db, CODEX)
    fork = one(db, "SELECT rollout_fork(?)", ID)
    create(db, OTHER)
    for rollout, kept in ((ID, 1), (fork, 1), (OTHER, 0)):
        before = len(texts(db, rollout))
        item = event("exec_command_begin", command="make")
        if way == "append":
            assert append(db, rollout, item) == kept
        else:
            db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, ?, ?)",
                       (rollout, item["type"], json.dumps(item["payload"])))
        assert len(texts(db, rollout)) - before == kept
        assert len(rows(db, "SELECT * FROM rollout_dropped(?)", rollout)) == 1 - kept
    well(db)


def test_the_export_of_a_fork_begins_as_files_of_its_program_do(db):
    load(db, CODEX)
    fork = one(db, "SELECT rollout_fork(?)", ID)
    first, *rest = exported(db, fork).decode().splitlines(True)
    assert json.loads(first)["type"] == "session_meta" and json.loads(first)["payload"]["id"] == fork
    assert "".join(rest) == "".join(CODEX.splitlines(True)[1:])
    fork = one(db, "SELECT rollout_fork(?)", loaded(db))
    assert exported_as_parent(db, fork).decode() == lines(*SAID)


PI = lines({"type": "session", "version": 3, "id": OTHER, "timestamp": AT % 1, "cwd": "/p"},
           {"type": "message", "id": "a1", "parentId": None, "timestamp": AT % 2,
            "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}})
GPTME = lines({"role": "user", "content": "hi", "timestamp": AT % 1})


@pytest.mark.parametrize("text, source, given, lacks", [
    (PI, None, {"type": "message", "message": {"role": "assistant", "content": []}},
     {"parentId": "a1", "id": str, "timestamp": str}),
    (PI, None, {"type": "model_change", "modelId": "m"}, {}),
    (GPTME, "/x/logs/c/conversation.jsonl", {"role": "assistant", "content": "yes"}, {}),
])
def test_other_formats_take_their_own_lines(db, text, source, given, lacks):
    rollout = load(db, text, source)["rolloutId"]
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    for each in (rollout, fork):
        assert append(db, each, given) == 1
        line = own(db, each)[-1]
        assert {k: line[k] for k in given} == given and set(line) == {*given, *lacks}
        for key, value in lacks.items():
            assert isinstance(line[key], str) if value is str else line[key] == value
        assert [part.get("id") for part in own(db, each)[:1]] == [each if text is PI else None]
    assert load(db, exported(db, rollout), source)["new"] == 0
    well(db)


def test_a_fork_at_an_item_shares_it_and_all_before(db):
    rollout = loaded(db)
    for item, turns, said in ((0, 0, ""), (1, 1, "one"), (2, 1, "two"), (3, 2, "three"), (4, 2, "four")):
        fork = one(db, "SELECT rollout_fork(?, NULL, NULL, NULL, ?)", rollout, item)
        assert rows(db, "SELECT item_count, turns, has_user_event, first_user_message FROM rollouts WHERE id = ?",
                    fork) == [(item + 1, turns, item > 0, "one" if item else None)]
        found = own(db, fork)
        assert len(found) == item and (not found or found[-1]["message"]["content"] == said)
    assert one(db, "SELECT rollout_fork(?, NULL, ?, 5000, 2)", rollout, OTHER) == OTHER
    assert rows(db, "SELECT created, item_count FROM rollouts WHERE id = ?", OTHER) == [(5000, 3)]
    well(db)
    before = rows(db, "SELECT id, turns, has_user_event, item_count, bytes FROM rollouts")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT id, turns, has_user_event, item_count, bytes FROM rollouts") == before


def test_a_fork_at_an_item_counts_turns_as_rollbacks_left_them(db):
    create(db)
    back = event("thread_rolled_back", num_turns=2)
    append(db, ID, user("a"), user("b"), message("assistant", "c"), back, user("d"), user("e"),
           event("thread_rolled_back", num_turns=9), user("f"))
    forks = [one(db, "SELECT rollout_fork(?, NULL, NULL, NULL, ?)", ID, item) for item in range(9)]
    assert [one(db, "SELECT turns FROM rollouts WHERE id = ?", fork) for fork in forks] == [0, 1, 2, 2, 0, 1, 2, 0, 1]
    well(db)
    inner = [one(db, "SELECT rollout_fork(?, NULL, NULL, NULL, ?)", forks[6], item) for item in (4, 5, 6)]
    assert [one(db, "SELECT turns FROM rollouts WHERE id = ?", fork) for fork in inner] == [0, 1, 2]
    append(db, inner[1], user("g"))
    assert one(db, "SELECT turns FROM rollouts WHERE id = ?", inner[1]) == 2
    before = rows(db, "SELECT id, turns FROM rollouts")
    one(db, "SELECT rollout_rebuild()")
    assert rows(db, "SELECT id, turns FROM rollouts") == before


@pytest.mark.parametrize("arguments, error", [
    ("NULL, NULL, NULL, 5", "SequenceError: Invalid sequence: 5; the last item of .* is 4"),
    ("NULL, NULL, NULL, -1", "ValidationError: .*item must be"),
    ("NULL, NULL, NULL, 'x'", "ValidationError: .*item must be"),
    ("1, NULL, NULL, 2", "ValidationError: give a turn or an item, not both"),
])
def test_a_fork_at_no_item_is_refused(db, arguments, error):
    rollout = loaded(db)
    with pytest.raises(sqlite3.Error, match=error):
        one(db, f"SELECT rollout_fork(?, {arguments})", rollout)
    assert rows(db, "SELECT count(*) FROM rollouts") == [(1,)]


def test_an_item_that_follows_itself_ends_no_walk(db):
    """A client that tries again appends a line twice."""
    lines = [{"type": "user", "uuid": "a", "parentUuid": up, "sessionId": SESSION, "timestamp":
              "2026-07-17T09:00:00Z", "message": {"role": "user", "content": "x"}} for up in (None, "a")]
    db.execute("SELECT rollout_import(?)", ("\n".join(map(json.dumps, lines)),))
    again = json.dumps({"type": "user", "uuid": "d", "message": {"role": "user", "content": "p"}})
    for _ in range(2):
        db.execute("SELECT rollout_append(?, ?)", (SESSION, again)).fetchall()
    db.set_progress_handler(lambda: 1, 1_000_000)
    texts = db.execute("SELECT payload ->> 'content' FROM rollout_context(?)", (SESSION,)).fetchall()
    assert texts == [("x",), ("p",)]
    assert db.execute("SELECT count(*) FROM rollout_tree(?)", (SESSION,)).fetchone() == (4,)
    assert db.execute("SELECT count(*) FROM rollout_orphans(?)", (SESSION,)).fetchone() == (0,)
