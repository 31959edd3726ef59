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

-- What one element of a list may be, wherever the list stands. In the conditions @ is the
-- element; the others of several paths go on from it, or in a stream from its top.
INSERT INTO main.blackbox_places(format, source, kind, place, conditions, part, call_id, tool, arguments, result, is_error)
SELECT w.column1, w.column2, k.column2, w.column3, '{' || w.column4 || replace(replace(k.column3, '@', w.column3), '|.', w.column6) || '}',
       iif(k.column2 = 'call', w.column5, NULL), k.column4, k.column5, k.column6, k.column7, k.column8
  FROM (VALUES
  ('anthropic', 'request', '$.messages[].content[]', '', NULL, '|.'),
  ('anthropic', 'response', '$.content[]', '"$.type":"message",', NULL, '|.'),
  ('anthropic', 'stream', '$.content_block', '"$.type":"content_block_start",', '$.index', '|.'),
  ('openai.responses', 'request', '$.input[]', '', NULL, '|.'),
  ('openai.responses', 'response', '$.output[]', '', NULL, '|.'),
  ('openai.responses', 'stream', '$.item', '"$.type":"response.output_item.done",', NULL, '|.item.')) AS w
  JOIN (VALUES
  ('anthropic', 'call', '"@.name":true,"@.input":true', '.id', '.name', '.input', NULL, NULL),
  ('anthropic', 'result', '"@.type":"tool_result"', '.tool_use_id', NULL, NULL, '.content', '.is_error'),
  ('anthropic', 'result', '"@.type":"mcp_tool_result"', '.tool_use_id', NULL, NULL, '.content', '.is_error'),
  ('anthropic', 'result', '"@.type":"tool_search_tool_result"', '.tool_use_id', NULL, NULL, '.content', '.content.type=tool_search_tool_result_error'),
  ('anthropic', 'result', '"@.type":"web_search_tool_result"', '.tool_use_id', NULL, NULL, '.content', '.content.type=web_search_tool_result_error'),
  ('openai.responses', 'call', '"@.call_id":true,"@.name|.action|.actions|.operation":true', '.call_id', '.name|.type', '.arguments|.input|.action|.actions|.operation', NULL, NULL),
  ('openai.responses', 'call', '"@.type":"tool_search_call"', '.call_id|.id', '.name|.type', '.arguments', NULL, NULL),
  ('openai.responses', 'call', '"@.type":"mcp_call"', '.id', '.name', '.arguments', NULL, NULL),
  ('openai.responses', 'result', '"@.type":"mcp_call"', '.id', '.name', NULL, '.output|.error', '.status=failed'),
  ('openai.responses', 'result', '"@.type":"tool_search_output"', '.call_id|.id', NULL, NULL, '.tools', NULL),
  ('openai.responses', 'result', '"@.output|.status":true,"@.name|.action|.actions|.operation|.arguments|.tools":null,"@.call_id":true', '.call_id', NULL, NULL, '.output|.status', '.status=failed'),
  ('openai.responses', 'result', '"@.type":"local_shell_call_output"', '.call_id|.id', NULL, NULL, '.output', NULL)) AS k
    ON k.column1 = w.column1
 WHERE k.column3 NOT IN ('"@.type":"tool_result"', '"@.type":"local_shell_call_output"') OR w.column2 = 'request'
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(format, source, kind, place, conditions, part, call_id, tool, arguments)
VALUES
  ('anthropic', 'stream', 'call', '$.delta', '{"$.type":"content_block_delta","$.delta.type":"input_json_delta"}', '$.index', NULL, NULL, '.partial_json'),
  ('bedrock.converse', 'request', 'call', '$.messages[].content[].toolUse', '{}', NULL, '.toolUseId', '.name', '.input'),
  ('bedrock.converse', 'response', 'call', '$.output.message.content[].toolUse', '{}', NULL, '.toolUseId', '.name', '.input'),
  ('gemini', 'request', 'call', '$.contents[].parts[].functionCall', '{}', NULL, '.id', '.name', '.args'),
  ('gemini', 'request', 'call', '$.contents[].parts[].function_call', '{}', NULL, '.id', '.name', '.args'),
  ('gemini', 'response', 'call', '$.candidates[].content.parts[].functionCall', '{}', NULL, '.id', '.name', '.args'),
  ('gemini', 'stream', 'call', '$.candidates[].content.parts[].functionCall', '{}', NULL, '.id', '.name', '.args'),
  ('langchain', 'request', 'call', '$.messages[].data.tool_calls[]', '{}', NULL, '.id', '.name', '.args'),
  ('langchain', 'request', 'call', '$.messages[].kwargs.tool_calls[]', '{}', NULL, '.id', '.name', '.args'),
  ('langchain', 'response', 'call', '$.tool_calls[]', '{}', NULL, '.id', '.name', '.args'),
  ('langchain', 'response', 'call', '$.data.tool_calls[]', '{}', NULL, '.id', '.name', '.args'),
  ('langchain', 'response', 'call', '$.kwargs.tool_calls[]', '{}', NULL, '.id', '.name', '.args'),
  ('ollama', 'response', 'call', '$.message.tool_calls[]', '{}', NULL, '.id', '.function.name', '.function.arguments'),
  ('ollama', 'stream', 'call', '$.message.tool_calls[]', '{}', NULL, '.id', '.function.name', '.function.arguments'),
  ('openai.chat', 'request', 'call', '$.messages[].function_call', '{}', NULL, NULL, '.name', '.arguments'),
  ('openai.chat', 'request', 'call', '$.messages[].tool_calls[]', '{}', NULL, '.id', '.function.name|.custom.name|.name', '.function.arguments|.custom.input|.args'),
  ('openai.chat', 'response', 'call', '$.choices[].message.function_call', '{}', NULL, NULL, '.name', '.arguments'),
  ('openai.chat', 'response', 'call', '$.choices[].message.tool_calls[]', '{}', NULL, '.id', '.function.name|.custom.name', '.function.arguments|.custom.input'),
  ('openai.chat', 'stream', 'call', '$.choices[].delta.tool_calls[]', '{}', '.index', '.id', '.function.name|.custom.name', '.function.arguments|.custom.input')
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(format, source, kind, place, conditions, call_id, tool, result, is_error)
VALUES
  ('bedrock.converse', 'request', 'result', '$.messages[].content[].toolResult', '{}', '.toolUseId', NULL, '.content', '.status=error'),
  ('gemini', 'request', 'result', '$.contents[].parts[].functionResponse', '{}', '.id', '.name', '.response', NULL),
  ('gemini', 'request', 'result', '$.contents[].parts[].function_response', '{}', '.id', '.name', '.response', NULL),
  ('langchain', 'request', 'result', '$.messages[]', '{"$.messages[].type":"tool"}', '.tool_call_id|.data.tool_call_id', '.name|.data.name', '.content|.data.content', '.status=error'),
  ('langchain', 'request', 'result', '$.messages[].kwargs', '{"$.messages[].kwargs.tool_call_id":true}', '.tool_call_id', '.name', '.content', '.status=error'),
  ('openai.chat', 'request', 'result', '$.messages[]', '{"$.messages[].role":"function"}', NULL, '.name', '.content', NULL),
  ('openai.chat', 'request', 'result', '$.messages[]', '{"$.messages[].role":"tool"}', '.tool_call_id|.tool_call_ids[0]', '.name|.tool_name', '.content', NULL)
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
  ('langchain', 'request', 'user', '$.messages[].content', '{"$.messages[].type":"human"}'),
  ('langchain', 'request', 'user', '$.messages[].data.content', '{"$.messages[].type":"human"}'),
  ('langchain', 'request', 'user', '$.messages[].kwargs.content', '{"$.messages[].id[#-1]":"HumanMessage"}'),
  ('langchain', 'response', 'assistant', '$.content', '{"$.type":"ai"}'),
  ('langchain', 'response', 'assistant', '$.data.content', '{"$.type":"ai"}'),
  ('langchain', 'response', 'assistant', '$.kwargs.content', '{"$.type":"constructor"}'),
  ('ollama', 'response', 'assistant', '$.message.content', '{"$.message.role":"assistant","$.type":null}'),
  ('ollama', 'stream', 'assistant', '$.message.content', '{"$.message.role":"assistant","$.type":null}'),
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
  ('usage', 'langchain', 'response', '$.usage_metadata', '{}', '.input_tokens', '.input_token_details.cache_creation', '.input_token_details.cache_read', '.output_tokens', '.output_token_details.reasoning', NULL, 1, 1),
  ('usage', 'ollama', 'stream', '$.eval_count', '{}', '$.prompt_eval_count', NULL, NULL, '$.eval_count', NULL, NULL, 0, 1),
  ('usage', 'ollama', 'response', '$.eval_count', '{}', '$.prompt_eval_count', NULL, NULL, '$.eval_count', NULL, NULL, 0, 1),
  ('usage', 'openai.chat', 'stream', '$.usage', '{}', '.prompt_tokens', NULL, '.prompt_tokens_details.cached_tokens', '.completion_tokens', '.completion_tokens_details.reasoning_tokens', NULL, 1, 1),
  ('usage', 'openai.chat', 'response', '$.usage', '{}', '.prompt_tokens', NULL, '.prompt_tokens_details.cached_tokens', '.completion_tokens', '.completion_tokens_details.reasoning_tokens', NULL, 1, 1),
  ('usage', 'openai.responses', 'stream', '$.response.usage', '{"$.response.object":"response"}', '.input_tokens', '.input_tokens_details.cache_write_tokens', '.input_tokens_details.cached_tokens', '.output_tokens', '.output_tokens_details.reasoning_tokens', NULL, 1, 1),
  ('usage', 'openai.responses', 'response', '$.usage', '{"$.object":"response"}', '.input_tokens', '.input_tokens_details.cache_write_tokens', '.input_tokens_details.cached_tokens|.cached_input_tokens', '.output_tokens', '.output_tokens_details.reasoning_tokens|.reasoning_output_tokens', NULL, 1, 1)
ON CONFLICT DO NOTHING;

INSERT INTO main.blackbox_places(format, source, kind, place)
SELECT 'text', 'request', 'error', column1 FROM (VALUES
  ('[Ee]rror:*'), ('[Ee]rror [a-z]*'), ('Traceback (most recent call last)*'),
       ('Exit code: [1-9]*'), ('Exit code [1-9]*'),
       ('*Process exited with code [1-9]*Output:??*'), ('{"error":*'),
       ('*"exit_code":[1-9]*'), ('*"exit_code": [1-9]*')) WHERE 1
ON CONFLICT DO NOTHING;
