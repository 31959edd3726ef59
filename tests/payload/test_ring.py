"""payload_ring: what a ring keeps, how it is read, and what it tolerates."""
import itertools
import random
import sqlite3

import pytest

from conftest import connect, one, overwrite_pages, rows, shell
from payload_helpers import Model, extracted, push, quoted, same

ALL = "agent_id, event_id, request_body, response_body, timestamp, size_bytes, seq"


@pytest.fixture
def ring(db):
    db.execute("PRAGMA synchronous=OFF")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    return db


def plan(db, sql, *args):
    return [row[3] for row in rows(db, "EXPLAIN QUERY PLAN " + sql, *args)]


def agents(db, name="ring"):
    return rows(db, "SELECT agent_id, given, rolled, cleared, saved, rows, bytes "
                f"FROM {name}_agents ORDER BY 1")


# ---- what is kept


def test_oldest_goes_beyond_the_window_and_is_counted(ring):
    for i in range(1, 6):
        push(ring, "a", f"e{i}", "q" * i, "é", i)
    push(ring, "b")
    assert rows(ring, f"SELECT {ALL} FROM ring WHERE agent_id='a' ORDER BY seq") \
        == [("a", f"e{i}", "q" * i, "é", i, i + 2, i) for i in (3, 4, 5)]
    assert agents(ring) == [("a", 5, 2, 0, 0, 3, 18), ("b", 1, 0, 0, 0, 1, 2)]


def test_window_of_a_ring_without_one_is_50(db):
    db.execute("CREATE VIRTUAL TABLE r1 USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE r2 USING payload_ring()")
    db.execute("CREATE VIRTUAL TABLE temp.r3 USING payload_ring")
    for ring in ("r1", "r2", "r3"):
        for i in range(60):
            push(db, "a", ring=ring)
        assert one(db, f"SELECT count(*) FROM {ring}") == 50


def test_ring_needs_no_install():
    db = connect()
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    for _ in range(51):
        push(db, "a")
    assert one(db, "SELECT count(*) FROM ring") == 50


@pytest.mark.parametrize("argument", ["'2'", '"2"', " 2 ", "2"])
def test_window_argument_may_be_quoted(db, argument):
    db.execute(f"CREATE VIRTUAL TABLE r USING payload_ring( window = {argument} )")
    for _ in range(3):
        push(db, "a", ring="r")
    assert one(db, "SELECT count(*) FROM r") == 2


def test_smaller_window_trims_at_once_and_larger_one_fills(ring):
    model = Model(3)
    for i in range(5):
        push(ring, "a", f"e{i}")
        model.push("a", f"e{i}", "q", "r", 1000)
    for window in (1, 4, 2, 9):
        ring.execute("INSERT INTO ring(ring, value) VALUES('window', ?)", (window,))
        model.set_window(window)
        same(ring, model)
        for i in range(3):
            push(ring, "a", f"w{window} {i}")
            model.push("a", f"w{window} {i}", "q", "r", 1000)
            same(ring, model)


def many_agents(db, n=150, window=5):
    db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={window})")
    db.execute("BEGIN")
    for a, i in itertools.product(range(n), range(window)):
        push(db, f"a{a:03}", f"e{i}")
    db.execute("COMMIT")


