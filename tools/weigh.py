#!/usr/bin/env python3
"""weigh.py: what a file with blackbox weighs, beside the bounds that are the aim.

Memory (SQLITE_DBSTATUS_SCHEMA_USED), instructions and times are those of connections that have
not loaded the module, as every connection reads the schema. Objects are all rows of sqlite_schema:
the indexes that SQLite makes for PRIMARY KEY and UNIQUE count too. "All" is every domain that the
module has. Rows that are prepared anew are inserted 100 a transaction.

Plain is a table with the same columns, CHECKs, defaults and indexes, without triggers, in a file
of its own. That of the archive has the indexes of today: it becomes lighter when their expressions
do. So the archive is also compared with a table that stays as it is, AgentGazer's, with its five
indexes and one by age.

FIGURES has the bounds, and the ceilings to which tests/core/test_weight.py holds what can be
counted.
"""
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE = str(ROOT / ("blackbox.dylib" if sys.platform == "darwin" else "blackbox.so"))
PROGRAM = str(ROOT / "build" / "weigh")

# figure: (ceiling, bound). A ceiling is what was measured with SQLite 3.40.1, the one of Debian 12;
# for instructions, memory, text and lines it is 2 % more, and it is never below the bound. What
# has none is a time, or is compared with a table that may change. The bounds of text are shares.
FIGURES = {
    "open and read once, instructions: plain": (None, None),
    "open and read once, instructions of plain's: payload": (None, None),
    "open and read once, instructions of plain's: payload, a ring": (25, 25),
    "open and read once, instructions of plain's: all, a ring": (70, 70),
    "bytes of memory for the schema: payload": (220_000, 220_000),
    "bytes of memory for the schema: all, a ring": (650_000, 650_000),
    "objects: core": (23, None),
    "objects: core and payload": (60, 60),
    "objects: all": (190, 190),
    "objects: each ring": (6, 6),
    "objects: each evidence buffer": (12, 12),
    "objects beside core: payload": (33, None),
    "objects beside core: cache": (25, 25),
    "objects beside core: evidence": (12, None),
    "objects beside core: rollout": (49, None),
    "objects beside core: retention": (6, None),
    "objects beside core: store": (5, None),
    "objects beside core: report": (2, None),
    "bytes of text: core": (8_000, 8_000),
    "bytes of text beside core: payload": (16_000, 16_000),
    "bytes of text beside core: cache": (10_000, 10_000),
    "bytes of text beside core: evidence": (5_000, 5_000),
    "bytes of text beside core: rollout": (20_500, 14_000),
    "bytes of text beside core: retention": (6_000, 6_000),
    "bytes of text beside core: store": (3_000, 3_000),
    "bytes of text beside core: report": (3_000, 3_000),
    "bytes of text: each ring": (500, 500),
    "bytes of text: each evidence buffer": (1_000, 1_000),
    "bytes of an empty file: all, a ring": (532_480, 400_000),
    # A page of 4 KB for each table and index, and the text of the schema.
    "bytes of an empty file, without its rows: all, a ring": (401_408, None),
    "opcodes of INSERT: archive": (2_100, 2_100),
    "opcodes of INSERT: rollout_log": (800, 800),
    "opcodes of INSERT: cache": (1_200, 1_200),
    "INSERT prepared anew, time of plain's: archive": (None, 20),
    "INSERT prepared anew, time of AgentGazer's: archive": (None, 20),
    "INSERT prepared anew, time of plain's: rollout_log": (None, 20),
    "INSERT prepared anew, time of plain's: cache": (None, 20),
    "INSERT prepared anew, instructions of plain's: archive": (None, None),
    "INSERT prepared anew, instructions of AgentGazer's: archive": (None, None),
    "INSERT prepared anew, instructions of plain's: rollout_log": (None, None),
    "INSERT prepared anew, instructions of plain's: cache": (None, None),
    "INSERT prepared anew, instructions: archive": (3_370_000, None),
    "INSERT prepared anew, instructions: rollout_log": (1_190_000, None),
    "INSERT prepared anew, instructions: cache": (2_550_000, None),
    "INSERT prepared once, time of plain's: archive, autocommit": (None, 1.2),
    "INSERT prepared once, time of plain's: archive, 100 a transaction": (None, 1.5),
    "INSERT prepared once, time of AgentGazer's: archive, autocommit": (None, 1.2),
    "INSERT prepared once, time of AgentGazer's: archive, 100 a transaction": (None, 1.5),
    "INSERT prepared once, instructions of plain's: archive, autocommit": (None, None),
    "INSERT prepared once, instructions of plain's: archive, 100 a transaction": (None, None),
    "INSERT prepared once, instructions of AgentGazer's: archive, autocommit": (None, None),
    "INSERT prepared once, instructions of AgentGazer's: archive, 100 a transaction": (None, None),
    "INSERT prepared once, instructions: archive, autocommit": (237_000, None),
    "INSERT prepared once, instructions: archive, 100 a transaction": (184_000, None),
    "changes of schema_version: the first hold": (0, 0),
    "changes of schema_version: the first pack": (0, 0),
    "lines: C in ext": (50_107, 25_000),
    "lines: SQL in sql": (3_500, 3_500),
}

