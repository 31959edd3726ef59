"""The tables of a virtual table never get names of blackbox."""
import sqlite3

import pytest

from conftest import connect, one, rows

NAMES = ("ring_", "payload", "Cache", "blackbox", "rollout__", "blackbox_call", "Blackbox_x",
         "payload_queue", "proof", "payload__x", "STORE__x")


def refused(db, sql, name):
    for begin, end in ("SELECT 1", "SELECT 1"), ("BEGIN", "COMMIT"):
        db.execute(begin)
        with pytest.raises(sqlite3.OperationalError, match=f"ValidationError.*named '{name}'"):
            db.execute(sql)
        db.execute(end)


@pytest.mark.parametrize("module", ["payload_ring", "evidence_buffer"])
@pytest.mark.parametrize("schema", ["main", "temp", 'a "b'])
def test_a_virtual_table_cannot_have_a_name_of_blackbox(path, module, schema):
    db = connect(path)  # with few domains: each refusal reads the schemas again
    db.execute("PRAGMA synchronous = OFF")
    one(db, "SELECT blackbox_install('main', 'payload,evidence,rollout')")
    db.execute("ATTACH ? AS ?", (str(path) + "2", 'a "b'))
    if schema == 'a "b':
        one(db, "SELECT blackbox_install(?, 'payload,evidence')", schema)
    quoted = '"' + schema.replace('"', '""') + '"'
    before = rows(db, f"SELECT name FROM {quoted}.sqlite_schema")
    for name in NAMES:
        refused(db, f'CREATE VIRTUAL TABLE {quoted}."{name}" USING {module}', name)
    assert rows(db, f"SELECT name FROM {quoted}.sqlite_schema") == before
    db.execute(f"CREATE VIRTUAL TABLE {quoted}.mine USING {module}")
    for name in NAMES:
        refused(db, f'ALTER TABLE {quoted}.mine RENAME TO "{name}"', name)
    db.execute(f"ALTER TABLE {quoted}.mine RENAME TO _payload__x")
    assert one(db, f"SELECT count(*) FROM {quoted}._payload__x") == 0
    for name in "payload_mine", "blackboxes", "proofs":
        db.execute(f"CREATE VIRTUAL TABLE {quoted}.{name} USING {module}")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    db.close()
    assert rows(connect(path), "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("schema", ["main", "temp", 'a "b'])
@pytest.mark.parametrize("sql", ["TABLE {}.blackbox_call(x)", "VIEW {}.Blackbox_Call AS SELECT 1"])
def test_check_names_what_hides_the_commands(db, path, schema, sql):
    db.execute("ATTACH ? AS ?", (str(path) + "2", 'a "b'))
    db.execute("CREATE " + sql.format('"' + schema.replace('"', '""') + '"'))
    (found,) = rows(db, "SELECT schema, object, problem FROM blackbox_check")
    assert found[:2] == (schema, "blackbox_call") and found[2].startswith(
        f"this {sql[:5].strip().lower()} is not")
    db.execute(f"DROP {sql[:5]} " + '"' + schema.replace('"', '""') + '".blackbox_call')
    assert rows(db, "SELECT * FROM blackbox_check") == []
