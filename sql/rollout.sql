-- rollout.sql: whole conversations, recorded in order. This file has the views
-- for users, with their triggers. How items are read is in the next two files,
-- then usage and upkeep, and the tables are in the last.
--
-- Continued in sql/rollout_formats.sql
-- Continued in sql/rollout_messages.sql
-- Continued in sql/rollout_usage.sql
-- Continued in sql/rollout_upkeep.sql
-- Continued in sql/rollout_tables.sql
--
-- To read and write
--   rollouts         view: one row for each conversation. INSERT starts one and
--                    writes its session_meta. UPDATE changes status,
--                    expires_at, title, session_meta. DELETE removes it with
--                    its history
--   rollout_items    view: the items of every conversation. INSERT appends an
--                    item without the policy. UPDATE changes a payload
--   rollout_log      view: INSERT appends an item if the policy keeps it
--   rollout_forks    view: INSERT forks a conversation before one of its turns
--   rollout_cleanup  view: INSERT removes conversations that have expired
--   rollout_rebuilds view: INSERT computes the counters of a conversation, and
--                    its row of rollout_about, from its items again
--   rollout_policy   table: which items are kept, in named presets
--   rollout_readings, rollout_preambles  tables: how items are read
-- Below these
--   rollout_heads    a narrow row for each conversation: the counters
--   rollout_about    a wider row for each conversation: what lists show
--   rollout__data     the items; id = owner's number << 32 | sequence
--   rollout_frames   what stood around them in an imported file
--   rollout_segments the ranges of items, and their owners, of a conversation
--   rollout_turns    the numbers of turns, by the key of the item that begins them
--   rollout__marks    compactions and rollbacks, by the key of their item
--   rollout_drops    what the policy dropped, by type
--   rollout_act      the rule that is running, for its receipt
--   rollout__imports  view: INSERT appends an item as it is, or counts dropped
--                    items; the first item starts the conversation
--   rollout__places   view: INSERT refuses a wrong id of an item
--   rollout__counts   view: INSERT counts the next item, and stores it
--   rollout__forms    view: INSERT refuses an item whose parts have wrong types
--   rollout__looks    view: INSERT reads an item that was counted and stored
--   rollout__takes    view: INSERT stores an item, or counts it as dropped
--   rollout__fresh    view: a new id, the time, and the default time to live
--   rollout__rules    view: the policy in force
--   rollout_facts    view: what an item says; rollout_texts, rollout__newest:
--                    parts of it
--   rollout__meta     view: the columns that come from the session_meta
--   rollout__blank    view: a session_meta for a conversation that has none
--   rollout__derived  view: the counters, computed from the items
--   rollout_due      view: the conversations that expire, and when; DELETE
--                    removes them
--   rollout__overdue  view: those that the start of a new conversation removes
--   rollout__size     view: conversations and bytes, for retention_report()
--   rollout__held     view: the conversations that a hold keeps
--   rollout__check    view: contradictions (no rows if all is well)
--
-- All files run alone after core.sql, in this order, any number of times.
--
-- Invariants: the sequences of a conversation are 0, 1, 2 ... without a gap,
-- and 0 is its session_meta. An item is never overwritten, moved or deleted
-- while a conversation shows it. After every INSERT, the counters of a head and
-- its row of rollout_about equal what rollout__derived computes. A fork shares
-- items by segments, so that items exist as long as any conversation shows them.
--
-- When memory runs out, json_valid() of SQLite before 3.45 returns 0 instead of
-- failing. So the test is repeated with a text that SQLite must allocate first
-- (x || ' '), and that allocation fails.
--
-- Limits: 2,147,483,647 conversations in the life of a database, 4,294,967,295
-- items in one, 67,108,864 bytes in a payload.

CREATE VIEW IF NOT EXISTS main.rollout__check AS
SELECT h.id AS object,
       'last_sequence is ' || h.last_sequence || ', the items reach '
         || d.last_sequence AS problem
  FROM rollout_heads AS h JOIN rollout__derived AS d ON d.no = h.no
 WHERE h.last_sequence <> d.last_sequence OR h.last_sequence + 1 <> d.items
UNION ALL
SELECT h.id, 'bytes is ' || h.bytes || ', its own items have ' || d.bytes
  FROM rollout_heads AS h JOIN rollout__derived AS d ON d.no = h.no
 WHERE h.bytes <> d.bytes
UNION ALL
SELECT h.id, 'updated is ' || h.updated || ', its newest own item is of '
         || d.updated
  FROM rollout_heads AS h JOIN rollout__derived AS d ON d.no = h.no
 WHERE h.updated <> d.updated
UNION ALL
SELECT h.id, 'user_sequence is ' || coalesce(h.user_sequence, 'NULL')
         || ', the first user event is item '
         || coalesce(d.user_sequence, 'NULL')
  FROM rollout_heads AS h JOIN rollout__derived AS d ON d.no = h.no
 WHERE h.user_sequence IS NOT d.user_sequence
UNION ALL
SELECT h.id, 'turns is ' || h.turns || ', the items have ' || d.turns
  FROM rollout_heads AS h JOIN rollout__derived AS d ON d.no = h.no
 WHERE h.turns <> d.turns
UNION ALL
SELECT h.id, 'it has no session_meta; DELETE it, or append one'
  FROM rollout_heads AS h
 WHERE NOT EXISTS (SELECT 1 FROM rollout__data AS d WHERE d.id = h.no << 32)
UNION ALL
SELECT h.id, 'its row in rollout_about is missing; rollout_rebuild() derives it'
  FROM rollout_heads AS h
 WHERE h.last_sequence >= 0
   AND NOT EXISTS (SELECT 1 FROM rollout_about AS a WHERE a.no = h.no)
