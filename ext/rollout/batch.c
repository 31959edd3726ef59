/*
** batch.c: the items of one append, as rows for one INSERT.
**
** rollout_append() checks its items and collects what is kept here. In a
** savepoint each is then an INSERT of its own, which is fastest. A call that
** came as a row of blackbox_call has no savepoint: there one statement,
** INSERT INTO rollout_data SELECT ... FROM rollout_batch, writes them all, or
** none.
**
** rollout_batch is an eponymous table, read-only, and empty but for the
** moment of that statement. The texts lie in one buffer that grows.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct BatchItem {
  i64 iTime;
  const char *zType; /* the caller's, until the batch is written */
  i64 iPayload;      /* where the payload begins in the buffer; -1 for none */
  i64 nPayload;
  int bLook;
} BatchItem;

struct RolloutBatch {
  BatchItem *aItem;
  i64 nItem, nItemAlloc;
  char *zBuf; /* "[payload,payload,...": see bxRolloutBatchText() */
  i64 nBuf, nBufAlloc;
};

/* Makes room for n elements of nEach bytes in a growing array. */
static void *grow(
    void *pOld, i64 *pnAlloc, i64 n, sqlite3_uint64 nEach, BxErr *pErr) {
  i64 nNew = *pnAlloc ? *pnAlloc : 16;
  void *pNew;
  if (n <= *pnAlloc || pErr->rc != SQLITE_OK) return pOld;
  while (nNew < n) nNew *= 2;
  pNew = sqlite3_realloc64(pOld, (sqlite3_uint64)nNew * nEach);
  if (pNew == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return pOld;
  }
  *pnAlloc = nNew;
  return pNew;
}

RolloutBatch *bxRolloutBatchNew(i64 nHint, BxErr *pErr) {
  RolloutBatch *p;
  if (pErr->rc != SQLITE_OK) return 0;
  p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return 0;
  }
  memset(p, 0, sizeof(*p));
  p->zBuf = grow(0, &p->nBufAlloc, nHint + 3, 1, pErr);
  return p;
}

void bxRolloutBatchClear(RolloutBatch *p) {
  p->nItem = 0;
  p->nBuf = 0;
}

void bxRolloutBatchFree(RolloutBatch *p) {
  if (p == 0) return;
  sqlite3_free(p->aItem);
  sqlite3_free(p->zBuf);
  sqlite3_free(p);
}

i64 bxRolloutBatchText(RolloutBatch *p, const char *z, i64 n, BxErr *pErr) {
  i64 iAt = p->nBuf + 1;
  p->zBuf = grow(p->zBuf, &p->nBufAlloc, iAt + n + 2, 1, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  p->zBuf[p->nBuf] = p->nBuf ? ',' : '[';
  memcpy(p->zBuf + iAt, z, (size_t)n);
  p->nBuf = iAt + n;
  return iAt;
}

const char *bxRolloutBatchArray(RolloutBatch *p, i64 *pn) {
  p->zBuf[p->nBuf] = ']'; /* overwritten by the next text, if any */
  *pn = p->nBuf + 1;
  return p->zBuf;
}

void bxRolloutBatchAdd(RolloutBatch *p, i64 iTime, const char *zType,
    i64 iPayload, i64 nPayload, int bLook, BxErr *pErr) {
  BatchItem item = {iTime, zType, iPayload, nPayload, bLook};
  p->aItem =
      grow(p->aItem, &p->nItemAlloc, p->nItem + 1, sizeof(BatchItem), pErr);
  if (pErr->rc == SQLITE_OK) p->aItem[p->nItem++] = item;
}

static const char zPutAll[] =
    "INSERT INTO main.rollout_data(id, timestamp, type, look, payload) "
    "SELECT ?1 + rowid, timestamp, type, look, payload FROM rollout_batch";

/* All in one statement, which is atomic by itself. */
static void putAll(
    const RolloutBatch *p, BxStmts *pHome, i64 iFirst, BxErr *pErr) {
  RolloutSlot *pSlot = bxRolloutSlot(pHome->bx, pErr);
  sqlite3_stmt *pStmt = bxStmt(pHome, zPutAll, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxBind(pStmt, pErr, "i", iFirst);
  pSlot->pBatch = p;
  bxRun(pStmt, pErr);
  pSlot->pBatch = 0;
}

static const char zPutOne[] =
    "INSERT INTO main.rollout_data(id, timestamp, type, look, payload) "
    "VALUES (?1, ?2, ?3, ?4, ?5)";

void bxRolloutPut(BxStmts *p, i64 id, i64 iTime, const char *zType,
    const char *zPayload, i64 nPayload, int bLook, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p, zPutOne, pErr);
  if (pStmt == 0) return;
  sqlite3_bind_int64(pStmt, 1, id);
  sqlite3_bind_int64(pStmt, 2, iTime);
  sqlite3_bind_text(pStmt, 3, zType, -1, SQLITE_STATIC);
  sqlite3_bind_int(pStmt, 4, bLook);
  if (zPayload != 0) {
    bxFailDb(pErr, p->bx->db,
        sqlite3_bind_text64(pStmt, 5, zPayload, (sqlite3_uint64)nPayload,
            SQLITE_STATIC, SQLITE_UTF8));
  }
  bxRun(pStmt, pErr);
}

i64 bxRolloutBatchPut(RolloutBatch *p, BxStmts *pHome, const RolloutHead *pHead,
    int bSavepoint, BxErr *pErr) {
  i64 iFirst = (pHead->no << 32) + pHead->iLast + 1, i;
  if (pErr->rc != SQLITE_OK || p->nItem == 0) return 0;
  if (!bSavepoint) {
    putAll(p, pHome, iFirst, pErr);
    return p->nItem;
  }
  for (i = 0; i < p->nItem && pErr->rc == SQLITE_OK; i++) {
    const BatchItem *pItem = &p->aItem[i];
    bxRolloutPut(pHome, iFirst + i, pItem->iTime, pItem->zType,
        pItem->iPayload < 0 ? 0 : p->zBuf + pItem->iPayload, pItem->nPayload,
        pItem->bLook, pErr);
  }
  return p->nItem;
}

/*----------------------------------------------------- rollout_batch ----*/

typedef struct BatchVtab {
  sqlite3_vtab base;
  Bx *bx;
} BatchVtab;

typedef struct BatchCursor {
  sqlite3_vtab_cursor base;
  const RolloutBatch *pBatch; /* NULL: no append is going on */
  i64 iRow;
} BatchCursor;

static int batchConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  BatchVtab *p;
  int rc = sqlite3_declare_vtab(
      db, "CREATE TABLE x(timestamp, type, look, payload)");
  (void)argc;
  (void)argv;
  (void)pzErr;
  if (rc != SQLITE_OK) return rc;
  p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  p->bx = (Bx *)pAux;
  *ppVtab = &p->base;
  return SQLITE_OK;
}

