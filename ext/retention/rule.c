/*
** rule.c: reads the rows of retention_rules, and makes SQL of them. The plan, the report
** and the sweep use the same SQL, so that they always agree.
**
** A rule of a domain is in its descriptor (BxDue), or names its due view. A rule of the
** user names a table, its unique key, and the column with the time of a row. Names are always
** quoted. A rule that cannot be applied, because its view, table or column is
** gone, or because the table belongs to blackbox, has a problem instead; all
** other rules are applied.
**
** A condition of the user is not accepted as text, because it would run with the
** rights of the caller. A view of the user can state it: see docs/retention.md.
*/
#include "retention.h"
#include "../core/model.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

/* The first texts of a rule, nAge, bOwn, whether it is on a table, and whether its setting
** is lost. ?1: the schema; ?2: now.
**
** No time is below 0: with a cut of 0 a view is not read at all. The conditions on a
** table are in the words of its own column, so that an index on that serves the rule. A
** date as text is at most a day away from the UTC date. */
static const char zRules[] =
    "WITH rule AS (SELECT r.*, coalesce(r.\"view\", r.\"table\") AS source,"
    " printf('\"%w\"', r.\"key\") AS k, printf('\"%w\"', r.\"time\") AS t,"
    " r.setting NOTNULL AND l.name IS NULL AS lost,"
    " CAST(coalesce(l.value * coalesce(r.unit_ms, 1), r.age_ms, 0)"
    "  AS INTEGER) AS age,"
    " CASE WHEN l.name NOTNULL THEN printf('%s = %s', l.name, l.value)"
    "  WHEN r.age_ms NOTNULL THEN printf('age_ms = %d', r.age_ms)"
    "  ELSE 'expired' END AS reason FROM main.retention_rules AS r"
    " LEFT JOIN main.blackbox_settings AS l ON l.name = r.setting),"
    " timed AS (SELECT *, max(?2 - age, 0) AS cut, CASE format"
    "  WHEN 'text' THEN printf('CAST(round((julianday(%s) - 2440587.5)"
    " * 86400000.0) AS INTEGER)', t)"
    "  WHEN 's' THEN printf('CAST(%s * 1000 AS INTEGER)', t)"
    "  ELSE printf('CAST(%s AS INTEGER)', t) END AS its FROM rule)"
    "SELECT rule, domain, coalesce(\"table\", \"view\"), reason,"
    " printf('\"%w\".\"%w\"', ?1, source), iif(\"view\" NOTNULL, '\"key\"', k),"
    " iif(\"view\" NOTNULL, 'bytes', group_concat(printf("
    "  'coalesce(length(CAST(\"%w\" AS BLOB)), 0)', c.name), ' + ')"
    "  FILTER (WHERE c.hidden = 0)),"
    " iif(\"view\" NOTNULL, 'at', its), iif(\"view\" NOTNULL, 'blocked_by',"
    "  printf('CASE WHEN %s IS NULL THEN ''its key is NULL'' END', k)),"
    " iif(\"view\" NOTNULL, '(blocked_by) IS NULL', k || ' IS NOT NULL'),"
    " CASE WHEN \"view\" NOTNULL THEN iif(cut, 'at < ' || cut, '0')"
    "  WHEN format = 'text' THEN printf('%s < strftime(''%%Y-%%m-%%d'', %d.0 /"
    " 1000 + 172800, ''unixepoch'') AND %s GLOB ''[0-9][0-9][0-9][0-9]-[0-9]"
    "[0-9]-[0-9][0-9]*'' AND %s < %d', t, cut, t, its, cut)"
    "  WHEN format = 's' THEN printf('%s < %d.%03d AND typeof(%s) IN"
    " (''integer'', ''real'')', t, cut / 1000, cut % 1000, t)"
    "  ELSE printf('%s < %d AND typeof(%s) IN (''integer'', ''real'')',"
    "   t, cut, t) END,"
    " CASE WHEN lost THEN 'its setting does not exist'"
    "  WHEN \"view\" NOTNULL THEN NULL"
    "  WHEN (\"key\", \"time\") IS (NULL, NULL)"
    "  THEN 'it names no table, key and time'"
    "  WHEN NOT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = 'table'"
    "   AND name = source COLLATE NOCASE AND sql NOT LIKE 'CREATE VIRTUAL %')"
    "  THEN printf('there is no table %Q', source)"
    "  WHEN NOT max(c.name = \"key\" COLLATE NOCASE) AND NOT (lower(\"key\") ="
    "   'rowid' AND EXISTS (SELECT 1 FROM pragma_table_list WHERE schema = ?1"
    "   AND name = source COLLATE NOCASE AND NOT wr))"
    "  THEN printf('table %Q has no column %Q', source, \"key\")"
    "  WHEN NOT max(c.name = \"time\" COLLATE NOCASE)"
    "  THEN printf('table %Q has no column %Q', source, \"time\")"
    "  WHEN NOT (sum(c.pk > 0) = 1"
    "    AND max(c.pk * (c.name = \"key\" COLLATE NOCASE)) = 1"
    "   OR lower(\"key\") = 'rowid' AND NOT max(c.name = 'rowid' COLLATE "
    "NOCASE)"
    "   OR EXISTS (SELECT 1 FROM pragma_index_list(source, ?1) AS i"
    "    WHERE i.\"unique\" AND NOT i.partial AND (SELECT group_concat(name, "
    "',')"
    "     = rule.\"key\" COLLATE NOCASE FROM pragma_index_info(i.name, ?1))))"
    "  THEN printf('column %Q of table %Q is not unique', \"key\", source) END,"
    " age, \"view\" IS NULL OR domain = 'user', \"view\" IS NULL, lost"
    " FROM timed AS rule LEFT JOIN pragma_table_xinfo(source, ?1) AS c"
    "  ON \"view\" IS NULL GROUP BY rule ORDER BY rule";

