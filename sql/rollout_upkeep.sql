-- rollout_upkeep.sql: removes conversations that have expired, and computes again
-- what follows from items. It continues rollout.sql, which has the manual.

-- The columns are arguments: now (milliseconds; NULL: the current time) and
-- max_rows (NULL: no limit). rows of rollout_act is then the number removed.
CREATE VIEW IF NOT EXISTS main.rollout_cleanup AS
SELECT NULL AS now, NULL AS max_rows WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.rollout_cleanup_insert
INSTEAD OF INSERT ON rollout_cleanup
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: Invalid time: now must be an integer of milliseconds since 1970')
   WHERE NEW.now IS NOT NULL
     AND (typeof(NEW.now) NOT IN ('integer', 'real')
          OR NEW.now <> CAST(NEW.now AS INTEGER)
          OR NEW.now NOT BETWEEN 0 AND 253402300799999);
  SELECT RAISE(ABORT, 'ClockError: the clock is too far ahead of the newest time that this file has seen; if it is right, SELECT retention_confirm_clock()')
   WHERE NEW.now IS NULL AND (SELECT now FROM retention_now) IS NULL;
  UPDATE rollout_act
     SET rule = 'rollout.expired', rows = 1, bytes = 0,
         now = coalesce(NEW.now, (SELECT now FROM rollout__fresh));
  DELETE FROM rollout_heads
   WHERE id IN (SELECT key FROM rollout_due
                 WHERE blocked_by IS NULL AND at < (SELECT now FROM rollout_act)
                 ORDER BY at, key LIMIT coalesce(NEW.max_rows, -1));
  INSERT INTO blackbox__log(at, domain, detail, rows, bytes, oldest, newest, salt)
  SELECT act.now, 'rollout', act.rule, o.rows, o.bytes, act.now - o.oldest,
         o.newest - o.oldest, NULL
    FROM rollout_act AS act, blackbox__open AS o
   WHERE o.domain = 'rollout' AND o.rule = 'bulk' AND o.minute = 0;
  UPDATE rollout_act
     SET rule = NULL,
         rows = coalesce((SELECT rows FROM blackbox__open
                           WHERE domain = 'rollout' AND rule = 'bulk' AND minute = 0), 0);
  DELETE FROM blackbox__open WHERE domain = 'rollout' AND rule = 'bulk' AND minute = 0;
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_due_delete
INSTEAD OF DELETE ON rollout_due WHEN OLD.blocked_by IS NULL
BEGIN
  UPDATE rollout_act SET rule = 'rollout.expired', rows = 0;
  DELETE FROM rollout_heads WHERE id = OLD.key;
  UPDATE rollout_act SET rule = NULL;
END;

-- Computes the counters, turns, marks and row of rollout_about of a conversation
-- from its items again. (A title that a user gave is not in the items.) The texts
-- of the relevant items are read again in order, by INSERT of their sequences.
-- For items that a fork shares, the rows of their owner are used.
CREATE VIEW IF NOT EXISTS main.rollout_rebuilds AS
SELECT NULL AS id, NULL AS sequence WHERE 0;

CREATE TRIGGER IF NOT EXISTS main.rollout_rebuilds_insert
INSTEAD OF INSERT ON rollout_rebuilds WHEN NEW.sequence IS NULL
BEGIN
  SELECT RAISE(ABORT, 'RolloutNotFoundError: Rollout not found: SELECT id FROM rollouts lists the conversations')
   WHERE NOT EXISTS (SELECT 1 FROM rollout_heads WHERE id = lower(NEW.id));
  DELETE FROM rollout_turns
   WHERE id BETWEEN (SELECT no << 32 FROM rollout_heads
                      WHERE id = lower(NEW.id))
                AND (SELECT (no << 32) + 4294967295 FROM rollout_heads
                      WHERE id = lower(NEW.id));
  DELETE FROM rollout__marks
   WHERE id BETWEEN (SELECT no << 32 FROM rollout_heads
                      WHERE id = lower(NEW.id))
                AND (SELECT (no << 32) + 4294967295 FROM rollout_heads
                      WHERE id = lower(NEW.id));
  DELETE FROM rollout_calls
   WHERE id BETWEEN (SELECT no << 32 FROM rollout_heads
                      WHERE id = lower(NEW.id))
                AND (SELECT (no << 32) + 4294967295 FROM rollout_heads
                      WHERE id = lower(NEW.id));
  UPDATE rollout_heads
     SET stamp = stamp + 1, looked = -1,
         (last_sequence, bytes, updated, user_sequence, turns) =
         (SELECT d.last_sequence, d.bytes, d.updated, d.user_sequence, d.turns
            FROM rollout__derived AS d WHERE d.no = rollout_heads.no)
   WHERE id = lower(NEW.id);
  INSERT INTO rollout_about(no, title)
  SELECT h.no, m.title
    FROM rollout_heads AS h LEFT JOIN rollout__meta AS m ON m.no = h.no
   WHERE h.id = lower(NEW.id) AND h.last_sequence >= 0
     AND NOT EXISTS (SELECT 1 FROM rollout_about AS a WHERE a.no = h.no);
  UPDATE rollout_about
     SET (source, cwd, originator, cli_version, model_provider, forked_from,
          format, source_id, parent, agent, branch, model) =
         (SELECT m.source,
                 CASE WHEN m.forked_from IS NULL OR rollout_about.cwd IS NULL
                      THEN m.cwd ELSE rollout_about.cwd END,
                 m.originator, m.cli_version, m.model_provider, m.forked_from,
                 m.format, m.source_id, m.parent, m.agent,
                 coalesce(m.branch, rollout_about.branch),
                 CASE WHEN m.forked_from IS NOT NULL
                      THEN rollout_about.model END
            FROM rollout__meta AS m WHERE m.no = rollout_about.no)
   WHERE no = (SELECT m.no FROM rollout_heads AS h
                 JOIN rollout__meta AS m ON m.no = h.no
                WHERE h.id = lower(NEW.id));
  INSERT INTO rollout_rebuilds(id, sequence)
  SELECT h.id, d.id & 4294967295
    FROM rollout_heads AS h
    JOIN rollout__data AS d
      ON d.id BETWEEN (h.no << 32) + 1 AND (h.no << 32) + 4294967295
   WHERE h.id = lower(NEW.id)
     AND (json_valid(d.payload) OR json_valid(d.payload || ' '))
     AND (lower(replace(d.type, '_', '')) IN ('eventmsg', 'compacted')
          OR lower(replace(d.type, '_', '')) IN
             (SELECT type_key FROM rollout_readings UNION
              SELECT type_key FROM rollout_usage_formats))
   ORDER BY d.id;
  UPDATE rollout_about
     SET prompt_id = (SELECT d.prompt_id FROM rollout__derived AS d
                       WHERE d.no = rollout_about.no)
   WHERE no = (SELECT no FROM rollout_heads WHERE id = lower(NEW.id));
  UPDATE rollout_about
     SET first_user_message = (SELECT substr(value, 1, 200) FROM rollout_facts
                                WHERE id = prompt_id
                                  AND fact IN ('user', 'goal'))
   WHERE no = (SELECT no FROM rollout_heads WHERE id = lower(NEW.id));
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_rebuilds_look
INSTEAD OF INSERT ON rollout_rebuilds WHEN NEW.sequence IS NOT NULL
BEGIN
  UPDATE rollout_heads SET looked = NEW.sequence, stamp = stamp + 1
   WHERE id = NEW.id;
END;
