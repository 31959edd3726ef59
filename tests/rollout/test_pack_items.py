"""Items in the body store: read as they were, under the same rules as before."""
import gzip
import json
import random
import re
import sqlite3
import uuid

import pytest

from conftest import DATA, connect, needs_data, one, problems, rows
from rollout_helpers import ID, OTHER, append, create, load, message, texts, user, well

pytestmark = pytest.mark.all_domains  # the body store is another domain
NOTHING = {"rows": 0, "rawBytes": 0, "keptBytes": 0, "left": {"refused": 0}, "more": False}
PACKED = "SELECT id & 4294967295 FROM {}rollout__data WHERE typeof(payload) = 'blob' ORDER BY id"


def pack(db, *args):
    return json.loads(one(db, f"SELECT rollout_pack({', '.join('?' * len(args))})", *args))


def unpack(db, *args):
    return json.loads(one(db, f"SELECT rollout_unpack({', '.join('?' * len(args))})", *args))


def packed(db, schema=""):
    return [n for n, in db.execute(PACKED.format(schema))]


def words(seed, n):
    make = random.Random(seed)
    return " ".join("".join(make.choices("abcdefghij", k=make.randint(2, 8)))
                    for _ in range(n // 6))


def fill(db, rollout=ID, n=20, size=900):
    """A conversation of n messages, each as long."""
    create(db, rollout, ttl="permanent")
    append(db, rollout, *(message("user" if i % 2 else "assistant", f"{i} {words(i, size)}")
                          for i in range(n)))


def state(db, rollout=ID):
    """What readers see of a conversation."""
    return (texts(db, rollout), rows(db, "SELECT * FROM rollouts"),
            rows(db, "SELECT * FROM rollout_messages"),
            rows(db, "SELECT * FROM rollout_facts ORDER BY 1, 2, 3"),
            rows(db, "SELECT * FROM rollout_range(?, -1, 100)", rollout),
            rows(db, "SELECT * FROM rollout_context(?)", rollout),
            one(db, "SELECT rollout_history(?)", rollout),
            one(db, "SELECT rollout_export(?)", rollout),
            one(db, "SELECT rollout_export(?, 'markdown')", rollout),
            one(db, "SELECT rollout_export(?, 'atif')", rollout))


@pytest.fixture
def full(db):
    fill(db)
    assert pack(db)["rows"] == 20
    return db


def test_items_are_read_as_they_were(db):
    fill(db)
    before = state(db)
    assert pack(db, 12)["more"]
    told = pack(db)
    assert (told["rows"], told["more"], told["left"]) == (8, False, {"refused": 0})
    assert packed(db) == list(range(1, 21))  # the session_meta is short
    assert state(db) == before
    assert pack(db) == NOTHING
    assert problems(db) == []
    well(db)
    assert unpack(db, 15)["more"]
    assert unpack(db) == {"rows": 5, "left": 0, "more": False}
    assert packed(db) == [] and state(db) == before
    assert rows(db, "SELECT texts, dropped FROM store_stats") == [(0, 0)]
    assert rows(db, "SELECT * FROM rollout__packed") == []
    assert problems(db) == []


def test_the_search_finds_what_is_packed(full):
    one(full, "SELECT rollout_search_install()")
    word = words(3, 900).split()[0]
    assert rows(full, "SELECT sequence FROM rollout_search(?) WHERE sequence = 4", word) == [(4,)]
    one(full, "SELECT rollout_rebuild()")
    assert problems(full) == []


def test_a_long_session_meta_is_packed_and_changed(db, path):
    meta = {"id": ID, "cwd": "/w", "title": "T", "instructions": words(1, 3000)}
    db.execute("INSERT INTO rollouts(id, session_meta) VALUES(?, ?)", (ID, json.dumps(meta)))
    append(db, ID, message("user", "hi"))
    seen = "SELECT title, cwd, bytes, session_meta FROM rollouts ORDER BY created, id"
    before = rows(db, seen)
    assert pack(db)["rows"] == 1 and packed(db) == [0] and rows(db, seen) == before
    other = one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    assert pack(db)["rows"] == 1 and rows(db, "SELECT cwd FROM rollouts") == [("/w",)] * 2
    assert json.loads(one(db, "SELECT session_meta FROM rollouts WHERE id = ?", other))["forked_from_id"] == ID
    plain = sqlite3.connect(path, isolation_level=None)
    assert plain.execute("SELECT title, cwd FROM rollouts WHERE id = ?", (ID,)).fetchall() == [("T", "/w")]
    plain.execute("UPDATE rollouts SET status = 'archived' WHERE id = ?", (ID,))
    with pytest.raises(sqlite3.Error, match="MisuseError: this payload is packed"):
        plain.execute("UPDATE rollouts SET session_meta = '{}' WHERE id = ?", (ID,))
    with pytest.raises(sqlite3.Error, match="InvalidSessionMetaError"):
        db.execute("UPDATE rollouts SET session_meta = '{\"id\":\"x\"}' WHERE id = ?", (ID,))
    meta = json.dumps({**meta, "cwd": "/x", "title": "U"})
    db.execute("UPDATE rollouts SET session_meta = ? WHERE id = ?", (meta, ID))
    assert rows(db, seen)[0][0] == "U" and rows(db, seen)[0][3] == meta
    assert rows(db, seen)[0][2] == one(db, "SELECT sum(length(payload)) FROM rollout_items WHERE rollout = ?", ID)
    one(db, "SELECT rollout_rebuild()")
    one(db, "SELECT proof_head()")
    assert rows(db, seen)[0][:2] == ("U", "/x") and packed(db) == [0] and problems(db) == []
    well(db)
    db.execute("DELETE FROM rollouts")
    one(db, "SELECT store_sweep()")
    assert rows(db, "SELECT texts, dropped FROM store_stats") == [(0, 0)]


@pytest.mark.parametrize("begin", [False, True])
def test_packing_as_a_row_and_a_rollback(db, begin):
    fill(db)
    before = state(db)
    if begin:
        db.execute("BEGIN")
        assert pack(db)["rows"] == 20
        db.execute("ROLLBACK")
        assert packed(db) == [] and rows(db, "SELECT texts FROM store_stats") == [(0,)]
    db.execute("INSERT INTO blackbox_call VALUES('rollout_pack', '[10]')")
    assert len(packed(db)) == 10 and state(db) == before
    db.execute("INSERT INTO blackbox_call VALUES('rollout_unpack', '[]')")
    assert packed(db) == [] and state(db) == before


def test_a_store_is_needed(path):
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'rollout')")
    with pytest.raises(sqlite3.Error, match=r"NotInstalledError: .*'store'\)"):
        pack(db)
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'rollout.pack'")
    fill(db)
    assert packed(db) == []


@pytest.mark.parametrize("sql", ["rollout_pack(0)", "rollout_pack('x')", "rollout_unpack(-1)"])
def test_bad_arguments_are_refused(db, sql):
    with pytest.raises(sqlite3.Error, match="ValidationError: limit"):
        db.execute("SELECT " + sql).fetchall()


def test_equal_items_are_once(db):
    fill(db, n=30, size=4000)
    lines = one(db, "SELECT rollout_export(?)", ID)
    pack(db)
    kept = one(db, "SELECT kept_bytes FROM store_stats")
    for _ in range(3):  # files that repeat it, as forks and sub-agents do
        load(db, lines.replace(ID, str(uuid.uuid4())))
    assert pack(db)["rows"] == 90
    assert one(db, "SELECT kept_bytes FROM store_stats") < kept * 1.1
    assert problems(db) == []


def test_a_fork_shows_what_is_packed_and_keeps_it(full):
    other = one(full, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    assert texts(full, other)[1:] == texts(full, ID)[1:]
    full.execute("DELETE FROM rollouts WHERE id = ?", (ID,))
    assert len(texts(full, other)) == 21 and problems(full) == []
    full.execute("DELETE FROM rollouts WHERE id = ?", (other,))
    assert one(full, "SELECT store_sweep()") == 20
    assert rows(full, "SELECT texts, packs FROM store_stats") == [(0, 0)]
    assert rows(full, "SELECT * FROM rollout__packed") == [] and problems(full) == []


@pytest.mark.parametrize("module", [True, False])
def test_a_deletion_has_a_receipt_of_the_true_bytes(full, path, module):
    bytes = one(full, "SELECT bytes FROM rollouts")
    db = full if module else sqlite3.connect(path)
    db.execute("DELETE FROM rollouts")
    db.commit()
    assert one(full, "SELECT sum(bytes) FROM retention_log WHERE domain = 'rollout'") == bytes
    assert one(full, "SELECT dropped FROM store_stats") == 20
    assert json.loads(one(full, "SELECT retention_sweep()"))["removed"] == 0
    assert rows(full, "SELECT texts, dropped FROM store_stats") == [(0, 0)]
    assert problems(full) == []


def test_without_the_module_everything_works_but_reading_texts(full, path):
    plain = sqlite3.connect(path)
    assert plain.execute("SELECT item_count, json_valid(session_meta) FROM rollouts").fetchall() \
        == [(21, 1)]
    shown = plain.execute("SELECT sequence, typeof(payload) FROM rollout_items").fetchall()
    assert shown == [(0, "text")] + [(i, "blob") for i in range(1, 21)]
    assert plain.execute("SELECT text FROM rollout_messages LIMIT 1").fetchall() == [(None,)]
    with pytest.raises(sqlite3.Error, match="MisuseError: this payload is packed"):
        plain.execute("UPDATE rollout_items SET payload = '{}' WHERE sequence = 2")
    payload = json.dumps(user("new")["payload"])
    for view in "rollout_log(rollout_id", "rollout_items(rollout":
        plain.execute(f"INSERT INTO {view}, type, payload) VALUES(?, 'event_msg', ?)",
                      (ID, payload))
    plain.commit()
    assert texts(full, ID)[-1] == (22, payload)
    append(full, ID, user("and more"))
    assert problems(full) == []


def test_a_redaction_takes_the_text_away(full):
    old = texts(full, ID)[3][1]
    new = old.replace(old[-200:-10], "x")
    full.execute("UPDATE rollout_items SET payload = ? WHERE sequence = 3", (new,))
    assert 3 not in packed(full) and texts(full, ID)[3][1] == new
    assert one(full, "SELECT bytes FROM rollouts") == sum(
        len(payload.encode()) for _, payload in texts(full, ID))
    assert one(full, "SELECT count(*) FROM blackbox_log WHERE kind = 'redaction'") == 1
    append(full, ID, user("more"))
    assert one(full, "SELECT store_sweep()") == 1
    well(full)
    one(full, "SELECT proof_head()")
    assert problems(full) == []
    with pytest.raises(sqlite3.Error, match="InvalidItemError: .*keeps type, role"):
        full.execute("UPDATE rollout_items SET payload = '{\"type\":\"other\"}' WHERE sequence = 4")


@pytest.mark.parametrize("module", [True, False])
def test_only_the_reference_that_was_put_there_is_admitted(full, path, module):
    db = full if module else sqlite3.connect(path)
    take = "(SELECT payload FROM rollout__data WHERE id & 4294967295 = 5)"
    for sql in ("UPDATE rollout__data SET payload = x'7b7d' WHERE id & 4294967295 = 6",
                f"UPDATE rollout_items SET payload = {take} WHERE sequence = 6",
                "INSERT INTO rollout_log(rollout_id, type, payload)"
                f" SELECT '{ID}', 'event_msg', {take}"):
        with pytest.raises(sqlite3.Error, match="InvalidItemError|MisuseError"):
            db.execute(sql)
    assert problems(full) == []
    for reference in take, "x'b1627802'":  # who writes blackbox's own table is found
        for sequence in 0, 6:
            db.execute("SAVEPOINT s")
            db.execute(f"UPDATE rollout__data SET payload = {reference} WHERE id & 4294967295 = {sequence}")
            if module:
                assert problems(full) != []
            db.execute("ROLLBACK TO s")
            db.execute("RELEASE s")
    assert problems(full) == []


def test_a_hold_stops_neither_packing_nor_unpacking(db):
    fill(db)
    before = state(db)
    one(db, "SELECT retention_hold('rollout', ?, 'case 7', 'Ann', 'kept')", ID)
    assert pack(db)["rows"] == 20 and state(db) == before
    with pytest.raises(sqlite3.Error, match="HeldError"):
        db.execute("UPDATE rollout_items SET payload = replace(payload, 'a', 'b')")
    with pytest.raises(sqlite3.Error, match="HeldError"):
        db.execute("DELETE FROM rollouts")
    assert unpack(db)["rows"] == 20 and state(db) == before
    assert problems(db) == []


def test_an_erasure_finds_packed_items_and_removes_their_pieces(db, path):
    fill(db)
    secret = "4111 1111 1111 1111"
    append(db, ID, message("user", secret + words(99, 700)), message("user", words(98, 700)))
    pack(db)
    told = json.loads(one(db, "SELECT blackbox_erase('text', ?, 'Ann', 'asked')", secret))
    assert told["rows"] >= 1
    assert not [p for _, p in texts(db, ID) if secret in p]
    assert 21 not in packed(db) and 22 in packed(db)
    assert one(db, "SELECT dropped FROM store_stats") == 0
    assert problems(db) == []


@pytest.mark.parametrize("raises", ["SELECT RAISE(ABORT, 'mine')", "SELECT RAISE(IGNORE)"])
def test_packing_passes_over_items_that_a_trigger_keeps(db, raises):
    fill(db)
    db.execute("CREATE TRIGGER mine BEFORE UPDATE ON rollout__data WHEN OLD.id & 4294967295 = 7"
               f" BEGIN {raises}; END")
    told = pack(db)
    assert (told["rows"], told["left"]) == (19, {"refused": 1})
    assert 7 not in packed(db)
    db.execute("DROP TRIGGER mine")
    assert pack(db)["rows"] == 1
    db.execute("CREATE TRIGGER mine BEFORE UPDATE ON rollout__data WHEN OLD.id & 4294967295 = 7"
               f" BEGIN {raises}; END")
    assert unpack(db) == {"rows": 19, "left": 1, "more": False}
    assert packed(db) == [7]
    db.execute("DROP TRIGGER mine")
    assert unpack(db)["rows"] == 1 and problems(db) == []


def test_the_setting_packs_what_is_written(db):
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'rollout.pack'")
    fill(db, n=10)
    assert packed(db) == []
    for i in range(10):
        append(db, ID, message("user", words(i, 600)))
    assert packed(db) == list(range(1, 16))
    for i in range(30):  # plain SQL's, with the next write of the module
        db.execute("INSERT INTO rollout_log(rollout_id, type, payload) SELECT ?, ?2 ->> 'type',"
                   " ?2 -> 'payload'", (ID, json.dumps(message("user", words(i, 600)))))
    append(db, ID, message("user", "x"))
    assert set(range(16, 48)) <= set(packed(db)) | {16, 17, 18, 19, 20}
    load(db, one(db, "SELECT rollout_export(?)", ID).replace(ID, OTHER))
    assert len(packed(db)) > 90
    assert texts(db, OTHER)[1:] == texts(db, ID)[1:]
    well(db)
    assert problems(db) == []


def test_a_packing_that_fails_loses_no_item(db):
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'rollout.pack'")
    create(db)
    db.execute("UPDATE store__state SET next = 0")
    assert append(db, ID, *(message("user", words(i, 600)) for i in range(20))) == 20
    assert packed(db) == [] and len(texts(db, ID)) == 21
    assert "store__state" in str(rows(
        db, "SELECT * FROM retention_refusals WHERE rule = 'rollout.pack'"))


def test_what_expires_frees_its_room(db):
    for i in range(6):
        create(db, rollout := str(uuid.uuid4()), ttl=1)
        append(db, rollout, *(message("user", words(100 * i + n, 900)) for n in range(20)))
    fill(db)
    assert pack(db)["rows"] == 140
    later = "unixepoch() * 1000 + 2 * 86400000"
    assert one(db, f"SELECT rollout_cleanup_expired({later}, 2)") == 2
    assert rows(db, "SELECT texts, dropped FROM store_stats") == [(100, 0)]
    create(db, OTHER)  # plain statements and appends do it, too
    for i in range(60):
        append(db, OTHER, message("user", "x"))
    db.execute("DELETE FROM rollouts WHERE id NOT IN (?, ?)", (ID, OTHER))
    for i in range(60):
        append(db, OTHER, message("user", "x"))
    assert one(db, "SELECT texts + dropped FROM store_stats") < 28
    assert problems(db) == []


def test_an_attached_schema_with_a_quoted_name(db, tmp_path):
    db.execute("ATTACH ? AS 'the \"other\"'", (str(tmp_path / "other.db"),))
    db.execute("SELECT blackbox_install('the \"other\"', 'rollout,store')")
    db.execute("SELECT blackbox_use('the \"other\"')")
    fill(db)
    before = state(db)
    assert pack(db)["rows"] == 20
    assert packed(db, '"the ""other""".') == list(range(1, 21)) and packed(db) == []
    assert state(db) == before


@pytest.mark.parametrize("pragma", ["PRAGMA trusted_schema = OFF", None])
def test_other_connections(full, path, pragma):
    before = texts(full, ID)
    db = connect(path)
    if pragma and sqlite3.sqlite_version_info >= (3, 41):
        db.execute(pragma)
    assert texts(db, ID) == before


def test_damage_is_named(full):
    full.execute("UPDATE store__packs SET data = substr(data, 1, length(data) - 40) WHERE pack > 0")
    with pytest.raises(sqlite3.Error, match="CorruptedDataError: pack 1"):
        texts(full, ID)
    with pytest.raises(sqlite3.Error, match="CorruptedDataError"):
        one(full, "SELECT rollout_export(?)", ID)
    told = " ".join(map(str, problems(full)))
    assert f"{ID}, item 3" in told and "cannot be read" in told
    assert unpack(full)["left"] == 20
    assert len(packed(full)) == 20
    full.execute("DELETE FROM rollouts")  # is possible


@pytest.mark.parametrize("damage", [
    "UPDATE store__texts SET mark = x'0102030405060708' WHERE text = 3",
    "UPDATE store__texts SET mark = 'x' WHERE text = 3",
    "DELETE FROM store__texts WHERE text = 3"])
def test_a_reference_that_names_no_text_is_damage(full, damage):
    full.execute(damage)
    for sql in ("SELECT payload FROM rollout_items", "SELECT text FROM rollout_messages",
                f"SELECT rollout_export('{ID}')", f"SELECT rollout_export('{ID}', 'atif')",
                f"SELECT rollout_history('{ID}')", "SELECT * FROM blackbox_find_secrets()",
                "SELECT blackbox_erase('text', 'a text', 'ann', 'why')"):
        with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: .* text 3 "):
            rows(full, sql)
    assert len(rows(full, "SELECT payload FROM rollout_items WHERE sequence <> 3")) == 20
    assert f"row '{ID}, item 3' names a text that" in str(problems(full))
    assert unpack(full) == {"rows": 19, "left": 1, "more": False}
    assert packed(full) == [3] and unpack(full) == {"rows": 0, "left": 1, "more": False}
    full.execute("DELETE FROM rollouts")


def test_a_reference_that_was_changed_is_named(full):
    full.execute("UPDATE rollout__packed SET id = 99 WHERE text = 3")
    assert "text 3 is that of no item" in str(problems(full))


@needs_data
def test_recorded_sessions_with_forks_take_little_room(db, path):
    """The whole file; what a fork repeats is there once."""
    raw, kept = 0, []
    for file in sorted((DATA / "rollouts" / "codex").iterdir()):
        text = (gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()).decode()
        own = re.search(r"[0-9a-f]{8}-[0-9a-f-]{27}", file.name).group()
        for i in range(3):
            data = text.replace(own, str(uuid.uuid4())) if i else text
            raw += len(data.encode())
            kept.append((load(db, data)["rolloutId"], data))
    while pack(db, 5000)["more"]:
        pass
    free = one(db, "PRAGMA freelist_count") * one(db, "PRAGMA page_size")
    assert (path.stat().st_size - free) / raw < 0.225
    for rollout, data in kept:
        assert one(db, "SELECT rollout_export(?)", rollout) == data
    assert problems(db) == []


def test_a_file_that_has_grown_is_compared_with_what_is_packed(db):
    fill(db)
    lines = one(db, "SELECT rollout_export(?)", ID)
    first = lines[:lines.index("\n", len(lines) // 2) + 1].replace(ID, OTHER)
    load(db, first)
    assert pack(db)["rows"] > 25
    told = load(db, lines.replace(ID, OTHER))
    assert told["items"] == 21 and 0 < told["new"] < 21
    assert one(db, "SELECT rollout_export(?)", OTHER) == lines.replace(ID, OTHER)
    assert load(db, lines.replace(ID, OTHER))["new"] == 0
    assert problems(db) == []


def test_a_report_shows_what_is_packed(db):
    def report():
        told = json.loads(one(
            db, "SELECT blackbox_report('rollout', ?, '{\"format\":\"json\"}')", ID))
        return {key: value for key, value in told.items() if key != "made"}
    fill(db)
    before = report()
    assert words(3, 900)[:40] in str(before)
    pack(db)
    assert report() == before


def test_a_list_reads_no_text_that_is_packed(db):
    """Only who asks for session_meta waits for it: without the packs the rest of a row is there."""
    one(db, "SELECT rollout_create(?, NULL, NULL, ?)", ID,
        json.dumps({"id": ID, "title": "t", "cwd": "/w", "instructions": words(1, 900)}))
    assert pack(db)["rows"] == 1
    columns = [name for _, name, *_ in rows(db, "PRAGMA table_info(rollouts)") if name != "session_meta"]
    before = rows(db, f"SELECT {', '.join(columns)} FROM rollouts")
    db.execute("DELETE FROM store__packs")
    assert rows(db, f"SELECT {', '.join(columns)} FROM rollouts") == before
    assert ("t", "/w") == (before[0][columns.index("title")], before[0][columns.index("cwd")])
    with pytest.raises(sqlite3.Error, match="CorruptedDataError"):
        db.execute("SELECT * FROM rollouts").fetchall()