def test_smaller_window_holds_for_all_agents_though_trimming_is_bounded(db):
    many_agents(db)
    db.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    assert rows(db, "SELECT DISTINCT seq FROM ring ORDER BY 1") == [(4,), (5,)]
    assert one(db, "SELECT sum(rows) FROM ring_agents") == 100 * 2 + 50 * 5
    db.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    assert one(db, "SELECT sum(rows) FROM ring_agents") == 150 * 2
    assert rows(db, "SELECT DISTINCT given, rolled, rows FROM ring_agents") \
        == [(5, 3, 2)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_rows_that_a_smaller_window_took_do_not_come_back(db):
    many_agents(db)
    db.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    db.execute("DELETE FROM ring WHERE agent_id = 'a149'")
    db.execute("INSERT INTO ring(ring, value) VALUES('window', 5)")
    assert rows(db, "SELECT DISTINCT seq FROM ring ORDER BY 1") == [(4,), (5,)]
    assert rows(db, "SELECT * FROM ring WHERE agent_id = 'a149'") == []
    for a in ("a148", "a149", "a000"):
        push(db, a)
    assert [r[0] for r in rows(db, "SELECT seq FROM ring WHERE agent_id IN "
                               "('a000','a148','a149') ORDER BY agent_id, seq")] \
        == [4, 5, 6, 4, 5, 6, 6]
    assert one(db, "SELECT count(*) FROM ring") \
        == one(db, "SELECT sum(rows) FROM ring_agents")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_rows_not_trimmed_yet_are_not_saved_and_not_extracted(db):
    many_agents(db)
    db.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    assert one(db, "SELECT payload_kill_switch('ring', 'a149', 'k')") == 2
    assert [e[0] for e in extracted(
        one(db, "SELECT payload_extract('ring', 'a148')"))] == ["e3", "e4"]
    assert agents(db)[-2:] == [("a148", 5, 3, 2, 0, 0, 0), ("a149", 5, 3, 0, 2, 0, 0)]


# ---- reading


def filled(db, n=12, pushes=400, window=7, seed=1):
    shuffle = random.Random(seed)
    model = Model(window)
    db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring(window={window})")
    db.execute("BEGIN")
    for i in range(pushes):
        row = (f"a{shuffle.randrange(n)}", f"e{i}", "q" * i, None, 10000 - i)
        push(db, *row)
        model.push(*row)
    db.execute("COMMIT")
    return model


READS = [
    ("WHERE agent_id = 'a3' ORDER BY seq", lambda r: r[0] == "a3", lambda r: r[6]),
    ("WHERE agent_id = 'a3' ORDER BY seq DESC", lambda r: r[0] == "a3",
     lambda r: -r[6]),
    ("WHERE agent_id = 'a3' ORDER BY agent_id DESC, seq ASC",
     lambda r: r[0] == "a3", lambda r: r[6]),
    ("ORDER BY agent_id, seq", lambda r: True, lambda r: (r[0], r[6])),
    ("ORDER BY agent_id", lambda r: True, lambda r: (r[0], r[6])),
]
SORTED = [
    ("ORDER BY agent_id, seq DESC", lambda r: True, lambda r: (r[0], -r[6])),
    ("ORDER BY seq, agent_id", lambda r: True, lambda r: (r[6], r[0])),
    ("ORDER BY timestamp", lambda r: True, lambda r: r[4]),
    ("WHERE agent_id = 'a3' ORDER BY timestamp", lambda r: r[0] == "a3",
     lambda r: r[4]),
    ("WHERE agent_id > 'a3' ORDER BY event_id", lambda r: r[0] > "a3",
     lambda r: r[1]),
    ("WHERE agent_id IN ('a3','a1','none') ORDER BY seq, agent_id",
     lambda r: r[0] in ("a3", "a1"), lambda r: (r[6], r[0])),
    ("WHERE agent_id = 'a3' AND seq > 20 ORDER BY seq DESC LIMIT 3",
     lambda r: r[0] == "a3" and r[6] > 20, lambda r: -r[6]),
]


@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("read", READS + SORTED, ids=lambda r: r[0])
def test_reads_are_those_of_a_brute_force_sort(db, read, reverse):
    model = filled(db)
    db.execute(f"PRAGMA reverse_unordered_selects={reverse}")
    clause, keep, key = read
    limit = 3 if "LIMIT 3" in clause else None
    expected = sorted(filter(keep, model.rows()), key=key)[:limit]
    assert rows(db, f"SELECT {ALL} FROM ring {clause}") == expected
    assert rows(db, f"SELECT seq FROM ring {clause}") == [(r[6],) for r in expected]


@pytest.mark.parametrize("read", READS, ids=lambda r: r[0])
def test_own_order_needs_no_sort(db, read):
    filled(db)
    for columns in (ALL, "seq"):
        assert "TEMP B-TREE" not in str(plan(db, f"SELECT {columns} FROM ring {read[0]}"))


def test_own_order_is_promised_only_where_it_is_kept(db):
    filled(db, 2, 5)
    for clause, *_ in SORTED[:4]:
        assert "TEMP B-TREE" in str(plan(db, f"SELECT * FROM ring {clause}"))


def test_group_by_agent_needs_no_sort_and_equals_the_sums(db):
    model = filled(db)
    sql = ("SELECT agent_id, count(*), sum(size_bytes) FROM ring "
           "GROUP BY agent_id")
    assert "TEMP B-TREE" not in str(plan(db, sql))
    assert rows(db, sql) == [(c[0], c[5], c[6]) for c in model.counters()]
    assert rows(db, "SELECT DISTINCT agent_id FROM ring") \
        == [(c[0],) for c in model.counters()]
    assert one(db, "SELECT count(*) FROM ring") == len(model.rows())


def test_order_by_after_a_window_change(db):
    model = filled(db, 3, 40, 7)
    for window in (4, 11):
        db.execute("INSERT INTO ring(ring, value) VALUES('window', ?)", (window,))
        model.set_window(window)
        for i in range(2):
            push(db, "a1", f"w{i}")
            model.push("a1", f"w{i}", "q", "r", 1000)
        for agent in ("a0", "a1", "a2"):
            seqs = [r[6] for r in model.rows() if r[0] == agent]
            sql = "SELECT seq FROM ring WHERE agent_id=? ORDER BY seq"
            assert [r[0] for r in rows(db, sql, agent)] == seqs
            assert [r[0] for r in rows(db, sql + " DESC", agent)] == seqs[::-1]


def test_joins_and_self_joins(db):
    model = filled(db, 4, 60)
    db.execute("CREATE TABLE wanted(agent)")
    db.execute("INSERT INTO wanted VALUES('a1'),('a3'),('none')")
    assert rows(db, "SELECT r.agent_id, r.seq FROM wanted AS w JOIN ring AS r "
                "ON r.agent_id = w.agent ORDER BY 1, 2") \
        == [(r[0], r[6]) for r in model.rows() if r[0] in ("a1", "a3")]
    pairs = one(db, "SELECT count(*) FROM ring AS a JOIN ring AS b "
                "ON a.agent_id = b.agent_id AND a.seq < b.seq")
    assert pairs == sum(c[5] * (c[5] - 1) // 2 for c in model.counters())


@pytest.mark.parametrize(
    "where, found",
    [
        ("agent_id = 'Bob'", ["Bob"]),
        ("agent_id = 'BOB'", []),
        ("agent_id = 'BOB' COLLATE NOCASE", ["Bob", "bob"]),
        ("agent_id COLLATE NOCASE = 'bob'", ["Bob", "bob"]),
        ("agent_id = 'bob ' COLLATE RTRIM", ["bob"]),
        ("agent_id LIKE 'b%'", ["Bob", "bob"]),
        ("agent_id GLOB 'b*'", ["bob"]),
        ("agent_id IS 'bob'", ["bob"]),
        ("agent_id IS NULL", []),
        ("agent_id = NULL", []),
        ("agent_id = 7", ["7"]),
        ("agent_id = 7.0", []),
        ("agent_id = x'626f62'", []),
        ("agent_id <> 'bob'", ["7", "Bob"]),
        ("agent_id IN (SELECT 'bob' UNION SELECT '7')", ["7", "bob"]),
        ("agent_id = 'bob' OR agent_id = '7'", ["7", "bob"]),
    ],
)
def test_comparisons_with_agent_id(ring, where, found):
    ring.execute("CREATE TABLE plain(agent_id TEXT)")
    for agent in ("Bob", "bob", 7):
        push(ring, agent)
        ring.execute("INSERT INTO plain VALUES(?)", (agent,))
    for table in ("plain", "ring"):
        assert [r[0] for r in rows(
            ring, f"SELECT agent_id FROM {table} WHERE {where} ORDER BY 1")] == found


def test_reading_without_bodies_reads_no_body_page(path):
    """Every page of the bodies is overwritten with rubbish. Queries without bodies still work,
    queries with bodies fail."""
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    for i in range(40):
        push(db, f"a{i % 4}", f"e{i}", "q" * 20000, "r" * 20000, i)
    queries = [
        "SELECT agent_id, count(*), sum(size_bytes) FROM ring GROUP BY agent_id",
        "SELECT count(*), sum(size_bytes) FROM ring WHERE agent_id = 'a1'",
        "SELECT event_id, timestamp, seq FROM ring ORDER BY agent_id, seq",
        "SELECT seq FROM ring WHERE agent_id = 'a2' ORDER BY seq DESC",
    ]
    expected = [rows(db, sql) for sql in queries]
    page_size = one(db, "PRAGMA page_size")
    overflow = [r[0] for r in rows(
        db, "SELECT pageno FROM dbstat WHERE name = 'ring_texts' AND pagetype = 'leaf'"
        " ORDER BY path")][1:]  # the first page has the settings of the ring
    assert len(overflow) > 200
    db.close()
    overwrite_pages(path, overflow, page_size)
    db = connect(path)
    assert [rows(db, sql) for sql in queries] == expected
    with pytest.raises(sqlite3.DatabaseError):
        rows(db, "SELECT request_body FROM ring")


# ---- values


@pytest.mark.parametrize(
    "agent",
    ["a", "o'c", 'say "hi"', "line\nline", "\t", " ", "🤖", "é" * 512, "x" * 1024,
     "%s%q", "?1", "-- ;", "\ufeff", "\U0010ffff", "1"],
)
def test_agent_ids_of_any_text(ring, agent):
    for i in range(5):
        push(ring, agent, agent, timestamp=i)
    push(ring, agent + " " if len(agent) == 1 else "x")
    assert rows(ring, "SELECT DISTINCT agent_id, event_id FROM ring "
                "WHERE agent_id = ?", agent) == [(agent, agent)]
    assert one(ring, "SELECT count(*) FROM ring WHERE agent_id = ?", agent) == 3
    assert one(ring, "SELECT payload_kill_switch('ring', ?, ?)", agent, agent) == 3
    assert rows(ring, "SELECT DISTINCT agent_id, kill_switch_event_id "
                "FROM event_payloads") == [(agent, agent)]


@pytest.mark.parametrize(
    "column, value, message",
    [
        ("agent_id", "a\0b", "without a NUL"),
        ("agent_id", b"a", "must be text, got a blob of 1 bytes"),
        ("agent_id", None, "agent_id must be text, got NULL"),
        ("agent_id", "", "not empty"),
        ("agent_id", "x" * 1025, "at most 1024 bytes of UTF-8, got 1025"),
        ("agent_id", "é" * 513, "got 1026"),
        ("event_id", None, "event_id must be text, got NULL"),
        ("event_id", "", "not empty"),
        ("event_id", b"", "a blob of 0 bytes"),
        ("event_id", "e\0", "without a NUL"),
        ("event_id", "x" * 1025, "at most 1024"),
        ("timestamp", "2024-01-01", "got '2024-01-01'"),
        ("timestamp", "1000", "got '1000'"),
        ("timestamp", -1, "got -1"),
        ("timestamp", 253402300800000, "got 253402300800000"),
        ("timestamp", 1.5, "got 1.5"),
        ("timestamp", 1e300, "milliseconds"),
        ("timestamp", float("inf"), "milliseconds"),
        ("timestamp", b"1", "a blob"),
        ("size_bytes", 1, "computed by the ring"),
        ("seq", 1, "computed by the ring"),
        ("rowid", 1, "computed by the ring"),
        ("value", 1, "computed by the ring"),
    ],
)
def test_push_refuses_bad_values(ring, column, value, message):
    row = {"agent_id": "a", "event_id": "e", column: value}
    sql = (f"INSERT INTO ring({', '.join(row)}) "
           f"VALUES({', '.join('?' * len(row))})")
    with pytest.raises(sqlite3.IntegrityError, match=message) as caught:
        ring.execute(sql, tuple(row.values()))
    assert "ValidationError: " in str(caught.value)
    assert agents(ring) == []
    ring.execute(sql.replace("INSERT", "INSERT OR IGNORE"), tuple(row.values()))
    assert agents(ring) == []


def test_malformed_utf8_ids_are_refused_and_bodies_kept_as_they_are(ring):
    for bad in ("ff", "c0af", "eda080", "e282", "f8888080", "61ff"):
        with pytest.raises(sqlite3.IntegrityError, match="well-formed UTF-8, got .*" + bad):
            ring.execute("INSERT INTO ring(agent_id, event_id) "
                         f"VALUES(CAST(x'{bad}' AS TEXT), 'e')")
    ring.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body)"
                 " VALUES('a', 'e', CAST(x'61ff00fe' AS TEXT), x'ff00')")
    assert rows(ring, "SELECT hex(CAST(request_body AS BLOB)), "
                "typeof(request_body), hex(response_body), typeof(response_body),"
                " size_bytes FROM ring") == [("61FF00FE", "text", "FF00", "blob", 6)]
    one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert rows(ring, "SELECT hex(CAST(request_body AS BLOB)), "
                "typeof(request_body), hex(response_body), typeof(response_body),"
                " size_bytes FROM event_payloads") \
        == [("61FF00FE", "text", "FF00", "blob", 6)]


