"""Clean-up, saved evidence, figures, settings, receipts and installs."""
import datetime
import json
import os
import sqlite3
import time

import pytest

from conftest import by_hand, connect, one, rows, shell, some

DAY = 86400000
NOW = 1800000000000  # 2027-01-15T08:00:00Z


def stamp(ms, old_form=False):
    at = datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc)
    if old_form:
        return at.strftime("%Y-%m-%d %H:%M:%S")
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03}Z"


def add(db, id, ms, purpose="archive", pinned=0, body="12345", old_form=False,
        table="event_payloads"):
    db.execute(f"INSERT INTO {table}(id, event_id, agent_id, request_body, purpose,"
               " pinned, created_at) VALUES(?,'e','a',?,?,?,?)",
               (id, body, purpose, pinned, stamp(ms, old_form)))


def ids(db):
    return [r[0] for r in rows(db, "SELECT id FROM event_payloads ORDER BY rowid")]


def receipts(db, columns="rule, actor, rows, bytes, oldest, newest"):
    return rows(db, f"SELECT {columns} FROM retention_log ORDER BY id")


@pytest.fixture
def archive(db):
    db.execute("PRAGMA synchronous=OFF")
    return db


# ---- payload_cleanup


@pytest.mark.parametrize("days", [0, 1, 7, 0.5, 400, 1e-9])
def test_cut_off_is_by_time_strictly_before(archive, days):
    cut = NOW - int(days * DAY)
    for old_form in (False, True):
        whole = cut // 1000 * 1000
        add(archive, f"before {old_form}", whole - 1000, old_form=old_form)
        add(archive, f"after {old_form}", whole + 1000, old_form=old_form)
    add(archive, "just before", cut - 1)
    add(archive, "exactly", cut)
    assert one(archive, "SELECT payload_cleanup(?, ?) ->> '$.rows'", days, NOW) == 3
    assert ids(archive) == ["after False", "after True", "exactly"]


def test_without_arguments_the_setting_and_the_clock_count(archive):
    now = int(time.time() * 1000)
    for days in (6, 8, 20, 40):
        add(archive, f"{days}", now - days * DAY)
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 3
    add(archive, "20", now - 20 * DAY)
    add(archive, "40", now - 40 * DAY)
    archive.execute("INSERT INTO blackbox_settings(name, value) "
                    "VALUES('payload.retention_days', 30)")
    assert one(archive, "SELECT payload_cleanup(NULL, NULL) ->> '$.rows'") == 1
    assert ids(archive) == ["6", "20"]
    assert one(archive, "SELECT payload_cleanup(NULL, ?) ->> '$.rows'", now + 11 * DAY) == 1
    assert ids(archive) == ["6"]


def test_pinned_rows_and_evidence_stay(archive):
    add(archive, "ev", 0, "evidence")
    add(archive, "pin", 0, pinned=1)
    add(archive, "old", 0)
    assert one(archive, "SELECT payload_cleanup(0, ?) ->> '$.rows'", NOW) == 1
    add(archive, "old", 0)
    assert one(archive, "SELECT payload_clear_archive()") == 1
    assert ids(archive) == ["ev", "pin"]
    one(archive, "SELECT payload_unpin('ev', 'a', 'r')")
    one(archive, "SELECT payload_unpin('pin', 'a', 'r')")
    assert one(archive, "SELECT payload_cleanup(0, ?) ->> '$.rows'", NOW) == 1
    assert ids(archive) == ["ev"]  # free, but clean-up takes archive rows only


def test_limit_takes_the_oldest_first(archive):
    for i in range(10):
        add(archive, f"r{i}", 1000 * (10 - i))
    assert one(archive, "SELECT payload_cleanup(0, ?, 4) ->> '$.rows'", NOW) == 4
    assert ids(archive) == [f"r{i}" for i in range(6)]
    assert one(archive, "SELECT payload_cleanup(0, ?, 100) ->> '$.rows'", NOW) == 6
    assert one(archive, "SELECT payload_cleanup(0, ?, 100) ->> '$.rows'", NOW) == 0
    assert [r[2] for r in receipts(archive)] == [4, 6]


def test_one_call_is_bounded_without_a_limit(archive):
    archive.execute("WITH n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE "
                    "i < 10050) INSERT INTO event_payloads(event_id, agent_id, "
                    "purpose, created_at) SELECT i, 'a', 'archive', '2020-01-01' "
                    "FROM n")
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 10000
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 50


@pytest.mark.parametrize(
    "arguments, message",
    [((-1,), "days must be a number of 0 or more, got -1"), (("7",), "got '7'"),
     (("x",), "got 'x'"), ((b"7",), "a blob"), ((-0.001,), "got -0.001"),
     ((float("-inf"),), "days must be"), ((7, "now"), "now must be a time"),
     ((7, -1), "now must be"), ((7, 1.5), "now must be"),
     ((7, 2 ** 60), "now must be"), ((7, NOW, 0), "limit must be a whole number"),
     ((7, NOW, -5), "limit"), ((7, NOW, "9"), "limit"), ((7, NOW, 1.5), "limit"),
     ((7, NOW, 2 ** 40), "limit")])
