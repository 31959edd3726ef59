"""What can be said of the packages without building them."""
import json
import re

from packages_helpers import ROOT

PACKAGES = ROOT / "packages"


def package():
    return json.loads((PACKAGES / "npm" / "package.json").read_text())


def test_everything_that_the_npm_package_exports_is_there():
    def paths(entry):
        return [entry] if isinstance(entry, str) else sum(map(paths, entry.values()), [])

    named = sum(map(paths, package()["exports"].values()), [])
    assert len(named) >= 10
    named.remove("./prices.json")  # build.py takes it from the folder of all packages
    assert (PACKAGES / "prices.json").exists()
    assert [path for path in named if not (PACKAGES / "npm" / path).exists()] == []


def test_each_adapter_has_an_example_of_at_most_30_lines():
    examples = {path.stem: path.read_text() for path in (PACKAGES / "npm/examples").glob("*.mjs")}
    adapters = {"record" if name == "." else name[2:] for name in package()["exports"]
                if name not in ("./prices.json", "./hide")}
    assert adapters and set(examples) == adapters
    examples["httpx"] = (PACKAGES / "python/examples/httpx_client.py").read_text()
    assert {n: len(t.splitlines()) for n, t in examples.items() if len(t.splitlines()) > 30} == {}


def test_the_packages_have_the_version_of_the_module_and_no_other():
    """build.py writes it; a number in the sources would be a second truth."""
    assert package()["version"] == "0.0.0"
    assert set(package()["optionalDependencies"].values()) == {"0.0.0"}
    assert json.loads((PACKAGES / "sqlpkg.json").read_text())["version"] == "0.0.0"
    assert "@VERSION@" in (PACKAGES / "debian/changelog.in").read_text()


def test_the_files_of_the_packages_are_short_and_named_in_their_manual():
    for path in [*PACKAGES.rglob("*.js"), *PACKAGES.rglob("*.py")]:
        text = path.read_text()
        assert len(text.splitlines()) <= 350, path
        if path.name not in ("index.js", "__init__.py") and "examples" not in path.parts:
            assert re.match(r'(// |#!.*\n// |#!.*\n"""|""")', text), path
