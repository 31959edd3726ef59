"""blackbox_install and blackbox_check."""
import json
import re
import sqlite3

import pytest

from conftest import MODULE, ROOT, connect, one, problems, rows, shell, some


def test_install_says_what_is_there_and_again_changes_nothing(path):
    db = connect(path)
    for call in "('main', 'all')", "()", "('main')", "(NULL, NULL)":
        found = one(db, f"SELECT blackbox_install{call}")
        if call == "('main', 'all')":
            changes = db.total_changes
            version = one(db, "PRAGMA schema_version")
        assert found == "main: cache, core, evidence, payload, report, retention, rollout, store"
        assert one(db, "PRAGMA schema_version") == version
        assert db.total_changes == changes


def test_install_without_a_list_is_core_and_payload_and_mends_what_is_there(path):
    db = connect(path)
    assert one(db, "SELECT blackbox_install()") == "main: core, payload"
    assert one(db, "SELECT blackbox_install('main', 'cache')") == "main: cache, core, payload"
    db.execute("DROP VIEW payload_unpins")
    db.execute("DROP INDEX cache_items_age")
    assert one(db, "SELECT blackbox_install()") == "main: cache, core, payload"
    assert one(db, "SELECT count(*) FROM payload_unpins") == 0
    assert one(db, "SELECT count(*) FROM sqlite_schema WHERE name = 'cache_items_age'") == 1


def test_a_missing_domain_is_named_with_the_line_that_installs_it(path):
    db = connect(path)
    one(db, "SELECT blackbox_install()")
    for domain, call in (("cache", "cache_stats()"), ("rollout", "rollout_flush()"),
                         ("retention", "retention_sweep()")):
        with pytest.raises(sqlite3.Error, match="NotInstalledError") as told:
            one(db, "SELECT " + call)
        line = f"SELECT blackbox_install('main', '{domain}')"
        assert line in str(told.value)
        assert domain in one(db, line)
        one(db, "SELECT " + call)


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
    with pytest.raises(sqlite3.OperationalError, match="there is no domain 'x'; name some of core, payload, .*report, with"):
        db.execute("SELECT blackbox_install('main', 'core, x')")


