"""Recordings, OCR results, mouse trails and screenshots of real programs."""
import gzip
import json

from conftest import DATA, connect, needs_data, one, rows
from evidence_helpers import ADD, MAKE, approved, well

SELENIUM = {"click": "click", "type": "type", "select": "select", "open": "navigate",
            "mouseOver": "hover", "sendKeys": "keydown", "check": "check",
            "doubleClick": "dblclick"}
RECORDER = {"click": "click", "change": "type", "navigate": "navigate",
            "keyDown": "keydown", "doubleClick": "dblclick", "scroll": "scroll"}


def read(path):
    opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        return json.loads(file.read())


def selenium_actions():
    """Each command with its whole list of locators as a fallback chain."""
    for path in sorted((DATA / "actions" / "side").glob("*.json")):
        for test in read(path)["tests"]:
            for command in test["commands"]:
                if command["command"] not in SELENIUM:
                    continue
                chain = []
                for target, _ in command["targets"]:
                    how, _, what = target.partition("=")
                    selector = {"id": f"[id='{what}']", "name": f"[name='{what}']"}
                    chain.append({"type": "css_selector", "confidence": .5,
                                  "selector": selector.get(how, what),
                                  "metadata": {"selectorType": how}})
                yield {"eventType": SELENIUM[command["command"]], "id": command["id"],
                       "value": command["value"] or command["target"],
                       "fallbackChain": {"strategies": chain}}


def recorder_actions():
    for path in sorted((DATA / "actions" / "chrome-recorder").glob("*.json")):
        for step in read(path)["steps"]:
            if step["type"] in RECORDER:
                chain = [{"type": "dom_selector", "confidence": .8,
                          "selector": (s if isinstance(s, list) else [s])[0]}
                         for s in step.get("selectors", [])]
                yield {"actionType": RECORDER[step["type"]],
                       "value": step.get("url") or step.get("value") or step.get("key"),
                       "evidence": {"dom": {}}, "fallbackChain": {"strategies": chain}}


def mouse_trail():
    events = read(next((DATA / "actions" / "mouse").glob("*.gz")))
    return [{"x": p["x"], "y": p["y"], "timestamp": e["timestamp"] + p["timeOffset"]}
            for e in events if e["type"] == 3 and e["data"].get("source") == 1
            for p in e["data"]["positions"]]


@needs_data
def test_real_recordings_through_store_approval_and_exports(path):
    db = connect(path)
    db.execute(MAKE)
    trail = mouse_trail()
    assert len(trail) > 80
    network = read(next((DATA / "actions" / "network").glob("*.gz")))
    ocr = [read(p) for p in sorted((DATA / "ocr" / "textract").glob("*.gz"))]
    shots = [p.read_bytes() for p in sorted((DATA / "screenshots").glob("*.png"))]
    docs = [*selenium_actions(), *recorder_actions()]
    assert len(docs) > 100
    for i, doc in enumerate(docs):
        if i % 10 == 0:
            doc["visionData"] = {"ocrText": "text", "confidence": 80,
                                 "rawOcrResult": ocr[i // 10 % len(ocr)]}
            doc["networkData"] = {"recentRequests": network["log"]["entries"][:20]}
        part = trail[i * 5 % len(trail):][:100]
        doc["mouseData"] = {"trail": part, "endpoint": part[-1], "duration": 9}
        db.execute(ADD, (f"a{i}", i, json.dumps(doc), shots[i % len(shots)]))
    size = one(db, "SELECT total_size FROM evidence_stats('rec')")
    assert 10_000_000 < size <= 73_400_320 * .9
    well(db)
    done = json.loads(one(db, "SELECT evidence_prune_for_approval('rec')"))
    assert done["problems"] == [] and done["afterSize"] < 250_000
    for i, (text,) in enumerate(rows(db, "SELECT action FROM rec ORDER BY timestamp")):
        assert json.loads(text) == approved(docs[i], i)
    made = json.loads(one(db, "SELECT evidence_export_puppeteer('rec')"))
    for doc, step in zip(docs, made["puppeteerSteps"]):
        chain = [s["selector"] for s in doc["fallbackChain"]["strategies"]]
        listed = [step["selector"], *step["fallbacks"]]
        for selector in chain if step["action"] != "navigate" else []:
            assert selector in listed or "xpath/" + selector in listed
    replay = json.loads(one(db, "SELECT evidence_export_replay('rec')"))
    assert len(replay["steps"]) >= len(docs)
    well(db)


@needs_data
def test_real_screenshots_come_back_byte_for_byte(path):
    for schema, arguments in [("main", ""), ("temp", "(overflow='main')")]:
        db = connect(path)
        db.execute(MAKE.replace("TABLE rec", f"TABLE {schema}.rec") + arguments)
        shots = {p.name: p.read_bytes()
                 for p in sorted((DATA / "screenshots").glob("*.png"))}
        for i, (name, shot) in enumerate(shots.items()):
            tess = DATA / "ocr" / "tesseract" / name.replace(".png", ".tsv")
            text = tess.read_text() if tess.exists() else ""
            db.execute(ADD, (name, i, json.dumps({"visionData": {"ocrText": text}}), shot))
        if schema == "temp":
            one(db, "SELECT evidence_flush('rec')")
        assert dict(rows(db, "SELECT id, screenshot FROM rec")) == shots
        well(db)
        db.execute("DROP TABLE rec")
        db.close()
