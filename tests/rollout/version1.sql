BEGIN TRANSACTION;
CREATE TABLE blackbox_domains(
  domain  TEXT PRIMARY KEY,
  version INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "blackbox_domains" VALUES('core',1);
INSERT INTO "blackbox_domains" VALUES('rollout',1);
CREATE TABLE blackbox_setting_defs(
  name    TEXT PRIMARY KEY,
  kind    TEXT NOT NULL CHECK (kind IN ('integer', 'real', 'choice')),
  preset  NOT NULL,
  low     NUMERIC,
  high    NUMERIC,
  choices TEXT,
  meaning TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "blackbox_setting_defs" VALUES('rollout.policy','choice','codex',NULL,NULL,'codex, everything','preset of rollout_policy that says which items are kept');
INSERT INTO "blackbox_setting_defs" VALUES('rollout.ttl_days','integer',60,0,36500,NULL,'days until a new conversation expires when nothing is said');
CREATE TABLE blackbox_settings(
  name  TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;
CREATE TABLE retention_log(
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  domain TEXT NOT NULL,
  rule   TEXT NOT NULL,
  actor  TEXT,
  rows   INTEGER NOT NULL,
  bytes  INTEGER NOT NULL,
  oldest INTEGER,
  newest INTEGER,
  minute INTEGER
);
CREATE TABLE retention_rules(
  rule    TEXT PRIMARY KEY,
  domain  TEXT NOT NULL,
  "view"  TEXT NOT NULL,
  setting TEXT,
  unit_ms INTEGER
) WITHOUT ROWID;
INSERT INTO "retention_rules" VALUES('rollout.expired','rollout','rollout_due',NULL,NULL);
CREATE TABLE rollout_about(
  no                 INTEGER PRIMARY KEY,
  title              TEXT,
  source             TEXT,
  cwd                TEXT,
  originator         TEXT,
  cli_version        TEXT,
  model_provider     TEXT,
  forked_from        TEXT,
  prompt_id          INTEGER,
  first_user_message TEXT
);
INSERT INTO "rollout_about" VALUES(1,NULL,NULL,'','blackbox','1.0.0',NULL,NULL,4294967297,'first');
INSERT INTO "rollout_about" VALUES(2,NULL,NULL,'','blackbox','1.0.0',NULL,'5973b6c0-94b8-487b-a530-2aeb6098ae0e',4294967297,'first');
CREATE TABLE rollout_act(
  id   INTEGER PRIMARY KEY CHECK (id = 1),
  rule TEXT,
  rows INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0,
  now  INTEGER,
  made INTEGER
);
INSERT INTO "rollout_act" VALUES(1,NULL,0,0,NULL,2);
CREATE TABLE rollout_clash(
  number INTEGER PRIMARY KEY,
  id     TEXT NOT NULL UNIQUE
);
CREATE TABLE rollout_data(
  id        INTEGER PRIMARY KEY,
  timestamp INTEGER NOT NULL,
  type      TEXT NOT NULL,
  look      INTEGER NOT NULL DEFAULT 1,
  payload   TEXT,
  CONSTRAINT "Invalid item format: a timestamp is whole milliseconds since 1970"
    CHECK (typeof(timestamp) = 'integer'
           AND timestamp BETWEEN 0 AND 253402300799999),
  CONSTRAINT "Invalid item format: a type is text of 1 to 100 bytes"
    CHECK (typeof(type) = 'text' AND length(CAST(type AS BLOB)) BETWEEN 1 AND 100),
  CONSTRAINT "Invalid item format: look is from 0 to 3"
    CHECK (typeof(look) = 'integer' AND look BETWEEN 0 AND 3),
  CONSTRAINT "Invalid item format: a payload is JSON text of at most 67108864 bytes"
    CHECK (payload IS NULL OR (typeof(payload) = 'text'
           AND length(CAST(payload AS BLOB)) <= 67108864))
);
INSERT INTO "rollout_data" VALUES(4294967296,1000,'session_meta',1,'{"id":"5973b6c0-94b8-487b-a530-2aeb6098ae0e","timestamp":"1970-01-01T00:00:01.000Z","cwd":"","originator":"blackbox","cli_version":"1.0.0","instructions":"be brief"}');
INSERT INTO "rollout_data" VALUES(4294967297,2000,'event_msg',3,'{"type": "user_message", "message": "first"}');
INSERT INTO "rollout_data" VALUES(4294967298,2000,'response_item',2,'{"type": "message", "role": "assistant", "content": []}');
INSERT INTO "rollout_data" VALUES(4294967299,2000,'event_msg',3,'{"type": "user_message", "message": "second"}');
INSERT INTO "rollout_data" VALUES(8589934592,3000,'session_meta',1,'{"id":"019d0000-1111-7222-8333-444455556666","timestamp":"1970-01-01T00:00:03.000Z","cwd":"","originator":"blackbox","cli_version":"1.0.0","instructions":"be brief","forked_from_id":"5973b6c0-94b8-487b-a530-2aeb6098ae0e"}');
CREATE TABLE rollout_drops(
  no           INTEGER NOT NULL,
  item_type    TEXT NOT NULL,
  payload_type TEXT NOT NULL,
  items        INTEGER NOT NULL,
  bytes        INTEGER NOT NULL,
  PRIMARY KEY (no, item_type, payload_type)
) WITHOUT ROWID;
INSERT INTO "rollout_drops" VALUES(1,'note','',1,0);
CREATE TABLE rollout_heads(
  no            INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  created       INTEGER NOT NULL DEFAULT (
    CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  updated       INTEGER NOT NULL DEFAULT (
    CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  expires_at    INTEGER,
  status        TEXT NOT NULL DEFAULT 'active',
  last_sequence INTEGER NOT NULL DEFAULT -1,
  user_sequence INTEGER,
  turns         INTEGER NOT NULL DEFAULT 0,
  bytes         INTEGER NOT NULL DEFAULT 0,
  looked        INTEGER NOT NULL DEFAULT -1,
  CONSTRAINT "RangeError: rollout numbers end at 2147483647"
    CHECK (no BETWEEN 1 AND 2147483647),
  CONSTRAINT "Invalid time: created and updated are whole milliseconds since 1970"
    CHECK (typeof(created) = 'integer' AND typeof(updated) = 'integer'
           AND created BETWEEN 0 AND 253402300799999
           AND updated BETWEEN 0 AND 253402300799999),
  CONSTRAINT "Invalid expiry: whole milliseconds since 1970, or NULL (permanent)"
    CHECK (expires_at IS NULL OR (typeof(expires_at) = 'integer'
           AND expires_at BETWEEN 0 AND 253402300799999)),
  CONSTRAINT "Invalid status: 'active' or 'archived'"
    CHECK (status IN ('active', 'archived'))
);
INSERT INTO "rollout_heads" VALUES(1,'5973b6c0-94b8-487b-a530-2aeb6098ae0e',1000,2000,NULL,'active',3,1,2,309,3);
INSERT INTO "rollout_heads" VALUES(2,'019d0000-1111-7222-8333-444455556666',3000,3000,NULL,'active',2,1,1,221,0);
CREATE TABLE rollout_marks(
  id    INTEGER PRIMARY KEY,
  kind  TEXT NOT NULL CHECK (kind IN ('compaction', 'rollback')),
  first INTEGER
);
CREATE TABLE rollout_policy(
  preset       TEXT NOT NULL CHECK (preset <> '' AND instr(preset, ',') = 0),
  item_type    TEXT NOT NULL,
  payload_type TEXT NOT NULL DEFAULT '*',
  keep         INTEGER NOT NULL DEFAULT 1 CHECK (keep IN (0, 1)),
  item_key     TEXT AS (lower(replace(item_type, '_', ''))) VIRTUAL,
  payload_key  TEXT AS (lower(replace(payload_type, '_', ''))) VIRTUAL
);
INSERT INTO "rollout_policy" VALUES('everything','*','*',1);
INSERT INTO "rollout_policy" VALUES('everything','*','',1);
CREATE TABLE rollout_preambles(
  prefix TEXT PRIMARY KEY CHECK (prefix <> '')
) WITHOUT ROWID;
INSERT INTO "rollout_preambles" VALUES('# AGENTS.md instructions');
INSERT INTO "rollout_preambles" VALUES('<environment_context>');
INSERT INTO "rollout_preambles" VALUES('<permissions instructions>');
INSERT INTO "rollout_preambles" VALUES('<skill>');
INSERT INTO "rollout_preambles" VALUES('<subagent_notification>');
INSERT INTO "rollout_preambles" VALUES('<turn_aborted>');
INSERT INTO "rollout_preambles" VALUES('<user_instructions>');
INSERT INTO "rollout_preambles" VALUES('<user_shell_command>');
CREATE TABLE rollout_segments(
  rollout INTEGER NOT NULL,
  first   INTEGER NOT NULL,
  owner   INTEGER NOT NULL,
  last    INTEGER NOT NULL,
  PRIMARY KEY (rollout, first)
) WITHOUT ROWID;
INSERT INTO "rollout_segments" VALUES(2,1,1,2);
INSERT INTO "rollout_segments" VALUES(1,0,1,4294967295);
INSERT INTO "rollout_segments" VALUES(2,0,2,0);
INSERT INTO "rollout_segments" VALUES(2,3,2,4294967295);
CREATE TABLE rollout_turns(
  owner    INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (owner, number, sequence)
) WITHOUT ROWID;
INSERT INTO "rollout_turns" VALUES(1,0,1);
INSERT INTO "rollout_turns" VALUES(1,1,3);
CREATE VIEW blackbox_limits AS
SELECT d.name AS name,
       CASE d.kind
         WHEN 'integer' THEN CAST(coalesce(s.value, d.preset) AS INTEGER)
         ELSE coalesce(s.value, d.preset)
       END AS value,
       d.preset AS "default",
       CASE d.kind
         WHEN 'choice' THEN d.choices
         ELSE d.low || ' to ' || d.high
       END AS range,
       d.meaning AS meaning
  FROM blackbox_setting_defs AS d
  LEFT JOIN blackbox_settings AS s ON s.name = d.name;
CREATE TRIGGER blackbox_settings_insert
AFTER INSERT ON blackbox_settings
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: unknown setting; SELECT name, range FROM blackbox_limits lists those there are')
    FROM core_check WHERE object = NEW.name AND problem = 'unknown setting';
  SELECT RAISE(ABORT, 'ValidationError: value of a setting out of range; SELECT name, range FROM blackbox_limits shows what is allowed')
    FROM core_check WHERE object = NEW.name;
END;
CREATE TRIGGER blackbox_settings_update
AFTER UPDATE ON blackbox_settings
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: unknown setting; SELECT name, range FROM blackbox_limits lists those there are')
    FROM core_check WHERE object = NEW.name AND problem = 'unknown setting';
  SELECT RAISE(ABORT, 'ValidationError: value of a setting out of range; SELECT name, range FROM blackbox_limits shows what is allowed')
    FROM core_check WHERE object = NEW.name;
END;
CREATE UNIQUE INDEX retention_log_minute
ON retention_log(domain, rule, minute) WHERE minute IS NOT NULL;
CREATE VIEW rollout_rules AS
SELECT item_key, payload_key, keep
  FROM rollout_policy
 WHERE preset = (SELECT value FROM blackbox_limits
                  WHERE name = 'rollout.policy');
CREATE VIEW rollout_imports AS
SELECT NULL AS rollout, NULL AS now, NULL AS timestamp, NULL AS type,
       NULL AS look, NULL AS payload, NULL AS payload_type, NULL AS dropped,
       NULL AS bytes
 WHERE 0;
CREATE TRIGGER rollout_imports_insert
INSTEAD OF INSERT ON rollout_imports
BEGIN
  INSERT INTO rollout_heads(id, created, updated, expires_at)
  SELECT NEW.rollout, NEW.timestamp, NEW.timestamp,
         NEW.now + 86400000 * (SELECT value FROM blackbox_limits
                                WHERE name = 'rollout.ttl_days')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads WHERE id = NEW.rollout);
  INSERT INTO rollout_data(id, timestamp, type, look, payload)
  SELECT (no << 32) + last_sequence + 1, NEW.timestamp, NEW.type,
         CASE WHEN last_sequence < 0 THEN 1 ELSE NEW.look END, NEW.payload
    FROM rollout_heads WHERE id = NEW.rollout AND NEW.dropped = 0;
  INSERT INTO rollout_drops(no, item_type, payload_type, items, bytes)
  SELECT no, substr(NEW.type, 1, 100),
         substr(coalesce(NEW.payload_type, ''), 1, 100), NEW.dropped, NEW.bytes
    FROM rollout_heads WHERE id = NEW.rollout AND NEW.dropped > 0
      ON CONFLICT (no, item_type, payload_type) DO UPDATE
     SET items = items + excluded.items, bytes = bytes + excluded.bytes;
END;
CREATE INDEX rollout_recent
ON rollout_heads(updated, id) WHERE user_sequence IS NOT NULL;
CREATE INDEX rollout_expiry
ON rollout_heads(expires_at, id) WHERE expires_at IS NOT NULL;
CREATE TRIGGER rollout_heads_before
BEFORE INSERT ON rollout_heads
BEGIN
  SELECT RAISE(ABORT, 'Invalid conversation ID: it must be an RFC 9562 UUID in lower case, as 5973b6c0-94b8-487b-a530-2aeb6098ae0e')
   WHERE NEW.id IS NULL OR length(NEW.id) <> 36
      OR NEW.id NOT GLOB '????????-????-[1-8]???-[89ab]???-????????????'
      OR replace(NEW.id, '-', '') GLOB '*[^0-9a-f]*'
      OR length(replace(NEW.id, '-', '')) <> 32;
  SELECT RAISE(ABORT, 'ReadOnlyError: the counters of a conversation follow from its items; leave them out')
   WHERE NEW.last_sequence <> -1 OR NEW.user_sequence IS NOT NULL
      OR NEW.turns <> 0 OR NEW.bytes <> 0 OR NEW.looked <> -1;
  DELETE FROM rollout_clash WHERE id = NEW.id;
  INSERT INTO rollout_clash(id)
  SELECT NEW.id FROM rollout_heads WHERE id = NEW.id OR no = NEW.no LIMIT 1;
  DELETE FROM rollout_clash
   WHERE number <= (SELECT max(number) - 100 FROM rollout_clash);
END;
CREATE TRIGGER rollout_heads_insert
AFTER INSERT ON rollout_heads
BEGIN
  SELECT RAISE(ABORT, 'RolloutExistsError: a conversation cannot be replaced; UPDATE it, or DELETE it first')
    FROM rollout_clash WHERE id = NEW.id;
  INSERT INTO rollout_segments(rollout, first, owner, last)
  VALUES (NEW.no, 0, NEW.no, 4294967295);
END;
CREATE TRIGGER rollout_heads_keep
BEFORE UPDATE OF no, id ON rollout_heads
WHEN NEW.no IS NOT OLD.no OR NEW.id IS NOT OLD.id
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: the id of a conversation cannot be changed');
END;
CREATE TRIGGER rollout_heads_order
BEFORE UPDATE OF looked ON rollout_heads WHEN NEW.looked < OLD.looked
BEGIN
  SELECT RAISE(ABORT, 'SequenceError: a trigger on rollout_data cannot record into the conversation that is being written');
END;
CREATE TRIGGER rollout_heads_delete
AFTER DELETE ON rollout_heads
BEGIN
  UPDATE rollout_act
     SET bytes = CASE WHEN rule IS NULL THEN 0 ELSE bytes END
               + CASE WHEN EXISTS (SELECT 1 FROM rollout_segments
                                    WHERE owner = OLD.no AND rollout <> OLD.no)
                      THEN 0 ELSE OLD.bytes END;
  DELETE FROM rollout_about WHERE no = OLD.no;
  DELETE FROM rollout_drops WHERE no = OLD.no;
  DELETE FROM rollout_segments WHERE rollout = OLD.no;
  INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest,
                            minute)
  SELECT at, 'rollout', 'manual', 1, act.bytes, OLD.created, OLD.updated,
         at / 60000
    FROM rollout_act AS act,
         (SELECT now AS at FROM rollout_fresh)
   WHERE act.rule IS NULL
      ON CONFLICT (domain, rule, minute) WHERE minute IS NOT NULL DO UPDATE
     SET at = excluded.at, rows = rows + 1, bytes = bytes + excluded.bytes,
         oldest = min(oldest, excluded.oldest),
         newest = max(newest, excluded.newest);
END;
CREATE INDEX rollout_owner
ON rollout_segments(owner, last);
CREATE TRIGGER rollout_segments_stay
BEFORE DELETE ON rollout_segments
WHEN EXISTS (SELECT 1 FROM rollout_heads WHERE no = OLD.rollout)
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: items go only with their conversation; DELETE FROM rollouts, or UPDATE a payload');
END;
CREATE TRIGGER rollout_data_insert
AFTER INSERT ON rollout_data
BEGIN
  UPDATE rollout_heads
     SET last_sequence = NEW.id & 4294967295,
         bytes = bytes + coalesce(length(CAST(NEW.payload AS BLOB)), 0)
   WHERE NEW.look < 2
     AND no = NEW.id >> 32 AND last_sequence = (NEW.id & 4294967295) - 1;
  SELECT RAISE(ABORT, 'SequenceError: items are appended, one after the other; INSERT INTO rollout_log or rollout_items')
   WHERE NEW.look < 2 AND changes() = 0;
  UPDATE rollout_heads SET updated = NEW.timestamp
   WHERE NEW.look < 2 AND no = NEW.id >> 32 AND updated < NEW.timestamp;
  UPDATE rollout_heads SET looked = NEW.id & 4294967295
   WHERE NEW.look & 1 AND no = NEW.id >> 32;
END;
CREATE TRIGGER rollout_data_once
BEFORE INSERT ON rollout_data
WHEN EXISTS (SELECT 1 FROM rollout_data WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: an item is never overwritten, UPDATE its payload; nor can a trigger on rollout_data record into the conversation that is being written');
END;
CREATE TRIGGER rollout_data_keep
BEFORE UPDATE OF id, timestamp, type, look ON rollout_data
WHEN NEW.id IS NOT OLD.id OR NEW.timestamp IS NOT OLD.timestamp
  OR NEW.type IS NOT OLD.type OR NEW.look IS NOT OLD.look
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: of an item only the payload can be changed');
END;
CREATE TRIGGER rollout_data_update
AFTER UPDATE OF payload ON rollout_data
BEGIN
  SELECT RAISE(ABORT, 'Invalid item format: the payload must be well-formed JSON, not nested too deeply')
   WHERE NEW.payload IS NULL OR NOT json_valid(NEW.payload);
  SELECT RAISE(ABORT, 'Invalid item format: a changed payload keeps its type and role')
   WHERE CASE WHEN OLD.payload IS NULL OR json_valid(OLD.payload)
              THEN NEW.payload ->> 'type' IS NOT OLD.payload ->> 'type'
                OR NEW.payload ->> 'role' IS NOT OLD.payload ->> 'role' END;
  SELECT RAISE(ABORT, 'Invalid item format: a rollback keeps its number of turns')
   WHERE lower(replace(NEW.type, '_', '')) = 'eventmsg'
     AND lower(replace(NEW.payload ->> 'type', '_', '')) = 'threadrolledback'
     AND CASE WHEN json_valid(OLD.payload)
              THEN coalesce(NEW.payload ->> 'num_turns',
                            NEW.payload ->> 'numTurns')
            IS NOT coalesce(OLD.payload ->> 'num_turns',
                            OLD.payload ->> 'numTurns') END;
  SELECT RAISE(ABORT, 'Invalid item format: a compaction keeps its replacement history, an array; redact what is in it')
   WHERE lower(NEW.type) = 'compacted'
     AND EXISTS (SELECT 1 FROM rollout_marks
                  WHERE id = NEW.id AND kind = 'compaction')
      <> ('array' IN (coalesce(json_type(NEW.payload, '$.replacement_history'), ''),
                      coalesce(json_type(NEW.payload, '$.replacementHistory'), '')));
  SELECT RAISE(ABORT, 'Invalid session meta: it stays a JSON object with the id that it has')
   WHERE NEW.id & 4294967295 = 0
     AND CASE WHEN json_type(NEW.payload) <> 'object' THEN 1
              WHEN json_valid(OLD.payload)
              THEN NEW.payload ->> 'id' IS NOT OLD.payload ->> 'id' END;
  UPDATE rollout_heads
     SET bytes = bytes + length(CAST(NEW.payload AS BLOB))
                 - coalesce(length(CAST(OLD.payload AS BLOB)), 0)
   WHERE no = NEW.id >> 32;
  UPDATE rollout_about
     SET first_user_message = (SELECT substr(text, 1, 200) FROM rollout_texts
                                WHERE id = NEW.id)
   WHERE prompt_id = NEW.id;
  UPDATE rollout_about
     SET title = coalesce(NEW.payload ->> 'title', title),
         source = NEW.payload ->> 'source',
         cwd = NEW.payload ->> 'cwd',
         originator = NEW.payload ->> 'originator',
         cli_version = coalesce(NEW.payload ->> 'cli_version',
                                NEW.payload ->> 'cliVersion'),
         model_provider = coalesce(NEW.payload ->> 'model_provider',
                                   NEW.payload ->> 'modelProvider'),
         forked_from = coalesce(NEW.payload ->> 'forked_from_id',
                                NEW.payload ->> 'forkedFromId')
   WHERE no = NEW.id >> 32 AND NEW.id & 4294967295 = 0;
END;
CREATE TRIGGER rollout_data_stay
BEFORE DELETE ON rollout_data
WHEN EXISTS (SELECT 1 FROM rollout_segments
              WHERE owner = OLD.id >> 32 AND last >= OLD.id & 4294967295
                AND first <= OLD.id & 4294967295)
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: items go only with their conversation; DELETE FROM rollouts, or UPDATE a payload');
END;
CREATE UNIQUE INDEX rollout_policy_key
ON rollout_policy(preset, item_key, payload_key);
CREATE TRIGGER rollout_policy_insert
AFTER INSERT ON rollout_policy
BEGIN
  UPDATE blackbox_setting_defs
     SET choices = (SELECT group_concat(preset, ', ')
                      FROM (SELECT DISTINCT preset FROM rollout_policy))
   WHERE name = 'rollout.policy'
     AND instr(', ' || choices || ', ', ', ' || NEW.preset || ', ') = 0;
END;
CREATE TRIGGER rollout_policy_update
AFTER UPDATE OF preset ON rollout_policy
BEGIN
  SELECT RAISE(ABORT, 'PolicyError: the preset in force and the default one must keep a row; choose another with the setting rollout.policy first')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_rules)
      OR NOT EXISTS (SELECT 1 FROM rollout_policy
                      WHERE preset = (SELECT preset FROM blackbox_setting_defs
                                       WHERE name = 'rollout.policy'));
  UPDATE blackbox_setting_defs
     SET choices = (SELECT group_concat(preset, ', ')
                      FROM (SELECT DISTINCT preset FROM rollout_policy))
   WHERE name = 'rollout.policy';
END;
CREATE TRIGGER rollout_policy_delete
AFTER DELETE ON rollout_policy
BEGIN
  SELECT RAISE(ABORT, 'PolicyError: the preset in force and the default one must keep a row; choose another with the setting rollout.policy first')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_rules)
      OR NOT EXISTS (SELECT 1 FROM rollout_policy
                      WHERE preset = (SELECT preset FROM blackbox_setting_defs
                                       WHERE name = 'rollout.policy'));
  UPDATE blackbox_setting_defs
     SET choices = (SELECT group_concat(preset, ', ')
                      FROM (SELECT DISTINCT preset FROM rollout_policy))
   WHERE name = 'rollout.policy'
     AND NOT EXISTS (SELECT 1 FROM rollout_policy WHERE preset = OLD.preset);
END;
CREATE INDEX rollout_prompt
ON rollout_about(prompt_id) WHERE prompt_id IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('rollout_heads',2);
COMMIT;
