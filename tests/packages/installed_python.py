"""The wheel: installed without an index into an empty environment, and used there.

The recorder is tested with httpx of the machine, against a server on loopback."""
import asyncio
import os
import re
import sqlite3
import sys
import time

import pytest

from packages_helpers import ROOT, run, the

from model_server import EVENTS, WHOLE, Server

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """The python of an environment that has the wheel, and the packages of the machine."""
    folder = tmp_path_factory.mktemp("venv")
    run(PYTHON, "-m", "venv", "--system-site-packages", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", the("*.whl"), cwd=folder)
    return python


@pytest.fixture(scope="module")
def blackbox(venv):
    """The package as the environment has it, in this process."""
    sys.path.insert(0, str(next((venv.parent.parent / "lib").glob("*/site-packages"))))
    import blackbox
    import blackbox.httpx
    import blackbox.recorder
    yield blackbox
    sys.path.pop(0)


@pytest.fixture
def db(blackbox, tmp_path):
    db = blackbox.load(sqlite3.connect(tmp_path / "flight.db", isolation_level=None))
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=50)")
    return db


@pytest.fixture
def server():
    with Server() as server:
        yield server


def recorded(db):
    assert recorders[-1].flush(10)
    return db.execute("SELECT request_body, response_body FROM ring ORDER BY seq").fetchall()


# ------------------------------------------------------------------ the wheel


