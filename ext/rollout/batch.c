/*
** batch.c: the items of one append or import, as rows for one INSERT.
**
** append.c and import.c check their items, and collect here the items to keep
** and the number of items that are dropped. There are two ways to write them.
** In a savepoint the items are first counted in the head, and each item is then
** an INSERT of its own. This takes a fraction of the time of the other way,
** because nothing is counted or parsed for each row. A call that came as a row
** of blackbox_call has no savepoint, so that only a single statement is atomic:
** INSERT INTO rollout_imports SELECT ... FROM a list of all items, in which the
** triggers check and count each item.
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

/* ?3 is an array of rows [timestamp, type, payload type, number dropped, their
** bytes, position, length]. ?4 has the payloads, one after the other. */
static const char zPutAll[] =
    "INSERT INTO main.rollout_imports(rollout, now, timestamp, type, "
    "payload_type, dropped, bytes, payload) SELECT ?1, ?2, value ->> 0, "
    "value ->> 1, value ->> 2, value ->> 3, value ->> 4, "
    "CAST(substr(?4, value ->> 5, value ->> 6) AS TEXT) FROM json_each(?3)";

/* Appends a row, but for its end. */
static void addRow(sqlite3_str *pRows, i64 iTime, const char *zType,
    const char *zPayloadType, i64 nDropped, i64 nByte) {
  const char *zBefore = sqlite3_str_length(pRows) > 1 ? "]," : "";
  sqlite3_str_appendf(pRows, "%s[%lld,", zBefore, iTime);
  bxAppendJson(pRows, zType, (int)strlen(zType));
  sqlite3_str_appendchar(pRows, 1, ',');
  bxAppendJson(pRows, zPayloadType, (int)strlen(zPayloadType));
  sqlite3_str_appendf(pRows, ",%lld,%lld", nDropped, nByte);
}

static void addRows(
    const RolloutBatch *p, sqlite3_str *pRows, sqlite3_str *pPayloads) {
  i64 i;
  sqlite3_str_appendchar(pRows, 1, '[');
  for (i = 0; i < p->nItem; i++) {
    const BatchItem *pItem = &p->aItem[i];
    addRow(pRows, pItem->iTime, pItem->zType, "", 0, 0);
    if (pItem->payload.z == 0) continue;
    sqlite3_str_appendf(
        pRows, ",%d,%lld", sqlite3_str_length(pPayloads) + 1, pItem->payload.n);
    sqlite3_str_append(pPayloads, pItem->payload.z, (int)pItem->payload.n);
  }
  for (i = 0; i < p->nDrop; i++) {
    const BatchDrop *pDrop = &p->aDrop[i];
    addRow(pRows, 0, pDrop->zType,
        pDrop->zPayloadType ? pDrop->zPayloadType : "", pDrop->nItem,
        pDrop->nByte);
  }
  sqlite3_str_appendall(pRows, p->nItem + p->nDrop > 0 ? "]]" : "]");
}

/* Writes everything in one statement, which is atomic by itself. */
static void putAll(const RolloutBatch *p, BxStmts *pHome, const char *zId,
    i64 iNow, BxErr *pErr) {
  sqlite3_str *pRows = sqlite3_str_new(pHome->bx->db);
  sqlite3_str *pPayloads = sqlite3_str_new(pHome->bx->db);
  sqlite3_stmt *pStmt = bxStmt(pHome, zPutAll, pErr);
  char *zRows, *zPayloads;
  i64 nPayload;
  addRows(p, pRows, pPayloads);
  nPayload = sqlite3_str_length(pPayloads);
  zRows = bxFinish(pRows, pErr);
  zPayloads = bxFinish(pPayloads, pErr);
  bxBind(pStmt, pErr, "tit", zId, iNow, zRows);
  if (pErr->rc == SQLITE_OK) {
    bxFailDb(pErr, pHome->bx->db,
        sqlite3_bind_blob64(
            pStmt, 4, zPayloads, (sqlite3_uint64)nPayload, SQLITE_STATIC));
  }
  bxRun(pStmt, pErr);
  sqlite3_free(zRows);
  sqlite3_free(zPayloads);
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
  i64 nByte = 0, iTime = 0, i;
  for (i = iFirst; i < p->nItem; i++) {
    nByte += p->aItem[i].payload.n;
    if (p->aItem[i].iTime > iTime) iTime = p->aItem[i].iTime;
  }
  bxDo(pHome, zCountAll, pErr, "iiii", no, p->nItem - iFirst, nByte, iTime);
}

/* Makes the triggers read the item that was just stored. */
static const char zLook[] =
    "UPDATE main.rollout_heads SET looked = ?2, stamp = stamp + 1 "
    "WHERE no = ?1";

static const char zDrop[] =
    "INSERT INTO main.rollout_imports(rollout, type, payload_type, dropped, "
    "bytes) VALUES (?1, ?2, ?3, ?4, ?5)";

static const char zStart[] =
    "INSERT INTO main.rollout_imports(rollout, now, timestamp, type, payload) "
    "VALUES (?1, ?2, ?3, ?4, ?5)";

/* Writes the first item of a conversation that does not exist, which starts it.
** Returns its head. */
static RolloutHead startWith(const BatchItem *p, BxStmts *pHome,
    const char *zId, i64 iNow, BxErr *pErr) {
  RolloutHead head;
  bxDo(pHome, zStart, pErr, "tiitb", zId, iNow, p->iTime, p->zType,
      p->payload.z, p->payload.n);
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
    if (p->aItem[i].bLook || iNext == 0) {
      bxDo(pHome, zLook, pErr, "ii", head.no, iNext);
    }
    iNext++;
  }
  for (i = 0; i < p->nDrop; i++) {
    const BatchDrop *pDrop = &p->aDrop[i];
    bxDo(pHome, zDrop, pErr, "tttii", zId, pDrop->zType, pDrop->zPayloadType,
        pDrop->nItem, pDrop->nByte);
  }
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