UNION ALL
SELECT h.id, 'source and the like are not those of its session_meta; rollout_rebuild() derives them'
  FROM rollout_heads AS h
  JOIN rollout_about AS a ON a.no = h.no
  JOIN rollout__meta AS m ON m.no = h.no
 WHERE (a.source, a.originator, a.cli_version, a.model_provider, a.forked_from,
        a.format, a.source_id, a.parent, a.agent) IS NOT
       (m.source, m.originator, m.cli_version, m.model_provider, m.forked_from,
        m.format, m.source_id, m.parent, m.agent)
UNION ALL
SELECT h.id, 'its ' || n.fact
         || ' is not the newest that its items say; rollout_rebuild() derives it'
  FROM rollout_heads AS h
  JOIN rollout_about AS a ON a.no = h.no
  LEFT JOIN rollout__meta AS m ON m.no = h.no
  JOIN rollout__newest AS n ON n.no = h.no
 WHERE CASE n.fact
         WHEN 'title' THEN a.title IS NOT coalesce(a.given_title, n.value, a.title)
         WHEN 'cwd' THEN a.cwd IS NOT coalesce(n.value,
                           CASE WHEN m.forked_from IS NULL THEN m.cwd
                                ELSE a.cwd END)
         WHEN 'model' THEN a.model IS NOT coalesce(n.value, a.model)
         ELSE a.branch IS NOT coalesce(n.value, a.branch) END
UNION ALL
SELECT h.id, 'first_user_message is not that of its first turn; rollout_rebuild() derives it'
  FROM rollout_heads AS h
  JOIN rollout_about AS a ON a.no = h.no
  JOIN rollout__derived AS d ON d.no = h.no
 WHERE a.prompt_id IS NOT d.prompt_id
    OR a.first_user_message IS NOT
       (SELECT substr(value, 1, 200) FROM rollout_facts
         WHERE id = d.prompt_id AND fact IN ('user', 'goal'))
UNION ALL
SELECT coalesce(h.id, 'history ' || (x.id >> 32)),
       'item ' || (x.id & 4294967295)
         || ': its usage is missing or wrong; rollout_rebuild() derives it'
  FROM rollout__spending AS x
  LEFT JOIN rollout_heads AS h ON h.no = x.id >> 32
 WHERE NOT EXISTS (SELECT 1 FROM rollout_calls AS c
                    WHERE c.call = x.call AND c.output >= x.output
                      AND (c.id <> x.id OR
                           (c.input_fresh, c.cache_write, c.cache_write_1h, c.cache_read)
                           = (x.input_fresh, x.cache_write, x.cache_write_1h, x.cache_read)))
UNION ALL
SELECT 'rollout_about', 'row ' || a.no || ' belongs to no conversation'
  FROM rollout_about AS a
 WHERE NOT EXISTS (SELECT 1 FROM rollout_heads AS h WHERE h.no = a.no)
UNION ALL
SELECT coalesce(h.id, 'history ' || (d.id >> 32)),
       'item ' || (d.id & 4294967295) || ': the payload is not JSON'
  FROM rollout__data AS d
  LEFT JOIN rollout_heads AS h ON h.no = d.id >> 32
 WHERE d.payload IS NOT NULL
   AND NOT (json_valid(d.payload) OR json_valid(d.payload || ' '))
UNION ALL
SELECT 'history ' || (d.id >> 32),
       'item ' || (d.id & 4294967295) || ' belongs to no conversation'
  FROM rollout__data AS d
 WHERE NOT EXISTS (SELECT 1 FROM rollout_segments AS s
                    WHERE s.owner = d.id >> 32
                      AND d.id & 4294967295 BETWEEN s.first AND s.last)
UNION ALL
SELECT 'rollout_segments', 'conversation ' || s.rollout || ' has no head'
  FROM rollout_segments AS s
 WHERE NOT EXISTS (SELECT 1 FROM rollout_heads AS h WHERE h.no = s.rollout)
UNION ALL
SELECT 'rollout_policy', 'the preset in force has no row: everything is dropped'
 WHERE NOT EXISTS (SELECT 1 FROM rollout__rules);

-- The counters, computed from the items. bytes and updated are those of the
-- conversation's own items. The number of turns comes from the newest turn, or
-- from the newest rollback: the turns before the one at which it begins.
CREATE VIEW IF NOT EXISTS main.rollout__derived AS
SELECT h.no AS no,
       (SELECT coalesce(max(d.id & 4294967295), -1)
          FROM rollout_segments AS s JOIN rollout__data AS d
            ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
         WHERE s.rollout = h.no) AS last_sequence,
       (SELECT count(*)
          FROM rollout_segments AS s JOIN rollout__data AS d
            ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
         WHERE s.rollout = h.no) AS items,
       (SELECT coalesce(sum(length(CAST(payload AS BLOB))), 0)
          FROM rollout__data
         WHERE id BETWEEN h.no << 32 AND (h.no << 32) + 4294967295) AS bytes,
       (SELECT coalesce(max(timestamp), 0)
          FROM rollout__data
         WHERE id BETWEEN h.no << 32 AND (h.no << 32) + 4294967295) AS updated,
       (SELECT x.id & 4294967295
          FROM rollout_segments AS s CROSS JOIN rollout_facts AS x
            ON x.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
         WHERE s.rollout = h.no AND x.fact IN ('user', 'goal')
         ORDER BY s.rollout, s.first, x.id LIMIT 1) AS user_sequence,
       coalesce((SELECT coalesce(number + 1,
                          (SELECT t.number FROM rollout_segments AS s
                             JOIN rollout_turns AS t
                               ON t.id = (s.owner << 32) + newest.first
                            WHERE s.rollout = h.no
                              AND newest.first BETWEEN s.first AND s.last))
                   FROM (SELECT t.id & 4294967295 AS at, t.number AS number,
                                NULL AS first
                           FROM rollout_segments AS s JOIN rollout_turns AS t
                             ON t.id BETWEEN (s.owner << 32) + s.first
                                         AND (s.owner << 32) + s.last
                          WHERE s.rollout = h.no
                          UNION ALL
                         SELECT m.id & 4294967295, NULL, m.first
                           FROM rollout_segments AS s JOIN rollout__marks AS m
                             ON m.id BETWEEN (s.owner << 32) + s.first
                                         AND (s.owner << 32) + s.last
                          WHERE s.rollout = h.no AND m.kind = 'rollback'
                          ORDER BY at DESC LIMIT 1) AS newest), 0) AS turns,
       (SELECT id
          FROM (SELECT t.id
                  FROM rollout_segments AS s JOIN rollout_turns AS t
                    ON t.id BETWEEN (s.owner << 32) + s.first
                                AND (s.owner << 32) + s.last
                 WHERE s.rollout = h.no
                 UNION ALL
                SELECT x.id
                  FROM rollout_segments AS s CROSS JOIN rollout_facts AS x
                    ON x.id BETWEEN (s.owner << 32) + s.first
                                AND (s.owner << 32) + s.last
                 WHERE s.rollout = h.no AND x.fact = 'goal')
         ORDER BY id & 4294967295 LIMIT 1) AS prompt_id
  FROM rollout_heads AS h;

