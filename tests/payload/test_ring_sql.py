"""What a ring adds to a file: six objects, which only the module writes."""
import sqlite3

import pytest

import sessions
from conftest import by_hand, connect, one, problems, rows, shell
from payload_helpers import push, quoted, setting

TABLES = ["agents", "slots", "texts"]


@pytest.fixture
def ring(db):
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    return db


def test_a_ring_has_four_objects_from_its_creation_on(ring):
    def objects():
        return rows(ring, "SELECT type, name FROM sqlite_schema WHERE name GLOB 'ring*' "
                    "AND sql NOT NULL ORDER BY 2")
    made = [("table", "ring")] + [("table", f"ring_{name}") for name in TABLES]
    assert objects() == made
    setting(ring, "on_loop", "kill_switch")
    for option in ("window", "max_bytes", "idle_days"):
        ring.execute("INSERT INTO ring(ring, value) VALUES(?, 9)", (option,))
    push(ring, "a")
    one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert objects() == made
    assert one(ring, "SELECT sum(length(sql)) FROM sqlite_schema WHERE tbl_name GLOB 'ring_*'") < 460


@pytest.mark.parametrize("table", TABLES)
def test_defensive_mode_protects_every_table(ring, path, table):
    assert "may not be modified" in shell(
        "-batch", path, stdin=f".load ./blackbox\n.dbconfig defensive on\nDELETE FROM ring_{table};")


# ---- what it reads and writes ----

def work(db, sql, *args):
    """The instructions of SQLite, in tens, that a statement takes, with those inside of it."""
    count = [0]
    db.set_progress_handler(lambda: count.__setitem__(0, count[0] + 1), 10)
    db.execute(sql, args).fetchall()
    db.set_progress_handler(None, 0)
    return count[0]


@pytest.mark.parametrize("where, seqs", [
    ("seq = 47", [47]), ("seq = 47.0", [47]), ("seq = 47.5", []), ("seq = '47'", [47]),
    ("seq > 57", [58, 59, 60]), ("seq >= 59", [59, 60]), ("seq < 13", [11, 12]),
    ("seq BETWEEN 49 AND 51", [49, 50, 51]), ("seq = 10", []), ("seq = 61", []),
    ("seq = NULL", []), ("seq > 50 AND seq < 50", []), ("seq > 40 AND seq = 11", [])])
@pytest.mark.parametrize("order", ["", "ORDER BY seq", "ORDER BY seq DESC"])
def test_bounds_of_seq_are_those_of_the_rows(ring, where, seqs, order):
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 50)")
    ring.execute("BEGIN")
    for _ in range(60):
        push(ring, "a")
    found = [r[0] for r in rows(ring, f"SELECT seq FROM ring WHERE agent_id = 'a' AND {where} {order}")]
    assert found == (seqs[::-1] if "DESC" in order else seqs)
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 7)")
    found = [r[0] for r in rows(ring, f"SELECT seq FROM ring WHERE agent_id = 'a' AND {where}")]
    assert found == [seq for seq in seqs if seq > 53]


def test_one_exchange_is_found_without_the_others(ring):
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 5000)")
    ring.execute("BEGIN")
    for _ in range(5000):
        push(ring, "a")
    assert work(ring, "SELECT * FROM ring WHERE agent_id = 'a' AND seq = 2500") <= 20


def wal_bytes(path, db, rows_of):
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for row in rows_of:
        db.execute("INSERT INTO t(agent_id, event_id, request_body, response_body, timestamp) "
                   "VALUES(?, ?, ?, ?, ?)", row)
    return (path.parent / (path.name + "-wal")).stat().st_size


