/*
** ring_scrub.c: fills with zeros what no exchange of a ring needs any more.
**
** When an exchange is deleted, its agent is noted. When the transaction ends
** (bxBodySync), the log of each agent that was noted is cleaned: every byte
** that no chain of a slot reaches becomes zero, and so does every free place. If
** the agent has no slots left, its log is deleted. What rolls out is overwritten
** by later pushes; with secure_delete, they also sweep: each clears a fixed amount.
**
** How far a sweep is stands in the agent's page, so any connection goes on with it. It
** goes from the end of the log to its beginning, in three parts:
**
**   iSeq > 0    It looks at the exchanges, the newest first. iAt is where those that it
**               has seen begin. aNeed has the first record of each of their chains that
**               begins before iAt: at most HEADS, as those were heads at iAt. A push
**               whose parent is before iAt adds that (bxBodyNeed).
**   iAt > 0     No exchange is before iAt. Of what is there, only parents of what comes
**               after it are needed: aNeed has the next one of each chain. The rest is
**               cleared. No head is before iAt, so a push changes nothing of this.
**   iPlace > 0  Places before iPlace that no chunk has are cleared, if there are many.
**
** A damaged log is not cleaned: nobody can tell what its exchanges need.
*/
#include "ring_body.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

typedef struct BodySpan {
  i64 iFrom, iTo; /* of the log, without iTo */
} BodySpan;

typedef struct BodySpans {
  BodySpan *a;
  i64 n, nAlloc;
  i64 nLive; /* the first ones: records of exchanges */
} BodySpans;

static void addSpan(BodySpans *p, i64 iFrom, i64 iTo, BxErr *pErr) {
  BodySpan *pSpan = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*p->a), pErr);
  assert(iFrom >= 0);
  if (pSpan == 0) return;
  pSpan->iFrom = iFrom;
  pSpan->iTo = iTo;
}

static int compareSpans(const void *a, const void *b) {
  i64 i = ((const BodySpan *)a)->iFrom, k = ((const BodySpan *)b)->iFrom;
  return i < k ? -1 : i > k;
}

static int isLive(const BodySpans *p, i64 iAt) {
  BodySpan key = {0};
  assert(p->nLive <= p->n);
  key.iFrom = iAt;
  return p->nLive > 0 &&
         bsearch(&key, p->a, (size_t)p->nLive, sizeof(key), compareSpans) != 0;
}

/* What the exchanges of the loaded log need of it. */
static void findSpans(Ring *p, BodySpans *pOut, BxErr *pErr) {
  static const char zSpanRefs[] = BODY_REFS;
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSpanRefs, pErr);
  BodyRecord record;
  BodyRef ref;
  unsigned char a[16];
  i64 i, iNext, nNeed;
  bxBind(pStmt, pErr, "i", p->pBodies->log.iNo);
  while (bxStep(pStmt, pErr)) {
    for (i = 0; i < 2; i++) {
      if (!bxBodyRefOf(pStmt, (int)i, &ref)) continue;
      /* the record of the first one of a chain has 1 byte for back */
      addSpan(pOut, ref.iAt,
          ref.iRoot != ref.iAt
              ? ref.iAt
              : ref.iAt + 1 + ref.n + (bxBodyPut(a, (sqlite3_uint64)ref.n) - a),
          pErr);
    }
  }
  bxReset(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (pOut->n == 0) {
    p->pBodies->log.nHead = 0;
    return;
  }
  qsort(pOut->a, (size_t)pOut->n, sizeof(*pOut->a), compareSpans);
  pOut->nLive = pOut->n;
  for (i = 0; i < pOut->nLive && pErr->rc == SQLITE_OK; i++) {
    if (pOut->a[i].iTo > pOut->a[i].iFrom) continue;
    bxBodyRecord(p, pOut->a[i].iFrom, &record, pErr);
    pOut->a[i].iTo = record.iOwn + record.nOwn;
    iNext = record.iParent;
    nNeed = record.nShared;
    while (iNext >= 0 && nNeed > 0 && pErr->rc == SQLITE_OK &&
           !isLive(pOut, iNext)) {
      bxBodyRecord(p, iNext, &record, pErr);
      if (nNeed > record.nShared + record.nOwn) bxBodyDamaged(p, pErr);
      addSpan(pOut, iNext,
          record.iOwn + (nNeed > record.nShared ? nNeed - record.nShared : 0),
          pErr);
      if (nNeed > record.nShared) nNeed = record.nShared;
      iNext = record.iParent;
    }
  }
  if (pErr->rc != SQLITE_OK) return;
  for (i = 0; i < p->pBodies->log.nHead; i++) {
    if (!isLive(pOut, p->pBodies->log.aHead[i].iAt)) {
      bxBodyDropHead(&p->pBodies->log, i--);
    }
  }
  qsort(pOut->a, (size_t)pOut->n, sizeof(*pOut->a), compareSpans);
}

