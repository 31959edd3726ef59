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
    shutil.copy(ROOT / "packages/prices.json", folder / "blackbox")
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
        call = recorder.begin(body)
        answer = post(server, body)
        call.end(answer)
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
        call = await recorder.begin_async("1")
        call.end("answer")
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
            call = await recorder.begin_async(f"q{i}")
            call.end("answer")
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
    recorder.begin("1").end("answer")
    assert recorder.flush(5)
    away = path.with_name("away.db")
    path.rename(away)
    recorder.begin("2").end("answer")
    assert not recorder.flush(0.2) and not path.exists()
    assert "unable to open database file" in recorder.errors[0]
    away.rename(path)
    assert recorder.flush(5)
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq") == [("1",), ("2",)]


def test_of_too_many_that_wait_the_oldest_are_lost_and_told(blackbox, db, made, monkeypatch):
    monkeypatch.setattr(blackbox.spill, "WAITING_BYTES", 3000)
    monkeypatch.setattr(blackbox.recorder, "TELL_S", 0)
    recorder = made(on_stop="record")
    db.execute("BEGIN IMMEDIATE")
    for i in range(5):
        recorder.begin(str(i) * 900)
        time.sleep(0.05)
    db.execute("COMMIT")
    assert recorder.flush(5)
    assert rows(db, "SELECT substr(request_body, 1, 1) FROM ring ORDER BY seq") \
        == [("2",), ("3",), ("4",)]
    assert sorted(set(recorder.errors)) == [
        "an exchange was not recorded: too many wait, and this was the oldest",
        f"exchanges wait for {recorder._path}: database is locked"]


@pytest.mark.parametrize("bad", [None, 0, 20, 39])
def test_what_waited_is_written_in_batches_and_a_refused_row_is_lost_alone(
        blackbox, db, made, monkeypatch, bad):
    batches = []
    write_batch = blackbox.ring.write_batch
    monkeypatch.setattr(blackbox.ring, "BATCH_S", 60)
    monkeypatch.setattr(blackbox.recorder, "write_batch",
                        lambda *of: batches.append(write_batch(*of)) or batches[-1])
    recorder = made(on_stop="record")
    db.execute("BEGIN IMMEDIATE")
    for i in range(40):
        recorder.push(None, "a" * 2000 if i == bad else "a", f"e{i}", str(i), None, i + 1, None)
    db.execute("COMMIT")
    assert recorder.flush(5)
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq") == [
        (str(i),) for i in range(40) if i != bad]
    assert len(recorder.errors) == (bad is not None)
    assert bad is not None or sum(batches) >= 39 and len(batches) <= 2


def test_what_cannot_be_recorded_is_told_and_does_not_hold_up_the_rest(
        blackbox, db, path, made, caplog):
    recorder = made()
    recorder.push(None, "a" * 2000, "e1", "1", None, 1, None)
    recorder.push(None, "a", "e2", "2", None, 2, None)
    assert recorder.flush(5) and one(db, "SELECT request_body FROM ring") == "2"
    assert "agent_id must be at most 1024 bytes" in recorder.errors[0] and len(recorder.errors) == 1
    who = blackbox.recorder.Recorder(path, agent=lambda request: request["agent"])
    who.begin("3", request={}).end("answer")
    who.begin(lambda: 1 / 0, request={"agent": "b"}).end("answer")
    who.begin(b"4\xc3", request={"agent": "b"}).end(b"\xff")
    assert who.close()
    assert "an exchange was not recorded: 'agent'" in caplog.text
    assert "an exchange was not recorded: division by zero" in caplog.text
    assert len(caplog.records) == 2
    assert rows(db, "SELECT request_body, response_body FROM ring WHERE agent_id = 'b'") \
        == [("4\ufffd", b"\xff")]
    for wrong in db, None:
        with pytest.raises(TypeError):
            blackbox.recorder.Recorder(wrong, agent="a")


