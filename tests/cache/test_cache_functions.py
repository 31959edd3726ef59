"""The functions of the cache, and the same commands as rows."""
import json
import random
import sqlite3

import pytest

from cache_helpers import A, B, C, T0, exact, key, room, setting, text
from conftest import connect, load, one, rows

DAY = 86_400_000
KEYS = {"storageKey", "description", "timestamp", "dataSize", "sessionId",
        "taskId", "turnId"}


def write(db, session, data, task="task0001", turn="turn0001", description="d",
          metadata=None, now=T0):
    return json.loads(one(
        db, "SELECT cache_write(?,?,?,?,?,?,?)", session, task, turn, data,
        description, metadata, now))


def read(db, *args):
    return json.loads(one(
        db, f"SELECT cache_read({','.join('?' * len(args))})", *args))


def refuses(db, message, sql, *args, error=sqlite3.Error):
    with pytest.raises(error, match=message) as caught:
        db.execute(sql, args).fetchone()
    return str(caught.value)


# ----------------------------------------------------------- round trip ----

@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "in BEGIN"])
def test_write_read_update_delete(db, inside):
    setting(db, "mark_interval_ms", 0)
    if inside:
        db.execute("BEGIN")
    data = '{ "a" : 1.0e5, "b": [null, "\\u00e9"] }'
    meta = write(db, A, data, metadata='{"source": "web"}', description="A page")
    assert meta == {
        "storageKey": key(A, "task0001", "turn0001"), "description": "A page",
        "timestamp": T0, "dataSize": len(data), "sessionId": A,
        "taskId": "task0001", "turnId": "turn0001"}
    k = meta["storageKey"]
    raw = one(db, "SELECT cache_read(?,NULL,?)", k, T0 + 5)
    assert '"data":' + data + "," in raw  # byte for byte
    assert json.loads(raw) == dict(meta, data=json.loads(data),
                                   customMetadata={"source": "web"})
    assert one(db, "SELECT last_accessed_at FROM cache_sessions") == T0 + 5
    meta = json.loads(one(db, "SELECT cache_update(?,?,?,NULL,NULL,?)", k, "[1]",
                          "Shorter", T0 + 9))
    assert set(meta) == KEYS and meta["dataSize"] == 3 and meta["timestamp"] == T0 + 9
    assert read(db, k)["customMetadata"] == {"source": "web"}  # kept
    one(db, "SELECT cache_update(?,?,?,?)", k, "[2]", "Again", '{"n": 2}')
    assert read(db, k)["customMetadata"] == {"n": 2}
    assert one(db, "SELECT cache_delete(?)", k) == 1
    assert one(db, "SELECT cache_delete(?)", k) == 0
    exact(db)
    if inside:
        db.execute("ROLLBACK")
        assert one(db, "SELECT count(*) FROM cache_sessions") == 0
    exact(db)


def test_write_over_a_key_replaces_size_and_metadata(db):
    write(db, A, text(100), metadata='{"x":1}')
    write(db, A, text(30), now=T0 + 7)
    assert rows(db, "SELECT total_size, item_count, created_at, last_accessed_at"
                " FROM cache_sessions") == [(30, 1, T0, T0 + 7)]
    assert "customMetadata" not in read(db, key(A, "task0001", "turn0001"))
    exact(db)


def test_a_missing_task_id_or_turn_id_is_made(db):
    made = [write(db, A, str(i), task=None, turn=None) for i in range(50)]
    assert len({m["storageKey"] for m in made}) == 50
    for m in made:
        for part in (m["taskId"], m["turnId"]):
            assert len(part) == 8 and part.isalnum() and part == part.lower()
    m = write(db, A, "1", task="task0001", turn=None)
    assert m["taskId"] == "task0001"
    exact(db)


@pytest.mark.parametrize("data", ["0", "false", '""', "null", "[]", '"x"', "1.5"])
def test_any_json_value_can_be_written_as_data(db, data):
    k = write(db, A, data)["storageKey"]
    assert read(db, k)["data"] == json.loads(data)


def test_data_may_be_given_as_a_number(db):
    one(db, "SELECT cache_write(?,'task0001','turn0001',0,'zero')", A)
    assert read(db, key(A, "task0001", "turn0001"))["data"] == 0


