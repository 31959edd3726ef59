"""Holds: what nothing removes or changes until every owner has released it."""
import sqlite3

import pytest

from conftest import by_hand, connect, one, problems, rows
from holds_helpers import (FORK, ID, LATER, LOSSES, OTHER, SESSION, check, contents, fill, hold,
                           release)

HELD = pytest.mark.parametrize("kind", LOSSES)


@pytest.fixture
def full(db):
    fill(db)
    return db


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("module", [True, False])
@HELD
def test_what_is_held_survives_every_statement_on_any_connection(full, path, kind, module, begin):
    key, query, losses = LOSSES[kind]
    hold(full, kind, key)
    db = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    kept = rows(db, query)
    assert kept
    if begin:
        db.execute(begin)
    for loss in losses:
        with pytest.raises(sqlite3.Error, match="Error: |it is a view"):
            db.execute(loss)
        assert rows(db, query) == kept, loss
    if begin:
        db.execute("COMMIT")
    assert rows(full, "SELECT * FROM blackbox_check") == []


@HELD
def test_what_was_released_can_be_removed_again(full, kind):
    key, query, losses = LOSSES[kind]
    hold(full, kind, key)
    assert release(full, kind, key) == 0
    full.execute(losses[0])
    assert rows(full, query) != [] if kind == "agent" else rows(full, query) == []


@HELD
def test_a_hold_ends_when_all_its_owners_have_released_it(full, kind):
    key, query, losses = LOSSES[kind]
    assert hold(full, kind, key, "case-1") == 1
    assert hold(full, kind, key, "case-2") == 2
    assert release(full, kind, key, "case-1") == 1
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute(losses[0])
    assert release(full, kind, key, "case-2") == 0
    full.execute(losses[0])


def test_clean_ups_skip_what_is_held_and_their_lists_say_so(full):
    for kind, (key, query, _) in LOSSES.items():
        hold(full, kind, key)
    before = contents(full)
    one(full, "INSERT INTO blackbox_settings(name, value) VALUES('cache.max_age_days', 1)")
    assert one(full, "SELECT payload_cleanup(1) ->> '$.rows'") == 0
    assert one(full, "SELECT payload_clear_archive()") == 0
    for _ in range(2):
        assert one(full, "SELECT rollout_cleanup_expired()") == 0
    assert rows(full, "SELECT rule, message, times FROM retention_refusals") == [
        ("rollout.expired", "1 expired conversations are held, and stay", 1)]
    assert contents(full) == before
    assert rows(full, "SELECT key, blocked_by FROM retention_plan WHERE rule = 'payload.age'"
                " ORDER BY key") == [
        ("p1", "held"), ("p2", "held"), ("p3", "held")]
    assert rows(full, "SELECT key, blocked_by FROM retention_plan WHERE rule = 'rollout.expired'") == [(ID, "held")]
    assert rows(full, "SELECT key, blocked_by FROM retention_plan WHERE rule = 'cache.idle'"
                " ORDER BY key") == [(SESSION, "held"), (OTHER, None)]
    one(full, "SELECT cache_cleanup_orphans(0)")
    one(full, "SELECT cache_cleanup_outdated(1)")
    assert rows(full, "SELECT DISTINCT session_id FROM cache_items") == [(SESSION,)]
    assert rows(full, "SELECT rule, rows FROM retention_log WHERE domain <> 'cache'") == []


def test_rows_beside_those_that_are_held_go_as_ever(full):
    hold(full, "event", "e1")
    assert one(full, "SELECT payload_cleanup(1) ->> '$.rows'") == 2
    assert rows(full, "SELECT id FROM event_payloads ORDER BY id") == [("p1",), ("v1",)]
    assert rows(full, "SELECT rule, rows, bytes FROM retention_log") == [("payload.age", 2, 4)]


def test_a_row_that_comes_after_the_hold_is_held_as_well(full):
    hold(full, "agent", "late")
    full.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) "
                 "VALUES('l', 'e', 'late', 'archive')")
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute("DELETE FROM event_payloads WHERE id = 'l'")


