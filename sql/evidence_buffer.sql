-- evidence_buffer.sql: the tables of one evidence buffer, and its rules.
--
-- This file is a template: "main." stands for the schema and "@" for the name of
-- the buffer, so that main.@_rows is rec_rows for a buffer rec. CREATE VIRTUAL
-- TABLE rec USING evidence_buffer runs it. The rules also hold without the module.
--
-- Tables  @_state    one row: the settings and the exact counters
--         @_rows     one narrow row for each piece of evidence
--         @_actions  the JSON of the action, in a separate table so that
--                    lists, counts and prunes do not read it
--         @_shots    the screenshot, in a separate table for the same reason
--         @_gone     rows removed here that still exist in the overflow
--         @_log      receipts: what was removed, by which rule, when
-- Views   @_put      INSERT stores a row (mask 0) or changes one: the sum of
--                    1 timestamp, 2 action, 4 screenshot, 8 pinned
--         @_do       INSERT runs a command, the verb:
--                      prune  prunes to a tenth of the maximum below the
--                             threshold; amount: bytes that will be added,
--                             rid: a row that must stay
--                      hold   amount: the number of screenshots that may stay
--                      clear  removes all rows that are not pinned
--                      back   moves row rid back from the overflow
--         @_room     INSERT makes room for a row that grows
--         @_note     INSERT writes a receipt
--         @_excess   bytes that a prune must free; nothing if negative
--         @_oldshots, @_sureshots, @_oldrows   the rows that a prune removes
--         @_freeshots, @_freerows              the rows that it may remove
--         @_check    contradictions (no rows if all is well); object is the
--                    last part of a table's name
--
-- This file uses no JSON function, because SQLite before 3.41 refuses them in a
-- schema while trusted_schema is off. The module checks and rewrites JSON in the
-- statements that it runs.
--
-- A command is one INSERT (approval is one UPDATE of @_actions). So it is done
-- completely or not at all, also inside a transaction.
--
-- Invariants: the counters of @_state equal the sums over @_rows. The triggers
-- of @_rows keep them, and write the receipts (@_state.rule is the rule that is
-- running). A pinned row is not changed or deleted until it is unpinned: UPDATE
-- ... SET pinned = 0. A row never replaces another row. An action and a
-- screenshot exist as long as their row says so. A receipt is not changed or
-- deleted until there are 10,000 newer receipts.
--
-- Guards do not use UPDATE OF a key: SQLite does not fire such a trigger when
-- the statement writes the key as "rowid".
--
-- The name of a table has no underscore after that of the buffer, because SQLite
-- would not protect such a table. The name of an index ends in eight random
-- letters. It cannot be renamed with the buffer, and another buffer may later
-- get the old name of this one.

CREATE TABLE main.@_state(
  one              INTEGER PRIMARY KEY CHECK (one = 1),
  format           INTEGER NOT NULL,
  max_size_bytes   INTEGER NOT NULL
                   CHECK (typeof(max_size_bytes) = 'integer'
                          AND max_size_bytes BETWEEN 1000 AND 1099511627776),
  prune_threshold  REAL NOT NULL
                   CHECK (typeof(prune_threshold) = 'real'
                          AND prune_threshold BETWEEN 0.1 AND 1),
  retention_policy TEXT NOT NULL
                   CHECK (retention_policy IN
                          ('keep-all', 'keep-last-n', 'confidence-based')),
  max_screenshots  INTEGER NOT NULL
                   CHECK (typeof(max_screenshots) = 'integer'
                          AND max_screenshots BETWEEN 0 AND 1000000),
  overflow         TEXT NOT NULL DEFAULT '',  -- its schema; '' for none
  owner            TEXT NOT NULL DEFAULT '',  -- key of the buffer's rows there
  claim            TEXT NOT NULL DEFAULT '',  -- shows that they are still its own
  rule             TEXT NOT NULL DEFAULT 'manual',
  coming           INTEGER NOT NULL DEFAULT 0,  -- amount of the prune at work
  spared           INTEGER NOT NULL DEFAULT 0,  -- its rid
  last             INTEGER NOT NULL DEFAULT 0,  -- highest rid given
  removed          INTEGER NOT NULL DEFAULT 0,  -- pruned since the last clear
  actions          INTEGER NOT NULL DEFAULT 0,
  bytes            INTEGER NOT NULL DEFAULT 0,
  screenshots      INTEGER NOT NULL DEFAULT 0,
  free_screenshots INTEGER NOT NULL DEFAULT 0,  -- those that are not pinned
  pinned_bytes     INTEGER NOT NULL DEFAULT 0,
  memory_bytes     INTEGER NOT NULL DEFAULT 0,
  overflowed       INTEGER NOT NULL DEFAULT 0   -- rows in the overflow
);

