-- payload_ring.sql: the tables of one ring, and its rules.
--
-- This file is a template. "main." stands for the schema and "@" for the name
-- of the ring: main.@_slots is the table ring_slots of a ring "ring". CREATE
-- VIRTUAL TABLE ring USING payload_ring runs it. The rules also hold without
-- the module.
--
-- Tables  @_config  name, value. The settings are 'window' (exchanges that each
--                   agent keeps, 1 to 10000), 'max_bytes' and 'idle_days' (bounds
--                   of the whole ring), and 'format' (of these tables: 1).
--                   While the ring has a bound, 'window_bytes' is the bytes of
--                   all its rows.
--                   The receipt for idle agents that were removed has
--                   'left_agents', their number; 'left_given', 'left_rolled',
--                   'left_cleared' and 'left_saved', the sums of their
--                   counters; 'left_until', the latest time of their pushes
--         @_agents  one row for each agent. It counts its exchanges: given, all
--                   that were pushed; rolled, those that newer ones or a bound
--                   removed; cleared, those that were cleared; saved, those
--                   that were saved as evidence; rows and bytes, what is there
--                   now
--         @_slots   one row for each exchange
--         @_steps   the last steps of each agent, while the ring looks for
--                   loops
--         @_turns   one row for each agent, while the ring has a bound: last,
--                   the time of its last push, which is later than that of
--                   every push before it; filled, whether it may have rows
-- Views   @_bound   INSERT makes room in a ring that has a bound, and then adds
--                   a row
--         @_room    INSERT makes room. Each column is a JSON array or NULL:
--                   rolled, the ids of the slots to remove; emptied, the
--                   numbers of the agents that have no row after that;
--                   leaving, the numbers of the agents to remove
--         @_check   contradictions; it has no rows if all is well. object is
--                   the end of the name of a table
--
-- The id of a slot is no << 16 | half << 15 | seq % window, where no and half
-- are those of the agent. A push into a full ring overwrites the row of the
-- oldest exchange, so its cost does not depend on how much is stored.
--
-- Use without the module: the first exchange of a new agent is an INSERT into
-- @_slots with a new no, half 0 and seq 1. A later one is an INSERT if its id
-- is free, and an UPDATE of the row if there is one. A read omits rows whose
-- seq is not above given - window. If the ring has a bound, exchanges must be
-- inserted into the view @_bound instead.
--
-- When the window has changed, the next push of an agent moves its rows into
-- the other half of its ids (UPDATE @_agents SET window). Until then a read
-- omits the rows that do not fit into the new window. A window that becomes
-- smaller trims 100 agents at once. A window that becomes larger trims all
-- agents that were not trimmed, because rows that a read has omitted would
-- otherwise appear again.
--
-- These invariants are kept by triggers. So each act is one statement, and is
-- done whole or not at all, also inside a transaction:
--   given = rows + rolled + cleared + saved
--   rows and bytes are the count and the sum of the agent's slots
--   seq counts from 1 without a gap, and is never used twice
-- "why" says why rows are deleted, and so which counter they go to: 0, a plain
-- DELETE; 1, newer rows or a bound; 2, saved as evidence; 3, extracted as JSON.
-- Setting it to 2 or 3 removes all rows of the agent. It is 8 while a hold may
-- keep rows of the agent (sql/payload_ring_held.sql).
--
-- No column that a push changes is NOT NULL. If a constraint could stop a
-- statement half-way, SQLite would keep a copy of every page that it changes.
-- The view @_check finds such values instead. For the same reason an UPDATE of
-- @_config is OR IGNORE.

CREATE TABLE main.@_config(
  name  TEXT PRIMARY KEY,
  value NOT NULL
) WITHOUT ROWID;

CREATE TABLE main.@_agents(
  agent_id TEXT PRIMARY KEY,
  no       INTEGER UNIQUE,
  window   INTEGER,
  half     INTEGER,
  given    INTEGER,
  rolled   INTEGER,
  cleared  INTEGER,
  saved    INTEGER,
  rows     INTEGER,
  bytes    INTEGER,
  why      INTEGER
) WITHOUT ROWID;

CREATE TABLE main.@_slots(
  id            INTEGER PRIMARY KEY,
  seq           INTEGER,
  timestamp     INTEGER,
  size_bytes    INTEGER,
  agent_id      TEXT,
  event_id      TEXT,
  request_body,
  response_body
);

