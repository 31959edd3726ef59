-- evidence.sql: the overflow of evidence buffers in temp.
--
-- Tables  evidence_owners                one row for each buffer that has
--                                        evidence here, also after it is gone
--         evidence__overflow              the evidence: one narrow row each
--         evidence__overflow_actions      its JSON
--         evidence__overflow_screenshots  its screenshot
-- Views   evidence__overdue               what the overflow of a new buffer removes
--         evidence__held                  evidence that a hold keeps
--         evidence_due                   all evidence here. A row is due when
--                                        its owner was not seen ("at") for
--                                        evidence.orphan_days. DELETE removes a
--                                        row that is due, with a receipt
--         evidence__size                  rows and bytes, for retention_report()
--         evidence__check                 contradictions (no rows if all is well)
--
-- The buffers themselves are virtual tables with tables of their own. This file
-- is for buffers in temp with overflow='<this schema>'. A connection that was
-- lost leaves its evidence here; resume='<owner>' takes it over.
--
-- Invariants: rows and bytes of evidence_owners are exact. Pinned evidence is
-- not changed or deleted until it is unpinned. REPLACE overwrites nothing.
-- Every row that is removed leaves a receipt. Its rule depends on the column
-- released: 0 is "manual"; 1 is "released", for a row that its buffer pruned,
-- dropped, or moved back into memory; 2 is "evidence.orphans".
--
-- Guards do not use UPDATE OF a key: SQLite does not fire such a trigger when
-- the statement writes the key as "rowid".

CREATE VIEW IF NOT EXISTS main.evidence_due AS
SELECT o.owner || '/' || e.id AS key,
       e.action_bytes + e.screenshot_bytes + 100 AS bytes,
       o.seen AS at,
       CASE WHEN e.pinned = 1 THEN 'pinned'
            WHEN EXISTS (SELECT 1 FROM retention__in_force)
             AND EXISTS (SELECT 1 FROM evidence__held AS h WHERE h.rid = e.rid)
            THEN 'held'
            WHEN o.seen >= (julianday('now') - 2440587.5) * 86400000.0
                 - 86400000.0 * (SELECT value FROM blackbox_settings
                                  WHERE name = 'evidence.orphan_days')
            THEN 'in use' END AS blocked_by,
       o.owner AS owner,
       e.rid AS rid
  FROM evidence_owners AS o
 CROSS JOIN evidence__overflow AS e ON e.owner = o.owner;

-- For retention_report(). Buffers are not in it.
CREATE VIEW IF NOT EXISTS main.evidence__size AS
SELECT coalesce(sum(rows), 0) AS rows, coalesce(sum(bytes), 0) AS bytes
  FROM evidence_owners;

-- The evidence that a hold keeps: on its owner (the kind is 'buffer', and the key
-- that of evidence_owners), or on a row ('evidence', and the key of evidence_due).
CREATE VIEW IF NOT EXISTS main.evidence__held AS
SELECT e.rid
  FROM evidence__overflow AS e
 WHERE EXISTS (SELECT 1 FROM retention__holds
                WHERE kind = 'buffer' AND "key" = e.owner)
    OR EXISTS (SELECT 1 FROM retention__holds
                WHERE kind = 'evidence' AND "key" = e.owner || '/' || e.id);

CREATE VIEW IF NOT EXISTS main.evidence__check AS
SELECT o.owner AS object, 'the counters differ from the rows' AS problem
  FROM evidence_owners AS o
 WHERE (o.rows, o.bytes) <>
       (SELECT count(*),
               coalesce(sum(e.action_bytes + e.screenshot_bytes + 100), 0)
          FROM evidence__overflow AS e WHERE e.owner = o.owner)
UNION ALL
SELECT e.owner || '/' || e.id,
       CASE WHEN o.owner IS NULL THEN 'has no owner'
            WHEN a.rid IS NULL THEN 'has no action'
            WHEN e.action_bytes <> length(CAST(a.action AS BLOB))
              THEN 'its size differs from the size of its action'
            ELSE 'its size differs from the size of its screenshot' END
  FROM evidence__overflow AS e
  LEFT JOIN evidence_owners AS o ON o.owner = e.owner
  LEFT JOIN evidence__overflow_actions AS a ON a.rid = e.rid
  LEFT JOIN evidence__overflow_screenshots AS s ON s.rid = e.rid
 WHERE o.owner IS NULL OR a.rid IS NULL
    OR e.action_bytes <> length(CAST(a.action AS BLOB))
    OR e.screenshot_bytes <> coalesce(length(s.screenshot), 0);

