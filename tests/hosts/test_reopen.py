"""Every kind of connection can read a file with a ring and a buffer.

In defensive mode, SQLite 3.44 and later refuse a schema that has triggers on tables that a
module claims as its own. `make test-versions` runs these tests in that mode. Without it they
pass with any version."""
import sqlite3

import pytest

from conftest import connect, one, rows, shell

MAKE = """
CREATE VIRTUAL TABLE "{0}".ring USING payload_ring(window=3);
CREATE VIRTUAL TABLE "{0}".rec USING evidence_buffer;
INSERT INTO "{0}".ring(agent_id, event_id) VALUES('a', 'e1');
INSERT INTO "{0}".rec(id, action) VALUES('r1', '{{}}');
"""


@pytest.fixture
def made(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.executescript(MAKE.format("main"))
    db.close()
    return path


def well(db, schema="main"):
    """The tables exist, accept another row, and are not damaged."""
    count = f'SELECT (SELECT count(*) FROM "{schema}".ring), ' \
            f'(SELECT count(*) FROM "{schema}".rec)'
    assert rows(db, count) == [(1, 1)]
    db.execute("BEGIN")
    db.execute(f'INSERT INTO "{schema}".ring(agent_id, event_id) VALUES(?, ?)',
               ("a", "e2"))
    db.execute(f'INSERT INTO "{schema}".rec(id, action) VALUES(?, ?)', ("r2", "{}"))
    assert rows(db, count) == [(2, 2)]
    db.execute("ROLLBACK")
    assert rows(db, "SELECT * FROM blackbox_check(?)", schema) == []


def test_ring_and_buffer_work_after_the_file_is_opened_again(made):
    well(connect(made))


def test_ring_and_buffer_work_after_a_vacuum(made):
    """VACUUM writes the virtual tables after the tables that they use."""
    connect(made).execute("VACUUM")
    well(connect(made))


def test_a_file_can_be_attached_after_the_module_is_loaded(made):
    db = connect()
    db.execute("ATTACH ? AS 'o''ther x'", (str(made),))
    well(db, "o'ther x")


def test_ring_and_buffer_in_an_attached_file_work_after_it_is_attached_again(tmp_path):
    for again in (False, True):
        db = connect()
        db.execute("ATTACH ? AS 'o''ther x'", (str(tmp_path / "other.db"),))
        if not again:
            one(db, "SELECT blackbox_install('o''ther x', 'all')")
            db.executescript(MAKE.format("o'ther x"))
        well(db, "o'ther x")
        db.close()


def test_ring_and_buffer_in_temp_work_when_the_schema_of_the_file_changes(made):
    db = connect(made)
    db.executescript(MAKE.format("temp"))
    sqlite3.connect(made).execute("CREATE TABLE later(x)")
    db.execute("CREATE TEMP TABLE more(x)")
    assert one(db, "SELECT count(*) FROM later") == 0
    assert one(db, "SELECT count(*) FROM temp.ring") == 1
    well(db)


@pytest.mark.parametrize("inside", [False, True])
def test_an_open_session_when_another_changes_the_schema(made, inside):
    db, other = connect(made), connect(made)
    well(db)
    other.execute("CREATE TABLE later(x)")
    if inside:
        db.execute("BEGIN")
    assert one(db, "SELECT count(*) FROM later") == 0
    if inside:
        db.execute("COMMIT")
    well(db)
    db.execute("ALTER TABLE later ADD COLUMN y")
    well(other)
    db.execute("ALTER TABLE ring RENAME TO ring2")
    db.execute("ALTER TABLE rec RENAME TO rec2")
    assert one(other, "SELECT count(*) FROM ring2") == 1
    assert one(other, "SELECT count(*) FROM rec2") == 1
    other.execute("DROP TABLE ring2")
    other.execute("DROP TABLE rec2")
    assert rows(db, "SELECT name FROM sqlite_schema"
                    " WHERE name LIKE 'ring%' OR name LIKE 'rec\\_%' ESCAPE '\\'") == []


def test_the_shell_reads_and_dumps_it(made, tmp_path):
    start = ".load ./blackbox\n.dbconfig defensive on\n"
    told = shell(made, stdin=start + "SELECT event_id FROM ring; SELECT id FROM rec;"
                                     "CREATE TABLE later(x);\nSELECT count(*) FROM ring;")
    assert told.split()[-3:] == ["e1", "r1", "1"]
    dump = shell(made, stdin=".load ./blackbox\n.dump")
    assert "ring_slots" in dump and dump.rstrip().endswith("COMMIT;")
    copy = tmp_path / "copy.db"
    assert shell(copy, stdin=".dbconfig defensive off\n" + dump).split() \
        == ["defensive", "off"]
    well(connect(copy))
