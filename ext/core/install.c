/*
** install.c: blackbox_install([schema[, domains]]).
**
** The schema of each domain is the text of sql/<domain>.sql, which only creates
** what is missing. A domain that already equals that text (model.c) is not
** changed, so that a second call writes nothing. Everything else is repaired in
** one transaction: a guard that was dropped, a row that is missing, and the views,
** triggers and indexes of the virtual tables in that schema. A format that is newer
** than this module is refused, and so is a file of a build before 1.0.
*/
#include "core.h"
#include "model.h"
#include "vtable.h"
#include "log.h"
#include "install.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Whether the schema has all that the domain's SQL makes. */
static int isIntact(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxFound(
      p, pDomain->zSql, 1, BX_FOUND "SELECT min(state) > 2 FROM found", pErr);
  int bIntact = bxStep(pStmt, pErr) && sqlite3_column_int(pStmt, 0);
  sqlite3_finalize(pStmt);
  return bIntact && (pDomain->xIsWhole == 0 || pDomain->xIsWhole(p, pErr)) &&
         pErr->rc == SQLITE_OK;
}

/* Refuses an object of another program with a name that blackbox needs: where it has
** a view, it may be a table. With bDrop only what dropChanged() does not drop. */
static void refuseOthers(
    BxStmts *p, const BxDomain *pDomain, int bDrop, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxFound(p, pDomain->zSql, 0,
      BX_FOUND "SELECT coalesce((SELECT s.type FROM main.sqlite_schema AS s"
               "  WHERE s.name = f.name COLLATE NOCASE), type), name"
               " FROM found AS f WHERE state = 1 OR (state = 2"
               "  AND (type = 'table' OR NOT ?2)) LIMIT 1",
      pErr);
  bxBind(pStmt, pErr, "-i", (i64)bDrop);
  if (bxStep(pStmt, pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: schema %s already has the %s %s of another program; "
        "rename it",
        p->zDb, bxColumnText(pStmt, 0, pErr), bxColumnText(pStmt, 1, pErr));
  }
  sqlite3_finalize(pStmt);
}

/* Drops the objects that differ, so that the text creates them again. */
static void dropChanged(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxFound(p, pDomain->zSql, 0,
      BX_FOUND "SELECT group_concat(printf('DROP %s IF EXISTS \"%w\".\"%w\"',"
               " type, ?2, name), ';') FROM found"
               " WHERE state = 2 AND type <> 'table'",
      pErr);
  char *zSql = 0;
  bxBind(pStmt, pErr, "-t", p->zDb);
  if (bxStep(pStmt, pErr)) zSql = bxColumnCopy(pStmt, 0, pErr);
  sqlite3_finalize(pStmt);
  if (zSql != 0) bxExecSql(p->bx, zSql, pErr);
}

/* Runs the domain's SQL, and explains an error. */
static void runSql(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  BxErr why = {SQLITE_OK, 0};
  sqlite3_stmt *pHold;
  if (pErr->rc != SQLITE_OK) return;
  p->bx->nForeign++; /* rules that are kept are looked at again */
  pHold = bxGuardBegin(p->bx, pErr);
  bxExec(p, pDomain->zSql, pErr);
  bxGuardEnd(p->bx, pHold, pErr);
  if (pErr->rc != SQLITE_ERROR) return;
  refuseOthers(p, pDomain, 0, &why);
  if (why.rc == SQLITE_OK) return;
  bxErrClear(pErr);
  *pErr = why;
}

/* What of a domain an install makes anew. */
typedef struct Damage {
  int bGuard;    /* more than indexes, and rows of tables that users write */
  char *zDetail; /* JSON, NULL if nothing is damaged, or the domain is new */
} Damage;

