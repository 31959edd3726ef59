/*
** schema.c: which schema of a connection has which domain, in which format, and
** its settings.
**
** The schema of a domain is looked for once: in main and the attached
** databases, never in temp. A temp table of the same name does not count.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#include <sys/stat.h>

int bxSchemaHasDomain(
    Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr) {
  const BxDomain *pDomain = bxDomainOf(bx, zDomain);
  return pDomain != 0 &&
         bxCanPrepare(bx,
             bxPrintf(pErr,
                 "SELECT d.format FROM \"%w\".blackbox_domains AS d,"
                 " \"%w\".%s",
                 zDb, zDb, pDomain->zTable),
             pErr);
}

char *bxSessionConversations(BxStmts *p, const char *zSession, BxErr *pErr) {
  const BxDomain *pDomain = p->bx->aDomain;
  assert(zSession != 0 || pErr->rc != SQLITE_OK);
  while (pDomain->zSession == 0) pDomain++;
  if (!bxSchemaHasDomain(p->bx, p->zDb, pDomain->zName, pErr)) {
    return bxPrintf(pErr, "[]");
  }
  return bxQueryTextMade(p,
      bxPrintf(
          pErr, "SELECT json_group_array(id) FROM (%s)", pDomain->zSession),
      pErr, "t", zSession);
}

void bxRefuseOldTable(Bx *bx, const char *zDb, const char *zTable,
    const char *zColumn, BxErr *pErr) {
  int rc;
  if (pErr->rc != SQLITE_OK) return;
  rc = sqlite3_table_column_metadata(
      bx->db, zDb, zTable, zColumn, 0, 0, 0, 0, 0);
  if (rc == SQLITE_OK) {
    bxFail(pErr, SQLITE_ERROR,
        "VersionError: schema %s was made by a build of blackbox before 1.0, "
        "as its table %s shows; export it with that build, and import it into "
        "a new file",
        zDb, zTable);
  } else if (rc != SQLITE_ERROR) { /* no such column */
    bxFailDb(pErr, bx->db, rc);
  }
}

void bxRefuseOldFile(Bx *bx, const char *zDb, BxErr *pErr) {
  bxRefuseOldTable(bx, zDb, bx->aDomain[0].zTable, "version", pErr);
}

i64 bxInstalledFormat(BxStmts *p, const BxDomain *pDomain, BxErr *pErr) {
  i64 iFormat;
  assert(pDomain != 0);
  bxRefuseOldFile(p->bx, p->zDb, pErr);
  if (!bxSchemaHasDomain(p->bx, p->zDb, pDomain->zName, pErr)) return -1;
  iFormat = bxQueryIntOnce(p,
      "SELECT format FROM main.blackbox_domains WHERE domain = ?1", pErr, "t",
      pDomain->zName);
  if (iFormat > BX_FORMAT) {
    bxFail(pErr, SQLITE_ERROR,
        "VersionError: schema %s has format %lld of %s, but this module "
        "supports up to %d; load a newer blackbox",
        p->zDb, iFormat, pDomain->zName, BX_FORMAT);
  }
  return iFormat;
}

void bxRequireKnownFormat(Bx *bx, BxErr *pErr) {
  int i, bLater = 0, bRead;
  if (!bx->bNewHome || (pErr->rc != SQLITE_OK && pErr->rc != SQLITE_ERROR)) {
    return;
  }
  for (i = 0; i < bx->nDomain; i++) {
    const char *zHome = bx->aSlot[i].zHome;
    BxErr err = {SQLITE_OK, 0};
    BxStmts *p;
    if (zHome == 0) continue;
    bRead = sqlite3_txn_state(bx->db, zHome) != SQLITE_TXN_NONE;
    if (!bRead && !sqlite3_get_autocommit(bx->db)) {
      bLater = 1;
      continue;
    }
    p = bxSchema(bx, zHome, &err);
    if (p != 0) bxInstalledFormat(p, &bx->aDomain[i], &err);
    if (bxErrIs(&err, "VersionError")) {
      bxErrClear(pErr);                         /* it explains that error */
    } else if (!bRead && err.rc != SQLITE_OK) { /* another file is locked */
      bLater = 1;
      bxErrClear(&err);
    }
    bxErrMove(pErr, &err);
  }
  bx->bNewHome = bLater;
}

