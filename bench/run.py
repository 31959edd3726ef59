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
    why     what explains it when a bound is missed
    """

    def __init__(self, title, sides, bounds, rounds=5, note="", why=""):
        self.title, self.sides, self.bounds = title, sides, bounds
        self.rounds, self.note, self.why = rounds, note, why

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


def verdict(ratio, limit):
    return "" if limit is None else "met" if ratio <= limit else "MISSED"


def compared(label, others):
    name = " or ".join(others)
    return f"{label} / {'the faster of ' if len(others) > 1 else ''}{name}"


def summary(results):
    """All bounds in one table: results is a list of (domain, case, ratios)."""
    bounds = [
        (domain, case, compared(label, others), ratio, limit)
        for domain, case, ratios in results
        for label, others, limit, ratio in ratios
        if limit is not None
    ]
    met = sum(ratio <= limit for *_, ratio, limit in bounds)
    lines = ["## All bounds", "", f"{met} of {len(bounds)} are met.", "",
             "| domain | measured | compared | ratio | limit | | what explains it |",
             "|---|---|---|---|---|---|---|"]
    for domain, case, name, ratio, limit in bounds:
        said = verdict(ratio, limit)
        why = (case.why or "not explained yet") if said == "MISSED" else ""
        lines.append(f"| {domain} | {case.title} | {name} | {ratio:.2f} | {limit} | "
                     f"{said} | {why} |")
    return lines + [""]


def table(case, ratios, medians):
    lines = [f"### {case.title}", ""]
    if case.note:
        lines += [case.note, ""]
    if not ratios:
        return lines
    lines += ["| compared | ratio | limit | |", "|---|---|---|---|"]
    for label, others, limit, ratio in ratios:
        lines.append(
            f"| {compared(label, others)} | {ratio:.2f} | "
            f"{'' if limit is None else limit} | {verdict(ratio, limit)} |"
        )
    lines += ["", "Medians: " + ", ".join(
        f"{label} {show(value)}" for label, value in medians.items()
    ) + ".", ""]
    return lines


def main(words):
    head = [
        "# Results",
        "",
        "Written by `make bench`. A ratio below 1 means that the side named first "
        "is faster. Each ratio is the median of interleaved runs. Absolute times "
        "are those of one machine on one day, and are only a rough guide.",
        "",
        f"SQLite {sqlite3.sqlite_version}, Python {platform.python_version()}, "
        f"{platform.machine()}.",
        "",
    ]
    page, results = [], []
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
            ratios, medians = case.run()
            lines = table(case, ratios, medians)
            print("\n".join(lines), flush=True)
            page += lines
            results.append((path.stem, case, ratios))
    if not words:
        page = head + summary(results) + page
        (HERE / "RESULTS.md").write_text("\n".join(page))


if __name__ == "__main__":
    main(sys.argv[1:])
