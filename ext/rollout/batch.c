/*
** batch.c: the items of one append or import, as rows for one INSERT.
**
** append.c and import.c check their items, and collect here the items to keep
** and the number of items that are dropped. There are two ways to write them.
** In a savepoint the items are first counted in the head, and each item is then
** an INSERT of its own. This takes a fraction of the time of the other way,
** because nothing is counted or parsed for each row. A call that came as a row
** of blackbox_call has no savepoint, so that only a single statement is atomic:
** INSERT INTO rollout_imports SELECT ... FROM rollout_batch, in which the
** triggers check and count each item.
**
** rollout_batch is an eponymous, read-only table. It is empty except during
** that statement.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct BatchItem {
  i64 iTime;
  const char *zType; /* belongs to the caller until the batch is written */
  RolloutSpan payload;
  char *zOwned; /* the memory that payload points into, or NULL */
  int bLook;    /* the triggers must read it */
} BatchItem;

/* Dropped items of one pair of types. The texts belong to the caller. */
typedef struct BatchDrop {
  const char *zType, *zPayloadType;
  i64 nItem, nByte;
} BatchDrop;

struct RolloutBatch {
  BatchItem *aItem;
  i64 nItem, nItemAlloc;
  BatchDrop *aDrop;
  i64 nDrop, nDropAlloc;
};

RolloutBatch *bxRolloutBatchNew(BxErr *pErr) {
  return bxNew(sizeof(RolloutBatch), pErr);
}

void bxRolloutBatchFree(RolloutBatch *p) {
  i64 i;
  if (p == 0) return;
  for (i = 0; i < p->nItem; i++) sqlite3_free(p->aItem[i].zOwned);
  sqlite3_free(p->aItem);
  sqlite3_free(p->aDrop);
  sqlite3_free(p);
}

void bxRolloutBatchAdd(RolloutBatch *p, i64 iTime, const char *zType,
    RolloutSpan payload, char *zOwned, int bLook, BxErr *pErr) {
  BatchItem item = {iTime, zType, payload, zOwned, bLook};
  BatchItem *aItem = 0;
  if (pErr->rc == SQLITE_OK) {
    aItem = bxGrow(p->aItem, p->nItem, &p->nItemAlloc, sizeof(item), pErr);
  }
  if (aItem != 0) {
    p->aItem = aItem;
    p->aItem[p->nItem++] = item;
  } else {
    sqlite3_free(zOwned);
  }
}

i64 bxRolloutBatchCount(const RolloutBatch *p) {
  return p->nItem;
}

void bxRolloutBatchDrop(RolloutBatch *p, const char *zType,
    const char *zPayloadType, i64 nItem, i64 nByte, BxErr *pErr) {
  BatchDrop drop = {zType, zPayloadType, nItem, nByte};
  BatchDrop *aDrop;
  if (pErr->rc != SQLITE_OK || nItem == 0) return;
  aDrop = bxGrow(p->aDrop, p->nDrop, &p->nDropAlloc, sizeof(drop), pErr);
  if (aDrop == 0) return;
  p->aDrop = aDrop;
  p->aDrop[p->nDrop++] = drop;
}

static const char zPutAll[] =
    "INSERT INTO main.rollout_imports(rollout, now, timestamp, type, "
    "payload, payload_type, dropped, bytes) SELECT ?1, ?2, * FROM "
    "rollout_batch";

/* Writes everything in one statement, which is atomic by itself. */
static void putAll(const RolloutBatch *p, BxStmts *pHome, const char *zId,
    i64 iNow, BxErr *pErr) {
  RolloutSlot *pSlot = bxRolloutSlot(pHome->bx, pErr);
  sqlite3_stmt *pStmt = bxStmt(pHome, zPutAll, pErr);
  bxBind(pStmt, pErr, "ti", zId, iNow);
  if (pErr->rc == SQLITE_OK) pSlot->pBatch = p;
  bxRun(pStmt, pErr);
  if (pSlot != 0) pSlot->pBatch = 0;
}

static const char zPutOne[] =
    "INSERT INTO main.rollout_data(id, timestamp, type, payload) "
    "VALUES (?1, ?2, ?3, ?4)";

