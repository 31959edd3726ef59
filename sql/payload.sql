-- payload.sql: the archive of exchanges and the evidence of what went wrong.
--
-- Continued in sql/payload_detection.sql
-- Continued in sql/payload_rules.sql
--
-- It runs alone after core.sql, any number of times. An event_payloads table that
-- another program made is taken over in place (ext/payload/adopt.c).
--
-- Tables  event_payloads   one row for each exchange; purpose is 'archive' or
--                          'evidence'
--         payload__pins    the pins in force: the id of the row, and the number of
--                          the pin in the log
--         payload__packed  the references to the body store that rows have
--         payload__state   one row: the bytes of the archive, the settings that an
--                          insert needs, and what goes with the row being written
-- Views   payload_pins     the pins in force
--         payload_unpins   the pins that have ended; INSERT unpins a row
--         payload_rows     event_payloads with the texts of packed bodies; it needs
--                          the module
--         payload__held    the rows that a hold keeps; INSERT removes a row
--
-- Invariants, on every connection and with every conflict clause:
--   * a row that is pinned, evidence or held is not changed, removed or replaced
--   * evidence is pinned; size_bytes is the true length of both bodies
--   * created_at of a new row is a date that SQLite can parse
--   * each removal is counted in a receipt, that of a row which REPLACE takes, too
--   * bytes of payload__state is the sum of size_bytes of the archive rows without a
--     pin
--   * an insert removes at most 2 rows that are due, and a write at most 100 for
--     payload.max_bytes; none while a trigger or key of others could refuse it
--
-- How: SQLite compiles all that a statement may fire, and allocates the memory of a
-- whole trigger whenever it fires. So a statement asks whether there is work before the
-- long trigger is fired that does it (payload_work), what an INSERT does not need is in
-- triggers that name other columns, and "WHERE one = 1" makes an UPDATE of one row
-- one-pass. SQLite does not fire a trigger that is already running. So a guard only raises,
-- or what it fires cannot write the archive: hit of blackbox__probe is 1 while a row is
-- deleted that REPLACE takes, and then payload_insert and payload_update raise.
--
-- Limits: no trigger fires for DROP TABLE, DROP TRIGGER, or what a program writes
-- into the file. blackbox_check() finds the result of these in the log.

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('payload.pack', 0, '0 to 1', 'whether the queue, kill switches and clean-ups pack bodies into the body store'),
  ('payload.enabled', 0, '0 to 1', 'whether payload_queue() stores anything'),
  ('payload.on_disabled', 'error', 'error, ignore', 'what payload_queue() does while payload.enabled is 0'),
  ('payload.retention_days', 7, '1 to 365', 'days that an archive row is kept'),
  ('payload.max_bytes', 0, '0 to 70368744177664', 'bytes of bodies that the archive may have, without pinned rows; 0: no limit'),
  ('payload.history_until', 0, '0 to 253402300799999', 'archive rows up to this time, in milliseconds, go only when clean-up is asked for'),
  ('payload.queue_mode', 'durable', 'durable, memory', 'durable: a queued row is written at once; memory: it waits for a batch'),
  ('payload.flush_interval_ms', 5000, '1000 to 60000', 'milliseconds that a queued row waits at most, in mode memory'),
  ('payload.flush_batch_size', 20, '1 to 100', 'queued rows that are written together, in mode memory'),
  ('payload.secrets', 'keep', 'keep, mask, drop', 'what is written of a body with keys or passwords')) WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

------------------------------------------------------------------ tables --

