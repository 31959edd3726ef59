-- retention_holds.sql: holds. What a hold keeps is not removed and not changed
-- until every owner of a hold on it has released it.
--
-- It continues retention.sql, and runs after that file and core.sql.
--
-- Tables  retention_hold_log    one row for each step: a hold was placed or
--                               lengthened ('hold'), or released ('release')
--         retention_hold_state  one row: the length of that log
-- Views   retention_holds       the holds in force. INSERT places a hold, or
--                               lengthens it; UPDATE lengthens or releases it
--         retention_hold_check  contradictions (no rows if all is well)
--
-- A hold is on a thing, which need not exist yet, and belongs to an owner, such as
-- the number of a case. The thing is a kind and a key:
--   agent, event, kill_switch   rows of the archive and of rings with that
--                               agent_id, event_id, kill_switch_event_id
--   evidence                    one row of event_payloads, by its id, or of the
--                               overflow, by the key that evidence_due shows
--   rollout                     a conversation, by its id
--   session                     a session of the cache, with its items
--   buffer                      an evidence buffer or a ring, by its name; or the
--                               evidence of an owner of evidence_owners
--
-- The table retention__in_force of core has the holds that were not released, for the
-- guards of each domain. A hold that has an end (until, in milliseconds since
-- 1970 UTC) stays there after it, but is not in force any more.
--
-- Invariants, on every connection and with every conflict clause:
--   * no step is changed or removed; each says who, when and why
--   * the end of a hold can become later, and not earlier
--   * a row of retention__in_force is the newest step of its owner for that thing
--
-- A guard is a BEFORE trigger that only raises, and it depends on the log. (SQLite
-- does not fire a trigger that is already running. If a guard wrote to a table, a
-- trigger of the user on that table could bypass the guard.)
--
-- Limits: as for the pins: no trigger fires for DROP TABLE, DROP TRIGGER, or what
-- a program writes into the file. blackbox_check() finds the result of these: the
-- log has the same length in two other places.

-- found: 1 if the thing was there when the hold was placed, 0 if it was not, NULL if
-- nobody looked; retention_hold() looks. If it was there and is there no more,
-- somebody has removed it behind the guards, and blackbox_check() says so.
--
-- A hold that has ended is not listed. released is always 0: to release a hold,
-- UPDATE retention_holds SET released = 1, actor = ..., reason = ...
CREATE VIEW IF NOT EXISTS main.retention_holds AS
SELECT f.kind AS kind, f."key" AS "key", f.owner AS owner, f.until AS until,
       l.actor AS actor, l.reason AS reason, l.at AS at, 0 AS released,
       l.found AS found
  FROM retention__holds AS f
  JOIN retention_hold_log AS l ON l.step = f.step;

CREATE VIEW IF NOT EXISTS main.retention_hold_check AS
SELECT 'retention_hold_log' AS object,
       'has ' || l.entries || ' steps of which ' || l.closed || ' are releases, but '
       || k.name || ' counted ' || k.entries || ' and ' || k.closed ||
       CASE WHEN l.digest = k.digest THEN '' ELSE ' of other tokens' END ||
       ': steps were removed, or the table was made again' AS problem
  FROM (SELECT count(*) AS entries, coalesce(sum(act = 'release'), 0) AS closed,
               coalesce(sum(token), 0) AS digest
          FROM retention_hold_log) AS l,
       (SELECT 'retention_hold_state' AS name, entries, closed, digest
          FROM retention_hold_state
        UNION ALL
        SELECT 'blackbox_ledgers', entries, closed, digest FROM blackbox_ledgers
         WHERE domain = 'retention') AS k
 WHERE (l.entries, l.closed, l.digest) IS NOT (k.entries, k.closed, k.digest)
UNION ALL
SELECT 'retention_hold_log', 'its length is not kept in ' || name
  FROM (SELECT 'retention_hold_state' AS name, count(*) AS n FROM retention_hold_state
        UNION ALL
        SELECT 'blackbox_ledgers', count(*) FROM blackbox_ledgers
         WHERE domain = 'retention')
 WHERE n <> 1
