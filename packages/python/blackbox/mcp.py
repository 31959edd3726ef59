"""python -m blackbox.mcp [FILE [RING]]: a server of the Model Context Protocol.

It speaks JSON-RPC in lines, on standard input and output, and has five tools that read a file.

- Nothing is written: the file is opened with mode=ro, query_only is on, and an argument is bound
  to a statement and never a part of one.
- Keys and passwords are masked by the module before a text is searched or cut, so that no half of
  a key is shown and no search tells what a key is. A text that cannot be masked is not shown.
- A line, an argument, an answer and the time of a call have bounds.
"""
import datetime
import json
import os
import pathlib
import sqlite3
import sys
import time

import blackbox
from blackbox import quoted
from blackbox.file import Failure, File

VERSIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]  # of the protocol
LINE = 1_000_000  # bytes of a request
ANSWER = 100_000  # characters of an answer
BODY = 1_000_000  # characters of a body that are looked at
TAIL = 5_000  # the end of a longer one, in which a key may be cut
SHOWN = 4_000  # characters of a text that are shown
FOUND = 300  # texts that a search looks at
SECONDS = 10.0  # for a call

EXCHANGE = ("SELECT {} AS at, {} AS n, agent_id AS agent, event_id AS event, "
            f"substr(request_body, 1, {BODY}) AS request, "
            f"substr(response_body, 1, {BODY}) AS response, meta FROM {{}}")
ITEM = ("SELECT timestamp AS at, 0 AS n, rollout AS conversation, "
        f"substr(payload, 1, {BODY}) AS text FROM rollout_items")


class Refused(Exception):
    """What is wrong with a request: its text goes to the client."""


class Reader(File):
    """The file, which no statement changes, and a database in memory that masks texts."""

    until = float("inf")

    def __init__(self, path, ring):
        super().__init__({"db": path, "ring": ring, "rows": None})
        self.allow_reports()
        self.db.execute("PRAGMA query_only = 1")
        self.db.set_progress_handler(lambda: time.monotonic() > self.until, 10_000)
        self.memory = blackbox.load(sqlite3.connect(":memory:", isolation_level=None))
        self.memory.execute("SELECT blackbox_install('main', 'report')").fetchone()

    def connect(self):
        uri = pathlib.Path(self.path).absolute().as_uri() + "?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=5, isolation_level=None)

    def mask(self, text):
        """A text as a report shows it: with names in the place of keys."""
        masked, = self.memory.execute("SELECT blackbox_mask(?)", (text,)).fetchone()
        return masked[:-TAIL] if len(text) >= BODY else masked

    def plain(self, row):
        """A row as an answer may have it, but for the length of its texts."""
        row.pop("n", None)  # the order within a millisecond
        for name, value in row.items():
            if name in ("at", "last") and isinstance(value, int):
                row[name] = datetime.datetime.fromtimestamp(
                    value / 1000, datetime.timezone.utc).isoformat(timespec="milliseconds")
            elif isinstance(value, bytes):
                row[name] = f"[{len(value):,} bytes that are no text]"
            elif isinstance(value, str) and value:
                row[name] = self.mask(value)
        return row

    def newest(self, sql, where, values):
        cursor = self.db.execute(
            f"SELECT * FROM ({sql}) WHERE {where} ORDER BY at DESC, n DESC LIMIT :count", values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]

    def exchanges(self, where, **values):
        """The newest exchanges of the ring and of the archive, each once."""
        found = {}
        sources = [("timestamp", "seq", quoted(self.options["ring"]))] * self.has_ring
        for source in sources + [("created_ms", "0", "payload_rows")]:
            if "payload" in self.domains:
                for row in self.newest(EXCHANGE.format(*source), where, values):
                    found.setdefault((row["agent"], row["event"]), row)
        newest = sorted(found.values(), key=lambda row: (row["at"] or 0, row["n"]), reverse=True)
        return newest[:values["count"]]


# ------------------------------------------------------------------ the tools


def list_agents(file):
    return [file.plain(row) for row in file.rows("top")]


def recent_exchanges(file, agent, limit=5):
    return [file.plain(row) for row in file.exchanges("agent = :agent", agent=agent, count=limit)]


def search(file, text, limit=10):
    """Masks what has the text, and finds it again: what was masked is no match."""
    has = "instr(lower({0}), lower(:text))".format
    rows = file.exchanges(has("request") + " OR " + has("response"), text=text, count=FOUND)
    if "rollout" in file.domains:
        rows += file.newest(ITEM, has("text"), {"text": text, "count": FOUND})
    found = []
    for row in rows:
        if len(found) < limit:
            row = file.plain(row)
            bodies = {name: row.pop(name, None) for name in ("request", "response", "text")}
            for name, body in bodies.items():
                at = (body or "").lower().find(text.lower())
                if at >= 0:
                    found.append({**row, "in": name, "around": body[max(0, at - 100):at + 300]})
    return found[:limit]


def usage(file, limit=30):
    return [file.plain(row) for _, row in zip(range(limit), file.rows("usage"))]


def report(file, key):
    for row in file.rows("report", key=key):
        return "".join(file.page(row["kind"], row["key"], "md"))
    raise Refused(f"nothing is named {key!r}; list_agents names the agents")


