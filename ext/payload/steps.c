/*
** steps.c: the table of the steps of a ring, and what of it is kept in memory.
**
** The steps of an agent stay in memory as long as they are those of the table.
** While nothing but pushes of this connection has changed the file, they are.
** Else the newest row tells: every push changes its column chain.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* In the order of readStep() and writeNew(). */
#define STEP_COLUMNS                                                           \
  "tool, error, n, seq, timestamp, turn, start, call, arguments, result, "     \
  "masked, said, spent, made, cost, spent_before, "                            \
  "made_before, cost_before, head, head_hash, head_key, head_items, items, "   \
  "first, chain"
enum { COLUMN_TOOL, COLUMN_ERROR, COLUMN_N, N_COLUMN = 25 };

static void readStep(Track *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  i64 a[N_COLUMN] = {0};
  i64 n = sqlite3_column_int64(pStmt, COLUMN_N);
  Step *pStep = TRACK_STEP(p, n);
  const char *zTool = bxColumnText(pStmt, COLUMN_TOOL, pErr);
  int i;
  if (n < 1) return; /* no ring wrote this */
  for (i = 1; i < N_COLUMN; i++) a[i] = sqlite3_column_int64(pStmt, i);
  *pStep = (Step){.n = n,
      .iSeq = a[3],
      .iTime = a[4],
      .iTurn = (int)a[5],
      .iStart = (int)a[6],
      .hCall = a[7],
      .hArguments = a[8],
      .hResult = a[9],
      .hMasked = a[10],
      .hSaid = a[11],
      .nSpent = a[12],
      .nMade = (int)a[13],
      .nCost = a[14],
      .nSpentBefore = a[15],
      .nMadeBefore = (int)a[16],
      .nCostBefore = a[17],
      .iError = (int)a[COLUMN_ERROR]};
  sqlite3_snprintf(TOOL_BYTES, pStep->zTool, "%s", zTool != 0 ? zTool : "");
  if (n < p->nStep) return;
  p->nStep = n;
  p->iSeq = pStep->iSeq;
  p->head = (Head){.nByte = (int)a[18],
      .hash = a[19],
      .iKey = (int)a[20],
      .nItem = (int)a[21]};
  p->nItem = a[22];
  p->hFirst = a[23];
  p->hChain = a[24];
}

