/*
** damage.c: every operation on a database with one damage: a cell with a value
** that no rule allows, a table that is empty, or a table that is missing.
**
** The rules (triggers, CHECK constraints, defensive mode) are switched off to
** do the damage, because a broken program or disk does not respect them either.
** What must hold: nothing crashes, reads foreign memory or leaks (the
** sanitizers watch), an error has a message, no transaction stays open, and
** blackbox_check() completes.
*/
#include "../harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE (isFull() ? 10 : 3000) /* one of this many damages is tried */

static const char *const azValue[] = {"NULL", "''", "-1", "0",
    "9223372036854775807", "1e300", "x'00ff'", "'{oops'", "'[]'", "'{}'",
    "'x' || char(0) || 'y'", "CAST(x'ff' AS TEXT)", "zeroblob(70000)"};
#define N_VALUE ((int)(sizeof(azValue) / sizeof(azValue[0])))

/* The database of an operation, and its possible damages. */
static struct {
  unsigned char *aByte;
  i64 nByte;
  int nDamage, nAlloc;
  char **azDamage; /* SQL */
} victim;

static void addDamage(char *zSql) {
  assert_non_null(zSql);
  if (victim.nDamage == victim.nAlloc) {
    victim.nAlloc = victim.nAlloc ? victim.nAlloc * 2 : 1000;
    victim.azDamage =
        realloc(victim.azDamage, (size_t)victim.nAlloc * sizeof(char *));
    assert_non_null(victim.azDamage);
  }
  victim.azDamage[victim.nDamage++] = zSql;
}

static void forgetDamage(void) {
  int i;
  for (i = 0; i < victim.nDamage; i++) sqlite3_free(victim.azDamage[i]);
  victim.nDamage = 0;
  sqlite3_free(victim.aByte);
  victim.aByte = 0;
}

static void addColumns(sqlite3 *db) {
  sqlite3_stmt *pStmt;
  assert_int_equal(
      sqlite3_prepare_v2(db,
          "SELECT t.name, c.name FROM sqlite_schema AS t, "
          "pragma_table_xinfo(t.name) AS c WHERE t.type = 'table' AND "
          "c.hidden = 0 AND t.sql NOT LIKE 'CREATE VIRTUAL%' AND "
          "t.name NOT GLOB 'sqlite_*'",
          -1, &pStmt, 0),
      SQLITE_OK);
  while (sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *zTable = (const char *)sqlite3_column_text(pStmt, 0);
    const char *zColumn = (const char *)sqlite3_column_text(pStmt, 1);
    int i;
    for (i = 0; i < N_VALUE; i++) {
      addDamage(sqlite3_mprintf(
          "UPDATE \"%w\" SET \"%w\" = %s", zTable, zColumn, azValue[i]));
    }
    addDamage(sqlite3_mprintf(
        "UPDATE \"%w\" SET \"%w\" = substr(\"%w\", 1, length(\"%w\") / 2)",
        zTable, zColumn, zColumn, zColumn));
  }
  sqlite3_finalize(pStmt);
}

static void addWhole(sqlite3 *db) {
  sqlite3_stmt *pStmt;
  assert_int_equal(sqlite3_prepare_v2(db,
                       "SELECT type, name FROM sqlite_schema "
                       "WHERE name NOT GLOB 'sqlite_*'",
                       -1, &pStmt, 0),
      SQLITE_OK);
  while (sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *zType = (const char *)sqlite3_column_text(pStmt, 0);
    const char *zName = (const char *)sqlite3_column_text(pStmt, 1);
    addDamage(sqlite3_mprintf("DROP %s \"%w\"", zType, zName));
    if (strcmp(zType, "table") == 0) {
      addDamage(sqlite3_mprintf("DELETE FROM \"%w\"", zName));
    }
  }
  sqlite3_finalize(pStmt);
}

static void prepareVictim(const Operation *pOp) {
  sqlite3 *db = openDb(0, 0);
  forgetDamage();
  prepareDb(db, pOp);
  victim.aByte = sqlite3_serialize(db, "main", &victim.nByte, 0);
  addColumns(db);
  addWhole(db);
  closeDb(db);
}

/* Does the damage, as far as SQLite allows it. */
static void damage(sqlite3 *db, const char *zSql) {
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, (int *)0);
  must(db, "PRAGMA ignore_check_constraints = ON");
  run(db, zSql);
  must(db, "PRAGMA ignore_check_constraints = OFF");
  sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 1, (int *)0);
}

static void tryDamaged(const Operation *pOp, const char *zDamage) {
  sqlite3 *db = openCopy(victim.aByte, victim.nByte);
  int rc;
  damage(db, zDamage);
  if (pOp->zBefore != 0) run(db, pOp->zBefore);
  rc = run(db, pOp->zSql);
  if (rc == SQLITE_MISUSE || rc == SQLITE_INTERNAL || rc == SQLITE_NOMEM ||
      (rc != SQLITE_OK && *message() == 0)) {
    fail_msg("after %s: %d %s", zDamage, rc, message());
  }
  if (!sqlite3_get_autocommit(db)) {
    fail_msg("after %s: a transaction was left open", zDamage);
  }
  run(db, "SELECT * FROM blackbox_check");
  closeDb(db);
}

static void testOperation(void **ppState) {
  static int nTest; /* operations begin their samples at different points */
  const Operation *pOp = (const Operation *)*ppState;
  i64 nUsed;
  int i;
  prepareVictim(pOp);
  tryDamaged(pOp, "SELECT 1");
  nUsed = sqlite3_memory_used();
  for (i = nTest++ * 7 % SAMPLE; i < victim.nDamage; i += SAMPLE) {
    tryDamaged(pOp, victim.azDamage[i]);
    if (sqlite3_memory_used() != nUsed) {
      fail_msg("after %s: %lld bytes not given back", victim.azDamage[i],
          sqlite3_memory_used() - nUsed);
    }
  }
  forgetDamage();
}

/* The argument: see chooseOperations(). */
int main(int argc, char **argv) {
  static struct CMUnitTest aTest[400];
  const Operation *pOp;
  int rc, i, n = 0;
  stopClock();
  chooseOperations(argc, argv);
  for (i = 0; (pOp = chosenOperation(i)) != 0; i++) {
    if (!isPicked(0, i, 16)) continue;
    aTest[n].name = pOp->zName;
    aTest[n].test_func = testOperation;
    aTest[n++].initial_state = (void *)pOp;
  }
  rc = _cmocka_run_group_tests("damage", aTest, (size_t)n, 0, 0);
  free(victim.azDamage);
  return rc;
}
