-- retention.sql: what is built on the rules of all domains; and holds. What a hold
-- keeps is not removed and not changed until every owner of a hold on it has
-- released it.
--
-- The rules and the log are in core.sql, and each domain says what its rules remove. This file runs after core.sql, any number of times.
--
-- Views   retention_holds     the holds in force. INSERT makes a step: it places, lengthens
--                             or releases a hold. UPDATE lengthens or releases one
--         retention_hold_log  one row for each step: a hold was placed or lengthened
--                             ('hold'), or released ('release')
--         retention_erasures  one row for each erasure: who, when, why, how much.
--                             Not what: a digest stands for the key
--         retention_refusals  rules that could not be applied, and why
--
-- Except for the first, they show rows of the log. A step has the subject
-- <kind>:<key>. The owner, the end, and whether the thing was there are in detail.
-- A hold is on a thing, which need not exist yet, and belongs to an owner, such as
-- the number of a case. docs/retention.md has the kinds, and what is their key.
--
-- The table retention__in_force of core has the holds that were not released, for
-- the guards of each domain. A hold that has an end (until, in milliseconds since
-- 1970 UTC) stays there after it, but is not in force any more.
--
-- Invariants: each step says who, when and why. The end of a hold can become later,
-- and not earlier. A row of retention__in_force is the newest step of its owner for
-- that thing. No trigger uses JSON: SQLite before 3.41 refuses that in a schema that is
-- not trusted.

-- found: 1 if the thing was there when the hold was placed, 0 if it was not, NULL if
-- nobody looked; retention_hold() looks. If it was there and is there no more,
-- somebody has removed it behind the guards, and blackbox_check() says so.
--
-- A hold that has ended is not listed. released is always 0: to release a hold,
-- UPDATE retention_holds SET released = 1, actor = ..., reason = ...
CREATE VIEW IF NOT EXISTS main.retention_holds AS
SELECT f.kind AS kind, f."key" AS "key", f.owner AS owner, f.until AS until,
       l.actor AS actor, l.reason AS reason, l.at AS at, 0 AS released,
       f.found AS found
  FROM retention__holds AS f
  LEFT JOIN blackbox__log AS l ON l.n = f.step
 WHERE f.owner <> '';

CREATE VIEW IF NOT EXISTS main.retention_hold_log AS
SELECT n AS step, at, substr(subject, 1, instr(subject, ':') - 1) AS kind,
       substr(subject, instr(subject, ':') + 1) AS "key",
       CASE WHEN json_valid(detail) THEN detail ->> 'owner' END AS owner, kind AS act,
       CASE WHEN json_valid(detail) THEN detail ->> 'until' END AS until, actor, reason,
       CASE WHEN json_valid(detail) THEN detail ->> 'found' END AS found
  FROM blackbox__log
 WHERE domain = 'retention' AND kind IN ('hold', 'release');

-- digest is the SHA-256 of the salt, the kind and the key, as hexadecimal digits
-- with a line feed between them. Somebody who has the key can prove with it that
-- the key was erased; from the digest nobody learns the key. Until the time in
-- until, retention__in_force of core has the key as plain text, for the guards. The
-- next erasure after that time removes it there.
CREATE VIEW IF NOT EXISTS main.retention_erasures AS
SELECT n AS id, at, CASE WHEN json_valid(detail) THEN detail ->> 'kind' END AS kind,
       CASE WHEN json_valid(detail) THEN detail ->> 'salt' END AS salt,
       CASE WHEN json_valid(detail) THEN detail ->> 'digest' END AS digest,
       actor, reason, rows, bytes,
       CASE WHEN json_valid(detail) THEN detail ->> 'held_back' END AS held_back,
       CASE WHEN json_valid(detail) THEN detail ->> 'until' END AS until
  FROM blackbox__log
 WHERE domain = 'retention' AND kind = 'erasure';

-- A refusal that is repeated is written again after a day. at is the last time.
CREATE VIEW IF NOT EXISTS main.retention_refusals AS
SELECT max(n) AS id, max(at) AS at, domain, subject AS rule, reason AS message,
       count(*) AS times
  FROM blackbox__log
 WHERE kind = 'refusal'
 GROUP BY domain, subject, reason;

