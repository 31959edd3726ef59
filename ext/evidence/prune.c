/*
** prune.c: what removes evidence: a prune, the limit of screenshots, a clear, a
** DELETE; and the sweep of what approval has left.
**
** Each act first chooses its rows and then removes them, so that no statement reads
** an index that it changes. It writes one receipt.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define EV_LOG_ROWS 10000 /* that a log keeps */

/* A sweep removes at least one row, and ends after that many bytes or rows. */
#define EV_SWEEP_ROWS 100

static const char zReceiptSql[] =
    "INSERT INTO main.@_log(at, rule, rows, screenshots, bytes, oldest, newest,"
    " minute) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?1 / 60000)"
    " ON CONFLICT (rule, minute) DO UPDATE SET rows = rows + excluded.rows,"
    " screenshots = screenshots + excluded.screenshots,"
    " bytes = bytes + excluded.bytes, oldest = min(oldest, excluded.oldest),"
    " newest = max(newest, excluded.newest)";
static const char zReceiptCap[] =
    "DELETE FROM main.@_log WHERE id <= (SELECT max(id) FROM main.@_log) - ?1";

void bxEvNote(EvBuffer *p, const EvReceipt *pReceipt, BxErr *pErr) {
  assert(pReceipt->nRow >= 0 && pReceipt->nShot >= 0);
  assert(pReceipt->zRule != 0);
  if (pReceipt->nRow == 0 && pReceipt->nByte == 0) return;
  bxStmtExec(p->pOn, zReceiptSql, pErr, "itiiiii", bxNow(), pReceipt->zRule,
      pReceipt->nRow, pReceipt->nShot, pReceipt->nByte, pReceipt->iOldest,
      pReceipt->iNewest);
  bxStmtExec(p->pOn, zReceiptCap, pErr, "i", (i64)EV_LOG_ROWS);
}

static void addReceipt(
    EvReceipt *pOut, i64 iTime, i64 nRow, i64 nShot, i64 nByte) {
  int bFirst = pOut->nRow == 0 && pOut->nByte == 0;
  assert(nRow >= 0 && nRow <= 1 && nShot >= 0 && nShot <= 1);
  if (bFirst || iTime < pOut->iOldest) pOut->iOldest = iTime;
  if (bFirst || iTime > pOut->iNewest) pOut->iNewest = iTime;
  pOut->nRow += nRow;
  pOut->nShot += nShot;
  pOut->nByte += nByte;
}

static const char zNoShot[] =
    "UPDATE main.@_rows SET screenshot_bytes = 0 WHERE rid = ?1";
static const char zDropShot[] = "DELETE FROM main.@_shots WHERE rid = ?1";
static const char zDropAction[] =
    "DELETE FROM main.@_actions WHERE rid IN (?1, -?1)";
static const char zDropRow[] = "DELETE FROM main.@_rows WHERE rid = ?1";

void bxEvPrepareRemoval(EvBuffer *p, BxErr *pErr) {
  static const char *const azSql[] = {zReceiptSql, zReceiptCap, zNoShot,
      zDropShot, zDropAction, zDropRow, bxEvSaveSql};
  sqlite3_stmt *apStmt[7];
  bxStmtSet(p->pOn, azSql, 7, apStmt, pErr);
}

void bxEvMarkGone(EvBuffer *p, i64 iRow, i64 bWhole, BxErr *pErr) {
  assert(bWhole == 0 || bWhole == 1);
  bxStmtExec(p->pOn,
      "INSERT INTO main.@_gone(id, whole) SELECT id, ?2 FROM main.@_rows"
      " WHERE rid = ?1 ON CONFLICT (id) DO UPDATE"
      " SET whole = max(whole, excluded.whole)",
      pErr, "ii", iRow, bWhole);
}

/* Removes the screenshot of a row. bLater: a sweep will delete it. */
static void removeShot(EvBuffer *p, EvState *pState, EvRecord *pRow, int bLater,
    EvReceipt *pReceipt, BxErr *pErr) {
  assert(!pRow->iPinned || pErr->rc != SQLITE_OK);
  bxStmtExec(p->pOn, zNoShot, pErr, "i", pRow->iRow);
  if (pRow->ePlace == EV_OVERFLOW) {
    bxEvMarkGone(p, pRow->iRow, 0, pErr);
  } else if (!bLater) {
    bxStmtExec(p->pOn, zDropShot, pErr, "i", pRow->iRow);
  }
  addReceipt(pReceipt, pRow->iTime, 0, 1, pRow->nShot);
  bxEvCount(pState, pRow, -1);
  pRow->nShot = 0;
  bxEvCount(pState, pRow, 1);
}

