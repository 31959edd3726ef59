-- cache.sql: tool results, stored by session, with quotas that always hold.
--
-- Tables  cache_items      the items
--         cache_sessions   one row a session: its totals, its reads and its times
--         cache_state      one row: the bytes of all sessions, the settings as numbers,
--                          and what the statement that runs has noted
--         cache__note      the sizes of items that the statement that runs may replace
--
-- It runs alone after core.sql, any number of times. The mark "main." is the schema.
-- A name inside a trigger refers to its own schema.
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
--
-- INSERT, UPDATE:  cache_note, then cache_insert or cache_update, says in cache_state
--   which item was written, whether its key is new and by how much it grew. cache_written
--   checks the item and counts it. If a quota is exceeded, cache_work makes room or refuses.
--
-- REPLACE fires no DELETE trigger. So before a row is inserted, the size of the row that
-- it may replace is noted in cache__note, by its key, because a trigger of the user may
-- insert other items meanwhile. (A DELETE takes the note along.) A REPLACE by id would
-- delete an item with another key, so a statement cannot give an id.
--
-- A limit is a RAISE after the totals are known, never a CHECK on a total: under OR
-- IGNORE a CHECK would keep the item and lose its count.
--
-- SQLite compiles all that a statement may fire, and allocates the memory of a whole
-- trigger whenever it fires. So cache_work is fired only if there is work, and "WHERE
-- one = 1" makes an UPDATE one-pass.
--
-- When memory runs out, json_valid() of SQLite before 3.45 returns 0 instead of
-- failing. So the test is repeated with a text that SQLite must allocate first
-- (x || ' '), and that allocation fails.
--
-- No CHECK, index or generated column calls a JSON function. SQLite before 3.41
-- regards these as unsafe while trusted_schema is off. In a table definition they
-- would make the whole file unreadable, in a trigger only the statement fails. So
-- "protected" looks for the text "kind":"tool_result", at any depth, with spaces or without.
--
-- Deleting a session removes its items with one receipt. The row triggers of
-- cache_items do nothing if the session no longer exists.

CREATE TABLE IF NOT EXISTS main.cache_sessions(
  session_id TEXT PRIMARY KEY,
  total_size AS (kept_size),
  item_count AS (kept_count),
  created_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000),
  last_accessed_at INTEGER NOT NULL DEFAULT (round(julianday('now') * 864e5 - 210866760e6)),
  hits INTEGER DEFAULT 0,
  kept_size DEFAULT 0,
  kept_count DEFAULT 0,
  CONSTRAINT "ValidationError: created_at and last_accessed_at must be milliseconds since 1970 UTC, in this order; omit them"
  CHECK (created_at >= 0 AND last_accessed_at BETWEEN created_at AND 253402300799999)
) WITHOUT ROWID;

-- The columns that lists show come first in the row, so that a list does not
-- read the overflow pages of the data.
CREATE TABLE IF NOT EXISTS main.cache_items(
  id INTEGER PRIMARY KEY CHECK (id > 0),
  storage_key TEXT AS (session_id || '_' || task_id || '_' || turn_id) STORED UNIQUE,
  session_id TEXT,
  task_id TEXT DEFAULT (lower(hex(randomblob(4)))),
  turn_id TEXT DEFAULT (lower(hex(randomblob(4)))),
  timestamp INTEGER DEFAULT (round(julianday('now') * 864e5 - 210866760e6)),
  data_size INTEGER AS (length(CAST(data AS BLOB))) STORED,
  protected INTEGER AS (replace(custom_metadata, ' ', '') GLOB '*"kind":"tool_result"*' IS TRUE) STORED,
  expires_at INTEGER, description TEXT, custom_metadata TEXT, data TEXT,
  CONSTRAINT "InvalidKeyFormatError: session_id, task_id and turn_id must be 1 to 128 printable characters, the last two without _; use - or omit them"
  CHECK ((min(session_id, task_id, turn_id) > '' AND max(session_id, task_id, turn_id) < x'' AND max(length(session_id), length(task_id), length(turn_id)) < 129
  AND session_id NOT GLOB '*[^ -~ -􏿿]*' AND task_id || turn_id NOT GLOB '*[^ -^`-~ -􏿿]*' AND NOT instr(storage_key, x'00')) IS TRUE),
  CONSTRAINT "ValidationError: timestamp and expires_at must be milliseconds since 1970 UTC; omit them"
  CHECK (typeof(timestamp) || typeof(ifnull(expires_at, 0)) = 'integerinteger'
  AND min(timestamp, ifnull(expires_at, 0)) >= 0 AND max(timestamp, ifnull(expires_at, 0)) <= 253402300799999),
  CONSTRAINT "ValidationError: data must be JSON text; use json_quote()"
  CHECK (data = printf('%s', data))
);

