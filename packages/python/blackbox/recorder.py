"""Records each exchange with a model's HTTP API into a ring: transports of httpx.

    recorder = blackbox.recorder.Recorder(db, agent="support")
    client = httpx.Client(transport=RecordingTransport(recorder))
    client = httpx.AsyncClient(transport=AsyncRecordingTransport(recorder))

The clients of OpenAI and Anthropic take such a client as http_client.

Each chunk of a response is passed on when it arrives, and kept. The exchange is pushed when
its response has ended or is closed. A response that is cut off is recorded as far as it was
read; a request without a response, with NULL. The time of a row is that of its request.
Headers are not recorded, since they have keys.

Invariants: the caller gets the same bytes, status, headers and errors as without the
recorder. An error of recording goes to on_error, and never to the caller.

Limits: a response is kept in memory until it has ended. A request body that is itself a
stream is sent and not kept: its row has NULL. A connection of sqlite3 belongs to
the thread that opened it, so use a recorder in that thread, or open the connection with
check_same_thread=False if requests do not overlap.
"""
import logging
import sqlite3
import time
import uuid
from typing import Callable, Optional, Union

import httpx

__all__ = ["Recorder", "RecordingTransport", "AsyncRecordingTransport"]


def _warn(error):
    logging.getLogger("blackbox").warning("an exchange was not recorded: %s", error)


def _quoted(name):
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def _text(data):
    """Text, or the bytes if they are not UTF-8. A character that is cut off becomes U+FFFD."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            return data.decode(errors="replace")
        return data


class Recorder:
    """Pushes exchanges of an agent into a ring, or "schema.ring"."""

    def __init__(self, db: sqlite3.Connection, agent: Union[str, Callable[[httpx.Request], str]],
                 ring: str = "ring", on_error: Callable[[Exception], None] = _warn):
        self._db = db
        self._agent = agent
        self._on_error = on_error
        self._insert = (f"INSERT INTO {_quoted(ring)}(agent_id, event_id, request_body,"
                        " response_body, timestamp) VALUES(?, ?, ?, ?, ?)")

    def push(self, request, response, started):
        """Pushes an exchange. Commits, unless the caller has a transaction open."""
        try:
            agent = self._agent(request) if callable(self._agent) else self._agent
            is_open = self._db.in_transaction
            self._db.execute(self._insert, (
                agent, str(uuid.uuid4()), _body(request), _text_of(response), started))
            if not is_open:
                self._db.commit()
        except Exception as error:
            self._tell(error)

    def _tell(self, error):
        try:
            self._on_error(error)
        except Exception:
            _warn(error)


def _body(request):
    try:
        return _text(request.content) or None
    except httpx.RequestNotRead:  # a stream, which was sent and is gone
        return None


def _text_of(response):
    """The body without its encoding, such as gzip."""
    if response is None:
        return None
    raw, headers = response
    try:
        return _text(httpx.Response(200, headers=headers, content=raw).content)
    except httpx.DecodingError:
        return raw


class _Stream:
    """A stream of the same chunks, which pushes the exchange once."""

    def __init__(self, stream, headers, end):
        self._stream = stream
        self._headers = [(k, v) for k, v in headers.raw if k.lower() == b"content-encoding"]
        self._end = end
        self._chunks = []

    def _finish(self):
        end, self._end = self._end, None
        if end:
            end((b"".join(self._chunks), self._headers))


class _SyncStream(_Stream, httpx.SyncByteStream):
    def __iter__(self):
        try:
            for chunk in self._stream:
                self._chunks.append(chunk)
                yield chunk
        finally:
            self._finish()

    def close(self):
        self._finish()
        self._stream.close()


class _AsyncStream(_Stream, httpx.AsyncByteStream):
    async def __aiter__(self):
        try:
            async for chunk in self._stream:
                self._chunks.append(chunk)
                yield chunk
        finally:
            self._finish()

    async def aclose(self):
        self._finish()
        await self._stream.aclose()


def _now():
    return int(time.time() * 1000)


class RecordingTransport(httpx.BaseTransport):
    """Sends by another transport (by default that of httpx), and records."""

    def __init__(self, recorder: Recorder, transport: Optional[httpx.BaseTransport] = None):
        self._recorder = recorder
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request):
        started = _now()
        try:
            response = self._transport.handle_request(request)
        except BaseException:
            self._recorder.push(request, None, started)
            raise
        response.stream = _SyncStream(response.stream, response.headers, lambda body:
                                      self._recorder.push(request, body, started))
        return response

    def close(self):
        self._transport.close()


class AsyncRecordingTransport(httpx.AsyncBaseTransport):
    """The same for httpx.AsyncClient."""

    def __init__(self, recorder: Recorder,
                 transport: Optional[httpx.AsyncBaseTransport] = None):
        self._recorder = recorder
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        started = _now()
        try:
            response = await self._transport.handle_async_request(request)
        except BaseException:
            self._recorder.push(request, None, started)
            raise
        response.stream = _AsyncStream(response.stream, response.headers, lambda body:
                                       self._recorder.push(request, body, started))
        return response

    async def aclose(self):
        await self._transport.aclose()
