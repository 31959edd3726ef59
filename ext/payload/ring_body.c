/*
** ring_body.c: the bodies of the exchanges of a ring.
**
** A request of a conversation repeats the one before. So each agent has a log of
** bytes, into which a body is written as what is new in it: a record.
**
**   record: own, back [, shared] (varints), then own bytes
**
** back is how many bytes before this record its parent begins; 0: it has none. The body is the first
** shared bytes of its parent's body, then its own. A record is the parent of one
** other at most, and a chain has at most DEPTH records. The parents of new records are the heads:
** the newest requests of up to four conversations. A request that shares less than
** a quarter with each of them begins a chain.
**
**   log:  | freed | chunk | chunk | ... | chunk | open |
**                 first                         end of the log
**
** A chunk is CHUNK bytes of the log. It is a row of @_texts, whose id is no << 32 |
** place, with 8 more bytes: bxHashMix(bxHashOf(chunk), number of the chunk). What comes after the last chunk is open: it
** is in the agent's row, in column page, so that most pushes write only there:
**
**   page: hash, number of the open chunk, its bytes, chunks before it, places, runs,
**         { place, chunks }, heads, { end of the log - at, bytes, at - root,
**         depth, hash of its beginning, sum }, open bytes, zeros
**
** hash and sum have 8 bytes, the hash of a beginning 4, the other numbers are varints: 7 bits in a byte,
** the lowest first. The hash is of all after it without the zeros; a sum is of a body, so that
** a connection knows whether it has that in memory. Chunks of one size are
** overwritten in place: when all exchanges have left a chunk, its place is free. A run says which places
** the chunks after one another have. New places are made only if none is free.
**
** What a slot has in place of a body: a number, NULL, or a text is the body itself;
** a blob begins with a byte: 0 and a blob; or 1 for a text, 2 for a blob, and then
** at, bytes, root (varints): where its record is, its length, and where its chain begins.
**
** What is dead (records, and ends of them, that no exchange needs) is filled with
** zeros when an exchange is deleted, and with secure_delete also some pushes after
** exchanges rolled out.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define CHUNK 3500     /* bytes of a log in a row */
#define PAGE_MOST 3930 /* so that a row of the agents fills a page */
#define HEADS 4
#define RUNS 12
#define DEPTH 64             /* records of a chain */
#define SHORT 100            /* bytes that a slot has itself */
#define SHARED_LEAST 256     /* bytes */
#define AGENTS_KEPT 64       /* agents whose heads are in memory */
#define KEPT_MOST (16 << 20) /* bytes of them */
#define CHUNKS_KEPT 8
#define POSITION_MOST ((i64)1 << 56)
#define DIRTY_MOST 16

enum { BODY_BLOB, BODY_TEXT_AT, BODY_BLOB_AT };

/* A body that was put together, and its record. sum: that of a head. */
typedef struct BodyText {
  unsigned char *z;
  i64 nAlloc, n; /* n 0: none */
  i64 iAt, iParent, nShared;
  sqlite3_uint64 sum;
} BodyText;

typedef struct BodyHead {
  i64 iAt, n, iRoot, nDepth;
  sqlite3_uint64 hStart, sum;
} BodyHead;

typedef struct BodyLog {
  i64 iNo;         /* the agent; 0: none is loaded */
  i64 iOpen;       /* number of the open chunk */
  i64 nOpen;       /* bytes of it */
  i64 nLive;       /* chunks before it that are there */
  i64 nPlace;      /* places for chunks */
  i64 nRun, nHead, /* used of these: */
      aRun[RUNS][2];
  BodyHead aHead[HEADS];
  i64 nPage; /* bytes of its column page */
  i64 iPin;  /* a root that is being written */
  unsigned char aOpen[CHUNK];
} BodyLog;

typedef struct BodyRef {
  int eKind;
  i64 iAt, n, iRoot;
} BodyRef;

typedef struct BodyRecord {
  i64 iOwn, nOwn; /* where its bytes are, and how many */
  i64 iParent;    /* -1: none */
  i64 nShared;
} BodyRecord;

struct RingBodies {
  BodyLog log;
  int nChange; /* of the connection, when the log was loaded */
  sqlite3_uint64 hPage;
  struct {
    i64 iNo;
    BodyText a[HEADS];
  } aKept[AGENTS_KEPT];
  i64 nKept;
  BodyText aRead[2]; /* the last request and response that were read */
  struct {
    i64 iChunk; /* -1: none */
    unsigned char a[CHUNK];
  } aChunk[CHUNKS_KEPT];
  i64 aDirty[DIRTY_MOST]; /* agents of which exchanges were deleted */
  int nDirty;
  unsigned char aPage[PAGE_MOST];
};

/*------------------------------------------------------------- numbers ----*/

static unsigned char *bodyPutNumber(unsigned char *z, sqlite3_uint64 u) {
  for (; u > 127; u >>= 7) *z++ = (unsigned char)(u | 128);
  *z++ = (unsigned char)u;
  return z;
}

