"""The search: what it finds, by which words, and in which order."""
import itertools
import json
import random
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, derive, event, lines, load, message
from rollout_helpers import user, well
from conftest import FULL, MODULE, connect, one, rows

@pytest.fixture
def searched(db):
    try:
        one(db, "SELECT rollout_search_install()")
    except sqlite3.OperationalError as failed:
        assert "SearchError: this SQLite" in str(failed)
        pytest.skip("no FTS5 here")
    return db


def find(db, text, *more):
    marks = ", ?" * len(more)
    return rows(db, "SELECT rollout, sequence, role, snippet FROM "
                f"rollout_search(?{marks})", text, *more)


def test_search_must_be_installed(db):
    with pytest.raises(sqlite3.Error, match="SearchError: the search is not "
                       r"installed; SELECT rollout_search_install\(\)"):
        find(db, "abc")
    assert one(db, "SELECT rollout_search_remove()") == 0


def test_search_finds_what_tools_were_given_and_said_on_one_line(searched):
    db = searched
    create(db)
    append(db, ID, {"type": "response_item", "payload": {
        "type": "function_call", "name": "shell", "call_id": "c",
        "arguments": json.dumps({"command": ["make", "testAll"]})}},
        {"type": "response_item", "payload": {
            "type": "function_call_output", "call_id": "c", "output": "first\n\tsecond\r\nerror: x"}})
    claude = {"type": "user", "sessionId": "s", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "disk"}]},
        {"type": "tool_result", "tool_use_id": "u", "content": "is full"}]}}
    other = json.loads(one(db, "SELECT rollout_import(?)", json.dumps(claude)))["rolloutId"]
    assert find(db, '"error: x"') == [(ID, 2, "tool", "first  second error: x")]
    assert find(db, "test all") == [(ID, 1, "call", '{"command": ["make", "testAll"]}')]
    assert find(db, "is full") == [(other, 1, "tool", "is full")]
    assert one(db, "SELECT rollout_search_install()") == 4
    assert [len(find(db, q)) for q in ("error", "testAll", "is full")] == [1, 1, 1]


def test_search_shows_the_text_around_the_first_word(searched):
    db = searched
    create(db)
    text = "x" * 60 + " " + "z" * 39 + ' The "Answer" is 100%_sure ' + "y " * 100
    append(db, ID, user("what is it?"), message("assistant", text),
           event("token_count", info="answer"))
    [(rollout, sequence, role, snippet)] = find(db, '"ANSWER is 100%"')
    assert (rollout, sequence, role) == (ID, 2, "assistant")
    start = text.index("Answer")
    assert snippet.startswith("\u2026" + text[start - 48:start + 5])
    assert snippet.endswith("\u2026") and len(snippet) <= 146
    assert [f[1] for f in find(db, "what is it?")] == [1]
    with pytest.raises(sqlite3.Error, match="query must have a word"):
        find(db, "-> ()")
    with pytest.raises(sqlite3.Error, match="query must be text"):
        find(db, None)
    with pytest.raises(sqlite3.Error, match="SearchError: Search failed: .*syntax"):
        find(db, "what AND AND it")


@pytest.mark.parametrize("query, found", [
    ("word", {1}), ("WORD", {1}), ("wor", set()), ("wor*", {1}), ("some word", {1}),
    ('"some word"', {1}), ('"word some"', set()), ("word OR file", {1, 2}), ("some NOT word", {2}),
    ("(word OR file) AND other", {2}), ("file", {2}), ("name", {2}), ("getFileName", {2}),
    ("fileN*", {2}), ("get_file_name", {2}), ("HTTP", {2}), ("server", {2}), ("HTTPServer", {2}),
    ("/usr/lib/my_mod.c", {3}), ("mod", {3}), ("lib/my", {3}), ("my_m*", {3}), ("\u6587", {4}),
    ("\u4e2d\u6587", {4}), ("\u6587\u4e2d", set()), ("\ud55c", {4}), ("\u3072\u3089", {4}),
    ("zurich", {5}), ("Z\u00fcrich", {5}), ("(unbalanced word", set()), ("some)", {1, 2}),
    ('"never closed', set()), ("x.y", {5}), ("foo AND", None)])