def test_long_description_is_cut_between_characters(db):
    m = write(db, A, "1", description="é" * 301)
    assert m["description"] == "é" * 297 + "..."
    assert write(db, A, "1", description="x" * 300)["description"] == "x" * 300
    one(db, "SELECT cache_update(?,'1',?)", m["storageKey"], "y" * 999)
    assert one(db, "SELECT description FROM cache_items") == "y" * 297 + "..."
    one(db, "SELECT cache_use_preset('recycle')")
    assert len(write(db, A, "1", description="z" * 999)["description"]) == 500


def test_metadata_of_a_write_is_small(db):
    m = one(db, "SELECT cache_write(?,NULL,NULL,?,?)", A, text(5_000_000), "x" * 300)
    assert len(m) <= 550
    small = one(db, "SELECT cache_write(?,NULL,NULL,'1',?)", A, "x" * 250)
    assert len(small) < 500


# --------------------------------------------------------------- errors ----

def test_each_error_names_what_was_given_and_what_is_expected(db):
    k = write(db, A, "[1]")["storageKey"]
    setting(db, "max_item_bytes", 100)
    setting(db, "session_quota_bytes", 150)
    put_in = "SELECT cache_write(?,?,?,?,?,?)"
    full = (A, "task0002", "turn0001", "1", "d", None)

    def change(**values):
        names = ["session", "task", "turn", "data", "description", "metadata"]
        return [values.get(n, v) for n, v in zip(names, full)]

    m = refuses(db, "^DataTooLargeError", put_in, *change(data=text(101)))
    assert "at most 100 bytes" in m and "got 101 bytes" in m and "split" in m
    write(db, A, text(90), task="task0005")
    m = refuses(db, "^QuotaExceededError", put_in, *change(data=text(60)),
                error=sqlite3.IntegrityError)
    assert A in m and "93 of 150 bytes" in m and "60 more bytes do not fit" in m
    assert "cache_delete" in m
    m = refuses(db, "^QuotaExceededError", "SELECT cache_update(?,?,'d')", k, text(61))
    assert "93 of 150 bytes" in m
    setting(db, "max_item_bytes", 1000)
    m = refuses(db, "^QuotaExceededError", put_in, *change(session=B, data=text(151)))
    assert B in m and "0 of 150 bytes" in m
    setting(db, "total_quota_bytes", 100)
    m = refuses(db, "^QuotaExceededError", put_in, *change(session=B, data=text(8)))
    assert "all sessions together use 93 of 100 bytes (cache.total_quota_bytes)" in m
    setting(db, "total_quota_bytes", 10**12)
    setting(db, "max_item_bytes", 100)
    for values, name in [
        (dict(session="conv_1"), "InvalidKeyFormatError: session_id.*8-4-4-4-12.*'conv_1_task0002_turn0001'"),
        (dict(session=None), "InvalidKeyFormatError: session_id must be text, got NULL"),
        (dict(session=b"ab"), "InvalidKeyFormatError: session_id.*a blob of 2 bytes"),
        (dict(session=""), "InvalidKeyFormatError: session_id"),
        (dict(session=A + "\0"), "InvalidKeyFormatError: session_id.*NUL"),
        (dict(task="x"), "InvalidKeyFormatError: session_id, task_id and turn_id must be .*got '.*_x_turn0001'; "),
        (dict(turn="a_b"), "InvalidKeyFormatError: session_id, task_id and turn_id .*got '.*_a_b'; use -"),
        (dict(data="{'a'}"), "ValidationError: data must be JSON text, got '{''a''}'; "),
        (dict(data=None), "ValidationError: data must be text, got NULL"),
        (dict(data=b"{}"), "ValidationError: data must be text, got a blob of 2"),
        (dict(data='"\0"'), "ValidationError: data .*NUL"),
        (dict(data=sqlite3.Binary(b"x")), "ValidationError: data"),
        (dict(description=None), "ValidationError: description must be text, got NULL"),
        (dict(description=""), "ValidationError: description .*not empty"),
        (dict(metadata="[1]"), "ValidationError: custom_metadata .*object.*got '.1.'"),
        (dict(metadata="{"), "ValidationError: custom_metadata"),
        (dict(metadata=b"{}"), "ValidationError: custom_metadata"),
    ]:
        before = db.total_changes
        refuses(db, name, put_in, *change(**values))
        assert db.total_changes == before
    refuses(db, "UTF-8", "SELECT cache_write(?,NULL,NULL,CAST(x'22ff22' AS TEXT),'d')", A)
    refuses(db, "ValidationError: now", "SELECT cache_write(?,NULL,NULL,'1','d',NULL,'x')", A)
    refuses(db, "wrong number of arguments", "SELECT cache_write(?)", A)
    exact(db)


