"""What the tests of the packages share."""
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "packages"  # what npm installed: see the Makefile
HERE = ROOT / "tests" / "packages"


def the(pattern):
    """The one file in dist/ with such a name."""
    found = list(DIST.glob(pattern))
    assert len(found) == 1, found
    return found[0]


def run(*command, cwd, **env):
    """The standard output of a program, which must succeed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env={**os.environ, **env}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout
