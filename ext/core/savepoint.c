/*
** savepoint.c: all that a call changes, or nothing.
**
** A function that changes data runs in a savepoint. SQLite refuses one while
** another statement writes, so such a function stands at the top of a
** statement of its own.
**
** A call that is stopped must still take back what it did. Two things are in
** the way of that:
**   - After sqlite3_interrupt(), or when memory has run out, SQLite runs
**     nothing and prepares nothing until the statement that called us ends.
**   - A progress handler can stop any statement, also behind its last step,
**     when its work is done.
** Against the first: when a statement that would write is stopped, SQLite rolls
** the transaction back, as for an INSERT that is interrupted. One is at hand
** that only has to begin. It must be prepared already, and what prepares it is
** undone by much (ATTACH, CREATE INDEX), so that is looked for at each call;
** around statements that do it themselves another one is running, see bxHold().
** Against the second: what was stopped is repeated, and the steps that it took
** tell whether it was whole.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

/* How often a statement is begun again that a progress handler stops. */
#define TRIES 100

#define NAME "\"a call of blackbox\""
static const char zSavepointBegin[] = "SAVEPOINT " NAME;
static const char zRelease[] = "RELEASE " NAME;
static const char zRollbackTo[] = "ROLLBACK TO " NAME;
static const char zRollback[] = "ROLLBACK";
/* Would write, and is run only where it is stopped before its first step. */
static const char zAbort[] = "BEGIN IMMEDIATE";
static const char zProbe[] = "SELECT 1";
/* Writes for all that SQLite knows, and goes on after its row. */
static const char zHold[] = "PRAGMA main.journal_mode";

/* Runs a kept statement. Returns its code. */
static int runKept(BxStmts *p, const char *zSql) {
  BxErr err = {SQLITE_OK, 0};
  int rc;
  bxRun(bxStmt(p, zSql, &err), &err);
  rc = err.rc;
  bxClear(&err);
  return rc;
}

/* The same, again and again while it is stopped. */
static int insist(BxStmts *p, const char *zSql) {
  int i, rc = SQLITE_INTERRUPT;
  for (i = 0; i < TRIES && rc == SQLITE_INTERRUPT; i++) rc = runKept(p, zSql);
  return rc;
}

/* Ends the transaction by ROLLBACK, or, if that is stopped, by the statement
** that is then stopped as well. */
static void rollBack(BxStmts *p) {
  sqlite3 *db = p->bx->db;
  int i;
  for (i = 0; i < TRIES && !sqlite3_get_autocommit(db); i++) {
    runKept(p, zRollback);
    if (!sqlite3_get_autocommit(db)) runKept(p, zAbort);
  }
}

/* Takes back what was done since the savepoint, if there is one. Where no more
** than that is possible, the transaction around it goes as well. */
static void undo(BxStmts *p) {
  int rc;
  if (sqlite3_get_autocommit(p->bx->db)) return;
  if (p->bx->bAlone) {
    rollBack(p);
    return;
  }
  rc = insist(p, zRollbackTo);
  if (rc == SQLITE_OK) {
    insist(p, zRelease);
  } else if (rc != SQLITE_ERROR) { /* which says: no such savepoint */
    rollBack(p);
  }
}

