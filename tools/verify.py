#!/usr/bin/env python3
"""verify.py [--all] [--head NOTES] [--key KEY] [FILE]: checks proofs of blackbox.

FILE is what proof_bundle() or proof_of() returned, one JSON object a line, with one head for all.
NOTES has heads that were noted, signed or not: one must be that head, or the last the beginning of
its log. With KEY, as sign.py prints it, each must be signed. --all: every leaf must be there.

exit 0  VERIFIED  everything leads to the head. The lines after it say what has no proof
exit 1  REFUSED   something is not what it says, or the log is not that of the notes
exit 2  UNREAD    a file cannot be read, or is no text
"""
import argparse
import base64
import hashlib
import json
import re
import sys

INTEGER, REAL, TEXT, NULL = 1, 2, 3, 5
FIELDS = set("actor agent_id at bytes detail domain event_id kill_switch_event_id kind newest "
             "oldest reason rows subject".split())
ACTS = ["payload pin", "payload complete", "payload unpin", "core erasure"]
FIELD = set("name type salt hash value hex".split())
KEYS = {"bundle": "kind version kill_switch rows unproven head", "unproven": "kind n id",
        "row": "kind n hash kept fields path head", "head": "kind noted path head"}

class Refused(Exception):
    pass

def need(true, why):
    if not true:
        raise Refused(why)

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()

def whole(value, what, low=0, high=1 << 48):
    need(type(value) is int and low <= value < high, f"{what} is not a number of its range")
    return value

