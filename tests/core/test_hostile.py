"""Statements that try to remove evidence.

A file has pinned evidence, a pinned archive row, and rows that are not protected. Each
statement, and each sequence of a few statements, is either refused or leaves every pinned row
and every record unchanged. What no trigger can stop (a dropped table, a rewritten file),
blackbox_check() finds."""
import itertools
import sqlite3
import time

import pytest

from conftest import ROOT, connect, one, rows

VICTIMS = ("victim", "VICTIM2", "pinned")
COLUMNS = ("id", "event_id", "agent_id", "request_body", "response_body",
           "size_bytes", "purpose", "pinned", "kill_switch_event_id", "created_at")
CLAUSES = ("", "OR REPLACE", "OR IGNORE", "OR FAIL", "OR ABORT", "OR ROLLBACK")
ADOPTED = """
CREATE TABLE event_payloads(
  more TEXT COLLATE NOCASE DEFAULT 'Extra', number,
  id TEXT COLLATE NOCASE PRIMARY KEY, event_id TEXT COLLATE NOCASE NOT NULL,
  agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL,
  pinned INTEGER DEFAULT 0, kill_switch_event_id TEXT,
  created_at TEXT NOT NULL DEFAULT (datetime('now')), UNIQUE (event_id, agent_id));
CREATE UNIQUE INDEX theirs ON event_payloads(kill_switch_event_id COLLATE NOCASE);
"""
PUT = ("INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
       "response_body, purpose, pinned, kill_switch_event_id, created_at) VALUES "
       "('victim', 'e1', 'a', 'q', 'r', 'evidence', 1, 'K1', '2026-01-01 00:00:00'),"
       "('VICTIM2', 'E2', 'a', 'q', NULL, 'evidence', 1, NULL, '2026-01-01 00:00:00'),"
       "('pinned', 'e3', 'a', 'q', 'r', 'archive', 1, NULL, '2026-01-01 00:00:00'),"
       "('mine0', 'e4', 'b', 'q', 'r', 'archive', 0, NULL, '2026-01-01 00:00:00'),"
       "('mine1', 'e5', 'b', 'q', 'r', 'archive', 0, NULL, '2026-01-01 00:00:00')")
KINDS = ["own", "adopted", "adopted later"]


def make(path, kind):
    """A file whose pins have hashes, or do not have them yet."""
    db = connect(path)
    db.execute("PRAGMA synchronous=OFF")
    if kind != "own":
        db.executescript(ADOPTED)
    if kind == "adopted later":
        db.execute(PUT)
        db.execute("UPDATE event_payloads SET number = 1")
    one(db, "SELECT blackbox_install('main', 'payload')")
    if kind != "adopted later":
        db.execute(PUT)
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('freed', 'e6', 'c', 'evidence')")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
               "VALUES('freed', 'Ann', 'case closed')")
    one(db, "SELECT blackbox_install('main', 'payload')")  # takes the hashes
    db.close()


def guarded(db):
    """What must not change: the pinned rows, and the records of pins and unpins."""
    ids = ", ".join(f"'{id}'" for id in VICTIMS)
    return (rows(db, "SELECT rowid, *, typeof(request_body) FROM event_payloads "
                 f"WHERE id COLLATE BINARY IN ({ids}) ORDER BY rowid"),
            rows(db, f"SELECT * FROM payload_ledger WHERE id IN ({ids}, 'freed')"))


@pytest.fixture(scope="module", params=KINDS)
def made(tmp_path_factory, request):
    path = tmp_path_factory.mktemp("hostile") / "made.db"
    make(path, request.param)
    return path.read_bytes(), request.param


@pytest.fixture
def fresh(made, tmp_path):
    path = tmp_path / "fresh.db"
    path.write_bytes(made[0])
    return path


