"""Every error of the domain begins with its name."""
import re
import sqlite3

import pytest

from rollout_helpers import ID, OTHER, create

NAME = re.compile(r"[A-Z][A-Za-z]*Error: ")


@pytest.mark.parametrize("sql", [
    "SELECT rollout_append('x', '[]')", f"SELECT rollout_append('{OTHER}', '[]')",
    f"SELECT rollout_append('{ID}', '[5]')", f"SELECT rollout_append('{ID}', '[')",
    f"SELECT rollout_append('{ID}', NULL)", f"SELECT rollout_append('{ID}', '[]', -1)",
    f"SELECT rollout_create('{ID}')", f"SELECT rollout_create('{OTHER}', NULL, 'x')",
    f"SELECT rollout_create('{OTHER}', NULL, NULL, '[]')", f"SELECT rollout_resume('{OTHER}')",
    f"SELECT rollout_fork('{ID}', 5)", f"SELECT rollout_fork('{ID}', 0, '{ID}')",
    f"SELECT rollout_export('{OTHER}')", "SELECT rollout_page(0)", "SELECT rollout_page(1, 'x')",
    "SELECT rollout_import('')", f"SELECT * FROM rollout_range('{ID}', -2)",
    "SELECT * FROM rollout_search('ab')", "SELECT * FROM rollout_search('abc')",
    f"SELECT rollout_rebuild('{OTHER}')",
    "UPDATE rollout_items SET type = 'x'", "UPDATE rollouts SET turns = 5",
    "SELECT rollout_fork('x')", "SELECT rollout_cleanup_expired('x')",
    f"UPDATE rollouts SET expires_at = 0; SELECT rollout_append('{ID}', '[]')",
    f"SELECT rollout_shutdown('{ID}'); SELECT rollout_append('{ID}', '[]')",
    f"BEGIN; SELECT rollout_flush('{ID}')", f"BEGIN; SELECT rollout_shutdown('{ID}')",
    "PRAGMA query_only = ON; SELECT rollout_create(NULL)",
])
def test_every_call_that_fails_tells_the_name_of_its_error(db, sql):
    create(db)
    *before, last = sql.split("; ")
    for first in before:
        db.execute(first).fetchall()
    with pytest.raises(sqlite3.Error) as caught:
        db.execute(last).fetchall()
    assert NAME.match(str(caught.value)), caught.value
