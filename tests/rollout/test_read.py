"""Lists and pages, histories, ranges, the model's context."""
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


@pytest.mark.parametrize("seed", some(range(6), 6))
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
