-- rollout.sql: whole conversations, recorded in order.
--
-- To read and write
--   rollouts         view: one row a conversation. INSERT starts one and writes
--                    its session_meta; UPDATE changes status, expires_at,
--                    title, session_meta; DELETE removes it, history and all
--   rollout_items    view: every conversation as one history. INSERT appends
--                    whatever the policy says; UPDATE changes a payload
--   rollout_log      view: INSERT appends one item through the policy
--   rollout_forks    view: INSERT forks a conversation before one of its turns
--   rollout_cleanup  view: INSERT removes what has expired
--   rollout_policy   table: which items are kept, in named presets
--   rollout_preambles table: how texts begin that no user typed
-- Underneath
--   rollout_heads    a narrow row a conversation: the counters
--   rollout_about    a wider row a conversation: what lists show of it
--   rollout_data     the items; id = owner's number << 32 | sequence
--   rollout_segments which stretches of whose items make up a conversation
--   rollout_turns    where turn n of an owner's items begins
--   rollout_marks    compactions and rollbacks, by the key of their item
--   rollout_drops    what the policy dropped, by type
--   rollout_imports  view: INSERT appends an item as it is, or counts dropped ones
--   rollout_act      the rule that is at work, for its receipt
--   rollout_clash    the INSERTs that met a head, to tell REPLACE from upsert
--   rollout_fresh    view: a new id, and the clock
--   rollout_rules    view: the policy in force
--   rollout_texts    view: what users and assistants said
--   rollout_due      view: what has a date to go
--   rollout_check    view: contradictions (none, when all is well)
--
-- Runs alone after core.sql, any number of times.
--
-- Invariants: the sequences of a conversation are 0, 1, 2 ... without a gap,
-- and 0 is its session_meta. An item is never overwritten, moved or deleted
-- while a conversation shows it. last_sequence, bytes, updated, turns and
-- user_sequence of a head are exact after every INSERT. A fork shares items by
-- segments, so that items live as long as any conversation shows them.
--
-- Limits: 2,147,483,647 conversations in the life of a database, 4,294,967,295
-- items in one, 67,108,864 bytes in a payload.

------------------------------------------------------------------- views

CREATE VIEW IF NOT EXISTS main.rollout_check AS
SELECT h.id AS object,
       'last_sequence is ' || h.last_sequence || ', the items reach '
         || coalesce(max(d.id & 4294967295), -1) AS problem
  FROM rollout_heads AS h
  LEFT JOIN rollout_segments AS s ON s.rollout = h.no
  LEFT JOIN rollout_data AS d
    ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
 GROUP BY h.no
HAVING h.last_sequence <> coalesce(max(d.id & 4294967295), -1)
    OR h.last_sequence + 1 <> count(d.id)
UNION ALL
SELECT h.id, 'bytes is ' || h.bytes || ', its own items have '
         || coalesce(sum(length(CAST(d.payload AS BLOB))), 0)
  FROM rollout_heads AS h
  LEFT JOIN rollout_data AS d
    ON d.id BETWEEN h.no << 32 AND (h.no << 32) + 4294967295
 GROUP BY h.no
HAVING h.bytes <> coalesce(sum(length(CAST(d.payload AS BLOB))), 0)
UNION ALL
SELECT coalesce(h.id, 'history ' || (d.id >> 32)),
       'item ' || (d.id & 4294967295) || ': the payload is no JSON'
  FROM rollout_data AS d
  LEFT JOIN rollout_heads AS h ON h.no = d.id >> 32
 WHERE d.payload IS NOT NULL AND NOT json_valid(d.payload)
UNION ALL
SELECT 'history ' || (d.id >> 32),
       'item ' || (d.id & 4294967295) || ' belongs to no conversation'
  FROM rollout_data AS d
 WHERE NOT EXISTS (SELECT 1 FROM rollout_segments AS s
                    WHERE s.owner = d.id >> 32
                      AND d.id & 4294967295 BETWEEN s.first AND s.last)
UNION ALL
SELECT 'rollout_segments', 'conversation ' || s.rollout || ' has no head'
  FROM rollout_segments AS s
 WHERE NOT EXISTS (SELECT 1 FROM rollout_heads AS h WHERE h.no = s.rollout)
UNION ALL
SELECT h.id, 'turns is ' || h.turns || ', of these are kept '
         || count(DISTINCT t.number)
  FROM rollout_heads AS h
  LEFT JOIN rollout_segments AS s ON s.rollout = h.no
  LEFT JOIN rollout_turns AS t
    ON t.owner = s.owner AND t.number < h.turns
   AND t.sequence BETWEEN s.first AND min(s.last, h.last_sequence)
 GROUP BY h.no
HAVING h.turns <> count(DISTINCT t.number)
UNION ALL
SELECT 'rollout_policy', 'the preset in force has no row: everything is dropped'
 WHERE NOT EXISTS (SELECT 1 FROM rollout_rules);

-- A new id (UUID version 4), and the clock.
CREATE VIEW IF NOT EXISTS main.rollout_fresh AS
SELECT lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4'
         || substr(hex(randomblob(2)), 2) || '-'
         || substr('89AB', 1 + (random() & 3), 1)
         || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))) AS id,
       CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)
         AS now;

-- "at" is when it expires; a row is due when that lies strictly in the past.
CREATE VIEW IF NOT EXISTS main.rollout_due AS
SELECT id AS key, bytes AS bytes, expires_at AS at, NULL AS blocked_by
  FROM rollout_heads
 WHERE expires_at IS NOT NULL;

CREATE VIEW IF NOT EXISTS main.rollout_rules AS
SELECT item_key, payload_key, keep
  FROM rollout_policy
 WHERE preset = (SELECT value FROM blackbox_limits
                  WHERE name = 'rollout.policy');