CREATE TABLE main.@_gone(
  id    TEXT PRIMARY KEY,
  whole INTEGER NOT NULL  -- 0: its screenshot alone
) WITHOUT ROWID;

CREATE TABLE main.@_log(
  id          INTEGER PRIMARY KEY,
  at          INTEGER NOT NULL,
  rule        TEXT NOT NULL,
  rows        INTEGER NOT NULL,
  screenshots INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  oldest      INTEGER,
  newest      INTEGER,
  minute      INTEGER NOT NULL,
  UNIQUE (rule, minute)
);

-- The size of a row is the bytes of its action and screenshot, plus 100. place
-- is 0 in the memory of a buffer in temp, 1 in its overflow, and 2 in the file of
-- a buffer that is not in temp.
CREATE TABLE main.@_rows(
  rid              INTEGER PRIMARY KEY CHECK (rid > 0),
  id               TEXT NOT NULL UNIQUE,
  timestamp        INTEGER NOT NULL CHECK (typeof(timestamp) = 'integer'),
  action_bytes     INTEGER NOT NULL,
  screenshot_bytes INTEGER NOT NULL,
  pruned           INTEGER NOT NULL CHECK (pruned IN (0, 1)),
  pinned           INTEGER NOT NULL CHECK (pinned IN (0, 1)),
  confidence       REAL NOT NULL,
  place            INTEGER NOT NULL CHECK (place IN (0, 1, 2))
);

CREATE TABLE main.@_actions(
  rid      INTEGER PRIMARY KEY,
  approved INTEGER NOT NULL DEFAULT 0,
  action   TEXT NOT NULL
);

CREATE TABLE main.@_shots(
  rid        INTEGER PRIMARY KEY,
  screenshot BLOB NOT NULL
);

CREATE INDEX main.@_time ON @_rows(timestamp);

CREATE INDEX main.@_oldest ON @_rows(timestamp) WHERE pinned = 0;

CREATE INDEX main.@_oldestshot ON @_rows(timestamp)
 WHERE pinned = 0 AND screenshot_bytes > 0;

CREATE INDEX main.@_surestshot ON @_rows(confidence DESC, timestamp)
 WHERE pinned = 0 AND screenshot_bytes > 0;

CREATE INDEX main.@_memory ON @_rows(timestamp) WHERE place = 0;

-- These indexes never have an entry. SQLite refuses an incremental blob write to
-- a table with an index on an expression, so such a write cannot bypass the
-- triggers. (The expressions contain no constants: with constants, SQLite 3.40
-- reports damage that does not exist when integrity_check reads several schemas.)
CREATE INDEX main.@_wholestate ON @_state(typeof(rule)) WHERE one IS NULL;
CREATE INDEX main.@_wholeaction ON @_actions(typeof(action)) WHERE rid IS NULL;
CREATE INDEX main.@_wholeshot ON @_shots(typeof(screenshot)) WHERE rid IS NULL;

--------------------------------------------------------------- views ----

CREATE VIEW main.@_put AS
SELECT rid, id, timestamp, '' AS action, x'' AS screenshot, pinned, confidence,
       0 AS mask, place
  FROM @_rows;

CREATE VIEW main.@_do AS
SELECT '' AS verb, '' AS rule, 0 AS amount, 0 AS rid, '' AS action,
       x'' AS screenshot
  FROM @_state;

-- growth: bytes that the row grows by; size: bytes that it has after that.
CREATE VIEW main.@_room AS
SELECT 0 AS growth, 0 AS size, 0 AS rid
  FROM @_state;

CREATE VIEW main.@_note AS
SELECT rule, rows, screenshots, bytes, oldest AS timestamp
  FROM @_log;

CREATE VIEW main.@_excess AS
SELECT bytes + coming - max_size_bytes * (prune_threshold - 0.1) AS bytes,
       retention_policy
  FROM @_state;

CREATE VIEW main.@_freeshots AS
SELECT rid, timestamp, confidence, screenshot_bytes AS bytes
  FROM @_rows
 WHERE pinned = 0 AND screenshot_bytes > 0
   AND rid <> (SELECT spared FROM @_state);

CREATE VIEW main.@_freerows AS
SELECT rid, timestamp, action_bytes + screenshot_bytes + 100 AS bytes
  FROM @_rows
 WHERE pinned = 0
   AND rid <> (SELECT spared FROM @_state);