@pytest.mark.parametrize("function, rest", [
    ("cache_read", ""), ("cache_delete", ""), ("cache_update", ",'1','d'")])
def test_a_text_that_cannot_be_a_key_is_an_invalid_key_and_not_a_missing_item(db, function, rest):
    write(db, A, "1")
    for bad in ["x", "", "a_b", A, A + "_task0001", key(A, "task0001") + "_x",
                key(A, "TASK0001"), key("conv_1", "task0001"), None, b"x", 5,
                key(A, "task0001") + "\0", "ü" * 600]:
        refuses(db, "InvalidKeyFormatError: .*", f"SELECT {function}(?{rest})", bad)
    missing = key(A, "task0009", "turn0009")
    if function == "cache_delete":
        assert one(db, "SELECT cache_delete(?)", missing) == 0
    else:
        m = refuses(db, "^ItemNotFoundError", f"SELECT {function}(?{rest})", missing)
        assert missing in m and "cache_list" in m
    setting(db, "strict_session_ids", 0)
    for bad in ["x", "a_b", "_a_b", "a__b", "a_b_"]:
        refuses(db, "InvalidKeyFormatError", f"SELECT {function}(?{rest})", bad)
    if function == "cache_read":
        refuses(db, "ItemNotFoundError", "SELECT cache_read('any_thing_else')")


def test_a_session_reads_and_deletes_only_its_own_items(db):
    k = write(db, A, '"secret"')["storageKey"]
    write(db, B, "1")
    refuses(db, "ItemNotFoundError", "SELECT cache_read(?,?)", k, B)
    refuses(db, "ItemNotFoundError", "SELECT cache_update(?,'1','d',NULL,?)", k, B)
    assert one(db, "SELECT cache_delete(?,?)", k, B) == 0
    assert read(db, k, A)["data"] == "secret"
    listed = rows(db, "SELECT session_id FROM cache_list(?)", B)
    assert listed == [(B,)]
    assert one(db, "SELECT cache_delete(?,?)", k, A) == 1
    exact(db)


def test_damaged_items_are_named_and_the_others_readable(db, path):
    good = write(db, A, "[1]")["storageKey"]
    bad = write(db, A, "[2]", task="task0002")["storageKey"]
    worse = write(db, A, "[3]", task="task0003", metadata="{}")["storageKey"]
    nul = write(db, A, "[4]", task="task0004")["storageKey"]
    for k in (good, bad, worse, nul):  # what was whole before may be damaged now
        read(db, k)
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.execute("DROP TRIGGER cache_update")
    db.execute("UPDATE cache_items SET data = '[2,' WHERE storage_key = ?", (bad,))
    db.execute("UPDATE cache_items SET custom_metadata = '{' WHERE storage_key = ?", (worse,))
    db.execute("UPDATE cache_items SET data = ? WHERE storage_key = ?", ("4\0x", nul))
    db.execute("PRAGMA ignore_check_constraints = OFF")
    one(db, "SELECT blackbox_install()")
    for k in (bad, worse, nul):
        m = refuses(db, "^CorruptedDataError", "SELECT cache_read(?)", k,
                    error=sqlite3.DatabaseError)
        assert k in m and "cache_delete" in m
    assert read(db, good)["data"] == [1]
    assert one(db, "SELECT count(*) FROM cache_list(?)", A) == 4
    problems = dict(rows(db, "SELECT object, problem FROM blackbox_check"))
    assert "CorruptedDataError" in problems[bad] and "CorruptedDataError" in problems[worse]
    for k in (bad, worse, nul):
        assert one(db, "SELECT cache_delete(?)", k) == 1
    exact(db)


@pytest.mark.parametrize("size", [3, 31, 32, 33, 64, 100])
def test_damage_of_one_byte_is_found_in_a_text_that_was_read_before(db, size):
    data = json.dumps("x" * (size - 2))
    k = write(db, A, data)["storageKey"]
    db.execute("DROP TRIGGER cache_update")
    for i in range(size):
        damaged = data[:i] + "\n" + data[i + 1:]
        for text_now, whole in ((data, True), (damaged, False)):
            db.execute("UPDATE cache_items SET data = ? WHERE storage_key = ?", (text_now, k))
            if whole:
                assert read(db, k)["data"] == "x" * (size - 2)
            else:
                refuses(db, "^CorruptedDataError", "SELECT cache_read(?)", k,
                        error=sqlite3.DatabaseError)


