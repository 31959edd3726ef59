"""Conversations: append, history, pages, clean-up, resume and fork, each compared with its
alternative. Databases with many rows are made once."""
import atexit
import gzip
import itertools
import json
import os
import pathlib
import resource
import shutil
import statistics
import tempfile
import uuid

from run import Case, connect, timed

DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="rollout-bench-"))
atexit.register(shutil.rmtree, FOLDER, True)
MADE = {}


def payload(i):
    """A message of about 1 KB."""
    text = f'{i}: some "quoted" words, a path /usr/lib and a letter \u00e9\n' * 16
    return {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": text}]}


TEXTS = [json.dumps(payload(i), separators=(",", ":")) for i in range(10)]
ITEMS = "[" + ",".join(
    '{"type":"response_item","payload":%s}' % text for text in TEXTS) + "]"
USERS = ITEMS.replace('"role":"assistant"', '"role":"user"')
USER = '{"type":"event_msg","payload":{"type":"user_message","message":"do it"}}'


def fresh(name):
    """A connection to a new database with the rollout domain."""
    db = connect(FOLDER / name)
    db.execute("SELECT blackbox_install('main', 'rollout')")
    return db


def create(db, *more):
    return db.execute(
        "SELECT rollout_create(NULL, NULL, ?)", more or (60,)).fetchone()[0]


def once(name, make):
    """What make(name) returns, made at the first use."""
    if name not in MADE:
        MADE[name] = make(name)
    return MADE[name]


def per_call(call, times):
    """Median seconds of one call."""
    return statistics.median(timed(call) for _ in range(times))


# ------------------------------------------------------------------ append

# The table with which an append is compared.
PLAIN = """CREATE TABLE items(id INTEGER PRIMARY KEY, rollout TEXT, sequence INTEGER,
  timestamp INTEGER, type TEXT, payload TEXT, UNIQUE(rollout, sequence))"""


def append_ours(items, times=200):
    def make(name):
        db = fresh(name)
        return db, create(db)

    def side(_folder):
        db, rollout = once(f"append{len(items)}", make)
        return per_call(lambda: db.execute(
            "SELECT rollout_append(?, ?)", (rollout, items)).fetchall(), times)
    return side


def append_plain(_folder):
    def make(name):
        db = connect(FOLDER / name)
        db.execute(PLAIN)
        return db, str(uuid.uuid4()), [0]
    db, rollout, last = once("plain", make)

    def ten():
        db.execute("BEGIN")
        for text in TEXTS:
            db.execute(
                "INSERT INTO items(rollout, sequence, timestamp, type, payload) "
                "VALUES(?,?,?,?,?)",
                (rollout, last[0], 1700000000000, "response_item", text))
            last[0] += 1
        db.execute("COMMIT")
    return per_call(ten, 200)


def append_jsonl(folder):
    lines = [
        '{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item",'
        '"payload":%s}\n' % text for text in TEXTS]
    with open(folder / "rollout.jsonl", "a") as out:
        def ten():
            for line in lines:
                out.write(line)
            out.flush()
            os.fsync(out.fileno())
        return per_call(ten, 50)


def session_items():
    """The items of a recorded Codex session that the policy keeps, as JSON texts."""
    text = recorded("codex")
    lines = text.decode().splitlines()[1:401] if text else []
    db = fresh("kept") if lines else None
    rollout = create(db) if lines else None
    return [line for line in lines
            if db.execute("SELECT rollout_append(?, ?)", (rollout, line)).fetchone()[0]]


def mix_ours(items):
    def side(_folder):
        db = once("mix", fresh)
        rollout = create(db)
        return timed(lambda: [db.execute("SELECT rollout_append(?, ?)", (rollout, item)).fetchall()
                              for item in items])
    return side


def mix_plain(items):
    def make(name):
        db = connect(FOLDER / name)
        db.execute(PLAIN)
        return db

    def side(_folder):
        db = once("mixplain", make)
        rollout = str(uuid.uuid4())
        return timed(lambda: [db.execute(
            "INSERT INTO items(rollout, sequence, timestamp, type, payload) VALUES(?,?,?,?,?)",
            (rollout, i, 1700000000000, "response_item", item))
            for i, item in enumerate(items)])
    return side


def mix_cases():
    items = session_items()
    return [Case(
        f"rollout: append of {len(items)} items of a recorded session, one by one",
        {"rollout_append": mix_ours(items), "INSERTs": mix_plain(items)},
        [("rollout_append", "INSERTs", 1.3)], rounds=9,
        note="Each item is a call, and a transaction, of its own, as an agent writes them. The "
             "other side inserts the same texts without reading them.",
        why="A call checks the JSON, applies the policy, reads what the item says, and keeps the "
            "counters: this costs as much for one item as for ten.")] if items else []


# ----------------------------------------------------------------- history

def long_one(name, items):
    """A database with one conversation of that many items of 1 KB, a tenth of them user
    messages."""
    db = fresh(name)
    rollout = create(db)
    batch = ITEMS[:-1].rsplit(',{"type":"response_item"', 1)[0] + "," + USER + "]"
    db.execute("BEGIN")
    for _ in range(items // 10):
        db.execute("SELECT rollout_append(?, ?)", (rollout, batch))
    db.execute("COMMIT")
    return db, rollout


def history(sql):
    def side(_folder):
        db, rollout = once("history", lambda name: long_one(name, 1000))
        return per_call(lambda: db.execute(sql, (rollout,)).fetchall(), 20)
    return side


def history_raw(_folder):
    db, _ = once("history", lambda name: long_one(name, 1000))
    return per_call(lambda: db.execute(
        "SELECT id, timestamp, type, payload FROM rollout_data "
        "WHERE id BETWEEN 1 << 32 AND (1 << 32) + 4294967295 ORDER BY id"
    ).fetchall(), 20)


# ------------------------------------------------------- many conversations

def many(rollouts, ordered=False):
    """Ids are random, or in order of time."""
    scatter = "" if ordered else "* 2654435761 % 4294967296"

    def make(name):
        db = fresh(name)
        db.execute("BEGIN")
        db.execute(
            "WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO rollouts(id, created, expires_at, status) "
            f"SELECT printf('%08x-0000-4000-8000-%012x', i {scatter}, i), "
            "1700000000000 + i, 'permanent', 'active' FROM n", (rollouts,))
        db.execute(
            "INSERT INTO rollout_log(rollout_id, type, payload, timestamp) "
            "SELECT id, 'event_msg', '{\"type\":\"user_message\","
            "\"message\":\"hello\"}', created FROM rollout_heads")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint")
        return db
    return lambda: once(f"many{rollouts}{ordered}", make)


def page(rollouts):
    def side(_folder):
        db = many(rollouts)()
        cursor = db.execute(
            "SELECT updated || '|' || id FROM rollout_heads "
            "ORDER BY updated DESC LIMIT 1 OFFSET 500").fetchone()[0]
        return per_call(lambda: db.execute(
            "SELECT rollout_page(50, ?)", (cursor,)).fetchall(), 50)
    return side


def cleanup(rollouts, ordered=False):
    def side(_folder):
        db = many(rollouts, ordered)()
        db.execute("BEGIN")
        for i in range(100):
            name = f"{rollouts + i:08x}-0000-4000-9000-{i:012x}" if ordered else None
            db.execute("SELECT rollout_append(rollout_create(?,NULL,0,NULL,1),"
                       "?, 1)", (name, ITEMS))
        db.execute("COMMIT")
        return timed(lambda: db.execute(
            "SELECT rollout_cleanup_expired()").fetchall())
    return side


# ---------------------------------------------------------- resume and fork

def resume(items):
    def side(_folder):
        db, rollout = once(f"long{items}", lambda name: long_one(name, items))
        return per_call(lambda: db.execute(
            "SELECT rollout_resume(?)", (rollout,)).fetchall(), 200)
    return side


def fork(items):
    def side(_folder):
        db, rollout = once(f"fork{items}", lambda name: long_one(name, items))
        last = items // 10 - 1
        return per_call(lambda: db.execute(
            "SELECT rollout_fork(?, ?)", (rollout, last)).fetchall(), 50)
    return side


# ------------------------------------------------------------------ import

def recorded(kind):
    """The largest recorded session of a program, or None."""
    folder = DATA / "rollouts" / kind
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    texts = [gzip.open(f).read() if f.suffix == ".gz" else f.read_bytes() for f in files]
    return max(texts, key=len, default=None)


def import_ours(text):
    """Each time under another id, and with other messages, so that all of it is new."""
    def side(_folder):
        db, number = once(f"import{len(text)}", lambda name: (fresh(name), itertools.count()))

        def one_more():
            new = text.replace(b"msg_", b"m%d_" % next(number))
            return timed(lambda: db.execute(
                "SELECT rollout_import(?, ?)", (new, str(uuid.uuid4()))).fetchall())
        return statistics.median(one_more() for _ in range(5))
    return side


def import_plain(text):
    """json.loads of each line, and one INSERT of it."""
    def read_all(db):
        db.execute("BEGIN")
        for i, line in enumerate(text.split(b"\n")):
            try:
                kind = json.loads(line)["type"]
            except ValueError:
                kind = "?"
            db.execute("INSERT INTO items(sequence, type, payload) VALUES(?,?,?)",
                       (i, kind, line.decode()))
        db.execute("COMMIT")

    def make(name):
        db = connect(FOLDER / name)
        db.execute("CREATE TABLE items(id INTEGER PRIMARY KEY, sequence INTEGER, "
                   "type TEXT, payload TEXT)")
        return db

    def side(_folder):
        db = once(f"lines{len(text)}", make)
        return per_call(lambda: read_all(db), 5)
    return side


def import_cases():
    return [
        Case(f"rollout: import of a {kind} file of {len(text) / 1e6:.1f} MB",
             {"rollout_import": import_ours(text), "json.loads and INSERT": import_plain(text)},
             [("rollout_import", "json.loads and INSERT", 1.3)], rounds=5,
             note="A recorded session. The other side parses each line in Python and inserts it. "
                  "The import also derives turns, titles and usage, and keeps every byte.")
        for kind, text in (("codex", recorded("codex")), ("claude", recorded("claude"))) if text]


# ------------------------------------------------------ a thousand sessions

def sessions():
    """The recorded sessions, with the id that each has."""
    found = []
    for kind in ("codex", "claude"):
        folder = DATA / "rollouts" / kind
        for f in sorted(folder.iterdir()) if folder.is_dir() else []:
            text = gzip.open(f).read() if f.suffix == ".gz" else f.read_bytes()
            found.append((text, f.name.split(".")[0][-36:].encode()))
    return found


def peak():
    """The most memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def thousand(name):
    """1,000 sessions, made of the recorded ones under new ids, and what the imports took."""
    db, parts = fresh(name), sessions()
    before, seconds = peak(), 0
    for i in range(1000):
        text, old = parts[i % len(parts)]
        new = str(uuid.uuid4()).encode()
        text = text.replace(old, new).replace(b"msg_", b"m" + new[:8])
        seconds += timed(lambda: db.execute("SELECT rollout_import(?)", (text,)).fetchall())
    return db, seconds, peak() - before


def thousand_takes(sql):
    def side(_folder):
        db, _, _ = once("thousand", thousand)
        return per_call(lambda: db.execute(sql).fetchall(), 20)
    return side


def thousand_cases():
    if not sessions():
        return []
    return [Case(
        "rollout: 1,000 recorded sessions",
        {"list": thousand_takes("SELECT * FROM rollout_list(50)"),
         "usage by day": thousand_takes("SELECT * FROM rollout_usage_days"),
         "50 ms": target(.05),
         "MB of memory": lambda _folder: once("thousand", thousand)[2],
         "100 MB": target(100),
         "import": lambda _folder: once("thousand", thousand)[1]},
        [("list", "50 ms", 1), ("usage by day", "50 ms", 1), ("MB of memory", "100 MB", 1)],
        rounds=1,
        note="About 0.9 GB: the recorded sessions under new ids, each imported by a call of its "
             "own. The memory is what the process needs for that beyond what it had before; here a "
             "second stands for a megabyte.")]


# --------------------------------------------------- the document's targets

def target(seconds):
    return lambda _folder: seconds


def timed_create(_folder):
    db = once("create", fresh)
    return per_call(lambda: create(db), 50)


def timed_flush(_folder):
    db, rollout = once("flush", lambda name: long_one(name, 10))

    def change():
        db.execute("SELECT rollout_append(?, ?)", (rollout, ITEMS)).fetchall()

    def flush():
        db.execute("SELECT rollout_flush(?)", (rollout,)).fetchall()
    times = []
    for _ in range(20):
        change()
        times.append(timed(flush))
    return statistics.median(times)


def cases():
    return [
        Case("rollout: append of 10 items of 1 KB",
             {"rollout_append": append_ours(ITEMS), "ten INSERTs": append_plain,
              "JSONL and fsync": append_jsonl},
             [("rollout_append", "ten INSERTs", 1.15),
              ("rollout_append", "JSONL and fsync", 0.6)], rounds=9,
             note="The plain table has UNIQUE(rollout, sequence). The ten INSERTs run in one "
                  "transaction. All sides survive a crash of the process. The JSONL file also "
                  "survives a power failure.",
             why="An append also checks the JSON, applies the policy and keeps "
                 "the conversation's counters. Without the trigger that keeps the order of "
                 "the items it would take 0.95."),
        Case("rollout: append of 10 user messages of 1 KB",
             {"rollout_append": append_ours(USERS),
              "ten INSERTs": append_plain},
             [("rollout_append", "ten INSERTs", 1.3)], rounds=9,
             note="Each message begins a turn, which is a row of its own. A call moves the "
                  "conversation in the index of the list unless its items are of the same "
                  "millisecond as the newest one, as most of them are here.",
             why="With the index of the list in each call it is 0.05 more. The trigger that "
                 "keeps the order of the items without the module takes a fifth of an append. "
                 "The plain table has its index instead."),
        *mix_cases(),
        *import_cases(),
        *thousand_cases(),
        Case("rollout: history of 1,000 items of 1 KB",
             {"rollout_range": history("SELECT * FROM rollout_range(?)"),
              "rollout_items": history(
                  "SELECT sequence, timestamp, type, payload "
                  "FROM rollout_items WHERE rollout = ?"),
              "rollout_history": history("SELECT rollout_history(?)"),
              "raw SELECT": history_raw},
             [("rollout_items", "raw SELECT", 1.2),
              ("rollout_range", "raw SELECT", None),
              ("rollout_history", "raw SELECT", 1.5)], rounds=9),
        Case("rollout: a page of 50",
             {"100,000 there": page(100000), "1,000 there": page(1000)},
             [("100,000 there", "1,000 there", 1.2)]),
        Case("rollout: clean-up of 100 expired, ids in order of time",
             {"100,000 there": cleanup(100000, True),
              "1,000 there": cleanup(1000, True)},
             [("100,000 there", "1,000 there", 1.2)], rounds=15,
             note="The ids are UUIDs of version 7, which Codex uses."),
        Case("rollout: clean-up of 100 expired, random ids",
             {"100,000 there": cleanup(100000), "1,000 there": cleanup(1000)},
             [("100,000 there", "1,000 there", 1.2)], rounds=15,
             note="The ids are UUIDs of version 4. Among 100,000, each has a page of its own "
                  "in the index of the ids, which must be read and written.",
             why="The index of random ids has each row on a page of its own, in every design."),
        Case("rollout: resume",
             {"100,000 items": resume(100000), "100 items": resume(100)},
             [("100,000 items", "100 items", 1.2)]),
        Case("rollout: fork at the last turn",
             {"10,000 items": fork(10000), "10 items": fork(10)},
             [("10,000 items", "10 items", 2.0)]),
        Case("rollout: absolute targets",
             {"create": timed_create, "resume": resume(100),
              "append": append_ours(ITEMS), "flush": timed_flush, "page": page(1000),
              "history": history("SELECT rollout_history(?)"),
              "clean-up": cleanup(1000),
              "500 ms": target(.5), "200 ms": target(.2),
              "100 ms": target(.1), "50 ms": target(.05)},
             [("create", "100 ms", 1), ("resume", "100 ms", 1),
              ("append", "50 ms", 1), ("flush", "100 ms", 1),
              ("page", "200 ms", 1), ("history", "200 ms", 1),
              ("clean-up", "500 ms", 1)], rounds=3,
             note="The targets are: create and resume in 100 ms, 10 items in 50 ms, a flush in "
                  "100 ms, a page of 50 in 200 ms, 1,000 items in 200 ms, 100 expired in 500 "
                  "ms. The medians below are the measured times."),
    ]
