"""The server of the Model Context Protocol, through its process: five tools that only read, with
keys masked. node/mcp.test.mjs has the client of the protocol's own SDK."""
import hashlib
import importlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from conftest import ROOT, connect

KEY = "sk-ant-api03-" + "A1b2C3d4" * 5
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "packages/python")}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "flight.db"
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("SELECT blackbox_install('main', 'payload,rollout')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push = ("INSERT INTO ring(agent_id, event_id, request_body, response_body, meta, timestamp) "
            "VALUES(?, ?, ?, ?, ?, ?)")
    told = json.dumps({"model": "claude-3", "usage": {"input_tokens": 10, "output_tokens": 2}})
    db.execute(push, ("coder", "e1", f"use {KEY} for the parcel", told, '{"status":200}', 1760000000000))
    db.execute("SELECT payload_kill_switch('ring', 'coder', 'incident-7')")
    db.execute(push, ("coder", "e2", "a second parcel", "done", None, 1760000001000))
    db.execute(push, ("writer", "e3", b"\xff\x00", "x" * 2_000_000, None, 1760000002000))
    return path


class Server:
    def __init__(self, path, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "blackbox.mcp", path, *words], env=ENV, cwd=path.parent,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self, text):
        self.process.stdin.write((text if isinstance(text, bytes) else text.encode()) + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, method, **params):
        told = self.line(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        assert told["jsonrpc"] == "2.0" and told["id"] == 1
        return told

    def tool(self, name, **arguments):
        result = self.ask("tools/call", name=name, arguments=arguments)["result"]
        part, = result["content"]
        return result["isError"], part["text"]


@pytest.fixture
def server(file):
    server = Server(file)
    yield server
    server.process.stdin.close()
    assert server.process.wait(20) == 0, server.process.stderr.read()
    assert server.process.stderr.read() == b""


def rows(server, name, **arguments):
    failed, text = server.tool(name, **arguments)
    assert not failed, text
    return [] if text == "[nothing]" else [json.loads(line) for line in text.splitlines()]


def test_it_says_what_it_is_and_has_five_tools_that_read(server):
    told = server.ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={})["result"]
    assert (told["protocolVersion"], told["serverInfo"]["name"]) == ("2025-06-18", "blackbox")
    newest = server.ask("initialize", protocolVersion="2099-01-01")["result"]["protocolVersion"]
    assert newest != "2099-01-01"
    tools = server.ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == [
        "list_agents", "recent_exchanges", "search", "usage", "report"]
    assert all(tool["annotations"]["readOnlyHint"] for tool in tools)
    assert server.ask("ping")["result"] == {}


def test_each_tool_answers(server):
    assert [(row["agent"], row["exchanges"]) for row in rows(server, "list_agents")] == [
        ("writer", 1), ("coder", 2)]
    newest, oldest = rows(server, "recent_exchanges", agent="coder")
    assert (newest["event"], newest["request"], newest["at"]) == (
        "e2", "a second parcel", "2025-10-09T08:53:21.000+00:00")
    assert oldest["request"] == "use [masked: Anthropic key] for the parcel"
    assert len(rows(server, "recent_exchanges", agent="coder", limit=1)) == 1
    assert rows(server, "recent_exchanges", agent="nobody") == []
    assert [row["event"] for row in rows(server, "search", text="PARCEL")] == ["e2", "e1"]
    assert rows(server, "usage") == []  # no exchange with tokens is in the ring any more
    failed, text = server.tool("report", key="incident-7")
    assert not failed and text.startswith("# Kill switch incident") and "masked" in text


def test_a_key_is_never_told_and_never_searched(server):
    answers = [server.tool("recent_exchanges", agent="coder"), server.tool("report", key="incident-7"),
               server.tool("report", key="coder"), server.tool("search", text="parcel"),
               server.tool("report", key=KEY), server.tool("list_agents")]
    assert [text for _, text in answers if KEY[:16] in text] == []
    for part in (KEY, KEY[:20], KEY[20:]):
        assert rows(server, "search", text=part) == []


def test_what_is_long_or_no_text_is_cut_or_named(server):
    row, = rows(server, "recent_exchanges", agent="writer")
    assert row["request"] == "[2 bytes that are no text]"
    assert row["response"] == "x" * 4000 + "..."


def test_a_key_that_is_cut_by_a_bound_is_not_shown(file, server):
    """The end of a long body, in which a key may be cut, is not searched."""
    db = connect(file)
    body = "y " * 499_980 + "needle " + KEY  # the bound is in the key
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('long', 'e9', ?)", (body,))
    assert rows(server, "search", text="needle") == []
    assert rows(server, "search", text="y y y")[0]["event"] == "e9"


HOSTILE = ["' OR 1=1 --", "\"; DROP TABLE event_payloads; --", "\0", "%", "x" * 1000, "../../etc/passwd",
           "{ring}", "{}", ":key", "load_extension('x')", "\u202e", "case-1'); SELECT payload_clear_archive(); --"]


