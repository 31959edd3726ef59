/*
** ring_watch.c: a ring looks for loops while exchanges are pushed into it.
**
** Which rules there are, and what was found, is in the schema of the archive:
** the ring's own schema, or for a ring in temp that of the payload domain. What
** is off costs nothing but to see that it is off: one number, which is read with
** the window. For a ring in temp it is read again when this connection has
** changed something, and after a second.
**
** A push that is looked at reads the steps of its agent (kept in memory, as long
** as they are those of the table), reads what is new in the bodies, and asks the
** rules. The order of writes: first the exchange; then the verdicts, with their rows
** of the log, and the stop of the agent; then the steps, or the kill switch. What of this fails after the
** exchange was written is passed over, and the log says so: a trigger of the user
** on payload_verdicts can refuse a verdict and its kill switch, not the exchange.
** A kill switch that fails can be fired by hand with the id of the verdict.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LOOK_MS 1000

/* What payload_agents says of an agent. */
typedef struct AgentRow {
  int eMode;
  int bStopped;
  i64 iStart;
} AgentRow;

enum { MODE_OFF, MODE_RECORD, MODE_KILL };

void bxRingWatchFree(Ring *p) {
  int i;
  if (p->pWatch == 0) return;
  bxRulesFree(&p->pWatch->rules);
  for (i = 0; i < TRACKS_KEPT; i++) sqlite3_free(p->pWatch->apTrack[i]);
  sqlite3_free(p->pWatch);
  p->pWatch = 0;
}

void bxRingForget(Ring *p) {
  p->nChange = -1;
  if (p->pWatch != 0) p->pWatch->rules.bRead = 0;
}

/*---------------------------------------------------------- whether to ----*/

/* What is on, as a sum of flags. */
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"
/* clang-format off */
#define RULE_FLAGS                                                             \
  "CASE " SETTING("on_loop") " WHEN 'record' THEN 1 WHEN 'kill_switch' THEN 2" \
  " ELSE 0 END + 4 * " SETTING("refuse_stopped")                               \
  " + 8 * EXISTS (SELECT 1 FROM main.payload_agents)"
#define CORE_FLAGS                                                             \
  "16 * EXISTS (SELECT 1 FROM main.retention__in_force)"                       \
  " + 32 * EXISTS (SELECT 1 FROM main.retention__erased)"
/* clang-format on */

const char *bxRingConfigSql(int eRules) {
  static const char zAll[] = "SELECT value, " RULE_FLAGS " + " CORE_FLAGS
                             " FROM main.@_config ORDER BY name DESC";
  static const char zCore[] =
      "SELECT value, " CORE_FLAGS " FROM main.@_config ORDER BY name DESC";
  return eRules == RING_RULES ? zAll : zCore;
}

static int isTemp(const Ring *p) {
  return sqlite3_stricmp(p->base.stmts.zDb, "temp") == 0;
}

static int hasTable(Ring *p, const char *zTable, BxErr *pErr) {
  return bxCanPrepare(p->base.stmts.bx,
      bxPrintf(pErr, "SELECT 1 FROM \"%w\".%s", p->base.stmts.zDb, zTable),
      pErr);
}

int bxRingHasRules(Ring *p, BxErr *pErr) {
  if (isTemp(p)) return -1;
  if (hasTable(p, "payload_rules", pErr)) return RING_RULES;
  return hasTable(p, "retention__in_force", pErr) ? RING_CORE : -1;
}

/* The schema with the rules; NULL without an error if there is none that a ring
** in temp can use. */
static BxStmts *rulesOf(Ring *p, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome;
  if (!isTemp(p)) return bxSchema(bx, p->base.stmts.zDb, pErr);
  pHome = bxHome(bx, "payload", &err);
  if (err.rc == SQLITE_ERROR) {
    bxClear(&err);
    return 0;
  }
  bxPass(pErr, &err);
  return pHome;
}

/* Counts commits by this connection, and changes by others that a transaction
** found when it began. */
static unsigned int dataVersion(Ring *p) {
  unsigned int i = 0;
  sqlite3_file_control(
      p->base.stmts.bx->db, p->base.stmts.zDb, SQLITE_FCNTL_DATA_VERSION, &i);
  return i;
}

int bxRingIsLooked(Ring *p) {
  return p->nChange == sqlite3_total_changes(p->base.stmts.bx->db) &&
         dataVersion(p) - p->iData <= 1;
}

