"""blackbox_install, the settings, and blackbox_check."""
import sqlite3

import pytest

from conftest import MODULE, ROOT, connect, one, rows, shell


def test_install_says_what_is_there_and_again_changes_nothing(path):
    db = connect(path)
    first = one(db, "SELECT blackbox_install()")
    assert first.startswith("main: ") and "core" in first
    changes = db.total_changes
    version = one(db, "PRAGMA schema_version")
    assert one(db, "SELECT blackbox_install()") == first
    assert one(db, "PRAGMA schema_version") == version
    assert db.total_changes == changes


def test_install_into_attached_schema_with_quoted_name(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('a \"b')")
    assert one(db, 'SELECT count(*) FROM "a ""b".blackbox_domains') >= 1
    assert rows(db, "SELECT name FROM main.sqlite_schema") == []
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_install_some_domains(path):
    db = connect(path)
    assert one(db, "SELECT blackbox_install('main', 'core')") == "main: core"
    with pytest.raises(sqlite3.OperationalError, match="no domain named 'x'"):
        db.execute("SELECT blackbox_install('main', 'core, x')")


@pytest.mark.parametrize(
    "schema, message",
    [("temp", "temp cannot hold"), ("nowhere", "no schema named 'nowhere'")],
)
def test_install_refuses_schema(path, schema, message):
    db = connect(path)
    with pytest.raises(sqlite3.OperationalError, match=message):
        db.execute("SELECT blackbox_install(?)", (schema,))


def test_install_refuses_utf16(path):
    db = connect(path)
    db.execute("PRAGMA encoding = 'UTF-16'")
    db.execute("CREATE TABLE t(x)")
    with pytest.raises(sqlite3.OperationalError, match="EncodingError"):
        db.execute("SELECT blackbox_install()")


def test_install_refuses_newer_schema_and_changes_nothing(db):
    db.execute("UPDATE blackbox_domains SET version = 99 WHERE domain = 'core'")
    db.execute("DROP TRIGGER blackbox_settings_insert")
    with pytest.raises(sqlite3.OperationalError, match="VersionError.*99"):
        db.execute("SELECT blackbox_install()")
    assert "blackbox_settings_insert" in str(rows(db, "SELECT * FROM blackbox_check"))


def test_check_finds_dropped_and_changed_guard_and_install_mends_it(db):
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute("DROP TRIGGER blackbox_settings_insert")
    db.execute("DROP TRIGGER blackbox_settings_update")
    db.execute(
        "CREATE TRIGGER blackbox_settings_update AFTER UPDATE ON "
        "blackbox_settings BEGIN SELECT 1; END"
    )
    found = dict(rows(db, "SELECT object, problem FROM blackbox_check"))
    assert "missing" in found["blackbox_settings_insert"]
    assert "not as" in found["blackbox_settings_update"]
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_install_inside_a_transaction_rolls_back(path):
    db = connect(path)
    db.execute("BEGIN")
    one(db, "SELECT blackbox_install()")
    db.execute("ROLLBACK")
    assert rows(db, "SELECT name FROM sqlite_schema") == []
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_sql_files_run_alone_and_are_what_install_makes(path, tmp_path):
    plain = tmp_path / "plain.db"
    for _ in range(2):
        for name in ["core"] + sorted(
            f.stem for f in (ROOT / "sql").glob("*.sql") if f.stem != "core"
        ):
            text = (ROOT / "sql" / (name + ".sql")).read_text()
            assert shell(plain, stdin=text) == ""
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    select = "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"
    assert rows(sqlite3.connect(plain), select) == rows(db, select)


def test_settings_are_checked_by_the_schema_without_the_module(db, path):
    plain = sqlite3.connect(path)
    db.execute(
        "INSERT INTO blackbox_setting_defs VALUES"
        "('x.int','integer',5,1,9,NULL,'m'),('x.real','real',0.5,0,1,NULL,'m'),"
        "('x.word','choice','a',NULL,NULL,'a, b','m')"
    )
    put = "INSERT OR REPLACE INTO blackbox_settings VALUES(?,?)"
    for name, value in [
        ("x.int", 0), ("x.int", 10), ("x.int", "5"), ("x.int", 5.5),
        ("x.real", "abc"), ("x.word", "c"), ("x.word", ""), ("x.word", "a, b"),
        ("x.word", 1), ("nope", 1),
    ]:
        with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
            plain.execute(put, (name, value))
    plain.execute(put, ("x.int", 7))
    plain.execute(put, ("x.real", 0.25))
    plain.execute(put, ("x.word", "b"))
    with pytest.raises(sqlite3.IntegrityError, match="out of range"):
        plain.execute("UPDATE blackbox_settings SET value=99 WHERE name='x.int'")
    plain.commit()
    assert rows(db, "SELECT value, \"default\", range FROM blackbox_limits "
                "WHERE name='x.int'") == [(7, 5, "1 to 9")]
    plain.execute(put, ("x.int", 3.0))  # as JavaScript says 3
    plain.commit()
    assert rows(db, "SELECT value, typeof(value) FROM blackbox_limits "
                "WHERE name='x.int'") == [(3, "integer")]


def test_second_load_is_a_no_op_also_while_a_statement_is_active(path):
    db = connect(path)
    cursor = db.execute("VALUES(1),(2),(3)")
    next(cursor)
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    assert list(cursor) == [(2,), (3,)]
    assert db.execute("SELECT load_extension(?)", (MODULE,)).fetchone() == (None,)


def test_version_and_debug(db):
    version = one(db, "SELECT blackbox_version()")
    assert version in one(db, "SELECT blackbox_debug()")
    assert sqlite3.sqlite_version in one(db, "SELECT blackbox_debug()")


def test_call_row_runs_a_command(path):
    db = connect(path)
    db.execute(
        "INSERT INTO blackbox_call(command, arguments) "
        "VALUES('blackbox_install','[\"main\", \"core\"]')"
    )
    assert one(db, "SELECT count(*) FROM blackbox_domains") == 1


@pytest.mark.parametrize(
    "command, arguments, message",
    [
        ("nope", None, "no command named 'nope'"),
        (None, None, "command must be text"),
        ("blackbox_version", None, "only reads"),
        ("blackbox_install", "{}", None),
        ("blackbox_install", '{"a":1}', "JSON array"),
        ("blackbox_install", "not json", "malformed JSON"),
        ("blackbox_install", "[1,2,3]", "wrong number of arguments"),
    ],
)
def test_call_row_refuses(path, command, arguments, message):
    db = connect(path)
    call = "INSERT INTO blackbox_call(command, arguments) VALUES(?,?)"
    if message is None:
        db.execute(call, (command, arguments))
        return
    with pytest.raises(sqlite3.Error, match=message):
        db.execute(call, (command, arguments))


def test_ambiguous_until_use(path, tmp_path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('other')")
    assert one(db, "SELECT blackbox_use('other')") == "other"
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError"):
        db.execute("SELECT blackbox_use('temp')")
