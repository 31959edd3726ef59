"""blackbox_find_secrets() and blackbox_redact(): what is stored loses its keys and passwords."""
import json
import sqlite3

import pytest

from conftest import connect, install_into, one, problems, rows
from holds_helpers import FORK, ID, OTHER, SESSION, check, hold, release

KEY = "sk-ant-api03-" + "kanarie7" * 5
OTHER_KEY = "ghp_" + "b1N2c3D4" * 5
MASK, OTHER_MASK = "[masked: Anthropic key]", "[masked: GitHub token]"
BODY = json.dumps({"messages": [{"role": "user", "content": f"use {KEY} now"}]})


def said(text):
    return json.dumps({"type": "user_message", "message": text})


def fill(db, s="main"):
    """A secret in each place, and rows without one beside it."""
    s = '"' + s.replace('"', '""') + '"'
    db.execute(f"INSERT INTO {s}.event_payloads(id, event_id, agent_id, request_body, response_body,"
               " meta, purpose, kill_switch_event_id) VALUES"
               f"('p1', 'e1', 'a', ?, 'r', '{{\"k\":1}}', 'archive', NULL),"
               "('p2', 'e2', 'a', 'q', 'r', NULL, 'archive', NULL),"
               "('p3', 'e3', 'b', 'q', ?, ?, 'evidence', 'k1')",
               (BODY, f"{OTHER_KEY} {OTHER_KEY}", json.dumps({"url": f"http://x/?t={OTHER_KEY}"})))
    db.execute(f"INSERT INTO {s}.rollouts(id, expires_at, title) VALUES('{ID}', 'permanent', ?)",
               (f"with {KEY}",))
    for text in ("one", f"use {KEY} now", f"again {OTHER_KEY}"):
        db.execute(f"INSERT INTO {s}.rollout_items(rollout, type, payload) VALUES(?, 'event_msg', ?)",
                   (ID, said(text)))
    db.execute(f"INSERT INTO {s}.cache_items(session_id, task_id, turn_id, description, data,"
               " custom_metadata) VALUES(?, 'a7b3c9d2', 'f4e8g1h1', 'what', ?, ?),"
               " (?, 'a7b3c9d2', 'f4e8g1h2', 'what', '[1]', NULL)",
               (SESSION, json.dumps([KEY]), json.dumps({"kind": "tool_result", "k": KEY}), OTHER))


def found(db, columns="kind, key, row, \"column\", secret, found"):
    return rows(db, f"SELECT {columns} FROM blackbox_find_secrets()"
                " ORDER BY kind, key, row, \"column\"")


def redact(db, kind, key):
    return json.loads(one(db, "SELECT blackbox_redact(?, ?, 'ann', 'a key leaked')", kind, key))


def parts(said, name="masked"):
    return [(part["from"], part["rows"]) for part in said[name]]


ARCHIVE = [("evidence", "p1", None, "request_body", "Anthropic key", 1),
           ("evidence", "p3", None, "meta", "GitHub token", 1),
           ("evidence", "p3", None, "response_body", "GitHub token", 2)]
ROLLOUT = [("rollout", ID, None, "title", "Anthropic key", 1),
           ("rollout", ID, 2, "payload", "Anthropic key", 1),
           ("rollout", ID, 3, "payload", "GitHub token", 1)]
CACHE = [("session", SESSION, SESSION + "_a7b3c9d2_f4e8g1h1", "custom_metadata", "Anthropic key", 1),
         ("session", SESSION, SESSION + "_a7b3c9d2_f4e8g1h1", "data", "Anthropic key", 1)]


@pytest.fixture
def full(db):
    fill(db)
    one(db, "SELECT proof_head()")
    return db


# ------------------------------------------------------------------------------- what is found

def test_what_is_stored_and_holds_a_secret_is_listed_without_it(full):
    assert found(full) == ARCHIVE + ROLLOUT + CACHE
    assert not any(KEY in str(row) or OTHER_KEY in str(row) for row in found(full))