/* Returns where it ends; NULL if there is none before zEnd, or above iMost. */
static const unsigned char *bodyGetNumber(
    const unsigned char *z, const unsigned char *zEnd, i64 iMost, i64 *piOut) {
  sqlite3_uint64 u = 0;
  int iShift = 0;
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

static sqlite3_uint64 bodyHash(const unsigned char *z, i64 n) {
  return bxHashOf((const char *)z, n);
}

static i64 endOf(const BodyLog *p) {
  return p->iOpen * CHUNK + p->nOpen;
}

static void damaged(Ring *p, BxErr *pErr) {
  bxRingCorrupt(p, pErr, "_texts");
}

/*-------------------------------------------------------------- memory ----*/

static RingBodies *bodies(Ring *p, BxErr *pErr) {
  if (p->pBodies == 0) p->pBodies = bxNew(sizeof(RingBodies), pErr);
  return p->pBodies;
}

static void freeText(RingBodies *p, BodyText *pText, int bKept) {
  if (bKept) p->nKept -= pText->nAlloc;
  sqlite3_free(pText->z);
  memset(pText, 0, sizeof(*pText));
}

static void freeKept(RingBodies *p, i64 iBut) {
  int i, k;
  for (i = 0; i < AGENTS_KEPT; i++) {
    if (i == iBut) continue;
    for (k = 0; k < HEADS; k++) freeText(p, &p->aKept[i].a[k], 1);
  }
}

static void forgetRead(RingBodies *p) {
  int i;
  p->aRead[0].n = p->aRead[1].n = 0;
  for (i = 0; i < CHUNKS_KEPT; i++) p->aChunk[i].iChunk = -1;
}

void bxBodyForget(Ring *p) {
  if (p->pBodies != 0) p->pBodies->log.iNo = 0;
}

void bxBodyFree(Ring *p) {
  if (p->pBodies == 0) return;
  freeKept(p->pBodies, -1);
  freeText(p->pBodies, &p->pBodies->aRead[0], 0);
  freeText(p->pBodies, &p->pBodies->aRead[1], 0);
  sqlite3_free(p->pBodies);
  p->pBodies = 0;
}

/* Makes room for n bytes. */
static unsigned char *roomFor(
    RingBodies *p, BodyText *pText, i64 n, int bKept, BxErr *pErr) {
  i64 nBefore = pText->nAlloc;
  unsigned char *z;
  if (pErr->rc != SQLITE_OK) return 0;
  if (n <= nBefore) return pText->z;
  z = bxGot(
      sqlite3_realloc64(pText->z, (sqlite3_uint64)(n + n / 4 + 256)), pErr);
  if (z == 0) return 0;
  pText->z = z;
  pText->nAlloc = n + n / 4 + 256;
  if (bKept) p->nKept += pText->nAlloc - nBefore;
  return z;
}

/*---------------------------------------------------------------- page ----*/

/* The runs and heads. Returns where they end, or NULL. */
static const unsigned char *readLists(
    BodyLog *p, const unsigned char *z, const unsigned char *zEnd) {
  i64 i, k, n, nLive = 0, iEnd = endOf(p), iHash;
  z = bodyGetNumber(z, zEnd, RUNS, &p->nRun);
  for (i = 0; i < p->nRun && z != 0; i++) {
    z = bodyGetNumber(z, zEnd, p->nPlace, &p->aRun[i][0]);
    z = bodyGetNumber(z, zEnd, p->nPlace - p->aRun[i][0], &n);
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
  z = bodyGetNumber(z, zEnd, HEADS, &p->nHead);
  for (i = 0; i < p->nHead && z != 0; i++) {
    BodyHead *pHead = &p->aHead[i];
    z = bodyGetNumber(z, zEnd, iEnd - (p->iOpen - p->nLive) * CHUNK, &n);
    pHead->iAt = iEnd - n;
    z = bodyGetNumber(z, zEnd, (i64)1 << 31, &pHead->n);
    z = bodyGetNumber(z, zEnd, pHead->iAt, &n);
    pHead->iRoot = pHead->iAt - n;
    z = bodyGetNumber(z, zEnd, DEPTH, &pHead->nDepth);
    z = bodyGetNumber(z, zEnd, 0xffffffff, &iHash);
    pHead->hStart = (sqlite3_uint64)iHash;
    if (z == 0 || zEnd - z < 8) return 0;
    memcpy(&pHead->sum, z, 8);
    z += 8;
  }
  return z;
}

void bxBodyBegin(
    Ring *p, i64 iNo, sqlite3_stmt *pStmt, int iColumn, BxErr *pErr) {
  RingBodies *pB = bodies(p, pErr);
  const unsigned char *zPage, *z, *zEnd = 0;
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
  z = bodyGetNumber(z, zEnd, POSITION_MOST / CHUNK, &pLog->iOpen);
  z = bodyGetNumber(z, zEnd, CHUNK - 1, &pLog->nOpen);
  z = bodyGetNumber(z, zEnd, pLog->iOpen, &pLog->nLive);
  z = bodyGetNumber(z, zEnd, (i64)1 << 31, &pLog->nPlace);
  if (z != 0) z = readLists(pLog, z, zEnd);
  if (z == 0 || zEnd - z < pLog->nOpen || pLog->nPage > PAGE_MOST ||
      hash != bodyHash(zPage + 8, z + pLog->nOpen - zPage - 8)) {
    bxRingCorrupt(p, pErr, "_agents");
    return;
  }
  memcpy(pLog->aOpen, z, (size_t)pLog->nOpen);
  pLog->iNo = iNo;
}

/* Loads the log of an agent, unless it is loaded. */
static BodyLog *needLog(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zSql[] = "SELECT page FROM main.@_agents WHERE no = ?1";
  RingBodies *pB = bodies(p, pErr);
  sqlite3_stmt *pStmt;
  if (pB == 0 || pErr->rc != SQLITE_OK) return 0;
  if (pB->log.iNo == iNo &&
      pB->nChange == sqlite3_total_changes(p->base.stmts.bx->db)) {
    return &pB->log;
  }
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "i", iNo);
  if (bxRow(pStmt, pErr)) {
    bxBodyBegin(p, iNo, pStmt, 0, pErr);
  } else {
    bxRingCorrupt(p, pErr, "_agents");
  }
  bxDone(pStmt, pErr);
  return pErr->rc == SQLITE_OK ? &pB->log : 0;
}

void bxBodyOpen(Ring *p, i64 iNo, BxErr *pErr) {
  needLog(p, iNo, pErr);
}

void bxBodyPage(Ring *p, sqlite3_stmt *pStmt, int iParam, BxErr *pErr) {
  static const int aSize[] = {480, 1000, 2000, PAGE_MOST};
  RingBodies *pB = p->pBodies;
  BodyLog *pLog = &pB->log;
  unsigned char *z = pB->aPage + 8;
  i64 i, iEnd = endOf(pLog);
  if (pErr->rc != SQLITE_OK) return;
  assert(pLog->iNo > 0);
  if (iEnd == 0) {
    sqlite3_bind_null(pStmt, iParam);
    return;
  }
  z = bodyPutNumber(z, (sqlite3_uint64)pLog->iOpen);
  z = bodyPutNumber(z, (sqlite3_uint64)pLog->nOpen);
  z = bodyPutNumber(z, (sqlite3_uint64)pLog->nLive);
  z = bodyPutNumber(z, (sqlite3_uint64)pLog->nPlace);
  z = bodyPutNumber(z, (sqlite3_uint64)pLog->nRun);
  for (i = 0; i < pLog->nRun; i++) {
    z = bodyPutNumber(z, (sqlite3_uint64)pLog->aRun[i][0]);
    z = bodyPutNumber(z, (sqlite3_uint64)pLog->aRun[i][1]);
  }
  z = bodyPutNumber(z, (sqlite3_uint64)pLog->nHead);
  for (i = 0; i < pLog->nHead; i++) {
    const BodyHead *pHead = &pLog->aHead[i];
    z = bodyPutNumber(z, (sqlite3_uint64)(iEnd - pHead->iAt));
    z = bodyPutNumber(z, (sqlite3_uint64)pHead->n);
    z = bodyPutNumber(z, (sqlite3_uint64)(pHead->iAt - pHead->iRoot));
    z = bodyPutNumber(z, (sqlite3_uint64)pHead->nDepth);
    z = bodyPutNumber(z, pHead->hStart);
    memcpy(z, &pHead->sum, 8);
    z += 8;
  }
  memcpy(z, pLog->aOpen, (size_t)pLog->nOpen);
  z += pLog->nOpen;
  pB->hPage = bodyHash(pB->aPage + 8, z - pB->aPage - 8);
  memcpy(pB->aPage, &pB->hPage, 8);
  assert(z - pB->aPage <= PAGE_MOST);
  for (i = 0; aSize[i] < z - pB->aPage || aSize[i] < pLog->nPage; i++) {
  }
  memset(z, 0, (size_t)(pB->aPage + aSize[i] - z));
  pLog->nPage = aSize[i];
  sqlite3_bind_blob(pStmt, iParam, pB->aPage, aSize[i], SQLITE_STATIC);
}

static void storePage(Ring *p, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_agents SET page = ?2 WHERE no = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxBind(pStmt, pErr, "i", p->pBodies->log.iNo);
  bxBodyPage(p, pStmt, 2, pErr);
  bxRun(pStmt, pErr);
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

static void putChunk(Ring *p, i64 iChunk, const unsigned char *z, BxErr *pErr) {
  unsigned char a[CHUNK + 8];
  sqlite3_uint64 hash = bxHashMix(bodyHash(z, CHUNK), (sqlite3_uint64)iChunk);
  memcpy(a, z, CHUNK);
  memcpy(a + CHUNK, &hash, 8);
  bxDo(&p->base.stmts, zPutChunk, pErr, "ix",
      rowOfChunk(&p->pBodies->log, iChunk), a, (i64)sizeof(a));
}

static unsigned char *getChunk(Ring *p, i64 iChunk, BxErr *pErr) {
  static const char zSql[] = "SELECT body FROM main.@_texts WHERE id = ?1";
  RingBodies *pB = p->pBodies;
  const unsigned char *z = 0;
  int i = (int)(iChunk % CHUNKS_KEPT);
  sqlite3_uint64 hash;
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK) return 0;
  if (pB->aChunk[i].iChunk == iChunk) return pB->aChunk[i].a;
  if (iChunk < pB->log.iOpen - pB->log.nLive || iChunk >= pB->log.iOpen) {
    damaged(p, pErr);
    return 0;
  }
  pB->aChunk[i].iChunk = -1;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "i", rowOfChunk(&pB->log, iChunk));
  if (bxRow(pStmt, pErr)) z = sqlite3_column_blob(pStmt, 0);
  if (z != 0 && sqlite3_column_bytes(pStmt, 0) == CHUNK + 8) {
    memcpy(pB->aChunk[i].a, z, CHUNK);
    memcpy(&hash, z + CHUNK, 8);
    if (hash == bxHashMix(bodyHash(z, CHUNK), (sqlite3_uint64)iChunk)) {
      pB->aChunk[i].iChunk = iChunk;
    }
  }
  bxDone(pStmt, pErr);
  if (pErr->rc == SQLITE_OK && pB->aChunk[i].iChunk < 0) damaged(p, pErr);
  return pErr->rc == SQLITE_OK ? pB->aChunk[i].a : 0;
}

