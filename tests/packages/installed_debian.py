"""The package of Debian: unpacked below a folder, and used from there."""
import subprocess

import pytest

from packages_helpers import run, the


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", the("*.deb"), folder, cwd=folder)
    return folder


def library(root):
    return next(root.glob("usr/lib/*/blackbox.so")).parent


def test_the_shell_loads_the_module_by_its_name(root):
    told = run("sqlite3", ":memory:", "-cmd", ".load blackbox",
               "SELECT blackbox_install('main', 'payload')",
               "CREATE VIRTUAL TABLE ring USING payload_ring(window=2)",
               "INSERT INTO ring(agent_id, event_id) VALUES('a', '1'), ('a', '2'), ('a', '3')",
               "SELECT count(*), (SELECT count(*) FROM blackbox_check) FROM ring",
               cwd=root, LD_LIBRARY_PATH=str(library(root)))
    assert told.splitlines()[-1] == "2|0"


def test_the_rules_are_there_as_sql(root):
    sql = root / "usr/share/blackbox"
    files = [sql / f"{name}.sql" for name in ("core", "retention")]
    told = subprocess.run(["sqlite3", ":memory:"], input="".join(f.read_text() for f in files),
                          stderr=subprocess.PIPE, text=True)
    assert (told.returncode, told.stderr) == (0, "")


def test_pkg_config_finds_it(root):
    told = run("pkg-config", "--modversion", "blackbox", cwd=root,
               PKG_CONFIG_PATH=str(library(root) / "pkgconfig"))
    assert told.strip() == the("*.deb").name.split("_")[1].rsplit("-", 1)[0]


def test_it_depends_on_what_the_module_needs():
    told = run("dpkg-deb", "-f", the("*.deb"), "Package", "Depends", cwd="/")
    assert "Package: libsqlite3-mod-blackbox" in told
    assert "libc6" in told and "libuuid1" in told


def test_dpkg_installs_and_removes_it(root, tmp_path):
    """Into a database of packages of its own, so that the machine stays as it is."""
    admin = tmp_path / "var/lib/dpkg"
    for folder in (admin / "info", admin / "updates", admin / "triggers"):
        folder.mkdir(parents=True)
    for name in ("status", "available"):
        (admin / name).touch()
    options = [f"--root={tmp_path}", "--force-depends", "--force-not-root", "--force-script-chrootless"]
    run("dpkg", *options, "-i", the("*.deb"), cwd="/")
    assert library(tmp_path).joinpath("blackbox.so").exists()
    run("dpkg", *options, "-r", "libsqlite3-mod-blackbox", cwd="/")
    assert not list(tmp_path.glob("usr/lib/*/blackbox.so"))
