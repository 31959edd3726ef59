"""The bounds of a whole ring: max_bytes and idle_days; and when a push reads settings."""
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from payload_helpers import push, quoted

DAY = 86400000
SET = "INSERT INTO ring(ring, value) VALUES(?, ?)"
CONFIG = "SELECT body FROM ring_texts WHERE id = ?"


def make(db, args, schema="main"):
    db.execute("PRAGMA synchronous = OFF")
    db.execute(f"CREATE VIRTUAL TABLE {schema}.ring USING payload_ring({args})")


def whole(db):
    assert rows(db, "SELECT * FROM blackbox_check") == []


def age(db, agent, days):
    """The agent pushed that long ago. The tables are open to a plain writer."""
    path = rows(db, "PRAGMA database_list")[0][2]
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("UPDATE ring_agents SET at = at - ? WHERE agent_id = ?",
                  (days * DAY, agent))
    plain.close()


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_the_oldest_rows_of_the_oldest_agent_make_room(db, begin):
    make(db, "max_bytes=100")
    db.execute(begin)
    for i, agent in enumerate("aabbc"):
        push(db, agent, f"e{i}", "x" * 20, None, i)
    push(db, "c", "new", "x" * 45, None, 9)
    assert rows(db, "SELECT agent_id, event_id FROM ring") == [
        ("b", "e3"), ("c", "e4"), ("c", "new")]
    assert rows(db, "SELECT agent_id, given, rolled, rows, bytes FROM ring_agents "
                "ORDER BY 1") == [("a", 2, 2, 0, 0), ("b", 2, 1, 1, 20), ("c", 2, 0, 2, 65)]
    assert one(db, CONFIG, -5) == 85
    whole(db)


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_row_above_the_bound_is_kept_until_the_next_push_and_logged(db, begin):
    make(db, "max_bytes=10")
    push(db, "a", "e1", "x" * 10, None, 1)
    db.execute(begin)
    push(db, "a", "e2", "x" * 11, None, 2)
    assert rows(db, "SELECT event_id FROM ring") == [("e2",)]
    push(db, "a", "e3", "x" * 11, None, 2)
    assert rows(db, "SELECT kind, subject, agent_id, event_id FROM blackbox_log") \
        == [("passed_over", "ring", "a", "e2")]  # the same once a day
    push(db, "b", "e4", "x", None, 2)
    assert rows(db, "SELECT event_id FROM ring") == [("e4",)]
    whole(db)


def test_a_bound_that_is_set_later_trims_and_can_be_taken_off(db):
    make(db, "window=500")
    for i in range(150):
        push(db, "a", f"e{i}", "x" * 10, None, i)
    db.execute(SET, ("max_bytes", 10))
    assert one(db, "SELECT count(*) FROM ring") == 50  # 100 rows a call
    push(db, "a", "last", "x" * 10, None, 999)
    assert rows(db, "SELECT event_id FROM ring") == [("last",)]
    whole(db)
    db.execute(SET, ("max_bytes", 0))
    assert one(db, CONFIG, -5) is None
    push(db, "a", "more", "x" * 10, None, 999)
    assert one(db, "SELECT count(*) FROM ring") == 2
    whole(db)


def test_idle_agents_go_with_a_receipt(db):
    make(db, "idle_days=30")
    for agent in ("old", "empty", "young"):
        push(db, agent, "e", "q", "r", 1)
    db.execute("DELETE FROM ring WHERE agent_id = 'empty'")
    for agent, days in (("old", 31), ("empty", 31), ("young", 29)):
        age(db, agent, days)
    latest = one(db, "SELECT max(at) FROM ring_agents WHERE no < 3")
    push(db, "me", "e", "q", "r", 1)
    assert rows(db, "SELECT agent_id FROM ring_agents ORDER BY 1") == [("me",), ("young",)]
    assert rows(db, "SELECT id, body FROM ring_texts WHERE id < -5 ORDER BY id DESC") == [
        (-6, 2), (-7, 2), (-8, 1), (-9, 1), (-10, 0), (-11, latest)]
    push(db, "old", "e", "q", "r", 2)
    assert one(db, "SELECT seq FROM ring WHERE agent_id = 'old'") == 1
    whole(db)


def test_idle_agents_that_go_with_one_push_are_few(db):
    make(db, "idle_days=1")
    for i in range(25):
        push(db, f"a{i}", "e", "q", "r", 1)
    for i in range(25):
        age(db, f"a{i}", 2)
    left = []
    for _ in range(4):
        push(db, "me", "e", "q", "r", 1)
        left.append(one(db, "SELECT count(*) FROM ring_agents") - 1)
    assert left[-1] == 0 and all(a - b <= 10 for a, b in zip([25] + left, left))
    whole(db)


def test_rename_and_drop(db):
    make(db, "max_bytes=20, idle_days=3")
    push(db, "a", "e", "q" * 15, None, 1)
    for old, new in (("ring", "tape"), ("tape", "ring")):
        db.execute(f"ALTER TABLE {old} RENAME TO {new}")
        push(db, "a", "e", "q" * 15, None, 1, ring=new)
        assert one(db, f"SELECT count(*) FROM {new}") == 1
        whole(db)
    db.execute("ALTER TABLE ring RENAME TO tape")
    make(db, "max_bytes=20")  # the name that became free
    db.execute("DROP TABLE ring")
    db.execute("DROP TABLE tape")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name GLOB 'tape*' "
                "OR name GLOB 'ring*'") == []