def test_the_request_is_there_before_its_response(db, made):
    recorder = made()
    call = recorder.begin("asked", {"method": "POST"})
    assert recorder.flush(5)
    assert rows(db, "SELECT request_body, response_body, meta FROM ring") \
        == [("asked", None, '{"method": "POST"}')]
    call.end("answer", {"status": 200})
    recorder.begin("fails").end(None, {"error": "TimeoutError: 30 s"})
    assert recorder.flush(5) and recorder.errors == []
    found = rows(db, "SELECT request_body, response_body, meta FROM ring ORDER BY seq")
    assert found[0][:2] == ("asked", "answer") and found[1][:2] == ("fails", None)
    meta = [json.loads(meta) for _, _, meta in found]
    assert meta[0].pop("duration_ms") >= 0 and meta[0] == {"method": "POST", "status": 200}
    assert meta[1]["error"] == "TimeoutError: 30 s"


KILLED = """
import os, signal, sys, time
from blackbox.recorder import Recorder
recorder = Recorder(sys.argv[1], agent="support", on_stop="record")
for i in range(30):
    recorder.begin(f"q{i}").end(f"a{i}")
    if sys.argv[2] == "open":
        time.sleep(0.001 * i)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("lock", ["locked", "open"])
def test_what_was_handed_over_before_a_kill_is_recorded(package, db, path, made, lock):
    if lock == "locked":
        db.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", KILLED, path, lock], timeout=60, cwd=package,
                              env={**os.environ, "PYTHONPATH": str(package)}).returncode == -9
    if lock == "locked":
        assert len(list(path.parent.glob("*-spill-*.db"))) >= 1  # each takes over the one before
        db.execute("COMMIT")
    recorder = made()
    recorder.begin("last").end("answer")
    assert recorder.close(20) and recorder.errors == []
    assert rows(db, "SELECT count(*), count(DISTINCT event_id), count(response_body) FROM ring") \
        == [(91, 91, 91)]
    assert [count for count, in rows(
        db, "SELECT count(*) FROM ring GROUP BY request_body ORDER BY 1")] == [1] + [3] * 30
    assert list(path.parent.glob("*-spill-*")) == []


def test_two_recorders_of_a_file_leave_each_other_their_queues(db, path, made):
    db.execute("BEGIN IMMEDIATE")
    first, second = made(on_stop="record"), made(on_stop="record")
    for i in range(3):
        first.begin(f"first {i}").end("answer")
        second.begin(f"second {i}").end("answer")
    time.sleep(0.1)
    assert len(list(path.parent.glob("*-spill-*.db"))) == 2
    db.execute("COMMIT")
    assert first.flush(5) and second.flush(5) and first.errors == second.errors == []
    assert one(db, "SELECT count(DISTINCT request_body) FROM ring WHERE response_body = 'answer'") \
        == one(db, "SELECT count(*) FROM ring") == 6


def test_what_was_moved_from_a_queue_twice_is_there_once(blackbox, db, path, made):
    """A process may die after it has written a row, or taken it over, and before it says so."""
    recorder = made(on_stop="record")
    recorder.begin("q").end("a")
    assert recorder.flush(5)
    agent, event = db.execute("SELECT agent_id, event_id FROM ring").fetchone()
    left = sqlite3.connect(f"{path}-spill-1-old.db")
    left.execute(f"CREATE TABLE queue(n INTEGER PRIMARY KEY, adopted, bytes, "
                 f"{blackbox.spill.Queue.COLUMNS})")
    left.executemany("INSERT INTO queue VALUES(?, 0, 1, ?, ?, ?, ?, ?, 1, NULL, 'ring')", [
        (1, None, agent, event, "q", None), (2, "complete", agent, event, None, "a"),
        (3, None, agent, "new", "q2", None), (4, "complete", agent, "new", None, "a2")])
    left.commit()
    left.close()
    again = made()
    again.begin("q3").end("a3")
    assert again.flush(5) and again.errors == []
    assert rows(db, "SELECT request_body, response_body FROM ring ORDER BY request_body") \
        == [("q", "a"), ("q2", "a2"), ("q3", "a3")]


def test_a_queue_that_cannot_be_made_is_in_memory(blackbox, db, path, made, monkeypatch):
    def full(name):
        raise sqlite3.OperationalError("database or disk is full")
    monkeypatch.setattr(blackbox.spill, "_exclusive", full)
    monkeypatch.setattr(blackbox.spill, "MEMORY_BYTES", 50)
    recorder = made(on_stop="record")
    db.execute("BEGIN IMMEDIATE")
    time.sleep(0.05)
    for i in range(4):
        recorder.begin(str(i))
    db.execute("COMMIT")
    assert recorder.flush(5)
    assert rows(db, "SELECT request_body FROM ring ORDER BY seq")[-1] == ("3",)
    assert 0 < len(recorder.errors) < 4 and "too many wait" in recorder.errors[0]


def test_a_queue_that_is_damaged_is_told_and_the_rest_goes_on(db, path, made):
    recorder = made(on_stop="record")
    db.execute("BEGIN IMMEDIATE")
    recorder.begin("1")
    spill, = path.parent.glob("*-spill-*.db")
    with recorder._work:
        recorder._queue._file.execute("DROP TABLE queue")
    deadline = time.monotonic() + 5
    while not recorder.errors and time.monotonic() < deadline:
        time.sleep(0.01)
    assert recorder.errors == [
        f"exchanges wait: 1 are left in {spill}: no such table: queue"]
    recorder.begin("2")
    db.execute("COMMIT")
    assert recorder.flush(5) and rows(db, "SELECT request_body FROM ring") == [("2",)]


def test_the_response_of_a_call_that_was_killed_completes_its_request(
        package, blackbox, db, path, made):
    """Its request is in the ring with what meta says, or is evidence already."""
    recorder = made(on_stop="record")
    for body in ("one", "two"):
        recorder.begin(body, {"method": "POST"})
    assert recorder.flush(5)
    left = blackbox.spill._exclusive(_touch(f"{path}-spill-1-old.db"))
    for n, (event, body) in enumerate(rows(db, "SELECT event_id, request_body FROM ring"), 1):
        left.execute("INSERT INTO queue VALUES(?, 0, 1, 'complete', 'support', ?, NULL, ?, 1, ?, "
                     "'ring')", (n, event, f"answer to {body}", '{"duration_ms": 5}'))
    left.close()
    db.execute("SELECT payload_kill_switch('ring', 'support', 'k')")
    assert made().flush(5)
    assert rows(db, "SELECT request_body, response_body FROM event_payloads ORDER BY 1") \
        == [("one", "answer to one"), ("two", "answer to two")]


def _touch(name):
    open(name, "x").close()
    return name


def test_a_queue_goes_into_the_ring_that_it_was_for(blackbox, db, path, made):
    db.execute("CREATE VIRTUAL TABLE other USING payload_ring")
    left = blackbox.spill._exclusive(_touch(f"{path}-spill-1-old.db"))
    left.execute("INSERT INTO queue VALUES(1, 0, 1, NULL, 'a', 'e', 'q', NULL, 1, NULL, 'other')")
    left.close()
    recorder = made()
    assert recorder.flush(5) and recorder.errors == []
    assert rows(db, "SELECT request_body FROM other") == [("q",)]
    assert one(db, "SELECT count(*) FROM ring") == 0


def test_a_queue_that_cannot_be_read_is_told_and_stays(path, db, made):
    damaged = path.with_name(path.name + "-spill-1-damaged.db")
    damaged.write_text("this is no database, and long enough to be looked at " * 100)
    recorder = made()
    assert recorder.flush(5)
    recorder.begin("q").end("a")
    assert recorder.flush(5) and one(db, "SELECT count(*) FROM ring") == 1
    assert recorder.errors == [f"exchanges wait: what is in {damaged} cannot be read: "
                               "file is not a database"]
    assert damaged.exists()


# ------------------------------------------------------------------- two lines


def test_open_makes_a_flight_recorder(blackbox, tmp_path):
    with blackbox.open(tmp_path / "new.db", settings={"payload.retention_days": 30}) as db:
        assert one(db, "PRAGMA journal_mode") == "wal" and one(db, "PRAGMA auto_vacuum") == 2
        assert one(db, "SELECT value FROM blackbox_settings WHERE name = "
                   "'payload.retention_days'") == 30
        assert one(db, "SELECT count(*) FROM ring") == 0
    db.close()
    db = blackbox.open(tmp_path / "new.db", ring="other ring")
    assert one(db, 'SELECT count(*) FROM "other ring"') == one(db, "SELECT count(*) FROM ring") == 0
    with pytest.raises(TypeError, match="client must be one of httpx or requests, or stand on one, "
                                        "got dict"):
        db.record({}, agent="support")
    db.close()
    with pytest.raises(ValueError, match="NotFoundError: there is no setting 'payload.no'"):
        blackbox.open(tmp_path / "new.db", settings={"payload.no": 1})
    memory = blackbox.open(":memory:")
    with pytest.raises(ValueError, match="a database in memory has no recorder"):
        memory.record({}, agent="support")
    memory.close()


PROGRAM = """
import os, sys, blackbox
from blackbox.recorder import Recorder
recorder = Recorder(sys.argv[1], agent="support")
for i in range(20):
    recorder.begin(f"{os.getpid()} {i}").end("answer")
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
    metas = [json.loads(meta) for meta, in rows(db, "SELECT meta FROM ring ORDER BY seq")]
    assert [(meta["method"], meta.get("status")) for meta in metas] \
        == [("POST", 200), ("POST", 200), ("POST", None)]
    assert metas[0]["url"] == url and metas[2]["error"].startswith("ConnectionError: ")


