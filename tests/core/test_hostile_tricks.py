"""Sequences of a few statements that try to remove evidence.

None of them removes a pinned row or a record, and after each of them the row still cannot be
deleted."""
import sqlite3

import pytest

from conftest import connect, one, rows
from hostile_helpers import VICTIMS, connection, fresh, guarded, made, make, problems, run

TRICKS = {
    "pinned is set to NULL": """
        UPDATE OR REPLACE event_payloads SET pinned = NULL WHERE id = 'victim'""",
    "a unique index and a replay": """
        CREATE UNIQUE INDEX m ON event_payloads(event_id);
        SELECT blackbox_install();
        REPLACE INTO event_payloads(event_id, agent_id, purpose)
        VALUES('e1', 'a', 'archive');
        UPDATE OR REPLACE event_payloads SET event_id = 'e1' WHERE id = 'mine0'""",
    "an update inside the guard of another": """
        CREATE TEMP TRIGGER t AFTER INSERT ON main.payload__pins BEGIN
          UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine1'; END;
        UPDATE OR REPLACE event_payloads SET pinned = 1 WHERE id = 'mine0'""",
    "an insert inside the guard of another": """
        CREATE TEMP TRIGGER t AFTER INSERT ON main.payload__pins BEGIN
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
    "an unpin that ends before it begins": """
        CREATE TEMP TRIGGER t INSTEAD OF INSERT ON main.payload_unpins BEGIN
          SELECT RAISE(IGNORE); END;
        INSERT INTO payload_unpins(payload_id, actor, reason)
        VALUES('victim', 'a', 'r');
        UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'""",
    "a pin that is never written": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.payload__pins BEGIN
          SELECT RAISE(IGNORE); END;
        UPDATE event_payloads SET pinned = 1 WHERE id = 'mine0';
        UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'""",
    "checks are off": """
        PRAGMA ignore_check_constraints = ON;
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
    "the views that the guards read, by a table in temp": """
        CREATE TEMP TABLE payload__pins(id, n);
        CREATE TEMP TABLE payload_pins(id, pin);
        CREATE TEMP TABLE payload_unpins(payload_id);
        INSERT INTO temp.payload_unpins VALUES('victim');
        UPDATE main.event_payloads SET pinned = 0 WHERE id = 'victim';
        REPLACE INTO main.event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive')""",
}


@pytest.mark.parametrize("trick", TRICKS)
@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("recursive", [0, 1])
def test_no_sequence_of_statements_changes_pinned_rows(fresh, trick, begin, recursive):
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


# By TEMP triggers and in blackbox's own tables: no guard stops these.
DELIBERATE = {
    "a pin that is never written": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.payload__pins BEGIN SELECT RAISE(IGNORE); END;
        INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('x', 'x', 'evidence')""",
    "an unpin that the log does not have": """
        CREATE TEMP TRIGGER t BEFORE INSERT ON main.blackbox__log BEGIN SELECT RAISE(IGNORE); END;
        INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('victim', 'a', 'r');
        DELETE FROM event_payloads WHERE id = 'victim'""",
    "an unpin that only the log has": """
        CREATE TEMP TRIGGER t BEFORE DELETE ON main.payload__pins BEGIN SELECT RAISE(FAIL, 'no'); END;
        INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('victim', 'a', 'r')""",
    "the probe is set, and every write of a guard is passed over": """
        CREATE TEMP TRIGGER t1 BEFORE INSERT ON main.blackbox__probe BEGIN SELECT RAISE(IGNORE); END;
        CREATE TEMP TRIGGER t3 AFTER INSERT ON main.event_payloads BEGIN SELECT RAISE(IGNORE); END;
        REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('victim', 'x', 'x', 'archive')""",
    "a replacement inside the guard of another": """
        CREATE TEMP TRIGGER t1 BEFORE INSERT ON main.blackbox__probe BEGIN
          REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose)
          SELECT rowid, 'new', 'x', 'x', 'archive' FROM event_payloads
           WHERE id = 'victim'; END;
        INSERT INTO event_payloads(id, event_id, agent_id, purpose)
        VALUES('pinned', 'x', 'x', 'archive')
        ON CONFLICT(id) DO UPDATE SET pinned = 1""",
    "a pin is taken from its table": """
        DELETE FROM payload__pins WHERE id = 'victim';
        UPDATE event_payloads SET pinned = 0, purpose = 'archive' WHERE id = 'victim';
        INSERT INTO blackbox__log(domain, kind, subject) VALUES('payload', 'unpin', 'mine0')""",
}


@pytest.mark.parametrize("trick", DELIBERATE)
@pytest.mark.parametrize("recursive", [0, 1])
def test_what_is_done_on_purpose_changes_nothing_or_is_found(fresh, trick, recursive):
    db = connection(fresh, 1, recursive)
    before = guarded(db), one(db, "SELECT count(*) FROM event_payloads WHERE purpose = 'evidence'")
    run(db, DELIBERATE[trick])
    after = guarded(db), one(db, "SELECT count(*) FROM event_payloads WHERE purpose = 'evidence'")
    db.close()
    assert after == before or problems(fresh) != []


PASS_OVER = "CREATE TEMP TRIGGER t {} ON main.{} BEGIN SELECT RAISE(IGNORE); END"


@pytest.mark.parametrize("module", [0, 1])
@pytest.mark.parametrize("write", [
    "INSERT INTO blackbox_settings(name, value) VALUES('payload.retention_days', {})",
    "REPLACE INTO blackbox_settings(name, value) VALUES('payload.retention_days', {})",
    "UPDATE blackbox_settings SET value = {} WHERE name = 'payload.retention_days'"])
def test_no_setting_is_out_of_range(fresh, module, write):
    db = connection(fresh, module, 0)
    for verb in ("INSERT", "UPDATE"):
        db.execute(PASS_OVER.format("AFTER " + verb, "blackbox_settings").replace(" t ", f" t{verb} "))
    for value in ("-100000", "NULL", "'x'", "7.5"):
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*not in the range"):
            db.execute(write.format(value))
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*(no such|cannot be changed)"):
        db.execute(write.format("7").replace("payload.", "") if "UPDATE" not in write
                   else "UPDATE blackbox_settings SET name = 'x'")
