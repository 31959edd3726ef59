-- report.sql: the queries of reports. A part begins with "--: KIND.PART: TITLE", and
-- "--+ PART" stands for another part. ?1 is the key, ?2 the most items, ?3 the kind.
-- Facts and columns of tables are named by their type and their name; what stands after
-- the columns of a table is a link: the kind of another report, and its key.

-- How an exchange failed, by its meta; NULL: it did not.
--: failed
CASE WHEN NOT coalesce(json_valid(meta), 0) THEN NULL
 WHEN CAST(meta ->> '$.status' AS INTEGER) >= 400 THEN 'HTTP ' || CAST(meta ->> '$.status' AS INTEGER)
  || coalesce(': ' || nullif(meta ->> '$.error', ''), '')
 WHEN meta ->> '$.error' NOT IN ('', 0, '[]', '{}') THEN 'error: ' || (meta ->> '$.error') END
--: meta
,
--+ failed
, CASE WHEN json_valid(meta) THEN meta ->> '$.duration_ms' END
--: hold
SELECT at AS 'time:Time', 'hold: ' || kind || ' ' || "key" AS 'text:What',
 owner || ' (' || actor || ')' AS 'text:Actor', reason AS 'text:Reason',
 coalesce('held until ' || strftime('%Y-%m-%d', until / 1000, 'unixepoch'), 'held') AS 'text:Status'
 FROM main.retention_holds
--: holds: Pins and holds
--+ hold
 WHERE ?3 = 'database' OR (kind = iif(?3 = 'evidence', 'buffer', ?3) AND "key" = iif(?3 = 'rollout', lower(?1), ?1))
 ORDER BY at
--: receipts: What was removed
SELECT at AS 'time:When', rule AS 'text:Rule', actor AS 'text:Actor', rows AS 'count:Rows', bytes AS 'bytes:Bytes',
 oldest AS 'time:Oldest', newest AS 'time:Newest' FROM main.retention_log
 WHERE domain = iif(?3 = 'session', 'cache', 'payload') ORDER BY at DESC, id DESC
--: verdict
SELECT rule AS 'text:rule', level AS 'text:level', count AS 'count:count', threshold AS 'count:threshold',
 tool AS 'text:tool', turn AS 'count:turn', sentence AS 'text:reason', action AS 'text:action'
 FROM main.payload_verdicts WHERE id = ?1
-- A verdict names items by their numbers in the ring, which evidence has no more: payload_backtest() finds the same
-- loop in the evidence, and numbers its rows from 1.
--: verdict.items
WITH v AS (SELECT rule, agent_id, kill_switch_event_id AS k,
  iif(CASE WHEN json_valid(seqs) THEN 1 ELSE json_valid(seqs || ' ') END, seqs, '[]') AS seqs
  FROM main.payload_verdicts WHERE id = ?1),
 e AS (SELECT e.id, row_number() OVER (ORDER BY e.created_ms, e.rowid) AS n FROM v JOIN main.event_payloads AS e
  ON e.kill_switch_event_id = v.k AND e.agent_id = v.agent_id)
SELECT e.id FROM v JOIN payload_backtest(v.k) AS r ON r.rule = v.rule AND r.agent_id = v.agent_id
 JOIN json_each(r.seqs) AS j JOIN e ON e.n = j.value WHERE v.k IS NOT NULL
UNION ALL SELECT j.value FROM v, json_each(v.seqs) AS j WHERE v.k IS NULL
--: found
SELECT at AS 'time:When', rule AS 'text:Rule', level AS 'text:Level', count AS 'count:Count',
 threshold AS 'count:Threshold', action AS 'text:What was done', sentence AS 'text:What was found'
 FROM main.payload_verdicts
--: archive.bodies
SELECT request_body AS request, response_body AS response FROM main.payload_rows WHERE id = ?1

--: kill_switch.exists
SELECT EXISTS (SELECT 1 FROM main.event_payloads WHERE kill_switch_event_id = ?1)
 OR EXISTS (SELECT 1 FROM main.blackbox__log WHERE kill_switch_event_id = ?1)
