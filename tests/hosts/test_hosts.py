"""The scenario of hosts.py, in the hosts that are on a machine anyway. `make test-hosts` runs it in all."""
import pytest

import hosts


@pytest.mark.parametrize("name", hosts.QUICK)
def test_the_host_prints_what_every_host_prints(name, tmp_path):
    try:
        version, lines = hosts.drive(hosts.QUICK[name], tmp_path)
    except hosts.Unavailable as reason:
        pytest.skip(str(reason))
    assert version.startswith("3.")
    assert lines == hosts.expected(), hosts.differences(lines)
