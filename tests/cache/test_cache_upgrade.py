"""Files of version 1, whose tables use JSON functions, are upgraded."""
import pathlib
import sqlite3

import pytest

from cache_helpers import A, B, T0, exact, key, put, text
from conftest import ROOT, connect, one, rows

ITEMS = ("SELECT id, storage_key, session_id, task_id, turn_id, timestamp, data_size,"
         " protected, description, custom_metadata, data FROM {}cache_items ORDER BY id")
SESSIONS = "SELECT * FROM {}cache_sessions ORDER BY 1"


def version_1(path):
    """A file as version 1 made it, without the module, with rows of each kind."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript((ROOT / "sql" / "core.sql").read_text())
    db.executescript("DROP INDEX retention_log_minute; CREATE UNIQUE INDEX "
                     "retention_log_minute ON retention_log(domain, rule, minute) "
                     "WHERE minute IS NOT NULL")  # as core had it then
    db.executescript((pathlib.Path(__file__).parent / "cache_version_1.sql").read_text())
    db.execute("INSERT INTO blackbox_settings VALUES('cache.total_quota_bytes', 5000)")
    for i in range(20):
        put(db, A if i % 3 else B, "task%04d" % i, text(10 + i), now=T0 + i,
            metadata='{"kind": "tool_result"}' if i % 4 == 0 else None)
    put(db, A, "task0001", text(99), now=T0 + 50, how="REPLACE")
    db.execute("DELETE FROM cache_items WHERE id = 7")
    db.execute("UPDATE cache_presets SET value = 7 WHERE name = 'cache.max_age_days'")
    return db


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("schema", ["main", 'a "b'])
def test_install_keeps_every_row_of_a_file_of_version_1(path, tmp_path, begin, schema):
    old = version_1(path)
    items, sessions = rows(old, ITEMS.format("")), rows(old, SESSIONS.format(""))
    receipts = rows(old, "SELECT * FROM retention_log")
    old.close()
    assert len(items) == 19
    db = connect(path if schema == "main" else tmp_path / "main.db")
    name = '"%s".' % schema.replace('"', '""')
    if schema != "main":
        db.execute(f"ATTACH ? AS {name[:-1]}", (str(path),))
    db.execute(begin)
    one(db, "SELECT blackbox_install(?, 'cache')", schema)
    if begin:
        db.execute("COMMIT")
    assert rows(db, ITEMS.format(name)) == items
    assert rows(db, SESSIONS.format(name)) == sessions
    assert rows(db, f"SELECT * FROM {name}retention_log") == receipts
    assert one(db, f"SELECT bytes FROM {name}cache_state") == sum(i[6] for i in items)
    assert rows(db, f"SELECT DISTINCT preset FROM {name}cache_presets") == [
        ("keep",), ("recycle",)]
    exact(db, schema)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    k = key(A, "task0001")
    assert '"data":' + text(99) in one(db, "SELECT cache_read(?)", k)
    one(db, "SELECT cache_write(?,'task0001','turn0000','[1]','d')", A)
    exact(db, schema)
    before = one(db, f"PRAGMA {name}schema_version")
    one(db, "SELECT blackbox_install(?, 'cache')", schema)
    assert one(db, f"PRAGMA {name}schema_version") == before


def test_a_file_of_version_1_says_what_to_do(path):
    version_1(path).close()
    db = connect(path)
    for call in (f"SELECT cache_write('{A}',NULL,NULL,'1','d')",
                 f"SELECT cache_read('{key(A, 'task0001')}')", "SELECT cache_stats()",
                 "SELECT cache_cleanup_orphans()"):
        with pytest.raises(sqlite3.OperationalError, match="VersionError: .*blackbox_install"):
            one(db, call)
    other = connect(path)  # a table of that name that another program made
    other.execute("ATTACH ':memory:' AS m")
    other.execute("CREATE TABLE m.cache_items(x)")
    with pytest.raises(sqlite3.OperationalError, match="of another program"):
        one(other, "SELECT blackbox_install('m')")


def test_columns_indexes_and_triggers_of_others_are_kept(path):
    old = version_1(path)
    old.executescript("""
        ALTER TABLE cache_items ADD COLUMN "my note" TEXT NOT NULL DEFAULT 'none';
        ALTER TABLE cache_items ADD COLUMN rank;
        UPDATE cache_items SET "my note" = 'n' || id, rank = 1.5 WHERE id > 10;
        CREATE INDEX mine ON cache_items("my note");
        CREATE UNIQUE INDEX IF NOT EXISTS "my unique" ON cache_items(session_id, timestamp);
        CREATE TABLE log(x);
        CREATE TRIGGER mine_too AFTER DELETE ON cache_items
          BEGIN INSERT INTO log VALUES(OLD.task_id); END;
        CREATE VIEW mine_view AS SELECT count(*) AS n FROM cache_items;
    """)
    sql = ("SELECT name, sql FROM sqlite_schema WHERE name GLOB 'mi*' OR name GLOB 'my*'"
           " ORDER BY 1")
    kept, values = rows(old, sql), rows(old, 'SELECT id, "my note", rank FROM cache_items')
    old.close()
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'cache')")
    assert rows(db, 'SELECT id, "my note", rank FROM cache_items') == values
    assert rows(db, sql) == kept and len(kept) == 4
    one(db, "SELECT cache_delete(?)", key(A, "task0001"))
    assert rows(db, "SELECT * FROM log") == [("task0001",)]
    assert rows(db, "SELECT n FROM mine_view") == [(18,)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("create, message", [
    ("CREATE TABLE mine(k REFERENCES cache_items(id) ON DELETE CASCADE);"
     "INSERT INTO mine VALUES(1)", "table 'mine' refers to cache_items.*foreign_keys = OFF"),
    ("ALTER TABLE cache_items ADD COLUMN twice AS (data_size * 2)",
     'generated column "twice"'),
])
def test_an_upgrade_that_would_lose_something_is_refused(path, create, message):
    old = version_1(path)
    old.executescript(create)
    old.close()
    db = connect(path)
    before = rows(db, "SELECT * FROM sqlite_schema"), rows(db, ITEMS.format(""))
    db.execute("PRAGMA foreign_keys = ON")
    with pytest.raises(sqlite3.OperationalError, match="^ValidationError: .*" + message):
        one(db, "SELECT blackbox_install()")
    assert (rows(db, "SELECT * FROM sqlite_schema"), rows(db, ITEMS.format(""))) == before
    db.execute("PRAGMA foreign_keys = OFF")
    if "mine" in create:
        one(db, "SELECT blackbox_install()")
        assert rows(db, "SELECT * FROM mine") == [(1,)]


def test_an_upgrade_that_fails_midway_changes_nothing(path):
    old = version_1(path)
    old.execute("CREATE TABLE cache_items_moved(x)")
    old.close()
    db = connect(path)
    before = rows(db, "SELECT * FROM sqlite_schema"), rows(db, ITEMS.format(""))
    with pytest.raises(sqlite3.OperationalError, match="cache_items_moved"):
        one(db, "SELECT blackbox_install()")
    assert (rows(db, "SELECT * FROM sqlite_schema"), rows(db, ITEMS.format(""))) == before


def test_a_file_of_version_1_on_which_the_new_sql_was_run_is_upgraded(path):
    """The shell continues after an error, up to the line that sets the version."""
    old = version_1(path)
    items = rows(old, ITEMS.format(""))
    old.execute("UPDATE blackbox_domains SET version = 2 WHERE domain = 'cache'")
    old.close()
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    assert rows(db, ITEMS.format("")) == items
    assert rows(db, "SELECT * FROM blackbox_check") == []
