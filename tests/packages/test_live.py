"""docs/live.md: the hooks of the page get what agents give them, and tools/otlp.py gets what agents tell."""
import gzip
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sqlite3
import threading
import time
import tomllib

import pytest

from conftest import DATA, ROOT, connect, needs_data
from packages_helpers import Receiver

PAGE = (ROOT / "docs/live.md").read_text()
CLAUDE, GEMINI = [json.loads(block) for block in re.findall(r"```json\n(\{\"hooks\".*?)```", PAGE, re.S)]
CODEX, = re.findall(r"```toml\n(notify.*?)```", PAGE, re.S)

needs_shell = pytest.mark.skipif(not shutil.which("sqlite3"), reason="no sqlite3 shell")


@pytest.fixture
def home(tmp_path):
    (script,) = re.findall(r"```sh\n(# hook.sh.*?)```", PAGE, re.S)
    (tmp_path / ".blackbox").mkdir()
    (tmp_path / ".blackbox/hook.sh").write_text(script)
    return tmp_path


def env(home):
    return {**os.environ, "HOME": str(home), "LD_LIBRARY_PATH": str(ROOT), "DYLD_LIBRARY_PATH": str(ROOT)}


def commands(settings):
    return {event: entry["hooks"][0]["command"] for event, (entry,) in settings["hooks"].items()}


def hook(home, command, told):
    subprocess.run(["sh", "-c", command], input=json.dumps(told), text=True, env=env(home), check=True,
                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)


def wait(home, sql, wanted):
    """What a query returns, once a hook in the background has come so far."""
    found = None
    for _ in range(300):
        try:
            found = connect(home / "flight.db").execute(sql).fetchall()
        except sqlite3.OperationalError:
            pass
        if found == wanted:
            return
        time.sleep(0.05)
    assert found == wanted


def claude_line(number, **more):
    return json.dumps({"type": "user", "sessionId": "s-1", "uuid": f"u{number}", "cwd": "/w",
                       "timestamp": f"2026-11-28T09:00:0{number}Z",
                       "message": {"role": "user", "content": f"do {number}"}, **more}) + "\n"


@needs_shell
def test_the_hooks_of_claude_code_record_turns_and_sub_agents(home):
    folder = home / "it's [my] projects"
    file, sub = folder / "s-1.jsonl", folder / "s-1/subagents/agent-7.jsonl"
    sub.parent.mkdir(parents=True)
    given = {"session_id": "s-1", "transcript_path": str(file), "cwd": "/w", "last_assistant_message": "it's \"done\""}
    seen = "SELECT source_id, agent IS NOT NULL, item_count FROM rollouts ORDER BY agent"
    hooks = commands(CLAUDE)
    file.write_text(claude_line(1))
    hook(home, hooks["Stop"], {"hook_event_name": "Stop", **given})
    wait(home, seen, [("s-1", 0, 2)])
    sub.write_text(claude_line(2, isSidechain=True, agentId="7"))
    hook(home, hooks["SubagentStop"], {"hook_event_name": "SubagentStop", **given, "agent_transcript_path": str(sub)})
    wait(home, "SELECT count(*), sum(item_count) FROM rollouts", [(2, 4)])
    with file.open("a") as more:
        more.write(claude_line(3) + claude_line(4))
    for _ in range(3):
        hook(home, hooks["SessionEnd"], {"hook_event_name": "SessionEnd", **given})
    wait(home, "SELECT count(*), sum(item_count) FROM rollouts", [(2, 6)])
    assert connect(home / "flight.db").execute("SELECT count(*) FROM blackbox_check").fetchone() == (0,)


@needs_shell
def test_the_hook_of_gemini_records_the_file_that_grows(home):
    file = home / "session-1.json"
    user = {"id": "1", "timestamp": "2026-11-28T09:00:00Z", "type": "user", "content": "hi"}
    for n in (1, 2):
        file.write_text(json.dumps({"sessionId": "g-1", "projectHash": "p", "startTime": "2026-11-28T09:00:00Z",
                                    "lastUpdated": f"2026-11-28T09:00:0{n}Z",
                                    "messages": [{**user, "id": str(i), "content": f"do {i}"} for i in range(n)]}))
        os.utime(file, (n, n))
        hook(home, commands(GEMINI)["AfterAgent"], {"session_id": "g-1", "transcript_path": str(file),
                                                    "hook_event_name": "AfterAgent", "prompt_response": "x"})
        wait(home, "SELECT source_id, format, turns FROM rollouts", [("g-1", "gemini", n)])