void bxRetentionFree(RetentionRules *pRules) {
  int i, j;
  for (i = 0; i < pRules->n; i++) {
    for (j = 0; j < RULE_TEXTS; j++) sqlite3_free(pRules->a[i].az[j]);
  }
  sqlite3_free(pRules->a);
  memset(pRules, 0, sizeof(*pRules));
}

/* Sets a text of the rule. */
static void setText(RetentionRule *pRule, int i, char *zOwned, BxErr *pErr) {
  assert(i >= 0 && i < RULE_TEXTS);
  sqlite3_free(pRule->az[i]);
  pRule->az[i] = bxCheckMem(zOwned, pErr);
}

/* What a domain says of the rule, or NULL. */
static const BxDue *findDue(const Bx *bx, const char *zRule) {
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    const BxDue *pDue = bx->aDomain[i].aDue;
    while (pDue != 0 && pDue->zRule != 0 && strcmp(pDue->zRule, zRule) != 0)
      pDue++;
    if (pDue != 0 && pDue->zRule != 0) return pDue;
  }
  return 0;
}

/* What is due by the rule: what is older or, for the limit of the file, up to which row. */
static char *dueOf(BxStmts *p, const BxDue *pDue, i64 iCut, BxErr *pErr) {
  char *zKey = 0, *z = 0;
  i64 iAt = 0;
  assert(pDue->zAt != 0 && pDue->zKey != 0);
  if (strstr(pDue->zRule, ".file_bytes") == 0) {
    if (iCut > 0) z = bxPrintf(pErr, "%s < %lld", pDue->zAt, iCut);
  } else if (bxFileLimitReach(p, pDue, &iAt, &zKey, pErr)) {
    z = bxPrintf(pErr, "(%s < %lld OR (%s = %lld AND %s COLLATE BINARY <= %Q))",
        pDue->zAt, iAt, pDue->zAt, iAt, pDue->zKey, zKey);
  }
  sqlite3_free(zKey);
  return z != 0 ? z : bxPrintf(pErr, "0");
}

static void takeDue(RetentionRule *pRule, BxStmts *p, const BxDue *pDue,
    i64 iNow, BxErr *pErr) {
  const char *azText[] = {pDue->zKey, pDue->zBytes, pDue->zAt, pDue->zBlocked,
      pDue->zFree, pDue->zWhere};
  char *zDue = dueOf(p, pDue, iNow - pRule->nAge, pErr);
  int i;
  assert(RULE_DUE - RULE_KEY + 1 == (int)(sizeof(azText) / sizeof(azText[0])));
  for (i = RULE_KEY; i <= RULE_DUE; i++) {
    setText(pRule, i, bxExpand(azText[i - RULE_KEY], p->zDb, 0), pErr);
  }
  if (pErr->rc == SQLITE_OK) {
    setText(pRule, RULE_DUE,
        sqlite3_mprintf("%s AND (%s)", zDue, pRule->az[RULE_DUE]), pErr);
    setText(pRule, RULE_FROM,
        sqlite3_mprintf("\"%w\".\"%w\"", p->zDb, pDue->zTable), pErr);
  }
  sqlite3_free(zDue);
  pRule->zNote = pDue->zNote;
  pRule->bOwn = 0;
}

