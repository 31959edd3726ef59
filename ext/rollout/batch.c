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

/* The work's own copy of a type. Only the newest ones are looked at, as every item
** may have a type of its own. NULL on error. */
static const char *ownName(RolloutWork *p, const char *z, BxErr *pErr) {
  char **pz;
  i64 i;
  assert(z != 0 && p->nName >= 0);
  if (pErr->rc != SQLITE_OK) return 0;
  for (i = p->nName - 1; i >= 0 && i >= p->nName - RECENT_NAMES; i--) {
    if (strcmp(p->azName[i], z) == 0) return p->azName[i];
  }
  pz = bxArrayAdd(&p->azName, &p->nName, &p->nNameAlloc, sizeof(*pz), pErr);
  if (pz != 0) *pz = bxPrintf(pErr, "%s", z);
  return pz != 0 ? *pz : 0;
}

RolloutItem *bxRolloutAdd(RolloutWork *p, i64 iTime, const char *zType,
    RolloutSlice payload, char *zOwned, BxErr *pErr) {
  const char *zOwn = ownName(p, zType, pErr);
  RolloutItem *pItem = zOwn ? bxArrayAdd(&p->aItem, &p->nItem, &p->nItemAlloc,
                                  sizeof(*pItem), pErr)
                            : 0;
  assert(payload.n >= 0 && payload.n <= ROLLOUT_MAX_PAYLOAD);
  if (pItem == 0) {
    sqlite3_free(zOwned);
    return 0;
  }
  pItem->iTime = iTime;
  pItem->zType = zOwn;
  pItem->payload = payload;
  pItem->zOwned = zOwned;
  return pItem;
}

void bxRolloutDrop(RolloutWork *p, const char *zType, const char *zPayloadType,
    i64 nItem, i64 nByte, BxErr *pErr) {
  const char *z1 = ownName(p, zType, pErr);
  const char *z2 = zPayloadType ? ownName(p, zPayloadType, pErr) : 0;
  RolloutDrop *pDrop = p->nDrop > 0 ? &p->aDrop[p->nDrop - 1] : 0;
  assert(nItem >= 0 && nByte >= 0);
  if (pErr->rc != SQLITE_OK || nItem == 0) return;
  if (pDrop == 0 || pDrop->zType != z1 || pDrop->zPayloadType != z2) {
    pDrop =
        bxArrayAdd(&p->aDrop, &p->nDrop, &p->nDropAlloc, sizeof(*pDrop), pErr);
    if (pDrop == 0) return;
    pDrop->zType = z1;
    pDrop->zPayloadType = z2;
  }
  pDrop->nItem += nItem;
  pDrop->nByte += nByte;
}

/* Binds bytes around a payload, unless there are none, as for the item before. */
static void bindSpan(sqlite3_stmt *pStmt, int i, RolloutSlice span,
    const RolloutSlice *pLast, BxErr *pErr) {
  assert(i > 0 && span.n >= 0);
  if (span.z != 0) {
    bxFailDb(pErr, sqlite3_db_handle(pStmt),
        sqlite3_bind_blob64(
            pStmt, i, span.z, (sqlite3_uint64)span.n, SQLITE_STATIC));
  } else if (pLast != 0 && pLast->z != 0) {
    sqlite3_bind_null(pStmt, i);
  }
}

/* Stores an item. The statement is looked up once for many rows, and what an item
** has in common with pLast, the item before it, stays bound: the caller clears it.
** While the rows are written, no code of the host runs that could finalize it. */
static void putItemRow(sqlite3_stmt *pStmt, i64 id, const RolloutItem *p,
    const RolloutItem *pLast, BxErr *pErr) {
  sqlite3 *db = sqlite3_db_handle(pStmt);
  assert(p->payload.n >= 0 && p->zType != 0);
  if (pErr->rc != SQLITE_OK) return;
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
  bindSpan(pStmt, 5, p->before, pLast ? &pLast->before : 0, pErr);
  bindSpan(pStmt, 6, p->after, pLast ? &pLast->after : 0, pErr);
  if (p->bQuiet) {
    sqlite3_bind_int(pStmt, 7, p->bQuiet);
  } else if (pLast != 0 && pLast->bQuiet) {
    sqlite3_bind_null(pStmt, 7);
  }
  bxStep(pStmt, pErr);
  sqlite3_reset(pStmt);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(db) == 0) {
    bxFail(pErr, SQLITE_MISUSE,
        "MisuseError: a trigger on rollout__data ignored an item that must be "
        "recorded; nothing was written; raise an error in the trigger, or "
        "change rollout_policy");
  }
}

