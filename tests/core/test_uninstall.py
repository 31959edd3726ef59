"""blackbox_uninstall: what it removes, what stays, and what it refuses to remove."""
import re
import sqlite3

import pytest

from conftest import ROOT, connect, one, rows, shell, some

QUOTED = 'a "b'
SESSION = "conv_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
ROLLOUT = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
DOMAINS = ["payload", "cache", "evidence", "rollout", "retention", "store", "report"]
# The table and an index as another program makes them.
THEIRS = """
CREATE TABLE event_payloads (id TEXT PRIMARY KEY, event_id TEXT NOT NULL,
  agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL,
  pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT,
  created_at TEXT NOT NULL DEFAULT (datetime('now')));
CREATE INDEX idx_payloads_event_id ON event_payloads(event_id);
INSERT INTO event_payloads(id, event_id, agent_id, purpose)
VALUES('t1', 'e', 'a', 'archive');
"""


def schema(db, name="main"):
    """All objects except the tables that SQLite makes itself and never drops."""
    quoted = name.replace('"', '""')
    return rows(db, f'SELECT type, name, sql FROM "{quoted}".sqlite_schema '
                "WHERE name NOT LIKE 'sqlite%' ORDER BY type, name")


def contents(db):
    """The rows of every table. The search has its own in others, and cannot be scanned."""
    return {name: rows(db, 'SELECT * FROM "' + name.replace('"', '""') + '"')
            for kind, name, _ in schema(db)
            if kind == "table" and name != "rollout_fts"}


def refused(db, *arguments):
    marks = ", ".join("?" * len(arguments))
    with pytest.raises(sqlite3.DatabaseError) as error:
        one(db, f"SELECT blackbox_uninstall({marks})", *arguments)
    return str(error.value)


def user_objects(db):
    db.executescript(
        "CREATE TABLE app(x); CREATE INDEX app_x ON app(x);"
        "CREATE VIEW cached AS SELECT x FROM app;"
        "CREATE TRIGGER cache_app AFTER INSERT ON app BEGIN SELECT 1; END;"
        "INSERT INTO app VALUES(1)"
    )


def fill(db):
    """Writes something into every domain."""
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) "
               "VALUES('e1', 'a', 'evidence'), ('e2', 'a', 'archive')")
    one(db, "SELECT payload_unpin(id, 'Ann', 'closed') FROM event_payloads WHERE pinned")
    one(db, "SELECT cache_write(?, 'task0001', 'turn0001', '[1]', 'd')", SESSION)
    one(db, "SELECT rollout_create(?, 'be brief')", ROLLOUT)
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('cache.max_description', 99)")


def test_an_install_that_was_not_used_goes_without_a_trace(path):
    db = connect(path)
    user_objects(db)
    before = schema(db)
    one(db, "SELECT blackbox_install('main', 'all')")
    assert one(db, "SELECT blackbox_uninstall()") == "main: "
    assert schema(db) == before
    assert rows(db, "PRAGMA integrity_check") == [("ok",)]
    assert one(db, "SELECT blackbox_install('main', 'all')").startswith("main: cache, core")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("domain", some(DOMAINS))
def test_one_domain_goes_and_the_others_stand(path, domain):
    db = connect(path)
    user_objects(db)
    others = ",".join(name for name in DOMAINS if name != domain)
    one(db, "SELECT blackbox_install('main', ?)", others)
    before = schema(db)
    tables = ["blackbox_settings", "blackbox_domains", "retention_rules"]
    held = [rows(db, f"SELECT * FROM {table} ORDER BY 1") for table in tables]
    one(db, "SELECT blackbox_install('main', 'all')")
    left = one(db, "SELECT blackbox_uninstall('main', ?)", domain)
    assert left.startswith("main: ") and domain not in left and "core" in left
    assert schema(db) == before
    assert held == [rows(db, f"SELECT * FROM {table} ORDER BY 1") for table in tables]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_core_stays_unless_it_is_named_and_stands_while_needed(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'cache')")
    assert "core cannot be removed" in refused(db, "main", "core")
    assert one(db, "SELECT blackbox_uninstall('main', 'cache')") == "main: core"
    assert one(db, "SELECT blackbox_uninstall('main', 'core')") == "main: "
    assert schema(db) == []
    assert "NotFoundError" in refused(db, "main")


