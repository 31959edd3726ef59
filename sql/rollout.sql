-- rollout.sql: whole conversations, recorded in order. This file has the views
-- for users, with their triggers. How items are read is in the next two files,
-- then usage and upkeep, and the tables are in the last.
--
-- Continued in sql/rollout_formats.sql
-- Continued in sql/rollout_histories.sql
-- Continued in sql/rollout_usage.sql
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
--   rollout_messages, rollout_tool_calls  views: what was said, and what tools did, in one form for
--                    every format
--   rollout_policy   table: which items are kept, in named presets
--   blackbox_places  table of core: how items are read
-- Below these
--   rollout__heads    a narrow row for each conversation: the counters, the title
--   rollout__about    a wider row for each conversation: what lists show
--   rollout__data     the items, and what stood around them in an imported file;
--                     id = owner's number << 32 | sequence. What reads payloads reads
--                     rollout__items
--   rollout__segments the ranges of items, and their owners, of a conversation
--   rollout__marks    turns, compactions and rollbacks, by the key of their item
--   rollout__texts    where items have messages, calls of tools and results
--   rollout_drops     what the policy dropped, by type
--   rollout__act      one row: the rule that is running, for its receipt
--
-- All files run alone after core.sql, in this order, any number of times. Forks,
-- clean-ups and rebuilds are made in C (ext/rollout/manage.c). rollout_check.sql is
-- a query: the contradictions.
--
-- What is a guard, and holds without the module: an item gets the next sequence,
-- passes the policy, is counted, and stays as it is but for a redaction, which is
-- logged; a list has title, has_user_event and the counters; a deleted conversation
-- takes its items along. What else follows from the items (turns, marks, calls, the
-- rest of rollout__about, the index of the search) is derived in C (ext/rollout/derive.c):
-- for what the module writes at once, and for items of plain SQL, which begin at
-- "behind" of their head, by the next call that writes.
--
-- Invariants: the sequences of a conversation are 0, 1, 2 ... without a gap,
-- and 0 is its session_meta. By ordinary statements on the views an item is never
-- overwritten, moved or deleted while a conversation shows it. After every INSERT the
-- counters of a head are those of the items, and what is derived is that of the items
-- before "behind". A fork shares items by segments, so that items exist as long as any
-- conversation shows them.
--
-- When memory runs out, json_valid() of SQLite before 3.45 returns 0 instead of
-- failing. So the test is repeated with a text that SQLite must allocate first
-- (x || ' '), and that allocation fails.
--
-- Limits: 2,147,483,647 conversations in the life of a database, 4,294,967,295
-- items in one, 67,108,864 bytes in a payload.

CREATE VIEW IF NOT EXISTS main.rollouts AS
SELECT id, created, updated, expires_at, status, last_sequence + 1 AS item_count, last_sequence,
  user_sequence NOTNULL AS has_user_event, turns, bytes, title, source, cwd, originator, cli_version,
  model_provider, forked_from, first_user_message, ifnull(format, 'codex') AS format, source_id, parent,
  agent, model, branch,
  (SELECT payload FROM rollout__items WHERE id = no << 32) AS session_meta
FROM rollout__heads LEFT JOIN rollout__about USING (no);

