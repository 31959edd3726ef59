-- cache.sql: tool results, stored by session, with quotas that always hold.
--
-- Continued in sql/cache_work.sql
--
-- Tables  cache_sessions   one row a session: its totals and its times
--         cache_items      the items
--         cache_presets    named sets of settings (keep, recycle, your own)
--   kept by triggers only:
--         cache_sizes      size and protection of each item that has been
--                          overwritten
--         cache_uses       reads of an item: how many, and the last one
--         cache_limits     one row: the settings of this file, as numbers
--         cache_state      one row: the state of a running eviction or
--                          clean-up, and the total of all sessions while
--                          there is a total quota
-- Views   cache__held          sessions that a hold keeps
--         cache_quota          used and left bytes of each session
--         cache_access         reads of each item; INSERT adds one
--         cache_use            INSERT INTO cache_use VALUES('recycle')
--         cache_due_items      items for the age rule; DELETE removes them
--         cache_due_expired    the same for items that have expired
--         cache_due_sessions   the same for the idle rule
--         cache_due_abandoned  the same for sessions with tool results
--         cache__by_age, cache__by_use   items that eviction may remove, in order
--         cache__victims, cache__total_victims   items that it removes next
--         cache__size          items and bytes, for retention_report()
--         cache__check          contradictions (no rows if all is well)
--
-- Both files run alone after core.sql, in this order, any number of times. The
-- mark "main." is the schema. A name inside a view or trigger refers to its own
-- schema.
--
-- Invariants: total_size and item_count of a session equal the sum and count
-- of its items at the end of every statement, under every conflict clause,
-- with recursive_triggers on and off. They cannot be written: they are computed
-- from kept_size and kept_count, which only the triggers of cache_items change.
--
-- REPLACE does not fire delete triggers. So before a row is inserted, the size
-- of the row that it may replace is stored in cache_sizes. There it is kept up
-- to date until that item is deleted. If the row is not replaced after all (OR
-- IGNORE), its row in cache_sizes does no harm. A REPLACE by id would delete an
-- item with another key, so a statement cannot give an id.
--
-- A limit is a RAISE after the totals are known, never a CHECK on a total:
-- under OR IGNORE a CHECK would keep the item and lose its count.
--
-- When memory runs out, json_valid() of SQLite before 3.45 returns 0 instead of
-- failing. So the test is repeated with a text that SQLite must allocate first
-- (x || ' '), and that allocation fails.
--
-- No CHECK, index or generated column calls a JSON function. SQLite before 3.41
-- regards these as unsafe while trusted_schema is off. In a table definition
-- they would make the whole file unreadable, in a trigger only the statement
-- fails. So "protected" is a plain column, and the triggers correct it.
--
-- Reads are counted in cache_uses and not in cache_items, because a change of
-- an item writes its data again. While cache.on_quota is evict_lru, every item
-- has a row in cache_uses. Otherwise only items that have been read have one.
--
-- Deleting a session removes its items with one receipt. The row triggers of
-- cache_items do nothing if the session no longer exists.

CREATE VIEW IF NOT EXISTS main.cache_quota AS
SELECT s.session_id AS session_id,
       s.total_size AS used,
       CASE WHEN min(l.session_quota, l.total_quota) < 1125899906842624
            THEN min(l.session_quota - s.total_size, l.total_quota - t.bytes) END AS left
  FROM cache_sessions AS s, cache_limits AS l, cache_state AS t;

CREATE VIEW IF NOT EXISTS main.cache__clock AS
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now;

-- The presets whose settings are all in force. INSERT applies one.
CREATE VIEW IF NOT EXISTS main.cache_use AS
SELECT p.preset AS preset
  FROM cache_presets AS p
  JOIN blackbox_settings AS l ON l.name = p.name
 GROUP BY p.preset
HAVING min(l.value IS p.value);

-- Two SELECTs, because each then uses its own index.
CREATE VIEW IF NOT EXISTS main.cache_due_items AS
SELECT storage_key AS key, data_size AS bytes, timestamp AS at,
       CASE WHEN EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = i.session_id)
            THEN 'held' END AS blocked_by
  FROM cache_items AS i WHERE protected = 0
 UNION ALL
SELECT storage_key, data_size, timestamp, 'tool_result'
  FROM cache_items WHERE protected = 1;

CREATE VIEW IF NOT EXISTS main.cache_due_expired AS
SELECT storage_key AS key, data_size AS bytes, expires_at AS at,
       CASE WHEN EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = i.session_id)
            THEN 'held' END AS blocked_by
  FROM cache_items AS i WHERE expires_at IS NOT NULL;

CREATE VIEW IF NOT EXISTS main.cache__held AS -- the sessions that a hold keeps
SELECT "key" AS session_id FROM retention__holds WHERE kind = 'session';

CREATE VIEW IF NOT EXISTS main.cache_due_sessions AS
SELECT s.session_id AS key, s.total_size AS bytes, s.last_accessed_at AS at,
       CASE WHEN EXISTS(SELECT 1 FROM cache_items AS i
                         WHERE i.session_id = s.session_id AND i.protected = 1)
            THEN 'tool_result'
            WHEN EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = s.session_id)
            THEN 'held' END AS blocked_by
  FROM cache_sessions AS s;

-- The sessions that the idle rule does not remove have a rule of their own.
CREATE VIEW IF NOT EXISTS main.cache_due_abandoned AS
SELECT s.session_id AS key, s.total_size AS bytes, s.last_accessed_at AS at,
       CASE WHEN EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = s.session_id)
            THEN 'held' END AS blocked_by
  FROM cache_sessions AS s
 WHERE EXISTS(SELECT 1 FROM cache_items AS i
               WHERE i.session_id = s.session_id AND i.protected = 1);

-- For retention_report().
CREATE VIEW IF NOT EXISTS main.cache__size AS
SELECT coalesce(sum(item_count), 0) AS rows, coalesce(sum(total_size), 0) AS bytes
  FROM cache_sessions;

