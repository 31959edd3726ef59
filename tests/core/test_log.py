"""The log finds what deliberate statements change, which no guard stops; and what plain SQL and
commands write is in it."""
import re
import sqlite3

import pytest

from conftest import connect, one, protects, rows

pytestmark = pytest.mark.skipif(protects(), reason="this SQLite protects the tables of the log")
RECEIPT = ("INSERT INTO blackbox__log(at, domain, kind, subject, rows, bytes) "
           "SELECT 5, 'payload', 'removal', 'clear', 0, 0")
UNPIN = ("INSERT INTO blackbox__log(domain, kind, subject, actor, reason) VALUES"
         "('payload', 'unpin', (SELECT id FROM payload_pins LIMIT 1), 'Ann', 'closed')")


@pytest.fixture
def kept(path):
    """A file with three exchanges that a kill switch pinned, and a receipt."""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES"
               "('a', 'e1', 'q', 'r'), ('a', 'e2', 'q', 'r'), ('a', 'e3', 'q', 'r')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 3
    db.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('x', 'b', 'archive')")
    one(db, "SELECT payload_clear_archive()")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT count(*) FROM proof_verify()") == 0
    return db


def found(db):
    return [row[0] for row in rows(db, "SELECT problem FROM blackbox_check")]


def renamed(db):
    db.executescript("""
        ALTER TABLE event_payloads RENAME COLUMN request_body TO away;
        ALTER TABLE event_payloads RENAME COLUMN response_body TO request_body;
        ALTER TABLE event_payloads RENAME COLUMN away TO response_body;""")
    try:
        one(db, "SELECT blackbox_install()")
    except sqlite3.Error:
        pass


def numbered(db):
    db.execute("UPDATE blackbox__log SET n = n + 100 WHERE kind = 'removal'")


def unguarded(db):
    for name in ("payload_delete_check", "payload_update_check"):
        db.execute(f"DROP TRIGGER {name}")
    db.execute("CREATE TEMP TRIGGER t BEFORE UPDATE ON main.event_payloads BEGIN "
               "SELECT 1; END")
    db.execute("UPDATE event_payloads SET response_body = 'nothing' WHERE event_id = 'e2'")
    db.execute("DROP TRIGGER t")
    one(db, "SELECT blackbox_install()")


DAMAGES = {
    "columns that change their names": (renamed, "was altered"),
    "a row of the log that is changed":
        ("UPDATE blackbox__log SET reason = 'x' WHERE kind = 'kill_switch'", "was altered"),
    "a row of the log that is removed":
        ("DELETE FROM blackbox__log WHERE kind = 'removal'", "was removed"),
    "a row of the log that has another number": (numbered, "was removed"),
    "a row of the log that is written over":
        ("UPDATE blackbox__log SET rows = 7 WHERE kind = 'removal'", "was altered"),
    "another salt": ("UPDATE blackbox__log SET salt = zeroblob(16) WHERE n = 1", "was altered"),
    "a frontier of zeros":
        ("UPDATE blackbox__tree SET frontier = zeroblob(length(frontier))",
         "do not have the root that is stored"),
    "a tree that is too large": ("UPDATE blackbox__tree SET size = size + 2", "missing or damaged"),
    "a tree that is too small":
        ("UPDATE blackbox__tree SET size = 4, frontier = zeroblob(32)", "beyond the size|root"),
    "a leaf that is exchanged":
        ("UPDATE blackbox__leaves SET hash = zeroblob(32) WHERE leaf = 1", "was altered"),
    "a pin that is removed": ("DELETE FROM payload__pins WHERE n = 1", "no row of the log unpins it"),
    "a pin that is added": ("INSERT INTO payload__pins(id, n) VALUES('other', 1)",
                            "not this row of the log"),
    "a held or pinned row that is changed without guards": (unguarded, "was altered"),
}


