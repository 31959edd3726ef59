/*
** check.c: what blackbox_check() tests of the store beside the view store__check.
**
** Each pack is read, and each piece must have as many uses as the recipes say. Each
** reference must name a text, and the hash of that text must be the one in the
** reference. Each text must be named by one reference,
** unless it waits for the sweep. So a reference that was put in the place of
** another text is found, and damage is reported with the rows that it concerns.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* A pack in the check: the uses that the recipes show, and the full hashes. */
typedef struct Checked {
  List list;
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

/*--------------------------------------------------------- the concerned ---*/

/* Adds the keys of a text's references to a list of at most MOST. */
static void addKeys(
    sqlite3_stmt *pNamed, i64 iText, sqlite3_str *pOut, i64 *pn, BxErr *pErr) {
  enum { MOST = 5 };
  bxBind(pNamed, pErr, "i", iText);
  while (bxRow(pNamed, pErr)) {
    char *zKey = bxShow(sqlite3_column_value(pNamed, 1));
    if (++*pn <= MOST && bxGot(zKey, pErr) != 0) {
      sqlite3_str_appendf(pOut, "%s%s", *pn > 1 ? ", " : "", zKey);
    }
    sqlite3_free(zKey);
  }
  bxDone(pNamed, pErr);
}

static int usesPack(const Recipe *p, i64 iPack) {
  i64 i;
  for (i = 0; i < p->n; i++) {
    if (p->a[i].iPack == iPack) return 1;
  }
  return 0;
}

char *bxStoreConcerned(BxStmts *p, i64 iPack, BxErr *pErr) {
  sqlite3_stmt *pNamed = bxStoreNamed(p, pErr);
  sqlite3_stmt *pTexts =
      bxPrepare(p, "SELECT text, recipe FROM main.store__texts", pErr);
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  i64 nKey = 0;
  while (bxRow(pTexts, pErr)) {
    BxErr err = {SQLITE_OK, 0}; /* a recipe that is damaged names no pack */
    Recipe recipe = {0, 0, 0, 0};
    const void *z = sqlite3_column_blob(pTexts, 1);
    bxRecipeDecode(&recipe, z, sqlite3_column_bytes(pTexts, 1), &err);
    if (pNamed != 0 && usesPack(&recipe, iPack)) {
      addKeys(pNamed, sqlite3_column_int64(pTexts, 0), pOut, &nKey, pErr);
    }
    bxClear(&err);
    sqlite3_free(recipe.a);
  }
  sqlite3_finalize(pTexts);
  sqlite3_finalize(pNamed);
  if (nKey > 5) sqlite3_str_appendf(pOut, " and %lld more", nKey - 5);
  if (nKey == 0) sqlite3_str_appendall(pOut, "none");
  return bxFinish(pOut, pErr);
}

/*-------------------------------------------------------------- packs ----*/

/* Reports an error of one row as a problem, with those that it concerns. */
static void told(StoreCheck *c, const char *zObject, BxErr *pErr) {
  if ((pErr->rc & 0xff) == SQLITE_CORRUPT && pErr->zMsg != 0) {
    c->nProblem++;
    bxProblem(c->pOut, zObject, "%s", pErr->zMsg);
    bxClear(pErr);
  }
  bxPass(&c->err, pErr);
}

/* Reads the pack of a list, and hashes its pieces. */
static void hashPieces(StoreCheck *c, Checked *pOne, BxErr *pErr) {
  const Pack *pPack = bxPackRead(c->p, pOne->list.iPack, STORE_ALL, pErr);
  i64 i;
  if (pPack == 0 || pOne->list.n == 0) return;
  pOne->aHash = bxNew((size_t)pOne->list.n * STORE_HASH, pErr);
  for (i = 0; i < pOne->list.n && pErr->rc == SQLITE_OK; i++) {
    const Piece *pPiece = &pOne->list.a[i];
    const unsigned char *z = bxPackPiece(pPack, i, pPiece->nByte);
    if (z == 0) {
      bxListChanged(pOne->list.iPack, pErr);
    } else if (pPiece->nByte > 0) {
      bxPieceHash(z, pPiece->nByte, pOne->aHash[i]);
    }
  }
  if (pErr->rc == SQLITE_OK) return;
  sqlite3_free(pOne->aHash);
  pOne->aHash = 0;
}

static void checkPack(StoreCheck *c, i64 iPack) {
  Checked *a = bxGrow(c->a, c->n, &c->nAlloc, sizeof(*a), &c->err);
  BxErr err = {SQLITE_OK, 0};
  if (a == 0) return;
  c->a = a;
  a += c->n++;
  memset(a, 0, sizeof(*a));
  bxListRead(c->p, iPack, &a->list, &err);
  a->list.iPack = iPack;
  a->aUse = bxNew((size_t)a->list.n * sizeof(*a->aUse) + 1, &err);
  hashPieces(c, a, &err);
  told(c, "store__packs", &err);
}

static Checked *findChecked(const StoreCheck *c, i64 iPack) {
  i64 iLow = 0, iHigh = c->n;
  while (iLow < iHigh) {
    i64 iMid = (iLow + iHigh) / 2;
    if (c->a[iMid].list.iPack == iPack) return &c->a[iMid];
    if (c->a[iMid].list.iPack < iPack) {
      iLow = iMid + 1;
    } else {
      iHigh = iMid;
    }
  }
  return 0;
}

/*-------------------------------------------------------------- texts ----*/

/* Counts the uses of a text's pieces. */
static void countUses(StoreCheck *c, const TextRow *pRow, BxErr *pErr) {
  i64 i, k;
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
  while (c->nProblem < BX_MAX_PROBLEMS && bxRow(pStmt, &c->err)) {
    BxErr err = {SQLITE_OK, 0};
    TextRow row;
    if (bxTextRowFind(c->p, sqlite3_column_int64(pStmt, 0), &row, &err)) {
      countUses(c, &row, &err);
    }
    bxTextRowFree(&row);
    told(c, "store__texts", &err);
  }
  sqlite3_finalize(pStmt);
}

static void checkUses(StoreCheck *c) {
  i64 i, k;
  for (i = 0; i < c->n; i++) {
    const Checked *pOne = &c->a[i];
    for (k = 0; pOne->aUse != 0 && k < pOne->list.n; k++) {
      if (pOne->aUse[k] == pOne->list.a[k].nUse) continue;
      if (c->nProblem++ >= BX_MAX_PROBLEMS) return;
      bxProblem(c->pOut, "store__uses",
          "piece %lld of pack %lld has %u uses, and its list says %u", k,
          pOne->list.iPack, (unsigned)pOne->aUse[k],
          (unsigned)pOne->list.a[k].nUse);
    }
  }
}

/*--------------------------------------------------------- references ----*/

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
      bxTextHashAdd(&sha, pOne->aHash[k]);
    }
  }
  bxTextHashEnd(&sha, aHash);
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
  } else if (memcmp(aHash, ref.aHash, STORE_HASH) != 0 ||
             memcmp(aHash, row.aMark, STORE_MARK) != 0) {
    zWhat = "names a text that has another hash";
  }
  bxTextRowFree(&row);
  if (zWhat != 0) {
    char *zKey = bxShow(sqlite3_column_value(pStmt, 1));
    c->nProblem++;
    if (bxGot(zKey, pErr) != 0) {
      bxProblem(c->pOut, zBodies, "a reference in row %s %s", zKey, zWhat);
    }
    sqlite3_free(zKey);
  }
}

