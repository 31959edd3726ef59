"""Exports: the recording to save, and as steps for two kinds of replay."""
import json
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from evidence_helpers import ADD, action, approved, rec, second_shape, well

KINDS = ["click", "dblclick", "type", "select", "check", "uncheck", "navigate",
         "scroll", "hover", "focus", "blur", "submit", "keydown"]


def put(db, *docs):
    for i, doc in enumerate(docs):
        db.execute(ADD, (f"x{i}", i, doc if isinstance(doc, str) else json.dumps(doc), None))


def chain(*strategies, **more):
    return {"eventType": "click", "fallbackChain": {"strategies": list(strategies)}, **more}


def steps(db):
    return json.loads(one(db, "SELECT evidence_export_puppeteer('rec')"))["puppeteerSteps"]


def flow(db):
    return json.loads(one(db, "SELECT evidence_export_replay('rec')"))


def test_export_prunes_a_copy_and_with_1_the_rows(rec):
    docs = [action(2), second_shape(3), action(1)]
    for i, doc in enumerate(docs):
        rec.execute("INSERT INTO rec(id, timestamp, action, screenshot, pinned) "
                    "VALUES(?, ?, ?, x'01', ?)", (f"x{i}", 9 - i, json.dumps(doc), i == 2))
    before = rows(rec, "SELECT * FROM rec")
    out = json.loads(one(rec, "SELECT evidence_export('rec', 0, 1700000000123)"))
    want = [approved(d, 9 - i) for i, d in reversed(list(enumerate(docs)))]
    assert out["actions"] == want
    size = out["sizeBytes"]
    assert out["metadata"] == {
        "exportedAt": 1700000000123, "originalActionCount": 3, "prunedActionCount": 3,
        "missingActionCount": 0, "compressionRatio": pytest.approx(size / (70 * 1024 * 1024)), "damaged": []}
    assert rows(rec, "SELECT * FROM rec") == before
    again = json.loads(one(rec, "SELECT evidence_export('rec', 1, 1700000000123)"))
    assert again == out
    assert rows(rec, "SELECT pruned, screenshot IS NULL FROM rec") == [(1, 1), (1, 1), (0, 0)]
    stored = [json.loads(r[0]) for r in rows(rec, "SELECT action FROM rec WHERE pruned")]
    assert stored == [want[2], want[1]]
    assert size == 300 + one(rec, "SELECT sum(length(CAST(value AS BLOB))) FROM "
                             "json_each(evidence_export('rec'), '$.actions')")
    well(rec)


def test_exports_of_an_empty_buffer_and_bad_arguments(rec):
    out = json.loads(one(rec, "SELECT evidence_export_puppeteer('rec')"))
    assert out["actions"] == out["puppeteerSteps"] == [] and out["sizeBytes"] == 0
    assert flow(rec) == {"title": "rec", "steps": []}
    for sql, message in [("SELECT evidence_export('rec', 2)", "prune must be"),
                         ("SELECT evidence_export('rec', 0, 'now')", "now must be"),
                         ("SELECT evidence_export('none')", "NotFoundError"),
                         ("SELECT evidence_export(NULL)", "table name must be")]:
        with pytest.raises(sqlite3.Error, match=message):
            rec.execute(sql)


def test_an_export_can_be_stored_by_the_statement_that_makes_it(rec):
    put(rec, action(1))
    rec.execute("CREATE TABLE saved(doc)")
    rec.execute("INSERT INTO saved SELECT evidence_export('rec')")
    assert one(rec, "SELECT doc ->> '$.actions[0].id' FROM saved") == "a1"
    with pytest.raises(sqlite3.OperationalError, match="MisuseError|SELECT of its own"):
        rec.execute("INSERT INTO saved SELECT evidence_export('rec', 1)")


def test_damaged_actions_are_named_and_left_out(rec, path):
    put(rec, {"eventType": "click"}, {"eventType": "hover"}, {"eventType": "blur"})
    by_hand(path, "UPDATE rec_actions SET action = '{x' WHERE rid = 2")
    out = json.loads(one(rec, "SELECT evidence_export('rec')"))
    assert [a["eventType"] for a in out["actions"]] == ["click", "blur"]
    assert out["metadata"]["damaged"] == ["x1"]
    assert out["metadata"]["originalActionCount"] == 3
    assert out["metadata"]["prunedActionCount"] == 2
    assert len(steps(rec)) == len(flow(rec)["steps"]) == 2


