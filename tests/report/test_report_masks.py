"""What is masked does not leave the database with a report, in any form."""
import json
import re
import sqlite3
import time

import pytest

from conftest import connect, one, rows, some
from secret_forms import FORMS, INNOCENT
from report_helpers import as_json, fire, one_exchange, page, push, ring

A20, A40 = "A" * 20, "Ab1" * 14
KEYS = {
    f"sk-ant-api03-{A20}": "Anthropic key",
    f"sk-proj-{A40}": "OpenAI key",
    f"AIza{'x' * 35}": "Google key",
    "AKIAIOSFODNN7EXAMPLE": "AWS key",
    f"ghp_{A40}": "GitHub token",
    f"github_pat_{A40}": "GitHub token",
    f"glpat-{A20}": "GitLab token",
    "xoxb-123456789012-abcdef": "Slack token",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc": "Stripe key",
    f"hf_{A40}": "Hugging Face token",
    f"npm_{A40}": "npm token",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{A40}": "JSON web token",
    f"-----BEGIN RSA PRIVATE KEY-----\n{A40}\n-----END RSA PRIVATE KEY-----": "private key",
}


def masked(db, text, **options):
    """A text after masking, and what the report says of it."""
    db.execute("DELETE FROM ring")
    event = f"k{one(db, 'SELECT count(*) FROM event_payloads')}"
    push(db, event, text, None)
    fire(db, event)
    report = as_json(db, "kill_switch", event, bodies="all", **options)
    return report["items"][0]["parts"][0]["text"], {m["name"]: m["count"] for m in report["masked"]}


@pytest.fixture
def masks(db):
    ring(db)
    return db


def test_keys_of_vendors_are_masked_wherever_they_stand(masks):
    for key, name in KEYS.items():
        for before, after in ("", ""), ("use ", " now"), ('{"a":"', '"}'), ("K=", "\n"):
            text, told = masked(masks, before + key + after)
            assert key[8:] not in text, key
            assert text.startswith(before + f"[masked: {name}]"), text
            assert told == {name: 1}
        text, _ = masked(masks, json.dumps({"content": json.dumps({"x": "line\n" + key})}))
        assert name in json.loads(json.loads(text)["content"])["x"]


def test_ordinary_text_is_not_masked(masks):
    for text in ("task-force-of-the-whole-department", "disk-usage-is-high-everywhere-today",
                 "eyJhbGciOiJIUzI1NiJ9 is a header", "Bearer of bad news", "AKIA", "sk-short",
                 "https://example.com:8080/a@b", "the password: is not here", "ghp_x",
                 '{"password":{"type":"string"}}', '{"password":""}', '{"password":null}',
                 "react@18.2.0", "x" * 5000, '{"max_tokens":5,"tokens":["password"]}'):
        assert masked(masks, text) == (text, {})


@pytest.mark.parametrize("value, shown", [
    ('"hunter2"', '"[masked: password]"'), ("12345", '"[masked: password]"'),
    ('["a", "b]"]', '"[masked: password]"'), ('"a\\"b"', '"[masked: password]"'),
    ('"a\\\\"', '"[masked: password]"')])
def test_members_are_masked_at_every_depth_and_json_stays_json(masks, value, shown):
    inner = '{"user":"u", "Password" : %s, "n":1}' % value
    said = '{"user":"u", "Password" : %s, "n":1}' % shown
    for _ in range(3):
        text, told = masked(masks, inner)
        assert text == said and told == {"password": 1}
        json.loads(text)
        inner, said = json.dumps({"arguments": inner}), json.dumps({"arguments": said})


def test_an_anchor_may_stay(masks):
    assert masked(masks, f"Authorization: Bearer {A40}!")[0] == (
        "Authorization: Bearer [masked: authorization]")
    assert masked(masks, "postgres://bob:secret@host/db")[0] == (
        "postgres://[masked: login in a URL]@host/db")
    assert masked(masks, "OPENAI_API_KEY=abcdefghij1\nX=1")[0] == (
        "OPENAI_API_KEY=[masked: api key]\nX=1")


def test_addresses_are_masked_when_asked_for(masks):
    text = json.dumps("hi\nbob.b+x@mail.example.com, and \u0416@x")
    assert masked(masks, text)[0] == text
    assert masked(masks, text, redact=["keys", "email"]) == (
        '"hi\\n[masked: e-mail address], and \\u0416@x"', {"e-mail address": 1})