def test_search_knows_words_parts_of_names_and_characters(searched, query, found):
    db = searched
    create(db)
    append(db, ID, user("Some word here"), user("some other getFileName of an HTTPServer"),
           user("open /usr/lib/my_mod.c please"), user("\u8fd9\u662f\u4e2d\u6587 \ud55c\uae00 \u3072\u3089"),
           user("In Z\u00fcrich x.y"))
    if found is None:
        with pytest.raises(sqlite3.Error, match="Search failed"):
            find(db, query)
    else:
        assert {f[1] for f in find(db, query)} == found


@pytest.mark.parametrize("text, finds, misses", [
    ("call fooBar now", ["foobar", "fooBar", "FOOBAR", "foo", "bar", "foob*", "fooB*", "foo_bar",
                         '"call foo bar now"', '"foobar"'],
     ["oobar", '"call foobar"', "call/foobar", "foobars"]),
    ("GitHub", ["github", "git", "hub", "GITHUB", "gith*"], ["itHub"]),
    ("JavaScript and SQLite", ["javascript", "sqlite", "SQLITE", "sqlite javascript", "sqlit*"],
     ['"javascript sqlite"', "javascript/sqlite", '"javascript and"']),
    ("see HTTPServer", ["httpserver", "http", "server", "HttpServer"], ["https"]),
    ("foobar", ["fooBar", "FooBar", "fooBar*", "FOOBAR"], ["foo_bar", "foo/bar", "foo"]),
    ("foo_bar", ["fooBar", "foo bar", "foo/bar"], ["foobar", "bar_foo"]),
    ("src/fooBar.c", ["foobar", "src/fooBar.c", '"foo bar c"', "src foobar"], ["srcfoobar"]),
    ("sha256Sum of 3F2AB", ["sha256", "sum", "sha256sum", "3f2ab", "256S*"][:4], ["3f2"]),
    ("the fooBar and then bazQux", ["foobar bazqux", "bazqux AND foobar", "foobar NOT other"],
     ['"foobar bazqux"', "foobar/bazqux", "foobar NOT bazqux"])])
def test_search_finds_a_name_whole_and_in_parts(searched, text, finds, misses):
    db = searched
    create(db)
    append(db, ID, user(text))
    assert [q for q in finds if not find(db, q)] == []
    assert [q for q in misses if find(db, q)] == []


def test_search_finds_long_words_of_other_scripts(searched):
    db = searched
    create(db)
    russian = "\u0434\u043b\u0438\u043d\u043d\u043e" * 4 + "\u2014" + "\u0441\u043b\u043e\u0432\u043e" * 4
    append(db, ID, user(russian), user("\u0e01\u0e32\u0e23" * 30 + " end"), user("z" * 64),
           user("y" * 65), user("\uff76\uff85"))
    assert [f[1] for f in find(db, russian.split("\u2014")[1])] == [1]
    assert [f[1] for f in find(db, "\u0e01*")] == [2]
    assert [f[1] for f in find(db, "z" * 64)] == [3]
    assert [f[1] for f in find(db, "\uff85")] == [5]
    with pytest.raises(sqlite3.Error, match="query must have a word.* at most 64"):
        find(db, "y" * 65)


WORDS = ("foo", "bar", "baz", "near")