--: kill_switch.facts
SELECT group_concat(DISTINCT e.agent_id) AS 'text:Agent', ?1 AS 'id:Kill switch', count(*) AS 'count:Exchanges',
 min(e.created_ms) AS 'time:First', max(e.created_ms) AS 'time:Last',
 max(e.created_ms) - min(e.created_ms) AS 'duration:From first to last', sum(e.size_bytes) AS 'bytes:Size',
 sum(e.pinned) AS 'count:Pinned' FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1
--: kill_switch.stop
WITH stops AS (SELECT subject AS agent, at, actor, coalesce(
   (SELECT went_on FROM main.payload_agents WHERE agent_id = subject AND kill_switch_event_id = ?1),
   (SELECT s.detail ->> '$.went_on' FROM main.blackbox__log AS s
     WHERE s.subject = l.subject AND s.kind = 'start' AND s.n > l.n ORDER BY s.n LIMIT 1)) AS more
  FROM main.blackbox__log AS l WHERE kill_switch_event_id = ?1 AND kind = 'stop'
 UNION ALL SELECT agent_id, stopped_at, stopped_by, went_on FROM main.payload_agents
  WHERE stopped_at IS NOT NULL AND kill_switch_event_id IS NULL
   AND agent_id IN (SELECT agent_id FROM main.event_payloads WHERE kill_switch_event_id = ?1))
SELECT at AS 'time:Agent stopped', actor AS 'text:Stopped by',
 'stopped at ' || strftime('%H:%M:%S', at / 1000, 'unixepoch') || '; went on: ' || coalesce(more, 0)
  || iif(more = 1, ' call after', ' calls after') AS 'text:Stop' FROM stops
--: kill_switch.items
SELECT e.id, e.event_id, e.created_ms, e.size_bytes, iif(e.pinned, NULL, 'unpinned'), NULL, NULL, NULL, NULL
--+ meta
 FROM main.event_payloads AS e WHERE e.kill_switch_event_id = ?1 ORDER BY e.created_ms DESC, e.rowid DESC
--: kill_switch.verdict
SELECT id FROM main.payload_verdicts WHERE kill_switch_event_id = ?1 ORDER BY level <> 'stop', id LIMIT 1
--: kill_switch.pins: Pins and holds
SELECT at AS 'time:Time', what AS 'text:What', actor AS 'text:Actor', reason AS 'text:Reason',
 status AS 'text:Status', link FROM (
 SELECT n, at, 'kill switch: ' || rows || ' exchanges pinned' AS what, coalesce(actor, 'a caller') AS actor, reason,
  (SELECT sum(pinned) || ' pinned now' FROM main.event_payloads WHERE kill_switch_event_id = ?1) AS status, NULL AS link
  FROM main.blackbox__log WHERE subject = ?1 AND kind = 'kill_switch'
 UNION ALL SELECT 9e18, at, 'unpinned: event ' || coalesce(event_id, payload_id), actor, reason, 'unpinned', NULL
  FROM main.payload_unpins WHERE kill_switch_event_id = ?1
 UNION ALL SELECT n, at, 'agent: ' || kind, actor, reason, NULL, 'agent:' || subject FROM main.blackbox__log
  WHERE kind IN ('stop', 'start')
   AND subject IN (SELECT agent_id FROM main.event_payloads WHERE kill_switch_event_id = ?1))
 ORDER BY at, n
--: kill_switch.holds: Pins and holds
--+ hold
 WHERE (kind, "key") IN (SELECT 'kill_switch', ?1
  UNION SELECT 'agent', agent_id FROM main.event_payloads WHERE kill_switch_event_id = ?1
  UNION SELECT 'event', event_id FROM main.event_payloads WHERE kill_switch_event_id = ?1
  UNION SELECT 'evidence', id FROM main.event_payloads WHERE kill_switch_event_id = ?1) ORDER BY at
--: kill_switch.verdicts: What the rules found
--+ found
 WHERE kill_switch_event_id = ?1
 OR agent_id IN (SELECT agent_id FROM main.event_payloads WHERE kill_switch_event_id = ?1) ORDER BY id DESC

