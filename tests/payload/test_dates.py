"""The time of a row is the same number in every version of SQLite, because indexes store it.

`make test-versions` runs these tests with each version. The expected numbers are fixed."""
import json
import random
import re

import pytest

from conftest import ROOT, one, rows

NOON = 1769860800000  # 2026-01-31T12:00:00Z
DATES = {
    "2026-01-31": NOON - 43200000,
    "2026-01-31 12:00": NOON,
    "2026-01-31T12:00Z": NOON,
    "2026-01-31 12:00+02:00": NOON - 7200000,
    "2026-01-31 12:00:00": NOON,
    "2026-01-31T12:00:00z": NOON,
    "2026-01-31 12:00:00-02:00": NOON + 7200000,
    "2026-01-31T12:00:00.5": NOON + 500,
    "2026-01-31T12:00:00.5Z": NOON + 500,
    "2026-01-31T12:00:00.05+02:00": NOON - 7200000 + 50,
    "2026-01-31T12:00:00.001Z": NOON + 1,
    "2026-01-31T12:00:59.123Z": NOON + 59123,
    "2026-01-31 12:00:01.001": NOON + 1001,
    "2026-01-31T12:00:00.123456Z": NOON + 123,
    "2026-01-31T12:00:00.1235": NOON + 123,
    "2026-01-31T12:00:00.9996Z": NOON + 999,
    "2026-01-31T12:00:00.9996 -01:00": NOON + 3600999,
    "2026-01-31T12:00:00." + "9" * 400: NOON + 999,
    "1969-12-31T23:59:59.999Z": -1,
    "0000-01-01T00:00:00.001Z": -62167219199999,
    "9999-12-31T23:59:59.999Z": 253402300799999,
    "9999-12-31T23:59:59.9996": 253402300799999,
    "2026-02-31": 1772496000000,
    # SQLite alone takes none of these
    "2026-01-31T12:00:00.": NOON, "2026-01-31T12:00:00.Z": NOON,
    "2026-01-31T12:00:00.5.5": NOON + 500, "2026-01-31T12:00:005": NOON,
}
OTHERS = [
    None, "", " ", "now", "subsec", "12:00", "12:00:00", "12:00:00  +02:00",
    "12:00:00.1+02:00", "2024", "2461072.0", "1.0e-3", "123e-1", "1.0e-00003",
    "    -0e-05", "           12.5", 1.0e-5, 2461072, b"2026-01-31",
    b"2026-01-31 12:00:00", "2026-13-01", "2026-01-32", "2026-01-31t12:00:00",
    "2026-01-31 12:60", "2026-01-31 24:00:00", "2026-01-31T24:30:00Z",
    "2026-01-31T24:00:00.000Z", "2026-01-3124:30:00", "2026-01-31  24:30:00",
    "2026-01-31T12:00.5Z", "2026-01-31.123",
    "2026-01-31T12:00:00.12xZ", "2026-01-31 x", "-2026-01-31",
]


def expression():
    """The SQL of created_ms."""
    text = (ROOT / "sql" / "payload.sql").read_text()
    return re.search(r"created_ms +INTEGER AS \((.*?)\) STORED", text, re.S)[1]


@pytest.mark.parametrize("text", [*DATES, *OTHERS], ids=lambda t: repr(t)[:40])
def test_a_date_is_one_number(db, text):
    assert one(db, f"SELECT {expression()} FROM (SELECT ? AS created_at)",
               text) == DATES.get(text)


@pytest.mark.parametrize("text", [t for t in OTHERS if isinstance(t, str)])
def test_a_date_that_cannot_be_computed_is_refused(db, text):
    with pytest.raises(Exception, match="created_at must be a date"):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose, "
                   "created_at) VALUES('e', 'a', 'archive', ?)", (text,))


def test_each_millisecond_is_read_as_it_was_written(db):
    written = "strftime('%Y-%m-%dT%H:%M:%fZ', ms / 1000.0, 'unixepoch')"
    for start in (0, NOON, NOON + 59000, 253402300799000 - 1000, -86400000):
        assert rows(db, "WITH RECURSIVE n(ms) AS (SELECT ?1 UNION ALL SELECT ms + 1 "
                    f"FROM n WHERE ms < ?1 + 1999) SELECT * FROM (SELECT ms, "
                    f"{expression()} AS got FROM (SELECT ms, {written} AS "
                    "created_at FROM n)) WHERE got IS NOT ms", start) == []


LONG = ("CASE WHEN created_at > '0' AND substr(created_at, 5, 1) = '-' AND substr(created_at, 8, 1) = '-'"
        " AND substr(created_at, 12, 2) < '24' THEN unixepoch(substr(created_at, 1, 19) ||"
        " ltrim(substr(created_at, 20), '.0123456789')) * 1000 + (substr(created_at, 20, 1) = '.') *"
        " CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER) END")


def test_the_short_way_gives_what_the_long_one_gives(db):
    """Texts as strftime() writes them take it; here they are also changed in places."""
    rng = random.Random(1)
    texts = [*DATES, *OTHERS]
    for _ in range(5000):
        text = "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ" % tuple(
            rng.randrange(low, high) for low, high in ((0, 10000), (0, 14), (0, 33), (0, 26), (0, 62),
                                                       (0, 62), (0, 1000)))
        at, length = rng.randrange(len(text)), rng.randrange(2)
        texts += [text, text[:at] + rng.choice("0159-:.TZ +é") + text[at + length:], text[:at],
                  text.encode()]
    found = rows(db, "SELECT created_at FROM (SELECT CAST(value AS TEXT) AS created_at FROM"
                 f" json_each(?)) WHERE ({expression()}) IS NOT ({LONG})",
                 json.dumps([t for t in texts if isinstance(t, str)]))
    found += [t for t in texts if isinstance(t, bytes) and one(
        db, f"SELECT {expression()} FROM (SELECT ? AS created_at)", t) is not None]
    assert found == []
