"""Rules that are stated in several places of SQL, or in SQL and in C, are the same everywhere."""
import re

import pytest

from conftest import ROOT


def sql(name):
    return (ROOT / "sql" / name).read_text()


def constant(header, name):
    text = (ROOT / "ext" / header).read_text()
    return re.search(rf"#define {name} (\d+)", text).group(1)


def test_a_row_of_evidence_counts_for_as_many_bytes_in_sql_as_in_c():
    said = constant("evidence/evidence.h", "EV_ROW_BYTES")
    for name, places in [("evidence.sql", 4), ("evidence_check.sql", 1)]:
        counted = re.findall(r"screenshot(?:_bytes|\), 0\)|_bytes\s+END)\s+[+-] (\d+)", sql(name))
        assert len(counted) >= places, name
        assert set(counted) == {said}, name
    for path in (ROOT / "ext" / "evidence").glob("*.c"):
        assert f"screenshot_bytes + {said}" not in path.read_text(), path


def test_an_id_is_made_in_the_same_way_wherever_sql_makes_one():
    """A DEFAULT cannot contain a subquery, and a subquery in an UPDATE would be computed only
    once for all rows. So the expression cannot be in a view."""
    text = sql("payload.sql") + (ROOT / "ext" / "payload" / "adopt.c").read_text()
    text = re.sub(r'[\s"\\]', "", text).replace("%%", "%")
    found = re.findall(r"printf\('%08x.*?281474976710655\)", text)
    assert len(found) == 3
    assert len(set(found)) == 1, set(found)


def found(path, pattern):
    """What a pattern finds in a file, each once."""
    return sorted(set(re.findall(pattern, (ROOT / path).read_text())))


@pytest.mark.parametrize("places", [
    # The last millisecond of the year 9999, wherever it is written.
    [(f"sql/{name}.sql", r"\b(2534\d{11})\b") for name in
     ("cache", "payload", "rollout_tables")]
    + [("ext/core/value.h", r"BX_MAX_TIME (\d+)"), ("ext/core/value.c", r"\(0 to (\d+)\)")],
    # The bytes of a payload, and of the type of an item.
    [("ext/rollout/rollout.h", r"ROLLOUT_MAX_PAYLOAD (\d+)"),
     ("ext/rollout/import.h", r"item of more than (\d+) bytes"),
     ("sql/rollout_tables.sql", r"and a payload at most (\d+)"),
     ("sql/rollout_tables.sql", r"AS BLOB\)\) <= (\d+)")],
    [("ext/rollout/rollout.h", r"ROLLOUT_MAX_NAME (\d+)"),
     ("ext/rollout/append.c", r"has no type of 1 to (\d+) bytes"),
     ("sql/rollout_tables.sql", r"a type has 1 to (\d+) bytes"),
     ("sql/rollout_tables.sql", r"length\(CAST\(type AS BLOB\)\) BETWEEN 1 AND (\d+)"),
     ("sql/rollout.sql", r"substr\(NEW.type, 1, (\d+)\)")],
    # The settings of a buffer.
    [("ext/evidence/store.c", r"max_size_bytes \(1000 to (\d+)\)"),
     ("ext/evidence/store.c", r"1000\.0,\s+(\d+)\.0, 1"),
     ("ext/evidence/buffer.c", r"1000 to (\d+)")],
    [("ext/evidence/store.c", r"max_screenshots \(0 to (\d+)\)"),
     ("ext/evidence/store.c", r"\b0\.0,\s+(\d+)\.0, 1"),
     ("ext/evidence/buffer.c", r"0 to (\d+), with keep-last-n")],
    [("ext/evidence/store.c", r"prune_threshold \((0\.\d+) to 1\)"),
     ("ext/evidence/store.c", r"(0\.\d+), 1\.0,"),
     ("ext/evidence/buffer.c", r"(0\.\d+) to 1\b")],
    # The window of a ring.
    [("ext/payload/payload.h", r"BX_RING_MAX_WINDOW (\d+)"),
     ("ext/payload/ring.c", r"window=1 to (\d+)")],
    # The quota that means none.
    [("ext/cache/session.c", r"MAX_BYTES (\d+)"), ("ext/cache/session.c", r'NO_QUOTA "(\d+)"'),
     ("sql/cache.sql", r"\b(1125\d{12})\b")],
    # The days that a clean-up may be given.
    [("ext/cache/session.c", r"rDay <= (\d+)"), ("ext/cache/session.c", r"from 0 to (\d+)\"")],
], ids=["time", "payload", "type", "buffer size", "screenshots", "threshold", "window", "quota",
        "days"])
def test_a_limit_is_the_same_wherever_it_is_written(places):
    told = {place: found(*place) for place in places}
    assert all(len(values) == 1 for values in told.values()), told
    assert len({values[0] for values in told.values()}) == 1, told


def test_only_core_adds_to_the_receipt_of_a_minute():
    """The others insert into the view retention_log."""
    for path in ROOT.glob("sql/*.sql"):
        text = re.sub(r"--.*", "", path.read_text())
        adds = re.findall(r"INTO (?:main\.)?blackbox__open\b", text)
        assert len(adds) == (path.name == "core.sql"), path.name


@pytest.mark.parametrize("files, name", [
    ("sql/*.sql", "rollout_drops"), ("ext/*/*.c", "main.rollout_drops")])
def test_one_statement_counts_what_the_policy_drops(files, name):
    """One of plain SQL, and one of the module, which counts many items at once."""
    assert sum(path.read_text().count("INTO " + name) for path in ROOT.glob(files)) == 1
