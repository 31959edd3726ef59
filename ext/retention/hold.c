/*
** hold.c: retention_hold() and retention_release().
**
** The rules are in sql/retention.sql: a function is one INSERT there. Here are the
** checks whose messages show the value, and the comparison of retention__in_force
** with the log.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Whether a table with records has the key. */
static int hasKey(BxStmts *p, const BxRecords *pPart, const char *zKind,
    const char *zKey, BxErr *pErr) {
  int n, bHas;
  const char *z = bxRetentionColumn(pPart->zKinds, zKind, &n);
  char *zSql;
  if (z == 0) return 0;
  zSql = bxPrintf(pErr,
      "SELECT EXISTS (SELECT 1 FROM %s AS t WHERE t.%.*s = "
      "iif(?2 = 'rollout', lower(?1), ?1))",
      pPart->zTable, n, z);
  bHas = zSql && bxQueryIntOnce(p, zSql, pErr, "tt", zKey, zKind) != 0;
  sqlite3_free(zSql);
  return bHas;
}

/* Whether a virtual table of p's schema has the key. */
static int vtabHasKey(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  const BxModule *pModule;
  int n, bFound = 0;
  for (pModule = p->bx->aModule; pModule->zName != 0; pModule++) {
    const BxRecords *pPart = pModule->aRecords;
    sqlite3_stmt *pStmt = bxRetentionColumn(pPart->zKinds, zKind, &n) && !bFound
                              ? bxVtabNames(p, pModule->zName, pErr)
                              : 0;
    while (pStmt != 0 && !bFound && bxStep(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      BxVtab *pVtab =
          zName ? bxVtabIn(p->bx, pModule->zName, p->zDb, zName, pErr) : 0;
      bFound = pVtab != 0 && hasKey(&pVtab->stmts, pPart, zKind, zKey, pErr);
    }
    sqlite3_finalize(pStmt);
  }
  return bFound;
}

/* Whether the thing is there: in the first table of a domain that has the kind, a table
** of an adapter, or a virtual table. */
static int isFound(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  int i, bFound;
  assert(zKind != 0 && zKey != 0);
  bFound = strcmp(zKind, "buffer") == 0 &&
           bxQueryIntOnce(p,
               "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = "
               "'table' AND lower(name) = lower(?1) AND sql LIKE "
               "'create virtual table%')",
               pErr, "t", zKey) != 0;
  for (i = 1; i < p->bx->nDomain && !bFound; i++) {
    const BxRecords *pPart = p->bx->aDomain[i].aRecords;
    bFound = pPart != 0 &&
             bxSchemaHasDomain(p->bx, p->zDb, p->bx->aDomain[i].zName, pErr) &&
             hasKey(p, pPart, zKind, zKey, pErr);
  }
  if (!bFound && bxRetentionHasAdapter(p, pErr)) {
    bFound = hasKey(p, bxRetentionAdapters, zKind, zKey, pErr);
  }
  return bFound || vtabHasKey(p, zKind, zKey, pErr);
}

/* The kinds whose keys SQLite compares without regard to case. */
#define KEY(kind, key)                                                         \
  "iif(" kind " IN ('rollout', 'buffer'), lower(" key "), " key ")"
/* The owner's hold on that thing, as it is now. */
#define ITS_HOLD                                                               \
  " FROM main.retention__in_force WHERE kind = ?1 AND \"key\" = " KEY(         \
      "?1", "?2") " AND owner = ?3"

/* What a step says. */
typedef struct HoldStep {
  const char *zKind, *zKey, *zOwner, *zActor, *zReason;
  int bRelease, bFound;
  sqlite3_value *pUntil; /* as it was given; NULL: no end */
  i64 iUntil;
} HoldStep;

static int hasHold(BxStmts *p, const HoldStep *pStep, BxErr *pErr) {
  return bxQueryInt(p, "SELECT EXISTS (SELECT 1" ITS_HOLD ")", pErr, "ttt",
             pStep->zKind, pStep->zKey, pStep->zOwner) != 0;
}

/* Writes a step. Errors show the values. */
static void writeStep(BxStmts *p, const HoldStep *pStep, BxErr *pErr) {
  static const char zShorter[] =
      "SELECT 'HeldError: ' || owner || ' holds ' || kind || ' ' || \"key\" ||"
      " coalesce(' until ' || until, ' without an end') ||"
      " ', and a hold can be lengthened and not shortened, got ' ||"
      " coalesce(?4, 'no end') || '; give a later time, or NULL for no "
      "end'" ITS_HOLD " AND NOT coalesce(?4 IS NULL OR ?4 >= until, 0)";
  static const char zNone[] =
      "SELECT 'NotFoundError: ' || ?3 || ' has no hold on ' || ?1 || ' ' || ?2"
      " || '; SELECT kind, key, owner FROM retention_holds lists the holds'"
      " WHERE ?4 IS NULL AND NOT EXISTS (SELECT 1" ITS_HOLD ")";
  static const char zHoldStep[] =
      "INSERT INTO main.retention__step(kind, \"key\", owner, actor, reason, "
      "released, found, until) VALUES(?1, " KEY(
          "?1", "?2") ", ?3, ?4, ?5, ?6,"
                      " iif(?6, NULL, ?7), ?8)";
  char *zWhy = bxQueryText(p, pStep->bRelease ? zNone : zShorter, pErr, "tttv",
      pStep->zKind, pStep->zKey, pStep->zOwner, pStep->pUntil);
  if (zWhy != 0) bxFail(pErr, SQLITE_CONSTRAINT, "%s", zWhy);
  sqlite3_free(zWhy);
  bxStmtExec(p, zHoldStep, pErr, pStep->pUntil != 0 ? "tttttiii" : "tttttii",
      pStep->zKind, pStep->zKey, pStep->zOwner, pStep->zActor, pStep->zReason,
      (i64)pStep->bRelease, (i64)pStep->bFound, pStep->iUntil);
}

/* How many owners hold the thing now. */
static i64 countOwners(BxStmts *p, const HoldStep *pStep, BxErr *pErr) {
  static const char zOwners[] =
      "SELECT count(*) FROM main.retention__holds "
      "WHERE kind = ?1 AND \"key\" = " KEY("?1", "?2");
  return bxQueryInt(p, zOwners, pErr, "tt", pStep->zKind, pStep->zKey);
}

sqlite3_stmt *bxRetentionConversations(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  char *zIds =
      strcmp(zKind, "session") == 0 ? bxSessionConversations(p, zKey, pErr) : 0;
  sqlite3_stmt *pRow =
      zIds ? bxPrepare(p, "SELECT value FROM json_each(?1)", pErr) : 0;
  if (pRow != 0) bxBind(pRow, pErr, "c", zIds);
  sqlite3_free(zIds);
  return pRow;
}

/* A session of a program is a conversation of ours: the step is on that. Returns how many
** there were, and in *pnOwner how many hold the last of them. */
static int stepOnConversations(
    BxStmts *p, const HoldStep *pStep, i64 *pnOwner, BxErr *pErr) {
  int n = 0;
  sqlite3_stmt *pRow =
      bxRetentionConversations(p, pStep->zKind, pStep->zKey, pErr);
  while (pRow != 0 && bxStep(pRow, pErr)) {
    HoldStep step = *pStep;
    step.zKind = "rollout";
    step.zKey = bxColumnText(pRow, 0, pErr);
    step.bFound = !step.bRelease;
    if (pErr->rc != SQLITE_OK || (step.bRelease && !hasHold(p, &step, pErr))) {
      continue;
    }
    writeStep(p, &step, pErr);
    *pnOwner = countOwners(p, &step, pErr);
    n++;
  }
  sqlite3_finalize(pRow);
  return n;
}

/* Makes a step, and returns how many owners hold the thing now. */
static void makeStep(
    BxCall *p, int bRelease, i64 iUntil, sqlite3_value *pOptions) {
  static const char *const azName[] = {
      "kind", "key", "owner", "actor", "reason"};
  static const int anMost[] = {100, 1100, 1024, 1024, 65536};
  const char *az[5];
  HoldStep step = {0, 0, 0, 0, 0, bRelease, 0, 0, iUntil};
  i64 nOwner = 0;
  int i, nDone, bRemember;
  BxStmts *pHome;
  assert(bRelease == 0 || bRelease == 1);
  assert(iUntil >= 0 || p->err.rc != SQLITE_OK);
  for (i = 0; i < 5; i++) {
    az[i] = bxText(p->aArg[i], azName[i], anMost[i], 0, &p->err);
    if (i == 0 && az[0] != 0 &&
        !bxIsColumn(
            az[0], "agent,event,kill_switch,rollout,session,evidence,buffer")) {
      bxRefuse(&p->err,
          "ValidationError: kind must be agent, event, kill_switch, rollout, "
          "session, evidence or buffer, got %s",
          p->aArg[0]);
    }
  }
  pHome = bxDomainSchema(p->bx, "retention", &p->err);
  if (p->err.rc != SQLITE_OK) return;
  step.zKind = az[0];
  step.zKey = az[1];
  step.zOwner = az[2];
  step.zActor = az[3];
  step.zReason = az[4];
  step.pUntil = bRelease ? 0 : bxArg(p, 5);
  bxLogBegin(pHome, &p->err);
  bRemember = bxRetentionOptions(pHome, pOptions, ",remember,", &p->err) != 0;
  nDone = stepOnConversations(pHome, &step, &nOwner, &p->err);
  step.bFound = !bRelease && isFound(pHome, az[0], az[1], &p->err);
  if (!bRelease && nDone == 0 && !step.bFound && !bRemember) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "NotFoundError: there is no %s %s, and nothing is held; to hold what "
        "comes later, pass '{\"remember\":true}' as seventh argument",
        az[0], az[1]);
  }
  if (nDone == 0 || step.bFound || bRemember ||
      (bRelease && hasHold(pHome, &step, &p->err))) {
    writeStep(pHome, &step, &p->err);
    nOwner = countOwners(pHome, &step, &p->err);
  }
  if (!bRelease) {
    bxRetentionNoteHeld(pHome, &p->err);
    bxLogNoteHeld(pHome, BX_HELD_MANY, &p->err);
  }
  bxReturnInt(p, nOwner);
}

