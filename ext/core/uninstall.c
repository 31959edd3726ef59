/*
** uninstall.c: blackbox_uninstall([schema[, domains[, 'force']]]).
**
** It removes what the domain's SQL makes (model.c lists it), the domain's
** settings and its virtual tables. Core is removed if it is named, or if no
** domain is named and no other domain remains. A table whose text differs from
** that of the SQL was created or altered by another program; it stays, with its
** rows.
**
** Without 'force' nothing is removed while something would be lost: rows, a
** virtual table, or a trigger or an index that somebody has created on one of
** the tables. The error lists all of these. With 'force' each table that had
** rows leaves a receipt, if core stays. Everything is in one savepoint.
*/
#include "core.h"
#include "model.h"
#include "vtable.h"
#include "install.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

/* One call, and the current domain. */
typedef struct Leaving {
  BxStmts *p;
  const BxDomain *pDomain;
  const char *zList; /* the domains that were named; NULL: all */
  int bCore;         /* core is removed too */
  char *zOurs;       /* JSON array of the names of everything that is removed */
  sqlite3_str *pText; /* collected: names, losses, tables that stay */
  BxErr *pErr;
} Leaving;

/* The collected text, to sqlite3_free(); NULL if it is empty. */
static char *gathered(Leaving *p) {
  char *z = bxStrFinish(p->pText, p->pErr);
  p->pText = sqlite3_str_new(p->p->bx->db);
  return z;
}

/* Adds an element to a list. */
static void gather(Leaving *p, const char *zFormat, ...) {
  va_list ap;
  if (sqlite3_str_length(p->pText) > 0) sqlite3_str_appendall(p->pText, ", ");
  va_start(ap, zFormat);
  sqlite3_str_vappendf(p->pText, zFormat, ap);
  va_end(ap);
}

/* Drops an object. Its name may come from the user, so this is not a
** template. */
static void drop(
    BxStmts *p, const char *zType, const char *zName, BxErr *pErr) {
  bxExecSql(p->bx,
      bxPrintf(pErr, "DROP %s \"%w\".\"%w\"", zType, p->zDb, zName), pErr);
}

/* Calls xEach for every installed domain that is to be removed, dependent ones
** first. */
static void eachDomain(Leaving *p, void (*xEach)(Leaving *)) {
  const Bx *bx = p->p->bx;
  int i;
  for (i = bx->nDomain - 1; i >= 0 && p->pErr->rc == SQLITE_OK; i--) {
    p->pDomain = &bx->aDomain[i];
    if (i == 0 ? !p->bCore : !bxDomainInList(p->zList, p->pDomain->zName))
      continue;
    if (bxInstalledFormat(p->p, p->pDomain, p->pErr) < 0) continue;
    if (p->pErr->rc == SQLITE_OK) xEach(p);
  }
}

/* A query of what the domain's SQL makes. */
static sqlite3_stmt *foundOf(const Leaving *p, const char *zQuery) {
  return bxFound(p->p, p->pDomain->zSql, 0, zQuery, p->pErr);
}

/*--------------------------------------------- what goes, what is lost ----*/

/* Checks whether the domain may be removed, and collects what is removed. */
static void nameDomain(Leaving *p) {
  sqlite3_stmt *pStmt;
  if (p->pDomain->xLeave != 0) p->pDomain->xLeave(p->p, p->pErr);
  pStmt =
      foundOf(p, BX_FOUND "SELECT json_quote(name) FROM found UNION ALL"
                          " SELECT '\"' || replace(?2, ',', '\",\"') || '\"'"
                          " WHERE ?2 IS NOT NULL");
  bxBind(pStmt, p->pErr, "-t", p->pDomain->zOptional);
  while (bxStep(pStmt, p->pErr)) gather(p, "%s", sqlite3_column_text(pStmt, 0));
  sqlite3_finalize(pStmt);
}

static i64 countRows(BxStmts *p, const char *zTable, BxErr *pErr) {
  return bxQueryIntMade(
      p, bxPrintf(pErr, "SELECT count(*) FROM main.\"%w\"", zTable), pErr, "");
}

/* SQL: whether a table of found has data of the user. An install creates again what the
** SQL puts into its tables. In the tables of core, only the receipts are data; the
** rest is settings and what the domains have registered. ?2 is the domain, ?3 its
** BxDomain.zDerived. */
#define HAS_DATA                                                               \
  "iif(?2 = 'core', name = 'blackbox__log',"                                   \
  " NOT filled AND NOT instr(coalesce(?3, ''), ',' || name || ','))"

