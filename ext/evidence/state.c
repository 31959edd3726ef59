/*
** state.c: reads the row of rec_state of a buffer, and checks that the module
** knows the format of its tables.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define KNOWN_FORMAT 1
#define MAX_COUNT ((i64)1 << 60)

void bxEvExpectTables(EvBuffer *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_finalize(
      bxPrepare(&p->base.stmts, "SELECT format FROM main.@_state", &err));
  if (err.rc == SQLITE_ERROR) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: table %s_state of buffer %s is missing; restore "
        "the file from a backup",
        p->base.stmts.zTable, p->base.stmts.zTable);
  } else if (err.rc != SQLITE_OK) {
    bxPass(pErr, &err);
  }
  bxClear(&err);
}

/* Fails if their format is newer than this module. */
static void expectFormat(EvBuffer *p, i64 iFormat, BxErr *pErr) {
  p->bKnown = iFormat >= 1 && iFormat <= KNOWN_FORMAT;
  if (p->bKnown) return;
  bxFail(pErr, SQLITE_ERROR,
      "VersionError: buffer %s has format %lld, but this module supports up "
      "to %d; load a newer blackbox",
      p->base.stmts.zTable, iFormat, KNOWN_FORMAT);
}

i64 bxEvSizeColumn(sqlite3_stmt *pStmt, int iCol) {
  i64 n = sqlite3_column_int64(pStmt, iCol);
  if (n < 0) return 0;
  return n < MAX_COUNT ? n : MAX_COUNT;
}

void bxEvLoadState(EvBuffer *p, EvState *pState, BxErr *pErr) {
  static const char zSql[] =
      "SELECT max_size_bytes, prune_threshold, bytes, pinned_bytes,"
      " memory_bytes, actions, screenshots, overflowed, last,"
      " nullif(overflow, ''), owner, claim,"
      " retention_policy = 'confidence-based', format, free_screenshots,"
      " CASE retention_policy WHEN 'keep-last-n' THEN max_screenshots ELSE -1"
      " END FROM main.@_state";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pState, 0, sizeof(*pState));
  if (bxRow(pStmt, pErr)) {
    pState->nMax = bxEvSizeColumn(pStmt, 0);
    pState->rThreshold = sqlite3_column_double(pStmt, 1);
    pState->nBytes = bxEvSizeColumn(pStmt, 2);
    pState->nPinned = bxEvSizeColumn(pStmt, 3);
    pState->nMemory = bxEvSizeColumn(pStmt, 4);
    pState->nAction = bxEvSizeColumn(pStmt, 5);
    pState->nScreenshot = bxEvSizeColumn(pStmt, 6);
    pState->nOverflow = bxEvSizeColumn(pStmt, 7);
    pState->iLast = bxEvSizeColumn(pStmt, 8);
    pState->bRated = sqlite3_column_int(pStmt, 12);
    expectFormat(p, sqlite3_column_int64(pStmt, 13), pErr);
    pState->nFree = bxEvSizeColumn(pStmt, 14);
    pState->nKeep = sqlite3_column_int64(pStmt, 15);
    pState->zOverflow = bxColumnCopy(pStmt, 9, pErr);
    if (pState->zOverflow != 0) {
      pState->zOwner = bxColumnCopy(pStmt, 10, pErr);
      pState->zClaim = bxColumnCopy(pStmt, 11, pErr);
    }
  } else {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: table %s_state of buffer %s has no row; restore "
        "the file from a backup",
        p->base.stmts.zTable, p->base.stmts.zTable);
  }
  bxDone(pStmt, pErr);
}

void bxEvExpectKnown(EvBuffer *p, BxErr *pErr) {
  EvState state;
  if (p->bKnown || pErr->rc != SQLITE_OK) return;
  bxEvLoadState(p, &state, pErr);
  bxEvFreeState(&state);
}

void bxEvFreeState(EvState *pState) {
  sqlite3_free(pState->zOverflow);
  sqlite3_free(pState->zOwner);
  sqlite3_free(pState->zClaim);
  pState->zOverflow = pState->zOwner = pState->zClaim = 0;
}
