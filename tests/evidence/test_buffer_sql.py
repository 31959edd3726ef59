"""The tables of a buffer: what blackbox_install() and blackbox_check() do about them."""
import sqlite3

import pytest

from conftest import by_hand, rows


@pytest.fixture
def rec(db):
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("INSERT INTO rec(id, action, pinned) VALUES('a', '{}', 1)")
    return db


@pytest.mark.all_domains
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_an_install_makes_an_index_again(rec, path, begin):
    name, = rows(rec, "SELECT name FROM sqlite_schema WHERE name GLOB 'rec_shot????????'")[0]
    by_hand(path, f"DROP INDEX {name}")
    told = rows(rec, "SELECT object, problem FROM blackbox_check")
    assert told == [("rec_shot", "index is missing; run blackbox_install()")]
    rec.execute(begin)
    rec.execute("SELECT blackbox_install()").fetchall()
    assert rows(rec, "SELECT * FROM blackbox_check") == []
    if begin:
        rec.execute("COMMIT")
    assert len(rows(rec, "SELECT name FROM sqlite_schema WHERE name GLOB 'rec_shot????????'")) == 1


def test_the_check_names_what_contradicts(rec, path):
    rec.execute("INSERT INTO rec(id, action, screenshot) VALUES('b', '{}', x'01')")
    rec.execute("INSERT INTO rec(id, action) VALUES('c', '{}')")
    by_hand(path, "UPDATE rec_state SET bytes = 7; DELETE FROM rec_shots; "
                  "UPDATE rec_actions SET action = '[]' WHERE rid = 3; "
                  "INSERT INTO rec_actions VALUES(9, '{}'); INSERT INTO rec_shots VALUES(9, 'x')")
    assert sorted(rows(rec, "SELECT object, problem FROM blackbox_check")) == [
        ("rec_actions", "action 9 belongs to no row"),
        ("rec_actions", "damaged JSON of 'c'"),
        ("rec_rows", "no screenshot for 'b'"),
        ("rec_shots", "screenshot 9 belongs to no row or has another size"),
        ("rec_state", "counters differ from the rows")]


@pytest.mark.parametrize("change", ["DELETE FROM rec_state", "UPDATE rec_state SET last = 0",
                                    "UPDATE rec_state SET last = NULL"])
def test_the_check_names_a_state_that_is_gone_or_would_give_a_number_twice(rec, path, change):
    rec.execute("INSERT INTO rec(id, action) VALUES('b', '{}')")
    by_hand(path, change)
    assert rows(rec, "SELECT object, problem FROM blackbox_check") == [
        ("rec_state", "counters differ from the rows")]


def test_a_table_that_was_altered_is_named(rec, path):
    by_hand(path, "ALTER TABLE rec_gone ADD COLUMN more")
    assert rows(rec, "SELECT object, problem FROM blackbox_check") == [
        ("rec_gone", "table was changed; save the rows that can be read, DROP TABLE rec, and "
                     "create it again")]
