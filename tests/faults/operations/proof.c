/* proof.c: the operations of the domain proof: see operations.h. */
#include "operations.h"

#define PROVEN                                                                 \
  ARCHIVE "INSERT INTO blackbox_settings VALUES('proof.enabled', 1);"          \
          "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);" PUSH(      \
              "ring", "a", "e1") ";" PUSH("ring", "a", "e2") ";"
#define TAKEN PROVEN "SELECT proof_head();"

const Operation aProofOperation[] = {
    {"take in what waits for its leaf", PROVEN, 0,
        "SELECT length(proof_head())", 0},
    {"ask for the head when nothing waits", TAKEN, 0,
        "SELECT length(proof_head())", 0},
    {"take in as a row", PROVEN, 0, CALL("proof_head", "[]"), OP_PARTLY},
    {"kill switch with leaves", PROVEN, 0,
        "SELECT payload_kill_switch('ring', 'a', 'k1')", 0},
    {"kill switch with leaves as a row", TAKEN, 0,
        "INSERT INTO ring(ring, agent_id, event_id) "
        "VALUES('kill_switch','a','k1')",
        OP_PARTLY},
    {"unpin what has a leaf", TAKEN, 0,
        "SELECT payload_unpin((SELECT id FROM event_payloads WHERE pinned),"
        " 'me', 'why')",
        0},
    {"clean up with a leaf", TAKEN, 0, "SELECT payload_cleanup()", 0},
    {"hold with a leaf", TAKEN, 0,
        "SELECT retention_hold('session', 's', 'case', 'me', 'why')", 0},
    {"erase what has a leaf", TAKEN, 0,
        "SELECT length(blackbox_erase('agent', 'a', 'me', 'why', "
        "'{\"unpin\":true}'))",
        0},
    {"verify the log", TAKEN, 0,
        "SELECT * FROM proof_verify();"
        "SELECT * FROM proof_verify((SELECT proof_tile('checkpoint')))",
        0},
    {"verify a log that was altered",
        TAKEN "DROP TRIGGER payload_ledger_update;"
              "UPDATE payload_ledger SET token = 1;"
              "SELECT blackbox_install();",
        0, "SELECT leaf, kind, problem FROM proof_verify()", 0},
    {"prove", TAKEN, 0,
        "SELECT length(proof_of('pin', 1)), length(proof_of('head',"
        " proof_tile('checkpoint')));"
        "SELECT path, length(data) FROM proof_export; SELECT * FROM "
        "proof_pending",
        0},
    {0, 0, 0, 0, 0},
};
