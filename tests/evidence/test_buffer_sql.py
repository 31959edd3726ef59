"""sql/evidence_buffer.sql alone: without the module, every SQLite enforces the rules."""
import sqlite3

import pytest

from conftest import ROOT, by_hand, connect, rows, shell

TEXT = (ROOT / "sql" / "evidence_buffer.sql").read_text()
STATE = ("INSERT INTO tape_state(one, format, max_size_bytes, prune_threshold, "
         "retention_policy, max_screenshots) VALUES(1, 1, 10000, 0.9, ?, 3)")
PUT = ("INSERT INTO tape_put(rid, id, timestamp, pinned, mask, place, action, screenshot, "
       "confidence) VALUES(?1, 'a' || ?1, ?1, 0, 0, 2, '{}', zeroblob(?2), ?3)")


@pytest.fixture
def tape(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(TEXT.replace("@", "tape"))
    yield db
    db.close()


def test_the_stock_shell_loads_it_under_a_made_up_name(path):
    assert shell(path, stdin=TEXT.replace("@", "tape") +
                 "SELECT type, count(*) FROM sqlite_schema WHERE sql NOT NULL "
                 "AND name GLOB 'tape_*' GROUP BY 1;") == (
        "index|8\ntable|6\ntrigger|39\nview|11\n")


def test_the_sql_makes_the_same_objects_as_the_module(path, tape):
    connect(path).execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    def texts(name):
        return sorted(sql.replace(f'"{name}_', '"@_').replace(f"{name}_", '"@_', 0)
                      for sql, in rows(tape, "SELECT sql FROM sqlite_schema WHERE sql NOT NULL "
                                       "AND type <> 'index' AND name GLOB ?", f"{name}_*"))
    plain = [sql.replace("tape_", "@_") for sql in texts("tape")]
    made = [sql.replace('"@_', "@_").replace('"', "") for sql in texts("rec")]
    assert sorted(made) == sorted(sql.replace('"', "") for sql in plain)


@pytest.mark.parametrize("policy, first", [("keep-all", 1), ("confidence-based", 9)])
def test_a_store_prunes_first(tape, policy, first):
    tape.execute(STATE, (policy,))
    for i in range(1, 18):
        tape.execute(PUT, (i, 398, i if i < 10 else 0))
    assert rows(tape, "SELECT bytes FROM tape_excess") == [(500,)]
    assert rows(tape, "SELECT rid FROM tape_oldshots UNION ALL SELECT rid FROM tape_sureshots"
                ) == [(first,), (first + 1 if first == 1 else 8,)]
    for i in (18, 19):
        tape.execute(PUT, (i, 398, 0))
    gone = [r[0] for r in rows(tape, "SELECT rid FROM tape_rows WHERE screenshot_bytes = 0")]
    assert first in gone and 2 <= len(gone) < 5
    assert rows(tape, "SELECT * FROM tape_shots WHERE rid = ?", first) == []
    assert rows(tape, "SELECT rule, screenshots FROM tape_log") == [("threshold", len(gone))]
    assert rows(tape, "SELECT rule, coming, spared FROM tape_state") == [("manual", 0, 0)]


def test_commands_and_their_receipts(tape):
    tape.execute(STATE, ("keep-last-n",))
    for i in range(1, 6):
        tape.execute(PUT, (i, 10, 0))
    assert rows(tape, "SELECT rid FROM tape_shots") == [(3,), (4,), (5,)]
    tape.execute("INSERT INTO tape_do(verb, rule, amount) VALUES('hold', 'mine', 1)")
    tape.execute("INSERT INTO tape_put(rid, mask, pinned) VALUES(5, 8, 1)")
    tape.execute("INSERT INTO tape_do(verb) VALUES('clear')")
    assert rows(tape, "SELECT id, pinned FROM tape_rows") == [("a5", 1)]
    assert rows(tape, "SELECT rule, sum(rows), sum(screenshots) FROM tape_log GROUP BY 1") == [
        ("clear", 4, 0), ("max_screenshots", 0, 2), ("mine", 0, 2)]
    for verb in ("nonsense", None):
        with pytest.raises(sqlite3.IntegrityError, match="verb must be prune, hold"):
            tape.execute("INSERT INTO tape_do(verb, rule) VALUES(?, 'x')", (verb,))


def test_a_row_without_a_mask_is_stored(tape):
    tape.execute(STATE, ("keep-all",))
    tape.execute("INSERT INTO tape_put(rid, id, timestamp, pinned, place, action, confidence) "
                 "VALUES(1, 'a', 1, 0, 2, '{}', -1)")
    assert rows(tape, "SELECT id, actions FROM tape_rows, tape_state") == [("a", 1)]


def test_a_screenshot_changes_with_its_size(tape):
    tape.execute(STATE, ("keep-all",))
    tape.execute(PUT, (1, 10, 0))
    tape.execute("INSERT INTO tape_put(rid, mask, screenshot) VALUES(1, 4, x'0102')")
    size = "SELECT screenshot_bytes, bytes, screenshot FROM tape_rows, tape_state, tape_shots"
    assert rows(tape, size) == [(2, 104, b"\1\2")]
    tape.execute("UPDATE tape_shots SET screenshot = x'010203'")
    assert rows(tape, size) == [(3, 105, b"\1\2\3")]
    tape.execute("INSERT INTO tape_put(rid, mask) VALUES(1, 4)")
    assert rows(tape, "SELECT screenshot_bytes, bytes FROM tape_rows, tape_state") == [(0, 102)]
    assert rows(tape, "SELECT * FROM tape_shots") == []
    tape.execute("INSERT INTO tape_put(rid, mask, screenshot) VALUES(1, 4, x'07')")
    assert rows(tape, size) == [(1, 103, b"\7")]


# ---- buffers whose rules differ from the file ----

def age(path):
    """Takes some of its rules from a buffer, and changes one."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DROP VIEW rec_check")
    db.execute("DROP VIEW rec_note")
    db.execute("DROP TRIGGER rec_rowsdelete")
    db.execute("CREATE TRIGGER rec_rowsdelete BEFORE DELETE ON rec_rows BEGIN SELECT 1; END")
    index = rows(db, "SELECT name FROM sqlite_schema WHERE name GLOB 'rec_oldestshot*'")
    db.execute(f"DROP INDEX {index[0][0]}")
    db.close()


@pytest.fixture
def rec(db):
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO rec(id, action, pinned) VALUES('a', '{}', 1)")
    return db


@pytest.mark.all_domains
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_an_install_puts_such_a_buffer_right(rec, path, begin):
    whole = rows(rec, "SELECT type, name FROM sqlite_schema WHERE type <> 'index' ORDER BY 2")
    age(path)
    told = rows(rec, "SELECT object, problem FROM blackbox_check WHERE object <> 'rec'")
    assert {o for o, _ in told} == {
        "rec_check", "rec_note", "rec_noted", "rec_rowsdelete", "rec_oldestshot"}
    assert all("blackbox_install()" in problem for _, problem in told)
    rec.execute(begin)
    rec.execute("SELECT blackbox_install()").fetchall()
    assert rows(rec, "SELECT * FROM blackbox_check") == []
    assert whole == rows(
        rec, "SELECT type, name FROM sqlite_schema WHERE type <> 'index' ORDER BY 2")
    assert len(rows(rec, "SELECT 1 FROM sqlite_schema WHERE name GLOB 'rec_oldestshot*'")) == 1
    if begin:
        rec.execute("COMMIT")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        by_hand(path, "DELETE FROM rec_rows")


def test_the_check_names_what_contradicts(rec, path):
    rec.execute("INSERT INTO rec(id, action, screenshot) VALUES('b', '{}', x'01')")
    by_hand(path, "UPDATE rec_state SET bytes = 7; DROP TRIGGER rec_shotsdelete; "
                  "DELETE FROM rec_shots")
    assert sorted(rows(rec, "SELECT object, problem FROM blackbox_check")) == [
        ("rec_rows", "no screenshot for 'b'"),
        ("rec_shotsdelete", "trigger is missing; run blackbox_install()"),
        ("rec_state", "counters differ from the rows")]
    by_hand(path, "DROP TRIGGER rec_actionsupdated; DROP TRIGGER rec_actionsupdate; "
                  "UPDATE rec_actions SET action = '[]'")
    assert [r for r in rows(rec, "SELECT object, problem FROM blackbox_check")
            if "JSON" in r[1]] == [("rec_actions", "damaged JSON of 'a'"),
                                   ("rec_actions", "damaged JSON of 'b'")]


def test_a_table_that_was_altered_is_named(rec, path):
    by_hand(path, "ALTER TABLE rec_gone ADD COLUMN more")
    assert rows(rec, "SELECT object, problem FROM blackbox_check") == [
        ("rec_gone", "table was changed; save the rows that can be read, DROP TABLE rec, and "
                     "create it again")]
