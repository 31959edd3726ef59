/*
** batch.c: the items of one append or import.
**
** append.c and import.c check their items, and collect here the items to keep
** and the number of items that are dropped. All items are first counted in the
** head, and each one is then an INSERT of its own. What follows from them is
** written at the end (derive.c). A function does this in a savepoint, and a row of
** blackbox_call by the rules of core/transaction.c.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define RECENT_NAMES 32

typedef struct BatchItem {
  i64 iTime;
  const char *zType; /* one of azName */
  RolloutSpan payload;
  char *zOwned; /* the memory that payload points into, or NULL */
  RolloutFrame frame;
} BatchItem;

/* Dropped items of one pair of types, of azName. */
typedef struct BatchDrop {
  const char *zType, *zPayloadType;
  i64 nItem, nByte;
} BatchDrop;

struct RolloutBatch {
  BatchItem *aItem;
  i64 nItem, nItemAlloc;
  BatchDrop *aDrop;
  i64 nDrop, nDropAlloc;
  char **azName; /* the types */
  i64 nName, nNameAlloc;
  i64 iTail; /* sequence of an item that gets another end, or -1 */
  RolloutSpan tail;
};

static RolloutBatch *newBatch(BxErr *pErr) {
  RolloutBatch *p = bxNew(sizeof(RolloutBatch), pErr);
  if (p != 0) p->iTail = -1;
  return p;
}

static void freeBatch(RolloutBatch *p) {
  i64 i;
  if (p == 0) return;
  for (i = 0; i < p->nItem; i++) sqlite3_free(p->aItem[i].zOwned);
  for (i = 0; i < p->nName; i++) sqlite3_free(p->azName[i]);
  sqlite3_free(p->azName);
  sqlite3_free(p->aItem);
  sqlite3_free(p->aDrop);
  sqlite3_free(p);
}

/* The batch's own copy of a type. Only the newest ones are looked at, as every item
** may have a type of its own. NULL on error. */
static const char *ownName(RolloutBatch *p, const char *z, BxErr *pErr) {
  char **pz;
  i64 i;
  if (pErr->rc != SQLITE_OK) return 0;
  for (i = p->nName - 1; i >= 0 && i >= p->nName - RECENT_NAMES; i--) {
    if (strcmp(p->azName[i], z) == 0) return p->azName[i];
  }
  pz = bxAdd(&p->azName, &p->nName, &p->nNameAlloc, sizeof(*pz), pErr);
  if (pz == 0) return 0;
  *pz = bxPrintf(pErr, "%s", z);
  if (*pz == 0) p->nName--;
  return p->nName > 0 ? p->azName[p->nName - 1] : 0;
}

void bxRolloutBatchAdd(RolloutBatch *p, i64 iTime, const char *zType,
    RolloutSpan payload, char *zOwned, BxErr *pErr) {
  const char *zOwn = ownName(p, zType, pErr);
  BatchItem *pItem = 0;
  if (pErr->rc == SQLITE_OK) {
    pItem = bxAdd(&p->aItem, &p->nItem, &p->nItemAlloc, sizeof(*pItem), pErr);
  }
  if (pItem == 0) {
    sqlite3_free(zOwned);
    return;
  }
  pItem->iTime = iTime;
  pItem->zType = zOwn;
  pItem->payload = payload;
  pItem->zOwned = zOwned;
}

RolloutFrame *bxRolloutBatchFrame(RolloutBatch *p) {
  assert(p->nItem > 0);
  return &p->aItem[p->nItem - 1].frame;
}

void bxRolloutBatchFirst(RolloutBatch *p, char *zOwned) {
  BatchItem *pItem = &p->aItem[0];
  if (zOwned == 0) return;
  assert(p->nItem > 0);
  sqlite3_free(pItem->zOwned);
  pItem->zOwned = zOwned;
  pItem->payload.z = zOwned;
  pItem->payload.n = (i64)strlen(zOwned);
}

void bxRolloutBatchTail(RolloutBatch *p, i64 iSequence, RolloutSpan after) {
  p->iTail = iSequence;
  p->tail = after;
}