/* Adds what an install makes right besides: rows with faults, settings out of their
** range, and what xMend makes. A table may be missing, so that it cannot be asked.
** Returns the tables, to sqlite3_free(). */
static char *faultyRows(
    BxStmts *p, const BxDomain *pDomain, int *pbFaults, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  char *zRows = 0;
  int bWhole = 1;
  if (pDomain->zFaults != 0) {
    zRows = bxQueryTextMade(p,
        bxPrintf(&err,
            "SELECT group_concat(DISTINCT object) FROM (%s)"
            " WHERE instr(problem, 'run blackbox_install()')",
            pDomain->zFaults),
        &err, "");
  }
  *pbFaults = zRows != 0;
  if (pDomain == p->bx->aDomain) bWhole = bxSettingsCheck(p, 0, &err);
  if (pDomain->xIsWhole != 0) bWhole = pDomain->xIsWhole(p, &err);
  if (zRows == 0 && !bWhole && err.rc == SQLITE_OK) {
    zRows = bxPrintf(&err, "%s",
        pDomain->zAdopted   ? pDomain->zAdopted
        : pDomain->xIsWhole ? pDomain->zName
                            : "blackbox_settings");
  }
  if (err.rc == SQLITE_ERROR) bxErrClear(&err);
  bxErrMove(pErr, &err);
  return zRows;
}

/* What of a domain that was there is missing or changed. Of a table at most ten rows
** are named. */
static Damage damageOf(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  static const char zDamage[] = BX_FOUND
      ", damaged AS (SELECT *, row_number() OVER (PARTITION BY name, type"
      "   ORDER BY at) AS no FROM found WHERE state < 3),"
      " told(at, changed, text) AS (SELECT at, state > 0, iif(no > 10,"
      "   'more rows of ' || name, rtrim(type || ' ' || name || ' ' || "
      "\"key\"))"
      "   FROM damaged WHERE no < 12"
      "  UNION ALL SELECT 1e9, 1, 'rows of ' || ?2 WHERE ?2 IS NOT NULL) "
      "SELECT json_object("
      "  'missing', coalesce(group_concat(text, ', ')"
      "    FILTER (WHERE NOT changed), ''),"
      "  'changed', coalesce(group_concat(text, ', ')"
      "    FILTER (WHERE changed), '')),"
      " ?3 OR EXISTS (SELECT 1 FROM damaged WHERE type <> 'index'"
      "  AND (type <> 'row' OR instr(name, '__'))), count(*) "
      "FROM (SELECT * FROM told ORDER BY at) WHERE (SELECT"
      " max(iif(type = 'row', name = 'blackbox_domains',"
      "  type NOT IN ('index', 'table'))) FROM found WHERE state > 2)";
  Damage damage = {0, 0};
  sqlite3_stmt *pStmt;
  char *zRows;
  int bFaults;
  if (pErr->rc != SQLITE_OK) return damage;
  zRows = faultyRows(p, pDomain, &bFaults, pErr);
  pStmt = bxFound(p, pDomain->zSql, 1, zDamage, pErr);
  bxBind(pStmt, pErr, "-ti", zRows, (i64)bFaults);
  if (bxStep(pStmt, pErr) && sqlite3_column_int(pStmt, 2) > 0) {
    damage.zDetail = bxColumnCopy(pStmt, 0, pErr);
    damage.bGuard = sqlite3_column_int(pStmt, 1);
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zRows);
  return damage;
}

/* Tells in the log what was damaged, and frees it. Where guards were, what they refuse
** could have been done: of such a repair blackbox_check() tells. */
static void noteDamage(
    BxStmts *p, const char *zName, Damage damage, BxErr *pErr) {
  static const char zTell[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail)"
      " VALUES(?1, ?2, 'schema of ' || ?3, ?4)";
  const BxDomain *pDomain = bxDomainOf(p->bx, zName);
  if (damage.zDetail != 0) {
    bxLogBegin(p, pErr);
    bxQueryIntOnce(p, zTell, pErr, "tttt", pDomain ? zName : "core",
        damage.bGuard ? "repair" : "restore", zName, damage.zDetail);
  }
  sqlite3_free(damage.zDetail);
}

