"""The programs that docs/hosts.md shows really run, and print what they say.

`make test-hosts` names what they need, and runs all that it can."""
import os
import json
import re
import shlex
import shutil
import sqlite3

import pytest

import hosts
from conftest import MODULE, ROOT, connect, one, rows

PAGE = (ROOT / "docs" / "hosts.md").read_text()
HERE = PAGE[PAGE.index("## In your host"):PAGE.index("### Hosts that cannot")]
# host: the program
PROGRAMS = dict(re.findall(r"### ([^\n]*)\n.*?```\w+\n(.*?)```", HERE, re.S))


@pytest.fixture
def folder(tmp_path):
    """A folder with the module."""
    shutil.copy(MODULE, tmp_path)
    return tmp_path


def write(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def beside_packages(folder, name, text):
    """Node looks for packages in the folders above a program."""
    (folder / "node_modules").symlink_to(hosts.NODE_MODULES)
    return write(folder, name, text)


def in_shell(folder, text):
    hosts.program("sqlite3", "sqlite3")
    return ["sh", "-e", write(folder, "flight.sh", text)]


def in_python(package, debian):
    def command(folder, text):
        hosts.python_module(package, debian)
        return [hosts.PYTHON, write(folder, "flight.py", text)]
    return command


def in_odbc(folder, text):
    _, env = hosts.odbc(folder)
    return [*in_python("pyodbc", "python3-pyodbc")(folder, text), env]


def in_node(package):
    def command(folder, text):
        hosts.npm(package)
        return ["node", beside_packages(folder, "flight.mjs", text)]
    return command


def in_new_node(folder, text):
    node = os.environ.get("NODE") or "node"
    if hosts.run("sh", "-c", f"{shlex.quote(node)} -e \"require('node:sqlite')\"", cwd=ROOT)[0] != 0:
        raise hosts.Unavailable("no node that has node:sqlite; NODE can name one")
    return [ROOT / node if "/" in node else node, write(folder, "flight.mjs", text)]


def in_bun(folder, text):
    hosts.npm("bun")
    return [hosts.NODE_MODULES / ".bin" / "bun", write(folder, "flight.ts", text)]


def in_go(folder, text):
    hosts.go_packages()
    hosts.build("go", "build", "-tags", "libsqlite3", "-o", "flight", write(folder, "flight.go", text),
                cwd=folder, env=hosts.GO)
    return ["./flight"]


def in_rust(folder, text):
    return [hosts.cargo_project(folder, text)]


def in_ruby(folder, text):
    hosts.ruby(folder)
    return ["ruby", write(folder, "flight.rb", text)]


def in_perl(folder, text):
    hosts.perl(folder)
    return ["perl", write(folder, "flight.pl", text)]


def in_php(folder, text):
    hosts.php(folder)
    return ["php", "-d", f"sqlite3.extension_dir={folder}", write(folder, "flight.php", text)]


def in_pdo(folder, text):
    hosts.pdo(folder)
    return ["php", "-d", "ffi.enable=1", write(folder, "flight.php", text)]


def in_java(folder, text):
    hosts.jdbc(folder)
    return ["java", "-cp", hosts.JAR, write(folder, "Flight.java", text)]


def in_tcl(folder, text):
    hosts.tcl(folder)
    return ["tclsh", write(folder, "flight.tcl", text)]


def in_luajit(folder, text):
    hosts.luajit(folder)
    return ["luajit", write(folder, "flight.lua", text)]


def in_c(folder, text):
    hosts.build(*shlex.split(os.environ.get("CC", "cc")), "-o", "flight", write(folder, "flight.c", text),
                "-lsqlite3", cwd=folder)
    return ["./flight"]


QUICK = ["sqlite3 shell", "C"]
HOW = {
    "sqlite3 shell": in_shell,
    "Python: sqlite3": in_python("sqlite3", "python3"),
    "Python: APSW": in_python("apsw", "python3-apsw"),
    "Node: node:sqlite": in_new_node,
    "Node: better-sqlite3": in_node("better-sqlite3"),
    "Node: sqlite3": in_node("sqlite3"),
    "bun": in_bun,
    "Go: mattn/go-sqlite3": in_go,
    "Rust: rusqlite": in_rust,
    "Ruby: sqlite3": in_ruby,
    "Perl: DBD::SQLite": in_perl,
    "PHP: SQLite3": in_php,
    "PHP: PDO": in_pdo,
    "Java: xerial JDBC": in_java,
    "Tcl": in_tcl,
    "LuaJIT": in_luajit,
    "ODBC": in_odbc,
    "C": in_c,
}


def test_every_program_of_the_page_is_run():
    assert set(PROGRAMS) == set(HOW)


@pytest.mark.parametrize("name", HOW)
def test_the_program_runs_as_shown(name, folder):
    text = PROGRAMS[name]
    said = re.findall(r"^\s*(?:#|//|--|/\*) (\d+)(?: \*/)?$", text, re.M)
    env = {}
    try:
        if name not in QUICK:
            hosts.asked()
        command = HOW[name](folder, text)
    except hosts.Unavailable as reason:
        pytest.skip(str(reason))
    if isinstance(command[-1], dict):
        env = command.pop()
    code, told = hosts.run(*command, cwd=folder, env=env)
    assert code == 0, told
    assert told.split() == said == ["1"]
    assert rows(connect(folder / "flight.db"), "SELECT agent_id, seq FROM ring") == [("support", 1)]


def test_the_lines_of_the_table_are_those_of_the_programs():
    shown = "".join(re.findall(r"```\w+\n(.*?)```", PAGE, re.S))
    table = PAGE[PAGE.index("| host | install | load |"):].split("\n\n")[0]
    lines = [row.split("|")[3] for row in table.splitlines()[2:]]
    assert len(lines) > 10
    missing = [code for line in lines for code in re.findall(r"`([^`]+)`", line) if code not in shown]
    assert missing == []


def test_the_busy_timeouts_are_those_of_the_page(tmp_path):
    if os.environ.get("BLACKBOX_HOSTS") != "1":
        pytest.skip("make test-hosts runs it")
    scenario = tmp_path / "timeout.sql"
    scenario.write_text("SELECT timeout FROM pragma_busy_timeout;")
    found = {}
    for name, host in hosts.HOSTS.items():
        folder = tmp_path / re.sub(r"\W", "", name)
        folder.mkdir()
        try:
            command, env = host(folder)
        except hosts.Unavailable:
            continue
        told = hosts.run(*command, folder / "flight.db", scenario, env=env)[1].split()
        found.setdefault(int(told[-1]), set()).add(name)
    names = {"shell": "sqlite3 shell", "APSW": "Python apsw", "PHP SQLite3": "PHP SQLite3", "Ruby": "Ruby sqlite3",
             "Tcl": "Tcl sqlite3", "LuaJIT": "LuaJIT FFI", "C": "C, dlopen", "ODBC": "ODBC, pyodbc",
             "libsql": "Node libsql", "node:sqlite": "Node node:sqlite", "bun": "bun bun:sqlite",
             "npm sqlite3": "Node sqlite3", "Java": "Java JDBC, xerial", "Python": "Python sqlite3",
             "Go": "Go mattn/go-sqlite3", "Rust": "Rust rusqlite", "better-sqlite3": "Node better-sqlite3",
             "Perl": "Perl DBD::SQLite", "PDO": "PHP PDO"}
    table = PAGE[PAGE.index("| busy timeout |"):].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        seconds, of = [cell.strip() for cell in row.split("|")[1:3]]
        told = {names[name] for name in of.split(", ")}
        ms = 0 if seconds.startswith("none") else int(seconds.split()[0]) * 1000
        assert found.pop(ms, set()) - {"C, static"} <= told
    assert found == {}


def commands(heading):
    """The shell commands below a heading of docs/hosts.md."""
    text = PAGE.split(f"## {heading}\n")[1]
    return re.search(r"```sh\n(.*?)```", text, re.S).group(1)


THEIRS = """
CREATE TABLE event_payloads(
  id TEXT PRIMARY KEY, event_id TEXT NOT NULL, agent_id TEXT NOT NULL, request_body TEXT, response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0, purpose TEXT NOT NULL CHECK (purpose IN ('archive', 'evidence')),
  pinned INTEGER NOT NULL DEFAULT 0, kill_switch_event_id TEXT, created_at TEXT NOT NULL DEFAULT (datetime('now')));
INSERT INTO event_payloads(id, event_id, agent_id, purpose, pinned, created_at) VALUES
  ('p1', 'e1', 'a', 'archive', 0, datetime('now', '-100 days')), ('p2', 'e2', 'a', 'evidence', 1, datetime('now'));
"""
CODEX = """\
{"timestamp":"2025-10-09T08:53:20.000Z","type":"session_meta","payload":{"id":"%s","timestamp":"2025-10-09T08:53:20.000Z"}}
{"timestamp":"2025-10-09T08:53:21.000Z","type":"event_msg","payload":{"type":"user_message","message":"hello"}}
"""


def test_the_commands_that_move_other_files_to_blackbox_do_it(folder):
    gazer = folder / ".agentgazer"
    sessions = folder / ".codex" / "sessions" / "2025" / "10" / "09"
    gazer.mkdir()
    sessions.mkdir(parents=True)
    with sqlite3.connect(gazer / "payloads.db") as db:
        db.executescript(THEIRS)
    db.close()
    for i in range(2):
        name = f"0000000{i}-94b8-487b-a530-2aeb6098ae0e"
        (sessions / f"rollout-2025-10-09T08-53-20-{name}.jsonl").write_text(CODEX % name)
    code, told = hosts.run("sh", "-ec", commands("Moving to blackbox"), cwd=folder, env={"HOME": str(folder)})
    assert code == 0 and json.loads(told.split("\n")[-2])["items"] == 4, told
    db = connect(gazer / "payloads.db")
    one(db, "INSERT INTO event_payloads(event_id, agent_id, purpose) VALUES('e3', 'a', 'archive')")
    assert rows(db, "SELECT id FROM event_payloads WHERE id LIKE 'p_'") == [("p1",), ("p2",)]
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert rows(connect(folder / "flight.db"), "SELECT item_count, first_user_message FROM rollout_list(9)") == [
        (2, "hello"), (2, "hello")]


def test_the_files_of_plain_sql_make_a_whole_schema(folder):
    (folder / "sql").symlink_to(ROOT / "sql")
    code, told = hosts.run("sh", "-ec", commands("Migrations"), cwd=folder)
    assert (code, told) == (0, "")
    db = connect(folder / "plain.db")
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert one(db, "SELECT blackbox_install('main', 'payload')") == "main: core, payload"


PHP = """<?php
$db = new SQLite3('flight.db');
$db->loadExtension($argv[1]);
$db->exec('CREATE VIRTUAL TABLE ring USING payload_ring');
for ($i = 0; $i < 6; $i++) {
  $db->exec("INSERT INTO ring(agent_id, event_id) VALUES('$i', 'e')");
}
echo count(json_decode($db->querySingle("SELECT payload_extract('ring', '0')"))), "\\n";
$all = "SELECT payload_extract('ring', '1')";
echo count(json_decode($db->query($all)->fetchArray()[0])), "\\n";
$rows = $db->query("SELECT seq FROM ring WHERE agent_id = '2'");
$last = $rows->fetchArray()[0];
echo $last, "\\n";
$db->exec("DELETE FROM ring WHERE agent_id = '2' AND seq <= $last");
echo $db->querySingle("SELECT count(*) FROM ring"), "\\n";
"""


def test_php_takes_rows_once_with_query_single_and_in_two_steps(folder):
    """docs/hosts.md says so, and that query() loses what a function takes out."""
    try:
        hosts.asked()
        command = in_php(folder, PHP)
    except hosts.Unavailable as reason:
        pytest.skip(str(reason))
    code, told = hosts.run(*command, os.path.basename(MODULE), cwd=folder)
    assert (code, told.split()) == (0, ["1", "0", "1", "3"]), told