-- claim gets a new value with each resume; the buffer with the old value stops
-- writing. removed is the number of actions that the buffer pruned, for exports
-- after a resume.
CREATE TABLE IF NOT EXISTS main.evidence_owners(
  owner   TEXT PRIMARY KEY,
  buffer  TEXT NOT NULL,
  claim   TEXT NOT NULL,
  seen    INTEGER NOT NULL,
  rows    INTEGER NOT NULL DEFAULT 0,
  bytes   INTEGER NOT NULL DEFAULT 0,
  removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS main.evidence__overflow(
  rid              INTEGER PRIMARY KEY,
  owner            TEXT NOT NULL,
  id               TEXT NOT NULL,
  timestamp        INTEGER NOT NULL,
  action_bytes     INTEGER NOT NULL,
  screenshot_bytes INTEGER NOT NULL,
  pruned           INTEGER NOT NULL,
  pinned           INTEGER NOT NULL,
  confidence       REAL NOT NULL,
  released         INTEGER NOT NULL DEFAULT 0,
  UNIQUE (owner, id)
);

CREATE TABLE IF NOT EXISTS main.evidence__overflow_actions(
  rid    INTEGER PRIMARY KEY,
  action TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS main.evidence__overflow_screenshots(
  rid        INTEGER PRIMARY KEY,
  screenshot BLOB NOT NULL
);

-- These indexes never have an entry. SQLite refuses an incremental blob write to
-- a table with an index on an expression, so such a write cannot bypass the
-- triggers. (The expressions contain no constants: with constants, SQLite 3.40
-- reports damage that does not exist when integrity_check reads several schemas.)
CREATE INDEX IF NOT EXISTS main.evidence_actions_whole
ON evidence__overflow_actions(typeof(action)) WHERE rid IS NULL;

CREATE INDEX IF NOT EXISTS main.evidence_screenshots_whole
ON evidence__overflow_screenshots(typeof(screenshot)) WHERE rid IS NULL;

CREATE TRIGGER IF NOT EXISTS main.evidence_owners_key
BEFORE UPDATE ON evidence_owners
WHEN NEW.owner IS NOT OLD.owner
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the owner of evidence cannot change; take it over with the parameter resume of a new buffer');
END;

-- This includes an INSERT OR REPLACE of the row.
CREATE TRIGGER IF NOT EXISTS main.evidence_owners_inserted
AFTER INSERT ON evidence_owners
WHEN EXISTS (SELECT 1 FROM evidence__overflow WHERE owner = NEW.owner)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: this owner already has evidence here; UPDATE its row');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_owners_delete
BEFORE DELETE ON evidence_owners
WHEN EXISTS (SELECT 1 FROM evidence__overflow WHERE owner = OLD.owner)
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: this owner still has evidence here; DELETE FROM evidence_due, or resume the owner first');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_insert
BEFORE INSERT ON evidence__overflow
WHEN EXISTS (SELECT 1 FROM evidence__overflow
              WHERE rid = NEW.rid OR owner = NEW.owner AND id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: this evidence already exists here; delete the row first');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_key
BEFORE UPDATE ON evidence__overflow
WHEN (NEW.rid, NEW.owner, NEW.id) IS NOT (OLD.rid, OLD.owner, OLD.id)
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the key of overflowed evidence cannot change; use the buffer instead');
END;

-- A statement may unpin the row, and may set released in the same statement.
CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_pinned
BEFORE UPDATE ON evidence__overflow
WHEN OLD.pinned IS NOT 0
 AND ((NEW.timestamp, NEW.action_bytes, NEW.screenshot_bytes, NEW.pruned)
      IS NOT (OLD.timestamp, OLD.action_bytes, OLD.screenshot_bytes, OLD.pruned)
      OR NEW.pinned IS NOT 0
         AND (NEW.pinned, NEW.released) IS NOT (OLD.pinned, OLD.released))
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed; unpin it first: UPDATE evidence__overflow SET pinned = 0');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_delete
BEFORE DELETE ON evidence__overflow
WHEN OLD.pinned IS NOT 0
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be deleted; unpin it first: UPDATE evidence__overflow SET pinned = 0');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_held_update
BEFORE UPDATE ON evidence__overflow
WHEN (NEW.timestamp, NEW.action_bytes, NEW.screenshot_bytes)
     IS NOT (OLD.timestamp, OLD.action_bytes, OLD.screenshot_bytes)
 AND EXISTS (SELECT 1 FROM evidence__held WHERE rid = OLD.rid)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this evidence, which cannot be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_held_delete
BEFORE DELETE ON evidence__overflow
WHEN EXISTS (SELECT 1 FROM evidence__held WHERE rid = OLD.rid)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this evidence, which cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_actions_held_update
BEFORE UPDATE ON evidence__overflow_actions
WHEN EXISTS (SELECT 1 FROM evidence__held WHERE rid = OLD.rid)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this evidence, which cannot be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_held_update
BEFORE UPDATE ON evidence__overflow_screenshots
WHEN EXISTS (SELECT 1 FROM evidence__held WHERE rid = OLD.rid)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this evidence, which cannot be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_held_delete
BEFORE DELETE ON evidence__overflow_screenshots
WHEN EXISTS (SELECT 1 FROM evidence__held WHERE rid = OLD.rid)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this evidence, which cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_actions_insert
BEFORE INSERT ON evidence__overflow_actions
WHEN EXISTS (SELECT 1 FROM evidence__overflow_actions WHERE rid = NEW.rid)
  OR NOT EXISTS (SELECT 1 FROM evidence__overflow WHERE rid = NEW.rid)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: the evidence already has an action, or does not exist; UPDATE the action');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_actions_key
BEFORE UPDATE ON evidence__overflow_actions
WHEN NEW.rid IS NOT OLD.rid
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the key of overflowed evidence cannot change; use the buffer instead');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_actions_delete
BEFORE DELETE ON evidence__overflow_actions
WHEN EXISTS (SELECT 1 FROM evidence__overflow WHERE rid = OLD.rid)
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: an action cannot be deleted without its evidence; DELETE FROM evidence__overflow instead');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_actions_update
BEFORE UPDATE ON evidence__overflow_actions
WHEN EXISTS (SELECT 1 FROM evidence__overflow
              WHERE rid = OLD.rid AND pinned IS NOT 0)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed; unpin it first: UPDATE evidence__overflow SET pinned = 0');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_actions_updated
AFTER UPDATE ON evidence__overflow_actions
BEGIN
  UPDATE evidence__overflow SET action_bytes = length(CAST(NEW.action AS BLOB))
   WHERE rid = NEW.rid;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_insert
BEFORE INSERT ON evidence__overflow_screenshots
WHEN EXISTS (SELECT 1 FROM evidence__overflow_screenshots WHERE rid = NEW.rid)
  OR NOT EXISTS (SELECT 1 FROM evidence__overflow WHERE rid = NEW.rid)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: the evidence already has a screenshot, or does not exist; UPDATE the screenshot');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_key
BEFORE UPDATE ON evidence__overflow_screenshots
WHEN NEW.rid IS NOT OLD.rid
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the key of overflowed evidence cannot change; use the buffer instead');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_delete
BEFORE DELETE ON evidence__overflow_screenshots
WHEN EXISTS (SELECT 1 FROM evidence__overflow
              WHERE rid = OLD.rid AND pinned IS NOT 0)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be deleted; unpin it first: UPDATE evidence__overflow SET pinned = 0');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_update
BEFORE UPDATE ON evidence__overflow_screenshots
WHEN EXISTS (SELECT 1 FROM evidence__overflow
              WHERE rid = OLD.rid AND pinned IS NOT 0)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed; unpin it first: UPDATE evidence__overflow SET pinned = 0');
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_updated
AFTER UPDATE ON evidence__overflow_screenshots
BEGIN
  UPDATE evidence__overflow SET screenshot_bytes = length(NEW.screenshot)
   WHERE rid = NEW.rid;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_screenshots_deleted
AFTER DELETE ON evidence__overflow_screenshots
BEGIN
  UPDATE evidence__overflow SET screenshot_bytes = 0
   WHERE rid = OLD.rid AND screenshot_bytes > 0;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_inserted
AFTER INSERT ON evidence__overflow
BEGIN
  UPDATE evidence_owners
     SET rows = rows + 1,
         bytes = bytes + NEW.action_bytes + NEW.screenshot_bytes + 100
   WHERE owner = NEW.owner;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_updated
AFTER UPDATE OF action_bytes, screenshot_bytes ON evidence__overflow
BEGIN
  UPDATE evidence_owners
     SET bytes = bytes + NEW.action_bytes + NEW.screenshot_bytes
                       - OLD.action_bytes - OLD.screenshot_bytes
   WHERE owner = NEW.owner;
END;

-- Deletes a screenshot that is no longer counted, and writes the receipt.
CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_noshot
AFTER UPDATE OF screenshot_bytes ON evidence__overflow
WHEN NEW.screenshot_bytes = 0 AND OLD.screenshot_bytes > 0
BEGIN
  DELETE FROM evidence__overflow_screenshots WHERE rid = OLD.rid;
  INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
  SELECT n.t, 'evidence',
         CASE NEW.released WHEN 1 THEN 'released' ELSE 'manual' END,
         0, OLD.screenshot_bytes, OLD.timestamp, OLD.timestamp
    FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0)
                      AS INTEGER) AS t) AS n;
