"""Tables and indexes of other programs that cannot be guarded are refused."""
import sqlite3

import pytest

from conftest import connect, one, rows
from hostile_helpers import ADOPTED, PUT

REFUSED = [
    ("id INTEGER PRIMARY KEY", "", "id is declared as INTEGER; it must be TEXT"),
    ("id PRIMARY KEY", "", "id is declared as nothing; it must be TEXT"),
    ("id TEXT PRIMARY KEY", "WITHOUT ROWID", "it is a WITHOUT ROWID table"),
    ("id TEXT", "", "id is not unique"),
    ("id TEXT PRIMARY KEY ON CONFLICT REPLACE", "", "it has a clause ON CONFLICT REPLACE"),
    ("id TEXT PRIMARY KEY, UNIQUE (event_id) ON/**/conflict Replace", "",
     "a plain INSERT could delete a pinned row"),
    ("id TEXT PRIMARY KEY, rowid", "", "its column rowid hides the rowid"),
    ("id TEXT PRIMARY KEY, ROWID INTEGER UNIQUE", "", "its column ROWID hides"),
]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("id, end, why", REFUSED)
def test_a_table_that_cannot_be_guarded_is_refused(path, id, end, why, begin):
    db = connect(path)
    db.execute(f"CREATE TABLE event_payloads(event_id TEXT, agent_id TEXT, purpose TEXT, "
               f"created_at TEXT, {id}) {end}")
    before = rows(db, "SELECT * FROM sqlite_schema")
    db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match="cannot be guarded: .*" + why):
        one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM sqlite_schema") == before


@pytest.mark.parametrize("index", ["(lower(event_id))", "(event_id) WHERE pinned = 0"])
def test_an_index_that_cannot_be_guarded_is_refused(path, index):
    db = connect(path)
    db.executescript(ADOPTED + f"CREATE UNIQUE INDEX odd ON event_payloads{index}")
    with pytest.raises(sqlite3.OperationalError, match="unique index odd .*drop it"):
        one(db, "SELECT blackbox_install('main', 'all')")


def test_a_row_at_rowid_minus_one_is_refused(path):
    db = connect(path)
    db.executescript(ADOPTED + PUT)
    db.execute("UPDATE event_payloads SET rowid = -1 WHERE id = 'victim'")
    with pytest.raises(sqlite3.OperationalError, match="a row with rowid -1"):
        one(db, "SELECT blackbox_install('main', 'all')")
