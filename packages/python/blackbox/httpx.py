"""Transports of httpx that record each exchange.

    recorder = blackbox.recorder.Recorder("flight.db", agent="support")
    client = httpx.Client(transport=RecordingTransport(recorder))
    client = httpx.AsyncClient(transport=AsyncRecordingTransport(recorder))

The clients of OpenAI and Anthropic take such a client as http_client.

The request is recorded before it is sent. Each chunk of a response is passed on when it
arrives, and kept, and completes the row when the response has ended or is closed. A response
that is cut off is recorded as far as it was read; a request without a response, with NULL. meta
has method, url without its query, status, duration_ms and error. Headers are not recorded, since
they have keys. If the agent is stopped, nothing is sent: AgentStoppedError.

Invariant: else the caller gets the same bytes, status, headers and errors as without it.

Limits: a response is kept in memory until it has ended. A request body that is itself a stream
is sent and not kept: its row has NULL.
"""
import httpx

from blackbox.call import failure, known

__all__ = ["RecordingTransport", "AsyncRecordingTransport"]


def _body(request):
    try:
        return request.content or None
    except httpx.RequestNotRead:  # a stream, which was sent and is gone
        return None


class _Stream:
    """A stream of the same chunks, which ends its call once."""

    def __init__(self, response, call):
        self._stream = response.stream
        self._call = call
        self._status = response.status_code
        self._headers = [(k, v) for k, v in response.headers.raw
                         if k.lower() == b"content-encoding"]
        self._chunks = []

    def _finish(self, error=None):
        call, self._call = self._call, None
        if call:
            call.end(lambda: self._decoded(b"".join(self._chunks)),
                     {"status": self._status, **failure(error)})

    def _decoded(self, raw):
        """The body without its encoding, such as gzip."""
        try:
            return httpx.Response(200, headers=self._headers, content=raw).content
        except httpx.DecodingError:
            return raw


class _SyncStream(_Stream, httpx.SyncByteStream):
    def __iter__(self):
        try:
            for chunk in self._stream:
                self._chunks.append(chunk)
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:  # also that a task was cancelled
            self._finish(error)
            raise
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
        except GeneratorExit:
            raise
        except BaseException as error:  # also that a task was cancelled
            self._finish(error)
            raise
        finally:
            self._finish()

    async def aclose(self):
        self._finish()
        await self._stream.aclose()


class RecordingTransport(httpx.BaseTransport):
    """Sends by another transport (by default that of httpx), and records."""

    def __init__(self, recorder, transport=None):
        self._recorder = recorder
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request):
        call = self._recorder.begin(lambda: _body(request), known(request.method, request.url),
                                    request)
        try:
            response = self._transport.handle_request(request)
        except BaseException as error:
            call.end(None, failure(error))
            raise
        response.stream = _SyncStream(response, call)
        return response

    def close(self):
        self._transport.close()


class AsyncRecordingTransport(httpx.AsyncBaseTransport):
    """The same for httpx.AsyncClient."""

    def __init__(self, recorder, transport=None):
        self._recorder = recorder
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        call = await self._recorder.begin_async(
            lambda: _body(request), known(request.method, request.url), request)
        try:
            response = await self._transport.handle_async_request(request)
        except BaseException as error:
            call.end(None, failure(error))
            raise
        response.stream = _AsyncStream(response, call)
        return response

    async def aclose(self):
        await self._transport.aclose()