STOPS_LEAVES = ("a row of the log that is removed", "a row of the log that has another number",
                "a tree that is too large")


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_changed_on_purpose_is_found(kept, damage):
    does, problem = DAMAGES[damage]
    does(kept) if callable(does) else kept.execute(does)

    assert any(re.search(problem, told) for told in found(kept)), found(kept)
    try:
        assert one(kept, "SELECT count(*) FROM proof_verify()") > 0
    except sqlite3.DatabaseError as told:
        assert "CorruptedDataError" in str(told)


@pytest.mark.parametrize("damage", DAMAGES)
def test_new_evidence_is_saved_all_the_same(kept, damage):
    does, _ = DAMAGES[damage]
    does(kept) if callable(does) else kept.execute(does)
    if does is renamed:
        return  # the ring has another table to write to
    if damage in STOPS_LEAVES:
        pytest.xfail("the next row has the number of a leaf, or no number that follows")
    leaves = one(kept, "SELECT count(*) FROM blackbox__leaves")
    kept.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'late')")
    assert one(kept, "SELECT payload_kill_switch('ring', 'a', 'k2')") == 1
    assert one(kept, "SELECT count(*) FROM payload_pins WHERE kill_switch_event_id = 'k2'") == 1
    assert one(kept, "SELECT count(*) FROM blackbox__leaves") == leaves + 2, found(kept)


def test_a_salt_that_is_planted_for_the_next_pin_stops_no_leaf(kept):
    kept.execute("CREATE TEMP TRIGGER t AFTER INSERT ON main.blackbox__log BEGIN "
                 "UPDATE blackbox__log SET salt = x'00' WHERE n = NEW.n; END")
    kept.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e4', 'a', 'evidence')")
    kept.execute("DROP TRIGGER t")
    one(kept, "SELECT proof_head()")
    assert one(kept, "SELECT size = (SELECT max(n) FROM blackbox__log) FROM blackbox__tree") == 1
    kept.execute("UPDATE blackbox__log SET salt = randomblob(16) WHERE event_id = 'e4'")
    assert any("was altered" in told for told in found(kept))


def test_many_receipts_of_nothing_wash_no_receipt_out(kept):
    before = rows(kept, "SELECT * FROM retention_log")
    kept.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001) "
                 + RECEIPT + " FROM n")
    kept.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('y', 'b', 'archive')")
    one(kept, "SELECT payload_clear_archive()")
    assert set(before) <= set(rows(kept, "SELECT * FROM retention_log"))
    assert one(kept, "SELECT sum(rows) FROM retention_log") == 2
    assert one(kept, "SELECT size = (SELECT max(n) FROM blackbox__log) FROM blackbox__tree") == 1


def test_a_forged_unpin_is_found_because_the_row_is_still_pinned(kept):
    kept.execute(UNPIN)
    for _ in range(2):
        assert any("the pin has ended by the log, and the row is still pinned" in told
                   for told in found(kept))
        one(kept, "SELECT proof_head()")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        kept.execute("DELETE FROM event_payloads")


def test_decoys_do_not_hide_a_forged_row(kept):
    for i in range(150):
        kept.execute(f"CREATE TRIGGER decoy{i} AFTER INSERT ON payload__state BEGIN SELECT 1; END")
    kept.execute("UPDATE blackbox__log SET reason = 'x' WHERE kind = 'kill_switch'")
    assert any("was altered" in problem for problem in found(kept))


def test_check_tells_how_many_forged_rows_it_leaves_out(kept):
    kept.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150) "
                 + RECEIPT + " FROM n")
    one(kept, "SELECT proof_head()")
    kept.execute("UPDATE blackbox__log SET bytes = 1 WHERE at = 5")
    told = found(kept)
    assert sum("was altered" in problem for problem in told) == 100
    assert any("and 50 more" in problem for problem in told)