/* Counts all items in their head, at once. The second way does not touch what the
** index of the list is made of: items of the same millisecond as the newest one do
** not move the conversation in the list. */
static void countAll(
    const RolloutWork *p, const RolloutHead *pHead, BxErr *pErr) {
  static const char zCountAll[] =
      "UPDATE main.rollout__heads SET last_sequence = last_sequence + ?2, "
      "bytes = bytes + ?3, turns = ?4, updated = ?5, "
      "user_sequence = nullif(?6, -1) WHERE no = ?1";
  static const char zCountMore[] =
      "UPDATE main.rollout__heads SET last_sequence = last_sequence + ?2, "
      "bytes = bytes + ?3, turns = ?4 WHERE no = ?1";
  const RolloutDerive *pTale = &p->tale;
  i64 nByte = 0, iTime = pHead->iUpdated, i;
  int bMoves;
  assert(p->nItem >= 0 && pHead->iLast >= -1);
  for (i = 0; i < p->nItem; i++) {
    nByte += p->aItem[i].payload.n;
    if (p->aItem[i].iTime > iTime) iTime = p->aItem[i].iTime;
  }
  bMoves = iTime > pHead->iUpdated || pTale->iUser != pHead->iUser;
  bxStmtExec(pTale->pHome, bMoves ? zCountAll : zCountMore, pErr,
      bMoves ? "iiiiii" : "iiii", pHead->no, p->nItem, nByte, pTale->nTurn,
      iTime, pTale->iUser);
}

/* What lists show of a conversation whose session_meta was stored. */
static void putMeta(
    BxStmts *pHome, i64 no, const RolloutItem *pItem, BxErr *pErr) {
  static const char zMetaTitle[] =
      "UPDATE main.rollout__heads SET title = (SELECT payload ->> 'title' "
      "FROM main.rollout__data WHERE id = ?1 << 32) "
      "WHERE no = ?1 AND title IS NULL";
  assert(no > 0 && pItem->zType != 0);
  if (!bxNameEquals(pItem->zType, (i64)strlen(pItem->zType), "sessionmeta") ||
      pItem->payload.z == 0 || *bxJsonSkipSpace(pItem->payload.z) != '{') {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "InvalidItemError: Invalid item format: item 0 of a conversation must "
        "be its session_meta, and the payload must be an object");
  }
  bxRolloutPutAbout(pHome, no, pErr);
  bxStmtExec(pHome, zMetaTitle, pErr, "i", no);
}

void bxRolloutWorkBegin(RolloutWork *p, BxStmts *pHome, BxErr *pErr) {
  p->iTail = -1;
  p->tale.bTexts = 1;
  bxRolloutDerivePending(&p->tale, pHome, &p->head, pErr);
  p->tale.bStored = 0; /* what follows is new */
}

void bxRolloutWorkEnd(RolloutWork *p) {
  i64 i;
  assert(p->nItem <= p->nItemAlloc && p->nName <= p->nNameAlloc);
  for (i = 0; i < p->nItem; i++) sqlite3_free(p->aItem[i].zOwned);
  for (i = 0; i < p->nName; i++) sqlite3_free(p->azName[i]);
  sqlite3_free(p->azName);
  sqlite3_free(p->aItem);
  sqlite3_free(p->aDrop);
  bxRolloutDeriveEnd(&p->tale);
}

