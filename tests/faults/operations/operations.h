/*
** operations.h: parts of SQL that the operations of several domains share. Each
** file of this folder lists the operations of one domain, which the programs in
** the parent folder disturb.
**
** Every database has a table app and the schema of the domain. That of payload
** also has a ring (window 3) to which agent a has pushed four exchanges, and
** agent b one. The database of core has all of this.
*/
#ifndef BX_OPERATIONS_H
#define BX_OPERATIONS_H

#include "../../harness.h"

#define TEMP_RING                                                              \
  "CREATE VIRTUAL TABLE temp.fast USING payload_ring(window=3);"               \
  "INSERT INTO fast(agent_id, event_id, request_body, timestamp) VALUES"       \
  "  ('a','t1','q1',1000),('a','t2','q2',2000);"
#define ARCHIVE                                                                \
  "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose,"      \
  "  created_at) VALUES('o1','a','old','archive','2001-01-01 00:00:00'),"      \
  "  ('o2','a','old','archive','2001-01-01T00:00:00.000Z'),"                   \
  "  ('n1','b','new','archive','2999-01-01T00:00:00.000Z');"                   \
  "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose,"      \
  "  kill_switch_event_id, created_at) VALUES('o3','a','kept','evidence',"     \
  "  'k0','2001-01-01T00:00:00.000Z');"
#define ARCHIVE_LIMIT(bytes)                                                   \
  "INSERT INTO blackbox_settings(name, value) "                                \
  "VALUES('payload.max_bytes', " bytes ");"
/* The file is above its limit, and of the archive there is more than its share. */
#define FILE_LIMIT                                                             \
  "UPDATE blackbox_settings SET value = 400 WHERE name ="                      \
  " 'blackbox.max_file_bytes';"
#define ARCHIVED                                                               \
  "INSERT INTO event_payloads(event_id, agent_id, request_body,"               \
  "  response_body, purpose, created_at) SELECT event_id, agent_id,"           \
  "  request_body, response_body, 'archive', '1970-01-01 00:00:05' FROM ring;"
#define PUSH(ring, agent, event)                                               \
  "INSERT INTO " ring "(agent_id, event_id, request_body, response_body,"      \
  "  timestamp) VALUES('" agent "','" event "','question','answer',9000)"
#define REQUEST_ALONE(ring)                                                    \
  "INSERT INTO " ring "(agent_id, event_id, request_body, meta, timestamp)"    \
  "  VALUES('a', 'e9', 'question', '{\"url\":1}', 9000);"
#define COMPLETE(ring)                                                         \
  "INSERT INTO " ring "(" ring ", agent_id, event_id, response_body, meta)"    \
  "  VALUES('complete', 'a', 'e9', 'a late answer', '{\"status\":200}')"
#define BOUND(name, value)                                                     \
  "INSERT INTO ring(ring, value) VALUES('" name "', " value ");"
/* Requests that share text, which is longer than a chunk. */
#define TALK                                                                   \
  "INSERT INTO ring(agent_id, event_id, request_body) SELECT 'a', 't' || "     \
  "value, printf('%.*c', 3000 * value, 'x') || value FROM "                    \
  "json_each('[1,2,3]')"
#define QUEUE(event)                                                           \
  "SELECT payload_queue('" event "', 'a', 'question', 'answer', 9000);"
#define QUEUE_NEW(event)                                                       \
  "SELECT payload_queue('" event                                               \
  "', 'a', 'question', 'answer', 32472144000000);"
#define MEMORY                                                                 \
  "INSERT INTO blackbox_settings(name, value) VALUES('payload.queue_mode', "   \
  "'memory');"
#define JSON                                                                   \
  "'[{\"eventId\":\"j1\",\"agentId\":\"a\",\"requestBody\":\"q\","             \
  "\"responseBody\":null,\"timestamp\":7000},"                                 \
  "{\"event_id\":\"j2\",\"agent_id\":\"a\",\"request_body\":\"p\","            \
  "\"timestamp\":8000}]'"
/* An exchange with a model. */
#define REQUEST                                                                \
  "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"go\"},"     \
  "{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"function\":{"      \
  "\"name\":\"f\",\"arguments\":\"{\\\"b\\\":1,\\\"a\\\":[{}]}\"}}]},{"        \
  "\"role\":"                                                                  \
  "\"tool\",\"tool_call_id\":\"c1\",\"content\":\"Error: no\"}],"              \
  "\"tools\":[{\"function\":{\"name\":\"g\"}},{\"function\":{\"name\":"        \
  "\"f\"}}]}"
#define RESPONSE                                                               \
  "{\"choices\":[{\"message\":{\"content\":\"again\",\"tool_calls\":[{"        \
  "\"id\":\"c2\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}],"     \
  "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}"
#define PRICES                                                                 \
  "INSERT INTO blackbox_prices(model, since, input, output) VALUES"            \
  "('a', '2026-01-01', 1, 2), ('m', '2026-01-01', 1, 2);"
/* Exchanges of one conversation; the last one brings the third result, with
** which the rule no_progress is at its threshold here. */
/* (No push is due to look for old rows.) */
#define LOOP_MODE(mode)                                                        \
  "UPDATE payload_rules SET threshold = 3 WHERE rule = 'no_progress';"         \
  "INSERT INTO blackbox_settings(name, value) VALUES('payload.on_loop', "      \
  "'" mode "');"                                                               \
  "UPDATE payload__state SET wake = 9000000000000000;"
#define LOOPED(id)                                                             \
  ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"" id "\",\"function\":{" \
  "\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\","                \
  "\"tool_call_id\":\"" id "\",\"content\":\"same\"}"
