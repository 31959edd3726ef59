"""Texts are packed in pieces and read back as they were, and pieces go with the last text."""
import hashlib
import re
import sqlite3

import pytest

from conftest import by_hand, connect, load, one, rows
from store_helpers import add, erase, make_notes, noise, pack, stats, texts, whole, words


@pytest.fixture
def notes(db):
    return make_notes(db)


def packed(db):
    """How many values of notes are references."""
    return one(db, "SELECT sum(typeof(a) = 'blob' AND substr(a, 1, 4) = x'b1627801')"
                   " + sum(typeof(b) = 'blob' AND substr(b, 1, 4) = x'b1627801') FROM notes")


ODD = {
    "short": "brief",
    "null": None,
    "number": 12.5,
    "text": words(1, 5000),
    "repeated": "a" * 100_000,
    "blob": noise(1, 5000),
    "zeros": bytes(40_000),
    "with NUL": "x\0" * 500,
    "not ASCII": "éß漢🙂" * 300,
    "exactly short": "y" * 127,
    "exactly long": "y" * 128,
    "large": noise(2, 3_000_000),
}


@pytest.mark.parametrize("begin", [False, True])
def test_values_are_read_as_they_were_given(notes, begin):
    for id, value in enumerate(ODD.values()):
        add(notes, id, value, value)
    before = texts(notes)
    if begin:
        notes.execute("BEGIN")
    pack(notes)
    if begin:
        notes.execute("COMMIT")
    assert packed(notes) == 2 * 8
    assert texts(notes) == before == rows(
        connect(notes.execute("PRAGMA database_list").fetchone()[2]),
        "SELECT id, store_text(a), store_text(b) FROM notes ORDER BY id")
    whole(notes)


def test_bytes_that_are_no_text_are_read_as_they_were(notes):
    notes.execute("INSERT INTO notes VALUES(1, CAST(? AS TEXT), NULL)", (noise(3, 9000),))
    pack(notes)
    assert one(notes, "SELECT typeof(store_text(a)) = 'text' AND CAST(store_text(a) AS BLOB) = ?"
                      " FROM notes", noise(3, 9000))


def test_the_hash_of_a_reference_is_the_sha_256_of_that_of_its_pieces(notes):
    for id in range(128, 513):
        add(notes, id, noise(id, id))  # short ones are one piece
    pack(notes)
    for id, reference in rows(notes, "SELECT id, a FROM notes"):
        piece = hashlib.sha256(noise(id, id)).digest()
        assert reference[4:36] == hashlib.sha256(b"\4" + piece).digest(), id


def test_more_rows_than_one_statement_writes_are_packed(notes):
    for id in range(150):
        add(notes, id, f"{id} is a number. " * 30, f"{id} again. " * 40 if id % 3 else None)
    before = texts(notes)
    assert '"rows":150,"texts":250' in pack(notes)
    assert texts(notes) == before
    whole(notes)


def test_a_host_that_limits_parameters_packs_fewer_rows_at_once(notes):
    if not hasattr(notes, "setlimit"):
        pytest.skip("Python before 3.11 sets no limits")
    for id in range(40):
        add(notes, id, f"{id} is a number. " * 30, f"{id} again. " * 40)
    before = texts(notes)
    notes.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 10)
    assert '"rows":40,"texts":80' in pack(notes)
    assert texts(notes) == before
    whole(notes)


def test_to_pack_again_changes_nothing(notes):
    add(notes, 1, words(1, 9000))
    pack(notes)
    reference = one(notes, "SELECT a FROM notes")
    assert '"rows":0' in pack(notes)
    assert one(notes, "SELECT a FROM notes") == reference


def test_what_a_text_shares_with_others_is_kept_once(notes):
    text = words(1, 200_000)
    add(notes, 1, text)
    pack(notes)
    once = stats(notes)["kept_bytes"]
    for id in range(2, 30):
        add(notes, id, text[:id * 1000] + "inserted" + text[id * 1000:] + "appended")
        pack(notes, id)
    assert stats(notes)["text_bytes"] > 29 * 200_000
    assert stats(notes)["kept_bytes"] < 1.9 * once
    whole(notes)


