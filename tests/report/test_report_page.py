"""A page has what was recorded, whole and safe, and lets nothing out."""
import json
import random
import re

from conftest import one, rows
from report_helpers import Page, as_json, fire, hashes, one_exchange, page, push, ring, visible


def test_the_policy_allows_what_the_page_has_and_nothing_else(db):
    one_exchange(db, "q", "r")
    made = page(db, "kill_switch", "k")
    script = next(text for attributes, text in made.scripts if not attributes)
    assert len(made.styles) == 1 and made.styles[0] and script
    assert made.policy == (
        f"default-src 'none'; script-src {hashes(script)}; style-src {hashes(made.styles[0])};"
        " img-src data: blob:; base-uri 'none'; form-action 'none'")
    assert not [a for _, a in made.tags if {"src", "href", "style"} & a.keys()
                and not a.get("href", "").startswith("#")]


def test_a_duration_is_told_in_two_units(db):
    ring(db)
    times = [0, 59_999, 61_000, 7_336_800, 200_000_000]
    for i, time in enumerate(times):
        agent = f"a{i}"
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
                   " VALUES(?, 'x', 'q', 'r', 1760000000000), (?, 'y', 'q', 'r', ?)",
                   (agent, agent, 1760000000000 + time))
        db.execute("SELECT payload_kill_switch('ring', ?, ?)", (agent, f"k{i}"))
    said = [page(db, "kill_switch", f"k{i}").text for i in range(5)]
    for text, wanted in zip(said, ["0.000 s", "59.999 s", "1 min 1 s", "2 h 2 min", "2 d 7 h"]):
        assert wanted in text, text


def test_the_shell_is_small(db):
    one_exchange(db, "q", "r")
    assert len(one(db, "SELECT blackbox_report('kill_switch', 'k')").encode()) < 112_000


def test_the_pieces_of_a_part_are_its_bytes(db):
    ring(db)
    head = [{"role": "user", "content": f"message {i} " + "x" * 100} for i in range(9)]
    bodies = []
    for i in range(9):
        request = json.dumps({"model": "m", "messages": head[:i + 1], "stream": True})
        bodies.append((request, f"answer {i}"))
        push(db, f"e{i}", *bodies[-1], time=1760000000000 + i)
    fire(db)
    made = page(db, "kill_switch", "k")
    items = made.report["items"]
    assert [item["id"] for item in items] == [f"e{i}" for i in range(9)]
    for item, (request, response) in zip(items, bodies):
        assert made.part(item["parts"][0]) == request.encode()
        assert made.part(item["parts"][1]) == response.encode()
    last = items[-1]["parts"][0]
    new = b"".join(made.block(b)[at:at + n] for b, at, n in last["pieces"][last["new"]:])
    assert b"message 8" in new and b"message 7" not in new


def test_a_shared_head_is_kept_once(db):
    ring(db)
    dice = random.Random(1)
    head = [{"role": "user", "content": dice.randbytes(2400).hex()} for i in range(10)]
    for i in range(50):
        request = json.dumps({"messages": head + [{"role": "user", "content": f"go on {i}"}]})
        push(db, f"e{i}", request, "{}", time=1760000000000 + i)
    fire(db)
    whole = sum(len(t) for a, t in page(db, "kill_switch", "k", bodies="all").scripts
                if a.get("class") == "block")
    shared = page(db, "kill_switch", "k")
    assert 50 * 48_000 < one(db, "SELECT sum(size_bytes) FROM event_payloads")
    assert sum(len(t) for a, t in shared.scripts if a.get("class") == "block") < whole / 10
    assert [part["new"] for item in shared.report["items"][1:]
            for part in item["parts"][:1]] == [1] * 49


