/*
** hold.c: retention_hold() and retention_release().
**
** The rules are in sql/retention.sql: a step is one INSERT there. Here is what an act on
** a key is given, what is found of it, and the comparison of retention__in_force with the
** log.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*---------------------------------------------------------- arguments ----*/

/* Whether a word is one of "agent, event or text", up to a parenthesis. */
static int isKindIn(const char *zKind, const char *zKinds) {
  size_t n = strlen(zKind);
  while (*zKinds != 0 && *zKinds != '(') {
    size_t nWord = strcspn(zKinds, ", ");
    if (nWord == n && strncmp(zKinds, zKind, n) == 0) break;
    zKinds += nWord + strspn(zKinds + nWord, ", ");
  }
  return *zKinds != 0 && *zKinds != '(' && strcmp(zKind, "or") != 0;
}

void bxRetentionRefuse(BxErr *pErr, char *zOwned) {
  if (zOwned != 0) bxFail(pErr, SQLITE_CONSTRAINT, "%s", zOwned);
  sqlite3_free(zOwned);
}

BxStmts *bxRetentionAct(BxCall *p, const char *zDomain, const char *zKinds,
    int n, const char **az) {
  static const char *const azName[] = {
      "kind", "key", "owner", "actor", "reason"};
  static const int anMost[] = {100, 100000, 1024, 1024, 65536};
  /* nothing hides in the actor and in the reason */
  static const char zHidden[] =
      "SELECT 'ValidationError: ' || name || ' must be visible text without"
      " control characters; a reason may have tabs and line ends' FROM"
      " main.retention__clock, (SELECT 'actor' AS name, ?1 AS said, char(1, 45,"
      " 31, 127, 45, 159) AS controls UNION ALL SELECT 'reason', ?2,"
      " char(1, 45, 8, 11, 12, 14, 45, 31, 127, 45, 159))"
      " WHERE said GLOB '*[' || controls || ']*' OR"
      " (unicode(ltrim(said, unseen)) BETWEEN 917504 AND 921599) IS NOT 0";
  BxStmts *pHome;
  int i;
  assert(n == 4 || n == 5);
  for (i = 0; i < n; i++) {
    int j = i + (n == 4 && i >= 2);
    az[i] = bxText(p->aArg[i], azName[j], anMost[j], 0, &p->err);
    if (i == 0 && az[0] != 0 && !isKindIn(az[0], zKinds)) {
      bxRefuseArg(&p->err, "kind", zKinds, p->aArg[0]);
    }
  }
  pHome = bxDomainSchema(p->bx, zDomain, &p->err);
  if (p->err.rc != SQLITE_OK) return 0;
  bxLogBegin(pHome, &p->err);
  bxRetentionRefuse(&p->err,
      bxQueryText(pHome, zHidden, &p->err, "tt", az[n - 2], az[n - 1]));
  return pHome;
}

int bxRetentionOptions(
    BxStmts *p, sqlite3_value *pVal, const char *zNames, BxErr *pErr) {
  static const char zSql[] =
      "SELECT coalesce(CASE WHEN json_valid(?1) THEN CASE WHEN json_type(?1)"
      " = 'object' AND NOT EXISTS (SELECT 1 FROM json_each(?1) WHERE instr("
      "' ' || ?2 || ' ', ' ' || key || ' ') = 0 OR type NOT IN ('true',"
      " 'false')) THEN coalesce(?1 ->> 'unpin', 0) + 2 * coalesce(?1 ->>"
      " 'remember', 0) END END, -1)";
  i64 n = pVal ? bxQueryInt(p, zSql, pErr, "vt", pVal, zNames) : 0;
  if (n >= 0) return (int)n;
  bxRefuse(pErr,
      "ValidationError: options must be a JSON object with the member "
      "remember, for an erasure also unpin, each true or false, got %s; omit "
      "it, or pass '{\"remember\":true}'",
      pVal);
  return 0;
}