/* Whether a CREATE TABLE of blackbox, of a domain or of a virtual table, makes
** this table. */
static int isOurs(BxStmts *p, const char *zTable, BxErr *pErr) {
  const BxModule *pModule;
  int i, bOurs = 0;
  for (i = 0; i < p->bx->nDomain && !bOurs; i++) {
    bOurs = bxModelMakes(p->bx->aDomain[i].zSql, zTable);
  }
  for (pModule = p->bx->aModule; pModule->zName != 0 && !bOurs; pModule++) {
    sqlite3_stmt *pStmt = bxVtabNames(p, pModule->zName, pErr);
    while (!bOurs && bxStep(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      size_t n = zName ? strlen(zName) : 0;
      bOurs = zName != 0 && sqlite3_strnicmp(zTable, zName, (int)n) == 0 &&
              zTable[n] == '_' && bxModelMakes(pModule->zSql, zTable + n + 1);
    }
    sqlite3_finalize(pStmt);
  }
  return bOurs;
}

/* Its rows as one query, if SQLite accepts it; otherwise its message becomes the problem.
** (SQLite puts such a query together with the one around it.) */
static void makeRows(RetentionRule *pRule, BxStmts *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  char **az = pRule->az;
  setText(pRule, RULE_ROWS,
      sqlite3_mprintf("SELECT %s AS k, %s AS bytes, %s AS at, %s AS blocked,"
                      " %s AS free FROM %s WHERE %s",
          az[RULE_KEY], az[RULE_BYTES], az[RULE_AT], az[RULE_BLOCKED],
          az[RULE_FREE], az[RULE_FROM], az[RULE_DUE]),
      pErr);
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_finalize(bxPrepareSql(p->bx->db, az[RULE_ROWS], &err));
  if (err.rc == SQLITE_ERROR) {
    setText(pRule, RULE_PROBLEM, sqlite3_mprintf("%s", err.zMsg), pErr);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

static void makeRule(RetentionRule *pRule, BxStmts *p, sqlite3_stmt *pRow,
    i64 iNow, BxErr *pErr) {
  const BxDue *pDue;
  int i, bTable;
  for (i = 0; i <= RULE_PROBLEM; i++)
    pRule->az[i] = bxColumnCopy(pRow, i, pErr);
  pRule->nAge = sqlite3_column_int64(pRow, RULE_PROBLEM + 1);
  pRule->bOwn = sqlite3_column_int(pRow, RULE_PROBLEM + 2);
  bTable = sqlite3_column_int(pRow, RULE_PROBLEM + 3);
  if (pErr->rc != SQLITE_OK) return;
  pDue = findDue(p->bx, pRule->az[RULE_RULE]);
  if (pDue != 0) {
    if (!sqlite3_column_int(pRow, RULE_PROBLEM + 4)) {
      sqlite3_free(pRule->az[RULE_PROBLEM]);
      pRule->az[RULE_PROBLEM] = 0;
      takeDue(pRule, p, pDue, iNow, pErr);
    }
  } else if (bTable && isOurs(p, pRule->az[RULE_TABLE], pErr)) {
    setText(pRule, RULE_PROBLEM,
        sqlite3_mprintf("table %Q belongs to blackbox, which has rules for it",
            pRule->az[RULE_TABLE]),
        pErr);
  }
  if (pRule->az[RULE_PROBLEM] == 0) makeRows(pRule, p, pErr);
}

void bxRetentionRead(
    RetentionRules *pRules, BxStmts *p, i64 iNow, BxErr *pErr) {
  sqlite3_stmt *pRow;
  memset(pRules, 0, sizeof(*pRules));
  if (pErr->rc != SQLITE_OK) return;
  pRow = bxPrepare(p, zRules, pErr);
  bxBind(pRow, pErr, "ti", p->zDb, iNow);
  while (bxStep(pRow, pErr)) {
    RetentionRule *a =
        bxArrayGrow(pRules->a, pRules->n, &pRules->nAlloc, sizeof(*a), pErr);
    if (a == 0) break;
    pRules->a = a;
    memset(&a[pRules->n], 0, sizeof(*a));
    makeRule(&a[pRules->n++], p, pRow, iNow, pErr);
  }
  sqlite3_finalize(pRow);
}

void bxRetentionCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  RetentionRules rules;
  int i;
  bxRetentionRead(&rules, p, bxNow(), &err);
  for (i = 0; i < rules.n && err.rc == SQLITE_OK; i++) {
    if (rules.a[i].az[RULE_PROBLEM] == 0) continue;
    bxProblem(pOut, "retention_rules",
        "rule %s is not applied: %s; correct the rule, or delete it",
        rules.a[i].az[RULE_RULE], rules.a[i].az[RULE_PROBLEM]);
  }
  bxRetentionFree(&rules);
  bxProblemError(pOut, "retention_rules", &err);
  bxRetentionCheckHolds(p, pOut);
  bxRetentionCheckErased(p, pOut);
}

sqlite3_stmt *bxRetentionRows(const RetentionRules *pRules, BxStmts *p,
    BxErr *pErr, char *zRest, const char *zForm, ...) {
  sqlite3_str *pSql = sqlite3_str_new(p ? p->bx->db : 0);
  sqlite3_stmt *pStmt = 0;
  va_list ap;
  char *zSql;
  int i;
  assert(pRules->n >= 0);
  bxCheckMem(zRest, pErr);
  sqlite3_str_appendall(pSql,
      "WITH rows(i, domain, tbl, rule, age, reason, stuck, k, bytes, at, due,"
      " blocked, free) AS (SELECT 0, '', '', '', 0, '', 0, '', 0, 0, 0, '', 0"
      " WHERE 0");
  for (i = 0; i < pRules->n && pErr->rc == SQLITE_OK; i++) {
    const RetentionRule *pRule = &pRules->a[i];
    char *const *az = pRule->az;
    if (az[RULE_PROBLEM] != 0) continue;
    sqlite3_str_appendf(pSql,
        " UNION ALL SELECT * FROM (SELECT %d, %Q, %Q, %Q, %lld, %Q, %d AS"
        " stuck, k, bytes, at, at + %lld, blocked, free FROM (%s) %s)",
        i, az[RULE_DOMAIN], az[RULE_TABLE], az[RULE_RULE], pRule->nAge,
        az[RULE_REASON], pRule->bStuck, pRule->nAge, az[RULE_ROWS], zRest);
  }
  sqlite3_str_appendall(pSql, ") ");
  va_start(ap, zForm);
  sqlite3_str_vappendf(pSql, zForm, ap);
  va_end(ap);
  zSql = bxStrFinish(pSql, pErr);
  if (pErr->rc == SQLITE_OK) pStmt = bxPrepareSql(p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  sqlite3_free(zRest);
  return pStmt;
}

/* retention_plan([now]) is one query: the due rows of all rules, in the order in which
** they fell due. A rule that cannot be applied is left out; blackbox_check() lists it.
** A thing that two rules take is listed once for each of them. */
sqlite3_stmt *bxRetentionPlan(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *p = bxDomainSchema(bx, "retention", pErr);
  i64 iNow = bxRuleTime(p, apArg[0], 0, pErr);
  RetentionRules rules;
  sqlite3_stmt *pStmt;
  bxRetentionRead(&rules, p, iNow, pErr);
  pStmt = bxRetentionRows(&rules, p, pErr, sqlite3_mprintf(""),
      "SELECT domain, tbl, k, bytes, rule, at, due, %lld - at, reason, blocked"
      " FROM rows ORDER BY due, rule, k COLLATE BINARY",
      iNow);
  bxRetentionFree(&rules);
  return pStmt;
}

/*---------------------------------------------------------------- report --*/

/* The bytes of the pages of the tables and indexes of domain d, of a schema: %Q, and three
** times %w. A table that another program made may belong to a domain: the rules name it. */
#define DOMAIN_PAGES                                                           \
  "(SELECT sum(s.pgsize) FROM dbstat(%Q, 1) AS s"                              \
  " JOIN \"%w\".sqlite_schema AS m ON m.name = s.name"                         \
  " WHERE substr(m.tbl_name, 1, length(d) + 1) = d || '_'"                     \
  " OR m.tbl_name = (SELECT max(\"table\") FROM \"%w\".retention_rules"        \
  "  WHERE domain = d AND \"table\" = m.tbl_name)"                             \
  " OR EXISTS (SELECT 1 FROM \"%w\".sqlite_schema AS v WHERE v.type = 'table'" \
  "  AND v.sql LIKE 'CREATE VIRTUAL TABLE%%USING%%' || d || '\\_%%' ESCAPE "   \
  "'\\'"                                                                       \
  "  AND substr(m.tbl_name, 1, length(v.name) + 1) = v.name || '_'))"

/* A query of the domains: d, n rows and b bytes. */
static char *domainSizes(BxStmts *p, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(p->bx->db);
  sqlite3_stmt *pRow =
      bxPrepare(p, "SELECT domain FROM main.blackbox_domains ORDER BY 1", pErr);
  sqlite3_str_appendall(pSql, "SELECT '' AS d, 0 AS n, 0 AS b WHERE 0");
  while (bxStep(pRow, pErr)) {
    const char *zDomain = bxColumnText(pRow, 0, pErr);
    const BxDomain *pDomain = zDomain ? bxDomainOf(p->bx, zDomain) : 0;
    if (pDomain == 0 || pDomain->zSize == 0) continue;
    sqlite3_str_appendf(pSql, " UNION ALL SELECT %Q, rows, bytes FROM (%z)",
        zDomain, bxCheckMem(bxExpand(pDomain->zSize, p->zDb, 0), pErr));
  }
  sqlite3_finalize(pRow);
  sqlite3_str_appendall(pSql, " UNION ALL SELECT 'user', NULL, NULL");
  return bxStrFinish(pSql, pErr);
}

/* retention_report([pages[, now]]): where the bytes of the file are, and what would give
** some of them back. A row for each domain has the bytes of its data, from the counters of
** the domain or from an index, without reading the data; and what a sweep would remove
** now. Rows for the file have its pages, the free ones among them, which later writes use
** again but only VACUUM or incremental_vacuum gives back, and the -wal. With "pages", the
** table dbstat of SQLite also counts the pages of each domain; it reads the whole file,
** and not every SQLite has it. */
sqlite3_stmt *bxRetentionReport(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zHasPages[] =
      "SELECT count(*) FROM pragma_module_list WHERE name = 'dbstat'";
  BxStmts *p = bxDomainSchema(bx, "retention", pErr);
  sqlite3_stmt *pStmt = 0;
  RetentionRules rules;
  char *zPages = 0, *zSizes;
  const char *z = p ? p->zDb : 0;
  i64 nPage;
  if (p == 0) return 0;
  if (apArg[0] && bxInt(apArg[0], "pages", 0, 1, pErr) &&
      bxQueryNumber(p, zHasPages, pErr)) {
    zPages = bxPrintf(pErr, DOMAIN_PAGES, z, z, z, z);
  }
  bxRetentionRead(&rules, p, bxRuleTime(p, apArg[1], 0, pErr), pErr);
  zSizes = domainSizes(p, pErr);
  nPage = bxQueryNumber(p, "PRAGMA main.page_size", pErr);
  if (zSizes != 0) {
    pStmt = bxRetentionRows(&rules, p, pErr, sqlite3_mprintf("WHERE free"),
        "SELECT d, n, b, coalesce(due, 0), coalesce(size, 0), %s,"
        " 'retention_sweep' FROM (%s) LEFT JOIN (SELECT domain, count(*) AS "
        "due,"
        " sum(bytes) AS size FROM rows GROUP BY domain) ON domain = d"
        " UNION ALL VALUES('file', NULL, NULL, NULL, NULL, %lld, NULL),"
        " ('free', NULL, NULL, NULL, NULL, %lld, %Q),"
        " ('wal', NULL, NULL, NULL, NULL, %lld,"
        " 'PRAGMA wal_checkpoint(TRUNCATE)')",
        zPages ? zPages : "NULL", zSizes,
        nPage * bxQueryNumber(p, "PRAGMA main.page_count", pErr),
        nPage * bxQueryNumber(p, "PRAGMA main.freelist_count", pErr),
        bxQueryNumber(p, "PRAGMA main.auto_vacuum", pErr) != 0
            ? "PRAGMA incremental_vacuum"
            : "VACUUM",
        bxWalBytes(bx, p->zDb));
  }
  bxRetentionFree(&rules);
  sqlite3_free(zSizes);
  sqlite3_free(zPages);
  return pStmt;
}
