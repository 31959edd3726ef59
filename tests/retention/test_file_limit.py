"""blackbox.max_file_bytes: the pages in use that a file may have, and what goes for it."""
import json
import subprocess
import sys
import time

import pytest

from conftest import FULL, ROOT, connect, one, problems, rows, some
from retention_helpers import DAY, SESSION
from test_space import PUSH, WRITES, Steps, exchanges, installed

sys.path.insert(0, str(ROOT / "tests/differential"))
from clock import Clock  # noqa: E402

MB = 1_000_000
LIMIT = "blackbox.max_file_bytes"


def used(db):
    pages, free, size = (one(db, f"PRAGMA {name}")
                         for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def limited(path, limit, pack=0, *settings):
    return installed(path, pack, (LIMIT, limit), *settings)


def fill(db, count, seed=1, how="row"):
    for exchange in exchanges(count, seed):
        db.execute(WRITES[how], exchange).fetchall()


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("pack", [0, 1])
def test_writes_keep_the_file_at_its_limit(path, pack, how):
    db = limited(path, 2 * MB, pack)
    fill(db, 1500, how=how)
    assert used(db) <= 2 * MB + 8192
    kept = one(db, "SELECT count(*) FROM event_payloads")
    assert 1500 > kept > 0 and one(db, "PRAGMA page_count") * 4096 <= 2.2 * MB
    # the newest stay
    assert one(db, "SELECT event_id FROM event_payloads ORDER BY rowid DESC LIMIT 1") == "e1499"
    assert one(db, "SELECT sum(rows) FROM retention_log WHERE rule = 'payload.file_bytes'") == (
        1500 - kept)
    if not pack:  # as much as there is room for
        assert one(db, "SELECT sum(size_bytes) FROM event_payloads") > 0.9 * MB
    one(db, "SELECT proof_head()")
    assert problems(db) == []


def test_a_table_of_the_host_that_is_larger_leaves_blackbox_its_share(path):
    """A quarter of the limit stays, whatever others use."""
    db = limited(path, 4 * MB)
    db.execute("CREATE TABLE host AS WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE"
               " i < 6000) SELECT i, randomblob(1000) AS data FROM c")
    fill(db, 200)
    assert one(db, "SELECT count(*) FROM event_payloads") == 200  # less than the share
    fill(db, 1000, seed=2)
    kept = one(db, "SELECT sum(size_bytes) + 400 * count(*) FROM event_payloads")
    assert 0.9 * MB < kept < 1.5 * MB and one(db, "SELECT count(*) FROM host") == 6000
    assert [row[0] for row in rows(db, "SELECT times FROM retention_refusals")] == [1]
    assert "more bytes than its limit" in one(db, "SELECT message FROM retention_refusals")
    db.execute("DROP TABLE host")
    fill(db, 900, seed=3)
    assert one(db, "SELECT sum(size_bytes) FROM event_payloads") > 2 * MB and problems(db) == []


def test_a_write_to_a_full_file_reads_the_schema_once_until_it_changes(path):
    """Steps of the virtual machine; among many tables, a reading of the schema is most of them."""
    db = limited(path, 3 * MB)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    for i in range(300):
        db.execute(f"CREATE TABLE host{i}(a)")
    fill(db, 700)
    steps, exchange = Steps(db, 4, 1), list(exchanges(60, 2))
    for row in exchange[:40]:
        steps.write(PUSH, row)
    assert 500 < max(steps) <= 3000, steps  # 6,700 with a reading
    db.execute("CREATE TRIGGER keeps BEFORE DELETE ON event_payloads BEGIN"
               " SELECT RAISE(ROLLBACK, 'no'); END")
    before = one(db, "SELECT count(*) FROM event_payloads")
    for row in exchange[40:]:
        db.execute(PUSH, row)
    assert one(db, "SELECT count(*) FROM event_payloads") == before
    assert rows(db, "SELECT rule FROM retention_refusals") == [(LIMIT,)]


@pytest.mark.parametrize("begin, end", [(["BEGIN"], ["ROLLBACK"]),
                                        (["SAVEPOINT s"], ["ROLLBACK TO s", "RELEASE s"])])
@pytest.mark.parametrize("how", ["push", "row"])
def test_a_version_of_the_schema_that_was_rolled_back_is_not_taken_for_the_next(
        path, how, begin, end):
    """Both have the same number; in the second a removal would undo the write."""
    db = limited(path, MB)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    fill(db, 400)
    exchange = list(exchanges(60, 2))
    write = {"push": PUSH, "row": WRITES["row"]}[how]
    for sql in [*begin, "CREATE TABLE other(a)"]:
        db.execute(sql)
    for row in exchange[:20]:
        db.execute(write, row).fetchall()
    version = one(db, "PRAGMA schema_version")
    for sql in end:
        db.execute(sql)
    db.execute("CREATE TRIGGER keeps BEFORE DELETE ON event_payloads BEGIN"
               " SELECT RAISE(ROLLBACK, 'no'); END")
    assert one(db, "PRAGMA schema_version") == version
    for row in exchange[20:]:
        db.execute(write, row).fetchall()
    assert rows(db, "SELECT rule FROM retention_refusals") == [(LIMIT,)]


def test_pinned_and_held_rows_stay_and_the_log_says_so_once_a_day(path):
    db = limited(path, 1 * MB)
    fill(db, 150)
    db.execute("UPDATE event_payloads SET pinned = 1 WHERE rowid <= 20")
    one(db, "SELECT retention_hold('agent', 'a3', 'case', 'ann', 'asked for')")
    held = one(db, "SELECT count(*) FROM event_payloads WHERE agent_id = 'a3'")
    fill(db, 400, seed=2)
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 20
    assert one(db, "SELECT count(*) FROM event_payloads WHERE agent_id = 'a3'") >= held > 5
    assert used(db) <= 1 * MB + 8192
    assert rows(db, "SELECT domain, kind, subject FROM blackbox_log WHERE kind = 'refusal'") == [
        ("core", "refusal", LIMIT)]
    assert " are held" in one(db, "SELECT reason FROM blackbox_log WHERE kind = 'refusal'")
    one(db, "SELECT proof_head()")
    assert problems(db) == []


def test_more_held_rows_than_are_looked_at_do_not_protect_the_others(path):
    db = limited(path, 1 * MB)
    db.execute("UPDATE blackbox_settings SET value = 0 WHERE name = ?", (LIMIT,))
    db.executemany(WRITES["row"], [(f"h{i}", "held", "q", "r" * 100) for i in range(450)])
    one(db, "SELECT retention_hold('agent', 'held', 'case', 'ann', 'asked for')")
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (MB, LIMIT))
    fill(db, 600)
    assert used(db) <= 1 * MB + 8192
    assert one(db, "SELECT count(*) FROM event_payloads WHERE agent_id = 'held'") == 450


