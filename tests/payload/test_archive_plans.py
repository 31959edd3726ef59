"""No query of the archive, documented or inside, scans it."""
import re
import sqlite3

import pytest

from conftest import connect, one, overwrite_pages, protects, rows, shell

QUERIES = {
    "by event, newest first":
        "SELECT * FROM payload_rows WHERE event_id = 'e1' ORDER BY created_ms DESC",
    "newest of an event":
        "SELECT * FROM payload_rows WHERE event_id = 'e1' "
        "ORDER BY created_ms DESC LIMIT 1",
    "by agent, newest first":
        "SELECT * FROM payload_rows WHERE agent_id = 'a1' ORDER BY created_ms DESC",
    "by agent and time":
        "SELECT * FROM payload_rows WHERE agent_id = 'a1' "
        "AND created_ms BETWEEN 1000 AND 2000 ORDER BY created_ms",
    "by kill switch, in order":
        "SELECT * FROM payload_rows WHERE kill_switch_event_id = 'k1' "
        "ORDER BY created_ms",
    "due": "SELECT id FROM event_payloads WHERE purpose = 'archive' AND pinned = 0 AND created_ms < 2000",
    "by id": "SELECT * FROM event_payloads WHERE id = 'x'",
    "a pin": "SELECT * FROM payload_pins WHERE id = 'x'",
}


@pytest.fixture
def archive(db):
    db.execute("PRAGMA synchronous=OFF")
    db.execute("BEGIN")
    for i in range(300):
        db.execute(
            "INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose,"
            " pinned, kill_switch_event_id, created_at) VALUES(?,?,?,?,?,?,?,?)",
            (f"i{i}", f"e{i % 60}", f"a{i % 4}", "q" * 3000,
             ("archive", "evidence")[i % 2], i % 3 == 0,
             f"k{i % 5}" if i % 2 else None,
             (f"1970-01-01 00:00:{i * 7 % 60:02}",
              f"1970-01-01T00:00:{i * 7 % 60:02}.{i:03}Z")[i % 7 == 0]))
    db.execute("COMMIT")
    return db


def plan(db, sql):
    """The lines of the plan. Numbered parameters get a value."""
    count = max(map(int, re.findall(r"\?(\d+)", sql)), default=0)
    return [row[3] for row in rows(db, "EXPLAIN QUERY PLAN " + sql, *["1"] * count)]


def is_good(line):
    scans = line.strip("|-` ").startswith("SCAN ")
    grows = "event_payloads" in line or "blackbox__log" in line
    return not scans or not grows or "COVERING" in line


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_documented_queries_seek(archive, name, analyzed):
    if analyzed:
        archive.execute("ANALYZE")
    found = plan(archive, QUERIES[name])
    assert all(is_good(line) for line in found), found
    if "due" not in name:
        # whether there are holds; and the four names of a row, which are looked up in them
        small = {"SCAN retention__in_force", "SCAN k", "SCAN CONSTANT ROW"}
        assert not any("SCAN" in line and line not in small for line in found), found


def test_documented_queries_return_the_right_rows(archive):
    table = rows(archive, "SELECT id, event_id, agent_id, kill_switch_event_id, "
                 "created_ms, purpose, pinned FROM payload_rows NOT INDEXED")
    def ids(name):
        return [r[0] for r in rows(archive, QUERIES[name])]
    def times(name):
        return [dict((r[0], r[4]) for r in table)[i] for i in ids(name)]
    assert sorted(ids("by event, newest first")) \
        == sorted(r[0] for r in table if r[1] == "e1")
    assert times("by event, newest first") \
        == sorted(times("by event, newest first"), reverse=True)
    assert ids("newest of an event") == ids("by event, newest first")[:1]
    assert sorted(ids("by agent and time")) \
        == sorted(r[0] for r in table if r[2] == "a1" and 1000 <= r[4] <= 2000)
    assert times("by agent and time") == sorted(times("by agent and time"))
    assert sorted(ids("by kill switch, in order")) \
        == sorted(r[0] for r in table if r[3] == "k1")
    assert times("by kill switch, in order") \
        == sorted(times("by kill switch, in order"))
    expired = {r[0] for r in table if r[4] < 2000 and r[5] == "archive" and not r[6]}
    assert set(ids("due")) == expired


COMMANDS = """
SELECT payload_cleanup(0, 2000);
SELECT payload_clear_archive();
SELECT payload_stats();
SELECT payload_kill_switch('ring', 'a', 'k1');
SELECT payload_kill_switch('ring', 'a', 'k1');
SELECT payload_save_evidence('k1', '[{"eventId":"e1","agentId":"a"}]');
SELECT payload_unpin('i1', 'a', 'r');
SELECT payload_queue('e', 'a', 'q', 'r');
SELECT payload_flush();
"""


def statements_inside(db, script):
    """Every statement that the commands of a script run."""
    seen = []
    db.set_trace_callback(seen.append)
    for line in script.strip().splitlines():
        db.execute(line).fetchall()
    db.set_trace_callback(None)
    seen = [s.removeprefix("-- ") for s in seen]  # so marked when inside another
    return [s for s in seen if s.split()[0] in ("SELECT", "INSERT", "UPDATE",
                                                 "DELETE", "WITH")]