def test_hostile_arguments_are_values(file, server):
    before = hashlib.sha256(b"".join(
        p.read_bytes() for p in (file, pathlib.Path(f"{file}-wal")))).hexdigest()
    for text in HOSTILE:
        for name, argument in (("recent_exchanges", "agent"), ("search", "text"), ("report", "key")):
            failed, told = server.tool(name, **{argument: text})
            assert failed == (name == "report"), told
    assert before == hashlib.sha256(b"".join(
        p.read_bytes() for p in (file, pathlib.Path(f"{file}-wal")))).hexdigest()
    db = connect(file)
    assert db.execute("SELECT count(*) FROM event_payloads").fetchone() == (1,)


@pytest.mark.parametrize("name, arguments, said", [
    ("search", {}, "text is missing"), ("search", {"text": 1}, "text must be"),
    ("search", {"text": ""}, "text must be"), ("search", {"text": "x" * 1001}, "text must be"),
    ("search", {"text": "\ud800"}, "half a character"), ("search", {"text": ["x"]}, "text must be"),
    ("search", {"text": "x", "limit": 51}, "from 1 to 50"), ("search", {"text": "x", "limit": 0}, "from 1 to 50"),
    ("search", {"text": "x", "limit": True}, "from 1 to 50"), ("search", {"text": "x", "limit": "1"}, "from 1 to 50"),
    ("search", {"text": "x", "sql": "y"}, "no argument 'sql'"), ("list_agents", {"db": "x"}, "no argument 'db'"),
])
def test_arguments_outside_the_schema_are_refused(server, name, arguments, said):
    failed, text = server.tool(name, **arguments)
    assert failed and said in text


@pytest.mark.parametrize("line, code", [
    ("{", -32700), (b"\xff\xfe", -32700), ("[" * 100_000, -32700), ("x" * 3_000_000, -32700),
    ("[]", -32600), ("1", -32600), ('{"id":1}', -32600), ('{"id":1,"method":2}', -32600),
    ('{"id":1,"method":"tools/write"}', -32601), ('{"id":1,"method":"ping","params":[1]}', -32602),
    ('{"id":1,"method":"tools/call","params":{"name":"drop"}}', -32602),
    ('{"id":1,"method":"tools/call","params":{"name":["x"]}}', -32602),
])
def test_a_line_that_is_wrong_gets_an_error_and_the_next_an_answer(server, line, code):
    assert server.line(line)["error"]["code"] == code
    assert server.ask("ping")["result"] == {}


def test_notifications_and_answers_get_no_answer(server):
    server.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n\n'
                               b'{"jsonrpc":"2.0","id":5,"result":{}}\n')
    assert server.ask("ping")["result"] == {}


@pytest.fixture
def mcp(monkeypatch):
    """The module, beside which other tests have their own copy of the package."""
    def ours():
        return [name for name in sys.modules if name.split(".")[0] == "blackbox"]

    for name in ours():
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(ROOT / "packages/python"))
    yield importlib.import_module("blackbox.mcp")
    for name in ours():
        del sys.modules[name]


def test_no_connection_of_the_server_can_write(file, mcp):
    reader = mcp.Reader(str(file), "ring")
    for sql in ("DELETE FROM event_payloads", "CREATE TABLE x(y)", "INSERT INTO ring(agent_id, event_id) "
                "VALUES('a', 'b')", "SELECT payload_extract('ring', 'coder')"):
        with pytest.raises(sqlite3.Error):
            reader.db.execute(sql).fetchall()
    reader.db.execute("PRAGMA query_only = 0")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.db.execute("DELETE FROM event_payloads")


@pytest.mark.parametrize("body", [
    "plain", " ", "\n\n", "{", '{"messages":[{"role":"user","content":"a\\nb"}]}',
    "data: {\"x\":1}\n\ndata: [DONE]\n\n",
    "[1,2,3]", "null", '"text"', "ä\u202e\U0001f600\ufffe", "<script>&amp;", "-----BEGIN", "a" * 100_000,
    '{"a":{"b":[{"c":"' + "d" * 5000 + '"}]}}'])
def test_a_text_without_a_key_is_shown_as_it_is(file, mcp, body):
    assert mcp.Reader(str(file), "ring").mask(body) == body


def test_it_reads_while_others_write_and_are_killed(file, server):
    """Answers come while another connection holds the lock, and after a writer was killed."""
    db = connect(file)
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('coder', 'e5', 'not yet')")
    assert rows(server, "recent_exchanges", agent="coder")[0]["event"] == "e2"
    db.execute("COMMIT")
    assert rows(server, "recent_exchanges", agent="coder")[0]["event"] == "e5"
    writer = subprocess.Popen([sys.executable, "-c", (
        "import blackbox, sys\n"
        "db = blackbox.open(sys.argv[1])\n"
        "for i in range(10**9):\n"
        "    db.execute(\"INSERT INTO ring(agent_id, event_id) VALUES('killed', ?)\", (f'k{i}',))\n"
        "    print(i, flush=True)"), file], env=ENV, stdout=subprocess.PIPE, cwd=file.parent)
    for _ in range(20):
        last = writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert int(rows(server, "recent_exchanges", agent="killed")[0]["event"][1:]) >= int(last)


def test_a_file_that_is_not_there_or_no_database_is_told(tmp_path):
    (tmp_path / "no.db").write_text("this is no database" * 100)
    for name, said in (("none.db", b"there is no file"), ("no.db", b"not a database")):
        server = Server(tmp_path / name)
        _, told = server.process.communicate(timeout=20)
        assert server.process.returncode == 1 and said in told and b"Traceback" not in told
