"""Files of builds before 1.0 are refused, and stay as they are."""
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows

# What such a build had: a column version in blackbox_domains, and these names in a ring and in a
# buffer. Nothing else of them is read.
DOMAINS_TABLE = """
CREATE TABLE blackbox_domains(domain TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO blackbox_domains VALUES('core', 3), ('payload', 2), ('cache', 2), ('store', 2);
CREATE TABLE payload_state(x); CREATE TABLE cache_state(x); CREATE TABLE store_state(x);
"""
RING_TABLE = "CREATE TABLE ring_config(k TEXT PRIMARY KEY, v NOT NULL) WITHOUT ROWID;"
BUFFER_TABLE = "CREATE TABLE rec_state(one INTEGER PRIMARY KEY, version INTEGER NOT NULL);"
VIRTUAL = """
PRAGMA writable_schema = ON;
INSERT INTO sqlite_schema VALUES
  ('table', 'ring', 'ring', 0, 'CREATE VIRTUAL TABLE ring USING payload_ring(window=3)'),
  ('table', 'rec', 'rec', 0, 'CREATE VIRTUAL TABLE rec USING evidence_buffer');
"""
TOLD = "VersionError: schema {} was made by a build of blackbox before 1.0, as its table {} shows"
CALLS = [
    "SELECT blackbox_install()", "SELECT blackbox_install('main', 'core')",
    "SELECT blackbox_uninstall('main', NULL, 'force')", "SELECT blackbox_use('main')",
    "SELECT payload_queue('e', 'a', 'q', 'r')", "SELECT payload_cleanup()",
    "INSERT INTO blackbox_call VALUES('payload_cleanup', '[]')", "SELECT cache_stats()",
    "SELECT * FROM rollout_list(10)", "SELECT store_sweep(9, 'main')",
    "CREATE VIRTUAL TABLE tape USING payload_ring",
    "CREATE VIRTUAL TABLE tape USING evidence_buffer",
    "CREATE VIRTUAL TABLE temp.tape USING evidence_buffer(overflow='main')",
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')", "SELECT * FROM ring",
    "INSERT INTO rec(id, action) VALUES('x', '{}')", "SELECT evidence_stats('rec')",
]


@pytest.fixture
def old(path):
    by_hand(path, DOMAINS_TABLE + RING_TABLE + BUFFER_TABLE + VIRTUAL)
    before = path.read_bytes()
    yield path
    assert path.read_bytes() == before


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("call", CALLS)
def test_every_way_in_is_refused(old, call, begin):
    db = connect(old)
    db.execute(begin)
    with pytest.raises(sqlite3.DatabaseError, match=TOLD.format("main", "blackbox_domains")):
        rows(db, call)
    db.close()


def test_the_check_says_so_once_for_each(old):
    db = connect(old)
    found = rows(db, "SELECT * FROM blackbox_check")
    assert [(schema, object) for schema, object, _ in found] == [
        ("main", "blackbox_domains"), ("main", "ring"), ("main", "rec")]
    assert all(TOLD.format("main", "blackbox_domains") in problem for _, _, problem in found)
    db.close()


@pytest.mark.parametrize("sql, table", [
    ("SELECT * FROM ring", "ring_config"), ("SELECT * FROM rec", "rec_state")])
def test_a_ring_and_a_buffer_are_known_by_their_own_tables(path, sql, table):
    by_hand(path, RING_TABLE + BUFFER_TABLE + VIRTUAL)
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    with pytest.raises(sqlite3.OperationalError, match=TOLD.format("main", table)):
        rows(db, sql)
    assert [object for _, object, _ in rows(db, "SELECT * FROM blackbox_check")] == ["ring", "rec"]


def test_another_file_beside_it_is_used(old, tmp_path):
    db = connect(tmp_path / "new.db")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    db.execute("ATTACH ? AS old", (str(old),))
    assert one(db, "SELECT payload_queue('e', 'a', 'q', 'r')")
    with pytest.raises(sqlite3.OperationalError, match=TOLD.format("old", "blackbox_domains")):
        one(db, "SELECT blackbox_install('old')")
    db.close()


def test_a_call_adds_nothing_to_what_the_host_writes_there(path, tmp_path):
    """(A call gives leaves to the rows of the log that the host has written, in a file that has a
    tree for them.)"""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.close()
    by_hand(path, "ALTER TABLE blackbox_domains RENAME COLUMN format TO version;"
            "ALTER TABLE blackbox__tree RENAME TO proof_tree")
    db = connect(tmp_path / "new.db")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("ATTACH ? AS old", (str(path),))
    with pytest.raises(sqlite3.OperationalError, match="VersionError"):
        one(db, "SELECT blackbox_install('old')")
    db.execute("BEGIN")
    db.execute("INSERT INTO old.event_payloads(event_id, agent_id, purpose)"
               " VALUES('e', 'a', 'evidence')")
    assert one(db, "SELECT payload_cleanup() ->> '$.rows'") == 0
    assert one(db, "SELECT count(*) FROM old.payload__pins") == 1
    assert one(db, "SELECT count(*) FROM old.blackbox__leaves") == 0