/* The statement is looked up once for many rows. While they are written, no
** code of the host runs that could finalize it. */
static void putItemRow(
    sqlite3_stmt *pStmt, i64 id, const BatchItem *p, BxErr *pErr) {
  sqlite3 *db = sqlite3_db_handle(pStmt);
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_bind_int64(pStmt, 1, id);
  sqlite3_bind_int64(pStmt, 2, p->iTime);
  sqlite3_bind_text(pStmt, 3, p->zType, -1, SQLITE_STATIC);
  if (p->payload.z != 0) {
    bxFailDb(pErr, db,
        sqlite3_bind_text64(pStmt, 4, p->payload.z,
            (sqlite3_uint64)p->payload.n, SQLITE_STATIC, SQLITE_UTF8));
  }
  bxRun(pStmt, pErr);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(db) == 0) {
    bxFail(pErr, SQLITE_MISUSE,
        "MisuseError: a trigger on rollout_data ignored an item that must be "
        "recorded; nothing was written; raise an error in the trigger, or "
        "change rollout_policy");
  }
}

/* Counts all items in their head, so that the triggers need not do it. */
static const char zCountAll[] =
    "UPDATE main.rollout_heads SET last_sequence = last_sequence + ?2, "
    "bytes = bytes + ?3, updated = max(updated, ?4), stamp = stamp + 1 "
    "WHERE no = ?1";

static void countAll(
    const RolloutBatch *p, i64 iFirst, BxStmts *pHome, i64 no, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zCountAll, pErr);
  i64 nByte = 0, iTime = 0, i;
  for (i = iFirst; i < p->nItem; i++) {
    nByte += p->aItem[i].payload.n;
    if (p->aItem[i].iTime > iTime) iTime = p->aItem[i].iTime;
  }
  bxBind(pStmt, pErr, "iiii", no, p->nItem - iFirst, nByte, iTime);
  bxRun(pStmt, pErr);
}

static const char zLook[] =
    "UPDATE main.rollout_heads SET looked = ?2, stamp = stamp + 1 "
    "WHERE no = ?1";

/* Makes the triggers read the item that was just stored. */
static void lookInto(BxStmts *pHome, i64 no, i64 iSequence, BxErr *pErr) {
  bxDo(pHome, zLook, pErr, "ii", no, iSequence);
}

static const char zDrop[] =
    "INSERT INTO main.rollout_imports(rollout, type, payload_type, dropped, "
    "bytes) VALUES (?1, ?2, ?3, ?4, ?5)";

static void putDrop(
    const BatchDrop *p, BxStmts *pHome, const char *zId, BxErr *pErr) {
  bxDo(pHome, zDrop, pErr, "tttii", zId, p->zType, p->zPayloadType, p->nItem,
      p->nByte);
}

static const char zStart[] =
    "INSERT INTO main.rollout_imports(rollout, now, timestamp, type, payload) "
    "VALUES (?1, ?2, ?3, ?4, ?5)";

/* Writes the first item of a conversation that does not exist, which starts it.
** Returns its head. */
static RolloutHead startWith(const BatchItem *p, BxStmts *pHome,
    const char *zId, i64 iNow, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zStart, pErr);
  RolloutHead head;
  bxBind(pStmt, pErr, "tiit", zId, iNow, p->iTime, p->zType);
  if (pErr->rc == SQLITE_OK && p->payload.z != 0) {
    bxFailDb(pErr, pHome->bx->db,
        sqlite3_bind_text64(pStmt, 5, p->payload.z,
            (sqlite3_uint64)p->payload.n, SQLITE_STATIC, SQLITE_UTF8));
  }
  bxRun(pStmt, pErr);
  bxRolloutFind(pHome, 0, zId, &head, pErr);
  return head;
}

static void putInSteps(RolloutBatch *p, BxStmts *pHome, const char *zId,
    const RolloutHead *pHead, i64 iNow, BxErr *pErr) {
  RolloutHead head = *pHead;
  sqlite3_stmt *pStmt;
  i64 i = 0, iNext;
  if (head.no == 0 && p->nItem > 0) {
    head = startWith(&p->aItem[i++], pHome, zId, iNow, pErr);
  }
  if (i < p->nItem) countAll(p, i, pHome, head.no, pErr);
  pStmt = bxStmt(pHome, zPutOne, pErr);
  for (iNext = head.iLast + 1; i < p->nItem && pErr->rc == SQLITE_OK; i++) {
    putItemRow(pStmt, bxRolloutKey(head.no, iNext), &p->aItem[i], pErr);
    if (p->aItem[i].bLook || iNext == 0) lookInto(pHome, head.no, iNext, pErr);
    iNext++;
  }
  for (i = 0; i < p->nDrop; i++) putDrop(&p->aDrop[i], pHome, zId, pErr);
}

