-- core.sql: the tables that every domain of blackbox uses.
--
-- Tables  blackbox_domains       which domains are installed, at what version
--         blackbox_settings      every setting: value, default, range, meaning
--         blackbox__log          what blackbox did: one row for each act
--         blackbox__open         removals whose receipt is not finished
--         blackbox__tree         the Merkle tree of the log: see ext/core/log_tree.c
--         blackbox__leaves       its hashes
--         blackbox__folded       leaves of receipts that are now parts of a sum
--         blackbox__erased       hashes of fields of the log that were erased
--         retention_rules        what each rule removes: the rows that a view of
--                                a domain lists, or old rows of your own table
--         retention__clock       the newest time that this file has seen
--         retention__in_force    what holds keep, and keys of what was erased, which are
--                                refused: for the guards of every domain
--         store_dropped          texts that the body store can sweep
--         blackbox__probe        lets a trigger detect a REPLACE
--         blackbox_prices        what a million tokens cost: rules, reports and
--         blackbox_places        where bodies and session files have what is read
--                                from them
-- Views   blackbox_log           the log, with the receipts that are not finished
--         retention_log          receipts: what was removed, and by which rule. INSERT
--                                adds to the receipt of the minute
--         retention__holds       the rows of retention__in_force that have not ended
--
-- This file runs alone (sqlite3 my.db < sql/core.sql), any number of times. The
-- mark "main." is the schema; the module replaces it with the name of an
-- attached schema. A name inside a trigger refers to the trigger's own schema.
--
-- Invariants: a setting has a known name and a value in range, on every
-- connection. A removal is counted by the statement that removes the rows. The log
-- only grows.
--
-- Every connection keeps the triggers of all domains in memory. What a SELECT returns is
-- named e there, because without a name SQLite keeps its text, too. An expression takes half
-- as much in an UPDATE or DELETE as in a SELECT: so many tests are in the WHERE of an UPDATE.

-- What blackbox did: pins, unpins, kill switches, holds, removals. It is a view, so
-- that a plain INSERT cannot write into the log. r: it is a receipt; d: its domain.
CREATE VIEW IF NOT EXISTS main.blackbox_log AS
SELECT n, at, d AS domain, ifnull(kind, 'removal') AS kind,
       iif(r, ifnull(subject, detail), subject) AS subject,
       iif(r AND actor = '', d || '_cleanup', actor) AS actor,
       reason, rows, bytes, iif(r, at - oldest, oldest) AS oldest,
       iif(r, at - oldest + newest, newest) AS newest,
       iif(r AND subject IS NULL, NULL, detail) AS detail,
       agent_id, event_id, kill_switch_event_id
  FROM (SELECT *, kind IS NULL AS r,
               ifnull(domain, substr(detail, 1, instr(detail, '.') - 1)) AS d
          FROM blackbox__log)
UNION ALL
SELECT NULL, at, domain, 'removal', rule, NULL, NULL, rows, bytes, oldest, newest, NULL,
       NULL, NULL, NULL
  FROM blackbox__open WHERE minute > 0
UNION ALL
SELECT NULL, seen, 'core', 'clock', 'trusted', NULL, NULL, NULL, NULL, was, seen, NULL, NULL,
       NULL, NULL
  FROM retention__clock WHERE was;

-- The receipts. That of a minute which is not over has the number that it would get.
-- INSERT adds a removal to the receipt of its rule and minute; that of the rule 'bulk' has the
-- minute 0. If at is NULL, it is now, and if newest is NULL, it is the same as oldest.
CREATE VIEW IF NOT EXISTS main.retention_log AS
SELECT n AS id, at, domain, subject AS rule, actor, rows, bytes, oldest, newest,
       iif(ifnull(detail, actor) IS NULL, at / 60000, NULL) AS minute
  FROM blackbox_log WHERE kind = 'removal' AND n
UNION ALL
SELECT (SELECT ifnull(max(n), 0) FROM blackbox__log) + row_number() OVER (),
       at, domain, rule, NULL, rows, bytes, oldest, newest, minute
  FROM blackbox__open WHERE minute > 0;

-- The time that ends holds: a clock that is a day ahead of the newest time that was
-- seen, or behind it, is not asked; then that time counts until a write or a clean-up
-- has remembered a newer one.
CREATE VIEW IF NOT EXISTS main.retention__holds AS
SELECT * FROM retention__in_force
 WHERE (until > (SELECT iif(unixepoch() * 1000 - seen BETWEEN 0 AND 86400000, unixepoch() * 1000, seen) e FROM retention__clock)) IS NOT 0;

