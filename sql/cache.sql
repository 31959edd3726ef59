-- cache.sql: tool results, stored by session, with quotas that always hold.
--
-- Tables  cache_items      the items
--         cache_sessions   one row a session: its totals and its times
--         cache_access     reads of an item: how many, and the last one
--         cache_state      one row: the bytes of all sessions, the settings as
--                          numbers, and what the statement that runs has noted
-- Views   cache_due_items     items for the age rule; DELETE removes them
--         cache_due_expired   the same for items that have expired
--         cache_due_sessions  the same for sessions that are idle
--
-- It runs alone after core.sql, any number of times. The mark "main." is the schema.
-- A name inside a view or trigger refers to its own schema.
--
-- Invariants, on every connection, under every conflict clause, with
-- recursive_triggers on and off:
--   * total_size and item_count of a session equal the sum and count of its items at
--     the end of every statement. They cannot be written: they are computed from
--     kept_size and kept_count, which only triggers change
--   * no statement that makes a session larger leaves it above a quota
--   * a tool result is never evicted, and what a hold keeps is neither changed nor
--     removed
--   * each removal is counted in a receipt
--   * a new item removes at most two items that have expired, and looks at 100. It
--     never fails because of them: it removes none while something could refuse it
--
-- REPLACE fires no DELETE trigger. So before a row is inserted, the size of the row that
-- it may replace is noted in cache_access, by its key, because a trigger of the user may
-- insert other items meanwhile. (A DELETE takes the note along.) A REPLACE by id would
-- delete an item with another key, so a statement cannot give an id.
--
-- A limit is a RAISE after the totals are known, never a CHECK on a total: under OR
-- IGNORE a CHECK would keep the item and lose its count.
--
-- SQLite compiles all that a statement may fire, and allocates the memory of a whole
-- trigger whenever it fires. So cache_work is fired (see cache_state) only if there is work, and "WHERE one = 1" makes an UPDATE one-pass.
--
-- When memory runs out, json_valid() of SQLite before 3.45 returns 0 instead of
-- failing. So the test is repeated with a text that SQLite must allocate first
-- (x || ' '), and that allocation fails.
--
-- No CHECK, index or generated column calls a JSON function. SQLite before 3.41
-- regards these as unsafe while trusted_schema is off. In a table definition they would
-- make the whole file unreadable, in a trigger only the statement fails. So "protected"
-- is a plain column, and the triggers correct it when an item is written.
--
-- Reads are counted in cache_access and not in cache_items, because a change of an item
-- writes its data again. While cache.on_quota is evict_lru, every item has a row there.
-- Otherwise only items that have been read or written again have one.
--
-- Deleting a session removes its items with one receipt. The row triggers of
-- cache_items do nothing if the session no longer exists.

