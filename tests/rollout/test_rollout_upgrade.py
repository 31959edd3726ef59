"""One install upgrades a database of version 1.

version1.sql was dumped from a database that blackbox 1 made: a conversation with two turns, and
a fork of its first turn. It has no views and triggers, because these are created again."""
import pathlib
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, append, texts, user
from conftest import by_hand, connect, one, rows

VERSION1 = (pathlib.Path(__file__).parent / "version1.sql").read_text()


@pytest.fixture
def old(path):
    by_hand(path, VERSION1)
    return connect(path)


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_conversations_of_version_1_are_kept(old, begin):
    items = rows(old, "SELECT id, timestamp, type, payload FROM rollout_data")
    heads = rows(old, "SELECT no, id, created, updated, turns, bytes FROM rollout_heads")
    assert len(items) == 5 and len(heads) == 2
    old.execute(begin)
    one(old, "SELECT blackbox_install()")
    if begin:
        old.execute("COMMIT")
    assert rows(old, "SELECT version FROM blackbox_domains WHERE domain = 'rollout'") == [(3,)]
    assert rows(old, "SELECT * FROM blackbox_check") == []
    assert rows(old, "SELECT 1 FROM sqlite_schema WHERE name = 'rollout_clash'") == []
    assert rows(old, "SELECT id, timestamp, type, payload FROM rollout_data") == items
    assert rows(old, "SELECT no, id, created, updated, turns, bytes FROM rollout_heads") == heads


def test_conversations_of_version_1_go_on(old):
    one(old, "SELECT blackbox_install()")
    for rollout in ID, OTHER:
        assert append(old, rollout, user("more"), now=9000) == 1
        old.execute("INSERT INTO rollout_log(rollout_id, type, payload) "
                    "VALUES (?, 'compacted', '{}')", (rollout,))
        old.execute("INSERT INTO blackbox_call VALUES ('rollout_append', json_array(?, "
                    "'{\"type\":\"compacted\",\"payload\":{}}'))", (rollout,))
    assert [sequence for sequence, _ in texts(old, OTHER)] == list(range(6))
    for sql in ("INSERT OR REPLACE INTO rollout_data(id, timestamp, type, payload) "
                "VALUES (1 << 32, 1, 'x', '1')",
                "INSERT INTO rollout_data(id, timestamp, type, look, payload) "
                "VALUES ((1 << 32) + 9, 1, 'x', 2, '1')",
                "UPDATE rollout_heads SET updated = 0"):
        with pytest.raises(sqlite3.IntegrityError):
            old.execute(sql)
    assert rows(old, "SELECT * FROM blackbox_check") == []