-- The oldest screenshots, until enough bytes are free. This reads an index in
-- order and stops as early as possible. need is the number of bytes still to be
-- freed. It looks for the next row among those with the same time first, because
-- SQLite can seek by equal columns and one range.
CREATE VIEW main.@_oldshots AS
WITH RECURSIVE walk(rid, timestamp, need) AS (
  SELECT f.rid, f.timestamp, x.bytes - f.bytes
    FROM @_excess AS x, @_freeshots AS f
   WHERE x.bytes > 0 AND x.retention_policy <> 'confidence-based'
     AND f.rid = (SELECT n.rid FROM @_freeshots AS n
                   ORDER BY n.timestamp, n.rid LIMIT 1)
  UNION ALL
  SELECT f.rid, f.timestamp, w.need - f.bytes
    FROM walk AS w, @_freeshots AS f
   WHERE w.need > 0
     AND f.rid = coalesce(
           (SELECT n.rid FROM @_freeshots AS n
             WHERE n.timestamp = w.timestamp AND n.rid > w.rid
             ORDER BY n.rid LIMIT 1),
           (SELECT n.rid FROM @_freeshots AS n
             WHERE n.timestamp > w.timestamp
             ORDER BY n.timestamp, n.rid LIMIT 1)))
SELECT rid FROM walk;

-- The screenshots of the actions with the highest confidence, which need them
-- least; the oldest first if the confidence is equal.
CREATE VIEW main.@_sureshots AS
WITH RECURSIVE walk(rid, timestamp, confidence, need) AS (
  SELECT f.rid, f.timestamp, f.confidence, x.bytes - f.bytes
    FROM @_excess AS x, @_freeshots AS f
   WHERE x.bytes > 0 AND x.retention_policy = 'confidence-based'
     AND f.rid = (SELECT n.rid FROM @_freeshots AS n
                   ORDER BY n.confidence DESC, n.timestamp, n.rid LIMIT 1)
  UNION ALL
  SELECT f.rid, f.timestamp, f.confidence, w.need - f.bytes
    FROM walk AS w, @_freeshots AS f
   WHERE w.need > 0
     AND f.rid = coalesce(
           (SELECT n.rid FROM @_freeshots AS n
             WHERE n.confidence = w.confidence AND n.timestamp = w.timestamp
               AND n.rid > w.rid
             ORDER BY n.rid LIMIT 1),
           (SELECT n.rid FROM @_freeshots AS n
             WHERE n.confidence = w.confidence AND n.timestamp > w.timestamp
             ORDER BY n.timestamp, n.rid LIMIT 1),
           (SELECT n.rid FROM @_freeshots AS n
             WHERE n.confidence < w.confidence
             ORDER BY n.confidence DESC, n.timestamp, n.rid LIMIT 1)))
SELECT rid FROM walk;

-- The oldest rows, if the screenshots were not enough.
CREATE VIEW main.@_oldrows AS
WITH RECURSIVE walk(rid, timestamp, need) AS (
  SELECT f.rid, f.timestamp, x.bytes - f.bytes
    FROM @_excess AS x, @_freerows AS f
   WHERE x.bytes > 0
     AND f.rid = (SELECT n.rid FROM @_freerows AS n
                   ORDER BY n.timestamp, n.rid LIMIT 1)
  UNION ALL
  SELECT f.rid, f.timestamp, w.need - f.bytes
    FROM walk AS w, @_freerows AS f
   WHERE w.need > 0
     AND f.rid = coalesce(
           (SELECT n.rid FROM @_freerows AS n
             WHERE n.timestamp = w.timestamp AND n.rid > w.rid
             ORDER BY n.rid LIMIT 1),
           (SELECT n.rid FROM @_freerows AS n
             WHERE n.timestamp > w.timestamp
             ORDER BY n.timestamp, n.rid LIMIT 1)))
SELECT rid FROM walk;

CREATE VIEW main.@_check AS
SELECT 'state' AS object, 'counters differ from the rows' AS problem
  FROM @_state
 WHERE (actions, bytes, screenshots, free_screenshots, pinned_bytes,
        memory_bytes, overflowed) <>
       (SELECT count(*),
               coalesce(sum(action_bytes + screenshot_bytes + 100), 0),
               coalesce(sum(screenshot_bytes > 0), 0),
               coalesce(sum(screenshot_bytes > 0 AND pinned = 0), 0),
               coalesce(sum(pinned * (action_bytes + screenshot_bytes + 100)),
                        0),
               coalesce(sum((place = 0)
                            * (action_bytes + screenshot_bytes + 100)), 0),
               coalesce(sum(place = 1), 0)
          FROM @_rows)
UNION ALL
SELECT 'rows', 'no action for ' || quote(r.id)
  FROM @_rows AS r
 WHERE r.place <> 1
   AND NOT EXISTS (SELECT 1 FROM @_actions AS a WHERE a.rid = r.rid)
