/*
** ring_log.c: the body log: the bytes in which an agent's bodies are.
**
** A request of a conversation repeats the one before it. So each agent has a log,
** and a body is written into it as a record of what is new:
**
**   record: own, back [, shared] (varints), then own bytes
**
** back is the distance in bytes from this record back to its parent; 0 means that
** it has no parent. The body is the first shared bytes of its parent's body, and
** then the own bytes. A record is the parent of one other at most, and at most DEPTH
** records follow the first one of a chain. The heads are the newest requests of up to four
** conversations: they can be the parents of new records. A request that shares
** less than a quarter with each of them begins a chain.
**
**   log:  | freed | chunk | chunk | ... | chunk | open |
**                 first                         end of the log
**
** A chunk is CHUNK bytes of the log. It is a row of @_texts with the id
** no << 32 | place, followed by 8 bytes: bxHashMix(bxHashOf(chunk), its number).
** The bytes after the last chunk are the open chunk. It is in the column page of
** the agent's row, so that most pushes write only there:
**
**   page: hash, number of the open chunk, its bytes, chunks before it, places,
**         runs, { place, chunks }, heads, { end of the log - at, bytes,
**         at - root, depth, hash of its beginning, sum }, open bytes, sweep, zeros
**
** hash and sum have 8 bytes. All other numbers are varints: 7 bits in a byte, the
** lowest first. The hash covers all that follows
** it except the zeros. A sum is that of a body, by which a connection knows
** whether it has the body in memory. The sweep (ring_scrub.c) is nothing, or
** 1 + records, number, position, place, { at, root, bytes }.
**
** Chunks have one size, and are overwritten in place: when all exchanges have left
** a chunk, its place is free. A run is a number of chunks whose places follow each
** other. A new place is made only if none is free.
**
** What a slot has in place of a body: a number, NULL or a text is the body itself.
** A blob begins with a byte. After 0 comes a blob that is the body. After 1 (a
** text) or 2 (a blob) come at, bytes, root (varints): where its record is, its
** length, and where its chain begins.
**
** What no exchange needs is filled with zeros: see ring_scrub.c.
*/
#include "ring_body.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*------------------------------------------------------------- numbers ----*/

unsigned char *bxBodyPut(unsigned char *z, sqlite3_uint64 u) {
  assert(z != 0);
  for (; u > 127; u >>= 7) *z++ = (unsigned char)(u | 128);
  *z++ = (unsigned char)u;
  return z;
}

/* Returns where it ends; NULL if there is none before zEnd, or above iMost. */
const unsigned char *bxBodyGet(
    const unsigned char *z, const unsigned char *zEnd, i64 iMost, i64 *piOut) {
  sqlite3_uint64 u = 0;
  int iShift = 0;
  assert(iMost >= 0);
  *piOut = 0;
  if (z == 0) return 0;
  for (; z < zEnd && iShift < 63; iShift += 7, z++) {
    u |= (sqlite3_uint64)(*z & 127) << iShift;
    if (*z < 128) {
      if (u > (sqlite3_uint64)iMost) return 0;
      *piOut = (i64)u;
      return z + 1;
    }
  }
  return 0;
}

sqlite3_uint64 bxBodyHash(const unsigned char *z, i64 n) {
  return bxHashOf((const char *)z, n);
}

i64 bxBodyEnd(const BodyLog *p) {
  assert(p->nOpen >= 0 && p->nOpen < CHUNK);
  return p->iOpen * CHUNK + p->nOpen;
}

void bxBodyDamaged(Ring *p, BxErr *pErr) {
  bxRingCorrupt(p, pErr, "_texts");
}

/*-------------------------------------------------------------- memory ----*/

RingBodies *bxBodyMemory(Ring *p, BxErr *pErr) {
  if (p->pBodies == 0) p->pBodies = bxZalloc(sizeof(RingBodies), pErr);
  return p->pBodies;
}