def statements(kind):
    """Single statements: every verb and conflict clause, on every column."""
    columns = COLUMNS + (() if kind == "own" else ("more", "number"))
    values = ("NULL", "'other'", "1", "0", "x'00'", "'e4'")
    for clause, column, value in itertools.product(CLAUSES, columns, values):
        yield f"UPDATE {clause} event_payloads SET {column} = {value} WHERE id = 'victim'"
        if value == "NULL":
            yield f"UPDATE {clause} event_payloads SET {column} = {value}"
    for clause, id in itertools.product(CLAUSES, ("victim", "pinned", "VICTIM2", "victim2",
                                                  "Victim")):
        yield f"UPDATE {clause} event_payloads SET id = '{id}' WHERE id = 'mine0'"
        yield f"UPDATE {clause} event_payloads SET id = lower(id), pinned = 0"
        yield (f"UPDATE {clause} event_payloads SET rowid = (SELECT rowid FROM "
               f"event_payloads WHERE id = '{id}') WHERE id = 'mine0'")
        yield (f"UPDATE {clause} event_payloads SET event_id = 'E1', agent_id = 'a' "
               "WHERE id = 'mine0'")
        yield (f"UPDATE {clause} event_payloads SET kill_switch_event_id = 'k1' "
               "WHERE id = 'mine0'")
        for more, end in (("", ""), ("", " ON CONFLICT DO NOTHING"),
                          ("", " ON CONFLICT(id) DO UPDATE SET request_body = 'x'"),
                          ("", " ON CONFLICT(id) DO UPDATE SET id = 'gone', pinned = 0"),
                          ("rowid, ", "")):
            rid = f"(SELECT rowid FROM event_payloads WHERE id = '{id}'), " if more else ""
            for new in (id, "new"):
                yield (f"INSERT {clause} INTO event_payloads({more}id, event_id, "
                       f"agent_id, purpose, kill_switch_event_id) VALUES({rid}'{new}', "
                       f"'e1', 'a', 'archive', 'k1'){end}")
        yield (f"INSERT {clause} INTO event_payloads(rowid, event_id, agent_id, purpose, "
               f"id) SELECT rowid, 'x', 'x', 'evidence', NULL FROM event_payloads "
               f"WHERE id = '{id}'")
        yield f"INSERT {clause} INTO event_payloads SELECT * FROM event_payloads"
        yield f"INSERT {clause} INTO payload_ledger(id) VALUES('{id}')"
        yield f"INSERT {clause} INTO payload_ledger SELECT * FROM payload_ledger"
        yield (f"INSERT {clause} INTO payload_ledger(pin, id) SELECT pin, 'mine0' FROM "
               f"payload_ledger WHERE id = '{id}'")
        yield f"INSERT {clause} INTO payload_pins(id) VALUES('{id}')"
        yield f"DELETE FROM event_payloads WHERE id = '{id}'"
    for clause, column, value in itertools.product(
            CLAUSES, ("pin", "id", "token", "columns", "hash", "at", "actor", "reason",
                      "event_id", "agent_id", "kill_switch_event_id"),
            ("NULL", "1", "'mine0'", "strftime('%s', 'now') * 1000")):
        yield f"UPDATE {clause} payload_ledger SET {column} = {value}"
    yield "DELETE FROM event_payloads"
    yield "DELETE FROM event_payloads WHERE rowid IN (SELECT rowid FROM event_payloads)"
    yield "DELETE FROM payload_ledger"
    yield "DELETE FROM payload_pins"
    yield "DELETE FROM payload_unpins"
    yield "UPDATE payload_ledger SET at = 5, actor = 'x', reason = 'y'"
    yield "UPDATE payload_unpins SET actor = 'x'"


def connection(path, module, recursive):
    db = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=OFF")
    db.execute(f"PRAGMA recursive_triggers={recursive}")
    return db


@pytest.mark.parametrize("module", [0, 1])
@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_no_single_statement_changes_pinned_rows(made, fresh, module, recursive, begin):
    db = connection(fresh, module, recursive)
    before = guarded(db)
    assert len(before[0]) == 3 and len(before[1]) == 4
    for statement in statements(made[1]):
        db.execute("SAVEPOINT each" if not begin else begin)
        try:
            db.execute(statement)
        except sqlite3.Error:
            pass
        after = guarded(db)
        assert after == before, statement
        if db.in_transaction:
            db.execute("ROLLBACK")
    db.close()
    check = [r for r in rows(connect(fresh), "SELECT * FROM blackbox_check")]
    assert check == []


@pytest.mark.parametrize("module", [0, 1])
def test_no_single_statement_that_is_committed_changes_pinned_rows(made, fresh, module):
    """The statements one after the other in autocommit: each may use the results of those
    before."""
    db = connection(fresh, module, 0)
    before = guarded(db)
    for statement in statements(made[1]):
        try:
            db.execute(statement)
        except sqlite3.Error:
            pass
        assert guarded(db) == before, statement
    one(connect(fresh), "SELECT blackbox_install('main', 'payload')")
    assert rows(connect(fresh), "SELECT * FROM blackbox_check") == []


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "blobopen"),
                    reason="Python 3.11 has incremental blobs")
@pytest.mark.parametrize("column, table", [
    *((c, "event_payloads") for c in ("id", "event_id", "request_body", "response_body",
                                      "purpose", "created_at")),
    *((c, "payload_ledger") for c in ("id", "hash", "actor", "reason", "event_id")),
    *((c, "retention_log") for c in ("domain", "rule"))])
def test_no_incremental_blob_write_changes_pinned_rows(fresh, column, table):
    db = sqlite3.connect(fresh, isolation_level=None)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")  # for a receipt
    rowid = one(db, f"SELECT max(rowid) FROM {table} WHERE typeof({column}) = 'text'")
    with pytest.raises(sqlite3.OperationalError, match="indexed column"):
        db.blobopen(table, column, rowid)


