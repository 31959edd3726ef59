/*
** steps.c: the table of the steps of a ring, and what of it is kept in memory.
**
** The steps of an agent stay in memory as long as they are those of the table.
** While nothing but pushes of this connection has changed the file, they are.
** Else the newest row tells: every push changes its column sum.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The numbers of a step, in the order in which the column step has them, with the
** name of the tool behind them: each a byte with the count of bytes that follow, the
** lowest first. Those of its agent, as they were after its exchange, are in the
** column head. */
enum {
  STEP_TURN,
  STEP_ERROR_1, /* and 1 more, and 4 more if it is old */
  STEP_ARGUMENTS,
  STEP_MADE,
  STEP_TIME,
  STEP_START,
  STEP_CALL,
  STEP_RESULT,
  STEP_LOOSE,
  STEP_SAID,
  STEP_TALK,
  STEP_SPENT,
  STEP_COST,
  STEP_SPENT_BEFORE,
  STEP_MADE_BEFORE,
  STEP_COST_BEFORE,
  N_STEP
};
enum {
  TRACK_HEAD,
  TRACK_HASH,
  TRACK_KEY,
  TRACK_READ,
  TRACK_ITEMS,
  TRACK_FIRST,
  N_HEAD
};

static unsigned char *packNumbers(unsigned char *z, const i64 *a, int n) {
  int i;
  for (i = 0; i < n; i++) {
    sqlite3_uint64 u = (sqlite3_uint64)a[i];
    unsigned char *zCount = z++;
    for (; u > 0; u >>= 8) *z++ = (unsigned char)u;
    *zCount = (unsigned char)(z - zCount - 1);
  }
  return z;
}

/* Returns where they end; NULL if these are none. */
static const unsigned char *unpackNumbers(
    sqlite3_stmt *pStmt, int iColumn, i64 *a, int n) {
  const unsigned char *z = sqlite3_column_blob(pStmt, iColumn);
  const unsigned char *zEnd =
      z != 0 ? z + sqlite3_column_bytes(pStmt, iColumn) : 0;
  int i, k;
  for (i = 0; i < n; i++) {
    sqlite3_uint64 u = 0;
    int nByte = z < zEnd ? *z++ : 9;
    if (nByte > 8 || nByte > zEnd - z) return 0;
    for (k = nByte - 1; k >= 0; k--) u = u << 8 | z[k];
    z += nByte;
    a[i] = (i64)u;
  }
  return z;
}

static void readStep(Track *p, sqlite3_stmt *pStmt) {
  i64 a[N_STEP] = {0}, aHead[N_HEAD] = {0}, n = sqlite3_column_int64(pStmt, 0);
  const unsigned char *zTool = unpackNumbers(pStmt, 4, a, N_STEP);
  Step *pStep;
  if (zTool == 0 || n < 1) return; /* no ring wrote it */
  pStep = TRACK_STEP(p, n);
  *pStep = (Step){.n = n,
      .iSeq = sqlite3_column_int64(pStmt, 1),
      .iTurn = (int)a[STEP_TURN],
      .iError = (int)(a[STEP_ERROR_1] & 3) - 1,
      .bOld = a[STEP_ERROR_1] > 3,
      .hArguments = a[STEP_ARGUMENTS],
      .nMade = (int)a[STEP_MADE],
      .iTime = a[STEP_TIME],
      .iStart = (int)a[STEP_START],
      .hCall = a[STEP_CALL],
      .hResult = a[STEP_RESULT],
      .hLoose = a[STEP_LOOSE],
      .hSaid = a[STEP_SAID],
      .iTalk = (int)a[STEP_TALK],
      .nSpent = a[STEP_SPENT],
      .nCost = a[STEP_COST],
      .nSpentBefore = a[STEP_SPENT_BEFORE],
      .nMadeBefore = (int)a[STEP_MADE_BEFORE],
      .nCostBefore = a[STEP_COST_BEFORE]};
  sqlite3_snprintf(TOOL_BYTES, pStep->zTool, "%.*s",
      sqlite3_column_bytes(pStmt, 4) -
          (int)(zTool - (const unsigned char *)sqlite3_column_blob(pStmt, 4)),
      (const char *)zTool);
  if (n < p->nStep) return;
  unpackNumbers(pStmt, 3, aHead, N_HEAD);
  p->nStep = n;
  p->iSeq = pStep->iSeq;
  p->head = (Head){.nByte = (int)aHead[TRACK_HEAD],
      .hash = aHead[TRACK_HASH],
      .iKey = (int)aHead[TRACK_KEY],
      .nItem = (int)aHead[TRACK_READ]};
  p->nItem = aHead[TRACK_ITEMS];
  p->hFirst = aHead[TRACK_FIRST];
  p->hChain = sqlite3_column_int64(pStmt, 2);
}

