"""Forgeries by who knows the format: rows of the log, with leaves, that tell another story; guards
dropped and made again. `blackbox_check` finds each."""
import json
import re
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


def test_a_held_row_that_becomes_evidence_and_gets_a_late_response_is_found(kept):
    archived(kept, "h1")
    behind(kept, "UPDATE event_payloads SET request_body = 'forg' WHERE id = 'h1'")
    kept.execute("UPDATE event_payloads SET purpose = 'evidence' WHERE id = 'h1'")
    kept.execute("UPDATE event_payloads SET response_body = 'late' WHERE id = 'h1'")
    assert any("row h1 of event_payloads was changed" in told for told in found(kept))


def test_a_held_row_may_become_evidence_and_get_a_meta_and_a_response(kept):
    archived(kept, "h1", "h2")
    kept.execute("UPDATE event_payloads SET purpose = 'evidence', meta = '{}' WHERE id = 'h1'")
    kept.execute("UPDATE event_payloads SET purpose = 'evidence' WHERE id = 'h2'")
    kept.execute("UPDATE event_payloads SET response_body = 'late' WHERE agent_id = 'held'")
    assert found(kept) == []
