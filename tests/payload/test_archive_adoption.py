"""A payloads.db that another program made is taken over in place."""
import re
import sqlite3

import pytest

from conftest import ROOT, connect, one, rows, shell

# The table and the indexes as AgentGazer makes them.
THEIRS = """
CREATE TABLE event_payloads (
  id                  TEXT PRIMARY KEY,
  event_id            TEXT NOT NULL,
  agent_id            TEXT NOT NULL,
  request_body        TEXT,
  response_body       TEXT,
  size_bytes          INTEGER NOT NULL DEFAULT 0,
  purpose             TEXT NOT NULL CHECK (purpose IN ('archive', 'evidence')),
  pinned              INTEGER NOT NULL DEFAULT 0,
  kill_switch_event_id TEXT,
  created_at          TEXT NOT NULL DEFAULT (datetime('now'))
);
CREATE INDEX idx_payloads_event_id ON event_payloads(event_id);
CREATE INDEX idx_payloads_agent_id ON event_payloads(agent_id);
CREATE INDEX idx_payloads_purpose ON event_payloads(purpose);
CREATE INDEX idx_payloads_created_at ON event_payloads(created_at);
CREATE INDEX idx_payloads_kill_switch ON event_payloads(kill_switch_event_id);
"""
UNREADABLE = ["2024", "12:00", "now", "1700000000000", "", "yesterday",
              "2024-13-01", "20240101"]


def fill(db):
    put = ("INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
           "response_body, size_bytes, purpose, pinned, kill_switch_event_id, "
           "created_at) VALUES(?,?,?,?,?,?,?,?,?,?)")
    old = [
        ("t1", "e1", "a", "é🤖", "r", 4, "archive", 0, None, "2020-01-01 10:00:00"),
        ("t2", "e1", "a", "q", None, 1, "archive", 0, None,
         "2020-01-01T09:59:59.999Z"),
        ("t3", "e1", "a", None, None, 0, "archive", 0, None, "2020-01-01 10:00:00"),
        (None, "e2", "a", "q", "r", 99, "archive", 0, None, "2020-01-02 00:00:00"),
        (None, "e2", "a", "q", "r", 2, "archive", 0, None,
         "2020-01-02T00:00:00.000Z"),
        ("ev", "e3", "b", "q", "r", 2, "evidence", 1, "k", "2020-01-01 00:00:00"),
        ("loose", "e3", "b", "q", "r", 2, "evidence", 0, "k", "2020-01-01 00:00:00"),
        (None, "e3", "b", "q", "r", 2, "evidence", 1, "k", "2020-01-01 00:00:00"),
        ("pin", "e4", "b", "q", "r", 0, "archive", 1, None, "2020-01-01 00:00:00"),
        (None, "e4", "b", "q", "r", 2, "archive", 1, None, "2020-01-01 00:00:00"),
    ]
    old += [(f"x{i}", "e5", "c", "q", "r", 2, "archive", 0, None, text)
            for i, text in enumerate(UNREADABLE)]
    db.executemany(put, old)


def content(db):
    """Everything except ids that were missing, and the pins of evidence."""
    return rows(db, "SELECT rowid, CASE WHEN id NOT GLOB '????????-*' THEN id END, "
                "event_id, agent_id, request_body, "
                "response_body, purpose, pinned OR purpose = 'evidence', "
                "kill_switch_event_id, created_at "
                "FROM event_payloads ORDER BY rowid")


def test_every_row_has_an_id_and_all_evidence_is_pinned(adopted):
    db, before, _ = adopted
    assert one(db, "SELECT count(DISTINCT id) FROM event_payloads") == len(before)
    assert rows(db, "SELECT id FROM event_payloads WHERE purpose = 'evidence' "
                "AND pinned IS NOT 1") == []
    assert one(db, "SELECT count(*) FROM payload_pins") == 5


@pytest.fixture(params=["main", "payloads"])
def adopted(path, tmp_path, request):
    theirs = path if request.param == "main" else tmp_path / "payloads.db"
    with sqlite3.connect(theirs) as db:
        db.executescript(THEIRS)
        fill(db)
        before = content(db)
    db.close()
    db = connect(path)
    if request.param != "main":
        db.execute("ATTACH ? AS payloads", (str(theirs),))
    db.execute(f"PRAGMA {request.param}.synchronous=OFF")
    one(db, "SELECT blackbox_install(?)", request.param)
    yield db, before, theirs
    db.close()


