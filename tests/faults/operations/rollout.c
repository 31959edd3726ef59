/* rollout.c: the operations of the domain rollout: see operations.h. */
#include "operations.h"

/* Lines of another program: a sub-agent, a line that cannot be read, and a last
** one that is cut off. */
#define CLAUDE(content, more)                                                  \
  "'{\"type\":\"user\",\"sessionId\":\"s\",\"timestamp\":"                     \
  "\"2026-01-01T00:00:00.123Z\",\"message\":{\"role\":\"user\","               \
  "\"content\":\"" content "\"}" more "}' || char(10)"
#define GROWS                                                                  \
  CLAUDE("hello", ",\"cwd\":\"/w\"")                                           \
  "|| 'damaged' || char(10) || " CLAUDE(                                       \
      "x", ",\"isSidechain\":true,\"agentId\":\"a\"") "|| '{\"type'"
#define GROWN GROWS "|| '\":\"x\"}' || char(10) || " CLAUDE("more", "")

/* A line with the spans of two conversations, one of which names itself, and
** then a line that cannot be read. */
#define SPAN(trace, more)                                                      \
  "{\"traceId\":\"" trace "\",\"startTimeUnixNano\":\"1784278800000000000\","  \
  "\"attributes\":[" more "{\"key\":\"gen_ai.usage.output_tokens\",\"value\":" \
  "{\"intValue\":\"5\"}},{\"key\":\"gen_ai.prompt\",\"value\":{"               \
  "\"stringValue\":"                                                           \
  "\"[{}]\"}}]}"
#define SPANS                                                                  \
  "'{\"resourceSpans\":[{\"resource\":{},\"scopeSpans\":[{\"spans\":[" SPAN(   \
      "1", "") "," SPAN("2", "") "," SPAN("1",                                 \
      "{\"key\":\"session.id\","                                               \
      "\"value\":{\"stringValue\":\"s\"}},") "]}]}]}' || char(10) || "         \
                                             "'damaged'"

/* Two log records of one call, with a body; and a file that is one value. */
#define RECORD(name, body)                                                     \
  "{\"timeUnixNano\":\"1784278800000000000\",\"traceId\":\"t\",\"spanId\":"    \
  "\"1\",\"eventName\":\"" name "\",\"body\":{\"kvlistValue\":{\"values\":["   \
  "{\"key\":\"content\",\"value\":" body "}]}}}"
#define LOGS                                                                   \
  "'{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[" RECORD(              \
      "gen_ai.user.message", "{\"stringValue\":\"hi\"}") "," RECORD("other",   \
      "{\"kvlistValue\":{\"values\":[]}}") "]}]}]}'"
#define DOCUMENT                                                               \
  "'{\"sessionId\":\"c\",' || char(10) || '\"messages\":[{\"role\":\"user\","  \
  "\"content\":\"hi\"}]}'"

/* A session with a thought, an edit, a result before its call, and one of no call;
** and its newest request in the archive. */
#define RESULT(id)                                                             \
  "{\"type\":\"user\",\"sessionId\":\"s\",\"message\":{\"content\":[{"         \
  "\"type\":"                                                                  \
  "\"tool_result\",\"tool_use_id\":\"" id "\",\"content\":\"out\"}]}}"
/* A line that tells so many tokens of output. */
#define SPENT(output)                                                          \
  "'{\"type\":\"assistant\",\"sessionId\":\"s\",\"message\":{\"role\":"        \
  "\"assistant\",\"model\":\"a\",\"id\":\"m\",\"content\":[],\"usage\":"       \
  "{\"output_tokens\":" output "}},\"requestId\":\"r\"}'"