def test_the_wheel_is_used_from_an_empty_environment(tmp_path):
    run(PYTHON, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv/bin/python"
    run(python, "-m", "pip", "install", "-q", "--no-index", the("*.whl"), cwd=tmp_path)
    told = run(python, "-c", (
        "import sqlite3, blackbox\n"
        "db = blackbox.load(sqlite3.connect(':memory:'))\n"
        "print(db.execute('SELECT blackbox_install()').fetchone()[0])"), cwd=tmp_path)
    assert told.startswith("main: core, payload")
    assert run(python, "-m", "blackbox", "--version", cwd=tmp_path) \
        == f"{the('*.whl').name.split('-')[1]}\n"
    check = run(python, "-m", "pip", "show", "-f", "sqlite-blackbox", cwd=tmp_path)
    assert "blackbox/blackbox.so" in check and "License: MIT" in check
    run(python, "-m", "pip", "uninstall", "-q", "-y", "sqlite-blackbox", cwd=tmp_path)
    assert not list(tmp_path.glob("venv/lib/*/site-packages/*blackbox*"))


def test_loading_leaves_extensions_off(blackbox):
    db = blackbox.load(sqlite3.connect(":memory:"))
    with pytest.raises(sqlite3.OperationalError, match="not authorized"):
        db.load_extension(blackbox.loadable_path())


def test_a_python_without_extensions_is_told(blackbox):
    with pytest.raises(RuntimeError, match="LoadError: this Python was built without"):
        blackbox.load(object())


# --------------------------------------------------------------- the recorder


recorders = []


def recorder_of(blackbox, db, **options):
    options.setdefault("agent", "support")
    path = db.execute("PRAGMA database_list").fetchone()[2]
    recorders.append(blackbox.recorder.Recorder(path, **options))
    return recorders[-1]


def client(blackbox, db, **options):
    import httpx
    recorder = recorder_of(blackbox, db, **options)
    return httpx.Client(transport=blackbox.httpx.RecordingTransport(recorder))


def test_the_example_prints_what_it_says(venv, tmp_path):
    path = ROOT / "packages/python/examples/httpx_client.py"
    said = re.findall(r"^# (.*)$", path.read_text(), re.M)
    assert run(venv, path, cwd=tmp_path).splitlines() == said


def test_the_programs_in_the_docs_run(venv, tmp_path):
    text = (ROOT / "docs/packages.md").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 2
    run(venv, "-c", "\n".join(blocks), cwd=tmp_path)


def test_an_exchange_is_recorded_as_it_was(blackbox, db, server):
    with client(blackbox, db) as http:
        assert http.post(server.url + "whole", content='{"ask":"é"}').content == WHOLE
    assert recorded(db) == [('{"ask":"é"}', WHOLE.decode())]
    agent, event, at = db.execute("SELECT agent_id, event_id, timestamp FROM ring").fetchone()
    assert agent == "support" and len(event) == 36 and abs(at - time.time() * 1000) < 60000


def test_an_encoded_response_is_recorded_as_text(blackbox, db, server):
    with client(blackbox, db) as http:
        assert http.post(server.url + "packed", content="q").content == WHOLE
    assert recorded(db) == [("q", WHOLE.decode())]


def test_bytes_that_are_no_text_are_a_blob(blackbox, db, server):
    with client(blackbox, db) as http:
        http.post(server.url + "echo", content=b"\xff\x00\xfe")
        http.post(server.url + "echo", content="caf\xe9".encode()[:-1])
    assert recorded(db) == [(b"\xff\x00\xfe", b"\xff\x00\xfe"), ("caf\ufffd", "caf\ufffd")]


def test_a_response_without_a_body_is_recorded(blackbox, db, server):
    with client(blackbox, db) as http:
        http.post(server.url + "empty", content="q")
    assert recorded(db) == [("q", "")]


def test_the_first_event_of_a_stream_comes_before_the_second_is_sent(blackbox, db, server):
    with client(blackbox, db) as http:
        with http.stream("POST", server.url + "stream", content="q") as response:
            read = response.iter_raw()
            assert next(read) == EVENTS[0]
            assert recorded(db) == [("q", None)]
            server.release()
            server.release()
            assert b"".join(read) == b"".join(EVENTS[1:])
        assert recorded(db) == [("q", b"".join(EVENTS).decode())]


def test_a_stream_that_is_cut_off_is_recorded_as_far_as_it_came(blackbox, db, server):
    import httpx
    with client(blackbox, db) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            http.post(server.url + "cut", content="q")
    assert recorded(db) == [("q", "data: o")]


def test_a_stream_that_the_caller_leaves_is_recorded_as_far_as_it_was_read(blackbox, db, server):
    with client(blackbox, db) as http:
        with http.stream("POST", server.url + "stream", content="q") as response:
            assert next(response.iter_raw()) == EVENTS[0]
    server.release()
    assert recorded(db) == [("q", EVENTS[0].decode())]


def test_a_request_that_fails_is_recorded_and_fails(blackbox, db):
    import httpx
    with client(blackbox, db) as http:
        with pytest.raises(httpx.ConnectError):
            http.post("http://127.0.0.1:9/", content="q")
    assert recorded(db) == [("q", None)]


def test_an_error_of_recording_is_told_and_does_not_break_the_request(
        blackbox, db, server, caplog):
    errors = []
    with client(blackbox, db, ring="no ring", on_error=errors.append) as http:
        assert http.post(server.url + "whole", content="q").content == WHOLE
    assert recorded(db) == [] and "no such table: no ring" in str(errors[0])
    with client(blackbox, db, ring="no ring") as http:
        assert http.post(server.url + "whole", content="q").content == WHOLE
    assert recorded(db) == []
    assert "an exchange was not recorded: no such table" in caplog.text
    with client(blackbox, db, ring="no ring", on_error=lambda error: 1 / 0) as http:
        assert http.post(server.url + "whole", content="q").content == WHOLE
    assert recorded(db) == []
    assert caplog.text.count("an exchange was not recorded: no such table") == 4


def test_the_agent_can_depend_on_the_request(blackbox, db, server):
    with client(blackbox, db, agent=lambda request: request.headers["x-agent"]) as http:
        http.post(server.url + "whole", headers={"X-Agent": "billing"})
    assert recorded(db)
    assert db.execute("SELECT agent_id, request_body FROM ring").fetchall() == [("billing", None)]


def test_nothing_is_sent_for_an_agent_that_is_stopped(blackbox, db, server):
    """Nor by the clients that stand on httpx, which get the error from it."""
    import httpx
    stopped = blackbox.recorder.AgentStoppedError
    db.execute("INSERT INTO payload_agents(agent_id, stopped_at) VALUES('support', 1)")
    with client(blackbox, db) as http:
        with pytest.raises(stopped):
            http.post(server.url + "whole", content="q")
        with pytest.raises(stopped), http.stream("POST", server.url + "stream", content="q"):
            pass

    async def use():
        transport = blackbox.httpx.AsyncRecordingTransport(recorder_of(blackbox, db))
        async with httpx.AsyncClient(transport=transport) as http:
            calls = [http.post(server.url + "whole", content="q") for _ in range(3)]
            for ended in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(ended, stopped)

    asyncio.run(use())
    assert recorded(db) == []
    with client(blackbox, db, on_stop="record") as http:
        assert http.post(server.url + "whole", content="q").content == WHOLE
    assert recorded(db) == [("q", WHOLE.decode())]


def test_the_transport_for_async_clients_records_in_the_same_way(blackbox, db, server):
    import httpx
    recorder = recorder_of(blackbox, db)

    async def use():
        transport = blackbox.httpx.AsyncRecordingTransport(recorder)
        async with httpx.AsyncClient(transport=transport) as http:
            assert (await http.post(server.url + "packed", content="1")).content == WHOLE
            async with http.stream("POST", server.url + "stream", content="2") as response:
                async for chunk in response.aiter_raw():
                    assert chunk == EVENTS[0]
                    break
            server.release()
            with pytest.raises(httpx.RemoteProtocolError):
                await http.post(server.url + "cut", content="3")
            with pytest.raises(httpx.ConnectError):
                await http.post("http://127.0.0.1:9/", content="4")

    asyncio.run(use())
    assert recorded(db) == [("1", WHOLE.decode()), ("2", EVENTS[0].decode()),
                            ("3", "data: o"), ("4", None)]
