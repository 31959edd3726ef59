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
#define PUSH(ring, agent, event)                                               \
  "INSERT INTO " ring "(agent_id, event_id, request_body, response_body,"      \
  "  timestamp) VALUES('" agent "','" event "','question','answer',9000)"
#define QUEUE(event)                                                           \
  "SELECT payload_queue('" event "', 'a', 'question', 'answer', 9000);"
#define JSON                                                                   \
  "'[{\"eventId\":\"j1\",\"agentId\":\"a\",\"requestBody\":\"q\","             \
  "\"responseBody\":null,\"timestamp\":7000},"                                 \
  "{\"event_id\":\"j2\",\"agent_id\":\"a\",\"request_body\":\"p\","            \
  "\"timestamp\":8000}]'"
#define CALL(command, arguments)                                               \
  "INSERT INTO blackbox_call(command, arguments) VALUES('" command             \
  "','" arguments "')"

const Operation aOperation[] = {
    {"install in an attached file", 0, "ATTACH ':memory:' AS other",
        "SELECT blackbox_install('other')", OP_SCHEMA},
    {"install mends a guard", "DROP TRIGGER payload_delete_check;", 0,
        "SELECT blackbox_install()", 0},
    {"install again", 0, 0, "SELECT blackbox_install()", 0},
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
    {"queue", 0, 0, QUEUE("w1"), OP_STAGES},
    {"queue as a row", 0, 0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w1','a','q',9000)",
        OP_STAGES},
    {"queue a full batch",
        "INSERT INTO blackbox_settings VALUES('payload.flush_batch_size', "
        "3);" ARCHIVE,
        QUEUE("w1") QUEUE("w2"), QUEUE("w3"), OP_STAGES | OP_CARRIES},
    {"queue a full batch by a row",
        "INSERT INTO blackbox_settings VALUES('payload.flush_batch_size', 3);",
        QUEUE("w1") QUEUE("w2"),
        "INSERT INTO payload_queue(event_id, agent_id, request_body, "
        "timestamp) VALUES('w3','a','q',9000)",
        OP_STAGES},
    {"flush", 0, QUEUE("w1") QUEUE("w2"), "SELECT payload_flush()",
        OP_ALONE | OP_CARRIES},
    {"save evidence", 0, 0, "SELECT payload_save_evidence('k1', " JSON ")", 0},
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
};

const int nOperation = (int)(sizeof(aOperation) / sizeof(aOperation[0]));
