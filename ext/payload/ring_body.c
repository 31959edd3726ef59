/*
** ring_body.c: writes a body into the log of its agent, and reads it again.
**
** ring_log.c has the layout of the log. A new request is compared with the heads
** of the log, the newest requests of up to four conversations. The head with the
** longest common beginning becomes its parent: only the bytes after that
** beginning are written. To read a body, its chain is followed from the root on.
**
** The heads of the agents that pushed last, and the last bodies that were read,
** stay in memory. They are used only while the sum in the agent's row is that of
** the text in memory, so a rollback or another connection does no harm.
*/
#include "ring_body.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*-------------------------------------------------------------- memory ----*/

/* Before a text are TEXT_BEFORE bytes: how many have it, this connection or a result of
** SQLite; then room for the numbers of a record. */
#define TEXT_BEFORE 32
#define TEXT_USERS(z) (*(i64 *)(void *)((z)-TEXT_BEFORE))

static void releaseText(void *pOf) {
  unsigned char *z = pOf;
  if (z != 0 && --TEXT_USERS(z) == 0) sqlite3_free(z - TEXT_BEFORE);
}

static void freeText(RingBodies *p, BodyText *pText, int bKept) {
  assert(!bKept || p->nKept >= pText->nAlloc);
  if (bKept) p->nKept -= pText->nAlloc;
  releaseText(pText->z);
  memset(pText, 0, sizeof(*pText));
}

static void freeKept(RingBodies *p, i64 iBut) {
  int i, k;
  for (i = 0; i < AGENTS_KEPT; i++) {
    if (i == iBut) continue;
    for (k = 0; k < HEADS; k++) freeText(p, &p->aKept[i].a[k], 1);
  }
}

void bxBodyFree(Ring *p) {
  int i;
  if (p->pBodies == 0) return;
  for (i = 0; i < AGENTS_KNOWN; i++) sqlite3_free(p->pBodies->apKnown[i]);
  freeKept(p->pBodies, -1);
  freeText(p->pBodies, &p->pBodies->aRead[0], 0);
  freeText(p->pBodies, &p->pBodies->aRead[1], 0);
  sqlite3_free(p->pBodies);
  p->pBodies = 0;
}

/* Makes room for n bytes, which nobody else has. */
static unsigned char *roomFor(
    RingBodies *p, BodyText *pText, i64 n, int bKept, BxErr *pErr) {
  i64 nAlloc = n + n / 4 + 256;
  int bShared = pText->z != 0 && TEXT_USERS(pText->z) > 1;
  unsigned char *z;
  assert(n > 0 || pErr->rc != SQLITE_OK);
  if (pErr->rc != SQLITE_OK) return 0;
  if (n <= pText->nAlloc && !bShared) return pText->z;
  z = pText->z != 0 && !bShared ? pText->z - TEXT_BEFORE : 0;
  z = bxCheckMem(
      sqlite3_realloc64(z, (sqlite3_uint64)(TEXT_BEFORE + nAlloc)), pErr);
  if (z == 0) return 0;
  z += TEXT_BEFORE;
  TEXT_USERS(z) = 1;
  if (bShared) {
    memcpy(z, pText->z, (size_t)(pText->n < n ? pText->n : n));
    releaseText(pText->z);
  }
  if (bKept) p->nKept += nAlloc - pText->nAlloc;
  pText->z = z;
  pText->nAlloc = nAlloc;
  return z;
}

/*------------------------------------------------------------- reading ----*/

/* Reads the body of the first record of a chain, with the numbers before it. */
static void readFirst(Ring *p, i64 iAt, i64 n, BodyText *pText, BxErr *pErr) {
  unsigned char a[16], *zEnd = bxBodyPut(a, (sqlite3_uint64)n);
  i64 nBefore;
  *zEnd++ = 0;
  nBefore = zEnd - a;
  assert(nBefore <= TEXT_BEFORE - (i64)sizeof(i64));
  if (pErr->rc != SQLITE_OK) return;
  bxBodyRead(p, iAt, nBefore + n, pText->z - nBefore, pErr);
  if (pErr->rc == SQLITE_OK && memcmp(pText->z - nBefore, a, (size_t)nBefore)) {
    bxBodyDamaged(p, pErr);
  }
  if (pErr->rc != SQLITE_OK) return;
  pText->n = n;
  pText->iAt = iAt;
  pText->iParent = -1;
  pText->nShared = 0;
}