/* All references of one user; each text must have one. */
static void checkUser(BxStmts *p, const char *zBodies, const char *zTexts,
    void *pArg, BxErr *pErr) {
  StoreCheck *c = (StoreCheck *)pArg;
  char *zSql = bxPrintf(
      pErr, "SELECT reference, \"key\" FROM \"%w\".\"%w\"", p->zDb, zTexts);
  sqlite3_stmt *pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  while (c->nProblem < BX_MAX_PROBLEMS && bxRow(pStmt, pErr)) {
    BxErr err = {SQLITE_OK, 0};
    checkReference(c, zBodies, pStmt, &err);
    told(c, zBodies, &err);
  }
  sqlite3_finalize(pStmt);
}

/* Texts that nothing names, and that do not wait for the sweep. */
static void checkUnused(StoreCheck *c) {
  sqlite3_stmt *pNamed = bxStoreNamed(c->p, &c->err);
  sqlite3_stmt *pStmt = bxPrepare(c->p,
      "SELECT text FROM main.store__texts WHERE text NOT IN"
      " (SELECT text FROM main.store_dropped)",
      &c->err);
  if (pNamed == 0 && c->err.rc == SQLITE_OK) {
    bxProblem(c->pOut, "store_users",
        "is empty, so it is not known which texts are in use; SELECT "
        "blackbox_install(), and INSERT the views of your own tables");
  }
  while (
      pNamed != 0 && c->nProblem < BX_MAX_PROBLEMS && bxRow(pStmt, &c->err)) {
    i64 iText = sqlite3_column_int64(pStmt, 0);
    int bNamed = 0;
    bxBind(pNamed, &c->err, "i", iText);
    while (bxRow(pNamed, &c->err)) bNamed = 1;
    bxDone(pNamed, &c->err);
    if (bNamed || c->err.rc != SQLITE_OK) continue;
    c->nProblem++;
    bxProblem(c->pOut, "store__texts",
        "text %lld is named by no reference; INSERT INTO store_dropped(text) "
        "VALUES(%lld), and SELECT store_sweep()",
        iText, iText);
  }
  sqlite3_finalize(pStmt);
  sqlite3_finalize(pNamed);
}

/*-------------------------------------------------------------- check ----*/

void bxStoreCheck(BxStmts *p, BxProblems *pOut) {
  StoreCheck c = {p, pOut, 0, 0, 0, 0, {SQLITE_OK, 0}};
  sqlite3_stmt *pStmt =
      bxPrepare(p, "SELECT pack FROM main.store__uses ORDER BY pack", &c.err);
  i64 i;
  while (bxRow(pStmt, &c.err)) checkPack(&c, sqlite3_column_int64(pStmt, 0));
  sqlite3_finalize(pStmt);
  checkStored(&c);
  checkUses(&c);
  bxStoreUsers(p, checkUser, &c, &c.err);
  if (bxNumber(p, "SELECT EXISTS (SELECT 1 FROM main.store__texts)", &c.err)) {
    checkUnused(&c);
  }
  for (i = 0; i < c.n; i++) {
    bxListFree(&c.a[i].list);
    sqlite3_free(c.a[i].aUse);
    sqlite3_free(c.a[i].aHash);
  }
  sqlite3_free(c.a);
  bxUnchecked(pOut, "store__state", &c.err);
}

void bxStoreLeave(BxStmts *p, BxErr *pErr) {
  i64 n = bxNumber(p, "SELECT count(*) FROM main.store__texts", pErr);
  if (n == 0) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "NotEmptyError: the body store of schema %s has %lld texts that rows "
      "need; "
      "SELECT payload_unpack() until nothing is left, before the store is "
      "removed",
      p->zDb, n);
}
