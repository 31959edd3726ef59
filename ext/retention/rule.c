/*
** rule.c: the rules of retention_rules: what each removes, as SQL that is made once. The
** plan, the report and the sweep are queries of these rows, so that they always agree.
**
** A rule of a domain is in its descriptor (BxDue), or names its due view. A rule of the
** user names a table, its unique key, and the column with the time of a row; or a view with
** a condition, which as a text would run with the rights of the caller. A rule that cannot
** be applied, because its view, table or column is gone, or because the table belongs to
** blackbox, has a problem instead; all other rules are applied.
**
** A sweep removes what the plan lists and nothing blocks, the oldest due first, by one
** DELETE for each rule: on the table or the due view of a domain, whose triggers write the
** receipt, or on the table of the user. Then the body store loses as many texts of rows
** that are gone. A rule that cannot be applied, or whose DELETE is refused (by a trigger or
** a foreign key of the user), leaves a refusal in the log and its rows stay; the other
** rules go on. Other errors, such as a full disk, end the sweep, which has changed nothing.
*/
#include "retention.h"
#include "../core/model.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The texts of a rule. From RULE_DELETE on they are SQL without parameters. */
enum {
  RULE_RULE,
  RULE_DOMAIN,
  RULE_TABLE,
  RULE_REASON,
  RULE_DELETE, /* from the due view or the table, WHERE its unique key */
  RULE_ROWS, /* what is due: k, bytes, at, blocked (why it stays), free (whether NULL) */
  RULE_PROBLEM, /* why the rule cannot be applied, or NULL */
  RULE_CHOSEN,  /* after FROM: those of RULE_ROWS that the sweep removes next */
  RULE_TEXTS
};

/* One row of retention_rules. */
typedef struct RetentionRule {
  char *az[RULE_TEXTS];
  const char *zNote; /* see BxDue; NULL: no note */
  int eOwn; /* the sweep writes the receipt, no trigger; 2: it names a table */
  i64 nAge; /* milliseconds from its time until a row is due */
  i64 nPicked;      /* rows that the sweep removes next */
  i64 nGone, nByte; /* that it has removed */
  int bStuck;       /* its rows stay: it is not tried again */
} RetentionRule;

typedef struct RetentionRules {
  BxStmts *p; /* of the schema */
  RetentionRule *a;
  i64 n, nAlloc;
  i64 nLeft; /* rows that the sweep may still remove */
  int bMore; /* more are due */
} RetentionRules;

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
    " timed AS (SELECT *, iif(format = 'text', printf('CAST(round((julianday("
    "%s) - 2440587.5) * 86400000.0) AS INTEGER)', t),"
    "  printf('CAST(%s * %d AS INTEGER)', t, unit)) AS its FROM named)"
    "SELECT rule, domain, coalesce(\"table\", \"view\"), reason,"
    " printf('DELETE FROM %s WHERE %s', \"from\", k),"
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
    "  WHEN NOT (EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = 'table'"
    "   AND name = source COLLATE NOCASE AND sql NOT LIKE 'CREATE VIRTUAL %')"
    "   AND (sum(c.pk > 0) = 1"
    "     AND max(c.pk * (c.name = \"key\" COLLATE NOCASE)) = 1"
    "    OR lower(\"key\") = 'rowid'"
    "     AND NOT max(c.name = 'rowid' COLLATE NOCASE)"
    "    OR EXISTS (SELECT 1 FROM pragma_index_list(source, ?1) AS i"
    "     WHERE i.\"unique\" AND NOT i.partial AND (SELECT group_concat(name)"
    "      = rule.\"key\" COLLATE NOCASE FROM pragma_index_info(i.name, ?1)))))"
    "  THEN printf('there is no table %Q with a unique column %Q', source,"
    "   \"key\") END,"
    " age, iif(\"view\" IS NULL, 2, domain = 'user')"
    " FROM timed AS rule LEFT JOIN pragma_table_xinfo(source, ?1) AS c"
    "  ON \"view\" IS NULL GROUP BY rule ORDER BY rule";

static void freeRetention(RetentionRules *pRules) {
  while (pRules->n > 0) {
    RetentionRule *pRule = &pRules->a[--pRules->n];
    int i;
    for (i = 0; i < RULE_TEXTS; i++) sqlite3_free(pRule->az[i]);
  }
  sqlite3_free(pRules->a);
  pRules->a = 0;
}