@pytest.mark.parametrize("inside", [False, True])
def test_refuses_what_would_lose_data_and_names_it(db, inside):
    fill(db)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    db.execute("CREATE VIRTUAL TABLE \"re'c\" USING evidence_buffer")
    db.execute("CREATE TRIGGER my_own AFTER INSERT ON cache_items BEGIN SELECT 1; END")
    db.execute("CREATE INDEX my_index ON cache_items(data)")
    db.execute("DELETE FROM event_payloads WHERE event_id = 'e2'")
    before, content = schema(db), contents(db)
    if inside:
        db.execute("BEGIN")
        db.execute("CREATE TABLE mine(x)")
    told = refused(db)
    assert told.startswith("NotEmptyError: ") and "'force'" in told
    for word in ["event_payloads (rows: 1)", "cache_items (rows: 1)", "rollout__heads (rows: 1)",
                 "blackbox__log (rows: 2)", "virtual table ring", "virtual table re'c",
                 "trigger my_own on cache_items", "index my_index on cache_items"]:
        assert word in told
    assert "blackbox_settings" not in told and "cache_settings" not in told
    if inside:
        assert db.in_transaction
        assert one(db, "SELECT count(*) FROM mine") == 0
        db.execute("ROLLBACK")
    assert schema(db) == before
    assert contents(db) == content
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("inside", [False, True])
def test_force_removes_all_of_it_and_a_rollback_brings_it_back(path, inside):
    db = connect(path)
    user_objects(db)
    bare = schema(db)
    one(db, "SELECT blackbox_install('main', 'all')")
    fill(db)
    one(db, "SELECT rollout_search_install()")
    db.execute("CREATE VIRTUAL TABLE \"ri'n@main.g\" USING payload_ring(window=3)")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("CREATE VIRTUAL TABLE words USING fts5(payload_ring)")
    words = [row for row in schema(db) if row[1].startswith("words")]
    db.execute("CREATE TRIGGER my_own AFTER INSERT ON cache_items BEGIN SELECT 1; END")
    content = contents(db)
    if inside:
        db.execute("BEGIN")
        assert one(db, "SELECT blackbox_uninstall(NULL, NULL, 'force')") == "main: "
        db.execute("ROLLBACK")
        assert contents(db) == content
        assert rows(db, "SELECT * FROM blackbox_check") == []
        db.execute("BEGIN")
    assert one(db, "SELECT blackbox_uninstall('main', NULL, 'force')") == "main: "
    if inside:
        db.execute("COMMIT")
    assert sorted(row[1] for row in schema(db)) == sorted(
        row[1] for row in bare + words)
    assert rows(db, "SELECT x FROM app") == [(1,)]
    assert rows(db, "PRAGMA integrity_check") == [("ok",)]


def test_force_leaves_receipts_while_core_stays(db):
    fill(db)
    one(db, "SELECT blackbox_uninstall('main', 'cache,payload', 'force')")
    log = rows(db, "SELECT domain, rule, rows, bytes > 0 FROM retention_log")
    assert ("payload", "uninstall event_payloads", 2, 1) in log
    assert ("cache", "uninstall cache_items", 1, 1) in log
    assert {domain for domain, *_ in log} == {"cache", "payload"}
    assert rows(db, "SELECT DISTINCT substr(name, 1, instr(name, '.') - 1) "
                    "FROM blackbox_settings ORDER BY 1") == [
        ("blackbox",), ("evidence",), ("retention",), ("rollout",)]
    assert rows(db, "SELECT id FROM rollouts") == [(ROLLOUT,)]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_table_that_another_program_made_stays_with_its_rows(path, pinned):
    db = connect(path)
    db.executescript(THEIRS)
    db.execute("CREATE UNIQUE INDEX theirs ON event_payloads(event_id, agent_id)")
    before = schema(db)
    one(db, "SELECT blackbox_install('main', 'all')")
    if pinned:
        db.execute("UPDATE event_payloads SET pinned = 1")
        assert "PinnedError" in refused(db, "main", None, "force")
        one(db, "SELECT payload_unpin('t1', 'Ann', 'closed')")
        told = refused(db)
        assert "blackbox__log (rows: 2)" in told
        assert "event_payloads (rows" not in told
        one(db, "SELECT blackbox_uninstall('main', NULL, 'force')")
    else:
        one(db, "SELECT blackbox_uninstall()")
    # the table has two columns more, and indexes that may be those of the other program
    assert [row[:2] for row in schema(db) if not row[1].startswith("idx_payloads_")] \
        == [row[:2] for row in before if not row[1].startswith("idx_payloads_")]
    assert rows(db, "SELECT id, pinned FROM event_payloads") == [("t1", 0)]
    db.execute("DELETE FROM event_payloads")  # no guard is left