/* Reads n bytes of the loaded log from position i on. */
static void readLog(Ring *p, i64 i, i64 n, unsigned char *zOut, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  if (pErr->rc == SQLITE_OK && (i < 0 || n < 0 || i > endOf(pLog) - n)) {
    damaged(p, pErr);
  }
  while (n > 0 && pErr->rc == SQLITE_OK) {
    i64 iChunk = i / CHUNK, iIn = i % CHUNK;
    i64 nIn = n < CHUNK - iIn ? n : CHUNK - iIn;
    const unsigned char *z =
        iChunk == pLog->iOpen ? pLog->aOpen : getChunk(p, iChunk, pErr);
    if (z != 0) memcpy(zOut, z + iIn, (size_t)nIn);
    i += nIn;
    n -= nIn;
    zOut += nIn;
  }
}

static void readRecord(Ring *p, i64 iAt, BodyRecord *pOut, BxErr *pErr) {
  unsigned char a[32];
  const unsigned char *z = a, *zEnd;
  i64 n = endOf(&p->pBodies->log) - iAt, iBack;
  if (n > (i64)sizeof(a)) n = sizeof(a);
  memset(pOut, 0, sizeof(*pOut));
  pOut->iParent = -1;
  readLog(p, iAt, n, a, pErr);
  if (pErr->rc != SQLITE_OK) return;
  zEnd = a + n;
  z = bodyGetNumber(z, zEnd, (i64)1 << 31, &pOut->nOwn);
  z = bodyGetNumber(z, zEnd, iAt, &iBack);
  if (iBack > 0) z = bodyGetNumber(z, zEnd, (i64)1 << 31, &pOut->nShared);
  if (z == 0) {
    damaged(p, pErr);
    return;
  }
  if (iBack > 0) pOut->iParent = iAt - iBack;
  pOut->iOwn = iAt + (z - a);
}

