"""How small the store keeps recorded exchanges, and what packing and reading cost.

Sizes are shares of the raw bytes; their "time" is a number of bytes."""
import collections
import ctypes
import ctypes.util
import itertools
import random
import shutil
import statistics

from payload import talks
from run import Case, checkpoint, connect, exchanges, installed, like, limit, once, prose, recorded
from run import plain as unguarded
from run import timed

PACK = "SELECT payload_pack(1000000)"


def chosen(only_long):
    counted = collections.Counter(e[0] for e in recorded())
    return [e for e in recorded() if not only_long or counted[e[0]] >= 30]


def raw(only_long):
    return sum(len((body or "").encode()) for e in chosen(only_long) for body in e[2:])


def plain(only_long=False):
    """The file before packing, made once."""
    def make(path):
        db = installed(path)
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO event_payloads(id, agent_id, event_id, request_body, response_body,"
            " purpose) VALUES(lower(hex(randomblob(16))), ?, ?, ?, ?, 'archive')",
            chosen(only_long))
        db.execute("COMMIT")
        db.close()
        return path
    return once(("plain", only_long), make)


def packed(only_long=False):
    """The file after packing, made once."""
    def make(path):
        shutil.copy(plain(only_long), path)
        db = connect(path)
        db.execute(PACK).fetchone()
        db.close()
        return path
    return once(("packed", only_long), make)


def store_pages(only_long):
    """The bytes of the pages of the store's tables and their indexes."""
    def side(where):
        db = connect(packed(only_long))
        return db.execute(
            "SELECT sum(s.pgsize) FROM dbstat AS s JOIN sqlite_schema AS m ON m.name = s.name"
            " WHERE m.tbl_name GLOB 'store_*'").fetchone()[0] / 1e6
    return side


def live_pages(where):
    """All pages that are in use, those of the schema too."""
    db = connect(packed())
    return db.execute("SELECT sum(pgsize) FROM dbstat").fetchone()[0] / 1e6


def compacted(where):
    """The file itself, after what is free was given back."""
    connect(packed()).execute("VACUUM INTO ?", (str(where / "compacted.db"),))
    return (where / "compacted.db").stat().st_size / 1e6


def whole_raw(only_long):
    return lambda where: raw(only_long) / 1e6


def pack(where, first=False):
    db = connect(shutil.copy(plain(), where / "archive.db"))
    if not first:
        db.execute("SELECT payload_pack(1)").fetchone()
    return timed(lambda: db.execute(PACK).fetchone())


def queued(packs, mean=False):
    """Rows that remove as many as they add; the first 400 are not counted."""
    def side(where):
        db = installed(where / f"{packs}.db")
        for name, value in ("enabled", 1), ("pack", packs), ("max_bytes", 600_000):
            db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.' || ?",
                       (value, name))
        rows = [(event, agent, request[:2500], (response or "")[:500])
                for agent, event, request, response, _ in
                itertools.islice(exchanges(10, 3000), 800)]
        took = [timed(lambda: db.execute(
            "INSERT INTO payload_queue(event_id, agent_id, request_body, response_body)"
            " VALUES(?, ?, ?, ?)", row)) for row in rows][400:]
        return statistics.mean(took) if mean else statistics.median(took)
    return side


def written(packs, rows):
    """Rows that stay, of which the first 100 are not counted; packs is None: plain INSERTs."""
    def side(where):
        db = (unguarded if packs is None else installed)(where / "written.db")
        if packs is None:
            db.executescript(like("event_payloads"))
            sql = ("INSERT INTO event_payloads(agent_id, event_id, request_body, response_body,"
                   " size_bytes, purpose) VALUES(?, ?, ?, ?, ?, 'archive')")
        else:
            for name, value in ("enabled", 1), ("pack", packs):
                db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.' || ?",
                           (value, name))
            sql = ("INSERT INTO payload_queue(agent_id, event_id, request_body, response_body)"
                   " VALUES(?, ?, ?, ?)")
        took = []
        for *row, _ in itertools.islice(rows(), 300):
            if packs is None:
                row.append(len(row[2].encode()) + len((row[3] or "").encode()))
            took.append(timed(lambda: db.execute(sql, row)))
        return statistics.mean(took[100:])
    return side


def packed_write(name, rows):
    return Case(f"a row of {name} is queued, and packed when it is written",
                {"packs": written(1, rows), "does not pack": written(0, rows),
                 "plain INSERT": written(None, rows)},
                [("packs", "plain INSERT", 1.4), ("does not pack", "plain INSERT", None)],
                note="The mean of 200, in autocommit.",
                why="A packed row is 14 rows: itself, two texts and their references, the pieces"
                    " that are new, the lists of the packs that it shares, and the open pack. By"
                    " hand, without triggers, and with what the store has computed before, these"
                    " take 1.3 times the plain INSERT. The rest is above all to cut, hash and"
                    " compress what is new.")


