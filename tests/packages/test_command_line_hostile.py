"""The command lines where the file, the data, the terminal or the caller is not as it should be."""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import termios
import threading
import time

import pytest

from conftest import ROOT, connect, some
from test_command_line import (  # noqa: F401: fixtures
    ANSWER, SESSION, exchange, file, interruptible, look, objects, program, programs, run)

READERS = [("top",), ("tail",), ("report",), ("usage",), ("search", "order"), ("export",), ("doctor",)]
# An escape sequence in seven bits and in one character, a bell, marks that turn text around
EVIL = "ev\x1b[5mil\x07\u202egnp.exe\u2066\n\r\t\x9b2J\u061c"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def ring(path):
    db = connect(path)
    db.execute("SELECT blackbox_install()")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS ring USING payload_ring")
    return db


@pytest.fixture
def evil(tmp_path):
    """Names, prompts, tools and errors that would move a cursor; the agent loops."""
    db = ring(tmp_path / "flight.db")
    db.execute("UPDATE blackbox_settings SET value = 'record' WHERE name = 'payload.on_loop'")
    db.execute("SELECT blackbox_install('main', 'rollout')")
    now = int(time.time() * 1000)
    for i in range(6):
        asked = json.loads(exchange(i).replace("get_order", "get\\u001b[5m_order"))
        asked["messages"][0]["content"] += EVIL
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp, meta) "
                   "VALUES(?, ?, ?, ?, ?, ?)", (
                       EVIL, f"e{i}", json.dumps(asked, ensure_ascii=False), ANSWER, now + i,
                       json.dumps({"error": f"Net{EVIL}: x", "duration_ms": 2}, ensure_ascii=False)))
    db.execute("SELECT rollout_import(?)", (
        SESSION.replace("A test fails", json.dumps(EVIL, ensure_ascii=False)[1:-1]),))
    db.close()
    return tmp_path / "flight.db"


def terminal(folder, words, columns=80, rows=24, seconds=20, until=None, **env):
    """What is written to a terminal of this size, and how the program ended."""
    child, master = pty.fork()
    if child == 0:
        os.environ.update(env)
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.execvp(str(words[0]), [str(word) for word in words])
    told = b""
    end = time.monotonic() + seconds
    while time.monotonic() < end and (until is None or until not in told):
        if select.select([master], [], [], 0.2)[0]:
            try:
                told += os.read(master, 65536)
            except OSError:
                break
    os.kill(child, signal.SIGINT)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(master)
    return told.decode(), code


def bare(told):
    """What a terminal shows: our own colours and movements are not counted."""
    return re.sub(r"\x1b\[(31|1|0)m|\x1b\[[HKJ]", "", told).replace("\r\n", "\n").replace("\r[", "[")


@pytest.mark.parametrize("words", [
    *READERS, ("top", "--once"), ("top", "--json"), ("tail", "--json"), ("report", "--json"),
    ("report", "--format", "md"), ("report", "agent", EVIL, "--format", "md"),
    ("report", "agent", EVIL, "--json"), ("report", EVIL + "none"), ("search", "red", "--json"),
    ("fly" + EVIL,), ("top", "--" + EVIL), ("top", "--rows", EVIL), ("top", "--db", EVIL),
    ("top", "--ring", EVIL), ("import", EVIL), ("tail", EVIL), ("export", "--format", "markdown")])
def test_no_name_reaches_the_terminal_raw(program, evil, words):
    told, _ = terminal(evil.parent, [*program, *words],
                       until=b"\x1b[J" if words == ("top",) else None)
    assert len(told) > 10 and CONTROL.findall(bare(told)) == []


def test_errors_in_files_are_told_without_control(run, tmp_path):
    folder = tmp_path / f"a{EVIL}"
    folder.mkdir()
    (folder / f"b{EVIL}.jsonl").write_text("")
    done = run("import", folder, code=1)
    assert "\\u001b[5mil" in done.stderr and CONTROL.findall(done.stdout + done.stderr) == []


