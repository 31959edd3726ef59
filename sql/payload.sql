-- payload.sql: the archive of exchanges and the evidence of what went wrong.
--
-- Needs core.sql. Runs alone, any number of times; an event_payloads table
-- that another program made is taken over where it stands.
--
-- Tables  event_payloads   one row an exchange; purpose 'archive' or 'evidence'
--         payload_pins     ids of the rows that nothing may remove or change
--         payload_unpins   who let go of a pin, when and why; INSERT unpins
--         payload_state    one row: what the running bulk act is
-- Views   payload_rows     event_payloads with created_ms, its time as a number
--         payload_archive  archive rows by age: what clean-up may take
--         payload_due      the same, with the pinned ones and why they stay
--         payload_sweep    INSERT removes archive rows older than a time
--         payload_clear    INSERT removes all archive rows
--         payload_check    contradictions (none, when all is well)
--
-- Invariants, whoever writes and with whatever conflict clause:
--   * a row of payload_pins has its row in event_payloads, unchanged
--   * evidence is pinned; size_bytes is the true length of both bodies
--   * a pin goes only together with a row in payload_unpins, which stays
--   * created_at of a new row is a date that SQLite can read
-- Age is compared as time. created_at is text in one of two forms,
-- '2026-01-31 12:00:00' or '2026-01-31T12:00:00.000Z'; other text found in
-- older rows has no age, so such a row never expires. The fifth character is
-- looked at first, as SQLite also reads 'now', '12:00' and '2024' as dates.
--
-- Limits: DROP TABLE takes pinned rows with it, as no trigger sees it;
-- blackbox_check() tells afterwards which ids are gone.

INSERT INTO main.blackbox_setting_defs(name, kind, preset, low, high, meaning)
VALUES
  ('payload.enabled', 'integer', 0, 0, 1,
   'whether payload_queue() stores anything'),
  ('payload.retention_days', 'integer', 7, 7, 365,
   'days that an archive row is kept'),
  ('payload.flush_interval_ms', 'integer', 5000, 1000, 60000,
   'milliseconds that a queued row waits at most'),
  ('payload.flush_batch_size', 'integer', 20, 1, 100,
   'queued rows that are written together'),
  ('payload.queue_max_bytes', 'integer', 67108864, 1048576, 1073741824,
   'bytes that may wait in the queue'),
  ('payload.window', 'integer', 50, 1, 10000,
   'rows an agent of a ring that is made without a window')
ON CONFLICT (name) DO UPDATE
  SET kind = excluded.kind, preset = excluded.preset, low = excluded.low,
      high = excluded.high, meaning = excluded.meaning;

CREATE VIEW IF NOT EXISTS main.payload_rows AS
SELECT *,
       CASE WHEN substr(created_at, 5, 1) = '-'
            THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                      AS INTEGER) END AS created_ms
  FROM event_payloads;

-- What clean-up may take. The plan (payload_due) and the act (payload_sweep)
-- read this same list.
CREATE VIEW IF NOT EXISTS main.payload_archive AS
SELECT id AS "key", size_bytes AS bytes,
       CASE WHEN substr(created_at, 5, 1) = '-'
            THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                      AS INTEGER) END AS at,
       rowid AS rid
  FROM event_payloads
 WHERE purpose = 'archive' AND pinned = 0;

CREATE VIEW IF NOT EXISTS main.payload_due AS
SELECT "key", bytes, at, NULL AS blocked_by FROM payload_archive
UNION ALL
SELECT id, size_bytes,
       CASE WHEN substr(created_at, 5, 1) = '-'
            THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                      AS INTEGER) END,
       'pinned'
  FROM event_payloads
 WHERE (purpose <> 'archive' OR pinned <> 0) AND purpose = 'archive';

-- Commands as rows. before: milliseconds since 1970 UTC, exclusive. max_rows:
-- the most that go, oldest first; NULL is all.
CREATE VIEW IF NOT EXISTS main.payload_sweep AS
SELECT NULL AS before, NULL AS max_rows, NULL AS rule, NULL AS actor WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_clear AS
SELECT NULL AS actor WHERE 0;