@pytest.mark.parametrize(
    "body, size", [(None, 0), ("", 0), (b"", 0), ("é", 2), (b"\0\0", 2), (5, 1),
                   (1.5, 3), ("a\0b", 3), ("🤖", 4)])
def test_bodies_keep_value_and_type(ring, body, size):
    push(ring, "a", "e", body, body)
    assert rows(ring, "SELECT request_body, response_body, size_bytes FROM ring") \
        == [(body, body, 2 * size)]


@pytest.mark.parametrize("time", [0, 253402300799999, 1000.0])
def test_the_smallest_and_the_largest_timestamp_are_kept(ring, time):
    push(ring, "a", timestamp=time)
    assert one(ring, "SELECT timestamp FROM ring") == time
    assert one(ring, "SELECT typeof(timestamp) FROM ring") == "integer"
    one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')")
    assert one(ring, "SELECT created_ms FROM payload_rows") == time


def test_timestamp_is_now_when_not_given(ring):
    ring.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    assert one(ring, "SELECT abs(timestamp - (julianday('now') - 2440587.5) * "
               "86400000.0) < 60000 FROM ring") == 1


def test_a_row_longer_than_the_length_limit_is_refused_whole(ring):
    push(ring, "a")
    ring.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 20000)
    for wrap in ("", "BEGIN"):
        if wrap:
            ring.execute(wrap)
        with pytest.raises(sqlite3.DataError):
            ring.execute("INSERT INTO ring(agent_id, event_id, request_body, "
                         "response_body) VALUES('a','e', zeroblob(15000), "
                         "zeroblob(15000))")
        assert agents(ring) == [("a", 1, 0, 0, 0, 1, 2)]
    ring.execute("COMMIT")
    push(ring, "a")
    assert agents(ring) == [("a", 2, 0, 0, 0, 2, 4)]