-- format: of the tables of the domain. (Builds before 1.0 had a column version, by which
-- the module knows their files.)
CREATE TABLE IF NOT EXISTS main.blackbox_domains(
  domain TEXT PRIMARY KEY,
  format
) WITHOUT ROWID;

-- range is "low to high", and then the value is an integer or, if the range has a
-- full stop, a number; or it lists words; or it describes a text. (An error cannot
-- name them: before SQLite 3.47 its text must be a literal.)
CREATE TABLE IF NOT EXISTS main.blackbox_settings(
  name      TEXT PRIMARY KEY,
  value NUMERIC, "default" NUMERIC NOT NULL, range TEXT NOT NULL, meaning TEXT NOT NULL,
  CONSTRAINT "ValidationError: the value is not in the range of the setting; SELECT name, range FROM blackbox_settings"
  CHECK (CASE
    WHEN instr(range, ' to ') THEN
      (value = CAST(value AS INTEGER) OR instr(range, '.'))
      AND value BETWEEN range + 0 AND substr(range, instr(range, ' to ') + 4) + 0
    WHEN instr(range, ',') THEN
      value < x'' AND instr(value, ',') = 0
      AND instr(', ' || range || ',', ', ' || value || ',')
    ELSE value > '' AND value < x''
  END IS TRUE)
) WITHOUT ROWID;

-- Every setting has its row. So INSERT, INSERT OR REPLACE and upsert become UPDATE.
-- Definitions come from the SQL of a domain, which sets the hit of blackbox__probe to 2
-- meanwhile.
CREATE TRIGGER IF NOT EXISTS main.blackbox_settings_insert
BEFORE INSERT ON blackbox_settings WHEN (SELECT hit FROM blackbox__probe) IS NOT 2
BEGIN
  UPDATE blackbox_settings SET value = NEW.value WHERE name = NEW.name;
  SELECT CASE changes()
    WHEN 0 THEN RAISE(ABORT, 'ValidationError: the installed domains have no such setting; SELECT name, range FROM blackbox_settings')
    ELSE RAISE(IGNORE) END e;
END;

CREATE TRIGGER IF NOT EXISTS main.blackbox_settings_rename
BEFORE UPDATE OF name, "default", range, meaning ON blackbox_settings
WHEN (SELECT hit FROM blackbox__probe) IS NOT 2
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: a setting cannot be changed but for its value') e;
END;

-- DELETE gives the default back.
CREATE TRIGGER IF NOT EXISTS main.blackbox_settings_delete
BEFORE DELETE ON blackbox_settings WHEN (SELECT hit FROM blackbox__probe) IS NOT 2
BEGIN
  UPDATE blackbox_settings SET value = "default" WHERE name = OLD.name;
  SELECT RAISE(IGNORE) e;
END;

-- The log. Only triggers of blackbox and the module write it, and no row is changed.
-- A receipt of removals is short: kind is NULL, and domain if the rule begins with it;
-- actor is empty if it is the clean-up of the domain; oldest is the time before at, and
-- newest the time after oldest.
-- subject: what it is about. detail: JSON; of a receipt the rule, so that the index has
-- none of them. agent_id, event_id, kill_switch_event_id: those of the
-- exchange that it is about. at, oldest and newest are milliseconds since 1970 UTC. salt
-- hides the content from those who know the leaf of the row; if it is NULL, the secret
-- of the tree does.
CREATE TABLE IF NOT EXISTS main.blackbox__log(
  n       INTEGER PRIMARY KEY CHECK (n > 0),
  at      INTEGER NOT NULL
    DEFAULT (round(julianday('now') * 864e5 - 210866760e6)),
  domain TEXT, kind TEXT, subject TEXT, actor TEXT, reason TEXT, rows INTEGER, bytes INTEGER,
  oldest INTEGER, newest INTEGER, detail TEXT, agent_id TEXT, event_id TEXT,
  kill_switch_event_id TEXT,
  salt    BLOB DEFAULT (randomblob(16))
);

CREATE INDEX IF NOT EXISTS main.blackbox__log_subject
ON blackbox__log(subject, at) WHERE subject IS NOT NULL;

