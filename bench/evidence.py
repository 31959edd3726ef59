"""The evidence buffer, compared with plain tables and with the same in Node."""
import json
import os
import random
import shutil
import sqlite3
import subprocess

from run import MODULE, ROOT, Case, checkpoint, connect, install, installed, once, plain, timed

# Puppeteer's and Node's packages, where `make test-browser` puts them.
NODE_MODULES = ROOT / "build" / "browser" / "node_modules"

SHOT = random.Random(1).randbytes(900_000)


def spread(number, mean):
    """A size of so many bytes on average; recorded screenshots are spread about so."""
    return int(mean * random.Random(number).uniform(.25, 1.75))


def shot(number):
    return SHOT[:spread(-number, 500_000)]


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
LARGE = "CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=200000000)"
SMALL = "CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=73400320)"
TABLES = ("CREATE TABLE a(id TEXT PRIMARY KEY, timestamp INTEGER, action TEXT);"
          "CREATE TABLE s(id TEXT PRIMARY KEY, screenshot BLOB);")
TEXTS = [action(i, spread(i, 60_000)) for i in range(20)]


def stores(path, count, ddl, open_=installed, prepare=0):
    """Seconds of `count` stores, after `prepare` stores that are not measured."""
    db = open_(path / "a.db")
    db.executescript(ddl)

    def run(first, last):
        for i in range(first, last):
            db.execute("BEGIN")
            if open_ is installed:
                db.execute(ADD, (f"a{i}", i, TEXTS[i % 20], shot(i)))
            else:
                db.execute("INSERT INTO a VALUES(?, ?, ?)", (f"a{i}", i, TEXTS[i % 20]))
                db.execute("INSERT INTO s VALUES(?, ?)", (f"a{i}", shot(i)))
            db.execute("COMMIT")

    run(0, prepare)
    checkpoint(db)
    seconds = timed(lambda: run(prepare, prepare + count))
    db.close()
    return seconds


def recording(open_):
    """A file with 100 actions, 50 MB of screenshots and 20 MB of JSON. It is made once."""
    def make(path):
        db = open_(path)
        db.executescript(LARGE if open_ is not plain else
                         "CREATE TABLE a(rid INTEGER PRIMARY KEY, action TEXT);"
                         "CREATE TABLE s(rid INTEGER PRIMARY KEY, screenshot BLOB);")
        db.execute("BEGIN")
        for i in range(100):
            text = action(i, spread(i, 200_000))
            if open_ is not plain:
                db.execute(ADD, (f"a{i}", i, text, shot(i)))
            else:
                db.execute("INSERT INTO a VALUES(?, ?)", (i, text))
                db.execute("INSERT INTO s VALUES(?, ?)", (i, shot(i)))
        db.execute("COMMIT")
        db.close()
        return path
    return once(("recording", open_), make)


def copied(open_, folder):
    return shutil.copy(recording(open_), folder / "recording.db")


def by_default(path):
    """A file as blackbox_install() makes it: it can give pages back."""
    db = sqlite3.connect(path, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    install(db)
    assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    return db


def approve(folder, open_=installed, secure=None):
    db = connect(copied(open_, folder))
    if secure is not None:
        db.execute(f"PRAGMA secure_delete = {secure}").fetchone()
    result = []
    seconds = timed(lambda: result.extend(
        db.execute("SELECT evidence_prune_for_approval('rec')").fetchone()))
    size = json.loads(result[0])["afterSize"]
    assert size < 250_000, f"{size} bytes are left of the recording"
    db.close()
    return seconds


def floor(folder):
    db = plain(copied(plain, folder))

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


def node(open_, *module):
    """The same in Node, with the secure_delete of this SQLite."""
    def side(folder):
        secure, = plain(":memory:").execute("PRAGMA secure_delete").fetchone()
        out = subprocess.run(
            ["node", str(ROOT / "bench" / "evidence_approve.js"),
             str(copied(open_, folder)), str(secure), *module],
            env={**os.environ, "NODE_PATH": str(NODE_MODULES)},
            check=True, capture_output=True, text=True)
        return float(out.stdout)
    return side


def stats(count):
    def make(path):
        db = installed(path)
        db.execute(LARGE)
        db.execute("BEGIN")
        db.executemany(ADD, ((f"a{i}", i, "{}", None) for i in range(count)))
        db.execute("COMMIT")
        return db

    def side(_folder):
        db = once(("stats", count), make)
        sql = "SELECT evidence_stats('rec')"
        db.execute(sql).fetchone()
        return timed(lambda: [db.execute(sql).fetchone() for _ in range(1000)]) / 1000
    return side


def cases():
    sides = {"approval": approve, "DELETE and json_remove": floor}
    bounds = [("approval", "DELETE and json_remove", 1.3)]
    note = ("100 actions, 50 MB of screenshots and 20 MB of JSON become less than "
            "250 KB. Target of the specification: under 500 ms, under 500 KB.")
    if (NODE_MODULES / "better-sqlite3").is_dir():
        sides["approval in Node"] = node(installed, MODULE)
        sides["JSON.parse in Node"] = node(plain)
        bounds.append(("approval", "JSON.parse in Node", 0.33))
        bounds.append(("approval in Node", "JSON.parse in Node", None))
        note += " Node has the secure_delete of this SQLite, though its own is off."
    else:
        note += " Not compared with Node: `make test-browser` installs its packages."
    return [
        Case(
            "storing an action of 60 KB with a screenshot of 500 KB",
            {"buffer": lambda path: stores(path, 40, LARGE),
             "two tables": lambda path: stores(path, 40, TABLES, plain)},
            [("buffer", "two tables", 1.15)], rounds=9,
            note="Each action is stored in a transaction of its own, and its JSON is checked."),
        Case("approval of a 70 MB recording", sides, bounds, rounds=7, note=note,
             why="SECURE_DELETE writes every page that becomes free again."),
        Case(
            "approval of a 70 MB recording with the defaults of a user",
            {"secure_delete, blackbox_install()": lambda path: approve(path, by_default, 1),
             "no secure_delete, plain file": lambda path: approve(path, installed, 0)},
            [("secure_delete, blackbox_install()", "no secure_delete, plain file", 2.5)],
            rounds=7, note="What is removed is swept with later writes."),
        Case(
            "stats of a buffer", {"10,000 actions": stats(10_000), "10 actions": stats(10)},
            [("10,000 actions", "10 actions", 1.2)], rounds=7),
        Case(
            "storing into a full buffer of 70 MB",
            {"full": lambda path: stores(path, 60, SMALL, prepare=125),
             "empty": lambda path: stores(path, 60, LARGE)},
            [("full", "empty", 2.0)], rounds=5,
            note="Prunes included: each frees a tenth of the buffer.",
            why="SECURE_DELETE writes every page that becomes free again."),
    ]