--: agent.facts
SELECT ?1 AS 'id:Agent', count(*) AS 'count:In the archive', min(e.created_ms) AS 'time:First in the archive',
 max(e.created_ms) AS 'time:Last in the archive' FROM main.event_payloads AS e WHERE e.agent_id = ?1
--: agent.stop
SELECT stopped_at AS 'time:Stopped', stopped_by AS 'text:Stopped by', nullif(went_on, 0) AS 'count:Calls after the stop'
 FROM main.payload_agents WHERE agent_id = ?1
-- Only the rows that are shown are read; the others are counted in an index.
--: agent.items
SELECT x.id, x.event_id, e.at, x.size_bytes, x.purpose || iif(x.pinned, ', pinned', ''), NULL, NULL, NULL, NULL
--+ meta
 FROM (SELECT e.rowid AS rid, e.created_ms AS at FROM main.event_payloads AS e WHERE e.agent_id = ?1
  ORDER BY e.created_ms DESC, e.rowid DESC LIMIT ?2) AS e
 CROSS JOIN main.event_payloads AS x ON x.rowid = e.rid ORDER BY e.at DESC, e.rid DESC
--: agent.more
SELECT max(count(*) - ?2, 0) FROM main.event_payloads WHERE agent_id = ?1
--: agent.rings: Rings
SELECT '@' AS 'text:Ring', given AS 'count:Given', rolled AS 'count:Rolled out', cleared AS 'count:Cleared',
 saved AS 'count:Saved', rows AS 'count:Rows', bytes AS 'bytes:Bytes' FROM main.@_agents WHERE agent_id = ?1
--: ring.bodies
SELECT request_body AS request, response_body AS response FROM main.@
 WHERE agent_id = ?2 AND seq = CAST(?1 AS INTEGER)
--: ring.items
SELECT seq, event_id, timestamp, size_bytes, 'in the ring ' || '@', NULL, NULL, NULL, NULL
--+ meta
 FROM main.@ WHERE agent_id = ?1 ORDER BY seq DESC
--: agent.verdict
SELECT id FROM main.payload_verdicts WHERE agent_id = ?1 ORDER BY id DESC LIMIT 1
--: agent.pins: Pins and holds
SELECT NULL AS 'time:Time', count(*) || ' pinned exchanges' AS 'text:What', NULL AS 'text:Actor',
 NULL AS 'text:Reason', 'pinned' AS 'text:Status', NULL
 FROM main.event_payloads WHERE agent_id = ?1 AND pinned = 1 GROUP BY agent_id
UNION ALL SELECT at, 'unpinned: event ' || coalesce(event_id, payload_id), actor, reason, 'unpinned', NULL
 FROM main.payload_unpins WHERE agent_id = ?1
UNION ALL SELECT at, 'agent: ' || kind, actor, reason, NULL, 'kill_switch:' || kill_switch_event_id
 FROM main.blackbox__log WHERE subject = ?1 AND kind IN ('stop', 'start') ORDER BY 1
--: agent.verdicts: What the rules found
--+ found
 WHERE agent_id = ?1 ORDER BY id DESC

--: rollout.facts
SELECT coalesce(title, first_user_message) AS 'text:Asked first', id AS 'id:Id', status AS 'text:Status',
 created AS 'time:Created', updated AS 'time:Updated', expires_at AS 'time:Expires', source AS 'text:Source',
 cwd AS 'text:Folder', branch AS 'text:Branch', model AS 'text:Model', cli_version AS 'text:Version',
 format AS 'text:Format', source_id AS 'id:Id in the file', parent AS 'id:Conversation of the caller',
 agent AS 'text:Sub-agent', forked_from AS 'id:Forked from', item_count AS 'count:Items', turns AS 'count:Turns',
 (SELECT nullif(h.last_sequence + 1 - h.behind, 0) FROM main.rollout__heads AS h
  WHERE h.id = rollouts.id) AS 'count:Items without turns and usage yet',
 bytes AS 'bytes:Size', updated - created AS 'duration:Time between' FROM main.rollouts WHERE id = lower(?1)
--: rollout.bodies
SELECT d.payload AS payload FROM main.rollout__heads AS h JOIN main.rollout__segments AS s ON s.rollout = h.no
  AND CAST(?1 AS INTEGER) BETWEEN s.first AND s.last
 JOIN main.rollout__items AS d ON d.id = (s.owner << 32) + CAST(?1 AS INTEGER) WHERE h.id = lower(?2)
