"""One install upgrades a database of an older version.

version1.sql was dumped from a database that blackbox 1 made: a conversation with two turns, and
a fork of its first turn. It has no views and triggers, because these are created again."""
import pathlib
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, event, texts, user
from conftest import by_hand, connect, one, rows

VERSION1 = (pathlib.Path(__file__).parent / "version1.sql").read_text()


@pytest.fixture
def old(path):
    by_hand(path, VERSION1)
    return connect(path)


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_conversations_of_version_1_are_kept(old, begin):
    items = rows(old, "SELECT id, timestamp, type, payload FROM rollout_data")
    heads = rows(old, "SELECT no, id, created, updated, turns, bytes FROM rollout_heads")
    assert len(items) == 5 and len(heads) == 2
    old.execute(begin)
    one(old, "SELECT blackbox_install()")
    if begin:
        old.execute("COMMIT")
    assert rows(old, "SELECT version FROM blackbox_domains WHERE domain = 'rollout'") == [(5,)]
    assert rows(old, "SELECT * FROM blackbox_check") == []
    assert rows(old, "SELECT 1 FROM sqlite_schema WHERE name = 'rollout_clash'") == []
    assert rows(old, "SELECT id, timestamp, type, payload FROM rollout_data") == items
    assert rows(old, "SELECT no, id, created, updated, turns, bytes FROM rollout_heads") == heads


def test_conversations_of_version_1_go_on(old):
    one(old, "SELECT blackbox_install()")
    for rollout in ID, OTHER:
        assert append(old, rollout, user("more"), now=9000) == 1
        old.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                    "VALUES (?, 'compacted', '{}')", (rollout,))
        old.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, "
                    "'{\"type\":\"compacted\",\"payload\":{}}'))", (rollout,))
    assert [sequence for sequence, _ in texts(old, OTHER)] == list(range(6))
    for sql in ("INSERT OR REPLACE INTO rollout_data(id, timestamp, type, payload) "
                "VALUES (1 << 32, 1, 'x', '1')",
                "INSERT INTO rollout_data(id, timestamp, type, look, payload) "
                "VALUES ((1 << 32) + 9, 1, 'x', 2, '1')",
                "UPDATE rollout_heads SET updated = 0"):
        with pytest.raises(sqlite3.IntegrityError):
            old.execute(sql)
    assert rows(old, "SELECT * FROM blackbox_check") == []


# What version 4 and those before it had otherwise: the key of rollout_turns.
TURNS = """
CREATE TABLE turns AS SELECT id >> 32 AS owner, number, id & 4294967295 AS sequence
  FROM rollout_turns;
DROP TABLE rollout_turns;
CREATE TABLE rollout_turns(
  owner    INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (owner, number, sequence)
) WITHOUT ROWID;
INSERT INTO rollout_turns SELECT owner, number, sequence FROM turns;
DROP TABLE turns;
"""

# What version 3 had otherwise: fewer formats, and no files of text.
VERSION3 = """
DROP TABLE rollout_lines;
ALTER TABLE rollout_formats DROP COLUMN newest;
ALTER TABLE rollout_formats DROP COLUMN apart;
DELETE FROM rollout_formats WHERE format IN ('aider', 'zed', 'hermes', 'kimi', 'otel');
DELETE FROM rollout_readings WHERE format IN ('aider', 'goose');
INSERT INTO rollout_readings(format, fact, type, conditions, place, part)
VALUES ('goose', 'user', 'user', '{"$.role":"user","$.message":null,"$.content":true}',
        '$.content', 'text');
INSERT INTO rollout_formats(format, rank, mark, description)
VALUES ('own', 90, '{"$.own":true}', 'ours'), ('otel', 50, '{"$.resourceSpans":true}', 'old');
UPDATE blackbox_domains SET version = 3 WHERE domain = 'rollout';
""" + TURNS


