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

__all__ = ["RecordingAdapter"]


class RecordingAdapter(requests.adapters.HTTPAdapter):
    def __init__(self, recorder, **options):
        super().__init__(**options)
        self._recorder = recorder

    def send(self, request, *args, **options):
        call = self._recorder.begin(request)
        try:
            response = super().send(request, *args, **options)
        except BaseException:
            call.end(lambda: (_body(request), None))
            raise
        _watch(response.raw, lambda body: call.end(lambda: (_body(request), body)))
        return response


def _body(request):
    return request.body if isinstance(request.body, (str, bytes)) else None


def _watch(raw, end):
    """Makes a response of urllib3 tell its bytes once: when it has ended or is closed."""
    chunks = []
    stream, close = raw.stream, raw.close

    def finish():
        nonlocal end
        told, end = end, None
        if told:
            told(b"".join(chunks))

    def streaming(*args, **options):
        try:
            for chunk in stream(*args, **options):
                chunks.append(chunk)
                yield chunk
        finally:
            finish()

    def closing():
        finish()
        close()

    raw.stream, raw.close = streaming, closing
