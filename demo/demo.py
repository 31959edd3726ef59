"""demo.py [--verbose] [folder]: an agent gets stuck in a loop, and the recorder keeps the evidence.

Three support agents answer customers, and one of them begins to ask for the same order again and
again. The table of the agents is that of the command line, top. At the fourth identical call a rule
of the ring stops the agent and fires the kill switch: its row is red, and the case is one page,
demo.html. On a terminal this takes some seconds, and else only the table is shown.

--verbose shows the same with its statements: the ring, the verdict, attempts to get rid of the
evidence, receipts, the proof.

If a folder is named, it has payloads.jsonl.gz (one exchange in a line: agent_id, event_id, ts,
request, response), and these real exchanges are replayed in order of time, verbosely. Here a watcher
of ours fires the kill switch when the answer of an agent is repeated REPEATS times in a row. If this
does not happen, it fires for the agent with the most exchanges."""
import collections
import datetime
import gzip
import json
import pathlib
import random
import sqlite3
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE = ROOT / ("blackbox.dylib" if sys.platform == "darwin" else "blackbox.so")
FILE = ROOT / "demo.db"
PAGE = ROOT / "demo.html"
WINDOW = 20
REPEATS = 6
WIDE = 100  # columns at most
STEP_S = 0.08  # between two exchanges on a terminal

Exchange = collections.namedtuple("Exchange", "agent event request response time")


def result_of(order, dice):
    """What the tool get_order returns. Number 1042 is one that it does not find."""
    if order == 1042:
        return {"error": "upstream timed out after 30 s", "request": {
            "url": f"https://orders.example/{order}", "authorization": "Bearer 0f7c2e9a4b6d8135"}}
    return {"order": order, "state": dice.choice(["packed", "on its way", "at the depot"]),
            "parcels": dice.randrange(1, 4), "due": f"2025-10-{dice.randrange(10, 20)}"}


def answer_of(messages, dice, stuck):
    """What the model says next."""
    last = messages[-1]
    if last["role"] == "tool" and not stuck:
        found = json.loads(last["content"])
        return {"role": "assistant", "content":
                f"Your order {found['order']} is {found['state']}. It is due on {found['due']}."}
    order = 1042 if stuck else dice.randrange(2000, 9999)
    return {"role": "assistant", "content": None, "tool_calls": [{
        "id": f"call_{dice.randrange(10**8):08}", "type": "function",
        "function": {"name": "get_order", "arguments": json.dumps({"id": order})}}]}


def made_up():
    """Three agents at work; 'support-2' loops from its 25th exchange on."""
    dice = random.Random(7)
    at = 1760000000000
    topics = ["a late parcel", "a broken lamp", "a wrong size", "an invoice"]
    history = {f"support-{n}": [{"role": "system", "content":
                                 "You answer customers of a shop. Look up each order before you "
                                 "say anything about it. Be brief and kind."}] for n in (1, 2, 3)}
    for step in range(150):
        agent = f"support-{step % 3 + 1}"
        messages = history[agent]
        at += 900_000 if step == 60 else dice.randrange(400, 2600)
        stuck = agent == "support-2" and step >= 75
        if messages[-1]["role"] != "assistant" or not messages[-1].get("tool_calls"):
            messages.append({"role": "user", "content": f"Hello, I have a question about "
                             f"{dice.choice(topics)}. Can you look at my order?"})
        else:
            call = messages[-1]["tool_calls"][0]
            order = json.loads(call["function"]["arguments"])["id"]
            messages.append({"role": "tool", "tool_call_id": call["id"],
                             "content": json.dumps(result_of(order, dice))})
        said = answer_of(messages, dice, stuck)
        request = {"model": "gpt-5", "messages": messages}
        response = {"usage": {"prompt_tokens": len(json.dumps(request)) // 4,
                              "completion_tokens": len(json.dumps(said)) // 4},
                    "choices": [{"message": said}]}
        yield Exchange(agent, str(uuid.UUID(int=dice.getrandbits(128), version=4)),
                       json.dumps(request), json.dumps(response), at)
        messages.append(said)


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
    db.execute("SELECT blackbox_install('main', 'all')").fetchone()
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    return db


def connect():
    db = fresh(FILE)
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={WINDOW})")
    return db


def show(db, title, sql, *args):
    """A query of at most one parameter and its result, in columns. What would move the cursor of
    the terminal is shown as a space."""
    told = sql.replace("?", repr(args[0])) if args else sql
    print(f"\n{title}\n  {cut(told, WIDE - 2)}")
    cursor = db.execute(sql, args)
    table = [[column[0] for column in cursor.description]]
    table += [["".join(c if c.isprintable() else " " for c in str(value)) for value in row]
              for row in cursor]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print(cut("    " + "  ".join(v.ljust(w) for v, w in zip(row, widths)).rstrip(), WIDE))


def cut(text, most):
    return text if len(text) <= most else text[:most - 3] + "..."


def tell_database(file):
    print(f"\nThe database is {file.name}; go on with: "
          f"sqlite3 -cmd '.load ./{MODULE.stem}' {file.name}")


def tell_page(page):
    PAGE.write_text(page, encoding="utf-8")
    print(f"The case is one page of {len(page.encode()) // 1000} KB; open it: {PAGE.name}")