def test_a_held_row_of_the_archive_stays_as_it_is_and_may_be_pinned(full):
    hold(full, "agent", "a")
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute("UPDATE event_payloads SET purpose = 'evidence', kill_switch_event_id = 'k' "
                     "WHERE id = 'p1'")
    full.execute("UPDATE event_payloads SET pinned = 1 WHERE id = 'p1'")
    one(full, "SELECT payload_unpin('p1', 'ann', 'no longer needed')")
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute("DELETE FROM event_payloads WHERE id = 'p1'")


def test_items_that_a_held_fork_shares_stay_when_its_parent_goes(full):
    full.execute("UPDATE rollouts SET expires_at = 'permanent'")
    one(full, "SELECT rollout_fork(?, NULL, ?)", ID, FORK)
    hold(full, "rollout", FORK.upper())
    shown = rows(full, "SELECT payload FROM rollout_items WHERE rollout = ? AND sequence > 0",
                 FORK)
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute("UPDATE rollout_items SET payload = "
                     """'{"type":"user_message","message":"x"}' """
                     "WHERE rollout = ? AND sequence = 1", (ID,))
    one(full, "SELECT rollout_delete(?)", ID)
    assert rows(full, "SELECT payload FROM rollout_items WHERE rollout = ? AND sequence > 0",
                FORK) == shown
    assert rows(full, "SELECT * FROM blackbox_check") == []


def test_a_held_conversation_can_grow_and_be_archived(full):
    hold(full, "rollout", ID)
    full.execute("UPDATE rollouts SET expires_at = 'permanent', status = 'archived', title = 't'")
    assert one(full, "SELECT rollout_append(?, ?)", ID,
               '[{"type":"event_msg","payload":{"type":"user_message","message":"more"}}]') == 1


def test_a_held_conversation_can_be_forked_under_a_held_id(full):
    full.execute("UPDATE rollouts SET expires_at = 'permanent'")
    hold(full, "rollout", FORK)
    one(full, "SELECT rollout_fork(?, 1, ?)", ID, FORK)
    assert one(full, "SELECT item_count FROM rollouts WHERE id = ?", FORK) == 2


def test_an_eviction_takes_other_items_and_fails_when_holds_leave_no_room(full):
    full.execute("INSERT INTO blackbox_settings(name, value) VALUES('cache.on_quota', 'evict_oldest'), "
                 "('cache.total_quota_bytes', 12)")
    hold(full, "session", SESSION)
    put = ("INSERT INTO cache_items(session_id, task_id, turn_id, description, data) "
           "VALUES(?, 'a7b3c9d2', ?, 'x', '[100]')")
    full.execute(put, (OTHER, "new00000"))
    assert [r[0] for r in rows(full, "SELECT turn_id FROM cache_items ORDER BY turn_id")] == [
        "f4e8g1h1", "f4e8g1h2", "new00000"]
    with pytest.raises(sqlite3.IntegrityError, match="QuotaExceededError"):
        full.execute(put, (SESSION, "new00001")).fetchall()
        full.execute(put, (SESSION, "new00002")).fetchall()


def test_a_temporary_buffers_overflow_is_kept_for_its_owner(full):
    full.execute("CREATE VIRTUAL TABLE temp.rec USING evidence_buffer(max_size_bytes=1000, "
                 "overflow='main')")
    for i in range(6):
        full.execute("INSERT INTO temp.rec(id, timestamp, action) VALUES(?, ?, ?)",
                     (f"a{i}", 1000 + i, '{"x":"' + "y" * 120 + '"}'))
    one(full, "SELECT evidence_flush('rec')")
    owner, kept = rows(full, "SELECT owner, count(*) FROM evidence__overflow")[0]
    assert kept > 0
    hold(full, "buffer", owner)
    full.execute("UPDATE evidence_owners SET seen = 0")
    assert {r[0] for r in rows(full, "SELECT blocked_by FROM evidence_due")} == {"held"}
    with pytest.raises(sqlite3.IntegrityError, match="HeldError: "):
        full.execute("DELETE FROM evidence_due")
    release(full, "buffer", owner)
    key = one(full, "SELECT key FROM evidence_due")
    hold(full, "evidence", key)
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute("DELETE FROM evidence_due WHERE key = ?", (key,))
    full.execute("DELETE FROM evidence_due WHERE key <> ?", (key,))
    assert rows(full, "SELECT count(*) FROM evidence__overflow") == [(1,)]


