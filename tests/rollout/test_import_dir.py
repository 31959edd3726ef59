"""Folders of files: rollout_import_dir(), and what rollout_sources keeps."""
import ctypes
import ctypes.util
import json
import re
import os
import shutil
import sqlite3
import subprocess
import time

import pytest

from rollout_helpers import (
    AT, ID, OTHER, append, exported, exported_as_parent, lines, load, message, well)
from conftest import FULL, connect, one, rows, some


def said(i, text, role="user", session=ID):
    """A line of Claude Code."""
    return {"type": role, "sessionId": session, "timestamp": AT % i,
            "message": {"role": role, "content": text}}


def told(role, text):
    """A line of Cursor, which has no id and no time."""
    return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}


def put(folder, name, data, at=None):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    if at is not None:
        os.utime(file, (at, at))
    return file


def walk(db, folder, *more):
    marks = ", ?" * len(more)
    report = json.loads(one(db, f"SELECT rollout_import_dir(?{marks})", str(folder), *more))
    well(db)
    return report


def counts(report, *names):
    return tuple(report[n] for n in names or ("files", "read", "new", "unknown", "failed"))


def sources(db, columns="path, format, size, offset, id, mtime, error, cwd"):
    return rows(db, f"SELECT {columns} FROM rollout_sources ORDER BY path")


def test_a_folder_is_imported_and_what_is_as_it_was_is_not_read(db, tmp_path):
    data = lines(said(0, "a"), said(1, "b", "assistant"))
    file = put(tmp_path, "p/one.jsonl", data, 1000)
    put(tmp_path, "q/deep/two.jsonl", lines(said(2, "c", session=OTHER)), 2000)
    put(tmp_path, "q/notes.txt", "no")
    assert walk(db, tmp_path) == {
        "files": 2, "read": 2, "bytes": len(data) + (tmp_path / "q/deep/two.jsonl").stat().st_size,
        "lines": 3, "items": 3, "new": 3, "bad": 0, "unknown": 0, "failed": 0, "errors": []}
    assert sources(db)[0] == (str(file), "claude-code", len(data), len(data), ID, 1000000, None, "")
    assert counts(walk(db, tmp_path)) == (2, 0, 0, 0, 0)
    os.utime(file, (3000, 3000))
    assert counts(walk(db, tmp_path)) == (2, 1, 0, 0, 0)
    assert exported(db) == data.encode()


def test_a_glob_is_of_names_or_of_paths(db, tmp_path):
    root = tmp_path / "root"
    put(root, "a/one.jsonl", lines(said(0, "a")))
    put(root, "b/one.log", lines(said(1, "b")))
    put(root, "b/one.json", lines(said(2, "c")))
    for glob, n in ("*.log", 1), ("b/*", 2), ("b/*.json", 1), ("*", 3), ("none", 0), (None, 2):
        assert walk(db, root, glob)["files"] == n


def test_errors_are_those_of_their_files(db, tmp_path):
    put(tmp_path, "a.jsonl", "")
    put(tmp_path, "b.jsonl", b"\x00\x01\x02\xff")
    put(tmp_path, "c.jsonl", lines(said(0, "a")))
    put(tmp_path, "d.json", '{"a setting": 1}')
    put(tmp_path, "e.jsonl", lines(said(1, "b", session=OTHER)) + '{"cut')
    report = walk(db, tmp_path)
    assert counts(report) == (5, 5, 2, 2, 1)
    assert [e["path"][len(str(tmp_path)) + 1:] for e in report["errors"]] == [
        "a.jsonl", "b.jsonl", "d.json", "e.jsonl"]
    assert "not empty" in report["errors"][0]["reason"]
    assert "1 bad lines; line 2: not JSON" in report["errors"][3]["reason"] and report["bad"] == 1
    assert [bool(e) for e, in sources(db, "error")] == [True, True, False, True, False]
    # what no format knows is not read again, and what failed is
    assert counts(walk(db, tmp_path)) == (5, 1, 0, 2, 1)


def test_an_expired_or_erased_conversation_ends_nothing(db, tmp_path):
    load(db, lines(said(0, "a")))
    db.execute("UPDATE rollouts SET expires_at = 1000")
    put(tmp_path, "a.jsonl", lines(said(0, "a"), said(1, "b")))
    put(tmp_path, "b.jsonl", lines(said(2, "c", session=OTHER)))
    report = walk(db, tmp_path)
    assert counts(report) == (2, 2, 1, 0, 1)
    assert "Rollout expired" in report["errors"][0]["reason"]
    assert exported(db) == lines(said(0, "a")).encode()  # its age refuses no export
    db.execute("UPDATE rollouts SET expires_at = NULL")
    assert counts(walk(db, tmp_path)) == (2, 1, 1, 0, 0)