-- meta: JSON or NULL; blackbox_check() looks at it, as SQLite before 3.41 refuses
-- json_valid() in a schema that is not trusted. created_ms: the time as a number, from the first 19 characters
-- and three digits of a fraction. Two versions of SQLite may compute julianday() and
-- round() differently, and then an index that one has made is damaged for the other;
-- this expression is the same in all. SQLite compiles and computes it wherever a row is
-- written: what the default writes has a short way. It is stored, so that no DELETE computes
-- it; ALTER TABLE cannot add such a column, and a table that was taken over has it VIRTUAL.
CREATE TABLE IF NOT EXISTS main.event_payloads(
  id TEXT PRIMARY KEY NOT NULL DEFAULT (
    printf('%08x-%04x-4%03x-%04x-%012x', random() & 4294967295, random() & 65535,
      random() & 4095, random() & 16383 | 32768, random() & 281474976710655)),
  event_id TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  request_body TEXT,
  response_body TEXT,
  size_bytes INTEGER NOT NULL DEFAULT 0,
  purpose TEXT NOT NULL CHECK (purpose IN ('archive', 'evidence')),
  pinned INTEGER NOT NULL DEFAULT 0,
  kill_switch_event_id TEXT,
  created_at TEXT NOT NULL
    DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  meta TEXT,
  created_ms INTEGER AS (CASE
    WHEN substr(created_at, 12, 2) >= '24' OR created_at NOT BETWEEN '0' AND x'' THEN NULL
    WHEN created_at GLOB '????-??-??T??:??:??.[0-9][0-9][0-9]Z' THEN unixepoch(created_at) * 1000 + substr(created_at, 21, 3)
    WHEN created_at LIKE '____-__-__%'
    THEN unixepoch(substr(created_at, 1, 19) || ltrim(substr(created_at, 20), '.0123456789')) * 1000
         + (substr(created_at, 20, 1) = '.') * CAST(substr(created_at, 20, 4) * 1000 + 0.5 AS INTEGER) END) STORED
);

-- These five have the names and the columns of AgentGazer's, so that it makes no
-- second set.
CREATE INDEX IF NOT EXISTS main.idx_payloads_event_id ON event_payloads(event_id);
CREATE INDEX IF NOT EXISTS main.idx_payloads_agent_id ON event_payloads(agent_id);
CREATE INDEX IF NOT EXISTS main.idx_payloads_purpose ON event_payloads(purpose);
CREATE INDEX IF NOT EXISTS main.idx_payloads_created_at ON event_payloads(created_at);
CREATE INDEX IF NOT EXISTS main.idx_payloads_kill_switch ON event_payloads(kill_switch_event_id);

-- It contains every row with its size, so that counting reads no body, and those that
-- clean-up may remove by age.
CREATE INDEX IF NOT EXISTS main.payload_by_age ON event_payloads(purpose, pinned, created_ms, size_bytes);

-- n is the number of the pin in blackbox__log. (By id, because VACUUM and a copy of
-- the file may number rows anew.)
CREATE TABLE IF NOT EXISTS main.payload__pins(
  id TEXT PRIMARY KEY,
  n
) WITHOUT ROWID;

-- A row is found by the number of a text, which its body ends with. key: the id of the
-- row. text: the number of the text in the store; or less than 0, only while the module
-- unpacks a body: then ref is that body. bytes: the length of the text.
CREATE TABLE IF NOT EXISTS main.payload__packed(
  text INTEGER PRIMARY KEY,
  key, ref, bytes
);

-- bytes: size_bytes of archive rows without a pin. packed: bytes of payload__packed, and
-- share: what the store takes for a byte of text, for blackbox.max_file_bytes. pack: rows
-- up to this rowid were looked at, to pack them. kept_ms, since, cap: the settings.
-- wake: no row is due before this time. rid, ms: the row that is inserted, and its time; NULL:
-- it is to be pinned; rid is also that of a row whose size payload_update writes. work: the time, while rows go; or 'bulk' while the module removes many, or
-- the rule by which it does. till: rows before this time are due; or the id of a kill switch
-- as a blob, while the module writes rows of it that it has checked, and pins. due: how many
-- rows still go; below -900: none, as something may refuse.
CREATE TABLE IF NOT EXISTS main.payload__state(
  one INTEGER PRIMARY KEY,
  bytes, packed, share, pack, kept_ms, since, cap, wake, rid, ms, work, till, due
);
INSERT INTO main.payload__state(one, bytes, packed, share, pack, wake, work, till, due)
VALUES (1, 0, 0, 1, 0, 0, 0, 0, 0) ON CONFLICT (one) DO NOTHING;

