"""What requests share, a ring has once. Each exchange reads the same bytes alone, also by a reader
that has nothing of the module (ring_reader.py)."""
import os
import random
import re
import sqlite3

import pytest

import ring_reader
from conftest import by_hand, connect, one, rows
from payload_helpers import Model, push

FULL = bool(os.environ.get("BLACKBOX_FULL"))
WORDS = ["error", "the file", "né", "{\"a\":1}", "tool", "\\n", "日本", "0"]


class Talk:
    """Requests of an agent: some conversations that go on in turn."""

    def __init__(self, dice):
        self.dice, self.talks, self.count = dice, [""] * 5, 0

    def words(self, size):
        self.count += 1
        made = [f"<{self.count}>"]
        while sum(map(len, made)) < size:
            made.append(self.dice.choice(WORDS))
        return "".join(made)

    def next(self):
        talk = min(int(self.dice.expovariate(1)), 4)
        text, kind = self.talks[talk], self.dice.random()
        if kind < 0.05 or len(text) > 60_000:  # a compaction
            text = text[:self.dice.randrange(600)] + self.words(self.dice.randrange(20_000))
        elif kind < 0.1 and text:  # an edit in the middle
            at = self.dice.randrange(len(text))
            text = text[:at] + "EDIT" + text[at + 3:]
        elif kind < 0.15:
            text = self.words(self.dice.randrange(9000))
        else:
            text = text[:max(0, len(text) - 2)] + self.words(self.dice.choice([1, 90, 900, 5000]))
        self.talks[talk] = text
        return text.encode() if kind > 0.97 else text + "]}"


