"""tools/sign.py signs heads, and verify.py and others verify what it signed."""
import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT, connect, one, rows
from proof_helpers import evidence, head, proof_of, sha, unguarded, verify, write

spec = importlib.util.spec_from_file_location("sign", ROOT / "tools" / "sign.py")
sign = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sign)

SIGNED, REFUSED, UNREAD = 0, 1, 2

# RFC 8032, 7.1: secret key, public key, message, signature
VECTORS = [
    ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
     "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a", "",
     "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b4"
     "6bd25bf5f0595bbe24655141438e7a100b"),
    ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
     "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c", "72",
     "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d"
     "8c387b2eaeb4302aeeb00d291612bb0c00"),
    ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
     "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025", "af82",
     "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6"
     "594a7c15e9716ed28dc027beceea1ec40a"),
    ("833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
     "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
     "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebb"
     "d454d4423643ce80e2a9ac94fa54ca49f",
     "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e030"
     "3dca179c138ac17ad9bef1177331a704"),
]


@pytest.mark.parametrize("secret, public, text, signature",
                         [list(map(bytes.fromhex, vector)) for vector in VECTORS])
def test_the_examples_of_rfc_8032(secret, public, text, signature):
    assert sign.secret_of(secret)[2] == public and sign.sign(secret, text) == signature
    assert verify.is_signed(public, text, signature)
    assert not verify.is_signed(public, text + b"x", signature)
    for i in (0, 31, 32, 62):
        assert not verify.is_signed(public, text, signature[:i] + bytes([signature[i] ^ 1])
                                    + signature[i + 1:])
    assert not verify.is_signed(public, text, signature[:63]) \
        and not verify.is_signed(public, text, signature + b"\0")
    s = int.from_bytes(signature[32:], "little") + verify.L  # the same point, another text
    assert not verify.is_signed(public, text, signature[:32] + s.to_bytes(32, "little"))


@pytest.mark.parametrize("public", [bytes([2]) + bytes(31), b"\xff" * 32, b"\1" + bytes(30) + b"\x80"])
def test_a_key_that_is_no_point_is_refused(public):
    with pytest.raises(verify.Refused, match="the key is no point"):
        verify.is_signed(public, b"", bytes(64))


def test_other_programs_agree_on_signatures(tmp_path):
    seed = sha(b"seed")
    public = sign.secret_of(seed)[2]
    der = bytes.fromhex("302a300506032b6570032100") + public
    (tmp_path / "key.der").write_bytes(der)
    for text in (b"x", b"a head\n" * 40):
        (tmp_path / "text").write_bytes(text)
        (tmp_path / "sig").write_bytes(sign.sign(seed, text))
        if shutil.which("openssl"):
            subprocess.run(["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-keyform", "DER",
                            "-inkey", "key.der", "-in", "text", "-sigfile", "sig"],
                           cwd=tmp_path, check=True, capture_output=True)
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    other = ed25519.Ed25519PrivateKey.from_private_bytes(seed)
    for text in (b"", b"x" * 1000):
        assert other.sign(text) == sign.sign(seed, text)
        other.public_key().verify(sign.sign(seed, text), text)


def run(program, *args, cwd):
    done = subprocess.run([sys.executable, ROOT / "tools" / program, *args], cwd=cwd,
                          capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def signer(path, tmp_path):
    """A log with five rows, and the functions that write rows and sign it."""
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    write(db, 5)

    class Signer:
        folder = tmp_path
        code, key = run("sign.py", "key", "blackbox/tests", "key", cwd=tmp_path)
        notes = tmp_path / "notes"

        def sign(self, *args, notes="notes", database=path):
            return run("sign.py", "sign", *args, database, "key", notes, cwd=tmp_path)

        def write(self, n=3):
            write(db, n)

        def verify(self, *args):
            return run("verify.py", *args, cwd=tmp_path)

    Signer.db = db
    assert Signer.code == 0 and oct((tmp_path / "key").stat().st_mode)[-3:] == "600"
    yield Signer()
    db.close()


def test_heads_are_signed_one_after_the_other(signer):
    assert signer.sign() == (SIGNED, "5 leaves signed\n")
    assert signer.sign() == (SIGNED, "5 leaves, as before\n")
    signer.write()
    assert signer.sign() == (SIGNED, "8 leaves signed\n")
    heads = verify.read_notes(signer.notes.read_text(), verify.read_key(signer.key))
    assert [h[1] for h in heads] == [5, 8] and heads[-1] == verify.read_head(head(signer.db))
    assert signer.verify("--head", "notes", "--key", signer.key) == (0, "VERIFIED: 2 notes\n")
    for noted in re.findall("(?:[^\n]+\n){3}\n\u2014 .*\n", signer.notes.read_text()):
        assert rows(signer.db, "SELECT * FROM proof_verify(?)", noted) == []


def test_a_bundle_is_verified_with_the_notes(signer):
    evidence(signer.db, 2)
    signer.db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=5)")
    signer.db.execute("INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')")
    one(signer.db, "SELECT payload_kill_switch('ring', 'a', 'k')")
    signer.sign()
    (signer.folder / "bundle").write_text(one(signer.db, "SELECT proof_bundle('k')"))
    signer.write()
    signer.sign()  # the bundle is of the head before the last
    args = ("--head", "notes", "--key", signer.key, "bundle")
    assert signer.verify(*args)[0] == 0
    signer.write()
    head(signer.db)
    lines = one(signer.db, "SELECT proof_bundle('k')")
    (signer.folder / "bundle").write_text(lines)
    assert "begins with the last note" in signer.verify(*args)[1]
    last = signer.notes.read_text().split("\n\n")[-2]
    lines += json.dumps(proof_of(signer.db, "head", last + "\n")) + "\n"
    (signer.folder / "bundle").write_text(lines)
    assert signer.verify(*args)[0] == 0


