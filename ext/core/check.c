/*
** check.c: blackbox_check(), one row for each thing that is not as it should
** be, none when all is well.
**
** Looked at, in every attached schema: that each installed domain stands as
** sql/ makes it (a guard that was dropped or changed, a setting's definition
** that is gone: model.c); the view <domain>_check, in which each domain lists
** its own contradictions; what else the domain knows to look at; triggers and
** unique indexes of others on the tables that are guarded; and every virtual
** table of ours, through the check that its module brings. A check that fails is itself a problem, and the
** others go on.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

void bxProblem(BxProblems *p, const char *zObject, const char *zFormat, ...) {
  sqlite3_str *pOut;
  char *zProblem;
  va_list ap;
  sqlite3_stmt *pStmt = 0;
  if (p->err.rc != SQLITE_OK) return;
  va_start(ap, zFormat);
  zProblem = sqlite3_vmprintf(zFormat, ap);
  va_end(ap);
  if (zProblem == 0) bxFail(&p->err, SQLITE_NOMEM, "out of memory");
  bxFailDb(&p->err, p->db,
      sqlite3_prepare_v2(
          p->db, "SELECT json_array(?1, ?2, ?3)", -1, &pStmt, 0));
  bxBind(pStmt, &p->err, "ttt", p->zDb, zObject, zProblem);
  if (bxRow(pStmt, &p->err)) {
    pOut = sqlite3_str_new(0);
    sqlite3_str_appendf(pOut, "%s%s%s", p->zJson ? p->zJson : "",
        p->zJson ? "," : "", bxColumnText(pStmt, 0, &p->err));
    sqlite3_free(p->zJson);
    p->zJson = sqlite3_str_finish(pOut);
    if (p->zJson == 0) bxFail(&p->err, SQLITE_NOMEM, "out of memory");
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zProblem);
}

void bxUnchecked(BxProblems *pOut, const char *zObject, BxErr *pErr) {
  int rc = pErr->rc & 0xff;
  if (rc == SQLITE_OK) return;
  if (rc == SQLITE_NOMEM || rc == SQLITE_INTERRUPT || pErr->zMsg == 0) {
    bxPass(&pOut->err, pErr);
  } else {
    bxProblem(pOut, zObject, "cannot be checked: %s", pErr->zMsg);
  }
  bxClear(pErr);
}

static void differs(BxStmts *p, void *pArg, const BxDifference *pDifference) {
  const char *zKey = pDifference->zKey;
  (void)p;
  bxProblem((BxProblems *)pArg, pDifference->zName,
      pDifference->bThere
          ? "%s%s%s is not as blackbox_install() makes it; run it again"
          : "%s%s%s is missing; run blackbox_install()",
      pDifference->zType, *zKey ? " " : "", zKey);
}

static void compare(BxStmts *p, const BxDomain *pDomain, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  bxDifferences(p, pDomain, differs, pOut, &err);
  bxUnchecked(pOut, pDomain->zName, &err);
}

static void tellForeign(void *pArg, const BxForeign *pForeign) {
  bxProblem((BxProblems *)pArg, pForeign->zTable,
      "%s %s is not that of blackbox, and can keep the guards of this table "
      "from their work; drop it",
      pForeign->zType, pForeign->zName);
}

static void checkForeigners(
    BxStmts *p, const BxDomain *pDomain, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  bxForeigners(p, pDomain, tellForeign, pOut, &err);
  bxUnchecked(pOut, pDomain->zName, &err);
}

/* The rows of the view <domain>_check. */
static void checkView(BxStmts *p, const BxDomain *pDomain, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = 0;
  char *zSql =
      sqlite3_mprintf("SELECT object, problem FROM main.%s_check LIMIT %d",
          pDomain->zName, BX_MAX_PROBLEMS);
  if (zSql == 0) bxFail(&err, SQLITE_NOMEM, "out of memory");
  pStmt = bxPrepare(p, zSql, &err);
  sqlite3_free(zSql);
  while (bxRow(pStmt, &err)) {
    const char *zObject = bxColumnText(pStmt, 0, &err);
    const char *zProblem = bxColumnText(pStmt, 1, &err);
    if (err.rc == SQLITE_OK) bxProblem(pOut, zObject, "%s", zProblem);
  }
  sqlite3_finalize(pStmt);
  bxUnchecked(pOut, pDomain->zName, &err);
}