static void forgetRead(RingBodies *p) {
  int i;
  p->aRead[0].n = p->aRead[1].n = 0;
  for (i = 0; i < CHUNKS_KEPT; i++) p->aChunk[i].iChunk = -1;
}

void bxBodyForget(Ring *p) {
  if (p->pBodies != 0) p->pBodies->log.iNo = 0;
}

static BodyKnown **placeOf(Ring *p, const char *zAgent, i64 n) {
  return &p->pBodies->apKnown[bxBodyHash((const unsigned char *)zAgent, n) / 2 %
                              AGENTS_KNOWN];
}

/* All of a log but what is after its open bytes. */
static void copyLog(BodyLog *pTo, const BodyLog *pFrom) {
  assert(pFrom->nOpen >= 0 && pFrom->nOpen < CHUNK);
  memcpy(pTo, pFrom, offsetof(BodyLog, aOpen) + (size_t)pFrom->nOpen);
}

int bxBodyRecall(Ring *p, const char *zAgent, RingAgent *pOut) {
  i64 n = (i64)strlen(zAgent);
  RingBodies *pB = p->pBodies;
  BodyKnown *pKnown;
  if (pB == 0 || n >= NAME_KNOWN) return 0;
  pKnown = *placeOf(p, zAgent, n);
  if (pKnown == 0 || pKnown->iKnown != p->iKnown ||
      strcmp(pKnown->zAgent, zAgent) != 0) {
    return 0;
  }
  *pOut = pKnown->agent;
  copyLog(&pB->log, &pKnown->log);
  pB->log.iPin = POSITION_MOST;
  pB->hPage = 0;
  forgetRead(pB);
  return 1;
}

void bxBodyKnow(Ring *p, const char *zAgent, const RingAgent *pAgent) {
  i64 n = (i64)strlen(zAgent);
  BodyKnown **ppKnown = placeOf(p, zAgent, n);
  assert(p->pBodies != 0 && p->pBodies->log.iNo == pAgent->iNo);
  if (n >= NAME_KNOWN) return;
  if (*ppKnown == 0) *ppKnown = sqlite3_malloc(sizeof(BodyKnown));
  if (*ppKnown == 0) return; /* it is read again */
  (*ppKnown)->iKnown = p->iKnown;
  (*ppKnown)->agent = *pAgent;
  copyLog(&(*ppKnown)->log, &p->pBodies->log);
  memcpy((*ppKnown)->zAgent, zAgent, (size_t)n + 1);
}

/*---------------------------------------------------------------- page ----*/

/* The runs and heads. Returns where they end, or NULL. */
static const unsigned char *readLists(
    BodyLog *p, const unsigned char *z, const unsigned char *zEnd) {
  i64 i, k, n, nLive = 0, iEnd = bxBodyEnd(p), iHash;
  z = bxBodyGet(z, zEnd, RUNS, &p->nRun);
  for (i = 0; i < p->nRun && z != 0; i++) {
    z = bxBodyGet(z, zEnd, p->nPlace, &p->aRun[i][0]);
    z = bxBodyGet(z, zEnd, p->nPlace - p->aRun[i][0], &n);
    p->aRun[i][1] = n;
    for (k = 0; k < i; k++) { /* two chunks in one place */
      if (p->aRun[k][0] < p->aRun[i][0] + n &&
          p->aRun[i][0] < p->aRun[k][0] + p->aRun[k][1]) {
        return 0;
      }
    }
    nLive += n;
    if (n == 0) return 0;
  }
  if (nLive != p->nLive) return 0;
  z = bxBodyGet(z, zEnd, HEADS, &p->nHead);
  for (i = 0; i < p->nHead && z != 0; i++) {
    BodyHead *pHead = &p->aHead[i];
    z = bxBodyGet(z, zEnd, iEnd - (p->iOpen - p->nLive) * CHUNK, &n);
    pHead->iAt = iEnd - n;
    z = bxBodyGet(z, zEnd, (i64)1 << 31, &pHead->n);
    z = bxBodyGet(z, zEnd, pHead->iAt, &n);
    pHead->iRoot = pHead->iAt - n;
    z = bxBodyGet(z, zEnd, DEPTH, &pHead->nDepth);
    z = bxBodyGet(z, zEnd, 0xffffffff, &iHash);
    pHead->hStart = (sqlite3_uint64)iHash;
    if (z == 0 || zEnd - z < 8) return 0;
    memcpy(&pHead->sum, z, 8);
    z += 8;
  }
  return z;
}

