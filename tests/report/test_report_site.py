"""The pages of a file as files that are linked, and the overview with which they begin."""
import html.parser
import json
import os
import pathlib
import sqlite3
import threading

import pytest

from conftest import connect, one, rows
from report_helpers import Page, as_json, fire, page, push, ring
from test_report_kinds import SESSION, TALE, facts, looped, table

SECRET = "sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "site"


def site(db, folder, **options):
    given = (json.dumps(options),) if options else ()
    return json.loads(one(db, f"SELECT blackbox_report_site(?{', ?' * len(given)})", str(folder), *given))


class Links(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.found = []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found.append(dict(attrs)["href"])


def names(folder):
    return sorted(os.listdir(folder))


def everything(db):
    """Something of each kind that has pages. Returns the key of the kill switch."""
    switch = looped(db)
    push(db, "x1", "{}", "{}", agent="other")
    one(db, "SELECT rollout_create(?)", TALE)
    one(db, "SELECT rollout_fork(?)", TALE)
    one(db, "SELECT cache_write(?, 'a7b3c9d2', 'f4e8g1h6', '[1,2]', 'the list', NULL, 1000)", SESSION)
    db.execute("CREATE VIRTUAL TABLE \"my 'rec\" USING evidence_buffer")
    return switch


@pytest.mark.all_domains
@pytest.mark.parametrize("begin", (False, True))
def test_every_page_is_written_and_every_link_leads_to_one(db, tmp_path, begin):
    everything(db)
    if begin:
        db.execute("BEGIN")
    done = site(db, tmp_path / "site")
    files = names(tmp_path / "site")
    assert done["written"][-1] == "index.html" and sorted(done["written"]) == files
    assert sorted(name.split("-")[0] for name in files) == [
        "agent", "agent", "evidence", "index.html", "kill_switch", "rollout", "rollout", "session"]
    assert done["bytes"] == sum((tmp_path / "site" / name).stat().st_size for name in files)
    reached = set()
    for name in files:
        links = set(Links(tmp_path / "site" / name).found)
        assert links <= set(files)
        if name == "index.html":
            assert links == set(files) - {"index.html"}
        else:
            assert "index.html" in links
            reached |= links - {"index.html"}
    assert {name.split("-")[0] for name in reached} == {"agent", "kill_switch", "rollout"}
    assert db.in_transaction == begin


@pytest.mark.all_domains
def test_a_page_of_the_site_is_the_report_with_a_link(db, folder):
    switch = everything(db)
    site(db, folder)
    name, = (name for name in names(folder) if name.startswith("kill_switch"))
    assert name.startswith(f"kill_switch-{switch}-")
    made, alone = Page((folder / name).read_text()), page(db, "kill_switch", switch)
    assert {**made.report, "made": 0} == {**alone.report, "made": 0}
    assert made.text.replace("Overview : ", "", 1).split("made")[0] == alone.text.split("made")[0]
    assert not Links(folder / name).found[0].startswith("http")
    assert "<a " not in one(db, "SELECT blackbox_report('database', 'main')").split("<script")[0]


@pytest.mark.all_domains
def test_what_is_the_same_is_not_written_again(db, folder):
    everything(db)
    site(db, folder)
    before = {name: (folder / name).stat() for name in names(folder)}
    assert site(db, folder) == {"written": [], "unchanged": len(before), "removed": 0, "bytes": 0}
    push(db, "x2", "{}", "{}", agent="other")
    done = site(db, folder)
    assert [name.split("-")[0] for name in done["written"]] == ["agent", "index.html"]
    for name, was in before.items():
        assert ((folder / name).stat().st_ino == was.st_ino) == (name not in done["written"])
    made = Page((folder / "index.html").read_text()).report["made"]
    assert made == Page((folder / done["written"][0]).read_text()).report["made"]


@pytest.mark.all_domains
def test_a_page_whose_file_was_changed_is_written_again(db, folder):
    everything(db)
    site(db, folder)
    for change in (lambda text: text + "x", lambda text: text[:-1], lambda text: text.replace("a", "b", 1),
                   lambda text: "", lambda text: text.replace(',"made":', "")):
        path = folder / "index.html"
        path.write_text(change(path.read_text()))
        assert site(db, folder)["written"] == ["index.html"]
        assert Page(path.read_text()).report["kind"] == "database"


@pytest.mark.all_domains
def test_what_is_gone_leaves_the_site_and_nothing_else_does(db, folder):
    everything(db)
    site(db, folder)
    odd = ["notes.html", "agent-.html", "agent-a.html", "agent-" + "0" * 24 + ".htm", "xagent-" + "0" * 24 + ".html",
           "agent-A-" + "0" * 24 + ".html", "agent-" + "a" * 41 + "-" + "0" * 24 + ".html", ".blackbox-1.tmp"]
    ours = ["agent-" + "0" * 24 + ".html", "rollout-b-c-" + "0" * 24 + ".html", ".blackbox-" + "0" * 24 + ".tmp"]
    for name in odd + ours:
        (folder / name).write_text("x")
    one(db, "SELECT cache_clear_session(?)", SESSION)
    done = site(db, folder)
    assert done["removed"] == 1 + len(ours)
    assert {name.split("-")[0] for name in names(folder)} >= {"notes.html", "agent"}
    assert set(odd) <= set(names(folder)) and not set(ours) & set(names(folder))
    assert not [name for name in names(folder) if name.startswith("session")]


def test_names_are_safe_and_say_no_secret(db, folder):
    ring(db)
    agents = [SECRET, "../../up", "A B\n<script>", "\u202eabc", "x" * 300, "", ".", "Ärger", "a", "A"]
    for i, agent in enumerate(filter(None, agents)):
        push(db, f"e{i}", "{}", "{}", agent=agent)
    done = site(db, folder)
    found = [name for name in names(folder) if name.startswith("agent")]
    assert len(found) == len(agents) - 1 == len(done["written"]) - 1
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.") and len(name) <= 77 for name in found)
    assert any(name.startswith("agent-masked-anthropic-key-") for name in found)
    assert not any("sk-ant" in name for name in found)
    assert SECRET not in "".join((folder / name).read_text() for name in names(folder))
    assert set(Links(folder / "index.html").found) == set(found)


def test_a_link_in_place_of_a_page_is_replaced_and_not_followed(db, folder, tmp_path):
    ring(db)
    push(db, "e1", "{}", "{}", agent="a")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    name, _ = site(db, folder)["written"]
    (folder / name).unlink()
    (folder / name).symlink_to(victim)
    site(db, folder)
    assert victim.read_text() == "mine" and not (folder / name).is_symlink()


@pytest.mark.parametrize("foreign", ("<html>mine", ',"made":1760000000000', "x" * 300, "link", "folder", "\0"))
def test_an_index_of_someone_else_is_kept_and_nothing_is_written(db, folder, tmp_path, foreign):
    ring(db)
    push(db, "e1", "{}", "{}", agent="a")
    folder.mkdir()
    index = folder / "index.html"
    if foreign == "link":
        (tmp_path / "victim").write_text("mine")
        index.symlink_to(tmp_path / "victim")
    elif foreign == "folder":
        index.mkdir()
    else:
        index.write_text(foreign)
    with pytest.raises(sqlite3.OperationalError, match="WriteError: the folder .*site' has an index.html that is not of a "
                                                     "site of blackbox; give another folder, or remove the file"):
        site(db, folder)
    assert names(folder) == ["index.html"] and (foreign in ("link", "folder") or index.read_text() == foreign)


def test_a_page_that_cannot_be_made_leaves_the_index_as_it_was(db, folder):
    """What it leads to stays, too."""
    ring(db)
    push(db, "e1", "{}", "{}", agent="a")
    site(db, folder)
    before = (folder / "index.html").read_text()
    old, = (name for name in names(folder) if name != "index.html")
    push(db, "e2", "{}", "{}", agent="b")
    db.execute("DELETE FROM ring WHERE agent_id = 'a'")
    name, = (name for name in site(db, folder / "other")["written"] if name.startswith("agent-b"))
    (folder / name).mkdir()
    with pytest.raises(sqlite3.OperationalError, match=f"WriteError: {name} of the site in .* cannot be written: "):
        site(db, folder)
    assert (folder / "index.html").read_text() == before and (folder / old).exists()
    assert not [name for name in names(folder) if name.startswith(".")]


@pytest.mark.parametrize("folder, options, message", (
    ("no/such", None, "WriteError: index.html of the site in .* cannot be written: No such file"),
    ("file", None, "WriteError: index.html of the site in .* cannot be written: Not a directory"),
    ("x", '{"format":"md"}', "ValidationError: a site is HTML; omit the option format"),
    ("x", '{"oops":1}', "ValidationError: there is no option 'oops'"),
    ("x", "[]", "ValidationError: options must be a JSON object"),
    (None, None, "ValidationError: folder must be "),
    ("", None, "ValidationError: folder must ")))
def test_what_is_refused(db, tmp_path, folder, options, message):
    (tmp_path / "file").write_text("")
    path = folder and str(tmp_path / folder)
    with pytest.raises(sqlite3.Error, match=message):
        one(db, "SELECT blackbox_report_site(?, ?)", path if folder else folder, options)
    assert not (tmp_path / "x").exists()


def test_it_is_for_statements_of_the_host_only(db, folder):
    db.execute("CREATE TABLE t(x)")
    db.execute(f"CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT blackbox_report_site('{folder}'); END")
    with pytest.raises(sqlite3.Error, match="unsafe use of blackbox_report_site"):
        db.execute("INSERT INTO t VALUES(1)")
    assert not folder.exists()
    db.execute("DROP TRIGGER r")
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("INSERT INTO main.blackbox_call(command, arguments) VALUES('blackbox_report_site', ?)",
               (json.dumps([str(folder)]),))
    assert names(folder) == ["index.html"]


def test_who_may_only_read_writes_no_files(db, path, folder):
    """Such as who asks a server of SQL that has loaded the module."""
    db.execute("PRAGMA query_only = 1")
    reader = connect(f"file:{path}?mode=ro", uri=True)
    for reading in db, reader:
        with pytest.raises(sqlite3.Error, match="MisuseError: .* writes files, and this connection only reads; "):
            site(reading, folder)
    reader.close()
    db.execute("PRAGMA query_only = 0")
    assert not folder.exists() and site(db, folder)["written"] == ["index.html"]


def test_a_site_of_an_attached_file_with_an_odd_name(path, tmp_path):
    db = connect(tmp_path / "other.db")
    one(db, "SELECT blackbox_install('main', 'payload')")
    db.execute("CREATE VIRTUAL TABLE ring USING payload_ring")
    push(db, "e1", "{}", "{}")
    fire(db)
    db.close()
    db = connect()
    one(db, "SELECT blackbox_install('main', 'report')")
    db.execute('ATTACH ? AS "a ""b.c"', (str(tmp_path / "other.db"),))
    one(db, "SELECT blackbox_use('a \"b.c')")
    site(db, tmp_path / "s")
    assert [name.split("-")[0] for name in names(tmp_path / "s")] == ["agent", "index.html", "kill_switch"]
    assert Page((tmp_path / "s" / "index.html").read_text()).report["key"] == 'a "b.c'


def test_two_that_write_at_once_leave_whole_pages(db, path, tmp_path):
    ring(db)
    for i in range(30):
        push(db, f"e{i}", "q" * 5000, "{}", agent=f"a{i}")
    failed = []

    def write():
        mine = connect(path)
        for _ in range(5):
            try:
                site(mine, tmp_path / "s", redact="none")
            except sqlite3.OperationalError as error:  # its file was taken for one that was left
                failed.append(str(error))
        mine.close()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("No such file" in text for text in failed)
    site(db, tmp_path / "s", redact="none")
    assert len(names(tmp_path / "s")) == 31
    for name in names(tmp_path / "s"):
        assert (tmp_path / "s" / name).read_text().rstrip().endswith("</html>")


@pytest.mark.all_domains
def test_the_overview_says_first_what_is_wrong(db):
    switch = everything(db)
    db.execute("DROP TRIGGER blackbox_settings_rename")
    report = as_json(db, "database", "main")
    assert report["title"] == "2 things are wrong in main"
    assert [t["id"] for t in report["tables"]][:6] == [
        "wrong", "agents", "switches", "recordings", "rollouts", "sessions"]
    assert table(report, "wrong") == [
        ["a", rows(db, "SELECT stopped_at FROM payload_agents")[0][0],
         "is stopped: a called get_order 4 times with the same arguments and got the same result"],
        ["blackbox_settings_rename", None, "trigger is missing; run blackbox_install()"]]
    text = page(db, "database", "main").text
    assert text.index("What is wrong") < text.index("Agents") < text.index("Kill switches") < text.index("Facts")
    assert switch in text


def test_an_agent_that_was_started_again_is_not_wrong(db):
    looped(db)
    db.execute("INSERT INTO payload_agent_log(agent_id, actor, reason) VALUES('a', 'Ann', 'mended')")
    assert table(as_json(db, "database", "main"), "wrong") == []
    assert "Nothing is wrong in main Database main" in page(db, "database", "main").text


def test_a_loop_that_is_only_recorded_is_wrong_for_a_day(db):
    looped(db, "record")
    db.execute("UPDATE payload_verdicts SET at = unixepoch() * 1000 - 86300000")
    wrong, = table(as_json(db, "database", "main"), "wrong")
    assert wrong[0] == "a" and wrong[2].startswith("was found by a rule: a called get_order 4 times")
    db.execute("UPDATE payload_verdicts SET at = unixepoch() * 1000 - 86500000")
    assert table(as_json(db, "database", "main"), "wrong") == []


def test_the_overview_has_tokens_cost_sizes_errors_and_stops_of_agents(db):
    """Of exchanges in the archive, in two rings, and of an agent that went on after its stop."""
    looped(db)
    db.execute("CREATE VIRTUAL TABLE \"r 2\" USING payload_ring(window=50)")
    for i, meta in enumerate((None, '{"status":500}', '{"error":"gone"}', "{}")):
        db.execute("INSERT INTO \"r 2\"(agent_id, event_id, request_body, response_body, meta, timestamp)"
                   " VALUES(?, ?, '{\"model\":\"m1\"}', ?, ?, ?)",
                   ("ab"[i % 2], f"x{i}", json.dumps({"usage": {"prompt_tokens": 100, "completion_tokens": 1}}),
                    meta, 1760000100000 + i))
    db.execute("INSERT INTO blackbox_prices(model, since, input, output) VALUES('m1', '2020-01-01', 1000, 2000)")
    found = {row[0]: row for row in table(as_json(db, "database", "main"), "agents")}
    size = one(db, "SELECT sum(size_bytes) FROM event_payloads")
    assert found["a"][1:8] == [7, 1, 55 + 202, 0.045 + 0.02 + 0.2 + 0.004, size, 1, 1760000100002]
    assert found["b"][1:5] == [2, 1, 202, 0.204] and found["b"][6:] == [0, 1760000100003, None]
    assert [row[0] for row in table(as_json(db, "database", "main"), "agents")] == ["b", "a"]
    bound = {row[0]: row for row in table(as_json(db, "database", "main", items=3), "agents")}
    assert bound["b"][3] + bound["a"][3] < 55 + 404


def test_an_agent_whose_newest_exchange_failed_is_wrong(db):
    ring(db)
    for i, meta in enumerate(('{"status":200}', '{"status":503,"error":"busy"}', '{"error":"gone"}', "odd", None)):
        db.execute("INSERT INTO ring(agent_id, event_id, request_body, meta, timestamp) VALUES('a', ?, 'q', ?, ?)",
                   (f"x{i}", meta if meta != "odd" else '"odd"', 1760000100000 + i))
        wrong = {2: "error: gone", 1: "HTTP 503: busy"}.get(i)
        assert table(as_json(db, "database", "main"), "wrong") == (
            [["a", 1760000100000 + i, f"its newest exchange failed: {wrong}"]] if wrong else [])


def test_conversations_in_the_overview_have_what_they_cost(db, folder):
    one(db, "SELECT blackbox_install('main', 'rollout')")
    one(db, "SELECT rollout_import(?)", "\n".join(json.dumps(line) for line in (
        {"type": "user", "sessionId": TALE, "uuid": "u1", "timestamp": "2026-01-01T00:00:00Z",
         "message": {"role": "user", "content": "mend it"}},
        {"type": "assistant", "sessionId": TALE, "uuid": "u2", "parentUuid": "u1", "timestamp": "2026-01-01T00:00:01Z",
         "requestId": "r1", "message": {"id": "m1", "role": "assistant", "model": "claude-x",
                                        "content": [{"type": "text", "text": "done"}],
                                        "usage": {"input_tokens": 10, "output_tokens": 5}}})))
    row, = table(as_json(db, "database", "main"), "rollouts")
    assert (row[0], row[3], row[5]) == ("mend it", 3, 15)
    assert facts(as_json(db, "rollout", row[8]))["Asked first"] == "mend it"
    done = site(db, folder)
    assert pathlib.Path(folder, done["written"][0]).read_text().count("mend it") > 1
