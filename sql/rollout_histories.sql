-- rollout_histories.sql: which items are the messages of a history, as rows. It continues rollout.sql, which has the
-- manual.
--
-- Tables  rollout_histories  what rollout_context() makes of an item of a format other than that of Codex
--
-- Each row that an item fulfils makes a message of it. Places are paths of SQLite's JSON functions, from the top of
-- the payload.
--
-- type, conditions  as in blackbox_places
-- part              of several messages of one item, their order
-- role              a role, or its place
-- whole             place of the message, which is used as it is; or
-- content, member   the message is {"role", member}, with what is at content
-- calls, results    places of lists of calls, each with id, name and args and the parts of its result: the calls, or
--                   the results, follow the content as parts of Gemini
-- summary           place of a text that stands for what was before it: it becomes a message, and the items before
--                   the one whose id is at since are left out
-- since
-- rewind            place of the id of an item: it is taken back, with all after it. This makes no message
-- parts             place in the message of its parts, which may be ...
-- call_type, call_id      ... calls: the type of such a part ('' for any), and the place of its id
-- result_type, result_id  ... or results
-- item_call, item_result  places in the payload, if the message is one itself

CREATE TABLE IF NOT EXISTS main.rollout_histories(
  format TEXT, type TEXT,
  conditions DEFAULT '{}',
  part DEFAULT 0,
  role, whole, content,
  member NOT NULL DEFAULT 'content',
  calls, results, summary, since, rewind, parts,
  call_type NOT NULL DEFAULT '',
  call_id,
  result_type NOT NULL DEFAULT '',
  result_id, item_call, item_result,
  type_key AS (lower(replace(type, '_', ''))),
  PRIMARY KEY (format, type, conditions, part)
) WITHOUT ROWID;

INSERT INTO main.rollout_histories(format, type, conditions, role, content, parts, call_type, call_id, result_type, result_id)
SELECT f.column1, t.type, c.conditions, t.type, '$.message.content', '$.content', 'tool_use', '$.id', 'tool_result', '$.tool_use_id'
  FROM (VALUES ('claude-code'), ('qoder')) AS f, (SELECT 'user' AS type UNION ALL SELECT 'assistant') AS t,
       (SELECT '{"$.message.content":true,"$.isSidechain":null}' AS conditions
        UNION ALL
        SELECT '{"$.message.content":true,"$.isSidechain":true,"$.agentId":true}') AS c
 WHERE 1 ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, conditions, part, role, content, member, calls, results, parts, call_id, result_id) VALUES
  ('qwen', 'user', '{"$.message.parts":true}', 0, 'user', '$.message.parts', 'parts', NULL, NULL, '$.parts', '$.functionCall.id', '$.functionResponse.id'),
  ('qwen', 'assistant', '{"$.message.parts":true}', 0, 'model', '$.message.parts', 'parts', NULL, NULL, '$.parts', '$.functionCall.id', '$.functionResponse.id'),
  ('qwen', 'tool_result', '{"$.message.parts":true}', 0, 'user', '$.message.parts', 'parts', NULL, NULL, '$.parts', '$.functionCall.id', '$.functionResponse.id'),
  ('gemini', 'user', '{"$.content":true}', 0, 'user', '$.content', 'parts', NULL, NULL, '$.parts', '$.functionCall.id', '$.functionResponse.id'),
  ('gemini', 'gemini', '{}', 0, 'model', '$.content', 'parts', '$.toolCalls', NULL, '$.parts', '$.functionCall.id', '$.functionResponse.id'),
  ('gemini', 'gemini', '{"$.toolCalls[0].result":true}', 1, 'user', NULL, 'parts', NULL, '$.toolCalls', '$.parts', '$.functionCall.id', '$.functionResponse.id') ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, conditions, rewind)