/*------------------------------------------------------------- reading ----*/

/* Puts a body together in pText. What it has in common with the one that is
** there stays, if that is in its chain, or its child. */
static void buildText(
    Ring *p, i64 iAt, i64 n, BodyText *pText, int bKept, BxErr *pErr) {
  BodyText was = *pText;
  unsigned char *z = roomFor(p->pBodies, pText, n, bKept, pErr);
  i64 iNext = iAt, nNeed = n;
  pText->n = 0;
  if (was.n == 0) was.iAt = was.iParent = -1;
  while (nNeed > 0 && pErr->rc == SQLITE_OK) {
    BodyRecord record;
    i64 nFrom;
    if (iNext == was.iAt && iNext != iAt) {
      if (nNeed > was.n) damaged(p, pErr);
      break;
    }
    readRecord(p, iNext, &record, pErr);
    nFrom = record.nShared;
    if (pErr->rc == SQLITE_OK &&
        (nNeed > record.nShared + record.nOwn ||
            (iNext == iAt && n != record.nShared + record.nOwn) ||
            (record.nShared > 0 && record.iParent < 0))) {
      damaged(p, pErr);
    }
    if (pErr->rc != SQLITE_OK) return;
    if (iNext == iAt) {
      pText->iAt = iAt;
      pText->iParent = record.iParent;
      pText->nShared = record.nShared;
      if (iNext == was.iAt && n == was.n) break;
    }
    if (iNext == was.iParent && was.nShared > nFrom) nFrom = was.nShared;
    if (nFrom < nNeed) {
      readLog(p, record.iOwn + nFrom - record.nShared, nNeed - nFrom, z + nFrom,
          pErr);
      nNeed = nFrom;
    }
    if (iNext == was.iParent) {
      if (was.nShared >= record.nShared || was.nShared >= nNeed) break;
      was.iParent = record.iParent; /* which begins with the same bytes */
    }
    if (nNeed > record.nShared) nNeed = record.nShared;
    iNext = record.iParent;
  }
  if (pErr->rc == SQLITE_OK) pText->n = n;
}

static int readRef(const void *pBlob, i64 n, BodyRef *pOut) {
  const unsigned char *z = pBlob, *zEnd = z + n;
  memset(pOut, 0, sizeof(*pOut));
  if (z == 0 || n < 1 || *z > BODY_BLOB_AT) return 0;
  pOut->eKind = *z++;
  if (pOut->eKind == BODY_BLOB) return 1;
  z = bodyGetNumber(z, zEnd, POSITION_MOST, &pOut->iAt);
  z = bodyGetNumber(z, zEnd, (i64)1 << 31, &pOut->n);
  z = bodyGetNumber(z, zEnd, pOut->iAt, &pOut->iRoot);
  return z == zEnd && pOut->n > 0;
}

