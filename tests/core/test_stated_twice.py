"""Rules that are stated in several places of SQL, or in SQL and in C, are the same everywhere."""
import re

from conftest import ROOT


def sql(name):
    return (ROOT / "sql" / name).read_text()


def constant(header, name):
    text = (ROOT / "ext" / header).read_text()
    return re.search(rf"#define {name} (\d+)", text).group(1)


def test_a_row_of_evidence_counts_for_as_many_bytes_in_sql_as_in_c():
    said = constant("evidence/evidence.h", "EV_ROW_BYTES")
    for name, places in ("evidence.sql", 5), ("evidence_buffer.sql", 13):
        counted = re.findall(r"screenshot(?:_bytes|\), 0\)|_bytes\s+END)\s+[+-] (\d+)", sql(name))
        assert len(counted) >= places, name
        assert set(counted) == {said}, name
    for path in (ROOT / "ext" / "evidence").glob("*.c"):
        assert f"screenshot_bytes + {said}" not in path.read_text(), path


def test_an_id_is_made_in_the_same_way_wherever_sql_makes_one():
    """A DEFAULT cannot contain a subquery, and a subquery in an UPDATE would be computed only
    once for all rows. So the expression cannot be in a view."""
    found = []
    for name in "payload.sql", "payload_tables.sql", "rollout.sql":
        text = re.sub(r"[\s()]|lower", "", sql(name)).lower()
        found += re.findall(r"hexrandomblob4.*?hexrandomblob6", text)
    assert len(found) == 5
    assert len(set(found)) == 1, set(found)