--: rollout.items
WITH h AS (SELECT no FROM main.rollout__heads WHERE id = lower(?1)),
 d AS (SELECT d.id AS key, d.id & 4294967295 AS sequence, d.timestamp, d.type, d.payload, s.owner,
  s.owner = h.no AND s.first > 0 AND s.first = d.id & 4294967295 AS forked
  FROM h JOIN main.rollout__segments AS s ON s.rollout = h.no CROSS JOIN main.rollout__items AS d
   ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last)
SELECT d.sequence, d.sequence, d.timestamp, length(CAST(d.payload AS BLOB)), NULL,
 CASE WHEN m.kind <> 'turn' THEN m.kind WHEN d.forked THEN 'fork'
  WHEN lower(d.type) = 'compacted' THEN 'compaction'
  WHEN instr(d.payload, 'compact_boundary') > 0 AND instr(d.payload, 'compact_boundary') < 400 THEN 'compaction'
  WHEN d.payload GLOB '{"type":"error"*' THEN 'error' END,
 count(iif(m.kind = 'turn', 1, NULL)) OVER (ORDER BY d.sequence), NULL, d.type
 FROM d LEFT JOIN main.rollout__marks AS m ON m.id = d.key ORDER BY d.sequence DESC
--: rollout.sums
SELECT sum(input_fresh), sum(cache_read), sum(cache_write), sum(output), sum(reasoning), sum(cost),
 max(cost_source = 'computed'), max(output_source) IS NOT NULL FROM main.rollout_usage WHERE rollout = lower(?1)
--: rollout.calls
SELECT sequence, model, input_fresh + cache_write + cache_read, output FROM main.rollout_usage WHERE rollout = lower(?1)
--: rollout.usage: Tokens by model
SELECT model AS 'text:Model', count(*) AS 'count:Calls', sum(input_fresh) AS 'count:Input',
 sum(cache_write) AS 'count:Cache write', sum(cache_read) AS 'count:Cache read', sum(output) AS 'count:Output',
 sum(reasoning) AS 'count:Reasoning', sum(cost) AS 'money:Cost' FROM main.rollout_usage WHERE rollout = lower(?1)
 GROUP BY model ORDER BY 2 DESC
--: rollout.related: Forks and sub-agents
SELECT 'fork' AS 'text:What', id AS 'id:Id', created AS 'time:Created', item_count AS 'count:Items',
 title AS 'text:Title', 'rollout:' || id FROM main.rollouts WHERE forked_from = lower(?1)
UNION ALL SELECT 'sub-agent', id, created, item_count, title, 'rollout:' || id
 FROM main.rollouts WHERE parent = lower(?1)
UNION ALL SELECT iif(p.id = r.parent, 'caller', 'forked from'), p.id, p.created, p.item_count, p.title,
  'rollout:' || p.id FROM main.rollouts AS r JOIN main.rollouts AS p ON p.id IN (r.parent, r.forked_from)
 WHERE r.id = lower(?1) ORDER BY 3
--: rollout.dropped: What the policy did not keep
SELECT d.item_type AS 'text:Type', d.payload_type AS 'text:Type of the payload', d.items AS 'count:Items',
 d.bytes AS 'bytes:Bytes' FROM main.rollout_drops AS d JOIN main.rollout__heads AS h ON h.no = d.no
 WHERE h.id = lower(?1) ORDER BY 3 DESC
--: rollout.receipts: What was removed
SELECT at AS 'time:When', rule AS 'text:Rule', actor AS 'text:Actor', rows AS 'count:Rows', bytes AS 'bytes:Bytes'
 FROM main.retention_log WHERE domain = 'rollout' ORDER BY at DESC, id DESC

--: evidence.facts
SELECT '@' AS 'id:Buffer', s.actions AS 'count:Actions', s.screenshots AS 'count:Screenshots', s.bytes AS 'bytes:Size',
 s.pinned_bytes AS 'bytes:Pinned', s.max_size_bytes AS 'bytes:Largest size',
 s.retention_policy AS 'text:What a prune removes first', s.removed AS 'count:Actions that were removed',
 (SELECT min(timestamp) FROM main.@) AS 'time:First', (SELECT max(timestamp) FROM main.@) AS 'time:Last'
 FROM main.@_state AS s