/* Returns where it ends, or NULL. */
static const unsigned char *readSweep(
    BodySweep *p, const unsigned char *z, const unsigned char *zEnd) {
  i64 i;
  if (z == zEnd || *z == 0) return z;
  z = bxBodyGet(z, zEnd, 1 + HEADS, &p->nNeed);
  p->nNeed--;
  z = bxBodyGet(z, zEnd, (i64)1 << 62, &p->iSeq);
  z = bxBodyGet(z, zEnd, POSITION_MOST, &p->iAt);
  z = bxBodyGet(z, zEnd, (i64)1 << 31, &p->iPlace);
  for (i = 0; i < p->nNeed; i++) {
    z = bxBodyGet(z, zEnd, POSITION_MOST, &p->aNeed[i].iAt);
    z = bxBodyGet(z, zEnd, p->aNeed[i].iAt, &p->aNeed[i].iRoot);
    z = bxBodyGet(z, zEnd, (i64)1 << 31, &p->aNeed[i].n);
  }
  return z;
}

static unsigned char *putSweep(const BodySweep *p, unsigned char *z) {
  i64 i;
  if (p->iSeq + p->iAt + p->iPlace == 0) return z;
  z = bxBodyPut(z, (sqlite3_uint64)(1 + p->nNeed));
  z = bxBodyPut(z, (sqlite3_uint64)p->iSeq);
  z = bxBodyPut(z, (sqlite3_uint64)p->iAt);
  z = bxBodyPut(z, (sqlite3_uint64)p->iPlace);
  for (i = 0; i < p->nNeed; i++) {
    z = bxBodyPut(z, (sqlite3_uint64)p->aNeed[i].iAt);
    z = bxBodyPut(z, (sqlite3_uint64)p->aNeed[i].iRoot);
    z = bxBodyPut(z, (sqlite3_uint64)p->aNeed[i].n);
  }
  return z;
}

void bxBodyBegin(
    Ring *p, i64 iNo, sqlite3_stmt *pStmt, int iColumn, BxErr *pErr) {
  RingBodies *pB = bxBodyMemory(p, pErr);
  const unsigned char *zPage, *z, *zOpen, *zEnd = 0;
  sqlite3_uint64 hash = 0;
  BodyLog *pLog;
  if (pB == 0 || pErr->rc != SQLITE_OK) return;
  pLog = &pB->log;
  zPage = pStmt != 0 ? sqlite3_column_blob(pStmt, iColumn) : 0;
  pB->nChange = sqlite3_total_changes(p->base.stmts.bx->db);
  if (zPage != 0) {
    zEnd = zPage + sqlite3_column_bytes(pStmt, iColumn);
    if (zEnd - zPage > 8) memcpy(&hash, zPage, 8);
  }
  if (pLog->iNo != iNo || hash != pB->hPage) forgetRead(pB);
  pB->hPage = hash;
  memset(pLog, 0, offsetof(BodyLog, aOpen));
  pLog->iPin = POSITION_MOST;
  if (zPage == 0) {
    if (pStmt != 0 && sqlite3_column_type(pStmt, iColumn) != SQLITE_NULL) {
      bxRingCorrupt(p, pErr, "_agents");
    }
    pLog->iNo = iNo;
    return;
  }
  pLog->nPage = zEnd - zPage;
  z = zEnd - zPage > 8 ? zPage + 8 : 0;
  z = bxBodyGet(z, zEnd, POSITION_MOST / CHUNK, &pLog->iOpen);
  z = bxBodyGet(z, zEnd, CHUNK - 1, &pLog->nOpen);
  z = bxBodyGet(z, zEnd, pLog->iOpen, &pLog->nLive);
  z = bxBodyGet(z, zEnd, (i64)1 << 31, &pLog->nPlace);
  if (z != 0) z = readLists(pLog, z, zEnd);
  zOpen = z;
  if (z != 0 && zEnd - z < pLog->nOpen) z = 0;
  if (z != 0) z = readSweep(&pLog->sweep, z + pLog->nOpen, zEnd);
  if (z == 0 || pLog->nPage > PAGE_MOST ||
      hash != bxBodyHash(zPage + 8, z - zPage - 8)) {
    bxRingCorrupt(p, pErr, "_agents");
    return;
  }
  memcpy(pLog->aOpen, zOpen, (size_t)pLog->nOpen);
  pLog->iNo = iNo;
}

