"""The tarballs and sqlpkg.json, from dist/."""
import hashlib
import json
import sqlite3
import subprocess
import tarfile

from packages_helpers import DIST, ROOT, run, the


def test_the_loadable_tarball_has_a_module_that_loads(tmp_path):
    with tarfile.open(the("blackbox-*-loadable-*.tar.gz")) as tar:
        assert tar.getnames() == ["LICENSE", "blackbox.so"]
        tar.extractall(tmp_path)
    db = sqlite3.connect(":memory:")
    db.enable_load_extension(True)
    db.load_extension(str(tmp_path / "blackbox"))
    assert db.execute("SELECT blackbox_install('main', 'cache')").fetchone() == (
        "main: cache, core",)


def test_the_module_of_the_packages_exports_its_entry_points_alone_and_needs_two_libraries(
        tmp_path):
    with tarfile.open(the("blackbox-*-loadable-*.tar.gz")) as tar:
        tar.extractall(tmp_path)
    names = run("nm", "-D", "--defined-only", "blackbox.so", cwd=tmp_path).split()[2::3]
    assert names == ["sqlite3_blackbox_init", "sqlite3_extension_init"]
    needed = [line.split()[1] for line in run("objdump", "-p", "blackbox.so", cwd=tmp_path)
              .splitlines() if "NEEDED" in line]
    assert needed == ["libuuid.so.1", "libc.so.6"]


def test_sqlpkg_json_names_the_tarball_of_this_platform_with_its_checksum():
    spec = json.loads((DIST / "sqlpkg.json").read_text())
    assert spec["owner"] and spec["name"] == "blackbox" and "payload_queue" in spec["symbols"]
    name = spec["assets"]["files"]["linux-amd64"].replace("{version}", spec["version"])
    path = DIST / spec["assets"]["path"] / name
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert spec["assets"]["checksums"] == {name: f"sha256-{digest}"}


def test_the_checksums_are_those_of_the_files():
    told = run("sha256sum", "-c", "checksums.txt", cwd=DIST).splitlines()
    assert len(told) == 7 and all(line.endswith(": OK") for line in told)


def test_the_same_input_gives_the_same_bytes(tmp_path):
    for name in ("blackbox.c", "blackbox.h"):
        (tmp_path / name).write_bytes((DIST / name).read_bytes())
    version = json.loads((DIST / "sqlpkg.json").read_text())["version"]
    subprocess.run(["python3", ROOT / "packages/build.py", ROOT / "blackbox.so", version,
                    tmp_path], check=True)
    made = [path for path in tmp_path.iterdir() if path.name != "checksums.txt"]
    assert len(made) == 8
    assert [p.name for p in made if p.read_bytes() != (DIST / p.name).read_bytes()] == []


def test_a_repository_becomes_the_address_of_the_tarballs(tmp_path):
    for name in ("blackbox.c", "blackbox.h"):
        (tmp_path / name).write_bytes((DIST / name).read_bytes())
    subprocess.run(["python3", ROOT / "packages/build.py", ROOT / "blackbox.so", "9.8.7",
                    tmp_path, "https://example.com/me/blackbox"], check=True)
    spec = json.loads((tmp_path / "sqlpkg.json").read_text())
    assert spec["version"] == "9.8.7" and spec["repository"] == "https://example.com/me/blackbox"
    assert spec["assets"]["path"] == "{repository}/releases/download/{version}"


def test_the_amalgamation_tarball_compiles_into_a_program(tmp_path):
    with tarfile.open(the("blackbox-*-amalgamation.tar.gz")) as tar:
        tar.extractall(tmp_path)
    (tmp_path / "main.c").write_text(
        (ROOT / "tests/hosts/static.c").read_text().replace("../../ext/", ""))
    run("cc", "-O0", "-DSQLITE_CORE", "-o", "main", "main.c", "blackbox.c", "-lsqlite3",
        "-luuid", "-l:libmd.a", "-l:libzstd.a", cwd=tmp_path)
    assert run("./main", cwd=tmp_path).splitlines()[-1] == "0"
