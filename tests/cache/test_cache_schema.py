"""The rules of sql/cache.sql, on connections without the module."""
import os
import random
import re
import sqlite3
import time

import pytest

from cache_helpers import (A, B, C, T0, TASKS, exact, key, pdb, put, schema, setting, text,
                           used)
from conftest import cache_faults, one, rows, shell

Refused = sqlite3.IntegrityError


# ------------------------------------------------------------ exactness ----

HOWS = ["INSERT", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL",
        "INSERT OR ABORT", "INSERT OR ROLLBACK", "REPLACE"]
UPDATES = ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR FAIL"]


def random_statement(rnd):
    session, task = rnd.choice([A, B, C]), rnd.choice(TASKS)
    size = rnd.choice([3, 10, 40, 200, 900])
    pick = rnd.random()
    if pick < 0.4:
        rest = ""
        how = rnd.choice(HOWS)
        if how == "INSERT" and rnd.random() < 0.6:
            rest = rnd.choice([
                "ON CONFLICT(storage_key) DO UPDATE SET data = excluded.data",
                "ON CONFLICT DO NOTHING",
                "ON CONFLICT(storage_key) DO UPDATE SET task_id = 'task0009'",
                "ON CONFLICT(storage_key) DO UPDATE SET data = '1', custom_metadata = '{}'",
            ])
        return (
            f"{how} INTO cache_items(session_id, task_id, turn_id, description,"
            f" timestamp, data) VALUES(?,?,'turn0000','d',?,?),"
            f"(?,?,'turn0000','d',?,?) {rest}",
            (session, task, T0 + rnd.randrange(99), text(size),
             rnd.choice([A, B, C]), rnd.choice(TASKS), T0, text(size + 1)),
        )
    if pick < 0.7:
        column, value = rnd.choice([
            ("data", text(size)), ("task_id", rnd.choice(TASKS)),
            ("session_id", rnd.choice([A, B])), ("description", "other"),
            ("id", rnd.randrange(1, 9)), ("rowid", rnd.randrange(1, 9)),
        ])
        return (
            f"{rnd.choice(UPDATES)} cache_items SET {column} = ?"
            " WHERE session_id = ? AND task_id >= ?",
            (value, session, task),
        )
    if pick < 0.8:
        return (
            "INSERT OR REPLACE INTO cache_items(id, session_id, task_id, turn_id,"
            " description, timestamp, data) VALUES(?,?,?,'turn0000','d',?,?)",
            (rnd.choice([1, 2, 3, 4, -1, 0]), session, task, T0, text(size)),
        )
    if pick < 0.95:
        return ("DELETE FROM cache_items WHERE task_id = ?", (task,))
    return ("DELETE FROM cache_sessions WHERE session_id = ?", (session,))


@pytest.mark.parametrize("on_quota", ["reject", "evict_oldest"])
def test_totals_are_exact_after_any_statement(pdb, on_quota):
    rnd = random.Random(on_quota)
    setting(pdb, "session_quota_bytes", 1500)
    setting(pdb, "total_quota_bytes", 3000)
    setting(pdb, "on_quota", on_quota)
    done = refused = 0
    for step in range(6000 if os.environ.get("BLACKBOX_FULL") else 350):
        inside = rnd.random() < 0.3 and not pdb.in_transaction
        if inside:
            pdb.execute("BEGIN")
        try:
            pdb.execute(*random_statement(rnd))
            done += 1
        except Refused:
            refused += 1
        exact(pdb)
        if pdb.in_transaction and not inside and rnd.random() < 0.5:
            pdb.execute(rnd.choice(["COMMIT", "ROLLBACK"]))
            exact(pdb)
        assert max([r[0] for r in pdb.execute(
            "SELECT total_size FROM cache_sessions")], default=0) <= 1500
        assert one(pdb, "SELECT coalesce(sum(total_size), 0) FROM cache_sessions") <= 3000
    assert done > 120 and refused > 15