CREATE TABLE IF NOT EXISTS main.cache_sessions(
  session_id TEXT PRIMARY KEY,
  total_size INTEGER AS (kept_size),
  item_count INTEGER AS (kept_count),
  created_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  last_accessed_at INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  kept_size INTEGER NOT NULL DEFAULT 0,
  kept_count INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- The columns that lists show come first in the row, so that a list does not
-- read the overflow pages of the data.
CREATE TABLE IF NOT EXISTS main.cache_items(
  id INTEGER PRIMARY KEY,
  storage_key TEXT AS (session_id || '_' || task_id || '_' || turn_id) UNIQUE,
  session_id TEXT,
  task_id TEXT DEFAULT (lower(hex(randomblob(4)))),
  turn_id TEXT DEFAULT (lower(hex(randomblob(4)))),
  timestamp INTEGER DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  data_size INTEGER AS (length(CAST(data AS BLOB))) STORED,
  protected INTEGER NOT NULL DEFAULT 0,
  expires_at INTEGER,
  description TEXT,
  custom_metadata TEXT,
  data TEXT,
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

-- id and protected are those of the item, and are right while cache.on_quota is
-- evict_lru. size: only for the statement that runs, which may replace the item.
CREATE TABLE IF NOT EXISTS main.cache_access(
  key TEXT PRIMARY KEY,
  hits INTEGER NOT NULL,
  used_at INTEGER NOT NULL,
  id INTEGER,
  session_id TEXT,
  protected INTEGER,
  size INTEGER
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS main.cache_access_session
ON cache_access(session_id, used_at, id) WHERE protected = 0;

CREATE INDEX IF NOT EXISTS main.cache_access_all
ON cache_access(used_at, id) WHERE protected = 0;

-- bytes: of all sessions, right while there is a total quota. freed: the size of what the INSERT has replaced, or NULL. wake:
-- nothing expires before. work: what cache_work does: 1 an item is new, 2 it is changed,
-- 3 the quota of all sessions is exceeded, and 4 times the id of the item. rule: why rows
-- are deleted now; NULL: a plain statement. evict: 0 no, 1 the oldest, 2 the least
-- recently used. The others are settings.
CREATE TABLE IF NOT EXISTS main.cache_state(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  bytes INTEGER NOT NULL DEFAULT 0,
  freed INTEGER,
  wake INTEGER NOT NULL DEFAULT 0,
  work INTEGER NOT NULL DEFAULT 0,
  rule TEXT,
  max_item INTEGER,
  max_description INTEGER,
  session_quota INTEGER,
  total_quota INTEGER,
  evict INTEGER,
  strict_ids INTEGER,
  mark_ms INTEGER
);
INSERT INTO main.cache_state(one) VALUES (1) ON CONFLICT (one) DO NOTHING;

------------------------------------------------------------------- views --

-- Two SELECTs, because each then uses its own index.
CREATE VIEW IF NOT EXISTS main.cache_due_items AS
SELECT storage_key AS key, data_size AS bytes, timestamp AS at,
  CASE WHEN EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = i.session_id) THEN 'held' END AS blocked_by
  FROM cache_items AS i WHERE protected = 0
UNION ALL
SELECT storage_key, data_size, timestamp, 'tool_result' FROM cache_items WHERE protected = 1;

CREATE VIEW IF NOT EXISTS main.cache_due_expired AS
SELECT storage_key AS key, data_size AS bytes, expires_at AS at,
  CASE WHEN EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = i.session_id) THEN 'held' END AS blocked_by
  FROM cache_items AS i WHERE expires_at IS NOT NULL;

-- A session with a tool result is removed by cache_cleanup_orphans() alone.
CREATE VIEW IF NOT EXISTS main.cache_due_sessions AS
SELECT session_id AS key, total_size AS bytes, last_accessed_at AS at,
  CASE WHEN EXISTS (SELECT 1 FROM cache_items AS i WHERE i.session_id = s.session_id AND protected = 1) THEN 'tool_result'
       WHEN EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = s.session_id) THEN 'held' END AS blocked_by
  FROM cache_sessions AS s;

------------------------------------------------------------------- items --

-- NEW.id is -1 if the statement gave none. (The key is computed here again,
-- because in some versions of SQLite NEW does not have the generated columns yet.)
CREATE TRIGGER IF NOT EXISTS main.cache_note
BEFORE INSERT ON cache_items
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: id is assigned by the table; omit it') WHERE NEW.id <> -1;
  INSERT INTO cache_access(key, hits, used_at, id, session_id, protected, size)
  SELECT storage_key, 0, timestamp, id, session_id, protected, data_size FROM cache_items
   WHERE storage_key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id
  ON CONFLICT (key) DO UPDATE SET size = excluded.size;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_insert