# ---- statements around it


def test_or_ignore_and_or_replace(ring):
    ring.execute("INSERT OR IGNORE INTO ring(agent_id, event_id) "
                 "VALUES('a','1'),(NULL,'2'),('a',NULL),('a','3'),('','4')")
    assert rows(ring, "SELECT event_id, seq FROM ring") == [("1", 1), ("3", 2)]
    assert ring.execute("INSERT OR REPLACE INTO ring(agent_id, event_id) "
                        "VALUES('a','5')").rowcount == 1
    with pytest.raises(sqlite3.IntegrityError, match="computed by the ring"):
        ring.execute("INSERT OR REPLACE INTO ring(rowid, agent_id, event_id) "
                     "SELECT rowid, 'a', 'z' FROM ring LIMIT 1")
    for clause in ("OR ABORT", "OR ROLLBACK"):
        with pytest.raises(sqlite3.IntegrityError):
            ring.execute(f"INSERT {clause} INTO ring(agent_id, event_id) "
                         "VALUES('a','6'),('a',NULL)")
    assert agents(ring) == [("a", 3, 0, 0, 0, 3, 0)]
    with pytest.raises(sqlite3.IntegrityError):
        ring.execute("INSERT OR FAIL INTO ring(agent_id, event_id) "
                     "VALUES('a','7'),('a',NULL)")
    assert agents(ring) == [("a", 4, 1, 0, 0, 3, 0)]
    ring.execute("BEGIN")
    push(ring, "a")
    with pytest.raises(sqlite3.IntegrityError):
        ring.execute("INSERT OR ROLLBACK INTO ring(agent_id) VALUES('a')")
    assert not ring.in_transaction
    assert agents(ring) == [("a", 4, 1, 0, 0, 3, 0)]