# ------------------------------------------------------------------ the holds themselves

def test_rows_place_lengthen_and_release(full):
    full.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason, until) "
                 "VALUES('session', 'a', 'case-1', 'ann', 'asked', ?)", (LATER,))
    full.execute("UPDATE retention_holds SET until = ?, actor = 'bob', reason = 'longer'",
                 (LATER + 1,))
    assert rows(full, "SELECT kind, key, owner, until, actor, reason, released "
                "FROM retention_holds") == [
        ("session", "a", "case-1", LATER + 1, "bob", "longer", 0)]
    full.execute("UPDATE retention_holds SET released = 1, actor = 'cleo', reason = 'closed'")
    assert rows(full, "SELECT * FROM retention_holds") == []
    assert rows(full, "SELECT act, until, actor, reason FROM retention_hold_log") == [
        ("hold", LATER, "ann", "asked"), ("hold", LATER + 1, "bob", "longer"),
        ("release", None, "cleo", "closed")]


@pytest.mark.parametrize("module", [True, False])
def test_an_insert_releases_with_a_reason_of_its_own(full, path, module):
    hold(full, "rollout", ID, "case-1")
    hold(full, "rollout", ID, "case-2")
    db = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason, released) "
               "VALUES('rollout', ?, 'case-1', 'ann', 'closed', 1)", (ID.upper(),))
    assert rows(full, "SELECT owner FROM retention_holds") == [("case-2",)]
    assert rows(full, "SELECT act, until, actor, reason, found FROM retention_hold_log "
                "WHERE owner = 'case-1' ORDER BY step DESC LIMIT 1") == [
        ("release", None, "ann", "closed", None)]
    assert check(full) == []


def test_calls_as_rows_place_and_release(full):
    full.execute("INSERT INTO blackbox_call(command, arguments) VALUES('retention_hold', "
                 "'[\"event\",\"e1\",\"case-1\",\"ann\",\"asked\"]')")
    assert one(full, "SELECT owner FROM retention_holds") == "case-1"
    full.execute("INSERT INTO blackbox_call(command, arguments) VALUES('retention_release', "
                 "'[\"event\",\"e1\",\"case-1\",\"ann\",\"closed\"]')")
    assert one(full, "SELECT count(*) FROM retention_holds") == 0


@pytest.mark.parametrize("until", [LATER - 1, 1000, 0])
def test_a_hold_cannot_be_shortened(full, until):
    hold(full, "agent", "a", until=LATER)
    for call in (lambda: hold(full, "agent", "a", until=until),
                 lambda: full.execute("UPDATE retention_holds SET until = ?, reason = 'r'",
                                      (until,)),
                 lambda: full.execute("INSERT INTO retention_holds(kind, key, owner, actor, "
                                      "reason, until) VALUES('agent', 'a', 'case-1', 'x', "
                                      "'y', ?)", (until,))):
        with pytest.raises(sqlite3.IntegrityError, match="HeldError|ValidationError"):
            call()
    hold(full, "agent", "a", until=LATER)  # the same
    hold(full, "agent", "a")
    with pytest.raises(sqlite3.IntegrityError, match="HeldError.*'case-1' on agent 'a'"):
        hold(full, "agent", "a", until=LATER)


def test_a_hold_with_an_end_that_has_passed_keeps_nothing(full, path):
    hold(full, "agent", "a", until=LATER)
    full.close()
    by_hand(path, "UPDATE retention__in_force SET until = 1000")
    db = connect(path)
    assert rows(db, "SELECT * FROM retention_holds") == []
    db.execute("DELETE FROM event_payloads WHERE id = 'p1'")


