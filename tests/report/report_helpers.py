"""What the tests of report share: a page read as a browser does."""
import base64
import hashlib
import html.parser
import json
import re
import zlib

from conftest import one


class Page(html.parser.HTMLParser):
    """The elements of a page, its scripts, and the text that is readable without them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.styles, self.shown = [], [], [], []
        self.policy, self.open = None, []
        self.source = text
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        self.open.append(tag)
        if tag == "script":
            self.scripts.append([attributes, ""])
        if tag == "style":
            self.styles.append("")
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_endtag(self, tag):
        while tag in self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1][1] += data
        elif self.open and self.open[-1] == "style":
            self.styles[-1] += data
        else:
            self.shown.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.shown).split())

    @property
    def report(self):
        return json.loads(next(t for a, t in self.scripts if a.get("id") == "report"))

    def block(self, number):
        text = next(t for a, t in self.scripts if a.get("id") == f"b{number}")
        return zlib.decompress(base64.b64decode(text, validate=True), -15)

    def part(self, part):
        """The bytes of a part."""
        return b"".join(self.block(b)[at:at + n] for b, at, n in part["pieces"])


def hashes(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def page(db, kind, key, **options):
    return Page(one(db, "SELECT blackbox_report(?, ?, ?)", kind, key, json.dumps(options)))


def as_json(db, kind, key, **options):
    text = one(db, "SELECT blackbox_report(?, ?, ?)", kind, key,
               json.dumps({"format": "json", **options}))
    return json.loads(text)


def ring(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")


def push(db, event, request, response, agent="a", time=1760000000000):
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
               " VALUES(?, ?, ?, ?, ?)", (agent, event, request, response, time))


def fire(db, event="k", agent="a"):
    return one(db, "SELECT payload_kill_switch('ring', ?, ?)", agent, event)


def one_exchange(db, request, response):
    """A kill switch of one exchange."""
    ring(db)
    push(db, "e1", request, response)
    fire(db)


def visible(text):
    """Whether a text has nothing that could change how it is read."""
    return not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u180e\u200b\u2800\u3164\ufeff\u200e\u200f\u202a-\u202e\u2066-\u2069]", text)