def test_rings_and_buffers_are_listed_also_those_of_the_connection(full):
    for table in ("ring", "temp.fast"):
        full.execute(f"CREATE VIRTUAL TABLE {table} USING payload_ring(window=3)")
        full.execute(f"INSERT INTO {table}(agent_id, event_id, request_body, response_body)"
                     " VALUES('a', 'e', 'x', ?), ('b', 'e', 'x', 'y')", (BODY.encode(),))
    full.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    full.execute("INSERT INTO rec(id, timestamp, action) VALUES('x', 1, ?)", (json.dumps({"t": KEY}),))
    assert [row for row in found(full) if row[0] == "buffer"] == [
        ("buffer", "fast", "a 1", "response_body", "Anthropic key", 1),
        ("buffer", "rec", "x", "action", "Anthropic key", 1),
        ("buffer", "ring", "a 1", "response_body", "Anthropic key", 1)]


def test_the_overflow_of_a_buffer_is_listed(full):
    full.execute("CREATE VIRTUAL TABLE temp.spill USING evidence_buffer(max_size_bytes=1000,"
                 " overflow='main')")
    for i in range(6):
        full.execute("INSERT INTO spill(id, timestamp, action) VALUES(?, ?, ?)",
                     (f"a{i}", 1000 + i, json.dumps({"x": KEY + " " + "y" * 120})))
    one(full, "SELECT evidence_flush('spill')")
    owner = one(full, "SELECT owner FROM evidence_owners")
    spilt = rows(full, "SELECT id FROM evidence__overflow ORDER BY id")
    assert spilt and [row[2:3] for row in found(full) if row[:2] == ("buffer", owner)] == spilt


def test_an_item_that_a_fork_shows_is_listed_once_also_when_its_first_conversation_is_gone(full):
    one(full, "SELECT rollout_fork(?, 2, ?)", ID, FORK)
    items = [row[:3] for row in found(full) if row[3] == "payload"]
    assert items == [("rollout", ID, 2), ("rollout", ID, 3)]
    one(full, "SELECT rollout_delete(?)", ID)
    assert [row[:3] for row in found(full) if row[3] == "payload"] == [("rollout", FORK, 2)]


def test_a_rule_of_ones_own_finds_and_redacts(full):
    full.execute("INSERT INTO blackbox_secrets(profile, name, anchor, after, least)"
                 " VALUES('keys', 'ticket', 'TICKET-', '0-9', 4)")
    full.execute("UPDATE event_payloads SET request_body = 'see TICKET-77777' WHERE id = 'p2'")
    assert ("evidence", "p2", None, "request_body", "ticket", 1) in found(full)
    redact(full, "evidence", "p2")
    assert one(full, "SELECT request_body FROM event_payloads WHERE id = 'p2'") == "see [masked: ticket]"


def test_without_the_rules_an_error_says_what_to_do(path):
    db = connect(install_into(path, domains="payload"))
    for sql in ("SELECT * FROM blackbox_find_secrets",
                "SELECT blackbox_redact('agent', 'a', 'ann', 'why')"):
        with pytest.raises(sqlite3.Error, match=r"blackbox_install\('main', 'report'\)"):
            rows(db, sql)


# ----------------------------------------------------------------------------------- redaction

@pytest.mark.parametrize("kind, key, ids", [
    ("evidence", "p1", {"p1"}), ("agent", "a", {"p1"}), ("event", "e1", {"p1"}),
    ("agent", "b", {"p3"}), ("kill_switch", "k1", {"p3"})])
def test_rows_of_the_archive_lose_their_secrets_and_nothing_else(full, kind, key, ids):
    before = rows(full, "SELECT * FROM event_payloads")
    said = redact(full, kind, key)
    assert (said["rows"], parts(said), said["heldBack"], said["left"]) == (
        1, [("event_payloads", 1)], [], [])
    after = rows(full, "SELECT * FROM event_payloads")
    for was, row in zip(before, after):
        if was[0] in ids:
            bodies = [was[i] and was[i].replace(KEY, MASK).replace(OTHER_KEY, OTHER_MASK)
                      for i in (3, 4)]
            assert row[3:6] == (*bodies, sum(len(body or "") for body in bodies))
            assert row[:3] + row[6:10] == was[:3] + was[6:10] and KEY not in str(row)
        else:
            assert row == was
    assert [row[1] for row in found(full) if row[0] == "evidence"] == \
        [id for _, id, *_ in ARCHIVE if id not in ids]
    assert check(full) == []
    assert redact(full, kind, key)["rows"] == 0