-- IF NOT EXISTS: the table is created again if it is missing.
CREATE TABLE IF NOT EXISTS main.@_turns(
  no     INTEGER PRIMARY KEY,
  filled INTEGER,
  last   INTEGER,
  UNIQUE (filled, last)
);

-- The last 128 steps of each agent, while the ring looks for loops: tool calls
-- and their results, as hashes. id is no << 16 | n % 128, where n is the number
-- of the step. error is -1 until there is a result. spent (tokens), made
-- (calls) and cost are sums; those that end in _before are the sums before this
-- turn. What is 0 may be NULL. The newest step also says how far the request was
-- read: head bytes, which have the hash head_hash and are head_items messages.
CREATE TABLE IF NOT EXISTS main.@_steps(
  id        INTEGER PRIMARY KEY,
  n         INTEGER,
  seq       INTEGER,
  timestamp INTEGER,
  turn      INTEGER,
  start     INTEGER,
  call      INTEGER,
  tool      TEXT,
  arguments INTEGER,
  result    INTEGER,
  masked    INTEGER,
  error     INTEGER,
  said      INTEGER,
  spent     INTEGER,
  made      INTEGER,
  cost      INTEGER,
  spent_before INTEGER,
  made_before  INTEGER,
  cost_before  INTEGER,
  head      INTEGER,
  head_hash INTEGER,
  head_key  INTEGER,
  head_items INTEGER,
  items     INTEGER,
  first     INTEGER,
  chain     INTEGER
);

CREATE VIEW main.@_bound AS
SELECT NULL AS id, NULL AS seq, NULL AS timestamp, NULL AS size_bytes,
       NULL AS agent_id, NULL AS event_id, NULL AS request_body,
       NULL AS response_body, NULL AS last, NULL AS rolled,
       NULL AS emptied, NULL AS leaving
 WHERE 0;

CREATE VIEW main.@_room AS
SELECT NULL AS rolled, NULL AS emptied, NULL AS leaving WHERE 0;

CREATE VIEW main.@_check AS
SELECT 'agents' AS object,
       'agent ' || agent_id || ': given is not rows + rolled + cleared + saved'
         AS problem
  FROM @_agents
 WHERE given IS NULL OR given IS NOT rows + rolled + cleared + saved
UNION ALL
SELECT 'agents',
       'agent ' || a.agent_id || ': rows or bytes are not those of its slots'
  FROM @_agents AS a
  LEFT JOIN (SELECT id >> 16 AS no, count(*) AS n, sum(size_bytes) AS b
               FROM @_slots GROUP BY 1) AS s ON s.no = a.no
 WHERE a.rows IS NOT coalesce(s.n, 0) OR a.bytes IS NOT coalesce(s.b, 0)
UNION ALL
SELECT 'agents', 'agent ' || agent_id || ': the layout is not one'
  FROM @_agents
 WHERE (no > 0 AND half IN (0, 1) AND why IN (0, 8) AND typeof(window) = 'integer'
        AND window BETWEEN 1 AND 10000) IS NOT TRUE
UNION ALL
SELECT 'slots', 'slot ' || s.id || ' is not where its agent has it'
  FROM @_slots AS s
  LEFT JOIN @_agents AS a ON a.no = s.id >> 16
 WHERE a.no IS NULL OR a.agent_id IS NOT s.agent_id OR s.event_id IS NULL
    OR s.timestamp IS NULL OR s.seq > a.given
    OR s.id IS NOT (a.no << 16) + (a.half << 15) + s.seq % a.window
UNION ALL
SELECT 'config', 'the window is not from 1 to 10000'
 WHERE NOT EXISTS (SELECT 1 FROM @_config
                    WHERE name = 'window' AND typeof(value) = 'integer'
                      AND value BETWEEN 1 AND 10000)
UNION ALL
SELECT 'config', name || ' is not a whole number above 0'
  FROM @_config
 WHERE name IN ('max_bytes', 'idle_days')
   AND (typeof(value) = 'integer' AND value > 0) IS NOT TRUE
UNION ALL
SELECT 'config', 'window_bytes is not the bytes of the slots; set max_bytes and idle_days to 0, then set them again'
 WHERE EXISTS (SELECT 1 FROM @_config WHERE name IN ('max_bytes', 'idle_days'))
   AND (SELECT value FROM @_config WHERE name = 'window_bytes')
       IS NOT (SELECT coalesce(sum(size_bytes), 0) FROM @_slots)