# Sequences of several statements. None may remove a pinned row or a record, and
# after each of them the row still cannot be deleted.
TRICKS = {
    "a number that was let go of, again": """
        UPDATE event_payloads SET pinned = 1 WHERE id = 'mine0';
        INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('mine0', 'a', 'r');
        DELETE FROM sqlite_sequence WHERE name = 'payload_pins';
        DELETE FROM sqlite_sequence;
        REPLACE INTO payload_pins(id) VALUES('victim');
        REPLACE INTO payload_ledger(id) VALUES('victim');
        DELETE FROM payload_pins WHERE id = 'victim';
        DELETE FROM payload_ledger WHERE id = 'victim';
        UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'""",
    "pinned is set to NULL": """
        UPDATE OR REPLACE event_payloads SET pinned = NULL WHERE id = 'victim'""",
    "a unique index and a replay": """
        CREATE UNIQUE INDEX m ON event_payloads(event_id);
        SELECT blackbox_install();
        REPLACE INTO event_payloads(event_id, agent_id, purpose)
        VALUES('e1', 'a', 'archive');
        UPDATE OR REPLACE event_payloads SET event_id = 'e1' WHERE id = 'mine0'""",
    "an update inside the guard of another": """
        CREATE TEMP TRIGGER t AFTER INSERT ON main.payload_ledger BEGIN
          UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine1'; END;
        UPDATE OR REPLACE event_payloads SET pinned = 1 WHERE id = 'mine0'""",
    "an insert inside the guard of another": """
        CREATE TEMP TRIGGER t AFTER INSERT ON main.payload_ledger BEGIN
          REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
          VALUES('victim', 'x', 'x', 'archive'); END;
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('new', 'x', 'x', 'evidence')""",
    "an update that is started by the correction of a size": """
        CREATE TEMP TRIGGER t AFTER UPDATE ON main.event_payloads
        WHEN NEW.id = 'mine0' BEGIN
          UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine1';
          DELETE FROM event_payloads WHERE id = 'victim'; END;
        UPDATE OR REPLACE event_payloads SET size_bytes = 9 WHERE id = 'mine0'""",
    "the guard after an insert is skipped": """
        CREATE TEMP TRIGGER t AFTER INSERT ON main.event_payloads BEGIN
          SELECT RAISE(IGNORE); END;
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive');
        REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose)
        SELECT rowid, 'new', 'x', 'x', 'archive' FROM event_payloads
         WHERE id = 'victim';
        REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose)
        VALUES(-1, 'new', 'x', 'x', 'archive')""",
    "the guard after an update is skipped": """
        CREATE TEMP TRIGGER t AFTER UPDATE ON main.event_payloads BEGIN
          SELECT RAISE(IGNORE); END;
        UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine0'""",
    "the guard after an update is skipped, by a trigger before": """
        CREATE TEMP TRIGGER t BEFORE UPDATE ON main.event_payloads BEGIN
          SELECT RAISE(IGNORE); END;
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', 'a', 'r')""",
    "an unpin that breaks off": """
        CREATE TEMP TRIGGER t BEFORE UPDATE ON main.payload_ledger BEGIN
          SELECT RAISE(IGNORE); END;
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', 'a', 'r');
        DROP TRIGGER t;
        UPDATE payload_ledger SET id = 'pinned' WHERE id = 'victim';
        UPDATE payload_unpins SET payload_id = 'victim'""",
    "an unpin that ends before it begins": """
        CREATE TEMP TRIGGER t INSTEAD OF INSERT ON main.payload_unpins BEGIN
          SELECT RAISE(IGNORE); END;
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', 'a', 'r');
        UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'""",
    "a pin that is never written": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.payload_ledger BEGIN
          SELECT RAISE(IGNORE); END;
        UPDATE event_payloads SET pinned = 1 WHERE id = 'mine0';
        UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'""",
    "numbers as large as they can be": """
        UPDATE sqlite_sequence SET seq = 9223372036854775807;
        INSERT INTO sqlite_sequence VALUES('payload_ledger', 9223372036854775807);
        INSERT INTO retention_log(id, at, domain, rule, rows, bytes)
        VALUES(9223372036854775807, 0, 'x', 'x', 1, 1);
        INSERT INTO payload_ledger(pin, id) VALUES(9223372036854775807, 'mine0')""",
    "checks are off": """
        PRAGMA ignore_check_constraints = ON;
        INSERT INTO payload_ledger(pin, id) VALUES(-1, 'mine0');
        UPDATE event_payloads SET pinned = 1 WHERE id = 'mine0';
        REPLACE INTO payload_ledger(pin, id) VALUES(-1, 'mine1');
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'other');
        UPDATE event_payloads SET purpose = 'archive', pinned = 0;
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', ' ', x'00')""",
    "foreign keys that cascade": """
        PRAGMA foreign_keys = ON;
        CREATE TABLE parent(id TEXT PRIMARY KEY);
        INSERT INTO parent VALUES('victim');
        DELETE FROM parent""",
    "an unseen actor": """
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', char(10), 'r');
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', x'00', 'r');
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', 'a', char(9, 8203))""",
    "the names of the length": """
        UPDATE payload_state SET entries = 0, closed = 0, digest = 0;
        UPDATE blackbox_ledgers SET entries = 0, closed = 0, digest = 0;
        DELETE FROM blackbox_ledgers;
        REPLACE INTO blackbox_ledgers VALUES('payload', 0, 0, 0)""",
    "the probe": """
        DELETE FROM blackbox_probe;
        DELETE FROM sqlite_sequence;
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive');
        INSERT OR REPLACE INTO blackbox_probe VALUES(1);
        INSERT INTO sqlite_sequence(rowid, name, seq) VALUES(-1, 'x', 0);
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive')""",
    "every write that a guard could make is passed over": """
        CREATE TEMP TRIGGER t1 BEFORE INSERT ON main.blackbox_probe BEGIN
          SELECT RAISE(IGNORE); END;
        CREATE TEMP TRIGGER t2 BEFORE INSERT ON main.sqlite_sequence BEGIN
          SELECT RAISE(IGNORE); END;
        CREATE TEMP TRIGGER t3 AFTER INSERT ON main.event_payloads BEGIN
          SELECT RAISE(IGNORE); END;
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive');
        INSERT INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive') ON CONFLICT DO NOTHING""",
    "a replacement inside the guard of another": """
        CREATE TEMP TRIGGER t1 BEFORE INSERT ON main.blackbox_probe BEGIN
          REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose)
          SELECT rowid, 'new', 'x', 'x', 'archive' FROM event_payloads
           WHERE id = 'victim'; END;
        INSERT INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('pinned', 'x', 'x', 'archive')
        ON CONFLICT(id) DO UPDATE SET pinned = 1""",
    "the views that the guards read, by a table in temp": """
        CREATE TEMP TABLE payload_pins(id, pin, hash, columns);
        CREATE TEMP TABLE payload_protected(id, payload_rowid);
        CREATE TEMP TABLE payload_unpins(payload_id);
        INSERT INTO temp.payload_unpins VALUES('victim');
        UPDATE main.event_payloads SET pinned = 0 WHERE id = 'victim';
        REPLACE INTO main.event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive')""",
    "a bulk act that was never begun": """
        UPDATE payload_state SET bulk = 1;
        DELETE FROM event_payloads WHERE id = 'mine0'""",
}