UNION ALL
SELECT 'rows', 'no screenshot for ' || quote(r.id)
  FROM @_rows AS r
 WHERE r.place <> 1 AND r.screenshot_bytes > 0
   AND NOT EXISTS (SELECT 1 FROM @_shots AS s WHERE s.rid = r.rid)
UNION ALL
SELECT 'actions', CASE WHEN r.rid IS NULL
                       THEN 'action ' || a.rid || ' belongs to no row'
                       ELSE 'wrong size of ' || quote(r.id) END
  FROM @_actions AS a
  LEFT JOIN @_rows AS r ON r.rid = a.rid
 WHERE r.rid IS NULL OR r.action_bytes <> length(CAST(a.action AS BLOB))
UNION ALL
SELECT 'shots', 'screenshot ' || s.rid
                || ' belongs to no row or has another size'
  FROM @_shots AS s
  LEFT JOIN @_rows AS r ON r.rid = s.rid
 WHERE r.rid IS NULL OR r.screenshot_bytes <> length(s.screenshot);

-------------------------------------------------------------- guards ----

CREATE TRIGGER main.@_rowsinsert
BEFORE INSERT ON @_rows
WHEN EXISTS (SELECT 1 FROM @_rows WHERE rid = NEW.rid OR id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: a row with this id exists; use INSERT OR REPLACE or UPDATE on the buffer');
END;

CREATE TRIGGER main.@_rowskey
BEFORE UPDATE ON @_rows
WHEN NEW.rid IS NOT OLD.rid OR NEW.id IS NOT OLD.id
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the id of evidence cannot change; insert a new row');
END;

CREATE TRIGGER main.@_rowsplace
BEFORE UPDATE OF place ON @_rows
WHEN NEW.place IS NOT OLD.place AND 2 IN (NEW.place, OLD.place)
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: only a buffer in temp can move its evidence; omit overflow, or create the buffer in temp');
END;

CREATE TRIGGER main.@_rowspinned
BEFORE UPDATE ON @_rows
WHEN OLD.pinned = 1
 AND (OLD.timestamp, OLD.action_bytes, OLD.screenshot_bytes, OLD.pruned)
     IS NOT (NEW.timestamp, NEW.action_bytes, NEW.screenshot_bytes, NEW.pruned)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed or deleted; unpin it first: UPDATE ... SET pinned = 0');
END;

CREATE TRIGGER main.@_rowsdelete
BEFORE DELETE ON @_rows
WHEN OLD.pinned = 1
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed or deleted; unpin it first: UPDATE ... SET pinned = 0');
END;

CREATE TRIGGER main.@_stateinsert
BEFORE INSERT ON @_state
WHEN EXISTS (SELECT 1 FROM @_state)
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: this row is the state of the buffer; to change a setting, INSERT INTO the buffer');
END;

CREATE TRIGGER main.@_statedelete
BEFORE DELETE ON @_state
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: this row is the state of the buffer; DROP TABLE the buffer instead');
END;

CREATE TRIGGER main.@_actionsinsert
BEFORE INSERT ON @_actions
WHEN EXISTS (SELECT 1 FROM @_actions WHERE rid = NEW.rid)
  OR NOT EXISTS (SELECT 1 FROM @_rows WHERE rid = NEW.rid)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: the row already has an action, or does not exist; use INSERT OR REPLACE or UPDATE on the buffer');
END;

CREATE TRIGGER main.@_actionsupdate
BEFORE UPDATE ON @_actions
WHEN EXISTS (SELECT 1 FROM @_rows WHERE rid = OLD.rid AND pinned = 1)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed or deleted; unpin it first: UPDATE ... SET pinned = 0');
END;

CREATE TRIGGER main.@_actionskey
BEFORE UPDATE ON @_actions
WHEN NEW.rid IS NOT OLD.rid
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the id of evidence cannot change; insert a new row');
END;

CREATE TRIGGER main.@_actionsdelete
BEFORE DELETE ON @_actions
WHEN EXISTS (SELECT 1 FROM @_rows WHERE rid = OLD.rid AND place <> 1)
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: an action cannot be deleted without its row; DELETE FROM the buffer instead');
END;

CREATE TRIGGER main.@_shotsinsert
BEFORE INSERT ON @_shots
WHEN EXISTS (SELECT 1 FROM @_shots WHERE rid = NEW.rid)
  OR NOT EXISTS (SELECT 1 FROM @_rows
                  WHERE rid = NEW.rid AND screenshot_bytes > 0)
BEGIN
  SELECT RAISE(ABORT, 'DuplicateError: the row already has a screenshot, or does not exist; use INSERT OR REPLACE or UPDATE on the buffer');
END;

CREATE TRIGGER main.@_shotsupdate
BEFORE UPDATE ON @_shots
WHEN EXISTS (SELECT 1 FROM @_rows WHERE rid = OLD.rid AND pinned = 1)
BEGIN
  SELECT RAISE(ABORT, 'PinnedError: pinned evidence cannot be changed or deleted; unpin it first: UPDATE ... SET pinned = 0');
END;

CREATE TRIGGER main.@_shotskey
BEFORE UPDATE ON @_shots
WHEN NEW.rid IS NOT OLD.rid
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the id of evidence cannot change; insert a new row');
END;

CREATE TRIGGER main.@_shotsdelete
BEFORE DELETE ON @_shots
WHEN EXISTS (SELECT 1 FROM @_rows
              WHERE rid = OLD.rid AND screenshot_bytes > 0 AND place <> 1)
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: a screenshot cannot be deleted here; UPDATE the buffer SET screenshot = NULL instead');
END;

-- A row of @_gone is removed from the overflow, so the buffer must no longer have
-- it.
CREATE TRIGGER main.@_goneinsert
BEFORE INSERT ON @_gone
WHEN EXISTS (SELECT 1 FROM @_rows
              WHERE id = NEW.id AND place = 1
                AND (NEW.whole IS NOT 0 OR screenshot_bytes > 0))
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: this evidence still exists in the overflow; DELETE FROM the buffer instead');
END;

CREATE TRIGGER main.@_goneupdate
BEFORE UPDATE ON @_gone
WHEN EXISTS (SELECT 1 FROM @_rows
              WHERE id = NEW.id AND place = 1
                AND (NEW.whole IS NOT 0 OR screenshot_bytes > 0))
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: this evidence still exists in the overflow; DELETE FROM the buffer instead');
END;

-- A large id would make the cap delete all other receipts. (NEW.id is -1 if the
-- statement gave none.)
CREATE TRIGGER main.@_loginsert
BEFORE INSERT ON @_log
WHEN NEW.id IS NOT NULL AND NEW.id <> -1
  OR EXISTS (SELECT 1 FROM @_log WHERE rule = NEW.rule AND minute = NEW.minute)
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a receipt for this rule and minute exists, or an id was given, which the log assigns; INSERT INTO the view of receipts');
END;

CREATE TRIGGER main.@_logupdate
BEFORE UPDATE ON @_log
WHEN (NEW.id, NEW.at, NEW.rule, NEW.minute)
     IS NOT (OLD.id, OLD.at, OLD.rule, OLD.minute)
  OR (NEW.rows >= OLD.rows AND NEW.screenshots >= OLD.screenshots
      AND NEW.bytes >= OLD.bytes) IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a receipt cannot be changed');
END;

CREATE TRIGGER main.@_logdelete
BEFORE DELETE ON @_log
WHEN OLD.id > (SELECT max(id) FROM @_log) - 10000
BEGIN
  SELECT RAISE(ABORT, 'ReceiptError: a receipt cannot be deleted; the log keeps its newest 10,000');
END;

CREATE TRIGGER main.@_logcap
AFTER INSERT ON @_log
BEGIN
  DELETE FROM @_log WHERE id <= NEW.id - 10000;
END;

------------------------------------------- counters, data, receipts ----

CREATE TRIGGER main.@_rowsinserted
AFTER INSERT ON @_rows
BEGIN
  UPDATE @_state
     SET last = max(last, NEW.rid),
         actions = actions + 1,
         bytes = bytes + NEW.action_bytes + NEW.screenshot_bytes + 100,
         screenshots = screenshots + (NEW.screenshot_bytes > 0),
         free_screenshots = free_screenshots
           + (NEW.screenshot_bytes > 0 AND NEW.pinned = 0),
         pinned_bytes = pinned_bytes
           + NEW.pinned * (NEW.action_bytes + NEW.screenshot_bytes + 100),
         memory_bytes = memory_bytes
           + (NEW.place = 0) * (NEW.action_bytes + NEW.screenshot_bytes + 100),
         overflowed = overflowed + (NEW.place = 1);
END;

CREATE TRIGGER main.@_rowsupdated
AFTER UPDATE OF action_bytes, screenshot_bytes, pinned, place ON @_rows
BEGIN
  UPDATE @_state
     SET bytes = bytes + NEW.action_bytes + NEW.screenshot_bytes
                       - OLD.action_bytes - OLD.screenshot_bytes,
         screenshots = screenshots
           + (NEW.screenshot_bytes > 0) - (OLD.screenshot_bytes > 0),
         free_screenshots = free_screenshots
           + (NEW.screenshot_bytes > 0 AND NEW.pinned = 0)
           - (OLD.screenshot_bytes > 0 AND OLD.pinned = 0),
         pinned_bytes = pinned_bytes
           + NEW.pinned * (NEW.action_bytes + NEW.screenshot_bytes + 100)
           - OLD.pinned * (OLD.action_bytes + OLD.screenshot_bytes + 100),
         memory_bytes = memory_bytes
           + (NEW.place = 0) * (NEW.action_bytes + NEW.screenshot_bytes + 100)
           - (OLD.place = 0) * (OLD.action_bytes + OLD.screenshot_bytes + 100),
         overflowed = overflowed + (NEW.place = 1) - (OLD.place = 1);
END;

CREATE TRIGGER main.@_rowsnoshot
AFTER UPDATE OF screenshot_bytes ON @_rows
WHEN NEW.screenshot_bytes = 0 AND OLD.screenshot_bytes > 0
BEGIN
  DELETE FROM @_shots WHERE rid = OLD.rid;
  INSERT INTO @_gone SELECT OLD.id, 0 WHERE OLD.place = 1
  ON CONFLICT (id) DO NOTHING;
  INSERT INTO @_note(rule, rows, screenshots, bytes, timestamp)
  SELECT rule, 0, 1, OLD.screenshot_bytes, OLD.timestamp FROM @_state;
END;

CREATE TRIGGER main.@_rowscut
AFTER UPDATE OF action_bytes ON @_rows
WHEN NEW.action_bytes < OLD.action_bytes AND NEW.pruned = 1
BEGIN
  INSERT INTO @_note(rule, rows, screenshots, bytes, timestamp)
  VALUES ('approval', 0, 0, OLD.action_bytes - NEW.action_bytes, OLD.timestamp);
END;

CREATE TRIGGER main.@_rowsmoved
AFTER UPDATE OF place ON @_rows
WHEN NEW.place = 1 AND OLD.place <> 1
BEGIN
  DELETE FROM @_actions WHERE rid = OLD.rid;
  DELETE FROM @_shots WHERE rid = OLD.rid;
  DELETE FROM @_gone WHERE id = OLD.id;
END;

CREATE TRIGGER main.@_rowsdeleted
AFTER DELETE ON @_rows
BEGIN
  UPDATE @_state
     SET actions = actions - 1,
         bytes = bytes - OLD.action_bytes - OLD.screenshot_bytes - 100,
         screenshots = screenshots - (OLD.screenshot_bytes > 0),
         free_screenshots = free_screenshots
           - (OLD.screenshot_bytes > 0 AND OLD.pinned = 0),
         pinned_bytes = pinned_bytes
           - OLD.pinned * (OLD.action_bytes + OLD.screenshot_bytes + 100),
         memory_bytes = memory_bytes
           - (OLD.place = 0) * (OLD.action_bytes + OLD.screenshot_bytes + 100),
         overflowed = overflowed - (OLD.place = 1),
         removed = removed + (rule NOT IN ('manual', 'clear'));
  DELETE FROM @_actions WHERE rid = OLD.rid;
  DELETE FROM @_shots WHERE rid = OLD.rid;
  INSERT INTO @_gone SELECT OLD.id, 1 WHERE OLD.place = 1
  ON CONFLICT (id) DO UPDATE SET whole = 1;
  INSERT INTO @_note(rule, rows, screenshots, bytes, timestamp)
  SELECT rule, 1, OLD.screenshot_bytes > 0,
         OLD.action_bytes + OLD.screenshot_bytes + 100, OLD.timestamp
    FROM @_state;
END;

-- Stores the size of the new action, and whether it was approved. (An approval
-- does not change text that is not an object.)
CREATE TRIGGER main.@_actionsupdated
AFTER UPDATE ON @_actions
BEGIN
  UPDATE @_rows
     SET action_bytes = length(CAST(NEW.action AS BLOB)),
         pruned = NEW.approved
              AND (NEW.action GLOB '{*'
                   OR ltrim(NEW.action, ' ' || char(9, 10, 13)) GLOB '{*')
   WHERE rid = NEW.rid;
END;

CREATE TRIGGER main.@_shotsupdated
AFTER UPDATE ON @_shots
BEGIN
  UPDATE @_rows SET screenshot_bytes = length(NEW.screenshot)
   WHERE rid = NEW.rid AND screenshot_bytes <> length(NEW.screenshot);
END;

-- One receipt for each rule and minute. (This is not an upsert, because then an
-- INSERT OR REPLACE could replace a receipt.)
CREATE TRIGGER main.@_noted
INSTEAD OF INSERT ON @_note
BEGIN
  UPDATE @_log
     SET rows = rows + NEW.rows,
         screenshots = screenshots + NEW.screenshots,
         bytes = bytes + NEW.bytes,
         oldest = min(oldest, NEW.timestamp),
         newest = max(newest, NEW.timestamp)
   WHERE rule = NEW.rule
     AND minute = CAST((julianday('now') - 2440587.5) * 1440.0 AS INTEGER);
  INSERT INTO @_log(at, rule, rows, screenshots, bytes, oldest, newest, minute)
  SELECT n.t, NEW.rule, NEW.rows, NEW.screenshots, NEW.bytes, NEW.timestamp,
         NEW.timestamp, n.minute
    FROM (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0)
                      AS INTEGER) AS t,
                 CAST((julianday('now') - 2440587.5) * 1440.0
                      AS INTEGER) AS minute) AS n
   WHERE NOT EXISTS (SELECT 1 FROM @_log
                      WHERE rule = NEW.rule AND minute = n.minute);
