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

typedef struct Sharing {
  i64 *aPlace; /* the places of the text's old pieces, in order, each once */
  i64 *aByte;  /* their bytes in the text */
  i64 nPlace, nAlloc, nByteAlloc;
  i64 nNew, nOld; /* bytes that are new; bytes of aByte that are left */
  sqlite3_str *pRows;
} Sharing;

static i64 findPlace(const Sharing *p, i64 iPlace) {
  i64 iLow = 0, iHigh = p->nPlace;
  while (iLow < iHigh) {
    i64 iMid = (iLow + iHigh) / 2;
    if (p->aPlace[iMid] < iPlace) {
      iLow = iMid + 1;
    } else {
      iHigh = iMid;
    }
  }
  return iLow;
}

static void addPlace(Sharing *p, i64 iPlace, i64 nByte, BxErr *pErr) {
  i64 i = findPlace(p, iPlace), *a;
  p->nOld += nByte;
  if (i < p->nPlace && p->aPlace[i] == iPlace) {
    p->aByte[i] += nByte;
    return;
  }
  a = bxGrow(p->aPlace, p->nPlace, &p->nAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  p->aPlace = a;
  a = bxGrow(p->aByte, p->nPlace, &p->nByteAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  p->aByte = a;
  memmove(
      p->aPlace + i + 1, p->aPlace + i, (size_t)(p->nPlace - i) * sizeof(*a));
  memmove(p->aByte + i + 1, p->aByte + i, (size_t)(p->nPlace - i) * sizeof(*a));
  p->aPlace[i] = iPlace;
  p->aByte[i] = nByte;
  p->nPlace++;
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
    for (k = findPlace(p, iFirst);
         k < p->nPlace && p->aPlace[k] < iFirst + pRange->nPiece; k++) {
      nByte += p->aByte[k];
      p->aByte[k] = 0;
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
    i64 iText, sqlite3_stmt *pNamed, BxErr *pErr) {
  static const char zBefore[] =
      "SELECT text, recipe FROM main.store__texts WHERE text < ?1"
      " ORDER BY text DESC LIMIT ?2";
  sqlite3_stmt *pStmt;
  TextRow row;
  p->nPlace = p->nNew = p->nOld = 0;
  if (bxTextRowFind(pStore, iText, &row, pErr)) divide(p, pStore, &row, pErr);
  bxTextRowFree(&row);
  putShare(p, zColumn, 0, p->nNew, "new", pErr);
  pStmt = bxPrepare(pStore, zBefore, pErr);
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

/* What one call asks for. */
typedef struct Asked {
  sqlite3_value *pKey;
  Sharing sharing;
  sqlite3_stmt *pNamed;
} Asked;

/* The texts of the key in the view of one user. */
static void shareUser(BxStmts *p, const char *zBodies, const char *zTexts,
    void *pArg, BxErr *pErr) {
  Asked *pAsked = (Asked *)pArg;
  char *zSql = bxPrintf(
      pErr, "SELECT * FROM \"%w\".\"%w\" WHERE \"key\" = ?1", p->zDb, zBodies);
  sqlite3_stmt *pStmt = zSql ? bxPlain(p->bx->db, zSql, pErr) : 0;
  int i;
  (void)zTexts;
  sqlite3_free(zSql);
  bxBind(pStmt, pErr, "v", pAsked->pKey);
  while (bxRow(pStmt, pErr)) {
    for (i = 1; i < sqlite3_column_count(pStmt); i++) {
      Ref ref;
      if (!bxRefOf(&ref, sqlite3_column_value(pStmt, i))) continue;
      shareText(&pAsked->sharing, p, sqlite3_column_name(pStmt, i), ref.iText,
          pAsked->pNamed, pErr);
    }
  }
  sqlite3_finalize(pStmt);
}

sqlite3_stmt *bxStoreShared(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *pStore = bxStoreHome(bx, apArg[1], pErr);
  Asked asked;
  char *zRows;
  memset(&asked, 0, sizeof(asked));
  if (pStore == 0) return 0;
  asked.pKey = apArg[0];
  asked.pNamed = bxStoreNamed(pStore, pErr);
  asked.sharing.pRows = sqlite3_str_new(bx->db);
  sqlite3_str_appendall(asked.sharing.pRows, "[");
  if (asked.pNamed != 0) bxStoreUsers(pStore, shareUser, &asked, pErr);
  sqlite3_str_appendall(asked.sharing.pRows, "]");
  sqlite3_finalize(asked.pNamed);
  sqlite3_free(asked.sharing.aPlace);
  sqlite3_free(asked.sharing.aByte);
  zRows = bxFinish(asked.sharing.pRows, pErr);
  if (pErr->rc != SQLITE_OK) {
    sqlite3_free(zRows);
    return 0;
  }
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3"
      " FROM json_each(?1)",
      zRows, pErr);
}
