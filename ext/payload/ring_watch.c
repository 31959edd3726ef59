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
** rules. The order of writes: first the verdict, whose trigger stops the agent;
** then the exchange with its steps; then the kill switch. A trigger of the user
** on payload_verdicts can refuse all of it. If the kill switch fails, inside
** BEGIN, the verdict and the exchange are there, and the switch can be fired by
** hand with the id of the verdict: nothing is lost.
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
#define FLAG_MODE 3
#define FLAG_REFUSE 4
#define FLAG_AGENTS 8

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

/* Whether rings have to look, as a sum of flags. */
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"
/* clang-format off */
#define FLAGS_SQL                                                              \
  "SELECT CASE " SETTING("on_loop") " WHEN 'record' THEN 1"                    \
  "  WHEN 'kill_switch' THEN 2 ELSE 0 END + 4 * " SETTING("refuse_stopped")    \
  "  + 8 * EXISTS (SELECT 1 FROM main.payload_agents)"
/* clang-format on */
const char bxRingConfigWatched[] =
    "SELECT value, (" FLAGS_SQL ") FROM main.@_config ORDER BY name DESC";

static int isTemp(const Ring *p) {
  return sqlite3_stricmp(p->base.stmts.zDb, "temp") == 0;
}

int bxRingHasRules(Ring *p, BxErr *pErr) {
  return !isTemp(p) && bxCanPrepare(p->base.stmts.bx,
                           bxPrintf(pErr, "SELECT 1 FROM \"%w\".payload_rules",
                               p->base.stmts.zDb),
                           pErr);
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
  static const char zFlags[] = FLAGS_SQL;
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
  if (p->eRules < 0 && p->iLooked == 0) return;
  /* the statement around this one counts the row once more, and the commit */
  p->nChange = sqlite3_total_changes(p->base.stmts.bx->db) + 1;
  if (p->eRules > 0) {
    p->iData = dataVersion(p);
  } else if (bxNow() - p->iLooked >= LOOK_MS) {
    p->iLooked = 0;
  }
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
  row.eMode = p->mWatch & FLAG_MODE;
  if (!(p->mWatch & FLAG_AGENTS)) return row;
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
  int eMode;
} Judging;

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

