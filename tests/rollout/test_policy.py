"""The policy is evaluated in two places: in the trigger of rollout_log, and in
rollout_append(). Both give the same result for every pair of types."""
import json

import pytest

from rollout_helpers import ID, OTHER, append, create, well
from conftest import one, rows

TYPES = ["event_msg", "EventMsg", "response_item", "compacted", "note", "NO_TE", "*", "é"]
PAYLOADS = ['{"type":"user_message"}', '{"type":"UserMessage"}', '{"type":"token_count"}',
            '{"type":"message","role":"user"}', '{"type":"x"}', '{"type":""}', '{"type":"*"}',
            '{"type":5}', '{"type":null}', '{"type":"a","type":"x"}', "{}", "[]", "1", "null",
            '"x"', None]
PRESETS = {
    "codex": None, "everything": None,
    "pairs": [("note", "x", 1), ("event_msg", "token_count", 1)],
    "stars": [("*", "*", 1), ("note", "*", 0), ("note", "x", 1), ("event_msg", "", 1)],
    "bare": [("*", "", 1), ("note", "", 0)],
    "types of payloads": [("*", "x", 1), ("note", "x", 0), ("*", "usermessage", 1)],
}


@pytest.mark.parametrize("preset", PRESETS)
def test_both_ways_of_appending_keep_the_same(db, preset):
    if PRESETS[preset]:
        db.executemany("INSERT INTO rollout_policy(preset, item_type, payload_type, keep) "
                       f"VALUES ('{preset}', ?, ?, ?)", PRESETS[preset])
    db.execute("INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', ?)", (preset,))
    create(db, ID)
    create(db, OTHER)
    kept = 0
    for kind in TYPES:
        for payload in PAYLOADS:
            more = f',"payload":{payload}' if payload is not None else ""
            item = '{"type":%s%s}' % (json.dumps(kind), more)
            kept += one(db, "SELECT rollout_append(?, ?)", ID, item)
            db.execute("INSERT INTO rollout_log(rollout_id, type, payload) VALUES (?, ?, ?)",
                       (OTHER, kind, payload))
            assert one(db, "SELECT item_count FROM rollouts WHERE id = ?", OTHER) == kept + 1, item
    assert 0 < kept <= len(TYPES) * len(PAYLOADS)
    one_way, other = (rows(db, "SELECT type, payload FROM rollout_items WHERE rollout = ? AND "
                               "sequence > 0 ORDER BY sequence", rollout) for rollout in (ID, OTHER))
    assert one_way == other
    one_way, other = (rows(db, "SELECT * FROM rollout_dropped(?)", rollout)
                      for rollout in (ID, OTHER))
    assert [row[:3] for row in one_way] == [row[:3] for row in other]
    well(db)


def test_an_append_with_many_types_counts_each_type(db):
    """The answers for the newest types are kept; older ones are asked again."""
    create(db, ID)
    items = [{"type": f"type {n % 50}", "payload": {}} for n in range(100)]
    assert one(db, "SELECT rollout_append(?, ?)", ID, json.dumps(items)) == 0
    assert sorted(rows(db, "SELECT item_type, items, bytes FROM rollout_dropped(?)", ID)) \
        == sorted((f"type {n}", 2, 4) for n in range(50))
    well(db)


def test_an_append_applies_the_policy_that_is_in_force_now(db):
    """The answers of the policy are kept in memory, but not longer than they are true."""
    item = {"type": "note", "payload": {"type": "x"}}
    create(db, ID)
    changes = ["INSERT INTO rollout_policy(preset, item_type, payload_type) "
               "VALUES ('codex', 'note', '*')",
               "UPDATE rollout_policy SET keep = 0 WHERE item_type = 'note'",
               "UPDATE rollout_policy SET keep = 1 WHERE item_type = 'note'",
               "DELETE FROM rollout_policy WHERE item_type = 'note'",
               "INSERT INTO blackbox_settings(name, value) VALUES ('rollout.policy', 'everything')",
               "DELETE FROM blackbox_settings WHERE name = 'rollout.policy'"]
    kept = 0
    for sql, now in zip(changes, [1, 0, 1, 0, 1, 0]):
        assert append(db, ID, item) == kept
        db.execute("BEGIN")
        db.execute(sql)
        assert append(db, ID, item) == now, sql
        db.execute("ROLLBACK")
        assert append(db, ID, item) == kept, sql
        for end, found in ("ROLLBACK", kept), ("COMMIT", now):
            db.execute("BEGIN")
            assert append(db, ID, item) == append(db, ID, item) == kept, sql
            db.execute(sql)
            assert append(db, ID, item) == append(db, ID, item) == now, sql
            db.execute(end)
            db.execute("BEGIN IMMEDIATE")
            assert append(db, ID, item) == append(db, ID, item) == found, sql
            db.execute("COMMIT")
        assert append(db, ID, item) == now, sql
        kept = now
    well(db)
