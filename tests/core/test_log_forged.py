"""Forgeries by who knows the format: rows of the log, with leaves, that tell another story; guards
dropped and made again. `blackbox_check` finds each."""
import json
import shutil
import sqlite3

import pytest

from conftest import by_hand, connect, one, protects, rows

pytestmark = [pytest.mark.all_domains,
              pytest.mark.skipif(protects(), reason="this SQLite protects the tables of the log")]
LATE = ("INSERT INTO blackbox__log(domain, kind, subject, detail) SELECT 'payload', 'complete', id,"
        " '{\"pin\":' || n || '}' FROM payload__pins WHERE n = 1")
NEW_PIN = ("INSERT INTO blackbox__log(domain, kind, subject, event_id, agent_id,"
           " kill_switch_event_id, detail) SELECT domain, 'pin', subject, event_id, agent_id,"
           " kill_switch_event_id, '{\"pin\":1}' FROM blackbox__log WHERE n = 1",
           "UPDATE payload__pins SET n = last_insert_rowid() WHERE n = 1")
UNPIN = ("INSERT INTO blackbox__log(domain, kind, subject, actor, reason, detail) SELECT"
         " 'payload', 'unpin', subject, {}, {}, '{{\"pin\":1}}' FROM blackbox__log WHERE n = 1")


@pytest.fixture(scope="module")
def original(installed, tmp_path_factory):
    """A file with three pinned exchanges, of which the first has no response yet."""
    path = tmp_path_factory.mktemp("original") / "test.db"
    shutil.copyfile(installed, path)
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES"
               "('a', 'e1', 'q1', NULL), ('a', 'e2', 'q2', 'r2'), ('a', 'e3', 'q3', 'r3')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k', 'ann', 'why')") == 3
    db.close()
    return path


@pytest.fixture
def kept(original, path):
    shutil.copyfile(original, path)
    db = connect(path)
    db.execute("PRAGMA synchronous = OFF")
    yield db
    db.close()


def behind(db, *statements, table="event_payloads"):
    """Runs statements while a table has no triggers."""
    guards = rows(db, "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
                  " AND tbl_name = ?", table)
    for name, _ in guards:
        db.execute(f"DROP TRIGGER {name}")
    for sql in statements:
        assert db.execute(sql).rowcount > 0, sql
    for _, sql in guards:
        db.execute(sql)


def found(db):
    """What is found at once, and when the log has gone on; of which the second is returned."""
    before = rows(db, "SELECT problem FROM blackbox_check")
    one(db, "SELECT proof_head()")
    after = [row[0] for row in rows(db, "SELECT problem FROM blackbox_check")]
    assert len(before) >= len(after)
    return after


def archived(db, *names):
    for name in names:
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
                   " VALUES(?, 'x', 'held', 'orig', 'archive')", (name,))
    one(db, "SELECT retention_hold('agent', 'held', 'c', 'ann', 'r')")


CHANGED = "UPDATE event_payloads SET {} WHERE event_id = 'e1'"


@pytest.mark.parametrize("change", [
    "request_body = 'no', response_body = 'late'", "response_body = 'late', agent_id = 'b'",
    "response_body = 'late', created_at = '2026-01-01T00:00:00.000Z'"])
def test_a_late_response_that_changes_more_is_found(kept, change):
    behind(kept, CHANGED.format(change), LATE, *NEW_PIN)
    assert any("more than a late response" in told for told in found(kept))


def test_a_late_response_in_place_of_one_is_found(kept):
    behind(kept, "UPDATE event_payloads SET response_body = 'no' WHERE event_id = 'e2'",
           *(sql.replace("n = 1", "n = 2").replace(":1", ":2") for sql in (LATE, *NEW_PIN)))
    assert any("more than a late response" in told for told in found(kept))


@pytest.mark.parametrize("metas", [[], ["{}"]])
def test_a_true_late_response_is_no_forgery(kept, metas):
    for meta in metas:
        kept.execute(CHANGED.format("meta = ?"), (meta,))
    kept.execute(CHANGED.format("response_body = 'late', meta = coalesce(meta, '{\"n\":1}')"))
    assert found(kept) == []
    one(kept, "SELECT payload_pack()")
    assert found(kept) == []


