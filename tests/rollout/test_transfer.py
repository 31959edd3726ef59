"""Export and import of JSON lines."""
import gzip
import json
import sqlite3
import subprocess
import sys

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, texts, user, well
from conftest import DATA, ROOT, needs_data, one, rows


def line(kind, payload, at="2026-04-08T12:58:53.226Z"):
    return '{"timestamp":"%s","type":"%s","payload":%s}' % (at, kind, payload)


META = line("session_meta", '{"id":"%s","cwd":"/w","cli_version":"1"}' % ID)


def load(db, text, *more):
    marks = ", ?" * len(more)
    return json.loads(one(db, f"SELECT rollout_import(?{marks})", text, *more))


def exported(db, rollout=ID):
    whole = one(db, "SELECT rollout_export(?)", rollout)
    assert whole == "".join(
        l + "\n" for l, in rows(db, "SELECT line FROM rollout_export(?)", rollout))
    return whole


def test_export_and_import_return_the_same_lines(db):
    text = "\n".join([
        META, line("event_msg", '{"type":"user_message","message":"é\\u00e9 1.0e5"}'),
        line("odd_type", '{"a":1E+2,"a":[1.50,-0.0],"b":"\\/"}', "1999-12-31T23:59:59.999Z"),
        line("turn_context", "[]"), line("compacted", '"text"')]) + "\n"
    assert load(db, text) == {
        "rolloutId": ID, "lines": 5, "items": 5, "bad": 0, "errors": []}
    assert exported(db) == text
    assert rows(db, "SELECT created, updated, turns, cwd FROM rollouts") == [
        (1775653133226, 1775653133226, 1, "/w")]
    assert one(db, "SELECT expires_at > 1795000000000 FROM rollouts") == 1
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
        b"garbage", line("event_msg", "{}").encode(), META.encode(),
        b'{"type":"x","payload":{}}{"type":"y","payload":{}}', b"", b"   ",
        b'{"type":"x","payload":"\xff"}', b'{"type":"x","payload":"a\x00b"}',
        b'{"type":"x","id":1}', b'{"payload":{}}', b'{"type":7,"payload":{}}', b"[1]",
        b'{"type":"x","payload":{}}\r', b'{"type":"%s","payload":1}' % (b"t" * 101),
        b'{"type":"x","payload":{}', b'{"type":"x","payload":1}',
    ]
    report = load(db, b"\n".join(lines))
    assert report["rolloutId"] == ID and report["lines"] == len(lines)
    assert report["items"] == 3 and report["bad"] == 11
    assert [(e["line"], e["reason"]) for e in report["errors"]] == [
        (1, "not a JSON object"), (2, "comes before the session_meta"),
        (4, "not a JSON object"), (7, "not UTF-8"), (8, "not UTF-8"),
        (9, "no payload"), (10, "no type of 1 to 100 bytes"),
        (11, "no type of 1 to 100 bytes"), (12, "not a JSON object"),
        (14, "no type of 1 to 100 bytes"), (15, "not a JSON object")]
    damaged = sum(len(lines[e["line"] - 1]) for e in report["errors"])
    assert ("damaged line", "", 11, damaged) in rows(
        db, "SELECT * FROM rollout_dropped(?)", ID)


def test_many_bad_lines_are_listed_up_to_100(db):
    report = load(db, META + "\n" + "x\n" * 250)
    assert report["bad"] == 250 and len(report["errors"]) == 100


@pytest.mark.parametrize("text", [
    "x\ny", line("event_msg", "{}"), line("session_meta", '{"id":"x"}'),
    line("session_meta", "[]"), "\n\n",
])
def test_a_file_without_a_usable_session_meta_is_refused(db, text):
    with pytest.raises(sqlite3.Error, match="Invalid rollout file"):
        load(db, text)
    assert one(db, "SELECT count(*) FROM rollout_heads") == 0


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
        assert load(db, text, ID, 5000) == {
            "rolloutId": ID, "lines": 3, "items": 2, "bad": 1,
            "errors": [{"line": 1, "reason": "not a JSON object"}]}
    if way == "begin":
        db.execute("COMMIT")
    assert rows(db, "SELECT item_count, turns, created, updated, expires_at FROM rollouts") == [
        (3, 2, 1767225600000, 1767312000000, 5000 + 60 * 86400000)]
    meta = json.loads(texts(db, ID)[0][1])
    assert (meta["id"], meta["timestamp"]) == (ID, "2026-01-01T00:00:00.000Z")
    assert rows(db, "SELECT * FROM rollout_dropped(?)", ID) == [("damaged line", "", 1, 4)]
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_a_session_meta_further_on_still_begins_the_conversation(db):
    assert load(db, "\n".join([BODY[0], META, BODY[1]]), OTHER)["errors"] == [
        {"line": 1, "reason": "comes before the session_meta"}]
    assert [json.loads(p).get("cwd") for _, p in texts(db, OTHER)] == ["/w", None]


