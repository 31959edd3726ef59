"""run.py [--rounds=N] [word ...]: runs the measurements and writes RESULTS.md.

Each module <domain>.py in this folder has a function cases(), which returns a
list of Case. All sides of a case run in turn, A B C A B C ..., in this
process, and a ratio is taken within each turn, so that a machine that changes
its speed changes both sides. What is printed is the median of the ratios.
With words, only the cases run whose title contains one of them, or whose file
has that name, and RESULTS.md is left alone. --rounds limits how many times
the sides of a case run.

A file has every domain installed, unless it stands for what people use in
place of blackbox: that is `plain`, and is opened without the module. All have
secure_delete as SQLite was compiled. Bodies have the sizes of a recording.
"""
import atexit
import bisect
import functools
import gc
import gzip
import importlib
import itertools
import json
import pathlib
import platform
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
DATA = ROOT.parent / "shared" / "data"  # recordings, where they are there
PAYLOADS = DATA / "payloads.jsonl.gz"
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
    shown   how the page shows what a side returns
    """

    def __init__(self, title, sides, bounds, rounds=5, note="", why="", shown=None):
        self.title, self.sides, self.bounds = title, sides, bounds
        self.rounds, self.note, self.why = rounds, note, why
        self.shown = shown or show

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


def timed(function):
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def limit(seconds):
    """A side that takes so long."""
    return lambda folder: seconds


# ---------------------------------------------------------------- the files

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="blackbox-bench-"))
atexit.register(shutil.rmtree, FOLDER, True)
MADE = {}
KEPT = "\n## many_sessions\n"  # of RESULTS.md: what many_sessions.py printed


def once(key, make):
    """What make(path) returns, for a path of its own. It is called at the first use."""
    if key not in MADE:
        MADE[key] = make(FOLDER / f"{len(MADE)}-{uuid.uuid4().hex[:8]}.db")
    return MADE[key]


def plain(path, **options):
    """A connection in autocommit, without the module, set as agents use it."""
    db = sqlite3.connect(str(path), isolation_level=None, **options)
    db.execute("PRAGMA journal_mode = WAL").fetchone()
    db.execute("PRAGMA synchronous = NORMAL")
    return db


def connect(path, **options):
    """The same with the module."""
    db = plain(path, **options)
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    return db


def checkpoint(db):
    db.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchall()


def install(db):
    """Installs every domain."""
    db.execute("SELECT blackbox_install('main', 'all')").fetchone()


def installed(path, **options):
    """A connection to a new file in which every domain is installed."""
    def make(template):
        db = connect(template)
        install(db)
        db.close()
        return template
    shutil.copy(once("installed", make), path)
    return connect(path, **options)


def like(*tables):
    """SQL of the same tables and indexes, without triggers."""
    db = once("like", installed)
    found = db.execute(
        "SELECT sql || ';' FROM sqlite_schema WHERE type IN ('table', 'index') AND sql NOT NULL"
        f" AND tbl_name IN ({', '.join('?' * len(tables))}) ORDER BY type DESC", tables)
    return "".join(row[0] for row in found)


# --------------------------------------------------------------- the bodies

# The sizes in a recording of 1,498 exchanges: at these shares of them, so many bytes of a
# request and of a response. Neither says anything about the other.
SHARES = (0, .1, .25, .5, .75, .9, .95, .99, 1)
REQUESTS = (88, 534, 2487, 10760, 23323, 53525, 107082, 188758, 1068882)
RESPONSES = (151, 281, 351, 700, 2043, 4824, 12730, 50591, 126136)
MEAN = 29_600  # of an exchange that is drawn from these


def drawn(dice, quantiles):
    """A size. Between two quantiles its logarithm is spread evenly."""
    share = dice.random()
    i = bisect.bisect(SHARES, share)
    part = (share - SHARES[i - 1]) / (SHARES[i] - SHARES[i - 1])
    return quantiles[i - 1] * (quantiles[i] / quantiles[i - 1]) ** part


def sizes(mean, seed=1):
    """Endless sizes of (request, response), which are so many bytes on average."""
    dice = random.Random(seed)
    while True:
        yield [int(drawn(dice, of) * mean / MEAN) for of in (REQUESTS, RESPONSES)]


@functools.cache
def prose():
    """3 MB of words."""
    dice = random.Random(1)
    words = ["".join(dice.choices("etaoinshrdlucmfwyp", k=dice.randint(2, 9)))
             for _ in range(3000)]
    return " ".join(dice.choices(words, k=460_000))


def made(mean, seed=1):
    """Endless (request, response). The requests are of 40 agents in turn, each of whom repeats
    the conversation from its beginning."""
    ask = '{"messages":[{"role":"user","content":"%s"}]}'
    answer = '{"choices":[{"message":{"role":"assistant","content":"%s"}}]}'
    dice = random.Random(seed)
    for i, (asked, said) in enumerate(sizes(mean, seed)):
        start, other = i % 40 * 40_000, dice.randrange(2_000_000)
        yield (ask % prose()[start:start + max(asked - len(ask), 0)],
               answer % prose()[other:other + max(said - len(answer), 0)])


@functools.cache
def recorded():
    """[(agent, event, request, response)] in order: recorded, or made up."""
    def text(body):
        return body if body is None or isinstance(body, str) else json.dumps(body)
    if not PAYLOADS.exists():
        return [(f"agent{i % 40}", f"e{i}", *bodies)
                for i, bodies in enumerate(itertools.islice(made(MEAN), 1500))]
    with gzip.open(PAYLOADS, "rt") as file:
        rows = map(json.loads, file)
        return [(r["agent_id"], r["event_id"], text(r["request"]), text(r["response"]))
                for r in rows]


def exchanges(agents, mean=None, seed=1):
    """Endless rows (agent, event, request, response, timestamp) of agents in turn. The bodies
    of an exchange have so many bytes on average; without a mean they are those recorded."""
    dice = random.Random(seed)
    mix = (dice.choice(recorded())[2:] for _ in itertools.count())
    for i, bodies in enumerate(made(mean, seed) if mean else mix):
        event = uuid.UUID(int=dice.getrandbits(128), version=4)
        yield f"agent-{i % agents:05d}", str(event), *bodies, 1700000000000 + i


def kb(mean):
    """What titles call such bodies."""
    return f"{mean / 1000:g} KB" if mean else "the mix of a recording"


# --------------------------------------------------------------- the writes

def is_prepared_anew(db, sql, row):
    """Whether a connection prepares the same text again: only then the authorizer is asked."""
    asked = []
    db.set_authorizer(lambda *_: asked.append(1) and 0 or 0)
    counts = []
    for _ in range(3):
        db.execute("EXPLAIN " + sql, row).fetchall()
        counts.append(len(asked))
    db.set_authorizer(None)
    return 0 < counts[0] < counts[1] < counts[2]


def writes(script, sql, rows, module=True, fill=0, full="", last="", tidy="", calls=500, per=1,
           anew=False, opened=False):
    """A side: the seconds of one write into a file that is made once, and stays.

    script  SQL that prepares the file, in which every domain is installed; without the module
            it is a plain one
    sql     the statement, or a function of the connection and a row
    rows    a function that begins endless rows
    fill    how many of these are written first; full is SQL that runs after them
    last    SQL that ends the measured writes, and tidy what runs after them
    calls   writes that are measured in one turn, of which `per` are in a transaction. SQLite
            begins a checkpoint for each 1,000 pages: a turn is to have some on each side
    anew    each write prepares its statement anew
    opened  each write has a connection of its own
    """
    def put(db, batch):
        for row in batch:
            sql(db, row) if callable(sql) else db.execute(sql, row).fetchall()

    def make(path):
        db = (installed if module else plain)(path, cached_statements=0 if anew else 128)
        db.executescript(script)
        source = iter(rows())
        db.execute("BEGIN")
        put(db, itertools.islice(source, fill))
        db.execute("COMMIT")
        db.executescript(full)
        assert not anew or is_prepared_anew(db, sql, next(source))
        return path, db.close() if opened else db, source

    key = object()

    def side(_folder):
        path, db, source = once(key, make)
        batch = list(itertools.islice(source, calls))

        def run():
            if opened:
                for row in batch:
                    one = connect(path) if module else plain(path)
                    put(one, [row])
                    one.close()
            elif per == 1:
                put(db, batch)
            else:
                for i in range(0, calls, per):
                    db.execute("BEGIN")
                    put(db, batch[i:i + per])
                    db.execute("COMMIT")
            if last:
                db.execute(last).fetchall()

        seconds = timed(run) / calls
        if not opened:
            db.executescript(tidy)
            checkpoint(db)
        return seconds
    return side


ANEW = {
    "prepared anew": {"calls": 20, "anew": True},
    "prepared anew, in a transaction": {"calls": 30, "per": 30, "anew": True},
    "opened for each": {"calls": 8, "opened": True},
}
ONCE = {
    "prepared once": {"calls": 400},
    "prepared once, 100 a transaction": {"calls": 500, "per": 100},
}
WAYS_NOTE = (
    "Opened for each: a connection is opened, the module is loaded, one row is written, and the "
    "connection is closed. The plain table is in a file of its own, which is opened without the "
    "module; it has the same columns, checks, defaults and indexes, and no triggers.")


def ways(title, sides, limits=(), how=ONCE | ANEW, note="", **more):
    """A case: each way to write, of each side but the last, which is the plain table. A side is
    (label, the arguments of writes(), and more of them by name). Limits are those of labels with
    their way."""
    *ours, (theirs, _, _) = sides
    pairs = [(f"{label}, {way}", f"{theirs}, {way}") for label, _, _ in ours for way in how]
    return Case(
        title,
        {f"{label}, {way}": writes(*given, **named, **how[way])
         for way in how for label, given, named in sides},
        [(*pair, dict(limits).get(pair[0])) for pair in pairs],
        note=f"{note} {WAYS_NOTE}".strip(), **more)


# ----------------------------------------------------------------- the page

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
        f"{label} {case.shown(value)}" for label, value in medians.items()
    ) + ".", ""]
    return lines


def commit():
    """Which commit of the module was measured, as the page says it."""
    git = ["git", "-C", str(ROOT)]
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        return "outside of a repository"
    run = functools.partial(subprocess.run, capture_output=True, text=True)
    name = run([*git, "rev-parse", "--short=8", "HEAD"]).stdout.strip()
    changed = run([*git, "status", "--porcelain", "--untracked-files=no"]).stdout
    return f"at commit {name}" + (" and changes to it" if changed else "")


def main(arguments):
    words = [word for word in arguments if not word.startswith("--rounds=")]
    limit = min([int(word.partition("=")[2]) for word in arguments
                 if word not in words], default=None)
    secure, = sqlite3.connect(":memory:").execute("PRAGMA secure_delete").fetchone()
    head = [
        "# Results",
        "",
        f"Written by `make bench` {commit()}. A ratio below 1 means that the side named first "
        "is faster. Each ratio is the median of interleaved runs. Absolute times "
        "are those of one machine on one day, and are only a rough guide.",
        "",
        f"SQLite {sqlite3.sqlite_version} with secure_delete "
        f"{'off on fast'.split()[secure]} as it was compiled, Python "
        f"{platform.python_version()}, {platform.machine()}. Every file has all domains, but "
        "those of what people use in place of blackbox. Bodies have the sizes of a recording; "
        "a size in a title is their mean. The mix of a recording is "
        f"{'the recording itself' if PAYLOADS.exists() else 'made of its sizes'}.",
        "",
    ]
    page, results = [], []
    for path in sorted(HERE.glob("*.py")):
        if path.stem == "run":
            continue
        module = importlib.import_module(path.stem)
        cases = [
            case for case in module.cases()
            if not words or any(word in case.title or word == path.stem for word in words)
        ]
        if cases:
            page += [f"## {path.stem}", ""]
        for case in cases:
            case.rounds = min(case.rounds, limit or case.rounds)
            ratios, medians = case.run()
            lines = table(case, ratios, medians)
            print("\n".join(lines), flush=True)
            page += lines
            results.append((path.stem, case, ratios))
    if not words:
        file = HERE / "RESULTS.md"
        kept = file.read_text().partition(KEPT) if file.exists() else ()
        file.write_text("\n".join(head + summary(results) + page) + "".join(kept[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
