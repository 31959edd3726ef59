"""The virtual table: inserting, reading and changing rows, in every kind of buffer."""
import json
import sqlite3
import threading
import time

import pytest

from conftest import ROOT, by_hand, connect, one, rows, shell
from evidence_helpers import ADD, MAKE, rec, well



def test_store_read_size_and_storage(rec):
    rec.execute(ADD, ("a", 5, '{"é":1}', b"12345"))
    assert rows(rec, "SELECT * FROM rec") == [
        ("a", 5, '{"é":1}', b"12345", 8 + 5 + 100, 0, 0, "disk")]
    well(rec)


def test_id_and_timestamp_come_from_the_action_of_either_shape(rec):
    rec.execute("INSERT INTO rec(action) VALUES('{\"id\":\"x\",\"timestamp\":7}')")
    rec.execute("INSERT INTO rec(action, timestamp) VALUES('{\"actionId\":\"y\"}', 8)")
    before = int(time.time() * 1000) - 1
    rec.execute("INSERT INTO rec(id, action) VALUES('z', '{}')")
    assert rows(rec, "SELECT id, timestamp FROM rec WHERE id <> 'z'") == [
        ("x", 7), ("y", 8)]
    assert one(rec, "SELECT timestamp FROM rec WHERE id = 'z'") >= before


@pytest.mark.parametrize("schema", ["main", 'a "b', "temp"])
def test_in_every_schema_with_quoted_names(path, tmp_path, schema):
    db = connect(path)
    if schema.startswith("a"):
        db.execute("ATTACH ? AS \"a \"\"b\"", (str(tmp_path / "b.db"),))
    quoted = '"' + schema.replace('"', '""') + '"'
    table = quoted + '."my ""rec"'
    db.execute(f"CREATE VIRTUAL TABLE {table} USING evidence_buffer")
    for begin, end in [(None, None), ("BEGIN", "COMMIT"), ("BEGIN", "ROLLBACK")]:
        if begin:
            db.execute(begin)
        for i in range(3):
            db.execute(f"INSERT INTO {table}(action, screenshot) VALUES(?, x'01')",
                       (json.dumps({"id": f"{begin}{end}{i}", "timestamp": i}),))
        if end:
            db.execute(end)
    assert one(db, f"SELECT count(*) FROM {table}") == 6
    stats = json.loads(one(db, "SELECT evidence_stats(?)", schema + '.my "rec'))
    assert stats["actionCount"] == 6 and stats["screenshotCount"] == 6
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute(f'ALTER TABLE {table} RENAME TO "new ""name"')
    db.execute(f'DELETE FROM {quoted}."new ""name" WHERE timestamp = 0')
    assert json.loads(one(db, "SELECT evidence_stats('new \"name')"))["actionCount"] == 4
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute(f"CREATE VIRTUAL TABLE {table} USING evidence_buffer")
    db.execute(f'DROP TABLE {quoted}."new ""name"')
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute(f"DROP TABLE {table}")
    assert one(db, f"SELECT count(*) FROM {quoted}.sqlite_schema "
                   f"WHERE name LIKE 'my%rec%'") == 0


def test_memory_database_says_memory():
    db = connect()
    db.execute(MAKE)
    db.execute(ADD, ("a", 1, "{}", None))
    assert one(db, "SELECT storage FROM rec") == "memory"


def test_transactions_and_savepoints_are_exact(rec):
    rec.execute(ADD, ("a", 1, "{}", b"1"))
    before = rows(rec, "SELECT * FROM rec")
    for undo in ("ROLLBACK", "ROLLBACK TO s"):
        rec.execute("BEGIN")
        rec.execute("SAVEPOINT s")
        rec.execute(ADD, ("b", 2, "{}", b"2"))
        rec.execute("UPDATE rec SET screenshot = x'0102' WHERE id = 'a'")
        rec.execute("DELETE FROM rec WHERE id = 'a'")
        rec.execute("INSERT INTO rec(rec, value) VALUES('max_size_bytes', 5000)")
        rec.execute(undo)
        if rec.in_transaction:
            rec.execute("COMMIT")
        assert rows(rec, "SELECT * FROM rec") == before
        assert one(rec, "SELECT max_size_bytes FROM rec_state") == 73400320
        well(rec)