def test_data_that_a_write_refused_is_not_taken_for_json_later(db):
    k = write(db, A, "[1]")["storageKey"]
    refuses(db, "^ValidationError: data", "SELECT cache_write(?,NULL,NULL,'[2,','d')", A)
    db.execute("DROP TRIGGER cache_update")
    db.execute("UPDATE cache_items SET data = '[2,'")
    refuses(db, "^CorruptedDataError", "SELECT cache_read(?)", k, error=sqlite3.DatabaseError)


def test_a_read_returns_the_json_that_sqlite_would_write(db):
    every = "".join(map(chr, range(1, 0x100))) + "\u20ac\U0001f600"
    setting(db, "max_description", 10000)
    setting(db, "strict_session_ids", 0)
    k = write(db, 'a"\\b', "[1]", description=every, task='"', turn="\\", metadata='{"a": "\u00e9"}')["storageKey"]
    assert one(db, "SELECT cache_read(?)", k) == one(
        db, "SELECT json_object('storageKey', storage_key, 'data', json(data),"
        " 'description', description, 'timestamp', timestamp, 'dataSize', data_size,"
        " 'sessionId', session_id, 'taskId', task_id, 'turnId', turn_id)"
        " FROM cache_items")[:-1] + ',"customMetadata":{"a": "\u00e9"}}'


# ---------------------------------------------------------- list, stats ----

def test_list_is_newest_first_and_without_data(db):
    for i in range(30):
        write(db, A if i % 3 else B, text(10 + i), task="task00%02d" % i,
              metadata='{"kind":"tool_result"}' if i % 4 == 0 else None,
              now=T0 + (i * 7) % 13)
    for session in (A, B):
        listed = rows(db, "SELECT storage_key, timestamp, data_size FROM cache_list(?)", session)
        assert listed == rows(
            db, "SELECT storage_key, timestamp, data_size FROM cache_items"
            " WHERE session_id = ? ORDER BY timestamp DESC, id DESC", session)
    assert one(db, "SELECT count(*) FROM cache_list") == 30
    every = rows(db, "SELECT timestamp FROM cache_list()")
    assert every == sorted(every, reverse=True)
    assert rows(db, "SELECT * FROM cache_list('nobody')") == []
    row = db.execute("SELECT * FROM cache_list(?) LIMIT 1", (A,))
    names = [c[0] for c in row.description]
    assert names == ["storage_key", "description", "timestamp", "data_size",
                     "session_id", "task_id", "turn_id", "metadata"]
    row = row.fetchone()
    assert list(json.loads(row[-1]).values()) == list(row[:-1])
    assert set(json.loads(row[-1])) == KEYS


def test_stats_of_a_session_and_of_all(db):
    assert json.loads(one(db, "SELECT cache_stats(?)", A)) == {
        "sessionId": A, "totalSize": 0, "itemCount": 0, "hits": 0, "createdAt": None,
        "lastAccessedAt": None, "state": "none", "quota": 52_428_800,
        "quotaUsed": 0.0, "quotaRemaining": 52_428_800, "quotaState": "normal"}
    assert json.loads(one(db, "SELECT cache_stats()"))["oldestItemAge"] is None
    write(db, A, text(5_242_880))
    write(db, B, text(10), now=T0 + DAY)
    s = json.loads(one(db, "SELECT cache_stats(?,?)", A, T0 + DAY))
    assert (s["state"], s["quotaUsed"], s["itemCount"]) == ("active", 10.0, 1)
    assert s["quotaRemaining"] == 52_428_800 - 5_242_880
    assert json.loads(one(db, "SELECT cache_stats(?,?)", A, T0 + DAY + 1))["state"] == "orphaned"
    s = json.loads(one(db, "SELECT cache_stats(NULL,?)", T0 + DAY + 1))
    assert s["totalItems"] == 2 and s["sessionCount"] == 2 and s["orphanedSessions"] == 1
    assert s["totalSize"] == 5_242_890 and s["oldestItemAge"] == DAY + 1


# ---------------------------------------------------------------- quota ----

