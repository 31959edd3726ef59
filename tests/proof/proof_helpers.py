"""What the tests of proof share: a tree as RFC 6962 defines it, and rows for the log."""
import hashlib
import importlib.util
import json
import sqlite3

from conftest import ROOT, connect, one, rows

spec = importlib.util.spec_from_file_location("verify", ROOT / "tools" / "verify.py")
verify = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verify)

# The leaves of the examples of certificate transparency, and the roots of 1 to 8 of them.
LEAVES = [bytes.fromhex(h) for h in (
    "", "00", "10", "2021", "3031", "40414243", "5051525354555657",
    "606162636465666768696a6b6c6d6e6f")]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"]


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def split(n):
    """The largest power of two below n."""
    return 1 << (n - 1).bit_length() - 1


def root(hashes):
    """MTH of RFC 6962, of hashes of leaves."""
    if len(hashes) < 2:
        return hashes[0] if hashes else sha(b"")
    k = split(len(hashes))
    return sha(b"\1", root(hashes[:k]), root(hashes[k:]))


def path(m, hashes):
    """PATH of RFC 6962."""
    if len(hashes) == 1:
        return []
    k = split(len(hashes))
    if m < k:
        return path(m, hashes[:k]) + [root(hashes[k:])]
    return path(m - k, hashes[k:]) + [root(hashes[:k])]


def proof(m, hashes, whole=True):
    """SUBPROOF of RFC 6962."""
    if m == len(hashes):
        return [] if whole else [root(hashes)]
    k = split(len(hashes))
    if m <= k:
        return proof(m, hashes[:k], whole) + [root(hashes[k:])]
    return proof(m - k, hashes[k:], False) + [root(hashes[:k])]


def evidence(db, n=1, schema="main", body="body"):
    """Writes evidence as plain SQL."""
    for i in range(n):
        db.execute(f"INSERT INTO {schema}.event_payloads(event_id, agent_id, request_body, purpose)"
                   " VALUES(?, 'a', ?, 'evidence')", (f"e{i}", f"{body} {i}"))


def write(db, n, schema="main"):
    """Writes rows into the log, as the triggers of a domain do."""
    db.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)"
        f" INSERT INTO {schema}.blackbox__log(domain, kind, subject, actor, rows)"
        " SELECT 'user', 'note', 's' || i, 'me', i FROM n WHERE ?1 > 0", (n,))


def receipts(db, start, n, step=60_000, rule="mine", each=2):
    """Writes receipts, one for each step of milliseconds."""
    db.execute(
        "WITH n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?2 - 1)"
        " INSERT INTO blackbox__log(at, domain, detail, rows, bytes, oldest, newest,"
        " salt) SELECT ?1 + i * ?3, 'user', ?4, ?5, 10, ?1 + i * ?3 - i, 5, NULL FROM n",
        (start, n, step, rule, each))


def head(db):
    return one(db, "SELECT proof_head()")


def log(db, schema="main"):
    return [r[0] for r in rows(db, "SELECT iif(n, coalesce(kind, 'removal'), NULL)"
                               f" FROM {schema}.blackbox__leaves LEFT JOIN"
                               f" {schema}.blackbox__log ON n = leaf + 1"
                               " WHERE leaf >= 0 ORDER BY leaf")]


def problems(db, noted=None):
    return rows(db, "SELECT leaf, kind, key, problem FROM proof_verify(?)", noted)


def proof_of(db, kind, key):
    return json.loads(one(db, "SELECT proof_of(?, ?)", kind, key))


def check(proofs, *noted, everything=False):
    """What tools/verify.py says of a dossier: a list, or it raises."""
    found = verify.Verifier()
    for proof in proofs:
        found.line(json.dumps(proof))
    return found.end([verify.read_head(text) for text in noted], everything).split("\n")


def size(db, schema="main"):
    return one(db, f"SELECT size FROM {schema}.blackbox__tree")


def dossier(db, *noted):
    """The proofs of all leaves, and of older heads."""
    return ([proof_of(db, "leaf", i) for i in range(size(db))]
            + [proof_of(db, "head", old) for old in noted])


def unguarded(path, *statements):
    """What somebody does who drops the guards: afterwards they are as they were."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    db.execute("BEGIN")
    guards = [(name, text) for name, table, text in rows(
        db, "SELECT name, tbl_name, sql FROM sqlite_schema WHERE type = 'trigger'")
        if any(table in str(statement) for statement in statements)]
    for name, _ in guards:
        db.execute(f'DROP TRIGGER "{name}"')
    for statement in statements:
        sql, *args = [statement] if isinstance(statement, str) else statement
        assert db.execute(sql, args).rowcount > 0
    for _, text in guards:
        db.execute(text)
    db.execute("COMMIT")
    db.close()