-- Rows of the program that made the table get the correct size, before a trigger guards it.
UPDATE main.event_payloads
   SET size_bytes = coalesce(length(CAST(request_body AS BLOB)), 0) + coalesce(length(CAST(response_body AS BLOB)), 0)
 WHERE NOT EXISTS (SELECT 1 FROM main.blackbox_domains WHERE domain = 'payload')
   AND size_bytes IS NOT coalesce(length(CAST(request_body AS BLOB)), 0) + coalesce(length(CAST(response_body AS BLOB)), 0);

------------------------------------------------------------------- views --

CREATE VIEW IF NOT EXISTS main.payload_rows AS
SELECT id, event_id, agent_id, store_text(request_body) request_body,
       store_text(response_body) response_body, size_bytes, purpose, pinned,
       kill_switch_event_id, created_at, meta, created_ms
  FROM event_payloads;

-- What was completed has two pins, of which the first has the time. The kill switch is
-- logged after its pins, and after the row that "after" names in its detail.
CREATE VIEW IF NOT EXISTS main.payload_pins AS
SELECT p.n pin, p.id, l.at, k.actor, k.reason, l.kill_switch_event_id
  FROM payload__pins p
  LEFT JOIN blackbox__log l ON l.n = ifnull((SELECT substr(detail, 8) + 0 FROM blackbox__log WHERE n = p.n), p.n)
  LEFT JOIN blackbox__log k
    ON k.subject = l.kill_switch_event_id AND k.kind = 'kill_switch' AND k.n > l.n
       AND substr(k.detail, 10) + 0 < l.n;

CREATE VIEW IF NOT EXISTS main.payload_unpins AS
SELECT substr(detail, 8) + 0 id, subject payload_id, actor, reason, at,
       substr(detail, 8) + 0 pin, event_id, agent_id, kill_switch_event_id
  FROM blackbox__log WHERE kind = 'unpin';

-- at is for INSERT: see payload_leaving. (SQLite looks a pair up in the index only if the
-- list is a SELECT.)
CREATE VIEW IF NOT EXISTS main.payload__held AS
SELECT rowid rid, NULL at FROM event_payloads
 WHERE (SELECT 1 FROM retention__in_force) AND (SELECT 1 FROM retention__holds
         WHERE kind = 'agent' AND key = agent_id OR kind = 'event' AND key = event_id
            OR kind = 'kill_switch' AND key = kill_switch_event_id OR kind = 'evidence' AND key = id);

----------------------------------------------------------------- inserts --

-- SQLite fires no DELETE trigger for what REPLACE takes. So it is deleted before, by
-- which the guard sees it, and the receipt (payload_leaving). hit is asked, because a RAISE of FAIL
-- of a user's trigger leaves it. (rowid -1 means none: no row has it.)
CREATE TRIGGER IF NOT EXISTS main.payload_replace
BEFORE INSERT ON event_payloads
WHEN (SELECT 1 FROM event_payloads WHERE id = NEW.id)
  OR (NEW.rowid <> -1 AND (SELECT 1 FROM event_payloads WHERE rowid = NEW.rowid))
  OR (SELECT hit FROM blackbox__probe)
BEGIN
  INSERT INTO payload__held(rid)
  SELECT NEW.rowid UNION ALL SELECT rowid FROM event_payloads WHERE id = NEW.id;
END;