/* Prepares all that may be needed, so that an undo need not. Returns SAVEPOINT.
** SQLite tells of a statement only when it runs that it had to be prepared anew;
** then so must the others be. */
static sqlite3_stmt *prepareAll(BxStmts *p, BxErr *pErr) {
  static const char *const az[] = {
      zSavepointBegin, zProbe, zRelease, zRollbackTo, zRollback, zAbort};
  enum { BEGIN, PROBE, ALL = sizeof(az) / sizeof(az[0]) };
  sqlite3_stmt *ap[ALL];
  bxStmtSet(p, az, ALL, ap, pErr);
  bxRun(ap[PROBE], pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (sqlite3_stmt_status(ap[PROBE], SQLITE_STMTSTATUS_REPREPARE, 1) > 0) {
    bxStmtForget(p, zAbort);
    bxStmt(p, zAbort, pErr);
  }
  return pErr->rc == SQLITE_OK ? ap[BEGIN] : 0;
}

/* Steps a kept statement to its end. *pnStep: the machine's steps in that. */
static int stepWhole(sqlite3_stmt *pStmt, int *pnStep) {
  int rc;
  sqlite3_stmt_status(pStmt, SQLITE_STMTSTATUS_VM_STEP, 1);
  rc = sqlite3_step(pStmt);
  *pnStep = sqlite3_stmt_status(pStmt, SQLITE_STMTSTATUS_VM_STEP, 1);
  return rc;
}

/* SQL of a statement that is being run and writes. */
static const char *openWriter(sqlite3 *db) {
  sqlite3_stmt *p = sqlite3_next_stmt(db, 0);
  while (p != 0 && (!sqlite3_stmt_busy(p) || sqlite3_stmt_readonly(p))) {
    p = sqlite3_next_stmt(db, p);
  }
  return p != 0 ? sqlite3_sql(p) : "";
}

void bxSavepoint(Bx *bx, const char *zWho, BxErr *pErr) {
  BxStmts *p = bxSchema(bx, "main", pErr);
  sqlite3_stmt *pStmt = p ? prepareAll(p, pErr) : 0;
  int rc;
  if (pStmt == 0) return;
  bx->bAlone = sqlite3_get_autocommit(bx->db);
  rc = stepWhole(pStmt, &bx->nWhole);
  if (rc == SQLITE_BUSY) {
    bxFail(pErr, rc,
        "MisuseError: %s() changes data and cannot run inside a statement "
        "that writes, nor while one is open: %.200s; read that to its end or "
        "reset it; if it is the one that calls %s(), SELECT that alone, or "
        "INSERT INTO blackbox_call(command, arguments) instead",
        zWho, openWriter(bx->db), zWho);
  } else if (rc != SQLITE_DONE) {
    bxFailDb(pErr, bx->db, rc);
    sqlite3_reset(pStmt);
    undo(p); /* it may have come behind the last step */
  }
  sqlite3_reset(pStmt);
}

/* A stop behind the last step comes too late: all is kept, and the call has
** succeeded. SAVEPOINT and RELEASE have the same number of steps. */
static void release(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p, zRelease, pErr);
  int rc, nStep;
  assert(p->bx->nWhole > 0);
  if (pStmt == 0) return;
  rc = stepWhole(pStmt, &nStep);
  if (rc != SQLITE_INTERRUPT || nStep < p->bx->nWhole) {
    bxFailDb(pErr, p->bx->db, rc);
  }
  sqlite3_reset(pStmt);
}

void bxRelease(Bx *bx, BxErr *pErr) {
  BxErr none = {SQLITE_OK, 0};
  BxStmts *p = bxSchema(bx, "main", &none); /* there since bxSavepoint() */
  release(p, pErr);
  if (pErr->rc != SQLITE_OK) undo(p);
}

sqlite3_stmt *bxHold(Bx *bx, BxErr *pErr) {
  sqlite3_stmt *pHold = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  bxFailDb(pErr, bx->db, sqlite3_prepare_v2(bx->db, zHold, -1, &pHold, 0));
  bxRow(pHold, pErr);
  if (pErr->rc == SQLITE_OK) return pHold;
  sqlite3_finalize(pHold);
  return 0;
}

/* After an error the hold goes on, and so rolls back if nothing runs any more.
** If all went well, it stands until the other statement is there again. */
void bxLetGo(Bx *bx, sqlite3_stmt *pHold, BxErr *pErr) {
  BxStmts *p = bxSchema(bx, "main", pErr);
  if (pHold == 0) return;
  if (p != 0) {
    bxStmtForget(p, zAbort);
    bxStmt(p, zAbort, pErr);
  }
  if (pErr->rc != SQLITE_OK) sqlite3_step(pHold);
  sqlite3_finalize(pHold);
}