def test_no_row_is_lost_or_rewritten_but_for_its_size(adopted):
    db, before, _ = adopted
    assert content(db) == before
    assert rows(db, "SELECT id, size_bytes FROM event_payloads WHERE size_bytes <> "
                "coalesce(length(CAST(request_body AS BLOB)), 0) + "
                "coalesce(length(CAST(response_body AS BLOB)), 0)") == []
    assert one(db, "SELECT size_bytes FROM event_payloads WHERE id = 't1'") == 7


def test_time_is_compared_as_time_across_both_forms(adopted):
    db, _, _ = adopted
    assert [r[0] for r in rows(
        db, "SELECT id FROM payload_rows WHERE event_id = 'e1' "
        "ORDER BY created_ms DESC, id")] == ["t1", "t3", "t2"]
    # as text '2020-01-01 10:00:00' < '2020-01-01T09:59:59.999Z'
    now = 1577872800000  # 2020-01-01 10:00:00
    assert one(db, "SELECT payload_cleanup(0, ?) ->> '$.rows'", now) == 1
    assert one(db, "SELECT count(*) FROM event_payloads WHERE id = 't2'") == 0
    assert one(db, "SELECT payload_cleanup(0, ?) ->> '$.rows'", now + 1) == 2


def test_pinned_rows_found_there_are_guarded(adopted):
    db, before, _ = adopted
    for where in ("id = 'ev'", "id = 'loose'", "id = 'pin'",
                  "rowid = 8", "rowid = 10"):
        for statement in ("DELETE FROM event_payloads WHERE ",
                          "UPDATE event_payloads SET request_body = 'x' WHERE ",
                          "UPDATE event_payloads SET pinned = 0, id = 'y' WHERE ",
                          "UPDATE event_payloads SET created_at = '2020-01-01' "
                          "WHERE "):
            with pytest.raises(sqlite3.IntegrityError, match="PinnedError|keeps its id"):
                db.execute(statement + where)
    for rowid in 8, 10:
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            db.execute("REPLACE INTO event_payloads(rowid, id, event_id, agent_id, "
                       "purpose) VALUES(?, 'n', 'e', 'a', 'archive')", (rowid,))
    assert content(db) == before


def test_unreadable_dates_never_expire_and_are_listed(adopted):
    db, _, _ = adopted
    assert one(db, "SELECT payload_cleanup(0, 253402300799999) ->> '$.rows'") == 5
    assert [r[0] for r in rows(db, "SELECT created_at FROM event_payloads "
                               "WHERE event_id = 'e5' ORDER BY id")] == UNREADABLE
    listed = str(rows(db, "SELECT problem FROM blackbox_check"))
    for i in range(len(UNREADABLE)):
        assert f"row x{i} is no date: the row never expires" in listed
    assert one(db, "SELECT payload_clear_archive()") == len(UNREADABLE)
    assert rows(db, "SELECT problem FROM blackbox_check") == []


def test_the_statements_of_the_other_program_still_work(adopted):
    _, _, path = adopted
    db = sqlite3.connect(path, isolation_level=None)
    put = ("INSERT INTO event_payloads (id, event_id, agent_id, request_body, "
           "response_body, size_bytes, purpose, pinned, kill_switch_event_id) "
           "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
    db.execute("BEGIN")
    db.execute(put, ("n1", "e", "a", "é", "r", 2, "archive", 0, None))
    db.execute(put, ("n2", "e", "a", "é", "r", 2, "evidence", 1, "k9"))
    db.execute("COMMIT")
    assert rows(db, "SELECT id, size_bytes, pinned FROM event_payloads "
                "WHERE event_id = 'e' ORDER BY id") == [("n1", 3, 0), ("n2", 3, 1)]
    assert one(db, "SELECT created_at = datetime(created_at) FROM event_payloads "
               "WHERE id = 'n1'") == 1
    assert one(db, "SELECT id FROM event_payloads WHERE event_id = 'e3' "
               "AND kill_switch_event_id = 'k' LIMIT 1") is not None
    kept = one(db, "SELECT count(*) FROM event_payloads WHERE pinned = 1 "
               "OR purpose = 'evidence'")
    db.execute("DELETE FROM event_payloads WHERE purpose = 'archive' AND "
               "pinned = 0 AND created_at < '2100-01-01T00:00:00.000Z'")
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned = 1 "
               "OR purpose = 'evidence'") == kept
    assert one(db, "SELECT count(*) FROM event_payloads WHERE id = 'n1'") == 0
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'n2'")
    db.close()