def formats(db):
    return [set(rows(db, f"SELECT {columns} FROM {table} WHERE format <> 'own'"))
            for table, columns in (("rollout_formats", "format, mark, items, newest, apart"),
                                   ("rollout_readings", "format, fact, type, conditions, place"))]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_formats_of_version_3_are_made_anew_and_own_ones_stay(db, path, begin):
    one(db, "SELECT rollout_create(?)", ID)
    wanted = formats(db)
    db.close()
    by_hand(path, VERSION3)
    db = connect(path)
    with pytest.raises(sqlite3.OperationalError, match="blackbox_install"):
        append(db, ID, user("before"))
    db.execute(begin)
    one(db, "SELECT blackbox_install('main', 'rollout')")
    if begin:
        db.execute("COMMIT")
    assert formats(db) == wanted
    assert rows(db, "SELECT description, apart FROM rollout_formats WHERE format = 'own'") == [
        ("ours", 0)]
    assert append(db, ID, user("after")) == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.close()


# A trigger of the user is on the table.
VERSION4 = TURNS + """
CREATE TABLE noted(number);
CREATE TRIGGER "note a turn" AFTER INSERT ON rollout_turns
BEGIN INSERT INTO noted VALUES (NEW.number); END;
UPDATE blackbox_domains SET version = 4 WHERE domain = 'rollout';
"""


def fork(db, parent, turn, rollout):
    one(db, "SELECT rollout_fork(?, ?, ?)", parent, turn, rollout)


def fill(db):
    """A conversation with a rollback in it, and two forks."""
    create(db)
    append(db, ID, *map(user, "abcd"), event("thread_rolled_back", num_turns=2),
           *map(user, "ef"))
    fork(db, ID, 3, OTHER)
    append(db, OTHER, *map(user, "gh"), event("thread_rolled_back", num_turns=3))
    fork(db, OTHER, None, THIRD)
    return rows(db, "SELECT id, number FROM rollout_turns ORDER BY id")


def go_on(db):
    """Everything that looks for a turn by its number. Returns what the conversations are then."""
    append(db, OTHER, user("i"))
    append(db, ID, user("f"), event("thread_rolled_back", num_turns=3), user("j"))
    for parent, turn in (ID, 1), (ID, 2), (OTHER, 1), (THIRD, 2):
        fork(db, parent, turn, f"{parent[:-4]}{turn:04x}")
    return (rows(db, "SELECT id, turns, item_count FROM rollouts ORDER BY id"),
            rows(db, "SELECT id, number FROM rollout_turns ORDER BY id"),
            rows(db, "SELECT * FROM rollout_marks"))


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("schema", ["main", 'the "other"'])
def test_the_turns_of_version_4_are_kept(path, tmp_path, schema, begin):
    made = connect(path)
    one(made, "SELECT blackbox_install()")
    turns = fill(made)
    made.close()
    by_hand(path, VERSION4)
    wanted = connect(tmp_path / "wanted.db")
    one(wanted, "SELECT blackbox_install()")
    assert fill(wanted) == turns
    db = connect(path)
    if schema != "main":
        db.close()
        db = connect(tmp_path / "empty.db")
        db.execute("ATTACH ? AS " + '"the ""other"""', (str(path),))
    with pytest.raises(sqlite3.OperationalError, match="blackbox_install"):
        append(db, ID, user("before"))
    db.execute(begin)
    one(db, "SELECT blackbox_install(?)", schema)
    if begin:
        db.execute("COMMIT")
    assert rows(db, "SELECT version FROM blackbox_domains WHERE domain = 'rollout'") == [(5,)]
    assert rows(db, "SELECT id, number FROM rollout_turns ORDER BY id") == turns
    assert rows(db, "SELECT * FROM noted") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert go_on(db) == go_on(wanted)
    assert len(rows(db, "SELECT * FROM noted")) == 3
    assert rows(db, "SELECT * FROM blackbox_check") == []
