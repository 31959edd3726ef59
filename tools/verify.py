#!/usr/bin/env python3
"""verify.py [--all] [--head FILE] DOSSIER: checks proofs of blackbox without the database.

DOSSIER has what proof_of() returned, one JSON object a line. All must have the same head. FILE
has a head that was noted earlier, with or without a signature after it (which is not read: use
the tool that signed it). With --all the dossier must have every leaf of the log. A field of a
proof may have its "value", which is then checked too; that of a blob is written in hexadecimal.

exit 0  VERIFIED  every proof leads to the head, and the noted head is its beginning. ERASED: of
                  this field only the hash is there; a row of kind "erasure" must say so
exit 1  DIVERGED  nothing shows that the log is that of the noted head
exit 2  INVALID   a proof does not lead to its head, or is not what it says
"""
import argparse
import base64
import hashlib
import json
import struct
import sys

INTEGER, REAL, TEXT, BLOB, NULL = range(1, 6)


class Invalid(Exception):
    """A proof does not hold."""


class Diverged(Exception):
    """The log may be another than that of the noted head."""


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def read_head(text):
    """The origin, size and root of a head."""
    origin, size, root = text.split("\n")[:3]
    if not origin or str(int(size)) != size:
        raise Invalid("a head must have origin, size and root, a line each")
    return origin, int(size), base64.b64decode(root, validate=True)


def climb(node, last, path):
    """Each hash of a path, and whether it is on the left (RFC 9162, 2.1.3.2 and 2.1.4.2)."""
    for other in path:
        if last == 0:
            raise Invalid("the path is too long")
        left = node & 1 or node == last
        while left and node and not node & 1:
            node, last = node >> 1, last >> 1
        yield other, left
        node, last = node >> 1, last >> 1
    if last:
        raise Invalid("the path is too short")


def inclusion_root(index, size, leaf, path):
    """The root to which the path of a leaf leads."""
    if not 0 <= index < size:
        raise Invalid(f"there is no leaf {index} in a log of {size}")
    for other, left in climb(index, size - 1, path):
        leaf = sha(b"\1", other, leaf) if left else sha(b"\1", leaf, other)
    return leaf


def consistent_roots(old_size, old_root, size, path):
    """The roots of an older tree and of a tree of size leaves, as the path has them."""
    path = ([old_root] if old_size & (old_size - 1) == 0 else []) + path
    node, last = old_size - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old = new = path[0]
    for other, left in climb(node, last, path[1:]):
        old = sha(b"\1", other, old) if left else old
        new = sha(b"\1", other, new) if left else sha(b"\1", new, other)
    return old, new


def value_bytes(kind, value):
    """A value as it is hashed."""
    if kind in (INTEGER, REAL):
        return struct.pack(">q" if kind == INTEGER else ">d", value)
    return value.encode() if kind == TEXT else bytes.fromhex(value)


def leaf_hash(proof):
    """The hash of a leaf, from its fields if they are there."""
    if proof["fields"] is None:
        return bytes.fromhex(proof["hash"])
    names = [field["name"] for field in proof["fields"]]
    if names != sorted(set(names)):
        raise Invalid("the fields of a leaf stand in the order of their names, each once")
    leaf = b""
    for field in proof["fields"]:
        name, kind = field["name"].encode(), field["type"]
        told = b"" if kind == NULL else bytes.fromhex(field["hash"])
        if kind == NULL and field.get("value") is not None or kind != NULL and len(told) != 32:
            raise Invalid(f"the field {field['name']} of row {proof['n']} is another")
        if "value" in field and kind != NULL:
            salt = bytes.fromhex(field["salt"])
            if sha(salt, bytes([kind]), value_bytes(kind, field["value"])) != told:
                raise Invalid(f"the value of {field['name']} in row {proof['n']} is another")
        leaf += bytes([len(name)]) + name + bytes([kind]) + told
    numbers = proof["n"].to_bytes(8, "big") + proof["kept"].to_bytes(8, "big")
    return sha(b"\0blackbox log 1\n", numbers, sha(leaf))


def check_leaf(proof, size, root):
    """That a leaf is what it says, and in the log."""
    leaf = leaf_hash(proof)
    if proof["kind"] != "row" or leaf != bytes.fromhex(proof["hash"]):
        raise Invalid("the hash of a leaf is not that of its fields")
    path = map(bytes.fromhex, proof["path"])
    if inclusion_root(proof["n"] - 1, size, leaf, path) != root:
        raise Invalid("a path does not lead to the root of the head")


def check_head(old, head, path):
    """That the log of a head begins with that of an older one."""
    same = old == head
    if old[0] == head[0] and old[1] < head[1] and path is not None:
        same = old[1] == 0 or consistent_roots(*old[1:], head[1], path) == (old[2], head[2])
    if not same:
        raise Diverged(f"nothing shows that this log of {head[1]} leaves is that of {old[1]}")


def verify(proofs, noted=None, everything=False):
    """Checks the proofs. Returns what they are of."""
    texts = {proof["head"] for proof in proofs}
    if len(texts) != 1:
        raise Invalid(f"all proofs must have the same head, and there are {len(texts)}")
    head = read_head(texts.pop())
    leaves = [proof for proof in proofs if proof["kind"] != "head"]
    for proof in leaves:
        check_leaf(proof, *head[1:])
    if everything and sorted(proof["n"] for proof in leaves) != list(range(1, head[1] + 1)):
        raise Invalid(f"the log has {head[1]} leaves, and not each of them is here once")
    shown = {read_head(proof["noted"]): [bytes.fromhex(step) for step in proof["path"]]
             for proof in proofs if proof["kind"] == "head"}
    for old in set(shown) | ({noted} if noted else set()):
        check_head(old, head, shown.get(old))
    erased = [f"{field['name']} of row {proof['n']}" for proof in leaves
              for field in proof["fields"] or [] if field["type"] != NULL and not field["salt"]]
    return f"{len(leaves)} of {head[1]} leaves of {head[0]}" + "\nERASED: ".join([""] + erased)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[1])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--head", type=argparse.FileType(encoding="utf-8"))
    parser.add_argument("dossier", type=argparse.FileType(encoding="utf-8"))
    args = parser.parse_args()
    try:
        noted = read_head(args.head.read()) if args.head else None
        print("VERIFIED:", verify([json.loads(s) for s in args.dossier], noted, args.all))
        return 0
    except Diverged as why:
        print("DIVERGED:", why)
        return 1
    except Exception as why:  # whatever a forged file can cause
        print("INVALID:", why if isinstance(why, Invalid) else f"this is no proof: {why!r}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