@pytest.mark.parametrize("actor, reason", [
    ("", "r"), (" ", "r"), ("a", ""), ("a", "\u200b"), ("a\n", "r"), (None, "r"), ("a", None),
    ("a", "\u3164")])
def test_an_actor_and_a_reason_are_required(full, actor, reason):
    for call in ("SELECT retention_hold('agent', 'a', 'o', ?, ?)",
                 "INSERT INTO retention_holds(kind, key, owner, actor, reason) "
                 "VALUES('agent', 'a', 'o', ?, ?)"):
        with pytest.raises(sqlite3.Error, match="ValidationError|NOT NULL"):
            full.execute(call, (actor, reason))
    hold(full, "agent", "a")
    with pytest.raises(sqlite3.Error, match="ValidationError|NOT NULL"):
        full.execute("SELECT retention_release('agent', 'a', 'case-1', ?, ?)", (actor, reason))
    with pytest.raises(sqlite3.Error, match="ValidationError|NOT NULL"):
        full.execute("UPDATE retention_holds SET released = 1, actor = ?, reason = ?",
                     (actor, reason))
    assert one(full, "SELECT count(*) FROM retention_hold_log") == 1


@pytest.mark.parametrize("kind, key, owner, until, said", [
    ("user", "a", "o", None, "kind must be agent, event"),
    ("agent", "", "o", None, "key"), ("agent", "x" * 1101, "o", None, "key"),
    ("agent", "a", " ", None, "owner"), ("agent", "a", "o", 1000, "until"),
    ("agent", "a", "o", "soon", "until"), ("agent", "a", "o", 253402300800000, "until")])
def test_a_hold_says_what_is_wrong_with_it(full, kind, key, owner, until, said):
    with pytest.raises(sqlite3.Error, match=f"ValidationError.*{said}"):
        hold(full, kind, key, owner, until)
    with pytest.raises(sqlite3.Error, match="ValidationError"):
        full.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason, until) "
                     "VALUES(?, ?, ?, 'ann', 'r', ?)", (kind, key, owner, until))
    assert rows(full, "SELECT * FROM retention_hold_log") == []


def test_a_release_of_what_is_not_held_is_an_error(full):
    with pytest.raises(sqlite3.Error, match="NotFoundError.*'case-1' on agent 'a'"):
        release(full, "agent", "a")
    hold(full, "agent", "a", "case-2")
    with pytest.raises(sqlite3.Error, match="NotFoundError"):
        release(full, "agent", "a", "case-1")


RECORDS = [
    "DELETE FROM retention_hold_log", "UPDATE retention_hold_log SET reason = 'x'",
    "REPLACE INTO retention_hold_log SELECT * FROM retention_hold_log",
    "INSERT INTO retention_hold_log(kind, key, owner, act, actor, reason) "
    "VALUES('agent', 'a', 'case-1', 'release', 'x', 'y')",
    "DELETE FROM retention_holds", "UPDATE retention_holds SET key = 'z', reason = 'r'",
    "UPDATE retention_holds SET released = 1", "UPDATE retention_holds SET released = 2",
    "UPDATE retention_holds SET found = 0, reason = 'r'",
    "UPDATE retention_holds SET at = 1, reason = 'r'",
    "UPDATE OR IGNORE retention_holds SET until = 5, actor = 'x', reason = 'r'",
    "INSERT OR REPLACE INTO retention_holds(kind, key, owner, actor, reason, until) "
    "VALUES('agent', 'a', 'case-1', 'x', 'y', 4102444800000)",
    "INSERT INTO retention_holds(kind, key, owner, actor, reason, at) "
    "VALUES('agent', 'z', 'o', 'x', 'y', 5)",
    "INSERT INTO retention_holds(kind, key, owner, actor, reason, released) "
    "VALUES('agent', 'a', 'case-3', 'x', 'y', 1)",
    "INSERT INTO retention_holds(kind, key, owner, actor, released) "
    "VALUES('agent', 'a', 'case-1', 'x', 1)",
    "INSERT INTO retention_holds(kind, key, owner, actor, reason, found) "
    "VALUES('agent', 'z', 'o', 'x', 'y', 'x')",
]