-- The Merkle tree of the log. Only the module writes it: it gives leaves to the rows
-- that were written since, in each call that writes. Leaf i is that of row i + 1.
-- origin is the first line of each head. frontier: the hashes of the complete
-- subtrees, 32 bytes each, the largest first. fold: rows before this one were looked
-- at for folding. secret: of it the salts of receipts are made. docs/proof.md is the
-- manual.
CREATE TABLE IF NOT EXISTS main.blackbox__tree(
  one      INTEGER PRIMARY KEY,
  origin, size, frontier,
  fold DEFAULT 1,
  secret   DEFAULT (randomblob(32))
);
INSERT INTO main.blackbox__tree(one, origin, size, frontier)
SELECT 1, 'blackbox/' || lower(hex(randomblob(16))), 0, x''
 WHERE NOT EXISTS (SELECT 1 FROM main.blackbox__tree);

-- kept: how many rows are no receipts, up to this one. A leaf less than 0 is a node: see
-- bxLogNode(). Or -leaf is a size for which proof_head() has returned a head.
CREATE TABLE IF NOT EXISTS main.blackbox__leaves(
  leaf INTEGER PRIMARY KEY,
  hash, kept
);

-- Ranges of leaves that were folded, with kept of the last one, and its row of the log.
CREATE TABLE IF NOT EXISTS main.blackbox__folded(
  first INTEGER PRIMARY KEY,
  last, kept, at, domain, subject, actor, reason, rows, bytes, oldest, newest, detail, salt
);

-- If a field of row n is erased, each of its fields has a row here: the erased one
-- with its type and hash, the others with their salt. The salt of the row is empty.
CREATE TABLE IF NOT EXISTS main.blackbox__erased(
  n, name, type, salt, hash,
  PRIMARY KEY (n, name)
) WITHOUT ROWID;

-- Removals that one receipt will tell: those of a rule and a minute or, with minute
-- 0, those of the bulk act that runs.
CREATE TABLE IF NOT EXISTS main.blackbox__open(
  domain, rule,
  minute INTEGER, at INTEGER, rows INTEGER,
  bytes  INTEGER CHECK (min(rows, bytes) >= 0 IS TRUE),
  oldest INTEGER, newest INTEGER,
  PRIMARY KEY (domain, rule, minute)
) WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS main.retention_log_insert
INSTEAD OF INSERT ON retention_log
BEGIN
  INSERT INTO blackbox__open
  VALUES (NEW.domain, NEW.rule,
          iif(NEW.rule = 'bulk', 0, coalesce(NEW.minute, NEW.at / 60000, unixepoch() / 60)),
          ifnull(NEW.at, round(julianday('now') * 864e5 - 210866760e6)), NEW.rows,
          NEW.bytes, NEW.oldest, ifnull(NEW.newest, NEW.oldest))
  ON CONFLICT DO UPDATE
     SET at = excluded.at, rows = rows + NEW.rows, bytes = bytes + NEW.bytes,
         oldest = coalesce(min(oldest, NEW.oldest), oldest, NEW.oldest),
         newest = coalesce(max(newest, excluded.newest), newest, excluded.newest);
END;

-- Texts of the body store that perhaps no row names any more; and numbers below 0 for
-- packs of it (ext/store/sweep.c). It is here, so that the
-- triggers of other domains can write it where there is no store.
CREATE TABLE IF NOT EXISTS main.store_dropped(
  text INTEGER PRIMARY KEY
);

-- What holds keep: one row for each owner of a hold, which the domain retention
-- writes. step is the number of the hold in blackbox__log. And the keys of what was
-- erased, under which nothing may be written until a time: kind is 'erased agent', and
-- owner is empty. The guards of every domain read retention__holds, so that no domain
-- names a table of another, and none reads the log. A file without both costs a guard
-- one look.
CREATE TABLE IF NOT EXISTS main.retention__in_force(
  kind, "key", owner, until, step, found,
  PRIMARY KEY (kind, "key", owner)
) WITHOUT ROWID;

