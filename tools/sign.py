#!/usr/bin/env python3
"""sign.py: signs heads of a log, and appends them to a file that the log's keeper cannot change.

sign.py key NAME KEY               makes a key, writes it into the file KEY, prints its public key
sign.py sign DATABASE KEY NOTES    signs the head of the log, and appends it to the file NOTES

A head is signed only if the log begins with the last one that was signed: that of NOTES, if it can
be read, and of KEY.head, which has the last one, too. --commit commits NOTES to its git work tree.
--module is the path of blackbox, if it does not lie beside the folder of this file.

exit 0  the head was signed, or is the last one that was
exit 1  REFUSED: the log does not begin with the last head: it was cut, rewritten or exchanged
exit 2  UNREAD: a file, the key or the log cannot be read or written; nothing was signed

A note is that of C2SP signed-note with Ed25519, a key is written as by golang.org/x/mod/sumdb/note.
The arithmetic is that of verify.py. It takes a time that depends on the key: sign where nobody can
measure it.
"""
import argparse
import base64
import fcntl
import hashlib
import json
import os
import pathlib
import re
import secrets
import sqlite3
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import verify  # noqa: E402


def secret_of(seed):
    """The number, the bytes for nonces and the public key of a seed (RFC 8032, 5.1.5)."""
    data = hashlib.sha512(seed).digest()
    number = int.from_bytes(data[:32], "little") & (1 << 254) - 8 | 1 << 254
    return number, data[32:], verify.compress(verify.times(number, verify.BASE))


def sign(seed, text):
    """The signature of a text (RFC 8032, 5.1.6)."""
    number, nonce, public = secret_of(seed)
    r = int.from_bytes(hashlib.sha512(nonce + text).digest(), "little") % verify.L
    point = verify.compress(verify.times(r, verify.BASE))
    k = int.from_bytes(hashlib.sha512(point + public + text).digest(), "little")
    return point + ((r + k * number) % verify.L).to_bytes(32, "little")


def key_text(name, data):
    """A key as it is written: name, hash of the public key, and data."""
    public = b"\1" + secret_of(data)[2]
    hint = verify.sha(name.encode(), b"\n", public)[:4].hex()
    return (f"PRIVATE+KEY+{name}+{hint}+{base64.b64encode(bytes([1]) + data).decode()}\n",
            f"{name}+{hint}+{base64.b64encode(public).decode()}")


def make_key(name, path):
    verify.need(re.fullmatch(r"[^\s+]+", name), "a name has no spaces, and no plus")
    private, public = key_text(name, secrets.token_bytes(32))
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(private)
    print(public)


def read_key(text):
    """The seed, and the public key as verify.py reads it."""
    parts = re.fullmatch(r"PRIVATE\+KEY\+([^\s+]+)\+([0-9a-f]{8})\+(\S+)", text.strip())
    verify.need(parts, "this is no key that sign.py wrote")
    data = verify.unbase64(parts[3], "the key")
    verify.need(len(data) == 33 and data[0] == 1, "the key is not of Ed25519")
    public = verify.read_key(key_text(parts[1], data[1:])[1])
    verify.need(public[1] == parts[2], "the key has another hash")
    return data[1:], public


def last_note(path, public):
    """The last head of a file of notes, if it can be read."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return None
        return verify.read_notes(path.read_text("utf-8"), public)[-1]
    except PermissionError:  # it is for writing only
        return None


def head_text(head):
    return f"{head[0]}\n{head[1]}\n{base64.b64encode(head[2]).decode()}\n"


def new_head(args, olds):
    """The head of the log, which begins with each of the older ones."""
    db = sqlite3.connect(f"{args.database.resolve().as_uri()}?mode=rw", uri=True, timeout=60,
                         isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(args.module))
    db.execute("BEGIN IMMEDIATE")
    text = db.execute("SELECT proof_head()").fetchone()[0]
    head = verify.read_head(text)
    for old in olds:
        try:
            proof = json.loads(db.execute("SELECT proof_of('head', ?)",
                                          (head_text(old),)).fetchone()[0])
        except sqlite3.Error as why:
            raise verify.Refused(str(why)) if "ProofError" in str(why) else why
        verify.need(proof["head"] == text and verify.is_beginning(
            old, head, verify.read_path(proof["path"])), f"it does not begin with {old[1]} leaves")
    db.execute("COMMIT")
    return text


def append(path, note):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        data = note.encode()
        data = b"\n" + data if os.fstat(fd).st_size else data
        if os.write(fd, data) != len(data):
            raise OSError(f"{path}: not all was written")
        if path.is_file():
            os.fsync(fd)
    finally:
        os.close(fd)


def sign_head(args):
    with open(args.key, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # one at a time
        seed, public = read_key(file.read())
        last = args.key.with_name(args.key.name + ".head")
        olds = [old for old in (last_note(path, public) for path in (last, args.notes)) if old]
        text = new_head(args, olds)
        if olds and all(head_text(old) == text for old in olds):
            return print(f"{olds[-1][1]} leaves, as before")
        data = base64.b64encode(bytes.fromhex(public[1]) + sign(seed, text.encode())).decode()
        note = f"{text}\n\u2014 {public[0]} {data}\n"
        verify.read_notes(note, public)
        append(args.notes, note)
        last.with_suffix(".new").write_text(note, "utf-8")
        os.replace(last.with_suffix(".new"), last)
    if args.commit:
        git = ["git", "-C", str(args.notes.resolve().parent)]
        name = args.notes.name
        subprocess.run([*git, "add", "--", name], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "head of " + " ".join(
            text.split("\n")[:2]), "--", name], check=True)
    print(f"{verify.read_head(text)[1]} leaves signed")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--module", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent / "blackbox")
    parser.add_argument("--commit", action="store_true")
    parser.add_argument("what", choices=["key", "sign"])
    parser.add_argument("arguments", nargs="+")
    args = parser.parse_args()
    if len(args.arguments) != {"key": 2, "sign": 3}[args.what]:
        parser.error(f"{args.what} has other arguments")
    try:
        if args.what == "key":
            make_key(*args.arguments)
        else:
            args.database, args.key, args.notes = map(pathlib.Path, args.arguments)
            sign_head(args)
    except verify.Refused as why:
        sys.exit(print("REFUSED:", why, file=sys.stderr) or 1)
    except (OSError, ValueError, AttributeError, sqlite3.Error,
            subprocess.CalledProcessError) as why:
        sys.exit(print("UNREAD:", why, file=sys.stderr) or 2)


if __name__ == "__main__":
    main()
