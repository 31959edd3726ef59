"""sessions.py: the command import, which reads the session files of agents."""
import contextlib
import json
import os
import sqlite3

from blackbox.file import ABOUT
from blackbox.terminal import note, progress, write

COMMAND = ABOUT["commands"]["import"]


def utf8_of(argument):
    """An argument as UTF-8, whatever the locale is."""
    return os.fsencode(argument).decode("utf-8", "replace")


def default_paths():
    """The folders and files of programs that this computer has."""
    for path in COMMAND["paths"]:
        for home, variable in COMMAND["homes"].items():
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
    rows, work, roots, told_before = [], [], [], set()

    def is_store(path, glob):
        return glob is None and os.path.basename(path) in COMMAND["programs"]

    def tell(path, reason):
        if (path, reason) not in told_before:
            note(f"{path}: {reason}")
            told_before.add((path, reason))

    for word in words or default_paths():
        root = os.path.realpath(os.path.expanduser(word))
        rows.append({"path": utf8_of(word), **dict.fromkeys(list(COMMAND["columns"])[1:], 0)})
        if not os.path.exists(root):
            tell(word, "there is no such folder or file")
            rows[-1]["failed"] = 1
            continue
        roots.append((rows[-1], root, None if os.path.isdir(root) else "*"))
        if os.path.isdir(root):
            parts, size = divide(root, COMMAND["chunk"])
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
            known = is_store(error["path"], glob) or error["reason"].startswith(COMMAND["unknown"])
            if glob or not known:
                tell(error["path"] or path, error["reason"])
        for name in list(row)[1:]:  # what is found again with the folder, and what is read once
            row[name] = told[name] + (row[name] if name in ("items", "new", "bad") else 0)
    for row, root, glob in roots:
        for source, reason in file.values(
                COMMAND["failed"], {"path": utf8_of(root), "unknown": COMMAND["unknown"]}):
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
    write(rows, COMMAND["columns"], options)
    is_read = not any(glob and row["unknown"] for row, _, glob in roots)  # each file that was named
    return 0 if is_read and any(row["files"] for row in rows) and not any(row["failed"] for row in rows) else 1


def read(file, path, glob):
    """Imports a folder or a file: what rollout_import_dir() returns."""
    program = COMMAND["programs"].get(os.path.basename(path))
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
                "errors": [{"path": utf8_of(path), "reason": str(error)}]}