AFTER INSERT ON cache_items
BEGIN
  SELECT CASE
    WHEN NEW.id < 1 THEN RAISE(ABORT, 'ValidationError: id is assigned by the table; omit it')
    WHEN NOT (json_valid(NEW.data) OR json_valid(NEW.data || ' ')) THEN
      RAISE(ABORT, 'ValidationError: data must be JSON text; wrap plain text with json_quote()')
    WHEN NEW.custom_metadata IS NOT NULL AND
      CASE WHEN json_valid(NEW.custom_metadata) OR json_valid(NEW.custom_metadata || ' ')
           THEN json_type(NEW.custom_metadata) <> 'object' ELSE 1 END THEN
      RAISE(ABORT, 'ValidationError: custom_metadata must be a JSON object of at most 65536 bytes, or NULL; put larger things into data')
    WHEN NEW.data_size > max_item THEN RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it into several items')
    WHEN length(NEW.description) > max_description THEN RAISE(ABORT, 'ValidationError: description must not be longer than cache.max_description characters; shorten it')
    WHEN strict_ids AND (length(NEW.task_id) <> 8 OR NEW.task_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: task_id must be 8 characters of a-z and 0-9; omit it to get a new one')
    WHEN strict_ids AND (length(NEW.turn_id) <> 8 OR NEW.turn_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: turn_id must be 8 characters of a-z and 0-9; omit it to get a new one')
    WHEN EXISTS (SELECT 1 FROM cache_access WHERE key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id)
     AND EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = NEW.session_id) THEN
      RAISE(ABORT, 'HeldError: a hold keeps this session, and its items cannot be overwritten; use another key, or end the hold with retention_release()')
    END FROM cache_state;
  INSERT INTO cache_sessions(session_id, kept_size, kept_count, created_at, last_accessed_at)
  VALUES (NEW.session_id, NEW.data_size, 1, NEW.timestamp, NEW.timestamp)
  ON CONFLICT (session_id) DO UPDATE
     SET kept_size = kept_size + excluded.kept_size - coalesce((SELECT size FROM cache_access WHERE key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id), 0),
         kept_count = kept_count + NOT EXISTS (SELECT 1 FROM cache_access WHERE key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id),
         last_accessed_at = max(last_accessed_at, excluded.last_accessed_at);
  UPDATE cache_state
     SET (freed, bytes) = (SELECT max(size), bytes + NEW.data_size - coalesce(max(size), 0)
                             FROM cache_access WHERE key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id),
         wake = min(wake, coalesce(NEW.expires_at, wake))
   WHERE one = 1 AND (total_quota < 1125899906842624 OR freed IS NOT NULL OR NEW.expires_at < wake
     OR EXISTS (SELECT 1 FROM cache_access WHERE key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id));
  UPDATE cache_items SET protected = NEW.custom_metadata ->> '$.kind' IS 'tool_result'
   WHERE id = NEW.id AND NEW.protected IS NOT (NEW.custom_metadata ->> '$.kind' IS 'tool_result');
  UPDATE cache_state SET work = NEW.id * 4 + 1
   WHERE one = 1 AND (freed OR evict = 2 OR wake < CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
     OR (SELECT kept_size FROM cache_sessions WHERE session_id = NEW.session_id) > session_quota);
  UPDATE cache_state SET work = NEW.id * 4 + 3
   WHERE one = 1 AND bytes > total_quota;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_update
AFTER UPDATE OF id, rowid, oid, _rowid_, session_id, task_id, turn_id, timestamp, expires_at,
  description, custom_metadata, data ON cache_items
BEGIN
  SELECT CASE
    WHEN (NEW.id, NEW.session_id, NEW.task_id, NEW.turn_id) IS NOT (OLD.id, OLD.session_id, OLD.task_id, OLD.turn_id) THEN
      RAISE(ABORT, 'ValidationError: id and key of an item cannot change; write the item again under the other key')
    WHEN NEW.data IS NOT OLD.data AND NOT (json_valid(NEW.data) OR json_valid(NEW.data || ' ')) THEN
      RAISE(ABORT, 'ValidationError: data must be JSON text; wrap plain text with json_quote()')
    WHEN NEW.custom_metadata IS NOT NULL AND NEW.custom_metadata IS NOT OLD.custom_metadata AND
      CASE WHEN json_valid(NEW.custom_metadata) OR json_valid(NEW.custom_metadata || ' ')
           THEN json_type(NEW.custom_metadata) <> 'object' ELSE 1 END THEN
      RAISE(ABORT, 'ValidationError: custom_metadata must be a JSON object of at most 65536 bytes, or NULL; put larger things into data')
    WHEN NEW.data_size > max_item AND NEW.data_size > OLD.data_size THEN RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it into several items')
    WHEN length(NEW.description) > max_description AND NEW.description <> OLD.description THEN RAISE(ABORT, 'ValidationError: description must not be longer than cache.max_description characters; shorten it')
    WHEN (NEW.data, NEW.description, NEW.custom_metadata, NEW.timestamp)
         IS NOT (OLD.data, OLD.description, OLD.custom_metadata, OLD.timestamp)
     AND EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = OLD.session_id) THEN
      RAISE(ABORT, 'HeldError: a hold keeps this session, and its items cannot be changed; write another item, or end the hold with retention_release()')
    END FROM cache_state;
  UPDATE cache_sessions
     SET kept_size = kept_size + NEW.data_size - OLD.data_size,
         last_accessed_at = max(last_accessed_at, NEW.timestamp)
   WHERE session_id = NEW.session_id;
  UPDATE cache_items SET protected = NEW.custom_metadata ->> '$.kind' IS 'tool_result'
   WHERE id = NEW.id AND NEW.protected IS NOT (NEW.custom_metadata ->> '$.kind' IS 'tool_result');
  UPDATE cache_state
     SET bytes = bytes + NEW.data_size - OLD.data_size, freed = OLD.data_size,
         wake = min(wake, coalesce(NEW.expires_at, wake))
   WHERE one = 1;
  UPDATE cache_state SET work = NEW.id * 4 + 2
   WHERE one = 1 AND (evict = 2 OR NEW.data_size > OLD.data_size
     AND (SELECT kept_size FROM cache_sessions WHERE session_id = NEW.session_id) > session_quota);
  UPDATE cache_state SET work = NEW.id * 4 + 3
   WHERE one = 1 AND bytes > total_quota AND NEW.data_size > OLD.data_size;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_delete
