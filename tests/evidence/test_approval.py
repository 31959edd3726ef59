"""Approval: it keeps exactly the listed fields, in both shapes. Unexpected values are kept and
reported."""
import json
import sqlite3

import pytest

from conftest import by_hand, connect, one, rows
from evidence_helpers import ADD, MAKE, action, approved, random_action, second_shape, well


@pytest.fixture(params=["main", "temp", "overflowed"])
def rec(request, path):
    """A buffer on disk, in memory, or with every row in the overflow."""
    db = connect(path)
    temp = MAKE.replace("TABLE rec", "TABLE temp.rec")
    db.execute({"main": MAKE, "temp": temp,
                "overflowed": temp + "(overflow='main')"}[request.param])
    yield db
    db.close()


def put(db, docs, shot=b"shot"):
    for i, doc in enumerate(docs):
        text = doc if isinstance(doc, str) else json.dumps(doc, ensure_ascii=False)
        db.execute("INSERT INTO rec(id, timestamp, action, screenshot) VALUES(?, ?, ?, ?)",
                   (f"x{i}", 1000 + i, text, shot))
    if one(db, "SELECT owner FROM evidence_stats('rec')"):
        assert one(db, "SELECT evidence_flush('rec')") == len(docs)


def approve(db, *arguments):
    marks = "".join(", ?" for _ in arguments)
    return json.loads(one(
        db, f"SELECT evidence_prune_for_approval('rec'{marks})", *arguments))


def actions(db):
    return [r[0] for r in rows(db, "SELECT action FROM rec ORDER BY timestamp")]


def large(path, journal="WAL"):
    """A buffer after the approval of 30 MB, as blackbox_install() makes its file."""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'evidence')")
    db.execute(f"PRAGMA journal_mode = {journal}")
    db.execute("PRAGMA secure_delete = ON")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("BEGIN")
    for i in range(60):
        db.execute(ADD, (f"a{i}", i, '{"networkData":"' + "n" * 100_000 + '"}',
                         bytes([i]) * 400_000))
    db.execute("UPDATE rec SET pinned = 1 WHERE id = 'a7'")
    db.execute("COMMIT")
    one(db, "SELECT evidence_prune_for_approval('rec', 1)")
    assert one(db, "SELECT sum(size_bytes) FROM rec WHERE id NOT IN ('a7', 'a59')") == 58 * 102
    assert one(db, "SELECT stale FROM rec_state") == 60
    well(db)
    return db


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
@pytest.mark.parametrize("by", ["rec", "other"])
def test_later_writes_sweep_what_approval_has_left_step_by_step(path, journal, by):
    db = large(path, journal)
    before = rows(db, "SELECT * FROM rec")
    db.execute("CREATE VIRTUAL TABLE other USING evidence_buffer")
    sizes = [one(db, "PRAGMA page_count")]
    assert sizes[0] > 6500
    for i in range(80):
        db.execute(ADD.replace("rec", by), (f"x{i}", 100 + i, "{}", None))
        sizes.append(one(db, "PRAGMA page_count"))
        assert sizes[-2] - sizes[-1] < 400
    assert sizes[-1] < 450 and one(db, "PRAGMA freelist_count") < 150  # of the pin
    assert one(db, "SELECT stale FROM rec_state") == 0
    assert rows(db, "SELECT * FROM evidence__sweeps") == []
    assert rows(db, "SELECT * FROM rec WHERE id GLOB 'a*'") == before
    well(db)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert path.read_bytes().count(b"nnnnnnnn") < 13_000  # those of a7


@pytest.mark.parametrize("sql", [
    "INSERT INTO rec(rec) VALUES('sweep')", "SELECT evidence_prune('rec')",
    "SELECT evidence_clear('rec')", "DROP TABLE rec"])
