-- payload.sql: the archive of exchanges and the evidence of what went wrong. This
-- file has the settings, and the views with their triggers. The tables and their
-- guards are in the second file.
--
-- Continued in sql/payload_tables.sql
-- Continued in sql/payload_work.sql
-- Continued in sql/payload_pack.sql
-- Continued in sql/payload_detection.sql
-- Continued in sql/payload_rules.sql
--
-- Both files run alone after core.sql, in this order, any number of times. An
-- event_payloads table that another program made is taken over in place.
--
-- Tables  event_payloads   one row for each exchange; purpose is 'archive' or
--                          'evidence'
--         payload__pins    the pins in force: the id of the row, and the number of
--                          the pin in the log
--         payload__state    one row: the running bulk delete
--         payload_volume   while payload.max_bytes is set, one row: the bytes of
--                          the archive
--         payload__sizes    while it is set, the size of each row in payload__counted
-- Views   payload_pins     the pins in force: their rows cannot be deleted,
--                          changed or replaced
--         payload_unpins   the pins that have ended; INSERT unpins a row
--         payload__protected  the rows that are pinned, or evidence that was
--                          never unpinned
--         payload__held     the rows that a hold keeps: on their agent, event or
--                          kill switch, or on the row itself
--         payload__looking  used by the guards of held rows, which the module makes
--                          with the first hold
--         payload__counted  the archive rows that payload.max_bytes counts
--         payload_rows     event_payloads with created_ms, its time as a number
--         payload__archive  archive rows by age: those that clean-up may remove
--         payload_due      the same with pinned and held rows, and why these stay;
--                          DELETE removes the others
--         payload__sweep    INSERT removes archive rows older than a time
--         payload__clear    INSERT removes all archive rows
--         payload_trim     INSERT removes the oldest archive rows, while there are
--                          more bytes than payload.max_bytes
--         payload_history  INSERT adds archive rows that may be older than the
--                          retention period: they stay until somebody calls
--                          the clean-up
--         payload_evidence INSERT saves an exchange as evidence; its row in the
--                          archive, if it has one, becomes the evidence
--         payload__times    the rows with their time, and without their bodies
--         payload__saving   used by payload_evidence: saves or converts the row
--         payload__pinning  used by the triggers to pin a row
--         payload__removal  used by the triggers to count a deleted row
--         payload__settling used by the triggers to correct a row that was written
--         payload__written  used by the triggers to count the bytes of such a row,
--                          and to make room for it
--         payload__landing  used by the triggers for a row that was inserted, if one of
--                          the last four has to do something for it
--         payload__leaving, payload__parting, payload__going  used by all that removes
--                          rows that are due, or the oldest ones for their bytes
--
-- SQLite compiles all that a statement may fire. So an INSERT has one UPDATE of
-- event_payloads for all corrections, one DELETE for all removals, and one look
-- for the rows to remove.
--         payload__check    contradictions (no rows if all is well)
--
-- Two forms: in a file that packs (payload_pack()), bodies are references to the body
-- store. There the lines that begin with "--| " count as well, without that mark, and
-- the lines that end with it do not, nor do those from "--|{" to "--|}".
--
-- Invariants, on every connection and with every conflict clause:
--   * a row of payload_pins has its row in event_payloads, unchanged
--   * a row that a hold keeps is not removed, and keeps its content
--   * evidence is pinned; size_bytes is the true length of both bodies
--   * created_at of a new row is a date that SQLite can parse
--   * after each write, payload__archive has at most payload.max_bytes, unless the
--     write would have to remove more than 100 rows for that, or something could
--     refuse to remove them (retention_refusers of core)
--
-- Ages are compared as times. created_at is a date as SQLite writes it:
-- YYYY-MM-DD, optionally followed by T or one space, HH:MM, HH:MM:SS or
-- HH:MM:SS.SSS, and a zone. Any other text, in older rows, has no age, so that
-- such a row never expires. Indexes contain the expression that converts it, so
-- it must return the same number in every version of SQLite:
--   * Only the first three digits of a fraction count. If there are more, SQLite
--     is given only the first one (versions before 3.40 truncate them, later ones
--     round).
--   * 24 is not an hour: some versions refuse 24:30.
--   * 'now', '12:00', '2024' and '1.0e-3' are not dates.
--
-- Limits: no trigger fires for DROP TABLE, DROP TRIGGER, or what a program writes
-- into the file. blackbox_check() finds the result of these in the log.

INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('payload.pack', 0, '0 to 1',
   'whether queue flushes and clean-ups pack bodies into the body store'),
  ('payload.enabled', 0, '0 to 1',
   'whether payload_queue() stores anything'),
  ('payload.on_disabled', 'error', 'error, ignore',
   'what payload_queue() does while payload.enabled is 0'),
  ('payload.retention_days', 7, '1 to 365',
   'days that an archive row is kept'),
  ('payload.max_bytes', 0, '0 to 70368744177664',
   'bytes of bodies that the archive may have, without pinned rows; 0: no limit'),
  ('payload.history_until', 0, '0 to 253402300799999',
   'archive rows up to this time, in milliseconds, go only when clean-up is asked for'),
  ('payload.queue_mode', 'durable', 'durable, memory',
   'durable: a queued row is written at once; memory: it waits for a batch'),
  ('payload.flush_interval_ms', 5000, '1000 to 60000',
   'milliseconds that a queued row waits at most, in mode memory'),
  ('payload.flush_batch_size', 20, '1 to 100',
   'queued rows that are written together, in mode memory'),
  ('payload.queue_max_bytes', 67108864, '1048576 to 1073741824',
   'bytes that may wait in the queue, in mode memory'))
 WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range,
       meaning = excluded.meaning;

--|{ (a file that packs has a view of this name that shows texts: ext/payload/pack.c)
CREATE VIEW IF NOT EXISTS main.payload_rows AS
SELECT *,
       CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
             AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
            WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
            WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
            WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
             '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
            WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END AS created_ms
  FROM event_payloads;
--|}

-- The rows that clean-up may remove. The plan (payload_due) and the act
-- (payload__sweep) read this list.
CREATE VIEW IF NOT EXISTS main.payload__archive AS
SELECT id AS "key", size_bytes AS bytes, at, rid
  FROM payload__times AS t
 WHERE purpose = 'archive' AND pinned = 0
   AND (NOT EXISTS (SELECT 1 FROM retention__in_force)
        OR NOT EXISTS (SELECT 1 FROM payload__held AS h WHERE h.payload_rowid = t.rid));

-- What payload.max_bytes counts: also what a hold keeps.
CREATE VIEW IF NOT EXISTS main.payload__counted AS
SELECT rid, id, size_bytes AS bytes
  FROM payload__times
 WHERE purpose = 'archive' AND pinned = 0 AND at > -1e18;

-- (CROSS JOIN looks each of the four up. SQLite would scan the holds otherwise.)
CREATE VIEW IF NOT EXISTS main.payload__held AS
SELECT rowid AS payload_rowid, *
  FROM event_payloads AS e
 WHERE EXISTS (SELECT 1
                 FROM (SELECT 'agent' AS kind, e.agent_id AS name
                       UNION ALL SELECT 'event', e.event_id
                       UNION ALL SELECT 'kill_switch', e.kill_switch_event_id
                       UNION ALL SELECT 'evidence', e.id) AS k
                CROSS JOIN retention__holds AS f
                   ON f.kind = k.kind AND f."key" = k.name);

CREATE VIEW IF NOT EXISTS main.payload__looking AS
SELECT NULL AS id, NULL AS rid WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_due AS
SELECT id AS "key", size_bytes AS bytes, at,
       CASE WHEN EXISTS (SELECT 1 FROM retention__in_force)
             AND EXISTS (SELECT 1 FROM payload__held AS h WHERE h.payload_rowid = t.rid)
            THEN 'held' END AS blocked_by, rid
  FROM payload__times AS t
 WHERE purpose = 'archive' AND pinned = 0
UNION ALL
SELECT id, size_bytes, at, 'pinned', rid
  FROM payload__times
 WHERE (purpose <> 'archive' OR pinned <> 0) AND purpose = 'archive';

-- Commands as rows. before: milliseconds since 1970 UTC, exclusive. max_rows:
-- the maximum number of rows to remove, oldest first; NULL means no limit.
CREATE VIEW IF NOT EXISTS main.payload__sweep AS
SELECT NULL AS before, NULL AS max_rows, NULL AS rule, NULL AS actor WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__clear AS
SELECT NULL AS actor WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_trim AS
SELECT NULL AS max_rows, NULL AS asks WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_history AS
SELECT NULL AS id, NULL AS event_id, NULL AS agent_id, NULL AS request_body,
       NULL AS response_body, NULL AS created_at WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_evidence AS