CREATE TRIGGER IF NOT EXISTS main.retention_holds_insert
INSTEAD OF INSERT ON retention_holds
BEGIN
  SELECT CASE
    WHEN NEW.at IS NOT NULL OR (NEW.released IN (0, 1)) IS 0 OR (NEW.found IN (0, 1)) IS 0
    THEN RAISE(ABORT, 'ValidationError: only kind, key, owner, actor, reason, until and released can be set; omit the other columns')
    WHEN (NEW.kind IN ('agent', 'event', 'kill_switch', 'rollout', 'session', 'evidence', 'buffer')) IS NOT 1
    THEN RAISE(ABORT, 'ValidationError: kind must be agent, event, kill_switch, rollout, session, evidence or buffer')
    WHEN typeof(NEW."key") <> 'text' OR instr(NEW."key", char(0)) OR length(CAST(NEW."key" AS BLOB)) NOT BETWEEN 1 AND 1100
    THEN RAISE(ABORT, 'ValidationError: key must be text of 1 to 1100 bytes without a NUL')
    WHEN (SELECT 1 FROM (SELECT NEW.owner AS said, char(1, 45, 31, 127, 45, 159) AS controls
            UNION ALL SELECT NEW.actor, char(1, 45, 31, 127, 45, 159)
            UNION ALL SELECT NEW.reason, char(1, 45, 8, 11, 12, 14, 45, 31, 127, 45, 159)), retention__clock
           WHERE typeof(said) <> 'text' OR instr(said, char(0)) OR said GLOB '*[' || controls || ']*'
              OR (unicode(ltrim(said, unseen)) BETWEEN 917504 AND 921599) IS NOT 0)
    THEN RAISE(ABORT, 'ValidationError: owner, actor and reason must be visible text without control characters; a reason may have tabs and line ends')
    WHEN NEW.until IS NOT NULL AND (typeof(NEW.until) <> 'integer' OR NEW.until > 253402300799999
      OR NEW.until <= (julianday('now') - 2440587.5) * 86400000.0)
    THEN RAISE(ABORT, 'ValidationError: until must be a time in the future in milliseconds since 1970 UTC, or NULL for a hold without an end')
    WHEN NEW.released IS NOT 1 AND owner NOTNULL AND NOT coalesce(NEW.until IS NULL OR NEW.until >= until, 0)
    THEN RAISE(ABORT, 'HeldError: a hold can be lengthened and not shortened; give a later until, or NULL for no end')
    WHEN NEW.released AND owner IS NULL
    THEN RAISE(ABORT, 'NotFoundError: this owner has no hold on that; SELECT kind, key, owner FROM retention_holds lists the holds') END e
    FROM (SELECT iif(NEW.kind IN ('rollout', 'buffer'), lower(NEW."key"), NEW."key") AS k)
    LEFT JOIN retention__in_force ON kind = NEW.kind AND "key" = k AND owner = NEW.owner;
  INSERT INTO blackbox__log(domain, kind, subject, actor, reason, detail)
  VALUES ('retention', iif(NEW.released, 'release', 'hold'),
          NEW.kind || ':' || iif(NEW.kind IN ('rollout', 'buffer'), lower(NEW."key"), NEW."key"),
          NEW.actor, NEW.reason,
          '{"owner":"' || replace(replace(NEW.owner, '\', '\\'), '"', '\"') || '","until":' ||
          coalesce(NEW.until, 'null') || ',"found":' || coalesce(NEW.found, 'null') || '}');
  INSERT INTO retention__in_force(kind, "key", owner, until, step, found)
  VALUES (NEW.kind, iif(NEW.kind IN ('rollout', 'buffer'), lower(NEW."key"), NEW."key"),
          NEW.owner, NEW.until, last_insert_rowid(), NEW.found)
  ON CONFLICT (kind, "key", owner) DO UPDATE
     SET until = excluded.until, step = excluded.step, found = excluded.found;
  DELETE FROM retention__in_force WHERE kind = NEW.kind AND step = last_insert_rowid() AND NEW.released;
END;

-- The reason must be a new one: it is that of this step.
CREATE TRIGGER IF NOT EXISTS main.retention_holds_update
INSTEAD OF UPDATE ON retention_holds
BEGIN
  SELECT CASE
    WHEN (NEW.kind, NEW."key", NEW.owner, NEW.at, NEW.found) IS NOT (OLD.kind, OLD."key", OLD.owner, OLD.at, OLD.found)
      OR (NEW.released IN (0, 1)) IS NOT 1
    THEN RAISE(ABORT, 'HeldError: only until and released of a hold can be changed, with the actor and the reason; place another hold')
    WHEN NEW.reason IS OLD.reason
    THEN RAISE(ABORT, 'ValidationError: to lengthen or release a hold, tell who does it and why: SET actor = ..., reason = ..., with a reason that is not that of the step before') END e;
  INSERT INTO retention_holds(kind, "key", owner, until, actor, reason, released, found)
  VALUES (OLD.kind, OLD."key", OLD.owner, iif(NEW.released, NULL, NEW.until), NEW.actor,
          NEW.reason, NEW.released, OLD.found);
END;

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('retention.refuse_days', 30, '0 to 36500', 'days that a write under a key that was erased is refused; 0: it is not')) WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('retention', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
