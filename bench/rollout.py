"""Conversations: append, history, pages, clean-up, resume and fork, each compared with its
alternative. Databases with many rows are made once."""
import collections
import datetime
import gzip
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
import uuid

from run import ANEW, DATA, ROOT, Case, checkpoint, connect, installed, limit, once, plain, prose
from run import timed, ways, writes


def create(db):
    return db.execute("SELECT rollout_create(NULL, NULL, 60)").fetchone()[0]


def per_call(call, times):
    """Median seconds of one call."""
    return statistics.median(timed(call) for _ in range(times))


# ------------------------------------------------------------------- items

# An item is (kind, type, payload as JSON text).


def message(i, role="assistant", size=1000):
    """A message of about that size."""
    text = f'{i}: some "quoted" words, a path /usr/lib and a letter \u00e9\n' * (size // 62)
    return "message", "response_item", json.dumps(
        {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]},
        separators=(",", ":"))


def varied(role):
    """Endless messages of 1 KB on average."""
    dice = random.Random(1)
    return (message(i, role, dice.randint(200, 1800)) for i in itertools.count())


USED = {"input_tokens": 84211, "cached_input_tokens": 81920, "output_tokens": 412,
        "reasoning_output_tokens": 128, "total_tokens": 84623}
# What a recording of 7,594 items consists of: how many of a kind are among 100 of the most
# common ones, the median of their bytes, and what they are.
MADE = [
    ("function_call", 19, 269, "response_item", {"name": "shell", "call_id": "c", "arguments": ""}),
    ("function_call_output", 19, 615, "response_item", {"call_id": "c", "output": ""}),
    ("token_count", 18, 478, "event_msg", {"info": {
        "total_token_usage": USED, "last_token_usage": USED, "model_context_window": 258400},
        "rate_limits": {"limit_id": "codex", "plan_type": "team"}}),
    ("message", 13, 327, "response_item", {"role": "assistant", "content": ""}),
    ("reasoning", 11, 48, "response_item", {"content": None, "summary": []}),
    ("agent_message", 9, 318, "event_msg", {"message": "", "phase": "commentary"}),
    ("exec_command_end", 9, 931, "event_msg", {"call_id": "c", "aggregated_output": ""}),
    ("user_message", 2, 157, "event_msg", {"message": "", "images": []}),
]


def sessions(kind):
    """The recorded sessions of a program, the largest first: (text, file name)."""
    folder = DATA / "rollouts" / kind
    found = [(gzip.open(f).read() if f.suffix == ".gz" else f.read_bytes(), f.name)
             for f in (folder.iterdir() if folder.is_dir() else [])]
    return sorted(found, key=lambda one: -len(one[0]))


def session():
    """The items of a recorded session, in order, or such as are made up."""
    for text, _ in sessions("codex")[:1]:
        lines = [json.loads(line) for line in text.decode().splitlines()[1:1800]]
        return [(line["payload"].get("type", line["type"]), line["type"],
                 json.dumps(line["payload"], ensure_ascii=False, separators=(",", ":")))
                for line in lines]
    dice, found = random.Random(1), []
    kinds = [one for one in MADE for _ in range(one[1])]
    for kind, _, size, top, fields in dice.choices(kinds, k=1800):
        start = dice.randrange(2_000_000)
        text = prose()[start:start + int(size * dice.lognormvariate(0, 1))]
        payload = {"type": kind, **{k: text if v == "" else v for k, v in fields.items()}}
        if kind == "message":
            payload["content"] = [{"type": "output_text", "text": text}]
        found.append((kind, top, json.dumps(payload, separators=(",", ":"))))
    return found


# ------------------------------------------------------------------ append

START = 1_780_000_000_000
ROLLOUT = "019d0000-1111-7222-8333-444455556666"
OURS = f"INSERT INTO rollouts(id, expires_at) VALUES('{ROLLOUT}', 'permanent')"
# The table with which an append is compared.
PLAIN = """CREATE TABLE items(id INTEGER PRIMARY KEY, rollout TEXT NOT NULL,
  sequence INTEGER NOT NULL, timestamp INTEGER NOT NULL, type TEXT NOT NULL, payload TEXT,
  CHECK (typeof(timestamp) = 'integer' AND timestamp BETWEEN 0 AND 253402300799999),
  CHECK (typeof(type) = 'text' AND length(CAST(type AS BLOB)) BETWEEN 1 AND 100),
  CHECK (payload IS NULL OR (typeof(payload) = 'text'
         AND length(CAST(payload AS BLOB)) <= 67108864)),
  UNIQUE(rollout, sequence))"""
