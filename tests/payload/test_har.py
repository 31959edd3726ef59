"""payload_import_har(): exchanges of an HTTP Archive, without what carries keys."""
import base64
import datetime
import json
import sqlite3

import pytest

from conftest import one, rows


NOW = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=250000)
ZONE = datetime.timezone(datetime.timedelta(hours=2))


def header(name, value):
    return {"name": name, "value": value}


def entry(request="{}", response="{}", url="https://api.example.com/v1/messages?key=AIzaSecret", encoding=None, **more):
    content = {"size": 2, "mimeType": "application/json", "text": response}
    if encoding:
        content["encoding"] = encoding
    return {"startedDateTime": NOW.astimezone(ZONE).isoformat(timespec="milliseconds"), "time": 812.7,
            "request": {"method": "POST", "url": url, "queryString": [header("key", "AIzaSecret")], "headers": [
                header("Content-Type", "application/json"), header("Authorization", "Bearer hidden1"),
                header("x-api-key", "hidden2"), header("Cookie", "hidden3"), header("X-Goog-Api-Key", "hidden4"),
                header("X-Other", " Bearer hidden5"), header("X-More", "sk-hidden6"), header(":path", "/v1?x=hidden9"),
                header("Referer", "https://a.example/b?c=hidden10"), header("X-From", "https://u:hidden11@h/"),
                header("DPoP", "eyJhidden12.e30.x"), header("X-Hmac", "hidden13"), header("X-CSRF", "hidden14")],
                **({} if request is None else {"postData": {"mimeType": "application/json", "text": request}})},
            "response": {"status": 200, "headers": [header("request-id", "r1"), header("Set-Cookie", "hidden7"),
                                                    header("X-Session-Token", "hidden8")], "content": content}, **more}


def har(*entries):
    return json.dumps({"log": {"version": "1.2", "creator": {"name": "x"}, "entries": list(entries)}})


def load(db, text, *more):
    marks = ", ?" * len(more)
    return json.loads(one(db, f"SELECT payload_import_har(?{marks})", text, *more))


@pytest.mark.parametrize("kind", [str, lambda text: text.encode(), lambda text: "\ufeff" + text])
def test_an_exchange_has_its_bodies_its_time_and_no_key(db, kind):
    request = json.dumps({"model": "m", "messages": [{"role": "user", "content": "é \U0001f600"}]})
    assert load(db, kind(har(entry(request, "out"), entry(None)))) == {"rows": 1, "known": 0, "left": 1}
    agent, req, res, purpose, at, meta = rows(
        db, "SELECT agent_id, request_body, response_body, purpose, created_at, meta FROM event_payloads")[0]
    assert (agent, req, res, purpose, at) == ("api.example.com", request, "out", "archive", f"{NOW:%Y-%m-%dT%H:%M:%S}.250Z")
    assert json.loads(meta) == {
        "method": "POST", "url": "https://api.example.com/v1/messages", "status": 200, "duration_ms": 812,
        "request_headers": {"content-type": "application/json", ":path": "/v1", "referer": "https://a.example/b"},
        "response_headers": {"request-id": "r1"}}
    assert not rows(db, "SELECT 1 FROM event_payloads WHERE meta LIKE '%hidden%' OR meta LIKE '%AIza%'")


def test_an_archive_comes_in_once_and_what_is_new_is_added(db):
    first, second = entry("1"), entry("2")
    assert load(db, har(first), "coder") == {"rows": 1, "known": 0, "left": 0}
    assert load(db, har(first, second), "coder") == {"rows": 1, "known": 1, "left": 0}
    assert rows(db, "SELECT DISTINCT agent_id FROM event_payloads") == [("coder",)]
    db.execute("INSERT INTO blackbox_call(command, arguments) VALUES('payload_import_har', json_array(?))",
               (har(entry("3")),))
    assert one(db, "SELECT count(*) FROM event_payloads") == 3


@pytest.mark.parametrize("body", [b"", b"a", b"ab", b"abc", "é\n".encode(), b"x" * 1000])
def test_base64_of_a_text_becomes_the_text(db, body):
    load(db, har(entry("1", base64.b64encode(body).decode(), encoding="base64")))
    assert one(db, "SELECT response_body FROM event_payloads") == body.decode()


@pytest.mark.parametrize("text", ["/w==", "AAAA", "!!!!"])  # no UTF-8, NUL, and no base64
def test_other_base64_stays_as_it_is(db, text):
    load(db, har(entry("1", text, encoding="base64")))
    assert one(db, "SELECT response_body FROM event_payloads") == text


def test_odd_entries_are_left_out_and_long_headers_too(db):
    long = entry("1")
    long["request"]["headers"].append(header("x-long", "y" * 70_000))
    bare = {"request": {"postData": {"text": "2"}}}
    assert load(db, har(long, bare, 5, None, [], {}, {"request": 7})) == {"rows": 2, "known": 0, "left": 2}
    metas = [json.loads(meta) for meta, in rows(db, "SELECT meta FROM event_payloads ORDER BY request_body")]
    assert metas[0]["status"] == 200 and "request_headers" not in metas[0]
    assert metas[1]["url"] == "" and one(db, "SELECT agent_id FROM event_payloads WHERE request_body = '2'") == "har"


@pytest.mark.parametrize("text", ["", "no JSON", "{}", '{"log":{"entries":{}}}', None, 5])
def test_what_is_no_archive_is_refused(db, text):
    with pytest.raises(sqlite3.Error, match="har must be an HTTP Archive"):
        load(db, text)
    assert one(db, "SELECT count(*) FROM event_payloads") == 0


@pytest.mark.parametrize("url, shown, agent", [
    ("https://u:p@ss@h:8080/v1?a=b#c", "https://h:8080/v1", "h:8080"), ("http://h", "http://h", "h"),
    ("h.example/v1?k=v", "h.example/v1", "h.example"), ("u:p@h/a://b", "h/a://b", "h"), ("//h/v1", "//h/v1", "h"),
    ("http://h?k=v", "http://h", "h"), ("http://h/a@b#k", "http://h/a@b", "h"), ("", "", "har"), (None, "", "har")])
def test_an_address_has_no_query_and_no_password(db, url, shown, agent):
    load(db, har(entry("1", url=url)))
    assert rows(db, "SELECT meta ->> 'url', agent_id FROM event_payloads") == [(shown, agent)]
