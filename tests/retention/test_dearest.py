"""The dearest write of its size and kind takes at most five times the instructions of the
median one, whatever clean-up it carries along. What a connection prepares with its first
writes does not count: SQLite compiles a statement where it is first needed."""
import re
import shutil
import sqlite3
import statistics
import subprocess

import pytest

from conftest import FULL, MODULE, ROOT
from test_space import PUSH, WRITES, exchanges

START = 1_780_000_000_000
WARM = 30  # writes of the connection that counts, before one is counted
QUICK, DAILY = 10, 8_640_000  # milliseconds between writes; so that ten go each day
KEPT = ("payload.retention_days", 365), ("blackbox.max_file_bytes", 1_500_000)
WEEK = (("payload.retention_days", 7),)
QUEUED = WRITES["row"]
# What is measured, between which milliseconds, with payload.pack, with which settings, so many
# writes that are not counted before and so many that are, after so many rows of the archive.
CASES = {
    "rows that leave": (QUEUED, DAILY, 0, WEEK, 400, 260, 0),
    "packed rows that leave": (QUEUED, DAILY, 1, WEEK, 400, 200, 0),
    "packed rows that stay": (QUEUED, QUICK, 1, WEEK, 30, 300, 0),
    "rows of a full file": (QUEUED, QUICK, 0, KEPT, 60, 200, 600),
    "packed rows of a full file": (QUEUED, QUICK, 1, KEPT, 60, 200, 2500),
    "pushes into a ring alone": (PUSH, QUICK, 0, (), 40, 400, 0),
    "pushes into a full file": (PUSH, QUICK, 0, KEPT, 60, 200, 600),
    "pushes into a full file that packs": (PUSH, QUICK, 1, KEPT, 60, 200, 2500),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Counts instructions (dearest.c)."""
    compiler = shutil.which("cc")
    if not shutil.which("valgrind") or not compiler:
        pytest.skip("needs valgrind and a compiler")
    path = tmp_path_factory.mktemp("dearest") / "dearest"
    subprocess.run([compiler, "-O1", "-o", path, ROOT / "tests/retention/dearest.c", "-lsqlite3"],
                   check=True)
    return path


class Jobs:
    """A file of jobs for the program."""

    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE jobs(at, sql, a, b, c, d, counts)")

    def add(self, at, sql, *args, counts=0):
        self.db.execute("INSERT INTO jobs VALUES(?, ?, ?, ?, ?, ?, ?)",
                        (at, sql, *args, *[None] * (4 - len(args)), counts))

    def end(self):
        self.db.commit()
        self.db.close()


def jobs(folder, sql, step, pack, settings, warm, count, before):
    """Two files of jobs: those before the ones that are counted, and these."""
    assert count >= 100 and warm >= WARM
    first, then = Jobs(folder / "first.db"), Jobs(folder / "then.db")
    at = START
    first.add(at, "SELECT blackbox_install('main', 'payload,store,retention')")
    first.add(at, "PRAGMA synchronous = OFF")
    first.add(at, "PRAGMA secure_delete = ON")
    for name, value in ("payload.enabled", 1), ("payload.pack", pack), *settings:
        first.add(at, "UPDATE blackbox_settings SET value = ? WHERE name = ?", value, name)
    first.add(at, "UPDATE retention__clock SET seen = unixepoch() * 1000")
    first.add(at, "CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    for exchange in exchanges(before, seed=5):
        at += 1000
        first.add(at, QUEUED, *exchange)
    then.add(at, "PRAGMA synchronous = OFF")
    then.add(at, "PRAGMA secure_delete = ON")
    for n, exchange in enumerate(exchanges(warm + count)):
        at += step
        into = first if n < warm - WARM else then
        into.add(at, sql, *exchange, counts=int(n >= warm))
    first.end()
    then.end()


def counted(program, folder, case):
    """The instructions of each write that counts."""
    *job, count, before = CASES[case]
    count //= 1 if FULL else 2
    jobs(folder, *job, count, before)
    subprocess.run([program, folder / "first.db", MODULE, folder / "file.db"], check=True)
    subprocess.run(["valgrind", "-q", "--tool=callgrind", "--toggle-collect=measured",
                    "--dump-after=measured", f"--callgrind-out-file={folder}/counted", program,
                    folder / "then.db", MODULE, folder / "file.db"], check=True)
    return [int(re.search(r"^(?:totals|summary): (\d+)", (folder / f"counted.{n}").read_text(
        errors="replace"), re.M)[1]) for n in range(1, count + 1)]


@pytest.mark.parametrize(
    "case", CASES if FULL else ["packed rows that leave", "rows of a full file"])
def test_no_write_takes_more_than_five_times_the_instructions_of_the_median(
        program, tmp_path, case):
    counts = counted(program, tmp_path, case)
    dearest = sorted(counts)[-5:]
    assert dearest[-1] <= 5 * statistics.median(counts), (statistics.median(counts), dearest)
