"""How long items exist: expiry, quotas, marks, eviction, clean-ups."""
import json
import random
import sqlite3
import time

import pytest

from cache_helpers import A, B, C, T0, cache_faults, exact, key, pdb, put, setting, text
from conftest import ROOT, one, rows

DAY = 86_400_000
TOOL = '{"kind": "tool_result"}'
NOTHING = {"sessions": 0, "items": 0, "bytes": 0, "left": {"held": 0}, "more": False}


def stats(db, *args):
    return json.loads(one(db, f"SELECT cache_stats({','.join('?' * len(args))})", *args))


# ---------------------------------------------------------------- quota ----

@pytest.mark.parametrize("size, percent, state", [
    (48, 100 * 48 / 52_428_800, "normal"),
    (52_428_800 - 4, 100 * (52_428_800 - 4) / 52_428_800, "critical"),
    (52_428_800 * 8 // 10 - 1, None, "normal"), (52_428_800 * 8 // 10, 80, "warning"),
    (52_428_800 * 95 // 100 - 1, None, "warning"), (52_428_800 * 95 // 100, 95, "critical"),
    (52_428_800, 100, "critical"),
])
def test_percentages_of_the_quota_are_not_rounded(db, size, percent, state):
    setting(db, "max_item_bytes", 10**9)
    put(db, A, "task0001", text(size))
    told = stats(db, A)
    assert told["quotaState"] == state and told["quotaRemaining"] == 52_428_800 - size
    assert 0 < told["quotaUsed"] <= 100 and (told["quotaUsed"] == 100) == (size == 52_428_800)
    if percent is not None:
        assert abs(told["quotaUsed"] - percent) < 1e-9
    setting(db, "total_quota_bytes", 52_428_800)
    every = stats(db)
    for name in ("quota", "quotaUsed", "quotaRemaining", "quotaState"):
        assert every[name] == told[name]


def test_without_a_quota_its_figures_are_null(db):
    put(db, A, "task0001", text(50))
    none = dict.fromkeys(["quota", "quotaUsed", "quotaRemaining", "quotaState"])
    told = stats(db)
    assert {k: told[k] for k in none} == none
    setting(db, "session_quota_bytes", 1125899906842624)
    told = stats(db, A)
    assert {k: told[k] for k in none} == none
    setting(db, "total_quota_bytes", 80)
    assert stats(db, A)["quotaRemaining"] == 30


# ------------------------------------------------------------- eviction ----

def test_what_a_hold_keeps_is_passed_over(db):
    one(db, "SELECT blackbox_install('main', 'retention')")
    setting(db, "total_quota_bytes", 300)
    setting(db, "on_quota", "evict_oldest")
    for i, session in enumerate([A, B, C]):
        put(db, session, "task0001", text(100), now=T0 + i)
    one(db, "SELECT retention_hold('session', ?, 'case', 'ann', 'asked')", A)
    check = "SELECT cache_quota_check(?, ?)"
    assert (one(db, check, C, 150), one(db, check, C, 250)) == (50, -50)
    put(db, C, "task0002", text(150), now=T0 + 3)
    assert rows(db, "SELECT session_id, task_id FROM cache_items ORDER BY id") == [
        (A, "task0001"), (C, "task0002")]
    with pytest.raises(sqlite3.IntegrityError, match="QuotaExceededError: all sessions"):
        put(db, C, "task0003", text(250), now=T0 + 4)
    assert rows(db, "SELECT rule, rows, bytes FROM retention_log") == [("evict", 2, 200)]
    exact(db)


def test_there_are_at_most_ten_settings(db):
    assert one(db, "SELECT count(*) FROM blackbox_settings WHERE name GLOB 'cache.*'") <= 10


def test_eviction_is_bounded_alike_in_sql_and_in_c():
    sql = (ROOT / "sql" / "cache.sql").read_text()
    c = (ROOT / "ext" / "cache" / "session.c").read_text()
    assert sql.count(" LIMIT 1001)") == 1 and "#define MAX_EVICTED 1000 " in c
    assert c.count("1125899906842624") >= 2 and "1125899906842624" in sql


# --------------------------------------------------------------- expiry ----

@pytest.mark.parametrize("inside", [False, True], ids=["autocommit", "in BEGIN"])
def test_an_expired_item_is_not_there_and_is_swept(db, inside):
    if inside:
        db.execute("BEGIN")
    write = "SELECT cache_write(?,?,'turn0000',?,'d',NULL,?,?)"
    one(db, write, A, "task0002", "[2]", T0, None)
    one(db, write, A, "task0001", "[1]", T0, T0 + 100)  # the last: the next item removes it
    k = key(A, "task0001")
    assert '"data":[1]' in one(db, "SELECT cache_read(?,NULL,?)", k, T0 + 100)
    assert '"dataSize":3' in one(db, "SELECT cache_update(?,'[3]','d',NULL,NULL,?)", k, T0 + 99)
    for gone in ("SELECT cache_read(?1,NULL,?2)", "SELECT cache_update(?1,'1','d',NULL,NULL,?2)"):
        with pytest.raises(sqlite3.Error, match="ItemNotFoundError"):
            one(db, gone, k, T0 + 101)
    assert rows(db, "SELECT task_id FROM cache_list(?)", A) == [("task0002",)]
    assert rows(db, "SELECT task_id FROM cache_list") == [("task0002",)]
    assert stats(db, A)["itemCount"] == 2  # it counts until it is removed
    clean = "SELECT cache_cleanup_outdated(NULL,?)"
    assert json.loads(one(db, clean, T0 + 100)) == NOTHING
    assert json.loads(one(db, clean, T0 + 101)) == dict(NOTHING, items=1, bytes=3)
    assert rows(db, "SELECT rule, rows, bytes FROM retention_log") == [("expired", 1, 3)]
    exact(db)
    if inside:
        db.execute("ROLLBACK")


def test_an_update_moves_the_expiry_and_a_write_sets_it_anew(db):
    write = "SELECT cache_write(?,'task0001','turn0000','[1]','d',NULL,?,?)"
    at = "SELECT expires_at FROM cache_items"
    one(db, write, A, T0, T0 + 100)
    k = key(A, "task0001")
    one(db, "SELECT cache_update(?,'[2]','d',NULL,NULL,?)", k, T0 + 1)
    assert one(db, at) == T0 + 100
    one(db, "SELECT cache_update(?,'[2]','d',NULL,NULL,?,?)", k, T0 + 1, T0 + 500)
    assert one(db, at) == T0 + 500
    one(db, write, A, T0 + 900, None)  # also over an item that has expired
    assert one(db, at) is None
    for bad in ("soon", -1, 1.5, b"x"):
        with pytest.raises(sqlite3.Error, match="ValidationError: expires_at"):
            one(db, write, A, T0, bad)
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError: timestamp and expires_at"):
            db.execute("UPDATE cache_items SET expires_at = ?", (bad,))
    exact(db)


def test_the_limit_of_a_clean_up_is_for_both_rules(db):
    for i in range(6):
        put(db, A, "task000%d" % i, text(10), now=T0 + i)
    db.execute("UPDATE cache_items SET expires_at = 5 WHERE task_id > 'task0002'")
    clean = "SELECT cache_cleanup_outdated(1,?,?)"
    now = T0 + DAY + 2  # two of them are old, three have expired
    assert json.loads(one(db, clean, now, 3)) == {
        "sessions": 0, "items": 3, "bytes": 30, "left": None, "more": True}
    assert json.loads(one(db, clean, now, 3)) == {
        "sessions": 0, "items": 2, "bytes": 20, "left": {"held": 0}, "more": False}
    assert rows(db, "SELECT rule, rows FROM retention_log ORDER BY 1") == [
        ("age", 2), ("expired", 3)]
    exact(db)


# ------------------------------------------------------------ clean-ups ----

@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_abandoned_sessions_go_with_their_tool_results(db, begin):
    put(db, A, "task0001", text(10), metadata=TOOL)
    put(db, A, "task0002", text(20))
    put(db, B, "task0001", text(30))
    db.execute(begin)
    clean = "SELECT cache_cleanup_orphans(NULL,?)"
    assert json.loads(one(db, clean, T0 + 2 * DAY)) == dict(
        NOTHING, sessions=1, items=1, bytes=30)
    assert json.loads(one(db, clean, T0 + 30 * DAY)) == NOTHING
    assert json.loads(one(db, clean, T0 + 30 * DAY + 1)) == dict(
        NOTHING, sessions=1, items=2, bytes=30)
    assert rows(db, "SELECT rule, rows, bytes FROM retention_log") == [
        ("idle", 1, 30), ("abandoned", 2, 30)]
    exact(db)


def test_how_long_an_abandoned_session_stays_is_a_setting(db):
    put(db, A, "task0001", text(10), metadata=TOOL)
    clean = "SELECT cache_cleanup_orphans(0,?)"
    assert json.loads(one(db, clean, T0 + DAY)) == NOTHING
    setting(db, "max_idle_days", 36500)
    assert json.loads(one(db, clean, T0 + 9000 * DAY)) == NOTHING
    setting(db, "max_idle_days", 0.5)
    assert json.loads(one(db, clean, T0 + DAY // 2)) == NOTHING
    assert json.loads(one(db, clean, T0 + DAY // 2 + 1))["sessions"] == 1


def test_days_may_be_a_fraction(db):
    put(db, A, "task0001", text(10))
    clean = "SELECT cache_cleanup_outdated(?,?)"
    assert json.loads(one(db, clean, 0.5, T0 + DAY // 2)) == NOTHING
    assert json.loads(one(db, clean, 0.5, T0 + DAY // 2 + 1))["items"] == 1
    put(db, A, "task0001", text(10))
    setting(db, "max_age_days", 0.25)
    assert json.loads(one(db, clean, None, T0 + DAY // 4)) == NOTHING
    assert json.loads(one(db, clean, None, T0 + DAY // 4 + 1))["items"] == 1
    for bad in (-0.5, 3e6, "1", float("inf")):
        with pytest.raises(sqlite3.Error, match="ValidationError: days must be a number"):
            one(db, clean, bad, T0)


# --------------------------------------------------------- tool results ----

def test_protected_follows_the_metadata_whatever_is_written(pdb):
    put(pdb, A, "task0001", text(10), metadata=TOOL)
    put(pdb, A, "task0002", text(20), metadata='{"kind": "other"}')
    protected = "SELECT protected FROM cache_items ORDER BY task_id"
    assert rows(pdb, protected) == [(1,), (0,)]
    with pytest.raises(sqlite3.OperationalError, match="generated column"):
        pdb.execute("UPDATE cache_items SET protected = NOT protected")
    pdb.execute("UPDATE cache_items SET custom_metadata = ? WHERE task_id = 'task0002'", (TOOL,))
    pdb.execute("UPDATE cache_items SET custom_metadata = NULL WHERE task_id = 'task0001'")
    assert rows(pdb, protected) == [(0,), (1,)]
    exact(pdb)


@pytest.mark.parametrize("metadata, kept", [
    ('{"a":1, "kind" : "tool_result"}', 1), ('{"a":{"kind":"tool_result"}}', 1),
    ('{"kind":"tool_results"}', 0), ('{"note":"\\"kind\\":\\"tool_result\\""}', 0),
    ('{"kind":["tool_result"]}', 0), ('{"kind":\n"tool_result"}', None)])
def test_a_tool_result_is_known_by_its_text_and_the_check_finds_others(pdb, metadata, kept):
    """JSON in a column would make a file unreadable to some versions."""
    json.loads(metadata)
    put(pdb, A, "task0001", text(10), metadata=metadata)
    assert one(pdb, "SELECT protected FROM cache_items") == (kept or 0)
    assert ("it is a tool result" in str(cache_faults(pdb))) == (kept is None)
    pdb.execute("UPDATE cache_items SET custom_metadata = json(custom_metadata)")
    exact(pdb)


# ----------------------------------------------------------------- keys ----

def parts(rnd, strict):
    letters = "abz09" if rnd.random() < 0.8 else "ab_ -A\x1f\x7f\x80\x9f\xa0é日~^`\U0010ffff"
    good = "conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n" if strict else "s"
    session = good if rnd.random() < 0.7 else "".join(
        rnd.choices(letters, k=rnd.choice([0, 1, 5, 36, 128, 129])))
    if rnd.random() < 0.2:
        session = session[:10] + rnd.choice("_-X\té") + session[11:]
    sizes = [8] * 16 + [0, 1, 7, 9, 128, 129]
    return (session, *("".join(rnd.choices(letters, k=rnd.choice(sizes))) for _ in "ab"))


@pytest.mark.parametrize("strict", [1, 0])
def test_the_format_of_a_key_is_the_same_in_sql_and_in_c(db, strict):
    """cache_read() calls a key invalid exactly if the schema refuses an item with that key,
    parsed from the right."""
    rnd = random.Random(strict)
    setting(db, "strict_session_ids", strict)
    told = {True: 0, False: 0}
    for _ in range(1500):
        session, task, turn = parts(rnd, strict)
        k = key(session, task, turn)
        rest, _, last = k.rpartition("_")
        session, _, middle = rest.rpartition("_")
        db.execute("SAVEPOINT s")
        try:
            put(db, session, middle, "1", turn=last)
            fits = True
        except sqlite3.IntegrityError as error:
            assert "InvalidKeyFormatError" in str(error)
            fits = False
        db.execute("ROLLBACK TO s")
        with pytest.raises(sqlite3.Error) as caught:
            one(db, "SELECT cache_read(?)", k)
        assert ("ItemNotFoundError" in str(caught.value)) == fits, (k, str(caught.value))
        told[fits] += 1
    assert min(told.values()) > 100


def test_an_underscore_in_a_part_is_refused_with_a_hint(db):
    setting(db, "strict_session_ids", 0)
    with pytest.raises(sqlite3.IntegrityError, match="the last two without _, got 's_a_b_c'; use -"):
        one(db, "SELECT cache_write('s','a_b','c','1','d')")
    one(db, "SELECT cache_write('s',replace('a_b','_','-'),'c','1','d')")


@pytest.mark.parametrize("call", ["cache_cleanup_orphans", "cache_cleanup_outdated"])
def test_a_clean_up_says_how_many_it_left_as_they_are_held(db, call):
    one(db, "SELECT blackbox_install('main', 'retention')")
    setting(db, "strict_session_ids", 0)
    for i in range(5):
        one(db, "SELECT cache_write(?, 't', 'u', '1', 'd', NULL, ?)", f"s{i}", T0)
        if i < 2:
            one(db, "SELECT retention_hold('session', ?, 'case', 'ann', 'why')", f"s{i}")
    clean = f"SELECT {call}(1, ?, 2)"
    for expected in ({"items": 2, "more": True, "left": None},
                     {"items": 1, "more": False, "left": {"held": 2}}):
        done = json.loads(one(db, clean, T0 + 9 * DAY))
        assert {name: done[name] for name in expected} == expected


@pytest.mark.parametrize("call", ["cache_cleanup_orphans", "cache_cleanup_outdated"])
def test_a_clean_up_as_a_row_that_is_refused_leaves_the_transaction_as_it_was(db, call):
    db.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: limit"):
        db.execute("INSERT INTO blackbox_call VALUES(?, '[1, null, 0]')", (call,))
    assert db.in_transaction


def test_a_clock_in_doubt_stops_no_write(db):
    db.execute("UPDATE retention__clock SET seen = seen - 9 * 86400000")
    one(db, "SELECT cache_write(?, 'task0001', 'turn0001', '1', 'd', NULL, NULL, 5)", A)
    one(db, "SELECT cache_write(?, 'task0001', 'turn0002', '1', 'd')", A)
    assert one(db, "SELECT count(*) FROM cache_items") == 2  # nothing is removed, either


def test_a_write_finds_what_expired_at_once_or_after_a_second(db):
    """It looks once in a second, and again after each change of its own connection."""
    past = "UPDATE cache_items SET expires_at = 5 WHERE task_id IN ('task0001', 'task0002')"
    for i in range(5):
        put(db, A, "task000%d" % i, text(10), now=T0 + i)
    write = "SELECT cache_write(?,'task0009','turn0000','1','d',NULL,?)"
    one(db, write, A, T0)
    db.execute(past)
    one(db, write, A, T0)
    assert one(db, "SELECT count(*) FROM cache_items") == 4
    other = sqlite3.connect(one(db, "SELECT file FROM pragma_database_list WHERE name = 'main'"),
                            isolation_level=None)
    other.execute(past.replace("01'", "03'"))
    other.close()
    for _ in range(40):  # two seconds
        one(db, write, A, T0)
        time.sleep(0.05)
    assert one(db, "SELECT count(*) FROM cache_items") == 3
    exact(db)