/* bNew: the schema was empty, so that no name is in use. */
static void installDomain(
    BxStmts *p, const BxDomain *pDomain, int bNew, BxErr *pErr) {
  i64 iFormat = bxInstalledFormat(p, pDomain, pErr);
  int bThere = iFormat >= 0; /* 0: its row is lost */
  if (pErr->rc != SQLITE_OK) return;
  if (iFormat == BX_FORMAT && isIntact(p, pDomain, pErr)) return;
  if (pDomain->xAdopt != 0) pDomain->xAdopt(p, pErr);
  if (bThere || !bNew) refuseOthers(p, pDomain, bThere, pErr);
  if (bThere) dropChanged(p, pDomain, pErr);
  runSql(p, pDomain, pErr);
  if (pDomain->xMend != 0 && pErr->rc == SQLITE_OK) pDomain->xMend(p, pErr);
}

/* Writes the definitions of the domain. A value that is not in the range of its
** setting becomes the default: somebody has changed the definition, or ignored the
** CHECK. With it the SQL of the domain would fail. */
static void resetSettings(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  static const char zDefine[] = /* triggers follow the value */
      "UPDATE main.blackbox_settings SET \"default\" = ?2, range = ?3,"
      " meaning = ?4 WHERE name = ?1";
  static const char zReset[] =
      "UPDATE main.blackbox_settings SET \"default\" = ?2, range = ?3,"
      " meaning = ?4, value = ?2 WHERE name = ?1";
  sqlite3 *pModel;
  sqlite3_stmt *pRow;
  if (bxInstalledFormat(p, pDomain, pErr) < 0 || pErr->rc != SQLITE_OK) return;
  pModel = bxModel(p, pDomain->zSql, pErr);
  pRow = bxPrepareSql(pModel,
      "SELECT name, \"default\", range, meaning FROM blackbox_settings", pErr);
  bxExec(p, "UPDATE main.blackbox__probe SET hit = 2", pErr);
  while (bxStep(pRow, pErr)) {
    int i, rc = SQLITE_CONSTRAINT_CHECK;
    for (i = 0; i < 2 && rc == SQLITE_CONSTRAINT_CHECK; i++) {
      bxErrClear(pErr);
      bxQueryIntOnce(p, i == 0 ? zDefine : zReset, pErr, "tvtt",
          sqlite3_column_text(pRow, 0), sqlite3_column_value(pRow, 1),
          sqlite3_column_text(pRow, 2), sqlite3_column_text(pRow, 3));
      rc = pErr->rc;
    }
  }
  bxExec(p, "UPDATE main.blackbox__probe SET hit = 0", pErr);
  sqlite3_finalize(pRow);
  sqlite3_close(pModel);
}

/* Whether the rules of the virtual tables equal those that their modules make. With
** bMend they are repaired. A virtual table that has lost a table, or that a
** newer module made, is skipped; blackbox_check() reports it. */
static int vtabsIntact(BxStmts *p, int bMend, BxErr *pErr) {
  const BxModule *pModule;
  int bWhole = 1;
  for (pModule = p->bx->aModule; pModule->zName != 0; pModule++) {
    sqlite3_stmt *pStmt = bxVtabNames(p, pModule->zName, pErr);
    while (bxStep(pStmt, pErr)) {
      BxErr err = {SQLITE_OK, 0};
      const char *zName = bxColumnText(pStmt, 0, pErr);
      BxVtab *pVtab =
          zName ? bxVtabIn(p->bx, pModule->zName, p->zDb, zName, &err) : 0;
      int bStale = pVtab != 0 && bxShadowIsIncomplete(pVtab, &err);
      if (err.rc == SQLITE_ERROR || (err.rc & 0xff) == SQLITE_CORRUPT) {
        bxErrClear(&err);
      } else if (bStale) {
        Damage damage = {0, 0};
        bWhole = 0;
        if (bMend) damage.zDetail = bxShadowRepair(pVtab, &err);
        noteDamage(p, zName, damage, &err);
      }
      bxErrMove(pErr, &err);
    }
    sqlite3_finalize(pStmt);
  }
  return bWhole;
}