-- Fires only if the row was really written. SQLite does not fire a trigger that is already
-- running: what a user's DELETE trigger inserts, while payload_replace deletes, could
-- take a row unseen. So it is refused. The size is written before the sum is, because
-- payload_work asks for it.
CREATE TRIGGER IF NOT EXISTS main.payload_insert
AFTER INSERT ON event_payloads WHEN (SELECT till FROM payload__state) IS NOT CAST(NEW.kill_switch_event_id AS BLOB)
BEGIN
  UPDATE event_payloads
     SET size_bytes = length(CAST(ifnull(request_body, '') || ifnull(response_body, '') AS BLOB))
   WHERE rowid = NEW.rowid AND CASE
    WHEN (event_id > '' AND event_id < x'' AND agent_id > '' AND agent_id < x'' AND created_ms NOTNULL AND rowid <> -1) IS NOT 1
    THEN RAISE(ABORT, 'ValidationError: event_id and agent_id must be non-empty text, created_at must be a date such as 2026-01-31T12:00:00Z, rowid not -1')
    WHEN (SELECT 1 FROM retention__in_force) AND (
          SELECT 1 FROM retention__holds
           WHERE (kind, key) IN (SELECT * FROM (
             VALUES ('erased agent', agent_id), ('erased event', event_id), ('erased kill_switch', kill_switch_event_id))))
    THEN RAISE(ABORT, 'ErasedError: this agent, event or kill switch was erased, and is refused for retention.refuse_days; see retention_erasures')
    WHEN (NEW.request_body >= x'' OR NEW.response_body >= x'') AND (
          SELECT 1 FROM payload__packed
                  WHERE text IN (substr(request_body, 37, 20) + 0, substr(response_body, 37, 20) + 0)
                    AND ref IN (request_body, response_body))
    THEN RAISE(ABORT, 'ValidationError: this body refers to another row; write store_text(body)')
    WHEN (SELECT hit FROM blackbox__probe) = 1
    THEN RAISE(ABORT, 'MisuseError: a trigger on event_payloads writes while REPLACE runs')
    ELSE NEW.size_bytes IS NOT length(CAST(ifnull(NEW.request_body, '') || ifnull(NEW.response_body, '') AS BLOB)) END;
  UPDATE payload__state
     SET bytes = bytes + (NEW.purpose IS 'archive' AND NEW.pinned IS 0) * NEW.size_bytes,
         wake = min(wake, NEW.created_ms + kept_ms),
         pack = min(pack, NEW.rowid - 1)
   WHERE one = 1 AND (NEW.size_bytes OR pack >= NEW.rowid OR NEW.created_ms + kept_ms < wake);
  UPDATE payload__state
     SET work = unixepoch() * 1000 * (wake <= unixepoch() * 1000 OR bytes > cap), rid = NEW.rowid, ms = iif(NEW.purpose = 'archive' AND NEW.pinned = 0, NEW.created_ms, NULL)
   WHERE one = 1 AND (wake <= unixepoch() * 1000 OR bytes > cap OR NEW.pinned IS NOT 0 OR NEW.purpose <> 'archive');
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pinned
AFTER UPDATE OF ms ON payload__state WHEN NEW.ms IS NULL
BEGIN
  UPDATE event_payloads SET pinned = iif(purpose = 'evidence', 1, ifnull(pinned, 0)) WHERE rowid = NEW.rid;
  SELECT RAISE(ABORT, 'MisuseError: a trigger on event_payloads stops a pin') e WHERE changes() = 0;
END;

----------------------------------------------------------------- updates --

-- A row keeps its id and its rowid, so that an UPDATE takes no other row. A pinned row
-- gets a response if it has none, then also a meta if it has none, and a body in the form
-- that the module has put into payload__packed. (COLLATE: the columns of a table that was
-- taken over may have others; there, an id may be missing.)
CREATE TRIGGER IF NOT EXISTS main.payload_guard
BEFORE UPDATE OF rowid, oid, _rowid_, id, event_id, agent_id, request_body, response_body,
  purpose, kill_switch_event_id, created_at, meta ON event_payloads