i64 bxRolloutBatchCount(const RolloutBatch *p) {
  return p->nItem;
}

void bxRolloutBatchDrop(RolloutBatch *p, const char *zType,
    const char *zPayloadType, i64 nItem, i64 nByte, BxErr *pErr) {
  const char *z1 = ownName(p, zType, pErr);
  const char *z2 = zPayloadType ? ownName(p, zPayloadType, pErr) : 0;
  BatchDrop *pDrop;
  i64 i;
  if (pErr->rc != SQLITE_OK || nItem == 0) return;
  i = p->nDrop;
  while (--i >= 0 && i >= p->nDrop - RECENT_NAMES &&
         (p->aDrop[i].zType != z1 || p->aDrop[i].zPayloadType != z2)) {
  }
  if (i >= 0 && i >= p->nDrop - RECENT_NAMES) {
    pDrop = &p->aDrop[i];
  } else {
    pDrop = bxAdd(&p->aDrop, &p->nDrop, &p->nDropAlloc, sizeof(*pDrop), pErr);
    if (pDrop == 0) return;
    pDrop->zType = z1;
    pDrop->zPayloadType = z2;
  }
  pDrop->nItem += nItem;
  pDrop->nByte += nByte;
}

static const char zPutOne[] =
    "INSERT INTO main.rollout__data(id, timestamp, type, payload, before, "
    "after, quiet) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

static void bindSpan(
    sqlite3_stmt *pStmt, int i, RolloutSpan span, BxErr *pErr) {
  if (span.z == 0) {
    sqlite3_bind_null(pStmt, i);
    return;
  }
  bxFailDb(pErr, sqlite3_db_handle(pStmt),
      sqlite3_bind_blob64(
          pStmt, i, span.z, (sqlite3_uint64)span.n, SQLITE_STATIC));
}

/* Binds an item. What it has in common with pLast, the item before it, if there
** is one, is bound already. */
static void bindItem(sqlite3_stmt *pStmt, i64 id, const BatchItem *p,
    const BatchItem *pLast, BxErr *pErr) {
  sqlite3 *db = sqlite3_db_handle(pStmt);
  sqlite3_bind_int64(pStmt, 1, id);
  if (pLast == 0 || p->iTime != pLast->iTime) {
    sqlite3_bind_int64(pStmt, 2, p->iTime);
  }
  if (pLast == 0 || p->zType != pLast->zType) {
    sqlite3_bind_text(pStmt, 3, p->zType, -1, SQLITE_STATIC);
  }
  if (p->payload.z != 0) {
    bxFailDb(pErr, db,
        sqlite3_bind_text64(pStmt, 4, p->payload.z,
            (sqlite3_uint64)p->payload.n, SQLITE_STATIC, SQLITE_UTF8));
  } else {
    sqlite3_bind_null(pStmt, 4);
  }
  bindSpan(pStmt, 5, p->frame.before, pErr);
  bindSpan(pStmt, 6, p->frame.after, pErr);
  if (p->frame.bQuiet) {
    sqlite3_bind_int(pStmt, 7, 1);
  } else {
    sqlite3_bind_null(pStmt, 7);
  }
}

/* Stores an item. The statement is looked up once for many rows, and its bindings
** stay: the caller clears them. While the rows are written, no code of the host
** runs that could finalize it. */
static void putItemRow(sqlite3_stmt *pStmt, i64 id, const BatchItem *p,
    const BatchItem *pLast, BxErr *pErr) {
  sqlite3 *db = sqlite3_db_handle(pStmt);
  if (pErr->rc != SQLITE_OK) return;
  bindItem(pStmt, id, p, pLast, pErr);
  bxRow(pStmt, pErr);
  sqlite3_reset(pStmt);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(db) == 0) {
    bxFail(pErr, SQLITE_MISUSE,
        "MisuseError: a trigger on rollout__data ignored an item that must be "
        "recorded; nothing was written; raise an error in the trigger, or "
        "change rollout_policy");
  }
}

