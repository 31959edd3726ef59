/*
** sweep.c: store_sweep([limit[, schema]]) removes texts that no reference names any
** more, with the pieces that no other text has. store_erase(key[, schema]) removes
** what a key of a user of the store belongs to, and its pieces at once.
**
** store_dropped lists the texts that may be unused. Each is looked for in the views
** of store_users; one that is still there stays. The uses of the pieces of the
** others are counted down, and each pack in which a piece has none left is written
** again without it, or removed. So the work depends on what is removed, and not on
** what is stored.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_TEXTS 1000 /* the default limit */

typedef struct Sweep {
  BxStmts *p;
  BxErr *pErr;
  List *aList; /* the lists that were touched, in the order of their packs */
  i64 nList, nListAlloc;
  void *pZip;
  i64 nText, nTextByte, nPiece, nPieceByte, nKept;
} Sweep;

/*-------------------------------------------------------------- users ----*/

void bxStoreUsers(BxStmts *p,
    void (*xEach)(BxStmts *, const char *, const char *, void *, BxErr *),
    void *pArg, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(
      p, "SELECT bodies, texts FROM main.store_users ORDER BY 1", pErr);
  while (bxRow(pStmt, pErr)) {
    const char *zBodies = bxColumnText(pStmt, 0, pErr);
    const char *zTexts = bxColumnText(pStmt, 1, pErr);
    if (pErr->rc == SQLITE_OK) xEach(p, zBodies, zTexts, pArg, pErr);
  }
  sqlite3_finalize(pStmt);
}

/* Adds an arm to a query of all references. */
static void addArm(BxStmts *p, const char *zBodies, const char *zTexts,
    void *pArg, BxErr *pErr) {
  sqlite3_str *pSql = (sqlite3_str *)pArg;
  (void)zBodies;
  (void)pErr;
  sqlite3_str_appendf(pSql,
      "%sSELECT reference, \"key\" FROM \"%w\".\"%w\" WHERE text = ?1",
      sqlite3_str_length(pSql) > 0 ? " UNION ALL " : "", p->zDb, zTexts);
}

