"""Records what an agent sends to a model's API, and what comes back, into a ring of a file.

    recorder = Recorder("flight.db", agent="support")
    call = recorder.begin(request)      # AgentStoppedError: send nothing
    call.end(response)

blackbox.httpx and blackbox.requests do this for the clients of these libraries.

A recorder opens its own connection, and one thread of its own writes: whoever sends never waits
for a lock of the file. The request is handed over before it is sent, its response when it has
ended. What is handed over goes first into a queue on disk, a database of this process with the
name of the file and "-spill-" (spill.py), and from there into the ring, in its order. So it waits
there while the file is locked, full or gone. A process that was killed
leaves its queue: the next recorder of the file writes what is in it. A recorder may be used by
many threads, under asyncio, and after a fork. The end of the program waits for what is not
written, EXIT_S at most.

What waits is written in batches, a transaction each. If one row of a batch fails, the batch is
undone, and its rows are written one by one.

Whether the agent is stopped is asked when what was pushed before is written. While that waits for
a lock, and until not more than BEHIND rows wait, the answer is what the file says now. With on_stop
"record" it is not asked, and what the agent does after its stop is recorded as that.

Invariants: an error of recording goes to on_error, and never to the caller. If there is no
answer in ANSWER_S, or the file cannot be read, the call goes on, and on_error gets the error.

Limits: the oldest exchanges are lost when more wait. Where no queue can be made, as in a folder
that is read-only, they wait in memory. Nothing is synchronized to the disk until it is in the
file: what waits may be lost with the power. The file must be there, with the ring: a recorder
does not make it (blackbox.open does).
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
import weakref

from blackbox.call import AgentStoppedError, Call
from blackbox.ring import Followed, insert, write_batch
from blackbox.spill import Queue, Taken

__all__ = ["AgentStoppedError", "Recorder"]

ANSWER_S = 1.0
AGAIN_S = 0.02  # between two attempts to write
TELL_S = 5.0  # after which it is told that exchanges wait
EXIT_S = 5.0
BATCH = 100  # rows of a transaction, at most
BEHIND = 50
PASSES = re.compile("database is locked|unable to open database file|"
                    "database or disk is full|disk I/O error|readonly database|locking protocol")
STOPPED = ("SELECT stopped_at, stopped_by FROM payload_agents "
           "WHERE agent_id = ? AND stopped_at NOT NULL")

_recorders = weakref.WeakSet()
_shared, _sharing = {}, threading.Lock()


def _warn(error):
    logging.getLogger("blackbox").warning("%s", error)


class Recorder:
    """Pushes exchanges into a ring of a file. agent: its id, or a function of the request."""

    def __init__(self, path, agent, ring="ring", on_error=_warn, on_stop="raise"):
        if on_stop not in ("raise", "record"):
            raise ValueError(f"ValidationError: on_stop must be raise or record, got {on_stop!r}")
        self._path = pathlib.Path(os.path.abspath(os.fspath(path)))
        self._agent = agent
        self._on_error = on_error
        self._asks = on_stop == "raise"
        self._ring = ring
        self._begin()
        self._left = self._queue.abandoned()
        if self._left:
            self._hand(lambda: None)
        _recorders.add(self)

    def _begin(self):
        """Also in a child process: the thread, and what waits, belong to its parent."""
        self._work = threading.Condition()
        self._queue = Queue(self._path)
        self._left = []  # queues of processes that were killed
        self._questions = collections.deque()
        self._single = 0  # of so many rows one has failed
        self._thread = None
        self._closing = self._forking = self._open = False

    def before_fork(self):
        """Closes the connection: SQLite must not find it in the child."""
        with self._work:
            self._forking = True
            self._work.notify_all()
            self._work.wait_for(lambda: not self._open, ANSWER_S)
            self._queue.close()

    def after_fork(self):
        with self._work:
            self._forking = False
            self._work.notify_all()

    # ------------------------------------------------------------- the caller

    def begin(self, body=None, meta=None, request=None, agent=None):
        """A call is to be sent. Raises AgentStoppedError if the agent is stopped.

        body: what is sent, or a function that returns it. meta: a dictionary of what else is
        known, or None. request: what the function that names the agent gets; else the body.
        agent: another one than that of the recorder.
        """
        call, answer = self._ask(body, meta, request, agent)
        try:
            stopped = answer and answer.result(ANSWER_S)
        except Exception as error:
            call.unknown(error)
        else:
            call.judge(stopped)
        return call

    async def begin_async(self, body=None, meta=None, request=None, agent=None):
        """The same, while the event loop goes on."""
        call, answer = self._ask(body, meta, request, agent)
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
            return self._work.wait_for(
                lambda: not (self._queue.count or self._left), timeout)

    def close(self, timeout=EXIT_S):
        """Writes what waits, and closes the connection. Returns whether all was written."""
        done = self.flush(timeout)
        with self._work:
            left = self._queue.in_memory
            self._closing = True
            self._work.notify_all()
            self._work.wait_for(lambda: self._thread is None, timeout)
            self._queue.close()
        if left:
            self.tell("exchanges are not written", RuntimeError(
                f"{left} rows wait in memory alone, and are lost when the program ends"))
        return done

    def tell(self, what, error):
        told = RuntimeError(f"{what}: {str(error) or type(error).__name__}")
        told.__cause__ = error
        try:
            self._on_error(told)
        except Exception:
            _warn(told)

    def _ask(self, body, meta, request, named):
        agent = None
        try:
            named = named or self._agent
            agent = named(body if request is None else request) if callable(named) else named
        except Exception as error:
            self.tell("an exchange was not recorded", error)
        call = Call(self, agent, body, meta)
        if agent is None or not self._asks:
            return call, None
        answer = concurrent.futures.Future()
        self._hand(lambda: self._questions.append((agent, answer)))
        return call, answer

    def push(self, *row):
        """Hands over a row of the ring: command, agent_id, event_id, request_body, response_body,
        timestamp, meta. command is None or "complete"."""
        lost = self._hand(lambda: self._queue.add((*row, self._ring)))
        for _ in range(lost):
            self.tell("an exchange was not recorded",
                      OverflowError("too many wait, and this was the oldest"))

    def _hand(self, act):
        with self._work:
            self._work.wait_for(lambda: not self._forking)
            done = act()
            self._closing = False
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="blackbox", daemon=True)
                self._thread.start()
            self._work.notify_all()
        return done

    # ------------------------------------------------------------- the thread

    def _run(self):
        """Writes, then answers what was asked meanwhile; or the other way round, if it is behind."""
        db = Followed(self._path)
        again, since, told, behind = 0.0, None, False, False
        while True:
            problem = None
            with self._work:
                while self._forking or not (self._questions or self._closing):
                    if self._left and not self._queue.count and not self._forking:
                        problem = self._adopt()
                        if problem:
                            break
                        continue
                    left = again - time.monotonic() if self._queue.count else None
                    if self._forking:
                        db.close()
                        self._open, left = False, None
                        self._work.notify_all()
                    if left is not None and left <= 0:
                        break
                    self._work.wait(left)
                questions, self._questions = self._questions, collections.deque()
                rows = self._queue.first(BATCH)
                problem, self._queue.problem = problem or self._queue.problem, None
                last = self._queue.last
                if self._closing and not questions:
                    db.close()
                    self._open, self._thread = False, None
                    self._work.notify_all()
                    return
                self._open = True
            if problem:
                self.tell("exchanges wait", problem)
            if behind:
                self._answer(db, questions)
            error = None
            while rows and error is None and rows[0].n <= last:
                error = self._write(db, rows)
                with self._work:  # all that was pushed before a question
                    rows = self._queue.first(BATCH) if questions and not behind else []
            if error is not None:
                behind, since = True, since or time.monotonic()
                again = time.monotonic() + AGAIN_S
                if not told and time.monotonic() - since > TELL_S:
                    told = True
                    self.tell(f"exchanges wait for {self._path}", error)
            else:
                behind = behind and self._queue.count > BEHIND
                again, since, told = 0.0, None, False
            self._answer(db, questions)

    def _answer(self, db, questions):
        """Answers all questions, and takes them away."""
        while questions:
            agent, answer = questions.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(db.open().execute(STOPPED, (agent,)).fetchone())
            except Exception as unknown:
                answer.set_exception(unknown)

    def _adopt(self):
        """Takes over a part of what was left, when there is nothing else to do."""
        moved, problem = False, None
        try:
            moved = self._queue.adopt(self._left[0])
        except Taken:
            pass
        except (sqlite3.Error, OSError) as error:
            problem = RuntimeError(f"what is in {self._left[0]} cannot be read: {error}")
        if not moved:
            self._left.pop(0)
            self._work.notify_all()
        return problem

    def _write(self, db, rows):
        """Writes the first of some rows, or loses one. Returns the error if they must be tried
        again."""
        count = 0
        try:
            if rows[1:] and not self._single:
                count = write_batch(db.open(), rows)
            else:
                count = 1
                insert(db.open(), rows[0])
        except Exception as error:
            if isinstance(error, sqlite3.Error) and PASSES.search(str(error)):
                return error
            if count:
                self.tell("an exchange was not recorded", error)
            else:  # it was the batch
                self._single = len(rows) + 1
        self._single = max(0, self._single - 1)
        with self._work:
            self._queue.remove(rows[:count])
            self._work.notify_all()
        return None


class Named:
    """A recorder for one of the agents that share it."""

    def __init__(self, recorder, agent):
        self._recorder, self._agent = recorder, agent

    def begin(self, body=None, meta=None, request=None):
        return self._recorder.begin(body, meta, request, self._agent)

    async def begin_async(self, body=None, meta=None, request=None):
        return await self._recorder.begin_async(body, meta, request, self._agent)

    def __getattr__(self, name):
        return getattr(self._recorder, name)


def shared(path, agent, ring="ring", **options):
    """The recorder of this process for a ring and these options, however many clients use it."""
    key = (os.path.abspath(os.fspath(path)), ring, *sorted(options.items()))
    with _sharing:
        if key not in _shared:
            _shared[key] = Recorder(path, None, ring, **options)
    return Named(_shared[key], agent)


def _each(act):
    return lambda: [act(recorder) for recorder in list(_recorders)]


atexit.register(_each(Recorder.close))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_each(Recorder.before_fork), after_in_child=_each(Recorder._begin),
                        after_in_parent=_each(Recorder.after_fork))
