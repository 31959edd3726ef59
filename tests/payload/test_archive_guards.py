"""event_payloads: what its triggers refuse, on any connection."""
import sqlite3

import pytest

from conftest import ROOT, connect, one, rows, shell
from payload_helpers import check

COLUMNS = ["id", "event_id", "agent_id", "request_body", "response_body",
           "size_bytes", "purpose", "pinned", "kill_switch_event_id", "created_at"]
ROW = ("e", "ag", "q", "r", "2026-01-31T12:00:00.000Z")


def add(db, id, purpose="archive", pinned=0, verb="INSERT"):
    db.execute(f"{verb} INTO event_payloads(id, event_id, agent_id, request_body, "
               "response_body, created_at, purpose, pinned) VALUES(?,?,?,?,?,?,?,?)",
               (id, *ROW, purpose, pinned))


def table(db):
    return rows(db, "SELECT rowid, * FROM event_payloads ORDER BY rowid")


@pytest.fixture(params=["module", "plain", "plain-recursive", "module-recursive",
                        "trusted-off"])
def archive(db, path, request):
    """A connection, with or without the module, to a file that has one row of each kind: pinned
    evidence, pinned archive, unpinned evidence, unpinned archive."""
    db.execute("PRAGMA synchronous=OFF")
    add(db, "ev", "evidence")
    add(db, "pin", "archive", 1)
    add(db, "freed", "evidence")
    add(db, "old")
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
               "VALUES('freed', 'tests', 'to have one')")
    plain = db
    if request.param.startswith("plain"):
        plain = sqlite3.connect(path, isolation_level=None)
    if request.param.endswith("recursive"):
        plain.execute("PRAGMA recursive_triggers=ON")
    if request.param == "trusted-off":
        plain.execute("PRAGMA trusted_schema=OFF")
    plain.execute("PRAGMA synchronous=OFF")
    yield plain
    plain.close()


REFUSED = (
    ["DELETE FROM event_payloads WHERE id = :id",
     "DELETE FROM event_payloads",
     "DELETE FROM event_payloads WHERE rowid = :rowid"]
    + [f"UPDATE {clause} event_payloads SET {column} = 'other' WHERE id = :id"
       for clause in ("", "OR REPLACE") for column in COLUMNS
       if column not in ("purpose", "pinned", "size_bytes")]
    + [f"UPDATE event_payloads SET {change} WHERE id = :id" for change in (
        "purpose = CASE purpose WHEN 'archive' THEN 'evidence' ELSE 'archive' END", "pinned = 0", "pinned = NULL",
        "size_bytes = 0", "size_bytes = NULL", "rowid = 99", "id = NULL",
        "request_body = CAST(request_body AS BLOB)", "request_body = NULL",
        "agent_id = 'AG'", "pinned = 0, id = 'x'", "kill_switch_event_id = 'k'")]
    + ["UPDATE OR REPLACE event_payloads SET id = :id WHERE id = 'old'",
       "UPDATE OR IGNORE event_payloads SET request_body = 'x' WHERE id = :id",
       "UPDATE OR IGNORE event_payloads SET id = :id WHERE id = 'old'",
       "UPDATE OR REPLACE event_payloads SET rowid = :rowid WHERE id = 'old'",
       "UPDATE OR REPLACE event_payloads SET rowid = :rowid, id = :id "
       "WHERE id = 'old'",
       "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
       "VALUES(:id, 'x', 'x', 'archive')",
       "REPLACE INTO event_payloads(id, event_id, agent_id, purpose, pinned) "
       "VALUES(:id, 'x', 'x', 'evidence', 1)",
       "REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
       "VALUES(:rowid, 'new', 'x', 'x', 'archive')",
       "REPLACE INTO event_payloads(rowid, event_id, agent_id, purpose) "
       "VALUES(:rowid, 'x', 'x', 'archive')",
       "REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
       "VALUES(:rowid, :id, 'x', 'x', 'evidence')",
       "REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
       "SELECT rowid, 'old', 'x', 'x', 'archive' FROM event_payloads WHERE id=:id",
       "REPLACE INTO event_payloads(event_id, agent_id, purpose, id) "
       "VALUES('x', 'x', 'archive', 'first'), ('x', 'x', 'archive', :id)",
       "INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
       "VALUES(:id, 'x', 'x', 'archive')",
       "INSERT OR FAIL INTO event_payloads(id, event_id, agent_id, purpose) "
       "VALUES(:id, 'x', 'x', 'archive')",
       "INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
       "VALUES(:id, 'x', 'x', 'archive') ON CONFLICT(id) DO UPDATE "
       "SET event_id = excluded.event_id",
       "INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
       "VALUES(:id, 'x', 'x', 'archive') ON CONFLICT(id) DO UPDATE "
       "SET id = 'moved'",
       "INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
       "VALUES('old', 'x', 'x', 'archive') ON CONFLICT(id) DO UPDATE "
       "SET id = :id",
       "DELETE FROM payload_pins WHERE id = :id",
       "UPDATE payload_pins SET id = 'x' WHERE id = :id",
       "INSERT INTO payload_pins(id) VALUES('old')"]
)