def rewrite(signer, path):
    unguarded(path, "UPDATE blackbox__log SET actor = 'other' WHERE n = 2")
    db = connect(path)
    for sql in ("SAVEPOINT s", "DELETE FROM blackbox__leaves",
                "UPDATE blackbox__tree SET size = 0, frontier = x''"):
        db.execute(sql)
    head(db)
    db.execute("RELEASE s")
    db.close()


@pytest.mark.parametrize("lost", ["nothing", "notes", "key.head"])
def test_a_log_that_was_rewritten_is_not_signed(signer, path, lost):
    signer.sign()
    rewrite(signer, path)
    signer.write()
    if lost != "nothing":
        (signer.folder / lost).unlink()
    before = signer.notes.read_bytes() if lost != "notes" else None
    code, said = signer.sign()
    assert code == REFUSED and "the log was rewritten" in said
    assert before is None and not signer.notes.exists() or signer.notes.read_bytes() == before


def test_another_log_and_a_log_that_was_cut_are_not_signed(signer, path, tmp_path):
    shutil.copyfile(path, tmp_path / "old.db")
    signer.write()
    signer.sign()
    assert "its end was cut off" in signer.sign(database="old.db")[1]
    db = connect(tmp_path / "new.db")
    one(db, "SELECT blackbox_install()")
    db.close()
    code, said = signer.sign(database="new.db")
    assert code == REFUSED and "this is the log blackbox/" in said


def test_a_file_that_cannot_be_read_is_appended_to(signer):
    """The head before is that of KEY.head: here the notes go into a pipe."""
    code, said = signer.sign(notes="/dev/stdout")
    assert code == SIGNED and len(verify.read_notes(said.split("5 leaves")[0])) == 1
    assert signer.sign(notes="/dev/stdout") == (SIGNED, "5 leaves, as before\n")
    assert (signer.folder / "key.head").exists()


def test_notes_that_were_cut_or_altered_are_noticed(signer):
    signer.sign()
    first = signer.notes.read_text()
    signer.write()
    signer.sign()
    whole = signer.notes.read_text()
    signer.notes.write_text(first)  # the last one is appended again
    assert signer.sign() == (SIGNED, "8 leaves signed\n") and signer.notes.read_text() == whole
    signer.notes.write_text(whole.replace("\n5\n", "\n4\n"))
    assert signer.sign() == (REFUSED, "REFUSED: the signature of a note is wrong\n")


def test_a_commit_holds_the_notes(signer, tmp_path):
    tree = tmp_path / "tree"
    git = ["git", "-C", tree, "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", "init", "-q", tree], check=True)
    for name, value in (("user.name", "t"), ("user.email", "t@t")):
        subprocess.run([*git, "config", name, value], check=True)
    for n in (5, 8):
        assert signer.sign("--commit", notes="tree/notes") == (SIGNED, f"{n} leaves signed\n")
        signer.write()
    said = subprocess.run([*git, "log", "--format=%s"], capture_output=True, text=True).stdout
    assert [line.split()[-1] for line in said.splitlines()] == ["8", "5"]


@pytest.mark.parametrize("what, why", [
    (("sign", "nothing.db", "key", "notes"), "unable to open"),
    (("sign", "test.db", "nothing", "notes"), "No such file"),
    (("sign", "test.db", "key", "no/folder/notes"), "No such file"),
    (("key", "blackbox/tests", "key"), "File exists")])
def test_what_cannot_be_read_is_said(signer, path, what, why):
    what = [str(path) if name == "test.db" else name for name in what]
    code, said = run("sign.py", *what, cwd=signer.folder)
    assert code == UNREAD and why in said


