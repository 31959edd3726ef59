"""Node: two SQLite libraries in one process, and tools for migrations.

`make test-hosts` installs the packages, and runs these tests."""
import shutil

import pytest

import hosts
from conftest import MODULE, ROOT


def node(program, name, *args):
    """What a program of this folder prints. It must run beside its packages."""
    copy = shutil.copy(hosts.PROGRAMS / name, hosts.BUILD)
    code, told = hosts.run(program, copy, *args)
    assert code == 0, told
    return told.splitlines()


def installed(*packages):
    try:
        hosts.asked()
        hosts.program("node", "node")
        for package in packages:
            hosts.npm(package)
    except hosts.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("first, second", [
    ("better-sqlite3", "libsql"), ("sqlite3", "better-sqlite3"), ("node:sqlite", "sqlite3")])
def test_a_second_library_is_refused_and_both_work_with_a_file_each(tmp_path, first, second):
    installed("node" if first == "node:sqlite" else first, second)
    program = hosts.NODE if first == "node:sqlite" else "node"
    copy = shutil.copy(MODULE, tmp_path)
    refused, *worked = node(program, "two-libraries.mjs", MODULE, copy, first, second)
    assert "blackbox is in use by another copy of the SQLite library" in refused
    assert worked == ["first: 2", "second: 2 first: 0"]


def test_migrations_of_three_tools_go_up_and_down(tmp_path):
    installed("better-sqlite3", "knex", "umzug", "drizzle-orm")
    assert node("node", "migrations.mjs", MODULE, tmp_path, ROOT / "sql") == [
        "knex: this migration fails",
        "knex, after a migration that failed: nothing, problems: 0",
        "knex: orders,1",
        "knex, up: cache_items event_payloads orders ring, problems: 0",
        "knex, down: nothing, problems: 0",
        "umzug, up: cache_items event_payloads, problems: 0",
        "umzug, down: nothing, problems: 0",
        "drizzle, up: cache_items event_payloads ring, problems: 0",
    ]