@pytest.mark.parametrize("id", ["ev", "pin"])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_no_statement_changes_or_removes_a_pinned_row(archive, id, begin):
    before = table(archive)
    pins = rows(archive, "SELECT * FROM payload_pins")
    rowid = one(archive, "SELECT rowid FROM event_payloads WHERE id=?", id)
    archive.execute(begin)
    for statement in REFUSED:
        try:
            archive.execute(statement, {"id": id, "rowid": rowid})
        except sqlite3.IntegrityError:
            pass
        except sqlite3.OperationalError as error:
            assert "cannot modify payload_pins because it is a view" in str(error)
        else:
            pytest.fail("was let through: " + statement)
        assert table(archive) == before, statement
        assert rows(archive, "SELECT * FROM payload_pins") == pins, statement


@pytest.mark.parametrize("id", ["ev", "pin"])
@pytest.mark.parametrize(
    "statement",
    ["INSERT OR IGNORE INTO event_payloads(id, event_id, agent_id, purpose) "
     "VALUES(?, 'x', 'x', 'archive')",
     "INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
     "VALUES(?, 'x', 'x', 'archive') ON CONFLICT DO NOTHING",
     "INSERT INTO event_payloads(id, event_id, agent_id, purpose, pinned) "
     "VALUES(?, 'x', 'x', 'evidence', 1) ON CONFLICT(id) DO NOTHING",
     "INSERT OR IGNORE INTO event_payloads SELECT id, event_id, agent_id, request_body, "
     "response_body, size_bytes, purpose, pinned, kill_switch_event_id, created_at, meta "
     "FROM event_payloads WHERE id = ?",
     "UPDATE event_payloads SET pinned = 1 WHERE id = ?",
     "UPDATE event_payloads SET pinned = pinned, id = id WHERE id = ?"])
def test_replays_pass_and_change_nothing(archive, id, statement):
    before = table(archive)
    archive.execute(statement, (id,))
    assert table(archive) == before


def test_replay_beside_new_rows_adds_the_new_ones(archive):
    archive.execute("INSERT OR IGNORE INTO event_payloads(id, event_id, agent_id, "
                    "purpose) VALUES('ev','x','x','archive'),('n','x','x','archive')")
    assert one(archive, "SELECT event_id FROM event_payloads WHERE id='n'") == "x"
    assert one(archive, "SELECT event_id FROM event_payloads WHERE id='ev'") == "e"


def test_rows_that_are_not_pinned_can_be_changed_and_deleted(archive):
    for id in ("old", "freed"):
        archive.execute("UPDATE event_payloads SET request_body = 'longer é' "
                        "WHERE id = ?", (id,))
        assert one(archive, "SELECT size_bytes FROM event_payloads WHERE id=?", id) \
            == 10
        add(archive, id, verb="REPLACE")
        archive.execute("DELETE FROM event_payloads WHERE id = ?", (id,))
    assert [r[1] for r in table(archive)] == ["ev", "pin"]


def test_size_is_the_bytes_of_both_bodies_whatever_is_said(archive):
    for i, (request, response, size) in enumerate(
            [("é", "🤖", 6), (None, None, 0), (b"\0\0\xff", "", 3), ("a\0b", "x", 4)]):
        archive.execute(
            "INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
            "response_body, size_bytes, purpose) VALUES(?,'e','a',?,?,77,?)",
            (f"s{i}", request, response, ("archive", "evidence")[i % 2]))
        assert one(archive, "SELECT size_bytes FROM event_payloads WHERE id=?",
                   f"s{i}") == size
    with pytest.raises(sqlite3.IntegrityError, match="size_bytes is the length of both bodies"):
        archive.execute("UPDATE event_payloads SET size_bytes = 5 WHERE id = 's0'")
    archive.execute("UPDATE event_payloads SET size_bytes = 6, meta = '1' WHERE id = 's0'")
    assert one(archive, "SELECT size_bytes FROM event_payloads WHERE id='s0'") == 6


