/* report.c: the operations of the domain report: see operations.h. */
#include "operations.h"

#define REPORTED(kind, key, options)                                           \
  "SELECT length(blackbox_report('" kind "', '" key "', '" options "'))"
#define KILLED                                                                 \
  "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);" ARCHIVE LOOP_MODE( \
      "kill_switch") LOOP_FIRST("ring")                                        \
      LOOP_LAST("ring") "INSERT INTO event_payloads(event_id, agent_id, "      \
                        "request_body,"                                        \
                        "  response_body, purpose, kill_switch_event_id, "     \
                        "created_at) VALUES"                                   \
                        "  ('k1', 'a', '" REQUEST "', '" RESPONSE              \
                        "', 'evidence', 'k7',"                                 \
                        "   '2001-01-01T00:00:00.000Z'),"                      \
                        "  ('k2', 'a', '{\"password\":\"hunter2\"} "           \
                        "sk-ant-0123456789012345678901',"                      \
                        "   x'89504e470d0a1a0a', 'evidence', 'k7', "           \
                        "'2001-01-01T00:00:01.000Z');"
#define SECRET "'{\"password\":\"hunter2\"} sk-ant-0123456789012345678901'"
#define PUT_SECRET(more)                                                       \
  "INSERT INTO ring(agent_id, event_id, request_body, response_body)"          \
  " VALUES('a', 'e', " SECRET " || '" more "', CAST(" SECRET " AS BLOB))"
#define SECRETS(mode)                                                          \
  "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);"                    \
  "UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.enabled';"     \
  "UPDATE blackbox_settings SET value = '" mode                                \
  "' WHERE name = 'payload.secrets';"
#define LEAVES KILLED "SELECT proof_head();"

const Operation aReportOperation[] = {
    {"report of a kill switch", LEAVES, 0, REPORTED("kill_switch", "k7", "{}"),
        0},
    {"report of a kill switch as JSON", KILLED, 0,
        REPORTED("kill_switch", "k7",
            "{\"format\":\"json\",\"redact\":[\"keys\",\"email\"]}"),
        0},
    {"lines of a report", KILLED, 0,
        "SELECT line FROM blackbox_report_lines('kill_switch', 'k7')", 0},
    {"report of an agent", PRICES KILLED, 0,
        REPORTED("agent", "a", "{\"format\":\"md\"}"), 0},
    {"a site of agents", PRICES KILLED, 0,
        "SELECT blackbox_report_site('site') ->> '$.removed'", 0},
    {0, 0, 0, 0, 0},
};

const Operation aReportOtherOperation[] = {
    {"report of a conversation", ROLLOUT, 0,
        "SELECT length(blackbox_report('rollout', " OLD ", '{\"items\":3}'))",
        0},
    {"report of a recording", BUFFER, 0,
        REPORTED("evidence", "rec", "{\"bodies\":\"all\"}"), 0},
    {"report of a session", CACHED, 0,
        "SELECT length(blackbox_report('session', " SESSION "))", 0},
    {"a site of conversations, recordings and sessions", ROLLOUT BUFFER CACHED,
        0, "SELECT blackbox_report_site('site') ->> '$.removed'", 0},
    {0, 0, 0, 0, 0},
};

const Operation aReportDatabaseOperation[] = {
    {"report of a database", 0, 0, REPORTED("database", "main", "{}"), 0},
    {"a push that is masked", SECRETS("mask"), 0, PUT_SECRET(""), 0},
    {"a push that goes on, masked", SECRETS("mask"), PUT_SECRET("") ";",
        PUT_SECRET(" hvs.0123456789012345678901234567"), 0},
    {"a push that is dropped", SECRETS("drop"), 0, PUT_SECRET(""), 0},
    {"a masked row of the queue", SECRETS("mask"), 0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body)"
        " VALUES('e', 'a', " SECRET ")",
        0},
    {"masked evidence", SECRETS("drop"), 0,
        "SELECT payload_save_evidence('k', json_array(json_object('eventId', "
        "'e', 'agentId', 'a', 'requestBody', " SECRET
        ", 'timestamp', 5), json_object('eventId', 'f', 'agentId', 'a')))",
        0},
    {"a masked archive of HTTP", SECRETS("mask"), 0,
        "SELECT payload_import_har(json_object('log', json_object('entries', "
        "json_array(json_object('startedDateTime', '2026-01-01T00:00:00Z', "
        "'request', json_object('url', 'http://x/', 'postData', "
        "json_object('text', " SECRET ")))))))",
        0},
    {"a masked text", 0, 0,
        "SELECT blackbox_mask('password=hunter22 sk-ant-01234567890123456789')",
        0},
    {"a masked text with escapes", 0, 0,
        "SELECT blackbox_mask('\\u0070assword=hunter22 secret: |\n  lines\n')",
        0},
    {0, 0, 0, 0, 0},
};
