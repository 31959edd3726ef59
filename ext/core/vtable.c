/*
** vtable.c: what the virtual tables of blackbox have in common.
**
** A BxVtab is a virtual table in one connection. The connection has a list of them, in
** which payload_kill_switch('ring', ...) finds the ring. The tables that a virtual table
** owns are made, renamed and dropped here, from the SQL of its module, in which "@"
** stands for its name. The arguments of CREATE are read here, too.
*/
#include "core.h"
#include "model.h"
#include "vtable.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

BxVtab *bxVtabNew(size_t nByte, Bx *bx, const char *zModule, const char *zDb,
    const char *zName, BxErr *pErr) {
  BxVtab *p;
  char *zTable;
  assert(nByte >= sizeof(BxVtab));
  p = bxZalloc(nByte, pErr);
  if (p == 0) return 0;
  p->pModule = bx->aModule;
  while (strcmp(p->pModule->zName, zModule) != 0) {
    p->pModule++;
    assert(p->pModule->zName != 0); /* it must exist */
  }
  bxStmtsInit(&p->stmts, bx, zDb, zName, pErr);
  bxRefuseOldFile(bx, zDb, pErr);
  zTable = bxPrintf(pErr, "%s%s", zName, p->pModule->zTable);
  if (zTable != 0)
    bxRefuseOldTable(bx, zDb, zTable, p->pModule->zEarlier, pErr);
  sqlite3_free(zTable);
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
  assert(p->stmts.bx != 0);
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

int bxTableExists(Bx *bx, const char *zDb, const char *zName) {
  return sqlite3_table_column_metadata(bx->db, zDb, zName, 0, 0, 0, 0, 0, 0) ==
         SQLITE_OK;
}

/* Whether schema zDb has a table of that name, and it works. Preparing a
** statement on it makes SQLite connect the table. */
static int connectTable(
    Bx *bx, const char *zDb, const char *zName, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bWorks;
  if (pErr->rc != SQLITE_OK) return 0;
  sqlite3_finalize(bxPrepareOwned(
      bx->db, bxPrintf(&err, "SELECT 1 FROM \"%w\".\"%w\"", zDb, zName), &err));
  bWorks = err.rc == SQLITE_OK;
  if (err.rc == SQLITE_ERROR && !bxTableExists(bx, zDb, zName)) {
    bxErrClear(&err); /* there is none */
  }
  bxErrMove(pErr, &err);
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
BxVtab *bxVtabFind(
    Bx *bx, const char *zModule, sqlite3_value *pName, BxErr *pErr) {
  const char *zName = bxText(pName, "table name", 1000, 0, pErr);
  sqlite3_stmt *pStmt;
  BxVtab *p;
  if (zName == 0) return 0;
  p = bxVtabIn(bx, zModule, "temp", zName, pErr);
  pStmt = bxPrepareSql(bx->db, "PRAGMA database_list", pErr);
  while (p == 0 && bxStep(pStmt, pErr)) {
    const char *zDb = bxColumnText(pStmt, 1, pErr);
    if (zDb != 0) p = bxVtabIn(bx, zModule, zDb, zName, pErr);
  }
  sqlite3_finalize(pStmt);
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

BxVtab *bxVtabNext(BxVtabWalk *p, BxErr *pErr) {
  BxVtab *pVtab = 0;
  assert(p->pModule != 0 || p->pNames == 0);
  if (p->pModule == 0) p->pModule = p->p->bx->aModule;
  while (pVtab == 0 && p->pModule->zName != 0) {
    if (p->pNames == 0) p->pNames = bxVtabNames(p->p, p->pModule->zName, pErr);
    if (bxStep(p->pNames, pErr)) {
      const char *zName = bxColumnText(p->pNames, 0, pErr);
      if (zName == 0) continue;
      pVtab = bxVtabIn(p->p->bx, p->pModule->zName, p->p->zDb, zName, pErr);
    } else {
      sqlite3_finalize(p->pNames);
      p->pNames = 0;
      p->pModule++;
    }
  }
  return pVtab;
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
  assert(nOut > 0);
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

/*--------------------------------------------------------- their tables ----*/

/*
** The template of the module, sql/<module>.sql, defines them. The model
** (model.c) tells what to do with each object.
**
** They are tables and indexes. An index cannot be renamed, and keeps its name. So the
** name ends in random digits, because another virtual table may later get the old
** table name.
*/

int bxShadowIsHeld(BxVtab *p, BxErr *pErr) {
  const BxStmts *pStmts = &p->stmts;
  if (pErr->rc != SQLITE_OK) return 0; /* p may be freed: see runModel() */
  if (sqlite3_stricmp(pStmts->zDb, "temp") == 0 ||
      !bxTableExists(pStmts->bx, pStmts->zDb, "retention__in_force")) {
    return 0;
  }
  return bxQueryNumber(&p->stmts,
             "SELECT EXISTS (SELECT 1 FROM main.retention__in_force)",
             pErr) != 0;
}

/* Runs on the schema each statement that a query on the model returns. ?1 is
** the schema, ?2 the name of the virtual table, ?3 another text. After an
** error p may be freed: an error that ends the transaction makes SQLite disconnect the
** virtual tables. */
static void runModel(
    BxVtab *p, const char *zQuery, const char *zOther, BxErr *pErr) {
  sqlite3 *db, *pModel;
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK) return;
  assert(p->stmts.zTable != 0);
  db = p->stmts.bx->db;
  pModel = bxModel(&p->stmts, p->pModule->zSql, pErr);
  pStmt = bxPrepareSql(pModel, zQuery, pErr);
  bxBind(pStmt, pErr, &"ttt"[3 - sqlite3_bind_parameter_count(pStmt)],
      p -> stmts.zDb, p->stmts.zTable, zOther);
  while (bxStep(pStmt, pErr)) {
    const char *zSql = bxColumnText(pStmt, 0, pErr);
    if (zSql != 0) bxFailDb(pErr, db, sqlite3_exec(db, zSql, 0, 0, 0));
    if (pErr->rc == SQLITE_OK) bxWriteSchema(p->stmts.bx);
  }
  sqlite3_finalize(pStmt);
  sqlite3_close(pModel);
}

/* SQL: the objects of the model that the virtual table owns. */
#define OWN " FROM main.sqlite_schema WHERE true"

/* SQL: the statements that create objects of the model; ?1 is the schema. */
#define MAKE                                                                   \
  "SELECT printf('CREATE %s \"%w\".\"%w%s\"%s', type, ?1, name,"               \
  " iif(type = 'index', lower(hex(randomblob(4))), ''),"                       \
  " substr(sql, length(printf('CREATE %s \"%w\"', type, name)) + 1))" OWN      \
  " AND sql IS NOT NULL"

/* Refuses a name with which the tables of the virtual table could have the names
** of a domain's tables, or seem to: those begin with the name of the domain and
** one or two underscores. Nor may it hide a table of the module. */
static void refuseName(BxVtab *p, const char *zName, BxErr *pErr) {
  static const char zModule[] =
      "SELECT 1 FROM pragma_module_list WHERE name = ?1 COLLATE NOCASE";
  const Bx *bx = p->stmts.bx;
  size_t n = strlen(zName);
  int i, bTaken = (n > 0 && zName[n - 1] == '_') ||
                  sqlite3_strnicmp(zName, "blackbox_", 9) == 0;
  bTaken |= sqlite3_stricmp(zName, "blackbox") == 0 ||
            sqlite3_stricmp(zName, "proof") == 0 ||
            bxQueryIntOnce(&p->stmts, zModule, pErr, "t", zName) != 0;
  for (i = 0; i < bx->nDomain; i++) {
    const char *zDomain = bx->aDomain[i].zName;
    size_t nDomain = strlen(zDomain);
    bTaken |= sqlite3_strnicmp(zName, zDomain, (int)nDomain) == 0 &&
              (zName[nDomain] == 0 || strncmp(zName + nDomain, "__", 2) == 0);
  }
  if (!bTaken) return;
  bxFail(pErr, SQLITE_ERROR,
      "ValidationError: a table of %s cannot be named %Q, because it or the "
      "tables that it makes could get names of blackbox; choose a name that "
      "does not end in _, is not that of a domain, and does not begin with "
      "blackbox_ or with a domain and __",
      p->pModule->zName, zName);
}

void bxShadowCreate(BxVtab *p, BxErr *pErr) {
  refuseName(p, p->stmts.zTable, pErr);
  if (pErr->rc != SQLITE_OK) return;
  bxRequireUtf8(&p->stmts, pErr);
  runModel(p, MAKE " ORDER BY rowid", 0, pErr);
}

/* DROP TABLE also drops its indexes. */
void bxShadowDrop(BxVtab *p, BxErr *pErr) {
  bxStmtsFinalize(&p->stmts);
  runModel(p,
      "SELECT printf('DROP TABLE IF EXISTS \"%w\".\"%w\"', ?1, name)" OWN
      " AND type = 'table'",
      0, pErr);
}

/*---------------------------------------------------------------- repair ----*/

int bxShadowIsIncomplete(BxVtab *p, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  int bStale;
  assert(p->pModule->xKnown != 0 && p->stmts.zTable != 0);
  p->pModule->xKnown(p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  pStmt = bxFound(&p->stmts, p->pModule->zSql, 0,
      BX_FOUND "SELECT max(state < 4) AND NOT max(lost) FROM found", pErr);
  bStale = bxStep(pStmt, pErr) && sqlite3_column_int(pStmt, 0);
  sqlite3_finalize(pStmt);
  return bStale;
}

char *bxShadowRepair(BxVtab *p, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  char *zMade = 0, *zNames = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  pStmt = bxFound(&p->stmts, p->pModule->zSql, 0,
      BX_FOUND "SELECT iif(count(*), json_object('missing', group_concat("
               "  type || ' ' || name, ', '), 'changed', ''), NULL),"
               " json_group_array(name) FROM found WHERE state = 0"
               " AND NOT lost AND type IN ('index', 'table')",
      pErr);
  if (bxStep(pStmt, pErr)) {
    zMade = bxColumnCopy(pStmt, 0, pErr);
    zNames = bxColumnCopy(pStmt, 1, pErr);
  }
  sqlite3_finalize(pStmt);
  runModel(p,
      MAKE " AND name IN (SELECT value FROM json_each(?3)) ORDER BY rowid",
      zNames, pErr);
  sqlite3_free(zNames);
  return zMade;
}

/*--------------------------------------------------------------- renamed ----*/

void bxShadowSetName(BxVtab *p, const char *zNew, BxErr *pErr) {
  BxStmts fresh;
  if (pErr->rc != SQLITE_OK) return;
  bxStmtsInit(&fresh, p->stmts.bx, p->stmts.zDb, zNew, pErr);
  if (pErr->rc != SQLITE_OK) {
    bxStmtsFree(&fresh);
    return;
  }
  bxStmtsFree(&p->stmts);
  p->stmts = fresh;
}

char *bxShadowHolder(BxVtab *p, BxErr *pErr) {
  if (!bxShadowIsHeld(p, pErr)) return 0;
  return bxQueryText(&p->stmts,
      "SELECT owner FROM main.retention__holds "
      "WHERE kind = 'buffer' AND \"key\" = lower(?1)",
      pErr, "t", p->stmts.zTable);
}

/* (The hold on a whole virtual table has its name as key.) */
void bxShadowRename(BxVtab *p, const char *zNew, BxErr *pErr) {
  char *zOwner;
  refuseName(p, zNew, pErr);
  zOwner = bxShadowHolder(p, pErr);
  if (zOwner != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "HeldError: %s is held by %s under this name and cannot be renamed; "
        "end the hold with retention_release() first",
        p->stmts.zTable, zOwner);
  }
  sqlite3_free(zOwner);
  if (pErr->rc != SQLITE_OK) return;
  bxStmtsFinalize(&p->stmts);
  p->pModule->xKnown(p, pErr);
  sqlite3_free(bxShadowRepair(p, pErr));
  runModel(p,
      "SELECT printf('ALTER TABLE \"%w\".\"%w\" RENAME TO \"%w%w\"', ?1, name,"
      " ?3, substr(name, length(?2) + 1))" OWN " AND type = 'table'",
      zNew, pErr);
  bxShadowSetName(p, zNew, pErr);
}
