/*
** pack.c: rollout_pack() and rollout_unpack() move payloads of items into the body
** store and back. What conversations have in common, as imported forks and sub-agents
** do, is there once.
**
** A packed payload is a short reference (ext/store/format.c) in rollout__data, which
** rollout_data_update admits for the text that rollout__packed has for the item. Whoever
** reads a text reads the view rollout__items: its coalesce() of seven values is that of
** SQLite, or, where the module is loaded, bxStoreFirst().
**
** With the setting rollout.pack what the module writes is packed at once: many items
** together, and few ones when PACK_BLOCK of them are there, so that the newest ones are
** mostly text. It runs inside an INSERT that inserts nothing, for which SQLite makes a
** savepoint: a packing that fails has changed nothing, and the items stay.
*/
#include "rollout.h"
#include "../core/log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define PACK_ITEMS 1000 /* the default limits */
#define UNPACK_ITEMS 1000
#define PACK_BLOCK 16

#define ITEMS_PACKED                                                           \
  "SELECT d.payload, coalesce((SELECT id FROM main.rollout__heads WHERE no ="  \
  " d.id >> 32), d.id >> 32) || ', item ' || (d.id & 4294967295)"              \
  " FROM main.rollout__packed AS p JOIN main.rollout__data AS d ON d.id = "    \
  "p.id"
const BxBodies bxRolloutBodies = {
    .zTable = "rollout__data",
    .zRow = "SELECT payload FROM main.rollout__data WHERE id = ?1",
    .zRefer = "INSERT INTO main.rollout__packed(text, id, bytes)"
              " VALUES(?2, ?1, ?4)",
    /* "id = id" makes SQLite write the row in another place, so that the page does not
    ** stay half empty. */
    .zReplace = "UPDATE main.rollout__data SET id = id, payload = ?2"
                " WHERE id = ?1",
    .zInPlace = "UPDATE main.rollout__data SET payload = ?2 WHERE id = ?1",
    .zStays = "DELETE FROM main.rollout__packed WHERE text >= ?2 AND id = ?1",
    .zNamed = ITEMS_PACKED " WHERE p.text = ?1",
    .zAll = ITEMS_PACKED,
    .bShort = 1,
    .zOrdered = "(SELECT id AS row FROM main.rollout__data AS u ORDER BY"
                " iif(typeof(payload) = 'blob', substr(payload, 13, 20) + 0, "
                "0), id LIMIT -1) AS o CROSS JOIN ",
};

/* Items that are worth packing, and are not packed yet. */
#define ITEMS_UNPACKED                                                         \
  "main.rollout__data WHERE typeof(payload) = 'text'"                          \
  " AND length(CAST(payload AS BLOB)) >= 192"

static void logUnpacked(BxStmts *p, const char *zWhy, BxErr *pErr) {
  bxLogRefusal(p, "rollout", "rollout.pack", zWhy, pErr);
}