CREATE VIEW IF NOT EXISTS main.payload_check AS
SELECT 'event_payloads' AS object,
       'pinned row ' || coalesce(id, 'without id') ||
       ' is not in payload_pins; UPDATE event_payloads SET pinned = 1 pins it anew' AS problem
  FROM event_payloads
 WHERE (purpose <> 'archive' OR pinned <> 0) AND pinned <> 0
   AND id NOT IN (SELECT id FROM payload_pins)
UNION ALL
SELECT 'payload_pins', 'row ' || id || ' was pinned and is gone'
  FROM payload_pins
 WHERE id NOT IN (SELECT id FROM event_payloads WHERE id IS NOT NULL)
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

-- pin numbers are never used twice, so that a row of payload_unpins stands
-- for one pin and no later one of the same row. Numbers are above 0 because a
-- BEFORE trigger sees -1 where none was given, and must not mistake it.
CREATE TABLE IF NOT EXISTS main.payload_pins(
  pin INTEGER PRIMARY KEY AUTOINCREMENT CHECK (pin > 0),
  id  TEXT NOT NULL UNIQUE
);

CREATE TABLE IF NOT EXISTS main.payload_unpins(
  id         INTEGER PRIMARY KEY CHECK (id > 0),
  payload_id TEXT NOT NULL,
  actor      TEXT NOT NULL CHECK (trim(actor) <> ''),
  reason     TEXT NOT NULL CHECK (trim(reason) <> ''),
  at         INTEGER, -- from here on filled in by the schema
  pin        INTEGER UNIQUE,
  event_id   TEXT,
  agent_id   TEXT,
  kill_switch_event_id TEXT
);

CREATE TABLE IF NOT EXISTS main.payload_state(
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  bulk    INTEGER NOT NULL, -- 1 while a bulk act runs: it writes the receipt
  removed INTEGER NOT NULL  -- rows that the last bulk act removed
);
INSERT INTO main.payload_state(one, bulk, removed) VALUES (1, 0, 0)
ON CONFLICT (one) DO NOTHING;

-- Reads by event and by agent come newest first, without a sort.
CREATE INDEX IF NOT EXISTS main.payload_by_event ON event_payloads(event_id,
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END);

CREATE INDEX IF NOT EXISTS main.payload_by_agent ON event_payloads(agent_id,
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END);

CREATE INDEX IF NOT EXISTS main.payload_by_kill_switch
ON event_payloads(kill_switch_event_id,
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END)
WHERE kill_switch_event_id IS NOT NULL;

-- The next two hold every row once, with its size: what clean-up may take,
-- and the rest. Counting and choosing never reads a body.
CREATE INDEX IF NOT EXISTS main.payload_by_age ON event_payloads(
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END,
  size_bytes, id)
WHERE purpose = 'archive' AND pinned = 0;

CREATE INDEX IF NOT EXISTS main.payload_kept
ON event_payloads(purpose, pinned, size_bytes, id)
WHERE purpose <> 'archive' OR pinned <> 0;

----------------------------------------------------------------- inserts --

-- REPLACE by rowid would take the row that has it now. (-1: none was given.)
CREATE TRIGGER IF NOT EXISTS main.payload_insert_rowid
BEFORE INSERT ON event_payloads
WHEN NEW.rowid <> -1
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: this rowid belongs to a pinned row; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    FROM event_payloads AS e
   WHERE e.rowid = NEW.rowid AND e.id IS NOT NEW.id
     AND (e.pinned <> 0 OR e.id IN (SELECT id FROM payload_pins));
END;