--: evidence.bodies
SELECT action, screenshot FROM main.@ WHERE id = ?1
--: evidence.items
SELECT id, id, timestamp, size_bytes, nullif(trim(iif(pinned, 'pinned ', '') || iif(pruned, 'approved', '')
 || iif(storage = 'disk', '', ' in ' || storage)), ''), NULL, NULL, NULL, NULL
 FROM main.@ ORDER BY timestamp DESC, rowid DESC
--: evidence.receipts: What was removed
SELECT at AS 'time:When', rule AS 'text:Rule', rows AS 'count:Rows', screenshots AS 'count:Screenshots',
 bytes AS 'bytes:Bytes', oldest AS 'time:Oldest', newest AS 'time:Newest' FROM main.@_log ORDER BY id DESC

--: session.exists
SELECT 1 FROM main.cache_sessions WHERE session_id = ?1
--: session.facts
SELECT s.session_id AS 'id:Session', s.item_count AS 'count:Results', s.total_size AS 'bytes:Size',
 iif(min(l.session_quota, l.total_quota) < 1125899906842624,
  min(l.session_quota - s.total_size, l.total_quota - q.bytes), NULL) AS 'bytes:Left of the quota',
 s.created_at AS 'time:Created', s.last_accessed_at AS 'time:Last used'
 FROM main.cache_sessions AS s LEFT JOIN main.cache_state AS q LEFT JOIN main.cache__limits AS l WHERE s.session_id = ?1
--: session.bodies
SELECT data AS output, custom_metadata AS metadata FROM main.cache_items WHERE storage_key = ?1
--: session.items
SELECT storage_key, storage_key, timestamp, data_size, iif(protected, 'protected', NULL), NULL, NULL, description, NULL
 FROM main.cache_items WHERE session_id = ?1 ORDER BY timestamp DESC, id DESC

-- Agents that are stopped, and those that a rule has found within a day before now and that nobody has started again
-- since.
--: database.wrong: What is wrong
SELECT agent_id AS 'text:What', at AS 'time:When', said AS 'text:Problem', link FROM (
 SELECT s.agent_id, s.stopped_at AS at, 'is stopped: ' || coalesce(
   (SELECT v.sentence FROM main.payload_verdicts AS v WHERE v.agent_id = s.agent_id
     AND v.kill_switch_event_id = s.kill_switch_event_id ORDER BY v.id DESC LIMIT 1),
   'by ' || s.stopped_by, 'by a program') AS said,
  coalesce('kill_switch:' || s.kill_switch_event_id, 'agent:' || s.agent_id) AS link
  FROM main.payload_agents AS s WHERE s.stopped_at IS NOT NULL
 UNION ALL SELECT s.agent_id, s.at, 'was found by a rule: ' || s.sentence, 'agent:' || s.agent_id
  FROM main.payload_verdicts AS s WHERE s.id IN (SELECT max(id) FROM main.payload_verdicts GROUP BY agent_id)
   AND s.at > unixepoch() * 1000 - 86400000
   AND NOT EXISTS (SELECT 1 FROM main.payload_agents AS a WHERE a.agent_id = s.agent_id AND a.stopped_at IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM main.blackbox__log AS l
    WHERE l.subject = s.agent_id AND l.kind = 'start' AND l.at >= s.at))
 ORDER BY at DESC
