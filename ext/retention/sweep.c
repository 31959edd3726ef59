/*
** sweep.c: retention_sweep([limit[, now]]): removes what retention_plan() lists
** and nothing blocks, oldest due first, at most limit rows of the plan. And
** retention_confirm_clock().
**
** The rows are chosen with the SQL of the plan (rule.c). Of each rule they are
** its first ones by time and key, so that one DELETE removes them: on the table or the
** due view of a domain, whose triggers write the receipt, or on the table of the user,
** whose receipt is written here. Then the body store loses at most as many texts of
** rows that are gone.
**
** A rule that cannot be applied, or whose DELETE is refused (by a trigger or a
** foreign key of the user), leaves a refusal in the log and its rows stay;
** the other rules go on. Other errors, such as a full disk, end the sweep, which
** then has changed nothing.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_ROWS 1000 /* the default limit */

/* What the sweep has to do with one rule, and has done. */
typedef struct Share {
  sqlite3_value *pAt, *pKey; /* the last row to remove */
  char *zKept;               /* JSON array of keys to spare, or NULL */
  i64 nPicked;               /* rows to remove; 0: none */
  i64 nGone, nByte;          /* removed so far */
  int bStuck;                /* its rows stay: it is not tried again */
} Share;

typedef struct SweepRun {
  BxStmts *p;
  RetentionRules rules;
  Share *aShare; /* one for each rule */
  i64 nLeft;     /* of the limit */
  int bMore;     /* more rows are due than the limit allows */
} SweepRun;

/*---------------------------------------------------------------- choice --*/

static void appendArm(sqlite3_str *pSql, const SweepRun *pRun, int i) {
  const RetentionRule *pRule = &pRun->rules.a[i];
  if (sqlite3_str_length(pSql) > 0) sqlite3_str_appendall(pSql, " UNION ALL ");
  sqlite3_str_appendf(pSql,
      "SELECT * FROM (SELECT %d AS i, %s AS at, %s AS k, %s + %lld AS due,"
      " %Q AS rule FROM %s WHERE %s AND %s"
      " ORDER BY 2, 3 COLLATE BINARY LIMIT %lld)",
      i, pRule->zAt, pRule->zKey, pRule->zAt, pRule->nAge, pRule->zRule,
      pRule->zFrom, pRule->zDue, pRule->zFree, pRun->nLeft + 1);
}

