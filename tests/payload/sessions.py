"""Sessions of agents as exchanges: recorded ones, and loops made here. Each is a list of
(request, response, timestamp in milliseconds), with the bodies as text."""
import datetime
import gzip
import json


def recorded(data):
    """{name: exchanges} of all recordings: what went over the wire, and transcripts of agents,
    whose requests are put together again."""
    sessions = {}
    for line in gzip.open(data / "payloads.jsonl.gz"):
        row = json.loads(line)
        response = row["response"]
        sessions.setdefault("payloads " + row["agent_id"], []).append((
            json.dumps(row["request"]),
            response if isinstance(response, str) else json.dumps(response), time_of(row["ts"])))
    for path in sorted((data / "rollouts").glob("*/*.jsonl*")):
        opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path)
        with opened as lines:
            read = codex if path.parent.name == "codex" else claude
            sessions[f"rollouts {path.name[:40]}"] = list(read(values(lines)))
    return sessions


def values(lines):
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def time_of(text):
    return int(datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def codex(rows):
    """A request of each step has what is new, as with previous_response_id."""
    asked, said, at = [], [], 0
    for row in rows:
        item = row.get("payload") or {}
        if row.get("type") != "response_item":
            continue
        output = item.get("type", "").endswith("_output") or item.get("role") in ("user", "developer")
        if output and said:
            yield exchange_of_items(asked, said, at)
            asked, said = [], []
        (asked if output else said).append(item)
        at = time_of(row["timestamp"])
    if said:
        yield exchange_of_items(asked, said, at)


def exchange_of_items(asked, said, at):
    return (json.dumps({"input": asked}),
            json.dumps({"object": "response", "output": said}), at)


def claude(rows):
    """The main chain; a request has the last messages of the conversation."""
    messages, said, said_id, at = [], [], None, 0
    for row in rows:
        message = row.get("message")
        if row.get("type") not in ("user", "assistant") or row.get("isSidechain") or not message:
            continue
        if said and (row["type"] == "user" or message.get("id") != said_id):
            yield exchange_of_messages(messages, said, at)
            messages.append({"role": "assistant", "content": said})
            said = []
        at = time_of(row["timestamp"])
        if row["type"] == "user":
            messages.append({"role": "user", "content": message["content"]})
        else:
            said, said_id = said + message["content"], message.get("id")
    if said:
        yield exchange_of_messages(messages, said, at)


def exchange_of_messages(messages, said, at):
    return (json.dumps({"messages": messages}),
            json.dumps({"type": "message", "content": said}), at)


# ---- loops


def chat(calls, gap=1000, user="Do it."):
    """A conversation in which call i is calls[i]: (tool, arguments, result)."""
    messages = [{"role": "user", "content": user}]
    for i, (tool, arguments, result) in enumerate(calls):
        said = {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"call_{i}", "type": "function",
             "function": {"name": tool, "arguments": json.dumps(arguments)}}]}
        yield (json.dumps({"model": "m", "messages": messages}),
               json.dumps({"choices": [{"message": said}],
                           "usage": {"prompt_tokens": 100, "completion_tokens": 10}}), i * gap)
        messages += [said, {"role": "tool", "tool_call_id": f"call_{i}", "content": result}]
    yield (json.dumps({"model": "m", "messages": messages}),
           json.dumps({"choices": [{"message": {"role": "assistant", "content": "done"}}]}),
           len(calls) * gap)


def cycle(block, length=14):
    return [(f"tool_{'ABCDEFGH'[i % block]}", {"x": i % block}, f"result {'abcdefgh'[i % block]}")
            for i in range(length)]


LOOPS = {
    "exact": cycle(1),
    "ABAB": cycle(2),
    "ABCABC": cycle(3),
    "ABCDABCD": cycle(4),
    "same error": [("f", {"x": 1}, f"Error: no file, try {'abcdefghijklmnop'[i]}")
                   for i in range(14)],
    "clock in the result": [("date", {}, f"12:00:{i:02d} 2026-01-31 pid {7000 + i}")
                            for i in range(14)],
    "id in the result": [("run", {"c": 1}, f"session 0f8fad5b-d9cb-469f-a165-7086772895{i:02x} runs")
                         for i in range(14)],
    "clocks, ABAB": [("ab"[i % 2], {}, f"at 12:{i:02d}") for i in range(14)],
}