void bxRetentionHold(BxCall *p) {
  sqlite3_value *pUntil = bxArg(p, 5), *pOptions = bxArg(p, 6);
  i64 iUntil = pUntil ? bxInt(pUntil, "until, the milliseconds since 1970 UTC",
                            bxNow() + 1, BX_MAX_TIME, &p->err)
                      : 0;
  makeStep(p, 0, iUntil, pOptions);
}

void bxRetentionRelease(BxCall *p) {
  makeStep(p, 1, 0, 0);
}

#define HOLD_COLUMNS "kind, \"key\", owner, until, step, found"

/* SQL: what the log says is in force, and what of that is lost. The subjects of
** steps are ranges of the index of the log. */
#define IN_FORCE                                                               \
  "WITH step AS (SELECT max(n) AS n, act, subject, owner, until, found "       \
  "FROM (SELECT l.n AS n, l.kind AS act, l.subject AS subject, "               \
  "l.detail ->> 'owner' AS owner, l.detail ->> 'until' AS until, "             \
  "l.detail ->> 'found' AS found FROM json_each('[\"agent\",\"event\","        \
  "\"kill_switch\",\"rollout\",\"session\",\"evidence\",\"buffer\"]') AS k "   \
  "CROSS JOIN main.blackbox__log AS l "                                        \
  "ON l.subject > k.value || ':' AND l.subject < k.value || ';' "              \
  "WHERE l.domain = 'retention' AND l.kind IN ('hold', 'release') "            \
  "AND json_valid(l.detail) AND " BX_LOG_SIGNED(                               \
      "l") ") "                                                                \
           "GROUP BY subject, owner), "                                        \
           "hold(" HOLD_COLUMNS ") AS ("                                       \
           "SELECT substr(subject, 1, instr(subject, ':') - 1), "              \
           "substr(subject, instr(subject, ':') + 1), owner, until, n, found " \
           "FROM step WHERE act = 'hold'), "                                   \
           "lost AS (SELECT * FROM hold EXCEPT SELECT " HOLD_COLUMNS           \
           " FROM main.retention__in_force WHERE owner <> '')"

