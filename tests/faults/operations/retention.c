/* retention.c: the operations of the domain retention: see operations.h. */
#include "operations.h"

#define HOLD(kind, key)                                                        \
  "SELECT retention_hold('" kind "', " key ", 'case', 'ann', 'asked', NULL, "  \
  "'{\"remember\":true}')"
#define ERASE(kind, key)                                                       \
  "SELECT blackbox_erase('" kind "', " key ", 'ann', 'asked')"
#define RING                                                                   \
  "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);" PUSH(              \
      "ring", "a", "o1") ";" PUSH("ring", "b", "o2") ";"

#define FULL_RING RING PUSH("ring", "a", "o3") ";" PUSH("ring", "a", "o4") ";"
const Operation aRetentionOperation[] = {
    {"plan what goes", RETAINED, 0,
        "SELECT rule, key, blocked_by FROM retention_plan(1800000000000)", 0},
    {"sweep what is due", RETAINED, 0, "SELECT retention_sweep()", 0},
    {"sweep two rows as a row", RETAINED, 0, CALL("retention_sweep", "[2]"), 0},
    {"sweep an idle session with a tool result",
        CACHED "UPDATE cache_items SET custom_metadata ="
               " '{\"kind\":\"tool_result\"}' WHERE id = 1;",
        0, "SELECT retention_sweep(5, 10000000000)", 0},
    {"sweep a table whose trigger refuses",
        RETAINED "CREATE TRIGGER keep BEFORE DELETE ON notes BEGIN"
                 " SELECT RAISE(ABORT, 'no'); END;",
        0, "SELECT retention_sweep(3)", 0},
    {"add a rule", RETAINED, 0,
        "INSERT INTO retention_rules(rule, \"table\", key, time, age_ms)"
        " VALUES('other', 'notes', 'id', 'at', 5)",
        0},
    {"confirm the clock", RETAINED, 0, "SELECT retention_confirm_clock()", 0},
    {"insert into an archive with rows that are due", RETAINED, 0,
        "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
        " VALUES('w', 'a', 'new', 'archive')",
        0},
    {"report on retention", RETAINED, 0,
        "SELECT part, rows, bytes, due_rows, due_bytes FROM retention_report()",
        0},
    {"hold an agent", ARCHIVE RING BUFFER, 0, HOLD("agent", "'a'"), 0},
    {"hold a session by the name of its program",
        ROLLOUT "UPDATE rollout__about SET source_id = 'bob';", 0,
        HOLD("session", "'bob'"), 0},
    {"erase a session by the name of its program",
        ROLLOUT "UPDATE rollout__about SET source_id = 'bob';", 0,
        ERASE("session", "'bob'"), 0},
    {"hold more of it", ARCHIVE RING HOLD("agent", "'a'") ";", 0,
        "SELECT retention_hold('agent', 'a', 'other', 'ann', 'asked', "
        "4102444800000)",
        0},
    {"hold as a row", ROLLOUT, 0,
        "INSERT INTO retention_holds(kind, key, owner, actor, reason) "
        "VALUES('rollout', " OLD ", 'case', 'ann', 'asked')",
        0},
    {"release an agent", ARCHIVE RING HOLD("agent", "'a'") ";", 0,
        "SELECT retention_release('agent', 'a', 'case', 'ann', 'closed')", 0},
    {"release as a row", ARCHIVE HOLD("event", "'o1'") ";", 0,
        "UPDATE retention_holds SET released = 1, actor = 'ann', "
        "reason = 'closed'",
        0},
    {"push beside a hold", RING HOLD("agent", "'a'") ";", 0,
        PUSH("ring", "b", "new"), 0},
    {"kill switch of what is held beyond the window",
        FULL_RING HOLD("agent", "'a'") ";" PUSH("ring", "a", "o5") ";", 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"clean up beside a hold", ARCHIVE HOLD("event", "'o1'") ";", 0,
        "SELECT payload_cleanup(1)", 0},
    {"take in what came under a hold",
        ARCHIVE HOLD(
            "agent", "'a'") ";"
                            "INSERT INTO event_payloads(event_id, agent_id, "
                            "request_body,"
                            " purpose) VALUES('w', 'a', 'new', 'archive');",
        0, "SELECT payload_cleanup(1)", 0},
    {"verify what a hold keeps",
        ARCHIVE HOLD("agent", "'a'") "; DROP TRIGGER payload_delete_guard;"
                                     "DELETE FROM event_payloads WHERE "
                                     "agent_id = 'a' AND pinned = 0;",
        0, "SELECT leaf, problem FROM proof_verify()", 0},
    {"complete what a hold keeps",
        RING REQUEST_ALONE("ring") HOLD("agent", "'a'") ";", 0,
        COMPLETE("ring"), 0},
    {"verify what a hold keeps in a ring",
        RING REQUEST_ALONE("ring")
            HOLD("agent", "'a'") ";" COMPLETE("ring") ";",
        0, "SELECT leaf, problem FROM proof_verify()", 0},
    {"erase an agent", ARCHIVE RING, 0,
        "SELECT blackbox_erase('agent', 'a', "
        "'ann', 'asked', '{\"unpin\":true}')",
        0},
    {"erase an event beside a hold", ARCHIVE RING HOLD("agent", "'b'") ";", 0,
        ERASE("event", "'o2'"), 0},
    {"erase a conversation", ROLLOUT "SELECT rollout_search_install();", 0,
        ERASE("rollout", OLD), 0},
    {"erase a session", CACHED, 0, ERASE("session", SESSION), 0},
    {"erase a buffer", BUFFER, 0, ERASE("buffer", "'rec'"), 0},
    {"erase a text that a reason of the log has",
        ARCHIVE RING
        "SELECT payload_kill_switch('ring', 'a', 'k9', 'me', 'a complaint');",
        0, ERASE("text", "'complaint'"), 0},
    {"erase a text", ARCHIVE RING ROLLOUT CACHED BUFFER, 0,
        ERASE("text", "'question'"), 0},
    {"erase an agent that was stopped",
        "INSERT INTO payload_agents(agent_id, stopped_at) VALUES('a', 1);"
        "INSERT INTO payload_verdicts(at, ring, agent_id, rule, level, count, "
        "threshold, turn, thing, seqs, tokens, sentence, action) VALUES(1, 'r',"
        " 'a', 'no_progress', 'stop', 1, 1, 1, 1, '[]', 1, 'a question', "
        "'record');",
        0, ERASE("agent", "'a'"), 0},
    {"look for what was erased", ARCHIVE RING ROLLOUT CACHED BUFFER, 0,
        "SELECT blackbox_erased('{\"kind\":\"text\",\"key\":\"question\"}')",
        0},
    {0, 0, 0, 0, 0},
};

