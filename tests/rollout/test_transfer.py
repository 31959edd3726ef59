"""Export and import of JSON lines."""
import gzip
import json
import sqlite3
import subprocess
import sys

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, load, texts, user, well
from rollout_helpers import exported as exported_bytes
from conftest import DATA, ROOT, needs_data, one, rows


def line(kind, payload, at="2026-04-08T12:58:53.226Z"):
    return '{"timestamp":"%s","type":"%s","payload":%s}' % (at, kind, payload)


META = line("session_meta", '{"id":"%s","cwd":"/w","cli_version":"1"}' % ID)


def exported(db, rollout=ID):
    whole = one(db, "SELECT rollout_export(?)", rollout)
    assert whole.removesuffix("\n") == "\n".join(
        l for l, in rows(db, "SELECT line FROM rollout_export(?)", rollout))
    return whole


def test_export_and_import_return_the_same_lines(db):
    text = "\n".join([
        META, line("event_msg", '{"type":"user_message","message":"é\\u00e9 1.0e5"}'),
        line("odd_type", '{"a":1E+2,"a":[1.50,-0.0],"b":"\\/"}', "1999-12-31T23:59:59.999Z"),
        line("turn_context", "[]"), line("compacted", '"text"')]) + "\n"
    assert load(db, text) == {
        "rolloutId": ID, "rolloutIds": [ID], "format": "codex", "known": True, "lines": 5, "items": 5, "new": 5,
        "bad": 0, "errors": []}
    assert one(db, "SELECT count(before) + count(after) FROM rollout__data") == 0
    assert exported(db) == text
    assert rows(db, "SELECT created, updated, turns, cwd FROM rollouts") == [
        (1775653133226, 1775653133226, 1, "/w")]
    assert one(db, "SELECT expires_at FROM rollouts") is None
    well(db)


@pytest.mark.parametrize("payload", [
    '{ "a" : 1 }', '{"a":1 , "b" : [ 1,2 ]}', '{\t"x":"}" }',
    '{"payload": {"payload" : 2} }', '{"a": "\\"payload\\": {}"}', "{ }",
])
@pytest.mark.parametrize("form", [
    '{"timestamp":"2026-01-01T00:00:00.000Z","type":"x","payload":%s}',
    '{ "type" : "x" , "payload" : %s } ', '{"payload": %s, "type":"x", "n": {}}',
])
def test_import_keeps_white_space(db, payload, form):
    assert load(db, META + "\n" + form % payload)["items"] == 2
    assert texts(db, ID)[1] == (1, payload)


def test_damaged_lines_are_counted_and_named(db):
    lines = [
        b"garbage", META.encode(), b"", b"   ",
        b'{"type":"x","payload":"\xff"}', b'{"type":"x","payload":"a\x00b"}',
        b'{"type":"x","payload":{}}\r', b'{"type":"x","payload":{}', b'{"type":"x","payload":1}',
        b'{"type":"x","payload":{}} and more', b'{"type":"x","payl']
    report = load(db, b"\n".join(lines))
    assert report["rolloutId"] == ID and report["lines"] == len(lines)
    assert report["items"] == report["new"] == 5 and report["bad"] == 5
    assert [(e["line"], e["reason"].split(";")[0].split(":")[0]) for e in report["errors"]] == [
        (1, "not JSON"), (5, "bytes that are not UTF-8"), (6, "it has a NUL"), (8, "not JSON"), (10, "not JSON"),
        (11, "not JSON, and maybe cut off")]
    damaged = len(lines[0]) + len(lines[5]) + len(lines[7]) + len(" and more")
    assert ("damaged line", "", 5, damaged + len(lines[10]) - 1) in rows(
        db, "SELECT * FROM rollout_dropped(?)", ID)
    assert one(db, "SELECT rollout_export(?)", ID) == b"\n".join(lines)
    well(db)


