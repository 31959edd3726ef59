"""tools/verify.py finds every forgery of a dossier, without the database."""
import base64
import copy
import json
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, connect, one
from proof_helpers import dossier, evidence, head, path as path_of, root, sha, verify, write

VERIFIED, DIVERGED, INVALID = 0, 1, 2


@pytest.fixture(scope="module")
def made(installed, tmp_path_factory):
    """A dossier of everything, a head that was noted before, and the head of the dossier."""
    path = tmp_path_factory.mktemp("made") / "test.db"
    shutil.copyfile(installed, path)
    db = connect(path)
    evidence(db, 3)
    write(db, 2)
    noted = head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e1'")
    write(db, 3)
    now = head(db)
    found = dossier(db, noted)
    for field in found[0]["fields"]:
        if field["name"] == "row.request_body":
            field["value"] = "body 0"
    for field in found[3]["fields"]:
        field["value"] = one(db, f"SELECT {field['name']} FROM blackbox__log WHERE n = 4")
    db.close()
    return found, noted, now


def exit_of(proofs, noted=None, everything=True):
    """As main() does it, in this process."""
    try:
        verify.verify(proofs, noted and verify.read_head(noted), everything)
        return VERIFIED
    except verify.Diverged:
        return DIVERGED
    except Exception:  # main() catches the same
        return INVALID


def test_a_true_dossier_is_verified(made):
    proofs, noted, now = made
    assert [proof["fields"] is None for proof in proofs[:-1]] == [False, True] + 7 * [False]
    assert exit_of(proofs) == exit_of(proofs, noted) == exit_of(proofs, now) == VERIFIED
    for proof in proofs[:-1]:
        assert exit_of([proof], None, False) == VERIFIED
    assert exit_of(proofs[2:3] + proofs[-1:], noted, False) == VERIFIED


@pytest.mark.parametrize("change", [
    {"n": 9}, {"n": 0}, {"n": -1}, {"n": 1.5}, {"kind": "pin"}, {"hash": "00" * 32},
    {"hash": "zz"}, {"path": []}, {"path": "00"}, {"fields": []}, {"fields": 1}, {"head": ""},
    {"head": "x\n1\n"}, {"head": "o\n09\nAAAA\n"}])
def test_a_proof_that_says_something_else_is_invalid(made, change):
    for everything in (True, False):
        proofs = copy.deepcopy(made[0])
        proofs[2].update(change)
        assert exit_of(proofs, None, everything) == INVALID


@pytest.mark.parametrize("change", [
    {"name": "actos"}, {"type": 1}, {"type": 5}, {"hash": "00" * 32}, {"hash": "00"},
    {"salt": "00" * 32}, {"salt": None}, {"value": "another"}, {"value": None}, {"value": 3}, {"name": "x" * 300}])
def test_a_field_that_says_something_else_is_invalid(made, change):
    proofs = copy.deepcopy(made[0])
    actor = proofs[3]["fields"][0]
    assert actor["name"] == "actor" and actor["value"] == "me"
    actor.update(change)
    assert exit_of(proofs) == INVALID


def test_fields_that_are_left_out_added_renamed_or_exchanged_are_invalid(made):
    for change in (lambda f: f[1:], lambda f: f + f[:1], lambda f: f[::-1],
                   lambda f: [dict(f[0], name="agent_id"), dict(f[1], name="actor"), *f[2:]]):
        proofs = copy.deepcopy(made[0])
        proofs[3]["fields"] = change(proofs[3]["fields"])
        assert exit_of(proofs) == INVALID


def test_values_of_every_type_are_compared_with_their_hashes():
    for kind, value, told in [
            (1, -5, (-5).to_bytes(8, "big", signed=True)), (2, 1.5, bytes.fromhex("3ff8" + "0" * 12)),
            (3, "caf\u00e9", b"caf\xc3\xa9"), (4, "00ff", b"\x00\xff")]:
        assert verify.value_bytes(kind, value) == told


def test_a_path_that_is_longer_shorter_or_another_is_invalid(made):
    for steps in (lambda p: p[:-1], lambda p: p[1:], lambda p: p + p[:1], lambda p: p[::-1]):
        proofs = copy.deepcopy(made[0])
        proofs[2]["path"] = steps(proofs[2]["path"])
        assert exit_of(proofs) == INVALID


