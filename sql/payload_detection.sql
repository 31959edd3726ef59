-- payload_detection.sql: how an exchange with a model is read.
--
-- Needs core.sql. It runs after payload.sql, any number of times.
--
-- Table  payload_formats  where the bodies of the known wire formats have tool calls,
--                         results, what was said, and the numbers of tokens; and
--                         how the text of a result begins that is an error, in
--                         formats that have no flag for it
--
-- A new dialect is an INSERT. Every row is tried on every body: a body is of no
-- declared format, and what it has is found by the places that it has.
--
-- A place is a path from the top of a body: names with dots between them. A name
-- may end in brackets: [] is each element of the array there, and [role=user]
-- each element whose member role is that text; [a=b,c.d=e] needs both. What is
-- no array is taken as an array of one, so that [type=message].usage begins with
-- a condition on the body itself. A field is a path from the object at the place;
-- a|b takes the first of them that is there.
--
-- body   'request', 'response' (a whole one), or 'event' (one line of a stream,
--        or one element of an array of responses)
-- kind   'call'    a tool call: call_id, tool, arguments
--        'result'  its result: call_id, tool, result, is_error. is_error is a
--                  path to true, or path=text
--        'user'    what a user said: text, or an array of parts with text
--        'said'    what the model said
--        'message' any message: the prompt, if no user said anything
--        'prompt'  the prompt, if there are no messages
--        'model'   the name of the model
--        'tool'    the name of a tool that the model may call
--        'choice'  the name of the tool that it must call
--        'usage'   the numbers of tokens: input, cache_write, cache_read, output and
--                  reasoning. cache_write_1h: those of cache_write that are kept for
--                  an hour, which cost more. cache_in_input: the input counts what was read from the
--                  cache and written to it; reasoning_in_output: the output counts
--                  the reasoning. body is 'response' or 'event'
--        'error'   place is a pattern of GLOB, for the first 400 bytes of a result
-- part   in a stream, the events of one call have the same value here; their
--        arguments are pieces of one text

CREATE TABLE IF NOT EXISTS main.payload_formats(
  format    TEXT NOT NULL,
  body      TEXT NOT NULL CHECK (body IN ('request', 'response', 'event')),
  kind      TEXT NOT NULL CHECK (kind IN ('call', 'result', 'user', 'said',
    'message', 'prompt', 'model', 'tool', 'choice', 'usage', 'error')),
  place     TEXT NOT NULL
    CHECK (typeof(place) = 'text' AND length(place) BETWEEN 1 AND 200),
  part, call_id, tool, arguments, result, is_error,
  input, cache_write, cache_read, output, reasoning, cache_write_1h,
  cache_in_input      INTEGER NOT NULL DEFAULT 0 CHECK (cache_in_input IN (0, 1)),
  reasoning_in_output INTEGER NOT NULL DEFAULT 0 CHECK (reasoning_in_output IN (0, 1)),
  PRIMARY KEY (format, body, kind, place),
  CHECK (length(printf('%s%s%s%s%s%s%s%s%s%s%s%s', part, call_id, tool, arguments, result,
    is_error, input, cache_write, cache_read, output, reasoning, cache_write_1h)) <= 1000)
) WITHOUT ROWID;

