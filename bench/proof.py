"""A log of proof costs a kill switch little, and a million leaves are read quickly."""
import atexit
import pathlib
import shutil
import statistics
import tempfile

from run import Case, connect, timed

ROWS = 50
BODY = 12_500
folders = []


def ring(folder, proof):
    """A ring with 50 exchanges of 25 KB, and a log that has some leaves already."""
    db = connect(folder / "agents.db")
    db.execute("SELECT blackbox_install('main', 'all')").fetchone()
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('proof.enabled', ?)", (proof,))
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    for turn in ("warm", "cold"):
        for i in range(ROWS):
            db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body)"
                       " VALUES('a', ?, ?, ?)", (f"{turn}{i}", "q" * BODY, "r" * BODY))
        if turn == "warm":
            fire(db, turn)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()  # none while it is measured
    return db


def fire(db, event):
    db.execute("SELECT payload_kill_switch('ring', 'a', ?)", (event,)).fetchone()


def kill_switch(proof):
    def side(folder):
        db = ring(folder, proof)
        return timed(lambda: fire(db, "k"))
    return side


def template(leaves):
    """A file with so many small records and their leaves. It is made once."""
    if not folders:
        folders.append(pathlib.Path(tempfile.mkdtemp()))
        atexit.register(shutil.rmtree, folders[0], ignore_errors=True)
    path = folders[0] / f"{leaves}.db"
    if not path.exists():
        db = connect(path)
        db.execute("SELECT blackbox_install('main', 'all')").fetchone()
        db.execute(
            "WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO"
            " payload_verdicts(at, ring, agent_id, rule, level, count, threshold, turn, thing,"
            " seqs, tokens, sentence, action) SELECT i, 'ring', 'a', 'repeat', 'alert', 3, 3, 1,"
            " i, '[1]', 5, 'it repeats', 'record' FROM n", (leaves,))
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('proof.enabled', 1)")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        before = path.stat().st_size
        db.execute("SELECT proof_head()").fetchone()
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (path.stat().st_size - before) / leaves <= 100  # bytes a leaf
        db.close()
    return connect(path)


def median(leaves, sql, *keys):
    def side(folder):
        db = template(leaves)
        return statistics.median(timed(lambda k=key: db.execute(sql, k).fetchone())
                                 for key in keys for _ in range(3))
    return side


def verify(leaves):
    """Seconds for 100,000 leaves."""
    def side(folder):
        db = template(leaves)
        return timed(lambda: db.execute("SELECT count(*) FROM proof_verify").fetchone()) \
            * 100_000 / leaves
    return side


def limit(seconds):
    """A side that takes so long: the limit."""
    return lambda folder: seconds


def cases():
    keys = [(i,) for i in range(1, 1_000_000, 99_991)]
    return [
        Case("a kill switch of 50 rows of 25 KB",
             {"with proof": kill_switch(1), "without": kill_switch(0)},
             [("with proof", "without", 1.4)], rounds=9),
        Case("a proof among 1,000,000 leaves",
             {"proof_of": median(1_000_000, "SELECT proof_of('verdict', ?)", *keys),
              "5 ms": limit(0.005)}, [("proof_of", "5 ms", 1)], rounds=3),
        Case("a head of 1,000,000 leaves",
             {"proof_head": median(1_000_000, "SELECT proof_head()", ()),
              "5 ms": limit(0.005)}, [("proof_head", "5 ms", 1)], rounds=3),
        Case("100,000 of 1,000,000 leaves are verified",
             {"proof_verify": verify(1_000_000), "1 s": limit(1)},
             [("proof_verify", "1 s", 1)], rounds=3,
             note="A file of 1,000,000 leaves takes at most 100 bytes for each, which is tested"
                  " while it is made."),
    ]