class Run:
    """A random run on two connections to one file."""

    def __init__(self, path, seed):
        self.dice, self.path = random.Random(seed), path
        self.agents = [f"agent {i}" for i in range(self.dice.choice([1, 3, 70]))]
        self.talks = {agent: Talk(self.dice) for agent in self.agents}
        self.model = Model(self.dice.choice([1, 4, 10, 50]))
        self.dbs = [self.open(), self.open()]
        self.dbs[0].execute(
            f"CREATE VIRTUAL TABLE ring USING payload_ring(window={self.model.window})")
        self.count, self.db = 0, None

    def open(self):
        db = connect(self.path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")
        db.execute(f"PRAGMA secure_delete={self.dice.randrange(2)}")
        return db

    def agent(self):
        return self.agents[min(int(self.dice.expovariate(0.5)), len(self.agents) - 1)]

    def push(self):
        agent, self.count = self.agent(), self.count + 1
        row = (f"e{self.count}", self.talks[agent].next(), self.dice.choice(
            [None, "", "r" * self.dice.randrange(300), self.talks[agent].words(
                self.dice.randrange(5000)), b"\0" * self.dice.randrange(200)]), self.count)
        push(self.db, agent, *row)
        self.model.push(agent, *row)

    def complete(self):
        agent = self.agent()
        there = self.model.agents.get(agent, {"rows": {}})["rows"]
        seq = max((s for s, row in there.items() if row[2] is None), default=None)
        if seq is not None:
            event, request, _, at = there[seq]
            there[seq] = (event, request, "late " * self.dice.choice([1, 100, 3000]), at)
            self.db.execute("INSERT INTO ring(ring, agent_id, event_id, response_body) "
                            "VALUES('complete', ?, ?, ?)", (agent, event, there[seq][2]))

    def delete(self):
        agent = self.agent()
        seqs = list(self.model.agents.get(agent, {"rows": {}})["rows"])
        for seq in self.dice.sample(seqs, len(seqs) // self.dice.randrange(2, 9)):
            self.db.execute("DELETE FROM ring WHERE agent_id = ? AND seq = ?", (agent, seq))
            self.model.delete(agent, seq)

    def window(self):
        window = self.dice.choice([1, 3, 8, 20, 50, 200])
        self.db.execute("INSERT INTO ring(ring, value) VALUES('window', ?)", (window,))
        self.model.set_window(window)

    def kill_switch(self):
        agent, self.count = self.agent(), self.count + 1
        if agent in self.model.agents:
            assert one(self.db, "SELECT payload_kill_switch('ring', ?, ?)", agent,
                       f"k{self.count}") == self.model.kill_switch(agent, f"k{self.count}")

    def reopen(self):
        i = self.dice.randrange(2)
        if self.dbs[i] is not self.db:
            self.dbs[i].close()
            self.dbs[i] = self.open()

    def operations(self, count):
        for _ in range(count):
            self.dice.choice([self.push] * 40 + [self.complete] * 6 + [
                self.delete, self.window, self.kill_switch, self.reopen])()

    def step(self):
        """Some operations; as one transaction, or as one that is rolled back."""
        self.db, how = self.dice.choice(self.dbs), self.dice.randrange(4)
        before = self.model.copy()
        self.db.execute("BEGIN" if how else "SELECT 1")
        if how == 1:
            self.operations(self.dice.randrange(5))
            self.db.execute("SAVEPOINT s")
            inner = self.model.copy()
            self.operations(self.dice.randrange(9))
            self.db.execute("ROLLBACK TO s")
            self.model = inner
        self.operations(self.dice.randrange(12))
        if how == 2:
            self.db.execute("ROLLBACK")
            self.model = before
        elif how:
            self.db.execute("COMMIT")
        self.compare()

    def compare(self):
        expected = [(agent, seq, event, at, request, response) for
                    agent, event, request, response, at, _, seq in self.model.rows()]
        assert [row[:6] for row in ring_reader.read(self.dbs[0])] == expected
        columns = "SELECT agent_id, seq, event_id, timestamp, request_body, response_body FROM ring"
        db = self.dice.choice(self.dbs)
        assert rows(db, columns + " ORDER BY agent_id, seq") == expected
        agent = self.agent()
        assert rows(db, columns + " WHERE agent_id = ? ORDER BY seq DESC", agent) \
            == [row for row in expected[::-1] if row[0] == agent]
        if expected:
            row = self.dice.choice(expected)
            assert rows(db, columns + " WHERE agent_id = ? AND seq = ?", *row[:2]) == [row]


@pytest.mark.parametrize("seed", range(60 if FULL else 1))
def test_random_conversations_read_the_same(path, seed):
    run = Run(path, seed)
    for _ in range(130 if FULL else 40):
        run.step()
    assert rows(run.dbs[0], "SELECT * FROM blackbox_check") == []
    saved = rows(run.dbs[0], "SELECT kill_switch_event_id, agent_id, event_id, request_body, "
                 "response_body FROM event_payloads")
    assert sorted(map(repr, saved)) == sorted(repr(row[:5]) for row in run.model.evidence)


@pytest.mark.parametrize("seed", range(120 if FULL else 8))
def test_a_push_that_is_rolled_back_and_made_again(path, seed):
    """The connection then has the same text twice in memory."""
    dice, db, talks = random.Random(seed), connect(path), []
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=8)")
    for i in range(120):
        if len(talks) < 2 or dice.random() < 0.1:
            talks = [*talks, f"{i} " + "w" * dice.randrange(300, 9000)][-5:]
        talk = dice.randrange(len(talks))
        talks[talk] += f" more {i}" * dice.randrange(1, 60)
        if dice.random() < 0.5:
            db.execute("BEGIN")
            push(db, "a", f"e{i}", talks[talk])
            db.execute("ROLLBACK")
        push(db, "a", f"e{i}", talks[talk])
        assert one(db, "SELECT request_body FROM ring ORDER BY seq DESC LIMIT 1") == talks[talk]
        if dice.random() < 0.06:
            db.execute("DELETE FROM ring WHERE seq % ? = 0", (dice.choice([1, 2, 3]),))
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ---- a full disk ----

@pytest.mark.parametrize("seed", range(12 if FULL else 1))
def test_a_full_disk_loses_no_exchange_that_was_taken(path, seed):
    """A push that does not fit fails whole; with it goes at most its own transaction."""
    run = Run(path, seed)
    run.db, refused = run.dbs[0], 0
    for turn in range(30):
        pages = one(run.db, "PRAGMA page_count") - one(run.db, "PRAGMA freelist_count")
        one(run.db, f"PRAGMA max_page_count={pages + run.dice.randrange(12)}")
        before = run.model.copy()
        if turn % 2:
            run.db.execute("BEGIN")
        for _ in range(12):
            last = run.model.copy()
            try:
                run.dice.choice([run.push] * 9 + [run.complete, run.delete])()
            except sqlite3.OperationalError as error:
                assert "full" in str(error)
                refused += 1
                # either the statement was undone or the transaction
                run.model = last if run.db.in_transaction or turn % 2 == 0 else before
                break
        if run.db.in_transaction:
            run.db.execute("COMMIT")
        one(run.db, "PRAGMA max_page_count=1000000")
        run.compare()
    assert refused > 3
    assert rows(run.db, "SELECT * FROM blackbox_check") == []
    assert one(run.db, "PRAGMA integrity_check") == "ok"


# ---- what a connection keeps in memory ----

def of_another(path, sql, *values):
    other = connect(path)
    other.execute(sql, values)
    other.close()


PUSH = ("INSERT INTO ring(agent_id, event_id, request_body, timestamp)"
        " VALUES('a', 'between', '%s', 1)" % ("between " * 200))


@pytest.mark.parametrize("between", [
    lambda db, path: of_another(path, PUSH),
    lambda db, path: db.executescript(f"BEGIN; {PUSH}; ROLLBACK"),
    lambda db, path: db.executescript(f"BEGIN; SAVEPOINT s; {PUSH}; ROLLBACK TO s; COMMIT"),
    lambda db, path: db.executescript("BEGIN; DELETE FROM ring WHERE seq > 7; ROLLBACK"),
    lambda db, path: db.execute("DELETE FROM ring WHERE seq > 7"),
    lambda db, path: of_another(path, "DELETE FROM ring WHERE seq > 7"),
    lambda db, path: db.execute("INSERT INTO ring(ring, value) VALUES('window', 3)"),
    lambda db, path: of_another(path, "INSERT INTO ring(ring, value) VALUES('window', 3)"),
    lambda db, path: db.execute("INSERT INTO ring(ring, value) VALUES('max_bytes', 9000)"),
    lambda db, path: db.execute("SELECT payload_extract('ring', 'a')").fetchall(),
    lambda db, path: of_another(path, "SELECT payload_kill_switch('ring', 'a', 'k')"),
    lambda db, path: db.execute("INSERT INTO ring(ring, agent_id, event_id, response_body) "
                                "VALUES('complete', 'a', 'e9', ?)", ("late " * 99,)),
    lambda db, path: db.execute("SELECT retention_hold('agent', 'a', 'x', 'y', 'z')").fetchall(),
    lambda db, path: db.execute("UPDATE ring_agents SET given = given + 1, rolled = rolled + 1"),
    lambda db, path: [push(db, f"a{i}") for i in range(300)],
])
def test_a_push_notices_what_came_between(tmp_path, between):
    """Beside a ring of which the connection knows nothing before each push."""
    read = []
    for name in ("known", "read"):
        path = tmp_path / name
        db = connect(path)
        db.execute("SELECT blackbox_install('main', 'payload,retention')")
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=10)")
        for i in range(30):
            if i == 12:
                between(db, path)
            if name == "read":
                db.execute("UPDATE ring_texts SET body = body WHERE id < 0")
            push(db, "a", f"e{i}", "said " * (100 + 10 * i), None, i)
        columns = "no, agent_id, window, kept, given, rolled, cleared, saved, rows, bytes"
        read.append([rows(db, f"SELECT {columns} FROM ring_agents"),
                     rows(db, "SELECT * FROM ring"), ring_reader.read(db),
                     rows(db, "SELECT object FROM blackbox_check")])
        db.close()
    assert read[0] == read[1]
    assert len(read[0][2]) > 2


