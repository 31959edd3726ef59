"""Recorded data of real agents, where it is beside the project: a part of it, and all of it with
BLACKBOX_FULL=1."""
import gzip
import json
import os

import pytest

import contents
from clock import START
from conftest import DATA, needs_data
from pair import Pair, needs_oracle

pytestmark = [needs_oracle, needs_data]
FULL = bool(os.environ.get("BLACKBOX_FULL"))
DAY = 86_400_000
CHECK = "SELECT * FROM blackbox_check"


def read(path):
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def part(things, n):
    """Every so many of them, so that there are n; or all."""
    things = list(things)
    return things if FULL else things[::max(len(things) // n, 1)][:n]


def exchanges():
    """(agent, event, request, response, ISO time) of whole conversations."""
    agents = {}
    for line in read(DATA / "payloads.jsonl.gz").splitlines():
        row = json.loads(line)
        bodies = [body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
                  for body in (row["request"], row["response"])]
        agents.setdefault(row["agent_id"], []).append(
            (row["agent_id"], row["event_id"], *bodies, row["ts"]))
    return [exchange for agent in part(agents.values(), 12) for exchange in agent[:FULL or 15]]


def test_exchanges_in_ring_archive_and_evidence(tmp_path):
    found = exchanges()
    agents = sorted({exchange[0] for exchange in found})
    assert len(agents) > 5
    with Pair(tmp_path, "core,payload,retention,store", strict=True) as pair:
        pair.run("CREATE VIRTUAL TABLE ring USING payload_ring(window=10)")
        for name, value in [("enabled", 1), ("retention_days", 365),
                            ("max_bytes", 20_000_000), ("queue_mode", "memory")]:
            pair.run("INSERT INTO blackbox_settings VALUES(?, ?)", "payload." + name, value)
        for i, (agent, event, request, response, at) in enumerate(found):
            pair.run("INSERT INTO ring(agent_id, event_id, request_body, response_body, timestamp)"
                     " VALUES(?, ?, ?, ?, ?)", agent, event, request, response, START + i)
            if i % 2:
                pair.run("SELECT payload_queue(?, ?, ?, ?, ?)", event, agent, request, response,
                         START - i * DAY)
            else:
                pair.run("INSERT INTO event_payloads(id, event_id, agent_id, request_body, "
                         "response_body, purpose, created_at) VALUES(?, ?, ?, ?, ?, 'archive', ?)",
                         f"p{i}", event, agent, request, response, at)
            pair.run("SELECT * FROM payload_calls(?, ?)", request, response)
            pair.run("SELECT model, input, cache_write, cache_read, output, reasoning "
                     "FROM payload_usage(?, ?)", request, response)
            pair.run("SELECT payload_prompt(?1), payload_tools(?1)", request)
            pair.clock.now += 1000
        pair.run("SELECT payload_flush()")
        contents.compare(pair, PAYLOAD)
        for i, agent in enumerate(agents):
            if i % 2:
                pair.run("SELECT payload_kill_switch('ring', ?, ?)", agent, f"k{i}")
                pair.run("SELECT blackbox_erase('agent', ?, 'ann', 'asked', '{\"unpin\":true}') "
                         "->> '$.rows'", agent)
            else:
                pair.run("SELECT payload_extract('ring', ?)", agent)
        pair.run("SELECT json_remove(payload_stats(), '$.unhashed', '$.totalSize', '$.expiredMore')")
        pair.run("SELECT payload_pack(20)")
        contents.compare(pair, PAYLOAD)
        pair.run("SELECT payload_cleanup(30, ?, 15)", START)
        pair.run("SELECT retention_sweep(1000, ?)", START + 400 * DAY)
        contents.compare(pair, PAYLOAD)
        pair.run(CHECK)


PAYLOAD = {name: columns for name, columns in contents.TABLES.items()
           if name.startswith(("payload", "event", "ring", "retention", "store", "blackbox"))}
CONVERSATIONS = {name: columns for name, columns in contents.TABLES.items()
                 if name.startswith(("rollout", "retention_log", "blackbox"))}


def files():
    if not DATA.is_dir():
        return []
    recorded = [part(sorted((DATA / "rollouts" / kind).iterdir(), key=lambda p: p.stat().st_size),
                     3) for kind in ("codex", "claude")]
    samples = [path for path in sorted((DATA / "formats").glob("*/**/*.*"))
               if path.is_file() and path.suffix not in (".sql", ".md")]
    return [*recorded, samples]


@pytest.mark.parametrize("kind", range(3), ids=["codex", "claude", "formats"])
def test_sessions_are_imported_and_read(kind, tmp_path):
    with Pair(tmp_path, "core,rollout", strict=True) as pair:
        pair.run("SELECT rollout_search_install()")
        for path in files()[kind]:
            data = read(path)
            pair.run("SELECT rollout_import(?)", data[:len(data) // 2])
            pair.clock.now += 1000
            pair.run("SELECT rollout_import(?)", data)
        pair.run("SELECT rollout_page(100)")
        pair.run("SELECT * FROM rollout_list(20)")
        for word in ("error", "file", "über"):
            pair.run("SELECT * FROM rollout_search(?)", word)
        contents.compare(pair, CONVERSATIONS)
        for (id,) in pair.sides[0].db.execute("SELECT id FROM rollouts").fetchall():
            pair.run("SELECT rollout_export(?)", id)
            pair.run("SELECT rollout_history(?)", id)
            for table in ("context(?, 'without')", "orphans(?)", "tree(?)", "dropped(?)"):
                pair.run(f"SELECT * FROM rollout_{table}", id)
            pair.run("SELECT rollout_fork(?, 0, ?)", id, id[:-4] + "ffff")
        pair.run("SELECT rollout_rebuild()")
        pair.run("SELECT rollout_cleanup_expired(?, 2)", START + 99 * DAY)
        contents.compare(pair, CONVERSATIONS)
        pair.run(CHECK)


def tool_results():
    """JSON texts: files, or what files of JSON lines have."""
    for path in sorted((DATA / "toolresults").iterdir()):
        text = read(path).decode()
        try:
            found = json.loads(text)
            yield text
            values = found if isinstance(found, list) else list(found.values())
            yield from map(json.dumps, part(values, 4))
        except ValueError:
            yield from part(text.splitlines(), 10)


def test_tool_results_in_the_cache(tmp_path):
    session = "conv_a3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b"
    with Pair(tmp_path, "cache,core", strict=True) as pair:
        pair.run("INSERT INTO blackbox_settings VALUES('cache.session_quota_bytes', 3000000), "
                 "('cache.on_quota', 'evict_oldest')")
        for i, data in enumerate(tool_results()):
            key = f"{session}_task{i % 9:04}_turn{i % 7:04}"
            pair.run("SELECT cache_write(?, ?, ?, ?, ?)", session, key[-17:-9], key[-8:], data,
                     data[:400])
            pair.run("SELECT cache_read(?)", key)
            pair.clock.now += 11_000
        pair.run("SELECT * FROM cache_list(?)", session)
        pair.run("SELECT cache_stats(?)", session)
        pair.run("SELECT cache_cleanup_outdated(0.001)")
        contents.compare(pair, {name: columns for name, columns in contents.TABLES.items()
                                if name.startswith(("cache", "retention_log"))})
        pair.run(CHECK)


def actions():
    """Recorded steps, in both shapes of an action."""
    for path in sorted((DATA / "actions" / "side").glob("*.json")):
        for test in json.loads(read(path))["tests"]:
            for command in test["commands"]:
                yield {"id": command["id"], "eventType": command["command"],
                       "value": command["target"], "fallbackChain": {"strategies": [
                           {"type": "css_selector", "confidence": .5, "selector": target}
                           for target, _ in command["targets"]]}}
    for path in sorted((DATA / "actions" / "chrome-recorder").glob("*.json")):
        for i, step in enumerate(json.loads(read(path))["steps"]):
            yield {"actionId": f"{path.stem} {i}", "actionType": step["type"],
                   "value": step.get("url") or step.get("value"), "evidence": {"dom": step},
                   "fallbackChain": {"strategies": [
                       {"type": "dom_selector", "confidence": .8, "selector": str(selector)}
                       for selector in step.get("selectors", [])]}}


def test_screenshots_and_actions_in_a_buffer(tmp_path):
    network = json.loads(read(next((DATA / "actions" / "network").glob("*.gz"))))["log"]["entries"]
    shots = [read(path) for path in sorted((DATA / "screenshots").glob("*.png"))]
    with Pair(tmp_path, "core,evidence", strict=True) as pair:
        pair.run("CREATE VIRTUAL TABLE rec USING evidence_buffer(max_size_bytes=3000000, "
                 "retention_policy='confidence-based')")
        for i, action in enumerate(part(actions(), 80)):
            if i % 7 == 0:
                action["networkData"] = {"recentRequests": network[i % 20:][:5]}
            pair.run("INSERT INTO rec(id, timestamp, action, screenshot) VALUES(?, ?, ?, ?)",
                     f"a{i}", i, json.dumps(action), shots[i % len(shots)] if i % 3 else None)
            if i % 20 == 5:
                pair.run("UPDATE rec SET pinned = 1 WHERE id = ?", f"a{i}")
        for call in ("stats('rec')", "export('rec', 1, 5)", "prune_screenshots('rec', 2)",
                     "prune_for_approval('rec', 1)", "export_puppeteer('rec')",
                     "export_replay('rec')", "export('rec')"):
            pair.run(f"SELECT evidence_{call}")
        pair.run("SELECT * FROM rec ORDER BY timestamp")
        pair.run("SELECT rule, rows, screenshots, bytes FROM rec_log ORDER BY at")
        pair.run(CHECK)
