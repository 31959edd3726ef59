-- payload_ring.sql: the tables of one ring.
--
-- This file is a template. "main." stands for the schema and "@" for the name
-- of the ring: main.@_slots is the table ring_slots of a ring "ring". CREATE
-- VIRTUAL TABLE ring USING payload_ring runs it. Only the module writes these
-- tables; any SQLite can read them.
--
-- Tables  @_agents  one row for each agent. It counts its exchanges: given, all
--                   that were pushed; rolled, those that newer ones or a bound
--                   removed; cleared, those that were cleared; saved, those
--                   that were saved as evidence; rows and bytes, what is there
--                   now. kept: whether it may have rows beyond the window. at,
--                   while the ring has a bound: the time of its last push, which
--                   is later than that of every push before it; negative if it
--                   has no rows. page: see ring_log.c
--         @_slots   one row for each exchange. meta: JSON or NULL. A body is
--                   there itself if it is short; else a reference to @_texts.
--                   steps: what the rules on loops see of it (steps.c), or NULL
--         @_texts   what the bodies of an agent have, once: see ring_log.c. And below
--                   0 the settings, with the value in body: -1 the window (exchanges
--                   that each agent keeps, 1 to 10000), -2 max_bytes and -3 idle_days
--                   (bounds of the whole ring), -4 the format of these tables: 1;
--                   while the ring has a bound, -5 the bytes of all its rows; and the
--                   receipt for idle agents that were removed: -6 their number, -7 to
--                   -10 the sums of given, rolled, cleared and saved, -11 the latest
--                   time of their pushes
--
-- The id of a slot is no << 29 | window << 14 | seq % window, where no and window
-- are those of the agent. What a hold keeps beyond the window is at no << 29 | 1 <<
-- 28 | seq. A push into a full ring overwrites the row of the oldest exchange, so
-- its cost does not depend on how much is stored.
--
-- When the window has changed, the next push of an agent moves its rows to other
-- ids. Until then a read omits the rows that do not fit into the new window (seq <=
-- given - window). A window that becomes smaller trims 100 agents at once. A window
-- that becomes larger trims all agents that were not trimmed, because rows that a
-- read has omitted would otherwise appear again.
--
-- Invariants, which blackbox_check() compares:
--   given = rows + rolled + cleared + saved
--   rows and bytes are the count and the sum of the agent's slots
--   seq counts from 1 without a gap, and is never used twice
--
-- No column that a push changes is NOT NULL or has a CHECK. If a constraint could
-- stop a statement half-way, SQLite would keep a copy of every page that it
-- changes.

CREATE TABLE main.@_agents(no INTEGER PRIMARY KEY,agent_id TEXT UNIQUE,window,kept,given,rolled,cleared,saved,rows,bytes,at UNIQUE,page);

CREATE TABLE main.@_slots(id INTEGER PRIMARY KEY,seq,timestamp,size_bytes,agent_id TEXT,event_id TEXT,meta,request_body,response_body,steps);

CREATE TABLE main.@_texts(id INTEGER PRIMARY KEY,body);
