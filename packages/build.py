#!/usr/bin/env python3
"""build.py MODULE VERSION FOLDER [REPOSITORY]: the packages of one platform.

It writes into FOLDER, which make dist calls with dist/:

  sqlite-blackbox-VERSION.tgz           npm: the loader and the adapters
  sqlite-blackbox-PLATFORM-VERSION.tgz  npm: the module for this platform
  sqlite_blackbox-VERSION-*.whl         Python: the loader, the recorder, the module
  blackbox-VERSION-loadable-*.tar.gz    the module and the list of prices
  blackbox-VERSION-amalgamation.tar.gz  blackbox.c and blackbox.h, from FOLDER
  sqlpkg.json                           describes the tarballs
  checksums.txt                         SHA-256 of all of these, for sha256sum -c

The Debian package is made by packages/debian/rules before. Everything here needs the
standard library of Python alone. The same input gives the same bytes: times are
SOURCE_DATE_EPOCH (1980 without it), and names are sorted.
"""
import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
EPOCH = max(int(os.environ.get("SOURCE_DATE_EPOCH", 0)), 315532800)
MACHINE = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
NODE = {"x86_64": "x64", "aarch64": "arm64"}[MACHINE]
MAC = sys.platform == "darwin"
LINKED = ("libssl-dev", "libzstd-dev", "zlib1g-dev")  # the packages whose .a the module has in it
DOC = pathlib.Path("/usr/share/doc")


def stripped(module):
    """The bytes of the module without what only debuggers read."""
    if MAC:
        return module.read_bytes()
    copy = module.with_name(module.name + ".stripped")
    subprocess.run(["strip", "--strip-unneeded", "-o", str(copy), str(module)], check=True)
    data = copy.read_bytes()
    copy.unlink()
    return data


def wheel_platform(data):
    """The platform tag: the oldest glibc that has all symbols that the module needs. Beside
    glibc it needs libuuid.so.1, which every distribution with glibc has, as mount needs it."""
    if MAC:
        return f"macosx_11_0_{platform.machine()}"
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", data)
    major, minor = max((int(a), int(b)) for a, b in versions)
    return f"manylinux_{major}_{max(minor, 17)}_{MACHINE}"


def licences():
    """Ours, and those of the libraries in the module, which ask to go with it."""
    files = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    if not MAC:
        files["NOTICE"] = b"\n".join(
            f"In the module there is code of {name}:\n\n".encode()
            + (DOC / name / "copyright").read_bytes() for name in LINKED)
    return files


def prices():
    """The list of prices, for rollout_load_prices(). It says its date and sources."""
    return (HERE / "prices.json").read_bytes()


def shared():
    """What the packages of npm and Python both have."""
    return {name: (HERE / name).read_bytes()
            for name in ("prices.json", "commands.json", "commands.sql", "serve.html")}