def test_a_key_that_is_none_is_refused(signer):
    (signer.folder / "key").write_text("PRIVATE+KEY+x+00000000+AAAA\n")
    assert signer.sign()[0] == REFUSED
    assert run("sign.py", "key", "two words", "other", cwd=signer.folder)[0] == REFUSED


# Notes: what is forged, and why it is refused.
def resigned(text, seed=sha(b"seed"), name="blackbox/tests"):
    public = b"\1" + sign.secret_of(seed)[2]
    data = sha(name.encode(), b"\n", public)[:4] + sign.sign(seed, text.encode())
    return f"{text}\n\u2014 {name} {base64.b64encode(data).decode()}\n"


KEY = sign.key_text("blackbox/tests", sha(b"seed"))[1]
TEXT = "blackbox/log\n5\n" + base64.b64encode(sha(b"5")).decode() + "\n"
LATER = TEXT.replace("\n5\n", "\n8\n")
NOTE = resigned(TEXT)
HINT = sha(b"blackbox/tests\n\1", sign.secret_of(sha(b"seed"))[2])[:4]
FORGED = {
    "another size": (NOTE.replace("\n5\n", "\n6\n"), "the signature of a note is wrong"),
    "another root": (NOTE.replace(*(base64.b64encode(sha(n)).decode() for n in (b"5", b"6"))),
                     "the signature of a note is wrong"),
    "no signature": (TEXT, "a note has no signature of this key"),
    "a signature of another key": (resigned(TEXT, sha(b"other")), "no signature of this key"),
    "a signature of another name": (resigned(TEXT, name="other"), "no signature of this key"),
    "another key with this hash": (TEXT + "\n\u2014 blackbox/tests " + base64.b64encode(
        HINT + sign.sign(sha(b"other"), TEXT.encode())).decode() + "\n", "signature of a note is"),
    "a right one and a wrong one": (NOTE + "\u2014 blackbox/tests " + base64.b64encode(
        HINT + bytes(64)).decode() + "\n", "the signature of a note is wrong"),
    "a shorter signature": (TEXT + "\n\u2014 blackbox/tests " + base64.b64encode(
        HINT + bytes(63)).decode() + "\n", "the signature of a note is wrong"),
    "no base64": (NOTE[:-3] + "*\n", "a signature is not in base64"),
    "a line after the head": (resigned(TEXT + "more\n"), "there is no note where"),
    "text after the note": (NOTE + "x", "there is no note where|no signature of this key"),
    "a note without its end": (NOTE[:-1], "there is no note where|no signature of this key"),
    "nothing": ("", "there is no note where"),
    "an older note after it": (resigned(LATER) + "\n" + NOTE, "a note is older than"),
    "a note of another log": (NOTE + "\n" + resigned(LATER.replace("log", "gol")), "is older than"),
    "two roots of one size": (NOTE + "\n" + resigned("blackbox/log\n5\n" + base64.b64encode(
        sha(b"6")).decode() + "\n"), "two notes of one size have two roots"),
}


def test_a_true_note_is_read():
    for text in (NOTE, NOTE + "\n" + resigned(LATER), NOTE + "\u2014 other AAAA\n"):
        assert verify.read_notes(text, verify.read_key(KEY))[0] == verify.read_head(TEXT)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_note_is_refused_for_its_own_reason(name):
    text, why = FORGED[name]
    with pytest.raises(verify.Refused, match=why):
        verify.read_notes(text, verify.read_key(KEY))


@pytest.mark.parametrize("key", [
    "", "x", KEY.replace("+", " "), KEY.replace("tests", "test"), KEY[:-4], KEY.split("+")[0]
    + "+00000000+" + KEY.split("+")[2]])
def test_a_key_that_is_not_one_is_refused(key):
    with pytest.raises(verify.Refused, match="key"):
        verify.read_key(key)


def test_the_cron_line_of_the_manual_signs(signer, path, tmp_path):
    line = next(line for line in (ROOT / "docs" / "proof.md").read_text().splitlines()
                if line.startswith("*/10 * * * * "))
    command = line.split(" ", 5)[5]
    for before, after in (("/srv/blackbox/tools", ROOT / "tools"), ("/srv/agents.db", path),
                          ("/etc/blackbox.key", tmp_path / "key"),
                          ("/mnt/heads/notes", tmp_path / "notes")):
        assert before in command
        command = command.replace(before, str(after))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for n in (5, 8):
        subprocess.run(["/bin/sh", "-c", command], env=env, cwd="/", check=True, capture_output=True)
        assert verify.read_notes((tmp_path / "notes").read_text())[-1][1] == n
        signer.write()


