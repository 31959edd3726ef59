"""A plugin of pytest for runs of the oracle's tests (see test_oracle_tests.py). It takes a sample
of the tests, translates their statements, and writes what failed into a file."""
import json
import os
import sqlite3

import intended

REPORT, SAMPLE = os.environ["ORACLE_REPORT"], int(os.environ["ORACLE_SAMPLE"])
report = {"passed": 0, "failed": {}}
connect = sqlite3.connect


class Connection(sqlite3.Connection):
    def execute(self, sql, *args):
        return super().execute(intended.translated(sql), *args)

    def executemany(self, sql, *args):
        return super().executemany(intended.translated(sql), *args)

    def executescript(self, sql):
        return super().executescript(intended.translated(sql))


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
