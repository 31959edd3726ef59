"""The oracle's own tests, with the module of the checkout: a sample of them, and all of them with
BLACKBOX_FULL=1. Those that may fail are in may_fail.py."""
import json
import os
import shutil
import subprocess
import sys

import pytest

import intended
from conftest import DATA, MODULE, ROOT
from pair import ORACLE, needs_oracle

pytestmark = needs_oracle
SAMPLE = 0 if os.environ.get("BLACKBOX_FULL") else 16  # tests of a domain; 0 is all
# Those of proof are left out: the log has other leaves, and another tree. So are those of store:
# each has a table of the user that uses it, which no longer can.
DOMAINS = ["cache", "core", "evidence", "payload", "report", "retention", "rollout"]
# About sources and pages, and about files of earlier builds, which are no longer read.
LEFT_OUT = ["test_structure.py", "test_readme.py", "test_stated_twice.py", "test_headers.py",
            "test_*upgrade.py"]
CHECKOUT = ["demo", "sql", "tools"]


@pytest.fixture(scope="session")
def tree(tmp_path_factory):
    """The tests of the oracle with the module, the SQL and the programs of the checkout."""
    tree = tmp_path_factory.mktemp("tree") / "oracle"
    shutil.copytree(ORACLE, tree, ignore=shutil.ignore_patterns(
        "build", *CHECKOUT, "__pycache__", "*.so"))
    for name in CHECKOUT:
        (tree / name).symlink_to(ROOT / name)
    (tree / "build").mkdir()
    (tree / os.path.basename(MODULE)).symlink_to(MODULE)
    if DATA.is_dir():
        (tree.parent / "shared").symlink_to(DATA.parent)
    return tree


def run(tests, sample, tree, folder):
    """Runs tests of the oracle. Returns how many passed, and what failed: {name: text}."""
    env = {name: value for name, value in os.environ.items()
           if name != "BLACKBOX_FULL" and not name.startswith("PYTEST_")}
    env |= {"PYTHONPATH": str(ROOT / "tests" / "differential"),
            "ORACLE_REPORT": str(folder / "report"), "ORACLE_SAMPLE": str(sample)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "oracle_plugin", "-p", "no:cacheprovider",
         "--assert=plain",  # the files are new ones each time
         f"--basetemp={folder / 't'}", *(f"--ignore-glob=*/{name}" for name in LEFT_OUT), *tests],
        cwd=tree, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (folder / "report").exists(), done.stdout
    report = json.loads((folder / "report").read_text())
    return report["passed"], report["failed"]


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_tests_of_the_oracle_pass(domain, tree, tmp_path):
    passed, failed = run([f"tests/{domain}"], SAMPLE, tree, tmp_path)
    for entry in intended.TESTS:
        explained = [name for name in failed
                     if name.split("[")[0] == f"tests/{entry.file}::{entry.name}"]
        if explained:
            intended.use(entry)
        failed = {name: told for name, told in failed.items() if name not in explained}
    assert passed > 0
    if 0 < len(failed) < 20:  # some measure time, on a machine that does other things
        passed, again = run(failed, 0, tree, tmp_path)
        failed = again if passed + len(again) >= len(failed) else failed
    assert not failed, "\n\n".join(f"{name}\n{told[-2000:]}" for name, told in failed.items())