@pytest.mark.parametrize("recursive", [0, 1])
@pytest.mark.parametrize("begin", [False, True])
def test_duplicate_ids_under_every_conflict_clause(rec, recursive, begin):
    rec.execute(f"PRAGMA recursive_triggers = {recursive}")
    rec.execute(ADD, ("a", 1, '{"v":1}', b"shot"))
    if begin:
        rec.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="DuplicateError.*'a'.*REPLACE"):
        rec.execute(ADD, ("a", 2, '{"v":2}', None))
    rec.execute(ADD.replace("INSERT", "INSERT OR IGNORE"), ("a", 2, '{"v":2}', None))
    assert rows(rec, "SELECT timestamp, action, screenshot FROM rec") == [
        (1, '{"v":1}', b"shot")]
    well(rec)
    rec.execute(ADD.replace("INSERT", "INSERT OR REPLACE"), ("a", 3, '{"v":3}', None))
    assert rows(rec, "SELECT timestamp, action, screenshot FROM rec") == [
        (3, '{"v":3}', None)]
    rec.execute(ADD.replace("INSERT", "REPLACE"), ("a", 4, '{"v":44}', b"new shot"))
    assert rows(rec, "SELECT size_bytes, screenshot FROM rec") == [
        (8 + 8 + 100, b"new shot")]
    well(rec)
    with pytest.raises(sqlite3.OperationalError, match="UPSERT"):
        rec.execute("INSERT INTO rec(id, action) VALUES('a', '{}') "
                    "ON CONFLICT(id) DO UPDATE SET action = '{}'")


def test_update_of_one_column_leaves_the_others(rec):
    rec.execute(ADD, ("a", 1, '{"v":1}', b"shot"))
    rec.execute("UPDATE rec SET screenshot = x'aabb' WHERE id = 'a'")
    rec.execute("UPDATE rec SET timestamp = timestamp + 9 WHERE id = 'a'")
    assert rows(rec, "SELECT timestamp, action, screenshot, size_bytes FROM rec") == [
        (10, '{"v":1}', b"\xaa\xbb", 7 + 2 + 100)]
    rec.execute("UPDATE rec SET screenshot = NULL")
    rec.execute("UPDATE rec SET action = '{\"long\":\"text\"}'")
    assert rows(rec, "SELECT action, screenshot, size_bytes FROM rec") == [
        ('{"long":"text"}', None, 15 + 100)]
    assert rec.execute("UPDATE rec SET pinned = 1 WHERE id = 'none'").rowcount == 0
    well(rec)


def test_pushed_down_reads_say_so_and_are_right(rec):
    for i in range(50):
        rec.execute(ADD, (f"a{i}", i // 2, "{}", None))
    for where, plan in [
        ("id = 'a7'", "id=?"), ("rowid = 8", "rowid=?"),
        ("timestamp BETWEEN 3 AND 5", "timestamp>=? timestamp<=?"),
        ("timestamp > 3 AND timestamp < 6", "timestamp>? timestamp<?"),
        ("timestamp = 3", "timestamp=?"), ("timestamp >= 22", "timestamp>=?"),
        ("timestamp <= 2.5", "timestamp<=?"), ("timestamp < '2'", "timestamp<?"),
        ("id = 'a7' AND timestamp > 100", "id=?"),
        ("id IN ('a3', 'a4', 'nope')", "id=?"),
    ]:
        sql = f"SELECT id FROM rec WHERE {where} ORDER BY timestamp, id"
        shown = " ".join(r[3] for r in rows(rec, "EXPLAIN QUERY PLAN " + sql))
        assert plan in shown
        assert rows(rec, sql) == rows(
            rec, f"SELECT id FROM rec_rows WHERE {where.replace('rowid', 'rid')} "
                 "ORDER BY timestamp, id")
    sql = "SELECT timestamp FROM rec WHERE timestamp >= 10 ORDER BY timestamp DESC"
    shown = " ".join(r[3] for r in rows(rec, "EXPLAIN QUERY PLAN " + sql))
    assert "ORDER BY timestamp DESC" in shown and "TEMP B-TREE" not in shown
    assert rows(rec, sql) == sorted(rows(rec, sql), reverse=True)
    assert rows(rec, "SELECT id FROM rec WHERE id = 'A7'") == []
    assert rows(rec, "SELECT id FROM rec WHERE id = 'A7' COLLATE NOCASE") == [("a7",)]
    assert rows(rec, "SELECT id FROM rec WHERE timestamp = NULL") == []


def test_screenshot_and_action_are_not_read_unless_asked_for(rec, path):
    rec.execute(ADD, ("a", 1, "{}", b"x"))
    by_hand(path, "DROP TABLE rec_shots")
    assert rows(rec, "SELECT id, action FROM rec") == [("a", "{}")]
    with pytest.raises(sqlite3.OperationalError, match="rec_shots"):
        rows(rec, "SELECT screenshot FROM rec")
    by_hand(path, "DROP TABLE rec_actions")
    assert rows(rec, "SELECT id, timestamp, size_bytes FROM rec") == [("a", 1, 103)]


def test_an_update_reads_no_column_that_it_does_not_set(rec, path):
    rec.execute(ADD, ("a", 1, "{}", b"x"))
    by_hand(path, "UPDATE rec_actions SET action = 'damaged'")
    rec.execute("UPDATE rec SET screenshot = x'0203' WHERE id = 'a'")
    assert rows(rec, "SELECT screenshot FROM rec") == [(b"\2\3",)]


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("values, message", [
    ((None, 1, "{}", None), "id.*must be text, got NULL"),
    (("", 1, "{}", None), "id.*not empty"),
    ((b"x", 1, "{}", None), "id.*must be text"),
    (("i" * 1001, 1, "{}", None), "at most 1000 bytes"),
    (("x", "soon", "{}", None), "timestamp must be a time.*'soon'"),
    (("x", 1.5, "{}", None), "timestamp must be a time.*1.5"),
    (("x", -1, "{}", None), "timestamp must be"),
    (("x", None, '{"timestamp":"late"}', None), "timestamp must be.*'late'"),
    (("x", None, '{"timestamp":true}', None), "timestamp must be.*'true'"),
    (("x", None, '{"timestamp":[1]}', None), "timestamp must be"),
    ((None, 1, '{"id":true}', None), "id.*must be text, got NULL"),
    ((None, 1, '{"id":{"a":1}}', None), "id.*must be text, got NULL"),
    ((None, 1, '{"id":"a\\u0000b"}', None), "id.*without a NUL character"),
    ((None, 1, '{"actionId":"\\u0000"}', None), "id.*without a NUL character"),
    (("x", 1, None, None), "action must be a JSON object.*NULL"),
    (("x", 1, "", None), "action must be"),
    (("x", 1, "not json", None), "action must be a JSON object.*'not json'"),
    (("x", 1, "{'a':1}", None), "action must be a JSON object"),
    (("x", 1, "[1]", None), "action must be a JSON object"),
    (("x", 1, '{"a":1', None), "action must be a JSON object"),
    (("x", 1, '{"a":1} x', None), "action must be a JSON object"),
    (("x", 1, b"{}", None), "action must be a JSON object.*blob of 2"),
    ((None, None, "{oops", None), "action must be a JSON object"),
    (("x", 1, "{}", "text"), "screenshot must be a blob.*'text'"),
    (("x", 1, "{}", b""), "screenshot must be a blob that is not empty"),
    (("x", 1, "{}", 5), "screenshot must be a blob"),
])
def test_bad_input_is_refused_and_changes_nothing(rec, begin, values, message):
    rec.execute(ADD, ("a", 1, '{"v":1}', b"shot"))
    if begin:
        rec.execute("BEGIN")
    before = rows(rec, "SELECT * FROM rec")
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*" + message):
        rec.execute(ADD, values)
    assert rows(rec, "SELECT * FROM rec") == before
    assert rec.in_transaction == begin
    well(rec)


@pytest.mark.parametrize("sql, message", [
    ("UPDATE rec SET id = 'b'", "id of evidence cannot change"),
    ("UPDATE rec SET rowid = 9", "rowid of evidence cannot change"),
    ("UPDATE rec SET size_bytes = 1", "size_bytes is computed"),
    ("UPDATE rec SET storage = 'x'", "storage is computed"),
    ("UPDATE rec SET action = '[]'", "action must be"),
    ("UPDATE rec SET action = NULL", "action must be"),
    ("UPDATE rec SET timestamp = 'x'", "timestamp must be"),
    ("UPDATE rec SET timestamp = NULL", "timestamp must be"),
    ("UPDATE rec SET screenshot = 'x'", "screenshot must be"),
    ("UPDATE rec SET pinned = 2", "pinned must be"),
    ("INSERT INTO rec(rowid, id, action) VALUES(7, 'b', '{}')", "assigns the rowid"),
    ("INSERT INTO rec(id, action, pruned) VALUES('b', '{}', 1)", "pruned is computed"),
    ("INSERT INTO rec(id, action, pinned) VALUES('b', '{}', 'yes')", "pinned must be"),
    ("UPDATE rec SET value = 5", "a setting is changed without"),
    ("UPDATE rec SET rec = 'max_screenshots', value = 5", "a setting is changed without"),
    ("INSERT INTO rec(id, action, value) VALUES('b', '{}', 5)", "a setting is changed without"),
])
def test_bad_changes_are_refused(rec, sql, message):
    rec.execute(ADD, ("a", 1, "{}", b"shot"))
    for begin in (False, True):
        if begin:
            rec.execute("BEGIN")
        before = rows(rec, "SELECT * FROM rec")
        with pytest.raises(sqlite3.IntegrityError, match=message):
            rec.execute(sql)
        assert rows(rec, "SELECT * FROM rec") == before
    well(rec)


@pytest.mark.parametrize("arguments, message", [
    ("max_size=1", "there is no parameter max_size; the parameters are max_size_bytes"),
    ("max_size_bytes=999", "max_size_bytes must be a whole number from 1000 to 1099511627776, got 999"),
    ("max_size_bytes=1e99", "max_size_bytes must be a whole number.* got 1"),
    ("max_size_bytes=many", "max_size_bytes must be a whole number.* got 'many'"),
    ("prune_threshold=0.05", "prune_threshold must be a number from 0.1 to 1, got 0.05"),
    ("prune_threshold=1.1", "prune_threshold must be a number"),
    ("retention_policy='keep'", "retention_policy must be 'keep-all', 'keep-last-n' .* got 'keep'"),
    ("max_screenshots=-1", "max_screenshots must be a whole number"),
    ("max_screenshots=1.5", "max_screenshots must be a whole number"),
    ("max_size_bytes=", "max_size_bytes has no value"),
    ("retention_policy=''", "retention_policy has no value"),
    ("max_screenshots=1, max_screenshots=2", "max_screenshots occurs twice"),
    ("resume=", "resume has no value"),
    ("nonsense", "name=value"),
    ("overflow='main'", "overflow is for buffers in temp"),
    ("resume='x'", "resume needs overflow"),
])
def test_bad_parameters_name_what_is_allowed(path, arguments, message):
    db = connect(path)
    with pytest.raises(sqlite3.Error, match=message):
        db.execute(f"{MAKE}({arguments})")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name LIKE 'rec%'") == []


def test_parameters_and_commands_are_remembered(path):
    db = connect(path)
    db.execute(MAKE + "(max_size_bytes = 5000, prune_threshold='0.5', "
                      "retention_policy=\"keep-last-n\", max_screenshots=7)")
    db.execute("INSERT INTO rec(rec, value) VALUES('max_screenshots', 20)")
    db.execute("INSERT INTO rec(rec, value) VALUES('PRUNE_THRESHOLD', '0.75')")
    db.close()
    db = connect(path)
    assert rows(db, "SELECT max_size_bytes, prune_threshold, retention_policy, "
                    "max_screenshots FROM rec_state") == [(5000, .75, "keep-last-n", 20)]
    for name, value in [("max_screenshots", "x"), ("nope", 1), ("prune_threshold", 2),
                        ("retention_policy", 5), ("overflow", "main")]:
        with pytest.raises(sqlite3.IntegrityError, match="must be|there are|in temp"):
            db.execute("INSERT INTO rec(rec, value) VALUES(?, ?)", (name, value))
    with pytest.raises(sqlite3.IntegrityError, match="without other columns"):
        db.execute("INSERT INTO rec(rec, value, id) VALUES('max_screenshots', 2, 'x')")


def test_a_buffer_cannot_be_named_like_a_column(path):
    db = connect(path)
    for name in ("id", "VALUE", "storage"):
        with pytest.raises(sqlite3.OperationalError, match="the name of one of its columns"):
            db.execute(f"CREATE VIRTUAL TABLE {name} USING evidence_buffer")
    db.execute(MAKE)
    with pytest.raises(sqlite3.Error):
        db.execute("ALTER TABLE rec RENAME TO action")
    db.execute(ADD, ("a", 1, "{}", None))
    well(db)


def test_utf16_database_is_refused(path):
    db = connect(path)
    db.execute("PRAGMA encoding = 'UTF-16'")
    with pytest.raises(sqlite3.OperationalError, match="EncodingError"):
        db.execute(MAKE)


def test_two_connections_share_a_buffer(rec, path):
    other = connect(path, timeout=5, check_same_thread=False)
    rec.execute(ADD, ("a", 1, "{}", b"1"))
    other.execute(ADD, ("b", 2, "{}", b"2"))
    assert one(rec, "SELECT count(*) FROM rec") == 2
    rec.execute("BEGIN IMMEDIATE")
    rec.execute(ADD, ("c", 3, "{}", None))
    waiting = threading.Thread(target=other.execute, args=(ADD, ("d", 4, "{}", None)))
    waiting.start()
    time.sleep(.2)
    rec.execute("COMMIT")
    waiting.join()
    well(rec)
    other.execute("PRAGMA busy_timeout = 50")
    rec.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute(ADD, ("e", 5, "{}", None))
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT evidence_clear('rec')")
    rec.execute("COMMIT")
    assert one(other, "SELECT count(*) FROM rec") == 4


def test_a_plain_connection_cannot_change_or_remove_what_is_pinned(rec, path):
    rec.execute(ADD, ("a", 1, "{}", b"1"))
    rec.execute("INSERT INTO rec(id, timestamp, action, screenshot, pinned) "
                "VALUES('p', 2, '{}', x'02', 1)")
    before = rows(rec, "SELECT no, action, screenshot FROM evidence__pinned")
    plain = sqlite3.connect(path, isolation_level=None)
    for recursive in (0, 1):
        plain.execute(f"PRAGMA recursive_triggers = {recursive}")
        for sql in [
            "DELETE FROM evidence__pinned",
            "UPDATE evidence__pinned SET action = '{\"x\":1}'",
            "UPDATE evidence__pinned SET screenshot = NULL",
            "UPDATE OR REPLACE evidence__pinned SET no = 7",
            "REPLACE INTO evidence__pinned(no, buffer, id, timestamp) VALUES(1, 'b', 'i', 1)",
            "INSERT INTO evidence__pinned(no, buffer, id, timestamp) VALUES(1, 'b', 'i', 1) "
            "ON CONFLICT DO UPDATE SET action = NULL",
        ]:
            with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
                plain.execute(sql)
    assert rows(plain, "SELECT no, action, screenshot FROM evidence__pinned") == before
    well(rec)


@pytest.mark.parametrize("sql", [
    "DELETE FROM rec_rows WHERE id = 'p'", "UPDATE rec_rows SET pinned = 0 WHERE id = 'p'",
    "UPDATE rec_rows SET screenshot_bytes = 0 WHERE id = 'p'",
    "UPDATE evidence__pinned SET pinned = 0; UPDATE evidence__pinned SET screenshot = NULL",
    "UPDATE evidence__pinned SET buffer = 'other'",
    "UPDATE evidence__pinned SET pinned = 0; DELETE FROM evidence__pinned"])
def test_the_check_finds_what_was_done_to_pinned_evidence(rec, path, sql):
    rec.execute("INSERT INTO rec(id, timestamp, action, screenshot, pinned) "
                "VALUES('p', 2, '{}', x'02', 1)")
    try:
        by_hand(path, sql)
    except sqlite3.IntegrityError as error:
        assert "PinnedError" in str(error)
    assert "pinned" in str(rows(rec, "SELECT problem FROM blackbox_check"))


def test_pins_move_the_evidence_and_back_also_when_it_was_approved(rec):
    rec.execute(ADD, ("a", 1, '{"networkData":[1,2,3]}', b"1"))
    one(rec, "SELECT evidence_prune_for_approval('rec', 1)")
    before = rows(rec, "SELECT * FROM rec")
    rec.execute("UPDATE rec SET pinned = 1")
    assert rows(rec, "SELECT * FROM rec_actions") == rows(rec, "SELECT * FROM rec_shots") == []
    assert rows(rec, "SELECT buffer, id, action FROM evidence__pinned") == [("rec", "a", "{}")]
    rec.execute("ALTER TABLE rec RENAME TO other")
    well(rec, "other")
    assert rows(rec, "SELECT action, screenshot FROM other") == [("{}", b"1")]
    rec.execute("ALTER TABLE other RENAME TO rec")
    rec.execute("UPDATE rec SET pinned = 0")
    assert rows(rec, "SELECT * FROM rec") == before
    assert rows(rec, "SELECT * FROM evidence__pinned") == []
    well(rec)


def test_one_statement_is_the_whole_set_up(path):
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=73400320, "
               "prune_threshold=0.9, retention_policy='keep-all', max_screenshots=50)")
    assert {r[0] for r in rows(db, "SELECT domain FROM blackbox_domains")} >= {"core", "evidence"}
    objects = rows(db, "SELECT name, sql FROM sqlite_schema WHERE name GLOB 'rec*' "
                       "AND type <> 'trigger' AND sql NOT NULL")
    assert len(objects) <= 12
    assert sum(len(sql) for name, sql in objects if name != "rec") <= 1024
    assert rows(db, "SELECT 1 FROM sqlite_schema WHERE type = 'trigger' "
                    "AND tbl_name GLOB 'rec*'") == []
    well(db)


def test_shadow_tables_are_protected_in_defensive_mode(path):
    db = connect(path)
    db.execute(MAKE)
    db.execute(ADD, ("a", 1, "{}", b"1"))
    db.close()
    module = ROOT / "blackbox"
    for table in ("state", "rows", "actions", "shots", "gone", "log"):
        out = shell(path, stdin=f".load {module}\n.dbconfig defensive on\n"
                                f"DELETE FROM rec_{table};\n")
        assert "may not be modified" in out


def test_in_the_shell_with_defensive_mode(path):
    db = connect(path)
    db.execute(MAKE)
    db.execute(ADD, ("a", 1, "{}", b"1"))
    db.close()
    out = shell(path, stdin=f"""
.load {ROOT}/blackbox
.dbconfig defensive on
INSERT INTO rec(id, action, screenshot) VALUES('b', '{{}}', x'02');
UPDATE rec SET screenshot = NULL WHERE id = 'a';
ALTER TABLE rec RENAME TO rec2;
SELECT evidence_prune_for_approval('rec2') ->> 'screenshotsRemoved';
DELETE FROM rec2 WHERE id = 'a';
SELECT count(*) FROM rec2;
CREATE VIRTUAL TABLE temp.t USING evidence_buffer(overflow='main');
INSERT INTO t(id, action) VALUES('b', '{{}}');
SELECT evidence_flush('t');
SELECT * FROM blackbox_check;
DROP TABLE rec2;
""")
    assert out.split() == ["defensive", "on", "1", "1", "1"]


def test_the_buffer_works_with_an_untrusted_schema(rec):
    rec.execute("PRAGMA trusted_schema = OFF")
    rec.execute(ADD, ("a", 1, '{"fallbackChain":{"strategies":[{}]}}', b"1"))
    rec.execute("INSERT INTO rec(rec, value) VALUES('retention_policy', "
                "'confidence-based')")
    one(rec, "SELECT evidence_prune_for_approval('rec')")
    assert one(rec, "SELECT pruned FROM rec") == 1
    well(rec)


def test_newer_or_broken_tables_are_named(rec, path):
    by_hand(path, "UPDATE rec_state SET format = 2")
    with pytest.raises(sqlite3.OperationalError, match="VersionError.*format 2"):
        connect(path).execute("SELECT * FROM rec")
    for sql in ("SELECT evidence_stats('rec')", "SELECT evidence_export('rec')",
                "SELECT * FROM evidence_stats('rec')", "DROP TABLE rec",
                "SELECT evidence_export_puppeteer('rec')",
                "SELECT evidence_export_replay('rec')", "SELECT evidence_prune('rec')",
                "ALTER TABLE rec RENAME TO rec2", "INSERT INTO rec(id, action) VALUES('z', '{}')"):
        with pytest.raises(sqlite3.DatabaseError) as caught:
            rows(connect(path), sql)
        if "TABLE" not in sql:  # here the message comes from SQLite
            assert "VersionError" in str(caught.value)
    assert "VersionError" in str(rows(connect(path), "SELECT * FROM blackbox_check"))
    by_hand(path, "DELETE FROM rec_state")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError.*rec_state"):
        connect(path).execute("SELECT * FROM rec")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError"):
        rec.execute(ADD, ("z", 1, "{}", None))


def test_check_finds_what_was_tampered_with(rec, path):
    rec.execute(ADD, ("a", 1, "{}", b"1"))
    by_hand(path, "UPDATE rec_state SET bytes = 7; DELETE FROM rec_shots")
    by_hand(path, "UPDATE rec_actions SET action = '{oops'")
    found = " ".join(f"{r[1]} {r[2]}" for r in rows(rec, "SELECT * FROM blackbox_check"))
    for word in ("counters differ", "no screenshot", "damaged JSON"):
        assert word in found


def test_damaged_json_is_reported_with_its_id_and_others_stay_readable(rec, path):
    for name in "abc":
        rec.execute(ADD, (name, ord(name), "{}", b"s"))
    by_hand(path, "UPDATE rec_actions SET action = '{oops' WHERE rid = 2")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError.*'b'"):
        rows(rec, "SELECT action FROM rec")
    assert rows(rec, "SELECT id, action FROM rec WHERE id <> 'b'") == [
        ("a", "{}"), ("c", "{}")]
    assert one(rec, "SELECT length(screenshot) FROM rec WHERE id = 'b'") == 1
    rec.execute("UPDATE rec SET action = '{\"new\":1}' WHERE id = 'b'")
    assert one(rec, "SELECT action FROM rec WHERE id = 'b'") == '{"new":1}'
    well(rec)


def test_json_that_is_not_an_object_is_reported_as_damage(rec, path):
    for name in "ab":
        rec.execute(ADD, (name, ord(name), "{}", b"s"))
    by_hand(path, "UPDATE rec_actions SET action = '[5]' WHERE rid = 1")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError.*'a'.*not a JSON object"):
        rows(rec, "SELECT action FROM rec")
    exported = json.loads(one(rec, "SELECT evidence_export('rec')"))
    assert exported["metadata"]["damaged"] == ["a"] and exported["actions"] == [{}]
    assert [p["id"] for p in json.loads(one(
        rec, "SELECT evidence_prune_for_approval('rec')"))["problems"]] == ["a"]
    assert "damaged JSON of 'a'" in str(rows(rec, "SELECT * FROM blackbox_check"))


@pytest.mark.parametrize("repair", [
    "UPDATE rec SET action = '{\"new\":1}' WHERE id = 'b'",
    "INSERT OR REPLACE INTO rec(id, timestamp, action, screenshot) "
    "VALUES ('b', 98, '{\"new\":1}', x'73')"])
def test_a_missing_action_is_named_and_can_be_written_again(rec, path, repair):
    for name in "abc":
        rec.execute(ADD, (name, ord(name), "{}", b"s"))
    by_hand(path, "DELETE FROM rec_actions WHERE rid = 2")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError.*'b'"):
        rows(rec, "SELECT action FROM rec")
    exported = json.loads(one(rec, "SELECT evidence_export('rec')"))
    assert exported["metadata"]["damaged"] == ["b"] and len(exported["actions"]) == 2
    rec.execute(repair)
    assert one(rec, "SELECT action FROM rec WHERE id = 'b'") == '{"new":1}'
    assert one(rec, "SELECT size_bytes FROM rec WHERE id = 'b'") == 110
    well(rec)


def test_drop_is_refused_while_evidence_is_pinned(rec):
    rec.execute("INSERT INTO rec(id, action, pinned) VALUES('p', '{}', 1)")
    with pytest.raises(sqlite3.Error):
        rec.execute("DROP TABLE rec")
    assert one(rec, "SELECT id FROM rec") == "p"
    rec.execute("UPDATE rec SET pinned = 0")
    rec.execute("DROP TABLE rec")
    assert rows(rec, "SELECT name FROM sqlite_schema WHERE name LIKE 'rec%'") == []
    assert rows(rec, "SELECT * FROM evidence__pinned") == []


@pytest.mark.parametrize("begin", [False, True])
def test_pinned_rows_are_not_changed_or_removed(rec, begin):
    rec.execute(ADD, ("a", 1, "{}", b"1"))
    rec.execute("INSERT INTO rec(id, timestamp, action, screenshot, pinned) "
                "VALUES('p', 2, '{}', x'02', 1)")
    if begin:
        rec.execute("BEGIN")
    before = rows(rec, "SELECT * FROM rec")
    for sql in ["DELETE FROM rec WHERE id = 'p'", "DELETE FROM rec",
                "UPDATE rec SET screenshot = NULL WHERE id = 'p'",
                "UPDATE rec SET action = '{\"a\":1}' WHERE id = 'p'",
                "UPDATE rec SET timestamp = 9 WHERE id = 'p'",
                "UPDATE rec SET timestamp = 9",
                "REPLACE INTO rec(id, action) VALUES('p', '{}')"]:
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError.*'p'.*pinned = 0"):
            rec.execute(sql)
        assert rows(rec, "SELECT * FROM rec") == before, sql
    assert one(rec, "SELECT evidence_clear('rec')") == 1
    assert rows(rec, "SELECT id FROM rec") == [("p",)]
    rec.execute("UPDATE rec SET pinned = 0")
    assert one(rec, "SELECT evidence_clear('rec')") == 1
    well(rec)


def test_integer_like_ids_and_odd_text_are_kept(rec):
    rec.execute(ADD, (7, 1, '{"a":1.0e5,  "b":"\\u0000\\ud800" }', None))
    assert rows(rec, "SELECT id, action FROM rec WHERE id = '7'") == [
        ("7", '{"a":1.0e5,  "b":"\\u0000\\ud800" }')]


def test_a_thousand_strategies_are_approved_and_a_row_may_fill_the_buffer(path):
    db = connect(path)
    db.execute(MAKE + "(max_size_bytes=1000000, prune_threshold=1)")
    chain = [{"type": "cdp_power", "confidence": 1, "metadata": {"text": "t"}}] * 1000
    db.execute(ADD, ("a", 1, json.dumps({"fallbackChain": {"strategies": chain}}), None))
    done = json.loads(one(db, "SELECT evidence_prune_for_approval('rec')"))
    assert done["problems"] == []
    kept = json.loads(one(db, "SELECT action FROM rec"))
    assert kept["fallbackChain"]["strategies"] == chain
    one(db, "SELECT evidence_clear('rec')")
    exact = 1_000_000 - 100 - 2  # the buffer
    db.execute(ADD, ("b", 2, "{}", bytes(exact)))
    assert one(db, "SELECT capacity_used FROM evidence_stats('rec')") == 1
    for begin in (False, True):
        if begin:
            db.execute("BEGIN")
        with pytest.raises(sqlite3.DataError, match="DataTooLargeError.*1000001.*1000000"):
            db.execute(ADD, ("c", 3, "{}", bytes(exact + 1)))
        assert one(db, "SELECT id FROM rec") == "b"
    well(db)


def test_stats_list_every_buffer_by_its_name(rec, path):
    other = connect(path)
    rows(other, "SELECT * FROM rec")
    rec.execute("BEGIN")
    rec.execute("ALTER TABLE rec RENAME TO r2")
    rec.execute("ROLLBACK")
    assert rows(rec, "SELECT buffer FROM evidence_stats") == [("rec",)]
    rec.execute("ALTER TABLE rec RENAME TO r2")
    rec.execute("CREATE VIRTUAL TABLE r3 USING evidence_buffer")
    for db in (rec, other):
        assert sorted(rows(db, "SELECT buffer FROM evidence_stats")) == [("r2",), ("r3",)]
    rec.execute("DROP TABLE r3")
    rec.execute("CREATE VIRTUAL TABLE r3 USING evidence_buffer")
    assert sorted(rows(other, "SELECT buffer FROM evidence_stats")) == [("r2",), ("r3",)]
    other.close()



def test_an_update_may_write_the_id_that_is_there(rec):
    rec.execute(ADD, ("a", 1, "{}", None))
    rec.execute("UPDATE rec SET id = id, timestamp = 2")
    rec.execute("UPDATE rec SET id = 'a', pinned = 1 WHERE id = 'a'")
    assert rows(rec, "SELECT id, timestamp, pinned FROM rec") == [("a", 2, 1)]
    with pytest.raises(sqlite3.IntegrityError, match="id of evidence cannot change"):
        rec.execute("UPDATE rec SET id = NULL")


def test_stats_list_buffers_also_with_case_sensitive_like(path):
    connect(path).execute(MAKE)
    db = connect(path)
    db.execute("PRAGMA case_sensitive_like = 1")
    assert rows(db, "SELECT buffer FROM evidence_stats") == [("rec",)]


@pytest.mark.parametrize("schema, home", [("main", "main"), ("other", "other"), ("temp", "main")])
def test_create_installs_the_domain_in_its_schema(path, tmp_path, schema, home):
    db = connect(path)
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    domains = f"SELECT group_concat(domain, ' ') FROM {home}.blackbox_domains"
    for end in "ROLLBACK", "COMMIT":
        db.execute("BEGIN")
        db.execute(f"CREATE VIRTUAL TABLE {schema}.rec USING evidence_buffer")
        assert {"core", "evidence"} <= set(one(db, domains).split())
        db.execute(ADD, ("p", 1, "{}", b"1"))
        db.execute("UPDATE rec SET pinned = 1")
        db.execute(end)
        if end == "ROLLBACK":
            assert rows(db, f"SELECT * FROM {home}.sqlite_schema") == []
    for name in {"main", "other"} - {home}:
        assert rows(db, f"SELECT * FROM {name}.sqlite_schema") == []
    kept = [] if schema == "temp" else [("rec", "p", "{}")]
    assert rows(db, f"SELECT buffer, id, action FROM {home}.evidence__pinned") == kept
    assert rows(db, "SELECT action, screenshot FROM rec") == [("{}", b"1")]
    well(db)
    for name in "rec_", "evidence", "payload_ring", "blackbox_x":
        with pytest.raises(sqlite3.Error, match="ValidationError"):
            db.execute(f'CREATE VIRTUAL TABLE {schema}."{name}" USING evidence_buffer')
        with pytest.raises(sqlite3.Error):
            db.execute(f'ALTER TABLE {schema}.rec RENAME TO "{name}"')


def test_a_buffer_in_temp_can_be_made_over_a_file_that_is_read_only(path):
    sqlite3.connect(path).execute("CREATE TABLE t(x)")
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(ROOT / "blackbox"))
    db.execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer")
    db.execute(ADD, ("a", 1, "{}", b"1"))
    assert rows(db, "SELECT id FROM rec") == [("a",)]