SELECT NULL AS kill_switch_event_id, NULL AS event_id, NULL AS agent_id,
       NULL AS request_body, NULL AS response_body, NULL AS created_at WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__times AS
SELECT rowid AS rid, id, event_id, size_bytes, purpose, pinned,
       CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
             AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
            WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
            WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
            WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
             '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
            WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END AS at
  FROM event_payloads;

CREATE VIEW IF NOT EXISTS main.payload__saving AS
SELECT NULL AS rid, NULL AS kill_switch_event_id, NULL AS event_id,
       NULL AS agent_id, NULL AS request_body, NULL AS response_body,
       NULL AS created_at WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__removal AS
SELECT NULL AS created_at, NULL AS bytes WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__pinning AS
SELECT NULL AS id, NULL AS wanted WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__written AS
SELECT NULL AS rid, NULL AS id, NULL AS old_rid, NULL AS written WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__settling AS
SELECT NULL AS rid, NULL AS wanted, NULL AS wrong WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__landing AS
SELECT NULL AS rid, NULL AS id, NULL AS evidence, NULL AS wanted, NULL AS wrong WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__leaving AS
SELECT NULL AS kind, NULL AS since, NULL AS before, NULL AS max_rows,
       NULL AS asks WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__parting AS
SELECT NULL AS kind, NULL AS since, NULL AS before, NULL AS max_rows,
       NULL AS refused WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload__going AS
SELECT NULL AS kind, NULL AS rid WHERE 0;

-- In a file that packs: see sql/payload_pack.sql.
--| -- Beside store
--| CREATE VIEW IF NOT EXISTS main.payload_bodies AS
--| SELECT id AS "key", request_body, response_body FROM event_payloads;

--| CREATE VIEW IF NOT EXISTS main.payload_texts AS
--| SELECT CAST(substr(request_body, 37) AS INTEGER) AS text, request_body AS reference, id AS "key"
--|   FROM event_payloads
--|  WHERE typeof(request_body) = 'blob' AND substr(request_body, 1, 4) = x'b1627801'
--| UNION ALL
--| SELECT CAST(substr(response_body, 37) AS INTEGER), response_body, id
--|   FROM event_payloads
--|  WHERE typeof(response_body) = 'blob' AND substr(response_body, 1, 4) = x'b1627801';

--| CREATE VIEW IF NOT EXISTS main.payload_unpacked AS
--| SELECT rowid AS rid, id, agent_id,
--|        CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
--|         AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
--|        WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
--|        WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
--|        WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
--|         '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
--|        WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END AS at
--|   FROM event_payloads
--|  WHERE size_bytes >= 512
--|    AND NOT (typeof(request_body) = 'blob' AND substr(request_body, 1, 4) = x'b1627801')
--|    AND NOT (typeof(response_body) = 'blob' AND substr(response_body, 1, 4) = x'b1627801');

--| -- The length of both bodies, or of the texts that they stand for.
--| CREATE VIEW IF NOT EXISTS main.payload_lengths AS
--| SELECT rowid AS rid,
--|        coalesce((SELECT bytes FROM store__texts
--|                   WHERE typeof(request_body) = 'blob' AND text = CAST(substr(request_body, 37) AS INTEGER)
--|                     AND mark = substr(request_body, 5, 8)
--|                     AND length(request_body) = 36 + length(text)),
--|                 length(CAST(request_body AS BLOB)), 0)
--|        + coalesce((SELECT bytes FROM store__texts
--|                     WHERE typeof(response_body) = 'blob' AND text = CAST(substr(response_body, 37) AS INTEGER)
--|                       AND mark = substr(response_body, 5, 8)
--|                     AND length(response_body) = 36 + length(text)),
--|                   length(CAST(response_body AS BLOB)), 0) AS bytes
--|   FROM event_payloads;

--| -- What the archive really takes: of what is packed, the share that the store keeps
--| -- of all its texts.
--| CREATE VIEW IF NOT EXISTS main.payload_occupied AS
--| SELECT CAST(v.bytes - v.packed + 1.0 * v.packed * s.kept_bytes / max(s.text_bytes, 1)
--|             AS INTEGER) AS bytes, v.max_bytes AS max_bytes
--|   FROM payload_volume AS v, store__state AS s;

