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

sqlite3_stmt *bxStoreView(
    BxStmts *p, const char *zFormat, const char *zView, BxErr *pErr) {
  char *zSql = bxPrintf(pErr, zFormat, p->zDb, zView);
  sqlite3_stmt *pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  return pStmt;
}

sqlite3_stmt *bxStoreNamed(BxStmts *p, BxErr *pErr) {
  char *zSql = bxAskText(p,
      "SELECT group_concat(printf('SELECT reference, \"key\" FROM"
      " \"%w\".\"%w\" WHERE text = ?1', ?1, texts), ' UNION ALL ')"
      " FROM (" STORE_USERS ")",
      pErr, "t", p->zDb);
  sqlite3_stmt *pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  return pStmt;
}

/* Takes the uses of a range back. The lists are kept in the order of packs. */
static void releaseRange(Sweep *s, const Range *pRange) {
  i64 i = bxStoreSearch(s->aList, s->nList, sizeof(*s->aList), pRange->iPack);
  i64 iEnd = pRange->iFirst + pRange->nPiece;
  List *pList;
  if (i == s->nList || s->aList[i].iPack != pRange->iPack) {
    List list;
    bxListRead(s->p, pRange->iPack, &list, s->pErr);
    if (bxAdd(&s->aList, &s->nList, &s->nListAlloc, sizeof(list), s->pErr) ==
        0) {
      bxListFree(&list);
      return;
    }
    pList = &s->aList[i];
    memmove(pList + 1, pList, (size_t)(s->nList - 1 - i) * sizeof(list));
    *pList = list;
  }
  pList = &s->aList[i];
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
  i64 i;
  for (i = 0; i < pRow->recipe.n && s->pErr->rc == SQLITE_OK; i++) {
    releaseRange(s, &pRow->recipe.a[i]);
  }
  s->nKept -= bxAsk(s->p,
      "SELECT length(recipe) FROM main.store__texts WHERE text = ?1", s->pErr,
      "i", pRow->iText);
  bxDo(s->p, "DELETE FROM main.store__texts WHERE text = ?1", s->pErr, "i",
      pRow->iText);
  s->nText++;
  s->nTextByte += pRow->nByte;
}

/* Removes one text of store_dropped, unless a reference names it. */
static void sweepText(Sweep *s, sqlite3_stmt *pNamed, i64 iText) {
  TextRow row;
  if (bxTextRowFind(s->p, iText, &row, s->pErr)) {
    int bNamed = 0;
    bxBind(pNamed, s->pErr, "i", iText);
    while (!bNamed && bxRow(pNamed, s->pErr)) {
      Ref ref;
      bNamed = bxRefOf(&ref, sqlite3_column_value(pNamed, 0)) &&
               ref.iText == iText &&
               memcmp(ref.aHash, row.aMark, STORE_MARK) == 0;
    }
    bxDone(pNamed, s->pErr);
    if (!bNamed && s->pErr->rc == SQLITE_OK) removeText(s, &row);
  }
  bxRecipeFree(&row.recipe);
  bxDo(s->p, "DELETE FROM main.store_dropped WHERE text = ?1", s->pErr, "i",
      iText);
}

/* Writes a pack without the pieces that have no uses. One of which nothing is left
** is removed even if it is damaged: then the hashes of its pieces are not known.
** What was read is copied, because a trigger of another may read packs meanwhile. */
static void cleanPack(Sweep *s, List *pList) {
  static const char *const azRemove[] = {
      "DELETE FROM main.store__packs WHERE pack = ?1",
      "DELETE FROM main.store__uses WHERE pack = ?1",
      "UPDATE main.store__state SET open = 0 WHERE open = ?1"};
  Bytes all = {0, 0, 0}, left = {0, 0, 0};
  const Pack *pPack;
  const unsigned char *z;
  i64 i, nLeft = 0, iPack = pList->iPack;
  int bRead;
  for (i = 0; i < pList->n; i++) nLeft += pList->a[i].nUse > 0;
  pPack = nLeft > 0 ? bxPackRead(s->p, iPack, STORE_ALL, s->pErr)
                    : bxPackTry(s->p, iPack, STORE_ALL, s->pErr);
  bRead = pPack != 0;
  for (i = 0; i < pList->n && bRead; i++) {
    z = bxPackPiece(pPack, i, pList->a[i].nByte);
    if (z == 0) bRead = 0;
    if (z != 0) bxBytesAdd(&all, z, pList->a[i].nByte, s->pErr);
  }
  if (!bRead && nLeft > 0) bxListChanged(iPack, s->pErr);
  if (!bRead) {
    bxDo(s->p,
        "DELETE FROM main.store__pieces WHERE place BETWEEN ?1 AND ?1 + 65535",
        s->pErr, "i", iPack << 16);
  }
  for (i = 0, z = all.a; i < pList->n && s->pErr->rc == SQLITE_OK; i++) {
    Piece *pPiece = &pList->a[i];
    i64 nByte = pPiece->nByte;
    if (pPiece->nUse > 0) {
      bxBytesAdd(&left, z, nByte, s->pErr);
    } else if (nByte > 0) {
      if (bRead) {
        unsigned char aHash[STORE_HASH];
        bxDigestTwo(z, (size_t)nByte, "", 0, aHash);
        bxDo(s->p,
            "DELETE FROM main.store__pieces WHERE \"key\" = ?1 AND place = ?2",
            s->pErr, "ii", bxPieceKey(aHash), iPack << 16 | i);
      }
      s->nPiece++;
      s->nPieceByte += nByte;
      memset(pPiece, 0, sizeof(*pPiece));
    }
    if (bRead) z += nByte;
  }
  if (s->pErr->rc == SQLITE_OK && nLeft == 0) {
    s->nKept -= bxAsk(s->p,
        "SELECT length(data) FROM main.store__packs WHERE pack = ?1", s->pErr,
        "i", iPack);
    s->nKept -= pList->nStored;
    for (i = 0; i < 3; i++) bxDo(s->p, azRemove[i], s->pErr, "i", iPack);
    pList->bChanged = 0;
  } else if (s->pErr->rc == SQLITE_OK) {
    bxPackWrite(s->p, iPack, &s->pZip, &left, &s->nKept, s->pErr);
  }
  sqlite3_free(all.a);
  sqlite3_free(left.a);
}