@pytest.mark.parametrize("inside", [False, True])
def test_a_redaction_is_on_record_and_names_no_secret(full, inside):
    if inside:
        full.execute("BEGIN")
    redact(full, "agent", "a")
    redact(full, "rollout", ID)
    redact(full, "session", SESSION)
    if inside:
        full.execute("COMMIT")
    assert found(full, "key, row") == [("p3", None), ("p3", None)]
    assert rows(full, "SELECT domain, subject, actor, reason, detail FROM blackbox_log"
                " WHERE kind = 'redaction' ORDER BY n") == [
        (domain, subject, "ann", "a key leaked", detail) for domain, subject, detail in [
            ("payload", "p1", '{"masked":{"request_body":["Anthropic key"]}}'),
            ("rollout", ID, '{"sequence":2,"masked":{"payload":["Anthropic key"]}}'),
            ("rollout", ID, '{"sequence":3,"masked":{"payload":["GitHub token"]}}'),
            ("rollout", ID, '{"masked":{"title":["Anthropic key"]}}'),
            ("cache", SESSION, '{"item":"' + SESSION + '_a7b3c9d2_f4e8g1h1","masked":{"data":'
             '["Anthropic key"],"custom_metadata":["Anthropic key"]}}')]]
    assert check(full) == []


def test_one_statement_redacts_all_that_was_found(full):
    full.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    full.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e', ?)", (BODY,))
    one(full, "SELECT rollout_fork(?, 3, ?)", ID, FORK)
    assert rows(full, "SELECT blackbox_redact(kind, key, 'ann', 'a key leaked') ->> 'rows' FROM (SELECT kind, key"
                " FROM blackbox_find_secrets() WHERE kind <> 'buffer' GROUP BY 1, 2)") == [
        (1,), (1,), (3,), (1,), (1,)]  # with FORK goes what it shares
    assert [row[0] for row in found(full)] == ["buffer"]
    assert check(full) == []


def test_a_redaction_is_undone_with_its_transaction(full):
    before = found(full)
    full.execute("BEGIN")
    redact(full, "agent", "b")
    assert found(full) != before
    full.execute("ROLLBACK")
    assert found(full) == before and problems(full) == []
    assert rows(full, "SELECT * FROM blackbox_log WHERE kind = 'redaction'") == []


def test_pinned_evidence_is_pinned_anew_and_the_log_keeps_its_digest(full):
    head = one(full, "SELECT proof_head()")
    pin, at, kill_switch = rows(full, "SELECT pin, at, kill_switch_event_id FROM payload_pins")[0]
    redact(full, "evidence", "p3")
    assert rows(full, "SELECT id, pinned, purpose, response_body, meta FROM event_payloads"
                " WHERE id = 'p3'") == [
        ("p3", 1, "evidence", f"{OTHER_MASK} {OTHER_MASK}", '{"url": "http://x/?t=' + OTHER_MASK + '"}')]
    assert rows(full, "SELECT kind, actor, reason, detail FROM blackbox_log WHERE subject = 'p3'"
                " AND n > ? ORDER BY n", pin) == [
        ("redaction", "ann", "a key leaked", '{"masked":{"response_body":["GitHub token"],'
         '"meta":["GitHub token"]}}'),
        ("unpin", "ann", "a key leaked", f'{{"pin":{pin}}}'), ("pin", None, None, f'{{"pin":{pin}}}')]
    # the pin has the time of the first one, and its kill switch
    new = rows(full, "SELECT pin > ?, at, kill_switch_event_id FROM payload_pins", pin)
    assert new == [(1, at, kill_switch)]
    with pytest.raises(sqlite3.Error, match="PinnedError"):
        full.execute("UPDATE event_payloads SET response_body = 'x' WHERE id = 'p3'")
    assert rows(full, "SELECT * FROM proof_verify(?)", head) == check(full) == []
    leaf = one(full, "SELECT hash FROM blackbox__leaves WHERE leaf = ?", pin - 1)
    assert len(leaf) == 32