@needs_shell
def test_the_notice_of_codex_records_its_folder(home):
    folder = home / ".codex/sessions/2026/11/28"
    folder.mkdir(parents=True)
    name = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
    (folder / f"rollout-2026-11-28T09-00-00-{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [
        {"timestamp": "2026-11-28T09:00:00Z", "type": "session_meta", "payload": {"id": name, "cwd": "/w"}},
        {"timestamp": "2026-11-28T09:00:01Z", "type": "event_msg", "payload": {"type": "user_message", "message": "hi"}}]))
    notify = tomllib.loads(CODEX)["notify"]
    told = json.dumps({"type": "agent-turn-complete", "thread-id": name, "last-assistant-message": "it's $done"})
    subprocess.run([*notify, told], env=env(home), check=True, stdin=subprocess.DEVNULL, timeout=30)
    wait(home, "SELECT id, format, turns FROM rollouts", [(name, "codex", 1)])


def same_lines(home, file):
    db = connect(home / "flight.db")
    lines = b"".join(line.encode() + b"\n" for line, in db.execute(
        "SELECT e.line FROM rollouts AS r, rollout_export(r.id) AS e"))
    assert sorted(lines.splitlines()) == sorted(file.read_bytes().splitlines())


@needs_shell
@needs_data
@pytest.mark.parametrize("kind, event", [("rollouts/claude/*.gz", "Stop"), ("formats/gemini/session.jsonl", "AfterAgent")])
def test_a_recorded_session_comes_in_by_its_hook(home, kind, event):
    found = min(DATA.glob(kind), key=lambda file: file.stat().st_size)
    file = home / found.name.removesuffix(".gz")
    file.write_bytes(gzip.decompress(found.read_bytes()) if found.suffix == ".gz" else found.read_bytes())
    command = {**commands(GEMINI), **commands(CLAUDE)}[event]
    hook(home, command, {"transcript_path": str(file), "hook_event_name": event})
    wait(home, "SELECT count(*) > 0, max(turns) > 0 FROM rollouts", [(1, 1)])
    same_lines(home, file)


@needs_shell
@needs_data
def test_recorded_sessions_of_codex_come_in_by_its_notice(home):
    found = min(DATA.glob("rollouts/codex/*.jsonl"), key=lambda file: file.stat().st_size)
    folder = home / ".codex/sessions/2026/06/17"
    folder.mkdir(parents=True)
    (folder / found.name).write_bytes(found.read_bytes())
    subprocess.run([*tomllib.loads(CODEX)["notify"], json.dumps({"type": "agent-turn-complete"})], env=env(home),
                   check=True, stdin=subprocess.DEVNULL, timeout=30)
    wait(home, "SELECT count(*), max(turns) > 0 FROM rollouts", [(1, 1)])
    same_lines(home, found)


def records(*said, service="claude-code"):
    """Log records with these attributes, as an exporter sends them."""
    def value(v):
        return {"boolValue": v} if isinstance(v, bool) else {"intValue": v} if isinstance(v, int) else {"stringValue": v}
    return json.dumps({"resourceLogs": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]},
        "scopeLogs": [{"scope": {"name": service}, "logRecords": [{
            "timeUnixNano": "1784278800000000000", "body": {"stringValue": one.get("event.name", "")},
            "attributes": [{"key": k, "value": value(v)} for k, v in one.items()]} for one in said]}]}]}).encode()


def body(kind, sequence, prompt="p-1", source="repl_main_thread", **more):
    return {"event.name": kind, "session.id": "s-1", "prompt.id": prompt, "event.sequence": sequence,
            "query_source": source, "model": "claude-x", **more}


def exchanges(folder):
    return connect(folder / "flight.db").execute(
        "SELECT agent_id, request_body, response_body, meta ->> 'request_id', meta ->> 'truncated' "
        "FROM event_payloads ORDER BY rowid").fetchall()