-- A conversation that exists gets a status that its table refuses: REPLACE would take it.
-- What lists show of the session_meta beside its title is derived by the module.
CREATE TRIGGER IF NOT EXISTS main.rollouts_insert
INSTEAD OF INSERT ON rollouts
BEGIN
  SELECT CASE
    WHEN coalesce(NEW.updated, NEW.item_count, NEW.last_sequence, NEW.has_user_event, NEW.turns, NEW.bytes,
      NEW.source, NEW.cwd, NEW.originator, NEW.cli_version, NEW.model_provider, NEW.forked_from,
      NEW.first_user_message, NEW.format, NEW.source_id, NEW.parent, NEW.agent, NEW.model, NEW.branch) NOTNULL
    THEN RAISE(ABORT, 'ReadOnlyError: give id, created, expires_at, status, title, session_meta; the rest is computed')
    WHEN CASE WHEN json_valid(NEW.session_meta) OR json_valid(NEW.session_meta || ' ')
      THEN json_type(NEW.session_meta) <> 'object' OR lower(NEW.session_meta ->> 'id') <> lower(NEW.id) ELSE NEW.session_meta NOT NULL END
    THEN RAISE(ABORT, 'InvalidSessionMetaError: Invalid session meta: it must be a JSON object with the same id') END e;
  INSERT INTO rollout__heads(id, created, expires_at, title, named, behind, status)
  SELECT n.id, at,
    iif(NEW.expires_at IS NULL, at + 86400000 * (SELECT value FROM blackbox_settings WHERE name = 'rollout.ttl_days'),
        nullif(NEW.expires_at, 'permanent')),
    ifnull(NEW.title, NEW.session_meta ->> 'title'), NEW.title NOTNULL, 1,
    iif((SELECT 1 FROM rollout__heads AS h WHERE h.id = n.id), 'exists', ifnull(NEW.status, 'active'))
  FROM (SELECT lower(coalesce(NEW.id, NEW.session_meta ->> 'id', '')) AS id, ifnull(NEW.created, round(julianday('now') * 864e5 - 210866760e6)) AS at LIMIT 1) AS n;
  INSERT INTO rollout_log
  SELECT CAST(id AS BLOB), 'session_meta', iif(meta ->> 'id' IS NULL OR meta ->> 'timestamp' IS NULL,
    json_set(meta, '$.id', id, '$.timestamp',
      ifnull(meta ->> 'timestamp', strftime('%Y-%m-%dT%H:%M:%fZ', created / 1000.0, 'unixepoch'))), meta), created
  FROM (SELECT id, created, ifnull(NEW.session_meta,
      '{"id":null,"timestamp":null,"cwd":"","originator":"blackbox","cli_version":"1.0.0","instructions":null}') AS meta
    FROM rollout__heads WHERE changes() = 1 AND no = last_insert_rowid());
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_computed
INSTEAD OF UPDATE OF id, created, updated, item_count, last_sequence, has_user_event, turns, bytes, source, cwd,
  originator, cli_version, model_provider, forked_from, first_user_message, format, source_id, parent, agent, model,
  branch ON rollouts
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: only status, expires_at, title, session_meta change') e;
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_update
INSTEAD OF UPDATE OF status, expires_at, title, session_meta ON rollouts
BEGIN
  UPDATE rollout__heads
  SET status = NEW.status, expires_at = nullif(NEW.expires_at, 'permanent'), title = NEW.title,
    named = iif(NEW.title IS OLD.title, named, NEW.title NOTNULL)
  WHERE id = OLD.id;
  UPDATE rollout_items SET payload = NEW.session_meta
  WHERE NEW.session_meta IS NOT OLD.session_meta AND rollout = OLD.id AND sequence = 0;
END;

CREATE TRIGGER IF NOT EXISTS main.rollouts_delete
INSTEAD OF DELETE ON rollouts
BEGIN
  DELETE FROM rollout__heads WHERE id = OLD.id;
END;

-- The items of a conversation come in order, without a sort: the joins are made in
-- the order of the text. (With an ORDER BY in the view, rollout = (SELECT ...) would
-- read the items of all conversations.)
CREATE VIEW IF NOT EXISTS main.rollout_items AS
SELECT h.id AS rollout, d.id & 4294967295 AS sequence, timestamp, type, payload
FROM rollout__heads AS h CROSS JOIN rollout__segments AS s ON rollout = no
CROSS JOIN rollout__items AS d ON d.id BETWEEN (owner << 32) + first AND (owner << 32) + last;

-- Past the policy: an item of rollout_log whose id is a blob.
CREATE TRIGGER IF NOT EXISTS main.rollout_items_insert
INSTEAD OF INSERT ON rollout_items
BEGIN
  INSERT INTO rollout_log VALUES (
    iif(NEW.sequence <> (SELECT last_sequence + 1 FROM rollout__heads WHERE id = lower(NEW.rollout)),
      RAISE(ABORT, 'SequenceError: a new sequence is the last plus 1; omit it'), CAST(NEW.rollout AS BLOB)),
    NEW.type, NEW.payload, NEW.timestamp);
END;

-- A payload can be redacted or repaired, but its kind must stay the same.
CREATE TRIGGER IF NOT EXISTS main.rollout_items_update
INSTEAD OF UPDATE ON rollout_items
BEGIN
  SELECT CASE
    WHEN (NEW.rollout, NEW.sequence, NEW.timestamp, NEW.type) IS NOT (OLD.rollout, OLD.sequence, OLD.timestamp, OLD.type)
    THEN RAISE(ABORT, 'ReadOnlyError: only a payload changes')
    WHEN OLD.payload >= x'' THEN RAISE(ABORT, 'MisuseError: this payload is packed: load blackbox')
    WHEN (SELECT count(DISTINCT json_extract(p, '$.type', '$.role', '$.num_turns', '$.numTurns')
        || coalesce(json_type(p, '$.replacement_history'), json_type(p, '$.replacementHistory'), ''))
      FROM (SELECT NEW.payload AS p UNION ALL SELECT ifnull(OLD.payload, '{}'))
      WHERE json_valid(p) OR json_valid(p || ' ')) > 1
    THEN RAISE(ABORT, 'InvalidItemError: Invalid item format: a new payload keeps type, role, number of turns and kind of replacement history') END e;
  UPDATE rollout__data SET payload = NEW.payload, changed = 1
  WHERE id = (SELECT (owner << 32) + OLD.sequence FROM rollout__heads AS h JOIN rollout__segments ON rollout = no
    WHERE h.id = OLD.rollout AND OLD.sequence BETWEEN first AND last);
  INSERT INTO blackbox__log(domain, kind, subject, detail)
  SELECT 'rollout', 'redaction', OLD.rollout, '{"sequence":' || OLD.sequence || '}'
  WHERE NEW.payload IS NOT OLD.payload;
