"""detection.py: what it costs to look for loops, and what the rules find in recorded sessions."""
import itertools
import re
import sys

from run import DATA, ROOT, Case, checkpoint, connect, install, installed, timed

sys.path.insert(0, str(ROOT / "tests" / "payload"))
import sessions  # noqa: E402

INSERT = ("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp) "
          "VALUES(?, ?, ?, ?, ?)")


def conversations(size, count):
    """Exchanges of recorded conversations in their order, whose bodies have about that size."""
    found = []
    for name, exchanges in recorded().items():
        for request, response, at in exchanges:
            if size * 0.6 < len(request) + len(response) < size * 1.6:
                found.append((name, "e", request, response, at))
    return found[:count]


def recorded(kept={}):
    if not kept:
        kept.update(sessions.recorded(DATA))
    return kept


TEXT = re.compile(r'"(content|text|output|id|call_id|tool_call_id|tool_use_id)"\s*:\s*"')


def anew(batch, n):
    """The same exchanges with other texts and ids, so that they are other conversations."""
    return [(agent, event, *(body and TEXT.sub(lambda found: f"{found[0]}{n} ", body) for body in bodies),
             at + n * 10**8) for agent, event, *bodies, at in batch]


def pushes(size, mode, count):
    def side(folder):
        db = installed(folder / "ring.db")
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', ?)", (mode,))
        batch = conversations(size, count)
        # once, so that every slot is there, then as other conversations
        db.executemany(INSERT, batch)
        more = [row for n in range(1 + 400 // len(batch)) for row in anew(batch, n)]
        checkpoint(db)
        return timed(lambda: db.executemany(INSERT, more))

    return side


def record_case(size, limit, count):
    return Case(
        f"ring push, on_loop record and off, real bodies of {size / 1000:g} KB, file, WAL",
        {"record": pushes(size, "record", count), "off": pushes(size, "off", count)},
        [("record", "off", limit)],
        rounds=7,
        note="Exchanges of recorded conversations in their order, autocommit, again and again with "
        "other texts.",
        why="Looking reads the new end of the request and all of the response, and writes one "
        "row for each step.",
    )


class Table(Case):
    """The rules, the sessions in which they find something, and the loops that they stop."""

    def __init__(self):
        super().__init__("rules by sessions", {}, [])

    def run(self):
        db = connect(":memory:")
        install(db)
        db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring(window=2)")
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', 'record')")
        rules = [row[0] for row in db.execute(
            "SELECT rule FROM payload_rules WHERE enabled ORDER BY level DESC, rule")]
        known = recorded() if DATA.is_dir() else {}
        lines = ["| rule | level | " + " | ".join(
            [f"{len(known)} real sessions", *sessions.LOOPS]) + " |",
            "|---" * (3 + len(sessions.LOOPS)) + "|"]
        for name, exchanges in itertools.chain(
                known.items(),
                ((name, sessions.chat(calls)) for name, calls in sessions.LOOPS.items())):
            db.executemany(INSERT, [(name, f"e{i}", *exchange)
                                    for i, exchange in enumerate(exchanges)])
        for rule in rules:
            level, = db.execute("SELECT level FROM payload_rules WHERE rule = ?",
                                (rule,)).fetchone()
            seen = dict(db.execute(
                "SELECT agent_id, min(json_array_length(seqs)) FROM payload_verdicts "
                "WHERE rule = ? GROUP BY agent_id", (rule,)))
            first = dict(db.execute(
                "SELECT agent_id, min(seqs ->> '$[#-1]') FROM payload_verdicts "
                "WHERE rule = ? GROUP BY agent_id", (rule,)))
            cells = [str(len(seen.keys() & known.keys()))]
            cells += [f"call {first[name]}" if name in first else "" for name in sessions.LOOPS]
            lines.append(f"| {rule} | {level} | " + " | ".join(cells) + " |")
        self.note = "\n".join(lines) + (
            "\n\nIn how many recorded sessions a rule finds something, and at which call of a loop "
            "it does.")
        return [], {}


def cases():
    found = [Table()]
    if DATA.is_dir():
        found += [record_case(2500, 1.4, 400), record_case(25000, 1.25, 300),
                  record_case(250000, 1.25, 60)]
    return found
