/*
** rule.c: reads the rows of retention_rules, and makes SQL of them. The plan and
** the sweep use the same SQL, so that they always agree.
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
SQLITE_EXTENSION_INIT3

#include <string.h>

/* A row of zRules, while the rule is made. */
typedef struct Source {
  BxStmts *p;
  const char *zView, *zTable, *zKey, *zTime, *zFormat;
  i64 iCut; /* what is older is due */
} Source;

static const char zRules[] =
    "SELECT r.rule, r.domain, r.\"view\", coalesce(r.\"table\", r.\"view\"),"
    " r.\"key\", r.\"time\", r.format,"
    " CAST(coalesce(l.value * coalesce(r.unit_ms, 1), r.age_ms, 0) AS INTEGER),"
    " CASE WHEN l.name IS NOT NULL THEN printf('%s = %s', l.name, l.value)"
    "  WHEN r.age_ms IS NOT NULL THEN printf('age_ms = %d', r.age_ms)"
    "  ELSE 'expired' END,"
    " r.setting IS NOT NULL AND l.name IS NULL"
    " FROM main.retention_rules AS r"
    " LEFT JOIN main.blackbox_settings AS l ON l.name = r.setting"
    " ORDER BY r.rule";

static void freeRule(RetentionRule *p) {
  sqlite3_free(p->zRule);
  sqlite3_free(p->zDomain);
  sqlite3_free(p->zTable);
  sqlite3_free(p->zReason);
  sqlite3_free(p->zFrom);
  sqlite3_free(p->zKey);
  sqlite3_free(p->zBytes);
  sqlite3_free(p->zAt);
  sqlite3_free(p->zBlocked);
  sqlite3_free(p->zFree);
  sqlite3_free(p->zDue);
  sqlite3_free(p->zUpTo);
  sqlite3_free(p->zProblem);
}

void bxRetentionFree(RetentionRules *pRules) {
  int i;
  for (i = 0; i < pRules->n; i++) freeRule(&pRules->a[i]);
  sqlite3_free(pRules->a);
  memset(pRules, 0, sizeof(*pRules));
}

/* Notes the first problem of a rule. */
static void problem(RetentionRule *pRule, char *zOwned) {
  if (pRule->zProblem == 0) {
    pRule->zProblem = zOwned;
  } else {
    sqlite3_free(zOwned);
  }
}

/*-------------------------------------------------- rules of a domain ----*/

static void makeViewRule(
    RetentionRule *pRule, const Source *pFrom, BxErr *pErr) {
  pRule->zFrom = bxPrintf(pErr, "\"%w\".\"%w\"", pFrom->p->zDb, pFrom->zView);
  pRule->zKey = bxPrintf(pErr, "\"key\"");
  pRule->zBytes = bxPrintf(pErr, "bytes");
  pRule->zAt = bxPrintf(pErr, "at");
  pRule->zBlocked = bxPrintf(pErr, "blocked_by");
  /* no time is below 0: then the view is not read at all */
  pRule->zDue =
      bxPrintf(pErr, pFrom->iCut > 0 ? "at < %lld" : "0", pFrom->iCut);
  pRule->zUpTo = bxPrintf(pErr, "at <= ?1");
  pRule->bOwn = strcmp(pRule->zDomain, "user") == 0;
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

/* A rule for the limit of the file: up to which row. */
static char *makeReach(const Source *pFrom, const BxDue *pDue, BxErr *pErr) {
  char *zKey, *z = 0;
  i64 iAt = 0;
  if (bxRoomReach(pFrom->p, pDue, &iAt, &zKey, pErr)) {
    z = bxPrintf(pErr, "(%s < %lld OR (%s = %lld AND %s COLLATE BINARY <= %Q))",
        pDue->zAt, iAt, pDue->zAt, iAt, pDue->zKey, zKey);
  }
  sqlite3_free(zKey);
  return z != 0 ? z : bxPrintf(pErr, "0");
}

static void makeDueRule(
    RetentionRule *pRule, const Source *pFrom, const BxDue *pDue, BxErr *pErr) {
  char *zWhere = bxExpand(pDue->zWhere, pFrom->p->zDb, 0);
  pRule->zFrom = bxPrintf(pErr, "\"%w\".\"%w\"", pFrom->p->zDb, pDue->zTable);
  pRule->zKey = bxPrintf(pErr, "%s", pDue->zKey);
  pRule->zBytes = bxPrintf(pErr, "%s", pDue->zBytes);
  pRule->zAt = bxPrintf(pErr, "%s", pDue->zAt);
  pRule->zBlocked = bxExpand(pDue->zBlocked, pFrom->p->zDb, 0);
  pRule->zFree = bxExpand(pDue->zFree, pFrom->p->zDb, 0);
  if (zWhere == 0 || pRule->zBlocked == 0 || pRule->zFree == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
  } else {
    char *zOld =
        strstr(pDue->zRule, ".file_bytes") ? makeReach(pFrom, pDue, pErr)
        : pFrom->iCut > 0 ? bxPrintf(pErr, "%s < %lld", pDue->zAt, pFrom->iCut)
                          : bxPrintf(pErr, "0");
    pRule->zDue = bxPrintf(pErr, "%s AND (%s)", zOld, zWhere);
    sqlite3_free(zOld);
  }
  pRule->zUpTo = bxPrintf(pErr, "%s <= ?1", pDue->zAt);
  pRule->zNote = pDue->zNote;
  sqlite3_free(zWhere);
}

/*--------------------------------------------- rules on a user's table ----*/

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
    while (!bOurs && bxRow(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      size_t n = zName ? strlen(zName) : 0;
      bOurs = zName != 0 && sqlite3_strnicmp(zTable, zName, (int)n) == 0 &&
              zTable[n] == '_' && bxModelMakes(pModule->zSql, zTable + n + 1);
    }
    sqlite3_finalize(pStmt);
  }
  return bOurs;
}