def test_schema_gives_id_time_and_pin(archive):
    for _ in range(2):
        archive.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) "
                        "VALUES('new', 'a', 'evidence')")
    with pytest.raises(sqlite3.IntegrityError, match="NOT NULL"):
        archive.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
                        "VALUES(NULL, 'new', 'a', 'archive')")
    found = rows(archive, "SELECT id, created_at, pinned FROM event_payloads "
                 "WHERE event_id = 'new'")
    assert len({r[0] for r in found}) == 2
    for id, created, _ in found:
        assert one(archive, "SELECT ? GLOB replace('xxxxxxxx-xxxx-4xxx-[89ab]xxx-"
                   "xxxxxxxxxxxx', 'x', '[0-9a-f]')", id) == 1
        assert one(archive, "SELECT abs(julianday('now') - julianday(?)) < 0.001",
                   created) == 1
        assert created[10] == "T" and created[-1] == "Z"
    assert [r[2] for r in found] == [1, 1]


@pytest.mark.parametrize(
    "column, value, message",
    [("event_id", None, "NOT NULL|must be non-empty text"), ("event_id", "", "non-empty"),
     ("event_id", b"e", "must be non-empty text"), ("agent_id", None, "NOT NULL|must be non-empty text"),
     ("agent_id", "", "non-empty"), ("agent_id", b"", "must be non-empty text"),
     ("purpose", "other", "CHECK"), ("purpose", None, "NOT NULL"),
     ("purpose", "Archive", "CHECK"), ("pinned", 2, "pinned must be 0 or 1"),
     ("pinned", -1, "pinned must be"), ("pinned", "yes", "pinned must be"),
     ("pinned", None, "NOT NULL|pinned must be"), ("created_at", None, "NOT NULL|must be a date"),
     ("created_at", "now", "created_at must be a date"),
     ("created_at", "2024", "created_at must be"),
     ("created_at", "12:00", "created_at must be"),
     ("created_at", "1700000000000", "created_at must be"),
     ("created_at", 1700000000000, "created_at must be"),
     ("created_at", "", "created_at must be"),
     ("created_at", "2024-13-01", "created_at must be"),
     ("created_at", "2024-01-01Tnoon", "created_at must be"),
     ("created_at", "2024-01-01 25:00:00", "created_at must be"),
     ("created_at", "abcd-01-01", "created_at must be")])
def test_bad_values_are_refused_in_new_and_changed_rows(archive, column, value,
                                                        message):
    before = table(archive)
    row = dict(zip(COLUMNS, ("n", *ROW[:4], 2, "archive", 0, None, ROW[4])))
    row[column] = value
    with pytest.raises(sqlite3.IntegrityError, match=message):
        archive.execute(f"INSERT INTO event_payloads({', '.join(row)}) "
                        f"VALUES({', '.join('?' * len(row))})", tuple(row.values()))
    with pytest.raises(sqlite3.IntegrityError, match=message):
        archive.execute(f"UPDATE event_payloads SET {column} = ? WHERE id = 'old'",
                        (value,))
    assert table(archive) == before


@pytest.mark.parametrize(
    "created, ms",
    [("1970-01-01 00:00:00", 0), ("2026-01-31T12:00:00.123Z", 1769860800123),
     ("2026-01-31 12:00:00", 1769860800000), ("2026-01-31", 1769817600000),
     ("2026-01-31T12:00:00+01:30", 1769855400000), ("2026-01-31 12:00",
                                                    1769860800000),
     ("9999-12-31 23:59:59.999", 253402300799999)])
def test_dates_are_read_as_time(archive, created, ms):
    archive.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, "
                    "created_at) VALUES('t','e','a','archive',?)", (created,))
    assert rows(archive, "SELECT created_ms, created_at FROM event_payloads "
                "WHERE id='t'") == [(ms, created)]


# ---- unpinning


def unpin(db, id="ev", actor="Ann", reason="case 7 closed"):
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) VALUES(?,?,?)",
               (id, actor, reason))