def test_a_swapped_pair_or_a_removed_row_is_invalid(made):
    proofs = copy.deepcopy(made[0])
    for name in ("n", "path"):
        proofs[3][name], proofs[4][name] = proofs[4][name], proofs[3][name]
    assert exit_of(proofs) == INVALID
    assert exit_of(made[0][:4] + made[0][5:]) == exit_of(made[0] + made[0][:1]) == INVALID


def rebuilt(proofs, size, origin):
    """The proofs of the first leaves with the tree made anew: all paths lead to its head."""
    proofs = [proof for proof in copy.deepcopy(proofs) if proof["kind"] != "head"][:size]
    hashes = [verify.leaf_hash(proof) for proof in proofs]
    now = f"{origin}\n{size}\n{base64.b64encode(root(hashes)).decode()}\n"
    for proof, leaf in zip(proofs, hashes):
        proof["path"] = [step.hex() for step in path_of(proof["n"] - 1, hashes)]
        proof["head"], proof["hash"] = now, leaf.hex()
    return proofs


def forged(proofs):
    """Another actor in row 4, with all that follows from it."""
    proofs = copy.deepcopy(proofs)
    actor = proofs[3]["fields"][0]
    actor["value"] = "another"
    actor["hash"] = sha(bytes.fromhex(actor["salt"]), b"\3another").hex()
    return proofs


def test_a_cut_tail_and_a_rewrite_of_the_same_length_have_diverged(made):
    proofs, noted, now = made
    origin = now.split("\n")[0]
    assert exit_of(rebuilt(proofs, 9, origin), now) == VERIFIED
    assert exit_of(rebuilt(proofs, 8, origin)) == VERIFIED  # without a noted head
    assert exit_of(rebuilt(proofs, 8, origin), now, False) == DIVERGED
    same = rebuilt(forged(proofs), 9, origin)
    assert exit_of(same) == VERIFIED
    assert exit_of(same, now) == exit_of(same, noted) == DIVERGED
    assert exit_of(rebuilt(proofs, 9, "blackbox/other"), now) == DIVERGED


def test_an_old_head_with_a_new_tree_is_found(made):
    proofs, noted, now = made
    for proof in (old := copy.deepcopy(proofs)):
        proof["head"] = noted
    assert exit_of(old, None, False) == INVALID
    mixed = copy.deepcopy(proofs)
    mixed[0]["head"] = noted
    assert exit_of(mixed) == INVALID
    # the noted head with a proof of it that belongs to another log
    same = rebuilt(forged(proofs), 9, now.split("\n")[0])
    same.append(dict(proofs[-1], head=same[0]["head"]))
    assert exit_of(same, noted) == DIVERGED
    wrong = copy.deepcopy(proofs)
    wrong[-1]["path"][0] = "00" * 32
    assert exit_of(wrong, noted) == DIVERGED
    assert exit_of(proofs[:-1], noted) == DIVERGED  # the proof of the head is left out
    wrong[-1]["path"] = []
    assert exit_of(wrong, noted) == INVALID


def run(*args):
    done = subprocess.run([sys.executable, ROOT / "tools" / "verify.py", *args],
                          capture_output=True, text=True)
    return done.returncode, done.stdout.split(":")[0]


def test_the_program_says_it_by_its_exit_code(made, tmp_path):
    proofs, noted, now = made
    file, old, new, bad, junk = (tmp_path / name for name in ("d", "old", "new", "bad", "junk"))
    file.write_text("".join(json.dumps(proof) + "\n" for proof in proofs))
    old.write_text(noted + "\n\u2014 me signature\n")
    new.write_text(now.replace("\n9\n", "\n10\n"))
    bad.write_text(file.read_text().replace('"n": 1', '"n": 2', 1))
    junk.write_text("[" * 100_000)
    assert run("--all", "--head", old, file) == (VERIFIED, "VERIFIED")
    assert run("--head", new, file) == (DIVERGED, "DIVERGED")
    assert run(bad) == (INVALID, "INVALID")
    assert run(junk) == (INVALID, "INVALID")
    assert run(tmp_path / "nothing")[0] == INVALID


def test_the_program_is_one_short_file():
    text = (ROOT / "tools" / "verify.py").read_text()
    assert text.count("\n") <= 170
    imported = {line.split()[1] for line in text.splitlines() if line.startswith("import ")}
    assert imported == {"argparse", "base64", "hashlib", "json", "struct", "sys"}
