"""Changed bundles and notes for tools/verify.py: fuzz.py SECONDS [SEED]

Each run changes a true bundle, one of its rows, or signed notes, as text or as JSON. Whatever
comes out, verify.py must either refuse it, or show nothing but what was in the true one."""
import base64
import copy
import importlib.util
import json
import pathlib
import random
import sqlite3
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PIECES = ["null", "true", "NaN", "-1", "0", "1e9", '""', "[]", "{}", '"salt":null,', '"hex":"00",',
          '"value":"x",', "\\u0000", "\\ud83d", '"', ",", "{", "}", "[", "]", "\n", " ", "9" * 30, "00", "\u2014 x AAAA\n", "=", "\x03"]


def module(name):
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


verify, sign = module("verify"), module("sign")


def made():
    """The lines of a bundle, and its head."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.enable_load_extension(True)
    db.load_extension(str(ROOT / "blackbox"))
    for sql in ("SELECT blackbox_install()", "CREATE VIRTUAL TABLE ring USING payload_ring(window=4)",
                "INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES"
                "('a', 'e1', 'a question', 'an answer'), ('a', 'e2', 'x \x03 y', NULL)",
                "SELECT payload_kill_switch('ring', 'a', 'k')",
                "SELECT payload_unpin(id, 'ann', 'why') FROM event_payloads WHERE event_id = 'e1'",
                "SELECT proof_head()"):
        db.execute(sql).fetchall()
    lines = [row[0] for row in db.execute("SELECT line FROM proof_bundle('k')")]
    return lines, json.loads(lines[0])["head"]


def change_text(text, dice):
    for _ in range(dice.randint(1, 3)):
        at, end = sorted((dice.randrange(len(text) + 1), dice.randrange(len(text) + 1)))
        end = min(end, at + dice.choice((0, 1, 2, 64)))
        piece = dice.choice((dice.choice(PIECES), chr(dice.randrange(128)), text[at:end] * 2))
        text = text[:at] + piece + text[end:]
    return text


def change_json(thing, dice):
    """Puts one value in place of another, or removes, renames or repeats it."""
    nodes = []

    def walk(node):
        for key in node if isinstance(node, dict) else range(len(node)):
            nodes.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])
    walk(thing)
    (node, key), (other, where) = dice.choice(nodes), dice.choice(nodes)
    what, value = dice.randrange(5), copy.deepcopy(other[where])
    if what == 0:
        del node[key]
    elif what == 1 and isinstance(node, dict):
        node[str(where)] = node.pop(key)
    elif what == 2 and isinstance(node, list):
        node.insert(key, value)
    elif what == 3:
        node[key] = dice.choice((None, True, -1, 0, 1 << 70, 1.5, "", "00", [], {}, "00" * 32))
    else:
        node[key] = value
    return json.dumps(thing)


def shown(text):
    thing = json.loads(text)
    return {(thing["n"], f["name"], f["type"], str(f.get("value", f.get("hex"))))
            for f in thing.get("fields") or () if "value" in f or "hex" in f}


def is_refused(read):
    try:
        read()
    except (verify.Refused, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return True
    return False


def run(seconds, seed):
    dice, (lines, head), runs, accepted = random.Random(seed), made(), 0, 0
    notes = [verify.read_head(head)]
    true = set().union(*map(shown, (line for line in lines if '"n"' in line)))
    key = verify.read_key(sign.key_text("k", bytes(32))[1])
    signed = bytes.fromhex(key[1]) + sign.sign(bytes(32), head.encode())
    note = f"{head}\n\u2014 k {base64.b64encode(signed).decode()}\n"
    begun = time.time()
    while time.time() < begun + seconds:
        runs += 1
        if runs % 64 == 0:  # a signature takes as long as a hundred rows
            text = change_text(note, dice)
            if not is_refused(lambda: verify.read_notes(text, key)):
                assert set(verify.read_notes(text, key)) == set(notes), text
                accepted += 1
            continue
        i = dice.randrange(1, len(lines))
        text = change_text(lines[i], dice) if runs % 2 else change_json(json.loads(lines[i]), dice)
        mine = lines[:i] + [text] + lines[i + 1:] if runs % 8 == 0 else [text]
        found = verify.Verifier()
        if not is_refused(lambda: ([found.line(line) for line in mine], found.end(notes))):
            accepted += 1
            told = set().union(*(shown(line) for line in mine if '"n"' in line))
            assert told <= true, text
    print(f"verify.py: {runs} runs, {runs / seconds:.0f} a second, {accepted} accepted")


if __name__ == "__main__":
    run(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns())