int bxDomainInList(const char *zList, const char *zDomain) {
  size_t n = strlen(zDomain);
  const char *z = zList;
  if (zList == 0 || strcmp(zList, "all") == 0) return 1;
  while (*z) {
    z += strspn(z, " ,");
    if (strcspn(z, " ,") == n && strncmp(z, zDomain, n) == 0) return 1;
    z += strcspn(z, " ,");
  }
  return 0;
}

/* Whether blackbox_install() concerns the domain: core always, and what the list
** names. Without a list those of the default, and what is installed: its row or
** its table is there, because either may have been lost. */
static int isWanted(
    BxStmts *p, const char *zList, const BxDomain *pDomain, BxErr *pErr) {
  static const char zKnown[] =
      "SELECT 1 FROM main.blackbox_domains WHERE domain = ?1";
  const BxDomain *pCore = p->bx->aDomain;
  if (pDomain == pCore) return 1;
  if (zList != 0) return bxDomainInList(zList, pDomain->zName);
  return pDomain->bDefault ||
         bxSchemaHasDomain(p->bx, p->zDb, pDomain->zName, pErr) ||
         (bxSchemaHasDomain(p->bx, p->zDb, pCore->zName, pErr) &&
             bxQueryIntOnce(p, zKnown, pErr, "t", pDomain->zName) != 0);
}

/* The names of all domains, with commas between them, to sqlite3_free(). */
static char *domainNames(Bx *bx, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(bx->db);
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    sqlite3_str_appendf(pOut, "%s%s", i > 0 ? ", " : "", bx->aDomain[i].zName);
  }
  return bxStrFinish(pOut, pErr);
}

/* Every word of the list must be a domain. (The proof is a part of core.) */
static void checkList(Bx *bx, const char *zList, BxErr *pErr) {
  const char *z = zList;
  char zWord[64];
  if (zList != 0 && strcmp(zList, "all") == 0) return;
  while (z != 0 && *(z += strspn(z, " ,")) != 0) {
    size_t n = strcspn(z, " ,");
    sqlite3_snprintf(sizeof(zWord), zWord, "%.*s", (int)n, z);
    if (bxDomainOf(bx, zWord) == 0 && strcmp(zWord, "proof") != 0) {
      char *zNames = domainNames(bx, pErr);
      bxFail(pErr, SQLITE_ERROR,
          "ValidationError: there is no domain %.*Q; name some of %s, with "
          "commas between them, or 'all'",
          (int)n, z, zNames);
      sqlite3_free(zNames);
    }
    z += n;
  }
}

/* Checks that the schema exists, is not temp, and stores text as UTF-8. */
static void checkSchema(BxStmts *p, BxErr *pErr) {
  if (sqlite3_stricmp(p->zDb, "temp") == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: temp cannot hold the tables of blackbox, because it "
        "ends with the connection; use main or an attached database");
  }
  if (sqlite3_db_readonly(p->bx->db, p->zDb) < 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: there is no schema %Q; ATTACH it first", p->zDb);
  }
  bxRequireUtf8(p, pErr);
}

/* 1 if every wanted domain is complete and has this format, and so has every
** virtual table. */
static int allIntact(BxStmts *p, const char *zList, BxErr *pErr) {
  Bx *bx = p->bx;
  int i;
  for (i = 0; i < bx->nDomain && pErr->rc == SQLITE_OK; i++) {
    const BxDomain *pDomain = &bx->aDomain[i];
    if (!isWanted(p, zList, pDomain, pErr)) continue;
    if (bxInstalledFormat(p, pDomain, pErr) != BX_FORMAT ||
        !isIntact(p, pDomain, pErr)) {
      return 0;
    }
  }
  return bxSettingsCheck(p, 0, pErr) && vtabsIntact(p, 0, pErr) &&
         pErr->rc == SQLITE_OK;
}

void bxReturnDomains(BxCall *p, BxStmts *pStmts) {
  char *z = bxQueryText(pStmts,
      "SELECT ?1 || ': ' || group_concat(domain, ', ')"
      " FROM main.blackbox_domains",
      &p->err, "t", pStmts->zDb);
  if (z != 0) bxReturnText(p, z);
}

