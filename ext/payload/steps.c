/*
** steps.c: the steps of an agent, as its exchanges keep them, and what of them is
** in memory.
**
** An exchange has in column steps of its slot what came with it: the steps that began,
** and the older ones whose result has come. So steps cost no row of their own, and
** go with their exchange.
**
**   steps: chain (8 bytes), head, { step }
**
** head and step are the numbers below, each a byte with the count of bytes that follow,
** the lowest first. A step ends with the name of its tool, after its length. A chain
** depends on all that was written before. So the chain of the newest exchange tells
** whether the steps in memory are those of the table. While nothing but pushes of this
** connection has changed the file, they are.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

enum {
  STEP_N,
  STEP_ERROR_1, /* and 1 more */
  STEP_TURN,
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
  STEP_SEQ,
  STEP_BEFORE,
  N_STEP
};
enum {
  HEAD_AT,
  HEAD_BYTES,
  HEAD_KEY,
  HEAD_READ,
  HEAD_ITEMS,
  HEAD_FIRST,
  N_HEAD
};
#define STEP_MOST ((i64)1 << 60)

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
    const unsigned char *z, const unsigned char *zEnd, i64 *a, int n) {
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

/* A step. Returns where it ends; NULL if no ring wrote it. */
static const unsigned char *readStep(
    Track *p, i64 iPut, const unsigned char *z, const unsigned char *zEnd) {
  i64 a[N_STEP];
  Step *pStep;
  int nTool;
  assert(z <= zEnd);
  z = unpackNumbers(z, zEnd, a, N_STEP);
  nTool = z != 0 && z < zEnd ? *z++ : TOOL_BYTES;
  if (nTool >= TOOL_BYTES || nTool > zEnd - z || a[STEP_N] < 1 ||
      a[STEP_N] > STEP_MOST) {
    return 0;
  }
  pStep = TRACK_STEP(p, a[STEP_N]);
  *pStep = (Step){.n = a[STEP_N],
      .iSeq = a[STEP_SEQ],
      .iPut = iPut,
      .iTurn = (int)a[STEP_TURN],
      .iError = (int)(a[STEP_ERROR_1] & 3) - 1,
      .hArguments = a[STEP_ARGUMENTS],
      .nMade = (int)a[STEP_MADE],
      .iTime = a[STEP_TIME],
      .iStart = (int)a[STEP_START],
      .hCall = a[STEP_CALL],
      .hResult = a[STEP_RESULT],
      .hLoose = a[STEP_LOOSE],
      .hSaid = a[STEP_SAID],
      .iTalk = (int)a[STEP_TALK],
      .iBefore = (int)a[STEP_BEFORE],
      .nSpent = a[STEP_SPENT],
      .nCost = a[STEP_COST],
      .nSpentBefore = a[STEP_SPENT_BEFORE],
      .nMadeBefore = (int)a[STEP_MADE_BEFORE],
      .nCostBefore = a[STEP_COST_BEFORE]};
  memcpy(pStep->zTool, z, (size_t)nTool);
  if (pStep->n > p->nStep) p->nStep = pStep->n;
  return z + nTool;
}

static void readRow(Track *p, sqlite3_stmt *pStmt) {
  const unsigned char *z = sqlite3_column_blob(pStmt, 1), *zEnd;
  i64 a[N_HEAD];
  zEnd = z + sqlite3_column_bytes(pStmt, 1);
  if (z == 0 || zEnd - z < 8) return;
  memcpy(&p->hChain, z, 8);
  z = unpackNumbers(z + 8, zEnd, a, N_HEAD);
  if (z == 0) return;
  p->iSeq = sqlite3_column_int64(pStmt, 0);
  p->head = (Head){.iAt = a[HEAD_AT],
      .nByte = (int)a[HEAD_BYTES],
      .iKey = (int)a[HEAD_KEY],
      .nItem = (int)a[HEAD_READ]};
  p->nItem = a[HEAD_ITEMS];
  p->hFirst = a[HEAD_FIRST];
  while (z != 0 && z < zEnd) z = readStep(p, p->iSeq, z, zEnd);
}

void bxTrackRead(Track *p, Ring *pRing, const RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT seq, steps FROM main.@_slots "
      "WHERE id BETWEEN ?1 AND ?2 AND seq >= ?3 ORDER BY id";
  i64 nRow = pAgent->nWindow < TRACK_STEPS ? pAgent->nWindow : TRACK_STEPS;
  i64 iFirst = pAgent->nGiven - nRow + 1, iBase = RING_BASE(pAgent);
  i64 iLow = RING_AT(pAgent, iFirst > 0 ? iFirst : 0);
  i64 iHigh = RING_AT(pAgent, pAgent->nGiven);
  int i;
  assert(pAgent->iNo > 0 && pAgent->nWindow > 0);
  memset(p, 0, offsetof(Track, a));
  for (i = 0; i < TRACK_STEPS; i++) p->a[i].n = 0;
  for (i = iLow <= iHigh; i < 2; i++) { /* two parts, if they go round */
    sqlite3_stmt *pStmt = bxStmt(&pRing->base.stmts, zSql, pErr);
    bxBind(pStmt, pErr, "iii", i == 1 && iLow > iHigh ? iBase : iLow,
        i == 0 ? iBase + pAgent->nWindow - 1 : iHigh, iFirst);
    while (bxStep(pStmt, pErr)) readRow(p, pStmt);
    bxReset(pStmt, pErr);
  }
  if (pErr->rc != SQLITE_OK) return;
  p->iNo = pAgent->iNo;
  p->iLow = p->nStep;
  while (p->iLow > 1 && p->nStep - p->iLow < TRACK_STEPS - 1 &&
         TRACK_STEP(p, p->iLow - 1)->n == p->iLow - 1) {
    p->iLow--;
  }
  p->iDirty = p->iLow;
}

Track *bxTrackTake(Ring *p, const RingAgent *pAgent, BxErr *pErr) {
  static const char zChain[] =
      "SELECT 1 FROM main.@_slots WHERE id = ?1 AND seq = ?2 "
      "AND substr(steps, 1, 8) = ?3";
  Track **ppTrack = &p->pWatch->apTrack[pAgent->iNo % TRACKS_KEPT], *pTrack;
  if (*ppTrack == 0) *ppTrack = bxZalloc(sizeof(Track), pErr);
  pTrack = *ppTrack;
  if (pTrack == 0) return 0;
  if (pTrack->iNo == pAgent->iNo && pTrack->nStep > 0 &&
      pTrack->iSeq >= pAgent->nGiven - 1 && pTrack->iSeq <= pAgent->nGiven &&
      (p->bSame || bxQueryInt(&p->base.stmts, zChain, pErr, "iix",
                       RING_AT(pAgent, pTrack->iSeq), pTrack->iSeq,
                       &pTrack->hChain, (i64)8))) {
    return pTrack;
  }
  bxTrackRead(pTrack, p, pAgent, pErr);
  return pTrack;
}

void bxTrackForget(Watch *p, i64 iNo) {
  Track *pTrack = p->apTrack[iNo % TRACKS_KEPT];
  assert(iNo >= 0);
  if (pTrack != 0) pTrack->iNo = 0;
}

i64 bxTrackPack(Track *p, unsigned char zOut[TRACK_BYTES]) {
  const i64 aHead[] = {p->head.iAt, p->head.nByte, p->head.iKey, p->head.nItem,
      p->nItem, p->hFirst};
  unsigned char *z = packNumbers(zOut + 8, aHead, N_HEAD);
  i64 n = p->iDirty > p->iLow ? p->iDirty : p->iLow;
  for (; n <= p->nStep; n++) {
    const Step *pStep = TRACK_STEP(p, n);
    const i64 a[] = {n, pStep->iError + 1, pStep->iTurn, pStep->hArguments,
        pStep->nMade, pStep->iTime, pStep->iStart, pStep->hCall, pStep->hResult,
        pStep->hLoose, pStep->hSaid, pStep->iTalk, pStep->nSpent, pStep->nCost,
        pStep->nSpentBefore, pStep->nMadeBefore, pStep->nCostBefore,
        pStep->iSeq, pStep->iBefore};
    size_t nTool = strlen(pStep->zTool);
    if (pStep->iPut != p->iSeq) continue;
    z = packNumbers(z, a, N_STEP);
    *z++ = (unsigned char)nTool;
    memcpy(z, pStep->zTool, nTool);
    z += nTool;
  }
  p->hChain = (i64)bxHashMix((sqlite3_uint64)p->hChain,
      bxHashOf((const char *)zOut + 8, z - zOut - 8));
  memcpy(zOut, &p->hChain, 8);
  return z - zOut;
}
