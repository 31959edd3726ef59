"""A call to a model's API, between its request and its response."""
import json
import re
import time
import urllib.parse
import uuid

__all__ = ["AgentStoppedError", "Call", "failure", "known", "text_of"]


class AgentStoppedError(Exception):
    """The agent is stopped, and nothing was sent."""

    def __init__(self, agent, stopped_at, stopped_by):
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(stopped_at / 1000))
        super().__init__(
            f"agent {agent} was stopped at {at} by {stopped_by or 'a program'}, and nothing was "
            "sent; to start it again, INSERT INTO payload_agent_log(agent_id, actor, reason)")
        self.agent, self.stopped_at, self.stopped_by = agent, stopped_at, stopped_by


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


class Call:
    """A call from its begin to its end."""

    def __init__(self, recorder, agent, body, meta):
        self._recorder = recorder
        self._agent = agent
        self._event = str(uuid.uuid4())
        self._body, self._meta = body, meta
        self._started, self._clock = int(time.time() * 1000), time.monotonic()

    def judge(self, stopped):
        if stopped:
            raise AgentStoppedError(self._agent, *stopped)
        self._push(None, lambda: (_text(self._body), None), self._meta)

    def unknown(self, error):
        self._recorder.tell(f"whether agent {self._agent} is stopped is not known, and its call "
                            "was sent", error)
        self.judge(None)

    def end(self, body=None, meta=None):
        """The call has ended, with a response or without. body: the response, or a function
        that returns it. meta: a dictionary, such as {"status": 200}."""
        took = round((time.monotonic() - self._clock) * 1000)
        self._push("complete", lambda: (None, _text(body)),
                   {**(self._meta or {}), "duration_ms": took, **(meta or {})})

    def _push(self, command, bodies, meta):
        if self._agent is None:
            return
        try:
            self._recorder.push(command, self._agent, self._event, *bodies(), self._started,
                                json.dumps(meta, default=str) if meta else None)
        except Exception as error:
            self._agent = None
            self._recorder.tell("an exchange was not recorded", error)


def known(method, url):
    """What meta says of a request: the URL has no query, which may have a key, and no user."""
    at = urllib.parse.urlsplit(str(url))
    return {"method": method,
            "url": f"{at.scheme}://{at.netloc.rpartition('@')[2]}{at.path}"}


def failure(error):
    """What meta says of an error, or of none: without the query and the user of a URL."""
    told = re.sub(r"//[^/\s]*@", "//", re.sub(r"\?[^\s'\")>]+", "", f"{type(error).__name__}: {error}"))
    return {"error": told[:1000]} if error else {}


def _text(body):
    return text_of(body() if callable(body) else body)
