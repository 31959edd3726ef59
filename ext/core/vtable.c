/*
** vtable.c: what the virtual tables of blackbox have in common: their list for
** the connection, in which payload_kill_switch('ring', ...) finds the ring, and
** the arguments of CREATE.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The module of that name, which must exist. */
static const BxModule *findModule(const Bx *bx, const char *zModule) {
  const BxModule *p = bx->aModule;
  while (strcmp(p->zName, zModule) != 0) {
    p++;
    assert(p->zName != 0);
  }
  return p;
}

/* Refuses a table of a build before 1.0, or a file of one. */
static void refuseEarlier(Bx *bx, const BxModule *pModule, const char *zDb,
    const char *zName, BxErr *pErr) {
  char *zTable = bxPrintf(pErr, "%s%s", zName, pModule->zTable);
  bxRefuseEarlier(bx, zDb, pErr);
  if (zTable != 0) bxRefuseColumn(bx, zDb, zTable, pModule->zEarlier, pErr);
  sqlite3_free(zTable);
}

BxVtab *bxVtabNew(size_t nByte, Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr) {
  BxVtab *p;
  assert(nByte >= sizeof(BxVtab));
  p = bxNew(nByte, pErr);
  if (p == 0) return 0;
  p->pModule = findModule(bx, zModule);
  bxStmtsInit(&p->stmts, bx, zDb, zName, pErr);
  refuseEarlier(bx, p->pModule, zDb, zName, pErr);
  if (pErr->rc != SQLITE_OK) {
    bxStmtsFree(&p->stmts);
    sqlite3_free(p);
    return 0;
  }
  p->pNext = bx->pVtabs;
  bx->pVtabs = p;
  return p;
}

static void freeVtab(BxVtab *p) {
  if (p->xFree != 0) p->xFree(p);
  bxStmtsFree(&p->stmts);
  sqlite3_free(p->base.zErrMsg); /* SQLite does not read an error of xDestroy */
  sqlite3_free(p);
}

static void freeGone(Bx *bx) {
  BxVtab *p;
  while ((p = bx->pGone) != 0) {
    bx->pGone = p->pNext;
    freeVtab(p);
  }
}

void bxVtabFree(BxVtab *p) {
  Bx *bx;
  BxVtab **pp;
  if (p == 0) return;
  bx = p->stmts.bx;
  for (pp = &bx->pVtabs; *pp != p; pp = &(*pp)->pNext) {
    assert(*pp != 0); /* it is on the list */
  }
  *pp = p->pNext;
  if (bx->iCall == 0) {
    freeVtab(p);
    return;
  }
  p->pNext = bx->pGone;
  bx->pGone = p;
  bx->xFreeGone = freeGone;
}

int bxCursorNew(size_t nByte, sqlite3_vtab_cursor **ppCursor) {
  void *p = sqlite3_malloc64(nByte);
  assert(nByte >= sizeof(sqlite3_vtab_cursor));
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, nByte);
  *ppCursor = (sqlite3_vtab_cursor *)p;
  return SQLITE_OK;
}

/* The connected table zName of schema zDb. */
static BxVtab *onList(
    Bx *bx, const char *zModule, const char *zDb, const char *zName) {
  BxVtab *p;
  for (p = bx->pVtabs; p != 0; p = p->pNext) {
    if (strcmp(p->pModule->zName, zModule) == 0 &&
        sqlite3_stricmp(p->stmts.zDb, zDb) == 0 &&
        sqlite3_stricmp(p->stmts.zTable, zName) == 0) {
      return p;
    }
  }
  return 0;
}

int bxIsThere(Bx *bx, const char *zDb, const char *zName) {
  return sqlite3_table_column_metadata(bx->db, zDb, zName, 0, 0, 0, 0, 0, 0) ==
         SQLITE_OK;
}

/* Whether schema zDb has a table of that name, and it works. Preparing a
** statement on it makes SQLite connect the table. */
static int connectTable(
    Bx *bx, const char *zDb, const char *zName, BxErr *pErr) {
  static const char zSql[] = "SELECT 1 FROM \"%w\".\"%w\" WHERE 0";
  int bWorks = bxCanPrepare(bx, bxPrintf(pErr, zSql, zDb, zName), pErr);
  if (!bWorks && pErr->rc == SQLITE_OK && bxIsThere(bx, zDb, zName)) {
    char *z = bxPrintf(pErr, zSql, zDb, zName);
    sqlite3_finalize(bxPlain(bx->db, z, pErr)); /* to say why */
    sqlite3_free(z);
  }
  return bWorks;
}

