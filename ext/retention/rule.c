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

#include <string.h>

/* The first texts of a rule, nAge, and eOwn. ?1: the schema; ?2: now.
**
** No time is below 0: with a cut of 0 a view is not read at all. The conditions on a
** table are in the words of its own column, so that an index on that serves the rule. A
** date as text is at most a day away from the UTC date. After the name of its table, the
** name of a column that is missing is an error, and no text. */
static const char zRules[] =
    "WITH rule AS (SELECT r.*, coalesce(\"view\", \"table\") AS source,"
    " iif(format = 's', 1000, 1) AS unit, CASE WHEN setting IS NULL"
    "  THEN coalesce(age_ms, 0) ELSE CAST(l.value * coalesce(unit_ms, 1)"
    "  AS INTEGER) END AS age,"
    " CASE WHEN setting NOTNULL THEN printf('%s = %s', setting, l.value)"
    "  WHEN age_ms NOTNULL THEN printf('age_ms = %d', age_ms)"
    "  ELSE 'expired' END AS reason FROM main.retention_rules AS r"
    " LEFT JOIN main.blackbox_settings AS l ON l.name = r.setting),"
    " named AS (SELECT *, max(?2 - age, 0) AS cut,"
    " printf('\"%w\".\"%w\"', ?1, source) AS \"from\", printf('\"%w\".\"%w\"',"
    "  source, iif(\"view\" NOTNULL, 'key', \"key\")) AS k,"
    " printf('\"%w\".\"%w\"', source, \"time\") AS t FROM rule),"
    " timed AS (SELECT *, iif(format = 'text', "
    "printf('CAST(round((julianday(%s)"
    " - 2440587.5) * 86400000.0) AS INTEGER)', t),"
    "  printf('CAST(%s * %d AS INTEGER)', t, unit)) AS its FROM named)"
    "SELECT rule, domain, coalesce(\"table\", \"view\"), reason, \"from\", k,"
    " iif(\"view\" NOTNULL, printf('SELECT %s AS k, bytes, at, blocked_by AS"
    " blocked, (blocked_by) IS NULL AS free FROM %s WHERE %s', k, \"from\","
    "  iif(cut, 'at < ' || cut, '0')),"
    " printf('SELECT %s AS k, %s AS bytes, %s AS at, CASE WHEN %s IS NULL THEN"
    " ''its key is NULL'' END AS blocked, %s IS NOT NULL AS free FROM %s"
    " WHERE %s', k, group_concat(printf('coalesce(length(CAST(\"%w\" AS BLOB)),"
    " 0)', c.name), ' + ') FILTER (WHERE c.hidden = 0), its, k, k, \"from\","
    "  iif(format = 'text', printf('%s < strftime(''%%Y-%%m-%%d'', %d.0 / 1000"
    " + 172800, ''unixepoch'') AND %s GLOB ''[0-9][0-9][0-9][0-9]-[0-9][0-9]-"
    "[0-9][0-9]*'' AND %s < %d', t, cut, t, its, cut),"
    "  printf('%s < %d.%03d AND typeof(%s) IN (''integer'', ''real'')', t,"
    "   cut / unit, cut % unit, t)))),"
    " CASE WHEN age IS NULL THEN 'its setting does not exist'"
    "  WHEN \"view\" NOTNULL OR \"key\" IS NULL THEN NULL"
    "  WHEN NOT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = 'table'"
    "   AND name = source COLLATE NOCASE AND sql NOT LIKE 'CREATE VIRTUAL %')"
    "  THEN printf('there is no table %Q', source)"
    "  WHEN NOT (sum(c.pk > 0) = 1"
    "    AND max(c.pk * (c.name = \"key\" COLLATE NOCASE)) = 1"
    "   OR lower(\"key\") = 'rowid'"
    "    AND NOT max(c.name = 'rowid' COLLATE NOCASE)"
    "   OR EXISTS (SELECT 1 FROM pragma_index_list(source, ?1) AS i"
    "    WHERE i.\"unique\" AND NOT i.partial AND (SELECT group_concat(name)"
    "     = rule.\"key\" COLLATE NOCASE FROM pragma_index_info(i.name, ?1))))"
    "  THEN printf('table %Q has no unique column %Q', source, \"key\") END,"
    " age, iif(\"view\" IS NULL, 2, domain = 'user')"
    " FROM timed AS rule LEFT JOIN pragma_table_xinfo(source, ?1) AS c"
    "  ON \"view\" IS NULL GROUP BY rule ORDER BY rule";

