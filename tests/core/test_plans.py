"""No query of a public view makes SQLite copy a table into an index of its own.

Such an automatic index is made anew for each query, and has all columns that the query needs:
for a count of items by type it held all payloads. So the plan of each view is looked at with
each column as a condition. What a query costs is counted in steps of SQLite's machine."""
import json

import pytest

from conftest import one, rows

ID = "5973b6c0-94b8-487b-a530-2aeb6098ae0e"
CONDITIONS = ["{} = ?1", "{} = (SELECT max(name) FROM blackbox_settings WHERE value IS NOT ?1)",
              "{} IN (?1, 'x')", "{} > ?1"]


def test_no_view_has_an_automatic_index(db):
    views = [name for name, in rows(db, "SELECT name FROM sqlite_schema WHERE type = 'view'")
             if "__" not in name]
    assert len(views) > 10
    found = set()
    for view in views:
        for column, in rows(db, "SELECT name FROM pragma_table_xinfo(?)", view):
            for condition in CONDITIONS:
                sql = f'SELECT count(*) FROM "{view}" WHERE {condition.format(column)}'
                if any("AUTOMATIC" in row[3]
                       for row in rows(db, "EXPLAIN QUERY PLAN " + sql, "x")):
                    found.add((view, column))
    assert not found


OF_A_CONVERSATION = ["rollout_items", "rollout_log", "rollout_messages", "rollout_tool_calls"]
OF_AN_ITEM = {"rollout_items": "sequence", "rollout_messages": "n", "rollout_tool_calls": "n"}
JOINS = [f"rollouts AS a JOIN {view} AS b ON b.{key} = a.id" for view in OF_A_CONVERSATION
         for key in ["rollout_id" if view == "rollout_log" else "rollout"]]
JOINS += [f"{one} AS a JOIN {other} AS b ON b.rollout = a.rollout AND b.{OF_AN_ITEM[other]} = a.{n}"
          for one, n in OF_AN_ITEM.items() for other in OF_AN_ITEM if other != one]


@pytest.mark.parametrize("join", JOINS)
def test_views_that_are_joined_copy_no_payloads(db, join):
    plan = rows(db, f"EXPLAIN QUERY PLAN SELECT a.*, b.* FROM {join}")
    assert not [row[3] for row in plan if "AUTOMATIC" in row[3] or "MATERIALIZE" in row[3]]


def steps(db, sql, *args):
    """How many steps of SQLite's machine a statement takes, in hundreds."""
    count = 0

    def tick():
        nonlocal count
        count += 1

    db.set_progress_handler(tick, 100)
    try:
        db.execute(sql, args).fetchall()
    finally:
        db.set_progress_handler(None, 0)
    return count


@pytest.fixture
def conversations(db):
    """Fifty conversations with a hundred items, and one with ten."""
    item = {"type": "event_msg", "payload": {"type": "agent_message", "message": "x" * 100}}
    for i in range(50):
        id = one(db, "SELECT rollout_create(NULL)")
        one(db, "SELECT rollout_append(?, ?)", id, json.dumps([item] * 100))
    one(db, "SELECT rollout_create(?)", ID)
    one(db, "SELECT rollout_append(?, ?)", ID, json.dumps([item] * 10))
    return db


def test_the_items_of_one_conversation_by_a_sub_select(conversations):
    sql = "SELECT count(*) FROM rollout_items WHERE type = 'event_msg'"
    whole = steps(conversations, sql)
    for key in ("(SELECT id FROM rollouts WHERE item_count = 11)", f"'{ID}'"):
        assert steps(conversations, f"{sql} AND rollout = {key}") * 20 < whole


def report_steps(db, n):
    item = {"type": "event_msg", "payload": {"type": "agent_message", "message": "x"}}
    id = one(db, "SELECT rollout_create(NULL)")
    one(db, "SELECT rollout_append(?, ?)", id, json.dumps([item] * n))
    options = json.dumps({"format": "json"})
    return steps(db, "SELECT blackbox_report('rollout', ?, ?)", id, options)


def test_the_report_reads_each_item_once(db):
    few, many = report_steps(db, 100), report_steps(db, 800)
    assert many < 12 * few
