"""What the tests share: connections with the module loaded.

Every test has its own directory. `db` is a file there, in autocommit, with the module loaded
and its domains installed in main (see `template`)."""
import contextlib
import importlib
import itertools
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
MODULE = str(ROOT / ("blackbox" + SUFFIX))
DATA = ROOT.parent / "shared" / "data"

# The domains whose tests need no other domain (see `template`).
ALONE = ("cache", "evidence", "payload", "rollout")

NUMBERS = itertools.count()

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="no recordings beside the project"
)


FULL = bool(os.environ.get("BLACKBOX_FULL"))


def some(cases, every=2):
    """The cases of a test: one in so many, or with BLACKBOX_FULL all."""
    return list(cases)[::1 if FULL else every]


def load(db):
    """Loads the module into a connection and returns it."""
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    db.enable_load_extension(False)
    return db


def connect(path=":memory:", **options):
    """A connection in autocommit mode, with the module."""
    options.setdefault("isolation_level", None)
    return load(sqlite3.connect(str(path), **options))


def one(db, sql, *args):
    """The first column of the first row."""
    row = db.execute(sql, args).fetchone()
    return row[0] if row else None


def rows(db, sql, *args):
    return db.execute(sql, args).fetchall()


def archive_faults(db, schema="main", domain="payload"):
    """Contradictions in the archive, or in another domain; also without the module."""
    sql = (ROOT / "sql" / f"{domain}_check.sql").read_text()
    return rows(db, sql.replace("main.", schema + "."))


def rollout_faults(db, module=True):
    """Contradictions in the conversations: those that a query finds without the module, and
    those that the module finds."""
    found = rows(db, (ROOT / "sql" / "rollout_check.sql").read_text().replace("main.", ""))
    if not module:
        return found
    file = one(db, "SELECT file FROM pragma_database_list WHERE name = 'main'")
    other = connect(file) if file and not db.in_transaction else db
    try:
        found += rows(other, "SELECT object, problem FROM blackbox_check "
                             "WHERE object <> 'blackbox__log' "
                             "AND problem NOT LIKE '%run blackbox_install()'")
    except sqlite3.OperationalError as error:  # no module here
        assert "no such table: blackbox_check" in str(error)
    if other is not db:
        other.close()
    return found


def cache_faults(db, schema="main"):
    """Contradictions in the cache; also without the module."""
    sql = (ROOT / "sql" / "cache_check.sql").read_text()
    return rows(db, sql.replace("main.", schema + "."))


def problems(db):
    """What blackbox_check finds, but for the repairs of an install, which it lists for 30 days."""
    return [row for row in rows(db, "SELECT * FROM blackbox_check")
            if ": schema of " not in row[2]]


def by_hand(path, sql):
    """Changes a file as a program without the module does, which may change every table. With
    the module loaded, SQLite before 3.44 protects some of its tables in defensive mode."""
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(sql)
    db.close()


def protects():
    """Whether a connection with the module may not write its tables."""
    return os.environ.get("BLACKBOX_DEFENSIVE") == "1" and sqlite3.sqlite_version_info < (3, 44)


def write_schema(db, sql):
    """Changes sqlite_schema. The test is skipped where defensive mode refuses it."""
    db.execute("PRAGMA writable_schema = ON")
    try:
        db.execute(sql)
    except sqlite3.OperationalError as refused:
        assert "may not be modified" in str(refused)
        pytest.skip("defensive mode refuses a write into sqlite_schema")


def overwrite_pages(path, pages, page_size):
    """Overwrites pages of a file that no connection has open."""
    with open(path, "r+b") as file:
        for page in pages:
            file.seek((page - 1) * page_size)
            file.write(b"\xff" * page_size)


def shell(*args, stdin=None, cwd=ROOT):
    """Runs the sqlite3 shell; returns its output, errors included."""
    env = dict(os.environ)
    if "BLACKBOX_DEFENSIVE" in env:  # the shell needs its own library
        del env["LD_LIBRARY_PATH"]
    done = subprocess.run(
        ["sqlite3", *map(str, args)],
        env=env,
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
    )
    return done.stdout


def console(text):
    """The statements of the console blocks of a page, each with the output shown."""
    steps = []
    for block in re.findall(r"```console\n(.*?)```", text, re.S):
        for line in block.splitlines():
            if line.startswith("sqlite> "):
                steps.append([line[8:], ""])
            elif line.startswith("   ...> "):
                steps[-1][0] += "\n" + line[8:]
            elif steps and not line.startswith("$ "):
                steps[-1][1] += line + "\n"
    return steps


def run_session(file, statements, cwd=ROOT):
    """Runs a session in the shell; returns what each statement printed."""
    mark = "-- next --"
    script = f"\n.print '{mark}'\n".join(statements)
    outputs = shell(file, stdin=script, cwd=cwd).split(mark + "\n") if statements else []
    return [re.sub(r"error near line \d+:", "error:", output) for output in outputs]


