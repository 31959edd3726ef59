"""Bodies in the body store: read as they were, under the same rules as before."""
import gzip
import json
import random
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import DATA, FULL, ROOT, by_hand, connect, needs_data, one, problems, rows
from payload_helpers import push, setting

pytestmark = pytest.mark.all_domains  # the body store is another domain

COLUMNS = ("id, event_id, agent_id, request_body, response_body, size_bytes, purpose, pinned,"
           " kill_switch_event_id, created_at")
NOTHING = {"rows": 0, "rawBytes": 0, "keptBytes": 0, "left": {"refused": 0}, "more": False}


def words(seed, n):
    """Text of about n bytes."""
    make = random.Random(seed)
    return " ".join("".join(make.choices("abcdefghij", k=make.randint(2, 8)))
                    for _ in range(n // 6))


def noise(seed, n):
    return random.Random(seed).randbytes(n)


def add(db, id, request, response="ok", purpose="archive", schema="main", **more):
    names = "".join(", " + name for name in more)
    db.execute(f"INSERT INTO {schema}.event_payloads(id, event_id, agent_id, request_body,"
               f" response_body, purpose{names}) VALUES(?, ?, 'a', ?, ?, ?"
               f"{', ?' * len(more)})",
               (id, "e" + id, request, response, purpose, *more.values()))


def pack(db, *args):
    marks = ", ".join("?" * len(args))
    return json.loads(one(db, f"SELECT payload_pack({marks})", *args))


def unpack(db, *args):
    return json.loads(one(db, f"SELECT payload_unpack({', '.join('?' * len(args))})", *args))


def shown(db, schema="main"):
    return rows(db, f"SELECT {COLUMNS} FROM {schema}.payload_rows ORDER BY id")


def packed(db, schema="main"):
    return [row[0] for row in db.execute(
        f"SELECT id FROM {schema}.event_payloads WHERE typeof(request_body) = 'blob'"
        " AND substr(request_body, 1, 4) = x'b1627801' ORDER BY id")]


def dropped(db):
    return one(db, "SELECT dropped FROM store_stats")


def whole(db):
    found = problems(db)
    assert not found, found


@pytest.fixture
def full(db):
    """A file with rows of every kind, packed."""
    fill(db)
    pack(db)
    return db


def fill(db, schema="main"):
    shared = words(0, 9000)
    for i in range(4):
        add(db, f"a{i}", shared + words(i, 2000), schema=schema)
    add(db, "b1", noise(1, 3000), noise(2, 3000), schema=schema)
    add(db, "b2", shared, None, schema=schema)
    add(db, "e1", shared + "evidence", purpose="evidence", kill_switch_event_id="k",
        schema=schema)
    add(db, "e2", "brief", "too", purpose="evidence", schema=schema)
    add(db, "p1", shared + "pinned", pinned=1, schema=schema)


def test_rows_are_shown_as_they_were(db):
    fill(db)
    before = shown(db)
    assert before == rows(db, f"SELECT {COLUMNS} FROM event_payloads ORDER BY id")
    said = pack(db)
    assert said["rows"] == 8 and not said["more"]
    assert said["keptBytes"] < said["rawBytes"] / 2
    assert packed(db) == ["a0", "a1", "a2", "a3", "b1", "b2", "e1", "p1"]
    assert shown(db) == before
    assert [row[5] for row in rows(db, f"SELECT {COLUMNS} FROM event_payloads ORDER BY id")] \
        == [row[5] for row in before]
    whole(db)
    assert pack(db) == NOTHING


def test_unpacking_leaves_the_file_as_it_was(db):
    objects = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT GLOB 'sqlite_*' ORDER BY 1, 2"
    versions = "SELECT * FROM blackbox_domains ORDER BY 1"
    fill(db)
    before = shown(db), rows(db, objects), rows(db, versions)
    pack(db)
    assert unpack(db, 3) == {"rows": 3, "left": [], "more": True}
    whole(db)
    assert shown(db) == before[0]
    assert unpack(db) == {"rows": 5, "left": [], "more": False}
    assert (shown(db), rows(db, objects), rows(db, versions)) == before
    assert rows(db, f"SELECT {COLUMNS} FROM event_payloads ORDER BY id") == before[0]
    assert set(rows(db, "SELECT texts, packs, pieces, kept_bytes FROM store_stats")) == {(0, 0, 0, 0)}
    whole(db)
    assert unpack(db) == {"rows": 0, "left": [], "more": False}


def test_packing_is_bounded_oldest_first_and_by_age(db):
    now = 1_800_000_000_000
    for i in range(6):
        add(db, f"r{5 - i}", words(i, 2000), created_at=f"2027-01-15T08:00:0{i}.000Z")
    assert pack(db, 2) | {"rawBytes": 0, "keptBytes": 0} == \
        NOTHING | {"rows": 2, "more": True}
    assert packed(db) == ["r4", "r5"]
    assert pack(db, 10, 2000, now + 5000)["rows"] == 1
    assert packed(db) == ["r3", "r4", "r5"]
    assert pack(db, 10, 2000, now + 5000) == NOTHING
    assert pack(db, 2)["more"] and not pack(db, 2)["more"]
    whole(db)


def test_packing_as_a_row(db):
    fill(db)
    before = shown(db)
    db.execute("INSERT INTO blackbox_call VALUES('payload_pack', '[3]')")
    assert len(packed(db)) == 3
    db.execute("INSERT INTO blackbox_call VALUES('payload_unpack', '[]')")
    assert packed(db) == [] and shown(db) == before
    db.execute("BEGIN")
    for command in "payload_pack", "payload_unpack":
        with pytest.raises(sqlite3.OperationalError, match="MisuseError: .* as a row inside"):
            db.execute(f"INSERT INTO blackbox_call VALUES('{command}', '[]')")
    db.execute("ROLLBACK")
    whole(db)


def test_a_rollback_takes_back_packing_and_the_form(db):
    fill(db)
    before = shown(db)
    db.execute("BEGIN")
    pack(db)
    assert shown(db) == before
    db.execute("ROLLBACK")
    assert packed(db) == [] and shown(db) == before
    db.execute("SAVEPOINT s")
    pack(db, 3)
    db.execute("RELEASE s")
    db.execute("BEGIN")
    unpack(db)
    db.execute("ROLLBACK")
    assert len(packed(db)) == 3 and shown(db) == before
    whole(db)


@pytest.mark.parametrize("sql, told", [
    ("payload_pack(0)", "limit"), ("payload_pack('x')", "limit"),
    ("payload_pack(1, -1)", "older_than_ms"), ("payload_pack(1, 1, 'x')", "now"),
    ("payload_unpack(0)", "limit")])
def test_bad_arguments_are_refused(db, sql, told):
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: " + told):
        one(db, "SELECT " + sql)


def test_a_store_is_needed(path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload')")
    with pytest.raises(sqlite3.OperationalError, match="NotInstalledError: schema main has no body"):
        one(db, "SELECT payload_pack()")
    assert one(db, "SELECT payload_unpack()") == '{"rows":0,"left":[],"more":false}'
    whole(db)


def test_an_attached_archive_is_packed_beside_another_store(db, tmp_path):
    db.execute("ATTACH ? AS \"the 'other'\"", (str(tmp_path / "o.db"),))
    one(db, "SELECT blackbox_install(?, 'payload,store')", "the 'other'")
    schema = "\"the 'other'\""
    fill(db)
    fill(db, schema)
    before = shown(db), shown(db, schema)
    for name in "main", "the 'other'":
        one(db, "SELECT blackbox_use(?)", name)
        assert pack(db)["rows"] == 8
    assert (shown(db), shown(db, schema)) == before
    whole(db)
    assert unpack(db)["rows"] == 8
    assert packed(db, schema) == [] and len(packed(db)) == 8
    assert (shown(db), shown(db, schema)) == before
    whole(db)


# --------------------------------------------------------------- rules ----

REFUSED = [
    "DELETE FROM event_payloads WHERE id = '{}'",
    "UPDATE event_payloads SET request_body = 'other' WHERE id = '{}'",
    "UPDATE event_payloads SET request_body = NULL WHERE id = '{}'",
    "UPDATE event_payloads SET response_body = 'other' WHERE id = '{}'",
    "UPDATE event_payloads SET size_bytes = 50 WHERE id = '{}'",
    "UPDATE event_payloads SET request_body = (SELECT request_body FROM event_payloads"
    " WHERE id = 'a0') WHERE id = '{}'",
    "REPLACE INTO event_payloads(id, event_id, agent_id, purpose)"
    " VALUES('{}', 'e', 'a', 'archive')",
    "UPDATE OR REPLACE event_payloads SET id = '{}' WHERE id = 'a0'",
]


@pytest.mark.parametrize("module", [True, False])
def test_a_pinned_row_that_is_packed_keeps_its_text(full, path, module):
    before = shown(full)
    db = full if module else sqlite3.connect(path, isolation_level=None)
    for sql in REFUSED:
        for id in "e1", "p1":
            with pytest.raises(sqlite3.Error, match="PinnedError|keeps its id|size_bytes is"):
                db.execute(sql.format(id))
        assert shown(full) == before, sql
    whole(full)


def test_the_check_names_another_text_that_was_put_into_a_pinned_row(full, path):
    """The guard admits what is announced. A program that announces a text leaves a trace."""
    by_hand(path, "INSERT INTO payload__packed VALUES(-1, 'e1', 'forged', 6);"
                  " UPDATE event_payloads SET request_body = 'forged' WHERE id = 'e1';"
                  " DELETE FROM payload__packed WHERE text < 0")
    told = str(rows(full, "SELECT * FROM blackbox_check"))
    assert "the row that it pins" in told, told


LENGTH = "length(CAST(ifnull(request_body, '') || ifnull(response_body, '') AS BLOB))"


@pytest.mark.parametrize("which", ["a0", "e1", "held"])
def test_the_size_of_a_packed_row_is_not_that_of_its_reference(full, which):
    if which == "held":
        one(full, "SELECT retention_hold('event', event_id, 'case', 'ann', 'why') FROM event_payloads WHERE id = 'b2'")
        which = "b2"
    sizes = rows(full, "SELECT id, size_bytes FROM event_payloads ORDER BY id")
    for where in "", f" WHERE id = '{which}'":
        with pytest.raises(sqlite3.Error, match="size_bytes is the length of both bodies"):
            full.execute(f"UPDATE event_payloads SET size_bytes = {LENGTH}{where}")
    full.execute("UPDATE event_payloads SET size_bytes = size_bytes")
    assert rows(full, "SELECT id, size_bytes FROM event_payloads ORDER BY id") == sizes


def test_unpinned_rows_may_change_and_their_texts_go(full):
    reference = one(full, "SELECT request_body FROM event_payloads WHERE id = 'a0'")
    full.execute("UPDATE event_payloads SET response_body = 'longer' WHERE id = 'a0'")
    full.execute("UPDATE event_payloads SET request_body = 'new' WHERE id = 'a1'")
    assert rows(full, "SELECT size_bytes FROM payload_rows WHERE id IN ('a0', 'a1') ORDER BY id") \
        == [(len(words(0, 9000) + words(0, 2000)) + 6,), (5,)]
    assert dropped(full) == 1
    with pytest.raises(sqlite3.Error, match="size_bytes is the length of both bodies"):
        full.execute("UPDATE event_payloads SET size_bytes = 3 WHERE id = 'a0'")
    assert one(full, "SELECT size_bytes FROM event_payloads WHERE id = 'a0'") > 9000
    assert one(full, "SELECT request_body FROM event_payloads WHERE id = 'a0'") == reference
    full.execute("REPLACE INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
                 " VALUES('a2', 'e', 'a', 'mine', 'archive')")
    full.execute("DELETE FROM event_payloads WHERE id = 'a3'")
    full.execute("INSERT OR IGNORE INTO event_payloads(id, event_id, agent_id, request_body,"
                 " purpose) VALUES('b1', 'e', 'a', 'mine', 'archive')")
    assert dropped(full) == 3
    assert one(full, "SELECT store_sweep()") == 3
    assert one(full, "SELECT store_text(request_body) FROM event_payloads WHERE id = 'b1'") \
        == noise(1, 3000)
    whole(full)


@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("sql", [
    "INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
    " SELECT 'copy', event_id, agent_id, request_body, 'archive' FROM event_payloads"
    " WHERE id = '{}'",
    "UPDATE event_payloads SET request_body = (SELECT request_body FROM event_payloads"
    " WHERE id = '{}') WHERE id = 'a0'",
    "UPDATE event_payloads SET response_body = (SELECT request_body FROM event_payloads"
    " WHERE id = '{}') WHERE id = 'a0'"])
def test_a_reference_is_in_one_row_only(full, path, sql, module):
    before = shown(full)
    db = full if module else sqlite3.connect(path, isolation_level=None)
    for id in "a1", "e1":
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError: this body refers to another row"):
            db.execute(sql.format(id))
    assert shown(full) == before
    whole(full)


def test_a_blob_of_the_user_is_never_misread(full):
    reference = one(full, "SELECT request_body FROM event_payloads WHERE id = 'a1'")
    for i, blob in enumerate([reference[:-1] + b"9" * 4, reference[:8] + b"\0" + reference[9:],
                              b"\xb1bx\x01" + b"z" * 600, reference + noise(9, 600)]):
        add(full, f"x{i}", blob)
        assert one(full, "SELECT request_body FROM payload_rows WHERE id = ?", f"x{i}") == blob
    before = shown(full)
    pack(full)
    assert shown(full) == before
    told = [problem for *_, problem in rows(full, "SELECT * FROM blackbox_check")]
    assert told == []
    unpack(full)
    assert shown(full) == before
    full.execute("DELETE FROM event_payloads WHERE id IN ('x0', 'x1')")
    unpack(full)
    whole(full)


def test_clean_up_deletes_with_a_receipt_of_the_true_bytes_and_sweeps(full):
    bytes = one(full, "SELECT sum(size_bytes) FROM event_payloads WHERE purpose = 'archive'"
                      " AND pinned = 0")
    assert one(full, "SELECT payload_clear_archive()") == 6
    assert rows(full, "SELECT rule, rows, bytes FROM retention_log") == [("clear", 6, bytes)]
    assert dropped(full) == 0
    assert len(shown(full)) == 3
    whole(full)


def test_a_clean_up_takes_any_limit_and_as_a_row_leaves_the_store_alone(full):
    setting(full, "pack", 1)
    add(full, "n1", words(5, 3000))
    full.execute("DELETE FROM event_payloads WHERE id = 'a0'")
    full.execute("BEGIN")
    full.execute("INSERT INTO blackbox_call VALUES('payload_cleanup', '[]')")
    full.execute("COMMIT")
    assert dropped(full) == 1 and "n1" not in packed(full)
    one(full, "SELECT payload_cleanup(7, NULL, 1000000000)")
    assert dropped(full) == 0 and "n1" in packed(full)
    whole(full)


@pytest.mark.parametrize("first", ["hold", "pack"])
def test_a_hold_stops_neither_packing_nor_unpacking_nor_clean_up(db, first):
    def hold():
        one(db, "SELECT retention_hold('event', 'e1', 'case', 'ann', 'asked')")
    for i in range(4):
        add(db, str(i), words(i, 3000))
    before = shown(db)
    if first == "hold":
        hold()
    assert pack(db)["rows"] == 4
    if first == "pack":
        hold()
    assert unpack(db) == {"rows": 4, "left": [], "more": False}
    assert pack(db)["rows"] == 4 and shown(db) == before
    assert one(db, "SELECT payload_cleanup(0) ->> '$.rows'") == 3
    assert rows(db, "SELECT key, blocked_by FROM retention_plan(?)", 4_000_000_000_000) == \
        [("1", "held")]
    assert one(db, "SELECT retention_sweep() ->> '$.removed'") == 0
    assert shown(db) == before[1:2] and packed(db) == ["1"]
    assert unpack(db)["rows"] == 1 and shown(db) == before[1:2]
    whole(db)


def test_a_row_that_is_pinned_after_packing_unpacks(db):
    for i in range(3):
        add(db, str(i), words(i, 3000))
    pack(db)
    db.execute("UPDATE event_payloads SET pinned = 1 WHERE id = '1'")
    before = shown(db)
    assert unpack(db) == {"rows": 3, "left": [], "more": False}
    assert packed(db) == [] and shown(db) == before
    whole(db)


REFUSALS = [("BEFORE", "RAISE(IGNORE)", "a trigger keeps the row as it is"),
            ("BEFORE", "RAISE(ABORT, 'not this one')", "not this one"),
            ("AFTER", "RAISE(ABORT, 'not this one')", "not this one"),
            ("BEFORE", "RAISE(FAIL, 'not this one')", "not this one")]


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("when, act, why", REFUSALS)
def test_packing_and_unpacking_pass_over_rows_that_a_trigger_keeps(db, when, act, why, begin):
    keep = (f"CREATE TRIGGER keep {when} UPDATE OF request_body ON event_payloads"
            f" WHEN OLD.id = '1' BEGIN SELECT {act}; END")
    for i in range(3):
        add(db, str(i), words(i, 3000))
    before = shown(db)
    db.execute(keep)
    db.execute(begin)
    said = pack(db)
    assert (said["rows"], said["left"], said["more"]) == (2, {"refused": 1}, False)
    assert said["rawBytes"] == sum(len(words(i, 3000)) for i in (0, 2))
    assert rows(db, "SELECT rule, message, times FROM retention_refusals") == [("payload.pack", why, 1)]
    assert packed(db) == ["0", "2"] and shown(db) == before
    db.execute(begin and "COMMIT")
    assert dropped(db) == 1 and one(db, "SELECT store_sweep()") == 1
    db.execute("DROP TRIGGER keep")
    whole(db)
    db.execute("UPDATE event_payloads SET request_body = request_body WHERE id = '1'")
    pack(db)
    db.execute(keep)
    db.execute(begin)
    assert unpack(db) == {"rows": 2, "left": ["1"], "more": False}
    assert packed(db) == ["1"] and shown(db) == before
    db.execute(begin and "COMMIT")
    assert rows(db, "SELECT message FROM retention_refusals WHERE message <> ?", why) == []
    db.execute("DROP TRIGGER keep")
    whole(db)


def test_a_sweep_by_rules_sweeps_the_store(db):
    for i in range(4):
        add(db, str(i), words(i, 3000), created_at="2020-01-01T00:00:00.000Z")
    pack(db)
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.history_until'")
    assert one(db, "SELECT retention_sweep() ->> '$.removed'") == 4
    assert dropped(db) == 0 and one(db, "SELECT packs FROM store_stats") == 0
    whole(db)


def test_without_the_module_rows_go_and_their_texts_are_counted(full, path):
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DELETE FROM event_payloads WHERE id IN ('a0', 'b1')")
    assert db.execute("SELECT dropped FROM store_stats").fetchone() == (3,)
    add(db, "n1", words(9, 2000))
    db.execute("UPDATE event_payloads SET pinned = 1 WHERE id = 'a1'")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'a1'")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) VALUES('e1', 'x', 'y')")
    db.execute("DELETE FROM event_payloads WHERE id = 'e1'")
    db.execute("INSERT INTO event_payloads(kill_switch_event_id, event_id, agent_id,"
               " request_body, purpose) VALUES('k', 'e', 'a', 'q', 'evidence')")
    with pytest.raises(sqlite3.OperationalError, match="no such function: store_text"):
        db.execute("SELECT request_body FROM payload_rows").fetchall()
    assert len(db.execute("SELECT id, size_bytes FROM event_payloads").fetchall()) == 8
    db.execute("CREATE TABLE app(x)")
    db.execute("ALTER TABLE app RENAME TO mine")
    db.close()
    assert one(full, "SELECT payload_cleanup() ->> '$.rows'") == 0
    assert dropped(full) == 0
    whole(full)


@pytest.mark.parametrize("kind, key", [("agent", "a"), ("text", "the secret")])
def test_an_erasure_finds_packed_rows_and_removes_their_pieces(db, kind, key):
    add(db, "s1", words(1, 3000) + " the secret " + words(2, 3000))
    if kind == "text":
        add(db, "s2", words(3, 3000))
    pack(db)
    said = json.loads(one(db, "SELECT blackbox_erase(?, ?, 'me', 'why')", kind, key))
    assert said["rows"] == 1
    assert [row[0] for row in shown(db)] == (["s2"] if kind == "text" else [])
    texts, left = db.execute("SELECT texts, dropped FROM store_stats").fetchone()
    assert (texts, left) == (len(shown(db)), 0)
    whole(db)


# ------------------------------------------------------------ functions ----


def test_the_kill_switch_knows_packed_rows_of_the_archive(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    for i in range(3):
        push(db, "a", f"e{i}", words(i, 2000), noise(i, 900), 1000 * i)
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, response_body,"
                   " purpose, created_at) VALUES(?, 'a', ?, ?, 'archive', '1970-01-01')",
                   (f"e{i}", words(i, 2000), noise(i, 900)))
    pack(db)
    push(db, "a", "e9", words(9, 2000), "", 9000)
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 4
    assert one(db, "SELECT count(*) FROM event_payloads") == 4
    pack(db)
    for i in range(3):
        push(db, "a", f"e{i}", words(i, 2000), noise(i, 900), 1000 * i)
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 0
    whole(db)


def test_evidence_from_json_knows_packed_rows(db):
    body = words(1, 3000)
    add(db, "a1", body, created_at="1970-01-01 00:00:01")
    pack(db)
    text = json.dumps([{"eventId": "ea1", "agentId": "a", "requestBody": body,
                        "responseBody": "ok", "timestamp": 1000}])
    for saved in 1, 0:
        assert one(db, "SELECT payload_save_evidence('k', ?)", text) == saved
        pack(db)
        assert rows(db, "SELECT id, purpose FROM event_payloads") == [("a1", "evidence")]
    whole(db)


def test_readers_of_exchanges_see_texts(db):
    request = json.dumps({"model": "m", "messages": [
        {"role": "user", "content": "go " + words(1, 900)},
        {"role": "assistant", "tool_calls": [
            {"id": "c1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "no"}]})
    response = json.dumps({"choices": [], "usage": {"prompt_tokens": 5}, "pad": words(2, 900)})
    add(db, "a1", request, response)
    queries = [
        "SELECT payload_prompt(request_body), payload_tools(request_body) FROM event_payloads",
        "SELECT c.* FROM event_payloads, payload_calls(request_body, response_body) AS c",
        "SELECT u.* FROM event_payloads, payload_usage(request_body, response_body) AS u",
        "SELECT * FROM payload_backtest('a', 0)"]
    before = [rows(db, sql) for sql in queries]
    pack(db)
    assert packed(db) == ["a1"]
    assert [rows(db, sql) for sql in queries] == before
    assert before[0][0][0].startswith("go ")


def test_the_texts_of_an_adopted_table_are_shown(path):
    db = connect(path)
    db.execute("CREATE TABLE event_payloads(id TEXT PRIMARY KEY, event_id TEXT, mine TEXT,"
               " agent_id TEXT, request_body TEXT, response_body TEXT, purpose TEXT,"
               " created_at TEXT)")
    db.execute("INSERT INTO event_payloads VALUES('1', 'e', 'note', 'a', ?, ?, 'archive',"
               " '2026-01-01')", (words(1, 3000), words(2, 3000)))
    one(db, "SELECT blackbox_install('main', 'payload,store')")
    before = rows(db, "SELECT * FROM payload_rows")
    assert pack(db)["rows"] == 1
    assert rows(db, "SELECT * FROM payload_rows") == before
    assert one(db, "SELECT mine FROM event_payloads") == "note"
    whole(db)


# ------------------------------------------------------------- setting ----


@pytest.mark.parametrize("mode", ["durable", "memory"])
def test_the_setting_packs_a_few_rows_with_each_flush(db, mode):
    setting(db, "enabled", 1)
    setting(db, "queue_mode", mode)
    setting(db, "pack", 1)
    for i in range(85):
        one(db, "SELECT payload_queue(?, 'a', ?, 'r')", f"e{i}", words(i % 3, 2000) + str(i))
    one(db, "SELECT payload_flush()")
    assert len(packed(db)) >= 40
    assert one(db, "SELECT count(*) FROM payload_rows WHERE length(request_body) > 1000") == 85
    assert one(db, "SELECT payload_cleanup() ->> '$.rows'") == 0
    assert len(packed(db)) == 85
    whole(db)


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("how", ["SELECT payload_queue(?, 'a', ?, ?)",
    "INSERT INTO payload_queue(event_id, agent_id, request_body, response_body) VALUES(?, 'a', ?, ?)"])
def test_a_queued_row_is_packed_before_it_is_written(db, how, begin):
    bodies = {f"e{i}": (words(1, 2000 + 100 * i), words(2, 90 + i)) for i in range(4)}
    kept = "SELECT bytes, packed, pack, till FROM payload__state"
    for name, value in ("enabled", 1), ("pack", 1), ("retention_days", 1):
        setting(db, name, value)
    for end in "ROLLBACK", "COMMIT":
        before = rows(db, kept), one(db, "SELECT count(*) FROM store__texts")
        db.execute("BEGIN") if begin else None
        for event, both in bodies.items():
            db.execute(how, (event, *both)).fetchall()
            assert len(packed(db)) == one(db, "SELECT count(*) FROM event_payloads")
        db.execute(end) if begin else None
        if begin and end == "ROLLBACK":
            assert (rows(db, kept), one(db, "SELECT count(*) FROM store__texts")) == before
        elif not begin:
            break
    n = sum(len(body) for both in bodies.values() for body in both)
    short = sum(len(response) for _, response in bodies.values() if len(response) < 128)
    assert rows(db, kept) == [(n, n - short, 4, 0)]
    reference = one(db, "SELECT request_body FROM event_payloads")
    with pytest.raises(sqlite3.Error, match="ValidationError: this body refers to another row"):
        db.execute(how, ("of another", reference, "x" * 900)).fetchall()
    db.execute("CREATE TABLE seen(body)")
    db.execute("CREATE TRIGGER sees BEFORE INSERT ON event_payloads BEGIN"
               " INSERT INTO seen VALUES(NEW.request_body); END")
    db.execute(how, ("seen", words(3, 900), None)).fetchall()
    assert rows(db, "SELECT body FROM seen") == [(words(3, 900),)]
    assert len(packed(db)) == 5
    assert dict(rows(db, "SELECT event_id, request_body FROM payload_rows WHERE event_id <> 'seen'")) == {
        event: request for event, (request, _) in bodies.items()}
    db.execute("DROP TRIGGER sees")
    whole(db)


@pytest.mark.parametrize("others", [1, 2])
def test_a_pack_that_is_written_to_keeps_its_size(db, path, others):
    """So that SQLite writes only the pages in which it differs. Connections take turns."""
    setting(db, "enabled", 1)
    setting(db, "pack", 1)
    by = [db, connect(path)][:others]
    bodies, sizes = {}, []
    for i in range(120):
        bodies[f"e{i}"] = words(i, 1500) + str(i)
        one(by[i % others], "SELECT payload_queue(?, 'a', ?, NULL)", f"e{i}", bodies[f"e{i}"])
        sizes.append(one(db, "SELECT max(length(data)) FROM store__packs, store__state WHERE pack = open"))
    steps = [after - before for before, after in zip(sizes[5:], sizes[6:]) if before and after]
    assert steps.count(0) > len(steps) / 2 and max(steps) < 10_000
    assert dict(rows(by[-1], "SELECT event_id, request_body FROM payload_rows")) == bodies
    whole(db)


@pytest.mark.parametrize("change", [
    "substr(data, 1, length(data) - 8) || x'3939393939393939'", "substr(data, 1, length(data) - 9)",
    "substr(data, 1, length(data) - 8) || x'0000000000000000'", "data || x'00'",
    "data || substr(data, -8)", "data || '00000016'"])
def test_the_room_of_a_pack_may_be_damaged(db, path, change):
    setting(db, "enabled", 1)
    setting(db, "pack", 1)
    bodies = {f"e{i}": words(i, 1500) + str(i) for i in range(40)}
    for i, (event, body) in enumerate(bodies.items()):
        if i == 20:
            by_hand(path, f"UPDATE store__packs SET data = CAST({change} AS BLOB) WHERE pack > 0")
            db = connect(path)
        one(db, "SELECT payload_queue(?, 'a', ?, NULL)", event, body)
    found = {}
    for event in bodies:
        try:
            found[event] = one(db, "SELECT request_body FROM payload_rows WHERE event_id = ?", event)
        except sqlite3.DatabaseError as error:
            assert "CorruptedDataError" in str(error)
    assert all(bodies[event] == text for event, text in found.items()) and len(found) >= 20


def test_nothing_is_packed_without_the_setting(db):
    setting(db, "enabled", 1)
    one(db, "SELECT payload_queue('e', 'a', ?, 'r')", words(1, 3000))
    one(db, "SELECT payload_cleanup()")
    assert packed(db) == []


def test_a_packing_that_fails_loses_no_queued_row(full, path):
    setting(full, "enabled", 1)
    setting(full, "pack", 1)
    by_hand(path, "UPDATE store__state SET next = 0")
    db = connect(path)
    for i in range(45):
        assert one(db, "SELECT payload_queue(?, 'a', ?, 'r')", f"q{i}", words(i, 2000)) == 1
    assert one(db, "SELECT count(*) FROM event_payloads WHERE event_id GLOB 'q*'") == 45
    assert "CorruptedDataError" in one(db, "SELECT error FROM payload_waiting")


@pytest.mark.parametrize("begin", [False, True])
def test_rows_that_cannot_be_unpacked_do_not_stop_the_others(db, path, begin):
    for i in range(6):
        add(db, f"p{i}", noise(i, 262_000))
    pack(db)
    by_hand(path, "UPDATE store__packs SET data = zeroblob(length(data)) WHERE pack IN (2, 4)")
    fake = bytes.fromhex("b1627801") + bytes(32) + b"77"
    db = connect(path)
    add(db, "p9", fake, words(9, 900))
    if begin:
        db.execute("BEGIN")
    told = [unpack(db, 2) for _ in range(3)]
    if begin:
        db.execute("COMMIT")
    assert [t["rows"] for t in told] == [2, 2, 0]
    assert told[2]["left"] == ["p1", "p3"]
    assert [t["more"] for t in told] == [True, False, False]
    assert packed(db) == ["p1", "p3", "p9"]
    assert one(db, "SELECT request_body FROM event_payloads WHERE id = 'p4'") == noise(4, 262_000)
    db.execute("DELETE FROM event_payloads WHERE id < 'p9'")
    assert unpack(db) == {"rows": 0, "left": [], "more": False}
    assert one(db, "SELECT request_body FROM event_payloads WHERE id = 'p9'") == fake
    one(db, "SELECT blackbox_install()")
    whole(db)


# ------------------------------------------------------- files, processes ----


def test_copies_of_the_file_show_the_same(full, tmp_path):
    before = shown(full)
    full.execute("VACUUM INTO ?", (str(tmp_path / "into.db"),))
    other = sqlite3.connect(tmp_path / "restored.db")
    other.executescript("\n".join(full.iterdump()))
    other.close()
    full.execute("VACUUM")
    for copy in full, connect(tmp_path / "into.db"), connect(tmp_path / "restored.db"):
        assert shown(copy) == before
        whole(copy)
        copy.execute("DELETE FROM event_payloads WHERE id = 'a0'")
        one(copy, "SELECT store_sweep()")
        assert unpack(copy)["rows"] == 7
        assert shown(copy) == [row for row in before if row[0] != "a0"]
        whole(copy)


def test_a_newer_file_is_refused(full, path):
    by_hand(path, "UPDATE blackbox_domains SET format = 3 WHERE domain = 'payload'")
    for call in "blackbox_install()", "payload_pack()", "payload_unpack()", "payload_cleanup()":
        with pytest.raises(sqlite3.OperationalError, match="VersionError: .* format 3 of payload"):
            one(connect(path), f"SELECT {call}")


def test_a_newer_store_is_refused(full, path):
    by_hand(path, "UPDATE blackbox_domains SET format = 2 WHERE domain = 'store'")
    with pytest.raises(sqlite3.OperationalError, match="VersionError: .* format 2 of store"):
        one(connect(path), "SELECT store_sweep()")


WORKER = """
import sys
sys.path[:0] = [{tests!r}, {payload!r}]
from conftest import connect, one
from test_pack import words
import sqlite3, random
db = connect({path!r}, timeout=60)
db.execute("PRAGMA synchronous = OFF")
k = int(sys.argv[1])
for i in range(12):
    db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body,"
               " purpose) VALUES(?, 'e', 'a', ?, 'r', 'archive')",
               (f"w{{k}}-{{i}}", words(k, 3000) + words(100 * k + i, 1500)))
    act = (k + i) % 4
    if act == 0: one(db, "SELECT payload_pack(5)")
    if act == 1: db.execute("DELETE FROM event_payloads WHERE id = ?", (f"w{{k}}-{{i - 1}}",))
    if act == 2: one(db, "SELECT store_sweep()")
    if act == 3: one(db, "SELECT payload_unpack(2)")
    for id, body in db.execute("SELECT id, request_body FROM payload_rows"
                               " WHERE id GLOB ? ORDER BY random() LIMIT 3", (f"w{{k}}-*",)):
        assert body == words(k, 3000) + words(100 * k + int(id.split("-")[1]), 1500), id
"""


def worker(path, k, **options):
    code = WORKER.format(tests=str(ROOT / "tests"), payload=str(ROOT / "tests" / "payload"),
                         path=str(path))
    return subprocess.Popen([sys.executable, "-c", code, str(k)], **options)


def test_processes_pack_and_read(full, path):
    full.execute("PRAGMA journal_mode = WAL")
    before = shown(full)
    running = [worker(path, k, stderr=subprocess.PIPE, text=True) for k in range(8 if FULL else 4)]
    for process in running:
        told = process.communicate()[1]
        assert process.returncode == 0, told
    whole(full)
    assert [row for row in shown(full) if row[0][0] != "w"] == before


def test_a_killed_process_leaves_a_sound_file(full, path):
    full.execute("PRAGMA journal_mode = WAL")
    before = shown(full)
    for i in range(4):
        process = worker(path, 20 + i, stderr=subprocess.DEVNULL)
        time.sleep(0.25 + 0.05 * i)
        process.kill()
        process.wait()
        whole(full)
        assert [row for row in shown(full) if row[0][0] != "w"] == before


@needs_data
def test_recorded_exchanges_are_read_as_they_were(db):
    with gzip.open(DATA / "payloads.jsonl.gz", "rt") as file:
        for i, line in zip(range(250), file):
            r = json.loads(line)
            add(db, f"r{i:04}", *(body if body is None or isinstance(body, str)
                                  else json.dumps(body) for body in (r["request"], r["response"])))
    before = shown(db)
    said = pack(db)
    assert said["rows"] == 250
    assert shown(db) == before
    whole(db)


@needs_data
@pytest.mark.parametrize("queue", [True, False])
def test_recorded_exchanges_take_a_tenth(path, queue):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload,store')")
    db.execute("PRAGMA synchronous = OFF")
    setting(db, "enabled", 1)
    setting(db, "pack", 1)
    with gzip.open(DATA / "payloads.jsonl.gz", "rt") as file:
        found = [json.loads(line) for line in file]
    bodies = [[body if body is None or isinstance(body, str) else json.dumps(body)
               for body in (r["request"], r["response"])] for r in found]
    db.execute("" if queue else "BEGIN")
    for r, (request, response) in zip(found, bodies):
        db.execute(f"INSERT INTO {'payload_queue' if queue else 'event_payloads'}(event_id,"
                   f" agent_id, request_body, response_body{'' if queue else ', purpose'})"
                   f" VALUES(?, ?, ?, ?{'' if queue else ', ' + repr('archive')})",
                   (r["event_id"], r["agent_id"], request, response))
    db.execute("" if queue else "COMMIT")
    if not queue:
        pack(db, 10_000)
    pages = one(db, "PRAGMA page_count") - one(db, "PRAGMA freelist_count")
    assert one(db, "SELECT count(DISTINCT key) FROM payload__packed") == len(found)
    # Packs that the queue fills have 104 KB, so that no write takes more than five
    # times the median. So the same rows take 1 % more.
    assert pages * one(db, "PRAGMA page_size") < (0.102 if queue else 0.1) * sum(
        len((body or "").encode()) for row in bodies for body in row)


# -------------------------------------------------------------- max_bytes ----


def test_the_limit_in_bytes_counts_texts_that_are_packed_as_well(db):
    shared = words(0, 20_000)
    setting(db, "max_bytes", 100_000)
    for i in range(9):
        add(db, f"r{i}", shared + words(100 + i, 300), created_at=f"2027-01-01 00:00:{i:02}")
        if i % 3 == 2:
            pack(db)
    left = [row[0] for row in rows(db, "SELECT id FROM event_payloads ORDER BY id")]
    size = one(db, "SELECT bytes FROM payload__state")
    assert left == ["r5", "r6", "r7", "r8"][-len(left):] and 75_000 < size <= 100_000
    whole(db)
    unpack(db)
    assert one(db, "SELECT count(*) FROM event_payloads") == len(left)
    whole(db)


def test_a_limit_that_is_set_in_a_packed_file_counts_it_once(full, path):
    add(full, "n1", words(7, 500))
    setting(full, "max_bytes", 1_000_000)
    bytes = one(full, "SELECT sum(size_bytes) FROM event_payloads WHERE purpose = 'archive'"
                      " AND pinned = 0")
    assert one(full, "SELECT bytes FROM payload__state") == bytes
    whole(full)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DELETE FROM event_payloads WHERE id = 'a1'")
    db.execute("UPDATE event_payloads SET request_body = 'x' WHERE id = 'a2'")
    db.execute("REPLACE INTO event_payloads(id, event_id, agent_id, purpose)"
               " VALUES('a3', 'e', 'a', 'archive')")
    db.close()
    whole(full)
    pack(full)
    unpack(full)
    whole(full)


# ------------------------------------------------------------------ space ----


def test_a_new_file_gives_pages_back_1000_at_a_time(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    assert one(db, "PRAGMA auto_vacuum") == 2
    for i in range(500):
        add(db, f"r{i}", noise(i, 10_000), created_at="2001-01-01")
    pages = one(db, "PRAGMA page_count")
    assert one(db, "SELECT payload_cleanup(1) ->> '$.rows'") == 500
    assert one(db, "PRAGMA page_count") in (pages - 1000, pages - 1001)  # a page of pointers
    said = json.loads(one(db, "SELECT payload_db_size()"))
    assert said["reclaimableBytes"] == said["freeBytes"] > 0
    assert said["usedBytes"] + said["freeBytes"] == said["databaseBytes"]
    assert said["totalBytes"] == said["databaseBytes"] + said["walBytes"]
    one(db, "SELECT payload_cleanup(1)")
    assert one(db, "PRAGMA freelist_count") == 0


def test_an_older_file_stays_as_it_is(path):
    db = connect(path)
    db.execute("CREATE TABLE app(x)")
    one(db, "SELECT blackbox_install()")
    assert one(db, "PRAGMA auto_vacuum") == 0
    assert json.loads(one(db, "SELECT payload_db_size()"))["reclaimableBytes"] == 0
    one(db, "SELECT payload_cleanup()")


@pytest.mark.parametrize("bodies", [0, 1])
def test_the_store_goes_when_nothing_is_packed_and_the_archive_works_on(db, bodies):
    one(db, "SELECT blackbox_install('main', 'all')")
    body = noise(1, 30_000).hex()
    insert = ("INSERT INTO event_payloads(event_id, agent_id, purpose, request_body)"
              " VALUES('e', 'a', 'archive', ?)")
    for _ in range(bodies):
        db.execute(insert, (body,))
    assert f'"rows":{bodies},' in one(db, "SELECT payload_pack()")
    if bodies:
        with pytest.raises(sqlite3.IntegrityError, match="NotEmptyError.*payload_unpack"):
            one(db, "SELECT blackbox_uninstall('main', 'store', 'force')")
        one(db, "SELECT payload_unpack()")
    assert "store" not in one(db, "SELECT blackbox_uninstall('main', 'store')")
    db.execute(insert, (body,))
    assert rows(db, "SELECT request_body FROM payload_rows") == [(body,)] * (bodies + 1)
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute("DELETE FROM event_payloads")
    one(db, "SELECT payload_cleanup()")
    assert one(db, "SELECT blackbox_uninstall('main', 'payload,report,retention', 'force')")