AFTER DELETE ON cache_items
WHEN EXISTS (SELECT 1 FROM cache_sessions WHERE session_id = OLD.session_id)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this session, and its items cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one')
   WHERE EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = OLD.session_id);
  DELETE FROM cache_access WHERE key = OLD.session_id || '_' || OLD.task_id || '_' || OLD.turn_id;
  UPDATE cache_sessions SET kept_size = kept_size - OLD.data_size, kept_count = kept_count - 1
   WHERE session_id = OLD.session_id;
  UPDATE cache_state SET bytes = bytes - OLD.data_size WHERE one = 1;
  INSERT INTO retention_note(at, domain, rule, rows, bytes, oldest)
  VALUES (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 'cache', coalesce((SELECT coalesce(rule, iif(work = 0, NULL, iif(
            OLD.expires_at < CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER), 'expired', 'evict'))) FROM cache_state), 'manual'),
    1, OLD.data_size, OLD.timestamp);
END;

-- Removes two items that have expired, and then the first items that a quota wants gone:
-- it looks at 1,000 at most, and takes as many as must be. It passes over what a hold
-- keeps. A clock that has jumped is not believed.
CREATE TRIGGER IF NOT EXISTS main.cache_work
AFTER UPDATE OF work ON cache_state WHEN NEW.work
BEGIN
  INSERT INTO cache_access(key, hits, used_at, id, session_id, protected)
  SELECT storage_key, 0, timestamp, id, session_id, protected FROM cache_items
   WHERE id = NEW.work / 4 AND (NEW.evict = 2 OR NEW.freed)
  ON CONFLICT (key) DO UPDATE
     SET used_at = max(used_at, excluded.used_at), id = excluded.id, protected = excluded.protected;
  DELETE FROM cache_items
   WHERE id IN (
    SELECT id FROM (SELECT id, session_id FROM cache_items
                     WHERE expires_at < CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) ORDER BY expires_at LIMIT 100) AS d
      CROSS JOIN retention__clock
     WHERE NEW.work % 4 = 1 AND id <> NEW.work / 4 AND unixepoch() * 1000 - seen <= 604800000
       AND NOT EXISTS (SELECT 1 FROM retention__in_force WHERE kind = 'session' AND "key" = d.session_id AND (until > seen) IS NOT 0)
       AND NOT EXISTS (SELECT 1 FROM sqlite_schema
         WHERE type = 'trigger' AND substr(tbl_name, 1, 6) = 'cache_' COLLATE NOCASE AND substr(name, 1, 6) <> 'cache_'
           AND instr(lower(sql), 'delete')
            OR type = 'table' AND instr(lower(sql), 'references') AND instr(lower(sql), 'cache_'))
     LIMIT 2);
  DELETE FROM cache_items
   WHERE id IN (
    WITH RECURSIVE victim(id, at, was, excess, n, session, seen) AS (
      SELECT 0, -1, -9e15, iif(NEW.work % 4 = 3, NEW.bytes - NEW.total_quota, s.kept_size - NEW.session_quota), 0,
        s.session_id, seen
        FROM cache_items AS w CROSS JOIN cache_sessions AS s ON s.session_id = w.session_id CROSS JOIN retention__clock
       WHERE w.id = NEW.work / 4 AND NEW.evict AND (NEW.freed >= w.data_size) IS NOT 1
      UNION ALL
      SELECT i.id, iif(NEW.evict = 1, i.timestamp, (SELECT used_at FROM cache_access WHERE key = i.storage_key)),
        v.excess, v.excess - i.data_size * NOT EXISTS (SELECT 1 FROM retention__in_force WHERE kind = 'session' AND "key" = i.session_id AND (until > seen) IS NOT 0), v.n + 1, v.session, v.seen
        FROM victim AS v CROSS JOIN cache_items AS i
       WHERE v.excess > 0 AND v.n < 1000 AND i.id = CASE NEW.evict + NEW.work % 4 / 3 * 2
         WHEN 1 THEN (SELECT id FROM cache_items
           WHERE session_id = v.session AND protected = 0 AND (timestamp, id) > (v.at, v.id) AND id <> NEW.work / 4
           ORDER BY timestamp, id LIMIT 1)
         WHEN 2 THEN (SELECT id FROM cache_access
           WHERE session_id = v.session AND protected = 0 AND (used_at, id) > (v.at, v.id) AND id <> NEW.work / 4
           ORDER BY used_at, id LIMIT 1)
         WHEN 3 THEN (SELECT id FROM cache_items
           WHERE protected = 0 AND (timestamp, id) > (v.at, v.id) AND id <> NEW.work / 4
           ORDER BY timestamp, id LIMIT 1)
         ELSE (SELECT id FROM cache_access
           WHERE protected = 0 AND (used_at, id) > (v.at, v.id) AND id <> NEW.work / 4
           ORDER BY used_at, id LIMIT 1) END)
    SELECT id FROM victim WHERE excess < was);
  SELECT CASE
    WHEN s.kept_size > NEW.session_quota THEN
      RAISE(ABORT, 'QuotaExceededError: the session would exceed cache.session_quota_bytes; delete items of the session or write less')
    WHEN NEW.work % 4 = 3 AND (SELECT bytes FROM cache_state) > NEW.total_quota THEN
      RAISE(ABORT, 'QuotaExceededError: all sessions together would exceed cache.total_quota_bytes; clear old sessions') END
    FROM cache_items AS w CROSS JOIN cache_sessions AS s ON s.session_id = w.session_id
   WHERE w.id = NEW.work / 4 AND (NEW.freed >= w.data_size) IS NOT 1;
  UPDATE cache_state
     SET work = 0, wake = coalesce((SELECT max(expires_at, CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)) FROM cache_items
           WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT 1), 9e15)
   WHERE one = 1;