CREATE VIEW IF NOT EXISTS main.payload_pins AS
SELECT p.n AS pin, p.id AS id, l.at AS at, k.actor AS actor, k.reason AS reason,
       l.kill_switch_event_id AS kill_switch_event_id
  FROM payload__pins AS p
  LEFT JOIN blackbox__log AS l ON l.n = p.n
  LEFT JOIN blackbox__log AS k
    ON k.n = (SELECT min(n) FROM blackbox__log -- it is logged after its pins
               WHERE subject = l.kill_switch_event_id AND kind = 'kill_switch' AND n > p.n);

CREATE VIEW IF NOT EXISTS main.payload_unpins AS
SELECT CAST(substr(detail, 8) AS INTEGER) AS id, subject AS payload_id, actor, reason, at,
       CAST(substr(detail, 8) AS INTEGER) AS pin, event_id, agent_id, kill_switch_event_id
  FROM blackbox__log WHERE kind = 'unpin';

-- The rows that the guards protect: rows with pinned set, rows with a pin, and evidence for which the ledger has no unpin.
CREATE VIEW IF NOT EXISTS main.payload__protected AS
SELECT rowid AS payload_rowid, *
  FROM event_payloads AS e
 WHERE coalesce(e.pinned, 0) <> 0
    OR EXISTS (SELECT 1 FROM payload__pins AS p WHERE p.id = e.id)
    OR (e.purpose IS 'evidence'
        AND NOT EXISTS (SELECT 1 FROM blackbox__log AS u WHERE u.subject = e.id AND u.kind = 'unpin'));

CREATE VIEW IF NOT EXISTS main.payload__check AS
SELECT 'event_payloads' AS object,
       'pinned row ' || coalesce(id, 'without id') ||
       ' is not in payload_pins; UPDATE event_payloads SET pinned = 1 pins it anew' AS problem
  FROM event_payloads AS e
 WHERE (purpose <> 'archive' OR pinned <> 0)
   AND NOT EXISTS (SELECT 1 FROM payload__pins AS p WHERE p.id = e.id)
   AND (pinned <> 0 OR NOT EXISTS (SELECT 1 FROM blackbox__log AS u
                                    WHERE u.subject = e.id AND u.kind = 'unpin'))
UNION ALL
SELECT 'payload_pins', 'row ' || id || ' was pinned and is gone'
  FROM payload__pins AS p
 WHERE NOT EXISTS (SELECT 1 FROM event_payloads AS e WHERE e.id = p.id)
UNION ALL
SELECT 'payload_pins', 'row ' || p.id || ' is pinned here, but has another pinned than 1'
  FROM payload__pins AS p, event_payloads AS e
 WHERE e.id = p.id AND e.pinned IS NOT 1
UNION ALL
SELECT 'event_payloads',
       'created_at of row ' || coalesce("key", 'without id') ||
       ' is no date: the row never expires'
  FROM payload__archive WHERE at IS NULL
UNION ALL
SELECT 'event_payloads',
       'size_bytes of row ' || coalesce(id, 'without id') ||
       ' is not the length of its bodies'
  FROM event_payloads
 WHERE size_bytes IS NOT coalesce(length(CAST(request_body AS BLOB)), 0) --|
                       + coalesce(length(CAST(response_body AS BLOB)), 0) --|
--|  WHERE size_bytes IS NOT (SELECT bytes FROM payload_lengths WHERE rid = event_payloads.rowid)
UNION ALL
SELECT 'payload__limits', 'it differs from the settings; set any payload setting again'
 WHERE NOT EXISTS (SELECT 1 FROM payload__limits AS l, payload__limits_now AS n
                    WHERE (l.kept_ms, l.since) IS (n.kept_ms, n.since))
UNION ALL
SELECT 'payload__state', 'has not the one row that it must have'
 WHERE (SELECT count(*) FROM payload__state WHERE bulk = 0) <> 1