-- What is to come is no problem.
--: database.check
SELECT object, NULL, problem FROM blackbox_check(?1) WHERE problem NOT GLOB 'row *: has no leaf yet;*'
-- Of an agent that went on after a stop an exchange is in both.
--: database.both
EXISTS (SELECT 1 FROM main.event_payloads AS p WHERE p.event_id = r.event_id AND p.agent_id = r.agent_id)
--: database.archived
WITH e AS (SELECT agent_id, count(*) AS n, sum(size_bytes) AS bytes, max(created_ms) AS last
 FROM main.event_payloads GROUP BY agent_id
--: database.in_ring
UNION ALL SELECT a.agent_id, a.rows - coalesce(d.n, 0), a.bytes - coalesce(d.bytes, 0),
  (SELECT timestamp FROM main.@ WHERE agent_id = a.agent_id AND seq = a.given)
 FROM main.@_agents AS a LEFT JOIN (SELECT r.agent_id, count(*) AS n, sum(r.size_bytes) AS bytes
   FROM (SELECT DISTINCT agent_id FROM main.event_payloads WHERE kill_switch_event_id IS NOT NULL) AS k
   CROSS JOIN main.@ AS r ON r.agent_id = k.agent_id WHERE
--+ database.both
   GROUP BY r.agent_id) AS d ON d.agent_id = a.agent_id WHERE a.rows > 0
--: database.agents: Agents
) SELECT e.agent_id AS 'text:Agent', sum(e.n) AS 'count:Exchanges', NULL AS 'count:Errors', NULL AS 'count:Tokens',
 NULL AS 'money:Cost', sum(e.bytes) AS 'bytes:Bytes', coalesce(l.stops, 0) AS 'count:Stops', max(e.last) AS 'time:Last',
 s.stopped_at AS 'time:Stopped', 'agent:' || e.agent_id
 FROM e LEFT JOIN main.payload_agents AS s ON s.agent_id = e.agent_id
 LEFT JOIN (SELECT subject, count(*) AS stops FROM main.blackbox__log WHERE kind = 'stop' GROUP BY subject) AS l
  ON l.subject = e.agent_id GROUP BY e.agent_id ORDER BY 8 DESC, 1
-- The newest exchanges of agent ?1, at most ?2: how many, how many failed, their tokens and their cost, when the newest
-- one was, and how it failed.
--: database.sums
SELECT count(*), count(failed), CAST(total(prompt + output) AS INTEGER), sum(
--+ price
 ), max(at), failed FROM (SELECT *,
--+ model
 FROM (SELECT e.at, e.failed, u.model, e.at / 86400000 AS day, coalesce(u.input, 0) AS input_fresh,
  coalesce(u.cache_write, 0) AS cache_write, coalesce(u.cache_read, 0) AS cache_read, coalesce(u.output, 0) AS output,
  min(coalesce(u.cache_write_1h, 0), coalesce(u.cache_write, 0)) AS cache_write_1h,
  coalesce(u.reasoning, 0) AS reasoning FROM (
--: database.used
 LIMIT ?2) AS e LEFT JOIN payload_usage(e.q, e.r) AS u)) AS n
--: database.archive_usage
--+ database.sums
SELECT created_ms AS at, store_text(request_body) AS q, store_text(response_body) AS r,
--+ failed
 AS failed FROM main.event_payloads WHERE agent_id = ?1 ORDER BY rowid DESC
--+ database.used
--: database.ring_usage
--+ database.sums
SELECT timestamp AS at, request_body AS q, response_body AS r,
--+ failed
 AS failed FROM main.@ AS r WHERE agent_id = ?1 AND NOT
--+ database.both
 ORDER BY seq DESC
--+ database.used
--: database.failed
SELECT ?1, ?2, 'its newest exchange failed: ' || ?3, 'agent:' || ?1
--: database.switches: Kill switches
SELECT k AS 'id:Kill switch', n AS 'count:Exchanges', bytes AS 'bytes:Bytes', last AS 'time:Last',
 (SELECT v.rule FROM main.payload_verdicts AS v WHERE v.kill_switch_event_id = k LIMIT 1) AS 'text:Rule',
 'kill_switch:' || k FROM (SELECT kill_switch_event_id AS k, count(*) AS n, sum(size_bytes) AS bytes,
  max(created_ms) AS last FROM main.event_payloads WHERE kill_switch_event_id IS NOT NULL GROUP BY 1) ORDER BY last DESC
--: database.recordings: Recordings
SELECT '@' AS 'id:Buffer', actions AS 'count:Actions', screenshots AS 'count:Screenshots', bytes AS 'bytes:Bytes',
 pinned_bytes AS 'bytes:Pinned', (SELECT max(timestamp) FROM main.@) AS 'time:Last', 'evidence:' || '@'
 FROM main.@_state