void bxRolloutBatchPut(RolloutBatch *p, BxStmts *pHome, const char *zId,
    const RolloutHead *pHead, i64 iNow, int bSavepoint, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  assert(pHead->iLast >= -1 && pHead->no >= 0);
  if (pHead->iLast + p->nItem > ROLLOUT_LAST) {
    bxFail(pErr, SQLITE_TOOBIG,
        "RolloutTooLongError: Rollout too long: a conversation has at most "
        "%lld items; fork it, or start another one",
        (i64)ROLLOUT_LAST + 1);
  } else if (bSavepoint) {
    putInSteps(p, pHome, zId, pHead, iNow, pErr);
  } else {
    putAll(p, pHome, zId, iNow, pErr);
  }
}

/*----------------------------------------------------- rollout_batch ----*/

typedef struct BatchVtab {
  sqlite3_vtab base;
  Bx *bx;
} BatchVtab;

typedef struct BatchCursor {
  sqlite3_vtab_cursor base;
  const RolloutBatch *pBatch; /* NULL: no append is running */
  i64 iRow;
} BatchCursor;

static int batchConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  int rc = bxTableNew(db,
      "CREATE TABLE x(timestamp, type, payload, payload_type, dropped, bytes)",
      sizeof(BatchVtab), ppVtab);
  (void)argc;
  (void)argv;
  (void)pzErr;
  if (rc == SQLITE_OK) ((BatchVtab *)*ppVtab)->bx = (Bx *)pAux;
  return rc;
}

static int batchBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  (void)pVtab;
  pInfo->estimatedRows = 10;
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
  return p->pBatch == 0 || p->iRow >= p->pBatch->nItem + p->pBatch->nDrop;
}

enum {
  BATCH_TIME,
  BATCH_TYPE,
  BATCH_PAYLOAD,
  BATCH_PAYLOAD_TYPE,
  BATCH_DROPPED,
  BATCH_BYTES
};

static void itemColumn(sqlite3_context *pCtx, const BatchItem *p, int i) {
  switch (i) {
    case BATCH_TIME: sqlite3_result_int64(pCtx, p->iTime); break;
    case BATCH_TYPE:
      sqlite3_result_text(pCtx, p->zType, -1, SQLITE_STATIC);
      break;
    case BATCH_PAYLOAD:
      if (p->payload.z == 0) break;
      sqlite3_result_text64(pCtx, p->payload.z, (sqlite3_uint64)p->payload.n,
          SQLITE_STATIC, SQLITE_UTF8);
      break;
    default: break;
  }
}

static void dropColumn(sqlite3_context *pCtx, const BatchDrop *p, int i) {
  switch (i) {
    case BATCH_TYPE:
      sqlite3_result_text(pCtx, p->zType, -1, SQLITE_STATIC);
      break;
    case BATCH_PAYLOAD_TYPE:
      sqlite3_result_text(pCtx, p->zPayloadType, -1, SQLITE_STATIC);
      break;
    case BATCH_DROPPED: sqlite3_result_int64(pCtx, p->nItem); break;
    case BATCH_BYTES: sqlite3_result_int64(pCtx, p->nByte); break;
    default: break;
  }
}

static int batchColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  const BatchCursor *p = (const BatchCursor *)pCursor;
  const RolloutBatch *pBatch = p->pBatch;
  assert(pBatch != 0 && p->iRow < pBatch->nItem + pBatch->nDrop);
  if (p->iRow < pBatch->nItem) {
    itemColumn(pCtx, &pBatch->aItem[p->iRow], i);
  } else {
    dropColumn(pCtx, &pBatch->aDrop[p->iRow - pBatch->nItem], i);
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
    .xDisconnect = bxTableFree,
    .xDestroy = bxTableFree,
    .xOpen = batchOpen,
    .xClose = bxCursorFree,
    .xFilter = batchFilter,
    .xNext = batchNext,
    .xEof = batchEof,
    .xColumn = batchColumn,
    .xRowid = batchRowid,
};