UNION ALL
SELECT 'payload_volume',
       'does not agree with the setting payload.max_bytes and with the archive; set it again'
 WHERE EXISTS (SELECT 1 FROM blackbox_settings WHERE name = 'payload.max_bytes' AND value > 0
               UNION ALL SELECT 1 FROM payload_volume
               UNION ALL SELECT 1 FROM payload__sizes)
   AND ((SELECT max_bytes FROM payload_volume)
        IS NOT (SELECT value FROM blackbox_settings
                 WHERE name = 'payload.max_bytes' AND value > 0)
        OR (SELECT bytes FROM payload_volume)
           IS NOT (SELECT coalesce(sum(bytes), 0) FROM payload__sizes)
--|         OR (SELECT packed FROM payload_volume)
--|            IS NOT (SELECT coalesce(sum(packed), 0) FROM payload__sizes)
        OR EXISTS (SELECT rid, bytes FROM payload__sizes EXCEPT
                   SELECT rid, bytes FROM payload__counted)
        OR (SELECT count(*) FROM payload__sizes)
           <> (SELECT count(*) FROM payload__counted));

--------------------------------------------------------------- clean-up --

CREATE TRIGGER IF NOT EXISTS main.payload_sweep_run
INSTEAD OF INSERT ON payload__sweep
BEGIN
  -- Text is greater than every number, and would remove the whole archive.
  SELECT RAISE(ABORT, 'ValidationError: before must be a time in milliseconds since 1970 UTC, and max_rows an integer or NULL')
   WHERE typeof(NEW.before) NOT IN ('integer', 'real')
      OR typeof(coalesce(NEW.max_rows, 0)) NOT IN ('integer', 'real')
      OR NEW.max_rows <> CAST(NEW.max_rows AS INTEGER);
  UPDATE payload__state SET bulk = 1;
  DELETE FROM event_payloads
   WHERE rowid IN (SELECT rid FROM payload__archive
                    WHERE at < NEW.before
                    ORDER BY at LIMIT CAST(coalesce(NEW.max_rows, -1) AS INTEGER));
  INSERT INTO blackbox__log(domain, kind, subject, actor, rows, bytes, oldest, newest)
  SELECT 'payload', 'removal', coalesce(NEW.rule, 'payload.age'), NEW.actor, rows, bytes, oldest, newest
    FROM blackbox__open WHERE domain = 'payload' AND rule = 'bulk' AND minute = 0;
  UPDATE payload__state
     SET bulk = 0,
         removed = coalesce((SELECT rows FROM blackbox__open
                              WHERE domain = 'payload' AND rule = 'bulk' AND minute = 0), 0);
  DELETE FROM blackbox__open WHERE domain = 'payload' AND rule = 'bulk' AND minute = 0;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_clear_run
INSTEAD OF INSERT ON payload__clear
BEGIN
  UPDATE payload__state SET bulk = 1;
  DELETE FROM event_payloads
   WHERE rowid IN (SELECT rid FROM payload__archive);
  INSERT INTO blackbox__log(domain, kind, subject, actor, rows, bytes, oldest, newest)
  SELECT 'payload', 'removal', 'clear', NEW.actor, rows, bytes, oldest, newest
    FROM blackbox__open WHERE domain = 'payload' AND rule = 'bulk' AND minute = 0;
  UPDATE payload__state
     SET bulk = 0,
         removed = coalesce((SELECT rows FROM blackbox__open
                              WHERE domain = 'payload' AND rule = 'bulk' AND minute = 0), 0);
  DELETE FROM blackbox__open WHERE domain = 'payload' AND rule = 'bulk' AND minute = 0;
END;

-- asks: 1 if this is part of a write, which must not fail. Usually the oldest row
-- is enough. Rows without a time stay.
CREATE TRIGGER IF NOT EXISTS main.payload_trim_run
INSTEAD OF INSERT ON payload_trim
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: max_rows must be an integer of 1 or more')
   WHERE typeof(NEW.max_rows) <> 'integer' OR NEW.max_rows < 1;
  UPDATE payload__state SET removed = 0 WHERE one = 1;
  INSERT INTO payload__leaving(kind, since, before, max_rows, asks)
  VALUES (3, -1e18, 1e18, 1, NEW.asks), (3, -1e18, 1e18, NEW.max_rows - 1, NEW.asks);
END;

-- The oldest rows between two times leave. kind is what payload__state.bulk is
-- meanwhile: 2 if they are due, 3 if the archive has too many bytes.
CREATE TRIGGER IF NOT EXISTS main.payload_leaving_insert
INSTEAD OF INSERT ON payload__leaving
WHEN NEW.kind = 2 OR (SELECT bytes > max_bytes FROM payload_volume) --|
--| WHEN NEW.kind = 2 OR (SELECT bytes > max_bytes FROM payload_occupied)
BEGIN
  INSERT INTO payload__parting(kind, since, before, max_rows, refused)
  VALUES (NEW.kind, NEW.since, NEW.before, NEW.max_rows,
          NEW.asks AND EXISTS (SELECT 1 FROM retention_refusers WHERE rule = 'payload.age'));
