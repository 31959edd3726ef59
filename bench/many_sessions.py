#!/usr/bin/python3
"""many_sessions.py MB [FILE]: questions to many sessions of coding agents, each with its bound.

The sessions are copies of recorded ones, each with ids and a day of its own, in half a year:
1,000 MB are 1,100 sessions and 650,000 items. Without recordings they are made, of Claude Code's form: words
of the docs, calls of two tools, results, usage. That takes three minutes and 6 GB of disk. If FILE
exists, its sessions are asked, and else they stay there.
"""
import datetime
import json
import pathlib
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time

from rollout import ITEMS, USED, sessions

ROOT = pathlib.Path(__file__).resolve().parent.parent
WEEK = 7 * 86_400_000
# question: (SQL, bound in milliseconds on 1 GB)
QUESTIONS = {
    "list": ("SELECT * FROM rollout_list(50)", 1),
    "usage by day": ("SELECT * FROM rollout_usage_days", 15),
    "cost most last week": ("SELECT rollout, sum(cost) FROM rollout_usage WHERE timestamp > :week "
                            "GROUP BY 1 ORDER BY 2 DESC LIMIT 1", 100),
    "failed calls last week": ("SELECT rollout, tool, input, output FROM rollout_tool_calls "
                               "WHERE is_error AND started > :week", 50),
    "range at item 120": ("SELECT * FROM rollout_range(:rollout, 120, 5)", 0.5),
    **{f"search {words}": (f"SELECT * FROM rollout_search('{words}')", 50)
       for words in ("import", "rollout item", "zzzq", "conv*", "the OR a", "rollout NOT item", "sqlite")},
}


def cases():
    """Nothing of `make bench`: it takes too long."""
    return []


DAYS = 182
# What a copy has anew: the day of a time, or the begin of an id.
ANEW = re.compile(rb"20[0-9]{2}-[01][0-9]-[0-3][0-9](?=T[0-9]{2}:)|"
                  rb"[0-9a-f]{8}(?=-[0-9a-f]{4}-[0-9a-f]{4}-)|(?<=msg_|req_)[0-9A-Za-z_]{8}|"
                  rb"(?<=call_)[0-9A-Za-z]{8}|(?<=toolu_)[0-9A-Za-z_]{8}")


def copy(text, day):
    """A session of which the first day is this one."""
    first = re.search(rb"20[0-9]{2}-[01][0-9]-[0-3][0-9](?=T[0-9]{2}:)", text)[0].decode()
    moved, known = day - datetime.date.fromisoformat(first), {}

    def anew(found):
        old = found[0].decode()
        if old not in known:
            known[old] = (f"{random.getrandbits(32):08x}" if old[4] != "-" else
                          (datetime.date.fromisoformat(old) + moved).isoformat()).encode()
        return known[old]
    return ANEW.sub(anew, text).decode()