-- Damaged JSON gives NULLs.
CREATE VIEW IF NOT EXISTS main.rollout__meta AS
SELECT h.no AS no,
       d.payload ->> 'title' AS title,
       d.payload ->> 'source' AS source,
       d.payload ->> 'cwd' AS cwd,
       d.payload ->> 'originator' AS originator,
       coalesce(d.payload ->> 'cli_version',
                d.payload ->> 'cliVersion') AS cli_version,
       coalesce(d.payload ->> 'model_provider',
                d.payload ->> 'modelProvider') AS model_provider,
       coalesce(d.payload ->> 'forked_from_id',
                d.payload ->> 'forkedFromId') AS forked_from,
       coalesce(d.payload ->> '$.blackbox.format', 'codex') AS format,
       coalesce(d.payload ->> '$.blackbox.id',
         CASE WHEN lower(coalesce(d.payload ->> 'id',
                                  d.payload ->> 'session_id')) <> h.id
              THEN coalesce(d.payload ->> 'id', d.payload ->> 'session_id')
              END) AS source_id,
       coalesce(d.payload ->> '$.blackbox.parent',
                d.payload ->> 'parent_thread_id',
                CASE json_type(d.payload, '$.source') WHEN 'object' THEN
                  d.payload ->> '$.source.subagent.thread_spawn.parent_thread_id'
                  END) AS parent,
       coalesce(d.payload ->> '$.blackbox.agent',
                CASE json_type(d.payload, '$.source') WHEN 'object' THEN
                  d.payload ->> '$.source.subagent.thread_spawn.agent_nickname'
                  END) AS agent,
       d.payload ->> '$.git.branch' AS branch
  FROM rollout_heads AS h
  JOIN rollout__data AS d
    ON d.id = h.no << 32
   AND (json_valid(d.payload) OR json_valid(d.payload || ' '));

CREATE VIEW IF NOT EXISTS main.rollout__blank AS
SELECT no, iso,
       json_object('id', id, 'timestamp', iso, 'cwd', '',
         'originator', 'blackbox', 'cli_version', '1.0.0',
         'instructions', NULL) AS payload
  FROM (SELECT no, id, strftime('%Y-%m-%dT%H:%M:%fZ', created / 1000.0,
                                'unixepoch') AS iso
          FROM rollout_heads);

-- A new id (UUID version 4), the current time, and the default time to live of a
-- conversation in milliseconds.
CREATE VIEW IF NOT EXISTS main.rollout__fresh AS
SELECT lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
         || substr(hex(randomblob(2)), 2) || '-'
         || substr('89AB', 1 + (random() & 3), 1)
         || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))) AS id,
       CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
         AS now,
       (SELECT 86400000 * value FROM blackbox_settings
         WHERE name = 'rollout.ttl_days') AS ttl;

-- "at" is the time of expiry. A row is due when that time is in the past.
CREATE VIEW IF NOT EXISTS main.rollout_due AS
SELECT id AS key, bytes AS bytes, expires_at AS at,
       CASE WHEN EXISTS (SELECT 1 FROM rollout__held AS k WHERE k.id = h.id)
            THEN 'held' END AS blocked_by
  FROM rollout_heads AS h
 WHERE expires_at IS NOT NULL;

-- For retention_report(): conversations, and the bytes of their payloads.
CREATE VIEW IF NOT EXISTS main.rollout__size AS
SELECT count(*) AS rows, coalesce(sum(bytes), 0) AS bytes FROM rollout_heads;

-- The conversations that a hold keeps.
CREATE VIEW IF NOT EXISTS main.rollout__held AS
SELECT "key" AS id FROM retention__holds WHERE kind = 'rollout';

CREATE VIEW IF NOT EXISTS main.rollout__rules AS
SELECT item_key, payload_key, keep
  FROM rollout_policy
 WHERE preset = (SELECT value FROM blackbox_settings
                  WHERE name = 'rollout.policy');

