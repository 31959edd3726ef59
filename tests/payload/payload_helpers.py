"""What the tests of the payload domain share: rings, and the queue."""
import copy
import json

from conftest import one, rows

COUNTERS = ("given", "rolled", "cleared", "saved")


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Model:
    """A ring and the evidence taken from it, as they should be."""

    def __init__(self, window):
        self.window = window
        self.agents = {}
        self.evidence = []
        self.max_bytes = 0
        self.clock = 0  # counts pushes, and the bounds that were set

    def copy(self):
        return copy.deepcopy(self)

    def _agent(self, agent):
        fresh = dict.fromkeys(COUNTERS, 0)
        fresh["rows"] = {}
        fresh["last"] = 0
        return self.agents.setdefault(agent, fresh)

    def _trim(self, agent):
        for seq in [s for s in agent["rows"] if s <= agent["given"] - self.window]:
            del agent["rows"][seq]
            agent["rolled"] += 1

    def push(self, agent, event, request, response, timestamp):
        name, agent = agent, self._agent(agent)
        agent["given"] += 1
        agent["rows"][agent["given"]] = (event, request, response, timestamp)
        self._trim(agent)
        self.clock += 1
        agent["last"] = self.clock
        self._make_room(name)

    def total(self):
        return sum(size(*row[1:3]) for agent in self.agents.values()
                   for row in agent["rows"].values())

    def _make_room(self, pushed=None):
        """The oldest rows of the agent that pushed longest ago, and so on; at
        most 100, never the row that was just pushed."""
        if not self.max_bytes:
            return
        over, left = self.total() - self.max_bytes, 100
        for agent in sorted(self.agents.values(), key=lambda agent: agent["last"]):
            for seq in sorted(agent["rows"]):
                own = agent is self.agents.get(pushed) and seq == agent["given"]
                if over > 0 and left > 0 and not own:
                    over -= size(*agent["rows"].pop(seq)[1:3])
                    left -= 1
                    agent["rolled"] += 1

    def set_max_bytes(self, max_bytes):
        if not self.max_bytes:
            self.clock += 1
            for agent in self.agents.values():
                agent["last"] = self.clock
        self.max_bytes = max_bytes
        self._make_room()

    def delete(self, agent, seq):
        if agent in self.agents and seq in self.agents[agent]["rows"]:
            del self.agents[agent]["rows"][seq]
            self.agents[agent]["cleared"] += 1

    def clear(self, agent=None):
        for name in self.agents if agent is None else {agent} & set(self.agents):
            self.agents[name]["cleared"] += len(self.agents[name]["rows"])
            self.agents[name]["rows"] = {}

    def set_window(self, window):
        self.window = window
        for agent in self.agents.values():
            self._trim(agent)

    def _take(self, agent, counter):
        if agent not in self.agents:
            return []
        agent = self.agents[agent]
        taken = [agent["rows"][seq] for seq in sorted(agent["rows"])]
        agent[counter] += len(taken)
        agent["rows"] = {}
        return taken

    def extract(self, agent):
        return self._take(agent, "cleared")

    def kill_switch(self, agent, event):
        """Returns how many rows become evidence. A kill switch does not save an exchange that
        equals one of its evidence."""
        new = [(event, agent) + row for row in self._take(agent, "saved")]
        new = [row for row in new if row not in self.evidence]
        self.evidence += new
        return len(new)

    def rows(self):
        return [
            (name, *agent["rows"][seq], size(*agent["rows"][seq][1:3]), seq)
            for name, agent in sorted(self.agents.items(), key=lambda a: a[0].encode())
            for seq in sorted(agent["rows"])
        ]

    def counters(self):
        return [
            (name, *(agent[c] for c in COUNTERS), len(agent["rows"]),
             sum(size(*row[1:3]) for row in agent["rows"].values()))
            for name, agent in sorted(self.agents.items(), key=lambda a: a[0].encode())
        ]


def size(*bodies):
    return sum(
        len(body.encode() if isinstance(body, str) else body or b"")
        for body in bodies
    )


