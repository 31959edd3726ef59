"""The evidence buffer, compared with plain tables and with the same in Node."""
import json
import os
import pathlib
import random
import shutil
import sqlite3
import subprocess
import tempfile

from run import MODULE, ROOT, Case, connect, timed

# Puppeteer's and Node's packages, where `make test-browser` puts them.
NODE_MODULES = ROOT / "build" / "browser" / "node_modules"

SHOT = random.Random(1).randbytes(500_000)


def action(number, size):
    """One captured action of about that many bytes of JSON."""
    pick = random.Random(number)
    words = [
        {"text": f"word{i}", "confidence": round(pick.uniform(40, 99), 2),
         "bbox": {"x": i % 80, "y": i // 80, "width": 40, "height": 12}}
        for i in range(size // 2 // 85)
    ]
    requests = [
        {"url": f"https://example.com/api/items/{i}?page={number}", "type": "xhr",
         "method": "GET", "status": 200, "duration": pick.randint(5, 400)}
        for i in range(size // 3 // 105)
    ]
    trail = [{"x": 10 + i, "y": 20 + i, "timestamp": 1_700_000_000_000 + i * 50}
             for i in range(100)]
    chain = [
        ("cdp_semantic", .95, {"role": "button", "name": "Save", "exact": True,
                               "states": {"disabled": False}}, None),
        ("cdp_power", .9, {"text": "Save the whole form " * 8, "label": "Save"}, None),
        ("dom_selector", .85, {"selectorType": "id", "id": "save"}, "#save"),
        ("css_selector", .75, {"classes": ["btn", "primary"]}, "button.btn.primary"),
        ("evidence_scoring", .8, {"endpoint": {"x": 109, "y": 119},
                                  "mouseTrail": trail[:40]}, None),
        ("vision_ocr", .7, {"targetText": "Save", "ocrConfidence": 91}, None),
        ("coordinates", .6, {"x": 109, "y": 119,
                             "viewport": {"width": 1280, "height": 720}}, None),
    ]
    return json.dumps({
        "id": f"action-{number}", "timestamp": 1_700_000_000_000 + number * 1000,
        "eventType": "click",
        "domData": {"selector": "#save", "xpath": "//*[@id='save']",
                    "tagName": "BUTTON", "id": "save", "innerText": "Save",
                    "classList": ["btn", "primary"], "x": 109, "y": 119,
                    "boundingRect": {"x": 90, "y": 110, "width": 60, "height": 24},
                    "attributes": {"type": "submit"}},
        "visionData": {"ocrText": "Save", "confidence": 91,
                       "rawOcrResult": {"words": words[: len(words) // 2]},
                       "allTextResults": words[len(words) // 2:],
                       "timestamp": 1, "processingTime": 87},
        "mouseData": {"trail": trail, "endpoint": {"x": 109, "y": 119},
                      "duration": 5000, "pattern": "direct"},
        "networkData": {"recentRequests": requests, "pendingCount": 0},
        "fallbackChain": {"primaryStrategy": "cdp_semantic",
                          "recordedAt": 1_700_000_000_000, "strategies": [
            {"type": kind, "confidence": sure, "metadata": meta,
             **({"selector": selector} if selector else {})}
            for kind, sure, meta, selector in chain]},
    }, separators=(",", ":"))


ADD = "INSERT INTO rec(id, timestamp, action, screenshot) VALUES(?, ?, ?, ?)"


def stores(path, count, text, make, prepare=0):
    """Seconds of `count` stores, after `prepare` stores that are not measured."""
    db = connect(path / "a.db")
    db.execute(FAST_DELETE)
    db.execute(make)

    def run(first, last):
        for i in range(first, last):
            db.execute(ADD, (f"a{i}", i, text, SHOT))

    run(0, prepare)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    seconds = timed(lambda: run(prepare, prepare + count))
    db.close()
    return seconds


def plain_stores(path, count, text):
    db = connect(path / "a.db")
    db.executescript(
        "CREATE TABLE a(id TEXT PRIMARY KEY, timestamp INTEGER, action TEXT);"
        "CREATE TABLE s(id TEXT PRIMARY KEY, screenshot BLOB);")

    def run():
        for i in range(count):
            db.execute("BEGIN")
            db.execute("INSERT INTO a VALUES(?, ?, ?)", (f"a{i}", i, text))
            db.execute("INSERT INTO s VALUES(?, ?)", (f"a{i}", SHOT))
            db.execute("COMMIT")

    seconds = timed(run)
    db.close()
    return seconds


# Debian builds SQLite so that deleted pages are overwritten; Node builds do not.
FAST_DELETE = "PRAGMA secure_delete = OFF"
SECURE = (
    "Both sides with PRAGMA secure_delete = OFF. With Debian's default, under "
    "which every freed page is written again, the ratio was about "
)

LARGE = "CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=200000000)"
SMALL = "CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=73400320)"


class Recording:
    """100 actions, 50 MB of screenshots, 20 MB of JSON, made once; each round
    works on a copy."""

    def __init__(self):
        self.folder = None

    def path(self, name, target):
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory()
            self.make(pathlib.Path(self.folder.name))
        shutil.copy(pathlib.Path(self.folder.name) / name, target / name)
        return target / name

    def make(self, folder):
        texts = [action(i, 200_000) for i in range(100)]
        db = connect(folder / "buffer.db", wal=False)
        db.execute(LARGE)
        db.execute("BEGIN")
        for i, text in enumerate(texts):
            db.execute(ADD, (f"a{i}", i, text, SHOT))
        db.execute("COMMIT")
        db.close()
        db = connect(folder / "plain.db", wal=False)
        db.execute("CREATE TABLE a(rid INTEGER PRIMARY KEY, action TEXT)")
        db.execute("CREATE TABLE s(rid INTEGER PRIMARY KEY, screenshot BLOB)")
        db.execute("BEGIN")
        for i, text in enumerate(texts):
            db.execute("INSERT INTO a VALUES(?, ?)", (i, text))
            db.execute("INSERT INTO s VALUES(?, ?)", (i, SHOT))
        db.execute("COMMIT")
        db.close()


def approve(recording, path):
    db = connect(recording.path("buffer.db", path))
    db.execute(FAST_DELETE)
    result = []

    def run():
        sql = "SELECT evidence_prune_for_approval('rec')"
        result.append(db.execute(sql).fetchone()[0])

    seconds = timed(run)
    size = json.loads(result[0])["afterSize"]
    assert size < 250_000, f"{size} bytes are left of the recording"
    db.close()
    return seconds


def floor(recording, path):
    db = connect(recording.path("plain.db", path))
    db.execute(FAST_DELETE)

    def run():
        db.execute("BEGIN")
        db.execute("DELETE FROM s")
        db.execute(
            "UPDATE a SET action = json_remove(action, '$.networkData',"
            " '$.visionData.rawOcrResult', '$.visionData.allTextResults',"
            " '$.mouseData.trail')")
        db.execute("COMMIT")

    seconds = timed(run)
    db.close()
    return seconds


def node(recording, path, name, *module):
    out = subprocess.run(
        ["node", str(ROOT / "bench" / "evidence_approve.js"),
         str(recording.path(name, path)), *module],
        env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
        check=True, capture_output=True, text=True)
    return float(out.stdout)


def stats(path, count):
    db = connect(path / "a.db")
    db.execute(LARGE)
    db.execute("BEGIN")
    db.executemany(ADD, ((f"a{i}", i, "{}", None) for i in range(count)))
    db.execute("COMMIT")
    sql = "SELECT evidence_stats('rec')"
    db.execute(sql).fetchone()
    seconds = timed(lambda: [db.execute(sql).fetchone() for _ in range(2000)])
    db.close()
    return seconds


def cases():
    text = action(1, 60_000)
    recording = Recording()
    sides = {
        "approval": lambda path: approve(recording, path),
        "DELETE and json_remove": lambda path: floor(recording, path),
    }
    bounds = [("approval", "DELETE and json_remove", 1.3)]
    note = ("100 actions, 50 MB of screenshots and 20 MB of JSON become less than "
            "250 KB. Target of the specification: under 500 ms, under 500 KB.")
    if (NODE_MODULES / "better-sqlite3").is_dir():
        sides["approval in Node"] = lambda path: node(
            recording, path, "buffer.db", MODULE)
        sides["JSON.parse in Node"] = lambda path: node(
            recording, path, "plain.db")
        bounds.append(("approval", "JSON.parse in Node", 0.33))
        bounds.append(("approval in Node", "JSON.parse in Node", None))
    else:
        note += " Not compared with Node: `make test-browser` installs its packages."
    return [
        Case(
            "storing an action of 60 KB with a screenshot of 500 KB",
            {"buffer": lambda path: stores(path, 40, text, LARGE),
             "two tables": lambda path: plain_stores(path, 40, text)},
            [("buffer", "two tables", 1.15)], rounds=11,
            note="Each action is stored in a transaction of its own, and its JSON is checked."),
        Case("approval of a 70 MB recording", sides, bounds, rounds=9,
             note=note + " " + SECURE + "1.30, and 2.6 of Node, whose "
             "SQLite is built without."),
        Case(
            "stats of a buffer",
            {"10,000 actions": lambda path: stats(path, 10_000),
             "10 actions": lambda path: stats(path, 10)},
            [("10,000 actions", "10 actions", 1.2)], rounds=7),
        Case(
            "storing into a full buffer of 70 MB",
            {"full": lambda path: stores(path, 60, text, SMALL, 117),
             "empty": lambda path: stores(path, 60, text, LARGE)},
            [("full", "empty", 2.0)], rounds=5,
            note="Prunes included: each frees a tenth of the buffer. " + SECURE + "1.8 to 2.4."),
    ]