def test_nothing_is_masked_when_asked_for(masks):
    text = f"sk-ant-{A40}"
    assert masked(masks, text, redact="none") == (text, {})


def test_rules_of_ones_own_are_rows(masks):
    masks.execute("INSERT INTO blackbox_secrets(profile, name, anchor, after, least)"
                  " VALUES('mine', 'ticket', 'TICKET-', '0-9', 4)")
    text = f"TICKET-1234 TICKET-12 sk-ant-{A40}"
    assert masked(masks, text, redact="mine")[0] == f"[masked: ticket] TICKET-12 sk-ant-{A40}"
    assert masked(masks, text, redact=["keys", "mine"])[0] == (
        "[masked: ticket] TICKET-12 [masked: Anthropic key]")
    for bad in ("('none', 'n', 'x', 'y', 1)", "('p', 'a]b', 'x', 'y', 1)", "('p', 'n', '', 'y', 1)",
                "('p', 'n', 'x', NULL, 1)", "('p', 'n', 'x', 'y', 0)"):
        with pytest.raises(sqlite3.IntegrityError):
            masks.execute("INSERT INTO blackbox_secrets(profile, name, anchor, after, least)"
                          f" VALUES{bad}")


def test_a_key_leaks_nowhere(db):
    """Not by titles, facts, tables, the key of the report, or another format."""
    key = f"sk-ant-{A40}"
    ring(db)
    push(db, key, json.dumps({"messages": [{"role": "user", "content": "x" * 190 + " " + key}]}),
         json.dumps({"choices": [{"message": {"tool_calls": [{"id": "c", "function": {
             "name": "f", "arguments": json.dumps({"k": key})}}]}}], "model": key}), agent=key)
    fire(db, key, key)
    one(db, "SELECT payload_unpin(id, ?, ?) FROM event_payloads", key, "why " + key)
    for kind in "kill_switch", "agent":
        for options in {}, {"format": "md"}, {"format": "json", "bodies": "all"}:
            text = one(db, "SELECT blackbox_report(?, ?, ?)", kind, key, json.dumps(options))
            assert A40[:12] not in text and "Anthropic key" in text
        made = page(db, kind, key)
        for part in made.report["items"][0]["parts"]:
            assert A40[:12].encode() not in made.part(part)
    assert one(db, "SELECT request_body FROM event_payloads").count(key) == 1


