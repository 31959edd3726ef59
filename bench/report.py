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


def cases():
    return [
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