def test_cleanup_refuses(archive, arguments, message):
    add(archive, "old", 0)
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: .*" + message):
        archive.execute("SELECT payload_cleanup(?,?,?)"
                        .replace("?,?,?", ",".join("?" * len(arguments))), arguments)
    assert ids(archive) == ["old"] and receipts(archive) == []
    with pytest.raises(sqlite3.OperationalError, match="wrong number of arguments"):
        archive.execute("SELECT payload_cleanup(1,2,3,4)")


@pytest.mark.parametrize("days", [float("inf"), 1e300, 10 ** 12, 2 ** 62])
def test_an_infinite_number_of_days_removes_nothing(archive, days):
    add(archive, "old", 0)
    assert one(archive, "SELECT payload_cleanup(?, ?) ->> '$.rows'", days, NOW) == 0


def test_cleanup_runs_though_the_archive_is_off_and_as_a_row(archive):
    add(archive, "old", 0)
    archive.execute("INSERT INTO blackbox_call(command, arguments) "
                    "VALUES('payload_cleanup', json_array(0, ?))", (NOW,))
    assert ids(archive) == []


def test_plain_sql_cleans_up(archive, path):
    for i in range(4):
        add(archive, f"r{i}", i)
    add(archive, "pin", 0, pinned=1)
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("DELETE FROM event_payloads WHERE created_ms < 3 AND pinned = 0")
    assert receipts(plain) == [("manual", None, 3, 15, 0, 2)]
    assert ids(plain) == ["r3", "pin"]


def test_cleanup_rolls_back(archive):
    add(archive, "old", 0)
    archive.execute("BEGIN")
    assert one(archive, "SELECT payload_cleanup(0, ?) ->> '$.rows'", NOW) == 1
    archive.execute("ROLLBACK")
    assert ids(archive) == ["old"] and receipts(archive) == []
    assert rows(archive, "SELECT * FROM blackbox_check") == []


def test_a_failing_cleanup_leaves_all_as_it_was(archive):
    for i in range(3):
        add(archive, f"r{i}", i)
    for kind in ("ABORT", "FAIL", "ROLLBACK"):
        archive.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads WHEN "
                        f"OLD.id = 'r1' BEGIN SELECT RAISE({kind}, 'not r1'); END")
        for call in "SELECT payload_cleanup(0, 10)", "SELECT payload_clear_archive()":
            if "cleanup" in call and kind != "ROLLBACK":
                continue
            with pytest.raises(sqlite3.IntegrityError, match="not r1"):
                archive.execute(call)
            assert ids(archive) == ["r0", "r1", "r2"]
            assert rows(archive, "SELECT work FROM payload__state") == [(0,)]
        archive.execute("DROP TRIGGER mine")
    assert receipts(archive) == []


@pytest.mark.parametrize("kind", ["ABORT", "FAIL", "IGNORE"])
def test_a_cleanup_passes_over_what_is_pinned_held_or_refused_and_counts_it(archive, kind):
    one(archive, "SELECT blackbox_install('main', 'retention')")
    for i in range(10):
        add(archive, f"r{i}", i, body="12345", pinned=i == 2)
    for key in "r3", "r4":
        one(archive, "SELECT retention_hold('evidence', ?, 'case', 'ann', 'asked')", key)
    text = "" if kind == "IGNORE" else ", 'not this one'"
    archive.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads WHEN OLD.id IN"
                    f" ('r1', 'r7', 'r9') BEGIN SELECT RAISE({kind}{text}); END")
    done = json.loads(one(archive, "SELECT payload_cleanup(0, 10)"))
    assert done == {"rows": 4, "bytes": 20, "freed": 0, "givenBack": 0,
                    "left": {"pinned": 1, "held": 2, "refused": 3}, "more": False}
    assert ids(archive) == ["r1", "r2", "r3", "r4", "r7", "r9"]
    assert receipts(archive, "rows, bytes") == [(4, 20)]
    assert rows(archive, "SELECT work FROM payload__state") == [(0,)]
    done = json.loads(one(archive, "SELECT payload_cleanup(0, 10, 2)"))
    assert done["rows"] == 0 and done["left"]["refused"] == 3 and not done["more"]


def test_a_cleanup_says_what_it_gave_back_and_whether_more_is_due(archive):
    archive.execute("BEGIN")
    for i in range(3000):
        add(archive, f"r{i}", i, body="x" * 3000)
    archive.execute("COMMIT")
    calls = []
    while not calls or calls[-1]["more"]:
        before = [one(archive, f"PRAGMA {name}") for name in ("page_count", "freelist_count")]
        calls.append(json.loads(one(archive, "SELECT payload_cleanup(0, ?, 1000)", NOW)))
        after = [one(archive, f"PRAGMA {name}") for name in ("page_count", "freelist_count")]
        assert calls[-1]["givenBack"] == (before[0] - after[0]) * 4096
        assert calls[-1]["freed"] == (before[0] - before[1] - after[0] + after[1]) * 4096
    assert [call["rows"] for call in calls][:4] == [1000, 1000, 1000, 0]
    assert sum(call["bytes"] for call in calls) == 9_000_000
    assert one(archive, "PRAGMA freelist_count") == 0
    assert sum(call["givenBack"] for call in calls) > 9_000_000