def test_a_push_of_another_size_is_not_written_twice(tmp_path):
    def traffic(n):
        for i in range(n):
            yield f"a{i % 4}", "e", chr(97 + i % 26) * (25000 + (i * 7919) % 16000), "r", i
    figures = []
    for ddl in ("CREATE VIRTUAL TABLE t USING payload_ring(window=10)",
                "CREATE TABLE t(id INTEGER PRIMARY KEY, agent_id, event_id, request_body, "
                "response_body, timestamp)"):
        path = tmp_path / f"{len(figures)}.db"
        db = connect(path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("PRAGMA secure_delete=1")
        db.execute(ddl)
        wal_bytes(path, db, traffic(100))
        figures.append(wal_bytes(path, db, traffic(200)))
    assert figures[0] < 1.35 * figures[1]


def test_the_check_is_linear_in_the_agents(ring):
    def check(n):
        ring.execute("BEGIN")
        for i in range(n):
            push(ring, f"agent {i}")
        ring.execute("COMMIT")
        return work(ring, "SELECT * FROM blackbox_check")
    few = check(0)
    first, second = check(1000) - few, check(4000) - few
    assert second < 6 * first


def test_payload_loops_of_an_agent_does_not_grow_with_the_others(ring):
    setting(ring, "on_loop", "record")
    push(ring, "a")
    before = work(ring, "SELECT * FROM payload_loops('ring', 'a')")
    for i in range(300):
        push(ring, f"agent {i}")
    assert work(ring, "SELECT * FROM payload_loops('ring', 'a')") <= before + 2


# ---- steps go with their exchanges ----

STEPS = "SELECT seq FROM ring_slots WHERE id >> 29 = 1 AND steps NOT NULL ORDER BY 1"


@pytest.fixture
def watched(ring):
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 30)")
    setting(ring, "on_loop", "record")
    for request, response, at in sessions.chat([("f", {"x": i}, str(i)) for i in range(4)]):
        push(ring, "a", "e", request, response, at)
    push(ring, "b")
    return ring


def test_a_deleted_exchange_takes_its_steps_along(watched):
    seqs = [r[0] for r in rows(watched, STEPS)]
    assert len(seqs) > 3
    watched.execute("DELETE FROM ring WHERE agent_id = 'a' AND seq = ?", (seqs[1],))
    watched.execute("DELETE FROM ring WHERE agent_id = 'a' AND seq = ?", (seqs[-1],))
    assert [r[0] for r in rows(watched, STEPS)] == seqs[:1] + seqs[2:-1]
    watched.execute("DELETE FROM ring")
    assert one(watched, "SELECT count(steps) FROM ring_slots") == 0


@pytest.mark.parametrize("act", ["SELECT payload_extract('ring', 'a')",
                                 "SELECT payload_kill_switch('ring', 'a', 'k')"])
def test_what_is_taken_out_takes_its_steps_along(watched, act):
    one(watched, act)
    assert rows(watched, STEPS) == [] and one(watched, "SELECT count(steps) FROM ring_slots") == 1


def test_another_connection_sees_that_steps_went(watched, path):
    other = connect(path)
    exchanges = list(sessions.chat([("f", {"x": 1}, "same")] * 4))
    for i, (request, response, at) in enumerate(exchanges):
        push(other if i < 3 else watched, "c", f"c{i}", request, response, at)
        if i == 2:
            watched.execute("DELETE FROM ring WHERE agent_id = 'c'")
    push(other, "c", "c", *exchanges[-1])
    assert rows(other, "SELECT * FROM blackbox_check") == []


# ---- rings whose tables are not those of the module ----

@pytest.mark.all_domains
def test_a_ring_of_a_newer_module_is_left_alone(db, path):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    by_hand(path, "UPDATE ring_texts SET body = 2 WHERE id = -4; DROP TABLE ring_slots")
    schema = rows(db, "SELECT * FROM sqlite_schema")
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM sqlite_schema") == schema
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert len(found) == 1 and found[0][0] == "ring" and "VersionError" in found[0][1]
    with pytest.raises(sqlite3.OperationalError, match="VersionError"):
        db.execute("ALTER TABLE ring RENAME TO tape")


def test_a_ring_that_lost_a_table_does_not_stop_an_install(db, path):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    by_hand(path, "DROP TABLE ring_slots; DROP TRIGGER payload_delete_guard")
    one(db, "SELECT blackbox_install()")
    found = dict(rows(db, "SELECT object, problem FROM blackbox_check"))
    assert "payload_delete_guard" not in found
    assert found["ring_slots"].startswith("table is missing; save the rows that can be read")
    db.execute("DROP TABLE ring")
    assert problems(db) == []


def test_a_table_with_the_name_of_a_ring_table_is_an_error(db):
    db.execute("CREATE TABLE ring_slots(theirs)")
    with pytest.raises(sqlite3.OperationalError, match="already"):
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name GLOB 'ring*'") == [("ring_slots",)]


@pytest.mark.parametrize("sql", [
    "CREATE TRIGGER theirs BEFORE UPDATE ON ring_slots BEGIN SELECT RAISE(IGNORE); END",
    "CREATE TEMP TRIGGER theirs BEFORE UPDATE ON main.ring_slots BEGIN SELECT RAISE(IGNORE); END",
    "CREATE UNIQUE INDEX theirs ON ring_slots(seq)"])
def test_a_stranger_on_a_ring_is_named(db, sql):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "a", "e")
    db.execute(sql)
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert len(found) == 1 and found[0][0] == "ring_slots" and " theirs does not" in found[0][1]
