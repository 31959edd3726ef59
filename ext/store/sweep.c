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
** store_tend() removes some texts. The packs that then have pieces without a use are noted
** in store_dropped, for a later call: as their number below 0; minus SWEEP_THIN if a third
** of it has no use, so that it is written again; minus 2 * SWEEP_THIN and more if nothing
** is left of it. Of such a one each call takes some pieces out of store__pieces, a multiple
** of SWEEP_SLICE, and counts them there; the last one removes the pack.
*/
#include "store.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_TEXTS 1000 /* the default limit */
#define TEND_TEXTS 2     /* of a part of size 1 */
#define SWEEP_SLICE 16   /* pieces */
#define SWEEP_THIN_SQL "(1 << 48)"
#define SWEEP_THIN ((i64)1 << 48)

typedef struct Sweep {
  BxStmts *p;
  BxErr *pErr;
  i64 nTend;   /* it is a small part: 1 or more; 0: all */
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
  assert(pRange->nPiece > 0 && pRange->iFirst >= 0);
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
static void sweepText(Sweep *s, i64 iText) {
  TextRow row;
  if (bxTextRowFind(s->p, iText, &row, s->pErr)) {
    const BxBodies *pBodies = 0;
    int bNamed = 0;
    while (!bNamed && (pBodies = bxStoreBodies(s->p, pBodies)) != 0) {
      sqlite3_stmt *pNamed = bxStmt(s->p, pBodies->zNamed, s->pErr);
      bxBind(pNamed, s->pErr, "i", iText);
      while (!bNamed && bxStep(pNamed, s->pErr)) {
        Ref ref;
        bNamed = bxRefOf(&ref, sqlite3_column_value(pNamed, 0)) &&
                 ref.iText == iText &&
                 memcmp(ref.aHash, row.aMark, STORE_MARK) == 0;
      }
      bxReset(pNamed, s->pErr);
    }
    if (!bNamed && s->pErr->rc == SQLITE_OK) removeText(s, &row);
  }
  bxManifestFree(&row.recipe);
  bxStmtExec(s->p, "DELETE FROM main.store_dropped WHERE text = ?1", s->pErr,
      "i", iText);
}

/* Nobody finds the pieces any more from iFrom to iTo that have no use. */
static void removeKeys(Sweep *s, const List *pList, i64 iFrom, i64 iTo) {
  static const char zKey[] =
      "DELETE FROM main.store__pieces WHERE \"key\" BETWEEN ?1 AND ?2"
      " AND place = ?3";
  i64 i;
  for (i = iFrom; i < iTo && s->pErr->rc == SQLITE_OK; i++) {
    const Piece *pPiece = &pList->a[i];
    i64 iKey = (i64)((uint64_t)pPiece->uKey << STORE_KEY_SHIFT);
    if (pPiece->nUse > 0 || pPiece->nByte == 0) continue;
    bxStmtExec(s->p, zKey, s->pErr, "iii", iKey,
        iKey + ((i64)1 << STORE_KEY_SHIFT) - 1, pList->iPack << 16 | i);
  }
}

/* Removes a pack of which nothing is left. Nobody finds its pieces any more. */
static void removePack(Sweep *s, List *pList) {
  static const char *const azRemove[] = {
      "DELETE FROM main.store__packs WHERE pack IN (?1, -?1)",
      "UPDATE main.store__state SET open = 0 WHERE open = ?1",
      "DELETE FROM main.store_dropped WHERE text IN (-?1, -?1 - " SWEEP_THIN_SQL
      ") OR (text < -2 * " SWEEP_THIN_SQL " AND -text & (" SWEEP_THIN_SQL
      " - 1) = ?1)"};
  i64 i, iPack = pList->iPack;
  s->nKept -= pList->nStored +
              bxQueryInt(s->p,
                  "SELECT length(data) FROM main.store__packs WHERE pack = ?1",
                  s->pErr, "i", iPack);
  for (i = 0; i < pList->n; i++) {
    s->nPiece += pList->a[i].nByte > 0;
    s->nPieceByte += pList->a[i].nByte;
  }
  for (i = 0; i < 3; i++) bxStmtExec(s->p, azRemove[i], s->pErr, "i", iPack);
  pList->bChanged = 0;
}

/* Writes a pack without the pieces that have no uses. */
static void rewritePack(Sweep *s, List *pList) {
  Bytes left = {0, 0, 0};
  const Pack *pPack = bxPackRead(s->p, pList->iPack, STORE_ALL, s->pErr);
  i64 i;
  for (i = 0; i < pList->n && s->pErr->rc == SQLITE_OK; i++) {
    Piece *pPiece = &pList->a[i];
    const unsigned char *z = bxPackChunk(pPack, i, pPiece->nByte);
    if (z == 0) {
      bxListChanged(pList->iPack, s->pErr);
    } else if (pPiece->nUse > 0) {
      bxBytesAdd(&left, z, pPiece->nByte, s->pErr);
    } else if (pPiece->nByte > 0) {
      s->nPiece++;
      s->nPieceByte += pPiece->nByte;
      memset(pPiece, 0, sizeof(*pPiece));
    }
  }
  if (s->pErr->rc == SQLITE_OK) {
    bxPackWrite(s->p, pList->iPack, &s->pZip, &left, 0,
        s->nTend > 0 ? PACK_QUICK : PACK_SMALL, &s->nKept, s->pErr);
  }
  sqlite3_free(left.a);
}

static int isEmpty(const List *pList) {
  i64 i = 0;
  while (i < pList->n && pList->a[i].nUse == 0) i++;
  return i == pList->n;
}

static void cleanPack(Sweep *s, List *pList) {
  assert(pList->iPack > 0 && pList->n >= 0);
  removeKeys(s, pList, 0, pList->n);
  if (isEmpty(pList)) {
    removePack(s, pList);
  } else {
    rewritePack(s, pList);
  }
}

/* A pack of store_dropped, whose entry goes. It may have gone with its texts, or be in use
** again. */
static void sweepPack(Sweep *s, i64 iDropped) {
  static const char zHas[] = "SELECT 1 FROM main.store__packs WHERE pack = -?1";
  static const char zNext[] =
      "UPDATE OR REPLACE main.store_dropped SET text = ?2 WHERE text = ?1";
  i64 iPack = -iDropped & (SWEEP_THIN - 1), iSlice = -iDropped / SWEEP_THIN - 2;
  List *pList = 0;
  assert(iDropped < 0); /* a pack, not a text */
  if (bxQueryInt(s->p, zHas, s->pErr, "i", iPack)) pList = sweepList(s, iPack);
  if (pList != 0 && s->nTend > 0 && iSlice >= 0 && isEmpty(pList)) {
    i64 iFrom = iSlice * SWEEP_SLICE, iTo = iFrom + s->nTend * SWEEP_SLICE;
    removeKeys(s, pList, iFrom, iTo < pList->n ? iTo : pList->n);
    if (iTo < pList->n) {
      bxStmtExec(s->p, zNext, s->pErr, "ii", iDropped,
          iDropped - s->nTend * SWEEP_THIN);
      return;
    }
    removePack(s, pList);
  } else if (pList != 0) {
    pList->bDead = pList->bChanged = 1;
  }
  bxStmtExec(s->p, "DELETE FROM main.store_dropped WHERE text IN (?1, ?2, ?3)",
      s->pErr, "iii", iDropped, -iPack, -iPack - SWEEP_THIN);
}

/* Notes a pack with pieces that have no use. One of which nothing is left gets no more. */
static void notePack(Sweep *s, const List *pList) {
  static const char zNoted[] =
      "INSERT INTO main.store_dropped(text) VALUES(?1) ON CONFLICT DO NOTHING";
  static const char zShut[] =
      "UPDATE main.store__state SET open = 0 WHERE open = ?1";
  i64 i, nByte = 0, nDead = 0, nKind;
  for (i = 0; i < pList->n; i++) {
    nByte += pList->a[i].nByte;
    if (pList->a[i].nUse == 0) nDead += pList->a[i].nByte;
  }
  nKind = nDead == nByte ? 2 : 3 * nDead >= nByte;
  if (nKind == 2) bxStmtExec(s->p, zShut, s->pErr, "i", pList->iPack);
  bxStmtExec(s->p, zNoted, s->pErr, "i", -pList->iPack - nKind * SWEEP_THIN);
}

/* Sweeps what a list, a JSON array, has of store_dropped, and frees it. Returns how
** many texts were removed. Then it writes all packs and lists that were touched, and
** the totals. nTend: 0, or packs of the texts are noted; of one that is empty so many
** slices go. */
static i64 sweepAll(BxStmts *p, char *zTexts, i64 nTend, BxErr *pErr) {
  Sweep s = {p, pErr, nTend, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  sqlite3_stmt *pTexts;
  i64 i, iText;
  int bTexts = 0;
  assert(nTend >= 0);
  if (zTexts == 0) return 0;
  bxStoreKnown(p, pErr);
  pTexts = bxJsonRows(p->bx, "SELECT value FROM json_each(?1)", zTexts, pErr);
  while (bxStep(pTexts, pErr)) {
    iText = sqlite3_column_int64(pTexts, 0);
    if (iText > 0) {
      bTexts = 1;
      sweepText(&s, iText);
    } else {
      sweepPack(&s, iText);
    }
  }
  sqlite3_finalize(pTexts);
  for (i = 0; i < s.nList; i++) {
    List *pList = &s.aList[i];
    if (pErr->rc == SQLITE_OK && pList->bDead) {
      if (nTend > 0 && bTexts) {
        notePack(&s, pList);
      } else {
        cleanPack(&s, pList);
      }
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
  i64 nLimit;
  bxRefuseInTransaction(p);
  nLimit = bxLimit(p, 0, SWEEP_TEXTS);
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

const BxFileLimit bxStoreFileLimit = {.zTend = "SELECT store_tend(?1, ?2)"};

/* A small part of that, of size 1 to 4: returns 1 if it did anything, 2 if to a pack. The
** smallest writes no pack again. */
void bxStoreTend(BxCall *p) {
  static const char zNext[] =
      "SELECT coalesce((SELECT '[' || group_concat(text) || ']' FROM (SELECT"
      " text FROM main.store_dropped WHERE text > 0 ORDER BY text LIMIT ?1 + 0)"
      " GROUP BY NULL HAVING count(*) = ?1), (SELECT '[' || text || ']' FROM"
      " main.store_dropped WHERE text < ?2 LIMIT 1))";
  sqlite3_stmt *pStmt;
  BxStmts *pStore;
  char *zSwept = 0;
  i64 nSize = 4;
  bxRefuseInTransaction(p);
  if (bxArg(p, 1)) nSize = bxInt(p->aArg[1], "size", 1, 4, &p->err);
  pStore = bxStoreSchema(p->bx, bxArg(p, 0), &p->err);
  if (pStore == 0) return;
  pStmt = bxStmt(pStore, zNext, &p->err);
  bxBind(pStmt, &p->err, "ii", nSize * TEND_TEXTS,
      nSize > 1 ? -SWEEP_THIN : -2 * SWEEP_THIN);
  if (bxStep(pStmt, &p->err)) zSwept = bxColumnCopy(pStmt, 0, &p->err);
  bxReset(pStmt, &p->err);
  bxReturnInt(p, zSwept == 0 ? 0 : zSwept[1] == '-' && nSize > 1 ? 2 : 1);
  sweepAll(pStore, zSwept, nSize, &p->err);
}
