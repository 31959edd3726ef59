-- rollout_tables.sql: the tables of conversations, with their triggers.
-- It continues rollout.sql, which has the manual.

-------------------------------------------------------------------- heads

-- no             above those of the owners of its items
-- updated        time of its own newest item
-- expires_at     NULL: never
-- status         'exists' is given by rollouts_insert, to be refused
-- user_sequence  of the first user event
-- bytes          of its own items' payloads
-- title          the newest that an item says or, if named is 1, that a user gave
-- behind         the first item that is not derived (if it does not exist, one was
--                redacted, and what is read from it again is missing); NULL: all are
-- whole          1: from a file, or a fork of such a one: no policy applies
CREATE TABLE IF NOT EXISTS main.rollout__heads(
  no INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  created INTEGER DEFAULT 0,
  updated DEFAULT 0,
  expires_at INTEGER,
  status NOT NULL DEFAULT 'active',
  last_sequence DEFAULT -1,
  user_sequence,
  turns DEFAULT 0,
  bytes DEFAULT 0,
  title TEXT,
  named DEFAULT 0,
  behind, whole,
  CONSTRAINT "InvalidIdError: Invalid conversation ID: it must be an RFC 9562 UUID in lower case"
  CHECK (id GLOB '????????-????-[1-8]???-[89ab]???-????????????'
    AND length(replace(id, '-', '')) = 32 AND id NOT GLOB '*[^-0-9a-f]*'),
  CONSTRAINT "RangeError: rollout numbers end at 2147483647" CHECK (no >> 31 = 0),
  CONSTRAINT "ValidationError: Invalid time: it is whole milliseconds since 1970; expires_at NULL: never"
  CHECK (typeof(created) || typeof(ifnull(expires_at, 0)) = 'integerinteger'
    AND min(created, ifnull(expires_at, 0)) >= 0 AND max(created, ifnull(expires_at, 0)) <= 253402300799999),
  CONSTRAINT "RolloutExistsError: this conversation exists; UPDATE or DELETE it"
  CHECK (status <> 'exists'),
  CONSTRAINT "ValidationError: Invalid status: 'active' or 'archived'" CHECK (status IN ('active', 'archived'))
);

-- The conversations that a list shows, by time.
CREATE INDEX IF NOT EXISTS main.rollout_recent ON rollout__heads(updated, id) WHERE user_sequence NOTNULL;

CREATE INDEX IF NOT EXISTS main.rollout_behind ON rollout__heads(behind) WHERE behind NOTNULL;

CREATE INDEX IF NOT EXISTS main.rollout_expiry ON rollout__heads(expires_at, id) WHERE expires_at NOTNULL;

-- The start of a conversation remembers the time, and removes a little of what is
-- due: among the oldest 100, the first that nothing blocks. It takes only what
-- nothing can refuse, because a trigger cannot go on after an error. A conversation
-- that is itself past its time removes nothing: it is history that is being loaded.
CREATE TRIGGER IF NOT EXISTS main.rollout_heads_insert
AFTER INSERT ON rollout__heads
BEGIN
  INSERT INTO rollout__segments
  VALUES (NEW.no, 0, iif((SELECT 1 FROM retention__holds WHERE kind = 'erased rollout' AND "key" = NEW.id),
    RAISE(ABORT, 'ErasedError: this conversation was erased; use another id'),
    NEW.no), 4294967295);
  UPDATE retention__clock SET due = unixepoch() * 1000 - seen + 86400000
  WHERE unixepoch() * 1000 - seen - due > min(due * 23, 6048e5);
  UPDATE retention__clock
  SET seen = max(seen, unixepoch() * 1000), due = 3600000, was = iif(due > 6912e5, seen, was)
  WHERE one = 1 AND abs(unixepoch() * 1000 - seen - due + 432e5) > 432e5;
  UPDATE rollout__act SET rule = 'rollout.expired'
  WHERE ifnull(NEW.expires_at, NEW.created) >= unixepoch() * 1000 - 60000
    AND (SELECT 1 FROM rollout__heads, retention__clock
      WHERE expires_at < unixepoch() * 1000 AND unixepoch() * 1000 <= seen + 604800000)
    AND NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE iif(type = 'trigger',
      tbl_name LIKE 'rollout%' AND name NOT LIKE 'rollout%' AND sql LIKE '%delete%',
      type = 'table' AND sql LIKE '%references%rollout%'));
  DELETE FROM rollout__heads
  WHERE (SELECT rule FROM rollout__act) IS 'rollout.expired' AND no <> NEW.no AND no IN (
    SELECT no FROM (SELECT no, id FROM rollout__heads WHERE expires_at < unixepoch() * 1000 ORDER BY expires_at LIMIT 100)
    WHERE NOT EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'rollout' AND "key" = id) LIMIT 2);
  UPDATE rollout__act SET rule = NULL WHERE rule IS 'rollout.expired';