@pytest.mark.parametrize("pack", [0, 1])
def test_held_rows_of_the_archive_do_not_make_the_cache_go_before_the_others(path, pack):
    db = limited(path, 0, pack)
    one(db, "SELECT blackbox_install('main', 'cache')")
    db.executemany(WRITES["row"], [(f"h{i}", "held", "q", "r" * 100) for i in range(950)])
    one(db, "SELECT retention_hold('agent', 'held', 'case', 'ann', 'asked for')")
    for i in range(100):
        one(db, "SELECT cache_write(?, ?, ?, ?, 'd')", SESSION, f"t{i:07}", f"u{i:07}",
            json.dumps("x" * 4000))
    fill(db, 300)
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (used(db) - 400_000, LIMIT))
    db.executemany(WRITES["row"], [(f"n{i}", "new", "q", "r") for i in range(500)])
    assert one(db, "SELECT count(*) FROM event_payloads WHERE agent_id LIKE 'a%'") < 300
    assert one(db, "SELECT count(*) FROM cache_items") == 100
    assert one(db, "SELECT count(*) FROM event_payloads WHERE agent_id = 'held'") == 950
    assert one(db, f"SELECT value FROM blackbox_settings WHERE name = '{LIMIT}'") >= used(db) - 8192


@pytest.mark.parametrize("mode", ["durable", "memory"])
@pytest.mark.parametrize("sql", [
    "SELECT payload_queue(?, 'a', 'q', 'r', 9000)",
    "INSERT INTO payload_queue(event_id, agent_id, request_body, timestamp)"
    " VALUES(?, 'a', 'q', 9000)"])