@pytest.mark.parametrize("change", [
    "UPDATE ring SET event_id = 'x'", "UPDATE ring SET agent_id = 'x'",
    "UPDATE OR REPLACE ring SET seq = 1", "UPDATE ring SET request_body = NULL",
    "UPDATE ring SET rowid = 1"])
def test_a_row_is_never_changed(ring, change):
    push(ring, "a")
    push(ring, "a")
    before = rows(ring, "SELECT rowid, * FROM ring")
    with pytest.raises(sqlite3.IntegrityError, match="ReadOnlyError"):
        ring.execute(change)
    assert rows(ring, "SELECT rowid, * FROM ring") == before


def test_insert_from_the_ring_into_itself(ring):
    model = Model(3)
    for agent, i in itertools.product("ab", range(4)):
        push(ring, agent, f"e{i}")
        model.push(agent, f"e{i}", "q", "r", 1000)
    before = model.rows()
    ring.execute(f"INSERT INTO ring({ALL.replace(', size_bytes, seq', '')}) "
                 "SELECT agent_id, event_id || '+', request_body, response_body, "
                 "timestamp FROM ring")
    for row in before:
        model.push(row[0], row[1] + "+", *row[2:5])
    same(ring, model)
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_delete_while_reading_and_push_while_reading(ring):
    for agent, _ in itertools.product("abc", range(3)):
        push(ring, agent)
    seen = []
    for agent, seq in ring.execute("SELECT agent_id, seq FROM ring"):
        seen.append((agent, seq))
        ring.execute("DELETE FROM ring WHERE agent_id=? AND seq=?", (agent, seq))
        if agent == "a":
            push(ring, "d")
    assert {s for s in seen if s[0] != "d"} == set(itertools.product("abc", (1, 2, 3)))
    assert rows(ring, "SELECT * FROM blackbox_check") == []
    assert all(c[1] == sum(c[2:6]) for c in agents(ring))


def test_delete_by_rowid_and_by_any_condition(ring):
    for i in range(3):
        push(ring, "a", f"e{i}")
        push(ring, "b", f"e{i}")
    ring.execute("DELETE FROM ring WHERE rowid IN (SELECT rowid FROM ring "
                 "WHERE event_id = 'e1')")
    assert ring.execute("DELETE FROM ring WHERE timestamp > 5000").rowcount == 0
    assert ring.execute("DELETE FROM ring WHERE agent_id='b'").rowcount == 2
    assert rows(ring, "SELECT agent_id, seq FROM ring") == [("a", 1), ("a", 3)]
    assert agents(ring) == [("a", 3, 0, 1, 0, 2, 4), ("b", 3, 0, 3, 0, 0, 0)]
    push(ring, "b")
    assert rows(ring, "SELECT seq FROM ring WHERE agent_id='b'") == [(4,)]


@pytest.mark.parametrize("recursive", [0, 1])
def test_pushes_and_kill_switch_from_a_users_trigger(ring, recursive):
    ring.execute(f"PRAGMA recursive_triggers={recursive}")
    ring.executescript("""
        CREATE TABLE events(agent, kind, id, body);
        CREATE TRIGGER keep AFTER INSERT ON events WHEN NEW.kind = 'exchange' BEGIN
          INSERT INTO ring(agent_id, event_id, request_body, timestamp)
          VALUES(NEW.agent, NEW.id, NEW.body, 5);
        END;
        CREATE TRIGGER stop AFTER INSERT ON events WHEN NEW.kind = 'kill' BEGIN
          INSERT INTO ring(ring, agent_id, event_id)
          VALUES('kill_switch', NEW.agent, NEW.id);
        END;
        CREATE TRIGGER narrow AFTER INSERT ON events WHEN NEW.kind = 'window' BEGIN
          INSERT INTO ring(ring, value) VALUES('window', NEW.body);
        END;
        CREATE TRIGGER forget AFTER DELETE ON events BEGIN
          DELETE FROM ring WHERE agent_id = OLD.agent;
        END""")
    for i in range(5):
        ring.execute("INSERT INTO events VALUES('a','exchange',?,?)", (i, "x" * i))
    ring.execute("INSERT INTO events VALUES('b','exchange','z','y'),"
                 "('a','kill','K',NULL),('a','exchange','after','x')")
    assert rows(ring, "SELECT event_id, request_body, pinned, "
                "kill_switch_event_id FROM event_payloads ORDER BY event_id") \
        == [(str(i), "x" * i, 1, "K") for i in (2, 3, 4)]
    ring.execute("BEGIN")
    ring.execute("INSERT INTO events VALUES('b','kill','K2',NULL)")
    ring.execute("ROLLBACK")
    assert agents(ring) == [("a", 6, 2, 0, 3, 1, 1), ("b", 1, 0, 0, 0, 1, 1)]
    with pytest.raises(sqlite3.IntegrityError, match="window must be"):
        ring.execute("INSERT INTO events VALUES('a','exchange','1','x'),"
                     "('a','window','w',0)")
    ring.execute("DELETE FROM events WHERE id = 'after'")
    assert agents(ring) == [("a", 6, 2, 1, 3, 0, 0), ("b", 1, 0, 0, 0, 1, 1)]
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_a_trigger_is_refused_with_trusted_schema_off(ring):
    ring.execute("CREATE TABLE t(a)")
    ring.execute("CREATE TRIGGER p AFTER INSERT ON t BEGIN INSERT INTO "
                 "ring(agent_id, event_id) VALUES(NEW.a, 'e'); END")
    ring.execute("PRAGMA trusted_schema=OFF")
    if sqlite3.sqlite_version_info >= (3, 40):
        with pytest.raises(sqlite3.OperationalError, match="unsafe use of virtual"):
            ring.execute("INSERT INTO t VALUES('a')")
    push(ring, "a")
    assert one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    ring.execute("PRAGMA trusted_schema=ON")
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_defensive_mode_protects_the_tables_of_a_ring(path):
    text = """
.load ./blackbox
.dbconfig defensive on
SELECT blackbox_install();
CREATE VIRTUAL TABLE ring USING payload_ring(window=2);
INSERT INTO ring(agent_id, event_id) VALUES('a','1'),('a','2'),('a','3');
UPDATE ring_slots SET seq = 9;
DELETE FROM ring_agents;
DROP TABLE ring_texts;
SELECT count(*) FROM blackbox_check;
"""
    out = shell("-batch", path, stdin=text)
    assert "table ring_slots may not be modified" in out
    assert "table ring_agents may not be modified" in out
    assert "table ring_texts may not be dropped" in out
    assert out.endswith("\n0\n")