@pytest.mark.parametrize("call, keep, gone, left", [
    ("SELECT payload_cleanup(0, 10)", "'r1', 'r3'", 8, 2),
    ("SELECT payload_cleanup(0, 10, 4)", "'r1', 'r3'", 2, 8),
    ("SELECT payload_cleanup(0, 10)", "id", 0, 10),
    ("SELECT payload_clear_archive()", "'r1', 'r3'", 8, 2),
    ("SELECT payload_clear_archive()", "id", 0, 10)])
def test_a_receipt_counts_the_rows_and_bytes_that_were_removed(archive, call, keep, gone, left):
    for i in range(10):
        add(archive, f"r{i}", i, body="x" * i)
    archive.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads WHEN OLD.id "
                    f"IN ({keep.replace('id', 'OLD.id')}) BEGIN SELECT RAISE(IGNORE); END")
    before = one(archive, "SELECT sum(size_bytes) FROM event_payloads")
    read = call + " ->> '$.rows'" * ("cleanup" in call)
    assert one(archive, read) == gone
    after = one(archive, "SELECT sum(size_bytes) FROM event_payloads")
    assert len(ids(archive)) == left
    assert receipts(archive, "rows, bytes") == ([(gone, before - after)] if gone else [])
    archive.execute("DROP TRIGGER mine")
    assert one(archive, read) > 0 and rows(archive, "SELECT * FROM blackbox_check") == []


def test_plan_lists_exactly_what_the_act_removes(archive):
    add(archive, "ev", 0, "evidence")
    add(archive, "pin", 5, pinned=1)
    for i in range(20):
        add(archive, f"r{i}", i * 1000, old_form=i % 2)
    one(archive, "SELECT blackbox_install('main', 'retention')")
    plan = "SELECT key, bytes FROM retention_plan({}) WHERE blocked_by ".format(11500 + 7 * DAY)
    due = rows(archive, plan + "IS NULL ORDER BY due")
    assert rows(archive, plan + "= 'pinned'") == [("pin", 5)]
    before = set(ids(archive))
    one(archive, "SELECT payload_cleanup(0, 11500)")
    assert before - set(ids(archive)) == {r[0] for r in due}
    assert receipts(archive, "rows, bytes") == [(len(due), sum(r[1] for r in due))]
    assert rows(archive, 'SELECT rule, "view", setting, unit_ms, "table" FROM retention_rules'
                " WHERE domain = 'payload'") \
        == [("payload.age", None, "payload.retention_days", DAY, "event_payloads"),
            ("payload.file_bytes", None, "blackbox.max_file_bytes", 0, "event_payloads")]


# ---- receipts


def test_a_bulk_act_leaves_one_receipt_and_an_empty_one_leaves_none(archive):
    for i in range(3):
        add(archive, f"r{i}", 1000 * i)
    one(archive, "SELECT payload_cleanup(0, 2000)")
    one(archive, "SELECT payload_cleanup(0, 2000)")
    one(archive, "SELECT payload_clear_archive()")
    one(archive, "SELECT payload_clear_archive()")
    assert receipts(archive) == [
        ("payload.age", "payload_cleanup", 2, 10, 0, 1000),
        ("clear", "payload_clear_archive", 1, 5, 2000, 2000)]
    assert one(archive, "SELECT count(*) FROM retention_log WHERE abs(at - "
               "(julianday('now') - 2440587.5) * 86400000) < 60000 "
               "AND domain = 'payload' AND minute IS NULL") == 2


def test_plain_deletes_share_a_receipt_a_minute(archive, path):
    for i in range(30):
        add(archive, f"r{i}", 1000 * i, body="x" * i)
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("UPDATE blackbox_settings SET value = 30000 WHERE name = 'payload.history_until'")
    plain.execute("DELETE FROM event_payloads WHERE id IN ('r3', 'r5')")
    for i in range(6, 30):
        plain.execute(f"DELETE FROM event_payloads WHERE id = 'r{i}'")
    found = receipts(plain, "rule, actor, sum(rows), sum(bytes), min(oldest), "
                     "max(newest), count(*) <= 2")
    assert found == [("manual", None, 26, sum(range(6, 30)) + 8, 3000, 29000, 1)]
    # rows whose date cannot be read have no oldest and newest
    plain.execute("DROP TRIGGER payload_insert")
    plain.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, "
                  "created_at) VALUES('now', 'e', 'a', 'archive', 'now')")
    plain.execute("DELETE FROM event_payloads WHERE id = 'now'")
    assert receipts(plain, "sum(rows), min(oldest), max(newest)") == [(27, 3000, 29000)]


def test_receipts_go_with_their_transaction(archive):
    add(archive, "a", 0)
    archive.execute("BEGIN")
    archive.execute("DELETE FROM event_payloads")
    assert len(receipts(archive)) == 1
    archive.execute("ROLLBACK")
    assert receipts(archive) == []


# ---- payload_save_evidence


def save(db, kill, *items):
    return one(db, "SELECT payload_save_evidence(?,?)", kill,
               json.dumps(items, ensure_ascii=False))


ITEM = {"eventId": "e1", "agentId": "a", "requestBody": "q é🤖", "responseBody": "r",
        "timestamp": 1700000000123}


