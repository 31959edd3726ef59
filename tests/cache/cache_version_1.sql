-- sql/cache.sql of version 1, without its comments.
CREATE VIEW IF NOT EXISTS main.cache_quota AS
SELECT s.session_id AS session_id,
       s.total_size AS used,
       min(l.session_quota - s.total_size, l.total_quota - t.bytes) AS left
  FROM cache_sessions AS s, cache_limits AS l, cache_state AS t;

CREATE VIEW IF NOT EXISTS main.cache_clock AS
SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) AS now;

CREATE VIEW IF NOT EXISTS main.cache_use AS
SELECT p.preset AS preset
  FROM cache_presets AS p
  JOIN blackbox_limits AS l ON l.name = p.name
 GROUP BY p.preset
HAVING min(l.value IS p.value);

CREATE VIEW IF NOT EXISTS main.cache_due_items AS
SELECT storage_key AS key, data_size AS bytes, timestamp AS at,
       NULL AS blocked_by
  FROM cache_items WHERE protected = 0
 UNION ALL
SELECT storage_key, data_size, timestamp, 'tool_result'
  FROM cache_items WHERE protected = 1;

CREATE VIEW IF NOT EXISTS main.cache_due_sessions AS
SELECT s.session_id AS key, s.total_size AS bytes, s.last_accessed_at AS at,
       CASE WHEN EXISTS(SELECT 1 FROM cache_items AS i
                         WHERE i.session_id = s.session_id AND i.protected = 1)
            THEN 'tool_result' END AS blocked_by
  FROM cache_sessions AS s;

CREATE VIEW IF NOT EXISTS main.cache_victims AS
WITH RECURSIVE victim(id, at, excess, n, session_id, written) AS (
  SELECT 0, -1, s.total_size - l.session_quota, 0, s.session_id, w.id
    FROM cache_state AS t, cache_limits AS l
    JOIN cache_items AS w ON w.id = t.written
    JOIN cache_sessions AS s ON s.session_id = w.session_id
   UNION ALL
  SELECT i.id, i.timestamp, v.excess - i.data_size, v.n + 1, v.session_id, v.written
    FROM victim AS v
    JOIN cache_items AS i
      ON i.id = (SELECT c.id FROM cache_items AS c
                  WHERE c.session_id = v.session_id AND c.protected = 0
                    AND (c.timestamp, c.id) > (v.at, v.id) AND c.id <> v.written
                  ORDER BY c.timestamp, c.id LIMIT 1)
   WHERE v.excess > 0 AND v.n < 1000
)
SELECT id FROM victim WHERE id > 0;

CREATE VIEW IF NOT EXISTS main.cache_total_victims AS
WITH RECURSIVE victim(id, at, excess, n, written) AS (
  SELECT 0, -1, t.bytes - l.total_quota, t.items_before - s.item_count, w.id
    FROM cache_state AS t, cache_limits AS l
    JOIN cache_items AS w ON w.id = t.written
    JOIN cache_sessions AS s ON s.session_id = w.session_id
   UNION ALL
  SELECT i.id, i.timestamp, v.excess - i.data_size, v.n + 1, v.written
    FROM victim AS v
    JOIN cache_items AS i
      ON i.id = (SELECT c.id FROM cache_items AS c
                  WHERE c.protected = 0
                    AND (c.timestamp, c.id) > (v.at, v.id) AND c.id <> v.written
                  ORDER BY c.timestamp, c.id LIMIT 1)
   WHERE v.excess > 0 AND v.n < 1000
)
SELECT id FROM victim WHERE id > 0;

CREATE VIEW IF NOT EXISTS main.cache_check AS
SELECT s.session_id AS object,
       'totals differ from the items of the session; delete the session' AS problem
  FROM cache_sessions AS s
 WHERE (s.total_size, s.item_count) IS NOT
       (SELECT coalesce(sum(data_size), 0), count(*) FROM cache_items AS i
         WHERE i.session_id = s.session_id)
 UNION ALL
