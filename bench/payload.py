"""payload.py: the ring, the kill switch, the queue and the clean-up."""
import itertools
import os
import pathlib
import tempfile
import uuid

from run import Case, connect, timed

AGENTS = 20
WINDOW = 50
EVENT = "0f8fad5b-d9cb-469f-a165-70867728950e"

# The two recipes that people use in place of a ring, with the index they need.
PLAIN = """
CREATE TABLE {schema}t(id INTEGER PRIMARY KEY, agent_id TEXT, event_id TEXT,
  request_body TEXT, response_body TEXT, timestamp INTEGER);
"""
OFFSET = PLAIN + """
CREATE INDEX {schema}t_agent ON t(agent_id, id);
CREATE {temp} TRIGGER t_ring AFTER INSERT ON t BEGIN
  DELETE FROM t WHERE id IN (SELECT id FROM t WHERE agent_id = NEW.agent_id
    ORDER BY id DESC LIMIT -1 OFFSET 50);
END;
"""
COUNT = PLAIN + """
CREATE INDEX {schema}t_agent ON t(agent_id, id);
CREATE {temp} TRIGGER t_ring AFTER INSERT ON t
WHEN (SELECT count(*) FROM t WHERE agent_id = NEW.agent_id) > 50 BEGIN
  DELETE FROM t WHERE id = (SELECT min(id) FROM t WHERE agent_id = NEW.agent_id);
END;
"""
RING = "CREATE VIRTUAL TABLE {schema}t USING payload_ring(window=50);"
INSERT = (
    "INSERT INTO t(agent_id, event_id, request_body, response_body, timestamp) "
    "VALUES(?,?,?,?,?)"
)