@pytest.mark.parametrize("query, fits", [
    ("foo (bar OR baz)", lambda t: "foo" in t and t & {"bar", "baz"}),
    ("(bar OR baz) foo", lambda t: "foo" in t and t & {"bar", "baz"}),
    ("foo(bar OR baz)", lambda t: "foo" in t and t & {"bar", "baz"}),
    ("foo (bar OR baz", lambda t: "foo" in t and t & {"bar", "baz"}),
    ("foo (NOT bar", lambda t: "foo" in t and "bar" not in t),
    ("(foo OR bar)(baz OR near)", lambda t: t & {"foo", "bar"} and t & {"baz", "near"}),
    ("(foo OR bar) (baz) near", lambda t: t & {"foo", "bar"} and t >= {"baz", "near"}),
    ("foo) bar", lambda t: t >= {"foo", "bar"}),
    ("foo OR (bar baz)", lambda t: "foo" in t or t >= {"bar", "baz"}),
    ("foo OR(bar baz)", lambda t: "foo" in t or t >= {"bar", "baz"}),
    ("foo OR bar baz", lambda t: "foo" in t or t >= {"bar", "baz"}),
    ("foo NOT bar baz", lambda t: "foo" in t and not t >= {"bar", "baz"}),
    ("foo NOT (bar OR baz)", lambda t: "foo" in t and not t & {"bar", "baz"}),
    ("foo NOT(bar OR baz)", lambda t: "foo" in t and not t & {"bar", "baz"}),
    ("foo bar NOT baz", lambda t: t >= {"foo", "bar"} and "baz" not in t),
    ("(((foo)) bar)", lambda t: t >= {"foo", "bar"}),
    ("foo ()", lambda t: "foo" in t), ("foo()", lambda t: "foo" in t),
    ("foo (()) bar", lambda t: t >= {"foo", "bar"}), ("(-> foo) -> bar", lambda t: t >= {"foo", "bar"}),
    ("() foo", lambda t: "foo" in t), ("foo * bar", lambda t: t >= {"foo", "bar"}),
    ("foo \"\" bar", lambda t: t >= {"foo", "bar"}), ("foo (\"\") bar", lambda t: t >= {"foo", "bar"}),
    ("NEAR(foo bar)", lambda t: t >= {"near", "foo", "bar"}),
    ("{foo bar}: baz", lambda t: t >= {"foo", "bar", "baz"}),
    ("- foo : bar", lambda t: t >= {"foo", "bar"}), ("^foo + bar", lambda t: t >= {"foo", "bar"}),
    ("foo AND bar OR baz", lambda t: t >= {"foo", "bar"} or "baz" in t),
    ("fo* NOT ba*", lambda t: "foo" in t and not t & {"bar", "baz"})])
def test_search_combines_words_and_parentheses(searched, query, fits):
    db = searched
    create(db)
    told = [set(c) for n in range(1, 5) for c in itertools.combinations(WORDS, n)]
    append(db, ID, *[user(" x ".join(sorted(t))) for t in told])
    assert {f[1] for f in find(db, query)} == {i for i, t in enumerate(told, 1) if fits(t)}


@pytest.mark.parametrize("query, found", [
    ("parse(x)", {1, 2}), ("parse(x, y)", {2, 4}), ("parse(x) OR make()", {1, 2, 3}), ("make(parse(x))", set()),
    ("parse (x)", {1, 2, 4}), ("(parse(x))", {1, 2}), ("(parse(x) OR make) y", {2}), ("a.parse(x)", {2}),
    ("parse(x", {1, 2, 4}), ("parse(x)(y)", set()), ("x) (parse", {1, 2, 4})])
def test_search_takes_the_parentheses_of_a_call_as_its_own(searched, query, found):
    db = searched
    create(db)
    append(db, ID, user("parse(x)"), user("a.parse(x), then y"), user("make()"), user("x y parse"))
    assert {f[1] for f in find(db, query)} == found


@pytest.mark.parametrize("query", ["foo AND", "foo OR ->", "NOT foo", "foo AND OR bar", "(foo OR) bar",
                                   "foo NOT ()", "(" * 300 + "foo OR bar" + ")" * 300])
def test_search_says_what_it_cannot_read(searched, query):
    with pytest.raises(sqlite3.Error, match="SearchError: Search failed: .*(syntax|overflow|large)"):
        find(searched, query)


def test_search_reads_no_syntax_of_fts5_out_of_words(searched):
    db = searched
    create(db)
    append(db, ID, user("whole text rank foo"), user("foo"))
    for query in ("whole:foo", "text:foo", "{text whole}:foo", "- text : foo", "rank:foo"):
        assert all(f[1] == 1 for f in find(db, query)), query
    for broken in (b'foo \xe4" OR text : "x', b'foo \xc3" whole : rank', b'\xf0"foo*'):
        with pytest.raises(sqlite3.Error, match="query must be .*UTF-8"):
            rows(db, "SELECT * FROM rollout_search(CAST(? AS TEXT))", broken)