def test_a_row_is_not_what_its_own_write_removes(path, mode, sql):
    db = limited(path, 0, 0, ("payload.queue_mode", mode))
    fill(db, 20)
    one(db, "SELECT payload_flush()")
    db.execute("UPDATE blackbox_settings SET value = 4096 WHERE name = ?", (LIMIT,))
    for i, most in enumerate((8, 4, 4)):  # the oldest row of the file; 16 go with each
        db.close()
        db = connect(path)
        db.execute(sql, (f"h{i}",)).fetchall()
        one(db, "SELECT payload_flush()")
        ids = {key for key, in rows(db, "SELECT event_id FROM event_payloads")}
        assert f"h{i}" in ids and len(ids) < most
    assert problems(db) == []


def test_an_item_is_not_what_its_own_write_removes(path):
    db = domains(path)
    for i in range(20):
        db.execute(CACHE, (f"u{i}", json.dumps("x" * 3000), None)).fetchall()
    db.execute("UPDATE blackbox_settings SET value = 4096 WHERE name = ?", (LIMIT,))
    for sql in ("SELECT cache_update('s_t_u9', '[1]', 'd', NULL, NULL, 3000)",
                "SELECT cache_write('s', 't', 'u9', '[1]', 'd', NULL, 2000)",
                "SELECT cache_write('s', 't', 'new', '[1]', 'd', NULL, 1000)"):
        db.close()
        db = connect(path)
        key = json.loads(one(db, sql))["storageKey"]
        keys = {kept for kept, in rows(db, "SELECT storage_key FROM cache_items")}
        assert key in keys and len(keys) < 20
    assert problems(db) == []


@pytest.mark.parametrize("refuse", [
    "CREATE TRIGGER mine BEFORE DELETE ON event_payloads BEGIN SELECT RAISE(ROLLBACK, 'no'); END",
    "CREATE TEMP TRIGGER mine BEFORE DELETE ON main.event_payloads"
    " WHEN OLD.event_id <> 'e3' BEGIN SELECT RAISE(ABORT, 'not this'); END",
])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("how", WRITES)
def test_what_a_trigger_refuses_fails_no_write(path, how, begin, refuse):
    db = limited(path, MB)
    db.execute(refuse)
    if begin:
        db.execute(begin)
    fill(db, 400, how=how)
    if begin:
        db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM event_payloads") >= 399
    said = one(db, "SELECT reason FROM blackbox_log WHERE kind = 'refusal'")
    assert "cannot be removed" in said and ("not this" in said or "ROLLBACK" in refuse)
    assert one(db, "SELECT work FROM payload__state") == 0


def domains(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("PRAGMA synchronous = OFF")
    for name, value in (("payload.enabled", 1), ("cache.strict_session_ids", 0),
                        (LIMIT, 2 * MB)):
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (value, name))
    return db


CACHE = "SELECT cache_write('s', 't', ?, ?, 'd', ?)"