#define LOOP_PUSH(ring, event, calls)                                          \
  "INSERT INTO " ring "(agent_id, event_id, request_body, response_body,"      \
  "  timestamp) VALUES('a', '" event "', '{\"messages\":[{\"role\":\"user\","  \
  "\"content\":\"go\"}" calls "]}', '{}', 9000);"
#define LOOP_FIRST(ring)                                                       \
  LOOP_PUSH(ring, "l0", LOOPED("c1"))                                          \
  LOOP_PUSH(ring, "l1", LOOPED("c1") LOOPED("c2"))
#define LOOP_LAST(ring)                                                        \
  LOOP_PUSH(ring, "l2", LOOPED("c1") LOOPED("c2") LOOPED("c3"))
#define STREAM                                                                 \
  "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":"       \
  "\"c1\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n"           \
  "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,"              \
  "\"function\":{\"arguments\":\"}\"}}]}}]}\n"                                 \
  "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5}}\n"
#define CALL(command, arguments)                                               \
  "INSERT INTO blackbox_call(command, arguments) VALUES('" command             \
  "','" arguments "')"

#define OLD "'5973b6c0-94b8-487b-a530-2aeb6098ae0e'"
#define NEW "'019d0000-1111-7222-8333-444455556666'"
#define USER                                                                   \
  "{\"type\":\"event_msg\",\"payload\":{\"type\":\"user_message\","            \
  "\"message\":\"hi\"}}"
#define SAID                                                                   \
  "{\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":"    \
  "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"yes\"}]}}"
#define DROPPED                                                                \
  "{\"type\":\"event_msg\",\"payload\":{\"type\":\"exec_command_begin\"}}"
#define ODD                                                                    \
  "{\"\\u0079\":1,\"type\":\"compacted\",\"timestamp\":5000,\"payload\":{"     \
  "\"a\":[1]}}"
#define APPEND(items) "SELECT rollout_append(" OLD ", '[" items "]', 3000);"
#define ROLLOUT                                                                \
  "SELECT rollout_create(" OLD ", 'be brief', 'permanent', NULL, 1000);"       \
  "SELECT rollout_append(" OLD ", '[" USER "," SAID "," DROPPED "," USER       \
  "," SAID "]', 2000);"
#define EXPIRED                                                                \
  "SELECT rollout_create(" NEW ", NULL, 0, NULL, 1000);"                       \
  "SELECT rollout_append(" NEW ", '[" USER "," DROPPED "]', 1000);"
#define LINES                                                                  \
  "'{\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"session_meta\","    \
  "\"payload\":{\"id\":\"019d0000-1111-7222-8333-444455556666\"}}' || "        \
  "char(10) || '" USER "' || char(10) || 'damaged' || char(10) || '" SAID "'"
#define ACTION(id)                                                             \
  "{\"id\":\"" id                                                              \
  "\",\"fallbackChain\":{\"strategies\":[{\"type\":\"vision_ocr\","            \
  "\"confidence\":0.7,\"metadata\":{\"targetText\":\"Save\",\"rest\":1}}]},"   \
  "\"visionData\":{\"ocrText\":\"Save\",\"rawOcrResult\":[1,2,3]},"            \
  "\"networkData\":{},\"eventType\":\"click\"}"
#define STORE(rec, id, time)                                                   \
  "INSERT INTO " rec "(id, timestamp, action, screenshot) VALUES('" id         \
  "', " time ", '" ACTION(id) "', zeroblob(30000));"
#define STORES(rec)                                                            \
  STORE(rec, "a1", "1000") STORE(rec, "a2", "2000") STORE(rec, "a3", "3000")
#define BUFFER                                                                 \
  "CREATE VIRTUAL TABLE rec USING "                                            \
  "evidence_buffer(max_size_bytes=100000);" STORES("rec")
#define SPILLING                                                               \
  "CREATE VIRTUAL TABLE temp.rec USING evidence_buffer("                       \
  "max_size_bytes=100000, overflow='main');" STORES("temp.rec")
#define SESSION "'conv_a3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n'"
#define OTHER_SESSION "'conv_b3f8e2b4-5c6d-7e8f-9g0h-1i2j3k4l5m6n'"
#define CACHE(session, turn, data, now)                                        \
  "SELECT cache_write(" session ", 'a7b3c9d2', '" turn "', '" data             \
  "', 'what it is', NULL, " now ");"
#define CACHED                                                                 \
  CACHE(SESSION, "f4e8g1h1", "[1,2]", "1000")                                  \
  CACHE(SESSION, "f4e8g1h2", "{}", "2000")                                     \
  CACHE(OTHER_SESSION, "f4e8g1h1", "[1.0]", "3000")

/* Something due in every domain, and in a table of the user. */
#define RETAINED                                                               \
  ARCHIVE EXPIRED CACHED                                                       \
      "INSERT INTO evidence_owners(owner, buffer, claim, seen)"                \
      "  VALUES('o', 'b', 'c', 1000);"                                         \
      "INSERT INTO evidence__overflow VALUES(1,'o','x',1000,5,0,0,0,1,0,"      \
      "  '[1,2]',NULL);"                                                       \
      "CREATE TABLE notes(id INTEGER PRIMARY KEY, at);"                        \
      "INSERT INTO notes VALUES(1, 1000), (2, 2000), (3, 3e14);"               \
      "INSERT INTO retention_rules(rule, \"table\", key, time, age_ms) VALUES" \
      "  ('mine', 'notes', 'id', 'at', 1000),"                                 \
      "  ('gone', 'nowhere', 'id', 'at', 1000);"

#endif