/* A query of the rows to remove, and one more; NULL if no rule is left. */
static sqlite3_stmt *prepareChoice(SweepRun *pRun, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(pRun->p->bx->db);
  sqlite3_stmt *pStmt = 0;
  char *zArms, *zSql;
  int i;
  for (i = 0; i < pRun->rules.n; i++) {
    if (!pRun->aShare[i].bStuck) appendArm(pSql, pRun, i);
  }
  zArms = bxFinish(pSql, pErr);
  if (zArms == 0) return 0;
  zSql = bxPrintf(pErr,
      "SELECT i, at, k FROM (%s) ORDER BY due, rule, k COLLATE BINARY"
      " LIMIT %lld",
      zArms, pRun->nLeft + 1);
  if (zSql != 0) pStmt = bxPlain(pRun->p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  sqlite3_free(zArms);
  return pStmt;
}

/* Replaces *pp by a copy of a column. */
static void keepColumn(
    sqlite3_value **pp, sqlite3_stmt *pStmt, int iColumn, BxErr *pErr) {
  sqlite3_value_free(*pp);
  *pp = sqlite3_value_dup(sqlite3_column_value(pStmt, iColumn));
  if (*pp == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
}

/* Whether another rule of the same domain removes rows too. */
static int hasCompany(const SweepRun *pRun, int i) {
  int j;
  for (j = 0; j < pRun->rules.n; j++) {
    if (j != i && pRun->aShare[j].nPicked > 0 &&
        strcmp(pRun->rules.a[j].zDomain, pRun->rules.a[i].zDomain) == 0) {
      return 1;
    }
  }
  return 0;
}

/* Chooses the next rows. */
static void chooseBatch(SweepRun *pRun, BxErr *pErr) {
  sqlite3_stmt *pStmt = prepareChoice(pRun, pErr);
  i64 n = 0;
  int i;
  for (i = 0; i < pRun->rules.n; i++) {
    pRun->aShare[i].nPicked = 0;
    sqlite3_free(pRun->aShare[i].zKept);
    pRun->aShare[i].zKept = 0;
  }
  pRun->bMore = 0;
  while (pStmt != 0 && bxRow(pStmt, pErr)) {
    Share *pShare = &pRun->aShare[sqlite3_column_int(pStmt, 0)];
    if (n++ == pRun->nLeft) {
      pRun->bMore = 1;
      break;
    }
    keepColumn(&pShare->pAt, pStmt, 1, pErr);
    keepColumn(&pShare->pKey, pStmt, 2, pErr);
    pShare->nPicked++;
  }
  sqlite3_finalize(pStmt);
}

/*--------------------------------------------------------------- removal --*/

/* Prepares a statement on the rows of a rule up to the last one that was chosen:
** ?1 and ?2 are its time and its key. Either those that nothing blocks, without
** those in zKept; or (bKept) those that are blocked. */
static sqlite3_stmt *prepareRange(SweepRun *pRun, int i, const char *zBegin,
    const char *zColumns, int bKept, BxErr *pErr) {
  const RetentionRule *pRule = &pRun->rules.a[i];
  const Share *pShare = &pRun->aShare[i];
  sqlite3_stmt *pStmt = 0;
  char *zSql = bxPrintf(pErr,
      "%s %s FROM %s WHERE %s AND %s AND %s(%s)"
      " AND (%s < ?1 OR (%s = ?1 AND %s COLLATE BINARY <= ?2))"
      " AND (?3 IS NULL OR %s NOT IN (SELECT value FROM json_each(?3)))",
      zBegin, zColumns, pRule->zFrom, pRule->zDue, pRule->zUpTo,
      bKept ? "NOT " : "", pRule->zFree, pRule->zAt, pRule->zAt, pRule->zKey,
      pRule->zKey);
  if (zSql != 0) pStmt = bxPlain(pRun->p->bx->db, zSql, pErr);
  sqlite3_free(zSql);
  bxBind(pStmt, pErr, "vvt", pShare->pAt, pShare->pKey, pShare->zKept);
  return pStmt;
}

/* What is blocked when the rows are chosen is not removed, even if the removal of
** others ends that: an expired item can be what keeps its session. */
static void spareBlocked(SweepRun *pRun, BxErr *pErr) {
  int i;
  for (i = 0; i < pRun->rules.n && pErr->rc == SQLITE_OK; i++) {
    char *zColumns;
    sqlite3_stmt *pStmt;
    if (pRun->aShare[i].nPicked == 0 || !hasCompany(pRun, i)) continue;
    zColumns = bxPrintf(pErr,
        "json_group_array(%s) FILTER (WHERE typeof(%s) NOT IN "
        "('null', 'blob'))",
        pRun->rules.a[i].zKey, pRun->rules.a[i].zKey);
    pStmt = zColumns ? prepareRange(pRun, i, "SELECT", zColumns, 1, pErr) : 0;
    if (bxRow(pStmt, pErr)) {
      pRun->aShare[i].zKept = bxColumnCopy(pStmt, 0, pErr);
    }
    sqlite3_finalize(pStmt);
    sqlite3_free(zColumns);
  }
}

/* Figures of the chosen rows that exist. */
typedef struct Figures {
  i64 nRow, nByte, iOldest, iNewest;
} Figures;

static Figures measure(SweepRun *pRun, int i, BxErr *pErr) {
  const RetentionRule *pRule = &pRun->rules.a[i];
  Figures figures = {0, 0, 0, 0};
  char *zColumns = bxPrintf(pErr, "count(*), sum(%s), min(%s), max(%s)",
      pRule->zBytes, pRule->zAt, pRule->zAt);
  sqlite3_stmt *pStmt =
      zColumns ? prepareRange(pRun, i, "SELECT", zColumns, 0, pErr) : 0;
  if (bxRow(pStmt, pErr)) {
    figures.nRow = sqlite3_column_int64(pStmt, 0);
    figures.nByte = sqlite3_column_int64(pStmt, 1);
    figures.iOldest = sqlite3_column_int64(pStmt, 2);
    figures.iNewest = sqlite3_column_int64(pStmt, 3);
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zColumns);
  return figures;
}

/* Writes the receipt for rows of the user's table. */
static void writeReceipt(SweepRun *pRun, int i, const Figures *pWas,
    const Figures *pLeft, BxErr *pErr) {
  static const char zReceipt[] =
      "INSERT INTO main.blackbox__log(at, domain, detail, actor, rows, bytes,"
      " oldest, newest, salt)"
      " VALUES(?1, ?2, ?3, 'retention_sweep', ?4, ?5, ?1 - ?6, ?7 - ?6, NULL)";
  const RetentionRule *pRule = &pRun->rules.a[i];
  if (!pRule->bOwn || pWas->nRow == pLeft->nRow) return;
  bxDo(pRun->p, zReceipt, pErr, "ittiiii", bxNow(), pRule->zDomain,
      pRule->zRule, pWas->nRow - pLeft->nRow, pWas->nByte - pLeft->nByte,
      pWas->iOldest, pWas->iNewest);
}

/* Records that a rule was not applied, once a day. */
static void refuseRule(SweepRun *pRun, int i, const char *zWhy, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, reason)"
      " SELECT ?1, ?2, 'refusal', ?3, ?4 WHERE NOT EXISTS (SELECT 1"
      "  FROM main.blackbox__log WHERE subject = ?3 AND at > ?1 - ?5"
      "  AND kind = 'refusal' AND reason = ?4)";
  const RetentionRule *pRule = &pRun->rules.a[i];
  pRun->aShare[i].bStuck = 1;
  bxDo(pRun->p, zSql, pErr, "ittti", bxNow(), pRule->zDomain, pRule->zRule,
      zWhy, (i64)BX_MS_PER_DAY);
}

/* Tells the triggers of a domain which rule removes; 0: none any more. */
static void noteRule(SweepRun *pRun, int i, int bBegin, BxErr *pErr) {
  const RetentionRule *pRule = &pRun->rules.a[i];
  if (pRule->zNote == 0) return;
  bxDo(pRun->p, pRule->zNote, pErr, "t",
      bBegin ? strchr(pRule->zRule, '.') + 1 : 0);
}

/* Removes the chosen rows of a rule. */
static void removeChosen(SweepRun *pRun, int i, BxErr *pErr) {
  Share *pShare = &pRun->aShare[i];
  Figures was = measure(pRun, i, pErr), left;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK || was.nRow == 0) return; /* gone with others */
  pStmt = prepareRange(pRun, i, "DELETE", "", 0, pErr);
  noteRule(pRun, i, 1, pErr);
  if (pErr->rc == SQLITE_OK) bxRow(pStmt, &err);
  sqlite3_finalize(pStmt);
  if (bxMayPassOver(pRun->p, &err)) {
    refuseRule(pRun, i, err.zMsg, pErr);
    bxClear(&err);
  }
  bxPass(pErr, &err);
  noteRule(pRun, i, 0, pErr);
  left = measure(pRun, i, pErr);
  pShare->bStuck |= left.nRow > 0; /* a trigger of the user kept them */
  writeReceipt(pRun, i, &was, &left, pErr);
  pShare->nGone += was.nRow - left.nRow;
  pShare->nByte += was.nByte - left.nByte;
}