static int batchBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  (void)pVtab;
  pInfo->estimatedRows = 10;
  return SQLITE_OK;
}

static int batchDisconnect(sqlite3_vtab *pVtab) {
  sqlite3_free(pVtab);
  return SQLITE_OK;
}

static int batchOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  BatchCursor *p = sqlite3_malloc64(sizeof(*p));
  (void)pVtab;
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  *ppCursor = &p->base;
  return SQLITE_OK;
}

static int batchClose(sqlite3_vtab_cursor *pCursor) {
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static int batchFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  BatchCursor *p = (BatchCursor *)pCursor;
  const RolloutSlot *pSlot =
      (RolloutSlot *)bxSlot(((BatchVtab *)pCursor->pVtab)->bx, "rollout")->p;
  (void)idxNum;
  (void)idxStr;
  (void)argc;
  (void)argv;
  p->pBatch = pSlot ? pSlot->pBatch : 0;
  p->iRow = 0;
  return SQLITE_OK;
}

static int batchNext(sqlite3_vtab_cursor *pCursor) {
  ((BatchCursor *)pCursor)->iRow++;
  return SQLITE_OK;
}

static int batchEof(sqlite3_vtab_cursor *pCursor) {
  const BatchCursor *p = (const BatchCursor *)pCursor;
  return p->pBatch == 0 || p->iRow >= p->pBatch->nItem;
}

static int batchColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  const BatchCursor *p = (const BatchCursor *)pCursor;
  const RolloutBatch *pBatch = p->pBatch;
  const BatchItem *pItem = &pBatch->aItem[p->iRow];
  switch (i) {
    case 0: sqlite3_result_int64(pCtx, pItem->iTime); break;
    case 1: sqlite3_result_text(pCtx, pItem->zType, -1, SQLITE_STATIC); break;
    case 2: sqlite3_result_int(pCtx, pItem->bLook); break;
    default:
      if (pItem->iPayload < 0) break;
      sqlite3_result_text64(pCtx, pBatch->zBuf + pItem->iPayload,
          (sqlite3_uint64)pItem->nPayload, SQLITE_STATIC, SQLITE_UTF8);
  }
  return SQLITE_OK;
}

static int batchRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  *piRowid = ((BatchCursor *)pCursor)->iRow;
  return SQLITE_OK;
}

const sqlite3_module bxRolloutBatchModule = {
    .xConnect = batchConnect,
    .xBestIndex = batchBestIndex,
    .xDisconnect = batchDisconnect,
    .xDestroy = batchDisconnect,
    .xOpen = batchOpen,
    .xClose = batchClose,
    .xFilter = batchFilter,
    .xNext = batchNext,
    .xEof = batchEof,
    .xColumn = batchColumn,
    .xRowid = batchRowid,
};