sqlite3_stmt *bxStoreNamed(BxStmts *p, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(p->bx->db);
  sqlite3_stmt *pStmt = 0;
  char *zSql;
  bxStoreUsers(p, addArm, pSql, pErr);
  zSql = bxFinish(pSql, pErr);
  if (zSql != 0) pStmt = bxPlain(p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  return pStmt;
}

/* Whether a reference names the text. */
static int isNamed(sqlite3_stmt *pNamed, const TextRow *pRow, BxErr *pErr) {
  int bNamed = 0;
  bxBind(pNamed, pErr, "i", pRow->iText);
  while (!bNamed && bxRow(pNamed, pErr)) {
    Ref ref;
    bNamed = bxRefOf(&ref, sqlite3_column_value(pNamed, 0)) &&
             ref.iText == pRow->iText &&
             memcmp(ref.aHash, pRow->aMark, STORE_MARK) == 0;
  }
  bxDone(pNamed, pErr);
  return bNamed;
}

/*-------------------------------------------------------------- texts ----*/

/* The list of a pack, read if it is not held. They are kept in order. */
static List *touchList(Sweep *s, i64 iPack) {
  i64 iLow = 0, iHigh = s->nList;
  List *a, list;
  while (iLow < iHigh) {
    i64 iMid = (iLow + iHigh) / 2;
    if (s->aList[iMid].iPack == iPack) return &s->aList[iMid];
    if (s->aList[iMid].iPack < iPack) {
      iLow = iMid + 1;
    } else {
      iHigh = iMid;
    }
  }
  bxListRead(s->p, iPack, &list, s->pErr);
  a = bxGrow(s->aList, s->nList, &s->nListAlloc, sizeof(*a), s->pErr);
  if (a == 0) {
    bxListFree(&list);
    return 0;
  }
  s->aList = a;
  memmove(a + iLow + 1, a + iLow, (size_t)(s->nList - iLow) * sizeof(*a));
  a[iLow] = list;
  s->nList++;
  return &a[iLow];
}

/* Takes the uses of a range back. */
static void releaseRange(Sweep *s, const Range *pRange) {
  List *pList = touchList(s, pRange->iPack);
  i64 i, iEnd = pRange->iFirst + pRange->nPiece;
  if (pList == 0) return;
  for (i = pRange->iFirst; i < iEnd && s->pErr->rc == SQLITE_OK; i++) {
    if (i >= pList->n || pList->a[i].nUse == 0) {
      bxFail(s->pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedDataError: piece %lld of pack %lld of the body store has "
          "fewer uses than texts that name it; run blackbox_check",
          i, pRange->iPack);
      return;
    }
    if (--pList->a[i].nUse == 0) pList->bDead = 1;
  }
  pList->bChanged = 1;
}

static void removeText(Sweep *s, const TextRow *pRow) {
  static const char zSql[] = "DELETE FROM main.store__texts WHERE text = ?1";
  static const char zLength[] =
      "SELECT length(recipe) FROM main.store__texts WHERE text = ?1";
  sqlite3_stmt *pStmt;
  i64 i;
  for (i = 0; i < pRow->recipe.n && s->pErr->rc == SQLITE_OK; i++) {
    releaseRange(s, &pRow->recipe.a[i]);
  }
  s->nKept -= bxAsk(s->p, zLength, s->pErr, "i", pRow->iText);
  pStmt = bxStmt(s->p, zSql, s->pErr);
  bxBind(pStmt, s->pErr, "i", pRow->iText);
  bxStoreRun(s->p, pStmt, s->pErr);
  s->nText++;
  s->nTextByte += pRow->nByte;
}

/* Removes one text of store_dropped, unless it is named. */
static void sweepText(Sweep *s, sqlite3_stmt *pNamed, i64 iText) {
  static const char zSql[] = "DELETE FROM main.store_dropped WHERE text = ?1";
  sqlite3_stmt *pStmt;
  TextRow row;
  if (bxTextRowFind(s->p, iText, &row, s->pErr) &&
      !isNamed(pNamed, &row, s->pErr) && s->pErr->rc == SQLITE_OK) {
    removeText(s, &row);
  }
  bxTextRowFree(&row);
  pStmt = bxStmt(s->p, zSql, s->pErr);
  bxBind(pStmt, s->pErr, "i", iText);
  bxStoreRun(s->p, pStmt, s->pErr);
}

/*-------------------------------------------------------------- packs ----*/

/* Forgets a piece without uses. z: its bytes, NULL if they cannot be read. */
static void removePiece(
    Sweep *s, const List *pList, i64 i, const unsigned char *z) {
  static const char zSql[] =
      "DELETE FROM main.store__pieces WHERE \"key\" = ?1 AND place = ?2";
  sqlite3_stmt *pStmt = bxStmt(s->p, zSql, s->pErr);
  Piece *a = &pList->a[i];
  if (z != 0) {
    unsigned char aHash[STORE_HASH];
    bxPieceHash(z, a->nByte, aHash);
    bxBind(pStmt, s->pErr, "ii", bxPieceKey(aHash), pList->iPack << 16 | i);
    bxStoreRun(s->p, pStmt, s->pErr);
  }
  s->nPiece++;
  s->nPieceByte += a->nByte;
  memset(a, 0, sizeof(*a));
}

/* Removes a pack of which nothing is left. */
static void removePack(Sweep *s, List *pList) {
  static const char zLength[] =
      "SELECT length(data) FROM main.store__packs WHERE pack = ?1";
  static const char *const azSql[] = {
      "DELETE FROM main.store__packs WHERE pack = ?1",
      "DELETE FROM main.store__uses WHERE pack = ?1",
      "UPDATE main.store__state SET open = 0 WHERE open = ?1"};
  int i;
  s->nKept -= bxAsk(s->p, zLength, s->pErr, "i", pList->iPack);
  s->nKept -= pList->nStored;
  for (i = 0; i < 3; i++) {
    sqlite3_stmt *pStmt = bxStmt(s->p, azSql[i], s->pErr);
    bxBind(pStmt, s->pErr, "i", pList->iPack);
    bxStoreRun(s->p, pStmt, s->pErr);
  }
  pList->bChanged = 0;
}

/* Forgets all pieces of a pack that cannot be read: their hashes are not known. */
static void forgetPieces(Sweep *s, const List *pList) {
  static const char zSql[] =
      "DELETE FROM main.store__pieces WHERE place BETWEEN ?1 AND ?1 + 65535";
  sqlite3_stmt *pStmt = bxStmt(s->p, zSql, s->pErr);
  bxBind(pStmt, s->pErr, "i", pList->iPack << 16);
  bxStoreRun(s->p, pStmt, s->pErr);
}

/* Copies the bytes of all pieces of a pack. Returns 0 if it does not have those of
** the list. */
static int copyPieces(
    Sweep *s, const List *pList, const Pack *pPack, Bytes *pOut) {
  i64 i;
  for (i = 0; i < pList->n; i++) {
    const unsigned char *z = bxPackPiece(pPack, i, pList->a[i].nByte);
    if (z == 0) return 0;
    bxBytesAdd(pOut, z, pList->a[i].nByte, s->pErr);
  }
  return 1;
}

/* Removes the pieces of a pack that have no uses, and copies the bytes of the
** others. z: the bytes of all, NULL if they cannot be read. */
static void dividePieces(
    Sweep *s, const List *pList, const unsigned char *z, Bytes *pLeft) {
  i64 i;
  if (z == 0) forgetPieces(s, pList);
  for (i = 0; i < pList->n && s->pErr->rc == SQLITE_OK; i++) {
    i64 nByte = pList->a[i].nByte;
    if (pList->a[i].nUse > 0) {
      bxBytesAdd(pLeft, z, nByte, s->pErr);
    } else if (nByte > 0) {
      removePiece(s, pList, i, z);
    }
    if (z != 0) z += nByte;
  }
}

/* Writes a pack without the pieces that have no uses. One of which nothing is left
** is removed even if it is damaged. What was read is copied, because a trigger of
** another may read packs meanwhile. */
static void cleanPack(Sweep *s, List *pList) {
  Bytes all = {0, 0, 0}, left = {0, 0, 0};
  const Pack *pPack;
  i64 i, nLeft = 0;
  int bRead;
  for (i = 0; i < pList->n; i++) nLeft += pList->a[i].nUse > 0;
  pPack = nLeft > 0 ? bxPackRead(s->p, pList->iPack, STORE_ALL, s->pErr)
                    : bxPackTry(s->p, pList->iPack, STORE_ALL, s->pErr);
  bRead = pPack != 0 && copyPieces(s, pList, pPack, &all);
  if (!bRead && nLeft > 0) bxListChanged(pList->iPack, s->pErr);
  dividePieces(s, pList, bRead ? all.a : 0, &left);
  if (s->pErr->rc == SQLITE_OK && nLeft == 0) {
    removePack(s, pList);
  } else if (s->pErr->rc == SQLITE_OK) {
    if (s->pZip == 0) s->pZip = bxZipContext(s->pErr);
    bxPackWrite(
        s->p, pList->iPack, s->pZip, left.a, left.n, &s->nKept, s->pErr);
  }
  sqlite3_free(all.a);
  sqlite3_free(left.a);
}

/* Writes all packs and lists that were touched, and the totals. */
static void endSweep(Sweep *s) {
  i64 i;
  for (i = 0; i < s->nList; i++) {
    List *pList = &s->aList[i];
    if (s->pErr->rc == SQLITE_OK && pList->bDead) cleanPack(s, pList);
    if (s->pErr->rc == SQLITE_OK && pList->bChanged) {
      bxListWrite(s->p, pList, &s->nKept, s->pErr);
    }
    bxListFree(pList);
  }
  sqlite3_free(s->aList);
  bxZipFree(s->pZip);
  bxStoreCount(s->p, -s->nText, -s->nTextByte, -s->nPiece, -s->nPieceByte,
      s->nKept, s->pErr);
}

/*---------------------------------------------------------- functions ----*/

/* Sweeps the texts of a list, a JSON array. Returns how many were removed. */
static i64 sweepAll(BxStmts *p, const char *zTexts, BxErr *pErr) {
  Sweep sweep = {p, pErr, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  sqlite3_stmt *pNamed = bxStoreNamed(p, pErr);
  sqlite3_stmt *pList =
      bxPlain(p->bx->db, "SELECT value FROM json_each(?1)", pErr);
  bxBind(pList, pErr, "t", zTexts);
  if (pNamed == 0) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: store_users in schema %s is empty, so it is not "
        "known which texts are in use; run SELECT blackbox_install(%Q)",
        p->zDb, p->zDb);
  }
  while (bxRow(pList, pErr)) {
    sweepText(&sweep, pNamed, sqlite3_column_int64(pList, 0));
  }
  sqlite3_finalize(pList);
  sqlite3_finalize(pNamed);
  endSweep(&sweep);
  return sweep.nText;
}

