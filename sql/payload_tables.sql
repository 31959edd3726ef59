-- payload_tables.sql: the tables of the archive and of the pins, with their guards.
-- It continues payload.sql, which has the manual.
--
-- A guard depends on the row itself and on its pin. It is a
-- BEFORE trigger that only raises. (SQLite does not fire a trigger that is
-- already running. If a guard wrote to a table, a trigger of the user on that
-- table could bypass the guard.) Some AFTER triggers refuse the same again, but
-- none of them is the only guard. Every condition also works for NULL (IS, or
-- coalesce), and for columns with another collation (COLLATE BINARY).

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

-- The pins in force. n is the number of the pin in blackbox__log. (By id, because
-- a copy of the file may number its rows anew.)
CREATE TABLE IF NOT EXISTS main.payload__pins(
  id TEXT PRIMARY KEY,
  n  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS main.payload__state(
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  bulk    INTEGER NOT NULL, -- 1 while a bulk act runs, which writes the receipt;
                            -- 2 while a row goes that is due; 3 while one goes
                            -- because of payload.max_bytes
  removed INTEGER NOT NULL  -- rows that the last bulk act removed
);
INSERT INTO main.payload__state(one, bulk, removed) VALUES (1, 0, 0)
ON CONFLICT (one) DO NOTHING;

-- Without payload.max_bytes both are empty, and a write into event_payloads does
-- no more than to find that out.
CREATE TABLE IF NOT EXISTS main.payload_volume(
  one       INTEGER PRIMARY KEY CHECK (one = 1),
  bytes     INTEGER NOT NULL, -- the sum of payload__sizes
  max_bytes INTEGER NOT NULL  -- the setting
--|   , packed INTEGER NOT NULL DEFAULT 0 -- the part of bytes that is packed
);

CREATE TABLE IF NOT EXISTS main.payload__sizes(
  rid   INTEGER PRIMARY KEY,
  id    TEXT,
  bytes INTEGER NOT NULL
--|   , packed INTEGER NOT NULL DEFAULT 0 -- the same, if the row is packed
);

CREATE INDEX IF NOT EXISTS main.payload_sizes_id ON payload__sizes(id);

-- In a file that packs: see sql/payload_pack.sql.
--| CREATE TABLE IF NOT EXISTS main.payload_swaps(
--|   pin           INTEGER PRIMARY KEY,
--|   request_body  BLOB,
--|   response_body BLOB
--| );

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
-- was given. So no row with rowid -1 can be pinned.) A plain INSERT fails without our help, and INSERT OR IGNORE of a
-- pinned id passes and changes nothing. A lost row keeps its id for itself.
CREATE TRIGGER IF NOT EXISTS main.payload_insert_replace
BEFORE INSERT ON event_payloads
WHEN EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id)
  OR (EXISTS (SELECT 1 FROM event_payloads WHERE id = NEW.id)
      AND EXISTS (SELECT 1 FROM payload__protected WHERE id = NEW.id))
  OR (NEW.rowid <> -1 AND EXISTS (SELECT 1 FROM payload__protected WHERE payload_rowid = NEW.rowid))
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a row with this id was pinned and is missing; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id)
     AND NOT EXISTS (SELECT 1 FROM event_payloads WHERE id = NEW.id);
  UPDATE blackbox__probe SET hit = 0 WHERE one = 1;
  INSERT OR IGNORE INTO blackbox__probe(one, hit) VALUES (1, 1);
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id or rowid and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    FROM blackbox__probe WHERE hit;
END;