def same(db, model, ring="ring", schema="main"):
    """Checks that the ring, its counters and the evidence equal those of the model."""
    table = f"{quoted(schema)}.{quoted(ring)}"
    agents = f"{quoted(schema)}.{quoted(ring + '_agents')}"
    columns = ("agent_id, event_id, request_body, response_body, timestamp, "
               "size_bytes, seq")
    assert rows(db, f"SELECT {columns} FROM {table} ORDER BY agent_id, seq") \
        == model.rows()
    counters = rows(
        db, "SELECT agent_id, given, rolled, cleared, saved, rows, bytes "
        f"FROM {agents} ORDER BY agent_id")
    assert counters == model.counters()
    assert all(c[1] == c[2] + c[3] + c[4] + c[5] for c in counters)


def push(db, agent, event="e", request="q", response="r", timestamp=1000,
         ring="ring"):
    db.execute(
        f"INSERT INTO {ring}(agent_id, event_id, request_body, response_body, "
        "timestamp) VALUES(?,?,?,?,?)",
        (agent, event, request, response, timestamp))


def extracted(text):
    return [
        (e["eventId"], e["requestBody"], e["responseBody"], e["timestamp"])
        for e in json.loads(text)
    ]


def check(db):
    """What blackbox_check finds when the rows that plain SQL wrote into the log have leaves."""
    one(db, "SELECT proof_head()")
    return rows(db, "SELECT * FROM blackbox_check")


# ------------------------------------------------------------ the queue ----

CALL = "SELECT payload_queue(?, 'a', ?, 'r')"
ROW = ("INSERT INTO payload_queue(event_id, agent_id, request_body, response_body) "
       "VALUES(?, 'a', ?, 'r')")
CALLED = "INSERT INTO blackbox_call VALUES('payload_queue', json_array(?, 'a', ?, 'r'))"


def setting(db, name, value, schema="main"):
    db.execute(f"INSERT OR REPLACE INTO {schema}.blackbox_settings(name, value) VALUES(?,?)",
               ("payload." + name, value))


def in_memory(db):
    """Enables the archive, with its queue in mode memory."""
    db.execute("PRAGMA synchronous=OFF")
    setting(db, "enabled", 1)
    setting(db, "queue_mode", "memory")
    setting(db, "flush_interval_ms", 60000)
    return db


def put(db, *events, body="q", how=CALL):
    for event in events:
        db.execute(how, (event, body)).fetchall()


def stored(db, schema="main"):
    return [r[0] for r in rows(db, f"SELECT event_id FROM {schema}.event_payloads "
                               "WHERE purpose = 'archive' ORDER BY rowid")]


def waiting(db):
    return [r[0] for r in rows(db, "SELECT event_id FROM payload_queue")]


NUMBERS = {
    "step": "n error turn arguments made time start call result loose said talk spent cost "
            "spent_before made_before cost_before seq before",
    "head": "head_at head head_key head_items items first"}


def numbers(blob, names):
    found = {}
    for name in names.split():
        count, blob = blob[0], blob[1:]
        found[name], blob = int.from_bytes(blob[:count], "little"), blob[count:]
    return found, blob


def steps(db, table="ring_slots"):
    """The steps of each agent as its exchanges say them; error is 0 without a result, 1 for none,
    2 for one."""
    found = {}
    for agent, blob in rows(db, f"SELECT id >> 29, steps FROM {table} WHERE steps NOT NULL ORDER BY id >> 29, seq"):
        head, blob = numbers(blob[8:], NUMBERS["head"])
        while blob:
            step, blob = numbers(blob, NUMBERS["step"])
            step["tool"], blob = blob[1:1 + blob[0]], blob[1 + blob[0]:]
            found[agent, step["n"]] = {"agent": agent, **step, **head}
    return [found[key] for key in sorted(found)]


def calls_of(db, **having):
    """The steps that are calls, with such values."""
    return [step for step in steps(db) if step["arguments"]
            and all(step[name] == value for name, value in having.items())]