@pytest.mark.parametrize("on_quota", ["reject", "evict_oldest"])
@pytest.mark.parametrize("total", [10**15, 2500])
def test_quota_check_says_what_a_write_would_do(db, on_quota, total):
    rnd = random.Random(f"{on_quota} {total}")
    setting(db, "session_quota_bytes", 1000)
    setting(db, "total_quota_bytes", total)
    setting(db, "max_item_bytes", 700)
    setting(db, "on_quota", on_quota)
    fits = refused = 0
    for step in range(250):
        session, task = rnd.choice([A, B, C]), "task%04d" % rnd.randrange(8)
        size = rnd.choice([5, 60, 120, 300, 700, 701, 900])
        k = key(session, task)
        left = one(db, "SELECT cache_quota_check(?,?,?)", session, size, k)
        new = one(db, "SELECT cache_quota_check(?,?)", session, size)
        if not one(db, "SELECT count(*) FROM cache_items WHERE storage_key = ?", k):
            assert left == new
        args = (session, task, "turn0000", text(size), "d", rnd.choice(
            [None, None, '{"kind":"tool_result"}']), T0 + rnd.randrange(50))
        try:
            one(db, "SELECT cache_write(?,?,?,?,?,?,?)", *args)
            assert left >= 0
            assert room(db, session) == left
            fits += 1
        except sqlite3.Error as error:
            assert left < 0, error
            refused += 1
        exact(db)
        if rnd.random() < 0.05:
            one(db, "SELECT cache_clear_session(?)", session)
    assert fits > 60 and refused > 5


def test_quota_check_in_a_users_trigger(db):
    setting(db, "session_quota_bytes", 100)
    db.executescript("""
        CREATE TABLE inbox(session, body);
        CREATE TRIGGER room BEFORE INSERT ON inbox
        WHEN cache_quota_check(NEW.session, length(NEW.body)) < 0
        BEGIN SELECT RAISE(ABORT, 'no room'); END;
        CREATE TRIGGER park AFTER INSERT ON inbox BEGIN
          INSERT INTO cache_items(session_id, description, data)
          VALUES(NEW.session, 'from the inbox', NEW.body); END;
    """)
    db.execute("INSERT INTO inbox VALUES(?,?)", (A, text(80)))
    with pytest.raises(sqlite3.IntegrityError, match="no room"):
        db.execute("INSERT INTO inbox VALUES(?,?)", (A, text(21)))
    db.execute("INSERT INTO inbox VALUES(?,?)", (A, text(20)))
    assert one(db, "SELECT total_size FROM cache_sessions") == 100
    db.execute("PRAGMA trusted_schema = OFF")
    with pytest.raises(sqlite3.OperationalError, match="unsafe use"):
        db.execute("INSERT INTO inbox VALUES(?,?)", (B, "1"))
    db.execute("PRAGMA trusted_schema = ON")
    exact(db)


@pytest.mark.parametrize("args", [
    (None, 1), (A, -1), (A, "x"), (A, None), (A, 1.5), (b"x", 1), (A, 1, b"x")])
def test_quota_check_refuses(db, args):
    refuses(db, "InvalidKeyFormatError|ValidationError",
            f"SELECT cache_quota_check({','.join('?' * len(args))})", *args)


# ------------------------------------------------------------ life time ----

def test_clear_removes_a_session_and_leaves_the_others(db):
    for i in range(10):
        write(db, A, text(10), task="task000%d" % i, metadata='{"kind":"tool_result"}')
    write(db, B, "1")
    assert one(db, "SELECT cache_clear_session(?)", A) == 10
    assert one(db, "SELECT cache_clear_session(?)", A) == 0
    assert rows(db, "SELECT session_id FROM cache_items") == [(B,)]
    assert rows(db, "SELECT session_id FROM cache_sessions") == [(B,)]
    assert rows(db, "SELECT rule, rows, bytes FROM retention_log") == [("clear", 10, 100)]
    exact(db)