UNION ALL
SELECT 'retention__in_force',
       'the hold of ' || l.owner || ' on ' || l.kind || ' ' || l."key" ||
       ' is in the log and not here, so that it keeps nothing; run blackbox_install()'
  FROM retention_hold_log AS l
 WHERE l.act = 'hold'
   AND l.step = (SELECT max(step) FROM retention_hold_log
                  WHERE kind = l.kind AND "key" = l."key" AND owner = l.owner)
   AND NOT EXISTS (SELECT 1 FROM retention__in_force AS h
                    WHERE h.kind = l.kind AND h."key" = l."key"
                      AND h.owner = l.owner AND h.step = l.step
                      AND h.until IS l.until)
UNION ALL
SELECT 'retention__in_force',
       'the hold of ' || h.owner || ' on ' || h.kind || ' ' || h."key" ||
       ' is not in retention_hold_log'
  FROM retention__in_force AS h
 WHERE NOT EXISTS (SELECT 1 FROM retention_hold_log AS l
                    WHERE l.step = h.step AND l.kind = h.kind
                      AND l."key" = h."key" AND l.owner = h.owner
                      AND l.act = 'hold');

-- Numbers are above 0, because NEW.step is -1 in a BEFORE trigger if the statement
-- gave none.
CREATE TABLE IF NOT EXISTS main.retention_hold_log(
  step   INTEGER PRIMARY KEY CHECK (step > 0),
  at     INTEGER NOT NULL
         DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)),
  kind   TEXT NOT NULL,
  "key"  TEXT NOT NULL,
  owner  TEXT NOT NULL,
  act    TEXT NOT NULL CHECK (act IN ('hold', 'release')),
  until  INTEGER,
  actor  TEXT NOT NULL,
  reason TEXT NOT NULL,
  found  INTEGER,
  token  INTEGER NOT NULL DEFAULT (random() & 4294967295)
);

CREATE INDEX IF NOT EXISTS main.retention_hold_steps
ON retention_hold_log(kind, "key", owner, step);

-- This index never has an entry. SQLite refuses an incremental blob write to a
-- table with an index on an expression, so such a write cannot change a step.
CREATE INDEX IF NOT EXISTS main.retention_hold_whole
ON retention_hold_log(-step) WHERE act IS NULL;

-- entries, closed, digest: as in blackbox_ledgers.
CREATE TABLE IF NOT EXISTS main.retention_hold_state(
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  entries INTEGER NOT NULL,
  closed  INTEGER NOT NULL,
  digest  INTEGER NOT NULL
);
INSERT INTO main.retention_hold_state(one, entries, closed, digest)
SELECT 1, n, closed, digest
  FROM (SELECT count(*) AS n, coalesce(sum(act = 'release'), 0) AS closed,
               coalesce(sum(token), 0) AS digest
          FROM main.retention_hold_log)
 WHERE NOT EXISTS (SELECT 1 FROM main.retention_hold_state);

INSERT INTO main.blackbox_ledgers(domain, entries, closed, digest)
SELECT 'retention', entries, closed, digest FROM main.retention_hold_state
 WHERE NOT EXISTS (SELECT 1 FROM main.blackbox_ledgers WHERE domain = 'retention');

-------------------------------------------------------------- the steps --

