"""The hashes of pinned rows, from which blackbox_check() sees that one was changed."""
import hashlib
import sqlite3
import struct

import pytest

from conftest import connect, one, rows
from hostile_helpers import PUT


def test_a_pin_without_the_module_has_its_hash_from_the_next_call(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
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
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("INSERT INTO event_payloads VALUES('x', 'e', 'a', 'é' || char(0), ?, 0, "
               "'evidence', 1, NULL, '2026-01-01')", (bytes(range(200)),))
    one(db, "SELECT blackbox_install('main', 'all')")
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
