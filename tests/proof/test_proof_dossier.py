"""tools/verify.py finds every forgery of a dossier, without the database."""
import copy
import json
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, connect, one
from proof_helpers import dossier, enable, evidence, head, root, sha, verdicts, verify

VERIFIED, DIVERGED, INVALID = 0, 1, 2


@pytest.fixture(scope="module")
def made(installed, tmp_path_factory):
    """A dossier of everything, a head that was noted before, and the head of the dossier."""
    path = tmp_path_factory.mktemp("made") / "test.db"
    shutil.copyfile(installed, path)
    db = enable(connect(path))
    evidence(db, 3)
    noted = head(db)
    verdicts(db, 2)
    head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e1'")
    found = dossier(db, noted), noted, head(db)
    db.close()
    return found


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
    assert [proof["kind"] for proof in proofs[:-1]] \
        == ["pin", "evidence"] * 3 + ["verdict"] * 2 + ["unpin"]
    assert exit_of(proofs) == exit_of(proofs, noted) == exit_of(proofs, now) == VERIFIED
    for proof in proofs[:-1]:
        assert exit_of([proof], None, False) == VERIFIED
    assert exit_of(proofs[2:3] + proofs[-1:], noted, False) == VERIFIED


@pytest.mark.parametrize("name", ["commitment", "salt", "content"])
def test_a_changed_byte_is_invalid(made, name):
    for at in (0, 1, 31, 63):
        proofs = copy.deepcopy(made[0])
        digit = proofs[2][name][at]
        proofs[2][name] = (proofs[2][name][:at] + "0123456789abcdef"[int(digit, 16) ^ 1]
                           + proofs[2][name][at + 1:])
        assert exit_of(proofs) == INVALID


@pytest.mark.parametrize("change", [
    {"number": 9}, {"time": 1}, {"kind": "hold"}, {"leaf": 3}, {"leaf": -1}, {"leaf": 9},
    {"path": []}, {"kind": "nothing"}, {"number": -1}, {"commitment": "00"}, {"salt": "zz"},
    {"number": 1.5}, {"path": "00"}, {"content": None}, {"head": ""}, {"head": "x\n1\n"},
    {"head": "o\n09\nAAAA\n"}])
def test_a_proof_that_says_something_else_is_invalid(made, change):
    for everything in (True, False):
        proofs = copy.deepcopy(made[0])
        proofs[2].update(change)
        assert exit_of(proofs, None, everything) == INVALID


def test_a_path_that_is_longer_shorter_or_another_is_invalid(made):
    for steps in (lambda p: p[:-1], lambda p: p[1:], lambda p: p + p[:1], lambda p: p[::-1]):
        proofs = copy.deepcopy(made[0])
        proofs[2]["path"] = steps(proofs[2]["path"])
        assert exit_of(proofs) == INVALID


def test_a_swapped_pair_is_invalid(made):
    proofs = copy.deepcopy(made[0])
    for name in ("leaf", "path"):
        proofs[2][name], proofs[4][name] = proofs[4][name], proofs[2][name]
    assert exit_of(proofs) == INVALID
    proofs = copy.deepcopy(made[0])
    for name in ("salt", "content"):
        proofs[2][name], proofs[4][name] = proofs[4][name], proofs[2][name]
    assert exit_of(proofs) == INVALID


def test_a_replaced_salt_is_invalid(made):
    proofs = copy.deepcopy(made[0])
    proofs[1]["salt"] = "00" * 32
    assert exit_of(proofs) == INVALID


def test_a_removed_row_is_invalid(made):
    assert exit_of(made[0][:4] + made[0][5:]) == INVALID
    assert exit_of(made[0] + made[0][:1]) == INVALID
    proofs = copy.deepcopy(made[0])
    proofs[5]["salt"] = proofs[5]["content"] = None  # evidence that was not unpinned
    assert exit_of(proofs) == INVALID
    proofs = copy.deepcopy(made[0])
    proofs[4]["salt"] = proofs[4]["content"] = None  # a pin always has its content
    assert exit_of(proofs) == INVALID


def test_a_row_that_was_put_in_is_invalid(made):
    """Somebody who knows how leaves are made adds one, but not to the tree."""
    proofs = copy.deepcopy(made[0])
    salt, content = bytes(32), sha(b"forged")
    proofs.insert(9, dict(proofs[0], number=9, leaf=9, salt=salt.hex(), content=content.hex(),
                          commitment=sha(salt, content).hex()))
    assert exit_of(proofs) == exit_of(proofs[9:10], None, False) == INVALID


def rebuilt(proofs, size, origin):
    """The proofs of the first leaves with the tree made anew: all paths lead to its head."""
    import base64
    from proof_helpers import path
    proofs = [proof for proof in copy.deepcopy(proofs) if proof["kind"] != "head"][:size]
    hashes = []
    for proof in proofs:
        hashes.append(sha(b"\0", bytes([verify.KINDS.index(proof["kind"])]),
                          proof["number"].to_bytes(8, "big"), proof["time"].to_bytes(8, "big"),
                          bytes.fromhex(proof["commitment"])))
    now = f"{origin}\n{size}\n{base64.b64encode(root(hashes)).decode()}\n"
    for proof in proofs:
        proof["path"] = [step.hex() for step in path(proof["leaf"], hashes)]
        proof["head"] = now
    return proofs


def forged(proofs):
    """Another content for pin 2, with all that follows from it."""
    proofs = copy.deepcopy(proofs)
    proofs[2]["content"] = sha(b"forged").hex()
    proofs[2]["commitment"] = sha(bytes.fromhex(proofs[2]["salt"]), sha(b"forged")).hex()
    return proofs


def test_a_cut_tail_and_a_rewrite_of_the_same_length_have_diverged(made):
    proofs, noted, now = made
    origin = now.split("\n")[0]
    cut = rebuilt(proofs, 8, origin)
    cut[3].update(salt=proofs[5]["salt"])  # its unpin was cut off
    assert exit_of(rebuilt(proofs, 9, origin), now) == VERIFIED
    assert exit_of(rebuilt(proofs, 8, origin), None, False) == VERIFIED  # without a noted head
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
    bad.write_text(file.read_text().replace('"time": 1', '"time": 2', 1))
    junk.write_text("[" * 100_000)
    assert run("--all", "--head", old, file) == (VERIFIED, "VERIFIED")
    assert run("--head", new, file) == (DIVERGED, "DIVERGED")
    assert run(bad) == (INVALID, "INVALID")
    assert run(junk) == (INVALID, "INVALID")
    assert run(tmp_path / "nothing")[0] == INVALID


def test_the_program_is_one_short_file():
    text = (ROOT / "tools" / "verify.py").read_text()
    assert text.count("\n") <= 150
    imported = {line.split()[1] for line in text.splitlines() if line.startswith("import ")}
    assert imported == {"argparse", "base64", "hashlib", "json", "sys"}