def test_a_long_conversation_does_not_name_more_and_more_pieces(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=200)")
    messages, bodies = [], []
    for i in range(150):
        messages.append({"role": "user", "content": f"{i} " + "z" * 80})
        bodies.append(json.dumps({"messages": messages}))
        push(db, f"e{i}", bodies[-1], None, time=1760000000000 + i)
    fire(db)
    made = page(db, "kill_switch", "k")
    parts = [item["parts"][0] for item in made.report["items"]]
    assert max(len(part["pieces"]) for part in parts) <= 64
    for part, body in zip(parts[::10], bodies[::10]):
        assert made.part(part) == body.encode()
        fresh = b"".join(made.block(b)[at:at + n] for b, at, n in part["pieces"][part["new"]:])
        assert len(fresh) < 400


HOSTILE = ('</script><script>alert(1)</script><img src=x onerror="alert(1)">'
           "<a href='javascript:alert(1)'>\u202egnp.exe\u202c <!--data--> <!--script--> "
           "&lt; \u2028 \x01 '\" ]]> a\u00adb\u034fc\u3164d\u180ee\u2800f\u200bg\ufeffh")


def test_traffic_is_text_and_never_markup(db):
    body = json.dumps({"messages": [{"role": "user", "content": HOSTILE}]}, ensure_ascii=False)
    ring(db)
    push(db, HOSTILE, body, HOSTILE, agent=HOSTILE)
    fire(db, HOSTILE, HOSTILE)
    made = page(db, "kill_switch", HOSTILE)
    plain = Page(one(db, "SELECT blackbox_report('kill_switch', ?, '{\"bodies\":\"none\"}')",
                     HOSTILE))
    assert sum(tag == "script" for tag, _ in made.tags) == 3
    assert not [tag for tag, _ in made.tags if tag in ("img", "iframe", "object", "embed")]
    assert not [a for _, a in made.tags for name in a if name.startswith("on")]
    assert [a["href"] for _, a in made.tags if "href" in a] == []
    assert made.report["key"] == made.report["items"][0]["id"] == plain.report["key"]
    assert made.part(made.report["items"][0]["parts"][0]) == body.encode()
    assert made.part(made.report["items"][0]["parts"][1]) == HOSTILE.encode()
    assert visible(made.text) and visible(made.report["title"])
    assert as_json(db, "kill_switch", HOSTILE)["items"][0]["parts"][1]["text"] == HOSTILE


def test_bytes_that_are_no_text_are_kept_and_shown_as_unknown(db):
    db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body,"
               " purpose, kill_switch_event_id, created_at) VALUES('e', 'a',"
               " CAST(x'eda08041ff00c0af' AS TEXT), x'89504e470d0a1a0a0001', 'evidence', 'k',"
               " '2026-01-31T12:00:00.000Z')")
    made = page(db, "kill_switch", "k")
    request, response = made.report["items"][0]["parts"]
    assert made.part(request) == b"\xed\xa0\x80A\xff\0\xc0\xaf"
    assert made.part(response) == b"\x89PNG\r\n\x1a\n\0\1"
    assert (request["type"], response["type"]) == ("application/octet-stream", "image/png")
    assert visible(made.source.split("<script")[0])
    parts = as_json(db, "kill_switch", "k")["items"][0]["parts"]
    assert parts[0]["base64"] == "7aCAQf8AwK8="


def test_a_line_of_10_mb_is_kept_and_its_title_is_short(db):
    body = "<b>" + "a" * 10_000_000
    one_exchange(db, body, body)
    made = page(db, "kill_switch", "k")
    item = made.report["items"][0]
    assert made.part(item["parts"][0]) == body.encode()
    assert item["parts"][1]["pieces"] == item["parts"][0]["pieces"]
    assert len(item["title"]) == 200
    assert len(made.source) < 200_000


def test_the_lines_are_the_text(db):
    one_exchange(db, '{"a":1}', "r\ns")
    made = re.compile(r'"made":\d+|made <time.*?</time>')
    for options in '{}', '{"format":"json"}':
        text = one(db, "SELECT blackbox_report('kill_switch', 'k', ?)", options)
        lines = [r[0] for r in rows(
            db, "SELECT line FROM blackbox_report_lines('kill_switch', 'k', ?)", options)]
        assert made.sub("", "\n".join(lines)) == made.sub("", text)
        assert not text.endswith("\n")