void bxRingLookTemp(Ring *p, BxErr *pErr) {
  static const char zFlags[] = "SELECT " RULE_FLAGS;
  BxStmts *pHome;
  i64 iNow;
  if (p->eRules > 0 || !isTemp(p)) return;
  p->bSame = p->iLooked != 0 &&
             p->nChange == sqlite3_total_changes(p->base.stmts.bx->db);
  if (p->bSame) return;
  iNow = bxNow();
  if (p->iLooked != 0 && !p->bHome && iNow - p->iLooked < LOOK_MS &&
      iNow >= p->iLooked) {
    return;
  }
  p->iLooked = iNow;
  pHome = rulesOf(p, pErr);
  p->bHome = pHome != 0;
  p->mWatch = pHome != 0 ? (int)bxAsk(pHome, zFlags, pErr, "") : 0;
}

void bxRingLooked(Ring *p) {
  /* the statement around this one counts the row once more, and the commit */
  p->nChange = p->nSeen = sqlite3_total_changes(p->base.stmts.bx->db) + 1;
  if (p->eRules > 0) {
    p->iData = dataVersion(p);
  } else if (bxNow() - p->iLooked >= LOOK_MS) {
    p->iLooked = 0;
  }
}

static void nameRing(const Ring *p, char zOut[RING_NAME]) {
  sqlite3_snprintf(
      RING_NAME, zOut, "%s%s", isTemp(p) ? "temp." : "", p->base.stmts.zTable);
}

void bxRingTell(Ring *p, const RingPush *pPush, const char *zWhy, BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, reason, "
      "agent_id, event_id) SELECT ?1, 'payload', 'passed_over', ?2, ?3, ?4, ?5 "
      "WHERE NOT EXISTS (SELECT 1 FROM main.blackbox__log WHERE subject = ?2 "
      "AND at > ?1 - ?6 AND kind = 'passed_over' AND reason = ?3)";
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome = pErr->rc == SQLITE_OK ? rulesOf(p, &err) : 0;
  char zRing[RING_NAME];
  nameRing(p, zRing);
  if (pHome != 0) {
    bxDo(pHome, zLog, &err, "itttvi", bxNow(), zRing, zWhy, pPush->zAgent,
        pPush->pEvent, (i64)BX_MS_PER_DAY);
    bxLogFollow(p->base.stmts.bx, &err);
  }
  if (bxMayPassOver(&p->base.stmts, &err)) bxClear(&err);
  bxPass(pErr, &err);
}

/*---------------------------------------------------------------- rules ----*/

static Watch *needWatch(Ring *p, BxErr *pErr) {
  if (p->pWatch == 0) p->pWatch = bxNew(sizeof(Watch), pErr);
  return p->pWatch;
}