@pytest.mark.parametrize("args", ["max_bytes=x", "max_bytes=-1", "idle_days=1.5",
                                  "idle_days=36501", "bytes=1"])
def test_bad_arguments(db, args):
    with pytest.raises(sqlite3.OperationalError, match="ValidationError"):
        make(db, args)


# ---- what is refused, and what is damaged ----

def events(db, table):
    return [e for e, in rows(db, f"SELECT event_id FROM {table}")]


@pytest.mark.parametrize("option, value, says", [
    ("max_bytes", -1, "from 0 to"), ("max_bytes", 2 ** 46 + 1, "from 0 to"),
    ("max_bytes", "many", "max_bytes"), ("max_bytes", 1.5, "max_bytes"),
    ("max_bytes", None, "max_bytes"), ("idle_days", 36501, "from 0 to 36500"),
    ("idle_days", -3, "from 0 to 36500"), ("days", 3, "unknown command 'days'")])
def test_bad_values(db, option, value, says):
    make(db, "window=3")
    with pytest.raises(sqlite3.Error, match="ValidationError") as caught:
        db.execute(SET, (option, value))
    assert says in str(caught.value)
    assert rows(db, "SELECT id, body FROM ring_texts WHERE id < 0") == [(-4, 1), (-1, 3)]


@pytest.mark.parametrize("damage", [
    "DELETE FROM ring_texts WHERE id = -5", "UPDATE ring_texts SET body = 7.0 WHERE id = -5",
    "UPDATE ring_agents SET at = -at", "UPDATE ring_agents SET at = NULL"])
def test_damage_is_named_and_put_right(db, path, damage):
    make(db, "max_bytes=100")
    for i in range(3):
        push(db, "ab"[i % 2], f"e{i}", "q" * 20, None, i)
    by_hand(path, damage)
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert found
    one(db, "SELECT blackbox_install()")
    for value in (0, 100):
        db.execute(SET, ("max_bytes", value))
    whole(db)
    push(db, "c", "e9", "q" * 90, None, 9)
    assert events(db, "ring") == ["e9"]


@pytest.mark.parametrize("schema", ["temp", '"at \'t"'])
def test_in_temp_and_attached(db, tmp_path, schema):
    if schema != "temp":
        db.execute(f"ATTACH {str(tmp_path / 'o.db')!r} AS {schema}")
    db.execute("PRAGMA trusted_schema = OFF")
    make(db, "max_bytes=30, idle_days=1", schema)
    for i in range(4):
        db.execute(f"INSERT INTO {schema}.ring(agent_id, event_id, request_body) "
                   "VALUES(?, ?, 'xxxxxxxxxx')", (f"a{i}", f"e{i}"))
    assert events(db, f"{schema}.ring") == ["e1", "e2", "e3"]
    db.execute("PRAGMA trusted_schema = ON")
    whole(db)


def test_one_push_takes_a_hundred_rows_at_most(db):
    make(db, "window=500")
    for i in range(250):
        push(db, "a", f"e{i}", "x", None, i)
    push(db, "b", "e", "x" * 300, None, 1)
    db.execute(SET, ("max_bytes", 300))
    left = []
    for i in range(3):
        left.append(one(db, "SELECT count(*) FROM ring WHERE agent_id = 'a'"))
        push(db, "b", "e", "", None, 1)
    assert left == [150, 50, 0]
    whole(db)


def test_a_failed_statement_takes_its_room_back(db):
    make(db, "max_bytes=100")
    push(db, "a", "e0", "x" * 90, None, 1)
    db.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES"
                   "('b', 'e1', ?), ('b', NULL, ?)", ("y" * 50, "y" * 101))
    assert events(db, "ring") == ["e0"]
    db.execute("COMMIT")
    whole(db)


def test_settings_are_read_when_others_have_written_or_this_connection(db, path):
    """And otherwise once, however many rows are pushed, in transactions or outside."""
    other = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE notes(a)")
    make(db, "")
    db.execute("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'")
    said = []

    def reads(*acts):
        said.clear()
        db.set_trace_callback(said.append)
        for act in acts:
            act()
        db.set_trace_callback(None)
        return sum("'payload.on_loop'" in sql for sql in said), \
            sum("payload_rules" in sql for sql in said)

    def one_push():
        push(db, "a", "e")

    def begin():
        db.execute("BEGIN")

    def commit():
        db.execute("COMMIT")

    def note():
        db.execute("INSERT INTO notes VALUES(1)")

    def foreign_note():
        other.execute("INSERT INTO notes VALUES(1)")

    assert reads(one_push)[0] == 1
    assert reads(one_push, one_push, begin, one_push, one_push, commit, one_push) == (0, 0)
    assert reads(note, one_push, one_push)[0] == 1
    assert reads(begin, one_push, note, one_push, one_push, commit)[0] == 1
    assert reads(one_push, foreign_note, one_push, one_push)[0] == 1
    assert reads(begin, one_push, one_push, commit) == (0, 0)
    other.close()
