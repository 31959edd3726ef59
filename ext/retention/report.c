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

/* The bytes of the pages of a domain's tables and indexes: of schema %Q and domain %Q. A
** table that another program made may belong to a domain: the rules name it. */
#define DOMAIN_PAGES                                                           \
  "(SELECT sum(s.pgsize) FROM (SELECT %Q AS d) CROSS JOIN dbstat(%Q, 1) AS s"  \
  " JOIN \"%w\".sqlite_schema AS m ON m.name = s.name"                         \
  " WHERE substr(m.tbl_name, 1, length(d) + 1) = d || '_'"                     \
  " OR m.tbl_name = (SELECT max(\"table\") FROM \"%w\".retention_rules"        \
  "  WHERE domain = d AND \"table\" = m.tbl_name)"                             \
  " OR EXISTS (SELECT 1 FROM \"%w\".sqlite_schema AS v WHERE v.type = 'table'" \
  "  AND v.sql LIKE 'CREATE VIRTUAL TABLE%%USING%%' || d || '\\_%%' ESCAPE "   \
  "'\\'"                                                                       \
  "  AND substr(m.tbl_name, 1, length(v.name) + 1) = v.name || '_'))"

/* A row of the report for a domain, as a part of the query. */
static void addDomain(sqlite3_str *pSql, const BxStmts *p,
    const RetentionRules *pRules, const char *zDomain, const char *zSize,
    int bPages) {
  const char *z = p->zDb;
  int i;
  sqlite3_str_appendf(pSql,
      " UNION ALL SELECT %Q, s.rows, s.bytes, count(d.b), coalesce(sum(d.b), "
      "0),",
      zDomain);
  if (bPages) {
    sqlite3_str_appendf(pSql, DOMAIN_PAGES, zDomain, z, z, z, z);
  } else {
    sqlite3_str_appendall(pSql, "NULL");
  }
  sqlite3_str_appendf(pSql,
      ", 'retention_sweep' FROM (%s) AS s LEFT JOIN (SELECT 0 AS b WHERE 0",
      zSize);
  for (i = 0; i < pRules->n; i++) {
    char **az = pRules->a[i].az;
    if (az[RULE_PROBLEM] == 0 && strcmp(az[RULE_DOMAIN], zDomain) == 0) {
      sqlite3_str_appendf(
          pSql, " UNION ALL SELECT bytes FROM (%s) WHERE free", az[RULE_ROWS]);
    }
  }
  sqlite3_str_appendall(pSql, ") AS d GROUP BY 1");
}

/* The bytes of the write-ahead log of the schema, 0 if there is none. */
static i64 walBytes(const BxStmts *p) {
  const char *zFile = sqlite3_db_filename(p->bx->db, p->zDb);
  struct stat info;
  if (zFile == 0 || *zFile == 0) return 0;
  return stat(sqlite3_filename_wal(zFile), &info) == 0 ? (i64)info.st_size : 0;
}

sqlite3_stmt *bxRetentionReport(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *p = bxHome(bx, "retention", pErr);
  sqlite3_str *pSql;
  sqlite3_stmt *pRow, *pStmt = 0;
  RetentionRules rules;
  i64 nPage;
  char *zSql;
  int bPages = 0;
  if (p == 0) return 0;
  if (apArg[0]) bPages = (int)bxInt(apArg[0], "pages", 0, 1, pErr);
  bxRetentionRead(&rules, p, bxRuleTime(p, apArg[1], 0, pErr), pErr);
  bPages = bPages &&
           bxNumber(p,
               "SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'",
               pErr);
  pSql = sqlite3_str_new(bx->db);
  sqlite3_str_appendall(
      pSql, "SELECT 0 AS part, 0 AS rows, 0 AS bytes, 0, 0, 0, 0 WHERE 0");
  pRow =
      bxPrepare(p, "SELECT domain FROM main.blackbox_domains ORDER BY 1", pErr);
  while (bxRow(pRow, pErr)) {
    const char *zDomain = bxColumnText(pRow, 0, pErr);
    const BxDomain *pDomain = zDomain ? bxDomainOf(bx, zDomain) : 0;
    char *zSize = 0;
    if (pDomain == 0 || pDomain->zSize == 0) continue;
    zSize = bxGot(bxExpand(pDomain->zSize, p->zDb, 0), pErr);
    if (zSize) addDomain(pSql, p, &rules, zDomain, zSize, bPages);
    sqlite3_free(zSize);
  }
  sqlite3_finalize(pRow);
  addDomain(pSql, p, &rules, "user", "SELECT NULL AS rows, NULL AS bytes", 0);
  bxRetentionFree(&rules);
  nPage = bxNumber(p, "PRAGMA main.page_size", pErr);
  sqlite3_str_appendf(pSql,
      " UNION ALL VALUES('file', NULL, NULL, NULL, NULL, %lld, NULL),"
      " ('free', NULL, NULL, NULL, NULL, %lld, %Q),"
      " ('wal', NULL, NULL, NULL, NULL, %lld,"
      " 'PRAGMA wal_checkpoint(TRUNCATE)')",
      nPage * bxNumber(p, "PRAGMA main.page_count", pErr),
      nPage * bxNumber(p, "PRAGMA main.freelist_count", pErr),
      bxNumber(p, "PRAGMA main.auto_vacuum", pErr) != 0
          ? "PRAGMA incremental_vacuum"
          : "VACUUM",
      walBytes(p));
  zSql = bxFinish(pSql, pErr);
  if (zSql != 0) pStmt = bxPlain(bx->db, zSql, pErr);
  sqlite3_free(zSql);
  return pStmt;
}
