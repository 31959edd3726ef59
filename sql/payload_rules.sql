-- payload_rules.sql: which loops a ring looks for, and what it found.
--
-- Needs core.sql. It runs after payload_detection.sql, any number of times. A ring
-- reads these tables in the schema of its archive: its own schema, or for a ring
-- in temp the one that has the payload domain.
--
-- Tables  payload_rules     the rules with their thresholds
--         payload_agents    what is special about an agent, and whether it is
--                           stopped
--         payload_verdicts  what the rules found. Triggers of users may be put on
--                           it
--         payload_allows    what a human allowed: it is not raised again
--
-- Each stop and start by a rule or through payload_agent_log (ext/payload/agent_log.c) and each verdict is a row of
-- the log. What is done to payload_agents itself is not: blackbox_check() compares both.

UPDATE main.blackbox__probe SET hit = 2;
INSERT INTO main.blackbox_settings(name, value, "default", range, meaning)
SELECT column1, column2, column2, column3, column4 FROM (VALUES
  ('payload.on_loop', 'off', 'off, record, kill_switch', 'what a ring does when an agent loops')) WHERE 1
ON CONFLICT (name) DO UPDATE
   SET "default" = excluded."default", range = excluded.range, meaning = excluded.meaning;
UPDATE main.blackbox__probe SET hit = 0;

-- level  'stop' pulls the switch, where on_loop is kill_switch; 'alert' only
--        writes the verdict
-- span   the last calls of a conversation that are looked at; no_progress looks at all
--        that the ring has
-- pause_ms  if the calls are as far apart as this on average, they are polls,
--        and nothing is raised (by no_progress after four times as many); NULL never
-- A rule that no ring knows would never be raised, nor would a threshold that the
-- span cannot reach.
CREATE TABLE IF NOT EXISTS main.payload_rules(
  rule TEXT PRIMARY KEY,
  enabled INTEGER, level, threshold NUMERIC, span INTEGER, pause_ms INTEGER, meaning,
  CONSTRAINT "ValidationError: no such rule, or a value out of range"
  CHECK ((instr(' no_progress same_error errors repeat budget_tokens budget_calls budget_cost ', ' ' || rule || ' ')
          AND enabled IN (0, 1) AND level IN ('stop', 'alert') AND threshold > 0 AND threshold < 9e15
          AND span BETWEEN 1 AND 100 AND ifnull(pause_ms, 1) BETWEEN 1 AND 9e15) IS TRUE),
  CONSTRAINT "ValidationError: a rule cannot reach a threshold above its span"
  CHECK (rule GLOB 'budget*' OR threshold <= span)
) WITHOUT ROWID;

INSERT INTO main.payload_rules(rule, enabled, level, threshold, span, pause_ms, meaning)
VALUES
  ('no_progress', 1, 'stop', 4, 100, 5000,
   'nothing new: each of the newest calls had this result before, so often'),
  ('same_error', 1, 'stop', 6, 30, NULL,
   'the same error in a row, whatever was called'),
  ('errors', 1, 'alert', 6, 12, NULL,
   'many of the last calls fail'),
  ('repeat', 1, 'alert', 10, 30, 10000,
   'the same call in a row, with other results'),
  ('budget_tokens', 0, 'stop', 5000000, 1, NULL,
   'tokens since the user spoke'),
  ('budget_calls', 0, 'stop', 500, 1, NULL,
   'calls since the user spoke'),
  ('budget_cost', 0, 'stop', 50, 1, NULL,
   'cost since the user spoke, by blackbox_prices')
ON CONFLICT (rule) DO NOTHING;

-- on_loop: NULL is the setting. starts counts how often it was started again, went_on
-- the exchanges that came after the stop. These are added to the evidence of
-- kill_switch_event_id, as many as the ring's window.
CREATE TABLE IF NOT EXISTS main.payload_agents(
  agent_id TEXT PRIMARY KEY,
  on_loop CHECK (on_loop IN ('off', 'record', 'kill_switch')),
  stopped_at, stopped_by,
  starts DEFAULT 0,
  kill_switch_event_id, went_on DEFAULT 0
) WITHOUT ROWID;

-- seqs: a JSON array of the seq of each exchange of the ring that is part of it.
-- thing: a hash of what repeats. tokens: those since the loop began. sentence:
-- the same in words. action: 'record', or 'kill_switch' with its id. evidence: a JSON array
-- of the calls, the oldest first, from the one on that was new last: seq, tool, and result,
-- which is 'new', 'again' or 'error'.
CREATE TABLE IF NOT EXISTS main.payload_verdicts(
  id INTEGER PRIMARY KEY,
  at, ring, agent_id, rule, level,
  count NUMERIC, threshold NUMERIC,
  tool, turn, thing, seqs, tokens, sentence, action,
  kill_switch_event_id, evidence
);

-- NULL in agent_id, rule or tool is any. until: milliseconds since 1970 UTC;
-- NULL is for ever.
CREATE TABLE IF NOT EXISTS main.payload_allows(
  id INTEGER PRIMARY KEY,
  at DEFAULT (unixepoch() * 1000),
  agent_id TEXT, rule, tool TEXT,
  until INTEGER CHECK (until < 9e18),
  actor, reason,
  CONSTRAINT "ValidationError: rule must be of payload_rules, actor and reason text"
  CHECK ((instr(' no_progress same_error errors repeat budget_tokens budget_calls budget_cost ', ' ' || ifnull(rule, 'errors') || ' ')
          AND min(trim(actor), trim(reason)) > '' AND max(actor, reason) < x'') IS TRUE)
);