VALUES ('gemini', 'session', '{"$.$rewindTo":true}', '$.$rewindTo') ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, conditions, role, whole, parts, call_type, call_id, item_result) VALUES
  ('pi', 'message', '{"$.message.role":"user"}', 'user', '$.message', NULL, '', NULL, NULL),
  ('pi', 'message', '{"$.message.role":"assistant"}', 'assistant', '$.message', '$.content', 'toolCall', '$.id', NULL),
  ('pi', 'message', '{"$.message.role":"toolResult"}', 'toolResult', '$.message', NULL, '', NULL, '$.message.toolCallId') ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, conditions, role, summary, since) VALUES
  ('pi', 'compaction', '{"$.summary":true}', 'user', '$.summary', '$.firstKeptEntryId') ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, conditions, role, content, parts, call_type, call_id, result_type, result_id) VALUES
  ('goose', 'user', '{"$.content":true}', 'user', '$.content', '$.content', 'toolRequest', '$.id', 'toolResponse', '$.id'),
  ('goose', 'assistant', '{"$.content":true}', 'assistant', '$.content', '$.content', 'toolRequest', '$.id', 'toolResponse', '$.id'),
  ('goose-store', 'message', '{"$.row.content_json":true}', '$.role', '$.row.content_json', '$.content', 'toolRequest', '$.id', 'toolResponse', '$.id'),
  ('cursor', 'user', '{"$.message.content":true}', 'user', '$.message.content', '$.content', '', NULL, '', NULL),
  ('cursor', 'assistant', '{"$.message.content":true}', 'assistant', '$.message.content', '$.content', '', NULL, '', NULL),
  ('cline', 'user', '{"$.content":true}', 'user', '$.content', '$.content', 'tool_use', '$.id', 'tool_result', '$.tool_use_id'),
  ('cline', 'assistant', '{"$.content":true}', 'assistant', '$.content', '$.content', 'tool_use', '$.id', 'tool_result', '$.tool_use_id'),
  ('cline-task', 'user', '{"$.content":true}', 'user', '$.content', '$.content', 'tool_use', '$.id', 'tool_result', '$.tool_use_id'),
  ('cline-task', 'assistant', '{"$.content":true}', 'assistant', '$.content', '$.content', 'tool_use', '$.id', 'tool_result', '$.tool_use_id') ON CONFLICT DO NOTHING;

-- Programs whose files have calls beside the messages: what was said.
INSERT INTO main.rollout_histories(format, type, conditions, role, content) VALUES
  ('copilot', 'user.message', '{"$.data.content":true}', 'user', '$.data.content'),
  ('copilot', 'assistant.message', '{"$.data.content":true}', 'assistant', '$.data.content'),
  ('deepseek', 'user/message', '{"$.data.content":true}', 'user', '$.data.content'),
  ('deepseek', 'assistant/message', '{"$.data.message.content":true}', 'assistant', '$.data.message.content'),
  ('atif', 'user', '{"$.step_id":true}', 'user', '$.message'), ('atif', 'agent', '{"$.step_id":true}', 'assistant', '$.message'), ('kimi', 'context.append_message', '{"$.message.role":"user","$.message.content":true}', 'user', '$.message.content'),
  ('kimi', 'context.append_message', '{"$.message.role":"assistant","$.message.content":true}', 'assistant', '$.message.content'),
  ('kimi', 'content.part', '{"$.event.part.type":"text"}', 'assistant', '$.event.part.text'),
  ('grok', 'user_message_chunk', '{"$.params.update.content.text":true}', 'user', '$.params.update.content.text'),
  ('grok', 'agent_message_chunk', '{"$.params.update.content.text":true}', 'assistant', '$.params.update.content.text'),
  ('zed', 'message', '{"$.role":"user","$.row.segments":true}', 'user', '$.row.segments'),
  ('zed', 'message', '{"$.role":"assistant","$.row.segments":true}', 'assistant', '$.row.segments'),
  ('zed', 'message', '{"$.row.User.content":true}', 'user', '$.row.User.content'),
  ('zed', 'message', '{"$.row.Agent.content":true}', 'assistant', '$.row.Agent.content'),
  ('hermes', 'message', '{"$.role":"user","$.row.content":true}', 'user', '$.row.content'),
  ('hermes', 'message', '{"$.role":"assistant","$.row.content":true}', 'assistant', '$.row.content'),
  ('aider', 'user', '{"$.text":true}', 'user', '$.text'),
  ('aider', 'assistant', '{"$.text":true}', 'assistant', '$.text'),
  ('kiro', 'Prompt', '{}', 'user', '$.data.content'), ('kiro', 'AssistantMessage', '{}', 'assistant', '$.data.content'),
  ('kiro-ide', 'user', '{}', 'user', '$.payload.content'), ('windsurf', 'user_input', '{}', 'user', '$.user_input.user_response'),
  ('kiro-ide', 'assistant', '{}', 'assistant', '$.payload.content'), ('warp', 'query', '{}', 'user', '$.row.input'),
  ('windsurf', 'planner_response', '{}', 'assistant', '$.planner_response.response'),
  ('openhands', 'MessageEvent', '{"$.llm_message.role":"user"}', 'user', '$.llm_message.content'),
  ('openhands', 'MessageEvent', '{"$.llm_message.role":"assistant"}', 'assistant', '$.llm_message.content'),
  ('antigravity', 'USER_EXPLICIT', '{"$.content":true}', 'user', '$.content'),
  ('antigravity', 'MODEL', '{"$.content":true}', 'assistant', '$.content') ON CONFLICT DO NOTHING;