def shell_version():
    """The SQLite of the shell, which may differ from that of Python."""
    return tuple(map(int, shell("--version").split()[0].split(".")))


# From 3.44 on, SQLite does not protect tables that have triggers.
def run_program(name, directory, *args):
    """Runs a test written in C. The program prints what failed, and how."""
    done = subprocess.run(
        [ROOT / "build" / "test" / name, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=directory,
    )
    told = done.stdout.decode(errors="replace")
    assert done.returncode == 0, told
    return told


@pytest.fixture
def tmp_path(tmp_path_factory):
    """As that of pytest, which reads the names of all folders to find the number of the next."""
    folder = tmp_path_factory.getbasetemp() / f"of-{next(NUMBERS)}"
    folder.mkdir()
    return folder


@pytest.fixture
def path(tmp_path):
    return tmp_path / "test.db"


def install_into(path, schema="main", domains="all"):
    db = connect(path)
    one(db, "SELECT blackbox_install(?, ?)", schema, domains)
    db.close()
    return path


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """A file in which all domains are installed, to be copied."""
    return install_into(tmp_path_factory.mktemp("installed") / "test.db")


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """For each domain of ALONE a file in which it is installed alone, to be copied."""
    folder = tmp_path_factory.mktemp("alone")
    return {domain: install_into(folder / domain, "main", domain) for domain in ALONE}


@pytest.fixture
def template(request, installed, alone):
    """The file that `db` copies. In the folder of a domain it has that domain alone, as a large
    schema takes long to read. It has all domains elsewhere, and for tests with the mark
    all_domains."""
    if request.node.get_closest_marker("all_domains"):
        return installed
    return alone.get(request.path.parent.name, installed)


@pytest.fixture
def db(path, template):
    assert not path.exists(), f"{path} is somebody's: a parameter of the test hides the fixture"
    shutil.copyfile(template, path)
    db = connect(path)
    db.execute("PRAGMA synchronous=OFF")  # no test simulates a power failure
    yield db
    db.close()


def pytest_configure(config):
    config.addinivalue_line("markers", "all_domains: the test needs all domains in its file")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    """In a clean checkout every parallel process compiles all tests at the same time. So each
    second process begins with the last ones, and finds the first ones compiled by another."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if int(worker[2:]) % 2 == 0 or session.config.args != ["tests"]:
        return
    for file in sorted(ROOT.glob("tests/*/test_*.py"), reverse=True):
        if str(file.parent) not in sys.path:
            sys.path.insert(0, str(file.parent))
        with contextlib.suppress(Exception, pytest.skip.Exception):  # told when it is collected
            importlib.import_module(file.stem)


# Folders in whose tests parameters are combined to see what holds in each combination.
SAMPLED = {"cache", "core", "evidence", "payload", "proof", "report", "retention", "rollout", "store"}


def axes(items):
    """The parameters of the cases of a test that vary on their own: for each one the number of its
    value in each case."""
    found = set()
    for name in items[0].callspec.params if hasattr(items[0], "callspec") else ():
        values = [id(item.callspec.params.get(name)) for item in items]
        numbers = {value: i for i, value in enumerate(dict.fromkeys(values))}
        found.add(tuple(numbers[value] for value in values))
    return [column for column in found if len(set(column)) > 1]


def sample(items):
    """Of the combinations of several parameters so many that each value of each parameter
    remains: of the cases not taken the one that has most values which no case taken has."""
    columns = axes(items)
    if len(columns) < 2:
        return items
    values = [{(n, column[i]) for n, column in enumerate(columns)} for i in range(len(items))]
    missing, kept = set().union(*values), set()
    while missing:
        best = max(range(len(items)), key=lambda i: len(values[i] & missing))
        kept.add(best)
        missing -= values[best]
    return [items[i] for i in sorted(kept)]


def pytest_collection_modifyitems(config, items):
    """Without BLACKBOX_FULL, and if no test is named, takes a sample. Then distributes the fault
    programs, which take longest, over the first part of a run. Parallel processes get tests in
    order, so otherwise one process would get all the programs at the end."""
    tests, taken = {}, items
    for item in items:
        tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    if not FULL and not any("::" in argument for argument in config.args):
        items = [each for cases in tests.values() for each in (
            sample(cases) if cases[0].path.parent.name in SAMPLED else cases)]
    programs = [item for item in items if "fault_programs" in item.nodeid]
    others = [item for item in items if "fault_programs" not in item.nodeid]
    step = len(others) * 6 // 10 // (len(programs) or 1)
    for i, program in enumerate(programs):
        others.insert(i * (step + 1), program)
    taken[:] = others