END;

------------------------------------------------------------ commands ----

-- Prunes above the threshold, and fails if the row does not fit.
CREATE TRIGGER main.@_makeroom
INSTEAD OF INSERT ON @_room
WHEN NEW.growth > 0
BEGIN
  SELECT RAISE(ABORT, 'DataTooLargeError: this evidence is larger than half of the buffer; increase max_size_bytes')
    FROM @_state WHERE NEW.size * 2 > max_size_bytes;
  INSERT INTO @_do(verb, rule, amount, rid)
  SELECT 'prune', 'threshold', NEW.growth, NEW.rid
    FROM @_state WHERE bytes + NEW.growth > max_size_bytes * prune_threshold;
  SELECT RAISE(ABORT, 'BufferFullError: pinned evidence leaves no room; unpin rows (UPDATE ... SET pinned = 0) or increase max_size_bytes')
    FROM @_state WHERE bytes + NEW.growth > max_size_bytes;
END;

CREATE TRIGGER main.@_store
INSTEAD OF INSERT ON @_put
WHEN coalesce(NEW.mask, 0) = 0
BEGIN
  INSERT INTO @_room(growth, size, rid)
  SELECT n.size, n.size, NEW.rid
    FROM (SELECT length(CAST(NEW.action AS BLOB))
                 + coalesce(length(NEW.screenshot), 0) + 100 AS size) AS n;
  INSERT INTO @_rows(rid, id, timestamp, action_bytes, screenshot_bytes, pruned,
                     pinned, confidence, place)
  VALUES (NEW.rid, NEW.id, NEW.timestamp, length(CAST(NEW.action AS BLOB)),
          coalesce(length(NEW.screenshot), 0), 0, NEW.pinned, NEW.confidence,
          NEW.place);
  INSERT INTO @_actions(rid, action) VALUES (NEW.rid, NEW.action);
  INSERT INTO @_shots(rid, screenshot)
  SELECT NEW.rid, NEW.screenshot WHERE NEW.screenshot IS NOT NULL;
  INSERT INTO @_do(verb, rule, amount)
  SELECT 'hold', 'max_screenshots', max_screenshots FROM @_state
   WHERE retention_policy = 'keep-last-n'
     AND free_screenshots > max_screenshots;
