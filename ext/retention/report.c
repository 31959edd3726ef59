/*
** report.c: retention_report([pages]): where the bytes of the file are, and what
** would give some of them back.
**
** A row for each domain has the bytes of its data, from the counters of the
** domain or from an index, without reading the data; and what a sweep would remove
** now. Rows for the file have its pages, the free ones among them, which later
** writes use again but only VACUUM or incremental_vacuum gives back, and the -wal.
** With "pages", the table dbstat of SQLite also counts the pages of each domain;
** it reads the whole file, and not every SQLite has it.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#include <sys/stat.h>

typedef struct Report {
  BxStmts *p;
  RetentionRules rules;
  int bPages;
  char *zJson; /* the rows so far: arrays, with commas between them */
} Report;

/* A row: part, rows, bytes, due rows, due bytes, pages' bytes, and what gives
** them back. -1 is NULL. */
static void addPart(Report *p, const char *zPart, const i64 a[5],
    const char *zHow, BxErr *pErr) {
  static const char zRow[] =
      "SELECT json_array(?1, nullif(?2, -1), nullif(?3, -1), nullif(?4, -1),"
      " nullif(?5, -1), nullif(?6, -1), ?7)";
  char *zOne = bxAskText(
      p->p, zRow, pErr, "tiiiiit", zPart, a[0], a[1], a[2], a[3], a[4], zHow);
  char *zAll = zOne ? bxPrintf(pErr, "%s%s%s", p->zJson ? p->zJson : "",
                          p->zJson ? "," : "", zOne)
                    : 0;
  sqlite3_free(zOne);
  sqlite3_free(p->zJson);
  p->zJson = zAll;
}

/* Adds up what the sweep would remove for a domain. */
static void addDue(Report *p, const char *zDomain, i64 a[5], BxErr *pErr) {
  int i;
  for (i = 0; i < p->rules.n && pErr->rc == SQLITE_OK; i++) {
    const RetentionRule *pRule = &p->rules.a[i];
    sqlite3_stmt *pStmt;
    char *zSql;
    if (pRule->zProblem || strcmp(pRule->zDomain, zDomain) != 0) continue;
    zSql = bxPrintf(pErr, "SELECT count(*), sum(%s) FROM %s WHERE %s AND %s",
        pRule->zBytes, pRule->zFrom, pRule->zDue, pRule->zFree);
    pStmt = zSql ? bxPlain(p->p->bx->db, zSql, pErr) : 0;
    sqlite3_free(zSql);
    if (bxRow(pStmt, pErr)) {
      a[2] += sqlite3_column_int64(pStmt, 0);
      a[3] += sqlite3_column_int64(pStmt, 1);
    }
    sqlite3_finalize(pStmt);
  }
}

/* The bytes of the pages of a domain's tables and indexes; -1 if SQLite has no
** dbstat. ?1: the schema; ?2: the domain. A table that another program made may
** belong to a domain: the rules name it. */
static const char zDomainPages[] =
    "SELECT sum(s.pgsize) FROM dbstat(?1, 1) AS s"
    " JOIN main.sqlite_schema AS m ON m.name = s.name"
    " WHERE substr(m.tbl_name, 1, length(?2) + 1) = ?2 || '_'"
    " OR m.tbl_name = (SELECT max(\"table\") FROM main.retention_rules"
    "  WHERE domain = ?2 AND \"table\" = m.tbl_name)"
    " OR EXISTS (SELECT 1 FROM main.sqlite_schema AS v WHERE v.type = 'table'"
    "  AND v.sql LIKE 'CREATE VIRTUAL TABLE%USING%' || ?2 || '\\_%' ESCAPE '\\'"
    "  AND substr(m.tbl_name, 1, length(v.name) + 1) = v.name || '_')";