def test_bodies_of_claude_code_become_exchanges(tmp_path):
    prompt = {"event.name": "user_prompt", "session.id": "s-1", "prompt": "hi", "event.sequence": 0}
    with Receiver(tmp_path) as receiver:
        first = records(prompt, body("api_request_body", 1, body="q1"), body("api_request_body", 2, body="q2",
                        source="agent", body_truncated=True))
        for _ in range(2):  # a sender tries again if the answer was lost
            assert receiver.send(first, "/v1/logs") == 200
        second = records(body("claude_code.api_response_body", 3, body="a1", request_id="r1"),
                         body("api_response_body", 4, body="a2", source="agent", request_id="r2"),
                         body("api_response_body", 5, body="a3", prompt="other", request_id="r3"))
        for _ in range(2):
            assert receiver.send(gzip.compress(second), "/v1/logs", **{"Content-Encoding": "gzip"}) == 200
        assert exchanges(tmp_path) == [("s-1", "q1", "a1", "r1", None), ("s-1", "q2", "a2", "r2", 1),
                                       ("s-1", None, "a3", "r3", None)]
        db = connect(tmp_path / "flight.db")
        assert db.execute("SELECT source_id, item_count FROM rollouts").fetchall() == [("s-1", 2)]


def test_a_body_that_is_cut_in_a_character_takes_nothing_along(tmp_path):
    with Receiver(tmp_path) as receiver:
        prompt = {"event.name": "user_prompt", "session.id": "s-1", "prompt": "hi"}
        cut = records(prompt, body("api_request_body", 1, body="CUT")).replace(b"CUT", b"emoji \\ud83d")
        assert receiver.send(cut, "/v1/logs") == 200
        assert [row[1] for row in exchanges(tmp_path)] == ["emoji \ufffd"]
        assert connect(tmp_path / "flight.db").execute("SELECT count(*) FROM rollouts").fetchone() == (1,)


def test_bodies_in_files_are_read_below_their_folder_and_paired_by_the_index(tmp_path):
    folder = tmp_path / "bodies"
    folder.mkdir()
    request = {"model": "claude-x", "system": "You are", "tools": [], "messages": [{"role": "user", "content": "é"}]}
    for name in "ab":
        (folder / f"{name}.request.json").write_text(json.dumps(request | {"name": name}))
        (folder / f"{name}1.response.json").write_text(name)
    (folder / "index.jsonl").write_text("".join(json.dumps({
        "session_id": "s-1", "request_file": str(folder / f"{name}.request.json"),
        "response_file": str(folder / f"{name}1.response.json")}) + "\n" for name in "ab"))
    (tmp_path / "secret").write_text("secret")
    with Receiver(tmp_path, "--bodies", folder) as receiver:
        def file(kind, name, sequence, **more):
            return body(kind, sequence, body_ref=str(folder / name), **more)
        assert receiver.send(records(*(file("api_request_body", f"{n}.request.json", 1) for n in "ab")), "/v1/logs") == 200
        assert receiver.send(records(*(file("api_response_body", f"{n}1.response.json", 2, request_id=n)
                                       for n in "ab")), "/v1/logs") == 200
        seen = exchanges(tmp_path)
        assert [row[2] for row in seen] == ["a", "b"] == [json.loads(row[1])["name"] for row in seen]
        for path in "../secret", "missing", "..", "/etc/passwd":
            assert receiver.send(records(file("api_request_body", path, 3), {
                "event.name": "user_prompt", "session.id": "s-1", "prompt": path}), "/v1/logs") == 200
    assert exchanges(tmp_path) == seen + [("s-1", None, None, None, None)] * 4
    db = connect(tmp_path / "flight.db")
    assert db.execute("SELECT count(*) FROM event_payloads WHERE meta ->> 'error' LIKE '%cannot be read%'").fetchone() == (4,)
    assert db.execute("SELECT source_id, item_count FROM rollouts").fetchall() == [("s-1", 5)]  # all else of a POST
    report = json.loads(db.execute("SELECT rollout_import(?)", (claude_line(1),)).fetchone()[0])
    whole = json.loads(db.execute("SELECT rollout_export(?, 'atif')", (report["rolloutId"],)).fetchone()[0])
    assert whole["extra"]["raw_request"] == request | {"name": "b"} and whole["steps"][0]["message"] == "You are"


def test_bodies_are_written_as_the_setting_for_secrets_says(tmp_path):
    key = "sk-ant-" + "a1B2c3D4" * 5
    with Receiver(tmp_path) as receiver:
        db = connect(tmp_path / "flight.db")
        db.execute("SELECT blackbox_install('main', 'report')")
        for i, how in enumerate(("keep", "mask", "drop")):
            db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.secrets'", (how,))
            assert receiver.send(records(body("api_request_body", 2 * i, prompt=how, body=f"use {key}"),
                                         body("api_response_body", 2 * i + 1, prompt=how, body="ok", request_id=how)),
                                 "/v1/logs") == 200
    (kept, _), (masked, _), (dropped, answer) = [row[1:3] for row in exchanges(tmp_path)]
    assert (kept, masked, answer) == (f"use {key}", "use [masked: Anthropic key]", "ok")
    assert json.loads(dropped) == {"dropped": "sha256:" + hashlib.sha256(kept.encode()).hexdigest(),
                                   "bytes": len(kept), "found": ["Anthropic key"]}


