/*
** queue_limits.c: the settings that the queue needs at each call.
**
** They are read again when this connection may have changed one, and after
** LIMITS_MS, because another may have.
*/
#include "queue.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LIMITS_MS 500 /* a change by another connection is seen after this */

static void readLimits(BxStmts *pHome, Limits *pOut, BxErr *pErr) {
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"
  /* clang-format off */
  static const char zSql[] =
      "SELECT " SETTING("enabled") ", " SETTING("on_disabled") " = 'ignore', "
      SETTING("queue_mode") " = 'memory', " SETTING("retention_days") " * ("
      SETTING("history_until") " IS NOT NULL), "
      SETTING("flush_batch_size") ", " SETTING("flush_interval_ms") ", "
      SETTING("queue_max_bytes") ", " SETTING("max_bytes") ", "
      SETTING("pack");
  /* clang-format on */
  sqlite3_stmt *pStmt = bxStmt(pHome, zSql, pErr);
  if (bxRow(pStmt, pErr)) {
    pOut->bEnabled = sqlite3_column_int64(pStmt, 0);
    pOut->bIgnore = sqlite3_column_int64(pStmt, 1);
    pOut->bMemory = sqlite3_column_int64(pStmt, 2);
    pOut->nRetain = sqlite3_column_int64(pStmt, 3) * BX_MS_PER_DAY;
    pOut->nBatch = sqlite3_column_int64(pStmt, 4);
    pOut->nInterval = sqlite3_column_int64(pStmt, 5);
    pOut->nMaxByte = sqlite3_column_int64(pStmt, 6);
    pOut->nArchive = sqlite3_column_int64(pStmt, 7);
    pOut->bPack = sqlite3_column_int64(pStmt, 8);
  }
  /* If a setting is missing, nothing may expire. */
  if (pOut->nRetain < BX_MS_PER_DAY) pOut->nRetain = BX_MAX_TIME;
  bxDone(pStmt, pErr);
}

/* The hash of the name of a schema's file: another may have been attached under the
** name of the schema. */
static uint64_t hashFile(const BxStmts *pHome) {
  const char *z = sqlite3_db_filename(pHome->bx->db, pHome->zDb);
  return z != 0 ? bxHashOf(z, (i64)strlen(z)) : 0;
}

/* A change by this connection may have changed a setting. */
static int isKnown(const Limits *pLimits, const BxStmts *pHome, i64 iNow) {
  return pLimits->iRead != 0 && pLimits->pHome == pHome &&
         pLimits->uFile == hashFile(pHome) &&
         pLimits->nChanges == sqlite3_total_changes(pHome->bx->db) &&
         iNow >= pLimits->iRead && iNow - pLimits->iRead < LIMITS_MS;
}

/* Nothing can be written now, but perhaps nothing has to be. */
static int isRefused(int rc) {
  return (rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_READONLY;
}

/* The settings. They are read again if this connection has changed anything, or
** after some time, because reading takes a lock on the file. If a row will be
** written at once, the write lock is taken first, because SQLite refuses to
** wait for another writer after a read. */
const Limits *bxLimitsNow(Limits *pOut, BxStmts *pHome, i64 iNow, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bLock;
  if (isKnown(pOut, pHome, iNow)) return pOut;
  if (pOut->pHome != pHome || pOut->uFile != hashFile(pHome)) pOut->iRead = 0;
  bLock = pOut->iRead != 0 && pOut->bEnabled && !pOut->bMemory;
  if (bLock || pOut->iRead == 0) bxLock(pHome, &err);
  if (!bLock && isRefused(err.rc)) bxClear(&err);
  readLimits(pHome, pOut, &err);
  if (err.rc != SQLITE_OK &&
      (bLock || pOut->iRead == 0 || (err.rc & 0xff) != SQLITE_BUSY)) {
    *pErr = err;
    return pOut;
  }
  /* if the file is locked, the known settings still apply */
  pOut->iRead = iNow;
  pOut->pHome = pHome;
  pOut->uFile = hashFile(pHome);
  pOut->nChanges = sqlite3_total_changes(pHome->bx->db);
  bxClear(&err);
  return pOut;
}

void bxLimitsKept(Limits *p, const Bx *bx, int nOwn) {
  p->nChanges = sqlite3_total_changes(bx->db) + nOwn;
}

void bxLimitsDoubt(Limits *p) {
  p->nChanges = -1;
}