@pytest.mark.parametrize("how", ["function", "call"])
def test_sessions_that_nobody_reads_go_and_the_others_stay(db, how):
    write(db, A, text(10), now=T0)
    write(db, B, text(20), now=T0 + 1)
    write(db, C, text(30), now=T0, metadata='{"kind":"tool_result"}')
    k = key(A, "task0001", "turn0001")
    if how == "call":
        db.execute("INSERT INTO blackbox_call VALUES('cache_cleanup_orphans', ?)",
                   (json.dumps([None, T0 + DAY]),))
        assert one(db, "SELECT count(*) FROM cache_sessions") == 3
        db.execute("INSERT INTO blackbox_call VALUES('cache_cleanup_orphans', ?)",
                   (json.dumps([None, T0 + DAY + 1]),))
        assert rows(db, "SELECT session_id FROM cache_sessions ORDER BY 1") == [(B,), (C,)]
        exact(db)
        return
    clean = "SELECT cache_cleanup_orphans(?,?,?)"
    nothing = {"sessions": 0, "items": 0, "bytes": 0, "left": {"held": 0}, "more": False}
    assert json.loads(one(db, clean, None, T0 + DAY, None)) == nothing
    read(db, k, A, T0 + 50)  # reading keeps a session from becoming an orphan
    assert json.loads(one(db, clean, None, T0 + DAY + 2, None)) == {
        "sessions": 1, "items": 1, "bytes": 20, "left": {"held": 0}, "more": False}
    assert json.loads(one(db, clean, 0, T0 + DAY + 2, 1)) == {
        "sessions": 1, "items": 1, "bytes": 10, "left": {"held": 0}, "more": False}
    assert rows(db, "SELECT session_id FROM cache_sessions") == [(C,)]  # tool results stay
    assert one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'idle'") == 2
    exact(db)


def test_items_that_are_too_old_go_and_tool_results_stay(db):
    for i in range(6):
        write(db, A, text(10), task="task000%d" % i, now=T0 + i,
              metadata='{"kind":"tool_result"}' if i == 0 else None)
    clean = "SELECT cache_cleanup_outdated(?,?,?)"
    assert json.loads(one(db, clean, None, T0 + 40 * DAY, None))["items"] == 0
    one(db, "SELECT cache_use_preset('recycle')")
    assert json.loads(one(db, clean, None, T0 + 30 * DAY + 3, None)) == {
        "sessions": 0, "items": 2, "bytes": 20, "left": {"held": 0}, "more": False}
    assert json.loads(one(db, clean, 1, T0 + 30 * DAY, 2)) == {
        "sessions": 0, "items": 2, "bytes": 20, "left": None, "more": True}
    assert rows(db, "SELECT task_id FROM cache_items ORDER BY 1") == [
        ("task0000",), ("task0005",)]
    assert rows(db, "SELECT rule, sum(rows), sum(bytes) FROM retention_log GROUP BY 1") == [
        ("age", 4, 40)]
    for bad in (-1, "x", 10**9):
        refuses(db, "ValidationError: days", "SELECT cache_cleanup_outdated(?)", bad)
    refuses(db, "ValidationError: limit", "SELECT cache_cleanup_outdated(1,NULL,0)")
    exact(db)


def test_clean_up_does_not_count_as_access(db):
    write(db, A, "1", now=T0)
    write(db, A, "2", task="task0002", now=T0 + 9 * DAY)
    last = one(db, "SELECT last_accessed_at FROM cache_sessions")
    one(db, "SELECT cache_cleanup_outdated(5,?)", T0 + 8 * DAY)
    rows(db, "SELECT * FROM cache_list(?)", A)
    one(db, "SELECT cache_stats(?)", A)
    assert one(db, "SELECT last_accessed_at FROM cache_sessions") == last
    one(db, "SELECT cache_delete(?,NULL,?)", key(A, "task0002", "turn0001"), T0 + 10 * DAY)
    assert one(db, "SELECT last_accessed_at FROM cache_sessions") == T0 + 10 * DAY


def test_cache_use_preset_applies_a_preset_and_refuses_unknown_names(db):
    assert one(db, "SELECT cache_use_preset('recycle')") == "recycle"
    changed = 'SELECT name, value FROM blackbox_settings WHERE value <> "default" ORDER BY 1'
    assert rows(db, changed) == [
        ("cache.max_age_days", 30), ("cache.max_description", 500),
        ("cache.on_quota", "evict_oldest"), ("cache.session_quota_bytes", 209_715_200),
        ("cache.total_quota_bytes", 5_368_709_120)]
    refuses(db, "ValidationError: preset must be keep or recycle, got 'nope'",
            "SELECT cache_use_preset('nope')")
    db.execute("INSERT INTO blackbox_call VALUES('cache_use_preset','[\"keep\"]')")
    assert rows(db, changed) == []


