"""rollout.secrets: what is written of conversations that have secrets in them."""
import json
import sqlite3

import pytest

from conftest import connect, one, problems, rows
from rollout_helpers import ID, append, create, message, user

KEY = "sk-ant-api03-" + "a1B2c3D4" * 4
SHOWN = "[masked: Anthropic key]"


def mask(db, value="mask", schema="main"):
    db.execute(f"UPDATE {schema}.blackbox_settings SET value = ? WHERE name = 'rollout.secrets'", (value,))


def everything(db):
    """All that tables have, as one text."""
    tables = [name for name, in rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE '%fts5%'")]
    return "".join(str(rows(db, f'SELECT * FROM "{name}"')) for name in tables)


def claude(text, i=1):
    return json.dumps({"type": "user", "sessionId": ID, "uuid": f"u{i}", "timestamp": f"2026-01-01T00:00:0{i}Z",
                       "message": {"role": "user", "content": text}}) + "\n"


@pytest.mark.all_domains
@pytest.mark.parametrize("begin", (False, True))
@pytest.mark.parametrize("call", (False, True))
def test_what_is_appended_is_masked_also_in_all_that_follows_from_it(db, begin, call):
    mask(db)
    one(db, "SELECT rollout_search_install()")
    create(db)
    items = [user(f"use {KEY} \"now\""), message("assistant", f"{{\"password\":\"hunter22\"}} {KEY}")]
    if begin:
        db.execute("BEGIN")
    if call:
        db.execute("INSERT INTO main.blackbox_call(command, arguments) VALUES('rollout_append', ?)",
                   (json.dumps([ID, json.dumps(items)]),))
    else:
        assert append(db, ID, *items) == 2
    if begin:
        db.execute("COMMIT")
    found = [json.loads(payload) for payload, in rows(db, "SELECT payload FROM rollout_items WHERE sequence > 0 ORDER BY sequence")]
    assert found[0]["message"] == f"use {SHOWN} \"now\""
    assert found[1]["content"][0]["text"] == f"{{\"password\":\"[masked: password]\"}} {SHOWN}"
    assert KEY not in everything(db) and "hunter22" not in everything(db)
    assert rows(db, "SELECT * FROM rollout_search('hunter22')") == []
    assert problems(db) == []


@pytest.mark.all_domains
def test_what_is_imported_is_masked_and_a_file_that_grows_is_continued(db, tmp_path):
    mask(db)
    path = tmp_path / f"{ID}.jsonl"
    path.write_text(claude(f"use {KEY}"))
    told = [json.loads(one(db, "SELECT rollout_import_dir(?)", str(tmp_path)))]
    for i, text in enumerate((f"and {KEY}", "nothing", f"password: {KEY}"), 2):
        with path.open("a") as file:
            file.write(claude(text, i))
        told.append(json.loads(one(db, "SELECT rollout_import_dir(?)", str(tmp_path))))
    assert [report["new"] for report in told] == [1, 1, 1, 1]
    made = path.read_text().replace(KEY, SHOWN)
    made = made.replace(f"password: {SHOWN}", "password: [masked: password]")
    assert one(db, "SELECT rollout_export(id) FROM rollouts") in (made, made.encode())
    assert KEY not in everything(db) and problems(db) == []
    again = json.loads(one(db, "SELECT rollout_import(?, ?)", path.read_text(), str(path)))
    assert (again["items"], again["new"]) == (4, 0)


def test_the_setting_is_keep_unless_it_is_set(db):
    create(db)
    append(db, ID, user(KEY))
    one(db, "SELECT rollout_import(?)", claude(KEY))
    assert everything(db).count(KEY) >= 2
    with pytest.raises(sqlite3.IntegrityError, match="ValidationError: the value is not in the range"):
        mask(db, "drop")


@pytest.mark.all_domains
def test_an_item_of_the_conversations_own_format_is_masked(db):
    one(db, "SELECT rollout_import(?)", claude("hi"))
    rollout = one(db, "SELECT id FROM rollouts")
    mask(db)
    append(db, rollout, json.loads(claude(f"use {KEY}", 2)))
    assert KEY not in one(db, "SELECT rollout_export(?)", rollout) and SHOWN in one(db, "SELECT rollout_export(?)", rollout)


@pytest.mark.all_domains
@pytest.mark.parametrize("sql", ("SELECT rollout_create(?1, ?2, NULL, ?3)", "SELECT rollout_create(?1, NULL, NULL, ?4)",
                                 "SELECT rollout_create(?1, ?2)"))
def test_what_a_conversation_is_created_with_is_masked(db, sql):
    mask(db)
    meta = {"cwd": "/x", "title": f"use {KEY}"}
    values = (ID, f"mind {KEY}", json.dumps(meta), json.dumps({**meta, "instructions": f"mind {KEY}"}))
    one(db, sql, *values[:int(max(filter(str.isdigit, sql)))])
    assert json.loads(one(db, "SELECT payload FROM rollout_items"))["instructions"] == f"mind {SHOWN}"
    assert one(db, "SELECT title FROM rollouts") == (f"use {SHOWN}" if "NULL" in sql else None)
    assert KEY not in everything(db) and problems(db) == []


@pytest.mark.all_domains
def test_changed_rules_are_used_at_once(db, path):
    mask(db)
    create(db)
    add = "INSERT INTO blackbox_secrets(profile, name, anchor, after, least) VALUES('keys', 'ticket', 'TICKET-', '0-9', 4)"

    def shown():
        append(db, ID, user("TICKET-12345"))
        return json.loads(one(db, "SELECT payload FROM rollout_items ORDER BY sequence DESC LIMIT 1"))["message"]
    assert (shown(), shown()) == ("TICKET-12345", "TICKET-12345")
    db.execute("BEGIN")
    db.execute(add)
    assert shown() == "[masked: ticket]"
    db.execute("ROLLBACK")
    assert shown() == "TICKET-12345"
    db.execute("BEGIN")
    db.execute(add)
    db.execute("INSERT INTO main.blackbox_call(command, arguments) VALUES('rollout_append', ?)",
               (json.dumps([ID, json.dumps([user("TICKET-12345")])]),))
    db.execute("ROLLBACK")
    assert shown() == "TICKET-12345"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute(add)
    assert shown() == "[masked: ticket]"
    mask(db, "keep")
    assert shown() == "TICKET-12345"
    other.execute("UPDATE blackbox_secrets SET enabled = 0 WHERE name = 'ticket'")
    mask(db)
    assert shown() == "TICKET-12345"


@pytest.mark.all_domains
def test_without_rules_nothing_is_written(db):
    mask(db)
    create(db)
    db.execute("UPDATE blackbox_secrets SET enabled = 0")
    for sql, value in (f"SELECT rollout_append('{ID}', ?)", json.dumps(user("hi"))), ("SELECT rollout_import(?)", claude("hi")):
        with pytest.raises(sqlite3.Error, match="NotFoundError: rollout.secrets is mask, and no rule of blackbox_secrets is enabled"):
            one(db, sql, value)
    assert one(db, "SELECT count(*) FROM rollout_items WHERE sequence > 0") == 0
    mask(db, "keep")
    append(db, ID, user("hi"))


def test_the_rules_may_be_in_another_schema(tmp_path):
    db = connect()
    one(db, "SELECT blackbox_install('main', 'report')")
    db.execute("ATTACH ? AS \"the 'other'\"", (str(tmp_path / "b.db"),))
    one(db, "SELECT blackbox_install('the ''other''', 'rollout')")
    mask(db, schema="\"the 'other'\"")
    create(db)
    append(db, ID, user(KEY))
    assert json.loads(one(db, "SELECT payload FROM rollout_items WHERE sequence = 1"))["message"] == SHOWN
