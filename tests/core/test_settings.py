"""blackbox_settings: every way of setting, what is refused, and who keeps what."""
import sqlite3

import pytest

from conftest import connect, install_into, one, rows

SET = {
    "update": "UPDATE {s} SET value = ? WHERE name = ?",
    "insert": "INSERT INTO {s}(value, name) VALUES(?, ?)",
    "or replace": "INSERT OR REPLACE INTO {s}(value, name) VALUES(?, ?)",
    "replace": "REPLACE INTO {s}(value, name) VALUES(?, ?)",
    "upsert": "INSERT INTO {s}(value, name) VALUES(?, ?)"
              " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
}
# A setting of each kind of range: what is allowed at its limits, and what is not.
KINDS = {
    "payload.retention_days": ([1, 365, "30", 3.0, "7.0"],
                               [0, 366, 1.5, "x", "", "1 to 3", b"5", None, 9e99, -1]),
    "cache.max_age_days": ([0, 36500, 0.5, "0.25"], [-0.001, 36500.5, "x", "", b"5", None]),
    "payload.on_loop": (["off", "record", "kill_switch"],
                        ["of", "", " ", ",", "off, record", "Off", 0, b"off", None]),
    "rollout.policy": (["codex", "everything"], ["nope", "", 1, b"codex", None]),
}

class Place:
    """A schema with every domain, on a connection of one kind."""

    def __init__(self, db, schema):
        self.db, self.table = db, f"{schema}.blackbox_settings"

    def set(self, how, name, value):
        self.db.execute(SET[how].format(s=self.table), (value, name))

    def value(self, name):
        return one(self.db, f"SELECT value FROM {self.table} WHERE name = ?", name)

    def all(self):
        return rows(self.db, f"SELECT * FROM {self.table} ORDER BY name")


@pytest.fixture(params=["module", "plain", "attached", "untrusted"])
def place(request, db, path, tmp_path):
    if request.param == "attached":
        install_into(tmp_path / "other.db")
        db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
        yield Place(db, '"a ""b"')
    elif request.param == "plain":
        plain = sqlite3.connect(path, isolation_level=None)
        yield Place(plain, "main")
        plain.close()
    else:
        db.execute(f"PRAGMA trusted_schema = {int(request.param != 'untrusted')}")
        yield Place(db, "main")


@pytest.mark.parametrize("begin", ["", "BEGIN"])
@pytest.mark.parametrize("how", SET)
def test_every_way_sets_and_delete_gives_the_default_back(place, how, begin):
    place.db.execute(f"PRAGMA recursive_triggers = {int(not begin)}")
    before = place.all()
    place.db.execute(begin)
    place.set(how, "payload.retention_days", 30)
    assert place.value("payload.retention_days") == 30
    assert place.all() == [(name, 30 if name == "payload.retention_days" else value, *others)
                           for name, value, *others in before]
    place.db.execute(f"DELETE FROM {place.table} WHERE name = 'payload.retention_days'")
    assert place.all() == before
    place.set(how, "payload.retention_days", 30)
    place.set(how, "cache.on_quota", "evict_oldest")
    place.db.execute(f"DELETE FROM {place.table}")
    assert place.all() == before
    place.set(how, "cache.idle_ms", 5)
    if begin:
        place.db.execute("ROLLBACK")
        assert place.all() == before


@pytest.mark.parametrize("name", KINDS)
def test_the_range_says_what_is_allowed(place, name):
    allowed, refused = KINDS[name]
    for how in SET:
        for value in allowed:
            place.set(how, name, value)
            number = value if name in ("payload.on_loop", "rollout.policy") else float(value)
            assert place.value(name) == number
        before = place.all()
        for value in refused:
            with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
                place.set(how, name, value)
            assert place.all() == before, value


@pytest.mark.parametrize("begin", ["", "BEGIN"])
def test_an_unknown_name_is_refused(place, begin):
    before = place.all()
    place.db.execute(begin)
    for how in SET:
        for name in "payload.nope", "nope", "", None, 1, "PAYLOAD.ENABLED":
            if how != "update":  # which meets no row
                with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*no such"):
                    place.set(how, name, 1)
            else:
                place.set(how, name, 1)
            assert place.all() == before