def recorded(size):
    """So many bytes of copies of the recorded sessions, or none."""
    found = [text for kind in ("codex", "claude") for text, _ in sessions(kind)]
    many = round(size / max(1, sum(map(len, found))))
    for k in range(many * len(found)):
        day = datetime.date(2026, 1, 1) + datetime.timedelta(days=k * DAYS // (many * len(found)))
        yield copy(found[k * 5 % len(found)], day)


def made(size):
    """So many bytes of sessions that are made."""
    known = [word for word in (ROOT / "docs/rollout.md").read_text().split() if word.isascii()]
    words = [known[min(len(known) - 1, int(random.paretovariate(0.6)))] for _ in range(20_000)]
    k = 0
    while size > 0:
        lines, k = session(k, words), k + 1
        size -= len(lines)
        yield lines


def session(k, words):
    """The lines of session k: 40 turns of 8 calls."""
    lines, name, at = [], f"{k:08x}-0000-4000-8000-{k:012x}", 1_767_225_600 + k * 2000

    def text(size):
        i = random.randrange(len(words) - 500)
        return " ".join(words[i:i + size // 7]) + f" u{random.getrandbits(24):x}"

    def line(kind, content):
        nonlocal at
        at += 3
        told = {} if kind == "user" else {
            "id": f"m{k}-{len(lines)}", "model": "claude-opus-4-5", "usage": {
                "input_tokens": 10, "output_tokens": 50, "cache_read_input_tokens": 1000}}
        lines.append(json.dumps({
            "type": kind, "sessionId": name, "uuid": f"{name}-{len(lines)}", "cwd": f"/w/p{k % 20}",
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at)),
            "message": {"role": kind, "content": content, **told}}) + "\n")

    for n in range(360):
        if n % 9 == 0:
            line("user", text(200))
            continue
        call = {"type": "tool_use", "id": f"t{k}-{n}", "name": "Bash",
                "input": {"command": text(100)}}
        said = []
        if n % 3 == 0:
            said = [{"type": "text", "text": text(300)}]
            call |= {"name": "Edit", "input": {
                "file_path": f"/w/f{random.randrange(500)}.c", "old_string": text(300),
                "new_string": text(300)}}
        line("assistant", [*said, call])
        line("user", [{"type": "tool_result", "tool_use_id": call["id"], "content": text(2500),
                       "is_error": random.random() < 0.05}])
    return "".join(lines)


def copies(size):
    random.seed(1)
    return recorded(size) if sessions("codex") else made(size)


def opened(path):
    db = sqlite3.connect(path, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(ROOT / "blackbox.so"))
    return db


def imported(path, size, *before):
    """Imports so many bytes of sessions into a file, and returns what it took."""
    db = opened(path)
    for sql in ("PRAGMA journal_mode = wal", "PRAGMA synchronous = normal",
                "SELECT blackbox_install('main', 'all')", *before):
        db.execute(sql)
    db.execute("SELECT rollout_load_prices(?, 'prices.json')",
               ((ROOT / "packages/prices.json").read_text(),))
    sums = [0, 0]
    for lines in copies(size):
        each = took(lambda: db.execute("SELECT rollout_import(?)", (lines,)))
        sums = [a + b for a, b in zip(sums, each)]
    db.close()
    return sums


def packed(path, size):
    """The share of the bytes of its sessions that a file with rollout.pack takes, and that its items take."""
    imported(path, size, "UPDATE blackbox_settings SET value = 1 WHERE name = 'rollout.pack'")
    db = opened(path)
    raw = sum(len(lines.encode()) for lines in copies(size))
    for name, sql, bound in ("packed file, of the sessions", USED, .2), ("packed items, of the sessions", ITEMS, .2):
        yield name, db.execute(sql).fetchone()[0] / raw, "", bound


def asked(db):
    """(question, measured, of the processor, bound)"""
    text = db.execute("SELECT sum(length(CAST(text AS BLOB))) FROM rollout__said").fetchone()[0]
    index = db.execute("SELECT sum(length(block)) FROM rollout_fts_data").fetchone()[0]
    yield "index, of the text", index / text, "", 0.6
    many = db.execute("SELECT count(*), sum(item_count), sum(bytes) / 1e6 FROM rollouts").fetchone()
    yield from zip(("conversations", "items", "MB of payloads"), many, [""] * 3, [""] * 3)
    values = {"week": db.execute("SELECT max(at) FROM rollout__texts").fetchone()[0] - WEEK,
              "rollout": db.execute("SELECT id FROM rollouts WHERE item_count > 125").fetchone()[0]}
    for name, (sql, bound) in QUESTIONS.items():
        times = [took(lambda: db.execute(sql, values).fetchall()) for _ in range(5)]
        yield name + ", ms", *(statistics.median(each) * 1000 for each in zip(*times)), bound
    yield "blackbox_check, s", *took(lambda: well(db)), 5


def well(db):
    found = db.execute("SELECT * FROM blackbox_check").fetchall()
    assert found == [], found[:3]


def took(call):
    """Seconds, and those of the processor: what a busy machine does not change."""
    start, used = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - start, time.process_time() - used


def main():
    size, told = float(sys.argv[1]) * 1e6, []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else f"{folder}/with.db")
        if not path.exists():
            without = imported(f"{folder}/without.db", size)
            with_it = imported(path, size, "SELECT rollout_search_install()")
            told = [("import without the search, s", *without, ""),
                    ("with it, times without", *(a / b for a, b in zip(with_it, without)), 3),
                    *packed(f"{folder}/packed.db", size)]
        db = opened(path)
        told += asked(db)
        db.close()
    print("| | measured | of the processor | bound on 1 GB |\n|---|---|---|---|")
    for name, value, used, bound in told:
        print(f"| {name} | {value:.2f} | {used if used == '' else round(used, 2)} | {bound} |")


if __name__ == "__main__":
    main()
