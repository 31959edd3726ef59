"""Transports of httpx that record each exchange.

    recorder = blackbox.recorder.Recorder("flight.db", agent="support")
    client = httpx.Client(transport=RecordingTransport(recorder))
    client = httpx.AsyncClient(transport=AsyncRecordingTransport(recorder))

The clients of OpenAI and Anthropic take such a client as http_client.

Each chunk of a response is passed on when it arrives, and kept. The exchange is pushed when its
response has ended or is closed. A response that is cut off is recorded as far as it was read; a
request without a response, with NULL. The time of a row is that of its request. Headers are not
recorded, since they have keys. If the agent is stopped, nothing is sent: AgentStoppedError.

Invariant: else the caller gets the same bytes, status, headers and errors as without it.

Limits: a response is kept in memory until it has ended. A request body that is itself a stream
is sent and not kept: its row has NULL.
"""
import httpx

__all__ = ["RecordingTransport", "AsyncRecordingTransport"]


def _body(request):
    try:
        return request.content or None
    except httpx.RequestNotRead:  # a stream, which was sent and is gone
        return None


class _Stream:
    """A stream of the same chunks, which ends its call once."""

    def __init__(self, stream, call, request, headers):
        self._stream = stream
        self._call = call
        self._request = request
        self._headers = [(k, v) for k, v in headers.raw if k.lower() == b"content-encoding"]
        self._chunks = []

    def _finish(self):
        call, self._call = self._call, None
        if call:
            call.end(lambda: (_body(self._request), self._decoded(b"".join(self._chunks))))

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


class RecordingTransport(httpx.BaseTransport):
    """Sends by another transport (by default that of httpx), and records."""

    def __init__(self, recorder, transport=None):
        self._recorder = recorder
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request):
        call = self._recorder.begin(request)
        try:
            response = self._transport.handle_request(request)
        except BaseException:
            call.end(lambda: (_body(request), None))
            raise
        response.stream = _SyncStream(response.stream, call, request, response.headers)
        return response

    def close(self):
        self._transport.close()


class AsyncRecordingTransport(httpx.AsyncBaseTransport):
    """The same for httpx.AsyncClient."""

    def __init__(self, recorder, transport=None):
        self._recorder = recorder
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request):
        call = await self._recorder.begin_async(request)
        try:
            response = await self._transport.handle_async_request(request)
        except BaseException:
            call.end(lambda: (_body(request), None))
            raise
        response.stream = _AsyncStream(response.stream, call, request, response.headers)
        return response

    async def aclose(self):
        await self._transport.aclose()