def test_the_line_that_is_to_be_copied_makes_the_page(program, evil):
    """The name of an agent is one word of the shell, whatever is in it."""
    db = connect(evil)
    for name in ("it's; $(touch bad) `touch bad`", "-dash", "caf\xe9 \u4e2d"):
        for i in range(5):
            db.execute("INSERT INTO ring(agent_id, event_id, request_body, response_body) VALUES(?, ?, ?, ?)",
                       (name, f"e{i}", exchange(i), ANSWER))
    db.close()
    told, _ = terminal(evil.parent, [*program, "top", "--once"], columns=1000)
    lines = re.findall(r"^  (?:npx sqlite-blackbox|python -m blackbox) (report .*)$", bare(told), re.M)
    assert len(lines) == 4
    start = " ".join(f"'{word}'" for word in program)
    for line in lines:
        page = subprocess.run(["bash", "-c", f"{start} --json {line}"], cwd=evil.parent, check=True, timeout=60,
                              stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout
        assert json.loads(page)["kind"] == "agent"
    assert not (evil.parent / "bad").exists()


def test_every_command_has_json(run, evil):
    for words in [*READERS, ("export", "--format", "atif"), ("export", "--format", "otlp"),
                  ("import", "none.jsonl")]:
        done = run(*words, "--json", code=1 if words[0] == "import" else 0)
        assert objects(done) and all(isinstance(row, dict) for row in objects(done)), words
        assert len(objects(done)) == 1 or words[0] != "report"
    assert [row["agent"] for row in objects(run("top", "--json"))] == [EVIL]  # the name itself
    assert "exclude each other" in run("export", "--json", "--format=markdown", code=2).stderr


def test_a_pipe_gets_every_byte(run, evil):
    db = connect(evil)
    lines = [line for line, in db.execute("SELECT e.line FROM rollouts, rollout_export(rollouts.id) AS e")]
    db.close()
    done = run("export", "5973b6c0-94b8-487b-a530-2aeb6098ae0e", LC_ALL="C")
    assert "\u202e" in done.stdout and "\x9b" in done.stdout
    assert done.stdout == "".join(f"{line}\n" for line in lines)


def test_the_locale_changes_no_data(run, evil):
    plain = {words: run(*words, "--json").stdout for words in [("tail",), ("export",), ("search", "order")]}
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
                {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}):
        for words, told in plain.items():
            assert run(*words, "--json", **env).stdout == told, (env, words)
        assert json.loads(run("report", "agent", EVIL, "--json", **env).stdout)["key"]