@pytest.mark.parametrize(
    "schema, message",
    [("temp", "temp cannot hold"), ("nowhere", "there is no schema 'nowhere'")],
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
        db.execute("SELECT blackbox_install('main', 'all')")


def test_install_refuses_newer_schema_and_changes_nothing(db):
    db.execute("UPDATE blackbox_domains SET format = 99 WHERE domain = 'core'")
    db.execute("DROP TRIGGER blackbox_settings_insert")
    with pytest.raises(sqlite3.OperationalError, match="VersionError.*99"):
        db.execute("SELECT blackbox_install()")
    assert rows(db, "SELECT 1 FROM sqlite_schema WHERE name = 'blackbox_settings_insert'") == []
    (_, _, told), = rows(db, "SELECT * FROM blackbox_check WHERE object = 'core'")
    assert "VersionError: schema main has format 99 of core" in told


def test_check_finds_dropped_and_changed_guard_and_install_mends_it(db):
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.execute("DROP TRIGGER blackbox_settings_insert")
    db.execute("DROP TRIGGER blackbox_settings_rename")
    db.execute(
        "CREATE TRIGGER blackbox_settings_rename AFTER UPDATE ON "
        "blackbox_settings BEGIN SELECT 1; END"
    )
    found = dict(rows(db, "SELECT object, problem FROM blackbox_check"))
    assert "missing" in found["blackbox_settings_insert"]
    assert "differs from" in found["blackbox_settings_rename"]
    one(db, "SELECT blackbox_install()")
    assert problems(db) == []


REPAIRS = "SELECT domain, subject, detail FROM blackbox_log WHERE kind = 'repair'"


def test_the_log_tells_what_an_install_made_anew(db):
    db.execute("DROP TRIGGER payload_delete_guard")
    db.execute("DROP VIEW payload_pins")
    db.execute("DROP TRIGGER payload_unpin")
    db.execute("CREATE TRIGGER payload_unpin INSTEAD OF INSERT ON payload_unpins "
               "BEGIN SELECT 1; END")
    db.execute("DROP TRIGGER cache_insert")
    told = [
        ("payload", "schema of payload", '{"missing":"trigger payload_delete_guard, view '
         'payload_pins","changed":"trigger payload_unpin"}'),
        ("cache", "schema of cache", '{"missing":"trigger cache_insert","changed":""}')]
    for _ in range(2):
        one(db, "SELECT blackbox_install()")
        assert rows(db, REPAIRS) == told
        assert len(rows(db, "SELECT * FROM blackbox_check")) == 2 and problems(db) == []
    assert rows(db, "SELECT * FROM proof_verify WHERE problem NOT GLOB 'schema of *'") == []


LOSSES = [
    "DELETE FROM blackbox_domains WHERE domain = 'payload'", "DELETE FROM blackbox_domains",
    "DELETE FROM retention_rules", "DELETE FROM blackbox_places", "DELETE FROM rollout_formats",
    "UPDATE retention_rules SET \"view\" = 'mine' WHERE rule = 'payload.age'",
    "DROP INDEX payload_by_age", "DROP INDEX blackbox__log_subject", "DROP INDEX rec_time",
    "DROP TABLE cache_state", "DROP TABLE blackbox_domains", "DROP TABLE retention_rules",
    "DROP VIEW retention_refusals", "DROP TABLE blackbox_secrets",
    "DROP TABLE blackbox_settings", "UPDATE payload__state SET bytes = 5",
    "DROP TRIGGER blackbox_settings_rename; UPDATE blackbox_settings SET \"default\" = 5",
    "DROP TRIGGER payload_made_columns", "DELETE FROM retention__clock",
    "DROP TRIGGER payload_delete_guard; DELETE FROM blackbox_domains"]


@pytest.mark.parametrize("loss", some(LOSSES, 5))
def test_what_check_advises_to_install_is_in_the_log_afterwards(db, loss):
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("CREATE VIRTUAL TABLE rec USING evidence_buffer")
    db.execute("ALTER TABLE event_payloads ADD COLUMN note TEXT")
    one(db, "SELECT blackbox_install()")
    one(db, "SELECT proof_head()")
    before = one(db, "SELECT count(*) FROM blackbox_log")
    index = one(db, "SELECT name FROM sqlite_schema WHERE name GLOB 'rec_time*'")
    db.executescript(loss.replace("rec_time", index))
    told = {name for name, problem in rows(db, "SELECT object, problem FROM blackbox_check")
            if "run blackbox_install()" in problem}
    one(db, "SELECT blackbox_install()")
    log = str(rows(db, "SELECT subject, detail FROM blackbox_log WHERE n > ?", before))
    assert told and not {name for name in told if name not in log}
    assert problems(db) == []
    one(db, "SELECT blackbox_install()")
    assert str(rows(db, "SELECT subject, detail FROM blackbox_log WHERE n > ?", before)) == log


@pytest.mark.parametrize("value", [1, 99999])
def test_the_log_tells_of_a_value_that_an_install_set_back(db, value):
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = 'payload.retention_days'",
               (value,))
    db.execute("PRAGMA ignore_check_constraints = OFF")
    one(db, "SELECT blackbox_install()")
    assert [row[0] for row in rows(db, "SELECT detail FROM blackbox_log")] == (
        ['{"missing":"","changed":"rows of blackbox_settings"}'] if value > 365 else [])


def test_a_domain_whose_row_is_lost_is_repaired_on_record(db):
    db.execute("DELETE FROM blackbox_domains WHERE domain = 'payload'")
    db.execute("DROP TRIGGER payload_delete_guard")
    one(db, "SELECT blackbox_install()")
    assert [row[2] for row in rows(db, REPAIRS)] == [
        '{"missing":"trigger payload_delete_guard, row blackbox_domains \'payload\'",'
        '"changed":""}']


@pytest.mark.parametrize("loss", ["DELETE FROM retention_rules WHERE rule = 'cache.idle'",
                                  "DROP INDEX payload_by_age", ""])
def test_check_is_silent_after_a_repair_where_no_guard_was_lost(path, loss):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'cache,payload')")
    db.executescript(loss)
    one(db, "SELECT blackbox_install()")
    one(db, "SELECT blackbox_install('main', 'all')")
    assert rows(db, REPAIRS) == rows(db, "SELECT * FROM blackbox_check") == []
    assert [kind for kind, in rows(db, "SELECT kind FROM blackbox_log")] == ["restore"] * bool(loss)