CREATE VIEW IF NOT EXISTS main.cache_access AS
SELECT i.storage_key AS key,
       coalesce(u.hits, 0) AS hits,
       coalesce(max(u.used_at, i.timestamp), i.timestamp) AS used_at
  FROM cache_items AS i
  LEFT JOIN cache_uses AS u
    ON u.session_id = i.session_id AND u.task_id = i.task_id
   AND u.turn_id = i.turn_id;

-- The items that eviction may remove, for evict_oldest and for evict_lru. It
-- removes the lowest (at, id) first.
CREATE VIEW IF NOT EXISTS main.cache__by_age AS
SELECT session_id, timestamp AS at, id, data_size AS bytes, storage_key AS key
  FROM cache_items AS i
 WHERE protected = 0 AND NOT EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = i.session_id);

CREATE VIEW IF NOT EXISTS main.cache__by_use AS
SELECT u.session_id AS session_id, u.used_at AS at, i.id AS id,
       i.data_size AS bytes, i.storage_key AS key
  FROM cache_uses AS u
 CROSS JOIN cache_items AS i
    ON i.storage_key = u.session_id || '_' || u.task_id || '_' || u.turn_id
 WHERE u.protected = 0
   AND NOT EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = u.session_id);

-- The first items of the session that is being written: as many as must be
-- removed for its quota, at most 1,000. The item that is written and tool
-- results are never among them.
CREATE VIEW IF NOT EXISTS main.cache__victims AS
WITH RECURSIVE victim(id, at, excess, n, session_id, written, evict) AS (
  SELECT 0, -1, s.total_size - l.session_quota, 0, s.session_id, w.id, l.evict
    FROM cache_state AS t, cache_limits AS l
    JOIN cache_items AS w ON w.id = t.written
    JOIN cache_sessions AS s ON s.session_id = w.session_id
   UNION ALL
  SELECT i.id,
         CASE v.evict WHEN 1 THEN i.timestamp
              ELSE (SELECT u.used_at FROM cache_uses AS u
                     WHERE u.session_id = i.session_id AND u.task_id = i.task_id
                       AND u.turn_id = i.turn_id) END,
         v.excess - i.data_size, v.n + 1, v.session_id, v.written, v.evict
    FROM victim AS v
    JOIN cache_items AS i
      ON i.id = CASE v.evict
           WHEN 1 THEN
             (SELECT c.id FROM cache__by_age AS c
               WHERE c.session_id = v.session_id
                 AND (c.at, c.id) > (v.at, v.id) AND c.id <> v.written
               ORDER BY c.at, c.id LIMIT 1)
           WHEN 2 THEN
             (SELECT c.id FROM cache__by_use AS c
               WHERE c.session_id = v.session_id
                 AND c.at >= v.at AND (c.at, c.id) > (v.at, v.id)
                 AND c.id <> v.written
               ORDER BY c.at, c.id LIMIT 1) END
   WHERE v.excess > 0 AND v.n < 1000
)
SELECT id FROM victim WHERE id > 0;

-- The same for the quota of all sessions. Together both remove at most 1,000.
CREATE VIEW IF NOT EXISTS main.cache__total_victims AS
WITH RECURSIVE victim(id, at, excess, n, written, evict) AS (
  SELECT 0, -1, t.bytes - l.total_quota, t.items_before - s.item_count, w.id,
         l.evict
    FROM cache_state AS t, cache_limits AS l
    JOIN cache_items AS w ON w.id = t.written
    JOIN cache_sessions AS s ON s.session_id = w.session_id
   UNION ALL
  SELECT i.id,
         CASE v.evict WHEN 1 THEN i.timestamp
              ELSE (SELECT u.used_at FROM cache_uses AS u
                     WHERE u.session_id = i.session_id AND u.task_id = i.task_id
                       AND u.turn_id = i.turn_id) END,
         v.excess - i.data_size, v.n + 1, v.written, v.evict
    FROM victim AS v
    JOIN cache_items AS i
      ON i.id = CASE v.evict
           WHEN 1 THEN
             (SELECT c.id FROM cache__by_age AS c
               WHERE (c.at, c.id) > (v.at, v.id) AND c.id <> v.written
               ORDER BY c.at, c.id LIMIT 1)
           WHEN 2 THEN
             (SELECT c.id FROM cache__by_use AS c
               WHERE c.at >= v.at AND (c.at, c.id) > (v.at, v.id)
                 AND c.id <> v.written
               ORDER BY c.at, c.id LIMIT 1) END
   WHERE v.excess > 0 AND v.n < 1000
)
SELECT id FROM victim WHERE id > 0;

CREATE VIEW IF NOT EXISTS main.cache__check AS
SELECT s.session_id AS object,
       'the totals differ from the items of the session; delete the session' AS problem
  FROM cache_sessions AS s
 WHERE (s.total_size, s.item_count) IS NOT
       (SELECT coalesce(sum(data_size), 0), count(*) FROM cache_items AS i
         WHERE i.session_id = s.session_id)
 UNION ALL
SELECT i.storage_key, 'the item has no session; delete it and write it again'
  FROM cache_items AS i
 WHERE NOT EXISTS(SELECT 1 FROM cache_sessions AS s
                   WHERE s.session_id = i.session_id)
 UNION ALL
SELECT z.session_id || '_' || z.task_id || '_' || z.turn_id,
       'cache_sizes has another size for this item; delete the item and write it again'
  FROM cache_sizes AS z
  LEFT JOIN cache_items AS i
    ON i.storage_key = z.session_id || '_' || z.task_id || '_' || z.turn_id
 WHERE z.size IS NOT i.data_size
 UNION ALL
SELECT 'cache_state', 'the total differs from the sum of the sessions; set cache.total_quota_bytes again'
 WHERE (SELECT bytes FROM cache_state) IS NOT (SELECT bytes FROM cache__total_now)
 UNION ALL
SELECT 'cache_limits', 'it differs from the settings; set any cache setting again'
 WHERE (SELECT count(*) FROM cache_limits) <> 1
    OR EXISTS(SELECT max_item, max_description, session_quota, total_quota,
                     evict, strict_ids, locked, mark_ms FROM cache_limits
              EXCEPT SELECT * FROM cache__limits_now)
 UNION ALL
