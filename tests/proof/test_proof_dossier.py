"""tools/verify.py finds every forgery of a dossier, without the database."""
import base64
import copy
import json
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, connect, one
from proof_helpers import dossier, evidence, head, path as path_of, root, sha, verify, write

VERIFIED, REFUSED, UNREAD = 0, 1, 2


@pytest.fixture(scope="module")
def made(installed, tmp_path_factory):
    """A dossier of everything, a head that was noted before, and the head of the dossier."""
    path = tmp_path_factory.mktemp("made") / "test.db"
    shutil.copyfile(installed, path)
    db = connect(path)
    evidence(db, 3, body="body \x03")  # the byte of a type, to which a boundary can be shifted
    write(db, 2)
    noted = head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e1'")
    write(db, 3)
    now = head(db)
    found = dossier(db, noted)
    for field in found[0]["fields"]:
        if field["name"] == "row.request_body":
            field["value"] = "body \x03 0"
    for field in found[3]["fields"]:
        if field["type"] != 5:
            field["value"] = one(db, f"SELECT {field['name']} FROM blackbox__log WHERE n = 4")
    db.close()
    return found, noted, now


def told(lines, noted=None, everything=False):
    """What verify.py says of lines, which are objects or texts."""
    found = verify.Verifier()
    try:
        for line in lines:
            found.line(line if isinstance(line, str) else json.dumps(line))
        return "VERIFIED: " + found.end(verify.read_notes(noted) if noted else (), everything)
    except verify.Refused as why:
        return f"REFUSED: {why}"
    except (ValueError, RecursionError) as why:  # of JSON: main() catches the same
        return f"REFUSED: {why!r}"


def test_a_true_dossier_is_verified(made):
    proofs, noted, now = made
    assert [proof["fields"] is None for proof in proofs[:-1]] == [False, True] + 7 * [False]
    for heads in (None, noted, now):
        assert told(proofs, heads, True).startswith("VERIFIED: 9 of 9 leaves of blackbox/")
    for proof in proofs[:-1]:
        assert "VERIFIED: 1 of 9 leaves" in told([proof])
    assert "VERIFIED: 1 of 9 leaves" in told(proofs[2:3] + proofs[-1:], noted)
    assert "HASH ONLY: row 2, see row None" in told(proofs)  # the row that ends it is not shown


def field_of(proofs, name="actor", n=4):
    return next(field for field in proofs[n - 1]["fields"] if field["name"] == name)


def put(n=3, **members):
    return lambda proofs: proofs[n - 1].update(members)


def field(which="actor", n=4, **members):
    return lambda proofs: field_of(proofs, which, n).update(members)


def drop(name, n=4, field_name=None):
    def change(proofs):
        del (field_of(proofs, field_name, n) if field_name else proofs[n - 1])[name]
    return change


def fields(change, n=4):
    def apply(proofs):
        proofs[n - 1]["fields"] = change(proofs[n - 1]["fields"])
    return apply


def path(change, n=3):
    def apply(proofs):
        proofs[n - 1]["path"] = change(proofs[n - 1]["path"])
    return apply


def shifted(proofs):
    """The boundary between salt, type and value is moved to the next byte 3 of the value."""
    body = field_of(proofs, "row.request_body", 1)
    before, after = body["value"].split("\x03", 1)
    body["salt"] += "03" + before.encode().hex()
    body["value"] = after


def swapped(proofs):
    for name in ("n", "path"):
        proofs[3][name], proofs[4][name] = proofs[4][name], proofs[3][name]


def text(change):
    """A forgery of the text of the fourth line."""
    return lambda proofs: [*proofs[:3], change(json.dumps(proofs[3])), *proofs[4:]]


