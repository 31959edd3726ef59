/* payload.c: the operations of the domain payload: see operations.h. */
#include "operations.h"

/* Exchanges of which each one goes on with the one before. */
#define LONG_PUSHES(first, last)                                               \
  "WITH RECURSIVE n(i) AS (SELECT " #first " UNION ALL SELECT i + 1 FROM n "   \
  "WHERE i < " #last ") INSERT INTO r2(agent_id, event_id, timestamp, "        \
  "request_body, response_body) SELECT 'a', i, i, printf('%.*c', 300 * i, "    \
  "'q'), printf('%.*c', 3000, 'r') FROM n;"

/* A request that begins with many x and goes on. */
#define GO_ON(count, more)                                                     \
  "INSERT INTO ring(agent_id, event_id, request_body) VALUES('a', 'e9', "      \
  "printf('%.*c', " count ", 'x') || " more ");"

const Operation aPayloadOperation[] = {
    {"install mends a guard", "DROP TRIGGER payload_delete_guard;", 0,
        "SELECT blackbox_install()", 0},
    {"install takes the hashes of pins", ARCHIVE, 0,
        "SELECT blackbox_install()", 0},
    {"install guards a unique index and a column",
        "DROP TRIGGER payload_delete_guard;"
        "CREATE UNIQUE INDEX theirs ON event_payloads(event_id, agent_id);"
        "ALTER TABLE event_payloads ADD COLUMN more;" ARCHIVE,
        0, "SELECT blackbox_install()", 0},
    {"import of an HTTP Archive", 0, 0,
        "SELECT "
        "payload_import_har('{\"log\":{\"entries\":[{\"request\":{\"url\":"
        "\"http://h/p\",\"headers\":[{\"name\":\"a\",\"value\":\"b\"}],"
        "\"postData\":{\"text\":\"{}\"}},\"response\":{\"content\":{\"text\":"
        "\"YWI=\",\"encoding\":\"base64\"}}},{\"request\":{\"postData\":{"
        "\"text\":"
        "\"2\"}}}]}}')",
        0},
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
        0, PUSH("ring", "a", "e9"), 0},
    {"pushes that sweep what rolled out",
        "PRAGMA secure_delete = 1;"
        "CREATE VIRTUAL TABLE r2 USING payload_ring(window=2);" LONG_PUSHES(
            1, 17),
        0, LONG_PUSHES(18, 21), 0},
    {"push of several", 0, 0,
        "INSERT INTO ring(agent_id, event_id, timestamp) VALUES('a','x1',1),"
        "('d','x2',2),('a','x3',3),('b','x4',4)",
        0},
    {"complete an exchange", REQUEST_ALONE("ring"), 0, COMPLETE("ring"), 0},
    {"complete an exchange by an update", REQUEST_ALONE("ring"), 0,
        "UPDATE ring SET response_body = 'late', meta = '{}' "
        "WHERE agent_id = 'a' AND event_id = 'e9'",
        0},
    {"complete an exchange, which makes room",
        REQUEST_ALONE("ring") BOUND("max_bytes", "50"), 0, COMPLETE("ring"), 0},
    {"complete evidence",
        REQUEST_ALONE("ring") "SELECT payload_kill_switch('ring', 'a', 'k1');",
        0, COMPLETE("ring"), 0},
    {"complete evidence of a ring in temp", 0,
        TEMP_RING REQUEST_ALONE("temp.fast") "SELECT payload_kill_switch("
                                             "'fast', 'a', 'k1');",
        "INSERT INTO temp.fast(fast, agent_id, event_id, response_body) "
        "VALUES('complete', 'a', 'e9', 'late')",
        0},
    {"push into temp", 0, TEMP_RING, PUSH("temp.fast", "a", "e9"), 0},
    {"push that makes room", BOUND("max_bytes", "80"), 0,
        PUSH("ring", "b", "e9"), 0},
    {"push of a new agent that makes room", BOUND("max_bytes", "20"), 0,
        PUSH("ring", "c", "e9"), 0},
    {"push over the oldest, with a bound", BOUND("max_bytes", "1000"), 0,
        PUSH("ring", "a", "e9"), 0},
    {"push that is larger than the ring", BOUND("max_bytes", "9"), 0,
        "INSERT OR IGNORE INTO ring(agent_id, event_id, request_body) "
        "VALUES('a', 'e9', 'ten bytes.')",
        OP_MARKS},
    {"push that takes idle agents out",
        BOUND("idle_days", "1") "UPDATE ring_agents SET at = at - 90000000;"
                                "DELETE FROM ring WHERE agent_id = 'b';",
        0, PUSH("ring", "c", "e9"), 0},
    {"push that shares text", TALK ";", 0,
        "INSERT INTO ring(agent_id, event_id, request_body, response_body) "
        "VALUES('a', 'e9', printf('%.*c', 9000, 'x') || 'new', "
        "printf('%.*c', 5000, 'y'))",
        0},
    /* The setup goes back to before its last push. Then the connection loads the text that
    ** was the newest one. */
    {"push that goes on with the push of another connection",
        TALK "; CREATE TABLE s1 AS SELECT * FROM ring_agents;" GO_ON(
            "9000", "'3more'") "CREATE TABLE s2 AS SELECT * FROM ring_agents;"
                               "CREATE TABLE s3 AS SELECT * FROM ring_slots;"
                               "REPLACE INTO ring_agents SELECT * FROM s1;",
        GO_ON("300", "printf('%.*c', 1100, 'y')") "REPLACE INTO ring_agents "
                                                  "SELECT * FROM s2;"
                                                  "REPLACE INTO ring_slots "
                                                  "SELECT * FROM s3;",
        GO_ON("9000", "'3more and more'"), 0},
    {"push that overwrites chunks", TALK ";" TALK ";" TALK ";", 0, TALK, 0},
    {"push of a blob after other texts", TALK ";", 0,
        "INSERT INTO ring(agent_id, event_id, request_body) "
        "VALUES('a', 'e9', zeroblob(7500))",
        0},
    {"deletion of what shares text", TALK ";", 0,
        "DELETE FROM ring WHERE event_id IN ('t1', 't3')", OP_COMMITS},
    {"completion with a long text", TALK ";", 0,
        "INSERT INTO ring(ring, agent_id, event_id, response_body) "
        "VALUES('complete', 'a', 't3', printf('%.*c', 5000, 'z'))",
        0},
    {"kill switch over texts", TALK ";", 0,
        "INSERT INTO ring(ring, agent_id, event_id) "
        "VALUES('kill_switch', 'a', 'k9')",
        0},
    {"push into temp that makes room", 0,
        TEMP_RING "INSERT INTO temp.fast(fast, value) VALUES('max_bytes', 20);",
        PUSH("temp.fast", "a", "e9"), 0},
    {"create a ring with bounds", 0, 0,
        "CREATE VIRTUAL TABLE r2 USING payload_ring(window=9, max_bytes=1000, "
        "idle_days=7)",
        0},
    {"push bound set", 0, 0, BOUND("max_bytes", "40"), 0},
    {"push bound changed", BOUND("max_bytes", "80") BOUND("idle_days", "3"), 0,
        BOUND("max_bytes", "40"), 0},
    {"push bound taken off", BOUND("max_bytes", "80"), 0,
        BOUND("max_bytes", "0"), 0},
    {"clear an agent of a ring with a bound", BOUND("max_bytes", "80"), 0,
        "DELETE FROM ring WHERE agent_id = 'a'", 0},
    {"kill switch in a ring with a bound", BOUND("max_bytes", "80"), 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"rename a ring", 0, 0, "ALTER TABLE ring RENAME TO tape", 0},
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
        0},
    {"kill switch as a command", 0, 0,
        CALL("payload_kill_switch", "[\"ring\",\"a\",\"k1\"]"), 0},
    {"kill switch from temp", 0, TEMP_RING,
        "SELECT payload_kill_switch('fast', 'a', 'k1')", 0},
    {"kill switch without the log", "DROP TABLE blackbox__log;", 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch as a row without the log", "DROP TABLE blackbox__log;", 0,
        "INSERT INTO ring(ring, agent_id, event_id) "
        "VALUES('kill_switch','a','k1')",
        0},
    {"extract", "DELETE FROM ring WHERE event_id = 'e4';", 0,
        "SELECT payload_extract('ring', 'a')", 0},
    {"rename", 0, 0, "ALTER TABLE ring RENAME TO tape", 0},
    {"drop", 0, 0, "DROP TABLE ring", 0},
    {"archive a row", 0, QUEUE_NEW("w0"), QUEUE_NEW("w1"), OP_CARRIES},
    {"archive a row, which makes room in the file", ARCHIVE FILE_LIMIT, 0,
        QUEUE_NEW("w1"), OP_CARRIES | OP_STAGES},
    {"archive a row by a row, which makes room in the file", ARCHIVE FILE_LIMIT,
        0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w1','a','q',32472144000000)",
        OP_LATER},
    {"push that makes room in the file", ARCHIVE FILE_LIMIT, 0,
        PUSH("ring", "a", "e9"), OP_LATER},
    {"push that removes a row that is due", ARCHIVE, 0, PUSH("ring", "a", "e9"),
        OP_CARRIES},
    {"push that cannot make room in the file",
        ARCHIVE FILE_LIMIT "UPDATE event_payloads SET pinned = 1;", 0,
        PUSH("ring", "a", "e9"), OP_LATER},
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
        MEMORY "INSERT INTO blackbox_settings(name, value) "
               "VALUES('payload.flush_batch_size', "
               "3);" ARCHIVE,
        QUEUE("w1") QUEUE("w2"), QUEUE("w3"), OP_STAGES | OP_CARRIES},
    {"queue a full batch by a row",
        MEMORY "INSERT INTO blackbox_settings(name, value) "
               "VALUES('payload.flush_batch_size', 3);",
        QUEUE("w1") QUEUE("w2"),
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w3','a','q',9000)",
        OP_STAGES},
    {"flush", MEMORY, QUEUE("w1") QUEUE("w2"), "SELECT payload_flush()",
        OP_CARRIES},
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
    {"save evidence as a command", 0, 0,
        CALL("payload_save_evidence",
            "[\"k1\",\"[{\\\"eventId\\\":\\\"j1\\\",\\\"agentId\\\":\\\"a\\\","
            "\\\"timestamp\\\":7000}"
            "]\"]"),
        0},
    {"complete a pinned row", ARCHIVE, 0,
        "UPDATE event_payloads SET response_body = 'late', meta = '{}' WHERE "
        "event_id = 'o3'",
        0},
    {"replace an archive row", ARCHIVE, 0,
        "REPLACE INTO event_payloads(id, event_id, agent_id, purpose) SELECT "
        "id, 'n3', 'a', 'archive' FROM event_payloads WHERE event_id = 'n1'",
        0},
    {"unpin", ARCHIVE, 0,
        "SELECT payload_unpin(id, 'me', 'done') FROM event_payloads "
        "WHERE event_id = 'o3'",
        0},
    {"clean up", ARCHIVE, 0, "SELECT payload_cleanup(7, 1000000000000)", 0},
    {"clean up past a row that a trigger keeps",
        ARCHIVE "CREATE TRIGGER mine BEFORE DELETE ON event_payloads WHEN"
                " OLD.event_id = 'o1' BEGIN SELECT RAISE(ABORT, 'no'); END;",
        0, "SELECT payload_cleanup(7, 1000000000000)", 0},
    {"clean up for the limit of the file", ARCHIVE FILE_LIMIT, 0,
        "SELECT payload_cleanup(365)", OP_LATER},
    {"clean up as a command", ARCHIVE, 0,
        CALL("payload_cleanup", "[7,1000000000000]"), 0},
    {"clear the archive", ARCHIVE, 0, "SELECT payload_clear_archive()", 0},
    {"archive a row that makes room", ARCHIVE ARCHIVE_LIMIT("9"), 0,
        "INSERT OR REPLACE INTO event_payloads(event_id, agent_id, "
        "request_body, purpose) VALUES('n2', 'a', 'newest', 'archive')",
        0},
    {"archive a row beyond the limit in bytes", ARCHIVE ARCHIVE_LIMIT("9"), 0,
        "UPDATE event_payloads SET request_body = 'six by' WHERE "
        "event_id = 'n1'",
        0},
    {"limit the bytes of the archive", ARCHIVE, 0, ARCHIVE_LIMIT("6"), 0},
    {"clean up the archive beyond its bytes",
        ARCHIVE ARCHIVE_LIMIT("9") "UPDATE payload__state SET cap = 3;", 0,
        "SELECT payload_cleanup(36500)", 0},
    {"delete archive rows", ARCHIVE, 0,
        "DELETE FROM event_payloads WHERE purpose = 'archive'", 0},
    {"figures", ARCHIVE, 0,
        "SELECT payload_stats(); SELECT payload_db_size(); SELECT * FROM "
        "payload_waiting; SELECT blackbox_version()",
        0},
    {"read an exchange", 0, 0,
        "SELECT * FROM payload_calls('" REQUEST "', '" RESPONSE
        "'); SELECT * FROM payload_usage('" REQUEST "', '" RESPONSE
        "'); SELECT payload_prompt('" REQUEST "'), payload_tools(CAST('" REQUEST
        "' AS BLOB))",
        0},
    {"push that is looked at", LOOP_MODE("record") LOOP_FIRST("ring"), 0,
        LOOP_PUSH("ring", "l2", LOOPED("c1") LOOPED("c2")), 0},
    {"push that is looked at, of a new agent", LOOP_MODE("record"), 0,
        "INSERT INTO ring(agent_id, event_id, request_body) "
        "VALUES('new', 'e', '{}')",
        0},
    {"push that loops", LOOP_MODE("record") LOOP_FIRST("ring"), 0,
        LOOP_LAST("ring"), 0},
    {"push that pulls the switch", LOOP_MODE("kill_switch") LOOP_FIRST("ring"),
        0, LOOP_LAST("ring"), OP_LATER},
    {"complete an exchange that is looked at",
        LOOP_MODE("record") REQUEST_ALONE("ring"), 0, COMPLETE("ring"), 0},
    {"complete an exchange, which pulls the switch",
        LOOP_MODE("kill_switch") REQUEST_ALONE(
            "ring") "UPDATE payload_rules SET enabled = 1, threshold = 1 "
                    "WHERE rule = 'budget_calls';",
        0,
        "INSERT INTO ring(ring, agent_id, event_id, response_body) "
        "VALUES('complete', 'a', 'e9', '" RESPONSE "')",
        OP_LATER},
    {"push that has a cost",
        LOOP_MODE("record") PRICES
        "UPDATE payload_rules SET enabled = 1 WHERE rule = 'budget_cost';",
        0,
        "INSERT INTO ring(agent_id, event_id, request_body, response_body) "
        "VALUES('new', 'e', '" REQUEST "', '" RESPONSE "')",
        0},
    {"push into temp that loops", LOOP_MODE("record"),
        TEMP_RING LOOP_FIRST("temp.fast"), LOOP_LAST("temp.fast"), 0},
    {"push of a stopped agent",
        LOOP_MODE("record") "INSERT INTO payload_agents(agent_id, stopped_at, "
                            "kill_switch_event_id) VALUES('a', 1, 'k');",
        0,
        "INSERT OR IGNORE INTO ring(agent_id, event_id, request_body) "
        "VALUES('a', 'e', 'more')",
        0},
    {"stop an agent", 0, 0,
        "INSERT INTO payload_agent_log(agent_id, act, actor, reason, at) "
        "VALUES('a', 'stop', 'me', 'why', 5)",
        0},
    {"start an agent",
        "INSERT INTO payload_agents(agent_id, stopped_at) VALUES('a', 1);", 0,
        "INSERT INTO payload_agent_log(agent_id, actor, reason, at) "
        "VALUES('a', 'me', 'mended', 5)",
        0},
    {"loops and replay",
        LOOP_MODE("record") LOOP_FIRST("ring")
            LOOP_LAST("ring") "INSERT INTO event_payloads(event_id, agent_id, "
                              "request_body, "
                              "purpose, created_at) SELECT event_id, agent_id, "
                              "request_body, "
                              "'archive', '2026-01-01 00:00:00' FROM ring "
                              "WHERE event_id = 'l2';",
        0,
        "SELECT * FROM payload_loops('ring'); "
        "SELECT * FROM payload_backtest('a')",
        0},
    {"read an exchange with a stream", 0, 0,
        "SELECT * FROM payload_calls(NULL, '" STREAM
        "'); SELECT * FROM payload_usage(NULL, '" STREAM "')",
        0},
    {"check", ARCHIVE, 0, "SELECT * FROM blackbox_check", 0},
    {"check hashes", ARCHIVE "SELECT blackbox_install();", 0,
        "SELECT * FROM blackbox_check", 0},
    {0, 0, 0, 0, 0},
};