/* Collects the rows of the tables, and what others have on them. */
static void weighTables(Leaving *p) {
  sqlite3_stmt *pStmt = foundOf(p,
      BX_FOUND "SELECT name, NULL, NULL FROM found WHERE type = 'table'"
               "  AND state = 4 AND " HAS_DATA
               " UNION ALL SELECT f.name, s.type, s.name FROM found AS f"
               "  CROSS JOIN main.sqlite_schema AS s ON s.tbl_name = f.name"
               "   COLLATE NOCASE WHERE f.type = 'table' AND f.state = 4"
               "  AND s.sql IS NOT NULL AND s.type IN ('trigger', 'index')"
               "  AND lower(s.name) NOT IN (SELECT value FROM json_each(?4))"
               "  AND s.name NOT GLOB ?2 || '_made_*'");
  bxBind(pStmt, p->pErr, "-ttt", p->pDomain->zName, p->pDomain->zDerived,
      p->zOurs);
  while (bxStep(pStmt, p->pErr)) {
    const char *zName = bxColumnText(pStmt, 0, p->pErr);
    const char *zType = bxColumnText(pStmt, 1, p->pErr);
    i64 n = zType == 0 && zName != 0 ? countRows(p->p, zName, p->pErr) : 0;
    if (n > 0) gather(p, "%s (rows: %lld)", zName, n);
    if (zType == 0) continue;
    gather(p, "%s %s on %s", zType, bxColumnText(pStmt, 2, p->pErr), zName);
  }
  sqlite3_finalize(pStmt);
}

static void dropVtab(Leaving *p, const char *zName) {
  char *zPrefix =
      bxPrintf(p->pErr, "virtual table %s cannot be dropped: ", zName);
  drop(p->p, "TABLE", zName, p->pErr);
  if ((p->pErr->rc & 0xff) == SQLITE_CONSTRAINT) { /* SQLite says no more */
    bxErrReword(
        p->pErr, sqlite3_mprintf(
                     "PinnedError: virtual table %s cannot be dropped, "
                     "because rows of it are pinned or held, and nothing "
                     "was removed; UPDATE \"%w\" SET pinned = 0 unpins them, "
                     "and retention_release() ends a hold",
                     zName, zName));
  }
  bxErrPrefix(p->pErr, zPrefix ? zPrefix : "");
  sqlite3_free(zPrefix);
}

/* Collects the virtual tables whose module begins with the domain's name or, with
** bDrop, drops one after the other, while no query is open. */
static void eachVtab(Leaving *p, int bDrop) {
  const BxModule *pModule = p->p->bx->aModule;
  size_t n = strlen(p->pDomain->zName);
  while (pModule->zName != 0) {
    char *zDrop = 0;
    if (strncmp(pModule->zName, p->pDomain->zName, n) == 0) {
      sqlite3_stmt *pStmt = bxVtabNames(p->p, pModule->zName, p->pErr);
      while (zDrop == 0 && bxStep(pStmt, p->pErr)) {
        const char *zName = bxColumnText(pStmt, 0, p->pErr);
        if (zName == 0 || bxVtabIn(p->p->bx, pModule->zName, p->p->zDb, zName,
                              p->pErr) == 0) {
          continue;
        }
        if (bDrop) zDrop = bxPrintf(p->pErr, "%s", zName);
        if (!bDrop) gather(p, "virtual table %s", zName);
      }
      sqlite3_finalize(pStmt);
    }
    if (zDrop == 0) pModule++;
    if (zDrop != 0) dropVtab(p, zDrop);
    if (zDrop != 0 && p->pErr->rc != SQLITE_OK) pModule++;
    sqlite3_free(zDrop);
  }
}

static void weighDomain(Leaving *p) {
  weighTables(p);
  eachVtab(p, 0);
}