def test_replace_by_id_and_by_key_and_update_or_replace(pdb):
    put(pdb, A, "task0001", text(100))
    put(pdb, A, "task0002", text(50))
    put(pdb, A, "task0001", text(70), how="REPLACE")
    exact(pdb)
    assert one(pdb, "SELECT total_size FROM cache_sessions") == 120
    for identity in (1, 2, 3, 99, -1, 0, -5):
        with pytest.raises(Refused, match="ValidationError: id is assigned|id > 0$"):
            pdb.execute(
                "REPLACE INTO cache_items(id, session_id, task_id, turn_id,"
                " description, data) VALUES(?,?,'task0003','turn0000','d','1')",
                (identity, B))
    exact(pdb)
    for clause in UPDATES:
        update = f"{clause} cache_items SET task_id = 'task0001' WHERE task_id = 'task0002'"
        if "IGNORE" in clause:
            pdb.execute(update)
        else:
            with pytest.raises(Refused, match="UNIQUE|key of an item cannot change"):
                pdb.execute(update)
        exact(pdb)
    assert rows(pdb, "SELECT task_id, data_size FROM cache_items ORDER BY 1") == [
        ("task0001", 70), ("task0002", 50)]


def test_upsert_keeps_created_at_and_moves_last_accessed(pdb):
    put(pdb, A, "task0001", text(10), now=T0)
    put(pdb, A, "task0001", text(30), now=T0 + 5, rest="ON CONFLICT(storage_key)"
        " DO UPDATE SET data = excluded.data, timestamp = excluded.timestamp")
    assert rows(pdb, "SELECT total_size, item_count, created_at, last_accessed_at"
                " FROM cache_sessions") == [(30, 1, T0, T0 + 5)]
    put(pdb, A, "task0002", text(10), now=T0 - 1000)
    assert rows(pdb, "SELECT created_at, last_accessed_at FROM cache_sessions") == [
        (T0, T0 + 5)]


def test_totals_cannot_be_written(pdb):
    put(pdb, A, "task0001", text(10))
    for statement in ("UPDATE cache_sessions SET total_size = 0",
                      "UPDATE cache_sessions SET item_count = 0",
                      "INSERT INTO cache_sessions(session_id, total_size) VALUES('x', 1)",
                      "UPDATE cache_items SET data_size = 1",
                      "UPDATE cache_items SET storage_key = 'x'"):
        with pytest.raises(sqlite3.OperationalError, match="generated column"):
            pdb.execute(statement)
    with pytest.raises(Refused, match="totals cannot be set"):
        pdb.execute("INSERT INTO cache_sessions(session_id, kept_size) VALUES(?, 5)", (B,))
    exact(pdb)


def test_replacing_a_session_row_keeps_totals_exact(pdb):
    put(pdb, A, "task0001", text(10))
    try:
        pdb.execute("REPLACE INTO cache_sessions(session_id) VALUES(?)", (A,))
        assert one(pdb, "PRAGMA recursive_triggers") == 1
        assert one(pdb, "SELECT count(*) FROM cache_items") == 0
        assert one(pdb, "SELECT rows FROM retention_log WHERE rule = 'clear'") == 1
    except Refused as error:
        assert "a session that has items cannot be replaced" in str(error)
        assert one(pdb, "SELECT count(*) FROM cache_items") == 1
    exact(pdb)