def test_what_a_file_wrote_before_its_error_is_undone(db, tmp_path):
    """The second conversation of the file is shut down."""
    load(db, lines(said(0, "x", session=OTHER)))
    one(db, "SELECT rollout_shutdown(?)", OTHER)
    put(tmp_path, "a.jsonl", lines(said(1, "a"), said(2, "b", session=OTHER)))
    put(tmp_path, "b.jsonl", lines(said(3, "c", session="s3")))
    assert counts(walk(db, tmp_path)) == (2, 2, 1, 0, 1)
    assert rows(db, "SELECT count(*) FROM rollouts WHERE id = ?", ID) == [(0,)]
    one(db, "SELECT rollout_resume(?)", OTHER)
    assert counts(walk(db, tmp_path)) == (2, 1, 2, 0, 0)


def test_an_error_of_the_call_undoes_all(db, tmp_path):
    for i in range(3):
        put(tmp_path, f"{i}.jsonl", lines(said(i, "x", session=f"s{i}")))
    db.execute("CREATE TRIGGER mine BEFORE INSERT ON rollout__data WHEN NEW.payload LIKE '%s2%' "
               "BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
    with pytest.raises(sqlite3.Error):
        one(db, "SELECT rollout_import_dir(?)", str(tmp_path))
    assert rows(db, "SELECT (SELECT count(*) FROM rollouts), (SELECT count(*) FROM rollout_sources)"
                ) == [(0, 0)]
    well(db)


@pytest.mark.parametrize("way", ["begin", "row", "row in begin"])
def test_it_runs_inside_a_transaction_and_as_a_row(db, tmp_path, way):
    put(tmp_path, "a.jsonl", lines(said(0, "a")))
    put(tmp_path, "b.jsonl", "no session")
    if "begin" in way:
        db.execute("BEGIN")
    if "row" in way:
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import_dir', json_array(?))",
                   (str(tmp_path),))
    else:
        walk(db, tmp_path)
    if "begin" in way:
        db.execute("COMMIT")
    assert rows(db, "SELECT id, turns FROM rollouts") == [(ID, 1)]
    assert len(sources(db)) == 2
    well(db)


def test_links_and_folders_with_the_names_of_files_are_passed_over(db, tmp_path):
    outside = put(tmp_path, "outside/x.jsonl", lines(said(0, "a")))
    root = tmp_path / "root"
    put(root, "d.jsonl/inner.jsonl", lines(said(1, "b", session=OTHER)))
    (root / "link.jsonl").symlink_to(outside)
    (root / "loop").symlink_to(root)
    (root / "gone.jsonl").symlink_to(root / "nowhere")
    os.mkfifo(root / "pipe.jsonl")
    assert counts(walk(db, root)) == (1, 1, 1, 0, 0)
    (tmp_path / "way").symlink_to(root)
    assert counts(walk(db, tmp_path / "way")) == (1, 0, 0, 0, 0)  # the folder itself may be one
    assert sources(db, "path") == [(str(root / "d.jsonl/inner.jsonl"),)]


def test_the_folder_may_be_one_file(db, tmp_path):
    file = put(tmp_path, "p/.claude/projects/w/a.jsonl", lines(said(0, "a")), 1000)
    put(tmp_path, "p/.claude/projects/w/b.jsonl", lines(said(1, "b", session=OTHER)))
    text = put(tmp_path, "c.txt", lines(said(2, "c", session="s")))
    assert counts(walk(db, file)) == (1, 1, 1, 0, 0)
    assert sources(db, "path, cwd") == [(str(file), "w")]
    put(tmp_path, "p/.claude/projects/w/a.jsonl", lines(said(0, "a"), said(1, "b")), 2000)
    (tmp_path / "link").symlink_to(file)
    assert counts(walk(db, tmp_path / "link"), "files", "lines", "new") == (1, 1, 1)  # its end alone
    assert walk(db, text)["files"] == 0  # the names are those of files in folders
    assert walk(db, text, "p/*")["files"] == 0
    for glob in "*", "*.txt", "c.[t]xt":
        assert walk(db, text, glob)["files"] == 1
    assert counts(walk(db, tmp_path / "p")) == (2, 1, 1, 0, 0)
    name = os.fsencode(tmp_path) + b"/d\xff.jsonl"
    with open(name, "w") as out:
        out.write(lines(said(3, "d")))
    with pytest.raises(sqlite3.Error, match="ValidationError"):
        one(db, "SELECT rollout_import_dir(CAST(? AS TEXT))", name)


@pytest.mark.parametrize("folder", ["nowhere", "pipe", "", None])
def test_a_folder_that_cannot_be_read_is_an_error(db, tmp_path, folder):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(sqlite3.Error, match="ValidationError: .*folder"):
        one(db, "SELECT rollout_import_dir(?)", folder and str(tmp_path / folder))