/*-------------------------------------------------------------- the sweep --*/

/* Removes what is chosen, and chooses again as long as rows of some rule stay
** that were counted. */
static void sweep(SweepRun *pRun, BxErr *pErr) {
  int i, bAgain = 1;
  for (i = 0; i < pRun->rules.n && pErr->rc == SQLITE_OK; i++) {
    const char *zWhy = pRun->rules.a[i].zProblem;
    if (zWhy != 0) refuseRule(pRun, i, zWhy, pErr);
  }
  while (bAgain && pErr->rc == SQLITE_OK) {
    chooseBatch(pRun, pErr);
    spareBlocked(pRun, pErr);
    bAgain = 0;
    for (i = 0; i < pRun->rules.n && pErr->rc == SQLITE_OK; i++) {
      Share *pShare = &pRun->aShare[i];
      if (pShare->nPicked == 0) continue;
      removeChosen(pRun, i, pErr);
      bAgain |= pShare->bStuck && pRun->bMore;
      if (!pShare->bStuck) pRun->nLeft -= pShare->nPicked;
    }
    bAgain &= pRun->nLeft > 0;
  }
}

/* {"removed":3,"bytes":120,"byRule":{"payload.age":3},"more":false} */
static void returnSweep(BxCall *p, const SweepRun *pRun) {
  sqlite3_str *pBy = sqlite3_str_new(p->bx->db);
  i64 nGone = 0, nByte = 0;
  char *zByRule;
  int i;
  for (i = 0; i < pRun->rules.n; i++) {
    const Share *pShare = &pRun->aShare[i];
    const char *zRule = pRun->rules.a[i].zRule;
    if (pShare->nGone == 0) continue;
    if (nGone > 0) sqlite3_str_appendchar(pBy, 1, ',');
    bxAppendJson(pBy, zRule, (int)strlen(zRule));
    sqlite3_str_appendf(pBy, ":%lld", pShare->nGone);
    nGone += pShare->nGone;
    nByte += pShare->nByte;
  }
  zByRule = bxFinish(pBy, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p, sqlite3_mprintf("{\"removed\":%lld,\"bytes\":%lld,"
                                    "\"byRule\":{%s},\"more\":%s}",
                        nGone, nByte, zByRule ? zByRule : "",
                        pRun->bMore && nGone > 0 ? "true" : "false"));
  }
  sqlite3_free(zByRule);
}

