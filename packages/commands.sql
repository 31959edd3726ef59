-- commands.sql: the statements of npx sqlite-blackbox and python -m blackbox.
--
-- A section begins with the name of its command and the domain that it needs: it runs if the file
-- has that, and the rows of all sections of a command are shown together. {ring} is the ring,
-- {ring_agents} its counters, {used} the section of that name. Parameters: :key is the argument,
-- :rows the option, :now the time; :indexed says whether the file has an index for the search.

--: used fragment
seen AS (
  SELECT agent_id, timestamp AS at, request_body AS q, response_body AS r, meta FROM {ring}
  UNION ALL
  SELECT p.agent_id, p.created_ms, p.request_body, p.response_body, p.meta
    FROM payload_agents AS s JOIN payload_rows AS p
      ON p.kill_switch_event_id = s.kill_switch_event_id AND p.agent_id = s.agent_id
   WHERE NOT EXISTS (SELECT 1 FROM {ring} AS t WHERE t.agent_id = p.agent_id AND t.event_id = p.event_id)),
told AS MATERIALIZED (
  SELECT seen.agent_id, seen.at,
         meta ->> '$.error' IS NOT NULL OR coalesce(meta ->> '$.status', 0) >= 400 AS failed,
         seen.r IS NULL AND meta ->> '$.duration_ms' IS NULL AS open, u.model, u.input, u.cache_write, u.cache_read, u.output,
         coalesce(input, 0) + coalesce(cache_write, 0) + coalesce(cache_read, 0) AS prompt
    FROM seen LEFT JOIN payload_usage(seen.q, seen.r) AS u),
used AS (
  SELECT told.*, prompt + coalesce(output, 0) AS tokens,
         (SELECT (coalesce(told.input, 0) * p.input + coalesce(told.output, 0) * p.output
                  + coalesce(told.cache_read, 0) * coalesce(p.cache_read, p.input)
                  + coalesce(told.cache_write, 0) * coalesce(p.cache_write, p.input)) / 1e6
            FROM blackbox_prices AS p
           WHERE (told.model IN (p.model, p.model || '-latest') OR told.model GLOB '*/' || p.model
                  OR told.model GLOB p.model || '[-@]20[0-9][0-9]*'
                  OR told.model GLOB '*/' || p.model || '[-@]20[0-9][0-9]*')
             AND p.since <= date(told.at / 1000, 'unixepoch') AND p.above <= told.prompt
           ORDER BY length(p.model) DESC, p.since DESC, p.above DESC LIMIT 1) AS cost
    FROM told)

--: top payload
WITH {used},
sums AS (
  SELECT agent_id, sum(tokens) AS tokens, sum(cost) AS cost, sum(failed) AS errors, max(at) AS last,
         failed AS failed_last, open
    FROM used GROUP BY agent_id),
found AS (
  SELECT agent_id, count(*) AS loops, max(at) AS at, sentence FROM payload_verdicts GROUP BY agent_id),
agents AS (
  SELECT a.agent_id, a.given, sums.*, found.loops, s.stopped_at, s.kill_switch_event_id,
         coalesce(found.sentence, a.agent_id || ' was stopped by ' || coalesce(s.stopped_by, 'a program'))
         AS sentence,
         found.at > :now - 600000 AND NOT EXISTS (
           SELECT 1 FROM payload_agent_log AS l
            WHERE l.agent_id = a.agent_id AND l.act = 'start' AND l.at >= found.at) AS loops_now
    FROM {ring_agents} AS a LEFT JOIN sums ON sums.agent_id = a.agent_id
    LEFT JOIN found ON found.agent_id = a.agent_id
    LEFT JOIN payload_agents AS s ON s.agent_id = a.agent_id)
