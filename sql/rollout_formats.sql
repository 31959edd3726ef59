-- rollout_formats.sql: how an item is read, as rows.
-- It continues rollout.sql, which has the manual.
--
-- Tables  rollout_readings   where items have what users and models said, and
--                            what lists show
--         rollout_preambles  how texts begin that no user typed
--         rollout_formats    the formats of files, and how a line of each says
--                            its type, time and conversation
--         rollout_attributes other names of the attributes of spans
--         rollout_lines      how the lines of files of text begin
-- Views   rollout_facts      what each item says, by these rows
--         rollout_texts      what users and assistants said
--
-- A new dialect is an INSERT. Every row is tried on every item of its type: what
-- an item says is found by the places that it has. Places are paths of SQLite's
-- JSON functions ('$.message.content'), from the top of the payload.
--
-- fact        'user', 'assistant', 'tool': what was said, by whom. What a user
--             says begins a turn, unless it begins with a preamble
--             'goal'    what a user wants, which begins no turn
--             'review'  a review begins: its prompt may be written twice
--             'title', 'cwd', 'model', 'branch': of the conversation; the newest
--             one counts
-- type        of the item, in both spellings (user_message, UserMessage)
-- conditions  a JSON object of places and values, which must all hold: a text
--             (compared in both spellings), true (something is there), or null
--             (nothing is there, or false)
-- place       of the value: a text, or an array of parts with texts
-- other       the place to try if there is nothing at the first
-- part        the member of a part that has its text
-- source      some recorders write what a user says twice, as an item and as an
--             event