def test_an_export_says_that_its_beginning_is_missing(rec):
    rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 3000)")
    put(rec, *({"eventType": "click", "n": "x" * 200} for _ in range(30)))
    kept = one(rec, "SELECT count(*) FROM rec")
    assert 0 < kept < 10
    rec.execute("DELETE FROM rec WHERE id = 'x29'")  # by hand: not missed
    told = json.loads(one(rec, "SELECT evidence_export('rec', 1)"))["metadata"]
    assert told["originalActionCount"] == 29 and told["prunedActionCount"] == kept - 1
    assert told["missingActionCount"] == 30 - kept
    assert flow(rec)["title"] == f"rec ({30 - kept} earlier actions were pruned)"
    rec.execute("SELECT evidence_clear('rec')")
    put(rec, {"eventType": "click"})
    told = json.loads(one(rec, "SELECT evidence_export('rec')"))["metadata"]
    assert told["originalActionCount"] == 1 and told["missingActionCount"] == 0
    assert flow(rec)["title"] == "rec"


def framed(chain, **more):
    return {"eventType": "click", "domData": {"selector": "#pay", "iframeChain": chain}, **more}


@pytest.mark.parametrize("chain, frame", [
    ([], None), (None, None), ([0], [0]), ([2, 0], [2, 0]),
    ([{"index": 1, "id": "f"}, {"index": 3}], [1, 3])])
def test_a_step_names_the_frame_of_its_action(rec, chain, frame):
    kinds = ["click", "dblclick", "type", "hover", "scroll", "focus", "keydown"]
    put(rec, *(framed(chain, eventType=kind, value="1,2") for kind in kinds),
        {"actionType": "click", "evidence": {"dom": {"iframeChain": chain,
                                                     "selector": "#pay"}}},
        framed(chain, domData={"iframeChain": chain}, fallbackChain={"strategies": [
            {"type": "coordinates", "metadata": {"x": 1, "y": 2}}]}))
    told = flow(rec)["steps"]
    assert [s.get("frame") for s in told if not s["type"].startswith("key")] == [frame] * 9
    assert [s["type"] for s in told][:6] == [
        "click", "doubleClick", "change", "hover", "scroll", "waitForExpression"]
    assert told[-1]["selectors"] == [["html"]]
    assert [s.get("frame") for s in steps(rec)] == [chain or None] * 9


@pytest.mark.parametrize("chain", [
    ["#card"], [0, "iframe"], [-1], [1.5], [{"id": "f"}], [{"index": "0"}], "#card", {"index": 0}])
def test_a_frame_that_a_step_cannot_name_makes_a_step_of_its_own(rec, chain):
    put(rec, framed(chain), framed(chain, eventType="keydown", value="a"))
    assert flow(rec)["steps"] == [
        {"type": "customStep", "target": "main", "name": name, "parameters": {
            "value": value, "selectors": ["#pay"], "frame": chain}}
        for name, value in (("click", None), ("keydown", "a"))]
    assert [s["frame"] for s in steps(rec)] == [chain] * 2


def test_going_to_a_page_in_a_frame_is_a_step_of_its_own(rec):
    put(rec, framed([0], eventType="navigate", value="http://x/"))
    step = flow(rec)["steps"][0]
    assert (step["type"], step["name"], step["parameters"]["value"]) == (
        "customStep", "navigate", "http://x/")


