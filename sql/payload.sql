-- payload.sql: the archive of exchanges and the evidence of what went wrong.
--
-- This file needs core.sql. It runs alone, any number of times. An event_payloads
-- table that another program made is taken over in place. (A database of version
-- 1 needs blackbox_install(), which upgrades its pins first.)
--
-- Tables  event_payloads   one row for each exchange; purpose is 'archive' or
--                          'evidence'
--         payload_ledger   one row for each pin ever set: the id of the row, the
--                          hash of its content, and who unpinned it and why
--         payload_state    one row: the running bulk delete, and the length of
--                          the ledger
-- Views   payload_pins     the pins in force: their rows cannot be deleted,
--                          changed or replaced
--         payload_unpins   the pins that have ended; INSERT unpins a row
--         payload_protected  the rows that are pinned, or evidence that was
--                          never unpinned
--         payload_rows     event_payloads with created_ms, its time as a number
--         payload_archive  archive rows by age: those that clean-up may remove
--         payload_due      the same with pinned rows, and why these stay
--         payload_sweep    INSERT removes archive rows older than a time
--         payload_clear    INSERT removes all archive rows
--         payload_history  INSERT adds archive rows that may be older than the
--                          retention period: they stay until somebody calls
--                          the clean-up
--         payload_evidence INSERT saves an exchange as evidence; its row in the
--                          archive, if it has one, becomes the evidence
--         payload_times    the rows with their time, and without their bodies
--         payload_saving   used by payload_evidence: saves or converts the row
--         payload_pinning  used by the triggers to pin a row
--         payload_check    contradictions (no rows if all is well)
--
-- Invariants, on every connection and with every conflict clause:
--   * a row of payload_pins has its row in event_payloads, unchanged
--   * evidence is pinned; size_bytes is the true length of both bodies
--   * no row of payload_ledger is removed, and each part of it is set only once:
--     the pin, then the hash, then the unpin
--   * created_at of a new row is a date that SQLite can parse
--
-- A guard depends on the row itself and on its entry in the ledger. It is a
-- BEFORE trigger that only raises. (SQLite does not fire a trigger that is
-- already running. If a guard wrote to a table, a trigger of the user on that
-- table could bypass the guard.) Some AFTER triggers refuse the same again, but
-- none of them is the only guard. Every condition also works for NULL (IS, or
-- coalesce), and for columns with another collation (COLLATE BINARY).
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
-- into the file. blackbox_check() finds the result of these: with the ledger, the
-- hashes, and the length of the ledger in payload_state and in blackbox_ledgers
-- of core.

INSERT INTO main.blackbox_setting_defs(name, kind, preset, low, high, choices, meaning)
VALUES
  ('payload.enabled', 'integer', 0, 0, 1, NULL,
   'whether payload_queue() stores anything'),
  ('payload.on_disabled', 'choice', 'error', NULL, NULL, 'error, ignore',
   'what payload_queue() does while payload.enabled is 0'),
  ('payload.retention_days', 'integer', 7, 1, 365, NULL,
   'days that an archive row is kept'),
  ('payload.history_until', 'integer', 0, 0, 253402300799999, NULL,
   'archive rows up to this time, in milliseconds, go only when clean-up is asked for'),
  ('payload.queue_mode', 'choice', 'durable', NULL, NULL, 'durable, memory',
   'durable: a queued row is written at once; memory: it waits for a batch'),
  ('payload.flush_interval_ms', 'integer', 5000, 1000, 60000, NULL,
   'milliseconds that a queued row waits at most, in mode memory'),
  ('payload.flush_batch_size', 'integer', 20, 1, 100, NULL,
   'queued rows that are written together, in mode memory'),
  ('payload.queue_max_bytes', 'integer', 67108864, 1048576, 1073741824, NULL,
   'bytes that may wait in the queue, in mode memory'),
  ('payload.window', 'integer', 50, 1, 10000, NULL,
   'rows an agent of a ring that is made without a window')
ON CONFLICT (name) DO UPDATE
  SET kind = excluded.kind, preset = excluded.preset, low = excluded.low,
      high = excluded.high, choices = excluded.choices,
      meaning = excluded.meaning;

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

-- The rows that clean-up may remove. The plan (payload_due) and the act
-- (payload_sweep) read this list.
CREATE VIEW IF NOT EXISTS main.payload_archive AS
SELECT id AS "key", size_bytes AS bytes, at, rid
  FROM payload_times
 WHERE purpose = 'archive' AND pinned = 0;

CREATE VIEW IF NOT EXISTS main.payload_due AS
SELECT "key", bytes, at, NULL AS blocked_by FROM payload_archive
UNION ALL
SELECT id, size_bytes, at, 'pinned'
  FROM payload_times
 WHERE (purpose <> 'archive' OR pinned <> 0) AND purpose = 'archive';

-- Commands as rows. before: milliseconds since 1970 UTC, exclusive. max_rows:
-- the maximum number of rows to remove, oldest first; NULL means no limit. since:
-- rows up to that time stay; NULL means none.
CREATE VIEW IF NOT EXISTS main.payload_sweep AS
SELECT NULL AS before, NULL AS max_rows, NULL AS rule, NULL AS actor,
       NULL AS since WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_clear AS
SELECT NULL AS actor WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_history AS
SELECT NULL AS id, NULL AS event_id, NULL AS agent_id, NULL AS request_body,
       NULL AS response_body, NULL AS created_at WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_evidence AS
SELECT NULL AS kill_switch_event_id, NULL AS event_id, NULL AS agent_id,
       NULL AS request_body, NULL AS response_body, NULL AS created_at WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_times AS