def exchanges(agents, size):
    """Endless rows of agents in turn, with bodies of size bytes together, whose lengths vary by
    some bytes like real ones."""
    names = [f"agent-{i:05d}" for i in range(agents)]
    body = os.urandom(size).hex()[: size // 2 - 40]
    for i in itertools.count():
        extra = "x" * (i * 7919 % 80)
        yield names[i % agents], EVENT, body + extra, body, 1700000000000 + i


def push(ddl, size, per_transaction, temp, pushes, agents=AGENTS, fill=WINDOW + 2):
    """A side that pushes into a table in its steady state."""

    def side(folder):
        db = connect(":memory:" if temp else folder / "ring.db", wal=not temp)
        schema = "temp." if temp else ""
        db.executescript(ddl.format(schema=schema, temp="TEMP" if temp else ""))
        source = exchanges(agents, size)
        db.execute("BEGIN")
        db.executemany(INSERT, itertools.islice(source, agents * fill))
        db.execute("COMMIT")
        batch = list(itertools.islice(source, pushes))

        def run():
            if per_transaction == 1:
                db.executemany(INSERT, batch)
                return
            for i in range(0, pushes, per_transaction):
                db.execute("BEGIN")
                db.executemany(INSERT, batch[i : i + per_transaction])
                db.execute("COMMIT")

        seconds = timed(run)
        db.close()
        return seconds

    return side


def ring_case(size, per_transaction, temp, limits, pushes):
    """limits: compared with the faster recipe, and with the plain INSERT."""
    where = "temp" if temp else "file, WAL"
    how = "autocommit" if per_transaction == 1 else f"{per_transaction} a transaction"
    sides = {
        "ring": push(RING, size, per_transaction, temp, pushes),
        "plain INSERT": push(PLAIN, size, per_transaction, temp, pushes),
        "OFFSET trigger": push(OFFSET, size, per_transaction, temp, pushes),
        "count trigger": push(COUNT, size, per_transaction, temp, pushes),
    }
    return Case(
        f"ring push, {size / 1000:g} KB, {where}, {how}",
        sides,
        [
            ("ring", ("OFFSET trigger", "count trigger"), limits[0]),
            ("ring", "plain INSERT", limits[1]),
        ],
        rounds=7,
        why="There is no file whose writes the ring could save: what is left are "
        "its two statements and the way through a virtual table." if temp else
        "The time goes into writing the bodies, as for a plain INSERT.",
    )


def many_agents():
    ddl = RING.replace("50", "4")
    return Case(
        "ring push with 10,000 agents and with 10, 2.5 KB, file, WAL, autocommit",
        {
            "10,000 agents": push(ddl, 2500, 1, False, 5000, 10000, 5),
            "10 agents": push(ddl, 2500, 1, False, 5000, 10, 5),
        },
        [("10,000 agents", "10 agents", 1.3)],
        rounds=7,
        note="Full rings with a window of 4, so that the larger one is a file of "
        "160 MB. Ten agents rewrite the same 40 pages, which stay in the cache and "
        "which a checkpoint writes once; of 10,000 agents each push has a page of "
        "its own, to be read and to be written.",
    )


def bounds():
    wide = RING.replace("window=50", "window=50, max_bytes=1000000000, idle_days=30")
    tight = RING.replace("window=50", "window=50, max_bytes=1000000")
    return Case(
        "ring push with max_bytes and without, 2.5 KB, file, WAL, autocommit",
        {
            "no bound": push(RING, 2500, 1, False, 3000),
            "a bound that is not reached": push(wide, 2500, 1, False, 3000),
            "a bound that each push makes room for": push(tight, 2500, 1, False, 3000),
        },
        [
            ("a bound that is not reached", "no bound", 2.5),
            ("a bound that each push makes room for", "no bound", 5.0),
        ],
        rounds=7,
        note="A ring with a bound keeps the sum of its bytes and the order in which its "
        "agents pushed. With 20 agents of 50 exchanges it would hold 2.5 MB: the "
        "last side may have 1 MB, so each push takes the oldest row of another agent.",
    )


def kill_switch():
    def database(folder):
        db = connect(folder / "kill.db")
        db.execute("SELECT blackbox_install('main', 'all')").fetchone()
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
        db.execute("CREATE TABLE copied(id INTEGER PRIMARY KEY, agent_id TEXT, "
                   "event_id TEXT, request_body TEXT, response_body TEXT, "
                   "timestamp INTEGER)")
        db.executemany(
            INSERT.replace("INTO t", "INTO ring"),
            itertools.islice(exchanges(10, 25000), 600),
        )
        return db

    def ours(folder):
        db = database(folder)
        return fire(db, lambda i: (
            "SELECT payload_kill_switch('ring', ?, ?)", (f"agent-{i:05d}", f"k{i}")))

    def copy(folder):
        db = database(folder)
        return fire(db, lambda i: (
            "INSERT INTO copied(agent_id, event_id, request_body, response_body, "
            "timestamp) SELECT agent_id, event_id, request_body, response_body, "
            "timestamp FROM ring WHERE agent_id = ?", (f"agent-{i:05d}",)))

    def move(folder):
        db = database(folder)
        db.execute("CREATE TABLE source AS SELECT * FROM ring")
        db.execute("CREATE INDEX source_agent ON source(agent_id)")
        return fire(db, lambda i: (
            "INSERT INTO copied(agent_id, event_id, request_body, response_body, "
            "timestamp) SELECT agent_id, event_id, request_body, response_body, "
            "timestamp FROM source WHERE agent_id = ?", (f"agent-{i:05d}",)),
            "DELETE FROM source WHERE agent_id = ?")

    def fire(db, statement, then=None):
        def run():
            for i in range(10):
                db.execute("BEGIN")
                db.execute(*statement(i)).fetchall()
                if then:
                    db.execute(then, (f"agent-{i:05d}",))
                db.execute("COMMIT")

        seconds = timed(run)
        db.close()
        return seconds

    return Case(
        "kill switch, 50 rows of 25 KB",
        {"kill switch": ours, "INSERT..SELECT": copy, "INSERT..SELECT, DELETE": move},
        [
            ("kill switch", "INSERT..SELECT", 1.5),
            ("kill switch", "INSERT..SELECT, DELETE", None),
        ],
        rounds=9,
        note="Ten agents in turn. The INSERT..SELECT copies the rows into a table "
        "without indexes and empties nothing; with the DELETE it moves them from a "
        "plain table, as the kill switch does from the ring. Debian builds SQLite "
        "with SECURE_DELETE, which writes every page of a deleted row again.",
        why="The copy does a part of the work: the kill switch also empties the "
        "ring, pins each row and keeps the indexes of the archive.",
    )


ARCHIVE = """
CREATE TABLE event_payloads(
  id TEXT PRIMARY KEY, event_id TEXT NOT NULL, agent_id TEXT NOT NULL,
  request_body TEXT, response_body TEXT, size_bytes INTEGER NOT NULL DEFAULT 0,
  purpose TEXT NOT NULL CHECK (purpose IN ('archive', 'evidence')),
  pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT,
  created_at TEXT NOT NULL DEFAULT (datetime('now')));
CREATE INDEX idx_payloads_event_id ON event_payloads(event_id);
CREATE INDEX idx_payloads_agent_id ON event_payloads(agent_id);
CREATE INDEX idx_payloads_purpose ON event_payloads(purpose);
CREATE INDEX idx_payloads_created_at ON event_payloads(created_at);
CREATE INDEX idx_payloads_kill_switch ON event_payloads(kill_switch_event_id);
"""


def queue():
    rows = [
        (str(uuid.uuid4()), agent, request, response)
        for agent, _, request, response, _ in itertools.islice(
            exchanges(AGENTS, 2500), 2000)
    ]

    def queued(statement):
        def side(folder):
            db = connect(folder / "queue.db")
            db.execute("SELECT blackbox_install('main', 'all')").fetchone()
            db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
                       "('payload.queue_mode', 'memory')")

            def run():
                for row in rows:
                    db.execute(statement, row).fetchone()
                db.execute("SELECT payload_flush()").fetchone()

            seconds = timed(run)
            db.close()
            return seconds
        return side

    def each(folder):
        db = connect(folder / "each.db")
        db.executescript(ARCHIVE)
        ids = [str(uuid.uuid4()) for _ in rows]

        def run():
            for new_id, (event, agent, request, response) in zip(ids, rows):
                db.execute(
                    "INSERT INTO event_payloads(id, event_id, agent_id, "
                    "request_body, response_body, size_bytes, purpose) "
                    "VALUES(?,?,?,?,?,?,'archive')",
                    (new_id, event, agent, request, response,
                     len(request) + len(response)),
                )

        seconds = timed(run)
        db.close()
        return seconds

    return Case(
        "archive of 2.5 KB: the queue in mode memory, and one INSERT each",
        {
            "payload_queue()": queued("SELECT payload_queue(?,?,?,?)"),
            "INSERT INTO payload_queue": queued(
                "INSERT INTO payload_queue(event_id, agent_id, request_body, "
                "response_body) VALUES(?,?,?,?)"),
            "INSERT each": each,
        },
        [
            ("payload_queue()", "INSERT each", 0.5),
            ("INSERT INTO payload_queue", "INSERT each", None),
        ],
        rounds=9,
        note="All in autocommit, in a file with a write-ahead log and the same "
        "synchronous. The single INSERTs go into the five-index table without any "
        "rule, and their random ids were made before; the queue makes its ids in the "
        "measured time, and the archive has all its rules. The ids of the queue begin "
        "with the time, so that a flush changes fewer pages of their index.",
        why="A flush saves the commits, which are most of the writing. What is left are "
        "the body of each row, three indexes by time, each of which computes it, the "
        "triggers with the rules, each of which runs for each row, and the temporary "
        "table in which SQLite collects the rows, as the archive has triggers.",
    )