/* Not even by force is removed what is pinned or held. */
static void refusePinned(Leaving *p) {
  static const char *const azCount[] = {"SELECT count(*) FROM %s AS t WHERE %s",
      "SELECT count(*) FROM %s AS t WHERE EXISTS (SELECT 1"
      " FROM main.retention__holds AS f WHERE %s)"};
  static const char *const azRefuse[] = {
      "PinnedError: schema %s has %lld pinned rows of %s, and nothing was "
      "removed; unpin them first",
      "HeldError: a hold in schema %s keeps %lld rows of %s, and nothing was "
      "removed; SELECT * FROM retention_holds lists the holds, and "
      "retention_release() ends one"};
  const BxRecords *pPart = p->pDomain->aRecords;
  int i;
  for (; pPart != 0 && pPart->zTable != 0; pPart++) {
    for (i = 0; i < 2; i++) {
      const char *zWhich = i == 0 ? pPart->zPinned : pPart->zHolds;
      i64 n;
      if (zWhich == 0 || (i == 1 && strncmp(pPart->zTable, "main.", 5) != 0)) {
        continue;
      }
      n = bxQueryIntMade(p->p,
          bxPrintf(p->pErr, azCount[i], pPart->zTable, zWhich), p->pErr, "");
      if (n > 0) {
        bxFail(p->pErr, SQLITE_CONSTRAINT, azRefuse[i], p->p->zDb, n,
            pPart->zName);
      }
    }
  }
}

/*-------------------------------------------------------------- removal ----*/

/* Drops a table. Its bytes are those of the pages that are freed. */
static void dropTable(Leaving *p, const char *zName) {
  static const char zFree[] = "PRAGMA main.freelist_count";
  i64 nRow = !p->bCore ? countRows(p->p, zName, p->pErr) : 0;
  i64 nFree = nRow > 0 ? bxQueryNumber(p->p, zFree, p->pErr) : 0;
  drop(p->p, "TABLE", zName, p->pErr);
  if (nRow == 0 || p->pErr->rc != SQLITE_OK) return;
  nFree = (bxQueryNumber(p->p, zFree, p->pErr) - nFree) *
          bxQueryNumber(p->p, "PRAGMA main.page_size", p->pErr);
  bxQueryIntOnce(p->p,
      "INSERT INTO main.blackbox__log(at, domain, detail, rows, bytes) "
      "VALUES(?1, ?2, 'uninstall ' || ?3, ?4, ?5)",
      p->pErr, "ittii", bxNow(), p->pDomain->zName, zName, nRow, nFree);
}

/* Drops what the domain has created outside its SQL, which are triggers for tables that
** it found, and what was asked for; then what the SQL makes, and each table that has data
** by itself. Indexes of another program are kept by its table; ours go with the table.
** (Nothing can be dropped while a query is open.) */
static void dropObjects(Leaving *p) {
  sqlite3_stmt *pStmt = foundOf(p, BX_FOUND
      "SELECT group_concat(printf('DROP %s \"%w\".\"%w\"', type, ?4,"
      "   name), ';') FILTER (WHERE NOT data),"
      "  group_concat(name) FILTER (WHERE data) FROM (SELECT type, name,"
      "   0 AS data, (type = 'table') - 2 AS at"
      "   FROM main.sqlite_schema WHERE instr(',' || ?5 || ',',"
      "    ',' || name || ',') OR (type = 'trigger'"
      "     AND name GLOB ?2 || '_made_*')"
      "  UNION ALL SELECT type, name, type = 'table' AND " HAS_DATA
      "   , at FROM found WHERE name NOT GLOB 'idx_*'"
      "   AND iif(type = 'table', state = 4, state > 1) ORDER BY 4)");
  char *zSql = 0, *zTables = 0, *z;
  bxBind(pStmt, p->pErr, "-tttt", p->pDomain->zName, p->pDomain->zDerived,
      p->p->zDb, p->pDomain->zOptional);
  if (bxStep(pStmt, p->pErr)) {
    zSql = bxColumnCopy(pStmt, 0, p->pErr);
    zTables = bxColumnCopy(pStmt, 1, p->pErr);
  }
  sqlite3_finalize(pStmt);
  if (zSql != 0) bxExecSql(p->p->bx, zSql, p->pErr);
  for (z = zTables; z != 0 && *z != 0;) {
    size_t n = strcspn(z, ",");
    char *zNext = z + n + (z[n] == ',');
    z[n] = 0;
    dropTable(p, z);
    z = zNext;
  }
  sqlite3_free(zTables);
}