/* Counts all items in their head, at once. The second
** way does not touch what the index of the list is made of: items of the same
** millisecond as the newest one do not move the conversation in the list. */
static const char zCountAll[] =
    "UPDATE main.rollout__heads SET last_sequence = last_sequence + ?2, "
    "bytes = bytes + ?3, turns = ?4, updated = ?5, "
    "user_sequence = nullif(?6, -1) WHERE no = ?1";
static const char zCountMore[] =
    "UPDATE main.rollout__heads SET last_sequence = last_sequence + ?2, "
    "bytes = bytes + ?3, turns = ?4 WHERE no = ?1";

static void countAll(const RolloutBatch *p, i64 iFirst,
    const RolloutHead *pHead, const RolloutTale *pTale, BxErr *pErr) {
  i64 nTurn = pTale->nTurn, iUser = pTale->iUser;
  i64 nByte = 0, iTime = pHead->iUpdated, i;
  for (i = iFirst; i < p->nItem; i++) {
    nByte += p->aItem[i].payload.n;
    if (p->aItem[i].iTime > iTime) iTime = p->aItem[i].iTime;
  }
  if (iTime > pHead->iUpdated || iUser != pHead->iUser) {
    bxDo(pTale->pHome, zCountAll, pErr, "iiiiii", pHead->no, p->nItem - iFirst,
        nByte, nTurn, iTime, iUser);
  } else {
    bxDo(pTale->pHome, zCountMore, pErr, "iiii", pHead->no, p->nItem - iFirst,
        nByte, nTurn);
  }
}

static const char zDrop[] =
    "INSERT INTO main.rollout_drops(no, item_type, payload_type, items, bytes) "
    "VALUES (?1, substr(?2, 1, 100), substr(coalesce(?3, ''), 1, 100), ?4, ?5) "
    "ON CONFLICT (no, item_type, payload_type) DO UPDATE "
    "SET items = items + excluded.items, bytes = bytes + excluded.bytes";

/* The items of plain SQL before these were told with them. */
static const char zDerived[] =
    "UPDATE main.rollout__heads SET turns = ?2, user_sequence = "
    "coalesce(user_sequence, nullif(?3, -1)), behind = NULL WHERE no = ?1";

static const char zStart[] =
    "INSERT INTO main.rollout__heads(id, created, expires_at) "
    "SELECT ?1, ?2, ?3 + 86400000 * value FROM main.blackbox_settings "
    "WHERE name = 'rollout.ttl_days'";
static const char zCountFirst[] =
    "UPDATE main.rollout__heads SET last_sequence = 0, bytes = ?2, "
    "updated = ?3 WHERE no = ?1";
static const char zMetaTitle[] =
    "UPDATE main.rollout__heads SET title = (SELECT payload ->> 'title' "
    "FROM main.rollout__data WHERE id = ?1 << 32) "
    "WHERE no = ?1 AND title IS NULL";

/* What lists show of a conversation whose session_meta was stored. */
static void putMeta(
    BxStmts *pHome, i64 no, const BatchItem *pItem, BxErr *pErr) {
  if (!bxSpelled(pItem->zType, (i64)strlen(pItem->zType), "sessionmeta") ||
      pItem->payload.z == 0 || *bxSkipSpace(pItem->payload.z) != '{') {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "InvalidItemError: Invalid item format: item 0 of a conversation must "
        "be its session_meta, and the payload must be an object");
  }
  bxRolloutPutAbout(pHome, no, pErr);
  bxDo(pHome, zMetaTitle, pErr, "i", no);
}

/* Starts a conversation with its session_meta. Returns its head. */
static RolloutHead startWith(const BatchItem *p, BxStmts *pHome,
    const char *zId, i64 iNow, BxErr *pErr) {
  RolloutHead head;
  sqlite3_stmt *pStmt;
  bxDo(pHome, zStart, pErr, "tii", zId, p->iTime, iNow);
  bxRolloutFind(pHome, 0, zId, &head, pErr);
  if (pErr->rc != SQLITE_OK) return head;
  pStmt = bxStmt(pHome, zPutOne, pErr);
  putItemRow(pStmt, bxRolloutKey(head.no, 0), p, 0, pErr);
  bxDone(pStmt, pErr);
  bxDo(pHome, zCountFirst, pErr, "iii", head.no, p->payload.n, p->iTime);
  putMeta(pHome, head.no, p, pErr);
  bxRolloutFind(pHome, 0, zId, &head, pErr);
  return head;
}