/* Loads the log of an agent, unless it is loaded. */
BodyLog *bxBodyLog(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zSql[] = "SELECT page FROM main.@_agents WHERE no = ?1";
  RingBodies *pB = bxBodyMemory(p, pErr);
  sqlite3_stmt *pStmt;
  if (pB == 0 || pErr->rc != SQLITE_OK) return 0;
  if (pB->log.iNo == iNo &&
      pB->nChange == sqlite3_total_changes(p->base.stmts.bx->db)) {
    return &pB->log;
  }
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "i", iNo);
  if (bxStep(pStmt, pErr)) {
    bxBodyBegin(p, iNo, pStmt, 0, pErr);
  } else {
    bxRingCorrupt(p, pErr, "_agents");
  }
  bxReset(pStmt, pErr);
  return pErr->rc == SQLITE_OK ? &pB->log : 0;
}

void bxBodyOpen(Ring *p, i64 iNo, BxErr *pErr) {
  bxBodyLog(p, iNo, pErr);
}

void bxBodyPage(Ring *p, sqlite3_stmt *pStmt, int iParam, BxErr *pErr) {
  static const int aSize[] = {480, 1000, 2000, PAGE_MOST};
  RingBodies *pB = p->pBodies;
  BodyLog *pLog;
  unsigned char *z;
  i64 i, iEnd;
  if (pErr->rc != SQLITE_OK) return; /* the log may be half written */
  pLog = &pB->log;
  z = pB->aPage + 8;
  assert(pLog->iNo > 0);
  iEnd = bxBodyEnd(pLog);
  if (iEnd == 0) {
    sqlite3_bind_null(pStmt, iParam);
    return;
  }
  z = bxBodyPut(z, (sqlite3_uint64)pLog->iOpen);
  z = bxBodyPut(z, (sqlite3_uint64)pLog->nOpen);
  z = bxBodyPut(z, (sqlite3_uint64)pLog->nLive);
  z = bxBodyPut(z, (sqlite3_uint64)pLog->nPlace);
  z = bxBodyPut(z, (sqlite3_uint64)pLog->nRun);
  for (i = 0; i < pLog->nRun; i++) {
    z = bxBodyPut(z, (sqlite3_uint64)pLog->aRun[i][0]);
    z = bxBodyPut(z, (sqlite3_uint64)pLog->aRun[i][1]);
  }
  z = bxBodyPut(z, (sqlite3_uint64)pLog->nHead);
  for (i = 0; i < pLog->nHead; i++) {
    const BodyHead *pHead = &pLog->aHead[i];
    z = bxBodyPut(z, (sqlite3_uint64)(iEnd - pHead->iAt));
    z = bxBodyPut(z, (sqlite3_uint64)pHead->n);
    z = bxBodyPut(z, (sqlite3_uint64)(pHead->iAt - pHead->iRoot));
    z = bxBodyPut(z, (sqlite3_uint64)pHead->nDepth);
    z = bxBodyPut(z, pHead->hStart);
    memcpy(z, &pHead->sum, 8);
    z += 8;
  }
  memcpy(z, pLog->aOpen, (size_t)pLog->nOpen);
  z = putSweep(&pLog->sweep, z + pLog->nOpen);
  pB->hPage = bxBodyHash(pB->aPage + 8, z - pB->aPage - 8);
  memcpy(pB->aPage, &pB->hPage, 8);
  assert(z - pB->aPage <= PAGE_MOST);
  for (i = 0; aSize[i] < z - pB->aPage || aSize[i] < pLog->nPage; i++) {
  }
  memset(z, 0, (size_t)(pB->aPage + aSize[i] - z));
  pLog->nPage = aSize[i];
  sqlite3_bind_blob(pStmt, iParam, pB->aPage, aSize[i], SQLITE_STATIC);
}