def test_a_redacted_row_that_is_changed_behind_the_guards_is_found(full, path):
    redact(full, "evidence", "p3")
    one(full, "SELECT proof_head()")
    full.execute("DROP TRIGGER payload_guard")
    full.execute("UPDATE event_payloads SET request_body = 'other' WHERE id = 'p3'")
    assert any("was altered" in problem[2] for problem in problems(full))


def test_a_second_redaction_keeps_the_time_and_the_kill_switch(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e1', ?), ('a', 'e2', 'q')",
               (BODY,))
    one(db, "SELECT payload_kill_switch('ring', 'a', 'k', 'Ann', 'it ran away')")
    pins = rows(db, "SELECT id, at, actor, reason, kill_switch_event_id FROM payload_pins ORDER BY 1")
    said = redact(db, "kill_switch", "k")
    assert parts(said) == [("event_payloads", 1)]
    db.execute("INSERT INTO blackbox_secrets(profile, name, anchor, after, least)"
               " VALUES('keys', 'word', 'now', 'a-z\"', 1)")
    redact(db, "agent", "a")
    assert rows(db, "SELECT id, at, actor, reason, kill_switch_event_id FROM payload_pins ORDER BY 1") == pins
    assert KEY not in "".join(line for line, in rows(db, "SELECT line FROM proof_bundle('k')"))
    assert check(db) == []


def test_the_rows_of_an_agent_in_a_ring_are_left_and_said(full):
    for table in ("ring", "temp.fast"):
        full.execute(f"CREATE VIRTUAL TABLE {table} USING payload_ring(window=3)")
        full.execute(f"INSERT INTO {table}(agent_id, event_id, request_body) VALUES('a', 'e1', ?)", (BODY,))
    assert parts(redact(full, "agent", "a"), "left") == [("ring", 1), ("fast", 1)]
    assert parts(redact(full, "event", "e1"), "left") == [("ring", 1), ("fast", 1)]
    one(full, "SELECT blackbox_erase('event', 'e1', 'ann', 'a key leaked')")
    assert [row for row in found(full) if row[0] == "buffer"] == []


@pytest.mark.parametrize("pack", [0, 1])
def test_a_conversation_loses_them_in_list_search_messages_and_export(full, pack):
    one(full, "SELECT rollout_search_install()")
    one(full, "SELECT rollout_append(?, ?)", ID, json.dumps([{"type": "event_msg", "payload": {
        "type": "user_message", "message": f"a long one {KEY} " + "word " * 90}}]))
    if pack:
        assert json.loads(one(full, "SELECT rollout_pack()"))["rows"] == 1
    one(full, "SELECT rollout_fork(?, 4, ?)", ID, FORK)
    assert rows(full, "SELECT sequence FROM rollout_search('kanarie7kanarie7kanarie7kanarie7kanarie7')")
    said = redact(full, "rollout", ID.upper())
    assert parts(said) == [("rollout_items", 3), ("rollouts", 1)]
    assert parts(redact(full, "rollout", FORK)) == [("rollouts", 1)]  # its title
    assert rows(full, "SELECT text FROM rollout_messages WHERE rollout = ? ORDER BY n", FORK) == [
        ("one",), (f"use {MASK} now",), (f"again {OTHER_MASK}",),
        (f"a long one {MASK} " + "word " * 90,)]
    assert one(full, "SELECT title FROM rollouts WHERE id = ?", ID) == f"with {MASK}"
    for table in ("rollout_items", "rollouts", "rollout_messages"):
        assert not any(KEY in str(row) or OTHER_KEY in str(row) for row in rows(full, f"SELECT * FROM {table}"))
    assert [f"{MASK}" in json.loads(p)["message"] for p, in rows(
        full, "SELECT payload FROM rollout_items WHERE rollout = ? AND sequence > 0 ORDER BY sequence", ID)] == [
        False, True, False, True]
    assert rows(full, "SELECT sequence FROM rollout_search('kanarie7kanarie7kanarie7kanarie7kanarie7')") == []
    assert rows(full, "SELECT sequence FROM rollout_search('again')")
    assert check(full) == []


