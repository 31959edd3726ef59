/*
** failures.c: the ways in which a statement inside xUpdate fails: see writes.h.
**
** A failure strikes either when an inner statement begins, which the trace tells,
** or at a table, which the user has changed or locked before. disturb.c and io.c
** have the first kind at every single step; here it comes with every statement.
*/
#include "writes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  sqlite3 *db;
  sqlite3_stmt *pOuter; /* the statement of the host */
  const Failure *p;
  int iPoint, nPoint;
  int bArmed, bReached;
  int nCase; /* how many there were */
} now;

/*--------------------------------------------------------- at a statement --*/

/* Not always the first allocation, some of which SQLite can do without. */
static void noMemory(sqlite3 *db) {
  faultArm(FAULT_MEMORY, now.nCase % 5, 0, db);
}
static void noMemoryAnyMore(sqlite3 *db) {
  faultArm(FAULT_MEMORY, now.nCase % 5, 1, db);
}
static void noMorePages(sqlite3 *db) {
  sqlite3_exec(
      db, "PRAGMA max_page_count = 1; PRAGMA side.max_page_count = 1", 0, 0, 0);
}
static void diskFull(sqlite3 *db) {
  faultArm(FAULT_FULL, 0, 1, db);
}
static void journalFull(sqlite3 *db) {
  faultArm(FAULT_JOURNAL, 0, 1, db);
}
static void readError(sqlite3 *db) {
  sqlite3_db_release_memory(db); /* what SQLite has read before */
  faultArm(FAULT_READ, 0, 1, db);
}
static void writeError(sqlite3 *db) {
  faultArm(FAULT_WRITE, 0, 1, db);
}
static void syncError(sqlite3 *db) {
  faultArm(FAULT_SYNC, 0, 1, db);
}
static void interrupted(sqlite3 *db) {
  sqlite3_interrupt(db);
}
static int always(void *p) {
  (void)p;
  return 1;
}
static void stopped(sqlite3 *db) {
  sqlite3_progress_handler(db, 1, always, 0);
}
static int deny(void *p, int e, const char *z1, const char *z2, const char *z3,
    const char *z4) {
  (void)p, (void)z1, (void)z2, (void)z3, (void)z4;
  return e == SQLITE_INSERT || e == SQLITE_UPDATE || e == SQLITE_DELETE
             ? SQLITE_DENY
             : SQLITE_OK;
}
/* Every statement that begins after this one is prepared again. */
static void denied(sqlite3 *db) {
  sqlite3_set_authorizer(db, deny, 0);
}
static void readOnly(sqlite3 *db) {
  sqlite3_exec(db, "PRAGMA query_only = 1", 0, 0, 0);
}
static void tooBig(sqlite3 *db) {
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 30);
}

/* So few pages that SQLite writes before the commit. */
#define SPILLS                                                                 \
  "PRAGMA cache_size = 1; PRAGMA side.cache_size = 1; PRAGMA cache_spill = 1"
#define RAISES(when, what)                                                     \
  "CREATE TRIGGER <db>.raises " when " <op> ON <tab> WHEN fails() BEGIN "      \
  "SELECT RAISE(" what "); END"

