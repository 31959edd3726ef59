-- payload_detection.sql: how an exchange with a model is read, as rows of
-- blackbox_places, which core.sql describes.
--
-- Needs core.sql. It runs after payload.sql, any number of times.
--
-- kind   'call'    a tool call: call_id, tool, arguments
--        'result'  its result: call_id, tool, result, is_error. is_error is a
--                  path to true, or path=text
--        'user'    what a user said: text, or an array of parts with text
--        'assistant' what the model said
--        'message' any message: the prompt, if no user said anything
--        'prompt'  the prompt, if there are no messages
--        'model'   the name of the model
--        'offer'   the name of a tool that the model may call
--        'choice'  the name of the tool that it must call
--        'usage'   the numbers of tokens
--        'error'   place is a pattern of GLOB, for the first 400 bytes of a result
--                  in formats that have no flag for an error
-- part   in a stream, the events of one call have the same value here; their
--        arguments are pieces of one text

INSERT INTO main.blackbox_places(format, source, kind, place, conditions, part, call_id, tool, arguments)
VALUES
  ('anthropic', 'request', 'call', '$.messages[].content[]', '{"$.messages[].content[].type":"server_tool_use"}', NULL, '.id', '.name', '.input'),
  ('anthropic', 'request', 'call', '$.messages[].content[]', '{"$.messages[].content[].type":"tool_use"}', NULL, '.id', '.name', '.input'),
  ('anthropic', 'response', 'call', '$.content[]', '{"$.type":"message","$.content[].type":"server_tool_use"}', NULL, '.id', '.name', '.input'),
  ('anthropic', 'response', 'call', '$.content[]', '{"$.type":"message","$.content[].type":"tool_use"}', NULL, '.id', '.name', '.input'),
  ('anthropic', 'stream', 'call', '$.delta', '{"$.type":"content_block_delta","$.delta.type":"input_json_delta"}', '$.index', NULL, NULL, '.partial_json'),
  ('anthropic', 'stream', 'call', '$.content_block', '{"$.type":"content_block_start","$.content_block.type":"server_tool_use"}', '$.index', '.id', '.name', '.input'),
  ('anthropic', 'stream', 'call', '$.content_block', '{"$.type":"content_block_start","$.content_block.type":"tool_use"}', '$.index', '.id', '.name', '.input'),
  ('bedrock.converse', 'request', 'call', '$.messages[].content[].toolUse', '{}', NULL, '.toolUseId', '.name', '.input'),
  ('bedrock.converse', 'response', 'call', '$.output.message.content[].toolUse', '{}', NULL, '.toolUseId', '.name', '.input'),
  ('gemini', 'request', 'call', '$.contents[].parts[].functionCall', '{}', NULL, '.id', '.name', '.args'),
  ('gemini', 'request', 'call', '$.contents[].parts[].function_call', '{}', NULL, '.id', '.name', '.args'),
  ('gemini', 'response', 'call', '$.candidates[].content.parts[].functionCall', '{}', NULL, '.id', '.name', '.args'),
  ('gemini', 'stream', 'call', '$.candidates[].content.parts[].functionCall', '{}', NULL, '.id', '.name', '.args'),
  ('openai.chat', 'request', 'call', '$.messages[].function_call', '{}', NULL, NULL, '.name', '.arguments'),
  ('openai.chat', 'request', 'call', '$.messages[].tool_calls[]', '{}', NULL, '.id', '.function.name|.custom.name', '.function.arguments|.custom.input'),
  ('openai.chat', 'response', 'call', '$.choices[].message.function_call', '{}', NULL, NULL, '.name', '.arguments'),
  ('openai.chat', 'response', 'call', '$.choices[].message.tool_calls[]', '{}', NULL, '.id', '.function.name|.custom.name', '.function.arguments|.custom.input'),
  ('openai.chat', 'stream', 'call', '$.choices[].delta.tool_calls[]', '{}', '.index', '.id', '.function.name|.custom.name', '.function.arguments|.custom.input'),
  ('openai.responses', 'request', 'call', '$.input[]', '{"$.input[].type":"custom_tool_call"}', NULL, '.call_id', '.name', '.input'),
  ('openai.responses', 'request', 'call', '$.input[]', '{"$.input[].type":"function_call"}', NULL, '.call_id', '.name', '.arguments'),
  ('openai.responses', 'request', 'call', '$.input[]', '{"$.input[].type":"tool_search_call"}', NULL, '.call_id|.id', '.name|.type', '.arguments'),
  ('openai.responses', 'response', 'call', '$.output[]', '{"$.output[].type":"custom_tool_call"}', NULL, '.call_id', '.name', '.input'),
  ('openai.responses', 'response', 'call', '$.output[]', '{"$.output[].type":"function_call"}', NULL, '.call_id', '.name', '.arguments'),
  ('openai.responses', 'response', 'call', '$.output[]', '{"$.output[].type":"tool_search_call"}', NULL, '.call_id|.id', '.name|.type', '.arguments'),
  ('openai.responses', 'stream', 'call', '$.item', '{"$.type":"response.output_item.done","$.item.type":"custom_tool_call"}', NULL, '.call_id', '.name', '.input'),
  ('openai.responses', 'stream', 'call', '$.item', '{"$.type":"response.output_item.done","$.item.type":"function_call"}', NULL, '.call_id', '.name', '.arguments'),
  ('openai.responses', 'stream', 'call', '$.item', '{"$.type":"response.output_item.done","$.item.type":"tool_search_call"}', NULL, '.call_id|.id', '.name|.type', '.arguments')
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(format, source, kind, place, conditions, call_id, tool, result, is_error)
VALUES
  ('anthropic', 'request', 'result', '$.messages[].content[]', '{"$.messages[].content[].type":"tool_result"}', '.tool_use_id', NULL, '.content', '.is_error'),
  ('anthropic', 'request', 'result', '$.messages[].content[]', '{"$.messages[].content[].type":"tool_search_tool_result"}', '.tool_use_id', NULL, '.content', '.content.type=tool_search_tool_result_error'),
  ('anthropic', 'request', 'result', '$.messages[].content[]', '{"$.messages[].content[].type":"web_search_tool_result"}', '.tool_use_id', NULL, '.content', '.content.type=web_search_tool_result_error'),
  ('anthropic', 'response', 'result', '$.content[]', '{"$.type":"message","$.content[].type":"tool_search_tool_result"}', '.tool_use_id', NULL, '.content', '.content.type=tool_search_tool_result_error'),
  ('anthropic', 'response', 'result', '$.content[]', '{"$.type":"message","$.content[].type":"web_search_tool_result"}', '.tool_use_id', NULL, '.content', '.content.type=web_search_tool_result_error'),
  ('anthropic', 'stream', 'result', '$.content_block', '{"$.type":"content_block_start","$.content_block.type":"tool_search_tool_result"}', '.tool_use_id', NULL, '.content', '.content.type=tool_search_tool_result_error'),
  ('anthropic', 'stream', 'result', '$.content_block', '{"$.type":"content_block_start","$.content_block.type":"web_search_tool_result"}', '.tool_use_id', NULL, '.content', '.content.type=web_search_tool_result_error'),
  ('bedrock.converse', 'request', 'result', '$.messages[].content[].toolResult', '{}', '.toolUseId', NULL, '.content', '.status=error'),
  ('gemini', 'request', 'result', '$.contents[].parts[].functionResponse', '{}', '.id', '.name', '.response', NULL),
  ('gemini', 'request', 'result', '$.contents[].parts[].function_response', '{}', '.id', '.name', '.response', NULL),
  ('openai.chat', 'request', 'result', '$.messages[]', '{"$.messages[].role":"function"}', NULL, '.name', '.content', NULL),
  ('openai.chat', 'request', 'result', '$.messages[]', '{"$.messages[].role":"tool"}', '.tool_call_id|.tool_call_ids[0]', '.name', '.content', NULL),
  ('openai.responses', 'request', 'result', '$.input[]', '{"$.input[].type":"custom_tool_call_output"}', '.call_id', NULL, '.output', NULL),
  ('openai.responses', 'request', 'result', '$.input[]', '{"$.input[].type":"function_call_output"}', '.call_id', NULL, '.output', NULL),
  ('openai.responses', 'request', 'result', '$.input[]', '{"$.input[].type":"tool_search_output"}', '.call_id|.id', NULL, '.tools', NULL),
  ('openai.responses', 'response', 'result', '$.output[]', '{"$.output[].type":"tool_search_output"}', '.call_id|.id', NULL, '.tools', NULL),
  ('openai.responses', 'stream', 'result', '$.item', '{"$.type":"response.output_item.done","$.item.type":"tool_search_output"}', '.call_id|.id', NULL, '.tools', NULL)
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(format, source, kind, place, conditions)
VALUES
  ('anthropic', 'request', 'offer', '$.tools[].name', '{}'),
  ('anthropic', 'request', 'choice', '$.tool_choice.name', '{}'),
  ('anthropic', 'response', 'assistant', '$.content', '{"$.type":"message"}'),
  ('anthropic', 'stream', 'assistant', '$.delta.text', '{"$.type":"content_block_delta","$.delta.type":"text_delta"}'),
  ('anthropic', 'stream', 'model', '$.message.model', '{"$.type":"message_start"}'),
  ('bedrock.converse', 'request', 'offer', '$.toolConfig.tools[].toolSpec.name', '{}'),
  ('bedrock.converse', 'response', 'assistant', '$.output.message.content', '{}'),
  ('gemini', 'request', 'user', '$.contents[].parts', '{"$.contents[].role":"user"}'),
  ('gemini', 'request', 'message', '$.contents[].parts', '{}'),
  ('gemini', 'request', 'offer', '$.tools[].functionDeclarations[].name', '{}'),
  ('gemini', 'request', 'offer', '$.tools[].function_declarations[].name', '{}'),
  ('gemini', 'response', 'assistant', '$.candidates[].content.parts', '{}'),
  ('gemini', 'response', 'model', '$.modelVersion', '{}'),
  ('gemini', 'stream', 'assistant', '$.candidates[].content.parts', '{}'),
  ('gemini', 'stream', 'model', '$.modelVersion', '{}'),
  ('openai.chat', 'request', 'user', '$.messages[].content', '{"$.messages[].role":"user"}'),
  ('openai.chat', 'request', 'message', '$.messages[].content', '{}'),
  ('openai.chat', 'request', 'prompt', '$.prompt', '{}'),
  ('openai.chat', 'request', 'model', '$.model', '{}'),
  ('openai.chat', 'request', 'offer', '$.functions[].name', '{}'),
  ('openai.chat', 'request', 'offer', '$.tools[].function.name', '{}'),
  ('openai.chat', 'request', 'choice', '$.tool_choice.function.name', '{}'),
  ('openai.chat', 'response', 'assistant', '$.choices[].message.content', '{}'),
  ('openai.chat', 'response', 'model', '$.model', '{}'),
  ('openai.chat', 'stream', 'assistant', '$.choices[].delta.content', '{}'),
  ('openai.chat', 'stream', 'model', '$.model', '{}'),
  ('openai.responses', 'request', 'user', '$.input[].content', '{"$.input[].role":"user"}'),
  ('openai.responses', 'request', 'message', '$.input[].content', '{}'),
  ('openai.responses', 'request', 'prompt', '$.prompt', '{}'),
  ('openai.responses', 'request', 'prompt', '$.input', '{"$.prompt":null}'),
  ('openai.responses', 'response', 'assistant', '$.output[].content', '{"$.output[].type":"message"}'),
  ('openai.responses', 'stream', 'assistant', '$.item.content', '{"$.type":"response.output_item.done","$.item.type":"message"}'),
  ('openai.responses', 'stream', 'model', '$.response.model', '{}')
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(kind, format, source, place, conditions, input, cache_write, cache_read, output, reasoning, cache_write_1h, cache_in_input, reasoning_in_output)
VALUES
  ('usage', 'anthropic', 'stream', '$.usage', '{"$.type":"message_delta"}', '.input_tokens', '.cache_creation_input_tokens', '.cache_read_input_tokens', '.output_tokens', '.output_tokens_details.thinking_tokens', '.cache_creation.ephemeral_1h_input_tokens', 0, 1),
  ('usage', 'anthropic', 'stream', '$.message.usage', '{"$.type":"message_start"}', '.input_tokens', '.cache_creation_input_tokens', '.cache_read_input_tokens', '.output_tokens', '.output_tokens_details.thinking_tokens', '.cache_creation.ephemeral_1h_input_tokens', 0, 1),
  ('usage', 'anthropic', 'response', '$.usage', '{"$.type":"message"}', '.input_tokens', '.cache_creation_input_tokens', '.cache_read_input_tokens', '.output_tokens', '.output_tokens_details.thinking_tokens', '.cache_creation.ephemeral_1h_input_tokens', 0, 1),
  ('usage', 'bedrock.converse', 'response', '$.usage', '{}', '.inputTokens', '.cacheWriteInputTokens', '.cacheReadInputTokens', '.outputTokens', NULL, NULL, 0, 1),
  ('usage', 'gemini', 'stream', '$.usageMetadata', '{}', '.promptTokenCount', NULL, '.cachedContentTokenCount', '.candidatesTokenCount', '.thoughtsTokenCount', NULL, 1, 0),
  ('usage', 'gemini', 'response', '$.usageMetadata', '{}', '.promptTokenCount', NULL, '.cachedContentTokenCount', '.candidatesTokenCount', '.thoughtsTokenCount', NULL, 1, 0),
  ('usage', 'openai.chat', 'stream', '$.usage', '{}', '.prompt_tokens', NULL, '.prompt_tokens_details.cached_tokens', '.completion_tokens', '.completion_tokens_details.reasoning_tokens', NULL, 1, 1),
  ('usage', 'openai.chat', 'response', '$.usage', '{}', '.prompt_tokens', NULL, '.prompt_tokens_details.cached_tokens', '.completion_tokens', '.completion_tokens_details.reasoning_tokens', NULL, 1, 1),
  ('usage', 'openai.responses', 'stream', '$.response.usage', '{"$.response.object":"response"}', '.input_tokens', '.input_tokens_details.cache_write_tokens', '.input_tokens_details.cached_tokens', '.output_tokens', '.output_tokens_details.reasoning_tokens', NULL, 1, 1),
  ('usage', 'openai.responses', 'response', '$.usage', '{"$.object":"response"}', '.input_tokens', '.input_tokens_details.cache_write_tokens', '.input_tokens_details.cached_tokens|.cached_input_tokens', '.output_tokens', '.output_tokens_details.reasoning_tokens|.reasoning_output_tokens', NULL, 1, 1)
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(format, source, kind, place)
SELECT 'text', 'request', 'error', column1 FROM (VALUES
  ('[Ee]rror:*'), ('[Ee]rror [a-z]*'), ('Traceback (most recent call last)*'),
       ('Exit code: [1-9]*'), ('Exit code [1-9]*'),
       ('*Process exited with code [1-9]*'), ('{"error":*'),
       ('*"metadata":{"exit_code":[1-9]*')) WHERE 1
ON CONFLICT DO NOTHING;