def test_small_calls_fill_a_pack_as_one_large_call_does(notes):
    for id in range(60):
        add(notes, id, noise(id, 12_000))
        pack(notes, id)
    assert stats(notes)["packs"] == 3
    whole(notes)


def test_a_blob_that_looks_like_a_reference_is_none(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    reference = one(notes, "SELECT a FROM notes")
    for other in (reference[:-1], reference + b"0", reference[:10] + b"\0" + reference[11:],
                  reference[:36] + b"2", reference[:36], b"\xb1bx\x01", reference + b"x" * 300):
        assert one(notes, "SELECT store_text(?)", other) == other
    add(notes, 2, reference[:36] + b"77", reference + b"x" * 300)
    pack(notes, 2)
    assert texts(notes)[1] == (2, reference[:36] + b"77", reference + b"x" * 300)
    whole(notes)


def test_a_reference_of_another_store_stays_as_it_is(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    reference = one(notes, "SELECT a FROM notes")
    assert one(connect(), "SELECT store_text(?)", reference) == reference


# ---------------------------------------------------------------- sweep ----


def test_pieces_go_with_the_last_text_that_has_them(notes):
    base = words(1, 50_000)
    for id in range(8):
        add(notes, id, base + words(100 + id, 5000), noise(id, 3000))
    pack(notes)
    kept = texts(notes)
    full = stats(notes)
    notes.execute("DELETE FROM notes WHERE id IN (0, 3, 7)")
    assert stats(notes)["dropped"] == 6
    assert stats(notes)["dropped_bytes"] == full["text_bytes"] - stats(notes)["text_bytes"]
    assert one(notes, "SELECT store_sweep()") == 6
    assert texts(notes) == [note for note in kept if note[0] not in (0, 3, 7)]
    whole(notes)
    left = stats(notes)
    notes.execute("UPDATE notes SET a = store_text(a), b = store_text(b)")
    one(notes, "SELECT store_sweep()")
    assert set(stats(notes).values()) == {0}
    pack(notes)
    assert stats(notes)["piece_bytes"] == left["piece_bytes"]
    whole(notes)


def test_a_sweep_is_bounded_and_goes_on(notes):
    for id in range(10):
        add(notes, id, noise(id, 2000))
    pack(notes)
    notes.execute("DELETE FROM notes")
    assert [one(notes, "SELECT store_sweep(4)") for _ in range(4)] == [4, 4, 2, 0]
    assert set(stats(notes).values()) == {0}


def test_a_text_that_is_named_is_never_swept(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    notes.execute("INSERT INTO store_dropped SELECT text FROM store__texts")
    assert one(notes, "SELECT store_sweep()") == 0
    assert texts(notes) == [(1, words(1, 5000), None)]
    assert stats(notes)["dropped"] == 0
    whole(notes)


def test_erase_removes_row_and_pieces_in_one_statement(notes, path):
    secret, shared = noise(7, 4000), noise(8, 4000)
    notes.execute("PRAGMA secure_delete = ON")
    notes.execute("PRAGMA journal_mode = WAL")
    add(notes, 1, secret + shared, noise(6, 3000))
    add(notes, 2, noise(9, 3000) + shared)
    pack(notes)
    notes.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert any(secret[i:i + 64] in path.read_bytes() for i in range(0, 3900, 16))
    assert erase(notes, 1) == 1
    whole(notes)
    notes.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes() + path.with_name(path.name + "-wal").read_bytes()
    assert not any(secret[i:i + 64] in data for i in range(0, len(secret) - 64, 16))
    assert texts(notes) == [(2, noise(9, 3000) + shared, None)]
    assert erase(notes, 1) == 0


def test_an_erasure_that_is_refused_changes_nothing(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    notes.execute("CREATE TRIGGER keep BEFORE DELETE ON event_payloads BEGIN"
                  " SELECT RAISE(ABORT, 'kept'); END")
    with pytest.raises(sqlite3.IntegrityError, match="kept"):
        erase(notes, 1)
    assert texts(notes) == [(1, words(1, 5000), None)]
    assert stats(notes)["dropped"] == 0
    notes.execute("DROP TRIGGER keep")
    whole(notes)


# --------------------------------------------------------------- guards ----


def test_a_text_that_nobody_sweeps_any_more_is_found(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    notes.execute("DELETE FROM notes")
    notes.execute("DELETE FROM store_dropped")
    assert [problem for _, _, problem in rows(notes, "SELECT * FROM blackbox_check")] == [
        "text 1 is named by no reference; INSERT INTO store_dropped(text) VALUES(1), and SELECT"
        " store_sweep()"]


def test_without_the_module_rows_are_deleted_and_counted(notes, path):
    add(notes, 1, words(1, 5000))
    add(notes, 2, words(2, 5000))
    pack(notes)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("DELETE FROM notes WHERE id = 1")
    assert other.execute("SELECT dropped FROM store_stats").fetchone() == (1,)
    other.execute("CREATE TABLE mine(x)")
    other.execute("ALTER TABLE mine RENAME COLUMN x TO y")
    other.execute("ALTER TABLE mine RENAME TO yours")
    other.close()
    assert one(notes, "SELECT store_sweep()") == 1
    whole(notes)


def test_a_store_with_texts_is_not_removed(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    for force in ("", ", 'force'"):
        with pytest.raises(sqlite3.IntegrityError, match="NotEmptyError: the body store"):
            one(notes, f"SELECT blackbox_uninstall('main', 'store'{force or ', NULL'})")
    assert erase(notes, 1) == 1
    one(notes, "SELECT blackbox_uninstall('main', 'store', 'force')")
    assert one(notes, "SELECT count(*) FROM sqlite_schema WHERE name GLOB 'store_*' AND name <> 'store_dropped'") == 0


# --------------------------------------------------------------- damage ----


def break_pack(path, pack):
    """Damages a pack as a program does that turned the guards off."""
    by_hand(path, "UPDATE store__packs SET data ="
                  f" CAST(replace(data, substr(data, 40, 8), x'0000000000000000') AS BLOB)"
                  f" WHERE pack = {pack}")


def test_a_damaged_pack_names_its_rows_and_leaves_the_others_readable(notes, path):
    for id in range(4):
        add(notes, id, noise(id, 262_000))
    pack(notes)
    assert stats(notes)["packs"] == 4
    break_pack(path, 2)
    db = connect(path)
    for id in range(4):
        sql = f"SELECT store_text(a) FROM notes WHERE id = {id}"
        if id == 1:
            with pytest.raises(sqlite3.DatabaseError,
                               match="CorruptedDataError: pack 2 .* the rows concerned: '1';"):
                one(db, sql)
        else:
            assert one(db, sql) == noise(id, 262_000)
    told = [problem for _, _, problem in rows(db, "SELECT * FROM blackbox_check")]
    assert any("a reference in row '1' cannot be read" in problem for problem in told)
    assert not any("row '0'" in problem or "row '2'" in problem for problem in told)
    assert erase(db, 2) == 1
    assert erase(db, 1) == 1
    one(db, "SELECT blackbox_install()")
    whole(db)


def test_a_damaged_pack_with_pieces_of_others_is_not_written_again(notes, path):
    shared = noise(1, 20_000)
    add(notes, 1, shared)
    add(notes, 2, shared + noise(2, 9000))
    pack(notes)
    break_pack(path, 1)
    db = connect(path)
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: pack 1"):
        erase(db, 2)
    assert rows(db, "SELECT id FROM notes") == [(1,), (2,)]


def test_only_the_beginning_of_a_pack_is_needed_for_a_text_that_is_there(notes, path):
    for id in range(2):
        add(notes, id, noise(id, 100_000))
    pack(notes)
    assert stats(notes)["packs"] == 1
    by_hand(path, "UPDATE store__packs SET data ="
                  " CAST(substr(data, 1, 190000) || zeroblob(200) || substr(data, 190201) AS BLOB) WHERE pack > 0")
    for ids in (0, 1), (1, 0):
        db = connect(path)
        for id in ids:
            if id == 0:
                assert one(db, "SELECT store_text(a) FROM notes WHERE id = 0") == noise(0, 100_000)
            else:
                with pytest.raises(sqlite3.DatabaseError, match="pack 1 of the body store in schema"
                                                                " main is damaged; the rows"):
                    one(db, "SELECT store_text(a) FROM notes WHERE id = 1")


def test_bytes_that_changed_where_nothing_else_tells_name_their_pack(notes, path):
    for id in range(2):
        add(notes, id, noise(id, 100_000))
    pack(notes)
    by_hand(path, "UPDATE store__packs SET data ="
                  " CAST(substr(data, 1, 5000) || zeroblob(9) || substr(data, 5010) AS BLOB) WHERE pack > 0")
    db = connect(path)
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: pack 1 .* is damaged; the"
                                                    " rows concerned: '0', '1'; all others"):
        one(db, "SELECT store_text(a) FROM notes WHERE id = 0")


def test_more_of_a_pack_is_read_when_it_is_wanted(notes, path):
    values = [noise(id, 40_000) for id in range(6)]
    for id, value in enumerate(values):
        add(notes, id, value)
    pack(notes)
    assert stats(notes)["packs"] == 1
    db = connect(path)
    for id in 1, 0, 3, 2, 5, 4:
        assert one(db, "SELECT store_text(a) FROM notes WHERE id = ?", id) == values[id]


def test_pieces_of_a_damaged_pack_are_packed_anew(notes, path):
    text = noise(1, 30_000)
    add(notes, 1, text)
    pack(notes)
    break_pack(path, 1)
    db = connect(path)
    add(db, 3, text + noise(3, 3000))
    pack(db, 3)  # the damaged pack is the one that had room
    assert one(db, "SELECT store_text(a) FROM notes WHERE id = 3") == text + noise(3, 3000)
    assert erase(db, 1) == 1
    add(db, 4, noise(4, 3000) + text)
    before = stats(db)["piece_bytes"]
    pack(db, 4)
    assert stats(db)["piece_bytes"] - before < 12_000  # those of text 3 are found
    assert texts(db)[1] == (4, noise(4, 3000) + text, None)
    one(db, "SELECT blackbox_install()")
    whole(db)


def test_a_piece_is_not_taken_from_a_place_that_has_other_bytes(notes, path):
    add(notes, 1, noise(1, 400), noise(2, 400))  # one piece each, of the same length
    pack(notes)
    by_hand(path, "UPDATE store__pieces SET place ="
                  " (SELECT min(place) + max(place) FROM store__pieces) - place")
    db = connect(path)
    add(db, 2, noise(2, 400), noise(1, 400))
    pack(db, 2)
    assert texts(db) == [(1, noise(1, 400), noise(2, 400)), (2, noise(2, 400), noise(1, 400))]
    assert stats(db)["piece_bytes"] == 1600
    add(db, 3, noise(1, 400), noise(2, 400))
    pack(db, 3)  # the places are right again
    assert stats(db)["piece_bytes"] == 1600
    one(db, "SELECT blackbox_install()")
    whole(db)
    for id in 1, 2, 3:
        assert erase(db, id) == 1
    assert one(db, "SELECT count(*) FROM store__pieces") == 0


def change_list(path, hex):
    by_hand(path, f"UPDATE store__packs SET data = x'{hex}' WHERE pack < 0")


def test_a_list_that_is_longer_than_the_pack_that_was_read_is_found(notes, path):
    add(notes, 1, noise(1, 400))
    pack(notes)
    assert texts(notes) == [(1, noise(1, 400), None)]
    change_list(path, "9003010000" * 300)
    told = [problem for _, _, problem in rows(notes, "SELECT * FROM blackbox_check")]
    assert any("the list of pack 1 in store__packs was changed without" in t for t in told)
    add(notes, 2, noise(2, 3000) + noise(1, 400))
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: the list of pack 1"):
        erase(notes, 1)


def test_lengths_that_are_not_those_of_the_pack_that_was_read_are_found(notes, path):
    add(notes, 1, noise(1, 400))
    add(notes, 2, noise(2, 300))
    pack(notes)
    before = texts(notes)
    change_list(path, "ac02010000" "9003010000")
    with pytest.raises(sqlite3.DatabaseError, match="CorruptedDataError: the list of pack 1"):
        erase(notes, 1)
    assert any("was changed without its pack" in problem for _, _, problem in
               rows(notes, "SELECT * FROM blackbox_check"))
    keys = [hashlib.sha256(noise(n, size)).hexdigest()[:4]
            for n, size in ((1, 400), (2, 300))]
    change_list(path, "900301{}ac0201{}".format(*keys))
    assert texts(notes) == before
    assert erase(notes, 1) == 1


def test_a_list_that_claims_more_than_a_pack_can_have_is_refused_at_once(notes, path):
    add(notes, 1, noise(1, 400))
    pack(notes)
    change_list(path, "9003010000" + "8040010000" * 40)
    with pytest.raises(sqlite3.DatabaseError, match="pack 1 .* is damaged; the rows"):
        texts(connect(path))


def test_a_trigger_that_reads_packs_does_not_disturb_a_sweep(notes):
    add(notes, 0, noise(0, 8000))
    for id in range(1, 18):
        add(notes, id, noise(id, 250_000))
    pack(notes)
    notes.execute("CREATE TEMP TRIGGER reads AFTER DELETE ON main.store__pieces "
                  "BEGIN SELECT store_text(a) FROM notes WHERE id > 1; END")
    assert erase(notes, 0) == 1
    assert texts(notes) == [(id, noise(id, 250_000), None) for id in range(1, 18)]
    notes.execute("DROP TRIGGER reads")
    whole(notes)


@pytest.mark.parametrize("damage, told", [
    ("UPDATE store__texts SET recipe = x'0302007f'", "names pieces"),
    ("UPDATE store__texts SET recipe = x'05'", "recipe"),
    ("UPDATE store__texts SET mark = x'0000000000000000'", "another hash"),
    ("UPDATE store__packs SET data = x'ff' WHERE pack < 0", "list of pack"),
    ("DELETE FROM store__packs WHERE pack > 0", "missing|no pack"),
    ("DELETE FROM store__packs WHERE pack < 0", "has no list"),
    ("DELETE FROM store__texts", "lacks"),
    ("UPDATE store__state SET texts = 7", "totals"),
    ("DELETE FROM payload__packed WHERE text = 1; DELETE FROM store_dropped", "named by no reference"),
])
def test_the_check_finds_what_was_done_to_the_tables(notes, path, damage, told):
    for id in 1, 2:
        add(notes, id, words(id, 5000))
    pack(notes)
    by_hand(path, damage)
    found = [problem for _, _, problem in rows(connect(path), "SELECT * FROM blackbox_check")
             if "run blackbox_install()" not in problem]
    assert found
    assert any(re.search(told, problem) for problem in found), found


def test_a_reference_that_was_changed_is_found_by_its_row(notes):
    add(notes, 1, words(1, 5000))
    add(notes, 2, words(2, 5000))
    pack(notes)
    one_, two = [row[0] for row in notes.execute("SELECT a FROM notes ORDER BY id")]
    forged = one_[:12] + two[12:36] + one_[36:]
    notes.execute("UPDATE payload__packed SET ref = ? WHERE key = '1'", (forged,))
    notes.execute("UPDATE event_payloads SET request_body = ? WHERE id = 1", (forged,))
    told = [problem for _, _, problem in rows(notes, "SELECT * FROM blackbox_check")]
    assert told == ["a reference in row '1' names a text that has another hash"]


# -------------------------------------------------------- transactions ----


def test_a_rollback_takes_everything_back(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    add(notes, 2, words(2, 5000))
    before = texts(notes), stats(notes)
    notes.execute("BEGIN")
    pack(notes)
    assert texts(notes) == before[0]
    notes.execute("ROLLBACK")
    assert (texts(notes), stats(notes)) == before
    notes.execute("SAVEPOINT here")
    notes.execute("DELETE FROM notes WHERE id = 1")
    one(notes, "SELECT store_sweep()")
    notes.execute("ROLLBACK TO here")
    notes.execute("RELEASE here")
    assert (texts(notes), stats(notes)) == before
    add(notes, 3, words(3, 5000))
    pack(notes)
    assert texts(notes)[2] == (3, words(3, 5000), None)
    whole(notes)


def test_what_another_connection_packs_is_read(notes, path):
    other = connect(path)
    for id in range(5):
        add(notes, id, words(id, 3000))
        pack(notes)
        assert texts(other) == texts(notes)
        other.execute("DELETE FROM notes WHERE id % 2 = 0 AND id < ?", (id - 1,))
        one(other, "SELECT store_sweep()")
        assert texts(other) == texts(notes)
    whole(other)


@pytest.mark.parametrize("call", [
    "store_pack', '[\"[1]\"]", "store_sweep', '[]"])
def test_a_row_inside_a_transaction_is_refused(notes, call):
    add(notes, 1, words(1, 5000))
    notes.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="MisuseError: store_.* as a row inside"):
        notes.execute(f"INSERT INTO blackbox_call VALUES('{call}')")
    notes.execute("ROLLBACK")
    notes.execute(f"INSERT INTO blackbox_call VALUES('{call}')")
    whole(notes)


def test_texts_of_several_schemas_are_found(notes, tmp_path):
    name = "other \"files'"
    notes.execute(f"ATTACH ? AS \"{name.replace(chr(34), chr(34) * 2)}\"", (str(tmp_path / "o.db"),))
    one(notes, "SELECT blackbox_install(?, 'payload,store')", name)
    make_notes(notes, name)
    quoted = '"' + name.replace('"', '""') + '"'
    for id in range(3):
        add(notes, id, words(id, 3000))
        add(notes, id, words(10 + id, 3000), schema=name.replace('"', '""'))
    with pytest.raises(sqlite3.OperationalError, match="AmbiguousSchemaError"):
        pack(notes)
    for schema in "main", name:
        one(notes, "SELECT store_pack('[0,1,2]', ?)", schema)
    assert texts(notes) == [(id, words(id, 3000), None) for id in range(3)]
    assert rows(notes, f"SELECT store_text(a) FROM {quoted}.notes ORDER BY id") == \
        [(words(10 + id, 3000),) for id in range(3)]
    assert erase(notes, 1, name) == 1
    assert one(notes, f"SELECT count(*) FROM {quoted}.notes") == 2
    whole(notes)


def test_a_view_reads_texts_where_the_schema_is_not_trusted(notes):
    add(notes, 1, words(1, 5000))
    pack(notes)
    notes.execute("CREATE VIEW readable AS SELECT id, store_text(a) AS a FROM notes")
    notes.execute("PRAGMA trusted_schema = OFF")
    assert rows(notes, "SELECT * FROM readable") == [(1, words(1, 5000))]
    add(notes, 2, words(2, 5000))
    pack(notes)
    notes.execute("DELETE FROM notes WHERE id = 1")
    assert one(notes, "SELECT store_sweep()") == 1
    notes.execute("PRAGMA trusted_schema = ON")
    whole(notes)


# --------------------------------------------------------------- copies ----


def test_copies_of_the_file_read_the_same(notes, tmp_path):
    for id in range(6):
        add(notes, id, words(id, 9000), noise(id, 2000))
    pack(notes)
    notes.execute("DELETE FROM notes WHERE id = 2")
    want = texts(notes)
    notes.execute("VACUUM INTO ?", (str(tmp_path / "into.db"),))
    backup = sqlite3.connect(tmp_path / "backup.db")
    notes.backup(backup)
    backup.close()
    restored = sqlite3.connect(tmp_path / "restored.db")
    restored.executescript("\n".join(notes.iterdump()))
    restored.close()
    for name in "into.db", "backup.db", "restored.db":
        copy = connect(tmp_path / name)
        assert texts(copy) == want
        assert one(copy, "SELECT store_sweep()") == 2
        add(copy, 9, words(9, 5000))
        pack(copy, 9)
        assert texts(copy) == [*want, (9, words(9, 5000), None)]
        whole(copy)
        copy.close()


# ------------------------------------------------------------ arguments ----


@pytest.mark.parametrize("sql, told", [
    ("store_pack('oops')", "ValidationError: keys must be a JSON array: malformed JSON"),
    ("store_pack('[]', 'nowhere')", "NotInstalledError: schema nowhere"),
    ("store_sweep(0)", "ValidationError: limit"),
    ("store_sweep('x')", "ValidationError: limit"),
    ("store_sweep(1, 'nowhere')", "NotInstalledError: schema nowhere"),
])
def test_bad_arguments_are_refused(notes, sql, told):
    with pytest.raises(sqlite3.Error, match=told):
        one(notes, "SELECT " + sql)


def test_nothing_is_read_before_the_module_says_so():
    db = load(sqlite3.connect(":memory:", isolation_level=None))
    with pytest.raises(sqlite3.OperationalError, match="NotInstalledError"):
        one(db, "SELECT store_sweep()")