def test_statements_inside_the_functions_seek(archive):
    archive.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    archive.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    archive.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e1')")
    inside = statements_inside(archive, COMMANDS)
    assert any("DELETE FROM" in s for s in inside)
    assert any("NOT EXISTS" in s for s in inside)
    for sql in inside:
        if "pragma_database_list" in sql:  # a handful of rows
            continue
        if protects() and re.match(r'(INSERT INTO|UPDATE|DELETE FROM) "?main"?\."?ring_', sql):
            continue  # SQLite explains it only to the module itself
        found = plan(archive, sql)
        if "json_each" in sql or "'leaves'" in sql:  # sorts what it was given, or 512 receipts
            found = [line for line in found if "TEMP B-TREE" not in line]
        if "archiveBytes" in sql:  # payload_stats() counts, on two indexes
            found = [line for line in found
                     if not re.search("USING.* INDEX payload_(by_age|kept)", line)]
        assert all(is_good(line) for line in found), (sql, found)


def test_statements_inside_triggers_seek(archive, path):
    archive.close()
    out = shell("-batch", path, stdin="""
.eqp trigger
DELETE FROM event_payloads WHERE purpose = 'archive' AND pinned = 0 AND created_ms < 2000;
INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e', 'a', 'evidence');
UPDATE event_payloads SET pinned = 1 WHERE id = 'i2';
INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('i1', 'a', 'r');
REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
VALUES('i2x', 'e', 'a', 'archive');
DELETE FROM event_payloads WHERE id = 'i2x';
""")
    lines = out.splitlines()
    assert any("payload_by_age" in line for line in lines), out
    assert [line for line in lines if not is_good(line)] == [], out


@pytest.mark.skipif(sqlite3.sqlite_version_info < (3, 40), reason=
                    "SQLite before 3.40 takes no expression from an index")
def test_counting_and_choosing_read_no_body(archive, path):
    """Overflow pages contain only bodies: overwriting them has no effect."""
    archive.execute("UPDATE event_payloads SET request_body = zeroblob(20000) "
                    "WHERE pinned = 0 AND purpose = 'archive'")
    one(archive, "SELECT blackbox_install('main', 'retention')")
    page_size = one(archive, "PRAGMA page_size")
    overflow = [r[0] for r in rows(
        archive, "SELECT pageno FROM dbstat WHERE name = 'event_payloads' "
        "AND pagetype = 'overflow'")]
    assert len(overflow) > 300
    queries = ["SELECT payload_stats()", "SELECT key, bytes, at, blocked_by FROM retention_plan",
               "SELECT rows, bytes FROM retention_report WHERE part = 'payload'"]
    expected = [rows(archive, sql) for sql in queries]
    archive.close()
    overwrite_pages(path, overflow, page_size)
    db = connect(path)
    assert [rows(db, sql) for sql in queries] == expected


def opcodes(db, sql):
    return len(rows(db, "EXPLAIN " + sql))


def test_an_insert_compiles_little_beside_the_same_table_without_rules(db):
    """Many hosts prepare each statement anew. SQLite then compiles all that it may fire."""
    insert = "INSERT INTO {}(event_id, agent_id, purpose) VALUES('e', 'a', 'archive')"
    plain = [re.sub("payload(s?)_", r"plain\1_", sql.replace("event_payloads", "plain")) for sql, in rows(
        db, "SELECT sql FROM sqlite_schema WHERE tbl_name = 'event_payloads'"
        " AND type IN ('table', 'index') AND sql IS NOT NULL ORDER BY type DESC")]
    db.executescript(";".join(plain))
    alone = opcodes(db, insert.format("plain"))
    assert opcodes(db, insert.format("event_payloads")) < 15 * alone
    assert opcodes(db, "DELETE FROM event_payloads WHERE id = 'x'") < 5 * alone


def test_a_clean_up_with_nothing_due_reads_no_row(db, path):
    """It steps through the index by age, which has the rows that may go."""
    db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose) WITH "
               "n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
               "SELECT 'e' || i, 'a', 'q', 'archive' FROM n")
    steps = []
    db.set_progress_handler(lambda: steps.append(1), 100)
    assert one(db, "SELECT payload_cleanup() ->> '$.rows'") == 0
    db.set_progress_handler(None, 0)
    assert len(steps) < 50


def test_an_insert_looks_its_keys_up_in_what_was_erased(db):
    db.execute("INSERT INTO retention__in_force(kind, key, owner, until) WITH n(i) AS (SELECT 1 "
               "UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
               "SELECT 'erased event', CAST(i AS TEXT), '', 9e15 FROM n")
    steps = []
    db.set_progress_handler(lambda: steps.append(1), 100)
    insert = "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES(?, 'a', 'archive')"
    db.execute(insert, ("other",))
    with pytest.raises(sqlite3.IntegrityError, match="ErasedError"):
        db.execute(insert, ("20000",))
    db.set_progress_handler(None, 0)
    assert len(steps) < 50
