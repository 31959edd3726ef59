"""Folders that are made to hurt: what is no file, what changes meanwhile, who else imports, and kill -9."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from rollout_helpers import AT, exported, lines, load, well
from conftest import FULL, ROOT, connect, one, rows

WALK = f"""
import sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
db = connect(sys.argv[1])
db.execute("PRAGMA busy_timeout = 60000")
print(one(db, "SELECT rollout_import_dir(?)", sys.argv[2]), flush=True)
"""


def said(i, text, session):
    return {"type": "user", "sessionId": session, "timestamp": AT % (i % 60),
            "message": {"role": "user", "content": text}}


def walk(db, folder, *more):
    marks = ", ?" * len(more)
    return json.loads(one(db, f"SELECT rollout_import_dir(?{marks})", str(folder), *more))


def walker(path, folder):
    return subprocess.Popen([sys.executable, "-c", WALK, str(path), str(folder)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def stored(db):
    """What is known, without the times of the calls."""
    return (rows(db, "SELECT rollout, sequence, timestamp, type, payload FROM rollout_items ORDER BY 1, 2"),
            rows(db, "SELECT path, format, size, offset, id, error FROM rollout_sources ORDER BY 1"))


def sessions(folder, n, items=20):
    for i in range(n):
        file = folder / f"{i % 7}" / f"{i}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(lines(*(said(k, f"{i} {k} " + "x" * 300, f"s{i}") for k in range(items))))
    return folder


@pytest.fixture
def wal(path):
    db = connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    one(db, "SELECT blackbox_install('main', 'rollout')")
    yield db
    well(db)
    assert one(db, "PRAGMA integrity_check") == "ok"
    db.close()


def test_everything_that_hurts_in_one_folder(db, tmp_path):
    root = tmp_path / "root"
    good = {"a.jsonl": lines(said(0, "a", "s1")), "deep/b c's \"%41\n.jsonl": lines(said(1, "b", "s2"))}
    bad = {"empty.jsonl": b"", "blank.jsonl": b"\n" * 1000, "nul.jsonl": bytes(5000),
           "noise.jsonl": random.Random(1).randbytes(5000), "open.json": b"[" * 100000,
           "shut.json": b"]" * 100000, "deep.json": b'{"a":' * 50000 + b"1" + b"}" * 50000,
           "mark.json": b"\xef\xbb\xbf", "half.json": b'{"sessionId":"x","messages":[{"role":"user"',
           "numbers.json": b"[" + b"1e9999," * 5000 + b"1]", "surrogate.jsonl": b'"\\ud800"\n' * 100,
           "bytes.jsonl": b"\xff\xfe" * 3000, "string.json": b'"' + b"x" * 200000 + b'"'}
    # lines that cannot be read among good ones
    mixed = (lines(said(2, "c", "s3")).encode() + b'{"type":"user","sessionId":"s3","message":{"content":"\xff"}}\n'
             + b"[" * 5000 + b"\n\x00\n" + b"{" + b'"k":1,' * 10000 + b'"k":1}\n' + lines(said(3, "d", "s3")).encode())
    for name, data in {**good, **bad, "mixed.jsonl": mixed}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    os.utime(root / "a.jsonl", (-5, -5))
    for name, target in {"loop": root, "up": tmp_path, "self.jsonl": root / "self.jsonl", "gone.jsonl": "/nowhere",
                         "link.jsonl": root / "a.jsonl", "mem.jsonl": "/proc/self/mem", "zero.jsonl": "/dev/zero"}.items():
        (root / name).symlink_to(target)
    (root / "x.jsonl").mkdir()
    (root / "x.jsonl" / "y.json").mkdir()
    os.mkfifo(root / "pipe.jsonl")
    here = os.getcwd()
    os.chdir(root)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.jsonl")
    os.chdir(here)
    begun = time.monotonic()
    report = walk(db, root)
    assert time.monotonic() - begun < 20
    assert report["files"] == len(good) + len(bad) + 1 and report["unknown"] + report["failed"] == len(bad)
    assert report["bad"] == 2 and len(report["errors"]) == len(bad) + 1
    assert {s for s, in rows(db, "SELECT source_id FROM rollouts")} == {"s1", "s2", "s3"}
    for rollout, source in rows(db, "SELECT id, source_id FROM rollouts"):
        data = {**dict(zip(("s1", "s2"), good.values())), "s3": mixed}[source]
        assert exported(db, rollout) == (data if isinstance(data, bytes) else data.encode())
    again = walk(db, root)
    assert again["new"] == 0 and again["unknown"] + again["failed"] == len(bad)
    well(db)


def test_folders_that_are_too_deep_and_paths_that_are_too_long_are_told(db, tmp_path):
    here = os.getcwd()
    deep = tmp_path / "deep"
    (deep / "/".join("a" * 205)).mkdir(parents=True)
    (tmp_path / "long").mkdir()
    os.chdir(tmp_path / "long")
    try:
        for _ in range(20):
            os.mkdir("n" * 250)
            os.chdir("n" * 250)
        with open("s.jsonl", "w") as file:
            file.write(lines(said(0, "a", "s")))
        for folder, reason in (deep, "200 folders"), (tmp_path / "long", "too long"):
            report = walk(db, folder)
            assert (report["files"], report["failed"]) == (0, 1) and reason in report["errors"][0]["reason"]
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", str(tmp_path / "long")], check=True)
    well(db)


def test_a_folder_or_file_without_permission_is_told():
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT / 'tests')!r})
from conftest import connect, one
db = connect()
one(db, "SELECT blackbox_install('main', 'rollout')")
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
print(one(db, "SELECT rollout_import_dir(?)", sys.argv[1]))
"""
    with tempfile.TemporaryDirectory() as name:  # which others may enter
        root = sessions(pathlib.Path(name), 2)
        root.chmod(0o755)
        (root / "0/0.jsonl").chmod(0)
        (root / "1").chmod(0o444)  # its names can be read, and nothing else
        (root / "2").mkdir(0)
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True)
        for path in "0/0.jsonl", "1", "2":
            (root / path).chmod(0o755)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["files"], report["new"], report["failed"]) == (1, 0, 3)
    assert all("ermission denied" in e["reason"] for e in report["errors"])