def replay(db, exchanges, fatal):
    """Records the exchanges up to the one after which the watcher fires, or a rule did."""
    for exchange in exchanges:
        db.execute(
            "INSERT INTO ring(agent_id, event_id, request_body, response_body, "
            "timestamp) VALUES(?,?,?,?,?)", exchange)
        db.execute(
            "SELECT payload_queue(?, ?, ?, ?, ?)",
            (exchange.event, exchange.agent, *exchange[2:]),
        ).fetchone()
        if exchange is fatal or db.execute("SELECT count(*) FROM payload_verdicts "
                                           "WHERE action = 'kill_switch'").fetchone()[0]:
            break
    db.execute("SELECT payload_flush()").fetchone()


def attempt(db, sql, *args):
    """Tries to delete the evidence, and shows the result."""
    try:
        told = f"{db.execute(sql, args).rowcount} rows"
    except sqlite3.Error as error:
        told = f"refused: {error}"
    print(f"  {cut(sql, WIDE - 2)}\n    -> {cut(told, WIDE - 7)}")


def fire(db, exchanges):
    """Replays recorded exchanges, and fires the switch where the watcher says so."""
    fatal, reason = suspect(exchanges)
    replay(db, exchanges, fatal)
    show_ring(db)
    print(f"\n{cut(fatal.agent, 40)} {reason}: the kill switch fires.")
    event = "kill-" + fatal.event
    saved = db.execute("SELECT payload_kill_switch('ring', ?, ?)",
                       (fatal.agent, event)).fetchone()[0]
    print(cut(f"  SELECT payload_kill_switch('ring', '{fatal.agent}', '{event}')", WIDE) +
          f"\n    -> {saved} exchanges are evidence now, and have left the ring")
    return event, saved


def wait_for_rule(db, exchanges):
    """Replays exchanges until a rule of the ring fires the switch."""
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', 'kill_switch')")
    replay(db, exchanges, None)
    show_ring(db)
    event, saved = db.execute(
        "SELECT kill_switch_event_id, count(*) FROM event_payloads "
        "WHERE purpose = 'evidence' GROUP BY kill_switch_event_id").fetchone()
    print("\nA rule of the ring found a loop, and fired the kill switch.")
    show(db, "Why:", "SELECT rule, level, count, tool, sentence, action FROM payload_verdicts")
    print(f"\n{saved} exchanges are evidence now, and have left the ring.")
    return event, saved


def show_ring(db):
    show(db, "The ring: what it was given, what rolled out, what is there (busiest 5):",
         "SELECT agent_id, given, rolled, rows, bytes FROM ring_agents "
         "ORDER BY given DESC LIMIT 5")


def live():
    """Shows the agents at work, in the table of the command line."""
    sys.path.insert(0, str(ROOT / "packages/python"))
    from blackbox.file import ABOUT, File
    from blackbox.terminal import colours, table
    db = connect()
    db.execute("SELECT rollout_load_prices(?, 'prices.json')",
               ((ROOT / "packages/prices.json").read_text(encoding="utf-8"),))
    db.execute("UPDATE blackbox_settings SET value = 'kill_switch' WHERE name = 'payload.on_loop'")
    file = File({"db": str(FILE), "ring": "ring", "rows": None})
    moves = sys.stdout.isatty()

    def show_agents():
        rows = sorted(file.rows("top"), key=lambda row: row["agent"])
        lines = [cut(line, WIDE + 9) for line in  # with the codes of its colour
                 table(rows, ABOUT["commands"]["top"]["columns"], colours(sys.stdout))]
        if moves:
            print("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", end="",
                  flush=True)
        else:
            print("\n".join(lines))
        return [row for row in rows if row["why"]]

    if moves:
        print("\x1b[2J", end="")
    red = []
    for exchange in made_up():
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body) "
                   "VALUES(?, ?, ?, ?)", exchange[:4])
        if moves:
            red = show_agents()
            time.sleep(STEP_S)
        if red or db.execute("SELECT 1 FROM payload_agents WHERE stopped_at NOT NULL").fetchone():
            break
    red = red or show_agents()
    if not red:
        sys.exit("no agent was stopped")
    page = db.execute("SELECT blackbox_report(?, ?)", (red[0]["kind"], red[0]["key"])).fetchone()[0]
    db.close()
    PAGE.write_text(page, encoding="utf-8")
    print(f"\n{cut(red[0]['why'], WIDE - 12)}: {PAGE.name}")


def main(words):
    if words == []:
        live()
    else:
        words = [word for word in words if word != "--verbose"]
        told(pathlib.Path(words[0]) if words else None)


def told(folder):
    """Shows what happens, and the statements."""
    exchanges = recorded(folder) if folder else list(made_up())
    agents = len({exchange.agent for exchange in exchanges})
    print(f"{len(exchanges)} exchanges of {agents} agents "
          f"({'recorded' if folder else 'made up'}), "
          f"SQLite {sqlite3.sqlite_version}; each agent keeps its last {WINDOW}.")
    db = connect()
    event, saved = (fire if folder else wait_for_rule)(db, exchanges)
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
    head = db.execute("SELECT proof_head()").fetchone()[0].replace("\n", " ")
    print(cut(f"The head of the log that proves it: {head}", WIDE))
    page = db.execute("SELECT blackbox_report('kill_switch', ?)", (event,)).fetchone()[0]
    db.close()
    tell_database(FILE)
    tell_page(page)
    if left != saved or saved == 0 or problems:
        sys.exit("the evidence is not what it should be")


if __name__ == "__main__":
    main(sys.argv[1:])
