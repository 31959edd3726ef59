/*
** ring_scrub.c: fills with zeros what no exchange of a ring needs any more.
**
** When an exchange is deleted, its agent is noted. When the transaction ends
** (bxBodySync), the log of each agent that was noted is cleaned: every byte
** that no chain of a slot reaches becomes zero, and so does every free place. If
** the agent has no slots left, its log is deleted. What rolls out is overwritten
** by later pushes; with secure_delete, one push in about nWindow cleans as well.
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

/* Fills the places with zeros that no chunk has. */
static void clearPlaces(Ring *p, BxErr *pErr) {
  static const char zSql[] =
      "UPDATE main.@_texts SET body = zeroblob(length(body)) WHERE id BETWEEN "
      "?1 AND ?2 AND body <> zeroblob(length(body))";
  const BodyLog *pLog = &p->pBodies->log;
  i64 i, iFrom = 0;
  assert(p->pBodies->log.nRun <= RUNS);
  while (iFrom < pLog->nPlace && pErr->rc == SQLITE_OK) {
    i64 iTo = pLog->nPlace, iNext = pLog->nPlace;
    for (i = 0; i < pLog->nRun; i++) { /* the next run */
      if (pLog->aRun[i][0] < iFrom || pLog->aRun[i][0] >= iTo) continue;
      iTo = pLog->aRun[i][0];
      iNext = iTo + pLog->aRun[i][1];
    }
    if (iFrom < iTo) {
      bxStmtExec(&p->base.stmts, zSql, pErr, "ii", pLog->iNo << 32 | iFrom,
          pLog->iNo << 32 | (iTo - 1));
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

void bxBodyRolled(Ring *p, i64 iSeq, BxErr *pErr) {
  const BodyLog *pLog = &p->pBodies->log;
  p->bRolled = 0;
  if (pErr->rc != SQLITE_OK || bxBodyEnd(pLog) == 0) return;
  if (iSeq % (p->nWindow + 2) != 0 ||
      bxQueryInt(&p->base.stmts, "PRAGMA main.secure_delete", pErr, "") != 1)
    return;
  p->bRolled = 1;
  scrub(p, pErr);
  /* the next pushes overwrite some places */
  if (pLog->nPlace > 2 * pLog->nLive + 8) clearPlaces(p, pErr);
  bxBodyStore(p, pErr);
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
  clearPlaces(p, pErr);
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