MADE = [
    ("blackbox_domains", "1"),
    ("blackbox_settings", "name GLOB 'payload.*'"),
    ("retention_rules", "rule = 'cache.idle'"),
    ("payload__state", "1"),
    ("cache_state", "1"),
    ("rollout__act", "1"),
    ("blackbox_places", "kind = 'preamble'"),
]


@pytest.mark.parametrize("table, where", some(MADE))
def test_check_finds_rows_that_are_gone_and_install_brings_them_back(
    db, table, where
):
    select = f"SELECT * FROM {table} ORDER BY 1"
    if table == "blackbox_places":
        select = ("SELECT format, source, kind, type, conditions, place FROM blackbox_places "
                  "ORDER BY 1, 2, 3, 4, 5, 6")
    if table == "rollout__act":
        select = "SELECT id, rule, search FROM rollout__act"
    before = rows(db, select)
    db.execute("DROP TRIGGER blackbox_settings_delete")
    db.execute(f"DELETE FROM {table} WHERE {where}")
    gone = len(before) - len(rows(db, select))
    found = rows(db, "SELECT problem FROM blackbox_check WHERE object = ? "
                 "AND problem GLOB 'row * is missing*'", table)
    assert len(found) == gone > 0
    one(db, "SELECT blackbox_install()")
    assert rows(db, select) == before
    assert problems(db) == []


def test_the_totals_of_a_lost_row_are_counted_anew(db):
    session = "conv_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES('cache.total_quota_bytes', 99)")
    one(db, "SELECT cache_write(?, 'task0001', 'turn0001', '12345', 'd')", session)
    db.execute("DELETE FROM cache_state")
    with pytest.raises(sqlite3.DatabaseError, match="run blackbox_install"):
        one(db, "SELECT cache_quota_check(?, 1)", session)
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT bytes FROM cache_state") == [(5,)]
    assert rows(db, "SELECT total_quota FROM cache__limits") == [(99,)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_changes_that_the_user_may_make_are_not_reported(db):
    db.execute("INSERT INTO rollout_policy(preset, item_type) VALUES('mine', '*')")
    db.execute("ALTER TABLE cache_items ADD COLUMN note TEXT")
    db.execute("UPDATE blackbox_settings SET value = 9 WHERE name = 'payload.retention_days'")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("table", some([
    "blackbox_domains", "payload__state", "cache_state", "evidence_owners", "rollout__act",
    "retention_rules"]))
def test_check_sees_a_table_that_was_dropped_and_install_makes_it(db, table):
    select = f"SELECT * FROM {table}".replace("* FROM rollout", "id, rule FROM rollout")
    made = rows(db, select)
    db.execute(f"DROP TABLE {table}")
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert (table, "table is missing; run blackbox_install()") in found
    one(db, "SELECT blackbox_install()")
    assert sorted(rows(db, select)) == sorted(made)
    assert problems(db) == []


def test_install_works_with_an_untrusted_schema(path):
    db = connect(path)
    db.execute("PRAGMA trusted_schema = OFF")
    one(db, "SELECT blackbox_install('main', 'all')")
    problems = rows(db, "SELECT problem FROM blackbox_check")
    # Before 3.41 the check itself needs what SQLite takes for unsafe there.
    assert all("unsafe use of" in p for p, in problems)
    assert sqlite3.sqlite_version_info < (3, 41) or problems == []
    db.execute("PRAGMA trusted_schema = ON")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_check_can_be_limited_to_one_schema(db):
    assert rows(db, "SELECT * FROM blackbox_check('MAIN')") == []
    for name in "nowhere", "", 5:
        with pytest.raises(sqlite3.Error, match="NotFound|ValidationError"):
            rows(db, "SELECT * FROM blackbox_check(?)", name)


OURS_WITHOUT_COMPUTED = (
    "CREATE TABLE cache_items(id INTEGER PRIMARY KEY, session_id, task_id, turn_id, "
    "timestamp, description, custom_metadata, data, protected")


@pytest.mark.parametrize("create, what", [
    ("CREATE TABLE cache_items(x)", "table cache_items of another program"),
    (OURS_WITHOUT_COMPUTED + ")", "table cache_items of another program"),
    (OURS_WITHOUT_COMPUTED + ", storage_key UNIQUE, data_size)",
     "table cache_items of another program"),
    ("CREATE VIEW cache_sessions AS SELECT 1", "cache_sessions"),
    ("CREATE VIEW rollout_log AS SELECT 1", "view rollout_log of another program"),
    ("CREATE TABLE t(x); CREATE INDEX rollout_recent ON t(x)",
     "index rollout_recent of another program"),
    ("CREATE TABLE retention_log(x)", "table retention_log of another program"),
    ("CREATE VIEW blackbox__log AS SELECT 1", "view blackbox__log of another program"),
    ("CREATE TABLE blackbox_domains(x)", "table blackbox_domains of another program"),
])
@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_install_names_what_is_in_the_way_and_leaves_nothing(
    path, create, what, begin
):
    db = connect(path)
    db.executescript(create)
    before = rows(db, "SELECT * FROM sqlite_schema")
    db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match=what):
        one(db, "SELECT blackbox_install('main', 'all')")
    assert rows(db, "SELECT * FROM sqlite_schema") == before


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_install_as_a_row_leaves_nothing_when_it_fails(path, begin):
    db = connect(path)
    db.execute("CREATE TABLE cache_items(x)")
    db.execute(begin)
    with pytest.raises(sqlite3.OperationalError, match="MisuseError|of another program"):
        db.execute("INSERT INTO blackbox_call(command, arguments) "
                   "VALUES('blackbox_install', '[\"main\", \"all\"]')")
    if begin:
        db.execute("COMMIT")
    assert rows(db, "SELECT name FROM sqlite_schema") == [("cache_items",)]