-- A tool part of OpenCode is a call with its result, once that is there.
INSERT INTO main.rollout_histories(format, type, conditions, role, whole, item_call) VALUES
  ('opencode', 'part', '{"$.row.data.type":"text"}', '$.role', '$.row.data', NULL),
  ('opencode', 'part', '{"$.row.data.type":"reasoning"}', '$.role', '$.row.data', NULL),
  ('opencode', 'part', '{"$.row.data.type":"file"}', '$.role', '$.row.data', NULL),
  ('opencode', 'part', '{"$.row.data.type":"tool","$.row.data.state.status":"completed"}', '$.role', '$.row.data', NULL),
  ('opencode', 'part', '{"$.row.data.type":"tool","$.row.data.state.status":"error"}', '$.role', '$.row.data', NULL),
  ('opencode', 'part', '{"$.row.data.type":"tool","$.row.data.state.status":"running"}', '$.role', '$.row.data', '$.row.data.callID'),
  ('opencode', 'part', '{"$.row.data.type":"tool","$.row.data.state.status":"pending"}', '$.role', '$.row.data', '$.row.data.callID') ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, conditions, part, role, content) VALUES
  ('copilot-chat', 'request', '{"$.message":true}', 0, 'user', '$.message.text'), ('copilot-chat', 'request', '{"$.message":true}', 1, 'assistant', '$.response') ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, role, whole, parts, call_type, call_id, result_type, result_id)
SELECT f.column1, r.column1, r.column1, f.column2, '$.content', 'tool-call', '$.toolCallId', 'tool-result', '$.toolCallId'
  FROM (VALUES ('zencoder', '$'), ('posit', '$.message')) AS f, (VALUES ('user'), ('assistant'), ('tool')) AS r
 WHERE 1 ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, role, content, parts, call_type, call_id, result_type, result_id)
SELECT f.column1, r.column1, r.column1, f.column2, '$.content', 'tool_use', '$.id', 'tool_result', f.column3
  FROM (VALUES ('amp', '$.content', '$.toolUseID'), ('qwenpaw', '$[0].content', '$.id'), ('gptme', '$.content', NULL)) AS f,
       (VALUES ('user'), ('assistant'), ('system')) AS r WHERE 1 ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_histories(format, type, role, whole, parts, call_id, item_result) VALUES
  ('vibe', 'user', 'user', '$', NULL, NULL, NULL), ('vibe', 'assistant', 'assistant', '$', '$.tool_calls', '$.id', NULL),
  ('vibe', 'tool', 'tool', '$', NULL, NULL, '$.tool_call_id'), ('grok-chat', 'user', 'user', '$', NULL, NULL, NULL),
  ('grok-chat', 'assistant', 'assistant', '$', '$.tool_calls', '$.id', NULL),
  ('grok-chat', 'tool_result', 'tool', '$', NULL, NULL, '$.tool_call_id') ON CONFLICT DO NOTHING;