-- A BEFORE trigger cannot read the conflict clause of its statement. It runs
--   UPDATE blackbox__probe SET hit = 0 WHERE one = 1;
--   INSERT OR IGNORE INTO blackbox__probe(one, hit) VALUES (1, 1);
-- which inherits the clause of the outer statement: REPLACE leaves hit = 1, IGNORE
-- and a plain INSERT leave hit = 0, and ABORT, FAIL and ROLLBACK fail. A hit of 2 lets
-- the SQL of a domain write the definitions of settings.
CREATE TABLE IF NOT EXISTS main.blackbox__probe(
  one INTEGER PRIMARY KEY,
  hit
);
INSERT INTO main.blackbox__probe(one, hit) VALUES (1, 0) ON CONFLICT (one) DO NOTHING;

-- A row of "view" is due when its "at" lies before
--   now - (value of "setting") * unit_ms
-- or, if setting is NULL, before now. Each such view has the columns key, bytes,
-- at and blocked_by (NULL, or the reason why the row stays). A DELETE on the view
-- removes rows that are not blocked, with a receipt. "table" is the table whose
-- rows the view lists. A domain without a view has in C what is due of "table".
--
-- A rule of the domain user without a view: rows of "table" go that are older
-- than age_ms. "key" is its unique column, "time" its column with the time, and
-- format says what that column contains: ms or s (since 1970 UTC), or text.
CREATE TABLE IF NOT EXISTS main.retention_rules(
  rule    TEXT PRIMARY KEY,
  domain TEXT NOT NULL DEFAULT 'user', "view" TEXT, setting TEXT, unit_ms INTEGER, "table" TEXT,
  "key" TEXT, "time" TEXT, format TEXT NOT NULL DEFAULT 'ms', age_ms INTEGER,
  CONSTRAINT "ValidationError: a rule needs a name, and a view, or a table with key and time as text, and age_ms in milliseconds above 0"
  CHECK ((rule > '' AND max(rule, ifnull("view", "table")) < x''
          AND ("view" NOTNULL OR domain <> 'user'
               OR (max("key", "time") < x'' AND typeof(age_ms) = 'integer' AND age_ms > 0))) IS TRUE),
  CONSTRAINT "ValidationError: format must be ms, s or text"
  CHECK (format IN ('ms', 's', 'text'))
) WITHOUT ROWID;

-- seen: the newest time that can be trusted, by the clock of the machine and not by
-- times that were given. Writes and clean-ups set it when more than due has passed: at
-- most once an hour. If that is more than a day, the clock may have jumped. Then seen
-- stays for a day, and follows if the clock goes on from there without another jump of
-- more than seven days (604800000 ms). A clock that is more than seven days ahead of
-- seen stops all rules, because they would remove what is not old. was: seen before such
-- a time ended, until a row of the log has it.
--
-- unseen: an actor, an owner and a reason are text in which nothing hides: no control
-- character stands in it (a reason may have tabs and line ends: control is a pattern of
-- the others), and the first character that is not one of these exists and is not a tag (917504 to 921599).
CREATE TABLE IF NOT EXISTS main.retention__clock(
  one  INTEGER PRIMARY KEY,
  seen INTEGER NOT NULL,
  due  DEFAULT 3600000,
  was, unseen, control
);
WITH range(c, last) AS (VALUES (9, 10), (13, 13), (32, 32), (160, 160), (173, 173),
  (847, 847), (1564, 1564), (4447, 4448), (5760, 5760), (6068, 6069), (6155, 6158),
  (8192, 8207), (8232, 8239), (8287, 8303), (10240, 10240), (12288, 12288),
  (12644, 12644), (65024, 65039), (65279, 65279), (65440, 65440), (65529, 65531)),
each(c, last) AS (
  SELECT c, last FROM range UNION ALL SELECT c + 1, last FROM each WHERE c < last)
INSERT INTO main.retention__clock(one, seen, unseen, control)
SELECT 1, unixepoch() * 1000, group_concat(char(c), ''),
       '*[' || char(1, 45, 8, 11, 12, 14, 45, 31, 127, 45, 159) || ']*' FROM each WHERE 1
ON CONFLICT DO UPDATE SET unseen = excluded.unseen, control = excluded.control;