UNION ALL
SELECT 'turns', 'agent ' || a.agent_id || ' has no turn; set max_bytes and idle_days to 0, then set them again'
  FROM @_agents AS a LEFT JOIN @_turns AS t ON t.no = a.no
 WHERE EXISTS (SELECT 1 FROM @_config WHERE name IN ('max_bytes', 'idle_days'))
   AND (typeof(t.last) = 'integer'
        AND (t.filled = 1 OR (t.filled = 0 AND a.rows = 0))) IS NOT TRUE;

------------------------------------------------------------- counters ----

CREATE TRIGGER main.@_first
AFTER INSERT ON @_slots
BEGIN
  INSERT INTO @_agents(no, agent_id, window, half, given, rolled, cleared,
                       saved, rows, bytes, why)
  VALUES (NEW.id >> 16, NEW.agent_id,
          (SELECT value FROM @_config WHERE name = 'window'), 0, NEW.seq, 0, 0, 0, 1,
          NEW.size_bytes, 0)
  ON CONFLICT (agent_id) DO UPDATE
     SET given = NEW.seq,
         rows = rows + 1,
         bytes = bytes + NEW.size_bytes;
END;

CREATE TRIGGER main.@_next
AFTER UPDATE OF seq ON @_slots
BEGIN
  UPDATE @_agents
     SET given = NEW.seq,
         rolled = rolled + 1,
         bytes = bytes + NEW.size_bytes - OLD.size_bytes
   WHERE agent_id = NEW.agent_id;
END;

CREATE TRIGGER main.@_gone
AFTER DELETE ON @_slots
BEGIN
  UPDATE @_agents
     SET rows = rows - 1,
         bytes = bytes - OLD.size_bytes,
         rolled = rolled + (why = 1),
         saved = saved + (why = 2),
         cleared = cleared + (why IN (0, 3, 8))
   WHERE agent_id = OLD.agent_id;
  UPDATE OR IGNORE @_config SET value = value - OLD.size_bytes
   WHERE name = 'window_bytes';
END;

------------------------------------------------------------ bulk acts ----

CREATE TRIGGER main.@_takeout
AFTER UPDATE OF why ON @_agents
WHEN NEW.why IN (2, 3)
BEGIN
  DELETE FROM @_slots
   WHERE id BETWEEN NEW.no << 16 AND (NEW.no << 16) + 65535;
  UPDATE @_agents SET why = 0 WHERE agent_id = NEW.agent_id;
END;

CREATE TRIGGER main.@_layout
AFTER UPDATE OF window ON @_agents
BEGIN
  UPDATE @_agents SET why = 1 WHERE agent_id = NEW.agent_id;
  DELETE FROM @_slots
   WHERE id BETWEEN NEW.no << 16 AND (NEW.no << 16) + 65535
     AND seq <= NEW.given - NEW.window;
  UPDATE @_slots
     SET id = (NEW.no << 16) + ((1 - OLD.half) << 15) + seq % NEW.window
   WHERE id BETWEEN (NEW.no << 16) + (OLD.half << 15)
                AND (NEW.no << 16) + (OLD.half << 15) + 32767;
  UPDATE @_agents SET why = 0, half = 1 - OLD.half
   WHERE agent_id = NEW.agent_id;
END;

CREATE TRIGGER main.@_window
AFTER UPDATE OF value ON @_config
WHEN NEW.name = 'window'
BEGIN
  UPDATE @_agents SET window = NEW.value
   WHERE agent_id IN (SELECT agent_id FROM @_agents
                       WHERE window > NEW.value LIMIT 100);
  UPDATE @_agents SET window = OLD.value
   WHERE window > OLD.value AND NEW.value > OLD.value;
END;

-------------------------------------------------------------- bounds ----

-- The key 'window_bytes' comes after all others, and its value is a REAL. So a
-- push reads only the last row of @_config: an INTEGER is the window, and means
-- that there is no bound.