def test_search_filters_and_ranks(searched):
    db = searched
    one(db, "SELECT rollout_create(?, NULL, 'permanent', ?, 1000)", ID, json.dumps(
        {"id": ID, "timestamp": "x", "cwd": "/w/app"}))
    create(db, OTHER)
    for t, words in ((1000, "needle " * 9), (2000, "needle"), (3000, "a needle in much hay " * 3)):
        one(db, "SELECT rollout_append(?, ?, ?)", ID, json.dumps(user(words)), t)
    append(db, ID, {"type": "response_item", "payload": {
        "type": "function_call", "name": "Edit", "call_id": "c",
        "arguments": json.dumps({"file_path": "a.c", "text": "needle"})}}, {
        "type": "response_item", "payload": {
            "type": "function_call_output", "call_id": "c", "output": "needle put"}})
    append(db, OTHER, message("assistant", "needle"))

    def found(*more, where="1"):
        marks = ", ?" * len(more)
        return sorted(rows(db, "SELECT rollout = ?, sequence FROM "
                           f"rollout_search('needle', 50{marks}) WHERE {where}", ID, *more))
    assert len(found()) == 6
    assert found(1500, 2500) == [(1, 2)]
    assert {r for r, _ in found(None, None, "/w")} == {1} == {
        r for r, _ in found(None, None, "/w/app/")}
    assert found(None, None, "/wor") == []
    assert found(None, None, None, "assistant") == [(0, 1)]
    assert found(None, None, None, None, "Edit") == [(1, 4), (1, 5)]
    assert found(None, None, None, None, None, "a.c") == [(1, 4), (1, 5)]
    assert found(where="of_role = 'tool'") == [(1, 5)]
    best = rows(db, "SELECT sequence, rank FROM rollout_search('needle') WHERE of_role = 'user'")
    assert best[0][0] == 1 and best == sorted(best, key=lambda r: r[1])


def test_search_knows_the_files_of_a_patch_and_the_call_of_a_result(searched):
    db = searched
    create(db)
    patch = "*** Begin Patch\n*** Update File: x.c\n needle\n*** Add File: y.c\n*** End Patch"
    kinds = {"custom_tool_call": {"name": "apply_patch", "input": patch}, "function_call": {
        "name": "shell", "arguments": '{"command":"needle"}'}}

    def item(kind, call, **more):
        return {"type": "response_item", "payload": {"type": kind, "call_id": call, **more}}
    append(db, ID, item("custom_tool_call", "a", **kinds["custom_tool_call"]),
           item("custom_tool_call_output", "a", output="needle done"),
           item("function_call", "b", **kinds["function_call"]),
           item("function_call_output", "b", output="needle here"), message("user", "needle"),
           item("function_call_output", "c", output="needle early"), item("function_call", "c", **kinds["function_call"]),
           item("function_call_output", "z", output="needle of no call"))

    def found(**more):
        where = " AND ".join(f"of_{name} = '{value}'" for name, value in more.items())
        return sorted(n for n, in rows(db, f"SELECT sequence FROM rollout_search('needle') WHERE {where}"))
    assert found(file="x.c") == [1, 2] == found(file="y.c") == found(tool="apply_patch", file="y.c")
    assert found(tool="shell") == [3, 4, 6, 7] and found(tool="shell", role="tool") == [4, 6]
    assert found(file="z.c") == [] == found(tool="shell", file="x.c")


def test_search_finds_the_call_of_a_result_without_a_look_at_all(searched):
    db = searched
    steps = [0]

    def cost(n):
        create(db, ID)
        items = [item for i in range(n) for item in (
            {"type": "response_item", "payload": {"type": "function_call", "name": "shell", "call_id": f"c{i}",
                                                  "arguments": '{"command":"ls"}'}},
            {"type": "response_item", "payload": {"type": "function_call_output", "call_id": f"c{i}",
                                                  "output": f"needle {i}"}})]
        append(db, ID, *items)
        db.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 10)
        steps[0] = 0
        assert rows(db, "SELECT * FROM rollout_search('needle') WHERE of_tool = 'none'") == []
        assert rows(db, "SELECT * FROM rollout_search('needle') WHERE of_file = 'none'") == []
        db.set_progress_handler(None, 0)
        one(db, "SELECT rollout_delete(?)", ID)
        return steps[0]
    few = cost(100)
    assert cost(800) < few * 12


