#!/usr/bin/python3
"""many_sessions.py MB: questions to many sessions of coding agents, each with its bound.

The sessions are made, of Claude Code's form: words of the docs, calls of two tools, results, usage.
1,000 MB are 619 sessions and 411,000 items, and take about a minute, and 3 GB of disk.
"""
import json
import pathlib
import random
import sqlite3
import statistics
import sys
import tempfile
import time

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
       for words in ("import", "rollout item", "zzzq", "conv*", "the OR a", "rollout NOT item")},
}


def cases():
    """Nothing of `make bench`: it takes too long."""
    return []


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


def imported(path, size, *before):
    """A file of so many bytes of sessions, and the seconds that it took to import them."""
    random.seed(1)
    known = [word for word in (ROOT / "docs/rollout.md").read_text().split() if word.isascii()]
    words = [known[min(len(known) - 1, int(random.paretovariate(0.6)))] for _ in range(20_000)]
    db = sqlite3.connect(path, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(ROOT / "blackbox.so"))
    for sql in ("PRAGMA journal_mode = wal", "PRAGMA synchronous = normal",
                "SELECT blackbox_install('main', 'all')", *before):
        db.execute(sql)
    took = k = 0
    while size > 0:
        lines, k = session(k, words), k + 1
        size -= len(lines)
        start = time.perf_counter()
        db.execute("SELECT rollout_import(?)", (lines,))
        took += time.perf_counter() - start
    return db, took


def main():
    size = float(sys.argv[1]) * 1e6
    with tempfile.TemporaryDirectory() as folder:
        db, without = imported(f"{folder}/without.db", size)
        db.close()
        db, took = imported(f"{folder}/with.db", size, "SELECT rollout_search_install()")
        told = [("import without the search, s", without, ""),
                ("with it, times without", took / without, 3)]
        text = db.execute("SELECT sum(length(text)) FROM rollout__said").fetchone()[0]
        index = db.execute("SELECT sum(length(block)) FROM rollout_fts_data").fetchone()[0]
        told.append(("index, of the text", index / text, 0.6))
        values = {"week": db.execute("SELECT max(at) FROM rollout__texts").fetchone()[0] - WEEK,
                  "rollout": db.execute("SELECT id FROM rollouts LIMIT 1").fetchone()[0]}
        for name, (sql, bound) in QUESTIONS.items():
            times = []
            for _ in range(5):
                start = time.perf_counter()
                db.execute(sql, values).fetchall()
                times.append((time.perf_counter() - start) * 1000)
            told.append((name + ", ms", statistics.median(times), bound))
        start = time.perf_counter()
        assert db.execute("SELECT * FROM blackbox_check").fetchall() == []
        told.append(("blackbox_check, s", time.perf_counter() - start, 5))
        db.close()
    print("| | measured | bound on 1 GB |\n|---|---|---|")
    for name, value, bound in told:
        print(f"| {name} | {value:.2f} | {bound} |")


if __name__ == "__main__":
    main()
