"""proof_bundle(kill_switch): rows, proofs and head in one file, which verify.py checks alone."""
import json
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from conftest import MODULE, ROOT, connect, one, rows
from proof_helpers import head, verify, write

PUSH = "INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES(?, ?, ?, ?)"
VERIFY = ROOT / "tools" / "verify.py"


def fire(db, n=3, name="k", agent="a", body="request " + "{}" * 999):
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS ring USING payload_ring(window=9)")
    for i in range(n):
        db.execute(PUSH, (agent, f"{agent}{i}", body.format(*[i] * 999), None if i == 2 else f"answer {i}"))
    assert one(db, "SELECT payload_kill_switch('ring', ?, ?)", agent, name) == n


def bundle(db, name="k"):
    lines = [r[0] for r in rows(db, "SELECT line FROM proof_bundle(?)", name)]
    assert one(db, "SELECT proof_bundle(?)", name) == "".join(line + "\n" for line in lines)
    return [json.loads(line) for line in lines]


def told(lines, *notes):
    found = verify.Verifier()
    for line in lines:
        found.line(json.dumps(line))
    return found.end([verify.read_head(note) for note in notes]).split("\n")


def values(lines, n):
    return {f["name"]: f.get("value", f.get("hex")) for line in lines if line.get("n") == n
            for f in line["fields"] or ()}


@pytest.fixture
def fired(db):
    fire(db)
    fire(db, 2, "other", "b")
    return db


def test_a_bundle_has_the_rows_of_one_kill_switch_and_verifies_alone(fired, tmp_path):
    lines = bundle(fired)
    assert {**lines[0], "head": 0} == {"kind": "bundle", "version": 1, "kill_switch": "k", "rows": 4,
                                       "unproven": 0, "head": 0}
    assert [line["n"] for line in lines[1:]] == [1, 2, 3, 4]
    assert lines[0]["head"] == one(fired, "SELECT proof_tile('checkpoint')")
    row = fired.execute("SELECT * FROM event_payloads WHERE event_id = 'a1'")
    names = [d[0] for d in row.description]
    row, shown = dict(zip(names, row.fetchone())), values(lines, 2)
    assert {name[4:]: shown[name] for name in shown if name.startswith("row.")} == {
        name: row[name] for name in ("agent_id", "created_at", "event_id", "id", "meta", "purpose",
                                     "kill_switch_event_id", "request_body", "response_body")}
    assert told(lines, lines[0]["head"])[1:] == ["row 4: 'payload kill_switch' 'k' None None"]
    file = tmp_path / "bundle"
    file.write_text(one(fired, "SELECT proof_bundle('k')"))
    done = subprocess.run([sys.executable, VERIFY, file], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("VERIFIED: 4 of 7 leaves of blackbox/")


def test_what_was_completed_unpinned_held_and_erased_is_said(fired):
    one(fired, "SELECT payload_unpin(id, 'ann', 'of no use') FROM event_payloads"
               " WHERE event_id = 'a0'")
    fired.execute("DELETE FROM event_payloads WHERE event_id = 'a0'")
    fired.execute("UPDATE event_payloads SET response_body = 'late' WHERE event_id = 'a2'")
    one(fired, "SELECT retention_hold('agent', 'a', 'case', 'bob', 'court')")
    one(fired, "SELECT retention_hold('kill_switch', 'k', 'case', 'eve', 'audit')")
    one(fired, "SELECT retention_hold('agent', 'b', 'case', 'bob', 'not of this one')")
    one(fired, "SELECT blackbox_erase('text', 'of no use', 'dan', 'asked for')")
    one(fired, "SELECT proof_head()")
    lines = bundle(fired)
    unpin = next(n for n in range(1, 20) if values(lines, n).get("kind") == "unpin")
    said = told(lines)
    assert said[0].endswith("; 3 taken, 3 pinned; 0 pins have no proof; 0 values are not shown")
    assert f"row {unpin}: 'payload unpin' '{values(lines, unpin)['subject']}' 'ann' None" in said
    assert [s for s in said if s.startswith("HASH ONLY")] == [
        f"HASH ONLY: row 1, see row {unpin}", f"HASH ONLY: row 3, see row {unpin + 2}"]
    assert [re.sub("row [0-9]+$", "row", s) for s in said if s.startswith("ERASED")] == [
        f"ERASED: reason of row {unpin}, see row"]
    assert [s.split(": ", 1)[1] for s in said if "hold" in s] == [
        "'retention hold' 'agent:a' 'bob' 'court'", "'retention hold' 'kill_switch:k' 'eve' 'audit'"]
    assert any(s.endswith("'dan' 'asked for'") for s in said)
    assert values(lines, unpin + 2)["row.response_body"] == "late"


def test_packed_bodies_are_shown_as_their_text(fired):
    before = bundle(fired)
    one(fired, "SELECT payload_pack()")
    assert one(fired, "SELECT typeof(request_body) FROM event_payloads") == "blob"
    after = bundle(fired)
    assert values(after, 2) == values(before, 2) and told(after)


def test_what_json_cannot_have_is_written_in_hexadecimal(db):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=9)")
    for i, body in enumerate(("a\0b", "\u2028 \\\" \x01", "")):
        db.execute(PUSH, ("a", f"a{i}", body, None))
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'a3',"
               " CAST(x'ff00fe' AS TEXT))")
    one(db, "SELECT payload_kill_switch('ring', 'a', 'x')")
    lines = bundle(db, "x")
    shown = [next(f for f in line["fields"] if f["name"] == "row.request_body")
             for line in lines[1:5]]
    stored = [r[0] for r in rows(db, "SELECT hex(request_body) FROM event_payloads ORDER BY rowid")]
    assert [f["hex"] if "hex" in f else f["value"].encode().hex() for f in shown] \
        == [h.lower() for h in stored]
    assert told(lines)