def test_search_tells_a_message_once(searched):
    db = searched
    create(db)
    append(db, ID, event("agent_message", message="the answer"),
           message("assistant", "the answer"), message("user", "a question"),
           user("a question"))
    assert len(find(db, "the answer")) == 1 and len(find(db, "question")) == 1
    one(db, "SELECT rollout_search_remove()")
    assert one(db, "SELECT rollout_search_install()") == 2
    one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    assert [f[0] for f in find(db, "question")] == [ID]
    one(db, "SELECT rollout_delete(?)", ID)
    assert [f[0] for f in find(db, "question")] == [OTHER]
    one(db, "SELECT rollout_delete(?)", OTHER)
    assert find(db, "question") == []
    assert one(db, "SELECT rollout_search_install()") == 0


def test_search_has_the_same_however_an_item_came(searched):
    """New items are read in C, and those that are stored by the rows of blackbox_places."""
    db = searched
    create(db)
    tool = {"type": "response_item", "payload": {
        "type": "function_call_output", "call_id": "c", "output": "of a tool"}}
    items = [message("user", "twice"), user("twice"), message("user", "twice"), user("other"),
             message("assistant", "twice"), event("agent_message", message="twice"), tool, tool,
             message("user", "<image>"), user("")]
    append(db, ID, *items)
    for item in items:
        append(db, ID, item)
    for item in items:
        db.execute("INSERT INTO rollout_log(rollout_id, type, payload) SELECT ?1, ?2 ->> 'type', "
                   "?2 -> 'payload'", (ID, json.dumps(item)))
    append(db, ID)
    one(db, "SELECT rollout_fork(?, NULL, ?)", ID, THIRD)
    append(db, THIRD, *items[1:3])
    imported = {"type": "session_meta", "payload": {"id": OTHER, "timestamp": "x"}}
    load(db, lines(imported, *items))
    words = ("twice", "other", "tool", "image", "of a tool")

    def told():
        return [sorted(find(db, word, 1000)) for word in words]
    before = told()
    assert sum(len(t) for t in before) > 20
    one(db, "SELECT rollout_search_install()")
    assert told() == before
    one(db, "SELECT rollout_rebuild()")
    assert told() == before
    well(db)


def indexed(db):
    return one(db, "SELECT count(*) FROM rollout_fts_docsize")


def test_the_newest_texts_wait_for_the_index_and_are_found(searched, path):
    db = searched
    create(db)
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    reader.enable_load_extension(True)
    reader.load_extension(MODULE)
    for i in range(1, 41):
        db.execute("BEGIN" if i % 3 else "SELECT 1")
        append(db, ID, user(f"needle number{i} camelCase"))
        before = db.total_changes
        assert [f[1] for f in find(db, f"number{i}")] == [i] == [f[1] for f in find(db, f"needle camelcase number{i}")]
        assert find(db, "needle NOT camel") == [] and len(find(db, "needle", 100)) == i
        assert db.total_changes == before
        if db.in_transaction:
            db.execute("COMMIT")
        assert len(find(reader, "need*", 100)) == i
        assert indexed(db) == i // 8 * 8
        well(db)
    append(db, ID, user("tail " * 1000))
    assert indexed(db) == 40
    append(db, ID, user("tail " * 700))
    assert indexed(db) == 42
    append(db, ID, user("short"))
    db.execute("BEGIN")
    append(db, ID, *[user(f"taken{i} back") for i in range(9)])
    assert indexed(db) == 52 and len(find(db, "back")) == 9
    db.execute("ROLLBACK")
    assert indexed(db) == 42 and find(db, "back") == [] and len(find(db, "short")) == 1
    one(db, "SELECT rollout_delete(?)", ID)
    assert find(db, "short") == [] == find(db, "needle")
    create(db, OTHER)
    append(db, OTHER, user("after"))
    assert len(find(db, "after")) == 1
    well(db)
    reader.close()


