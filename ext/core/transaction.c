/*
** transaction.c: a call, or a statement on a virtual table, changes everything that it
** should, or nothing.
**
** A function that changes data runs in a savepoint. SQLite refuses a savepoint
** while another statement writes, so such a function must be called at the top
** level of a statement of its own.
**
** A call that is stopped must still undo its changes. Two things make that
** difficult:
**   - After sqlite3_interrupt(), or when memory has run out, SQLite neither
**     runs nor prepares any statement until the calling statement ends.
**   - A progress handler can stop any statement, even after its last step, when
**     its work is done.
** For the first: when a statement that would write is stopped, SQLite rolls the
** transaction back, as it does for an interrupted INSERT. Such a statement is
** kept ready, and only has to begin. It must already be prepared, and many
** statements (ATTACH, CREATE INDEX) expire it, so it is checked at each call.
** While the function itself runs such a statement, another one is kept running:
** see bxGuardBegin(). For the second: a statement that was stopped is repeated, and
** the number of its steps shows whether it was complete.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* How often a statement that a progress handler stops is started again. */
#define TRIES 100

#define NAME "\"a call of blackbox\""
static const char zSavepointBegin[] = "SAVEPOINT " NAME;
static const char zRelease[] = "RELEASE " NAME;
static const char zRollbackTo[] = "ROLLBACK TO " NAME;
static const char zRollback[] = "ROLLBACK";
/* Would write, and is run only if it is stopped before its first step. */
static const char zAbort[] = "BEGIN IMMEDIATE";
static const char zProbe[] = "SELECT 1";
/* To SQLite it is a statement that writes, and it continues after its row. */
static const char zHold[] = "PRAGMA main.journal_mode";

/* Runs a kept statement. Returns its code. */
static int runKept(BxStmts *p, const char *zSql) {
  BxErr err = {SQLITE_OK, 0};
  int rc;
  bxStmtRun(bxStmt(p, zSql, &err), &err);
  rc = err.rc;
  bxErrClear(&err);
  return rc;
}

/* The same, repeated while it is stopped. */
static int insist(BxStmts *p, const char *zSql) {
  int i, rc = SQLITE_INTERRUPT;
  assert(p->zTable == 0);
  for (i = 0; i < TRIES && rc == SQLITE_INTERRUPT; i++) rc = runKept(p, zSql);
  return rc;
}

/* Ends the transaction with ROLLBACK or, if that is stopped, with the statement
** that is then stopped too. */
static void rollBack(BxStmts *p) {
  sqlite3 *db = p->bx->db;
  int i;
  assert(p->zTable == 0); /* those of a virtual table would go with it */
  for (i = 0; i < TRIES && !sqlite3_get_autocommit(db); i++) {
    runKept(p, zRollback);
    if (!sqlite3_get_autocommit(db)) runKept(p, zAbort);
  }
}

/* Undoes everything since the savepoint, if there is one. If that is not
** possible, it also rolls back the transaction around it. */
static void undo(BxStmts *p) {
  int rc;
  assert(p->bx->bAlone == 0 || p->bx->bAlone == 1);
  if (sqlite3_get_autocommit(p->bx->db)) return;
  if (p->bx->bAlone) {
    rollBack(p);
    return;
  }
  rc = insist(p, zRollbackTo);
  if (rc == SQLITE_OK) {
    insist(p, zRelease);
  } else if (rc != SQLITE_ERROR) { /* which means: no such savepoint */
    rollBack(p);
  }
}

