-- payload_ring_held.sql: the guards of a ring in a file that has holds.
--
-- It continues the template payload_ring.sql. The module makes these triggers with
-- the first hold in the file, because they cost a push some time, and drops them
-- with the last. retention__in_force and retention__holds are tables of core.
--
-- why of @_agents is 8 while a hold may keep rows of the agent: a hold on the
-- agent, on the whole ring, or on an event of which the ring has a row. Such an
-- agent gets no push that would roll a row out, and its rows are not changed. A DELETE
-- and an INSERT look at the holds themselves.
--
-- A push is refused before its row changes, and with FAIL, which undoes nothing: if a
-- statement could raise ABORT, SQLite would keep a copy of every page that a push
-- touches. So the counters of a push change before its row, too.

CREATE VIEW main.@_held AS
SELECT s.id AS id
  FROM @_slots AS s
 WHERE EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'agent' AND "key" = s.agent_id)
    OR EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'event' AND "key" = s.event_id)
    OR EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'buffer' AND "key" = lower('@'));

CREATE TRIGGER main.@_heldrow
BEFORE DELETE ON @_slots
WHEN EXISTS (SELECT 1 FROM @_held WHERE id = OLD.id)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold keeps this exchange, which cannot be deleted; SELECT * FROM retention_holds lists the holds, and retention_release() ends one');
END;

CREATE TRIGGER main.@_heldput
BEFORE INSERT ON @_slots
WHEN EXISTS (SELECT 1 FROM @_held WHERE id = NEW.id)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the ring is full, and a hold keeps the exchange that this one would roll out; make the window larger, or end the hold with retention_release()');
END;

-- In place of that of payload_ring.sql. A push writes a new seq into a slot, and any
-- other statement changes something else. Both look at the agent of the old row, and
-- not at the holds, because SQLite allocates the memory of the whole trigger for each
-- push.
DROP TRIGGER main.@_next;

CREATE TRIGGER main.@_next
BEFORE UPDATE ON @_slots
BEGIN
  UPDATE @_agents
     SET given = NEW.seq,
         rolled = rolled + CASE why WHEN 0 THEN 1
                           ELSE RAISE(FAIL, 'HeldError: the ring is full, and a hold keeps the exchange that this one would roll out; make the window larger, or end the hold with retention_release()') END,
         bytes = bytes + NEW.size_bytes - OLD.size_bytes
   WHERE agent_id = OLD.agent_id AND NEW.seq IS NOT OLD.seq AND NEW.id = OLD.id;
  SELECT RAISE(FAIL, 'HeldError: a hold keeps this exchange, or another one of its agent, so it cannot be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one')
    FROM @_slots AS s LEFT JOIN @_agents AS a ON a.agent_id = s.agent_id
   WHERE (NEW.seq IS OLD.seq OR NEW.id <> OLD.id)
     AND s.id IN (OLD.id, NEW.id) AND a.why IS NOT 0
     AND (s.id <> OLD.id
          OR (s.timestamp, s.agent_id, s.event_id, s.request_body, s.response_body)
             IS NOT (NEW.timestamp, NEW.agent_id, NEW.event_id, NEW.request_body,
                     NEW.response_body));
END;

-- In place of that of payload_ring.sql: it changes other rows before that of the push,
-- so it must be refused first.
DROP TRIGGER main.@_push;

CREATE TRIGGER main.@_push
INSTEAD OF INSERT ON @_bound
BEGIN
  SELECT RAISE(ABORT, 'HeldError: the ring is full, and a hold keeps the exchange that this one would roll out; make the window larger, or end the hold with retention_release()')
    FROM @_slots AS s JOIN @_agents AS a ON a.agent_id = s.agent_id
   WHERE s.id = NEW.id AND a.why <> 0;
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

-- Without its row, nothing would say that an agent may be held.
CREATE TRIGGER main.@_heldname
BEFORE UPDATE OF agent_id, no ON @_agents
WHEN OLD.why = 8 AND (NEW.agent_id IS NOT OLD.agent_id OR NEW.no IS NOT OLD.no)
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold may keep exchanges of this agent, so its name and number stay; end the hold with retention_release() first');
END;

CREATE TRIGGER main.@_heldagent
BEFORE DELETE ON @_agents
WHEN OLD.why = 8
BEGIN
  SELECT RAISE(ABORT, 'HeldError: a hold may keep exchanges of this agent, so its row stays; end the hold with retention_release() first');
END;

CREATE TRIGGER main.@_heldnew
AFTER INSERT ON @_agents
WHEN EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'agent' AND "key" = NEW.agent_id)
  OR EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'buffer' AND "key" = lower('@'))
BEGIN
  UPDATE @_agents SET why = 8 WHERE agent_id = NEW.agent_id;
END;

-- (An event that was erased is refused by the archive only.)
CREATE TRIGGER main.@_erased
AFTER INSERT ON @_agents
WHEN EXISTS (SELECT 1 FROM retention__refused
              WHERE kind = 'agent' AND "key" = NEW.agent_id)
BEGIN
  SELECT RAISE(ABORT, 'ErasedError: what had this agent was erased, and writes under it are refused for retention.refuse_days; use another one, or wait until the time in retention_erasures');
END;

-- A bulk act sets why to other values, and to 0 at its end.
CREATE TRIGGER main.@_heldagain
AFTER UPDATE OF why ON @_agents
WHEN NEW.why = 0 AND OLD.why <> 0
 AND (EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'agent' AND "key" = NEW.agent_id)
      OR EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'buffer' AND "key" = lower('@'))
      OR EXISTS (SELECT 1 FROM @_held
                  WHERE id BETWEEN NEW.no << 16 AND (NEW.no << 16) + 65535))
BEGIN
  UPDATE @_agents SET why = 8 WHERE agent_id = NEW.agent_id;
END;

CREATE TRIGGER main.@_heldbegin
AFTER INSERT ON retention__in_force
WHEN NEW.kind IN ('agent', 'event', 'buffer')
BEGIN
  UPDATE @_agents SET why = 8
   WHERE why = 0 AND NEW.kind = 'agent' AND agent_id = NEW."key";
  UPDATE @_agents SET why = 8
   WHERE why = 0 AND NEW.kind = 'buffer' AND NEW."key" = lower('@');
  UPDATE @_agents SET why = 8
   WHERE why = 0 AND NEW.kind = 'event'
     AND agent_id IN (SELECT agent_id FROM @_slots WHERE event_id = NEW."key");
END;

CREATE TRIGGER main.@_heldend
AFTER DELETE ON retention__in_force
WHEN OLD.kind IN ('agent', 'event', 'buffer')
 AND NOT EXISTS (SELECT 1 FROM retention__holds WHERE kind = 'buffer' AND "key" = lower('@'))
BEGIN
  UPDATE @_agents SET why = 0
   WHERE why = 8
     AND (OLD.kind <> 'agent' OR agent_id = OLD."key")
     AND (OLD.kind <> 'buffer' OR OLD."key" = lower('@'))
     AND (OLD.kind <> 'event'
          OR agent_id IN (SELECT agent_id FROM @_slots WHERE event_id = OLD."key"))
     AND NOT EXISTS (SELECT 1 FROM retention__holds
                      WHERE kind = 'agent' AND "key" = @_agents.agent_id)
     AND NOT EXISTS (SELECT 1 FROM @_held
                      WHERE id BETWEEN @_agents.no << 16
                                   AND (@_agents.no << 16) + 65535);
END;