@pytest.mark.parametrize("text, type, payload", [
    ('{"type":"x","id":1}', "x", '{"type":"x","id":1}'),
    ('{"payload":{}}', "unknown", '{"payload":{}}'),
    ('{"type":7,"payload":{}}', "unknown", '{"type":7,"payload":{}}'),
    ("[1]", "unknown", "[1]"), ("true", "unknown", "true"),
    ('{"type":"a\\u0000b","payload":1}', "unknown", '{"type":"a\\u0000b","payload":1}'),
    ('{"type":"a\\ud83d","payload":1}', "unknown", '{"type":"a\\ud83d","payload":1}'),
    ('{"type":"%s","payload":1}' % ("t" * 101), "unknown",
     '{"type":"%s","payload":1}' % ("t" * 101)),
])
def test_a_line_that_is_no_item_is_kept_whole(db, text, type, payload):
    whole = META + "\n" + text + "\n"
    assert load(db, whole)["bad"] == 0
    assert rows(db, "SELECT type, payload FROM rollout_items WHERE sequence = 1") == [
        (type, payload)]
    assert exported(db) == whole
    assert load(db, whole)["new"] == 0


def test_many_bad_lines_are_listed_up_to_100(db):
    report = load(db, META + "\n" + "x\n" * 250)
    assert report["bad"] == 250 and len(report["errors"]) == 100


BODY = [line("event_msg", '{"type":"user_message","message":"%s"}' % text, at)
        for text, at in (("x", "2026-01-01T00:00:00.000Z"), ("y", "2026-01-02T00:00:00.000Z"))]


@pytest.mark.parametrize("way", ["function", "begin", "row"])
def test_lines_without_a_session_meta_come_in_under_a_given_id(db, way):
    text = "\n".join(["junk", *BODY])
    if way == "begin":
        db.execute("BEGIN")
    if way == "row":
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?, ?, 5000))",
                   (text, ID))
    else:
        report = load(db, text, ID, 5000)
        assert (report["lines"], report["items"], report["new"], report["bad"]) == (3, 2, 2, 1)
    if way == "begin":
        db.execute("COMMIT")
    assert rows(db, "SELECT item_count, turns, created, updated, expires_at FROM rollouts") == [
        (3, 2, 1767225600000, 1767312000000, None)]
    meta = json.loads(texts(db, ID)[0][1])
    assert (meta["id"], meta["timestamp"]) == (ID, "2026-01-01T00:00:00.000Z")
    assert rows(db, "SELECT * FROM rollout_dropped(?)", ID) == [("damaged line", "", 1, 4)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_session_meta_further_on_is_that_of_the_conversation(db):
    text = "\n".join([BODY[0], META, BODY[1]])
    assert load(db, text)["rolloutIds"] == [ID]
    assert [json.loads(p).get("cwd") for _, p in texts(db, ID)] == ["/w", None, "/w", None]
    assert exported(db) == text
    assert load(db, text)["new"] == 0
    well(db)


def test_lines_without_a_session_meta_or_an_id_get_an_id_of_their_own(db):
    text = "\n".join(BODY) + "\n"
    made = load(db, text)["rolloutId"]
    assert exported(db, made) == text
    assert load(db, text + BODY[0].replace('"x"', '"z"'))["new"] == 1
    assert rows(db, "SELECT id, turns FROM rollouts") == [(made, 3)]
    with pytest.raises(sqlite3.Error, match="none of its 2 lines can be read"):
        load(db, "\n\n")
    with pytest.raises(sqlite3.Error, match="no format of rollout_formats"):
        load(db, "x\n")
    well(db)


def test_both_spellings_of_the_types_are_read(db):
    text = "\n".join([
        line("SessionMeta", '{"id":"%s","cliVersion":"2","modelProvider":"m"}' % ID),
        line("EventMsg", '{"type":"UserMessage","message":"hello"}')])
    load(db, text)
    assert rows(db, "SELECT cli_version, model_provider, first_user_message, turns "
                "FROM rollouts") == [("2", "m", "hello", 1)]


def test_an_import_can_be_repeated_and_done_in_pieces(db):
    text = META + "\n" + line("event_msg", '{"type":"user_message","message":"x"}')
    load(db, text)
    for args in ((), (ID,)):
        report = load(db, text, *args)
        assert (report["items"], report["new"]) == (2, 0)
    assert load(db, text, OTHER)["rolloutId"] == OTHER
    assert texts(db, OTHER) == texts(db, ID)
    for piece in text.split("\n"):
        load(db, piece, THIRD)
    assert texts(db, THIRD) == texts(db, ID)
    append(db, THIRD, user("goes on"))
    assert load(db, line("compacted", "{}"), THIRD)["items"] == 1
    assert len(texts(db, THIRD)) == 4
    db.execute("UPDATE rollouts SET expires_at = 8000000000000")
    with pytest.raises(sqlite3.Error, match="Rollout expired"):
        load(db, line("compacted", "{}"), THIRD, 9000000000000)
    well(db)


def test_an_export_with_the_policy_everything_comes_back(db):
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    create(db)
    append(db, ID, {"type": "bare"}, {"type": "odd", "payload": None}, now=1000)
    text = exported(db)
    report = load(db, text, OTHER)
    assert (report["items"], report["bad"]) == (3, 0)
    assert exported(db, OTHER) == text


def test_a_session_meta_that_comes_again_in_a_file_in_pieces(db):
    again = META.replace("12:58:53", "13:58:53")
    lines = [META, line("compacted", "{}"), again, line("compacted", "[]")]
    for text in lines:
        load(db, text, ID)
    assert [r[1] for r in texts(db, ID)] == [
        json.dumps(json.loads(l)["payload"], separators=(",", ":")) for l in lines]
    assert load(db, META, ID)["new"] == 0
    well(db)


def test_import_into_a_conversation_that_was_shut_down_is_refused(db):
    load(db, META)
    one(db, "SELECT rollout_shutdown(?)", ID)
    with pytest.raises(sqlite3.Error, match="Rollout is shut down"):
        load(db, line("compacted", "{}"), ID)
    one(db, "SELECT rollout_resume(?)", ID)
    assert load(db, line("compacted", "{}"), ID)["items"] == 1


def test_rollout_import_works_as_a_row_of_blackbox_call(db):
    """A file as a table of lines. A line that fails does not affect the others."""
    db.execute("CREATE TABLE lines(line TEXT)")
    db.executemany("INSERT INTO lines VALUES (?)", [
        (META,), ("bad",), (line("compacted", "{}"),)])
    reports = [json.loads(r) for r, in rows(
        db, "SELECT rollout_import(line, ?) FROM lines ORDER BY rowid", OTHER)]
    assert [(r["items"], r["bad"]) for r in reports] == [(1, 0), (0, 1), (1, 0)]
    assert len(texts(db, OTHER)) == 2
    db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', "
               "json_array(?, ?))", (line("compacted", "{}"), OTHER))
    assert len(texts(db, OTHER)) == 3


