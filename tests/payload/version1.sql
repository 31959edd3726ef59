PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE blackbox_domains(
  domain  TEXT PRIMARY KEY,
  version INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO blackbox_domains VALUES('core',1);
INSERT INTO blackbox_domains VALUES('payload',1);
CREATE TABLE blackbox_setting_defs(
  name    TEXT PRIMARY KEY,
  kind    TEXT NOT NULL CHECK (kind IN ('integer', 'real', 'choice')),
  preset  NOT NULL,
  low     NUMERIC,
  high    NUMERIC,
  choices TEXT,
  meaning TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO blackbox_setting_defs VALUES('payload.enabled','integer',0,0,1,NULL,'whether payload_queue() stores anything');
INSERT INTO blackbox_setting_defs VALUES('payload.flush_batch_size','integer',20,1,100,NULL,'queued rows that are written together');
INSERT INTO blackbox_setting_defs VALUES('payload.flush_interval_ms','integer',5000,1000,60000,NULL,'milliseconds that a queued row waits at most');
INSERT INTO blackbox_setting_defs VALUES('payload.queue_max_bytes','integer',67108864,1048576,1073741824,NULL,'bytes that may wait in the queue');
INSERT INTO blackbox_setting_defs VALUES('payload.retention_days','integer',7,7,365,NULL,'days that an archive row is kept');
INSERT INTO blackbox_setting_defs VALUES('payload.window','integer',50,1,10000,NULL,'rows an agent of a ring that is made without a window');
CREATE TABLE blackbox_settings(
  name  TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
CREATE TABLE retention_log(
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  domain TEXT NOT NULL,
  rule   TEXT NOT NULL,
  actor  TEXT,
  rows   INTEGER NOT NULL,
  bytes  INTEGER NOT NULL,
  oldest INTEGER,
  newest INTEGER,
  minute INTEGER
);
INSERT INTO retention_log VALUES(1,1795315722233,'payload','manual',NULL,2,8,1769860800000,1769860800000,29921928);
CREATE TABLE retention_rules(
  rule    TEXT PRIMARY KEY,
  domain  TEXT NOT NULL,
  "view"  TEXT NOT NULL,
  setting TEXT,
  unit_ms INTEGER
) WITHOUT ROWID;
INSERT INTO retention_rules VALUES('payload.age','payload','payload_due','payload.retention_days',86400000);
CREATE TABLE event_payloads(
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
INSERT INTO event_payloads VALUES('a1','e1','a','q','r',2,'archive',0,NULL,'2026-01-31T12:00:00.000Z');
INSERT INTO event_payloads VALUES('p1','e2','a','q2','r2',4,'archive',1,NULL,'2026-01-31T12:00:00.000Z');
INSERT INTO event_payloads VALUES('v1','e3','a','q3','r3',4,'evidence',1,'k1','2026-01-31T12:00:00.000Z');
INSERT INTO event_payloads VALUES('v2','e4','a',X'00ff',NULL,2,'evidence',1,'k1','2026-01-31T12:00:00.000Z');
INSERT INTO event_payloads VALUES('free','e5','a','q5','r5',4,'evidence',0,'k1','2026-01-31T12:00:00.000Z');
INSERT INTO event_payloads VALUES('again','e6','b','q6','r6',4,'evidence',1,'k2','2026-01-31T12:00:00.000Z');
CREATE TABLE payload_pins(
  pin INTEGER PRIMARY KEY AUTOINCREMENT CHECK (pin > 0),
  id  TEXT NOT NULL UNIQUE
);
INSERT INTO payload_pins VALUES(1,'p1');
INSERT INTO payload_pins VALUES(2,'v1');
INSERT INTO payload_pins VALUES(3,'v2');
INSERT INTO payload_pins VALUES(7,'lost');
INSERT INTO payload_pins VALUES(8,'again');
CREATE TABLE payload_unpins(
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
INSERT INTO payload_unpins VALUES(1,'free','alice','case 5 is closed',1795315722161,4,'e5','a','k1');
INSERT INTO payload_unpins VALUES(2,'again','bob','looked at',1795315722180,5,'e6','b','k2');
INSERT INTO payload_unpins VALUES(3,'gone','carol','not needed',1795315722186,6,'e7','b','k2');
CREATE TABLE payload_state(
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  bulk    INTEGER NOT NULL, -- 1 while a bulk act runs: it writes the receipt
  removed INTEGER NOT NULL  -- rows that the last bulk act removed
);
INSERT INTO payload_state VALUES(1,0,0);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('payload_pins',8);
CREATE VIEW blackbox_limits AS
SELECT d.name AS name,
       CASE d.kind
         WHEN 'integer' THEN CAST(coalesce(s.value, d.preset) AS INTEGER)
         ELSE coalesce(s.value, d.preset)
       END AS value,
       d.preset AS "default",
       CASE d.kind
         WHEN 'choice' THEN d.choices
         ELSE d.low || ' to ' || d.high
       END AS range,
       d.meaning AS meaning
  FROM blackbox_setting_defs AS d
  LEFT JOIN blackbox_settings AS s ON s.name = d.name;
CREATE VIEW core_check AS
SELECT s.name AS object,
       CASE WHEN d.name IS NULL THEN 'unknown setting'
            ELSE 'setting out of range' END AS problem
  FROM blackbox_settings AS s
  LEFT JOIN blackbox_setting_defs AS d ON d.name = s.name
 WHERE d.name IS NULL
    OR NOT CASE d.kind
         -- Some languages have no integers: 3.0 is 3.
         WHEN 'integer' THEN typeof(s.value) IN ('integer', 'real')
                             AND s.value = CAST(s.value AS INTEGER)
                             AND s.value BETWEEN d.low AND d.high
         WHEN 'real' THEN typeof(s.value) IN ('integer', 'real')
                          AND s.value BETWEEN d.low AND d.high
         ELSE typeof(s.value) = 'text' AND s.value <> ''
              AND instr(s.value, ',') = 0
              AND instr(', ' || coalesce(d.choices, '') || ', ',
                        ', ' || s.value || ', ') > 0
       END
;
CREATE TRIGGER blackbox_settings_insert
AFTER INSERT ON blackbox_settings
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: unknown setting; SELECT name, range FROM blackbox_limits lists those there are')
    FROM core_check WHERE object = NEW.name AND problem = 'unknown setting';
  SELECT RAISE(ABORT, 'ValidationError: value of a setting out of range; SELECT name, range FROM blackbox_limits shows what is allowed')
    FROM core_check WHERE object = NEW.name;
END;
CREATE TRIGGER blackbox_settings_update
AFTER UPDATE ON blackbox_settings
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: unknown setting; SELECT name, range FROM blackbox_limits lists those there are')
    FROM core_check WHERE object = NEW.name AND problem = 'unknown setting';
  SELECT RAISE(ABORT, 'ValidationError: value of a setting out of range; SELECT name, range FROM blackbox_limits shows what is allowed')
    FROM core_check WHERE object = NEW.name;
END;
CREATE UNIQUE INDEX retention_log_minute
ON retention_log(domain, rule, minute) WHERE minute IS NOT NULL;
CREATE TRIGGER retention_log_cap
AFTER INSERT ON retention_log
BEGIN
  DELETE FROM retention_log WHERE id <= NEW.id - 10000;
END;
CREATE VIEW payload_rows AS
SELECT *,
       CASE WHEN substr(created_at, 5, 1) = '-'
            THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                      AS INTEGER) END AS created_ms
  FROM event_payloads;
CREATE VIEW payload_archive AS
SELECT id AS "key", size_bytes AS bytes,
       CASE WHEN substr(created_at, 5, 1) = '-'
            THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                      AS INTEGER) END AS at,
       rowid AS rid
  FROM event_payloads
 WHERE purpose = 'archive' AND pinned = 0;
CREATE VIEW payload_due AS
SELECT "key", bytes, at, NULL AS blocked_by FROM payload_archive
UNION ALL
SELECT id, size_bytes,
       CASE WHEN substr(created_at, 5, 1) = '-'
            THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                      AS INTEGER) END,
       'pinned'
  FROM event_payloads
 WHERE (purpose <> 'archive' OR pinned <> 0) AND purpose = 'archive';
CREATE VIEW payload_sweep AS
SELECT NULL AS before, NULL AS max_rows, NULL AS rule, NULL AS actor WHERE 0;
CREATE VIEW payload_clear AS
SELECT NULL AS actor WHERE 0;
CREATE VIEW payload_check AS
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
CREATE INDEX payload_by_event ON event_payloads(event_id,
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END);
CREATE INDEX payload_by_agent ON event_payloads(agent_id,
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END);
CREATE INDEX payload_by_kill_switch
ON event_payloads(kill_switch_event_id,
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END)
WHERE kill_switch_event_id IS NOT NULL;
CREATE INDEX payload_by_age ON event_payloads(
  CASE WHEN substr(created_at, 5, 1) = '-'
       THEN CAST(round((julianday(created_at) - 2440587.5) * 86400000.0)
                 AS INTEGER) END,
  size_bytes, id)
WHERE purpose = 'archive' AND pinned = 0;
CREATE INDEX payload_kept
ON event_payloads(purpose, pinned, size_bytes, id)
WHERE purpose <> 'archive' OR pinned <> 0;
CREATE TRIGGER payload_insert_rowid
BEFORE INSERT ON event_payloads
WHEN NEW.rowid <> -1
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: this rowid belongs to a pinned row; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)')
    FROM event_payloads AS e
   WHERE e.rowid = NEW.rowid AND e.id IS NOT NEW.id
     AND (e.pinned <> 0 OR e.id IN (SELECT id FROM payload_pins));
END;
CREATE TRIGGER payload_insert
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
END
;
CREATE TRIGGER payload_update_check
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
END
;
CREATE TRIGGER payload_update
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
CREATE TRIGGER payload_delete
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
CREATE TRIGGER payload_sweep_run
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
  HAVING count(*) > 0;
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
END
;
CREATE TRIGGER payload_clear_run
INSTEAD OF INSERT ON payload_clear
BEGIN
  INSERT INTO retention_log(at, domain, rule, actor, rows, bytes, oldest, newest)
  SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER),
         'payload', 'clear', NEW.actor, count(*), sum(bytes), min(at), max(at)
    FROM payload_archive
  HAVING count(*) > 0;
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
END
;
CREATE TRIGGER payload_pins_insert
BEFORE INSERT ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_pins is kept by the schema; pin a row with UPDATE event_payloads SET pinned = 1')
   WHERE (NEW.pin IS NOT NULL AND NEW.pin <> -1)
      OR NOT EXISTS (SELECT 1 FROM event_payloads
                      WHERE id = NEW.id
                        AND (pinned <> 0 OR purpose = 'evidence'));