def test_only_what_others_have_pushed_is_read_again(path):
    """Three connections go on with one conversation. At times what one has pushed is rolled back,
    so the next one writes another text into the same place."""
    dbs, said, read = [connect(path) for _ in range(3)], "system prompt " * 2000, []
    chunks = re.compile(r"FROM \S*_texts\S* WHERE id BETWEEN [?\d]")
    dbs[0].execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    for i in range(60):
        db = dbs[i % 3]
        if i % 7 == 0:
            db.execute("BEGIN")
            push(db, "a", f"undone {i}", said + f" undone {i}" * 40, None, i)
            db.execute("ROLLBACK")
        said += f" said {i}" * 20
        db.set_trace_callback(lambda sql: read.extend(chunks.findall(sql)))
        push(db, "a", f"e{i}", said, None, i)
        db.set_trace_callback(None)
        assert one(db, "SELECT request_body FROM ring ORDER BY seq DESC LIMIT 1") == said
    assert rows(dbs[0], "SELECT * FROM blackbox_check") == []
    assert len(read) < 30


def test_a_text_stays_while_a_query_has_it(db):
    """A row gets the memory in which its text was put together, and the next text begins with it."""
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    said = ["system prompt " * 500]
    for i in range(1, 20):
        said.append(said[-1][:-i] + f" said {i}\0" * (i % 5) + "z" * i)
    for i, text in enumerate(said):
        push(db, "a", f"e{i}", text, (text + "!").encode(), i)
    answers = [(text + "!").encode() for text in said]
    both = list(zip(said, answers))
    query = "SELECT request_body, response_body FROM ring"
    assert rows(db, query) == both
    assert rows(db, query + " ORDER BY seq DESC") == both[::-1]
    assert rows(db, query + " ORDER BY timestamp DESC") == both[::-1]
    assert rows(db, "SELECT max(request_body), min(request_body), max(response_body) FROM ring") \
        == [(max(said), min(said), max(answers))]
    assert rows(db, "SELECT a.request_body, b.request_body FROM ring AS a JOIN ring AS b"
                " ON b.seq = 20 - a.seq WHERE a.agent_id = 'a' AND b.agent_id = 'a'") \
        == list(zip(said[:19], said[18::-1]))
    assert rows(db, "SELECT request_body, lag(request_body, 3) OVER (ORDER BY seq),"
                " lead(response_body) OVER (ORDER BY seq) FROM ring") \
        == list(zip(said, [None] * 3 + said, answers[1:] + [None]))
    assert rows(db, "WITH r AS MATERIALIZED (SELECT * FROM ring) SELECT request_body FROM r"
                " WHERE request_body IN (SELECT request_body FROM ring)") == [(t,) for t in said]
    first, second = db.execute(query), db.execute(query + " ORDER BY seq DESC")
    for i in range(20):
        assert (next(first), next(second)) == (both[i], both[19 - i])
    for i, row in enumerate(db.execute(query + " LIMIT 20")):
        assert row == both[i]
        push(db, "b", f"e{i}", said[i])
        assert one(db, "SELECT request_body FROM ring WHERE agent_id = 'a' AND seq = ?", 20 - i) \
            == said[19 - i]


