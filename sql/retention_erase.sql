-- retention_erase.sql: the record of what blackbox_erase() has removed.
--
-- It continues retention.sql, and runs after that file and core.sql.
--
-- Tables  retention_erasures       one row for each erasure: who, when, why, how
--                                  much. Not what: a digest stands for the key
-- Views   retention_erasure_check  contradictions (no rows if all is well)
--
-- digest is the SHA-256 of the salt, the kind and the key, as hexadecimal digits
-- with a line feed between them. Somebody who has the key can prove with it that
-- the key was erased; from the digest nobody learns the key.
--
-- While a key is refused, retention__erased of core has it as plain text, because
-- the guards of plain SQL need it. The next erasure after that time removes it.
--
-- Invariants: no row of retention_erasures is changed or removed.

CREATE VIEW IF NOT EXISTS main.retention_erasure_check AS
SELECT 'retention_erasures' AS object,
       'erasure ' || id || ' has no digest of a key' AS problem
  FROM retention_erasures
 WHERE length(digest) <> 64 OR length(salt) <> 32
UNION ALL
SELECT 'retention_erasures',
       'erasure ' || (id - 1) || ' is missing: a row was removed'
  FROM retention_erasures AS e
 WHERE id > 1
   AND NOT EXISTS (SELECT 1 FROM retention_erasures WHERE id = e.id - 1)
UNION ALL
SELECT 'retention_erasures', 'erasure ' || seq || ' is missing: a row was removed'
  FROM sqlite_sequence
 WHERE name = 'retention_erasures'
   AND seq > (SELECT coalesce(max(id), 0) FROM retention_erasures)
UNION ALL
SELECT 'retention__erased',
       'a key of kind ' || e.kind || ' is refused, but no erasure says so'
  FROM retention__erased AS e
 WHERE NOT EXISTS (SELECT 1 FROM retention_erasures AS r
                    WHERE r.kind = e.kind AND r.until = e.until)
UNION ALL
SELECT 'retention__erased',
       'what erasure ' || r.id || ' removed is not refused any more: its key is missing'
  FROM retention_erasures AS r
 WHERE r.until > (SELECT now FROM retention_time)
   AND NOT EXISTS (SELECT 1 FROM retention__erased AS e
                    WHERE e.kind = r.kind AND e.until >= r.until);

-- AUTOINCREMENT: sqlite_sequence remembers the newest number, so that a row that is
-- missing at the end is found, too.
CREATE TABLE IF NOT EXISTS main.retention_erasures(
  id          INTEGER PRIMARY KEY AUTOINCREMENT CHECK (id > 0),
  at          INTEGER NOT NULL,
  kind        TEXT NOT NULL,
  salt        TEXT NOT NULL,
  digest      TEXT NOT NULL,
  actor       TEXT NOT NULL,
  reason      TEXT NOT NULL,
  rows        INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  held_back   INTEGER NOT NULL,
  until       INTEGER
);

-- This index never has an entry. SQLite refuses an incremental blob write to a
-- table with an index on an expression, so such a write cannot change a row.
CREATE INDEX IF NOT EXISTS main.retention_erasures_whole
ON retention_erasures(-id) WHERE at IS NULL;

CREATE TRIGGER IF NOT EXISTS main.retention_erasures_insert
BEFORE INSERT ON retention_erasures
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: an erasure gets its number from the table; omit the id')
   WHERE NEW.id IS NOT NULL AND NEW.id <> -1;
  SELECT CASE
           WHEN typeof(NEW.actor) <> 'text' OR ltrim(NEW.actor, unseen) = ''
             OR unicode(ltrim(NEW.actor, unseen)) BETWEEN 917504 AND 921599
             OR EXISTS (SELECT 1 FROM retention_controls
                         WHERE instr(NEW.actor, control) > 0)
           THEN RAISE(ABORT, 'ValidationError: actor must be visible text without control characters')
           WHEN typeof(NEW.reason) <> 'text' OR ltrim(NEW.reason, unseen) = ''
             OR unicode(ltrim(NEW.reason, unseen)) BETWEEN 917504 AND 921599
             OR EXISTS (SELECT 1 FROM retention_controls
                         WHERE instr(NEW.reason, control) > 0 AND NOT parts_text)
           THEN RAISE(ABORT, 'ValidationError: reason must be visible text without control characters other than tabs and line ends')
         END
    FROM retention_visible;
END;

CREATE TRIGGER IF NOT EXISTS main.retention_erasures_update
BEFORE UPDATE ON retention_erasures
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: retention_erasures is a record and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_erasures_delete
BEFORE DELETE ON retention_erasures
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: retention_erasures is a record and cannot be deleted');
END;

-- A key is refused until its time, which cannot become earlier.
CREATE TRIGGER IF NOT EXISTS main.retention_erased_update
BEFORE UPDATE ON retention__erased
WHEN NOT coalesce(NEW.kind IS OLD.kind AND NEW."key" IS OLD."key"
                  AND NEW.until >= OLD.until, 0)
BEGIN
  SELECT RAISE(ABORT, 'ErasedError: what was erased is refused until its time, which cannot become earlier');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_erased_insert
BEFORE INSERT ON retention__erased
WHEN EXISTS (SELECT 1 FROM retention__erased
              WHERE kind = NEW.kind AND "key" = NEW."key" AND until > NEW.until)
BEGIN
  SELECT RAISE(ABORT, 'ErasedError: what was erased is refused until its time, which cannot become earlier');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_erased_delete
BEFORE DELETE ON retention__erased
WHEN EXISTS (SELECT 1 FROM retention__refused
              WHERE kind = OLD.kind AND "key" = OLD."key")
BEGIN
  SELECT RAISE(ABORT, 'ErasedError: what was erased is refused until its time, which cannot become earlier');
END;

INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('retention.refuse_days', 30, '0 to 36500',
   'days that a write under a key that was erased is refused; 0: it is not'))
 WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range,
       meaning = excluded.meaning;