void bxBodyStore(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_agents SET page = ?2 WHERE no = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxBind(pStmt, pErr, "i", p->pBodies->log.iNo);
  bxBodyPage(p, pStmt, 2, pErr);
  bxStmtRun(pStmt, pErr);
  p->pBodies->nChange = sqlite3_total_changes(p->base.stmts.bx->db);
}

/*-------------------------------------------------------------- chunks ----*/

/* The id of the row of a chunk that is there. */
static i64 rowOfChunk(const BodyLog *p, i64 iChunk) {
  i64 i, k = iChunk - (p->iOpen - p->nLive);
  assert(k >= 0 && k < p->nLive);
  for (i = 0; k >= p->aRun[i][1]; i++) k -= p->aRun[i][1];
  return p->iNo << 32 | (p->aRun[i][0] + k);
}

static const char zPutChunk[] =
    "REPLACE INTO main.@_texts(id, body) VALUES(?1, ?2)";

void bxBodyPutChunk(Ring *p, i64 iChunk, const unsigned char *z, BxErr *pErr) {
  unsigned char a[CHUNK + 8];
  sqlite3_uint64 hash = bxHashMix(bxBodyHash(z, CHUNK), (sqlite3_uint64)iChunk);
  assert(iChunk >= 0 && z != 0);
  memcpy(a, z, CHUNK);
  memcpy(a + CHUNK, &hash, 8);
  bxStmtExec(&p->base.stmts, zPutChunk, pErr, "ix",
      rowOfChunk(&p->pBodies->log, iChunk), a, (i64)sizeof(a));
}

/* A query of the chunks from iFirst to *piLast, but only of those in one run, of which
** *piLast gets the last one. A row is *piRow more than its chunk. */
static sqlite3_stmt *queryChunks(
    Ring *p, i64 iFirst, i64 *piLast, i64 *piRow, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, body FROM main.@_texts WHERE id BETWEEN ?1 AND ?2";
  const BodyLog *pLog = &p->pBodies->log;
  i64 iEnd = pLog->iOpen - pLog->nLive;
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  int i = 0;
  assert(iFirst >= iEnd && iFirst < pLog->iOpen);
  while ((iEnd += pLog->aRun[i][1]) <= iFirst) i++;
  *piRow = rowOfChunk(pLog, iFirst) - iFirst;
  if (*piLast >= iEnd) *piLast = iEnd - 1;
  bxBind(pStmt, pErr, "ii", *piRow + iFirst, *piRow + *piLast);
  return pStmt;
}

/* The chunk of a row, if it is whole. */
static const unsigned char *wholeChunk(sqlite3_stmt *pStmt, i64 iChunk) {
  const unsigned char *z = sqlite3_column_blob(pStmt, 1);
  sqlite3_uint64 hash;
  if (z == 0 || sqlite3_column_bytes(pStmt, 1) != CHUNK + 8) return 0;
  memcpy(&hash, z + CHUNK, 8);
  return hash == bxHashMix(bxBodyHash(z, CHUNK), (sqlite3_uint64)iChunk) ? z
                                                                         : 0;
}

static int isThere(const BodyLog *p, i64 iChunk) {
  return iChunk >= p->iOpen - p->nLive && iChunk < p->iOpen;
}