/* Returns whether some of the bytes were not zero. */
static int clearBytes(unsigned char *z, i64 n) {
  assert(n > 0);
  if (z[0] == 0 && memcmp(z, z + 1, (size_t)(n - 1)) == 0) return 0;
  memset(z, 0, (size_t)n);
  return 1;
}

/* Writes a chunk that was cleared, if there is one. It is still in memory. */
static void putDirty(Ring *p, i64 *piDirty, BxErr *pErr) {
  unsigned char *z = *piDirty >= 0 ? bxBodyGetChunk(p, *piDirty, pErr) : 0;
  if (z != 0) bxBodyPutChunk(p, *piDirty, z, pErr);
  *piDirty = -1;
}

/* Fills what is from position iFrom to iTo with zeros. A chunk is written when another
** one is looked at. */
static void clearLog(Ring *p, i64 iFrom, i64 iTo, i64 *piDirty, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  assert(p->pBodies->log.iNo > 0);
  while (iFrom < iTo && pErr->rc == SQLITE_OK) {
    i64 iChunk = iFrom / CHUNK, iIn = iFrom % CHUNK;
    i64 nIn = iTo - iFrom < CHUNK - iIn ? iTo - iFrom : CHUNK - iIn;
    unsigned char *z;
    if (*piDirty != iChunk) putDirty(p, piDirty, pErr);
    z = iChunk == pLog->iOpen ? pLog->aOpen : bxBodyGetChunk(p, iChunk, pErr);
    if (z != 0 && clearBytes(z + iIn, nIn) && z != pLog->aOpen) {
      *piDirty = iChunk;
    }
    iFrom += nIn;
  }
}

/* Fills the places from iFrom to iTo with zeros that no chunk has. */
static void clearPlaces(Ring *p, i64 iFrom, i64 iTo, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_texts SET body = zeroblob(length(body)) WHERE id BETWEEN "
      "?1 AND ?2 AND body <> zeroblob(length(body))";
  const BodyLog *pLog = &p->pBodies->log;
  i64 i;
  assert(pLog->nRun <= RUNS && iFrom >= 0);
  while (iFrom < iTo && pErr->rc == SQLITE_OK) {
    i64 iEnd = iTo, iNext = iTo;
    for (i = 0; i < pLog->nRun; i++) { /* the next run */
      i64 iRun = pLog->aRun[i][0], iAfter = iRun + pLog->aRun[i][1];
      if (iAfter <= iFrom || iRun >= iEnd) continue;
      iEnd = iRun;
      iNext = iAfter;
    }
    if (iFrom < iEnd) {
      bxStmtExec(&p->base.stmts, zSql, pErr, "ii", pLog->iNo << 32 | iFrom,
          pLog->iNo << 32 | (iEnd - 1));
    }
    iFrom = iNext;
  }
}

