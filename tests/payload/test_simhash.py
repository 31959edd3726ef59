"""payload_simhash(), payload_hamming(), payload_similar() and payload_normalize(), compared with
an implementation in plain Python."""
import random
import re
import sqlite3

import pytest

from conftest import connect, one

WHITE = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


@pytest.fixture(scope="module")
def sql():
    """These functions need no tables."""
    return connect()


def plain(text):
    return re.sub(f"[{WHITE}]+", " ", text.lower()).strip(" ")


def simhash(text):
    units = [int.from_bytes(pair, "little") for pair in
             zip(*[iter(plain(text).encode("utf-16-le"))] * 2)]
    grams = [units[i:i + 3] for i in range(len(units) - 2)] or [units]
    counts = [0] * 64
    for gram in grams:
        value = 0xcbf29ce484222325
        for unit in gram:
            value = ((value ^ unit) * 0x100000001b3) % 2 ** 64
        for bit in range(64):
            counts[bit] += 1 if value >> bit & 1 else -1
    value = sum(1 << bit for bit in range(64) if counts[bit] > 0)
    return value - 2 ** 64 if value >= 2 ** 63 else value


def normalize(text):
    for pattern, by in (
            (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<id>"),
            (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<ts>"),
            (r"\b[0-9a-f]{16,}\b", "<id>"),
            (r"\b(?:id|user|order|session|request|msg|message|chat|thread)[a-z0-9]+\b", "<id>"),
            (r"\b\d+\b(?:\.\d+\b)?", "<num>")):
        text = re.sub(pattern, by, text, flags=re.A if "T" in pattern else re.A | re.I)
    return plain(text)


def test_hashes_that_were_worked_out_by_hand(sql):
    """FNV-1a of "abc" is a published value; a text of three units is one gram."""
    assert one(sql, "SELECT payload_simhash('abc')") == 0xe71fa2190541574b - 2 ** 64
    assert one(sql, "SELECT payload_simhash('a')") == 0xaf63dc4c8601ec8c - 2 ** 64
    assert one(sql, "SELECT payload_simhash('')") == 0xcbf29ce484222325 - 2 ** 64
    assert one(sql, "SELECT payload_simhash('  ABC\n')") == one(sql, "SELECT payload_simhash('abc')")


LETTERS = ("aB cD\n\t\u00a0\u3000eFgZ019.,-_\"'ÀÉ×ÿŁłŽžŸĸŉſİıАБяЁёΑΩΪ\u0386\u0388\u038c\u038f漢字😀"
           "\U0001f468\u200d\u0301\ufeff")


def test_random_texts_have_the_same_hash_as_in_python(sql):
    chance = random.Random(7)
    for length in [*range(12)] * 20 + [100, 1000] * 5:
        text = "".join(chance.choice(LETTERS) for _ in range(length))
        assert one(sql, "SELECT payload_simhash(?)", text) == simhash(text), text


def test_texts_that_differ_in_a_word_are_near(sql):
    text = "Please look up the order of this customer and say when it will arrive, and where. " * 9
    near = one(sql, "SELECT payload_hamming(payload_simhash(?), payload_simhash(?))",
               text, text + "Thanks!")
    far = one(sql, "SELECT payload_hamming(payload_simhash(?), payload_simhash(?))",
              text, "def f(x): return [y * 2 for y in x if y]")
    assert near <= 3 < 15 < far


def test_hamming_counts_bits_of_signed_integers(sql):
    chance = random.Random(8)
    for _ in range(200):
        a, b = (chance.getrandbits(64) - 2 ** 63 for _ in "ab")
        assert one(sql, "SELECT payload_hamming(?, ?)", a, b) == bin((a ^ b) % 2 ** 64).count("1")
    assert one(sql, "SELECT payload_hamming(0, -1)") == 64
    assert one(sql, "SELECT payload_hamming(0, NULL)") is None


def test_similar_is_a_distance_of_at_most_three(sql):
    assert [one(sql, "SELECT payload_similar(0, ?)", n) for n in (0, 7, 15)] == [1, 1, 0]
    assert [one(sql, "SELECT payload_similar(0, 7, ?)", n) for n in (0, 2, 3, 64)] == [0, 0, 1, 1]
    assert one(sql, "SELECT payload_similar(NULL, 1)") is None
    assert one(sql, "SELECT payload_similar(0, 15, NULL)") == 0


@pytest.mark.parametrize("text, normal", [
    ("Get Order 0F8FAD5B-d9cb-469f-a165-70867728950e now", "get order <id> now"),
    ("at 2026-01-31T12:00:00.123Z or 2026-01-31", "at <ts> or <ts>"),
    ("2026-01-31 12:00 and 2026-01-31T12:00:01+0100", "<ts> and <ts>"),
    ("hash deadbeefdeadbeef12 deadbeef", "hash <id> deadbeef"),
    ("user42 said idea, requests, MSG1 to user", "<id> said <id>, <id>, <id> to user"),
    ("12 apples, 3.14 pies, v2, 7th", "<num> apples, <num> pies, v2, 7th"),
    ("  A \n\t B  ", "a b"),
    ("", ""),
])
def test_normal_forms(sql, text, normal):
    assert one(sql, "SELECT payload_normalize(?)", text) == normal == normalize(text)


def test_random_texts_are_normalized_as_in_python(sql):
    chance = random.Random(9)
    pieces = ["0f8fad5b-d9cb-469f-a165-70867728950e", "2026-01-31", "T12:00", ":30", ".5", "Z", "+01:00",
              "deadbeefdeadbeef", "ID", "user", "order9", "a", "_", " ", " ", "-", "12", "3", "é", ".", ":",
              "0123456789abcdef0", "thread", "\n", "-0100", "2026-1-1"]
    for _ in range(3000):
        text = "".join(chance.choice(pieces) for _ in range(chance.randrange(1, 12)))
        assert one(sql, "SELECT payload_normalize(?)", text) == normalize(text), text


def test_what_is_not_text_is_refused_and_null_is_null(sql):
    for function in "payload_simhash", "payload_normalize":
        assert one(sql, f"SELECT {function}(NULL)") is None
        for value in 7, 2.5, b"abc":
            with pytest.raises(sqlite3.IntegrityError, match="ValidationError: the argument must be"):
                one(sql, f"SELECT {function}(?)", value)
    for sql_text in ("SELECT payload_hamming('a', 1)", "SELECT payload_similar(1, 2.5)",
                     "SELECT payload_similar(1, 2, 65)", "SELECT payload_similar(1, 2, -1)"):
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
            one(sql, sql_text)


def test_odd_bytes_end_nothing(sql):
    assert one(sql, "SELECT length(CAST(payload_normalize(?) AS BLOB))", "a\x00B") == 3
    assert one(sql, "SELECT payload_simhash(?)", "a\x00b") == simhash("a\x00b")
    assert one(sql, "SELECT payload_simhash(CAST(x'ff61c3' AS TEXT))") == simhash("\ufffda\ufffd")
    assert one(sql, "SELECT payload_normalize(CAST(x'ff61c3' AS TEXT))") == "\ufffda\ufffd"


def test_they_may_be_used_in_an_index(sql):
    """Constant functions of their arguments: safe in a schema."""
    sql.execute("CREATE TABLE t(x)")
    sql.execute("CREATE INDEX t_hash ON t(payload_simhash(x))")
    sql.execute("INSERT INTO t VALUES('one'), ('two')")
    assert one(sql, "SELECT x FROM t WHERE payload_simhash(x) = payload_simhash('TWO')") == "two"
