"""Makes the clients of libraries use a recorder: see Connection.record of blackbox."""

__all__ = ["watch"]


def watch(client, recorder):
    """Makes a client of httpx or requests, or one that stands on them, use a recorder."""
    inner = [getattr(holder, name, None)
             for holder in (client, getattr(client, "_api_client", None))  # Google's
             for name in ("_client", "_httpx_client", "_async_httpx_client")]
    found = [each for each in (client, *inner)
             if hasattr(each, "_transport") or isinstance(getattr(each, "adapters", None), dict)]
    if not found:
        raise TypeError(
            "ValidationError: client must be one of httpx or requests, or stand on one, got "
            f"{type(client).__name__}; see RecordingTransport of blackbox.httpx")
    for each in found:
        if hasattr(each, "_transport"):
            _watch_httpx(each, recorder)
        else:
            _watch_requests(each, recorder)
    return recorder


def _watch_httpx(client, recorder):
    import httpx
    from blackbox import httpx as recording
    kind = (recording.AsyncRecordingTransport if isinstance(client, httpx.AsyncClient)
            else recording.RecordingTransport)
    client._transport = kind(recorder, _unwatched(client._transport, kind))
    for pattern, transport in getattr(client, "_mounts", {}).items():  # of proxies
        if transport is not None:
            client._mounts[pattern] = kind(recorder, _unwatched(transport, kind))


def _watch_requests(session, recorder):
    from blackbox.requests import RecordingAdapter
    for prefix, adapter in list(session.adapters.items()):
        if isinstance(adapter, RecordingAdapter):
            adapter = adapter._adapter
        session.mount(prefix, RecordingAdapter(recorder, adapter))


def _unwatched(transport, kind):
    """A client that is recorded already is recorded by the new recorder instead."""
    return transport._transport if isinstance(transport, kind) else transport
