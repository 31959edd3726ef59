"""The time in which secrets are looked for grows with the text, whatever the text is: counted, as a
clock cannot tell."""
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import FULL, MODULE, connect, one, rows, some

SIZE = 10_000 if FULL else 2_500

ODD = ['password="', "password='", "password=`", "password=\\\"", 'password=\\\\\\"x', "password=[", 'password":["a",',
       "password: ", "password=", "token=a1", "token=a1b2c3d4", "api_key,", '"api_key",', "Cookie: a=b ", "password is ",
       "Authorization: Bearer ", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----\\n", "://a:", "://", "a@", "@",
       "a.", "\\", "\\\\\"", "\"", "'", "[", "[{", "{\"password\":", "password\\\\\\\\", "_password", "PASSWORD", "pass_word_",
       "password password=", "eyJ", "eyJ.", "sk-", "sk-a", "AKIA", "--password ", "?api_key=", "<password>", "$", "a",
       "mysql -p", "mysql -p'", 'mysql -p\\"', " -p ", "secret: |\n  a", "secret: |\\n  a", "secret: |\n", '"password":{"value"', '"password":{',
       "\\u0061", "\\u0061 password: |\\n  a", "\\\\u0061", "IDENTIFIED BY '", " -k openssl", "\\\\\\n"]


def texts(db):
    """Short texts that are repeated, and long ones after them."""
    anchors = sorted({part for row, in rows(db, "SELECT anchor FROM blackbox_secrets") for part in row.split("|")})
    short = ODD + [row.split("|")[-1] + "-" for row, in rows(db, "SELECT anchor FROM blackbox_secrets WHERE holds <> '-'")]
    short += some(anchors, 6) + ["".join(anchors), " ".join(anchors) + "=\"a1b2"]
    yield from ((text, "") for text in short)
    for opener in "password=", "password=\"", "sk-", "token='", "Cookie: ", "password=[\"":
        yield from ((opener + "\\\"", "a1"), (opener, "a\\\\\\\"")) if opener in ODD else ((opener, "x"),)
    for text in ODD[:12]:
        yield from ((text + "A" * 300, ""), (text + "\\" * 300, ""))


@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind")
def test_twice_the_text_takes_at_most_2_3_times_the_instructions(tmp_path):
    db = connect(tmp_path / "a.db")
    one(db, "SELECT blackbox_install('main', 'report')")
    cases = some(texts(db))
    lines = []
    for unit, rest in cases:
        for size in SIZE, 2 * SIZE:
            made = unit + rest * ((size - len(unit)) // len(rest)) if rest else unit * (size // len(unit))
            lines.append(made[:size] + "~" * (size - len(made)))
    db.execute("CREATE TABLE texts(id INTEGER PRIMARY KEY, text)")
    db.executemany("INSERT INTO texts(text) VALUES(?)", [(line,) for line in lines])
    db.close()
    done = subprocess.run(
        ["valgrind", "-q", "--tool=callgrind", "--toggle-collect=bxSecretsMask", "--dump-after=bxSecretsMask",
         f"--callgrind-out-file={tmp_path}/calls", "sqlite3", "-cmd", f".load {pathlib.Path(MODULE).with_suffix('')}",
         tmp_path / "a.db", "SELECT sum(length(blackbox_mask(text))) FROM texts ORDER BY id"],
        capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) > 0, done.stderr
    counts = [int(re.search(r"^totals: (\d+)", (tmp_path / f"calls.{i + 1}").read_text(), re.M)[1])
              for i in range(len(lines))]
    assert min(counts) > SIZE  # something was counted
    slow = {json.dumps([unit[:40], rest]): round(counts[2 * i + 1] / counts[2 * i], 2)
            for i, (unit, rest) in enumerate(cases) if counts[2 * i + 1] > 2.3 * counts[2 * i]}
    assert slow == {}