CREATE VIEW IF NOT EXISTS main.rollouts AS
SELECT h.id AS id,
       h.created AS created,
       h.updated AS updated,
       h.expires_at AS expires_at,
       h.status AS status,
       h.last_sequence + 1 AS item_count,
       h.last_sequence AS last_sequence,
       h.user_sequence IS NOT NULL AS has_user_event,
       h.turns AS turns,
       h.bytes AS bytes,
       a.title AS title,
       a.source AS source,
       a.cwd AS cwd,
       a.originator AS originator,
       a.cli_version AS cli_version,
       a.model_provider AS model_provider,
       a.forked_from AS forked_from,
       a.first_user_message AS first_user_message,
       a.format AS format,
       a.source_id AS source_id,
       a.parent AS parent,
       a.agent AS agent,
       a.model AS model,
       a.branch AS branch,
       (SELECT d.payload ->> 'instructions' FROM rollout__data AS d
         WHERE d.id = h.no << 32
           AND (json_valid(d.payload) OR json_valid(d.payload || ' '))) AS instructions,
       (SELECT d.payload FROM rollout__data AS d
         WHERE d.id = h.no << 32) AS session_meta
  FROM rollout_heads AS h
  LEFT JOIN rollout_about AS a ON a.no = h.no;

CREATE TRIGGER IF NOT EXISTS main.rollouts_insert
INSTEAD OF INSERT ON rollouts
BEGIN
  SELECT RAISE(ABORT, 'InvalidSessionMetaError: Invalid session meta: it must be a JSON object, and its id, if any, must be the id of the conversation')
   WHERE NEW.session_meta IS NOT NULL
     AND CASE WHEN NOT (json_valid(NEW.session_meta)
                        OR json_valid(NEW.session_meta || ' ')) THEN 1
              WHEN json_type(NEW.session_meta) <> 'object' THEN 1
              ELSE lower(NEW.session_meta ->> 'id') <> lower(NEW.id) END;
  SELECT RAISE(ABORT, 'InvalidSessionMetaError: Invalid session meta: if session_meta is given, omit the columns that are parts of it (instructions may be given if it has none)')
   WHERE NEW.session_meta IS NOT NULL
     AND (coalesce(NEW.source, NEW.cwd, NEW.originator, NEW.cli_version,
            NEW.model_provider, NEW.forked_from) IS NOT NULL
          OR NEW.session_meta ->> 'instructions' <> NEW.instructions);
  SELECT RAISE(ABORT, 'ReadOnlyError: the counters of a conversation are computed from its items; omit them')
   WHERE coalesce(NEW.updated, NEW.item_count, NEW.last_sequence,
           NEW.has_user_event, NEW.turns, NEW.bytes, NEW.first_user_message,
           NEW.format, NEW.source_id, NEW.parent, NEW.agent, NEW.model,
           NEW.branch)
         IS NOT NULL;
  INSERT INTO rollout_heads(id, created, expires_at, status, stamp)
  SELECT coalesce(lower(NEW.id), lower(NEW.session_meta ->> 'id'),
           (SELECT id FROM rollout__fresh)),
         at,
         CASE WHEN NEW.expires_at IS NULL
                THEN at + (SELECT ttl FROM rollout__fresh)
              WHEN NEW.expires_at = 'permanent' THEN NULL
              ELSE NEW.expires_at END,
         coalesce(NEW.status, 'active'), 1
    FROM (SELECT coalesce(NEW.created, (SELECT now FROM rollout__fresh)) AS at);
  UPDATE rollout_heads SET last_sequence = 0, stamp = stamp + 1
   WHERE changes() = 1 AND no = last_insert_rowid();
  INSERT INTO rollout__data(id, timestamp, type, payload)
  SELECT h.no << 32, h.created, 'session_meta',
         CASE WHEN NEW.session_meta IS NULL THEN
                -- json_patch omits the NULLs of its second argument
                json_patch(b.payload, json_patch('{}',
                  json_object('cwd', NEW.cwd, 'originator', NEW.originator,
                    'cli_version', NEW.cli_version,
                    'instructions', NEW.instructions, 'source', NEW.source,
                    'model_provider', NEW.model_provider,
                    'forked_from_id', NEW.forked_from)))
              WHEN NEW.session_meta ->> 'id' IS NOT NULL
               AND NEW.session_meta ->> 'timestamp' IS NOT NULL
               AND (NEW.instructions IS NULL OR
                    NEW.session_meta ->> 'instructions' IS NOT NULL)
                THEN NEW.session_meta
              ELSE
                json_patch(
                  json_set(NEW.session_meta, '$.id', h.id, '$.timestamp', json(
                    coalesce(nullif(NEW.session_meta -> 'timestamp', 'null'),
                             json_quote(b.iso)))),
                  CASE WHEN NEW.instructions IS NULL THEN '{}'
                       ELSE json_object('instructions', NEW.instructions) END) END
    FROM rollout_heads AS h JOIN rollout__blank AS b ON b.no = h.no
   WHERE changes() = 1 AND h.no = last_insert_rowid();
  INSERT INTO rollout__looks(id, title)
  SELECT last_insert_rowid(), NEW.title WHERE changes() = 1;
  -- SQLite does not fire a trigger that is already running.
  SELECT RAISE(ABORT, 'SequenceError: a trigger on the tables of conversations cannot start another conversation; set PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE no IN (last_insert_rowid(), last_insert_rowid() >> 32) AND looked < 0
     AND id = coalesce(lower(NEW.id), lower(NEW.session_meta ->> 'id'), id);
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_update
INSTEAD OF UPDATE ON rollouts
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: only status, expires_at, title and session_meta of a conversation can be changed; its items determine the other columns')
   WHERE NEW.id IS NOT OLD.id OR NEW.created IS NOT OLD.created
      OR NEW.updated IS NOT OLD.updated
      OR NEW.item_count IS NOT OLD.item_count
      OR NEW.last_sequence IS NOT OLD.last_sequence
      OR NEW.has_user_event IS NOT OLD.has_user_event
      OR NEW.turns IS NOT OLD.turns OR NEW.bytes IS NOT OLD.bytes
      OR NEW.source IS NOT OLD.source OR NEW.cwd IS NOT OLD.cwd
      OR NEW.originator IS NOT OLD.originator
      OR NEW.cli_version IS NOT OLD.cli_version
      OR NEW.model_provider IS NOT OLD.model_provider
      OR NEW.forked_from IS NOT OLD.forked_from
      OR NEW.instructions IS NOT OLD.instructions
      OR NEW.first_user_message IS NOT OLD.first_user_message
      OR NEW.format IS NOT OLD.format OR NEW.source_id IS NOT OLD.source_id
      OR NEW.parent IS NOT OLD.parent OR NEW.agent IS NOT OLD.agent
      OR NEW.model IS NOT OLD.model OR NEW.branch IS NOT OLD.branch;
  UPDATE rollout_heads
     SET status = NEW.status,
         expires_at = nullif(NEW.expires_at, 'permanent')
   WHERE id = OLD.id
     AND (NEW.status IS NOT OLD.status OR NEW.expires_at IS NOT OLD.expires_at);
  UPDATE rollout__data SET payload = NEW.session_meta
   WHERE NEW.session_meta IS NOT OLD.session_meta
     AND id = (SELECT no << 32 FROM rollout_heads WHERE id = OLD.id);
  UPDATE rollout_about SET title = NEW.title, given_title = NEW.title
   WHERE NEW.title IS NOT OLD.title
     AND no = (SELECT no FROM rollout_heads WHERE id = OLD.id);
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_delete
INSTEAD OF DELETE ON rollouts
BEGIN
  DELETE FROM rollout_heads WHERE id = OLD.id;
END;

-- The items of a conversation come in order. A query of one id needs no sort.
CREATE VIEW IF NOT EXISTS main.rollout_items AS
SELECT h.id AS rollout,
       d.id & 4294967295 AS sequence,
       d.timestamp AS timestamp,
       d.type AS type,
       d.payload AS payload
  FROM rollout_heads AS h
 CROSS JOIN rollout_segments AS s ON s.rollout = h.no
 CROSS JOIN rollout__data AS d
    ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
 ORDER BY h.no, s.first, d.id;

CREATE TRIGGER IF NOT EXISTS main.rollout_items_insert
INSTEAD OF INSERT ON rollout_items
BEGIN
  SELECT RAISE(ABORT, 'RolloutNotFoundError: Rollout not found: start it with INSERT INTO rollouts(id) or rollout_create()')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads
                      WHERE id = lower(NEW.rollout));
  SELECT RAISE(ABORT, 'SequenceError: the sequence of a new item must be the last sequence plus 1; omit it')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout)
     AND NEW.sequence IS NOT NULL AND NEW.sequence IS NOT last_sequence + 1;
  SELECT RAISE(ABORT, 'InvalidItemError: Invalid item format: a timestamp must be an integer of milliseconds since 1970')
   WHERE NEW.timestamp IS NOT CAST(NEW.timestamp AS INTEGER);
  SELECT RAISE(ABORT, 'RolloutExpiredError: Rollout expired: UPDATE rollouts SET expires_at to continue it')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout)
     AND expires_at < coalesce(NEW.timestamp, (SELECT now FROM rollout__fresh));
  SELECT RAISE(ABORT, 'InvalidItemError: Invalid item format: a type cannot contain a NUL character')
   WHERE instr(NEW.type, char(0)) > 0;
  INSERT INTO rollout__forms(timestamp, type, payload)
  VALUES (coalesce(NEW.timestamp, (SELECT now FROM rollout__fresh)),
          NEW.type, NEW.payload);
  UPDATE rollout_heads SET last_sequence = last_sequence + 1, stamp = stamp + 1
   WHERE id = lower(NEW.rollout);
  SELECT RAISE(ABORT, 'SequenceError: an item that is the next of its conversation must be stored, and must be whole; correct it, or the trigger that ignored it')
   WHERE changes() = 0;
  INSERT INTO rollout__data(id, timestamp, type, payload)
  SELECT (no << 32) + last_sequence,
         coalesce(NEW.timestamp, (SELECT now FROM rollout__fresh)),
         NEW.type, NEW.payload
    FROM rollout_heads WHERE id = lower(NEW.rollout);
  INSERT INTO rollout__looks(id) SELECT last_insert_rowid() WHERE changes() = 1;
  -- SQLite does not fire a trigger that is already running.
  SELECT RAISE(ABORT, 'SequenceError: a trigger on the tables of conversations cannot record into the conversation that is being written; for another one, set PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout) AND looked <> last_sequence
     AND EXISTS (SELECT 1 FROM rollout__data
                  WHERE id = (no << 32) + last_sequence);
  -- An item that a trigger of the user ignores is not counted.
  UPDATE rollout_heads SET last_sequence = last_sequence - 1, stamp = stamp + 1
   WHERE id = lower(NEW.rollout)
     AND NOT EXISTS (SELECT 1 FROM rollout__data
                      WHERE id = (no << 32) + last_sequence);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_items_update
INSTEAD OF UPDATE ON rollout_items
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: only the payload of an item can be changed')
   WHERE NEW.rollout IS NOT OLD.rollout OR NEW.sequence IS NOT OLD.sequence
      OR NEW.timestamp IS NOT OLD.timestamp OR NEW.type IS NOT OLD.type;
  UPDATE rollout__data SET payload = NEW.payload
   WHERE id = (SELECT (s.owner << 32) + OLD.sequence
                 FROM rollout_heads AS h
                 JOIN rollout_segments AS s ON s.rollout = h.no
                WHERE h.id = OLD.rollout
                  AND OLD.sequence BETWEEN s.first AND s.last);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_items_delete
INSTEAD OF DELETE ON rollout_items
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: an item cannot be deleted alone; DELETE the conversation FROM rollouts, or UPDATE the payload');
END;

CREATE VIEW IF NOT EXISTS main.rollout_log AS
SELECT rollout AS rollout_id,
       '{"type":' || json_quote(type)
         || coalesce(',"payload":' || payload, '') || '}' AS item,
       type AS type,
       payload AS payload,
       timestamp AS timestamp
  FROM rollout_items;

-- An item is given whole, or as type and payload. The timestamp is also the time
-- at which the expiry of the conversation is tested.
CREATE TRIGGER IF NOT EXISTS main.rollout_log_insert
INSTEAD OF INSERT ON rollout_log
BEGIN
  SELECT RAISE(ABORT, 'RolloutNotFoundError: Rollout not found: start it with INSERT INTO rollouts(id) or rollout_create()')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads
                      WHERE id = lower(NEW.rollout_id));
  SELECT RAISE(ABORT, 'InvalidItemError: Invalid item format: a timestamp must be an integer of milliseconds since 1970')
   WHERE NEW.timestamp IS NOT CAST(NEW.timestamp AS INTEGER);
  SELECT RAISE(ABORT, 'RolloutExpiredError: Rollout expired: UPDATE rollouts SET expires_at to continue it')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout_id)
     AND expires_at < coalesce(NEW.timestamp, (SELECT now FROM rollout__fresh));
  SELECT RAISE(ABORT, 'InvalidItemError: Invalid item format: use either item, a JSON object with a type, or type and payload, which is JSON')
   WHERE CASE WHEN NEW.item IS NULL THEN
                typeof(NEW.type) <> 'text' OR NEW.type = ''
                OR instr(NEW.type, char(0)) > 0
                OR (NEW.payload IS NOT NULL
                    AND NOT (json_valid(NEW.payload)
                             OR json_valid(NEW.payload || ' ')))
              WHEN NEW.type IS NOT NULL OR NEW.payload IS NOT NULL THEN 1
              WHEN NOT (json_valid(NEW.item) OR json_valid(NEW.item || ' '))
                THEN 1
              WHEN json_type(NEW.item) <> 'object' THEN 1
              ELSE json_type(NEW.item, '$.type') IS NOT 'text'
                   OR NEW.item ->> 'type' = ''
                   OR instr(replace(NEW.item -> 'type', '\\', ''), '\u0000') > 0
                   -- half a surrogate pair cannot be written in UTF-8
                   OR lower(replace(NEW.item -> 'type', '\\', ''))
                      GLOB '*\ud[89a-f]*'
               END;
  INSERT INTO rollout__takes(rollout, timestamp, type, payload, keep)
  SELECT lower(NEW.rollout_id),
         coalesce(NEW.timestamp, (SELECT now FROM rollout__fresh)),
         i.type, i.payload, coalesce(
           (SELECT keep FROM rollout__rules
             WHERE item_key = i.t AND payload_key = coalesce(i.p, '*')),
           (SELECT keep FROM rollout__rules
             WHERE item_key = i.t AND payload_key = '*' AND i.p IS NOT ''),
           (SELECT keep FROM rollout__rules
             WHERE item_key = '*' AND payload_key = coalesce(i.p, '*')),
           (SELECT keep FROM rollout__rules
             WHERE item_key = '*' AND payload_key = '*' AND i.p IS NOT ''), 0)
    FROM (SELECT type, payload, lower(replace(type, '_', '')) AS t,
                 CASE WHEN payload IS NULL THEN ''
                      WHEN json_type(payload, '$.type') = 'text' THEN
                        nullif(lower(replace(payload ->> 'type', '_', '')), '')
                      END AS p
            FROM (SELECT coalesce(NEW.type, NEW.item ->> 'type') AS type,
                         coalesce(NEW.payload, NEW.item -> 'payload')
                           AS payload)) AS i;
