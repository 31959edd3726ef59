"""What the tests of retention share."""
import json

from conftest import one, rows

T0 = 1_700_000_000_000
DAY = 86_400_000
SESSION = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n"


def iso(ms):
    import datetime
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (ms % 1000)


def archive(db, key, at, body="x", pinned=0, schema="main"):
    db.execute(f'INSERT INTO "{schema}".event_payloads(id, event_id, agent_id, request_body,'
               " purpose, pinned, created_at) VALUES(?, 'e', 'a', ?, 'archive', ?, ?)",
               (key, body, pinned, iso(at)))


def plan(db, now=None, columns="rule, key, blocked_by"):
    return rows(db, f"SELECT {columns} FROM retention_plan(?)", now)


def own_rule(db, rule="mine", table="notes", key="id", time="at", format="ms", age=DAY):
    db.execute('INSERT INTO retention_rules(rule, "table", "key", "time", format, age_ms)'
               " VALUES(?, ?, ?, ?, ?, ?)", (rule, table, key, time, format, age))


def notes(db, *times, table="notes"):
    db.execute(f'CREATE TABLE "{table}"(id INTEGER PRIMARY KEY, at, body)')
    for at in times:
        db.execute(f'INSERT INTO "{table}"(at, body) VALUES(?, ?)', (at, "n" * 10))