void bxRetentionFree(RetentionRules *pRules) {
  while (pRules->n > 0) {
    RetentionRule *pRule = &pRules->a[--pRules->n];
    int i;
    for (i = 0; i < RULE_TEXTS; i++) sqlite3_free(pRule->az[i]);
  }
  sqlite3_free(pRules->a);
  pRules->a = 0;
}

void bxRetentionSet(RetentionRule *pRule, int i, char *zOwned, BxErr *pErr) {
  assert(i >= 0 && i < RULE_TEXTS);
  sqlite3_free(pRule->az[i]);
  pRule->az[i] = bxCheckMem(zOwned, pErr);
}

/* What a domain says of the rule, or NULL. */
static const BxDue *findDue(const Bx *bx, const char *zRule) {
  const BxDue *pDue;
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    for (pDue = bx->aDomain[i].aDue; pDue != 0 && pDue->zRule != 0; pDue++) {
      if (strcmp(pDue->zRule, zRule) == 0) return pDue;
    }
  }
  return 0;
}

/* The rule is that of a descriptor: due is what is older or, for the limit of the file,
** what comes up to a row. */
static void takeDue(RetentionRule *pRule, BxStmts *p, const BxDue *pDue,
    i64 iCut, BxErr *pErr) {
  char *zKey = 0, *z, *zDue;
  i64 iAt = 0;
  assert(pDue->zAt != 0 && pDue->zKey != 0);
  if (strstr(pDue->zRule, ".file_bytes") == 0) {
    zDue = bxPrintf(pErr, "%d AND %s < %lld", iCut > 0, pDue->zAt, iCut);
  } else if (bxFileLimitReach(p, pDue, &iAt, &zKey, pErr)) {
    zDue =
        bxPrintf(pErr, "(%s < %lld OR (%s = %lld AND %s COLLATE BINARY <= %Q))",
            pDue->zAt, iAt, pDue->zAt, iAt, pDue->zKey, zKey);
  } else {
    zDue = bxPrintf(pErr, "0");
  }
  sqlite3_free(zKey);
  z = bxPrintf(pErr,
      "SELECT %s AS k, %s AS bytes, %s AS at, %s AS blocked, %s AS free"
      " FROM main.%s WHERE (%s) AND ",
      pDue->zKey, pDue->zBytes, pDue->zAt, pDue->zBlocked, pDue->zFree,
      pDue->zTable, pDue->zWhere);
  if (pErr->rc == SQLITE_OK) {
    char *zRows = bxCheckMem(bxExpand(z, p->zDb, 0), pErr);
    bxRetentionSet(
        pRule, RULE_ROWS, sqlite3_mprintf("%z%s", zRows, zDue), pErr);
    bxRetentionSet(pRule, RULE_FROM,
        sqlite3_mprintf("\"%w\".%s", p->zDb, pDue->zTable), pErr);
    bxRetentionSet(pRule, RULE_KEY, sqlite3_mprintf("%s", pDue->zKey), pErr);
  }
  sqlite3_free(z);
  sqlite3_free(zDue);
  pRule->zNote = pDue->zNote;
  pRule->eOwn = 0;
}

/* Whether a CREATE TABLE of blackbox, of a domain or of a virtual table, makes
** this table. */
static int isOurs(BxStmts *p, const char *zTable, BxErr *pErr) {
  BxVtabWalk walk = {p, 0, 0};
  const BxVtab *pVtab;
  int i, bOurs = 0;
  for (i = 0; i < p->bx->nDomain; i++) {
    bOurs |= bxModelMakes(p->bx->aDomain[i].zSql, zTable);
  }
  while ((pVtab = bxVtabNext(&walk, pErr)) != 0) {
    size_t n = strlen(pVtab->stmts.zTable);
    bOurs |= sqlite3_strnicmp(zTable, pVtab->stmts.zTable, (int)n) == 0 &&
             zTable[n] == '_' &&
             bxModelMakes(pVtab->pModule->zSql, zTable + n + 1);
  }
  return bOurs;
}

