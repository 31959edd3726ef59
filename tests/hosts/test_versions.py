"""A part of `make test-versions`: defensive mode with the newest version, and with one that many
hosts have if BLACKBOX_FULL is set, and files that one version writes and another reads. A version
that cannot be fetched is skipped, with the reason."""
import sys

import pytest

import versions
from conftest import FULL, MODULE, some

PART = ["tests/hosts/test_reopen.py", "tests/hosts/test_loading.py",
        "tests/core/test_refused_calls.py", *["tests/evidence/test_buffer.py",
                                              "tests/payload/test_ring.py"] * FULL,
        "tests/payload/test_loops.py::test_backtest_finds_in_the_evidence_what_was_found",
        "tests/retention/test_plan.py::"
        "test_a_rule_that_cannot_be_applied_is_a_problem_and_stops_no_other"]


@pytest.mark.skipif(sys.platform != "linux", reason="builds libraries for Linux")
@pytest.mark.parametrize("version", some([max(
    versions.LIBRARIES, key=lambda v: tuple(map(int, v.split(".")))), "3.46.0"]))
def test_the_tests_pass_on_another_version_of_sqlite(version):
    try:
        code, told = versions.test(version, True, PART)
    except versions.Unavailable as reason:
        pytest.skip(str(reason))
    assert code == 0, told
    assert versions.counts(told)[0] > 40


OPEN = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[2], isolation_level=None)
db.enable_load_extension(True)
db.load_extension(sys.argv[1])
"""
WRITE = """
db.execute("SELECT blackbox_install('main', 'payload')").fetchall()
db.execute("BEGIN")
for ms in range(2000):
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at) "
               "VALUES('e', 'a', 'archive', ?)",
               ("2020-01-31T12:00:%02d.%03dZ" % divmod(ms, 1000),))
db.execute("COMMIT")
"""
CLEAN_UP = """
assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
before = 1580472000000 + 1500
removed = 0
while (n := db.execute("SELECT payload_cleanup(0, ?) ->> '$.rows'", (before,)).fetchone()[0]) > 0:
    removed += n
assert removed == 1500, removed
db.execute("DELETE FROM event_payloads WHERE agent_id = 'a'")
assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
assert db.execute("SELECT * FROM blackbox_check").fetchall() == []
"""


@pytest.mark.skipif(sys.platform != "linux", reason="builds libraries for Linux")
@pytest.mark.parametrize("writer, reader", [
    ("3.38.2", "3.54.1"), ("3.54.1", "3.38.2"),
    *[("3.38.2", "3.46.0"), ("3.46.0", "3.38.2")] * FULL])
def test_a_file_of_one_version_is_cleaned_up_by_another(tmp_path, writer, reader):
    for version, act in ((writer, WRITE), (reader, CLEAN_UP)):
        try:
            env = versions.environment(version, False)
        except versions.Unavailable as reason:
            pytest.skip(str(reason))
        code, told = versions.run([sys.executable, "-c", OPEN + act, MODULE,
                                   tmp_path / "archive.db"], env=env)
        assert code == 0, told