def tarball(path, files):
    """files: {name: bytes}."""
    with open(path, "wb") as out, gzip.GzipFile("", "wb", 9, out, EPOCH) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(files.items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(data), EPOCH, 0o644
            tar.addfile(info, io.BytesIO(data))


def text(value):
    return (json.dumps(value, indent=2) + "\n").encode()


def sources(folder, *patterns):
    return {str(p.relative_to(folder)): p.read_bytes()
            for pattern in patterns for p in folder.glob(pattern)}


def npm(out, version, module, data):
    """The two packages of npm. The loader names the modules of its own version only."""
    package = json.loads((HERE / "npm/package.json").read_text())
    package["version"] = version
    others = package["optionalDependencies"]
    package["optionalDependencies"] = {name: version for name in others}
    files = sources(HERE / "npm", "*.js", "*.cjs", "*.d.ts", "*.d.cts", "README.md", "examples/*")
    files.update({"package.json": text(package), "LICENSE": licences()["LICENSE"], **shared()})
    tarball(out / f"sqlite-blackbox-{version}.tgz", {f"package/{n}": d for n, d in files.items()})

    system = "darwin" if MAC else "linux"
    name = f"sqlite-blackbox-{system}-{NODE}"
    native = {"name": name, "version": version, "license": "MIT", "os": [system], "cpu": [NODE],
              "description": f"The module of sqlite-blackbox for {system}-{NODE}",
              "exports": {f"./{module.name}": f"./{module.name}"}}
    if not MAC:
        native["libc"] = ["glibc"]
    files = {"package.json": text(native), module.name: data, **licences()}
    tarball(out / f"{name}-{version}.tgz", {f"package/{n}": d for n, d in files.items()})


def wheel(out, version, module, data):
    """A wheel is a zip file with a RECORD of what is in it."""
    tag = f"py3-none-{wheel_platform(data)}"
    version = version.replace("-", "")  # as Python writes 1.0.0-rc1
    info = f"sqlite_blackbox-{version}.dist-info"
    readme = (HERE / "python/README.md").read_text()
    files = sources(HERE / "python", "blackbox/*.py", "blackbox/py.typed")
    files[f"blackbox/{module.name}"] = data
    files.update({f"blackbox/{name}": body for name, body in shared().items()})
    files.update({f"{info}/{name}": body for name, body in licences().items()})
    files[f"{info}/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: blackbox\n"
                              f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: sqlite-blackbox\nVersion: {version}\n"
        "Summary: The flight recorder for AI agents, inside SQLite\n"
        "License: MIT\nRequires-Python: >=3.8\nProvides-Extra: httpx\n"
        "Requires-Dist: httpx>=0.23; extra == 'httpx'\n"
        "Provides-Extra: requests\nRequires-Dist: requests>=2.25; extra == 'requests'\n"
        f"Description-Content-Type: text/markdown\n\n{readme}").encode()
    record = "".join(f"{name},sha256={digest(body)},{len(body)}\n"
                     for name, body in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    path = out / f"sqlite_blackbox-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, body in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            entry.external_attr = 0o644 << 16
            zipped.writestr(entry, body, zipfile.ZIP_DEFLATED)


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def tarballs(out, version, module, data):
    system = "macos" if MAC else "linux"
    tarball(out / f"blackbox-{version}-loadable-{system}-{MACHINE}.tar.gz",
            {module.name: data, "prices.json": prices(), **licences()})
    tarball(out / f"blackbox-{version}-amalgamation.tar.gz", {
        "blackbox.c": (out / "blackbox.c").read_bytes(),
        "blackbox.h": (out / "blackbox.h").read_bytes(),
        "LICENSE": licences()["LICENSE"]})


def sqlpkg(out, version, repository):
    """Without a repository, the tarballs are looked for beside the file."""
    package = json.loads((HERE / "sqlpkg.json").read_text())
    package["version"] = version
    source = (ROOT / "ext/blackbox.c").read_text()
    package["symbols"] = sorted(set(re.findall(r'^    \{"([a-z_]+)", ', source, re.M)))
    if repository:
        package["repository"] = repository
        package["assets"]["path"] = "{repository}/releases/download/{version}"
    package["assets"]["checksums"] = {
        p.name: "sha256-" + hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(out.glob("*-loadable-*.tar.gz"))}
    (out / "sqlpkg.json").write_bytes(text(package))


def main(module, version, out, repository=""):
    module, out = pathlib.Path(module), pathlib.Path(out)
    for old in out.iterdir():
        if old.suffix in (".tgz", ".whl", ".gz", ".json", ".txt"):
            old.unlink()
    data = stripped(module)
    npm(out, version, module, data)
    wheel(out, version, module, data)
    tarballs(out, version, module, data)
    sqlpkg(out, version, repository)
    made = sorted(p for p in out.iterdir() if p.suffix in (".tgz", ".whl", ".gz", ".json", ".deb"))
    (out / "checksums.txt").write_text("".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in made))


main(*sys.argv[1:])
