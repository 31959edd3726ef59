"""What CONTRIBUTING.md says of files and functions holds."""
import re
import subprocess

import pytest

from conftest import ROOT

CODE = sorted([*ROOT.glob("ext/**/*.[ch]"), *ROOT.glob("tests/**/*.[ch]")])
WRITTEN = CODE + sorted([*ROOT.glob("sql/*.sql"), *ROOT.glob("tests/**/*.py"),
                         *ROOT.glob("bench/*.py")])
FUNCTION = re.compile(r"^(?:[A-Za-z_][^\n;={}]*\([^;{}]*\)) \{\n.*?^\}", re.M | re.S)


def functions(path):
    """The texts of the functions of a C file. The declaration may take several lines."""
    return [m.group() for m in FUNCTION.finditer(path.read_text())]


def includes(path):
    """The headers of the project that a file includes."""
    return {(path.parent / name).resolve()
            for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M)}


def test_no_file_has_more_than_900_lines():
    long = {path.name: n for path in WRITTEN
            if (n := path.read_text().count("\n")) > 900 and "version" not in path.name}
    assert long == {}


def test_no_function_has_more_than_80_lines():
    found = [text for path in CODE for text in functions(path)]
    assert len(found) > 1000
    assert [text.split("(")[0] for text in found if text.count("\n") + 1 > 80] == []


def test_no_header_includes_itself_through_others():
    headers = {path.resolve(): includes(path) for path in ROOT.glob("ext/**/*.h")}
    while headers:
        free = [path for path, needed in headers.items() if not needed & headers.keys()]
        assert free, sorted(path.name for path in headers)
        for path in free:
            del headers[path]


# The layers of core, lowest first. A file uses only files of its layer and of lower ones.
LAYERS = ({"error", "value", "digest", "merkle"},
          {"statement", "json", "json_tree", "json_path", "secrets", "secrets_text"},
          {"transaction"},
          {"schema", "model", "vtable"},
          {"log", "log_leaf", "log_tree", "log_fold"},
          {"bodies", "command", "file_limit", "mask", "table", "check", "install", "uninstall", "prices"})


def symbols(path):
    """The names that an object file defines, and those that it needs."""
    told = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True).stdout
    return (set(re.findall(r"^\w+ [A-TV-Z] _?(\w+)$", told, re.M)),
            set(re.findall(r"^ +U _?(\w+)$", told, re.M)))


def test_core_is_in_layers_without_a_circle():
    found = {path.stem: symbols(ROOT / "build/core" / f"{path.stem}.o")
             for path in (ROOT / "ext/core").glob("*.c")}
    assert set().union(*LAYERS) == set(found)
    level = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    uses = {name: {other for other in found if other != name and found[other][0] & needed}
            for name, (_, needed) in found.items()}
    assert sum(map(len, uses.values())) > 50
    assert [(a, b) for a in uses for b in uses[a] if level[b] > level[a]] == []
    while uses:
        free = [name for name, used in uses.items() if not used & uses.keys()]
        assert free, uses
        for name in free:
            del uses[name]


@pytest.mark.parametrize("folder", sorted(p.name for p in (ROOT / "ext").iterdir() if p.is_dir()))
def test_a_folder_includes_only_itself_and_core(folder):
    for path in (ROOT / "ext" / folder).glob("*.[ch]"):
        for header in includes(path):
            assert header.parent.name in (folder, "core") or header.name == "blackbox.h", path


def test_architecture_names_each_file_once():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for folder in sorted(path for path in (ROOT / "ext").iterdir() if path.is_dir()):
        table = text.split(f"file of `ext/{folder.name}/` |")[1].split("\n\n")[0]
        named = re.findall(r"`(\w+)` \| [^|\n]*\|$", table, re.M)
        assert sorted(named) == sorted({path.stem for path in folder.glob("*.[ch]")})


def test_the_glossary_has_one_line_for_each_word():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    words = re.findall(r"^\| ([a-z][^|]*) \|", text.split("## Glossary")[1].split("\n## ")[0], re.M)
    assert words[1:] == sorted(set(words[1:])) and len(words) > 60


def test_every_exported_symbol_begins_with_bx():
    objects = [str(path) for path in (ROOT / "build").glob("*/*.o")
               if path.parent.name in ("core", "payload", "evidence", "rollout", "cache")]
    told = subprocess.run(["nm", "-g", *objects],
                          capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^\w+ [A-TV-Z] _?(\w+)$", told, re.M)  # U: of others
    assert len(names) > 200
    assert [name for name in names if not name.startswith("bx")] == []


def test_no_two_files_give_one_name_to_two_things(tmp_path):
    """The one C file (make amalgamation) has all of them, and gives no warning."""
    sources = sorted(map(str, ROOT.glob("ext/**/*.c")))
    code = subprocess.run([ROOT / "ext/amalgamate.sh", *sources], stdout=subprocess.PIPE,
                          check=True).stdout
    (tmp_path / "blackbox.c").write_bytes(code)
    told = subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-fsyntax-only",
         f"-I{ROOT / 'ext'}", "blackbox.c"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert (told.returncode, told.stderr) == (0, "")


def test_asserts_say_what_must_hold():
    """At least 15 for 1,000 lines."""
    texts = [path.read_text() for path in ROOT.glob("ext/**/*.[ch]")]
    lines = sum(text.count("\n") for text in texts)
    assert sum(len(re.findall(r"\bassert\(", text)) for text in texts) * 1000 >= 15 * lines