def run(db, script):
    """Every statement of a script, even if others fail."""
    statement = ""
    for part in script.split(";"):
        statement += part + ";"
        if not sqlite3.complete_statement(statement):
            continue
        try:
            db.execute(statement).fetchall()
        except sqlite3.Error:
            pass
        statement = ""


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("recursive", [0, 1])
def test_no_sequence_of_statements_changes_pinned_rows_unnoticed(fresh, trick, begin, recursive):
    db = connection(fresh, 1, recursive)
    before = guarded(db)
    db.execute(begin)
    run(db, TRICKS[trick])
    assert guarded(db) == before
    if db.in_transaction:
        db.execute("COMMIT")
    db.close()
    db = connect(fresh)
    assert guarded(db) == before
    for id in VICTIMS:
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            db.execute("DELETE FROM event_payloads WHERE id = ?", (id,))
        assert one(db, "SELECT payload_unpin(?, 'Ann', 'closed')", id) == 1
        db.execute("DELETE FROM event_payloads WHERE id = ?", (id,))


def test_a_delete_always_has_its_receipt(fresh):
    db = connect(fresh)
    run(db, TRICKS["a bulk act that was never begun"])
    assert one(db, "SELECT sum(rows) FROM retention_log") == 1
    run(db, "UPDATE payload_state SET removed = (SELECT max(id) FROM retention_log)")
    time.sleep(0.002)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine1'")
    assert one(db, "SELECT sum(rows) FROM retention_log") == 2


@pytest.mark.parametrize("statement", [
    "INSERT INTO retention_log(id, at, domain, rule, rows, bytes) "
    "VALUES(9223372036854775807, 0, 'x', 'x', 1, 1)",
    "REPLACE INTO retention_log SELECT * FROM retention_log",
    "DELETE FROM retention_log", "UPDATE retention_log SET rows = 0",
    "UPDATE retention_log SET bytes = NULL", "UPDATE retention_log SET rule = 'x'",
    "UPDATE retention_log SET minute = NULL",
    "UPDATE OR REPLACE retention_log SET id = id + 20000",
    "UPDATE retention_log SET at = 0", "UPDATE retention_log SET oldest = NULL",
    "UPDATE retention_log SET newest = 5", "UPDATE retention_log SET rows = -1",
    "UPDATE retention_log SET rows = 0 WHERE rule = 'clear'",
    "UPDATE retention_log SET bytes = 0 WHERE rule = 'clear'",
    "UPDATE retention_log SET oldest = newest + 1 WHERE rule = 'clear'",
    "DELETE FROM retention_log WHERE rule = 'clear'"])
