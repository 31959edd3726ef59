/* store.c: the operations of the domain store, and of payload on it: see
** operations.h. */
#include "operations.h"

/* Rows of the archive, of which two are packed. */
#define LONG(n)                                                                \
  "(WITH p(i, t) AS (SELECT 1, '' UNION ALL SELECT i + 1, t || (i * " n        \
  ") || ' and ' FROM p WHERE i < 400) SELECT max(t) FROM p)"
#define NOTES                                                                  \
  "INSERT INTO event_payloads(id, event_id, agent_id, purpose, request_body)"  \
  " VALUES('1', 'e', 'a', 'archive', " LONG(                                   \
      "7") "),"                                                                \
           " ('2', 'e', 'a', 'archive', " LONG(                                \
               "7") " || 'end'),"                                              \
                    " ('3', 'e', 'a', 'archive', " LONG(                       \
                        "11") ");"                                             \
                              "SELECT store_pack('[1,2]');"
#define BODIES                                                                 \
  "INSERT INTO event_payloads(id, event_id, agent_id, request_body, purpose)"  \
  "  VALUES('s1', 'e1', 'a', " LONG("7") ", 'archive'),"                       \
                                         "  ('s2', 'e2', 'a', " LONG(          \
                                             "7") " || 'end', 'evidence');"

/* Ten texts that nothing names: more than a third of their pack. */
#define MANY_DROPPED                                                           \
  "INSERT INTO event_payloads(id, event_id, agent_id, purpose, request_body)"  \
  "  WITH n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n WHERE i < 19)"      \
  "  SELECT i, 'e', 'a', 'archive', " LONG(                                    \
      "9") " || i FROM n;"                                                     \
           "SELECT store_pack('[10,11,12,13,14,15,16,17,18,19]');"             \
           "DELETE FROM event_payloads WHERE id >= '10' AND length(id) = 2;"
/* The next write packs. */
#define TENDED                                                                 \
  "UPDATE blackbox_settings SET value = 1"                                     \
  "  WHERE name IN ('payload.pack', 'payload.enabled');"                       \
  "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"      \
  "  SELECT 'f' || value, 'a', " LONG("5") " || value, 'archive'"              \
                                           "  FROM json_each('[1,2,3]');"

/* An agent whose kill switch packs. */
#define SPOKEN                                                                 \
  "UPDATE blackbox_settings SET value = 1 WHERE name = 'payload.pack';"        \
  "CREATE VIRTUAL TABLE talk USING payload_ring;"                              \
  "INSERT INTO talk(agent_id, event_id, request_body, response_body)"          \
  "  SELECT 'a', 'e' || value, " LONG("5") " || value, 'r' || value"           \
                                           "  FROM json_each('[1,2,3]');"

/* A pack with 151,199 bytes, to which rows are added, is nearly full. */
#define NEARLY_FULL                                                            \
  "INSERT INTO event_payloads(id, event_id, agent_id, purpose, request_body)"  \
  "  WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 18900)"    \
  "  SELECT 'big', 'e', 'a', 'archive', group_concat(printf('%07d', i *"       \
  "  7919 % 10000019)) FROM n;"                                                \
  "SELECT store_pack('[\"big\"]', 'main', 1);"

const Operation aStoreOperation[] = {
    {"pack a text", NOTES, 0, "SELECT store_pack('[3]')", 0},
    {"close a pack", BODIES NEARLY_FULL, 0,
        "SELECT store_pack('[\"s1\"]', 'main', 1)", 0},
    {"read packed texts", NOTES, 0,
        "SELECT store_text(request_body) FROM event_payloads", 0},
    {"sweep texts", NOTES "DELETE FROM event_payloads WHERE id = '1';", 0,
        "SELECT store_sweep()", 0},
    {"sweep a few texts", NOTES MANY_DROPPED, 0, "SELECT store_tend()", 0},
    {"clean a thin pack", NOTES MANY_DROPPED "SELECT store_tend();", 0,
        "SELECT store_tend()", 0},
    {"take an empty pack apart",
        NOTES "DELETE FROM event_payloads WHERE id < '3';"
              "SELECT store_tend('main', 1);",
        0, "SELECT store_tend('main', 1)", 0},
    {"pack bodies for the first time", BODIES, 0, "SELECT payload_pack()", 0},
    {"unpack the last bodies", BODIES "SELECT payload_pack();", 0,
        "SELECT payload_unpack()", 0},
    {"show packed bodies", BODIES "SELECT payload_pack();", 0,
        "SELECT id, request_body FROM payload_rows", 0},
    {"delete a packed row", BODIES "SELECT payload_pack();", 0,
        "DELETE FROM event_payloads WHERE id = 's1'", 0},
    {"pack and sweep beside a row", BODIES TENDED, 0,
        "SELECT payload_queue('w9', 'a', " LONG("3") ", 'r')",
        OP_STAGES | OP_CARRIES},
    {"pack and sweep beside a row as a row", BODIES TENDED, 0,
        "INSERT INTO payload_queue(event_id, agent_id, request_body)"
        "  VALUES('w9', 'a', " LONG("3") ")",
        OP_STAGES | OP_CARRIES},
    {"kill switch packs", SPOKEN, 0,
        "SELECT payload_kill_switch('talk', 'a', 'k')", 0},
    {"kill switch packs as a row", SPOKEN, 0,
        "INSERT INTO talk(talk, agent_id, event_id)"
        "  VALUES('kill_switch', 'a', 'k')",
        0},
    {0, 0, 0, 0, 0},
};
