"""payload.py: the ring, the kill switch, the queue and the archive."""
import hashlib
import itertools
import re
import uuid

from run import ANEW, Case, checkpoint, connect, exchanges, installed, kb, like, once, plain
from run import prose, timed, ways, writes

AGENTS = 20
WINDOW = 50

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
PUSH = (
    "INSERT INTO t(agent_id, event_id, request_body, response_body, timestamp) "
    "VALUES(?,?,?,?,?)"
)


def target(ddl, mean, temp=False, agents=AGENTS, fill=WINDOW + 2):
    """The arguments of writes() for pushes into a table in its steady state."""
    ddl = ddl.format(schema="temp." if temp else "", temp="TEMP" if temp else "")
    return ((ddl, PUSH, lambda: exchanges(agents, mean)),
            {"module": "VIRTUAL" in ddl, "fill": agents * fill})


def push(*how, calls=2000, per=1, **more):
    given, named = target(*how, **more)
    return writes(*given, **named, calls=calls, per=per)


def ring_case(mean, per, temp, limits, calls):
    """limits: compared with the faster recipe, and with the plain INSERT."""
    where = "temp" if temp else "file, WAL"
    how = "autocommit" if per == 1 else f"{per} a transaction"
    tables = {"ring": RING, "plain INSERT": PLAIN, "OFFSET trigger": OFFSET,
              "count trigger": COUNT}
    return Case(
        f"ring push, {kb(mean)}, {where}, {how}",
        {label: push(ddl, mean, temp, calls=calls, per=per) for label, ddl in tables.items()},
        [
            ("ring", ("OFFSET trigger", "count trigger"), limits[0]),
            ("ring", "plain INSERT", limits[1]),
        ],
        rounds=7,
        why="There is no file whose writes the ring could save: what is left are "
        "its statements and the way through a virtual table." if temp else
        "These bodies share less than those of a conversation.",
    )