@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("recursive", [0, 1])
def test_no_statement_changes_the_record(full, path, module, recursive):
    hold(full, "agent", "a", "case-1")
    hold(full, "agent", "a", "case-2", LATER)
    hold(full, "agent", "b", "case-2", LATER)
    db = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA recursive_triggers = {recursive}")
    tables = ("retention_hold_log", "retention__in_force", "retention_holds", "blackbox_log")
    before = [rows(db, f"SELECT * FROM {table}") for table in tables]
    for statement in RECORDS:
        for begin in ("SAVEPOINT s", "BEGIN"):
            db.execute(begin)
            with pytest.raises(sqlite3.Error, match="Error: |because it is a view"):
                db.execute(statement)
            assert [rows(db, f"SELECT * FROM {table}") for table in tables] == before, statement
            db.execute("ROLLBACK")


NAMES = ["plain", 'a "b" \'c\'', "back\\slash", '\\"', "\\\\", "\u00e9\U0001f600", '","until":5,"x":"', "a:b"]


@pytest.mark.parametrize("trusted", [0, 1])
@pytest.mark.parametrize("module", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_plain_sql_places_lengthens_and_releases_whatever_the_names_are(db, path, name, module,
                                                                        trusted):
    plain = connect(path) if module else sqlite3.connect(path, isolation_level=None)
    plain.execute(f"PRAGMA trusted_schema = {trusted}")
    plain.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason, until) "
                  "VALUES('rollout', ?, ?, ?, ?, ?)", (name.upper(), name, name, name + "\t", LATER))
    key = one(db, "SELECT lower(?)", name.upper())
    assert rows(plain, "SELECT kind, key, owner, until, actor, reason, released, found "
                "FROM retention_holds") == [
        ("rollout", key, name, LATER, name, name + "\t", 0, None)]
    assert check(db) == []
    plain.execute("UPDATE retention_holds SET until = NULL, reason = 'longer'")
    plain.execute("UPDATE retention_holds SET released = 1, reason = 'closed'")
    assert rows(db, "SELECT step, kind, key, owner, act, until, actor, reason, found "
                "FROM retention_hold_log ORDER BY step") == [
        (1, "rollout", key, name, "hold", LATER, name, name + "\t", None),
        (2, "rollout", key, name, "hold", None, name, "longer", None),
        (3, "rollout", key, name, "release", None, name, "closed", None)]
    assert rows(db, "SELECT DISTINCT domain, subject FROM blackbox_log") == [
        ("retention", "rollout:" + key)]
    assert rows(db, "SELECT * FROM retention_holds") == []
    assert check(db) == []


def test_a_key_with_a_nul_is_refused(db):
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: key .* without a NUL"):
        db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason) "
                   "VALUES('session', 'a' || char(0) || 'b', 'o', 'x', 'y')")


@pytest.mark.parametrize("end, kept", [("ROLLBACK", 0), ("COMMIT", 1)])
def test_a_hold_is_part_of_its_transaction(full, path, end, kept):
    hold(full, "event", "e1")
    steps = "SELECT * FROM blackbox_log WHERE kind IN ('hold', 'release')"
    before = rows(full, steps)
    full.execute("BEGIN")
    hold(full, "agent", "a")
    full.execute("UPDATE retention_holds SET released = 1, actor = 'x', reason = 'y' "
                 "WHERE kind = 'event'")
    full.execute(end)
    assert rows(full, "SELECT kind FROM retention__in_force") == [("agent" if kept else "event",)]
    assert len(rows(full, steps)) == len(before) + 2 * kept
    assert check(full) == []