def test_what_stood_around_an_item_in_its_file_loses_it_too(full):
    line = json.dumps({"timestamp": "2026-01-01T00:00:00.000Z", "env": KEY, "type": "event_msg",
                       "payload": {"type": "user_message", "message": "hi"}})
    first = json.dumps({"timestamp": "2026-01-01T00:00:00.000Z", "type": "session_meta", "payload": {
        "id": FORK,
        "timestamp": "2026-01-01T00:00:00.000Z", "cwd": f"/home/{KEY}", "originator": "x", "cli_version": "1"}})
    one(full, "SELECT rollout_import(?)", first + "\n" + line + "\n")
    mine = [(row[3], row[4]) for row in found(full) if row[1] == FORK]
    assert ("before", "Anthropic key") in mine and ("cwd", "Anthropic key") in mine
    redact(full, "rollout", FORK)
    assert [row for row in found(full) if row[1] == FORK] == []
    assert KEY not in one(full, "SELECT rollout_export(?)", FORK)
    assert check(full) == []


def test_a_session_is_the_conversation_that_its_program_names_so(full):
    full.execute("UPDATE rollout__about SET source_id = 'bob'")
    full.execute("INSERT OR IGNORE INTO rollout__about(no, source_id) SELECT no, 'bob' FROM rollout__heads")
    assert parts(redact(full, "session", "bob")) == [("rollout_items", 2), ("rollouts", 1)]


# ----------------------------------------------------------------------------------- the store

@pytest.mark.parametrize("every", [False, True])
def test_packed_rows_are_unpacked_and_can_be_packed_again(db, path, every):
    text = " ".join(f"line {i} of a long body" for i in range(200))
    for i in range(6):
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
                   " VALUES(?, ?, 'a', ?, ?)",
                   (f"p{i}", f"e{i}", f"{text} {i} {KEY} {text}", "evidence" if i % 2 else "archive"))
    one(db, "SELECT payload_pack()")
    assert one(db, "SELECT typeof(request_body) FROM event_payloads WHERE id = 'p1'") == "blob"
    assert len(found(db)) == 6
    redact(db, *(("agent", "a") if every else ("event", "e1")))
    assert [row[1] for row in found(db)] == ([] if every else ["p0", "p2", "p3", "p4", "p5"])
    assert one(db, "SELECT request_body FROM payload_rows WHERE id = 'p1'") == f"{text} 1 {MASK} {text}"
    assert check(db) == []
    one(db, "SELECT payload_pack()")
    assert one(db, "SELECT typeof(request_body) FROM event_payloads WHERE id = 'p1'") == "blob"
    assert one(db, "SELECT request_body FROM payload_rows WHERE id = 'p1'") == f"{text} 1 {MASK} {text}"
    assert check(db) == []


@pytest.mark.parametrize("pack", [0, 1])
@pytest.mark.parametrize("mode", ["delete", "wal", "persist"])
def test_no_canary_is_left_in_the_file(tmp_path, mode, pack):
    path = tmp_path / "canary.db"
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("PRAGMA secure_delete = 0")
    one(db, "SELECT blackbox_install('main', 'all')")
    one(db, "SELECT rollout_search_install()")
    fill(db)
    for i in range(20):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
                   " VALUES('e', 'a', ?, 'archive')", (f"{i} " + (KEY + " word ") * 40,))
    for i in range(9):
        one(db, "SELECT rollout_append(?, ?)", ID, json.dumps([{"type": "event_msg", "payload": {
            "type": "user_message", "message": f"{i} " + (KEY + " word ") * 40}}]))
    if pack:
        one(db, "SELECT payload_pack()")
        assert json.loads(one(db, "SELECT rollout_pack()"))["rows"] == 9
    files = [path, tmp_path / "canary.db-wal", tmp_path / "canary.db-journal"]

    def there():
        return any(key.encode() in file.read_bytes() for file in files if file.exists()
                   for key in (KEY, OTHER_KEY, "kanarie7" * 5))
    db.execute("PRAGMA wal_checkpoint")
    assert there()
    for kind, key in (("agent", "a"), ("agent", "b"), ("rollout", ID), ("session", SESSION)):
        said = redact(db, kind, key)
        assert said["rows"] > 0
        assert one(db, "PRAGMA secure_delete") == 0
    for statement in said["then"].split(";"):
        db.execute(statement).fetchall()
    assert not there()
    assert found(db) == [] and check(db) == []


