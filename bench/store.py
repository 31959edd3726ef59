"""How small the store keeps recorded exchanges, and what packing and reading cost.

The recordings are ../shared/data/payloads.jsonl.gz. Without them exchanges are made up: agents
whose every request repeats the conversation. Sizes are shares of the raw bytes; their "time" is
a number of bytes. SQLite is told secure_delete = FAST, because Debian's writes zeros over every
page that a packed body leaves, which takes longer than the packing."""
import atexit
import collections
import ctypes
import ctypes.util
import gzip
import json
import pathlib
import random
import shutil
import tempfile

from run import ROOT, Case, connect, timed

DATA = ROOT.parent / "shared" / "data" / "payloads.jsonl.gz"
made = {}


def folder():
    if "folder" not in made:
        made["folder"] = pathlib.Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, made["folder"], ignore_errors=True)
    return made["folder"]


def text(body):
    return body if body is None or isinstance(body, str) else json.dumps(body)


def exchanges():
    """(agent, event, request, response), in order."""
    if "exchanges" not in made:
        found = []
        if DATA.exists():
            with gzip.open(DATA, "rt") as file:
                for line in file:
                    r = json.loads(line)
                    found.append((r["agent_id"], r["event_id"], text(r["request"]),
                                  text(r["response"])))
        else:
            make = random.Random(1)
            said = {agent: "" for agent in range(20)}
            for i in range(1500):
                agent = i % 20
                said[agent] += "".join(make.choices("etaoin shrdlu", k=1500))
                found.append((f"agent{agent}", f"e{i}", said[agent], said[agent][-300:]))
        made["exchanges"] = found
    return made["exchanges"]


def chosen(only_long):
    counted = collections.Counter(e[0] for e in exchanges())
    return [e for e in exchanges() if not only_long or counted[e[0]] >= 30]


def raw(only_long):
    return sum(len((body or "").encode()) for e in chosen(only_long) for body in e[2:])


def plain(only_long=False):
    """The file before packing, made once."""
    path = folder() / f"plain{only_long}.db"
    if not path.exists():
        db = connect(path)
        db.execute("SELECT blackbox_install('main', 'payload,store')").fetchone()
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO event_payloads(id, agent_id, event_id, request_body, response_body,"
            " purpose) VALUES(lower(hex(randomblob(16))), ?, ?, ?, ?, 'archive')",
            chosen(only_long))
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.close()
    return path


def opened(where, only_long=False):
    shutil.copy(plain(only_long), where / "archive.db")
    db = connect(where / "archive.db")
    db.execute("PRAGMA secure_delete = FAST").fetchone()
    return db


def packed(only_long=False):
    """The file after packing, made once."""
    path = folder() / f"packed{only_long}.db"
    if not path.exists():
        db = opened(folder(), only_long)
        db.execute("SELECT payload_pack(1000000)").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.close()
        (folder() / "archive.db").rename(path)
    return path


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
    db = opened(where)
    if not first:
        db.execute("SELECT payload_pack(1)").fetchone()
    return timed(lambda: db.execute("SELECT payload_pack(1000000)").fetchone())


def zstd():
    lib = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
    lib.ZSTD_createCCtx.restype = ctypes.c_void_p
    lib.ZSTD_compressCCtx.restype = ctypes.c_size_t
    return lib


def zstd_each(where):
    """zstd -3 of each body, in memory, without a database."""
    lib, bodies = zstd(), [b.encode() for e in exchanges() for b in e[2:] if b]
    context = ctypes.c_void_p(lib.ZSTD_createCCtx())
    size = ctypes.c_size_t(max(map(len, bodies)) * 2 + 1000)
    room = ctypes.create_string_buffer(size.value)

    def run():
        for body in bodies:
            lib.ZSTD_compressCCtx(context, room, size, body, ctypes.c_size_t(len(body)), 3)
    return timed(run)


def limit_in(where):
    """The seconds that the raw bytes take at 200 MB/s."""
    return raw(False) / 200e6


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


def many(rows):
    """A file with so many small conversations, packed; made once."""
    path = folder() / f"many{rows}.db"
    if not path.exists():
        db = connect(path)
        db.execute("SELECT blackbox_install('main', 'payload,store')").fetchone()
        make = random.Random(5)
        letters = "".join(make.choices("etaoin shrdlu", k=1_000_000))
        db.execute("BEGIN")
        for i in range(rows):
            at = make.randrange(990_000)
            db.execute("INSERT INTO event_payloads(id, agent_id, event_id, request_body, purpose)"
                       " VALUES(?, 'a', 'e', ?, 'archive')",
                       (f"p{i:09}", letters[:1500] + letters[at:at + 700] + str(i)))
        db.execute("COMMIT")
        db.execute("SELECT payload_pack(10000000)").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        db.close()
    return path


def delete(rows):
    def side(where):
        shutil.copy(many(rows), where / "archive.db")
        db = connect(where / "archive.db")
        db.execute("PRAGMA secure_delete = FAST").fetchone()

        def run():
            db.execute("DELETE FROM event_payloads WHERE id < 'p000001000'")
            assert db.execute("SELECT store_sweep(10000)").fetchone() == (1000,)
        return timed(run)
    return side


def limit_out(where):
    return 300e-6


def cases():
    text_of, body = "store_text(request_body)", "request_body"
    out = "a random body of about 25 KB is read"
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
             why="0.3 MB are the schema and a page for each empty table; a larger file has them"
                 " once"),
        Case("payload_pack of all exchanges",
             {"pack": pack, "200 MB/s": limit_in, "zstd -3 of each body": zstd_each,
              "the first call": lambda where: pack(where, True)},
             [("pack", "200 MB/s", 1.0), ("pack", "zstd -3 of each body", 1.3),
              ("the first call", "pack", None)],
             note="The first call in a file also changes the schema and makes three indexes, once."
                  " zstd alone neither reads nor writes a file.",
             why="half of the time is SQLite's: reading, the triggers of the archive, and writing"
                 " the row and its indexes again so that its page does not stay empty"),
        Case(out, {"packed": random_bodies(packed, text_of), "plain": random_bodies(plain, body),
                   "300 us": limit_out},
             [("packed", "plain", 4.0), ("packed", "300 us", 1.0)]),
        Case("the 50 newest of an agent are read",
             {"packed": newest(packed), "plain": newest(plain)},
             [("packed", "plain", 2.0)]),
        Case("1,000 rows are deleted and swept",
             {"100,000 rows": delete(100_000), "10,000 rows": delete(10_000)},
             [("100,000 rows", "10,000 rows", 1.3)]),
    ]
