-- rollout_usage.sql: the tokens that items tell.
-- It continues rollout.sql, which has the manual.
--
-- Tables  rollout_calls          one row for each call of a model
-- Rows    of blackbox_places, which core.sql describes
-- Views   rollout__costs         the calls, with their cost by blackbox_prices
--         rollout_usage          the calls, with their cost
--         rollout_usage_days     sums by day (UTC) and model
--         rollout_usage_sums     sums by conversation and model, with those of
--                                its sub-agents
--
-- Invariants: a call that is told more than once counts once, for the
-- conversation that told it first, with the largest output that was told.
--
-- input_fresh     tokens read by the model, without those of a cache
-- cache_write     tokens written to a cache; cache_write_1h: those of them that it
--                 keeps for an hour
-- output          tokens written, with those of reasoning

INSERT INTO main.blackbox_places(kind, format, type, conditions, place, other, call_id, call_2, model, input, cache_write, cache_read, output, reasoning, cost, cache_in_input, reasoning_in_output)
VALUES
  ('usage', 'codex', 'event_msg', '{"$.type":"token_count","$.info":true}', '$.info.last_token_usage', '$.info.total_token_usage', NULL, NULL, NULL, '.input_tokens', NULL, '.cached_input_tokens', '.output_tokens', '.reasoning_output_tokens', NULL, 1, 1),
  ('usage', 'pi', 'message', '{"$.message.role":"assistant","$.message.usage":true}', '$.message.usage', NULL, '$.id', '$.timestamp', '$.message.model', '.input', '.cacheWrite', '.cacheRead', '.output', NULL, '$.message.usage.cost.total', 0, 1),
  ('usage', 'gemini', 'gemini', '{"$.tokens":true}', '$.tokens', NULL, '$.id', '$.timestamp', '$.model', '.input', NULL, '.cached', '.output', '.thoughts', NULL, 1, 0),
  ('usage', 'qwen', 'assistant', '{"$.usageMetadata":true}', '$.usageMetadata', NULL, '$.uuid', NULL, '$.model', '.promptTokenCount', NULL, '.cachedContentTokenCount', '.candidatesTokenCount', '.thoughtsTokenCount', NULL, 1, 0),
  ('usage', 'opencode', 'message', '{"$.store":"opencode","$.role":"assistant"}', '$.row.data.tokens', NULL, '$.row.id', NULL, '$.row.data.modelID', '.input', '.cache.write', '.cache.read', '.output', '.reasoning', '$.row.data.cost', 0, 0),
  ('usage', 'copilot', 'assistant.usage', '{}', '$.data', NULL, '$.id', NULL, '$.data.model', '.inputTokens', '.cacheWriteTokens', '.cacheReadTokens', '.outputTokens', NULL, NULL, 0, 1)
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(kind, format, type, conditions, place, call_id, call_2, model, input, cache_write, cache_write_1h, cache_read, output, reasoning, cost, output_recorded)
VALUES ('usage', 'claude-code', 'assistant', '{"$.message.usage":true}', '$.message.usage', '$.message.id', '$.requestId', '$.message.model', '.input_tokens', '.cache_creation_input_tokens', '.cache_creation.ephemeral_1h_input_tokens', '.cache_read_input_tokens', '.output_tokens', '.output_tokens_details.thinking_tokens', '$.costUSD', 1)
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(kind, format, type, conditions, place, model, input, cache_write, cache_read, output)
SELECT 'usage', 'kimi', 'usage.record', c.conditions, '$.usage', '$.model', '.inputOther', '.inputCacheCreation', '.inputCacheRead', '.output'
  FROM (SELECT '{"$.usageScope":"turn"}' AS conditions UNION ALL
        SELECT '{"$.usageScope":null}') AS c
 WHERE 1
ON CONFLICT DO NOTHING;