-- role is 'user' or 'assistant'. Damaged payloads have no text. The tags that
-- a recorder puts around an image are no text either.
CREATE VIEW IF NOT EXISTS main.rollout_texts AS
SELECT id, role, source,
       CASE WHEN source = 'event'
              THEN coalesce(payload ->> 'message', payload ->> '$.data.message')
            WHEN json_type(payload, '$.content') = 'text'
              THEN payload ->> 'content'
            ELSE (SELECT group_concat(part.text, char(10))
                    FROM (SELECT CASE WHEN type = 'object'
                                      THEN value ->> 'text' END AS text
                            FROM json_each(payload, '$.content')) AS part
                   WHERE NOT (part.text GLOB '<image name=*>'
                              AND instr(part.text, '>') = length(part.text))
                     AND part.text NOT IN ('<image>', '</image>'))
       END AS text
  FROM (SELECT id, payload,
               CASE lower(replace(type, '_', ''))
                 WHEN 'eventmsg' THEN 'event' ELSE 'item' END AS source,
               CASE WHEN payload IS NULL OR NOT json_valid(payload) THEN NULL
                    WHEN lower(replace(type, '_', '')) = 'eventmsg' THEN
                      CASE lower(replace(payload ->> 'type', '_', ''))
                        WHEN 'usermessage' THEN 'user'
                        WHEN 'agentmessage' THEN 'assistant' END
                    WHEN lower(payload ->> 'type') = 'message'
                     AND payload ->> 'role' IN ('user', 'assistant') THEN
                      payload ->> 'role' END AS role
          FROM rollout_data
         WHERE lower(replace(type, '_', '')) IN ('eventmsg', 'responseitem'))
 WHERE role IS NOT NULL;

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
       (SELECT d.payload ->> 'instructions' FROM rollout_data AS d
         WHERE d.id = h.no << 32 AND json_valid(d.payload)) AS instructions,
       (SELECT d.payload FROM rollout_data AS d
         WHERE d.id = h.no << 32) AS session_meta
  FROM rollout_heads AS h
  LEFT JOIN rollout_about AS a ON a.no = h.no;

CREATE TRIGGER IF NOT EXISTS main.rollouts_insert
INSTEAD OF INSERT ON rollouts
BEGIN
  SELECT RAISE(ABORT, 'Invalid session meta: it must be a JSON object whose id, if it has one, is that of the conversation')
   WHERE NEW.session_meta IS NOT NULL
     AND CASE WHEN NOT (json_valid(NEW.session_meta)
                        OR json_valid(NEW.session_meta)) THEN 1
              WHEN json_type(NEW.session_meta) <> 'object' THEN 1
              ELSE lower(NEW.session_meta ->> 'id') <> lower(NEW.id) END;
  SELECT RAISE(ABORT, 'Invalid session meta: what it says cannot be given beside it (instructions only where it has none)')
   WHERE NEW.session_meta IS NOT NULL
     AND (coalesce(NEW.source, NEW.cwd, NEW.originator, NEW.cli_version,
            NEW.model_provider, NEW.forked_from) IS NOT NULL
          OR NEW.session_meta ->> 'instructions' <> NEW.instructions);
  SELECT RAISE(ABORT, 'ReadOnlyError: the counters of a conversation follow from its items; leave them out')
   WHERE coalesce(NEW.item_count, NEW.last_sequence, NEW.has_user_event,
           NEW.turns, NEW.bytes, NEW.first_user_message) IS NOT NULL;
  INSERT INTO rollout_heads(id, created, updated, expires_at, status)
  SELECT coalesce(lower(NEW.id), lower(NEW.session_meta ->> 'id'),
           (SELECT id FROM rollout_fresh)),
         at,
         coalesce(NEW.updated, at),
         CASE WHEN NEW.expires_at IS NULL THEN at + 86400000 *
                (SELECT value FROM blackbox_limits
                  WHERE name = 'rollout.ttl_days')
              WHEN NEW.expires_at = 'permanent' THEN NULL
              ELSE NEW.expires_at END,
         coalesce(NEW.status, 'active')
    FROM (SELECT coalesce(NEW.created, (SELECT now FROM rollout_fresh)) AS at);
  INSERT INTO rollout_data(id, timestamp, type, payload)
  SELECT h.no << 32, h.created, 'session_meta',
         CASE WHEN NEW.session_meta IS NULL THEN
                -- json_patch leaves out what is NULL in its second argument
                json_patch(
                  json_object('id', h.id, 'timestamp', iso,
                    'cwd', coalesce(NEW.cwd, ''),
                    'originator', coalesce(NEW.originator, 'blackbox'),
                    'cli_version', coalesce(NEW.cli_version, '1.0.0'),
                    'instructions', NEW.instructions),
                  json_object('source', NEW.source,
                    'model_provider', NEW.model_provider,
                    'forked_from_id', NEW.forked_from))
              WHEN NEW.session_meta ->> 'id' IS NOT NULL
               AND NEW.session_meta ->> 'timestamp' IS NOT NULL
               AND (NEW.instructions IS NULL OR
                    NEW.session_meta ->> 'instructions' IS NOT NULL)
                THEN NEW.session_meta
              ELSE
                json_patch(
                  json_set(NEW.session_meta, '$.id', h.id, '$.timestamp', json(
                    coalesce(nullif(NEW.session_meta -> 'timestamp', 'null'),
                             json_quote(iso)))),
                  CASE WHEN NEW.instructions IS NULL THEN '{}'
                       ELSE json_object('instructions', NEW.instructions) END) END
    FROM (SELECT *, strftime('%Y-%m-%dT%H:%M:%fZ', created / 1000.0,
                             'unixepoch') AS iso
            FROM rollout_heads) AS h
   WHERE changes() = 1 AND h.no = last_insert_rowid();
  UPDATE rollout_about SET title = NEW.title
   WHERE NEW.title IS NOT NULL
     AND changes() = 1 AND no = last_insert_rowid() >> 32;
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_update
INSTEAD OF UPDATE ON rollouts
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: of a conversation only status, expires_at, title and session_meta can be changed; the rest follows from its items')
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
      OR NEW.first_user_message IS NOT OLD.first_user_message;
  UPDATE rollout_heads
     SET status = NEW.status,
         expires_at = nullif(NEW.expires_at, 'permanent')
   WHERE id = OLD.id
     AND (NEW.status IS NOT OLD.status OR NEW.expires_at IS NOT OLD.expires_at);
  UPDATE rollout_data SET payload = NEW.session_meta
   WHERE NEW.session_meta IS NOT OLD.session_meta
     AND id = (SELECT no << 32 FROM rollout_heads WHERE id = OLD.id);
  UPDATE rollout_about SET title = NEW.title
   WHERE NEW.title IS NOT OLD.title
     AND no = (SELECT no FROM rollout_heads WHERE id = OLD.id);
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_delete
INSTEAD OF DELETE ON rollouts
BEGIN
  DELETE FROM rollout_heads WHERE id = OLD.id;
