"""The recorder for Python: it stops what is stopped, and neither loses nor delays anything.

The package is that of the sources, with the module beside it. The calls go to a server on
loopback, which counts them. Its transports are tested in installed_python.py."""
import asyncio
import http.client
import http.server
import importlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from conftest import MODULE, ROOT, one, rows


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "packages/python/blackbox", folder / "blackbox")
    shutil.copy(MODULE, folder / "blackbox")
    sys.path.insert(0, str(folder))
    importlib.import_module("blackbox.recorder")
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def blackbox(package):
    return sys.modules["blackbox"]


@pytest.fixture
def db(blackbox, path):
    db = blackbox.load(sqlite3.connect(path, isolation_level=None))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=100)")
    db.execute("UPDATE blackbox_settings SET value = 'kill_switch' WHERE name = 'payload.on_loop'")
    yield db
    db.close()


@pytest.fixture
def made(blackbox, path):
    """A function that makes a recorder, which keeps the errors that it tells."""
    recorders = []

    def make(**options):
        errors = []
        options.setdefault("on_error", lambda error: errors.append(str(error)))
        recorders.append(blackbox.recorder.Recorder(path, agent="support", **options))
        recorders[-1].errors = errors
        return recorders[-1]

    yield make
    for recorder in recorders:
        recorder.close()


