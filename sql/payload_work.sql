-- payload_work.sql: what is due in the archive, removed row by row: by DELETE FROM
-- payload_due, and by every insert into the archive. It continues payload.sql,
-- which has the manual.
--
-- Tables  payload__limits   one row: the settings that an insert needs, as numbers
-- Views   payload__size     rows and bytes, for retention_report()
--         payload__works    used by the trigger that looks for work
--
-- Invariants: an insert removes at most two rows. It never fails
-- because of them: it removes nothing while a trigger or a table of somebody else
-- could refuse a DELETE (retention_refusers of core), because a trigger cannot go
-- on after an error.

-- Rows and bytes of the archive and of evidence; the two indexes that it reads
-- contain each row once. Rings are not in it.
CREATE VIEW IF NOT EXISTS main.payload__size AS
SELECT sum(n) AS rows, sum(b) AS bytes
  FROM (SELECT count(*) AS n, coalesce(sum(bytes), 0) AS b
          FROM (SELECT size_bytes AS bytes, at FROM payload__times
                 WHERE purpose = 'archive' AND pinned = 0)
         UNION ALL
        SELECT count(*), coalesce(sum(size_bytes), 0) FROM event_payloads
         WHERE purpose <> 'archive' OR pinned <> 0);

-- Rows up to "since" stay until somebody asks for a clean-up.
CREATE VIEW IF NOT EXISTS main.payload__limits_now AS
SELECT 86400000 * max(iif(name = 'payload.retention_days', value, NULL)) AS kept_ms,
       max(iif(name = 'payload.history_until', iif(value > 0, value, -1e18), NULL)) AS since
  FROM blackbox_settings
 WHERE name GLOB 'payload.*';

CREATE VIEW IF NOT EXISTS main.payload__works AS
SELECT NULL AS created_at, NULL AS now WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.payload_due_delete
INSTEAD OF DELETE ON payload_due WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE payload__state SET bulk = 2 WHERE one = 1;
  DELETE FROM event_payloads WHERE rowid = OLD.rid;
  UPDATE payload__state SET bulk = 0 WHERE one = 1;
END;

-- A row that is itself past the retention period is history that is being loaded.
-- It removes nothing. (+ takes the affinity of a column away, which would keep the
-- index out.)
CREATE TRIGGER IF NOT EXISTS main.payload_work
AFTER INSERT ON event_payloads
WHEN NEW.purpose = 'archive'
 AND (EXISTS (SELECT 1 FROM payload__limits AS l
               WHERE EXISTS (SELECT 1 FROM payload__times AS t
                              WHERE t.purpose = 'archive' AND t.pinned = 0 AND t.at > +l.since
                                AND t.at < (julianday('now') - 2440587.5) * 86400000.0 - l.kept_ms))
      OR EXISTS (SELECT 1 FROM retention__tick))
BEGIN
  INSERT INTO payload__works(created_at, now)
  VALUES (NEW.created_at, (SELECT now FROM retention_now));
END;

-- Does the work. (It is a separate view because SQLite allocates all the memory of a
-- trigger whenever it fires.) If the clock is in doubt, now is NULL. If the oldest
-- 100 rows are held, it looks no further.
CREATE TRIGGER IF NOT EXISTS main.payload_works_insert
INSTEAD OF INSERT ON payload__works
BEGIN
  INSERT INTO retention__tick(now) VALUES (NEW.now);
  INSERT INTO payload__leaving(kind, since, before, max_rows, asks)
  SELECT 2, since,
         min(NEW.now - kept_ms, coalesce(CASE WHEN EXISTS (SELECT 1 FROM retention__in_force) THEN (
           SELECT at FROM payload__times
            WHERE purpose = 'archive' AND pinned = 0 AND at > +since
            ORDER BY at LIMIT 1 OFFSET 100) END, 9e18)),
         2, 1
    FROM payload__limits
   WHERE (julianday(NEW.created_at) - 2440587.5) * 86400000.0 >= NEW.now - kept_ms
     AND EXISTS (SELECT 1 FROM payload__times
                  WHERE purpose = 'archive' AND pinned = 0
                    AND at > +since AND at < NEW.now - +kept_ms);
END;

CREATE TRIGGER IF NOT EXISTS main.payload_settings_update
AFTER UPDATE OF value ON blackbox_settings
WHEN NEW.name IN ('payload.retention_days', 'payload.history_until')
BEGIN
  UPDATE payload__limits SET (kept_ms, since) = (SELECT * FROM payload__limits_now);
END;

CREATE TABLE IF NOT EXISTS main.payload__limits(
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  kept_ms INTEGER,
  since   NUMERIC
);
INSERT INTO main.payload__limits(one) VALUES (1) ON CONFLICT (one) DO NOTHING;
UPDATE main.payload__limits
   SET (kept_ms, since) = (SELECT * FROM main.payload__limits_now);
