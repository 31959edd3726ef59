"""A page has what a browser needs to verify what it shows."""
import base64
import hashlib
import json
import struct

import pytest

from conftest import one
from report_helpers import fire, page, push, ring

KINDS = ["", "pin", "evidence", "unpin", "hold", "receipt", "verdict", "erasure"]
TYPES = {"integer": 1, "real": 2, "text": 3, "blob": 4, "null": 5}


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def digest(made, item):
    """The digest of the row, from the columns of the leaf and the parts of the item."""
    told = b""
    for name, kind, *value in item["leaf"]["columns"]:
        if kind == "part":
            data = made.part(item["parts"][value[0]])
            told += bytes([TYPES[value[1]]]) + struct.pack(">q", len(data)) + data
        elif kind in ("text", "blob"):
            data = value[0].encode() if kind == "text" else bytes.fromhex(value[0])
            told += bytes([TYPES[kind]]) + struct.pack(">q", len(data)) + data
        else:
            number = {"integer": lambda v: struct.pack(">q", int(v)), "real": bytes.fromhex}
            told += bytes([TYPES[kind]]) + (number[kind](value[0]) if value else b"")
    return sha(told)


def root(proof):
    """The root to which the path of a proof leads (RFC 6962)."""
    size = int(proof["head"].split("\n")[1])
    entry = bytes([KINDS.index(proof["kind"])]) + struct.pack(">qq", proof["number"], proof["time"])
    h, at, last = sha(b"\0", entry, bytes.fromhex(proof["commitment"])), proof["leaf"], size - 1
    for node in map(bytes.fromhex, proof["path"]):
        if at % 2 or at == last:
            h = sha(b"\1", node, h)
            while at % 2 == 0 and at:
                at, last = at >> 1, last >> 1
        else:
            h = sha(b"\1", h, node)
        at, last = at >> 1, last >> 1
    return h


@pytest.fixture
def proven(db):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('proof.enabled', 1)")
    ring(db)
    push(db, "e1", '{"a":1}', b"\x89PNG\r\n\x1a\n\0", time=1000)
    push(db, "e2", "sk-ant-" + "A" * 30, None, time=2000)
    push(db, "e3", None, "caf\u00e9", time=3000)
    fire(db)
    one(db, "SELECT proof_head()")
    return db


def test_a_row_can_be_recomputed_from_the_page(proven):
    made = page(proven, "kill_switch", "k", redact="none")
    assert made.report["proof"]["state"] == "ok"
    assert made.report["proof"]["head"].startswith("blackbox/")
    for item in made.report["items"]:
        proof = item["leaf"]["proof"]
        assert item["leaf"]["state"] == "whole"
        assert digest(made, item).hex() == proof["content"]
        assert sha(bytes.fromhex(proof["salt"]), digest(made, item)).hex() == proof["commitment"]
        assert base64.b64encode(root(proof)).decode() == proof["head"].split("\n")[2]


def test_what_is_masked_cannot_be_recomputed_and_the_page_says_so(proven):
    items = page(proven, "kill_switch", "k").report["items"]
    assert [item["leaf"]["state"] for item in items] == ["whole", "redacted", "whole"]
    assert "columns" not in items[1]["leaf"] and items[1]["leaf"]["proof"]["content"]
    items = page(proven, "agent", "a", bodies="none").report["items"]
    assert [item["leaf"]["state"] for item in items] == ["redacted"] * 3


def test_a_row_that_was_altered_is_told(proven):
    proven.execute("DROP TRIGGER payload_update_check")
    proven.execute("UPDATE event_payloads SET response_body = 'x' WHERE event_id = 'e3'")
    items = page(proven, "kill_switch", "k").report["items"]
    assert [item["leaf"]["state"] for item in items] == ["whole", "redacted", "altered"]


def test_without_leaves_there_is_no_proof(db):
    ring(db)
    push(db, "e1", "q", "r")
    fire(db)
    report = page(db, "kill_switch", "k").report
    assert report["proof"] == {"state": "none", "head": None}
    assert "leaf" not in report["items"][0]