TEXT = {"type": "string", "minLength": 1, "maxLength": 1000}
LIMIT = {"type": "integer", "minimum": 1, "maximum": 50}
TOOLS = {  # name: function, what it does, its arguments, of which limit may be left out
    "list_agents": (
        list_agents, "The agents with their exchanges, tokens, cost, loops and errors, "
        "and whether each is stopped, and why.", {}),
    "recent_exchanges": (
        recent_exchanges, "The newest requests of an agent to a model, with the responses.",
        {"agent": TEXT, "limit": LIMIT}),
    "search": (
        search, "Finds a text in exchanges and in conversations.", {"text": TEXT, "limit": LIMIT}),
    "usage": (usage, "Tokens and cost by day and model.", {"limit": LIMIT}),
    "report": (
        report, "What happened, as Markdown: of an incident (a kill switch), an agent, "
        "a conversation or a session, by its id.", {"key": TEXT}),
}


def required(arguments):
    return [name for name in arguments if name != "limit"]


def described():
    return [{"name": name, "description": what,
             "inputSchema": {"type": "object", "properties": arguments,
                             "required": required(arguments), "additionalProperties": False},
             "annotations": {"readOnlyHint": True, "openWorldHint": False}}
            for name, (_, what, arguments) in TOOLS.items()]


def check(arguments, allowed):
    """Refuses what inputSchema does not allow."""
    if not isinstance(arguments, dict):
        raise Refused("arguments must be an object")
    for name in required(allowed):
        if name not in arguments:
            raise Refused(f"the argument {name} is missing")
    for name, value in arguments.items():
        if name not in allowed:
            raise Refused(f"there is no argument {name!r:.100}")
        if allowed[name] is LIMIT and not (type(value) is int and 1 <= value <= 50):
            raise Refused(f"{name} must be an integer from 1 to 50")
        if allowed[name] is TEXT:
            if not (isinstance(value, str) and 1 <= len(value) <= 1000):
                raise Refused(f"{name} must be a text of 1 to 1000 characters")
            if any("\ud800" <= c <= "\udfff" for c in value):
                raise Refused(f"{name} must be Unicode, without half a character")


def shortened(answer):
    """The text of an answer: as many rows as fit, with texts of SHOWN characters."""
    if isinstance(answer, str):
        return answer if len(answer) <= ANSWER else answer[:ANSWER] + "\n[the rest is left out]"
    lines, size = [], 0
    for row in answer:
        for name, value in row.items():
            if isinstance(value, str) and len(value) > SHOWN:
                row[name] = value[:SHOWN] + "..."
        lines.append(json.dumps(row, ensure_ascii=False))
        size += len(lines[-1])
        if size > ANSWER:
            lines[-1] = "[the rest is left out]"
            break
    return "\n".join(lines) or "[nothing]"


def call(file, params):
    """The result of a tool. What goes wrong is a result, too, which a model can read."""
    name = params.get("name")
    if not isinstance(name, str) or name not in TOOLS:
        raise Refused(f"there is no tool {name!r:.100}")
    act, _, allowed = TOOLS[name]
    arguments = params.get("arguments") or {}
    try:
        check(arguments, allowed)
        file.until = time.monotonic() + SECONDS
        text, failed = shortened(act(file, **arguments)), False
    except (Refused, Failure, sqlite3.Error, LookupError, ValueError) as error:
        text, failed = file.mask(f"{type(error).__name__}: {error}"[:1000]), True
    finally:
        file.until = float("inf")
    return {"content": [{"type": "text", "text": text}], "isError": failed}


# ------------------------------------------------------------------ the protocol


def answer(file, method, params):
    if method == "initialize":
        asked = params.get("protocolVersion")
        version, = file.db.execute("SELECT blackbox_version()").fetchone()
        return {"protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "blackbox", "version": version}}
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": described()}
    if method == "tools/call":
        return call(file, params)
    return None


def reply(file, line):
    """What is sent for a line, or None: notifications and answers have none."""
    number = None

    def error(code, text):
        return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}

    try:
        request = json.loads(line)
    except (ValueError, RecursionError):
        return error(-32700, f"this is no JSON, or longer than {LINE} bytes")
    if not isinstance(request, dict) or not isinstance(request.get("method"), str):
        done = isinstance(request, dict) and ("result" in request or "error" in request)
        return None if done else error(-32600, "this is no request of JSON-RPC")
    if "id" not in request:
        return None
    if isinstance(request["id"], (str, int)):
        number = request["id"]
    try:
        params = request.get("params") or {}
        if not isinstance(params, dict):
            raise Refused("params must be an object")
        result = answer(file, request["method"], params)
    except Refused as refused:
        return error(-32602, str(refused))
    if result is None:
        return error(-32601, "there is no such method")
    return {"jsonrpc": "2.0", "id": number, "result": result}


def lines(source):
    """The lines of a stream. One that is too long is read to its end, and is no JSON then."""
    while line := source.readline(LINE):
        if len(line) == LINE and not line.endswith(b"\n"):
            while (rest := source.readline(LINE)) and not rest.endswith(b"\n"):
                pass
            line = b"{"
        if line.strip():
            yield line


def main(words):
    path = words[0] if words else os.environ.get("BLACKBOX_DB") or "flight.db"
    try:
        file = Reader(path, words[1] if len(words) > 1 else "ring")
    except Failure as failure:
        sys.exit(f"python -m blackbox.mcp: {failure}")
    for line in lines(sys.stdin.buffer):
        told = reply(file, line)
        if told is not None:
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)
