/*
** state.c: the row of rec_state of a buffer, with its settings and counters.
**
** An act reads it, counts what it changes, and writes it at its end. Nobody else
** can change it meanwhile: the act has the write lock.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define KNOWN_FORMAT 1
#define MAX_COUNT ((i64)1 << 60)

void bxEvExpectTables(EvBuffer *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_finalize(bxPrepare(p->pOn, "SELECT format FROM main.@_state", &err));
  if (err.rc == SQLITE_ERROR) {
    bxErrClear(&err);
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: table %s_state of buffer %s is missing; restore "
        "the file from a backup",
        p->pOn->zTable, p->pOn->zTable);
  }
  bxErrMove(pErr, &err);
}

/* A number of bytes or rows. An impossible number is damage, which
** blackbox_check() reports; here it must not overflow a sum. */
static i64 sizeColumn(sqlite3_stmt *pStmt, int iCol) {
  i64 n = sqlite3_column_int64(pStmt, iCol);
  if (n < 0) return 0;
  return n < MAX_COUNT ? n : MAX_COUNT;
}

#define COUNTERS                                                               \
  "last, removed, actions, bytes, screenshots, free_screenshots, "             \
  "pinned_bytes, memory_bytes, overflowed, swept, stale"

/* The counters, in the order of COUNTERS. */
#define EACH_COUNTER(X)                                                        \
  X(iLast)                                                                     \
  X(nRemoved)                                                                  \
  X(nAction)                                                                   \
  X(nBytes)                                                                    \
  X(nScreenshot) X(nFree) X(nPinned) X(nMemory) X(nOverflow) X(iSwept) X(iStale)

void bxEvLoadState(EvBuffer *p, EvState *pState, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p->pOn,
      "SELECT max_size_bytes, prune_threshold, nullif(overflow, ''), owner,"
      " claim, retention_policy = 'confidence-based', format, CASE"
      " retention_policy WHEN 'keep-last-n' THEN max_screenshots ELSE -1 END,"
      " " COUNTERS " FROM main.@_state",
      pErr);
  assert(p->pOn != 0);
  memset(pState, 0, sizeof(*pState));
  if (bxStep(pStmt, pErr)) {
    i64 iFormat = sqlite3_column_int64(pStmt, 6);
    int i = 8;
    pState->nMax = sizeColumn(pStmt, 0);
    pState->rThreshold = sqlite3_column_double(pStmt, 1);
    /* (A file whose state says otherwise is damaged.) */
    if (p->bTemp) pState->zOverflow = bxColumnCopy(pStmt, 2, pErr);
    if (pState->zOverflow != 0) {
      pState->zOwner = bxColumnCopy(pStmt, 3, pErr);
      pState->zClaim = bxColumnCopy(pStmt, 4, pErr);
    }
    pState->bRated = sqlite3_column_int(pStmt, 5);
    p->bKnown = iFormat >= 1 && iFormat <= KNOWN_FORMAT;
    if (!p->bKnown) {
      bxFail(pErr, SQLITE_ERROR,
          "VersionError: buffer %s has format %lld, but this module supports "
          "up to %d; load a newer blackbox",
          p->pOn->zTable, iFormat, KNOWN_FORMAT);
    }
    pState->nKeep = sqlite3_column_int64(pStmt, 7);
#define READ(counter) pState->counter = sizeColumn(pStmt, i++);
    EACH_COUNTER(READ)
#undef READ
    if (pState->zOverflow == 0) pState->nOverflow = 0;
  } else {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: table %s_state of buffer %s has no row; restore "
        "the file from a backup",
        p->pOn->zTable, p->pOn->zTable);
  }
  bxReset(pStmt, pErr);
}

const char bxEvSaveSql[] =
    "UPDATE main.@_state SET last = ?1, removed = ?2, actions = ?3, bytes = ?4,"
    " screenshots = ?5, free_screenshots = ?6, pinned_bytes = ?7,"
    " memory_bytes = ?8, overflowed = ?9, swept = ?10, stale = ?11";

void bxEvSaveState(EvBuffer *p, const EvState *pState, BxErr *pErr) {
#define GIVE(counter) , pState->counter
  bxStmtExec(p->pOn, bxEvSaveSql, pErr, "iiiiiiiiiii" EACH_COUNTER(GIVE));
#undef GIVE
}

void bxEvCountRows(EvBuffer *p, EvState *pState, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p->pOn,
      "SELECT count(*), coalesce(sum(size), 0),"
      " coalesce(sum(screenshot_bytes > 0), 0),"
      " coalesce(sum(screenshot_bytes > 0 AND pinned = 0), 0),"
      " coalesce(sum((pinned <> 0) * size), 0),"
      " coalesce(sum((place = 0) * size), 0), coalesce(sum(place = 1), 0),"
      " coalesce(max(rid), 0) FROM (SELECT *, action_bytes + screenshot_bytes"
      " + " EV_TEXT(EV_ROW_BYTES) " AS size FROM main.@_rows)",
      pErr);
  if (bxStep(pStmt, pErr)) {
    i64 *const aiCounter[] = {&pState->nAction, &pState->nBytes,
        &pState->nScreenshot, &pState->nFree, &pState->nPinned,
        &pState->nMemory, &pState->nOverflow};
    i64 iLast = sizeColumn(pStmt, 7);
    int i;
    for (i = 0; i < 7; i++) *aiCounter[i] = sizeColumn(pStmt, i);
    if (iLast > pState->iLast) pState->iLast = iLast;
    if (pState->zOverflow == 0) pState->nOverflow = 0;
  }
  bxReset(pStmt, pErr);
}

void bxEvMove(EvState *pState, EvRecord *pRow, int ePlace) {
  assert(pRow->ePlace != ePlace);
  assert(ePlace == EV_MEMORY || ePlace == EV_OVERFLOW);
  bxEvCount(pState, pRow, -1);
  pRow->ePlace = ePlace;
  bxEvCount(pState, pRow, 1);
}

void bxEvCount(EvState *pState, const EvRecord *pRow, int iSign) {
  i64 n = pRow->nAction + pRow->nShot + EV_ROW_BYTES;
  int bShot = pRow->nShot > 0;
  assert(iSign == 1 || iSign == -1);
  pState->nAction += iSign;
  pState->nBytes += iSign * n;
  if (bShot) pState->nScreenshot += iSign;
  if (bShot && !pRow->iPinned) pState->nFree += iSign;
  if (pRow->iPinned) pState->nPinned += iSign * n;
  if (pRow->ePlace == EV_MEMORY) pState->nMemory += iSign * n;
  if (pRow->ePlace == EV_OVERFLOW) pState->nOverflow += iSign;
}

void bxEvReadRecord(sqlite3_stmt *pStmt, int iCol, EvRecord *pOut) {
  assert(iCol + 7 <= sqlite3_column_count(pStmt));
  pOut->iRow = sqlite3_column_int64(pStmt, iCol);
  pOut->iTime = sqlite3_column_int64(pStmt, iCol + 1);
  pOut->nAction = sizeColumn(pStmt, iCol + 2);
  pOut->nShot = sizeColumn(pStmt, iCol + 3);
  pOut->iPruned = sqlite3_column_int64(pStmt, iCol + 4);
  pOut->iPinned = sqlite3_column_int64(pStmt, iCol + 5);
  pOut->ePlace = sqlite3_column_int(pStmt, iCol + 6);
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