END;

-- (The action may be missing.)
CREATE TRIGGER main.@_change
INSTEAD OF INSERT ON @_put
WHEN NEW.mask <> 0
BEGIN
  INSERT INTO @_room(growth, size, rid)
  SELECT n.size - n.was, n.size, NEW.rid
    FROM (SELECT action_bytes + screenshot_bytes + 100 AS was,
                 CASE WHEN NEW.mask & 2 THEN length(CAST(NEW.action AS BLOB))
                      ELSE action_bytes END
                 + CASE WHEN NEW.mask & 4 THEN coalesce(length(NEW.screenshot), 0)
                        ELSE screenshot_bytes END + 100 AS size
            FROM @_rows WHERE rid = NEW.rid) AS n;
  UPDATE @_rows SET timestamp = NEW.timestamp
   WHERE rid = NEW.rid AND NEW.mask & 1;
  INSERT INTO @_actions(rid, action)
  SELECT NEW.rid, ''
   WHERE NEW.mask & 2
     AND NOT EXISTS (SELECT 1 FROM @_actions WHERE rid = NEW.rid);
  UPDATE @_actions SET action = NEW.action, approved = 0
   WHERE rid = NEW.rid AND NEW.mask & 2;
  UPDATE @_rows SET confidence = NEW.confidence
   WHERE rid = NEW.rid AND NEW.mask & 2;
  UPDATE @_rows SET screenshot_bytes = coalesce(length(NEW.screenshot), 0)
   WHERE rid = NEW.rid AND NEW.mask & 4;
  UPDATE @_shots SET screenshot = NEW.screenshot
   WHERE rid = NEW.rid AND NEW.mask & 4 AND NEW.screenshot IS NOT NULL;
  INSERT INTO @_shots(rid, screenshot)
  SELECT NEW.rid, NEW.screenshot
   WHERE NEW.mask & 4 AND NEW.screenshot IS NOT NULL
     AND NOT EXISTS (SELECT 1 FROM @_shots WHERE rid = NEW.rid);
  UPDATE @_rows SET pinned = NEW.pinned
   WHERE rid = NEW.rid AND NEW.mask & 8;
  INSERT INTO @_do(verb, rule, amount)
  SELECT 'hold', 'max_screenshots', max_screenshots FROM @_state
   WHERE retention_policy = 'keep-last-n'
     AND free_screenshots > max_screenshots;