/* Prepares everything that may be needed, because an undo may not be able to.
** Returns SAVEPOINT. A probe is run to learn whether SQLite had to prepare it
** again; in that case the statement that rolls back is prepared again, too. */
static sqlite3_stmt *prepareAll(BxStmts *p, BxErr *pErr) {
  static const char *const az[] = {
      zSavepointBegin, zProbe, zRelease, zRollbackTo, zRollback, zAbort};
  enum { BEGIN, PROBE, ALL = sizeof(az) / sizeof(az[0]) };
  sqlite3_stmt *ap[ALL];
  bxStmtSet(p, az, ALL, ap, pErr);
  bxStmtRun(ap[PROBE], pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (sqlite3_stmt_status(ap[PROBE], SQLITE_STMTSTATUS_REPREPARE, 1) > 0) {
    bxStmtForget(p, zAbort);
    bxStmt(p, zAbort, pErr);
  }
  return pErr->rc == SQLITE_OK ? ap[BEGIN] : 0;
}

/* Steps a kept statement to its end. *pnStep: the number of VM steps. */
static int stepWhole(sqlite3_stmt *pStmt, int *pnStep) {
  int rc;
  sqlite3_stmt_status(pStmt, SQLITE_STMTSTATUS_VM_STEP, 1);
  assert(!sqlite3_stmt_busy(pStmt));
  rc = sqlite3_step(pStmt);
  *pnStep = sqlite3_stmt_status(pStmt, SQLITE_STMTSTATUS_VM_STEP, 1);
  return rc;
}

/* The SQL of a statement that is running and writes. */
static const char *openWriter(sqlite3 *db) {
  sqlite3_stmt *p = sqlite3_next_stmt(db, 0);
  while (p != 0 && (!sqlite3_stmt_busy(p) || sqlite3_stmt_readonly(p))) {
    p = sqlite3_next_stmt(db, p);
  }
  return p != 0 ? sqlite3_sql(p) : "";
}

int bxIsWriting(Bx *bx) {
  return openWriter(bx->db)[0] != 0;
}

/* A node of dqlite runs a SELECT on a snapshot: what it writes is lost, and the
** next write stops the node. The name of its VFS tells that it is one. */
int bxIsReplayedRead(Bx *bx) {
  sqlite3_vfs *pVfs = 0;
  sqlite3_file_control(bx->db, "main", SQLITE_FCNTL_VFS_POINTER, &pVfs);
  if (pVfs == 0 || strncmp(pVfs->zName, "dqlite", 6) != 0) return 0;
  return !bxIsWriting(bx);
}

void bxRefuseRead(Bx *bx, const char *zWho, BxErr *pErr) {
  if (!bxIsReplayedRead(bx)) return;
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: %s() changes data, and dqlite runs a SELECT as a read, "
      "which would lose the change; INSERT INTO blackbox_call(command, "
      "arguments) instead",
      zWho);
}

void bxSavepoint(Bx *bx, const char *zWho, BxErr *pErr) {
  BxStmts *p = bxSchema(bx, "main", pErr);
  sqlite3_stmt *pStmt;
  int rc;
  bxRefuseRead(bx, zWho, pErr);
  pStmt = p && pErr->rc == SQLITE_OK ? prepareAll(p, pErr) : 0;
  if (pStmt == 0) return;
  assert(bx->iCall > 0); /* kept statements stay until it ends */
  bx->bAlone = sqlite3_get_autocommit(bx->db);
  rc = stepWhole(pStmt, &bx->nWhole);
  if (rc == SQLITE_BUSY) {
    bxFail(pErr, rc,
        "MisuseError: %s() changes data and cannot run inside a statement that "
        "writes, nor while one is open: %.200s; step that statement to its "
        "end, or reset it; if it is the statement that calls %s(), SELECT the "
        "function alone, or INSERT INTO blackbox_call(command, arguments) "
        "instead",
        zWho, openWriter(bx->db), zWho);
  } else if (rc != SQLITE_DONE) {
    bxFailDb(pErr, bx->db, rc);
    sqlite3_reset(pStmt);
    undo(p); /* it may have come after the last step */
  }
  sqlite3_reset(pStmt);
}

/* A stop after the last step is too late: all changes stay, and the call has
** succeeded. SAVEPOINT and RELEASE take the same number of steps. */
void bxRelease(Bx *bx, BxErr *pErr) {
  BxErr none = {SQLITE_OK, 0};
  BxStmts *p = bxSchema(bx, "main", &none); /* prepared in bxSavepoint() */
  sqlite3_stmt *pStmt = bxStmt(p, zRelease, pErr);
  int rc, nStep;
  assert(bx->nWhole > 0);
  if (pStmt != 0) {
    rc = stepWhole(pStmt, &nStep);
    if (rc != SQLITE_INTERRUPT || nStep < bx->nWhole) {
      bxFailDb(pErr, bx->db, rc);
    }
    sqlite3_reset(pStmt);
  }
  if (pErr->rc != SQLITE_OK) undo(p);
  bx->nCommit += bx->bAlone;
  bx->bAlone = 0;
}

sqlite3_stmt *bxGuardBegin(Bx *bx, BxErr *pErr) {
  sqlite3_stmt *pHold = bxPrepareSql(bx->db, zHold, pErr);
  bxStep(pHold, pErr);
  if (pErr->rc == SQLITE_OK) return pHold;
  sqlite3_finalize(pHold);
  return 0;
}

/* After an error the hold continues, and so rolls back if nothing else can run.
** Without an error it stays until the other statement is prepared again. */
void bxGuardEnd(Bx *bx, sqlite3_stmt *pHold, BxErr *pErr) {
  BxStmts *p = bxSchema(bx, "main", pErr);
  if (pHold == 0) return;
  if (p != 0) {
    bxStmtForget(p, zAbort);
    bxStmt(p, zAbort, pErr);
  }
  if (pErr->rc != SQLITE_OK) sqlite3_step(pHold);
  sqlite3_finalize(pHold);
}