def talks(agents, mean):
    """Endless rows of agents in turn, whose conversations grow by 5 % with each request, and begin
    anew when they are long."""
    size, start, text = [0] * agents, [0] * agents, prose()
    for i, (agent, event, _, response, at) in enumerate(exchanges(agents, mean)):
        k = i % agents
        size[k] += mean // 20
        if not start[k] or size[k] > 1.6 * mean:
            start[k] = i * 7919 % (len(text) - 2 * mean)
            size[k] = int(mean * (0.4 if i >= agents else 0.4 + 1.2 * k / agents))
        yield agent, event, text[start[k]:start[k] + size[k]] + '"]}', response[:mean // 60], at


def strangers(agents, mean):
    """Endless rows of agents in turn, whose requests have nothing in common, and have all sizes."""
    text = prose()
    for i, (agent, event, _, response, at) in enumerate(exchanges(agents, mean)):
        size, start = mean // 3 + i * 7907 % (4 * mean // 3), i * 7919 % (len(text) - 2 * mean)
        yield agent, event, f"{i:08d} " + text[start:start + size], response[:mean // 60], at


def filled(path, ddl, rows, journal="WAL"):
    """A connection to a file whose table is in its steady state, and the rows that come next."""
    db = (installed if "VIRTUAL" in ddl else plain)(path)
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    db.execute("PRAGMA secure_delete = 1").fetchall()
    db.executescript(ddl.format(schema="", temp=""))
    db.execute("BEGIN")
    db.executemany(PUSH, rows)
    db.execute("COMMIT")
    checkpoint(db)
    return db


def talk_case(mean, agents, calls, limit, per=1, rows=talks, **more):
    def side(ddl):
        return writes(ddl.format(schema="", temp=""), PUSH, lambda: rows(agents, mean),
                      module="VIRTUAL" in ddl, fill=agents * (WINDOW + 5), calls=calls, per=per)
    return Case(
        f"ring push of {'conversations' if rows is talks else 'what shares nothing'}, {kb(mean)}, "
        + ("autocommit" if per == 1 else f"{per} a transaction"),
        {"ring": side(RING), "plain INSERT": side(PLAIN)},
        [("ring", "plain INSERT", limit)],
        rounds=9,
        note="Each request repeats the one before and has 5 % more; the ring writes what is new."
        if rows is talks else "", **more)


def masked(mean, agents, calls, limit, rows=talks, why=""):
    """Pushes with payload.secrets = mask, which looks for keys and passwords in what is new."""
    def side(setting):
        return writes(f"{RING.format(schema='')}UPDATE blackbox_settings SET value = '{setting}'"
                      " WHERE name = 'payload.secrets'", PUSH, lambda: rows(agents, mean),
                      fill=agents * (WINDOW + 5), calls=calls)
    return Case(
        f"ring push of {'conversations' if rows is talks else 'what shares nothing'}, {kb(mean)}, "
        "payload.secrets = mask",
        {"mask": side("mask"), "keep": side("keep")}, [("mask", "keep", limit)], rounds=9, why=why)


TWO_PAGES = ("A push writes two pages, that of the agent with the newest text, and that of the "
             "exchange; a plain INSERT of a small body writes 2.8. Two rows of plain tables "
             "that are overwritten take 0.7 to 0.8 of its time, and 0.72 of its bytes.")
CHUNKS = ("A push writes two pages, that of the agent and that of the exchange, and one for each 3,500 "
          "bytes that are new: a chunk leaves 500 bytes of its page empty, so that the newest one "
          "has room in the agent's row. A plain INSERT of 25 KB writes 5.8 pages of the body, and 2.7 "
          "others. Of conversations a push writes 2.5 pages of 8.4, of which two rows overwritten are "
          "0.24; of what shares nothing, 9.3.")


def talk_ways(mean, agents, calls, cold, journal):
    """Pushes of conversations by two connections in turn, and with a rollback journal. Of each
    agent, too, they push in turn. Each has pushed before, so its statements are prepared."""
    def side(ddl, journal, connections, calls):
        def run_side(folder):
            source = talks(agents, mean)
            db = filled(folder / "talk.db", ddl, itertools.islice(source, agents * (WINDOW + 5)),
                        journal)
            opened = connect if "VIRTUAL" in ddl else plain
            dbs = [db] + [opened(folder / "talk.db") for _ in range(connections - 1)]

            def run(count):
                for i, row in enumerate(itertools.islice(source, count)):
                    dbs[(i + i // agents) % connections].execute(PUSH, row)
            run(2 * agents)
            return timed(lambda: run(calls)) / calls
        return run_side
    return Case(
        f"ring push of conversations, {kb(mean)}, two connections in turn, and a rollback journal",
        {f"{label}, {how}": side(ddl, *way) for label, ddl in (("ring", RING), ("plain", PLAIN))
         for how, way in (("two connections", ("WAL", 2, calls)),
                          ("rollback journal", ("DELETE", 1, 4 * agents)))},
        [("ring, two connections", "plain, two connections", cold),
         ("ring, rollback journal", "plain, rollback journal", journal)],
        note="A connection that was not the last to push reads the newest texts of an agent again.",
        why="After a commit of another connection SQLite reads its pages again: 13 for a push, among "
        "them those of settings and holds, and 4 for a plain INSERT. Without the time of the disk, the "
        "barest statements of a push (an agent is read, its row and that of an exchange are "
        "overwritten) take 0.4 of the time of an INSERT. A rollback journal gets the old "
        "content of each page that changes: two or three for a push; a plain INSERT adds pages, which "
        "have none. These statements take 0.7 of an INSERT there, and both wait for the disk as often.")


def megabytes(n):
    return f"{n / 1e6:.3g} MB"


def talk_bytes(mean, agents, limit, file_limit, rows=talks, fill=120):
    """Bytes that pushes write into the WAL, and bytes of the file."""
    def side(ddl, of_file):
        def run_side(folder):
            source = rows(agents, mean)
            db = filled(folder / "talk.db", ddl, itertools.islice(source, agents * fill))
            if of_file:
                schema = 0
                if "VIRTUAL" in ddl:
                    schema = once("installed", installed).stat().st_size
                else:
                    db.execute("DELETE FROM t WHERE id <= ?", (agents * (fill - WINDOW),))
                    db.execute("VACUUM")
                    checkpoint(db)
                return (folder / "talk.db").stat().st_size - schema
            db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
            for row in itertools.islice(source, 10 * agents):
                db.execute(PUSH, row)
            return (folder / "talk.db-wal").stat().st_size
        return run_side

    def overwritten(folder):
        """The row of an agent, with its newest text, and that of an exchange: a page each."""
        db = plain(folder / "two.db")
        db.execute("CREATE TABLE a(id INTEGER PRIMARY KEY, page)")
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, event, request, response)")
        for id in range(agents):
            db.execute("INSERT INTO a VALUES(?, randomblob(3930))", (id,))
        for id in range(agents * WINDOW):
            db.execute("INSERT INTO t VALUES(?, ?, ?, ?)", (id, "e" * 80, b"q" * 9, b"r" * 9))
        checkpoint(db)
        db.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        for i in range(10 * agents):
            db.execute("BEGIN")
            db.execute("UPDATE a SET page = randomblob(3930) WHERE id = ?", (i % agents,))
            db.execute("UPDATE t SET event = hex(randomblob(40)) WHERE id = ?",
                       (i % agents * WINDOW + i // agents,))
            db.execute("COMMIT")
        return (folder / "two.db-wal").stat().st_size

    return Case(
        f"bytes of a ring of {'conversations' if rows is talks else 'what shares nothing'}, "
        f"{kb(mean)}",
        {"WAL of the ring": side(RING, False), "WAL of plain INSERTs": side(PLAIN, False),
         "WAL of two rows overwritten": overwritten,
         "file of the ring": side(RING, True), "file of plain rows": side(PLAIN, True)},
        [("WAL of the ring", "WAL of plain INSERTs", limit),
         ("WAL of two rows overwritten", "WAL of plain INSERTs", None),
         ("file of the ring", "file of plain rows", file_limit)],
        rounds=1, shown=megabytes, why=TWO_PAGES if mean < 4000 else CHUNKS,
        note="Full rings. The plain file has the same rows, and was written anew (VACUUM); of the "
        "file of the ring the schema of all domains is taken away.")


def talk_reads(mean, agents, one, fifty, rows=talks):
    def side(ddl, column, whole):
        def run_side(folder):
            ddl_too = ddl if "VIRTUAL" in ddl else ddl + "CREATE INDEX t_agent ON t(agent_id, id);"
            db = filled(folder / "read.db", ddl_too,
                        itertools.islice(rows(agents, mean), agents * (WINDOW + 10)))
            if "VIRTUAL" not in ddl:
                db.execute("DELETE FROM t WHERE id <= ?", (agents * 10,))
            names = [f"agent-{i:05d}" for i in range(agents)]
            which = [row[0] for row in db.execute(
                f"SELECT {column} FROM t WHERE agent_id = ?", names[:1])]
            sql = "SELECT request_body FROM t WHERE agent_id = ? " + (
                f"ORDER BY {column}" if whole else f"AND {column} = ?")
            asked = [(name,) for name in names] * 4 if whole else [
                (names[0], which[i * 37 % len(which)]) for i in range(300)]
            return timed(lambda: [db.execute(sql, key).fetchall() for key in asked])
        return run_side
    return Case(
        f"ring reads of {'conversations' if rows is talks else 'what shares nothing'}, {kb(mean)}",
        {f"{label}, {how}": side(ddl, column, whole)
         for label, ddl, column in (("ring", RING, "seq"), ("plain", PLAIN, "id"))
         for how, whole in (("one row", False), ("50 rows", True))},
        [("ring, one row", "plain, one row", one), ("ring, 50 rows", "plain, 50 rows", fifty)],
        why="A body is put together from some eight chunks, each with its hash. The barest statements "
        "(an agent, an exchange and eight rows are read, and copied) take 1.6 of the time of a plain "
        "row of 25 KB, which is 5 us; and 1.4 for 50 rows of what shares nothing, as a chunk fills 0.85 "
        "of its page, and comes through the page cache. Of 50 rows of a conversation the host copies "
        "each text, on both sides: that alone is a fifth of the time of plain rows, and it keeps them.")


def ring_ways(mean):
    return ways(
        f"ring push, {kb(mean)}, prepared anew and opened for each",
        [("ring", *target(RING, mean)), ("plain table", *target(PLAIN, mean, fill=0))],
        how=ANEW)


def many_agents():
    ddl = RING.replace("50", "4")
    return Case(
        "ring push with 10,000 agents and with 10, 2.5 KB, file, WAL, autocommit",
        {
            "10,000 agents": push(ddl, 2500, agents=10000, fill=5),
            "10 agents": push(ddl, 2500, agents=10, fill=5),
        },
        [("10,000 agents", "10 agents", 1.3)],
        rounds=7,
        note="Full rings with a window of 4, so that the larger one is a file of "
        "160 MB. Ten agents rewrite the same 40 pages, which stay in the cache and "
        "which a checkpoint writes once; of 10,000 agents each push has a page of "
        "its own, to be read and to be written.",
        why="A push of the larger ring reads the agent's row and the newest text from the file, "
        "where ten agents have them in memory.",
    )


def bounds():
    wide = RING.replace("window=50", "window=50, max_bytes=1000000000, idle_days=30")
    tight = RING.replace("window=50", "window=50, max_bytes=1000000")
    return Case(
        "ring push with max_bytes and without, 2.5 KB, file, WAL, autocommit",
        {
            "no bound": push(RING, 2500),
            "a bound that is not reached": push(wide, 2500),
            "a bound that each push makes room for": push(tight, 2500),
        },
        [
            ("a bound that is not reached", "no bound", 2.5),
            ("a bound that each push makes room for", "no bound", 5.0),
        ],
        rounds=7,
        note="A ring with a bound keeps the sum of its bytes and the order in which its "
        "agents pushed. With 20 agents of 50 exchanges it would hold 2.5 MB: the "
        "last side may have 1 MB, so each push takes the oldest rows of other agents.",
    )


def kill_switch(name, rows, limit, packed=None):
    columns = "agent_id, event_id, request_body, response_body, timestamp"
    copy = f"INSERT INTO copied({columns}) SELECT {columns} FROM t WHERE agent_id = ?"
    archive = (
        "INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, size_bytes,"
        " purpose, pinned, kill_switch_event_id) SELECT event_id, agent_id, request_body,"
        " response_body, size_bytes, 'evidence', 1, 'k' || ?1 FROM t WHERE agent_id = ?1")
    delete = "DELETE FROM t WHERE agent_id = ?"
    pull = "SELECT payload_kill_switch('t', ?1, 'k' || ?1)"
    source = PLAIN.replace("INTEGER);", "INTEGER, size_bytes INTEGER); CREATE INDEX t_agent ON t(agent_id);")
    sized = ("UPDATE t SET size_bytes = length(CAST(request_body AS BLOB))"
             " + length(CAST(response_body AS BLOB))")
    indexed = source + like("event_payloads")
    pinned = indexed + like("blackbox__log", "payload__pins", "blackbox__leaves")
    pins = (
        "INSERT INTO blackbox__log(domain, kind, subject, event_id, agent_id, kill_switch_event_id)"
        " SELECT 'payload', 'pin', id, event_id, agent_id, kill_switch_event_id"
        " FROM event_payloads WHERE kill_switch_event_id = 'k' || ?",
        "INSERT INTO payload__pins SELECT subject, n FROM blackbox__log WHERE agent_id = ?",
        "INSERT INTO blackbox__leaves SELECT n, randomblob(32), n FROM blackbox__log WHERE agent_id = ?")

    read = "SELECT CAST(request_body AS BLOB), CAST(response_body AS BLOB) FROM t WHERE agent_id = ?"
    small = archive.replace("request_body, response_body, size_bytes, 'ev", "randomblob(44), NULL, size_bytes, 'ev")
    stored = pinned + like("store__texts", "store__packs", "payload__packed")
    texts = (
        "INSERT INTO store__texts SELECT id, 1, randomblob(8), 1, randomblob(9) FROM t WHERE agent_id = ?",
        "INSERT INTO payload__packed SELECT id, event_id, randomblob(44), 1 FROM t WHERE agent_id = ?",
        "INSERT INTO store__packs SELECT max(id), 1, randomblob(2 * avg(size_bytes)) FROM t WHERE agent_id = ?")

    def side(ddl, *statements, before=""):
        def run_side(folder):
            db = filled(folder / "kill.db", ddl,
                        ((*row[:4], None) for row in itertools.islice(rows(), 520)))
            db.execute(before)
            checkpoint(db)

            def run():
                for i in range(10):
                    if len(statements) > 1:
                        db.execute("BEGIN")
                    for sql in statements:
                        for row in db.execute(sql, (f"agent-{i:05d}",)):
                            [hashlib.sha256(body).digest() for body in row if isinstance(body, bytes)]
                    if len(statements) > 1:
                        db.execute("COMMIT")

            seconds = timed(run)
            db.close()
            return seconds
        return run_side

    sides = {
        "kill switch": side(RING, pull),
        "INSERT..SELECT": side(indexed, archive, before=sized),
        "and DELETE": side(indexed, archive, delete, before=sized),
        "and a log, pins and leaves": side(pinned, archive, *pins, delete, before=sized),
        "without indexes": side(source + PLAIN.replace("}t(", "}copied("), copy),
    }
    if packed:
        sides["kill switch, payload.pack"] = side(
            RING, pull,
            before="UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.pack'")
        sides["packed by hand"] = side(stored, read, small, *texts, *pins, before=sized)
    return Case(
        f"kill switch, 50 rows of {name}",
        sides,
        [("kill switch", "INSERT..SELECT", limit)]
        + [("kill switch", other, None) for other in list(sides)[2:5]]
        + [("and a log, pins and leaves", "INSERT..SELECT", None)]
        + ([("kill switch, payload.pack", "INSERT..SELECT", packed),
            ("packed by hand", "INSERT..SELECT", None)] if packed else []),
        rounds=7,
        note="Ten agents in turn, with SECURE_DELETE. The INSERT..SELECT copies the rows of one plain "
        "table into another with the columns and indexes of event_payloads, and empties nothing. "
        "With the DELETE it moves them, as the kill switch does: SQLite then writes every page of a "
        "deleted row again. The next side also has a row of the log, of the pins and of the leaves "
        "for each, without a hash. Another has no indexes. What is packed by hand has a reference in "
        "each row, a row of its text and of the reference, and one pack of random bytes; the bodies are read and "
        "hashed, and nothing is emptied.",
        why="The copy does a part of the work. The kill switch also empties the ring, and gives each row "
        "three others, in the log, in its tree and among the pins: by hand that takes longer than the bound. It "
        "hashes each body whole, as a hash begins with a salt of its row, and so two rows share none. What is "
        "packed is also cut, looked up and compressed; by hand, without that, it is above the bound as well.",
    )


# -------------------------------------------------------------- the archive

ARCHIVE = (
    "INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body, "
    "size_bytes, purpose) VALUES(?,?,?,?,?,?,'archive')"
)


def archived(mean):
    """What begins rows of the archive, whose ids are random."""
    def rows():
        for agent, event, request, response, _ in exchanges(AGENTS, mean):
            yield (str(uuid.uuid4()), event, agent, request, response,
                   len(request.encode()) + len(response.encode()))
    return rows


# What a table costs whose INSERT fires a trigger at all, and one that keeps what each archive needs: a
# look-up of the id that REPLACE would take, the size, and the sum. No guard is in either.
ABORTS = """
CREATE TRIGGER t_abort BEFORE INSERT ON event_payloads WHEN NEW.purpose = 'no' BEGIN
  SELECT RAISE(ABORT, 'no');
END;
"""
COUNTS = """
CREATE TABLE t_state(one INTEGER PRIMARY KEY, bytes);
INSERT INTO t_state VALUES(1, 0);
CREATE TRIGGER t_taken BEFORE INSERT ON event_payloads
WHEN (SELECT 1 FROM event_payloads WHERE id = NEW.id) BEGIN
  SELECT RAISE(ABORT, 'no');
END;
CREATE TRIGGER t_sum AFTER INSERT ON event_payloads BEGIN
  UPDATE event_payloads SET size_bytes = length(CAST(ifnull(request_body, '') || ifnull(response_body, '') AS BLOB))
   WHERE rowid = NEW.rowid
     AND size_bytes <> length(CAST(ifnull(NEW.request_body, '') || ifnull(NEW.response_body, '') AS BLOB));
  UPDATE t_state SET bytes = bytes + NEW.size_bytes WHERE one = 1;
END;
"""


def archive_ways(mean):
    table = like("event_payloads")

    def side(label, script):
        return label, (script, ARCHIVE, archived(mean)), {"module": script == ""}
    return ways(
        f"archive INSERT, {kb(mean)}",
        [side("archive", ""), side("a trigger that never fires", table + ABORTS),
         side("size and sum, no guards", table + COUNTS), side("plain table", table)],
        {"archive, prepared once": 1.2, "archive, prepared once, 100 a transaction": 1.5,
         "archive, prepared anew": 20, "archive, prepared anew, in a transaction": 20}, rounds=7,
        why="The guards are triggers, which SQLite compiles into the INSERT. A statement with a trigger "
        "that may abort copies each page before its first change: so even one that never fires costs that.")


def archive_deletes(mean, per):
    """What the receipt costs; without it, the rest of the trigger and all guards are there."""
    def without(db):
        sql = db.execute("SELECT sql FROM sqlite_schema WHERE name = 'payload_delete'").fetchone()[0]
        rest = re.sub("INSERT INTO retention_log.*?;", "", sql, count=1, flags=re.S)
        assert rest != sql
        db.execute("DROP TRIGGER payload_delete")
        db.execute(rest)

    def side(prepare):
        def run_side(folder):
            db = installed(folder / "d.db")
            prepare(db)
            rows = list(itertools.islice(archived(mean)(), 600))
            db.execute("BEGIN")
            db.executemany(ARCHIVE, rows)
            db.execute("COMMIT")
            checkpoint(db)

            def run():
                for i, row in enumerate(rows):
                    if per > 1 and i % per == 0:
                        db.execute("BEGIN")
                    db.execute("DELETE FROM event_payloads WHERE id = ?", row[:1])
                    if per > 1 and i % per == per - 1:
                        db.execute("COMMIT")
            seconds = timed(run)
            assert db.execute("SELECT count(*) FROM event_payloads").fetchone() == (0,)
            db.close()
            return seconds
        return run_side
    return Case(f"archive DELETE, {kb(mean)}, {per} a transaction",
                {"with its receipt": side(lambda db: None), "without": side(without)},
                [("with its receipt", "without", 1.4)], rounds=7)


def queue(mean, calls):
    on = "INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), ('payload.queue_mode', '%s')"
    insert = ("INSERT INTO payload_queue(event_id, agent_id, request_body, response_body) "
              "VALUES(?,?,?,?)")

    def side(mode, sql, last=""):
        return writes(on % mode, sql, lambda: (row[1:5] for row in archived(mean)()),
                      last=last, calls=calls)

    most = 0.75 if mean else None  # a large body is written twice: into the TEMP table, too
    flush = "SELECT payload_flush()"
    call = "SELECT payload_queue(?,?,?,?)"
    return Case(
        f"archive of {kb(mean)}: the queue, and one INSERT each",
        {
            "payload_queue(), memory": side("memory", call, flush),
            "INSERT INTO payload_queue, memory": side("memory", insert, flush),
            "payload_queue(), durable": side("durable", call),
            "INSERT INTO payload_queue, durable": side("durable", insert),
            "archive INSERT": writes("", ARCHIVE, archived(mean), calls=calls),
            "plain INSERT": writes(like("event_payloads"), ARCHIVE, archived(mean), False,
                                   calls=calls),
        },
        [
            ("payload_queue(), memory", "payload_queue(), durable", most),
            ("INSERT INTO payload_queue, memory", "INSERT INTO payload_queue, durable", most),
            ("payload_queue(), durable", "archive INSERT", 1.05),
            ("INSERT INTO payload_queue, durable", "archive INSERT", 1.05),
        ],
        rounds=7,
        note="All in autocommit. In mode memory the rows are written in batches, and a flush is "
        "the end. The ids of the INSERTs are random and were made before; the queue makes its "
        "ids in the measured time. They begin with the time, so that a write changes fewer pages "
        "of their index.",
        why="A flush saves the commits; what is left are the bodies, the indexes and the "
        "triggers. An INSERT INTO payload_queue runs one statement in another, for which SQLite "
        "keeps a copy of each page that it changes, to be able to undo it alone.",
    )


def archive_bytes():
    def side(limit, fill=1000):
        sql = ("INSERT INTO blackbox_settings(name, value) VALUES('payload.max_bytes', "
               f"(SELECT sum(size_bytes) FROM event_payloads) + {limit})")
        return writes("", ARCHIVE, archived(2500), fill=fill, full=sql if limit else "")

    return Case(
        "archive INSERT of 2.5 KB with payload.max_bytes and without, file, WAL, autocommit",
        {
            "no limit": side(0),
            "a limit that is not reached": side(1 << 40),
            "each INSERT makes room": side(1),
            "each makes room in 20,000 rows": side(1, 20000),
        },
        [
            ("a limit that is not reached", "no limit", 1.6),
            ("each INSERT makes room", "no limit", 3.5),
            ("each makes room in 20,000 rows", "each INSERT makes room", 2.5),
        ],
        rounds=7,
        note="With a limit, each row has an entry in a table of sizes. To make room is a "
        "DELETE from the table and its indexes, and a receipt: what an INSERT does, a second and "
        "third time. SECURE_DELETE writes each page that becomes free. 20,000 rows are a file of "
        "60 MB, which is larger than the page cache; a scan would take twenty times as long.",
    )


def opening():
    """A file is opened and read once."""
    def made(open_, ddl):
        def make(path):
            db = open_(path)
            db.executescript(ddl)
            db.executemany(ARCHIVE, itertools.islice(archived(2500)(), 10))
            db.close()
            return path
        return make

    def side(make, open_):
        def run_side(_folder):
            path = once(make, make)

            def run():
                db = open_(path)
                db.execute("SELECT * FROM event_payloads LIMIT 1").fetchone()
                db.close()
            return timed(run)
        return run_side

    ours, theirs = made(installed, ""), made(plain, like("event_payloads"))
    return Case(
        "a file is opened, read once and closed",
        {"everything installed, module loaded": side(ours, connect),
         "everything installed": side(ours, plain),
         "plain table, module loaded": side(theirs, connect),
         "plain table": side(theirs, plain)},
        [("everything installed, module loaded", "plain table", None),
         ("everything installed", "plain table", None),
         ("plain table, module loaded", "plain table", None)],
        rounds=21,
    )


def cases():
    small, mix = 2500, None
    return [
        ring_case(small, 1, False, (0.6, 1.1), 2000),
        ring_case(mix, 1, False, (1.0, None), 300),
        ring_case(small, 100, False, (1.0, None), 2000),
        ring_case(mix, 100, False, (1.0, None), 300),
        ring_case(small, 1, True, (0.8, None), 2000),
        ring_case(small, 100, True, (0.75, None), 2000),
        ring_ways(small),
        ring_ways(mix),
        talk_case(2500, 20, 1600, 0.7, why=TWO_PAGES),
        talk_case(25_000, 16, 800, 0.4, why=CHUNKS),
        talk_case(250_000, 4, 100, 0.2),
        talk_case(25_000, 16, 800, 0.2, per=100, why="A push in a transaction has no commit of its own. "
                  "What is left are the way through a virtual table, the comparison with the text in "
                  "memory, and two or three statements, which alone take half of it."),
        talk_case(25_000, 16, 800, 1.15, rows=strangers, why=CHUNKS),
        masked(25_000, 16, 800, 1.25, why="The rules look through what is new in the bodies."),
        masked(25_000, 16, 800, None, rows=strangers),
        talk_ways(25_000, 16, 800, 0.55, 1.0),
        talk_ways(250_000, 4, 100, 0.35, 0.75),
        talk_bytes(2500, 20, 0.45, None),
        talk_bytes(25_000, 8, 0.26, 0.17),
        talk_bytes(250_000, 2, 0.14, 0.17),
        talk_bytes(25_000, 8, 1.05, None, rows=strangers),
        talk_reads(25_000, 16, 2.2, 0.3),
        talk_reads(25_000, 16, 1.4, 1.4, rows=strangers),
        many_agents(),
        bounds(),
        kill_switch("the mix of a recording", lambda: exchanges(10), 1.5),
        kill_switch("one conversation, 2.5 KB", lambda: talks(10, 2500), 1.2, 0.3),
        kill_switch("one conversation, 25 KB", lambda: talks(10, 25_000), 1.2, 0.3),
        kill_switch("what shares nothing, 25 KB", lambda: strangers(10, 25_000), 3),
        archive_ways(small),
        archive_ways(mix),
        archive_deletes(small, 1),
        archive_deletes(small, 100),
        queue(small, 1000),
        queue(mix, 200),
        archive_bytes(),
        opening(),
    ]