END;

---------------------------------------------------------------- sessions --

-- A new session is empty, or contains the item that has just been written. It also
-- remembers the time, at most once an hour.
CREATE TRIGGER IF NOT EXISTS main.cache_session_insert
AFTER INSERT ON cache_sessions
BEGIN
  SELECT CASE
    WHEN typeof(NEW.session_id) <> 'text' OR length(NEW.session_id) NOT BETWEEN 1 AND 128
      OR NEW.session_id GLOB '*[^ -~ -􏿿]*' OR instr(NEW.session_id, char(0)) THEN
      RAISE(ABORT, 'InvalidKeyFormatError: session_id must be 1 to 128 printable characters; use the id of the conversation')
    WHEN strict_ids AND (NEW.session_id NOT GLOB 'conv_????????-????-????-????-????????????'
      OR substr(NEW.session_id, 6) GLOB '*[^-a-z0-9]*' OR length(replace(NEW.session_id, '-', '')) <> 37) THEN
      RAISE(ABORT, 'InvalidKeyFormatError: session_id must be conv_ followed by 8-4-4-4-12 characters of a-z and 0-9; use such an id, or set cache.strict_session_ids to 0')
    WHEN typeof(NEW.created_at) <> 'integer' OR typeof(NEW.last_accessed_at) <> 'integer'
      OR NEW.created_at NOT BETWEEN 0 AND 253402300799999
      OR NEW.last_accessed_at NOT BETWEEN NEW.created_at AND 253402300799999 THEN
      RAISE(ABORT, 'ValidationError: created_at and last_accessed_at must be milliseconds since 1970 UTC, the first not after the second; omit them for the current time')
    WHEN (NEW.kept_size, NEW.kept_count) IS NOT
         (SELECT coalesce(sum(data_size), 0), count(*) FROM cache_items WHERE session_id = NEW.session_id) THEN
      RAISE(ABORT, 'ValidationError: a session that has items cannot be replaced, and its totals cannot be set; UPDATE it, or DELETE it first')
    WHEN EXISTS (SELECT 1 FROM retention__refused WHERE kind = 'session' AND "key" = NEW.session_id) THEN
      RAISE(ABORT, 'ErasedError: the session with this id was erased, and writes under it are refused for retention.refuse_days; use another one, or wait until the time in retention_erasures')
    END FROM cache_state;
  UPDATE retention__clock
     SET (seen, due, was) = (
           SELECT max(seen, unixepoch() * 1000), 3600000, iif(due > 691200000, seen, was)
            WHERE unixepoch() * 1000 - seen - due <= min(due * 23, 604800000)
           UNION ALL SELECT seen, unixepoch() * 1000 - seen + 86400000, was)
   WHERE one = 1 AND unixepoch() * 1000 - seen NOT BETWEEN due - 86400000 AND due;