SELECT rowid AS rid, id, event_id, size_bytes, purpose, pinned,
       CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
             AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
            WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
            WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
            WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
             '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
            WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END AS at
  FROM event_payloads;

CREATE VIEW IF NOT EXISTS main.payload_saving AS
SELECT NULL AS rid, NULL AS kill_switch_event_id, NULL AS event_id,
       NULL AS agent_id, NULL AS request_body, NULL AS response_body,
       NULL AS created_at WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_pinning AS
SELECT NULL AS id, NULL AS wanted WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_pins AS
SELECT pin, id, hash, columns FROM payload_ledger WHERE at IS NULL;

CREATE VIEW IF NOT EXISTS main.payload_unpins AS
SELECT pin AS id, id AS payload_id, actor, reason, at, pin, event_id, agent_id,
       kill_switch_event_id
  FROM payload_ledger WHERE at IS NOT NULL;

-- The rows that the guards protect: rows with pinned set, rows with a pin in the
-- ledger, and evidence for which the ledger has no unpin.
CREATE VIEW IF NOT EXISTS main.payload_protected AS
SELECT rowid AS payload_rowid, *
  FROM event_payloads AS e
 WHERE coalesce(e.pinned, 0) <> 0
    OR EXISTS (SELECT 1 FROM payload_pins AS p WHERE p.id = e.id)
    OR (e.purpose IS 'evidence'
        AND NOT EXISTS (SELECT 1 FROM payload_unpins AS u WHERE u.payload_id = e.id));

CREATE VIEW IF NOT EXISTS main.payload_check AS
SELECT 'event_payloads' AS object,
       'pinned row ' || coalesce(id, 'without id') ||
       ' is not in payload_pins; UPDATE event_payloads SET pinned = 1 pins it anew' AS problem
  FROM event_payloads AS e
 WHERE (purpose <> 'archive' OR pinned <> 0)
   AND NOT EXISTS (SELECT 1 FROM payload_pins AS p WHERE p.id = e.id)
   AND (pinned <> 0 OR NOT EXISTS (SELECT 1 FROM payload_unpins AS u
                                    WHERE u.payload_id = e.id))
UNION ALL
SELECT 'payload_pins', 'row ' || id || ' was pinned and is gone'
  FROM payload_pins
 WHERE id NOT IN (SELECT id FROM event_payloads WHERE id IS NOT NULL)
UNION ALL
SELECT 'payload_pins', 'row ' || p.id || ' is pinned here, but has another pinned than 1'
  FROM payload_pins AS p, event_payloads AS e
 WHERE e.id = p.id AND e.pinned IS NOT 1
UNION ALL
SELECT 'payload_ledger',
       'has ' || l.entries || ' pins of which ' || l.closed || ' were taken off, but '
       || k.name || ' counted ' || k.entries || ' and ' || k.closed ||
       CASE WHEN l.digest = k.digest THEN '' ELSE ' of other tokens' END ||
       ': entries were removed, or the table was made again'
  FROM (SELECT count(*) AS entries, count(at) AS closed,
               coalesce(sum(token), 0) AS digest
          FROM payload_ledger) AS l,
       (SELECT 'payload_state' AS name, entries, closed, digest FROM payload_state
        UNION ALL
        SELECT 'blackbox_ledgers', entries, closed, digest FROM blackbox_ledgers
         WHERE domain = 'payload') AS k
 WHERE (l.entries, l.closed, l.digest) IS NOT (k.entries, k.closed, k.digest)
UNION ALL
SELECT 'event_payloads',
       'created_at of row ' || coalesce("key", 'without id') ||
       ' is no date: the row never expires'
  FROM payload_archive WHERE at IS NULL
UNION ALL
SELECT 'event_payloads',
       'size_bytes of row ' || coalesce(id, 'without id') ||
       ' is not the length of its bodies'
  FROM event_payloads
 WHERE size_bytes IS NOT coalesce(length(CAST(request_body AS BLOB)), 0)
                       + coalesce(length(CAST(response_body AS BLOB)), 0)
UNION ALL
SELECT 'payload_state', 'has not the one row that it must have'
 WHERE (SELECT count(*) FROM payload_state WHERE bulk = 0) <> 1;

