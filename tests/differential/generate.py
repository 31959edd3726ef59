"""Statements at random, the same for the same seed. Each domain has a method that returns its
statements: one of them is chosen. Values come from small sets, so that statements meet, and some
are not valid."""
import json
import random
import re

from clock import START

DAY = 86_400_000
UUIDS = ["5973b6c0-94b8-487b-a530-2aeb6098ae0e", "019d0000-1111-7222-8333-444455556666",
         "019d0000-1111-7222-9333-777788889999", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]
SESSIONS = [f"conv_{c}3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b" for c in "abc"]
JUNK = [None, "", " ", -1, 0, 1.5, "x" * 1100, b"\x00\xff", 2**62, "a\x00b", "1e3", "null",
        "é\u202e\U0001f600", "[1"]
CONFLICT = ["INSERT"] * 4 + ["INSERT OR IGNORE", "REPLACE", "INSERT OR FAIL", "INSERT OR ROLLBACK",
                             "INSERT OR ABORT"]
UPDATE = ["UPDATE"] * 4 + ["UPDATE OR IGNORE", "UPDATE OR REPLACE", "UPDATE OR FAIL"]

# What differs in a report with proofs: the name of the log, salts, hashes.
# Of an erasure: the number in the log and what is random.
NUMBERS = "'$.erasure', '$.salt', '$.digest'"
HASH = r"\b[0-9a-f]{32}\b|\b[0-9a-f]{64}\b|[A-Za-z0-9+/]{43}="

SETTINGS = {
    "payload.enabled": [0, 1],
    "payload.max_bytes": [0, 5000, 9000],  # no row is as large: the oracle refuses its UPDATE
    "payload.on_disabled": ["error", "ignore"], "payload.pack": [0, 1],
    "payload.retention_days": [1, 7, 365], "payload.queue_mode": ["durable"],
    "payload.flush_batch_size": [1, 3, 20], "payload.flush_interval_ms": [1, 5000],
    "payload.queue_max_rows": [1000, 100000],  # there is no such setting
    "payload.refuse_nobody": [0, 1],  # nor this
    "payload.history_until": [0, START - 20 * DAY], "cache.session_quota_bytes": [1000, 3000],
    "cache.total_quota_bytes": [2000, 9000], "cache.max_item_bytes": [1000, 1500],
    "cache.on_quota": ["reject", "evict_oldest"],
    "cache.idle_ms": [60000, DAY], "cache.max_age_days": [0.5, 30],
    "cache.strict_session_ids": [0, 1],
    "cache.mark_interval_ms": [0, 10000], "cache.max_idle_days": [1, 30],
    "rollout.ttl_days": [1, 60], "rollout.policy": ["codex", "everything", "mine"],
    "evidence.orphan_days": [1, 30], "retention.refuse_days": [0, 30],
}


