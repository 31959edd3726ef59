-- payload_check.sql: the query that lists the contradictions in the archive; no rows if
-- all is well. blackbox_check() runs it: "main." stands for the schema.
SELECT 'event_payloads' AS object,
       'pinned row ' || coalesce(id, 'without id') ||
       ' is not in payload_pins; UPDATE event_payloads SET pinned = 1 pins it anew' AS problem
  FROM main.event_payloads AS e
 WHERE (pinned IS NOT 0 OR (purpose IS 'evidence' AND NOT EXISTS (
         SELECT 1 FROM main.blackbox__log WHERE subject = e.id AND kind = 'unpin')))
   AND NOT EXISTS (SELECT 1 FROM main.payload__pins AS p WHERE p.id = e.id)
UNION ALL
SELECT 'payload_pins', 'row ' || id || ' was pinned and is gone'
  FROM main.payload__pins AS p
 WHERE NOT EXISTS (SELECT 1 FROM main.event_payloads AS e WHERE e.id = p.id)
UNION ALL
SELECT 'payload_pins', 'row ' || p.id || ' is pinned here, but has another pinned than 1'
  FROM main.payload__pins AS p, main.event_payloads AS e
 WHERE e.id = p.id AND e.pinned IS NOT 1
UNION ALL
SELECT 'event_payloads',
       'created_at of row ' || coalesce(id, 'without id') ||
       ' is no date: the row never expires'
  FROM main.event_payloads INDEXED BY payload_by_age
 WHERE purpose = 'archive' AND pinned = 0 AND created_ms IS NULL
UNION ALL
SELECT 'event_payloads',
       'size_bytes of row ' || coalesce(id, 'without id') ||
       ' is not the length of its bodies'
  FROM main.event_payloads AS e
 WHERE size_bytes IS NOT coalesce(length(CAST(request_body AS BLOB)), 0) + coalesce(length(CAST(response_body AS BLOB)), 0)
       + coalesce((SELECT sum((bytes - length(ref)) * ((ref IS request_body) + (ref IS response_body)))
                     FROM main.payload__packed AS p
                    WHERE text IN (substr(request_body, 37, 20) + 0, substr(response_body, 37, 20) + 0) AND p."key" = e.id), 0)
UNION ALL
SELECT 'event_payloads', 'meta of row ' || coalesce(id, 'without id') || ' is no JSON'
  FROM main.event_payloads
 WHERE meta IS NOT NULL AND json_valid(meta) IS NOT 1
UNION ALL
SELECT 'payload__state', 'differs from the settings; UPDATE blackbox_settings SET value = value'
 WHERE NOT EXISTS (SELECT 1 FROM main.payload__state AS s
                    WHERE work = 0 AND (kept_ms, since, cap) IS (
                          SELECT 86400000 * max(iif(name = 'payload.retention_days', value, NULL)),
                  max(iif(name = 'payload.history_until', iif(value > 0, value, -9e15), NULL)),
                  max(iif(name = 'payload.max_bytes', iif(value > 0, value, 9e15), NULL))
             FROM main.blackbox_settings WHERE substr(name, 1, 8) = 'payload.'))
UNION ALL
SELECT 'payload__state', 'its bytes are not those of the archive; run blackbox_install()'
 WHERE (SELECT bytes FROM main.payload__state) IS NOT (
       SELECT coalesce(sum(size_bytes), 0) FROM main.event_payloads INDEXED BY payload_by_age
        WHERE purpose = 'archive' AND pinned = 0)
    OR (SELECT packed FROM main.payload__state) IS NOT (
       SELECT coalesce(sum(bytes), 0) FROM main.payload__packed)
UNION ALL
SELECT 'payload__packed', 'row ' || "key" || ' has not the reference that is listed'
  FROM main.payload__packed AS p
 WHERE NOT EXISTS (SELECT 1 FROM main.event_payloads AS e
                    WHERE e.id = p."key" AND p.ref IN (request_body, response_body))
UNION ALL
SELECT 'payload_agents', 'agent ' || subject || ' was stopped, and started without payload_agent_log'
  FROM main.blackbox__log AS l
 WHERE kind = 'stop' AND domain = 'payload' AND subject IS NOT NULL AND NOT EXISTS (
         SELECT 1 FROM main.blackbox__log WHERE subject = l.subject AND kind = 'start' AND n > l.n)
   AND NOT EXISTS (SELECT 1 FROM main.payload_agents WHERE agent_id = l.subject AND stopped_at IS NOT NULL)