SELECT agent_id AS agent, given AS exchanges, coalesce(tokens, 0) AS tokens, cost,
       coalesce(loops, 0) AS loops, coalesce(errors, 0) AS errors, last,
       CASE WHEN stopped_at NOT NULL THEN 'stopped' WHEN loops_now THEN 'loops'
            WHEN failed_last THEN 'error' WHEN open THEN 'open' ELSE 'ok' END AS state,
       CASE WHEN stopped_at NOT NULL OR loops_now THEN sentence END AS why,
       CASE WHEN stopped_at NOT NULL AND kill_switch_event_id NOT NULL THEN 'kill_switch'
            WHEN stopped_at NOT NULL OR loops_now THEN 'agent' END AS kind,
       CASE WHEN stopped_at NOT NULL AND kill_switch_event_id NOT NULL THEN kill_switch_event_id
            WHEN stopped_at NOT NULL OR loops_now THEN agent_id END AS "key"
  FROM agents
 ORDER BY why IS NULL, last DESC, agent LIMIT coalesce(:rows, 40)

--: tail payload
SELECT timestamp AS at, agent_id AS agent,
       coalesce(meta ->> '$.status', substr(meta ->> '$.error', 1, instr(meta ->> '$.error', ':') - 1)) AS status,
       meta ->> '$.duration_ms' AS ms,
       (SELECT group_concat(tool, ' ') FROM payload_calls(NULL, r.response_body) WHERE kind = 'call') AS calls,
       payload_prompt(request_body) AS asked, event_id AS event,
       response_body IS NULL AND meta ->> '$.duration_ms' IS NULL AS open
  FROM {ring} AS r WHERE :key IS NULL OR agent_id = :key
 ORDER BY timestamp DESC, seq DESC LIMIT coalesce(:rows, 10)

--: report payload
SELECT 'kill_switch' AS kind, kill_switch_event_id AS "key" FROM event_payloads
 WHERE kill_switch_event_id = :key LIMIT 1

--: report payload
SELECT 'agent' AS kind, :key AS "key"
 WHERE EXISTS (SELECT 1 FROM {ring_agents} WHERE agent_id = :key)
    OR EXISTS (SELECT 1 FROM event_payloads WHERE agent_id = :key)

--: report rollout
SELECT 'rollout' AS kind, id AS "key" FROM rollouts WHERE :key IN (id, source_id) LIMIT 1

--: report cache
SELECT 'session' AS kind, session_id AS "key" FROM cache_sessions WHERE session_id = :key LIMIT 1

--: usage rollout
SELECT day, model, sum(calls) AS calls, sum(input_fresh) + sum(cache_write) AS input,
       sum(cache_read) AS cached, sum(output) AS output, sum(cost) AS cost, 'conversations' AS "of"
  FROM rollout_usage_days GROUP BY day, model ORDER BY day DESC, model LIMIT coalesce(:rows, 60)

--: usage payload
WITH {used}
SELECT date(at / 1000, 'unixepoch') AS day, model, count(*) AS calls,
       sum(coalesce(input, 0) + coalesce(cache_write, 0)) AS input,
       sum(coalesce(cache_read, 0)) AS cached, sum(coalesce(output, 0)) AS output,
       sum(cost) AS cost, 'exchanges' AS "of"
  FROM used WHERE tokens > 0 GROUP BY day, model ORDER BY day DESC, model LIMIT coalesce(:rows, 60)

--: search search
SELECT timestamp AS at, 'conversation' AS "in", rollout AS "of", snippet AS text
  FROM rollout_search(:key, coalesce(:rows, 50))

--: search rollout
SELECT timestamp AS at, 'conversation' AS "in", rollout AS "of",
       trim(substr(payload, max(1, instr(lower(payload), lower(:key)) - 12), 60)) AS text
  FROM rollout_items WHERE NOT :indexed AND instr(lower(payload), lower(:key)) > 0
 ORDER BY timestamp DESC LIMIT coalesce(:rows, 50)

--: search payload
WITH seen AS (
  SELECT timestamp AS at, agent_id, event_id,
         coalesce(request_body, '') || char(10) || coalesce(response_body, '') AS body FROM {ring}
  UNION ALL
  SELECT created_ms, agent_id, event_id,
         coalesce(request_body, '') || char(10) || coalesce(response_body, '') FROM payload_rows AS p
   WHERE NOT EXISTS (SELECT 1 FROM {ring} AS t WHERE t.agent_id = p.agent_id AND t.event_id = p.event_id))
