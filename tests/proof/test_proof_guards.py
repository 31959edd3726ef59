"""The rules of the log hold in plain SQL, and in every mode of a connection."""
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

from conftest import MODULE, ROOT, connect, load, one, rows, shell, shell_version
from proof_helpers import enable, evidence, head, log, problems, verdicts, verify

REFUSED = [
    "INSERT INTO proof_leaves VALUES(0, 9, 1, zeroblob(32))",
    "INSERT OR REPLACE INTO proof_leaves VALUES(0, 9, 1, zeroblob(32))",
    "INSERT INTO proof_leaves VALUES(99, 9, 1, 'x')",
    "INSERT INTO proof_leaves VALUES(99, 7, 1, zeroblob(32))",
    "UPDATE proof_leaves SET at = 1", "DELETE FROM proof_leaves",
    "DELETE FROM proof_leaves WHERE leaf = 3",
    "INSERT INTO proof_salts VALUES(800, 0, zeroblob(32))",
    "INSERT OR REPLACE INTO proof_salts VALUES(9, 99, zeroblob(32))",
    "UPDATE proof_salts SET salt = randomblob(32)", "UPDATE proof_salts SET salt = zeroblob(32)",
    "UPDATE proof_salts SET leaf = leaf + 1", "UPDATE proof_salts SET salt = NULL",
    "DELETE FROM proof_salts", "DELETE FROM proof_salts WHERE thing & 7 = 2",
    "INSERT INTO proof_nodes VALUES(281474976710656, zeroblob(32))",
    "UPDATE proof_nodes SET hash = zeroblob(32)", "DELETE FROM proof_nodes",
    "UPDATE proof_state SET size = 0", "UPDATE proof_state SET size = size + 1",
    "UPDATE proof_state SET origin = 'x'", "UPDATE proof_state SET pins = 0",
    "UPDATE proof_state SET one = 2", "DELETE FROM proof_state",
    "INSERT OR REPLACE INTO proof_state(one, origin, size, frontier) VALUES(1, 'x', 0, x'')",
    "INSERT INTO proof_state(one, origin, size, frontier) VALUES(2, 'x', 0, x'')",
]


def test_plain_sql_cannot_change_the_log(db, path):
    enable(db)
    evidence(db, 2)
    verdicts(db, 260)
    noted = head(db)
    plain = sqlite3.connect(path, isolation_level=None)
    for sql in REFUSED:
        for recursive in (0, 1):
            plain.execute(f"PRAGMA recursive_triggers = {recursive}")
            with pytest.raises(sqlite3.IntegrityError, match="ProofError|UNIQUE|CHECK"):
                plain.execute(sql)
    assert head(db) == noted and problems(db) == []


def test_incremental_writes_cannot_change_a_leaf(db):
    enable(db)
    evidence(db)
    head(db)
    if not hasattr(db, "blobopen"):
        pytest.skip("this Python has no blobopen()")
    for table, column in (("proof_leaves", "mark"), ("proof_salts", "salt"),
                          ("proof_state", "frontier")):
        row = one(db, f"SELECT rowid FROM {table}")
        with pytest.raises(sqlite3.OperationalError):
            db.blobopen(table, column, row)


def test_what_a_failed_call_left_may_be_removed(db):
    enable(db)
    evidence(db)
    head(db)
    db.execute("INSERT INTO proof_leaves VALUES(7, 800, 1, zeroblob(32))")
    db.execute("INSERT INTO proof_salts VALUES(800, 7, zeroblob(32))")
    db.execute("INSERT INTO proof_nodes VALUES(281474976710656, zeroblob(32))")
    assert problems(db) == []
    evidence(db)
    head(db)
    assert problems(db) == [] and len(log(db)) == 4
    assert one(db, "SELECT count(*) FROM proof_nodes") == 0


def test_blackbox_check_finds_a_guard_that_is_gone_and_a_stranger(db):
    db.execute("DROP TRIGGER proof_leaves_delete")
    db.execute("CREATE TRIGGER mine AFTER INSERT ON proof_salts BEGIN SELECT 1; END")
    found = rows(db, "SELECT object, problem FROM blackbox_check")
    assert [o for o, _ in found] == ["proof_leaves_delete", "proof_salts"]
    db.execute("DROP TRIGGER mine")
    one(db, "SELECT blackbox_install()")
    assert rows(db, "SELECT * FROM blackbox_check") == []


@pytest.mark.parametrize("pragma", ["trusted_schema = OFF", "recursive_triggers = ON",
                                    "foreign_keys = ON", "secure_delete = ON"])
def test_the_log_works_in_every_mode(path, installed, pragma, db):
    db.execute(f"PRAGMA {pragma}")
    enable(db)
    evidence(db, 2)
    noted = head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads WHERE event_id = 'e1'")
    assert len(log(db)) == 5 and problems(db) == problems(db, noted) == []
    assert len(rows(db, "SELECT * FROM proof_export")) == 3


