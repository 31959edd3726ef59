"""python -m blackbox: looks into a file that a recorder or an import wrote.

The commands, their help and their statements are in commands.json and commands.sql, which the
package of npm has, too. Rows go to standard output and nothing else does; progress, what to do next
and errors go to standard error.
"""
import glob
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import threading
import time
import urllib.parse

import blackbox
from blackbox.file import ABOUT, Failure, File
from blackbox.sessions import import_, utf8_of
from blackbox.terminal import colours, cut, note, progress, shown, table, visible, word, write

PROGRAM = "python -m blackbox"
FRESH = 1.0  # seconds between two looks


# ------------------------------------------------------------------ the command line


def parse(words):
    """The command, its arguments and its options."""
    known = ABOUT["options"]
    options = {name: option.get("default") for name, option in known.items()}
    short = {option.get("short"): name for name, option in known.items()}
    found, words = [], list(words)
    while words:
        word = words.pop(0)
        name, has_value, value = word[2:].partition("=")
        if word == "--":
            found += words
            break
        if not word.startswith("-") or word == "-":
            found.append(word)
            continue
        if not word.startswith("--"):
            name, has_value = short.get(word[1:2]), word[2:]
            value = word[2:]
        if name not in known or (has_value and "value" not in known[name]):
            raise Failure(f"there is no option {word}; {PROGRAM} --help lists them", 2)
        if "value" not in known[name]:
            value = True
        elif not has_value:
            if not words:
                raise Failure(f"{word} needs a {known[name]['value']}", 2)
            value = words.pop(0)
        options[name] = value
    for name in ("rows", "port"):
        if options[name] is not None and not re.fullmatch(r"\d{1,9}", str(options[name])):
            raise Failure(f"--{name} must be a number, got {options[name]}", 2)
        options[name] = options[name] and int(options[name])
    if (options["port"] or 0) > 65535:
        raise Failure(f"--port must be at most 65535, got {options['port']}", 2)
    formats = ABOUT["commands"].get(found[0] if found else None, {}).get("formats")
    if formats and options["format"] not in (None, *formats):
        raise Failure(f"--format of {found[0]} must be {', '.join(formats[:-1])} or {formats[-1]}, "
                      f"got {options['format']}", 2)
    if found[:1] == ["export"] and options["json"] and options["format"] == "markdown":
        raise Failure("--json and --format markdown exclude each other", 2)
    return found[:1], found[1:], options


def usage():
    lines = [ABOUT["usage"].replace("{program}", PROGRAM)]
    for name, command in ABOUT["commands"].items():
        head = f"{name} {command.get('arguments', '')}"
        lines.append(f"  {head:<32}{command['help']}\n")
    lines.append("\n")
    for name, option in ABOUT["options"].items():
        head = f"{'-' + option['short'] + ', ' if 'short' in option else '    '}--{name}"
        lines.append(f"  {head + ' ' + option.get('value', ''):<32}{option['help']}\n")
    return "".join(lines) + ABOUT["codes"]


# ------------------------------------------------------------------ the commands


def columns(command):
    return ABOUT["commands"][command]["columns"]


def named(rows):
    """What to do about the agents that are red."""
    for row in rows:
        if row["why"]:
            yield cut(shown(row["why"], "text"), 98)
            yield f"  {PROGRAM} report {row['kind']} {word(row['key'])}"


def top(file, _, options):
    live = sys.stdout.isatty() and not options["once"] and not options["json"]
    while True:
        begin = time.monotonic()
        rows = list(file.rows("top"))
        if not live:
            found = write(rows, columns("top"), options)
            if not options["json"] and sys.stderr.isatty():
                for line in named(rows):
                    note(line)
            return 0 if found else 1
        size = shutil.get_terminal_size()
        lines = [cut(f"{shown(file.path, 'text')}, {time.strftime('%H:%M:%S')}, ends with Ctrl-C", size.columns), "",
                 *table(rows, columns("top"), colours(sys.stdout), size.columns), "",
                 *(cut(line, size.columns) for line in named(rows))][:max(1, size.lines - 1)]
        print("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", end="", flush=True)
        time.sleep(max(FRESH, 2 * (time.monotonic() - begin)))


def tail(file, words, options):
    key = words[0] if words else None
    rows = list(file.rows("tail", key=key))[::-1]
    found = write(rows, columns("tail"), options)
    seen = {(row["agent"], row["event"], row["open"]) for row in rows}
    while options["follow"]:
        time.sleep(FRESH)
        rows = [row for row in file.rows("tail", key=key, rows=1000)
                if (row["agent"], row["event"], row["open"]) not in seen][::-1]
        seen |= {(row["agent"], row["event"], row["open"]) for row in rows}
        rows = [row for row in rows if not row["open"]]
        if options["json"]:
            write(rows, columns("tail"), options)
        elif rows:
            for line in list(table(rows, columns("tail"), False))[1:]:
                print(line, flush=True)
    return 0 if found else 1


