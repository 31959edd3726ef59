/*
** plan.c: retention_plan([now]): everything that would go now, and what a rule
** would take but a pin or a hold keeps. It only reads.
**
** It is one query: the due rows of all rules, in the order in which they fell
** due. A rule that cannot be applied is left out; blackbox_check() lists it. A
** thing that two rules take is listed once for each of them.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

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