# ---- what it takes ----

def texts(db):
    """All bytes that the ring has of bodies."""
    return b"".join(row[0] for row in rows(
        db, "SELECT body FROM ring_texts WHERE id > 0 UNION ALL SELECT page FROM ring_agents WHERE page NOT NULL"
        " UNION ALL SELECT CAST(concat AS BLOB) FROM (SELECT coalesce(request_body, '') || "
        "coalesce(response_body, '') AS concat FROM ring_slots)"))


@pytest.fixture
def ring(db):
    db.execute("PRAGMA secure_delete=1")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    return db


def talk(db, count, first=0, agent="a"):
    for i in range(first, first + count):
        push(db, agent, f"e{i}", "system prompt " * 1500 + "".join(
            f"<said {agent}{n}>" + "x" * 400 for n in range(i + 1)), f"<answer {agent}{i}>" * 30, i)


def test_a_conversation_is_kept_once(ring):
    talk(ring, 60)
    live = one(ring, "SELECT sum(size_bytes) FROM ring")
    kept = one(ring, "SELECT sum(pgsize) FROM dbstat WHERE name GLOB 'ring_*'")
    assert kept < live / 8


def test_what_is_not_shared_is_not_kept_twice(ring):
    dice = random.Random(3)
    for i in range(120):
        push(ring, f"a{i % 2}", f"e{i}", dice.randbytes(20_000).hex(), "r", i)
    live = one(ring, "SELECT sum(size_bytes) FROM ring")
    assert one(ring, "SELECT sum(pgsize) FROM dbstat WHERE name GLOB 'ring_*'") < 1.9 * live


