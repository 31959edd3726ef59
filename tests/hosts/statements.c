/*
** statements.c: hosts that use all statements of a connection as if they were
** their own, and connections that close in every way.
**
** The module keeps prepared statements. A host that does not know them must be
** able to close the connection. After a host has finalized every statement that
** sqlite3_next_stmt() returns, at the end or at any time, everything must still
** work.
*/
#include "../harness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "host.db"

/* A connection with everything that keeps statements in use. Its file is installed
** once, and copied. */
static sqlite3 *busyDb(void) {
  static sqlite3 *pFirst;
  sqlite3 *db;
  if (pFirst == 0) {
    pFirst = openDb(0, 0);
    must(pFirst, "SELECT blackbox_install('main', 'all');"
                 "INSERT INTO blackbox_settings(name, value) VALUES("
                 "  'payload.enabled', 1), ('payload.queue_mode', 'memory');"
                 "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);");
  }
  unlink(FILE_NAME);
  must(pFirst, "VACUUM INTO '" FILE_NAME "'");
  db = openDb(FILE_NAME, 0);
  must(db, "PRAGMA journal_mode = wal;"
           "CREATE VIRTUAL TABLE temp.fast USING payload_ring(window=3)");
  return db;
}

/* Each line uses kept statements. */
static const char *const azUse[] = {
    "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e')",
    "INSERT INTO fast(agent_id, event_id) VALUES('a', 'e')",
    "SELECT count(*) FROM ring",
    "SELECT * FROM ring WHERE agent_id = 'a' ORDER BY seq DESC",
    "INSERT INTO ring(ring, value) VALUES('window', 4)",
    "INSERT INTO ring(ring, value) VALUES('window', 3)",
    "SELECT payload_queue('e', 'a', 'q', 'r')",
    "INSERT INTO payload_queue(event_id, agent_id) VALUES('e', 'a')",
    "SELECT payload_flush()",
    "UPDATE blackbox_settings SET value = 'durable' WHERE value = 'memory'",
    "SELECT payload_queue('e', 'a', 'q', 'r')",
    "SELECT payload_queue('e', 'a', 'q', 'r', 1000)",
    "INSERT INTO payload_queue(event_id, agent_id) VALUES('e', 'a')",
    "UPDATE blackbox_settings SET value = 'memory' WHERE value = 'durable'",
    "SELECT payload_queue('e', 'a', 'q', 'r')",
    "DELETE FROM payload_queue",
    "SELECT payload_stats()",
    "SELECT payload_cleanup()",
    "SELECT payload_save_evidence('k', '[{\"eventId\":\"e\",\"agentId\":\"a\"}"
    "]')",
    "SELECT payload_kill_switch('ring', 'a', 'k')",
    "SELECT payload_extract('fast', 'a')",
    "INSERT INTO ring(ring, agent_id, event_id) VALUES('kill_switch','a','k2')",
    "INSERT INTO blackbox_call VALUES('payload_cleanup', '[30]')",
    "DELETE FROM ring WHERE agent_id = 'a'",
    "CREATE VIRTUAL TABLE other USING payload_ring",
    "DROP TABLE other",
    "SELECT * FROM payload_waiting",
    "SELECT * FROM blackbox_check",
};
#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* In the quick run without the last line, which takes longer than all others. */
static void useAll(sqlite3 *db) {
  int i, n = COUNT(azUse) - !isFull();
  for (i = 0; i < n; i++) must(db, azUse[i]);
}

static int finalizeAll(sqlite3 *db) {
  sqlite3_stmt *p;
  int n = 0;
  while ((p = sqlite3_next_stmt(db, 0)) != 0) {
    sqlite3_finalize(p);
    n++;
  }
  return n;
}

