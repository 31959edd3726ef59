"""Plan and sweep follow what is due, and a write with nothing to do pays little for looking: at
what is due, or at what holds keep."""
import atexit
import pathlib
import shutil
import statistics
import tempfile
import time

from run import Case, connect, timed

DUE = 1000
DAY = 86_400_000
INSERTS = 2000
TABLE = """CREATE TABLE event_payloads(id TEXT PRIMARY KEY, event_id TEXT NOT NULL,
  agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL,
  pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT, created_at TEXT NOT NULL)"""
folders = []


def template(rows):
    """A file with so many archive rows, of which the oldest 1,000 are due; ids in order of
    time. It is made once."""
    if not folders:
        folders.append(pathlib.Path(tempfile.mkdtemp()))
        atexit.register(shutil.rmtree, folders[0], ignore_errors=True)
    path = folders[0] / f"{rows}.db"
    if not path.exists():
        db = connect(path)
        db.execute(TABLE)
        due = time.time() - 8 * 86400
        db.execute(
            "WITH n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)"
            " INSERT INTO event_payloads SELECT printf('p%09d', i), printf('e%09d', i),"
            " 'agent', 'question', 'answer', 14, 'archive', 0, NULL,"
            " strftime('%Y-%m-%dT%H:%M:%S.000Z', ?2 + i / 100.0 + (i >= ?3) * 400000,"
            " 'unixepoch') FROM n", (rows, due, DUE))
        db.execute("SELECT blackbox_install('main', 'all')").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.close()
    return path


def opened(folder, rows):
    shutil.copy(template(rows), folder / "archive.db")
    db = connect(folder / "archive.db")
    found = db.execute("SELECT count(*) FROM retention_plan WHERE blocked_by IS NULL").fetchone()
    assert found == (DUE,)
    return db


def plan(rows):
    def side(folder):
        db = opened(folder, rows)
        return min(timed(lambda: db.execute("SELECT * FROM retention_plan").fetchall())
                   for _ in range(9))
    return side


def sweep(rows):
    def side(folder):
        db = opened(folder, rows)
        return timed(lambda: db.execute("SELECT retention_sweep()").fetchone())
    return side


def insert(on, begin):
    def side(folder):
        db = connect(folder / "archive.db")
        db.execute("SELECT blackbox_install('main', 'payload')").fetchone()
        if not on:
            db.execute("DROP TRIGGER payload_work")
        db.execute(begin)
        return statistics.median(timed(lambda i=i: db.execute(
            "INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body,"
            " size_bytes, purpose) VALUES(?, 'e', 'a', ?, 'r', 2001, 'archive')",
            (f"p{i:09}", "q" * 2000))) for i in range(INSERTS))
    return side


def works(name, on, key, prepare, sql):
    """Writes into a domain whose writes remove what is due, in a transaction."""
    def side(folder):
        db = connect(folder / "work.db")
        db.execute("SELECT blackbox_install('main', 'all')").fetchone()
        if not on:
            db.execute(f"DROP TRIGGER {name}_work")
        db.execute("BEGIN")
        times = []
        for i in range(100):
            for statement in prepare:
                db.execute(statement.format(i))
            put, values = sql.format(i), (key.format(i), "q" * 2000)
            times.append(timed(lambda put=put, values=values: db.execute(put, values)))
        return statistics.median(times)
    return side


def hold_elsewhere(db, kind):
    """10,000 holds on other things of that kind."""
    db.execute("BEGIN")
    db.execute("SELECT retention_hold(?, 'x', 'case', 'ann', 'asked')", (kind,)).fetchone()
    db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason)"
               " WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 9999)"
               " SELECT ?, 'x' || i, 'case', 'ann', 'asked' FROM n", (kind,))
    db.execute("COMMIT")


def held(kind, holds, prepare, sql):
    """Writes into a domain, in a transaction."""
    def side(folder):
        db = connect(folder / "held.db")
        db.execute("SELECT blackbox_install('main', 'all')").fetchone()
        if holds:
            hold_elsewhere(db, kind)
        for statement in prepare:
            db.execute(statement)
        db.execute("BEGIN")
        return statistics.median(timed(lambda i=i: db.execute(sql, (f"k{i:07}", "q" * 2000)))
                                 for i in range(INSERTS))
    return side


ROLLOUT = "019d0000-1111-7222-8333-444455556666"
HELD = [
    ("a row of the archive", "agent", [],
     "INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body,"
     " size_bytes, purpose) VALUES(?, 'e', 'a', ?, 'r', 2001, 'archive')"),
    ("a row of a ring", "agent", ["CREATE VIRTUAL TABLE ring USING payload_ring(window=50)"],
     "INSERT INTO ring(event_id, agent_id, request_body) VALUES(?, 'a', ?)"),
    ("an item of a conversation", "rollout", [f"INSERT INTO rollouts(id) VALUES('{ROLLOUT}')"],
     f"INSERT INTO rollout_items(rollout, timestamp, type, payload) VALUES('{ROLLOUT}', 1500,"
     " 'event_msg', json_object('type', 'user_message', 'id', ?, 'message', ?))"),
    ("an item of the cache", "session", [],
     "INSERT INTO cache_items(session_id, task_id, turn_id, description, data)"
     " VALUES('conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n', 'a7b3c9d2', ?, 'd',"
     " json_quote(?))"),
]

WORKS = [
    ("a new item of the cache", "cache", "k{:07}", [],
     "INSERT INTO cache_items(session_id, task_id, turn_id, description, data)"
     " VALUES('conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n', 'a7b3c9d2', ?, 'd',"
     " json_quote(?))"),
    ("the start of a conversation", "rollout", "019d0000-1111-7222-8333-{:012}", [],
     "INSERT INTO rollouts(id, title) VALUES(?, ?)"),
    ("the first overflow of a buffer", "evidence", "c{}",
     ["CREATE VIRTUAL TABLE rec{0} USING evidence_buffer(max_size_bytes=5000)",
      "INSERT INTO rec{0}(id, action) VALUES('a', json_object('x', hex(zeroblob(1000))))",
      "INSERT INTO rec{0}(id, action) VALUES('b', json_object('x', hex(zeroblob(1000))))"],
     "INSERT INTO rec{0}(id, action) VALUES(?, json_object('x', ?))"),
]


def cases():
    small, large = "10,000 rows", "1,000,000 rows"
    return [
        Case("the plan of 1,000 rows that are due", {small: plan(10_000), large: plan(1_000_000)},
             [(large, small, 1.2)]),
        Case("the sweep of 1,000 rows that are due",
             {small: sweep(10_000), large: sweep(1_000_000)}, [(large, small, 1.2)]),
        Case("an insert into an archive where nothing is due, in a transaction",
             {"on": insert(True, "BEGIN"), "off": insert(False, "BEGIN")}, [("on", "off", 1.1)]),
        Case("an insert into an archive where nothing is due, alone",
             {"on": insert(True, ""), "off": insert(False, "")}, [("on", "off", 1.1)]),
        *(Case(f"{what} where nothing is due",
               {"on": works(name, True, *how), "off": works(name, False, *how)},
               [("on", "off", 1.1)]) for what, name, *how in WORKS),
        *(Case(f"{what} is written, with 10,000 holds on others",
               {"holds": held(kind, True, prepare, sql), "none": held(kind, False, prepare, sql)},
               [("holds", "none", 1.1)]) for what, kind, prepare, sql in HELD),
    ]