/* Fills all with zeros that no exchange of the loaded log needs. Where the log is
** damaged, nothing. */
static void scrub(Ring *p, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  BodyLog *pLog = &pB->log;
  BodySpans spans = {0};
  BxErr err = {SQLITE_OK, 0};
  i64 i, iFrom = bxBodyEnd(pLog), iDirty = -1;
  int bDamaged;
  if (pErr->rc != SQLITE_OK) return;
  memset(&pLog->sweep, 0, sizeof(pLog->sweep));
  findSpans(p, &spans, &err);
  bDamaged = (err.rc & 0xff) == SQLITE_CORRUPT;
  if (bDamaged) bxErrClear(&err);
  bxErrMove(pErr, &err);
  if (pErr->rc == SQLITE_OK && !bDamaged) {
    if (spans.n > 0) iFrom = spans.a[0].iFrom;
    bxBodyFreeBefore(pLog, iFrom);
    iFrom = (pLog->iOpen - pLog->nLive) * CHUNK;
    for (i = 0; i < spans.n; i++) {
      clearLog(p, iFrom, spans.a[i].iFrom, &iDirty, pErr);
      if (spans.a[i].iTo > iFrom) iFrom = spans.a[i].iTo;
    }
    clearLog(p, iFrom, bxBodyEnd(pLog), &iDirty, pErr);
    putDirty(p, &iDirty, pErr);
  }
  sqlite3_free(spans.a);
}

/*--------------------------------------------------------------- sweep ----*/

#define SLOTS_LOOKED 4 /* that a push looks at */
#define CHUNKS_LOOKED 3
#define PLACES_LOOKED 6

static void dropNeed(BodySweep *p, i64 i) {
  assert(i >= 0 && i < p->nNeed);
  p->aNeed[i] = p->aNeed[--p->nNeed];
}

/* Of a chain that begins at iRoot, no record is needed that is not before iAt: or only n
** bytes of the one there. */
static void setNeed(BodySweep *p, i64 iAt, i64 iRoot, i64 n) {
  i64 i = 0;
  assert(iRoot <= iAt && n >= 0);
  while (i < p->nNeed && p->aNeed[i].iRoot != iRoot) i++;
  if (i == HEADS) { /* damage */
    memset(p, 0, sizeof(*p));
    return;
  }
  if (i == p->nNeed) p->nNeed++;
  p->aNeed[i].iAt = iAt;
  p->aNeed[i].iRoot = iRoot;
  p->aNeed[i].n = n;
}

void bxBodyNeed(BodySweep *p, const BodyHead *pHead, i64 n) {
  if (p->iSeq == 0 || pHead->iAt >= p->iAt) return;
  setNeed(p, pHead->iAt, pHead->iRoot, n);
}

/* Looks at an exchange. Returns 0 if it is damaged. */
static int lookAt(BodySweep *p, sqlite3_stmt *pStmt) {
  BodyRef ref;
  i64 i;
  if (!bxBodyRefOf(pStmt, 0, &ref)) {
    if (bxBodyRefOf(pStmt, 1, &ref) && ref.iAt < p->iAt) p->iAt = ref.iAt;
    return 1;
  }
  if (ref.iAt >= p->iAt) return 0;
  p->iAt = ref.iAt;
  for (i = 0; i < p->nNeed; i++) {
    if (p->aNeed[i].iRoot >= ref.iAt) dropNeed(p, i--);
  }
  if (ref.iRoot < ref.iAt) setNeed(p, ref.iAt, ref.iRoot, 0);
  return 1;
}

/* Looks at the next exchanges. After the last one, what is before all of them may go,
** but for what their chains need. */
static void sweepSlots(Ring *p, const RingAgent *pAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT request_body, response_body FROM main.@_slots WHERE id BETWEEN "
      "?1 AND ?2 ORDER BY id DESC";
  BodyLog *pLog = &p->pBodies->log;
  BodySweep *pSweep = &pLog->sweep;
  i64 iLast = pSweep->iSeq, iFirst = iLast - SLOTS_LOOKED + 1, i;
  i64 iOldest = pAgent->nGiven - pAgent->nWindow + 1;
  sqlite3_stmt *pStmt;
  int bWhole = 1;
  assert(pLog->iNo == pAgent->iNo && iLast > 0);
  if (iFirst < iLast - iLast % pAgent->nWindow) {
    iFirst = iLast - iLast % pAgent->nWindow;
  }
  if (iFirst < iOldest) iFirst = iOldest;
  if (iFirst < 1) iFirst = 1;
  pSweep->iSeq = iFirst - 1;
  if (iFirst <= iLast) {
    pStmt = bxStmt(&p->base.stmts, zSql, pErr);
    bxBind(pStmt, pErr, "ii", RING_AT(pAgent, iFirst), RING_AT(pAgent, iLast));
    while (bWhole && bxStep(pStmt, pErr)) bWhole = lookAt(pSweep, pStmt);
    bxReset(pStmt, pErr);
    if (!bWhole) memset(pSweep, 0, sizeof(*pSweep));
    if (iFirst > iOldest && iFirst > 1) return;
  }
  pSweep->iSeq = 0;
  for (i = 0; i < pLog->nHead; i++) {
    if (pLog->aHead[i].iAt < pSweep->iAt) bxBodyDropHead(pLog, i--);
  }
}