SELECT i.storage_key, 'item without a session; delete it and write it again'
  FROM cache_items AS i
 WHERE NOT EXISTS(SELECT 1 FROM cache_sessions AS s
                   WHERE s.session_id = i.session_id)
 UNION ALL
SELECT z.session_id || '_' || z.task_id || '_' || z.turn_id,
       'cache_sizes has another size for it; delete the item and write it again'
  FROM cache_sizes AS z
  LEFT JOIN cache_items AS i
    ON i.storage_key = z.session_id || '_' || z.task_id || '_' || z.turn_id
 WHERE z.size IS NOT i.data_size
 UNION ALL
SELECT 'cache_state', 'total differs from that of the sessions; write cache.total_quota_bytes anew'
 WHERE (SELECT bytes FROM cache_state) IS NOT (SELECT bytes FROM cache_total_now)
 UNION ALL
SELECT 'cache_limits', 'differs from the settings; write any cache setting anew'
 WHERE (SELECT count(*) FROM cache_limits) <> 1
    OR (SELECT json_array(max_item, max_description, session_quota, total_quota,
                          evict, strict_ids) FROM cache_limits)
       IS NOT
       (SELECT json_array(max_item, max_description, session_quota, total_quota,
                          evict, strict_ids) FROM cache_limits_now)
 UNION ALL
SELECT storage_key, 'CorruptedDataError: data or custom_metadata is no JSON; delete the item'
  FROM cache_items
 WHERE NOT coalesce(json_valid(data), 0)
    OR (custom_metadata IS NOT NULL AND NOT json_valid(custom_metadata));

CREATE VIEW IF NOT EXISTS main.cache_total_now AS
SELECT coalesce(sum(s.total_size), 0) AS bytes
  FROM cache_limits AS l
  LEFT JOIN cache_sessions AS s ON l.total_quota < 1125899906842624;

CREATE VIEW IF NOT EXISTS main.cache_limits_now AS
SELECT max(iif(name = 'cache.max_item_bytes', value, NULL)) AS max_item,
       max(iif(name = 'cache.max_description', value, NULL)) AS max_description,
       max(iif(name = 'cache.session_quota_bytes', value, NULL)) AS session_quota,
       max(iif(name = 'cache.total_quota_bytes', value, NULL)) AS total_quota,
       max(iif(name = 'cache.on_quota', value = 'evict_oldest', NULL)) AS evict,
       max(iif(name = 'cache.strict_session_ids', value, NULL)) AS strict_ids
  FROM blackbox_limits
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
  evict           INTEGER,
  strict_ids      INTEGER
);

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
  PRIMARY KEY (session_id, task_id, turn_id)
) WITHOUT ROWID;

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
  protected       INTEGER GENERATED ALWAYS AS
                  (CASE WHEN json_valid(custom_metadata)
                        THEN coalesce(custom_metadata ->> '$.kind' = 'tool_result', 0)
                        ELSE 0 END) STORED,
  description     TEXT,
  custom_metadata TEXT,
  data            TEXT,
  CONSTRAINT "InvalidKeyFormatError: session_id must be text; give the id of the conversation"
    CHECK (typeof(session_id) = 'text'),
  CONSTRAINT "InvalidKeyFormatError: task_id must be 1 to 128 printable characters without an underscore; leave it out to have one made"
    CHECK (typeof(task_id) = 'text' AND length(task_id) BETWEEN 1 AND 128
           AND task_id NOT GLOB '*[^ -^`-~ -􏿿]*'
           AND instr(task_id, char(0)) = 0),
  CONSTRAINT "InvalidKeyFormatError: turn_id must be 1 to 128 printable characters without an underscore; leave it out to have one made"
    CHECK (typeof(turn_id) = 'text' AND length(turn_id) BETWEEN 1 AND 128
           AND turn_id NOT GLOB '*[^ -^`-~ -􏿿]*'
           AND instr(turn_id, char(0)) = 0),
  CONSTRAINT "ValidationError: timestamp must be whole milliseconds since 1970 UTC; leave it out for the current time"
    CHECK (typeof(timestamp) = 'integer' AND timestamp BETWEEN 0 AND 253402300799999),
  CONSTRAINT "ValidationError: description must be text that is not empty; say in a sentence what the item holds"
    CHECK (typeof(description) = 'text' AND description <> ''),
  CONSTRAINT "ValidationError: custom_metadata must be a JSON object of at most 65536 bytes, or NULL; put larger things into data"
    CHECK (custom_metadata IS NULL
           OR (typeof(custom_metadata) = 'text' AND json_valid(custom_metadata)
               AND json_type(custom_metadata) = 'object'
               AND length(CAST(custom_metadata AS BLOB)) <= 65536)),
  CONSTRAINT "ValidationError: data must be JSON text; wrap plain text with json_quote()"
    CHECK (typeof(data) = 'text' AND json_valid(data)
           AND length(CAST(printf('%s', data) AS BLOB)) = data_size)
);

