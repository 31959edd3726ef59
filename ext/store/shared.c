/*
** shared.c: store_shared(key): how much of what a key has is new, and what it
** shares with which earlier row.
**
** Pieces from the place "fresh" of a text on were new when it was packed, so they
** belong to it alone at that time. The others are looked for in the texts that were
** packed before, the nearest first, in at most LOOK_BACK of them. Each piece counts
** for the nearest text that has it.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LOOK_BACK 10000

/* An old piece of a text: its place, and the bytes of the text that are in it. */
typedef struct OldPiece {
  i64 iPlace, nByte;
} OldPiece;

typedef struct Sharing {
  OldPiece *a; /* in the order of their places, each once */
  i64 n, nAlloc;
  i64 nNew, nOld; /* bytes that are new; bytes of a that are left */
  sqlite3_str *pRows;
} Sharing;

static void addPlace(Sharing *p, i64 iPlace, i64 nByte, BxErr *pErr) {
  i64 i = bxStoreSearch(p->a, p->n, sizeof(*p->a), iPlace);
  p->nOld += nByte;
  if (i == p->n || p->a[i].iPlace != iPlace) {
    if (bxAdd(&p->a, &p->n, &p->nAlloc, sizeof(*p->a), pErr) == 0) return;
    memmove(&p->a[i + 1], &p->a[i], (size_t)(p->n - 1 - i) * sizeof(*p->a));
    p->a[i].iPlace = iPlace;
    p->a[i].nByte = 0;
  }
  p->a[i].nByte += nByte;
}

/* Divides a text into what is new and what is old. */
static void divide(
    Sharing *p, BxStmts *pStore, const TextRow *pRow, BxErr *pErr) {
  i64 i, k;
  for (i = 0; i < pRow->recipe.n && pErr->rc == SQLITE_OK; i++) {
    const Range *pRange = &pRow->recipe.a[i];
    List list;
    bxListRead(pStore, pRange->iPack, &list, pErr);
    for (k = pRange->iFirst; k < pRange->iFirst + pRange->nPiece && k < list.n;
         k++) {
      i64 iPlace = pRange->iPack << 16 | k;
      if (iPlace >= pRow->iFresh) {
        p->nNew += list.a[k].nByte;
      } else {
        addPlace(p, iPlace, list.a[k].nByte, pErr);
      }
    }
    bxListFree(&list);
  }
}

/* Takes away what a recipe has. Returns the bytes. */
static i64 takeShared(Sharing *p, const Recipe *pRecipe) {
  i64 i, k, nByte = 0;
  for (i = 0; i < pRecipe->n; i++) {
    const Range *pRange = &pRecipe->a[i];
    i64 iFirst = pRange->iPack << 16 | pRange->iFirst;
    for (k = bxStoreSearch(p->a, p->n, sizeof(*p->a), iFirst);
         k < p->n && p->a[k].iPlace < iFirst + pRange->nPiece; k++) {
      nByte += p->a[k].nByte;
      p->a[k].nByte = 0;
    }
  }
  p->nOld -= nByte;
  return nByte;
}

static void putShare(Sharing *p, const char *zColumn, sqlite3_value *pKey,
    i64 nByte, const char *zKind, BxErr *pErr) {
  char *zKey = 0;
  if (nByte == 0 || pErr->rc != SQLITE_OK) return;
  sqlite3_str_appendf(
      p->pRows, "%s[", sqlite3_str_length(p->pRows) > 1 ? "," : "");
  bxAppendJson(p->pRows, zColumn, (int)strlen(zColumn));
  sqlite3_str_appendf(p->pRows, ",\"%s\",%lld,", zKind, nByte);
  if (pKey != 0) zKey = (char *)sqlite3_value_text(pKey);
  if (zKey != 0) {
    bxAppendJson(p->pRows, zKey, (int)strlen(zKey));
  } else {
    sqlite3_str_appendall(p->pRows, "null");
  }
  sqlite3_str_appendall(p->pRows, "]");
}

/* The rows for one text: what is new, and each earlier row. */
static void shareText(Sharing *p, BxStmts *pStore, const char *zColumn,
    i64 iText, const BxBodies *pBodies, BxErr *pErr) {
  sqlite3_stmt *pStmt, *pNamed = bxStmt(pStore, pBodies->zNamed, pErr);
  TextRow row;
  p->n = p->nNew = p->nOld = 0;
  if (bxTextRowFind(pStore, iText, &row, pErr)) divide(p, pStore, &row, pErr);
  bxRecipeFree(&row.recipe);
  putShare(p, zColumn, 0, p->nNew, "new", pErr);
  pStmt = bxPrepare(pStore,
      "SELECT text, recipe FROM main.store__texts WHERE text < ?1"
      " ORDER BY text DESC LIMIT ?2",
      pErr);
  bxBind(pStmt, pErr, "ii", iText, (i64)LOOK_BACK);
  while (p->nOld > 0 && bxRow(pStmt, pErr)) {
    Recipe recipe = {0, 0, 0, 0};
    i64 nByte = 0;
    bxRecipeDecode(&recipe, sqlite3_column_blob(pStmt, 1),
        sqlite3_column_bytes(pStmt, 1), pErr);
    if (pErr->rc == SQLITE_OK) nByte = takeShared(p, &recipe);
    sqlite3_free(recipe.a);
    if (nByte == 0) continue;
    bxBind(pNamed, pErr, "i", sqlite3_column_int64(pStmt, 0));
    putShare(p, zColumn,
        bxRow(pNamed, pErr) ? sqlite3_column_value(pNamed, 1) : 0, nByte,
        "shared", pErr);
    bxDone(pNamed, pErr);
  }
  sqlite3_finalize(pStmt);
  putShare(p, zColumn, 0, p->nOld, "shared", pErr);
}

sqlite3_stmt *bxStoreShared(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *pStore = bxStoreHome(bx, apArg[1], pErr);
  Sharing sharing = {0, 0, 0, 0, 0, 0};
  const BxBodies *pBodies;
  sqlite3_stmt *pStmt;
  char *zRows;
  int i;
  if (pStore == 0) return 0;
  pBodies = bxStoreBodies(pStore, pErr);
  sharing.pRows = sqlite3_str_new(bx->db);
  sqlite3_str_appendall(sharing.pRows, "[");
  pStmt = bxPrepare(pStore, pBodies->zRow, pErr);
  bxBind(pStmt, pErr, "v", apArg[0]);
  while (bxRow(pStmt, pErr)) {
    for (i = 0; i < sqlite3_column_count(pStmt); i++) {
      Ref ref;
      if (!bxRefOf(&ref, sqlite3_column_value(pStmt, i))) continue;
      shareText(&sharing, pStore, sqlite3_column_name(pStmt, i), ref.iText,
          pBodies, pErr);
    }
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(sharing.a);
  sqlite3_str_appendall(sharing.pRows, "]");
  zRows = bxFinish(sharing.pRows, pErr);
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3"
      " FROM json_each(?1)",
      zRows, pErr);
}
