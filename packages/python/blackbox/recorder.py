"""Records what an agent sends to a model's API, and what comes back, into a ring of a file.

    recorder = Recorder("flight.db", agent="support")
    call = recorder.begin()             # AgentStoppedError: send nothing
    call.end(lambda: (request, response))

blackbox.httpx and blackbox.requests do this for the clients of these libraries.

A recorder opens its own connection, and one thread of its own writes: whoever sends never
waits for a lock or a disk. Exchanges wait in memory, at most WAITING of them and WAITING_BYTES,
while the file is locked, full or gone, and are written in their order when it is there again.
A recorder may be used by many threads, under asyncio, and after a fork. The end of the program
waits for what is not written, EXIT_S at most.

Whether the agent is stopped is asked behind what was pushed before. With on_stop "record" it is
not asked, and what the agent does after its stop is recorded as that.

Invariants: an error of recording goes to on_error, and never to the caller. If there is no
answer in ANSWER_S, or the file cannot be read, the call goes on, and on_error gets the error.

Limits: the oldest exchanges are lost when more wait, and what waits when the process is killed.
The file must be there, with the ring: a recorder does not make it.
"""
import asyncio
import atexit
import collections
import concurrent.futures
import logging
import os
import pathlib
import re
import sqlite3
import threading
import time
import uuid
import weakref

import blackbox

__all__ = ["AgentStoppedError", "Recorder", "text_of"]

WAITING = 1000
WAITING_BYTES = 256_000_000
ANSWER_S = 1.0
AGAIN_S = 0.02  # between two attempts to write
TELL_S = 5.0  # after which it is told that exchanges wait
EXIT_S = 5.0
PASSES = re.compile("database is locked|unable to open database file|"
                    "database or disk is full|disk I/O error")
STOPPED = ("SELECT stopped_at, stopped_by FROM payload_agents "
           "WHERE agent_id = ? AND stopped_at NOT NULL")

_recorders = weakref.WeakSet()


class AgentStoppedError(Exception):
    """The agent is stopped, and nothing was sent."""

    def __init__(self, agent, stopped_at, stopped_by):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stopped_at / 1000))
        super().__init__(
            f"agent {agent} was stopped at {at} by {stopped_by or 'a program'}, and nothing was "
            "sent; to start it again, INSERT INTO payload_agent_log(agent_id, actor, reason)")
        self.agent, self.stopped_at, self.stopped_by = agent, stopped_at, stopped_by


def _warn(error):
    logging.getLogger("blackbox").warning("%s", error)


def text_of(data):
    """Text, or the bytes if they are not UTF-8. A character that is cut off becomes U+FFFD."""
    if not isinstance(data, (bytes, bytearray)):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data.decode(errors="replace")
        return bytes(data)