/* The next record that is needed, which is the last one; -1: there is none. */
static i64 lastNeed(BodySweep *p, i64 iFirst) {
  i64 i, iLast = -1;
  assert(p->nNeed <= HEADS);
  for (i = 0; i < p->nNeed; i++) {
    if (p->aNeed[i].iAt < iFirst) {
      dropNeed(p, i--);
    } else if (iLast < 0 || p->aNeed[i].iAt > p->aNeed[iLast].iAt) {
      iLast = i;
    }
  }
  return iLast;
}

/* Of a record that is needed its parent is needed too. */
static void needParent(BodySweep *p, i64 i, const BodyRecord *pRecord) {
  i64 n = p->aNeed[i].n;
  assert(pRecord->iParent < p->aNeed[i].iAt);
  if (n == 0 || n > pRecord->nShared) n = pRecord->nShared;
  if (pRecord->iParent < 0 || n == 0) {
    dropNeed(p, i);
  } else {
    p->aNeed[i].iAt = pRecord->iParent;
    p->aNeed[i].n = n;
  }
}

/* Clears what is before position iAt of the sweep: at most nChunk chunks. */
static void sweepChunks(Ring *p, i64 nChunk, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  BodySweep *pSweep = &pLog->sweep;
  i64 iDirty = -1, i, iEnd, iFrom, iFirst;
  assert(pSweep->iSeq == 0 && pSweep->iAt > 0);
  while (nChunk-- > 0 && pErr->rc == SQLITE_OK) {
    BodyRecord record;
    iFirst = (pLog->iOpen - pLog->nLive) * CHUNK;
    if (pSweep->iAt <= iFirst) break;
    i = lastNeed(pSweep, iFirst);
    if (i < 0) {
      bxBodyFreeBefore(pLog, pSweep->iAt);
      iFirst = (pLog->iOpen - pLog->nLive) * CHUNK;
      clearLog(p, iFirst, pSweep->iAt, &iDirty, pErr);
      pSweep->iAt = iFirst;
      break;
    }
    if (iDirty - pSweep->aNeed[i].iAt / CHUNK >= CHUNKS_KEPT) {
      putDirty(p, &iDirty, pErr);
    }
    bxBodyRecord(p, pSweep->aNeed[i].iAt, &record, pErr);
    if (pErr->rc != SQLITE_OK) break;
    if (pSweep->aNeed[i].iAt >= pSweep->iAt) {
      needParent(pSweep, i, &record);
      continue;
    }
    iEnd = record.iOwn;
    if (pSweep->aNeed[i].n > record.nShared) {
      iEnd += pSweep->aNeed[i].n - record.nShared;
    }
    if (iEnd > pSweep->iAt || iEnd > record.iOwn + record.nOwn) {
      bxBodyDamaged(p, pErr);
      break;
    }
    iFrom = (pSweep->iAt - 1) / CHUNK * CHUNK;
    if (iFrom < iEnd) iFrom = iEnd;
    clearLog(p, iFrom, pSweep->iAt, &iDirty, pErr);
    pSweep->iAt = iFrom;
    if (iFrom > iEnd) continue;
    pSweep->iAt = pSweep->aNeed[i].iAt;
    needParent(pSweep, i, &record);
  }
  putDirty(p, &iDirty, pErr);
  if (pSweep->iAt > (pLog->iOpen - pLog->nLive) * CHUNK) return;
  pSweep->iAt = pSweep->nNeed = 0;
  /* the next pushes overwrite some places */
  if (pLog->nPlace > 2 * pLog->nLive + 8) pSweep->iPlace = pLog->nPlace;
}