#define CALLS                                                                  \
  "SELECT rollout_import(" GROWS " || '\":1}' || char(10) || '" RESULT(        \
      "b") "' || char(10) || "                                                 \
           "'{\"type\":\"assistant\",\"sessionId\":\"s\",\"requestId\":"       \
           "\"r\",\"message\":{\"id\":\"m\",\"model\":\"claude-x\","           \
           "\"content\":["                                                     \
           "{\"type\":\"thinking\",\"thinking\":\"so\"},{\"type\":\"text\","   \
           "\"text\":\"<a>\"},"                                                \
           "{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"Edit\",\"input\":{" \
           "\"path\":\"f\","                                                   \
           "\"old_string\":\"a\",\"new_string\":\"b\"}},{\"type\":\"tool_"     \
           "use\",\"id\":"                                                     \
           "\"b\",\"name\":\"Bash\",\"input\":{\"command\":\"ls\"}}],"         \
           "\"usage\":"                                                        \
           "{\"output_tokens\":5}}}' || char(10) || '" RESULT(                 \
               "a") "' || char(10) || '" RESULT("c") "', NULL, 1000); SELECT " \
                                                     "blackbox_install();"     \
                                                     "INSERT INTO "            \
                                                     "event_payloads(event_"   \
                                                     "id, agent_id, "          \
                                                     "request_body, purpose) " \
                                                     "VALUES('x', 's', "       \
                                                     "'{\"system\":\"be\","    \
                                                     "\"tools\":[{\"name\":"   \
                                                     "\"Bash\"}]}', "          \
                                                     "'archive');"

/* A folder of files. */
#define SESSIONS "'" BX_ROOT "/tests/faults/sessions'"
/* Another one, with a compressed file, and two that are an item each. */
#define FILES "'" BX_ROOT "/tests/faults/files'"
#define READ_FILES(glob) "SELECT rollout_import_dir(" FILES ", '" glob "')"

/* Lines that change a value: set, cut and append, take away, and what is not there. */
#define ENTRY(more) "{\"kind\":" more "}' || char(10) || '"
#define CHANGES                                                                \
  "'" ENTRY("0,\"v\":{\"sessionId\":\"c\",\"requests\":[]}") ENTRY(            \
      "2,\"k\":[\"requests\"],\"v\":[{\"requestId\":\"r\",\"message\":{"       \
      "\"text\":\"hi\"},\"response\":[{\"value\":\"y\"}]}]")                   \
      ENTRY(                                                                   \
          "2,\"k\":[\"requests\",0,\"response\"],\"v\":[{\"value\":\"yes\"}]," \
          "\"i\":0") ENTRY("1,\"k\":[\"requests\",0,\"m\\u006fdelId\"],\"v\":" \
                           "\"m\"")                                            \
          ENTRY("3,\"k\":[\"requests\",0,\"modelId\"]") "{\"kind\":1}'"
#define CHANGED                                                                \
  CHANGES " || char(10) || '" ENTRY(                                           \
      "2,\"k\":[\"requests\"],\"v\":[{\"requestId\":\"s\"}]") "'"

/* A thread of Zed, compressed: {"messages":[{"User":{}}]}. */
#define ZED                                                                    \
  "CREATE TABLE threads(id, summary, updated_at, data);"                       \
  "INSERT INTO threads VALUES('z', 'named', '2026-01-01', x'28b52ffd0050"      \
  "d100007b226d65737361676573223a5b7b2255736572223a7b7d7d5d7d');"

/* A database of OpenCode: a session, one of its sub-agent, and damaged JSON. */
#define THEIRS                                                                 \
  "CREATE TABLE session(id, parent_id, directory, time_created);"              \
  "CREATE TABLE message(id, session_id, time_created, data);"                  \
  "CREATE TABLE part(id, message_id, data);"                                   \
  "INSERT INTO session VALUES('s', NULL, '/w', 1784278800000),"                \
  "  ('a', 's', x'00', 1784278800000);"                                        \
  "INSERT INTO message VALUES('m', 's', 5, '{\"role\":\"user\"}');"            \
  "INSERT INTO part VALUES('p', 'm', '{\"type\":\"text\",\"text\":\"x\"}'),"   \
  "  ('q', 'm', '{damaged');"