def test_a_late_response_sets_only_what_was_null(kept):
    kept.execute(CHANGED.format("meta = '{}'"))
    for change in "meta = '{\"n\":1}'", "meta = NULL", "response_body = 'late', meta = '{\"n\":1}'":
        with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
            kept.execute(CHANGED.format(change))
    kept.execute("INSERT INTO ring(ring, agent_id, event_id, response_body, meta)"
                 " VALUES('complete', 'a', 'e1', 'late', '{\"n\":1}')")
    assert rows(kept, "SELECT response_body, meta FROM event_payloads WHERE event_id = 'e1'") \
        == [("late", "{}")]
    assert found(kept) == []


@pytest.mark.parametrize("actor, reason", [
    ("NULL", "NULL"), ("'Ann'", "NULL"), ("NULL", "'closed'"), ("' '", "'closed'")])
def test_an_unpin_without_an_actor_or_a_reason_is_found(kept, actor, reason):
    behind(kept, UNPIN.format(actor, reason), "DELETE FROM payload__pins WHERE n = 1",
           "DELETE FROM event_payloads WHERE event_id = 'e1'")
    assert any("no row of the log unpins it" in told for told in found(kept))


def test_an_unpin_whose_actor_was_erased_is_one(kept):
    one(kept, "SELECT payload_unpin(subject, 'Ann Example', 'closed') FROM blackbox_log"
        " WHERE n = 1")
    one(kept, "SELECT blackbox_erase('text', 'Ann Example', 'bob', 'asked')")
    assert rows(kept, "SELECT actor, reason FROM payload_unpins") == [(None, "closed")]
    assert found(kept) == []


def test_a_pin_without_its_subject_that_ends_by_a_late_response_is_found(kept):
    behind(kept, LATE, "DELETE FROM payload__pins WHERE n = 1",
           "DELETE FROM event_payloads WHERE event_id = 'e1'",
           "UPDATE blackbox__log SET subject = NULL WHERE n = 1")
    assert any("no row of the log unpins it" in told for told in found(kept))


OWNER = "'{\"owner\":\"c\"}'"
HOLD = ("INSERT INTO blackbox__log(domain, kind, subject, detail, actor) "
        "VALUES('retention', '{}', 'agent:held', {}, {})")


@pytest.mark.parametrize("actor", ["NULL", "'eve'"])  # and never a reason
def test_a_release_that_does_not_say_who_and_why_ends_no_hold(kept, actor):
    archived(kept, "h1")
    behind(kept, "DELETE FROM retention__in_force", HOLD.format("release", OWNER, actor),
           "UPDATE event_payloads SET request_body = 'forg' WHERE id = 'h1'")
    assert any("is in the log and not here" in told for told in found(kept))
    one(kept, "SELECT blackbox_install()")
    assert any("row h1 of event_payloads was changed" in told for told in found(kept))


def test_a_gap_of_a_hold_that_does_not_say_who_and_why_is_none(kept):
    archived(kept, "h1")
    over = OWNER.replace("}", ",\"until\":1000}")
    behind(kept, HOLD.format("hold", over, "NULL"), HOLD.format("hold", OWNER, "NULL"),
           "UPDATE event_payloads SET request_body = 'forg' WHERE id = 'h1'",
           "UPDATE retention__in_force SET step = (SELECT max(n) FROM blackbox__log)")
    told = found(kept)
    assert any("row h1 of event_payloads was changed" in problem for problem in told)
    assert any("is in the log and not here" in problem for problem in told)


def test_a_hold_by_who_was_erased_stands(kept):
    kept.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose)"
                 " VALUES('h1', 'x', 'held', 'archive')")
    one(kept, "SELECT retention_hold('agent', 'held', 'c', 'Ann Example', 'r')")
    one(kept, "SELECT blackbox_erase('text', 'Ann Example', 'bob', 'asked')")
    assert one(kept, "SELECT actor FROM blackbox_log WHERE kind = 'hold'") is None
    assert found(kept) == []
    one(kept, "SELECT retention_release('agent', 'held', 'c', 'Bob Example', 'r')")
    one(kept, "SELECT blackbox_erase('text', 'Bob Example', 'bob', 'asked')")
    kept.execute("DELETE FROM event_payloads WHERE id = 'h1'")
    assert found(kept) == []