def test_selectors_come_from_the_whole_chain_in_order_and_once(rec):
    put(rec, chain(
        {"type": "dom_selector", "selector": "#go", "confidence": 1},
        {"type": "css_selector", "selector": "//div[@id='x']"},
        {"type": "css_selector", "selector": "(//a)[2]"},
        {"type": "cdp_semantic", "metadata": {"role": "button", "name": "Save"}},
        {"type": "cdp_semantic", "metadata": {"role": "link"}},
        {"type": "cdp_semantic", "metadata": {}},
        {"type": "cdp_power", "metadata": {"text": "Hi", "label": "L", "placeholder": 'a"b\\'}},
        {"type": "vision_ocr", "metadata": {"targetText": "Seen"}},
        {"type": "evidence_scoring", "metadata": {"endpoint": {"x": 1, "y": 2}}},
        {"type": "coordinates", "metadata": {"x": 30, "y": 40.5}},
        {"type": "dom_selector", "selector": "#go"}, {"type": "made_up", "selector": "i"},
        None, "text", {"type": "cdp_power", "metadata": "odd"}, {"selector": 5},
        domData={"selector": "#go", "xpath": "/html/a", "uniqueSelector": "#u"}))
    assert steps(rec) == [{
        "action": "click", "selector": "#go",
        "fallbacks": ["xpath///div[@id='x']", "xpath/(//a)[2]",
                      'aria/Save[role="button"]', 'aria/[role="link"]', "text/Hi", "aria/L",
                      '[placeholder="a\\"b\\\\"]', "text/Seen", "i", "#u", "xpath//html/a"],
        "position": {"x": 30, "y": 40.5}}]


def test_every_kind_of_event_in_both_exports(rec):
    put(rec, *({"eventType": kind, "value": "5,60" if kind == "scroll" else f"v-{kind}",
                "fallbackChain": {"strategies": [{"type": "dom_selector", "selector": "#e"}]}}
               for kind in KINDS))
    made = steps(rec)
    assert [s["action"] for s in made] == KINDS
    assert all(s["selector"] == ("" if s["action"] == "navigate" else "#e") for s in made)
    assert [s["value"] for s in made][0] == "v-click"
    assert {"action", "selector", "fallbacks", "value"} == set(made[0])
    types = [s["type"] for s in flow(rec)["steps"]]
    assert types == ["click", "doubleClick", "change", "change", "click", "click", "navigate",
                     "scroll", "hover", "waitForExpression", "waitForExpression",
                     "waitForExpression", "waitForExpression", "keyDown", "keyUp"]
    by = {s["type"]: s for s in flow(rec)["steps"]}
    assert by["navigate"]["url"] == "v-navigate"
    assert (by["scroll"]["x"], by["scroll"]["y"]) == (5, 60)
    assert by["change"]["value"] == "v-select" and by["change"]["selectors"] == [["#e"]]
    assert by["keyUp"]["key"] == "v-keydown"
    assert 'document.querySelector("#e")' in by["waitForExpression"]["expression"]


@pytest.mark.parametrize("doc, step", [
    (chain({"type": "coordinates", "metadata": {"x": 7, "y": 8}}),
     {"selectors": [["html"]], "offsetX": 7, "offsetY": 8}),
    (chain({"type": "dom_selector", "selector": "a"},
           {"type": "coordinates", "metadata": {"x": 17, "y": 28}},
           domData={"boundingRect": {"x": 10, "y": 20, "width": 30, "height": 10}}),
     {"selectors": [["a"]], "offsetX": 7, "offsetY": 8}),
    (chain({"type": "dom_selector", "selector": "a"},
           {"type": "coordinates", "metadata": {"x": 99, "y": 99}},
           domData={"boundingRect": {"left": 10, "top": 20, "width": 30, "height": 10}}),
     {"selectors": [["a"]], "offsetX": 15, "offsetY": 5}),
    (chain({"type": "dom_selector", "selector": "a"}),
     {"selectors": [["a"]], "offsetX": 1, "offsetY": 1}),
    (chain(), {"type": "customStep", "name": "click"}),
    ({}, {"type": "customStep", "name": "unknown"}),
    ({"eventType": "swipe", "selector": "a"}, {"type": "customStep", "name": "swipe"}),
    (chain({"type": "dom_selector", "selector": "b"}, domData={"isInShadowDOM": True}),
     {"selectors": [["pierce/b"]]}),
    ({"eventType": "scroll", "value": '{"x":3,"y":4}'}, {"type": "scroll", "x": 3, "y": 4}),
    ({"eventType": "scroll", "value": "250"}, {"type": "scroll", "x": 0, "y": 250}),
    ({"actionType": "navigate", "metadata": {"url": "http://u/"}},
     {"type": "navigate", "url": "http://u/"}),
    ({"actionType": "type", "selector": "#s", "value": "t"},
     {"type": "change", "selectors": [["#s"]], "value": "t"}),
    ({"eventType": "blur", "fallbackChain": {"strategies": [
        {"type": "vision_ocr", "metadata": {"targetText": "t"}}]}}, {"type": "customStep"}),
])
def test_each_kind_of_action_makes_its_replay_step(rec, doc, step):
    put(rec, doc)
    made = flow(rec)["steps"][0]
    assert {k: made[k] for k in step} == step