-- Log records of Claude Code and Codex.
INSERT INTO main.blackbox_places(kind, format, type, conditions, place, call_id, model, input, cache_write, cache_read, output, reasoning, cost, cache_in_input)
VALUES
  ('usage', 'otel', 'api_request', '{"$.event":"api_request"}', '$.attributes', '$.attributes.request_id', '$.attributes.model', '.input_tokens', '.cache_creation_tokens', '.cache_read_tokens', '.output_tokens', NULL, '$.attributes.cost_usd', 0),
  ('usage', 'otel', 'codex.sse_event', '{"$.attributes.event.kind":"response.completed"}', '$.attributes', NULL, '$.attributes.model', '.input_token_count', NULL, '.cached_token_count', '.output_token_count', '.reasoning_token_count', NULL, 1)
ON CONFLICT DO NOTHING;

-- Spans: the tokens of a cache are among those of the input. (The span of an agent
-- has the sums of its calls, which are not counted again.)
INSERT INTO main.blackbox_places(kind, format, type, conditions, place, call_id, call_2, model, input, cache_write, cache_read, output, reasoning, cost, cache_in_input)
SELECT 'usage', 'otel', t.type, m.conditions, '$.attributes.gen_ai.usage', '$.traceId', '$.spanId', m.model, '.input_tokens', '.cache_creation.input_tokens', '.cache_read.input_tokens', '.output_tokens', '.reasoning.output_tokens', '$.attributes.gen_ai.usage.cost', 1
  FROM (SELECT 'chat' AS type UNION ALL SELECT 'generate_content' UNION ALL
        SELECT 'text_completion' UNION ALL SELECT 'embeddings' UNION ALL
        SELECT 'gen_ai.client.inference.operation.details') AS t,
       (SELECT '{"$.attributes.gen_ai.response.model":true}' AS conditions,
               '$.attributes.gen_ai.response.model' AS model
        UNION ALL
        SELECT '{"$.attributes.gen_ai.response.model":null}',
               '$.attributes.gen_ai.request.model') AS m
 WHERE 1
ON CONFLICT DO NOTHING;

-- id is that of the item that told it, and cost is in USD, as it was told.
CREATE TABLE IF NOT EXISTS main.rollout_calls(
  id          INTEGER PRIMARY KEY,
  call        TEXT NOT NULL UNIQUE,
  at          INTEGER NOT NULL,
  model       TEXT NOT NULL,
  input_fresh INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  cache_read  INTEGER NOT NULL,
  output      INTEGER NOT NULL,
  reasoning   INTEGER NOT NULL,
  cost        REAL,
  format      TEXT NOT NULL,
  cache_write_1h INTEGER NOT NULL
);

-- The name of a price may be without the vendor before the last /, and without the
-- date at the end, which the model has. Of several rows the longest name counts;
-- then the newest price of that day or, if all are newer, the oldest one; then the
-- highest tier that the prompt exceeds. (bxCost() has the same rule.)
CREATE VIEW IF NOT EXISTS main.rollout__costs AS
SELECT n.*, n.cost IS NOT NULL AS told,
       coalesce(n.cost,
         (SELECT price FROM
           (SELECT (n.input_fresh * p.input
                    + (n.cache_write - n.cache_write_1h) * coalesce(p.cache_write, p.input)
                    + n.cache_write_1h * coalesce(p.cache_write_1h, 2 * p.input)
                    + n.cache_read * coalesce(p.cache_read, p.input)
                    + (n.output - min(n.reasoning, n.output)) * p.output
                    + min(n.reasoning, n.output) * coalesce(p.reasoning, p.output)) / 1e6
                     AS price,
                   length(p.model) AS fit, julianday(p.since) - 2440587.5 - n.day AS away,
                   p.above AS above
              FROM blackbox_prices AS p
             WHERE p.model IN (n.model, substr(n.model, n.vendor + 1),
                               substr(n.model, 1, length(n.model) - n.tail),
                               substr(n.model, n.vendor + 1,
                                      length(n.model) - n.vendor - n.tail))
               AND (p.above = 0 OR p.above < n.input_fresh + n.cache_write + n.cache_read))
           ORDER BY fit DESC, away > 0, abs(away), above DESC LIMIT 1)) AS price,
       CASE WHEN EXISTS (SELECT 1 FROM blackbox_places AS u
                          WHERE u.format = n.format AND u.source = 'item' AND u.kind = 'usage'
                            AND u.output_recorded)
            THEN 'as recorded' END AS output_source
  FROM (SELECT *, at / 86400000 AS day,
               iif(instr(model, '/'), length(rtrim(model, replace(model, '/', ''))), 0) AS vendor,
               CASE WHEN substr(model, -9) GLOB '[-@]20[0-9][0-9][01][0-9][0-3][0-9]' THEN 9
                    WHEN substr(model, -11) GLOB '-20[0-9][0-9]-[01][0-9]-[0-3][0-9]' THEN 11
                    WHEN substr(model, -7) = '-latest' THEN 7 ELSE 0 END AS tail
          FROM rollout_calls) AS n;