APPEND = f"SELECT rollout_append('{ROLLOUT}', ?)"
INSERT = ("INSERT INTO items(rollout, sequence, timestamp, type, payload) "
          f"VALUES('{ROLLOUT}',?,?,?,?)")


def line(at, item):
    """An item as a line of a session file."""
    time = datetime.datetime.fromtimestamp(at / 1000, datetime.timezone.utc)
    return '{"timestamp":"%s.%03dZ","type":"%s","payload":%s}' % (
        time.strftime("%Y-%m-%dT%H:%M:%S"), at % 1000, *item[1:])


def rows(items, form):
    """What begins rows of the items, again and again, each a second after the one before."""
    return lambda: (form(i, START + i * 1000, item)
                    for i, item in enumerate(itertools.cycle(items)))


def as_line(_, at, item):
    return (line(at, item),)


def as_columns(_, at, item):
    return (at, *item[1:])


def as_row(i, at, item):
    return (i, at, *item[1:])


def tens(items, form):
    def begin():
        source = rows(items, form)()
        while True:
            yield list(itertools.islice(source, 10))
    return begin


def ten_lines(items):
    """What begins arrays of ten items."""
    return lambda: (("[" + ",".join(one for one, in ten) + "]",)
                    for ten in tens(items, as_line)())


def ten_inserts(db, ten):
    db.execute("BEGIN")
    db.executemany(INSERT, ten)
    db.execute("COMMIT")


def jsonl(items, each):
    """Seconds of a sync of so many lines."""
    def side(folder):
        source = rows(items, as_line)()
        with open(folder / "rollout.jsonl", "a") as out:
            def put():
                for one, in itertools.islice(source, each):
                    out.write(one + "\n")
                out.flush()
                os.fsync(out.fileno())
            return timed(lambda: [put() for _ in range(20)]) / 20
    return side


def ten_case(what, items, limit_plain, limit_jsonl=None, **more):
    return Case(
        f"rollout: append of 10 items, {what}",
        {"rollout_append": writes(OURS, APPEND, ten_lines(items), calls=1000),
         "ten INSERTs": writes(PLAIN, ten_inserts, tens(items, as_row), False, calls=1000),
         "JSONL and fsync": jsonl(items, 10)},
        [("rollout_append", "ten INSERTs", limit_plain),
         ("rollout_append", "JSONL and fsync", limit_jsonl)], rounds=9, **more)


def one_case(items):
    return Case(
        "rollout: append of the items of a recorded session, one by one",
        {"rollout_append": writes(OURS, APPEND, rows(items, as_line), calls=2000),
         "INSERTs": writes(PLAIN, INSERT, rows(items, as_row), False, calls=2000),
         "JSONL and fsync": jsonl(items, 1)},
        [("rollout_append", "INSERTs", 1.5), ("rollout_append", "JSONL and fsync", None)],
        rounds=9,
        note="Each item is a call, and a transaction, of its own, as an agent writes them. The "
             "INSERTs put the same texts without reading them.",
        why="The rows that an item needs, written again by statements prepared once, take 1.6 "
            "times the instructions of an INSERT: 4.5 pages are written, and not 3. Reading the "
            "JSON and what it says takes 0.6 more, and the savepoint of the call, its lock, and "
            "the look whether others have changed anything 0.4.")


INDEXED = PLAIN + ";CREATE VIRTUAL TABLE texts USING fts5(text, tokenize = 'trigram')"


WORDED = PLAIN + ";CREATE VIRTUAL TABLE texts USING fts5(text, whole, content = '')"


def indexed_insert(db, row):
    db.execute("BEGIN")
    db.execute(INSERT, row)
    db.execute("INSERT INTO texts(rowid, text) VALUES(?,?)", (row[0], row[3]))
    db.execute("COMMIT")