void bxEvDropData(EvBuffer *p, i64 iRow, BxErr *pErr) {
  bxStmtExec(p->pOn, zDropAction, pErr, "i", iRow);
  bxStmtExec(p->pOn, zDropShot, pErr, "i", iRow);
}

static void removeRow(EvBuffer *p, EvState *pState, const EvRecord *pRow,
    EvReceipt *pReceipt, BxErr *pErr) {
  assert(!pRow->iPinned || pErr->rc != SQLITE_OK);
  if (pRow->ePlace == EV_OVERFLOW) {
    bxEvMarkGone(p, pRow->iRow, 1, pErr);
  } else {
    bxEvDropData(p, pRow->iRow, pErr);
  }
  bxStmtExec(p->pOn, zDropRow, pErr, "i", pRow->iRow);
  addReceipt(pReceipt, pRow->iTime, 1, pRow->nShot > 0,
      pRow->nAction + pRow->nShot + EV_ROW_BYTES);
  bxEvCount(pState, pRow, -1);
}

#define EV_CHOOSE "SELECT " EV_RECORD " FROM main.@_rows WHERE pinned = 0"
/* The order of a prune: by the confidence, which is -1 without that policy. */
static const char zSureShots[] =
    EV_CHOOSE " AND screenshot_bytes > 0 AND rid <> ?1"
              " ORDER BY confidence DESC, timestamp, rid LIMIT ?2";
static const char zOldShots[] = EV_CHOOSE
    " AND screenshot_bytes > 0 AND rid <> ?1 ORDER BY timestamp, rid LIMIT ?2";
static const char zOldRows[] =
    EV_CHOOSE " AND rid <> ?1 ORDER BY timestamp, rid LIMIT ?2";

/* Steps to a row, and adds it to the choice. NULL at the end, or on error. */
static const EvRecord *choose(EvChoice *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  EvRecord *pRow = bxStep(pStmt, pErr) ? bxArrayAdd(&p->aRow, &p->nRow,
                                             &p->nAlloc, sizeof(*pRow), pErr)
                                       : 0;
  if (pRow != 0) bxEvReadRecord(pStmt, 0, pRow);
  return pRow;
}

void bxEvChooseMemory(EvBuffer *p, const EvState *pState, i64 nGoal,
    EvChoice *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p->pOn,
      "SELECT " EV_RECORD " FROM main.@_rows"
      " WHERE place = 0 ORDER BY timestamp, rid",
      pErr);
  const EvRecord *pRow;
  i64 nMemory = pState->nMemory;
  assert(p->bTemp && pOut->nRow == 0);
  while (nMemory > nGoal && (pRow = choose(pOut, pStmt, pErr)) != 0) {
    nMemory -= pRow->nAction + pRow->nShot + EV_ROW_BYTES;
  }
  bxReset(pStmt, pErr);
}

/* Chooses at most nMost rows but iSpared, until they have rNeed bytes. bShot: of
** their screenshots. Returns what is still needed. */
static double chooseEvidence(EvBuffer *p, const char *zSql, i64 iSpared,
    i64 nMost, double rNeed, int bShot, EvChoice *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p->pOn, zSql, pErr);
  const EvRecord *pRow;
  assert(pOut->nRow == 0 && nMost > 0);
  bxBind(pStmt, pErr, "ii", iSpared, nMost);
  while (rNeed > 0 && (pRow = choose(pOut, pStmt, pErr)) != 0) {
    rNeed -= (double)(bShot ? pRow->nShot : pRow->nAction + EV_ROW_BYTES);
  }
  bxReset(pStmt, pErr);
  return rNeed;
}

#define EV_NO_LIMIT ((i64)1 << 60)

