/* proof.c: the operations of the domain proof: see operations.h. */
#include "operations.h"

#define PUSHED                                                                 \
  ARCHIVE "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);" PUSH(      \
      "ring", "a", "e1") ";" PUSH("ring", "a", "e2") ";"
#define TAKEN PUSHED "SELECT proof_head();"
/* Receipts of one day in 2001, which have leaves. */
#define FOLDABLE                                                               \
  PUSHED                                                                       \
  "WITH n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i < 299)"       \
  " INSERT INTO blackbox__log(at, domain, detail, rows, bytes, salt)"          \
  " SELECT 1000000000000 + i, 'user', 'mine', 1, 1, NULL FROM n;"

const Operation aProofOperation[] = {
    {"take in what waits for its leaf", PUSHED, 0,
        "SELECT proof_head() IS NOT NULL", 0},
    {"take in as a row", PUSHED, 0, CALL("proof_head", "[]"), 0},
    {"kill switch with leaves", PUSHED, 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch with leaves as a row", TAKEN, 0,
        "INSERT INTO ring(ring, agent_id, event_id) "
        "VALUES('kill_switch','a','k1')",
        0},
    {"unpin what has a leaf", TAKEN, 0,
        "SELECT payload_unpin((SELECT id FROM event_payloads WHERE pinned),"
        " 'me', 'why')",
        0},
    {"clean up with a leaf", TAKEN, 0, "SELECT payload_cleanup()", 0},
    {"hold with a leaf", TAKEN, 0,
        "SELECT retention_hold('agent', 'a', 'case', 'me', 'why')", 0},
    {"take in a row that came after a hold",
        TAKEN "SELECT retention_hold('agent', 'a', 'case', 'me', 'why');"
              "SELECT proof_head(); INSERT INTO event_payloads(event_id, "
              "agent_id, purpose) VALUES('late', 'a', 'archive')",
        0, "SELECT proof_head() IS NOT NULL", 0},
    {"erase what has a leaf", TAKEN, 0,
        "SELECT length(blackbox_erase('agent', 'a', 'me', 'why', "
        "'{\"unpin\":true}'))",
        0},
    {"verify the log", TAKEN, 0,
        "SELECT * FROM proof_verify();"
        "SELECT * FROM proof_verify((SELECT proof_tile('checkpoint')))",
        0},
    {"verify a late response",
        TAKEN "UPDATE event_payloads SET response_body = 'late', meta = '{}'"
              " WHERE event_id = 'o3'; SELECT proof_head();",
        0, "SELECT leaf, kind, problem FROM proof_verify()", 0},
    {"verify a log that was altered",
        TAKEN "UPDATE blackbox__log SET actor = 'x';", 0,
        "SELECT leaf, kind, problem FROM proof_verify()", 0},
    {"fold receipts", FOLDABLE, 0, "SELECT proof_head() IS NOT NULL", 0},
    {"verify what was folded", FOLDABLE "SELECT proof_head();", 0,
        "SELECT leaf, kind, problem FROM proof_verify()", 0},
    {"verify what was removed as if it were folded",
        TAKEN "DELETE FROM blackbox__log WHERE n = 1; INSERT INTO"
              " blackbox__folded(first, last, kept) VALUES(0, 0, 1);",
        0, "SELECT leaf, kind, problem FROM proof_verify()", 0},
    {"prove", TAKEN, 0,
        "SELECT length(proof_of('row', 1)), length(proof_of('head',"
        " proof_tile('checkpoint')));"
        "SELECT path, length(data) FROM proof_export; SELECT * FROM "
        "proof_pending",
        0},
    {"make a bundle",
        TAKEN "SELECT payload_kill_switch('ring', 'a', 'k1');"
              "SELECT payload_unpin((SELECT id FROM event_payloads WHERE "
              "pinned), 'me', 'why');",
        0,
        "SELECT length(line) FROM proof_bundle('k1');"
        "SELECT length(proof_bundle('k1'))",
        0},
    {0, 0, 0, 0, 0},
};