AGENTGAZER = """
CREATE TABLE event_payloads(
  id TEXT PRIMARY KEY DEFAULT (lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
    || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1)
    || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
  event_id TEXT NOT NULL, agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0,
  purpose TEXT NOT NULL CHECK (purpose IN ('archive', 'evidence')),
  pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT,
  created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  created_ms INTEGER GENERATED ALWAYS AS (CASE
    WHEN created_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'
     AND substr(created_at, 12, 2) < '24'
    THEN strftime('%s', substr(created_at, 1, 19)
           || ltrim(substr(created_at, 20), '.0123456789')) * 1000
         + iif(substr(created_at, 20, 1) = '.',
               CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER), 0) END) VIRTUAL);
CREATE INDEX idx_payloads_event_id ON event_payloads(event_id);
CREATE INDEX idx_payloads_agent_id ON event_payloads(agent_id);
CREATE INDEX idx_payloads_purpose ON event_payloads(purpose);
CREATE INDEX idx_payloads_created_at ON event_payloads(created_at);
CREATE INDEX idx_payloads_kill_switch ON event_payloads(kill_switch_event_id);
CREATE INDEX payload_by_age ON event_payloads(created_ms)
 WHERE purpose = 'archive' AND pinned = 0;
"""
# rollout_log is a view. This is what it shows, as a table.
ROLLOUT = """
CREATE TABLE rollout_log(
  id INTEGER PRIMARY KEY, rollout_id TEXT NOT NULL, sequence INTEGER NOT NULL,
  timestamp INTEGER NOT NULL DEFAULT (unixepoch() * 1000)
    CHECK (typeof(timestamp) = 'integer' AND timestamp BETWEEN 0 AND 253402300799999),
  type TEXT NOT NULL
    CHECK (typeof(type) = 'text' AND length(CAST(type AS BLOB)) BETWEEN 1 AND 100),
  payload TEXT CHECK (payload IS NULL OR (typeof(payload) = 'text'
                      AND length(CAST(payload AS BLOB)) <= 67108864)),
  UNIQUE(rollout_id, sequence));
"""
CONVERSATION = "0f8fad5b-d9cb-469f-a165-70867728950e"
BODY = """'{"role":"user","content":"' || printf('%.*c', 1200, 'x') || '"}'"""

# The statement, and the SELECT that gives the values of row ?1.
INSERTS = {
    "archive": (
        "INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, purpose)"
        " VALUES(?, ?, ?, ?, 'archive')",
        f"SELECT 'event-' || ?1, 'agent-' || ?1 % 50, {BODY}, {BODY}"),
    "rollout_log": (
        "INSERT INTO rollout_log(rollout_id, type, payload) VALUES(?, ?, ?)",
        f"SELECT '{CONVERSATION}', 'response_item', {BODY}, ?1"),
    "cache": (
        "INSERT INTO cache_items(session_id, task_id, turn_id, description, data)"
        " VALUES(?, ?, ?, ?, ?)",
        "SELECT printf('conv_%08x-1111-4222-8333-%012x', ?1 % 20, ?1 % 20),"
        f" printf('%08x', ?1), printf('%08x', ?1), 'a result', {BODY}"),
}
# A plain table does not count the items.
NUMBERED = "INSERT INTO rollout_log(rollout_id, type, payload, sequence) VALUES(?, ?, ?, ?)"

RING = "CREATE VIRTUAL TABLE ring USING payload_ring"
BUFFER = "CREATE VIRTUAL TABLE buffer USING evidence_buffer"
HOLD = "SELECT retention_hold('agent', 'a', 'case-1', 'ann', 'asked by the court')"
PACK = "SELECT payload_pack() ->> '$.rows'"