def test_segments_are_merged_a_few_pages_at_a_time(searched):
    db = searched
    create(db)
    segments = []
    for i in range(600):
        append(db, ID, user(f"needle number{i} {'and'.join(str(i * j) for j in range(99))} " * 2))
        segments.append(one(db, "SELECT count(DISTINCT segid) FROM rollout_fts_idx"))
    assert 16 < max(segments) < 40 and max(a - b for a, b in zip(segments, segments[1:])) <= 16
    assert [f[1] for f in find(db, "number7", 9)] == [8] and len(find(db, "needle", 999)) == 600
    for _ in range(20):
        append(db, ID, user("short"), user("text " * 900))
        append(db, ID, *[user(f"many{i}") for i in range(9)])
    assert indexed(db) == 600 + 40 + 180
    well(db)


def test_texts_that_wait_are_ranked_among_the_others(searched):
    db = searched
    create(db)
    append(db, ID, *[user(f"much hay, and more hay {i}") for i in range(100)], user("needle " + "in hay " * 40))
    append(db, ID, user("one needle"), user("hay"), user("needle " + "hay " * 80))
    best = rows(db, "SELECT sequence, rank FROM rollout_search('needle')")
    assert [n for n, _ in best] == [102, 101, 104] and best == sorted(best, key=lambda r: r[1]) and best[-1][1] < -.5
    assert [f[1] for f in find(db, "hay", 1)] in ([103], [104])


def test_search_follows_redaction_and_expiry(searched):
    db = searched
    create(db)
    append(db, ID, user("my key is SECRET"), user("more text"))
    db.execute("UPDATE rollout_items SET payload = replace(payload, 'SECRET', "
               "'***') WHERE sequence = 1")
    assert find(db, "secret") == [] == find(db, "my key is ***")
    derive(db)
    assert find(db, "secret") == [] and len(find(db, "my key is ***")) == 1
    assert len(find(db, "more", 1)) == 1
    db.execute("UPDATE rollouts SET expires_at = 1")
    assert find(db, "more text") == []
    well(db)


def test_search_install_inside_a_transaction_rolls_back(searched):
    db = searched
    one(db, "SELECT rollout_search_remove()")
    db.execute("BEGIN")
    one(db, "SELECT rollout_search_install()")
    db.execute("ROLLBACK")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name LIKE '%fts%'") == []
    create(db)
    assert append(db, ID, user("x")) == 1


def test_search_in_an_attached_schema(path, tmp_path):
    db = connect(path)
    db.execute('ATTACH ? AS "a ""b"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_install('a \"b', 'all')")
    create(db)
    append(db, ID, user("a needle"))
    assert one(db, "SELECT rollout_search_install()") == 1
    assert [f[1] for f in find(db, "needle")] == [1]


def test_search_goes_by_who_said_it_and_follows_redaction_of_one(searched):
    db = searched
    create(db)
    append(db, ID, message("user", "secret word"), user("secret word"),
           user("secret word"), message("assistant", "secret word"))
    def found():
        return sorted(f[1] for f in find(db, "secret"))
    assert found() == [1, 3, 4]
    one(db, "SELECT rollout_search_install()")
    assert found() == [1, 3, 4]
    db.execute("UPDATE rollout_items SET payload = replace(payload, 'secret', '***') "
               "WHERE sequence = 1")
    assert found() == [3, 4]
    derive(db)
    assert found() == [2, 3, 4]
    db.execute("UPDATE rollout_items SET payload = replace(payload, '***', 'secret') "
               "WHERE sequence = 1")
    derive(db)
    assert found() == [1, 3, 4]
    assert rows(db, "SELECT * FROM rollout__marks WHERE id < 0") == []


def test_a_cleanup_makes_the_index_anew_when_most_of_it_is_gone(searched):
    db = searched
    create(db)
    one(db, "SELECT rollout_create(?, NULL, 0, NULL, 1000)", OTHER)
    append(db, ID, user("kept"))
    append(db, OTHER, *[user(f"gone{i} and more") for i in range(1200)], now=1000)
    size = "SELECT sum(length(block)) FROM rollout_fts_data"
    full = one(db, size)
    assert one(db, "SELECT rollout_cleanup_expired()") == 1
    assert one(db, size) < full / 10
    assert one(db, "SELECT search - texts FROM rollout__act") == 0
    assert [f[1] for f in find(db, "kept")] == [1] and find(db, "gone*") == []
    append(db, ID, user("later"))
    assert one(db, "SELECT rollout_cleanup_expired()") == 0
    assert [f[1] for f in find(db, "later")] == [2]
    well(db)