/* Also accepts the name 'zDb.table'. */
BxVtab *bxVtabIn(Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr) {
  size_t nDb = strlen(zDb);
  BxVtab *pFound = 0;
  if (connectTable(bx, zDb, zName, pErr)) {
    pFound = onList(bx, zModule, zDb, zName);
  }
  if (pFound == 0 && sqlite3_strnicmp(zName, zDb, (int)nDb) == 0 &&
      zName[nDb] == '.' && connectTable(bx, zDb, zName + nDb + 1, pErr)) {
    pFound = onList(bx, zModule, zDb, zName + nDb + 1);
  }
  return pFound;
}

/* Searches temp first, then the others in order. It uses the pragma itself,
** because the table pragma_database_list would read main, and a read must not
** precede the first write of the caller. */
static BxVtab *searchTable(
    Bx *bx, const char *zModule, const char *zName, BxErr *pErr) {
  BxVtab *pFound = bxVtabIn(bx, zModule, "temp", zName, pErr);
  sqlite3_stmt *pStmt = bxPlain(bx->db, "PRAGMA database_list", pErr);
  while (pFound == 0 && bxRow(pStmt, pErr)) {
    const char *zDb = bxColumnText(pStmt, 1, pErr);
    if (zDb != 0) pFound = bxVtabIn(bx, zModule, zDb, zName, pErr);
  }
  sqlite3_finalize(pStmt);
  return pFound;
}

BxVtab *bxVtabFind(
    Bx *bx, const char *zModule, sqlite3_value *pName, BxErr *pErr) {
  const char *zName = bxText(pName, "table name", 1000, 0, pErr);
  BxVtab *p;
  if (zName == 0) return 0;
  p = searchTable(bx, zModule, zName, pErr);
  if (p == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: there is no %s table %Q; create one with CREATE "
        "VIRTUAL TABLE \"%w\" USING %s",
        zModule, zName, zName, zModule);
  }
  return p;
}

sqlite3_stmt *bxVtabNames(BxStmts *p, const char *zModule, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p,
      "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND "
      "lower(sql) GLOB 'create virtual table*using*' || ?1 || '*'",
      pErr);
  bxBind(pStmt, pErr, "t", zModule);
  return pStmt;
}

int bxIsColumn(const char *zName, const char *zColumns) {
  size_t n = strlen(zName);
  const char *z = zColumns;
  while (*z) {
    const char *zEnd = strchr(z, ',');
    size_t nWord = zEnd ? (size_t)(zEnd - z) : strlen(z);
    if (nWord == n && sqlite3_strnicmp(z, zName, (int)n) == 0) return 1;
    z += nWord + (zEnd != 0);
  }
  return 0;
}

/* Copies the trimmed text z[0..n) without its quotes; 0 if it is too long. */
static int copyPart(const char *z, size_t n, char *zOut, int nOut) {
  size_t i, nWritten = 0;
  char cQuote = 0;
  while (n > 0 && (*z == ' ' || *z == '\t' || *z == '\n' || *z == '\r')) {
    z++;
    n--;
  }
  while (n > 0 && strchr(" \t\n\r", z[n - 1]) != 0) n--;
  if (n >= 2 && strchr("'\"`", z[0]) != 0 && z[n - 1] == z[0]) {
    cQuote = z[0];
    z++;
    n -= 2;
  }
  for (i = 0; i < n; i++) {
    if (nWritten + 1 >= (size_t)nOut) return 0;
    zOut[nWritten++] = z[i];
    if (cQuote && z[i] == cQuote && i + 1 < n && z[i + 1] == cQuote) i++;
  }
  assert(nWritten < (size_t)nOut);
  zOut[nWritten] = 0;
  return 1;
}

void bxVtabArg(
    const char *zArg, char *zKey, int nKey, char *zVal, int nVal, BxErr *pErr) {
  const char *zEq = strchr(zArg, '=');
  if (pErr->rc != SQLITE_OK) return;
  if (zEq == 0 || !copyPart(zArg, (size_t)(zEq - zArg), zKey, nKey) ||
      !copyPart(zEq + 1, strlen(zEq + 1), zVal, nVal)) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: a table argument must have the form name=value, got "
        "%s",
        zArg);
  }
}