/*------------------------------------------------------ what is there ----*/

const char *bxRetentionColumn(const char *zKinds, const char *zKind, int *pn) {
  size_t nKind = strlen(zKind);
  for (; *zKinds; zKinds = strchr(zKinds, ',') + 1) {
    if (strncmp(zKinds, zKind, nKind) != 0 || zKinds[nKind] != '=') continue;
    *pn = (int)strcspn(zKinds + nKind + 1, ",");
    return zKinds + nKind + 1;
  }
  return 0;
}

sqlite3_stmt *bxRetentionConversations(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  char *zIds =
      strcmp(zKind, "session") == 0 ? bxSessionConversations(p, zKey, pErr) : 0;
  return zIds ? bxJsonRows(p->bx, "SELECT value FROM json_each(?1)", zIds, pErr)
              : 0;
}

/* Whether a table with records has the key. */
static int hasKey(BxStmts *p, const BxRecords *pPart, const char *zKind,
    const char *zKey, BxErr *pErr) {
  int n;
  const char *z = bxRetentionColumn(pPart->zKinds, zKind, &n);
  char *zSql;
  if (z == 0) return 0;
  zSql = bxPrintf(pErr,
      "SELECT EXISTS (SELECT 1 FROM %s AS t WHERE t.%.*s = "
      "iif(?2 = 'rollout', lower(?1), ?1))",
      pPart->zTable, n, z);
  return bxQueryIntMade(p, zSql, pErr, "tt", zKey, zKind) != 0;
}

/* Whether the thing is there: in the first table of a domain that has the kind, a table
** of an adapter, or a virtual table. */
static int isFound(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr) {
  BxVtabWalk walk = {p, 0, 0};
  BxVtab *pVtab;
  int i, bFound = 0;
  assert(zKind != 0 && zKey != 0);
  for (i = 1; i < p->bx->nDomain && !bFound; i++) {
    const BxRecords *pPart = p->bx->aDomain[i].aRecords;
    bFound = pPart != 0 &&
             bxSchemaHasDomain(p->bx, p->zDb, p->bx->aDomain[i].zName, pErr) &&
             hasKey(p, pPart, zKind, zKey, pErr);
  }
  if (!bFound && bxRetentionHasAdapter(p, pErr)) {
    bFound = hasKey(p, bxRetentionAdapters, zKind, zKey, pErr);
  }
  while (!bFound && (pVtab = bxVtabNext(&walk, pErr)) != 0) {
    bFound =
        hasKey(&pVtab->stmts, pVtab->pModule->aRecords, zKind, zKey, pErr) ||
        (strcmp(zKind, "buffer") == 0 &&
            sqlite3_stricmp(pVtab->stmts.zTable, zKey) == 0);
  }
  sqlite3_finalize(walk.pNames);
  return bFound;
}

/*-------------------------------------------------------------- steps ----*/

#define HOLD_KINDS                                                             \
  "agent, event, kill_switch, rollout, session, evidence or buffer"

/* SQL: the holds on thing ?1, ?2. */
#define ON_IT(holds)                                                           \
  " FROM main." holds " WHERE kind = ?1 AND \"key\" ="                         \
  " iif(?1 IN ('rollout', 'buffer'), lower(?2), ?2)"