void bxBodyLoad(Ring *p, i64 i, i64 iTo, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  for (; i <= iTo && pErr->rc == SQLITE_OK; i++) {
    i64 iLast = iTo, iRow;
    sqlite3_stmt *pStmt;
    if (!isThere(&pB->log, i) || KEPT_CHUNK(pB, i)->iChunk == i) continue;
    pStmt = queryChunks(p, i, &iLast, &iRow, pErr);
    while (bxStep(pStmt, pErr)) {
      i64 iChunk = sqlite3_column_int64(pStmt, 0) - iRow;
      const unsigned char *z = wholeChunk(pStmt, iChunk);
      if (z == 0) continue;
      memcpy(KEPT_CHUNK(pB, iChunk)->a, z, CHUNK);
      KEPT_CHUNK(pB, iChunk)->iChunk = iChunk;
    }
    bxReset(pStmt, pErr);
    i = iLast;
  }
}

unsigned char *bxBodyGetChunk(Ring *p, i64 iChunk, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  BodyChunk *pKept = KEPT_CHUNK(pB, iChunk);
  assert(iChunk >= 0 || pErr->rc != SQLITE_OK);
  if (pErr->rc != SQLITE_OK) return 0;
  if (pKept->iChunk != iChunk) bxBodyLoad(p, iChunk, iChunk, pErr);
  if (pErr->rc == SQLITE_OK && pKept->iChunk != iChunk) bxBodyDamaged(p, pErr);
  return pErr->rc == SQLITE_OK ? pKept->a : 0;
}

/* Reads the chunks that are there from the one with position i on, as many as are in one
** run and have the n bytes from there on. Returns how many bytes. */
static i64 readChunks(Ring *p, i64 i, i64 n, unsigned char *zOut, BxErr *pErr) {
  i64 iChunk = i / CHUNK, iLast = (i + n - 1) / CHUNK, iRow, nRead = 0;
  sqlite3_stmt *pStmt;
  if (!isThere(&p->pBodies->log, iChunk)) return 0;
  pStmt = queryChunks(p, iChunk, &iLast, &iRow, pErr);
  while (bxStep(pStmt, pErr)) {
    i64 iIn = (i + nRead) % CHUNK;
    i64 nIn = n - nRead < CHUNK - iIn ? n - nRead : CHUNK - iIn;
    const unsigned char *z = wholeChunk(pStmt, iChunk);
    if (z == 0 || sqlite3_column_int64(pStmt, 0) != iRow + iChunk++) break;
    memcpy(zOut + nRead, z + iIn, (size_t)nIn);
    nRead += nIn;
  }
  bxReset(pStmt, pErr);
  return nRead;
}

/* Reads n bytes of the loaded log from position i on. */
void bxBodyRead(Ring *p, i64 i, i64 n, unsigned char *zOut, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  if (pErr->rc == SQLITE_OK &&
      (i < 0 || n < 0 || i > bxBodyEnd(&pB->log) - n)) {
    bxBodyDamaged(p, pErr);
  }
  while (n > 0 && pErr->rc == SQLITE_OK) {
    i64 iChunk = i / CHUNK, iIn = i % CHUNK;
    i64 nIn = n < CHUNK - iIn ? n : CHUNK - iIn;
    const unsigned char *z = 0;
    if (iChunk == pB->log.iOpen) {
      z = pB->log.aOpen;
    } else if (n == nIn || KEPT_CHUNK(pB, iChunk)->iChunk == iChunk) {
      z = bxBodyGetChunk(p, iChunk, pErr);
    } else if ((nIn = readChunks(p, i, n, zOut, pErr)) == 0) {
      bxBodyDamaged(p, pErr);
    }
    if (z != 0) memcpy(zOut, z + iIn, (size_t)nIn);
    i += nIn;
    n -= nIn;
    zOut += nIn;
  }
}