void bxTrackRead(Track *p, BxStmts *pRing, i64 iNo, BxErr *pErr) {
  static const char zSql[] =
      "SELECT n, seq, sum, head, step FROM main.@_steps "
      "WHERE id BETWEEN ?1 << 16 AND (?1 << 16) + 127";
  sqlite3_stmt *pStmt = bxStmt(pRing, zSql, pErr);
  int i;
  memset(p, 0, offsetof(Track, a));
  for (i = 0; i < TRACK_STEPS; i++) p->a[i].n = 0;
  bxBind(pStmt, pErr, "i", iNo);
  while (bxRow(pStmt, pErr)) readStep(p, pStmt);
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
      "SELECT sum FROM main.@_steps WHERE id = ?1 AND n = ?2";
  BxStmts *pRing = &p->base.stmts;
  Track **ppTrack = &p->pWatch->apTrack[pAgent->iNo % TRACKS_KEPT], *pTrack;
  if (*ppTrack == 0) *ppTrack = bxNew(sizeof(Track), pErr);
  pTrack = *ppTrack;
  if (pTrack == 0) return 0;
  if (pTrack->iNo == pAgent->iNo && pTrack->nStep > 0 &&
      pTrack->iSeq >= pAgent->nGiven - 1 && pTrack->iSeq <= pAgent->nGiven &&
      (p->bSame || bxAsk(pRing, zChain, pErr, "ii",
                       pAgent->iNo << 16 | (pTrack->nStep & (TRACK_STEPS - 1)),
                       pTrack->nStep) == pTrack->hChain)) {
    return pTrack;
  }
  bxTrackRead(pTrack, pRing, pAgent->iNo, pErr);
  return pTrack;
}

static void writeStep(
    sqlite3_stmt *pStmt, const Track *p, const Step *pStep, BxErr *pErr) {
  const i64 a[] = {pStep->iTurn, pStep->iError + 1 + 4 * pStep->bOld,
      pStep->hArguments, pStep->nMade, pStep->iTime, pStep->iStart,
      pStep->hCall, pStep->hResult, pStep->hLoose, pStep->hSaid, pStep->iTalk,
      pStep->nSpent, pStep->nCost, pStep->nSpentBefore, pStep->nMadeBefore,
      pStep->nCostBefore};
  const i64 aHead[] = {p->head.nByte, p->head.hash, p->head.iKey, p->head.nItem,
      p->nItem, p->hFirst};
  unsigned char zHead[9 * N_HEAD], zBlob[9 * N_STEP + TOOL_BYTES];
  unsigned char *zHeadEnd = packNumbers(zHead, aHead, N_HEAD);
  unsigned char *z = packNumbers(zBlob, a, N_STEP);
  size_t nTool = strlen(pStep->zTool);
  memcpy(z, pStep->zTool, nTool);
  z += nTool;
  bxBind(pStmt, pErr, "iiiixx", p->iNo << 16 | (pStep->n & (TRACK_STEPS - 1)),
      pStep->n, pStep->iSeq, p->hChain, zHead, (i64)(zHeadEnd - zHead), zBlob,
      (i64)(z - zBlob));
  bxRun(pStmt, pErr);
}

void bxTrackWrite(Track *p, BxStmts *pRing, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.@_steps(id, n, seq, sum, head, step) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(id) DO UPDATE SET "
      "head = iif(n = ?2, head, ?5), n = ?2, seq = ?3, sum = ?4, step = ?6";
  sqlite3_stmt *pStmt = bxStmt(pRing, zSql, pErr);
  i64 n = p->iDirty > p->iLow ? p->iDirty : p->iLow;
  for (; n <= p->nStep && pErr->rc == SQLITE_OK; n++) {
    Step *pStep = TRACK_STEP(p, n);
    if (pStep->bDirty) writeStep(pStmt, p, pStep, pErr);
    pStep->bDirty = 0;
  }
  if (pErr->rc != SQLITE_OK) p->iNo = 0;
}
