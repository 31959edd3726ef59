"""A file that is copied, dumped or renamed keeps everything, and its rules hold in the copy."""
import re
import sqlite3

import pytest

import hosts
from conftest import connect, load, one, rows, shell


def content(path):
    """Every row of every table, in a file that must be well."""
    db = connect(path)
    # A receipt waits for the next call of the module when its minute is over.
    assert rows(db, "SELECT * FROM blackbox_check") == []
    names = rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table'"
                     " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name")
    found = {name: sorted(rows(db, f'SELECT * FROM "{name}"'), key=repr) for name, in names}
    db.close()
    return found


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The file that the scenario of all hosts leaves."""
    folder = tmp_path_factory.mktemp("filled")
    hosts.drive(hosts.python, folder)
    return folder / "flight.db"


@pytest.fixture(scope="module")
def before(filled):
    return content(filled)


def by_vacuum(source, copy, module):
    db = sqlite3.connect(source)
    if module:
        load(db)
    db.execute("VACUUM INTO ?", (str(copy),))
    db.close()


def by_backup(source, copy, module):
    db, to = sqlite3.connect(source), sqlite3.connect(copy)
    if module:
        load(db)
    db.backup(to)
    db.close()
    to.close()


def by_dump(source, copy, module):
    start = (".load ./blackbox\n" if module else "") + ".dbconfig defensive off\n"
    dump = shell(source, stdin=start + ".dump").split("off\n", 1)[1]
    assert shell(copy, stdin=start + dump).split() == ["defensive", "off"]


@pytest.mark.parametrize("module", [True, False], ids=["with the module", "without it"])
@pytest.mark.parametrize("way", [by_vacuum, by_backup, by_dump])
def test_a_copy_has_everything_and_its_rules_hold(filled, before, path, way, module):
    way(filled, path, module)
    assert content(path) == before
    db = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        db.execute("DELETE FROM event_payloads")
    load(db)
    one(db, "SELECT payload_kill_switch('ring', 'bound', 'loop-3')")
    assert one(db, "SELECT count(*) FROM payload_pins") == 3


def test_a_renamed_ring_and_buffer_keep_everything(filled, path):
    by_backup(filled, path, False)
    db = connect(path)
    ring = "SELECT agent_id, seq, event_id, request_body FROM {} ORDER BY 1, 2"
    buffer = "SELECT id, action, pruned FROM {} ORDER BY 1"
    before = rows(db, ring.format("ring")), rows(db, buffer.format("rec"))
    counters = rows(db, "SELECT * FROM ring_agents"), rows(db, "SELECT * FROM rec_log")
    db.execute("ALTER TABLE ring RENAME TO tape")
    db.execute("ALTER TABLE rec RENAME TO film")
    db.close()
    db = connect(path)
    assert (rows(db, ring.format("tape")), rows(db, buffer.format("film"))) == before
    assert (rows(db, "SELECT * FROM tape_agents"), rows(db, "SELECT * FROM film_log")) == counters
    assert one(db, "SELECT payload_kill_switch('tape', 'bound', 'loop-3')") == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_the_dump_of_python_restores_a_file_that_has_no_ring_and_no_buffer(filled, path):
    """Python dumps a virtual table either as another table, or after its own tables. Such a dump
    cannot be restored."""
    by_backup(filled, path, False)
    db = connect(path)
    copies = []
    for name in ("with.db", "without.db"):
        copies.append(path.with_name(name))
        to = connect(copies[-1])
        try:
            to.executescript("\n".join(db.iterdump()))
        except sqlite3.OperationalError as error:
            assert name == "with.db" and re.search("already exists|reserved for internal use|no such table: ring",
                                                      str(error))
        to.close()
        if name == "with.db":
            db.executescript("DROP TABLE ring; DROP TABLE rec")
    db.close()
    assert content(copies[1]) == content(path)
