"""A page has what a browser needs to verify what it shows."""
import base64
import hashlib
import sqlite3
import struct

import pytest

from conftest import one
from report_helpers import fire, page, push, ring

TYPES = {"integer": 1, "text": 3, "blob": 4, "null": 5}


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def value(made, item, kind, *value):
    """The type and the bytes of a value in a page."""
    if kind == "part":
        return TYPES[value[1]], made.part(item["parts"][value[0]])
    if kind == "integer":
        return TYPES[kind], struct.pack(">q", int(value[0]))
    return TYPES[kind], value[0].encode() if value else b""


def root(made, item):
    """The root to which the path of a leaf leads (RFC 6962), from what the page has."""
    leaf, fields = item["leaf"], []
    for name, kind, *rest in leaf["fields"]:
        name = name.encode()
        if leaf["state"] == "whole":
            kind, data = value(made, item, kind, *rest)
            told = sha(sha(bytes.fromhex(leaf["salt"]), name), bytes([kind]), data)
        else:
            told = bytes.fromhex(rest[0] or "")
        told = b"" if kind == TYPES["null"] else told
        fields.append(bytes([len(name)]) + name + bytes([kind]) + told)
    h = sha(b"\0blackbox log 1\n", struct.pack(">qq", leaf["n"], leaf["kept"]),
            sha(*fields))
    size = int(made.report["proof"]["head"].split("\n")[1])
    at, last = leaf["n"] - 1, size - 1
    for node in map(bytes.fromhex, leaf["path"]):
        if at % 2 or at == last:
            h = sha(b"\1", node, h)
            while at % 2 == 0 and at:
                at, last = at >> 1, last >> 1
        else:
            h = sha(b"\1", h, node)
        at, last = at >> 1, last >> 1
    return h


def leads(made, item):
    return base64.b64encode(root(made, item)).decode() == made.report["proof"]["head"].split("\n")[2]


@pytest.fixture
def proven(db):
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
        assert item["leaf"]["state"] == "whole" and leads(made, item)
        item["leaf"]["fields"][0][1:] = ["text", "Ann"]
        assert not leads(made, item)


def test_what_is_masked_cannot_be_recomputed_nor_guessed_and_the_page_says_so(proven):
    made = page(proven, "kill_switch", "k")
    items = made.report["items"]
    assert [item["leaf"]["state"] for item in items] == ["whole", "redacted", "whole"]
    assert all(leads(made, item) for item in items)
    made = page(proven, "agent", "a", bodies="none")
    items = made.report["items"]
    assert [item["leaf"]["state"] for item in items] == ["redacted"] * 3
    assert all(leads(made, item) and set(item["leaf"]) == {"state", "n", "kept", "path", "fields"} for item in items)


def test_a_row_that_was_altered_is_told(proven):
    proven.execute("DROP TRIGGER payload_guard")
    proven.execute("UPDATE event_payloads SET response_body = 'x' WHERE event_id = 'e3'")
    items = page(proven, "kill_switch", "k").report["items"]
    assert [item["leaf"]["state"] for item in items] == ["whole", "redacted", "altered"]


def test_what_has_no_leaf_yet_has_no_proof(db):
    plain = sqlite3.connect(one(db, "SELECT file FROM pragma_database_list"))
    plain.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose, kill_switch_event_id)"
                  " VALUES('e1', 'a', 'q', 'evidence', 'k')")
    plain.commit()
    report = page(db, "kill_switch", "k").report
    assert report["proof"] == {"state": "none", "head": None, "bundle": None}
    assert "leaf" not in report["items"][0]