def test_a_file_that_is_none_is_told(run, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("no database, and long enough to be looked at as one " * 20)
    (tmp_path / "empty").touch()
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE t(a)")
    other.commit()
    other.close()
    (tmp_path / "s.jsonl").write_text(SESSION)
    for words in some([("import", "s.jsonl"), *READERS, ("serve", "--port", "0")]):
        for path, told in [("none", "there is no file none; name one with --db"),
                           ("", "there is no file "), ("folder", "folder: unable to open database file"),
                           ("text", "text: file is not a database"),
                           ("empty", "empty has no tables of blackbox"),
                           ("other", "other has no tables of blackbox")]:
            if words[0] == "import" and path in ("none", "empty", "other"):
                continue
            done = run(*words, "--db", path, code=1)
            assert done.stdout == "" and done.stderr.startswith(f"blackbox: {told}"), (words, path)
    assert not (tmp_path / "none").exists()
    assert (tmp_path / "empty").stat().st_size == 0


def test_a_file_of_a_newer_version_is_told(run, file):
    db = sqlite3.connect(file)
    db.execute("UPDATE blackbox_domains SET format = 99")
    db.commit()
    db.close()
    problems = [row for row in objects(run("doctor", "--json", code=1)) if row["state"] == "problem"]
    assert any("payload has format 99, and this version knows up to 1" in row["value"] for row in problems)
    (file.parent / "s.jsonl").write_text(SESSION)
    for words in [("report",), ("import", "s.jsonl")]:
        assert "VersionError: schema main has format 99" in run(*words, code=1).stderr
    known = re.search(r"#define BX_FORMAT (\d+)", (ROOT / "ext/core/schema.h").read_text()).group(1)
    assert f"WHERE format > {known}" in (ROOT / "packages/commands.sql").read_text()


def test_a_file_that_is_damaged_is_told(run, file):
    data = file.read_bytes()
    for name, bad in [("cut", data[:len(data) // 3]),
                      ("noise", data[:100] + os.urandom(4000) + data[4100:])]:
        file.with_name(name).write_bytes(bad)
        for words in READERS:
            done = run(*words, "--db", name, code=1)
            assert "malformed" in done.stderr or "not a database" in done.stderr or words[0] == "doctor"
            assert len(done.stderr.splitlines()) <= 1


@pytest.mark.parametrize("words", [("top",), ("import", "s.jsonl")])
def test_a_file_that_is_locked_is_waited_for(run, file, words):
    (file.parent / "s.jsonl").write_text(SESSION)
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("BEGIN EXCLUSIVE")
    begin = time.monotonic()
    assert "flight.db: database is locked" in run(*words, code=1).stderr
    assert 4 < time.monotonic() - begin < 9
    threading.Timer(1.5, lambda: db.execute("ROLLBACK")).start()
    assert run(*words).stdout
    db.close()


@pytest.mark.skipif(not shutil.which("setpriv"), reason="root writes to every file")
def test_a_file_that_cannot_be_written_is_read(program, file, tmp_path):
    db = sqlite3.connect(file)
    folder = tmp_path / "ro"
    folder.mkdir()
    (tmp_path / "s.jsonl").write_text(SESSION)
    db.execute("VACUUM INTO ?", (str(folder / "plain.db"),))
    plain = sqlite3.connect(folder / "plain.db")
    plain.execute("PRAGMA journal_mode = DELETE")
    plain.close()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    shutil.copy(file, folder / "wal.db")
    for path in (folder / "plain.db", folder / "wal.db"):
        path.chmod(0o444)
    folder.chmod(0o555)
    limits = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"] if os.geteuid() == 0 else []

    def nobody(*words):
        return subprocess.run([*limits, *map(str, program), *words], cwd=tmp_path, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    for words in READERS:
        done = nobody(*words, "--db", "ro/plain.db")
        assert done.returncode == 0 and done.stdout, done.stderr
        done = nobody(*words, "--db", "ro/wal.db")
        assert done.returncode == 1 and "copy it, with its -wal" in done.stderr
    done = nobody("import", "s.jsonl", "--db", "ro/plain.db")
    assert done.returncode == 1 and "readonly database" in done.stderr
    done = nobody("report", "--db", "ro/plain.db", "-o", "ro/x.html")
    assert done.returncode == 1 and re.fullmatch("blackbox: .*ro/x.html.*\n", done.stderr)
    folder.chmod(0o755)


@pytest.mark.parametrize("name", ["folder", "none/x.html"])
def test_a_page_that_cannot_be_written_is_told(run, file, name):
    (file.parent / "folder").mkdir()
    done = run("report", "-o", name, code=1)
    assert done.stdout == "" and re.fullmatch(f"blackbox: .*{name}.*\n", done.stderr)
    (file.parent / "kept.html").write_text("kept")
    run("report", "nobody", "-o", "kept.html", code=1)
    run("report", "agent", "nobody", "-o", "kept.html", code=1)
    assert (file.parent / "kept.html").read_text() == "kept"


def shell(program, folder, script):
    start = " ".join(f"'{word}'" for word in program)
    return subprocess.run(["bash", "-c", "set -o pipefail; " + script.replace("CLI", start)], cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)


def test_output_that_nobody_reads_ends_the_program(program, file):
    db = connect(file)
    for i in range(300):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('many', ?, ?)", (f"m{i}", "body " * 200))
    db.close()
    for words in ("export", "top", "tail -n 900 --json", "report", "report --json", "doctor", "search body -n 900"):
        done = shell(program, file.parent, f"CLI {words} | head -c 20")
        assert (done.returncode, len(done.stdout), done.stderr) == (0, 20, b""), words
        done = shell(program, file.parent, f"CLI {words} >&-")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), words
        done = shell(program, file.parent, f"CLI {words} > /dev/full")
        assert done.returncode == 1 and re.fullmatch(b"blackbox: .*[Nn]o space.*\n", done.stderr), words
    done = shell(program, file.parent, "CLI fly 2>&-")
    assert (done.returncode, done.stdout) == (2, b"")


def test_what_is_huge_is_cut_where_it_is_shown(run, file):
    db = connect(file)
    prompt = json.dumps({"messages": [{"role": "user", "content": "\u4e2d x" * 700000}]}, ensure_ascii=False)
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('huge', 'h', ?)", (prompt,))
    db.close()
    begin = time.monotonic()
    for words in [("tail", "huge"), ("top",), ("search", "\u4e2d")]:
        assert len(run(*words).stdout) < 2000
    assert objects(run("export", "huge"))[0]["request"] == prompt
    assert time.monotonic() - begin < 30


def test_a_narrow_terminal_is_not_overrun(program, evil):
    db = connect(evil)
    for i in range(40):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES(?, 'x', 'y')", ("\u4e2d" * 40 + str(i),))
    db.close()
    told, _ = terminal(evil.parent, [*program, "top"], columns=20, rows=10, until=b"\x1b[J")
    lines = bare(told[:told.index("\x1b[J")]).rstrip("\n").split("\n")
    assert len(lines) == 9
    assert max(sum(2 if c == "\u4e2d" else 1 for c in line) for line in lines) <= 20
    (evil.parent / "s.jsonl").write_text(SESSION)
    told, _ = terminal(evil.parent, [*program, "import", "s.jsonl"], columns=20)
    assert all(len(part) < 20 for part in re.findall(r"\r(\[[^\x1b]*)\x1b\[K", told))
    assert len(re.findall(r"\r\[", told)) == 2


@pytest.mark.parametrize("words", [("import", "folder"), ("tail", "-f"), ("serve", "--port", "0")])
def test_ctrl_c_ends_at_once_and_leaves_a_whole_file(program, file, words):
    folder = file.parent / "folder"
    folder.mkdir()
    line = SESSION.splitlines()[0]
    for i in range(3):
        text = line.replace("5973b6c0", f"5973b6c{i}").replace("Why is it red?", "x" * 300)
        (folder / f"{i}.jsonl").write_text(f"{text}\n" * 40000)  # 20 MB
    with subprocess.Popen([*map(str, program), *words], cwd=file.parent, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as child:
        begin, wal = time.monotonic(), file.with_name(file.name + "-wal")
        while time.monotonic() < begin + 1.5 and not (wal.exists() and wal.stat().st_size > 1 << 20):
            time.sleep(0.01)  # of an import, the middle
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == -signal.SIGINT and time.monotonic() - begin < 1
        assert "Traceback" not in child.stderr.read()
    db = connect(file)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT count(*) FROM blackbox_check").fetchone() == (0,)
    db.close()


def test_wrong_options_are_told(run, file):
    for words, told in [
            (["serve", "--port", "99999"], "--port must be at most 65535"), (["top", "-n-5"], "--rows must be a number"),
            (["top", "-"], "usage: "), (["top", "--", "x"], "usage: "), (["-q"], "no option -q"),
            (["-n"], "-n needs a COUNT"), (["report", "a", "b", "c"], "usage: "), (["search", "--"], "usage: ")]:
        done = run(*words, code=2)
        assert told in done.stderr and done.stdout == ""
    assert "flight.db has no ring other" in run("top", "--ring", "other", code=1).stderr
    assert run("search", "--", "--help", code=1).stdout == ""
    assert "no ring" in run("top", "--ring", 'ring"; DROP TABLE x', code=1).stderr
    assert "must be html, md or json, got pdf" in run("report", "--format", "pdf", code=2).stderr


# ------------------------------------------------------------------ serve


@pytest.fixture
def serving(program, file):
    with subprocess.Popen([*map(str, program), "serve", "--port", "0"], text=True, cwd=file.parent,
                          stderr=subprocess.PIPE) as child:
        yield int(re.search(r"http://127\.0\.0\.1:(\d+)/", child.stderr.readline()).group(1))
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == -signal.SIGINT and child.stderr.read() == ""


def raw(port, head, wait=10):
    """The answer to a request, as it comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as connection:
        connection.sendall(head.encode("latin-1"))
        told = b""
        while more := connection.recv(65536):
            told += more
        return told.decode()


def ask(port, path, host=None, method="GET"):
    host = f"Host: {f'127.0.0.1:{port}' if host is None else host}\r\n" if host != "" else ""
    told = raw(port, f"{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n")
    return int(told.split(" ", 2)[1]), told


def test_serve_answers_to_its_own_names_alone(serving):
    """Another site may have a name that leads to 127.0.0.1 (DNS rebinding)."""
    for host in (None, "localhost", f"localhost:{serving}", "127.0.0.1"):
        assert ask(serving, "/top", host)[0] == 200
    for host in ("evil.example", f"evil.example:{serving}", "127.0.0.1.evil.example:80", "localhost.evil.example",
                 "127.0.0.1:80.evil.example", "evil@127.0.0.1:80", "127.1:80", "[::1]:80", "0.0.0.0:80", "localhost:x"):
        status, told = ask(serving, "/top", host)
        assert status == 403 and "support" not in told, host
    assert ask(serving, "/top", "")[0] in (400, 403)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", serving), timeout=1)  # it listens nowhere else


def test_serve_has_three_pages_and_no_files(serving):
    for path in ("/../../etc/passwd", "/..%2f..%2fetc/passwd", "/%2e%2e/etc/passwd", "//[", "//x", "/top/", "/TOP",
                 "/serve.html", "/commands.sql", "/report/../top", "/constructor", "/__proto__", "*", "http://[",
                 "/\\..\\top", "/%00", "/top%00"):
        status, told = ask(serving, path)
        assert status in (400, 404) and "root:" not in told and "support" not in told, path
    assert ask(serving, "//")[0] in (200, 404)  # http.server of Python makes / of it
    for path in ("/report?kind=agent&key=%ff%00", "/report?kind=%1b[5m&key=x", "/report", "/report?kind=agent",
                 "/report?kind=agent&kind=rollout&key=x&key=y", "/report?" + "a=b&" * 3000):
        status, told = ask(serving, path)
        assert status in (404, 414, 431, 500) and "text/plain" in told or status in (414, 431), path
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert ask(serving, "/top", method=method)[0] in (404, 501)
    status, told = ask(serving, "/report?kind=agent&key=support")
    assert status == 200 and "Content-Security-Policy" in told and "X-Content-Type-Options: nosniff" in told
    assert "no-store" in told


def test_serve_answers_while_a_client_is_slow(serving):
    slow = [socket.create_connection(("127.0.0.1", serving)) for _ in range(50)]
    for i, connection in enumerate(slow):
        connection.sendall(b"GET /top HTTP/1.1\r\nHost: 127.0.0.1"[:i])
    unread = socket.create_connection(("127.0.0.1", serving))
    unread.sendall(f"GET /report?kind=agent&key=support HTTP/1.1\r\nHost: 127.0.0.1:{serving}\r\n\r\n".encode())
    begin = time.monotonic()
    assert ask(serving, "/top")[0] == 200 and time.monotonic() - begin < 3
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(ask(serving, "/top")[0])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert answers == [200] * 20
    for connection in [*slow, unread]:
        connection.close()
    assert ask(serving, "/")[0] == 200
    assert "<title>blackbox" in look(f"http://127.0.0.1:{serving}/")
