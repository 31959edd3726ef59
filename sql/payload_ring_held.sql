-- payload_ring_held.sql: the guards of a ring in a file that has holds.
--
-- It continues the template payload_ring.sql. The module makes these triggers with
-- the first hold in the file, because they cost a push some time, and drops them
-- with the last. retention_held and retention_in_force are tables of core.
--
-- why of @_agents is 8 while a hold may keep rows of the agent: a hold on the
-- agent, on the whole ring, or on an event of which the ring has a row. Such an
-- agent gets no push that would roll a row out. All other statements look at the
-- holds themselves.
--
-- @_changed raises FAIL, which undoes nothing, as it runs before its row changes:
-- with ABORT, SQLite would keep a copy of every page that a push touches.

CREATE VIEW main.@_held AS
SELECT s.id AS id
  FROM @_slots AS s
 WHERE EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'agent' AND "key" = s.agent_id)
    OR EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'event' AND "key" = s.event_id)
    OR EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'buffer' AND "key" = lower('@'));

CREATE VIEW main.@_heldlook AS
SELECT NULL AS id, NULL AS to_id, NULL AS timestamp, NULL AS agent_id,
       NULL AS event_id, NULL AS request_body, NULL AS response_body
 WHERE 0;

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

-- In place of that of payload_ring.sql: a push that rolls out a row of such an
-- agent is refused.
DROP TRIGGER main.@_next;

CREATE TRIGGER main.@_next
AFTER UPDATE OF seq ON @_slots
BEGIN
  UPDATE @_agents
     SET given = NEW.seq,
         rolled = rolled + CASE why WHEN 8 THEN RAISE(ABORT, 'HeldError: the ring is full, and a hold keeps the exchange that this one would roll out; make the window larger, or end the hold with retention_release()')
                           ELSE 1 END,
         bytes = bytes + NEW.size_bytes - OLD.size_bytes
   WHERE agent_id = NEW.agent_id;
END;

-- A statement that does not push. It costs a push time as well, so it uses little
-- of OLD, and the look at the holds is in another trigger: SQLite allocates the
-- memory of a whole trigger when it fires. That one writes that no hold keeps the
-- row, so that a trigger of the user that prevents the look is no way around it. (On
-- sqlite_sequence nobody can have triggers: see blackbox_probe in core.)
CREATE TRIGGER main.@_changed
BEFORE UPDATE ON @_slots
WHEN NEW.seq IS OLD.seq OR NEW.id <> OLD.id
BEGIN
  DELETE FROM sqlite_sequence WHERE rowid = -1;
  INSERT INTO @_heldlook(id, to_id, timestamp, agent_id, event_id, request_body, response_body)
  VALUES (OLD.id, NEW.id, NEW.timestamp, NEW.agent_id, NEW.event_id,
          NEW.request_body, NEW.response_body);
  SELECT RAISE(FAIL, 'HeldError: a hold keeps this exchange, which cannot be changed; SELECT * FROM retention_holds lists the holds, and retention_release() ends one')
   WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE rowid = -1);
END;

CREATE TRIGGER main.@_heldlooked
INSTEAD OF INSERT ON @_heldlook
WHEN NOT EXISTS (SELECT 1 FROM @_held WHERE id = NEW.to_id AND NEW.to_id <> NEW.id)
 AND NOT EXISTS (SELECT 1 FROM @_held AS h JOIN @_slots AS s ON s.id = h.id
                  WHERE h.id = NEW.id
                    AND (s.timestamp, s.agent_id, s.event_id, s.request_body, s.response_body)
                        IS NOT (NEW.timestamp, NEW.agent_id, NEW.event_id, NEW.request_body,
                                NEW.response_body))
BEGIN
  INSERT INTO sqlite_sequence(rowid, name, seq) VALUES (-1, 'blackbox_probe', 0);
END;

CREATE TRIGGER main.@_heldnew
AFTER INSERT ON @_agents
WHEN EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'agent' AND "key" = NEW.agent_id)
  OR EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'buffer' AND "key" = lower('@'))
BEGIN
  UPDATE @_agents SET why = 8 WHERE agent_id = NEW.agent_id;
END;

-- (An event that was erased is refused by the archive only.)
CREATE TRIGGER main.@_erased
AFTER INSERT ON @_agents
WHEN EXISTS (SELECT 1 FROM retention_refused
              WHERE kind = 'agent' AND "key" = NEW.agent_id)
BEGIN
  SELECT RAISE(ABORT, 'ErasedError: what had this agent was erased, and writes under it are refused for retention.refuse_days; use another one, or wait until the time in retention_erased');
END;

-- A bulk act sets why to other values, and to 0 at its end.
CREATE TRIGGER main.@_heldagain
AFTER UPDATE OF why ON @_agents
WHEN NEW.why = 0 AND OLD.why <> 0
 AND (EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'agent' AND "key" = NEW.agent_id)
      OR EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'buffer' AND "key" = lower('@'))
      OR EXISTS (SELECT 1 FROM @_held
                  WHERE id BETWEEN NEW.no << 16 AND (NEW.no << 16) + 65535))
BEGIN
  UPDATE @_agents SET why = 8 WHERE agent_id = NEW.agent_id;
END;

CREATE TRIGGER main.@_heldbegin
AFTER INSERT ON retention_held
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
AFTER DELETE ON retention_held
WHEN OLD.kind IN ('agent', 'event', 'buffer')
 AND NOT EXISTS (SELECT 1 FROM retention_in_force WHERE kind = 'buffer' AND "key" = lower('@'))
BEGIN
  UPDATE @_agents SET why = 0
   WHERE why = 8
     AND (OLD.kind <> 'agent' OR agent_id = OLD."key")
     AND (OLD.kind <> 'buffer' OR OLD."key" = lower('@'))
     AND (OLD.kind <> 'event'
          OR agent_id IN (SELECT agent_id FROM @_slots WHERE event_id = OLD."key"))
     AND NOT EXISTS (SELECT 1 FROM retention_in_force
                      WHERE kind = 'agent' AND "key" = @_agents.agent_id)
     AND NOT EXISTS (SELECT 1 FROM @_held
                      WHERE id BETWEEN @_agents.no << 16
                                   AND (@_agents.no << 16) + 65535);
END;