/* What is known of table ?1 in schema ?4, key column ?2 and time column ?3:
** whether it is a table of rows, the two names as the table has them, whether
** the key is unique, and the SQL of the bytes of a row. */
static const char zTableFacts[] =
    "SELECT (SELECT count(*) FROM main.sqlite_schema WHERE type = 'table'"
    "  AND name = ?1 COLLATE NOCASE AND sql NOT LIKE 'CREATE VIRTUAL %'),"
    " coalesce(max(name) FILTER (WHERE name = ?2 COLLATE NOCASE),"
    "  (SELECT 'rowid' FROM pragma_table_list WHERE schema = ?4"
    "   AND name = ?1 COLLATE NOCASE AND NOT wr AND lower(?2) = 'rowid')),"
    " max(name) FILTER (WHERE name = ?3 COLLATE NOCASE),"
    " sum(pk > 0) = 1 AND coalesce(max(pk) FILTER"
    "  (WHERE name = ?2 COLLATE NOCASE), 0) = 1"
    " OR (lower(?2) = 'rowid' AND NOT max(name = 'rowid' COLLATE NOCASE))"
    " OR EXISTS (SELECT 1 FROM pragma_index_list(?1, ?4) AS l"
    "  WHERE l.\"unique\" AND NOT l.partial"
    "  AND (SELECT group_concat(i.name, ',') = ?2 COLLATE NOCASE"
    "   FROM pragma_index_info(l.name, ?4) AS i)),"
    " group_concat(printf('coalesce(length(CAST(\"%w\" AS BLOB)), 0)', name),"
    "  ' + ') FILTER (WHERE hidden = 0)"
    " FROM pragma_table_xinfo(?1, ?4)";

/* Takes what is wrong with the names, the name of the key, and the bytes. */
static void readFacts(RetentionRule *pRule, const Source *pFrom, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(pFrom->p, zTableFacts, pErr);
  bxBind(pStmt, pErr, "tttt", pFrom->zTable, pFrom->zKey, pFrom->zTime,
      pFrom->p->zDb);
  if (bxRow(pStmt, pErr)) {
    if (!sqlite3_column_int(pStmt, 0)) {
      problem(pRule, bxPrintf(pErr, "there is no table %Q", pFrom->zTable));
    } else if (sqlite3_column_type(pStmt, 1) == SQLITE_NULL) {
      problem(pRule, bxPrintf(pErr, "table %Q has no column %Q", pFrom->zTable,
                         pFrom->zKey));
    } else if (sqlite3_column_type(pStmt, 2) == SQLITE_NULL) {
      problem(pRule, bxPrintf(pErr, "table %Q has no column %Q", pFrom->zTable,
                         pFrom->zTime));
    } else if (!sqlite3_column_int(pStmt, 3)) {
      problem(pRule, bxPrintf(pErr, "column %Q of table %Q is not unique",
                         pFrom->zKey, pFrom->zTable));
    }
    pRule->zBytes = bxColumnCopy(pStmt, 4, pErr);
  }
  sqlite3_finalize(pStmt);
}