CREATE TABLE IF NOT EXISTS main.event_payloads(
  id                   TEXT PRIMARY KEY DEFAULT (
    lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
    substr(lower(hex(randomblob(2))), 2) || '-' ||
    substr('89ab', 1 + (random() & 3), 1) ||
    substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
  event_id             TEXT NOT NULL,
  agent_id             TEXT NOT NULL,
  request_body         TEXT,
  response_body        TEXT,
  size_bytes           INTEGER NOT NULL DEFAULT 0,
  purpose              TEXT NOT NULL CHECK (purpose IN ('archive', 'evidence')),
  pinned               INTEGER NOT NULL DEFAULT 0,
  kill_switch_event_id TEXT,
  created_at           TEXT NOT NULL
    DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- One row for each pin that was ever set. No row is removed. A column that is NULL
-- at first is set only once: columns and hash by the next call of the module after
-- the pin (the SHA-256 of that many columns of the row), the others by the unpin.
-- Numbers are above 0, because NEW.pin is -1 in a BEFORE trigger if the statement
-- gave none.
CREATE TABLE IF NOT EXISTS main.payload_ledger(
  pin      INTEGER PRIMARY KEY CHECK (pin > 0),
  id       TEXT NOT NULL,
  token    INTEGER NOT NULL DEFAULT (random() & 4294967295),
  columns  INTEGER,
  hash     TEXT,
  at       INTEGER,
  actor    TEXT,
  reason   TEXT,
  event_id TEXT,
  agent_id TEXT,
  kill_switch_event_id TEXT
);

-- A row has at most one pin at a time.
CREATE UNIQUE INDEX IF NOT EXISTS main.payload_pinned
ON payload_ledger(id) WHERE at IS NULL;

CREATE INDEX IF NOT EXISTS main.payload_unpinned
ON payload_ledger(id) WHERE at IS NOT NULL;

-- The pins without a hash, newest first. Because this index is on an expression,
-- SQLite also refuses incremental blob writes to the ledger.
CREATE INDEX IF NOT EXISTS main.payload_unhashed
ON payload_ledger(-pin) WHERE hash IS NULL AND at IS NULL;

-- entries, closed, digest: as in blackbox_ledgers.
CREATE TABLE IF NOT EXISTS main.payload_state(
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  bulk    INTEGER NOT NULL, -- 1 while a bulk act runs: it writes the receipt
  removed INTEGER NOT NULL, -- rows that the last bulk act removed
  entries INTEGER NOT NULL,
  closed  INTEGER NOT NULL,
  digest  INTEGER NOT NULL
);
INSERT INTO main.payload_state(one, bulk, removed, entries, closed, digest)
SELECT 1, 0, 0, count(*), count(at), coalesce(sum(token), 0)
  FROM main.payload_ledger WHERE true
ON CONFLICT (one) DO NOTHING;

INSERT INTO main.blackbox_ledgers(domain, entries, closed, digest)
SELECT 'payload', entries, closed, digest FROM main.payload_state
 WHERE NOT EXISTS (SELECT 1 FROM main.blackbox_ledgers WHERE domain = 'payload');

-- Reads by event and by agent return the newest first, without a sort.
CREATE INDEX IF NOT EXISTS main.payload_by_event ON event_payloads(event_id,
  CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
        AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
       WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
       WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
       WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
        '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
       WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END);

CREATE INDEX IF NOT EXISTS main.payload_by_agent ON event_payloads(agent_id,
  CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
        AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
       WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
       WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
       WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
        '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
       WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END);

CREATE INDEX IF NOT EXISTS main.payload_by_kill_switch
ON event_payloads(kill_switch_event_id,
  CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
        AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
       WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
       WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
       WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
        '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
       WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END)
WHERE kill_switch_event_id IS NOT NULL;

-- The next two indexes together contain every row once, with its size: the rows
-- that clean-up may remove, and the others. So counting never reads a body.
CREATE INDEX IF NOT EXISTS main.payload_by_age ON event_payloads(
  CASE WHEN substr(created_at, 24) = 'Z' AND substr(created_at, 20, 1) = '.'
        AND substr(created_at, 12, 2) < '24' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
       WHEN substr(created_at, 5, 1) <> '-' OR substr(created_at, 12, 2) = '24' THEN NULL
       WHEN substr(created_at, 14, 1) = ':' AND substr(created_at, 20, 1) <> '.' THEN unixepoch(created_at) * 1000
       WHEN substr(created_at, 14, 1) = ':' THEN unixepoch(substr(created_at, 1, 21) || ltrim(substr(created_at, 22),
        '0123456789')) * 1000 + CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
       WHEN length(created_at) = 10 THEN unixepoch(created_at || ' 00:00') * 1000 END,
  size_bytes, id)
WHERE purpose = 'archive' AND pinned = 0;

CREATE INDEX IF NOT EXISTS main.payload_kept
ON event_payloads(purpose, pinned, size_bytes, id)
WHERE purpose <> 'archive' OR pinned <> 0;

----------------------------------------------------------------- inserts --

-- REPLACE would take a protected row that has this id, or this rowid. (-1: none
-- was given.) A plain INSERT fails without our help, and INSERT OR IGNORE of a
-- pinned id passes and changes nothing. A lost row keeps its id for itself.
CREATE TRIGGER IF NOT EXISTS main.payload_insert_replace
BEFORE INSERT ON event_payloads
WHEN EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id)
  OR (EXISTS (SELECT 1 FROM event_payloads WHERE id = NEW.id)
      AND EXISTS (SELECT 1 FROM payload_protected WHERE id = NEW.id))
  OR (NEW.rowid <> -1 AND EXISTS (SELECT 1 FROM payload_protected WHERE payload_rowid = NEW.rowid))
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a row with this id was pinned and is missing; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id)
     AND NOT EXISTS (SELECT 1 FROM event_payloads WHERE id = NEW.id);
  DELETE FROM sqlite_sequence WHERE rowid = -1;
  INSERT OR IGNORE INTO sqlite_sequence(rowid, name, seq)
  VALUES (-1, 'blackbox_probe', 0), (-1, 'blackbox_probe', 1);
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id or rowid and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    FROM sqlite_sequence WHERE rowid = -1 AND seq = 1;
END;