BEGIN
  SELECT CASE
    WHEN (pinned IS NOT 0 OR (SELECT 1 FROM payload__held WHERE rid = OLD.rowid))
     AND (
      (NEW.event_id COLLATE BINARY, NEW.agent_id COLLATE BINARY, NEW.kill_switch_event_id COLLATE BINARY,
       NEW.purpose COLLATE BINARY, NEW.created_at COLLATE BINARY, NEW.meta COLLATE BINARY)
      IS (event_id, agent_id, kill_switch_event_id, purpose, created_at,
          ifnull(meta, iif(pinned AND response_body IS NULL, NEW.meta, NULL)))
      AND (NEW.request_body IS request_body COLLATE BINARY OR NEW.request_body IN (
        SELECT ref FROM payload__packed
         WHERE text IN (-1, substr(NEW.request_body, 37) + 0) AND key = id AND ref IS NOT response_body))
      AND (NEW.response_body IS response_body COLLATE BINARY OR pinned AND response_body IS NULL OR NEW.response_body IN (
        SELECT ref FROM payload__packed
         WHERE text IN (-2, substr(NEW.response_body, 37) + 0) AND key = id AND ref IS NOT request_body))) IS NOT 1
    THEN iif(pinned = 0, RAISE(ABORT, 'HeldError: a hold keeps this row; see retention_holds'),
             RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; see payload_unpins'))
    WHEN NEW.rowid <> rowid OR NEW.id IS NOT ifnull(id, NEW.id) COLLATE BINARY
    THEN RAISE(ABORT, 'ValidationError: a row keeps its id and rowid') END e FROM event_payloads WHERE rowid = OLD.rowid;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_update
AFTER UPDATE OF id, event_id, agent_id, request_body, response_body, purpose, created_at, meta ON event_payloads
BEGIN
  UPDATE payload__state
     SET rid = NEW.rowid, wake = wake * (NEW.created_ms IS OLD.created_ms), pack = min(pack, NEW.rowid - 1);
  INSERT INTO blackbox__log(domain, kind, subject, detail, event_id, agent_id, kill_switch_event_id)
  SELECT 'payload', column1, id, '{"pin":' || n || '}', NEW.event_id, NEW.agent_id, NEW.kill_switch_event_id
    FROM payload__pins, (VALUES ('complete'), ('pin'))
   WHERE id = OLD.id AND OLD.response_body IS NULL AND OLD.pinned
     AND (NEW.response_body, NEW.meta) IS NOT (NULL, OLD.meta);
  UPDATE payload__pins SET n = last_insert_rowid() WHERE id = OLD.id AND changes();
  DELETE FROM payload__packed
   WHERE text IN (substr(OLD.request_body, 37, 20) + 0, substr(OLD.response_body, 37, 20) + 0)
     AND key = OLD.id AND NOT ifnull(ref IN (NEW.request_body, NEW.response_body), 0);
  UPDATE event_payloads
     SET pinned = max(pinned, purpose = 'evidence' AND OLD.purpose IS NOT purpose),
         size_bytes = (
           SELECT sum(coalesce((SELECT iif(key IS id, bytes,
                                         RAISE(ABORT, 'ValidationError: this body refers to another row; write store_text(body)')) e
                                FROM payload__packed WHERE text = substr(body, 37, 20) + 0 AND ref = body),
                               length(CAST(body AS BLOB)), 0)) e
             FROM (SELECT request_body body UNION ALL SELECT response_body))
   WHERE rowid = NEW.rowid AND iif((event_id, agent_id, created_at) IS NOT (OLD.event_id, OLD.agent_id, OLD.created_at)
      AND (min(event_id, agent_id) > '' AND max(event_id, agent_id) < x'' AND created_ms NOTNULL) IS NOT 1,
     RAISE(ABORT, 'ValidationError: event_id and agent_id must be non-empty text, created_at must be a date'), 1);
END;

-- A pin is set by everybody, and cleared only after the log has recorded the unpin.
CREATE TRIGGER IF NOT EXISTS main.payload_mark
AFTER UPDATE OF size_bytes, purpose, pinned ON event_payloads
BEGIN
  UPDATE payload__state
     SET bytes = bytes + (NEW.purpose IS 'archive' AND NEW.pinned IS 0) * NEW.size_bytes
                       - (OLD.purpose IS 'archive' AND OLD.pinned IS 0) * OLD.size_bytes,
         wake = wake * (NEW.pinned IS OLD.pinned), rid = NULL
   WHERE one = 1 AND CASE
    WHEN NEW.pinned <> (NEW.pinned = 1)
    THEN RAISE(ABORT, 'ValidationError: pinned must be 0 or 1')
    WHEN OLD.pinned AND NEW.pinned IS NOT 1 AND (SELECT 1 FROM payload__pins WHERE id = OLD.id)
    THEN RAISE(ABORT, 'PinnedError: a pinned row cannot be changed; see payload_unpins')
    WHEN NEW.size_bytes IS NOT OLD.size_bytes AND rid IS NOT NEW.rowid
     AND (last_insert_rowid() <> NEW.rowid AND (NEW.request_body >= x'' OR NEW.response_body >= x'')
      OR NEW.size_bytes IS NOT length(CAST(ifnull(NEW.request_body, '') || ifnull(NEW.response_body, '') AS BLOB)))
    THEN RAISE(ABORT, 'ValidationError: size_bytes is the length of both bodies; omit it') ELSE 1 END;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_pin
AFTER UPDATE OF id, pinned ON event_payloads
WHEN NEW.pinned AND NEW.id NOTNULL AND (SELECT 1 FROM payload__pins WHERE id = NEW.id) IS NULL
BEGIN
  INSERT INTO blackbox__log(domain, kind, subject, event_id, agent_id, kill_switch_event_id)
  VALUES ('payload', 'pin', NEW.id, NEW.event_id, NEW.agent_id, NEW.kill_switch_event_id);
  INSERT INTO payload__pins VALUES (NEW.id, last_insert_rowid());
END;

----------------------------------------------------------------- deletes --

CREATE TRIGGER IF NOT EXISTS main.payload_delete_guard
BEFORE DELETE ON event_payloads
WHEN OLD.pinned IS NOT 0 OR (SELECT 1 FROM payload__held WHERE rid = OLD.rowid)
BEGIN
  SELECT iif(OLD.pinned IS NOT 0, RAISE(ABORT, 'PinnedError: a pinned row cannot be deleted; see payload_unpins'),
             iif((SELECT work FROM payload__state), RAISE(IGNORE), RAISE(ABORT, 'HeldError: a hold keeps this row; see retention_holds'))) e;
END;

CREATE TRIGGER IF NOT EXISTS main.payload_delete
AFTER DELETE ON event_payloads
BEGIN
  INSERT INTO retention_log(domain, rule, rows, bytes, oldest)
  VALUES ('payload',
          (SELECT CASE WHEN work > '' THEN work WHEN work = 0 THEN 'manual' WHEN OLD.created_ms < till THEN 'payload.age' ELSE 'payload.bytes' END e
             FROM payload__state), 1, OLD.size_bytes, OLD.created_ms);
  UPDATE payload__state SET bytes = bytes - (OLD.purpose IS 'archive') * OLD.size_bytes, due = due - 1 WHERE one = 1;
  DELETE FROM payload__packed
   WHERE key = OLD.id AND text IN (substr(OLD.request_body, 37, 20) + 0, substr(OLD.response_body, 37, 20) + 0);
END;

-- All that removes rows inside another statement: one DELETE, compiled once. at is the time
-- of one that goes if it is due; and NULL for a row that goes if the statement is a REPLACE.
CREATE TRIGGER IF NOT EXISTS main.payload_leaving
INSTEAD OF INSERT ON payload__held
WHEN NEW.at IS NULL OR (SELECT 1 FROM payload__state WHERE bytes > cap OR due > 0 AND NEW.at < till)
BEGIN
  UPDATE blackbox__probe SET hit = 0 WHERE one = (NEW.at IS NULL);
  INSERT OR IGNORE INTO blackbox__probe SELECT 1, 1 WHERE NEW.at IS NULL;
  DELETE FROM event_payloads WHERE rowid = NEW.rid AND (NEW.at NOTNULL OR (SELECT hit FROM blackbox__probe));
  UPDATE blackbox__probe
     SET hit = iif(changes() = 0 AND (SELECT 1 FROM event_payloads WHERE rowid = NEW.rid),
                   RAISE(ABORT, 'MisuseError: a trigger on event_payloads stops REPLACE'), 0) WHERE hit;
END;

-- The store sweeps what no row names any more.
CREATE TRIGGER IF NOT EXISTS main.payload_unpacked
AFTER DELETE ON payload__packed WHEN OLD.text > 0
BEGIN
  UPDATE payload__state SET packed = packed - OLD.bytes WHERE one = 1;
  INSERT INTO store_dropped VALUES (OLD.text) ON CONFLICT DO NOTHING;
END;

------------------------------------------------------- what is due goes --

-- A row that is itself past the retention period is history that is being loaded: for
-- it no row is due. till is -9e15, too, if the clock is in doubt.
--
-- Two rows that are due, and as many as payload.max_bytes wants, the oldest first: it
-- looks at three, or at 100 if the bytes of one are not enough, or holds are in force. The
-- guard passes over rows that are held; the row that was written stays then, too. That something refuses is told once a day.
-- It works once an hour at least, for the clock.
CREATE TRIGGER IF NOT EXISTS main.payload_work
AFTER UPDATE OF work ON payload__state WHEN NEW.work
BEGIN
  UPDATE retention__clock SET due = NEW.work - seen + 86400000
   WHERE NEW.work - seen - due > min(due * 23, 6048e5);
  UPDATE retention__clock
     SET seen = max(seen, NEW.work), due = 3600000, was = iif(due > 6912e5, seen, was)
   WHERE one = 1 AND abs(NEW.work - seen - due + 432e5) > 432e5;
  UPDATE payload__state
     SET till = iif(min(ms + kept_ms, (SELECT seen FROM retention__clock) + 6048e5) >= work,
                    work - kept_ms, -9e15),
         due = 2 - 1000 * EXISTS (SELECT 1 FROM sqlite_schema
           WHERE iif(type = 'table', sql LIKE '%references%event_payloads%',
                     tbl_name LIKE 'event_payloads' AND name NOT GLOB 'payload_*' AND sql LIKE '%trigger%delete%'))
   WHERE one = iif(ms NOTNULL AND (SELECT size_bytes FROM event_payloads WHERE rowid = rid) > cap,
     RAISE(ABORT, 'QuotaExceededError: this row has more bytes than payload.max_bytes'), 1);
  INSERT INTO payload__held
  SELECT rowid, created_ms FROM event_payloads INDEXED BY payload_by_age
   WHERE purpose = 'archive' AND pinned = 0 AND created_ms > iif(NEW.bytes > NEW.cap, -9e15, NEW.since)
     AND (rowid <> NEW.rid OR (SELECT 1 FROM retention__in_force) IS NULL)
   ORDER BY created_ms
   LIMIT (SELECT iif(due < 0, 0, iif((SELECT 1 FROM retention__in_force) OR bytes - cap > (
              SELECT size_bytes FROM event_payloads INDEXED BY payload_by_age
               WHERE purpose = 'archive' AND pinned = 0 AND created_ms > -9e15 LIMIT 1), 100, 3)) e FROM payload__state);
  UPDATE payload__state
     SET work = 0, rid = NULL, wake = iif(till < 0 OR due IN (0, 1), wake, work + 3600000) WHERE one = 1;
  INSERT INTO retention_log(domain, minute, rule, rows, bytes)
  SELECT 'payload', (NEW.work / 86400000 + 1) * 1440,
         iif(bytes > cap, 'payload.bytes refused', 'payload.age refused') e, 0, 0
    FROM payload__state
   WHERE iif(bytes > cap, due NOT BETWEEN -900 AND -98, due < -900 AND (
           SELECT min(created_ms) FROM event_payloads INDEXED BY payload_by_age
            WHERE purpose = 'archive' AND pinned = 0 AND created_ms > since) < till);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_settings
AFTER UPDATE OF value ON blackbox_settings
BEGIN
  UPDATE payload__state
     SET kept_ms = iif(NEW.name = 'payload.retention_days', NEW.value * 86400000, kept_ms),
         since = iif(NEW.name = 'payload.history_until', iif(NEW.value, NEW.value, -9e15), since),
         cap = iif(NEW.name = 'payload.max_bytes', iif(NEW.value, NEW.value, 9e15), cap),
         wake = iif(NEW.value = OLD.value OR NEW.value NOT IN ('mask', 'drop') OR (SELECT 1 FROM sqlite_schema WHERE name = 'blackbox_secrets'),
                    0, RAISE(ABORT, 'ValidationError: payload.secrets needs the domain report'));
END;

---------------------------------------------------------------- commands --

CREATE TRIGGER IF NOT EXISTS main.payload_unpin
INSTEAD OF INSERT ON payload_unpins
BEGIN
  INSERT INTO blackbox__log(domain, kind, subject, actor, reason, detail, event_id, agent_id, kill_switch_event_id)
  SELECT 'payload', 'unpin', p.id, NEW.actor, NEW.reason, '{"pin":' || n || '}', event_id, agent_id, kill_switch_event_id
    FROM payload__pins p LEFT JOIN event_payloads e ON e.id = p.id
   WHERE p.id = NEW.payload_id;
  SELECT RAISE(ABORT, 'ValidationError: give payload_id, actor and reason as visible text without control characters') e
    FROM blackbox__log, retention__clock
   WHERE n = last_insert_rowid() AND changes() AND (
         max(actor, reason) < x'' AND max(unicode(ltrim(actor, unseen)), unicode(ltrim(reason, unseen))) < 917504
         AND instr(actor || reason, char(0)) = 0 AND actor || reason NOT GLOB control AND coalesce(NEW.id, NEW.at, NEW.pin) IS NULL) IS NOT 1;
  DELETE FROM payload__pins
   WHERE id = iif(changes(), NEW.payload_id, RAISE(ABORT, 'NotFoundError: no such row is pinned; see payload_pins'));
  UPDATE event_payloads SET pinned = 0 WHERE id = NEW.payload_id;
END;

--------------------------------------------------- rows found in the table --

UPDATE main.blackbox_settings SET value = value WHERE substr(name, 1, 8) = 'payload.';

-- Rows of the program that made the table get an id and pins.
UPDATE main.event_payloads
   SET id = printf('%08x-%04x-4%03x-%04x-%012x', random() & 4294967295, random() & 65535,
      random() & 4095, random() & 16383 | 32768, random() & 281474976710655)
 WHERE id IS NULL;

UPDATE main.event_payloads SET pinned = (purpose = 'evidence' OR id IN (SELECT id FROM main.payload__pins))
 WHERE pinned IS NULL;

-- On later runs: pins that were lost meanwhile, unless the evidence was unpinned.
UPDATE main.event_payloads SET pinned = 1
 WHERE (purpose <> 'archive' OR pinned <> 0)
   AND id NOT IN (SELECT id FROM main.payload__pins)
   AND (pinned <> 0 OR id NOT IN (SELECT payload_id FROM main.payload_unpins));

UPDATE main.payload__state
   SET bytes = (SELECT coalesce(sum(size_bytes), 0) FROM main.event_payloads WHERE purpose = 'archive' AND pinned = 0),
       packed = (SELECT coalesce(sum(bytes), 0) FROM main.payload__packed WHERE text > 0),
       wake = 0, till = 0;

INSERT INTO main.retention_rules(rule, domain, setting, unit_ms, "table")
VALUES ('payload.age', 'payload', 'payload.retention_days', 86400000, 'event_payloads'),
       ('payload.file_bytes', 'payload', 'blackbox.max_file_bytes', 0, 'event_payloads')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = NULL, setting = excluded.setting,
       unit_ms = excluded.unit_ms, "table" = excluded."table";

INSERT INTO main.blackbox_domains(domain, format) VALUES ('payload', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