CREATE TRIGGER IF NOT EXISTS main.retention_hold_log_insert
BEFORE INSERT ON retention_hold_log
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: a step gets its number, time and token from the table; omit them')
   WHERE (NEW.step IS NOT NULL AND NEW.step <> -1)
      OR NEW.at IS NOT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
      OR typeof(NEW.token) <> 'integer' OR NEW.token NOT BETWEEN 0 AND 4294967295;
  SELECT RAISE(ABORT, 'ValidationError: kind must be agent, event, kill_switch, rollout, session, evidence or buffer')
   WHERE NOT coalesce(NEW.kind IN ('agent', 'event', 'kill_switch', 'rollout',
                                   'session', 'evidence', 'buffer'), 0);
  SELECT RAISE(ABORT, 'ValidationError: key must be text of 1 to 1100 bytes, and in lower case for a rollout or a buffer')
   WHERE NOT coalesce(typeof(NEW."key") = 'text'
                      AND length(CAST(NEW."key" AS BLOB)) BETWEEN 1 AND 1100
                      AND (NEW.kind NOT IN ('rollout', 'buffer')
                           OR NEW."key" = lower(NEW."key")), 0);
  SELECT CASE
           WHEN typeof(NEW.owner) <> 'text' OR ltrim(NEW.owner, unseen) = ''
             OR unicode(ltrim(NEW.owner, unseen)) BETWEEN 917504 AND 921599
             OR EXISTS (SELECT 1 FROM retention_controls
                         WHERE instr(NEW.owner, control) > 0)
           THEN RAISE(ABORT, 'ValidationError: owner must be visible text without control characters, such as the number of a case')
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
  SELECT RAISE(ABORT, 'ValidationError: until must be a time in the future in milliseconds since 1970 UTC, or NULL for a hold without an end')
   WHERE NEW.until IS NOT NULL
     AND NOT coalesce(NEW.act = 'hold' AND typeof(NEW.until) = 'integer'
                      AND NEW.until > NEW.at AND NEW.until <= 253402300799999, 0);
  SELECT RAISE(ABORT, 'ValidationError: found must be 0, 1 or NULL; omit it')
   WHERE NEW.found IS NOT NULL
     AND NOT (typeof(NEW.found) = 'integer' AND NEW.found IN (0, 1));
  SELECT RAISE(ABORT, 'HeldError: a hold can be lengthened and not shortened; give a later until, or NULL for no end')
    FROM retention__in_force
   WHERE NEW.act = 'hold'
     AND kind = NEW.kind AND "key" = NEW."key" AND owner = NEW.owner
     AND NOT coalesce(NEW.until IS NULL OR NEW.until >= until, 0);
  SELECT RAISE(ABORT, 'HeldError: this file has an archive, rings or evidence buffers whose guards the module must make first; SELECT retention_hold(kind, key, owner, actor, reason)')
   WHERE NEW.act = 'hold'
     AND ((NEW.kind IN ('agent', 'event', 'kill_switch', 'evidence')
           AND EXISTS (SELECT 1 FROM blackbox_domains WHERE domain = 'payload')
           AND NOT EXISTS (SELECT 1 FROM sqlite_schema
                            WHERE type = 'trigger' AND name = 'payload_made_held_delete'))
          OR (NEW.kind IN ('agent', 'event', 'buffer')
              AND EXISTS (SELECT 1 FROM sqlite_schema AS v
                           WHERE v.type = 'table'
                             AND (lower(v.sql) GLOB 'create virtual table*using*payload_ring*'
                                  OR lower(v.sql) GLOB 'create virtual table*using*evidence_buffer*')
                             AND NOT EXISTS (SELECT 1 FROM sqlite_schema AS g
                                              WHERE g.type = 'trigger'
                                                AND g.name = v.name || '_heldrow' COLLATE NOCASE))));
  SELECT RAISE(ABORT, 'NotFoundError: this owner has no hold on that; SELECT kind, key, owner FROM retention_holds lists the holds')
   WHERE NEW.act = 'release'
     AND NOT EXISTS (SELECT 1 FROM retention__in_force
                      WHERE kind = NEW.kind AND "key" = NEW."key"
                        AND owner = NEW.owner);
END;

CREATE TRIGGER IF NOT EXISTS main.retention_hold_log_update
BEFORE UPDATE ON retention_hold_log
BEGIN
  SELECT RAISE(ABORT, 'HeldError: retention_hold_log is a record and cannot be changed; to change a hold, UPDATE retention_holds');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_hold_log_delete
BEFORE DELETE ON retention_hold_log
BEGIN
  SELECT RAISE(ABORT, 'HeldError: retention_hold_log is a record and cannot be deleted; to release a hold, UPDATE retention_holds SET released = 1, actor = ..., reason = ...');
END;