def test_search_finds_what_a_fork_of_an_expired_parent_shows(searched):
    db = searched
    create(db)
    append(db, ID, user("a needle"))
    one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    db.execute("UPDATE rollouts SET expires_at = 1000 WHERE id = ?", (ID,))
    assert [f[0] for f in find(db, "needle")] == [OTHER]


def test_search_remove_as_a_row_is_refused_and_says_how(searched):
    with pytest.raises(sqlite3.Error, match=r"call it as SELECT rollout_search_remove\(\)"):
        searched.execute("INSERT INTO blackbox_call VALUES ('rollout_search_remove', '[]')")
    assert one(searched, "SELECT rollout_search_remove()") == 1


# ------------------------------------------------------------------------------- hostile

@pytest.mark.parametrize("way", ["append", "install"])
def test_search_finds_what_follows_a_nul_and_shows_half_a_character(searched, way):
    db = searched
    create(db)
    if way == "install":
        one(db, "SELECT rollout_search_remove()")
    raw = '[{"type":"event_msg","payload":{"type":"user_message","message":"%s"}}]'
    for text in ("before\\u0000after fooBar\\u0000baz", "a \\ud83d tail", "\\ude00", "a \\\\u0000 literal",
                 "\\\\\\u0000odd"):
        one(db, "SELECT rollout_append(?, ?)", ID, raw % text)
    append(db, ID, {"type": "response_item", "payload": {
        "type": "function_call", "name": "find", "call_id": "c", "arguments": "{}"}}, {
        "type": "response_item", "payload": {
            "type": "function_call_output", "call_id": "c", "output": "one.c\0two.c\0"}})
    if way == "install":
        one(db, "SELECT rollout_search_install()")
    assert [f[1] for f in find(db, "before after")] == [1] == [f[1] for f in find(db, "foobar baz")]
    assert [f[3] for f in find(db, "tail")] == ["a \ufffd tail"]
    assert [f[3] for f in find(db, "literal")] == ["a \\u0000 literal"]
    assert [f[3] for f in find(db, "odd")] == ["\\\ufffdodd"]
    assert [f[1] for f in find(db, "two.c")] == [7]
    assert rows(db, "SELECT output FROM rollout_tool_calls") == [("one.c\ufffdtwo.c\ufffd",)]
    assert rows(db, "SELECT text FROM rollout_messages WHERE n = 1") == [
        ("before\ufffdafter fooBar\ufffdbaz",)]
    well(db)


def test_search_takes_a_hundred_words(searched):
    db = searched
    create(db)
    append(db, ID, user(" ".join(f"w{i}" for i in range(100))))
    assert [f[1] for f in find(db, " ".join(f"w{i}" for i in range(100)))] == [1]
    for query in ("a " * 101, '"' + "a b " * 51, "a/" * 101):
        with pytest.raises(sqlite3.Error, match="query must have at most 100 words, got 10[12]"):
            find(db, query)
    with pytest.raises(sqlite3.Error, match="query must be at most 10000 bytes"):
        find(db, "x" * 1_000_000)


def test_search_survives_any_query(searched):
    db = searched
    create(db)
    append(db, ID, user("foo bar"), user("fooBar baz"))
    dice = random.Random(7)
    signs = ['"', "*", "(", ")", "AND", "OR", "NOT", "NEAR", "foo", "fooBar", "ba*", "text", "whole", ":", "^", "+",
             "-", "{", "}", ",", " ", " ", " ", "'", ";", "\\", "\u4e2d", "\u00e9", "\U0001f600", "\ufffd", "rank"]
    found = 0
    for _ in range(3000 if FULL else 1000):
        query = "".join(dice.choices(signs, k=dice.randint(1, 12)))
        try:
            found += len(find(db, query))
        except sqlite3.Error as failed:
            assert str(failed).startswith(("ValidationError: query must have a word",
                                           "SearchError: Search failed: fts5: syntax error near")), query
    assert found > 30
    well(db)