--: database.rollouts: Conversations
SELECT coalesce(h.title, a.first_user_message, h.id) AS 'text:Conversation', h.updated AS 'time:Updated',
 h.status AS 'text:Status', h.last_sequence + 1 AS 'count:Items', h.turns AS 'count:Turns',
 u.tokens AS 'count:Tokens', u.cost AS 'money:Cost', h.bytes AS 'bytes:Bytes', h.id AS 'id:Id', 'rollout:' || h.id
 FROM main.rollout__heads AS h LEFT JOIN main.rollout__about AS a ON a.no = h.no
 LEFT JOIN (SELECT rollout, sum(input_fresh + cache_write + cache_read + output) AS tokens, sum(cost) AS cost
  FROM rollout_usage_sums WHERE subagents = 0 GROUP BY rollout) AS u ON u.rollout = h.id ORDER BY h.updated DESC
--: database.sessions: Sessions of the cache
SELECT session_id AS 'id:Session', item_count AS 'count:Results', total_size AS 'bytes:Bytes',
 last_accessed_at AS 'time:Last used', 'session:' || session_id FROM main.cache_sessions ORDER BY last_accessed_at DESC
--: database.rings: Rings
SELECT '@' AS 'text:Ring', (SELECT body FROM main.@_texts WHERE id = -1) AS 'count:Window',
 count(*) AS 'count:Agents', sum(given) AS 'count:Given', sum(rolled) AS 'count:Rolled out', sum(saved) AS 'count:Saved',
 sum(rows) AS 'count:Rows', sum(bytes) AS 'bytes:Bytes' FROM main.@_agents
--: database.sizes: Sizes
SELECT part AS 'text:Part', rows AS 'count:Rows', bytes AS 'bytes:Bytes', due_rows AS 'count:Due rows',
 due_bytes AS 'bytes:Due bytes', page_bytes AS 'bytes:Bytes of pages', given_back_by AS 'text:Given back by'
 FROM retention_report()
--: database.domains: Domains
SELECT domain AS 'text:Domain', format AS 'count:Format' FROM main.blackbox_domains ORDER BY 1
--: database.receipts: What was removed
SELECT max(at) AS 'time:Newest', domain AS 'text:Domain', rule AS 'text:Rule', count(*) AS 'count:Receipts',
 sum(rows) AS 'count:Rows', sum(bytes) AS 'bytes:Bytes' FROM main.retention_log GROUP BY domain, rule ORDER BY 1 DESC
--: database.facts
SELECT ?1 AS 'text:Schema', sqlite_version() AS 'text:SQLite', blackbox_version() AS 'text:blackbox'
--: database.head
SELECT proof_tile('checkpoint') FROM main.blackbox__tree WHERE size > 0

-- The leaf of the pin of row ?1 of the archive.
--: proof.leaf
WITH v(v) AS MATERIALIZED (SELECT proof_of('evidence', ?1))
SELECT '"n":' || (v ->> '$.n') || ',"kept":' || coalesce(v ->> '$.kept', 0) || ',"path":' || (v -> '$.path'),
 v ->> '$.head', (SELECT json_group_array(json_array(value ->> 'name', value ->> 'type', value ->> 'hash'))
  FROM json_each(v, '$.fields')) FROM v WHERE v IS NOT NULL
--: proof.row
SELECT l.actor, l.agent_id, l.at, l.bytes, l.detail, l.domain, l.event_id, l.kill_switch_event_id, l.kind, l.newest,
 l.oldest, l.reason, e.agent_id AS "row.agent_id", e.created_at AS "row.created_at", e.event_id AS "row.event_id",
 e.id AS "row.id", e.kill_switch_event_id AS "row.kill_switch_event_id", e.meta AS "row.meta",
 e.purpose AS "row.purpose", NULL AS "row.request_body", NULL AS "row.response_body", l.rows, l.subject,
 nullif(lower(hex(l.salt)), '')
 FROM main.payload__pins AS p JOIN main.blackbox__log AS l ON l.n = p.n JOIN main.payload_rows AS e ON e.id = p.id
 WHERE p.id = ?1
