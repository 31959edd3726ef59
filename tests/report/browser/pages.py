"""pages.py MODULE FOLDER: writes a page of each kind into FOLDER, and pages.json, which says what
the browser should find in them.

The kinds are made from data of our own, so that what they say is known. If ../shared/data has
recordings (payloads.jsonl.gz, rollouts/, screenshots/), pages of these are written, too."""
import base64
import collections
import gzip
import json
import pathlib
import sqlite3
import struct
import sys
import zlib

DATA = pathlib.Path(__file__).resolve().parents[4] / "shared" / "data"
START = 1760000000000


def connect(module):
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(module))
    db.execute("SELECT blackbox_install('main', 'all')")
    return db


def ring(db, exchanges, agent="support", window=1000):
    """Pushes (request, response) and fires the switch 'loop-1' if no rule does."""
    db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={window})")
    time = START
    for n, (request, response) in enumerate(exchanges, 1):
        time += 7_200_000 if n == 6 else 1500 + n % 4 * 900
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
                   " VALUES(?, ?, ?, ?, ?)", (agent, f"e{n}", *map(text, (request, response)), time))


def text(body):
    return body if body is None or isinstance(body, (str, bytes)) else json.dumps(body, ensure_ascii=False)


def call(n, order):
    return {"role": "assistant", "content": None, "tool_calls": [{
        "id": f"c{n}", "type": "function",
        "function": {"name": "get_order", "arguments": json.dumps({"id": order})}}]}


def conversation(n, loop):
    """n exchanges of an agent that looks up orders; the last ones ask for the same."""
    messages = [{"role": "system", "content": "You help customers. " + "Be brief. " * 40},
                {"role": "user", "content": "Where are my orders?"}]
    for i in range(1, n + 1):
        order = 1042 if i > n - loop else 2000 + i
        answer = call(i, order)
        yield ({"model": "example-large", "messages": list(messages), "tools": []},
               {"choices": [{"message": answer, "finish_reason": "tool_calls"}],
                "usage": {"prompt_tokens": 300 + 40 * i, "completion_tokens": 20}})
        said = "the order 1042 is not there" if order == 1042 else f"step {i + 1}: order {order} is on its way"
        messages += [answer, {"role": "tool", "tool_call_id": f"c{i}", "content": said}]


def report(db, kind, key, **options):
    return db.execute("SELECT blackbox_report(?, ?, ?)", (kind, key, json.dumps(options))).fetchone()[0]


def kill_switch(db):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', 'kill_switch')")
    ring(db, conversation(50, 5))
    switch, = db.execute("SELECT DISTINCT kill_switch_event_id FROM event_payloads"
                         " WHERE purpose = 'evidence'").fetchone()
    page = report(db, "kill_switch", switch)
    n = read(page)["items"][-1]["n"]
    return page, {"matches": f"{n - 46} matches in {n - 46} items"}


def errors(db):
    """A tool that fails, an edit that fails, a provider that is overloaded, and what a model may write."""
    picture = base64.urlsafe_b64encode(png(8, 8, 251)).decode()
    said = ("# Title\n\nThis is **bold**, `code` and [a link](https://example.com/x).\n\n- one\n- two\n\n"
            "| a | b |\n|---|---|\n| 1 | 2 |\n")
    asked = [{"role": "user", "content": "Fix it"}]
    use = lambda n, name, args: {"type": "message", "role": "assistant", "content": [
        {"type": "tool_use", "id": f"t{n}", "name": name, "input": args}]}
    result = lambda n, text, bad=False: {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": f"t{n}", "content": text, "is_error": bad}]}
    steps = [(use(1, "Read", {"file_path": "/src/main.go"}), result(1, "one\ntwo\n")),
             (use(2, "Bash", {"command": "make test"}), result(2, "Exit code 2\nFAIL main_test.go", True)),
             (use(3, "Edit", {"file_path": "/src/main.go", "old_string": "one\ntwo\n", "new_string": "one\nTWO\nthree\n"}),
              result(3, "String to replace not found", True))]
    exchanges = []
    for answer, back in steps:
        exchanges.append(({"model": "m", "messages": list(asked)}, answer))
        asked += [{"role": "assistant", "content": answer["content"]}, back]
    asked += [{"role": "user", "content": [{"type": "text", "text": "And this?"}, {
        "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t9", "name": "Bash", "input": {"command": "ls"}}]},
        result(9, "\x1b[31mred\x1b[0m and plain")]
    exchanges.append(({"model": "m", "messages": list(asked)}, {"type": "message", "content": [{"type": "text", "text": said}]}))
    ring(db, exchanges)
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, meta, timestamp) VALUES('support', 'e8',"
               " '{\"messages\":[]}', 'ok', '{\"status\":503,\"error\":\"overloaded\",\"duration_ms\":1200}', ?)", (START + 9e6,))
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) VALUES('support', 'e9',"
               " '{\"messages\":[]}', ?, ?)", (json.dumps({"type": "error", "error": {"type": "overloaded_error",
                                                       "message": "Overloaded"}}), START + 91e5))
    return report(db, "agent", "support"), {}


