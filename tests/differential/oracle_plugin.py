"""A plugin of pytest for runs of the oracle's tests (see test_oracle_tests.py). It takes a sample
of the tests, translates their statements, and writes what failed into a file."""
import json
import os
import pathlib
import re
import sqlite3

import pytest

import intended

REPORT, SAMPLE = os.environ["ORACLE_REPORT"], int(os.environ["ORACLE_SAMPLE"])
report = {"passed": 0, "failed": {}}
connect = sqlite3.connect


def run(execute, sql, *args):
    try:
        return execute(intended.translated(sql), *args)
    except sqlite3.Error as error:
        for entry in intended.LEFT_OUT:
            if re.search(entry.pattern, f"{sql}\n{error}"):
                intended.use(entry)
                pytest.skip(entry.why)
        raise


class Connection(sqlite3.Connection):
    def execute(self, *args):
        return run(super().execute, *args)

    def executemany(self, *args):
        return run(super().executemany, *args)

    def executescript(self, *args):
        return run(super().executescript, *args)


read_text = pathlib.Path.read_text


def read(path, *args, **options):
    """The text of a file. What the checkout has in another file of SQL is nothing."""
    if path.parent.name == "sql" and not path.exists():
        return ""
    return read_text(path, *args, **options)


pathlib.Path.read_text = read
sqlite3.connect = lambda *args, **options: connect(*args, **{"factory": Connection, **options})


def pytest_collection_modifyitems(items):
    if SAMPLE:
        items[:] = items[::max(len(items) // SAMPLE, 1)]


def pytest_collectreport(report):
    note(report)


def pytest_runtest_logreport(report):
    note(report)


def note(told):
    if told.failed:
        report["failed"].setdefault(told.nodeid, told.longreprtext)
    elif getattr(told, "when", None) == "call":
        report["passed"] += told.passed


def pytest_sessionfinish():
    with open(REPORT, "w") as file:
        json.dump(report, file)
