/*
** sweep.c: store_sweep([limit[, schema]]) removes texts that no reference names any
** more, with the pieces that no other text has. store_tend() does a small part of that.
**
** store_dropped lists the texts that may be unused. Each is looked for in the
** references; one that is still there stays. The uses of the pieces of the
** others are counted down, and each pack in which a piece has none left is written
** again without it, or removed. So the work depends on what is removed, and not on
** what is stored.
**
** store_tend() removes TEND_TEXTS texts, and packs of which nothing is left. A pack
** with other pieces is noted in store_dropped, as its number below 0; and as that minus
** SWEEP_THIN if a third of it has no use: then a later call writes it again.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_TEXTS 1000 /* the default limit */
#define TEND_TEXTS 8
#define SWEEP_THIN ((i64)1 << 48)

typedef struct Sweep {
  BxStmts *p;
  BxErr *pErr;
  List *aList; /* the lists that were touched, in the order of their packs */
  i64 nList, nListAlloc;
  void *pZip;
  i64 nText, nTextByte, nPiece, nPieceByte, nKept;
} Sweep;

/* The list of a pack, read if it is not held. They are kept in the order of packs. */
static List *sweepList(Sweep *s, i64 iPack) {
  i64 i = bxStoreSearch(s->aList, s->nList, sizeof(*s->aList), iPack);
  if (i == s->nList || s->aList[i].iPack != iPack) {
    List list;
    bxListRead(s->p, iPack, &list, s->pErr);
    if (bxArrayAdd(
            &s->aList, &s->nList, &s->nListAlloc, sizeof(list), s->pErr) == 0) {
      bxListFree(&list);
      return 0;
    }
    memmove(&s->aList[i + 1], &s->aList[i],
        (size_t)(s->nList - 1 - i) * sizeof(list));
    s->aList[i] = list;
  }
  return &s->aList[i];
}

/* Takes the uses of a range back. */
static void releaseRange(Sweep *s, const Range *pRange) {
  List *pList = sweepList(s, pRange->iPack);
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
  i64 i;
  for (i = 0; i < pRow->recipe.n && s->pErr->rc == SQLITE_OK; i++) {
    releaseRange(s, &pRow->recipe.a[i]);
  }
  s->nKept -= bxQueryInt(s->p,
      "SELECT length(recipe) FROM main.store__texts WHERE text = ?1", s->pErr,
      "i", pRow->iText);
  bxStmtExec(s->p, "DELETE FROM main.store__texts WHERE text = ?1", s->pErr,
      "i", pRow->iText);
  s->nText++;
  s->nTextByte += pRow->nByte;
}

/* Removes one text of store_dropped, unless a reference names it. */
static void sweepText(Sweep *s, const BxBodies *pBodies, i64 iText) {
  sqlite3_stmt *pNamed = bxStmt(s->p, pBodies->zNamed, s->pErr);
  TextRow row;
  if (bxTextRowFind(s->p, iText, &row, s->pErr)) {
    int bNamed = 0;
    bxBind(pNamed, s->pErr, "i", iText);
    while (!bNamed && bxStep(pNamed, s->pErr)) {
      Ref ref;
      bNamed = bxRefOf(&ref, sqlite3_column_value(pNamed, 0)) &&
               ref.iText == iText &&
               memcmp(ref.aHash, row.aMark, STORE_MARK) == 0;
    }
    bxReset(pNamed, s->pErr);
    if (!bNamed && s->pErr->rc == SQLITE_OK) removeText(s, &row);
  }
  bxManifestFree(&row.recipe);
  bxStmtExec(s->p, "DELETE FROM main.store_dropped WHERE text = ?1", s->pErr,
      "i", iText);
}

/* Writes a pack without the pieces that have no uses. One of which nothing is left
** is removed even if it is damaged: then the hashes of its pieces are not known.
** What was read is copied, because a trigger of another may read packs meanwhile. */
static void cleanPack(Sweep *s, List *pList) {
  static const char *const azRemove[] = {
      "DELETE FROM main.store__packs WHERE pack = ?1",
      "DELETE FROM main.store__uses WHERE pack = ?1",
      "UPDATE main.store__state SET open = 0 WHERE open = ?1",
      "DELETE FROM main.store_dropped WHERE text IN (-?1, -?1 - (1 << 48))"};
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
    z = bxPackChunk(pPack, i, pList->a[i].nByte);
    if (z == 0) bRead = 0;
    if (z != 0) bxBytesAdd(&all, z, pList->a[i].nByte, s->pErr);
  }
  if (!bRead && nLeft > 0) bxListChanged(iPack, s->pErr);
  if (!bRead) {
    bxStmtExec(s->p,
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
        bxStmtExec(s->p,
            "DELETE FROM main.store__pieces WHERE \"key\" = ?1 AND place = ?2",
            s->pErr, "ii", bxChunkKey(aHash), iPack << 16 | i);
      }
      s->nPiece++;
      s->nPieceByte += nByte;
      memset(pPiece, 0, sizeof(*pPiece));
    }
    if (bRead) z += nByte;
  }
  if (s->pErr->rc == SQLITE_OK && nLeft == 0) {
    s->nKept -= bxQueryInt(s->p,
        "SELECT length(data) FROM main.store__packs WHERE pack = ?1", s->pErr,
        "i", iPack);
    s->nKept -= pList->nStored;
    for (i = 0; i < 4; i++) bxStmtExec(s->p, azRemove[i], s->pErr, "i", iPack);
    pList->bChanged = 0;
  } else if (s->pErr->rc == SQLITE_OK) {
    bxPackWrite(s->p, iPack, &s->pZip, &left, 0, &s->nKept, s->pErr);
  }
  sqlite3_free(all.a);
  sqlite3_free(left.a);
}