static void checkInForce(BxStmts *p, BxProblems *pOut) {
  static const char zSql[] = IN_FORCE
      " SELECT 'retention__in_force', 'the hold of ' || owner || ' on ' || "
      "kind "
      "|| ' ' || \"key\" || ' is in the log and not here, so that it keeps "
      "nothing; run blackbox_install()' FROM lost UNION ALL "
      "SELECT 'retention__in_force', 'the hold of ' || owner || ' on ' || kind "
      "|| ' ' || \"key\" || ' is not in the log; end it with "
      "retention_release()' FROM (SELECT " HOLD_COLUMNS
      " FROM main.retention__in_force WHERE owner <> '' EXCEPT SELECT * FROM "
      "hold)";
  BxErr err = {SQLITE_OK, 0};
  bxProblemRows(pOut, bxPrepare(p, zSql, &err), "retention__in_force", 0, &err);
}

void bxRetentionCheckHolds(BxStmts *p, BxProblems *pOut) {
  static const char zSql[] = "SELECT kind, \"key\", owner "
                             "FROM main.retention_holds WHERE found = 1";
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = bxPrepare(p, zSql, &err);
  checkInForce(p, pOut);
  while (bxStep(pStmt, &err)) {
    const char *zKind = bxColumnText(pStmt, 0, &err);
    const char *zKey = bxColumnText(pStmt, 1, &err);
    const char *zOwner = bxColumnText(pStmt, 2, &err);
    if (err.rc == SQLITE_OK && !isFound(p, zKind, zKey, &err) &&
        err.rc == SQLITE_OK) {
      bxProblem(pOut, "retention__in_force",
          "what %s holds is gone: %s %s was there when the hold was placed, "
          "and was removed behind the guards",
          zOwner, zKind, zKey);
    }
  }
  sqlite3_finalize(pStmt);
  bxProblemError(pOut, "retention__in_force", &err);
}