def test_a_name_that_is_not_utf_8_is_an_error(db, tmp_path):
    with open(os.fsencode(tmp_path) + b"/a\xff.jsonl", "w") as out:
        out.write(lines(said(0, "a")))
    report = walk(db, tmp_path)
    assert counts(report) == (1, 0, 0, 0, 1) and report["errors"][0]["path"] == f"{tmp_path}/a\ufffd.jsonl"


def test_of_a_file_that_has_grown_only_the_end_is_read(db, tmp_path):
    first = lines(*(said(i, "x" * 1000) for i in range(50)))
    file = put(tmp_path, "a.jsonl", first, 1000)
    walk(db, tmp_path)
    more = lines(said(51, "b"), said(52, "c", "assistant"))
    put(tmp_path, "a.jsonl", first + more, 2000)
    assert counts(walk(db, tmp_path), "bytes", "lines", "new") == (len(more), 2, 2)
    assert exported(db) == (first + more).encode()
    put(tmp_path, "a.jsonl", first + more + '{"type":"us', 3000)
    assert counts(walk(db, tmp_path), "lines", "bad") == (1, 1)
    whole = first + more + lines(said(53, "d"))
    put(tmp_path, "a.jsonl", whole, 4000)
    assert counts(walk(db, tmp_path), "lines", "new", "bad") == (53, 1, 0)  # all of it again
    assert exported(db) == whole.encode()
    assert sources(db, "offset, mtime, error") == [(len(whole), 4000000, None)]
    # a file that was written anew is seen by its end
    put(tmp_path, "a.jsonl", lines(said(54, "other")) + whole, 5000)
    assert counts(walk(db, tmp_path), "lines", "new") == (54, 1)
    put(tmp_path, "a.jsonl", lines(said(0, "x" * 1000)), 6000)
    assert counts(walk(db, tmp_path), "lines", "new") == (1, 0)
    db.execute("DELETE FROM rollouts")
    assert walk(db, tmp_path)["read"] == 0  # what was deleted stays so, until the file grows
    put(tmp_path, "a.jsonl", whole, 7000)
    assert walk(db, tmp_path)["new"] == 53
    assert file.read_bytes() == exported(db)


def test_the_end_of_a_file_belongs_to_the_conversations_that_it_names(db, tmp_path):
    agent = {"isSidechain": True, "agentId": "a1"}
    first = lines(said(0, "a"), {**said(1, "b"), **agent})
    put(tmp_path, "a.jsonl", first, 1000)
    walk(db, tmp_path)
    more = lines({"type": "progress"}, {**said(2, "c"), **agent}, said(3, "d"), said(3, "d"))
    put(tmp_path, "a.jsonl", first + more, 2000)
    assert counts(walk(db, tmp_path), "lines", "new") == (4, 4)
    fresh = connect()
    one(fresh, "SELECT blackbox_install('main', 'all')")
    load(fresh, first + more)
    query = "SELECT rollout, sequence, timestamp, payload FROM rollout_items ORDER BY 1, 2"
    assert rows(db, query) == rows(fresh, query)


def test_what_was_added_here_is_kept_when_the_file_grows(db, tmp_path):
    first = lines(said(0, "a"))
    put(tmp_path, "a.jsonl", first, 1000)
    walk(db, tmp_path)
    append(db, ID, message("assistant", "of this program"))
    put(tmp_path, "a.jsonl", first + lines(said(1, "b")), 2000)
    assert counts(walk(db, tmp_path), "lines", "new") == (2, 1)
    assert one(db, "SELECT count(*) FROM rollout_items") == 4


# ------------------------------------------- what a file does not say itself

def test_sessions_that_begin_alike_are_told_apart_by_their_paths(db, tmp_path):
    cursor = lines(told("user", "hi"))
    roo = json.dumps([{"role": "user", "content": [{"type": "text", "text": "hi"}]}])
    for i in range(2):
        put(tmp_path, f"projects/my-app/agent-transcripts/chat{i}/chat{i}.jsonl", cursor, 1000 + i)
        put(tmp_path, f"tasks/{i}/api_conversation_history.json", roo, 2000 + i)
    put(tmp_path, f"projects/my-app/agent-transcripts/{ID}.jsonl", cursor, 1002)
    put(tmp_path, "elsewhere/x.jsonl", cursor, 1003)
    assert counts(walk(db, tmp_path)) == (6, 6, 6, 0, 0)
    assert rows(db, "SELECT format, coalesce(source_id, id), cwd, created FROM rollouts "
                "ORDER BY created") == [
        ("cursor", "chat0", "my-app", 1000000), ("cursor", "chat1", "my-app", 1001000),
        ("cursor", ID, "my-app", 1002000),
        ("cursor", str(tmp_path / "elsewhere/x.jsonl"), "", 1003000),
        ("cline-task", "0", "", 2000000), ("cline-task", "1", "", 2001000)]
    grown = cursor + lines(told("assistant", "yes"))
    put(tmp_path, "elsewhere/x.jsonl", grown, 5000)
    assert counts(walk(db, tmp_path)) == (6, 1, 1, 0, 0)
    assert rows(db, "SELECT max(updated) FROM rollouts") == [(5000000,)]  # it has no times of its own
    for rollout, size in rows(db, "SELECT id, size FROM rollout_sources"):
        assert len(exported(db, rollout)) == size