def test_what_codex_tells_is_a_conversation(tmp_path):
    name = {"conversation.id": "c-1", "app.version": "1"}
    with Receiver(tmp_path) as receiver:
        assert receiver.send(records(
            {"event.name": "codex.conversation_starts", "model": "gpt-5", **name},
            {"event.name": "codex.user_prompt", "prompt": "hi", **name},
            {"event.name": "codex.tool_result", "tool_name": "shell", "call_id": "k", "arguments": '{"command":"ls"}',
             "output": "a b", "success": "true", **name},
            {"event.name": "codex.sse_event", "event.kind": "response.completed", "model": "gpt-5",
             "input_token_count": 10, "output_token_count": 3, "cached_token_count": 4, **name},
            service="codex_cli_rs"), "/v1/logs") == 200
    db = connect(tmp_path / "flight.db")
    assert db.execute("SELECT source_id, turns, model FROM rollouts").fetchall() == [("c-1", 1, "gpt-5")]
    assert db.execute("SELECT tool, output FROM rollout_tool_calls").fetchall() == [("shell", "a b")]
    assert db.execute("SELECT input_fresh, cache_read, output FROM rollout_usage").fetchall() == [(6, 4, 3)]


def test_what_gemini_tells_is_a_conversation_at_any_path_and_in_chunks(tmp_path):
    text = records({"event.name": "gemini_cli.user_prompt", "session.id": "g-1", "prompt": "hi"}, service="gemini-cli")
    with Receiver(tmp_path) as receiver:
        host = http.client.HTTPConnection(receiver.url.split("//")[1], timeout=30)
        host.request("POST", "/", body=iter([text[:50], text[50:]]), encode_chunked=True, headers={
            "Content-Type": "application/json; charset=utf-8", "Transfer-Encoding": "chunked"})
        assert host.getresponse().status == 200
        assert receiver.send(b'{"resourceMetrics":[]}', "/v1/metrics") == 200
        assert receiver.send(gzip.compress(b" " * (65 << 20)), **{"Content-Encoding": "gzip"}) == 400
    db = connect(tmp_path / "flight.db")
    assert db.execute("SELECT source_id, turns FROM rollouts").fetchall() == [("g-1", 1)]


def test_who_keeps_a_connection_open_stops_nobody(tmp_path):
    with Receiver(tmp_path) as receiver:
        place = receiver.url.split("//")[1].split(":")
        with socket.create_connection(place), socket.create_connection(place) as slow:
            slow.sendall(b"POST / HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
            senders = [threading.Thread(target=receiver.send, args=(records(
                body("api_request_body", n, body=str(n))), "/v1/logs")) for n in range(8)]
            for one in senders:
                one.start()
            for one in senders:
                one.join(10)
        assert sorted(int(row[1]) for row in exchanges(tmp_path)) == list(range(8))


def test_bodies_without_ids_are_exchanges_of_their_own(tmp_path):
    with Receiver(tmp_path) as receiver:
        for kind, more in ("api_request_body", {}), ("api_response_body", {"prompt.id": "none"}):
            for _ in range(2):
                assert receiver.send(records({"event.name": kind, "body": "1", **more},
                                             {"event.name": kind, "body": "2", **more}), "/v1/logs") == 200
    assert [row[:3] for row in exchanges(tmp_path)] == [
        ("unknown", "1", None), ("unknown", "2", None), ("unknown", None, "1"), ("unknown", None, "2")]


@pytest.mark.parametrize("gone", ["SELECT blackbox_uninstall('main', 'report')", "DELETE FROM blackbox_secrets"])
def test_without_rules_of_secrets_bodies_are_dropped(tmp_path, gone):
    with Receiver(tmp_path) as receiver:
        db = connect(tmp_path / "flight.db")
        db.execute("SELECT blackbox_install('main', 'report')")
        db.execute("UPDATE blackbox_settings SET value = 'mask' WHERE name = 'payload.secrets'")
        db.execute(gone)
        assert receiver.send(records(body("api_request_body", 1, body="q")), "/v1/logs") == 200
    assert json.loads(exchanges(tmp_path)[0][1]) == {
        "dropped": "sha256:" + hashlib.sha256(b"q").hexdigest(), "bytes": 1, "found": []}
