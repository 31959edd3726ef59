"""payload.secrets: what a ring and the queue write of bodies that have secrets in them."""
import base64
import hashlib
import json
import random
import sqlite3

import pytest

from conftest import connect, install_into, one, problems, rows
from secret_forms import FORMS, INNOCENT

KEY = "sk-ant-api03-" + "a1B2c3D4" * 4
BODY = json.dumps({"messages": [{"role": "user", "content": f"use {KEY} now"}]})
MASKED = BODY.replace(KEY, "[masked: Anthropic key]")


def setting(db, value, schema="main"):
    db.execute(f"UPDATE {schema}.blackbox_settings SET value = ? WHERE name = 'payload.secrets'",
               (value,))


def push(db, request, response=None, meta=None, agent="a", event="e", ring="ring"):
    db.execute(f"INSERT INTO {ring}(agent_id, event_id, request_body, response_body, meta)"
               " VALUES(?, ?, ?, ?, ?)", (agent, event, request, response, meta))


def last(db, ring="ring"):
    return rows(db, f"SELECT request_body, response_body, meta, size_bytes FROM {ring}"
                " WHERE agent_id = 'a' ORDER BY seq DESC LIMIT 1")[0]


def digest(body):
    return "sha256:" + hashlib.sha256(body.encode()).hexdigest()


@pytest.fixture
def ring(db):
    db.execute("PRAGMA synchronous = OFF")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    return db


def test_a_body_stays_as_it_is_unless_the_setting_says_otherwise(ring):
    push(ring, BODY, KEY)
    assert last(ring)[:2] == (BODY, KEY)


@pytest.mark.parametrize("inside", [False, True])
def test_mask_writes_the_name_of_the_rule_in_place_of_a_secret(ring, inside):
    setting(ring, "mask")
    if inside:
        ring.execute("BEGIN")
    push(ring, BODY, b"x " + KEY.encode(), '{"password":"hunter22"}')
    if inside:
        ring.execute("COMMIT")
    after = b"x [masked: Anthropic key]"
    assert last(ring) == (MASKED, after, '{"password":"[masked: password]"}',
                          len(MASKED) + len(after))
    assert problems(ring) == []


def test_drop_writes_a_digest_and_the_names_of_what_was_found(ring):
    setting(ring, "drop")
    push(ring, BODY, "nothing", json.dumps({"k": KEY, "password": "hunter22"}))
    request, response, meta, _ = last(ring)
    assert json.loads(request) == {"dropped": digest(BODY), "bytes": len(BODY),
                                   "found": ["Anthropic key"]}
    assert response == "nothing"
    assert sorted(json.loads(meta)["found"]) == ["Anthropic key", "password"]
    assert problems(ring) == []


@pytest.mark.parametrize("complete", [
    "INSERT INTO ring(ring, agent_id, event_id, response_body, meta) VALUES('complete', 'a', 'e', ?, ?)",
    "UPDATE ring SET response_body = ?, meta = ? WHERE agent_id = 'a' AND response_body IS NULL"])
def test_a_late_response_is_masked_too(ring, complete):
    setting(ring, "mask")
    push(ring, BODY)
    ring.execute(complete, (KEY, json.dumps({"key": KEY})))
    assert last(ring)[:3] == (MASKED, "[masked: Anthropic key]", '{"key": "[masked: key]"}')
    ring.execute("SELECT payload_kill_switch('ring', 'a', 'k')")
    assert rows(ring, "SELECT request_body, response_body FROM payload_rows") == [
        (MASKED, "[masked: Anthropic key]")]


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_the_queue_masks_as_well(db, mode):
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.enabled'")
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.queue_mode'", (mode,))
    for how in "mask", "drop":
        setting(db, how)
        db.execute("SELECT payload_queue('e', 'a', ?, 'r')", (BODY,))
        db.execute("INSERT INTO payload_queue(event_id, agent_id, request_body) VALUES('f', 'a', ?)",
                   (BODY,))
    db.execute("SELECT payload_flush()")
    found = rows(db, "SELECT request_body, size_bytes, response_body FROM event_payloads ORDER BY rowid")
    assert [r for r, _, _ in found[:2]] == [MASKED, MASKED] and len(found) == 4
    assert {json.loads(r)["dropped"] for r, _, _ in found[2:]} == {digest(BODY)}
    assert all(n == len(r) + len(a or "") for r, n, a in found)
    assert problems(db) == []


