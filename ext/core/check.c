/*
** check.c: blackbox_check(): one row for each problem, no rows if all is well.
**
** In every attached schema it examines the following. Each installed domain
** must have the schema that sql/ makes (model.c): no guard may be missing or
** changed, and no definition of a setting may be missing. A query or a view of
** each domain lists the contradictions in its data. Tables with guards must not
** have triggers or unique indexes of others. A domain may add checks in C. Nobody
** may have a table blackbox_call. The tables of a virtual table are examined in
** the same way. A check that fails is itself a problem, and the other checks
** continue.
*/
#include "core.h"
#include "model.h"
#include "vtable.h"
#include "install.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

void bxProblem(BxProblems *p, const char *zObject, const char *zFormat, ...) {
  const char *azPart[3] = {p->zDb, zObject, 0};
  const char *zTold = sqlite3_str_value(p->pJson);
  sqlite3_str *pOne;
  char *zProblem, *zOne;
  va_list ap;
  int i;
  if (p->err.rc != SQLITE_OK) return;
  assert(p->zDb != 0 && zObject != 0);
  va_start(ap, zFormat);
  azPart[2] = zProblem = bxCheckMem(sqlite3_vmprintf(zFormat, ap), &p->err);
  va_end(ap);
  pOne = sqlite3_str_new(0);
  for (i = 0; zProblem != 0 && i < 3; i++) {
    sqlite3_str_appendall(pOne, i > 0 ? "," : "[");
    bxJsonAppend(pOne, azPart[i], (int)strlen(azPart[i]));
  }
  zOne = bxStrFinish(pOne, &p->err);
  /* (Each domain misses a row of core.) */
  if (zOne != 0 && (zTold == 0 || strstr(zTold, zOne) == 0)) {
    sqlite3_str_appendf(p->pJson, "%s%s", p->bAny ? "]," : "[", zOne);
    p->bAny = 1;
  }
  sqlite3_free(zOne);
  sqlite3_free(zProblem);
}

void bxProblemError(BxProblems *pOut, const char *zObject, BxErr *pErr) {
  int rc = pErr->rc & 0xff;
  assert(pOut->err.rc == SQLITE_OK || pErr != &pOut->err);
  if (rc == SQLITE_OK) return;
  if ((rc == SQLITE_ERROR || rc == SQLITE_CORRUPT) && pErr->zMsg != 0) {
    bxProblem(pOut, zObject, "cannot be checked: %s", pErr->zMsg);
  } else {
    bxErrMove(&pOut->err, pErr);
  }
  bxErrClear(pErr);
}

int bxSettingsCheck(BxStmts *p, BxProblems *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt =
      bxPrepare(p, "PRAGMA main.quick_check('blackbox_settings')", pErr);
  int bRange = 1;
  while (bxStep(pStmt, pErr)) {
    const char *z = bxColumnText(pStmt, 0, pErr);
    if (z == 0 || strcmp(z, "ok") == 0) continue;
    if (strstr(z, "CHECK constraint") != 0) bRange = 0;
    if (pOut != 0) bxProblem(pOut, "blackbox_settings", "%s", z);
  }
  sqlite3_finalize(pStmt);
  return bRange;
}

void bxProblemRows(BxProblems *p, sqlite3_stmt *pOwned, const char *zName,
    int bPart, BxErr *pErr) {
  i64 n = 0;
  while (bxStep(pOwned, pErr)) {
    assert(sqlite3_data_count(pOwned) >= 2); /* an object, and what is wrong */
    const char *z = bxColumnText(pOwned, 0, pErr);
    char *zOwned = bPart ? bxPrintf(pErr, "%s_%s", zName, z) : 0;
    const char *zProblem = bxColumnText(pOwned, 1, pErr);
    if (pErr->rc == SQLITE_OK && n++ < BX_MAX_PROBLEMS) {
      bxProblem(p, bPart ? zOwned : z, "%s", zProblem);
    }
    sqlite3_free(zOwned);
  }
  sqlite3_finalize(pOwned);
  bxProblemError(p, zName, pErr);
  if (n > BX_MAX_PROBLEMS) {
    bxProblem(
        p, zName, "%lld more problems are not listed", n - BX_MAX_PROBLEMS);
  }
}