const Failure aFailure[] = {
    {"no memory", noMemory, 0, 0, AT_STATEMENT},
    {"no memory any more", noMemoryAnyMore, 0, 0, AT_STATEMENT},
    {"no more pages", noMorePages, 0, 0, AT_STATEMENT},
    {"disk full", diskFull, SPILLS, 0, AT_STATEMENT | FILES},
    {"statement journal full", journalFull, 0, 0, AT_STATEMENT | FILES},
    {"read error", readError, 0, 0, AT_STATEMENT | FILES},
    {"write error", writeError, SPILLS, 0, AT_STATEMENT | FILES},
    {"sync error", syncError, SPILLS, 0, AT_STATEMENT | FILES},
    {"interrupted", interrupted, 0, 0, AT_STATEMENT},
    {"stopped", stopped, 0, 0, AT_STATEMENT},
    {"denied", denied, 0, 0, AT_STATEMENT | MUTES},
    {"read-only", readOnly, 0, 0, AT_STATEMENT | MUTES},
    {"too big", tooBig, 0, 0, AT_STATEMENT},
    {"RAISE(ABORT) before", 0, RAISES("BEFORE", "ABORT, 'no'"), 0, 0},
    {"RAISE(ABORT) after", 0, RAISES("AFTER", "ABORT, 'no'"), 0, 0},
    {"RAISE(FAIL) before", 0, RAISES("BEFORE", "FAIL, 'no'"), 0, KNOWN},
    {"RAISE(FAIL) after", 0, RAISES("AFTER", "FAIL, 'no'"), 0, KNOWN},
    {"RAISE(ROLLBACK) before", 0, RAISES("BEFORE", "ROLLBACK, 'no'"), 0, 0},
    {"RAISE(ROLLBACK) after", 0, RAISES("AFTER", "ROLLBACK, 'no'"), 0, 0},
    {"RAISE(IGNORE) before", 0, RAISES("BEFORE", "IGNORE"), 0, SILENT},
    {"RAISE(IGNORE) after", 0, RAISES("AFTER", "IGNORE"), 0, SILENT},
    {"unique index", 0,
        "CREATE UNIQUE INDEX <db>.theirs ON <tab>(typeof(<last>))", 0, DAMAGES},
    {"foreign key", 0,
        "CREATE TABLE <db>.child(k REFERENCES <tab>(<key>));"
        "INSERT INTO <db>.child SELECT <key> FROM <db>.<tab>; PRAGMA "
        "foreign_keys = 1",
        0, DAMAGES},
    {"check", 0,
        "ALTER TABLE <db>.<tab> ADD COLUMN theirs CHECK (theirs IS NULL AND "
        "NOT "
        "fails())",
        0, 0},
    {"table dropped", 0, "DROP TABLE <db>.<tab>", 0, DAMAGES},
    {"column renamed", 0,
        "ALTER TABLE <db>.<tab> RENAME COLUMN <last> TO theirs", 0, DAMAGES},
    {"column added", 0, "ALTER TABLE <db>.<tab> ADD COLUMN theirs", 0, DAMAGES},
    {"table locked", 0, 0, "BEGIN; SELECT * FROM <tab>", SHARED},
    {"file locked", 0, 0, "BEGIN IMMEDIATE", LOCKS},
    {"file read", 0, 0, "BEGIN; SELECT * FROM sqlite_schema", 0},
    {0, 0, 0, 0, 0},
};

/*------------------------------------------------------------- happening --*/

/* fails(): whether the failure of a table happens. */
static void sqlFails(sqlite3_context *pCtx, int nArg, sqlite3_value **aArg) {
  (void)nArg, (void)aArg;
  if (now.bArmed) now.bReached = 1;
  sqlite3_result_int(pCtx, now.bArmed && now.p != 0);
}

/* The host's statement comes first. SQLite shows an inner one as a comment, and a
** trigger in it as a comment in a comment. */
static int onStatement(unsigned int e, void *pArg, void *pStmt, void *zSql) {
  (void)e, (void)pArg;
  if (!now.bArmed || zSql == 0 || strncmp(zSql, "-- --", 5) == 0) return 0;
  if (now.pOuter == 0) now.pOuter = pStmt;
  if (now.pOuter == pStmt || sqlite3_stmt_readonly(pStmt)) return 0;
  if (now.nPoint++ != now.iPoint || now.p == 0 || now.p->xStrike == 0) return 0;
  now.bArmed = 0; /* the strike may run statements */
  now.p->xStrike(now.db);
  now.bArmed = now.bReached = 1;
  return 0;
}

void failureReady(sqlite3 *db) {
  int rc = sqlite3_create_function(
      db, "fails", 0, SQLITE_UTF8 | SQLITE_INNOCUOUS, 0, sqlFails, 0, 0);
  if (rc == SQLITE_OK) {
    rc = sqlite3_trace_v2(db, SQLITE_TRACE_STMT, onStatement, 0);
  }
  if (rc != SQLITE_OK) abort();
}

void failureArm(sqlite3 *db, const Failure *p, int iPoint) {
  int nCase = now.nCase + 1;
  memset(&now, 0, sizeof(now));
  now.db = db;
  now.p = p;
  now.iPoint = iPoint;
  now.nCase = nCase;
  now.bArmed = 1;
}

int failureCalm(int *pnPoint) {
  now.bArmed = 0;
  faultDisarm(0);
  sqlite3_progress_handler(now.db, 0, 0, 0);
  sqlite3_set_authorizer(now.db, 0, 0);
  sqlite3_limit(now.db, SQLITE_LIMIT_LENGTH, 1000000000);
  must(now.db, "PRAGMA query_only = 0; PRAGMA max_page_count = 1000000");
  run(now.db, "PRAGMA side.max_page_count = 1000000");
  if (pnPoint != 0) *pnPoint = now.nPoint;
  return now.bReached;
}

