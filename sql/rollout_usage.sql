-- rollout_usage.sql: the tokens that items tell. It continues rollout.sql, which has the manual.
--
-- Tables  rollout_calls          one row for each call of a model
--         rollout__sums          sums of them: of a conversation, by day and model
-- Rows    of blackbox_places, which core.sql describes
-- The calls with their cost, and sums of them, are tables of the module (ext/rollout/usage.c).
--
-- Invariants: a call that is told more than once counts once, for the conversation that told it first, with the
-- largest output that was told.
--
-- input_fresh     tokens read by the model, without those of a cache
-- cache_write     tokens written to a cache; cache_write_1h: those of them that it keeps for an hour
-- output          tokens written, with those of reasoning

INSERT INTO main.blackbox_places(kind, format, type, conditions, place, other, call_id, call_2, model, input, cache_write, cache_read, output, reasoning, cost, cache_in_input, reasoning_in_output) VALUES
  ('usage', 'codex', 'event_msg', '{"$.type":"token_count","$.info":true}', '$.info.last_token_usage', '$.info.total_token_usage', NULL, NULL, NULL, '.input_tokens', NULL, '.cached_input_tokens', '.output_tokens', '.reasoning_output_tokens', NULL, 1, 1),
  ('usage', 'pi', 'message', '{"$.message.role":"assistant","$.message.usage":true}', '$.message.usage', NULL, '$.id', '$.timestamp', '$.message.model', '.input', '.cacheWrite', '.cacheRead', '.output', NULL, '$.message.usage.cost.total', 0, 1),
  ('usage', 'gemini', 'gemini', '{"$.tokens":true}', '$.tokens', NULL, '$.id', '$.timestamp', '$.model', '.input', NULL, '.cached', '.output', '.thoughts', NULL, 1, 0),
  ('usage', 'qwen', 'assistant', '{"$.usageMetadata":true}', '$.usageMetadata', NULL, '$.uuid', NULL, '$.model', '.promptTokenCount', NULL, '.cachedContentTokenCount', '.candidatesTokenCount', '.thoughtsTokenCount', NULL, 1, 0),
  ('usage', 'opencode', 'message', '{"$.store":"opencode","$.role":"assistant"}', '$.row.data.tokens', NULL, '$.row.id', NULL, '$.row.data.modelID', '.input', '.cache.write', '.cache.read', '.output', '.reasoning', '$.row.data.cost', 0, 0),
  ('usage', 'gptme', 'assistant', '{"$.metadata.usage":true}', '$.metadata.usage', NULL, NULL, NULL, '$.metadata.model', '.input_tokens', '.cache_creation_tokens', '.cache_read_tokens', '.output_tokens', NULL, NULL, 0, 1),
  ('usage', 'amp', 'assistant', '{"$.usage.model":true}', '$.usage', NULL, NULL, NULL, '$.usage.model', '.inputTokens', '.cacheCreationInputTokens', '.cacheReadInputTokens', '.outputTokens', NULL, NULL, 0, 1),
  ('usage', 'copilot-chat', 'request', '{"$.result.metadata.promptTokens":true}', '$.result.metadata', NULL, '$.requestId', NULL, '$.result.metadata.resolvedModel', '.promptTokens', NULL, NULL, '.outputTokens', NULL, NULL, 1, 1),
  ('usage', 'posit', 'assistant', '{"$.message.providerOptions.providerMetadata.positai.usage":true}', '$.message.providerOptions.providerMetadata.positai.usage', NULL, NULL, NULL, '$.message.providerOptions.providerMetadata.positai.modelId', '.inputTokens', '.cacheWriteTokens', '.cacheReadTokens', '.outputTokens', NULL, NULL, 0, 1),
  ('usage', 'atif', 'agent', '{"$.step_id":true,"$.metrics":true}', '$.metrics', NULL, NULL, NULL, '$.model_name', '.prompt_tokens', '.extra.cache_write_tokens', '.cached_tokens', '.completion_tokens', '.extra.reasoning_tokens', '$.metrics.cost_usd', 1, 1), ('usage', 'copilot', 'assistant.usage', '{}', '$.data', NULL, '$.id', NULL, '$.data.model', '.inputTokens', '.cacheWriteTokens', '.cacheReadTokens', '.outputTokens', NULL, NULL, 0, 1) ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(kind, format, type, conditions, place, call_id, call_2, model, input, cache_write, cache_write_1h, cache_read, output, reasoning, cost, output_recorded)
VALUES ('usage', 'claude-code', 'assistant', '{"$.message.usage":true}', '$.message.usage', '$.message.id', '$.requestId', '$.message.model', '.input_tokens', '.cache_creation_input_tokens', '.cache_creation.ephemeral_1h_input_tokens', '.cache_read_input_tokens', '.output_tokens', '.output_tokens_details.thinking_tokens', '$.costUSD', 1) ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(kind, format, type, conditions, place, model, input, cache_write, cache_read, output)
SELECT 'usage', 'kimi', 'usage.record', c.conditions, '$.usage', '$.model', '.inputOther', '.inputCacheCreation', '.inputCacheRead', '.output'
  FROM (SELECT '{"$.usageScope":"turn"}' AS conditions UNION ALL
        SELECT '{"$.usageScope":null}') AS c
 WHERE 1 ON CONFLICT DO NOTHING;

-- Log records of Claude Code and Codex.
INSERT INTO main.blackbox_places(kind, format, type, conditions, place, call_id, model, input, cache_write, cache_read, output, reasoning, cost, cache_in_input) VALUES
  ('usage', 'otel', 'api_request', '{"$.event":"api_request"}', '$.attributes', '$.attributes.request_id', '$.attributes.model', '.input_tokens', '.cache_creation_tokens', '.cache_read_tokens', '.output_tokens', NULL, '$.attributes.cost_usd', 0),
  ('usage', 'otel', 'codex.sse_event', '{"$.attributes.event.kind":"response.completed"}', '$.attributes', NULL, '$.attributes.model', '.input_token_count', NULL, '.cached_token_count', '.output_token_count', '.reasoning_token_count', NULL, 1) ON CONFLICT DO NOTHING;

-- Spans: the tokens of a cache are among those of the input. (The span of an agent has the sums of its calls, which
-- are not counted again.)
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
 WHERE 1 ON CONFLICT DO NOTHING;

-- id is that of the item that told it, and cost is in USD, as it was told.
CREATE TABLE IF NOT EXISTS main.rollout_calls(
  id   INTEGER PRIMARY KEY,
  call TEXT NOT NULL UNIQUE,
  at, model, input_fresh, cache_write, cache_read, output, reasoning, cost, format,
  cache_write_1h
);

-- told is 1 if the cost was told, and 2 more if more was reasoned than written. Prompts are of low to high tokens.
CREATE TABLE IF NOT EXISTS main.rollout__sums(
  no, day, model, format, told, calls, input_fresh, cache_write, cache_read, output, reasoning, cost, cache_write_1h,
  low, high, PRIMARY KEY (no, day, model, format, told)
) WITHOUT ROWID;
