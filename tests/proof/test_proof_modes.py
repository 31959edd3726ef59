"""The tree of the log in every mode of a connection, in copies, with several writers, and the
commands of the manual."""
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from conftest import MODULE, ROOT, connect, load, one, rows, shell, shell_version
from proof_helpers import evidence, head, log, problems, size, verify, write

@pytest.mark.parametrize("pragma", ["trusted_schema = OFF", "recursive_triggers = ON",
                                    "foreign_keys = ON", "secure_delete = ON"])
def test_the_log_works_in_every_mode(path, installed, pragma, db):
    db.execute(f"PRAGMA {pragma}")
    evidence(db, 2)
    noted = head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e1'")
    assert len(log(db)) == 3 and problems(db) == problems(db, noted) == []
    assert len(rows(db, "SELECT * FROM proof_export")) == 3


@pytest.mark.skipif(shell_version() < (3, 38), reason="the shell is too old")
def test_the_shell_reads_the_log_without_the_module_and_the_module_in_defensive_mode(db, path):
    evidence(db)
    head(db)
    db.close()
    assert shell(path, "SELECT leaf FROM blackbox__leaves WHERE leaf >= 0") == "0\n"
    told = shell("-cmd", ".dbconfig defensive on", "-cmd", f".load {MODULE}", path,
                 "INSERT INTO event_payloads(event_id, agent_id, purpose)"
                 " VALUES('x', 'a', 'evidence'); SELECT length(proof_head()) > 0;"
                 "SELECT count(*) FROM blackbox__leaves WHERE leaf >= 0; SELECT * FROM proof_verify;")
    assert told.splitlines()[-2:] == ["1", "2"]


def test_a_dump_and_a_copy_have_the_same_head(db, path, tmp_path):
    evidence(db, 3)
    write(db, 300)
    noted = head(db)
    db.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    db.close()
    assert shell(tmp_path / "dumped.db", stdin=shell(path, ".dump")) == ""
    for name in ("copy.db", "dumped.db"):
        other = connect(tmp_path / name)
        assert head(other) == noted and problems(other, noted) == problems(other) == []
        evidence(other)
        assert head(other) != noted and problems(other, noted) == []
        assert rows(other, "SELECT * FROM blackbox_check") == []


WRITER = f"""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.enable_load_extension(True)
db.load_extension({MODULE!r})
db.execute("CREATE VIRTUAL TABLE temp.ring USING payload_ring(window=5)")
for i in range(int(sys.argv[3])):
    db.execute("INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', ?, 'x')",
               (sys.argv[2] + str(i),))
    db.execute("SELECT payload_kill_switch('ring', 'a', ?)", (sys.argv[2] + str(i),)).fetchone()
    print(db.execute("SELECT proof_head()").fetchone()[0].split(chr(10))[1], flush=True)
"""


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_processes_that_write_at_once_make_one_log(db, path, mode):
    one(db, f"PRAGMA journal_mode = {mode}")
    children = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "15"],
                                 stdout=subprocess.PIPE) for name in "bc"]
    while None in [child.poll() for child in children]:
        assert problems(db) == []  # what is verified is of one moment
    assert [child.wait() for child in children] == [0, 0]
    assert size(db) == 60 and sorted(set(log(db))) == ["kill_switch", "pin"]
    assert problems(db) == []


def test_a_process_that_is_killed_leaves_a_whole_log(db, path):
    one(db, "PRAGMA journal_mode = WAL")
    told = 0
    for round_ in range(4):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"k{round_}", "1000"],
                                 stdout=subprocess.PIPE, text=True)
        for _ in range(3 + 2 * round_):
            told = int(child.stdout.readline())
        child.kill()
        child.communicate()
        other = connect(path)
        assert problems(other) == [] and size(other) >= told
        assert one(other, "SELECT 2 * count(*) FROM event_payloads") == size(other)
        other.close()


needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")


def test_the_commands_of_the_manual_work(db, path, tmp_path):
    """As they stand there, one after the other."""
    evidence(db, 2)
    write(db, 300)
    db.execute("DROP TRIGGER payload_guard")
    db.execute("UPDATE event_payloads SET kill_switch_event_id = 'incident-7'")
    one(db, "SELECT blackbox_install()")
    db.close()
    path.rename(tmp_path / "agents.db")
    (tmp_path / pathlib.Path(MODULE).name).symlink_to(MODULE)
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    blocks = [block for block in re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "proof.md").read_text(), re.S)
              if "$KEY" not in block]  # test_proof_sign.py has these
    script = "set -e\n" + "".join(blocks)
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "VERIFIED: 2 of 303 leaves" in done.stdout
    assert (tmp_path / "tile" / "1" / "000.p" / "1").stat().st_size == 32
    assert (tmp_path / "checkpoint").read_text() == (tmp_path / "head").read_text()[:-1]


@needs_ssh
def test_a_signature_is_that_of_one_head(db, tmp_path):
    evidence(db)
    (tmp_path / "head").write_text(head(db))

    def keygen(*args, **more):
        return subprocess.run(["ssh-keygen", *args], cwd=tmp_path, capture_output=True, **more)

    assert keygen("-q", "-t", "ed25519", "-N", "", "-f", "key").returncode == 0
    assert keygen("-Y", "sign", "-f", "key", "-n", "blackbox", "head").returncode == 0
    (tmp_path / "signers").write_text("auditor " + (tmp_path / "key.pub").read_text())
    check = ("-Y", "verify", "-f", "signers", "-I", "auditor", "-n", "blackbox", "-s", "head.sig")
    assert keygen(*check, input=(tmp_path / "head").read_bytes()).returncode == 0
    evidence(db)
    assert keygen(*check, input=head(db).encode()).returncode != 0
    assert verify.read_head((tmp_path / "head").read_text())[1] == 1