def test_eviction_error_says_that_tool_results_stay(db):
    one(db, "SELECT cache_use_preset('recycle')")
    setting(db, "session_quota_bytes", 100)
    write(db, A, text(90), metadata='{"kind":"tool_result"}')
    m = refuses(db, "QuotaExceededError", "SELECT cache_write(?,NULL,NULL,?,'d')", A, text(20))
    assert "tool results stay" in m and "90 of 100" in m


def test_the_quota_named_is_the_one_in_which_eviction_makes_no_room(db):
    one(db, "SELECT cache_use_preset('recycle')")
    setting(db, "session_quota_bytes", 100)
    setting(db, "total_quota_bytes", 150)
    write(db, B, text(100), metadata='{"kind":"tool_result"}')
    write(db, A, text(50))
    m = refuses(db, "QuotaExceededError", "SELECT cache_write(?,NULL,NULL,?,'d')", A, text(60))
    assert "all sessions together use 150 of 150 bytes" in m
    setting(db, "total_quota_bytes", 1000)
    write(db, A, text(60))
    m = refuses(db, "QuotaExceededError", "SELECT cache_write(?,NULL,NULL,?,'d')", A, text(101))
    assert f"session '{A}' uses 60 of 100 bytes" in m


# --------------------------------------------------------------- places ----

def test_in_an_attached_schema_with_a_quoted_name(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('a \"b', 'all')")
    db.execute("CREATE TEMP TABLE cache_items(x)")  # must not be taken for ours
    k = write(db, A, "[1]")["storageKey"]
    assert read(db, k)["data"] == [1]
    one(db, "SELECT cache_update(?,'[1,2]','d')", k)
    assert one(db, "SELECT count(*) FROM cache_list(?)", A) == 1
    assert one(db, "SELECT cache_quota_check(?,0)", A) == 52_428_800 - 5
    db.execute('INSERT INTO "a ""b".blackbox_settings(name, value) VALUES(\'cache.session_quota_bytes\', 8)')
    refuses(db, "QuotaExceededError.*5 of 8", "SELECT cache_write(?,NULL,NULL,'1234','d')", A)
    exact(db, 'a "b')
    assert rows(db, "SELECT name FROM main.sqlite_schema") == []
    assert json.loads(one(db, "SELECT cache_cleanup_orphans(0, 9000000000000)"))["items"] == 1
    exact(db, 'a "b')


def test_every_function_says_that_the_cache_is_not_installed(path):
    db = connect(path)
    for sql in ("SELECT cache_write('a','b','c','1','d')", "SELECT cache_read('x')",
                "SELECT cache_stats()", "SELECT * FROM cache_list('a')"):
        refuses(db, "^NotInstalledError: Database not initialized: .*"
                r"SELECT blackbox_install\('main', 'cache'\) installs them$", sql)


def test_two_schemas_are_ambiguous_until_chosen(db, tmp_path):
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('other', 'all')")
    refuses(db, "AmbiguousSchemaError", "SELECT cache_write(?,NULL,NULL,'1','d')", A)
    one(db, "SELECT blackbox_use('other')")
    write(db, A, "1")
    assert one(db, "SELECT count(*) FROM other.cache_items") == 1


def test_functions_can_be_called_as_rows_of_blackbox_call(db):
    call = "INSERT INTO blackbox_call VALUES(?,?)"
    db.execute(call, ("cache_write", json.dumps([A, "task0001", "turn0001", "[1]", "d"])))
    k = key(A, "task0001", "turn0001")
    db.execute(call, ("cache_update", json.dumps([k, "[1,2]", "e"])))
    assert read(db, k)["data"] == [1, 2]
    db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="ValidationError: data"):
        db.execute(call, ("cache_write", json.dumps([A, None, None, "{", "d"])))
    db.execute(call, ("cache_delete", json.dumps([k])))
    db.execute("COMMIT")
    db.execute(call, ("cache_clear_session", json.dumps([A])))
    assert one(db, "SELECT count(*) FROM cache_sessions") == 0
    exact(db)


def test_functions_that_write_are_refused_inside_statements_that_write(db):
    db.execute("CREATE TABLE log(x)")
    with pytest.raises(sqlite3.Error, match="unsafe use"):
        db.execute(f"CREATE TRIGGER t AFTER INSERT ON log BEGIN SELECT"
                   f" cache_write('{A}',NULL,NULL,'1','d'); END")
        db.execute("INSERT INTO log VALUES(1)")
    assert one(db, "SELECT count(*) FROM cache_items") == 0