def test_unpin_records_who_and_why_and_frees_the_row(archive):
    unpin(archive)
    assert rows(archive, "SELECT payload_id, actor, reason, event_id, agent_id, "
                "abs(at - (julianday('now') - 2440587.5) * 86400000) < 60000 "
                "FROM payload_unpins WHERE payload_id = 'ev'") \
        == [("ev", "Ann", "case 7 closed", "e", "ag", 1)]
    assert one(archive, "SELECT pinned FROM event_payloads WHERE id='ev'") == 0
    archive.execute("DELETE FROM event_payloads WHERE id='ev'")
    assert one(archive, "SELECT count(*) FROM event_payloads WHERE id='ev'") == 0
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        archive.execute("DELETE FROM event_payloads WHERE id='pin'")


@pytest.mark.parametrize(
    "id, actor, reason, message",
    [("ev", None, "r", "visible text"), ("ev", "a", None, "visible text"),
     ("ev", "", "r", "visible text"), ("ev", "  ", "r", "visible text"),
     ("ev", "a", " ", "visible text"), ("ev", "a", "\n", "visible text"),
     ("ev", "\n", "r", "visible text"), ("ev", b"\0", "r", "visible text"),
     ("ev", "a\0b", "r", "visible text"), ("ev", "a", b"r", "visible text"),
     ("ev", "\u00a0\u200b", "r", "visible text"), ("ev", "a", "r\x1b[2J", "visible text"),
     ("old", "a", "r", "NotFoundError"), ("freed", "a", "r", "NotFoundError"),
     ("nothing", "a", "r", "NotFoundError"), (None, "a", "r", "NotFoundError")])
def test_unpin_needs_actor_reason_and_a_pinned_row(archive, id, actor, reason,
                                                   message):
    before = rows(archive, "SELECT * FROM payload_unpins")
    with pytest.raises(sqlite3.IntegrityError, match=message):
        unpin(archive, id, actor, reason)
    assert rows(archive, "SELECT * FROM payload_unpins") == before
    assert one(archive, "SELECT pinned FROM event_payloads WHERE id='ev'") == 1
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        archive.execute("DELETE FROM event_payloads WHERE id='ev'")


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM payload_unpins", "UPDATE payload_unpins SET actor = 'Bob'",
     "DELETE FROM blackbox_log", "UPDATE blackbox_log SET actor = 'Bob'",
     "INSERT INTO blackbox_log(domain, kind, subject, actor) "
     "VALUES('payload', 'unpin', 'ev', 'Bob')",
     "REPLACE INTO payload_unpins(id, payload_id, actor, reason) "
     "SELECT id, 'ev', 'Bob', 'r' FROM payload_unpins",
     "REPLACE INTO payload_unpins(pin, payload_id, actor, reason) "
     "SELECT pin, 'ev', 'Bob', 'r' FROM payload_unpins",
     "INSERT INTO payload_unpins(id, payload_id, actor, reason) "
     "SELECT id, 'ev', 'Bob', 'r' FROM payload_unpins",
     "INSERT INTO payload_unpins(at, payload_id, actor, reason) "
     "VALUES(0, 'ev', 'Bob', 'r')"])
def test_the_record_of_unpins_stays(archive, statement):
    before = rows(archive, "SELECT * FROM payload_unpins")
    with pytest.raises(sqlite3.Error, match="ValidationError|NotFoundError|because it is a view"):
        archive.execute(statement)
    assert rows(archive, "SELECT * FROM payload_unpins") == before


def test_the_record_of_unpins_cannot_be_overwritten_by_number(archive):
    """In a trigger the number is -1 if the statement gave none."""
    recorded = rows(archive, "SELECT payload_id, actor FROM payload_unpins")
    for id in ("ev", "pin"):
        try:
            archive.execute("REPLACE INTO payload_unpins(id, payload_id, actor, "
                            "reason) VALUES(-1, ?, 'Ann', 'r')", (id,))
            recorded.append((id, "Ann"))
        except sqlite3.IntegrityError:
            pass
    assert rows(archive, "SELECT payload_id, actor FROM payload_unpins "
                "ORDER BY at, id DESC") == recorded