@pytest.mark.parametrize("damage, object", [
    ("DELETE FROM blackbox__log WHERE kind = 'hold'", "retention__in_force"),
    ("DELETE FROM retention__in_force", "retention__in_force"),
    ("UPDATE retention__in_force SET until = 5", "retention__in_force"),
    ("UPDATE retention__in_force SET owner = 'nobody'", "retention__in_force"),
    ("INSERT INTO retention__in_force VALUES('agent', 'z', 'o', NULL, 77, 0)",
     "retention__in_force"),
    ("INSERT INTO retention__in_force SELECT 'event', 'e1', 'case-1', NULL, min(n), 0 "
     "FROM blackbox__log WHERE subject = 'event:e1'", "retention__in_force"),
    ("DROP TRIGGER payload_delete_guard", "payload_delete_guard"),
    ("DROP TRIGGER rollout_heads_delete", "rollout_heads_delete"),
    ("DROP TRIGGER cache_delete", "cache_delete"),
    ("DROP TRIGGER evidence_pinned_delete", "evidence_pinned_delete"),
    ("DROP TRIGGER retention_holds_insert", "retention_holds_insert"),
    ("CREATE TRIGGER mine INSTEAD OF INSERT ON retention_holds BEGIN "
     "SELECT RAISE(IGNORE); END", "retention_holds")])
def test_check_finds_what_was_done_behind_the_guards(full, path, damage, object):
    hold(full, "event", "e1")
    release(full, "event", "e1")
    hold(full, "agent", "a")
    hold(full, "rollout", ID)
    assert rows(full, "SELECT * FROM blackbox_check") == []
    by_hand(path, damage)
    assert object in [r[1] for r in rows(connect(path), "SELECT * FROM blackbox_check")]


@pytest.mark.parametrize("kind, key, loss", [
    ("agent", "a", "DROP TRIGGER payload_delete_guard; DELETE FROM event_payloads"),
    ("evidence", "v1", "DROP TRIGGER payload_delete_guard; DELETE FROM event_payloads"),
    ("session", SESSION, "DROP TRIGGER cache_session_delete; "
     "DELETE FROM cache_sessions; DELETE FROM cache_items"),
    ("rollout", ID, "DROP TRIGGER rollout_heads_delete; DELETE FROM rollout__heads; "
     "DELETE FROM rollout__segments; DELETE FROM rollout__about; DELETE FROM rollout__data")])
def test_check_finds_what_is_held_and_gone(full, path, kind, key, loss):
    hold(full, kind, key, until=LATER)
    hold(full, kind, "not there yet")
    full.execute("UPDATE retention_holds SET until = NULL, actor = 'ann', reason = 'longer'")
    assert check(full) == []
    by_hand(path, loss)
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    found = [row[1:] for row in problems(db)]
    assert any("was removed, though a hold" in problem for _, problem in found) == (
        "event_payloads" in loss)
    assert [row for row in found if row[0] != "blackbox__log"] == [
        ("retention__in_force", f"what case-1 holds is gone: {kind} {key} was there when the hold "
         "was placed, and was removed behind the guards")]


@pytest.mark.parametrize("loss", [
    "DELETE FROM retention__in_force", "UPDATE retention__in_force SET until = 5"])
def test_install_restores_a_hold_that_was_lost(full, path, loss):
    hold(full, "agent", "a")
    hold(full, "agent", "a", "case-2", LATER)
    release(full, "agent", "a", "case-2")
    before = rows(full, "SELECT * FROM retention__in_force")
    by_hand(path, loss)
    one(full, "SELECT blackbox_install()")
    assert rows(full, "SELECT * FROM retention__in_force") == before
    (told,), = rows(full, "SELECT problem FROM blackbox_check")  # for ever
    assert "retention__in_force had been damaged" in told
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        full.execute("DELETE FROM event_payloads WHERE agent_id = 'a'")