-- Fires only if the row was really written. Sets the columns that the schema
-- computes, and the pin. A trigger of the user may have prevented either.
CREATE TRIGGER IF NOT EXISTS main.payload_insert
AFTER INSERT ON event_payloads
BEGIN
  SELECT CASE
    WHEN NEW.rowid = -1 -- for the BEFORE trigger it means no rowid
    THEN RAISE(ABORT, 'ValidationError: rowid -1 is reserved; omit the rowid')
    WHEN EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id)
    THEN RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    WHEN typeof(NEW.event_id) <> 'text' OR NEW.event_id = ''
      OR typeof(NEW.agent_id) <> 'text' OR NEW.agent_id = ''
    THEN RAISE(ABORT, 'ValidationError: event_id and agent_id must be text that is not empty; set both')
    WHEN NOT CASE WHEN typeof(NEW.created_at) = 'text' -- the usual form, quickly
                   AND substr(NEW.created_at, 24) = 'Z' AND substr(NEW.created_at, 20, 1) = '.'
                   AND substr(NEW.created_at, 12, 2) < '24'
                  THEN unixepoch(NEW.created_at) IS NOT NULL
                  ELSE NOT EXISTS (SELECT 1 FROM payload__times
                                    WHERE event_id = NEW.event_id AND at IS NULL
                                      AND +rid = NEW.rowid) END
    THEN RAISE(ABORT, 'ValidationError: created_at must be a date such as 2026-01-31T12:00:00.000Z or 2026-01-31 12:00:00')
    WHEN NEW.pinned NOT IN (0, 1)
    THEN RAISE(ABORT, 'ValidationError: pinned must be 0 or 1') END;
  INSERT INTO payload__landing(rid, id, evidence, wanted, wrong)
  VALUES (NEW.rowid, NEW.id, NEW.purpose = 'evidence',
          NEW.pinned <> 0 OR NEW.purpose = 'evidence',
          NEW.id IS NULL OR NEW.pinned IS NULL
          OR (NEW.purpose = 'evidence' AND NEW.pinned = 0)
          OR NEW.size_bytes IS NOT coalesce(length(CAST(NEW.request_body AS BLOB)), 0)
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0));
  SELECT RAISE(ABORT, 'MisuseError: a trigger on event_payloads prevents this row from being pinned; drop the trigger')
    FROM event_payloads AS e
   WHERE e.rowid = NEW.rowid AND (NEW.pinned <> 0 OR NEW.purpose = 'evidence')
     AND NOT EXISTS (SELECT 1 FROM payload__pins AS p WHERE p.id = e.id);
END;

-- Does the rest, for the rows that need it: usually one INSERT fires one trigger that
-- does nothing, in place of three. wrong: a column that the schema computes is not
-- correct. wanted: the row is to be pinned.
CREATE TRIGGER IF NOT EXISTS main.payload_landing_insert
INSTEAD OF INSERT ON payload__landing
WHEN NEW.wrong OR NEW.wanted OR EXISTS (SELECT 1 FROM payload_volume)
BEGIN
  INSERT INTO payload__settling(rid, wanted, wrong)
  VALUES (NEW.rid, NEW.evidence, NEW.wrong);
  INSERT INTO payload__pinning(id, wanted)
  VALUES (coalesce(NEW.id, (SELECT id FROM event_payloads WHERE rowid = NEW.rid)), NEW.wanted);
  INSERT INTO payload__written(rid, id, written) VALUES (NEW.rid, NEW.id, 1);
END;

-- wrong: a column that the schema computes is not correct. wanted: pinned is to
-- be 1.
CREATE TRIGGER IF NOT EXISTS main.payload_settling_insert
INSTEAD OF INSERT ON payload__settling
WHEN NEW.wrong
BEGIN
  UPDATE event_payloads
     SET id = coalesce(id,
           lower(hex(randomblob(4))) || '-' || lower(hex(randomblob(2))) || '-4' ||
           substr(lower(hex(randomblob(2))), 2) || '-' ||
           substr('89ab', 1 + (random() & 3), 1) ||
           substr(lower(hex(randomblob(2))), 2) || '-' || lower(hex(randomblob(6)))),
         pinned = max(coalesce(pinned, 0), NEW.wanted),
         size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0) --|
                    + coalesce(length(CAST(response_body AS BLOB)), 0) --|
--|          size_bytes = (SELECT bytes FROM payload_lengths WHERE rid = NEW.rid)
   WHERE rowid = NEW.rid;
END;

-- On a view: INSERT .. SELECT into a table with triggers makes a temporary table.
CREATE TRIGGER IF NOT EXISTS main.payload_pinning_insert
INSTEAD OF INSERT ON payload__pinning
WHEN NEW.wanted AND NEW.id IS NOT NULL
 AND NOT EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id)