def test_text_with_a_path_is_told_apart_as_well(db):
    text = lines(told("user", "hi"))
    one_, two = (load(db, text, f"/w/{i}.jsonl", 1000 + i) for i in range(2))
    assert one_["rolloutId"] != two["rolloutId"]
    assert load(db, text, "/w/0.jsonl")["rolloutIds"] == one_["rolloutIds"]
    assert sources(db, "path, format, size, id") == [
        (f"/w/{i}.jsonl", "cursor", len(text), r["rolloutId"]) for i, r in enumerate((one_, two))]
    assert rows(db, "SELECT created FROM rollouts ORDER BY 1") == [(1000,), (1001,)]


def test_the_folder_of_aider_is_that_of_its_file(db, tmp_path):
    put(tmp_path, "my repo/.aider.chat.history.md", "# aider chat started at 2026-07-17 09:00:00\n\n#### hi\n")
    assert counts(walk(db, tmp_path)) == (1, 1, 2, 0, 0)
    assert rows(db, "SELECT cwd FROM rollouts") == [(str(tmp_path / "my repo"),)]
    assert sources(db, "offset, cwd") == [(0, str(tmp_path / "my repo"))]


def test_lines_of_claude_without_a_session_id_are_known(db, tmp_path):
    plain = [{k: v for k, v in said(i, "x").items() if k != "sessionId"} | {"uuid": f"u{i}"}
             for i in range(2)]
    put(tmp_path, f".claude/projects/-w/{OTHER}.jsonl", lines(*plain))
    assert counts(walk(db, tmp_path)) == (1, 1, 2, 0, 0)
    assert rows(db, "SELECT id, format, turns FROM rollouts") == [(OTHER, "claude-code", 2)]


# ------------------------------------------------------- how long it is kept

def test_an_imported_conversation_is_permanent_unless_it_is_told_otherwise(db, tmp_path):
    put(tmp_path, "a.jsonl", lines(said(0, "a")))
    walk(db, tmp_path)
    assert one(db, "SELECT expires_at FROM rollouts") is None
    db.execute("UPDATE blackbox_settings SET value = 7 WHERE name = 'rollout.import_ttl_days'")
    put(tmp_path, "b.jsonl", lines(said(0, "a", session=OTHER)))
    walk(db, tmp_path)
    at = one(db, "SELECT expires_at FROM rollouts WHERE id = ?", OTHER)
    assert abs(at - 7 * 86400000 - time.time() * 1000) < 60000


# --------------------------------------------------------- what was unknown

def test_a_new_format_reads_again_what_was_unknown(db, tmp_path):
    data = lines({"by": "mine", "role": "user", "text": "why?"}, {"by": "mine", "text": "so"})
    file = put(tmp_path, "a.jsonl", data, 1000)
    assert counts(walk(db, tmp_path)) == (1, 1, 0, 1, 0)
    kept = load(db, data, str(file), 1000, "unknown")
    assert counts(walk(db, tmp_path)) == (1, 1, 0, 1, 0)  # the time is that of the call
    assert one(db, "SELECT format FROM rollouts WHERE id = ?", kept["rolloutId"]) == "unknown"
    db.execute("INSERT INTO rollout_formats(format, mark, type) VALUES "
               "('mine', '{\"$.by\":\"mine\"}', '$.role|told')")
    db.execute("INSERT INTO blackbox_places(format, kind, type, conditions, place) VALUES "
               "('mine', 'user', 'user', '{\"$.by\":\"mine\"}', '$.text')")
    assert counts(walk(db, tmp_path)) == (1, 1, 2, 0, 0)
    assert rows(db, "SELECT format, first_user_message FROM rollouts") == [("mine", "why?")]
    assert counts(walk(db, tmp_path)) == (1, 0, 0, 0, 0)


# ------------------------------------------------- files that are one value

def chat(*said, **more):
    return json.dumps({"version": 1, "sessionId": "c", "messages": [
        {"id": str(i), "role": role, "content": text} for i, (role, text) in enumerate(said)],
        **more}, indent=2) + "\n"