def test_an_install_does_not_read_the_log(full):
    hold(full, "agent", "a")

    def steps():
        done = [0]
        full.set_progress_handler(lambda: done.append(0), 100)
        one(full, "SELECT blackbox_install('main', 'retention')")
        full.set_progress_handler(None, 100)
        return len(done)
    steps()
    before = steps()
    full.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
                 "INSERT INTO blackbox__log(domain, kind, subject, reason) "
                 "SELECT 'user', 'refusal', 'agent' || i, 'why' FROM n")
    one(full, "SELECT proof_head()")
    assert steps() < 1.1 * before


def test_holds_in_force_prevent_an_uninstall(full):
    hold(full, "agent", "a")
    with pytest.raises(sqlite3.Error, match="HeldError: schema main has holds in force, such as "
                       "that on agent a by case-1"):
        one(full, "SELECT blackbox_uninstall('main', 'retention', 'force')")
    release(full, "agent", "a")
    one(full, "SELECT blackbox_uninstall('main', 'retention', 'force')")
    assert "retention_holds" not in [r[0] for r in rows(full, "SELECT name FROM sqlite_schema")]


@pytest.mark.parametrize("kind, key, domain, part", [
    ("agent", "a", "payload,store,report", "event_payloads"),
    ("session", SESSION, "cache", "cache_sessions"), ("rollout", ID, "rollout", "rollouts")])
def test_a_domain_is_not_removed_by_force_with_rows_that_are_held(full, kind, key, domain, part):
    full.execute("INSERT INTO payload_unpins(payload_id, actor, reason) SELECT id, 'a', 'b' "
                 "FROM payload_pins")
    hold(full, kind, key)
    before = rows(full, "SELECT name FROM sqlite_schema")
    with pytest.raises(sqlite3.Error, match=f"HeldError: a hold in schema main keeps .* {part},"):
        one(full, "SELECT blackbox_uninstall('main', ?, 'force')", domain)
    assert rows(full, "SELECT name FROM sqlite_schema") == before
    release(full, kind, key)
    one(full, "SELECT blackbox_uninstall('main', ?, 'force')", domain)


def test_an_attached_schema_with_a_quoted_name_has_holds_of_its_own(tmp_path):
    db = connect(tmp_path / "main.db")
    db.execute("ATTACH ? AS \"it's \"\"my\"\" file\"", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install(?, 'all')", "it's \"my\" file")
    fill(db, "it's \"my\" file")
    hold(db, "agent", "a")
    db.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason) "
               "VALUES('session', 'x', 'case-2', 'ann', 'asked')")
    assert rows(db, "SELECT kind, owner, actor FROM retention_holds") == [
        ("agent", "case-1", "ann"), ("session", "case-2", "ann")]
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'p1'")
    assert check(db) == []


def test_the_guards_hold_with_an_untrusted_schema_and_in_one_without_retention(tmp_path):
    db = connect(tmp_path / "some.db")
    one(db, "SELECT blackbox_install('main', 'payload,cache,rollout,evidence')")
    fill(db)
    db.execute("DELETE FROM event_payloads WHERE id = 'p3'")
    one(db, "SELECT blackbox_install('main', 'all')")
    hold(db, "agent", "a")
    db.execute("PRAGMA trusted_schema = OFF")
    with pytest.raises(sqlite3.IntegrityError, match="HeldError"):
        db.execute("DELETE FROM event_payloads WHERE id = 'p1'")


def test_ten_thousand_holds_do_not_scan(full):
    hold(full, "agent", "x")
    full.execute("INSERT INTO retention_holds(kind, key, owner, actor, reason) "
                 "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 2000) "
                 "SELECT 'agent', 'x' || x, 'case', 'ann', 'asked' FROM c")
    plan = " ".join(r[3] for r in rows(
        full, "EXPLAIN QUERY PLAN DELETE FROM event_payloads WHERE id = 'p1'"))
    assert "SCAN" not in plan
    assert "SEARCH retention__in_force" in " ".join(r[3] for r in rows(
        full, "EXPLAIN QUERY PLAN SELECT * FROM payload__held"))
    full.execute("DELETE FROM event_payloads WHERE id = 'p1'")