# Others: the verifier of sigstore, which npm brings along, reads notes and paths.
FOREIGN = """
const [root, file] = process.argv.slice(2);
const { verifyCheckpoint } = require(root + "/@sigstore/verify/dist/tlog/checkpoint.js");
const { verifyMerkleInclusion } = require(root + "/@sigstore/verify/dist/tlog/merkle.js");
const { createPublicKey } = require("crypto");
const given = JSON.parse(require("fs").readFileSync(file));
const key = { logID: Buffer.from(given.hint, "hex"), baseURL: given.name,
  publicKey: createPublicKey({ key: Buffer.from(given.der, "hex"), format: "der", type: "spki" }) };
for (const one of given.entries) {
  const entry = { canonicalizedBody: Buffer.from(one.data, "hex"), inclusionProof: {
    checkpoint: { envelope: given.note }, logIndex: String(one.index),
    hashes: one.path.map((step) => Buffer.from(step, "hex")) } };
  let said = "accepted";
  try { verifyMerkleInclusion(entry, verifyCheckpoint(entry, [key])); }
  catch (error) { said = error.message; }
  console.log(said);
}
"""


def tiles(folder, size):
    """Reads leaves and paths from files in the layout of tlog-tiles, as its page says."""
    def read(kind, n, width):
        name = f"{n % 1000:03d}"
        while n >= 1000:
            n //= 1000
            name = f"x{n % 1000:03d}/{name}"
        part = "" if width == 256 else f".p/{width}"
        return (folder / "tile" / kind / f"{name}{part}").read_bytes()

    def node(level, i):
        """The hash of a whole subtree of height level."""
        tile = level // 8
        width = min(256, (size >> 8 * tile) - (i << level % 8) // 256 * 256)
        data = read(str(tile), (i << level % 8) // 256, width)
        at = (i << level % 8) % 256
        hashes = [data[32 * j:32 * j + 32] for j in range(at, at + (1 << level % 8))]
        while len(hashes) > 1:
            hashes = [sha(b"\1", a, b) for a, b in zip(hashes[::2], hashes[1::2])]
        return hashes[0]

    def root(begin, end):
        if end - begin & end - begin - 1 == 0:
            level = (end - begin).bit_length() - 1
            return node(level, begin >> level)
        k = 1 << (end - begin - 1).bit_length() - 1
        return sha(b"\1", root(begin, begin + k), root(begin + k, end))

    def path(i, begin, end):
        if end - begin == 1:
            return []
        k = begin + (1 << (end - begin - 1).bit_length() - 1)
        return path(i, begin, k) + [root(k, end)] if i < k else path(i, k, end) + [root(begin, k)]

    def entry(i):
        data = read("entries", i // 256, min(256, size - i // 256 * 256))
        for _ in range(i % 256):
            data = data[2 + int.from_bytes(data[:2], "big"):]
        return data[2:2 + int.from_bytes(data[:2], "big")]

    return root(0, size), lambda i: path(i, 0, size), entry


def test_a_foreign_verifier_accepts_notes_and_tiles(signer, tmp_path):
    if not (shutil.which("npm") and shutil.which("node")):
        pytest.skip("no npm")
    modules = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True).stdout.strip()
    modules += "/npm/node_modules"
    if not os.path.isdir(modules + "/@sigstore/verify"):
        pytest.skip("this npm has no verifier")
    signer.write(600)
    signer.sign()
    for name, data in rows(signer.db, "SELECT path, data FROM proof_export"):
        (tmp_path / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "log" / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    root, path_of, entry_of = tiles(tmp_path / "log", 605)
    assert verify.read_notes(signer.notes.read_text())[-1] == (
        head(signer.db).split("\n")[0], 605, root)
    name, hint, public = verify.read_key(signer.key)
    entries = [{"index": i, "data": entry_of(i).hex(), "path": [h.hex() for h in path_of(i)]}
               for i in (0, 1, 255, 256, 300, 511, 512, 604)]
    entries.append(dict(entries[2], data=entries[3]["data"]))
    given = {"name": name, "hint": hint, "note": signer.notes.read_text(), "entries": entries,
             "der": "302a300506032b6570032100" + public[1:].hex()}
    (tmp_path / "foreign.js").write_text(FOREIGN)

    def foreign():
        (tmp_path / "given").write_text(json.dumps(given))
        return subprocess.run(["node", "foreign.js", modules, "given"], cwd=tmp_path, text=True,
                              capture_output=True, check=True).stdout.splitlines()

    assert foreign() == 8 * ["accepted"] + ["calculated root hash does not match inclusion proof"]
    given["note"] = given["note"].replace("\n605\n", "\n606\n")
    assert set(foreign()) == {"invalid checkpoint signature"}