INSERT INTO main.payload_formats(format, body, kind, place, part, call_id, tool, arguments, result, is_error)
VALUES
  ('anthropic', 'request', 'call', 'messages[].content[type=tool_use]', NULL, 'id', 'name', 'input', NULL, NULL),
  ('anthropic', 'request', 'call', 'messages[].content[type=server_tool_use]', NULL, 'id', 'name', 'input', NULL, NULL),
  ('anthropic', 'request', 'result', 'messages[].content[type=tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'is_error'),
  ('anthropic', 'request', 'result', 'messages[].content[type=tool_search_tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'content.type=tool_search_tool_result_error'),
  ('anthropic', 'request', 'result', 'messages[].content[type=web_search_tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'content.type=web_search_tool_result_error'),
  ('anthropic', 'request', 'tool', 'tools[].name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('anthropic', 'request', 'choice', 'tool_choice.name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('anthropic', 'response', 'call', '[type=message].content[type=tool_use]', NULL, 'id', 'name', 'input', NULL, NULL),
  ('anthropic', 'response', 'call', '[type=message].content[type=server_tool_use]', NULL, 'id', 'name', 'input', NULL, NULL),
  ('anthropic', 'response', 'result', '[type=message].content[type=tool_search_tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'content.type=tool_search_tool_result_error'),
  ('anthropic', 'response', 'result', '[type=message].content[type=web_search_tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'content.type=web_search_tool_result_error'),
  ('anthropic', 'response', 'said', '[type=message].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('anthropic', 'event', 'call', '[type=content_block_start].content_block[type=tool_use]', '$.index', 'id', 'name', 'input', NULL, NULL),
  ('anthropic', 'event', 'call', '[type=content_block_start].content_block[type=server_tool_use]', '$.index', 'id', 'name', 'input', NULL, NULL),
  ('anthropic', 'event', 'call', '[type=content_block_delta].delta[type=input_json_delta]', '$.index', NULL, NULL, 'partial_json', NULL, NULL),
  ('anthropic', 'event', 'result', '[type=content_block_start].content_block[type=tool_search_tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'content.type=tool_search_tool_result_error'),
  ('anthropic', 'event', 'result', '[type=content_block_start].content_block[type=web_search_tool_result]', NULL, 'tool_use_id', NULL, NULL, 'content', 'content.type=web_search_tool_result_error'),
  ('anthropic', 'event', 'said', '[type=content_block_delta].delta[type=text_delta].text', NULL, NULL, NULL, NULL, NULL, NULL),
  ('anthropic', 'event', 'model', '[type=message_start].message.model', NULL, NULL, NULL, NULL, NULL, NULL),

  ('bedrock.converse', 'request', 'call', 'messages[].content[].toolUse', NULL, 'toolUseId', 'name', 'input', NULL, NULL),
  ('bedrock.converse', 'request', 'result', 'messages[].content[].toolResult', NULL, 'toolUseId', NULL, NULL, 'content', 'status=error'),
  ('bedrock.converse', 'request', 'tool', 'toolConfig.tools[].toolSpec.name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('bedrock.converse', 'response', 'call', 'output.message.content[].toolUse', NULL, 'toolUseId', 'name', 'input', NULL, NULL),
  ('bedrock.converse', 'response', 'said', 'output.message.content', NULL, NULL, NULL, NULL, NULL, NULL),

  ('gemini', 'request', 'call', 'contents[].parts[].functionCall', NULL, 'id', 'name', 'args', NULL, NULL),
  ('gemini', 'request', 'call', 'contents[].parts[].function_call', NULL, 'id', 'name', 'args', NULL, NULL),
  ('gemini', 'request', 'result', 'contents[].parts[].functionResponse', NULL, 'id', 'name', NULL, 'response', NULL),
  ('gemini', 'request', 'result', 'contents[].parts[].function_response', NULL, 'id', 'name', NULL, 'response', NULL),
  ('gemini', 'request', 'user', 'contents[role=user].parts', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'request', 'message', 'contents[].parts', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'request', 'tool', 'tools[].functionDeclarations[].name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'request', 'tool', 'tools[].function_declarations[].name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'response', 'call', 'candidates[].content.parts[].functionCall', NULL, 'id', 'name', 'args', NULL, NULL),
  ('gemini', 'response', 'said', 'candidates[].content.parts', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'response', 'model', 'modelVersion', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'event', 'call', 'candidates[].content.parts[].functionCall', NULL, 'id', 'name', 'args', NULL, NULL),
  ('gemini', 'event', 'said', 'candidates[].content.parts', NULL, NULL, NULL, NULL, NULL, NULL),
  ('gemini', 'event', 'model', 'modelVersion', NULL, NULL, NULL, NULL, NULL, NULL),

  ('openai.chat', 'request', 'call', 'messages[].tool_calls[]', NULL, 'id', 'function.name|custom.name', 'function.arguments|custom.input', NULL, NULL),
  ('openai.chat', 'request', 'call', 'messages[].function_call', NULL, NULL, 'name', 'arguments', NULL, NULL),
  ('openai.chat', 'request', 'result', 'messages[role=tool]', NULL, 'tool_call_id|tool_call_ids[]', 'name', NULL, 'content', NULL),
  ('openai.chat', 'request', 'result', 'messages[role=function]', NULL, NULL, 'name', NULL, 'content', NULL),
  ('openai.chat', 'request', 'user', 'messages[role=user].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'request', 'message', 'messages[].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'request', 'prompt', 'prompt', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'request', 'model', 'model', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'request', 'tool', 'tools[].function.name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'request', 'tool', 'functions[].name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'request', 'choice', 'tool_choice.function.name', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'response', 'call', 'choices[].message.tool_calls[]', NULL, 'id', 'function.name|custom.name', 'function.arguments|custom.input', NULL, NULL),
  ('openai.chat', 'response', 'call', 'choices[].message.function_call', NULL, NULL, 'name', 'arguments', NULL, NULL),
  ('openai.chat', 'response', 'said', 'choices[].message.content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'response', 'model', 'model', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'event', 'call', 'choices[].delta.tool_calls[]', 'index', 'id', 'function.name|custom.name', 'function.arguments|custom.input', NULL, NULL),
  ('openai.chat', 'event', 'said', 'choices[].delta.content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.chat', 'event', 'model', 'model', NULL, NULL, NULL, NULL, NULL, NULL),

  ('openai.responses', 'request', 'call', 'input[type=function_call]', NULL, 'call_id', 'name', 'arguments', NULL, NULL),
  ('openai.responses', 'request', 'call', 'input[type=custom_tool_call]', NULL, 'call_id', 'name', 'input', NULL, NULL),
  ('openai.responses', 'request', 'call', 'input[type=tool_search_call]', NULL, 'call_id|id', 'name|type', 'arguments', NULL, NULL),
  ('openai.responses', 'request', 'result', 'input[type=function_call_output]', NULL, 'call_id', NULL, NULL, 'output', NULL),
  ('openai.responses', 'request', 'result', 'input[type=custom_tool_call_output]', NULL, 'call_id', NULL, NULL, 'output', NULL),
  ('openai.responses', 'request', 'result', 'input[type=tool_search_output]', NULL, 'call_id|id', NULL, NULL, 'tools', NULL),
  ('openai.responses', 'request', 'user', 'input[role=user].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.responses', 'request', 'message', 'input[].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.responses', 'request', 'prompt', 'prompt|input', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.responses', 'response', 'call', 'output[type=function_call]', NULL, 'call_id', 'name', 'arguments', NULL, NULL),
  ('openai.responses', 'response', 'call', 'output[type=custom_tool_call]', NULL, 'call_id', 'name', 'input', NULL, NULL),
  ('openai.responses', 'response', 'call', 'output[type=tool_search_call]', NULL, 'call_id|id', 'name|type', 'arguments', NULL, NULL),
  ('openai.responses', 'response', 'result', 'output[type=tool_search_output]', NULL, 'call_id|id', NULL, NULL, 'tools', NULL),
  ('openai.responses', 'response', 'said', 'output[type=message].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.responses', 'event', 'call', '[type=response.output_item.done].item[type=function_call]', NULL, 'call_id', 'name', 'arguments', NULL, NULL),
  ('openai.responses', 'event', 'call', '[type=response.output_item.done].item[type=custom_tool_call]', NULL, 'call_id', 'name', 'input', NULL, NULL),
  ('openai.responses', 'event', 'call', '[type=response.output_item.done].item[type=tool_search_call]', NULL, 'call_id|id', 'name|type', 'arguments', NULL, NULL),
  ('openai.responses', 'event', 'result', '[type=response.output_item.done].item[type=tool_search_output]', NULL, 'call_id|id', NULL, NULL, 'tools', NULL),
  ('openai.responses', 'event', 'said', '[type=response.output_item.done].item[type=message].content', NULL, NULL, NULL, NULL, NULL, NULL),
  ('openai.responses', 'event', 'model', 'response.model', NULL, NULL, NULL, NULL, NULL, NULL)
ON CONFLICT (format, body, kind, place) DO NOTHING;

INSERT INTO main.payload_formats(kind, format, body, place, input, cache_write, cache_read, output, reasoning, cache_in_input, reasoning_in_output, cache_write_1h)
VALUES
  ('usage', 'anthropic', 'response', '[type=message].usage', 'input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens', 'output_tokens', 'output_tokens_details.thinking_tokens', 0, 1, 'cache_creation.ephemeral_1h_input_tokens'),
  ('usage', 'anthropic', 'event', '[type=message_start].message.usage', 'input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens', 'output_tokens', 'output_tokens_details.thinking_tokens', 0, 1, 'cache_creation.ephemeral_1h_input_tokens'),
  ('usage', 'anthropic', 'event', '[type=message_delta].usage', 'input_tokens', 'cache_creation_input_tokens', 'cache_read_input_tokens', 'output_tokens', 'output_tokens_details.thinking_tokens', 0, 1, 'cache_creation.ephemeral_1h_input_tokens'),
  ('usage', 'bedrock.converse', 'response', 'usage', 'inputTokens', 'cacheWriteInputTokens', 'cacheReadInputTokens', 'outputTokens', NULL, 0, 1, NULL),
  ('usage', 'gemini', 'response', 'usageMetadata', 'promptTokenCount', NULL, 'cachedContentTokenCount', 'candidatesTokenCount', 'thoughtsTokenCount', 1, 0, NULL),
  ('usage', 'gemini', 'event', 'usageMetadata', 'promptTokenCount', NULL, 'cachedContentTokenCount', 'candidatesTokenCount', 'thoughtsTokenCount', 1, 0, NULL),
  ('usage', 'openai.chat', 'response', 'usage', 'prompt_tokens', NULL, 'prompt_tokens_details.cached_tokens', 'completion_tokens', 'completion_tokens_details.reasoning_tokens', 1, 1, NULL),
  ('usage', 'openai.chat', 'event', 'usage', 'prompt_tokens', NULL, 'prompt_tokens_details.cached_tokens', 'completion_tokens', 'completion_tokens_details.reasoning_tokens', 1, 1, NULL),
  ('usage', 'openai.responses', 'response', '[object=response].usage', 'input_tokens', 'input_tokens_details.cache_write_tokens', 'input_tokens_details.cached_tokens|cached_input_tokens', 'output_tokens', 'output_tokens_details.reasoning_tokens|reasoning_output_tokens', 1, 1, NULL),
  ('usage', 'openai.responses', 'event', 'response[object=response].usage', 'input_tokens', 'input_tokens_details.cache_write_tokens', 'input_tokens_details.cached_tokens', 'output_tokens', 'output_tokens_details.reasoning_tokens', 1, 1, NULL)
ON CONFLICT (format, body, kind, place) DO NOTHING;

INSERT INTO main.payload_formats(format, body, kind, place)
SELECT 'text', 'request', 'error', column1 FROM (VALUES
  ('[Ee]rror:*'), ('[Ee]rror [a-z]*'), ('Traceback (most recent call last)*'),
       ('Exit code: [1-9]*'), ('Exit code [1-9]*'),
       ('*Process exited with code [1-9]*'), ('{"error":*'),
       ('*"metadata":{"exit_code":[1-9]*')) WHERE 1
ON CONFLICT (format, body, kind, place) DO NOTHING;