/* What differs from the SQL of an owner: its objects and rows, with their states, and
** what is missing without them. And the triggers and unique indexes of somebody else
** (state -1) on its tables or, if it is a domain, on those that it guards (?3), except
** the triggers that the domain ?4 makes for tables that it found, and the indexes of
** the table ?5. ?2 is the schema. */
static const char zOwnerDiffers[] = BX_FOUND
    "SELECT type, name, \"key\", state, lost, '' FROM found WHERE state < 3 "
    "UNION ALL SELECT type, name, '', -1, 0, tbl_name FROM ("
    "  SELECT type, name, tbl_name FROM main.sqlite_schema"
    "   WHERE type = 'trigger'"
    "  UNION ALL SELECT 'temp trigger', name, tbl_name FROM sqlite_temp_schema"
    "   WHERE type = 'trigger' AND lower(?2) <> 'temp'"
    "    AND tbl_name COLLATE NOCASE NOT IN (SELECT name FROM"
    "     sqlite_temp_schema WHERE type IN ('table', 'view'))"
    "  UNION ALL SELECT 'unique index', name, tbl_name"
    "   FROM main.sqlite_schema AS s WHERE type = 'index' AND EXISTS (SELECT 1"
    "     FROM pragma_index_list(s.tbl_name, ?2) AS l WHERE l.name = s.name"
    "     AND l.\"unique\" AND l.origin = 'c')) AS g "
    "WHERE (?3 IS NULL OR instr(?3, ',' || lower(tbl_name) || ','))"
    "  AND EXISTS (SELECT 1 FROM found AS f WHERE f.type IN ('table', 'view')"
    "   AND f.name = g.tbl_name COLLATE NOCASE)"
    "  AND NOT (type = 'trigger' AND name GLOB ?4 || '_made_*') IS TRUE"
    "  AND NOT (type = 'unique index' AND tbl_name = ?5 COLLATE NOCASE) IS TRUE"
    "  AND (type = 'temp trigger' OR name NOT IN (SELECT name FROM found))";

/* Whether the trigger belongs to another domain of the schema, which compares it
** itself. */
static int isOfDomain(BxStmts *p, const char *zName, BxErr *pErr) {
  int i;
  for (i = 0; i < p->bx->nDomain; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    if (bxModelMakes(pDomain->zSql, zName) &&
        bxSchemaHasDomain(p->bx, p->zDb, pDomain->zName, pErr)) {
      return 1;
    }
  }
  return 0;
}

/* One row of zOwnerDiffers. Only the data of a virtual table itself could restore what it
** has lost. */
static void differs(BxStmts *p, sqlite3_stmt *pRow, BxProblems *pOut) {
  const char *zType = bxColumnText(pRow, 0, &pOut->err);
  const char *zName = bxColumnText(pRow, 1, &pOut->err);
  const char *zKey = bxColumnText(pRow, 2, &pOut->err);
  const char *zTable = bxColumnText(pRow, 5, &pOut->err);
  int eState = sqlite3_column_int(pRow, 3);
  if (pOut->err.rc != SQLITE_OK) return;
  assert(eState < 3 && (eState >= 0 || *zTable != 0));
  if (eState < 0) {
    if (strcmp(zType, "trigger") == 0 && isOfDomain(p, zName, &pOut->err)) {
      return;
    }
    bxProblem(pOut, zTable,
        "%s %s does not belong to blackbox, and can bypass the guards of this "
        "table; drop it",
        zType, zName);
  } else if (sqlite3_column_int(pRow, 4)) {
    bxProblem(pOut, zName,
        "table %s; save the rows that can be read, DROP TABLE %s, and create "
        "it again",
        eState ? "was changed" : "is missing", p->zTable);
  } else if (p->zTable != 0 && sqlite3_stricmp(p->zDb, "temp") == 0) {
    bxProblem(pOut, zName,
        "%s %s; use ALTER TABLE %s RENAME, which creates it again", zType,
        eState ? "was changed" : "is missing", p->zTable);
  } else {
    bxProblem(pOut, zName,
        eState ? "%s%s%s differs from what blackbox_install() makes; run "
                 "blackbox_install()"
               : "%s%s%s is missing; run blackbox_install()",
        zType, *zKey ? " " : "", zKey);
  }
}

