/*
** operations.c: what the module does, one line each, to be disturbed by the
** other files of this folder. Every database has a table app, the whole
** schema, and a ring (window 3) where agent a has four exchanges behind it
** and agent b one.
*/
#include "../harness.h"

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
#define ARCHIVED                                                               \
  "INSERT INTO event_payloads(event_id, agent_id, request_body,"               \
  "  response_body, purpose, created_at) SELECT event_id, agent_id,"           \
  "  request_body, response_body, 'archive', '1970-01-01 00:00:05' FROM ring;"
#define PUSH(ring, agent, event)                                               \
  "INSERT INTO " ring "(agent_id, event_id, request_body, response_body,"      \
  "  timestamp) VALUES('" agent "','" event "','question','answer',9000)"
#define QUEUE(event)                                                           \
  "SELECT payload_queue('" event "', 'a', 'question', 'answer', 9000);"
#define QUEUE_NEW(event)                                                       \
  "SELECT payload_queue('" event                                               \
  "', 'a', 'question', 'answer', 32472144000000);"
#define MEMORY                                                                 \
  "INSERT INTO blackbox_settings VALUES('payload.queue_mode', 'memory');"
#define JSON                                                                   \
  "'[{\"eventId\":\"j1\",\"agentId\":\"a\",\"requestBody\":\"q\","             \
  "\"responseBody\":null,\"timestamp\":7000},"                                 \
  "{\"event_id\":\"j2\",\"agent_id\":\"a\",\"request_body\":\"p\","            \
  "\"timestamp\":8000}]'"
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
  "{\"t\\u0079pe\":1,\"type\":\"compacted\",\"timestamp\":5000,\"payload\":{"  \
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
#define CACHE_COLUMNS                                                          \
  "id, session_id, task_id, turn_id, timestamp, protected, description, "      \
  "custom_metadata, data"
/* cache_items as an older version made it. */
#define CACHED_BEFORE                                                          \
  CACHED "CREATE TABLE saved AS SELECT " CACHE_COLUMNS " FROM cache_items;"    \
         "DROP TABLE cache_items; CREATE TABLE cache_items(id INTEGER PRIMARY" \
         " KEY, storage_key TEXT AS (session_id || '_' || task_id || '_' ||"   \
         " turn_id) UNIQUE, session_id, task_id, turn_id, timestamp,"          \
         " data_size AS (length(data)), protected, description,"               \
         " custom_metadata, data, note);"                                      \
         "INSERT INTO cache_items(" CACHE_COLUMNS ") SELECT * FROM saved;"     \
         "DROP TABLE saved; CREATE INDEX mine ON cache_items(note);"
#define CACHED                                                                 \
  CACHE(SESSION, "f4e8g1h1", "[1,2]", "1000")                                  \
  CACHE(SESSION, "f4e8g1h2", "{}", "2000")                                     \
  CACHE(OTHER_SESSION, "f4e8g1h1", "[1.0]", "3000")

