#!/usr/bin/env python3
"""otlp.py FILE: takes OTLP over HTTP on this machine, and writes it to FILE, a database with blackbox.

One POST is one import, in one transaction, and its answer comes after the commit. Spans and log records become
conversations. Bodies that Claude Code tells (OTEL_LOG_RAW_API_BODIES) become exchanges of the archive, whose agent_id
is the session. A body in a file is read only below the folder of --bodies. Metrics are taken, and dropped.

It speaks JSON, also with gzip, and no Protobuf. It needs Python's own library, and the module.
"""
import argparse
import contextlib
import hashlib
import http.server
import json
import pathlib
import re
import sqlite3
import threading
import zlib

MOST = 64 << 20  # bytes of a POST, as it is and unpacked, and of a file with a body
BODIES = ("api_request_body", "api_response_body")
OPEN = ("SELECT id FROM event_payloads WHERE agent_id = ?1 AND json_valid(meta) AND request_body IS NOT NULL "
        "AND response_body IS NULL AND (event_id = ?2 OR ?2 IS NULL AND meta ->> 'query_source' IS ?3 "
        "AND meta ->> 'prompt_id' IS ?4) ORDER BY rowid DESC LIMIT 1")
SENT = "SELECT 1 FROM event_payloads WHERE agent_id = ? AND json_valid(meta) AND meta ->> 'request_id' = ?"
PUT = ("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, purpose, meta) "
       "SELECT ?1, ?2, ?3, ?4, 'archive', ?5 WHERE NOT EXISTS (SELECT 1 FROM event_payloads WHERE event_id = ?1)")


def body_of(said, folder):
    """The text of a body, or None."""
    if "body" in said or not said.get("body_ref") or not folder:
        return said.get("body")
    path = pathlib.Path(said["body_ref"]).resolve()
    if folder not in path.parents or not path.is_file() or path.stat().st_size > MOST:
        return None
    return path.read_text("utf-8", "replace")


def request_of(said, folder):
    """The name of the file with the request that a response in a file answers, if the index has it."""
    index = folder and folder / "index.jsonl"
    name = pathlib.Path(said.get("body_ref", "")).name
    for line in reversed(index.read_text("utf-8").splitlines() if name and index and index.is_file() else []):
        if name in line and pathlib.Path(json.loads(line).get("response_file", "")).name == name:
            return pathlib.Path(json.loads(line)["request_file"]).name
    return None


def written(db, text):
    """What the setting payload.secrets makes of a body: without rules nobody can tell what is a secret."""
    how, = db.execute("SELECT value FROM blackbox_settings WHERE name = 'payload.secrets'").fetchone()
    if how == "keep":
        return text
    rules = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'blackbox_secrets'").fetchone() and db.execute(
        "SELECT 1 FROM blackbox_secrets LIMIT 1").fetchone()
    masked, = db.execute("SELECT blackbox_mask(?)", (text,)).fetchone() if rules else ("",)
    if masked == text or masked and how == "mask":
        return masked
    found = sorted(set(re.findall(r"\[masked: ([^]]*)\]", masked)) - set(re.findall(r"\[masked: ([^]]*)\]", text)))
    return json.dumps({"dropped": "sha256:" + hashlib.sha256(text.encode()).hexdigest(),
                       "bytes": len(text.encode()), "found": found})