def agent(db):
    ring(db, conversation(30, 0))
    return report(db, "agent", "support"), {}


def read(page):
    """The JSON of a page."""
    start = page.index('id="report">') + len('id="report">')
    return json.loads(page[start:page.index("</script>", start)])


def proof(db):
    ring(db, conversation(8, 0))
    db.execute("SELECT payload_kill_switch('ring', 'support', 'case')")
    db.execute("SELECT proof_head()")
    return report(db, "kill_switch", "case"), {}


def masked(db):
    key = "sk-ant-api03-" + "A" * 40
    ring(db, [({"messages": [{"role": "user", "content": key}]}, "noted"), ({"messages": []}, "plain")])
    db.execute("SELECT payload_kill_switch('ring', 'support', 'case')")
    db.execute("SELECT proof_head()")
    return report(db, "kill_switch", "case"), {}


def bodies(db):
    ring(db, conversation(8, 0))
    db.execute("SELECT payload_kill_switch('ring', 'support', 'case')")
    return report(db, "kill_switch", "case", items=3, bytes=4000), {}


def hostile(db):
    bad = ("</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1> "
           "[me](javascript:window.hacked=1) \u202eabc\u202c \x00 \x1b[31mred " +
           "".join(chr(0xe0000 + ord(c)) for c in "hidden words") + " a\u00adb\u3164c\u180ed\u2800e <!--<script> ]]> &lt; ${1}")
    half = '{"messages":[{"role":"user","content":' + json.dumps(bad)[:-1] + r' \ud800 half"}]}'
    image = {"type": "image_url", "image_url": {"url": "https://example.com/\"><script>window.hacked=1</script>"}}
    svg = {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9IndpbmRvdy5oYWNrZWQ9MSIvPg=="}}
    ring(db, [
        (half, {"choices": [{"message": {"role": bad, "content": bad, "tool_calls": [
            {"id": bad, "function": {"name": bad, "arguments": json.dumps({bad: bad, "__proto__": bad})}}]}}]}),
        ({"messages": [{"role": "user", "content": "x" * 10_000_000}]}, "\n" * 100_000),
        ({"messages": [{"role": "user", "content": [image, svg, {"type": bad, "text": bad}]}], "system": bad}, bad),
        (b"\xff\xfe\x00 not text", b"\x00" * 1000),
        ("[" * 5000 + "]" * 5000, "data: {\"choices\":[{\"delta\":" + "{\"a\":" * 3000),
        ('{"messages":[{"role":"user","content":' + "[" * 60_000 + "]" * 60_000 + "}]}", "[" * 60_000 + "]" * 60_000),
        ({"messages": {"role": "user"}, "tools": 7, "system": [[[]]]}, {"choices": 1, "output": {"message": []}, "content": "x"}),
        ({"messages": [None, 1, [], {"role": {}, "content": {"a": 1}, "tool_calls": {"id": 1}}] + [
            {"role": role, "content": "said"} for role in ("constructor", "__proto__", "toString")]},
         {"choices": [None, {"message": 1}], "candidates": [{}], "output": [None]}),
    ], agent=bad.replace("\x00", ""))
    db.execute("SELECT payload_kill_switch('ring', ?, 'case')", (bad.replace("\x00", ""),))
    return report(db, "kill_switch", "case"), {}


def stream(*events, named=False):
    return "".join((f"event: {e['type']}\n" if named else "") + f"data: {json.dumps(e)}\n\n" for e in events)


def formats(db):
    """One exchange of each wire format; what each says."""
    tool = {"type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}, "id": "c1"}
    ask = {"messages": [{"role": "user", "content": "How is the weather?"}]}
    delta = [{"choices": [{"index": 0, "delta": d}]} for d in (
        {"role": "assistant", "content": "Let me "}, {"content": "look."},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "weather", "arguments": "{\"city\":"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "\"Oslo\"}"}}]})]
    blocks = [{"type": "message_start", "message": {"content": []}},
              {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
              {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Let me look."}},
              {"type": "content_block_start", "index": 1,
               "content_block": {"type": "tool_use", "id": "t1", "name": "weather", "input": {}}},
              {"type": "content_block_delta", "index": 1,
               "delta": {"type": "input_json_delta", "partial_json": "{\"city\":\"Oslo\"}"}}]
    items = [{"type": "response.output_text.delta", "output_index": 0, "delta": "Let me "},
             {"type": "response.output_text.delta", "output_index": 0, "delta": "look."},
             {"type": "response.output_item.done", "output_index": 1, "item": {
                 "type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\":\"Oslo\"}"}}]
    parts = [{"candidates": [{"content": {"role": "model", "parts": p}}]} for p in (
        [{"text": "Let me "}], [{"text": "look."}], [{"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}])]
    said = ["Let me look.", "weather", "Oslo"]
    made = [
        (ask, {"choices": [{"message": {"role": "assistant", "content": "Let me look.", "tool_calls": [tool]}}]}),
        (ask, stream(*delta) + "data: [DONE]\n\n"),
        (ask, "\n".join(map(json.dumps, delta))),
        ({"instructions": "be kind", "input": "How is the weather?"}, {"output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
            items[2]["item"]]}),
        ({"instructions": "be kind", "input": [{"role": "user", "content": [
            {"type": "input_text", "text": "How is the weather?"}]}]}, stream(*items, named=True)),
        ({"system": "be kind", **ask}, {"content": [
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}]}),
        ({"system": "be kind", **ask}, stream(*blocks, named=True)),
        ({"systemInstruction": {"parts": [{"text": "be kind"}]}, "contents": [
            {"role": "user", "parts": [{"text": "How is the weather?"}]}]}, {"candidates": [{"content": {
                "role": "model", "parts": [{"text": "Let me look."},
                                           {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}]}}]}),
        ({"contents": [{"role": "user", "parts": [{"text": "How is the weather?"}]}]}, stream(*parts)),
        ({"messages": [{"role": "user", "content": [{"text": "How is the weather?"}]}]},
         {"output": {"message": {"role": "assistant", "content": [
             {"text": "Let me look."}, {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Oslo"}}}]}}}),
    ]
    ring(db, made)
    db.execute("SELECT payload_kill_switch('ring', 'support', 'case')")
    return report(db, "kill_switch", "case"), {"formats": {str(n): said for n in range(1, len(made) + 1)}}


def talk(db):
    """A conversation of 12 turns with calls and a compaction. Returns its id."""
    rid = "019d0000-1111-7222-8333-444455556666"
    items = []
    for turn in range(12):
        items += [("event_msg", {"type": "user_message", "message": f"question {turn}"}),
                  ("response_item", {"type": "message", "role": "user",
                                     "content": [{"type": "input_text", "text": f"question {turn}"}]}),
                  ("response_item", {"type": "function_call", "call_id": f"c{turn}", "name": "exec",
                                     "arguments": json.dumps({"cmd": f"make step-{turn}"})}),
                  ("response_item", {"type": "function_call_output", "call_id": f"c{turn}", "output": f"done {turn}"}),
                  ("event_msg", {"type": "token_count", "info": {"total": turn}}),
                  ("response_item", {"type": "message", "role": "assistant",
                                     "content": [{"type": "output_text", "text": f"answer {turn}"}]})]
        if turn == 7:
            items.append(("compacted", {"message": "the compacted summary", "replacement_history": []}))
    db.execute("SELECT rollout_create(?, 'be brief')", (rid,))
    db.execute("SELECT rollout_append(?, ?)", (rid, json.dumps([
        {"type": kind, "payload": payload, "timestamp": START + n * 2000} for n, (kind, payload) in enumerate(items)])))
    return rid


def rollout(db):
    return report(db, "rollout", talk(db)), {}


def fork(db):
    rid = db.execute("SELECT rollout_fork(?, 3)", (talk(db),)).fetchone()[0]
    db.execute("SELECT rollout_append(?, ?)", (rid, json.dumps([
        {"type": "event_msg", "payload": {"type": "user_message", "message": "another way"}},
        {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}])))
    return report(db, "rollout", rid), {}


def large(db):
    """10,000 items of a conversation."""
    rid = "019d0000-1111-7222-8333-444455556666"
    db.execute("UPDATE blackbox_settings SET value = 'everything' WHERE name = 'rollout.policy'")
    db.execute("SELECT rollout_create(?, 'be brief')", (rid,))
    items = [{"type": "response_item", "timestamp": START + n * 700, "payload": {
        "type": "message", "role": "user" if n % 10 == 0 else "assistant",
        "content": [{"type": "output_text", "text": f"needle {n} " + "and so on " * (n % 50)}]}} for n in range(1, 10_000)]
    db.execute("SELECT rollout_append(?, ?)", (rid, json.dumps(items)))
    page = report(db, "rollout", rid)
    return page, {"needle": f"i{read(page)['items'][0]['n'] + 7777}"}


def png(width, height, shade):
    """A picture of one colour with a lighter band."""
    rows = b"".join(b"\0" + bytes([shade if y // 40 % 3 else 230, 120, 255 - shade]) * width for y in range(height))
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def action(n):
    kind = ["navigate", "click", "type", "scroll"][n % 4]
    return {"id": f"a{n}", "timestamp": START + n * 4000, "eventType": kind,
            "value": "https://example.com/orders" if kind == "navigate" else "lamp" if kind == "type" else None,
            "domData": {"selector": "#save", "tagName": "BUTTON", "innerText": "Save", "x": 380, "y": 198,
                        "boundingRect": {"x": 320, "y": 180, "width": 120, "height": 36}},
            "fallbackChain": {"primaryStrategy": "dom_selector", "strategies": [
                {"type": "cdp_semantic", "confidence": 0.95, "metadata": {"role": "button", "name": "Save"}},
                {"type": "dom_selector", "confidence": 0.85, "selector": "#save"},
                {"type": "coordinates", "confidence": 0.6, "metadata": {"x": 380, "y": 198}}]}}


def evidence(db, pictures=None):
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    for n in range(1, 19):
        shot = None if n % 5 == 0 else pictures[n % len(pictures)] if pictures else png(800, 500, n * 12)
        db.execute("INSERT INTO rec(action, screenshot) VALUES(?, ?)", (json.dumps(action(n)), shot))
    return report(db, "evidence", "rec"), {}


def session(db):
    sid = "conv_00000000-0000-4000-8000-000000000001"
    for n in range(12):
        db.execute("SELECT cache_write(?, NULL, NULL, ?, ?)", (
            sid, json.dumps({"row": n, "rows": list(range(n * 20))}), f"the rows of step {n}"))
    return report(db, "session", sid), {}


def database(db):
    ring(db, conversation(20, 0))
    db.execute("SELECT payload_kill_switch('ring', 'support', 'case')")
    db.execute("SELECT rollout_create(NULL, 'be brief')")
    return report(db, "database", "main"), {}


def recorded_agent(db, name):
    """The agent with the most exchanges, of those whose names begin so."""
    found = collections.defaultdict(list)
    with gzip.open(DATA / "payloads.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["agent_id"].startswith(name):
                found[row["agent_id"]].append((row["request"], row["response"]))
    ring(db, max(found.values(), key=len))
    db.execute("SELECT payload_kill_switch('ring', 'support', 'case')")
    return report(db, "kill_switch", "case"), {}


def recorded_rollout(db, pattern):
    file = max(DATA.glob(pattern), key=lambda path: path.stat().st_size)
    body = gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()
    made = json.loads(db.execute("SELECT rollout_import(?)", (body,)).fetchone()[0])
    return report(db, "rollout", made["rolloutId"]), {}


KINDS = {"kill_switch": kill_switch, "errors": errors, "agent": agent, "rollout": rollout, "fork": fork, "evidence": evidence, "session": session,
         "database": database, "formats": formats, "proof": proof, "masked": masked, "bodies": bodies, "hostile": hostile, "large": large}
PLAIN = {"fork", "bodies", "formats", "proof", "masked", "hostile", "large"}


def recorded():
    """The pages of recordings, if there are any."""
    if not (DATA / "payloads.jsonl.gz").exists():
        return {}
    shots = [path.read_bytes() for path in sorted(DATA.glob("screenshots/*.png"))]
    made = {"recorded-evidence": lambda db: evidence(db, shots)}
    for name in ("codex", "claude-code", "tau-bench", "pydantic-ai", "swe-agent", "ui-tars", "openllmetry"):
        made[f"recorded-{name}"] = lambda db, name=name: recorded_agent(db, name)
    for name in ("codex", "claude"):
        made[f"recorded-rollout-{name}"] = lambda db, name=name: recorded_rollout(db, f"rollouts/{name}/*")
    return made


def main(module, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for name, make in {**KINDS, **recorded()}.items():
        page, said = make(connect(module))
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        pages.append({"name": name, "items": len(read(page)["items"]), "picture": name not in PLAIN, **said})
    db = connect(module)
    database(db)
    db.execute("SELECT blackbox_report_site(?)", (str(folder / "site"),)).fetchone()
    (folder / "pages.json").write_text(json.dumps(pages, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