/* Items that are not derived yet, of two conversations. */
#define PLAINLY                                                                \
  "INSERT INTO rollouts(id, created) VALUES(" NEW ", 3000);"                   \
  "INSERT INTO rollout_log(rollout_id, type, payload, timestamp) SELECT "      \
  "column1, column2 ->> 'type', column2 -> 'payload', 3000 FROM (VALUES(" OLD  \
  ", '" USER "'), (" NEW ", '" USER "'), (" OLD                                \
  ", '{\"type\":\"compacted\",\"payload\":{\"replacement_history\":[]}}'));"

/* A call of a tool that patches two files, and its result, which tells an error. */
#define TOOL                                                                   \
  "{\"type\":\"response_item\",\"payload\":{\"type\":\"function_call\","       \
  "\"call_id\":\"c\",\"name\":\"apply_patch\",\"arguments\":\"*** Begin "      \
  "Patch\\n*** Add File: a.c\\n*** Add File: bC.c\\n\"}}"
#define TOLD                                                                   \
  "{\"type\":\"response_item\",\"payload\":{\"type\":"                         \
  "\"function_call_output\",\"call_id\":\"c\",\"output\":\"Exit code: 2\"}}"

/* Two items that are long enough to be packed, and much alike. */
#define LONG_SAID                                                              \
  "SELECT blackbox_install('main', 'store');"                                  \
  "INSERT INTO rollout_items(rollout, type, payload, timestamp) SELECT " OLD   \
  ", 'response_item', json_object('type', 'message', 'role', 'assistant',"     \
  " 'content', printf('%.*c', 3000, 'y') || value), 3000 FROM"                 \
  " json_each('[1,2]'); SELECT rollout_append(" OLD ", '[]', 3000);"
#define PACKED LONG_SAID "SELECT rollout_pack();"
#define PACKS                                                                  \
  "UPDATE blackbox_settings SET value = 1 WHERE name = 'rollout.pack';"

#define MASKED                                                                 \
  "SELECT blackbox_install('main', 'report');"                                 \
  "UPDATE blackbox_settings SET value = 'mask' WHERE name = "                  \
  "'rollout.secrets';"