def test_a_call_sweeps_at_once(path, sql):
    db = large(path)
    db.execute("UPDATE rec SET pinned = 0")
    db.execute(sql).fetchall()
    assert rows(db, "SELECT * FROM evidence__sweeps") == [] or "DROP" in sql
    if "DROP" not in sql:
        assert one(db, "SELECT count(*) FROM rec_shots") < 3
        well(db)
    db.execute("CREATE VIRTUAL TABLE next USING evidence_buffer")
    db.execute(ADD.replace("rec", "next"), ("x", 1, "{}", None))
    assert rows(db, "SELECT * FROM evidence__sweeps") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_rows_change_before_they_are_swept(path):
    db = large(path)
    db.execute("UPDATE rec SET screenshot = x'09' WHERE id = 'a58'")
    db.execute("UPDATE rec SET action = '{\"new\":1}' WHERE id = 'a57'")
    db.execute("UPDATE rec SET pinned = 1 WHERE id IN ('a55', 'a56')")
    db.execute("DELETE FROM rec WHERE id = 'a54'")
    db.execute("ALTER TABLE rec RENAME TO tape")
    one(db, "SELECT evidence_prune_for_approval('tape', 3)")
    well(db, "tape")
    db.execute("INSERT INTO tape(tape) VALUES('sweep')")
    db.execute("UPDATE tape SET pinned = 0")
    well(db, "tape")
    assert rows(db, "SELECT id, action, screenshot FROM tape WHERE id IN ('a55', 'a57', 'a58')"
                ) == [("a55", "{}", None), ("a57", '{"new":1}', None), ("a58", "{}", b"\x09")]
    assert rows(db, "SELECT * FROM evidence__sweeps") == []