@pytest.mark.parametrize("sql", [
    "DELETE FROM ring WHERE seq > 40", "DELETE FROM ring WHERE seq % 2", "DELETE FROM ring",
    "DELETE FROM ring WHERE seq < 30", "DELETE FROM ring WHERE seq <> 25"])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_what_is_deleted_leaves_no_bytes(ring, sql, begin):
    talk(ring, 60)
    before = rows(ring, "SELECT * FROM ring")
    ring.execute(begin)
    ring.execute(sql)
    if begin:
        ring.execute("COMMIT")
    left, found = rows(ring, "SELECT * FROM ring"), texts(ring)
    assert left == [row for row in before if row in left]
    needed = "".join(str(row) for row in left)
    for i in range(60):
        for mark in f"<answer a{i}>", f"<said a{i}>":
            assert (mark.encode() in found) == (mark in needed), (mark, sql)
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_what_rolled_out_is_cleared_by_pushes(ring):
    talk(ring, 60)
    talk(ring, 110, 60)
    found = texts(ring)
    assert not any(f"<answer a{i}>".encode() in found for i in range(60))
    push(ring, "a", "last", "short")
    for i in range(99):
        push(ring, "a", f"f{i}", "short" * 40)
    assert b"<said a" not in texts(ring)


def in_the_log(db):
    """All bytes of the log, without the places that are free."""
    page = one(db, "SELECT page FROM ring_agents")
    if page is None:
        return b""
    places = ring_reader.Log(db, "ring", 1, page).places
    return page + b"".join(one(db, "SELECT body FROM ring_texts WHERE id = ?", 1 << 32 | place)
                           for place in places.values())


@pytest.mark.parametrize("window, talks, size", [
    (3, 6, 300), (5, 1, 4000), *[(20, 4, 900), (40, 2, 2000)] * FULL])
