"""A page of a kill switch is made in the time that a person does not notice, and is small."""
import json
import random
import shutil

from run import Case, connect, timed

EXCHANGES = 50


def words(dice, n):
    """Text of about n bytes that compresses as prose does."""
    known = [dice.randbytes(dice.randint(1, 5)).hex() for _ in range(2000)]
    text = ""
    while len(text) < n:
        text += dice.choice(known) + " "
    return text[:n]


def bodies(size, shared):
    """Exchanges of so many bytes: a long conversation that goes on, or each on its own."""
    dice = random.Random(3)
    head = [{"role": "user", "content": words(dice, 2000)} for _ in range((size - 3000) // 2050)]
    for i in range(EXCHANGES):
        if not shared:
            head = [{"role": "user", "content": words(dice, size - 1000)}]
        else:
            head = head[1:] if i % 10 == 9 else head
        messages = head + [{"role": "user", "content": words(dice, 400)}]
        yield (json.dumps({"model": "m", "messages": messages}),
               json.dumps({"choices": [{"message": {"content": words(dice, 400)}}]}))


def saved(folder, size, shared):
    db = connect(folder / "agents.db")
    db.execute("SELECT blackbox_install('main', 'all')").fetchone()
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    for i, (request, response) in enumerate(bodies(size, shared)):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
                   " VALUES('a', ?, ?, ?, ?)", (f"e{i}", request, response, 1760000000000 + i))
    db.execute("SELECT payload_kill_switch('ring', 'a', 'k')").fetchone()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return db


def read(db):
    db.execute("SELECT request_body, response_body FROM payload_rows"
               " WHERE kill_switch_event_id = 'k'").fetchall()


def beside_the_read(size, shared, options):
    """What a report takes more than to read the bodies."""
    def side(folder):
        db = saved(folder, size, shared)
        sql = "SELECT blackbox_report('kill_switch', 'k', ?)"
        made = min(timed(lambda: db.execute(sql, (options,)).fetchone()) for _ in range(7))
        return max(made - min(timed(lambda: read(db)) for _ in range(7)), 1e-4)
    return side


def size_of(size, shared):
    """A millisecond for each kilobyte of the page."""
    def side(folder):
        db = saved(folder, size, shared)
        page = db.execute("SELECT blackbox_report('kill_switch', 'k')").fetchone()[0]
        shutil.rmtree(folder, ignore_errors=True)
        return len(page.encode()) / 1e6
    return side


def limit(seconds):
    return lambda folder: seconds


def cases():
    return [
        Case("a page of a kill switch of 50 exchanges of 25 KB, beside the raw read",
             {"each on its own": beside_the_read(25_000, False, "{}"),
              "a conversation": beside_the_read(25_000, True, "{}"),
              "as JSON": beside_the_read(25_000, False, '{"format":"json"}'),
              "60 ms": limit(0.06)},
             [("each on its own", "60 ms", 1), ("a conversation", "60 ms", 1),
              ("as JSON", "60 ms", 1)],
             rounds=3, note="The fastest of seven."),
        Case("the size of a page of 50 exchanges of 50 KB, a millisecond for a kilobyte",
             {"that share their head": size_of(50_000, True), "400 KB": limit(0.4)},
             [("that share their head", "400 KB", 1)], rounds=1),
    ]
