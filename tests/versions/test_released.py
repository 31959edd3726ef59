"""Every file of a released version opens in this one: it reads the same, is whole, and goes on."""
import gzip
import json
import re
import sqlite3

import pytest

from conftest import by_hand, connect, one, problems, rows
from released import HERE, TALK, VERSION, push

VERSIONS = sorted(path.name[:-6] for path in HERE.glob("*.db.gz"))


@pytest.fixture(params=VERSIONS)
def file(request, path):
    path.write_bytes(gzip.decompress((HERE / f"{request.param}.db.gz").read_bytes()))
    path.with_suffix(".read").write_bytes(
        gzip.decompress((HERE / f"{request.param}.json.gz").read_bytes()))
    return path


def same(file, db):
    for sql, expected in json.loads(file.with_suffix(".read").read_text()):
        found = [[{"hex": value.hex()} if isinstance(value, bytes) else value for value in row]
                 for row in rows(db, sql)]
        assert found == expected, sql


def test_this_version_has_a_file(tmp_path):
    """Until its release: make released."""
    assert VERSION in VERSIONS
    schema = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
    path, now = tmp_path / "kept.db", connect(tmp_path / "new.db")
    path.write_bytes(gzip.decompress((HERE / f"{VERSION}.db.gz").read_bytes()))
    one(now, "SELECT blackbox_install('main', 'all')")
    one(now, "SELECT rollout_search_install()")
    now.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    now.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    kept, made = ([re.sub("(rec_[a-z]+)[0-9a-f]{8}", r"\1", repr(row)) for row in rows(db, schema)]
                  for db in (connect(path), now))
    assert kept == made, "make released"


def test_it_reads_the_same(file):
    db = connect(file)
    same(file, db)
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_verify") == []
    same(file, db)


def test_it_reads_the_same_after_an_install(file):
    db = connect(file)
    one(db, "SELECT blackbox_install('main', 'all')")
    same(file, db)
    assert problems(db) == []


def test_it_is_written_on(file):
    db = connect(file)
    one(db, "SELECT blackbox_install('main', 'all')")
    before = rows(db, "SELECT request_body FROM ring WHERE agent_id = 'b'")
    push(db, "b", 6, first=12)
    assert rows(db, "SELECT request_body FROM ring WHERE agent_id = 'b'")[:12] == before
    push(db, "a", 30, first=45)
    push(db, "new", 3)
    assert one(db, "SELECT payload_kill_switch('ring', 'b', 'k3')") == 18
    one(db, "SELECT payload_pack()")
    one(db, "SELECT payload_unpack()")
    one(db, "SELECT rollout_append(?, '[{\"type\":\"user\",\"message\":{\"role\":\"user\","
            "\"content\":\"Thanks\"}}]')", TALK)
    db.execute("INSERT INTO rec(id, timestamp, action) VALUES('later', 99, '{}')")
    one(db, "SELECT retention_release('event', 'e3', 'case', 'ann', 'over')")
    one(db, "SELECT proof_head()")
    assert problems(db) == [] and rows(db, "SELECT * FROM proof_verify") == []


def test_its_guards_hold_without_the_module(file):
    db = sqlite3.connect(file, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        db.execute("DELETE FROM event_payloads WHERE pinned = 1")
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('p', 'p', 'archive')")
    db.close()
    assert problems(connect(file)) == []


@pytest.mark.parametrize("sql, told", [
    ("UPDATE blackbox_domains SET format = 9", "schema main has format 9 of payload"),
    ("UPDATE ring_texts SET body = 9 WHERE id = -4", "ring ring has format 9"),
    ("UPDATE rec_state SET format = 9", "buffer rec has format 9"),
])
def test_a_newer_format_is_told(file, sql, told):
    by_hand(file, sql)
    db = connect(file)
    told = f"VersionError: {told}.*load a newer blackbox"
    assert any(re.search(told, problem) for _, _, problem in problems(db))
    calls = {"ring": ["SELECT * FROM ring", "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')",
                      "DELETE FROM ring WHERE agent_id = 'a'",
                      "SELECT payload_kill_switch('ring', 'a', 'k')",
                      "SELECT payload_extract('ring', 'a')",
                      "INSERT INTO ring(ring, value) VALUES('window', 9)"],
             "buff": ["INSERT INTO rec(id, action) VALUES('x', '{}')"],
             "sche": ["SELECT payload_stats()", "SELECT payload_pack()"]}
    for call in calls[told[14:18]]:
        with pytest.raises(sqlite3.DatabaseError, match=told):
            rows(db, call)
