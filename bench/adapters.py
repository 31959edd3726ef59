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


WHY = {  # what explains that a bound is missed
    "addItems, a message":
        "The rows of a message, its turn and the place of its text, written by statements prepared "
        "once, take 2.1 times as long as the row of the plain table.",
    "addItems, a turn of 4":
        "The rows of four items, a turn, a call and three texts, written by statements prepared "
        "once, take 1.4 times as long as the rows of the plain table.",
}


def case(name, theirs, limit):
    return Case(name, {label: side(name, label) for label in ("blackbox", theirs)},
                [("blackbox", theirs, limit)], rounds=15, why=WHY.get(name, ""))


def cases():
    if not (PACKAGES / "node_modules/@langchain/langgraph-checkpoint-sqlite").exists():
        return []
    return [case(*named) for named in json.loads(program().stdout.readline())]
