/*
** install.c: blackbox_install([schema[, domains]]), version and debug.
**
** Each domain's schema is the text of sql/<domain>.sql, which only creates
** what is missing. A domain whose views, triggers and indexes stand as that
** text makes them is left alone, so a second call writes nothing; anything
** else (an older version, a guard that was dropped) is put right, all in one
** transaction. A version newer than this module is refused.
**
** What the objects should look like is asked of SQLite itself: the text runs
** in an empty database in memory, and the two schemas are compared.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Opens a database in memory with core's schema and the domain's. Its
** temp table core names the objects that are core's own. */
static sqlite3 *openModel(Bx *bx, const BxDomain *pDomain, BxErr *pErr) {
  sqlite3 *db = 0;
  int rc;
  if (pErr->rc != SQLITE_OK) return 0;
  rc = sqlite3_open_v2(
      ":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 0);
  if (rc == SQLITE_OK && pDomain != bx->aDomain) {
    rc = sqlite3_exec(db, bx->aDomain[0].zSql, 0, 0, 0);
    if (rc == SQLITE_OK) {
      rc = sqlite3_exec(db,
          "CREATE TEMP TABLE core AS SELECT name FROM sqlite_schema", 0, 0, 0);
    }
  } else if (rc == SQLITE_OK) {
    rc = sqlite3_exec(db, "CREATE TEMP TABLE core(name)", 0, 0, 0);
  }
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, pDomain->zSql, 0, 0, 0);
  if (rc != SQLITE_OK) {
    if (db != 0) bxFailDb(pErr, db, rc);
    bxFail(pErr, rc, "out of memory");
    sqlite3_close(db);
    return 0;
  }
  return db;
}

void bxDifferences(BxStmts *p, const BxDomain *pDomain,
    void (*xEach)(BxStmts *, void *, const char *, const char *, int),
    void *pArg, BxErr *pErr) {
  sqlite3 *pModel = openModel(p->bx, pDomain, pErr);
  sqlite3_stmt *pWanted = 0, *pThere;
  if (pModel == 0) return;
  pThere = bxPrepare(p,
      "SELECT sql = ?3 FROM main.sqlite_schema WHERE type = ?1 AND name = ?2 "
      "COLLATE NOCASE",
      pErr);
  bxFailDb(pErr, pModel,
      sqlite3_prepare_v2(pModel,
          "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL "
          "AND type <> 'table' AND name NOT IN (SELECT name FROM core)",
          -1, &pWanted, 0));
  while (bxRow(pWanted, pErr)) {
    const char *zType = (const char *)sqlite3_column_text(pWanted, 0);
    const char *zName = (const char *)sqlite3_column_text(pWanted, 1);
    int bThere, bSame;
    bxBind(pThere, pErr, "ttt", zType, zName, sqlite3_column_text(pWanted, 2));
    bThere = bxRow(pThere, pErr);
    bSame = bThere && sqlite3_column_int(pThere, 0);
    bxDone(pThere, pErr);
    if (pErr->rc == SQLITE_OK && !bSame) xEach(p, pArg, zType, zName, bThere);
  }
  sqlite3_finalize(pThere);
  sqlite3_finalize(pWanted);
  sqlite3_close(pModel);
}

/* Version of an installed domain, or -1. */
static i64 installedVersion(BxStmts *p, const char *zDomain, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 iVersion = -1;
  if (!bxCarries(p->bx, p->zDb, zDomain, pErr)) return -1;
  pStmt = bxPrepare(
      p, "SELECT version FROM main.blackbox_domains WHERE domain = ?1", pErr);
  bxBind(pStmt, pErr, "t", zDomain);
  if (bxRow(pStmt, pErr)) iVersion = sqlite3_column_int64(pStmt, 0);
  sqlite3_finalize(pStmt);
  return iVersion;
}

