"""The rows of a recorder, written into a ring: see recorder.py."""
import os
import sqlite3
import time

import blackbox
from blackbox import quoted

BATCH_S = 0.01  # after which a batch ends, since others wait for the lock


def write_batch(db, rows):
    """Writes the first of some rows in one transaction. Returns how many."""
    end = time.monotonic() + BATCH_S
    db.execute("BEGIN IMMEDIATE")
    try:
        for count, row in enumerate(rows, 1):
            insert(db, row)
            if time.monotonic() > end:
                break
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return count


def insert(db, row):
    """Writes a row. One that another process may have written is looked for first."""
    *values, ring = row.values
    if not row.adopted or _missing(db, ring, *values):
        db.execute(
            f"INSERT INTO {quoted(ring)}({quoted(ring.split('.')[-1])}, agent_id, event_id, "
            "request_body, response_body, timestamp, meta) VALUES(?, ?, ?, ?, ?, ?, ?)", values)


def _missing(db, ring, command, agent, event, *_):
    """Whether a row of a process that was killed is neither in the ring nor evidence."""
    schema = quoted(ring.split(".")[0]) + "." if "." in ring else ""
    found = db.execute(" UNION ALL ".join(
        "SELECT response_body IS NULL AND meta ->> 'duration_ms' IS NULL AS open "
        f"FROM {table} WHERE agent_id = ?1 AND event_id = ?2"
        for table in (quoted(ring), f"{schema}event_payloads")) + " ORDER BY open",
        (agent, event)).fetchone()
    return found is None if command is None else bool(found and found[0])


class Followed:
    """A connection to the file that a path names now. It does not wait for locks."""

    def __init__(self, path):
        self._path = path
        self._db = self._id = None

    def open(self):
        try:
            at = os.stat(self._path)
        except OSError as error:
            self.close()
            raise sqlite3.OperationalError(f"unable to open database file: {error}") from error
        if self._db is None or self._id != (at.st_dev, at.st_ino):
            self.close()
            self._db = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, timeout=0,
                                       isolation_level=None)
            blackbox.load(self._db)
            self._id = (at.st_dev, at.st_ino)
        return self._db

    def close(self):
        if self._db is not None:
            self._db.close()
        self._db = None