CREATE INDEX IF NOT EXISTS main.cache_items_session
ON cache_items(session_id, protected, timestamp);

CREATE INDEX IF NOT EXISTS main.cache_items_age
ON cache_items(timestamp) WHERE protected = 0;

CREATE TRIGGER IF NOT EXISTS main.cache_items_before_insert
BEFORE INSERT ON cache_items
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: id is given by the table; leave it out')
   WHERE NEW.id <> -1;
  INSERT INTO cache_sizes(session_id, task_id, turn_id, size)
  SELECT session_id, task_id, turn_id, data_size
    FROM cache_items
   WHERE storage_key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE SET size = excluded.size;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_before_update
BEFORE UPDATE OF task_id, turn_id ON cache_items
WHEN NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id
BEGIN
  INSERT INTO cache_sizes(session_id, task_id, turn_id, size)
  SELECT session_id, task_id, turn_id, data_size
    FROM cache_items
   WHERE storage_key = NEW.session_id || '_' || NEW.task_id || '_' || NEW.turn_id
  ON CONFLICT (session_id, task_id, turn_id) DO UPDATE SET size = excluded.size;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_items_insert
AFTER INSERT ON cache_items
BEGIN
  SELECT CASE
    WHEN NEW.id < 1 THEN
      RAISE(ABORT, 'ValidationError: id is given by the table; leave it out')
    WHEN NEW.data_size > l.max_item THEN
      RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it into several items')
    WHEN length(NEW.description) > l.max_description THEN
      RAISE(ABORT, 'ValidationError: description must not be longer than cache.max_description characters; shorten it')
    WHEN l.strict_ids AND (length(NEW.task_id) <> 8 OR NEW.task_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: task_id must be 8 characters of a-z and 0-9; leave it out to have one made')
    WHEN l.strict_ids AND (length(NEW.turn_id) <> 8 OR NEW.turn_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: turn_id must be 8 characters of a-z and 0-9; leave it out to have one made')
    END
    FROM cache_limits AS l;
  INSERT INTO cache_sessions(session_id, kept_size, kept_count, created_at, last_accessed_at)
  VALUES (NEW.session_id,
          NEW.data_size - coalesce((SELECT size FROM cache_sizes
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
      RAISE(ABORT, 'ValidationError: session_id of an item never changes, as sessions see only their own items; write it anew in the other session')
    WHEN NEW.id <> OLD.id THEN
      RAISE(ABORT, 'ValidationError: id is given by the table; leave it out')
    WHEN NEW.data_size > l.max_item AND NEW.data_size > OLD.data_size THEN
      RAISE(ABORT, 'DataTooLargeError: data is larger than cache.max_item_bytes; split it into several items')
    WHEN length(NEW.description) > l.max_description AND NEW.description <> OLD.description THEN
      RAISE(ABORT, 'ValidationError: description must not be longer than cache.max_description characters; shorten it')
    WHEN l.strict_ids AND NEW.task_id <> OLD.task_id AND (length(NEW.task_id) <> 8 OR NEW.task_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: task_id must be 8 characters of a-z and 0-9; leave it out to have one made')
    WHEN l.strict_ids AND NEW.turn_id <> OLD.turn_id AND (length(NEW.turn_id) <> 8 OR NEW.turn_id GLOB '*[^a-z0-9]*') THEN
      RAISE(ABORT, 'InvalidKeyFormatError: turn_id must be 8 characters of a-z and 0-9; leave it out to have one made')
    END
    FROM cache_limits AS l;
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
  DELETE FROM cache_sizes
   WHERE (NEW.task_id <> OLD.task_id OR NEW.turn_id <> OLD.turn_id)
     AND session_id = OLD.session_id AND task_id = OLD.task_id
     AND turn_id = OLD.turn_id;
  UPDATE cache_sizes SET size = NEW.data_size
   WHERE session_id = NEW.session_id AND task_id = NEW.task_id
     AND turn_id = NEW.turn_id;
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
  DELETE FROM cache_sizes
   WHERE session_id = OLD.session_id AND task_id = OLD.task_id
     AND turn_id = OLD.turn_id;
  UPDATE cache_sessions
     SET kept_size = kept_size - OLD.data_size, kept_count = kept_count - 1
   WHERE session_id = OLD.session_id;
  INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest, minute)
  SELECT c.now, 'cache', coalesce(t.rule, 'manual'), 1, OLD.data_size,
         OLD.timestamp, OLD.timestamp, c.now / 60000
    FROM cache_state AS t, cache_clock AS c WHERE true
  ON CONFLICT (domain, rule, minute) WHERE minute IS NOT NULL DO UPDATE
     SET at = excluded.at, rows = rows + 1, bytes = bytes + excluded.bytes,
         oldest = min(oldest, excluded.oldest),
         newest = max(newest, excluded.newest);
END;

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
     AND id IN (SELECT id FROM cache_victims);
  DELETE FROM cache_items
   WHERE (SELECT evict FROM cache_limits)
     AND id IN (SELECT id FROM cache_total_victims);
  SELECT RAISE(ABORT, 'QuotaExceededError: session over cache.session_quota_bytes; delete items of it or write less')
    FROM cache_limits AS l
    JOIN cache_items AS i ON i.id = NEW.written
    JOIN cache_sessions AS s ON s.session_id = i.session_id
   WHERE s.total_size > l.session_quota;
  SELECT RAISE(ABORT, 'QuotaExceededError: all sessions together over cache.total_quota_bytes; clear old sessions')
    FROM cache_limits AS l, cache_state AS t
   WHERE t.bytes > l.total_quota;
  UPDATE cache_state SET written = NULL, items_before = NULL, rule = NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_sessions_insert
AFTER INSERT ON cache_sessions
BEGIN
  SELECT CASE
    WHEN typeof(NEW.session_id) <> 'text' OR length(NEW.session_id) NOT BETWEEN 1 AND 128
         OR NEW.session_id GLOB '*[^ -~ -􏿿]*'
         OR instr(NEW.session_id, char(0)) THEN
      RAISE(ABORT, 'InvalidKeyFormatError: session_id must be 1 to 128 printable characters; give the id of the conversation')
    WHEN l.strict_ids AND (
           NEW.session_id NOT GLOB 'conv_????????-????-????-????-????????????'
           OR substr(NEW.session_id, 6) GLOB '*[^-a-z0-9]*'
           OR length(replace(NEW.session_id, '-', '')) <> 37) THEN
      RAISE(ABORT, 'InvalidKeyFormatError: session_id must be conv_ and 8-4-4-4-12 characters of a-z and 0-9; give such an id, or set cache.strict_session_ids to 0')
    WHEN typeof(NEW.created_at) <> 'integer' OR typeof(NEW.last_accessed_at) <> 'integer'
         OR NEW.created_at NOT BETWEEN 0 AND 253402300799999
         OR NEW.last_accessed_at NOT BETWEEN NEW.created_at AND 253402300799999 THEN
      RAISE(ABORT, 'ValidationError: created_at and last_accessed_at must be milliseconds since 1970 UTC, in this order; leave them out for the current time')
    WHEN (NEW.kept_size, NEW.kept_count) IS NOT
         (SELECT coalesce(sum(data_size), 0), count(*) FROM cache_items
           WHERE session_id = NEW.session_id) THEN
      RAISE(ABORT, 'ValidationError: a session that has items is not replaced, and its totals are kept by the schema; UPDATE it, or DELETE it first')
    END
    FROM cache_limits AS l;
  UPDATE cache_state SET bytes = bytes + NEW.kept_size
   WHERE (SELECT total_quota FROM cache_limits) < 1125899906842624;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_sessions_update
AFTER UPDATE ON cache_sessions
WHEN NEW.last_accessed_at < OLD.last_accessed_at
  OR typeof(NEW.last_accessed_at) <> 'integer'
  OR NEW.last_accessed_at > 253402300799999
  OR NEW.created_at IS NOT OLD.created_at
  OR NEW.session_id IS NOT OLD.session_id
  OR (SELECT total_quota FROM cache_limits) < 1125899906842624
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: session_id and created_at of a session never change; write the items anew in another session')
   WHERE NEW.created_at IS NOT OLD.created_at
      OR NEW.session_id IS NOT OLD.session_id;
  SELECT RAISE(ABORT, 'ValidationError: last_accessed_at must be whole milliseconds since 1970 UTC; give the current time')
   WHERE typeof(NEW.last_accessed_at) <> 'integer'
      OR NEW.last_accessed_at > 253402300799999;
  UPDATE cache_state SET bytes = bytes + NEW.kept_size - OLD.kept_size
   WHERE (SELECT total_quota FROM cache_limits) < 1125899906842624;
  UPDATE cache_sessions SET last_accessed_at = OLD.last_accessed_at
   WHERE session_id = NEW.session_id AND last_accessed_at < OLD.last_accessed_at;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_sessions_delete
AFTER DELETE ON cache_sessions
BEGIN
  INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest)
  SELECT c.now, 'cache', coalesce(t.rule, 'clear'), OLD.item_count,
         OLD.total_size, min(i.timestamp), max(i.timestamp)
    FROM cache_state AS t, cache_clock AS c, cache_items AS i
   WHERE i.session_id = OLD.session_id
  HAVING count(*) > 0;
  UPDATE cache_state SET bytes = bytes - OLD.total_size
   WHERE (SELECT total_quota FROM cache_limits) < 1125899906842624;
  DELETE FROM cache_sizes WHERE session_id = OLD.session_id;
  DELETE FROM cache_items WHERE session_id = OLD.session_id;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_use_insert
INSTEAD OF INSERT ON cache_use
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: no preset of this name; SELECT DISTINCT preset FROM cache_presets lists them')
   WHERE NOT EXISTS(SELECT 1 FROM cache_presets WHERE preset = NEW.preset);
  DELETE FROM blackbox_settings
   WHERE name IN (SELECT name FROM cache_presets);
  INSERT INTO blackbox_settings(name, value)
  SELECT p.name, p.value
    FROM cache_presets AS p
    LEFT JOIN blackbox_setting_defs AS d ON d.name = p.name
   WHERE p.preset = NEW.preset AND p.value IS NOT d.preset;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_due_items_delete
INSTEAD OF DELETE ON cache_due_items WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE cache_state SET rule = 'age';
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

CREATE TRIGGER IF NOT EXISTS main.cache_limits_renew
AFTER UPDATE OF one ON cache_limits
BEGIN
  UPDATE cache_limits SET (max_item, max_description, session_quota, total_quota, evict, strict_ids) =
    (SELECT max_item, max_description, session_quota, total_quota, evict, strict_ids
       FROM cache_limits_now);
  UPDATE cache_state SET bytes = (SELECT bytes FROM cache_total_now);
END;

CREATE TRIGGER IF NOT EXISTS main.cache_settings_insert
AFTER INSERT ON blackbox_settings WHEN NEW.name GLOB 'cache.*'
BEGIN
  UPDATE cache_limits SET one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_settings_update
AFTER UPDATE ON blackbox_settings
WHEN NEW.name GLOB 'cache.*' OR OLD.name GLOB 'cache.*'
BEGIN
  UPDATE cache_limits SET one = 1;
END;

CREATE TRIGGER IF NOT EXISTS main.cache_settings_delete
AFTER DELETE ON blackbox_settings WHEN OLD.name GLOB 'cache.*'
BEGIN
  UPDATE cache_limits SET one = 1;
END;

INSERT INTO main.blackbox_setting_defs(name, kind, preset, low, high, choices, meaning) VALUES
  ('cache.max_item_bytes', 'integer', 5242880, 1, 1000000000, NULL,
   'bytes that the data of one item may have'),
  ('cache.max_description', 'integer', 300, 10, 10000, NULL,
   'characters of a description; functions cut a longer one, plain rows with one are refused'),
  ('cache.session_quota_bytes', 'integer', 52428800, 1, 1125899906842624, NULL,
   'bytes of data that one session may hold'),
  ('cache.total_quota_bytes', 'integer', 1125899906842624, 1, 1125899906842624, NULL,
   'bytes of data that all sessions together may hold'),
  ('cache.on_quota', 'choice', 'reject', NULL, NULL, 'reject, evict_oldest',
   'what a write over a quota does: fail, or take away the oldest items that are no tool results'),
  ('cache.strict_session_ids', 'integer', 1, 0, 1, NULL,
   '1: sessions are conv_ and 8-4-4-4-12 of a-z and 0-9, tasks and turns 8 of them; 0: 1 to 128 printable characters'),
  ('cache.idle_ms', 'integer', 86400000, 0, 3155760000000, NULL,
   'milliseconds without an access after which a session is an orphan'),
  ('cache.max_age_days', 'integer', 36500, 0, 36500, NULL,
   'days after which items are outdated; 36500 is never')
ON CONFLICT (name) DO UPDATE
   SET kind = excluded.kind, preset = excluded.preset, low = excluded.low,
       high = excluded.high, choices = excluded.choices, meaning = excluded.meaning;

INSERT INTO main.cache_presets(preset, name, value) VALUES
  ('seed', 'cache.max_item_bytes', 5242880),
  ('seed', 'cache.max_description', 300),
  ('seed', 'cache.session_quota_bytes', 52428800),
  ('seed', 'cache.total_quota_bytes', 1125899906842624),
  ('seed', 'cache.on_quota', 'reject'),
  ('seed', 'cache.idle_ms', 86400000),
  ('seed', 'cache.max_age_days', 36500),
  ('later', 'cache.max_item_bytes', 5242880),
  ('later', 'cache.max_description', 500),
  ('later', 'cache.session_quota_bytes', 209715200),
  ('later', 'cache.total_quota_bytes', 5368709120),
  ('later', 'cache.on_quota', 'evict_oldest'),
  ('later', 'cache.idle_ms', 86400000),
  ('later', 'cache.max_age_days', 30)
ON CONFLICT (preset, name) DO UPDATE SET value = excluded.value;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms) VALUES
  ('cache.age', 'cache', 'cache_due_items', 'cache.max_age_days', 86400000),
  ('cache.idle', 'cache', 'cache_due_sessions', 'cache.idle_ms', 1)
ON CONFLICT (rule) DO UPDATE
   SET domain = excluded.domain, "view" = excluded."view",
       setting = excluded.setting, unit_ms = excluded.unit_ms;

INSERT INTO main.cache_state(one) VALUES (1) ON CONFLICT (one) DO NOTHING;
INSERT INTO main.cache_limits(one) VALUES (1) ON CONFLICT (one) DO NOTHING;
UPDATE main.cache_limits SET one = 1;

INSERT INTO main.blackbox_domains(domain, version) VALUES ('cache', 1)
ON CONFLICT (domain) DO UPDATE SET version = excluded.version;