/* The checks for every owner of objects. pDomain is NULL for a virtual
** table. */
static void checkOwner(BxStmts *p, const char *zName, const char *zSql,
    const BxDomain *pDomain, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = bxFound(p, zSql, 1, zOwnerDiffers, &err);
  if (pDomain == 0) {
    bxBind(pStmt, &err, "-t", p->zDb);
  } else {
    bxBind(pStmt, &err, "-tttt", p->zDb,
        pDomain->zGuarded ? pDomain->zGuarded : "", pDomain->zName,
        pDomain->zAdopted);
  }
  while (bxStep(pStmt, &err)) differs(p, pStmt, pOut);
  sqlite3_finalize(pStmt);
  bxProblemError(pOut, zName, &err);
  if (pDomain == 0) return;
  /* The rows of its query or of its view <domain>__check, if there is one: if it is
  ** missing, the comparison tells that. */
  if (pDomain->zFaults != 0) {
    bxProblemRows(pOut, bxPrepare(p, pDomain->zFaults, &err), zName, 0, &err);
  } else if (bxQueryIntOnce(p,
                 "SELECT 1 FROM main.sqlite_schema WHERE name = ?1 ||"
                 " '__check' COLLATE NOCASE",
                 &err, "t", zName)) {
    char *z =
        bxPrintf(&err, "SELECT object, problem FROM main.%s__check", zName);
    bxProblemRows(pOut, z ? bxPrepare(p, z, &err) : 0, zName, 0, &err);
    sqlite3_free(z);
  }
  bxProblemError(pOut, zName, &err);
}

/* The commands are rows of main.blackbox_call. A table or view of that name hides it
** from who does not write main, and in main from everybody. */
static void checkCall(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  char *zType = bxQueryText(p,
      "SELECT type FROM main.sqlite_schema WHERE type IN ('table', 'view')"
      " AND name = 'blackbox_call' COLLATE NOCASE",
      &err, "");
  if (zType != 0) {
    bxProblem(pOut, "blackbox_call",
        "this %s is not that of blackbox, and gets the commands that were "
        "meant for it; rename it, or drop it",
        zType);
  }
  sqlite3_free(zType);
  bxProblemError(pOut, "blackbox_call", &err);
}

/* Checks the domains of which the schema has something. */
static void checkDomains(BxStmts *p, BxProblems *pOut) {
  static const char zTraces[] =
      "SELECT 1 FROM main.sqlite_schema WHERE name = ?1 OR name = ?2 || "
      "'__check' OR (instr(?3, ',' || name || ',') AND name IS NOT ?4)";
  static const char zListed[] =
      "SELECT 1 FROM main.blackbox_domains WHERE domain = ?1";
  BxErr err = {SQLITE_OK, 0};
  int i;
  bxRefuseOldFile(p->bx, p->zDb, &err);
  if (err.rc != SQLITE_OK) {
    bxProblemError(pOut, p->bx->aDomain[0].zTable, &err);
    return;
  }
  for (i = 0; i < p->bx->nDomain && pOut->err.rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    int bTraces =
        bxSchemaHasDomain(p->bx, p->zDb, pDomain->zName, &pOut->err) ||
        bxQueryIntOnce(p, zTraces, &err, "tttt", pDomain->zTable,
            pDomain->zName, pDomain->zGuarded, pDomain->zAdopted) ||
        (bxSchemaHasDomain(p->bx, p->zDb, "core", &pOut->err) &&
            bxQueryIntOnce(p, zListed, &err, "t", pDomain->zName));
    bxProblemError(pOut, pDomain->zName, &err);
    if (!bTraces) continue;
    bxInstalledFormat(p, pDomain, &err);
    if (bxErrIs(
            &err, "VersionError")) { /* a newer module knows what is right */
      bxProblemError(pOut, pDomain->zName, &err);
      continue;
    }
    if ((err.rc & 0xff) == SQLITE_ERROR || (err.rc & 0xff) == SQLITE_CORRUPT) {
      bxErrClear(&err); /* the comparison tells it */
    }
    bxErrMove(&pOut->err, &err);
    checkOwner(p, pDomain->zName, pDomain->zSql, pDomain, pOut);
    if (pDomain->xCheck != 0) pDomain->xCheck(p, pOut);
  }
}