void bxRetentionStored(BxStmts *p, i64 nLimit, BxErr *pErr) {
  static const char zAny[] = "SELECT EXISTS (SELECT 1 FROM main.store_dropped)";
  static const char zStore[] = "SELECT store_sweep(?1, ?2)";
  if (!bxCarries(p->bx, p->zDb, "store", pErr)) return;
  if (!bxNumber(p, zAny, pErr)) return;
  sqlite3_free(bxCallInner(p, zStore, pErr, "it", nLimit, p->zDb));
}

void bxRetentionSweep(BxCall *p) {
  SweepRun run = {0, {0, 0, 0}, 0, SWEEP_ROWS, 0};
  i64 iNow, nLimit;
  int i;
  run.p = bxHome(p->bx, "retention", &p->err);
  if (run.p == 0) return;
  bxLogBegin(run.p, &p->err);
  if (bxArg(p, 0)) {
    run.nLeft = bxInt(p->aArg[0], "limit", 1, 1000000000, &p->err);
  }
  nLimit = run.nLeft;
  iNow = bxRuleTime(run.p, bxArg(p, 1), 1, &p->err);
  bxRetentionRead(&run.rules, run.p, iNow, &p->err);
  run.aShare = bxNew(sizeof(Share) * (size_t)(run.rules.n + 1), &p->err);
  if (p->err.rc == SQLITE_OK) sweep(&run, &p->err);
  /* (A row inside a transaction could not be rolled back.) */
  if (p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db)) {
    bxRetentionStored(run.p, nLimit, &p->err);
  }
  if (p->err.rc == SQLITE_OK) returnSweep(p, &run);
  for (i = 0; run.aShare != 0 && i < run.rules.n; i++) {
    sqlite3_value_free(run.aShare[i].pAt);
    sqlite3_value_free(run.aShare[i].pKey);
    sqlite3_free(run.aShare[i].zKept);
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
  BxStmts *pHome = bxHome(p->bx, "core", &p->err);
  i64 iNow;
  if (pHome == 0) return;
  iNow = bxAsk(pHome, "SELECT " BX_CLOCK, &p->err, "");
  bxDo(pHome, zLog, &p->err, "i", iNow);
  bxDo(pHome, zConfirm, &p->err, "i", iNow);
  bxReturnInt(p, iNow);
}
