"""An adapter of requests that records each exchange.

    recorder = blackbox.recorder.Recorder("flight.db", agent="support")
    session = requests.Session()
    session.mount("https://", RecordingAdapter(recorder))

It records as blackbox.httpx does, and sends nothing for an agent that is stopped.

Limits: a response is recorded as it is read by content, text, json(), iter_content() or
iter_lines(); what is read from response.raw is not. A request body that is itself a stream has
NULL.
"""
import requests.adapters

from blackbox.call import failure, known

__all__ = ["RecordingAdapter"]


class RecordingAdapter(requests.adapters.BaseAdapter):
    """Sends by another adapter (by default HTTPAdapter of requests), and records."""

    def __init__(self, recorder, adapter=None, **options):
        super().__init__()
        self._recorder = recorder
        self._adapter = adapter or requests.adapters.HTTPAdapter(**options)

    def send(self, request, *args, **options):
        call = self._recorder.begin(lambda: _body(request), known(request.method, request.url),
                                    request)
        try:
            response = self._adapter.send(request, *args, **options)
        except BaseException as error:
            call.end(None, failure(error))
            raise
        _watch(response.raw, lambda body, error: call.end(
            body, {"status": response.status_code, **failure(error)}))
        return response

    def close(self):
        self._adapter.close()


def _body(request):
    return request.body if isinstance(request.body, (str, bytes)) else None


def _watch(raw, end):
    """Makes a response of urllib3 tell its bytes once: when it has ended or is closed."""
    chunks = []
    stream, close = getattr(raw, "stream", None), getattr(raw, "close", None)
    if stream is None or close is None:  # of an adapter that is not urllib3's
        end(None, None)
        return

    def finish(error=None):
        nonlocal end
        told, end = end, None
        if told:
            told(b"".join(chunks), error)

    def streaming(*args, **options):
        try:
            for chunk in stream(*args, **options):
                chunks.append(chunk)
                yield chunk
        except GeneratorExit:
            raise
        except BaseException as error:
            finish(error)
            raise
        finally:
            finish()

    def closing():
        finish()
        close()

    raw.stream, raw.close = streaming, closing
