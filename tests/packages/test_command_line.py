"""The command line, the same of python -m blackbox and of npx sqlite-blackbox, through processes.

Each runs as its package has it, with the module of this checkout. That of npm needs the better-sqlite3
that make test-packages installs, and a node."""
import json
import os
import pty
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from conftest import MODULE, ROOT, connect

SHARED = ["commands.json", "commands.sql", "prices.json", "serve.html"]
SQLITE = ROOT / "build/packages/node_modules/better-sqlite3"
HELP = {"python": "python -m blackbox", "node": "npx sqlite-blackbox"}


@pytest.fixture(autouse=True, scope="module")
def interruptible():
    """A program that is started by one which ignores SIGINT ignores it, too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The words that start each program."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "packages/python/blackbox", site / "blackbox")
    npm = site / "node_modules/sqlite-blackbox"
    shutil.copytree(ROOT / "packages/npm", npm)
    native = site / "node_modules/sqlite-blackbox-linux-x64"
    native.mkdir()
    (native / "package.json").write_text('{"name":"sqlite-blackbox-linux-x64"}')
    for folder in (site / "blackbox", native):
        shutil.copy(MODULE, folder)
    for name in SHARED:
        shutil.copy(ROOT / "packages" / name, site / "blackbox")
        shutil.copy(ROOT / "packages" / name, npm)
    if SQLITE.exists():
        (npm.parent / "better-sqlite3").symlink_to(SQLITE)
    os.environ["PYTHONPATH"] = str(site)
    yield {"python": [sys.executable, "-m", "blackbox"], "node": ["node", npm / "cli.js"]}
    del os.environ["PYTHONPATH"]


@pytest.fixture(params=["python", "node"])
def program(request, programs):
    if request.param == "node" and not (SQLITE.exists() and shutil.which("node")):
        pytest.skip("make test-packages installs better-sqlite3")
    return programs[request.param]


@pytest.fixture
def run(program, tmp_path):
    def run(*words, code=0, **env):
        done = subprocess.run([*program, *map(str, words)], cwd=tmp_path, timeout=60, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**os.environ, **env})
        assert done.returncode == code, done.stdout + done.stderr
        return done
    return run


def exchange(step, args='{"id":1042}', result="timeout"):
    talk = [{"role": "user", "content": "Where is order 1042?"}]
    for i in range(step):
        talk += [{"role": "assistant", "tool_calls": [{
            "id": f"c{i}", "function": {"name": "get_order", "arguments": args}}]},
            {"role": "tool", "tool_call_id": f"c{i}", "content": result}]
    return json.dumps({"model": "gpt-5", "messages": talk})


ANSWER = json.dumps({"model": "gpt-5", "usage": {"prompt_tokens": 1000, "completion_tokens": 10},
                     "choices": [{"message": {"role": "assistant", "tool_calls": [{
                         "id": "c", "function": {"name": "get_order", "arguments": "{}"}}]}}]})


@pytest.fixture
def file(tmp_path):
    """Two agents, of which one loops and is stopped; the other met an error."""
    db = connect(tmp_path / "flight.db")
    db.execute("SELECT blackbox_install()")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("SELECT rollout_load_prices(?, 'p')", ((ROOT / "packages/prices.json").read_text(),))
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("UPDATE blackbox_settings SET value = 'kill_switch' WHERE name = 'payload.on_loop'")
    now = int(time.time() * 1000)
    for i in range(6):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp, meta) "
                   "VALUES('support', ?, ?, ?, ?, '{\"status\":200,\"duration_ms\":12}')",
                   (f"s{i}", exchange(i), ANSWER, now + i))
    for i, (status, ask) in enumerate([(200, "hello"), (500, "a caf\xe9 \x1b[2J")]):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, timestamp, meta) "
                   "VALUES('billing', ?, ?, ?, ?)", (
                       f"b{i}", json.dumps({"prompt": ask}, ensure_ascii=False), now + 10 + i,
                       json.dumps({"status": status, "duration_ms": 3})))
    db.close()
    return tmp_path / "flight.db"


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_help_and_the_errors_are_those_of_a_command_line(run, program):
    name = HELP["python" if "-m" in program else "node"]
    done = run("--help")
    assert done.stdout.startswith(f"usage: {name} COMMAND") and done.stderr == ""
    for command in ("top", "tail", "report", "import", "usage", "search", "export", "doctor", "serve"):
        assert re.search(rf"^  {command} ", done.stdout, re.M)
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", run("--version").stdout)
    for words, told in [
            ([], "usage: "), (["fly"], "there is no command fly"), (["top", "--fast"], "no option --fast"),
            (["top", "x"], f"usage: {name} top"), (["search"], f"usage: {name} search TEXT"),
            (["top", "--rows", "many"], "--rows must be a number, got many"),
            (["top", "--db"], "--db needs a FILE"), (["top", "--json=1"], "no option --json=1")]:
        done = run(*words, code=2)
        assert told in done.stderr and done.stdout == ""
    assert "there is no file flight.db; name one with --db" in run("top", code=1).stderr


def test_top_shows_the_agents_and_which_one_loops(run, file):
    billing, support = sorted(objects(run("top", "--json")), key=lambda row: row["agent"])
    assert support["exchanges"] == 6 and support["tokens"] == 6 * 1010 and support["loops"] == 1
    assert support["state"] == "stopped" and "get_order 4 times" in support["why"]
    assert support["kind"] == "kill_switch" and support["cost"] == pytest.approx(6 * 0.00135)
    assert billing["exchanges"] == 2 and billing["errors"] == 1 and billing["state"] == "error"
    assert billing["cost"] is None and billing["why"] is None
    done = run("top")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["agent", "exchanges", "tokens", "cost", "loops", "errors", "last", "state"]
    assert lines[1].split()[:5] == ["support", "6", "6,060", "$0.0081", "1"]
    assert len(lines) == 3 and "\x1b" not in done.stdout and done.stderr == ""
    page = run("report", support["kind"], support["key"]).stdout
    assert page.startswith("<!doctype html>") and "get_order" in page


def test_an_agent_that_was_started_again_is_not_red(run, file):
    db = connect(file)
    db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('support', 'Ann', 'ok')")
    db.close()
    assert [row["why"] for row in objects(run("top", "--json"))] == [None, None]


def test_a_call_without_an_answer_is_open(run, file):
    """It still runs, or its program was killed in the middle of it."""
    db = connect(file)
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, timestamp) "
               "VALUES('billing', 'b2', '{\"prompt\":\"go\"}', ?)", (int(time.time() * 1000) + 1000,))
    db.close()
    assert [row["state"] for row in objects(run("top", "--json"))] == ["stopped", "open"]


def test_tail_shows_the_newest_last(run, file):
    rows = objects(run("tail", "billing", "--json"))
    assert [row["status"] for row in rows] == [200, 500] and rows[0]["asked"] == "hello"
    assert len(objects(run("tail", "--json", "-n", "1"))) == 1
    text = run("tail", "--db", file, "-n1").stdout
    assert "\x1b" not in text and "caf\xe9" in text
    assert run("tail", "nobody", code=1).stdout == ""


def test_tail_follows(program, file):
    with subprocess.Popen([*program, "tail", "-f", "--json"], text=True, cwd=file.parent,
                          stdout=subprocess.PIPE) as following:
        while json.loads(following.stdout.readline())["event"] != "b1":
            pass
        db = connect(file)
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body) "
                   "VALUES('new', 'n1', '{\"prompt\":\"x\"}', 'y')")
        assert json.loads(following.stdout.readline())["agent"] == "new"
        following.send_signal(signal.SIGINT)
        assert following.wait(10) == -signal.SIGINT
    db.close()


def test_the_pages_of_a_file_are_written_into_a_folder(run, file):
    written = re.match(r"(\d+) files written, 0 unchanged: site/index.html", run("report", "--site", "site").stderr)
    assert len(list(file.parent.glob("site/*.html"))) == int(written[1]) > 3
    assert run("report", "--site=site").stderr.startswith(f"0 files written, {written[1]} unchanged: ")
    assert "WriteError" in run("report", "--site", "no/such", code=1).stderr


def test_a_report_is_found_by_its_key(run, file):
    assert run("report").stdout.startswith("<!doctype html>")
    assert json.loads(run("report", "billing", "--json").stdout)["kind"] == "agent"
    assert "# " in run("report", "support", "--format=md").stdout
    done = run("report", "support", "-o", "case.html")
    assert done.stdout == "" and "the page is case.html" in done.stderr
    assert file.with_name("case.html").read_text().startswith("<!doctype html>")
    assert "NotFoundError: there is no agent, kill switch or conversation 'nobody'" \
        in run("report", "nobody", code=1).stderr
    db = sqlite3.connect(file)  # a page changes nothing
    assert "report" not in [row[0] for row in db.execute("SELECT domain FROM blackbox_domains")]


def test_doctor_says_what_to_do(run, file):
    rows = objects(run("doctor", "--json"))
    told = {row["what"]: (row["state"], row["value"]) for row in rows}
    assert told["journal"] == ("ok", "wal") and told["file"][1].endswith("flight.db")
    assert told["agent"][0] == "note" and "support is stopped by rule no_progress" in told["agent"][1]
    assert "core, payload" in told["domains"][1] and "bytes" in told["size"][1]
    (file.parent / "flight.db-spill-1-x.db").touch()
    assert {row["what"] for row in objects(run("doctor", "--json"))} >= {"queue"}
    db = sqlite3.connect(file)
    db.execute("DROP TRIGGER blackbox_settings_insert")
    db.commit()
    problem, = [row for row in objects(run("doctor", "--json", code=1)) if row["state"] == "problem"]
    assert problem["what"] == "blackbox_settings_insert" and "run blackbox_install()" in problem["value"]
    assert "NO" not in run("doctor", code=1, NO_COLOR="1").stderr


SESSION = "\n".join(json.dumps(line) for line in [
    {"type": "user", "sessionId": "5973b6c0-94b8-487b-a530-2aeb6098ae0e", "uuid": "u1",
     "timestamp": "2026-01-02T03:04:05.000Z", "message": {"role": "user", "content": "Why is it red?"}},
    {"type": "assistant", "sessionId": "5973b6c0-94b8-487b-a530-2aeb6098ae0e", "uuid": "u2",
     "parentUuid": "u1", "timestamp": "2026-01-02T03:04:06.000Z", "requestId": "r1", "message": {
         "id": "m1", "role": "assistant", "model": "claude-opus-4-5", "content": [
             {"type": "text", "text": "A test fails."}],
         "usage": {"input_tokens": 1000, "output_tokens": 100}}}]) + "\n"


def test_sessions_are_imported_searched_and_exported(run, tmp_path):
    folder = tmp_path / "home/.claude/projects/p"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text(SESSION)
    home = str(tmp_path / "home")
    row, = objects(run("import", "--json", HOME=home))
    assert row == {"path": "~/.claude/projects", "files": 1, "items": 2, "new": 2, "bad": 0,
                   "unknown": 0, "failed": 0}
    again, = objects(run("import", folder, "--json"))
    assert again["new"] == 0
    used, = objects(run("usage", "--json"))
    assert used["model"] == "claude-opus-4-5" and used["day"] == "2026-01-02" and used["cost"] > 0
    assert used["of"] == "conversations" and run("usage").stderr == ""
    found = objects(run("search", "TEST FAILS", "--json"))
    assert len(found) == 1 and found[0]["of"] == "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
    assert run("search", "nowhere", code=1).stdout == ""
    assert run("export").stdout.rstrip("\n") == SESSION.rstrip("\n")
    name = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
    assert "## Agent, 2026-01-02 03:04\n\nA test fails." in run("export", name, "--format", "markdown").stdout
    whole, = objects(run("export", name, "--format", "atif"))
    assert [step["message"] for step in whole["steps"]] == ["Why is it red?", "A test fails."]
    assert "resourceSpans" in objects(run("export", "--format", "otlp"))[0]
    assert "must be markdown, atif or otlp, got pdf" in run("export", "--format", "pdf", code=2).stderr
    assert run("report", "5973b6c0-94b8-487b-a530-2aeb6098ae0e").stdout.startswith("<!doctype")


def sources(path):
    db = connect(path)
    try:
        return (db.execute("SELECT path, format, size, id, error FROM rollout_sources ORDER BY 1").fetchall(),
                db.execute("SELECT id, format, item_count, source_id, cwd FROM rollouts ORDER BY 1").fetchall())
    finally:
        db.close()


@pytest.mark.parametrize("large", [False, True])
def test_an_import_reads_what_rollout_import_dir_reads(run, tmp_path, large):
    """With files of every name, in a folder that is imported at once, and in one that is divided."""
    folder = tmp_path / "s"
    for i, name in enumerate([
            "a.jsonl", "b.json", "p/c.jsonl", "p/q/.aider.chat.history.md", "p/q/d.txt", "e.jsonl.gz",
            "p/f.md", ".hidden/g.jsonl", "p/s\u202e\x1b[2J/h.jsonl"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = SESSION.replace("5973b6c0", f"5973b6c{i}")
        if name.endswith(".md"):
            text = "# aider chat started at 2026-07-17 09:00:00\n\n#### hi\n"
        (folder / name).write_text(text)
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", folder / "a.jsonl", "-o", folder / "p/z.jsonl.zst"], check=True)
    (folder / "p/settings.json").write_text('{"a setting": 1}')
    (folder / "p/empty.jsonl").write_text("")
    (folder / "p/cut.jsonl").write_text(SESSION.replace("5973b6c0", "5973b6cc") + '{"cut')
    (folder / "p/link.jsonl").symlink_to(folder / "a.jsonl")
    (folder / "p/loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.jsonl")
    if large:
        item = json.loads(SESSION.splitlines()[0])
        for i, name in enumerate(["p/large.jsonl", "r/1.jsonl", "r/2.jsonl"]):
            (folder / name).parent.mkdir(exist_ok=True)
            item["sessionId"] = f"5973b6c0-94b8-487b-a530-2aeb6098a00{i}"
            item["message"]["content"] = "x" * 9000000 * (2 if i == 0 else 1)
            (folder / name).write_text(json.dumps(item) + "\n")
    done = run("import", folder, "--json", "--db", "one.db", code=1)
    row, = objects(done)
    db = connect(tmp_path / "two.db")
    db.execute("SELECT blackbox_install('main', 'rollout')")
    told = json.loads(db.execute("SELECT rollout_import_dir(?)", (str(folder),)).fetchone()[0])
    db.close()
    assert row == {"path": str(folder), **{name: told[name] for name in list(row)[1:]}}
    assert row["files"] >= 9 + 3 * large and row["unknown"] == 1 and row["failed"] == 1
    assert sources(tmp_path / "one.db") == sources(tmp_path / "two.db")
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and "settings" not in done.stderr
    assert f"{folder}/p/cut.jsonl: 1 bad lines; line 3" in done.stderr
    assert f"{folder}/p/empty.jsonl: ValidationError: " in done.stderr
    again, = objects(run("import", folder, "--json", "--db", "one.db", code=1))
    assert again == {**row, "items": 0, "new": 0, "bad": 0}


def test_a_file_that_is_named_is_imported_whatever_its_name_is(run, tmp_path):
    (tmp_path / "notes.txt").write_text(SESSION)
    (tmp_path / "prose.md").write_text("what no format knows\n")
    assert objects(run("import", tmp_path / "notes.txt", "--json"))[0]["new"] == 2
    done = run("import", "prose.md", "none", "/dev/null", "--json", code=1)
    assert [(row["path"], row["unknown"], row["failed"]) for row in objects(done)] == [
        ("prose.md", 1, 0), ("none", 0, 1), ("/dev/null", 0, 1)]
    assert "prose.md: ValidationError: Invalid rollout file: no format" in done.stderr
    assert "none: there is no such folder or file" in done.stderr
    assert "/dev/null: ValidationError: '/dev/null' is not a folder or file" in done.stderr
    assert objects(run("import", "prose.md", "--json", code=1))[0]["unknown"] == 1


def test_the_folders_of_all_programs_are_the_default(run, tmp_path):
    home = tmp_path / "home"
    paths = json.loads((ROOT / "packages/commands.json").read_text())["commands"]["import"]["paths"]
    assert len(set(paths)) == len(paths)
    folders = [path for path in paths if path.startswith("~") and "." not in path.rsplit("/", 1)[1][1:]]
    for i, path in enumerate(folders):
        file = home / path[2:] / "x" / "a.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(SESSION.replace("5973b6c0", f"5973b6{i:02}"))
    (home / ".codex/history.jsonl").write_text('{"session_id":"s","ts":1767323045,"text":"hi"}\n')
    (tmp_path / ".aider.chat.history.md").write_text("# aider chat started at 2026-07-17 09:00:00\n\n#### hi\n")
    rows = objects(run("import", "--json", HOME=str(home)))
    assert {row["path"] for row in rows} == {*folders, "~/.codex/history.jsonl", ".aider.chat.history.md"}
    assert all(row["files"] == 1 and row["new"] >= 1 for row in rows)
    (tmp_path / "mine/sessions").mkdir(parents=True)
    (tmp_path / "mine/sessions/b.jsonl").write_text(SESSION)
    os.remove(tmp_path / ".aider.chat.history.md")
    row, = objects(run("import", "--json", HOME=str(tmp_path), CODEX_HOME=str(tmp_path / "mine")))
    assert row["path"] == str(tmp_path / "mine/sessions") and row["new"] == 2
    done = run("import", code=1, HOME=str(tmp_path / "mine"))
    assert done.stdout == "" and "name a folder or a file" in done.stderr


def test_a_database_of_sessions_is_imported(run, tmp_path):
    theirs = sqlite3.connect(tmp_path / "opencode.db")
    theirs.executescript("""
        CREATE TABLE session(id, parent_id, directory, title, time_created, time_updated);
        CREATE TABLE message(id, session_id, time_created, data);
        CREATE TABLE part(id, message_id, session_id, time_created, data);
        INSERT INTO session VALUES('s', NULL, '/w', 't', 1, 2);
        INSERT INTO message VALUES('m', 's', 1, '{"role":"user"}');
        INSERT INTO part VALUES('p', 'm', 's', 1, '{"type":"text","text":"hi"}');""")
    theirs.close()
    (tmp_path / "goose").mkdir()
    (tmp_path / "goose/sessions.db").write_text("no database, but long enough to be looked at as one" * 20)
    done = run("import", "opencode.db", "goose/sessions.db", "--json", code=1)
    rows = objects(done)
    assert rows[0]["new"] == 3 and rows[0]["failed"] == 0
    assert rows[1]["failed"] == 1 and "sessions.db: file is not a database" in done.stderr
    folder = tmp_path / ".local/share/opencode"
    folder.mkdir(parents=True)
    (tmp_path / "opencode.db").rename(folder / "opencode.db")
    for new in 3, 0:  # in a folder, too, of which rollout_import_dir() reads no database
        row, = objects(run("import", ".local", "--db", "two.db", "--json"))
        assert (row["files"], row["new"], row["failed"]) == (1, new, 0)


def test_exchanges_are_searched_and_exported(run, file):
    found = objects(run("search", "caf\xe9", "--json"))
    assert [row["of"] for row in found] == ["billing"]
    lines = objects(run("export", "billing"))
    assert [line["event_id"] for line in lines] == ["b0", "b1"] and lines[1]["meta"]["status"] == 500
    assert len(objects(run("export"))) == 8
    assert run("export", "nobody", code=1).stdout == ""
    assert [row["calls"] for row in objects(run("usage", "--json"))] == [6]


def look(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read().decode()


def test_serve_shows_the_pages_to_this_computer_alone(program, file):
    with subprocess.Popen([*program, "serve", "--port", "0"], text=True, cwd=file.parent,
                          stderr=subprocess.PIPE) as serving:
        url = re.search(r"http://127\.0\.0\.1:\d+/", serving.stderr.readline()).group()
        assert "<title>blackbox</title>" in look(url)
        agents = json.loads(look(url + "top"))
        assert {agent["agent"] for agent in agents} == {"support", "billing"}
        assert "get_order" in look(url + "report?kind=agent&key=support")
        for path, host, status in [("report?kind=agent&key=nobody", None, 404), ("none", None, 404),
                                   ("top", "evil.example:8420", 403)]:
            with pytest.raises(urllib.error.HTTPError) as raised:
                look(url + path, host)
            assert raised.value.code == status
        serving.send_signal(signal.SIGINT)
        assert serving.wait(10) == -signal.SIGINT


def on_terminal(folder, program, words, until, **env):
    """What a program writes to a terminal, until a text comes."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(env)
        os.chdir(folder)
        os.execvp(str(program[0]), [*map(str, program), *map(str, words)])
    told = b""
    deadline = time.monotonic() + 20
    while until not in told and time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                told += os.read(terminal, 65536)
            except OSError:  # it has ended
                break
    os.kill(child, signal.SIGINT)
    status = os.waitpid(child, 0)[1]
    os.close(terminal)
    return told.decode(), os.waitstatus_to_exitcode(status)


def test_on_a_terminal_top_is_live_and_red(program, file):
    told, code = on_terminal(file.parent, program, ["top"], b"\x1b[J")
    name = HELP["python" if "-m" in program else "node"]
    assert re.search(r"\x1b\[31msupport .*stopped\x1b\[0m", told)
    assert f"  {name} report kill_switch " in told and code == -signal.SIGINT
    assert max(len(re.sub(r"\x1b\[[0-9]*[A-Za-z]", "", line)) for line in told.splitlines()) <= 100
    plain, _ = on_terminal(file.parent, program, ["top"], b"\x1b[J", NO_COLOR="1")
    assert "support" in plain and "\x1b[31m" not in plain


def test_on_a_terminal_an_import_has_a_bar(program, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.jsonl").write_text(SESSION.replace("5973b6c0", f"5973b6c{i}"))
    told, _ = on_terminal(tmp_path, program, ["import", tmp_path], b"failed\r\n")
    assert "\r[........................] 0 of 1 MB " in told
    assert "\r[########################] 1 of 1 MB \x1b[K\r\n" in told
