"""python -m blackbox: looks into a file that a recorder or an import wrote.

The commands, their help and their statements are in commands.json and commands.sql, which the
package of npm has, too. Rows go to standard output and nothing else does; progress, what to do next
and errors go to standard error.
"""
import contextlib
import glob
import http.server
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
    if found[:1] == ["export"] and options["json"] and options["format"] == "markdown":
        raise Failure("--json and --format markdown exclude each other", 2)
    return found[:1], found[1:], options


def text_of(argument):
    """An argument as UTF-8, whatever the locale is."""
    return os.fsencode(argument).decode("utf-8", "replace")


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
    form = "json" if options["json"] else options["format"]
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


def default_paths(about):
    """The folders and files of programs that this computer has."""
    for path in about["paths"]:
        for home, variable in about["homes"].items():
            if path.startswith(home + "/") and os.environ.get(variable):
                path = os.environ[variable] + path[len(home):]
        if os.path.exists(os.path.expanduser(path)):
            yield path


def divide(folder, most, deep=0):
    """The parts of a folder to be imported one by one, with the bytes of each, and all its bytes.

    What has at most so many bytes is no part of its own: it comes with the folder, which is the last.
    """
    found, below, size = [], 0, 0
    try:
        inside = sorted(os.scandir(folder), key=lambda entry: entry.name) if deep < 100 else []
    except OSError:  # the import tells it
        inside = []
    for entry in inside:
        more, its = [], 0
        if entry.is_dir(follow_symlinks=False):
            more, its = divide(entry.path, most, deep + 1)
        elif entry.is_file(follow_symlinks=False):
            with contextlib.suppress(OSError):  # it is gone
                its = entry.stat(follow_symlinks=False).st_size
            more = [(entry.path, its)] if its > most else []
        size += its
        if more and entry.name.isprintable():
            found += more
            below += its
    return (found + [(folder, size - below)] if size > most else []), size


def import_(file, words, options):
    about = ABOUT["commands"]["import"]
    rows, work, roots, told_before = [], [], [], set()

    def is_store(path, glob):
        return glob is None and os.path.basename(path) in about["programs"]

    def tell(path, reason):
        if (path, reason) not in told_before:
            note(f"{path}: {reason}")
            told_before.add((path, reason))

    for word in words or default_paths(about):
        root = os.path.realpath(os.path.expanduser(word))
        rows.append({"path": text_of(word), **dict.fromkeys(list(columns("import"))[1:], 0)})
        if not os.path.exists(root):
            tell(word, "there is no such folder or file")
            rows[-1]["failed"] = 1
            continue
        roots.append((rows[-1], root, None if os.path.isdir(root) else "*"))
        if os.path.isdir(root):
            parts, size = divide(root, about["chunk"])
            work += [(rows[-1], *part, None) for part in parts or [(root, size)]]
        else:
            work.append((rows[-1], root, os.path.getsize(root), "*"))
    if not rows:
        note("there are no sessions of agents where they are by default; name a folder or a file")
    done, all_ = 0, sum(size for _, _, size, _ in work)
    for row, path, size, glob in work:
        progress(done, all_, os.path.basename(path))
        told = read(file, path, glob)
        done += size
        for error in told["errors"]:
            known = is_store(error["path"], glob) or error["reason"].startswith(about["unknown"])
            if glob or not known:
                tell(error["path"] or path, error["reason"])
        for name in list(row)[1:]:  # what is found again with the folder, and what is read once
            row[name] = told[name] + (row[name] if name in ("items", "new", "bad") else 0)
    for row, root, glob in roots:
        for source, reason in file.values(
                about["failed"], {"path": text_of(root), "unknown": about["unknown"]}):
            if not is_store(source, glob):
                tell(source, reason)
                continue
            told = read(file, source, "*")  # what a folder is not read for
            for error in told["errors"]:
                tell(source, error["reason"])
            row["failed"] += told["failed"] - 1
            for name in ("items", "new", "bad"):
                row[name] += told[name]
    progress(all_, all_, "")
    write(rows, columns("import"), options)
    return 0 if any(row["files"] for row in rows) and not any(row["failed"] for row in rows) else 1


def read(file, path, glob):
    """Imports a folder or a file: what rollout_import_dir() returns."""
    program = ABOUT["commands"]["import"]["programs"].get(os.path.basename(path))
    try:
        path = os.fsencode(path).decode("utf-8")
        if not program or not glob:
            return json.loads(file.values("SELECT rollout_import_dir(?, ?)", (path, glob))[0][0])
        file.values("ATTACH ? AS imported", (path,))
        try:
            told = json.loads(file.values("SELECT rollout_import_from(?, 'imported')", (program,))[0][0])
        finally:
            file.values("DETACH imported")
        errors = [{"path": path, "reason": f"line {error['line']}: {error['reason']}"}
                  for error in told["errors"]]
        return {**told, "files": 1, "unknown": 0, "failed": 0, "errors": errors}
    except (UnicodeError, sqlite3.Error) as error:
        if not program and "ValidationError" not in str(error) and not isinstance(error, UnicodeError):
            raise  # of our own file
        return {"files": 1, "items": 0, "new": 0, "bad": 0, "unknown": 0, "failed": 1,
                "errors": [{"path": text_of(path), "reason": str(error)}]}


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
            words = [text_of(word) for word in words]
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