def test_two_lines_record_a_client(blackbox, path, server):
    requests = pytest.importorskip("requests")
    with blackbox.open(path) as db:
        session = requests.Session()
        db.record(session, agent="nobody")  # the next takes its place
        recorder = db.record(session, agent="support")
        session.post(f"http://127.0.0.1:{server.server_port}/v1?key=secret", data="q")
        assert recorder.close(5)
        assert rows(db, "SELECT agent_id FROM ring WHERE response_body LIKE '%get_order%'"
                    " AND meta NOT LIKE '%secret%'") == [("support",)]
    db.close()


def test_the_clients_of_a_ring_share_a_recorder(blackbox, path, server):
    requests = pytest.importorskip("requests")
    with blackbox.open(path) as db:
        db.record(requests.Session(), agent="first")
        before = sum(thread.name == "blackbox" for thread in threading.enumerate())
        for i in range(20):
            session = requests.Session()
            recorder = db.record(session, agent=f"agent {i % 2}")
            session.post(f"http://127.0.0.1:{server.server_port}/v1", data=f"q{i}")
        assert recorder.flush(5)
        assert sum(thread.name == "blackbox" for thread in threading.enumerate()) <= before + 1
        assert rows(db, "SELECT agent_id, count(*) FROM ring GROUP BY agent_id") == [("agent 0", 10), ("agent 1", 10)]
        with pytest.raises(requests.ConnectionError):
            session.post("http://user:hidden1@127.0.0.1:9/x?key=hidden2", data="fails")
        assert recorder.close(5)
        (error,), = rows(db, "SELECT meta ->> 'error' FROM ring WHERE request_body = 'fails'")
        assert "/x" in error and "hidden" not in error
    db.close()


def test_exchanges_that_are_in_no_file_are_told_at_the_end(blackbox, path, made):
    recorder = made()
    recorder._queue._store = lambda row: False  # no queue can be made
    lock = sqlite3.connect(path, isolation_level=None)
    blackbox.open(path).close()
    lock.execute("BEGIN IMMEDIATE")
    recorder.begin("q")
    assert not recorder.close(0.2)
    assert any("1 rows wait in memory alone" in error for error in recorder.errors)
    lock.close()
