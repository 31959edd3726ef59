"""demo.py [folder]: an agent gets stuck in a loop, and the recorder keeps the evidence.

Without a folder, the traffic is generated: three support agents answer tickets, and one of them
begins to ask for the same order again and again. If the folder has payloads.jsonl.gz (one
exchange in a line: agent_id, event_id, ts, request, response), these real exchanges are
replayed in order of time.

Every exchange is written to the ring and, through the queue, to the archive. The watcher fires
the kill switch when the answer of an agent is repeated REPEATS times in a row. If this does not
happen, it fires for the agent with the most exchanges."""
import collections
import datetime
import gzip
import json
import pathlib
import random
import sqlite3
import sys
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE = ROOT / ("blackbox.dylib" if sys.platform == "darwin" else "blackbox.so")
FILE = ROOT / "demo.db"
PAGE = ROOT / "demo.html"
WINDOW = 20
REPEATS = 6

Exchange = collections.namedtuple("Exchange", "agent event request response time")


def made_up():
    """Three agents at work; 'support-2' loops from its 25th exchange on."""
    dice = random.Random(7)
    start = 1760000000000
    topics = ["a late parcel", "a broken lamp", "a wrong size", "an invoice"]
    history = collections.defaultdict(list)
    for step in range(150):
        agent = f"support-{step % 3 + 1}"
        turn = step // 3
        order = 1042 if agent == "support-2" and turn >= 25 else dice.randrange(9999)
        history[agent].append(
            {"role": "user", "content": f"Customer asks about {dice.choice(topics)}"}
            if order != 1042 else
            {"role": "tool", "content": f'{{"order": {order}, "error": "timeout"}}'}
        )
        request = {"model": "example-large", "messages": history[agent][-8:]}
        response = {
            "choices": [{"message": {"role": "assistant", "tool_calls": [{
                "function": {"name": "get_order", "arguments": f'{{"id": {order}}}'}
            }]}}],
        }
        yield Exchange(agent, str(uuid.UUID(int=dice.getrandbits(128), version=4)),
                       json.dumps(request), json.dumps(response), start + step * 1700)


def recorded(folder):
    """The exchanges of payloads.jsonl.gz, oldest first."""
    def text(body):
        return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)

    with gzip.open(folder / "payloads.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [
            Exchange(
                row["agent_id"], row["event_id"], text(row["request"]),
                text(row["response"]),
                round(datetime.datetime.fromisoformat(
                    row["ts"].replace("Z", "+00:00")).timestamp() * 1000),
            )
            for row in map(json.loads, lines)
        ]
    return sorted(found, key=lambda exchange: exchange.time)


def suspect(exchanges):
    """The exchange after which the watcher fires, and the reason."""
    answers = collections.defaultdict(lambda: collections.deque(maxlen=REPEATS))
    for exchange in exchanges:
        last = answers[exchange.agent]
        last.append(exchange.response)
        if len(last) == REPEATS and len(set(last)) == 1:
            return exchange, f"gave the same answer {REPEATS} times in a row"
    count = collections.Counter(exchange.agent for exchange in exchanges)
    agent, most = count.most_common(1)[0]
    last = [exchange for exchange in exchanges if exchange.agent == agent][-1]
    return last, f"made {most} calls, more than any other"


def fresh(file):
    """A new database with everything installed, in place of the one that was there."""
    for suffix in ("", "-wal", "-shm"):
        pathlib.Path(str(file) + suffix).unlink(missing_ok=True)
    db = sqlite3.connect(file, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(MODULE))
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    db.execute("SELECT blackbox_install()").fetchone()
    return db


def connect():
    db = fresh(FILE)
    db.execute("INSERT INTO blackbox_settings VALUES('payload.enabled', 1)")
    db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={WINDOW})")
    return db


def show(db, title, sql, *args):
    """A query of at most one parameter and its result, in columns. What would move the cursor of
    the terminal is shown as a space."""
    told = sql.replace("?", repr(args[0])) if args else sql
    print(f"\n{title}\n  {told}")
    cursor = db.execute(sql, args)
    table = [[column[0] for column in cursor.description]]
    table += [["".join(c if c.isprintable() else " " for c in str(value)) for value in row]
              for row in cursor]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("    " + "  ".join(v.ljust(w) for v, w in zip(row, widths)).rstrip())