const Operation aOperation[] = {
    {"install in an attached file", 0, "ATTACH ':memory:' AS other",
        "SELECT blackbox_install('other')", 0},
    {"install mends a guard", "DROP TRIGGER payload_delete_check;", 0,
        "SELECT blackbox_install()", 0},
    {"install again", 0, 0, "SELECT blackbox_install()", 0},
    {"install takes the hashes of pins", ARCHIVE, 0,
        "SELECT blackbox_install()", 0},
    {"install guards a unique index and a column",
        "DROP TRIGGER payload_delete_check;"
        "CREATE UNIQUE INDEX theirs ON event_payloads(event_id, agent_id);"
        "ALTER TABLE event_payloads ADD COLUMN more;" ARCHIVE,
        0, "SELECT blackbox_install()", 0},
    {"uninstall a domain", CACHED, 0,
        "SELECT blackbox_uninstall('main', 'cache', 'force')", 0},
    {"uninstall", ARCHIVE CACHED ROLLOUT, 0,
        "SELECT blackbox_uninstall('main', NULL, 'force')", 0},
    {"create a ring", 0, 0, "CREATE VIRTUAL TABLE r2 USING payload_ring", 0},
    {"create a ring in temp", 0, 0,
        "CREATE VIRTUAL TABLE temp.r2 USING payload_ring(window=9)", 0},
    {"push of a new agent", 0, 0, PUSH("ring", "c", "e9"), 0},
    {"push into room", 0, 0, PUSH("ring", "b", "e9"), 0},
    {"push over the oldest", 0, 0, PUSH("ring", "a", "e9"), 0},
    {"push, statements kept", 0, PUSH("ring", "a", "e8"),
        PUSH("ring", "a", "e9"), 0},
    {"push after a new window",
        "INSERT INTO ring(ring, value) "
        "VALUES('window', 5);",
        0, PUSH("ring", "a", "e9"), OP_PARTLY},
    {"push of several", 0, 0,
        "INSERT INTO ring(agent_id, event_id, timestamp) VALUES('a','x1',1),"
        "('d','x2',2),('a','x3',3),('b','x4',4)",
        0},
    {"push into temp", 0, TEMP_RING, PUSH("temp.fast", "a", "e9"), 0},
    {"read", 0, 0,
        "SELECT * FROM ring; SELECT * FROM ring WHERE agent_id = 'a' ORDER BY "
        "seq DESC; SELECT agent_id, count(*), sum(size_bytes) FROM ring GROUP "
        "BY agent_id",
        0},
    {"smaller window", 0, 0,
        "INSERT INTO ring(ring, value) VALUES('window', 2)", 0},
    {"clear an agent", 0, 0, "DELETE FROM ring WHERE agent_id = 'a'", 0},
    {"clear all", 0, 0, "DELETE FROM ring", 0},
    {"kill switch", 0, 0, "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch again", 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1');" PUSH(
            "ring", "a", "e9"),
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch after a new window",
        "INSERT INTO ring(ring, value) VALUES('window', 5);", 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch of what is archived", ARCHIVED, 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch as a row", 0, 0,
        "INSERT INTO ring(ring, agent_id, event_id) "
        "VALUES('kill_switch','a','k1')",
        OP_PARTLY},
    {"kill switch as a command", 0, 0,
        CALL("payload_kill_switch", "[\"ring\",\"a\",\"k1\"]"), OP_PARTLY},
    {"kill switch from temp", 0, TEMP_RING,
        "SELECT payload_kill_switch('fast', 'a', 'k1')", 0},
    {"extract", "DELETE FROM ring WHERE event_id = 'e4';", 0,
        "SELECT payload_extract('ring', 'a')", 0},
    {"rename", 0, 0, "ALTER TABLE ring RENAME TO tape", 0},
    {"drop", 0, 0, "DROP TABLE ring", 0},
    {"install mends a ring",
        "DROP TRIGGER ring_gone; DROP VIEW ring_check;"
        "CREATE TRIGGER ring_gone AFTER DELETE ON ring_slots BEGIN SELECT 1;"
        "END;",
        0, "SELECT blackbox_install()", 0},
    {"archive a row", 0, QUEUE_NEW("w0"), QUEUE_NEW("w1"), OP_CARRIES},
    {"archive a row by a row", 0, 0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w1','a','q',32472144000000)",
        OP_CARRIES},
    {"archive several by a row", 0, 0,
        "INSERT INTO payload_queue(event_id, agent_id, timestamp) "
        "VALUES('w1','a',32472144000000), ('w2','a',32472144000000)",
        OP_CARRIES},
    {"archive history", 0, 0, QUEUE("w1"), OP_CARRIES},
    {"archive history by a row", 0, 0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w1','a','q',9000)",
        OP_CARRIES},
    {"archive a row, with clean-up", ARCHIVE, 0, QUEUE_NEW("w1"),
        OP_STAGES | OP_CARRIES},
    {"archive by a row, with clean-up", ARCHIVE, 0,
        "INSERT INTO payload_queue(event_id, agent_id, timestamp) "
        "VALUES('w1','a',32472144000000)",
        OP_STAGES | OP_CARRIES},
    {"archive what waited", MEMORY,
        QUEUE("w1") "UPDATE blackbox_settings SET "
                    "value = 'durable' WHERE name = 'payload.queue_mode'",
        QUEUE_NEW("w2"), OP_STAGES | OP_CARRIES},
    {"queue", MEMORY, 0, QUEUE("w1"), OP_STAGES},
    {"queue as a row", MEMORY, 0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w1','a','q',9000)",
        OP_STAGES},
    {"queue a full batch",
        MEMORY
        "INSERT INTO blackbox_settings VALUES('payload.flush_batch_size', "
        "3);" ARCHIVE,
        QUEUE("w1") QUEUE("w2"), QUEUE("w3"), OP_STAGES | OP_CARRIES},
    {"queue a full batch by a row",
        MEMORY
        "INSERT INTO blackbox_settings VALUES('payload.flush_batch_size', 3);",
        QUEUE("w1") QUEUE("w2"),
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w3','a','q',9000)",
        OP_STAGES},
    {"flush", MEMORY, QUEUE("w1") QUEUE("w2"), "SELECT payload_flush()",
        OP_ALONE | OP_CARRIES},
    {"drop a queued row", MEMORY, QUEUE("w1") QUEUE("w2"),
        "DELETE FROM payload_queue WHERE event_id = 'w1'", 0},
    {"drop what is queued", MEMORY, QUEUE("w1") QUEUE("w2"),
        "DELETE FROM payload_queue", 0},
    {"clear what is queued", MEMORY ARCHIVE, QUEUE("w1") QUEUE("w2"),
        "SELECT payload_clear_archive()", 0},
    {"save evidence", 0, 0, "SELECT payload_save_evidence('k1', " JSON ")", 0},
    {"save evidence of what is archived",
        "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
        "  VALUES('j1','a','q','archive'), ('j2','a','q','archive');",
        0, "SELECT payload_save_evidence('k1', " JSON ")", 0},
    {"save evidence as a row", ARCHIVED, 0,
        "INSERT INTO payload_evidence(kill_switch_event_id, event_id, agent_id,"
        " request_body, response_body, created_at) SELECT 'k1', event_id, "
        "agent_id, request_body, response_body, '1970-01-01 00:00:06' FROM "
        "event_payloads WHERE event_id <> 'e1'",
        0},
    {"save evidence as a command", 0, 0,
        CALL("payload_save_evidence",
            "[\"k1\",\"[{\\\"eventId\\\":\\\"j1\\\",\\\"agentId\\\":\\\"a\\\","
            "\\\"timestamp\\\":7000}"
            "]\"]"),
        0},
    {"unpin", ARCHIVE, 0,
        "SELECT payload_unpin(id, 'me', 'done') FROM event_payloads "
        "WHERE event_id = 'o3'",
        0},
    {"clean up", ARCHIVE, 0, "SELECT payload_cleanup(7, 1000000000000)", 0},
    {"clean up as a command", ARCHIVE, 0,
        CALL("payload_cleanup", "[7,1000000000000]"), 0},
    {"clear the archive", ARCHIVE, 0, "SELECT payload_clear_archive()", 0},
    {"delete archive rows", ARCHIVE, 0,
        "DELETE FROM event_payloads WHERE purpose = 'archive'", 0},
    {"figures", ARCHIVE, 0,
        "SELECT payload_stats(); SELECT payload_db_size(); SELECT * FROM "
        "payload_waiting; SELECT blackbox_version(), blackbox_debug()",
        0},
    {"check", ARCHIVE, 0, "SELECT * FROM blackbox_check", 0},
    {"check hashes", ARCHIVE "SELECT blackbox_install();", 0,
        "SELECT * FROM blackbox_check", 0},

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
    {"append what is odd", ROLLOUT, 0, APPEND(ODD "," SAID), 0},
    {"append as a command", ROLLOUT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'rollout_append', json_array(" OLD ", '[" SAID "," USER "]', 3000))",
        OP_PARTLY},
    {"log an item", ROLLOUT, 0,
        "INSERT INTO rollout_log(rollout_id, item, timestamp) VALUES(" OLD
        ", '" USER "', 3000)",
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
    {"take back a turn", ROLLOUT, 0,
        APPEND("{\"type\":\"event_msg\",\"payload\":{\"type\":"
               "\"thread_rolled_back\",\"num_turns\":1}}"),
        0},
    {"fork", ROLLOUT, 0, "SELECT rollout_fork(" OLD ", 1, " NEW ", 4000)", 0},
    {"start a rollout by an upsert", ROLLOUT, 0,
        "INSERT INTO rollout_heads(id, created) VALUES(" NEW ", 3000) "
        "ON CONFLICT (id) DO UPDATE SET status = 'archived'",
        0},
    {"import without a session_meta", ROLLOUT, 0,
        "SELECT rollout_import('" USER "' || char(10) || 'damaged', " NEW
        ", 1000)",
        0},
    {"rebuild rollouts",
        ROLLOUT "SELECT rollout_fork(" OLD ", 1, " NEW
                ", 4000);DELETE FROM rollout_about;DELETE FROM rollout_turns;",
        0, "SELECT rollout_rebuild()", 0},
    {"install mends a lost table", ROLLOUT "DROP TABLE rollout_about;", 0,
        "SELECT blackbox_install()", 0},
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
    {"search no more", ROLLOUT "SELECT rollout_search_install();", 0,
        "SELECT rollout_search_remove()", 0},
    {"read rollouts", ROLLOUT, 0,
        "SELECT rollout_history(" OLD "); SELECT * FROM rollout_range(" OLD
        ", 1, 2); SELECT * FROM rollout_context(" OLD "); SELECT "
        "rollout_page(5); SELECT * FROM rollout_list(5); SELECT "
        "rollout_export(" OLD "); SELECT * FROM rollout_dropped(" OLD ")",
        0},

    {"create a buffer", 0, 0,
        "CREATE VIRTUAL TABLE rec USING evidence_buffer("
        "retention_policy='keep-last-n', max_screenshots=5)",
        0},
    {"store", BUFFER, "UPDATE rec SET pinned = 1 WHERE id = 'a1'",
        "INSERT INTO rec(id, timestamp, action) VALUES('a4', 4000, '{}')", 0},
    {"store it again", BUFFER, 0,
        "UPDATE rec SET screenshot = zeroblob(20000), action = '" ACTION(
            "a1") "' WHERE id = 'a1'",
        0},
    {"store over the threshold", BUFFER, 0, STORE("rec", "a4", "4000"), 0},
    {"store into the overflow", 0, SPILLING, STORE("temp.rec", "a4", "4000"),
        0},
    {"flush a buffer", 0, SPILLING, "SELECT evidence_flush('rec')", 0},
    {"approve", BUFFER, 0, "SELECT evidence_prune_for_approval('rec')", 0},
    {"approve, pages given back", "PRAGMA auto_vacuum = 2; VACUUM;" BUFFER, 0,
        "SELECT evidence_prune_for_approval('rec')", 0},
    {"approve what overflowed", 0, SPILLING STORE("temp.rec", "a4", "4000"),
        "SELECT evidence_prune_for_approval('rec', 1)", 0},
    {"prune screenshots", BUFFER, 0,
        "SELECT evidence_prune_screenshots('rec', 1)", 0},
    {"prune",
        "CREATE VIRTUAL TABLE rec USING "
        "evidence_buffer(max_size_bytes=100000);" STORE("rec", "a1", "1000")
            STORE("rec", "a2", "2000") "UPDATE rec SET pinned = 1;" STORE(
                "rec", "a3", "3000") "UPDATE rec SET pinned = 0;",
        0, "SELECT evidence_prune('rec')", 0},
    {"change a limit", BUFFER, 0,
        "INSERT INTO rec(rec, value) VALUES('max_size_bytes', 80000)", 0},
    {"delete an action", BUFFER, 0, "DELETE FROM rec WHERE id = 'a2'", 0},
    {"clear a buffer", BUFFER, 0, "SELECT evidence_clear('rec')", 0},
    {"rename a buffer", BUFFER, 0, "ALTER TABLE rec RENAME TO tape2", 0},
    {"drop a buffer", BUFFER, 0, "DROP TABLE rec", 0},
    {"install mends a buffer",
        BUFFER "DROP VIEW rec_note; DROP TRIGGER rec_rowsdelete;", 0,
        "SELECT blackbox_install()", 0},
    {"read a buffer", BUFFER, 0,
        "SELECT id, timestamp, length(screenshot) FROM rec WHERE timestamp >= "
        "2000; SELECT evidence_stats('rec'); SELECT * FROM evidence_stats; "
        "SELECT evidence_needs_pruning('rec'); SELECT "
        "evidence_export_puppeteer('rec') IS NULL; SELECT "
        "evidence_export_replay('rec') IS NULL",
        0},

    {"cache", CACHED, 0, CACHE(SESSION, "f4e8g1h3", "[3]", "4000"), 0},
    {"cache it again", CACHED, 0, CACHE(SESSION, "f4e8g1h1", "[3]", "4000"), 0},
    {"cache as a row", CACHED, 0,
        "INSERT INTO cache_items(session_id, task_id, turn_id, description, "
        "timestamp, data) VALUES(" SESSION
        ", 'a7b3c9d2', 'f4e8g1h3', 'next', 4000, '[3]')",
        0},
    {"read the cache", CACHED, 0,
        "SELECT data FROM cache_items; SELECT * FROM cache_list(" SESSION
        "); SELECT cache_stats(" SESSION ")",
        0},
    {"upgrade the cache", CACHED_BEFORE, 0,
        "SELECT blackbox_install('main', 'cache')", 0},
    {"read an item", CACHED, 0,
        "SELECT cache_read(" SESSION " || '_a7b3c9d2_f4e8g1h2', NULL, 2001)",
        OP_MARKS},
    {"read an item and mark it", CACHED, 0,
        "SELECT cache_read(" SESSION " || '_a7b3c9d2_f4e8g1h2', NULL, 90000)",
        OP_MARKS},
    {"mark an item by a row", CACHED, 0,
        "INSERT INTO cache_access VALUES(" SESSION
        " || '_a7b3c9d2_f4e8g1h2', 3, 90000)",
        0},
    {"update an item", CACHED, 0,
        "SELECT cache_update(" SESSION " || '_a7b3c9d2_f4e8g1h2', '[7]', 'n', "
        "'{\"kind\":\"tool_result\"}', NULL, 5000, 6000)",
        0},
    {"delete an item", CACHED, 0,
        "SELECT cache_delete(" SESSION " || '_a7b3c9d2_f4e8g1h2', NULL, 90000)",
        0},
    {"evict the least recently used",
        CACHED "INSERT INTO blackbox_settings VALUES('cache.on_quota', "
               "'evict_lru'), ('cache.session_quota_bytes', 8);",
        0, CACHE(SESSION, "f4e8g1h3", "[3]", "4000"), 0},
    {"turn to evict_lru", CACHED, 0,
        "INSERT INTO blackbox_settings VALUES('cache.on_quota', 'evict_lru')",
        0},
    {"clean up orphans",
        CACHED "UPDATE cache_items SET custom_metadata ="
               " '{\"kind\":\"tool_result\"}' WHERE id = 1;",
        0, "SELECT cache_cleanup_orphans(500, 10000000000)", 0},
    {"clear a session", CACHED, 0, "SELECT cache_clear_session(" SESSION ")",
        0},
    {"clean the cache", CACHED, 0,
        "SELECT cache_cleanup_outdated(1, 10000000000)", 0},
};

const int nOperation = (int)(sizeof(aOperation) / sizeof(aOperation[0]));