static i64 domainPages(Report *p, const char *zDomain, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 n;
  if (!p->bPages || pErr->rc != SQLITE_OK) return -1;
  n = bxAskOnce(p->p, zDomainPages, &err, "tt", p->p->zDb, zDomain);
  if (err.rc == SQLITE_ERROR) { /* no such table: dbstat */
    bxClear(&err);
    n = -1;
  }
  bxPass(pErr, &err);
  return n;
}

/* A row for a domain that counts its rows and bytes. */
static void addDomain(Report *p, const char *zDomain, BxErr *pErr) {
  const BxDomain *pDomain = bxDomainOf(p->p->bx, zDomain);
  i64 a[5] = {-1, -1, 0, 0, -1};
  sqlite3_stmt *pStmt;
  if (pDomain == 0 || pDomain->zSize == 0) return;
  pStmt = bxPrepare(p->p, pDomain->zSize, pErr);
  if (bxRow(pStmt, pErr)) {
    a[0] = sqlite3_column_int64(pStmt, 0);
    a[1] = sqlite3_column_int64(pStmt, 1);
  }
  sqlite3_finalize(pStmt);
  addDue(p, zDomain, a, pErr);
  a[4] = domainPages(p, zDomain, pErr);
  addPart(p, zDomain, a, "retention_sweep", pErr);
}

/* The bytes of the write-ahead log of the schema, 0 if there is none. */
static i64 walBytes(const Report *p) {
  const char *zFile = sqlite3_db_filename(p->p->bx->db, p->p->zDb);
  struct stat info;
  if (zFile == 0 || *zFile == 0) return 0;
  return stat(sqlite3_filename_wal(zFile), &info) == 0 ? (i64)info.st_size : 0;
}

static void addFile(Report *p, BxErr *pErr) {
  i64 nPage = bxNumber(p->p, "PRAGMA main.page_size", pErr);
  i64 a[5] = {-1, -1, -1, -1, -1};
  int bAuto = bxNumber(p->p, "PRAGMA main.auto_vacuum", pErr) != 0;
  a[4] = bxNumber(p->p, "PRAGMA main.page_count", pErr) * nPage;
  addPart(p, "file", a, 0, pErr);
  a[4] = bxNumber(p->p, "PRAGMA main.freelist_count", pErr) * nPage;
  addPart(p, "free", a, bAuto ? "PRAGMA incremental_vacuum" : "VACUUM", pErr);
  a[4] = walBytes(p);
  addPart(p, "wal", a, "PRAGMA wal_checkpoint(TRUNCATE)", pErr);
}

static void addAll(Report *p, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 a[5] = {-1, -1, 0, 0, -1};
  pStmt = bxPrepare(
      p->p, "SELECT domain FROM main.blackbox_domains ORDER BY 1", pErr);
  while (bxRow(pStmt, pErr)) {
    const char *zDomain = bxColumnText(pStmt, 0, pErr);
    if (zDomain != 0) addDomain(p, zDomain, pErr);
  }
  sqlite3_finalize(pStmt);
  addDue(p, "user", a, pErr);
  addPart(p, "user", a, "retention_sweep", pErr);
  addFile(p, pErr);
}

sqlite3_stmt *bxRetentionReport(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  Report report = {0, {0, 0, 0}, 0, 0};
  i64 iNow;
  char *zRows;
  report.p = bxHome(bx, "retention", pErr);
  if (report.p == 0) return 0;
  if (apArg[0]) report.bPages = (int)bxInt(apArg[0], "pages", 0, 1, pErr);
  iNow = bxRuleTime(report.p, apArg[1], 0, pErr);
  bxRetentionRead(&report.rules, report.p, iNow, pErr);
  addAll(&report, pErr);
  bxRetentionFree(&report.rules);
  zRows = bxPrintf(pErr, "[%s]", report.zJson ? report.zJson : "");
  sqlite3_free(report.zJson);
  if (zRows == 0) return 0;
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4,"
      " value ->> 5, value ->> 6 FROM json_each(?1)",
      zRows, pErr);
}
