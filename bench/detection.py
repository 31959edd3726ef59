"""detection.py: what it costs to look for loops, and what the rules find in recorded sessions."""
import itertools
import json
import re
import sys

from run import DATA, ROOT, Case, checkpoint, connect, install, installed, timed

sys.path.insert(0, str(ROOT / "tests" / "payload"))
import scenarios  # noqa: E402
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
        why="Looking reads the new end of the request and all of the response.",
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


# ---- what others do, as facts about their sources say it, on the same stream of calls


def said_by(response):
    try:
        body = json.loads(response or "")
        return body["choices"][0]["message"]["content"] or ""
    except (ValueError, LookupError, TypeError):
        return ""


def events(db, exchanges):
    """[kind, key, result, error]: kind is user, call or text; the result of a call comes later."""
    found, prompt, waiting = [], None, []
    for request, response, _ in exchanges:
        for call_id, tool, result, error in db.execute(
                "SELECT call_id, tool, result, is_error FROM payload_calls(?, NULL) WHERE kind = 'result'"
                " ORDER BY n DESC", (request,)).fetchall():
            for i, (known, name, event) in enumerate(waiting):
                if known == call_id if call_id else name == tool and known is None:
                    event[2:] = [result, bool(error)]
                    del waiting[i]
                    break
        asked, = db.execute("SELECT payload_prompt(?)", (request,)).fetchone()
        if asked != prompt:
            found.append(["user", asked, None, False])
            prompt = asked
        calls = db.execute("SELECT call_id, tool, arguments FROM payload_calls(NULL, ?) "
                           "WHERE kind = 'call'", (response,)).fetchall()
        for call_id, tool, arguments in calls:
            found.append(["call", (tool, arguments), None, False])
            waiting.append((call_id, tool, found[-1]))
        if not calls and said_by(response):
            found.append(["text", said_by(response), None, False])
    return found


def openhands(found):
    """The last 20 events since the user spoke: 4 equal calls with equal results, 3 equal calls with
    an error, 3 equal texts in a row, or 6 calls of which each is that before the last one."""
    last = []
    for event in found:
        last = [] if event[0] == "user" else (last + [event])[-20:]
        calls = [e for e in last if e[0] == "call" and e[2] is not None]
        same = [e[1:3] for e in calls]
        if len(calls) >= 4 and all(e == same[-1] for e in same[-4:]) \
                or len(calls) >= 3 and all(e[3] and e[1] == calls[-1][1] for e in calls[-3:]) \
                or len(last) >= 3 and all(e[0] == "text" and e == last[-1] for e in last[-3:]) \
                or len(calls) >= 6 and all(same[-i] == same[-i - 2] for i in range(1, 5)):
            return True
    return False


def gemini_cli(found):
    """1 to 5 calls that come 5 times one after another, whatever their results; or 10 times the
    same 50 characters of text, 250 or less apart on average."""
    keys, text = [], ""
    for kind, key, _, _ in found:
        if kind == "user":
            keys, text = [], ""
        elif kind == "call":
            keys, text = keys + [key], ""
            if any(len(keys) >= 5 * n and all(keys[-i] == keys[-i - n] for i in range(1, 4 * n + 1))
                   for n in range(1, 6)):
                return True
        else:
            text += key
            places = {}
            for i in range(len(text) - 49):
                places.setdefault(text[i:i + 50], []).append(i)
            if any(len(at) >= 10 and (at[-1] - at[-10]) / 9 <= 250 for at in places.values()):
                return True
    return False


class Scenarios(Case):
    """The scenarios and recorded sessions that the rules stop, and that those of others would."""

    def __init__(self):
        super().__init__("scenarios: these rules beside those of others", {}, [])

    def run(self):
        db = connect(":memory:")
        install(db)
        db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring(window=30)")
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', 'record')")
        known = recorded() if DATA.is_dir() else {}
        groups = {"loops": scenarios.LOOPS, "work": scenarios.INNOCENT,
                  "recorded sessions": {name: lambda e=e: e for name, e in known.items()}}
        lines = ["| | blackbox | OpenHands | Gemini CLI |", "|---|---|---|---|"]
        odd = []
        for group, members in groups.items():
            counts = [0, 0, 0]
            for name, make in members.items():
                exchanges = list(make())
                db.executemany(INSERT, [(f"{group} {name}", f"e{i}", *exchange)
                                        for i, exchange in enumerate(exchanges)])
                stopped, = db.execute("SELECT count(*) FROM payload_verdicts WHERE agent_id = ? "
                                      "AND level = 'stop'", (f"{group} {name}",)).fetchone()
                stream = events(db, exchanges)
                told = [stopped > 0, openhands(stream), gemini_cli(stream)]
                counts = [n + yes for n, yes in zip(counts, told)]
                if told != [group == "loops"] * 3 and group != "recorded sessions":
                    odd.append(f"| {'loop' if group == 'loops' else 'work'}: {name} | "
                               + " | ".join("stopped" if yes else "" for yes in told) + " |")
            lines.append(f"| stopped of {len(members)} {group} | "
                         + " | ".join(map(str, counts)) + " |")
        self.note = "\n".join(lines + odd) + (
            "\n\nThe rules of others are made again from descriptions of them, and see the calls as "
            "blackbox reads them; Gemini CLI's model that judges is left out. Scenarios that all "
            "three tell right are counted only.")
        return [], {}


def cases():
    found = [Table(), Scenarios()]
    if DATA.is_dir():
        found += [record_case(2500, 1.25, 400), record_case(25000, 1.25, 300),
                  record_case(250000, 1.25, 60)]
    return found
