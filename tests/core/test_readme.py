"""The sessions in README.md and docs/ run as shown, and their lines fit."""
import re

import pytest

from conftest import ROOT, connect, console, run_session

# docs/reference.md is made of the sources (test_reference.py).
PAGES = [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "reference.md")]
WITHOUT_SESSION = ["hosts.md", "live.md", "opentelemetry.md", "orm.md", "packages.md"]  # about programs, not about SQL
ALL = "".join(page.read_text() for page in PAGES)


def python(text):
    """The Python blocks, with what their print calls are said to print."""
    for block in re.findall(r"```python\n(.*?)```", text, re.S):
        said = re.findall(r"^# (.*)$", block, re.M)
        yield block, said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_sessions_are_real(page, tmp_path, capsys):
    text = page.read_text()
    if "import sqlalchemy" in text:
        pytest.importorskip("sqlalchemy")
    steps = console(text)
    assert len(steps) > 5 or (page.name in WITHOUT_SESSION and not steps)
    file = tmp_path / "flight.db"
    outputs = run_session(file, [statement for statement, _ in steps])
    assert len(outputs) == len(steps)
    for (statement, said), really in zip(steps, outputs):
        assert really == said, statement
    for block, said in python(text):
        block = block.replace("flight.db", str(file))
        block = block.replace("sqlite:///app.db", f"sqlite:///{tmp_path}/app.db")
        block = block.replace("./blackbox", str(ROOT / "blackbox"))
        exec(compile(block, page.name, "exec"), {})
        assert capsys.readouterr().out.splitlines() == said


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("*.md")), *PAGES[1:]], ids=lambda page: page.name)
def test_lines_fit_a_terminal(page):
    """No line is wider than 120 columns, but for what the shell prints."""
    wide, inside = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console"
        printed = inside and not line.startswith(("sqlite> ", "   ...> ", "$ "))
        if len(line) > 120 and not printed:
            wide.append(number)
    assert wide == []


def test_every_name_of_the_module_is_in_the_readme():
    source = (ROOT / "ext" / "blackbox.c").read_text()
    names = re.findall(r'^    \{"([a-z_]+)", ', source, re.M)
    assert len(names) > 10
    missing = [name for name in names if name not in ALL]
    assert missing == []


def test_every_setting_is_in_the_readme():
    db = connect()
    db.execute("SELECT blackbox_install('main', 'all')")
    names = [row[0] for row in db.execute("SELECT name FROM blackbox_settings")]
    assert names and [name for name in names if name not in ALL] == []


def test_links_lead_somewhere():
    pages = [*PAGES, *ROOT.glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            if not target.startswith("https://"):
                assert (page.parent / target).exists(), (page.name, target)
