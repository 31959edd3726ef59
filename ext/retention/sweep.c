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

/* What the sweep has to do with one rule, and has done. */
typedef struct Share {
  char *zKeys;      /* of the rows to remove: literals, with commas */
  i64 nPicked;      /* how many; 0: none */
  i64 nGone, nByte; /* removed so far */
  int bStuck;       /* its rows stay: it is not tried again */
} Share;

typedef struct SweepRun {
  BxStmts *p;
  RetentionRules rules;
  Share *aShare; /* one for each rule */
  i64 nLeft;     /* of the limit */
  int bMore;     /* more rows are due than the limit allows */
} SweepRun;

/*---------------------------------------------------------------- choice --*/

/* The rows that go next, as a query: of each rule how many, their keys as a list of
** literals, and whether there are more. NULL if no rule is left. */
static sqlite3_stmt *prepareChoice(SweepRun *pRun, i64 nRow, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(pRun->p->bx->db);
  sqlite3_stmt *pStmt = 0;
  char *zArms, *zSql;
  int i;
  for (i = 0; i < pRun->rules.n; i++) {
    const RetentionRule *pRule = &pRun->rules.a[i];
    if (pRun->aShare[i].bStuck) continue;
    sqlite3_str_appendf(pSql,
        "%sSELECT * FROM (SELECT %d AS i, k, at + %lld AS due, %Q AS rule"
        " FROM (%s) WHERE free ORDER BY at, k COLLATE BINARY LIMIT %lld)",
        sqlite3_str_length(pSql) > 0 ? " UNION ALL " : "", i, pRule->nAge,
        pRule->az[RULE_RULE], pRule->az[RULE_ROWS], nRow + 1);
  }
  zArms = bxStrFinish(pSql, pErr);
  if (zArms == 0) return 0;
  zSql = bxPrintf(pErr,
      "SELECT i, count(*) FILTER (WHERE r <= %lld), group_concat(quote(k))"
      " FILTER (WHERE r <= %lld), max(r) > %lld FROM (SELECT i, k, row_number()"
      " OVER (ORDER BY due, rule, k COLLATE BINARY) AS r FROM (%s))"
      " WHERE r <= %lld GROUP BY i",
      nRow, nRow, nRow, zArms, nRow + 1);
  if (zSql != 0) pStmt = bxPrepareSql(pRun->p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  sqlite3_free(zArms);
  return pStmt;
}

/* Chooses the next rows. What is blocked now is not removed, even if the removal of
** others ends that: an expired item can be what keeps its session. */
static void chooseBatch(SweepRun *pRun, BxErr *pErr) {
  sqlite3_stmt *pStmt = prepareChoice(
      pRun, pRun->nLeft < SWEEP_BATCH ? pRun->nLeft : SWEEP_BATCH, pErr);
  int i;
  for (i = 0; i < pRun->rules.n; i++) {
    pRun->aShare[i].nPicked = 0;
    sqlite3_free(pRun->aShare[i].zKeys);
    pRun->aShare[i].zKeys = 0;
  }
  pRun->bMore = 0;
  while (pStmt != 0 && bxStep(pStmt, pErr)) {
    Share *pShare = &pRun->aShare[sqlite3_column_int(pStmt, 0)];
    pShare->nPicked = sqlite3_column_int64(pStmt, 1);
    pShare->zKeys = bxColumnCopy(pStmt, 2, pErr);
    pRun->bMore |= sqlite3_column_int(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
}

/*--------------------------------------------------------------- removal --*/

/* Figures of the chosen rows that exist. */
typedef struct Figures {
  i64 nRow, nByte, iOldest, iNewest;
} Figures;

static Figures measure(SweepRun *pRun, int i, BxErr *pErr) {
  Figures figures = {0, 0, 0, 0};
  char *zSql = bxPrintf(pErr,
      "SELECT count(*), sum(bytes), min(at), max(at) FROM (%s) WHERE free AND k"
      " IN (%s)",
      pRun->rules.a[i].az[RULE_ROWS], pRun->aShare[i].zKeys);
  sqlite3_stmt *pStmt = zSql ? bxPrepareSql(pRun->p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  if (bxStep(pStmt, pErr)) {
    figures.nRow = sqlite3_column_int64(pStmt, 0);
    figures.nByte = sqlite3_column_int64(pStmt, 1);
    figures.iOldest = sqlite3_column_int64(pStmt, 2);
    figures.iNewest = sqlite3_column_int64(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
  return figures;
}

/* Records that a rule was not applied. */
static void refuseRule(SweepRun *pRun, int i, const char *zWhy, BxErr *pErr) {
  char **az = pRun->rules.a[i].az;
  pRun->aShare[i].bStuck = 1;
  bxLogRefusal(pRun->p, az[RULE_DOMAIN], az[RULE_RULE], zWhy, pErr);
}

/* Tells the triggers of a domain which rule removes; 0: none any more. */
static void noteRule(SweepRun *pRun, int i, int bBegin, BxErr *pErr) {
  const RetentionRule *pRule = &pRun->rules.a[i];
  if (pRule->zNote == 0) return;
  bxStmtExec(pRun->p, pRule->zNote, pErr, "t",
      bBegin ? strchr(pRule->az[RULE_RULE], '.') + 1 : 0);
}

/* Removes the chosen rows of a rule. The receipt for rows of the user's table is
** written here. */
static void removeChosen(SweepRun *pRun, int i, BxErr *pErr) {
  static const char zReceipt[] =
      "INSERT INTO main.blackbox__log(at, domain, detail, actor, rows, bytes,"
      " oldest, newest, salt)"
      " VALUES(?1, ?2, ?3, 'retention_sweep', ?4, ?5, ?1 - ?6, ?7 - ?6, NULL)";
  const RetentionRule *pRule = &pRun->rules.a[i];
  Share *pShare = &pRun->aShare[i];
  Figures was = measure(pRun, i, pErr), left;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  char *zSql;
  if (pErr->rc != SQLITE_OK || was.nRow == 0) return; /* gone with others */
  zSql = bxPrintf(pErr, "DELETE FROM %s WHERE %s AND %s AND %s IN (%s)",
      pRule->az[RULE_FROM], pRule->az[RULE_DUE], pRule->az[RULE_FREE],
      pRule->az[RULE_KEY], pShare->zKeys);
  pStmt = zSql ? bxPrepareSql(pRun->p->bx->db, zSql, pErr) : 0;
  sqlite3_free(zSql);
  noteRule(pRun, i, 1, pErr);
  if (pErr->rc == SQLITE_OK) bxStep(pStmt, &err);
  sqlite3_finalize(pStmt);
  if (bxErrMayIgnore(pRun->p, &err)) {
    refuseRule(pRun, i, err.zMsg, pErr);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
  noteRule(pRun, i, 0, pErr);
  left = measure(pRun, i, pErr);
  pShare->bStuck |= left.nRow > 0; /* a trigger of the user kept them */
  if (pRule->bOwn && was.nRow > left.nRow) {
    bxStmtExec(pRun->p, zReceipt, pErr, "ittiiii", bxNow(),
        pRule->az[RULE_DOMAIN], pRule->az[RULE_RULE], was.nRow - left.nRow,
        was.nByte - left.nByte, was.iOldest, was.iNewest);
  }
  pShare->nGone += was.nRow - left.nRow;
  pShare->nByte += was.nByte - left.nByte;
}

/*-------------------------------------------------------------- the sweep --*/

/* Removes what is chosen, and chooses again as long as there are more rows. */
static void sweep(SweepRun *pRun, BxErr *pErr) {
  int i;
  for (i = 0; i < pRun->rules.n && pErr->rc == SQLITE_OK; i++) {
    const char *zWhy = pRun->rules.a[i].az[RULE_PROBLEM];
    if (zWhy != 0) refuseRule(pRun, i, zWhy, pErr);
  }
  do {
    chooseBatch(pRun, pErr);
    for (i = 0; i < pRun->rules.n && pErr->rc == SQLITE_OK; i++) {
      Share *pShare = &pRun->aShare[i];
      if (pShare->nPicked == 0) continue;
      removeChosen(pRun, i, pErr);
      if (!pShare->bStuck) pRun->nLeft -= pShare->nPicked;
    }
  } while (pRun->bMore && pRun->nLeft > 0 && pErr->rc == SQLITE_OK);
}

/* How many rows stay that are due, and why, as a JSON object: {"held":2}. If more are
** due, nobody has looked at all of them: then NULL. */
static char *leftRows(SweepRun *pRun, int bMore, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(pRun->p->bx->db);
  char *zSql, *zLeft = 0;
  int i;
  sqlite3_str_appendall(pSql,
      "SELECT json_group_object(why, n) FROM (SELECT why, count(*) AS n FROM"
      " (SELECT NULL AS why");
  for (i = 0; i < pRun->rules.n && !bMore; i++) {
    const RetentionRule *pRule = &pRun->rules.a[i];
    if (pRule->az[RULE_PROBLEM] != 0) continue;
    sqlite3_str_appendf(pSql,
        " UNION ALL SELECT coalesce(blocked, 'refused') FROM (%s) WHERE NOT"
        " free%s",
        pRule->az[RULE_ROWS], pRun->aShare[i].bStuck ? " OR 1" : "");
  }
  sqlite3_str_appendall(pSql, ") WHERE why IS NOT NULL GROUP BY why)");
  zSql = bxStrFinish(pSql, pErr);
  if (zSql != 0 && !bMore) {
    sqlite3_stmt *pStmt = bxPrepareSql(pRun->p->bx->db, zSql, pErr);
    if (bxStep(pStmt, pErr)) zLeft = bxColumnCopy(pStmt, 0, pErr);
    sqlite3_finalize(pStmt);
  }
  sqlite3_free(zSql);
  return zLeft;
}

/* {"removed":3,"bytes":120,"byRule":{"payload.age":3},"left":{"held":1},"more":false} */
static void returnSweep(BxCall *p, SweepRun *pRun) {
  sqlite3_str *pBy = sqlite3_str_new(p->bx->db);
  i64 nGone = 0, nByte = 0;
  char *zByRule, *zLeft;
  int i, bMore;
  for (i = 0; i < pRun->rules.n; i++) {
    const Share *pShare = &pRun->aShare[i];
    const char *zRule = pRun->rules.a[i].az[RULE_RULE];
    if (pShare->nGone == 0) continue;
    if (nGone > 0) sqlite3_str_appendchar(pBy, 1, ',');
    bxJsonAppend(pBy, zRule, (int)strlen(zRule));
    sqlite3_str_appendf(pBy, ":%lld", pShare->nGone);
    nGone += pShare->nGone;
    nByte += pShare->nByte;
  }
  zByRule = bxStrFinish(pBy, &p->err);
  bMore = pRun->bMore && nGone > 0;
  zLeft = leftRows(pRun, bMore, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(
        p, sqlite3_mprintf("{\"removed\":%lld,\"bytes\":%lld,\"byRule\":{%s},"
                           "\"left\":%s,\"more\":%s}",
               nGone, nByte, zByRule ? zByRule : "", zLeft ? zLeft : "null",
               bMore ? "true" : "false"));
  }
  sqlite3_free(zLeft);
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
  SweepRun run = {0, {0, 0, 0}, 0, SWEEP_ROWS, 0};
  i64 iNow, nLimit;
  int i;
  run.p = bxDomainSchema(p->bx, "retention", &p->err);
  if (run.p == 0) return;
  bxLogBegin(run.p, &p->err);
  if (bxArg(p, 0)) {
    run.nLeft = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  nLimit = run.nLeft;
  iNow = bxRuleTime(run.p, bxArg(p, 1), 1, &p->err);
  bxRetentionRead(&run.rules, run.p, iNow, &p->err);
  run.aShare = bxZalloc(sizeof(Share) * (size_t)(run.rules.n + 1), &p->err);
  if (p->err.rc == SQLITE_OK) sweep(&run, &p->err);
  /* (A row inside a transaction could not be rolled back.) */
  if (p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db)) {
    bxRetentionStored(run.p, nLimit, &p->err);
  }
  if (p->err.rc == SQLITE_OK) returnSweep(p, &run);
  for (i = 0; run.aShare != 0 && i < run.rules.n; i++) {
    sqlite3_free(run.aShare[i].zKeys);
  }
  sqlite3_free(run.aShare);
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