def test_evidence_cannot_be_overwritten_at_rowid_minus_one(archive):
    before = table(archive)
    insert = ("REPLACE INTO event_payloads(rowid, id, event_id, agent_id, purpose) "
              "VALUES(-1, ?, 'x', 'x', ?)")
    for id, purpose in (("m1", "evidence"), ("m2", "archive")):
        try:
            archive.execute(insert, (id, purpose))
        except sqlite3.IntegrityError:
            continue
        before.append(rows(archive, "SELECT rowid, * FROM event_payloads "
                           "WHERE id = ?", id)[0])
    assert sorted(map(repr, table(archive))) == sorted(map(repr, before))
    archive.execute("DELETE FROM event_payloads WHERE rowid = -1 AND pinned = 0")
    with pytest.raises(sqlite3.IntegrityError, match="a row keeps its id and rowid"):
        archive.execute("UPDATE event_payloads SET rowid = -1 WHERE id = 'old'")


def test_a_new_pin_after_an_unpin_holds_again(archive):
    unpin(archive)
    archive.execute("UPDATE event_payloads SET pinned = 1 WHERE id='ev'")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        archive.execute("DELETE FROM event_payloads WHERE id='ev'")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        archive.execute("UPDATE event_payloads SET pinned = 0 WHERE id='ev'")
    unpin(archive, reason="again")
    pins = rows(archive, "SELECT pin FROM payload_unpins WHERE payload_id='ev'")
    assert len(set(pins)) == 2
    archive.execute("DELETE FROM event_payloads WHERE id='ev'")


def test_an_archive_row_may_be_pinned(archive):
    archive.execute("UPDATE event_payloads SET pinned = 1 WHERE id='old'")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        archive.execute("DELETE FROM event_payloads WHERE id='old'")
    unpin(archive, "old")
    archive.execute("DELETE FROM event_payloads WHERE id='old'")


def test_an_archive_row_made_evidence_is_pinned(archive):
    archive.execute("UPDATE event_payloads SET purpose = 'evidence' WHERE id='old'")
    assert one(archive, "SELECT pinned FROM event_payloads WHERE id='old'") == 1
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        archive.execute("DELETE FROM event_payloads WHERE id='old'")


def test_check_finds_meta_that_is_no_json(db):
    for id, meta in ("a", '{"x":1}'), ("b", "[]"), ("c", None), ("d", "{"), ("e", b"\x01"):
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, meta) "
                   "VALUES(?, 'e', 'a', 'archive', ?)", (id, meta))
    assert [row[2] for row in check(db)] == ["meta of row d is no JSON", "meta of row e is no JSON"]


def late(db, id="ev", text="late"):
    db.execute("UPDATE event_payloads SET response_body = ?, meta = '{\"tokens\":5}' WHERE id = ?",
               (text, id))


def test_a_pinned_row_without_a_response_gets_a_late_one_once_and_is_logged(archive):
    for id in "ev2", "old":
        archive.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose) "
                        "VALUES(?, 'e', 'a', 'q', 'evidence') ON CONFLICT (id) DO UPDATE "
                        "SET response_body = NULL", (id,))
    for change in ("response_body = 'late', request_body = 'x'",
                   "response_body = 'late', agent_id = 'x'",
                   "response_body = 'late', created_at = '2026-01-01'"):
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            archive.execute(f"UPDATE event_payloads SET {change} WHERE id = 'ev2'")
    first = one(archive, "SELECT pin FROM payload_pins WHERE id = 'ev2'")
    late(archive, "ev2")
    assert rows(archive, "SELECT response_body, meta, size_bytes, pinned FROM event_payloads "
                "WHERE id = 'ev2'") == [("late", '{"tokens":5}', 5, 1)]
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        late(archive, "ev2", "another")
    assert rows(archive, "SELECT kind, detail FROM blackbox_log WHERE subject = 'ev2'") == [
        ("pin", None), ("complete", f'{{"pin":{first}}}'), ("pin", f'{{"pin":{first}}}')]
    assert one(archive, "SELECT pin FROM payload_pins WHERE id = 'ev2'") == first + 2
    late(archive, "old")  # not pinned
    assert one(archive, "SELECT count(*) FROM blackbox_log WHERE kind = 'complete'") == 1