-- Here only when the row was really written: INSERT OR IGNORE of a pinned id
-- passes, REPLACE is undone.
CREATE TRIGGER IF NOT EXISTS main.payload_insert
AFTER INSERT ON event_payloads
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: rowid -1 stands for none; leave the rowid out')
   WHERE NEW.rowid = -1; -- the trigger above took it for none
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'ValidationError: event_id and agent_id must be text that is not empty')
   WHERE typeof(NEW.event_id) <> 'text' OR NEW.event_id = ''
      OR typeof(NEW.agent_id) <> 'text' OR NEW.agent_id = '';
  SELECT RAISE(ABORT, 'ValidationError: created_at must be a date such as 2026-01-31T12:00:00.000Z or 2026-01-31 12:00:00')
   WHERE substr(NEW.created_at, 5, 1) <> '-'
      OR julianday(NEW.created_at) IS NULL;
  SELECT RAISE(ABORT, 'ValidationError: pinned must be 0 or 1')
   WHERE NEW.pinned NOT IN (0, 1);
  UPDATE event_payloads
     SET id = coalesce(id,
           lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
           substr(lower(hex(randomblob(2))), 2) || '-' ||
           substr('89ab', 1 + (random() & 3), 1) ||
           substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
         pinned = max(pinned, purpose = 'evidence'),
         size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0)
                    + coalesce(length(CAST(response_body AS BLOB)), 0)
   WHERE rowid = NEW.rowid
     AND (NEW.id IS NULL OR (NEW.purpose = 'evidence' AND NEW.pinned = 0)
          OR NEW.size_bytes IS NOT coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0));
  INSERT INTO payload_pins(id)
  SELECT id FROM event_payloads
   WHERE rowid = NEW.rowid AND (NEW.pinned <> 0 OR NEW.purpose = 'evidence')
     AND id NOT IN (SELECT id FROM payload_pins);
END;

----------------------------------------------------------------- updates --