/* The time of a row in milliseconds, and what is due, in the words of its own
** column, so that an index on that column serves the rule. */
static void makeTime(RetentionRule *pRule, const Source *pFrom, BxErr *pErr) {
  i64 iCut = pFrom->iCut > 0 ? pFrom->iCut : 0; /* nothing is that old */
  const char *z = pFrom->zTime;
  if (strcmp(pFrom->zFormat, "text") == 0) {
    pRule->zAt = bxPrintf(pErr,
        "CAST(round((julianday(\"%w\") - 2440587.5) * 86400000.0) AS INTEGER)",
        z);
    /* a date is at most a day away from the UTC date */
    pRule->zDue = bxPrintf(pErr,
        "\"%w\" < strftime('%%Y-%%m-%%d', %lld.0 / 1000 + 172800, 'unixepoch')"
        " AND \"%w\" GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*'"
        " AND %s < %lld",
        z, iCut, z, pRule->zAt ? pRule->zAt : "", iCut);
    pRule->zUpTo = bxPrintf(pErr, "1");
  } else if (strcmp(pFrom->zFormat, "s") == 0) {
    pRule->zAt = bxPrintf(pErr, "CAST(\"%w\" * 1000 AS INTEGER)", z);
    pRule->zDue = bxPrintf(pErr,
        "\"%w\" < %lld.%03d AND typeof(\"%w\") IN ('integer', 'real')", z,
        iCut / 1000, (int)(iCut % 1000), z);
    pRule->zUpTo = bxPrintf(pErr, "\"%w\" < (?1 + 1) / 1000.0", z);
  } else {
    pRule->zAt = bxPrintf(pErr, "CAST(\"%w\" AS INTEGER)", z);
    pRule->zDue = bxPrintf(pErr,
        "\"%w\" < %lld AND typeof(\"%w\") IN ('integer', 'real')", z, iCut, z);
    pRule->zUpTo = bxPrintf(pErr, "\"%w\" < ?1 + 1", z);
  }
}

static void makeTableRule(
    RetentionRule *pRule, const Source *pFrom, BxErr *pErr) {
  if (isOurs(pFrom->p, pFrom->zTable, pErr)) {
    problem(pRule,
        bxPrintf(pErr, "table %Q belongs to blackbox, which has rules for it",
            pFrom->zTable));
    return;
  }
  readFacts(pRule, pFrom, pErr);
  pRule->zFrom = bxPrintf(pErr, "\"%w\".\"%w\"", pFrom->p->zDb, pFrom->zTable);
  pRule->zKey = bxPrintf(pErr, "\"%w\"", pFrom->zKey);
  pRule->zBlocked = bxPrintf(
      pErr, "CASE WHEN \"%w\" IS NULL THEN 'its key is NULL' END", pFrom->zKey);
  pRule->bOwn = 1;
  makeTime(pRule, pFrom, pErr);
}

/*-------------------------------------------------------------- all rules --*/

/* Whether SQLite accepts the SQL of a rule; otherwise its message becomes the
** problem. */
static void tryRule(RetentionRule *pRule, BxStmts *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  char *zSql;
  if (pRule->zProblem != 0 || pErr->rc != SQLITE_OK) return;
  zSql = bxPrintf(pErr, "SELECT %s, %s, %s, %s FROM %s WHERE %s AND %s",
      pRule->zKey, pRule->zBytes, pRule->zAt, pRule->zBlocked, pRule->zFrom,
      pRule->zDue, pRule->zFree);
  if (zSql == 0) return;
  sqlite3_finalize(bxPlain(p->bx->db, zSql, &err));
  sqlite3_free(zSql);
  if (err.rc == SQLITE_ERROR) {
    problem(pRule, bxPrintf(pErr, "%s", err.zMsg));
    bxClear(&err);
  }
  bxPass(pErr, &err);
}