void bxLock(BxStmts *p, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.blackbox_domains SET format = format WHERE 0";
  bxStmtRun(bxStmt(p, zSql, pErr), pErr);
}

int bxIsWal(BxStmts *p, BxErr *pErr) {
  static const char zMode[] = "PRAGMA main.journal_mode";
  sqlite3_stmt *pStmt = bxStmt(p, zMode, pErr);
  int bWal = bxStep(pStmt, pErr) &&
             sqlite3_stricmp(bxColumnText(pStmt, 0, pErr), "wal") == 0;
  bxReset(pStmt, pErr);
  return bWal;
}

/*-------------------------------------------------------------- xUpdate ----*/

/*
** SQLite makes no savepoint around xUpdate of an INSERT of one row. Inside BEGIN,
** what xUpdate has written before it fails would stay. So the code of the error
** decides:
**
**   NOMEM, FULL, IOERR, INTERRUPT   SQLite undoes the statement or, if it cannot,
**                                   rolls back the whole transaction
**   any other                       SQLite undoes the statement if it has made a
**                                   savepoint for it, and otherwise nothing
**
** Three rules make every xUpdate atomic, with as many inner statements as it needs:
**
**   1. It checks everything that can be refused, and prepares every statement,
**      before its first write. So an error of the first kind is the only one to
**      expect after that.
**   2. An error of the second kind may come all the same: from a trigger, an index
**      or a foreign key of the user, an authorizer, a limit, a lock, a statement
**      that has to be prepared again. After the first write it leaves xUpdate as
**      SQLITE_FULL, with its own message.
**   3. What fails beside the record may be passed over only if the record is still
**      there. After an error of the first kind, or RAISE(ROLLBACK), it is not.
**
** A first write that fails is undone by SQLite. So an error of it keeps its code, and
** the host its transaction.
**
** What has been written is seen from the count of rows that the connection has
** changed: when bxStmtExec() has run a statement, or another one is given out.
** SQLite does not count what a trigger did before RAISE(FAIL), which keeps it.
**
** With journal_mode=OFF, SQLite rolls nothing back, and nothing is promised.
*/

/* Whether SQLite itself undoes what a statement with this error has done. */
static int isUndone(int rc) {
  switch (rc & 0xff) {
    case SQLITE_NOMEM:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_INTERRUPT: return 1;
    default: return 0;
  }
}

void bxWriteBegin(BxWrite *p, Bx *bx) {
  p->bx = bx;
  p->iOuter = bxCallBegin(bx);
  assert(bx->iCall > p->iOuter);
  p->iWrite = bx->iWrite;
  p->nChange = bx->nChange;
  p->bWritten = bx->bWritten;
  bx->iWrite = bx->iCall;
  bx->nChange = sqlite3_total_changes(bx->db);
  bx->bWritten = 0;
}

/* (If the transaction is not there any more in which the statement of the host has begun
** to write, there was a RAISE(ROLLBACK): its code is that of RAISE(ABORT), with which
** INSERT OR IGNORE would succeed.) */
int bxWriteEnd(BxWrite *p, BxErr *pErr, sqlite3_vtab *pVtab) {
  assert(p->bx->iWrite == p->bx->iCall);
  if (pErr->rc != SQLITE_OK && !isUndone(pErr->rc) &&
      (p->bx->bWritten ||
          sqlite3_txn_state(p->bx->db, 0) != SQLITE_TXN_WRITE)) {
    pErr->rc = SQLITE_FULL;
  }
  p->bx->iWrite = p->iWrite;
  p->bx->nChange = p->nChange;
  p->bx->bWritten = p->bWritten;
  bxCallEnd(p->bx, p->iOuter);
  if (p->iOuter == 0) {
    if (pErr->rc == SQLITE_OK) p->bx->nOwed++;
    if (pErr->rc != SQLITE_OK) p->bx->nForeign++;
  }
  return bxErrVtab(pErr, pVtab);
}

/* After a plain SQLITE_CORRUPT inside BEGIN, SQLite refuses to commit. */
int bxErrMayIgnore(const BxStmts *p, const BxErr *pErr) {
  sqlite3 *db = p->bx->db;
  assert(p != 0 && p->zDb != 0);
  if (pErr->zMsg == 0 || isUndone(pErr->rc)) return 0;
  if (pErr->rc == SQLITE_CORRUPT && !sqlite3_get_autocommit(db)) return 0;
  return sqlite3_txn_state(db, p->zDb) == SQLITE_TXN_WRITE;
}

void bxErrBeside(const BxStmts *p, BxErr *pErr, BxErr *pBeside) {
  if (bxErrMayIgnore(p, pBeside)) bxErrClear(pBeside);
  bxErrMove(pErr, pBeside);
}