void bxBodyRecord(Ring *p, i64 iAt, BodyRecord *pOut, BxErr *pErr) {
  unsigned char a[32];
  const unsigned char *z = a, *zEnd;
  i64 n = bxBodyEnd(&p->pBodies->log) - iAt, iBack;
  if (n > (i64)sizeof(a)) n = sizeof(a);
  memset(pOut, 0, sizeof(*pOut));
  pOut->iParent = -1;
  bxBodyRead(p, iAt, n, a, pErr);
  if (pErr->rc != SQLITE_OK) return;
  zEnd = a + n;
  z = bxBodyGet(z, zEnd, (i64)1 << 31, &pOut->nOwn);
  z = bxBodyGet(z, zEnd, iAt, &iBack);
  if (iBack > 0) z = bxBodyGet(z, zEnd, (i64)1 << 31, &pOut->nShared);
  if (z == 0) {
    bxBodyDamaged(p, pErr);
    return;
  }
  if (iBack > 0) pOut->iParent = iAt - iBack;
  pOut->iOwn = iAt + (z - a);
}

/*--------------------------------------------------------------- places ----*/

int bxBodyRef(const void *pBlob, i64 n, BodyRef *pOut) {
  const unsigned char *z = pBlob, *zEnd;
  memset(pOut, 0, sizeof(*pOut));
  if (z == 0 || n < 1 || *z > BODY_BLOB_AT) return 0;
  zEnd = z + n;
  pOut->eKind = *z++;
  if (pOut->eKind == BODY_BLOB) return 1;
  z = bxBodyGet(z, zEnd, POSITION_MOST, &pOut->iAt);
  z = bxBodyGet(z, zEnd, (i64)1 << 31, &pOut->n);
  z = bxBodyGet(z, zEnd, pOut->iAt, &pOut->iRoot);
  return z == zEnd && pOut->n > 0;
}

int bxBodyRefOf(sqlite3_stmt *pStmt, int i, BodyRef *pOut) {
  sqlite3_value *pVal = sqlite3_column_value(pStmt, i);
  return sqlite3_value_type(pVal) == SQLITE_BLOB &&
         bxBodyRef(sqlite3_value_blob(pVal), sqlite3_value_bytes(pVal), pOut) &&
         pOut->eKind != BODY_BLOB;
}

void bxBodyDropHead(BodyLog *p, i64 i) {
  assert(i >= 0 && i < p->nHead);
  p->nHead--;
  memmove(&p->aHead[i], &p->aHead[i + 1],
      sizeof(p->aHead[0]) * (size_t)(p->nHead - i));
}

/* The chunks before position iFirst are free. Their heads go. */
void bxBodyFreeBefore(BodyLog *p, i64 iFirst) {
  i64 i, n, nFree;
  if (iFirst > p->iPin) iFirst = p->iPin;
  nFree = iFirst / CHUNK - (p->iOpen - p->nLive);
  if (nFree > p->nLive) nFree = p->nLive;
  while (nFree > 0) {
    n = nFree < p->aRun[0][1] ? nFree : p->aRun[0][1];
    p->aRun[0][0] += n;
    p->aRun[0][1] -= n;
    p->nLive -= n;
    nFree -= n;
    if (p->aRun[0][1] > 0) continue;
    p->nRun--;
    memmove(p->aRun, p->aRun + 1, sizeof(p->aRun[0]) * (size_t)p->nRun);
  }
  for (i = 0; i < p->nHead; i++) {
    if (p->aHead[i].iRoot < (p->iOpen - p->nLive) * CHUNK)
      bxBodyDropHead(p, i--);
  }
}

/* The end of the highest run. */
static i64 highest(const BodyLog *p) {
  i64 i, iHigh = 0;
  for (i = 0; i < p->nRun; i++) {
    i64 iEnd = p->aRun[i][0] + p->aRun[i][1];
    if (iEnd > iHigh) iHigh = iEnd;
  }
  return iHigh;
}

