/*
** check.c: what blackbox_check() tests of the store beside sql/store_check.sql.
**
** Each pack is read, and each piece must have as many uses as the recipes say. Each
** reference must name a text, and the hash of that text must be the one in the
** reference. Each text must be named by one reference,
** unless it waits for the sweep. So a reference that was put in the place of
** another text is found, and damage is reported with the rows that it concerns.
*/
#include "store.h"
#include "../core/install.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* A pack in the check: the uses that the recipes show, and the full hashes. */
typedef struct Checked {
  List list; /* first: it begins with the number of the pack */
  uint32_t *aUse;
  unsigned char (*aHash)[STORE_HASH]; /* NULL: the pack could not be read */
} Checked;

typedef struct StoreCheck {
  BxStmts *p;
  BxProblems *pOut;
  Checked *a; /* in the order of their packs */
  i64 n, nAlloc;
  int nProblem;
  BxErr err;
} StoreCheck;

char *bxStoreKeysOfPack(BxStmts *p, i64 iPack, BxErr *pErr) {
  assert(iPack > 0);
  enum { MOST = 5 };
  const BxBodies *pBodies;
  sqlite3_stmt *pTexts =
      bxPrepare(p, "SELECT text, recipe FROM main.store__texts", pErr);
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  i64 i, nKey = 0;
  while (bxStep(pTexts, pErr)) {
    BxErr err = {SQLITE_OK, 0}; /* a recipe that is damaged names no pack */
    Manifest recipe = {0, 0, 0, 0};
    const void *z = sqlite3_column_blob(pTexts, 1);
    bxManifestDecode(&recipe, z, sqlite3_column_bytes(pTexts, 1), &err);
    for (i = 0; i < recipe.n && recipe.a[i].iPack != iPack; i++) {
    }
    for (pBodies = 0; i < recipe.n && (pBodies = bxStoreBodies(p, pBodies));) {
      sqlite3_stmt *pNamed = bxStmt(p, pBodies->zNamed, pErr);
      bxBind(pNamed, pErr, "i", sqlite3_column_int64(pTexts, 0));
      while (bxStep(pNamed, pErr)) {
        char *zKey = bxShow(sqlite3_column_value(pNamed, 1));
        if (++nKey <= MOST && bxCheckMem(zKey, pErr) != 0) {
          sqlite3_str_appendf(pOut, "%s%s", nKey > 1 ? ", " : "", zKey);
        }
        sqlite3_free(zKey);
      }
      bxReset(pNamed, pErr);
    }
    bxErrClear(&err);
    bxManifestFree(&recipe);
  }
  sqlite3_finalize(pTexts);
  if (nKey > MOST) sqlite3_str_appendf(pOut, " and %lld more", nKey - MOST);
  if (nKey == 0) sqlite3_str_appendall(pOut, "none");
  return bxStrFinish(pOut, pErr);
}

/* Reports an error of one row as a problem, with those that it concerns. */
static void told(StoreCheck *c, const char *zObject, BxErr *pErr) {
  if ((pErr->rc & 0xff) == SQLITE_CORRUPT && pErr->zMsg != 0) {
    c->nProblem++;
    bxProblem(c->pOut, zObject, "%s", pErr->zMsg);
    bxErrClear(pErr);
  }
  bxErrMove(&c->err, pErr);
}

/* Reads a pack and its list, and hashes its pieces. */
static void checkPack(StoreCheck *c, i64 iPack) {
  BxErr err = {SQLITE_OK, 0};
  Checked *a = bxArrayAdd(&c->a, &c->n, &c->nAlloc, sizeof(*a), &c->err);
  const Pack *pPack;
  i64 i;
  assert(c->n >= 0 && c->n <= c->nAlloc);
  if (a == 0) return;
  bxListRead(c->p, iPack, &a->list, &err);
  a->list.iPack = iPack;
  a->aUse = bxZalloc((size_t)a->list.n * sizeof(*a->aUse) + 1, &err);
  pPack = bxPackRead(c->p, iPack, STORE_ALL, &err);
  if (pPack != 0 && a->list.n > 0) {
    a->aHash = bxZalloc((size_t)a->list.n * STORE_HASH, &err);
  }
  for (i = 0; a->aHash != 0 && i < a->list.n && err.rc == SQLITE_OK; i++) {
    i64 nByte = a->list.a[i].nByte;
    const unsigned char *z = bxPackChunk(pPack, i, nByte);
    if (z == 0) bxListChanged(iPack, &err);
    if (z != 0 && nByte > 0) {
      bxDigestTwo(z, (size_t)nByte, "", 0, a->aHash[i]);
      if ((uint64_t)bxChunkKey(a->aHash[i]) >> STORE_KEY_SHIFT !=
          a->list.a[i].uKey)
        bxListChanged(iPack, &err);
    }
  }
  if (err.rc != SQLITE_OK) {
    sqlite3_free(a->aHash);
    a->aHash = 0;
  }
  told(c, "store__packs", &err);
}