CREATE TRIGGER IF NOT EXISTS main.payload_update_check
BEFORE UPDATE ON event_payloads
BEGIN
  -- A pinned row stays as it is, but for four things: size_bytes put right, an
  -- id given where it has none, the pin set, and the pin taken off once
  -- payload_unpins has let go of it.
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE (OLD.pinned <> 0 OR OLD.id IN (SELECT id FROM payload_pins)
          OR (OLD.id IS NULL AND OLD.purpose = 'evidence'))
     AND NOT (NEW.rowid = OLD.rowid AND (NEW.id IS OLD.id OR OLD.id IS NULL)
              AND NEW.event_id IS OLD.event_id
              AND NEW.agent_id IS OLD.agent_id
              AND NEW.purpose IS OLD.purpose
              AND NEW.kill_switch_event_id IS OLD.kill_switch_event_id
              AND NEW.created_at IS OLD.created_at
              AND NEW.request_body IS OLD.request_body
              AND NEW.response_body IS OLD.response_body
              AND (NEW.size_bytes IS OLD.size_bytes
                   OR NEW.size_bytes IS
                      coalesce(length(CAST(OLD.request_body AS BLOB)), 0)
                    + coalesce(length(CAST(OLD.response_body AS BLOB)), 0))
              AND (NEW.pinned IS OLD.pinned OR NEW.pinned = 1
                   OR (NEW.pinned = 0 AND OLD.id IS NOT NULL
                       AND OLD.id NOT IN (SELECT id FROM payload_pins))));
  SELECT RAISE(ABORT, 'ValidationError: event_id and agent_id must be text that is not empty')
   WHERE (NEW.event_id IS NOT OLD.event_id
          AND (typeof(NEW.event_id) <> 'text' OR NEW.event_id = ''))
      OR (NEW.agent_id IS NOT OLD.agent_id
          AND (typeof(NEW.agent_id) <> 'text' OR NEW.agent_id = ''));
  SELECT RAISE(ABORT, 'ValidationError: created_at must be a date such as 2026-01-31T12:00:00.000Z or 2026-01-31 12:00:00')
   WHERE NEW.created_at IS NOT OLD.created_at
     AND (substr(NEW.created_at, 5, 1) <> '-'
          OR julianday(NEW.created_at) IS NULL);
  SELECT RAISE(ABORT, 'ValidationError: pinned must be 0 or 1')
   WHERE NEW.pinned IS NOT OLD.pinned AND NEW.pinned NOT IN (0, 1);
  SELECT RAISE(ABORT, 'PinnedError: this rowid belongs to a pinned row; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    FROM event_payloads AS e
   WHERE NEW.rowid <> OLD.rowid AND e.rowid = NEW.rowid
     AND (e.pinned <> 0 OR e.id IN (SELECT id FROM payload_pins));
END;

CREATE TRIGGER IF NOT EXISTS main.payload_update
AFTER UPDATE ON event_payloads
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
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
  INSERT INTO payload_pins(id)
  SELECT NEW.id
   WHERE NEW.id IS NOT NULL
     AND (NEW.pinned <> 0
          OR (NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence')
          OR (OLD.id IS NULL AND NEW.purpose = 'evidence'))
     AND NEW.id NOT IN (SELECT id FROM payload_pins);
END;

----------------------------------------------------------------- deletes --

CREATE TRIGGER IF NOT EXISTS main.payload_delete_check
BEFORE DELETE ON event_payloads
WHEN OLD.pinned <> 0 OR OLD.id IN (SELECT id FROM payload_pins)
  OR (OLD.id IS NULL AND OLD.purpose = 'evidence')
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be deleted; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

-- Plain deletes of one minute share a receipt.
CREATE TRIGGER IF NOT EXISTS main.payload_delete
AFTER DELETE ON event_payloads
WHEN (SELECT bulk FROM payload_state) IS NOT 1
BEGIN
  INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest, minute)
  SELECT n.at, 'payload', 'manual', 1, OLD.size_bytes, r.at, r.at, n.at / 60000
    FROM (SELECT CAST((julianday('now') - 2440587.5) * 86400000.0
                      AS INTEGER) AS at) AS n,
         (SELECT CASE WHEN substr(OLD.created_at, 5, 1) = '-'
                      THEN CAST(round((julianday(OLD.created_at) - 2440587.5)
                                      * 86400000.0) AS INTEGER) END AS at) AS r
   WHERE true
  ON CONFLICT (domain, rule, minute) WHERE minute IS NOT NULL DO UPDATE
     SET rows = rows + 1, bytes = bytes + excluded.bytes,
         oldest = min(coalesce(oldest, excluded.oldest), coalesce(excluded.oldest, oldest)),
         newest = max(coalesce(newest, excluded.newest), coalesce(excluded.newest, newest));
END;

CREATE TRIGGER IF NOT EXISTS main.payload_sweep_run
INSTEAD OF INSERT ON payload_sweep
BEGIN
  -- Text would be later than any number, and take the whole archive.
  SELECT RAISE(ABORT, 'ValidationError: before must be a number, a time in milliseconds since 1970 UTC, and max_rows a whole number or NULL')
   WHERE typeof(NEW.before) NOT IN ('integer', 'real')
      OR typeof(coalesce(NEW.max_rows, 0)) NOT IN ('integer', 'real')
      OR NEW.max_rows <> CAST(NEW.max_rows AS INTEGER);
  INSERT INTO retention_log(at, domain, rule, actor, rows, bytes, oldest, newest)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         'payload', coalesce(NEW.rule, 'payload.age'), NEW.actor,
         count(*), sum(bytes), min(at), max(at)
    FROM (SELECT at, bytes FROM payload_archive WHERE at < NEW.before
           ORDER BY at LIMIT CAST(coalesce(NEW.max_rows, -1) AS INTEGER))
   GROUP BY NULL; -- no row for none; SQLite 3.38 has no HAVING without it
  UPDATE payload_state -- removed: for now, which receipt it is
     SET bulk = 1,
         removed = CASE changes() WHEN 0 THEN 0
                   ELSE (SELECT max(id) FROM retention_log) END;
  DELETE FROM event_payloads
   WHERE rowid IN (SELECT rid FROM payload_archive WHERE at < NEW.before
                    ORDER BY at LIMIT CAST(coalesce(NEW.max_rows, -1) AS INTEGER));
  -- Of what a trigger of the user's has kept, the receipt says nothing.
  UPDATE retention_log
     SET rows = changes(),
         bytes = bytes - coalesce((SELECT sum(bytes) FROM (
           SELECT bytes FROM payload_archive WHERE at < NEW.before
            ORDER BY at
            LIMIT (SELECT r.rows - changes()
                     FROM payload_state AS s
                     JOIN retention_log AS r ON r.id = s.removed))), 0)
   WHERE id = (SELECT removed FROM payload_state) AND rows > changes();
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
         'payload', 'clear', NEW.actor, count(*), sum(bytes), min(at), max(at)
    FROM payload_archive
   GROUP BY NULL; -- no row for none; SQLite 3.38 has no HAVING without it
  UPDATE payload_state -- removed: for now, which receipt it is
     SET bulk = 1,
         removed = CASE changes() WHEN 0 THEN 0
                   ELSE (SELECT max(id) FROM retention_log) END;
  DELETE FROM event_payloads
   WHERE rowid IN (SELECT rid FROM payload_archive);
  -- Of what a trigger of the user's has kept, the receipt says nothing.
  UPDATE retention_log
     SET rows = changes(),
         bytes = bytes - coalesce((SELECT sum(bytes) FROM payload_archive), 0)
   WHERE id = (SELECT removed FROM payload_state) AND rows > changes();
  DELETE FROM retention_log
   WHERE id = (SELECT removed FROM payload_state) AND rows = 0;
  UPDATE payload_state
     SET bulk = 0,
         removed = coalesce((SELECT rows FROM retention_log
                              WHERE id = payload_state.removed), 0);
END;

-------------------------------------------------------------------- pins --

CREATE TRIGGER IF NOT EXISTS main.payload_pins_insert
BEFORE INSERT ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_pins is kept by the schema; pin a row with UPDATE event_payloads SET pinned = 1')
   WHERE (NEW.pin IS NOT NULL AND NEW.pin <> -1)
      OR NOT EXISTS (SELECT 1 FROM event_payloads
                      WHERE id = NEW.id
                        AND (pinned <> 0 OR purpose = 'evidence'));
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pins_update
BEFORE UPDATE ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_pins is kept by the schema; it cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pins_delete
BEFORE DELETE ON payload_pins
WHEN NOT EXISTS (SELECT 1 FROM payload_unpins WHERE pin = OLD.pin)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pin goes only with INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_check
BEFORE INSERT ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'NotFoundError: no pinned row of event_payloads has this payload_id')
   WHERE NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.payload_id);
  SELECT RAISE(ABORT, 'ValidationError: give payload_id, actor and reason only; the schema fills in the rest')
   WHERE (NEW.id IS NOT NULL AND NEW.id <> -1) OR NEW.at IS NOT NULL
      OR NEW.pin IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_insert