def test_a_message_that_was_completed_in_place_is_printed_as_it_is_now(db, tmp_path):
    steps = [chat(("user", "hi")), chat(("user", "hi"), ("assistant", "ye")),
             chat(("user", "hi"), ("assistant", "yes")),
             chat(("user", "hi"), ("assistant", "yes, all"), ("user", "more"), title="t"),
             chat(("assistant", "yes, all"), ("user", "hi")), chat(("user", "hi"))]
    for i, text in enumerate(steps):
        put(tmp_path, "c.messages.json", text, 1000 + i)
        assert walk(db, tmp_path)["failed"] == 0
        rollout = one(db, "SELECT id FROM rollouts")
        assert exported(db, rollout).decode() == text
        assert [line for line, in rows(db, "SELECT line FROM rollout_export(?)", rollout)] == [
            text[:-1]]
    assert [p for p, in rows(db, "SELECT payload ->> '$.content' FROM rollout_items WHERE sequence > 0 "
                             "ORDER BY sequence")] == ["hi", "ye", "yes", "yes, all", "more", "yes, all", "hi"]
    assert rows(db, "SELECT turns FROM rollouts") == [(3,)]


def test_a_fork_and_an_append_of_a_file_that_is_one_value(db):
    text = chat(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    rollout = load(db, text)["rolloutId"]
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    assert exported_as_parent(db, fork) == text.encode()
    part = one(db, "SELECT rollout_fork(?, 1)", rollout)
    assert json.loads(exported(db, part))["messages"] == (
        json.loads(text)["messages"][:2])  # what stands behind the items is there as well
    append(db, rollout, message("assistant", "e"))
    assert exported(db, rollout).decode().startswith(text + '{"timestamp":')
    db.execute("UPDATE rollout_items SET payload = json_set(payload, '$.content', '-') "
               "WHERE rollout = ? AND sequence = 1", (rollout,))
    assert b'"a"' not in exported(db, rollout) and b'"content":"-"' in exported(db, rollout)
    assert load(db, text)["new"] == 0
    assert b'"a"' not in exported(db, rollout)
    well(db)


def test_a_file_that_is_one_value_is_imported_into_a_fork(db):
    said = [("user", "a"), ("assistant", "b"), ("user", "c")]
    text = chat(*said)
    rollout = load(db, text)["rolloutId"]
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    part = one(db, "SELECT rollout_fork(?, 1)", rollout)
    assert load(db, text, fork)["new"] == 0 and exported_as_parent(db, fork) == text.encode()
    titled = chat(*said, title="t")  # no new item: what stands around them is in the session_meta
    assert load(db, titled, fork)["new"] == 0 and exported_as_parent(db, fork).decode() == titled
    more = chat(*said, ("assistant", "d"), title="u")
    assert load(db, more, fork)["new"] == 1 and exported_as_parent(db, fork).decode() == more
    other = chat(*said[:2], ("user", "other"))
    assert load(db, other, part)["new"] == 1 and exported_as_parent(db, part).decode() == other
    assert exported(db, rollout).decode() == text
    again = one(db, "SELECT rollout_fork(?)", part)
    assert exported_as_parent(db, again).decode() == other
    last = chat(*said[:2], ("user", "other"), ("assistant", "e"))
    assert load(db, last, again)["new"] == 1 and exported_as_parent(db, again).decode() == last
    assert exported_as_parent(db, part).decode() == other
    well(db)


def test_a_summary_over_several_lines_is_one_item(db, tmp_path):
    folder = "sessions/%2Fw%2Fapp/g1"
    chunk = {"timestamp": 1784278801, "params": {"sessionId": "g1", "update": {
        "sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "hi"}}}}
    put(tmp_path, f"{folder}/updates.jsonl", lines(chunk))
    for i, title in enumerate(("one", "two")):
        summary = json.dumps({"info": {"id": "g1", "cwd": "/w/app"}, "generated_title": title,
                              "session_summary": "s", "updated_at": AT % i}, indent=2)
        put(tmp_path, f"{folder}/summary.json", summary, 1000 + i)
        assert walk(db, tmp_path)["failed"] == 0
        assert rows(db, "SELECT format, title, cwd, first_user_message FROM rollouts") == [
            ("grok", title, "/w/app", "hi")]
        data = exported(db, one(db, "SELECT id FROM rollouts")).decode()
        assert sorted((summary, lines(chunk)), key=data.index) and len(data) == len(summary + lines(chunk))


# ------------------------------------------------------------------- bounds

def counted(db, folder):
    """Imports a folder. Returns the report, and how many thousand instructions of SQLite it took."""
    n = 0

    def more():
        nonlocal n
        n += 1
    db.set_progress_handler(more, 1000)
    report = json.loads(one(db, "SELECT rollout_import_dir(?)", str(folder)))
    db.set_progress_handler(None, 0)
    well(db)
    return report, n


def test_files_of_one_item_each_take_time_for_each_alone(tmp_path):
    """OpenHands writes a file for each event: the hundredth takes as long as the ten thousandth."""
    def write(name, n):
        for i in range(n):
            put(tmp_path / name, f"conversations/c/events/event-{i:05}.json", json.dumps(
                {"id": f"e{i}", "kind": "MessageEvent", "source": "user", "timestamp": AT % (i % 60),
                 "llm_message": {"role": "user", "content": f"said {i}"}}, indent=1))
    took = {}
    most = 10_000 if FULL else 3_000
    for n in 500, most:
        db = connect(tmp_path / f"{n}.db")
        one(db, "SELECT blackbox_install('main', 'rollout')")
        write(str(n), n)
        report, took[n] = counted(db, tmp_path / str(n))
        assert counts(report) == (n, n, n, 0, 0)
    assert took[most] < 1.1 * most / 500 * took[500]
    db.execute("UPDATE rollout_sources SET mtime = 0")
    report, again = counted(db, tmp_path / str(most))
    assert counts(report) == (most, most, 0, 0, 0) and again < 1.2 * took[most]
    begun = time.monotonic()
    assert len(exported(db, one(db, "SELECT id FROM rollouts"))) > most * 100
    assert time.monotonic() - begun < 2


# What files are: how many bytes an element has at least, and how a file is made of them.
SIZES = {
    "a.jsonl": lambda n: lines(*(said(i % 60, "x") for i in range(n // 130))),
    "chat.jsonl": lambda n: lines(told("user", "x")) * (n // 70),
    "tasks/1/api_conversation_history.json": lambda n: json.dumps(
        [{"role": "user", "content": "x"}] * (n // 34)),
    "c.messages.json": lambda n: chat(*[("user", "x")] * (n // 100)),
    "r.jsonl": lambda n: lines({"timestamp": AT % 0, "type": "event_msg", "payload": {
        "type": "user_message", "message": "x"}}) * (n // 110),
    ".aider.chat.history.md": lambda n: "# aider chat started at 2026-07-17 09:00:00\n" + "#### hi\n\nyes\n" * (n // 13),
}


def most_memory(tmp_path, path, data):
    """Imports a file twice. Returns the largest number of bytes that SQLite and the module had beside
    the cache of the file, and the reports."""
    sqlite = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
    sqlite.sqlite3_memory_used.restype = sqlite.sqlite3_memory_highwater.restype = ctypes.c_int64
    db = connect(tmp_path / "main.db")
    one(db, "SELECT blackbox_install('main', 'rollout')")
    db.execute("PRAGMA cache_size = -1000")
    put(tmp_path / "f", path, data)
    most, reports = 0, []
    for _ in range(2):
        before = sqlite.sqlite3_memory_used()
        if before == 0:
            pytest.skip("this program has an SQLite of its own")
        sqlite.sqlite3_memory_highwater(1)
        reports.append(json.loads(one(db, "SELECT rollout_import_dir(?)", str(tmp_path / "f"))))
        most = max(most, sqlite.sqlite3_memory_highwater(0) - before - 1200000)
        db.execute("UPDATE rollout_sources SET mtime = 0")
    return most, reports


@pytest.mark.parametrize("path", some(SIZES))
def test_memory_is_less_than_two_times_the_largest_file(tmp_path, path):
    data = SIZES[path](4000000)
    most, reports = most_memory(tmp_path, path, data)
    assert [r["read"] for r in reports] == [1, 1] and most < 1.4 * len(data)


def span(i, text):
    return {"traceId": "t", "spanId": str(i), "startTimeUnixNano": "1784278800000000000", "attributes": [
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
        {"key": "gen_ai.conversation.id", "value": {"stringValue": "c"}},
        {"key": "gen_ai.input.messages", "value": {"stringValue": json.dumps(
            [{"role": "user", "parts": [{"type": "text", "content": text}]}])}}]}


def spans(*spans):
    return lines({"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]})


# Files that are one item, or one line: how many times the bytes of the file the memory may have.
WHOLE = {
    "line": (2.1, "a.jsonl", lambda n: lines(said(0, "x" * n))),
    "codex": (2.1, "r.jsonl", lambda n: lines({"timestamp": AT % 0, "type": "event_msg", "payload": {
        "type": "user_message", "message": "x" * n}})),
    "message": (2.1, "c.messages.json", lambda n: chat(("user", "x" * n))),
    "event": (2.1, "conversations/c/events/event-0.json", lambda n: json.dumps(
        {"id": "e", "kind": "MessageEvent", "source": "user", "timestamp": AT % 0,
         "llm_message": {"role": "user", "content": "x" * n}}, indent=1)),
    "spans": (1.2, "many.jsonl", lambda n: spans(span(0, "x" * 100)) * (n // 480)),
    # what is above: see docs/rollout.md
    "parts": (5.5, "a.jsonl", lambda n: lines(said(0, [{"type": "text", "text": "xy"}] * (n // 32)))),
    "spans of a line": (3, "one.jsonl", lambda n: spans(*(span(i, "x" * 100) for i in range(n // 430)))),
    "span": (4.1, "one.jsonl", lambda n: spans(span(0, "x" * n))),
    "changes": (3.2, "c.jsonl", lambda n: lines({"kind": 0, "v": {"sessionId": "c", "requests": [
        {"requestId": str(i), "message": {"text": "x" * 100}} for i in range(n // 160)]}})),
    "conversations": (13, "m.jsonl", lambda n: lines(*(said(0, "x", session=f"s{i}") for i in range(n // 125)))),
    "unknown": (1.1, "d.json", lambda n: "[" + "1," * (n // 2) + "1]"),
}


@pytest.mark.parametrize("name", some(WHOLE))
def test_the_memory_of_files_that_are_one_item_or_one_line(tmp_path, name):
    times, path, make = WHOLE[name]
    data = make(4000000)
    most, reports = most_memory(tmp_path, path, data)
    assert [r["read"] for r in reports] == [1, 1] and most < times * len(data)


def test_a_file_that_is_made_to_fill_the_memory_is_refused(tmp_path):
    if shutil.which("zstd") is None:
        pytest.skip("zstd is missing")
    bomb = subprocess.run("head -c 1000000000 /dev/zero | zstd -q -c", shell=True, check=True,
                          stdout=subprocess.PIPE).stdout
    assert len(bomb) < 200000
    most, reports = most_memory(tmp_path, "bomb.jsonl.zst", bomb)
    assert most < 70000000
    for report in reports:
        assert counts(report) == (1, 0, 0, 0, 1)
        assert "200 times its own" in report["errors"][0]["reason"]


def test_ten_thousand_files_again_take_two_seconds(tmp_path):
    count = 10_000 if FULL else 4_000
    db = connect(tmp_path / "main.db")
    one(db, "SELECT blackbox_install('main', 'rollout')")
    folder = tmp_path / "files"
    for i in range(count):
        put(folder, f"{i % 100}/{i}.jsonl", lines(said(i % 60, "x", session=f"s{i}")))
    assert json.loads(one(db, "SELECT rollout_import_dir(?)", str(folder)))["new"] == count
    begun = time.monotonic()
    assert json.loads(one(db, "SELECT rollout_import_dir(?)", str(folder)))["read"] == 0
    assert time.monotonic() - begun < 2 * count / 10_000


def test_nothing_is_left_of_what_is_erased(db, tmp_path):
    one(db, "SELECT blackbox_install('main', 'retention')")
    put(tmp_path, "of jane/a.jsonl", lines(said(0, "a")))
    put(tmp_path, "b.jsonl", lines(said(1, "b", session=OTHER)))
    walk(db, tmp_path)
    for kind, key in ("text", "jane"), ("rollout", OTHER):
        told = one(db, "SELECT blackbox_erase(?, ?, 'ann', 'asked for')", kind, key)
        assert one(db, "SELECT blackbox_erased(?) ->> 'left'", told) == "[]"
    assert sources(db) == []
    report = walk(db, tmp_path / "of jane")
    assert counts(report) == (1, 1, 0, 0, 0)
    report = walk(db, tmp_path, "b.jsonl")
    assert counts(report) == (1, 1, 0, 0, 1) and "ErasedError" in report["errors"][0]["reason"]


def test_a_fork_of_another_program_is_a_file_of_that_program(db):
    text = lines(said(0, "a"), said(1, "b", "assistant"), said(2, "c"), said(3, "d", "assistant"))
    rollout = load(db, text)["rolloutId"]
    fork = one(db, "SELECT rollout_fork(?)", rollout)
    assert exported_as_parent(db, fork) == text.encode()
    part = one(db, "SELECT rollout_fork(?, 1)", fork)  # a fork of a fork
    assert exported_as_parent(db, part) == lines(said(0, "a"), said(1, "b", "assistant")).encode()
    assert load(db, text, part)["new"] == 2 and exported_as_parent(db, part) == text.encode()
    assert rows(db, "SELECT count(DISTINCT format), count(*) FROM rollouts") == [(1, 3)]
    well(db)


def test_compressed_files_are_read(db, tmp_path):
    if shutil.which("zstd") is None:
        pytest.skip("zstd is missing")

    def zipped(text):
        return subprocess.run(["zstd", "-q", "-c"], input=text.encode(), check=True,
                              stdout=subprocess.PIPE).stdout

    text = lines(*(said(i % 60, "a" * 1000) for i in range(2000)))  # it becomes 500 times as long
    file = put(tmp_path, "one.jsonl.zst", zipped(text), 1000)
    assert counts(walk(db, tmp_path), "read", "new", "failed", "bytes") == (1, 2000, 0, len(text))
    assert exported(db) == text.encode()
    assert sources(db, "size, offset, error") == [(file.stat().st_size, 0, None)]
    assert counts(walk(db, tmp_path), "read") == (0,)
    more = lines(said(5, "more"))
    put(tmp_path, "one.jsonl.zst", zipped(text) + zipped(more), 2000)  # two frames
    assert counts(walk(db, tmp_path), "read", "new") == (1, 1)
    assert exported(db) == (text + more).encode()
    for bad, reason in ((zipped(text)[:-9], "it is compressed, and cut off"), (b"no" * 50, "damaged"),
                        (b"", "cut off"), (zipped(""), "not empty")):
        put(tmp_path, "bad.jsonl.zst", bad)
        report = walk(db, tmp_path)
        assert counts(report, "failed", "new") == (1, 0) and reason in report["errors"][0]["reason"]


# ---------------------------------------------- files that cannot be read

CLOSED = {
    ".codeium/windsurf/cascade/1.pb": ("windsurf-cascade", "encrypted"),
    ".codeium/windsurf-next/cascade/1.pb": ("windsurf-cascade", "encrypted"),
    ".gemini/antigravity/conversations/1.pb": ("antigravity-conversations", "encrypted"),
    ".cursor/chats/0a/1/store.db": ("cursor-chats", "its own program"),
    ".local/share/kiro-cli/data.sqlite3": ("kiro-store", "its own program"),
    "Cursor/User/globalStorage/state.vscdb": ("cursor-store", "rollout_import_from('cursor', 'theirs')"),
    ".local/share/opencode/opencode.db": ("opencode", "rollout_import_from('opencode', 'theirs')"),
    ".local/share/goose/sessions/sessions.db": ("goose-store", "rollout_import_from('goose', 'theirs')"),
    ".local/share/zed/threads/threads.db": ("zed", "rollout_import_from('zed', 'theirs')"),
    "warp-terminal/warp.sqlite": ("warp", "rollout_import_from('warp', 'theirs')"),
    ".hermes/state.db": ("hermes", "rollout_import_from('hermes', 'theirs')"),
}


def test_files_of_known_programs_that_cannot_be_read_say_so(db, tmp_path):
    root = tmp_path / "home"
    for path in CLOSED:
        with open(put(root, path, b"SQLite format 3\0"), "r+b") as file:
            file.truncate(2 << 30)  # nothing of it is read
    put(root, "workspaceStorage/1/state.vscdb", b"SQLite format 3\0")  # has no sessions
    put(root, "a.jsonl", lines(said(0, "a")))
    for _ in range(2):
        report = walk(db, root)
        assert (report["files"], report["unknown"], report["failed"]) == (len(CLOSED) + 1, 0, len(CLOSED))
        found = {e["path"][len(str(root)) + 1:]: e["reason"] for e in report["errors"]}
        assert set(found) == set(CLOSED)
        for path, (name, reason) in CLOSED.items():
            assert name in found[path] and reason in found[path]
    assert {(p[len(str(root)) + 1:], f) for p, f, e in sources(db, "path, format, error") if e} == {
        (path, name) for path, (name, _) in CLOSED.items()}


@pytest.mark.parametrize("data, reason", [
    (b"SQLite format 3\0" + bytes(84), "rollout_import_from()"), (b"\x1f\x8b\x08" + bytes(20), "gzip"),
    (b"\x28\xb5\x2f\xfd" + bytes(20), "ends with .zst"), (b"PK\x03\x04" + bytes(20), "ZIP")])
def test_files_that_are_no_text_say_what_they_are(db, tmp_path, data, reason):
    put(tmp_path, "a.bin", data)
    report = walk(db, tmp_path, "*.bin")
    assert counts(report, "unknown", "failed") == (0, 1) and reason in report["errors"][0]["reason"]
    with pytest.raises(sqlite3.Error, match="ValidationError: Invalid rollout file: it is"):
        load(db, data)
    path = "/home/.codeium/windsurf/cascade/1.pb"
    with pytest.raises(sqlite3.Error, match="Invalid rollout file: it is of the format windsurf-cascade"):
        load(db, b"\x01\x02", path)


def test_each_name_of_a_pattern_has_one_star_or_word(db):
    patterns = "|".join(path for path, in rows(db, "SELECT path FROM rollout_formats WHERE path IS NOT NULL"))
    assert [name for name in re.split(r"[/|]", patterns) if name.count("*") + name.count("{") > 1] == []


def test_the_files_of_a_session_of_grok_are_one_conversation(db, tmp_path):
    folder = tmp_path / "sessions" / "%2Fw" / "g1"
    folder.mkdir(parents=True)
    (folder / "updates.jsonl").write_text(json.dumps({"timestamp": 1784278801, "params": {"update": {
        "sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "why"}}}}) + "\n")
    (folder / "summary.json").write_text(json.dumps({"info": {"id": "g1", "cwd": "/w"}, "generated_title": "Named",
                                                     "created_at": "2026-07-17T09:00:00Z"}, indent=2))
    one(db, "SELECT rollout_import_dir(?)", str(tmp_path))
    assert rows(db, "SELECT source_id, title, turns FROM rollouts") == [("g1", "Named", 1)]