/* It uses the pragma itself, because the table pragma_database_list would read main. */
BxStmts *bxDomainSchema(Bx *bx, const char *zDomain, BxErr *pErr) {
  BxDomainData *pSlot = bxDomainData(bx, zDomain);
  BxErr earlier = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  char *zHome = 0, *zOther = 0;
  assert(bx->nDomain > 0 && strcmp(bx->aDomain[0].zName, "core") == 0);
  if (pErr->rc != SQLITE_OK) return 0;
  if (pSlot->zHome != 0 && sqlite3_db_readonly(bx->db, pSlot->zHome) < 0) {
    bxForgetDomainSchemas(bx); /* the schema was detached */
  }
  if (pSlot->zHome != 0) return bxSchema(bx, pSlot->zHome, pErr);
  pStmt = bxPrepareSql(bx->db, "PRAGMA database_list", pErr);
  while (bxStep(pStmt, pErr)) {
    const char *zDb = bxColumnText(pStmt, 1, pErr);
    int bUsed = zDb && bx->zUse && sqlite3_stricmp(bx->zUse, zDb) == 0;
    if (zDb == 0 || strcmp(zDb, "temp") == 0) continue;
    if (!bxSchemaHasDomain(bx, zDb, zDomain, pErr)) {
      bxRefuseOldFile(bx, zDb, &earlier);
      continue;
    }
    if (bUsed || zHome == 0) {
      sqlite3_free(zHome);
      zHome = bxPrintf(pErr, "%s", zDb);
    } else if (zOther == 0) {
      zOther = bxPrintf(pErr, "%s", zDb);
    }
    if (bUsed) {
      sqlite3_free(zOther);
      zOther = 0;
      break;
    }
  }
  sqlite3_finalize(pStmt);
  if (zHome == 0) bxErrMove(pErr, &earlier);
  bxErrClear(&earlier);
  if (zOther != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "AmbiguousSchemaError: both %s and %s have the tables of %s; choose "
        "one with SELECT blackbox_use('%s')",
        zHome, zOther, zDomain, zHome);
  } else if (zHome == 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotInstalledError: Database not initialized: no schema has the "
        "tables of %s; SELECT blackbox_install('main', %Q) installs them",
        zDomain, zDomain);
  }
  sqlite3_free(zOther);
  if (pErr->rc != SQLITE_OK) {
    sqlite3_free(zHome);
    return 0;
  }
  pSlot->zHome = zHome;
  bx->bNewHome = 1;
  return bxSchema(bx, zHome, pErr);
}

/* The number that a pragma returns, and how often it was prepared anew. */
static i64 versionOf(BxStmts *p, const char *zPragma, BxErr *pErr) {
  sqlite3_stmt *pRow = bxStmt(p, zPragma, pErr);
  i64 i = bxStep(pRow, pErr) ? sqlite3_column_int64(pRow, 0) : 0;
  bxReset(pRow, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  return i +
         ((i64)sqlite3_stmt_status(pRow, SQLITE_STMTSTATUS_REPREPARE, 0) << 32);
}

i64 bxDataVersion(BxStmts *p, BxErr *pErr) {
  static const char zData[] = "PRAGMA main.data_version";
  return versionOf(p, zData, pErr);
}

i64 bxOthersVersion(BxStmts *p, BxErr *pErr) {
  unsigned n = 0;
  i64 i = bxDataVersion(p, pErr); /* now the pager knows of other connections */
  sqlite3_file_control(p->bx->db, p->zDb, SQLITE_FCNTL_DATA_VERSION, &n);
  return (i64)(n - (unsigned)p->bx->nCommit) + (i >> 32 << 32);
}

i64 bxSchemaVersion(BxStmts *p, BxErr *pErr) {
  static const char zVersion[] = "PRAGMA main.schema_version";
  return versionOf(p, zVersion, pErr);
}

void bxRequireUtf8(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, "PRAGMA main.encoding", pErr);
  if (bxStep(pStmt, pErr)) {
    const char *z = bxColumnText(pStmt, 0, pErr);
    if (z == 0 || strcmp(z, "UTF-8") != 0) {
      bxFail(pErr, SQLITE_ERROR,
          "EncodingError: schema %s stores text as UTF-16; blackbox needs a "
          "UTF-8 database; copy the data into one",
          p->zDb);
    }
  }
  sqlite3_finalize(pStmt);
}

double bxSettingReal(BxStmts *p, const char *zName, BxErr *pErr) {
  static const char zSql[] =
      "SELECT value FROM main.blackbox_settings WHERE name = ?1";
  sqlite3_stmt *pStmt;
  double rVal = 0.0;
  assert(strchr(zName, '.') != 0);
  if (pErr->rc != SQLITE_OK) return 0; /* and p may be NULL */
  pStmt = bxStmt(p, zSql, pErr);
  bxBind(pStmt, pErr, "t", zName);
  if (bxStep(pStmt, pErr)) {
    rVal = sqlite3_column_double(pStmt, 0);
  } else {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: the row for %s in blackbox_settings is "
        "missing; run blackbox_install() in schema %s",
        zName, p->zDb);
  }
  bxReset(pStmt, pErr);
  return rVal;
}

/* (No setting is so large that a double would not have it exactly.) */
i64 bxSettingInt(BxStmts *p, const char *zName, BxErr *pErr) {
  assert(zName[0] != 0);
  return (i64)bxSettingReal(p, zName, pErr);
}

/*---------------------------------------------------------------- clock ----*/

/*
** The clock of the machine may be wrong. If it is far ahead, rules would remove
** what is not old. So a file remembers the newest time that it has seen
** (retention__clock in sql/core.sql), and a clock that is too far ahead of that
** time stops all rules until somebody confirms it, or a day has passed. A clock that is behind it
** removes nothing early, and the newest time seen stays. A time that is given as
** an argument is the decision of the caller: it is neither checked nor
** remembered.
*/