-- Fires only if the row was really written. Sets the columns that the schema
-- computes, and the pin. A trigger of the user may have prevented either.
CREATE TRIGGER IF NOT EXISTS main.payload_insert
AFTER INSERT ON event_payloads
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: rowid -1 is reserved; omit the rowid')
   WHERE NEW.rowid = -1; -- for the BEFORE trigger it means no rowid
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'ValidationError: event_id and agent_id must be text that is not empty; set both')
   WHERE typeof(NEW.event_id) <> 'text' OR NEW.event_id = ''
      OR typeof(NEW.agent_id) <> 'text' OR NEW.agent_id = '';
  SELECT RAISE(ABORT, 'ValidationError: created_at must be a date such as 2026-01-31T12:00:00.000Z or 2026-01-31 12:00:00')
   WHERE NOT CASE WHEN typeof(NEW.created_at) = 'text' -- the usual form, quickly
                   AND (NEW.created_at GLOB '????-??-??T[01]?:??:??.???Z'
                        OR NEW.created_at GLOB '????-??-??T2[0-3]:??:??.???Z')
                  THEN unixepoch(NEW.created_at) IS NOT NULL
                  ELSE NOT EXISTS (SELECT 1 FROM payload_times
                                    WHERE rid = NEW.rowid AND at IS NULL) END;
  SELECT RAISE(ABORT, 'ValidationError: pinned must be 0 or 1')
   WHERE NEW.pinned NOT IN (0, 1);
  UPDATE event_payloads
     SET id = coalesce(id,
           lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
           substr(lower(hex(randomblob(2))), 2) || '-' ||
           substr('89ab', 1 + (random() & 3), 1) ||
           substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
         pinned = max(coalesce(pinned, 0), purpose = 'evidence'),
         size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0)
                    + coalesce(length(CAST(response_body AS BLOB)), 0)
   WHERE rowid = NEW.rowid
     AND (NEW.id IS NULL OR NEW.pinned IS NULL
          OR (NEW.purpose = 'evidence' AND NEW.pinned = 0)
          OR NEW.size_bytes IS NOT coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0));
  INSERT INTO payload_pinning(id, wanted)
  VALUES (coalesce(NEW.id, (SELECT id FROM event_payloads WHERE rowid = NEW.rowid)),
          NEW.pinned <> 0 OR NEW.purpose = 'evidence');
  SELECT RAISE(ABORT, 'MisuseError: a trigger on event_payloads or payload_ledger prevents this row from being pinned; drop the trigger')
    FROM event_payloads AS e
   WHERE e.rowid = NEW.rowid AND (NEW.pinned <> 0 OR NEW.purpose = 'evidence')
     AND NOT EXISTS (SELECT 1 FROM payload_pins AS p WHERE p.id = e.id);
END;

-- On a view: INSERT .. SELECT into a table with triggers makes a temporary table.
CREATE TRIGGER IF NOT EXISTS main.payload_pinning_insert
INSTEAD OF INSERT ON payload_pinning
WHEN NEW.wanted AND NEW.id IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id)
BEGIN
  INSERT INTO payload_ledger(id) VALUES (NEW.id);
END;

----------------------------------------------------------------- updates --