def worded_insert(items):
    """The same, with an index as that of the search over the same texts, of FTS5 alone."""
    db, said, last = once("worded", installed), [], 0
    db.executescript(OURS)
    for row in itertools.islice(rows(items, as_line)(), len(items)):
        db.execute(APPEND, row).fetchall()
        new = db.execute("SELECT n, text FROM rollout__said WHERE n > ?", (last,)).fetchall()
        last = new[-1][0] if new else last
        said.append([text for _, text in new])
    number = itertools.count(1)

    def put(db, row):
        db.execute("BEGIN")
        db.execute(INSERT, row)
        for text in said[row[0] % len(items)]:
            db.execute("INSERT INTO texts(rowid, text) VALUES(?,?)", (next(number), text))
        db.execute("COMMIT")
    return put


def search_case(items):
    return Case(
        "rollout: append of the items of a recorded session, one by one, with the search",
        {"rollout_append": writes(OURS + ";SELECT rollout_search_install()", APPEND,
                                  rows(items, as_line), calls=1000),
         "INSERTs": writes(PLAIN, INSERT, rows(items, as_row), False, calls=1000),
         "INSERTs, and their payloads in FTS5": writes(
             INDEXED, indexed_insert, rows(items, as_row), False, calls=1000),
         "INSERTs, and their texts in FTS5": writes(
             WORDED, worded_insert(items), rows(items, as_row), False, calls=1000)},
        [("rollout_append", "INSERTs", 3),
         ("INSERTs, and their texts in FTS5", "INSERTs", None),
         ("rollout_append", "INSERTs, and their payloads in FTS5", 1)],
        rounds=9,
        note="The index has the words of what users, assistants and tools said. An append puts "
             "8 texts into it together; the other sides put each at once.",
        why="An append without the search takes 1.8 times as long as an INSERT. FTS5 takes 1.4 "
            "INSERTs more to write the words of the texts, to merge its segments a few pages at "
            "a time, and for its own pages.")


def kinds_case(items):
    """Each pass through a session gives the median of every kind of item."""
    def kind_sides(open_, ddl, sql, form):
        found, key = {}, object()

        def make(path):
            db = open_(path)
            db.executescript(ddl)
            return db, rows(items, form)()

        def go(db, source):
            found.clear()
            for item, row in zip(items, source):
                found.setdefault(item[0], []).append(
                    timed(lambda: db.execute(sql, row).fetchall()))
            checkpoint(db)

        def side(kind):
            def run_side(_folder):
                if kind not in found:  # the first kind of a turn
                    go(*once(key, make))
                return statistics.median(found.pop(kind))
            return run_side
        return side

    ours = kind_sides(installed, OURS, APPEND, as_line)
    theirs = kind_sides(plain, PLAIN, INSERT, as_row)
    common = collections.Counter(item[0] for item in items).most_common(10)
    return Case(
        "rollout: append of an item of a recorded session, by kind",
        {label: side for kind, _ in common
         for label, side in ((kind, ours(kind)), (f"INSERT of {kind}", theirs(kind)))},
        [(kind, f"INSERT of {kind}", None) for kind, _ in common], rounds=5,
        note="The whole session is written, item by item, and each item is a transaction of its "
             "own. A time is the median of the items of a kind.")


def log_ways(items):
    def into(view, column):
        return (OURS, f"INSERT INTO {view}({column}, timestamp, type, payload) "
                f"VALUES('{ROLLOUT}',?,?,?)", rows(items, as_columns)), {}
    return ways(
        "rollout: one item of a recorded session",
        [("rollout_log", *into("rollout_log", "rollout_id")),
         ("rollout_items", *into("rollout_items", "rollout")),
         ("rollout_append", (OURS, APPEND, rows(items, as_line)), {}),
         ("plain table", (PLAIN, INSERT, rows(items, as_row)), {"module": False})],
        {"rollout_log, prepared once": 2, "rollout_log, prepared once, 100 a transaction": 4,
         **{f"rollout_log, {way}": 20 for way in ANEW if "anew" in way}},
        note="The plain table has UNIQUE(rollout, sequence).",
        why="An INSERT into a view compiles its triggers.")