void bxRolloutPack(BxCall *p) {
  static const char zKeys[] =
      "SELECT json_group_array(id), iif(count(*) < ?1, 0, max(id)) FROM (SELECT"
      " id FROM " ITEMS_UNPACKED
      " AND id > (SELECT pack FROM main.rollout__act)"
      " ORDER BY id LIMIT ?1)";
  static const char zPackItems[] =
      "SELECT store_pack(?1, ?2, NULL, 'rollout__data')";
  static const char zLooked[] = "UPDATE main.rollout__act SET pack = ?1";
  BxStmts *pHome = bxRolloutSchema(p->bx, &p->err);
  sqlite3_stmt *pStmt;
  char *zSome = 0, *zSaid = 0, *z;
  i64 nLimit, iLast = 0;
  bxRefuseInTransaction(p);
  nLimit = bxLimit(p, 0, PACK_ITEMS);
  bxNeedStore(pHome, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxLock(pHome, &p->err);
  pStmt = bxStmt(pHome, zKeys, &p->err);
  bxBind(pStmt, &p->err, "i", nLimit);
  if (bxStep(pStmt, &p->err)) {
    zSome = bxColumnCopy(pStmt, 0, &p->err);
    iLast = sqlite3_column_int64(pStmt, 1);
  }
  bxReset(pStmt, &p->err);
  if (zSome != 0) {
    zSaid = bxPackKeys(pHome, "rollout", zPackItems, zSome, &p->err);
  }
  bxStmtExec(pHome, zLooked, &p->err, "i", iLast);
  z = bxPackResult(pHome, zSaid, iLast > 0, &p->err);
  sqlite3_free(zSome);
  sqlite3_free(zSaid);
  if (z != 0) bxReturnJson(p, z);
}

/* Runs an INSERT that inserts nothing. What fails is passed over. */
static void tryItems(BxStmts *p, const char *zSql, i64 iFirst, i64 iLast,
    int bFew, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int nOthers = sqlite3_total_changes(p->bx->db) - p->bx->nOwn;
  if (pErr->rc != SQLITE_OK) return;
  bxQueryIntInner(
      p, zSql, &err, bFew ? "tiii" : "tii", p->zDb, iFirst, iLast, (i64)1);
  if (bxErrMayIgnore(p, &err)) {
    logUnpacked(p, err.zMsg, pErr);
    bxErrClear(&err);
  }
  p->bx->nOwn = sqlite3_total_changes(p->bx->db) - nOthers;
  bxErrMove(pErr, &err);
}

void bxRolloutPackSome(
    RolloutDerive *pTale, i64 iFirst, i64 iLast, BxErr *pErr) {
  static const char zPackItems[] =
      "INSERT INTO main.rollout__packed(text) SELECT 0 FROM (SELECT"
      " json_group_array(id) AS keys, count(*) AS n FROM " ITEMS_UNPACKED
      " AND id BETWEEN ?2 AND ?3) WHERE n > 0"
      " AND store_pack(keys, ?1, ?4, 'rollout__data') IS 0";
  static const char zDropped[] =
      "SELECT EXISTS (SELECT 1 FROM main.store_dropped WHERE text > 0 LIMIT 1"
      " OFFSET 7) OR EXISTS (SELECT 1 FROM main.store_dropped WHERE text <"
      " -1 << 48)";
  static const char zTend[] =
      "INSERT INTO main.rollout__packed(text) SELECT ?2 + ?3"
      " WHERE store_tend(?1) IS NULL";
  BxStmts *p = pTale->pHome;
  int bFew = iLast - iFirst + 1 < PACK_BLOCK;
  assert(iFirst >= 0);
  if (pErr->rc != SQLITE_OK || iLast < iFirst || !bxHasStore(p)) return;
  if (!pTale->bIdle && bxQueryInt(p, zDropped, pErr, "")) {
    tryItems(p, zTend, 0, 0, 0, pErr);
    pTale->bBusy = 1;
  }
  if (bFew) { /* whole blocks, of which the newest was just completed */
    iFirst -= iFirst % PACK_BLOCK;
    iLast -= (iLast + 1) % PACK_BLOCK;
  }
  if (iLast < iFirst || pTale->pRules == 0 || !pTale->pRules->bPack) return;
  tryItems(p, zPackItems, bxRolloutKey(pTale->no, iFirst),
      bxRolloutKey(pTale->no, iLast), bFew, pErr);
  pTale->bBusy = 1;
}

void bxRolloutSweep(BxStmts *p, BxErr *pErr) {
  static const char zSweep[] = "SELECT store_sweep(?1, ?2)";
  if (pErr->rc != SQLITE_OK || !bxHasStore(p)) return;
  sqlite3_free(
      bxQueryTextInner(p, zSweep, pErr, "it", (i64)BX_LIMIT_MOST, p->zDb));
}

/* Unpacks an item. Returns 0 if it stays: it is damaged, or a trigger of somebody keeps
** it. */
static int unpackItem(BxStmts *p, i64 iText, BxErr *pErr) {
  static const char zText[] =
      "UPDATE main.rollout__data SET id = id, payload = " ROLLOUT_TEXT(
          "payload") " WHERE id = (SELECT id FROM main.rollout__packed WHERE "
                     "text = ?1)";
  static const char zDone[] =
      "DELETE FROM main.rollout__packed WHERE text = ?1";
  int bDone;
  BxErr err = {SQLITE_OK, 0};
  assert(iText > 0);
  bxStmtExec(p, zText, &err, "i", iText);
  bDone = err.rc == SQLITE_OK && sqlite3_changes(p->bx->db) > 0;
  if (bxErrMayIgnore(p, &err)) {
    if (err.rc != SQLITE_CORRUPT_VTAB) logUnpacked(p, err.zMsg, pErr);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
  if (bDone) bxStmtExec(p, zDone, pErr, "i", iText);
  return bDone;
}

void bxRolloutUnpack(BxCall *p) {
  static const char zNext[] =
      "SELECT min(text) FROM main.rollout__packed WHERE text > ?1";
  BxStmts *pHome = bxRolloutSchema(p->bx, &p->err);
  i64 nLimit, nRow = 0, nLeft = 0, iText = 0;
  bxRefuseInTransaction(p);
  nLimit = bxLimit(p, 0, UNPACK_ITEMS);
  bxLock(pHome, &p->err);
  while ((iText = bxQueryInt(pHome, zNext, &p->err, "i", iText)) > 0 &&
         nRow < nLimit) {
    if (unpackItem(pHome, iText, &p->err)) {
      nRow++;
    } else {
      nLeft++;
    }
  }
  bxRolloutSweep(pHome, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxReturnJson(p, sqlite3_mprintf("{\"rows\":%lld,\"left\":%lld,\"more\":%s}",
                      nRow, nLeft, iText > 0 ? "true" : "false"));
}
