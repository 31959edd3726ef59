"""`make demo`: three agents in the table of the command line, one of which turns red."""
import os
import pty
import re
import shutil
import subprocess
import sys

import pytest

from conftest import MODULE, ROOT, connect, one, rows


@pytest.fixture
def project(tmp_path):
    """A copy of what the demo needs, whose files are then beside it."""
    for name in ("demo", "packages/python"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for path in (ROOT / "packages").glob("*.*"):
        shutil.copy(path, tmp_path / "packages")
    os.symlink(MODULE, tmp_path / os.path.basename(MODULE))
    return tmp_path


def demo(project, *words):
    done = subprocess.run([sys.executable, project / "demo/demo.py", *words], text=True,
                          capture_output=True)
    assert done.returncode == 0 and done.stderr == ""
    return done.stdout


def test_in_a_pipe_it_is_the_table_and_one_line_with_the_page(project):
    lines = demo(project).splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["agent", "support-1", "support-2", "support-3"]
    assert [line.split()[-1] for line in lines[1:4]] == ["ok", "stopped", "ok"]
    assert lines[4:] == ["", "support-2 called get_order 4 times with the same arguments and got the "
                         "same result: demo.html"]
    assert max(map(len, lines)) <= 100 and "\x1b" not in "".join(lines)
    assert "get_order" in (project / "demo.html").read_text()
    db = connect(project / "demo.db")
    assert rows(db, "SELECT agent_id, rule, count FROM payload_verdicts") \
        == [("support-2", "no_progress", 4)]
    assert one(db, "SELECT count(*) FROM event_payloads WHERE pinned") > 4
    assert rows(db, "SELECT * FROM blackbox_check") == []


def test_on_a_terminal_it_is_live_and_the_agent_turns_red(project):
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, str(project / "demo/demo.py")])
    told = b""
    while True:
        try:
            told += os.read(terminal, 65536)
        except OSError:  # it has ended
            break
    assert os.waitpid(child, 0)[1] == 0
    frames = told.decode().split("\x1b[H")[1:]
    assert len(frames) > 50 and [i for i, frame in enumerate(frames) if "\x1b[31m" in frame] \
        == [len(frames) - 1]
    assert re.search(r"\x1b\[31msupport-2 .* stopped\x1b\[0m", frames[-1])
    assert frames[-1].rstrip().endswith(": demo.html")


def test_verbose_shows_the_statements_and_what_was_tried(project):
    text = demo(project, "--verbose")
    assert max(map(len, text.splitlines())) <= 100
    for told in ("-> refused: PinnedError", "blackbox_check() finds 0 problems", "open it: demo.html",
                 "and have left the ring", "The receipt of what went:"):
        assert told in text