def report(file, words, options):
    if options["site"]:
        done = json.loads("".join(file.page(None, None, None, options["site"])))
        note(f"{len(done['written'])} files written, {done['unchanged']} unchanged: {options['site']}/index.html")
        return 0
    kind, key = (["database", "main"] if not words else words if words[1:] else [None, words[0]])
    if kind is None:
        found = next(file.rows("report", key=key), None)
        if found is None:
            raise Failure(f"NotFoundError: there is no agent, kill switch or conversation '{key}'; "
                          f"{PROGRAM} top lists the agents")
        kind, key = found["kind"], found["key"]
    form = "json" if options["json"] else options["format"] or "html"
    name = options["output"]
    if name is None and sys.stdout.isatty() and form == "html":
        name = re.sub(r"[^\w.-]", "-", key) + ".html"
    lines = file.page(kind, key, form)
    first = next(lines, "")  # an error leaves a file that is there as it is
    if name is None:
        for line in itertools.chain([first], lines):
            say(line)
        return 0
    with open(name, "w", encoding="utf-8") as out:
        out.write(first)
        out.writelines(lines)
    note(f"the page is {name}")
    return 0


def say(text):
    """Writes to standard output, where a program gets every character, and a terminal no control."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


def rows_of(name):
    def command(file, words, options):
        rows = file.rows(name, key=words[0] if words else None)
        return 0 if write(rows, columns(name), options) else 1
    return command


def export(file, words, options):
    found = False
    for row in file.rows("export", key=words[0] if words else None, format=options["format"]):
        found = True
        line = row["line"]
        if not isinstance(line, bytes):
            say(f"{line}\n")
        elif sys.stdout.isatty():
            say(line.decode("utf-8", "replace") + "\n")
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(line + b"\n")
    return 0 if found else 1


def doctor(file, _, options):
    rows = list(file.rows("doctor"))
    left = glob.glob(glob.escape(file.path) + "-spill-*.db")
    if left:
        rows.append({"state": "note", "what": "queue", "value":
                     f"{len(left)} of recorders that run or were killed; the next one writes them"})
    write(rows, columns("doctor"), options)
    return 1 if any(row["state"] == "problem" for row in rows) else 0


def serve(file, _, options):
    import http.server  # which takes a third of the time in which the other commands start
    reading = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 30  # of a client that says nothing

        def log_message(self, *_):
            pass

        def do_GET(self):
            path, _, asked = self.path.partition("?")
            asked = dict(urllib.parse.parse_qsl(asked))
            try:
                with reading:
                    answer = self.find(path, asked)
            except (sqlite3.Error, ValueError) as error:
                answer = 404 if "NotFoundError" in str(error) else 500, "text/plain", [str(error)]
            self.answer(*answer)

        def find(self, path, asked):
            # a name that leads here is another site
            if not re.fullmatch(r"(127\.0\.0\.1|localhost)(:\d+)?", self.headers.get("Host", "")):
                return 403, "text/plain", ["403: only this computer"]
            if path == "/":
                return 200, "text/html", [blackbox.shared("serve.html")]
            if path == "/top":
                return 200, "application/json", [json.dumps(list(file.rows("top")))]
            if path == "/report":
                return 200, "text/html", list(file.page(asked.get("kind"), asked.get("key"), "html"))
            return 404, "text/plain", ["404: there is no such page"]

        def answer(self, status, kind, parts):
            body = "".join(parts).encode("utf-8", "replace")
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_):  # of a client that is gone
            pass

    try:
        server = Server(("127.0.0.1", options["port"]), Handler)
    except OSError as error:
        raise Failure(f"port {options['port']} is not to be had: {error}; --port names another") \
            from error
    note(f"http://127.0.0.1:{server.server_port}/ until Ctrl-C")
    server.serve_forever()


COMMANDS = {"top": top, "tail": tail, "report": report, "import": import_, "usage": rows_of("usage"),
            "search": rows_of("search"), "export": export, "doctor": doctor, "serve": serve}


def main(words):
    try:
        command, words, options = parse(words)
        if options["version"]:
            db = blackbox.load(sqlite3.connect(":memory:"))
            print(db.execute("SELECT blackbox_version()").fetchone()[0])
            return 0
        if options["help"] or not command:
            print(usage(), end="", file=sys.stdout if options["help"] else sys.stderr)
            return 0 if options["help"] else 2
        command = command[0]
        if command not in COMMANDS:
            raise Failure(f"there is no command {command}; {PROGRAM} --help lists them", 2)
        about = ABOUT["commands"][command]
        if not about.get("least", 0) <= len(words) <= about.get("most", 0):
            raise Failure(f"usage: {PROGRAM} {command} {about.get('arguments', '')}".rstrip(), 2)
        if command != "import":
            words = [utf8_of(word) for word in words]
        file = File(options, command == "import")
        code = COMMANDS[command](file, words, options)
        sys.stdout.flush()
        return code
    except Failure as failure:
        note(f"blackbox: {failure}")
        return failure.code
    except BrokenPipeError:  # of head, which has read enough
        forget_output()
        return 0
    except (sqlite3.Error, OSError) as error:
        note(f"blackbox: {error}")
        forget_output()
        return 1


def forget_output():
    """What is not written yet will not be: Python would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once, in a statement of SQLite, too
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")
    # a program gets UTF-8, and a terminal what it can show
    sys.stdout.reconfigure(encoding=None if sys.stdout.isatty() else "utf-8", errors="replace")
    sys.exit(main(sys.argv[1:]))