-- A step takes effect. A trigger of the user may have prevented it.
CREATE TRIGGER IF NOT EXISTS main.retention_hold_log_added
AFTER INSERT ON retention_hold_log
BEGIN
  UPDATE retention_hold_state
     SET entries = entries + 1, closed = closed + (NEW.act = 'release'),
         digest = digest + NEW.token
   WHERE one = 1;
  UPDATE blackbox_ledgers
     SET entries = entries + 1, closed = closed + (NEW.act = 'release'),
         digest = digest + NEW.token
   WHERE domain = 'retention';
  DELETE FROM retention__in_force
   WHERE NEW.act = 'release'
     AND kind = NEW.kind AND "key" = NEW."key" AND owner = NEW.owner;
  UPDATE retention__in_force SET until = NEW.until, step = NEW.step
   WHERE NEW.act = 'hold'
     AND kind = NEW.kind AND "key" = NEW."key" AND owner = NEW.owner;
  INSERT INTO retention__in_force(kind, "key", owner, until, step)
  SELECT NEW.kind, NEW."key", NEW.owner, NEW.until, NEW.step
   WHERE NEW.act = 'hold'
     AND NOT EXISTS (SELECT 1 FROM retention__in_force
                      WHERE kind = NEW.kind AND "key" = NEW."key"
                        AND owner = NEW.owner);
  SELECT RAISE(ABORT, 'MisuseError: a trigger on retention_hold_log or retention__in_force prevents this step; drop the trigger')
   WHERE (SELECT step FROM retention__in_force
           WHERE kind = NEW.kind AND "key" = NEW."key" AND owner = NEW.owner)
         IS NOT CASE NEW.act WHEN 'hold' THEN NEW.step END;
END;

------------------------------------------------- the holds in the table of core --

CREATE TRIGGER IF NOT EXISTS main.retention_held_insert
BEFORE INSERT ON retention__in_force
WHEN NOT EXISTS (SELECT 1 FROM retention_hold_log
                  WHERE step = NEW.step AND kind = NEW.kind AND "key" = NEW."key"
                    AND owner = NEW.owner AND act = 'hold' AND until IS NEW.until)
  OR NEW.step IS NOT (SELECT max(step) FROM retention_hold_log
                       WHERE kind = NEW.kind AND "key" = NEW."key"
                         AND owner = NEW.owner)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: retention__in_force is written by triggers only; INSERT INTO retention_holds(kind, key, owner, actor, reason) places a hold');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_held_update
BEFORE UPDATE ON retention__in_force
WHEN NOT coalesce(NEW.kind IS OLD.kind AND NEW."key" IS OLD."key"
                  AND NEW.owner IS OLD.owner
                  AND EXISTS (SELECT 1 FROM retention_hold_log
                               WHERE step = NEW.step AND kind = OLD.kind
                                 AND "key" = OLD."key" AND owner = OLD.owner
                                 AND act = 'hold' AND until IS NEW.until)
                  AND NEW.step = (SELECT max(step) FROM retention_hold_log
                                   WHERE kind = OLD.kind AND "key" = OLD."key"
                                     AND owner = OLD.owner), 0)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: retention__in_force is written by triggers only; UPDATE retention_holds lengthens or releases a hold');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_held_delete
BEFORE DELETE ON retention__in_force
WHEN (SELECT act FROM retention_hold_log
       WHERE kind = OLD.kind AND "key" = OLD."key" AND owner = OLD.owner
       ORDER BY step DESC LIMIT 1) IS 'hold'
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold cannot be deleted; to release it, UPDATE retention_holds SET released = 1, actor = ..., reason = ...');
END;

-- The length of the log only grows, by one step at a time.
CREATE TRIGGER IF NOT EXISTS main.retention_hold_state_update
BEFORE UPDATE ON retention_hold_state
WHEN NOT coalesce(NEW.one IS OLD.one AND NEW.entries = OLD.entries + 1
                  AND NEW.closed - OLD.closed IN (0, 1)
                  AND NEW.digest - OLD.digest BETWEEN 0 AND 4294967295, 0)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the length of the log is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_hold_state_insert
BEFORE INSERT ON retention_hold_state
WHEN EXISTS (SELECT 1 FROM retention_hold_state)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the length of the log is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_hold_state_delete
BEFORE DELETE ON retention_hold_state
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the length of the log is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_ledgers_update
BEFORE UPDATE ON blackbox_ledgers
WHEN OLD.domain = 'retention' AND NOT coalesce(
       NEW.domain = 'retention' AND NEW.entries = OLD.entries + 1
       AND NEW.closed - OLD.closed IN (0, 1)
       AND NEW.digest - OLD.digest BETWEEN 0 AND 4294967295, 0)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the length of the log is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_ledgers_insert