END;
CREATE TRIGGER payload_pins_update
BEFORE UPDATE ON payload_pins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_pins is kept by the schema; it cannot be changed');
END;
CREATE TRIGGER payload_pins_delete
BEFORE DELETE ON payload_pins
WHEN NOT EXISTS (SELECT 1 FROM payload_unpins WHERE pin = OLD.pin)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pin goes only with INSERT INTO payload_unpins(payload_id, actor, reason)');
END;
CREATE TRIGGER payload_unpins_check
BEFORE INSERT ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'NotFoundError: no pinned row of event_payloads has this payload_id')
   WHERE NOT EXISTS (SELECT 1 FROM payload_pins WHERE id = NEW.payload_id);
  SELECT RAISE(ABORT, 'ValidationError: give payload_id, actor and reason only; the schema fills in the rest')
   WHERE (NEW.id IS NOT NULL AND NEW.id <> -1) OR NEW.at IS NOT NULL
      OR NEW.pin IS NOT NULL;
END;
CREATE TRIGGER payload_unpins_insert
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
CREATE TRIGGER payload_unpins_update
BEFORE UPDATE ON payload_unpins
WHEN OLD.pin IS NOT NULL OR NEW.id <> OLD.id OR NEW.payload_id <> OLD.payload_id
  OR NEW.actor <> OLD.actor OR NEW.reason <> OLD.reason
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_unpins is a record and cannot be changed');
END;
CREATE TRIGGER payload_unpins_delete
BEFORE DELETE ON payload_unpins
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: payload_unpins is a record and cannot be deleted');
END;
CREATE TRIGGER payload_delete_check
BEFORE DELETE ON event_payloads
WHEN OLD.pinned <> 0 OR OLD.id IN (SELECT id FROM payload_pins)
  OR (OLD.id IS NULL AND OLD.purpose = 'evidence')
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be deleted; let go of it first with INSERT INTO payload_unpins(payload_id, actor, reason)');
END;
COMMIT;