/* Puts the body of a record together in pText, whose chain begins at iRoot. What it has
** in common with the one that is there stays, if that is in its chain, or its child. */
static void buildText(Ring *p, i64 iAt, i64 n, i64 iRoot, BodyText *pText,
    int bKept, BxErr *pErr) {
  unsigned char *z = roomFor(p->pBodies, pText, n + 1, bKept, pErr);
  BodyText was = *pText;
  i64 iNext = iAt, nNeed = n;
  assert(pText != 0 && iAt >= 0);
  pText->n = 0;
  if (was.n == 0) was.iAt = was.iParent = -1;
  if (iAt == iRoot && iAt != was.iAt) {
    readFirst(p, iAt, n, pText, pErr);
    return;
  }
  if (pErr->rc == SQLITE_OK && was.iAt < iRoot && iRoot < iAt &&
      iAt / CHUNK - iRoot / CHUNK < CHUNKS_KEPT) {
    bxBodyLoad(p, iRoot / CHUNK, iAt / CHUNK, pErr); /* all in one go */
  }
  while (nNeed > 0 && pErr->rc == SQLITE_OK) {
    BodyRecord record;
    i64 nFrom;
    if (iNext == was.iAt && iNext != iAt) {
      if (nNeed > was.n) bxBodyDamaged(p, pErr);
      break;
    }
    bxBodyRecord(p, iNext, &record, pErr);
    nFrom = record.nShared;
    if (pErr->rc == SQLITE_OK &&
        (nNeed > record.nShared + record.nOwn ||
            (iNext == iAt && n != record.nShared + record.nOwn) ||
            (record.nShared > 0 && record.iParent < 0))) {
      bxBodyDamaged(p, pErr);
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
      bxBodyRead(p, record.iOwn + nFrom - record.nShared, nNeed - nFrom,
          z + nFrom, pErr);
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

/* The text becomes the result, without a copy. It ends with 0 then, and SQLite is told so
** by the length -1: otherwise it would copy it to put one there. */
static void giveText(sqlite3_context *pCtx, BodyText *pText) {
  char *z = (char *)pText->z;
  assert(pText->n < pText->nAlloc);
  z[pText->n] = 0;
  TEXT_USERS(pText->z)++;
  if ((i64)strlen(z) == pText->n) {
    sqlite3_result_text(pCtx, z, -1, releaseText);
  } else {
    sqlite3_result_text64(
        pCtx, z, (sqlite3_uint64)pText->n, releaseText, SQLITE_UTF8);
  }
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
  if (!bxBodyRef(zVal, sqlite3_value_bytes(pVal), &ref)) {
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
  if (bxBodyLog(p, iNo, pErr) == 0) return;
  sqlite3_result_null(pCtx); /* frees the text of the row before */
  pText = &p->pBodies->aRead[!!(mFlags & BODY_RESPONSE)];
  buildText(p, ref.iAt, ref.n, ref.iRoot, pText, 0, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (ref.eKind == BODY_TEXT_AT) {
    giveText(pCtx, pText);
  } else if (!(mFlags & BODY_AS_KEPT)) {
    TEXT_USERS(pText->z)++;
    sqlite3_result_blob64(
        pCtx, pText->z, (sqlite3_uint64)pText->n, releaseText);
  } else if (roomFor(p->pBodies, pText, pText->n + 1, 0, pErr) != 0) {
    memmove(pText->z + 1, pText->z, (size_t)pText->n);
    pText->z[0] = BODY_BLOB;
    sqlite3_result_blob64(
        pCtx, pText->z, (sqlite3_uint64)pText->n + 1, SQLITE_TRANSIENT);
    pText->n = 0;
  }
  if (pText->nAlloc > KEPT_MOST) freeText(p->pBodies, pText, 0);
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
  if (err.rc != SQLITE_OK) bxErrResult(&err, pCtx);
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

/*------------------------------------------------------------- writing ----*/

/* How many bytes are equal. */
static i64 common(const unsigned char *a, const unsigned char *b, i64 n) {
  i64 i = 0, nStep = 4096;
  assert(n >= 0);
  for (; nStep > 0; nStep /= 8) {
    while (i + nStep <= n && memcmp(a + i, b + i, (size_t)nStep) == 0) {
      i += nStep;
    }
  }
  return i;
}

/* The texts that are in memory of the loaded log. */
static BodyText *textsInMemory(RingBodies *pB) {
  i64 iKept = pB->log.iNo % AGENTS_KEPT;
  BodyText *a = pB->aKept[iKept].a;
  int i;
  for (i = 0; i < HEADS && pB->aKept[iKept].iNo != pB->log.iNo; i++) a[i].n = 0;
  pB->aKept[iKept].iNo = pB->log.iNo;
  return a;
}

static int isOfHead(const BodyText *pText, const BodyHead *pHead) {
  return pText->n > 0 && pText->sum == pHead->sum && pText->n == pHead->n;
}

/* How much a text that no head needs is worth for one: it may be of an earlier record of
** its conversation; else it may have room. */
static i64 worthOf(const BodyText *p, const BodyHead *pHead) {
  int bEarlier = p->n > 0 && p->iAt >= pHead->iRoot && p->iAt < pHead->iAt;
  return bEarlier ? POSITION_MOST + p->iAt : p->nAlloc;
}

/* The text of head iHead that is in memory; else one that no other head needs. (After a
** rollback the same text may be made again: then two are equal.) */
static BodyText *textForHead(RingBodies *pB, int iHead) {
  const BodyHead *pHead = &pB->log.aHead[iHead];
  BodyText *a = textsInMemory(pB), *pFree = 0;
  int i, k, mUsed = 0;
  assert(iHead >= 0 && iHead < pB->log.nHead);
  for (k = 0; k < pB->log.nHead; k++) {
    for (i = 0; i < HEADS && !isOfHead(&a[i], &pB->log.aHead[k]); i++) {
    }
    if (i < HEADS && k == iHead) return &a[i];
    if (i < HEADS) mUsed |= 1 << i;
  }
  for (i = 0; i < HEADS; i++) {
    if (mUsed & 1 << i) continue;
    if (pFree == 0 || worthOf(&a[i], pHead) > worthOf(pFree, pHead)) {
      pFree = &a[i];
    }
  }
  assert(pFree != 0);
  return pFree;
}

/* The sum of a body of n bytes, of which those at z follow what it shares. */
static sqlite3_uint64 sumOfText(
    sqlite3_uint64 sumShared, const unsigned char *z, i64 nOwn, i64 n) {
  assert(n >= nOwn && nOwn >= 0);
  return bxHashMix(
      bxHashMix(sumShared, bxBodyHash(z, nOwn)), (sqlite3_uint64)n);
}

/* Adds the records that other connections have pushed to a text in memory. Returns
** whether it is that of the head now, which the sum tells. */
static int growText(
    Ring *p, const BodyHead *pHead, BodyText *pText, BxErr *pErr) {
  BodyRecord a[RECORDS_MOST];
  i64 iAt = pHead->iAt, iEnd = bxBodyEnd(&p->pBodies->log);
  int n = 0;
  assert(!isOfHead(pText, pHead));
  while (pText->n > 0 && iAt > pText->iAt && n < RECORDS_MOST) {
    bxBodyRecord(p, iAt, &a[n], pErr);
    iAt = a[n++].iParent;
  }
  if (pText->n == 0 || iAt != pText->iAt) return 0;
  pText->iAt = pHead->iAt;
  while (n-- > 0 && pErr->rc == SQLITE_OK) {
    i64 nShared = a[n].nShared, nOwn = a[n].nOwn;
    if (nShared > pText->n || nOwn > iEnd - a[n].iOwn) return 0;
    if (roomFor(p->pBodies, pText, nShared + nOwn + 1, 1, pErr) == 0) return 0;
    bxBodyRead(p, a[n].iOwn, nOwn, pText->z + nShared, pErr);
    pText->n = nShared + nOwn;
    pText->sum = sumOfText(pText->sum, pText->z + nShared, nOwn, pText->n);
  }
  return pErr->rc == SQLITE_OK && isOfHead(pText, pHead);
}

/* The body of head i; NULL if it cannot be read. */
static BodyText *bodyOfHead(Ring *p, int i, BxErr *pErr) {
  const BodyHead *pHead = &p->pBodies->log.aHead[i];
  BodyText *pText;
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return 0;
  pText = textForHead(p->pBodies, i);
  if (isOfHead(pText, pHead)) return pText;
  if (growText(p, pHead, pText, &err)) return pText;
  pText->n = 0;
  buildText(p, pHead->iAt, pHead->n, pHead->iRoot, pText, 1, &err);
  pText->sum = pHead->sum;
  if ((err.rc & 0xff) == SQLITE_CORRUPT) {
    bxErrClear(&err);
    return 0;
  }
  bxErrMove(pErr, &err);
  return pErr->rc == SQLITE_OK ? pText : 0;
}

/* The head with which a body has the most in common: its number; -1: none. */
static int findHead(Ring *p, const unsigned char *z, i64 n,
    sqlite3_uint64 hStart, i64 *pnShared, BxErr *pErr) {
  BodyLog *pLog = &p->pBodies->log;
  int i, iBest = -1;
  assert(n > SHORT);
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
      bxBodyEnd(pLog) - pLog->aHead[iBest].iRoot > 16 * n + 65536) {
    *pnShared = 0;
    return -1;
  }
  return iBest;
}

/* The body becomes the first head, in place of head i, or of the last one for -1. Its
** text takes the place of that one's, with which it shares its beginning. */
static void setHead(Ring *p, int i, BodyHead head, const unsigned char *z,
    i64 nShared, BxErr *pErr) {
  RingBodies *pB = p->pBodies;
  BodyLog *pLog = &pB->log;
  BodyText *pText;
  assert(nShared <= head.n && i < p->pBodies->log.nHead);
  if (i < 0 && pLog->nHead < HEADS) {
    memset(&pLog->aHead[pLog->nHead++], 0, sizeof(head));
  }
  if (i < 0) i = (int)pLog->nHead - 1;
  pText = textForHead(pB, i);
  if (!isOfHead(pText, &pLog->aHead[i])) nShared = 0;
  memmove(&pLog->aHead[1], &pLog->aHead[0], sizeof(head) * (size_t)i);
  pLog->aHead[0] = head;
  pText->n = 0;
  if (roomFor(pB, pText, head.n, 1, pErr) == 0) return;
  memcpy(pText->z + nShared, z + nShared, (size_t)(head.n - nShared));
  pText->n = head.n;
  pText->sum = head.sum;
  pText->iAt = head.iAt;
  pText->iParent = -1;
  if (pB->nKept > KEPT_MOST) freeKept(pB, pLog->iNo % AGENTS_KEPT);
}

void bxBodyFind(Ring *p, sqlite3_value *pVal, RingShared *pOut, BxErr *pErr) {
  int eType = sqlite3_value_type(pVal);
  const unsigned char *z;
  i64 n;
  *pOut = (RingShared){.iHead = -1, .iAt = -1, .iFrom = -2};
  if (pErr->rc != SQLITE_OK) return;
  if (eType != SQLITE_TEXT && eType != SQLITE_BLOB) return;
  n = sqlite3_value_bytes(pVal);
  z = sqlite3_value_blob(pVal);
  if (n <= SHORT || bxCheckMem((void *)z, pErr) == 0) return;
  pOut->hStart =
      bxBodyHash(z, n < SHARED_LEAST ? n : SHARED_LEAST) & 0xffffffff;
  pOut->iHead = findHead(p, z, n, pOut->hStart, &pOut->n, pErr);
  pOut->iAt = bxBodyEnd(&p->pBodies->log);
  if (pOut->iHead >= 0) pOut->iFrom = p->pBodies->log.aHead[pOut->iHead].iAt;
}

void bxBodyAgain(Ring *p, i64 iNo, int bNew, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK || p->pBodies == 0 || p->pBodies->log.iNo != 0) {
    return;
  }
  if (bNew) {
    bxBodyBegin(p, iNo, 0, 0, pErr);
  } else {
    bxBodyLog(p, iNo, pErr);
  }
}

void bxBodyAppend(Ring *p, sqlite3_value *pVal, const RingShared *pShared,
    RingBody *pOut, BxErr *pErr) {
  BodyLog *pLog;
  int eType = sqlite3_value_type(pVal);
  int iHead = pShared != 0 ? pShared->iHead : -1;
  const unsigned char *z = 0;
  unsigned char a[32], *zEnd = a;
  BodyHead head = {0};
  i64 n, nShared = iHead >= 0 ? pShared->n : 0;
  pOut->n = -1;
  if (pErr->rc != SQLITE_OK) return;
  pLog = &p->pBodies->log;
  if (eType != SQLITE_TEXT && eType != SQLITE_BLOB) return;
  n = sqlite3_value_bytes(pVal);
  z = sqlite3_value_blob(pVal); /* of a text, without a copy that ends with 0 */
  if (n > 0 && bxCheckMem((void *)z, pErr) == 0) return;
  if (n <= SHORT) {
    if (eType == SQLITE_TEXT) return;
    pOut->n = 1 + (int)n;
    pOut->a[0] = BODY_BLOB;
    if (n > 0) memcpy(pOut->a + 1, z, (size_t)n);
    return;
  }
  assert(pLog->iNo > 0);
  p->pBodies->nChange = -1; /* it differs from the table */
  if (pShared != 0) head.hStart = pShared->hStart;
  head.iAt = head.iRoot = bxBodyEnd(pLog);
  head.n = n;
  zEnd = bxBodyPut(zEnd, (sqlite3_uint64)(n - nShared));
  if (iHead >= 0) {
    const BodyHead *pParent = &pLog->aHead[iHead];
    bxBodyNeed(&pLog->sweep, pParent, nShared);
    head.iRoot = pParent->iRoot;
    head.nDepth = pParent->nDepth + 1;
    head.sum = pParent->sum;
    zEnd = bxBodyPut(zEnd, (sqlite3_uint64)(head.iAt - pParent->iAt));
    zEnd = bxBodyPut(zEnd, (sqlite3_uint64)nShared);
  } else {
    *zEnd++ = 0;
  }
  if (head.iRoot < pLog->iPin) pLog->iPin = head.iRoot;
  if (pShared != 0 && pErr->rc == SQLITE_OK) {
    head.sum = sumOfText(head.sum, z + nShared, n - nShared, n);
    setHead(p, iHead, head, z, nShared, pErr);
  }
  bxBodyWrite(p, a, zEnd - a, pErr);
  bxBodyWrite(p, z + nShared, n - nShared, pErr);
  pOut->a[0] = eType == SQLITE_TEXT ? BODY_TEXT_AT : BODY_BLOB_AT;
  zEnd = bxBodyPut(pOut->a + 1, (sqlite3_uint64)head.iAt);
  zEnd = bxBodyPut(zEnd, (sqlite3_uint64)n);
  zEnd = bxBodyPut(zEnd, (sqlite3_uint64)head.iRoot);
  pOut->n = (int)(zEnd - pOut->a);
}

void bxBodyBind(sqlite3_stmt *pStmt, int i, const RingBody *pBody,
    sqlite3_value *pVal, BxErr *pErr) {
  assert(i >= 1);
  if (pErr->rc != SQLITE_OK) return;
  if (pBody->n < 0) {
    sqlite3_bind_value(pStmt, i, pVal);
  } else {
    sqlite3_bind_blob(pStmt, i, pBody->a, pBody->n, SQLITE_STATIC);
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
  while (bxStep(pStmt, pErr)) {
    int i;
    for (i = 0; i < 2 && pErr->rc == SQLITE_OK; i++) {
      const void *zRef = sqlite3_column_blob(pStmt, 3 + i);
      int n = sqlite3_column_bytes(pStmt, 3 + i);
      BxErr err = {SQLITE_OK, 0};
      BodyRef ref;
      if (sqlite3_column_type(pStmt, 3 + i) != SQLITE_BLOB) continue;
      if (!bxBodyRef(zRef, n, &ref)) {
        bxBodyDamaged(p, &err);
      } else if (ref.eKind != BODY_BLOB &&
                 bxBodyLog(p, sqlite3_column_int64(pStmt, 0) >> 29, &err) !=
                     0) {
        buildText(p, ref.iAt, ref.n, ref.iRoot, &p->pBodies->aRead[i], 0, &err);
      }
      if ((err.rc & 0xff) == SQLITE_CORRUPT) {
        bxErrClear(&err);
        bxBodyForget(p);
        bxProblem(pOut, zTable, "%s of exchange %lld of agent %s is damaged",
            i == 0 ? "request_body" : "response_body",
            sqlite3_column_int64(pStmt, 2), bxColumnText(pStmt, 1, pErr));
      }
      bxErrMove(pErr, &err);
    }
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zTable);
}