BEFORE INSERT ON blackbox_ledgers
WHEN EXISTS (SELECT 1 FROM blackbox_ledgers
              WHERE domain = NEW.domain AND domain = 'retention')
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the length of the log is written by triggers only and cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.retention_ledgers_delete
BEFORE DELETE ON blackbox_ledgers
WHEN OLD.domain = 'retention'
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the length of the log is written by triggers only and cannot be changed');
END;

------------------------------------------------------------- the commands --

CREATE TRIGGER IF NOT EXISTS main.retention_holds_insert
INSTEAD OF INSERT ON retention_holds
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: only kind, key, owner, actor, reason, until and found can be set; omit the other columns')
   WHERE NEW.at IS NOT NULL OR coalesce(NEW.released, 0) IS NOT 0;
  INSERT INTO retention_hold_log(kind, "key", owner, act, until, actor, reason, found)
  VALUES (NEW.kind,
          CASE WHEN NEW.kind IN ('rollout', 'buffer') THEN lower(NEW."key")
               ELSE NEW."key" END,
          NEW.owner, 'hold', NEW.until, NEW.actor, NEW.reason, NEW.found);
  SELECT RAISE(ABORT, 'MisuseError: a trigger on retention_hold_log prevents this hold; drop the trigger')
   WHERE NOT EXISTS (SELECT 1 FROM retention__holds
                      WHERE kind = NEW.kind AND owner = NEW.owner
                        AND "key" = CASE WHEN NEW.kind IN ('rollout', 'buffer')
                                         THEN lower(NEW."key") ELSE NEW."key" END);
END;

-- The reason must be a new one: it is that of this step.
CREATE TRIGGER IF NOT EXISTS main.retention_holds_update
INSTEAD OF UPDATE ON retention_holds
BEGIN
  SELECT RAISE(ABORT, 'HeldError: only until and released of a hold can be changed, with the actor and the reason; place another hold')
   WHERE NEW.kind IS NOT OLD.kind OR NEW."key" IS NOT OLD."key"
      OR NEW.owner IS NOT OLD.owner OR NEW.at IS NOT OLD.at
      OR NEW.found IS NOT OLD.found
      OR NOT coalesce(NEW.released IN (0, 1), 0);
  SELECT RAISE(ABORT, 'ValidationError: to lengthen or release a hold, tell who does it and why: SET actor = ..., reason = ..., with a reason that is not that of the step before')
   WHERE NEW.reason IS OLD.reason;
  INSERT INTO retention_hold_log(kind, "key", owner, act, until, actor, reason, found)
  VALUES (OLD.kind, OLD."key", OLD.owner,
          CASE NEW.released WHEN 1 THEN 'release' ELSE 'hold' END,
          CASE NEW.released WHEN 0 THEN NEW.until END, NEW.actor, NEW.reason,
          OLD.found);
  SELECT RAISE(ABORT, 'MisuseError: a trigger on retention_hold_log prevents this step; drop the trigger')
   WHERE (SELECT until IS NEW.until FROM retention__holds
           WHERE kind = OLD.kind AND "key" = OLD."key" AND owner = OLD.owner)
         IS NOT CASE NEW.released WHEN 0 THEN 1 END;
END;

CREATE TRIGGER IF NOT EXISTS main.retention_holds_delete
INSTEAD OF DELETE ON retention_holds
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold cannot be deleted, because its release needs an actor and a reason; UPDATE retention_holds SET released = 1, actor = ..., reason = ...');
END;

-- A row of retention__in_force that is lost comes back from the log.
INSERT INTO main.retention__in_force(kind, "key", owner, until, step)
SELECT l.kind, l."key", l.owner, l.until, l.step
  FROM main.retention_hold_log AS l
 WHERE l.act = 'hold'
   AND l.step = (SELECT max(step) FROM main.retention_hold_log
                  WHERE kind = l.kind AND "key" = l."key" AND owner = l.owner)
   AND NOT EXISTS (SELECT 1 FROM main.retention__in_force AS h
                    WHERE h.kind = l.kind AND h."key" = l."key"
                      AND h.owner = l.owner);
