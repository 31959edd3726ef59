"""What the evidence tests share: actions, reference rules, and a buffer."""
import json
import random
import sqlite3

import pytest

from conftest import connect, one, rows

ADD = "INSERT INTO rec(id, timestamp, action, screenshot) VALUES(?, ?, ?, ?)"
MAKE = "CREATE VIRTUAL TABLE rec USING evidence_buffer"


@pytest.fixture
def rec(path):
    """A buffer with the default settings, in a file."""
    db = connect(path)
    db.execute(MAKE)
    yield db
    db.close()


def state(db, name="rec"):
    """The counters as stored, and as computed from the rows."""
    kept = rows(db, f'SELECT actions, bytes, screenshots, free_screenshots, '
                    f'pinned_bytes FROM "{name}_state"')[0]
    true = rows(db, f'SELECT count(*), coalesce(sum(size_bytes), 0), '
                    f'count(screenshot), '
                    f'count(CASE WHEN NOT pinned THEN screenshot END), '
                    f'coalesce(sum(CASE WHEN pinned THEN size_bytes END), 0) '
                    f'FROM "{name}"')[0]
    return kept, true


def well(db, name="rec"):
    kept, true = state(db, name)
    assert kept == true
    assert rows(db, "SELECT * FROM blackbox_check") == []


TYPES = ["cdp_semantic", "cdp_power", "dom_selector", "css_selector",
         "evidence_scoring", "vision_ocr", "coordinates", "made_up"]


def action(number, chain=None, **more):
    """A CapturedAction of a few kilobytes."""
    doc = {
        "id": f"a{number}", "timestamp": 1_700_000_000_000 + number,
        "eventType": "click",
        "domData": {"selector": "#go", "innerText": "Gö \"on\"", "tagName": "A"},
        "visionData": {"ocrText": "Go", "confidence": 88.5, "rawOcrResult":
                       {"words": ["w"] * 200}, "screenshot": "data:image/png;base64,AA"},
        "mouseData": {"trail": [{"x": i, "y": i, "timestamp": i} for i in range(30)],
                      "endpoint": {"x": 29, "y": 29}, "duration": 700, "pattern": "direct"},
        "networkData": {"recentRequests": [{"url": "http://x/" + "y" * 50}] * 10},
        "fallbackChain": {"primaryStrategy": "dom_selector", "recordedAt": 5,
                          "strategies": chain if chain is not None else [
            {"type": kind, "confidence": .9 - i / 10, "selector": f"#s{i}",
             "metadata": {"role": "r", "name": "n", "text": "é" * 150, "label": "l",
                          "placeholder": "p", "targetText": "t", "x": 1.5, "y": 2,
                          "endpoint": {"x": 3, "y": 4}, "mouseTrail": [1] * 50,
                          "other": True}} for i, kind in enumerate(TYPES)]},
    }
    doc.update(more)
    return doc


def second_shape(number):
    one = action(number)
    return {"actionId": f"b{number}", "actionType": "click", "selector": "#go",
            "evidence": {"dom": one["domData"], "vision": one["visionData"],
                         "mouse": one["mouseData"], "network": one["networkData"]},
            "fallbackChain": one["fallbackChain"], "metadata": {"url": "http://x/"}}


KEPT = {"cdp_semantic": ["role", "name"], "cdp_power": ["text", "label", "placeholder"],
        "vision_ocr": ["targetText"], "coordinates": ["x", "y"],
        "evidence_scoring": ["endpoint"]}


def prune_strategy(s):
    out = {k: s[k] for k in ("type", "confidence") if k in s}
    if s.get("selector"):
        out["selector"] = s["selector"]
    meta = s.get("metadata")
    if meta and s.get("type") in KEPT or meta == {} and s.get("type") in KEPT:
        out["metadata"] = {
            k: meta[k][:100] if k == "text" and isinstance(meta[k], str) else meta[k]
            for k in KEPT[s["type"]]
            if k in meta and not (k == "text" and meta[k] is None)}
    return out


def approved(doc, timestamp=None):
    """The documented approval of well-formed actions, in Python."""
    doc = json.loads(json.dumps(doc))
    chain = doc.get("fallbackChain")
    if chain and "strategies" in chain:
        chain["strategies"] = [prune_strategy(s) for s in chain["strategies"]]
    time = doc.get("timestamp", timestamp)
    for holder, vision, mouse, network in (
            (doc, "visionData", "mouseData", "networkData"),
            (doc.get("evidence", {}), "vision", "mouse", "network")):
        holder.pop(network, None)
        if holder.get(vision):
            holder[vision] = {k: v for k, v in holder[vision].items()
                              if k in ("ocrText", "confidence")}
        if holder.get(mouse):
            end = holder[mouse]["endpoint"]
            holder[mouse] = {"trail": [{**end, "timestamp": time}],
                             "endpoint": end, "duration": 0}
    return doc


def random_action(number):
    """An action with fields missing at random, all of them well-formed."""
    pick = random.Random(number)
    doc = action(number)
    for s in doc["fallbackChain"]["strategies"]:
        for key in list(s["metadata"]):
            if pick.random() < .4:
                del s["metadata"][key]
        s["metadata"]["text"] = pick.choice(["", "short", "x" * 101, "日本" * 60, None])
        s["confidence"] = pick.choice([0, 1, .25, 1e-3, None])
        s["selector"] = pick.choice(["", None, "#a", "//b[@c='d']", "0"])
        if pick.random() < .2:
            s["metadata"] = pick.choice([None, {}])
        for key in ("confidence", "selector", "metadata"):
            if pick.random() < .15:
                s.pop(key)
    for key in ("visionData", "mouseData", "networkData", "fallbackChain", "domData"):
        if pick.random() < .2:
            del doc[key]
        elif pick.random() < .1 and key in ("visionData", "mouseData", "networkData"):
            doc[key] = None
    return doc