def test_receipts_stay(fresh, statement):
    db = sqlite3.connect(fresh, isolation_level=None)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    db.execute("INSERT INTO payload_clear(actor) VALUES('Ann')")
    before = rows(db, "SELECT * FROM retention_log")
    assert len(before) == 2
    with pytest.raises(sqlite3.IntegrityError):
        db.execute(statement)
    assert rows(db, "SELECT * FROM retention_log") == before


@pytest.mark.parametrize("recursive", [0, 1])
def test_another_receipt_takes_no_place(fresh, recursive):
    db = connection(fresh, 0, recursive)
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    before = rows(db, "SELECT * FROM retention_log")
    db.execute("REPLACE INTO retention_log(at, domain, rule, rows, bytes, minute) "
               "SELECT at, domain, rule, 0, 0, minute FROM retention_log")
    assert rows(db, "SELECT * FROM retention_log WHERE id = 1") == before


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_replaced_row_is_counted_with_the_others(fresh, begin):
    db = connection(fresh, 0, 1)
    db.execute(begin)
    for _ in range(3):
        db.execute("REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
                   "VALUES('mine0', 'new', 'x', 'archive')")
    assert one(db, "SELECT sum(rows) FROM retention_log") == 3


def test_a_bulk_act_that_a_trigger_breaks_off_is_found(fresh):
    db = connect(fresh)
    db.execute("CREATE TEMP TRIGGER t BEFORE UPDATE ON main.retention_log BEGIN "
               "SELECT RAISE(IGNORE); END")
    db.execute("INSERT INTO payload_clear(actor) VALUES('Ann')")
    db.execute("DROP TRIGGER t")
    assert [r[1:] for r in rows(db, "SELECT * FROM blackbox_check")] == [
        ("retention_log", "receipt 1 was never closed: a trigger stopped a bulk delete")]


@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_replays_pass_beside_unique_indexes(tmp_path, kind):
    path = tmp_path / "replay.db"
    make(path, kind)
    db = connect(path)
    if kind == "own":
        db.execute("CREATE UNIQUE INDEX m ON event_payloads(event_id, agent_id)")
        one(db, "SELECT blackbox_install()")
    before = guarded(db)
    for insert, end in (("INSERT OR IGNORE", ""), ("INSERT", "ON CONFLICT DO NOTHING")):
        db.execute(f"{insert} INTO event_payloads(event_id, agent_id, purpose) "
                   f"VALUES('e1', 'a', 'archive'), ('e9', 'a', 'archive') {end}")
    assert guarded(db) == before
    assert one(db, "SELECT count(*) FROM event_payloads WHERE event_id = 'e9'") == 1
    for verb in ("REPLACE", "INSERT"):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(f"{verb} INTO event_payloads(event_id, agent_id, purpose) "
                       "VALUES('e1', 'a', 'archive')")
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ---- what cannot be prevented is found

GUARD = "SELECT sql FROM sqlite_schema WHERE name = '{}'"


def without(db, *guards):
    """A context without the guards, which are restored at its end."""
    class Away:
        def __enter__(self):
            self.sql = [one(db, GUARD.format(name)) for name in guards]
            for name in guards:
                db.execute(f"DROP TRIGGER {name}")

        def __exit__(self, *_):
            for sql in self.sql:
                db.execute(sql.replace("TRIGGER", "TRIGGER IF NOT EXISTS", 1))
    return Away()


def forge_body(db):
    with without(db, "payload_update_check"):
        db.execute("UPDATE event_payloads SET request_body = 'Q' WHERE id = 'victim'")


def forge_time(db):
    with without(db, "payload_update_check"):
        db.execute("UPDATE event_payloads SET created_at = '2026-01-01 00:00:01' "
                   "WHERE id = 'pinned'")


def remove(db):
    with without(db, "payload_delete_check"):
        db.execute("DELETE FROM event_payloads WHERE id = 'victim'")


def unpin_in_place(db):
    with without(db, "payload_update_check"):
        db.execute("UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'")


def forget_pin(db):
    with without(db, "payload_ledger_delete", "payload_delete_check"):
        db.execute("DELETE FROM payload_ledger WHERE id = 'victim'")
        db.execute("DELETE FROM event_payloads WHERE id = 'victim'")


def make_ledger_again(db):
    with without(db, "payload_delete_check"):
        db.execute("DROP TABLE payload_ledger")
        db.executescript((ROOT / "sql/payload_tables.sql").read_text())
        with without(db, "payload_update_check"):
            db.execute("UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'")
    one(db, "SELECT blackbox_install()")


def make_all_again(db):
    for name in ("payload_ledger", "payload_state", "event_payloads"):
        db.execute("DROP TABLE " + name)
    one(db, "SELECT blackbox_install()")


def rename(db):
    db.execute("ALTER TABLE event_payloads RENAME TO away")
    one(db, "SELECT blackbox_install()")