def test_a_refused_row_takes_the_whole_statement_back(place):
    before = place.all()
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*range"):
        place.db.execute(f"INSERT INTO {place.table}(name, value) VALUES"
                         " ('payload.enabled', 1), ('payload.retention_days', 0)")
    assert place.all() == before


@pytest.mark.parametrize("sql", [
    "UPDATE {s} SET name = 'payload.other' WHERE name = 'payload.enabled'",
    "UPDATE OR REPLACE {s} SET name = 'payload.pack' WHERE name = 'payload.enabled'",
    "UPDATE {s} SET name = 'x', value = 1 WHERE name = 'payload.enabled'",
])
def test_a_setting_cannot_be_renamed(place, sql):
    before = place.all()
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError.*cannot be changed"):
        place.db.execute(sql.format(s=place.table))
    assert place.all() == before


@pytest.mark.parametrize("how", SET)
def test_what_is_set_is_in_force_at_once(place, how):
    """The tables that domains compute from their settings follow."""
    prefix = place.table[:-len("blackbox_settings")]
    for name, value, sql, says in (
            ("payload.retention_days", 3, "SELECT kept_ms FROM {}payload__state", 3 * 86400000),
            ("payload.history_until", 7, "SELECT since FROM {}payload__state", 7),
            ("payload.max_bytes", 99, "SELECT cap FROM {}payload__state", 99),
            ("cache.total_quota_bytes", 9, "SELECT total_quota FROM {}cache__limits", 9)):
        before = one(place.db, sql.format(prefix))
        place.set(how, name, value)
        assert one(place.db, sql.format(prefix)) == says != before
        place.db.execute(f"DELETE FROM {place.table} WHERE name = ?", (name,))
        assert one(place.db, sql.format(prefix)) == before


def test_defensive_mode_allows_to_set(db):
    if not hasattr(db, "setconfig"):
        pytest.skip("this Python cannot set defensive mode")
    db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    place = Place(db, "main")
    for how in SET:
        place.set(how, "payload.enabled", 1)
        assert place.value("payload.enabled") == 1
        db.execute("DELETE FROM blackbox_settings")
        assert place.value("payload.enabled") == 0


DEFINE = "{} INTO {{s}} VALUES('{}', 99999, 1, '1 to 9999999', 'x')"


@pytest.mark.parametrize("sql", [
    DEFINE.format("REPLACE", "payload.retention_days"),
    DEFINE.format("INSERT", "payload.retention_days") +
    " ON CONFLICT DO UPDATE SET range = excluded.range, value = 99999",
    DEFINE.format("INSERT", "payload.other"),
    DEFINE.format("INSERT", "user.other"),
    """UPDATE {s} SET range = '1 to 400' WHERE name = 'payload.retention_days'""",
    """UPDATE {s} SET "default" = 8 WHERE name = 'payload.retention_days'""",
    """UPDATE {s} SET meaning = 'x', value = 8 WHERE name = 'payload.retention_days'""",
])
def test_only_a_domain_defines_settings(place, sql):
    before = place.all()
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError"):
        place.db.execute(sql.format(s=place.table))
    assert place.all() == before


def test_a_saved_table_of_settings_is_restored(place):
    place.set("update", "payload.retention_days", 30)
    place.db.execute(f"CREATE TEMP TABLE saved AS SELECT * FROM {place.table}")
    place.db.execute(f"DELETE FROM {place.table}")
    place.db.execute(f"REPLACE INTO {place.table} SELECT * FROM temp.saved")
    assert place.all() == rows(place.db, "SELECT * FROM temp.saved ORDER BY name")
    assert place.value("payload.retention_days") == 30