/* A key in each place. */
#define LEAKED                                                                 \
  ARCHIVE RING ROLLOUT CACHED                                                  \
      "UPDATE event_payloads SET request_body = " KEY_IN(                      \
          "old") " WHERE"                                                      \
                 " pinned = 0; INSERT INTO event_payloads(id, event_id, "      \
                 "agent_id,"                                                   \
                 " response_body, meta, purpose, kill_switch_event_id) "       \
                 "VALUES('ev', 'e',"                                           \
                 " 'a', " KEY_IN("x") ", " KEY_IN(                             \
                     "{}") ", 'evidence', 'k5');"                              \
                           "INSERT INTO ring(agent_id, event_id, "             \
                           "request_body) VALUES('a', 'e',"                    \
                           " CAST(" KEY_IN(                                    \
                               "r") " AS BLOB));"                              \
                                    "UPDATE rollouts SET title = " KEY_IN(     \
                                        "t") ";"                               \
                                             "INSERT INTO "                    \
                                             "rollout_items(rollout, type, "   \
                                             "payload) VALUES(" OLD ","        \
                                             " 'event_msg', "                  \
                                             "json_object('type', "            \
                                             "'user_message', 'message',"      \
                                             " " KEY_IN(                       \
                                                 "hi") "));"                   \
                                                       "UPDATE cache_items "   \
                                                       "SET data = "           \
                                                       "json_quote(" KEY_IN(   \
                                                           "d") ");"
#define KEY_IN(text) "'" text " sk-ant-0123456789012345678901 password=hunter2'"
#define REDACT(kind, key)                                                      \
  "SELECT blackbox_redact('" kind "', " key ", 'ann', 'leaked')"

const Operation aRedactOperation[] = {
    {"find secrets", LEAKED, 0,
        "SELECT kind, \"column\", secret, found FROM blackbox_find_secrets()",
        0},
    {"redact an agent", LEAKED, 0, REDACT("agent", "'a'"), 0},
    {"redact a conversation", LEAKED "SELECT rollout_search_install();", 0,
        REDACT("rollout", OLD), 0},
    {"redact a session as a row", LEAKED, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES("
        "'blackbox_redact', json_array('session', " SESSION
        ", 'ann', 'leaked'))",
        0},
    {0, 0, 0, 0, 0},
};