@pytest.mark.skipif(shell_version() < (3, 38), reason="the shell is too old")
def test_the_shell_reads_the_log_without_the_module_and_the_module_in_defensive_mode(db, path):
    enable(db)
    evidence(db)
    head(db)
    db.close()
    assert shell(path, "SELECT leaf, kind, number, open FROM proof_log") \
        == "0|pin|1|1\n1|evidence|1|1\n"
    told = shell("-cmd", ".dbconfig defensive on", "-cmd", f".load {MODULE}", path,
                 "INSERT INTO event_payloads(event_id, agent_id, purpose)"
                 " VALUES('x', 'a', 'evidence'); SELECT length(proof_head()) > 0;"
                 "SELECT count(*) FROM proof_log; SELECT * FROM proof_verify;")
    assert told.splitlines()[-2:] == ["1", "4"]


def test_a_dump_and_a_copy_have_the_same_head(db, path, tmp_path):
    enable(db)
    evidence(db, 3)
    verdicts(db, 300)
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


def test_an_uninstall_tells_what_is_lost(db):
    enable(db)
    evidence(db)
    head(db)
    with pytest.raises(sqlite3.DatabaseError, match="proof_leaves .rows: 2."):
        one(db, "SELECT blackbox_uninstall('main', 'proof')")
    one(db, "SELECT blackbox_uninstall('main', 'proof', 'force')")
    assert rows(db, "SELECT name FROM sqlite_schema WHERE name LIKE 'proof%'") == []
    assert one(db, "SELECT count(*) FROM blackbox_settings WHERE name LIKE 'proof%'") == 0
    ids = rows(db, "SELECT id FROM event_payloads")
    assert len(ids) == 1 and one(db, "SELECT payload_unpin(?, 'me', 'why')", ids[0][0]) == 1


def test_records_that_were_uninstalled_are_told_as_removed(db):
    enable(db)
    evidence(db)
    head(db)
    one(db, "SELECT payload_unpin(id, 'me', 'why') FROM event_payloads")
    one(db, "SELECT blackbox_uninstall('main', 'payload', 'force')")
    assert [p[:3] for p in problems(db)] \
        == [(0, "pin", 1), (2, "unpin", 1)]
    assert rows(db, "SELECT kind, pending FROM proof_pending") == []
    head(db)


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
    enable(db)
    children = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "15"],
                                 stdout=subprocess.PIPE) for name in "bc"]
    while None in [child.poll() for child in children]:
        assert problems(db) == []  # what is verified is of one moment
    assert [child.wait() for child in children] == [0, 0]
    assert one(db, "SELECT size FROM proof_state") == 60 and problems(db) == []
    assert len(set(log(db))) == 60


def test_a_process_that_is_killed_leaves_a_whole_log(db, path):
    one(db, "PRAGMA journal_mode = WAL")
    enable(db)
    told = 0
    for round_ in range(4):
        child = subprocess.Popen([sys.executable, "-c", WRITER, str(path), f"k{round_}", "1000"],
                                 stdout=subprocess.PIPE, text=True)
        for _ in range(3 + 2 * round_):
            told = int(child.stdout.readline())
        child.kill()
        child.communicate()
        other = connect(path)
        assert problems(other) == [] and one(other, "SELECT size FROM proof_state") >= told
        assert one(other, "SELECT 2 * count(*) FROM event_payloads") \
            == one(other, "SELECT size FROM proof_state")
        other.close()


needs_ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")


@needs_ssh
def test_the_commands_of_the_manual_work(db, path, tmp_path):
    """As they stand there, one after the other, with a key of their own."""
    enable(db)
    evidence(db, 2)
    verdicts(db, 300)
    db.execute("DROP TRIGGER payload_update_check")
    db.execute("UPDATE event_payloads SET kill_switch_event_id = 'incident-7'")
    one(db, "SELECT blackbox_install()")
    db.close()
    path.rename(tmp_path / "agents.db")
    (tmp_path / pathlib.Path(MODULE).name).symlink_to(MODULE)
    (tmp_path / "tools").symlink_to(ROOT / "tools")
    (tmp_path / ".ssh").mkdir()
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "proof.md").read_text(), re.S)
    make_key = f"ssh-keygen -q -t ed25519 -N '' -f {tmp_path}/.ssh/id_ed25519\n"
    script = "set -e\n" + make_key + "".join(blocks).replace("~", str(tmp_path))
    env = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=env,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "VERIFIED: 2 of 304 leaves" in done.stdout and 'Good "blackbox" signature' in done.stdout
    assert (tmp_path / "tile" / "1" / "000.p" / "1").stat().st_size == 32
    assert (tmp_path / "checkpoint").read_text() == (tmp_path / "head").read_text()[:-1]


@needs_ssh
def test_a_signature_is_that_of_one_head(db, tmp_path):
    enable(db)
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
    assert verify.read_head((tmp_path / "head").read_text())[1] == 2
