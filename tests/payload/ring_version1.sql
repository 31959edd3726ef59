-- payload_ring.sql: the tables of one ring, and its rules.
--
-- A template: "main." stands for the schema, "@" for the ring's name, so that
-- main.@_slots is ring_slots of a ring "ring". CREATE VIRTUAL TABLE ring USING
-- payload_ring runs it. The rules hold without the module as well.
--
-- Tables  @_config  the settings: k is 'window' (exchanges that each agent
--                   keeps, 1 to 10000) or 'format' (the version of these
--                   tables, 1)
--         @_agents  one row for each agent: how many exchanges it was given;
--                   how many of them were rolled out by newer ones, were
--                   cleared, were saved as evidence; and how many rows and
--                   bytes are there now
--         @_slots   one row for each exchange
-- View    @_check   contradictions (none, when all is well); object is the end
--                   of a table's name
--
-- A slot's id is no << 16 | half << 15 | seq % window, where no and half are
-- the agent's. A full ring rewrites the row of its oldest exchange in place, so
-- that a push costs the same however much is stored.
--
-- How it is used without the module: the first exchange of a new agent is an
-- INSERT into @_slots with a new no, half 0 and seq 1. Later ones are an INSERT
-- when the id is free, and an UPDATE of the row when it is taken. Reads leave
-- out rows whose seq is not above given - window.
--
-- When the window has changed, the agent's rows move into the other half of its
-- ids at its next push (UPDATE @_agents SET window). Until then reads leave out
-- what the new window does not hold. A smaller window trims 100 agents at once;
-- a larger one trims all that are left, or their rows would come back.
--
-- Invariants, kept by triggers, so that each act is one statement and holds
-- inside a transaction as well as outside:
--   given = rows + rolled + cleared + saved
--   rows and bytes are the count and the sum of the agent's slots
--   seq counts from 1 without a gap, and is never used twice
-- "why" tells the trigger of a delete what a bulk act is about: 0 a plain
-- DELETE, 1 rolling out, 2 saved as evidence, 3 taken out as JSON. Setting it
-- to 2 or 3 takes all rows of the agent out.
--
-- No column that a push rewrites is NOT NULL: when a constraint can end a
-- statement half-way, SQLite keeps a copy of every page that it touches. The
-- view @_check looks instead.

CREATE TABLE main.@_config(
  k TEXT PRIMARY KEY,
  v NOT NULL
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
 WHERE (no > 0 AND half IN (0, 1) AND why = 0 AND typeof(window) = 'integer'
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
                    WHERE k = 'window' AND typeof(v) = 'integer'
                      AND v BETWEEN 1 AND 10000);

------------------------------------------------------------- counters ----

CREATE TRIGGER main.@_first
AFTER INSERT ON @_slots
BEGIN
  INSERT INTO @_agents(no, agent_id, window, half, given, rolled, cleared,
                       saved, rows, bytes, why)
  VALUES (NEW.id >> 16, NEW.agent_id,
          (SELECT v FROM @_config WHERE k = 'window'), 0, NEW.seq, 0, 0, 0, 1,
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
         cleared = cleared + (why IN (0, 3))
   WHERE agent_id = OLD.agent_id;
END;

------------------------------------------------------------ bulk acts ----

CREATE TRIGGER main.@_takeout
AFTER UPDATE OF why ON @_agents
WHEN NEW.why >= 2
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
AFTER UPDATE OF v ON @_config
WHEN NEW.k = 'window'
BEGIN
  UPDATE @_agents SET window = NEW.v
   WHERE agent_id IN (SELECT agent_id FROM @_agents
                       WHERE window > NEW.v LIMIT 100);
  UPDATE @_agents SET window = OLD.v
   WHERE window > OLD.v AND NEW.v > OLD.v;
END;
