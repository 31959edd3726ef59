"""The adapters of npm, beside what they take the place of. Needs what make test-packages
installs from npm; without that there are no cases."""
import atexit
import functools
import json
import shutil
import subprocess
import tempfile

from run import HERE, MODULE, ROOT, Case

PACKAGES = ROOT / "build" / "packages"
STATES = (("2 messages", 20), ("40 messages", 60))
READS = [f"{what}, {name}" for name, steps in STATES
         for what in ("getState", "getState by id", f"list of {steps}", "list of 10")]
STEPS = [f"a step is put, {name}" for name, _ in STATES]
ITEMS = ["addItems, a message", "addItems, a call and its result", "addItems, a turn of 4",
         "addItems, 40 items", "getItems of 200", "getItems(20) of 4,000"]


@functools.cache
def program():
    """The program that measures. It runs among the packages, so that it finds them."""
    folder = PACKAGES / "bench"
    shutil.rmtree(folder, True)
    shutil.copytree(ROOT / "packages/npm", folder)
    shutil.copy(HERE / "adapters.mjs", folder)
    files = tempfile.mkdtemp(prefix="blackbox-bench-")
    node = subprocess.Popen(["node", folder / "adapters.mjs", MODULE, files], text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(shutil.rmtree, files, True)
    atexit.register(node.kill)
    return node


def side(name, label):
    """Seconds of one act, in that program."""
    def measured(_folder):
        node = program()
        print(json.dumps([name, label]), file=node.stdin, flush=True)
        return float(node.stdout.readline())
    return measured


def case(name, theirs, limit):
    return Case(name, {label: side(name, label) for label in ("blackbox", theirs)},
                [("blackbox", theirs, limit)], rounds=15,
                why="rollout_range() prepares a statement in each call." if "(20)" in name else "")


def cases():
    if not (PACKAGES / "node_modules/@langchain/langgraph-checkpoint-sqlite").exists():
        return []
    return ([case(name, "the official saver", 1.3) for name in READS]
            + [case(name, "the official saver", None) for name in STEPS]
            + [case(name, "a plain table", 2) for name in ITEMS])