BEGIN
  INSERT INTO blackbox__log(domain, kind, subject, event_id, agent_id, kill_switch_event_id)
  SELECT 'payload', 'pin', id, event_id, agent_id, kill_switch_event_id
    FROM event_payloads WHERE id = NEW.id;
  INSERT INTO payload__pins(id, n) SELECT NEW.id, max(n) FROM blackbox__log WHERE changes();
END;

----------------------------------------------------------------- updates --

-- A protected row cannot change, with four exceptions: size_bytes is corrected, a
-- missing id is set, the pin is set, and the pin is cleared after the log has
-- recorded the unpin. There is one guard for the columns that the schema corrects
-- itself, one for the rowid, and one for all others.
CREATE TRIGGER IF NOT EXISTS main.payload_update_check
BEFORE UPDATE OF event_id, agent_id, request_body, response_body, purpose,
  kill_switch_event_id, created_at ON event_payloads
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE (coalesce(OLD.pinned, 0) <> 0
          OR EXISTS (SELECT 1 FROM payload__pins WHERE id = OLD.id)
          OR (OLD.purpose IS 'evidence'
              AND NOT EXISTS (SELECT 1 FROM blackbox__log WHERE subject = OLD.id AND kind = 'unpin')))
     AND NOT (NEW.event_id IS OLD.event_id COLLATE BINARY AND NEW.agent_id IS OLD.agent_id COLLATE BINARY
              AND NEW.purpose IS OLD.purpose COLLATE BINARY AND NEW.created_at IS OLD.created_at COLLATE BINARY
              AND NEW.kill_switch_event_id IS OLD.kill_switch_event_id COLLATE BINARY
--|               AND (EXISTS (SELECT 1 FROM payload_swaps AS s JOIN payload__pins AS l ON l.n = s.pin
--|                             WHERE l.id = OLD.id
--|                               AND s.request_body IS NEW.request_body
--|                               AND s.response_body IS NEW.response_body) OR (1
              AND NEW.request_body IS OLD.request_body COLLATE BINARY
              AND NEW.response_body IS OLD.response_body COLLATE BINARY
--|               ))
              );
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
END;

CREATE TRIGGER IF NOT EXISTS main.payload_update_mark
BEFORE UPDATE OF id, pinned, size_bytes ON event_payloads
BEGIN
  SELECT CASE
    WHEN NOT ((NEW.id IS OLD.id COLLATE BINARY OR OLD.id IS NULL)
              AND (NEW.size_bytes IS OLD.size_bytes
                   OR NEW.size_bytes IS coalesce(length(CAST(OLD.request_body AS BLOB)), 0) --|
                                      + coalesce(length(CAST(OLD.response_body AS BLOB)), 0)) --|
--|                    OR NEW.size_bytes IS (SELECT bytes FROM payload_lengths WHERE rid = OLD.rowid))
              AND (NEW.pinned IS OLD.pinned OR NEW.pinned IS 1
                   OR (NEW.pinned IS 0
                       AND NOT EXISTS (SELECT 1 FROM payload__pins WHERE id = OLD.id)
                       AND EXISTS (SELECT 1 FROM blackbox__log WHERE subject = OLD.id AND kind = 'unpin'))))
     AND (coalesce(OLD.pinned, 0) <> 0
          OR EXISTS (SELECT 1 FROM payload__pins WHERE id = OLD.id)
          OR (OLD.purpose IS 'evidence'
              AND NOT EXISTS (SELECT 1 FROM blackbox__log WHERE subject = OLD.id AND kind = 'unpin')))
    THEN RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    -- UPDATE OR REPLACE would delete the row that has this id.
    WHEN NEW.id IS NOT OLD.id COLLATE BINARY
     AND (EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id)
          OR EXISTS (SELECT 1 FROM payload__protected WHERE id = NEW.id AND payload_rowid <> OLD.rowid))
    THEN RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    WHEN NEW.pinned IS NOT OLD.pinned AND NEW.pinned IS NOT 0 AND NEW.pinned IS NOT 1
    THEN RAISE(ABORT, 'ValidationError: pinned must be 0 or 1') END;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_update_rowid