END;

-- The items that nobody else shows go with a conversation: its session_meta, and of each
-- owner those after the last one that others show. They are in the receipt of the rule that
-- now removes, or of deletes by hand, of one minute. A hold keeps the items of a
-- conversation, also those that it shares with others; its status, title and expiry can
-- change, and items can be appended.
CREATE TRIGGER IF NOT EXISTS main.rollout_heads_delete
BEFORE DELETE ON rollout__heads
BEGIN
  UPDATE rollout__act SET texts = max(texts, ifnull((SELECT max(n) FROM rollout__texts), 0));
  INSERT INTO retention_log(domain, rule, rows, bytes, oldest, newest)
  SELECT 'rollout',
    iif((SELECT 1 FROM retention__holds WHERE kind = 'rollout' AND "key" = OLD.id),
      RAISE(ABORT, 'HeldError: a hold keeps this conversation; see retention_holds'), ifnull((SELECT rule FROM rollout__act), 'manual')), 1,
    (SELECT sum(coalesce((SELECT bytes FROM rollout__packed AS p WHERE text = substr(payload, 13, 20) + 0 AND p.id = d.id), length(CAST(payload AS BLOB)), 0))
      FROM rollout__alone CROSS JOIN rollout__data AS d ON id BETWEEN low AND high WHERE rollout = OLD.no),
    OLD.created, OLD.updated;
  DELETE FROM rollout__alone WHERE rollout = OLD.no;
  DELETE FROM rollout__segments WHERE rollout = OLD.no;
  DELETE FROM rollout__about WHERE no = OLD.no;
  DELETE FROM rollout__sums WHERE no = OLD.no;
  DELETE FROM rollout_drops WHERE no = OLD.no;
END;

----------------------------------------------------------------- segments

-- The sequences from first to last are the items of the conversation with number owner.
-- (NOT NULL tells SQLite that the key is unique: the items come in order without a sort.)
CREATE TABLE IF NOT EXISTS main.rollout__segments(
  rollout INTEGER, first INTEGER, owner INTEGER NOT NULL, last INTEGER, PRIMARY KEY (rollout, first)) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS main.rollout_owner ON rollout__segments(owner, last);

-------------------------------------------------------------------- items

-- An item is stored first, and then counted in its head. before and after are what
-- stood around the payload in the file from which it was imported, so that an export
-- gives back the same bytes. Where they are NULL, it is what a Codex line has: the time,
-- the type, and its newline.
--
-- quiet    1: the payload is not in the file
-- changed  1: the payload was changed
-- payload  JSON as it was given; NULL: the item had none; a blob: it is packed, and this
--          is the short reference of its text, whose number comes last
--
-- The CHECK tests each INSERT of an import, so it asks no typeof(): only a whole number
-- is what | makes of it, and any text is less than any blob.
CREATE TABLE IF NOT EXISTS main.rollout__data(
  id INTEGER PRIMARY KEY,
  timestamp INTEGER NOT NULL,
  type TEXT,
  before, after, quiet, changed,
  payload TEXT,
  CONSTRAINT "InvalidItemError: Invalid item format: a timestamp is whole milliseconds since 1970, a type has 1 to 100 bytes, and a payload at most 67108864"
  CHECK (timestamp | 0 = timestamp AND timestamp BETWEEN 0 AND 253402300799999
    AND type < x'' IS 1 AND length(CAST(type AS BLOB)) BETWEEN 1 AND 100
    AND (payload IS NULL OR iif(payload < x'', length(CAST(payload AS BLOB)) <= 67108864, hex(substr(payload, 1, 4)) = 'B1627802')))
);

