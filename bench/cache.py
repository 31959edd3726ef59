"""The session cache beside the plain statements it stands for."""
import json
import random
import sqlite3
import string

from run import Case, connect, timed

SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
LETTERS = string.ascii_lowercase + string.digits
START = 1_700_000_000_000
WRITES = 200  # measured in one turn


def part():
    return "".join(random.choices(LETTERS, k=8))


def rows_of(size):
    """A tool result of about so many bytes: a list of records, as JSON."""
    one = '{"id": 4711, "title": "Wireless Earbuds", "price": 58.99, "ok": true}'
    return "[" + ", ".join([one] * (size // (len(one) + 2))) + "]"


def text_of(size):
    """The same size as one string, as a fetched page is."""
    return json.dumps("Lorem ipsum dolor sit amet. " * (size // 28))


def cache(folder, name="cache.db"):
    db = connect(folder / name)
    db.execute("SELECT blackbox_install('main', 'cache')").fetchone()
    db.execute("INSERT INTO blackbox_settings VALUES('cache.session_quota_bytes', 1000000000000)")
    return db


PLAIN = """
CREATE TABLE sessions(sessionId TEXT PRIMARY KEY, totalSize, itemCount,
  createdAt, lastAccessedAt);
CREATE TABLE cache_items(storageKey TEXT PRIMARY KEY, sessionId TEXT,
  taskId TEXT, turnId TEXT, description TEXT, timestamp INTEGER,
  dataSize INTEGER, customMetadata TEXT, data TEXT {check});
CREATE INDEX by_session ON cache_items(sessionId);
CREATE INDEX by_session_timestamp ON cache_items(sessionId, timestamp);
"""


def plain(folder, check=""):
    db = sqlite3.connect(folder / "plain.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.executescript(PLAIN.format(check=check))
    return db


def plain_write(db, data, now, task, turn):
    db.execute("BEGIN")
    db.execute(
        "INSERT INTO cache_items VALUES(?,?,?,?,?,?,?,?,?)",
        (f"{SESSION}_{task}_{turn}", SESSION, task, turn, "A list of orders",
         now, len(data), None, data),
    )
    db.execute(
        "INSERT INTO sessions VALUES(?,?,1,?,?) ON CONFLICT(sessionId) DO UPDATE "
        "SET totalSize = totalSize + excluded.totalSize, itemCount = itemCount + 1, "
        "lastAccessedAt = excluded.lastAccessedAt",
        (SESSION, len(data), now, now),
    )
    db.execute("COMMIT")


def cache_write(db, data, now, task, turn):
    db.execute(
        "SELECT cache_write(?,?,?,?,'A list of orders',NULL,?)",
        (SESSION, task, turn, data, now),
    ).fetchone()


def repeated(make, write, data):
    def side(folder):
        db = make(folder)
        keys = [(START + i, part(), part()) for i in range(WRITES + 10)]
        for now, task, turn in keys[:10]:
            write(db, data, now, task, turn)

        def run():
            for now, task, turn in keys[10:]:
                write(db, data, now, task, turn)

        seconds = timed(run) / WRITES
        db.close()
        return seconds
    return side


def checked(folder):
    return plain(folder, "CHECK (json_valid(data))")


def cases():
    return [
        Case(
            "cache_write of 10 KB (rows)",
            {
                "cache_write": repeated(cache, cache_write, rows_of(10_000)),
                "two statements": repeated(plain, plain_write, rows_of(10_000)),
                "two statements, JSON checked": repeated(checked, plain_write, rows_of(10_000)),
            },
            [("cache_write", "two statements", 1.6),
             ("cache_write", "two statements, JSON checked", None)],
            rounds=15,
        ),
        Case(
            "cache_write of 10 KB (text)",
            {
                "cache_write": repeated(cache, cache_write, text_of(10_000)),
                "two statements": repeated(plain, plain_write, text_of(10_000)),
                "two statements, JSON checked": repeated(checked, plain_write, text_of(10_000)),
            },
            [("cache_write", "two statements", 1.6),
             ("cache_write", "two statements, JSON checked", None)],
            rounds=15,
        ),
    ]