def test_save_evidence_writes_pinned_rows_in_order_at_once(archive, path):
    snake = {"event_id": "e2", "agent_id": "b", "request_body": None}
    assert save(archive, "k", ITEM, snake, {**ITEM, "eventId": "e3"}) == 3
    other = connect(path)
    assert rows(other, "SELECT event_id, agent_id, request_body, response_body, "
                "size_bytes, purpose, pinned, kill_switch_event_id "
                "FROM event_payloads ORDER BY rowid") \
        == [("e1", "a", "q é🤖", "r", 9, "evidence", 1, "k"),
            ("e2", "b", None, None, 0, "evidence", 1, "k"),
            ("e3", "a", "q é🤖", "r", 9, "evidence", 1, "k")]
    assert one(other, "SELECT created_at FROM event_payloads WHERE event_id='e1'") \
        == "2023-11-14T22:13:20.123Z"
    assert one(other, "SELECT abs(julianday(created_at) - julianday('now')) < 0.01 "
               "FROM event_payloads WHERE event_id = 'e2'") == 1
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        other.execute("DELETE FROM event_payloads")


def test_saving_again_adds_nothing_twice(archive):
    timeless = {"eventId": "t", "agentId": "a"}
    assert save(archive, "k", ITEM, timeless) == 2
    assert save(archive, "k", ITEM, timeless) == 0
    assert save(archive, "k", {**ITEM, "timestamp": 1700000000123.0}) == 0
    for change in ({"timestamp": 5}, {"eventId": "e9"}, {"agentId": "z"},
                   {"requestBody": None}, {"responseBody": "other"}):
        assert save(archive, "k", {**ITEM, **change}) == 1
        assert save(archive, "k", {**ITEM, **change}) == 0
    assert save(archive, "k2", ITEM) == 1


def test_evidence_is_saved_though_the_archive_is_off(archive):
    archive.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 0)")
    assert save(archive, "k", ITEM) == 1
    assert save(archive, "k") == 0
    archive.execute("INSERT INTO blackbox_call(command, arguments) VALUES("
                    "'payload_save_evidence', json_array('k3', ?))",
                    (json.dumps([ITEM]),))
    assert one(archive, "SELECT count(*) FROM event_payloads") == 2


BODIES = ["a\0b", "\0", "\0\0x", "\\", "\\u0000", "\\\0", "\\\\u0000\0\\", "é\0🤖",
          "\ufdd0", '"\0"', "", "\n\t\x01"]


@pytest.mark.parametrize("as_row", [False, True])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_saved_bodies_are_byte_identical(archive, ascii_only, as_row):
    items = json.dumps([{**ITEM, "eventId": f"e{i}", "requestBody": body,
                         "responseBody": BODIES[-i]} for i, body in enumerate(BODIES)],
                       ensure_ascii=ascii_only)
    if as_row:
        archive.execute("INSERT INTO blackbox_call VALUES('payload_save_evidence', ?)",
                        (json.dumps(["k", items]),))
    else:
        assert one(archive, "SELECT payload_save_evidence('k', ?)", items) == len(BODIES)
    assert rows(archive, "SELECT request_body, response_body, size_bytes "
                "FROM event_payloads ORDER BY rowid") \
        == [(body, BODIES[-i], len((body + BODIES[-i]).encode()))
            for i, body in enumerate(BODIES)]
    assert one(archive, "SELECT payload_save_evidence('k', ?)", items) == 0


def test_a_value_that_is_not_a_string_is_saved_as_its_json(archive):
    text = ('[{"eventId":7,"agentId":1.5,"requestBody":true,"responseBody":false},'
            '{"event_id":"e","eventId":null,"agentId":"a","agentId":"b",'
            '"requestBody":{"a":[1,"\\u0000"]},"responseBody":12.50},'
            '{"eventId":18446744073709551615,"agentId":"a",'
            '"requestBody":12345678901234567890},'
            '{"eventId":18446744073709551614,"agentId":"a"}]')
    assert one(archive, "SELECT payload_save_evidence('k', ?)", text) == 4
    assert rows(archive, "SELECT event_id, agent_id, request_body, response_body "
                "FROM event_payloads ORDER BY rowid") == [
        ("7", "1.5", "true", "false"),
        ("e", "a", '{"a":[1,"\\u0000"]}', "12.50"),
        ("18446744073709551615", "a", "12345678901234567890", None),
        ("18446744073709551614", "a", None, None)]