/* Makes what is wanted and not there, or not as it should be. What is damaged is told
** before. */
static void makeDomains(
    BxStmts *pStmts, const char *zList, int bNew, BxErr *pErr) {
  Bx *bx = pStmts->bx;
  Damage damage = {0, 0};
  int i, bCarried;
  if (pErr->rc != SQLITE_OK) return;
  /* The write lock comes before anything is read: with a write that changes nothing or,
  ** where there is no table of core to write, with a PRAGMA. */
  bCarried = bxSchemaHasDomain(bx, pStmts->zDb, "core", pErr);
  if (bCarried) bxLock(pStmts, pErr);
  if (!bCarried) bxExec(pStmts, "PRAGMA main.incremental_vacuum(1)", pErr);
  if (!bNew) damage = damageOf(pStmts, bx->aDomain, pErr);
  if (!bCarried) {
    runSql(pStmts, bx->aDomain, pErr);
    refuseOthers(pStmts, bx->aDomain, 0, pErr);
  }
  if (pErr->rc == SQLITE_OK) installDomain(pStmts, bx->aDomain, bNew, pErr);
  noteDamage(pStmts, "core", damage, pErr);
  for (i = 1; i < bx->nDomain && !bNew; i++) {
    if (!isWanted(pStmts, zList, &bx->aDomain[i], pErr)) continue;
    noteDamage(pStmts, bx->aDomain[i].zName,
        damageOf(pStmts, &bx->aDomain[i], pErr), pErr);
  }
  /* With its trigger, an INSERT into blackbox_settings compiles what follows the
  ** settings of every domain. That fails while one of their tables is missing. So
  ** domains are made without the trigger, and core makes it again. */
  bxExec(pStmts, "DROP TRIGGER IF EXISTS main.blackbox_settings_insert", pErr);
  for (i = 1; i < bx->nDomain; i++) {
    if (isWanted(pStmts, zList, &bx->aDomain[i], pErr)) {
      resetSettings(pStmts, &bx->aDomain[i], pErr);
    }
  }
  for (i = 1; i < bx->nDomain; i++) {
    if (isWanted(pStmts, zList, &bx->aDomain[i], pErr)) {
      installDomain(pStmts, &bx->aDomain[i], bNew, pErr);
    }
  }
  runSql(pStmts, bx->aDomain, pErr);
}

/* (To take over a table needs ALTER TABLE. In xCreate that is not possible: SQLite then
** frees the table that is being created.) */
void bxInstallMissing(
    Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr) {
  const BxDomain *pDomain = bxDomainOf(bx, zDomain);
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pStmts;
  if (pErr->rc != SQLITE_OK) return;
  if (sqlite3_stricmp(zDb, "temp") == 0) { /* whichever schema it will use */
    zDb = bxDomainSchema(bx, zDomain, &err) != 0 ||
                  bxErrIs(&err, "AmbiguousSchemaError") ||
                  sqlite3_db_readonly(bx->db, "main")
              ? 0
              : "main";
    bxErrClear(&err);
  }
  if (zDb == 0) return;
  pStmts = bxSchema(bx, zDb, pErr);
  if (pStmts == 0 || bxInstalledFormat(pStmts, pDomain, pErr) >= 0) return;
  checkSchema(pStmts, pErr);
  if (pErr->rc == SQLITE_OK && pDomain->zAdopted != 0 &&
      bxTableExists(bx, zDb, pDomain->zAdopted)) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: schema %s has a table %s of another program; run "
        "SELECT blackbox_install(%Q, %Q), which takes it over, and then this "
        "statement again",
        zDb, pDomain->zAdopted, zDb, zDomain);
  }
  bxForgetDomainSchemas(bx);
  makeDomains(pStmts, zDomain, 0, pErr);
  bxLogProveAll(bx, pErr);
}

