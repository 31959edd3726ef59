"""What a recorder was handed over and has not yet written: a queue on disk.

A database of this process beside the file, which it keeps locked: one that is not locked is that
of a process that was killed. SQLite keeps it whole at a kill, and is not told to synchronize it.
The recorder for Node has the same queue, and each takes over what the other left.

Invariants: rows leave in the order in which they came. A row leaves after it was written, so that
a row that was taken over from a queue may be in the ring already (adopted).

Limits: beyond WAITING_BYTES the oldest rows are lost. What does not get into the file waits in
memory, MEMORY_BYTES at most.
"""
import collections
import contextlib
import glob
import itertools
import os
import pathlib
import re
import sqlite3
import stat
import uuid

__all__ = ["Queue", "Row", "Taken"]

WAITING_BYTES = 1_000_000_000
MEMORY_BYTES = 256_000_000
SHRINK_BYTES = 16_000_000  # of a queue that is empty
FIRST_BYTES = 1_000_000  # that are read at once


class Taken(Exception):
    """A queue is not to be had."""


Row = collections.namedtuple("Row", "n adopted bytes values")


class Queue:
    """Is used under the lock of its recorder."""
    COLUMNS = "command, agent, event, request, response, at, meta, ring"

    def __init__(self, path):
        self._path = path
        self._file = self._name = None
        self._memory = collections.deque()
        self._bytes = self._written = self._memory_bytes = self.count = 0
        self._n = self._done = 0  # the last number that was given, and that was removed
        self.problem = None

    @property
    def last(self):
        """The number of the row that was added last."""
        return self._n

    @property
    def in_memory(self):
        """How many rows are in no file."""
        return len(self._memory)

    def add(self, values):
        """Adds a row. Returns how many were lost for it."""
        self._n += 1
        size = sum(len(value) for value in values if isinstance(value, (str, bytes)))
        row = Row(self._n, 0, size, values)
        lost = 0
        if not self._memory and self._store(row):
            self._bytes += size
            self._written += size
        else:
            self._memory.append(row)
            self._memory_bytes += size
            while len(self._memory) > 1 and self._memory_bytes > MEMORY_BYTES:
                self._memory_bytes -= self._memory.popleft().bytes
                self.count -= 1
                lost += 1
        self.count += 1
        while self._bytes > WAITING_BYTES and self.count > 1 and (first := self.first()):
            self.remove(first)
            lost += 1
        return lost

    def first(self, most=1):
        """The rows that leave next: so many, of FIRST_BYTES. What is in a file that cannot be read
        is left there, for the next recorder, and problem says so."""
        if self.count > len(self._memory):
            rows, size = [], 0
            try:
                for n, adopted, own, *values in self._open().execute(
                        f"SELECT n, adopted, bytes, {self.COLUMNS} FROM queue WHERE n > ?"
                        " ORDER BY n LIMIT ?", (self._done, most)):
                    rows.append(Row(n, adopted, own, values))
                    size += own
                    if size > FIRST_BYTES:
                        break
                if not rows:
                    raise OSError("rows are missing")
                return rows
            except (sqlite3.Error, OSError) as error:
                self.problem = RuntimeError(f"{self.count} are left in {self._name}: {error}")
                self._forget()
                self.count, self._bytes = len(self._memory), 0
        return list(itertools.islice(self._memory, most))

    def remove(self, rows):
        """Removes rows that first() returned, unless they were lost meanwhile."""
        done = self._done
        for row in rows:
            if self._memory and self._memory[0] is row:
                self._memory.popleft()
                self._memory_bytes -= row.bytes
                self.count -= 1
            elif row.n > self._done and self.count > len(self._memory):
                self._done = row.n
                self._bytes -= row.bytes
                self.count -= 1
        if self._done > done:
            with contextlib.suppress(sqlite3.Error, OSError):
                self._open().execute("DELETE FROM queue WHERE n <= ?", (self._done,))
            if self.count == 0 and self._written > SHRINK_BYTES:
                self._written = 0
                self.close()

    def abandoned(self):
        """The files that may be queues of processes that were killed."""
        return sorted(glob.glob(glob.escape(str(self._path)) + "-spill-*.db"))

    def adopt(self, name):
        """Takes over some rows of another queue. Returns whether there were any. Raises Taken if
        the queue is that of another recorder that runs."""
        if name == self._name:
            return False
        try:
            left = _exclusive(name)
        except sqlite3.Error as error:
            raise Taken if re.search("locked|unable to open", str(error)) else error
        with contextlib.closing(left):
            rows = left.execute(
                f"SELECT n, bytes, {self.COLUMNS} FROM queue ORDER BY n LIMIT 20").fetchall()
            db = self._open()
            db.execute("BEGIN")
            try:
                for _, size, *values in rows:
                    self._n += 1
                    self._insert(Row(self._n, 1, size, values))
                db.execute("COMMIT")
            except sqlite3.Error:
                db.execute("ROLLBACK")
                raise
            self.count += len(rows)
            self._bytes += sum(size for _, size, *_ in rows)
            if rows:
                left.execute("DELETE FROM queue WHERE n <= ?", (rows[-1][0],))
        if not rows:
            _unlink(name)
        return bool(rows)

    def close(self):
        """Closes the file, and removes it if all is written."""
        if self._file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._file.close()
            self._file = None
        if self._name and self.count == len(self._memory):
            _unlink(self._name)
            self._name = None

    def _forget(self):
        if self._file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._file.close()
        self._file = self._name = None

    def _store(self, row):
        try:
            self._open()
            self._insert(row)
            return True
        except (sqlite3.Error, OSError):
            if self.count == len(self._memory) and self._name:
                _unlink(self._name)
                self._forget()  # the next one tries a new file
            return False

    def _insert(self, row):
        self._file.execute("INSERT INTO queue VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                           (row.n, row.adopted, row.bytes, *row.values))

    def _open(self):
        if self._file is None:
            if self._name is None:
                name = f"{self._path}-spill-{os.getpid()}-{uuid.uuid4().hex[:8]}.db"
                mode = stat.S_IMODE(os.stat(self._path).st_mode)
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode))
                self._name = name
            self._file = _exclusive(self._name)
        return self._file


def _exclusive(name):
    """A connection to a queue that nobody else has. A process that is killed leaves it whole."""
    db = sqlite3.connect(f"{pathlib.Path(name).as_uri()}?mode=rw", uri=True, timeout=0,
                         isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN EXCLUSIVE")
        db.execute("CREATE TABLE IF NOT EXISTS queue(n INTEGER PRIMARY KEY, adopted, bytes, "
                   f"{Queue.COLUMNS})")
        db.execute("COMMIT")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _unlink(name):
    for end in ("", "-wal", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name + end)