END;

-- Updates the counters, deletes what belongs to the row, and writes the receipt.
CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_deleted
AFTER DELETE ON evidence__overflow
BEGIN
  UPDATE evidence_owners
     SET rows = rows - 1,
         bytes = bytes - OLD.action_bytes - OLD.screenshot_bytes - 100
   WHERE owner = OLD.owner;
  DELETE FROM evidence__overflow_actions WHERE rid = OLD.rid;
  DELETE FROM evidence__overflow_screenshots WHERE rid = OLD.rid;
  INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
  SELECT n.t, 'evidence',
         CASE OLD.released WHEN 1 THEN 'released' WHEN 2 THEN 'evidence.orphans'
                           ELSE 'manual' END,
         1, OLD.action_bytes + OLD.screenshot_bytes + 100,
         OLD.timestamp, OLD.timestamp
    FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0)
                      AS INTEGER) AS t) AS n;
END;

-- Deletes evidence that is due. A pinned row is refused, and so is a row whose
-- buffer may still be in use. The row of the owner is deleted with its last
-- evidence.
CREATE TRIGGER IF NOT EXISTS main.evidence_due_delete
INSTEAD OF DELETE ON evidence_due
BEGIN
  SELECT RAISE(ABORT, 'NotDueError: the buffer of this evidence was seen within evidence.orphan_days and may still be in use; to give it up, UPDATE evidence_owners SET seen = 0')
   WHERE OLD.at >= (julianday('now') - 2440587.5) * 86400000.0 - 86400000.0 *
         (SELECT value FROM blackbox_settings WHERE name = 'evidence.orphan_days');
  UPDATE evidence__overflow SET released = 2 WHERE rid = OLD.rid AND pinned = 0;
  DELETE FROM evidence__overflow WHERE rid = OLD.rid;
  DELETE FROM evidence_owners WHERE owner = OLD.owner AND rows = 0;