def test_a_second_install_changes_nothing(adopted):
    db, before, path = adopted
    schema = "main" if rows(db, "PRAGMA database_list")[-1][1] == "main" \
        else "payloads"
    version = one(db, f"PRAGMA {schema}.schema_version")
    one(db, "SELECT blackbox_install(?)", schema)
    assert one(db, f"PRAGMA {schema}.schema_version") == version
    assert content(db) == before


def test_everything_works_on_the_adopted_table(adopted):
    db, _, _ = adopted
    schema = rows(db, "PRAGMA database_list")[-1][1]
    db.execute(f"CREATE VIRTUAL TABLE {schema}.ring USING payload_ring")
    db.execute(f"INSERT INTO {schema}.ring(agent_id, event_id) VALUES('z','e')")
    assert one(db, "SELECT payload_kill_switch('ring', 'z', 'k')") == 1
    db.execute(f"INSERT INTO {schema}.blackbox_settings(name, value) VALUES('payload.enabled', 1), "
               "('payload.queue_mode', 'memory')")
    assert one(db, "SELECT payload_queue('e', 'z', 'q', 'r')") == 1
    assert one(db, "SELECT payload_flush()") == 1
    assert one(db, """SELECT payload_save_evidence('k',
                   '[{"eventId":"s","agentId":"z"}]')""") == 1
    made = rows(db, "SELECT id, created_at FROM event_payloads WHERE agent_id='z'")
    assert len(made) == 3 and all(len(r[0]) == 36 for r in made)
    assert all(r[1][10] == "T" and r[1][-1] == "Z" for r in made)
    # the table has no default for id
    with pytest.raises(sqlite3.IntegrityError):
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
                   "VALUES('ev', 'e', 'z', 'archive')")
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) "
               "VALUES('e', 'new', 'evidence')")
    assert rows(db, "SELECT length(id), pinned FROM event_payloads "
                "WHERE agent_id = 'new'") == [(36, 1)]