def decoy(db):
    db.execute("PRAGMA legacy_alter_table = ON")
    db.execute("ALTER TABLE payload_ledger RENAME TO away")
    one(db, "SELECT blackbox_install()")


def refused_without_journal(db, statement):
    """What the statement wrote before it was refused stays."""
    if one(db, "PRAGMA journal_mode = OFF") != "off":
        pytest.skip("defensive mode refuses it")
    db.execute("BEGIN")
    with pytest.raises(sqlite3.Error):
        db.execute(statement)
    db.execute("COMMIT")


def no_journal_evidence(db):
    refused_without_journal(
        db, "INSERT INTO event_payloads(id, event_id, agent_id, purpose, created_at) "
        "VALUES('late', 'e', 'a', 'evidence', 'never')")


def no_journal_unpin(db):
    db.execute("CREATE TEMP TRIGGER t AFTER UPDATE ON main.payload_ledger BEGIN "
               "SELECT RAISE(ABORT, 'no'); END")
    refused_without_journal(db, "INSERT INTO payload_unpins(payload_id, actor, reason) "
                            "VALUES('victim', 'a', 'r')")
    db.execute("DROP TRIGGER t")


def write_schema(db):
    db.execute("PRAGMA writable_schema = ON")
    if one(db, "PRAGMA writable_schema") == 0:
        pytest.skip("defensive mode refuses it")
    db.execute("UPDATE sqlite_schema SET sql = replace(sql, '<> 0', '<> 1') "
               "WHERE name = 'payload_delete_check'")


def edit_file(db):
    path = rows(db, "PRAGMA database_list")[0][2]
    data = open(path, "rb").read()
    with open(path, "r+b") as file:
        file.write(data.replace(b"victime1aq", b"victime1aQ"))


def trigger(db):
    db.execute("CREATE TRIGGER theirs_t AFTER INSERT ON payload_ledger "
               "BEGIN SELECT RAISE(IGNORE); END")


def temp_trigger(db):
    db.execute("CREATE TEMP TRIGGER theirs_t BEFORE INSERT ON main.retention_log "
               "BEGIN SELECT RAISE(IGNORE); END")


def unique_index(db):
    db.execute("CREATE UNIQUE INDEX theirs_i ON event_payloads(request_body, id)")


def unique_expression(db):
    db.execute("CREATE UNIQUE INDEX theirs_i ON event_payloads(id || event_id)")


def ledger_index(db):
    db.execute("CREATE UNIQUE INDEX theirs_i ON payload_ledger(pin, id)")


def column(db):
    db.execute("ALTER TABLE event_payloads ADD COLUMN added DEFAULT 5")


def rowid_column(db):
    try:
        db.execute("ALTER TABLE event_payloads ADD COLUMN rowid")
    except sqlite3.OperationalError as refused:
        if "rowid alias" not in str(refused):
            raise
        pytest.skip("this SQLite refuses a column of that name")


FOUND = [
    (forge_body, "row victim is pinned and was changed"),
    (forge_time, "row pinned is pinned and was changed"),
    (remove, "row victim was pinned and is gone"),
    (unpin_in_place, "row victim is pinned here, but has another pinned"),
    (forget_pin, "entries were removed"),
    (make_ledger_again, "of other tokens: entries were removed"),
    (make_all_again, "blackbox_ledgers counted"),
    (rename, "row victim was pinned and is gone"),
    (decoy, "entries were removed"),
    (no_journal_evidence, "pinned row late is not in payload_pins"),
    (no_journal_unpin, "of which 2 were taken off"),
    (write_schema, "trigger differs from what blackbox_install"),
    (edit_file, "row victim is pinned and was changed"),
    (trigger, "trigger theirs_t does not belong to blackbox"),
    (temp_trigger, "temp trigger theirs_t does not belong to blackbox"),
    (unique_index, "unique index .*theirs_i is not guarded"),
    (unique_expression, "cannot be guarded: its unique index theirs_i"),
    (ledger_index, "unique index theirs_i does not belong to blackbox"),
    (column, "column .*added is not guarded"),
    (rowid_column, "its column rowid hides the rowid"),
]


@pytest.mark.parametrize("damage, found", FOUND, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_check_finds_each_change_that_sql_cannot_stop(tmp_path, damage, found, kind):
    import re
    path = tmp_path / "found.db"
    make(path, kind)
    db = connect(path)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    damage(db)
    for other in (db, connect(path)):
        if damage is (edit_file if other is db else temp_trigger):
            continue  # db keeps the schema that it has read; a temp trigger belongs to db
        told = [r[2] for r in rows(other, "SELECT * FROM blackbox_check")]
        assert any(re.search(found, problem) for problem in told), told


NEED_HASH = (forge_body, forge_time, edit_file)


@pytest.mark.parametrize("damage, found", [f for f in FOUND if f[0] not in NEED_HASH],
                         ids=lambda x: getattr(x, "__name__", ""))
def test_check_finds_the_same_beside_pins_without_a_hash(tmp_path, damage, found):
    """Pins that a program without the module set, until the next call of the module."""
    import re
    path = tmp_path / "plain.db"
    db = sqlite3.connect(path, isolation_level=None)
    for name in ("core", "payload", "payload_tables", "payload_detection"):
        db.executescript((ROOT / f"sql/{name}.sql").read_text())
    db.execute(PUT)
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('freed', 'e6', 'c', 'evidence')")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
               "VALUES('freed', 'Ann', 'case closed')")
    assert one(db, "SELECT count(*) FROM payload_pins WHERE hash IS NULL") == 3
    db = connect(path)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    damage(db)
    told = [r[2] for r in rows(db, "SELECT * FROM blackbox_check")]
    assert any(re.search(found, problem) for problem in told), told