static void testCloseWithKeptStatements(void **ppState) {
  sqlite3 *db = busyDb();
  (void)ppState;
  useAll(db);
  assert_non_null(
      sqlite3_next_stmt(db, 0)); /* otherwise the test would prove nothing */
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void testCloseAfterFinalizingAll(void **ppState) {
  sqlite3 *db = busyDb();
  (void)ppState;
  useAll(db);
  assert_true(finalizeAll(db) > 5);
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Before every single use, and twice in a row. */
static void testFinalizingInMidLife(void **ppState) {
  sqlite3 *db = busyDb();
  int iRound, i;
  (void)ppState;
  for (iRound = 0; iRound < 3; iRound++) {
    for (i = 0; i < COUNT(azUse); i++) {
      finalizeAll(db);
      must(db, azUse[i]);
    }
    useAll(db);
  }
  finalizeAll(db);
  finalizeAll(db);
  closeDb(db);
}

/* Inside a transaction, before every use of another table or function. */
static void testFinalizingInATransaction(void **ppState) {
  sqlite3 *db = busyDb();
  int i;
  (void)ppState;
  for (i = 0; i < COUNT(azUse); i++) {
    if (strstr(azUse[i], "flush") || strstr(azUse[i], " other")) continue;
    must(db, azUse[i]);
    must(db, "BEGIN");
    finalizeAll(db);
    must(db, azUse[i]);
    finalizeAll(db);
    must(db, "COMMIT");
  }
  closeDb(db);
}

/* The host finalizes the statements of the module and prepares others, which
** may get the same addresses. */
static void testOthersInTheirPlace(void **ppState) {
  sqlite3 *db = busyDb();
  sqlite3_stmt *apStmt[20];
  int i, iRound;
  (void)ppState;
  for (iRound = 0; iRound < 5; iRound++) {
    useAll(db);
    finalizeAll(db);
    for (i = 0; i < COUNT(apStmt); i++) {
      assert_int_equal(
          sqlite3_prepare_v2(db, "SELECT 1, 2, 3", -1, &apStmt[i], 0),
          SQLITE_OK);
    }
    useAll(db);
    for (i = 0; i < COUNT(apStmt); i++) {
      assert_int_equal(sqlite3_step(apStmt[i]), SQLITE_ROW);
      assert_int_equal(sqlite3_finalize(apStmt[i]), SQLITE_OK);
    }
  }
  closeDb(db);
}

static void testCloseThatIsRefused(void **ppState) {
  sqlite3 *db = busyDb();
  sqlite3_stmt *pStmt;
  (void)ppState;
  useAll(db);
  assert_int_equal(
      sqlite3_prepare_v2(db, "SELECT * FROM ring", -1, &pStmt, 0), SQLITE_OK);
  assert_int_equal(sqlite3_close(db), SQLITE_BUSY);
  useAll(db);
  assert_int_equal(sqlite3_close(db), SQLITE_BUSY);
  useAll(db);
  must(db, "SELECT payload_queue('last', 'a', 'q', 'r')");
  sqlite3_finalize(pStmt);
  closeDb(db);
  db = openDb(FILE_NAME, 0);
  assert_int_equal(number(db, "SELECT count(*) FROM event_payloads WHERE "
                              "event_id = 'last'"),
      1);
  closeDb(db);
}

/* close_v2 with a statement open: the queue is written at once. */
static void testZombie(void **ppState) {
  sqlite3 *db = busyDb(), *pOther = openDb(FILE_NAME, 0);
  sqlite3_stmt *pStmt, *pCall;
  const char *zCount = "SELECT count(*) FROM event_payloads";
  i64 nBefore = number(pOther, zCount);
  (void)ppState;
  must(db, "SELECT payload_queue('e', 'a', 'q', 'r')");
  must(db, "INSERT INTO ring(agent_id, event_id) VALUES('a','e'),('a','f')");
  sqlite3_prepare_v2(db, "SELECT event_id FROM ring", -1, &pStmt, 0);
  sqlite3_prepare_v2(db, "SELECT payload_stats()", -1, &pCall, 0);
  assert_int_equal(sqlite3_step(pStmt), SQLITE_ROW);
  assert_int_equal(sqlite3_close_v2(db), SQLITE_OK);
  assert_int_equal(sqlite3_step(pStmt), SQLITE_ROW);
  sqlite3_step(pCall); /* it must not crash; the message does not matter */
  assert_int_equal(number(pOther, zCount), nBefore + 1);
  sqlite3_finalize(pCall);
  sqlite3_finalize(pStmt);
  assert_int_equal(number(pOther, zCount), nBefore + 1);
  closeDb(pOther);
}

static void testQueueIsWrittenAtClose(void **ppState) {
  int bV2;
  (void)ppState;
  for (bV2 = 0; bV2 < 2; bV2++) {
    sqlite3 *db = busyDb();
    must(db, "SELECT payload_queue('e1','a','q','r')");
    must(db, "SELECT payload_queue('e2','a','q','r')");
    assert_int_equal(number(db, "SELECT count(*) FROM event_payloads"), 0);
    assert_int_equal(bV2 ? sqlite3_close_v2(db) : sqlite3_close(db), SQLITE_OK);
    db = openDb(FILE_NAME, 0);
    assert_int_equal(number(db, "SELECT count(*) FROM event_payloads"), 2);
    closeDb(db);
  }
}

/* The schema changes between two uses: by this connection, VACUUM, another
** connection. */
static void testSchemaChanges(void **ppState) {
  static const char *const azChange[] = {"CREATE TABLE t1(x)",
      "DROP TABLE IF EXISTS t1", "VACUUM",
      "CREATE INDEX i1 ON event_payloads(size_bytes)", "DROP INDEX i1",
      "ALTER TABLE ring RENAME TO tape; ALTER TABLE tape RENAME TO ring",
      "ALTER TABLE event_payloads ADD COLUMN note", "REINDEX", "ANALYZE"};
  sqlite3 *db = busyDb(), *pOther = openDb(FILE_NAME, 0);
  char *z;
  int i;
  (void)ppState;
  must(pOther, "CREATE VIRTUAL TABLE temp.fast USING payload_ring(window=3)");
  for (i = 0; i < COUNT(azChange); i++) {
    useAll(db);
    must(i % 2 ? db : pOther, azChange[i]);
    useAll(db);
    useAll(pOther);
  }
  must(db, "SELECT blackbox_install()"); /* guards the new column */
  z = problems(db);
  assert_string_equal(z, "");
  sqlite3_free(z);
  closeDb(pOther);
  closeDb(db);
}

/* A database with a ring is attached, used, and detached. */
static void testDetach(void **ppState) {
  sqlite3 *db = openDb(0, 0);
  int i;
  (void)ppState;
  for (i = 0; i < 3; i++) {
    unlink("away.db");
    must(db, "ATTACH 'away.db' AS away");
    must(db, "SELECT blackbox_install('away');"
             "CREATE VIRTUAL TABLE away.ring USING payload_ring(window=2);"
             "INSERT INTO away.blackbox_settings(name, value) "
             "VALUES('payload.enabled', 1);"
             "INSERT INTO ring(agent_id, event_id) VALUES('a','e');"
             "SELECT payload_kill_switch('ring', 'a', 'k');"
             "SELECT payload_stats();");
    assert_int_equal(number(db, "SELECT count(*) FROM event_payloads"), 1);
    must(db, "DETACH away");
    assert_int_equal(run(db, "SELECT payload_stats()"), SQLITE_ERROR);
    assert_non_null(strstr(message(), "NotInstalledError"));
    assert_int_equal(run(db, "SELECT count(*) FROM ring"), SQLITE_ERROR);
    /* the same schema under another name is found at once */
    must(db, "ATTACH 'away.db' AS back; SELECT payload_stats();"
             "SELECT payload_queue('e','a','q','r');"
             "SELECT payload_flush(); DETACH back;");
  }
  closeDb(db);
}

/* The same, but the schema is detached while rows wait for it. */
static void testDetachWhileRowsWait(void **ppState) {
  sqlite3 *db = openDb(0, 0);
  (void)ppState;
  unlink("away.db");
  must(db, "ATTACH 'away.db' AS away;"
           "SELECT blackbox_install('away');"
           "INSERT INTO away.blackbox_settings(name, value) "
           "VALUES('payload.enabled', 1),"
           "  ('payload.queue_mode', 'memory');"
           "SELECT payload_queue('e','a','q','r');"
           "DETACH away;");
  assert_int_equal(run(db, "SELECT payload_flush()"), SQLITE_ERROR);
  assert_int_equal(number(db, "SELECT count(*) FROM payload_queue"), 1);
  closeDb(db);
  db = openDb("away.db", 0);
  assert_int_equal(number(db, "SELECT count(*) FROM event_payloads"), 1);
  closeDb(db);
}

/* argv[1], if given, is a pattern of names, with * and ?. */
/* dqlite runs a SELECT as a read: what it changes is lost, and the next write
** stops the node. Its databases have a VFS of this name. */
static void testQueriesOfDqlite(void **ppState) {
  static const char *const azRefused[] = {
      "SELECT payload_kill_switch('ring', 'a', 'k')",
      "SELECT payload_queue('e', 'a', 'q', 'r')",
      "SELECT cache_write('s', 't', 'u', '[1]', 'd')",
      "SELECT blackbox_uninstall()", "SELECT evidence_export('rec', 1)"};
  sqlite3_vfs vfs = *sqlite3_vfs_find(0);
  sqlite3 *db;
  int i;
  (void)ppState;
  vfs.zName = "dqlite-1";
  vfs.pNext = 0;
  sqlite3_vfs_register(&vfs, 0);
  unlink(FILE_NAME);
  db = openDb(FILE_NAME, vfs.zName);
  must(db,
      "INSERT INTO blackbox_call VALUES('blackbox_install',"
      "  '[\"main\", \"all\"]');"
      "INSERT INTO blackbox_settings(name, value) VALUES('payload.enabled', 1);"
      "CREATE VIRTUAL TABLE ring USING payload_ring(window=3);"
      "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e');"
      "CREATE VIRTUAL TABLE rec USING evidence_buffer;"
      "INSERT INTO cache_items(session_id, task_id, turn_id, description,"
      "  data) VALUES('conv_a3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b',"
      "  'a7b3c9d2', 'f4e8a1b6', 'd', '[1]')");
  for (i = 0; i < 5; i++) {
    assert_int_equal(run(db, azRefused[i]), SQLITE_ERROR);
    if (strstr(message(), "blackbox_call") == 0) fail_msg("%s", message());
  }
  /* These read, and leave no mark. */
  must(db, "SELECT evidence_export('rec'), rollout_flush(), cache_read("
           "  'conv_a3f8e2b4-5c6d-7e8f-9a0b-1c2d3e4f5a6b_a7b3c9d2_f4e8a1b6')");
  assert_int_equal(number(db, "SELECT sum(hits) FROM cache_sessions"), 0);
  must(db, "CREATE TABLE t(x); INSERT INTO t"
           "  SELECT payload_queue('e', 'a', 'q', 'r');"
           "INSERT INTO blackbox_call VALUES('payload_kill_switch',"
           "  '[\"ring\",\"a\",\"k\"]')");
  assert_int_equal(number(db, "SELECT count(*) FROM payload_rows"), 2);
  assert_int_equal(number(db, "SELECT count(*) FROM blackbox_check"), 0);
  closeDb(db);
  sqlite3_vfs_unregister(&vfs);
}

int main(int argc, char **argv) {
  const struct CMUnitTest aTest[] = {
      cmocka_unit_test(testCloseWithKeptStatements),
      cmocka_unit_test(testCloseAfterFinalizingAll),
      cmocka_unit_test(testFinalizingInMidLife),
      cmocka_unit_test(testFinalizingInATransaction),
      cmocka_unit_test(testOthersInTheirPlace),
      cmocka_unit_test(testCloseThatIsRefused),
      cmocka_unit_test(testZombie),
      cmocka_unit_test(testQueueIsWrittenAtClose),
      cmocka_unit_test(testSchemaChanges),
      cmocka_unit_test(testDetach),
      cmocka_unit_test(testDetachWhileRowsWait),
      cmocka_unit_test(testQueriesOfDqlite),
  };
  if (argc > 1) cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests_name("statements", aTest, 0, 0);
}