int bxRetentionIsWhole(BxStmts *p, BxErr *pErr) {
  return !bxQueryNumber(
      p, IN_FORCE " SELECT EXISTS (SELECT 1 FROM lost)", pErr);
}

void bxRetentionMend(BxStmts *p, BxErr *pErr) {
  bxExec(p,
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail) " IN_FORCE
      " SELECT 'core', 'repair', 'retention__in_force',"
      " json_object('missing', n) FROM (SELECT count(*) AS n FROM lost)"
      " WHERE n > 0; "
      "REPLACE INTO main.retention__in_force(" HOLD_COLUMNS ") " IN_FORCE
      " SELECT * FROM lost",
      pErr);
}

void bxRetentionLeave(BxStmts *p, BxErr *pErr) {
  char *z = bxQueryText(p,
      "SELECT kind || ' ' || \"key\" || ' by ' || owner "
      "FROM main.retention__holds WHERE owner <> '' ORDER BY step LIMIT 1",
      pErr, "");
  if (z != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "HeldError: schema %s has holds in force, such as that on %s; release "
        "them with retention_release() first",
        p->zDb, z);
  }
  sqlite3_free(z);
}

/* Virtual tables learn that a hold was placed. */
void bxRetentionNoteHeld(BxStmts *p, BxErr *pErr) {
  const BxModule *pModule;
  for (pModule = p->bx->aModule; pModule->zName != 0; pModule++) {
    sqlite3_stmt *pStmt =
        pModule->xHeld ? bxVtabNames(p, pModule->zName, pErr) : 0;
    while (pStmt != 0 && bxStep(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      BxVtab *pVtab =
          zName ? bxVtabIn(p->bx, pModule->zName, p->zDb, zName, pErr) : 0;
      if (pVtab != 0) pModule->xHeld(pVtab, pErr);
    }
    sqlite3_finalize(pStmt);
  }
}
