"""The programs that README.md shows in other languages really run.

Each test needs a toolchain that `make test` does not install, and is skipped
where it is missing: a node with node:sqlite on PATH or in NODE; go and cargo
with the packages of Debian (golang-github-mattn-go-sqlite3-dev,
librust-rusqlite-dev); php with SQLite3.
"""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import ROOT, connect

README = (ROOT / "README.md").read_text()
GOPATH = pathlib.Path("/usr/share/gocode")
CRATES = pathlib.Path("/usr/share/cargo/registry")


def snippet(language):
    """The program in the README, and what its comments say that it prints."""
    text = re.search(rf"```{language}\n(.*?)```", README, re.S).group(1)
    return text, re.findall(r"^\s*// (\d+)$", text, re.M)


def run(*command, cwd, **env):
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path):
    """A folder with the module and, in flight.db, a ring."""
    name = next(ROOT.glob("blackbox.[sd]*")).name
    shutil.copy(ROOT / name, tmp_path / name)
    db = connect(tmp_path / "flight.db")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring(window=3)")
    db.close()
    return tmp_path


def pushed(folder):
    return connect(folder / "flight.db").execute(
        "SELECT event_id, request_body, response_body FROM ring"
    ).fetchall()


def fill(folder, n):
    """n exchanges, as the programs shown before have pushed them."""
    db = connect(folder / "flight.db")
    for i in range(n):
        db.execute("INSERT INTO ring(agent_id, event_id) VALUES('support', ?)", (i,))
    db.close()


def test_the_node_snippet_of_the_readme_runs(folder):
    node = os.environ.get("NODE") or shutil.which("node")
    if node is None or subprocess.run(
        [node, "-e", "require('node:sqlite')"], stderr=subprocess.DEVNULL
    ).returncode:
        pytest.skip("no node that has node:sqlite")
    text, said = snippet("js")
    (folder / "flight.mjs").write_text(text)
    assert run(node, "flight.mjs", cwd=folder) == said == ["1"]
    assert pushed(folder) == [("e7", "hello", "hi")]


def test_the_go_snippet_of_the_readme_runs(folder):
    if not shutil.which("go") or not (GOPATH / "src/github.com/mattn").is_dir():
        pytest.skip("no go with mattn/go-sqlite3")
    text, said = snippet("go")
    fill(folder, 1)
    (folder / "flight.go").write_text(text)
    env = {"GO111MODULE": "off", "GOPATH": str(GOPATH), "GOFLAGS": ""}
    run("go", "build", "-tags", "libsqlite3", "-o", "flight", "flight.go",
        cwd=folder, **env)
    assert run(folder / "flight", cwd=folder) == said == ["2"]
    assert pushed(folder)[1:] == [("e8", "hello", "hi")]


def test_the_rust_snippet_of_the_readme_runs(folder):
    if not shutil.which("cargo") or not list(CRATES.glob("rusqlite-*")):
        pytest.skip("no cargo with rusqlite")
    version = re.search(r"-(\d+\.\d+)", str(next(CRATES.glob("rusqlite-*")))).group(1)
    text, said = snippet("rust")
    fill(folder, 2)
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(text)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "flight"\nversion = "0.1.0"\nedition = "2021"\n'
        f'[dependencies]\nrusqlite = {{ version = "{version}", '
        'features = ["load_extension"] }\n'
    )
    (folder / ".cargo").mkdir()
    (folder / ".cargo" / "config.toml").write_text(
        '[source.crates-io]\nreplace-with = "here"\n'
        f'[source.here]\ndirectory = "{CRATES}"\n'
    )
    run("cargo", "build", "--offline", "--quiet", cwd=folder)
    assert run(folder / "target/debug/flight", cwd=folder) == said == ["3"]
    assert pushed(folder)[2:] == [("e9", "hello", "hi")]


PHP = """<?php
$db = new SQLite3('flight.db');
$db->loadExtension($argv[1]);
for ($i = 0; $i < 6; $i++) {
  $db->exec("INSERT INTO ring(agent_id, event_id) VALUES('$i', 'e')");
}
echo count(json_decode($db->querySingle("SELECT payload_extract('ring', '0')"))), "\n";
$all = "SELECT payload_extract('ring', '1')";
echo count(json_decode($db->query($all)->fetchArray()[0])), "\n";
$rows = $db->query("SELECT seq FROM ring WHERE agent_id = '2'");
$last = $rows->fetchArray()[0];
echo $last, "\n";
$db->exec("DELETE FROM ring WHERE agent_id = '2' AND seq <= $last");
echo $db->querySingle("SELECT count(*) FROM ring"), "\n";
"""


def php_has_sqlite3():
    if shutil.which("php") is None:
        return False
    return "sqlite3" in subprocess.run(["php", "-m"], stdout=subprocess.PIPE,
                                       text=True).stdout.split()


@pytest.mark.skipif(not php_has_sqlite3(), reason="no PHP with SQLite3")
def test_php_takes_rows_once_with_query_single_and_in_two_steps(folder):
    """docs/hosts.md says so, and that query() loses what a function takes out."""
    (folder / "take.php").write_text(PHP)
    name = next(folder.glob("blackbox.[sd]*")).name
    told = run("php", "-d", f"sqlite3.extension_dir={folder}", "take.php", name, cwd=folder)
    assert told == ["1", "0", "1", "3"]