SELECT u.session_id || '_' || u.task_id || '_' || u.turn_id,
       'cache_uses has a row for this key, but there is no item; delete that row'
  FROM cache_uses AS u
 WHERE NOT EXISTS(SELECT 1 FROM cache_items AS i
                   WHERE i.storage_key = u.session_id || '_' || u.task_id || '_' || u.turn_id)
 UNION ALL
SELECT i.storage_key,
       'cache_uses does not have the row that evict_lru needs; set cache.on_quota again'
  FROM cache_items AS i
 WHERE (SELECT evict FROM cache_limits) = 2
   AND NOT EXISTS(SELECT 1 FROM cache_uses AS u
                   WHERE u.session_id = i.session_id AND u.task_id = i.task_id
                     AND u.turn_id = i.turn_id AND u.protected = i.protected)
 UNION ALL
SELECT storage_key,
       'protected differs from custom_metadata; write custom_metadata again'
  FROM cache_items
 WHERE protected IS NOT CASE WHEN json_valid(custom_metadata) OR json_valid(custom_metadata || ' ')
                             THEN coalesce(custom_metadata ->> '$.kind' = 'tool_result', 0)
                             ELSE 0 END
 UNION ALL
SELECT storage_key, 'CorruptedDataError: data or custom_metadata is not JSON; delete the item'
  FROM cache_items
 WHERE data IS NULL OR NOT (json_valid(data) OR json_valid(data || ' '))
    OR custom_metadata IS NOT NULL
   AND NOT (json_valid(custom_metadata) OR json_valid(custom_metadata || ' '));

-- What cache_state.bytes must be. It is 0 without a total quota, because nothing
-- uses it then.
CREATE VIEW IF NOT EXISTS main.cache__total_now AS
SELECT coalesce(sum(s.total_size), 0) AS bytes
  FROM cache_limits AS l
  LEFT JOIN cache_sessions AS s ON l.total_quota < 1125899906842624;

-- What cache_limits must contain according to the settings.
CREATE VIEW IF NOT EXISTS main.cache__limits_now AS
SELECT max(iif(name = 'cache.max_item_bytes', value, NULL)) AS max_item,
       max(iif(name = 'cache.max_description', value, NULL)) AS max_description,
       max(iif(name = 'cache.session_quota_bytes', value, NULL)) AS session_quota,
       max(iif(name = 'cache.total_quota_bytes', value, NULL)) AS total_quota,
       max(iif(name = 'cache.on_quota',
               (value = 'evict_oldest') + 2 * (value = 'evict_lru'), NULL)) AS evict,
       max(iif(name = 'cache.strict_session_ids', value, NULL)) AS strict_ids,
       max(iif(name = 'cache.lock_tool_results', value, NULL)) AS locked,
       max(iif(name = 'cache.mark_interval_ms', value, NULL)) AS mark_ms
  FROM blackbox_settings
 WHERE name GLOB 'cache.*';

