"""What the rollout tests share."""
import collections
import json
import os

from conftest import FULL, one, rollout_faults, rows

ID = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
OTHER = "019d0000-1111-7222-8333-444455556666"
THIRD = "019d0000-1111-7222-9333-777788889999"
AT = "2026-07-17T09:00:%02dZ"


def event(kind, **more):
    return {"type": "event_msg", "payload": {"type": kind, **more}}


def user(text):
    return event("user_message", message=text)


def message(role, text):
    return {"type": "response_item", "payload": {
        "type": "message", "role": role,
        "content": [{"type": "output_text", "text": text}]}}


def append(db, rollout, *items, now=None):
    return one(db, "SELECT rollout_append(?, ?, ?)", rollout,
               json.dumps(items, separators=(",", ":")), now)


def derive(db):
    """Makes the module derive what follows from items that plain SQL has written."""
    for rollout, in rows(db, "SELECT id FROM rollout__heads WHERE behind IS NOT NULL"):
        append(db, rollout, now=0)


def create(db, rollout=ID, ttl=None, now=None):
    return one(db, "SELECT rollout_create(?, NULL, ?, NULL, ?)", rollout, ttl, now)


def texts(db, rollout):
    """(sequence, payload) of a conversation, in order."""
    return rows(db, "SELECT sequence, payload FROM rollout_items "
                "WHERE rollout = ? ORDER BY sequence", rollout)


LOOKS = collections.Counter()


def well(db):
    """Nothing contradicts. In a test the module looks the first time, and then one time in four, as
    it compares the schema too."""
    test = os.environ["PYTEST_CURRENT_TEST"]
    found = rollout_faults(db, FULL or LOOKS[test] % 4 == 0)
    LOOKS[test] += 1
    assert found == [], found


def lines(*objects):
    return "".join(json.dumps(o) + "\n" for o in objects)


def load(db, data, *more):
    """Imports a file, and returns the report."""
    marks = ", ?" * len(more)
    return json.loads(one(db, f"SELECT rollout_import(?{marks})", data, *more))


def load_unknown(db, data, *more):
    """The same, of a file that no format knows."""
    report = load(db, data, *(*more, None, None)[:2], "unknown")
    assert (report["format"], report["known"]) == ("unknown", False)
    return report


def exported(db, rollout=ID):
    """The bytes of the file."""
    whole = one(db, "SELECT rollout_export(?)", rollout)
    return whole if isinstance(whole, bytes) else whole.encode()


def exported_as_parent(db, fork):
    """The export of a fork, with the name that its parent has in the file."""
    name = one(db, "SELECT source_id FROM rollouts WHERE id = ?", fork)
    return exported(db, fork).replace(fork.encode(), (name or fork).encode())