def unhex(text, what, size=None):
    need(isinstance(text, str) and re.fullmatch("([0-9a-f]{2})*", text)
         and size in (None, len(text) // 2), f"{what} is not {size or 'a number of'} bytes in hex")
    return bytes.fromhex(text)

def unbase64(text, what):
    data = base64.b64decode(text) if re.fullmatch("([A-Za-z0-9+/=]{4})+", text) else b""
    need(base64.b64encode(data).decode() == text, f"{what} is not in base64")
    return data

# Ed25519 (RFC 8032). A point is x, y.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

def add(a, b):
    t = D * a[0] * b[0] * a[1] * b[1]
    return ((a[0] * b[1] + a[1] * b[0]) * pow(1 + t, -1, P) % P,
            (a[1] * b[1] + a[0] * b[0]) * pow(1 - t, -1, P) % P)

def times(n, point):
    total = (0, 1)
    while n:
        total = add(total, point) if n & 1 else total
        point, n = add(point, point), n >> 1
    return total

def compress(point):
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")

def decompress(data):
    y = int.from_bytes(data, "little")
    odd, y = y >> 255, y & (1 << 255) - 1
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    need(y < P and x * x % P == square and (x or not odd), "the key is no point")
    return P - x if x & 1 != odd else x, y

BASE = decompress((4 * pow(5, -1, P) % P).to_bytes(32, "little"))

def is_signed(public, text, signature):
    s = int.from_bytes(signature[32:], "little")
    k = int.from_bytes(hashlib.sha512(signature[:32] + public + text).digest(), "little")
    x, y = decompress(public)
    point = add(times(s % L, BASE), times(k % L, (P - x, y)))
    return len(signature) == 64 and s < L and compress(point) == signature[:32]

NOTE = re.compile("((?:[^\n]+\n){3})(?:\n((?:\u2014 [^ \n]+ [^ \n]+\n)+))?(?:\n|\\Z)")

def read_key(text):
    parts = re.fullmatch(r"([^\s+]+)\+([0-9a-f]{8})\+(\S+)", text.strip())
    need(parts, "a key must be name+hash+base64")
    name, data = parts[1], unbase64(parts[3], "the key")
    need(len(data) == 33 and data[0] == 1, "the key is not of Ed25519")
    need(sha(name.encode(), b"\n", data).hex()[:8] == parts[2], "the key has another hash")
    return name, parts[2], data

def read_head(text):
    """The origin, size and root of a head, which is three lines."""
    parts = re.fullmatch("([!-~]+)\n(0|[1-9][0-9]{0,14})\n([!-~]+)\n", str(text))
    need(parts, "a head must have origin, size and root, a line each, and nothing after them")
    root = unbase64(parts[3], "the root of a head")
    need(len(root) == 32, "the root of a head has another length than 32 bytes")
    need(parts[2] != "0" or root == sha(), "a log without leaves has another root")
    return parts[1], int(parts[2]), root

def read_notes(text, key=None):
    """The heads of notes (C2SP signed-note). Between two of them is an empty line."""
    at, heads = 0, []
    while at < len(text) or not heads:
        note = NOTE.match(text, at)
        need(note, f"there is no note where {text[at:at + 40]!r} is")
        if key:
            signed = re.findall(f"\u2014 {re.escape(key[0])} (.*)\n", note[2] or "")
            signed = [data[4:] for data in (unbase64(line, "a signature") for line in signed)
                      if data[:4].hex() == key[1]]
            need(signed, "a note has no signature of this key")
            need(all(is_signed(key[2][1:], note[1].encode(), data) for data in signed),
                 "the signature of a note is wrong")
        heads.append(read_head(note[1]))
        at, old, now = note.end(), heads[-2:][0], heads[-1]
        need(old[0] == now[0] and old[1] <= now[1], "a note is older than the one before")
        need(old[1] < now[1] or old == now, "two notes of one size have two roots")
    return heads

def climb(node, last, path):
    """Each hash of a path, and whether it is on the left (RFC 9162, 2.1.3.2 and 2.1.4.2)."""
    for other in path:
        need(last > 0, "a path is too long")
        left = node & 1 or node == last
        while left and node and not node & 1:
            node, last = node >> 1, last >> 1
        yield other, left
        node, last = node >> 1, last >> 1
    need(last == 0, "a path is too short")

def inclusion_root(index, size, leaf, path):
    need(0 <= index < size, f"there is no leaf {index} in a log of {size}")
    for other, left in climb(index, size - 1, path):
        leaf = sha(b"\1", other, leaf) if left else sha(b"\1", leaf, other)
    return leaf

def is_beginning(old, head, path):
    """Whether the path shows that the log of a head begins with that of an older one."""
    if old[0] != head[0] or not 0 < old[1] < head[1]:
        return not path and (old == head or old[0] == head[0] and old[1] == 0)
    path = ([old[2]] if old[1] & (old[1] - 1) == 0 else []) + path
    need(path, "a path is too short")
    node, last = old[1] - 1, head[1] - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = now = path[0]
    for other, left in climb(node, last, path[1:]):
        before = sha(b"\1", other, before) if left else before
        now = sha(b"\1", other, now) if left else sha(b"\1", now, other)
    return (before, now) == (old[2], head[2])

def read_path(path):
    need(isinstance(path, list) and len(path) <= 64, "a path is a list of at most 64 hashes")
    return [unhex(step, "a hash of a path", 32) for step in path]

def read_field(field, n):
    """Its bytes in the leaf, and its value: a list of one, [] if it is not shown."""
    need(isinstance(field, dict) and {"name", "type"} <= set(field) <= FIELD, "this is no field")
    name, kind = field["name"], whole(field["type"], "the type of a field", 1, 6)
    what = f"{name!r} of row {n}"
    need(isinstance(name, str) and re.fullmatch("[a-z_.]{1,255}", name), f"{what} is no field")
    need(kind != NULL or len(field) == 2, f"{what} is NULL, and has more than a name")
    told = bytes([len(name)]) + name.encode() + bytes([kind])
    if kind == NULL:
        return told, [None]
    need("salt" in field, f"{what} has no salt, and does not say that it was erased")
    digest = unhex(field["hash"], f"the hash of {what}", 32) if "hash" in field else None
    salt = None if field["salt"] is None else unhex(field["salt"], f"the salt of {what}", 32)
    if "value" not in field and "hex" not in field:
        need(digest, f"{what} has neither a value nor a hash")
        return told + digest, []
    need(salt, f"{what} was erased, and has a value")
    need(("value" in field) != ("hex" in field), f"{what} is there twice")
    value = field.get("value", field.get("hex"))
    if kind == INTEGER:
        data = whole(value, what, -1 << 63, 1 << 63).to_bytes(8, "big", signed=True)
    elif kind == TEXT and "value" in field and isinstance(value, str):
        data = value.encode()
    else:  # what JSON cannot have
        data = unhex(value, what, 8 if kind == REAL else None)
    need(digest in (None, sha(salt, bytes([kind]), data)), f"the value of {what} is another")
    return told + sha(salt, bytes([kind]), data), [value]

def once(pairs):
    need(len(dict(pairs)) == len(pairs), "a name is there twice in one object")
    return dict(pairs)

class Verifier:
    def __init__(self):
        self.text = self.head = self.bundle = None
        self.rows, self.shown, self.waiting, self.erased, self.hidden = {}, set(), {}, {}, 0

    def line(self, text):
        thing = json.loads(text, object_pairs_hook=once, parse_constant=lambda s: whole(s, s))
        kind = thing.get("kind") if isinstance(thing, dict) else None
        need(kind in tuple(KEYS), f"there is no kind {kind!r}")
        need(set(thing) == set(KEYS[kind].split()), f"a {kind} has {KEYS[kind]}, and nothing else")
        self.text = self.text or thing.get("head")
        need(thing.get("head", self.text) == self.text, "two lines have two heads")
        self.head = self.head or ("head" in thing and read_head(self.text))
        n = whole(thing.get("n", 1 << 47), "the number of a row", 1)
        need(n not in self.rows and n not in self.waiting, f"row {n} is there twice")
        if kind == "bundle":
            need(not self.bundle, "there are two bundles")
            whole(thing["version"], "the version", 1, 2)
            self.bundle = thing["kill_switch"], thing["rows"], thing["unproven"]
        elif kind == "head":
            old = read_head(thing["noted"])
            need(is_beginning(old, self.head, read_path(thing["path"])),
                 f"the log of {self.head[1]} leaves does not begin with that of {old[1]}")
            self.shown.add(old)
        elif kind == "row":
            self.rows[n] = self.row(thing, n)
        else:
            self.waiting[n] = str(thing["id"])

    def row(self, thing, n):
        """Its values that are shown, without the row that it pins; None if they have gone."""
        leaf, values, told = unhex(thing["hash"], "the hash of a leaf", 32), {}, b""
        names, root = [], inclusion_root(n - 1, self.head[1], leaf, read_path(thing["path"]))
        need(root == self.head[2], f"the path of row {n} does not lead to the head")
        if thing["fields"] is thing["kept"] is None:
            return None
        need(isinstance(thing["fields"], list), f"the fields of row {n} are no list")
        for field in thing["fields"]:
            data, value = read_field(field, n)
            names, told = names + [field["name"]], told + data
            values.update({field["name"]: v for v in value if field["name"] in FIELDS})
            self.hidden += not value and field["salt"] is not None
            if not value and field["salt"] is None:
                self.erased[n, field["name"]] = 0
        need(names == sorted(set(names)), f"fields of row {n} are not in order, each once")
        need(set(names) >= FIELDS and (len(names) == 14 or values.get("kind", "pin") == "pin"),
             f"row {n} has other fields than a row of the log")
        numbers = n << 64 | whole(thing["kept"], "kept", 0, n + 1)
        need(sha(b"\0blackbox log 1\n", numbers.to_bytes(16, "big"), sha(told)) == leaf,
             f"the hash of row {n} is not that of its fields")
        return values

    def end(self, notes=(), everything=False):
        need(self.head, "there is no proof in it")
        need(not everything or len(self.rows) == self.head[1], "not every leaf is here")
        need(not notes or self.head in notes or notes[-1] in self.shown,
             "nothing shows that the log begins with the last note")
        told, ended, pins, taken = [], {}, set(self.waiting.values()), 0
        switch, rows, waiting = self.bundle or (None, len(self.rows), len(self.waiting))
        for n, row in sorted((n, row) for n, row in self.rows.items() if row is not None):
            subject, act = row.get("subject", n), f"{row.get('domain')} {row.get('kind')}"
            detail = json.loads(row.get("detail") or "{}") if act in ACTS else {}
            ended[str(detail.get("pin"))] = n
            for key in [(int(str(subject)[4:] or 0), name) for name in detail.get("fields", ())]:
                self.erased.update({key: n} if key in self.erased and key[0] < n else {})
            pins.update([subject] if act in ACTS[:3] else [])
            of = row.get("kill_switch_event_id", switch) if act in ACTS[:3] else switch
            need(not self.bundle or of == switch, f"row {n} is of another kill switch")
            taken += row["rows"] if (act, subject) == ("payload kill_switch", switch) else 0
            if row.get("kind") and act not in ACTS[:2]:
                words = [repr(row.get(name)) for name in ("subject", "actor", "reason")]
                told.append(f"row {n}: {act!r} {' '.join(words)}")
        for n in sorted(n for n, row in self.rows.items() if row is None):
            need(not self.bundle or str(n) in ended, f"row {n} is only a hash, and no row says why")
            told.append(f"HASH ONLY: row {n}, see row {ended.get(str(n))}")
        for (n, name), by in sorted(self.erased.items()):
            need(not self.bundle or by, f"{name} of row {n} has no salt, and no row erases it")
            told.append(f"ERASED: {name} of row {n}, see row {by or None}")
        told += [f"NO PROOF: {id!r}, pinned by row {n}" for n, id in self.waiting.items()]
        need(json.dumps([rows, waiting]) == json.dumps([len(self.rows), len(self.waiting)]),
             "the bundle has more or fewer rows than it says")
        need(not (self.bundle and self.hidden), "a bundle shows what was not erased")
        need(len(pins) >= taken, f"the switch took {taken} rows, and {len(pins)} are here")
        told[:0] = [f"{rows} of {self.head[1]} leaves of {self.head[0]}; {taken} taken, {len(pins)}"
                    f" pinned; {waiting} pins have no proof; {self.hidden} values are not shown"]
        return "\n".join(told)

def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--head"), parser.add_argument("--key")
    parser.add_argument("file", nargs="?")
    args, told, notes = parser.parse_args(), Verifier(), []
    try:
        if args.head:
            notes = read_notes(open(args.head, encoding="utf-8", newline="\n").read(),
                               read_key(args.key) if args.key else None)
        for line in open(args.file, encoding="utf-8", newline="\n") if args.file else ():
            told.line(line)
        print("VERIFIED:", told.end(notes, args.all) if args.file else f"{len(notes)} notes")
    except (OSError, UnicodeDecodeError) as why:
        sys.exit(print("UNREAD:", why) or 2)
    except Exception as why:  # whatever a forged file can cause
        sys.exit(print("REFUSED:", why if isinstance(why, Refused) else repr(why)) or 1)

if __name__ == "__main__":
    main()