BEFORE UPDATE OF rowid, oid, _rowid_ ON event_payloads
WHEN NEW.rowid <> OLD.rowid
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: rowid -1 is reserved; use another rowid')
   WHERE NEW.rowid = -1;
  SELECT CASE payload_rowid WHEN OLD.rowid
         THEN RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
         ELSE RAISE(ABORT, 'PinnedError: this rowid belongs to a pinned row; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)') END
    FROM payload__protected
   WHERE payload_rowid IN (nullif(OLD.rowid, -1), NEW.rowid);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_update
AFTER UPDATE ON event_payloads
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row has this id and cannot be overwritten; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
   WHERE NEW.id IS NOT OLD.id
     AND EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id);
  INSERT INTO payload__settling(rid, wanted, wrong)
  VALUES (NEW.rowid, NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence',
          (NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence' AND NEW.pinned = 0)
          OR NEW.size_bytes IS NOT coalesce(length(CAST(NEW.request_body AS BLOB)), 0) --|
                                 + coalesce(length(CAST(NEW.response_body AS BLOB)), 0)); --|
--|           OR NEW.size_bytes IS NOT (SELECT bytes FROM payload_lengths WHERE rid = NEW.rowid));
  INSERT INTO payload__pinning(id, wanted)
  VALUES (NEW.id, NEW.pinned <> 0
          OR (NEW.purpose = 'evidence' AND (OLD.purpose <> 'evidence' OR OLD.id IS NULL)));
  SELECT RAISE(ABORT, 'MisuseError: a trigger on event_payloads prevents this row from being pinned; drop the trigger')
   WHERE NEW.id IS NOT NULL
     AND (NEW.pinned <> 0
          OR (NEW.purpose = 'evidence' AND OLD.purpose <> 'evidence'))
     AND NOT EXISTS (SELECT 1 FROM payload__pins WHERE id = NEW.id);
END;

----------------------------------------------------------------- deletes --

CREATE TRIGGER IF NOT EXISTS main.payload_delete_check
BEFORE DELETE ON event_payloads
WHEN coalesce(OLD.pinned, 0) <> 0
  OR EXISTS (SELECT 1 FROM payload__pins WHERE id = OLD.id)
  OR (OLD.purpose IS 'evidence'
      AND NOT EXISTS (SELECT 1 FROM blackbox__log WHERE subject = OLD.id AND kind = 'unpin'))
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be deleted; unpin it first with INSERT INTO payload_unpins(payload_id, actor, reason)');
END;

-- Each row is counted in the receipt of the bulk act that now runs. If none runs,
-- it is counted in the receipt that the deletes of one minute share: those of rows
-- that are due have one, and all others another.
CREATE TRIGGER IF NOT EXISTS main.payload_delete
AFTER DELETE ON event_payloads
BEGIN
  INSERT INTO payload__removal(created_at, bytes) VALUES (OLD.created_at, OLD.size_bytes);
  DELETE FROM payload__sizes WHERE rid = OLD.rowid;
END;

-- On a view: INSERT .. SELECT into a table with triggers makes a temporary table.
CREATE TRIGGER IF NOT EXISTS main.payload_removal_insert
INSTEAD OF INSERT ON payload__removal
BEGIN
  INSERT INTO retention_note(at, domain, minute, rule, rows, bytes, oldest)
  VALUES (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER), 'payload',
          (SELECT 0 FROM payload__state WHERE bulk = 1),
          CASE (SELECT bulk FROM payload__state)
          WHEN 1 THEN 'bulk' WHEN 2 THEN 'payload.age' WHEN 3 THEN 'payload.bytes'
          ELSE 'manual' END,
          1, NEW.bytes,
          CASE WHEN substr(NEW.created_at, 24) = 'Z' AND substr(NEW.created_at, 20, 1) = '.'
                AND substr(NEW.created_at, 12, 2) < '24' THEN unixepoch(NEW.created_at) * 1000 + substr(NEW.created_at, 21, 3)
               WHEN substr(NEW.created_at, 5, 1) <> '-' OR substr(NEW.created_at, 12, 2) = '24' THEN NULL
               WHEN substr(NEW.created_at, 14, 1) = ':' AND substr(NEW.created_at, 20, 1) <> '.' THEN unixepoch(NEW.created_at) * 1000
               WHEN substr(NEW.created_at, 14, 1) = ':' THEN unixepoch(substr(NEW.created_at, 1, 21) || ltrim(substr(NEW.created_at, 22),
                '0123456789')) * 1000 + CAST(substr(NEW.created_at, 20, 4) * 1000 + 0.5 AS INTEGER)
               WHEN length(NEW.created_at) = 10 THEN unixepoch(NEW.created_at || ' 00:00') * 1000 END);
