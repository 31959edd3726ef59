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

/* Whether the thing is there: in the first table of a domain that has the kind, or a
** virtual table. (What rings and overflows have comes and goes.) */
static int isFound(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  int i, n, bFound = 0;
  assert(zKind != 0 && zKey != 0);
  if (strcmp(zKind, "buffer") == 0) {
    return bxQueryIntOnce(p,
               "SELECT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE type = "
               "'table' AND lower(name) = lower(?1) AND sql LIKE "
               "'create virtual table%')",
               pErr, "t", zKey) != 0;
  }
  for (i = 1; i < p->bx->nDomain && !bFound; i++) {
    const BxRecords *pPart = p->bx->aDomain[i].aRecords;
    const char *z = pPart ? bxRetentionColumn(pPart->zKinds, zKind, &n) : 0;
    char *zSql;
    if (z == 0 ||
        !bxSchemaHasDomain(p->bx, p->zDb, p->bx->aDomain[i].zName, pErr)) {
      continue;
    }
    zSql = bxPrintf(pErr,
        "SELECT EXISTS (SELECT 1 FROM %s AS t WHERE t.%.*s = "
        "iif(?2 = 'rollout', lower(?1), ?1))",
        pPart->zTable, n, z);
    bFound = zSql && bxQueryIntOnce(p, zSql, pErr, "tt", zKey, zKind) != 0;
    sqlite3_free(zSql);
  }
  return bFound;
}

/* The kinds whose keys SQLite compares without regard to case. */
#define KEY(kind, key)                                                         \
  "iif(" kind " IN ('rollout', 'buffer'), lower(" key "), " key ")"
/* The owner's hold on that thing, as it is now. */
#define ITS_HOLD                                                               \
  " FROM main.retention__in_force WHERE kind = ?1 AND \"key\" = " KEY(         \
      "?1", "?2") " AND owner = ?3"

/* Makes a step, and returns how many owners hold the thing now. Errors show the values. */
static void makeStep(
    BxCall *p, int bRelease, sqlite3_value *pUntil, i64 iUntil) {
  static const char *const azName[] = {
      "kind", "key", "owner", "actor", "reason"};
  static const int anMost[] = {100, 1100, 1024, 1024, 65536};
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
  static const char zOwners[] =
      "SELECT count(*) FROM main.retention__holds "
      "WHERE kind = ?1 AND \"key\" = " KEY("?1", "?2");
  const char *az[5];
  BxStmts *pHome;
  char *zWhy;
  int i;
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
  bxLogBegin(pHome, &p->err);
  zWhy = bxQueryText(pHome, bRelease ? zNone : zShorter, &p->err, "tttv", az[0],
      az[1], az[2], pUntil);
  if (zWhy != 0) bxFail(&p->err, SQLITE_CONSTRAINT, "%s", zWhy);
  sqlite3_free(zWhy);
  i = !bRelease && isFound(pHome, az[0], az[1], &p->err);
  bxStmtExec(pHome, zHoldStep, &p->err, pUntil != 0 ? "tttttiii" : "tttttii",
      az[0], az[1], az[2], az[3], az[4], (i64)bRelease, (i64)i, iUntil);
  if (!bRelease) {
    bxRetentionNoteHeld(pHome, &p->err);
    bxLogNoteHeld(pHome, BX_HELD_MANY, &p->err);
  }
  bxReturnInt(p, bxQueryInt(pHome, zOwners, &p->err, "tt", az[0], az[1]));
}

void bxRetentionHold(BxCall *p) {
  sqlite3_value *pUntil = bxArg(p, 5);
  i64 iUntil = pUntil ? bxInt(pUntil, "until, the milliseconds since 1970 UTC",
                            bxNow() + 1, BX_MAX_TIME, &p->err)
                      : 0;
  makeStep(p, 0, pUntil, iUntil);
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