/* Removes what a choice has, and frees it: the screenshots (bShot), or the rows. */
static void dropChosen(EvBuffer *p, EvState *pState, EvChoice *pChosen,
    int bShot, int bLater, EvReceipt *pReceipt, BxErr *pErr) {
  i64 i;
  assert(pChosen->nRow >= 0 && (bShot || !bLater));
  for (i = 0; i < pChosen->nRow && pErr->rc == SQLITE_OK; i++) {
    if (bShot) {
      removeShot(p, pState, &pChosen->aRow[i], bLater, pReceipt, pErr);
    } else {
      removeRow(p, pState, &pChosen->aRow[i], pReceipt, pErr);
    }
  }
  sqlite3_free(pChosen->aRow);
}

double bxEvExcess(const EvState *pState, i64 nComing) {
  double rSize = (double)(pState->nBytes + nComing);
  assert(nComing >= 0);
  return rSize - (double)pState->nMax * (pState->rThreshold - 0.1);
}

void bxEvRemovePruned(EvBuffer *p, EvState *pState, const char *zRule,
    i64 nComing, i64 iSpared, BxErr *pErr) {
  EvReceipt receipt = {zRule, 0, 0, 0, 0, 0};
  EvChoice shots = {0, 0, 0}, chosen = {0, 0, 0};
  double rNeed = bxEvExcess(pState, nComing);
  i64 i;
  assert(iSpared >= 0);
  rNeed = chooseEvidence(
      p, zSureShots, iSpared, EV_NO_LIMIT, rNeed, 1, &shots, pErr);
  chooseEvidence(p, zOldRows, iSpared, EV_NO_LIMIT, rNeed, 0, &chosen, pErr);
  dropChosen(p, pState, &shots, 1, 0, &receipt, pErr);
  for (i = 0; i < chosen.nRow; i++) {
    chosen.aRow[i].nShot = 0; /* all screenshots were chosen before */
  }
  dropChosen(p, pState, &chosen, 0, 0, &receipt, pErr);
  pState->nRemoved += receipt.nRow;
  bxEvNote(p, &receipt, pErr);
}

void bxEvRemoveShots(EvBuffer *p, EvState *pState, const char *zRule, i64 nKeep,
    int bLater, BxErr *pErr) {
  EvReceipt receipt = {zRule, 0, 0, 0, 0, 0};
  EvChoice chosen = {0, 0, 0};
  i64 nMost = pState->nFree - nKeep;
  assert(nKeep >= 0);
  if (pErr->rc != SQLITE_OK || nMost <= 0) return;
  chooseEvidence(p, pState->bRated ? zOldShots : zSureShots, 0, nMost, 1e300, 1,
      &chosen, pErr);
  dropChosen(p, pState, &chosen, 1, bLater, &receipt, pErr);
  bxEvNote(p, &receipt, pErr);
}

void bxEvRemoveAll(EvBuffer *p, EvState *pState, BxErr *pErr) {
  EvReceipt receipt = {"clear", 0, 0, 0, 0, 0};
  EvChoice chosen = {0, 0, 0};
  chooseEvidence(p, zOldRows, 0, EV_NO_LIMIT, 1e300, 0, &chosen, pErr);
  dropChosen(p, pState, &chosen, 0, 0, &receipt, pErr);
  pState->nRemoved = 0;
  bxEvNote(p, &receipt, pErr);
}

void bxEvRemoveOne(
    EvBuffer *p, EvState *pState, const EvRecord *pRow, BxErr *pErr) {
  EvReceipt receipt = {"manual", 0, 0, 0, 0, 0};
  removeRow(p, pState, pRow, &receipt, pErr);
  bxEvNote(p, &receipt, pErr);
}

void bxEvRemoveShot(EvBuffer *p, EvState *pState, EvRecord *pRow, BxErr *pErr) {
  EvReceipt receipt = {"manual", 0, 0, 0, 0, 0};
  removeShot(p, pState, pRow, 0, &receipt, pErr);
  bxEvNote(p, &receipt, pErr);
}

/* The list of the buffers that have something to sweep, for other buffers. */
static void listSweep(EvBuffer *p, int bAdd, BxErr *pErr) {
  static const char zAdd[] = "INSERT INTO main.evidence__sweeps(buffer)"
                             " VALUES('@') ON CONFLICT DO NOTHING";
  static const char zEnd[] =
      "DELETE FROM main.evidence__sweeps WHERE buffer = '@'";
  assert(bAdd == 0 || bAdd == 1);
  if (!p->bTemp) bxStmtExec(p->pOn, bAdd ? zAdd : zEnd, pErr, "");
}

