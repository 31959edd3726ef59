-- evidence.sql: the overflow of evidence buffers in temp.
--
-- Tables  evidence_owners                one row for each buffer that has
--                                        evidence here, also after it is gone
--         evidence__overflow              the evidence; what lists need comes first
--         evidence__pinned                the pinned rows of buffers in this schema
--         evidence__sweeps                buffers in which approval has left something
-- View    evidence_due                   all evidence here. A row is due when
--                                        its owner was not seen ("at") for
--                                        evidence.orphan_days. DELETE removes a
--                                        row that is due, with a receipt
--
-- The buffers themselves are virtual tables with tables of their own. This file
-- is for buffers in temp with overflow='<this schema>'. A connection that was
-- lost leaves its evidence here; resume='<owner>' takes it over.
--
-- Invariants: rows and bytes of evidence_owners are exact, also after a DELETE of a row.
-- Every row that is removed leaves a receipt. Its rule depends on the column
-- released: 0 is "manual"; 1 is "released", for a row that its buffer pruned,
-- dropped, or moved back into memory; 2 is "evidence.orphans".
--
-- Only the module writes evidence__overflow, and blackbox_check() compares it. The three
-- guards of evidence__pinned keep pinned evidence from every statement.

CREATE VIEW IF NOT EXISTS main.evidence_due AS
SELECT o.owner || '/' || e.id AS key,
       e.action_bytes + e.screenshot_bytes + 100 AS bytes,
       o.seen AS at,
       CASE WHEN e.pinned = 1 THEN 'pinned'
            WHEN (SELECT 1 FROM retention__holds WHERE kind = 'buffer' AND "key" = e.owner)
              OR (SELECT 1 FROM retention__holds WHERE kind = 'evidence' AND "key" = e.owner || '/' || e.id)
            THEN 'held'
            WHEN o.seen >= unixepoch() * 1000 - 86400000 * (SELECT value FROM blackbox_settings
                                  WHERE name = 'evidence.orphan_days')
            THEN 'in use' END AS blocked_by,
       o.owner AS owner,
       e.rid AS rid
  FROM evidence_owners AS o
 CROSS JOIN evidence__overflow AS e ON e.owner = o.owner;

-- The pinned rows of the buffers in this schema. pinned is 0 only while the buffer
-- takes a row back.
CREATE TABLE IF NOT EXISTS main.evidence__pinned(
  no         INTEGER PRIMARY KEY,
  buffer TEXT NOT NULL, id TEXT NOT NULL, timestamp INTEGER NOT NULL, action TEXT,
  screenshot BLOB,
  pinned     INTEGER NOT NULL DEFAULT 1
);

-- The buffers in which approval has left something to sweep.
CREATE TABLE IF NOT EXISTS main.evidence__sweeps(
  buffer TEXT COLLATE NOCASE PRIMARY KEY
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS main.evidence_pinned_insert
BEFORE INSERT ON evidence__pinned
WHEN (SELECT 1 FROM evidence__pinned WHERE no = NEW.no)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be replaced; unpin it first: UPDATE the buffer SET pinned = 0') e;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_pinned_update
BEFORE UPDATE ON evidence__pinned
WHEN (NEW.no, NEW.id, NEW.timestamp, NEW.action, NEW.screenshot)
     IS NOT (OLD.no, OLD.id, OLD.timestamp, OLD.action, OLD.screenshot)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed; unpin it first: UPDATE the buffer SET pinned = 0') e;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_pinned_delete
BEFORE DELETE ON evidence__pinned
WHEN OLD.pinned IS NOT 0
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be deleted; unpin it first: UPDATE the buffer SET pinned = 0') e;
END;

-- claim gets a new value with each resume; the buffer with the old value stops
-- writing. removed is the number of actions that the buffer pruned, for exports
-- after a resume.
CREATE TABLE IF NOT EXISTS main.evidence_owners(
  owner   TEXT PRIMARY KEY,
  buffer TEXT NOT NULL, claim TEXT NOT NULL, seen INTEGER NOT NULL,
  rows INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
  removed INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS main.evidence__overflow(
  rid              INTEGER PRIMARY KEY,
  owner TEXT NOT NULL, id TEXT NOT NULL, timestamp INTEGER NOT NULL,
  action_bytes INTEGER NOT NULL, screenshot_bytes INTEGER NOT NULL, pruned INTEGER NOT NULL,
  pinned INTEGER NOT NULL, confidence REAL NOT NULL, released INTEGER NOT NULL DEFAULT 0,
  action TEXT, screenshot BLOB,
  UNIQUE (owner, id)
);

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_inserted
AFTER INSERT ON evidence__overflow
BEGIN
  UPDATE evidence_owners
     SET rows = rows + 1,
         bytes = bytes + NEW.action_bytes + NEW.screenshot_bytes + 100
   WHERE owner = NEW.owner;
END;

CREATE TRIGGER IF NOT EXISTS main.evidence_overflow_deleted
AFTER DELETE ON evidence__overflow
BEGIN
  UPDATE evidence_owners
     SET rows = rows - 1,
         bytes = bytes - OLD.action_bytes - OLD.screenshot_bytes - 100
   WHERE owner = OLD.owner;
  INSERT INTO retention_log(domain, rule, rows, bytes, oldest)
  VALUES ('evidence', CASE OLD.released WHEN 1 THEN 'released' WHEN 2 THEN 'evidence.orphans' ELSE 'manual' END,
          1, OLD.action_bytes + OLD.screenshot_bytes + 100, OLD.timestamp);
END;

-- Deletes evidence that is due. A pinned row is refused, and so is a row whose
-- buffer may still be in use. The row of the owner is deleted with its last
-- evidence.
CREATE TRIGGER IF NOT EXISTS main.evidence_due_delete
INSTEAD OF DELETE ON evidence_due
BEGIN
  SELECT CASE
  WHEN OLD.at >= unixepoch() * 1000 - 86400000 * (SELECT value FROM blackbox_settings WHERE name = 'evidence.orphan_days') THEN
    RAISE(ABORT, 'NotDueError: the buffer of this evidence was seen within evidence.orphan_days and may still be in use; to give it up, UPDATE evidence_owners SET seen = 0')
  WHEN OLD.blocked_by = 'pinned' THEN
    RAISE(ABORT, 'PinnedError: pinned evidence cannot be deleted; unpin it first: UPDATE evidence__overflow SET pinned = 0')
  WHEN OLD.blocked_by = 'held' THEN
    RAISE(ABORT, 'HeldError: a hold keeps this evidence; SELECT * FROM retention_holds lists the holds') END e;
  UPDATE evidence__overflow SET released = 2 WHERE rid = OLD.rid;
  DELETE FROM evidence__overflow WHERE rid = OLD.rid;
  DELETE FROM evidence_owners WHERE owner = OLD.owner AND rows = 0;
END;

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('evidence.orphan_days', 30, '1 to 365', 'days after which the evidence of a buffer that was not seen again falls due')) WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms, "table")
VALUES ('evidence.orphans', 'evidence', 'evidence_due', 'evidence.orphan_days', 86400000,
        'evidence__overflow')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms,
       "table" = excluded."table";

INSERT INTO main.blackbox_domains(domain, format) VALUES ('evidence', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