def durable():
    rows = [
        (str(uuid.uuid4()), event, agent, request, response,
         len(request) + len(response))
        for agent, event, request, response, _ in itertools.islice(
            exchanges(AGENTS, 2500), 2000)
    ]

    def side(statement, columns):
        def run_side(folder):
            db = connect(folder / "durable.db")
            db.execute("SELECT blackbox_install('main', 'all')").fetchone()
            db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
            given = [row[columns] for row in rows]

            def run():
                for row in given:
                    db.execute(statement, row).fetchone()

            seconds = timed(run)
            db.close()
            return seconds
        return run_side

    return Case(
        "archive of 2.5 KB: the queue in mode durable, and one INSERT each",
        {
            "payload_queue()": side(
                "SELECT payload_queue(?,?,?,?)", slice(1, 5)),
            "INSERT INTO payload_queue": side(
                "INSERT INTO payload_queue(event_id, agent_id, request_body, "
                "response_body) VALUES(?,?,?,?)", slice(1, 5)),
            "plain INSERT": side(
                "INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
                "response_body, size_bytes, purpose) VALUES(?,?,?,?,?,?,'archive')",
                slice(0, 6)),
        },
        [
            ("payload_queue()", "plain INSERT", 1.05),
            ("INSERT INTO payload_queue", "plain INSERT", 1.05),
        ],
        rounds=9,
        note="All into the same table, with its rules, in autocommit, in a file with a "
        "write-ahead log. The ids of the plain INSERT are random and were made before; "
        "the queue makes its ids in the measured time. They begin with the time.",
        why="An INSERT INTO payload_queue runs one statement in another. For the inner "
        "one SQLite keeps a copy of each page that it changes, to be able to undo it "
        "alone.",
    )