const Operation aRolloutOperation[] = {
    {"create a rollout", 0, 0,
        "SELECT rollout_create(" OLD ", 'be brief', 'permanent', NULL, 1000)",
        0},
    {"create a rollout as a row", 0, 0,
        "INSERT INTO rollouts(id, created, expires_at) VALUES(" OLD
        ", 1000, 'permanent')",
        0},
    {"append", ROLLOUT, 0, APPEND(SAID "," DROPPED "," USER), 0},
    {"append, statements kept", ROLLOUT, APPEND(SAID),
        APPEND(SAID "," DROPPED "," USER), 0},
    {"append that makes room in the file",
        ROLLOUT FILE_LIMIT "UPDATE rollouts SET expires_at = 5;"
                           "INSERT INTO rollouts(id, created) VALUES(" NEW
                           ", 3000);",
        0, "SELECT rollout_append(" NEW ", '[" USER "]', 3000)", OP_LATER},
    {"append that is masked", ROLLOUT MASKED, 0,
        "SELECT rollout_append(" OLD ", '[" USER ",{\"type\":\"event_msg\","
        "\"payload\":{\"type\":\"user_message\",\"password\":\"hunter2\"}}]',"
        " 3000)",
        0},
    {"create what is masked", MASKED, 0,
        "SELECT rollout_create(" OLD ", 'password=hunter2', 'permanent', NULL, "
        "1000)",
        0},
    {"import that is masked", MASKED, 0,
        "SELECT rollout_import('{\"password\":\"hunter2\"}', NULL, 3000, "
        "'unknown')",
        0},
    {"append what is odd", ROLLOUT, 0, APPEND(ODD "," SAID), 0},
    {"append as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_append', json_array(" OLD ", '[" SAID "," USER "]', 3000))",
        0},
    {"log an item", ROLLOUT, 0,
        "INSERT INTO rollout_log(rollout_id, type, payload, timestamp) "
        "SELECT " OLD ", '" USER "' ->> 'type', '" USER "' -> 'payload', 3000",
        0},
    {"append after items of plain SQL", ROLLOUT PLAINLY, 0,
        APPEND(SAID "," USER), 0},
    {"read what is not derived", ROLLOUT PLAINLY, 0,
        "SELECT * FROM rollout_context(" OLD "); SELECT * FROM rollout_list(5);"
        "SELECT rollout_page(5); SELECT * FROM rollout_tree(" OLD ");"
        "SELECT * FROM blackbox_check",
        0},
    {"import", ROLLOUT, 0, "SELECT rollout_import(" LINES ", NULL, 1000)", 0},
    {"import as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_import', json_array(" LINES ", NULL, 1000))",
        0},
    {"import more as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_import', json_array(" LINES ", " OLD ", 1000))",
        0},
    {"import of another format", ROLLOUT, 0,
        "SELECT rollout_import(" GROWS ", NULL, 1000)", 0},
    {"import of another format as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_import', json_array(" GROWS ", NULL, 1000))",
        0},
    {"import of a file that has grown",
        ROLLOUT "SELECT rollout_import(" GROWS ", NULL, 1000);", 0,
        "SELECT rollout_import(" GROWN ", NULL, 1000)", 0},
    {"import of usage", ROLLOUT, 0,
        "SELECT rollout_import('{\"type\":\"assistant\",\"sessionId\":\"s\","
        "\"message\":{\"role\":\"assistant\",\"id\":\"m\",\"content\":[],"
        "\"usage\":{\"output_tokens\":5}},\"requestId\":\"r\"}', NULL, 1000);"
        "SELECT * FROM rollout_usage_days; SELECT * FROM rollout_usage_sums",
        0},
    {"import of usage that grows",
        ROLLOUT PRICES "SELECT rollout_import(" SPENT("5") ", NULL, 1000);", 0,
        "SELECT rollout_import(" SPENT("5") " || char(10) || " SPENT(
            "9") ", NULL, 1000); SELECT * FROM rollout_usage_days; "
                 "SELECT * FROM rollout_usage WHERE timestamp > 1",
        0},
    {"load prices", ROLLOUT, 0,
        "SELECT rollout_load_prices('{\"a\":{\"input\":1,\"output\":2}}', 'x', "
        "'2026-01-01')",
        0},
    {"load prices again", ROLLOUT PRICES, 0,
        "SELECT rollout_load_prices('{\"a\":[{\"input\":1,\"output\":3}]}', "
        "'x', '2026-01-01')",
        0},
    {"load prices as a command", ROLLOUT PRICES, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_load_prices', "
        "json_array('{\"a\":{\"input\":1,\"output\":3}}',"
        " 'x', '2026-01-01'))",
        OP_ALONE},
    {"cost of usage",
        ROLLOUT PRICES
        "SELECT rollout_import('{\"type\":\"assistant\",\"sessionId\":\"s\","
        "\"message\":{\"role\":\"assistant\",\"model\":\"v/a-20260101\","
        "\"content\":[],\"usage\":{\"output_tokens\":5}}}', NULL, 1000);",
        0,
        "SELECT * FROM rollout_usage; SELECT * FROM rollout_usage_days; "
        "SELECT * FROM rollout_usage_sums",
        0},
    {"import from a database", ROLLOUT THEIRS, 0,
        "SELECT rollout_import_from('opencode', 'main', 1000)", 0},
    {"import from a database as a command", ROLLOUT THEIRS, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_import_from', json_array('opencode', 'main', 1000))",
        OP_ALONE},
    {"export as others read it", ROLLOUT CALLS, 0,
        "SELECT rollout_export(r.id, 'markdown'), rollout_export(r.id, "
        "'atif'), "
        "rollout_export(r.id, 'otlp') FROM rollouts AS r WHERE format <> "
        "'codex'",
        0},
    {"import of a trajectory", ROLLOUT, 0,
        "SELECT rollout_import('{\"schema_version\":\"ATIF-v1.8\",\"agent\":"
        "{\"name\":\"a\"},\"steps\":[{\"step_id\":1,\"source\":\"user\","
        "\"message\":\"hi\"}]}', NULL, 1000)",
        0},
    {"import of a result without an id", ROLLOUT, 0,
        "SELECT rollout_import('{\"type\":\"user\",\"sessionId\":\"s\","
        "\"message\":{\"role\":\"user\",\"content\":[{\"type\":"
        "\"tool_result\",\"content\":\"a\"}]}}', NULL, 1000)",
        0},
    {"import of spans", ROLLOUT, 0,
        "SELECT rollout_import(" SPANS ", NULL, 1000)", 0},
    {"import of log records", ROLLOUT, 0,
        "SELECT rollout_import(" LOGS ", NULL, 1000)", 0},
    {"import of a file that is one value", ROLLOUT, 0,
        "SELECT rollout_import(" DOCUMENT ", NULL, 1000)", 0},
    {"import of a value that was completed",
        ROLLOUT "SELECT rollout_import(" DOCUMENT ", '/a/path.json', 1000);", 0,
        "SELECT rollout_import(replace(" DOCUMENT
        ", 'hi', 'hi all'), '/a/path.json', 1000)",
        0},
    {"import of a folder", ROLLOUT, 0,
        "SELECT rollout_import_dir(" SESSIONS ")", 0},
    {"import of a folder as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_import_dir', json_array(" SESSIONS ", '*.json*'))",
        0},
    {"import of one file", ROLLOUT, 0,
        "SELECT rollout_import_dir(" SESSIONS " || '/settings.json')", 0},
    {"import of a folder again",
        ROLLOUT "SELECT rollout_import_dir(" SESSIONS ");"
                "UPDATE rollout_sources SET mtime = 0;",
        0, "SELECT rollout_import_dir(" SESSIONS ")", 0},
    {"import of a compressed file", ROLLOUT, 0, READ_FILES("*.zst"), OP_LATER},
    {"import of a compressed file as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_import_dir', json_array(" FILES ", '*.zst'))",
        OP_LATER},
    {"import of files that are items", ROLLOUT, 0, READ_FILES("*.json"),
        OP_LATER},
    {"import of files that are items again",
        ROLLOUT READ_FILES("*.json") ";UPDATE rollout_sources SET mtime = 0;",
        0, READ_FILES("*.json"), OP_LATER},
    {"import of one more file that is an item",
        ROLLOUT READ_FILES("*-0.json") ";", 0, READ_FILES("*.json"), OP_LATER},
    {"import into a fork",
        ROLLOUT "SELECT rollout_import(" GROWS ", NULL, 1000);"
                "SELECT rollout_fork(id, NULL, " NEW ", 4000) FROM rollouts "
                "WHERE format = 'claude-code' AND parent IS NULL;",
        0, "SELECT rollout_import(" GROWN ", " NEW ", 1000)", 0},
    {"import of changes", ROLLOUT, 0,
        "SELECT rollout_import(" CHANGES ", NULL, 1000)", 0},
    {"import of more changes",
        ROLLOUT "SELECT rollout_import(" CHANGES ", NULL, 1000);", 0,
        "SELECT rollout_import(" CHANGED ", NULL, 1000)", 0},
    {"import of what is not UTF-8", ROLLOUT, 0,
        "SELECT rollout_import(CAST(replace(" DOCUMENT
        ", 'hi', CAST(x'ff' AS TEXT)) AS BLOB), NULL, 1000)",
        0},
    {"import of a value that is not UTF-8", ROLLOUT, 0,
        "SELECT rollout_import(CAST(" GROWS
        " || char(10) || CAST(x'22ff22' AS TEXT) AS BLOB), NULL, 1000)",
        0},
    {"import of what was not known",
        ROLLOUT
        "SELECT rollout_import('{\"by\":1}', '/a/path', 1000, 'unknown');"
        "INSERT INTO rollout_formats(format, mark) VALUES ('mine', "
        "'{\"$.by\":true}');",
        0, "SELECT rollout_import('{\"by\":1}', '/a/path', 1000)", 0},
    {"import of what is compressed", ROLLOUT ZED, 0,
        "SELECT rollout_import_from('zed', 'main', 1000)", 0},
    {"import of a file of text", ROLLOUT, 0,
        "SELECT rollout_import('# aider chat started at 2026-01-01 00:00:00' "
        "|| char(10) || '#### hi' || char(10) || 'yes', NULL, 1000)",
        0},
    {"import of what is not known", ROLLOUT, 0,
        "SELECT rollout_import('some text' || char(10) || '{\"a\":1}', NULL, "
        "1000, 'unknown')",
        0},
    {"take back a turn", ROLLOUT, 0,
        APPEND("{\"type\":\"event_msg\",\"payload\":{\"type\":"
               "\"thread_rolled_back\",\"num_turns\":1}}"),
        0},
    {"fork", ROLLOUT, 0, "SELECT rollout_fork(" OLD ", 1, " NEW ", 4000)", 0},
    {"start a rollout by plain SQL", ROLLOUT, 0,
        "INSERT INTO rollouts(id, created, title) VALUES(" NEW ", 3000, 't')",
        0},
    {"start one that exists", ROLLOUT, 0,
        "INSERT OR IGNORE INTO rollouts(id, created) VALUES(" OLD ", 3000)", 0},
    {"fork as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_fork', json_array(" OLD ", 1, " NEW ", 4000))",
        0},
    {"fork at an item", ROLLOUT, 0,
        "SELECT rollout_fork(" OLD ", NULL, " NEW ", 4000, 2)", 0},
    {"append to a fork in the format of its file",
        "SELECT rollout_import(" CLAUDE("hello",
            ",\"uuid\":\"u\"") ", NULL, 1000); SELECT rollout_fork(id, "
                               "NULL, " NEW ", 4000, 1) FROM rollouts;",
        0,
        "SELECT rollout_append(" NEW
        ", '[{\"type\":\"user\",\"message\":{\"role\":\"user\","
        "\"content\":\"on\"}},{\"type\":\"summary\"}]', 5000)",
        0},
    {"append in the format of a file as a command",
        "SELECT rollout_import(" CLAUDE("hello", ",\"uuid\":\"u\"") ", " NEW
                                                                    ", 1000);",
        0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_append', json_array(" NEW
        ", '[{\"type\":\"user\",\"message\":{\"role\":\"user\","
        "\"content\":\"on\"}}]', 5000))",
        0},
    {"export a fork that goes on",
        "SELECT rollout_import(" CLAUDE("hello",
            ",\"uuid\":\"u\"") ", NULL, 1000); SELECT rollout_fork(id, "
                               "NULL, " NEW ", 4000) FROM rollouts; SELECT "
                               "rollout_append(" NEW ", "
                               "'[{\"type\":\"user\",\"message\":{\"role\":"
                               "\"user\","
                               "\"content\":\"on\"}}]', 5000);",
        0,
        "SELECT rollout_export(" NEW "); SELECT * FROM rollout_export(" NEW
        "); SELECT rollout_import(rollout_export(" NEW "), NULL, 6000)",
        0},
    {"import without a session_meta", ROLLOUT, 0,
        "SELECT rollout_import('" USER "' || char(10) || 'damaged', " NEW
        ", 1000)",
        0},
    {"rebuild rollouts",
        ROLLOUT
        "SELECT rollout_fork(" OLD ", 1, " NEW
        ", 4000);DELETE FROM rollout__about;DELETE FROM rollout__marks;",
        0, "SELECT rollout_rebuild()", 0},
    {"archive a rollout", ROLLOUT, 0, "SELECT rollout_archive(" OLD ")", 0},
    {"delete a rollout", ROLLOUT, 0, "SELECT rollout_delete(" OLD ")", 0},
    {"delete the parent of a fork",
        ROLLOUT "SELECT rollout_fork(" OLD ", 1, " NEW ", 4000);", 0,
        "SELECT rollout_delete(" OLD ")", 0},
    {"clean up rollouts", ROLLOUT EXPIRED, 0,
        "SELECT rollout_cleanup_expired(5000)", 0},
    {"make rollouts searchable", ROLLOUT, 0, "SELECT rollout_search_install()",
        0},
    {"append what is searched", ROLLOUT "SELECT rollout_search_install();", 0,
        APPEND(SAID "," DROPPED "," USER), 0},
    {"append as many as are put into the index",
        ROLLOUT "SELECT rollout_search_install();" APPEND(SAID), 0,
        APPEND(SAID "," USER "," SAID "," USER "," SAID "," USER "," SAID
                    "," USER),
        0},
    {"append a call and its result", ROLLOUT "SELECT rollout_search_install();",
        0, APPEND(TOOL "," TOLD), 0},
    {"append the result of an earlier call",
        ROLLOUT APPEND(TOOL) "SELECT rollout_search_install();", 0,
        APPEND(TOLD), 0},
    {"read again a call that was redacted",
        ROLLOUT APPEND(TOOL "," TOLD) "SELECT rollout_search_install();"
                                      "UPDATE rollout_items SET payload = "
                                      "replace(payload, 'bC', 'd') "
                                      "WHERE type = 'response_item';",
        0, "SELECT rollout_append(" OLD ", '[]', 4000)", 0},
    {"read calls of tools, and search",
        ROLLOUT APPEND(TOOL "," TOLD) "SELECT rollout_search_install();", 0,
        "SELECT * FROM rollout_tool_calls; SELECT * FROM rollout_messages; "
        "SELECT * FROM rollout_search('code OR \"b c\"', 5, 1, 9000, NULL, "
        "'tool', 'apply_patch', 'a.c')",
        0},
    {"search what waits for the index",
        ROLLOUT "SELECT rollout_search_install();" APPEND(TOOL "," TOLD), 0,
        "SELECT rollout, sequence, snippet, rank FROM rollout_search('code')",
        0},
    {"search no more", ROLLOUT "SELECT rollout_search_install();", 0,
        "SELECT rollout_search_remove()", 0},
    {"read the history of another program",
        "SELECT rollout_import(" CLAUDE(
            "hello", ",\"uuid\":\"u\"") "|| " CLAUDE("x",
            ",\"uuid\":\"v\",\"parentUuid\":\"u\"") ", NULL, 1000);",
        0,
        "SELECT c.sequence, c.payload FROM rollouts AS r, "
        "rollout_context(r.id, 'without') AS c; SELECT t.* FROM rollouts AS r, "
        "rollout_tree(r.id) AS t; SELECT o.* FROM rollouts AS r, "
        "rollout_orphans(r.id) AS o",
        0},
    {"pack items", ROLLOUT LONG_SAID, 0, "SELECT rollout_pack()", 0},
    {"unpack items", ROLLOUT PACKED, 0, "SELECT rollout_unpack()", 0},
    {"append beside a packing", ROLLOUT LONG_SAID PACKS, 0,
        APPEND(SAID "," SAID "," SAID "," SAID "," SAID "," SAID "," SAID
                    "," SAID "," SAID "," SAID),
        OP_CARRIES},
    {"read packed items", ROLLOUT PACKED, 0,
        "SELECT payload FROM rollout_items; SELECT rollout_export(" OLD
        "); SELECT text FROM rollout_messages; SELECT * FROM blackbox_check",
        0},
    {"redact a packed item", ROLLOUT PACKED, 0,
        "UPDATE rollout_items SET payload = replace(payload, 'yyy', '')", 0},
    {"delete what is packed", ROLLOUT PACKED, 0, "DELETE FROM rollouts", 0},
    {"read rollouts", ROLLOUT, 0,
        "SELECT rollout_history(" OLD "); SELECT * FROM rollout_range(" OLD
        ", 1, 2); SELECT * FROM rollout_context(" OLD ", 'without'); SELECT "
        "* FROM rollout_orphans(" OLD "); SELECT "
        "rollout_page(5); SELECT * FROM rollout_list(5); SELECT "
        "rollout_export(" OLD "); SELECT * FROM rollout_dropped(" OLD ")",
        0},
    {0, 0, 0, 0, 0},
};