static void countOne(
    BxStmts *p, void *pArg, const char *zType, const char *zName, int bThere) {
  (void)p;
  (void)zType;
  (void)zName;
  (void)bThere;
  ++*(int *)pArg;
}

/* Whether the schema has every view, trigger and index of the model as is. */
static int isIntact(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  int nDifferent = 0;
  bxDifferences(p, pDomain, countOne, &nDifferent, pErr);
  return pErr->rc == SQLITE_OK && nDifferent == 0;
}

/* Drops what is there in another form, so that the text makes it anew. */
static void dropOne(
    BxStmts *p, void *pArg, const char *zType, const char *zName, int bThere) {
  char *zSql;
  if (!bThere) return;
  zSql = sqlite3_mprintf("DROP %s IF EXISTS main.\"%w\"", zType, zName);
  if (zSql == 0) bxFail((BxErr *)pArg, SQLITE_NOMEM, "out of memory");
  bxExec(p, zSql, (BxErr *)pArg);
  sqlite3_free(zSql);
}

static void installDomain(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  i64 iVersion = installedVersion(p, pDomain->zName, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (iVersion > pDomain->iVersion) {
    bxFail(pErr, SQLITE_ERROR,
        "VersionError: schema %s has version %lld of %s, this module knows "
        "up to %d; load a newer blackbox",
        p->zDb, iVersion, pDomain->zName, pDomain->iVersion);
    return;
  }
  if (iVersion == pDomain->iVersion && isIntact(p, pDomain, pErr)) return;
  if (iVersion >= 0) {
    bxDifferences(p, pDomain, dropOne, pErr, pErr);
  } else if (pDomain->xAdopt != 0) {
    pDomain->xAdopt(p, pErr);
  }
  bxExec(p, pDomain->zSql, pErr);
}

/* Whether a comma-separated list names the domain; core always belongs. */
static int isWanted(const char *zList, const char *zName) {
  size_t n = strlen(zName);
  const char *z = zList;
  if (zList == 0 || strcmp(zName, "core") == 0) return 1;
  while (*z) {
    z += strspn(z, " ,");
    if (strcspn(z, " ,") == n && strncmp(z, zName, n) == 0) return 1;
    z += strcspn(z, " ,");
  }
  return 0;
}

/* Every word of the list must be a domain. */
static void checkList(Bx *bx, const char *zList, BxErr *pErr) {
  const char *z = zList;
  while (z != 0 && *(z += strspn(z, " ,")) != 0) {
    size_t n = strcspn(z, " ,");
    int i;
    for (i = 0; i < bx->nDomain; i++) {
      if (strlen(bx->aDomain[i].zName) == n &&
          strncmp(bx->aDomain[i].zName, z, n) == 0) {
        break;
      }
    }
    if (i == bx->nDomain) {
      bxFail(pErr, SQLITE_ERROR,
          "ValidationError: no domain named %.*Q; blackbox_debug() lists them",
          (int)n, z);
    }
    z += n;
  }
}

/* The schema exists, is not temp, and stores text as UTF-8. */
static void checkSchema(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  int bKnown;
  if (pErr->rc != SQLITE_OK) return;
  if (sqlite3_stricmp(p->zDb, "temp") == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: temp cannot hold the tables of blackbox, as it "
        "ends with the connection; install into main or an attached database");
  }
  bxFailDb(pErr, p->bx->db,
      sqlite3_prepare_v2(p->bx->db,
          "SELECT 1 FROM pragma_database_list WHERE name = ?1 COLLATE NOCASE",
          -1, &pStmt, 0));
  bxBind(pStmt, pErr, "t", p->zDb);
  bKnown = bxRow(pStmt, pErr);
  sqlite3_finalize(pStmt);
  if (!bKnown) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: no schema named %Q; ATTACH it first", p->zDb);
  }
  bxNeedUtf8(p, pErr);
}