@pytest.mark.parametrize("kind", ["own", "adopted"])
@pytest.mark.parametrize("statement", [
    "UPDATE event_payloads SET request_body = 'x' || id",
    "UPDATE event_payloads SET pinned = 0", "DELETE FROM event_payloads",
    "UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine0'",
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) VALUES"
    "('mine0', 'x', 'x', 'archive'), ('victim', 'y', 'y', 'archive')",
    "UPDATE payload_ledger SET at = 5", "DELETE FROM payload_ledger"])
def test_without_a_journal_pinned_rows_hold(tmp_path, kind, statement):
    """The guards refuse a statement before it changes a pinned row."""
    make(tmp_path / "off.db", kind)
    db = connect(tmp_path / "off.db")
    before = guarded(db)
    refused_without_journal(db, statement)
    assert guarded(db) == before
    assert rows(db, "SELECT * FROM blackbox_check") == []


UNSEEN = (0, 1, 9, 10, 13, 27, 31, 32, 127, 128, 133, 155, 159, 160, 173, 847, 1564, 4447,
          5760, 6158, 8192, 8203, 8205, 8206, 8232, 8238, 8288, 8294, 10240, 12288, 12644,
          65024, 65039, 65279, 65440, 65529, 917505, 917760)


@pytest.mark.parametrize("code", UNSEEN)
@pytest.mark.parametrize("column", ["actor", "reason"])
def test_who_unpins_and_why_can_be_seen(fresh, code, column):
    db = sqlite3.connect(fresh, isolation_level=None)
    for text in (chr(code), chr(code) * 3, " " + chr(code), "\u00e9" + chr(code) + "b"):
        record = {"actor": "Ann", "reason": "closed", column: text}
        db.execute("BEGIN")
        if text[0] == "\u00e9" and code > 159 or column == "reason" and \
                text[0] == "\u00e9" and code in (9, 10, 13) or code == 32 and text[0] > " ":
            db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
                       "VALUES('victim', :actor, :reason)", record)
        else:
            with pytest.raises(sqlite3.IntegrityError, match=column + " must be visible text"):
                db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
                           "VALUES('victim', :actor, :reason)", record)
        if db.in_transaction:
            db.execute("ROLLBACK")


@pytest.mark.parametrize("damage", [unique_index, column])
def test_install_guards_columns_and_indexes_that_came_later(tmp_path, damage):
    path = tmp_path / "later.db"
    make(path, "own")
    db = connect(path)
    damage(db)
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    before = guarded(db)
    change = "added = 6" if damage is column else "request_body = 'q', id = 'victim'"
    for statement in (f"UPDATE OR REPLACE event_payloads SET {change} WHERE id = 'victim'"
                      if damage is column else
                      f"UPDATE OR REPLACE event_payloads SET {change} WHERE id = 'mine0'",):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            db.execute(statement)
    assert guarded(db) == before


REFUSED = [
    ("id INTEGER PRIMARY KEY", "", "id is declared as INTEGER; it must be TEXT"),
    ("id PRIMARY KEY", "", "id is declared as nothing; it must be TEXT"),
    ("id TEXT PRIMARY KEY", "WITHOUT ROWID", "it is a WITHOUT ROWID table"),
    ("id TEXT", "", "id is not unique"),
    ("id TEXT PRIMARY KEY, rowid", "", "its column rowid hides the rowid"),
    ("id TEXT PRIMARY KEY, ROWID INTEGER UNIQUE", "", "its column ROWID hides"),
]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("id, end, why", REFUSED)
def test_a_table_that_cannot_be_guarded_is_refused(path, id, end, why, begin):
    db = connect(path)
    db.execute(f"CREATE TABLE event_payloads({id}, event_id TEXT, agent_id TEXT, "
               f"purpose TEXT, created_at TEXT) {end}")
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
        one(db, "SELECT blackbox_install()")


def test_a_row_at_rowid_minus_one_is_refused(path):
    db = connect(path)
    db.executescript(ADOPTED + PUT)
    db.execute("UPDATE event_payloads SET rowid = -1 WHERE id = 'victim'")
    with pytest.raises(sqlite3.OperationalError, match="a row with rowid -1"):
        one(db, "SELECT blackbox_install()")