@pytest.mark.parametrize("element, message", [
    ('{"eventId":true,"agentId":"a"}', "has no eventId"),
    ('{"eventId":{"a":1},"agentId":"a"}', "has no eventId"),
    ('{"eventId":[],"agentId":"a"}', "has no eventId"),
    ('{"eventId":"e\\u0000 1","agentId":"a"}', "has no eventId"),
    ('{"eventId":"e","agentId":{"x":1}}', "has no agentId"),
    ('{"eventId":"e","agentId":false}', "has no agentId"),
    ('{"eventId":"e","agentId":"\\u0000"}', "has no agentId"),
    ('{"eventId":"e","agentId":"a","requestBody":"x\\ud800y"}', "half a surrogate"),
    ('{"eventId":"e","agentId":"a","response_body":"\\uDC00"}', "half a surrogate"),
    ('{"eventId":"\\udbff","agentId":"a"}', "half a surrogate"),
])
def test_an_element_that_a_row_cannot_hold_is_refused(archive, element, message):
    good = json.dumps(ITEM)
    with pytest.raises(sqlite3.IntegrityError,
                       match=f"element 1 of payloads .*{message}.*nothing was saved"):
        archive.execute("SELECT payload_save_evidence('k', ?)", (f"[{good},{element}]",))
    assert ids(archive) == []


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    "bad, message",
    [(7, "is not an object"), (None, "is not an object"), ([], "is not an object"),
     ("x", "is not an object"), ({}, "has no eventId"),
     ({"eventId": "", "agentId": "a"}, "has no eventId"),
     ({"eventId": "e"}, "has no agentId"), ({"eventId": None}, "has no eventId"),
     ({"eventId": "e", "agentId": ""}, "has no agentId"),
     ({**ITEM, "timestamp": "2024-01-01"}, "has a timestamp that"),
     ({**ITEM, "timestamp": "1700000000123"}, "has a timestamp that"),
     ({**ITEM, "timestamp": 1.5}, "has a timestamp"),
     ({**ITEM, "timestamp": -1}, "has a timestamp"),
     ({**ITEM, "timestamp": 253402300800000}, "has a timestamp"),
     ({**ITEM, "timestamp": 1e300}, "has a timestamp"),
     ({**ITEM, "timestamp": True}, "has a timestamp"),
     ({**ITEM, "timestamp": []}, "has a timestamp")])
def test_one_bad_element_refuses_all_and_is_named(archive, bad, message, position):
    items = [{**ITEM, "eventId": "e1"}, {**ITEM, "eventId": "e2"}]
    items.insert(position, bad)
    with pytest.raises(sqlite3.IntegrityError,
                       match=f"element {position} of payloads {message}"):
        save(archive, "k", *items)
    assert ids(archive) == []


@pytest.mark.parametrize(
    "kill, text, message",
    [("k", "{}", "must be a JSON array.*got object"), ("k", "7", "got integer"),
     ("k", "null", "got null"), ("k", "not json", "got 'not json'"),
     ("k", "[", "got"), ("k", "", "not empty"), ("k", None, "must be text"),
     ("k", b"[]", "must be text, got a blob"), ("k", '"[]"', "got text"),
     (None, "[]", "kill_switch_event_id must be text"), ("", "[]", "not empty"),
     (b"k", "[]", "a blob"), ("k\0", "[]", "NUL"), ("x" * 1025, "[]", "1024"),
     ("k", "[{}] x", "got"), ("k", "[1]\0", "NUL")])
def test_save_evidence_refuses(archive, kill, text, message):
    with pytest.raises(sqlite3.IntegrityError, match=message):
        archive.execute("SELECT payload_save_evidence(?,?)", (kill, text))
    assert ids(archive) == []


def test_a_temp_table_of_that_name_takes_no_evidence(archive):
    archive.execute("CREATE TEMP TABLE event_payloads AS "
                    "SELECT * FROM main.event_payloads")
    archive.execute("CREATE TEMP TABLE blackbox_settings(name, value)")
    archive.execute("CREATE TEMP TABLE blackbox_domains(domain, version)")
    archive.execute("INSERT INTO temp.blackbox_domains VALUES('payload', 1)")
    archive.execute("INSERT INTO main.blackbox_settings(name, value) VALUES('payload.enabled', 1), "
                    "('payload.queue_mode', 'memory')")
    archive.execute("CREATE VIRTUAL TABLE main.ring USING payload_ring")
    archive.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e')")
    assert save(archive, "k", ITEM) == 1
    assert one(archive, "SELECT payload_kill_switch('ring', 'a', 'k')") == 1
    assert one(archive, "SELECT payload_queue('e', 'a', 'q', 'r')") == 1
    assert one(archive, "SELECT payload_flush()") == 1
    assert one(archive, "SELECT count(*) FROM temp.event_payloads") == 0
    assert one(archive, "SELECT count(*) FROM main.event_payloads") == 3
    assert one(archive, "SELECT payload_clear_archive()") == 1


# ---- figures


def test_stats_count_rows_bytes_and_pins(archive):
    def stats():
        return json.loads(one(archive, "SELECT payload_stats()"))
    zero = stats()
    assert zero.pop("totalSize") > 0
    assert zero == {"enabled": False, "archive": 0, "evidence": 0, "pinned": 0,
                    "archiveBytes": 0, "evidenceBytes": 0, "expired": 0, "expiredMore": False,
                    "waiting": 0, "waitingBytes": 0, "queueMode": "durable",
                    "waitingOf": "this connection"}
    now = int(time.time() * 1000)
    add(archive, "new", now)
    add(archive, "old", now - 8 * DAY)
    add(archive, "pin", 0, pinned=1, body="x" * 7)
    add(archive, "ev", 0, "evidence", body="x" * 9)
    add(archive, "freed", 0, "evidence", body="x" * 11)
    one(archive, "SELECT payload_unpin('freed', 'a', 'r')")
    archive.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
                    "('payload.queue_mode', 'memory')")
    one(archive, "SELECT payload_queue('e', 'a', 'qq', 'é')")
    found = stats()
    assert found.pop("totalSize") == one(archive, "PRAGMA page_count") \
        * one(archive, "PRAGMA page_size")
    assert found == {"enabled": True, "archive": 3, "evidence": 2, "pinned": 2,
                     "archiveBytes": 17, "evidenceBytes": 20, "expired": 1, "expiredMore": False,
                     "waiting": 1, "waitingBytes": 4, "queueMode": "memory",
                     "waitingOf": "this connection"}
    assert one(archive, "SELECT json_extract(payload_stats(), '$.archive')") == 3


