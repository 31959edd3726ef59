#!/usr/bin/env python3
"""reference.py: writes docs/reference.md from the sources, with --check compares it.

Functions and their numbers of arguments are those of ext/blackbox.c; their arguments have the
names that the pages in docs/ give them. Tables, views, columns and settings are those of a file
with everything installed. Errors are those that ext/ and sql/ raise.
"""
import pathlib
import re
import sqlite3
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"
PAGES = [page for page in sorted((ROOT / "docs").glob("*.md"))
         if page.name not in ("reference.md", "tutorial.md", "cookbook.md", "night.md", "guarantees.md")]
TEXTS = {page.name: page.read_text() for page in PAGES}
# Names whose page does not follow from how they begin.
HOMES = {"ring": "payload", "event_payloads": "payload", "buffer": "evidence", "rollouts": "rollout",
         "blackbox_log": "proof", "blackbox_places": "detection", "blackbox_prices": "rollout",
         "blackbox_secrets": "report"}


def connect():
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(ROOT / "blackbox"))
    db.execute("SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE buffer USING evidence_buffer")
    return db


def link(name, arguments=None):
    """The page that describes a function with these arguments, or that of its domain, or says most about it."""
    call = f"`{name}({arguments})`"
    home = HOMES.get(name, name.split("_")[0].replace("blackbox", "core")) + ".md"
    counts = {page: len(re.findall(rf"\b{re.escape(name)}\b", text)) for page, text in TEXTS.items()}
    page = max(counts, key=lambda page: (call in TEXTS[page], f"- {call}" in TEXTS[page],
                                         page == home and counts[page] > 0, counts[page], page))
    return f"[{page[:-3]}]({page})" if counts[page] else ""


def signature(name, least, most):
    """The arguments as a page writes them: as many as the function has."""
    calls = [arguments for text in TEXTS.values()
             for arguments in re.findall(rf"\b{name}\(([a-zA-Z_', \[\]]*)\)", text)]
    for arguments in sorted(set(calls), key=lambda arguments: arguments.count("'")):
        required, _, optional = arguments.partition("[")
        number = required.count(",") + 1 if required.strip() else 0
        if number == least and number + optional.count(",") + (not required and "[" in arguments) == most:
            return arguments
    print(f"no page in docs/ shows {name}() with {least} to {most} arguments", file=sys.stderr)
    return "?"


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def functions(source):
    body = source[source.index("aFunctions[] = {"):]
    for name, least, most, flags in re.findall(
            r'\{"([a-z_]+)", (\d+), (\d+),\s+([A-Z_ |]+),', body[:body.index("\n};")]):
        arguments = signature(name, int(least), int(most))
        yield [f"`{name}({arguments})`", "writes" if re.search("WRITE|OWN|ACT|ONE", flags) else "reads",
               link(name, arguments)]


def tables_of_functions(db, source):
    body = source[source.index("aTables[] = {"):]
    for name in sorted(re.findall(r'\n    \{"([a-z_]+)",', body[:body.index("\n};")])):
        columns = db.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", [name]).fetchall()
        yield [f"`{name}`", ", ".join(column for column, hidden in columns if hidden == 1) or "",
               ", ".join(column for column, hidden in columns if hidden != 1), link(name)]


def objects(db):
    for name, kind in db.execute(
            "SELECT name, type FROM sqlite_schema WHERE type IN ('table', 'view')"
            " AND instr(name, '__') = 0 AND name NOT LIKE 'sqlite%' ORDER BY name"):
        if name.startswith(("ring_", "buffer_", "rollout_search")):
            continue
        columns = [column for column, in db.execute("SELECT name FROM pragma_table_xinfo(?)", [name])]
        yield [f"`{name}`", kind, ", ".join(columns), link(name)]


def errors():
    """Each name with the first message that has it, and says something."""
    found = {}
    for pattern, message in [("ext/*/*.c", r'"([A-Z][a-z]+[A-Za-z]*Error): ((?:\\.|[^"\\]|"\s+")*)'),
                             ("sql/*.sql", r'"([A-Z][a-z]+[A-Za-z]*Error): ([^"]*)'),
                             ("sql/*.sql", r"'([A-Z][a-z]+[A-Za-z]*Error): ((?:[^']|'\s+')*)")]:
        for path in sorted(ROOT.glob(pattern)):
            for name, text in re.findall(message, path.read_text()):
                text = re.sub(r"[\"']\s+[\"']", "", text).replace("\n", " ").replace('\\"', '"')
                if found.get(name, "%s;").startswith("%s;"):
                    found[name] = text
    for name in sorted(found):
        text = re.sub(r"%[.*a-zA-Z0-9]*[a-zA-Z]", "...", found[name]).split(";")[0].replace("|", ",")
        yield [f"`{name}`", text, link(name)]


def reference():
    db = connect()
    source = (ROOT / "ext" / "blackbox.c").read_text()
    settings = db.execute('SELECT name, coalesce("default", \'\'), range, meaning FROM blackbox_settings'
                          " ORDER BY name")
    lines = ["# Reference", "", "This page is written by `tools/reference.py`. The pages that it links to explain.", "",
             "## Functions", "",
             "Those that write are for the top level of a statement; as a row, `INSERT INTO blackbox_call` runs them.", "",
             *table(["function", "", "page"], functions(source)), "",
             "## Tables that are functions", "", "`SELECT * FROM name(argument, ...)`. `payload_queue` takes rows, too.", "",
             *table(["name", "arguments", "columns", "page"], tables_of_functions(db, source)), "",
             "## Tables and views", "", "`ring` and `buffer` are virtual tables, as `CREATE VIRTUAL TABLE` makes them.", "",
             *table(["name", "", "columns", "page"], objects(db)), "",
             "## Settings", "", "Rows of `blackbox_settings`.", "",
             *table(["name", "default", "range", "meaning"],
                    ([f"`{name}`", str(default), str(limits), meaning] for name, default, limits, meaning in settings)), "",
             "## Errors", "", "Each message begins with one of these names.", "",
             *table(["name", "for example", "page"], errors())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = reference()
    if "--check" in sys.argv:
        sys.exit(text != PAGE.read_text())
    PAGE.write_text(text)