/* Sweeps the texts of a list, a JSON array, which it frees. Returns how many were
** removed. Then it writes all packs and lists that were touched, and the totals. */
static i64 sweepAll(BxStmts *p, char *zTexts, BxErr *pErr) {
  Sweep s = {p, pErr, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  sqlite3_stmt *pNamed, *pTexts;
  i64 i;
  if (zTexts == 0) return 0;
  pNamed = bxStoreNamed(p, pErr);
  pTexts = bxJsonRows(p->bx, "SELECT value FROM json_each(?1)", zTexts, pErr);
  if (pNamed == 0) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: store_users in schema %s is empty, so it is not "
        "known which texts are in use; run SELECT blackbox_install(%Q)",
        p->zDb, p->zDb);
  }
  while (bxRow(pTexts, pErr)) {
    sweepText(&s, pNamed, sqlite3_column_int64(pTexts, 0));
  }
  sqlite3_finalize(pTexts);
  sqlite3_finalize(pNamed);
  for (i = 0; i < s.nList; i++) {
    List *pList = &s.aList[i];
    if (pErr->rc == SQLITE_OK && pList->bDead) cleanPack(&s, pList);
    if (pErr->rc == SQLITE_OK && pList->bChanged) {
      bxListWrite(p, pList, &s.nKept, pErr);
    }
    bxListFree(pList);
  }
  sqlite3_free(s.aList);
  bxZipFree(s.pZip);
  bxStoreCount(
      p, -s.nText, -s.nTextByte, -s.nPiece, -s.nPieceByte, s.nKept, pErr);
  return s.nText;
}

void bxStoreSweep(BxCall *p) {
  BxStmts *pStore;
  i64 nLimit = SWEEP_TEXTS;
  bxRefuseInside(p);
  if (bxArg(p, 0)) {
    nLimit = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  pStore = bxStoreHome(p->bx, bxArg(p, 1), &p->err);
  if (pStore == 0) return;
  bxLock(pStore, &p->err);
  bxReturnInt(p,
      sweepAll(pStore,
          bxAskText(pStore,
              "SELECT json_group_array(text) FROM (SELECT text"
              " FROM main.store_dropped ORDER BY text LIMIT ?1)"
              " WHERE EXISTS (SELECT 1 FROM main.store_dropped) GROUP BY 1 = 1",
              &p->err, "i", nLimit),
          &p->err));
}

void bxStoreErase(BxCall *p) {
  BxErr *pErr = &p->err;
  BxStmts *pStore;
  sqlite3_str *pTexts;
  sqlite3_stmt *pUsers, *pStmt;
  char *zTexts;
  i64 nGone = 0;
  bxRefuseInside(p);
  pStore = bxStoreHome(p->bx, bxArg(p, 1), pErr);
  if (pStore == 0) return;
  bxLock(pStore, pErr);
  pTexts = sqlite3_str_new(p->bx->db);
  pUsers = bxPrepare(pStore, STORE_USERS, pErr);
  while (bxRow(pUsers, pErr)) {
    const char *zBodies = bxColumnText(pUsers, 0, pErr);
    pStmt =
        bxStoreView(pStore, "SELECT text FROM \"%w\".\"%w\" WHERE \"key\" = ?1",
            bxColumnText(pUsers, 1, pErr), pErr);
    bxBind(pStmt, pErr, "v", p->aArg[0]);
    while (bxRow(pStmt, pErr)) {
      sqlite3_str_appendf(pTexts, "%c%lld",
          sqlite3_str_length(pTexts) > 0 ? ',' : '[',
          sqlite3_column_int64(pStmt, 0));
    }
    sqlite3_finalize(pStmt);
    pStmt = bxStoreView(pStore,
        "SELECT count(*) FROM \"%w\".\"%w\" WHERE \"key\" = ?1", zBodies, pErr);
    bxBind(pStmt, pErr, "v", p->aArg[0]);
    if (bxRow(pStmt, pErr)) nGone += sqlite3_column_int64(pStmt, 0);
    sqlite3_finalize(pStmt);
    pStmt = bxStoreView(
        pStore, "DELETE FROM \"%w\".\"%w\" WHERE \"key\" = ?1", zBodies, pErr);
    bxBind(pStmt, pErr, "v", p->aArg[0]);
    bxRow(pStmt, pErr);
    sqlite3_finalize(pStmt);
  }
  sqlite3_finalize(pUsers);
  if (sqlite3_str_length(pTexts) > 0) sqlite3_str_appendchar(pTexts, 1, ']');
  zTexts = bxFinish(pTexts, pErr);
  sweepAll(pStore, zTexts, pErr);
  bxReturnInt(p, nGone);
}