def test_a_late_response_is_proved_and_comes_under_a_hold_too(db):
    one(db, "SELECT blackbox_install('main', 'retention')")
    for id in "ev", "held":
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
                   "VALUES(?, ?, 'a', 'evidence')", (id, id))
    one(db, "SELECT retention_hold('event', 'held', 'case', 'Ann', 'why')")
    head = one(db, "SELECT proof_head()")
    late(db)
    late(db, "held")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        late(db, "held", "another")
    one(db, "SELECT proof_head()")
    assert rows(db, "SELECT * FROM proof_verify(?)", head) == []
    assert rows(db, "SELECT * FROM proof_verify") == []
    assert check(db) == []
    db.execute("DROP TRIGGER payload_guard")
    db.execute("UPDATE event_payloads SET response_body = 'forged' WHERE id = 'ev'")
    assert len(rows(db, "SELECT * FROM proof_verify")) == 1


def test_payload_unpin_records_and_frees_the_row(db):
    add(db, "ev", "evidence")
    assert one(db, "SELECT payload_unpin('ev', 'Ann', 'closed')") == 1
    assert rows(db, "SELECT payload_id, actor, reason FROM payload_unpins") \
        == [("ev", "Ann", "closed")]
    for args, message in [(("ev", "Ann", "x"), "NotFoundError"),
                          (("ev", "", "x"), "actor must be text that is not empty"),
                          (("ev", "a", None), "reason must be text"),
                          (("x\0", "a", "b"), "without a NUL")]:
        with pytest.raises(sqlite3.IntegrityError, match=message):
            db.execute("SELECT payload_unpin(?,?,?)", args)


# ---- what check finds


def problems(db):
    return [r[2] for r in check(db)]


def test_check_is_silent_when_all_is_well(db):
    add(db, "ev", "evidence")
    add(db, "old")
    unpin(db)
    add(db, "ev2", "evidence")
    assert problems(db) == []


@pytest.mark.parametrize(
    "damage, found",
    [("DROP TRIGGER payload_delete_guard", "missing"),
     ("DROP TRIGGER payload_replace", "missing"),
     ("DROP INDEX payload_by_age", "missing"),
     ("DROP VIEW payload__held", "missing"),
     ("DROP TRIGGER payload_delete_guard; DELETE FROM event_payloads WHERE id='ev'",
      "row ev was pinned and is gone"),
     ("DELETE FROM payload__pins", "pinned row ev is not in payload_pins"),
     ("DROP TRIGGER payload_mark; UPDATE event_payloads SET size_bytes = 99 "
      "WHERE id = 'old'", "size_bytes of row old"),
     ("UPDATE payload__state SET work = 'x'", "differs from the settings"),
     ("DELETE FROM payload__state", "differs from the settings"),
     ("DROP TABLE event_payloads", "cannot be checked|missing")])
def test_check_finds_what_was_taken_away(db, damage, found):
    import re
    add(db, "ev", "evidence")
    add(db, "old")
    db.executescript(damage)
    assert any(re.search(found, p) for p in problems(db)), problems(db)


def test_dump_and_restore_keep_the_guards(db, path, tmp_path):
    add(db, "ev", "evidence")
    add(db, "pin", pinned=1)
    unpin(db, "pin")
    assert problems(db) == []
    copy = tmp_path / "copy.db"
    assert shell("-batch", copy, stdin=shell("-batch", path, ".dump")) == ""
    other = connect(copy)
    for sql in ("event_payloads", "payload_pins", "payload_unpins"):
        assert rows(other, f"SELECT * FROM {sql}") == rows(db, f"SELECT * FROM {sql}")
    assert problems(other) == []
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        sqlite3.connect(copy).execute("DELETE FROM event_payloads WHERE id='ev'")


def test_the_sql_files_alone_make_the_guards(tmp_path):
    path = tmp_path / "plain.db"
    for name in ("core", "payload", "payload_detection",
                 "payload_rules"):
        assert shell(path, stdin=(ROOT / f"sql/{name}.sql").read_text()) == ""
    out = shell(path, stdin="""
INSERT INTO event_payloads(id, event_id, agent_id, purpose)
VALUES('ev', 'e', 'a', 'evidence');
DELETE FROM event_payloads;
REPLACE INTO event_payloads(id, event_id, agent_id, purpose)
VALUES('ev', 'x', 'a', 'archive');
SELECT id, event_id, pinned FROM event_payloads;
""")
    assert out.count("PinnedError") == 2 and "ev|e|1" in out


LOST = "leaf 0 row 1: the pin was lost, and made anew: no row of the log unpins it"