def test_pins_that_wait_for_their_leaf_are_named(db, path):
    fire(db)
    plain = connect(path)  # another archive row of the same switch, by plain SQL
    plain.execute("INSERT INTO event_payloads(id, event_id, agent_id, purpose, kill_switch_event_id)"
                  " VALUES('later', 'e', 'a', 'evidence', 'k')")
    plain.close()
    lines = bundle(db)
    assert lines[0]["unproven"] == 1 and lines[-1] == {"kind": "unproven", "n": 5, "id": "later"}
    said = told(lines)
    assert "; 1 pins have no proof;" in said[0] and said[-1] == "NO PROOF: 'later', pinned by row 5"
    head(db)
    assert bundle(db)[0]["unproven"] == 0


def test_a_row_of_the_switch_that_is_left_out_is_not_in_the_sum(fired):
    lines = [line for line in bundle(fired) if line.get("n") not in (3, 4)]
    lines[0]["rows"] = 2
    assert "; 0 taken, 2 pinned;" in told(lines)[0]


def test_a_kill_switch_that_is_not_there_is_not_found(fired):
    for sql in ("SELECT proof_bundle('nope')", "SELECT * FROM proof_bundle('nope')"):
        with pytest.raises(Exception, match="NotFoundError: the log has no kill switch 'nope'"):
            one(fired, sql)


def test_a_bundle_that_is_longer_than_a_value_is_read_by_lines(fired):
    before = fired.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, len(one(fired, "SELECT proof_bundle('k')")) - 1)
    with pytest.raises(Exception, match="TooLargeError: the proofs are longer"):
        one(fired, "SELECT proof_bundle('k')")
    assert len(rows(fired, "SELECT line FROM proof_bundle('k')")) == 5
    fired.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 3000)
    with pytest.raises(Exception, match="TooLargeError: the proofs are longer"):
        one(fired, "SELECT proof_of('values', 1)")
    fired.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, before)


def test_a_row_that_was_altered_makes_no_bundle(fired):
    fired.execute("DROP TRIGGER payload_guard")
    fired.execute("UPDATE event_payloads SET request_body = 'x' WHERE event_id = 'a1'")
    with pytest.raises(Exception, match="CorruptedDataError: row 2 of the log"):
        bundle(fired)


def field(lines, n, name):
    return next(f for f in lines[n]["fields"] if f["name"] == name)


def drop(n):
    def change(lines):
        del lines[n]
        lines[0]["rows"] -= 1
    return change


def cut_unpin(lines):
    """Without the row that says who unpinned it, the row is only a hash."""
    drop(next(i for i in range(1, len(lines)) if lines[i]["n"] == 6))(lines)


def blank(n, name):
    def change(lines):
        f = field(lines, n, name)
        f["hash"] = verify.sha(bytes.fromhex(f["salt"]), b"\3", f.pop("value").encode()).hex()
        f["salt"] = None
    return change


def hide(lines):
    blank(2, "row.response_body")(lines)
    field(lines, 2, "row.response_body")["salt"] = "00" * 32


def other(lines):
    """A pin of another kill switch in place of one of this."""
    lines[2] = lines[0].pop("other")


FORGED = {
    "another body": (lambda x: field(x, 2, "row.request_body").update(value="forged"),
                     "the hash of row 2 is not that of its fields"),
    "another actor": (lambda x: field(x, 5, "actor").update(value="eve"),
                      "the hash of row 6 is not that of its fields"),
    "a body with a boundary": (lambda x: field(x, 2, "row.request_body").update(
        salt=field(x, 2, "row.request_body")["salt"] + "03"), "is not 32 bytes"),
    "a pin left out": (drop(2), "the switch took 3 rows, and 2 are here"),
    "a pin of another switch": (other, "row 7 is of another kill switch"),
    "a row left out that is counted": (lambda x: x.pop(2), "more or fewer rows than it says"),
    "an unpin left out": (cut_unpin, "row 1 is only a hash, and no row says why"),
    "the same row twice": (lambda x: x.append(x[2]), "row 2 is there twice"),
    "a body made blank": (blank(2, "row.response_body"), "has no salt, and no row erases it"),
    "a reason made blank": (blank(5, "reason"), "reason of row 6 has no salt"),
    "a body not shown": (hide, "a bundle shows what was not erased"),
    "another kill switch": (lambda x: x[0].update(kill_switch="other"),
                            "is of another kill switch"),
    "another version": (lambda x: x[0].update(version=2), "the version is not a number"),
    "rows of true": (lambda x: x[0].update(rows=True), "more or fewer rows than it says"),
    "two beginnings": (lambda x: x.insert(0, x[0]), "there are two bundles"),
    "an invented pin": (lambda x: x.append({"kind": "unproven", "n": 99, "id": "x"}),
                        "more or fewer rows than it says"),
    "proven and unproven": (lambda x: x.append({"kind": "unproven", "n": 2, "id": "x"}),
                            "row 2 is there twice"),
    "content beside it": (lambda x: x[0].update(note="all is well"), "and nothing else"),
    "a foreign head": (lambda x: [line.update(head=line["head"].replace("blackbox/", "x/"))
                                  for line in x], "log begins with the last note"),
}


@pytest.fixture(scope="module")
def made(installed, tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "test.db"
    shutil.copyfile(installed, path)
    db = connect(path)
    fire(db)
    write(db, 1)
    one(db, "SELECT payload_unpin(id, 'ann', 'why') FROM event_payloads WHERE event_id = 'a0'")
    fire(db, 1, "other", "b")
    lines = bundle(db)
    lines[0]["other"] = bundle(db, "other")[1]
    db.close()
    return lines


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_bundle_is_refused_for_its_own_reason(made, name):
    change, why = FORGED[name]
    lines = json.loads(json.dumps(made))
    change(lines)
    lines[0].pop("other", None)
    with pytest.raises(verify.Refused, match=why):
        told(lines, made[0]["head"])


def test_the_memory_of_a_bundle_is_that_of_one_row(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    for i in range(40):
        db.execute(PUSH, ("a", f"e{i}", None, f"{i}" * 2_000_000))
    one(db, "SELECT payload_kill_switch('ring', 'a', 'big')")
    db.close()
    child = ("import resource, sqlite3, sys\n"
             "db = sqlite3.connect(sys.argv[1]); db.enable_load_extension(True)\n"
             "db.load_extension(sys.argv[2]); db.execute('SELECT proof_head()').fetchall()\n"
             "use = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
             "rows = db.execute(\"SELECT line FROM proof_bundle('big')\")\n"
             "rows.fetchone(); rows.fetchone(); before = use()\n"
             "print(sum(len(r[0]) > 2000000 for r in rows), use() - before)\n")
    count, grown = map(int, subprocess.run([sys.executable, "-c", child, path, MODULE],
                                           capture_output=True, text=True).stdout.split())
    assert count == 39 and grown < 20_000  # kilobytes, of 120 MB of lines