-- What is packed (ext/rollout/pack.c): the text in the store, the item, and the bytes of the text.
CREATE TABLE IF NOT EXISTS main.rollout__packed(text INTEGER PRIMARY KEY, id, bytes);
CREATE TRIGGER IF NOT EXISTS main.rollout_packed_delete AFTER DELETE ON rollout__packed
BEGIN INSERT INTO store_dropped(text) VALUES (OLD.text) ON CONFLICT DO NOTHING; END;

-- The ranges of items that go with a conversation: its session_meta, and of each owner those after the last one that
-- others show. What was derived from them goes, too: by ranges, as a trigger for each item costs a third more.
CREATE VIEW IF NOT EXISTS main.rollout__alone AS
SELECT rollout, rollout << 32 AS low, rollout << 32 AS high FROM rollout__segments WHERE first = 0
UNION ALL
SELECT rollout, (owner << 32) + max(first, 1, ifnull(
  (SELECT max(last) + 1 FROM rollout__segments AS o WHERE o.owner = s.owner AND o.rollout <> s.rollout), 1)), (owner << 32) + last
FROM rollout__segments AS s;

CREATE TRIGGER IF NOT EXISTS main.rollout_alone_delete INSTEAD OF DELETE ON rollout__alone
BEGIN
  DELETE FROM rollout__packed WHERE id BETWEEN OLD.low AND OLD.high AND text IN
    (SELECT substr(payload, 13, 20) + 0 FROM rollout__data WHERE id BETWEEN OLD.low AND OLD.high AND typeof(payload) = 'blob');
  DELETE FROM rollout_calls WHERE id BETWEEN OLD.low AND OLD.high;
  DELETE FROM rollout__marks WHERE id BETWEEN OLD.low AND OLD.high;
  DELETE FROM rollout__texts WHERE id BETWEEN OLD.low AND OLD.high;
  DELETE FROM rollout__data WHERE id BETWEEN OLD.low AND OLD.high;
END;

-- Payloads as texts. coalesce() of seven values is SQLite's, or if the module is loaded that of the module, which
-- gives the text of a reference. typeof() reads no payload. NOT INDEXED: SQLite makes no index of copies of payloads.
CREATE VIEW IF NOT EXISTS main.rollout__items AS
SELECT id, timestamp, type, before, after, quiet, changed,
  iif(typeof(payload) <> 'blob', payload, coalesce(payload, NULL, NULL, NULL, NULL, NULL, NULL)) AS payload
FROM rollout__data NOT INDEXED;