void bxTrackRead(Track *p, BxStmts *pRing, i64 iNo, BxErr *pErr) {
  static const char zSql[] = "SELECT " STEP_COLUMNS " FROM main.@_steps "
                             "WHERE id BETWEEN ?1 << 16 AND (?1 << 16) + 127";
  sqlite3_stmt *pStmt = bxStmt(pRing, zSql, pErr);
  int i;
  memset(p, 0, offsetof(Track, a));
  for (i = 0; i < TRACK_STEPS; i++) p->a[i].n = 0;
  bxBind(pStmt, pErr, "i", iNo);
  while (bxRow(pStmt, pErr)) readStep(p, pStmt, pErr);
  bxDone(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return;
  p->iNo = iNo;
  p->iLow = p->nStep;
  while (p->iLow > 1 && p->nStep - p->iLow < TRACK_STEPS - 1 &&
         TRACK_STEP(p, p->iLow - 1)->n == p->iLow - 1) {
    p->iLow--;
  }
}

/* The agent's steps, as the table has them. */
Track *bxTrackTake(Ring *p, const RingAgent *pAgent, BxErr *pErr) {
  static const char zChain[] =
      "SELECT chain FROM main.@_steps WHERE id = ?1 AND n = ?2";
  BxStmts *pRing = &p->base.stmts;
  Track **ppTrack = &p->pWatch->apTrack[pAgent->iNo % TRACKS_KEPT], *pTrack;
  if (*ppTrack == 0) *ppTrack = bxNew(sizeof(Track), pErr);
  pTrack = *ppTrack;
  if (pTrack == 0) return 0;
  if (pTrack->iNo == pAgent->iNo && pTrack->iSeq == pAgent->nGiven - 1 &&
      pTrack->nStep > 0 &&
      (p->bSame || bxAsk(pRing, zChain, pErr, "ii",
                       pAgent->iNo << 16 | (pTrack->nStep & (TRACK_STEPS - 1)),
                       pTrack->nStep) == pTrack->hChain)) {
    return pTrack;
  }
  bxTrackRead(pTrack, pRing, pAgent->iNo, pErr);
  return pTrack;
}

/* Binds numbers to the parameters from number iFrom on. 0 stays NULL. */
static void bindNumbers(
    sqlite3_stmt *pStmt, int iFrom, const i64 *a, int n, BxErr *pErr) {
  int i;
  for (i = 0; i < n && pErr->rc == SQLITE_OK; i++) {
    if (a[i] == 0) continue;
    bxFailDb(pErr, sqlite3_db_handle(pStmt),
        sqlite3_bind_int64(pStmt, iFrom + i, a[i]));
  }
}

static i64 rowId(const Track *p, const Step *pStep) {
  return p->iNo << 16 | (pStep->n & (TRACK_STEPS - 1));
}

/* Only the newest step has the state of its agent. */
static void writeNew(
    sqlite3_stmt *pStmt, const Track *p, const Step *pStep, BxErr *pErr) {
  const i64 aStep[] = {pStep->n, pStep->iSeq, pStep->iTime, pStep->iTurn,
      pStep->iStart, pStep->hCall, pStep->hArguments, pStep->hResult,
      pStep->hMasked, pStep->hSaid, pStep->nSpent, pStep->nMade, pStep->nCost,
      pStep->nSpentBefore, pStep->nMadeBefore, pStep->nCostBefore};
  const i64 aState[] = {p->head.nByte, p->head.hash, p->head.iKey,
      p->head.nItem, p->nItem, p->hFirst, p->hChain};
  bxBind(pStmt, pErr, "iti", rowId(p, pStep),
      pStep->zTool[0] != 0 ? pStep->zTool : 0, (i64)pStep->iError);
  bindNumbers(pStmt, 4, aStep, 16, pErr);
  if (pStep->n == p->nStep) bindNumbers(pStmt, 20, aState, 7, pErr);
  bxRun(pStmt, pErr);
}

static void writeOld(
    sqlite3_stmt *pStmt, const Track *p, const Step *pStep, BxErr *pErr) {
  bxBind(pStmt, pErr, "iiiiii", rowId(p, pStep), pStep->hCall, pStep->hResult,
      pStep->hMasked, (i64)pStep->iError, (i64)pStep->iStart);
  bxRun(pStmt, pErr);
}

void bxTrackWrite(Track *p, BxStmts *pRing, BxErr *pErr) {
  static const char zNew[] =
      "REPLACE INTO main.@_steps(id, " STEP_COLUMNS
      ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
      "?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)";
  static const char zOld[] =
      "UPDATE main.@_steps SET call = ?2, result = ?3, masked = ?4, "
      "error = ?5, start = ?6 WHERE id = ?1";
  static const char *const azSql[] = {zNew, zOld};
  sqlite3_stmt *apStmt[2];
  i64 n = p->iDirty > p->iLow ? p->iDirty : p->iLow;
  bxStmtSet(pRing, azSql, 2, apStmt, pErr);
  for (; n <= p->nStep && pErr->rc == SQLITE_OK; n++) {
    Step *pStep = TRACK_STEP(p, n);
    if (pStep->mDirty & STEP_NEW) {
      writeNew(apStmt[0], p, pStep, pErr);
    } else if (pStep->mDirty != 0) {
      writeOld(apStmt[1], p, pStep, pErr);
    }
    pStep->mDirty = 0;
  }
  if (pErr->rc != SQLITE_OK) p->iNo = 0;
}