def test_search_can_be_interrupted(searched):
    db = searched
    create(db)
    append(db, ID, *[user(f"needle {i}") for i in range(500)])
    db.set_progress_handler(lambda: 1, 200)
    with pytest.raises(sqlite3.Error, match="interrupted"):
        find(db, "needle")
    db.set_progress_handler(None, 0)
    assert len(find(db, "needle", 1000)) == 500


DAMAGE = {
    "structure": "UPDATE rollout_fts_data SET block = x'ff00ff00ff00ff00' WHERE id = 10",
    "all leaves": "UPDATE rollout_fts_data SET block = zeroblob(length(block)) WHERE id > 10",
    "no leaves": "DELETE FROM rollout_fts_data WHERE id > 10",
    "sizes": "DELETE FROM rollout_fts_docsize WHERE id % 2",
    "version": "DELETE FROM rollout_fts_config",
    "no data": "DROP TABLE rollout_fts_data",
    "no index": "DROP TABLE rollout_fts",
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("begin", [False, True])
def test_a_damaged_index_is_named_and_made_anew_and_appends_go_on(searched, path, damage, begin):
    create(searched)
    for i in range(40):
        append(searched, ID, user(f"needle number{i}"))
    searched.close()
    with sqlite3.connect(path) as bare:
        bare.execute("PRAGMA writable_schema = ON")
        bare.execute(DAMAGE[damage])
    bare.close()
    db = connect(path)
    assert any("rollout_fts" in row[-2:][0] for row in rows(db, "SELECT * FROM blackbox_check"))
    if begin:
        db.execute("BEGIN")
    assert append(db, ID, user("needle more")) == 1
    if begin:
        db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM rollout_messages") == 41
    try:
        assert len(find(db, "needle", 100)) <= 41
    except sqlite3.Error as failed:
        assert "SearchError" in str(failed) or "malformed" in str(failed)
    named = [row[-2:] for row in rows(db, "SELECT * FROM blackbox_check")]
    assert named and all(name == "rollout_fts" for name, _ in named), named
    assert append(db, ID, user("needle again")) == 1
    assert one(db, "SELECT rollout_search_install()") == 42
    assert len(find(db, "needle", 100)) == 42
    well(db)
    db.close()
    with sqlite3.connect(path) as bare:
        bare.execute("PRAGMA writable_schema = ON")
        bare.execute(DAMAGE[damage])
    bare.close()
    db = connect(path)
    one(db, "SELECT rollout_search_remove()")
    assert append(db, ID, user("needle")) == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT rollout_search_install()") == 43
    well(db)


def test_an_index_that_cannot_be_written_is_told_in_the_log(searched, path):
    create(searched)
    append(searched, ID, user("needle"))
    searched.close()
    with sqlite3.connect(path) as bare:
        bare.execute("DELETE FROM rollout_fts_config")
    bare.close()
    db = connect(path)
    assert append(db, ID, user("one")) == 1
    assert append(db, ID, *[user("two")] * 8) == 8
    assert one(db, "SELECT count(*) FROM blackbox_log "
               "WHERE kind = 'refusal' AND subject = 'rollout.search'") == 1
    assert ("rollout_fts", "a text could not be put into it; SELECT rollout_search_install() makes the index "
            "anew") in [row[-2:] for row in rows(db, "SELECT * FROM blackbox_check")]
    with pytest.raises(sqlite3.Error, match="SearchError"):
        find(db, "one")
    with sqlite3.connect(path) as bare:
        bare.execute("INSERT INTO rollout_fts_config VALUES ('version', 4)")
    bare.close()
    with pytest.raises(sqlite3.Error, match="SearchError: the index is damaged, and new texts are not in it"):
        find(connect(path), "one")


def test_a_reader_searches_and_checks(searched, path):
    create(searched)
    append(searched, ID, user("needle"))
    searched.close()
    db = connect(f"file:{path}?mode=ro", uri=True)
    assert len(find(db, "needle")) == 1
    assert rows(db, "SELECT * FROM blackbox_check") == []