def archive_bytes():
    def side(limit, filled):
        def run_side(folder):
            db = connect(folder / "archive.db")
            db.execute("SELECT blackbox_install('main', 'all')").fetchone()
            insert = ("INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
                      "response_body, size_bytes, purpose) VALUES(?,?,?,?,?,?,'archive')")
            source = (
                (str(uuid.uuid4()), event, agent, request, response,
                 len(request) + len(response))
                for agent, event, request, response, _ in exchanges(AGENTS, 2500))
            db.execute("BEGIN")
            db.executemany(insert, itertools.islice(source, filled))
            db.execute("COMMIT")
            if limit:
                db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.max_bytes', "
                           "(SELECT sum(size_bytes) FROM event_payloads) + ?)", (limit,))
            batch = list(itertools.islice(source, 1000))

            def run():
                for row in batch:
                    db.execute(insert, row)

            seconds = timed(run)
            db.close()
            return seconds
        return run_side

    return Case(
        "archive INSERT of 2.5 KB with payload.max_bytes and without, file, WAL, autocommit",
        {
            "no limit": side(0, 1000),
            "a limit that is not reached": side(1 << 40, 1000),
            "each INSERT makes room": side(1, 1000),
            "each makes room in 20,000 rows": side(1, 20000),
        },
        [
            ("a limit that is not reached", "no limit", 1.6),
            ("each INSERT makes room", "no limit", 3.5),
            ("each makes room in 20,000 rows", "each INSERT makes room", 2.5),
        ],
        rounds=7,
        note="With a limit, each row has an entry in payload_sizes: eight B-trees in "
        "place of six. To make room is a DELETE from all of these and a receipt: what "
        "an INSERT does, a second and third time. SECURE_DELETE writes each page that "
        "becomes free. 20,000 rows are a file of 60 MB, which is larger than the page "
        "cache; a scan would take twenty times as long.",
    )


class Archive:
    """An archive of total rows whose oldest 1,000 expire again and again."""

    def __init__(self, total, ordered_ids):
        self.total, self.ordered, self.round = total, ordered_ids, 0
        self.folder = None

    def build(self):
        self.folder = tempfile.TemporaryDirectory()
        db = connect(pathlib.Path(self.folder.name) / "archive.db")
        db.execute("SELECT blackbox_install('main', 'all')").fetchone()
        # Ids that begin with the time, as UUID version 7 has them, or random.
        new_id = "printf('%012x-7000-8000', i)" if self.ordered else "NULL"
        db.execute("BEGIN")
        db.execute(
            "INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
            "size_bytes, purpose, created_at) "
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n "
            f"WHERE i < ? - 1) SELECT coalesce({new_id}, lower(hex(randomblob(16)))),"
            "  printf('%012x', i), 'agent-' || (i % 20), printf('%.*c', 300, 'x'),"
            "  300, 'archive',"
            "  strftime('%Y-%m-%dT%H:%M:%fZ', 1600000000 + i, 'unixepoch') FROM n",
            (self.total,),
        )
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()

    def side(self, folder):
        if self.folder is None:
            self.build()
        db = connect(pathlib.Path(self.folder.name) / "archive.db")
        db.execute("SELECT count(*) FROM payload_check LIMIT 0").fetchall()
        self.round += 1
        now = (1600000000 + 1000 * self.round) * 1000
        removed = []
        seconds = timed(lambda: removed.extend(
            db.execute("SELECT payload_cleanup(0, ?)", (now,)).fetchone()))
        assert removed == [1000], removed
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.close()
        return seconds


def clean_up(ordered_ids):
    how = "ids in order of time" if ordered_ids else "random ids"
    return Case(
        f"clean-up of 1,000 expired rows among 1,000,000 and among 10,000, {how}",
        {
            "1,000,000": Archive(1000000, ordered_ids).side,
            "10,000": Archive(10000, ordered_ids).side,
        },
        [("1,000,000", "10,000", 1.2)],
        rounds=7,
        note="" if ordered_ids else "With random ids (UUID version 4) the index "
        "of the primary key has each expired row on another page, in whatever "
        "design: among 1,000,000 rows that is 1,000 pages in place of 130.",
        why="" if ordered_ids else "The index of random ids has each row on a "
        "page of its own, in any design.",
    )


def loading():
    def ours(folder):
        db = connect(":memory:", wal=False)
        db.close()
        return timed(lambda: connect(":memory:", wal=False).execute(
            "SELECT blackbox_version()").fetchone())

    def bare(folder):
        import sqlite3
        return timed(lambda: sqlite3.connect(":memory:").execute(
            "SELECT 1").fetchone())

    return Case(
        "open, load and one trivial call; open and SELECT 1",
        {"load": ours, "SELECT 1": bare},
        [("load", "SELECT 1", None)],
        rounds=21,
    )


def cases():
    small, large = 2500, 25000
    return [
        ring_case(small, 1, False, (0.6, 1.1), 3000),
        ring_case(large, 1, False, (1.0, None), 1000),
        ring_case(small, 100, False, (1.0, None), 5000),
        ring_case(large, 100, False, (1.0, None), 1000),
        ring_case(small, 1, True, (0.8, None), 5000),
        ring_case(small, 100, True, (0.75, None), 5000),
        many_agents(),
        bounds(),
        kill_switch(),
        queue(),
        durable(),
        archive_bytes(),
        clean_up(True),
        clean_up(False),
        loading(),
    ]