@pytest.mark.parametrize("trick", [
    "PRAGMA ignore_check_constraints = ON; UPDATE blackbox_settings SET value = 99999"
    " WHERE name = 'payload.retention_days'; PRAGMA ignore_check_constraints = OFF",
    "UPDATE blackbox__probe SET hit = 2; UPDATE blackbox_settings SET value = 99999,"
    " \"default\" = 99998, range = '1 to 9999999' WHERE name = 'payload.retention_days';"
    " UPDATE blackbox__probe SET hit = 0",
])
def test_install_gives_a_value_out_of_range_its_default(db, trick):
    before = rows(db, "SELECT * FROM blackbox_settings WHERE name <> 'payload.pack'")
    db.execute("UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.pack'")
    db.executescript(trick)
    assert rows(db, "SELECT 1 FROM blackbox_check WHERE object = 'blackbox_settings'")
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert rows(db, "SELECT * FROM blackbox_settings WHERE name <> 'payload.pack'") == before
    assert one(db, "SELECT value FROM blackbox_settings WHERE name = 'payload.pack'") == 1
    with pytest.raises(sqlite3.IntegrityError, match="cannot be changed"):
        db.execute("UPDATE blackbox_settings SET range = 'x'")


def test_install_again_keeps_values_and_mends_definitions(db):
    before = rows(db, "SELECT * FROM blackbox_settings")
    db.execute("UPDATE blackbox_settings SET value = 30 WHERE name = 'payload.retention_days'")
    for column, value in ("default", 8), ("range", "1 to 400"), ("meaning", "other"):
        db.execute("UPDATE blackbox__probe SET hit = 2")
        db.execute(f'UPDATE blackbox_settings SET "{column}" = ? '
                   "WHERE name = 'payload.retention_days'", (value,))
        assert rows(db, "SELECT object, problem FROM blackbox_check") == [
            ("blackbox_settings", "row 'payload.retention_days' differs from what "
             "blackbox_install() makes; run blackbox_install()")]
        one(db, "SELECT blackbox_install()")
        assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT value FROM blackbox_settings "
                   "WHERE name = 'payload.retention_days'") == 30
    db.execute("DELETE FROM blackbox_settings")
    assert rows(db, "SELECT * FROM blackbox_settings") == before


@pytest.mark.parametrize("name, value", [
    ("payload.retention_days", 0), ("payload.retention_days", "x"), ("payload.on_loop", "x")])
def test_check_finds_a_value_out_of_range(db, name, value):
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.execute("UPDATE blackbox_settings SET value = ? WHERE name = ?", (value, name))
    db.execute("PRAGMA ignore_check_constraints = OFF")
    found = rows(db, "SELECT object, problem FROM blackbox_check "
                     "WHERE object = 'blackbox_settings'")
    assert len(found) == 1 and "CHECK constraint failed" in found[0][1]
    db.execute("DELETE FROM blackbox_settings WHERE name = ?", (name,))
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("domain", ["cache", "evidence", "payload", "rollout"])
def test_uninstall_of_a_domain_takes_its_settings_alone(db, domain):
    db.execute("UPDATE blackbox_settings SET value = 5 WHERE name IN "
               "('payload.retention_days', 'cache.idle_ms', 'rollout.ttl_days',"
               " 'evidence.orphan_days')")
    before = rows(db, "SELECT * FROM blackbox_settings")
    needs = {"payload": "payload,store,report,proof,retention"}.get(domain, domain)
    one(db, "SELECT blackbox_uninstall('main', ?, 'force')", needs)
    left = [row for row in before if row[0].split(".")[0] not in needs.split(",")]
    assert rows(db, "SELECT * FROM blackbox_settings") == left != before
    one(db, "SELECT blackbox_install('main', 'all')")
    assert rows(db, "SELECT value = \"default\" FROM blackbox_settings "
                    "WHERE name GLOB ?", domain + ".*")[0] == (1,)
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_there_are_few_settings_and_each_is_described(db):
    found = rows(db, 'SELECT name, value, "default", range, meaning FROM blackbox_settings')
    assert 0 < len(found) <= 29
    for name, value, default, kind, meaning in found:
        assert value == default and kind and meaning
        db.execute("UPDATE blackbox_settings SET value = \"default\" WHERE name = ?", (name,))
