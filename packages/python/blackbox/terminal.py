"""Shows rows to people and to programs: what the command line writes."""
import json
import os
import re
import sys
import time
import unicodedata

__all__ = ["colours", "cut", "note", "progress", "shown", "table", "visible", "word", "write"]

# What moves the cursor of a terminal, or turns text around.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
RED, BOLD, PLAIN = "\x1b[31m", "\x1b[1m", "\x1b[0m"


def colours(stream):
    return stream.isatty() and not os.environ.get("NO_COLOR")


def shown(value, kind):
    """A value for people. What would move the cursor of a terminal is a space."""
    if value is None:
        return ""
    if kind == "count":
        return f"{value:,}"
    if kind == "money":
        return f"${value:.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"
    if kind == "time":
        return time.strftime("%m-%d %H:%M:%S", time.localtime(value / 1000))
    if kind == "ago":
        ago = max(0, round(time.time() - value / 1000))
        return next(f"{ago // size} {unit}" for size, unit in
                    ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")) if ago >= size or size == 1)
    return "".join(c if c.isprintable() else " " for c in str(value))


def visible(text):
    """A text in which what would move the cursor of a terminal is an escape, as JSON has it."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def word(text):
    """A text as a word of a command line of a shell."""
    if CONTROL.search(text) or "\n" in text or "\t" in text:
        for old, new in ("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\t", "\\t"):
            text = text.replace(old, new)
        return f"$'{visible(text)}'"
    if not re.fullmatch(r"[\w./:@%+=,-]+", text):
        text = "'" + text.replace("'", "'\\''") + "'"
    return "-- " + text if text.startswith("-") else text


def width(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c)
               for c in text)


def cut(text, most):
    """The beginning of a text that has at most so many columns."""
    room = most
    for at, c in enumerate(text):
        room -= width(c)
        if room < 0:
            while at > 0 and width(text[:at]) > most - 1:
                at -= 1
            return text[:at] + "…"
    return text


def table(rows, columns, coloured, most=10000):
    """Lines of a table, of at most so many columns. Those that say why are red."""
    kinds = {name: kind.split() for name, kind in columns.items()}
    cells = [[cut(shown(row.get(name), kind[0]), int(kind[1]) if kind[1:] else 20)
              for name, kind in kinds.items()] for row in rows]
    widths = [max(map(width, column)) for column in zip(*([list(kinds)] + cells))]
    for row, line in zip([None] + rows, [list(kinds)] + cells):
        text = "  ".join(
            cell + " " * (size - width(cell)) if kind[0] in ("text", "time")
            else " " * (size - width(cell)) + cell
            for cell, size, kind in zip(line, widths, kinds.values())).rstrip()
        text = cut(text, most)
        red = row is not None and (row.get("why") or row.get("state") == "problem")
        yield f"{RED if red else BOLD}{text}{PLAIN}" if coloured and (red or row is None) else text


def write(rows, columns, options):
    """Rows for programs, or for people. Returns how many there were."""
    rows = list(rows)
    if options["json"]:
        for row in rows:
            print(visible(json.dumps(row, ensure_ascii=False, separators=(",", ":"))))
    elif rows:
        for line in table(rows, columns, colours(sys.stdout)):
            print(line)
    elif sys.stderr.isatty():
        note("nothing was found")
    sys.stdout.flush()
    return len(rows)


def note(text):
    print(visible(text), file=sys.stderr, flush=True)


def progress(done, all_, text):
    """A bar over bytes, if somebody looks. The last one ends its line."""
    if not sys.stderr.isatty():
        return
    full = round(24 * done / max(1, all_))
    some, most = -(-done // 1000000), -(-all_ // 1000000)
    line = f"[{'#' * full}{'.' * (24 - full)}] {some} of {most} MB {shown(text, 'text')}"
    end = "\n" if done == all_ and not text else ""
    print(f"\r{cut(line, (os.get_terminal_size(2).columns or 80) - 1)}\x1b[K", end=end,
          file=sys.stderr, flush=True)