/* The first texts of store_dropped, as a JSON array; NULL if there are none. */
static char *droppedTexts(BxStmts *p, i64 nLimit, BxErr *pErr) {
  return bxAskText(p,
      "SELECT json_group_array(text) FROM (SELECT text"
      " FROM main.store_dropped ORDER BY text LIMIT ?1)"
      " WHERE EXISTS (SELECT 1 FROM main.store_dropped) GROUP BY 1 = 1",
      pErr, "i", nLimit);
}

void bxStoreSweep(BxCall *p) {
  BxStmts *pStore;
  i64 nLimit = SWEEP_TEXTS, nText = 0;
  char *zTexts;
  bxRefuseInside(p);
  if (bxArg(p, 0)) {
    nLimit = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  pStore = bxStoreHome(p->bx, bxArg(p, 1), &p->err);
  if (pStore == 0) return;
  bxLock(pStore, &p->err);
  zTexts = droppedTexts(pStore, nLimit, &p->err);
  if (zTexts != 0) nText = sweepAll(pStore, zTexts, &p->err);
  sqlite3_free(zTexts);
  bxReturnInt(p, nText);
}

/* What store_erase() collects. */
typedef struct KeyErasure {
  sqlite3_value *pKey;
  sqlite3_str *pTexts; /* the texts of the key, with commas between them */
  i64 nGone;
} KeyErasure;

/* Removes the key of one user, and collects its texts. */
static void eraseKey(BxStmts *p, const char *zBodies, const char *zTexts,
    void *pArg, BxErr *pErr) {
  KeyErasure *pErase = (KeyErasure *)pArg;
  char *zSql = bxPrintf(pErr,
      "SELECT text FROM \"%w\".\"%w\" WHERE \"key\" = ?1", p->zDb, zTexts);
  sqlite3_stmt *pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  bxBind(pStmt, pErr, "v", pErase->pKey);
  while (bxRow(pStmt, pErr)) {
    sqlite3_str_appendf(pErase->pTexts, "%s%lld",
        sqlite3_str_length(pErase->pTexts) > 0 ? "," : "",
        sqlite3_column_int64(pStmt, 0));
  }
  sqlite3_finalize(pStmt);
  zSql = bxPrintf(pErr, "SELECT count(*) FROM \"%w\".\"%w\" WHERE \"key\" = ?1",
      p->zDb, zBodies);
  pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  bxBind(pStmt, pErr, "v", pErase->pKey);
  if (bxRow(pStmt, pErr)) pErase->nGone += sqlite3_column_int64(pStmt, 0);
  sqlite3_finalize(pStmt);
  zSql = bxPrintf(
      pErr, "DELETE FROM \"%w\".\"%w\" WHERE \"key\" = ?1", p->zDb, zBodies);
  pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  bxBind(pStmt, pErr, "v", pErase->pKey);
  bxRow(pStmt, pErr);
  sqlite3_finalize(pStmt);
}

void bxStoreErase(BxCall *p) {
  BxStmts *pStore;
  KeyErasure erasure = {p->aArg[0], 0, 0};
  char *zTexts, *zArray;
  bxRefuseInside(p);
  pStore = bxStoreHome(p->bx, bxArg(p, 1), &p->err);
  if (pStore == 0) return;
  bxLock(pStore, &p->err);
  erasure.pTexts = sqlite3_str_new(p->bx->db);
  bxStoreUsers(pStore, eraseKey, &erasure, &p->err);
  zTexts = bxFinish(erasure.pTexts, &p->err);
  if (zTexts != 0) {
    zArray = bxPrintf(&p->err, "[%s]", zTexts);
    if (zArray != 0) sweepAll(pStore, zArray, &p->err);
    sqlite3_free(zArray);
  }
  sqlite3_free(zTexts);
  bxReturnInt(p, erasure.nGone);
}