static Checked *findChecked(const StoreCheck *c, i64 iPack) {
  i64 i = bxStoreSearch(c->a, c->n, sizeof(*c->a), iPack);
  return i < c->n && c->a[i].list.iPack == iPack ? &c->a[i] : 0;
}

/* Counts the uses of a text's pieces. */
static void countUses(StoreCheck *c, const TextRow *pRow, BxErr *pErr) {
  i64 i, k;
  assert(pRow->recipe.n >= 0);
  for (i = 0; i < pRow->recipe.n && pErr->rc == SQLITE_OK; i++) {
    const Range *pRange = &pRow->recipe.a[i];
    Checked *pOne = findChecked(c, pRange->iPack);
    i64 iEnd = pRange->iFirst + pRange->nPiece;
    if (pOne == 0 || pOne->aUse == 0 || iEnd > pOne->list.n) {
      bxFail(pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedDataError: text %lld names pieces that pack %lld does not "
          "have",
          pRow->iText, pRange->iPack);
      return;
    }
    for (k = pRange->iFirst; k < iEnd; k++) pOne->aUse[k]++;
  }
}

static void checkStored(StoreCheck *c) {
  sqlite3_stmt *pStmt =
      bxPrepare(c->p, "SELECT text FROM main.store__texts", &c->err);
  while (c->nProblem < BX_MAX_PROBLEMS && bxStep(pStmt, &c->err)) {
    BxErr err = {SQLITE_OK, 0};
    TextRow row;
    if (bxTextRowFind(c->p, sqlite3_column_int64(pStmt, 0), &row, &err)) {
      countUses(c, &row, &err);
    }
    bxManifestFree(&row.recipe);
    told(c, "store__texts", &err);
  }
  sqlite3_finalize(pStmt);
}

/* The hash of a text from those of its pieces. 0 if a piece could not be read. */
static int hashStored(
    const StoreCheck *c, const TextRow *pRow, unsigned char aHash[STORE_HASH]) {
  SHA256_CTX sha;
  i64 i, k;
  bxTextHashBegin(&sha, pRow->recipe.eType);
  for (i = 0; i < pRow->recipe.n; i++) {
    const Range *pRange = &pRow->recipe.a[i];
    const Checked *pOne = findChecked(c, pRange->iPack);
    i64 iEnd = pRange->iFirst + pRange->nPiece;
    if (pOne == 0 || pOne->aHash == 0 || iEnd > pOne->list.n) return 0;
    for (k = pRange->iFirst; k < iEnd; k++) {
      SHA256_Update(&sha, pOne->aHash[k], STORE_HASH);
    }
  }
  SHA256_Final(aHash, &sha);
  return 1;
}

/* One reference: its value, and the key of its row. */
static void checkReference(
    StoreCheck *c, const char *zBodies, sqlite3_stmt *pStmt, BxErr *pErr) {
  unsigned char aHash[STORE_HASH];
  const char *zWhat = 0;
  TextRow row;
  Ref ref;
  if (!bxRefOf(&ref, sqlite3_column_value(pStmt, 0))) return;
  if (!bxTextRowFind(c->p, ref.iText, &row, pErr)) {
    if (pErr->rc == SQLITE_OK) zWhat = "names a text that the store lacks";
  } else if (!hashStored(c, &row, aHash)) {
    zWhat = "cannot be read: a pack of its text is damaged";
  } else if (memcmp(aHash, ref.aHash, (size_t)ref.nHash) != 0 ||
             memcmp(aHash, row.aMark, STORE_MARK) != 0) {
    zWhat = "names a text that has another hash";
  }
  bxManifestFree(&row.recipe);
  if (zWhat != 0) {
    char *zKey = bxShow(sqlite3_column_value(pStmt, 1));
    c->nProblem++;
    if (bxCheckMem(zKey, pErr) != 0) {
      bxProblem(c->pOut, zBodies, "a reference in row %s %s", zKey, zWhat);
    }
    sqlite3_free(zKey);
  }
}