void bxRolloutWorkPut(RolloutWork *p, BxStmts *pHome, i64 iNow, BxErr *pErr) {
  static const char zStart[] =
      "INSERT INTO main.rollout__heads(id, created, expires_at, whole) "
      "SELECT ?1, ?2, ?3 + 86400000 * nullif(value, 0), 1 "
      "FROM main.blackbox_settings WHERE name = 'rollout.import_ttl_days'";
  static const char zPutOne[] =
      "INSERT INTO main.rollout__data(id, timestamp, type, payload, before, "
      "after, quiet) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
  /* the items of plain SQL before these were told with them */
  static const char zDerived[] =
      "UPDATE main.rollout__heads SET turns = ?2, user_sequence = "
      "nullif(?3, -1), behind = NULL WHERE no = ?1";
  /* an item that another conversation may own gets another end */
  static const char zTail[] =
      "UPDATE main.rollout__data SET after = CAST(?2 AS BLOB) WHERE id = ?1";
  static const char zDrop[] =
      "INSERT INTO main.rollout_drops(no, item_type, payload_type, items, "
      "bytes) VALUES (?1, ?2, coalesce(?3, ''), ?4, ?5) "
      "ON CONFLICT (no, item_type, payload_type) DO UPDATE "
      "SET items = items + excluded.items, bytes = bytes + excluded.bytes";
  RolloutDerive *pTale = &p->tale;
  RolloutHead head = p->head;
  sqlite3_stmt *pStmt;
  i64 i, iFirst = head.iLast + 1;
  assert(pErr->rc != SQLITE_OK || p->zId[36] == 0);
  if (pErr->rc != SQLITE_OK) return;
  assert(head.iLast >= -1 && head.no >= 0);
  if (head.iLast + p->nItem > ROLLOUT_LAST) {
    bxFail(pErr, SQLITE_TOOBIG,
        "RolloutTooLongError: Rollout too long: a conversation has at most "
        "%lld items; fork it, or start another one",
        (i64)ROLLOUT_LAST + 1);
  }
  if (head.no == 0 && p->nItem > 0) {
    bxStmtExec(pHome, zStart, pErr, "tii", p->zId, p->aItem[0].iTime, iNow);
    bxRolloutFind(pHome, 0, p->zId, &head, pErr);
  }
  pTale->no = head.no;
  if (p->nItem > 0) countAll(p, &head, pErr);
  pStmt = bxStmt(pHome, zPutOne, pErr);
  for (i = 0; i < p->nItem && pErr->rc == SQLITE_OK; i++) {
    putItemRow(pStmt, bxRolloutKey(head.no, iFirst + i), &p->aItem[i],
        i > 0 ? &p->aItem[i - 1] : 0, pErr);
    pHome->bx->nOwn += pErr->rc == SQLITE_OK;
    if (iFirst + i == 0) putMeta(pHome, head.no, &p->aItem[i], pErr);
  }
  bxReset(pStmt, pErr);
  if (head.no > 0 && head.iBehind >= 0) {
    bxStmtExec(
        pHome, zDerived, pErr, "iii", head.no, pTale->nTurn, pTale->iUser);
    bxRolloutPutAbout(pHome, head.no, pErr);
  }
  bxRolloutDeriveItem(pTale, pErr);
  bxRolloutTextsPut(pTale, pErr);
  if (p->iTail >= 0) {
    bxStmtExec(pHome, zTail, pErr, "ib", p->iTail, p->tail.z, p->tail.n);
  }
  for (i = 0; i < p->nDrop && head.no > 0; i++) {
    bxStmtExec(pHome, zDrop, pErr, "ittii", head.no, p->aDrop[i].zType,
        p->aDrop[i].zPayloadType, p->aDrop[i].nItem, p->aDrop[i].nByte);
  }
  i = head.iBehind >= 0 ? head.iBehind : iFirst;
  bxRolloutPackSome(pTale, i, iFirst + p->nItem - 1, pErr);
}