/* A rule of a row. Where SQLite does not accept its SQL, the message becomes its problem.
** (SQLite puts such a query together with the one around it.) */
static void makeRule(RetentionRule *pRule, BxStmts *p, sqlite3_stmt *pRow,
    i64 iNow, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  char **az = pRule->az;
  const BxDue *pDue;
  int i;
  for (i = 0; i <= RULE_PROBLEM; i++) az[i] = bxColumnCopy(pRow, i, pErr);
  pRule->nAge = sqlite3_column_int64(pRow, RULE_PROBLEM + 1);
  pRule->eOwn = sqlite3_column_int(pRow, RULE_PROBLEM + 2);
  if (pErr->rc != SQLITE_OK) return;
  pDue = findDue(p->bx, az[RULE_RULE]);
  if (pDue != 0 && az[RULE_PROBLEM] == 0) {
    takeDue(pRule, p, pDue, iNow - pRule->nAge, pErr);
  } else if (pDue == 0 && pRule->eOwn == 2 && isOurs(p, az[RULE_TABLE], pErr)) {
    bxRetentionSet(pRule, RULE_PROBLEM,
        sqlite3_mprintf("table %Q belongs to blackbox, which has rules for it",
            az[RULE_TABLE]),
        pErr);
  }
  if (pErr->rc != SQLITE_OK || az[RULE_PROBLEM] != 0) return;
  sqlite3_finalize(bxPrepareSql(p->bx->db, az[RULE_ROWS], &err));
  if (err.rc == SQLITE_ERROR) {
    bxRetentionSet(pRule, RULE_PROBLEM, sqlite3_mprintf("%s", err.zMsg), pErr);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

void bxRetentionRead(
    RetentionRules *pRules, BxStmts *p, i64 iNow, BxErr *pErr) {
  sqlite3_stmt *pRow;
  memset(pRules, 0, sizeof(*pRules));
  if (pErr->rc != SQLITE_OK) return;
  pRow = bxPrepare(p, zRules, pErr);
  bxBind(pRow, pErr, "ti", p->zDb, iNow);
  while (bxStep(pRow, pErr)) {
    RetentionRule *pRule = bxArrayAdd(
        &pRules->a, &pRules->n, &pRules->nAlloc, sizeof(*pRule), pErr);
    if (pRule != 0) makeRule(pRule, p, pRow, iNow, pErr);
  }
  sqlite3_finalize(pRow);
}

void bxRetentionCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  RetentionRules rules;
  i64 i;
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
    char *zRest, char *zSelect, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(p ? p->bx->db : 0);
  i64 i;
  assert(pRules->n >= 0);
  sqlite3_str_appendall(pSql,
      "WITH rows(i, domain, tbl, rule, reason, stuck, k, bytes, at, due,"
      " blocked, free) AS (SELECT 0, '', '', '', '', 0, '', 0, 0, 0, '', 0"
      " WHERE 0");
  for (i = 0; i < pRules->n; i++) {
    const RetentionRule *pRule = &pRules->a[i];
    char *const *az = pRule->az;
    if (az[RULE_PROBLEM] != 0) continue;
    assert(az[RULE_ROWS] != 0 || pErr->rc != SQLITE_OK);
    sqlite3_str_appendf(pSql,
        " UNION ALL SELECT * FROM (SELECT %lld, %Q, %Q, %Q, %Q, %d AS stuck, k,"
        " bytes, at, at + %lld, blocked, free FROM (%s) %s)",
        i, az[RULE_DOMAIN], az[RULE_TABLE], az[RULE_RULE], az[RULE_REASON],
        pRule->bStuck, pRule->nAge, az[RULE_ROWS], zRest);
  }
  if (bxCheckMem(zRest, pErr) && bxCheckMem(zSelect, pErr) && p != 0) {
    sqlite3_str_appendf(pSql, ") %z", bxExpand(zSelect, p->zDb, 0));
  }
  sqlite3_free(zRest);
  sqlite3_free(zSelect);
  return bxPrepareOwned(p ? p->bx->db : 0, bxStrFinish(pSql, pErr), pErr);
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
  pStmt = bxRetentionRows(&rules, p, sqlite3_mprintf(""),
      sqlite3_mprintf(
          "SELECT domain, tbl, k, bytes, rule, at, due, %lld - at, reason,"
          " blocked FROM rows ORDER BY due, rule, k COLLATE BINARY",
          iNow),
      pErr);
  bxRetentionFree(&rules);
  return pStmt;
}

/*---------------------------------------------------------------- report --*/

/* The bytes of the pages of the tables and indexes of domain d, of schema ?1. A table that
** another program made may belong to a domain: the rules name it. */
#define DOMAIN_PAGES                                                           \
  "(SELECT sum(s.pgsize) FROM dbstat(?1, 1) AS s"                              \
  " JOIN main.sqlite_schema AS m ON m.name = s.name"                           \
  " WHERE substr(m.tbl_name, 1, length(d) + 1) = d || '_'"                     \
  " OR m.tbl_name IN (SELECT \"table\" FROM main.retention_rules"              \
  "  WHERE domain = d)"                                                        \
  " OR EXISTS (SELECT 1 FROM main.sqlite_schema AS v WHERE v.type = 'table'"   \
  "  AND v.sql LIKE 'CREATE VIRTUAL TABLE%USING%' || d || '\\_%' ESCAPE '\\'"  \
  "  AND substr(m.tbl_name, 1, length(v.name) + 1) = v.name || '_'))"

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
  static const char zFile[] =
      " LEFT JOIN (SELECT domain, count(*) AS due, sum(bytes) AS size FROM rows"
      " GROUP BY domain) ON domain = d"
      " UNION ALL SELECT 'file', NULL, NULL, NULL, NULL, page_count * "
      "page_size,"
      " NULL FROM pragma_page_count(?1), pragma_page_size(?1)"
      " UNION ALL SELECT 'free', NULL, NULL, NULL, NULL, ?3 * page_size,"
      " iif(auto_vacuum, 'PRAGMA incremental_vacuum', 'VACUUM')"
      " FROM pragma_page_size(?1), pragma_auto_vacuum(?1)"
      " UNION ALL VALUES('wal', NULL, NULL, NULL, NULL, ?2,"
      " 'PRAGMA wal_checkpoint(TRUNCATE)')";
  BxStmts *p = bxDomainSchema(bx, "retention", pErr);
  sqlite3_stmt *pStmt;
  sqlite3_str *pSql;
  RetentionRules rules;
  int i, bPages;
  if (p == 0) return 0;
  bPages = apArg[0] && bxInt(apArg[0], "pages", 0, 1, pErr) &&
           bxQueryNumber(p, zHasPages, pErr);
  bxRetentionRead(&rules, p, bxRuleTime(p, apArg[1], 0, pErr), pErr);
  pSql = sqlite3_str_new(bx->db);
  sqlite3_str_appendf(pSql,
      "SELECT d, n, b, coalesce(due, 0), coalesce(size, 0), %s,"
      " 'retention_sweep' FROM (SELECT 'user' AS d, NULL AS n, NULL AS b",
      bPages ? DOMAIN_PAGES : "NULL");
  for (i = 0; i < bx->nDomain; i++) {
    const BxDomain *pDomain = &bx->aDomain[i];
    if (pDomain->zSize == 0 ||
        !bxSchemaHasDomain(bx, p->zDb, pDomain->zName, pErr)) {
      continue;
    }
    sqlite3_str_appendf(pSql, " UNION ALL SELECT %Q, rows, bytes FROM (%s)",
        pDomain->zName, pDomain->zSize);
  }
  sqlite3_str_appendf(pSql, " ORDER BY 1 LIMIT 99)%s", zFile);
  pStmt = bxRetentionRows(
      &rules, p, sqlite3_mprintf("WHERE free"), bxStrFinish(pSql, pErr), pErr);
  bxBind(pStmt, pErr, "cii", p->zDb, bxWalBytes(bx, p->zDb),
      bxQueryNumber(p, "PRAGMA main.freelist_count", pErr));
  bxRetentionFree(&rules);
  return pStmt;
}
