"""The tree of the log costs a kill switch little, and many leaves are read quickly."""
import itertools
import statistics
import time

from run import Case, checkpoint, exchanges, installed, limit, once, timed

LEAVES = 100_000
PINS = 50_000


def kill_switch(tree):
    """Of a ring with 50 exchanges, and a log that has some leaves already. Without its row the
    tree gets no leaves, and the kill switch goes on."""
    def side(folder):
        db = installed(folder / "agents.db")
        if not tree:
            db.execute("DELETE FROM blackbox__tree")
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
        source = exchanges(1, 25_000)

        def fire(event):
            db.execute("SELECT payload_kill_switch('ring', 'agent-00000', ?)", (event,)).fetchone()
        for turn in range(2):
            db.executemany("INSERT INTO ring(agent_id, event_id, request_body, response_body,"
                           " timestamp) VALUES(?, ?, ?, ?, ?)", itertools.islice(source, 50))
            if turn == 0:
                fire("warm")
        checkpoint(db)  # none while it is measured
        return timed(lambda: fire("k"))
    return side


def logged(path):
    """A file with so many small records and their leaves."""
    db = installed(path)
    db.execute(
        "WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO blackbox__log(domain, kind, subject, detail)"
        " SELECT 'payload', 'verdict', 'a', 'it repeats ' || i FROM n", (LEAVES,))
    checkpoint(db)
    before = path.stat().st_size
    db.execute("SELECT proof_head()").fetchone()
    checkpoint(db)
    assert (path.stat().st_size - before) / LEAVES <= 100  # bytes a leaf
    return db


def pinned(path):
    """A file with so many exchanges that are pinned."""
    db = installed(path)
    db.execute(
        "WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
        " INSERT INTO event_payloads(event_id, agent_id, request_body, response_body, purpose)"
        " SELECT 'e' || i, 'agent', 'question ' || i, 'answer ' || i, 'evidence' FROM n", (PINS,))
    while db.execute("SELECT count(*) FROM proof_pending").fetchone()[0]:
        db.execute("SELECT proof_head()").fetchone()
    return db


def median(sql, *keys, file=logged):
    """Processor time: with a limit in seconds, what else the machine does must not count."""
    def side(_folder):
        db = once(file.__name__, file)
        times = []
        for key in keys * 3:
            start = time.process_time()
            db.execute(sql, key).fetchone()
            times.append(time.process_time() - start)
        return statistics.median(times)
    return side


def cases():
    keys = [(i,) for i in range(1, LEAVES, LEAVES // 10 - 1)]
    verify = "SELECT count(*) FROM proof_verify"
    return [
        Case("a kill switch of 50 rows of 25 KB, and the tree of the log",
             {"with the tree": kill_switch(1), "without": kill_switch(0)},
             [("with the tree", "without", 1.15)], rounds=9,
             note="The rows have 25 KB on average."),
        Case("a log of 100,000 leaves",
             {"proof_of": median("SELECT proof_of('leaf', ?)", *keys),
              "proof_head": median("SELECT proof_head()", ()), "5 ms": limit(0.005),
              "proof_verify": median(verify, ()), "0.67 s": limit(0.667)},
             [("proof_of", "5 ms", 1), ("proof_head", "5 ms", 1), ("proof_verify", "0.67 s", 1)],
             rounds=3,
             note="The leaves take at most 100 bytes each, which is tested while they are made. "
             "Processor time: 0.67 s are 150,000 leaves a second."),
        Case("a log of 50,000 pins, with small bodies",
             {"proof_verify": median(verify, (), file=pinned), "0.33 s": limit(0.333)},
             [("proof_verify", "0.33 s", 1)], rounds=3,
             why="The limit is a time of a faster machine: each body is read and hashed."),
    ]