/* Makes a step, with kind, key, owner, actor and reason, if there is something to hold or
** to release, or else bMust. Returns how many owners hold the thing now; -1: no step. */
static i64 makeStep(BxStmts *p, const char *const az[5], int bRelease,
    int bFound, int bMust, i64 iUntil, BxErr *pErr) {
  static const char zHas[] =
      "SELECT count(*)" ON_IT("retention__in_force") " AND owner = ?3";
  static const char zOwners[] = "SELECT count(*)" ON_IT("retention__holds");
  static const char zHoldStep[] =
      "INSERT INTO main.retention_holds(kind, \"key\", owner, actor, reason,"
      " released, found, until) VALUES(?1, ?2, ?3, ?4, ?5, ?6,"
      " iif(?6, NULL, ?7), nullif(?8, 0))";
  bMust |= bFound ||
           (bRelease && bxQueryInt(p, zHas, pErr, "ttt", az[0], az[1], az[2]));
  if (!bMust || pErr->rc != SQLITE_OK) return -1;
  assert(!bRelease || !bFound);
  bxStmtExec(p, zHoldStep, pErr, "tttttiii", az[0], az[1], az[2], az[3], az[4],
      (i64)bRelease, (i64)bFound, iUntil);
  if ((pErr->rc & 0xff) == SQLITE_CONSTRAINT && pErr->zMsg != 0) {
    const char *zThen = strchr(pErr->zMsg, ';');
    if (zThen == 0) zThen = "";
    bxErrReword(pErr, sqlite3_mprintf("%.*s (the hold of %Q on %s %Q)%s",
                          (int)(strlen(pErr->zMsg) - strlen(zThen)), pErr->zMsg,
                          az[2], az[0], az[1], zThen));
  }
  return bxQueryInt(p, zOwners, pErr, "tt", az[0], az[1]);
}

static void noteHeld(BxStmts *p, BxErr *pErr) {
  BxVtabWalk walk = {p, 0, 0};
  BxVtab *pVtab;
  while ((pVtab = bxVtabNext(&walk, pErr)) != 0) {
    if (pVtab->pModule->xHeld != 0) pVtab->pModule->xHeld(pVtab, pErr);
  }
}

/* retention_hold() and retention_release(). A session of a program is a conversation of
** ours: the step is on that. */
void bxRetentionStep(BxCall *p) {
  int bRelease = p->pDef->nMax == 5; /* it has neither an end nor options */
  const char *az[5];
  BxStmts *pHome = bxRetentionAct(p, "retention", HOLD_KINDS, 5, az);
  i64 iUntil = 0, nOwner = -1, n;
  int bFound, bRemember = 0;
  sqlite3_stmt *pRow;
  if (p->err.rc != SQLITE_OK) return;
  if (!bRelease) {
    if (bxArg(p, 5) != 0) {
      iUntil = bxInt(p->aArg[5], "until, a time in milliseconds after now,",
          bxNow() + 1, BX_MAX_TIME, &p->err);
    }
    bRemember = bxRetentionOptions(pHome, bxArg(p, 6), "remember", &p->err);
  }
  pRow = bxRetentionConversations(pHome, az[0], az[1], &p->err);
  while (pRow != 0 && bxStep(pRow, &p->err)) {
    const char *azIt[] = {
        "rollout", bxColumnText(pRow, 0, &p->err), az[2], az[3], az[4]};
    n = makeStep(pHome, azIt, bRelease, !bRelease, 0, iUntil, &p->err);
    if (n >= 0) nOwner = n;
  }
  sqlite3_finalize(pRow);
  bFound = !bRelease && isFound(pHome, az[0], az[1], &p->err);
  if (!bRelease && nOwner < 0 && !bFound && !bRemember) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "NotFoundError: there is no %s %Q, and nothing is held; to hold what "
        "comes later, pass '{\"remember\":true}' as seventh argument",
        az[0], az[1]);
  }
  n = makeStep(
      pHome, az, bRelease, bFound, nOwner < 0 || bRemember, iUntil, &p->err);
  if (!bRelease) {
    noteHeld(pHome, &p->err);
    bxLogNoteHeld(pHome, BX_HELD_MANY, &p->err);
  }
  bxReturnInt(p, n >= 0 ? n : nOwner);
}

/*------------------------------------------------------------ the log ----*/

#define HOLD_COLUMNS "kind, \"key\", owner, until, step, found"

