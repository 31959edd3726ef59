"""packages/datasette/metadata.json: each canned query runs read-only, and finds what is there.

With datasette itself, where it is installed (pip install datasette)."""
import importlib.util
import json
import pathlib
import sqlite3
import subprocess
import sys

import pytest

from conftest import MODULE, ROOT, connect

METADATA = ROOT / "packages/datasette/metadata.json"
QUERIES = json.loads(METADATA.read_text())["databases"]["flight"]["queries"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("datasette") / "flight.db"
    db = connect(path)
    db.execute("SELECT blackbox_install('main', 'payload,rollout')")
    db.execute("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    db.execute("SELECT rollout_load_prices(?, 'prices.json')", ((ROOT / "packages/prices.json").read_text(),))
    talk = [{"role": "user", "content": "Where is order 1042?"}]
    push = "INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES(?, ?, ?, ?)"
    for i in range(6):
        call = {"role": "assistant", "tool_calls": [
            {"id": f"c{i}", "function": {"name": "get_order", "arguments": '{"id":1042}'}}]}
        db.execute(push, ("support", f"e{i}", json.dumps({"messages": talk}),
                          json.dumps({"choices": [{"message": call}]})))
        talk += [call, {"role": "tool", "tool_call_id": f"c{i}", "content": "timeout"}]
    db.execute(push, ("wild", "w1", "rm", "done"))
    db.execute("SELECT payload_kill_switch('ring', 'wild', 'case-1')")
    report = json.loads(db.execute("SELECT rollout_import(?)", (json.dumps({"resourceSpans": [{"scopeSpans": [{
        "spans": [{"traceId": "a" * 32, "spanId": "b" * 16, "name": "chat", "startTimeUnixNano": "1784278800000000000",
                   "endTimeUnixNano": "1784278801000000000", "attributes": [
                       {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
                       {"key": "gen_ai.response.model", "value": {"stringValue": "gpt-5"}},
                       {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "100"}},
                       {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "7"}}]}]}]}]}) + "\n",)
    ).fetchone()[0])
    db.close()
    return path, {"agent": "support", "incident": "case-1", "conversation": report["rolloutId"], "text": "GEN_AI"}


def test_there_are_twelve():
    assert len(QUERIES) == 12
    assert [query["title"].split(".")[0] for query in QUERIES.values()] == [str(i) for i in range(1, 13)]


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_returns_rows_on_a_file_that_is_only_read(file, name):
    path, values = file
    db = sqlite3.connect(path.as_uri() + "?mode=ro", uri=True)
    db.enable_load_extension(True)
    db.load_extension(str(MODULE))
    db.execute("PRAGMA query_only = 1")
    rows = db.execute(QUERIES[name]["sql"], values).fetchall()
    assert rows and any(value is not None for value in rows[0])


@pytest.mark.skipif(importlib.util.find_spec("datasette") is None, reason="pip install datasette")
def test_datasette_itself_answers_each_query(file):
    path, values = file
    for name in QUERIES:
        words = "&".join(f"{key}={value}" for key, value in values.items())
        told = subprocess.run(
            [sys.executable, "-m", "datasette", str(path), "--load-extension", str(pathlib.Path(MODULE)),
             "--metadata", str(METADATA), "--get", f"/flight/{name}.json?_shape=array&{words}"],
            stdout=subprocess.PIPE, check=True).stdout
        assert json.loads(told), name