def test_missing_columns_are_added(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE event_payloads(id TEXT PRIMARY KEY, event_id TEXT, "
                   "agent_id TEXT, purpose TEXT, created_at TEXT, mine)")
        db.execute("INSERT INTO event_payloads VALUES('a','e','a','archive',"
                   "'2020-01-01 00:00:00','kept')")
    db.close()
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT mine, size_bytes, pinned FROM event_payloads") \
        == [("kept", 0, 0)]
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT payload_cleanup() ->> '$.rows'") == 1


@pytest.mark.parametrize("made", [
    "CREATE VIEW event_payloads AS SELECT 1 AS id",
    "CREATE TABLE event_payloads(id TEXT, body TEXT)",
    "CREATE TABLE event_payloads(id, event_id, agent_id, purpose)"])
def test_something_else_of_that_name_is_refused_and_left_alone(path, made):
    db = connect(path)
    db.execute(made)
    before = rows(db, "SELECT name, sql FROM sqlite_schema")
    with pytest.raises(sqlite3.OperationalError, match="ValidationError: event_pay"):
        one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT name, sql FROM sqlite_schema") == before


def test_indexes_of_the_names_are_taken_or_made_anew(path):
    """AgentGazer makes them IF NOT EXISTS, and so finds all five."""
    with sqlite3.connect(path) as db:
        db.executescript(THEIRS)
        db.execute("DROP INDEX idx_payloads_agent_id")
        db.execute("CREATE  INDEX idx_payloads_agent_id ON event_payloads(agent_id, pinned)")
        mine = rows(db, "SELECT rootpage FROM sqlite_schema WHERE name = 'idx_payloads_event_id'")
    db.close()
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    before = rows(db, "SELECT name, sql FROM sqlite_schema WHERE tbl_name = 'event_payloads'"
                  " AND type = 'index' AND sql IS NOT NULL")
    assert len(before) == 6
    assert rows(db, "SELECT rootpage FROM sqlite_schema "
                "WHERE name = 'idx_payloads_event_id'") == mine
    db.executescript(THEIRS[THEIRS.index("CREATE INDEX"):].replace("INDEX", "INDEX IF NOT EXISTS"))
    assert rows(db, "SELECT name, sql FROM sqlite_schema WHERE tbl_name = 'event_payloads'"
                " AND type = 'index' AND sql IS NOT NULL") == before
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_failing_adoption_changes_nothing(path):
    with sqlite3.connect(path) as db:
        db.executescript(THEIRS)
        fill(db)
        db.execute("CREATE TABLE payload_by_age(x)")
        before = rows(db, "SELECT name, sql FROM sqlite_schema"), content(db)
    db.close()
    db = connect(path)
    with pytest.raises(sqlite3.OperationalError, match="payload_by_age"):
        one(db, "SELECT blackbox_install()")
    assert (rows(db, "SELECT name, sql FROM sqlite_schema"), content(db)) == before


def test_adoption_by_the_plain_sql_files(path):
    with sqlite3.connect(path) as db:
        db.executescript(THEIRS)
        fill(db)
        before = content(db)
    db.close()
    made = (ROOT / "sql" / "payload.sql").read_text()
    created_ms = re.search(r"(created_ms +INTEGER AS.*?) STORED", made, re.S)[1]
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE event_payloads ADD meta TEXT")
        db.execute(f"ALTER TABLE event_payloads ADD {created_ms}")
    db.close()
    for name in "core", "payload", "payload_detection", "payload_rules":
        assert shell(path, stdin=(ROOT / f"sql/{name}.sql").read_text()) == ""
    plain = sqlite3.connect(path)
    assert content(plain) == before
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        plain.execute("DELETE FROM event_payloads WHERE id = 'loose'")


def test_a_purpose_that_ignores_case_pins_evidence(path):
    """The column keeps its collation in all that an INSERT fires."""
    with sqlite3.connect(path) as db:
        db.executescript(THEIRS.replace("purpose             TEXT", "purpose TEXT COLLATE NOCASE"))
    db.close()
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('v', 'e', 'a', 'EVIDENCE')")
    assert rows(db, "SELECT id FROM payload_pins") == [("v",)]
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'v'")


@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("outer", [
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) VALUES('one', 'new', 'a', 'archive')",
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) VALUES('new', 'one', 'a', 'archive')",
    "UPDATE OR REPLACE event_payloads SET id = 'one' WHERE id = 'three'",
    "UPDATE OR REPLACE event_payloads SET event_id = 'one' WHERE id = 'three'"])
@pytest.mark.parametrize("inner", [
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) VALUES('x', 'two', 'a', 'archive')",
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) VALUES('two', 'x', 'a', 'archive')",
    "UPDATE OR REPLACE event_payloads SET event_id = 'two' WHERE id = 'four'",
    "UPDATE OR REPLACE event_payloads SET id = 'two' WHERE id = 'four'"])
@pytest.mark.parametrize("when", ["BEFORE", "AFTER"])
def test_no_replace_inside_a_replace_takes_a_row_by_a_unique_index(
        path, recursive, outer, inner, when):
    db = connect(path)
    db.executescript(THEIRS + "CREATE UNIQUE INDEX theirs ON event_payloads(event_id);")
    one(db, "SELECT blackbox_install()")
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    for id in "one", "two", "three", "four":
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) VALUES(?, ?, 'a', ?)",
                   (id, id, "evidence" if id == "two" else "archive"))
    db.execute(f"CREATE TRIGGER mine {when} DELETE ON event_payloads BEGIN {inner}; END")
    with pytest.raises(sqlite3.Error, match="MisuseError|PinnedError|keeps its id|too (many levels|deep)"):
        db.execute(outer)
    assert rows(db, "SELECT id, event_id, purpose FROM event_payloads ORDER BY rowid") == [
        (id, id, "evidence" if id == "two" else "archive") for id in ("one", "two", "three", "four")]
    assert rows(db, "SELECT * FROM retention_log") == []