class Recorder:
    """Pushes exchanges into a ring of a file. agent: its id, or a function of the request."""

    def __init__(self, path, agent, ring="ring", on_error=_warn, on_stop="raise"):
        if on_stop not in ("raise", "record"):
            raise ValueError(f"ValidationError: on_stop must be raise or record, got {on_stop!r}")
        self._path = pathlib.Path(os.path.abspath(os.fspath(path)))
        self._agent = agent
        self._on_error = on_error
        self._asks = on_stop == "raise"
        name = ".".join('"' + part.replace('"', '""') + '"' for part in ring.split("."))
        self._insert = (f"INSERT INTO {name}(agent_id, event_id, request_body, response_body,"
                        " timestamp) VALUES(?, ?, ?, ?, ?)")
        self._begin()
        _recorders.add(self)

    def _begin(self):
        """Also in a child process: the thread, and what waits, belong to its parent."""
        self._work = threading.Condition()
        self._rows = collections.deque()
        self._bytes = 0
        self._questions = collections.deque()
        self._thread = None
        self._closing = self._forking = self._open = False

    def before_fork(self):
        """Closes the connection: SQLite must not find it in the child."""
        with self._work:
            self._forking = True
            self._work.notify_all()
            self._work.wait_for(lambda: not self._open, ANSWER_S)

    def after_fork(self):
        with self._work:
            self._forking = False
            self._work.notify_all()

    # ------------------------------------------------------------- the caller

    def begin(self, request=None):
        """A call is to be sent. Raises AgentStoppedError if the agent is stopped."""
        call, answer = self._ask(request)
        try:
            stopped = answer and answer.result(ANSWER_S)
        except Exception as error:
            call.unknown(error)
        else:
            call.judge(stopped)
        return call

    async def begin_async(self, request=None):
        """The same, while the event loop goes on."""
        call, answer = self._ask(request)
        try:
            asyncio.get_running_loop()
            waited = answer and asyncio.wait_for(asyncio.wrap_future(answer), ANSWER_S)
        except RuntimeError:  # an event loop that is not asyncio's
            waited = None
        try:
            stopped = await waited if waited else answer and answer.result(ANSWER_S)
        except Exception as error:
            call.unknown(error)
        else:
            call.judge(stopped)
        return call

    def flush(self, timeout=None):
        """Waits until all that was pushed is written, or lost. Returns whether it is."""
        with self._work:
            return self._work.wait_for(lambda: not self._rows, timeout)

    def close(self, timeout=EXIT_S):
        """Writes what waits, and closes the connection. Returns whether all was written."""
        done = self.flush(timeout)
        with self._work:
            self._closing = True
            self._work.notify_all()
            self._work.wait_for(lambda: self._thread is None, timeout)
        return done

    def tell(self, what, error):
        told = RuntimeError(f"{what}: {str(error) or type(error).__name__}")
        told.__cause__ = error
        try:
            self._on_error(told)
        except Exception:
            _warn(told)

    def _ask(self, request):
        agent = None
        try:
            agent = self._agent(request) if callable(self._agent) else self._agent
        except Exception as error:
            self.tell("an exchange was not recorded", error)
        call = _Call(self, agent)
        if agent is None or not self._asks:
            return call, None
        answer = concurrent.futures.Future()
        self._hand("_questions", (agent, answer))
        return call, answer

    def push(self, agent, request, response, started):
        row = (agent, str(uuid.uuid4()), request, response, started)
        lost = []
        with self._work:
            self._bytes += _size(row)
            while self._rows and (len(self._rows) >= WAITING or self._bytes > WAITING_BYTES):
                lost.append(self._rows.popleft())
                self._bytes -= _size(lost[-1])
        self._hand("_rows", row)
        for _ in lost:
            self.tell("an exchange was not recorded",
                      OverflowError("too many wait, and this was the oldest"))

    def _hand(self, queue, item):
        with self._work:
            getattr(self, queue).append(item)
            self._closing = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="blackbox", daemon=True)
                self._thread.start()
            self._work.notify_all()

    # ------------------------------------------------------------- the thread

    def _run(self):
        """Writes, then answers what was asked meanwhile."""
        db = _File(self._path)
        again, since, told = 0.0, None, False
        while True:
            with self._work:
                while self._forking or not (self._questions or self._closing):
                    left = again - time.monotonic() if self._rows else None
                    if self._forking:
                        db.close()
                        self._open, left = False, None
                        self._work.notify_all()
                    if left is not None and left <= 0:
                        break
                    self._work.wait(left)
                questions, self._questions = self._questions, collections.deque()
                row = self._rows[0] if self._rows else None
                if self._closing and not questions:
                    db.close()
                    self._open, self._thread = False, None
                    self._work.notify_all()
                    return
                self._open = True
            error = None
            while row and error is None:  # all that was pushed before a question
                error = self._write(db, row)
                row = self._rows[0] if questions and self._rows else None
            if error is not None:
                since = since or time.monotonic()
                again = time.monotonic() + AGAIN_S
                if not told and time.monotonic() - since > TELL_S:
                    told = True
                    self.tell(f"exchanges wait for {self._path}", error)
            else:
                again, since, told = 0.0, None, False
            for agent, answer in questions:
                if not answer.set_running_or_notify_cancel():
                    continue
                try:
                    answer.set_result(db.open().execute(STOPPED, (agent,)).fetchone())
                except Exception as unknown:
                    answer.set_exception(unknown)

    def _write(self, db, row):
        """Writes the first row, or loses it. Returns the error if it must be tried again."""
        try:
            db.open().execute(self._insert, row)
        except Exception as error:
            if isinstance(error, sqlite3.Error) and PASSES.search(str(error)):
                return error
            self.tell("an exchange was not recorded", error)
        with self._work:
            if self._rows and self._rows[0] is row:  # else it was the oldest of too many
                self._bytes -= _size(self._rows.popleft())
                self._work.notify_all()
        return None


def _size(row):
    return sum(len(body) for body in row[2:4] if body is not None)


class _File:
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


class _Call:
    """A call from its begin to its end."""

    def __init__(self, recorder, agent):
        self._recorder = recorder
        self._agent = agent
        self._started = int(time.time() * 1000)

    def judge(self, stopped):
        if stopped:
            raise AgentStoppedError(self._agent, *stopped)

    def unknown(self, error):
        self._recorder.tell(f"whether agent {self._agent} is stopped is not known, and its call "
                            "was sent", error)

    def end(self, bodies):
        """bodies: a function that returns the bodies of the request and the response."""
        if self._agent is None:
            return
        try:
            self._recorder.push(self._agent, *map(text_of, bodies()), self._started)
        except Exception as error:
            self._recorder.tell("an exchange was not recorded", error)


def _each(act):
    return lambda: [act(recorder) for recorder in list(_recorders)]


atexit.register(_each(Recorder.close))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_each(Recorder.before_fork), after_in_child=_each(Recorder._begin),
                        after_in_parent=_each(Recorder.after_fork))
