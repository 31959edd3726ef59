/*
** flush.c: rollout_flush() and rollout_shutdown(). When they return, everything
** that was committed is on disk and survives a power failure.
**
** In WAL mode with synchronous=NORMAL a commit is only written to the log, not
** synced. A checkpoint is not a solution: it syncs nothing if a reader prevents
** it from moving a page. So the log and the database file are synced directly,
** through the file handles that SQLite has open. This takes no lock and does
** not wait. With a rollback journal the last step of a commit is the deletion
** of the journal, which only synchronous=EXTRA makes durable. There an empty
** commit (a row is written unchanged) runs at that level.
**
** Inside a transaction the call is refused, as nothing of the transaction is
** committed yet.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Syncs one of the two files of a schema, if it is open. */
static void syncFile(BxStmts *p, int eFile, BxErr *pErr) {
  sqlite3_file *pFile = 0;
  int rc;
  if (pErr->rc != SQLITE_OK) return;
  rc = sqlite3_file_control(p->bx->db, p->zDb, eFile, &pFile);
  if (rc != SQLITE_OK || pFile == 0 || pFile->pMethods == 0) return;
  rc = pFile->pMethods->xSync(pFile, SQLITE_SYNC_FULL);
  if (rc != SQLITE_OK) bxFail(pErr, rc, "%s", sqlite3_errstr(rc));
}

static void setSynchronous(BxStmts *p, i64 iLevel, BxErr *pErr) {
  bxExecMade(p, bxPrintf(pErr, "PRAGMA main.synchronous = %lld", iLevel), pErr);
}

/* Returns 1 if all commits are on disk, 0 if there is no file. */
static int syncHome(BxStmts *p, BxErr *pErr) {
  sqlite3 *db = p->bx->db;
  const char *zFile;
  assert(p->zTable == 0);
  if (pErr->rc != SQLITE_OK) return 0;
  if (!sqlite3_get_autocommit(db)) {
    bxFail(pErr, SQLITE_MISUSE,
        "a transaction is open, and its changes are not committed; call this "
        "function after COMMIT");
    return 0;
  }
  zFile = sqlite3_db_filename(db, p->zDb);
  if (zFile == 0 || *zFile == 0) return 0;
  if (sqlite3_db_readonly(db, p->zDb)) return 1; /* nothing to sync */
  /* opens the file */
  bxQueryNumber(p, "SELECT count(*) FROM main.rollout__act", pErr);
  if (bxIsWal(p, pErr)) {
    syncFile(p, SQLITE_FCNTL_JOURNAL_POINTER, pErr);
    syncFile(p, SQLITE_FCNTL_FILE_POINTER, pErr);
  } else if (sqlite3_txn_state(db, 0) == SQLITE_TXN_WRITE) {
    bxFail(pErr, SQLITE_MISUSE,
        "the statement that calls it is a transaction itself; use WAL mode, or "
        "call it as SELECT rollout_flush()");
  } else {
    /* a commit that is durable, and with it all earlier commits */
    BxErr err = {SQLITE_OK, 0};
    i64 iLevel = bxQueryNumber(p, "PRAGMA main.synchronous", pErr);
    if (pErr->rc != SQLITE_OK) return 0; /* the previous level is unknown */
    setSynchronous(p, 3, pErr);
    bxExec(p, "UPDATE main.rollout__act SET id = id", pErr);
    setSynchronous(p, iLevel, &err);
    bxErrClear(&err);
  }
  return 1;
}

void bxRolloutFlush(BxCall *p) {
  char zId[37];
  RolloutHead head;
  BxStmts *pHome = bxArg(p, 0) ? bxRolloutNamed(p, zId, &head)
                               : bxRolloutSchema(p->bx, &p->err);
  int bDone;
  if (pHome == 0) return;
  bDone = syncHome(pHome, &p->err);
  bxErrPrefix(&p->err, "FlushError: Flush failed: ");
  bxReturnInt(p, bDone);
}

void bxRolloutShutdown(BxCall *p) {
  char zId[37];
  RolloutHead head;
  BxStmts *pHome = bxRolloutNamed(p, zId, &head);
  if (pHome == 0) return;
  if (bxRolloutIsClosed(pHome, zId)) {
    bxReturnInt(p, 0);
    return;
  }
  syncHome(pHome, &p->err);
  bxRolloutSetClosed(pHome, zId, 1, &p->err);
  bxErrPrefix(&p->err, "ShutdownError: Shutdown failed: ");
  bxReturnInt(p, 1);
}