@pytest.mark.parametrize("forged", [
    "UPDATE event_payloads SET request_body = CAST(request_body AS BLOB) WHERE event_id = 'e2'",
    "UPDATE event_payloads SET meta = 'null' WHERE event_id = 'e2'",
    "UPDATE event_payloads SET kill_switch_event_id = 'other' WHERE event_id = 'e2'",
    "UPDATE event_payloads SET id = id || char(0) WHERE event_id = 'e2'",
    "UPDATE event_payloads SET response_body = NULL, request_body = request_body || response_body"
    " WHERE event_id = 'e2'"])
def test_a_pinned_row_of_another_type_or_column_is_found(kept, forged):
    behind(kept, forged)
    assert any("was altered" in told or "is missing, or not pinned" in told for told in found(kept))


def test_a_packed_body_that_has_the_reference_of_another_is_found(kept):
    for i in range(2):
        kept.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
                     " VALUES(?, 'p', 'b', ?, 'evidence')", (f"p{i}", f"lorem {i} " * 900))
    one(kept, "SELECT payload_pack()")
    assert found(kept) == []
    behind(kept, "UPDATE event_payloads SET request_body = (SELECT ref FROM payload__packed"
           " WHERE key = 'p1') WHERE id = 'p0'",
           "UPDATE payload__packed SET ref = (SELECT ref FROM payload__packed"
           " WHERE key = 'p1') WHERE key = 'p0'")
    assert any("was altered" in told for told in found(kept))


def test_rows_that_exchange_all_they_have_are_found(kept):
    """Their salts, numbers, pins and leaves."""
    behind(kept, "UPDATE blackbox__log SET n = 1000 WHERE n = 2",
           "UPDATE blackbox__log SET n = 2 WHERE n = 3",
           "UPDATE blackbox__log SET n = 3 WHERE n = 1000",
           "UPDATE payload__pins SET n = 5 - n WHERE n IN (2, 3)",
           "UPDATE blackbox__leaves SET hash = (SELECT hash FROM blackbox__leaves AS o"
           " WHERE o.leaf = 3 - blackbox__leaves.leaf) WHERE leaf = 1")
    assert any("was altered" in told for told in found(kept))


def test_a_fold_that_was_set_ahead_stops_no_fold(kept):
    kept.execute("UPDATE blackbox__tree SET fold = 1 << 40")
    kept.execute("INSERT INTO blackbox__log(at, domain, detail, rows, salt) VALUES"
                 "(0, 'user', 'x', 1, NULL), (0, 'user', 'x', 1, NULL)")
    assert found(kept) == []
    assert one(kept, "SELECT count(*) FROM blackbox__folded") == 1


def rewritten(db):
    """The whole tree anew, of the rows as they are."""
    size = one(db, "SELECT max(n) FROM blackbox__log")
    db.execute("DELETE FROM blackbox__leaves")
    db.execute("UPDATE blackbox__tree SET size = 0, frontier = x''")
    one(db, "SELECT proof_head()")
    assert one(db, "SELECT size FROM blackbox__tree") == size


@pytest.mark.parametrize("change", [
    ["UPDATE blackbox__log SET actor = 'eve' WHERE kind = 'kill_switch'"],
    ["UPDATE blackbox__log SET n = n + 1000", "UPDATE blackbox__log SET n = n - 999",
     "UPDATE payload__pins SET n = n + 1",
     "INSERT INTO blackbox__log(n, at, domain, kind, subject, actor, reason)"
     " VALUES(1, 5, 'payload', 'note', 's', 'ann', 'in the past')"],
    ["DELETE FROM blackbox__log WHERE kind = 'kill_switch'"]])
def test_a_tree_that_was_made_anew_is_found_by_a_head_that_was_kept_elsewhere(kept, change):
    noted = one(kept, "SELECT proof_head()")
    behind(kept, *change)
    rewritten(kept)
    assert rows(kept, "SELECT * FROM blackbox_check") == []
    (told,), = rows(kept, "SELECT problem FROM proof_verify(?)", noted)
    assert "are not those of the head" in told or "its end was cut off" in told


def test_a_head_of_another_file_or_of_a_copy_that_went_on_is_told(kept, original, tmp_path):
    shutil.copyfile(original, tmp_path / "copy.db")
    copy = connect(tmp_path / "copy.db")
    for db, who in (kept, "ann"), (copy, "eve"):
        one(db, "SELECT payload_unpin(id, ?, 'closed') FROM event_payloads LIMIT 1", who)
    (told,), = rows(kept, "SELECT problem FROM proof_verify(?)", one(copy, "SELECT proof_head()"))
    assert "are not those of the head" in told
    copy.close()
