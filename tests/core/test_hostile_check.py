"""What no trigger can prevent (a dropped table, a file that another program wrote),
blackbox_check() finds."""
import re
import sqlite3

import pytest

from conftest import ROOT, connect, one, rows, shell, write_schema
from hostile_helpers import PUT, guarded, make, refused_without_journal

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
    with without(db, "payload_guard", "payload_mark"):
        db.execute("UPDATE event_payloads SET request_body = 'Q' WHERE id = 'victim'")


def forge_time(db):
    with without(db, "payload_guard", "payload_mark"):
        db.execute("UPDATE event_payloads SET created_at = '2026-01-01 00:00:01' "
                   "WHERE id = 'pinned'")


def remove(db):
    with without(db, "payload_delete_guard"):
        db.execute("DELETE FROM event_payloads WHERE id = 'victim'")


def unpin_in_place(db):
    with without(db, "payload_guard", "payload_mark"):
        db.execute("UPDATE event_payloads SET pinned = 0 WHERE id = 'victim'")


def forget_pin(db):
    with without(db, "payload_delete_guard"):
        db.execute("DELETE FROM payload__pins WHERE id = 'victim'")
        db.execute("DELETE FROM event_payloads WHERE id = 'victim'")


def delete_without_triggers(db):
    path = rows(db, "PRAGMA database_list")[0][2]
    told = shell("-batch", path, stdin=".dbconfig enable_trigger off\n"
                 "DELETE FROM event_payloads WHERE id = 'victim';")
    assert "off" in told and "Error" not in told


def make_pins_again(db):
    db.execute("DROP TABLE payload__pins")
    with pytest.raises(sqlite3.Error, match="no such table|PinnedError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'victim'")
    with without(db, "payload_guard", "payload_mark"):
        db.executescript("CREATE TABLE payload__pins(id PRIMARY KEY, n);"
                         "UPDATE event_payloads SET pinned = 0, purpose = 'archive';"
                         "DROP TABLE payload__pins")
    one(db, "SELECT blackbox_install()")
    db.execute("DELETE FROM event_payloads WHERE id = 'victim'")


def make_all_again(db):
    for name in ("payload__pins", "payload__state", "event_payloads"):
        db.execute("DROP TABLE " + name)
    one(db, "SELECT blackbox_install()")


def rename(db):
    db.execute("ALTER TABLE event_payloads RENAME TO away")
    one(db, "SELECT blackbox_install()")


def decoy(db):
    db.execute("PRAGMA legacy_alter_table = ON")
    db.execute("ALTER TABLE blackbox__log RENAME TO away")
    one(db, "SELECT blackbox_install()")


def no_journal_evidence(db):
    refused_without_journal(
        db, "INSERT INTO event_payloads(id, event_id, agent_id, purpose, created_at) "
        "VALUES('late', 'e', 'a', 'evidence', 'never')")


def no_journal_unpin(db):
    db.execute("CREATE TEMP TRIGGER t AFTER DELETE ON main.payload__pins BEGIN "
               "SELECT RAISE(ABORT, 'no'); END")
    refused_without_journal(db, "INSERT INTO payload_unpins(payload_id, actor, reason) "
                            "VALUES('victim', 'a', 'r')")
    db.execute("DROP TRIGGER t")


def edit_trigger(db):
    write_schema(db, "UPDATE sqlite_schema SET sql = replace(sql, 'IS NOT 0', 'IS NOT 1') "
                     "WHERE name = 'payload_delete_guard'")


def edit_file(db):
    path = rows(db, "PRAGMA database_list")[0][2]
    data = open(path, "rb").read()
    with open(path, "r+b") as file:
        file.write(data.replace(b"victime1aq", b"victime1aQ"))


def trigger(db):
    db.execute("CREATE TRIGGER theirs_t AFTER INSERT ON payload__pins "
               "BEGIN SELECT RAISE(IGNORE); END")


def temp_trigger(db):
    db.execute("CREATE TEMP TRIGGER theirs_t BEFORE INSERT ON main.blackbox__log "
               "BEGIN SELECT RAISE(IGNORE); END")


def unique_index(db):
    db.execute("CREATE UNIQUE INDEX theirs_i ON event_payloads(request_body, id)")


def unique_expression(db):
    db.execute("CREATE UNIQUE INDEX theirs_i ON event_payloads(id || event_id)")


def pins_index(db):
    db.execute("CREATE UNIQUE INDEX theirs_i ON payload__pins(n, id)")


def column(db):
    db.execute("ALTER TABLE event_payloads ADD COLUMN added DEFAULT 5")


def rowid_column(db):
    try:
        db.execute("ALTER TABLE event_payloads ADD COLUMN rowid")
    except sqlite3.OperationalError as refused:
        if "rowid alias" not in str(refused):
            raise
        pytest.skip("this SQLite refuses a column of that name")