def test_a_pin_without_the_module_has_its_hash_from_the_next_call(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute(PUT)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT payload_stats() ->> 'unhashed'") == 3
    one(db, """SELECT payload_save_evidence('k', '[{"eventId":"e","agentId":"a"}]')""")
    assert one(db, "SELECT payload_stats() ->> 'unhashed'") == 0
    assert one(db, "SELECT count(*) FROM payload_pins WHERE length(hash) = 64 "
               "AND columns = 10") == 4
    for statement in ("UPDATE payload_ledger SET hash = NULL",
                      "UPDATE payload_ledger SET hash = lower(hex(zeroblob(32)))",
                      "UPDATE payload_ledger SET columns = 1"):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            db.execute(statement)


def test_the_hash_is_what_the_docs_say(path):
    import hashlib
    import struct
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("INSERT INTO event_payloads VALUES('x', 'e', 'a', 'é' || char(0), ?, 0, "
               "'evidence', 1, NULL, '2026-01-01')", (bytes(range(200)),))
    one(db, "SELECT blackbox_install()")
    text = b""
    for value in rows(db, "SELECT * FROM event_payloads")[0]:
        if value is None:
            text += b"\5"
        elif isinstance(value, int):
            text += b"\1" + struct.pack(">q", value)
        else:
            data = value if isinstance(value, bytes) else value.encode()
            text += (b"\4" if isinstance(value, bytes) else b"\3")
            text += struct.pack(">q", len(data)) + data
    assert one(db, "SELECT hash FROM payload_pins") == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("size", [*range(0, 140), 1000, 100000])
def test_hashes_of_every_length(size):
    import hashlib
    import struct
    db = connect()
    db.execute("CREATE TABLE event_payloads(id TEXT PRIMARY KEY, event_id TEXT, agent_id "
               "TEXT, purpose TEXT, created_at TEXT, body, r)")
    body = bytes(i * 7 & 255 for i in range(size))
    db.execute("INSERT INTO event_payloads VALUES('x','e','a','evidence','2026-01-01',?,1.5)",
               (body,))
    one(db, "SELECT blackbox_install('main', 'payload')")
    text = b""
    for value in rows(db, "SELECT * FROM event_payloads")[0]:
        data = value.encode() if isinstance(value, str) else value
        if isinstance(value, (str, bytes)):
            text += bytes([3 if isinstance(value, str) else 4])
            text += struct.pack(">q", len(data)) + data
        elif value is None:
            text += b"\5"
        else:
            text += b"\2" + struct.pack(">d", value) if isinstance(value, float) \
                else b"\1" + struct.pack(">q", value)
    assert one(db, "SELECT hash FROM payload_pins") == hashlib.sha256(text).hexdigest()


IGNORE = ("CREATE TRIGGER mine {} ON event_payloads WHEN NEW.event_id = 'e2' "
          "BEGIN SELECT RAISE(IGNORE); END")


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("when", ["BEFORE INSERT", "AFTER INSERT"])
@pytest.mark.parametrize("call", [
    """SELECT payload_save_evidence('k', '[{"eventId":"e1","agentId":"a"},
       {"eventId":"e2","agentId":"a"},{"eventId":"e3","agentId":"a"}]')""",
    "SELECT payload_kill_switch('ring', 'a', 'k')"])
def test_evidence_is_saved_whole_or_not_at_all(path, begin, when, call):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e1'),('a','e2'),('a','e3')")
    db.execute(IGNORE.format(when))
    db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match="MisuseError.* only 2 of 3"):
        db.execute(call)
    assert one(db, "SELECT count(*) FROM event_payloads") == 0
    assert one(db, "SELECT count(*) FROM ring WHERE agent_id = 'a'") == 3
    db.execute("DROP TRIGGER mine")
    assert one(db, call) == 3
    assert one(db, "SELECT count(hash) FROM payload_pins") == 3


def test_a_flush_writes_all_or_nothing(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("INSERT INTO blackbox_settings VALUES('payload.enabled', 1)")
    if rows(db, "SELECT 1 FROM blackbox_limits WHERE name = 'payload.queue_mode'"):
        db.execute("INSERT INTO blackbox_settings VALUES('payload.queue_mode', 'memory')")
    one(db, "SELECT payload_queue('e0', 'a', 'q', 'r')")
    one(db, "SELECT payload_flush()")
    for event in ("e1", "e2", "e3"):
        one(db, "SELECT payload_queue(?, 'a', 'q', 'r')", event)
    db.execute(IGNORE.format("BEFORE INSERT"))
    with pytest.raises(sqlite3.OperationalError, match="MisuseError"):
        db.execute("SELECT payload_flush()")
    assert one(db, "SELECT count(*) FROM event_payloads") == 1
    assert one(db, "SELECT rows FROM payload_waiting") == 3
    db.execute("DROP TRIGGER mine")
    assert one(db, "SELECT payload_flush()") == 3