@pytest.mark.parametrize("command, arguments", [
    ("payload_unpin", "json_array((SELECT id FROM payload_pins LIMIT 1), 'Eve', 'x')"),
    ("payload_clear_archive", "'[]'"), ("payload_cleanup", "'[]'"),
    ("payload_kill_switch", "json_array('ring', 'a', 'k3')"),
    ("payload_save_evidence", "json_array('k', '[]')"),
    ("blackbox_erase", "json_array('agent', 'a', 'Eve', 'x')"),
    ("retention_sweep", "'[]'"), ("retention_hold", "json_array('agent', 'a', 'o', 'Eve', 'x')"),
    ("rollout_create", "'[]'"), ("cache_prune", "'[]'")])
@pytest.mark.parametrize("schema", ["main", "theirs"])
def test_no_trigger_runs_a_command(kept, path, tmp_path, schema, command, arguments):
    kept.execute("ATTACH ? AS theirs", (str(tmp_path / "theirs.db"),))
    kept.execute(f"CREATE TABLE {schema}.app(x)")
    kept.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('y', 'b', 'archive')")
    arguments = arguments.replace("(SELECT id FROM payload_pins LIMIT 1)",
                                  repr(one(kept, "SELECT id FROM payload_pins")))
    kept.execute(f"CREATE TRIGGER {schema}.t AFTER INSERT ON app BEGIN "
                 f"INSERT INTO blackbox_call VALUES('{command}', {arguments}); END")
    before = rows(kept, "SELECT * FROM blackbox_log"), rows(kept, "SELECT * FROM event_payloads")
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of virtual table"):
        kept.execute(f"INSERT INTO {schema}.app VALUES(1)")
    assert (rows(kept, "SELECT * FROM blackbox_log"), rows(kept, "SELECT * FROM event_payloads")) == before


WAYS = {
    "function": "SELECT payload_kill_switch('ring', 'a', 'k', 'Ann', 'it loops')",
    "command": "INSERT INTO main.blackbox_call VALUES('payload_kill_switch', "
               """'["ring", "a", "k", "Ann", "it loops"]')""",
    "row": "INSERT INTO ring(ring, agent_id, event_id, actor, reason) "
           "VALUES('kill_switch', 'a', 'k', 'Ann', 'it loops')",
}


@pytest.mark.parametrize("way", WAYS)
def test_who_pulled_a_kill_switch_when_and_why_is_in_the_log(path, way):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'payload')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e1'), ('a', 'e2')")
    before = one(db, "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)") or 0
    db.execute(WAYS[way]).fetchall()
    at, = rows(db, "SELECT at FROM blackbox_log WHERE kind = 'kill_switch' AND subject = 'k' AND "
               "actor = 'Ann' AND reason = 'it loops' AND rows = 2 AND agent_id = 'a'")[0]
    assert before - 1000 <= at
    assert rows(db, "SELECT actor, reason, kill_switch_event_id FROM payload_pins") == [
        ("Ann", "it loops", "k")] * 2
    assert one(db, "SELECT size FROM blackbox__tree") == one(db, "SELECT max(n) FROM blackbox_log")


def test_what_plain_sql_wrote_waits_for_the_next_call(kept, path):
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute("INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('p', 'a', 'evidence')")
    assert [(row[0], row[1]) for row in rows(kept, "SELECT * FROM proof_pending")] == [("pin", 1)]
    assert any("has no leaf yet" in row[0] for row in rows(kept, "SELECT problem FROM proof_verify()"))
    one(kept, "SELECT payload_clear_archive()")
    assert rows(kept, "SELECT * FROM proof_pending") == []
    assert one(kept, "SELECT count(*) FROM proof_verify()") == 0


def test_force_does_not_uninstall_what_is_pinned(kept):
    with pytest.raises(sqlite3.Error, match="PinnedError|pinned"):
        one(kept, "SELECT blackbox_uninstall('main', NULL, 'force')")
    assert one(kept, "SELECT count(*) FROM event_payloads WHERE pinned") == 3