CREATE TRIGGER main.@_push
INSTEAD OF INSERT ON @_bound
BEGIN
  SELECT RAISE(ABORT, 'CorruptedDataError: the slot of this push holds a row of another agent; SELECT * FROM blackbox_check() tells which')
    FROM @_slots WHERE id = NEW.id AND agent_id IS NOT NEW.agent_id;
  INSERT INTO @_room(rolled, emptied, leaving)
  VALUES (NEW.rolled, NEW.emptied, NEW.leaving);
  UPDATE OR IGNORE @_config
     SET value = value + NEW.size_bytes
           - coalesce((SELECT size_bytes FROM @_slots WHERE id = NEW.id), 0)
   WHERE name = 'window_bytes';
  INSERT INTO @_slots(id, seq, timestamp, size_bytes, agent_id, event_id,
                      request_body, response_body)
  VALUES (NEW.id, NEW.seq, NEW.timestamp, NEW.size_bytes, NEW.agent_id,
          NEW.event_id, NEW.request_body, NEW.response_body)
  ON CONFLICT (id) DO UPDATE
     SET seq = excluded.seq,
         timestamp = excluded.timestamp,
         size_bytes = excluded.size_bytes,
         event_id = excluded.event_id,
         request_body = excluded.request_body,
         response_body = excluded.response_body;
  INSERT INTO @_turns(no, filled, last) VALUES (NEW.id >> 16, 1, NEW.last)
  ON CONFLICT (no) DO UPDATE SET filled = 1, last = excluded.last;
END;

CREATE TRIGGER main.@_roll
INSTEAD OF INSERT ON @_room
WHEN NEW.rolled IS NOT NULL OR NEW.emptied IS NOT NULL
  OR NEW.leaving IS NOT NULL
BEGIN
  UPDATE @_agents SET why = 1
   WHERE no IN (SELECT value >> 16 FROM json_each(NEW.rolled));
  DELETE FROM @_slots WHERE id IN (SELECT value FROM json_each(NEW.rolled));
  UPDATE @_agents SET why = 0
   WHERE no IN (SELECT value >> 16 FROM json_each(NEW.rolled));
  UPDATE @_turns SET filled = 0
   WHERE no IN (SELECT value FROM json_each(NEW.emptied));
  INSERT INTO @_config(name, value)
  SELECT r.k, sum(CASE r.k WHEN 'left_agents' THEN 1
                           WHEN 'left_given' THEN a.given
                           WHEN 'left_rolled' THEN a.rolled
                           WHEN 'left_cleared' THEN a.cleared
                           ELSE a.saved END)
    FROM @_agents AS a,
         (SELECT 'left_agents' AS k UNION ALL SELECT 'left_given'
          UNION ALL SELECT 'left_rolled' UNION ALL SELECT 'left_cleared'
          UNION ALL SELECT 'left_saved') AS r
   WHERE NEW.leaving IS NOT NULL AND a.rows = 0
     AND a.no IN (SELECT value FROM json_each(NEW.leaving))
   GROUP BY r.k
  ON CONFLICT (name) DO UPDATE SET value = value + excluded.value;
  INSERT INTO @_config(name, value)
  SELECT 'left_until', last FROM @_turns
   WHERE NEW.leaving IS NOT NULL
     AND no IN (SELECT value FROM json_each(NEW.leaving))
  ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
  DELETE FROM @_agents
   WHERE NEW.leaving IS NOT NULL AND rows = 0
     AND no IN (SELECT value FROM json_each(NEW.leaving));
  DELETE FROM @_turns
   WHERE NEW.leaving IS NOT NULL
     AND no IN (SELECT value FROM json_each(NEW.leaving));
  DELETE FROM @_steps
   WHERE NEW.leaving IS NOT NULL
     AND id IN (SELECT s.id FROM json_each(NEW.leaving) AS gone
                 CROSS JOIN @_steps AS s
                    ON s.id BETWEEN gone.value << 16 AND (gone.value << 16) + 127);
END;

-- When a ring gets its first bound, its rows are counted. The times of earlier
-- pushes are not known. So each agent counts as having pushed now, in the order
-- of their numbers.
CREATE TRIGGER main.@_bounded
AFTER INSERT ON @_config
WHEN NEW.name IN ('max_bytes', 'idle_days')
 AND NOT EXISTS (SELECT 1 FROM @_config WHERE name = 'window_bytes')
BEGIN
  DELETE FROM @_turns;
  INSERT INTO @_turns(no, filled, last)
  SELECT no, 1, CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)
                + no - (SELECT max(no) FROM @_agents)
    FROM @_agents;
  INSERT INTO @_config(name, value)
  SELECT 'window_bytes', total(bytes) FROM @_agents;
END;

-- When a ring loses its last bound.
CREATE TRIGGER main.@_unbounded
AFTER DELETE ON @_config
WHEN OLD.name IN ('max_bytes', 'idle_days')
 AND NOT EXISTS (SELECT 1 FROM @_config WHERE name IN ('max_bytes', 'idle_days'))
BEGIN
  DELETE FROM @_turns;
  DELETE FROM @_config WHERE name = 'window_bytes';
END;