-- The prices of a million tokens in USD, for a call whose prompt has more tokens than
-- above. A row holds from its day on, until the next one of the model; the first one
-- holds for the days before, too. cache_write_1h: for an hour; NULL is 2 * input.
-- cache_write and cache_read: NULL is input. reasoning: NULL is output. The list, its
-- date and its digest say where a row is from.
CREATE TABLE IF NOT EXISTS main.blackbox_prices(
  model TEXT, since TEXT DEFAULT '1970-01-01', above INTEGER DEFAULT 0, input REAL NOT NULL,
  output REAL NOT NULL, cache_write REAL,
  cache_write_1h REAL,
  cache_read REAL, reasoning REAL, list TEXT, list_date TEXT, list_digest TEXT,
  PRIMARY KEY (model, since, above),
  CONSTRAINT "ValidationError: since is a day, such as 2026-11-01; prices are USD for a million tokens, and not negative"
  CHECK (since IS date(since) AND min(above, input, output) >= 0 AND max(above, input, output) <= 1e9 AND
         cache_write BETWEEN 0 AND 1e9 AND cache_write_1h BETWEEN 0 AND 1e9 AND
         cache_read BETWEEN 0 AND 1e9 AND reasoning BETWEEN 0 AND 1e9)
) WITHOUT ROWID;

-- Where bodies and session files have what is read from them. A new dialect is an
-- INSERT: every row is tried on every body, and on every item of its type, as what a
-- text says is found by the places that it has. payload_detection.sql describes the
-- rows of bodies, rollout_formats.sql those of session files.
--
-- source      'request', 'response' (a whole one), or 'stream' (one line of a stream, or
--             one element of an array of responses); 'item' or 'event' of a session file
-- kind        what it is, and the columns after place say where its parts are
-- type        of the item, in both spellings (user_message, UserMessage)
-- conditions  a JSON object of places and values, which must all hold: a text
--             (compared in both spellings), true (something is there), or null
--             (nothing is there, or false)
-- place       a path of SQLite's JSON functions from the top of the text. In one of a
--             body, [] is each element of an array, and the same [] in a condition is
--             that element: '$.input[].content' and {"$.input[].role":"user"}. What is
--             no array is taken as an array of one
-- other       of an item: the place to try if there is nothing at the first
--
-- The paths of the other columns begin with a dot where they go on from the place. Of
-- a|b the first that is there counts. Those of 'usage' are where numbers of tokens are:
--
-- input, output        with those of the cache, if cache_in_input is 1; with those of
--                      reasoning, if reasoning_in_output is 1
-- cache_write_1h       those of cache_write that are kept for an hour, which cost more
-- call_id, call_2      of an item: places of the parts of the call's id
-- other                of an item: running totals, where calls have no id: a call whose
--                      totals were told before, in this conversation or in the one from
--                      which it was forked, is the same call
-- model                of an item: NULL: the newest model that the items say
-- cost                 of an item: the cost in USD, if it is told
-- output_recorded      1: the program may write the output before it is known, and so
--                      it is told as it was recorded
--
-- None of the six columns of the key is NULL, as the table has no rowid.
CREATE TABLE IF NOT EXISTS main.blackbox_places(
  format TEXT,
  source     TEXT DEFAULT 'item'
    CHECK (instr(' request response stream item event ', ' ' || source || ' ')),
  kind       TEXT CHECK (instr(' call result user assistant message prompt model offer choice error preamble line start goal review title cwd branch tool usage ', ' ' || kind || ' ')),
  type TEXT DEFAULT '', conditions TEXT DEFAULT '{}', place TEXT,
  other, part, call_id, tool, arguments, result, is_error,
  call_2, model, cost, input, cache_write, cache_read, output, reasoning, cache_write_1h,
  cache_in_input DEFAULT 0, reasoning_in_output DEFAULT 1, output_recorded DEFAULT 0,
  type_key   TEXT AS (lower(replace(type, '_', ''))),
  PRIMARY KEY (format, source, kind, type, conditions, place),
  CONSTRAINT "ValidationError: conditions must be a JSON object such as {""$.role"":""user""}, and a place a path such as $.message.content"
  CHECK ((conditions = '{}' OR conditions GLOB '{"$*}' AND conditions NOT GLOB '*, *"[^$]*' AND conditions NOT GLOB '*,"[^$]*')
         AND (kind IN ('error', 'preamble', 'line', 'start')
              OR substr(place, 1, 2) || coalesce(substr(other, 1, 2), '$.') IN ('$.$.', '$[$.')))
) WITHOUT ROWID;

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
VALUES ('blackbox.max_file_bytes', 0, 0, '0 to 70368744177664',
        'bytes of pages in use from which writes of the module remove archive rows, cache items and expired conversations; 0: no limit')
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

INSERT INTO main.blackbox_domains(domain, format) VALUES ('core', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