void bxBodySweep(Ring *p, const RingAgent *pAgent, i64 nNew, BxErr *pErr) {
  BodyLog *pLog;
  BodySweep *pSweep;
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  pLog = &p->pBodies->log;
  if (bxBodyEnd(pLog) == 0) return;
  pSweep = &pLog->sweep;
  p->pBodies->nChange = -1;
  if (pSweep->iSeq > 0) {
    sweepSlots(p, pAgent, &err);
  } else if (pSweep->iAt > 0) {
    sweepChunks(p, CHUNKS_LOOKED + 2 * (nNew / CHUNK), &err);
  } else if (pSweep->iPlace > 0) {
    i64 iTo = pSweep->iPlace;
    pSweep->iPlace = iTo > PLACES_LOOKED ? iTo - PLACES_LOOKED : 0;
    clearPlaces(p, pSweep->iPlace, iTo, &err);
  } else if (pAgent->nGiven % (pAgent->nWindow / 2 + 16) == 0 &&
             bxQueryInt(
                 &p->base.stmts, "PRAGMA main.secure_delete", &err, "") == 1) {
    pSweep->iSeq = pAgent->nGiven;
    pSweep->iAt = bxBodyEnd(pLog);
  }
  if ((err.rc & 0xff) == SQLITE_CORRUPT) { /* see scrub() */
    bxErrClear(&err);
    memset(pSweep, 0, sizeof(*pSweep));
  }
  bxErrMove(pErr, &err);
}

void bxBodyClear(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zPage[] =
      "UPDATE main.@_agents SET page = NULL WHERE no = ?1 AND page IS NOT NULL";
  static const char zTexts[] =
      "DELETE FROM main.@_texts WHERE id BETWEEN ?1 << 32 AND "
      "(?1 << 32) + 4294967295";
  bxStmtExec(&p->base.stmts, zPage, pErr, "i", iNo);
  bxStmtExec(&p->base.stmts, zTexts, pErr, "i", iNo);
  if (p->pBodies != 0 && p->pBodies->log.iNo == iNo) bxBodyForget(p);
}

void bxBodyScrub(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zRows[] = "SELECT EXISTS (SELECT 1" BODY_SLOTS ")";
  BxErr err = {SQLITE_OK, 0};
  BodyLog *pLog;
  if (!bxQueryInt(&p->base.stmts, zRows, pErr, "i", iNo)) {
    bxBodyClear(p, iNo, pErr);
    return;
  }
  pLog = bxBodyLog(p, iNo, &err);
  if ((err.rc & 0xff) == SQLITE_CORRUPT) bxErrClear(&err); /* see scrub() */
  bxErrMove(pErr, &err);
  if (pLog == 0 || bxBodyEnd(pLog) == 0) return;
  scrub(p, pErr);
  clearPlaces(p, 0, pLog->nPlace, pErr);
  bxBodyStore(p, pErr);
}

void bxBodyDeleted(Ring *p, i64 iNo, BxErr *pErr) {
  RingBodies *pB = bxBodyMemory(p, pErr);
  int i;
  assert(iNo >= 0);
  if (pB == 0) return;
  for (i = 0; i < pB->nDirty; i++) {
    if (pB->aDirty[i] == iNo) return;
  }
  if (pB->nDirty == DIRTY_MOST) {
    bxBodyScrub(p, pB->aDirty[--pB->nDirty], pErr);
  }
  pB->aDirty[pB->nDirty++] = iNo;
}

void bxBodySync(Ring *p, BxErr *pErr) {
  static const char zAgentThere[] = "SELECT 1 FROM main.@_agents WHERE no = ?1";
  if (p->pBodies == 0) return;
  if (p->pBodies->nDirty > 0) p->iKnown++;
  while (p->pBodies->nDirty > 0 && pErr->rc == SQLITE_OK) {
    i64 iNo = p->pBodies->aDirty[--p->pBodies->nDirty];
    if (bxQueryInt(&p->base.stmts, zAgentThere, pErr, "i", iNo)) {
      bxBodyScrub(p, iNo, pErr);
    }
  }
}