END;

CREATE TRIGGER IF NOT EXISTS main.payload_parting_allowed
INSTEAD OF INSERT ON payload__parting
WHEN NEW.refused IS NOT 1
BEGIN
  UPDATE payload__state SET bulk = NEW.kind WHERE one = 1;
  INSERT INTO payload__going(kind, rid)
  SELECT NEW.kind, rid
    FROM (SELECT rid FROM payload__archive
           WHERE at > NEW.since AND at < NEW.before
           ORDER BY at, bytes, "key" LIMIT NEW.max_rows);
  UPDATE payload__state SET bulk = 0 WHERE one = 1;
END;

-- A write that could be refused goes on, and removes nothing. The log then has a
-- receipt without rows, one a day.
CREATE TRIGGER IF NOT EXISTS main.payload_parting_refused
INSTEAD OF INSERT ON payload__parting
WHEN NEW.refused
BEGIN
  INSERT INTO blackbox__log(domain, kind, subject, rows, bytes)
  SELECT 'payload', 'removal', rule, 0, 0
    FROM (SELECT CASE NEW.kind WHEN 2 THEN 'payload.age refused'
                               ELSE 'payload.bytes refused' END AS rule)
   WHERE NOT EXISTS (SELECT 1 FROM blackbox__log
                      WHERE subject = rule
                        AND at > (julianday('now') - 2440588.5) * 86400000.0);
END;

-- Each row that goes adds itself to the receipt of the minute.
CREATE TRIGGER IF NOT EXISTS main.payload_going_insert
INSTEAD OF INSERT ON payload__going
WHEN NEW.kind = 2 OR (SELECT bytes > max_bytes FROM payload_volume) --|
--| WHEN NEW.kind = 2 OR (SELECT bytes > max_bytes FROM payload_occupied)
BEGIN
  DELETE FROM event_payloads WHERE rowid = NEW.rid;
  UPDATE payload__state SET removed = removed + changes() WHERE one = 1;
END;

-- A row was written: it is counted as it is now, and room is made for it. Another
-- row that had its id was removed by REPLACE, for which SQLite fires no DELETE
-- trigger. size_bytes may not be correct yet. written: 1 if its bodies are new, 0
-- if it only has come into the archive, because it was unpinned. Then it is not
-- refused, however large it is. (+ keeps the primary key out: the index of the
-- event has the rows without a time together.)
CREATE TRIGGER IF NOT EXISTS main.payload_written_insert
INSTEAD OF INSERT ON payload__written
WHEN EXISTS (SELECT 1 FROM payload_volume)
BEGIN
  DELETE FROM payload__sizes
   WHERE rid = NEW.rid OR rid = NEW.old_rid
      OR (id = NEW.id AND rid NOT IN (SELECT rowid FROM event_payloads));
  INSERT INTO payload__sizes(rid, id, bytes) --|
  SELECT e.rowid, e.id, coalesce(length(CAST(e.request_body AS BLOB)), 0) --|
                      + coalesce(length(CAST(e.response_body AS BLOB)), 0) --|
    FROM event_payloads AS e --|
--|   INSERT INTO payload__sizes(rid, id, bytes, packed)
--|   SELECT e.rowid, e.id, l.bytes,
--|          iif(EXISTS (SELECT 1 FROM payload_texts AS t WHERE t."key" = e.id), l.bytes, 0)
--|     FROM event_payloads AS e JOIN payload_lengths AS l ON l.rid = e.rowid
   WHERE e.rowid = NEW.rid AND e.purpose = 'archive' AND e.pinned = 0
     AND NOT EXISTS (SELECT 1 FROM payload__times AS t
                      WHERE t.event_id = e.event_id AND t.at IS NULL AND +t.rid = NEW.rid);
  SELECT RAISE(ABORT, 'QuotaExceededError: the bodies of this row have more bytes than payload.max_bytes, the limit of the whole archive; store less, or set a higher limit')
   WHERE NEW.written AND (SELECT bytes FROM payload__sizes WHERE rid = NEW.rid)
                         > (SELECT max_bytes FROM payload_volume);
  INSERT INTO payload__leaving(kind, since, before, max_rows, asks)
  VALUES (3, -1e18, 1e18, 1, 1), (3, -1e18, 1e18, 99, 1);
  SELECT RAISE(ABORT, 'HeldError: holds keep rows of the archive, and payload.max_bytes leaves no room for this one; set a higher limit, or end a hold with retention_release(); SELECT * FROM retention_holds lists the holds')
   WHERE NEW.written AND EXISTS (SELECT 1 FROM retention__in_force)
     AND NOT EXISTS (SELECT 1 FROM event_payloads WHERE rowid = NEW.rid);
