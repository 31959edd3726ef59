"""Plan and sweep follow what is due, and a write with nothing to do pays little for looking: at
what is due, or at what holds keep."""
import time

from run import Case, checkpoint, connect, exchanges, install, once, timed, writes

DUE = 1000
ROWS = """
WITH n(i) AS (VALUES({0}) UNION ALL SELECT i + 1 FROM n WHERE i < {1})
INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body, size_bytes,
  purpose, created_at)
SELECT printf('%016x', {2}), printf('e%09d', i), 'agent', 'question', 'answer', 14, 'archive',
       strftime('%Y-%m-%dT%H:%M:%S.000Z', {3} + i / 100.0, 'unixepoch') FROM n"""
TABLE = """CREATE TABLE event_payloads(id TEXT PRIMARY KEY, event_id TEXT NOT NULL,
  agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL,
  pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT, created_at TEXT NOT NULL)"""


def archive(rows, scatter):
    """A file with so many archive rows, of which the oldest 1,000 are due. Its ids are in order
    of time, or scattered. Its rows are there before it is installed, which is faster."""
    key = "(i * 2654435761 & 4294967295) << 32 | i" if scatter else "i"

    def add_due(db):
        db.execute(ROWS.format(1, DUE, key, time.time() - 8 * 86400))

    def make(path):
        db = connect(path)
        db.execute(TABLE)
        db.execute(ROWS.format(DUE + 1, rows, key, time.time() - 4 * 86400))
        install(db)
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.history_until'",
                   (int(time.time() * 1000),))  # so that no insert removes what is due
        return db

    db = once(("archive", rows, scatter), make)
    due = "SELECT count(*) FROM retention_plan WHERE blocked_by IS NULL"
    if db.execute(due).fetchone() == (0,):
        add_due(db)
    assert db.execute(due).fetchone() == (DUE,)
    checkpoint(db)
    return db


def takes(sql, rows, scatter=False, times=1):
    """The fastest of so many."""
    def side(_folder):
        db = archive(rows, scatter)
        return min(timed(lambda: db.execute(sql).fetchall()) for _ in range(times))
    return side


def plan_cases():
    def case(title, sql, large, scatter=False, times=1, why=""):
        sides = {f"{n:,} rows": takes(sql, n, scatter, times) for n in (10_000, large)}
        return Case(title, sides, [(f"{large:,} rows", "10,000 rows", 1.2)], why=why)

    return [
        case("the plan of 1,000 rows that are due", "SELECT * FROM retention_plan", 1_000_000,
             times=9),
        case("the sweep of 1,000 rows that are due", "SELECT retention_sweep()", 1_000_000),
        case("the sweep of 1,000 rows that are due, random ids", "SELECT retention_sweep()",
             300_000, True,
             why="The index of random ids has each row on a page of its own, in any design."),
    ]


# ---------------------------------------------------------- nothing to do

ROLLOUT = "019d0000-1111-7222-8333-444455556666"
SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
ARCHIVE = ("INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body,"
           " size_bytes, purpose) VALUES(?1, 'e', 'a', ?2, 'r', 1 + length(?2), 'archive')")
CACHE = ("INSERT INTO cache_items(session_id, task_id, turn_id, description, data)"
         f" VALUES('{SESSION}', 'a7b3c9d2', ?, 'd', ?)")


def keyed(key):
    """What begins rows (key, text of 2.5 KB), for a key with a number in it."""
    return lambda: ((key.format(i), row[2]) for i, row in enumerate(exchanges(1, 2500)))


def held_case(title, kind, script, sql, key):
    """With 10,000 holds on other things of that kind."""
    holds = (f"SELECT retention_hold('{kind}', 'x', 'case', 'ann', 'asked', NULL, '{{\"remember\":true}}');"
             "INSERT INTO retention_holds(kind, key, owner, actor, reason)"
             " WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 9999)"
             f" SELECT '{kind}', 'x' || i, 'case', 'ann', 'asked' FROM n;")
    return Case(f"{title} is written, with 10,000 holds on others",
                {"holds": writes(holds + script, sql, keyed(key), per=500),
                 "none": writes(script, sql, keyed(key), per=500)},
                [("holds", "none", 1.1)], rounds=9,
                why="Where there are holds, each write looks its agent or conversation up in them.")


def cases():
    return [
        *plan_cases(),
        held_case("a row of the archive", "agent", "", ARCHIVE, "k{:07}"),
        held_case("a row of a ring", "agent",
                  "CREATE VIRTUAL TABLE ring USING payload_ring(window=50);",
                  "INSERT INTO ring(event_id, agent_id, request_body) VALUES(?, 'a', ?)", "k{:07}"),
        held_case("an item of a conversation", "rollout",
                  f"INSERT INTO rollouts(id) VALUES('{ROLLOUT}');",
                  "INSERT INTO rollout_items(rollout, timestamp, type, payload) VALUES("
                  f"'{ROLLOUT}', 1500, 'event_msg', json_object('type', 'user_message', 'id', ?,"
                  " 'message', ?))", "k{:07}"),
        held_case("an item of the cache", "session", "", CACHE, "k{:07}"),
    ]