-- What was read from a payload that is changed goes: the next call of the module that
-- writes reads it again. What may be changed, rollout_items_update says. What is packed
-- and unpacked (ext/rollout/pack.c) keeps its text, and does not set "changed".
CREATE TRIGGER IF NOT EXISTS main.rollout_data_update
AFTER UPDATE OF changed ON rollout__data
BEGIN
  SELECT CASE
    WHEN NEW.payload IS NOT OLD.payload AND (
      SELECT 1 FROM rollout__segments AS s JOIN rollout__heads AS h ON no = rollout
      JOIN retention__holds ON kind = 'rollout' AND key = h.id
      WHERE s.owner = NEW.id >> 32 AND NEW.id & 4294967295 BETWEEN first AND last)
    THEN RAISE(ABORT, 'HeldError: a hold keeps this item; see retention_holds')
    WHEN (json_valid(NEW.payload) OR json_valid(NEW.payload || ' ')) IS NOT TRUE
    THEN RAISE(ABORT, 'InvalidItemError: Invalid item format: the payload must be JSON, not nested too deeply')
    WHEN NEW.id & 4294967295 = 0 AND (json_type(NEW.payload) <> 'object'
      OR NEW.payload ->> 'id' IS NOT (SELECT iif(json_valid(p), p, NEW.payload) ->> 'id' FROM
        (SELECT coalesce(OLD.payload, '', '', '', '', '', '') AS p)))
    THEN RAISE(ABORT, 'InvalidSessionMetaError: Invalid session meta: it must be a JSON object, and keep its id') END e;
  UPDATE rollout__heads
  SET behind = ifnull(behind, last_sequence + 1),
    bytes = bytes + (no = NEW.id >> 32) * (length(CAST(NEW.payload AS BLOB)) - length(CAST(p AS BLOB))),
    title = iif(no << 32 = NEW.id AND NOT named AND title IS iif(json_valid(p), p, NULL) ->> 'title', NEW.payload ->> 'title', title)
  FROM (SELECT coalesce(OLD.payload, '', '', '', '', '', '') AS p LIMIT 1)
  WHERE no IN (SELECT rollout FROM rollout__segments WHERE owner = NEW.id >> 32);
  UPDATE rollout__texts SET file = NULL WHERE id = +NEW.id AND file NOTNULL AND instr(NEW.payload, file) = 0;
  INSERT OR IGNORE INTO rollout__marks(id) VALUES (-NEW.id), (-NEW.id - 1);
  UPDATE rollout__about SET first_user_message = NULL
  WHERE prompt_id = NEW.id AND no IN (SELECT rollout FROM rollout__segments WHERE owner = NEW.id >> 32);
  UPDATE rollout__about
  SET source = NULL, originator = NULL, cli_version = NULL, model_provider = NULL, forked_from = NULL, format = NULL,
    source_id = NULL, parent = NULL, agent = NULL,
    cwd = nullif(cwd, iif(json_valid(p), p, NULL) ->> 'cwd')
  FROM (SELECT coalesce(OLD.payload, '', '', '', '', '', '') AS p LIMIT 1)
  WHERE no << 32 = NEW.id AND no = NEW.id >> 32;
  DELETE FROM rollout__packed WHERE text = substr(OLD.payload, 13, 20) + 0 AND id = OLD.id;
END;

-- Turns, compactions and rollbacks. After a rollback, turn numbers are used again. The
-- turn of a conversation with a number is the last one that it shows with that number:
-- it is found from the newest mark back, and is mostly the newest itself. (SQLite appends
-- to a table with increasing ids faster than to any index.)
--
-- id      of the item; of a turn, of the one with which it begins. Below 0: -id is that of an
--         item whose texts are read again, because it or the one before it was redacted
-- kind    'turn', 'compaction' or 'rollback'
-- number  of a turn; of a rollback the sequence from which on it takes back
CREATE TABLE IF NOT EXISTS main.rollout__marks(id INTEGER PRIMARY KEY, kind, number);

-------------------------------------------------------------------- texts

-- What items say: messages, calls of tools, and results. The text itself is read from the
-- payload. Rows of what is redacted are read again: rollout__marks.
--
-- n         not used again: the search knows a text by it
-- id        of the item; at is its time
-- role      'user', 'assistant', 'call', 'tool' (a result), or 'file': one more file of the
--           call before it
-- place     of the text in the payload; of an array of parts, part is their member, or 'text'
-- call      of a call: its id; tool and file: what it names; edits: 1: it changes the file
-- is_error  of a call whose result is there: 0 or 1; took: milliseconds until then
-- result    of a call: n of the text of its result
CREATE TABLE IF NOT EXISTS main.rollout__texts(
  n INTEGER PRIMARY KEY, id, role, place, part, at, call, tool, file, edits, is_error, took, result);

CREATE INDEX IF NOT EXISTS main.rollout_text ON rollout__texts(id);

CREATE INDEX IF NOT EXISTS main.rollout_call ON rollout__texts(at) WHERE tool NOTNULL;