def test_lines_without_a_session_meta_or_an_id_are_refused(db):
    with pytest.raises(sqlite3.Error, match="none of its 2 lines is a session_meta"):
        load(db, "\n".join(BODY))
    with pytest.raises(sqlite3.Error, match="none of its 2 lines"):
        load(db, line("session_meta", "[]") + "\nx", ID)
    assert one(db, "SELECT count(*) FROM rollout_heads") == 0


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
        with pytest.raises(sqlite3.Error, match=f"RolloutExistsError: {ID}"):
            load(db, text, *args)
    assert load(db, text, OTHER)["rolloutId"] == OTHER
    assert texts(db, OTHER) == texts(db, ID)
    for piece in text.split("\n"):
        load(db, piece, THIRD)
    assert texts(db, THIRD) == texts(db, ID)
    append(db, THIRD, user("goes on"))
    assert load(db, line("compacted", "{}"), THIRD)["items"] == 1
    assert len(texts(db, THIRD)) == 4
    with pytest.raises(sqlite3.Error, match="Rollout expired"):
        load(db, line("compacted", "{}"), THIRD, 9000000000000)
    well(db)


def test_an_export_with_the_policy_everything_comes_back(db):
    db.execute("INSERT INTO blackbox_settings VALUES ('rollout.policy', 'everything')")
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
    with pytest.raises(sqlite3.Error, match="RolloutExistsError"):
        load(db, META, ID)
    well(db)


def test_import_into_a_conversation_that_was_shut_down_is_refused(db):
    load(db, META)
    one(db, "SELECT rollout_shutdown(?)", ID)
    with pytest.raises(sqlite3.Error, match="Rollout is shut down"):
        load(db, line("compacted", "{}"), ID)
    one(db, "SELECT rollout_resume(?)", ID)
    assert load(db, line("compacted", "{}"), ID)["items"] == 1


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud83d"])
def test_a_line_whose_type_is_not_text_is_bad(db, escape):
    assert load(db, META + '\n{"type":"a%sb","payload":1}' % escape)["errors"] == [
        {"line": 2, "reason": "no type of 1 to 100 bytes"}]


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
one(db, "SELECT blackbox_install()")
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
    good, bad = [], 0
    for text in data.decode().split("\n"):
        try:
            good.append(json.loads(text) and text)
        except ValueError:
            bad += bool(text)
    report = load(db, data)
    assert (report["items"], report["bad"]) == (len(good), bad)
    assert report["rolloutId"] in file.name
    out = exported(db, report["rolloutId"])
    assert out == "".join(text + "\n" for text in good)
    history = json.loads(one(
        db, "SELECT rollout_history(?)", report["rolloutId"]))
    assert history["payload"]["history"] == [
        {"type": o["type"], "payload": o["payload"]} for o in map(json.loads, good)]
    users = [o for o in map(json.loads, good)
             if o["payload"].get("type") == "user_message"]
    assert rows(db, "SELECT turns, first_user_message FROM rollout_heads JOIN "
                "rollout_about USING(no)") == [
        (len(users), users[0]["payload"]["message"][:200])]
    well(db)
    # as an array through rollout_append, whatever the policy says
    db.execute("INSERT INTO blackbox_settings VALUES ('rollout.policy', 'everything')")
    create(db, OTHER)
    assert append(db, OTHER, *map(json.loads, good[1:])) == len(good) - 1
    well(db)
    load(db, out, THIRD)
    assert texts(db, THIRD) == texts(db, report["rolloutId"])


@needs_data
@pytest.mark.parametrize("file", files("claude"), ids=lambda f: f.name[:20])
def test_lines_of_another_program_are_refused_whole(db, file):
    with pytest.raises(sqlite3.Error, match="none of its [0-9]+ lines is a session_meta"):
        load(db, read(file))
    assert one(db, "SELECT count(*) FROM rollout_heads") == 0


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
    db.execute("CREATE TRIGGER no AFTER INSERT ON rollout_data "
               "WHEN NEW.payload LIKE '%forbidden%' BEGIN SELECT RAISE(ABORT, 'no'); END")
    text = "\n".join(([META] if first else []) + [
        "junk", line("compacted", "{}"), line("compacted", '"forbidden"')])
    before = list(db.iterdump())
    if begin:
        db.execute("BEGIN")
    with pytest.raises(sqlite3.Error, match="Write failed: no"):
        db.execute("INSERT INTO blackbox_call VALUES ('rollout_import', json_array(?, ?))",
                   (text, ID))
    if begin:
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


def test_a_second_import_is_refused_with_advice(db):
    load(db, META)
    with pytest.raises(sqlite3.Error, match="pass an id as second argument"):
        load(db, META)
    with pytest.raises(sqlite3.Error, match="already has this session_meta"):
        load(db, META, ID)