def test_an_erasure_leaves_nothing_to_sweep(path):
    db = large(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    one(db, "SELECT blackbox_erase('text', 'nnnnnnnn', 'ann', 'asked', '{\"unpin\":true}')")
    assert rows(db, "SELECT id FROM rec WHERE action GLOB '*nnnn*'") == []
    assert one(db, "SELECT count(*) FROM rec_actions WHERE action GLOB '*nnnn*'") == 0
    well(db)


@pytest.mark.parametrize("journal", ["DELETE", "WAL"])
@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("schema", ["main", "temp"])
def test_approval_gives_pages_back_where_auto_vacuum_allows(path, journal, begin, schema):
    db = connect(path)
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(f"PRAGMA journal_mode = {journal}")
    more = "(overflow='main')" if schema == "temp" else ""
    db.execute(f"CREATE VIRTUAL TABLE {schema}.rec USING evidence_buffer{more}")
    db.execute("CREATE TABLE other(x)")
    db.execute("INSERT INTO other VALUES(zeroblob(1000000))")
    for i in range(20):
        db.execute(ADD, (f"a{i}", i, "{}", bytes([i]) * 50_000))
    if schema == "temp":
        one(db, "SELECT evidence_flush('rec')")
    db.execute("DELETE FROM other")
    before, free = one(db, "PRAGMA page_count"), one(db, "PRAGMA freelist_count")
    if begin:
        db.execute("BEGIN")
    one(db, "SELECT evidence_prune_for_approval('rec')")
    after = one(db, "PRAGMA page_count")
    assert before - after == pytest.approx(1_000_000 / 4096, abs=5)
    assert one(db, "PRAGMA freelist_count") >= free  # it must not return older free pages
    if begin:
        db.execute("ROLLBACK")
        assert one(db, "PRAGMA page_count") == before
        assert one(db, "SELECT count(screenshot) FROM rec") == 20
    for name in "main", "temp":  # SQLite 3.38 errs if it checks both at once
        assert one(db, f"PRAGMA {name}.integrity_check") == "ok"
    well(db)


def test_both_shapes_and_random_fields_as_the_specification_says(rec):
    docs = [action(1), second_shape(2), {}, {"fallbackChain": {}}]
    docs += [random_action(i) for i in range(60)]
    put(rec, docs)
    before = one(rec, "SELECT sum(size_bytes) FROM rec")
    done = approve(rec)
    for i, (text, doc) in enumerate(zip(actions(rec), docs)):
        assert json.loads(text) == approved(doc, 1000 + i), i
    after = one(rec, "SELECT sum(size_bytes) FROM rec")
    assert done == {"beforeSize": before, "afterSize": after, "actionsRemoved": 0,
                    "screenshotsRemoved": len(docs), "duration": done["duration"],
                    "problems": []}
    assert after == sum(len(t.encode()) + 100 for t in actions(rec)) < before
    assert rows(rec, "SELECT DISTINCT pruned, screenshot FROM rec") == [(1, None)]
    well(rec)
    kept = actions(rec)
    again = approve(rec)
    assert again["beforeSize"] == again["afterSize"] == after
    assert actions(rec) == kept


def test_approving_an_approved_text_changes_nothing(rec):
    put(rec, [action(1), second_shape(2)] + [random_action(i) for i in range(20)])
    approve(rec)
    kept = actions(rec)
    rec.execute("DELETE FROM rec")
    put(rec, kept)
    approve(rec)
    assert actions(rec) == kept


ODD = [
    ({"fallbackChain": {"strategies": {"a": 1}}}, "$.fallbackChain.strategies", "not an array"),
    ({"fallbackChain": {"strategies": "none"}}, "$.fallbackChain.strategies", "not an array"),
    ({"fallbackChain": {"strategies": [None]}}, "$.fallbackChain.strategies[0]", "not an object"),
    ({"fallbackChain": {"strategies": [{"type": "x"}, True, 1.5, "s", [1, 2]]}},
     "$.fallbackChain.strategies[1]", "not an object"),
    ({"fallbackChain": {"strategies": [{"type": "cdp_power", "confidence": 1,
                                        "metadata": "text"}]}},
     "$.fallbackChain.strategies[0]", "metadata is not an object"),
    ({"fallbackChain": {"strategies": [{"type": "cdp_semantic", "metadata": [1]}]}},
     "$.fallbackChain.strategies[0]", "metadata is not an object"),
    ({"visionData": "data:image/png"}, "$.visionData", "not an object"),
    ({"visionData": [1]}, "$.visionData", "not an object"),
    ({"mouseData": 5}, "$.mouseData", "not an object"),
    ({"mouseData": {"trail": [1, 2], "duration": 3}}, "$.mouseData", "no end point"),
    ({"mouseData": {"trail": [1], "endpoint": [1, 2]}}, "$.mouseData", "no end point"),
    ({"evidence": {"vision": 1, "mouse": {"endpoint": {"x": 1}}}}, "$.evidence.vision",
     "not an object"),
]


def test_values_of_an_unexpected_type_are_kept_and_reported(rec):
    put(rec, [doc for doc, _, _ in ODD])
    done = approve(rec)
    told = {(p["id"], p["path"]): p["problem"] for p in done["problems"]}
    for i, (doc, path, problem) in enumerate(ODD):
        assert told[f"x{i}", path] == problem
        if "evidence" not in doc:
            assert json.loads(actions(rec)[i]) == doc
    assert approve(rec)["problems"] == done["problems"]
    well(rec)


def test_numbers_as_text_null_metadata_and_texts_at_the_limit(rec):
    chain = [{"type": "cdp_power", "confidence": "0.9",
              "metadata": {"text": text, "label": 5}}
             for text in ("日" * 100, "日" * 101, "é" * 300, 7, True, "", "a\u0000b")]
    chain += [{"type": kind, "confidence": 1, "metadata": None}
              for kind in ("cdp_power", "unheard_of")]
    chain += [{"type": "coordinates", "confidence": 1, "metadata": {"x": "12", "y": None}},
              {"type": None}, {"type": "vision_ocr", "selector": "0"}]
    put(rec, [{"timestamp": "77", "fallbackChain": {"strategies": chain},
               "mouseData": {"endpoint": {"x": "1", "timestamp": 4}}}])
    at = "$.fallbackChain.strategies[%d]"
    told = [(p["path"], p["problem"]) for p in approve(rec)["problems"]]
    assert sorted(told) == sorted(
        [(at % i, "confidence is not a number") for i in range(7)]
        + [(at % i, "label is not text") for i in range(7)]
        + [(at % i, "text is not text") for i in (3, 4)] + [(at % 9, "x is not a number")])
    doc = json.loads(actions(rec)[0])
    kept = doc["fallbackChain"]["strategies"]
    assert [s["metadata"]["text"] for s in kept[:7]] == [
        "日" * 100, "日" * 100, "é" * 100, 7, True, "", "a\u0000b"]
    assert kept[0]["confidence"] == "0.9" and kept[0]["metadata"]["label"] == 5
    assert kept[7:] == [{"type": "cdp_power", "confidence": 1},
                        {"type": "unheard_of", "confidence": 1},
                        {"type": "coordinates", "confidence": 1,
                         "metadata": {"x": "12", "y": None}},
                        {"type": None}, {"type": "vision_ocr", "selector": "0"}]
    assert doc["mouseData"]["trail"] == [{"x": "1", "timestamp": "77"}]


def test_keep_screenshots_and_pins(rec):
    put(rec, [action(i) for i in range(8)])
    rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'x1'")
    done = approve(rec, 3)
    assert rows(rec, "SELECT id, pruned FROM rec WHERE screenshot IS NOT NULL") == [
        ("x1", 0), ("x5", 1), ("x6", 1), ("x7", 1)]
    assert done["screenshotsRemoved"] == 4
    assert json.loads(one(rec, "SELECT action FROM rec WHERE id = 'x1'")) == action(1)
    rec.execute("UPDATE rec SET pinned = 0")
    assert approve(rec)["screenshotsRemoved"] == 4
    well(rec)
    with pytest.raises(sqlite3.IntegrityError, match="keep_screenshots"):
        approve(rec, -1)


@pytest.mark.parametrize("damage", ["{broken", "5", "[{}]", " [1]"])
def test_damaged_rows_are_kept_and_reported_and_do_not_stop_the_others(rec, path, damage):
    put(rec, [action(0), action(1), "\n\t " + json.dumps(action(2))])
    overflowed = one(rec, "SELECT using_overflow FROM evidence_stats('rec')")
    table = "evidence__overflow" if overflowed else "rec_actions"
    change = f"UPDATE {table} SET action = '{damage}' WHERE rid = 2"
    if rows(rec, "SELECT 1 FROM temp.sqlite_schema WHERE name = ?", table):
        try:
            rec.execute(change)
        except sqlite3.OperationalError as error:  # in defensive mode
            assert "may not be modified" in str(error)
            pytest.skip("only this connection has the table, and may not write it")
    else:
        by_hand(path, change)
    done = approve(rec)
    assert done["problems"] == [{"id": "x1", "path": "$", "problem": "damaged JSON"}]
    assert rows(rec, "SELECT id, pruned FROM rec") == [("x0", 1), ("x1", 0), ("x2", 1)]
    assert one(rec, f"SELECT action FROM {table} WHERE rid = 2") == damage


def test_a_changed_action_is_approved_anew(rec):
    put(rec, [action(1)])
    approve(rec)
    rec.execute("UPDATE rec SET action = ?", (json.dumps(action(2)),))
    assert one(rec, "SELECT pruned FROM rec") == 0
    approve(rec)
    assert json.loads(actions(rec)[0]) == approved(action(2))
    well(rec)


def test_approval_rolls_back_and_works_as_a_row(rec):
    put(rec, [action(i) for i in range(4)])
    before = rows(rec, "SELECT id, timestamp, action, screenshot, pruned FROM rec")
    rec.execute("BEGIN")
    approve(rec)
    rec.execute("ROLLBACK")
    assert rows(rec, "SELECT id, timestamp, action, screenshot, pruned FROM rec") == before
    rec.execute("BEGIN")
    rec.execute("INSERT INTO blackbox_call(command, arguments) "
                "VALUES('evidence_prune_for_approval', '[\"rec\", 1]')")
    rec.execute("COMMIT")
    assert rows(rec, "SELECT count(*), count(screenshot), sum(pruned) FROM rec") == [(4, 1, 4)]
    well(rec)
    with pytest.raises(sqlite3.OperationalError, match="MisuseError|unsafe|SELECT of its own"):
        rec.execute("CREATE TABLE t AS SELECT evidence_prune_for_approval('rec')")


def test_ten_thousand_actions_are_approved(path):
    db = connect(path)
    db.execute(MAKE)
    text = json.dumps(action(1, chain=[{"type": "dom_selector", "selector": "#a",
                                        "confidence": 1, "metadata": {"a": 1}}]))
    db.execute("BEGIN")
    db.executemany(ADD, ((f"r{i}", i, text, None) for i in range(10_000)))
    db.execute("COMMIT")
    done = approve(db)
    assert done["afterSize"] < done["beforeSize"] / 5 and done["problems"] == []
    assert one(db, "SELECT count(*) FROM rec WHERE pruned") == 10_000
    assert len({r[0] for r in rows(db, "SELECT action FROM rec")}) == 1
    well(db)


@pytest.mark.parametrize("doc, where, problem", [
    ({"fallbackChain": "x"}, "$.fallbackChain", "not an object"),
    ({"fallbackChain": [{"strategies": []}]}, "$.fallbackChain", "not an object"),
    ({"evidence": [{"network": 1}]}, "$.evidence", "not an object"),
    ({"evidence": "x"}, "$.evidence", "not an object"),
    ({"visionData": {"ocrText": 5}}, "$.visionData.ocrText", "not text"),
    ({"evidence": {"vision": {"confidence": "1"}}}, "$.evidence.vision.confidence",
     "not a number"),
    *(({"fallbackChain": {"strategies": [strategy]}}, "$.fallbackChain.strategies[0]",
       f"{member} is not {kind}") for strategy, member, kind in (
        ({"type": "cdp_power", "metadata": {"text": ["x"]}}, "text", "text"),
        ({"type": "cdp_power", "metadata": {"text": 12345}}, "text", "text"),
        ({"type": "cdp_power", "metadata": {"placeholder": False}}, "placeholder", "text"),
        ({"type": "cdp_semantic", "metadata": {"role": {}}}, "role", "text"),
        ({"type": "cdp_semantic", "metadata": {"name": 0}}, "name", "text"),
        ({"type": "vision_ocr", "metadata": {"targetText": 5}}, "targetText", "text"),
        ({"type": "coordinates", "metadata": {"x": "1", "y": 2}}, "x", "a number"),
        ({"type": "coordinates", "metadata": {"x": 1, "y": [2]}}, "y", "a number"),
        ({"type": "evidence_scoring", "metadata": {"endpoint": "1,2"}}, "endpoint",
         "an object"),
        ({"type": 5, "metadata": {"a": 1, "text": "x" * 200, "mouseTrail": [1]}}, "type",
         "text"),
        ({"type": {"a": 1}, "other": [1]}, "type", "text"),
        ({"type": "x", "metadata": "big"}, "metadata", "an object"),
        ({"type": "x", "metadata": [1]}, "metadata", "an object"),
        ({"type": "x", "metadata": True}, "metadata", "an object"),
        ({"type": "x", "confidence": True}, "confidence", "a number"),
        ({"type": "x", "selector": 5}, "selector", "text"))),
])
def test_odd_parts_are_kept_and_reported(rec, doc, where, problem):
    put(rec, [doc])
    assert [(p["path"], p["problem"]) for p in approve(rec)["problems"]] == [(where, problem)]
    assert json.loads(actions(rec)[0]) == doc
    well(rec)


@pytest.mark.parametrize("strategy", [
    {"type": "x", "metadata": {"a": 1}}, {"metadata": {"a": 1}}, {"type": None},
    {"type": "cdp_power", "metadata": {"text": None, "label": None, "role": 5}},
    {"type": "vision_ocr", "metadata": 0}, {"type": "x", "metadata": ""},
    {"type": "x", "metadata": False, "selector": None, "confidence": None},
    {"type": "dom_selector", "testId": 5, "metadata": {"text": 5, "x": "1"}}])
def test_fields_that_a_type_does_not_keep_are_not_reported(rec, strategy):
    put(rec, [{"fallbackChain": {"strategies": [strategy]}, "visionData": {"other": 5},
               "evidence": {"dom": 5}, "domData": 5}])
    assert approve(rec)["problems"] == []
    kept, = json.loads(actions(rec)[0])["fallbackChain"]["strategies"]
    assert kept == {k: v for k, v in strategy.items()
                    if k in ("type", "confidence")} | (
        {"metadata": {"label": None}} if strategy.get("type") == "cdp_power" else {})


def test_a_text_that_begins_with_a_nul_is_not_an_empty_text(rec):
    action = ('{"fallbackChain":{"strategies":[{"type":"css","selector":"\\u0000a"},'
              '{"type":"x","metadata":"\\u0000a"}]}}')
    rec.execute("INSERT INTO rec(id, timestamp, action) VALUES ('a', 1, ?)", (action,))
    assert [p["problem"] for p in approve(rec)["problems"]] == [
        "metadata is not an object"]
    assert actions(rec) == [action]


def test_odd_parts_are_reported_also_in_a_very_deep_action(rec):
    deep = "[" * 900 + "]" * 900
    rec.execute("INSERT INTO rec(id, timestamp, action) VALUES ('a', 1, ?), ('b', 2, ?)", (
        '{"domData":%s,"fallbackChain":{"strategies":[{"type":7}]}}' % deep,
        '{"domData":%s,"networkData":%s}' % (deep, deep)))
    assert [(p["id"], p["problem"]) for p in approve(rec)["problems"]] == [
        ("a", "type is not text")]
    assert actions(rec)[1] == '{"domData":%s}' % deep


DOUBT = [
    '{"fallbackChain":{"strategies":[{"type":"vision_ocr","metadata":{"target\\u0054ext":"x"}}]}}',
    '{"fallbackChain":{"strategies":[{"ty\\u0070e":"vision_ocr","confidence":1}]}}',
    '{"fallbackChain":{"strategies":[{"type":"a","type":"vision_ocr",'
    '"metadata":{"targetText":"x"}}]}}',
    '{"domData":%s,"networkData":1}' % ("[" * 970 + "]" * 970),
    '{"d":%s,"fallbackChain":{"strategies":[{"ty\\u0070e":"x","a":1}]}}' % (
        "[" * 70 + "]" * 70),
    '{"network\\u0044ata":{}}', '{"visionData":{"ocrText":"a"},"visionData":{"ocrText":"b"}}',
]


@pytest.mark.parametrize("action", DOUBT, ids=range(len(DOUBT)))
def test_actions_with_ambiguous_keys_are_kept_and_reported(rec, action):
    rec.execute("INSERT INTO rec(id, timestamp, action, screenshot) "
                "VALUES ('odd', 1, ?, x'00')", (action,))
    result = json.loads(one(rec, "SELECT evidence_prune_for_approval('rec')"))
    assert result["problems"] == [{
        "id": "odd", "path": "$",
        "problem": "a key with an escape, one that comes twice, or too many levels"}]
    assert rows(rec, "SELECT action, screenshot FROM rec") == [(action, None)]
    assert '"actions":[%s]' % action in one(rec, "SELECT evidence_export('rec')")


@pytest.mark.parametrize("text", ["\\ud83d" + "a" * 200, "A\\u0000B", "a" * 99 + "\\ud83d\\ude00b"])
def test_texts_with_half_a_surrogate_pair_are_approved_and_exported(rec, text):
    action = '{"eventType":"type","value":"v%s","fallbackChain":{"strategies":[' \
        '{"type":"cdp_power","metadata":{"text":"%s"}}]}}'
    rec.execute("INSERT INTO rec(id, timestamp, action) VALUES ('a', 1, ?)",
                (action % (text, text),))
    one(rec, "SELECT evidence_prune_for_approval('rec')")
    kept = json.loads(one(rec, "SELECT action FROM rec"))
    whole = json.loads('"%s"' % text)
    assert kept["fallbackChain"]["strategies"][0]["metadata"]["text"] == whole[:100]
    for form in ("evidence_export_puppeteer", "evidence_export_replay"):
        exported = one(rec, f"SELECT {form}('rec')")
        exported.encode()
        json.loads(exported)