END;

-- UPDATE cache_sessions SET last_accessed_at = ... marks an access. A time that
-- is older than the present one is not an error, and changes nothing.
CREATE TRIGGER IF NOT EXISTS main.cache_session_update
AFTER UPDATE OF session_id, created_at, last_accessed_at ON cache_sessions
WHEN (NEW.session_id, NEW.created_at) IS NOT (OLD.session_id, OLD.created_at)
  OR typeof(NEW.last_accessed_at) <> 'integer'
  OR NEW.last_accessed_at NOT BETWEEN OLD.last_accessed_at AND 253402300799999
BEGIN
  SELECT CASE
    WHEN (NEW.session_id, NEW.created_at) IS NOT (OLD.session_id, OLD.created_at) THEN
      RAISE(ABORT, 'ValidationError: session_id and created_at of a session cannot change; write the items again in another session')
    WHEN typeof(NEW.last_accessed_at) <> 'integer' OR NEW.last_accessed_at > 253402300799999 THEN
      RAISE(ABORT, 'ValidationError: last_accessed_at must be an integer of milliseconds since 1970 UTC; use the current time') END;
  UPDATE cache_sessions SET last_accessed_at = OLD.last_accessed_at WHERE session_id = NEW.session_id;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_session_delete
AFTER DELETE ON cache_sessions
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this session, which cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one')
   WHERE EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'session' AND "key" = OLD.session_id);
  INSERT INTO blackbox__log(domain, detail, rows, bytes, oldest, newest, salt)
  SELECT 'cache', coalesce((SELECT rule FROM cache_state), 'clear'), OLD.item_count, OLD.total_size,
    min(timestamp), max(timestamp), NULL
    FROM cache_items WHERE session_id = OLD.session_id
   GROUP BY NULL; -- no row if there are no items (SQLite 3.38 needs it)
  UPDATE cache_state SET bytes = bytes - OLD.total_size WHERE one = 1;
  DELETE FROM cache_access WHERE key IN (SELECT storage_key FROM cache_items WHERE session_id = OLD.session_id);
  DELETE FROM cache_items WHERE session_id = OLD.session_id;
