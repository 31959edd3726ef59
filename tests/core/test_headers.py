"""Each header compiles alone, and core does not name any domain."""
import os
import re
import shlex
import subprocess

import pytest

from conftest import ROOT

HEADERS = sorted((ROOT / "ext").glob("**/*.h"))
CORE = sorted((ROOT / "ext" / "core").glob("*.[ch]"))
DOMAINS = "payload", "evidence", "rollout", "cache"


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
def test_a_header_compiles_alone(header):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c -".split()
    done = subprocess.run([*compiler, *flags], input=f'#include "{header}"\n',
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.name)
def test_core_names_no_domain(path):
    code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    code = re.sub("[bn]?cache_?(write|read|creation|in|d)\\w*", "", code, flags=re.I)  # tokens of a model
    assert not re.findall("|".join(DOMAINS), code, flags=re.I)