OTHER = "blackbox/other\n9\n" + base64.b64encode(bytes(32)).decode() + "\n"
FORGED = {
    # rows and their fields
    "another value": (field(value="another"), "the value of 'actor' of row 4 is another"),
    "another hash": (field(hash="00" * 32), "the value of 'actor' of row 4 is another"),
    "another salt": (field(salt="00" * 32), "the value of 'actor' of row 4 is another"),
    "no salt and a value": (field(salt=None), "was erased, and has a value"),
    "an empty salt": (field(salt=""), "the salt of 'actor' of row 4 is not 32 bytes"),
    "a shorter salt": (field(salt="00" * 31), "the salt of 'actor' of row 4 is not 32 bytes"),
    "a shifted boundary": (shifted, "the salt of 'row.request_body' of row 1 is not 32 bytes"),
    "a salt left out": (drop("salt", 4, "actor"), "has no salt, and does not say"),
    "a hash alone left out": (drop("hash", 5, "kind"), "has neither a value nor a hash"),
    "a shorter hash": (field("kind", 5, hash="00" * 31), "the hash of 'kind' of row 5 is not 32"),
    "a hash of capitals": (field("kind", 5, hash="AA" * 32), "is not 32 bytes in hex"),
    "a longer hash": (field("kind", 5, hash="00" * 33), "the hash of 'kind' of row 5 is not 32"),
    "another name": (field(name="actoq"), "other fields than a row of the log"),
    "a name that is none": (field("kind", 5, name="Kind\n"), "is no field"),
    "two names exchanged": (fields(lambda f: f[:1] + f[2:3] + f[1:2] + f[3:]), "not in order"),
    "a field twice": (fields(lambda f: f[:1] + f), "not in order, each once"),
    "a field left out": (fields(lambda f: f[1:]), "other fields than a row of the log"),
    "a field added": (fields(lambda f: f + [{"name": "zero", "type": 5}]),
                      "other fields than a row of the log"),
    "a field of a row that is no pin": (fields(lambda f: f[:12] + [{"name": "row.id", "type": 5}]
                                               + f[12:]), "other fields than a row of the log"),
    "no fields": (fields(lambda f: []), "other fields than a row of the log"),
    "a field that is none": (fields(lambda f: ["actor"] + f[1:]), "this is no field"),
    "content beside a field": (field(content="forged"), "this is no field"),
    "NULL with a value": (field("bytes", value=3), "is NULL, and has more than a name"),
    "a value made NULL": (fields(lambda f: [{"name": "actor", "type": 5}] + f[1:]),
                          "the hash of row 4 is not that of its fields"),
    "another type": (field(type=4), "is not a number of bytes in hex"),
    "a type that is none": (field(type=6), "the type of a field is not a number"),
    "a type of true": (field("rows", type=True), "the type of a field is not a number"),
    "a text for a number": (field("rows", value="2"), "'rows' of row 4 is not a number"),
    "1.0 for 1": (field("rows", value=1.0), "'rows' of row 4 is not a number"),
    "true for 1": (field("rows", value=True), "'rows' of row 4 is not a number"),
    "a number beyond 64 bits": (field("rows", value=1 << 64), "'rows' of row 4 is not a number"),
    "a number for a text": (field(value=3), "is not a number of bytes in hex"),
    "half a character": (field(value="\ud800"), "surrogates not allowed"),
    "a value twice": (field(hex="6d65"), "is there twice"),
    # leaves and paths
    "content beside the fields": (put(content="forged"), "and nothing else"),
    "content in place of the fields": (put(fields=None), "the fields of row 3 are no list"),
    "a kept that is greater": (put(kept=4), "kept is not a number of its range"),
    "a kept that is less": (put(kept=2), "the hash of row 3 is not that of its fields"),
    "a leaf beyond the size": (lambda p: p[2].update(n=10), "there is no leaf 9 in a log of 9"),
    "leaf 0": (lambda p: p[2].update(n=0), "the number of a row is not a number of its range"),
    "a negative leaf": (lambda p: p[2].update(n=-1), "the number of a row is not a number"),
    "leaf 1.5": (lambda p: p[2].update(n=1.5), "the number of a row is not a number"),
    "a leaf twice": (lambda p: p.append(p[3]), "row 4 is there twice"),
    "a swapped pair": (swapped, "the path of row 5 does not lead to the head"),
    "another hash of the leaf": (put(hash="00" * 32), "the path of row 3 does not lead"),
    "a hash that is none": (put(hash=3), "the hash of a leaf is not 32 bytes in hex"),
    "no path": (path(lambda p: []), "a path is too short"),
    "a shorter path": (path(lambda p: p[:-1]), "a path is too short"),
    "a longer path": (path(lambda p: p + p[:1]), "a path is too long"),
    "an odd path": (path(lambda p: p[::-1]), "the path of row 3 does not lead to the head"),
    "a path of 65 hashes": (path(lambda p: p * 20), "a path is a list of at most 64 hashes"),
    "a path that is a text": (path("".join), "a path is a list of at most 64 hashes"),
    "a step of 31 bytes": (path(lambda p: [p[0][2:]] + p[1:]), "a hash of a path is not 32 bytes"),
    "leaves left out": (lambda p: p.pop(3), "not every leaf is here"),
    # heads
    "another origin": (lambda p: [x.update(head=OTHER) for x in p], "does not lead to the head"),
    "two heads": (put(head=OTHER), "two lines have two heads"),
    "a head of another origin": (lambda p: p[-1].update(noted=OTHER), "does not begin with"),
    "no head": (lambda p: [x.update(head="") for x in p], "a head must have origin, size and root"),
    "a head of 09": (lambda p: [x.update(head=x["head"].replace("\n9\n", "\n09\n")) for x in p],
                     "a head must have origin, size and root"),
    "more after the head": (lambda p: [x.update(head=x["head"] + "x\n") for x in p],
                            "and nothing after them"),
    "a root that is no base64": (lambda p: [x.update(head="o\n9\n####\n") for x in p],
                                 "the root of a head is not in base64"),
    "a root of three bytes": (lambda p: [x.update(head="o\n9\nAAAA\n") for x in p],
                              "another length than 32 bytes"),
    "the path of a head": (lambda p: p[-1].update(path=["00" * 32] + p[-1]["path"][1:]),
                           "the log of 9 leaves does not begin with that of 5"),
    # lines
    "another kind": (put(kind="pin"), "there is no kind 'pin'"),
    "no kind": (drop("kind"), "there is no kind None"),
    "a list of a kind": (put(kind=["row"]), r"there is no kind \['row'\]"),
    "no object": (lambda p: p.insert(0, 3), "there is no kind None"),
    "no proof": (lambda p: p.clear(), "there is no proof in it"),
    "a name twice": (text(lambda s: '{"kept": 1, ' + s[1:]), "there twice in one object"),
    "NaN": (text(lambda s: s.replace('"kept": 4', '"kept": NaN')), "NaN is not a number"),
    "trailing data": (text(lambda s: s + "{}"), "Extra data"),
    "a cut line": (text(lambda s: s[:-9]), "Expecting|Unterminated"),
    "an empty line": (lambda p: p.insert(1, ""), "Expecting value"),
    "an abyss": (lambda p: p.insert(1, "[" * 100_000), "recursion"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_is_refused_for_its_own_reason(made, name):
    change, why = FORGED[name]
    proofs = copy.deepcopy(made[0])
    changed = change(proofs)
    lines = changed if isinstance(changed, list) and len(changed) == len(proofs) \
        and any(isinstance(line, str) for line in changed) else proofs
    said = told(lines, None, True)
    assert said.startswith("REFUSED: ") and re.search(why, said), said


def rebuilt(proofs, size, origin):
    """The proofs of the first leaves with the tree made anew: all paths lead to its head."""
    proofs = [proof for proof in copy.deepcopy(proofs) if proof["kind"] != "head"][:size]
    hashes = [bytes.fromhex(proof["hash"]) for proof in proofs]
    now = f"{origin}\n{size}\n{base64.b64encode(root(hashes)).decode()}\n"
    for proof, leaf in zip(proofs, hashes):
        proof["path"] = [step.hex() for step in path_of(proof["n"] - 1, hashes)]
        proof["head"] = now
    return proofs


def forged(proofs):
    """Another actor in row 4, with all that follows from it."""
    proofs = copy.deepcopy(proofs)
    actor = field_of(proofs)
    actor["value"] = "another"
    actor["hash"] = sha(bytes.fromhex(actor["salt"]), b"\3another").hex()
    told = b"".join(bytes([len(f["name"])]) + f["name"].encode() + bytes([f["type"]])
                    + bytes.fromhex(f.get("hash", "")) for f in proofs[3]["fields"])
    proofs[3]["hash"] = sha(b"\0blackbox log 1\n", (4).to_bytes(8, "big"),
                            proofs[3]["kept"].to_bytes(8, "big"), sha(told)).hex()
    return proofs


NOT_SHOWN = "REFUSED: nothing shows that the log begins with the last note"


def test_a_cut_tail_and_a_rewrite_of_the_same_length_are_refused_with_a_noted_head(made):
    proofs, noted, now = made
    origin = now.split("\n")[0]
    assert "VERIFIED: 9 of 9" in told(rebuilt(proofs, 9, origin), now)
    assert "VERIFIED: 8 of 8" in told(rebuilt(proofs, 8, origin))  # without a noted head
    assert told(rebuilt(proofs, 8, origin), now) == NOT_SHOWN
    same = rebuilt(forged(proofs), 9, origin)
    assert "VERIFIED: 9 of 9" in told(same)
    assert told(same, now) == told(same, noted) == NOT_SHOWN
    assert told(rebuilt(proofs, 9, "blackbox/other"), now) == NOT_SHOWN


def test_an_old_head_with_a_new_tree_is_refused(made):
    proofs, noted, now = made
    for proof in (old := copy.deepcopy(proofs)):
        proof["head"] = noted
    assert told(old).startswith("REFUSED: a path is too")
    # the noted head with a proof of it that belongs to another log
    same = rebuilt(forged(proofs), 9, now.split("\n")[0])
    same.append(dict(proofs[-1], head=same[0]["head"]))
    assert "does not begin with that of 5" in told(same, noted)
    assert told(proofs[:-1], noted) == NOT_SHOWN  # the proof of the head is left out
    wrong = copy.deepcopy(proofs)
    wrong[-1]["path"] = []
    assert told(wrong, noted) == "REFUSED: a path is too short"


def run(*args):
    done = subprocess.run([sys.executable, ROOT / "tools" / "verify.py", *args],
                          capture_output=True, text=True)
    return done.returncode, done.stdout.split(":")[0]


def test_the_program_says_it_by_its_exit_code(made, tmp_path):
    proofs, noted, now = made
    file, old, new, bad, junk = (tmp_path / name for name in ("d", "old", "new", "bad", "junk"))
    file.write_text("".join(json.dumps(proof) + "\n" for proof in proofs))
    old.write_text(noted + "\n\u2014 me c2lnbmF0dXJl\n")
    new.write_text(now.replace("\n9\n", "\n10\n"))
    bad.write_text(file.read_text().replace('"n": 1', '"n": 2', 1))
    junk.write_text("[" * 100_000)
    assert run("--all", "--head", old, file) == (VERIFIED, "VERIFIED")
    assert run("--head", old) == (VERIFIED, "VERIFIED")
    assert run("--head", new, file) == (REFUSED, "REFUSED")
    assert run(bad) == (REFUSED, "REFUSED")
    assert run(junk) == (REFUSED, "REFUSED")
    assert run(tmp_path / "nothing") == (UNREAD, "UNREAD")
    junk.write_bytes(b"\xff\xfe")
    assert run(junk) == (UNREAD, "UNREAD")
    assert run("--what")[0] == UNREAD


def test_the_program_is_one_short_file():
    text = (ROOT / "tools" / "verify.py").read_text()
    assert text.count("\n") <= 300 and max(map(len, text.split("\n"))) <= 100
    imported = {line.split()[1] for line in text.splitlines() if line.startswith("import ")}
    assert imported == {"argparse", "base64", "hashlib", "json", "re", "sys"}