CREATE VIEW IF NOT EXISTS main.rollout__said AS
SELECT n, CASE json_type(p, place)
  WHEN 'array' THEN (SELECT group_concat(iif(type = 'object', value ->> ifnull(part, 'text'), value), char(10)) FROM json_each(p, place)
    WHERE type <> 'object' OR value ->> 'thought' IS NULL AND ifnull(value ->> 'type', '') NOT IN ('thinking', 'reasoning', 'think'))
  ELSE p ->> place END AS text
FROM (SELECT n, place, part, CASE WHEN json_valid(payload) THEN iif(instr(payload, '\u0000'), replace(replace(replace(payload, '\\', char(1)), '\u0000', '\ufffd'), char(1), '\\'), payload) END AS p
  FROM rollout__texts AS t JOIN rollout__items AS d ON d.id = t.id);

-- A fork shows what it shares.
CREATE VIEW IF NOT EXISTS main.rollout_messages AS
SELECT h.id AS rollout, t.id & 4294967295 AS n, at AS timestamp, role,
  (SELECT text FROM rollout__said AS s WHERE s.n = t.n) AS text
FROM rollout__texts AS t
JOIN rollout__segments AS s ON s.owner = t.id >> 32 AND t.id BETWEEN (s.owner << 32) + first AND (s.owner << 32) + last
JOIN rollout__heads AS h ON no = rollout
WHERE role IN ('user', 'assistant');

-- A call is that of the conversation which wrote it.
CREATE VIEW IF NOT EXISTS main.rollout_tool_calls AS
SELECT h.id AS rollout, t.id & 4294967295 AS n, tool,
  (SELECT text FROM rollout__said AS s WHERE s.n = t.n) AS input,
  (SELECT text FROM rollout__said AS s WHERE s.n = result) AS output,
  is_error, file, edits, at AS started, took AS duration, call AS call_id
FROM rollout__texts AS t
LEFT JOIN rollout__heads AS h ON h.no = t.id >> 32 AND t.id BETWEEN h.no << 32 AND (h.no << 32) + 4294967295
WHERE tool NOTNULL;

-------------------------------------------------------------------- policy

-- In payload_type, '*' stands for every type, and '' for none. Names match in
-- both spellings, some_name and SomeName. A row with two names takes precedence
-- over a row with '*'. A preset without rows keeps everything.
CREATE TABLE IF NOT EXISTS main.rollout_policy(
  preset       TEXT NOT NULL CHECK (preset <> '' AND instr(preset, ',') = 0),
  item_type    TEXT NOT NULL,
  payload_type TEXT NOT NULL DEFAULT '*',
  keep         INTEGER NOT NULL DEFAULT 1 CHECK (keep IN (0, 1)),
  item_key     AS (lower(replace(item_type, '_', ''))),
  payload_key  AS (lower(replace(payload_type, '_', ''))),
  UNIQUE (preset, item_key, payload_key)
);

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('rollout.pack', 0, '0 to 1', 'whether what the module writes of conversations is packed into the body store'),
  ('rollout.secrets', 'keep', 'keep, mask', 'what is appended or imported of texts with keys or passwords'),
  ('rollout.policy', 'codex', 'a preset of rollout_policy', 'preset of rollout_policy that says which items are kept'),
  ('rollout.import_ttl_days', 0, '0 to 36500', 'days until an imported conversation expires; 0 is never'),
  ('rollout.ttl_days', 60, '0 to 36500', 'days until a new conversation expires when nothing is said')) WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