def test_a_ring_works_in_defensive_mode(path):
    text = """
.load ./blackbox
.dbconfig defensive on
SELECT blackbox_install();
CREATE VIRTUAL TABLE ring USING payload_ring(window=2);
INSERT INTO ring(agent_id, event_id) VALUES('a','1'),('a','2'),('a','3');
SELECT payload_kill_switch('ring', 'a', 'k');
INSERT INTO ring(ring, value) VALUES('window', 5);
DELETE FROM event_payloads;
SELECT given, rolled, saved FROM ring_agents;
SELECT count(*) FROM blackbox_check;
DROP TABLE ring;
SELECT count(*) FROM sqlite_schema WHERE name LIKE 'ring%';
"""
    out = shell("-batch", path, stdin=text)
    assert "PinnedError" in out
    assert "\n2\n" in out and "3|1|2\n0\n0\n" in out


# ---- names, files


@pytest.mark.parametrize("name", ["r", 'with "quotes"', "it's", "sp ace", "a.b",
                                  "@x", "main.", "ring_x", "sélect", "🤖", "from"])
def test_rings_of_any_name(db, name):
    q = quoted(name)
    db.execute(f"CREATE VIRTUAL TABLE {q} USING payload_ring(window=2)")
    for i in range(3):
        push(db, "a", f"e{i}", ring=q)
    assert one(db, f"SELECT count(*) FROM {q}") == 2
    db.execute(f"INSERT INTO {q}({q}, value) VALUES('window', 5)")
    push(db, "a", ring=q)
    assert one(db, "SELECT payload_kill_switch(?, 'a', 'k')", name) == 3
    push(db, "a", ring=q)
    assert len(extracted(one(db, "SELECT payload_extract(?, 'a')", name))) == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute(f"DROP TABLE {q}")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE tbl_name LIKE "
                "'%_slots'") == []


@pytest.mark.parametrize("name", ["agent_id", "SEQ", "value", "timestamp",
                                  "size_bytes", "event_id", "Request_Body",
                                  "response_body"])
