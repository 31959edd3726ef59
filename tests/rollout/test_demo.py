"""`make demo SESSIONS=folder`: what the session files of a folder come to."""
import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import DATA, MODULE, ROOT, connect, needs_data, one, rows


def lines(*objects):
    return "".join(json.dumps(o) + "\n" for o in objects).encode()


def claude(session, role, content, **more):
    return {"type": role, "sessionId": session, "timestamp": "2026-03-01T08:00:00.000Z",
            "requestId": "r", "message": {"role": role, "content": content, **more}}


USAGE = {"input_tokens": 11, "cache_creation_input_tokens": 22, "cache_read_input_tokens": 33,
         "output_tokens": 44}
LONG = "".join(chr(97 + i * i % 26) for i in range(9000))
CODEX = lines(
    {"timestamp": "2026-03-02T08:00:00.000Z", "type": "session_meta",
     "payload": {"id": "019d0000-1111-7222-8333-444455556666"}},
    {"timestamp": "2026-03-02T08:00:01.000Z", "type": "turn_context", "payload": {"model": "m2"}},
    {"timestamp": "2026-03-02T08:00:02.000Z", "type": "event_msg", "payload": {
        "type": "token_count", "info": {
            "last_token_usage": {"input_tokens": 700, "cached_input_tokens": 600,
                                 "output_tokens": 5},
            "total_token_usage": {"input_tokens": 700}}}})


@pytest.fixture
def project(tmp_path):
    """A copy of the demo, whose database is then beside it."""
    shutil.copytree(ROOT / "demo", tmp_path / "project" / "demo")
    os.symlink(MODULE, tmp_path / "project" / os.path.basename(MODULE))
    return tmp_path / "project"


@pytest.fixture
def folder(tmp_path):
    """Four sessions: one of two turns, one that is compressed, one with a damaged line, and one
    of Codex; and files of other kinds."""
    folder = tmp_path / "home" / ".claude projects"
    (folder / "a").mkdir(parents=True)
    first = claude("one", "user", "hello \x1b[2J")
    (folder / "a" / "one.jsonl").write_bytes(lines(
        first, claude("one", "assistant", LONG, id="m", model="m1", usage=USAGE),
        claude("one", "assistant", LONG, id="m", model="m1", usage=USAGE),
        claude("one", "user", "again")))
    (folder / "two.jsonl.gz").write_bytes(gzip.compress(lines(claude("two", "user", "hi"))))
    (folder / "three.jsonl").write_bytes(lines(claude("three", "user", "hi")) + b"{torn")
    (folder / "codex.jsonl").write_bytes(CODEX)
    (folder / "false.jsonl.gz").write_bytes(b"not compressed")
    (folder / "notes.txt").write_text("no session")
    return folder


def demo(project, folder, **more):
    return subprocess.run([sys.executable, str(project / "demo" / "sessions.py"), str(folder)],
                          capture_output=True, text=True, **more)


def table(text, title):
    """The rows that are shown under a title, as words."""
    block = text[text.index(title):].split("\n\n")[0].splitlines()
    return [line.split() for line in block[3:]]


def snapshot(folder):
    return [(str(f), f.stat().st_mtime_ns, f.read_bytes() if f.is_file() else None)
            for f in sorted(folder.rglob("*"))]


def test_a_folder_is_imported_and_its_figures_are_shown(project, folder):
    before = snapshot(folder)
    got = demo(project, "~/.claude projects", env={**os.environ, "HOME": str(folder.parent)})
    assert got.returncode == 0, got.stderr
    assert snapshot(folder) == before
    assert got.stdout.startswith("4 files, 10 lines, 0.0 MB, ")
    assert [line[:5] for line in table(got.stdout, "Sessions by format:")] == [
        ["claude-code", "3", "0", "4", "9"], ["codex", "1", "0", "0", "3"]]
    assert table(got.stdout, "Tokens by day and model") == [
        ["2026-03-02", "m2", "1", "100", "0", "600", "5"],
        ["2026-03-01", "m1", "1", "11", "22", "33", "44"]]
    longest = table(got.stdout, "The longest:")
    assert longest[0][1:4] == ["2026-03-01", "2", "5"] and len(longest) == 4
    assert table(got.stdout, "The largest:")[0] == longest[0]
    assert "\x1b" not in got.stdout and "hello  [2J" in got.stdout
    assert "keep the 2 texts of 512 bytes and more" in got.stdout and "percent less" in got.stdout
    assert "2 files have errors" in got.stdout
    assert "three.jsonl: 1 bad lines; line 2: not JSON, and maybe cut off" in got.stdout
    assert "false.jsonl.gz: Not a gzipped file" in got.stdout
    db = connect(project / "demo.db")
    assert one(db, "SELECT count(*) FROM rollouts") == 4
    assert rows(db, "SELECT * FROM blackbox_check") == []
    assert demo(project, folder).stdout.count("codex.jsonl") == 0  # it begins anew
    assert one(connect(project / "demo.db"), "SELECT count(*) FROM rollouts") == 4


def test_a_folder_without_sessions_is_said(project, tmp_path):
    got = demo(project, tmp_path / "none")
    assert got.returncode == 1 and f"{tmp_path}/none is no folder" in got.stderr
    assert not (project / "demo.db").exists()
    (tmp_path / "none").mkdir()
    got = demo(project, tmp_path / "none")
    assert got.returncode == 1 and f"no file of a session below {tmp_path}/none" in got.stderr


def test_make_demo_hands_the_folder_over(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    told = [subprocess.run(["make", "-n", "--no-print-directory", "-C", ROOT, "demo", *more],
                           env=env, capture_output=True, text=True).stdout
            for more in ([], ["SESSIONS=~/a b"], ["DATA=x"])]
    assert [text.split("demo/")[-1].strip() for text in told] == [
        "demo.py", "sessions.py '~/a b'", "demo.py x"]


@needs_data
def test_recorded_sessions_add_up(project):
    got = demo(project, DATA / "rollouts")
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith("17 files, 9996 lines, 15.5 MB, ")
    assert [line[:4] for line in table(got.stdout, "Sessions by format:")] == [
        ["claude-code", "5", "0", "49"], ["codex", "11", "1", "142"]]
    assert ["2026-06-01", "claude-opus-4-8", "79", "12254", "241878", "11142622", "97442"] in \
        table(got.stdout, "Tokens by day and model")
    assert "have errors" not in got.stdout