AFTER INSERT ON payload_unpins
BEGIN
  UPDATE payload_unpins
     SET at = CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         pin = (SELECT pin FROM payload_pins WHERE id = NEW.payload_id),
         event_id = (SELECT event_id FROM event_payloads WHERE id = NEW.payload_id),
         agent_id = (SELECT agent_id FROM event_payloads WHERE id = NEW.payload_id),
         kill_switch_event_id = (SELECT kill_switch_event_id FROM event_payloads
                                  WHERE id = NEW.payload_id)
   WHERE id = NEW.id;
  DELETE FROM payload_pins WHERE id = NEW.payload_id;
  UPDATE event_payloads SET pinned = 0 WHERE id = NEW.payload_id;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_update
BEFORE UPDATE ON payload_unpins
WHEN OLD.pin IS NOT NULL OR NEW.id <> OLD.id OR NEW.payload_id <> OLD.payload_id
  OR NEW.actor <> OLD.actor OR NEW.reason <> OLD.reason
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_unpins is a record and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_unpins_delete
BEFORE DELETE ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_unpins is a record and cannot be deleted');
END;

--------------------------------------------------- rows found in the table --

-- Rows of the program that made the table: the true size, and their pins.
UPDATE main.event_payloads
   SET size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0)
                  + coalesce(length(CAST(response_body AS BLOB)), 0)
 WHERE NOT EXISTS (SELECT 1 FROM main.blackbox_domains WHERE domain = 'payload')
   AND size_bytes IS NOT coalesce(length(CAST(request_body AS BLOB)), 0)
                       + coalesce(length(CAST(response_body AS BLOB)), 0);

-- Later, the pins that were lost since; evidence may have been let go of.
INSERT INTO main.payload_pins(id)
SELECT id FROM main.event_payloads
 WHERE (purpose <> 'archive' OR pinned <> 0) AND id IS NOT NULL
   AND (pinned <> 0 OR (purpose = 'evidence' AND NOT EXISTS (
         SELECT 1 FROM main.blackbox_domains WHERE domain = 'payload')))
   AND id NOT IN (SELECT id FROM main.payload_pins);

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms)
VALUES ('payload.age', 'payload', 'payload_due', 'payload.retention_days', 86400000)
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms;

INSERT INTO main.blackbox_domains(domain, version) VALUES ('payload', 1)
ON CONFLICT (domain) DO UPDATE SET version = excluded.version;