def test_names_of_columns_are_refused(db, name):
    with pytest.raises(sqlite3.OperationalError, match="has a column of that name"):
        db.execute(f"CREATE VIRTUAL TABLE {name} USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "a")
    with pytest.raises(sqlite3.DatabaseError):
        db.execute(f"ALTER TABLE ring RENAME TO {name}")
    push(db, "a")
    assert one(db, "SELECT count(*) FROM ring") == 2
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_rename_that_is_rolled_back_leaves_the_transaction_whole(ring):
    push(ring, "a", "e0", request="x" * 3000)
    ring.execute("BEGIN")
    push(ring, "a", "e1", request="y" * 3000)
    ring.execute("SAVEPOINT s")
    ring.execute("DELETE FROM ring WHERE event_id = 'e0'")
    ring.execute("ALTER TABLE ring RENAME TO tape")
    ring.execute("ROLLBACK TO s")
    ring.execute("DELETE FROM ring WHERE event_id = 'e0'")
    ring.execute("COMMIT")
    push(ring, "a", "e2")
    assert rows(ring, "SELECT event_id FROM ring") == [("e1",), ("e2",)]
    assert rows(ring, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("name", ["the 'other'", "n@me", "main.x", '"%w"'])
def test_rename_to_and_back_then_a_new_ring_under_the_old_name(ring, name):
    other = quoted(name)
    for i in range(4):
        push(ring, "a", f"e{i}")
    ring.execute(f"ALTER TABLE ring RENAME TO {other}")
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError"):
        ring.execute("SELECT payload_extract('ring', 'a')")
    push(ring, "a", "e4", ring=other)
    ring.execute(f"ALTER TABLE {other} RENAME TO ring")
    push(ring, "a", "e5")
    assert [r[0] for r in rows(ring, "SELECT event_id FROM ring")] \
        == ["e3", "e4", "e5"]
    ring.execute(f"ALTER TABLE ring RENAME TO {other}")
    ring.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=1)")
    push(ring, "a", "new")
    push(ring, "a", "e6", ring=other)
    ring.execute(f"INSERT INTO {other}({other}, value) VALUES('window', 2)")
    assert rows(ring, "SELECT event_id FROM ring") == [("new",)]
    assert rows(ring, f"SELECT event_id FROM {other}") == [("e5",), ("e6",)]
    assert one(ring, "SELECT payload_kill_switch(?, 'a', 'k')", name) == 2
    assert one(ring, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_rename_and_drop_roll_back(ring):
    push(ring, "a", "e1")
    before = rows(ring, "SELECT name, sql FROM sqlite_schema")
    for change in ("ALTER TABLE ring RENAME TO r2", "DROP TABLE ring"):
        ring.execute("BEGIN")
        push(ring, "a", "lost")
        ring.execute(change)
        ring.execute("ROLLBACK")
        push(ring, "b", change[:4])
        assert rows(ring, "SELECT name, sql FROM sqlite_schema") == before
    assert [r[1] for r in rows(ring, "SELECT * FROM ring")] == ["e1", "ALTE", "DROP"]
    assert rows(ring, "SELECT * FROM blackbox_check") == []


def test_rename_seen_by_another_connection(ring, path):
    other = connect(path)
    push(other, "a", "e1")
    ring.execute("ALTER TABLE ring RENAME TO r2")
    push(other, "a", "e2", ring="r2")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        push(other, "a")
    push(ring, "a", "e3", ring="r2")
    assert one(other, "SELECT payload_kill_switch('r2', 'a', 'k')") == 3


def test_drop_and_recreate_seen_by_another_connection(ring, path):
    other = connect(path)
    push(other, "a", "old")
    ring.execute("DROP TABLE ring")
    ring.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=1)")
    push(ring, "a", "new")
    assert rows(other, "SELECT event_id, seq FROM ring") == [("new", 1)]
    push(other, "a", "newer")
    assert rows(ring, "SELECT event_id, seq FROM ring") == [("newer", 2)]


def test_window_changed_on_another_connection_holds_at_once(ring, path):
    other = connect(path)
    for i in range(3):
        push(other, "a", f"e{i}")
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 2)")
    push(other, "a", "e3")
    assert rows(other, "SELECT event_id FROM ring") == [("e2",), ("e3",)]
    ring.execute("INSERT INTO ring(ring, value) VALUES('window', 4)")
    for i in (4, 5, 6):
        push(other, "a", f"e{i}")
    assert [r[0] for r in rows(ring, "SELECT event_id FROM ring")] \
        == ["e3", "e4", "e5", "e6"]


def test_the_names_of_the_tables_of_a_ring_are_reserved(ring):
    with pytest.raises(sqlite3.OperationalError):
        ring.execute("CREATE TABLE ring_slots(x)")
    ring.execute("CREATE TABLE r2_agents(x)")
    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        ring.execute("CREATE VIRTUAL TABLE r2 USING payload_ring")
    assert rows(ring, "SELECT name FROM sqlite_schema WHERE name LIKE 'r2%'") \
        == [("r2_agents",)]


def copies(db, path, tmp_path):
    """Copies of the file: by VACUUM INTO, by the backup API, and of the file itself."""
    db.execute("VACUUM INTO ?", (str(tmp_path / "vacuum.db"),))
    with sqlite3.connect(tmp_path / "backup.db") as target:
        db.backup(target)
    target.close()
    db.close()
    (tmp_path / "plain.db").write_bytes(path.read_bytes())
    return [tmp_path / f"{name}.db" for name in ("vacuum", "backup", "plain")]


def test_a_copy_of_the_file_continues_the_ring(ring, path, tmp_path):
    model = Model(3)
    for i in range(5):
        push(ring, "a", f"e{i}")
        model.push("a", f"e{i}", "q", "r", 1000)
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError"):
        one(ring, "SELECT payload_kill_switch('ring', 'none', 'k')")
    for copy in copies(ring, path, tmp_path):
        db, its = connect(copy), model.copy()
        same(db, its)
        push(db, "a", "next")
        its.push("a", "next", "q", "r", 1000)
        same(db, its)
        assert rows(db, "SELECT * FROM blackbox_check") == []
        db.close()