/* SQL: what the log says is held, what is held, and what of the first is lost. The
** subjects of steps are ranges of the index of the log. */
/* clang-format off */
#define IN_FORCE                                                               \
  "WITH logged AS (SELECT max(l.n) AS step, l.kind AS act, k.value AS kind,"   \
  " substr(l.subject, length(k.value) + 2) AS \"key\", l.detail ->> 'owner'"   \
  " AS owner, l.detail ->> 'until' AS until, l.detail ->> 'found' AS found"    \
  " FROM json_each('[\"agent\",\"event\",\"kill_switch\",\"rollout\","         \
  "\"session\",\"evidence\",\"buffer\"]') AS k CROSS JOIN"                     \
  " main.blackbox__log AS l ON l.subject > k.value || ':' AND l.subject <"     \
  " k.value || ';' WHERE l.domain = 'retention' AND l.kind IN ('hold',"        \
  " 'release') AND json_valid(l.detail) AND " BX_LOG_SIGNED("l")               \
  " GROUP BY 3, 4, 5), hold AS (SELECT " HOLD_COLUMNS " FROM logged WHERE"     \
  " act = 'hold'), held AS (SELECT " HOLD_COLUMNS                              \
  " FROM main.retention__in_force WHERE owner <> ''),"                         \
  " lost AS (SELECT * FROM hold EXCEPT SELECT * FROM held) "
/* clang-format on */

void bxRetentionCheckHolds(BxStmts *p, BxProblems *pOut) {
  static const char zInForce[] = IN_FORCE
      "SELECT 'retention__in_force', 'the hold of ' || owner || ' on ' || kind"
      " || ' ' || \"key\" || why FROM (SELECT *, ' is in the log and not here,"
      " so that it keeps nothing; run blackbox_install()' AS why FROM lost"
      " UNION ALL SELECT *, ' is not in the log; end it with"
      " retention_release()' FROM (SELECT * FROM held EXCEPT SELECT * FROM"
      " hold))";
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  bxProblemRows(
      pOut, bxPrepare(p, zInForce, &err), "retention__in_force", 0, &err);
  pStmt = bxPrepare(p,
      "SELECT kind, \"key\", owner FROM main.retention_holds WHERE found = 1",
      &err);
  while (bxStep(pStmt, &err)) {
    const char *zKind = bxColumnText(pStmt, 0, &err);
    const char *zKey = bxColumnText(pStmt, 1, &err);
    const char *zOwner = bxColumnText(pStmt, 2, &err);
    if (err.rc != SQLITE_OK) break;
    if (isFound(p, zKind, zKey, &err) || err.rc != SQLITE_OK) continue;
    bxProblem(pOut, "retention__in_force",
        "what %s holds is gone: %s %s was there when the hold was placed, "
        "and was removed behind the guards",
        zOwner, zKind, zKey);
  }
  sqlite3_finalize(pStmt);
  bxProblemError(pOut, "retention__in_force", &err);
}

int bxRetentionIsWhole(BxStmts *p, BxErr *pErr) {
  return !bxQueryNumber(p, IN_FORCE "SELECT EXISTS (SELECT 1 FROM lost)", pErr);
}

void bxRetentionMend(BxStmts *p, BxErr *pErr) {
  bxExec(p,
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail) " IN_FORCE
      "SELECT 'core', 'repair', 'retention__in_force',"
      " json_object('missing', n) FROM (SELECT count(*) AS n FROM lost)"
      " WHERE n > 0; "
      "REPLACE INTO main.retention__in_force(" HOLD_COLUMNS ") " IN_FORCE
      "SELECT * FROM lost",
      pErr);
}

void bxRetentionLeave(BxStmts *p, BxErr *pErr) {
  static const char zHas[] =
      "SELECT 'HeldError: schema ' || ?1 || ' has holds in force, such as that"
      " on ' || kind || ' ' || \"key\" || ' by ' || owner || '; release them"
      " with retention_release() first' FROM main.retention__holds"
      " WHERE owner <> '' ORDER BY step LIMIT 1";
  bxRetentionRefuse(pErr, bxQueryText(p, zHas, pErr, "t", p->zDb));
}