/* Checks the virtual tables. If connecting one fails, that is also a problem. */
static void checkVtabs(BxStmts *p, const BxModule *pModule, BxProblems *pOut) {
  sqlite3_stmt *pStmt = bxVtabNames(p, pModule->zName, &pOut->err);
  while (bxStep(pStmt, &pOut->err)) {
    BxErr err = {SQLITE_OK, 0};
    const char *zName = bxColumnText(pStmt, 0, &pOut->err);
    BxVtab *pVtab = 0;
    if (zName == 0) break;
    sqlite3_finalize(bxPrepareOwned(p->bx->db,
        bxPrintf(&err, "SELECT 1 FROM \"%w\".\"%w\"", p->zDb, zName), &err));
    if (err.rc == SQLITE_OK) {
      pVtab = bxVtabIn(p->bx, pModule->zName, p->zDb, zName, &err);
    }
    if (pVtab != 0) pModule->xKnown(pVtab, &err);
    if (pVtab != 0 && err.rc == SQLITE_OK) {
      checkOwner(&pVtab->stmts, pVtab->stmts.zTable, pModule->zSql, 0, pOut);
      if (pModule->xCheck != 0) pModule->xCheck(pVtab, pOut);
    }
    bxProblemError(pOut, zName, &err);
  }
  sqlite3_finalize(pStmt);
}

sqlite3_stmt *bxCheck(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxProblems found = {0, 0, 0, {SQLITE_OK, 0}};
  BxErr hidden = {SQLITE_OK, 0}; /* without blackbox_call nothing else works */
  const BxModule *pModule;
  sqlite3_stmt *pDbs;
  assert(bx->nDomain > 0 && bx->aModule != 0);
  if (apArg[0] != 0) {
    const char *zOnly = bxText(apArg[0], "schema", 1000, 0, pErr);
    if (zOnly != 0 && sqlite3_stricmp(zOnly, "temp") != 0 &&
        sqlite3_db_readonly(bx->db, zOnly) < 0) {
      bxFail(pErr, SQLITE_ERROR,
          "NotFoundError: there is no schema %Q; ATTACH it first", zOnly);
    }
    if (pErr->rc != SQLITE_OK) return 0;
  }
  pDbs = bxPrepareSql(bx->db,
      "SELECT name FROM pragma_database_list "
      "WHERE ?1 IS NULL OR name = ?1 COLLATE NOCASE",
      pErr);
  bxBind(pDbs, pErr, "v", apArg[0]);
  found.pJson = sqlite3_str_new(bx->db);
  bx->nCheck++;
  bxAnchor(bx, &hidden);
  while (found.err.rc == SQLITE_OK && bxStep(pDbs, pErr)) {
    BxStmts *p = bxSchema(bx, bxColumnText(pDbs, 0, pErr), pErr);
    if (p == 0) break;
    found.zDb = p->zDb;
    checkCall(p, &found);
    if (hidden.rc == SQLITE_MISUSE) continue;
    checkDomains(p, &found);
    for (pModule = bx->aModule; pModule->zName != 0; pModule++) {
      checkVtabs(p, pModule, &found);
    }
  }
  sqlite3_finalize(pDbs);
  bx->nCheck--;
  sqlite3_close(bx->pModel);
  bx->pModel = 0;
  if (hidden.rc != SQLITE_MISUSE) bxErrMove(&found.err, &hidden);
  bxErrClear(&hidden);
  bxErrMove(pErr, &found.err);
  sqlite3_str_appendall(found.pJson, found.bAny ? "]]" : "[]");
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)",
      bxStrFinish(found.pJson, pErr), pErr);
}