void bxBodyResult(Ring *p, sqlite3_context *pCtx, i64 iNo, sqlite3_value *pVal,
    int mFlags, BxErr *pErr) {
  const unsigned char *zVal;
  BodyText *pText;
  BodyRef ref;
  if (sqlite3_value_type(pVal) != SQLITE_BLOB) {
    sqlite3_result_value(pCtx, pVal);
    return;
  }
  zVal = sqlite3_value_blob(pVal);
  if (!readRef(zVal, sqlite3_value_bytes(pVal), &ref)) {
    bxRingCorrupt(p, pErr, "_slots");
    return;
  }
  if (ref.eKind == BODY_BLOB) {
    if (mFlags & BODY_AS_KEPT) {
      sqlite3_result_value(pCtx, pVal);
    } else {
      sqlite3_result_blob(
          pCtx, zVal + 1, sqlite3_value_bytes(pVal) - 1, SQLITE_TRANSIENT);
    }
    return;
  }
  if (needLog(p, iNo, pErr) == 0) return;
  pText = &p->pBodies->aRead[!!(mFlags & BODY_RESPONSE)];
  buildText(p, ref.iAt, ref.n, pText, 0, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (ref.eKind == BODY_TEXT_AT) {
    sqlite3_result_text64(pCtx, (const char *)pText->z,
        (sqlite3_uint64)pText->n, SQLITE_TRANSIENT, SQLITE_UTF8);
  } else if (!(mFlags & BODY_AS_KEPT)) {
    sqlite3_result_blob64(
        pCtx, pText->z, (sqlite3_uint64)pText->n, SQLITE_TRANSIENT);
  } else if (roomFor(p->pBodies, pText, pText->n + 1, 0, pErr) != 0) {
    memmove(pText->z + 1, pText->z, (size_t)pText->n);
    pText->z[0] = BODY_BLOB;
    sqlite3_result_blob64(
        pCtx, pText->z, (sqlite3_uint64)pText->n + 1, SQLITE_TRANSIENT);
    pText->n = 0;
  }
}

/* payload__body(ring, id, body, flags): bxBodyResult() in a query of slots. The ring
** is a pointer, so that nobody else calls it. */
static void bodyFunction(
    sqlite3_context *pCtx, int argc, sqlite3_value **argv) {
  Ring *p = sqlite3_value_pointer(argv[0], "payload_ring");
  BxErr err = {SQLITE_OK, 0};
  (void)argc;
  if (p == 0) return;
  bxBodyResult(p, pCtx, sqlite3_value_int64(argv[1]) >> 29, argv[2],
      sqlite3_value_int(argv[3]), &err);
  if (err.rc != SQLITE_OK) bxReport(&err, pCtx);
}

int bxBodyRegister(sqlite3 *db) {
  return sqlite3_create_function_v2(db, "payload__body", 4,
      SQLITE_UTF8 | SQLITE_DIRECTONLY, 0, bodyFunction, 0, 0, 0);
}

void bxBodyUse(Ring *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  bxBodyForget(p);
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_bind_pointer(pStmt, 9, p, "payload_ring", 0);
}

/*--------------------------------------------------------------- places ----*/

#define BODY_SLOTS                                                             \
  " FROM main.@_slots WHERE id BETWEEN ?1 << 29 AND (?1 << 29) + 536870911 "

/* The references of an agent's slots, one after the other. */
static const char zRefs[] =
    "SELECT request_body, response_body" BODY_SLOTS
    "AND 'blob' IN (typeof(request_body), typeof(response_body))";

static int refOf(sqlite3_stmt *pStmt, int i, BodyRef *pOut) {
  return sqlite3_column_type(pStmt, i) == SQLITE_BLOB &&
         readRef(sqlite3_column_blob(pStmt, i), sqlite3_column_bytes(pStmt, i),
             pOut) &&
         pOut->eKind != BODY_BLOB;
}

static void dropHead(BodyLog *p, i64 i) {
  p->nHead--;
  memmove(&p->aHead[i], &p->aHead[i + 1],
      sizeof(p->aHead[0]) * (size_t)(p->nHead - i));
}

/* The chunks before position iFirst are free. Their heads go. */
static void freeBefore(BodyLog *p, i64 iFirst) {
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
    if (p->aHead[i].iRoot < (p->iOpen - p->nLive) * CHUNK) dropHead(p, i--);
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
  static const char zDrop[] =
      "DELETE FROM main.@_texts WHERE id BETWEEN ?1 AND ?2";
  BodyLog *pLog = &p->pBodies->log;
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zRefs, pErr);
  i64 iFirst = POSITION_MOST, iPlace;
  BodyRef ref;
  bxBind(pStmt, pErr, "i", pLog->iNo);
  while (bxRow(pStmt, pErr)) {
    int i;
    for (i = 0; i < 2; i++) {
      if (refOf(pStmt, i, &ref) && ref.iRoot < iFirst) iFirst = ref.iRoot;
    }
  }
  bxDone(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return;
  freeBefore(pLog, iFirst);
  if (pLog->nPlace <= 4 * pLog->nLive + 64) return;
  iPlace = highest(pLog);
  if (iPlace < pLog->nPlace - 64) iPlace = pLog->nPlace - 64;
  bxDo(&p->base.stmts, zDrop, pErr, "ii", pLog->iNo << 32 | iPlace,
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
  if (pLog->nLive >= pLog->nPlace || pLog->iOpen % 64 == 63) {
    advance(p, pErr);
    if (pLog->nPlace - pLog->nLive <= pLog->nPlace / 8) {
      pLog->nPlace += 1 + pLog->nPlace / 8;
    }
  }
  if (pErr->rc != SQLITE_OK) return;
  takePlace(pLog);
  pLog->iOpen++;
  pLog->nOpen = 0;
  putChunk(p, pLog->iOpen - 1, pLog->aOpen, pErr);
}

static void writeLog(Ring *p, const unsigned char *z, i64 n, BxErr *pErr) {
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

/*------------------------------------------------------------- writing ----*/

/* How many bytes are equal. */
static i64 common(const unsigned char *a, const unsigned char *b, i64 n) {
  i64 i = 0, nStep = 4096;
  for (; nStep > 0; nStep /= 8) {
    while (i + nStep <= n && memcmp(a + i, b + i, (size_t)nStep) == 0) {
      i += nStep;
    }
  }
  return i;
}

/* The body of head i; NULL if it cannot be read. */
static BodyText *bodyOfHead(Ring *p, int i, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  BodyLog *pLog = &pB->log;
  const BodyHead *pHead = &pLog->aHead[i];
  i64 iKept = pLog->iNo % AGENTS_KEPT;
  BodyText *a = pB->aKept[iKept].a, *pFree = 0;
  BxErr err = {SQLITE_OK, 0};
  int k;
  if (pErr->rc != SQLITE_OK) return 0;
  if (pB->aKept[iKept].iNo != pLog->iNo) {
    for (k = 0; k < HEADS; k++) a[k].n = 0;
    pB->aKept[iKept].iNo = pLog->iNo;
  }
  for (k = 0; k < HEADS; k++) {
    int bUsed = 0, m;
    if (a[k].n > 0 && a[k].sum == pHead->sum && a[k].n == pHead->n) {
      return &a[k];
    }
    for (m = 0; m < pLog->nHead; m++) {
      bUsed |= a[k].n > 0 && a[k].sum == pLog->aHead[m].sum;
    }
    if (!bUsed && (pFree == 0 || a[k].nAlloc > pFree->nAlloc)) pFree = &a[k];
  }
  assert(pFree != 0);
  pFree->n = 0;
  buildText(p, pHead->iAt, pHead->n, pFree, 1, &err);
  pFree->sum = pHead->sum;
  if ((err.rc & 0xff) == SQLITE_CORRUPT) {
    bxClear(&err);
    return 0;
  }
  bxPass(pErr, &err);
  return pErr->rc == SQLITE_OK ? pFree : 0;
}

/* The head with which a body has the most in common: its number; -1: none. */
static int findHead(Ring *p, const unsigned char *z, i64 n,
    sqlite3_uint64 hStart, i64 *pnShared, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  int i, iBest = -1;
  *pnShared = 0;
  for (i = 0; i < pLog->nHead && *pnShared < n / 2; i++) {
    const BodyHead *pHead = &pLog->aHead[i];
    BodyText *pText;
    i64 nSame;
    if (pHead->hStart != hStart) continue;
    pText = bodyOfHead(p, i, pErr);
    if (pText == 0) continue;
    nSame = common(z, pText->z, n < pText->n ? n : pText->n);
    if (nSame > *pnShared) {
      *pnShared = nSame;
      iBest = i;
    }
  }
  if (iBest < 0 || *pnShared < n / 4 || *pnShared < SHARED_LEAST ||
      pLog->aHead[iBest].nDepth >= DEPTH ||
      endOf(pLog) - pLog->aHead[iBest].iRoot > 16 * n + 65536) {
    *pnShared = 0;
    return -1;
  }
  return iBest;
}

/* The body becomes the first head, in place of head i, or of the last one for -1. */
static void setHead(Ring *p, int i, BodyHead head, const unsigned char *z,
    i64 nShared, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  BodyLog *pLog = &pB->log;
  i64 iKept = pLog->iNo % AGENTS_KEPT;
  BodyText *pText = 0, *a = pB->aKept[iKept].a;
  int k;
  if (i < 0 && pLog->nHead < HEADS) pLog->nHead++;
  k = i < 0 ? (int)pLog->nHead - 1 : i;
  for (i = 0; i < HEADS; i++) { /* the memory of the one that goes */
    if (a[i].n > 0 && a[i].sum == pLog->aHead[k].sum) pText = &a[i];
  }
  if (pText == 0) nShared = 0;
  for (i = 0; i < HEADS && pText == 0; i++) {
    int m, bUsed = 0;
    for (m = 0; m < pLog->nHead; m++) {
      bUsed |= m != k && a[i].n > 0 && a[i].sum == pLog->aHead[m].sum;
    }
    if (!bUsed) pText = &a[i];
  }
  memmove(&pLog->aHead[1], &pLog->aHead[0], sizeof(head) * (size_t)k);
  pLog->aHead[0] = head;
  if (pB->aKept[iKept].iNo != pLog->iNo) {
    for (i = 0; i < HEADS; i++) a[i].n = 0;
    pB->aKept[iKept].iNo = pLog->iNo;
  }
  assert(pText != 0);
  if (pText->n == 0) nShared = 0;
  pText->n = 0;
  if (roomFor(pB, pText, head.n, 1, pErr) == 0) return;
  memcpy(pText->z + nShared, z + nShared, (size_t)(head.n - nShared));
  pText->n = head.n;
  pText->sum = head.sum;
  pText->iAt = head.iAt;
  pText->iParent = -1;
  if (pB->nKept > KEPT_MOST) freeKept(pB, iKept);
}

void bxBodyAppend(
    Ring *p, sqlite3_value *pVal, int bShare, RingBody *pOut, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  int eType = sqlite3_value_type(pVal), iHead = -1;
  const unsigned char *z = 0;
  unsigned char a[32], *zEnd = a;
  BodyHead head = {0};
  i64 n, nShared = 0;
  pOut->n = -1;
  if (pErr->rc != SQLITE_OK) return;
  if (eType != SQLITE_TEXT && eType != SQLITE_BLOB) return;
  z = eType == SQLITE_TEXT ? sqlite3_value_text(pVal)
                           : sqlite3_value_blob(pVal);
  n = sqlite3_value_bytes(pVal);
  if (n > 0 && bxGot((void *)z, pErr) == 0) return;
  if (n <= SHORT) {
    if (eType == SQLITE_TEXT) return;
    pOut->n = 1 + (int)n;
    pOut->a[0] = BODY_BLOB;
    if (n > 0) memcpy(pOut->a + 1, z, (size_t)n);
    return;
  }
  assert(pLog->iNo > 0);
  p->pBodies->nChange = -1; /* it differs from the table */
  if (bShare) {
    head.hStart = bodyHash(z, n < SHARED_LEAST ? n : SHARED_LEAST) & 0xffffffff;
    iHead = findHead(p, z, n, head.hStart, &nShared, pErr);
  }
  head.iAt = head.iRoot = endOf(pLog);
  head.n = n;
  zEnd = bodyPutNumber(zEnd, (sqlite3_uint64)(n - nShared));
  if (iHead >= 0) {
    const BodyHead *pParent = &pLog->aHead[iHead];
    head.iRoot = pParent->iRoot;
    head.nDepth = pParent->nDepth + 1;
    head.sum = pParent->sum;
    zEnd = bodyPutNumber(zEnd, (sqlite3_uint64)(head.iAt - pParent->iAt));
    zEnd = bodyPutNumber(zEnd, (sqlite3_uint64)nShared);
  } else {
    *zEnd++ = 0;
  }
  if (head.iRoot < pLog->iPin) pLog->iPin = head.iRoot;
  if (bShare && pErr->rc == SQLITE_OK) {
    head.sum =
        bxHashMix(bxHashMix(head.sum, bodyHash(z + nShared, n - nShared)),
            (sqlite3_uint64)n);
    setHead(p, iHead, head, z, nShared, pErr);
  }
  writeLog(p, a, zEnd - a, pErr);
  writeLog(p, z + nShared, n - nShared, pErr);
  pOut->a[0] = eType == SQLITE_TEXT ? BODY_TEXT_AT : BODY_BLOB_AT;
  zEnd = bodyPutNumber(pOut->a + 1, (sqlite3_uint64)head.iAt);
  zEnd = bodyPutNumber(zEnd, (sqlite3_uint64)n);
  zEnd = bodyPutNumber(zEnd, (sqlite3_uint64)head.iRoot);
  pOut->n = (int)(zEnd - pOut->a);
}

void bxBodyBind(sqlite3_stmt *pStmt, int i, const RingBody *pBody,
    sqlite3_value *pVal, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  if (pBody->n < 0) {
    sqlite3_bind_value(pStmt, i, pVal);
  } else {
    sqlite3_bind_blob(pStmt, i, pBody->a, pBody->n, SQLITE_STATIC);
  }
}

/*---------------------------------------------------------------- zeros ----*/

typedef struct BodySpan {
  i64 iFrom, iTo; /* of the log, without iTo */
} BodySpan;

typedef struct BodySpans {
  BodySpan *a;
  i64 n, nAlloc;
  i64 nLive; /* the first ones: records of exchanges */
} BodySpans;

static void addSpan(BodySpans *p, i64 iFrom, i64 iTo, BxErr *pErr) {
  BodySpan *pSpan = bxAdd(&p->a, &p->n, &p->nAlloc, sizeof(*p->a), pErr);
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
  key.iFrom = iAt;
  return p->nLive > 0 &&
         bsearch(&key, p->a, (size_t)p->nLive, sizeof(key), compareSpans) != 0;
}

/* What the exchanges of the loaded log need of it. */
static void findSpans(Ring *p, BodySpans *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zRefs, pErr);
  BodyRecord record;
  BodyRef ref;
  unsigned char a[16];
  i64 i, iNext, nNeed;
  bxBind(pStmt, pErr, "i", p->pBodies->log.iNo);
  while (bxRow(pStmt, pErr)) {
    for (i = 0; i < 2; i++) {
      if (!refOf(pStmt, (int)i, &ref)) continue;
      /* the record of the first one of a chain has 1 byte for back */
      addSpan(pOut, ref.iAt,
          ref.iRoot != ref.iAt
              ? ref.iAt
              : ref.iAt + 1 + ref.n +
                    (bodyPutNumber(a, (sqlite3_uint64)ref.n) - a),
          pErr);
    }
  }
  bxDone(pStmt, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (pOut->n == 0) {
    p->pBodies->log.nHead = 0;
    return;
  }
  qsort(pOut->a, (size_t)pOut->n, sizeof(*pOut->a), compareSpans);
  pOut->nLive = pOut->n;
  for (i = 0; i < pOut->nLive && pErr->rc == SQLITE_OK; i++) {
    if (pOut->a[i].iTo > pOut->a[i].iFrom) continue;
    readRecord(p, pOut->a[i].iFrom, &record, pErr);
    pOut->a[i].iTo = record.iOwn + record.nOwn;
    iNext = record.iParent;
    nNeed = record.nShared;
    while (iNext >= 0 && nNeed > 0 && pErr->rc == SQLITE_OK &&
           !isLive(pOut, iNext)) {
      readRecord(p, iNext, &record, pErr);
      if (nNeed > record.nShared + record.nOwn) damaged(p, pErr);
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
      dropHead(&p->pBodies->log, i--);
    }
  }
  qsort(pOut->a, (size_t)pOut->n, sizeof(*pOut->a), compareSpans);
}

static int clearBytes(unsigned char *z, i64 n) {
  i64 i = 0;
  while (i < n && z[i] == 0) i++;
  if (i < n) memset(z + i, 0, (size_t)(n - i));
  return i < n;
}

/* Fills what is from position iFrom to iTo with zeros. */
static void clearLog(Ring *p, i64 iFrom, i64 iTo, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  while (iFrom < iTo && pErr->rc == SQLITE_OK) {
    i64 iChunk = iFrom / CHUNK, iIn = iFrom % CHUNK;
    i64 nIn = iTo - iFrom < CHUNK - iIn ? iTo - iFrom : CHUNK - iIn;
    if (iChunk == pLog->iOpen) {
      clearBytes(pLog->aOpen + iIn, nIn);
    } else {
      unsigned char *z = getChunk(p, iChunk, pErr);
      if (z != 0 && clearBytes(z + iIn, nIn)) putChunk(p, iChunk, z, pErr);
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
  while (iFrom < pLog->nPlace && pErr->rc == SQLITE_OK) {
    i64 iTo = pLog->nPlace, iNext = pLog->nPlace;
    for (i = 0; i < pLog->nRun; i++) { /* the next run */
      if (pLog->aRun[i][0] < iFrom || pLog->aRun[i][0] >= iTo) continue;
      iTo = pLog->aRun[i][0];
      iNext = iTo + pLog->aRun[i][1];
    }
    if (iFrom < iTo) {
      bxDo(&p->base.stmts, zSql, pErr, "ii", pLog->iNo << 32 | iFrom,
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
  i64 i, iFrom = endOf(pLog);
  int bDamaged;
  if (pErr->rc != SQLITE_OK) return;
  findSpans(p, &spans, &err);
  bDamaged = (err.rc & 0xff) == SQLITE_CORRUPT;
  if (bDamaged) bxClear(&err);
  bxPass(pErr, &err);
  if (pErr->rc == SQLITE_OK && !bDamaged) {
    if (spans.n > 0) iFrom = spans.a[0].iFrom;
    freeBefore(pLog, iFrom);
    iFrom = (pLog->iOpen - pLog->nLive) * CHUNK;
    for (i = 0; i < spans.n; i++) {
      clearLog(p, iFrom, spans.a[i].iFrom, pErr);
      if (spans.a[i].iTo > iFrom) iFrom = spans.a[i].iTo;
    }
    clearLog(p, iFrom, endOf(pLog), pErr);
  }
  sqlite3_free(spans.a);
}

/* Whether SQLite fills what is deleted with zeros. */
static int isSecure(Ring *p, BxErr *pErr) {
  return bxAsk(&p->base.stmts, "PRAGMA main.secure_delete", pErr, "") == 1;
}

void bxBodyRolled(Ring *p, i64 iSeq, BxErr *pErr) {
  const BodyLog *pLog = &p->pBodies->log;
  if (pErr->rc != SQLITE_OK || endOf(pLog) == 0) return;
  if (iSeq % (p->nWindow / 2 + 2) != 0 || !isSecure(p, pErr)) return;
  scrub(p, pErr);
  /* the next pushes overwrite some places */
  if (pLog->nPlace > 2 * pLog->nLive + 8) clearPlaces(p, pErr);
}

void bxBodyClear(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zPage[] =
      "UPDATE main.@_agents SET page = NULL WHERE no = ?1 AND page IS NOT NULL";
  static const char zTexts[] =
      "DELETE FROM main.@_texts WHERE id BETWEEN ?1 << 32 AND "
      "(?1 << 32) + 4294967295";
  bxDo(&p->base.stmts, zPage, pErr, "i", iNo);
  bxDo(&p->base.stmts, zTexts, pErr, "i", iNo);
  if (p->pBodies != 0 && p->pBodies->log.iNo == iNo) bxBodyForget(p);
}

void bxBodyScrub(Ring *p, i64 iNo, BxErr *pErr) {
  static const char zRows[] = "SELECT EXISTS (SELECT 1" BODY_SLOTS ")";
  BodyLog *pLog;
  if (!bxAsk(&p->base.stmts, zRows, pErr, "i", iNo)) {
    bxBodyClear(p, iNo, pErr);
    return;
  }
  pLog = needLog(p, iNo, pErr);
  if (pLog == 0 || endOf(pLog) == 0) return;
  scrub(p, pErr);
  clearPlaces(p, pErr);
  storePage(p, pErr);
}

void bxBodyDeleted(Ring *p, i64 iNo, BxErr *pErr) {
  RingBodies *pB = bodies(p, pErr);
  int i;
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
  while (p->pBodies->nDirty > 0 && pErr->rc == SQLITE_OK) {
    i64 iNo = p->pBodies->aDirty[--p->pBodies->nDirty];
    if (bxAsk(&p->base.stmts, zAgentThere, pErr, "i", iNo)) {
      bxBodyScrub(p, iNo, pErr);
    }
  }
}

/*---------------------------------------------------------------- check ----*/

/* Reads all bodies, and says which cannot be read. */
void bxBodyCheck(Ring *p, BxProblems *pOut, BxErr *pErr) {
  static const char zSlots[] =
      "SELECT id, agent_id, seq, request_body, response_body "
      "FROM main.@_slots WHERE 'blob' IN (typeof(request_body), "
      "typeof(response_body)) ORDER BY id";
  char *zTable = bxPrintf(pErr, "%s_texts", p->base.stmts.zTable);
  sqlite3_stmt *pStmt = bxPrepare(&p->base.stmts, zSlots, pErr);
  bxBodyForget(p);
  while (bxRow(pStmt, pErr)) {
    int i;
    for (i = 0; i < 2 && pErr->rc == SQLITE_OK; i++) {
      const void *zRef = sqlite3_column_blob(pStmt, 3 + i);
      int n = sqlite3_column_bytes(pStmt, 3 + i);
      BxErr err = {SQLITE_OK, 0};
      BodyRef ref;
      if (sqlite3_column_type(pStmt, 3 + i) != SQLITE_BLOB) continue;
      if (!readRef(zRef, n, &ref)) {
        damaged(p, &err);
      } else if (ref.eKind != BODY_BLOB &&
                 needLog(p, sqlite3_column_int64(pStmt, 0) >> 29, &err) != 0) {
        buildText(p, ref.iAt, ref.n, &p->pBodies->aRead[i], 0, &err);
      }
      if ((err.rc & 0xff) == SQLITE_CORRUPT) {
        bxClear(&err);
        bxBodyForget(p);
        bxProblem(pOut, zTable, "%s of exchange %lld of agent %s is damaged",
            i == 0 ? "request_body" : "response_body",
            sqlite3_column_int64(pStmt, 2), bxColumnText(pStmt, 1, pErr));
      }
      bxPass(pErr, &err);
    }
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zTable);
}