static void removeDomain(Leaving *p) {
  const BxDomain *pDomain = p->pDomain;
  eachVtab(p, 1);
  dropObjects(p);
  if (pDomain == p->p->bx->aDomain) return;
  /* (While hit is not 2, DELETE gives a setting its default.) */
  bxExecMade(p->p,
      bxPrintf(p->pErr,
          "DELETE FROM main.blackbox_domains WHERE domain = %Q;"
          "UPDATE main.blackbox__probe SET hit = 2;"
          "DELETE FROM main.blackbox_settings WHERE name GLOB '%q.*';"
          "UPDATE main.blackbox__probe SET hit = 0;"
          "DELETE FROM main.retention_rules WHERE domain = %Q;"
          "DELETE FROM main.blackbox_places WHERE %s",
          pDomain->zName, pDomain->zName, pDomain->zName,
          pDomain->zPlaces ? pDomain->zPlaces : "0"),
      p->pErr);
}

/*------------------------------------------------------------- function ----*/

/* Refuses to remove core without a domain that stays, and a domain that is not
** complete. */
static void checkLeaving(Leaving *p) {
  sqlite3_stmt *pStmt = bxPrepare(p->p,
      "SELECT domain FROM main.blackbox_domains WHERE domain <> 'core'"
      " ORDER BY domain DESC",
      p->pErr);
  p->bCore = bxDomainInList(p->zList, "core");
  while (bxStep(pStmt, p->pErr)) {
    const char *zDomain = bxColumnText(pStmt, 0, p->pErr);
    if (zDomain == 0) continue;
    if (!bxDomainInList(p->zList, zDomain)) {
      if (!p->bCore) continue;
      bxFail(p->pErr, SQLITE_ERROR,
          "ValidationError: core cannot be removed from schema %s, because %s "
          "needs it; name %s too",
          p->p->zDb, zDomain, zDomain);
    } else if (!bxSchemaHasDomain(p->p->bx, p->p->zDb, zDomain, p->pErr)) {
      bxFail(p->pErr, SQLITE_ERROR,
          "CorruptedDataError: schema %s has lost tables of %s; run "
          "blackbox_install() first",
          p->p->zDb, zDomain);
    }
  }
  sqlite3_finalize(pStmt);
}

/* Checks the arguments, and removes. */
static void uninstall(Leaving *p, int bForce) {
  char *zNames;
  checkLeaving(p);
  eachDomain(p, nameDomain);
  zNames = gathered(p);
  p->zOurs = bxPrintf(p->pErr, "[%s]", zNames ? zNames : "");
  sqlite3_free(zNames);
  if (!bForce) eachDomain(p, weighDomain);
  zNames = gathered(p);
  if (zNames != 0) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "NotEmptyError: blackbox_uninstall would remove from schema %s: %s; "
        "save what you need, and then pass 'force' as third argument",
        p->p->zDb, zNames);
  }
  sqlite3_free(zNames);
  eachDomain(p, refusePinned);
  eachDomain(p, removeDomain);
}

void bxUninstall(BxCall *p) {
  Leaving leaving = {0, 0, 0, 0, 0, 0, 0};
  const char *zForce =
      bxArg(p, 2) ? bxText(p->aArg[2], "force", 100, 0, &p->err) : 0;
  if (zForce != 0 && strcmp(zForce, "force") != 0) {
    bxFail(&p->err, SQLITE_ERROR,
        "ValidationError: the third argument of blackbox_uninstall() must be "
        "'force', got %Q; omit it, or pass 'force'",
        zForce);
  }
  leaving.pErr = &p->err;
  leaving.p = bxInstallArguments(p, &leaving.zList);
  if (p->pCtx == 0) {
    bxFail(&p->err, SQLITE_ERROR,
        "MisuseError: tables cannot be dropped inside a statement that writes; "
        "call it as SELECT blackbox_uninstall()");
  }
  if (leaving.p == 0 || p->err.rc != SQLITE_OK) return;
  bxRefuseOldFile(p->bx, leaving.p->zDb, &p->err);
  if (!bxSchemaHasDomain(p->bx, leaving.p->zDb, "core", &p->err)) {
    bxFail(&p->err, SQLITE_ERROR,
        "NotFoundError: schema %s has no tables of blackbox; name the schema "
        "that has them",
        leaving.p->zDb);
    return;
  }
  bxLock(leaving.p, &p->err);
  leaving.pText = sqlite3_str_new(p->bx->db);
  uninstall(&leaving, zForce != 0);
  sqlite3_free(sqlite3_str_finish(leaving.pText));
  sqlite3_free(leaving.zOurs);
  bxForgetDomainSchemas(p->bx);
  if (p->err.rc != SQLITE_OK) return;
  if (leaving.bCore) {
    bxReturnText(p, sqlite3_mprintf("%s: ", leaving.p->zDb));
  } else {
    bxReturnDomains(p, leaving.p);
  }
}