END;

CREATE TRIGGER main.@_prune
INSTEAD OF INSERT ON @_do
WHEN NEW.verb = 'prune'
BEGIN
  UPDATE @_state
     SET rule = NEW.rule, coming = coalesce(NEW.amount, 0),
         spared = coalesce(NEW.rid, 0);
  UPDATE @_rows SET screenshot_bytes = 0
   WHERE rid IN (SELECT rid FROM @_oldshots);
  UPDATE @_rows SET screenshot_bytes = 0
   WHERE rid IN (SELECT rid FROM @_sureshots);
  DELETE FROM @_rows
   WHERE rid IN (SELECT rid FROM @_oldrows);
  UPDATE @_state SET rule = 'manual', coming = 0, spared = 0;
END;

CREATE TRIGGER main.@_hold
INSTEAD OF INSERT ON @_do
WHEN NEW.verb = 'hold'
BEGIN
  UPDATE @_state SET rule = NEW.rule;
  UPDATE @_rows SET screenshot_bytes = 0
   WHERE rid IN (SELECT rid FROM @_rows
                  WHERE pinned = 0 AND screenshot_bytes > 0
                  ORDER BY timestamp, rid
                  LIMIT (SELECT max(free_screenshots - NEW.amount, 0)
                           FROM @_state));
  UPDATE @_state SET rule = 'manual';
