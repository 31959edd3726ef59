"""sql/payload_ring.sql alone: any SQLite keeps a ring's rules, without the module.
And what happens to a ring whose rules are not those of the file."""
import sqlite3

import pytest

from conftest import ROOT, by_hand, connect, one, rows, shell
from payload_helpers import push, quoted

TEXT = (ROOT / "sql" / "payload_ring.sql").read_text()
WINDOW = "INSERT INTO tape_config VALUES('window', {}), ('format', 1)"
SLOT = "(({no} << 16) | ({half} << 15) | ({seq} % {window}))"


@pytest.fixture
def tape(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(TEXT.replace("@", "tape"))
    db.execute(WINDOW.format(3))
    yield db
    db.close()


def plain_push(db, no, agent, event, body):
    """A push as the manual of the file says it."""
    known = rows(db, "SELECT given, half, window FROM tape_agents WHERE no = ?", no)
    given, half, window = known[0] if known else (0, 0, 3)
    slot = SLOT.format(no=no, half=half, seq=given + 1, window=window)
    values = (given + 1, len(body), event, body)
    if rows(db, f"SELECT 1 FROM tape_slots WHERE id = {slot}"):
        db.execute("UPDATE tape_slots SET seq = ?, timestamp = 1, size_bytes = ?, event_id = ?, "
                   f"request_body = ? WHERE id = {slot}", values)
    else:
        db.execute("INSERT INTO tape_slots(seq, size_bytes, event_id, request_body, id, "
                   f"timestamp, agent_id) VALUES(?, ?, ?, ?, {slot}, 1, ?)", (*values, agent))


COUNTERS = ("SELECT agent_id, given, rolled, cleared, saved, rows, bytes FROM tape_agents "
            "ORDER BY 1")


def test_the_stock_shell_loads_it_under_a_made_up_name(path):
    assert shell(path, stdin=TEXT.replace("@", "tape") +
                 "SELECT type, count(*) FROM sqlite_schema WHERE sql NOT NULL "
                 "AND name GLOB 'tape_*' GROUP BY 1;") == "table|5\ntrigger|10\nview|3\n"


def test_the_stock_shell_pushes(path):
    pushes = "".join(
        f"INSERT INTO tape_slots VALUES((1 << 16) | {i}, {i}, 5, 2, 'a', 'e{i}', 'q', 'r');"
        for i in (1, 2))
    pushes += ("INSERT INTO tape_slots VALUES(1 << 16, 3, 5, 2, 'a', 'e3', 'q', 'r');"
               "UPDATE tape_slots SET seq = 4, event_id = 'e4', size_bytes = 7 "
               "WHERE id = (1 << 16) | 1;")
    assert shell(path, stdin=TEXT.replace("@", "tape") + WINDOW.format(3) + ";" + pushes +
                 COUNTERS + "; SELECT event_id FROM tape_slots ORDER BY seq;"
                 "SELECT * FROM tape_check;") == "a|4|1|0|0|3|11\ne2\ne3\ne4\n"


def test_the_sql_makes_the_same_objects_as_the_module(path, tape):
    connect(path).execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    def texts(name):
        return sorted(sql.replace('"', "").replace(f"{name}_", "@_") for sql, in rows(
            tape, "SELECT sql FROM sqlite_schema WHERE sql NOT NULL AND name GLOB ?",
            f"{name}_*"))
    assert texts("tape") == texts("ring") != []


def test_plain_sql_keeps_the_counters(tape):
    for i in range(5):
        plain_push(tape, 1, "a", f"a{i}", "x" * i)
    plain_push(tape, 2, "b", "b0", "yy")
    assert rows(tape, COUNTERS) == [("a", 5, 2, 0, 0, 3, 2 + 3 + 4), ("b", 1, 0, 0, 0, 1, 2)]
    tape.execute("DELETE FROM tape_slots WHERE event_id = 'a3'")
    assert rows(tape, COUNTERS)[0] == ("a", 5, 2, 1, 0, 2, 6)
    tape.execute("UPDATE tape_agents SET why = 2 WHERE agent_id = 'a'")
    assert rows(tape, COUNTERS)[0] == ("a", 5, 2, 1, 2, 0, 0)
    assert rows(tape, "SELECT event_id FROM tape_slots") == [("b0",)]
    assert rows(tape, "SELECT * FROM tape_check") == []


def test_plain_sql_changes_the_window(tape):
    for i in range(5):
        plain_push(tape, 1, "a", f"a{i}", "x")
    tape.execute("UPDATE tape_config SET value = 2 WHERE name = 'window'")
    assert rows(tape, "SELECT event_id FROM tape_slots ORDER BY seq") == [("a3",), ("a4",)]
    assert rows(tape, COUNTERS) == [("a", 5, 3, 0, 0, 2, 2)]
    plain_push(tape, 1, "a", "a5", "x")
    assert rows(tape, "SELECT event_id FROM tape_slots ORDER BY seq") == [("a4",), ("a5",)]
    assert rows(tape, "SELECT * FROM tape_check") == []


def test_the_view_lists_contradictions(tape):
    plain_push(tape, 1, "a", "e", "x")
    tape.execute("UPDATE tape_agents SET bytes = 9, given = 7, half = 5")
    tape.execute("UPDATE tape_config SET value = 'x' WHERE name = 'window'")
    assert {r[0] for r in rows(tape, "SELECT object FROM tape_check")} == {
        "agents", "slots", "config"}
    assert len(rows(tape, "SELECT * FROM tape_check")) == 5


# ---- rings whose rules are not those of the file ----

# What age() changes.
PARTS = "bounded check first gone layout next push roll takeout unbounded window"
NAMES = ["ring", "a ring", 'o\'r "x@y on main.z', "x ON y"]


def age(path, name):
    """Gives a ring other triggers: none has its line breaks, and one counts
    nothing. The view is missing."""
    db = sqlite3.connect(path, isolation_level=None)
    table = lambda suffix: quoted(f"{name}_{suffix}")
    for trigger, sql in rows(db, "SELECT name, sql FROM sqlite_schema "
                             "WHERE type = 'trigger' AND substr(name, 1, ?) = ?",
                             len(name) + 1, f"{name}_"):
        db.execute(f"DROP TRIGGER {quoted(trigger)}")
        if trigger.endswith("_gone"):
            sql = f"CREATE TRIGGER {table('gone')} AFTER DELETE ON {table('slots')} " \
                  "BEGIN SELECT 1; END"
        head = f"CREATE TRIGGER {quoted(trigger)}"
        assert sql.startswith(head)
        db.execute(head + " " + " ".join(sql[len(head):].split()))
    db.execute(f"DROP VIEW {table('check')}")
    db.close()


@pytest.fixture(params=["main", "side"])
def aged(request, db, path, tmp_path):
    def make(name):
        db.execute(f"ATTACH {str(tmp_path / 'side.db')!r} AS side")
        db.execute(f"CREATE VIRTUAL TABLE {request.param}.{quoted(name)} "
                   "USING payload_ring(window=3)")
        for i in range(4):
            db.execute(f"INSERT INTO {request.param}.{quoted(name)}(agent_id, event_id) "
                       "VALUES('a', ?)", (f"e{i}",))
        age(path if request.param == "main" else tmp_path / "side.db", name)
        return request.param
    return make


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("within", [False, True])
def test_an_install_repairs_a_ring_of_other_rules(db, aged, name, within):
    schema = aged(name)
    db.execute(f"INSERT INTO {schema}.{quoted(name)}(agent_id, event_id) VALUES('a', 'e4')")
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert {o for o, _ in found} == {f"{name}_{n}" for n in
                                     PARTS.split()}
    assert all("blackbox_install()" in problem for _, problem in found)
    if within:
        db.execute("BEGIN")
    one(db, "SELECT blackbox_install(?, 'core')", schema)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    if within:
        db.execute("ROLLBACK")
        assert len(rows(db, "SELECT * FROM blackbox_check")) == len(found)
        one(db, "SELECT blackbox_install(?, 'core')", schema)
    db.execute(f"DELETE FROM {schema}.{quoted(name)} WHERE event_id = 'e4'")
    assert rows(db, f"SELECT given, rolled, cleared, rows FROM {schema}."
                + quoted(f"{name}_agents")) == [(5, 2, 1, 2)]
    changes = db.total_changes
    one(db, "SELECT blackbox_install(?, 'core')", schema)
    assert db.total_changes == changes
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_rename_repairs_a_ring_of_other_rules(db, aged, name):
    schema = aged(name)
    db.execute(f"ALTER TABLE {schema}.{quoted(name)} RENAME TO tape")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert rows(db, f"SELECT name FROM {schema}.sqlite_schema "
                "WHERE name GLOB 'tape_*' ORDER BY 1") == [(f"tape_{n}",) for n in sorted(
                    ("config agents slots steps turns bound room " + PARTS).split())]


def test_a_ring_of_other_rules_is_dropped(db, aged):
    schema = aged("ring")
    db.execute("DROP TABLE ring")
    assert rows(db, f"SELECT name FROM {schema}.sqlite_schema WHERE name GLOB 'ring*'") == []


def test_a_ring_in_temp_says_how_it_is_repaired(db):
    db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring")
    db.execute("DROP TRIGGER temp.ring_gone")
    assert rows(db, "SELECT schema, object, problem FROM blackbox_check") == [
        ("temp", "ring_gone", "trigger is missing; use ALTER TABLE ring RENAME, which creates it again")]
    db.execute("ALTER TABLE ring RENAME TO tape")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.all_domains
def test_a_ring_of_a_newer_module_is_left_alone(db, path):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    by_hand(path, "UPDATE ring_config SET value = 2 WHERE name = 'format'; DROP TRIGGER ring_gone")
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
    assert rows(db, "SELECT * FROM blackbox_check") == []


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