def test_a_table_that_the_user_altered_stays(db):
    fill(db)
    db.execute("ALTER TABLE cache_items ADD COLUMN mine")
    one(db, "SELECT blackbox_uninstall('main', 'cache', 'force')")
    assert [name for kind, name, _ in schema(db)
            if name.startswith("cache_") and kind != "index"] == ["cache_items"]
    assert one(db, "SELECT count(*) FROM cache_items") == 1


def test_uninstall_works_in_an_attached_schema_with_a_quoted_name(path, tmp_path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("ATTACH ? AS ?", (str(tmp_path / "other.db"), QUOTED))
    one(db, "SELECT blackbox_install(?, 'all')", QUOTED)
    db.execute('CREATE VIRTUAL TABLE "a ""b".ring USING payload_ring')
    db.execute("CREATE VIRTUAL TABLE main.ring USING payload_ring")
    before = schema(db)
    assert "virtual table ring" in refused(db, QUOTED)
    assert one(db, "SELECT blackbox_uninstall(?, NULL, 'force')", QUOTED) == "a \"b: "
    assert schema(db, QUOTED) == []
    assert schema(db) == before
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1


@pytest.mark.parametrize("pragma", ["trusted_schema = OFF", "foreign_keys = ON",
                                    "recursive_triggers = ON"])
def test_uninstall_works_under_other_settings_of_the_connection(path, pragma):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    fill(db)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("PRAGMA " + pragma)
    one(db, "SELECT blackbox_uninstall('main', NULL, 'force')")
    assert schema(db) == []


def test_uninstall_works_in_defensive_mode(path):
    told = shell(path, stdin=".load ./blackbox\n"
                 "SELECT blackbox_install('main', 'all');\n"
                 "CREATE VIRTUAL TABLE ring USING payload_ring;\n"
                 "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e');\n"
                 ".dbconfig defensive on\n"
                 "SELECT blackbox_uninstall('main', NULL, 'force');\n"
                 "SELECT count(*) FROM sqlite_schema WHERE name NOT LIKE 'sqlite%';\n")
    assert told.splitlines()[-2:] == ["main: ", "0"]


def test_a_schema_that_the_stock_shell_installed_is_removed_as_well(path):
    for domain in ["core", *DOMAINS, "payload_detection",
                   "payload_rules", "rollout_formats", "rollout_usage",
             "rollout_tables",
                   "rollout_histories"]:
        shell(path, stdin=(ROOT / "sql" / f"{domain}.sql").read_text())
    db = connect(path)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT blackbox_uninstall()") == "main: "
    assert schema(db) == []


def test_refuses_arguments_and_places(db):
    assert "ValidationError" in refused(db, "main", "cash")
    assert "must be 'force'" in refused(db, "main", None, "please")
    assert "temp cannot hold" in refused(db, "temp")
    assert "there is no schema" in refused(db, "nowhere")
    with pytest.raises(sqlite3.DatabaseError, match="SELECT blackbox_uninstall"):
        db.execute("INSERT INTO blackbox_call VALUES('blackbox_uninstall', '[]')")
    db.execute("UPDATE blackbox_domains SET format = 9 WHERE domain = 'cache'")
    assert "VersionError" in refused(db)
    db.execute("UPDATE blackbox_domains SET format = 1 WHERE domain = 'cache'")
    db.execute("DROP TABLE cache_state")
    assert "lost tables of cache" in refused(db)
    one(db, "SELECT blackbox_install()")
    assert "blackbox__log (rows: 1)" in refused(db)  # which tells of the loss
    assert one(db, "SELECT blackbox_uninstall('main', NULL, 'force')") == "main: "


def test_rows_that_wait_in_the_queue_are_written_first(db):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
               "('payload.queue_mode', 'memory')")
    one(db, "SELECT payload_queue('e', 'a', 'q', 'r')")
    assert "event_payloads" in refused(db)
    one(db, "SELECT blackbox_uninstall('main', NULL, 'force')")
    assert rows(db, "SELECT * FROM payload_queue") == []


