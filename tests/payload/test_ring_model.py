"""A ring under random operations does what the ring in plain Python does."""
import os
import random

import pytest

from conftest import connect, one, rows
from payload_helpers import Model, extracted, quoted, same

FULL = bool(os.environ.get("BLACKBOX_FULL"))
AGENTS = ["a", "B", "b", 'o"c', "d'é\n", "日本 🤖", "z" * 1024]
PLACES = [("main", "ring"), ('at "t\'d', 'a "ring" \'x'), ("temp", "memory ring")]


class Run:
    """One random run on two connections to one file (temp: on one)."""

    def __init__(self, tmp_path, seed, schema, ring):
        self.random = random.Random(seed)
        self.schema, self.ring = schema, ring
        self.table = f"{quoted(schema)}.{quoted(ring)}"
        self.path, self.other = tmp_path / "m.db", tmp_path / "o.db"
        self.dbs = [self.open()]
        db = self.dbs[0]
        one(db, "SELECT blackbox_install(?)", self.home())
        window = self.random.choice([1, 2, 3, 7])
        db.execute(f"CREATE VIRTUAL TABLE {self.table} USING "
                   f"payload_ring(window={window})")
        if schema != "temp":
            self.dbs.append(self.open())
        self.now = self.committed = Model(window)
        self.saves = []  # models at SAVEPOINT, innermost last
        self.writer = None  # the connection that has a transaction open
        self.clock = 0

    def home(self):
        return "main" if self.schema == "temp" else self.schema

    def open(self):
        db = connect(self.path)
        db.execute("PRAGMA journal_mode=WAL")
        if self.schema not in ("main", "temp"):
            db.execute(f"ATTACH ? AS {quoted(self.schema)}", (str(self.other),))
            db.execute(f"PRAGMA {quoted(self.schema)}.journal_mode=WAL")
        for schema in {"main", self.home()}:
            db.execute(f"PRAGMA {quoted(schema)}.synchronous=OFF")
        return db

    def body(self):
        return self.random.choice(
            [None, "", "x" * self.random.randrange(9000), "é\0z", b"\xff\0b", b""])

    def push(self, db):
        agent = self.random.choice(AGENTS)
        self.clock += self.random.choice([0, 1, 1000])
        row = (f"e{self.random.randrange(3)}",
               *self.random.choices([self.body(), "q", "r"], k=2), self.clock)
        statement = (f"INSERT INTO {self.table}(agent_id, event_id, request_body, "
                     "response_body, timestamp) VALUES(?,?,?,?,?)")
        db.execute(statement, (agent, *row))
        self.now.push(agent, *row)

    def push_many(self, db):
        pushes = [(self.random.choice(AGENTS), "m", "q" * i, None, i)
                  for i in range(self.random.randrange(2, 9))]
        values = ",".join(["(?,?,?,?,?)"] * len(pushes))
        db.execute(f"INSERT INTO {self.table}(agent_id, event_id, request_body, "
                   f"response_body, timestamp) VALUES{values}",
                   [value for p in pushes for value in p])
        for p in pushes:
            self.now.push(*p)

    def delete(self, db):
        agent, seq = self.random.choice(AGENTS), self.random.randrange(1, 30)
        db.execute(f"DELETE FROM {self.table} WHERE agent_id=? AND seq=?",
                   (agent, seq))
        self.now.delete(agent, seq)

    def clear(self, db):
        agent = self.random.choice(AGENTS)
        db.execute(f"DELETE FROM {self.table} WHERE agent_id=?", (agent,))
        self.now.clear(agent)

    def clear_all(self, db):
        if self.random.random() < 0.2:
            db.execute(f"DELETE FROM {self.table}")
            self.now.clear()

    def window(self, db):
        window = self.random.choice([1, 2, 3, 5, 8, 13])
        db.execute(f"INSERT INTO {self.table}({quoted(self.ring)}, value) "
                   "VALUES('window', ?)", (window,))
        self.now.set_window(window)

    def max_bytes(self, db):
        max_bytes = self.random.choice([0, 3000, 20000])
        db.execute(f"INSERT INTO {self.table}({quoted(self.ring)}, value) "
                   "VALUES('max_bytes', ?)", (max_bytes,))
        self.now.set_max_bytes(max_bytes)

    def extract(self, db):
        agent = self.random.choice(AGENTS)
        blobs = [r for r in self.now.rows()
                 if r[0] == agent and bytes in map(type, r[2:4])]
        if blobs:
            return
        name = self.ring if self.random.random() < 0.5 else \
            f"{self.schema}.{self.ring}"
        assert extracted(one(db, "SELECT payload_extract(?,?)", name, agent)) \
            == self.now.extract(agent)

    def kill_switch(self, db):
        seen = [agent for agent in AGENTS if self.now.agents.get(agent, {}).get("given")]
        if not seen:
            return
        agent, event = self.random.choice(seen), self.random.choice("KL")
        if self.random.random() < 0.5:
            saved = one(db, "SELECT payload_kill_switch(?,?,?)",
                        self.ring, agent, event)
            assert saved == self.now.kill_switch(agent, event)
        else:
            db.execute(f"INSERT INTO {self.table}({quoted(self.ring)}, agent_id, "
                       "event_id) VALUES('kill_switch',?,?)", (agent, event))
            self.now.kill_switch(agent, event)

    def fail(self, db):
        with pytest.raises(Exception, match="ValidationError"):
            db.execute(f"INSERT INTO {self.table}(agent_id, event_id) "
                       "VALUES('a','1'),('b','2'),('c',NULL)")

    def begin(self, db):
        if self.writer is None:
            db.execute(self.random.choice(["BEGIN", "BEGIN IMMEDIATE"]))
            self.writer, self.committed = db, self.now.copy()

    def savepoint(self, db):
        if self.writer is not None:
            self.saves.append(self.now.copy())
            db.execute(f"SAVEPOINT s{len(self.saves)}")

    def end_savepoint(self, db):
        if self.saves:
            i = self.random.randrange(len(self.saves))
            if self.random.random() < 0.6:
                db.execute(f"ROLLBACK TO s{i + 1}")
                self.now = self.saves[i].copy()
                self.saves = self.saves[:i + 1]
            else:
                db.execute(f"RELEASE s{i + 1}")
                self.saves = self.saves[:i]

    def end(self, db):
        if self.writer is not None:
            how = self.random.choice(["COMMIT", "ROLLBACK"])
            db.execute(how)
            if how == "ROLLBACK":
                self.now = self.committed
            self.writer, self.saves = None, []

    def step(self):
        db = self.writer or self.random.choice(self.dbs)
        self.random.choice(
            [self.push] * 16 + [self.push_many] * 3 +
            [self.delete, self.clear, self.clear_all, self.window, self.max_bytes,
             self.extract,
             self.kill_switch, self.kill_switch, self.fail, self.begin,
             self.savepoint, self.savepoint, self.end_savepoint, self.end])(db)
        self.compare()

    def compare(self):
        for db in self.dbs:
            inside = self.writer is None or db is self.writer
            model = self.now if inside else self.committed
            same(db, model, self.ring, self.schema)
            assert sorted(map(repr, rows(
                db, "SELECT kill_switch_event_id, agent_id, event_id, "
                "request_body, response_body, CAST(strftime('%s', created_at) AS "
                "INTEGER) * 1000 + CAST(substr(created_at, 21, 3) AS INTEGER) FROM "
                f"{quoted(self.home())}.event_payloads"))) \
                == sorted(map(repr, model.evidence))


@pytest.mark.parametrize("schema, ring", PLACES)
@pytest.mark.parametrize("seed", range(60 if FULL else 6))
def test_random_operations_agree_with_the_model(tmp_path, seed, schema, ring):
    run = Run(tmp_path, seed, schema, ring)
    for _ in range(400 if FULL else 150):
        run.step()
    if run.writer is not None:
        run.end(run.writer)
    run.compare()
    for db in run.dbs:
        assert rows(db, "SELECT * FROM blackbox_check") == []
        db.close()