@pytest.mark.parametrize("names", [("eventId", "agentId", "requestBody", "responseBody"),
                                   ("event_id", "agent_id", "request_body", "response_body")])
def test_evidence_that_is_given_as_json_is_masked_too(db, names):
    def save(kill_switch):
        bodies = [(BODY, f"r {KEY}"), ("plain", None), ({"password": "hunter22"}, "plain"), (None, None)]
        return one(db, "SELECT payload_save_evidence(?, ?)", kill_switch, json.dumps([
            dict(zip(names, (f"e{i}", "a", request, response)), timestamp=1000 + i)
            for i, (request, response) in enumerate(bodies)]))

    def saved(kill_switch):
        return rows(db, "SELECT request_body, response_body, created_at FROM event_payloads"
                    " WHERE kill_switch_event_id = ? ORDER BY event_id", kill_switch)
    assert save("keep") == 4
    assert saved("keep")[0][:2] == (BODY, f"r {KEY}")
    setting(db, "mask")
    assert (save("k1"), save("k1")) == (4, 0)
    assert [row[:2] for row in saved("k1")] == [
        (MASKED, "r [masked: Anthropic key]"), ("plain", None), ('{"password":"[masked: password]"}', "plain"),
        (None, None)]
    assert [row[2] for row in saved("k1")] == [row[2] for row in saved("keep")]
    setting(db, "drop")
    assert save("k2") == 4
    assert [request and json.loads(request)["dropped"] for request, _, _ in saved("k2")[::2]] == [
        digest(BODY), digest('{"password":"hunter22"}')]
    assert saved("k2")[1][:2] == ("plain", None) and saved("k2")[2][1] == "plain"
    assert one(db, "SELECT payload_save_evidence('k3', '[]')") == 0
    assert problems(db) == []


def test_an_archive_of_http_is_masked_too(db):
    def har(key, encoded=False):
        answer = f"r {KEY}"
        return json.dumps({"log": {"entries": [{
            "startedDateTime": "2026-01-01T00:00:00.000Z", "time": key, "request": {
                "method": "POST", "url": f"http://x/{KEY}", "headers": [], "postData": {"text": BODY}},
            "response": {"status": 200, "headers": [], "content": {
                "text": base64.b64encode(answer.encode()).decode() if encoded else answer,
                **({"encoding": "base64"} if encoded else {})}}}]}})
    for i, how in enumerate(("keep", "mask", "drop", "mask")):
        setting(db, how)
        assert json.loads(one(db, "SELECT payload_import_har(?, 'a')", har(i, i == 3)))["rows"] == 1
    kept, masked, dropped, encoded = rows(db, "SELECT request_body, response_body, meta FROM event_payloads ORDER BY rowid")
    assert kept[:2] == (BODY, f"r {KEY}") and KEY in kept[2]
    assert masked[:2] == encoded[:2] == (MASKED, "r [masked: Anthropic key]")
    assert json.loads(masked[2])["url"] == "http://x/[masked: Anthropic key]"
    assert json.loads(dropped[1])["dropped"] == digest(f"r {KEY}") and KEY not in "".join(dropped)
    assert problems(db) == []


def test_a_text_that_grows_is_masked_as_if_it_were_new(ring):
    """Only what is new in a request is looked at: with the same result."""
    dice = random.Random(7)
    setting(ring, "mask")
    pieces = [f[0] if isinstance(f, tuple) else f for f in FORMS + INNOCENT]
    pieces += ["lorem ipsum " * 30, '{"password":["a","b', '"}]},{"', '"Cookie"},{"value":"a=b', "\\\\\\\"",
               "password", ":", '"', "'", "token=", "A" * 300, 'password: "do not tell the key', " the key of it" * 40, '{"tool_secrets": [{"a": "b1c2d3e4f5"}, 3]}']
    text, unlike = "", 0
    for i in range(1500):
        change = dice.random()
        if change < 0.7:
            text += "".join(dice.choice(pieces) for _ in range(dice.randrange(1, 6)))
        elif change < 0.9:
            text = text[:len(text) - dice.randrange(min(3000, len(text) + 1))]
        elif text:
            at = dice.randrange(len(text))
            text = text[:at] + dice.choice(pieces) + text[at + dice.randrange(3):]
        if len(text) > 40_000:
            text = text[:20_000]
        end = text + dice.choice(["", '"}]}', "]}", "x"])
        push(ring, end)
        shown = one(ring, "SELECT blackbox_mask(?)", end)
        assert last(ring)[0] == shown, i
        unlike += shown != end
    assert unlike > 400


