"""evidence_slim(): it removes the large parts of an action, and copies the rest unchanged."""
import json
import random

import pytest

from conftest import FULL, one

PATHS = (
    "$.networkData", "$.evidence.network", "$.visionData.rawOcrResult",
    "$.visionData.screenshot", "$.visionData.allTextResults",
    "$.evidence.vision.rawOcrResult", "$.evidence.vision.screenshot",
    "$.evidence.vision.allTextResults", "$.mouseData.trail", "$.evidence.mouse.trail",
    *(f"$.fallbackChain.strategies[{i}].metadata.mouseTrail" for i in range(6)))
KEYS = ["networkData", "evidence", "network", "visionData", "vision", "rawOcrResult",
        "screenshot", "allTextResults", "mouseData", "mouse", "trail", "fallbackChain",
        "strategies", "metadata", "mouseTrail", "x", "networkDat", "networkDataX", ""]


def value(dice, depth):
    """The text of a random value. Its keys are the relevant keys, each once."""
    space = lambda: dice.choice(["", "", " ", "\n\t"])
    pick = dice.random()
    if depth == 0 or pick < 0.2:
        return dice.choice(['"a\\"]}"', '"\\\\"', "1", "-2.50e3", "null", "true", '"é"'])
    if pick < 0.85:
        keys = dice.sample(KEYS, dice.randrange(7))
        return "{%s}" % (",".join(
            f'{space()}"{key}"{space()}:{space()}{value(dice, depth - 1)}{space()}'
            for key in keys) or space())
    return "[%s]" % (",".join(
        space() + value(dice, depth - 1) for _ in range(dice.randrange(4))) or space())


@pytest.mark.parametrize("seed", range(4))
def test_slim_removes_the_same_as_json_remove(db, seed):
    dice = random.Random(seed)
    remove = f"SELECT json_remove(?{''.join(f', {p!r}' for p in PATHS)})"
    changed = 0
    for _ in range(1500 if FULL else 400):
        text = value(dice, 6)
        slim = one(db, "SELECT evidence_slim(?)", text)
        assert one(db, "SELECT json(?)", slim) == one(db, remove, text), text
        assert one(db, "SELECT evidence_slim(?)", slim) == slim
        changed += json.loads(slim) != json.loads(text)
    assert changed > 40


@pytest.mark.parametrize("text", [
    '{"networkData":1,"a":1.0,"networkData":{"b":[2]}}', '{"q\\"":1}',
    '{"network\\u0044ata":1}', '{"visionData":{},"visionData":[]}',
    '{"fallbackChain":{"strategies":[{"type":"a","type":"b"}]}}',
    '{"fallbackChain":{"strategies":[{"metadata":{"targetText":1,"targetText":2}}]}}',
    '{"evidence":{"mouse":{"endpoint":1,"endpoint":2}}}'])
def test_slim_returns_null_for_ambiguous_keys(db, text):
    assert one(db, "SELECT evidence_slim(?)", text) is None


def test_irrelevant_keys_may_occur_twice(db):
    text = '{"a":1.0,"a":2,"domData":{"x\\u0041":1,"b":1,"b":2},"networkData":{"b":1,"b":2}}'
    assert one(db, "SELECT evidence_slim(?)", text) == text.replace(
        ',"networkData":{"b":1,"b":2}', "")


@pytest.mark.parametrize("unit", [
    "a", "é", "😀", "\\ud83d\\ude00", "\\ud83d", "\\u0000", "\\n", "\\\"", "\\\\"])
@pytest.mark.parametrize("n", [0, 99, 100, 101, 300])
def test_long_texts_are_cut_as_they_are_written(db, unit, n):
    text = '{"fallbackChain":{"strategies":[{"metadata":{"text":"%s","label":"%s"}}]}}'
    assert one(db, "SELECT evidence_slim(?)", text % (unit * n, unit * n)) == \
        text % (unit * min(n, 100), unit * n)


@pytest.mark.parametrize("text, understood", [
    ('{"fallbackChain":{"strategies":[{"type":"a","confidence":-1}]}}', True),
    ('{"visionData":null,"domData":5}', True), ('{"visionData":5}', False),
    ('{"fallbackChain":{"strategies":[{"type":"a"},5]}}', False),
    ('{"fallbackChain":{"strategies":null}}', False),
    ('{"fallbackChain":{"strategies":[{"metadata":{"x":"1"}}]}}', False), ("5", False),
    ('{"a":' + "[" * 900 + "]" * 900 + "}", True)])
def test_strict_passes_only_what_is_understood(db, text, understood):
    assert one(db, "SELECT evidence_slim(?, 0)", text) == text
    assert one(db, "SELECT evidence_slim(?, 1)", text) == (text if understood else None)


@pytest.mark.parametrize("given", [
    None, 5, b"{\"networkData\":1}", "", " ", '{"networkData":1', '{"networkData":1}}',
    '{"networkData":tru}', '{"networkData":1,}', '{"networkData":[1,]}', "{'networkData':1}",
    '{"networkData":"\x01"}', '{"networkData":01}', '{"a":1 "networkData":1}',
    '{"fallbackChain":{"strategies":[{"metadata":{"mouseTrail":1}},]}}',
    '{"fallbackChain":{"strategies":{"metadata":{"mouseTrail":1}}}}',
    '{"fallbackChain":{"strategies":[[{"metadata":{"mouseTrail":1}}]]}}',
    '{"visionData":[{"rawOcrResult":1}]}', '[{"networkData":1}]',
    "[" * 900 + "]" * 900])
def test_a_value_that_is_not_an_action_is_returned_unchanged(db, given):
    assert one(db, "SELECT evidence_slim(?)", given) == given


def test_slim_returns_null_for_too_many_levels(db):
    for n in 970, 999:
        deep = '{"a":' + "[" * n + "]" * n + "}"
        assert one(db, "SELECT evidence_slim(?)", deep) is None
        assert one(db, "SELECT evidence_slim(?)", deep + "]") == deep + "]"