# --------------------------------------------------------------------------------------- holds

@pytest.mark.parametrize("kind, key", [
    ("agent", "a"), ("event", "e1"), ("kill_switch", "k1"), ("evidence", "p3"), ("rollout", ID),
    ("session", SESSION)])
def test_what_is_held_itself_is_not_redacted(full, kind, key):
    hold(full, kind, key, "case-3")
    before = found(full)
    with pytest.raises(sqlite3.Error, match=f"HeldError: {kind} {key} is held by case-3, and nothing was redacted"):
        redact(full, kind, key)
    assert found(full) == before
    release(full, kind, key, "case-3")
    assert redact(full, kind, key)["rows"] > 0


def test_rows_that_another_hold_keeps_are_told(full):
    full.execute("INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"
                 " VALUES('p4', 'e4', 'a', ?, 'archive')", (BODY,))
    hold(full, "event", "e1")
    one(full, "SELECT rollout_fork(?, 2, ?)", ID, FORK)
    hold(full, "rollout", FORK)
    said = redact(full, "agent", "a")
    assert (parts(said), parts(said, "heldBack")) == ([("event_payloads", 1)], [("event_payloads", 1)])
    said = redact(full, "rollout", ID)
    assert parts(said, "heldBack") == [("rollout_items", 1)]
    assert parts(said) == [("rollout_items", 1), ("rollouts", 1)]
    assert check(full) == []


# --------------------------------------------------------------------------- schemas and errors

@pytest.mark.parametrize("trusted", [0, 1])
def test_it_works_in_a_schema_with_a_quoted_name(tmp_path, trusted):
    install_into(tmp_path / "other.db")
    db = connect(tmp_path / "main.db")
    name = 'my "log" [1]'
    db.execute("ATTACH ? AS \"my \"\"log\"\" [1]\"", (str(tmp_path / "other.db"),))
    fill(db, name)
    db.execute("CREATE VIRTUAL TABLE \"my \"\"log\"\" [1]\".\"a ring\" USING payload_ring(window=3)")
    db.execute("INSERT INTO \"my \"\"log\"\" [1]\".\"a ring\"(agent_id, event_id, request_body)"
               " VALUES('a', 'e', ?)", (KEY,))
    assert len(found(db)) == len(ARCHIVE + ROLLOUT + CACHE) + 1
    one(db, "SELECT proof_head()")
    one(db, "PRAGMA \"my \"\"log\"\" [1]\".secure_delete = fast")
    for kind, key in (("agent", "a"), ("agent", "b"), ("rollout", ID), ("session", SESSION)):
        db.execute(f"PRAGMA trusted_schema = {trusted}")
        if not trusted and kind in ("rollout", "session") and sqlite3.sqlite_version_info < (3, 41):
            with pytest.raises(sqlite3.Error, match="unsafe use of json_valid"):
                redact(db, kind, key)
            db.execute("PRAGMA trusted_schema = 1")
        assert redact(db, kind, key)["rows"] > 0
    assert one(db, "PRAGMA \"my \"\"log\"\" [1]\".secure_delete") == 2
    assert found(db) == [("buffer", "a ring", "a 1", "request_body", "Anthropic key", 1)]
    assert problems(db) == []


@pytest.mark.parametrize("arguments, wrong", [
    (("buffer", "ring", "ann", "why"), "ValidationError: kind must be agent, event, .* got 'buffer'"),
    (("text", "secret", "ann", "why"), "ValidationError: kind must be"),
    (("agent", "nobody", "ann", "why"), "NotFoundError: there is nothing of agent 'nobody'"),
    (("agent", None, "ann", "why"), "ValidationError: key"),
    (("agent", "a", "", "why"), "ValidationError: actor"),
    (("agent", "a", "ann", None), "ValidationError: reason"),
    (("agent", "a", "an\x01n", "why"), "ValidationError: actor must be visible")])