/* Frees the chunks that no exchange needs, and gives surplus rows back. */
static void advance(Ring *p, BxErr *pErr) {
  static const char zLogRefs[] = BODY_REFS;
  static const char zDrop[] =
      "DELETE FROM main.@_texts WHERE id BETWEEN ?1 AND ?2";
  BodyLog *pLog = &p->pBodies->log;
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zLogRefs, pErr);
  i64 iFirst = POSITION_MOST, iPlace;
  BodyRef ref;
  bxBind(pStmt, pErr, "i", pLog->iNo);
  while (bxStep(pStmt, pErr)) {
    int i;
    for (i = 0; i < 2; i++) {
      if (bxBodyRefOf(pStmt, i, &ref) && ref.iRoot < iFirst) iFirst = ref.iRoot;
    }
  }
  bxReset(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxBodyFreeBefore(pLog, iFirst);
  if (pLog->nPlace <= 4 * pLog->nLive + 64) return;
  iPlace = highest(pLog);
  if (iPlace < pLog->nPlace - 64) iPlace = pLog->nPlace - 64;
  bxStmtExec(&p->base.stmts, zDrop, pErr, "ii", pLog->iNo << 32 | iPlace,
      pLog->iNo << 32 | pLog->nPlace);
  pLog->nPlace = iPlace;
}

static int isTaken(const BodyLog *p, i64 iPlace) {
  i64 i;
  for (i = 0; i < p->nRun; i++) {
    if (iPlace >= p->aRun[i][0] && iPlace < p->aRun[i][0] + p->aRun[i][1]) {
      return 1;
    }
  }
  return 0;
}

/* A place for the next chunk: the one after that of the last chunk, or the lowest
** that is free, or a new one. */
static void takePlace(BodyLog *p) {
  i64 i, iPlace = p->nPlace;
  i64 *pLast = p->nRun > 0 ? p->aRun[p->nRun - 1] : 0;
  i64 iNext = pLast != 0 ? pLast[0] + pLast[1] : 0;
  assert(p->nRun <= RUNS && p->nLive <= p->nPlace);
  if (pLast != 0 && iNext < p->nPlace && !isTaken(p, iNext)) {
    iPlace = iNext;
  } else if (p->nRun < RUNS - 1) {
    if (!isTaken(p, 0)) iPlace = 0;
    for (i = 0; i < p->nRun; i++) {
      i64 iEnd = p->aRun[i][0] + p->aRun[i][1];
      if (iEnd < iPlace && !isTaken(p, iEnd)) iPlace = iEnd;
    }
  } else {
    iPlace = highest(p);
  }
  if (iPlace >= p->nPlace) p->nPlace = iPlace + 1;
  if (pLast != 0 && iPlace == iNext) {
    pLast[1]++;
  } else {
    assert(p->nRun < RUNS);
    p->aRun[p->nRun][0] = iPlace;
    p->aRun[p->nRun++][1] = 1;
  }
  p->nLive++;
}

/* The open chunk is full. */
static void seal(Ring *p, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  assert(p->pBodies->log.nOpen == CHUNK);
  if (pLog->nLive >= pLog->nPlace || pLog->iOpen % 64 == 63) {
    advance(p, pErr);
    if (pLog->nPlace - pLog->nLive <= 1 + pLog->nPlace / 8) {
      pLog->nPlace += 1 + pLog->nPlace / 8;
    }
  }
  if (pErr->rc != SQLITE_OK) return;
  takePlace(pLog);
  pLog->iOpen++;
  pLog->nOpen = 0;
  bxBodyPutChunk(p, pLog->iOpen - 1, pLog->aOpen, pErr);
}

void bxBodyWrite(Ring *p, const unsigned char *z, i64 n, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  while (n > 0 && pErr->rc == SQLITE_OK) {
    i64 nIn = n < CHUNK - pLog->nOpen ? n : CHUNK - pLog->nOpen;
    memcpy(pLog->aOpen + pLog->nOpen, z, (size_t)nIn);
    pLog->nOpen += nIn;
    z += nIn;
    n -= nIn;
    if (pLog->nOpen == CHUNK) seal(p, pErr);
  }
}