/* SQL: milliseconds. */
#define HOUR "3600000"
#define DAY "86400000"
#define JUMP "604800000" /* seven days: so far the clock may jump */
#define ISO(ms) "strftime('%Y-%m-%dT%H:%M:%SZ', " ms " / 1000.0, 'unixepoch')"
/* clang-format off */
static const char zClockNow[] =
    "SELECT clock <= seen + " JUMP ", " ISO("clock") ", " ISO("seen") ","
    " (clock - seen) / " DAY ", clock FROM main.retention__clock,"
    " (SELECT " BX_CLOCK " AS clock)";
/* clang-format on */

static const char zClockTick[] =
    "UPDATE main.retention__clock SET (seen, due, was) = ("
    "SELECT max(seen, unixepoch() * 1000), " HOUR ","
    " iif(due > " JUMP " + " DAY ", seen, was)"
    " WHERE unixepoch() * 1000 - seen - due <= min(due * 23, " JUMP ")"
    " UNION ALL SELECT seen, unixepoch() * 1000 - seen + " DAY ", was)"
    " WHERE one = 1"
    " AND unixepoch() * 1000 - seen NOT BETWEEN due - " DAY " AND due";
static const char zClockTrusted[] =
    "INSERT INTO main.blackbox__log(at, domain, kind, subject, oldest, newest)"
    " SELECT seen, 'core', 'clock', 'trusted', was, seen"
    " FROM main.retention__clock WHERE was";
static const char zClockTold[] =
    "UPDATE main.retention__clock SET was = NULL WHERE was";

void bxClockTick(BxStmts *p, BxErr *pErr) {
  bxStmtExec(p, zClockTick, pErr, "");
}

i64 bxRuleTime(BxStmts *p, sqlite3_value *pNow, int bWrite, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 iNow = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  if (pNow != 0 && sqlite3_value_type(pNow) != SQLITE_NULL) {
    return bxTime(pNow, "now", pErr);
  }
  if (bWrite) {
    bxClockTick(p, pErr);
    bxStmtExec(p, zClockTrusted, pErr, "");
    bxStmtExec(p, zClockTold, pErr, "");
  }
  pStmt = bxStmt(p, zClockNow, pErr);
  if (!bxStep(pStmt, pErr)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: the row of retention__clock is missing; run "
        "blackbox_install()");
  } else if (!sqlite3_column_int(pStmt, 0)) {
    bxFail(pErr, SQLITE_ERROR,
        "ClockError: the clock says %s, which is %lld days after %s, the "
        "newest time that this file has seen; a jump of more than 7 days stops "
        "all rules; if the clock is right, SELECT retention_confirm_clock()",
        bxColumnText(pStmt, 1, pErr), sqlite3_column_int64(pStmt, 3),
        bxColumnText(pStmt, 2, pErr));
  } else {
    iNow = sqlite3_column_int64(pStmt, 4);
  }
  bxReset(pStmt, pErr);
  return iNow;
}

i64 bxTrustedTime(BxStmts *p, int bWrite, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 iNow = pErr->rc == SQLITE_OK ? bxRuleTime(p, 0, bWrite, &err) : 0;
  if (bxErrIs(&err, "ClockError")) bxErrClear(&err);
  bxErrMove(pErr, &err);
  return iNow;
}

/* (LIKE is quicker than lower().) */
int bxOthersRefuse(
    BxStmts *p, const char *zRule, const char *zTable, BxErr *pErr) {
  static const char zSql[] =
      "SELECT EXISTS (SELECT 1 FROM (SELECT substr(?1, 1, instr(?1, '.') - 1)"
      "  || '%' AS d) CROSS JOIN main.sqlite_schema NOT INDEXED"
      " WHERE iif(type = 'trigger', (tbl_name LIKE d OR tbl_name LIKE ?2)"
      "  AND name NOT LIKE d AND sql LIKE '%delete%', type = 'table'"
      "  AND (sql LIKE '%references%' || d"
      "   OR sql LIKE '%references%' || ?2 || '%')))";
  size_t n = strcspn(zRule, ".");
  i64 iSchema = bxSchemaVersion(p, pErr);
  BxDomainData *pSlot;
  const BxDomain *pDomain;
  if (pErr->rc != SQLITE_OK) return 0;
  pSlot = p->bx->aSlot;
  pDomain = p->bx->aDomain;
  for (; strncmp(pDomain->zName, zRule, n) != 0; pDomain++) pSlot++;
  if (pSlot->pAsked != p || pSlot->iSchema != iSchema) {
    pSlot->bRefuses = bxQueryInt(p, zSql, pErr, "tt", zRule, zTable) != 0;
    pSlot->pAsked = pErr->rc == SQLITE_OK ? p : 0;
    pSlot->iSchema = iSchema;
  }
  return pSlot->bRefuses;
}

i64 bxWalBytes(Bx *bx, const char *zDb) {
  const char *zFile = sqlite3_db_filename(bx->db, zDb);
  struct stat info;
  if (zFile == 0 || *zFile == 0) return 0;
  return stat(sqlite3_filename_wal(zFile), &info) == 0 ? (i64)info.st_size : 0;
}
