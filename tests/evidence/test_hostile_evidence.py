"""Statements that try to remove, change or overwrite evidence, with and without the module.

Each verb with each conflict clause; each column set to NULL or to the value of another row, by
name and as rowid; in autocommit and in a transaction; with recursive triggers and without.
After each statement the pinned row is unchanged."""
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from evidence_helpers import ADD, well

CLAUSES = ["", "OR REPLACE", "OR IGNORE", "OR ABORT", "OR FAIL", "OR ROLLBACK"]

with_modes = [pytest.mark.parametrize("module", [True, False]),
              pytest.mark.parametrize("begin", ["", "BEGIN"]),
              pytest.mark.parametrize("recursive", [0, 1])]


def modes(test):
    for mark in with_modes:
        test = mark(test)
    return test


def make(path, in_temp=False):
    """Rows x, p (pinned) and y. A buffer in temp has them in the overflow, in main."""
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer(overflow='main')"
               if in_temp else "CREATE VIRTUAL TABLE rec USING evidence_buffer")
    for i, name in enumerate("xpy"):
        db.execute(ADD, (name, i, f'{{"n":{i}}}', b"shot %d" % i))
    db.execute("UPDATE rec SET pinned = 1 WHERE id = 'p'")
    if in_temp:
        one(db, "SELECT evidence_flush('rec')")
    return db


def other(path, module, recursive, begin):
    db = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    db.execute(begin)
    return db


def pinned(db, tables):
    key = "no" if tables == ["evidence__pinned"] else "rid"
    return [rows(db, f"SELECT * FROM {table} WHERE {key} = 2") for table in tables]


def receipts(db, log):
    return rows(db, f"SELECT coalesce(sum(rows), 0), coalesce(sum(bytes), 0) FROM {log}")[0]


def hostile(db, table):
    """Every statement that changes the pinned row, rid 2, or replaces it by another row."""
    columns = [r[1] for r in rows(db, f"PRAGMA table_info({table})")]
    for clause in CLAUSES:
        for column in columns + ["rowid", "oid"]:
            taken = f"(SELECT {column} FROM {table} WHERE rid = 2)"
            for value in ("NULL", "-1", "x'00'", taken, "9223372036854775807"):
                for where in ("rid = 2", "rid = 1", "1"):
                    yield f"UPDATE {clause} {table} SET {column} = {value} WHERE {where}"
        for where in ("rid = 2", "1"):
            yield f"DELETE FROM {table} WHERE {where}"
        yield f"INSERT {clause} INTO {table} SELECT * FROM {table} WHERE rid = 2"
        for key in ("rid", "rowid"):
            yield (f"INSERT {clause} INTO {table}({key}, {', '.join(columns[1:])}) "
                   f"SELECT 2, {', '.join(columns[1:])} FROM {table} WHERE rid = 1")
        for missing in columns[1:]:
            some = [c for c in columns if c != missing]
            yield (f"INSERT {clause} INTO {table}({', '.join(some)}) "
                   f"SELECT {', '.join(some)} FROM {table} WHERE rid = 2")
    yield (f"INSERT INTO {table} SELECT * FROM {table} WHERE rid = 2 "
           f"ON CONFLICT DO UPDATE SET {columns[-1]} = NULL")


def attack(db, tables, begin, statements):
    """The number of statements that were refused."""
    before, refused = pinned(db, tables), 0
    for sql in statements:
        db.execute("SAVEPOINT s")
        try:
            db.execute(sql)
        except sqlite3.Error:
            refused += 1
        if not begin or db.in_transaction:
            assert pinned(db, tables) == before, sql
        if db.in_transaction:
            db.execute("ROLLBACK TO s")
            db.execute("RELEASE s")
        if begin and not db.in_transaction:  # OR ROLLBACK
            db.execute("BEGIN")
    return refused


@modes
def test_no_statement_changes_a_pinned_row_of_a_buffer(path, module, begin, recursive):
    db = make(path)
    db.execute("UPDATE rec SET pinned = 0")
    db.execute("UPDATE rec SET pinned = 1 WHERE id = 'x'")
    db.execute("UPDATE rec SET pinned = 1 WHERE id = 'p'")
    enemy = other(path, module, recursive, begin)
    statements = [s.replace("rid", "no") for s in hostile(enemy, "evidence__pinned")
                  if "SET pinned" not in s and "SET buffer" not in s]  # an unpin, a rename
    assert attack(enemy, ["evidence__pinned"], begin, statements) > 100
    if enemy.in_transaction:
        enemy.execute("COMMIT")
    well(db)


@pytest.mark.parametrize("change", [
    "SET pinned = 0", "SET pinned = 0, released = 1", "SET timestamp = 9", "SET action = '{}'",
    "SET screenshot = x'00'", "SET id = 'q'"])
def test_the_check_finds_what_was_done_to_pinned_evidence_in_the_overflow(path, change):
    """Only the module writes this table, which has no guards."""
    db = make(path, in_temp=True)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute(f"UPDATE evidence__overflow {change} WHERE id = 'p'")
    assert "'p'" in str(rows(db, "SELECT problem FROM blackbox_check"))


@pytest.mark.parametrize("sql, table", [
    ("CREATE UNIQUE INDEX mine ON rec_rows(timestamp)", "rec_rows"),
    ("CREATE TRIGGER mine AFTER UPDATE ON rec_state BEGIN SELECT 1; END", "rec_state"),
    ("CREATE TEMP TRIGGER mine AFTER DELETE ON main.rec_rows BEGIN SELECT 1; END", "rec_rows")])
def test_the_check_names_triggers_and_indexes_that_can_bypass_the_rules(path, sql, table):
    db = make(path)
    db.execute(sql)
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert len(found) == 1 and found[0][0] == table
    assert " mine does not belong to blackbox, and can bypass the guards" in found[0][1]


def test_a_forged_counter_does_not_let_pinned_evidence_be_dropped(path):
    db = make(path)
    by_hand(path, "UPDATE rec_state SET pinned_bytes = 0")
    with pytest.raises(sqlite3.Error):
        db.execute("DROP TABLE rec")
    assert rows(db, "SELECT id FROM rec WHERE pinned") == [("p",)]