def test_a_buffer_with_pinned_rows_keeps_everything_in_place(db):
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO rec(id, action) VALUES('a1', '{}')")
    db.execute("UPDATE rec SET pinned = 1")
    content = contents(db)
    told = refused(db, "main", None, "force")
    assert re.fullmatch("PinnedError: virtual table rec cannot be dropped.* pinned .*; UPDATE "
                        '"rec" SET pinned = 0 .*', told), told
    assert contents(db) == content
    db.execute("UPDATE rec SET pinned = 0")
    assert one(db, "SELECT blackbox_uninstall('main', NULL, 'force')") == "main: "


def test_pinned_rows_of_a_buffer_that_is_lost_stay(db):
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO rec(id, action) VALUES('a1', '{}')")
    db.execute("UPDATE rec SET pinned = 1")
    db.executescript("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'rec';"
                     "PRAGMA writable_schema = RESET")
    assert re.fullmatch("PinnedError: schema main has 1 pinned rows of buffers that are gone.*",
                        refused(db, "main", None, "force"))
    db.execute("UPDATE evidence__pinned SET pinned = 0")
    one(db, "SELECT blackbox_uninstall('main', NULL, 'force')")


def test_waits_for_a_writer_and_changes_nothing_when_it_cannot(path):
    db, other = connect(path, timeout=0.1), connect(path)
    one(db, "SELECT blackbox_install()")
    other.execute("BEGIN IMMEDIATE")
    assert "locked" in refused(db)
    other.execute("ROLLBACK")
    assert one(db, "SELECT blackbox_uninstall()") == "main: "
    assert schema(other) == []


def test_functions_say_that_the_domain_is_not_installed_any_more(db):
    fill(db)
    one(db, "SELECT cache_stats()")
    one(db, "SELECT blackbox_uninstall('main', 'cache', 'force')")
    with pytest.raises(sqlite3.DatabaseError, match="^NotInstalledError: Database not "
                       r"initialized: no schema .*blackbox_install\('main', 'cache'\) installs "
                       "them$"):
        one(db, "SELECT cache_stats()")
    one(db, "SELECT blackbox_install('main', 'cache')")
    assert one(db, "SELECT cache_stats() ->> '$.totalItems'") == 0


@pytest.mark.parametrize("domain, gone, left", [
    ("rollout", ("item", "event"), ("request", "response", "stream")),
    ("payload", ("request", "response", "stream"), ("item", "event"))])
def test_a_domain_takes_its_places_along_and_a_new_install_brings_them_back(
        path, domain, gone, left):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,rollout')")
    places = "SELECT source, count(*) FROM blackbox_places GROUP BY source"
    before = dict(rows(db, places))
    assert set(before) == {*gone, *left}
    one(db, "SELECT blackbox_uninstall('main', ?)", domain)
    assert dict(rows(db, places)) == {source: before[source] for source in left}
    one(db, "SELECT blackbox_install('main', ?)", domain)
    assert dict(rows(db, places)) == before
    assert rows(db, "SELECT * FROM blackbox_check") == []