END;

-- An item to which the policy was applied: INSERT stores it, or counts it as
-- dropped. (rollout_items, this view and rollout__imports store an item with the
-- same statements, each in its own trigger. If they shared a trigger, SQLite would
-- not fire it for an item that a trigger of the user records meanwhile.)
CREATE VIEW IF NOT EXISTS main.rollout__takes AS
SELECT NULL AS rollout, NULL AS timestamp, NULL AS type, NULL AS payload,
       NULL AS keep
 WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.rollout_takes_keep
INSTEAD OF INSERT ON rollout__takes WHEN NEW.keep
BEGIN
  INSERT INTO rollout__forms(timestamp, type, payload)
  VALUES (NEW.timestamp, NEW.type, NEW.payload);
  UPDATE rollout_heads SET last_sequence = last_sequence + 1, stamp = stamp + 1
   WHERE id = NEW.rollout;
  SELECT RAISE(ABORT, 'SequenceError: an item that is the next of its conversation must be stored, and must be whole; correct it, or the trigger that ignored it')
   WHERE changes() = 0;
  INSERT INTO rollout__data(id, timestamp, type, payload)
  SELECT (no << 32) + last_sequence, NEW.timestamp, NEW.type, NEW.payload
    FROM rollout_heads WHERE id = NEW.rollout;
  INSERT INTO rollout__looks(id) SELECT last_insert_rowid() WHERE changes() = 1;
  -- SQLite does not fire a trigger that is already running.
  SELECT RAISE(ABORT, 'SequenceError: a trigger on the tables of conversations cannot record into the conversation that is being written; for another one, set PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE id = NEW.rollout AND looked <> last_sequence
     AND EXISTS (SELECT 1 FROM rollout__data
                  WHERE id = (no << 32) + last_sequence);
  -- An item that a trigger of the user ignores is not counted.
  UPDATE rollout_heads SET last_sequence = last_sequence - 1, stamp = stamp + 1
   WHERE id = NEW.rollout
     AND NOT EXISTS (SELECT 1 FROM rollout__data
                      WHERE id = (no << 32) + last_sequence);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_takes_drop
INSTEAD OF INSERT ON rollout__takes WHEN NOT NEW.keep
BEGIN
  INSERT INTO rollout__imports(rollout, type, payload_type, dropped, bytes)
  VALUES (NEW.rollout, NEW.type,
          CASE json_type(NEW.payload, '$.type') WHEN 'text'
            THEN NEW.payload ->> 'type' END, 1,
          coalesce(length(CAST(NEW.payload AS BLOB)), 0));
END;

-- For an append or an import that has applied the policy: an item to keep, or
-- (dropped > 0) a number of items of one kind, which are only counted. The first
-- item of a conversation that does not exist starts it. Its expiry is counted
-- from now.
-- before, after and quiet are those of rollout_frames. With a sequence the row is
-- only the frame of an item that exists.
CREATE VIEW IF NOT EXISTS main.rollout__imports AS
SELECT NULL AS rollout, NULL AS now, NULL AS timestamp, NULL AS type,
       NULL AS payload, NULL AS payload_type, NULL AS dropped, NULL AS bytes,
       NULL AS before, NULL AS after, NULL AS quiet, NULL AS sequence
 WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.rollout_imports_keep
INSTEAD OF INSERT ON rollout__imports
WHEN coalesce(NEW.dropped, 0) <= 0 AND NEW.sequence IS NULL
BEGIN
  INSERT INTO rollout_heads(id, created, expires_at, stamp)
  SELECT NEW.rollout, NEW.timestamp, NEW.now + (SELECT ttl FROM rollout__fresh),
         lower(replace(NEW.type, '_', '')) = 'sessionmeta'
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads WHERE id = NEW.rollout);
  INSERT INTO rollout__forms(timestamp, type, payload)
  VALUES (NEW.timestamp, NEW.type, NEW.payload);
  UPDATE rollout_heads SET last_sequence = last_sequence + 1, stamp = stamp + 1
   WHERE id = NEW.rollout;
  SELECT RAISE(ABORT, 'SequenceError: an item that is the next of its conversation must be stored, and must be whole; correct it, or the trigger that ignored it')
   WHERE changes() = 0;
  INSERT INTO rollout__data(id, timestamp, type, payload)
  SELECT (no << 32) + last_sequence, NEW.timestamp, NEW.type, NEW.payload
    FROM rollout_heads WHERE id = NEW.rollout;
  INSERT INTO rollout__looks(id) SELECT last_insert_rowid() WHERE changes() = 1;
  -- SQLite does not fire a trigger that is already running.
  SELECT RAISE(ABORT, 'SequenceError: a trigger on the tables of conversations cannot record into the conversation that is being written; for another one, set PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE id = NEW.rollout AND looked <> last_sequence
     AND EXISTS (SELECT 1 FROM rollout__data
                  WHERE id = (no << 32) + last_sequence);
  -- An item that a trigger of the user ignores is not counted.
  UPDATE rollout_heads SET last_sequence = last_sequence - 1, stamp = stamp + 1
   WHERE id = NEW.rollout
     AND NOT EXISTS (SELECT 1 FROM rollout__data
                      WHERE id = (no << 32) + last_sequence);
  SELECT RAISE(ABORT, 'SequenceError: an item that is the next of its conversation must be stored, and must be whole; correct it, or the trigger that ignored it')
    FROM rollout_heads WHERE id = NEW.rollout AND last_sequence < 0;
  INSERT INTO rollout_frames(id, before, after, quiet)
  SELECT (no << 32) + last_sequence, NEW.before, NEW.after,
         coalesce(NEW.quiet, 0)
    FROM rollout_heads
   WHERE id = NEW.rollout AND coalesce(NEW.before, NEW.after) IS NOT NULL;
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_imports_frame
INSTEAD OF INSERT ON rollout__imports WHEN NEW.sequence IS NOT NULL
BEGIN
  INSERT INTO rollout_frames(id, before, after, quiet)
  SELECT (s.owner << 32) + NEW.sequence, NEW.before, NEW.after,
         coalesce(NEW.quiet, 0)
    FROM rollout_heads AS h JOIN rollout_segments AS s ON s.rollout = h.no
   WHERE h.id = NEW.rollout AND NEW.sequence BETWEEN s.first AND s.last
      ON CONFLICT (id) DO UPDATE SET after = excluded.after;
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_imports_drop
INSTEAD OF INSERT ON rollout__imports WHEN NEW.dropped > 0
BEGIN
  INSERT INTO rollout_drops(no, item_type, payload_type, items, bytes)
  SELECT no, substr(NEW.type, 1, 100),
         substr(coalesce(NEW.payload_type, ''), 1, 100), NEW.dropped, NEW.bytes
    FROM rollout_heads WHERE id = NEW.rollout
      ON CONFLICT (no, item_type, payload_type) DO UPDATE
     SET items = items + excluded.items, bytes = bytes + excluded.bytes;
END;

-- turn is the number of a user's message, from 0, without the messages that a
-- rollback took back. The fork shares all items before it. With NULL it shares
-- all items.
CREATE VIEW IF NOT EXISTS main.rollout_forks AS
SELECT a.forked_from AS parent, NULL AS turn, h.id AS id, h.created AS created
  FROM rollout_heads AS h JOIN rollout_about AS a ON a.no = h.no
 WHERE a.forked_from IS NOT NULL;

CREATE TRIGGER IF NOT EXISTS main.rollout_forks_insert
INSTEAD OF INSERT ON rollout_forks
BEGIN
  SELECT RAISE(ABORT, 'RolloutNotFoundError: Rollout not found: there is no conversation with that id to fork')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads
                      WHERE id = lower(NEW.parent) AND last_sequence >= 0);
  SELECT RAISE(ABORT, 'RolloutExistsError: a conversation with the id of the fork exists; use another id, or omit it')
    FROM rollout_heads WHERE id = lower(NEW.id);
  SELECT RAISE(ABORT, 'ValidationError: Invalid time: created must be an integer of milliseconds since 1970')
   WHERE NEW.created IS NOT NULL
     AND (typeof(NEW.created) NOT IN ('integer', 'real')
          OR NEW.created <> CAST(NEW.created AS INTEGER)
          OR NEW.created NOT BETWEEN 0 AND 253402300799999);
  SELECT RAISE(ABORT, 'RolloutExpiredError: Rollout expired: UPDATE rollouts SET expires_at to continue it')
    FROM rollout_heads
   WHERE id = lower(NEW.parent)
     AND expires_at < coalesce(NEW.created, (SELECT now FROM rollout__fresh));
  SELECT RAISE(ABORT, 'InvalidTurnError: Invalid turn: it must be an integer from 0 to the number of turns of the conversation (column turns of rollouts)')
    FROM rollout_heads
   WHERE id = lower(NEW.parent) AND NEW.turn IS NOT NULL
     AND (typeof(NEW.turn) NOT IN ('integer', 'real')
          OR NEW.turn <> CAST(NEW.turn AS INTEGER)
          OR NEW.turn NOT BETWEEN 0 AND turns);
  SELECT RAISE(ABORT, 'CorruptedRolloutError: Corrupted rollout: the payload of item 0 is not JSON; UPDATE rollouts SET session_meta to repair it')
    FROM rollout_heads AS h JOIN rollout__data AS d ON d.id = h.no << 32
   WHERE h.id = lower(NEW.parent)
     AND NOT (json_valid(d.payload) OR json_valid(d.payload || ' '));
  INSERT INTO rollout_heads(id, created, expires_at, stamp)
  SELECT coalesce(lower(NEW.id), id), at, at + ttl, 1
    FROM (SELECT id, coalesce(NEW.created, now) AS at, ttl FROM rollout__fresh);
  UPDATE rollout_act SET made = last_insert_rowid();
  UPDATE rollout_heads SET last_sequence = 0, stamp = stamp + 1
   WHERE no = (SELECT made FROM rollout_act);
  INSERT INTO rollout__data(id, timestamp, type, payload)
  SELECT f.no << 32, f.created, 'session_meta',
         json_set(d.payload, '$.id', f.id, '$.timestamp', b.iso,
           '$.forked_from_id', h.id)
    FROM rollout_heads AS h
    JOIN rollout__data AS d ON d.id = h.no << 32
    JOIN rollout_heads AS f ON f.no = (SELECT made FROM rollout_act)
    JOIN rollout__blank AS b ON b.no = f.no
   WHERE h.id = lower(NEW.parent);
  INSERT INTO rollout__looks(id) SELECT last_insert_rowid() WHERE changes() = 1;
  -- SQLite does not fire a trigger that is already running.
  SELECT RAISE(ABORT, 'SequenceError: a trigger on the tables of conversations cannot start another conversation; set PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE no = (SELECT made FROM rollout_act) AND looked < 0;
  -- "cut" is the first sequence that the fork does not share.
  UPDATE rollout_heads
     SET stamp = stamp + 1, (last_sequence, turns, user_sequence) =
         (SELECT max(p.cut - 1, 0), p.turn,
                 CASE WHEN p.user_sequence < p.cut THEN p.user_sequence END
            FROM (SELECT h.user_sequence,
                         coalesce(CAST(NEW.turn AS INTEGER), h.turns) AS turn,
                         coalesce((SELECT t.id & 4294967295
                                     FROM rollout_segments AS s
                                    CROSS JOIN rollout_turns AS t
                                       ON t.id BETWEEN (s.owner << 32) + s.first
                                                   AND (s.owner << 32) + s.last
                                      AND t.number = CAST(NEW.turn AS INTEGER)
                                    WHERE s.rollout = h.no
                                      AND NEW.turn < h.turns
                                    ORDER BY s.first DESC, t.id DESC LIMIT 1),
                                  h.last_sequence + 1) AS cut
                    FROM rollout_heads AS h
                   WHERE h.id = lower(NEW.parent)) AS p)
   WHERE no = (SELECT made FROM rollout_act);
  UPDATE rollout_segments SET last = 0
   WHERE rollout = (SELECT made FROM rollout_act) AND first = 0;
  INSERT INTO rollout_segments(rollout, first, owner, last)
  SELECT f.no, max(s.first, 1), s.owner, min(s.last, f.last_sequence)
    FROM rollout_heads AS f, rollout_heads AS h
    JOIN rollout_segments AS s ON s.rollout = h.no
   WHERE f.no = (SELECT made FROM rollout_act)
     AND h.id = lower(NEW.parent)
     AND max(s.first, 1) <= min(s.last, f.last_sequence);
  INSERT INTO rollout_segments(rollout, first, owner, last)
  SELECT no, last_sequence + 1, no, 4294967295
    FROM rollout_heads WHERE no = (SELECT made FROM rollout_act);
  UPDATE rollout_about
     SET (title, given_title, cwd, model, branch, prompt_id,
          first_user_message) =
         (SELECT coalesce(rollout_about.title, a.title), a.given_title, a.cwd,
                 a.model, a.branch,
                 CASE WHEN a.prompt_id & 4294967295 <= f.last_sequence
                      THEN a.prompt_id END,
                 CASE WHEN a.prompt_id & 4294967295 <= f.last_sequence
                      THEN a.first_user_message END
            FROM rollout_heads AS h JOIN rollout_about AS a ON a.no = h.no,
                 rollout_heads AS f
           WHERE h.id = lower(NEW.parent) AND f.no = rollout_about.no)
   WHERE no = (SELECT made FROM rollout_act);
END;