CREATE VIEW IF NOT EXISTS main.rollout_usage AS
SELECT h.id AS rollout, c.id & 4294967295 AS sequence, c.model AS model,
       c.input_fresh AS input_fresh, c.cache_write AS cache_write,
       c.cache_read AS cache_read, c.output AS output,
       c.reasoning AS reasoning, c.format AS source, c.at AS timestamp,
       c.call AS call, c.price AS cost,
       CASE WHEN c.told THEN 'reported' WHEN c.price IS NOT NULL THEN 'computed' END
         AS cost_source,
       c.cache_write_1h AS cache_write_1h, c.output_source AS output_source
  FROM rollout__costs AS c LEFT JOIN rollout__heads AS h ON h.no = c.id >> 32;

-- (The cost of a sum is named within, so that SQLite computes that of a call once.)
CREATE VIEW IF NOT EXISTS main.rollout_usage_days AS
SELECT day, model, calls, input_fresh, cache_write, cache_read, output, reasoning, cost,
       CASE WHEN told = calls THEN 'reported' WHEN told THEN 'mixed'
            WHEN cost IS NOT NULL THEN 'computed' END AS cost_source,
       cache_write_1h, output_source
  FROM (SELECT date(c.day * 86400, 'unixepoch') AS day, c.model AS model,
               count(*) AS calls, sum(c.input_fresh) AS input_fresh,
               sum(c.cache_write) AS cache_write, sum(c.cache_read) AS cache_read,
               sum(c.output) AS output, sum(c.reasoning) AS reasoning,
               sum(c.price) AS cost, sum(c.told) AS told,
               sum(c.cache_write_1h) AS cache_write_1h,
               max(c.output_source) AS output_source
          FROM rollout__costs AS c
         GROUP BY c.day, c.model);

-- subagents is 0 for the calls of the conversation itself, and 1 for those of its
-- sub-agents, and of theirs. (With +, no query by model makes an automatic index.)
CREATE VIEW IF NOT EXISTS main.rollout_usage_sums AS
WITH RECURSIVE tree(root, no) AS (
  SELECT no, no FROM rollout__heads
  UNION
  SELECT t.root, a.no
    FROM tree AS t JOIN rollout__heads AS h ON h.no = t.no
    JOIN rollout__about AS a ON a.parent = h.id)
SELECT rollout, subagents, model, calls, input_fresh, cache_write, cache_read, output,
       reasoning, cost,
       CASE WHEN told = calls THEN 'reported' WHEN told THEN 'mixed'
            WHEN cost IS NOT NULL THEN 'computed' END AS cost_source,
       cache_write_1h, output_source
  FROM (SELECT h.id AS rollout, t.no <> t.root AS subagents, +c.model AS model,
               count(*) AS calls, sum(c.input_fresh) AS input_fresh,
               sum(c.cache_write) AS cache_write, sum(c.cache_read) AS cache_read,
               sum(c.output) AS output, sum(c.reasoning) AS reasoning,
               sum(c.price) AS cost, sum(c.told) AS told,
               sum(c.cache_write_1h) AS cache_write_1h,
               max(c.output_source) AS output_source
          FROM tree AS t
          JOIN rollout__heads AS h ON h.no = t.root
         CROSS JOIN rollout__costs AS c
            ON c.id BETWEEN t.no << 32 AND (t.no << 32) + 4294967295
         GROUP BY h.id, t.no <> t.root, +c.model);