def test_a_session_row_may_be_made_at_this_millisecond(pdb):
    for i in range(3):
        pdb.execute("INSERT INTO cache_sessions(session_id, created_at) VALUES(?, ?)",
                    (A[:-1] + str(i), time.time_ns() // 1000000))


def test_session_row_marks_access_and_never_goes_back(pdb):
    put(pdb, A, "task0001", "1", now=T0)
    touch = "UPDATE cache_sessions SET last_accessed_at = ?"
    pdb.execute(touch, (T0 + 100,))
    pdb.execute(touch, (T0 + 50,))
    assert one(pdb, "SELECT last_accessed_at FROM cache_sessions") == T0 + 100
    for bad in ("soon", 10**18, b"x"):
        with pytest.raises(Refused, match="ValidationError: created_at and last_accessed_at"):
            pdb.execute(touch, (bad,))
    with pytest.raises(Refused, match="ValidationError: created_at and last_accessed_at"):
        pdb.execute("INSERT INTO cache_sessions(session_id, created_at) VALUES(?, -1)", (B,))
    for column, value in (("created_at", 5), ("session_id", B)):
        with pytest.raises(Refused, match="cannot change"):
            pdb.execute(f"UPDATE OR REPLACE cache_sessions SET {column} = ?", (value,))
    assert one(pdb, "SELECT last_accessed_at FROM cache_sessions") == T0 + 100
    exact(pdb)


# ------------------------------------------------------------- refusals ----

BAD = [
    (dict(session=None), "InvalidKeyFormatError: session_id"),
    (dict(session=b"x"), "InvalidKeyFormatError: session_id"),
    (dict(session=""), "InvalidKeyFormatError: session_id"),
    (dict(session="conv_1"), "InvalidKeyFormatError: session_id"),
    (dict(session=A.upper()), "InvalidKeyFormatError: session_id"),
    (dict(session=A + "x"), "InvalidKeyFormatError: session_id"),
    (dict(session="conv_--------------------------------5m6n"), "InvalidKeyFormatError"),
    (dict(session=A[:-1] + "\n"), "InvalidKeyFormatError: session_id"),
    (dict(task=None), "InvalidKeyFormatError: session_id, task_id and turn_id"),
    (dict(task="short"), "InvalidKeyFormatError: session_id, task_id and turn_id"),
    (dict(task="TASK0001"), "InvalidKeyFormatError: session_id, task_id and turn_id"),
    (dict(task="task_001"), "InvalidKeyFormatError: session_id, task_id and turn_id"),
    (dict(turn="turn00001"), "InvalidKeyFormatError: session_id, task_id and turn_id"),
    (dict(turn="turn_000"), "InvalidKeyFormatError: session_id, task_id and turn_id"),
    (dict(data=None), "ValidationError: data must be JSON"),
    (dict(data=""), "ValidationError: data must be JSON"),
    (dict(data="{"), "ValidationError: data must be JSON"),
    (dict(data="{'a':1}"), "ValidationError: data must be JSON"),
    (dict(data=b'{"a":1}'), "ValidationError: data must be JSON"),
    (dict(data='{"a":1}\0tail'), "ValidationError: data must be JSON"),
    (dict(data=text(1001)), "DataTooLargeError"),
    (dict(description=None), "ValidationError: description"),
    (dict(description=""), "ValidationError: description"),
    (dict(description=b"x"), "ValidationError: description"),
    (dict(description="x" * 301), "ValidationError: description"),
    (dict(now="yesterday"), "ValidationError: timestamp"),
    (dict(now=-1), "ValidationError: timestamp"),
    (dict(now=None), "ValidationError: timestamp"),
    (dict(now=1.5), "ValidationError: timestamp"),
    (dict(metadata="[]"), "ValidationError: custom_metadata"),
    (dict(metadata="{"), "ValidationError: custom_metadata"),
    (dict(metadata=b"{}"), "ValidationError: custom_metadata"),
    (dict(metadata='{"a":"%s"}' % ("x" * 65536)), "ValidationError: custom_metadata"),
]


@pytest.mark.parametrize("change, message", BAD, ids=[str(b[0])[:40] for b in BAD])
def test_bad_rows_are_refused_by_the_schema(pdb, change, message):
    setting(pdb, "max_item_bytes", 1000)
    row = dict(session=A, task="task0001", data="1")
    row.update(change)
    for how in ("INSERT", "REPLACE", "INSERT OR FAIL"):
        with pytest.raises(Refused, match=message):
            put(pdb, how=how, **row)
    try:  # a CHECK under OR IGNORE skips the row without an error
        put(pdb, how="INSERT OR IGNORE", **row)
    except Refused as error:
        assert message.split(":")[0] in str(error)
    assert one(pdb, "SELECT count(*) FROM cache_items") == 0
    assert one(pdb, "SELECT count(*) FROM cache_sessions") == 0
    exact(pdb)


def test_updates_are_checked_as_well(pdb):
    setting(pdb, "max_item_bytes", 1000)
    put(pdb, A, "task0001", text(500))
    put(pdb, B, "task0002", text(500))
    for change, value, message in [
        ("data", "{", "ValidationError: data"), ("data", text(1001), "DataTooLargeError"),
        ("description", "x" * 301, "ValidationError: description"),
        ("task_id", "x", "key of an item cannot change"),
        ("turn_id", "x_1", "InvalidKeyFormatError: session_id, task_id and turn_id"),
        ("rowid", 7, "key of an item cannot change"),
        ("custom_metadata", "1", "ValidationError: custom_metadata"),
        ("session_id", B, "key of an item cannot change"),
        ("id", 77, "id and key of an item cannot change"),
    ]:
        for how in ("UPDATE", "UPDATE OR REPLACE"):
            with pytest.raises(Refused, match=message):
                pdb.execute(f"{how} cache_items SET {change} = ? WHERE session_id = ?",
                            (value, A))
    exact(pdb)
    assert one(pdb, "SELECT sum(data_size) FROM cache_items") == 1000


def test_without_strict_ids_any_printable_text_is_an_id(pdb):
    setting(pdb, "strict_session_ids", 0)
    put(pdb, "a", "b", "1", turn="c")
    put(pdb, "a_b", "c", "22", turn="d")  # its key begins like one of session a
    put(pdb, "Gespräch 7", "Ümlaut", "333", turn="日本")
    with pytest.raises(Refused, match="InvalidKeyFormatError: session_id, task_id and turn_id"):
        put(pdb, "a", "b_c", "1", turn="d")
    for bad in ("", "x" * 129, "a\tb", "a\x7f", "a\x85b", "a\0b"):
        with pytest.raises(Refused, match="InvalidKeyFormatError"):
            put(pdb, bad, "b", "1", turn="e")
        with pytest.raises(Refused, match="InvalidKeyFormatError"):
            put(pdb, "a", bad, "1", turn="e")
    pdb.execute("DELETE FROM cache_sessions WHERE session_id = 'a'")
    assert rows(pdb, "SELECT storage_key FROM cache_items ORDER BY 1") == [
        ("Gespräch 7_Ümlaut_日本",), ("a_b_c_d",)]
    exact(pdb)


def test_defaults_make_key_parts_and_time(pdb):
    pdb.execute("INSERT INTO cache_items(session_id, description, data) VALUES(?,'d','0')", (A,))
    k, timestamp = pdb.execute("SELECT storage_key, timestamp FROM cache_items").fetchone()
    task, turn = k[len(A) + 1:].split("_")
    assert k.startswith(A + "_") and len(task) == len(turn) == 8 and task != turn
    now = one(pdb, "SELECT unixepoch() * 1000")
    assert abs(now - timestamp) < 60_000
    exact(pdb)


def test_every_json_value_is_data(pdb):
    for i, value in enumerate(["0", "false", '""', "null", "[]", "{}", " 1 ", '"\u00e9"']):
        put(pdb, A, "task0001", value, turn="turn000%d" % i)
    assert rows(pdb, "SELECT data FROM cache_items ORDER BY id")[6] == (" 1 ",)
    assert one(pdb, "SELECT data_size FROM cache_items WHERE turn_id='turn0007'") == 4
    exact(pdb)


# --------------------------------------------------------------- quotas ----

def test_quota_is_refused_by_name_and_changes_nothing(pdb):
    setting(pdb, "session_quota_bytes", 100)
    put(pdb, A, "task0001", text(60))
    before = pdb.serialize() if hasattr(pdb, "serialize") else None
    for how in ("INSERT", "INSERT OR IGNORE", "REPLACE", "INSERT OR FAIL"):
        with pytest.raises(Refused, match="QuotaExceededError: the session"):
            put(pdb, A, "task0002", text(41), how=how)
    with pytest.raises(Refused, match="QuotaExceededError"):
        pdb.execute("UPDATE cache_items SET data = ?", (text(101),))
    if before:
        assert pdb.serialize() == before
    put(pdb, A, "task0002", text(40))
    put(pdb, B, "task0002", text(100))
    exact(pdb)


def test_a_lowered_quota_lets_items_shrink(pdb):
    put(pdb, A, "task0001", text(60))
    setting(pdb, "session_quota_bytes", 50)
    pdb.execute("UPDATE cache_items SET description = 'still fine'")
    pdb.execute("UPDATE cache_items SET data = ?", (text(55),))
    with pytest.raises(Refused, match="QuotaExceededError"):
        pdb.execute("UPDATE cache_items SET data = ?", (text(56),))
    exact(pdb)


def test_eviction_takes_the_oldest_and_just_enough(pdb):
    setting(pdb, "session_quota_bytes", 100)
    setting(pdb, "on_quota", "evict_oldest")
    for i, now in enumerate([30, 10, 20, 40]):  # not in the order of their times
        put(pdb, A, "task000%d" % i, text(20), now=T0 + now)
    put(pdb, B, "task0000", text(20), now=T0)
    put(pdb, A, "task0009", text(50), now=T0 + 5)  # itself the oldest, and stays
    left = [r[0] for r in pdb.execute("SELECT task_id FROM cache_items WHERE session_id = ?"
                                      " ORDER BY timestamp", (A,))]
    assert left == ["task0009", "task0000", "task0003"]
    assert rows(pdb, "SELECT rule, rows, bytes, oldest, newest FROM retention_log") == [
        ("evict", 2, 40, T0 + 10, T0 + 20)]
    exact(pdb)
    pdb.execute("UPDATE cache_items SET data = ? WHERE task_id = 'task0009'", (text(75),))
    assert one(pdb, "SELECT total_size FROM cache_sessions WHERE session_id = ?", A) == 95
    exact(pdb)


def test_tool_results_are_never_evicted(pdb):
    setting(pdb, "session_quota_bytes", 100)
    setting(pdb, "on_quota", "evict_oldest")
    kind = '{"kind": "tool_result"}'
    put(pdb, A, "task0001", text(50), now=T0, metadata=kind)
    put(pdb, A, "task0002", text(40), now=T0 + 1)
    with pytest.raises(Refused, match="QuotaExceededError"):
        put(pdb, A, "task0003", text(51), now=T0 + 2)
    assert one(pdb, "SELECT count(*) FROM cache_items") == 2  # eviction undone too
    assert one(pdb, "SELECT count(*) FROM retention_log") == 0
    put(pdb, A, "task0003", text(50), now=T0 + 2)
    assert [r[0] for r in pdb.execute("SELECT task_id FROM cache_items ORDER BY 1")] == [
        "task0001", "task0003"]
    exact(pdb)


def test_eviction_takes_at_most_a_thousand(pdb):
    setting(pdb, "on_quota", "evict_oldest")
    with pdb:
        pdb.execute("BEGIN")
        for i in range(1100):
            put(pdb, A, "task0001", text(10), now=T0 + i // 3, turn="%08d" % i)
    setting(pdb, "session_quota_bytes", 11000)
    with pytest.raises(Refused, match="QuotaExceededError"):
        put(pdb, A, "task0002", text(10010), now=T0 + 5000)
    exact(pdb)
    put(pdb, A, "task0002", text(10000), now=T0 + 5000)
    assert one(pdb, "SELECT count(*) FROM cache_items") == 101
    assert one(pdb, "SELECT min(turn_id) FROM cache_items WHERE task_id='task0001'") == "00001000"
    exact(pdb)


def test_total_quota_over_all_sessions(pdb):
    for i, session in enumerate([A, B, C]):
        put(pdb, session, "task0001", text(30), now=T0 + i)
    setting(pdb, "total_quota_bytes", 100)  # counts what is there already
    with pytest.raises(Refused, match="QuotaExceededError: all sessions"):
        put(pdb, C, "task0002", text(11), now=T0 + 9)
    exact(pdb)
    setting(pdb, "on_quota", "evict_oldest")
    put(pdb, C, "task0002", text(45), now=T0 + 9)
    assert rows(pdb, "SELECT session_id FROM cache_items ORDER BY timestamp") == [
        (C,), (C,)]
    exact(pdb)
    pdb.execute("DELETE FROM cache_sessions WHERE session_id = ?", (C,))
    exact(pdb)
    pdb.execute("DELETE FROM blackbox_settings WHERE name = 'cache.total_quota_bytes'")
    put(pdb, A, "task0002", text(500))
    exact(pdb)


def test_settings_reach_the_next_write(pdb):
    setting(pdb, "max_item_bytes", 5)
    with pytest.raises(Refused, match="DataTooLargeError"):
        put(pdb, A, "task0001", text(6))
    pdb.execute("UPDATE blackbox_settings SET value = 6 "
                "WHERE name = 'cache.max_item_bytes'")
    put(pdb, A, "task0001", text(6))
    pdb.execute("DELETE FROM blackbox_settings")
    put(pdb, A, "task0002", text(7))
    exact(pdb)
    for name, value in [("max_item_bytes", 0), ("on_quota", "maybe"),
                        ("strict_session_ids", 2), ("max_age_days", -1),
                        ("session_quota_bytes", "x"), ("idle_ms", -1)]:
        with pytest.raises(Refused, match="ValidationError"):
            setting(pdb, name, value)


# -------------------------------------------------- removing, receipts ----

def test_clear_leaves_nothing_and_one_receipt(pdb):
    for i in range(20):
        put(pdb, A, "task0001", text(10), now=T0 + i, turn="%08d" % i,
            metadata='{"kind":"tool_result"}' if i % 3 else None)
    put(pdb, B, "task0001", "1")
    pdb.execute("DELETE FROM cache_sessions WHERE session_id = ?", (A,))
    for table in ("cache_items", "cache_sessions"):
        assert one(pdb, f"SELECT count(*) FROM {table} WHERE session_id = ?", A) == 0
    assert rows(pdb, "SELECT domain, rule, rows, bytes, oldest, newest"
                " FROM retention_log") == [("cache", "clear", 20, 200, T0, T0 + 19)]
    exact(pdb)


def test_plain_deletes_share_a_receipt_by_the_minute(pdb):
    for i in range(5):
        put(pdb, A, "task0001", text(10), now=T0 + i, turn="%08d" % i)
    pdb.execute("DELETE FROM cache_items WHERE turn_id < '00000003'")
    pdb.execute("DELETE FROM cache_items")
    receipts = rows(pdb, "SELECT sum(rows), sum(bytes), min(oldest), max(newest), count(*)"
                    " FROM retention_log WHERE rule = 'manual'")
    assert receipts[0][:4] == (5, 50, T0, T0 + 4) and receipts[0][4] <= 2
    assert one(pdb, "SELECT item_count FROM cache_sessions") == 0
    exact(pdb)


def test_the_rules_of_the_cache_have_no_views(pdb):
    assert rows(pdb, 'SELECT rule, "view", setting, unit_ms, "table" FROM retention_rules'
                " WHERE domain = 'cache' ORDER BY 1") == [
        ("cache.abandoned", None, "cache.max_idle_days", 86_400_000, "cache_sessions"),
        ("cache.age", None, "cache.max_age_days", 86_400_000, "cache_items"),
        ("cache.expired", None, None, None, "cache_items"),
        ("cache.file_bytes", None, "blackbox.max_file_bytes", 0, "cache_items"),
        ("cache.idle", None, "cache.idle_ms", 1, "cache_sessions")]
    assert one(pdb, "SELECT count(*) FROM sqlite_schema WHERE type = 'view'"
               " AND name GLOB 'cache_*'") == 0


def test_age_and_eviction_use_their_indexes(pdb):
    def plan(sql):
        return " ".join(r[3] for r in pdb.execute("EXPLAIN QUERY PLAN " + sql))
    age = plan("SELECT storage_key FROM cache_items WHERE timestamp < 5 AND protected = 0"
               " ORDER BY timestamp LIMIT 10")
    assert "cache_items_age (timestamp<?)" in age and "TEMP B-TREE" not in age
    body = one(pdb, "SELECT sql FROM sqlite_schema WHERE name = 'cache_work'")
    looks = re.findall(r"\((SELECT id FROM .*?ORDER BY timestamp, id)\)", body, re.S)
    # Newer versions show the first column of a row value, older ones all of it.
    for look, index in zip(looks, (
            r"cache_items_age \(\(?timestamp",
            r"cache_items_session \(session_id=\? AND protected=\? AND \(?timestamp"),
                           strict=True):
        for name, value in (("NEW.session", "'a'"), ("v.at", "1"), ("v.id", "1"),
                            ("NEW.item", "1")):
            look = look.replace(name, value)
        found = plan(look)
        assert re.search(index, found) and "TEMP B-TREE" not in found, found


def test_check_finds_what_was_damaged_behind_the_triggers(pdb):
    put(pdb, A, "task0001", text(10))
    put(pdb, B, "task0001", text(10))
    used(pdb, A)
    setting(pdb, "total_quota_bytes", 99)
    assert cache_faults(pdb) == []
    for statement, found in (
            ("UPDATE cache_sessions SET kept_size = 9 WHERE kept_size = 10 LIMIT 1", A),
            ("UPDATE cache__limits SET session_quota = 1", "cache_state"),
            ("UPDATE cache_state SET bytes = 1", "cache_state"),
            ("UPDATE cache_state SET rule = 'x'", "cache_state"),
            ("UPDATE cache__limits SET evict = 2", "cache_state")):
        pdb.execute("BEGIN")
        pdb.execute(statement.replace(" LIMIT 1", f" AND session_id = '{A}'"))
        assert found in [object for object, _ in cache_faults(pdb)], statement
        pdb.execute("ROLLBACK")


def test_dump_and_restore_and_vacuum(pdb, tmp_path):
    for i in range(30):
        put(pdb, A, "task0001", text(10 + i), turn="%08d" % i)
    pdb.execute("DELETE FROM cache_items WHERE turn_id > '00000025'")
    pdb.execute("VACUUM")
    put(pdb, A, "task0002", "1")
    exact(pdb)
    path = one(pdb, "SELECT file FROM pragma_database_list WHERE name = 'main'")
    copy = tmp_path / "copy.db"
    assert shell(copy, stdin=shell(path, ".dump")) == ""
    db = sqlite3.connect(copy, isolation_level=None)
    exact(db)
    put(db, A, "task0003", "1")
    exact(db)


def test_file_runs_again_over_data_and_keeps_settings(pdb):
    put(pdb, A, "task0001", text(10))
    setting(pdb, "total_quota_bytes", 50)
    schema(pdb)
    exact(pdb)
    assert one(pdb, "SELECT bytes FROM cache_state") == 10
    with pytest.raises(Refused, match="QuotaExceededError"):
        put(pdb, A, "task0002", text(41))


def test_in_the_shell_with_defensive_mode(path):
    out = shell(path, stdin=f"""
.dbconfig defensive on
.read sql/core.sql
.read sql/cache.sql
INSERT INTO cache_items(session_id, description, data) VALUES('{A}', 'd', '[1]');
REPLACE INTO cache_items(session_id, task_id, turn_id, description, data)
 SELECT session_id, task_id, turn_id, 'e', '[1,2]' FROM cache_items;
SELECT total_size, item_count FROM cache_sessions;
INSERT INTO cache_items(session_id, description, data) VALUES('x', 'd', '[1]');
""")
    lines = [line for line in out.splitlines() if "defensive" not in line]
    assert lines[0] == "5|1"
    assert "InvalidKeyFormatError" in lines[1] and len(lines) == 2


def test_the_rules_work_with_an_untrusted_schema(pdb):
    """SQLite before 3.41 regards its own JSON functions as unsafe there."""
    put(pdb, A, "task0001", "[1]")
    pdb.execute("PRAGMA trusted_schema = OFF")
    assert rows(pdb, "SELECT data, protected FROM cache_items") == [("[1]", 0)]
    assert rows(pdb, "SELECT total_size FROM cache_sessions") == [(3,)]
    if sqlite3.sqlite_version_info < (3, 41):
        with pytest.raises(sqlite3.OperationalError, match="unsafe use of json_valid"):
            put(pdb, A, "task0002", "[1]")
    else:
        put(pdb, A, "task0002", "[1]")
    pdb.execute("DELETE FROM cache_sessions")
    exact(pdb) if sqlite3.sqlite_version_info >= (3, 41) else None
    assert one(pdb, "SELECT count(*) FROM cache_items") == 0


@pytest.mark.parametrize("when", ["AFTER INSERT", "AFTER UPDATE", "AFTER DELETE"])
def test_totals_are_exact_beside_a_trigger_that_writes_other_items(pdb, when):
    for task in TASKS:
        put(pdb, A, task, text(100))
    row = "OLD" if "DELETE" in when else "NEW"
    pdb.execute(f"CREATE TRIGGER mine {when} ON cache_items WHEN {row}.task_id GLOB 'task*' BEGIN"
                " INSERT INTO cache_items(session_id, task_id, turn_id, description, data)"
                " VALUES('" + A + "', 'note0001', 'turn0000', 'd', '[1]')"
                " ON CONFLICT(storage_key) DO UPDATE SET data = data || ' ';"
                " REPLACE INTO cache_items(session_id, task_id, turn_id, description, data)"
                " VALUES('" + B + "', 'note0002', 'turn0000', 'd', '[1]'); END")
    def replace():
        try:
            put(pdb, A, "task0001", text(50), how="REPLACE")
        except Refused as error:  # the trigger has taken the id that SQLite had chosen
            assert "UNIQUE" in str(error) and one(pdb, "PRAGMA recursive_triggers") == 1
        exact(pdb)
    replace()
    put(pdb, A, "task0001", text(60), how="INSERT OR IGNORE")
    put(pdb, A, "task0002", text(60),
        rest="ON CONFLICT(storage_key) DO UPDATE SET data = excluded.data")
    exact(pdb)
    pdb.execute("DELETE FROM cache_items WHERE task_id = 'task0003'")
    exact(pdb)
    replace()