END;

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('evidence.orphan_days', 30, '1 to 365',
   'days after which the evidence of a buffer that was not seen again falls due'))
 WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range,
       meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

-- The first overflow of a buffer remembers the time, and removes a little of what is due: among
-- the oldest 100, the first that nothing blocks. It takes only what nothing can
-- refuse, because a trigger cannot go on after an error.
CREATE VIEW IF NOT EXISTS main.evidence__overdue AS
SELECT d.rid AS rid
  FROM (SELECT rid, blocked_by FROM evidence_due
         WHERE at < (SELECT now FROM retention_now) - 86400000 *
               (SELECT value FROM blackbox_settings WHERE name = 'evidence.orphan_days')
         ORDER BY at LIMIT 100) AS d
 WHERE d.blocked_by IS NULL
   AND NOT EXISTS (SELECT 1 FROM retention_refusers WHERE rule = 'evidence.orphans')
 LIMIT 2;

CREATE TRIGGER IF NOT EXISTS main.evidence_work
AFTER INSERT ON evidence_owners
WHEN EXISTS (SELECT 1 FROM retention__clock
              WHERE unixepoch() * 1000 - seen BETWEEN 3600001 AND 604800000)
  OR EXISTS (SELECT 1 FROM evidence_owners
              WHERE seen < (julianday('now') - 2440587.5) * 86400000.0 - 86400000 *
                    (SELECT value FROM blackbox_settings WHERE name = 'evidence.orphan_days'))
BEGIN
  UPDATE retention__clock SET seen = unixepoch() * 1000
   WHERE one = 1 AND unixepoch() * 1000 - seen BETWEEN 3600001 AND 604800000;
  DELETE FROM evidence_due
   WHERE rid IN (SELECT rid FROM evidence__overdue);
END;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms, "table")
VALUES ('evidence.orphans', 'evidence', 'evidence_due', 'evidence.orphan_days', 86400000,
        'evidence__overflow')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms,
       "table" = excluded."table";

INSERT INTO main.blackbox_domains(domain, format) VALUES ('evidence', 1)
ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