CREATE TRIGGER IF NOT EXISTS main.payload_update_check
BEFORE UPDATE ON event_payloads
BEGIN
  -- A protected row cannot change, with four exceptions: size_bytes is corrected,
  -- a missing id is set, the pin is set, and the pin is cleared after the ledger
  -- has recorded the unpin.
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE (coalesce(OLD.pinned, 0) <> 0
          OR EXISTS (SELECT 1 FROM payload_pins WHERE id = OLD.id)
          OR (OLD.purpose IS 'evidence'
              AND NOT EXISTS (SELECT 1 FROM payload_unpins WHERE payload_id = OLD.id)))
     AND NOT (NEW.rowid = OLD.rowid
              AND (NEW.id IS OLD.id COLLATE BINARY OR OLD.id IS NULL)
              AND NEW.event_id IS OLD.event_id COLLATE BINARY AND NEW.agent_id IS OLD.agent_id COLLATE BINARY
              AND NEW.purpose IS OLD.purpose COLLATE BINARY AND NEW.created_at IS OLD.created_at COLLATE BINARY
              AND NEW.kill_switch_event_id IS OLD.kill_switch_event_id COLLATE BINARY
              AND NEW.request_body IS OLD.request_body COLLATE BINARY
              AND NEW.response_body IS OLD.response_body COLLATE BINARY
              AND (NEW.size_bytes IS OLD.size_bytes
                   OR NEW.size_bytes IS coalesce(length(CAST(OLD.request_body AS BLOB)), 0)
                                      + coalesce(length(CAST(OLD.response_body AS BLOB)), 0))
              AND (NEW.pinned IS OLD.pinned OR NEW.pinned IS 1
                   OR (NEW.pinned IS 0
                       AND NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = OLD.id)
                       AND EXISTS (SELECT 1 FROM payload_unpins WHERE payload_id = OLD.id))));
  -- UPDATE OR REPLACE would delete the row that has this id or rowid.
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE NEW.id IS NOT OLD.id COLLATE BINARY
     AND (EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id)
          OR EXISTS (SELECT 1 FROM payload_protected WHERE id = NEW.id AND payload_rowid <> OLD.rowid));
  SELECT RAISE(ABORT, 'PinnedError: this rowid belongs to a pinned row; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    FROM payload_protected
   WHERE NEW.rowid <> OLD.rowid AND payload_rowid = NEW.rowid;
  SELECT RAISE(ABORT, 'ValidationError: rowid -1 is reserved; use another rowid')
   WHERE NEW.rowid = -1 AND OLD.rowid <> -1;
  SELECT RAISE(ABORT, 'ValidationError: event_id and agent_id must be text that is not empty; set both')
   WHERE (NEW.event_id IS NOT OLD.event_id AND (typeof(NEW.event_id) <> 'text' OR NEW.event_id = ''))
      OR (NEW.agent_id IS NOT OLD.agent_id AND (typeof(NEW.agent_id) <> 'text' OR NEW.agent_id = ''));
  SELECT RAISE(ABORT, 'ValidationError: created_at must be a date such as 2026-01-31T12:00:00.000Z or 2026-01-31 12:00:00')
   WHERE NEW.created_at IS NOT OLD.created_at
     AND CASE WHEN substr(NEW.created_at, 24) = 'Z' AND substr(NEW.created_at, 20, 1) = '.'
               AND substr(NEW.created_at, 12, 2) < '24' THEN unixepoch(NEW.created_at) * 1000 + substr(NEW.created_at, 21, 3)
              WHEN substr(NEW.created_at, 5, 1) <> '-' OR substr(NEW.created_at, 12, 2) = '24' THEN NULL
              WHEN substr(NEW.created_at, 14, 1) = ':' AND substr(NEW.created_at, 20, 1) <> '.' THEN unixepoch(NEW.created_at) * 1000
              WHEN substr(NEW.created_at, 14, 1) = ':' THEN unixepoch(substr(NEW.created_at, 1, 21) || ltrim(substr(NEW.created_at, 22),
               '0123456789')) * 1000 + CAST(substr(NEW.created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
              WHEN length(NEW.created_at) = 10 THEN unixepoch(NEW.created_at || ' 00:00') * 1000 END IS NULL;
  SELECT RAISE(ABORT, 'ValidationError: pinned must be 0 or 1')
   WHERE NEW.pinned IS NOT OLD.pinned AND NEW.pinned IS NOT 0 AND NEW.pinned IS NOT 1;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_update
AFTER UPDATE ON event_payloads
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE NEW.id IS NOT OLD.id
     AND EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id);
  UPDATE event_payloads
     SET pinned = max(pinned, purpose = 'evidence' AND OLD.purpose <> 'evidence'),
         size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0)
                    + coalesce(length(CAST(response_body AS BLOB)), 0)
   WHERE rowid = NEW.rowid
     AND ((NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence' AND NEW.pinned = 0)
          OR NEW.size_bytes IS NOT coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0));
  INSERT INTO payload_pinning(id, wanted)
  VALUES (NEW.id, NEW.pinned <> 0
          OR (NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence')
          OR (OLD.id IS NULL AND NEW.purpose = 'evidence'));
  SELECT RAISE(ABORT, 'MisuseError: a trigger on event_payloads or payload_ledger prevents this row from being pinned; drop the trigger')
   WHERE NEW.id IS NOT NULL
     AND (NEW.pinned <> 0
          OR (NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence'))
     AND NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id);
END;

----------------------------------------------------------------- deletes --

CREATE TRIGGER IF NOT EXISTS main.payload_delete_check
BEFORE DELETE ON event_payloads
WHEN coalesce(OLD.pinned, 0) <> 0
  OR EXISTS (SELECT 1 FROM payload_pins WHERE id = OLD.id)
  OR (OLD.purpose IS 'evidence'
      AND NOT EXISTS (SELECT 1 FROM payload_unpins WHERE payload_id = OLD.id))
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be deleted; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

-- Plain deletes of one minute share a receipt; a bulk act has payload_state.removed.
CREATE TRIGGER IF NOT EXISTS main.payload_delete
AFTER DELETE ON event_payloads
WHEN NOT EXISTS (SELECT 1 FROM payload_state AS s
                   JOIN retention_log AS r ON r.id = s.removed
                  WHERE s.bulk = 1
                    AND r.at = CAST((julianday('now') - 2440587.5) * 86400000.0
                                    AS INTEGER))
BEGIN
  INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         'payload', 'manual', 1, OLD.size_bytes, r.at, r.at
    FROM (SELECT CASE WHEN substr(OLD.created_at, 24) = 'Z' AND substr(OLD.created_at, 20, 1) = '.'
                       AND substr(OLD.created_at, 12, 2) < '24' THEN unixepoch(OLD.created_at) * 1000 + substr(OLD.created_at, 21, 3)
                      WHEN substr(OLD.created_at, 5, 1) <> '-' OR substr(OLD.created_at, 12, 2) = '24' THEN NULL
                      WHEN substr(OLD.created_at, 14, 1) = ':' AND substr(OLD.created_at, 20, 1) <> '.' THEN unixepoch(OLD.created_at) * 1000
                      WHEN substr(OLD.created_at, 14, 1) = ':' THEN unixepoch(substr(OLD.created_at, 1, 21) || ltrim(substr(OLD.created_at, 22),
                       '0123456789')) * 1000 + CAST(substr(OLD.created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
                      WHEN length(OLD.created_at) = 10 THEN unixepoch(OLD.created_at || ' 00:00') * 1000 END AS at) AS r;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_sweep_run
INSTEAD OF INSERT ON payload_sweep
BEGIN
  -- Text is greater than every number, and would remove the whole archive.
  SELECT RAISE(ABORT, 'ValidationError: before must be a time in milliseconds since 1970 UTC, since such a time or NULL, and max_rows an integer or NULL')
   WHERE typeof(NEW.before) NOT IN ('integer', 'real')
      OR typeof(coalesce(NEW.since, 0)) NOT IN ('integer', 'real')
      OR typeof(coalesce(NEW.max_rows, 0)) NOT IN ('integer', 'real')
      OR NEW.max_rows <> CAST(NEW.max_rows AS INTEGER);
  INSERT INTO retention_log(at, domain, rule, actor, rows, bytes, oldest, newest)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         'payload', coalesce(NEW.rule, 'payload.age'), NEW.actor,
         -n, b, first, last
    FROM (SELECT count(*) AS n, sum(bytes) AS b, min(at) AS first, max(at) AS last
            FROM (SELECT at, bytes FROM payload_archive
                   WHERE at < NEW.before AND at > coalesce(NEW.since, -1e18)
                   ORDER BY at LIMIT CAST(coalesce(NEW.max_rows, -1) AS INTEGER)))
   WHERE n > 0; -- not GROUP BY: with it, SQLite 3.41.0 computes NULL as sum
  UPDATE payload_state -- removed: until the end, the id of the receipt
     SET bulk = 1,
         removed = CASE changes() WHEN 0 THEN 0
                   ELSE (SELECT max(id) FROM retention_log) END;
  DELETE FROM event_payloads
   WHERE rowid IN (SELECT rid FROM payload_archive
                    WHERE at < NEW.before AND at > coalesce(NEW.since, -1e18)
                    ORDER BY at LIMIT CAST(coalesce(NEW.max_rows, -1) AS INTEGER));
  -- Rows that a trigger of the user has kept are not in the receipt.
  UPDATE retention_log
     SET rows = changes(),
         bytes = bytes - coalesce((SELECT sum(bytes) FROM (
           SELECT bytes FROM payload_archive
            WHERE at < NEW.before AND at > coalesce(NEW.since, -1e18)
            ORDER BY at
            LIMIT (SELECT max(0, -r.rows - changes())
                     FROM payload_state AS s
                     JOIN retention_log AS r ON r.id = s.removed))), 0)
   WHERE id = (SELECT removed FROM payload_state);
  DELETE FROM retention_log
   WHERE id = (SELECT removed FROM payload_state) AND rows = 0;
  UPDATE payload_state
     SET bulk = 0,
         removed = coalesce((SELECT rows FROM retention_log
                              WHERE id = payload_state.removed), 0);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_clear_run
INSTEAD OF INSERT ON payload_clear
BEGIN
  INSERT INTO retention_log(at, domain, rule, actor, rows, bytes, oldest, newest)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         'payload', 'clear', NEW.actor, -n, b, first, last
    FROM (SELECT count(*) AS n, sum(bytes) AS b, min(at) AS first, max(at) AS last
            FROM payload_archive) WHERE n > 0; -- not GROUP BY, as above
  UPDATE payload_state -- removed: until the end, the id of the receipt
     SET bulk = 1,
         removed = CASE changes() WHEN 0 THEN 0
                   ELSE (SELECT max(id) FROM retention_log) END;
  DELETE FROM event_payloads
   WHERE rowid IN (SELECT rid FROM payload_archive);
  -- Rows that a trigger of the user has kept are not in the receipt.
  UPDATE retention_log
     SET rows = changes(),
         bytes = bytes - CASE WHEN -rows > changes()
                   THEN (SELECT sum(bytes) FROM payload_archive) ELSE 0 END
   WHERE id = (SELECT removed FROM payload_state);
  DELETE FROM retention_log
   WHERE id = (SELECT removed FROM payload_state) AND rows = 0;
  UPDATE payload_state
     SET bulk = 0,
         removed = coalesce((SELECT rows FROM retention_log
                              WHERE id = payload_state.removed), 0);
END;

---------------------------------------------------------------- history --

-- The clean-up that a write carries removes no rows up to this time.
CREATE TRIGGER IF NOT EXISTS main.payload_history_insert
INSTEAD OF INSERT ON payload_history
BEGIN
  INSERT INTO blackbox_settings(name, value)
  SELECT 'payload.history_until', max(1, r.at)
    FROM (SELECT CASE WHEN substr(NEW.created_at, 24) = 'Z' AND substr(NEW.created_at, 20, 1) = '.'
                       AND substr(NEW.created_at, 12, 2) < '24' THEN unixepoch(NEW.created_at) * 1000 + substr(NEW.created_at, 21, 3)
                      WHEN substr(NEW.created_at, 5, 1) <> '-' OR substr(NEW.created_at, 12, 2) = '24' THEN NULL
                      WHEN substr(NEW.created_at, 14, 1) = ':' AND substr(NEW.created_at, 20, 1) <> '.' THEN unixepoch(NEW.created_at) * 1000
                      WHEN substr(NEW.created_at, 14, 1) = ':' THEN unixepoch(substr(NEW.created_at, 1, 21) || ltrim(substr(NEW.created_at, 22),
                       '0123456789')) * 1000 + CAST(substr(NEW.created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
                      WHEN length(NEW.created_at) = 10 THEN unixepoch(NEW.created_at || ' 00:00') * 1000 END AS at) AS r
   WHERE r.at < (julianday('now') - 2440587.5) * 86400000.0
              - 86400000 * (SELECT value FROM blackbox_limits
                             WHERE name = 'payload.retention_days')
  ON CONFLICT (name) DO UPDATE SET value = excluded.value
   WHERE value < excluded.value;
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
  INSERT INTO payload_saving(rid, kill_switch_event_id, event_id, agent_id,
    request_body, response_body, created_at)
  VALUES ((
     WITH exchange(at) AS ( -- no CAST: its affinity would keep the index out
       SELECT round((julianday(coalesce(NEW.created_at, 'now')) - 2440587.5) * 86400000.0))
     SELECT rid
       FROM (SELECT near.rid, min(abs(near.at - (SELECT at FROM exchange)))
               FROM (SELECT * FROM (SELECT rid, at FROM payload_times
                                     WHERE event_id = NEW.event_id AND at <= (SELECT at FROM exchange)
                                     ORDER BY at DESC LIMIT 8)
                     UNION ALL
                     SELECT * FROM (SELECT rid, at FROM payload_times
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
                AND NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = e.id))),
    NEW.kill_switch_event_id, NEW.event_id, NEW.agent_id, NEW.request_body, NEW.response_body,
    coalesce(NEW.created_at, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')));
END;

CREATE TRIGGER IF NOT EXISTS main.payload_saving_found
INSTEAD OF INSERT ON payload_saving
WHEN NEW.rid IS NOT NULL
BEGIN
  UPDATE event_payloads
     SET purpose = 'evidence', pinned = 1,
         kill_switch_event_id = NEW.kill_switch_event_id,
         created_at = NEW.created_at
   WHERE rowid = NEW.rid;
  INSERT INTO payload_saving(kill_switch_event_id, event_id, agent_id,
    request_body, response_body, created_at) -- where a trigger of others kept it
  SELECT NEW.kill_switch_event_id, NEW.event_id, NEW.agent_id, NEW.request_body, NEW.response_body, NEW.created_at
   WHERE changes() = 0;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_saving_new
INSTEAD OF INSERT ON payload_saving
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

------------------------------------------------------------------ ledger --

CREATE TRIGGER IF NOT EXISTS main.payload_ledger_insert
BEFORE INSERT ON payload_ledger
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_ledger is written by triggers only; pin a row with UPDATE event_payloads SET pinned = 1')
   WHERE (NEW.pin IS NOT NULL AND NEW.pin IS NOT -1)
      OR (NEW.columns, NEW.hash, NEW.at, NEW.actor, NEW.reason, NEW.event_id,
          NEW.agent_id, NEW.kill_switch_event_id)
         IS NOT (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
      OR typeof(NEW.token) <> 'integer' OR NEW.token NOT BETWEEN 0 AND 4294967295
      OR EXISTS (SELECT 1 FROM payload_ledger WHERE pin = NEW.pin)
      OR EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id)
      OR NOT EXISTS (SELECT 1 FROM event_payloads
                      WHERE id = NEW.id AND id IS NEW.id COLLATE BINARY
                        AND (pinned <> 0 OR purpose = 'evidence'));
END;

-- Two changes are allowed for a pin in force: its hash is set, and it ends, with
-- an actor, a reason and the current time.
CREATE TRIGGER IF NOT EXISTS main.payload_ledger_update
BEFORE UPDATE ON payload_ledger
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_ledger is a record and cannot be changed; to unpin a row, INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE NOT coalesce(
           OLD.at IS NULL AND NEW.pin IS OLD.pin AND NEW.id IS OLD.id
           AND NEW.token IS OLD.token
           AND ((NEW.hash IS OLD.hash AND NEW.columns IS OLD.columns
                 AND NEW.at IS CAST((julianday('now') - 2440587.5) * 86400000.0
                                    AS INTEGER)
                 AND (NEW.event_id, NEW.agent_id, NEW.kill_switch_event_id)
                     IS (SELECT event_id, agent_id, kill_switch_event_id
                           FROM event_payloads WHERE id = OLD.id))
                OR (OLD.hash IS NULL AND typeof(NEW.columns) = 'integer'
                    AND length(NEW.hash) = 64
                    AND NEW.hash NOT GLOB '*[^0-9a-f]*'
                    AND (NEW.at, NEW.actor, NEW.reason, NEW.event_id,
                         NEW.agent_id, NEW.kill_switch_event_id)
                        IS (NULL, NULL, NULL, NULL, NULL, NULL))), 0);
END;

-- Both are visible text, without characters that could hide something.
CREATE TRIGGER IF NOT EXISTS main.payload_ledger_reason
BEFORE UPDATE OF at ON payload_ledger
WHEN OLD.at IS NULL AND NEW.at IS NOT NULL
BEGIN
  SELECT CASE
           WHEN NOT coalesce(
                  typeof(NEW.actor) = 'text' AND instr(NEW.actor, char(0)) = 0
                  AND NEW.actor NOT GLOB '*[' || char(1) || '-' || char(31, 127)
                                         || '-' || char(159) || ']*'
                  AND NEW.actor GLOB mark, 0)
           THEN RAISE(ABORT, 'ValidationError: actor must be visible text without control characters')
           WHEN NOT coalesce(
                  typeof(NEW.reason) = 'text' AND instr(NEW.reason, char(0)) = 0
                  AND replace(replace(replace(NEW.reason, char(9), ''), char(10), ''), char(13), '')
                      NOT GLOB '*[' || char(1) || '-' || char(31, 127) || '-'
                               || char(159) || ']*'
                  AND NEW.reason GLOB mark, 0)
           THEN RAISE(ABORT, 'ValidationError: reason must be visible text without control characters other than tabs and line ends')
         END
    FROM (SELECT '*[^' || char(1) || '-' || char(32) || char(127) || '-' ||
                 char(160, 173, 847, 1564, 4447, 4448, 5760, 6068, 6069, 6155) ||
                 '-' || char(6158, 8192) || '-' || char(8207, 8232) || '-' ||
                 char(8239, 8287) || '-' || char(8303, 10240, 12288, 12644, 65024)
                 || '-' || char(65039, 65279, 65440, 65529) || '-' ||
                 char(65531, 917504) || '-' || char(921599) || ']*' AS mark);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_ledger_delete
BEFORE DELETE ON payload_ledger
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_ledger is a record and cannot be deleted; to unpin a row, INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_insert
INSTEAD OF INSERT ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'NotFoundError: no pinned row of event_payloads has this payload_id; SELECT id FROM payload_pins lists the pinned rows')
   WHERE NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.payload_id);
  SELECT RAISE(ABORT, 'ValidationError: only payload_id, actor and reason can be set; omit the other columns')
   WHERE (NEW.id, NEW.at, NEW.pin, NEW.event_id, NEW.agent_id, NEW.kill_switch_event_id)
         IS NOT (NULL, NULL, NULL, NULL, NULL, NULL);
  UPDATE payload_ledger
     SET at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         actor = NEW.actor, reason = NEW.reason,
         (event_id, agent_id, kill_switch_event_id) =
         (SELECT event_id, agent_id, kill_switch_event_id
            FROM event_payloads WHERE id = NEW.payload_id)
   WHERE id = NEW.payload_id AND at IS NULL;
  UPDATE event_payloads SET pinned = 0 WHERE id = NEW.payload_id;
  SELECT RAISE(ABORT, 'MisuseError: a trigger on payload_ledger or event_payloads prevents this row from being unpinned; drop the trigger')
   WHERE EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.payload_id)
      OR EXISTS (SELECT 1 FROM event_payloads
                  WHERE id = NEW.payload_id AND pinned <> 0);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_update
INSTEAD OF UPDATE ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_unpins is a record and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_delete
INSTEAD OF DELETE ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_unpins is a record and cannot be deleted');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pins_insert
INSTEAD OF INSERT ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_pins is written by triggers only; pin a row with UPDATE event_payloads SET pinned = 1');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pins_update
INSTEAD OF UPDATE ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_pins is written by triggers only and cannot be changed; INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pins_delete
INSTEAD OF DELETE ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pin cannot be deleted; to unpin a row, INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

-- The length of the ledger is stored in two places. Both numbers only grow, by one
-- entry at a time.
CREATE TRIGGER IF NOT EXISTS main.payload_ledger_added
AFTER INSERT ON payload_ledger
BEGIN
  UPDATE payload_state SET entries = entries + 1, digest = digest + NEW.token
   WHERE one = 1;
  UPDATE blackbox_ledgers SET entries = entries + 1, digest = digest + NEW.token
   WHERE domain = 'payload';
END;

CREATE TRIGGER IF NOT EXISTS main.payload_ledger_closed
AFTER UPDATE OF at ON payload_ledger
WHEN OLD.at IS NULL AND NEW.at IS NOT NULL
BEGIN
  UPDATE payload_state SET closed = closed + 1 WHERE one = 1;
  UPDATE blackbox_ledgers SET closed = closed + 1 WHERE domain = 'payload';
END;

CREATE TRIGGER IF NOT EXISTS main.payload_state_update
BEFORE UPDATE OF entries, closed, digest ON payload_state
WHEN NOT coalesce(
       (NEW.entries = OLD.entries + 1 AND NEW.closed = OLD.closed
        AND NEW.digest - OLD.digest BETWEEN 0 AND 4294967295)
       OR (NEW.entries = OLD.entries AND NEW.closed = OLD.closed + 1
           AND NEW.digest = OLD.digest), 0)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: the length of the ledger is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_ledgers_update
BEFORE UPDATE ON blackbox_ledgers
WHEN OLD.domain = 'payload' AND NOT coalesce(
       NEW.domain = 'payload'
       AND ((NEW.entries = OLD.entries + 1 AND NEW.closed = OLD.closed
             AND NEW.digest - OLD.digest BETWEEN 0 AND 4294967295)
            OR (NEW.entries = OLD.entries AND NEW.closed = OLD.closed + 1
                AND NEW.digest = OLD.digest)), 0)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: the length of the ledger is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_ledgers_insert
BEFORE INSERT ON blackbox_ledgers
WHEN EXISTS (SELECT 1 FROM blackbox_ledgers WHERE domain = NEW.domain AND domain = 'payload')
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: the length of the ledger is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_ledgers_delete
BEFORE DELETE ON blackbox_ledgers
WHEN OLD.domain = 'payload'
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: the length of the ledger is written by triggers only and cannot be changed');
END;

--------------------------------------------------- rows found in the table --

-- Rows of the program that made the table get an id, the correct size, and pins.
UPDATE main.event_payloads
   SET id = lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
            substr(lower(hex(randomblob(2))), 2) || '-' ||
            substr('89ab', 1 + (random() & 3), 1) ||
            substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))
 WHERE id IS NULL;

UPDATE main.event_payloads
   SET pinned = (purpose = 'evidence' OR id IN (SELECT id FROM main.payload_pins))
 WHERE pinned IS NULL;

UPDATE main.event_payloads
   SET size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0)
                  + coalesce(length(CAST(response_body AS BLOB)), 0)
 WHERE NOT EXISTS (SELECT 1 FROM main.blackbox_domains WHERE domain = 'payload')
   AND size_bytes IS NOT coalesce(length(CAST(request_body AS BLOB)), 0)
                       + coalesce(length(CAST(response_body AS BLOB)), 0);

-- On later runs: pins that were lost meanwhile, unless the evidence was unpinned.
UPDATE main.event_payloads SET pinned = 1
 WHERE (purpose <> 'archive' OR pinned <> 0)
   AND id NOT IN (SELECT id FROM main.payload_pins)
   AND (pinned <> 0 OR id NOT IN (SELECT payload_id FROM main.payload_unpins));

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms)
VALUES ('payload.age', 'payload', 'payload_due', 'payload.retention_days', 86400000)
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms;

INSERT INTO main.blackbox_domains(domain, version) VALUES ('payload', 2)
ON CONFLICT (domain) DO UPDATE SET version = excluded.version;
