"""sessions.py folder: what the session files of agents come to.

Imports the files below the folder, of whatever agent, also *.jsonl.gz, into demo.db beside this
project. The files are only read. Then it shows the sessions, the turns, the tokens by day and
model, the longest and the largest session, and what the body store would save: for this, all
texts of 512 bytes and more are packed in a database that is removed afterwards. At the end the longest
session is one page: demo.html."""
import gzip
import json
import pathlib
import sqlite3
import sys
import tempfile
import time
import zlib

from demo import FILE, fresh, show, tell_database, tell_page

SHOWN = 5     # rows of the longest and the largest
DAYS = 30     # rows of the tokens by day and model
WRONG = 10    # files with lines that could not be read
BATCH = 1000  # texts that are packed together
LEAST = 512   # bytes of a text that the store packs


def progress(text, last=False):
    """Writes a line over the one before, or only the last one if nobody watches."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", flush=True)
    elif last:
        print(text)


def read(db, folder):
    """Imports the files. Returns their number, and (file, what was wrong) of those with errors."""
    begun = time.monotonic()
    report = json.loads(db.execute("SELECT rollout_import_dir(?)", (str(folder),)).fetchone()[0])
    count, lines, size = (report[name] for name in ("files", "lines", "bytes"))
    wrong = [(error["path"], error["reason"]) for error in report["errors"]]
    for file in sorted(file for file in folder.rglob("*.jsonl.gz") if file.is_file()):
        try:
            data = gzip.decompress(file.read_bytes())
            one = json.loads(db.execute("SELECT rollout_import(?, ?)",
                                        (data, str(file))).fetchone()[0])
            count, lines, size = count + 1, lines + one["lines"], size + len(data)
            if one["bad"]:
                wrong.append((file, f"{one['bad']} bad lines"))
        except (OSError, EOFError, zlib.error, sqlite3.Error) as error:
            wrong.append((file, str(error)))
    progress(f"{count} files, {lines} lines, {size / 1e6:.1f} MB, "
             f"{time.monotonic() - begun:.1f} s", True)
    return count, wrong


def pack(db, scratch):
    """Packs the long texts in a scratch database. Returns their number, their bytes, and the
    bytes that the store keeps."""
    texts = db.execute("SELECT payload FROM rollout_items "
                       f"WHERE length(CAST(payload AS BLOB)) >= {LEAST}")
    scratch.execute("PRAGMA synchronous = OFF")
    done = 0
    while batch := texts.fetchmany(BATCH):
        scratch.execute("BEGIN")
        scratch.executemany(
            "INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
            "VALUES(?1, ?1, 'demo', ?2, 'archive')",
            ((f"t{done + i}", text) for i, (text,) in enumerate(batch)))
        scratch.execute("COMMIT")
        scratch.execute("SELECT payload_pack(?)", (BATCH,)).fetchone()
        done += len(batch)
        progress(f"{done} texts packed")
    return scratch.execute("SELECT texts, text_bytes, kept_bytes FROM store_stats").fetchone()


def saving(db):
    """Shows what the body store would save."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = fresh(pathlib.Path(folder) / "packed.db")
        texts, size, kept = pack(db, scratch)
        scratch.close()
    whole = db.execute("SELECT coalesce(sum(bytes), 0) FROM rollouts").fetchone()[0]
    share = f"{100 - 100 * kept / size:.0f} percent less" if size else "nothing to save"
    progress(f"\nThe body store would keep the {texts} texts of {LEAST} bytes and more in\n"
             f"{kept / 1e6:.1f} MB instead of {size / 1e6:.1f} MB: {share}.\n"
             f"All items have {whole / 1e6:.1f} MB.", True)


def most(db, title, column):
    show(db, title,
         "SELECT id, date(created / 1000, 'unixepoch') AS day, turns, item_count AS items, "
         "round(bytes / 1e6, 2) AS mb, substr(coalesce(title, first_user_message, ''), 1, 26) "
         f"AS subject FROM rollouts ORDER BY {column} DESC, id LIMIT {SHOWN}")


def figures(db):
    show(db, "Sessions by format:",
         "SELECT format, count(*) - count(agent) AS sessions, count(agent) AS subagents, "
         "sum(turns) AS turns, sum(item_count) AS items, round(sum(bytes) / 1e6, 2) AS mb, "
         "date(min(created) / 1000, 'unixepoch') AS first, "
         "date(max(updated) / 1000, 'unixepoch') AS last FROM rollouts GROUP BY format")
    sums = ("sum(calls) AS calls, sum(input_fresh) AS input_fresh, sum(cache_write) AS "
            "cache_write, sum(cache_read) AS cache_read, sum(output) AS output "
            "FROM rollout_usage_days")
    show(db, f"Tokens by day and model, the newest {DAYS} rows:",
         f"SELECT day, model, {sums} GROUP BY day, model ORDER BY day DESC, model LIMIT {DAYS}")
    show(db, "Tokens by model, all days:",
         f"SELECT model, {sums} GROUP BY model ORDER BY sum(output) DESC")
    most(db, "The longest:", "turns")
    most(db, "The largest:", "bytes")


def main(folder):
    sys.stdout.reconfigure(errors="replace")  # of titles and names of files
    folder = pathlib.Path(folder).expanduser()
    if not folder.is_dir():
        sys.exit(f"{folder} is no folder; name the one in which an agent keeps its sessions: "
                 "make demo SESSIONS=~/.claude/projects")
    db = fresh(FILE)
    count, wrong = read(db, folder)
    if count == 0:
        sys.exit(f"There is no file of a session below {folder}; name the folder in which an agent "
                 "keeps its sessions: make demo SESSIONS=~/.claude/projects")
    figures(db)
    saving(db)
    if wrong:
        print(f"\n{len(wrong)} files have errors; the first:")
    for file, reason in wrong[:WRONG]:
        print(f"  {file}: {reason}")
    problems = db.execute("SELECT count(*) FROM blackbox_check").fetchone()[0]
    tell_database(FILE)
    for longest, in db.execute("SELECT id FROM rollouts ORDER BY turns DESC, id LIMIT 1"):
        tell_page(db.execute("SELECT blackbox_report('rollout', ?)", (longest,)).fetchone()[0])
    db.close()
    if problems:
        sys.exit(f"blackbox_check() finds {problems} problems")


if __name__ == "__main__":
    main(sys.argv[1])