def test_the_title_of_a_replay_is_quoted(path):
    db = connect(path)
    db.execute('CREATE VIRTUAL TABLE "a ""b" USING evidence_buffer')
    assert json.loads(one(db, "SELECT evidence_export_replay('a \"b')"))["title"] == 'a "b'


AT = {"fallbackChain": {"strategies": [{"type": "dom_selector", "selector": "#a"}]}}


@pytest.mark.parametrize("doc, step", [
    ({"eventType": "scroll"}, {"type": "scroll", "target": "main", "x": 0, "y": 0}),
    ({"eventType": "scroll", "value": {"x": "a", "y": 5}},
     {"type": "scroll", "target": "main", "x": 0, "y": 5}),
    ({"eventType": "scroll", "value": "1e999"},
     {"type": "scroll", "target": "main", "x": 0, "y": 1e9}),
    ({"eventType": "navigate", "value": 5}, {"type": "navigate", "url": "5"}),
    ({"eventType": "navigate", "metadata": {"url": 5}},
     {"type": "navigate", "url": "about:blank"}),
])
def test_replay_steps_have_the_types_that_players_ask_for(rec, doc, step):
    put(rec, {**AT, **doc})
    assert flow(rec)["steps"] == [step]


def test_values_that_are_not_text_are_written_as_json(rec):
    put(rec, *({**AT, "eventType": kind, "value": value} for kind, value in (
        ("type", 5), ("keydown", 5), ("type", True), ("type", None), (5, "x"))))
    assert [(s["action"], s.get("value")) for s in steps(rec)] == [
        ("type", "5"), ("keydown", "5"), ("type", "true"), ("type", None), ("", "x")]
    told = flow(rec)["steps"]
    assert [s["value"] for s in told if s["type"] == "change"] == ["5", "true", ""]
    assert [s["key"] for s in told if s["type"] == "keyDown"] == ["5"]
    assert told[-1]["type"] == "customStep" and told[-1]["name"] == "unknown"


def test_infinite_numbers_are_limited_in_an_export(rec):
    for i, text in enumerate((
            '{"eventType":"click","fallbackChain":{"strategies":'
            '[{"type":"coordinates","metadata":{"x":1e400,"y":-1e400}}]}}',
            '{"eventType":"click","domData":{"selector":"#a",'
            '"boundingRect":{"x":1,"y":1,"width":1e999,"height":2}}}')):
        rec.execute(ADD, (f"x{i}", i, text, None))
    assert steps(rec)[0]["position"] == {"x": 1e9, "y": -1e9}
    assert [(s["offsetX"], s["offsetY"]) for s in flow(rec)["steps"]] == [
        (1e9, -1e9), (1e9, 1)]


def test_a_value_with_a_nul_stays_whole(rec):
    values = ["\0abc", "a\0b", "\\u0000", "a\\\0", "\0"]
    put(rec, *({**AT, "eventType": kind, "value": value} for kind in
               ("type", "navigate", "keydown", "odd") for value in values),
        {**AT, "eventType": "navigate", "metadata": {"url": "u\0v"}},
        {**AT, "eventType": "scroll", "value": "5,6\0"})
    assert [s["value"] for s in steps(rec) if "value" in s] == values * 4 + [
        "u\0v", "5,6\0"]
    told = flow(rec)["steps"]
    for kind, of in (("change", lambda s: s["value"]), ("keyUp", lambda s: s["key"]),
                     ("customStep", lambda s: s["parameters"]["value"])):
        assert [of(s) for s in told if s["type"] == kind] == values
    assert [s["url"] for s in told if s["type"] == "navigate"] == [*values, "u\0v"]
    assert told[-1] == {"type": "scroll", "target": "main", "x": 5, "y": 6}