CREATE TABLE IF NOT EXISTS main.cache_presets(
  preset TEXT NOT NULL,
  name   TEXT NOT NULL,
  value  NOT NULL,
  PRIMARY KEY (preset, name)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS main.cache_limits(
  one             INTEGER PRIMARY KEY CHECK (one = 1),
  max_item        INTEGER,
  max_description INTEGER,
  session_quota   INTEGER,
  total_quota     INTEGER,
  evict           INTEGER, -- 0 no, 1 the oldest, 2 the least recently used
  strict_ids      INTEGER,
  locked          INTEGER,
  mark_ms         INTEGER
);

-- bytes           of all sessions together; 0 without a total quota
-- written         the item for which eviction makes room; otherwise NULL
-- items_before    the number of items in its session before the eviction
-- rule            the rule that deletes rows; NULL for plain DML
CREATE TABLE IF NOT EXISTS main.cache_state(
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  bytes        INTEGER NOT NULL DEFAULT 0,
  written      INTEGER,
  items_before INTEGER,
  rule         TEXT
);

CREATE TABLE IF NOT EXISTS main.cache_sizes(
  session_id TEXT,
  task_id    TEXT,
  turn_id    TEXT,
  size       INTEGER NOT NULL,
  protected  INTEGER NOT NULL,
  PRIMARY KEY (session_id, task_id, turn_id)
) WITHOUT ROWID;

-- A key that is overwritten keeps its hits. "protected" is a copy of that of the
-- item, and is kept up to date while cache.on_quota is evict_lru.
CREATE TABLE IF NOT EXISTS main.cache_uses(
  session_id TEXT,
  task_id    TEXT,
  turn_id    TEXT,
  used_at    INTEGER NOT NULL,
  hits       INTEGER NOT NULL,
  protected  INTEGER NOT NULL,
  PRIMARY KEY (session_id, task_id, turn_id)
) WITHOUT ROWID;

-- The trigger cache_sessions_insert refuses rows that are not valid.
CREATE TABLE IF NOT EXISTS main.cache_sessions(
  session_id       TEXT PRIMARY KEY,
  total_size       INTEGER GENERATED ALWAYS AS (kept_size) VIRTUAL,
  item_count       INTEGER GENERATED ALWAYS AS (kept_count) VIRTUAL,
  created_at       INTEGER NOT NULL
                   DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  last_accessed_at INTEGER NOT NULL
                   DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  kept_size        INTEGER NOT NULL DEFAULT 0,
  kept_count       INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- The columns that lists show come first in the row, so that a list does not
-- read the overflow pages of the data.
CREATE TABLE IF NOT EXISTS main.cache_items(
  id              INTEGER PRIMARY KEY,
  storage_key     TEXT GENERATED ALWAYS AS
                  (session_id || '_' || task_id || '_' || turn_id) VIRTUAL UNIQUE,
  session_id      TEXT,
  task_id         TEXT DEFAULT (lower(hex(randomblob(4)))),
  turn_id         TEXT DEFAULT (lower(hex(randomblob(4)))),
  timestamp       INTEGER
                  DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  data_size       INTEGER GENERATED ALWAYS AS (length(CAST(data AS BLOB))) STORED,
  protected       INTEGER NOT NULL DEFAULT 0,
  expires_at      INTEGER,
  description     TEXT,
  custom_metadata TEXT,
  data            TEXT,
  CONSTRAINT "InvalidKeyFormatError: session_id must be text; give the id of the conversation"
    CHECK (typeof(session_id) = 'text'),
  CONSTRAINT "InvalidKeyFormatError: task_id must be 1 to 128 printable characters without an underscore; write - in place of _, or leave it out to have one made"
    CHECK (typeof(task_id) = 'text' AND length(task_id) BETWEEN 1 AND 128
           AND task_id NOT GLOB '*[^ -^`-~ -􏿿]*'
           AND instr(task_id, char(0)) = 0),
  CONSTRAINT "InvalidKeyFormatError: turn_id must be 1 to 128 printable characters without an underscore; write - in place of _, or leave it out to have one made"
    CHECK (typeof(turn_id) = 'text' AND length(turn_id) BETWEEN 1 AND 128
           AND turn_id NOT GLOB '*[^ -^`-~ -􏿿]*'
           AND instr(turn_id, char(0)) = 0),
  CONSTRAINT "ValidationError: timestamp must be whole milliseconds since 1970 UTC; leave it out for the current time"
    CHECK (typeof(timestamp) = 'integer' AND timestamp BETWEEN 0 AND 253402300799999),
  CONSTRAINT "ValidationError: expires_at must be whole milliseconds since 1970 UTC, or NULL; leave it out for an item that does not expire"
    CHECK (expires_at IS NULL
           OR (typeof(expires_at) = 'integer' AND expires_at BETWEEN 0 AND 253402300799999)),
  CONSTRAINT "ValidationError: description must be text that is not empty; say in a sentence what the item holds"
    CHECK (typeof(description) = 'text' AND description <> ''),
  CONSTRAINT "ValidationError: custom_metadata must be a JSON object of at most 65536 bytes, or NULL; put larger things into data"
    CHECK (custom_metadata IS NULL
           OR (typeof(custom_metadata) = 'text'
               AND length(CAST(custom_metadata AS BLOB)) <= 65536)),
  -- The rest of what is JSON is for the triggers to say.
  CONSTRAINT "ValidationError: data must be JSON text; wrap plain text with json_quote()"
    CHECK (typeof(data) = 'text'
           AND length(CAST(printf('%s', data) AS BLOB)) = data_size)
);

-- For lists (two ordered ranges, merged) and for eviction.
CREATE INDEX IF NOT EXISTS main.cache_items_session
ON cache_items(session_id, protected, timestamp);

-- For the age rule and for eviction from all sessions.
CREATE INDEX IF NOT EXISTS main.cache_items_age
ON cache_items(timestamp) WHERE protected = 0;

CREATE INDEX IF NOT EXISTS main.cache_items_expiry
ON cache_items(expires_at) WHERE expires_at IS NOT NULL;

-- These are for evict_lru.
CREATE INDEX IF NOT EXISTS main.cache_uses_session
ON cache_uses(session_id, used_at) WHERE protected = 0;

CREATE INDEX IF NOT EXISTS main.cache_uses_all
ON cache_uses(used_at) WHERE protected = 0;

-- NEW.id is -1 if the statement gave none. (The key is computed here again,
-- because in some versions of SQLite NEW does not have the generated columns yet.)
CREATE TRIGGER IF NOT EXISTS main.cache_items_before_insert
BEFORE INSERT ON cache_items
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: id is assigned by the table; omit it')
   WHERE NEW.id <> -1;
  INSERT INTO cache_sizes(session_id, task_id, turn_id, size, protected)
  SELECT session_id, task_id, turn_id, data_size, protected
    FROM cache_items
   WHERE storage_key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE
     SET size = excluded.size, protected = excluded.protected;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_before_update
BEFORE UPDATE OF task_id, turn_id ON cache_items
WHEN NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id
BEGIN
  INSERT INTO cache_sizes(session_id, task_id, turn_id, size, protected)
  SELECT session_id, task_id, turn_id, data_size, protected
    FROM cache_items
   WHERE storage_key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE
     SET size = excluded.size, protected = excluded.protected;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_insert
AFTER INSERT ON cache_items
BEGIN
  SELECT CASE
    WHEN NEW.id < 1 THEN
      RAISE(ABORT, 'ValidationError: id is assigned by the table; omit it')
    WHEN NOT (json_valid(NEW.data) OR json_valid(NEW.data || ' ')) THEN
      RAISE(ABORT, 'ValidationError: data must be JSON text; wrap plain text with json_quote()')
    WHEN NEW.custom_metadata IS NOT NULL
         AND CASE WHEN json_valid(NEW.custom_metadata) OR json_valid(NEW.custom_metadata || ' ')
                  THEN json_type(NEW.custom_metadata) <> 'object' ELSE 1 END THEN
      RAISE(ABORT, 'ValidationError: custom_metadata must be a JSON object of at most 65536 bytes, or NULL; put larger things into data')
    WHEN NEW.data_size > l.max_item THEN
      RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it into several items')
    WHEN length(NEW.description) > l.max_description THEN
      RAISE(ABORT, 'ValidationError: description must not be longer than cache.max_description characters; shorten it')
    WHEN l.strict_ids AND (length(NEW.task_id) <> 8 OR NEW.task_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: task_id must be 8 characters of a-z and 0-9; omit it to get a new one')
    WHEN l.strict_ids AND (length(NEW.turn_id) <> 8 OR NEW.turn_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: turn_id must be 8 characters of a-z and 0-9; omit it to get a new one')
    WHEN l.locked AND EXISTS(SELECT 1 FROM cache_sizes
                              WHERE session_id = NEW.session_id AND task_id = NEW.task_id
                                AND turn_id = NEW.turn_id AND protected) THEN
      RAISE(ABORT, 'ValidationError: a tool result cannot be overwritten while cache.lock_tool_results is 1; use another key')
    END
    FROM cache_limits AS l;
  -- If cache_sizes has a row for this key, that item has just been replaced.
  INSERT INTO cache_sessions(session_id, kept_size, kept_count, created_at, last_accessed_at)
  VALUES (NEW.session_id,
          NEW.data_size - coalesce((SELECT CASE WHEN EXISTS(SELECT 1 FROM cache__held AS h WHERE h.session_id = NEW.session_id)
                                           THEN RAISE(ABORT, 'HeldError: a hold keeps this session, and its items cannot be overwritten; use another key, or end the hold with retention_release()')
                                           ELSE size END
                                      FROM cache_sizes
                                     WHERE session_id = NEW.session_id AND task_id = NEW.task_id
                                       AND turn_id = NEW.turn_id), 0),
          NOT EXISTS(SELECT 1 FROM cache_sizes
                      WHERE session_id = NEW.session_id AND task_id = NEW.task_id
                        AND turn_id = NEW.turn_id),
          NEW.timestamp, NEW.timestamp)
  ON CONFLICT (session_id) DO UPDATE
     SET kept_size = kept_size + excluded.kept_size,
         kept_count = kept_count + excluded.kept_count,
         last_accessed_at = max(last_accessed_at, excluded.last_accessed_at);
  UPDATE cache_sizes SET size = NEW.data_size
   WHERE session_id = NEW.session_id AND task_id = NEW.task_id
     AND turn_id = NEW.turn_id;
  UPDATE cache_items
     SET protected = CASE WHEN json_valid(custom_metadata) OR json_valid(custom_metadata || ' ')
                          THEN coalesce(custom_metadata ->> '$.kind' = 'tool_result', 0)
                          ELSE 0 END
   WHERE id = NEW.id AND (NEW.custom_metadata IS NOT NULL OR NEW.protected <> 0)
     AND protected <> CASE WHEN json_valid(custom_metadata) OR json_valid(custom_metadata || ' ')
                           THEN coalesce(custom_metadata ->> '$.kind' = 'tool_result', 0)
                           ELSE 0 END;
  INSERT INTO cache_uses(session_id, task_id, turn_id, used_at, hits, protected)
  SELECT i.session_id, i.task_id, i.turn_id, i.timestamp, 0, i.protected
    FROM cache_limits AS l, cache_items AS i
   WHERE l.evict = 2 AND i.id = NEW.id
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE
     SET used_at = max(used_at, excluded.used_at), protected = excluded.protected;
  UPDATE cache_state SET written = NEW.id
   WHERE one = 1
     AND (bytes > (SELECT total_quota FROM cache_limits)
          OR (SELECT kept_size FROM cache_sessions WHERE session_id = NEW.session_id)
             > (SELECT session_quota FROM cache_limits));
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_update
AFTER UPDATE ON cache_items
BEGIN
  SELECT CASE
    WHEN NEW.session_id <> OLD.session_id THEN
      RAISE(ABORT, 'ValidationError: session_id of an item cannot change; write the item again in the other session')
    WHEN NEW.id <> OLD.id THEN
      RAISE(ABORT, 'ValidationError: id is assigned by the table; omit it')
    WHEN l.locked AND OLD.protected
         AND (NEW.data, NEW.description, NEW.custom_metadata, NEW.timestamp,
              NEW.expires_at, NEW.task_id, NEW.turn_id)
             IS NOT (OLD.data, OLD.description, OLD.custom_metadata, OLD.timestamp,
                     OLD.expires_at, OLD.task_id, OLD.turn_id) THEN
      RAISE(ABORT, 'ValidationError: a tool result cannot be changed while cache.lock_tool_results is 1; write another item')
    WHEN l.locked AND (NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id)
         AND EXISTS(SELECT 1 FROM cache_sizes
                     WHERE session_id = NEW.session_id AND task_id = NEW.task_id
                       AND turn_id = NEW.turn_id AND protected) THEN
      RAISE(ABORT, 'ValidationError: a tool result cannot be overwritten while cache.lock_tool_results is 1; use another key')
    WHEN EXISTS(SELECT 1 FROM cache__held WHERE session_id = OLD.session_id)
         AND (NEW.data, NEW.description, NEW.custom_metadata, NEW.timestamp, NEW.task_id, NEW.turn_id)
             IS NOT (OLD.data, OLD.description, OLD.custom_metadata, OLD.timestamp, OLD.task_id, OLD.turn_id) THEN
      RAISE(ABORT, 'HeldError: a hold keeps this session, and its items cannot be changed; write another item, or end the hold with retention_release()')
    WHEN NEW.data IS NOT OLD.data AND NOT (json_valid(NEW.data) OR json_valid(NEW.data || ' ')) THEN
      RAISE(ABORT, 'ValidationError: data must be JSON text; wrap plain text with json_quote()')
    WHEN NEW.custom_metadata IS NOT NULL AND NEW.custom_metadata IS NOT OLD.custom_metadata
         AND CASE WHEN json_valid(NEW.custom_metadata) OR json_valid(NEW.custom_metadata || ' ')
                  THEN json_type(NEW.custom_metadata) <> 'object' ELSE 1 END THEN
      RAISE(ABORT, 'ValidationError: custom_metadata must be a JSON object of at most 65536 bytes, or NULL; put larger things into data')
    WHEN NEW.data_size > l.max_item AND NEW.data_size > OLD.data_size THEN
      RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it into several items')
    WHEN length(NEW.description) > l.max_description AND NEW.description <> OLD.description THEN
      RAISE(ABORT, 'ValidationError: description must not be longer than cache.max_description characters; shorten it')
    WHEN l.strict_ids AND NEW.task_id <> OLD.task_id AND (length(NEW.task_id) <> 8 OR NEW.task_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: task_id must be 8 characters of a-z and 0-9; omit it to get a new one')
    WHEN l.strict_ids AND NEW.turn_id <> OLD.turn_id AND (length(NEW.turn_id) <> 8 OR NEW.turn_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: turn_id must be 8 characters of a-z and 0-9; omit it to get a new one')
    END
    FROM cache_limits AS l;
  -- If the key has changed and cache_sizes has a row for the new key, that item
  -- has just been replaced. The row for the old key is that of this item.
  UPDATE cache_sessions
     SET kept_size = kept_size + NEW.data_size - OLD.data_size
           - coalesce((SELECT size FROM cache_sizes
                        WHERE (NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id)
                          AND session_id = NEW.session_id AND task_id = NEW.task_id
                          AND turn_id = NEW.turn_id), 0),
         kept_count = kept_count
           - EXISTS(SELECT 1 FROM cache_sizes
                     WHERE (NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id)
                       AND session_id = NEW.session_id AND task_id = NEW.task_id
                       AND turn_id = NEW.turn_id),
         last_accessed_at = max(last_accessed_at, NEW.timestamp)
   WHERE session_id = NEW.session_id;
  UPDATE OR REPLACE cache_uses SET task_id = NEW.task_id, turn_id = NEW.turn_id
   WHERE (NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id)
     AND session_id = OLD.session_id AND task_id = OLD.task_id
     AND turn_id = OLD.turn_id;
  DELETE FROM cache_sizes
   WHERE (NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id)
     AND session_id = OLD.session_id AND task_id = OLD.task_id
     AND turn_id = OLD.turn_id;
  UPDATE cache_sizes SET size = NEW.data_size
   WHERE session_id = NEW.session_id AND task_id = NEW.task_id
     AND turn_id = NEW.turn_id;
  UPDATE cache_items
     SET protected = CASE WHEN json_valid(custom_metadata) OR json_valid(custom_metadata || ' ')
                          THEN coalesce(custom_metadata ->> '$.kind' = 'tool_result', 0)
                          ELSE 0 END
   WHERE id = NEW.id AND (NEW.custom_metadata IS NOT NULL OR NEW.protected <> 0)
     AND protected <> CASE WHEN json_valid(custom_metadata) OR json_valid(custom_metadata || ' ')
                           THEN coalesce(custom_metadata ->> '$.kind' = 'tool_result', 0)
                           ELSE 0 END;
  INSERT INTO cache_uses(session_id, task_id, turn_id, used_at, hits, protected)
  SELECT i.session_id, i.task_id, i.turn_id, i.timestamp, 0, i.protected
    FROM cache_limits AS l, cache_items AS i
   WHERE l.evict = 2 AND i.id = NEW.id
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE
     SET used_at = max(used_at, excluded.used_at), protected = excluded.protected;
  UPDATE cache_state SET written = NEW.id
   WHERE one = 1 AND NEW.data_size > OLD.data_size
     AND (bytes > (SELECT total_quota FROM cache_limits)
          OR (SELECT kept_size FROM cache_sessions WHERE session_id = NEW.session_id)
             > (SELECT session_quota FROM cache_limits));
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_delete
AFTER DELETE ON cache_items
WHEN EXISTS(SELECT 1 FROM cache_sessions WHERE session_id = OLD.session_id)
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: a tool result cannot be deleted while cache.lock_tool_results is 1; clear its session, or call a clean-up')
    FROM cache_limits AS l, cache_state AS t
   WHERE l.locked AND OLD.protected AND t.rule IS NULL;
  DELETE FROM cache_sizes
   WHERE session_id = OLD.session_id AND task_id = OLD.task_id
     AND turn_id = OLD.turn_id;
  DELETE FROM cache_uses
   WHERE session_id = OLD.session_id AND task_id = OLD.task_id
     AND turn_id = OLD.turn_id;
  UPDATE cache_sessions
     SET kept_size = kept_size - OLD.data_size, kept_count = kept_count - 1
   WHERE session_id = OLD.session_id;
  INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest, newest)
  SELECT c.now, 'cache', coalesce((SELECT rule FROM cache_state), 'manual'), 1,
         OLD.data_size, OLD.timestamp, OLD.timestamp
    FROM cache__clock AS c;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_held_delete
BEFORE DELETE ON cache_items
WHEN EXISTS(SELECT 1 FROM cache__held WHERE session_id = OLD.session_id)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this session, and its items cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER IF NOT EXISTS main.cache_sessions_held_delete
BEFORE DELETE ON cache_sessions
WHEN EXISTS(SELECT 1 FROM cache__held WHERE session_id = OLD.session_id)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this session, which cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

-- "written" is set to the item that exceeds a quota.
CREATE TRIGGER IF NOT EXISTS main.cache_state_written
AFTER UPDATE OF written ON cache_state WHEN NEW.written IS NOT NULL
BEGIN
  UPDATE cache_state
     SET rule = 'evict',
         items_before = (SELECT item_count FROM cache_sessions
                          WHERE session_id = (SELECT session_id FROM cache_items
                                               WHERE id = NEW.written));
  DELETE FROM cache_items
   WHERE (SELECT evict FROM cache_limits)
     AND id IN (SELECT id FROM cache__victims);
  DELETE FROM cache_items
   WHERE (SELECT evict FROM cache_limits)
     AND id IN (SELECT id FROM cache__total_victims);
  SELECT RAISE(ABORT, 'QuotaExceededError: the session would exceed cache.session_quota_bytes; delete items of the session or write less')
    FROM cache_limits AS l
    JOIN cache_items AS i ON i.id = NEW.written
    JOIN cache_sessions AS s ON s.session_id = i.session_id
   WHERE s.total_size > l.session_quota;
  SELECT RAISE(ABORT, 'QuotaExceededError: all sessions together would exceed cache.total_quota_bytes; clear old sessions')
    FROM cache_limits AS l, cache_state AS t
   WHERE t.bytes > l.total_quota;
  UPDATE cache_state SET written = NULL, items_before = NULL, rule = NULL;
END;

-- A new session is empty, or contains the item that has just been written.
CREATE TRIGGER IF NOT EXISTS main.cache_sessions_insert
AFTER INSERT ON cache_sessions
BEGIN
  SELECT CASE
    WHEN typeof(NEW.session_id) <> 'text' OR length(NEW.session_id) NOT BETWEEN 1 AND 128
         OR NEW.session_id GLOB '*[^ -~ -􏿿]*'
         OR instr(NEW.session_id, char(0)) THEN
      RAISE(ABORT, 'InvalidKeyFormatError: session_id must be 1 to 128 printable characters; use the id of the conversation')
    WHEN l.strict_ids AND (
           NEW.session_id NOT GLOB 'conv_????????-????-????-????-????????????'
           OR substr(NEW.session_id, 6) GLOB '*[^-a-z0-9]*'
           OR length(replace(NEW.session_id, '-', '')) <> 37) THEN
      RAISE(ABORT, 'InvalidKeyFormatError: session_id must be conv_ followed by 8-4-4-4-12 characters of a-z and 0-9; use such an id, or set cache.strict_session_ids to 0')
    WHEN typeof(NEW.created_at) <> 'integer' OR typeof(NEW.last_accessed_at) <> 'integer'
         OR NEW.created_at NOT BETWEEN 0 AND 253402300799999
         OR NEW.last_accessed_at NOT BETWEEN NEW.created_at AND 253402300799999 THEN
      RAISE(ABORT, 'ValidationError: created_at and last_accessed_at must be milliseconds since 1970 UTC, the first not after the second; omit them for the current time')
    WHEN (NEW.kept_size, NEW.kept_count) IS NOT
         (SELECT coalesce(sum(data_size), 0), count(*) FROM cache_items
           WHERE session_id = NEW.session_id) THEN
      RAISE(ABORT, 'ValidationError: a session that has items cannot be replaced, and its totals cannot be set; UPDATE it, or DELETE it first')
    WHEN EXISTS (SELECT 1 FROM retention__refused
                  WHERE kind = 'session' AND "key" = NEW.session_id) THEN
      RAISE(ABORT, 'ErasedError: the session with this id was erased, and writes under it are refused for retention.refuse_days; use another one, or wait until the time in retention_erasures')
    END
    FROM cache_limits AS l;
  UPDATE cache_state SET bytes = bytes + NEW.kept_size
   WHERE (SELECT total_quota FROM cache_limits) < 1125899906842624;
END;

-- UPDATE cache_sessions SET last_accessed_at = ... marks an access. A time that
-- is older than the present one is not an error, and changes nothing.
CREATE TRIGGER IF NOT EXISTS main.cache_sessions_update
AFTER UPDATE ON cache_sessions
WHEN NEW.last_accessed_at < OLD.last_accessed_at
  OR typeof(NEW.last_accessed_at) <> 'integer'
  OR NEW.last_accessed_at > 253402300799999
  OR NEW.created_at IS NOT OLD.created_at
  OR NEW.session_id IS NOT OLD.session_id
  OR (SELECT total_quota FROM cache_limits) < 1125899906842624
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: session_id and created_at of a session cannot change; write the items again in another session')
   WHERE NEW.created_at IS NOT OLD.created_at
      OR NEW.session_id IS NOT OLD.session_id;
  SELECT RAISE(ABORT, 'ValidationError: last_accessed_at must be an integer of milliseconds since 1970 UTC; use the current time')
   WHERE typeof(NEW.last_accessed_at) <> 'integer'
      OR NEW.last_accessed_at > 253402300799999;
  UPDATE cache_state SET bytes = bytes + NEW.kept_size - OLD.kept_size
   WHERE (SELECT total_quota FROM cache_limits) < 1125899906842624;
  UPDATE cache_sessions SET last_accessed_at = OLD.last_accessed_at
   WHERE session_id = NEW.session_id AND last_accessed_at < OLD.last_accessed_at;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_sessions_tick
AFTER INSERT ON cache_sessions WHEN EXISTS (SELECT 1 FROM retention__clock
              WHERE unixepoch() * 1000 - seen BETWEEN 3600001 AND 604800000)
BEGIN
  UPDATE retention__clock SET seen = unixepoch() * 1000 WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_sessions_delete
AFTER DELETE ON cache_sessions
BEGIN
  INSERT INTO blackbox__log(at, domain, detail, rows, bytes, oldest, newest, salt)
  SELECT c.now, 'cache', coalesce((SELECT rule FROM cache_state), 'clear'),
         OLD.item_count, OLD.total_size, c.now - min(i.timestamp),
         max(i.timestamp) - min(i.timestamp), NULL
    FROM cache__clock AS c, cache_items AS i
   WHERE i.session_id = OLD.session_id
   GROUP BY NULL; -- no row if there are no items (SQLite 3.38 needs it)
  UPDATE cache_state SET bytes = bytes - OLD.total_size
   WHERE (SELECT total_quota FROM cache_limits) < 1125899906842624;
  DELETE FROM cache_sizes WHERE session_id = OLD.session_id;
  DELETE FROM cache_uses WHERE session_id = OLD.session_id;
  DELETE FROM cache_items WHERE session_id = OLD.session_id;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_use_insert
INSTEAD OF INSERT ON cache_use
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: no preset has this name; SELECT DISTINCT preset FROM cache_presets lists them')
   WHERE NOT EXISTS(SELECT 1 FROM cache_presets WHERE preset = NEW.preset);
  SELECT RAISE(ABORT, 'ValidationError: the preset names what is no setting; SELECT name, range FROM blackbox_settings lists all settings')
    FROM cache_presets
   WHERE preset = NEW.preset AND name NOT IN (SELECT name FROM blackbox_settings);
  UPDATE blackbox_settings
     SET value = coalesce((SELECT p.value FROM cache_presets AS p
                            WHERE p.preset = NEW.preset AND p.name = blackbox_settings.name),
                          "default")
   WHERE name IN (SELECT name FROM cache_presets);
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_items_delete
INSTEAD OF DELETE ON cache_due_items WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'age';
  DELETE FROM cache_items WHERE storage_key = OLD.key;
  UPDATE cache_state SET rule = NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_expired_delete
INSTEAD OF DELETE ON cache_due_expired WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'expired';
  DELETE FROM cache_items WHERE storage_key = OLD.key;
  UPDATE cache_state SET rule = NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_sessions_delete
INSTEAD OF DELETE ON cache_due_sessions WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'idle';
  DELETE FROM cache_sessions WHERE session_id = OLD.key;
  UPDATE cache_state SET rule = NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_abandoned_delete
INSTEAD OF DELETE ON cache_due_abandoned WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'abandoned';
  DELETE FROM cache_sessions WHERE session_id = OLD.key;
  UPDATE cache_state SET rule = NULL;
END;

-- INSERT INTO cache_access(key) VALUES(...) counts reads of items. A missing
-- item is not an error, as it may have been removed since it was read.
CREATE TRIGGER IF NOT EXISTS main.cache_access_insert
INSTEAD OF INSERT ON cache_access
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: used_at must be an integer of milliseconds since 1970 UTC; omit it for the current time')
   WHERE typeof(NEW.used_at) NOT IN ('integer', 'null')
      OR NEW.used_at NOT BETWEEN 0 AND 253402300799999;
  SELECT RAISE(ABORT, 'ValidationError: hits must be an integer from 1 to 1000000000; omit it for one read')
   WHERE typeof(NEW.hits) NOT IN ('integer', 'null')
      OR NEW.hits NOT BETWEEN 1 AND 1000000000;
  INSERT INTO cache_uses(session_id, task_id, turn_id, used_at, hits, protected)
  SELECT session_id, task_id, turn_id,
         coalesce(NEW.used_at, (SELECT now FROM cache__clock)),
         coalesce(NEW.hits, 1), protected
    FROM cache_items WHERE storage_key = NEW.key
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE
     SET used_at = max(used_at, excluded.used_at), hits = hits + excluded.hits;
  UPDATE cache_sessions
     SET last_accessed_at = coalesce(NEW.used_at, (SELECT now FROM cache__clock))
   WHERE session_id = (SELECT session_id FROM cache_items WHERE storage_key = NEW.key)
     AND last_accessed_at < coalesce(NEW.used_at, (SELECT now FROM cache__clock));
END;

-- UPDATE cache_limits SET one = 1 reads the settings again.
CREATE TRIGGER IF NOT EXISTS main.cache_limits_renew
AFTER UPDATE OF one ON cache_limits
BEGIN
  UPDATE cache_limits
     SET (max_item, max_description, session_quota, total_quota, evict, strict_ids,
          locked, mark_ms) = (SELECT * FROM cache__limits_now);
  UPDATE cache_state SET bytes = (SELECT bytes FROM cache__total_now);
  INSERT INTO cache_uses(session_id, task_id, turn_id, used_at, hits, protected)
  SELECT i.session_id, i.task_id, i.turn_id, i.timestamp, 0, i.protected
    FROM cache_limits AS l, cache_items AS i
   WHERE l.evict = 2 AND OLD.evict IS NOT 2
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE
     SET used_at = max(used_at, excluded.used_at), protected = excluded.protected;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_settings_update
AFTER UPDATE OF value ON blackbox_settings WHEN NEW.name GLOB 'cache.*'
BEGIN
  UPDATE cache_limits SET one = 1;
END;

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('cache.max_item_bytes', 5242880, '1 to 1000000000',
   'most bytes of the data of one item'),
  ('cache.max_description', 300, '10 to 10000',
   'most characters of a description; functions cut a longer one, plain SQL refuses it'),
  ('cache.session_quota_bytes', 52428800, '1 to 1125899906842624',
   'most bytes of data in one session'),
  ('cache.total_quota_bytes', 1125899906842624, '1 to 1125899906842624',
   'most bytes of data in all sessions together'),
  ('cache.on_quota', 'reject', 'reject, evict_oldest, evict_lru',
   'what a write does that exceeds a quota: it fails, or it removes the oldest or the least recently used items that are not tool results'),
  ('cache.strict_session_ids', 1, '0 to 1',
   '1: session ids are conv_ and 8-4-4-4-12 characters of a-z and 0-9, task and turn ids have 8 of them; 0: 1 to 128 printable characters'),
  ('cache.idle_ms', 86400000, '0 to 3155760000000',
   'milliseconds without an access after which a session is an orphan'),
  ('cache.max_idle_days', 30, '0.0 to 36500.0',
   'days without an access after which a session that holds a tool result is an orphan too; 36500 is never'),
  ('cache.max_age_days', 36500, '0.0 to 36500.0',
   'days after which items are outdated; 36500 is never'),
  ('cache.lock_tool_results', 0, '0 to 1',
   '1: an item whose custom metadata has kind tool_result can be neither changed nor deleted; clears and clean-ups remove it'),
  ('cache.mark_interval_ms', 10000, '0 to 86400000',
   'milliseconds between two writes of the marks of cache_read()'))
 WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range,
       meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

-- Both presets contain every setting in which they differ, so that each of them
-- replaces the other completely.
INSERT INTO main.cache_presets(preset, name, value) VALUES
  ('keep', 'cache.max_item_bytes', 5242880),
  ('keep', 'cache.max_description', 300),
  ('keep', 'cache.session_quota_bytes', 52428800),
  ('keep', 'cache.total_quota_bytes', 1125899906842624),
  ('keep', 'cache.on_quota', 'reject'),
  ('keep', 'cache.idle_ms', 86400000),
  ('keep', 'cache.max_age_days', 36500),
  ('recycle', 'cache.max_item_bytes', 5242880),
  ('recycle', 'cache.max_description', 500),
  ('recycle', 'cache.session_quota_bytes', 209715200),
  ('recycle', 'cache.total_quota_bytes', 5368709120),
  ('recycle', 'cache.on_quota', 'evict_oldest'),
  ('recycle', 'cache.idle_ms', 86400000),
  ('recycle', 'cache.max_age_days', 30)
ON CONFLICT (preset, name) DO UPDATE SET value = excluded.value;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms, "table")
VALUES
  ('cache.age', 'cache', 'cache_due_items', 'cache.max_age_days', 86400000, 'cache_items'),
  ('cache.expired', 'cache', 'cache_due_expired', NULL, NULL, 'cache_items'),
  ('cache.idle', 'cache', 'cache_due_sessions', 'cache.idle_ms', 1, 'cache_sessions'),
  ('cache.abandoned', 'cache', 'cache_due_abandoned', 'cache.max_idle_days', 86400000,
   'cache_sessions')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms,
       "table" = excluded."table";

INSERT INTO main.cache_state(one) VALUES (1) ON CONFLICT (one) DO NOTHING;
INSERT INTO main.cache_limits(one) VALUES (1) ON CONFLICT (one) DO NOTHING;
UPDATE main.cache_limits SET one = 1;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('cache', 1)
ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