static void raiseVerdict(Judging *p, const Finding *pFinding, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.payload_verdicts(at, ring, agent_id, rule, level, "
      "count, threshold, tool, turn, thing, seqs, tokens, sentence, action, "
      "kill_switch_event_id) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
      "?11, ?12, ?13, ?14, ?15)";
  const Rule *pRule = &p->pRules->a[pFinding->eRule];
  const Track *pTrack = p->pOut->pTrack;
  const Step *pStep = TRACK_STEP(pTrack, pFinding->aStep[0]);
  int bKill = p->eMode == MODE_KILL && pRule->bStop;
  i64 hThing = bxRuleThing(pFinding, pTrack);
  char *zSeqs, *zSay, *zNumber, *zThreshold;
  if (isRaised(p, pFinding, hThing, bKill, pErr) ||
      bxRuleAllowed(p->pHome, pFinding, pTrack, p->pPush->zAgent,
          p->pPush->iTime, pErr)) {
    return;
  }
  if (bKill && p->pOut->zKill[0] == 0) nameKill(p, pErr);
  zSeqs = bxRuleSeqs(pFinding, pTrack, pErr);
  zSay = bxRuleSay(pFinding, pTrack, p->pPush->zAgent, pErr);
  zNumber = bxPrintf(pErr, "%!.15g", pFinding->rCount);
  zThreshold = bxPrintf(pErr, "%!.15g", pRule->rThreshold);
  bxLogBegin(p->pHome, pErr);
  bxDo(p->pHome, zSql, pErr, "itttttttiitittt", p->pPush->iTime, p->pOut->zRing,
      p->pPush->zAgent, bxRuleName(pFinding->eRule),
      pRule->bStop ? "stop" : "alert", zNumber, zThreshold,
      pStep->zTool[0] != 0 ? pStep->zTool : 0, (i64)pStep->iTurn, hThing, zSeqs,
      bxRuleTokens(pFinding, pTrack), zSay, bKill ? "kill_switch" : "record",
      bKill ? p->pOut->zKill : 0);
  if (bKill && p->pOut->iVerdict == 0) {
    p->pOut->iVerdict = sqlite3_last_insert_rowid(p->pHome->bx->db);
  }
  bxLogFollow(p->pHome->bx, pErr);
  p->pOut->bRaised = 1;
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

/* A trigger on payload_verdicts may have written into this ring. */
static void needSame(
    Ring *p, const RingPush *pPush, const RingAgent *pNext, BxErr *pErr) {
  RingAgent agent;
  bxRingAgent(p, pPush->zAgent, &agent, pErr);
  if (pErr->rc != SQLITE_OK || agent.nGiven + 1 == pNext->nGiven) return;
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: a trigger on payload_verdicts writes into ring %s, into "
      "which the exchange is being pushed; take the trigger off",
      p->base.stmts.zTable);
}

void bxRingWatch(Ring *p, const RingAgent *pNext, const RingPush *pPush,
    Watched *pOut, BxErr *pErr) {
  Judging judging;
  AgentRow row;
  Rules *pRules;
  Moment moment;
  i64 aDone[TRACK_STEPS];
  int nDone;
  memset(pOut, 0, offsetof(Watched, zRing));
  pOut->zRing[0] = 0;
  if (!isTemp(p)) p->bSame = bxRingIsLooked(p);
  judging.pHome = rulesOf(p, pErr);
  if (judging.pHome == 0) return;
  row = agentRow(p, judging.pHome, pPush->zAgent, pErr);
  if (row.bStopped && (p->mWatch & FLAG_REFUSE)) refuseStopped(pPush, pErr);
  if (row.eMode == MODE_OFF || pErr->rc != SQLITE_OK) return;
  judging.pRules = pRules = (Rules *)needRules(p, judging.pHome, pErr);
  if (pErr->rc != SQLITE_OK) return;
  judging.p = p;
  judging.pPush = pPush;
  judging.pOut = pOut;
  judging.eMode = row.eMode;
  sqlite3_snprintf(sizeof(pOut->zRing), pOut->zRing, "%s%s",
      isTemp(p) ? "temp." : "", p->base.stmts.zTable);
  pOut->pTrack = bxTrackTake(p, pNext, pErr);
  if (pErr->rc != SQLITE_OK) return;
  moment.iSeq = pNext->nGiven;
  moment.iTime = pPush->iTime;
  moment.iStart = row.iStart;
  nDone = bxTrackAdd(pOut->pTrack, pRules, &moment, pPush->pRequest,
      pPush->pResponse, aDone, pErr);
  judge(&judging, aDone, nDone, pErr);
  if (pOut->bRaised) needSame(p, pPush, pNext, pErr);
  if (pErr->rc != SQLITE_OK) pOut->pTrack->iNo = 0;
}

void bxRingWatched(
    Ring *p, const RingPush *pPush, const Watched *pWatched, BxErr *pErr) {
  static const char zForget[] =
      "DELETE FROM main.@_steps "
      "WHERE id BETWEEN ?1 << 16 AND (?1 << 16) + 127";
  RingPuller rule = {0, 0, pWatched->iVerdict};
  Track *pTrack = pWatched->pTrack;
  i64 iNo;
  if (pTrack == 0) return;
  iNo = pTrack->iNo;
  if (pErr->rc != SQLITE_OK || pWatched->zKill[0] != 0) pTrack->iNo = 0;
  if (pErr->rc != SQLITE_OK) return;
  if (pWatched->zKill[0] == 0) {
    bxTrackWrite(pTrack, &p->base.stmts, pErr);
    return;
  }
  bxRingKillSwitch(p, pPush->zAgent, pWatched->zKill, &rule, pErr);
  bxDo(&p->base.stmts, zForget, pErr, "i", iNo);
}
