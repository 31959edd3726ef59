"""The log finds what deliberate statements change, which no guard stops; and what plain SQL and
commands write is in it."""
import hashlib
import json
import re
import shutil
import sqlite3
import time

import pytest

from conftest import connect, install_into, one, protects, rows, some

pytestmark = pytest.mark.skipif(protects(), reason="this SQLite protects the tables of the log")
ARCHIVE = "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('x', 'b', 'archive')"
EVIDENCE = "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e4', 'a', 'evidence')"
RECEIPT = ("INSERT INTO blackbox__log(at, domain, detail, rows, bytes) "
           "SELECT 5, 'payload', 'clear', 0, 0")
UNPIN = ("INSERT INTO blackbox__log(domain, kind, subject, actor, reason) VALUES"
         "('payload', 'unpin', (SELECT id FROM payload_pins LIMIT 1), 'Ann', 'closed')")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A file with three exchanges that a kill switch pinned, and a receipt."""
    path = tmp_path_factory.mktemp("original") / "test.db"
    install_into(path, domains="payload,retention,store")
    db = connect(path)
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES"
               "('a', 'e1', 'q', 'r'), ('a', 'e2', 'q', 'r'), ('a', 'e3', 'q', 'r')")
    assert one(db, "SELECT payload_kill_switch('ring', 'a', 'k')") == 3
    db.execute(ARCHIVE)
    one(db, "SELECT payload_clear_archive()")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT count(*) FROM proof_verify()") == 0
    db.close()
    return path


@pytest.fixture
def kept(original, path):
    shutil.copyfile(original, path)
    db = connect(path)
    db.execute("PRAGMA synchronous = OFF")
    yield db
    db.close()


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


def unguarded(db):
    for name in ("payload_delete_guard", "payload_guard"):
        db.execute(f"DROP TRIGGER {name}")
    db.execute("CREATE TEMP TRIGGER t BEFORE UPDATE ON main.event_payloads BEGIN "
               "SELECT 1; END")
    db.execute("UPDATE event_payloads SET response_body = 'nothing' WHERE event_id = 'e2'")
    db.execute("DROP TRIGGER t")
    one(db, "SELECT blackbox_install()")


def fewer(db):
    """The leaf of a row of the log which has no columns."""
    unguarded(db)
    leaf = hashlib.sha256(b"\0blackbox log 1\n" + 2 * (2).to_bytes(8, "big")
                          + hashlib.sha256(b"").digest()).digest()
    db.execute("UPDATE blackbox__leaves SET hash = ? WHERE leaf = 1", (leaf,))


def pin_made_anew(db):
    db.execute("DELETE FROM payload__pins WHERE n = 2")
    unguarded(db)
    db.execute("UPDATE event_payloads SET pinned = 1 WHERE event_id = 'e2'")


def lost_pin(db, subject):
    """The first pin goes with its row, and the log names another subject."""
    db.execute("UPDATE blackbox__log SET subject = ? WHERE n = 1", (subject,))
    db.execute("DELETE FROM payload__pins WHERE n = 1")
    db.execute("DROP TRIGGER payload_delete_guard")
    db.execute("DELETE FROM event_payloads WHERE event_id = 'e1'")
    one(db, "SELECT blackbox_install()")


def without_subject(db):
    lost_pin(db, None)


def other_subject(db):
    db.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
               "SELECT id, 'Ann', 'closed' FROM event_payloads WHERE event_id = 'e3'")
    one(db, "SELECT proof_head()")
    lost_pin(db, one(db, "SELECT subject FROM blackbox_log WHERE kind = 'unpin'"))


def blanked(db):
    """The hashes of all fields of the first pin are made from its salt, as an erasure does."""
    fields = json.loads(one(db, "SELECT proof_of('row', 1)"))["fields"]
    for field in fields:
        if field["type"] == 5:
            continue
        gone = field["name"] == "row.response_body"
        db.execute("INSERT INTO blackbox__erased VALUES(1, ?, ?, ?, ?)", (
            field["name"], field["type"] if gone else None,
            None if gone else bytes.fromhex(field["salt"]),
            bytes.fromhex(field["hash"]) if gone else None))
    db.execute("UPDATE blackbox__log SET salt = x'' WHERE n = 1")
    db.execute("DROP TRIGGER payload_guard")
    db.execute("UPDATE event_payloads SET response_body = NULL WHERE event_id = 'e1'")
    one(db, "SELECT blackbox_install()")


def as_if_folded(db, first, last, true=False):
    """Rows go with all that belongs to them, and a sum stands for as many. true: the range has the
    last one."""
    leaves, kept = rows(db, "SELECT count(*), max(kept) FROM blackbox__leaves WHERE leaf "
                        "BETWEEN ? AND ?", first, last)[0]
    before = one(db, "SELECT coalesce(max(kept), 0) FROM blackbox__leaves WHERE leaf < ?", first)
    db.execute("INSERT INTO blackbox__folded SELECT ?, ?, ?, at, domain, subject, actor, reason, "
               "rows, bytes, oldest, newest, detail, salt FROM blackbox__log WHERE n = ? + 1",
               (first, last, kept if true else before, last))
    db.execute("DROP TRIGGER payload_delete_guard")
    db.execute("DELETE FROM event_payloads WHERE id IN (SELECT subject FROM blackbox__log "
               "WHERE n BETWEEN ? + 1 AND ? + 1)", (first, last))
    db.execute("DELETE FROM payload__pins WHERE n BETWEEN ? + 1 AND ? + 1", (first, last))
    db.execute("DELETE FROM blackbox__log WHERE n BETWEEN ? + 1 AND ? + 1", (first, last))
    db.execute("INSERT INTO blackbox__leaves(leaf, hash) SELECT -(1 << 40) - leaf, hash "
               "FROM blackbox__leaves WHERE leaf BETWEEN ? AND ?", (first, last))
    db.execute("DELETE FROM blackbox__leaves WHERE leaf BETWEEN ? AND ?", (first, last))
    db.execute("INSERT INTO blackbox__log(n, at, domain, subject, rows, bytes, detail) VALUES("
               "(SELECT size FROM blackbox__tree) + 1, 1699999999999, 'payload', 'payload.age', "
               "9, 9, ?)",
               (json.dumps({"day": "2023-11-14", "leaves": leaves}),))
    one(db, "SELECT blackbox_install()")


def pins_as_if_folded(db):
    as_if_folded(db, 0, 1)


def everything_as_if_folded(db):
    as_if_folded(db, 0, 4)


def everything_as_if_folded_with_the_last_row(db):
    as_if_folded(db, 0, 4, True)


def a_young_receipt_as_if_folded(db):
    as_if_folded(db, 4, 4, True)


TREE = "blackbox__tree had been damaged"
LAST = "is not what blackbox__folded has of the last leaf of its range"
# How a damage is done, what check says of it, and what it says when the log has gone on (None: the
# same).
DAMAGES = {
    "columns that change their names": (renamed, "was altered", None),
    "a row of the log that is changed":
        ("UPDATE blackbox__log SET reason = 'x' WHERE kind = 'kill_switch'", "was altered", None),
    "a row of the log that is removed":
        ("DELETE FROM blackbox__log WHERE n = 2", "was removed", None),
    "the newest rows of the log that are removed":
        ("DELETE FROM blackbox__log WHERE n > 3", "was removed", "row 4: was removed"),
    "a row of the log that has another number":
        ("UPDATE blackbox__log SET n = n + 100 WHERE n = 5", "was removed", "row 5: was removed"),
    "a late response that ended a pin, and no new pin":
        ("INSERT INTO blackbox__log(domain, kind, subject, detail) SELECT 'payload', 'complete', id, "
         "'{\"pin\":' || n || '}' FROM payload__pins ORDER BY n LIMIT 1;"
         "DELETE FROM payload__pins WHERE n = (SELECT min(n) FROM payload__pins)",
         "is missing, or not pinned any more", None),
    "another salt":
        ("UPDATE blackbox__log SET salt = zeroblob(16) WHERE n = 1", "was altered", None),
    "a frontier of zeros":
        ("UPDATE blackbox__tree SET frontier = zeroblob(length(frontier))",
         "do not have the root that is stored", TREE),
    "a frontier of another length":
        ("UPDATE blackbox__tree SET frontier = x'00'", "missing or damaged", TREE),
    "a tree that is too large":
        ("UPDATE blackbox__tree SET size = size + 2", "missing or damaged", TREE),
    "a tree that is too large, with a frontier for it":
        ("UPDATE blackbox__tree SET size = 7, frontier = zeroblob(96)", "leaves .* missing", TREE),
    "a tree that is too small":
        ("UPDATE blackbox__tree SET size = 4, frontier = zeroblob(32)", "beyond the size", TREE),
    "a tree that is not there": ("DELETE FROM blackbox__tree", "missing or damaged", "damaged"),
    "a leaf that is exchanged":
        ("UPDATE blackbox__leaves SET hash = zeroblob(32) WHERE leaf = 1", "was altered", None),
    "a leaf of no columns": (fewer, "was altered", None),
    "the newest leaves that are removed":
        ("DELETE FROM blackbox__leaves WHERE leaf > 2", "leaves .* missing", TREE),
    "a leaf a little ahead":
        ("INSERT INTO blackbox__leaves VALUES(6, randomblob(32), 4)", "beyond the size",
         "blackbox__leaves had been damaged"),
    "a leaf far away":
        ("INSERT INTO blackbox__leaves VALUES(1 << 41, zeroblob(32), 4)", "beyond the size", None),
    "a receipt that says it is a sum, and is not":
        ("INSERT INTO blackbox__log(at, domain, subject, detail) VALUES"
         "(0, 'x', 'y', '{\"day\":'), (0, 'x', 'y', '1'); "
         "UPDATE blackbox__log SET reason = 'x' WHERE kind = 'kill_switch'", "was altered", None),
    "sums of receipts that are too large":
        ("INSERT INTO blackbox__log(at, domain, detail, rows) VALUES"
         "(0, 'x', 'y', 9223372036854775807), (0, 'x', 'y', 1); "
         "UPDATE blackbox__log SET reason = 'x' WHERE kind = 'kill_switch'", "was altered", None),
    "a number far ahead":
        ("INSERT INTO blackbox__log(n, domain, kind) VALUES(10000000, 'x', 'y')",
         "row 6: was removed or renumbered before", "blackbox__log had been damaged"),
    "the last number that there is":
        ("INSERT INTO blackbox__log(n, domain, kind) VALUES(9223372036854775807, 'x', 'y')",
         "row 6: was removed or renumbered before", "blackbox__log had been damaged"),
    "a body that is blanked as if it were erased":
        (blanked, "no row of the log says that they were erased", None),
    "a pin that ends without its subject": (without_subject, "no row of the log unpins it", None),
    "a pin that has the subject of one that ended":
        (other_subject, "no row of the log unpins it", None),
    "pins that are removed as if they were folded": (pins_as_if_folded, LAST, None),
    "a log that is removed as if it were folded": (everything_as_if_folded, LAST, None),
    "a log that is removed as if it were folded, with the last row":
        (everything_as_if_folded_with_the_last_row, "4 were of rows that are no receipts", None),
    "a young receipt that is removed as if it were folded":
        (a_young_receipt_as_if_folded, "is not 30 days old", None),
    "a count of a leaf that is another":
        ("UPDATE blackbox__leaves SET kept = 0 WHERE leaf = 4", "was altered", None),
    "a pin that is removed":
        ("DELETE FROM payload__pins WHERE n = 1", "no row of the log unpins it", None),
    "a pin that is added":
        ("INSERT INTO payload__pins(id, n) VALUES('other', 1)", "not this row of the log", None),
    "a pin that is made anew": (pin_made_anew, "the pin was lost, and made anew", None),
    "a pinned row that is changed without guards": (unguarded, "was altered", None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_changed_on_purpose_is_found(kept, damage):
    does, problem, _ = DAMAGES[damage]
    does(kept) if callable(does) else kept.executescript(does)

    assert any(re.search(problem, told) for told in found(kept)), found(kept)
    try:
        assert one(kept, "SELECT count(*) FROM proof_verify()") > 0
    except sqlite3.DatabaseError as told:
        assert "CorruptedDataError" in str(told)


@pytest.mark.parametrize("damage", some(DAMAGES, 5))
def test_new_evidence_has_its_leaves_all_the_same_and_the_damage_stays_told(kept, damage):
    does, before, after = DAMAGES[damage]
    does(kept) if callable(does) else kept.executescript(does)
    if does is renamed:
        return  # the ring has another table to write to
    for event in ("k2", "k3"):
        kept.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'late')")
        assert one(kept, "SELECT payload_kill_switch('ring', 'a', ?)", event) == 1
        if "not there" in damage:  # without its row there is no name of the log
            one(kept, "SELECT blackbox_install()")
        new = [n for n, in rows(
            kept, "SELECT n FROM blackbox_log WHERE kill_switch_event_id = ?", event)]
        assert len(new) == 2
        told = found(kept)
        assert any(re.search(after or before, problem) for problem in told), told
        for n in new:
            assert one(kept, "SELECT count(*) FROM blackbox__leaves WHERE leaf + 1 = ?", n) == 1
            assert not any(f"row {n}:" in problem for problem in told), told


def test_a_repaired_tree_is_the_one_of_the_leaves(kept):
    kept.execute("UPDATE blackbox__tree SET size = 7, frontier = zeroblob(96)")
    noted = one(kept, "SELECT proof_head()")
    assert noted.split("\n")[1] == "6"  # with the row that tells of it
    assert one(kept, "SELECT proof_of('leaf', 2) ->> '$.head'") == noted
    one(kept, "SELECT payload_unpin(id, 'Ann', 'closed') FROM event_payloads WHERE event_id = 'e1'")
    assert rows(kept, "SELECT * FROM proof_verify(?)", noted) == []
    assert rows(kept, "SELECT kind, subject, detail FROM blackbox_log WHERE kind = 'repair'") == [
        ("repair", "blackbox__tree", '{"size":7,"leaves":5}')]


@pytest.mark.parametrize("ahead", [1_000_000, (1 << 63) - 1])
def test_rows_after_too_many_missing_numbers_get_the_next_ones(kept, path, ahead):
    kept.execute("INSERT INTO blackbox__log(n, domain, kind) VALUES(?, 'x', 'y')", (ahead,))
    plain = sqlite3.connect(path, isolation_level=None)
    plain.execute(EVIDENCE)
    plain.execute("INSERT INTO payload_unpins(payload_id, actor, reason) "
                  "SELECT id, 'Ann', 'closed' FROM event_payloads WHERE event_id = 'e4'")
    plain.execute(EVIDENCE.replace("e4", "e5"))
    assert one(kept, "SELECT payload_kill_switch('ring', 'a', 'k2')") == 0
    one(kept, "SELECT proof_head()")
    assert rows(kept, "SELECT count(*), max(n) < 20 FROM blackbox_log") == [(
        one(kept, "SELECT count(*) FROM blackbox__leaves WHERE leaf >= 0"), 1)]
    assert rows(kept, "SELECT count(*) FROM payload_pins") == [(4,)]
    told = found(kept)
    assert len(told) == 1 and "blackbox__log had been damaged" in told[0], told


def test_a_receipt_of_a_minute_that_is_over_is_in_the_log_before_it_can_be_lost(kept):
    kept.execute("INSERT INTO retention_log(at, domain, rule, rows, bytes) "
                 "VALUES(1700000000000, 'payload', 'x', 1, 2)")
    assert found(kept) == []
    assert rows(kept, "SELECT * FROM proof_pending") == [("removal", 1, None)]
    kept.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'late')")
    one(kept, "SELECT payload_kill_switch('ring', 'a', 'k2')")
    assert one(kept, "SELECT count(*) FROM blackbox__open WHERE minute < 30000000") == 0
    assert one(kept, "SELECT count(*) FROM blackbox_log WHERE subject = 'x'") == 1
    assert rows(kept, "SELECT * FROM proof_pending") == []
    assert found(kept) == []


@pytest.mark.parametrize("table", [
    "blackbox__log", "blackbox__tree", "blackbox__leaves", "retention__in_force",
    "payload__pins", "blackbox__open", "payload__packed"])
def test_an_install_that_makes_a_lost_record_anew_tells_of_it(kept, table):
    one(kept, "SELECT retention_hold('agent', 'a', 'o', 'Eve', 'x')")
    kept.execute(f"DROP TABLE {table}")
    assert any("is missing; run blackbox_install()" in problem for problem in found(kept))
    one(kept, "SELECT blackbox_install()")
    one(kept, "SELECT proof_head()")
    assert any(" had been damaged" in problem and f"table {table}" in problem
               for problem in found(kept)), found(kept)


@pytest.mark.parametrize("damage, name", [
    ("UPDATE payload__state SET bytes = 5", "rows of payload__state"),
    ("DELETE FROM payload__state", "row payload__state"),
    ("DELETE FROM retention__clock", "row retention__clock"),
    ("DELETE FROM blackbox__probe", "row blackbox__probe")])
def test_an_install_that_mends_a_row_of_its_own_tells_of_it(kept, damage, name):
    kept.execute(damage)
    assert found(kept) != []
    one(kept, "SELECT blackbox_install()")
    assert [name in problem for problem in found(kept)] == [True]


def test_an_install_that_repairs_nothing_of_a_record_tells_nothing(kept):
    kept.execute("DROP INDEX payload_by_age")
    kept.execute("DELETE FROM retention_rules WHERE rule = 'payload.age'")
    one(kept, "SELECT blackbox_install()")
    assert found(kept) == []


def test_a_salt_that_is_planted_for_the_next_pin_stops_no_leaf(kept):
    kept.execute("CREATE TEMP TRIGGER t AFTER INSERT ON main.blackbox__log BEGIN "
                 "UPDATE blackbox__log SET salt = x'00' WHERE n = NEW.n; END")
    kept.execute(EVIDENCE)
    kept.execute("DROP TRIGGER t")
    one(kept, "SELECT proof_head()")
    assert one(kept, "SELECT size = (SELECT max(n) FROM blackbox__log) FROM blackbox__tree") == 1
    kept.execute("UPDATE blackbox__log SET salt = randomblob(16) WHERE event_id = 'e4'")
    assert any("was altered" in told for told in found(kept))


@pytest.mark.parametrize("days, listed", [(29, 1), (31, 0)])
def test_a_repair_is_listed_for_30_days_and_stays_in_the_log(db, days, listed):
    at = int(time.time() * 1000) - days * 86_400_000
    db.execute("INSERT INTO blackbox__log(at, domain, kind, subject, detail) "
               "VALUES(?, 'core', 'repair', 'schema of payload', '{}')", (at,))
    one(db, "SELECT proof_head()")
    assert len(found(db)) == one(db, "SELECT count(*) FROM proof_verify()") == listed
    assert one(db, "SELECT count(*) FROM blackbox_log WHERE kind = 'repair'") == 1


def test_a_repair_whose_time_a_trigger_sets_back_is_listed(kept):
    kept.execute("CREATE TEMP TRIGGER back AFTER INSERT ON main.blackbox__log WHEN NEW.kind = "
                 "'repair' BEGIN UPDATE blackbox__log SET at = 1 WHERE n = NEW.n; END")
    kept.execute("DROP TRIGGER payload_delete_guard")
    one(kept, "SELECT blackbox_install()")
    kept.execute("DROP TRIGGER back")
    assert one(kept, "SELECT at FROM blackbox_log WHERE kind = 'repair'") == 1
    assert "schema of payload had been damaged" in str(rows(kept, "SELECT * FROM blackbox_check"))


def test_many_receipts_of_nothing_wash_no_receipt_out(kept):
    before = rows(kept, "SELECT * FROM retention_log")
    kept.execute("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001) "
                 + RECEIPT + " FROM n")
    kept.execute(ARCHIVE)
    one(kept, "SELECT payload_clear_archive()")
    assert set(before) <= set(rows(kept, "SELECT * FROM retention_log"))
    assert one(kept, "SELECT sum(rows) FROM retention_log") == 2
    assert one(kept, "SELECT size = (SELECT max(n) FROM blackbox__log) FROM blackbox__tree") == 1


@pytest.mark.parametrize("trigger", [
    "AFTER UPDATE ON main.blackbox__probe BEGIN UPDATE blackbox__probe SET hit = 0; END",
    "AFTER UPDATE ON main.blackbox__probe BEGIN UPDATE event_payloads SET agent_id = 'z'; END",
    "BEFORE UPDATE ON main.event_payloads BEGIN UPDATE blackbox__probe SET hit = 0; END"])
@pytest.mark.parametrize("how", [
    "UPDATE event_payloads SET response_body = 'other' WHERE id = 'h'",
    "UPDATE event_payloads SET agent_id = 'other' WHERE id = 'h'",
    "DELETE FROM event_payloads WHERE id = 'h'"])
def test_no_temp_trigger_opens_a_held_row_of_the_archive(kept, trigger, how):
    """The guards of DELETE and UPDATE only raise."""
    kept.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose) VALUES"
                 "('h', 'e', 'held', 'archive'), ('x', 'e', 'free', 'archive')")
    one(kept, "SELECT retention_hold('agent', 'held', 'case', 'Ann', 'a lawsuit')")
    before = rows(kept, "SELECT * FROM event_payloads WHERE id = 'h'")
    kept.execute("CREATE TEMP TRIGGER t " + trigger)
    with pytest.raises(sqlite3.IntegrityError, match="HeldError|PinnedError"):
        kept.execute(how)
    assert rows(kept, "SELECT * FROM event_payloads WHERE id = 'h'") == before


def test_a_forged_unpin_is_found_because_the_row_is_still_pinned(kept):
    kept.execute(UNPIN)
    for _ in range(2):
        assert any("the pin has ended by the log, and the row is still pinned" in told
                   for told in found(kept))
        one(kept, "SELECT proof_head()")
    with pytest.raises(sqlite3.IntegrityError, match="PinnedError"):
        kept.execute("DELETE FROM event_payloads")


@pytest.mark.parametrize("forged, problem", [
    (UNPIN, "the pin has ended by the log, and the row is still pinned"),
    ("INSERT INTO payload__pins(id, n) VALUES('other', 6)", "not this row of the log")])
def test_a_forged_row_of_pins_is_found_against_a_head_kept_elsewhere(kept, forged, problem):
    head = one(kept, "SELECT proof_head()")
    kept.execute(ARCHIVE)
    one(kept, "SELECT payload_clear_archive()")
    assert rows(kept, "SELECT * FROM proof_verify(?)", head) == []
    kept.execute(forged)
    one(kept, "SELECT proof_head()")
    told = rows(kept, "SELECT problem FROM proof_verify(?)", head)
    assert any(problem in line for line, in told), told


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
    kept.execute(ARCHIVE)
    arguments = arguments.replace("(SELECT id FROM payload_pins LIMIT 1)",
                                  repr(one(kept, "SELECT id FROM payload_pins")))
    kept.execute(f"CREATE TRIGGER {schema}.t AFTER INSERT ON app BEGIN "
                 f"INSERT INTO blackbox_call VALUES('{command}', {arguments}); END")
    state = "SELECT count(*), max(n), (SELECT count(*) FROM event_payloads) FROM blackbox_log"
    before = rows(kept, state)
    with pytest.raises(sqlite3.OperationalError, match="unsafe use of virtual table"):
        kept.execute(f"INSERT INTO {schema}.app VALUES(1)")
    assert rows(kept, state) == before


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
    plain.execute(EVIDENCE)
    assert rows(kept, "SELECT * FROM proof_pending") == [("pin", 1, 6)]
    waits = ("has no leaf yet; rows that wait: 1, which were written without the module; "
             "SELECT proof_head() takes them in")
    assert rows(kept, "SELECT problem FROM proof_verify()") == [(waits,)]
    assert found(kept) == ["row 6: " + waits]
    plain.execute(EVIDENCE)
    plain.execute(EVIDENCE)
    assert "rows that wait: 3, which were written" in found(kept)[0]
    one(kept, "SELECT payload_clear_archive()")
    assert rows(kept, "SELECT * FROM proof_pending") == []
    assert one(kept, "SELECT count(*) FROM proof_verify()") == 0


def test_check_tells_a_problem_once_and_begins_no_line_with_a_colon(kept):
    kept.execute("DELETE FROM blackbox__tree")
    kept.execute("DELETE FROM blackbox__probe")
    told = rows(kept, "SELECT object, problem FROM blackbox_check")
    assert len(told) == len(set(told)) and len(told) == 3, told
    one(kept, "SELECT blackbox_install()")
    kept.execute("UPDATE blackbox__folded SET last = last")
    kept.execute("INSERT INTO blackbox__folded(first, last, kept) VALUES(100, 200, 4)")
    assert any(problem.startswith("blackbox__folded has 101 leaves") for problem in found(kept))


@pytest.mark.parametrize("into, times", [
    ("retention_log(domain, rule, at, rows, bytes, oldest, newest) SELECT 'payload', ",
     "at - 604800000 - at % 60000, at - 604770000 - at % 60000"),
    # as payload_cleanup() does
    ("blackbox__log(actor, salt, detail, at, rows, bytes, oldest, newest) SELECT '', NULL, ",
     "604800000 + at % 60000, 30000")])
def test_a_year_of_one_receipt_a_minute_is_what_the_manual_says(kept, into, times):
    """The receipts of 30 days and of the running one are not folded; a day before is one row."""
    day = int(time.time()) // 86400 * 86_400_000
    before = one(kept, "PRAGMA page_count")
    kept.execute("WITH n(at) AS (SELECT ?1 UNION ALL SELECT at + 60007 FROM n WHERE at < ?2) "
                 f"INSERT INTO {into} 'payload.bytes', at, 2, 25000, {times} FROM n",
                 (day - 30 * 86_400_000, time.time() * 1000 - 120_000))
    one(kept, "SELECT proof_head()")
    used = one(kept, "PRAGMA page_count") - one(kept, "PRAGMA freelist_count")
    grown = (used - before) * one(kept, "PRAGMA page_size")
    count = one(kept, "SELECT count(*) FROM retention_log")
    assert count > 43_000
    # With what tests/proof/test_proof_fold.py has: less than 5 MB.
    assert grown / count * 31 * 1440 < 4_250_000
    assert rows(kept, "SELECT min(at - oldest) / 60000, min(newest - oldest) FROM retention_log"
                " WHERE rule = 'payload.bytes'") == [(10080, 30000)]


def test_a_clean_up_is_named_in_its_receipt(kept):
    kept.execute(ARCHIVE.replace("purpose) VALUES", "purpose, created_at) VALUES").replace(
        "'archive')", "'archive', '2020-01-01 00:00:00')"))
    assert one(kept, "SELECT payload_cleanup(30) ->> '$.rows'") == 1
    for columns in "rule, actor FROM retention_log", "subject, actor FROM blackbox_log":
        assert rows(kept, f"SELECT domain, {columns} WHERE actor = 'payload_cleanup'") == [
            ("payload", "payload.age", "payload_cleanup")]


def test_force_does_not_uninstall_what_is_pinned(kept):
    with pytest.raises(sqlite3.Error, match="PinnedError|pinned"):
        one(kept, "SELECT blackbox_uninstall('main', NULL, 'force')")
    assert one(kept, "SELECT count(*) FROM event_payloads WHERE pinned") == 3


def test_a_trigger_of_yours_notes_what_it_removes(db):
    """As docs/core.md says, and the package for LangGraph does."""
    for number in 1, 2:
        db.execute("INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest)"
                   " VALUES(60000, 'user', 'mine', 1, 10, ?, ?)", (number, number + 5))
    assert rows(db, "SELECT at, domain, rule, rows, bytes, oldest, newest FROM retention_log") == [
        (60000, "user", "mine", 2, 20, 1, 7)]


def test_the_time_of_a_row_is_that_of_its_statement(db):
    """To the millisecond, also where the Julian day of SQLite is a little less than the time."""
    for i in range(40):
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose)"
                   " VALUES(?, 'e', 'a', 'evidence')", (f"p{i}",))
        assert one(db, "SELECT l.at - p.created_ms FROM event_payloads p JOIN blackbox_log l"
                   " ON l.subject = p.id WHERE p.id = ?", f"p{i}") == 0
    db.execute("CREATE TABLE times(ms)")
    db.execute("CREATE TRIGGER times AFTER DELETE ON event_payloads BEGIN"
               " INSERT INTO times VALUES(strftime('%s', 'now') * 1000"
               " + substr(strftime('%f', 'now'), 4)); END")
    for i in range(40):
        db.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose)"
                   " VALUES('r', 'e', 'a', 'archive')")
        db.execute("DELETE FROM event_payloads WHERE id = 'r'")
        assert one(db, "SELECT max(at) - (SELECT max(ms) FROM times) FROM blackbox__open") == 0
