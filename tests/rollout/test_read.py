"""Lists and pages, histories, ranges, the model's context, the search."""
import json
import random
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, THIRD, append, create, derive, event, lines, load, message
from rollout_helpers import user, well
from conftest import connect, one, rows, some

NOW = 1700000000000


def rid(i):
    return f"5973b6c0-94b8-487b-a530-{i:012x}"


def fill(db, count, updated=lambda i: NOW + i // 3):
    """Conversations with ties in updated; every 5th without a user event,
    every 7th expired."""
    db.execute("BEGIN")
    for i in range(count):
        create(db, rid(i), 1 if i % 7 == 0 else "permanent", 1000)
        if i % 5:
            append(db, rid(i), user(f"question {i}"), now=1000)
        db.execute("UPDATE rollout__heads SET updated = ? WHERE id = ?",
                   (updated(i), rid(i)))
    db.execute("COMMIT")


def visible(count, updated=lambda i: NOW + i // 3):
    order = sorted(((updated(i), rid(i)) for i in range(count)
                    if i % 5 and i % 7), reverse=True)
    return [r for _, r in order]


def walk(db, size, between=lambda n: None):
    """All pages, by rollout_page."""
    seen, cursor = [], None
    for n in range(1000):
        page = json.loads(one(db, "SELECT rollout_page(?, ?)", size, cursor))
        assert len(page["items"]) <= size and page["numScanned"] <= 100
        seen += [item["id"] for item in page["items"]]
        cursor = page.get("nextCursor")
        if cursor is None:
            return seen
        between(n)
    raise AssertionError("pages without end")


@pytest.mark.parametrize("size", [1, 7, 50, 100])
def test_pages_have_every_row_once(db, size):
    fill(db, 210)
    assert walk(db, size) == visible(210)
    listed, cursor = [], None
    while True:
        part = rows(db, "SELECT id, cursor FROM rollout_list(?, ?)", size, cursor)
        if not part:
            break
        listed += [r for r, _ in part]
        cursor = part[-1][1]
    assert listed == visible(210)


def test_pages_are_stable_while_other_rows_move(db):
    fill(db, 120)
    rng = random.Random(1)
    moved = set()

    def between(_):
        some = rid(rng.randrange(120))
        moved.add(some)
        db.execute("UPDATE rollout__heads SET updated = updated + 1000000 "
                   "WHERE id = ?", (some,))
    seen = walk(db, 5, between)
    assert len(seen) == len(set(seen))
    assert [r for r in seen if r not in moved] == [
        r for r in visible(120) if r not in moved]


def test_a_page_looks_at_no_more_than_100_rows(db):
    """After 150 expired rows there is one that has not expired."""
    db.execute("BEGIN")
    for i in range(150):
        create(db, rid(i), 1, 1000)
        append(db, rid(i), user("x"), now=2000 + i)
    create(db, ID, "permanent", 1000)
    append(db, ID, user("x"), now=1500)
    db.execute("COMMIT")
    page = json.loads(one(db, "SELECT rollout_page(10)"))
    assert page["items"] == [] and page["reachedCap"] is True
    assert page["numScanned"] == 100
    page = json.loads(one(db, "SELECT rollout_page(10, ?)", page["nextCursor"]))
    assert [i["id"] for i in page["items"]] == [ID]
    assert page["numScanned"] == 51 and page["reachedCap"] is False
    assert "nextCursor" not in page
    assert [r for r, in rows(db, "SELECT id FROM rollout_list(10)")] == [ID]


@pytest.mark.parametrize("rest, more", [(0, False), (1, True)])
def test_next_cursor_only_when_there_is_more(db, rest, more):
    for i in range(5 + rest):
        create(db, rid(i), "permanent", 1000)
        append(db, rid(i), user("x"))
    create(db, ID, 0, 900)  # expired, and last in the order
    append(db, ID, user("x"), now=900)
    page = json.loads(one(db, "SELECT rollout_page(5)"))
    assert ("nextCursor" in page) == more and len(page["items"]) == 5


def test_list_shows_conversations_with_a_user_message_that_have_not_expired(db):
    meta = json.dumps({"id": ID, "timestamp": "x", "cwd": "/w", "title": "T",
                       "source": {"subagent": "review"}, "cliVersion": "9",
                       "modelProvider": "p"})
    one(db, "SELECT rollout_create(?, NULL, NULL, ?, ?)", ID, meta, NOW * 2)
    append(db, ID, message("user", "<environment_context>no"), user("é" * 300),
           now=NOW * 2)
    append(db, ID, user("second"), now=NOW * 2)
    one(db, "SELECT rollout_archive(?)", ID)
    columns = ("id, created, updated, item_count, status, title, source, cwd, "
               "first_user_message, cursor")
    row = rows(db, f"SELECT {columns} FROM rollout_list(10)")[0]
    assert row == (ID, NOW * 2, NOW * 2, 4, "archived", "T",
                   '{"subagent":"review"}', "/w", "é" * 200, f"{NOW * 2}|{ID}")
    page = json.loads(one(db, "SELECT rollout_page(10)"))
    assert tuple(page["items"][0].values()) == row
    assert rows(db, "SELECT cli_version, model_provider FROM rollouts") == [
        ("9", "p")]


def test_a_late_user_message_lists(db):
    create(db, ID)
    append(db, ID, *[event("token_count") for _ in range(500)])
    assert rows(db, "SELECT * FROM rollout_list(10)") == []
    append(db, ID, user("late"))
    assert one(db, "SELECT first_user_message FROM rollout_list(10)") == "late"


def test_pages_use_the_index(db):
    plan = str(rows(db, "EXPLAIN QUERY PLAN SELECT h.id FROM rollout__heads AS h "
                    "WHERE h.user_sequence IS NOT NULL AND (h.updated, h.id) < "
                    "(1, '') ORDER BY h.updated DESC, h.id DESC"))
    assert "rollout_recent" in plan and "B-TREE" not in plan


@pytest.mark.parametrize("damage, message", [
    ("UPDATE rollout__data SET payload = '{oops' WHERE id & 15 = 2",
     "Corrupted rollout: the payload of item 2 of .* is not JSON"),
    ("UPDATE rollout__data SET payload = substr(payload, 1, 9) WHERE id & 15 = 3",
     "Corrupted rollout: the payload of item 3"),
    ("DELETE FROM rollout__data WHERE id & 15 = 1",
     "Corrupted rollout: item 1 of .* is missing"),
])
def test_damage_is_named_and_the_rest_readable(db, damage, message):
    create(db)
    append(db, ID, *[user(f"m{i}") for i in range(4)])
    db.execute("DROP TRIGGER rollout_data_update")
    whole = rows(db, "SELECT * FROM rollout_items")
    db.execute(damage)
    with pytest.raises(sqlite3.Error, match=message) as failed:
        db.execute("SELECT rollout_history(?)", (ID,))
    assert failed.value.sqlite_errorcode & 255 == 11  # SQLITE_CORRUPT
    left = rows(db, "SELECT * FROM rollout_items")
    assert len(left) >= 4 and len(set(left) & set(whole)) == 4
    assert len(rows(db, "SELECT * FROM rollout_range(?)", ID)) == len(left)
    problems = str(rows(db, "SELECT * FROM blackbox_check"))
    assert ID in problems and "rollout_data_update" in problems


@pytest.fixture
def breakable(db):
    """A connection on which a test can damage data."""
    create(db)
    append(db, ID, *[user(f"m{i}") for i in range(4)],
           {"type": "compacted", "payload": {"replacement_history": [
               {"a": 1}, {"b": 2}]}}, message("user", "after"))
    db.execute("DROP TRIGGER rollout_data_update")
    return db


@pytest.mark.parametrize("lost", ["= 6", "> 2", ">= 0"])
def test_a_lost_tail_is_named(breakable, lost):
    db = breakable
    db.execute(f"DELETE FROM rollout__data WHERE id & 15 {lost}")
    first = one(db, "SELECT count(*) FROM rollout_items")
    with pytest.raises(sqlite3.Error, match="Corrupted rollout: item "
                       f"{first} of {ID} is missing") as failed:
        db.execute("SELECT rollout_history(?)", (ID,))
    assert failed.value.sqlite_errorcode & 255 == 11


def test_a_damaged_session_meta_hides_nothing(breakable):
    db = breakable
    db.execute("UPDATE rollout__data SET payload = '{oops' WHERE id & 15 = 0")
    assert rows(db, "SELECT session_meta, item_count FROM rollouts") \
        == [("{oops", 7)]
    with pytest.raises(sqlite3.Error, match="Corrupted rollout: .*item 0 of " + ID):
        db.execute("SELECT rollout_fork(?)", (ID,))
    db.execute("UPDATE rollouts SET title = 't'")
    assert one(db, "SELECT title FROM rollout_list(5)") == "t"
    db.execute("DELETE FROM rollouts")
    assert one(db, "SELECT count(*) FROM rollout__data") == 0


def test_context_of_a_damaged_compaction(breakable):
    db = breakable
    assert [r[3] for r in rows(db, "SELECT * FROM rollout_context(?)", ID)][:2] == [
        '{"a":1}', '{"b":2}']
    db.execute("UPDATE rollout__data SET payload = '{oops' WHERE id & 15 = 5")
    with pytest.raises(sqlite3.Error, match="Corrupted rollout: .*item 5 of " + ID):
        db.execute("SELECT * FROM rollout_context(?)", (ID,)).fetchall()


def test_context_is_in_order_whatever_the_host_prefers(db):
    create(db)
    append(db, ID, {"type": "compacted", "payload": {"replacement_history": [
        {"n": n} for n in range(12)]}}, *[message("user", f"m{n}") for n in range(5)])
    plain = rows(db, "SELECT * FROM rollout_context(?)", ID)
    assert [json.loads(r[3]).get("n") for r in plain] == [*range(12)] + [None] * 5
    assert [r[0] for r in plain] == [1] * 12 + [2, 3, 4, 5, 6]
    db.execute("PRAGMA reverse_unordered_selects = ON")
    assert rows(db, "SELECT * FROM rollout_context(?)", ID) == plain


def test_history_of_odd_types_is_json(db):
    create(db)
    odd = 'a"b\\c\n\u0001é'
    db.execute("INSERT INTO rollout_items(rollout, type, payload) VALUES (?, ?, '1')",
               (ID, odd))
    db.execute("INSERT INTO rollout_items(rollout, type) VALUES (?, 'none')", (ID,))
    history = json.loads(one(db, "SELECT rollout_history(?)", ID))
    assert history["payload"]["history"][1:] == [
        {"type": odd, "payload": 1}, {"type": "none"}]
    assert one(db, "SELECT json_type(rollout_history(?), '$.payload.history')",
               ID) == "array"


def test_history_too_long_for_the_connection(db):
    create(db)
    for _ in range(3):
        append(db, ID, event("agent_message", message="x" * 400000))
    apsw_limit = getattr(db, "setlimit", None)
    if apsw_limit is None:
        pytest.skip("this Python cannot set limits")
    apsw_limit(sqlite3.SQLITE_LIMIT_LENGTH, 1000000)
    with pytest.raises(sqlite3.Error, match="Rollout too long.*rollout_range"):
        db.execute("SELECT rollout_history(?)", (ID,))


def test_rollout_range_reads_both_ways_with_limits(db):
    create(db)
    append(db, ID, *[user(f"m{i}") for i in range(9)])
    one(db, "SELECT rollout_fork(?, 5, ?)", ID, OTHER)
    append(db, OTHER, *[user(f"f{i}") for i in range(3)])

    def sequences(*args):
        marks = ", ".join("?" * len(args))
        return [s for s, in rows(
            db, f"SELECT sequence FROM rollout_range({marks})", *args)]
    assert sequences(ID) == list(range(10))
    assert sequences(ID, 3) == [4, 5, 6, 7, 8, 9]
    assert sequences(ID, 3, 2) == [4, 5]
    assert sequences(ID, -1, 1) == [0]
    assert sequences(ID, 9) == []
    assert sequences(ID, None, None, "backward") == list(range(9, -1, -1))
    assert sequences(ID, 4, 2, "backward") == [3, 2]
    assert sequences(ID, 0, 2, "backward") == []
    assert sequences(ID, -1, None, "forward") == list(range(10))
    assert sequences(OTHER) == list(range(9))
    assert sequences(OTHER, 4, 3) == [5, 6, 7]
    assert sequences(OTHER, 7, 4, "backward") == [6, 5, 4, 3]
    assert sequences(THIRD) == []
    for args, text in [((ID, "x"), "after must be"), ((ID, -2), "after must be"),
                       ((ID, -1, None, "backward"), "after must be.*0 to 4294967295"),
                       ((ID, 1, -1), "limit must be"),
                       ((ID, 1, 1, "up"), "direction must be"),
                       (("x",), "Invalid conversation ID")]:
        with pytest.raises(sqlite3.Error, match=text):
            sequences(*args)


def compacted(*texts, camel=False):
    name = "replacementHistory" if camel else "replacement_history"
    return {"type": "compacted", "payload": {
        "message": "sum", name: [message("user", t)["payload"] for t in texts]}}


def context(db, rollout=ID):
    out = []
    for sequence, kind, payload in rows(
            db, "SELECT sequence, type, payload FROM rollout_context(?)", rollout):
        payload = json.loads(payload)
        out.append((sequence, payload["content"][0]["text"]
                    if "content" in payload else kind))
    return out


@pytest.mark.parametrize("camel", [False, True])
def test_context_begins_at_the_last_compaction(db, camel):
    create(db)
    append(db, ID, message("user", "a"), event("token_count"),
           message("assistant", "b"))
    assert context(db) == [(1, "a"), (3, "b")]
    append(db, ID, compacted("old"), message("user", "c"))
    append(db, ID, compacted("new 1", "new 2", camel=camel),
           {"type": "turn_context", "payload": {}}, message("user", "d"),
           {"type": "compacted", "payload": {"message": "without history"}})
    assert context(db) == [(6, "new 1"), (6, "new 2"), (8, "d"), (9, "compacted")]
    one(db, "SELECT rollout_fork(?, NULL, ?)", ID, OTHER)
    append(db, OTHER, message("assistant", "e"))
    assert context(db, OTHER) == context(db) + [(10, "e")]


def test_context_leaves_out_what_was_rolled_back(db):
    create(db)
    for text in "abc":
        append(db, ID, message("user", text), message("assistant", text * 2))
    append(db, ID, event("thread_rolled_back", num_turns=1))
    append(db, ID, message("user", "d"))
    assert context(db) == [(1, "a"), (2, "aa"), (3, "b"), (4, "bb"), (8, "d")]
    append(db, ID, event("thread_rolled_back", num_turns=2),
           message("user", "e"))
    assert context(db) == [(1, "a"), (2, "aa"), (10, "e")]
    append(db, ID, event("thread_rolled_back", num_turns=99))
    assert context(db) == []


def test_turns_taken_back_do_not_count_for_forks(db):
    create(db)
    back = event("thread_rolled_back", num_turns=1)
    append(db, ID, user("t0"), user("t1"), back)
    assert rows(db, "SELECT turns FROM rollouts") == [(1,)]
    one(db, "SELECT rollout_fork(?, 1, ?)", ID, OTHER)
    assert rows(db, "SELECT turns, last_sequence FROM rollouts WHERE id = ?", OTHER) == [(1, 3)]
    append(db, ID, user("t1b"), user("t2"))
    assert rows(db, "SELECT turns FROM rollouts WHERE id = ?", ID) == [(3,)]
    one(db, "SELECT rollout_fork(?, 1, ?)", ID, THIRD)
    assert rows(db, "SELECT turns, last_sequence FROM rollouts WHERE id = ?", THIRD) == [(1, 3)]
    append(db, THIRD, user("t1c"), event("thread_rolled_back", num_turns=5), user("again"))
    assert rows(db, "SELECT turns FROM rollouts WHERE id = ?", THIRD) == [(1,)]
    with pytest.raises(sqlite3.Error, match="Invalid turn: 2"):
        one(db, "SELECT rollout_fork(?, 2)", THIRD)
    one(db, "SELECT rollout_delete(?)", ID)
    assert rows(db, "SELECT turns FROM rollouts ORDER BY id") == [(1,), (1,)]
    well(db)


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_turns_and_context_agree_with_a_model(db, seed):
    """Random histories with forks, rollbacks and compactions, as plain lists."""
    dice = random.Random(seed)
    model = {}  # id: items, each (kind, text)

    def turns(items):
        stack = []
        for at, (kind, number) in enumerate(items):
            if kind == "user":
                stack.append(at)
            elif kind == "back" and number > 0:
                del stack[max(0, len(stack) - number):]
        return stack

    def context(items):
        start = max((at for at, (kind, _) in enumerate(items) if kind == "compact"), default=-1)
        gone, stack = set(), []
        for at, (kind, number) in enumerate(items):
            if kind == "user":
                stack.append(at)
            elif kind == "back" and number > 0 and stack:
                first = stack[max(0, len(stack) - number)]
                del stack[max(0, len(stack) - number):]
                if at > start:
                    gone.update(range(first, at + 1))
        return [text for at, (kind, text) in enumerate(items) if at > start
                and at not in gone and kind in ("user", "said")]

    def write(rollout, kind):
        text = f"m{len(model[rollout])} {dice.random()}"
        number = dice.choice([0, 1, 1, 2, 9])
        model[rollout].append((kind, number if kind == "back" else text))
        append(db, rollout, {
            "user": message("user", text), "said": message("assistant", text),
            "back": event("thread_rolled_back", num_turns=number),
            "compact": {"type": "compacted", "payload": {"replacement_history": []}}}[kind])

    for step in range(60):
        living = sorted(model)
        if not living or dice.random() < 0.05:
            new = one(db, "SELECT rollout_create(NULL)")
            model[new] = [("meta", None)]
        elif dice.random() < 0.12:
            parent = dice.choice(living)
            stack = turns(model[parent])
            turn = dice.randrange(len(stack) + 1)
            cut = stack[turn] if turn < len(stack) else len(model[parent])
            new = one(db, "SELECT rollout_fork(?, ?)", parent, turn)
            model[new] = model[parent][:max(cut, 1)]
        elif dice.random() < 0.05:
            gone = dice.choice(living)
            one(db, "SELECT rollout_delete(?)", gone)
            del model[gone]
        else:
            write(dice.choice(living), dice.choice(["user"] * 3 + ["said"] * 4 + ["back", "compact"]))
        well(db)
        for rollout, items in model.items():
            assert rows(db, "SELECT turns, item_count FROM rollouts WHERE id = ?",
                        rollout) == [(len(turns(items)), len(items))]
            assert [json.loads(r[3])["content"][0]["text"] for r in rows(
                db, "SELECT * FROM rollout_context(?)", rollout)
                if r[2] == "response_item"] == context(items)
    while model:
        one(db, "SELECT rollout_delete(?)", model.popitem()[0])
    for table in ("data", "marks", "segments", "about"):
        assert one(db, f"SELECT count(*) FROM rollout__{table}") == 0


def test_ranges_at_once_have_their_own_rows_and_leave_no_lock(db):
    for rollout, n in (ID, 3), (OTHER, 5):
        create(db, rollout)
        append(db, rollout, *[user(f"{i}") for i in range(n)])
    sql = "SELECT a.sequence, b.sequence FROM rollout_range(?, 0) AS a, rollout_range(?, 0) AS b"
    for _ in range(2):
        assert rows(db, sql, ID, OTHER) == [(i, j) for i in range(1, 4) for j in range(1, 6)]
        half = db.execute("SELECT sequence FROM rollout_range(?)", (OTHER,))
        assert half.fetchone() == (0,)
        assert len(rows(db, "SELECT * FROM rollout_range(?)", OTHER)) == 6
        assert len(half.fetchall()) == 5
    half = db.execute("SELECT sequence FROM rollout_range(?)", (OTHER,))
    half.fetchone()
    half.close()
    one(db, "SELECT blackbox_uninstall('main', 'rollout', 'force')")
    with pytest.raises(sqlite3.Error, match="NotInstalledError"):
        db.execute("SELECT * FROM rollout_range(?)", (OTHER,)).fetchall()


# ------------------------------------------------------------------ search

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


def test_search_filters_and_ranks(searched):
    db = searched
    one(db, "SELECT rollout_create(?, NULL, 'permanent', ?, 1000)", ID, json.dumps(
        {"id": ID, "timestamp": "x", "cwd": "/work/app"}))
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
    assert {r for r, _ in found(None, None, "/work")} == {1} == {
        r for r, _ in found(None, None, "/work/app/")}
    assert found(None, None, "/wor") == []
    assert found(None, None, None, "assistant") == [(0, 1)]
    assert found(None, None, None, None, "Edit") == [(1, 4), (1, 5)]
    assert found(None, None, None, None, None, "a.c") == [(1, 4), (1, 5)]
    assert found(where="of_role = 'tool'") == [(1, 5)]
    best = rows(db, "SELECT sequence, rank FROM rollout_search('needle') WHERE of_role = 'user'")
    assert best[0][0] == 1 and best == sorted(best, key=lambda r: r[1])


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
    told = [find(db, word, 1000) for word in words]
    assert sum(len(t) for t in told) > 20
    one(db, "SELECT rollout_search_install()")
    assert [find(db, word, 1000) for word in words] == told
    one(db, "SELECT rollout_rebuild()")
    assert [find(db, word, 1000) for word in words] == told
    well(db)


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
    assert rows(db, "SELECT * FROM rollout__due") == []


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


def test_the_time_of_a_context_grows_with_the_items_it_returns(db):
    """The number of VM steps for twice the rollbacks is at most twice as high."""
    def steps(rollout, n):
        create(db, rollout)
        append(db, rollout, *[item for i in range(n) for item in (
            message("user", f"t{i}"), message("assistant", "a"),
            event("thread_rolled_back", num_turns=1))])
        append(db, rollout, message("assistant", "left"))
        count = [0]
        def tick():
            count[0] += 1
        db.set_progress_handler(tick, 100)
        assert len(rows(db, "SELECT * FROM rollout_context(?)", rollout)) == 1
        db.set_progress_handler(None, 0)
        return count[0]
    assert steps(OTHER, 800) < 2.5 * steps(ID, 400)