class Generator(random.Random):
    def __init__(self, domain, seed):
        super().__init__(f"{domain} {seed}")
        self.domain = domain
        self.times = 0
        self.imported = False
        # (The oracle has other rules on loops. So none of them runs.)
        # A cap of the archive refuses nothing because of a hold, as that of the oracle did.
        self.capped = seed % 2 == 0

    # values

    def of(self, *values):
        """One of these values, or seldom one that is not valid."""
        return self.choice(JUNK) if self.random() < 0.04 else self.choice(values)

    def agent(self):
        return self.of("a", "b", "c")

    def event(self):
        return self.of(*(f"e{i}" for i in range(9)))

    def pusher(self):
        """The agent of a ring. No hold names it: held exchanges no longer stop what the oracle
        stopped, a kill switch and a push."""
        return self.of("ra", "rb", "rc")

    def pushed(self):
        return self.of(*(f"r{i}" for i in range(9)))

    def row(self):
        return self.of(*(f"p{i}" for i in range(12)))

    def new_row(self):
        """The id of a new row. (The oracle took NULL.)"""
        return self.row() or "p0"

    def switch(self):
        return self.of(None, None, "k1", "k2")

    def time(self):
        """Milliseconds: mostly recent, some long ago. NULL is now. No two are the same, as of
        rows with random ids and the same time nobody can say which goes first."""
        self.times += 1
        time = self.of(None, None, None, START, START + self.randrange(10**6),
                       START + self.randrange(10**6), START - self.randrange(9) * DAY,
                       START - 100 * DAY)
        return time + self.times if isinstance(time, int) and time > START - 200 * DAY else time

    def later(self):
        return self.of(None, START + 3 * DAY, START + 400 * DAY)

    def date(self):
        """Mostly recent. No two are the same: see time(). None has NULL, for which REPLACE takes
        the default (the oracle then wrote no receipt)."""
        self.times += 1
        minute, second = divmod(self.times, 60)
        return self.of("2026-05-2%d 12:%02d:%02d" % (self.randrange(10), minute, second),
                       "2026-05-27T10:%02d:%02d.123Z" % (minute, second),
                       "2026-01-05T00:%02d:%02d+02:00" % (minute, second), "yesterday",
                       "2026-05-25 11:%02d:%02d.4567" % (minute, second)) or "2026-05-28"

    def text(self):
        return self.of("", "hello", "word " * self.randrange(200), "é\U0001f600" * 9, None,
                       b"bytes\x00\xff", '{"a":[1,2,{"b":null}]}', self.request(), "x" * 600)

    def request(self):
        """The request of an agent that calls the same tool again and again."""
        messages = [{"role": "user", "content": self.choice(["go", "again"])}]
        for i in range(self.randrange(7)):
            messages += [
                {"role": "assistant", "tool_calls": [{"id": f"c{i}", "function": {
                    "name": self.choice(["get", "get", "put"]), "arguments": '{"id":%d}' % 7}}]},
                {"role": "tool", "tool_call_id": f"c{i}", "content":
                 self.choice(["closed", "closed", f"Error: {i}", "at 12:0%d" % i])}]
        return json.dumps({"model": "gpt-5", "messages": messages})

    def number(self):
        return self.of(0, 1, 2, 3, 10, 100)

    def who(self):
        return self.said("ann", "bob")

    def why(self):
        return self.said("case 7", "two\nlines")

    def said(self, *values):
        """Text, as the checkout refuses a number, which the oracle took in a table as text."""
        value = self.of(*values)
        return str(value) if isinstance(value, (int, float)) else value

    def session(self):
        return self.of(*SESSIONS)

    def part(self):
        return self.of("task0001", "task0002", "f4e8g1h6") or "task0001"  # NULL is a random part

    def conversation(self):
        return self.of(*UUIDS, *UUIDS[:2])

    # statements

    def step(self, inside):
        """(statement, values) of this domain, of another one, or of a transaction; `inside` says
        whether one is open."""
        chance = self.random()
        if chance < (0.2 if inside else 0.06):
            begin = ["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT s"]
            end = ["COMMIT", "COMMIT", "ROLLBACK", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"]
            return self.choice(end if inside != (self.random() < 0.03) else begin), ()
        if chance < 0.25:
            other = self.choice([self.settings, self.settings, self.retention, self.all_domains])
        else:
            other = getattr(self, self.domain)
        sql, *values = self.choice(other())
        self.imported |= "rollout_import" in sql
        if inside and re.search(r"payload_(queue|flush)\b|^INSERT INTO ring\(ring, value\)", sql):
            # A ROLLBACK takes queued rows back. The oracle keeps a bound that a hold refused.
            return "SELECT 1", ()
        return sql, values

    def milliseconds(self):
        """How far the clock goes before the next statement. No jump is in doubt: the checkout
        believes a clock again when it has gone on for a day, which the oracle never does."""
        return self.choice([1] * 6 + [7] * 6 + [1500, 61_000, 3_700_000]
                           + [DAY // 2] * (self.random() < 0.1))

    def all_domains(self):
        return getattr(self, self.choice(["ring", "archive", "evidence", "rollout", "cache"]))()

    def settings(self):
        name = self.choice(sorted(SETTINGS))
        if name == "payload.max_bytes" and not self.capped:
            name = "payload.enabled"
        value = self.of(*SETTINGS[name])
        if value == "1e3":  # the checkout takes text that is a number
            value = "1e3x"
        put = "INTO blackbox_settings(name, value) VALUES(?, ?)"
        return [
            (f"REPLACE {put}", name, value), (f"REPLACE {put}", name, value),
            (f"INSERT {put} ON CONFLICT(name) DO UPDATE SET value = excluded.value", name, value),
            ("DELETE FROM blackbox_settings WHERE name = ?", name),
            (f"INSERT {put}", self.of("payload.enabeld"), value),
        ]

    def ring(self):
        push = "INTO ring(agent_id, event_id, request_body, response_body, timestamp) VALUES"
        exchange = (self.pusher(), self.pushed(), self.text(), self.text(), self.time())
        # (The oracle stops an agent for a push that OR IGNORE then leaves out.)
        insert = self.choice(CONFLICT).replace(" OR IGNORE", "")
        command = "INSERT INTO ring(ring, value) VALUES(?, ?)"
        limit = self.choice([("window", self.of(0, 1, 2, 5, 2000)), ("idle_days", self.of(0, 1, 5)),
                             ("max_bytes", self.of(0, 20000))])  # the oracle refuses larger rows
        return [statement for statement in [
            *[(f"{insert} {push}(?, ?, ?, ?, ?)", *exchange)] * 8,
            *[(f"INSERT {push}(?1, ?2, ?3, ?4, ?5), (?1, ?2 || 'x', ?6, ?4, ?5)", *exchange,
               self.request())] * 3,
            ("INSERT INTO ring VALUES(?, ?, ?, ?, ?, 9, 9)", *exchange),
            ("INSERT INTO ring(ring, agent_id, event_id) VALUES(?, ?, ?)",
             self.of("kill_switch"), self.pusher(), self.switch()),
            ("SELECT payload_kill_switch(?, ?, ?)", self.of("ring", "main.ring"), self.pusher(),
             self.switch()),
            ("SELECT payload_extract('ring', ?)", self.pusher()),
            (command, *limit), (command, *limit),
            ("DELETE FROM ring WHERE agent_id = ?", self.pusher()),
            ("DELETE FROM ring WHERE agent_id = ? AND seq = ?", self.pusher(), self.number()),
            ("DELETE FROM ring WHERE event_id = ?", self.pushed()),
            (self.choice(["DELETE FROM ring", "DELETE FROM ring WHERE seq < 3", "DROP TABLE ring",
                          "ALTER TABLE ring RENAME TO tape", "ALTER TABLE tape RENAME TO ring"]),),
            ("CREATE VIRTUAL TABLE ring USING payload_ring(window=%s)" % self.of(3, 5, 0, "x"),),
            (f"{self.choice(UPDATE)} ring SET request_body = ?", self.text()),
            ("SELECT seq, event_id, request_body FROM ring WHERE agent_id = ? ORDER BY seq DESC",
             self.pusher()),
            ("SELECT agent_id, count(*), sum(size_bytes) FROM ring GROUP BY agent_id ORDER BY 1",),
            ("SELECT * FROM payload_loops('ring', ?)", self.pusher()),
            ("SELECT event_id, rule, count FROM payload_replay(?)", self.pusher()),
            ("INSERT INTO payload_starts(agent_id, actor, reason) VALUES(?, ?, ?)", self.pusher(),
             self.who(), self.why()),
            ("INSERT INTO payload_allows(agent_id, rule, tool, until, actor, reason) "
             "VALUES(?, ?, ?, ?, ?, ?)", self.pusher(), self.of(None, "no_progress"),
             self.of(None, "get"), self.time(), self.who(), self.why()),
            (f"{self.choice(CONFLICT)} INTO payload_agents(agent_id, on_loop) VALUES(?, ?)",
             self.pusher(), self.of(None, "off", "record", "kill_switch")),
            ("UPDATE payload_rules SET threshold = ?, enabled = ? WHERE rule = ?", self.number(),
             self.of(0, 1), self.of("no_progress", "errors", "repeat", "cycle")),
            ("DELETE FROM payload_verdicts WHERE agent_id = ?", self.pusher()),
            ("SELECT u.model, u.input, u.cache_write, u.cache_read, u.output, u.reasoning "
             "FROM payload_usage(?, ?) AS u", self.request(), self.text()),
            ("SELECT * FROM payload_calls(?, ?)", self.request(), self.text()),
            ("SELECT payload_prompt(?1), payload_tools(?1)", self.request()),
        ] if not re.search("payload_(loops|replay|verdicts|allows|rules)|on_loop", f"{statement}")]

    def archive(self):
        columns = ("id, event_id, agent_id, request_body, response_body, purpose, pinned, "
                   "kill_switch_event_id, created_at")
        new = (self.new_row(), self.event(), self.agent(), self.text(), self.text(),
               self.of(*["archive"] * 5, "evidence"), self.choice([0, 0, 0, 1]), self.switch(),
               self.date())  # evidence is pinned whatever is given
        insert = f"INTO event_payloads({columns}) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)"
        # (The oracle drops a packed text for an OR FAIL that fails.)
        conflict = self.choice(CONFLICT).replace(" FAIL", " ABORT")
        exchange = (self.event(), self.agent(), self.text(), self.text())
        change = self.choice([
            ("request_body", self.text()), ("pinned", self.of(0, 1)), ("purpose", self.of(
                "archive", "evidence")), ("event_id", self.event()), ("agent_id", self.new_row()),
            ("created_at", self.date()), ("size_bytes", self.number()), ("pinned", 1),
            ("response_body", self.text()), ("kill_switch_event_id", self.switch())])
        return [
            *[(f"{conflict} {insert}", *new)] * 8,
            (f"INSERT {insert} ON CONFLICT(id) DO UPDATE SET request_body = "
             "excluded.request_body, pinned = excluded.pinned", *new),
            (f"INSERT {insert} ON CONFLICT DO NOTHING", *new),
            ("INSERT INTO event_payloads(id, event_id, agent_id, purpose) SELECT id || 'c', "
             "event_id, agent_id, 'archive' FROM event_payloads WHERE rowid = (SELECT max(rowid) "
             "FROM event_payloads WHERE agent_id = ?)", self.agent()),
            *[(f"{self.choice(UPDATE)} event_payloads SET {change[0]} = ? WHERE id = ?",
               change[1], self.row())] * 4,
            (f"UPDATE event_payloads SET {change[0]} = ?", change[1]),
            *[("DELETE FROM event_payloads WHERE id = ?", self.row())] * 2,
            ("DELETE FROM event_payloads WHERE agent_id = ?", self.agent()),
            *[("INSERT INTO payload_unpins(payload_id, actor, reason) VALUES(?, ?, ?)",
               self.row(), self.who(), self.why())] * 3,
            ("SELECT payload_unpin(?, ?, ?)", self.row(), self.who(), self.why()),
            ("INSERT INTO payload_unpins(payload_id, actor, reason) SELECT id, 'ann', 'all' "
             "FROM event_payloads WHERE agent_id = ?", self.agent()),
            ("UPDATE payload_unpins SET reason = ?", self.why()),
            ("DELETE FROM payload_unpins",),
            ("SELECT payload_cleanup(?)", self.of(1, 7, 30, 0)),
            ("SELECT payload_cleanup(?, ?, ?)", self.of(1, 7), self.time(), self.number()),
            ("SELECT payload_clear_archive()",),
            ("DELETE FROM event_payloads WHERE pinned = 0 AND unixepoch(created_at) * 1000 < ?",
             self.time()),
            *[("SELECT payload_queue(?, ?, ?, ?, ?)", *exchange, self.time())] * 3,
            ("SELECT payload_queue(?, ?, ?, ?)", *exchange),
            (f"{self.choice(CONFLICT)} INTO payload_queue(event_id, agent_id, request_body, "
             "response_body, timestamp) VALUES(?, ?, ?, ?, ?), (?1, ?2, ?3, 'second', ?6)",
             *exchange, self.time(), START + self.times),
            ("DELETE FROM payload_queue WHERE agent_id = ?", self.agent()),
            ("SELECT payload_flush()",),
            ("INSERT INTO event_payloads(kill_switch_event_id, event_id, agent_id, request_body, "
             "response_body, created_at, purpose) VALUES(?, ?, ?, ?, ?, ?, 'evidence')",
             self.switch(), *exchange, self.date()),
            ("SELECT payload_save_evidence(?, ?)", self.switch(), self.of(json.dumps([
                {"eventId": "e1", "agentId": "a", "requestBody": "q", "responseBody": {"x": 1},
                 "timestamp": START}, {"event_id": "e2", "agent_id": "b"}]), "[{}]", "{}")),
            # (What was unpacked, or is one of several as old, is packed in another order.)
            ("SELECT payload_pack(?)", self.of(1000)),
            ("SELECT store_sweep()",), ("DELETE FROM event_payloads WHERE id = ?", self.row()),
            ("SELECT request_body FROM payload_rows WHERE id = ?", self.row()),
            ("SELECT json_remove(payload_stats(), '$.unhashed', '$.totalSize', '$.expiredMore')",),
            ("SELECT created_ms FROM payload_rows WHERE agent_id = ? AND created_ms BETWEEN ? "
             "AND ? ORDER BY created_ms", self.agent(), START - 9 * DAY, START),
            ("SELECT created_ms FROM payload_rows WHERE event_id = ? ORDER BY created_ms DESC",
             self.event()),
            ("SELECT id, agent_id FROM payload_rows WHERE kill_switch_event_id = ?",
             self.switch()),
        ]

    def action(self, id):
        types = ["cdp_semantic", "dom_selector", "vision_ocr", "coordinates", "made_up"]
        return json.dumps({
            "id": id, "timestamp": START + self.randrange(1000),
            "eventType": self.choice(["click", "type", "navigate", "scroll", "strange"]),
            "value": self.choice(["v", "https://example.com/", "3,4", None]),
            "networkData": {"recentRequests": ["r" * self.randrange(300)]},
            "fallbackChain": {"strategies": [
                {"type": kind, "confidence": self.choice([0.5, 0.9, None, "high"]),
                 "selector": "#" + kind, "metadata": {"role": "button", "name": "é", "x": 1,
                                                      "y": 2, "targetText": "t", "more": [1]}}
                for kind in self.sample(types, self.randrange(4))]}}, default=repr)

    def evidence(self):
        id = self.of(*(f"r{i}" for i in range(12)), None)
        action = self.of(*[self.action(id or "made")] * 9, "[]", "{}", '{"id":"x","id":"y"}')
        shot = self.of(None, b"\x89PNG" * 50, bytes(self.randrange(1, 900)))
        insert = "INTO rec(id, timestamp, action, screenshot) VALUES(?, ?, ?, ?)"
        parameter = self.choice([
            ("max_size_bytes", self.of(3000, 9000)), ("prune_threshold", self.of(0.5, 0.9)),
            ("retention_policy", self.of("keep-all", "keep-last-n", "confidence-based")),
            ("overflow", "main"), ("colour", 1)])  # (max_screenshots goes with every policy now)
        return [
            *[(f"{self.choice(CONFLICT)} {insert}", id, self.time(), action, shot)] * 10,
            *[("INSERT INTO rec(action, screenshot) VALUES(?, ?)", action, shot)] * 2,
            (f"{self.choice(UPDATE)} rec SET action = ? WHERE id = ?", action, id),
            (f"{self.choice(UPDATE)} rec SET screenshot = ? WHERE id = ?", shot, id),
            ("UPDATE rec SET timestamp = ? WHERE id = ?", self.time(), id),
            *[("UPDATE rec SET pinned = ? WHERE id = ?", self.of(0, 0, 1), id)] * 2,
            ("UPDATE rec SET id = ? WHERE id = ?", self.of("r1", "r2"), id),
            ("DELETE FROM rec WHERE id = ?", id), ("DELETE FROM rec WHERE timestamp < ?", START),
            ("INSERT INTO rec(rec, value) VALUES(?, ?)", *parameter),
            ("SELECT evidence_prune_for_approval('rec', ?)", self.number()),
            ("SELECT evidence_prune_for_approval('rec')",), ("SELECT evidence_prune('rec')",),
            ("SELECT evidence_prune_screenshots('rec', ?)", self.number()),
            ("SELECT evidence_needs_pruning('rec')",), ("SELECT evidence_stats('rec')",),
            ("SELECT evidence_clear('rec')",), ("SELECT evidence_flush('rec')",),
            ("SELECT evidence_export('rec', ?, ?)", self.of(0, 0, 1, None), self.time()),
            ("SELECT evidence_export_puppeteer('rec')",), ("SELECT evidence_export_replay('rec')",),
            ("SELECT evidence_slim(?, ?)", action, self.of(0, 1)),
            ("SELECT id, timestamp, storage FROM rec WHERE timestamp >= ? ORDER BY timestamp, id",
             START),
            ("SELECT action, screenshot FROM rec WHERE id IN (?, 'r1', 'r2') ORDER BY id", id),
            ("DELETE FROM evidence_due WHERE at < ?", self.time()),
            ("UPDATE evidence_owners SET seen = ?", self.of(0, START)),
            (self.choice(["DROP TABLE rec", "ALTER TABLE rec RENAME TO film",
                          "ALTER TABLE film RENAME TO rec"]),),
            *[("CREATE VIRTUAL TABLE %srec USING evidence_buffer(%s)" % self.choice(
                [("", "max_size_bytes=6000"), ("", "colour=1"),
                 ("temp.", "overflow='main', max_size_bytes=6000")]),)] * 2,
        ]

    def item(self):
        # (A policy drops "odd". None drops an item of an imported conversation in the checkout.)
        kind = self.choice(["user", "user", "answer", "call", "result", "tokens", "begin", "back",
                            "compacted", "compacted" if self.imported else "odd"])
        payload = {
            "user": {"type": "user_message", "message": self.choice(["why?", "how?", "é"])},
            "answer": {"type": "message", "role": "assistant", "content": [
                {"type": "output_text", "text": "because"}]},
            "call": {"type": "function_call", "call_id": "c1", "name": "sh", "arguments": "{}"},
            "result": {"type": "function_call_output", "call_id": self.choice(["c1", "c2"]),
                       "output": "done"},
            "tokens": {"type": "token_count", "info": {"total_token_usage": {
                "input_tokens": self.randrange(900), "cached_input_tokens": 5,
                "output_tokens": self.randrange(50), "total_tokens": self.randrange(999)}}},
            "begin": {"type": "exec_command_begin"},
            "back": {"type": "thread_rolled_back", "num_turns": self.randrange(3)},
            "compacted": {"message": "short", "replacement_history": []},
            "odd": {"type": "never_seen"}}[kind]
        outer = {"answer": "response_item", "call": "response_item", "result": "response_item",
                 "compacted": "compacted"}.get(kind, "event_msg")
        return outer, json.dumps(payload)

    def items(self):
        parts = [self.item() for _ in range(self.randrange(1, 4))]
        return "[%s]" % ",".join('{"type":"%s","payload":%s}' % part for part in parts)

    def lines(self, id):
        """A file of Codex, or of Claude Code."""
        if self.random() < 0.5:
            meta = '{"timestamp":"2026-05-27T10:00:00Z","type":"session_meta","payload":' \
                   '{"id":"%s","timestamp":"2026-05-27T10:00:00Z","cwd":"/w"}}' % id
            return "\n".join([meta, *(
                '{"timestamp":"2026-05-27T10:00:0%dZ","type":"%s","payload":%s}' % (i, *self.item())
                for i in range(self.randrange(4))), self.choice(["", "", "damaged"])])
        return "".join(json.dumps({
            "type": kind, "sessionId": id, "uuid": f"{i}", "parentUuid": f"{i - 1}" if i else None,
            "timestamp": "2026-05-27T10:00:0%dZ" % i, "message": {
                "role": kind, "content": "text", "id": f"m{i}", "model": "a-model",
                "usage": {"input_tokens": 7, "output_tokens": i}}}) + "\n"
            for i, kind in enumerate(["user", "assistant", "user"][:self.randrange(1, 4)]))

    def conversations_written(self, id):
        """Statements that write conversations. (A new one that has expired takes others along in
        the oracle, and none in the checkout.)"""
        kind, payload = self.item()
        add = "INTO rollout_items(rollout, sequence, timestamp, type, payload) VALUES(?,?,?,?,?)"
        return [
            *[("SELECT rollout_create(?, ?, ?, ?, ?)", id, self.of(None, "be brief"),
               self.of(None, 30, "permanent"), None, None)] * 3,
            *[(f"{self.choice(CONFLICT)} INTO rollouts(id, created, expires_at, title, "
               "instructions) VALUES(?, ?, ?, ?, ?)", id, None,
               self.of(START + 400 * DAY, "permanent"), self.of(None, "title"),
               self.of(None, "be brief"))] * 3,
            *[("SELECT rollout_append(?, ?, ?)", id, self.of(self.items(), "[{}]"),
               self.time())] * 5,
            *[(f"{self.choice(CONFLICT)} INTO rollout_log(rollout_id, type, payload, timestamp) "
               "VALUES(?, ?, ?, ?)", id, kind, self.choice([payload] * 9 + ["{"]),
               self.time())] * 3,  # the oracle counts as dropped what is no text
            ("INSERT INTO rollout_log(rollout_id, type, payload) VALUES(?, ?, ?)", id, kind, payload),
            *[(f"{self.choice(CONFLICT)} {add}", id, self.of(None, None, 3, 5), self.time(),
               self.of(kind), self.of(payload))] * 2,
            ("INSERT INTO rollout_items(rollout, type, payload) SELECT rollout, type, payload "
             "FROM rollout_items WHERE rollout = ? AND sequence > 0", id),
            ("UPDATE rollout_items SET payload = ? WHERE rollout = ? AND sequence = ?",
             self.of(payload, '{"type":"user_message","message":"x"}'), id, self.number()),
            ("DELETE FROM rollout_items WHERE rollout = ?", id),
            (f"{self.choice(UPDATE)} rollouts SET status = ?, title = ? WHERE id = ?",
             self.of("active", "archived"), self.of("new title", None), id),
            ("UPDATE rollouts SET expires_at = ? WHERE id = ?", self.of(self.later(), START), id),
            ("UPDATE rollouts SET turns = 7 WHERE id = ?", id),
            ("DELETE FROM rollouts WHERE id = ?", id),
            ("SELECT rollout_delete(?)", id), ("SELECT rollout_archive(?)", id),
            ("SELECT rollout_fork(?, ?, ?, ?)", id, self.of(None, 0, 1), self.conversation(),
             self.time()),
            ("SELECT rollout_shutdown(?)", id), ("SELECT rollout_resume(?, ?)", id, self.time()),
            ("SELECT rollout_cleanup_expired(?, ?)", self.time(), self.number()),
            *[("SELECT rollout_import(?)", self.lines(self.choice(UUIDS + ["not a uuid"])))] * 4,
            ("SELECT rollout_import(?, ?, ?)", self.lines(str(id)), id, self.time()),
            ("SELECT rollout_rebuild(?)", id),
            (f"{self.choice(CONFLICT)} INTO rollout_policy(preset, item_type, payload_type, keep) "
             "VALUES('mine', ?, ?, ?)", self.of("*", kind), self.of("*", "token_count"),
             self.of(0, 1)),
            ("DELETE FROM rollout_policy WHERE preset = 'mine'",),
            ("SELECT rollout_load_prices(?, 'list', '2026-05-01')",
             self.of('{"a-model":{"input":5,"output":%d}}' % self.randrange(30))),
        ]

    def conversations_read(self, id):
        """Statements that read them."""
        return [
            ("SELECT * FROM rollout_list(?, NULL, ?)", self.of(1, 10, 0), self.time()),
            ("SELECT rollout_page(?, NULL, ?)", self.of(1, 10), self.time()),
            ("SELECT rollout_history(?, ?)", id, self.time()),
            ("SELECT * FROM rollout_range(?, ?, ?, ?)", id, self.of(-1, 1, 9), self.number(),
             self.of("forward", "backward")),
            ("SELECT * FROM rollout_context(?, ?)", id, self.of("with", "without")),
            ("SELECT * FROM rollout_orphans(?)", id), ("SELECT * FROM rollout_tree(?)", id),
            ("SELECT rollout_export(?)", id), ("SELECT line FROM rollout_export(?)", id),
            ("SELECT * FROM rollout_dropped(?)", id),
            ("SELECT sequence, type, payload FROM rollout_items WHERE rollout = ? "
             "ORDER BY sequence", id),
            ("SELECT rollout, sequence FROM rollout_items WHERE instr(payload, ?) LIMIT 9 * ?",
             self.of("because", "why"), self.of(1, 50)),
            *[("SELECT rollout_search_install()",)] * 2, ("SELECT rollout_search_remove()",),
        ]

    def rollout(self):
        id = self.conversation()
        written = self.random() < 0.7
        return self.conversations_written(id) if written else self.conversations_read(id)

    def cache(self):
        key = (self.session(), self.part(), self.part())
        data = self.of("[1]", '{"a":"é"}', '"%s"' % ("d" * self.randrange(900)), "1")
        more = self.of(None, '{"kind":"tool_result"}', '{"a":1}')
        expires = self.of(None, None, START + 400 * DAY)  # what has expired goes at other times
        full = "_".join(map(str, key))
        insert = ("INTO cache_items(session_id, task_id, turn_id, timestamp, description, data, "
                  "custom_metadata, expires_at) VALUES(?, ?, ?, ?, ?, ?, ?, ?)")
        item = (*key, self.time(), self.of("what it is", "d" * 400), data, more, expires)
        # (expires_at and limits of descriptions: the checkout refuses more of held and long ones)
        change = self.choice([("data", data), ("description", "other"), ("custom_metadata", more),
                              ("session_id", self.session())])
        return [
            *[("SELECT cache_write(?, ?, ?, ?, ?, ?, ?, ?)", *key, data,
               self.of("what it is", "d" * 400), more, self.time(), expires)] * 5,
            *[(f"{self.choice(CONFLICT)} {insert}", *item)] * 6,
            (f"INSERT {insert} ON CONFLICT(storage_key) DO UPDATE SET data = excluded.data", *item),
            (f"INSERT {insert} ON CONFLICT DO NOTHING", *item),
            *[(f"{self.choice(UPDATE)} cache_items SET {change[0]} = ? WHERE storage_key = ?",
               change[1], full)] * 2,
            (f"{self.choice(UPDATE)} cache_items SET {change[0]} = ?", change[1]),
            ("DELETE FROM cache_items WHERE storage_key = ?", full),
            ("DELETE FROM cache_items WHERE timestamp < ?", START),
            ("DELETE FROM cache_sessions WHERE session_id = ?", key[0]),
            ("UPDATE cache_sessions SET last_accessed_at = ? WHERE session_id = ?", self.time(),
             key[0]),
            (f"{self.choice(CONFLICT)} INTO cache_sessions(session_id, created_at) VALUES(?, ?)",
             self.choice(SESSIONS), self.time()),  # one without items may have any id
            *[("SELECT cache_read(?, ?, ?)", full, self.of(None, key[0]), self.time())] * 2,
            ("SELECT cache_update(?, ?, ?, ?)", full, data, "new", more),
            ("SELECT cache_delete(?)", full), ("SELECT * FROM cache_list(?)", key[0]),
            ("SELECT cache_stats(?, ?)", self.of(None, key[0]), self.time()),
            ("SELECT cache_quota_check(?, ?, ?)", key[0], self.of(10, 900), self.of(None, full)),
            ("SELECT cache_clear_session(?)", key[0]),
            ("SELECT cache_cleanup_orphans(?, ?, ?)", self.of(None, 60000), self.time(),
             self.choice([1, 3, 100])),  # the oracle loses marks if the limit is refused
            ("SELECT cache_cleanup_outdated(?, ?, ?)", self.of(None, 0.5, 1), self.time(),
             self.choice([1, 3, 100])),
            ("SELECT cache_use_preset(?)", self.of("keep", "recycle")),
        ]

    def retention(self):
        kind, key = self.choice([
            ("agent", self.agent()), ("event", self.event()), ("kill_switch", "k1"),
            ("evidence", self.row()), ("rollout", self.conversation()), ("session", self.session()),
            ("buffer", "rec"), ("kind", "x")])
        if self.capped and kind in ("agent", "event", "kill_switch", "evidence"):
            kind, key = "rollout", self.conversation()
        if not isinstance(key, str) or "\0" in key:
            key = "k"  # the checkout refuses what is no text, or has a NUL, which the oracle took
        hold = (kind, key, self.said("case-1", "case-2"), self.who(), self.why())
        arguments = json.dumps([self.of(1, 10, 1000)], default=repr)
        return [
            *[("SELECT retention_hold(?, ?, ?, ?, ?, ?)", *hold, self.later())] * 2,
            *[("SELECT retention_release(?, ?, ?, ?, ?)", *hold)] * 3,
            # (The oracle refuses a hold by plain SQL on what has no guards yet.)
            (f"{self.choice(CONFLICT)} INTO retention_holds(kind, key, owner, actor, reason, until)"
             " VALUES(?, ?, ?, ?, ?, ?)", *self.choice([("rollout", self.choice(UUIDS)),
                                                        ("session", self.choice(SESSIONS))]),
             *hold[2:], self.later()),
            ("UPDATE retention_holds SET released = 1, actor = ?, reason = ? WHERE owner = ?",
             self.who(), self.why(), "case-1"),
            ("UPDATE retention_holds SET until = ? WHERE kind = ?", self.later(), kind),
            ("DELETE FROM retention_holds",), ("DELETE FROM retention_hold_log",),
            (f"SELECT json_remove(blackbox_erase(?, ?, ?, ?, ?), {NUMBERS})", kind, key, self.who(),
             self.why(), self.of(None, '{"unpin":true}')),
            ("SELECT json_remove(blackbox_erase('text', ?, 'ann', 'asked', '{\"unpin\":true}'), "
             f"{NUMBERS})", self.of("hello", "because", "closed")),
            *[("SELECT retention_sweep(?)", self.of(1, 10, 1000))] * 2,
            ("SELECT retention_sweep(?, ?)", self.number(), START + 70 * DAY),
            ("SELECT rule, key, bytes, at, blocked_by FROM retention_plan(?)", START + 40 * DAY),
            ("SELECT part, rows, bytes, due_rows, due_bytes FROM retention_report "
             "WHERE now = ? AND part NOT IN ('file', 'free', 'wal')", START + 40 * DAY),
            ("SELECT retention_confirm_clock()",),
            ("INSERT INTO blackbox_call(command, arguments) VALUES(?, ?)", self.of(
                "retention_sweep", "payload_cleanup", "rollout_cleanup_expired"), arguments),
            (f"{self.choice(CONFLICT)} INTO retention_rules(rule, \"table\", key, time, age_ms) "
             "VALUES('mine', ?, 'id', 'at', ?)", self.of("notes", "ring"), self.of(DAY, 1)),
            ("INSERT INTO notes(at, body) VALUES(?, 'n')", self.time()),
            ("DELETE FROM retention_log",),
        ]

    def across(self):
        """What is built on the other domains: holds, erasure, proofs, reports."""
        kind, key = self.choice([("kill_switch", "k1"), ("agent", "a"), ("evidence", "rec"),
                                 ("rollout", UUIDS[0]), ("session", SESSIONS[0])])
        report = "blackbox_report(?, ?, '{\"format\":\"json\"}')"
        return self.choice([self.retention, self.all_domains, self.all_domains, lambda: [
            (f"SELECT json_remove({report}, '$.module', '$.proof', '$.pins', '$.items')", kind, key),
            (f"SELECT json_remove(value, '$.leaf') FROM json_each({report}, '$.items')", kind, key),
            ("SELECT proof_head() IS NULL",),
            ("SELECT count(*) FROM proof_verify WHERE leaf IS NOT NULL",),
        ]])()