@pytest.mark.parametrize("expired", some([0, 1, 7, 19, 20]))
def test_stats_count_what_has_expired_where_fewer_rows_are(archive, expired):
    """The newer rows are counted where most are old."""
    archive.execute("UPDATE blackbox_settings SET value = 4e12 WHERE name = 'payload.history_until'")
    now = int(time.time() * 1000)
    for i in range(20):
        add(archive, f"r{i}", now - 9 * DAY if i < expired else now)
        add(archive, f"p{i}", now - 9 * DAY, "evidence" if i % 2 else "archive", pinned=1)
    assert one(archive, "SELECT payload_stats() ->> '$.expired'") == expired
    steps = []
    archive.executemany("INSERT INTO event_payloads(event_id, agent_id, purpose, created_at)"
                        " VALUES('e', 'a', 'archive', ?)",
                        [(stamp(now - 9 * DAY if expired else now),)] * 3000)
    archive.set_progress_handler(lambda: steps.append(1), 10)
    assert one(archive, "SELECT payload_stats() ->> '$.expired'") == (expired and 3000 + expired)
    assert len(steps) < 300


@pytest.mark.parametrize("old, new, expired, more", [
    (10_000, 10_100, 10_000, False), (10_001, 10_100, 10_000, True), (10_200, 10_001, 10_000, True),
    (10_200, 10_000, 10_200, False)])
def test_stats_count_ten_thousand_rows_that_have_expired_or_have_not(
        archive, old, new, expired, more):
    archive.execute("UPDATE blackbox_settings SET value = 4e12 WHERE name = 'payload.history_until'")
    archive.executemany(
        "INSERT INTO event_payloads(event_id, agent_id, purpose, created_at)"
        " WITH c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?)"
        " SELECT 'e', 'a', 'archive', ? FROM c",
        [(old, stamp(int(time.time() * 1000) - 9 * DAY)), (new, stamp(int(time.time() * 1000)))])
    stats = json.loads(one(archive, "SELECT payload_stats()"))
    assert (stats["archive"], stats["expired"], stats["expiredMore"]) == (old + new, expired, more)
    steps = []
    archive.set_progress_handler(lambda: steps.append(1), 1000)
    one(archive, "SELECT payload_stats()")
    assert len(steps) < 250


def test_db_size_has_what_is_free_inside_and_the_wal(archive, path):
    def sizes():
        return json.loads(one(archive, "SELECT payload_db_size()"))
    archive.execute("INSERT INTO event_payloads(id, event_id, agent_id, size_bytes, "
                    "request_body, purpose) VALUES('big', 'e', 'a', 500000, "
                    "replace(hex(zeroblob(250000)), '0', 'x'), 'archive')")
    found = sizes()
    size = os.path.getsize(path)
    assert found == {"databaseBytes": size, "usedBytes": size, "freeBytes": 0,
                     "reclaimableBytes": 0, "walBytes": 0, "totalBytes": size}
    archive.execute("DELETE FROM event_payloads")
    assert sizes()["freeBytes"] > 490000
    assert sizes()["databaseBytes"] == os.path.getsize(path)
    archive.execute("PRAGMA journal_mode=WAL")
    add(archive, "big", 0, body="x" * 100000)
    found = sizes()
    assert found["walBytes"] == os.path.getsize(f"{path}-wal") > 100000
    assert found["totalBytes"] == found["databaseBytes"] + found["walBytes"]


def test_db_size_without_a_file():
    db = connect()
    one(db, "SELECT blackbox_install()")
    found = json.loads(one(db, "SELECT payload_db_size()"))
    assert found["walBytes"] == 0 and found["databaseBytes"] > 0


# ---- settings


@pytest.mark.parametrize(
    "name, default, low, high",
    [("enabled", 0, 0, 1), ("retention_days", 7, 1, 365),
     ("flush_interval_ms", 5000, 1000, 60000), ("flush_batch_size", 20, 1, 100)])
def test_settings_have_default_and_range(archive, path, name, default, low, high):
    name = "payload." + name
    plain = sqlite3.connect(path, isolation_level=None)
    assert rows(plain, 'SELECT value, "default", range FROM blackbox_settings '
                "WHERE name = ?", name) == [(default, default, f"{low} to {high}")]
    put = "INSERT OR REPLACE INTO blackbox_settings(name, value) VALUES(?,?)"
    for bad in (low - 1, high + 1, str(high + 1), low + 0.5, None, b"1", "on"):
        with pytest.raises(sqlite3.IntegrityError):
            plain.execute(put, (name, bad))
    for good in (low, high):
        plain.execute(put, (name, good))
        assert one(archive, "SELECT value FROM blackbox_settings WHERE name=?",
                   name) == good
    plain.execute("DELETE FROM blackbox_settings")
    assert one(archive, "SELECT value FROM blackbox_settings WHERE name=?", name) \
        == default


# ---- where it is installed


CALLS = ["payload_cleanup()", "payload_clear_archive()", "payload_stats()",
         "payload_db_size()", "payload_unpin('a','b','c')",
         "payload_save_evidence('k','[]')", "payload_queue('e','a','q','r')"]


