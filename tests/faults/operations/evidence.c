/* evidence.c: the operations of the domain evidence: see operations.h. */
#include "operations.h"

const Operation aEvidenceOperation[] = {
    {"create a buffer", 0, 0,
        "CREATE VIRTUAL TABLE rec USING evidence_buffer("
        "retention_policy='keep-last-n', max_screenshots=5)",
        0},
    {"create a buffer where evidence is due",
        "INSERT INTO evidence_owners(owner, buffer, claim, seen)"
        "  VALUES('o', 'b', 'c', 1000);"
        "INSERT INTO evidence__overflow VALUES(1,'o','x',1000,5,0,0,0,1,0,"
        "  '[1,2]',NULL)",
        0,
        "CREATE VIRTUAL TABLE temp.rec USING evidence_buffer(overflow='main')",
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
    {"change the threshold", BUFFER, 0,
        "INSERT INTO rec(rec, value) VALUES('prune_threshold', 0.5)", 0},
    {"change the policy", BUFFER, 0,
        "INSERT INTO rec(rec, value) VALUES('retention_policy', "
        "'confidence-based')",
        0},
    {"change the policy of what overflowed", 0,
        SPILLING STORE("temp.rec", "a4", "4000"),
        "INSERT INTO temp.rec(rec, value) VALUES('retention_policy', "
        "'confidence-based')",
        0},
    {"change the number of screenshots",
        BUFFER "INSERT INTO rec(rec, value) VALUES('retention_policy', "
               "'keep-last-n');",
        0, "INSERT INTO rec(rec, value) VALUES('max_screenshots', 1)", 0},
    {"give a buffer an overflow", 0,
        "CREATE VIRTUAL TABLE temp.rec USING "
        "evidence_buffer;" STORES("temp.rec"),
        "INSERT INTO temp.rec(rec, value) VALUES('overflow', 'main')", 0},
    {"take the overflow from a buffer", 0, SPILLING "DELETE FROM temp.rec;",
        "INSERT INTO temp.rec(rec, value) VALUES('overflow', '')", 0},
    {"replace an action", BUFFER, 0,
        "INSERT OR REPLACE INTO rec(id, timestamp, action) "
        "VALUES('a1', 1500, '{}')",
        0},
    {"pin an action", BUFFER, 0, "UPDATE rec SET pinned = 1 WHERE id = 'a1'",
        0},
    {"unpin an action", BUFFER "UPDATE rec SET pinned = 1;", 0,
        "UPDATE rec SET pinned = 0 WHERE id = 'a1'", 0},
    {"sweep with a later write",
        "PRAGMA auto_vacuum = 2; VACUUM;" BUFFER
        "SELECT evidence_prune_for_approval('rec');"
        "UPDATE rec_state SET swept = 0, stale = last;",
        0, "INSERT INTO rec(id, timestamp, action) VALUES('a4', 4000, '{}')",
        OP_CARRIES},
    {"sweep another buffer",
        BUFFER "SELECT evidence_prune_for_approval('rec');"
               "UPDATE rec_state SET swept = 0, stale = last;"
               "INSERT INTO evidence__sweeps VALUES('rec');"
               "CREATE VIRTUAL TABLE tape USING evidence_buffer;",
        0, "INSERT INTO tape(id, timestamp, action) VALUES('b', 1, '{}')",
        OP_CARRIES},
    {"prune for a row as large as the buffer", BUFFER,
        "INSERT INTO rec(rec, value) VALUES('retention_policy', "
        "'confidence-based')",
        "INSERT INTO rec(id, timestamp, action, screenshot) "
        "VALUES('big', 4000, '{}', zeroblob(99898))",
        0},
    {"change an action that overflowed", 0,
        SPILLING "SELECT evidence_flush('rec');",
        "UPDATE temp.rec SET action = '{\"id\":\"a1\"}' WHERE id = 'a1'", 0},
    {"delete an action that overflowed", 0,
        SPILLING "SELECT evidence_flush('rec');",
        "DELETE FROM temp.rec WHERE id = 'a1'", 0},
    {"delete an action", BUFFER, 0, "DELETE FROM rec WHERE id = 'a2'", 0},
    {"clear a buffer", BUFFER, 0, "SELECT evidence_clear('rec')", 0},
    {"rename a buffer", BUFFER, 0, "ALTER TABLE rec RENAME TO tape2", 0},
    {"drop a buffer", BUFFER, 0, "DROP TABLE rec", 0},
    {"read a buffer", BUFFER, 0,
        "SELECT id, timestamp, length(screenshot) FROM rec WHERE timestamp >= "
        "2000; SELECT evidence_stats('rec'); SELECT * FROM evidence_stats; "
        "SELECT evidence_needs_pruning('rec'); SELECT "
        "evidence_export_puppeteer('rec') IS NULL; SELECT "
        "evidence_export_replay('rec') IS NULL",
        0},
    {0, 0, 0, 0, 0},
};
