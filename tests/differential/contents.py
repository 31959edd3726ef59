"""What users see of a database: every table and view that docs/ name, with the columns that they
name. The order of rows is not compared, as none of these promises one."""

# What other programs read and write. A ring is named ring, a buffer rec.
TABLES = {
    "blackbox_limits": "name, value",
    "retention_log": "at, domain, rule, actor, rows, bytes, oldest, newest",
    "event_payloads": "id, event_id, agent_id, size_bytes, purpose, "
                      "pinned, kill_switch_event_id, created_at",
    "payload_rows": "id, request_body, response_body, created_ms",
    "payload_pins": "id",
    "payload_unpins": "payload_id, actor, reason, at, event_id",
    "payload_waiting": "*",
    "payload_queue": "event_id, agent_id, request_body, response_body, timestamp",
    "payload_verdicts": "ring, agent_id, rule, level, count, threshold, tool, turn, seqs, tokens, "
                        "sentence, action, kill_switch_event_id, at",
    "payload_agents": "agent_id, on_loop, stopped_at, stopped_by",
    "payload_agent_log": "agent_id, act, actor, reason, at",
    "payload_allows": "agent_id, rule, tool, until, actor, reason",
    "ring": "agent_id, event_id, request_body, response_body, timestamp, size_bytes, seq",
    "ring_agents": "agent_id, given, rolled, cleared, saved, rows, bytes",
    "rec": "id, timestamp, action, screenshot, size_bytes, pruned, pinned, storage",
    "rec_log": "at, rule, rows, screenshots, bytes, oldest, newest",
    "evidence_stats": "*",
    "evidence_owners": "buffer, seen, rows, bytes",
    "evidence_due": "bytes, at, blocked_by",
    "rollouts": "id, created, updated, expires_at, status, item_count, last_sequence, "
                "has_user_event, turns, bytes, title, source, cwd, originator, cli_version, "
                "model_provider, forked_from, first_user_message, format, source_id, parent, "
                "agent, model, branch, session_meta",
    "rollout_items": "rollout, sequence, timestamp, type, payload",
    "rollout_drops": "item_type, payload_type, items, bytes",
    "rollout_facts": "fact, source, value",
    "rollout_usage": "rollout, sequence, model, input_fresh, cache_write, cache_read, output, "
                     "reasoning, source, timestamp, call, cost, cost_source",
    "rollout_usage_days": "day, model, calls, input_fresh, cache_write, cache_read, output, "
                          "reasoning, cost, cost_source",
    "rollout_usage_sums": "subagents, model, calls, input_fresh, cache_write, cache_read, output, "
                          "reasoning, cost, cost_source",
    "cache_items": "storage_key, session_id, task_id, turn_id, timestamp, data_size, protected, "
                   "expires_at, description, custom_metadata, data",
    "cache_sessions": "session_id, total_size, item_count, created_at, last_accessed_at",
    "retention_holds": "kind, key, owner, until, actor, reason, at, released, found",
    "retention_hold_log": "at, kind, key, owner, act, until, actor, reason, found",
    "retention_refusals": "domain, rule, message",
    "retention_erasures": "at, kind, actor, reason, rows, bytes, held_back, until",
    "retention_plan": "*",
    "proof_verify": "leaf, kind, problem",
    "store_stats": "texts, text_bytes, dropped, dropped_bytes",
}

# Rows that an install writes, and that users add to. They seldom change.
LISTS = {
    "blackbox_domains": "domain",
    "blackbox_limits": "name, value, \"default\", range, meaning",
    "payload_rules": "rule, enabled, level, threshold, span, pause_ms, meaning",
    "report_masks": "name, profile",
    "retention_rules": "rule, domain, \"table\", \"key\", \"time\", format, age_ms",
    "rollout_attributes": "format, attribute, name",
    "rollout_formats": "format, kind, rank",
    "rollout_lines": "*",
    "rollout_messages": "format, type, conditions, role",
    "rollout_policy": "preset, item_type, payload_type, keep",
    "rollout_preambles": "prefix",
    "rollout_readings": "format, fact, type, conditions, place",
    "rollout_usage_formats": "format, type, conditions",
}


def compare(pair, tables=TABLES):
    """Compares what these tables show."""
    for table, columns in tables.items():
        where = " WHERE leaf IS NOT NULL" if table == "proof_verify" else ""  # what waits differs
        pair.run(f"SELECT {columns} FROM {table}{where}", ordered=False)


def check(pair):
    """Compares everything, and what blackbox_check finds, which takes longer."""
    compare(pair)
    pair.run("SELECT * FROM blackbox_check", ordered=False)