/* 1 when every wanted domain is there at this version, whole. */
static int allIntact(BxStmts *p, const char *zList, BxErr *pErr) {
  Bx *bx = p->bx;
  int i;
  for (i = 0; i < bx->nDomain && pErr->rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &bx->aDomain[i];
    if (!isWanted(zList, pDomain->zName)) continue;
    if (installedVersion(p, pDomain->zName, pErr) != pDomain->iVersion ||
        !isIntact(p, pDomain, pErr)) {
      return 0;
    }
  }
  return pErr->rc == SQLITE_OK;
}

/* Takes the write lock before anything is read: with a write that changes
** nothing, or with core's schema itself, which begins by creating. */
static void lockSchema(BxStmts *p, int bInstalled, BxErr *pErr) {
  if (bInstalled) {
    bxLock(p, pErr);
  } else {
    bxExec(p, p->bx->aDomain[0].zSql, pErr);
  }
}

/* Returns the schema and the domains it now has: "main: core, payload". */
static void returnDomains(BxCall *p, BxStmts *pStmts) {
  sqlite3_stmt *pStmt = bxPrepare(pStmts,
      "SELECT group_concat(domain, ', ') FROM main.blackbox_domains", &p->err);
  if (bxRow(pStmt, &p->err)) {
    bxReturnText(p,
        sqlite3_mprintf("%s: %s", pStmts->zDb, sqlite3_column_text(pStmt, 0)));
  }
  sqlite3_finalize(pStmt);
}

void bxInstall(BxCall *p) {
  Bx *bx = p->bx;
  const char *zDb = "main", *zList = 0;
  BxStmts *pStmts;
  int i, bInstalled;
  if (bxArg(p, 0)) zDb = bxText(p->aArg[0], "schema", 1000, 0, &p->err);
  if (bxArg(p, 1)) zList = bxText(p->aArg[1], "domains", 1000, 0, &p->err);
  checkList(bx, zList, &p->err);
  pStmts = bxSchema(bx, zDb, &p->err);
  if (pStmts == 0) return;
  checkSchema(pStmts, &p->err);
  bxForgetHomes(bx);
  bInstalled = bxCarries(bx, pStmts->zDb, "core", &p->err);
  if (!allIntact(pStmts, zList, &p->err) && p->err.rc == SQLITE_OK) {
    if (p->pCtx != 0) bxSavepoint(bx, p->pDef->zName, &p->err);
    if (p->err.rc != SQLITE_OK) return;
    lockSchema(pStmts, bInstalled, &p->err);
    for (i = 0; i < bx->nDomain; i++) {
      if (isWanted(zList, bx->aDomain[i].zName)) {
        installDomain(pStmts, &bx->aDomain[i], &p->err);
      }
    }
    returnDomains(p, pStmts);
    if (p->pCtx != 0) bxRelease(bx, &p->err);
  } else {
    returnDomains(p, pStmts);
  }
}

void bxVersion(BxCall *p) {
  bxReturnText(p, sqlite3_mprintf("%s", BLACKBOX_VERSION));
}

void bxDebug(BxCall *p) {
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  int i;
  sqlite3_str_appendf(pOut, "blackbox %s\nSQLite %s (built with %s)\n",
      BLACKBOX_VERSION, sqlite3_libversion(), SQLITE_VERSION);
#ifdef __VERSION__
  sqlite3_str_appendf(pOut, "compiler %s\n", __VERSION__);
#endif
#ifdef SQLITE_CORE
  sqlite3_str_appendall(pOut, "linked statically\n");
#else
  sqlite3_str_appendall(pOut, "loaded at run time\n");
#endif
  sqlite3_str_appendall(pOut, "domains");
  for (i = 0; i < p->bx->nDomain; i++) {
    sqlite3_str_appendf(
        pOut, " %s/%d", p->bx->aDomain[i].zName, p->bx->aDomain[i].iVersion);
  }
  bxReturnText(p, sqlite3_str_finish(pOut));
}