def connect(path=":memory:"):
    db = sqlite3.connect(str(path), isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    return db


def one(db, sql, *args):
    return db.execute(sql, args).fetchone()[0]


def domains():
    """The names of the domains of the module."""
    told = one(connect(), "SELECT blackbox_install('main', 'all')")
    return told.removeprefix("main: ").split(", ")


def installed(path, names, *statements):
    """A new file with domains, and what statements add to it."""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', ?)", ",".join(names))
    for sql in statements:
        db.execute(sql)
    return db


def schema(path, names, *statements):
    """The objects of a new file, and the bytes of their text."""
    db = installed(path, names, *statements)
    of = one(db, "SELECT count(*) FROM sqlite_schema"), one(
        db, "SELECT sum(length(CAST(sql AS BLOB))) FROM sqlite_schema")
    db.close()
    return of


def lines(*patterns):
    return sum(path.read_bytes().count(b"\n") for p in patterns for path in ROOT.glob(p))


def schemas(folder):
    """What each part adds to the schema. Leaves empty.db, which has all domains and a ring."""
    known = domains()
    core = schema(":memory:", ["core"])
    payload = schema(":memory:", ["core", "payload"])
    everything = schema(":memory:", known)
    ring = schema(folder / "empty.db", known, RING)
    buffer = schema(":memory:", known, RING, BUFFER)
    parts = {": core": (core, (0, 0)), ": each ring": (ring, everything),
             ": each evidence buffer": (buffer, ring)}
    for name in known:
        if name != "core":
            parts[" beside core: " + name] = schema(":memory:", ["core", name]), core
    found = {"objects: core and payload": payload[0], "objects: all": everything[0]}
    for part, (more, less) in parts.items():
        found["objects" + part] = more[0] - less[0]
        found["bytes of text" + part] = more[1] - less[1]
    return found


def change_of_version(folder, before, sql):
    """By how much a call that does something changes schema_version."""
    shutil.copy(folder / "empty.db", folder / "version.db")
    db = connect(folder / "version.db")
    db.execute(before)
    version = one(db, "PRAGMA schema_version")
    assert one(db, sql) > 0, sql
    return one(db, "PRAGMA schema_version") - version


def counted(folder):
    """What needs neither valgrind nor a clock."""
    files(folder)
    found = schemas(folder)
    for what, file in (("payload", "payload"), ("all, a ring", "all")):
        found[f"bytes of memory for the schema: {what}"] = run([reading("memory", folder, file)])[0]
    found["bytes of an empty file: all, a ring"] = (folder / "empty.db").stat().st_size
    db = sqlite3.connect(folder / "empty.db")
    found["bytes of an empty file, without its rows: all, a ring"] = 4096 * one(
        db, "SELECT sum(rootpage > 0) + 1 + sum(length(CAST(type || name || tbl_name ||"
            " coalesce(sql, '') AS BLOB))) / 4096 FROM sqlite_schema")
    db.close()
    db = connect(folder / "all.db")
    for what, (sql, _) in INSERTS.items():
        found[f"opcodes of INSERT: {what}"] = len(
            db.execute("EXPLAIN " + sql, (None,) * sql.count("?")).fetchall())
    db.close()
    rows = ("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
            f" SELECT 'e', 'a', {BODY}, 'archive' FROM json_each('[1, 2, 3]')")
    found["changes of schema_version: the first hold"] = change_of_version(folder, rows, HOLD)
    found["changes of schema_version: the first pack"] = change_of_version(folder, rows, PACK)
    # with the queries of reports, which are SQL that C embeds
    found["lines: C in ext"] = lines("ext/**/*.[ch]", "ext/**/*.sql")
    found["lines: SQL in sql"] = lines("sql/*.sql")
    return found


def own_table(db, name):
    """The SQL of a table and its indexes, without triggers."""
    return ";".join(sql for sql, in db.execute(
        "SELECT sql FROM sqlite_schema WHERE tbl_name = ? AND type IN ('table', 'index')"
        " AND sql IS NOT NULL ORDER BY type = 'index'", (name,)))


def files(folder):
    """New files to be opened and written."""
    installed(folder / "payload.db", ["core", "payload"]).close()
    installed(folder / "payload_ring.db", ["core", "payload"], RING).close()
    db = installed(folder / "all.db", domains(), RING,
                   f"INSERT INTO rollouts(id) VALUES('{CONVERSATION}')")
    plain = {"plain": "CREATE TABLE t(a)", "archive": own_table(db, "event_payloads"),
             "agentgazer": AGENTGAZER, "cache": own_table(db, "cache_items"),
             "rollout_log": ROLLOUT}
    db.close()
    for name, sql in plain.items():
        db = sqlite3.connect(folder / f"{name}.db")
        db.executescript(sql)
        db.close()


def reading(mode, folder, file):
    """A job for tools/weigh.c that opens a file and reads a row."""
    return mode, folder / f"{file}.db", "SELECT name FROM sqlite_schema LIMIT 1", "", 0, 0


def inserting(mode, folder, file, what, per, count):
    """A job for tools/weigh.c that inserts rows."""
    sql, rows = INSERTS[what]
    return mode, folder / f"{file}.db", NUMBERED if file == "rollout_log" else sql, rows, per, count


def run(jobs, *before):
    """The numbers that jobs print; with a command before them, their processes."""
    done = subprocess.run([*before, PROGRAM, *(str(arg) for job in jobs for arg in job)],
                          stdout=subprocess.PIPE, text=True, check=True)
    return [int(line.split()[0 if before else 1]) for line in done.stdout.splitlines()]


def compared():
    """Each comparison: the name of its figures, what is inserted and how, and into which files."""
    for what in INSERTS:
        yield f"INSERT prepared anew, {{}}: {what}", what, "anew", 100
    for per, how in ((1, "autocommit"), (100, "100 a transaction")):
        yield f"INSERT prepared once, {{}}: archive, {how}", "archive", "kept", per


def tables(what):
    """The files that have a table to compare with."""
    return {"plain's": what, **({"AgentGazer's": "agentgazer"} if what == "archive" else {})}


def instructions(folder, beside=True):
    """What valgrind counts: almost the same at each run, as only ids are random. With beside,
    also the ratios to the tables to compare with."""
    files(folder)
    opened = {"plain": "plain", "payload": "payload", "payload, a ring": "payload_ring",
              "all, a ring": "all"}
    jobs = {what: reading("open", folder, file) for what, file in opened.items()}
    for name, what, mode, per in compared():
        count = 100 if mode == "kept" else 2
        for file in ("all", *(tables(what).values() if beside else ())):
            jobs[name, file] = inserting(mode, folder, file, what, per, count)
    processes = run(jobs.values(), "valgrind", "-q", "--tool=callgrind",
                    "--toggle-collect=measured*", f"--callgrind-out-file={folder}/%p.calls")
    cost = {}
    for (key, job), process in zip(jobs.items(), processes, strict=True):
        told = (folder / f"{process}.calls").read_text()
        cost[key] = int(re.search(r"^totals: (\d+)", told, re.M)[1]) // (job[-1] or 1)
    plain = cost["plain"]
    found = {"open and read once, instructions: plain": plain}
    for what in list(opened)[1:]:
        found[f"open and read once, instructions of plain's: {what}"] = cost[what] / plain
    for name, what, _, _ in compared():
        ours = found[name.format("instructions")] = cost[name, "all"]
        for whose, file in tables(what).items() if beside else ():
            found[name.format("instructions of " + whose)] = ours / cost[name, file]
    return found


def timed(folder, rounds=11):
    """Medians of ratios, each of which is taken within a round."""
    files(folder)
    found = {}
    for name, what, mode, per in compared():
        sides = ["all", *tables(what).values()]
        count = 500 if mode == "kept" else 100
        spent = run([inserting(mode, folder, file, what, per, count) for file in sides] * rounds)
        ours = spent[::len(sides)]
        for i, whose in enumerate(tables(what), 1):
            found[name.format("time of " + whose)] = statistics.median(
                mine / other for mine, other in zip(ours, spent[i::len(sides)], strict=True))
    return found


def main():
    found = {}
    for find in (counted, timed, *([instructions] if shutil.which("valgrind") else [])):
        with tempfile.TemporaryDirectory() as folder:
            found |= find(pathlib.Path(folder))
    print(f"SQLite {sqlite3.sqlite_version}. The module is not loaded in the connections whose\n"
          "memory, instructions and times are measured. Objects are all rows of\n"
          "sqlite_schema, sqlite_autoindex_* included.\n")
    print(f"{'figure':78} {'measured':>11} {'ceiling':>11} {'bound':>8}")
    for figure in {**FIGURES, **found}:
        value, (ceiling, bound) = found.get(figure), FIGURES.get(figure, (None, None))
        row = [f"{v:,}" if isinstance(v, int) else f"{v:.2f}" if v else ""
               for v in (value, ceiling, bound)]
        if value is None:
            row[0] = "no valgrind"
        holds = "" if None in (value, bound) else "  holds" if value <= bound else "  over"
        print(f"{figure:78} {row[0]:>11} {row[1]:>11} {row[2]:>8}{holds}")


if __name__ == "__main__":
    main()