END;

-- A conversation's items come in order, without a sort when it is one by its id.
CREATE VIEW IF NOT EXISTS main.rollout_items AS
SELECT h.id AS rollout,
       d.id & 4294967295 AS sequence,
       d.timestamp AS timestamp,
       d.type AS type,
       d.payload AS payload
  FROM rollout_heads AS h
 CROSS JOIN rollout_segments AS s ON s.rollout = h.no
 CROSS JOIN rollout_data AS d
    ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last
 ORDER BY h.no, s.first, d.id;

CREATE TRIGGER IF NOT EXISTS main.rollout_items_insert
INSTEAD OF INSERT ON rollout_items
BEGIN
  SELECT RAISE(ABORT, 'Rollout not found: start it with INSERT INTO rollouts(id) or rollout_create()')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads
                      WHERE id = lower(NEW.rollout));
  SELECT RAISE(ABORT, 'SequenceError: the sequence of a new item is the last one plus 1; leave it out')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout)
     AND NEW.sequence IS NOT NULL AND NEW.sequence IS NOT last_sequence + 1;
  SELECT RAISE(ABORT, 'Invalid item format: a timestamp is whole milliseconds since 1970')
   WHERE NEW.timestamp IS NOT CAST(NEW.timestamp AS INTEGER);
  SELECT RAISE(ABORT, 'Rollout expired: UPDATE rollouts SET expires_at to go on with it')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout)
     AND expires_at < coalesce(NEW.timestamp, (SELECT now FROM rollout_fresh));
  SELECT RAISE(ABORT, 'Invalid item format: a type has no NUL')
   WHERE instr(NEW.type, char(0)) > 0;
  INSERT INTO rollout_data(id, timestamp, type, payload)
  SELECT (no << 32) + last_sequence + 1,
         coalesce(NEW.timestamp, (SELECT now FROM rollout_fresh)),
         NEW.type, NEW.payload
    FROM rollout_heads WHERE id = lower(NEW.rollout);
  -- SQLite does not fire a trigger that is running already.
  SELECT RAISE(ABORT, 'SequenceError: inside a trigger on the tables of conversations, recording into another one needs PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout)
     AND EXISTS (SELECT 1 FROM rollout_data
                  WHERE id = (no << 32) + last_sequence + 1);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_items_update
INSTEAD OF UPDATE ON rollout_items
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: of an item only the payload can be changed')
   WHERE NEW.rollout IS NOT OLD.rollout OR NEW.sequence IS NOT OLD.sequence
      OR NEW.timestamp IS NOT OLD.timestamp OR NEW.type IS NOT OLD.type;
  UPDATE rollout_data SET payload = NEW.payload
   WHERE id = (SELECT (s.owner << 32) + OLD.sequence
                 FROM rollout_heads AS h
                 JOIN rollout_segments AS s ON s.rollout = h.no
                WHERE h.id = OLD.rollout
                  AND OLD.sequence BETWEEN s.first AND s.last);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_items_delete
INSTEAD OF DELETE ON rollout_items
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: items go only with their conversation; DELETE FROM rollouts, or UPDATE a payload');
END;

CREATE VIEW IF NOT EXISTS main.rollout_log AS
SELECT rollout AS rollout_id,
       '{"type":' || json_quote(type)
         || coalesce(',"payload":' || payload, '') || '}' AS item,
       type AS type,
       payload AS payload,
       timestamp AS timestamp
  FROM rollout_items;

-- An item comes whole, or as type and payload. A timestamp is also the clock
-- by which the conversation may have expired.
CREATE TRIGGER IF NOT EXISTS main.rollout_log_insert
INSTEAD OF INSERT ON rollout_log
BEGIN
  SELECT RAISE(ABORT, 'Rollout not found: start it with INSERT INTO rollouts(id) or rollout_create()')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads
                      WHERE id = lower(NEW.rollout_id));
  SELECT RAISE(ABORT, 'Invalid item format: a timestamp is whole milliseconds since 1970')
   WHERE NEW.timestamp IS NOT CAST(NEW.timestamp AS INTEGER);
  SELECT RAISE(ABORT, 'Rollout expired: UPDATE rollouts SET expires_at to go on with it')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout_id)
     AND expires_at < coalesce(NEW.timestamp, (SELECT now FROM rollout_fresh));
  SELECT RAISE(ABORT, 'Invalid item format: give item, a JSON object with a type, or type and payload, JSON too')
   WHERE CASE WHEN NEW.item IS NULL THEN
                typeof(NEW.type) <> 'text' OR NEW.type = ''
                OR instr(NEW.type, char(0)) > 0
                OR (NEW.payload IS NOT NULL
                    AND NOT (json_valid(NEW.payload) OR json_valid(NEW.payload)))
              WHEN NEW.type IS NOT NULL OR NEW.payload IS NOT NULL THEN 1
              WHEN NOT (json_valid(NEW.item) OR json_valid(NEW.item)) THEN 1
              WHEN json_type(NEW.item) <> 'object' THEN 1
              ELSE json_type(NEW.item, '$.type') IS NOT 'text'
                   OR NEW.item ->> 'type' = ''
                   OR instr(replace(NEW.item -> 'type', '\\', ''), '\u0000') > 0
                   -- half a pair has no UTF-8, and a whole one no need of it
                   OR lower(replace(NEW.item -> 'type', '\\', ''))
                      GLOB '*\ud[89a-f]*'
               END;
  INSERT INTO rollout_data(id, timestamp, type, payload)
  SELECT (h.no << 32) + h.last_sequence + 1,
         coalesce(NEW.timestamp, (SELECT now FROM rollout_fresh)),
         i.type, i.payload
    FROM rollout_heads AS h,
         (SELECT type, payload, lower(replace(type, '_', '')) AS t,
                 CASE WHEN payload IS NULL THEN ''
                      ELSE nullif(lower(replace(payload ->> 'type', '_', '')),
                                  '') END AS p
            FROM (SELECT coalesce(NEW.type, NEW.item ->> 'type') AS type,
                         coalesce(NEW.payload, NEW.item -> 'payload')
                           AS payload)) AS i
   WHERE h.id = lower(NEW.rollout_id)
     AND coalesce(
           (SELECT keep FROM rollout_rules
             WHERE item_key = i.t AND payload_key = coalesce(i.p, '*')),
           (SELECT keep FROM rollout_rules
             WHERE item_key = i.t AND payload_key = '*' AND i.p IS NOT ''),
           (SELECT keep FROM rollout_rules
             WHERE item_key = '*' AND payload_key = coalesce(i.p, '*')),
           (SELECT keep FROM rollout_rules
             WHERE item_key = '*' AND payload_key = '*' AND i.p IS NOT ''));
  INSERT INTO rollout_drops(no, item_type, payload_type, items, bytes)
  SELECT h.no, substr(i.type, 1, 100),
         substr(coalesce(i.payload ->> 'type', ''), 1, 100), 1,
         coalesce(length(CAST(i.payload AS BLOB)), 0)
    FROM rollout_heads AS h,
         (SELECT coalesce(NEW.type, NEW.item ->> 'type') AS type,
                 coalesce(NEW.payload, NEW.item -> 'payload') AS payload) AS i
   WHERE h.id = lower(NEW.rollout_id) AND changes() = 0
      ON CONFLICT (no, item_type, payload_type) DO UPDATE
     SET items = items + 1, bytes = bytes + excluded.bytes;
  -- SQLite does not fire a trigger that is running already.
  SELECT RAISE(ABORT, 'SequenceError: inside a trigger on the tables of conversations, recording into another one needs PRAGMA recursive_triggers = ON')
    FROM rollout_heads
   WHERE id = lower(NEW.rollout_id)
     AND EXISTS (SELECT 1 FROM rollout_data
                  WHERE id = (no << 32) + last_sequence + 1);