ENDED = "row 1: the row that it pins is missing, or not pinned any more, and no row of the log unpins"
FOUND = [
    (forge_body, "row 1: was altered: the row that it pins"),
    (forge_time, "row 3: was altered: the row that it pins"),
    (remove, "row victim was pinned and is gone"),
    (unpin_in_place, "row victim is pinned here, but has another pinned"),
    (delete_without_triggers, "row victim was pinned and is gone"),
    (forget_pin, ENDED),
    (make_pins_again, ENDED),
    (make_all_again, ENDED),
    (rename, "row victim was pinned and is gone"),
    (decoy, "leaf 0 row 1: was removed"),
    (no_journal_evidence, "pinned row late is not in payload_pins"),
    (no_journal_unpin, "pin has ended by the log, and the row is still pinned|pinned row victim is not in"),
    (edit_trigger, "trigger differs from what blackbox_install"),
    (edit_file, "row 1: was altered: the row that it pins"),
    (trigger, "trigger theirs_t does not belong to blackbox"),
    (temp_trigger, "temp trigger theirs_t does not belong to blackbox"),
    (unique_index, "unique index .*theirs_i is not guarded"),
    (unique_expression, "cannot be guarded: its unique index theirs_i"),
    (pins_index, "unique index theirs_i does not belong to blackbox"),
    (column, "column .*added is not guarded"),
    (rowid_column, "its column rowid hides the rowid"),
]


@pytest.mark.parametrize("damage, found", FOUND, ids=lambda x: getattr(x, "__name__", ""))
@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_check_finds_each_change_that_sql_cannot_stop(tmp_path, damage, found, kind):
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


NEED_LEAF = (forge_body, forge_time, edit_file, forget_pin, make_pins_again, make_all_again, decoy)


@pytest.mark.parametrize("damage, found", [f for f in FOUND if f[0] not in NEED_LEAF],
                         ids=lambda x: getattr(x, "__name__", ""))
def test_check_finds_the_same_beside_pins_without_a_leaf(tmp_path, damage, found):
    """Pins that a program without the module set, until the next call of the module."""
    path = tmp_path / "plain.db"
    db = sqlite3.connect(path, isolation_level=None)
    for name in ("core", "payload", "payload_detection",
                 "payload_rules"):
        db.executescript((ROOT / f"sql/{name}.sql").read_text())
    db.execute(PUT)
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('freed', 'e6', 'c', 'evidence')")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
               "VALUES('freed', 'Ann', 'case closed')")
    assert one(db, "SELECT size FROM blackbox__tree") == 0
    db = connect(path)
    (waits,), = rows(db, "SELECT problem FROM blackbox_check")
    assert "row 1: has no leaf yet; rows that wait: 5, which were" in waits
    damage(db)
    told = [r[2] for r in rows(db, "SELECT * FROM blackbox_check")]
    assert any(re.search(found, problem) for problem in told), told


def test_a_trigger_that_skips_ours_can_hide_the_delete_of_a_row_that_is_not_pinned(tmp_path):
    make(tmp_path / "skip.db", "own")
    db = connect(tmp_path / "skip.db")
    before = guarded(db)
    db.execute("CREATE TEMP TRIGGER theirs_t AFTER DELETE ON main.event_payloads "
               "BEGIN SELECT RAISE(IGNORE); END")
    db.execute("DELETE FROM event_payloads WHERE id = 'mine0'")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        db.execute("DELETE FROM event_payloads")
    assert guarded(db) == before
    assert one(db, "SELECT count(*) FROM retention_log") == 0
    assert [r[2] for r in rows(db, "SELECT * FROM blackbox_check")] == [
        "temp trigger theirs_t does not belong to blackbox, and can bypass the guards of this "
        "table; drop it",
        "its bytes are not those of the archive; run blackbox_install()"]


@pytest.mark.parametrize("kind", ["own", "adopted"])
@pytest.mark.parametrize("value", [None, 0, 1, ""])
def test_pinned_rows_hold_when_a_program_redefines_functions(tmp_path, kind, value):
    make(tmp_path / "own.db", kind)
    db = sqlite3.connect(tmp_path / "own.db", isolation_level=None)
    before = guarded(db)[0]
    for name in ("coalesce", "typeof", "length", "changes", "max", "min", "instr", "trim",
                 "ltrim", "unicode", "char", "julianday", "hex", "randomblob", "random"):
        db.create_function(name, -1, lambda *_: value)
    for statement in ("DELETE FROM event_payloads", "UPDATE event_payloads SET pinned = 0",
                      "UPDATE event_payloads SET request_body = 'x'",
                      "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
                      "VALUES('victim', 'x', 'x', 'archive')",
                      "UPDATE OR REPLACE event_payloads SET id = 'victim' WHERE id = 'mine0'",
                      "DELETE FROM payload_pins"):
        try:
            db.execute(statement)
        except sqlite3.Error:
            pass
    db.close()
    assert guarded(connect(tmp_path / "own.db"))[0] == before


@pytest.mark.parametrize("damage", [unique_index, column])
def test_install_guards_columns_and_indexes_that_came_later(tmp_path, damage):
    path = tmp_path / "later.db"
    make(path, "own")
    db = connect(path)
    damage(db)
    one(db, "SELECT blackbox_install('main', 'all')")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    before = guarded(db)
    change = "added = 6" if damage is column else "request_body = 'q', id = 'victim'"
    for statement in (f"UPDATE OR REPLACE event_payloads SET {change} WHERE id = 'victim'"
                      if damage is column else
                      f"UPDATE OR REPLACE event_payloads SET {change} WHERE id = 'mine0'",):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            db.execute(statement)
    assert guarded(db) == before