def test_what_becomes_a_pipe_meanwhile_is_not_waited_for(tmp_path):
    """A path is a file when it is looked at, and may be a pipe when it is opened."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "f").write_text(lines(said(0, "a", "s")))
    stop = threading.Event()

    def change():
        while not stop.is_set():
            os.mkfifo(tmp_path / "p")
            os.replace(tmp_path / "p", root / "x.jsonl")
            shutil.copy(tmp_path / "f", tmp_path / "g")
            os.replace(tmp_path / "g", root / "x.jsonl")
    thread = threading.Thread(target=change)
    thread.start()
    try:
        walks = WALK.replace("print(", "for _ in range(2000): db.execute('DELETE FROM rollout_sources'); (")
        done = subprocess.run([sys.executable, "-c", "import sqlite3\n" + walks.replace(
            "db = connect(sys.argv[1])", "db = connect(sys.argv[1]); one(db, \"SELECT blackbox_install('main', "
            "'rollout')\")").replace(", flush=True)", ")"), ":memory:", str(root)], capture_output=True, text=True,
            timeout=120)
    finally:
        stop.set()
        thread.join()
    assert done.returncode == 0, done.stderr


def test_times_far_away_are_within_bounds(db, tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({"role": "user", "message": {"content": [{"type": "text", "text": "hi"}]}}))
    for at in -2 ** 40, 2 ** 33, 2 ** 45:
        try:
            os.utime(tmp_path / "a.jsonl", (at, at))
        except (OSError, OverflowError):
            continue
        report = walk(db, tmp_path)
        assert report["failed"] == 0, report
    well(db)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_the_locks_of_the_own_file_are_kept(tmp_path, mode):
    """A process that opens and closes a file loses the locks that it has on it."""
    path = tmp_path / "flight.db"
    db = connect(path)
    db.execute(f"PRAGMA journal_mode = {mode}")
    one(db, "SELECT blackbox_install('main', 'rollout')")
    db.execute("ATTACH ? AS \"an other\"", (str(tmp_path / "other.db"),))
    db.execute("CREATE TABLE \"an other\".t(x)")
    (tmp_path / "a.jsonl").write_text(lines(said(0, "a", "s")))
    os.link(path, tmp_path / "same.jsonl")
    db.execute("BEGIN IMMEDIATE")
    report = walk(db, tmp_path, "*")
    told = {e["path"].rsplit("/", 1)[1] for e in report["errors"] if "database of this connection" in e["reason"]}
    assert told >= {"flight.db", "other.db", "same.jsonl"} and ("flight.db-shm" in told) == (mode == "WAL")
    code = ("import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)\n"
            "db.execute('BEGIN IMMEDIATE')")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert "database is locked" in done.stderr
    db.execute("COMMIT")
    assert one(db, "SELECT count(*) FROM rollouts") == 1
    well(db)


def test_two_that_import_at_once_store_everything_once(wal, path, tmp_path):
    folder = sessions(tmp_path / "files", 60)
    both = [walker(path, folder) for _ in range(3)]
    reports = []
    for process in both:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        reports.append(json.loads(out))
    assert sorted(r["new"] for r in reports) == [0, 0, 1200] and all(r["failed"] == 0 for r in reports)
    fresh = connect()
    one(fresh, "SELECT blackbox_install('main', 'rollout')")
    walk(fresh, folder)
    assert stored(wal) == stored(fresh)


def test_what_is_killed_has_stored_nothing_or_everything(wal, path, tmp_path):
    """Without a cache, a process writes while it imports; it is killed after some of that."""
    folder = sessions(tmp_path / "files", 60)
    chance = random.Random(5)
    log = path.with_name(path.name + "-wal")
    killed = 0
    for _ in range(12 if FULL else 5):
        wal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        process = subprocess.Popen([sys.executable, "-c", WALK.replace(
            "print(", "db.execute('PRAGMA cache_size = 20'); print("), str(path), str(folder)])
        enough = chance.randrange(2000, 900000)
        while process.poll() is None and log.stat().st_size < enough:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        n = one(wal, "SELECT count(*) FROM rollout_sources")
        assert n in (0, 60) and one(wal, "SELECT count(*) FROM rollouts") == n
        killed += n == 0
        wal.execute("DELETE FROM rollouts")
        wal.execute("DELETE FROM rollout_sources")
    assert killed > 0
    assert walk(wal, folder)["new"] == 1200


def test_files_that_change_while_they_are_read_are_right_in_the_end(wal, path, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    stop = threading.Event()
    chance = random.Random(3)

    def write():
        n = 0
        while not stop.is_set():
            n += 1
            file = folder / f"{n % 5}.jsonl"
            line = lines(said(n, f"{n} " + "y" * chance.randrange(3000), f"s{n % 5}"))
            kind = chance.randrange(10)
            if kind == 0 and file.exists():
                os.truncate(file, chance.randrange(file.stat().st_size + 1))
            elif kind == 1:
                (folder / "new").write_text(line)
                os.replace(folder / "new", file)
            elif kind == 2 and file.exists():
                file.unlink()
            else:
                with open(file, "a") as out:
                    out.write(line[:len(line) // 2])
                    out.flush()
                    out.write(line[len(line) // 2:])
    thread = threading.Thread(target=write)
    thread.start()
    try:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            report = walk(wal, folder)
            assert report["unknown"] + report["failed"] <= 5
    finally:
        stop.set()
        thread.join()
    walk(wal, folder)
    for file in folder.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            try:
                payload = json.loads(line)
            except ValueError:
                continue
            assert one(wal, "SELECT count(*) FROM rollout_items WHERE payload ->> '$.message.content' = ?",
                       payload["message"]["content"]) >= 1


def test_a_file_of_thousands_of_conversations_takes_time_for_each_alone(db):
    """As a history of prompts has them. SQLite takes as long to open a query as there are others."""
    data = lines(*(said(i, "x", f"s{i}") for i in range(4000)))
    took = []
    for new in 4000, 0:
        begun = time.process_time()
        assert load(db, data)["new"] == new
        took.append(time.process_time() - begun)
    assert took[1] < 10 * took[0]
    well(db)


def test_conversations_that_take_turns_in_a_file_are_compared_in_order(db, tmp_path):
    """Of so many that not all of them can be open at once."""
    order = [random.Random(2).randrange(30) for _ in range(600)]
    text = lines(*(said(i % 3, "again" if i % 2 else f"{i}", f"s{k}") for i, k in enumerate(order)))
    sizes = [len(text) // 3, 2 * len(text) // 3, len(text) - 1, len(text)]  # the first three end within a line
    told = 0
    for size in sizes:
        (tmp_path / "a.jsonl").write_text(text[:size])
        walk(db, tmp_path)
        assert load(db, text[:size], str(tmp_path / "a.jsonl"))["new"] == 0
        assert one(db, "SELECT sum(item_count) - count(*) FROM rollouts") == text[:size].count("\n") + (
            size == len(text) - 1)
        told = {r: exported(db, r) for r, in rows(db, "SELECT id FROM rollouts")}
    for rollout, source in rows(db, "SELECT id, source_id FROM rollouts"):
        assert told[rollout].decode() == "".join(
            line for line in text.splitlines(True) if f'"sessionId": "{source}"' in line)
    well(db)
