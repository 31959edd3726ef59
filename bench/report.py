"""A page of a kill switch is made in the time that a person does not notice, and is small."""
import itertools
import json
import random

from run import Case, checkpoint, installed, limit, prose, sizes, timed

EXCHANGES = 50


def bodies(mean, shared):
    """Exchanges of so many bytes on average: a long conversation that goes on, or each alone."""
    dice = random.Random(3)

    def said(n):
        start = dice.randrange(2_000_000)
        return prose()[start:start + n]

    def asked(size):
        return [{"role": "user", "content": said(2000)} for _ in range(size // 2050)]

    head = asked(mean)
    for i, size in enumerate(itertools.islice(sizes(mean), EXCHANGES)):
        if not shared:
            head = asked(sum(size))
        elif i % 10 == 9:
            head = head[1:]
        messages = head + [{"role": "user", "content": said(400)}]
        yield (json.dumps({"model": "m", "messages": messages}),
               json.dumps({"choices": [{"message": {"content": said(400)}}]}))


def saved(folder, mean, shared):
    db = installed(folder / "agents.db")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    for i, (request, response) in enumerate(bodies(mean, shared)):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
                   " VALUES('a', ?, ?, ?, ?)", (f"e{i}", request, response, 1760000000000 + i))
    db.execute("SELECT payload_kill_switch('ring', 'a', 'k')").fetchone()
    checkpoint(db)
    return db


def read(db):
    db.execute("SELECT request_body, response_body FROM payload_rows"
               " WHERE kill_switch_event_id = 'k'").fetchall()


def beside_the_read(shared, options):
    """What a report takes more than to read the bodies."""
    def side(folder):
        db = saved(folder, 25_000, shared)
        sql = "SELECT blackbox_report('kill_switch', 'k', ?)"
        made = min(timed(lambda: db.execute(sql, (options,)).fetchone()) for _ in range(7))
        return max(made - min(timed(lambda: read(db)) for _ in range(7)), 1e-4)
    return side


def size_of_page(folder):
    """A millisecond for each kilobyte of the page."""
    db = saved(folder, 50_000, True)
    page = db.execute("SELECT blackbox_report('kill_switch', 'k')").fetchone()[0]
    return len(page.encode()) / 1e6


def conversation(folder):
    """A report of 8,000 items: questions, calls, results and answers."""
    db = installed(folder / "agents.db")
    db.execute("UPDATE blackbox_settings SET value = 'everything' WHERE name = 'rollout.policy'")
    key = "019d0000-1111-7222-8333-444455556666"
    db.execute("SELECT rollout_create(?, 'be brief')", (key,))
    for n in range(0, 2000, 250):
        db.execute("SELECT rollout_append(?, ?)", (key, json.dumps([
            {"type": "response_item", "timestamp": 1760000000000 + i * 2000, "payload": body}
            for i in range(n, n + 250) for said in [prose()[i * 300:i * 300 + 360]] for body in (
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]},
                {"type": "function_call", "call_id": f"c{i}", "name": "exec",
                 "arguments": json.dumps({"cmd": f"make step-{i}"})},
                {"type": "function_call_output", "call_id": f"c{i}", "output": f"done {i}\n{said}{said}"},
                {"type": "message", "role": "assistant",
                 "content": [{"type": "output_text", "text": said}]})])))
    return min(timed(lambda: db.execute("SELECT blackbox_report('rollout', ?)", (key,)).fetchone())
               for _ in range(3))


def agent(folder):
    """A report of 10,000 exchanges, each of which goes on for up to ten calls."""
    db = installed(folder / "agents.db")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=10000)")

    def call(n):
        return {"role": "assistant", "content": None, "tool_calls": [
            {"id": f"c{n}", "type": "function", "function": {"name": "get_order",
                                                             "arguments": json.dumps({"id": n})}}]}

    db.execute("BEGIN")
    for i in range(10_000):
        said = [{"role": "system", "content": prose()[:400]}, {"role": "user", "content": "Where is it?"}]
        for n in range(i - i % 10, i):
            said += [call(n), {"role": "tool", "tool_call_id": f"c{n}", "content": f"order {n} is sent"}]
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
                   " VALUES('a', ?, ?, ?, ?)",
                   (f"e{i}", json.dumps({"model": "m", "messages": said}),
                    json.dumps({"choices": [{"message": call(i)}]}), 1760000000000 + i))
    db.execute("COMMIT")
    return min(timed(lambda: db.execute("SELECT blackbox_report('agent', 'a')").fetchone())
               for _ in range(3))


def cases():
    return [
        Case("a page of a conversation of 8,000 items, and of 10,000 exchanges",
             {"8,000 items": conversation, "0.4 s": limit(0.4),
              "10,000 exchanges": agent, "1 s": limit(1)},
             [("8,000 items", "0.4 s", 1), ("10,000 exchanges", "1 s", 1)],
             rounds=3, note="The fastest of three."),
        Case("a page of a kill switch of 50 exchanges of 25 KB, beside the raw read",
             {"each on its own": beside_the_read(False, "{}"),
              "a conversation": beside_the_read(True, "{}"),
              "as JSON": beside_the_read(False, '{"format":"json"}'), "60 ms": limit(0.06)},
             [("each on its own", "60 ms", 1), ("a conversation", "60 ms", 1),
              ("as JSON", "60 ms", 1)],
             rounds=3, note="The fastest of seven."),
        Case("the size of a page of 50 exchanges of 50 KB, a millisecond for a kilobyte",
             {"that share their head": size_of_page, "400 KB": limit(0.4)},
             [("that share their head", "400 KB", 1)], rounds=1),
    ]