def test_reading_a_file_that_cannot_be_written(db, path):
    k = write(db, A, "[1]")["storageKey"]
    ro = load(sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None))
    assert read(ro, k)["data"] == [1]
    assert one(ro, "SELECT count(*) FROM cache_list(?)", A) == 1
    m = refuses(ro, "^StorageUnavailableError: .*readonly",
                "SELECT cache_write(?,NULL,NULL,'1','d')", A)
    assert "without the cache" in m
    db.execute("PRAGMA query_only = ON")
    assert read(db, k)["data"] == [1]


def test_reading_while_another_connection_writes(db, path):
    k = write(db, A, "[1]")["storageKey"]
    db.execute("PRAGMA journal_mode = WAL")
    other = connect(path, timeout=0.05)
    db.execute("BEGIN IMMEDIATE")
    assert read(other, k)["data"] == [1]
    refuses(other, "^StorageUnavailableError: database is locked",
            "SELECT cache_write(?,NULL,NULL,'1','d')", A, error=sqlite3.OperationalError)
    refuses(other, "^StorageUnavailableError: database is locked",
            "SELECT cache_clear_session(?)", A)
    db.execute("COMMIT")
    write(other, A, "2", task="task0002")
    exact(db)


def test_a_full_file_changes_nothing(db):
    write(db, A, "[1]")
    db.execute("PRAGMA max_page_count = %d" % (one(db, "PRAGMA page_count") + 2))
    for inside in (False, True):
        if inside:
            db.execute("BEGIN")
            db.execute("UPDATE cache_sessions SET last_accessed_at = last_accessed_at + 1")
        refuses(db, "^StorageUnavailableError: database or disk is full",
                "SELECT cache_write(?,NULL,NULL,?,'d')", A, text(100_000))
        if inside:
            assert db.in_transaction
            db.execute("COMMIT")
        assert rows(db, "SELECT total_size, item_count FROM cache_sessions") == [(3, 1)]
        exact(db)


def test_statements_survive_a_change_of_the_schema(db):
    for i in range(3):
        write(db, A, str(i), task="task000%d" % i)
        db.execute(f"CREATE TABLE extra{i}(x)")
    one(db, "SELECT blackbox_install()")
    write(db, A, "9")
    exact(db)


def test_damage_of_the_computed_tables_is_an_error_and_not_a_crash(db):
    k = write(db, A, "[1]")["storageKey"]
    for statement in ("DELETE FROM cache_state", "UPDATE cache_state SET grown = 'x', rule = 'y'",
                      "UPDATE cache_state SET bytes = 'x'; UPDATE cache__limits SET evict = 7",
                      "UPDATE cache_sessions SET kept_size = 'much'",
                      "DROP TRIGGER blackbox_settings_delete; DELETE FROM blackbox_settings"):
        db.execute("BEGIN")
        for part in statement.split(";"):
            db.execute(part)
        for sql in ("SELECT cache_write('%s',NULL,NULL,'1','d')" % A,
                    "SELECT cache_read('%s')" % k, "SELECT cache_stats()",
                    "SELECT cache_stats('%s')" % A, "SELECT cache_read('nope')",
                    "SELECT cache_quota_check('%s', 5)" % A,
                    "SELECT cache_cleanup_orphans(0, 9000000000000, 1)",
                    "SELECT * FROM blackbox_check"):
            try:
                db.execute(sql).fetchall()
            except sqlite3.Error:
                pass
        db.execute("ROLLBACK")
    exact(db)
    for table in ("cache_state", "cache__limits", "cache__note", "cache_sessions"):
        db.execute("BEGIN")
        db.execute(f"DROP TABLE {table}")
        refuses(db, "StorageUnavailableError: .*no such table",
                "SELECT cache_write(?,NULL,NULL,'1','d')", A)
        db.execute("ROLLBACK")
    assert read(db, k)["data"] == [1]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_a_delete_that_fails_does_not_touch_the_session(db, begin):
    write(db, A, "1", now=1000)
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON cache_items BEGIN "
               "SELECT RAISE(ABORT, 'not this one'); END")
    db.execute(begin)
    for delete in ("SELECT cache_delete(?)",
                   "INSERT INTO blackbox_call SELECT 'cache_delete', json_array(?)"):
        with pytest.raises(sqlite3.Error, match="not this one"):
            db.execute(delete, (key(A, "task0001", "turn0001"),))
        assert rows(db, "SELECT last_accessed_at FROM cache_sessions") == [(1000,)]