def test_what_is_wrong_is_said_and_changes_nothing(full, arguments, wrong):
    before = found(full)
    with pytest.raises(sqlite3.Error, match=wrong):
        one(full, "SELECT blackbox_redact(?, ?, ?, ?)", *arguments)
    assert found(full) == before and problems(full) == []


@pytest.mark.parametrize("does", ["RAISE(ABORT, 'no')", "RAISE(IGNORE)"])
def test_a_trigger_that_keeps_a_row_makes_it_fail_as_a_whole(full, does):
    full.execute("CREATE TRIGGER mine BEFORE UPDATE OF response_body ON event_payloads WHEN OLD.id = 'p3'"
                 f" BEGIN SELECT {does}; END")
    full.execute("UPDATE event_payloads SET agent_id = 'b' WHERE id = 'p1'")
    before = found(full), rows(full, "SELECT * FROM blackbox_log")
    with pytest.raises(sqlite3.Error, match="no|MisuseError: a trigger on event_payloads keeps a row"):
        redact(full, "agent", "b")
    assert (found(full), rows(full, "SELECT * FROM blackbox_log")) == before
    full.execute("DROP TRIGGER mine")
    assert problems(full) == []


def test_a_trigger_or_a_view_cannot_redact(full):
    full.execute("CREATE VIEW v AS SELECT blackbox_redact('agent', 'a', 'ann', 'why') AS x")
    with pytest.raises(sqlite3.Error, match="unsafe use"):
        rows(full, "SELECT * FROM v")
    assert found(full) == ARCHIVE + ROLLOUT + CACHE


def test_a_call_as_a_row_redacts(full):
    full.execute("INSERT INTO blackbox_call(command, arguments) VALUES('blackbox_redact', ?)",
                 (json.dumps(["agent", "a", "ann", "a key leaked"]),))
    assert [row[1] for row in found(full) if row[0] == "evidence"] == ["p3", "p3"]
    assert problems(full) == []


@pytest.mark.parametrize("call", ["SELECT blackbox_redact('agent', 'a', 'ann', 'why')",
                                  "SELECT blackbox_erase('agent', 'a', 'ann', 'why')"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_secure_delete_is_as_it_was_after_an_interrupt_and_after_an_error(db, call, before):
    for i in range(300):
        db.execute("INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
                   " VALUES(?, 'a', ?, 'archive')", (f"e{i}", f"{i} {KEY}"))
    db.execute(f"PRAGMA secure_delete = {['OFF', 'ON', 'FAST'][before]}").fetchall()
    one(db, "SELECT retention_hold('agent', 'a', 'o', 'ann', 'why')")
    with pytest.raises(sqlite3.Error, match="HeldError"):
        one(db, call)
    assert one(db, "PRAGMA secure_delete") == before
    one(db, "SELECT retention_release('agent', 'a', 'o', 'ann', 'why')")
    stopped = 0
    for steps in (200, 2000, 10000, 20000, 30000):
        db.set_progress_handler(db.interrupt, steps)
        try:
            one(db, call)
        except sqlite3.OperationalError as error:
            assert "interrupted" in str(error)
            stopped += 1
        db.set_progress_handler(None, 0)
        assert one(db, "PRAGMA secure_delete") == before
    assert stopped > 1
    assert problems(db) == []


def test_an_item_costs_the_same_however_many_there_are(db):
    steps, costs = [0], []

    def count():
        steps[0] += 1
    for id, n in ((ID, 200), (FORK, 1600)):
        one(db, "SELECT rollout_create(?, NULL, 'permanent')", id)
        one(db, "SELECT rollout_append(?, ?)", id, json.dumps([
            {"type": "event_msg", "payload": json.loads(said(f"{i} {KEY}"))} for i in range(n)]))
        steps[0] = 0
        db.set_progress_handler(count, 20)
        assert redact(db, "rollout", id)["rows"] == n
        db.set_progress_handler(None, 0)
        costs.append(steps[0] / n)
    assert costs[1] < 1.3 * costs[0]