def test_what_comes_later_can_make_a_secret_of_what_was_none(ring):
    setting(ring, "mask")
    text = 'password: "do not tell ' + "the key of it " * 200
    push(ring, text)
    assert last(ring)[0] == text
    push(ring, text + 'a=b"')
    assert last(ring)[0] == 'password: "[masked: password]"'


def test_changed_rules_are_used_at_once(ring, path):
    setting(ring, "mask")
    add = ("INSERT INTO blackbox_secrets(profile, name, anchor, after, least)"
           " VALUES('keys', 'ticket', 'TICKET-', '0-9', 4)")
    def shown():
        push(ring, "TICKET-12345")
        return last(ring)[0]
    assert shown() == "TICKET-12345"
    ring.execute("BEGIN")
    assert shown() == "TICKET-12345"
    ring.execute(add)
    assert shown() == "[masked: ticket]"
    ring.execute("ROLLBACK")
    assert shown() == "TICKET-12345"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(add)
    assert shown() == "[masked: ticket]"
    other.execute("UPDATE blackbox_secrets SET enabled = 0 WHERE name = 'ticket'")
    assert shown() == "TICKET-12345"


def test_the_setting_needs_rules(tmp_path):
    db = connect(tmp_path / "bare.db")
    db.execute("SELECT blackbox_install()")
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: payload.secrets needs the domain report"):
        setting(db, "mask")
    db.execute("SELECT blackbox_install('main', 'report')")
    setting(db, "mask")
    db.execute("SELECT blackbox_install()")
    assert one(db, "SELECT value FROM blackbox_settings WHERE name = 'payload.secrets'") == "mask"


def test_without_rules_each_body_is_dropped(ring):
    """A setting that hides secrets does not show them because a table is empty."""
    setting(ring, "mask")
    ring.execute("UPDATE blackbox_secrets SET enabled = 0")
    push(ring, "hello")
    assert json.loads(last(ring)[0]) == {"dropped": digest("hello"), "bytes": 5, "found": []}


def test_each_schema_has_its_setting(ring, tmp_path):
    ring.execute("ATTACH ? AS \"the 'other'\"", (str(tmp_path / "b.db"),))
    schema = "\"the 'other'\""
    ring.execute("SELECT blackbox_install('the ''other''', 'payload,report')")
    ring.execute(f"CREATE VIRTUAL TABLE {schema}.r USING payload_ring")
    setting(ring, "mask", schema)
    push(ring, BODY)
    push(ring, BODY, ring=f"{schema}.r")
    assert last(ring)[0] == BODY and last(ring, f"{schema}.r")[0] == MASKED
    ring.execute("CREATE VIRTUAL TABLE temp.fast USING payload_ring")
    ring.execute("SELECT blackbox_use('main')")
    setting(ring, "drop")
    push(ring, BODY, ring="temp.fast")
    assert json.loads(last(ring, "temp.fast")[0])["dropped"] == digest(BODY)


def test_it_works_in_a_schema_that_is_not_trusted(ring):
    ring.execute("PRAGMA trusted_schema = OFF")
    ring.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True) if hasattr(ring, "setconfig") else None
    setting(ring, "mask")
    push(ring, BODY)
    assert last(ring)[0] == MASKED


def test_rules_on_loops_see_what_is_written(ring):
    setting(ring, "mask")
    ring.execute("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'")
    call = {"type": "tool_use", "id": "c", "name": "run", "input": {"key": KEY}}
    for i in range(8):
        push(ring, json.dumps({"model": "m", "messages": [{"role": "user", "content": "go"}]}),
             json.dumps({"content": [dict(call, id=f"c{i}")]}), event=f"e{i}")
    assert rows(ring, "SELECT count(*) > 0 FROM payload_verdicts") == [(1,)]
    assert KEY not in "".join(map(str, rows(ring, "SELECT * FROM payload_verdicts")))