SELECT at, 'exchange' AS "in", agent_id AS "of",
       trim(substr(body, max(1, instr(lower(body), lower(:key)) - 12), 60)) AS text, event_id AS event
  FROM seen WHERE instr(lower(body), lower(:key)) > 0
 ORDER BY at DESC LIMIT coalesce(:rows, 50)

--: export rollout
SELECT e.line FROM rollouts AS r, rollout_export(r.id) AS e
 WHERE (:key IS NULL OR :key IN (r.id, r.source_id)) AND :format IS NULL
UNION ALL
SELECT rtrim(rollout_export(id, :format), char(10)) FROM rollouts
 WHERE (:key IS NULL OR :key IN (id, source_id)) AND :format NOT NULL

--: export payload
WITH seen AS (
  SELECT agent_id, event_id, timestamp AS at, request_body AS q, response_body AS r, meta FROM {ring}
  UNION ALL
  SELECT agent_id, event_id, created_ms, request_body, response_body, meta FROM payload_rows AS p
   WHERE NOT EXISTS (SELECT 1 FROM {ring} AS t WHERE t.agent_id = p.agent_id AND t.event_id = p.event_id))
SELECT json_object('agent_id', agent_id, 'event_id', event_id, 'timestamp', at,
                   'request', CASE typeof(q) WHEN 'blob' THEN hex(q) ELSE q END,
                   'response', CASE typeof(r) WHEN 'blob' THEN hex(r) ELSE r END,
                   'meta', json(meta)) AS line
  FROM seen WHERE (:key IS NULL OR agent_id = :key) AND :format IS NULL ORDER BY at

--: doctor
SELECT 'ok' AS state, 'blackbox' AS what, blackbox_version() || ', SQLite ' || sqlite_version() AS value
UNION ALL
SELECT 'ok', 'file', file FROM pragma_database_list WHERE name = 'main'
UNION ALL
SELECT 'ok', 'size', printf('%,d bytes, %,d of them free', page_count * page_size, freelist_count * page_size)
  FROM pragma_page_count, pragma_page_size, pragma_freelist_count
UNION ALL
SELECT CASE journal_mode WHEN 'wal' THEN 'ok' ELSE 'note' END, 'journal',
       CASE journal_mode WHEN 'wal' THEN 'wal'
            ELSE journal_mode || ': readers and writers wait for each other; PRAGMA journal_mode = WAL' END
  FROM pragma_journal_mode

--: doctor core
SELECT 'ok' AS state, 'domains' AS what, group_concat(domain, ', ') AS value FROM blackbox_domains
UNION ALL
SELECT 'ok', 'setting', name || ' = ' || value FROM blackbox_settings WHERE value <> "default"
UNION ALL
SELECT 'note', 'prices', 'there are none, so that costs are not known; the command import loads them'
 WHERE NOT EXISTS (SELECT 1 FROM blackbox_prices)

--: doctor payload
SELECT 'note' AS state, 'agent' AS what,
       agent_id || ' is stopped by ' || coalesce(stopped_by, 'a program')
       || '; to start it, INSERT INTO payload_agent_log(agent_id, actor, reason)' AS value
  FROM payload_agents WHERE stopped_at NOT NULL
UNION ALL
SELECT 'note', 'loops',
       'rules on loops are off; UPDATE blackbox_settings SET value = ''record'' WHERE name = ''payload.on_loop'''
  FROM blackbox_settings WHERE name = 'payload.on_loop' AND value = 'off'

--: doctor core
SELECT 'problem' AS state, 'format' AS what, domain || ' has format ' || format
       || ', and this version knows up to 1; install a newer sqlite-blackbox' AS value
  FROM blackbox_domains WHERE format > 1

--: doctor core
SELECT 'problem' AS state, object AS what, problem AS value FROM blackbox_check
