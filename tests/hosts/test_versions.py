"""A part of `make test-versions`: defensive mode on two versions that many
hosts have. What cannot be fetched is skipped, and says why."""
import sys

import pytest

import versions

PART = ["tests/hosts/test_reopen.py", "tests/hosts/test_loading.py", "tests/core",
        "tests/cache/test_cache_functions.py", "tests/evidence/test_buffer.py",
        "tests/evidence/test_export.py", "tests/payload/test_ring.py",
        "tests/payload/test_kill_switch.py", "tests/rollout/test_functions.py"]


@pytest.mark.skipif(sys.platform != "linux", reason="builds libraries for Linux")
@pytest.mark.parametrize("version", ["3.46.0", max(
    versions.LIBRARIES, key=lambda v: tuple(map(int, v.split("."))))])
def test_on_another_version(version):
    try:
        code, told = versions.test(version, True, PART)
    except versions.Unavailable as reason:
        pytest.skip(str(reason))
    assert code == 0, told
    assert versions.counts(told)[0] > 500