def append_cases():
    items = session()
    talk, users = ([*itertools.islice(varied(role), 50)] for role in ("assistant", "user"))
    return [
        ten_case("1 KB each", talk, 1.15, 0.6,
                 note="The plain table has UNIQUE(rollout, sequence). The ten INSERTs run in one "
                      "transaction. All sides survive a crash of the process. The JSONL file "
                      "also survives a power failure.",
                 why="Each message is a row, and another one that says where its text is. These "
                     "rows, written by statements prepared once, take 1.25 times the "
                     "instructions of ten INSERTs. The rest reads the JSON, and the texts, to "
                     "find a message that is told twice."),
        ten_case("user messages of 1 KB", users, 1.3,
                 note="Each message begins a turn, which is a row of its own.",
                 why="An item, its turn and the place of its text are three rows. These rows, "
                     "written by statements prepared once, take 1.5 times the instructions of ten "
                     "INSERTs. The rest reads the JSON, and the texts, to find a message that is "
                     "told twice."),
        ten_case("the mix of a recorded session", items, 1.3,
                 why="The rows that these items need, written again by statements prepared once, "
                     "take 1.3 times the instructions of ten INSERTs, without what a result "
                     "changes in the row of its call. Reading the JSON takes 0.3 more, and what "
                     "follows from it, the texts, calls and tokens, 0.5."),
        one_case(items),
        search_case(items),
        kinds_case(items),
        log_ways(items),
    ]


# ----------------------------------------------------------------- history

USER = '{"type":"event_msg","payload":{"type":"user_message","message":"do it"}}'


def long_one(items):
    """A database with one conversation of that many items of 1 KB, a tenth of them user
    messages."""
    def make(path):
        db = installed(path)
        rollout = create(db)
        db.execute("BEGIN")
        for batch, in itertools.islice(ten_lines([*itertools.islice(varied("assistant"), 90)])(),
                                       items // 10):
            batch = batch[:batch.rindex(',{"timestamp"')] + "," + USER + "]"
            db.execute("SELECT rollout_append(?, ?)", (rollout, batch)).fetchall()
        db.execute("COMMIT")
        return db, rollout
    return once(("long", items), make)


def of_long(items, sql, times, *more):
    def side(_folder):
        db, rollout = long_one(items)
        return per_call(lambda: db.execute(sql, (rollout, *more)).fetchall(), times)
    return side


def history_raw(_folder):
    db, _ = long_one(1000)
    return per_call(lambda: db.execute(
        "SELECT id, timestamp, type, payload FROM rollout__data "
        "WHERE id BETWEEN 1 << 32 AND (1 << 32) + 4294967295 ORDER BY id"
    ).fetchall(), 20)


def fork(items):
    return of_long(items, "SELECT rollout_fork(?, ?)", 50, items // 10 - 1)


# ------------------------------------------------------- many conversations

def many(rollouts):
    """Their ids are in order of time, as those of version 7 are."""
    def make(path):
        db = installed(path)
        db.execute("BEGIN")
        db.execute(
            "WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            "INSERT INTO rollouts(id, created, expires_at, status) "
            "SELECT printf('%08x-0000-4000-8000-%012x', i, i), "
            "1700000000000 + i, 'permanent', 'active' FROM n", (rollouts,))
        db.execute(
            "INSERT INTO rollout_log(rollout_id, type, payload, timestamp) "
            "SELECT id, 'event_msg', '{\"type\":\"user_message\","
            "\"message\":\"hello\"}', created FROM rollouts")
        db.execute("COMMIT")
        checkpoint(db)
        return db
    return once(("conversations", rollouts), make)


def page(rollouts):
    def side(_folder):
        db = many(rollouts)
        cursor = db.execute(
            "SELECT updated || '|' || id FROM rollouts "
            "ORDER BY updated DESC LIMIT 1 OFFSET 500").fetchone()[0]
        return per_call(lambda: db.execute(
            "SELECT rollout_page(50, ?)", (cursor,)).fetchall(), 50)
    return side


def cleanup(rollouts):
    batch = next(ten_lines([*itertools.islice(varied("assistant"), 10)])())[0]

    def side(_folder):
        db = many(rollouts)
        db.execute("BEGIN")
        for i in range(100):
            name = f"{rollouts + i:08x}-0000-4000-9000-{i:012x}"
            db.execute("SELECT rollout_append(rollout_create(?,NULL,0,NULL,1),"
                       "?, 1)", (name, batch)).fetchall()
        db.execute("COMMIT")
        checkpoint(db)
        return timed(lambda: db.execute(
            "SELECT rollout_cleanup_expired()").fetchall())
    return side


# ------------------------------------------------------------------ import

def import_ours(text):
    """Each time under another id, and with other messages, so that all of it is new."""
    number = itertools.count()

    def side(_folder):
        db = once(("import", len(text)), installed)
        new = text.replace(b"msg_", b"m%d_" % next(number))
        return timed(lambda: db.execute(
            "SELECT rollout_import(?, ?)", (new, str(uuid.uuid4()))).fetchall())
    return side


def import_plain(text):
    """json.loads of each line, and one INSERT of it."""
    def read_all(db):
        db.execute("BEGIN")
        for i, one in enumerate(text.split(b"\n")):
            try:
                kind = json.loads(one)["type"]
            except ValueError:
                kind = "?"
            db.execute("INSERT INTO items(sequence, type, payload) VALUES(?,?,?)",
                       (i, kind, one.decode()))
        db.execute("COMMIT")

    def make(path):
        db = plain(path)
        db.execute("CREATE TABLE items(id INTEGER PRIMARY KEY, sequence INTEGER, "
                   "type TEXT, payload TEXT)")
        return db

    def side(_folder):
        db = once(("lines", len(text)), make)
        return timed(lambda: read_all(db))
    return side


def import_cases():
    return [
        Case(f"rollout: import of a {kind} file of {len(text) / 1e6:.1f} MB",
             {"rollout_import": import_ours(text), "json.loads and INSERT": import_plain(text)},
             [("rollout_import", "json.loads and INSERT", 1.3)], rounds=9,
             note="A recorded session. The other side parses each line in Python and inserts it. "
                  "The import also derives turns, titles and usage, and keeps every byte.")
        for kind in ("codex", "claude") for text, _ in sessions(kind)[:1]]


# -------------------------------------------------------------------- hooks

def hook(wait):
    """A hook of docs/live.md for a session that has a new line: until the agent goes on, or until
    the line is there. The module is found as a package puts it: by its name."""
    page = (ROOT / "docs/live.md").read_text()
    script = re.search(r"```sh\n(# hook.sh.*?)```", page, re.S)[1]

    def side(folder):
        (folder / "hook.sh").write_text(script.replace(" &\n", "\n") if wait else script)
        file = folder / "s.jsonl"
        told = json.dumps({"session_id": "s", "transcript_path": str(file)}).encode()
        path = folder / "flight.db"
        env = {**os.environ, "BLACKBOX_DB": str(path), "LD_LIBRARY_PATH": str(ROOT)}
        took = []
        for i in range(20):
            with file.open("a") as out:
                out.write(json.dumps({"type": "user", "sessionId": "s", "uuid": str(i),
                                      "message": {"role": "user", "content": f"do {i}"}}) + "\n")
            took.append(timed(lambda: subprocess.run(
                ["sh", folder / "hook.sh"], input=told, env=env, check=True)))
            time.sleep(0.05)  # what goes on in the background disturbs nobody
        count = plain(path).execute("SELECT count(*) FROM rollout_items").fetchone()
        assert count == (21,)  # with the session_meta
        return statistics.median(took[1:])
    return side


def shell_alone(folder):
    path = folder / "plain.db"
    plain(path).execute("CREATE TABLE hooks(told TEXT)").connection.close()
    return statistics.median(timed(lambda: subprocess.run(
        ["sqlite3", path, "INSERT INTO hooks VALUES('a line')"], check=True)) for _ in range(20))


def hook_cases():
    return [Case(
        "rollout: a hook, a process for each turn",
        {"hook": hook(False), "hook and its import": hook(True), "sqlite3 shell": shell_alone},
        [("hook", "sqlite3 shell", 1.5), ("hook and its import", "sqlite3 shell", 1.5)],
        note="The hook of docs/live.md, until the agent goes on, and until the new line of its "
             "session is imported. The other side is the sqlite3 shell with one INSERT into a "
             "plain table.",
        why="The import is a process that loads the module and reads the schema of all its "
            "domains.")] if shutil.which("sqlite3") else []


# ------------------------------------------------------ a thousand sessions

def peak(begin=False):
    """The most memory of this process, in MB; on Linux since it was last asked to begin."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if begin:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    return int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) / 1024


def thousand(path):
    """1,000 sessions, and the seconds and megabytes that they took in a process of their own."""
    told = subprocess.run([sys.executable, __file__, path], check=True, stdout=subprocess.PIPE)
    return connect(path), *map(float, told.stdout.split())


def import_thousand(path):
    """They are made of the smaller recorded ones under new ids."""
    db = installed(path)
    before, seconds = peak(True), 0
    parts = [(text, name.split(".")[0][-36:].encode()) for kind in ("codex", "claude")
             for text, name in sessions(kind) if len(text) < 300_000]
    for i in range(1000):
        text, old = parts[i % len(parts)]
        new = str(uuid.uuid4()).encode()
        text = text.replace(old, new).replace(b"msg_", b"m" + new[:8])
        seconds += timed(lambda: db.execute("SELECT rollout_import(?)", (text,)).fetchall())
    print(seconds, peak() - before)


def thousand_takes(sql):
    return lambda _folder: per_call(
        lambda: once("thousand", thousand)[0].execute(sql).fetchall(), 20)


def thousand_cases():
    return [Case(
        "rollout: 1,000 recorded sessions",
        {"import": lambda _folder: once("thousand", thousand)[1],
         "MB of memory": lambda _folder: once("thousand", thousand)[2],
         "100 MB": limit(100),
         "list": thousand_takes("SELECT * FROM rollout_list(50)"),
         "usage by day": thousand_takes("SELECT * FROM rollout_usage_days"),
         "50 ms": limit(.05)},
        [("list", "50 ms", 1), ("usage by day", "50 ms", 1), ("MB of memory", "100 MB", 1)],
        rounds=1,
        note="The recorded sessions of less than 300 KB under new ids, each imported by a call "
             "of its own. The memory is what a process needs for that, and to read the "
             "files, beyond what it had before; here a second stands for a megabyte.")
    ] if sessions("codex") else []


# ------------------------------------------------------------------ packing

ITEMS = "SELECT sum(pgsize) FROM dbstat WHERE name GLOB 'rollout__[dp]a*' OR name GLOB 'store_*'"
USED = "SELECT pgsize * (c.page_count - f.freelist_count) FROM (SELECT page_size AS pgsize FROM" \
       " pragma_page_size), pragma_page_count AS c, pragma_freelist_count AS f"


def forked():
    """The recorded sessions, each with a fork: a file under a new id that repeats it."""
    for kind in ("codex", "claude"):
        for text, name in sessions(kind):
            old = name.split(".")[0][-36:].encode()
            yield text
            yield text.replace(old, str(uuid.uuid5(uuid.NAMESPACE_URL, name)).encode())


def packed_forks(path):
    """A file with them, the bytes of the files, and the seconds of packing."""
    db = installed(path)
    raw = 0
    for text in forked():
        raw += len(text)
        db.execute("SELECT rollout_import(?)", (text,)).fetchall()
    took = timed(lambda: db.execute("SELECT rollout_pack(1000000)").fetchall())
    return path, raw, took


def packed_takes(sql, share=1):
    """Bytes in MB, or with a share that one of the files."""
    def side(_folder):
        path, raw, _ = once("packed forks", packed_forks)
        return connect(path).execute(sql).fetchone()[0] / 1e6 if sql else raw * share / 1e6
    return side


def item_alone(_folder):
    """The mean of reading a packed item, each on a place that nothing was read of."""
    db = connect(once("packed forks", packed_forks)[0])
    keys = [key for key, in db.execute("SELECT id FROM rollout__packed")]
    random.Random(1).shuffle(keys)
    took = [timed(lambda: db.execute("SELECT payload FROM rollout__items WHERE id = ?",
                                     (key,)).fetchone()) for key in keys[:2000]]
    return statistics.median(took)


def import_packs(setting):
    def side(folder):
        db = installed(folder / "packs.db")
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'rollout.pack'", (setting,))
        return timed(lambda: [db.execute("SELECT rollout_import(?)", (text,)).fetchall()
                              for text in itertools.islice(forked(), 6)])
    return side


def append_packs(items, setting):
    """The mean: every 16th append packs."""
    def side(folder):
        db = installed(folder / "packs.db")
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'rollout.pack'", (setting,))
        db.executescript(OURS)
        made = [*itertools.islice(rows(items, as_line)(), 480)]
        return timed(lambda: [db.execute(APPEND, row).fetchall() for row in made]) / len(made)
    return side


def pack_cases():
    items = session()
    return [
        Case("rollout: sessions with a fork each, packed",
             {"items": packed_takes(ITEMS), "file": packed_takes(USED),
              "a fifth of the files": packed_takes(None, .2)},
             [("items", "a fifth of the files", 1), ("file", "a fifth of the files", None)],
             rounds=1, shown=lambda mb: f"{mb:.1f} MB",
             note="Each recorded session is imported twice, the second time under another id. "
                  "Items are the pages of their table and of the body store; the file has what is "
                  "derived from them, too."),
        Case("rollout: a packed item alone",
             {"item": item_alone, "0.3 ms": limit(.0003)}, [("item", "0.3 ms", 1)]),
        Case("rollout: import with rollout.pack",
             {"packs": import_packs(1), "plain": import_packs(0)}, [("packs", "plain", None)],
             note="Three recorded sessions with a fork each."),
        Case("rollout: append with rollout.pack",
             {"packs, the mean": append_packs(items, 1), "plain, the mean": append_packs(items, 0)},
             [("packs, the mean", "plain, the mean", None)],
             note="The items of a recorded session, one by one; every 16th append packs 16.")
    ] if sessions("codex") else []


# --------------------------------------------------- the document's targets

def timed_create(_folder):
    db = once("create", installed)
    return per_call(lambda: create(db), 50)


def timed_append(_folder):
    db, rollout = long_one(100)
    batch = next(ten_lines([*itertools.islice(varied("assistant"), 10)])())[0]
    return per_call(lambda: db.execute(
        "SELECT rollout_append(?, ?)", (rollout, batch)).fetchall(), 50)


def timed_flush(folder):
    def one():
        timed_append(folder)
        db, rollout = long_one(100)
        return timed(lambda: db.execute("SELECT rollout_flush(?)", (rollout,)).fetchall())
    return statistics.median(one() for _ in range(5))


def cases():
    resume = "SELECT rollout_resume(?)"
    whole = "SELECT rollout_history(?)"
    return [
        *append_cases(),
        *import_cases(),
        *hook_cases(),
        *thousand_cases(),
        *pack_cases(),
        Case("rollout: history of 1,000 items of 1 KB",
             {"rollout_range": of_long(1000, "SELECT * FROM rollout_range(?)", 20),
              "rollout_items": of_long(1000, "SELECT sequence, timestamp, type, payload "
                                       "FROM rollout_items WHERE rollout = ?", 20),
              "rollout_history": of_long(1000, whole, 20),
              "raw SELECT": history_raw},
             [("rollout_items", "raw SELECT", 1.2),
              ("rollout_range", "raw SELECT", None),
              ("rollout_history", "raw SELECT", 1.5)], rounds=9,
             why="The view finds the parts of the conversation first: the items of a fork stand "
                 "with those of its origin."),
        Case("rollout: a page of 50", {"30,000 there": page(30000), "1,000 there": page(1000)},
             [("30,000 there", "1,000 there", 1.2)]),
        Case("rollout: clean-up of 100 expired",
             {"30,000 there": cleanup(30000), "1,000 there": cleanup(1000)},
             [("30,000 there", "1,000 there", 1.2)], rounds=9,
             note="Their ids are in order of time, as those of Codex are."),
        Case("rollout: resume",
             {"30,000 items": of_long(30000, resume, 200), "100 items": of_long(100, resume, 200)},
             [("30,000 items", "100 items", 1.2)]),
        Case("rollout: fork at the last turn",
             {"10,000 items": fork(10000), "10 items": fork(10)},
             [("10,000 items", "10 items", 2.0)]),
        Case("rollout: absolute targets",
             {"create": timed_create, "resume": of_long(100, resume, 200), "append": timed_append,
              "flush": timed_flush, "page": page(1000), "history": of_long(1000, whole, 20),
              "clean-up": cleanup(1000), "500 ms": limit(.5), "200 ms": limit(.2),
              "100 ms": limit(.1), "50 ms": limit(.05)},
             [("create", "100 ms", 1), ("resume", "100 ms", 1),
              ("append", "50 ms", 1), ("flush", "100 ms", 1),
              ("page", "200 ms", 1), ("history", "200 ms", 1),
              ("clean-up", "500 ms", 1)], rounds=3,
             note="The targets are: create and resume in 100 ms, 10 items in 50 ms, a flush in "
                  "100 ms, a page of 50 in 200 ms, 1,000 items in 200 ms, 100 expired in 500 "
                  "ms. The medians below are the measured times."),
    ]


if __name__ == "__main__":
    import_thousand(sys.argv[1])
