"""What the tests of the packages share."""
import os
import pathlib
import signal
import subprocess
import sys
import urllib.error
import urllib.request

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


class Receiver:
    """tools/otlp.py, in a process, which writes flight.db of a folder."""

    def __init__(self, folder, *options):
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tools/otlp.py", "flight.db", "--port", "0", *map(str, options)],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def send(self, body, path="/v1/traces", **headers):
        headers.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as told:
                return told.status
        except urllib.error.HTTPError as error:
            return error.code

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