class Model(http.server.BaseHTTPRequestHandler):
    """Calls the same tool for ever."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.hits += 1
        body = json.dumps({"choices": [{"message": {"role": "assistant", "tool_calls": [{
            "id": f"c{self.server.hits}", "type": "function",
            "function": {"name": "get_order", "arguments": '{"id":1042}'}}]}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    server.daemon_threads = True
    server.hits = 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def post(server, body):
    http_ = http.client.HTTPConnection("127.0.0.1", server.server_port)
    http_.request("POST", "/v1", body)
    answer = http_.getresponse().read()
    http_.close()
    return answer


def sender(recorder, server):
    """What a transport does."""
    def send(body):
        call = recorder.begin()
        answer = post(server, body)
        call.end(lambda: (body, answer))
        return answer
    return send


def loop(send, most=40, question="Where is order 1042?"):
    messages = [{"role": "user", "content": question}]
    for _ in range(most):
        message = json.loads(send(json.dumps({"messages": messages})))["choices"][0]["message"]
        messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"],
                               "content": "timeout"}]


def stop(db):
    db.execute("INSERT INTO payload_agents(agent_id, stopped_at, stopped_by) "
               "VALUES('support', 1760000000000, 'Ann')")


def recorded(db, count):
    """Waits for so many exchanges in ring and evidence."""
    sql = ("SELECT (SELECT count(*) FROM ring) + (SELECT count(*) FROM event_payloads WHERE NOT "
           "EXISTS (SELECT 1 FROM ring WHERE ring.event_id = event_payloads.event_id))")
    deadline = time.monotonic() + 10
    while one(db, sql) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return one(db, sql)


# -------------------------------------------------------------- stop means stop


def test_a_loop_ends_with_the_call_that_pulls_the_switch(blackbox, db, made, server):
    recorder = made()
    for _ in range(2):
        with pytest.raises(blackbox.recorder.AgentStoppedError, match=(
                r"^agent support was stopped at 20\S+Z by rule no_progress")) as raised:
            loop(sender(recorder, server))
    assert raised.value.agent == "support" and raised.value.stopped_by == "rule no_progress"
    assert server.hits == 5 and recorder.errors == []
    assert rows(db, "SELECT went_on FROM payload_agents") == [(0,)]
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 5
    db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) "
               "VALUES('support', 'Ann', 'mended')")
    loop(sender(recorder, server), 1, "Something else?")
    assert server.hits == 6


def test_what_goes_out_after_the_stop_can_be_recorded(db, made, server):
    recorder = made(on_stop="record")
    loop(sender(recorder, server), 30)
    assert recorder.flush(5) and server.hits == 30 and recorder.errors == []
    assert rows(db, "SELECT went_on FROM payload_agents") == [(25,)]
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") == 30
    with pytest.raises(ValueError, match="on_stop must be raise or record, got 'stop'"):
        made(on_stop="stop")


def test_of_loops_in_many_threads_none_sends_after_the_stop(blackbox, db, made, server):
    recorder = made()
    stopped = []

    def work(number):
        try:
            loop(sender(recorder, server), question=f"Where is order {number}?")
        except blackbox.recorder.AgentStoppedError:
            stopped.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(stopped) == list(range(8)) and recorder.errors == []
    assert one(db, "SELECT went_on FROM payload_agents") <= 7  # those that were on their way


def test_another_process_stops_the_agent(blackbox, db, path, made, server):
    send = sender(made(), server)
    loop(send, 2)
    subprocess.run([sys.executable, "-c", (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(\"INSERT INTO "
        "payload_agents(agent_id, stopped_at) VALUES('support', 1)\"); db.commit()"), path],
        check=True)
    with pytest.raises(blackbox.recorder.AgentStoppedError, match="by a program"):
        send("{}")
    assert server.hits == 2


def test_asyncio_asks_as_well(blackbox, db, made):
    recorder = made()

    async def use():
        call = await recorder.begin_async()
        call.end(lambda: ("1", "answer"))
        stop(db)
        with pytest.raises(blackbox.recorder.AgentStoppedError):
            await recorder.begin_async()

    asyncio.run(use())
    assert recorder.flush(5) and recorded(db, 1) == 1


# ---------------------------------------------------- nothing is lost or delayed


def test_one_recorder_serves_four_threads(db, made, server):
    recorder = made()
    send = sender(recorder, server)
    threads = [threading.Thread(target=lambda: [send("{}") for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert recorder.flush(5) and recorder.errors == []
    assert one(db, "SELECT count(*) FROM ring") == 20


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_a_lock_delays_no_event_loop_and_loses_nothing(blackbox, db, path, made, mode):
    db.execute(f"PRAGMA journal_mode = {mode}")
    recorder = made(on_stop="record")
    db.execute("BEGIN EXCLUSIVE")

    async def use():
        gaps = []

        async def tick():
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.005)
                gaps.append(time.monotonic() - before)

        ticking = asyncio.ensure_future(tick())
        for i in range(50):
            call = await recorder.begin_async()
            call.end(lambda: (f"q{i}", "answer"))
            await asyncio.sleep(0.02)
        ticking.cancel()
        return max(gaps)

    assert asyncio.run(use()) < 0.5
    assert not recorder.flush(0)
    db.execute("COMMIT")
    assert recorder.flush(5) and recorder.errors == []
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq") == [(f"q{i}",) for i in range(50)]


def test_a_file_that_cannot_be_read_lets_the_call_go(blackbox, db, made, server):
    db.execute("PRAGMA journal_mode = DELETE")
    recorder = made()
    send = sender(recorder, server)
    stop(db)
    db.execute("BEGIN EXCLUSIVE")
    begin = time.monotonic()
    send("{}")
    assert time.monotonic() - begin < 1
    assert recorder.errors == [
        "whether agent support is stopped is not known, and its call was sent: database is locked"]
    db.execute("COMMIT")
    assert recorder.flush(5)
    with pytest.raises(blackbox.recorder.AgentStoppedError):
        send("{}")
    db.execute("DROP TABLE payload_agents")
    send("{}")
    assert "no such table: payload_agents" in recorder.errors[1] and len(recorder.errors) == 2
    assert recorder.flush(5) and server.hits == one(db, "SELECT count(*) FROM ring") == 2


def test_in_wal_mode_a_lock_does_not_keep_the_answer(blackbox, db, made):
    recorder = made()
    stop(db)
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(blackbox.recorder.AgentStoppedError):
        recorder.begin()
    db.execute("COMMIT")


def test_a_file_that_is_gone_is_waited_for(blackbox, db, path, made):
    db.execute("PRAGMA journal_mode = DELETE")
    recorder = made()
    recorder.begin().end(lambda: ("1", "answer"))
    assert recorder.flush(5)
    away = path.with_name("away.db")
    path.rename(away)
    recorder.begin().end(lambda: ("2", "answer"))
    assert not recorder.flush(0.2) and not path.exists()
    assert "unable to open database file" in recorder.errors[0]
    away.rename(path)
    assert recorder.flush(5)
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq") == [("1",), ("2",)]


def test_of_too_many_that_wait_the_oldest_are_lost_and_told(blackbox, db, made, monkeypatch):
    monkeypatch.setattr(blackbox.recorder, "WAITING", 3)
    monkeypatch.setattr(blackbox.recorder, "TELL_S", 0)
    recorder = made(on_stop="record")
    db.execute("BEGIN IMMEDIATE")
    for i in range(5):
        recorder.begin().end(lambda: (str(i), "answer"))
        time.sleep(0.05)
    db.execute("COMMIT")
    assert recorder.flush(5)
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq") == [("2",), ("3",), ("4",)]
    assert sorted(set(recorder.errors)) == [
        "an exchange was not recorded: too many wait, and this was the oldest",
        f"exchanges wait for {recorder._path}: database is locked"]


def test_what_cannot_be_recorded_is_told_and_does_not_hold_up_the_rest(
        blackbox, db, path, made, caplog):
    recorder = made()
    recorder.push("a" * 2000, "1", None, 1)
    recorder.push("a", "2", None, 2)
    assert recorder.flush(5) and one(db, "SELECT request_body FROM ring") == "2"
    assert "agent_id must be at most 1024 bytes" in recorder.errors[0] and len(recorder.errors) == 1
    who = blackbox.recorder.Recorder(path, agent=lambda request: request["agent"])
    who.begin({}).end(lambda: ("3", None))
    who.begin({"agent": "b"}).end(lambda: 1 / 0)
    who.begin({"agent": "b"}).end(lambda: (b"4\xc3", b"\xff"))
    assert who.close()
    assert "an exchange was not recorded: 'agent'" in caplog.text
    assert "an exchange was not recorded: division by zero" in caplog.text
    assert rows(db, "SELECT request_body, response_body FROM ring WHERE agent_id = 'b'") \
        == [("4\ufffd", b"\xff")]
    for wrong in db, None:
        with pytest.raises(TypeError):
            blackbox.recorder.Recorder(wrong, agent="a")


PROGRAM = """
import os, sys, blackbox
from blackbox.recorder import Recorder
recorder = Recorder(sys.argv[1], agent="support")
for i in range(20):
    recorder.begin().end(lambda: (f"{os.getpid()} {i}", "answer"))
    if i == 9 and sys.argv[2] == "fork":
        children = []
        for _ in range(3):
            child = os.fork()
            if child == 0:
                children = None
                break
            children.append(child)
if sys.argv[2] == "fork" and children is not None:
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
"""


@pytest.mark.parametrize("how, agents", [("exit", [20]), ("fork", [10, 10, 10, 20])])
def test_the_end_of_a_process_waits_for_its_writes_and_forks_have_their_own(
        package, db, path, how, agents):
    subprocess.run([sys.executable, "-c", PROGRAM, path, how], check=True, timeout=60,
                   cwd=package, env={**os.environ, "PYTHONPATH": str(package)})
    counts = rows(db, "SELECT count(*) FROM ring GROUP BY substr(request_body, 1, "
                  "instr(request_body, ' ')) ORDER BY 1")
    assert [count for count, in counts] == agents
    assert rows(db, "SELECT * FROM blackbox_check") == rows(db, "PRAGMA integrity_check")[1:]


# -------------------------------------------------------------------- requests


def test_the_adapter_of_requests_records_and_stops(blackbox, db, made, server):
    requests = pytest.importorskip("requests")
    recording = importlib.import_module("blackbox.requests")
    recorder = made()
    session = requests.Session()
    session.mount("http://", recording.RecordingAdapter(recorder))
    url = f"http://127.0.0.1:{server.server_port}/v1"

    def send(body):
        return session.post(url, data=body.encode()).content

    with pytest.raises(blackbox.recorder.AgentStoppedError):
        loop(send)
    assert server.hits == 5
    assert one(db, "SELECT count(*) FROM payload_rows WHERE response_body LIKE '%get_order%'") == 5
    db.execute("DELETE FROM payload_agents")
    with session.post(url, data="left", stream=True) as response:
        next(response.iter_content(4))
    response = session.post(url, data="streamed", stream=True)
    assert len(b"".join(response.iter_content(7))) == int(response.headers["Content-Length"])
    with pytest.raises(requests.ConnectionError):
        session.post("http://127.0.0.1:9/", data="fails")
    assert recorder.flush(5) and recorder.errors == []
    assert rows(db, "SELECT request_body, length(response_body) FROM ring ORDER BY seq") \
        == [("left", 4), ("streamed", int(response.headers["Content-Length"])), ("fails", None)]