def test_install_as_a_row_inside_a_transaction_when_all_is_there(db):
    db.execute("BEGIN")
    db.execute("INSERT INTO blackbox_call(command) VALUES('blackbox_install')")
    db.execute("COMMIT")


def test_install_inside_a_transaction_rolls_back(path):
    db = connect(path)
    db.execute("BEGIN")
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("ROLLBACK")
    assert rows(db, "SELECT name FROM sqlite_schema") == []
    one(db, "SELECT blackbox_install('main', 'all')")
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_sql_files_run_alone_and_are_what_install_makes(path, tmp_path):
    plain = tmp_path / "plain.db"
    for _ in range(2):
        for name in ["core"] + sorted(
            (f.stem for f in (ROOT / "sql").glob("*.sql")
             if f.stem not in ("core", "rollout_search")  # which is installed on request
             and "@_" not in f.read_text()),  # a template
            key=lambda stem: (stem.endswith("_check"), stem)
        ):
            text = (ROOT / "sql" / (name + ".sql")).read_text()
            assert shell(plain, stdin="PRAGMA synchronous = OFF;\n" + text) == ""
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    select = "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"
    literal = r"'[^']*'|\"[^\"]*\""

    def words(file):
        """The objects without white space, which the module leaves out, and the literals."""
        return [(type, name, sql and re.sub(r"\s", "", sql), re.findall(literal, sql or ""))
                for type, name, sql in rows(file, select)]

    assert words(sqlite3.connect(plain)) == words(db)
    assert not any(re.search(r"\W\s|\s\W", re.sub(literal, "''", sql))
                   for _, _, sql in rows(db, select) if sql)
    assert rows(connect(plain), "SELECT * FROM blackbox_check") == []
    assert one(connect(plain), "SELECT blackbox_install()") and rows(
        sqlite3.connect(plain), "SELECT * FROM blackbox_log WHERE kind IN ('repair', 'restore')") == []


def test_second_load_is_a_no_op_also_while_a_statement_is_active(path):
    db = connect(path)
    cursor = db.execute("VALUES(1),(2),(3)")
    next(cursor)
    db.enable_load_extension(True)
    db.load_extension(MODULE)
    assert list(cursor) == [(2,), (3,)]
    assert db.execute("SELECT load_extension(?)", (MODULE,)).fetchone() == (None,)