END;

CREATE VIEW IF NOT EXISTS main.rollout_log AS
SELECT rollout AS rollout_id, type, payload, timestamp FROM rollout_items;

-- The one way in which plain SQL writes an item. The timestamp is also the time at which the expiry of the conversation
-- is tested. The item is counted after it was stored: OR IGNORE and OR FAIL leave no item that is counted and is not
-- there. What a list shows is kept here: of the rows of blackbox_places that say what a user said, those of Codex are
-- repeated, and its titles, in the spelling of its files. What else follows from the item is derived in C, from
-- "behind" on. (No subquery is joined and no IN has a list: each would be a temporary table.)
CREATE TRIGGER IF NOT EXISTS main.rollout_log_insert
INSTEAD OF INSERT ON rollout_log
BEGIN
  SELECT CASE
    WHEN instr(NEW.type, char(0)) OR typeof(NEW.payload) GLOB '[irb]*'
      OR NOT (NEW.payload IS NULL OR json_valid(NEW.payload) OR json_valid(NEW.payload || ' '))
    THEN RAISE(ABORT, 'InvalidItemError: Invalid item format: a type has no NUL, and the payload must be JSON, not nested too deeply')
    WHEN last_sequence >= 0 AND expires_at < ifnull(NEW.timestamp + 0, unixepoch() * 1000)
    THEN RAISE(ABORT, 'RolloutExpiredError: Rollout expired: UPDATE its expires_at')
    WHEN last_sequence >= 4294967295
    THEN RAISE(ABORT, 'RolloutTooLongError: Rollout too long: it has 4294967296 items; fork it')
    WHEN no IS NULL
    THEN RAISE(ABORT, 'RolloutNotFoundError: Rollout not found: INSERT INTO rollouts(id) begins it') END e
  FROM (SELECT 1) LEFT JOIN rollout__heads ON id = lower(NEW.rollout_id);
  INSERT INTO rollout__data(id, timestamp, type, payload)
  SELECT id, at, NEW.type, NEW.payload
  FROM (SELECT (no << 32) + last_sequence + 1 AS id, lower(replace(NEW.type, '_', '')) AS t,
      ifnull(NEW.timestamp, round(julianday('now') * 864e5 - 210866760e6)) AS at,
      CASE WHEN NEW.payload IS NULL THEN '' WHEN json_type(NEW.payload, '$.type') = 'text'
        THEN nullif(lower(replace(NEW.payload ->> 'type', '_', '')), '') END AS p, iif(NEW.payload IS NULL, NULL, '*') AS a, whole,
      (SELECT CAST(value AS TEXT) FROM blackbox_settings WHERE name = 'rollout.policy') AS s
    FROM rollout__heads WHERE id = lower(NEW.rollout_id) LIMIT 1)
  WHERE NEW.rollout_id >= x'' OR whole OR coalesce(
    (SELECT keep FROM rollout_policy WHERE preset = s AND item_key = t AND payload_key = p),
    (SELECT keep FROM rollout_policy WHERE preset = s AND item_key = t AND payload_key = a),
    (SELECT keep FROM rollout_policy WHERE preset = s AND item_key = '*' AND payload_key = p),
    (SELECT keep FROM rollout_policy WHERE preset = s AND item_key = '*' AND payload_key = a),
    NOT EXISTS (SELECT 1 FROM rollout_policy WHERE preset = s));
  UPDATE rollout__heads
  SET last_sequence = last_sequence + 1, behind = ifnull(behind, last_sequence + 1),
    bytes = bytes + ifnull(length(CAST(NEW.payload AS BLOB)), 0),
    updated = max(updated, (SELECT timestamp FROM rollout__data WHERE id = last_insert_rowid())),
    user_sequence = ifnull(user_sequence, iif(instr(',event_msg/user_message,event_msg/thread_goal_updated,response_item/messageuser,',
      ',' || NEW.type || '/' || ifnull(NEW.payload ->> 'type', 'message') || ifnull(NEW.payload ->> 'role', '') || ','), last_sequence + 1, NULL)),
    title = ifnull(iif(NEW.type || (NEW.payload ->> 'type') = 'event_msgthread_name_updated' AND NOT named, nullif(NEW.payload ->> 'thread_name', ''), NULL), title)
  WHERE no = last_insert_rowid() >> 32 AND changes() = 1;
  INSERT INTO rollout_drops
  SELECT iif(NEW.rollout_id >= x'', RAISE(ABORT, 'InvalidItemError: Invalid item format: the item was ignored: a timestamp is whole milliseconds, a type 1 to 100 bytes'), no),
    substr(NEW.type, 1, 100), iif(json_type(NEW.payload, '$.type') = 'text', substr(NEW.payload ->> 'type', 1, 100), ''),
    1, ifnull(length(CAST(NEW.payload AS BLOB)), 0)
  FROM rollout__heads WHERE id = lower(NEW.rollout_id) AND changes() = 0
  ON CONFLICT DO UPDATE SET items = items + 1, bytes = bytes + excluded.bytes;
END;
