-- cache_work.sql: items that have expired, removed by the writes of others. It
-- continues cache.sql, which has the manual.
--
-- Views  cache__overdue  the items that the next writes remove
--        cache__works    used by the trigger of a write
--
-- Invariants: a new item removes at most two items, and looks at 100 at most. It
-- never fails because of them: it removes only what nothing can refuse
-- (retention_refusers of core), because a trigger cannot go on after an error.

CREATE VIEW IF NOT EXISTS main.cache__overdue AS
SELECT d.key AS key
  FROM (SELECT key, blocked_by FROM cache_due_expired
         WHERE at < (SELECT now FROM retention_now)
         ORDER BY at LIMIT 100) AS d
 WHERE d.blocked_by IS NULL
   AND NOT EXISTS (SELECT 1 FROM retention_refusers WHERE rule = 'cache.expired');

CREATE VIEW IF NOT EXISTS main.cache__works AS SELECT NULL AS key WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.cache_work
AFTER INSERT ON cache_items
WHEN EXISTS (SELECT 1 FROM cache_items
              WHERE expires_at < (julianday('now') - 2440587.5) * 86400000.0)
BEGIN
  INSERT INTO cache__works(key) VALUES (NEW.storage_key);
END;

-- Does the work. (It is a separate view because SQLite allocates all the memory of a
-- trigger whenever it fires.)
CREATE TRIGGER IF NOT EXISTS main.cache_works_insert
INSTEAD OF INSERT ON cache__works
BEGIN
  DELETE FROM cache_due_expired
   WHERE key IN (SELECT key FROM cache__overdue WHERE key <> NEW.key LIMIT 2);
END;