/* The rules. They are read again if anybody else has changed anything. */
static const Rules *needRules(Ring *p, BxStmts *pHome, BxErr *pErr) {
  Watch *pWatch = needWatch(p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (!p->bSame || !pWatch->rules.bRead) {
    bxRulesFree(&pWatch->rules);
    bxRulesRead(&pWatch->rules, pHome, pErr);
    if (pErr->rc != SQLITE_OK) bxRulesFree(&pWatch->rules);
  }
  return &pWatch->rules;
}

static AgentRow agentRow(
    Ring *p, BxStmts *pHome, const char *zAgent, BxErr *pErr) {
  static const char zSql[] =
      "SELECT CASE on_loop WHEN 'off' THEN 0 WHEN 'record' THEN 1 "
      "WHEN 'kill_switch' THEN 2 END, stopped_at IS NOT NULL, starts "
      "FROM main.payload_agents WHERE agent_id = ?1";
  AgentRow row = {0, 0, 0};
  sqlite3_stmt *pStmt;
  row.eMode = p->mWatch & RING_MODE;
  if (!(p->mWatch & RING_AGENTS)) return row;
  pStmt = bxStmt(pHome, zSql, pErr);
  bxBind(pStmt, pErr, "t", zAgent);
  if (bxRow(pStmt, pErr)) {
    if (sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
      row.eMode = sqlite3_column_int(pStmt, 0);
    }
    row.bStopped = sqlite3_column_int(pStmt, 1);
    row.iStart = sqlite3_column_int64(pStmt, 2);
  }
  bxDone(pStmt, pErr);
  return row;
}

/*------------------------------------------------------------- verdicts ----*/

int bxRuleAllowed(BxStmts *pHome, const Finding *p, const Track *pTrack,
    const char *zAgent, i64 iTime, BxErr *pErr) {
  static const char zSql[] =
      "SELECT 1 FROM main.payload_allows "
      "WHERE coalesce(agent_id = ?1, 1) AND coalesce(rule = ?2, 1) "
      "AND coalesce(tool = ?3, 1) AND coalesce(until > ?4, 1)";
  return (int)bxAsk(pHome, zSql, pErr, "ttti", zAgent, bxRuleName(p->eRule),
      TRACK_STEP(pTrack, p->aStep[0])->zTool, iTime);
}

/* What repeats, in this turn, since the last start. */
i64 bxRuleThing(const Finding *p, const Track *pTrack) {
  const Step *pStep = TRACK_STEP(pTrack, p->aStep[0]);
  i64 iTurn = p->eRule == RULE_TEXT ? 0 : pStep->iTurn;
  return (i64)bxHashMix((sqlite3_uint64)p->hThing,
      bxHashMix((sqlite3_uint64)iTurn, (sqlite3_uint64)pStep->iStart));
}

/* The exchanges of a finding, as a JSON array, to sqlite3_free(). */
char *bxRuleSeqs(const Finding *p, const Track *pTrack, BxErr *pErr) {
  sqlite3_str *pStr = sqlite3_str_new(0);
  i64 iLast = -1;
  int i;
  sqlite3_str_appendchar(pStr, 1, '[');
  for (i = p->n - 1; i >= 0; i--) {
    i64 iSeq = TRACK_STEP(pTrack, p->aStep[i])->iSeq;
    if (iSeq == iLast) continue;
    sqlite3_str_appendf(pStr, iLast < 0 ? "%lld" : ",%lld", iSeq);
    iLast = iSeq;
  }
  sqlite3_str_appendchar(pStr, 1, ']');
  return bxFinish(pStr, pErr);
}

i64 bxRuleTokens(const Finding *p, const Track *pTrack) {
  const Step *pNew = TRACK_STEP(pTrack, pTrack->nStep);
  if (p->eRule >= RULE_TOKENS && p->eRule <= RULE_COST) {
    return pNew->nSpent - pNew->nSpentBefore;
  }
  return pNew->nSpent - TRACK_STEP(pTrack, p->aStep[p->n - 1])->nSpent;
}

typedef struct Judging {
  Ring *p;
  BxStmts *pHome;
  const Rules *pRules;
  const RingPush *pPush;
  Watched *pOut;
} Judging;

/* An error beside the record is passed over if the record is still there, and is
** told in the log. */
static void passOver(const Judging *p, BxErr *pBeside, BxErr *pErr) {
  if (pBeside->rc == SQLITE_OK) return;
  if (bxMayPassOver(&p->p->base.stmts, pBeside)) {
    bxRingTell(p->p, p->pPush, pBeside->zMsg, pErr);
    bxClear(pBeside);
  }
  bxPass(pErr, pBeside);
}

/* Whether the verdict is there already: one that pulled the switch, if this one
** would. */
static int isRaised(
    Judging *p, const Finding *pFinding, i64 hThing, int bKill, BxErr *pErr) {
  static const char zSql[] =
      "SELECT 1 FROM main.payload_verdicts WHERE agent_id = ?1 AND rule = ?2 "
      "AND thing = ?3 AND ring = ?4 AND (action = 'kill_switch' OR NOT ?5)";
  return (int)bxAsk(p->pHome, zSql, pErr, "ttiti", p->pPush->zAgent,
      bxRuleName(pFinding->eRule), hThing, p->pOut->zRing, (i64)bKill);
}

/* The id of a kill switch: a UUID (version 8) of the exchange that fires it. */
static void nameKill(Judging *p, BxErr *pErr) {
  char *z = bxPrintf(pErr, "%s %s %lld %lld", p->pOut->zRing, p->pPush->zAgent,
      p->pOut->pTrack->iSeq, p->pPush->iTime);
  sqlite3_uint64 h, l;
  if (z == 0) return;
  h = bxHashOf(z, (i64)strlen(z));
  l = bxHashMix(h, (sqlite3_uint64)p->pOut->pTrack->iSeq);
  sqlite3_snprintf(37, p->pOut->zKill, "%08x-%04x-8%03x-8%03x-%012llx",
      (unsigned int)(h >> 32), (unsigned int)(h >> 16 & 0xffff),
      (unsigned int)(h >> 4 & 0xfff), (unsigned int)(l >> 48 & 0xfff),
      l & 0xffffffffffffu);
  sqlite3_free(z);
}

/* After a verdict was written: its row of the log; and if it pulls the switch, its
** agent is stopped. */
static void tellVerdict(Judging *p, const Finding *pFinding, const char *zSay,
    int bKill, BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, reason, "
      "detail, agent_id, kill_switch_event_id) VALUES(?1, 'payload', "
      "'verdict', ?2, ?3, '{\"verdict\":' || ?4 || '}', ?5, ?6)";
  static const char zStop[] =
      "INSERT INTO main.payload_agents(agent_id, stopped_at, stopped_by) "
      "VALUES(?1, ?2, 'rule ' || ?3) ON CONFLICT (agent_id) DO UPDATE SET "
      "stopped_at = coalesce(stopped_at, excluded.stopped_at), "
      "stopped_by = coalesce(stopped_by, excluded.stopped_by)";
  static const char zLogStop[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, actor, detail,"
      " agent_id) SELECT ?2, 'payload', 'stop', ?1, 'rule ' || ?3,"
      " '{\"starts\":' || coalesce((SELECT starts FROM main.payload_agents"
      " WHERE agent_id = ?1), 0) || '}', ?1 WHERE NOT EXISTS (SELECT 1 FROM"
      " main.payload_agents WHERE agent_id = ?1 AND stopped_at IS NOT NULL)";
  const char *zRule = bxRuleName(pFinding->eRule);
  const char *zAgent = p->pPush->zAgent;
  i64 iId = sqlite3_last_insert_rowid(p->pHome->bx->db);
  bxDo(p->pHome, zLog, pErr, "ittitt", p->pPush->iTime, zRule, zSay, iId,
      zAgent, bKill ? p->pOut->zKill : 0);
  if (!bKill) return;
  if (p->pOut->iVerdict == 0) p->pOut->iVerdict = iId;
  bxDo(p->pHome, zLogStop, pErr, "tit", zAgent, p->pPush->iTime, zRule);
  bxDo(p->pHome, zStop, pErr, "tit", zAgent, p->pPush->iTime, zRule);
}

static void raiseVerdict(Judging *p, const Finding *pFinding, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.payload_verdicts(at, ring, agent_id, rule, level, "
      "count, threshold, tool, turn, thing, seqs, tokens, sentence, action, "
      "kill_switch_event_id) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
      "?11, ?12, ?13, ?14, ?15)";
  const Rule *pRule = &p->pRules->a[pFinding->eRule];
  const Track *pTrack = p->pOut->pTrack;
  const Step *pStep = TRACK_STEP(pTrack, pFinding->aStep[0]);
  int bKill = p->pOut->eMode == MODE_KILL && pRule->bStop;
  int bNamed = p->pOut->zKill[0] != 0;
  BxErr err = {SQLITE_OK, 0};
  i64 hThing = bxRuleThing(pFinding, pTrack);
  char *zSeqs, *zSay, *zNumber, *zThreshold;
  if (isRaised(p, pFinding, hThing, bKill, pErr) ||
      bxRuleAllowed(p->pHome, pFinding, pTrack, p->pPush->zAgent,
          p->pPush->iTime, pErr)) {
    return;
  }
  if (bKill && !bNamed) nameKill(p, pErr);
  zSeqs = bxRuleSeqs(pFinding, pTrack, pErr);
  zSay = bxRuleSay(pFinding, pTrack, p->pPush->zAgent, pErr);
  zNumber = bxPrintf(pErr, "%!.15g", pFinding->rCount);
  zThreshold = bxPrintf(pErr, "%!.15g", pRule->rThreshold);
  bxPass(&err, pErr);
  bxLogBegin(p->pHome, &err);
  bxDo(p->pHome, zSql, &err, "itttttttiitittt", p->pPush->iTime, p->pOut->zRing,
      p->pPush->zAgent, bxRuleName(pFinding->eRule),
      pRule->bStop ? "stop" : "alert", zNumber, zThreshold,
      pStep->zTool[0] != 0 ? pStep->zTool : 0, (i64)pStep->iTurn, hThing, zSeqs,
      bxRuleTokens(pFinding, pTrack), zSay, bKill ? "kill_switch" : "record",
      bKill ? p->pOut->zKill : 0);
  tellVerdict(p, pFinding, zSay, bKill, &err);
  bxLogFollow(p->pHome->bx, &err);
  if (err.rc != SQLITE_OK && !bNamed) p->pOut->zKill[0] = 0;
  passOver(p, &err, pErr);
  sqlite3_free(zSeqs);
  sqlite3_free(zSay);
  sqlite3_free(zNumber);
  sqlite3_free(zThreshold);
}

/* Asks one rule when step n is the newest. nLike: see bxRuleMay(), or -1. */
static void askRule(Judging *p, RuleKind eRule, i64 n, int nLike, BxErr *pErr) {
  Finding finding;
  if (!p->pRules->a[eRule].bEnabled || pErr->rc != SQLITE_OK) return;
  if (nLike >= 0 && !bxRuleMay(p->pRules, eRule, nLike)) return;
  bxRuleLook(p->pRules, eRule, p->pOut->pTrack, n, &finding);
  if (finding.n > 0 && finding.rCount >= p->pRules->a[eRule].rThreshold) {
    raiseVerdict(p, &finding, pErr);
  }
}

/* Asks the rules of calls for each call whose result has come, and the others
** once. */
static void judge(Judging *p, const i64 *aDone, int nDone, BxErr *pErr) {
  int i, eRule;
  for (i = 0; i < nDone; i++) {
    int nLike = bxRuleLike(p->pOut->pTrack, aDone[i]);
    for (eRule = 0; eRule <= RULE_REPEAT; eRule++) {
      askRule(p, (RuleKind)eRule, aDone[i], nLike, pErr);
    }
  }
  for (eRule = RULE_TEXT; eRule < N_RULE; eRule++) {
    askRule(p, (RuleKind)eRule, p->pOut->pTrack->nStep, -1, pErr);
  }
}

/*--------------------------------------------------------------- pushes ----*/

static void refuseStopped(const RingPush *pPush, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "AgentStoppedError: agent %s is stopped, and payload.refuse_stopped is "
      "1; "
      "to start it again, INSERT INTO payload_starts(agent_id, actor, reason)",
      pPush->zAgent);
}

void bxRingWatchBegin(
    Ring *p, const RingPush *pPush, Watched *pOut, BxErr *pErr) {
  Judging judging = {p, 0, 0, pPush, pOut};
  BxErr err = {SQLITE_OK, 0};
  AgentRow row;
  pOut->pHome = 0;
  if (!(p->mWatch & RING_WATCH) || p->bWatching || pErr->rc != SQLITE_OK)
    return;
  if (!isTemp(p)) p->bSame = bxRingIsLooked(p);
  judging.pHome = rulesOf(p, pErr);
  if (judging.pHome == 0) return;
  pOut->zKill[0] = 0;
  pOut->iVerdict = 0;
  nameRing(p, pOut->zRing);
  row = agentRow(p, judging.pHome, pPush->zAgent, &err);
  passOver(&judging, &err, pErr);
  if (row.bStopped && (p->mWatch & RING_REFUSE)) refuseStopped(pPush, pErr);
  pOut->eMode = row.eMode;
  pOut->iStart = row.iStart;
  if (row.eMode != MODE_OFF) pOut->pHome = judging.pHome;
}

/* Asks the rules, and keeps the steps. */
static void look(
    Judging *p, const RingAgent *pNext, BxErr *pBeside, BxErr *pErr) {
  RingPuller rule = {0, 0, 0};
  const RingPush *pPush = p->pPush;
  Moment moment = {pNext->nGiven, pPush->iTime, p->pOut->iStart};
  i64 aDone[TRACK_STEPS];
  int nDone;
  Track *pTrack;
  p->pRules = needRules(p->p, p->pHome, pBeside);
  if (pBeside->rc != SQLITE_OK) return;
  p->pOut->pTrack = pTrack = bxTrackTake(p->p, pNext, pBeside);
  if (pBeside->rc != SQLITE_OK) return;
  nDone = bxTrackAdd(pTrack, p->pRules, &moment, pPush->pRequest,
      pPush->pResponse, aDone, pBeside);
  if (pBeside->rc == SQLITE_OK) judge(p, aDone, nDone, pBeside);
  if (pBeside->rc == SQLITE_OK && p->pOut->zKill[0] == 0) {
    bxTrackWrite(pTrack, &p->p->base.stmts, pBeside);
  } else {
    pTrack->iNo = 0; /* to be read again */
  }
  if (pBeside->rc == SQLITE_OK && p->pOut->zKill[0] != 0) {
    bxRingForgetSteps(p->p, pNext->iNo, pBeside);
    passOver(p, pBeside, pErr);
    rule.iVerdict = p->pOut->iVerdict;
    bxRingKillSwitch(p->p, pPush->zAgent, p->pOut->zKill, &rule, pBeside);
  }
}

void bxRingWatch(Ring *p, const RingAgent *pNext, const RingPush *pPush,
    Watched *pWatched, BxErr *pErr) {
  Judging judging = {p, pWatched->pHome, 0, pPush, pWatched};
  BxErr err = {SQLITE_OK, 0};
  if (pWatched->pHome == 0 || pErr->rc != SQLITE_OK) return;
  p->bWatching =
      1; /* what a trigger on payload_verdicts pushes is not looked at */
  look(&judging, pNext, &err, pErr);
  p->bWatching = 0;
  passOver(&judging, &err, pErr);
}
