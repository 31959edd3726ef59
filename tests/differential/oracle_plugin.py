"""A plugin of pytest for runs of the oracle's tests (see test_oracle_tests.py). It takes a sample
of the tests, and writes what failed into a file."""
import json
import os

REPORT, SAMPLE = os.environ["ORACLE_REPORT"], int(os.environ["ORACLE_SAMPLE"])
report = {"passed": 0, "failed": {}}


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