def test_a_selector_with_a_nul_is_left_out(rec, path):
    put(rec, chain(
        {"type": "dom_selector", "selector": "#a\0b"},
        {"type": "cdp_power", "metadata": {"text": "A\0B", "label": "\0", "placeholder": "\0c"}},
        {"type": "cdp_semantic", "metadata": {"role": "button", "name": "x\0"}},
        {"type": "cdp_semantic", "metadata": {"role": "r\0", "name": "x"}},
        {"type": "vision_ocr", "metadata": {"targetText": "t\0t"}},
        {"type": "vision_ocr", "metadata": {"targetText": "\\u0000"}},
        {"type": "css_selector", "selector": "#ok"},
        domData={"selector": "#d\0", "xpath": "//x\0"}))
    assert [(s["selector"], s["fallbacks"]) for s in steps(rec)] == [
        ("text/\\u0000", ["#ok"])]


def test_an_event_type_with_a_nul_is_an_unknown_type(rec):
    put(rec, {**AT, "eventType": "click\0"}, {**AT, "actionType": "hov\0er"})
    assert [s["action"] for s in steps(rec)] == ["click\0", "hov\0er"]
    assert [(s["type"], s["name"]) for s in flow(rec)["steps"]] == [
        ("customStep", "click\0"), ("customStep", "hov\0er")]


@pytest.mark.parametrize("shadow", [False, True])
def test_selectors_with_a_prefix_stay_as_they_are(rec, shadow):
    put(rec, {"eventType": "click", "domData": {"isInShadowDOM": shadow},
              "fallbackChain": {"strategies": [
                  {"type": "a", "selector": s} for s in (
                      "pierce/#a", "aria/Save", "text/Hi", "xpath///a", " //b ", "  ",
                      "\n#c")]}})
    css = "pierce/#c" if shadow else "#c"
    step = steps(rec)[0]
    assert [step["selector"], *step["fallbacks"]] == [
        "pierce/#a", "aria/Save", "text/Hi", "xpath///a", "xpath///b", css]


def test_metadata_that_is_not_text_makes_no_selector(rec):
    put(rec, {"eventType": "click", "fallbackChain": {"strategies": [
        {"type": "cdp_semantic", "metadata": {"name": 5, "role": {"a": 1}}},
        {"type": "cdp_power", "metadata": {"text": [1], "label": True, "placeholder": 2}},
        {"type": "vision_ocr", "metadata": {"targetText": 7}},
        {"type": "css", "selector": "#a"}]}})
    assert (steps(rec)[0]["selector"], steps(rec)[0]["fallbacks"]) == ("#a", [])


def test_a_placeholder_inside_a_shadow_root_is_a_pierce_selector(rec):
    put(rec, {"eventType": "click", "domData": {"isInShadowDOM": True}, "fallbackChain": {
        "strategies": [{"type": "cdp_power", "metadata": {"placeholder": "p"}}]}})
    assert steps(rec)[0]["selector"] == 'pierce/[placeholder="p"]'


@pytest.mark.parametrize("kind", ["eventType", "actionType"])
def test_navigation_has_its_url_in_both_exports(rec, kind):
    put(rec, {kind: "navigate", "metadata": {"url": "http://x/"}})
    assert steps(rec)[0]["value"] == "http://x/"
    assert [s["url"] for s in flow(rec)["steps"] if s["type"] == "navigate"] == ["http://x/"]


def test_text_that_is_not_utf8_is_damaged_and_the_others_are_exported(rec, path):
    put(rec, {"a": "1"}, {"a": "2"})
    by_hand(path, "UPDATE rec_actions SET action = "
                  "CAST(x'7b2261223a22eda0227d' AS TEXT) WHERE rid = 1")
    for prune in 0, 1:
        result = json.loads(one(rec, "SELECT evidence_export('rec', ?)", prune))
        assert result["actions"] == [{"a": "2"}]
        assert len(result["metadata"]["damaged"]) == 1