@pytest.mark.parametrize("call", CALLS)
def test_without_an_install_every_call_says_so(path, call):
    db = connect(path)
    for _ in range(2):
        with pytest.raises(sqlite3.OperationalError,
                           match=r"not initialized: .*blackbox_install\('main', 'payload'\)"):
            db.execute("SELECT " + call)
    assert rows(db, "SELECT name FROM sqlite_schema") == []
    one(db, "SELECT blackbox_install('main', 'core')")
    with pytest.raises(sqlite3.OperationalError, match="not initialized"):
        db.execute("SELECT " + call)
    one(db, "SELECT blackbox_install()")
    if "queue" in call:
        db.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    if "unpin" not in call:
        db.execute("SELECT " + call)


@pytest.mark.parametrize("call", CALLS)
def test_two_installs_are_ambiguous_until_one_is_chosen(archive, tmp_path, call):
    one(archive, "SELECT payload_stats()")
    archive.execute("ATTACH ? AS 'other ''one'", (str(tmp_path / "o.db"),))
    one(archive, "SELECT blackbox_install('other ''one')")
    with pytest.raises(sqlite3.OperationalError, match="AmbiguousSchemaError: both main and "):
        archive.execute("SELECT " + call)
    assert one(archive, "SELECT blackbox_use('main')") == "main"
    archive.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1)")
    if "unpin" not in call:
        archive.execute("SELECT " + call)


def test_use_decides_where_rows_and_settings_are(archive, tmp_path):
    archive.execute("ATTACH ? AS other", (str(tmp_path / "o.db"),))
    one(archive, "SELECT blackbox_install('other')")
    archive.execute("INSERT INTO other.blackbox_settings(name, value) "
                    "VALUES('payload.retention_days', 100)")
    now = int(time.time() * 1000)
    for schema in ("main", "other"):
        add(archive, "r", now - 50 * DAY, table=schema + ".event_payloads")
    one(archive, "SELECT blackbox_use('other')")
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 0
    assert save(archive, "k", ITEM) == 1
    assert one(archive, "SELECT count(*) FROM other.event_payloads") == 2
    one(archive, "SELECT blackbox_use('main')")
    assert one(archive, "SELECT payload_cleanup() ->> '$.rows'") == 1
    assert one(archive, "SELECT count(*) FROM main.event_payloads") == 0


def test_an_archive_in_an_attached_file_with_a_quoted_name(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "my ""pay\'loads"', (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install('my \"pay''loads')")
    schema = '"my ""pay\'loads"'
    add(db, "r", 0, table=schema + ".event_payloads")
    assert save(db, "k", ITEM) == 1
    assert one(db, "SELECT payload_cleanup() ->> '$.rows'") == 1
    assert json.loads(one(db, "SELECT payload_stats()"))["evidence"] == 1
    assert json.loads(one(db, "SELECT payload_db_size()"))["databaseBytes"] \
        == os.path.getsize(tmp_path / "o.db")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert rows(db, "SELECT name FROM main.sqlite_schema") == []


def test_a_detached_archive_is_not_found(path, tmp_path):
    db = connect(path)
    db.execute("ATTACH ? AS other", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install('other')")
    assert save(db, "k", ITEM) == 1
    db.execute("DETACH other")
    with pytest.raises(sqlite3.OperationalError):
        save(db, "k", ITEM)
    one(db, "SELECT blackbox_install()")
    assert save(db, "k", ITEM) == 1


# ---- where a call is refused


WRITES = ["payload_cleanup()", "payload_clear_archive()",
          "payload_save_evidence('k','[]')", "payload_unpin('x','a','r')",
          "payload_kill_switch('ring','a','k')", "payload_extract('ring','a')",
          "payload_flush()"]


@pytest.mark.parametrize("call", WRITES)
def test_calls_inside_a_statement_that_writes_explain(archive, call):
    archive.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    archive.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e')")
    archive.execute("CREATE TABLE t(x)")
    archive.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
                    "('payload.queue_mode', 'memory')")
    one(archive, "SELECT payload_queue('e', 'a', 'q', 'r')")
    for statement in (f"INSERT INTO t SELECT {call}", f"INSERT INTO t VALUES({call})",
                      f"UPDATE blackbox_settings SET value = {call}"):
        with pytest.raises(sqlite3.OperationalError, match="MisuseError: "):
            archive.execute(statement)
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of"):
        archive.execute("CREATE TRIGGER g AFTER INSERT ON t BEGIN "
                        f"SELECT {call}; END")
        archive.execute("INSERT INTO t VALUES(1)")
    assert rows(archive, "SELECT * FROM t") == []
    assert one(archive, "SELECT count(*) FROM ring") == 1
    assert one(archive, "SELECT rows FROM payload_waiting") == 1


def test_reading_functions_work_anywhere(archive):
    archive.execute("CREATE TABLE t(x)")
    archive.execute("INSERT INTO t SELECT payload_stats() UNION ALL "
                    "SELECT payload_db_size() UNION ALL SELECT blackbox_version()")
    assert one(archive, "SELECT count(*) FROM t") == 3