def test_memory_does_not_grow_with_the_file(tmp_path):
    """60 MB are imported line by line, within a few MB of memory."""
    script = f"""
import resource, sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
db = connect({str(tmp_path / 'big.db')!r})
db.execute("PRAGMA synchronous = OFF")
one(db, "SELECT blackbox_install('main', 'all')")
line = '{{"type":"compacted","payload":{{"x":"%s"}}}}' % ("y" * 30000)
def run(n):
    db.execute("BEGIN")
    for _ in range(n):
        one(db, "SELECT rollout_import(?, ?)", line, {ID!r})
    db.execute("COMMIT")
one(db, "SELECT rollout_create(?)", {ID!r})
run(100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(2000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    out = subprocess.run([sys.executable, "-c", script], check=True,
                         capture_output=True, text=True).stdout
    assert int(out) < 8000  # KB


def files(kind):
    folder = DATA / "rollouts" / kind
    return sorted(folder.iterdir()) if folder.is_dir() else []


def read(file):
    return gzip.open(file).read() if file.suffix == ".gz" else file.read_bytes()


@needs_data
@pytest.mark.parametrize("file", files("codex"), ids=lambda f: f.name[:40])
def test_real_sessions_round_trip_byte_for_byte(db, file):
    data = read(file)
    good, read_one = [], json.JSONDecoder().raw_decode
    for text in data.decode().split("\n"):
        while text:  # one line has two objects
            end = read_one(text)[1]
            good.append(text[:end])
            text = text[end:]
    report = load(db, data)
    assert (report["items"], report["new"], report["bad"]) == (len(good), len(good), 0)
    assert report["rolloutId"] in file.name
    out = exported_bytes(db, report["rolloutId"])
    assert out == data
    assert load(db, data)["new"] == 0 and exported_bytes(db, report["rolloutId"]) == data
    history = json.loads(one(
        db, "SELECT rollout_history(?)", report["rolloutId"]))
    assert history["payload"]["history"] == [
        {"type": o["type"], "payload": o["payload"]} for o in map(json.loads, good)]
    users = [o for o in map(json.loads, good)
             if o["payload"].get("type") == "user_message"]
    assert rows(db, "SELECT turns, first_user_message FROM rollout__heads JOIN "
                "rollout__about USING(no)") == [
        (len(users), users[0]["payload"]["message"][:200])]
    well(db)
    # as an array through rollout_append, whatever the policy says
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')")
    create(db, OTHER)
    assert append(db, OTHER, *map(json.loads, good[1:])) == len(good) - 1
    well(db)
    load(db, out, THIRD)
    assert texts(db, THIRD) == texts(db, report["rolloutId"])


def test_a_newline_in_a_payload_does_not_break_its_line(db):
    create(db)
    db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES(?, ?, ?)",
               (ID, "event_msg", '{\n "type": "user_message",\r\n "message": "a\\n"\n}'))
    assert one(db, "SELECT rollout_append(?, ?)", ID,
               '{"type": "compacted",\n"payload": {\n}}') == 1
    lines = exported(db).split("\n")
    assert [json.loads(l)["payload"] for l in lines[2:-1]] == [{}]
    assert json.loads(lines[1])["payload"] == {
        "type": "user_message", "message": "a\n"}
    assert len(lines) == 4


@pytest.mark.parametrize("begin", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_an_import_that_fails_leaves_nothing_also_as_a_row(db, begin, first):
    if not first:
        load(db, META)
    db.execute("CREATE TRIGGER no AFTER INSERT ON rollout__data "
               "WHEN NEW.payload LIKE '%forbidden%' BEGIN SELECT RAISE(ABORT, 'no'); END")
    text = "\n".join(([META] if first else []) + [
        "junk", line("compacted", "{}"), line("compacted", '"forbidden"')])
    before = list(db.iterdump())
    if begin:
        db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="Write failed: no"):
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?, ?))",
                   (text, ID))
    if db.in_transaction:  # SQLite has rolled back what the row was in
        db.execute("COMMIT")
    assert list(db.iterdump()) == before
    db.execute("DROP TRIGGER no")
    db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?, ?))",
               (text, ID))
    assert [r[1] for r in texts(db, ID)][1:] == ["{}", '"forbidden"']
    assert rows(db, "SELECT items FROM rollout_dropped(?)", ID) == [(1,)]
    well(db)


def test_a_row_imports_what_the_function_imports(db):
    text = "\n".join([META, "junk", line("event_msg", '{"type":"user_message","message":"é"}'),
                      '{"ty\\u0070e":"x","type":"compacted","payload":{"a": 1}}',
                      line("response_item", '{"type":"message","role":"user","content":"é"}')])
    load(db, text, None, 5000)
    db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?, ?, 5000))",
               (text, OTHER))
    assert texts(db, OTHER) == texts(db, ID) and len(texts(db, ID)) == 4
    first, second = rows(
        db, "SELECT turns, bytes, created, updated, expires_at, cwd FROM rollouts")
    assert first == second
    well(db)


@pytest.mark.parametrize("sql", [
    "SELECT rollout_import('{\"type\":\"compacted\",\"payload\":{}}', ?1)",
    "SELECT rollout_append(?1, '{\"type\":\"compacted\",\"payload\":{}}')",
    "SELECT * FROM rollout_range(?1, NULL, 1)", "SELECT * FROM rollout_export(?1) LIMIT 1"])
def test_the_work_of_a_call_does_not_grow_with_the_conversation(db, sql):
    """No item is read that is not asked for: they come in order without a sort."""
    create(db)
    steps = []
    for _ in range(3):
        append(db, ID, *[{"type": "compacted", "payload": {"n": n}} for n in range(400)])
        rows(db, sql, ID)
        count = [0]
        db.set_progress_handler(lambda count=count: count.__setitem__(0, count[0] + 1), 10)
        rows(db, sql, ID)
        db.set_progress_handler(None, 0)
        steps.append(count[0])
    assert steps[2] < 1.2 * steps[0] + 5