def zstd_each(where):
    """zstd -3 of each body, in memory, without a database."""
    lib = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    lib.ZSTD_createCCtx.restype = ctypes.c_void_p
    lib.ZSTD_compressCCtx.restype = ctypes.c_size_t
    bodies = [b.encode() for e in recorded() for b in e[2:] if b]
    context = ctypes.c_void_p(lib.ZSTD_createCCtx())
    size = ctypes.c_size_t(max(map(len, bodies)) * 2 + 1000)
    room = ctypes.create_string_buffer(size.value)

    def run():
        for body in bodies:
            lib.ZSTD_compressCCtx(context, room, size, body, ctypes.c_size_t(len(body)), 3)
    return timed(run)


def random_bodies(path, column):
    def side(where):
        db = connect(path())
        ids = [row[0] for row in db.execute(
            "SELECT id FROM event_payloads WHERE size_bytes BETWEEN 20000 AND 30000")]
        make = random.Random(3)
        ids = [make.choice(ids) for _ in range(300)]
        db.execute(f"SELECT {column} FROM event_payloads WHERE id = ?", ids[:1]).fetchone()
        return timed(lambda: [db.execute(
            f"SELECT {column} FROM event_payloads WHERE id = ?", (id,)).fetchone()
            for id in ids]) / len(ids)
    return side


def newest(path):
    def side(where):
        db = connect(path())
        agents = [row[0] for row in db.execute(
            "SELECT agent_id FROM event_payloads GROUP BY 1 HAVING count(*) >= 30")]

        def run():
            for agent in agents:
                db.execute("SELECT request_body, response_body FROM payload_rows"
                           " WHERE agent_id = ? ORDER BY created_ms DESC LIMIT 50",
                           (agent,)).fetchall()
        run()
        return timed(run) / len(agents)
    return side


def delete(rows):
    """In a file with so many small conversations, packed; made once."""
    def make(path):
        db = installed(path)
        make = random.Random(5)
        db.execute("BEGIN")
        for i in range(rows):
            at = make.randrange(990_000)
            db.execute("INSERT INTO event_payloads(id, agent_id, event_id, request_body, purpose)"
                       " VALUES(?, 'a', 'e', ?, 'archive')",
                       (f"p{i:09}", prose()[:1500] + prose()[at:at + 700] + str(i)))
        db.execute("COMMIT")
        db.execute(PACK).fetchone()
        db.close()
        return path

    def side(where):
        db = connect(shutil.copy(once(("many", rows), make), where / "archive.db"))

        def run():
            db.execute("DELETE FROM event_payloads WHERE id < 'p000001000'")
            assert db.execute("SELECT store_sweep(10000)").fetchone() == (1000,)
        seconds = timed(run)
        checkpoint(db)
        return seconds
    return side


def cases():
    return [
        Case("the store of all exchanges", {"MB kept": store_pages(False),
                                            "MB raw": whole_raw(False)},
             [("MB kept", "MB raw", 0.07)], rounds=1),
        Case("the store of agents with 30 or more exchanges",
             {"MB kept": store_pages(True), "MB raw": whole_raw(True)},
             [("MB kept", "MB raw", 0.025)], rounds=1),
        Case("the whole file of all exchanges",
             {"MB after VACUUM": compacted, "MB in use before": live_pages,
              "MB raw": whole_raw(False)},
             [("MB after VACUUM", "MB raw", 0.09), ("MB in use before", "MB raw", None)],
             rounds=1,
             note="The size of the file, with the schema and all indexes. Before VACUUM the pages"
                  " that the bodies left are free, and those of the rows are not full.",
             why="1 MB is the schema and a page for each empty table; a larger file has them"
                 " once"),
        Case("payload_pack of all exchanges",
             {"pack": pack, "200 MB/s": lambda where: raw(False) / 200e6,
              "zstd -3 of each body": zstd_each, "the first call": lambda where: pack(where, True)},
             [("pack", "200 MB/s", 1.0), ("pack", "zstd -3 of each body", 1.3),
              ("the first call", "pack", None)],
             note="The first call in a file also changes the schema and makes three indexes, once."
                  " zstd alone neither reads nor writes a file.",
             why="half of the time is SQLite's: reading, the triggers of the archive, and writing"
                 " the row and its indexes again so that its page does not stay empty;"
                 " SECURE_DELETE writes every page that a body leaves"),
        Case("a row of 3 KB is queued: the median of 400",
             {"packs": queued(1), "plain": queued(0), "packs, the mean": queued(1, mean=True)},
             [("packs", "plain", 2.0), ("packs, the mean", "plain", None)],
             note="Each row is packed when it is written, or with the next one."),
        packed_write("a conversation of 25 KB", lambda: talks(10, 25_000)),
        packed_write("the mix of a recording", lambda: exchanges(10)),
        Case("a random body of about 25 KB is read",
             {"packed": random_bodies(packed, "store_text(request_body)"),
              "plain": random_bodies(plain, "request_body"), "300 us": limit(300e-6)},
             [("packed", "plain", 4.0), ("packed", "300 us", 1.0)]),
        Case("the 50 newest of an agent are read",
             {"packed": newest(packed), "plain": newest(plain)},
             [("packed", "plain", 2.0)]),
        Case("1,000 rows are deleted and swept",
             {"30,000 rows": delete(30_000), "3,000 rows": delete(3_000)},
             [("30,000 rows", "3,000 rows", 1.3)]),
    ]