def test_install_brings_lost_pins_back(db):
    add(db, "x", "evidence")
    add(db, "free", "evidence")
    unpin(db, "free")
    db.execute("DROP TABLE payload__pins")
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT id FROM payload_pins") == [("x",)]
    pin, told = problems(db)
    assert pin == LOST and "schema of payload had been damaged" in told
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        add(db, "x", verb="REPLACE")


def test_a_lost_pin_is_set_anew_as_the_check_says(db):
    add(db, "x", "evidence")
    db.execute("DELETE FROM payload__pins")
    assert any("UPDATE event_payloads SET pinned = 1 pins it anew" in p for p in problems(db))
    db.execute("UPDATE event_payloads SET pinned = 1 WHERE id = 'x'")
    assert problems(db) == [LOST]


def test_a_raise_of_fail_inside_a_replace_leaves_nothing_behind(db):
    """FAIL keeps what was done before: also the note that REPLACE takes a row."""
    for id in "one", "two":
        add(db, id)
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads BEGIN "
               "SELECT RAISE(FAIL, 'no'); END")
    for sql in ("REPLACE INTO event_payloads(id, event_id, agent_id, purpose)"
                " VALUES('one', 'e', 'a', 'archive')", "DELETE FROM event_payloads WHERE id = 'two'"):
        with pytest.raises(sqlite3.IntegrityError, match="^no$"):
            db.execute(sql)
    db.execute("DROP TRIGGER mine")
    for id in "one", "two":
        add(db, id, verb="INSERT OR IGNORE")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed"):
        add(db, "two")
    add(db, "two", verb="REPLACE")
    db.execute("DELETE FROM event_payloads")
    assert rows(db, "SELECT rule, sum(rows) FROM retention_log GROUP BY 1") == [
        ("manual", 3)]
    assert problems(db) == []


@pytest.mark.parametrize("again", ["payload_replace", "payload_guard", "payload_update"])
def test_what_replace_takes_is_guarded_in_whatever_order_the_triggers_fire(db, again):
    """SQLite does not promise the order, and a trigger that is made anew comes first."""
    add(db, "ev", "evidence")
    for id in "one", "two":
        add(db, id)
    sql = one(db, "SELECT sql FROM sqlite_schema WHERE name = ?", again)
    db.execute(f"DROP TRIGGER {again}")
    db.execute(sql)
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        add(db, "ev", verb="REPLACE")
    add(db, "one", verb="REPLACE")
    assert rows(db, "SELECT rule, rows FROM retention_log") == [("manual", 1)]
    db.execute("CREATE TRIGGER mine BEFORE DELETE ON event_payloads BEGIN "
               "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) "
               "VALUES('ev', 'x', 'x', 'archive'); END")
    for id in "one", "two":
        with pytest.raises(sqlite3.IntegrityError, match="MisuseError: a trigger on event_payloads writes while REPLACE"):
            add(db, id, verb="REPLACE")
    assert rows(db, "SELECT id, purpose FROM event_payloads ORDER BY id") == [
        ("ev", "evidence"), ("one", "archive"), ("two", "archive")]
    assert rows(db, "SELECT hit FROM blackbox__probe") == [(0,)]


@pytest.mark.parametrize("nested", [
    "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e', 'a', 'archive')",
    "UPDATE event_payloads SET request_body = 'x' WHERE id = 'ev'",
    "UPDATE OR REPLACE event_payloads SET id = 'ev' WHERE id = 'free'",
    "UPDATE OR REPLACE event_payloads SET rowid = (SELECT rowid FROM event_payloads WHERE id = 'ev')"
    " WHERE id = 'free'"])
def test_nothing_is_written_while_replace_takes_a_row(db, nested):
    """The guards that take the row do not fire then, as they run."""
    sql = ("REPLACE INTO event_payloads(id, event_id, agent_id, purpose)"
           " VALUES('one', 'e', 'a', 'archive')")
    add(db, "ev", "evidence")
    for id in "one", "two", "free":
        add(db, id)
    db.execute(f"CREATE TRIGGER mine AFTER DELETE ON event_payloads BEGIN {nested}; END")
    before = table(db)
    with pytest.raises(sqlite3.IntegrityError, match="MisuseError: .* while REPLACE|PinnedError|keeps its id"):
        db.execute(sql)
    assert table(db) == before and rows(db, "SELECT * FROM retention_log") == []
    db.execute("DROP TRIGGER mine")
    db.execute(sql)
    assert rows(db, "SELECT rows FROM retention_log WHERE rule = 'manual'") == [(1,)]