END;

-- What an append or an import has made up its mind about: an item to keep, or
-- (dropped > 0) how many of one kind are only to be counted. The first item of a
-- conversation that is not there yet starts it.
CREATE VIEW IF NOT EXISTS main.rollout_imports AS
SELECT NULL AS rollout, NULL AS now, NULL AS timestamp, NULL AS type,
       NULL AS look, NULL AS payload, NULL AS payload_type, NULL AS dropped,
       NULL AS bytes
 WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.rollout_imports_insert
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

-- turn counts the user's messages from 0, without those that a rollback took
-- back: what comes before it is shared.
-- NULL shares all there is.
CREATE VIEW IF NOT EXISTS main.rollout_forks AS
SELECT a.forked_from AS parent, NULL AS turn, h.id AS id, h.created AS created
  FROM rollout_heads AS h JOIN rollout_about AS a ON a.no = h.no
 WHERE a.forked_from IS NOT NULL;

CREATE TRIGGER IF NOT EXISTS main.rollout_forks_insert
INSTEAD OF INSERT ON rollout_forks
BEGIN
  SELECT RAISE(ABORT, 'Rollout not found: no conversation with that id to fork')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads
                      WHERE id = lower(NEW.parent) AND last_sequence >= 0);
  SELECT RAISE(ABORT, 'RolloutExistsError: the fork needs an id of its own')
    FROM rollout_heads WHERE id = lower(NEW.id);
  SELECT RAISE(ABORT, 'Invalid time: created is whole milliseconds since 1970')
   WHERE NEW.created IS NOT NULL
     AND (typeof(NEW.created) NOT IN ('integer', 'real')
          OR NEW.created <> CAST(NEW.created AS INTEGER)
          OR NEW.created NOT BETWEEN 0 AND 253402300799999);
  SELECT RAISE(ABORT, 'Rollout expired: UPDATE rollouts SET expires_at to go on with it')
    FROM rollout_heads
   WHERE id = lower(NEW.parent)
     AND expires_at < coalesce(NEW.created, (SELECT now FROM rollout_fresh));
  SELECT RAISE(ABORT, 'Invalid turn: it must be a whole number from 0 to the turns of the conversation (column turns of rollouts)')
    FROM rollout_heads
   WHERE id = lower(NEW.parent) AND NEW.turn IS NOT NULL
     AND (typeof(NEW.turn) NOT IN ('integer', 'real')
          OR NEW.turn <> CAST(NEW.turn AS INTEGER)
          OR NEW.turn NOT BETWEEN 0 AND turns);
  SELECT RAISE(ABORT, 'Corrupted rollout: the payload of item 0 is no JSON; UPDATE rollouts SET session_meta mends it')
    FROM rollout_heads AS h JOIN rollout_data AS d ON d.id = h.no << 32
   WHERE h.id = lower(NEW.parent)
     AND NOT (json_valid(d.payload) OR json_valid(d.payload));
  INSERT INTO rollout_heads(id, created, updated, expires_at)
  SELECT coalesce(lower(NEW.id), id), at, at,
         at + 86400000 * (SELECT value FROM blackbox_limits
                           WHERE name = 'rollout.ttl_days')
    FROM (SELECT id, coalesce(NEW.created, now) AS at FROM rollout_fresh);
  UPDATE rollout_act SET made = last_insert_rowid();
  INSERT INTO rollout_data(id, timestamp, type, payload)
  SELECT f.no << 32, f.created, 'session_meta',
         json_set(d.payload, '$.id', f.id,
           '$.timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', f.created / 1000.0,
                                   'unixepoch'),
           '$.forked_from_id', h.id)
    FROM rollout_heads AS h
    JOIN rollout_data AS d ON d.id = h.no << 32
    JOIN rollout_heads AS f ON f.no = (SELECT made FROM rollout_act)
   WHERE h.id = lower(NEW.parent);
  -- "cut" is the first sequence that the fork does not share.
  UPDATE rollout_heads
     SET (last_sequence, turns, user_sequence) =
         (SELECT max(p.cut - 1, 0), p.turn,
                 CASE WHEN p.user_sequence < p.cut THEN p.user_sequence END
            FROM (SELECT h.user_sequence,
                         coalesce(CAST(NEW.turn AS INTEGER), h.turns) AS turn,
                         coalesce((SELECT max(t.sequence)
                                     FROM rollout_segments AS s
                                     JOIN rollout_turns AS t
                                       ON t.owner = s.owner
                                      AND t.number = CAST(NEW.turn AS INTEGER)
                                    WHERE s.rollout = h.no
                                      AND NEW.turn < h.turns
                                      AND t.sequence BETWEEN s.first AND s.last),
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
     SET (title, prompt_id, first_user_message) =
         (SELECT coalesce(rollout_about.title, a.title),
                 CASE WHEN f.turns > 0 THEN a.prompt_id END,
                 CASE WHEN f.turns > 0 THEN a.first_user_message END
            FROM rollout_heads AS h JOIN rollout_about AS a ON a.no = h.no,
                 rollout_heads AS f
           WHERE h.id = lower(NEW.parent) AND f.no = rollout_about.no)
   WHERE no = (SELECT made FROM rollout_act);
END;

-- Columns are arguments: now (milliseconds; NULL: the clock) and max_rows
-- (NULL: all). rows of rollout_act then says how many went.
CREATE VIEW IF NOT EXISTS main.rollout_cleanup AS
SELECT NULL AS now, NULL AS max_rows WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.rollout_cleanup_insert
INSTEAD OF INSERT ON rollout_cleanup
BEGIN
  SELECT RAISE(ABORT, 'Invalid time: now is whole milliseconds since 1970')
   WHERE NEW.now IS NOT NULL
     AND (typeof(NEW.now) NOT IN ('integer', 'real')
          OR NEW.now <> CAST(NEW.now AS INTEGER)
          OR NEW.now NOT BETWEEN 0 AND 253402300799999);
  UPDATE rollout_act
     SET rule = 'rollout.expired', rows = 0, bytes = 0,
         now = coalesce(NEW.now, (SELECT now FROM rollout_fresh));
  INSERT INTO retention_log(at, domain, rule, rows, bytes, oldest, newest)
  SELECT act.now, 'rollout', act.rule, count(*), 0, min(d.at), max(d.at)
    FROM rollout_act AS act,
         (SELECT at FROM rollout_due
           WHERE blocked_by IS NULL AND at < (SELECT now FROM rollout_act)
           ORDER BY at, key LIMIT coalesce(NEW.max_rows, -1)) AS d
   GROUP BY NULL; -- no row for none; SQLite 3.38 has no HAVING without it
  UPDATE rollout_act -- rows: for now, which receipt it is
     SET rows = CASE changes() WHEN 0 THEN 0
                ELSE (SELECT max(id) FROM retention_log) END;
  DELETE FROM rollout_heads
   WHERE id IN (SELECT key FROM rollout_due
                 WHERE blocked_by IS NULL AND at < (SELECT now FROM rollout_act)
                 ORDER BY at, key LIMIT coalesce(NEW.max_rows, -1));
  -- A trigger of the user's may have kept some.
  UPDATE retention_log
     SET rows = changes(), bytes = (SELECT bytes FROM rollout_act)
   WHERE id = (SELECT rows FROM rollout_act);
  DELETE FROM retention_log
   WHERE id = (SELECT rows FROM rollout_act) AND rows = 0;
  UPDATE rollout_act
     SET rule = NULL,
         rows = coalesce((SELECT rows FROM retention_log
                           WHERE id = rollout_act.rows), 0);
END;

-------------------------------------------------------------------- heads

CREATE TABLE IF NOT EXISTS main.rollout_heads(
  no            INTEGER PRIMARY KEY AUTOINCREMENT,
  id            TEXT NOT NULL UNIQUE,
  created       INTEGER NOT NULL DEFAULT (
    CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  updated       INTEGER NOT NULL DEFAULT (
    CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)),
  expires_at    INTEGER, -- NULL: never
  status        TEXT NOT NULL DEFAULT 'active',
  last_sequence INTEGER NOT NULL DEFAULT -1,
  user_sequence INTEGER, -- of the first user event
  turns         INTEGER NOT NULL DEFAULT 0,
  bytes         INTEGER NOT NULL DEFAULT 0, -- of its own items' payloads
  looked        INTEGER NOT NULL DEFAULT -1, -- last item that was looked into
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

-- What a list shows, newest first.
CREATE INDEX IF NOT EXISTS main.rollout_recent
ON rollout_heads(updated, id) WHERE user_sequence IS NOT NULL;

CREATE INDEX IF NOT EXISTS main.rollout_expiry
ON rollout_heads(expires_at, id) WHERE expires_at IS NOT NULL;

-- An INSERT that meets a head notes its id here; when it goes through all the
-- same it was a REPLACE. (A BEFORE guard alone would refuse upserts as well.)
-- Triggers can nest them, so each looks at its own note. Upserts leave theirs:
-- the newest 100 stay.
CREATE TABLE IF NOT EXISTS main.rollout_clash(
  number INTEGER PRIMARY KEY,
  id     TEXT NOT NULL UNIQUE
);

CREATE TRIGGER IF NOT EXISTS main.rollout_heads_before
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

CREATE TRIGGER IF NOT EXISTS main.rollout_heads_insert
AFTER INSERT ON rollout_heads
BEGIN
  SELECT RAISE(ABORT, 'RolloutExistsError: a conversation cannot be replaced; UPDATE it, or DELETE it first')
    FROM rollout_clash WHERE id = NEW.id;
  INSERT INTO rollout_segments(rollout, first, owner, last)
  VALUES (NEW.no, 0, NEW.no, 4294967295);
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_heads_keep
BEFORE UPDATE OF no, id ON rollout_heads
WHEN NEW.no IS NOT OLD.no OR NEW.id IS NOT OLD.id
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: the id of a conversation cannot be changed');
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_heads_order
BEFORE UPDATE OF looked ON rollout_heads WHEN NEW.looked < OLD.looked
BEGIN
  SELECT RAISE(ABORT, 'SequenceError: a trigger on rollout_data cannot record into the conversation that is being written');
END;

-- What has to be read out of an item's text. It is a trigger of its own, and on
-- this table, because SQLite lays out all of a trigger's memory whenever it
-- fires, and most items need none of it.
CREATE TRIGGER IF NOT EXISTS main.rollout_heads_look
AFTER UPDATE OF looked ON rollout_heads WHEN NEW.looked > OLD.looked
BEGIN
  SELECT RAISE(ABORT, 'Invalid item format: the payload must be well-formed JSON, not nested too deeply')
    FROM rollout_data
   WHERE id = (NEW.no << 32) + NEW.looked
     AND payload IS NOT NULL
     AND NOT (json_valid(payload) OR json_valid(payload));
  SELECT RAISE(ABORT, 'Invalid item format: item 0 of a conversation is its session_meta, with an object as payload')
    FROM rollout_data
   WHERE NEW.looked = 0 AND id = NEW.no << 32
     AND (lower(replace(type, '_', '')) <> 'sessionmeta'
          OR json_type(payload) IS NOT 'object');
  INSERT INTO rollout_about(no, title, source, cwd, originator, cli_version,
                            model_provider, forked_from)
  SELECT NEW.no, payload ->> 'title', payload ->> 'source', payload ->> 'cwd',
         payload ->> 'originator',
         coalesce(payload ->> 'cli_version', payload ->> 'cliVersion'),
         coalesce(payload ->> 'model_provider', payload ->> 'modelProvider'),
         coalesce(payload ->> 'forked_from_id', payload ->> 'forkedFromId')
    FROM rollout_data WHERE NEW.looked = 0 AND id = NEW.no << 32;
  UPDATE rollout_heads SET user_sequence = NEW.looked
   WHERE no = NEW.no AND user_sequence IS NULL
     AND EXISTS (SELECT 1 FROM rollout_texts
                  WHERE id = (NEW.no << 32) + NEW.looked AND role = 'user');
  -- A turn begins with a user's message. Some recorders tell of it twice, by
  -- an item and by an event: the second does not begin another, unless a
  -- rollback lies between.
  INSERT INTO rollout_turns(owner, number, sequence)
  SELECT NEW.no, NEW.turns, NEW.looked
    FROM rollout_texts AS x
   WHERE x.id = (NEW.no << 32) + NEW.looked AND x.role = 'user'
     AND NOT EXISTS (SELECT 1 FROM rollout_preambles AS p
                      WHERE substr(x.text, 1, length(p.prefix)) = p.prefix)
     AND NOT EXISTS (
           SELECT 1
             FROM (SELECT (s.owner << 32) + t.sequence AS id, t.sequence
                     FROM rollout_segments AS s
                     JOIN rollout_turns AS t
                       ON t.owner = s.owner AND t.number = NEW.turns - 1
                      AND t.sequence BETWEEN s.first AND s.last
                    WHERE s.rollout = NEW.no
                    ORDER BY t.sequence DESC LIMIT 1) AS last
             JOIN rollout_texts AS y ON y.id = last.id
            WHERE y.source <> x.source
              AND coalesce(y.text, '') = coalesce(x.text, '')
              AND NOT EXISTS (
                    SELECT 1
                      FROM rollout_segments AS s
                      JOIN rollout_marks AS m
                        ON m.id BETWEEN (s.owner << 32)
                                        + max(s.first, last.sequence)
                                    AND (s.owner << 32) + s.last
                     WHERE s.rollout = NEW.no AND m.kind = 'rollback'));
  UPDATE rollout_heads SET turns = turns + 1
   WHERE no = NEW.no
     AND EXISTS (SELECT 1 FROM rollout_turns
                  WHERE owner = NEW.no AND number = NEW.turns
                    AND sequence = NEW.looked);
  UPDATE rollout_about
     SET prompt_id = (NEW.no << 32) + NEW.looked,
         first_user_message = (SELECT substr(text, 1, 200) FROM rollout_texts
                                WHERE id = (NEW.no << 32) + NEW.looked)
   WHERE no = NEW.no AND prompt_id IS NULL
     AND EXISTS (SELECT 1 FROM rollout_turns
                  WHERE owner = NEW.no AND number = NEW.turns
                    AND sequence = NEW.looked);
  INSERT INTO rollout_marks(id, kind, first)
  SELECT id, 'compaction', NULL
    FROM rollout_data
   WHERE id = (NEW.no << 32) + NEW.looked AND lower(type) = 'compacted'
     AND 'array' IN (json_type(payload, '$.replacement_history'),
                     json_type(payload, '$.replacementHistory'))
   UNION ALL
  SELECT d.id, 'rollback', max((SELECT max(sequence) FROM rollout_turns
                                WHERE owner = s.owner AND number = d.number
                                  AND sequence BETWEEN s.first AND s.last)) AS begun
    FROM (SELECT id, max(0, NEW.turns -
                 CAST(coalesce(payload ->> 'num_turns', payload ->> 'numTurns')
                      AS INTEGER)) AS number
            FROM rollout_data
           WHERE id = (NEW.no << 32) + NEW.looked
             AND lower(replace(type, '_', '')) = 'eventmsg'
             AND lower(replace(payload ->> 'type', '_', ''))
                 = 'threadrolledback') AS d,
         rollout_segments AS s
   WHERE s.rollout = NEW.no AND d.number < NEW.turns
   GROUP BY NULL
  HAVING begun IS NOT NULL;
  UPDATE rollout_heads
     SET turns = (SELECT max(0, NEW.turns -
                         CAST(coalesce(payload ->> 'num_turns',
                                       payload ->> 'numTurns') AS INTEGER))
                    FROM rollout_data WHERE id = (NEW.no << 32) + NEW.looked)
   WHERE no = NEW.no
     AND EXISTS (SELECT 1 FROM rollout_marks
                  WHERE id = (NEW.no << 32) + NEW.looked AND kind = 'rollback');
END;

-- Items that a fork shows stay. What goes is summed up in rollout_act: the
-- head's own count where nothing was shared, else item by item.
CREATE TRIGGER IF NOT EXISTS main.rollout_heads_delete
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

----------------------------------------------------------------- segments

CREATE TABLE IF NOT EXISTS main.rollout_segments(
  rollout INTEGER NOT NULL,
  first   INTEGER NOT NULL, -- sequences first to last ...
  owner   INTEGER NOT NULL, -- ... are the items of this number
  last    INTEGER NOT NULL,
  PRIMARY KEY (rollout, first)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS main.rollout_owner
ON rollout_segments(owner, last);

CREATE TRIGGER IF NOT EXISTS main.rollout_segments_stay
BEFORE DELETE ON rollout_segments
WHEN EXISTS (SELECT 1 FROM rollout_heads WHERE no = OLD.rollout)
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: items go only with their conversation; DELETE FROM rollouts, or UPDATE a payload');
END;

-- Of an owner's items, what no conversation shows any more goes.
CREATE TRIGGER IF NOT EXISTS main.rollout_segments_delete
AFTER DELETE ON rollout_segments
BEGIN
  UPDATE rollout_act
     SET bytes = bytes + (
           SELECT coalesce(sum(length(CAST(payload AS BLOB))), 0)
             FROM rollout_data
            WHERE id BETWEEN OLD.owner << 32 AND (OLD.owner << 32) + 4294967295
              AND (id < (OLD.owner << 32) + (SELECT coalesce(min(first), 0)
                          FROM rollout_segments WHERE owner = OLD.owner)
                OR id > (OLD.owner << 32) + (SELECT coalesce(max(last), -1)
                          FROM rollout_segments WHERE owner = OLD.owner)))
   WHERE OLD.owner <> OLD.rollout
      OR EXISTS (SELECT 1 FROM rollout_segments
                  WHERE owner = OLD.owner AND rollout <> OLD.rollout);
  DELETE FROM rollout_data
   WHERE id BETWEEN OLD.owner << 32 AND (OLD.owner << 32) - 1 +
           coalesce((SELECT min(first) FROM rollout_segments
                      WHERE owner = OLD.owner), 0);
  DELETE FROM rollout_data
   WHERE id BETWEEN (OLD.owner << 32) + 1 +
           coalesce((SELECT max(last) FROM rollout_segments
                      WHERE owner = OLD.owner), -1)
         AND (OLD.owner << 32) + 4294967295;
  DELETE FROM rollout_turns
   WHERE owner = OLD.owner
     AND NOT EXISTS (SELECT 1 FROM rollout_segments
                      WHERE owner = OLD.owner
                        AND last >= rollout_turns.sequence);
  DELETE FROM rollout_marks
   WHERE id BETWEEN OLD.owner << 32 AND (OLD.owner << 32) + 4294967295
     AND NOT EXISTS (SELECT 1 FROM rollout_segments
                      WHERE owner = OLD.owner
                        AND last >= rollout_marks.id & 4294967295);
END;

-------------------------------------------------------------------- items

-- look is 1, or 0 where the writer knows that the item is no user message, no
-- compaction, no rollback and no session_meta, and that its payload is JSON:
-- then nothing needs to be read from the text. It is 2 more where the writer,
-- in the same savepoint, has counted the item in its head before; should that
-- not be so, rollout_check tells.
CREATE TABLE IF NOT EXISTS main.rollout_data(
  id        INTEGER PRIMARY KEY,
  timestamp INTEGER NOT NULL,
  type      TEXT NOT NULL,
  look      INTEGER NOT NULL DEFAULT 1,
  payload   TEXT, -- JSON as it was given; NULL: the item had none
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

CREATE TRIGGER IF NOT EXISTS main.rollout_data_insert
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

CREATE TRIGGER IF NOT EXISTS main.rollout_data_once
BEFORE INSERT ON rollout_data
WHEN EXISTS (SELECT 1 FROM rollout_data WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: an item is never overwritten, UPDATE its payload; nor can a trigger on rollout_data record into the conversation that is being written');
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_data_keep
BEFORE UPDATE OF id, timestamp, type, look ON rollout_data
WHEN NEW.id IS NOT OLD.id OR NEW.timestamp IS NOT OLD.timestamp
  OR NEW.type IS NOT OLD.type OR NEW.look IS NOT OLD.look
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: of an item only the payload can be changed');
END;

-- A payload can be redacted or mended, not made into something else.
CREATE TRIGGER IF NOT EXISTS main.rollout_data_update
AFTER UPDATE OF payload ON rollout_data
BEGIN
  SELECT RAISE(ABORT, 'Invalid item format: the payload must be well-formed JSON, not nested too deeply')
   WHERE NEW.payload IS NULL
      OR NOT (json_valid(NEW.payload) OR json_valid(NEW.payload));
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

CREATE TRIGGER IF NOT EXISTS main.rollout_data_stay
BEFORE DELETE ON rollout_data
WHEN EXISTS (SELECT 1 FROM rollout_segments
              WHERE owner = OLD.id >> 32 AND last >= OLD.id & 4294967295
                AND first <= OLD.id & 4294967295)
BEGIN
  SELECT RAISE(ABORT, 'AppendOnlyError: items go only with their conversation; DELETE FROM rollouts, or UPDATE a payload');
END;

CREATE TABLE IF NOT EXISTS main.rollout_marks(
  id    INTEGER PRIMARY KEY,
  kind  TEXT NOT NULL CHECK (kind IN ('compaction', 'rollback')),
  first INTEGER -- sequence: a rollback takes back all from there to itself
);

-- After a rollback a number is given again: of those that a conversation shows,
-- the last one with that number is its turn.
CREATE TABLE IF NOT EXISTS main.rollout_turns(
  owner    INTEGER NOT NULL,
  number   INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (owner, number, sequence)
) WITHOUT ROWID;

-------------------------------------------------------------------- policy

-- '*' is any payload, '' an item without one. Names match whether they are
-- written some_name or SomeName. A pair counts before a '*'.
CREATE TABLE IF NOT EXISTS main.rollout_policy(
  preset       TEXT NOT NULL CHECK (preset <> '' AND instr(preset, ',') = 0),
  item_type    TEXT NOT NULL,
  payload_type TEXT NOT NULL DEFAULT '*',
  keep         INTEGER NOT NULL DEFAULT 1 CHECK (keep IN (0, 1)),
  item_key     TEXT AS (lower(replace(item_type, '_', ''))) VIRTUAL,
  payload_key  TEXT AS (lower(replace(payload_type, '_', ''))) VIRTUAL
);

CREATE UNIQUE INDEX IF NOT EXISTS main.rollout_policy_key
ON rollout_policy(preset, item_key, payload_key);

-- The presets are the choices of the setting.
CREATE TRIGGER IF NOT EXISTS main.rollout_policy_insert
AFTER INSERT ON rollout_policy
BEGIN
  UPDATE blackbox_setting_defs
     SET choices = (SELECT group_concat(preset, ', ')
                      FROM (SELECT DISTINCT preset FROM rollout_policy))
   WHERE name = 'rollout.policy'
     AND instr(', ' || choices || ', ', ', ' || NEW.preset || ', ') = 0;
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_policy_update
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

CREATE TRIGGER IF NOT EXISTS main.rollout_policy_delete
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

INSERT INTO main.blackbox_setting_defs(name, kind, preset, low, high, choices, meaning)
VALUES
  ('rollout.policy', 'choice', 'codex', NULL, NULL, 'codex, everything',
   'preset of rollout_policy that says which items are kept'),
  ('rollout.ttl_days', 'integer', 60, 0, 36500, NULL,
   'days until a new conversation expires when nothing is said')
ON CONFLICT (name) DO UPDATE
SET kind = excluded.kind, preset = excluded.preset, low = excluded.low,
    high = excluded.high, meaning = excluded.meaning;

INSERT INTO main.rollout_policy(preset, item_type, payload_type)
VALUES
  ('codex', 'session_meta', '*'), ('codex', 'compacted', '*'),
  ('codex', 'turn_context', '*'), ('codex', 'content_replacement', '*'),
  ('codex', 'plan_artifact', '*'), ('codex', 'turn_start', '*'),
  ('codex', 'turn_completion', '*'),
  ('codex', 'inter_agent_communication', '*'),
  ('codex', 'inter_agent_communication_metadata', '*'),
  ('codex', 'token_usage_record', '*'), ('codex', 'world_state', '*'),
  ('codex', 'retained_context', '*'), ('codex', 'security_risk_score', '*'),
  ('codex', 'response_item', 'message'),
  ('codex', 'response_item', 'reasoning'),
  ('codex', 'response_item', 'local_shell_call'),
  ('codex', 'response_item', 'function_call'),
  ('codex', 'response_item', 'function_call_output'),
  ('codex', 'response_item', 'custom_tool_call'),
  ('codex', 'response_item', 'custom_tool_call_output'),
  ('codex', 'response_item', 'web_search_call'),
  ('codex', 'response_item', 'agent_message'),
  ('codex', 'response_item', 'additional_tools'),
  ('codex', 'response_item', 'tool_search_call'),
  ('codex', 'response_item', 'tool_search_output'),
  ('codex', 'response_item', 'image_generation_call'),
  ('codex', 'response_item', 'compaction'),
  ('codex', 'response_item', 'context_compaction'),
  ('codex', 'event_msg', 'user_message'),
  ('codex', 'event_msg', 'agent_message'),
  ('codex', 'event_msg', 'agent_reasoning'),
  ('codex', 'event_msg', 'agent_reasoning_raw_content'),
  ('codex', 'event_msg', 'token_count'),
  ('codex', 'event_msg', 'entered_review_mode'),
  ('codex', 'event_msg', 'exited_review_mode'),
  ('codex', 'event_msg', 'turn_aborted'),
  ('codex', 'event_msg', 'turn_started'),
  ('codex', 'event_msg', 'task_started'),
  ('codex', 'event_msg', 'turn_complete'),
  ('codex', 'event_msg', 'task_complete'),
  ('codex', 'event_msg', 'thread_name_updated'),
  ('codex', 'event_msg', 'thread_rolled_back'),
  ('codex', 'event_msg', 'thread_goal_updated'),
  ('codex', 'event_msg', 'thread_settings_applied'),
  ('codex', 'event_msg', 'context_compacted'),
  ('codex', 'event_msg', 'undo_completed'),
  ('codex', 'event_msg', 'item_completed'),
  ('codex', 'event_msg', 'patch_apply_end'),
  ('codex', 'event_msg', 'mcp_tool_call_end'),
  ('codex', 'event_msg', 'web_search_end'),
  ('codex', 'event_msg', 'image_generation_end'),
  ('codex', 'event_msg', 'sub_agent_activity'), ('everything', '*', '*'),
  ('everything', '*', '')
ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS main.rollout_drops(
  no           INTEGER NOT NULL,
  item_type    TEXT NOT NULL,
  payload_type TEXT NOT NULL,
  items        INTEGER NOT NULL,
  bytes        INTEGER NOT NULL,
  PRIMARY KEY (no, item_type, payload_type)
) WITHOUT ROWID;

-- Messages of role user that begin like this are the program's, not the
-- user's: they begin no turn.
CREATE TABLE IF NOT EXISTS main.rollout_preambles(
  prefix TEXT PRIMARY KEY CHECK (prefix <> '')
) WITHOUT ROWID;

INSERT INTO main.rollout_preambles(prefix)
VALUES ('<environment_context>'), ('<user_instructions>'),
       ('<permissions instructions>'), ('<turn_aborted>'),
       ('<subagent_notification>'), ('<user_shell_command>'), ('<skill>'),
       ('# AGENTS.md instructions')
ON CONFLICT DO NOTHING;

----------------------------------------------------------------------- rest

-- One row. rule is the rule that is removing conversations just now, bytes
-- what it has removed so far.
CREATE TABLE IF NOT EXISTS main.rollout_act(
  id   INTEGER PRIMARY KEY CHECK (id = 1),
  rule TEXT,
  rows INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0,
  now  INTEGER,
  made INTEGER -- number of the fork that is being made
);

INSERT INTO main.rollout_act(id) VALUES (1) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS main.rollout_about(
  no                 INTEGER PRIMARY KEY,
  title              TEXT,
  source             TEXT,
  cwd                TEXT,
  originator         TEXT,
  cli_version        TEXT,
  model_provider     TEXT,
  forked_from        TEXT,
  prompt_id          INTEGER, -- item of the first user message
  first_user_message TEXT
);

CREATE INDEX IF NOT EXISTS main.rollout_prompt
ON rollout_about(prompt_id) WHERE prompt_id IS NOT NULL;

INSERT INTO main.retention_rules(rule, domain, "view", setting, unit_ms)
VALUES ('rollout.expired', 'rollout', 'rollout_due', NULL, NULL)
ON CONFLICT (rule) DO UPDATE SET domain = excluded.domain, "view" = excluded."view",
  setting = excluded.setting, unit_ms = excluded.unit_ms;

INSERT INTO main.blackbox_domains(domain, version) VALUES ('rollout', 1)
ON CONFLICT (domain) DO UPDATE SET version = excluded.version;
