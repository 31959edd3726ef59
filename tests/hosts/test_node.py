"""Packages of npm: two SQLite libraries in one process, tools for migrations, Litestream.

`make test-hosts` installs the packages, and runs these tests."""
import shutil
import subprocess
import time

import pytest

import hosts
from conftest import MODULE, ROOT, connect, one
from test_copies import content


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


def test_what_litestream_restores_has_everything(tmp_path):
    installed("@flydotio/litestream")
    program = hosts.NODE_MODULES / ".bin" / "litestream"
    source, copy, replica = tmp_path / "flight.db", tmp_path / "copy.db", f"file://{tmp_path}/replica"
    db = connect(source)
    one(db, "PRAGMA journal_mode = WAL")
    hosts.drive(hosts.python, tmp_path)
    server = subprocess.Popen([program, "replicate", source, replica],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.time() + 30
        while not list(tmp_path.glob("replica/generations/*/snapshots/*")):
            assert time.time() < end
            time.sleep(0.1)
        one(db, "SELECT payload_kill_switch('ring', 'bound', 'loop-3')")
        time.sleep(2)  # it copies once a second
    finally:
        server.terminate()
        server.wait()
    db.close()
    code, told = hosts.run(program, "restore", "-o", copy, replica)
    assert code == 0, told
    assert content(copy) == content(source)
    assert one(connect(copy), "SELECT count(*) FROM payload_pins") == 3
