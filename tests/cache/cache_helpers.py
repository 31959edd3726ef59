"""What the tests of the cache share."""
import json
import sqlite3

import pytest

from conftest import ROOT, cache_faults, one, rows

A = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"
B = "conv_00000000-0000-4000-8000-000000000001"
C = "conv_00000000-0000-4000-8000-000000000002"
T0 = 1_700_000_000_000
TASKS = ["task000%d" % i for i in range(4)]


def schema(db):
    """Makes the schema from the plain files, without the module."""
    for name in ("core", "cache"):
        db.executescript((ROOT / "sql" / (name + ".sql")).read_text())
    return db


def plain(path=":memory:"):
    """A connection without the module, on a database with the schema."""
    return schema(sqlite3.connect(str(path), isolation_level=None))


@pytest.fixture(params=[0, 1], ids=["recursive off", "recursive on"])
def pdb(request, path):
    """A file with the schema, on a connection without the module."""
    db = plain(path)
    db.execute(f"PRAGMA recursive_triggers = {request.param}")
    yield db
    db.close()


def put(db, session, task, data, now=T0, turn="turn0000", how="INSERT",
        metadata=None, rest="", description="d"):
    db.execute(
        f"{how} INTO cache_items(session_id, task_id, turn_id, description,"
        f" timestamp, custom_metadata, data) VALUES(?,?,?,?,?,?,?) {rest}",
        (session, task, turn, description, now, metadata, data),
    )


def setting(db, name, value):
    db.execute(
        "INSERT OR REPLACE INTO blackbox_settings(name, value) VALUES(?, ?)",
        ("cache." + name, value),
    )


def used(db, session, at=T0, hits=1):
    """Marks an access of a session, as cache_read() does."""
    db.execute("UPDATE cache_sessions SET hits = hits + ?, last_accessed_at = max("
               "last_accessed_at, ?) WHERE session_id = ?", (hits, at, session))


def room(db, session):
    """What the quotas leave for a session, as cache_stats() tells it."""
    return json.loads(one(db, "SELECT cache_stats(?)", session))["quotaRemaining"]


def key(session, task, turn="turn0000"):
    return f"{session}_{task}_{turn}"


def exact(db, schema="main"):
    """Fails unless every total equals that of the items."""
    s = '"' + schema.replace('"', '""') + '".'
    truth = rows(
        db,
        f"SELECT session_id, sum(length(CAST(data AS BLOB))), count(*)"
        f" FROM {s}cache_items GROUP BY 1 ORDER BY 1",
    )
    kept = rows(
        db,
        f"SELECT session_id, total_size, item_count FROM {s}cache_sessions"
        f" WHERE item_count <> 0 OR total_size <> 0 ORDER BY 1",
    )
    assert kept == truth
    assert cache_faults(db, s[:-1]) == []
    assert rows(db, f"SELECT rule FROM {s}cache_state") == [(None,)]


def text(size):
    """JSON of exactly n bytes."""
    return json.dumps("x" * (size - 2))