INSERT INTO main.rollout_policy(preset, item_type, payload_type)
VALUES
  ('codex', 'session_meta', '*'), ('codex', 'compacted', '*'), ('codex', 'turn_context', '*'), ('codex', 'content_replacement', '*'), ('codex', 'plan_artifact', '*'),
  ('codex', 'turn_start', '*'), ('codex', 'turn_completion', '*'), ('codex', 'inter_agent_communication', '*'), ('codex', 'inter_agent_communication_metadata', '*'),
  ('codex', 'token_usage_record', '*'), ('codex', 'world_state', '*'), ('codex', 'retained_context', '*'), ('codex', 'security_risk_score', '*'),
  ('codex', 'response_item', 'message'), ('codex', 'response_item', 'reasoning'), ('codex', 'response_item', 'local_shell_call'),
  ('codex', 'response_item', 'function_call'), ('codex', 'response_item', 'function_call_output'), ('codex', 'response_item', 'custom_tool_call'),
  ('codex', 'response_item', 'custom_tool_call_output'), ('codex', 'response_item', 'web_search_call'), ('codex', 'response_item', 'agent_message'),
  ('codex', 'response_item', 'additional_tools'), ('codex', 'response_item', 'tool_search_call'), ('codex', 'response_item', 'tool_search_output'),
  ('codex', 'response_item', 'image_generation_call'), ('codex', 'response_item', 'compaction'), ('codex', 'response_item', 'context_compaction'),
  ('codex', 'event_msg', 'user_message'), ('codex', 'event_msg', 'agent_message'), ('codex', 'event_msg', 'agent_reasoning'),
  ('codex', 'event_msg', 'agent_reasoning_raw_content'), ('codex', 'event_msg', 'token_count'), ('codex', 'event_msg', 'entered_review_mode'),
  ('codex', 'event_msg', 'exited_review_mode'), ('codex', 'event_msg', 'turn_aborted'), ('codex', 'event_msg', 'turn_started'), ('codex', 'event_msg', 'task_started'),
  ('codex', 'event_msg', 'turn_complete'), ('codex', 'event_msg', 'task_complete'), ('codex', 'event_msg', 'thread_name_updated'),
  ('codex', 'event_msg', 'thread_rolled_back'), ('codex', 'event_msg', 'thread_goal_updated'), ('codex', 'event_msg', 'thread_settings_applied'),
  ('codex', 'event_msg', 'context_compacted'), ('codex', 'event_msg', 'undo_completed'), ('codex', 'event_msg', 'item_completed'),
  ('codex', 'event_msg', 'exec_command_end'), ('codex', 'event_msg', 'patch_apply_end'), ('codex', 'event_msg', 'mcp_tool_call_end'),
  ('codex', 'event_msg', 'web_search_end'), ('codex', 'event_msg', 'image_generation_end'), ('codex', 'event_msg', 'sub_agent_activity'), ('everything', '*', '*'),
  ('everything', '*', '')
ON CONFLICT DO NOTHING;

CREATE TRIGGER IF NOT EXISTS main.rollout_policy_setting
BEFORE UPDATE OF value ON blackbox_settings
WHEN NEW.name = 'rollout.policy'
 AND NOT EXISTS (SELECT 1 FROM rollout_policy WHERE preset = NEW.value)
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: rollout.policy must be a preset of rollout_policy') e;
END;

CREATE TABLE IF NOT EXISTS main.rollout_drops(
  no INTEGER, item_type TEXT, payload_type TEXT, items, bytes, PRIMARY KEY (no, item_type, payload_type)) WITHOUT ROWID;

----------------------------------------------------------------------- rest

-- prompt_id  item of the first user message, or goal
-- format     of the lines (rollout_formats); NULL: the session_meta was redacted, and
--            the module reads it again
-- source_id  its id in another program, if that is no UUID
-- parent     the conversation of which it is a sub-agent
-- reviewed   sequence at which the newest review begins
CREATE TABLE IF NOT EXISTS main.rollout__about(
  no INTEGER PRIMARY KEY,
  source, cwd, originator, cli_version, model_provider, forked_from, prompt_id, first_user_message, format,
  source_id, parent, agent, model, branch, reviewed
);

INSERT INTO main.retention_rules(rule, domain, "table") VALUES ('rollout.expired', 'rollout', 'rollouts')
ON CONFLICT (rule) DO UPDATE SET domain = excluded.domain, "view" = NULL,
  setting = NULL, unit_ms = NULL, "table" = excluded."table";

INSERT INTO main.blackbox_domains(domain, format) VALUES ('rollout', 1) ON CONFLICT (domain) DO UPDATE SET format = excluded.format;