def test_what_rolled_out_is_gone_two_windows_later(path, window, talks, size):
    """Each connection makes three pushes: none of them has time for a sweep of its own."""
    dice, said, gone = random.Random(window), [""] * talks, {}
    for n in range(1, 4 * window + 150):
        if n % 3 == 1:
            db = connect(path)
            db.execute("PRAGMA secure_delete=1")
            if n == 1:
                db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={window})")
        k = dice.randrange(talks)
        if dice.random() < 0.1 or len(said[k]) > 20 * size:
            said[k] = said[k][:len(said[k]) // dice.randrange(1, 9)] if dice.random() < 0.5 else ""
        said[k] += f"<said {n}>" + "".join(dice.choices("abc ", k=dice.randrange(size)))
        push(db, "a", f"e{n}", said[k] if dice.random() < 0.9 else f"<said {n}>",
             f"<answer {n}>" + "x" * dice.randrange(size), n)
        if n % 5 and n > 30:
            continue
        needed = "".join(f"{row}" for row in rows(db, "SELECT request_body, response_body FROM ring"))
        found = in_the_log(db)
        for i in range(1, n - window + 1):
            for mark in f"<said {i}>", f"<answer {i}>":
                if mark in needed:
                    gone.pop(mark, None)
                elif n - gone.setdefault(mark, n) > 2 * window + 40:
                    assert mark.encode() not in found, (mark, n)
    assert len(gone) > 5 * window and rows(db, "SELECT * FROM blackbox_check") == []


def test_an_agent_without_exchanges_has_no_texts(ring):
    talk(ring, 9)
    talk(ring, 9, agent="b")
    one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')")
    one(ring, "SELECT payload_extract('ring', 'b')")
    assert rows(ring, "SELECT (SELECT count(*) FROM ring_texts WHERE id > 0), page FROM ring_agents") \
        == [(0, None)] * 2
    talk(ring, 3)
    assert one(ring, "SELECT count(*) FROM ring WHERE length(request_body) > 20000") == 3


def test_a_large_body_gives_its_pages_back(ring):
    push(ring, "a", "e", "x" * 4_000_000)
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    for i in range(1500):
        push(ring, "a", "e", str(i) * 2500)
    assert one(ring, "SELECT count(*) FROM ring_texts") < 300


def test_a_statement_that_fails_writes_no_text(ring):
    talk(ring, 5)
    before = rows(ring, "SELECT * FROM ring_texts"), rows(ring, "SELECT page FROM ring_agents")
    for begin in "", "BEGIN":
        ring.execute(begin)
        with pytest.raises(sqlite3.IntegrityError):
            ring.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES"
                         "('a', 'e', ?), ('a', NULL, 'x')", ("new" * 5000,))
        assert (rows(ring, "SELECT * FROM ring_texts"), rows(
            ring, "SELECT page FROM ring_agents")) == before
    talk(ring, 5, 5)
    ring.execute("COMMIT")
    assert len(ring_reader.read(ring)) == 10


# ---- damage ----

@pytest.mark.parametrize("damage", [
    "UPDATE ring_texts SET body = zeroblob(3508) WHERE id & 65535 = 2",
    "DELETE FROM ring_texts WHERE id & 65535 = 2",
    "UPDATE ring_texts SET id = id + 1000 WHERE id & 65535 = 2",
    "UPDATE ring_texts SET body = (SELECT body FROM ring_texts WHERE id & 65535 = 3)"
    " WHERE id & 65535 = 2"])
def test_check_names_the_exchanges_of_a_damaged_text(ring, path, damage):
    talk(ring, 3)
    talk(ring, 3, agent="b")
    ring.close()
    by_hand(path, damage + " AND id >> 32 = 1")
    db = connect(path)
    found = [row[0] for row in rows(
        db, "SELECT problem FROM blackbox_check WHERE object = 'ring_texts'")]
    assert found == [f"request_body of exchange {i} of agent a is damaged" for i in (1, 2, 3)]
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: table ring_texts"):
        rows(db, "SELECT * FROM ring WHERE agent_id = 'a'")
    assert one(db, "SELECT count(*) FROM ring WHERE length(request_body) AND agent_id = 'b'") == 3
    talk(db, 2, 3)  # begin a new text
    assert one(db, "SELECT sum(length(request_body)) FROM ring WHERE seq > 3") > 40_000
    db.execute("DELETE FROM ring WHERE agent_id = 'a' AND seq < 4")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("damage", [
    "zeroblob(3930)", "zeroblob(0)", "'text'", "substr(page, 1, 900)",
    "CAST(substr(page, 1, 60) || '~' || substr(page, 62) AS BLOB)"])
def test_check_names_a_damaged_page(ring, path, damage):
    talk(ring, 3)
    ring.close()
    by_hand(path, f"UPDATE ring_agents SET page = {damage}")
    db = connect(path)
    assert len(rows(db, "SELECT * FROM blackbox_check WHERE object = 'ring_texts'")) >= 3
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: table ring_agents"):
        rows(db, "SELECT * FROM ring")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: table ring_agents"):
        talk(db, 1, 3)
    db.execute("DELETE FROM ring WHERE seq = 2")
    db.execute("DELETE FROM ring")
    talk(db, 2)
    assert rows(db, "SELECT * FROM blackbox_check") == []