/*------------------------------------------------------------- at a table --*/

typedef struct Learning {
  Written *a;
  int n, nMax;
} Learning;

/* An authorizer: notes which tables a statement writes. */
static int note(void *pArg, int e, const char *zTable, const char *zColumn,
    const char *zDb, const char *zTrigger) {
  Learning *p = (Learning *)pArg;
  Written *pOne = &p->a[p->n];
  int i = 0;
  (void)zColumn;
  if (e != SQLITE_INSERT && e != SQLITE_UPDATE && e != SQLITE_DELETE) return 0;
  if (zDb == 0 || strncmp(zTable, "sqlite_", 7) == 0) return 0;
  if (p->n == p->nMax - 1) return 0;
  snprintf(pOne->zDb, sizeof(pOne->zDb), "%s", zDb);
  snprintf(pOne->zTable, sizeof(pOne->zTable), "%s", zTable);
  snprintf(pOne->zOp, sizeof(pOne->zOp), "%s",
      e == SQLITE_INSERT   ? "INSERT"
      : e == SQLITE_UPDATE ? "UPDATE"
                           : "DELETE");
  pOne->bTrigger = 0;
  while (strcmp(p->a[i].zDb, zDb) != 0 || strcmp(p->a[i].zTable, zTable) != 0 ||
         strcmp(p->a[i].zOp, pOne->zOp) != 0) {
    i++;
  }
  p->a[i].bTrigger |= zTrigger != 0;
  p->n += i == p->n;
  return 0;
}

/* Whether it is a table with rows, and not the host's own, nor one of FTS5, which a
** trigger on its tables sends into an endless recursion. */
static int isPlain(sqlite3 *db, const Written *p) {
  char *z = sqlite3_mprintf(
      "SELECT count(*) FROM \"%w\".sqlite_schema AS t WHERE name = %Q AND "
      "type = 'table' AND rootpage > 0 AND name <> 'app' AND NOT EXISTS ("
      "SELECT 1 FROM \"%w\".sqlite_schema AS v WHERE v.sql LIKE '%%fts5(%%' "
      "AND t.name GLOB v.name || '_*')",
      p->zDb, p->zTable, p->zDb);
  int bPlain = number(db, z) > 0;
  sqlite3_free(z);
  return bPlain;
}

int failureLearn(sqlite3 *db, const char *zSql, Written *aOut, int nMax) {
  Learning learning = {aOut, 0, nMax};
  int i, n = 0;
  sqlite3_set_authorizer(db, note, &learning);
  run(db, zSql);
  sqlite3_set_authorizer(db, 0, 0);
  for (i = 0; i < learning.n; i++) {
    if (isPlain(db, &aOut[i])) aOut[n++] = aOut[i];
  }
  return n;
}

/* A text in which the names of the table stand, to sqlite3_free(). */
static char *fill(sqlite3 *db, const char *zTemplate, const Written *p) {
  char *zSql = sqlite3_mprintf(
      "WITH c(name, pk, cid) AS (SELECT name, pk, cid FROM "
      "pragma_table_info(%Q, %Q)) SELECT replace(replace(replace(replace("
      "replace(%Q, '<db>', '\"%w\"'), '<tab>', '\"%w\"'), '<op>', %Q), "
      "'<key>', coalesce((SELECT name FROM c WHERE pk = 1), '')), '<last>', "
      "(SELECT name FROM c ORDER BY cid DESC))",
      p->zTable, p->zDb, zTemplate, p->zDb, p->zTable, p->zOp);
  char *z = text(db, zSql);
  sqlite3_free(zSql);
  return z;
}

int failureArrange(
    sqlite3 *db, sqlite3 *pOther, const Failure *p, const Written *pWritten) {
  int rc = SQLITE_OK;
  if (p->zArrange != 0) {
    char *z = fill(db, p->zArrange, pWritten);
    rc = run(db, z);
    sqlite3_free(z);
  }
  if (p->zOther != 0 && rc == SQLITE_OK) {
    char *z = fill(db, p->zOther, pWritten), zOut[9];
    rc = runOut(pOther, z, zOut, sizeof(zOut));
    sqlite3_free(z);
  }
  return rc == SQLITE_OK;
}