def put_body(db, kind, said, folder):
    """A request becomes a row of the archive, which its response completes."""
    session, text = str(said.get("session.id", "unknown")), body_of(said, folder)
    name = pathlib.Path(said.get("body_ref", "")).name or ":".join(
        (session, str(said.get("event.sequence")), hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]))
    meta = {"source": "otlp", "model": said.get("model"), "query_source": said.get("query_source"),
            "prompt_id": said.get("prompt.id"), "request_id": said.get("request_id") or (name if kind != BODIES[0] else ""),
            "truncated": str(said.get("body_truncated", "")).lower() == "true",
            "error": text is None and f"the body in {said.get('body_ref')} cannot be read; is --bodies its folder?"}
    told = json.dumps({key: value for key, value in meta.items() if value})
    text = None if text is None else written(db, text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    if kind == BODIES[0]:
        return db.execute(PUT, (name, session, text, None, told))
    if db.execute(SENT, (session, meta["request_id"])).fetchone():
        return None
    row = db.execute(OPEN, (session, request_of(said, folder), said.get("query_source"),
                            said.get("prompt.id"))).fetchone()
    if row is None:
        return db.execute(PUT, (name, session, None, text, told))
    return db.execute("UPDATE event_payloads SET response_body = ?, meta = json_patch(meta, ?) WHERE id = ?",
                      (text, told, *row))


def take_bodies(db, told, folder):
    """Moves bodies to the archive. Returns whether anything else is there."""
    left = bool(told.get("resourceSpans"))
    for scope in (s for r in told.get("resourceLogs", []) for s in r.get("scopeLogs", [])):
        records, scope["logRecords"] = scope.get("logRecords", []), []
        for record in records:
            said = {a["key"]: next(iter(a["value"].values()), None) for a in record.get("attributes", [])}
            said["time"] = record.get("timeUnixNano")
            kind = str(said.get("event.name") or record.get("body", {}).get("stringValue", "")).split(".")[-1]
            if kind in BODIES:
                put_body(db, kind, said, folder)
            else:
                scope["logRecords"].append(record)
        left = left or bool(scope["logRecords"])
    return left


class Receiver(http.server.BaseHTTPRequestHandler):
    timeout = 30

    def body(self):
        size = lambda: int(self.rfile.readline(100).split(b";")[0], 16)  # of a chunk
        whole, chunked = bytearray(), self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        n = size() if chunked else int(self.headers.get("Content-Length") or 0)
        while n:
            if not 0 < n <= MOST - len(whole):
                raise ValueError("the body is larger than 64 MB, or has no length")
            whole += self.rfile.read(n)
            n = chunked and self.rfile.readline(100) and size()
        if self.headers.get("Content-Encoding") == "gzip":
            unpack = zlib.decompressobj(31)
            whole = unpack.decompress(whole, MOST)
            if not unpack.eof:
                raise ValueError("the body is cut off, or larger than 64 MB")
        return whole

    def do_POST(self):
        code, why = 200, None
        try:
            if self.headers.get_content_type() != "application/json":
                code, why = 415, "send JSON: set OTEL_EXPORTER_OTLP_PROTOCOL=http/json; Protobuf is not read here"
            else:
                told = json.loads(self.body())
                with self.server.lock, self.server.db as db:  # who sends slowly, or nothing, lets others pass
                    db.execute("BEGIN IMMEDIATE")
                    if take_bodies(db, told, self.server.bodies):
                        report, = db.execute("SELECT rollout_import(?)", (json.dumps(told) + "\n",)).fetchone()
                        if json.loads(report)["bad"]:
                            raise ValueError(report)
                    elif not {"resourceSpans", "resourceLogs", "resourceMetrics"} & set(told):
                        raise ValueError("it has no spans, log records or metrics")
        except sqlite3.OperationalError as error:
            code, why = 503, str(error)  # the sender tries again
        except (ValueError, TypeError, KeyError, AttributeError, OSError, zlib.error, RecursionError,
                sqlite3.Error) as error:
            code, why = 400, f"{type(error).__name__}: {error}"
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"message": why} if why else {}).encode())

    def log_message(self, form, *args):
        if args[1:2] != ("200",):
            super().log_message(form, *args)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("file")
    args.add_argument("--port", type=int, default=4318, help="of the loopback; 0: any")
    args.add_argument("--bodies", type=lambda path: pathlib.Path(path).resolve(), help="the folder of bodies in files")
    args.add_argument("--module", help="its path; the default is beside this program, or where a package puts it")
    args = args.parse_args()
    db = sqlite3.connect(args.file, isolation_level=None, timeout=5, check_same_thread=False)
    db.enable_load_extension(True)
    beside = pathlib.Path(__file__).resolve().parent.parent / "blackbox"
    db.load_extension(args.module or (str(beside) if list(beside.parent.glob("blackbox.so")) else "blackbox"))
    db.execute("SELECT blackbox_install('main', 'payload,rollout')").fetchone()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Receiver)
    server.db, server.bodies, server.lock = db, args.bodies, threading.Lock()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