BxStmts *bxInstallArguments(BxCall *p, const char **pzList) {
  const char *zDb = "main";
  BxStmts *pStmts;
  *pzList = 0;
  if (bxArg(p, 0)) zDb = bxText(p->aArg[0], "schema", 1000, 0, &p->err);
  if (bxArg(p, 1)) *pzList = bxText(p->aArg[1], "domains", 1000, 0, &p->err);
  checkList(p->bx, *pzList, &p->err);
  pStmts = bxSchema(p->bx, zDb, &p->err);
  if (pStmts != 0) checkSchema(pStmts, &p->err);
  return pStmts;
}

void bxInstall(BxCall *p) {
  Bx *bx = p->bx;
  const char *zList;
  BxStmts *pStmts = bxInstallArguments(p, &zList);
  BxErr lock = {SQLITE_OK, 0};
  sqlite3_stmt *pHold;
  int rc, bNew = 0;
  if (pStmts == 0) return;
  bxForgetDomainSchemas(bx);
  /* Inside a transaction the lock comes first, because after a read SQLite would not
  ** wait for it. Only later it is known whether the lock is needed. */
  if (!sqlite3_get_autocommit(bx->db) &&
      sqlite3_db_readonly(bx->db, pStmts->zDb) == 0 &&
      bxSchemaHasDomain(bx, pStmts->zDb, "core", &p->err)) {
    bxLock(pStmts, &lock);
    rc = lock.rc & 0xff;
    if (rc != SQLITE_BUSY && rc != SQLITE_LOCKED && rc != SQLITE_READONLY) {
      bxErrMove(&p->err, &lock);
    }
  }
  if (sqlite3_get_autocommit(bx->db)) {
    bNew =
        bxQueryNumber(pStmts,
            "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema)", &p->err) == 0;
  }
  if (allIntact(pStmts, zList, &p->err) || p->err.rc != SQLITE_OK) {
    bxReturnDomains(p, pStmts);
    bxErrClear(&lock); /* the lock was not needed */
  } else if (lock.rc != SQLITE_OK) {
    p->err = lock;
  } else {
    /* In a savepoint of its own, unless it came as a row. */
    bxRefuseInTransaction(p);
    /* In a file that has no page yet, so that clean-ups can give pages back. */
    if (bNew) bxExec(pStmts, "PRAGMA main.auto_vacuum = INCREMENTAL", &p->err);
    if (p->pCtx != 0) bxSavepoint(bx, p->pDef->zName, &p->err);
    if (p->err.rc != SQLITE_OK) return;
    makeDomains(pStmts, zList, bNew, &p->err);
    if (p->err.rc == SQLITE_OK) {
      pHold = bxGuardBegin(bx, &p->err);
      vtabsIntact(pStmts, 1, &p->err);
      bxGuardEnd(bx, pHold, &p->err);
    }
    bxLogProveAll(bx, &p->err); /* of the pins of rows that were there */
    bxReturnDomains(p, pStmts); /* before the release, which may also fail */
    if (p->pCtx != 0) bxRelease(bx, &p->err);
  }
}

void bxUse(BxCall *p) {
  const char *zDb = bxText(p->aArg[0], "schema", 1000, 0, &p->err);
  char *zCopy;
  if (zDb == 0) return;
  bxRefuseOldFile(p->bx, zDb, &p->err);
  if (!bxSchemaHasDomain(p->bx, zDb, "core", &p->err)) {
    bxFail(&p->err, SQLITE_ERROR,
        "NotFoundError: schema %Q has no tables of blackbox; ATTACH it, and "
        "run SELECT blackbox_install(%Q)",
        zDb, zDb);
    return;
  }
  zCopy = bxPrintf(&p->err, "%s", zDb);
  if (zCopy == 0) return;
  sqlite3_free(p->bx->zUse);
  p->bx->zUse = zCopy;
  bxForgetDomainSchemas(p->bx);
  bxReturnText(p, sqlite3_mprintf("%s", zCopy));
}

void bxVersion(BxCall *p) {
  bxReturnText(p, sqlite3_mprintf("%s", BLACKBOX_VERSION));
}
