"""Recorded exchanges of real agents through ring, queue and kill switch."""
import collections
import datetime
import gzip
import json

import pytest

import ring_reader
from conftest import DATA, connect, needs_data, one, rows
from payload_helpers import extracted

FILE = DATA / "payloads.jsonl.gz"
WINDOW = 20
pytestmark = [needs_data, pytest.mark.skipif(not FILE.exists(),
                                             reason="no recorded exchanges")]


ARCHIVED = ("SELECT e.agent_id, e.event_id, e.request_body, e.response_body, "
            "e.created_ms FROM event_payloads AS e JOIN payload_rows USING (id) "
            "WHERE coalesce(e.kill_switch_event_id, '') = ? ORDER BY e.rowid")


def text(value):
    return value if isinstance(value, str) else json.dumps(
        value, ensure_ascii=False, separators=(",", ":"))


@pytest.fixture(scope="module")
def exchanges():
    found = []
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        for line in file:
            item = json.loads(line)
            at = datetime.datetime.fromisoformat(item["ts"].replace("Z", "+00:00"))
            found.append((item["agent_id"], item["event_id"], text(item["request"]),
                          text(item["response"]), round(at.timestamp() * 1000)))
    assert len(found) > 100
    return found


@pytest.fixture
def db(path):
    db = connect(path)
    db.execute("PRAGMA synchronous=OFF")
    one(db, "SELECT blackbox_install()")
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    yield db
    db.close()


@pytest.mark.parametrize("schema", ["main", "temp"])
def test_the_ring_holds_the_newest_of_each_agent_byte_for_byte(db, exchanges, schema):
    db.execute(f"CREATE VIRTUAL TABLE {schema}.ring "
               f"USING payload_ring(window={WINDOW})")
    kept = collections.defaultdict(lambda: collections.deque(maxlen=WINDOW))
    given = collections.Counter()
    for i, exchange in enumerate(exchanges):
        if i % 100 == 0:
            db.execute("BEGIN")
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, "
                   "timestamp) VALUES(?,?,?,?,?)", exchange)
        kept[exchange[0]].append(exchange)
        given[exchange[0]] += 1
        if i % 100 == 99 or i + 1 == len(exchanges):
            db.execute("COMMIT")
    for agent, its in kept.items():
        assert rows(db, "SELECT agent_id, event_id, request_body, response_body, "
                    "timestamp FROM ring WHERE agent_id = ? ORDER BY seq", agent) \
            == list(its)
    if schema == "main":
        assert [(row[0], *row[2:3], *row[4:6], row[3]) for row in ring_reader.read(db)] \
            == [each for agent in sorted(kept) for each in kept[agent]]
    assert dict(rows(db, "SELECT agent_id, given FROM ring_agents")) == given
    assert dict(rows(db, "SELECT agent_id, sum(size_bytes) FROM ring "
                     "GROUP BY agent_id")) \
        == {a: sum(len(e[2].encode()) + len(e[3].encode()) for e in its)
            for a, its in kept.items()}
    for i, (agent, its) in enumerate(kept.items()):
        if i % 2:
            assert extracted(one(db, "SELECT payload_extract('ring', ?)", agent)) \
                == [e[1:] for e in its]
            continue
        assert one(db, "SELECT payload_kill_switch('ring', ?, ?)", agent, agent) \
            == len(its)
        assert rows(db, ARCHIVED, agent) == list(its)
    assert one(db, "SELECT count(*) FROM ring") == 0
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_the_queue_writes_all_byte_for_byte_in_order(db, path, exchanges):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.retention_days', 365)")
    now = one(db, "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)")
    recent = [(*e[:4], now - len(exchanges) + i) for i, e in enumerate(exchanges)]
    for i, (agent, event, request, response, at) in enumerate(recent):
        how = ("SELECT payload_queue(?,?,?,?,?)",
               "INSERT INTO payload_queue(event_id, agent_id, request_body, "
               "response_body, timestamp) VALUES(?,?,?,?,?)")[i % 2]
        db.execute(how, (event, agent, request, response, at)).fetchall()
    db.close()
    again = connect(path)
    assert rows(again, ARCHIVED, "") == recent
    assert rows(again, "SELECT * FROM blackbox_check") == []


def test_the_same_as_evidence_from_json(db, exchanges):
    some = exchanges[::10]
    items = [dict(zip(("agentId", "eventId", "requestBody", "responseBody",
                       "timestamp"), e)) for e in some]
    for _ in range(2):
        one(db, "SELECT payload_save_evidence('k', ?)",
            json.dumps(items, ensure_ascii=False))
        assert rows(db, ARCHIVED, "k") == some