END;

------------------------------------------------------------------- holds --

-- A guard suspects that a hold keeps a row: seq is 1. No hold keeps it.
CREATE TRIGGER IF NOT EXISTS main.payload_looking_insert
INSTEAD OF INSERT ON payload__looking
WHEN NOT EXISTS (SELECT 1 FROM payload__held
                  WHERE id = NEW.id OR payload_rowid = NEW.rid)
BEGIN
  UPDATE blackbox__probe SET hit = 0 WHERE one = 1;
END;

------------------------------------------------------- payload.max_bytes --

-- Not when another trigger only corrects size_bytes.
CREATE TRIGGER IF NOT EXISTS main.payload_volume_update
AFTER UPDATE ON event_payloads
WHEN EXISTS (SELECT 1 FROM payload_volume)
 AND (NEW.size_bytes IS OLD.size_bytes
      OR (NEW.rowid, NEW.id, NEW.purpose, NEW.pinned, NEW.created_at, NEW.request_body, NEW.response_body)
         IS NOT (OLD.rowid, OLD.id, OLD.purpose, OLD.pinned, OLD.created_at, OLD.request_body, OLD.response_body))
BEGIN
  INSERT INTO payload__written(rid, id, old_rid, written)
  VALUES (NEW.rowid, NEW.id, OLD.rowid, OLD.purpose = 'archive' AND OLD.pinned = 0);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_sizes_insert
AFTER INSERT ON payload__sizes
BEGIN
  UPDATE payload_volume SET bytes = bytes + NEW.bytes WHERE one = 1;
--|   UPDATE payload_volume SET packed = packed + NEW.packed WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_sizes_delete
AFTER DELETE ON payload__sizes
BEGIN
  UPDATE payload_volume SET bytes = bytes - OLD.bytes WHERE one = 1;
--|   UPDATE payload_volume SET packed = packed - OLD.packed WHERE one = 1;
END;

-- A new limit counts the archive once.
CREATE TRIGGER IF NOT EXISTS main.payload_volume_fill
AFTER INSERT ON payload_volume
BEGIN
  INSERT INTO payload__sizes(rid, id, bytes) --|
  SELECT rid, id, bytes FROM payload__counted; --|
--|   INSERT INTO payload__sizes(rid, id, bytes, packed)
--|   SELECT c.rid, c.id, c.bytes, iif(EXISTS (
--|            SELECT 1 FROM payload_texts AS t WHERE t."key" = c.id), c.bytes, 0)
--|     FROM payload__counted AS c;
  INSERT INTO payload_trim(max_rows, asks) VALUES (100, 1);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_volume_empty
AFTER DELETE ON payload_volume
BEGIN
  DELETE FROM payload__sizes;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_setting_update
AFTER UPDATE OF value ON blackbox_settings
WHEN NEW.name = 'payload.max_bytes'
BEGIN
  DELETE FROM payload_volume WHERE one = 1;
  INSERT INTO payload_volume(one, bytes, max_bytes)
  SELECT 1, 0, NEW.value WHERE NEW.value > 0;
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
   SET pinned = (purpose = 'evidence' OR id IN (SELECT id FROM main.payload__pins))
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
   AND id NOT IN (SELECT id FROM main.payload__pins)
   AND (pinned <> 0 OR id NOT IN (SELECT payload_id FROM main.payload_unpins));

DELETE FROM main.payload_volume WHERE one = 1;
INSERT INTO main.payload_volume(one, bytes, max_bytes)
SELECT 1, 0, value FROM main.blackbox_settings
 WHERE name = 'payload.max_bytes' AND value > 0;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms, "table")
VALUES ('payload.age', 'payload', 'payload_due', 'payload.retention_days', 86400000,
        'event_payloads')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms,
       "table" = excluded."table";

INSERT INTO main.blackbox_domains(domain, format) VALUES ('payload', 1)
ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
