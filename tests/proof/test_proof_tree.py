"""The tree is that of RFC 6962: its root, its paths, its tiles."""
import sqlite3
import time

import pytest

from conftest import one, rows, run_program
from proof_helpers import (LEAVES, ROOTS, check, dossier, head, path as path_of, proof, proof_of,
                           receipts, root, sha, size as size_of, split, verify, write)

HASHES = [sha(b"\0", leaf) for leaf in LEAVES]


def test_the_tree_of_the_module_has_the_roots_and_paths_of_the_examples(tmp_path):
    run_program("vectors", tmp_path)


def test_the_tree_of_these_tests_has_the_roots_of_the_examples():
    assert [root(HASHES[:i]).hex() for i in range(1, 9)] == ROOTS


def test_the_verifier_agrees_with_the_examples():
    for n in range(1, 9):
        for m in range(n):
            assert verify.inclusion_root(m, n, HASHES[m], path_of(m, HASHES[:n])).hex() \
                == ROOTS[n - 1]
            if m:
                old, new = (("o", k, bytes.fromhex(ROOTS[k - 1])) for k in (m, n))
                assert verify.is_beginning(old, new, proof(m, HASHES[:n]))
                assert not verify.is_beginning(("o", m, bytes(32)), new, proof(m, HASHES[:n]))


def number(n):
    return n.to_bytes(8, "big", signed=True)


def entry(row, fields, kept):
    """The data of a leaf as the manual defines it."""
    data = b""
    for name in sorted(fields):
        value = fields[name]
        kind, told = ((1, number(value)) if isinstance(value, int) else
                      (5, b"") if value is None else (3, value.encode()))
        salt = sha(row["salt"], name.encode())
        data += bytes([len(name)]) + name.encode() + bytes([kind])
        data += b"" if value is None else sha(salt, bytes([kind]), told)
    return b"blackbox log 1\n" + number(row["n"]) + number(kept) + sha(data)


def entries(db, n):
    cursor = db.execute("SELECT * FROM blackbox__log WHERE n <= ? ORDER BY n", (n,))
    names = [column[0] for column in cursor.description]
    secret = one(db, "SELECT secret FROM blackbox__tree")
    kept = 0
    for row in (dict(zip(names, values)) for values in cursor):
        kept += row["kind"] is not None
        row["salt"] = row["salt"] or sha(secret, number(row["n"]))
        yield entry(row, {name: row[name] for name in row if name not in ("n", "salt")}, kept)


def hashes_of(db, n):
    return [sha(b"\0", data) for data in entries(db, n)]


SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 255, 256, 257, 511, 512, 513, 700]


def test_every_root_and_path_is_that_of_the_definition(db):
    heads = {}
    for size in SIZES:
        missing = size - one(db, "SELECT count(*) FROM blackbox__log")
        write(db, missing - (size == 9))
        if size == 9:
            receipts(db, time.time_ns() // 1_000_000, 1)
        heads[size] = verify.read_head(head(db))
        heads[size] += (head(db),)
        assert heads[size][1] == size
    hashes = hashes_of(db, SIZES[-1])
    for size in SIZES:
        assert heads[size][2] == root(hashes[:size])
        found = proof_of(db, "head", heads[size][3])["path"]
        assert found == [step.hex() for step in (proof(size, hashes) if size else [])]
    for leaf in [0, 1, 2, 127, 128, 255, 256, 300, 511, 512, 600, 698, 699]:
        assert proof_of(db, "leaf", leaf)["path"] == [s.hex() for s in path_of(leaf, hashes)]


def test_a_log_of_more_than_two_levels_is_still_that_of_the_definition(db):
    write(db, 65_536 + 300)
    noted = head(db)
    size = size_of(db)
    assert size == 65_836
    assert rows(db, "SELECT -leaf >> 48, count(*) FROM blackbox__leaves WHERE leaf < -(1 << 40) "
                "GROUP BY 1") == [(1, 257), (2, 1)]
    hashes = hashes_of(db, size)
    assert verify.read_head(noted)[2] == root(hashes)
    for leaf in (0, 40_000, 65_535, 65_536, 65_835):
        assert proof_of(db, "leaf", leaf)["path"] == [s.hex() for s in path_of(leaf, hashes)]
    assert rows(db, "SELECT * FROM proof_verify()") == []
    write(db, 1)
    head(db)
    assert proof_of(db, "head", noted)["path"] \
        == [s.hex() for s in proof(size, hashes_of(db, size + 1))]
    assert rows(db, "SELECT * FROM proof_verify(?)", noted) == []


def test_the_export_has_all_tiles_and_the_head(db):
    write(db, 600)
    noted = head(db)
    files = dict(rows(db, "SELECT path, data FROM proof_export"))
    leaves = list(entries(db, 600))
    hashes = [sha(b"\0", leaf) for leaf in leaves]
    bundle = [len(leaf).to_bytes(2, "big") + leaf for leaf in leaves]
    assert files == {
        "checkpoint": noted,
        "tile/0/000": b"".join(hashes[:256]), "tile/0/001": b"".join(hashes[256:512]),
        "tile/0/002.p/88": b"".join(hashes[512:]),
        "tile/1/000.p/2": root(hashes[:256]) + root(hashes[256:512]),
        "tile/entries/000": b"".join(bundle[:256]), "tile/entries/001": b"".join(bundle[256:512]),
        "tile/entries/002.p/88": b"".join(bundle[512:])}
    assert one(db, "SELECT proof_tile('tile/0/001.p/3')") == b"".join(hashes[256:259])


def test_an_empty_log_has_a_head_and_no_tiles(db):
    assert rows(db, "SELECT path, data FROM proof_export") == [("checkpoint", head(db))]
    origin, size, empty = head(db).split("\n")[:3]
    assert origin.startswith("blackbox/") and size == "0"
    assert empty == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="


def test_a_tile_that_is_not_there_is_refused(db):
    write(db, 600)
    head(db)
    for tile in ["tile/0/003", "tile/0/002", "tile/0/002.p/89", "tile/0/000.p/0",
                 "tile/0/000.p/257", "tile/1/000", "tile/6/000", "tile/00/00", "tile/0/0000",
                 "tile/0/x000/000/000", "tile/0/", "tile/entries/003", "tiles/0/000",
                 "tile/0/000.p/", "tile/-1/000", "tile/0/000 ", "x", "tile/0/x000/"]:
        with pytest.raises(sqlite3.DatabaseError, match="NotFoundError: the log has no tile"):
            one(db, "SELECT proof_tile(?)", tile)


def test_groups_of_three_digits_name_a_tile(db):
    """Leading groups of zeros name the same tile."""
    write(db, 300)
    head(db)
    assert one(db, "SELECT proof_tile('tile/0/x000/001.p/44')") \
        == one(db, "SELECT proof_tile('tile/0/001.p/44')")


def test_a_dossier_of_everything_holds(db):
    write(db, 40)
    noted = head(db)
    write(db, 33)
    head(db)
    assert check(dossier(db, noted), noted, everything=True)[0].startswith("73 of 73 leaves")
    assert split(9) == 8