END;

CREATE TRIGGER main.@_clear
INSTEAD OF INSERT ON @_do
WHEN NEW.verb = 'clear'
BEGIN
  UPDATE @_state SET rule = 'clear';
  DELETE FROM @_rows WHERE pinned = 0;
  UPDATE @_state SET rule = 'manual', removed = 0;
END;

-- A row that comes back must have the size that it had when it was moved. (Its
-- screenshot may be missing.)
CREATE TRIGGER main.@_back
INSTEAD OF INSERT ON @_do
WHEN NEW.verb = 'back'
BEGIN
  SELECT RAISE(ABORT, 'CorruptedDataError: the row in the overflow is not the row that was moved there; DELETE the row')
   WHERE NOT EXISTS (SELECT 1 FROM @_rows
                      WHERE rid = NEW.rid AND place = 1
                        AND action_bytes = length(CAST(NEW.action AS BLOB))
                        AND coalesce(length(NEW.screenshot), screenshot_bytes)
                            = screenshot_bytes);
  INSERT INTO @_actions(rid, action) VALUES (NEW.rid, NEW.action);
  INSERT INTO @_shots(rid, screenshot)
  SELECT NEW.rid, NEW.screenshot WHERE NEW.screenshot IS NOT NULL;
  UPDATE @_rows SET place = 0 WHERE rid = NEW.rid;
  INSERT INTO @_gone SELECT id, 1 FROM @_rows WHERE rid = NEW.rid
  ON CONFLICT (id) DO UPDATE SET whole = 1;
END;

CREATE TRIGGER main.@_unknown
INSTEAD OF INSERT ON @_do
WHEN NEW.verb IN ('prune', 'hold', 'clear', 'back') IS NOT 1
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: the verb must be prune, hold, clear or back');
END;

-- A smaller buffer is pruned at once.
CREATE TRIGGER main.@_setting
AFTER UPDATE OF max_size_bytes, prune_threshold, retention_policy,
                max_screenshots ON @_state
BEGIN
  INSERT INTO @_do(verb, rule, amount, rid)
  SELECT 'prune', 'threshold', 0, 0 FROM @_state
   WHERE bytes > max_size_bytes * prune_threshold;
  SELECT RAISE(ABORT, 'BufferFullError: pinned evidence is larger than the new max_size_bytes; unpin rows first')
    FROM @_state WHERE bytes > max_size_bytes;
  INSERT INTO @_do(verb, rule, amount)
  SELECT 'hold', 'max_screenshots', max_screenshots FROM @_state
   WHERE retention_policy = 'keep-last-n'
     AND free_screenshots > max_screenshots;
END;