-- For lists (two ordered ranges, merged) and for eviction.
CREATE INDEX IF NOT EXISTS main.cache_items_session
ON cache_items(session_id, protected, timestamp);

-- For the age rule and for eviction from all sessions.
CREATE INDEX IF NOT EXISTS main.cache_items_age
ON cache_items(timestamp) WHERE protected = 0;

CREATE INDEX IF NOT EXISTS main.cache_items_expiry
ON cache_items(expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS main.cache__note(item TEXT PRIMARY KEY, size) WITHOUT ROWID;

-- What the statement that runs has written: the item, its session, whether its key is new,
-- by how much it grew, and when. bytes: of all sessions. rule:
-- why rows are deleted: NULL for a plain statement, 1 or 2 for the quota of the session or
-- of all, which is exceeded.
CREATE TABLE IF NOT EXISTS main.cache_state(
  one INTEGER PRIMARY KEY, item, session, is_new, grown INTEGER, at, bytes INTEGER DEFAULT 0, rule
);
INSERT INTO main.cache_state(one) VALUES (1) ON CONFLICT (one) DO NOTHING;

-- The settings as numbers. evict: 1 for evict_oldest.
CREATE TABLE IF NOT EXISTS main.cache__limits(
  max_item, max_description, session_quota, total_quota, evict, strict_ids
);

------------------------------------------------------------------- items --

-- NEW.id is -1 if the statement gave none. (The key is computed here again, because in
-- some versions of SQLite NEW does not have the generated columns yet.)
CREATE TRIGGER IF NOT EXISTS main.cache_note BEFORE INSERT ON cache_items
BEGIN
  INSERT INTO cache__note SELECT storage_key, data_size FROM cache_items
  WHERE storage_key = iif(NEW.id = -1, NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id,
    RAISE(ABORT, 'ValidationError: id is assigned; omit it'))
  ON CONFLICT DO UPDATE SET size = excluded.size;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_insert AFTER INSERT ON cache_items
BEGIN
  UPDATE cache_state SET (item, session, at, is_new, bytes, grown) = (SELECT NEW.id, NEW.session_id, NEW.timestamp, NOT count(*),
    bytes + NEW.data_size - total(size), NEW.data_size - total(size) FROM cache__note WHERE item = NEW.storage_key)
  WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_update AFTER UPDATE ON cache_items
BEGIN
  UPDATE cache_state SET item = iif((NEW.id, NEW.storage_key) IS (OLD.id, OLD.storage_key), NEW.id,
    RAISE(ABORT, 'ValidationError: id and key of an item cannot change; write another item')),
    session = NEW.session_id, at = NEW.timestamp, is_new = 0, bytes = bytes + NEW.data_size - OLD.data_size,
    grown = NEW.data_size - OLD.data_size
  WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_written AFTER UPDATE OF item ON cache_state
BEGIN
  SELECT CASE
  WHEN NOT (json_valid(data) OR json_valid(data || ' ')) IS TRUE THEN RAISE(ABORT, 'ValidationError: data must be JSON text; use json_quote()')
  WHEN custom_metadata NOT NULL AND NOT (custom_metadata < x'' AND length(CAST(custom_metadata AS BLOB)) < 65537
    AND (json_valid(custom_metadata) OR json_valid(custom_metadata || ' ')) AND json_type(custom_metadata) = 'object') THEN
    RAISE(ABORT, 'ValidationError: custom_metadata must be a JSON object of at most 65536 bytes; use data')
  WHEN NEW.grown > 0 AND data_size > max_item THEN RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it')
  WHEN typeof(description) <> 'text' OR length(description) NOT BETWEEN 1 AND max_description THEN
    RAISE(ABORT, 'ValidationError: description must be 1 to cache.max_description characters; say what it holds')
  WHEN strict_ids AND (session_id NOT GLOB 'conv_????????-????-????-????-????????????' OR length(task_id) <> 8 OR length(turn_id) <> 8 OR storage_key GLOB '*[^-0-9_a-z]*' OR length(replace(replace(storage_key, '-', ''), '_', '')) <> 52) THEN
    RAISE(ABORT, 'InvalidKeyFormatError: session_id, task_id and turn_id must be conv_ and 8-4-4-4-12, 8 and 8 characters of a-z and 0-9; see cache.strict_session_ids')
  END FROM cache_items, cache__limits WHERE id = NEW.item;
  INSERT INTO cache_sessions(session_id, kept_size, kept_count, created_at, last_accessed_at)
  VALUES (NEW.session, NEW.grown, 1, NEW.at, NEW.at)
  ON CONFLICT DO UPDATE SET kept_size = kept_size + NEW.grown, kept_count = kept_count + NEW.is_new,
    last_accessed_at = max(last_accessed_at, NEW.at);
  UPDATE cache_state SET rule = 1 WHERE one = 1 AND NEW.grown > 0
  AND (SELECT kept_size > session_quota FROM cache_sessions, cache__limits WHERE session_id = NEW.session);
  UPDATE cache_state SET rule = 2 WHERE one = 1 AND NEW.grown > 0 AND bytes > (SELECT total_quota FROM cache__limits);
END;

-- Removes the first items that a quota wants gone: it looks at 1,000 at most, and takes as
-- many as must be. It passes over what a hold keeps.
CREATE TRIGGER IF NOT EXISTS main.cache_work AFTER UPDATE OF rule ON cache_state WHEN NEW.rule < 3
BEGIN
  DELETE FROM cache_items WHERE id IN (
    WITH v(id, at, was, rest) AS (
      SELECT 0, -1, 9e15, iif(NEW.rule = 2, NEW.bytes - total_quota, kept_size - session_quota)
      FROM cache__limits, cache_sessions WHERE evict AND session_id = NEW.session
      UNION ALL
      SELECT i.id, timestamp, rest, rest - data_size * (i.id <> NEW.item) * NOT EXISTS (SELECT 1 FROM retention__in_force, retention__clock
      WHERE kind = 'session' AND key = session_id AND ifnull(until, 9e15) > seen)
      FROM v CROSS JOIN cache_items AS i WHERE rest > 0 AND i.id = iif(NEW.rule = 2,
      (SELECT id FROM cache_items WHERE protected = 0 AND (timestamp, id) > (v.at, v.id) ORDER BY timestamp, id),
      (SELECT id FROM cache_items WHERE session_id = NEW.session AND protected = 0 AND (timestamp, id) > (v.at, v.id) ORDER BY timestamp, id))
      LIMIT 1001)
    SELECT id FROM v WHERE rest < was);
  UPDATE cache_state SET rule = (SELECT CASE
  WHEN kept_size > session_quota THEN
    RAISE(ABORT, 'QuotaExceededError: the session would exceed cache.session_quota_bytes; delete items')
  WHEN rule = 2 AND bytes > total_quota THEN
    RAISE(ABORT, 'QuotaExceededError: all sessions would exceed cache.total_quota_bytes; clear some') END e
  FROM cache__limits, cache_sessions WHERE session_id = NEW.session) WHERE one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_delete AFTER DELETE ON cache_items
WHEN (SELECT 1 FROM cache_sessions WHERE session_id = OLD.session_id)
BEGIN
  DELETE FROM cache__note WHERE item = OLD.storage_key;
  UPDATE OR ABORT cache_sessions SET kept_size = kept_size - OLD.data_size, kept_count = kept_count - 1
  WHERE session_id = OLD.session_id;
  UPDATE cache_state SET bytes = bytes - OLD.data_size WHERE one = 1;
  INSERT INTO retention_log(domain, rule, rows, bytes, oldest)
  VALUES ('cache', ifnull((SELECT iif(rule < 3, 'evict', rule) FROM cache_state), 'manual'),
    1, OLD.data_size, OLD.timestamp);
END;

---------------------------------------------------------------- sessions --

-- A new session is empty, or contains the item that has just been written.
CREATE TRIGGER IF NOT EXISTS main.cache_session_insert AFTER INSERT ON cache_sessions
BEGIN
  SELECT CASE
  WHEN NOT NEW.kept_count AND NEW.kept_size IS NOT 0 OR NEW.kept_count IS NOT EXISTS (SELECT 1 FROM cache_items WHERE session_id = NEW.session_id) THEN
    RAISE(ABORT, 'ValidationError: a session that has items cannot be replaced, and totals cannot be set; UPDATE it')
  WHEN (SELECT 1 FROM retention__in_force, retention__clock WHERE kind = 'erased session' AND key = NEW.session_id AND until > seen) THEN
    RAISE(ABORT, 'ErasedError: this session was erased; use another') END e;
END;

-- kept_count becomes larger by a new item. Otherwise an item has changed or gone.
CREATE TRIGGER IF NOT EXISTS main.cache_session_update BEFORE UPDATE OF session_id, created_at, kept_count ON cache_sessions
WHEN NEW.kept_count <= OLD.kept_count
BEGIN
  SELECT CASE
  WHEN (NEW.session_id, NEW.created_at) IS NOT (OLD.session_id, OLD.created_at) THEN
    RAISE(ABORT, 'ValidationError: session_id and created_at cannot change; use another session')
  WHEN (SELECT 1 FROM retention__holds WHERE kind = 'session' AND key = OLD.session_id) THEN
    RAISE(ABORT, 'HeldError: a hold keeps this session; see retention_holds') END e;
END;

-- A time that is older than the present one changes nothing.
CREATE TRIGGER IF NOT EXISTS main.cache_session_older BEFORE UPDATE OF last_accessed_at ON cache_sessions
WHEN NEW.last_accessed_at < OLD.last_accessed_at
BEGIN
  SELECT RAISE(IGNORE) e;
END;

-- (GROUP BY NULL: no row if there are no items; SQLite 3.38 needs it.)
CREATE TRIGGER IF NOT EXISTS main.cache_session_delete AFTER DELETE ON cache_sessions
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this session; see retention_holds') e
  FROM retention__holds WHERE kind = 'session' AND key = OLD.session_id;
  INSERT INTO blackbox__log(at, domain, detail, rows, bytes, oldest, newest, salt)
  SELECT at, 'cache', ifnull((SELECT rule FROM cache_state), 'clear'), OLD.item_count, OLD.total_size,
    at - min(timestamp), max(timestamp) - min(timestamp), NULL
  FROM (SELECT round(julianday('now') * 864e5 - 210866760e6) AS at), cache_items WHERE session_id = OLD.session_id
  GROUP BY NULL;
  UPDATE cache_state SET bytes = bytes - OLD.total_size, session = NULL WHERE one = 1;
  DELETE FROM cache__note WHERE item IN (SELECT storage_key FROM cache_items WHERE session_id = OLD.session_id);
  DELETE FROM cache_items WHERE session_id = OLD.session_id;
END;

-------------------------------------------------------- rules, settings --

-- (Six characters of a name tell it from the others.)
CREATE TRIGGER IF NOT EXISTS main.cache_settings_update AFTER UPDATE OF value ON blackbox_settings
WHEN NEW.name GLOB 'cache.*'
BEGIN
  DELETE FROM cache__limits;
  INSERT INTO cache__limits SELECT max(v * (n = 'max_it')), max(v * (n = 'max_de')), max(v * (n = 'sessio')),
    max(v * (n = 'total_')), max(v = 'evict_oldest'), max(v * (n = 'strict'))
    FROM (SELECT substr(name, 7, 6) AS n, value AS v FROM blackbox_settings WHERE name GLOB 'cache.*');
END;

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('cache.max_item_bytes', 5242880, '1 to 1000000000', 'most bytes of the data of one item'),
  ('cache.max_description', 300, '10 to 10000', 'most characters of a description; functions cut a longer one, plain SQL refuses it'),
  ('cache.session_quota_bytes', 52428800, '1 to 1125899906842624', 'most bytes of data in one session'),
  ('cache.total_quota_bytes', 1125899906842624, '1 to 1125899906842624', 'most bytes of data in all sessions together'),
  ('cache.on_quota', 'reject', 'reject, evict_oldest',
   'what a write does that exceeds a quota: it fails, or it removes the oldest items that are not tool results'),
  ('cache.strict_session_ids', 1, '0 to 1',
   '1: session ids are conv_ and 8-4-4-4-12 characters of a-z and 0-9, task and turn ids have 8 of them; 0: 1 to 128 printable characters'),
  ('cache.idle_ms', 86400000, '0 to 3155760000000', 'milliseconds without an access after which a session is an orphan'),
  ('cache.max_idle_days', 30, '0.0 to 36500.0',
   'days without an access after which a session that holds a tool result is an orphan too; 36500 is never'),
  ('cache.max_age_days', 36500, '0.0 to 36500.0', 'days after which items are outdated; 36500 is never'),
  ('cache.mark_interval_ms', 10000, '0 to 86400000', 'milliseconds between two writes of the marks of cache_read()')) WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

INSERT INTO main.retention_rules(rule, domain, setting, unit_ms, "table")
VALUES
  ('cache.age', 'cache', 'cache.max_age_days', 86400000, 'cache_items'),
  ('cache.expired', 'cache', NULL, NULL, 'cache_items'),
  ('cache.file_bytes', 'cache', 'blackbox.max_file_bytes', 0, 'cache_items'),
  ('cache.idle', 'cache', 'cache.idle_ms', 1, 'cache_sessions'),
  ('cache.abandoned', 'cache', 'cache.max_idle_days', 86400000, 'cache_sessions')
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = NULL, setting = excluded.setting,
       unit_ms = excluded.unit_ms, "table" = excluded."table";

UPDATE main.blackbox_settings SET value = value WHERE name = 'cache.on_quota';
UPDATE main.cache_state
   SET rule = NULL, bytes = (SELECT coalesce(sum(total_size), 0) FROM main.cache_sessions);

INSERT INTO main.blackbox_domains(domain, format) VALUES ('cache', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
