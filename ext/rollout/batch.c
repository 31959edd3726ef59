/*
** batch.c: the items of one append or import, as rows for one INSERT.
**
** Both check their items and collect what is kept here. In a savepoint they are
** counted in the head at once, and each is then an INSERT of its own, which is
** fastest. A call that came as a row of blackbox_call has no savepoint: there
** one statement, INSERT INTO rollout_data SELECT ... FROM rollout_batch (of an
** import: INSERT INTO rollout_imports), writes them all, or none.
**
** rollout_batch is an eponymous table, read-only, and empty but for the
** moment of that statement.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct BatchItem {
  i64 iTime;
  const char *zType; /* the caller's, until the batch is written */
  RolloutSpan payload;
  char *zOwned; /* what payload points into, or NULL */
  int bLook;
} BatchItem;

struct RolloutBatch {
  BatchItem *aItem;
  i64 nItem, nItemAlloc;
};

RolloutBatch *bxRolloutBatchNew(BxErr *pErr) {
  RolloutBatch *p;
  if (pErr->rc != SQLITE_OK) return 0;
  p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return 0;
  }
  memset(p, 0, sizeof(*p));
  return p;
}

void bxRolloutBatchFree(RolloutBatch *p) {
  i64 i;
  if (p == 0) return;
  for (i = 0; i < p->nItem; i++) sqlite3_free(p->aItem[i].zOwned);
  sqlite3_free(p->aItem);
  sqlite3_free(p);
}

/* Makes room for one more item. Returns 0 when there is none. */
static int growBatch(RolloutBatch *p, BxErr *pErr) {
  i64 nNew = p->nItemAlloc ? p->nItemAlloc * 2 : 16;
  BatchItem *aNew;
  if (p->nItem < p->nItemAlloc) return 1;
  aNew = sqlite3_realloc64(p->aItem, (sqlite3_uint64)nNew * sizeof(BatchItem));
  if (aNew == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return 0;
  }
  p->aItem = aNew;
  p->nItemAlloc = nNew;
  return 1;
}

void bxRolloutBatchAdd(RolloutBatch *p, i64 iTime, const char *zType,
    RolloutSpan payload, char *zOwned, int bLook, BxErr *pErr) {
  BatchItem item = {iTime, zType, payload, zOwned, bLook};
  if (pErr->rc == SQLITE_OK && growBatch(p, pErr)) {
    p->aItem[p->nItem++] = item;
  } else {
    sqlite3_free(zOwned);
  }
}

i64 bxRolloutBatchCount(const RolloutBatch *p) {
  return p->nItem;
}

void bxRolloutBatchRun(
    const RolloutBatch *p, BxStmts *pHome, sqlite3_stmt *pStmt, BxErr *pErr) {
  RolloutSlot *pSlot = bxRolloutSlot(pHome->bx, pErr);
  if (pErr->rc == SQLITE_OK) pSlot->pBatch = p;
  bxRun(pStmt, pErr);
  if (pSlot != 0) pSlot->pBatch = 0;
}

static const char zPutAll[] =
    "INSERT INTO main.rollout_data(id, timestamp, type, look, payload) "
    "SELECT ?1 + rowid, timestamp, type, look, payload FROM rollout_batch";

/* All in one statement, which is atomic by itself. */
static void putAll(
    const RolloutBatch *p, BxStmts *pHome, i64 iFirst, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zPutAll, pErr);
  bxBind(pStmt, pErr, "i", iFirst);
  bxRolloutBatchRun(p, pHome, pStmt, pErr);
}

static const char zPutOne[] =
    "INSERT INTO main.rollout_data(id, timestamp, type, look, payload) "
    "VALUES (?1, ?2, ?3, ?4, ?5)";

/* The statement is looked up once for many rows: while they are written no
** code of the host's runs that could finalize it. */
static void putRow(sqlite3_stmt *pStmt, i64 id, i64 iTime, const char *zType,
    RolloutSpan payload, int eLook, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_bind_int64(pStmt, 1, id);
  sqlite3_bind_int64(pStmt, 2, iTime);
  sqlite3_bind_text(pStmt, 3, zType, -1, SQLITE_STATIC);
  sqlite3_bind_int(pStmt, 4, eLook);
  if (payload.z != 0) {
    bxFailDb(pErr, sqlite3_db_handle(pStmt),
        sqlite3_bind_text64(pStmt, 5, payload.z, (sqlite3_uint64)payload.n,
            SQLITE_STATIC, SQLITE_UTF8));
  }
  bxRun(pStmt, pErr);
}

/* Counts all items in their head, which the triggers then need not do. */
static const char zCount[] =
    "UPDATE main.rollout_heads SET last_sequence = last_sequence + ?2, "
    "bytes = bytes + ?3, updated = max(updated, ?4) WHERE no = ?1";

static void countAll(
    const RolloutBatch *p, BxStmts *pHome, i64 no, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zCount, pErr);
  i64 nByte = 0, iTime = 0, i;
  for (i = 0; i < p->nItem; i++) {
    nByte += p->aItem[i].payload.n;
    if (p->aItem[i].iTime > iTime) iTime = p->aItem[i].iTime;
  }
  bxBind(pStmt, pErr, "iiii", no, p->nItem, nByte, iTime);
  bxRun(pStmt, pErr);
}

i64 bxRolloutBatchPut(RolloutBatch *p, BxStmts *pHome, const RolloutHead *pHead,
    int bSavepoint, BxErr *pErr) {
  i64 iFirst, i;
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK || p->nItem == 0) return 0;
  if (pHead->iLast + p->nItem > ROLLOUT_LAST) {
    bxFail(pErr, SQLITE_TOOBIG,
        "Rollout too long: a conversation has at most %lld items",
        (i64)ROLLOUT_LAST + 1);
    return 0;
  }
  iFirst = bxRolloutKey(pHead->no, pHead->iLast + 1);
  if (pHead->iLast < 0) p->aItem[0].bLook = 1; /* whether it may be item 0 */
  if (!bSavepoint) {
    putAll(p, pHome, iFirst, pErr);
    return p->nItem;
  }
  countAll(p, pHome, pHead->no, pErr);
  pStmt = bxStmt(pHome, zPutOne, pErr);
  for (i = 0; i < p->nItem && pErr->rc == SQLITE_OK; i++) {
    const BatchItem *pItem = &p->aItem[i];
    putRow(pStmt, iFirst + i, pItem->iTime, pItem->zType, pItem->payload,
        2 + pItem->bLook, pErr);
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
  (void)pVtab;
  return bxCursorNew(sizeof(BatchCursor), ppCursor);
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
  const BatchItem *pItem = &p->pBatch->aItem[p->iRow];
  switch (i) {
    case 0: sqlite3_result_int64(pCtx, pItem->iTime); break;
    case 1: sqlite3_result_text(pCtx, pItem->zType, -1, SQLITE_STATIC); break;
    case 2: sqlite3_result_int(pCtx, pItem->bLook); break;
    default:
      if (pItem->payload.z == 0) break;
      sqlite3_result_text64(pCtx, pItem->payload.z,
          (sqlite3_uint64)pItem->payload.n, SQLITE_STATIC, SQLITE_UTF8);
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
    .xClose = bxCursorFree,
    .xFilter = batchFilter,
    .xNext = batchNext,
    .xEof = batchEof,
    .xColumn = batchColumn,
    .xRowid = batchRowid,
};