CREATE TABLE IF NOT EXISTS main.rollout_readings(
  format     TEXT NOT NULL,
  fact       TEXT NOT NULL CHECK (fact IN ('user', 'assistant', 'tool', 'goal',
    'review', 'title', 'cwd', 'model', 'branch')),
  type       TEXT NOT NULL,
  conditions TEXT NOT NULL DEFAULT '{}',
  place      TEXT NOT NULL,
  other      TEXT,
  part       TEXT NOT NULL DEFAULT 'text',
  source     TEXT NOT NULL DEFAULT 'item' CHECK (source IN ('item', 'event')),
  type_key   TEXT AS (lower(replace(type, '_', ''))) VIRTUAL,
  PRIMARY KEY (format, fact, type, conditions, place)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS main.rollout_readings_type
ON rollout_readings(type_key);

-- One row. rule is the rule that is now removing conversations. bytes is what it
-- has removed so far.
CREATE TABLE IF NOT EXISTS main.rollout__act(
  id   INTEGER PRIMARY KEY CHECK (id = 1),
  rule TEXT,
  rows INTEGER NOT NULL DEFAULT 0,
  bytes INTEGER NOT NULL DEFAULT 0,
  search INTEGER NOT NULL DEFAULT 0, -- 1: there is an index of the texts
  stamp INTEGER NOT NULL DEFAULT 0 -- another one after each change of the rules
);

INSERT INTO main.rollout__act(id) VALUES (1) ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_readings(format, fact, type, conditions, place, other, part, source)
VALUES
  ('codex', 'user', 'event_msg', '{"$.type":"user_message"}', '$.message', '$.data.message', 'text', 'event'),
  ('codex', 'user', 'response_item', '{"$.type":"message","$.role":"user"}', '$.content', NULL, 'text', 'item'),
  ('codex', 'user', 'response_item', '{"$.type":null,"$.role":"user"}', '$.content', NULL, 'text', 'item'),
  ('codex', 'assistant', 'event_msg', '{"$.type":"agent_message"}', '$.message', '$.data.message', 'text', 'event'),
  ('codex', 'assistant', 'response_item', '{"$.type":"message","$.role":"assistant"}', '$.content', NULL, 'text', 'item'),
  ('codex', 'assistant', 'response_item', '{"$.type":null,"$.role":"assistant"}', '$.content', NULL, 'text', 'item'),
  ('codex', 'tool', 'response_item', '{"$.type":"function_call_output"}', '$.output', '$.output.content', 'text', 'item'),
  ('codex', 'tool', 'response_item', '{"$.type":"custom_tool_call_output"}', '$.output', '$.output.content', 'text', 'item'),
  ('codex', 'goal', 'event_msg', '{"$.type":"thread_goal_updated"}', '$.goal.objective', '$.objective', 'text', 'event'),
  ('codex', 'review', 'event_msg', '{"$.type":"entered_review_mode"}', '$.type', NULL, 'text', 'event'),
  ('codex', 'title', 'event_msg', '{"$.type":"thread_name_updated"}', '$.thread_name', '$.threadName', 'text', 'event'),
  ('codex', 'cwd', 'turn_context', '{}', '$.cwd', NULL, 'text', 'item'),
  ('codex', 'model', 'turn_context', '{}', '$.model', NULL, 'text', 'item')
ON CONFLICT DO NOTHING;

-- Messages of users that begin with one of these prefixes come from the program.
CREATE TABLE IF NOT EXISTS main.rollout_preambles(
  prefix TEXT PRIMARY KEY CHECK (prefix <> '')
) WITHOUT ROWID;

INSERT INTO main.rollout_preambles(prefix)
VALUES ('<environment_context>'), ('<user_instructions>'),
       ('<permissions instructions>'), ('<turn_aborted>'),
       ('<subagent_notification>'), ('<user_shell_command>'), ('<skill>'),
       ('<recommended_plugins>'), ('<user_action>'), ('<collaboration_mode>'),
       ('<model_switch>'), ('<personality_spec>'), ('<apps_instructions>'),
       ('<skills_instructions>'), ('<plugins_instructions>'), ('<goal_context>'),
       ('# AGENTS.md instructions'),
       ('<command-name>'), ('<command-message>'), ('<local-command-stdout>'),
       ('<local-command-stderr>'), ('<local-command-caveat>'),
       ('<bash-input>'), ('<bash-stdout>'), ('<bash-stderr>'),
       ('<task-notification>'), ('<system-reminder>'),
       ('[Request interrupted by user'),
       ('<environment_details>'), ('[ERROR] You did not use a tool'),
       ('Caveat: The messages below were generated by the user')
ON CONFLICT DO NOTHING;

-- A damaged payload says nothing. Numbers are not text, and neither are the tags
-- that a recorder puts around an image, and what a model only thought.
CREATE VIEW IF NOT EXISTS main.rollout_facts AS
SELECT d.id AS id, r.fact AS fact, r.source AS source,
       coalesce(
         CASE json_type(d.payload, r.place)
           WHEN 'text' THEN d.payload ->> r.place
           WHEN 'array' THEN
             (SELECT group_concat(part.text, char(10))
                FROM (SELECT CASE WHEN e.type <> 'object' THEN NULL
                               WHEN e.value ->> 'thought' THEN NULL
                               WHEN e.value ->> 'type'
                                IN ('reasoning', 'thinking', 'think') THEN NULL
                               ELSE CASE json_type(e.value, '$.' || r.part)
                                 WHEN 'text' THEN e.value ->> r.part
                                 WHEN 'array' THEN
                                   (SELECT group_concat(
                                             CASE f.type WHEN 'object'
                                               THEN f.value ->> 'text' END,
                                             char(10))
                                      FROM json_each(e.value, '$.' || r.part)
                                           AS f) END END AS text
                        FROM json_each(d.payload, r.place) AS e) AS part
               WHERE NOT (substr(part.text, 1, 12) = '<image name='
                          AND instr(part.text, '>') = length(part.text))
                 AND part.text NOT IN ('<image>', '</image>')) END,
         CASE json_type(d.payload, r.other) WHEN 'text'
           THEN d.payload ->> r.other END) AS value
  FROM (SELECT id, type,
               CASE WHEN json_valid(payload) OR json_valid(payload || ' ')
                    THEN payload END AS payload
          FROM rollout__data) AS d
 CROSS JOIN rollout_readings AS r
    ON r.type_key = lower(replace(d.type, '_', ''))
 WHERE d.payload IS NOT NULL
   AND NOT EXISTS (
         SELECT 1 FROM json_each(r.conditions) AS c
          WHERE CASE c.type
            WHEN 'text' THEN
              lower(replace(coalesce(d.payload ->> c.key, ''), '_', ''))
              <> lower(replace(c.value, '_', ''))
            WHEN 'true' THEN
              coalesce(json_type(d.payload, c.key), 'null')
              IN ('null', 'false')
            ELSE coalesce(json_type(d.payload, c.key), 'null')
                 NOT IN ('null', 'false') END);

CREATE VIEW IF NOT EXISTS main.rollout_texts AS
SELECT id, fact AS role, source, value AS text
  FROM rollout_facts
 WHERE fact IN ('user', 'assistant');

------------------------------------------------------------------- formats

-- The formats of lines that rollout_import() reads. A file has the first format
-- (by rank) of whose conditions one of its lines fulfils all.
--
-- mark          the conditions by which a line, or a file that is one value, shows
--               the format. Of several places with | between them, the first one
--               that has something counts
-- items         where a line has its items, if it is not one itself: places, in
--               which [] stands for each element, with | between them
-- type          places of an item's type, with | between them; the last one may
--               be a type itself. If there is none, the type is 'unknown'
-- payload       place of the payload; NULL: the item is its own payload. An item
--               without a payload is its own payload, too
-- time          places of its time: ISO 8601 text, or a number of seconds,
--               milliseconds or nanoseconds
-- names         the conditions under which an item names its conversation ...
-- conversation  ... at these places. Items that name none belong to the one
--               before
-- once          1: only the first name in a file counts, because later ones
--               belong to a history that was copied into it
-- agent         place of the id of a sub-agent, whose items are a conversation
--               of their own
-- trace         place of the id of a trace. An item that names no conversation
--               belongs to the one that the first item of its trace names, or else
--               to that of the trace
-- item_id       place of the id of an item ...
-- item_parent   ... and of the id of the item that it follows, where items are a
--               tree: see rollout_tree()
-- spans         1: items are spans or log records of OpenTelemetry, whose payloads
--               are made when they are imported: see rollout_attributes
-- newest        conditions of such an item. The last one of its trace and item_id
--               that fulfils them gets "newest":true in its payload
-- apart         1: the file tells again what another file has, so that its
--               conversations have ids of their own, even if they are UUIDs
-- kind          'lines', or 'store': the lines that rollout_import_from() makes of
--               the rows of a database

CREATE TABLE IF NOT EXISTS main.rollout_formats(
  format       TEXT PRIMARY KEY NOT NULL CHECK (format <> ''),
  kind         TEXT NOT NULL DEFAULT 'lines' CHECK (kind IN ('lines', 'store')),
  rank         INTEGER NOT NULL DEFAULT 100,
  mark         TEXT NOT NULL,
  items        TEXT,
  type         TEXT NOT NULL DEFAULT '$.type' CHECK (type <> ''),
  payload      TEXT,
  time         TEXT,
  names        TEXT NOT NULL DEFAULT '{}',
  conversation TEXT,
  once         INTEGER NOT NULL DEFAULT 0 CHECK (once IN (0, 1)),
  agent        TEXT,
  trace        TEXT,
  item_id      TEXT,
  item_parent  TEXT,
  spans        INTEGER NOT NULL DEFAULT 0 CHECK (spans IN (0, 1)),
  newest       TEXT,
  apart        INTEGER NOT NULL DEFAULT 0 CHECK (apart IN (0, 1)),
  description  TEXT,
  CONSTRAINT "ValidationError: Invalid format: mark and names must be JSON objects of places and values, such as {""$.role"":""user""}"
    CHECK (mark LIKE '{%}' AND names LIKE '{%}')
) WITHOUT ROWID;

INSERT INTO main.rollout_formats(format, rank, mark, items, type, payload, time, names, conversation, once, agent, item_id, item_parent, description)
VALUES
  ('codex', 10, '{"$.type":true,"$.payload":true}', NULL, '$.type', '$.payload', '$.timestamp', '{"$.type":"session_meta"}', '$.payload.id|$.payload.session_id', 1, NULL, NULL, NULL, 'Codex CLI: sessions/YYYY/MM/DD/rollout-*.jsonl'),
  ('qwen', 20, '{"$.sessionId":true,"$.message.parts":true}', NULL, '$.type', NULL, '$.timestamp', '{}', '$.sessionId', 0, NULL, '$.uuid', '$.parentUuid', 'Qwen Code: projects/*/chats/*.jsonl'),
  ('claude-code', 21, '{"$.sessionId":true,"$.type":true,"$.message.content":true}', NULL, '$.type', NULL, '$.timestamp', '{}', '$.sessionId', 0, '$.agentId', '$.uuid', '$.parentUuid', 'Claude Code: projects/*/*.jsonl, and subagents/*.jsonl'),
  ('gemini', 22, '{"$.sessionId":true,"$.startTime":true}', '$.$set.messages[]|$.messages[]', '$.type|$.kind|session', NULL, '$.timestamp|$.startTime', '{"$.sessionId":true}', '$.sessionId', 0, NULL, '$.id', NULL, 'Gemini CLI: tmp/*/chats/*.jsonl and *.json'),
  ('pi', 30, '{"$.type":"session","$.id":true,"$.timestamp":true}', NULL, '$.type', NULL, '$.timestamp', '{"$.type":"session"}', '$.id', 0, NULL, '$.id', '$.parentId', 'pi, OpenClaw, omp: sessions/*/*.jsonl'),
  ('copilot', 31, '{"$.type":"session.start","$.data.sessionId":true}', NULL, '$.type', NULL, '$.timestamp', '{"$.type":"session.start"}', '$.data.sessionId', 0, NULL, '$.id', NULL, 'Copilot CLI: session-state/*/events.jsonl'),
  ('goose', 32, '{"$.working_dir":true,"$.type":null}', NULL, '$.role|session', NULL, '$.created|$.created_at', '{"$.working_dir":true}', '$.id', 0, NULL, '$.id', NULL, 'Goose before 1.10: sessions/*.jsonl'),
  ('cursor', 40, '{"$.role":true,"$.message.content":true,"$.sessionId":null}', NULL, '$.role|$.type', NULL, NULL, '{}', NULL, 0, NULL, NULL, NULL, 'Cursor CLI: agent-transcripts/*.jsonl'),
  ('deepseek', 29, '{"$.type":"session","$.id":true,"$.createdAt":true}', NULL, '$.type', NULL, '$.time|$.time0|$.createdAt', '{"$.type":"session"}', '$.id', 0, NULL, NULL, NULL, 'DeepSeek Harness: sessions/*/*/session.jsonl'),
  ('kimi', 33, '{"$.type":"metadata","$.protocol_version":true}', NULL, '$.event.type|$.type', NULL, '$.time|$.created_at', '{}', NULL, 0, NULL, NULL, NULL, 'Kimi Code: sessions/*/*/agents/*/wire.jsonl'),
  ('grok', 34, '{"$.params.update.sessionUpdate|$.generated_title|$.session_summary":true,"$.params.update.sessionUpdate|$.info.id":true}', NULL, '$.params.update.sessionUpdate|summary', NULL, '$.timestamp|$.params._meta.agentTimestampMs|$.updated_at', '{}', '$.params.sessionId|$.info.id', 0, NULL, NULL, NULL, 'Grok Build: sessions/*/*/updates.jsonl, and summary.json'),
  ('antigravity', 35, '{"$.source":"USER_EXPLICIT","$.content":true}', NULL, '$.source', NULL, '$.created_at', '{}', NULL, 0, NULL, NULL, NULL, 'Antigravity: brain/*/.system_generated/logs/transcript.jsonl'),
  ('cline', 41, '{"$.sessionId":true,"$.messages[0].role":true}', '$.messages[]', '$.role', NULL, '$.ts', '{}', '$.sessionId', 0, NULL, '$.id', NULL, 'Cline: sessions/*/*.messages.json'),
  ('cline-task', 42, '{"$[0].role":true,"$[0].content":true}', '$[]', '$.role', NULL, '$.ts', '{}', NULL, 0, NULL, NULL, NULL, 'Cline and Roo Code in editors: tasks/*/api_conversation_history.json')
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_formats(format, rank, mark, type, time, conversation, apart, description)
VALUES
  ('codex-history', 11, '{"$.session_id":true,"$.ts":true,"$.text":true}', 'history', '$.ts', '$.session_id', 1, 'Codex CLI: history.jsonl, what users typed')
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_formats(format, kind, rank, mark, type, time, conversation, agent, description)
VALUES
  ('opencode', 'store', 90, '{"$.store":"opencode"}', '$.type', '$.row.data.time.start|$.row.data.time.created|$.row.time_created', '$.session', '$.agent', 'OpenCode: opencode.db, by rollout_import_from(''opencode'', schema)'),
  ('goose-store', 'store', 91, '{"$.store":"goose"}', '$.type', '$.row.created_timestamp|$.row.created_at', '$.session', '$.agent', 'Goose since 1.10: sessions.db, by rollout_import_from(''goose'', schema)'),
  ('cursor-store', 'store', 92, '{"$.store":"cursor"}', '$.type', '$.row.value.timestamp|$.row.value.createdAt', '$.session', NULL, 'Cursor: state.vscdb, by rollout_import_from(''cursor'', schema)'),
  ('zed', 'store', 93, '{"$.store":"zed"}', '$.type', '$.row.created_at|$.row.updated_at', '$.session', '$.agent', 'Zed: threads.db, by rollout_import_from(''zed'', schema)'),
  ('hermes', 'store', 94, '{"$.store":"hermes"}', '$.type', '$.row.timestamp', '$.session', NULL, 'Hermes: state.db, by rollout_import_from(''hermes'', schema)')
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_formats(format, rank, mark, items, type, time, conversation, trace, item_id, item_parent, spans, newest, apart, description)
VALUES
  ('otel', 50, '{"$.resourceSpans|$.resourceLogs":true}', '$.resourceSpans[].scopeSpans[].spans[]|$.resourceLogs[].scopeLogs[].logRecords[]', '$.event|$.attributes.gen_ai.operation.name|span', '$.startTimeUnixNano|$.timeUnixNano|$.observedTimeUnixNano', '$.attributes.gen_ai.conversation.id', '$.traceId', '$.spanId', '$.parentSpanId', 1, '{"$.event":true,"$.attributes.gen_ai.input.messages":true}', 1, 'OpenTelemetry: spans and log records as the file exporter of the collector writes them')
ON CONFLICT DO NOTHING;

-- The attributes of a span are a list of names and values, and a message is one
-- text that is JSON, or one attribute for each of its parts. The payload is the
-- span with one object of attributes: a.b.c is the member c of b of a, and numbers
-- are the elements of an array. The messages of its events are among them.
--
-- A log record is read as an event. Its payload has the name in event. What its
-- body has inside of an object has a name with dots: event:message.content. A body
-- of which nothing is known stays in body.
--
-- attribute  a name: an attribute with this name, or with one that goes on after
--            it with a dot, gets another one. * stands for a number. event:name is
--            an attribute of an event of the span, and event: every such event
-- name       its name in the payload: * is that number, and + the number of the
--            event. Of several attributes that get one name, the one that had it
--            counts, or else the one of the lowest rank
-- json       1: its text is JSON (if it is not, it stays a text)
-- only       the row is for this value alone
-- value      the span also has an attribute with this name and value

CREATE TABLE IF NOT EXISTS main.rollout_attributes(
  format    TEXT NOT NULL,
  attribute TEXT NOT NULL CHECK (attribute <> ''),
  name      TEXT NOT NULL CHECK (name <> ''),
  json      INTEGER NOT NULL DEFAULT 0 CHECK (json IN (0, 1)),
  only      TEXT NOT NULL DEFAULT '',
  value     TEXT,
  rank      INTEGER NOT NULL DEFAULT 100,
  PRIMARY KEY (format, attribute, name, only)
) WITHOUT ROWID;

INSERT INTO main.rollout_attributes(format, attribute, name, json)
VALUES
  ('otel', 'gen_ai.input.messages', 'gen_ai.input.messages', 1),
  ('otel', 'gen_ai.output.messages', 'gen_ai.output.messages', 1),
  ('otel', 'gen_ai.system_instructions', 'gen_ai.system_instructions', 1),
  ('otel', 'gen_ai.tool.definitions', 'gen_ai.tool.definitions', 1),
  ('otel', 'gen_ai.prompt', 'gen_ai.input.messages', 1),
  ('otel', 'gen_ai.prompt.*.content', 'gen_ai.input.messages.*.content', 1),
  ('otel', 'gen_ai.completion', 'gen_ai.output.messages', 1),
  ('otel', 'gen_ai.completion.*.content', 'gen_ai.output.messages.*.content', 1),
  ('otel', 'llm.input_messages.*.message', 'gen_ai.input.messages.*', 0),
  ('otel', 'llm.input_messages.*.message.contents.*.message_content', 'gen_ai.input.messages.*.content.*', 0),
  ('otel', 'llm.input_messages.*.message.tool_calls.*.tool_call', 'gen_ai.input.messages.*.tool_calls.*', 0),
  ('otel', 'llm.output_messages.*.message', 'gen_ai.output.messages.*', 0),
  ('otel', 'llm.output_messages.*.message.contents.*.message_content', 'gen_ai.output.messages.*.content.*', 0),
  ('otel', 'llm.output_messages.*.message.tool_calls.*.tool_call', 'gen_ai.output.messages.*.tool_calls.*', 0),
  ('otel', 'gen_ai.content.prompt:gen_ai.prompt', 'gen_ai.input.messages', 1),
  ('otel', 'gen_ai.content.completion:gen_ai.completion', 'gen_ai.output.messages', 1),
  ('otel', 'gen_ai.client.inference.operation.details:gen_ai', 'gen_ai', 0),
  ('otel', 'gen_ai.client.inference.operation.details:gen_ai.input.messages', 'gen_ai.input.messages', 1),
  ('otel', 'gen_ai.client.inference.operation.details:gen_ai.output.messages', 'gen_ai.output.messages', 1),
  ('otel', 'gen_ai.client.inference.operation.details:gen_ai.system_instructions', 'gen_ai.system_instructions', 1),
  ('otel', 'gen_ai.system.message:content', 'gen_ai.input.messages.+.content', 1),
  ('otel', 'gen_ai.user.message:content', 'gen_ai.input.messages.+.content', 1),
  ('otel', 'gen_ai.assistant.message:content', 'gen_ai.input.messages.+.content', 1),
  ('otel', 'gen_ai.assistant.message:tool_calls', 'gen_ai.input.messages.+.tool_calls', 1),
  ('otel', 'gen_ai.tool.message:content', 'gen_ai.input.messages.+.content', 1),
  ('otel', 'gen_ai.tool.message:id', 'gen_ai.input.messages.+.tool_call_id', 0),
  ('otel', 'gen_ai.choice:message', 'gen_ai.output.messages.+.content', 1),
  ('otel', 'gen_ai.choice:message.content', 'gen_ai.output.messages.+.content', 1),
  ('otel', 'gen_ai.choice:message.role', 'gen_ai.output.messages.+.role', 0),
  ('otel', 'gen_ai.choice:message.tool_calls', 'gen_ai.output.messages.+.tool_calls', 1),
  ('otel', 'gen_ai.choice:content', 'gen_ai.output.messages.+.content', 1),
  ('otel', 'gen_ai.choice:tool_calls', 'gen_ai.output.messages.+.tool_calls', 1),
  ('otel', 'gen_ai.choice:finish_reason', 'gen_ai.output.messages.+.finish_reason', 0),
  ('otel', 'session.id', 'gen_ai.conversation.id', 0),
  ('otel', 'conversation.id', 'gen_ai.conversation.id', 0),
  ('otel', 'traceloop.association.properties.session_id', 'gen_ai.conversation.id', 0),
  ('otel', 'gen_ai.usage.prompt_tokens', 'gen_ai.usage.input_tokens', 0),
  ('otel', 'gen_ai.usage.completion_tokens', 'gen_ai.usage.output_tokens', 0),
  ('otel', 'gen_ai.usage.cache_read_input_tokens', 'gen_ai.usage.cache_read.input_tokens', 0),
  ('otel', 'gen_ai.usage.cache_creation_input_tokens', 'gen_ai.usage.cache_creation.input_tokens', 0),
  ('otel', 'gen_ai.usage.cache_write_input_tokens', 'gen_ai.usage.cache_creation.input_tokens', 0),
  ('otel', 'gen_ai.usage.input_tokens.cached', 'gen_ai.usage.cache_read.input_tokens', 0),
  ('otel', 'gen_ai.usage.output_tokens.reasoning', 'gen_ai.usage.reasoning.output_tokens', 0),
  ('otel', 'gen_ai.usage.reasoning_tokens', 'gen_ai.usage.reasoning.output_tokens', 0),
  ('otel', 'llm.usage.prompt_tokens', 'gen_ai.usage.input_tokens', 0),
  ('otel', 'llm.usage.completion_tokens', 'gen_ai.usage.output_tokens', 0),
  ('otel', 'llm.token_count.prompt', 'gen_ai.usage.input_tokens', 0),
  ('otel', 'llm.token_count.completion', 'gen_ai.usage.output_tokens', 0),
  ('otel', 'llm.token_count.prompt_details.cache_read', 'gen_ai.usage.cache_read.input_tokens', 0),
  ('otel', 'llm.token_count.prompt_details.cache_write', 'gen_ai.usage.cache_creation.input_tokens', 0),
  ('otel', 'llm.token_count.completion_details.reasoning', 'gen_ai.usage.reasoning.output_tokens', 0),
  ('otel', 'llm.cost.total', 'gen_ai.usage.cost', 0),
  ('otel', 'llm.model_name', 'gen_ai.response.model', 0)
ON CONFLICT DO NOTHING;

-- Files of text. Lines of one type, one after the other, are one item: an object
-- {"format", "type", "text"}. Blank lines after it are not part of it, and lines
-- between two lines that begin with ``` are what the first of them is. A line that
-- begins a conversation never is between them.
--
-- prefix  how a line begins; the longest one counts. '' is for all others
-- first   1: the line begins a conversation, and the file if it is the first one.
--         Its text is the member session

CREATE TABLE IF NOT EXISTS main.rollout_lines(
  format TEXT NOT NULL CHECK (format <> ''),
  prefix TEXT NOT NULL,
  type   TEXT NOT NULL CHECK (type <> ''),
  first  INTEGER NOT NULL DEFAULT 0 CHECK (first IN (0, 1)),
  PRIMARY KEY (format, prefix)
) WITHOUT ROWID;

INSERT INTO main.rollout_lines(format, prefix, type, first)
VALUES
  ('aider', '# aider chat started at ', 'start', 1),
  ('aider', '#### ', 'user', 0),
  ('aider', '> ', 'tool', 0),
  ('aider', '', 'assistant', 0)
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_formats(format, rank, mark, time, names, conversation, description)
VALUES
  ('aider', 60, '{"$.format":"aider"}', '$.session', '{"$.session":true}', '$.session', 'aider: .aider.chat.history.md')
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_readings(format, fact, type, conditions, place)
VALUES
  ('aider', 'user', 'user', '{"$.format":"aider"}', '$.text'),
  ('aider', 'assistant', 'assistant', '{"$.format":"aider"}', '$.text'),
  ('aider', 'tool', 'tool', '{"$.format":"aider"}', '$.text')
ON CONFLICT DO NOTHING;

-- What a span does, where it has no gen_ai.operation.name.
INSERT INTO main.rollout_attributes(format, attribute, name, only, value, rank)
VALUES
  ('otel', 'openinference.span.kind', 'gen_ai.operation.name', 'LLM', 'chat', 50),
  ('otel', 'openinference.span.kind', 'gen_ai.operation.name', 'AGENT', 'invoke_agent', 50),
  ('otel', 'openinference.span.kind', 'gen_ai.operation.name', 'TOOL', 'execute_tool', 50),
  ('otel', 'openinference.span.kind', 'gen_ai.operation.name', 'EMBEDDING', 'embeddings', 50),
  ('otel', 'traceloop.span.kind', 'gen_ai.operation.name', 'agent', 'invoke_agent', 60),
  ('otel', 'traceloop.span.kind', 'gen_ai.operation.name', 'tool', 'execute_tool', 60),
  ('otel', 'llm.request.type', 'gen_ai.operation.name', 'chat', 'chat', 70),
  ('otel', 'llm.request.type', 'gen_ai.operation.name', 'completion', 'text_completion', 70),
  ('otel', 'gen_ai.request.model', 'gen_ai.operation.name', '', 'chat', 90),
  ('otel', 'gen_ai.system.message:', 'gen_ai.input.messages.+.role', '', 'system', 90),
  ('otel', 'gen_ai.user.message:', 'gen_ai.input.messages.+.role', '', 'user', 90),
  ('otel', 'gen_ai.assistant.message:', 'gen_ai.input.messages.+.role', '', 'assistant', 90),
  ('otel', 'gen_ai.tool.message:', 'gen_ai.input.messages.+.role', '', 'tool', 90),
  ('otel', 'gen_ai.choice:', 'gen_ai.output.messages.+.role', '', 'assistant', 90)
ON CONFLICT DO NOTHING;

-- A call repeats the whole history: a user has said something if that is the last
-- message. The span of an agent has its messages once more, as an event.
INSERT INTO main.rollout_readings(format, fact, type, conditions, place, other, part, source)
SELECT 'otel', r.fact, t.type, r.conditions, r.place, r.other, r.part, t.source
  FROM (SELECT 'chat' AS type, 'item' AS source UNION ALL
        SELECT 'generate_content', 'item' UNION ALL
        SELECT 'text_completion', 'item' UNION ALL
        SELECT 'invoke_agent', 'event' UNION ALL
        SELECT 'gen_ai.client.inference.operation.details', 'event') AS t,
       (SELECT 'user' AS fact, '{"$.attributes.gen_ai.input.messages[#-1].role":"user","$.attributes.gen_ai.input.messages[#-1].parts":true,"$.attributes.gen_ai.input.messages[#-1].parts[0].response":null,"$.attributes.gen_ai.input.messages[#-1].parts[0].result":null}' AS conditions, '$.attributes.gen_ai.input.messages[#-1].parts' AS place, NULL AS other, 'content' AS part
        UNION ALL
        SELECT 'user', '{"$.attributes.gen_ai.input.messages[#-1].role":"user","$.attributes.gen_ai.input.messages[#-1].parts":null,"$.attributes.gen_ai.input.messages[#-1].content":true}', '$.attributes.gen_ai.input.messages[#-1].content', NULL, 'text'
        UNION ALL
        SELECT 'assistant', '{"$.attributes.gen_ai.output.messages[0].parts":true}', '$.attributes.gen_ai.output.messages[0].parts', NULL, 'content'
        UNION ALL
        SELECT 'assistant', '{"$.attributes.gen_ai.output.messages[0].content":true}', '$.attributes.gen_ai.output.messages[0].content', NULL, 'text'
        UNION ALL
        SELECT 'tool', '{"$.attributes.gen_ai.input.messages[#-1].role":"tool"}', '$.attributes.gen_ai.input.messages[#-1].parts', '$.attributes.gen_ai.input.messages[#-1].content', 'response'
        UNION ALL
        SELECT 'tool', '{"$.attributes.gen_ai.input.messages[#-1].parts[0].result":true}', '$.attributes.gen_ai.input.messages[#-1].parts', NULL, 'result'
        UNION ALL
        SELECT 'user', '{"$.attributes.gen_ai.input.messages":true,"$.attributes.gen_ai.input.messages[0]":null}', '$.attributes.gen_ai.input.messages', NULL, 'text'
        UNION ALL
        SELECT 'assistant', '{"$.attributes.gen_ai.output.messages":true,"$.attributes.gen_ai.output.messages[0]":null}', '$.attributes.gen_ai.output.messages', NULL, 'text'
        UNION ALL
        SELECT 'model', '{}', '$.attributes.gen_ai.response.model', '$.attributes.gen_ai.request.model', 'text') AS r
 WHERE 1
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_readings(format, fact, type, conditions, place, other)
VALUES
  ('otel', 'tool', 'execute_tool', '{}', '$.attributes.gen_ai.tool.call.result', '$.attributes.output.value'),
  ('otel', 'tool', 'execute_tool', '{"$.attributes.traceloop.entity.output":true}', '$.attributes.traceloop.entity.output', NULL)
ON CONFLICT DO NOTHING;

-- Log records. Those of Claude Code, Codex and Gemini CLI have the texts of users if
-- that is turned on there.
INSERT INTO main.rollout_readings(format, fact, type, conditions, place, other, source)
VALUES
  ('otel', 'user', 'gen_ai.user.message', '{"$.newest":true}', '$.attributes.gen_ai.input.messages[0].content', '$.body', 'event'),
  ('otel', 'assistant', 'gen_ai.choice', '{"$.event":true}', '$.attributes.gen_ai.output.messages[0].content', '$.body', 'event'),
  ('otel', 'tool', 'gen_ai.tool.message', '{"$.event":true}', '$.attributes.gen_ai.input.messages[0].content', '$.body', 'event')
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_readings(format, fact, type, conditions, place, source)
VALUES
  ('otel', 'user', 'user_prompt', '{"$.event":"user_prompt"}', '$.attributes.prompt', 'event'),
  ('otel', 'user', 'codex.user_prompt', '{"$.event":true}', '$.attributes.prompt', 'event'),
  ('otel', 'user', 'gemini_cli.user_prompt', '{"$.event":true}', '$.attributes.prompt', 'event'),
  ('otel', 'tool', 'codex.tool_result', '{"$.event":true}', '$.attributes.output', 'event'),
  ('otel', 'model', 'api_request', '{"$.event":"api_request"}', '$.attributes.model', 'event'),
  ('otel', 'model', 'codex.conversation_starts', '{"$.event":true}', '$.attributes.model', 'event'),
  ('otel', 'model', 'codex.sse_event', '{"$.event":true}', '$.attributes.model', 'event')
ON CONFLICT DO NOTHING;

INSERT INTO main.rollout_readings(format, fact, type, conditions, place, other, part)
VALUES
  ('opencode', 'user', 'part', '{"$.store":"opencode","$.role":"user","$.row.data.type":"text","$.row.data.synthetic":null}', '$.row.data.text', NULL, 'text'),
  ('opencode', 'assistant', 'part', '{"$.store":"opencode","$.role":"assistant","$.row.data.type":"text"}', '$.row.data.text', NULL, 'text'),
  ('opencode', 'tool', 'part', '{"$.store":"opencode","$.row.data.type":"tool"}', '$.row.data.state.output', NULL, 'text'),
  ('opencode', 'model', 'message', '{"$.store":"opencode","$.role":"assistant"}', '$.row.data.modelID', NULL, 'text'),
  ('opencode', 'title', 'session', '{"$.store":"opencode"}', '$.row.title', NULL, 'text'),
  ('opencode', 'cwd', 'session', '{"$.store":"opencode"}', '$.row.directory', NULL, 'text'),
  ('goose-store', 'user', 'message', '{"$.store":"goose","$.role":"user","$.row.content_json[0].toolResult":null}', '$.row.content_json', NULL, 'text'),
  ('goose-store', 'tool', 'message', '{"$.store":"goose","$.row.content_json[0].toolResult":true}', '$.row.content_json[0].toolResult.value', '$.row.content_json[0].toolResult.error', 'text'),
  ('goose-store', 'assistant', 'message', '{"$.store":"goose","$.role":"assistant"}', '$.row.content_json', NULL, 'text'),
  ('goose-store', 'title', 'session', '{"$.store":"goose"}', '$.row.name', NULL, 'text'),
  ('goose-store', 'title', 'session', '{"$.store":"goose","$.row.name":""}', '$.row.description', NULL, 'text'),
  ('goose-store', 'cwd', 'session', '{"$.store":"goose"}', '$.row.working_dir', NULL, 'text'),
  ('zed', 'user', 'message', '{"$.store":"zed","$.row.User":true}', '$.row.User.content', NULL, 'Text'),
  ('zed', 'assistant', 'message', '{"$.store":"zed","$.row.Agent":true}', '$.row.Agent.content', NULL, 'Text'),
  ('zed', 'user', 'message', '{"$.store":"zed","$.row.role":"user"}', '$.row.segments', NULL, 'text'),
  ('zed', 'assistant', 'message', '{"$.store":"zed","$.row.role":"assistant"}', '$.row.segments', NULL, 'text'),
  ('zed', 'title', 'thread', '{"$.store":"zed"}', '$.row.data.title', '$.row.summary', 'text'),
  ('zed', 'model', 'thread', '{"$.store":"zed"}', '$.row.data.model.model', NULL, 'text'),
  ('zed', 'cwd', 'thread', '{"$.store":"zed"}', '$.row.folder_paths', NULL, 'text'),
  ('hermes', 'user', 'message', '{"$.store":"hermes","$.role":"user"}', '$.row.content', NULL, 'text'),
  ('hermes', 'assistant', 'message', '{"$.store":"hermes","$.role":"assistant"}', '$.row.content', NULL, 'text'),
  ('hermes', 'tool', 'message', '{"$.store":"hermes","$.role":"tool"}', '$.row.content', NULL, 'text'),
  ('cursor-store', 'user', 'bubble', '{"$.role":"user"}', '$.row.value.text', '$.row.value.rawText', 'text'),
  ('cursor-store', 'assistant', 'bubble', '{"$.role":"assistant"}', '$.row.value.text', '$.row.value.rawText', 'text'),
  ('cursor-store', 'title', 'composer', '{}', '$.row.value.name', NULL, 'text'),
  ('cursor-store', 'cwd', 'bubble', '{}', '$.row.value.workspaceProjectDir', NULL, 'text'),
  ('codex-history', 'user', 'history', '{}', '$.text', NULL, 'text'),
  ('claude-code', 'user', 'user', '{"$.message.role":"user","$.message.content":true,"$.isMeta":null,"$.isSidechain":null,"$.isCompactSummary":null,"$.message.content[0].tool_use_id":null}', '$.message.content', NULL, 'text'),
  ('claude-code', 'user', 'user', '{"$.message.role":"user","$.message.content":true,"$.isMeta":null,"$.isSidechain":true,"$.agentId":true,"$.message.content[0].tool_use_id":null}', '$.message.content', NULL, 'text'),
  ('claude-code', 'assistant', 'assistant', '{"$.message.role":"assistant"}', '$.message.content', NULL, 'text'),
  ('claude-code', 'tool', 'user', '{"$.message.content[0].tool_use_id":true}', '$.message.content', NULL, 'content'),
  ('claude-code', 'cwd', 'user', '{"$.message.role":"user"}', '$.cwd', NULL, 'text'),
  ('claude-code', 'branch', 'user', '{"$.message.role":"user"}', '$.gitBranch', NULL, 'text'),
  ('claude-code', 'model', 'assistant', '{"$.message.usage":true}', '$.message.model', NULL, 'text'),
  ('claude-code', 'title', 'custom-title', '{}', '$.customTitle', NULL, 'text'),
  ('claude-code', 'title', 'ai-title', '{}', '$.aiTitle', NULL, 'text'),
  ('claude-code', 'title', 'summary', '{"$.leafUuid":true}', '$.summary', NULL, 'text'),
  ('qwen', 'user', 'user', '{"$.message.role":"user","$.message.parts":true}', '$.message.parts', NULL, 'text'),
  ('qwen', 'assistant', 'assistant', '{"$.message.parts":true}', '$.message.parts', NULL, 'text'),
  ('qwen', 'cwd', 'user', '{"$.message.parts":true}', '$.cwd', NULL, 'text'),
  ('qwen', 'branch', 'user', '{"$.message.parts":true}', '$.gitBranch', NULL, 'text'),
  ('qwen', 'model', 'assistant', '{"$.message.parts":true}', '$.model', NULL, 'text'),
  ('gemini', 'user', 'user', '{"$.type":"user","$.content":true}', '$.content', NULL, 'text'),
  ('gemini', 'assistant', 'gemini', '{"$.content":true}', '$.content', NULL, 'text'),
  ('gemini', 'model', 'gemini', '{"$.content":true}', '$.model', NULL, 'text'),
  ('pi', 'user', 'message', '{"$.message.role":"user"}', '$.message.content', NULL, 'text'),
  ('pi', 'assistant', 'message', '{"$.message.role":"assistant"}', '$.message.content', NULL, 'text'),
  ('pi', 'tool', 'message', '{"$.message.role":"toolResult"}', '$.message.content', NULL, 'text'),
  ('pi', 'cwd', 'session', '{"$.type":"session"}', '$.cwd', NULL, 'text'),
  ('pi', 'title', 'session', '{"$.type":"session"}', '$.title', NULL, 'text'),
  ('pi', 'title', 'session_info', '{}', '$.name', NULL, 'text'),
  ('pi', 'model', 'model_change', '{}', '$.modelId', '$.model', 'text'),
  ('copilot', 'user', 'user.message', '{}', '$.data.content', NULL, 'text'),
  ('copilot', 'assistant', 'assistant.message', '{}', '$.data.content', NULL, 'text'),
  ('copilot', 'tool', 'tool.execution_complete', '{}', '$.data.result.content', NULL, 'text'),
  ('copilot', 'cwd', 'session.start', '{}', '$.data.context.cwd', NULL, 'text'),
  ('copilot', 'branch', 'session.start', '{}', '$.data.context.branch', NULL, 'text'),
  ('copilot', 'model', 'session.model_change', '{}', '$.data.newModel', NULL, 'text'),
  ('goose', 'user', 'user', '{"$.role":"user","$.message":null,"$.content":true,"$.content[0].toolResult":null,"$.content[0].tool_use_id":null}', '$.content', NULL, 'text'),
  ('goose', 'tool', 'user', '{"$.role":"user","$.content[0].toolResult":true}', '$.content[0].toolResult.value', '$.content[0].toolResult.error', 'text'),
  ('cline', 'tool', 'user', '{"$.role":"user","$.content[0].tool_use_id":true}', '$.content', NULL, 'content'),
  ('goose', 'assistant', 'assistant', '{"$.role":"assistant","$.message":null,"$.content":true}', '$.content', NULL, 'text'),
  ('goose', 'cwd', 'session', '{"$.working_dir":true}', '$.working_dir', NULL, 'text'),
  ('goose', 'title', 'session', '{"$.working_dir":true}', '$.description', NULL, 'text'),
  ('cursor', 'user', 'user', '{"$.role":"user","$.message.content":true}', '$.message.content', NULL, 'text'),
  ('cursor', 'assistant', 'assistant', '{"$.role":"assistant","$.message.content":true}', '$.message.content', NULL, 'text'),
  ('deepseek', 'user', 'user/message', '{"$.data.source.kind":"user"}', '$.data.content', NULL, 'text'),
  ('deepseek', 'assistant', 'assistant/message', '{}', '$.data.message.content', NULL, 'text'),
  ('deepseek', 'tool', 'tool/result', '{}', '$.data.message.content', NULL, 'content'),
  ('deepseek', 'title', 'session/title', '{}', '$.data.title', NULL, 'text'),
  ('kimi', 'user', 'context.append_message', '{"$.message.role":"user"}', '$.message.content', NULL, 'text'),
  ('kimi', 'assistant', 'context.append_message', '{"$.message.role":"assistant"}', '$.message.content', NULL, 'text'),
  ('kimi', 'tool', 'context.append_message', '{"$.message.role":"tool"}', '$.message.content', NULL, 'text'),
  ('kimi', 'assistant', 'content.part', '{"$.event.part.type":"text"}', '$.event.part.text', NULL, 'text'),
  ('kimi', 'model', 'usage.record', '{}', '$.model', NULL, 'text'),
  ('grok', 'user', 'user_message_chunk', '{}', '$.params.update.content', '$.params.update.content.text', 'text'),
  ('grok', 'assistant', 'agent_message_chunk', '{}', '$.params.update.content', '$.params.update.content.text', 'text'),
  ('grok', 'tool', 'tool_call_update', '{}', '$.params.update.content[0].content.text', NULL, 'text'),
  ('grok', 'title', 'summary', '{"$.info.id":true}', '$.generated_title', '$.session_summary', 'text'),
  ('grok', 'cwd', 'summary', '{"$.info.id":true}', '$.info.cwd', NULL, 'text'),
  ('antigravity', 'user', 'USER_EXPLICIT', '{}', '$.content', NULL, 'text'),
  ('antigravity', 'assistant', 'MODEL', '{"$.source":"MODEL"}', '$.content', NULL, 'text')
ON CONFLICT DO NOTHING;

-- These come after the rows, because SQLite 3.38 to 3.40 refuse JSON functions in
-- triggers while trusted_schema is off, and an install must be possible then.
CREATE TRIGGER IF NOT EXISTS main.rollout_readings_insert
AFTER INSERT ON rollout_readings
BEGIN
  SELECT RAISE(ABORT, 'ValidationError: Invalid reading: conditions must be a JSON object of places and values, such as {"$.role":"user"}')
   WHERE CASE WHEN NOT (json_valid(NEW.conditions)
                        OR json_valid(NEW.conditions || ' ')) THEN 1
              WHEN json_type(NEW.conditions) <> 'object' THEN 1
              ELSE EXISTS (SELECT 1 FROM json_each(NEW.conditions)
                            WHERE substr(key, 1, 2) <> '$.') END;
  SELECT RAISE(ABORT, 'ValidationError: Invalid reading: a place must be a path such as $.message.content')
   WHERE substr(NEW.place, 1, 2) <> '$.' OR substr(NEW.other, 1, 2) <> '$.';
  UPDATE rollout__act SET stamp = random();
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_readings_update
AFTER UPDATE ON rollout_readings
BEGIN
  SELECT RAISE(ABORT, 'ReadOnlyError: a reading cannot be changed; DELETE it, and INSERT another one');
END;

CREATE TRIGGER IF NOT EXISTS main.rollout_readings_delete
AFTER DELETE ON rollout_readings
BEGIN
  UPDATE rollout__act SET stamp = random();
END;