static void makeRule(RetentionRule *pRule, BxStmts *p, sqlite3_stmt *pRow,
    i64 iNow, BxErr *pErr) {
  Source from = {p, 0, 0, 0, 0, 0, 0};
  const BxDue *pDue;
  pRule->zRule = bxColumnCopy(pRow, 0, pErr);
  pRule->zDomain = bxColumnCopy(pRow, 1, pErr);
  pRule->zTable = bxColumnCopy(pRow, 3, pErr);
  pRule->nAge = sqlite3_column_int64(pRow, 7);
  pRule->zReason = bxColumnCopy(pRow, 8, pErr);
  from.zView = bxColumnText(pRow, 2, pErr);
  from.zTable = bxColumnText(pRow, 3, pErr);
  from.zKey = bxColumnText(pRow, 4, pErr);
  from.zTime = bxColumnText(pRow, 5, pErr);
  from.zFormat = bxColumnText(pRow, 6, pErr);
  from.iCut = iNow - pRule->nAge;
  if (pErr->rc != SQLITE_OK) return;
  pDue = findDue(p->bx, pRule->zRule);
  if (sqlite3_column_int(pRow, 9)) {
    problem(pRule, bxPrintf(pErr, "its setting does not exist"));
  } else if (pDue != 0) {
    makeDueRule(pRule, &from, pDue, pErr);
  } else if (from.zView != 0) {
    makeViewRule(pRule, &from, pErr);
  } else if (from.zTable == 0 || from.zKey == 0 || from.zTime == 0) {
    problem(pRule, bxPrintf(pErr, "it names no table, key and time"));
  } else {
    makeTableRule(pRule, &from, pErr);
  }
  if (pRule->zFree == 0 && pRule->zBlocked != 0) {
    pRule->zFree = bxPrintf(pErr, "(%s) IS NULL", pRule->zBlocked);
  }
  tryRule(pRule, p, pErr);
}

void bxRetentionRead(
    RetentionRules *pRules, BxStmts *p, i64 iNow, BxErr *pErr) {
  sqlite3_stmt *pRow;
  memset(pRules, 0, sizeof(*pRules));
  if (pErr->rc != SQLITE_OK) return;
  pRow = bxPrepare(p, zRules, pErr);
  while (bxRow(pRow, pErr)) {
    RetentionRule *a =
        bxGrow(pRules->a, pRules->n, &pRules->nAlloc, sizeof(*a), pErr);
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
    if (rules.a[i].zProblem == 0) continue;
    bxProblem(pOut, "retention_rules",
        "rule %s is not applied: %s; correct the rule, or delete it",
        rules.a[i].zRule, rules.a[i].zProblem);
  }
  bxRetentionFree(&rules);
  bxUnchecked(pOut, "retention_rules", &err);
  bxRetentionCheckHolds(p, pOut);
  bxRetentionCheckErased(p, pOut);
}

/*------------------------------------------------------------ the plan ----*/

/* retention_plan([now]) is one query: the due rows of all rules, in the order in which
** they fell due. A rule that cannot be applied is left out; blackbox_check() lists it.
** A thing that two rules take is listed once for each of them. */

/* One rule's part of the plan. */
static void appendRule(
    sqlite3_str *pSql, const RetentionRule *pRule, i64 iNow) {
  if (sqlite3_str_length(pSql) > 0) sqlite3_str_appendall(pSql, " UNION ALL ");
  sqlite3_str_appendf(pSql,
      "SELECT %Q AS domain, %Q AS tbl, %s AS k, %s AS bytes, %Q AS rule,"
      " %s AS at, %s + %lld AS due, %lld - %s AS age, %Q AS reason,"
      " %s AS blocked FROM %s WHERE %s",
      pRule->zDomain, pRule->zTable, pRule->zKey, pRule->zBytes, pRule->zRule,
      pRule->zAt, pRule->zAt, pRule->nAge, iNow, pRule->zAt, pRule->zReason,
      pRule->zBlocked, pRule->zFrom, pRule->zDue);
}

sqlite3_stmt *bxRetentionPlan(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *p = bxHome(bx, "retention", pErr);
  i64 iNow = bxRuleTime(p, apArg[0], 0, pErr);
  RetentionRules rules;
  sqlite3_stmt *pStmt = 0;
  sqlite3_str *pSql = sqlite3_str_new(bx->db);
  char *zPlan, *zSql = 0;
  int i;
  bxRetentionRead(&rules, p, iNow, pErr);
  for (i = 0; i < rules.n && pErr->rc == SQLITE_OK; i++) {
    if (rules.a[i].zProblem == 0) appendRule(pSql, &rules.a[i], iNow);
  }
  bxRetentionFree(&rules);
  zPlan = bxFinish(pSql, pErr);
  zSql = bxPrintf(pErr,
      "SELECT domain, tbl, k, bytes, rule, at, due, age, reason, blocked"
      " FROM (%s) ORDER BY due, rule, k COLLATE BINARY",
      zPlan ? zPlan
            : "SELECT 0 AS domain, 0 AS tbl, 0 AS k, 0 AS bytes,"
              " 0 AS rule, 0 AS at, 0 AS due, 0 AS age, 0 AS reason,"
              " 0 AS blocked WHERE 0");
  if (zSql != 0) pStmt = bxPlain(bx->db, zSql, pErr);
  sqlite3_free(zSql);
  sqlite3_free(zPlan);
  return pStmt;
}
