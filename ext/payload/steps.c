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

/* A step as numbers, in the order of the columns of its row. The columns state and
** more have several numbers each: a byte with the count of bytes that follow, the
** lowest first. more ends with the name of the tool. Only the newest step has what
** its agent has: head, items, chain and state; the others have what it had then. */
#define STEP_COLUMNS                                                           \
  "n, seq, turn, error, arguments, made, head, items, chain, state, more"
enum {
  STEP_N,
  STEP_SEQ,
  STEP_TURN,
  STEP_ERROR,
  STEP_ARGUMENTS,
  STEP_MADE,
  STEP_HEAD,
  STEP_ITEMS,
  STEP_CHAIN,
  N_COLUMN,
  N_STATE = N_COLUMN + 4,
  N_NUMBER = N_STATE + 11
};

static void putNumbers(unsigned char **pz, const i64 *a, int n) {
  unsigned char *z = *pz;
  int i;
  for (i = 0; i < n; i++) {
    sqlite3_uint64 u = (sqlite3_uint64)a[i];
    unsigned char *zCount = z++;
    for (; u > 0; u >>= 8) *z++ = (unsigned char)u;
    *zCount = (unsigned char)(z - zCount - 1);
  }
  *pz = z;
}

/* Returns where they end; NULL if these are none. */
static const unsigned char *getNumbers(
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
  const unsigned char *zTool, *zState;
  i64 a[N_NUMBER] = {0};
  Step *pStep;
  int i;
  for (i = 0; i < N_COLUMN; i++) a[i] = sqlite3_column_int64(pStmt, i);
  zState = getNumbers(pStmt, N_COLUMN, a + N_COLUMN, N_STATE - N_COLUMN);
  zTool = getNumbers(pStmt, N_COLUMN + 1, a + N_STATE, N_NUMBER - N_STATE);
  if (zState == 0 || zTool == 0 || a[STEP_N] < 1) return; /* no ring wrote it */
  pStep = TRACK_STEP(p, a[STEP_N]);
  *pStep = (Step){.n = a[STEP_N],
      .iSeq = a[STEP_SEQ],
      .iTurn = (int)a[STEP_TURN],
      .iError = (int)a[STEP_ERROR],
      .hArguments = a[STEP_ARGUMENTS],
      .nMade = (int)a[STEP_MADE],
      .iTime = a[13],
      .iStart = (int)a[14],
      .hCall = a[15],
      .hResult = a[16],
      .hMasked = a[17],
      .hSaid = a[18],
      .nSpent = a[19],
      .nCost = a[20],
      .nSpentBefore = a[21],
      .nMadeBefore = (int)a[22],
      .nCostBefore = a[23]};
  sqlite3_snprintf(TOOL_BYTES, pStep->zTool, "%.*s",
      sqlite3_column_bytes(pStmt, N_COLUMN + 1) -
          (int)(zTool - (const unsigned char *)sqlite3_column_blob(
                            pStmt, N_COLUMN + 1)),
      (const char *)zTool);
  if (pStep->n < p->nStep) return;
  p->nStep = pStep->n;
  p->iSeq = pStep->iSeq;
  p->head = (Head){.nByte = (int)a[STEP_HEAD],
      .hash = a[9],
      .iKey = (int)a[10],
      .nItem = (int)a[11]};
  p->nItem = a[STEP_ITEMS];
  p->hFirst = a[12];
  p->hChain = a[STEP_CHAIN];
}

void bxTrackRead(Track *p, BxStmts *pRing, i64 iNo, BxErr *pErr) {
  static const char zSql[] = "SELECT " STEP_COLUMNS " FROM main.@_steps "
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

/* What is 0 stays NULL. */
static void writeStep(sqlite3_stmt *pNew, sqlite3_stmt *pOld, const Track *p,
    const Step *pStep, BxErr *pErr) {
  const i64 a[] = {pStep->n, pStep->iSeq, pStep->iTurn, pStep->iError,
      pStep->hArguments, pStep->nMade, p->head.nByte, p->nItem, p->hChain};
  const i64 aState[] = {p->head.hash, p->head.iKey, p->head.nItem, p->hFirst};
  const i64 aMore[] = {pStep->iTime, pStep->iStart, pStep->hCall,
      pStep->hResult, pStep->hMasked, pStep->hSaid, pStep->nSpent, pStep->nCost,
      pStep->nSpentBefore, pStep->nMadeBefore, pStep->nCostBefore};
  unsigned char zState[9 * 4], zMore[9 * 11 + TOOL_BYTES], *z = zMore;
  unsigned char *zEnd = zState;
  size_t nTool = strlen(pStep->zTool);
  i64 iId = p->iNo << 16 | (pStep->n & (TRACK_STEPS - 1));
  int i;
  putNumbers(&z, aMore, 11);
  memcpy(z, pStep->zTool, nTool);
  z += nTool;
  if (pStep->mDirty & STEP_NEW) {
    int bNewest = pStep->n == p->nStep;
    putNumbers(&zEnd, aState, 4);
    if (!bNewest) {
      static const i64 aNone[4];
      zEnd = zState;
      putNumbers(&zEnd, aNone, 4);
    }
    bxBind(pNew, pErr, "i", iId);
    for (i = 0; i < (bNewest ? N_COLUMN : STEP_HEAD); i++) {
      if ((a[i] == 0 && i != STEP_ERROR) || pErr->rc != SQLITE_OK) continue;
      bxFailDb(
          pErr, sqlite3_db_handle(pNew), sqlite3_bind_int64(pNew, 2 + i, a[i]));
    }
    bxBind(pNew, pErr, "----------xx", zState, (i64)(zEnd - zState), zMore,
        (i64)(z - zMore));
    bxRun(pNew, pErr);
  } else {
    bxBind(pOld, pErr, "iix", iId, (i64)pStep->iError, zMore, (i64)(z - zMore));
    bxRun(pOld, pErr);
  }
}

void bxTrackWrite(Track *p, BxStmts *pRing, BxErr *pErr) {
  static const char zNew[] =
      "REPLACE INTO main.@_steps(id, " STEP_COLUMNS
      ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
  static const char zOld[] =
      "UPDATE main.@_steps SET error = ?2, more = ?3 WHERE id = ?1";
  static const char *const azSql[] = {zNew, zOld};
  sqlite3_stmt *apStmt[2];
  i64 n = p->iDirty > p->iLow ? p->iDirty : p->iLow;
  bxStmtSet(pRing, azSql, 2, apStmt, pErr);
  for (; n <= p->nStep && pErr->rc == SQLITE_OK; n++) {
    Step *pStep = TRACK_STEP(p, n);
    if (pStep->mDirty != 0) writeStep(apStmt[0], apStmt[1], p, pStep, pErr);
    pStep->mDirty = 0;
  }
  if (pErr->rc != SQLITE_OK) p->iNo = 0;
}