def test_vacuum_keeps_the_ring(ring):
    for i in range(5):
        push(ring, "a", f"e{i}")
    before = rows(ring, "SELECT rowid, * FROM ring")
    ring.execute("VACUUM")
    assert rows(ring, "SELECT rowid, * FROM ring") == before
    push(ring, "a")
    assert rows(ring, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("module", ["", ".load ./blackbox\n"])
def test_dump_and_restore(ring, path, tmp_path, module):
    for i in range(5):
        push(ring, "o'c\n", f"e{i}", "é" * i, b"\xff\0")
    before = rows(ring, f"SELECT rowid, {ALL} FROM ring")
    dump = shell("-batch", path, stdin=module + ".dump")
    assert "ring_slots" in dump
    copy = tmp_path / "copy.db"
    assert shell("-batch", copy, stdin=module + dump) == ""
    db = connect(copy)
    assert rows(db, f"SELECT rowid, {ALL} FROM ring") == before
    push(db, "o'c\n", "next")
    assert agents(db) == [("o'c\n", 6, 3, 0, 0, 3, len("é".encode()) * 7 + 4 + 2)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


# ---- commands


@pytest.mark.parametrize(
    "value, shown",
    [(0, "0"), (-1, "-1"), ("many", "'many'"), ("5", "'5'"), (2 ** 40, str(2 ** 40)),
     (10001, "10001"), (1.5, "1.5"), (None, "NULL"), (b"5", "a blob of 1 bytes")])
def test_the_window_command_refuses_bad_values(ring, value, shown):
    push(ring, "a")
    with pytest.raises(sqlite3.IntegrityError,
                       match=f"window must be a whole number from 1 to 10000, got {shown}"):
        ring.execute("INSERT INTO ring(ring, value) VALUES('window', ?)", (value,))
    assert one(ring, "SELECT body FROM ring_texts WHERE id = -1") == 3


@pytest.mark.parametrize(
    "argument, message",
    [("window=0", "got 0"), ("window=-3", "got -3"), ("window='many'", "got many"),
     ("window=1099511627776", "got 1099511627776"), ("window=10001", "1 to 10000"),
     ("window=", "got"), ("window='5x'", "got 5x"), ("window=1.5", "got 1.5"),
     ("size=5", "no argument size"), ("5", "must have the form name=value"),
     ("window=99999999999999999999999999999999", "window|name=value")])
def test_create_refuses_bad_parameters(db, argument, message):
    with pytest.raises(sqlite3.OperationalError, match="ValidationError.*" + message):
        db.execute(f"CREATE VIRTUAL TABLE ring USING payload_ring({argument})")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name LIKE 'ring%'") == []


@pytest.mark.parametrize(
    "command, message",
    [("shrink", "unknown command 'shrink'"), ("", "not empty"), (b"window", "blob"),
     (7, "unknown command '7'"), ("x" * 200, "at most 100 bytes")])
def test_unknown_commands_are_refused(ring, command, message):
    with pytest.raises(sqlite3.Error, match=message):
        ring.execute("INSERT INTO ring(ring, value) VALUES(?, 1)", (command,))


def test_command_in_any_case_changes_no_row(ring):
    push(ring, "a")
    ring.execute("INSERT INTO ring(ring, value) VALUES('WINDOW', 1)")
    assert agents(ring) == [("a", 1, 0, 0, 0, 1, 2)]
    assert rows(ring, "SELECT ring, value FROM ring") == [(None, None)]


def test_extract_returns_the_rows_as_json_and_empties_the_ring(ring):
    assert one(ring, "SELECT payload_extract('ring', 'nobody')") == "[]"
    for i in range(4):
        push(ring, "a", f"e{i}", "é\"", None, i)
    push(ring, "b")
    text = one(ring, "SELECT payload_extract('ring', 'a')")
    assert extracted(text) == [(f"e{i}", 'é"', None, i) for i in (1, 2, 3)]
    assert one(ring, "SELECT json_array(payload_extract('ring', 'b'))") \
        .startswith('[[{"eventId"')
    assert one(ring, "SELECT payload_extract('ring', 'a')") == "[]"
    assert agents(ring) == [("a", 4, 1, 3, 0, 0, 0), ("b", 1, 0, 1, 0, 0, 0)]


def test_extract_of_blob_bodies_fails_and_keeps_them(ring):
    push(ring, "a", "e", b"\xff", "r")
    with pytest.raises(sqlite3.IntegrityError, match="request_body of event e .seq 1."):
        ring.execute("SELECT payload_extract('ring', 'a')")
    assert rows(ring, "SELECT request_body FROM ring") == [(b"\xff",)]
    assert agents(ring) == [("a", 1, 0, 0, 0, 1, 2)]


def test_extract_as_a_row_is_refused(ring):
    push(ring, "a")
    with pytest.raises(sqlite3.Error, match="MisuseError"):
        ring.execute("INSERT INTO blackbox_call(command, arguments) "
                     "VALUES('payload_extract', '[\"ring\", \"a\"]')")
    assert one(ring, "SELECT count(*) FROM ring") == 1


def test_a_utf16_database_is_refused(tmp_path):
    db = connect(tmp_path / "u.db")
    db.execute("PRAGMA encoding='UTF-16le'")
    db.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.OperationalError, match="EncodingError"):
        db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    assert rows(db, "SELECT name FROM sqlite_schema") == [("t",)]


def test_the_smallest_and_the_largest_window_work(db):
    db.execute("CREATE VIRTUAL TABLE one USING payload_ring(window=1)")
    db.execute("CREATE VIRTUAL TABLE most USING payload_ring(window=10000)")
    for ring in ("one", "most"):
        db.execute(f"WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n "
                   f"WHERE i < 10007) INSERT INTO {ring}(agent_id, event_id) "
                   "SELECT 'a', i FROM n")
    assert rows(db, "SELECT event_id, seq FROM one") == [("10007", 10007)]
    assert rows(db, "SELECT count(*), min(seq), max(seq) FROM most") \
        == [(10000, 8, 10007)]
    assert one(db, "SELECT group_concat(seq) = (SELECT group_concat(seq) FROM "
               "(SELECT seq FROM most_slots ORDER BY seq)) FROM "
               "(SELECT seq FROM most WHERE agent_id = 'a' ORDER BY seq)") == 1