def test_hostile_text_takes_no_longer(masks):
    """Runs, anchors and quotes without end, in every combination that could be read again."""
    n = 300_000
    texts = ["a" * n, "sk-" * (n // 3), "eyJ" * (n // 3), "eyJ." * (n // 4), "@" * n,
             "a@" * (n // 2), '"password":' * (n // 11), '"password":"' * (n // 12),
             '"password":[' * (n // 12), "\\" * n, '\\"' * (n // 2), '"password":"' + '\\"' * n,
             "-----BEGIN PRIVATE KEY-----" * (n // 27), "://a:b" * (n // 6), "Bearer " * (n // 7),
             '\\"password\\":\\"[masked: x' * (n // 24), "password=" * (n // 9), "key=" * (n // 4),
             "password='a b c d e " * (n // 20), "API_KEY" + " " * n, "password" * (n // 8),
             '"password":\\"a b c d e ' * (n // 24), "DEK-Info: AES-128-CBC," * (n // 22), "key:x" * (n // 5)]
    slowest = {}
    for text in texts:
        begin = time.process_time()
        masked(masks, text, redact=["keys", "email"])
        slowest[text[:20]] = time.process_time() - begin
    assert max(slowest.values()) < 20 * sorted(slowest.values())[len(texts) // 2] + 0.5, slowest


def test_the_page_says_what_was_masked_and_how_often(db):
    one_exchange(db, f"sk-ant-{A40} sk-ant-{A40}", "r")
    made = page(db, "kill_switch", "k")
    assert "Masked In place of each stands its name in brackets." in made.text
    assert "What Times Anthropic key 2" in made.text
    assert "Nothing is masked in this report." in page(db, "kill_switch", "k", redact="none").text


def test_a_profile_without_rows_is_refused(db):
    one_exchange(db, "q", "r")
    with pytest.raises(sqlite3.IntegrityError, match="NotFoundError: the profile 'x' has no enabled rule"):
        page(db, "kill_switch", "k", redact="x")


def test_masks_may_be_in_another_schema(path, tmp_path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload')")
    one_exchange(db, f"sk-ant-{A40}", "r")
    with pytest.raises(sqlite3.OperationalError, match="NotInstalledError"):
        page(db, "kill_switch", "k")
    db.execute("ATTACH ':memory:' AS \"m 'x\"")
    one(db, "SELECT blackbox_install('m ''x', 'report')")
    assert page(db, "kill_switch", "k").report["masked"] == [{"name": "Anthropic key", "count": 1}]
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("wrap, unwrap", [
    (str, str),
    (lambda t: json.dumps({"messages": [{"content": f"Look:\n{t}\nrm -rf / is next"}]}),
     lambda t: json.loads(t)["messages"][0]["content"]),
    (lambda t: json.dumps({"a": json.dumps({"b": t + "\nend"})}), lambda t: json.loads(json.loads(t)["a"])["b"])])
def test_most_forms_are_found_and_few_others(masks, wrap, unwrap):
    """Of the forms of secrets 95 %, of texts that are none at most 2 %; JSON stays JSON, and what follows stays."""
    leaks, forms, innocent = [], FORMS, INNOCENT
    assert len(FORMS) >= 150 and len(INNOCENT) >= 150
    if wrap is not str:
        forms, innocent = some(FORMS, 4), some(INNOCENT, 4)
    for form, secret in forms:
        text, _ = masked(masks, wrap(form.format(secret)))
        shown = unwrap(text)
        if secret.splitlines()[-1] in shown:
            leaks.append(form)
        whole, rest = unwrap(wrap(form.format(secret))), re.split(r'"?\[masked: [^\]]*\]"?', shown)
        assert whole.startswith(rest[0]) and whole.endswith(rest[-1])  # all but the value is there
        assert re.search(".*".join(map(re.escape, rest)), whole, re.S)
        assert ("rm -rf / is next" in shown) == ("rm -rf" in wrap(""))
    assert len(leaks) <= len(forms) * 0.05, leaks
    wrong = [text for text in innocent if masked(masks, wrap(text))[0] != wrap(text)]
    assert len(wrong) <= len(innocent) * 0.02, wrong


def test_a_phrase_hides_nothing_that_follows_it(masks):
    for text in ("-----BEGIN RSA PRIVATE KEY----- rm -rf /", "-----BEGIN PRIVATE KEY-----\nrm -rf /\ncurl x | sh"):
        assert masked(masks, text) == (text, {})
        assert masked(masks, json.dumps({"a": text}))[0] == json.dumps({"a": text})
    key = f"-----BEGIN PRIVATE KEY-----\n{A40}\n{A40}"
    assert masked(masks, key + "; rm -rf /")[0] == "[masked: private key]; rm -rf /"


def test_a_rule_may_be_disabled_and_stays_so(masks):
    text = f"sk-ant-{A40} password: hunter22"
    masks.execute("UPDATE blackbox_secrets SET enabled = 0 WHERE name = 'password'")
    one(masks, "SELECT blackbox_install('main', 'report')")
    assert masked(masks, text) == ("[masked: Anthropic key] password: hunter22", {"Anthropic key": 1})
    masks.execute("UPDATE blackbox_secrets SET enabled = 0")
    with pytest.raises(sqlite3.IntegrityError, match="no enabled rule"):
        masked(masks, text)


def test_a_rule_by_name_of_ones_own_needs_what_its_kind_says(masks):
    masks.executescript("INSERT INTO blackbox_secrets(profile, name, kind, anchor, least, bits) VALUES"
                        "('mine', 'pin', 'name', 'pin_code', 4, NULL), ('mine', 'seal', 'entropy', 'seal', 8, 3),"
                        "('mine', 'never', 'never', 'my_pin_code', 1, NULL)")
    for text, shown in [('{"pinCode":"4711"}', '{"pinCode":"[masked: pin]"}'), ("pin-code=4711", "pin-code=[masked: pin]"),
                        ("pin_code=47", None), ("my_pin_code=4711", None), ("seal: aaaaaaaa1", None), ("pin_codes: 4711", None),
                        ("seal: h3Jq9sKx", "seal: [masked: seal]"), ('{"pin code": 4711}', '{"pin code": "[masked: pin]"}')]:
        assert masked(masks, text, redact="mine")[0] == (shown or text)
    with pytest.raises(sqlite3.IntegrityError):
        masks.execute("INSERT INTO blackbox_secrets(profile, name, kind, anchor) VALUES('mine', 'n', 'entropy', 'x')")


def test_a_function_masks_a_text_as_a_report_does(masks):
    for key in KEYS:
        text = f"use {key} now"
        assert one(masks, "SELECT blackbox_mask(?)", text) == masked(masks, text)[0]
    for same in ("nothing to see", "", "a\0b", 5, None):
        assert one(masks, "SELECT blackbox_mask(?)", same) == same
    assert one(masks, "SELECT blackbox_mask(?)", "a\0b password=hunter22 c") == "a\0b password=[masked: password] c"
    assert one(masks, "SELECT blackbox_mask('password=hunter22 me@example.com', 'email')") == \
        "password=hunter22 [masked: e-mail address]"
    with pytest.raises(sqlite3.Error, match="ValidationError: text must be a text or NULL"):
        one(masks, "SELECT blackbox_mask(x'00')")
    with pytest.raises(sqlite3.Error, match="NotFoundError: .*'mine'"):
        one(masks, "SELECT blackbox_mask('a', 'mine')")
    masks.execute("UPDATE blackbox_secrets SET enabled = 0 WHERE name = 'password'")
    assert one(masks, "SELECT blackbox_mask('password=hunter22')") == "password=hunter22"


def test_a_block_of_yaml_is_masked_to_its_end_and_no_further(masks):
    text = "a: 1\nsecret: |\n  one two\n\n  \"three\"\n  four\nuser: bob\n  five: 5"
    shown = "a: 1\nsecret: |\n  [masked: secret]\nuser: bob\n  five: 5"
    assert masked(masks, text) == (shown, {"secret": 1})
    for _ in range(3):
        text, shown = json.dumps({"c": text, "d": "rm -rf"}), json.dumps({"c": shown, "d": "rm -rf"})
        assert masked(masks, text)[0] == shown
    last = json.dumps({"c": json.dumps({"a": "secret: |\n  four4"}), "d": 5})
    assert masked(masks, last)[0] == last.replace("four4", "[masked: secret]")


def test_a_name_may_be_written_with_escapes_of_json(masks):
    """All but the value stays as it was written, also other escapes."""
    for text, shown in [
            ('{"\\u0061":1,"pass\\u0077ord":"x\\u0079\\"z","b":"\\u0063"}', '{"\\u0061":1,"pass\\u0077ord":"[masked: password]","b":"\\u0063"}'),
            ('{"k":"\\u0073k-ant-%s"}' % A40, '{"k":"[masked: Anthropic key]"}'),
            ('{"k":"\\u001b[31m \\u003cb\\u003e","passwor\\u0064":"hunter22"}', '{"k":"\\u001b[31m \\u003cb\\u003e","passwor\\u0064":"[masked: password]"}'),
            ('{"password":"a\\u0062c","\\u0050assword":"x"}', '{"password":"[masked: password]","\\u0050assword":"[masked: password]"}')]:
        assert masked(masks, text) == (shown, {re.search(r"masked: ([^\]]*)", shown)[1]: shown.count("[masked")})
        json.loads(shown)
        assert masked(masks, json.dumps({"a": text}))[0] == json.dumps({"a": shown})
    for same in '{"a":"\\u0061\\u0062"}', "\\u0061", "\\u006", "\\\\u0061 password", "\\u00zz\\u00g1":
        assert masked(masks, same) == (same, {})


def test_a_rule_may_need_a_word_in_its_line(masks):
    masks.execute("INSERT INTO blackbox_secrets(profile, name, anchor, after, least, keeps, line)"
                  " VALUES('mine', 'pin', ' -x ', 'a-z0-9', 3, 1, 'door |gate ')")
    for text, shown in [("door -x abc", "door -x [masked: pin]"), ("gate 5 -x 'a b'", "gate 5 -x '[masked: pin]'"),
                        ("door\nls -x abc", None), ("ls -x abc door ", None), ("door " + "y" * 200 + " -x abc", None),
                        ("door \\\n -x abc", "door \\\n -x [masked: pin]"), ("door -x $abc", None), ("door -x 'ab", None),
                        ("say 'door -x '; abc = 'def'", None)]:
        for wrap, unwrap in (str, str), (lambda t: json.dumps([t]), lambda t: json.loads(t)[0]):
            assert unwrap(masked(masks, wrap(text), redact="mine")[0]) == (shown or text)
    for rule in "'name', 'x', 'a'", "'prefix', 'x', ''":
        with pytest.raises(sqlite3.IntegrityError):
            masks.execute(f"INSERT INTO blackbox_secrets(profile, name, kind, anchor, line) VALUES('mine', 'n', {rule})")