def test_the_version_is_that_of_the_header(db):
    header = (ROOT / "ext/blackbox.h").read_text()
    assert f'BLACKBOX_VERSION "{one(db, "SELECT blackbox_version()")}"' in header


def test_a_row_of_blackbox_call_runs_a_command(path):
    db = connect(path)
    db.execute(
        "INSERT INTO blackbox_call(command, arguments) "
        "VALUES('blackbox_install','[\"main\", \"core\"]')"
    )
    assert one(db, "SELECT count(*) FROM blackbox_domains") == 1


@pytest.mark.parametrize("data", [
    "true", "false", "1", "2.5", '{"a":[true,null]}', "[]", r'"a\\u0000b"',
    r'["\u0000"]',
])
def test_a_row_of_blackbox_call_passes_every_kind_of_json_value(db, data):
    call = "INSERT INTO blackbox_call(command, arguments) VALUES(?,?)"
    given = data if data[0] != '"' else json.dumps(data)
    db.execute(call, ("cache_write", f'["conv_0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",'
                      f' "task0001", "turn0001", {given}, "d"]'))
    assert one(db, "SELECT data FROM cache_items") == data


@pytest.mark.parametrize("arguments", [None, "[]", "[null]", "[null, null]"])
def test_a_row_of_blackbox_call_needs_no_arguments(path, arguments):
    db = connect(path)
    db.execute("INSERT INTO blackbox_call VALUES('blackbox_install', ?)", (arguments,))
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT count(*) FROM blackbox_domains") == 2


@pytest.mark.parametrize(
    "command, arguments, message",
    [
        ("nope", None, "there is no command 'nope'"),
        (None, None, "command must be text"),
        ("blackbox_version", None, "does not change data"),
        ("blackbox_install", "{}", "JSON array"),
        ("blackbox_install", '"main"', "JSON array"),
        ("blackbox_install", str(list(range(17))), "JSON array of at most 16"),
        ("payload_cleanup", "[true]", "days must be a number.*'true'"),
        ("payload_cleanup", "[[7]]", r"days must be a number.*'\[7\]'"),
        ("blackbox_install", r'["ma\u0000in"]', "schema must be .* NUL"),
        ("blackbox_install", r'["main", "\ud800"]', "argument 2 .*surrogate"),
        ("blackbox_install", '{"a":1}', "JSON array"),
        ("blackbox_install", "not json", "malformed JSON"),
        ("blackbox_install", "[1,2,3]", "wrong number of arguments"),
    ],
)
def test_a_row_of_blackbox_call_refuses_bad_commands_and_arguments(
        path, command, arguments, message):
    db = connect(path)
    call = "INSERT INTO blackbox_call(command, arguments) VALUES(?,?)"
    if command == "payload_cleanup":
        one(db, "SELECT blackbox_install('main', 'all')")
    with pytest.raises(sqlite3.Error, match=message):
        db.execute(call, (command, arguments))


def test_two_installs_are_ambiguous_until_blackbox_use(path, tmp_path):
    db = connect(path)
    one(db, "SELECT blackbox_install('main', 'all')")
    db.execute("ATTACH ? AS other", (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('other')")
    assert one(db, "SELECT blackbox_use('other')") == "other"
    with pytest.raises(sqlite3.OperationalError, match="NotFoundError"):
        db.execute("SELECT blackbox_use('temp')")


@pytest.mark.parametrize("before", [
    "PRAGMA query_only = ON", "SELECT count(*) FROM rollouts", "SELECT 1"])
def test_install_of_what_is_whole_needs_no_lock(db, path, before):
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    db.execute(before).fetchall()
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE more(x)")
    assert "rollout" in one(db, "SELECT blackbox_install()")
    other.execute("COMMIT")
    assert "rollout" in one(db, "SELECT blackbox_install()")


def test_install_of_what_is_not_whole_says_that_it_cannot_lock(db, path):
    db.execute("PRAGMA busy_timeout = 0")
    db.execute("DROP VIEW payload_unpins")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    db.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        db.execute("SELECT blackbox_install()")


def test_check_examines_the_virtual_tables_of_temp(path):
    db = connect(path)
    assert rows(db, "SELECT * FROM blackbox_check('temp')") == []
    db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring")
    assert rows(db, "SELECT * FROM blackbox_check('Temp')") == []