@pytest.mark.parametrize("call", WRITES)
def test_a_read_only_database_says_so_and_keeps_everything(archive, path, call):
    archive.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    archive.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e')")
    add(archive, "x", 0, "evidence")
    archive.execute("INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1), "
                    "('payload.queue_mode', 'memory')")
    one(archive, "SELECT proof_head()")
    db = connect(f"file:{path}?mode=ro", uri=True)
    assert one(db, "SELECT payload_queue('e', 'a', 'q', 'r')") == 1
    call = call.replace("'[]'", "'[{\"eventId\":\"e\",\"agentId\":\"a\"}]'")
    with pytest.raises(sqlite3.OperationalError, match="readonly") as caught:
        db.execute("SELECT " + call)
    assert caught.value.sqlite_errorname.startswith("SQLITE_READONLY")
    assert one(db, "SELECT count(*) FROM ring") == 1
    assert one(db, "SELECT rows FROM payload_waiting") == 1
    assert json.loads(one(db, "SELECT payload_stats()"))["evidence"] == 1
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a','e')")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_install_with_a_read_only_file_says_so(path):
    sqlite3.connect(path).execute("CREATE TABLE t(x)")
    db = connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("SELECT blackbox_install()")


def test_every_command_works_as_a_row_in_the_shell(path):
    out = shell("-batch", path, stdin="""
.load ./blackbox
.bail on
INSERT INTO blackbox_call(command) VALUES('blackbox_install');
CREATE VIRTUAL TABLE ring USING payload_ring(window=2);
INSERT INTO ring(agent_id, event_id) VALUES('a', '1'), ('a', '2'), ('a', '3');
INSERT INTO blackbox_call VALUES('payload_kill_switch', '["ring","a","k"]');
INSERT INTO blackbox_call VALUES('payload_unpin',
  json_array((SELECT id FROM event_payloads WHERE event_id = '2'), 'Ann', 'r'));
INSERT INTO blackbox_call VALUES('payload_cleanup', '[0]');
SELECT event_id, pinned FROM event_payloads ORDER BY event_id;
""")
    assert out == "2|0\n3|1\n"


@pytest.mark.all_domains
@pytest.mark.parametrize("call", ["payload_cleanup(0, 10) ->> '$.rows'", "payload_clear_archive()"])
def test_a_cascade_into_another_domain_has_its_own_receipt(archive, call):
    for i in range(2):
        add(archive, f"r{i}", i)
    for i in range(10):
        one(archive, "SELECT rollout_create(?, NULL, 'permanent')",
            f"0000000{i}-1111-4111-8111-111111111111")
    archive.execute("CREATE TRIGGER mine AFTER DELETE ON event_payloads BEGIN DELETE FROM "
                    "rollouts WHERE id IN (SELECT id FROM rollouts LIMIT 5); END")
    assert one(archive, "SELECT " + call) == 2
    assert rows(archive, "SELECT domain, rows FROM retention_log ORDER BY id") == [
        ("payload", 2), ("rollout", 10)]


@pytest.mark.parametrize("arguments", ['[""]', "[1, null, 0]"])
def test_a_clean_up_as_a_row_that_is_refused_leaves_the_transaction_as_it_was(db, path, arguments):
    by_hand(path, "UPDATE retention__clock SET seen = seen - 5000000")  # the call would write it
    db.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        db.execute("INSERT INTO blackbox_call VALUES('payload_cleanup', ?)", (arguments,))
    assert db.in_transaction


def test_the_figures_are_those_of_the_rows_and_read_no_archive_row(archive):
    """So they cost the same however many rows there are, but for those pinned or expired."""
    one(archive, "SELECT blackbox_install()")
    now = int(time.time() * 1000)
    archive.execute("BEGIN")
    for i in range(2000):
        add(archive, f"r{i}", now, body="x" * (i % 7), pinned=i % 100 == 0)
    for i in range(10):
        add(archive, f"o{i}", now - 300 * DAY, body="12")
        add(archive, f"k{i}", now, "evidence", body="123")
    archive.execute("COMMIT")
    archive.execute("UPDATE event_payloads SET purpose = 'evidence' WHERE id IN ('r7', 'r8')")
    one(archive, "SELECT payload_unpin('k3', 'ann', 'r')")
    stats = json.loads(one(archive, "SELECT payload_stats()"))
    for key, sql in (("archive", "count(*) FROM event_payloads WHERE purpose = 'archive'"),
                     ("evidence", "count(*) FROM event_payloads WHERE purpose = 'evidence'"),
                     ("pinned", "count(*) FROM event_payloads WHERE pinned"),
                     ("archiveBytes", "sum(size_bytes) FROM event_payloads WHERE purpose = 'archive'"),
                     ("evidenceBytes", "sum(size_bytes) FROM event_payloads WHERE purpose = 'evidence'")):
        assert stats[key] == one(archive, f"SELECT {sql}"), key
    steps = []
    for _ in range(2):
        count = 0

        def step():
            nonlocal count
            count += 1
        archive.set_progress_handler(step, 1)
        one(archive, "SELECT payload_stats()")
        archive.set_progress_handler(None, 0)
        steps.append(count)
        archive.execute("BEGIN")
        for i in range(2000):
            add(archive, f"s{len(steps)}-{i}", now)
        archive.execute("COMMIT")
    assert abs(steps[1] - steps[0]) < 200