def test_packed_conversations_count_as_what_they_take(path):
    db = limited(path, 0)
    one(db, "SELECT blackbox_install('main', 'rollout')")
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'rollout.pack'")
    old, names = int(time.time() * 1000) - 3 * DAY, [f"5973b6c0-94b8-487b-a530-2aeb6098a{i:03}" for i in range(100)]
    for i, name in enumerate(names):
        one(db, "SELECT rollout_create(?, NULL, 1, NULL, ?)", name, old + i)
        one(db, "SELECT rollout_append(?, ?, ?)", name, json.dumps([
            {"type": "event_msg", "payload": {"type": "agent_message", "message": f"{name} {n} " * 60}}
            for n in range(40)]), old + i)
    before = used(db)
    assert one(db, "SELECT sum(bytes) FROM rollouts") > 4 * before
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (before * 3 // 5, LIMIT))
    new = connect(path)
    now = one(new, "SELECT rollout_create(NULL)")
    item, left = json.dumps({"type": "event_msg", "payload": {"type": "agent_message", "message": "m"}}), []
    while used(db) > before * 3 // 5 and len(left) < 300:
        one(new, "SELECT rollout_append(?, ?)", now, item)
        left.append(one(db, "SELECT count(*) FROM rollouts"))
    assert 10 < left[0] - left[3] < 50, left  # those that take what the file is above, and not a fifth of them
    assert used(db) <= before * 3 // 5 and left[-1] > 30
    one(db, "SELECT proof_head()")
    assert problems(db) == []


def test_the_archive_goes_first_then_the_cache_then_what_has_expired(path):
    db = domains(path)
    for i in range(150):
        db.execute(CACHE, (f"u{i}", json.dumps("x" * 3000), None)).fetchall()
    one(db, CACHE, "result", json.dumps("y" * 3000), '{"kind":"tool_result"}')
    fill(db, 150)
    new, old = (f"5973b6c0-94b8-487b-a530-2aeb6098ae0{i}" for i in range(2))
    one(db, "SELECT rollout_create(?)", new)
    one(db, "SELECT rollout_create(?, NULL, 1, NULL, ?)", old, int(time.time() * 1000) - 3 * DAY)
    item = json.dumps({"type": "event_msg",
                       "payload": {"type": "agent_message", "message": "m" * 20000}})
    seen = []
    for _ in range(110):
        one(db, "SELECT rollout_append(?, ?)", new, item)
        now = (one(db, "SELECT count(*) FROM event_payloads"),
               one(db, "SELECT count(*) FROM cache_items"),
               one(db, "SELECT count(*) FROM rollouts"))
        if now not in seen:
            seen.append(now)
    archive, cache, rollouts = zip(*seen, strict=True)
    assert (archive[0], cache[0], rollouts[0]) == (150, 151, 2)
    assert archive[-1] == 0 and cache[-1] < 151 and rollouts[-1] == 1
    assert all(items == 151 for left, items, _ in seen if left > 5)
    assert all(left < 5 and items < 151 for left, items, both in seen if both == 1)
    assert one(db, "SELECT count(*) FROM cache_items WHERE protected") == 1
    assert {"payload.file_bytes", "file_bytes", "rollout.expired"} == {
        rule for rule, in rows(db, "SELECT rule FROM retention_log")}
    one(db, "SELECT proof_head()")
    assert problems(db) == []


def test_a_clean_up_counts_what_goes_of_every_domain_up_to_its_limit_and_says_if_more_is_due(path):
    db = domains(path)
    db.execute("UPDATE blackbox_settings SET value = 0 WHERE name = ?", (LIMIT,))
    for pragma in "PRAGMA auto_vacuum = 0", "VACUUM":  # so that no free pages are more
        db.execute(pragma)
    fill(db, 20)
    for i in range(1000):
        db.execute(CACHE, (f"u{i}", json.dumps("x" * 3000), None)).fetchall()
    old = int(time.time() * 1000) - 3 * DAY
    item = json.dumps({"type": "event_msg",
                       "payload": {"type": "agent_message", "message": "m" * 60000}})
    for i in range(40):
        name = f"5973b6c0-94b8-487b-a530-2aeb6098a{i:03}"
        one(db, "SELECT rollout_create(?, NULL, 1, NULL, ?)", name, old)
        one(db, "SELECT rollout_append(?, ?, ?)", name, item, old)
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (MB, LIMIT))
    count = "SELECT " + " + ".join(f"(SELECT count(*) FROM {table})" for table in (
        "event_payloads", "cache_items", "rollouts"))
    calls = []
    while not calls or calls[-1]["more"]:
        before, taken = one(db, count), one(db, "SELECT sum(bytes) FROM retention_log") or 0
        calls.append(json.loads(one(db, "SELECT payload_cleanup(NULL, NULL, 70)")))
        assert calls[-1]["rows"] == before - one(db, count) <= 70
        assert calls[-1]["bytes"] == one(db, "SELECT sum(bytes) FROM retention_log") - taken
    assert used(db) <= MB and len(calls) > 10 and one(db, "SELECT count(*) FROM rollouts") < 40


