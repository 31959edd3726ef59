"""run.py [word ...]: runs the measurements and writes RESULTS.md.

Each module <domain>.py in this folder has a function cases(), which returns a
list of Case. All sides of a case run in turn, A B C A B C ..., in this
process, and a ratio is taken within each turn, so that a machine that changes
its speed changes both sides. What is printed is the median of the ratios.
With words, only the cases whose title contains one of them run, and
RESULTS.md is left alone.
"""
import gc
import importlib
import pathlib
import platform
import sqlite3
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
MODULE = str(ROOT / ("blackbox.dylib" if sys.platform == "darwin" else "blackbox.so"))
sys.modules.setdefault("run", sys.modules[__name__])
sys.path.insert(0, str(HERE))


class Case:
    """One comparison.

    title   what is measured, as the results page shows it
    sides   {label: function}; a function prepares what it needs in the
            directory it is given and returns the seconds of the measured part
    bounds  [(label, other label or tuple of labels, limit or None)]; a tuple
            stands for the fastest of them
    rounds  how many times all sides run
    note    a sentence for the page
    """

    def __init__(self, title, sides, bounds, rounds=5, note=""):
        self.title, self.sides, self.bounds = title, sides, bounds
        self.rounds, self.note = rounds, note

    def run(self):
        """Returns the bounds with their median ratio, and the medians."""
        times = {label: [] for label in self.sides}
        for _ in range(self.rounds):
            for label, side in self.sides.items():
                with tempfile.TemporaryDirectory() as folder:
                    gc.collect()
                    times[label].append(side(pathlib.Path(folder)))
        ratios = []
        for label, others, limit in self.bounds:
            others = others if isinstance(others, tuple) else (others,)
            each = [
                mine / min(times[other][i] for other in others)
                for i, mine in enumerate(times[label])
            ]
            ratios.append((label, others, limit, statistics.median(each)))
        return ratios, {k: statistics.median(v) for k, v in times.items()}


def connect(path, wal=True):
    """A connection in autocommit, with the module, set as agents use it."""
    db = sqlite3.connect(str(path), isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    if wal:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
    return db


def timed(function):
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def show(seconds):
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            break
    return f"{seconds * scale:.3g} {unit}"


def table(case, ratios, medians):
    lines = [f"### {case.title}", ""]
    if case.note:
        lines += [case.note, ""]
    lines += ["| compared | ratio | limit | |", "|---|---|---|---|"]
    for label, others, limit, ratio in ratios:
        verdict = "" if limit is None else "met" if ratio <= limit else "MISSED"
        name = " or ".join(others)
        if len(others) > 1:
            name = f"the faster of {name}"
        lines.append(
            f"| {label} / {name} | {ratio:.2f} | "
            f"{'' if limit is None else limit} | {verdict} |"
        )
    lines += ["", "Medians: " + ", ".join(
        f"{label} {show(value)}" for label, value in medians.items()
    ) + ".", ""]
    return lines


def main(words):
    page = [
        "# Results",
        "",
        "Written by `make bench`. A ratio below 1 means that the first named is "
        "faster; each is the median over interleaved runs. Absolute times are of "
        "one machine on one day and only there to give an idea.",
        "",
        f"SQLite {sqlite3.sqlite_version}, Python {platform.python_version()}, "
        f"{platform.machine()}.",
        "",
    ]
    for path in sorted(HERE.glob("*.py")):
        if path.stem == "run":
            continue
        module = importlib.import_module(path.stem)
        cases = [
            case for case in module.cases()
            if not words or any(word in case.title for word in words)
        ]
        if cases:
            page += [f"## {path.stem}", ""]
        for case in cases:
            lines = table(case, *case.run())
            print("\n".join(lines), flush=True)
            page += lines
    if not words:
        (HERE / "RESULTS.md").write_text("\n".join(page))


if __name__ == "__main__":
    main(sys.argv[1:])