/* Whether the schema has the domain, or what is left of one. */
static int hasTraces(BxStmts *p, const BxDomain *pDomain, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  int bTraces;
  if (bxCarries(p->bx, p->zDb, pDomain->zName, &pOut->err)) return 1;
  pStmt = bxPrepare(p,
      "SELECT 1 FROM main.sqlite_schema WHERE name = ?1 OR name = ?2 || "
      "'_check'",
      &err);
  bxBind(pStmt, &err, "tt", pDomain->zTable, pDomain->zName);
  bTraces = bxRow(pStmt, &err);
  sqlite3_finalize(pStmt);
  bxUnchecked(pOut, pDomain->zName, &err);
  return bTraces;
}

static void checkDomains(BxStmts *p, BxProblems *pOut) {
  int i;
  for (i = 0; i < p->bx->nDomain && pOut->err.rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    if (!hasTraces(p, pDomain, pOut)) continue;
    compare(p, pDomain, pOut);
    checkView(p, pDomain, pOut);
    checkForeigners(p, pDomain, pOut);
    if (pDomain->xCheck != 0) pDomain->xCheck(p, pOut);
  }
}

/* One virtual table, if it is ours. Connecting it may fail: a problem too. */
static void checkVtab(BxStmts *p, const char *zName, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  BxVtab *pVtab;
  int i;
  char *zSql = sqlite3_mprintf("SELECT 1 FROM \"%w\".\"%w\"", p->zDb, zName);
  if (zSql == 0) bxFail(&err, SQLITE_NOMEM, "out of memory");
  pStmt = 0;
  if (err.rc == SQLITE_OK) {
    bxFailDb(
        &err, p->bx->db, sqlite3_prepare_v2(p->bx->db, zSql, -1, &pStmt, 0));
  }
  sqlite3_free(zSql);
  sqlite3_finalize(pStmt);
  bxUnchecked(pOut, zName, &err);
  for (pVtab = p->bx->pVtabs; pVtab != 0; pVtab = pVtab->pNext) {
    if (sqlite3_stricmp(pVtab->stmts.zDb, p->zDb) != 0 ||
        sqlite3_stricmp(pVtab->stmts.zTable, zName) != 0) {
      continue;
    }
    for (i = 0; p->bx->aCheck[i].zModule != 0; i++) {
      if (strcmp(p->bx->aCheck[i].zModule, pVtab->zModule) == 0) {
        p->bx->aCheck[i].xCheck(pVtab, pOut);
      }
    }
    return;
  }
}

static void checkVtabs(BxStmts *p, BxProblems *pOut) {
  sqlite3_stmt *pStmt;
  int i;
  if (pOut->err.rc != SQLITE_OK) return;
  for (i = 0; p->bx->aCheck[i].zModule != 0; i++) {
    pStmt = bxVtabNames(p, p->bx->aCheck[i].zModule, &pOut->err);
    while (bxRow(pStmt, &pOut->err)) {
      const char *zName = bxColumnText(pStmt, 0, &pOut->err);
      if (zName != 0) checkVtab(p, zName, pOut);
    }
    sqlite3_finalize(pStmt);
  }
}

sqlite3_stmt *bxCheck(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxProblems found = {bx->db, 0, 0, {SQLITE_OK, 0}};
  sqlite3_stmt *pDbs = 0;
  BxErr err = {SQLITE_OK, 0};
  char *zJson;
  if (apArg[0] != 0) {
    const char *zOnly = bxText(apArg[0], "schema", 1000, 0, pErr);
    if (zOnly != 0 && sqlite3_stricmp(zOnly, "temp") != 0 &&
        sqlite3_db_readonly(bx->db, zOnly) < 0) {
      bxFail(pErr, SQLITE_ERROR, "NotFoundError: no schema named %Q", zOnly);
    }
    if (pErr->rc != SQLITE_OK) return 0;
  }
  bxFailDb(&err, bx->db,
      sqlite3_prepare_v2(bx->db,
          "SELECT name FROM pragma_database_list "
          "WHERE ?1 IS NULL OR name = ?1 COLLATE NOCASE",
          -1, &pDbs, 0));
  bxBind(pDbs, &err, "v", apArg[0]);
  while (found.err.rc == SQLITE_OK && bxRow(pDbs, &err)) {
    BxStmts *p = bxSchema(bx, bxColumnText(pDbs, 0, &err), &err);
    if (p == 0) break;
    found.zDb = p->zDb;
    checkDomains(p, &found);
    checkVtabs(p, &found);
  }
  sqlite3_finalize(pDbs);
  *pErr = err.rc != SQLITE_OK ? err : found.err;
  if (err.rc != SQLITE_OK) bxClear(&found.err);
  zJson = sqlite3_mprintf("[%s]", found.zJson ? found.zJson : "");
  sqlite3_free(found.zJson);
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)", zJson,
      pErr);
}