/* Gives an item, which another conversation may own, another end. */
static void putTail(
    const RolloutBatch *p, BxStmts *pHome, i64 no, BxErr *pErr) {
  static const char zTail[] =
      "UPDATE main.rollout__data SET after = CAST(?3 AS BLOB) WHERE id = "
      "(SELECT (owner << 32) + ?2 FROM main.rollout__segments "
      "WHERE rollout = ?1 AND ?2 BETWEEN first AND last)";
  if (p->iTail < 0) return;
  bxDo(pHome, zTail, pErr, "iib", no, p->iTail, p->tail.z, p->tail.n);
}

static void putInSteps(
    RolloutWork *pWork, BxStmts *pHome, i64 iNow, BxErr *pErr) {
  RolloutBatch *p = pWork->pBatch;
  RolloutTale *pTale = &pWork->tale;
  RolloutHead head = pWork->head;
  const BatchItem *pLast = 0;
  sqlite3_stmt *pStmt;
  i64 i = 0, iNext;
  if (head.no == 0 && p->nItem > 0) {
    head = startWith(&p->aItem[i++], pHome, pWork->zId, iNow, pErr);
  }
  pTale->no = head.no;
  if (i < p->nItem) countAll(p, i, &head, pTale, pErr);
  pStmt = bxStmt(pHome, zPutOne, pErr);
  for (iNext = head.iLast + 1; i < p->nItem && pErr->rc == SQLITE_OK; i++) {
    i64 id = bxRolloutKey(head.no, iNext);
    putItemRow(pStmt, id, &p->aItem[i], pLast, pErr);
    pLast = &p->aItem[i];
    if (iNext++ == 0) putMeta(pHome, head.no, &p->aItem[i], pErr);
  }
  bxDone(pStmt, pErr);
  if (head.no > 0 && head.iBehind >= 0) {
    bxDo(pHome, zDerived, pErr, "iii", head.no, pTale->nTurn, pTale->iUser);
    bxRolloutPutAbout(pHome, head.no, pErr);
  }
  bxRolloutTalePut(pTale, pErr);
  bxRolloutSearchPut(pHome, pTale->pRules, head.no,
      head.iBehind >= 0 ? head.iBehind : head.iLast + 1, iNext - 1, pErr);
  putTail(p, pHome, head.no, pErr);
  for (i = 0; i < p->nDrop && head.no > 0; i++) {
    const BatchDrop *pDrop = &p->aDrop[i];
    bxDo(pHome, zDrop, pErr, "ittii", head.no, pDrop->zType,
        pDrop->zPayloadType, pDrop->nItem, pDrop->nByte);
  }
}

/*---------------------------------------------------------------- works ----*/

void bxRolloutWorkBegin(RolloutWork *p, BxStmts *pHome, BxErr *pErr) {
  p->pBatch = newBatch(pErr);
  bxRolloutTellPending(&p->tale, pHome, &p->head, pErr);
  p->tale.bStored = 0; /* what follows is new */
}

void bxRolloutWorkEnd(RolloutWork *p) {
  freeBatch(p->pBatch);
  bxRolloutTaleEnd(&p->tale);
}

void bxRolloutWorkPut(
    RolloutWork **ap, int n, BxStmts *pHome, i64 iNow, BxErr *pErr) {
  int i;
  for (i = 0; i < n && pErr->rc == SQLITE_OK; i++) {
    assert(ap[i]->head.iLast >= -1 && ap[i]->head.no >= 0);
    if (ap[i]->head.iLast + ap[i]->pBatch->nItem > ROLLOUT_LAST) {
      bxFail(pErr, SQLITE_TOOBIG,
          "RolloutTooLongError: Rollout too long: a conversation has at most "
          "%lld items; fork it, or start another one",
          (i64)ROLLOUT_LAST + 1);
    }
  }
  for (i = 0; i < n && pErr->rc == SQLITE_OK; i++) {
    putInSteps(ap[i], pHome, iNow, pErr);
  }
}
