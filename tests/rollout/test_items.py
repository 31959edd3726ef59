"""rollout_append() finds the same parts in the text of an item as SQLite's JSON functions."""
import random
import sqlite3

import pytest

from rollout_helpers import ID, create, one, rows

SPACES = ["", " ", "\n", "\t \r\n"]
NAMES = ["type", "payload", "timestamp", "role", "x", "typ", "type ", "",
         'q\\"uote', "back\\\\", "x\\u0079"]
STRINGS = ['""', '"compacted"', '"message"', '"user"', '"a\\"b"', '"\\\\"',
           '"\\\\\\""', '"{"', '"]}"', '","', '"é😀"', '"\\u00e9"', '"com\\u0070acted"',
           '"' + "n" * 100 + '"', '"' + "n" * 101 + '"', '"1999-12-31T00:00:00Z"']
OTHERS = ["0", "-1.5E+3", "1700000000000", "true", "false", "null"]


def value(dice, depth):
    pick = dice.random()
    if depth == 0 or pick < 0.5:
        return dice.choice(STRINGS + OTHERS)
    space = lambda: dice.choice(SPACES)
    if pick < 0.8:
        inside = ",".join(
            f'{space()}"{dice.choice(NAMES)}"{space()}:{space()}'
            f"{value(dice, depth - 1)}{space()}" for _ in range(dice.randrange(5)))
        return "{" + (inside or space()) + "}"
    inside = ",".join(f"{space()}{value(dice, depth - 1)}{space()}"
                      for _ in range(dice.randrange(4)))
    return "[" + (inside or space()) + "]"


def item(dice):
    """An item, mostly a valid one."""
    members = [f'"{dice.choice(NAMES)}":{value(dice, 2)}'
               for _ in range(dice.randrange(3))]
    members.append('"type" : ' + dice.choice(STRINGS[1:4] + STRINGS[10:14]))
    if dice.random() < 0.8:
        members.append('"payload":' + dice.choice(SPACES) + value(dice, 3))
    dice.shuffle(members)
    return dice.choice(SPACES) + "{" + " ,".join(members) + "}" + dice.choice(SPACES)


def expected(db, text):
    """(type, payload without white space, time or None) by SQLite alone; None
    for an item that must be refused."""
    kind, typed, payload, stamp = db.execute(
        "SELECT json_type(?1, '$.type'), ?1 ->> 'type', ?1 -> 'payload', "
        "CASE json_type(?1, '$.timestamp') WHEN 'integer' THEN ?1 ->> 'timestamp' "
        "WHEN 'text' THEN strftime('%s', ?1 ->> 'timestamp') * 1000 END",
        (text,)).fetchone()
    if kind != "text" or typed == "" or len(typed) > 100:
        return None
    return typed, payload, 12345 if stamp is None or stamp < 0 else stamp


@pytest.mark.parametrize("seed", range(8))
def test_items_are_read_as_sqlite_reads_them(db, seed):
    dice = random.Random(seed)
    db.execute("REPLACE INTO blackbox_settings(name, value) VALUES('rollout.policy', 'everything')")
    one(db, "SELECT rollout_create(?, NULL, NULL, NULL, 12345)", ID)
    wanted, kept = [], 0
    for _ in range(60):
        texts = [item(dice) for _ in range(dice.randrange(1, 5))]
        whole = texts[0] if len(texts) == 1 else "[" + ",".join(texts) + "]"
        each = [expected(db, text) for text in texts]
        if None in each:
            with pytest.raises(sqlite3.IntegrityError, match="Invalid item format"):
                one(db, "SELECT rollout_append(?, ?, 12345)", ID, whole)
            continue
        assert one(db, "SELECT rollout_append(?, ?, 12345)", ID, whole) == len(each)
        wanted += each
        kept += 1
    assert kept > 10
    found = rows(db, "SELECT type, json(payload), timestamp FROM rollout_items "
                 "WHERE rollout = ? AND sequence > 0 ORDER BY sequence", ID)
    assert found == [
        (t, one(db, "SELECT json(?)", p) if p else None, at) for t, p, at in wanted]
    assert rows(db, "SELECT * FROM blackbox_check()") == []


def test_payloads_keep_every_byte(db):
    create(db)
    payloads = [' {"a" : 1.0e5,\n"a":"\\u00e9\\"}" } ', " [ 1 , 2 ] ", '"}],{"', "-0.0"]
    text = ",".join('{"type": "compacted", "payload":%s}' % p for p in payloads)
    assert one(db, "SELECT rollout_append(?, ?)", ID, f" [ {text} ] ") == 4
    assert rows(db, "SELECT payload FROM rollout_items WHERE rollout = ? AND "
                "sequence > 0", ID) == [(p.strip(),) for p in payloads]


def test_user_messages_are_seen_however_they_are_written(db):
    create(db)
    for message, number in (
            ('{"type":"message","role":"user","content":"a"}', 1),
            ('{"content":"b","role" : "user","type":"message"}', 2),
            ('{"type":"message","role":"us\\u0065r","content":"c"}', 3),
            ('{"type":"message","r\\u006fle":"user","content":"d"}', 4),
            ('{"type":"message","r\\u006fle":"x","role":"user","content":"e"}', 4)):
        one(db, "SELECT rollout_append(?, ?)", ID,
            '[{"type":"response_item","payload":%s}]' % message)
        assert one(db, "SELECT turns FROM rollouts WHERE id = ?", ID) == number


def test_a_conversation_comes_in_order_without_a_sort(db):
    create(db)
    one(db, "SELECT rollout_append(?, ?)", ID, '[%s]' % ",".join(
        ['{"type":"compacted","payload":{}}'] * 20))
    fork = one(db, "SELECT rollout_fork(?)", ID)
    one(db, "SELECT rollout_append(?, ?)", fork, '{"type":"compacted","payload":{}}')
    query = "SELECT sequence FROM rollout_items WHERE rollout = ?"
    assert rows(db, query, fork) == [(i,) for i in range(22)]
    for more in "", " LIMIT 3":
        for sql in query + more, "SELECT rollout, sequence FROM rollout_items" + more:
            plan = db.execute("EXPLAIN QUERY PLAN " + sql, (fork,) * sql.count("?"))
            assert not [row for row in plan if "TEMP B-TREE" in row[3]]


@pytest.mark.parametrize("seed", range(4))
def test_no_text_gets_in_that_json_valid_refuses(db, seed):
    """Texts that are almost JSON: some are accepted by the fast test, others are left to
    json_valid()."""
    dice = random.Random(seed)
    db.execute("REPLACE INTO blackbox_settings(name, value) VALUES('rollout.policy', 'everything')")
    create(db)
    marks = list('{}[],:"\\-0.eE+ \n\t\x01\x7fé') + [
        "true", "nul", "01", "1.", "\\u00e9", "\\u12", "\\x", "//", "'a'", "NaN"]
    verdicts = []
    for _ in range(2500):
        text = '{"type":"x","payload":%s}' % value(dice, dice.randrange(6))
        for _ in range(dice.randrange(4)):
            i = dice.randrange(len(text) + 1)
            text = text[:i] + dice.choice(marks) + text[i + dice.randrange(2):]
        valid = one(db, "SELECT json_valid(?)", text)
        try:
            one(db, "SELECT rollout_append(?, ?)", ID, text)
            assert valid, text
        except sqlite3.Error as error:
            assert not valid or "malformed" not in str(error), text
        verdicts.append(valid)
    assert 400 < sum(verdicts) < 2400