def tell_database(file):
    print(f"\nThe database is {file}; go on with: "
          f"sqlite3 -cmd '.load {MODULE.with_suffix('')}' {file}")


def replay(db, exchanges, fatal):
    """Records the exchanges up to the one after which the watcher fires."""
    for exchange in exchanges:
        db.execute(
            "INSERT INTO ring(agent_id, event_id, request_body, response_body, "
            "timestamp) VALUES(?,?,?,?,?)", exchange)
        db.execute(
            "SELECT payload_queue(?, ?, ?, ?, ?)",
            (exchange.event, exchange.agent, *exchange[2:]),
        ).fetchone()
        if exchange is fatal:
            break
    db.execute("SELECT payload_flush()").fetchone()


def attempt(db, sql, *args):
    """Tries to delete the evidence, and shows the result."""
    try:
        changed = db.execute(sql, args).rowcount
        print(f"  {sql}\n    -> {changed} rows")
    except sqlite3.Error as error:
        print(f"  {sql}\n    -> refused: {error}")


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
    exchanges = recorded(folder) if folder else list(made_up())
    agents = len({exchange.agent for exchange in exchanges})
    print(f"{len(exchanges)} exchanges of {agents} agents "
          f"({'recorded' if folder else 'made up'}), "
          f"SQLite {sqlite3.sqlite_version}; each agent keeps its last {WINDOW}.")
    fatal, reason = suspect(exchanges)
    db = connect()
    replay(db, exchanges, fatal)
    show(db, "The ring: what it was given, what rolled out, what is there (busiest 5):",
         "SELECT agent_id, given, rolled, rows, bytes FROM ring_agents "
         "ORDER BY given DESC LIMIT 5")
    print(f"\n{fatal.agent} {reason}: the kill switch fires.")
    event = "kill-" + fatal.event
    saved = db.execute("SELECT payload_kill_switch('ring', ?, ?)",
                       (fatal.agent, event)).fetchone()[0]
    print(f"  SELECT payload_kill_switch('ring', '{fatal.agent}', '{event}')"
          f"\n    -> {saved} exchanges are evidence now, and have left the ring")
    show(db, "The newest of the evidence:",
         "SELECT created_at, size_bytes, pinned, substr(response_body, -60) AS answer "
         "FROM payload_rows WHERE kill_switch_event_id = ? "
         "ORDER BY created_ms DESC LIMIT 3", event)
    print("\nAttempts to get rid of it:")
    attempt(db, "DELETE FROM event_payloads WHERE purpose = 'evidence'")
    attempt(db, "UPDATE event_payloads SET response_body = '' "
                "WHERE purpose = 'evidence'")
    attempt(db, "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
                "SELECT id, 'x', 'x', 'archive' FROM event_payloads "
                "WHERE purpose = 'evidence' LIMIT 1")
    attempt(db, "DELETE FROM payload_pins")
    plain = sqlite3.connect(FILE, isolation_level=None)
    print("  and from a program that never loaded the module:")
    attempt(plain, "DELETE FROM event_payloads WHERE pinned = 1")
    cleared = db.execute("SELECT payload_clear_archive()").fetchone()[0]
    print(f"  SELECT payload_clear_archive()\n    -> {cleared} archive rows went")
    left = db.execute("SELECT count(*) FROM event_payloads WHERE "
                      "kill_switch_event_id = ?", (event,)).fetchone()[0]
    print(f"\nEvidence still there: {left} of {saved} exchanges.")
    show(db, "The receipt of what went:", "SELECT domain, rule, actor, rows, bytes FROM retention_log")
    show(db, "The figures:", "SELECT payload_stats() AS stats")
    problems = db.execute("SELECT count(*) FROM blackbox_check").fetchone()[0]
    print(f"\nblackbox_check() finds {problems} problems.")
    page = db.execute("SELECT blackbox_report('kill_switch', ?)", (event,)).fetchone()[0]
    PAGE.write_text(page, encoding="utf-8")
    db.close()
    tell_database(FILE)
    print(f"The case is {PAGE}, one file of {len(page.encode()) // 1000} KB; open it in a browser.")
    if left != saved or saved == 0 or problems:
        sys.exit("the evidence is not what it should be")


if __name__ == "__main__":
    main()
