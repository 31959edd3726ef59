"""docs/opentelemetry.md: tools/otlp.py gets spans over the loopback, and a file with the same
spans is imported by the command line. Both give the same conversations."""
import gzip
import json
import os
import re
import subprocess
import sys

import pytest

from conftest import ROOT, connect
from packages_helpers import Receiver

PAGE = (ROOT / "docs/opentelemetry.md").read_text()
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "packages/python")}
LANGGRAPH = {  # OpenInference, as the instrumentation of LangChain names it
    "session.id": "case-7", "openinference.span.kind": "LLM", "llm.model_name": "gpt-5",
    "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "Where is my parcel?",
    "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "On its way.",
    "llm.token_count.prompt": 100, "llm.token_count.completion": 7}
AGENTS = {  # the conventions of OpenTelemetry
    "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "case-8", "gen_ai.response.model": "gpt-5",
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "And mine?"}]}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Lost."}]}]),
    "gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 3}
SEEN = [("case-7", 1, "Where is my parcel?"), ("case-8", 1, "And mine?")]


def otlp(number, attributes):
    values = [{"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
              for key, value in attributes.items()]
    return {"resourceSpans": [{"scopeSpans": [{"spans": [{
        "traceId": f"{number:032x}", "spanId": f"{number:016x}", "name": "chat", "attributes": values,
        "startTimeUnixNano": "1784278800000000000", "endTimeUnixNano": "1784278801000000000"}]}]}]}


LINES = [json.dumps(otlp(1, LANGGRAPH)), json.dumps(otlp(2, AGENTS), indent=1)]


def conversations(path):
    return connect(path).execute(
        "SELECT source_id, turns, first_user_message FROM rollouts ORDER BY 1").fetchall()


@pytest.fixture
def receiver(tmp_path):
    with Receiver(tmp_path) as receiver:
        yield receiver


def test_spans_over_the_loopback_are_conversations(receiver, tmp_path):
    assert receiver.send(LINES[0].encode()) == 200
    packed = gzip.compress(LINES[1].encode())
    assert receiver.send(packed, **{"Content-Encoding": "gzip"}) == 200
    assert conversations(tmp_path / "flight.db") == SEEN


def test_the_file_of_a_collector_gives_the_same(tmp_path):
    words = re.search(r"^python3 -m (blackbox import .*)$", PAGE, re.M).group(1).split()
    (tmp_path / "spans.jsonl").write_text("".join(json.dumps(json.loads(line)) + "\n" for line in LINES))
    for _ in range(2):  # what is there already is not added again
        subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, env=ENV, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert conversations(tmp_path / "flight.db") == SEEN


def test_what_is_no_span_is_refused_and_the_next_is_taken(receiver, tmp_path):
    for body in (b"", b"\x0a\x00protobuf", b"{", b"[" * 100_000, b"[]", b"{}", b"5"):
        assert receiver.send(body) == 400
    assert receiver.send(b"\x0a\x00protobuf", **{"Content-Type": "application/x-protobuf"}) == 415
    assert receiver.send(b"no gzip", **{"Content-Encoding": "gzip"}) == 400
    assert receiver.send(LINES[0].encode()) == 200
    assert conversations(tmp_path / "flight.db") == SEEN[:1]


def test_a_locked_file_is_told_and_what_was_answered_survives_a_kill(receiver, tmp_path):
    assert receiver.send(LINES[0].encode()) == 200
    db = connect(tmp_path / "flight.db")
    db.execute("BEGIN EXCLUSIVE")
    assert receiver.send(LINES[1].encode()) == 503
    db.execute("ROLLBACK")
    assert receiver.send(LINES[1].encode()) == 200
    receiver.kill()
    assert conversations(tmp_path / "flight.db") == SEEN
    again = Receiver(tmp_path)
    assert again.send(LINES[0].encode()) == 200
    again.kill()
    assert [row[0] for row in conversations(tmp_path / "flight.db")] == ["case-7", "case-8"]