/* Texts that nothing names, and that do not wait for the sweep. */
static void checkUnused(StoreCheck *c) {
  sqlite3_stmt *pStmt = bxPrepare(c->p,
      "SELECT text FROM main.store__texts WHERE text NOT IN"
      " (SELECT text FROM main.store_dropped)",
      &c->err);
  while (c->nProblem < BX_MAX_PROBLEMS && bxStep(pStmt, &c->err)) {
    i64 iText = sqlite3_column_int64(pStmt, 0);
    const BxBodies *pBodies = 0;
    int bNamed = 0;
    while (!bNamed && (pBodies = bxStoreBodies(c->p, pBodies)) != 0) {
      sqlite3_stmt *pNamed = bxStmt(c->p, pBodies->zNamed, &c->err);
      bxBind(pNamed, &c->err, "i", iText);
      bNamed = bxStep(pNamed, &c->err);
      bxReset(pNamed, &c->err);
    }
    if (bNamed || c->err.rc != SQLITE_OK) continue;
    c->nProblem++;
    bxProblem(c->pOut, "store__texts",
        "text %lld is named by no reference; INSERT INTO store_dropped(text) "
        "VALUES(%lld), and SELECT store_sweep()",
        iText, iText);
  }
  sqlite3_finalize(pStmt);
}

void bxStoreCheck(BxStmts *p, BxProblems *pOut) {
  StoreCheck c = {p, pOut, 0, 0, 0, 0, {SQLITE_OK, 0}};
  BxErr err = {SQLITE_OK, 0};
  const BxBodies *pBodies = 0;
  sqlite3_stmt *pStmt;
  i64 i, k;
  if (!bxQueryNumber(p,
          "SELECT EXISTS (SELECT 1 FROM main.store__packs WHERE pack < 0)"
          " OR EXISTS (SELECT 1 FROM main.store__texts)",
          &c.err)) {
    bxProblemError(pOut, "store__state", &c.err);
    return;
  }
  pStmt = bxPrepare(p,
      "SELECT -pack FROM main.store__packs WHERE pack < 0 ORDER BY pack DESC",
      &c.err);
  while (bxStep(pStmt, &c.err)) checkPack(&c, sqlite3_column_int64(pStmt, 0));
  sqlite3_finalize(pStmt);
  checkStored(&c);
  for (i = 0; i < c.n; i++) {
    const Checked *pOne = &c.a[i];
    for (k = 0; pOne->aUse != 0 && k < pOne->list.n; k++) {
      if (pOne->aUse[k] == pOne->list.a[k].nUse) continue;
      if (c.nProblem++ >= BX_MAX_PROBLEMS) break;
      bxProblem(pOut, "store__packs",
          "piece %lld of pack %lld has %u uses, and its list says %u", k,
          pOne->list.iPack, (unsigned)pOne->aUse[k],
          (unsigned)pOne->list.a[k].nUse);
    }
  }
  while ((pBodies = bxStoreBodies(p, pBodies)) != 0) {
    pStmt = bxPrepare(p, pBodies->zAll, &c.err);
    while (c.nProblem < BX_MAX_PROBLEMS && bxStep(pStmt, &c.err)) {
      checkReference(&c, pBodies->zTable, pStmt, &err);
      told(&c, pBodies->zTable, &err);
    }
    sqlite3_finalize(pStmt);
  }
  if (c.err.rc == SQLITE_OK) checkUnused(&c);
  for (i = 0; i < c.n; i++) {
    bxListFree(&c.a[i].list);
    sqlite3_free(c.a[i].aUse);
    sqlite3_free(c.a[i].aHash);
  }
  sqlite3_free(c.a);
  bxProblemError(pOut, "store__state", &c.err);
}

void bxStoreLeave(BxStmts *p, BxErr *pErr) {
  i64 n = bxQueryNumber(p, "SELECT count(*) FROM main.store__texts", pErr);
  if (n == 0) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "NotEmptyError: the body store of schema %s has %lld texts that rows "
      "need; "
      "SELECT payload_unpack(), rollout_unpack() until nothing is left, before "
      "the store is removed",
      p->zDb, n);
}
