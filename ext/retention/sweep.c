/*
** sweep.c: retention_sweep([limit[, now]]): removes what retention_plan() lists
** and nothing blocks, oldest due first, at most limit rows of the plan. And
** retention_confirm_clock().
**
** The rows are chosen with the SQL of the plan (rule.c), and one DELETE for each rule
** removes them by their keys: on the table or the due view of a domain, whose triggers
** write the receipt, or on the table of the user. Then the body store loses at most as
** many texts of rows that are gone.
**
** A rule that cannot be applied, or whose DELETE is refused (by a trigger or a
** foreign key of the user), leaves a refusal in the log and its rows stay;
** the other rules go on. Other errors, such as a full disk, end the sweep, which
** then has changed nothing.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_ROWS 1000   /* the default limit */
#define SWEEP_BATCH 20000 /* rows that are chosen at once */

typedef struct SweepRun {
  BxStmts *p;
  RetentionRules rules;
  i64 nLeft; /* of the limit */
  int bMore; /* more rows are due than the limit allows */
} SweepRun;

/* Chooses the rows that go next: of each rule how many, and their keys. What is blocked
** now is not removed, even if the removal of others ends that: an expired item can be
** what keeps its session. */
static void chooseBatch(SweepRun *pRun, BxErr *pErr) {
  i64 n = pRun->nLeft < SWEEP_BATCH ? pRun->nLeft : SWEEP_BATCH, i;
  sqlite3_stmt *pStmt = bxRetentionRows(&pRun->rules, pRun->p,
      sqlite3_mprintf("WHERE free AND NOT stuck ORDER BY at, k COLLATE BINARY"
                      " LIMIT %lld",
          n + 1),
      sqlite3_mprintf(
          "SELECT i, count(*) FILTER (WHERE r <= %lld), group_concat(quote(k))"
          " FILTER (WHERE r <= %lld), max(r) > %lld FROM (SELECT i, k,"
          " row_number() OVER (ORDER BY due, rule, k COLLATE BINARY) AS r FROM"
          " rows) WHERE r <= %lld + 1 GROUP BY i",
          n, n, n, n),
      pErr);
  assert(pRun->nLeft > 0);
  for (i = 0; i < pRun->rules.n; i++) pRun->rules.a[i].nPicked = 0;
  pRun->bMore = 0;
  while (bxStep(pStmt, pErr)) {
    RetentionRule *pRule = &pRun->rules.a[sqlite3_column_int(pStmt, 0)];
    pRule->nPicked = sqlite3_column_int64(pStmt, 1);
    bxRetentionSet(pRule, RULE_CHOSEN,
        sqlite3_mprintf("(%s) WHERE free AND k IN (%s)", pRule->az[RULE_ROWS],
            bxColumnText(pStmt, 2, pErr)),
        pErr);
    pRun->bMore |= sqlite3_column_int(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
}

/* Of the chosen rows that exist: how many, their bytes, the oldest and the newest. */
static void measure(
    BxStmts *p, const RetentionRule *pRule, i64 a[4], BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepareOwned(p->bx->db,
      sqlite3_mprintf("SELECT count(*), sum(bytes), min(at), max(at) FROM %s",
          pRule->az[RULE_CHOSEN]),
      pErr);
  int i, bRow = bxStep(pStmt, pErr);
  for (i = 0; i < 4; i++) a[i] = bRow ? sqlite3_column_int64(pStmt, i) : 0;
  sqlite3_finalize(pStmt);
}

/* Records that a rule was not applied. */
static void refuseRule(
    BxStmts *p, RetentionRule *pRule, const char *zWhy, BxErr *pErr) {
  assert(pRule->az[RULE_RULE] != 0);
  pRule->bStuck = 1;
  bxLogRefusal(p, pRule->az[RULE_DOMAIN], pRule->az[RULE_RULE], zWhy, pErr);
}

/* Removes the chosen rows of a rule. The receipt for rows of the user's table is
** written here; those of a domain are written by triggers, which are told the rule. */
static void removeChosen(BxStmts *p, RetentionRule *pRule, BxErr *pErr) {
  static const char zReceipt[] =
      "INSERT INTO main.blackbox__log(at, domain, detail, actor, rows, bytes,"
      " oldest, newest, salt)"
      " VALUES(?1, ?2, ?3, 'retention_sweep', ?4, ?5, ?1 - ?6, ?7 - ?6, NULL)";
  char **az = pRule->az;
  i64 was[4], left[4];
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  assert(pRule->nPicked > 0 && az[RULE_PROBLEM] == 0);
  measure(p, pRule, was, pErr);
  if (pErr->rc != SQLITE_OK || was[0] == 0) return; /* gone with others */
  pStmt = bxPrepareOwned(p->bx->db,
      sqlite3_mprintf("DELETE FROM %s WHERE %s IN (SELECT k FROM %s)",
          az[RULE_FROM], az[RULE_KEY], az[RULE_CHOSEN]),
      pErr);
  if (pRule->zNote != 0) {
    bxStmtExec(p, pRule->zNote, pErr, "t", strchr(az[RULE_RULE], '.') + 1);
  }
  if (pErr->rc == SQLITE_OK) bxStep(pStmt, &err);
  sqlite3_finalize(pStmt);
  if (bxErrMayIgnore(p, &err)) {
    refuseRule(p, pRule, err.zMsg, pErr);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
  if (pRule->zNote != 0) bxStmtExec(p, pRule->zNote, pErr, "n");
  measure(p, pRule, left, pErr);
  pRule->bStuck |= left[0] > 0; /* a trigger of the user kept them */
  if (pRule->eOwn && was[0] > left[0]) {
    bxStmtExec(p, zReceipt, pErr, "ittiiii", bxNow(), az[RULE_DOMAIN],
        az[RULE_RULE], was[0] - left[0], was[1] - left[1], was[2], was[3]);
  }
  pRule->nGone += was[0] - left[0];
  pRule->nByte += was[1] - left[1];
}

/* Removes what is chosen, and chooses again as long as there are more rows. */
static void sweep(SweepRun *pRun, BxErr *pErr) {
  RetentionRule *p, *pEnd = pRun->rules.a + pRun->rules.n;
  assert(pRun->nLeft > 0);
  for (p = pRun->rules.a; p < pEnd && pErr->rc == SQLITE_OK; p++) {
    char *zWhy = p->az[RULE_PROBLEM];
    if (zWhy != 0) refuseRule(pRun->p, p, zWhy, pErr);
  }
  do {
    chooseBatch(pRun, pErr);
    for (p = pRun->rules.a; p < pEnd && pErr->rc == SQLITE_OK; p++) {
      if (p->nPicked == 0) continue;
      removeChosen(pRun->p, p, pErr);
      if (!p->bStuck) pRun->nLeft -= p->nPicked;
    }
  } while (pRun->bMore && pRun->nLeft > 0 && pErr->rc == SQLITE_OK);
}

/* {"removed":3,"bytes":120,"byRule":{"payload.age":3},"left":{"held":1},"more":false}
** left: how many rows stay that are due, and why. If more are due, nobody has looked at
** all of them: then it is null. */
static void returnSweep(BxCall *p, SweepRun *pRun) {
  static const char zLeft[] =
      "(SELECT json_group_object(why, n) FROM (SELECT coalesce(blocked,"
      " 'refused') AS why, count(*) AS n FROM rows GROUP BY why))";
  sqlite3_str *pBy = sqlite3_str_new(p->bx->db);
  i64 nGone = 0, nByte = 0, i;
  sqlite3_stmt *pStmt;
  char *zByRule;
  int bMore;
  for (i = 0; i < pRun->rules.n; i++) {
    const RetentionRule *pRule = &pRun->rules.a[i];
    if (pRule->nGone == 0) continue;
    sqlite3_str_appendall(pBy, nGone > 0 ? "," : "{");
    bxJsonAppend(pBy, pRule->az[RULE_RULE], (int)strlen(pRule->az[RULE_RULE]));
    sqlite3_str_appendf(pBy, ":%lld", pRule->nGone);
    nGone += pRule->nGone;
    nByte += pRule->nByte;
  }
  bMore = pRun->bMore && nGone > 0;
  sqlite3_str_appendall(pBy, nGone > 0 ? "}" : "{}");
  zByRule = bxStrFinish(pBy, &p->err);
  pStmt = bxRetentionRows(&pRun->rules, pRun->p,
      sqlite3_mprintf("WHERE NOT free OR stuck"),
      sqlite3_mprintf(
          "SELECT json_object('removed', %lld, 'bytes', %lld, 'byRule',"
          " json(?1), 'left', json(%s), 'more', json('%s'))",
          nGone, nByte, bMore ? "'null'" : zLeft, bMore ? "true" : "false"),
      &p->err);
  bxBind(pStmt, &p->err, "t", zByRule);
  if (bxStep(pStmt, &p->err)) bxReturnJson(p, bxColumnCopy(pStmt, 0, &p->err));
  sqlite3_finalize(pStmt);
  sqlite3_free(zByRule);
}

void bxRetentionStored(BxStmts *p, i64 nLimit, BxErr *pErr) {
  static const char zAny[] = "SELECT EXISTS (SELECT 1 FROM main.store_dropped)";
  static const char zStore[] = "SELECT store_sweep(?1, ?2)";
  if (!bxSchemaHasDomain(p->bx, p->zDb, "store", pErr)) return;
  if (!bxQueryNumber(p, zAny, pErr)) return;
  sqlite3_free(bxQueryTextInner(p, zStore, pErr, "it", nLimit, p->zDb));
}

void bxRetentionSweep(BxCall *p) {
  SweepRun run = {0, {0, 0, 0}, 0, 0};
  i64 iNow, nLimit;
  run.p = bxDomainSchema(p->bx, "retention", &p->err);
  if (run.p == 0) return;
  bxLogBegin(run.p, &p->err);
  nLimit = run.nLeft = bxLimit(p, 0, SWEEP_ROWS);
  iNow = bxRuleTime(run.p, bxArg(p, 1), 1, &p->err);
  bxRetentionRead(&run.rules, run.p, iNow, &p->err);
  if (p->err.rc == SQLITE_OK) sweep(&run, &p->err);
  /* (A row inside a transaction could not be rolled back.) */
  if (p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db)) {
    bxRetentionStored(run.p, nLimit, &p->err);
  }
  if (p->err.rc == SQLITE_OK) returnSweep(p, &run);
  bxRetentionFree(&run.rules);
}

void bxRetentionConfirm(BxCall *p) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, oldest, "
      "newest) SELECT ?1, 'core', 'clock', 'confirmed', min(seen, ?1),"
      " max(seen, ?1) FROM main.retention__clock"
      " WHERE ?1 < seen OR ?1 > seen + 604800000";
  static const char zConfirm[] =
      "UPDATE main.retention__clock SET seen = ?1, due = 3600000";
  BxStmts *pHome = bxDomainSchema(p->bx, "core", &p->err);
  i64 iNow;
  if (pHome == 0) return;
  iNow = bxQueryInt(pHome, "SELECT " BX_CLOCK, &p->err, "");
  bxStmtExec(pHome, zLog, &p->err, "i", iNow);
  bxStmtExec(pHome, zConfirm, &p->err, "i", iNow);
  bxReturnInt(p, iNow);
}