END;

---------------------------------------------------------------- history --

-- The clean-up that a write carries removes no rows up to this time.
CREATE TRIGGER IF NOT EXISTS main.payload_history_insert
INSTEAD OF INSERT ON payload_history
BEGIN
  UPDATE blackbox_settings SET value = max(1, r.at)
    FROM (SELECT CASE WHEN substr(NEW.created_at, 24) = 'Z' AND substr(NEW.created_at, 20, 1) = '.'
                       AND substr(NEW.created_at, 12, 2) < '24' THEN unixepoch(NEW.created_at) * 1000 + substr(NEW.created_at, 21, 3)
                      WHEN substr(NEW.created_at, 5, 1) <> '-' OR substr(NEW.created_at, 12, 2) = '24' THEN NULL
                      WHEN substr(NEW.created_at, 14, 1) = ':' AND substr(NEW.created_at, 20, 1) <> '.' THEN unixepoch(NEW.created_at) * 1000
                      WHEN substr(NEW.created_at, 14, 1) = ':' THEN unixepoch(substr(NEW.created_at, 1, 21) || ltrim(substr(NEW.created_at, 22),
                       '0123456789')) * 1000 + CAST(substr(NEW.created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
                      WHEN length(NEW.created_at) = 10 THEN unixepoch(NEW.created_at || ' 00:00') * 1000 END AS at) AS r
   WHERE name = 'payload.history_until' AND value < max(1, r.at)
     AND r.at < (julianday('now') - 2440587.5) * 86400000.0
              - 86400000 * (SELECT value FROM blackbox_settings
                             WHERE name = 'payload.retention_days');
  INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body,
    size_bytes, purpose, created_at)
  VALUES (NEW.id, NEW.event_id, NEW.agent_id, NEW.request_body, NEW.response_body,
    coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
      + coalesce(length(CAST(NEW.response_body AS BLOB)), 0),
    'archive', NEW.created_at);
END;

--------------------------------------------------------------- evidence --

-- An exchange that is in the archive is not stored twice: its row becomes the
-- evidence, with the time that is given. It keeps its id and its rowid. Nothing
-- is removed, so there is no receipt. The row is looked for among the 16 rows of
-- the event that are nearest in time, 8 on each side. Among equal rows the nearest
-- is used. It is used only once, because it is then no longer in the archive.
CREATE TRIGGER IF NOT EXISTS main.payload_evidence_insert
INSTEAD OF INSERT ON payload_evidence
BEGIN
  INSERT INTO payload__saving(rid, kill_switch_event_id, event_id, agent_id,
    request_body, response_body, created_at)
  VALUES ((
     WITH exchange(at) AS ( -- no CAST: its affinity would keep the index out
       SELECT round((julianday(coalesce(NEW.created_at, 'now')) - 2440587.5) * 86400000.0))
     SELECT rid
       FROM (SELECT near.rid, min(abs(near.at - (SELECT at FROM exchange)))
               FROM (SELECT * FROM (SELECT rid, at FROM payload__times
                                     WHERE event_id = NEW.event_id AND at <= (SELECT at FROM exchange)
                                     ORDER BY at DESC LIMIT 8)
                     UNION ALL
                     SELECT * FROM (SELECT rid, at FROM payload__times
                                     WHERE event_id = NEW.event_id AND at > (SELECT at FROM exchange)
                                     ORDER BY at LIMIT 8)) AS near
               CROSS JOIN event_payloads AS e ON e.rowid = near.rid
              WHERE e.purpose = 'archive' AND e.pinned = 0
                AND e.kill_switch_event_id IS NULL AND e.id IS NOT NULL
                AND e.size_bytes = coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0)
                AND e.event_id IS NEW.event_id COLLATE BINARY AND e.agent_id IS NEW.agent_id COLLATE BINARY
                AND e.request_body IS NEW.request_body COLLATE BINARY
                AND e.response_body IS NEW.response_body COLLATE BINARY
                AND NOT EXISTS (SELECT 1 FROM payload__pins WHERE id = e.id))),
    NEW.kill_switch_event_id, NEW.event_id, NEW.agent_id, NEW.request_body, NEW.response_body,
    coalesce(NEW.created_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')));
END;

CREATE TRIGGER IF NOT EXISTS main.payload_saving_found
INSTEAD OF INSERT ON payload__saving
WHEN NEW.rid IS NOT NULL
BEGIN
  UPDATE event_payloads
     SET purpose = 'evidence', pinned = 1,
         kill_switch_event_id = NEW.kill_switch_event_id,
         created_at = NEW.created_at
   WHERE rowid = NEW.rid;
  -- A trigger of the user may have prevented the UPDATE.
  INSERT INTO payload__saving(kill_switch_event_id, event_id, agent_id,
    request_body, response_body, created_at)
  SELECT NEW.kill_switch_event_id, NEW.event_id, NEW.agent_id, NEW.request_body, NEW.response_body, NEW.created_at
   WHERE changes() = 0;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_saving_new
INSTEAD OF INSERT ON payload__saving
WHEN NEW.rid IS NULL
BEGIN
  INSERT INTO event_payloads(id, event_id, agent_id, request_body, response_body, size_bytes,
    purpose, pinned, kill_switch_event_id, created_at)
  VALUES (lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
          substr(lower(hex(randomblob(2))), 2) || '-' ||
          substr('89ab', 1 + (random() & 3), 1) ||
          substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6))),
          NEW.event_id, NEW.agent_id, NEW.request_body, NEW.response_body, coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
            + coalesce(length(CAST(NEW.response_body AS BLOB)), 0),
          'evidence', 1, NEW.kill_switch_event_id, NEW.created_at);