static void setText(RetentionRule *pRule, int i, char *zOwned, BxErr *pErr) {
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
  char *zKey = 0, *z, *zDue = 0;
  i64 iAt = 0;
  assert(pDue->zAt != 0 && pDue->zKey != 0);
  if (strstr(pDue->zRule, ".file_bytes") == 0) {
    zDue = bxPrintf(pErr, "%d AND %s < %lld", iCut > 0, pDue->zAt, iCut);
  } else if (bxFileLimitReach(p, pDue, &iAt, &zKey, pErr)) {
    zDue =
        bxPrintf(pErr, "(%s < %lld OR (%s = %lld AND %s COLLATE BINARY <= %Q))",
            pDue->zAt, iAt, pDue->zAt, iAt, pDue->zKey, zKey);
  }
  sqlite3_free(zKey);
  z = bxPrintf(pErr,
      "SELECT %s AS k, %s AS bytes, %s AS at, %s AS blocked, %s AS free"
      " FROM main.%s WHERE (%s) AND ",
      pDue->zKey, pDue->zBytes, pDue->zAt, pDue->zBlocked, pDue->zFree,
      pDue->zTable, pDue->zWhere);
  if (pErr->rc == SQLITE_OK) {
    char *zRows = bxCheckMem(bxExpand(z, p->zDb, 0), pErr);
    setText(pRule, RULE_ROWS, sqlite3_mprintf("%z%s", zRows, zDue ? zDue : "0"),
        pErr);
    setText(pRule, RULE_DELETE,
        sqlite3_mprintf(
            "DELETE FROM \"%w\".%s WHERE %s", p->zDb, pDue->zTable, pDue->zKey),
        pErr);
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
  assert(sqlite3_column_count(pRow) == RULE_PROBLEM + 3);
  for (i = 0; i <= RULE_PROBLEM; i++) az[i] = bxColumnCopy(pRow, i, pErr);
  pRule->nAge = sqlite3_column_int64(pRow, RULE_PROBLEM + 1);
  pRule->eOwn = sqlite3_column_int(pRow, RULE_PROBLEM + 2);
  if (pErr->rc != SQLITE_OK) return;
  pDue = findDue(p->bx, az[RULE_RULE]);
  if (pDue != 0 && az[RULE_PROBLEM] == 0) {
    takeDue(pRule, p, pDue, iNow - pRule->nAge, pErr);
  } else if (pDue == 0 && pRule->eOwn == 2 && isOurs(p, az[RULE_TABLE], pErr)) {
    setText(pRule, RULE_PROBLEM,
        sqlite3_mprintf("table %Q belongs to blackbox, which has rules for it",
            az[RULE_TABLE]),
        pErr);
  }
  if (pErr->rc != SQLITE_OK || az[RULE_PROBLEM] != 0) return;
  sqlite3_finalize(bxPrepareSql(p->bx->db, az[RULE_ROWS], &err));
  if (err.rc == SQLITE_ERROR) {
    setText(pRule, RULE_PROBLEM, sqlite3_mprintf("%s", err.zMsg), pErr);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

/* Reads the rules of p\'s schema, for the time iNow. End with freeRetention(). */
static void readRetention(
    RetentionRules *pRules, BxStmts *p, i64 iNow, BxErr *pErr) {
  sqlite3_stmt *pRow;
  memset(pRules, 0, sizeof(*pRules));
  pRules->p = p;
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
  readRetention(&rules, p, bxNow(), &err);
  for (i = 0; i < rules.n && err.rc == SQLITE_OK; i++) {
    if (rules.a[i].az[RULE_PROBLEM] == 0) continue;
    bxProblem(pOut, "retention_rules",
        "rule %s is not applied: %s; correct the rule, or delete it",
        rules.a[i].az[RULE_RULE], rules.a[i].az[RULE_PROBLEM]);
  }
  freeRetention(&rules);
  bxProblemError(pOut, "retention_rules", &err);
  bxRetentionCheckHolds(p, pOut);
  bxRetentionCheckErased(p, pOut);
}

/* A query, the template zSelect, of the table "rows": the due rows of all rules that can be
** applied, with the rest of the SELECT of each rule. Both texts are freed. Its columns are
** i (the rule's place), domain, tbl, rule, reason, stuck, k, bytes, at, due, blocked,
** free. */
static sqlite3_stmt *prepareRows(
    const RetentionRules *pRules, char *zRest, char *zSelect, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(0);
  i64 i;
  char *z = 0;
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
  if (bxCheckMem(zRest, pErr) && bxCheckMem(zSelect, pErr) && pRules->p != 0) {
    z = bxCheckMem(bxExpand(zSelect, pRules->p->zDb, 0), pErr);
  }
  assert(z != 0 || pErr->rc != SQLITE_OK);
  sqlite3_str_appendf(pSql, ") %z", z);
  sqlite3_free(zRest);
  sqlite3_free(zSelect);
  z = bxStrFinish(pSql, pErr);
  return bxPrepareOwned(pRules->p ? pRules->p->bx->db : 0, z, pErr);
}

/* retention_plan([now]) is one query: the due rows of all rules, in the order in which
** they fell due. A rule that cannot be applied is left out; blackbox_check() lists it.
** A thing that two rules take is listed once for each of them. */
sqlite3_stmt *bxRetentionPlan(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *p = bxDomainSchema(bx, "retention", pErr);
  i64 iNow = bxRuleTime(p, apArg[0], 0, pErr);
  RetentionRules rules;
  sqlite3_stmt *pStmt;
  readRetention(&rules, p, iNow, pErr);
  pStmt = prepareRows(&rules, sqlite3_mprintf(""),
      sqlite3_mprintf(
          "SELECT domain, tbl, k, bytes, rule, at, due, %lld - at, reason,"
          " blocked FROM rows ORDER BY due, rule, k COLLATE BINARY",
          iNow),
      pErr);
  freeRetention(&rules);
  return pStmt;
}

/* retention_report([now]): where the bytes of the file are, and what would give some of
** them back. A row for each domain has the bytes of its data, from the counters of the
** domain or from an index, without reading the data; and what a sweep would remove now.
** Rows for the file have its pages, the free ones among them, which later writes use again
** but only VACUUM or incremental_vacuum gives back, and the -wal. */
sqlite3_stmt *bxRetentionReport(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zFile[] =
      " ORDER BY 1 LIMIT 99) LEFT JOIN (SELECT domain, count(*) AS due,"
      " sum(bytes) AS size FROM rows GROUP BY domain) ON domain = d"
      " UNION ALL SELECT 'file', NULL, NULL, NULL, NULL, page_size *"
      " page_count, NULL FROM pragma_page_count(?1), pragma_page_size(?1)"
      " UNION ALL SELECT 'free', NULL, NULL, NULL, NULL, ?3 * page_size,"
      " iif(auto_vacuum, 'PRAGMA incremental_vacuum', 'VACUUM')"
      " FROM pragma_page_size(?1), pragma_auto_vacuum(?1)"
      " UNION ALL VALUES('wal', NULL, NULL, NULL, NULL, ?2,"
      " 'PRAGMA wal_checkpoint(TRUNCATE)')";
  BxStmts *p = bxDomainSchema(bx, "retention", pErr);
  sqlite3_stmt *pStmt;
  sqlite3_str *pSql;
  RetentionRules rules;
  int i;
  if (p == 0) return 0;
  readRetention(&rules, p, bxRuleTime(p, apArg[0], 0, pErr), pErr);
  pSql = sqlite3_str_new(bx->db);
  sqlite3_str_appendall(pSql,
      "SELECT d, n, b, coalesce(due, 0), coalesce(size, 0), NULL,"
      " 'retention_sweep' FROM (SELECT 'user' AS d, NULL AS n, NULL AS b");
  for (i = 0; i < bx->nDomain; i++) {
    const BxDomain *pDomain = &bx->aDomain[i];
    if (pDomain->zSize == 0 ||
        !bxSchemaHasDomain(bx, p->zDb, pDomain->zName, pErr)) {
      continue;
    }
    sqlite3_str_appendf(pSql, " UNION ALL SELECT %Q, rows, bytes FROM (%s)",
        pDomain->zName, pDomain->zSize);
  }
  sqlite3_str_appendall(pSql, zFile);
  pStmt = prepareRows(
      &rules, sqlite3_mprintf("WHERE free"), bxStrFinish(pSql, pErr), pErr);
  bxBind(pStmt, pErr, "cii", p->zDb, bxWalBytes(bx, p->zDb),
      bxQueryNumber(p, "PRAGMA main.freelist_count", pErr));
  freeRetention(&rules);
  return pStmt;
}

/*----------------------------------------------------------------- sweep --*/

#define SWEEP_ROWS 1000   /* the default limit */
#define SWEEP_BATCH 20000 /* rows that are chosen at once */

/* Chooses the rows that go next: of each rule how many, and their keys. What is blocked
** now is not removed, even if the removal of others ends that: an expired item can be
** what keeps its session. */
static void chooseBatch(RetentionRules *pRun, BxErr *pErr) {
  i64 n = pRun->nLeft < SWEEP_BATCH ? pRun->nLeft : SWEEP_BATCH, i;
  sqlite3_stmt *pStmt = prepareRows(pRun,
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
  for (i = 0; i < pRun->n; i++) pRun->a[i].nPicked = 0;
  pRun->bMore = 0;
  while (bxStep(pStmt, pErr)) {
    RetentionRule *pRule = &pRun->a[sqlite3_column_int(pStmt, 0)];
    pRule->nPicked = sqlite3_column_int64(pStmt, 1);
    setText(pRule, RULE_CHOSEN,
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
  assert(pRule->az[RULE_CHOSEN] != 0 || pErr->rc != SQLITE_OK);
  for (i = 0; i < 4; i++) a[i] = bRow ? sqlite3_column_int64(pStmt, i) : 0;
  sqlite3_finalize(pStmt);
}

static void refuseRule(
    BxStmts *p, RetentionRule *pRule, const char *zWhy, BxErr *pErr) {
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
      sqlite3_mprintf(
          "%s IN (SELECT k FROM %s)", az[RULE_DELETE], az[RULE_CHOSEN]),
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
static void sweep(RetentionRules *pRun, BxErr *pErr) {
  RetentionRule *p, *pEnd = pRun->a + pRun->n;
  assert(pRun->nLeft > 0);
  for (p = pRun->a; p < pEnd && pErr->rc == SQLITE_OK; p++) {
    if (p->az[RULE_PROBLEM] == 0) continue;
    refuseRule(pRun->p, p, p->az[RULE_PROBLEM], pErr);
  }
  do {
    chooseBatch(pRun, pErr);
    for (p = pRun->a; p < pEnd && pErr->rc == SQLITE_OK; p++) {
      if (p->nPicked == 0) continue;
      removeChosen(pRun->p, p, pErr);
      if (!p->bStuck) pRun->nLeft -= p->nPicked;
    }
  } while (pRun->bMore && pRun->nLeft > 0 && pErr->rc == SQLITE_OK);
}

/* {"removed":3,"bytes":120,"byRule":{"payload.age":3},"left":{"held":1},"more":false}
** left: how many rows stay that are due, and why. If more are due, nobody has looked at
** all of them: then it is null. */
static void returnSweep(BxCall *p, RetentionRules *pRun) {
  static const char zLeft[] =
      "(SELECT json_group_object(why, n) FROM (SELECT coalesce(blocked,"
      " 'refused') AS why, count(*) AS n FROM rows GROUP BY why))";
  sqlite3_str *pBy = sqlite3_str_new(p->bx->db);
  i64 nGone = 0, nByte = 0, i;
  sqlite3_stmt *pStmt;
  char *zByRule;
  int bMore;
  for (i = 0; i < pRun->n; i++) {
    const RetentionRule *pRule = &pRun->a[i];
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
  pStmt = prepareRows(pRun, sqlite3_mprintf("WHERE NOT free OR stuck"),
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
  if (bxSchemaHasDomain(p->bx, p->zDb, "store", pErr) &&
      bxQueryNumber(p, zAny, pErr)) {
    sqlite3_free(bxQueryTextInner(p, zStore, pErr, "it", nLimit, p->zDb));
  }
}

void bxRetentionSweep(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "retention", &p->err);
  RetentionRules run;
  i64 iNow;
  if (pHome == 0) return;
  bxLogBegin(pHome, &p->err);
  iNow = bxRuleTime(pHome, bxArg(p, 1), 1, &p->err);
  readRetention(&run, pHome, iNow, &p->err);
  run.nLeft = bxLimit(p, 0, SWEEP_ROWS);
  if (p->err.rc == SQLITE_OK) sweep(&run, &p->err);
  /* (A row inside a transaction could not be rolled back.) */
  if (p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db)) {
    bxRetentionStored(pHome, bxLimit(p, 0, SWEEP_ROWS), &p->err);
  }
  if (p->err.rc == SQLITE_OK) returnSweep(p, &run);
  freeRetention(&run);
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