def test_the_sweep_removes_what_the_plan_lists(path):
    db = domains(path)
    db.execute("UPDATE blackbox_settings SET value = 0 WHERE name = ?", (LIMIT,))
    for i in range(100):
        db.execute(CACHE, (f"u{i}", json.dumps("x" * 3000), None)).fetchall()
    fill(db, 300)
    one(db, "SELECT retention_hold('agent', 'a3', 'case', 'ann', 'asked for')")
    for limit, parts in ((1_800_000, {"payload"}), (850_000, {"payload", "cache"})):
        db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (limit, LIMIT))
        plan = rows(db, 'SELECT rule, "table", key, bytes, reason, due - at, blocked_by'
                        " FROM retention_plan")
        assert {row[0] for row in plan} == {f"{part}.file_bytes" for part in parts}
        assert {row[4:] for row in plan if row[6] is None} == {(f"{LIMIT} = {limit}", 0, None)}
        going = {row[2] for row in plan if row[6] is None}
        before = {key for key, in rows(db, "SELECT id FROM event_payloads UNION ALL"
                                           " SELECT storage_key FROM cache_items")}
        swept = json.loads(one(db, "SELECT retention_sweep(10000)"))
        assert swept["removed"] == len(going) and not swept["more"]
        assert swept["bytes"] == sum(row[3] for row in plan if row[6] is None)
        assert before - going == {key for key, in rows(
            db, "SELECT id FROM event_payloads UNION ALL SELECT storage_key FROM cache_items")}
        assert limit - 0.2 * MB < used(db) <= limit
    assert one(db, "SELECT count(*) FROM event_payloads WHERE agent_id = 'a3'") > 20
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("pack, wal", some([(1, False), (0, False), (1, True), (0, True)], 4))
def test_in_a_year_a_file_stays_at_its_limit_and_stops_growing(path, pack, wal):
    hours = 1 if FULL else 4  # between rows; as many are kept
    db = limited(path, 3 * MB, pack, ("payload.retention_days", 30 * hours))
    if wal:
        one(db, "PRAGMA journal_mode = WAL")
    assert one(db, "PRAGMA auto_vacuum") == 2
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=20)")
    files = []
    with Clock() as clock:
        db.execute("UPDATE retention__clock SET seen = unixepoch() * 1000")
        for i, exchange in enumerate(exchanges(365 * 24 // hours)):
            clock.now += 3_600_000 * hours
            db.execute(WRITES["row"], exchange)
            if i % 4 == 0:
                db.execute(PUSH, exchange)
            if (i + 1) % (730 // hours) == 0:
                files.append((used(db), one(db, "PRAGMA page_count") * 4096))
        one(db, "SELECT proof_head()")
        assert problems(db) == []
    assert all(pages <= 1.03 * 3 * MB and file <= 1.1 * 3 * MB for pages, file in files)
    assert files[-1][1] <= 1.03 * max(files[-4][1], 3 * MB)  # below it, the log still grows
    assert one(db, "SELECT count(*) FROM event_payloads") > 180


WRITER = """
import sys
sys.path[:0] = [{tests!r}, {retention!r}]
from conftest import connect
from test_space import WRITES, exchanges
db = connect({path!r})
db.execute("PRAGMA busy_timeout = 60000")
db.execute("PRAGMA synchronous = OFF")
for exchange in exchanges(150, seed=int(sys.argv[1])):
    db.execute(WRITES["row"], exchange)
"""


def test_twelve_writers_end_at_the_limit(path):
    db = limited(path, 3 * MB)
    one(db, "PRAGMA journal_mode = WAL")
    fill(db, 500)
    code = WRITER.format(tests=str(ROOT / "tests"), retention=str(ROOT / "tests/retention"),
                         path=str(path))
    writers = [subprocess.Popen([sys.executable, "-c", code, str(i)]) for i in range(12)]
    assert [writer.wait() for writer in writers] == [0] * 12
    assert used(db) <= 3 * MB + 12 * 12_000
    assert one(db, "PRAGMA page_count") * 4096 <= 3.3 * MB
    assert one(db, "SELECT count(*) FROM event_payloads") > 300
    one(db, "SELECT proof_head()")
    assert problems(db) == []