END;

-------------------------------------------------------- rules, settings --

CREATE TRIGGER IF NOT EXISTS main.cache_due_items_delete
INSTEAD OF DELETE ON cache_due_items WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'age' WHERE one = 1;
  DELETE FROM cache_items WHERE storage_key = OLD.key;
  UPDATE cache_state SET rule = NULL WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_expired_delete
INSTEAD OF DELETE ON cache_due_expired WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'expired' WHERE one = 1;
  DELETE FROM cache_items WHERE storage_key = OLD.key;
  UPDATE cache_state SET rule = NULL WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_sessions_delete
INSTEAD OF DELETE ON cache_due_sessions WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'idle' WHERE one = 1;
  DELETE FROM cache_sessions WHERE session_id = OLD.key;
  UPDATE cache_state SET rule = NULL WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_settings_update
AFTER UPDATE OF value ON blackbox_settings WHEN substr(NEW.name, 1, 6) = 'cache.'
BEGIN
  UPDATE cache_state
     SET (max_item, max_description, session_quota, total_quota, evict, strict_ids, mark_ms) = (
           SELECT max(iif(name = 'cache.max_item_bytes', value, NULL)),
                  max(iif(name = 'cache.max_description', value, NULL)),
                  max(iif(name = 'cache.session_quota_bytes', value, NULL)),
                  max(iif(name = 'cache.total_quota_bytes', value, NULL)),
                  max(iif(name = 'cache.on_quota', (value = 'evict_oldest') + 2 * (value = 'evict_lru'), NULL)),
                  max(iif(name = 'cache.strict_session_ids', value, NULL)),
                  max(iif(name = 'cache.mark_interval_ms', value, NULL))
             FROM blackbox_settings WHERE substr(name, 1, 6) = 'cache.'),
         bytes = (SELECT coalesce(sum(total_size), 0) FROM cache_sessions)
   WHERE one = 1;
  INSERT INTO cache_access(key, hits, used_at, id, session_id, protected)
  SELECT storage_key, 0, timestamp, id, session_id, protected
    FROM cache_items WHERE (NEW.name, NEW.value) = ('cache.on_quota', 'evict_lru')
  ON CONFLICT (key) DO UPDATE
     SET used_at = max(used_at, excluded.used_at), id = excluded.id, protected = excluded.protected;
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
  ('cache.mark_interval_ms', 10000, '0 to 86400000',
   'milliseconds between two writes of the marks of cache_read()'))
 WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range,
       meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms, "table")
VALUES
  ('cache.age', 'cache', 'cache_due_items', 'cache.max_age_days', 86400000, 'cache_items'),
  ('cache.expired', 'cache', 'cache_due_expired', NULL, NULL, 'cache_items'),
  ('cache.idle', 'cache', 'cache_due_sessions', 'cache.idle_ms', 1, 'cache_sessions')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms,
       "table" = excluded."table";

UPDATE main.blackbox_settings SET value = value WHERE name = 'cache.on_quota';
UPDATE main.cache_state SET wake = 0;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('cache', 1)
ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