END;

-------------------------------------------------------------------- pins --

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_insert
INSTEAD OF INSERT ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'NotFoundError: no pinned row of event_payloads has this payload_id; SELECT id FROM payload_pins lists the pinned rows')
   WHERE NOT EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.payload_id);
  SELECT RAISE(ABORT, 'ValidationError: only payload_id, actor and reason can be set; omit the other columns')
   WHERE (NEW.id, NEW.at, NEW.pin, NEW.event_id, NEW.agent_id, NEW.kill_switch_event_id)
         IS NOT (NULL, NULL, NULL, NULL, NULL, NULL);
  SELECT CASE
           WHEN typeof(NEW.actor) <> 'text' OR ltrim(NEW.actor, unseen) = ''
             OR unicode(ltrim(NEW.actor, unseen)) BETWEEN 917504 AND 921599
             OR EXISTS (SELECT 1 FROM retention__controls
                         WHERE instr(NEW.actor, control) > 0)
           THEN RAISE(ABORT, 'ValidationError: actor must be visible text without control characters')
           WHEN typeof(NEW.reason) <> 'text' OR ltrim(NEW.reason, unseen) = ''
             OR unicode(ltrim(NEW.reason, unseen)) BETWEEN 917504 AND 921599
             OR EXISTS (SELECT 1 FROM retention__controls
                         WHERE instr(NEW.reason, control) > 0 AND NOT parts_text)
           THEN RAISE(ABORT, 'ValidationError: reason must be visible text without control characters other than tabs and line ends')
         END
    FROM retention__visible;
  INSERT INTO blackbox__log(domain, kind, subject, actor, reason, detail, event_id, agent_id,
    kill_switch_event_id)
  SELECT 'payload', 'unpin', p.id, NEW.actor, NEW.reason, '{"pin":' || p.n || '}', e.event_id, e.agent_id,
         e.kill_switch_event_id
    FROM payload__pins AS p LEFT JOIN event_payloads AS e ON e.id = p.id
   WHERE p.id = NEW.payload_id;
  DELETE FROM payload__pins WHERE id = NEW.payload_id;
  UPDATE event_payloads SET pinned = 0 WHERE id = NEW.payload_id;
  SELECT RAISE(ABORT, 'MisuseError: a trigger on event_payloads prevents this row from being unpinned; drop the trigger')
   WHERE EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.payload_id)
      OR EXISTS (SELECT 1 FROM event_payloads
                  WHERE id = NEW.payload_id AND pinned <> 0);
END;

