"""Exports that the agents themselves resume: what they then send to the model, on loopback, has the
history. The tests are skipped without the programs: `npm install @anthropic-ai/claude-code @openai/codex`,
with node_modules/.bin in PATH.
"""
import datetime
import http.server
import json
import os
import shutil
import subprocess
import threading

import pytest

from conftest import connect

PARENT = "0f8fad5b-d9cb-469f-a165-70867728950e"
AT = "2026-07-17T09:00:0%d.000Z"


class Model(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, json.loads(body or b"{}")))
        self.send_response(400)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}')


@pytest.fixture
def model():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def run(command, folder, model, **more):
    """Runs an agent in a home of its own. The model refuses, so that the agent ends."""
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    url = f"http://127.0.0.1:{model.server_port}"
    command = [program] + [part.replace("URL", url) for part in command[1:]]
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none",
           "OPENAI_API_KEY": "none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", **more}
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)
    return done.stdout + done.stderr


def ask(db, sql, *args):
    return db.execute(sql, args).fetchone()[0]


def imported(lines):
    db = connect()
    ask(db, "SELECT blackbox_install('main', 'rollout')")
    ask(db, "SELECT rollout_import(?)", "\n".join(json.dumps(line) for line in lines))
    return db


def texts(said):
    """The texts of messages, of either API."""
    found = []
    for message in said:
        content = message.get("content") or []
        found += [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
    return [text for text in found if not text.startswith(("<", "#"))]


def claude(kind, text, uuid, parent):
    said = [{"type": "text", "text": text}] if kind == "assistant" else text
    return {"parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/w", "sessionId": PARENT,
            "version": "2.0.0", "type": kind, "message": {"role": kind, "content": said, **(
                {} if kind == "user" else {"id": "m" + uuid, "type": "message", "model": "claude-opus-4-5"})},
            "uuid": uuid, "timestamp": AT % len(text)}


@pytest.mark.parametrize("way", ["continued", "forked"])
def test_claude_code_resumes_an_export(tmp_path, model, way):
    names = [f"{i}f8fad5b-d9cb-469f-a165-70867728950e" for i in range(4)]
    said = [("user", "one"), ("assistant", "two!"), ("user", "three"), ("assistant", "four!!")]
    db = imported([claude(kind, text, names[i], names[i - 1] if i else None) for i, (kind, text) in enumerate(said)])
    rollout, expected = PARENT, ["one", "two!", "three", "four!!"]
    if way == "forked":
        rollout, expected = ask(db, "SELECT rollout_fork(?, NULL, NULL, NULL, 2)", PARENT), ["one", "two!"]
    assert ask(db, "SELECT rollout_append(?, ?)", rollout, json.dumps([
        {"type": "user", "message": {"role": "user", "content": "five"}},
        {"type": "assistant", "message": {"role": "assistant", "id": "m9", "type": "message", "model": "claude-opus-4-5",
                                          "content": [{"type": "text", "text": "six"}]}}])) == 2
    folder = tmp_path / ".claude/projects" / "".join(c if c.isalnum() else "-" for c in str(tmp_path.resolve()))
    folder.mkdir(parents=True)
    (folder / f"{rollout}.jsonl").write_text(ask(db, "SELECT rollout_export(?)", rollout))
    told = run(["claude", "-p", "--resume", rollout, "go on"], tmp_path, model)
    asked = [body for path, body in model.asked if "/messages" in path and "go on" in json.dumps(body.get("messages"))]
    assert asked, told
    found = texts(asked[0]["messages"])
    assert [text for text in found if text in (*expected, "five", "six", "go on", "three", "four!!")] == [
        *expected, "five", "six", "go on"], told


@pytest.mark.parametrize("way", ["continued", "forked"])
def test_codex_resumes_an_export(tmp_path, model, way):
    def item(role, text):
        part = "input_text" if role == "user" else "output_text"
        return {"type": "response_item", "payload": {
            "type": "message", "role": role, "content": [{"type": part, "text": text}]}}

    def line(item, i):
        return {"timestamp": AT % i, **item}

    said = [item("user", "one"), item("assistant", "two!"), item("user", "three"), item("assistant", "four!!")]
    meta = {"type": "session_meta", "payload": {
        "id": PARENT, "timestamp": AT % 0, "cwd": str(tmp_path), "originator": "codex_cli_rs", "cli_version": "0.80.0",
        "instructions": None, "source": "cli", "model_provider": "mine"}}
    db = imported([line(part, i) for i, part in enumerate([meta, *said])])
    rollout, expected = PARENT, ["one", "two!", "three", "four!!"]
    if way == "forked":
        rollout, expected = ask(db, "SELECT rollout_fork(?, NULL, NULL, NULL, 2)", PARENT), ["one", "two!"]
    assert ask(db, "SELECT rollout_append(?, ?)", rollout, json.dumps(
        [item("user", "five"), item("assistant", "six")])) == 2
    now = datetime.datetime(2026, 7, 17, 9)
    folder = tmp_path / now.strftime(".codex/sessions/%Y/%m/%d")
    folder.mkdir(parents=True)
    (folder / now.strftime(f"rollout-%Y-%m-%dT%H-%M-%S-{rollout}.jsonl")).write_text(
        ask(db, "SELECT rollout_export(?)", rollout))
    provider = 'model_providers.mine={name="mine",base_url="URL/v1",env_key="OPENAI_API_KEY",wire_api="responses",' \
        'request_max_retries=0,stream_max_retries=0}'
    told = run(["codex", "exec", "--skip-git-repo-check", "-c", provider, "-c", 'model_provider="mine"', "-m", "gpt-5",
                "resume", rollout, "go on"], tmp_path, model, CODEX_HOME=str(tmp_path / ".codex"))
    asked = [body for path, body in model.asked if path.endswith("/responses")]
    assert asked, told
    found = texts(asked[0]["input"])
    assert [text for text in found if text in (*expected, "five", "six", "go on", "three", "four!!")] == [
        *expected, "five", "six", "go on"], told