/* A pack of store_dropped, whose entry goes. It may have gone with its texts. */
static void sweepPack(Sweep *s, i64 iDropped) {
  static const char zHas[] = "SELECT 1 FROM main.store__uses WHERE pack = ?1";
  i64 iPack = -iDropped & (SWEEP_THIN - 1);
  List *pList = 0;
  if (bxQueryInt(s->p, zHas, s->pErr, "i", iPack)) pList = sweepList(s, iPack);
  if (pList != 0) pList->bDead = pList->bChanged = 1;
  bxStmtExec(s->p, "DELETE FROM main.store_dropped WHERE text IN (?1, ?2)",
      s->pErr, "ii", -iPack, -iPack - SWEEP_THIN);
}

/* Notes a pack with pieces that have no use. Returns whether it has others. */
static int notePack(Sweep *s, const List *pList) {
  static const char zNoted[] =
      "INSERT INTO main.store_dropped(text) VALUES(?1) ON CONFLICT DO NOTHING";
  i64 i, nByte = 0, nDead = 0;
  for (i = 0; i < pList->n; i++) {
    nByte += pList->a[i].nByte;
    if (pList->a[i].nUse == 0) nDead += pList->a[i].nByte;
  }
  if (nDead == nByte) return 0;
  bxStmtExec(s->p, zNoted, s->pErr, "i",
      -pList->iPack - (3 * nDead >= nByte ? SWEEP_THIN : 0));
  return 1;
}

/* Sweeps what a list, a JSON array, has of store_dropped, and frees it. Returns how
** many texts were removed. Then it writes all packs and lists that were touched, and
** the totals. With bTend, packs of which something is left are noted. */
static i64 sweepAll(BxStmts *p, char *zTexts, int bTend, BxErr *pErr) {
  Sweep s = {p, pErr, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  const BxBodies *pBodies = bxStoreBodies(p, pErr);
  sqlite3_stmt *pTexts;
  i64 i, iText;
  if (zTexts == 0) return 0;
  pTexts = bxJsonRows(p->bx, "SELECT value FROM json_each(?1)", zTexts, pErr);
  while (bxStep(pTexts, pErr)) {
    iText = sqlite3_column_int64(pTexts, 0);
    if (iText > 0) {
      sweepText(&s, pBodies, iText);
    } else {
      sweepPack(&s, iText);
    }
  }
  sqlite3_finalize(pTexts);
  for (i = 0; i < s.nList; i++) {
    List *pList = &s.aList[i];
    if (pErr->rc == SQLITE_OK && pList->bDead &&
        !(bTend && notePack(&s, pList))) {
      cleanPack(&s, pList);
    }
    if (pErr->rc == SQLITE_OK && pList->bChanged) {
      bxListWrite(p, pList, &s.nKept, pErr);
    }
    bxListFree(pList);
  }
  sqlite3_free(s.aList);
  bxZstdFree(s.pZip);
  bxStoreCount(
      p, -s.nText, -s.nTextByte, -s.nPiece, -s.nPieceByte, s.nKept, pErr);
  return s.nText;
}

void bxStoreSweep(BxCall *p) {
  BxStmts *pStore;
  i64 nLimit = SWEEP_TEXTS;
  bxRefuseInTransaction(p);
  if (bxArg(p, 0)) {
    nLimit = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  pStore = bxStoreSchema(p->bx, bxArg(p, 1), &p->err);
  if (pStore == 0) return;
  bxLock(pStore, &p->err);
  bxReturnInt(p,
      sweepAll(pStore,
          bxQueryText(pStore,
              "SELECT json_group_array(text) FROM (SELECT text"
              " FROM main.store_dropped WHERE text < 0 UNION ALL SELECT * FROM"
              " (SELECT text FROM main.store_dropped WHERE text > 0"
              "  ORDER BY text LIMIT ?1))"
              " WHERE EXISTS (SELECT 1 FROM main.store_dropped) GROUP BY 1 = 1",
              &p->err, "i", nLimit),
          0, &p->err));
}

const BxFileLimit bxStoreFileLimit = {.zTend = "SELECT store_tend(?1)"};

/* A small part of that: returns 1 if it did anything. */
void bxStoreTend(BxCall *p) {
  static const char zSome[] =
      "SELECT '[' || group_concat(text) || ']' FROM (SELECT text"
      " FROM main.store_dropped WHERE text > 0 ORDER BY text LIMIT ?1)"
      " GROUP BY NULL HAVING count(*) = ?1";
  static const char zThin[] = "SELECT '[' || text || ']' FROM "
                              "main.store_dropped WHERE text < ?1 LIMIT 1";
  BxStmts *pStore;
  char *zSwept = 0;
  int i;
  bxRefuseInTransaction(p);
  pStore = bxStoreSchema(p->bx, bxArg(p, 0), &p->err);
  if (pStore == 0) return;
  for (i = 0; i < 2 && zSwept == 0; i++) {
    sqlite3_stmt *pStmt = bxStmt(pStore, i == 0 ? zSome : zThin, &p->err);
    bxBind(pStmt, &p->err, "i", i == 0 ? (i64)TEND_TEXTS : -SWEEP_THIN);
    if (bxStep(pStmt, &p->err)) zSwept = bxColumnCopy(pStmt, 0, &p->err);
    bxReset(pStmt, &p->err);
  }
  bxReturnInt(p, zSwept != 0);
  sweepAll(pStore, zSwept, i == 1, &p->err);
}