void bxEvSweep(EvBuffer *p, EvState *pState, i64 nPage, BxErr *pErr) {
  static const char zFree[] = "PRAGMA main.freelist_count";
  sqlite3_stmt *pStmt;
  i64 nBefore, nAfter, nRow = 0;
  assert(nPage > 0);
  if (pErr->rc != SQLITE_OK || pState->iStale == 0) return;
  nBefore = nAfter = bxQueryInt(p->pOn, zFree, pErr, "");
  while (pState->iStale > 0 && nRow < EV_SWEEP_ROWS &&
         nAfter - nBefore < nPage && pErr->rc == SQLITE_OK) {
    i64 iRow = 0, bText = 0, bShot = 0; /* of the next row */
    pStmt = bxStmt(p->pOn,
        "SELECT rid, pruned, screenshot_bytes FROM main.@_rows"
        " WHERE rid > ?1 AND rid <= ?2 ORDER BY rid LIMIT 1",
        pErr);
    bxBind(pStmt, pErr, "ii", pState->iSwept, pState->iStale);
    if (bxStep(pStmt, pErr)) {
      iRow = sqlite3_column_int64(pStmt, 0);
      bText = sqlite3_column_int64(pStmt, 1);
      bShot = sqlite3_column_int64(pStmt, 2) == 0;
    }
    bxReset(pStmt, pErr);
    if (bText) {
      bxStmtExec(
          p->pOn, "DELETE FROM main.@_actions WHERE rid = ?1", pErr, "i", iRow);
    }
    if (bShot) bxStmtExec(p->pOn, zDropShot, pErr, "i", iRow);
    pState->iSwept = iRow;
    if (iRow == 0) pState->iStale = 0;
    nAfter = bxQueryInt(p->pOn, zFree, pErr, "");
    if (nPage < EV_SWEEP_ALL) nRow++;
  }
  bxEvSaveState(p, pState, pErr);
  if (pState->iStale == 0) listSweep(p, 0, pErr);
  if (nAfter <= nBefore || pErr->rc != SQLITE_OK) return;
  /* The pages go back to the file system, if the file was made with auto_vacuum =
  ** INCREMENTAL. Each step of the statement returns one. */
  pStmt = bxStmt(p->pOn, "PRAGMA main.incremental_vacuum(1000000000)", pErr);
  while (nAfter-- > nBefore && bxStep(pStmt, pErr)) {
  }
  bxReset(pStmt, pErr);
}

void bxEvSweepLater(EvBuffer *p, EvState *pState, BxErr *pErr) {
  pState->iSwept = 0;
  pState->iStale = pState->iLast;
  listSweep(p, 1, pErr);
}

void bxEvSweepStep(EvBuffer *p, EvState *pState, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  EvBuffer *pOther;
  sqlite3_stmt *pStmt;
  char *zName = 0;
  if (pErr->rc != SQLITE_OK) return;
  if (pState->iStale > 0) {
    bxEvSweep(p, pState, EV_SWEEP_STEP, &err);
  } else if (!p->bTemp) { /* another buffer, which may get no more writes */
    pStmt = bxStmt(p->pOn, "SELECT buffer FROM main.evidence__sweeps", &err);
    if (bxStep(pStmt, &err)) zName = bxColumnCopy(pStmt, 0, &err);
    bxReset(pStmt, &err);
  }
  if (zName != 0) {
    pOther =
        (EvBuffer *)bxVtabIn(p->pOn->bx, EV_MODULE, p->pOn->zDb, zName, &err);
    if (pOther != 0) {
      EvState state;
      bxEvLoadState(pOther, &state, &err);
      if (state.iStale == 0) listSweep(pOther, 0, &err);
      bxEvSweep(pOther, &state, EV_SWEEP_STEP, &err);
      bxEvFreeState(&state);
    } else {
      bxStmtExec(p->pOn, "DELETE FROM main.evidence__sweeps WHERE buffer = ?1",
          &err, "t", zName);
    }
    sqlite3_free(zName);
  }
  bxErrBeside(p->pOn, pErr, &err);
}
