/*
** ring_watch.c: a ring looks for loops while exchanges are pushed into it.
**
** Which rules there are, and what was found, is in the schema of the archive:
** the ring's own schema, or for a ring in temp that of the payload domain. What
** is off costs nothing: the settings are read again only after something else than
** pushes of this connection has changed the file. For a ring in temp, whose rules
** are in another schema, also after a second.
**
** A push that is looked at takes the steps of its agent (kept in memory, as long
** as they are those of the table), and reads what is new in the bodies. Then it writes
** the exchange with its steps; asks the rules; and writes the verdicts, with their rows
** of the log, and the stop of the agent; or fires the kill switch. What of this fails
** beside the exchange is passed over, and the log says so: a trigger of the user
** on payload_verdicts can refuse a verdict and its kill switch, not the exchange.
** A kill switch that fails can be fired by hand with the id of the verdict.
**
** An agent that is stopped may go on. What it pushes is recorded, counted in
** payload_agents.went_on, and saved to the evidence of its stop, as many exchanges as
** the ring's window; no rule pulls the switch again before it is started.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LOOK_MS 1000

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
  int i;
  p->nChange = -1;
  p->iKnown++;
  bxBodyForget(p);
  if (p->pWatch == 0) return;
  p->pWatch->rules.bRead = 0;
  for (i = 0; i < TRACKS_KEPT; i++) bxTrackForget(p->pWatch, i);
}

/*---------------------------------------------------------- whether to ----*/

/* What is on, as a sum of flags. */
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"
/* clang-format off */
#define RULE_FLAGS                                                             \
  "CASE " SETTING("on_loop") " WHEN 'record' THEN 1 WHEN 'kill_switch' THEN 2" \
  " ELSE 0 END + CASE " SETTING("secrets") " WHEN 'mask' THEN 32 WHEN 'drop'"  \
  " THEN 64 ELSE 0 END + 8 * EXISTS (SELECT 1 FROM main.payload_agents)"
#define CORE_FLAGS                                                             \
  "16 * EXISTS (SELECT 1 FROM main.retention__in_force)"
/* clang-format on */

static int isTemp(const Ring *p) {
  return sqlite3_stricmp(p->base.stmts.zDb, "temp") == 0;
}

/* The schema with the rules; NULL without an error if there is none that a ring
** in temp can use. */
static BxStmts *rulesOf(Ring *p, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome;
  if (!isTemp(p)) return bxSchema(bx, p->base.stmts.zDb, pErr);
  pHome = bxDomainSchema(bx, "payload", &err);
  if (err.rc == SQLITE_ERROR) {
    bxErrClear(&err);
    return 0;
  }
  bxErrMove(pErr, &err);
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

static int askFlags(BxStmts *p, const char *zSql, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int m = (int)bxQueryInt(p, zSql, &err, "");
  if (err.rc != SQLITE_ERROR) {
    bxErrMove(pErr, &err);
    return m;
  }
  bxErrClear(&err); /* no such table */
  return -1;
}

void bxRingSettings(Ring *p, BxErr *pErr) {
  static const char zRules[] = "SELECT " RULE_FLAGS;
  static const char zCore[] = "SELECT " CORE_FLAGS;
  static const char zAll[] = "SELECT " RULE_FLAGS " + " CORE_FLAGS;
  BxStmts *pOn = &p->base.stmts;
  int nMore = p->nChange - sqlite3_total_changes(pOn->bx->db);
  p->bSame = p->nChange >= 0 && (nMore == 0 || nMore == 1) &&
             (isTemp(p) || dataVersion(p) - p->iData <= 1);
  if (p->bSame || pErr->rc != SQLITE_OK) return;
  p->iKnown++;
  bxRingReadConfig(p, pErr);
  if (isTemp(p)) {
    p->iLooked = bxNow();
    pOn = rulesOf(p, pErr);
    p->mWatch = pOn != 0 ? askFlags(pOn, zRules, pErr) : 0;
  } else if ((p->mWatch = askFlags(pOn, zAll, pErr)) < 0) {
    p->mWatch = askFlags(pOn, zCore, pErr);
  }
  if (p->mWatch < 0) p->mWatch = 0;
}

void bxRingLooked(Ring *p) {
  /* the statement around this one counts the row once more at its end, and the
  ** commit */
  p->nChange = sqlite3_total_changes(p->base.stmts.bx->db) + 1;
  p->iData = dataVersion(p);
  if (isTemp(p) && bxNow() - p->iLooked >= LOOK_MS) p->nChange = -1;
}

static void nameRing(const Ring *p, char zOut[RING_NAME]) {
  sqlite3_snprintf(
      RING_NAME, zOut, "%s%s", isTemp(p) ? "temp." : "", p->base.stmts.zTable);
}

void bxRingLogSkipped(
    Ring *p, const RingPush *pPush, const char *zWhy, BxErr *pErr) {
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
    bxStmtExec(pHome, zLog, &err, "itttvi", bxNow(), zRing, zWhy, pPush->zAgent,
        pPush->pEvent, (i64)BX_MS_PER_DAY);
    bxLogProveAll(p->base.stmts.bx, &err);
  }
  bxErrBeside(&p->base.stmts, pErr, &err);
}

/*---------------------------------------------------------------- rules ----*/

/* The rules. They are read again if anybody else has changed anything. */
static const Rules *needRules(Ring *p, BxStmts *pHome, BxErr *pErr) {
  Rules *pRules;
  if (p->pWatch == 0) p->pWatch = bxZalloc(sizeof(Watch), pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  pRules = &p->pWatch->rules;
  if (!p->bSame || !pRules->bRead) {
    bxRulesFree(pRules);
    bxRulesRead(pRules, pHome, pErr);
    if (pErr->rc != SQLITE_OK) bxRulesFree(pRules);
  }
  return pRules;
}

/*------------------------------------------------------------- verdicts ----*/

/* An error beside the record is passed over if the record is still there, and is
** told in the log. */
static void passOver(const Watched *p, BxErr *pBeside, BxErr *pErr) {
  if (pBeside->rc == SQLITE_OK) return;
  if (bxErrMayIgnore(&p->p->base.stmts, pBeside)) {
    bxRingLogSkipped(p->p, p->pPush, pBeside->zMsg, pErr);
    bxErrClear(pBeside);
  }
  bxErrMove(pErr, pBeside);
}

/* Whether the verdict is there already, among the newest: one that pulled the switch,
** if this one would. */
static int isRaised(
    Watched *p, const Finding *pFinding, i64 hThing, int bKill, BxErr *pErr) {
  static const char zSql[] =
      "SELECT 1 FROM main.payload_verdicts WHERE id > (SELECT max(id) - 500 "
      "FROM main.payload_verdicts) AND agent_id = ?1 AND rule = ?2 "
      "AND thing = ?3 AND ring = ?4 AND (action = 'kill_switch' OR NOT ?5)";
  assert(pFinding->eRule < N_RULE);
  return (int)bxQueryInt(p->pHome, zSql, pErr, "ttiti", p->pPush->zAgent,
      bxRuleName(pFinding->eRule), hThing, p->zRing, (i64)bKill);
}

/* The id of a kill switch: a UUID (version 8) of the exchange that fires it. */
static void nameKill(Watched *p, BxErr *pErr) {
  char *z = bxPrintf(pErr, "%s %s %lld %lld", p->zRing, p->pPush->zAgent,
      p->pTrack->iSeq, p->pPush->iTime);
  sqlite3_uint64 h, l;
  if (z == 0) return;
  h = bxHashOf(z, (i64)strlen(z));
  l = bxHashMix(h, (sqlite3_uint64)p->pTrack->iSeq);
  sqlite3_snprintf(37, p->zKill, "%08x-%04x-8%03x-8%03x-%012llx",
      (unsigned int)(h >> 32), (unsigned int)(h >> 16 & 0xffff),
      (unsigned int)(h >> 4 & 0xfff), (unsigned int)(l >> 48 & 0xfff),
      l & 0xffffffffffffu);
  sqlite3_free(z);
}

/* After a verdict was written: its row of the log; and if it pulls the switch, its
** agent is stopped. */
static void tellVerdict(Watched *p, const Finding *pFinding, const char *zSay,
    int bKill, BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, reason, "
      "detail, agent_id, kill_switch_event_id) VALUES(?1, 'payload', "
      "'verdict', ?2, ?3, '{\"verdict\":' || ?4 || '}', ?5, ?6)";
  static const char zStop[] =
      "INSERT INTO main.payload_agents(agent_id, stopped_at, stopped_by, "
      "kill_switch_event_id) VALUES(?1, ?2, 'rule ' || ?3, ?4) "
      "ON CONFLICT (agent_id) DO UPDATE SET "
      "stopped_at = coalesce(stopped_at, excluded.stopped_at), "
      "stopped_by = coalesce(stopped_by, excluded.stopped_by), "
      "kill_switch_event_id = excluded.kill_switch_event_id, went_on = 0";
  static const char zLogStop[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, actor, detail,"
      " agent_id, kill_switch_event_id) SELECT ?2, 'payload', 'stop', ?1,"
      " 'rule ' || ?3, '{\"starts\":' || coalesce((SELECT starts FROM"
      " main.payload_agents WHERE agent_id = ?1), 0) || '}', ?1, ?4"
      " WHERE NOT EXISTS (SELECT 1 FROM"
      " main.payload_agents WHERE agent_id = ?1 AND stopped_at IS NOT NULL)";
  const char *zRule = bxRuleName(pFinding->eRule);
  const char *zAgent = p->pPush->zAgent;
  i64 iId = sqlite3_last_insert_rowid(p->pHome->bx->db);
  bxStmtExec(p->pHome, zLog, pErr, "ittitt", p->pPush->iTime, zRule, zSay, iId,
      zAgent, bKill ? p->zKill : 0);
  if (!bKill) return;
  if (p->iVerdict == 0) p->iVerdict = iId;
  bxStmtExec(p->pHome, zLogStop, pErr, "titt", zAgent, p->pPush->iTime, zRule,
      p->zKill);
  bxStmtExec(
      p->pHome, zStop, pErr, "titt", zAgent, p->pPush->iTime, zRule, p->zKill);
}

static void raiseVerdict(Watched *p, const Finding *pFinding, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.payload_verdicts(at, ring, agent_id, rule, level, "
      "count, threshold, tool, turn, thing, seqs, tokens, sentence, action, "
      "kill_switch_event_id, evidence) VALUES(?1, ?2, ?3, ?4, ?5, CAST(?6 AS NUMERIC), "
      "CAST(?7 AS NUMERIC), ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
  const Rule *pRule = &p->pRules->a[pFinding->eRule];
  const Track *pTrack = p->pTrack;
  const Step *pStep = TRACK_STEP(pTrack, pFinding->aStep[0]);
  int bKill = p->eMode == MODE_KILL && pRule->bStop;
  int bNamed = p->zKill[0] != 0;
  BxErr err = {SQLITE_OK, 0};
  i64 hThing = bxRuleThing(pFinding, pTrack);
  char *zSeqs, *zSay, *zEvidence;
  assert(pFinding->n > 0);
  if (isRaised(p, pFinding, hThing, bKill, pErr) ||
      bxRuleAllowed(p->pHome, pFinding, pTrack, p->pPush->zAgent,
          p->pPush->iTime, pErr)) {
    return;
  }
  if (bKill && !bNamed) nameKill(p, pErr);
  zSeqs = bxRuleSeqs(pFinding, pTrack, pErr);
  zSay = bxRuleSentence(pFinding, pTrack, p->pPush->zAgent, pErr);
  zEvidence = bxRuleEvidence(pFinding, pTrack, pErr);
  bxErrMove(&err, pErr);
  bxLogBegin(p->pHome, &err);
  bxStmtExec(p->pHome, zSql, &err, "ittttddtiititttt", p->pPush->iTime,
      p->zRing, p->pPush->zAgent, bxRuleName(pFinding->eRule),
      pRule->bStop ? "stop" : "alert", pFinding->rCount, pRule->rThreshold,
      pStep->zTool[0] != 0 ? pStep->zTool : 0, (i64)pStep->iTurn, hThing, zSeqs,
      bxRuleTokens(pFinding, pTrack), zSay, bKill ? "kill_switch" : "record",
      bKill ? p->zKill : 0, zEvidence);
  tellVerdict(p, pFinding, zSay, bKill, &err);
  bxLogProveAll(p->pHome->bx, &err);
  if (err.rc != SQLITE_OK && !bNamed) p->zKill[0] = 0;
  passOver(p, &err, pErr);
  sqlite3_free(zSeqs);
  sqlite3_free(zSay);
  sqlite3_free(zEvidence);
}

/* Asks one rule when step n is the newest. */
static void askRule(Watched *p, RuleKind eRule, i64 n, BxErr *pErr) {
  Finding finding;
  assert(eRule < N_RULE);
  if (!p->pRules->a[eRule].bEnabled || pErr->rc != SQLITE_OK) return;
  bxRuleLook(p->pRules, eRule, p->pTrack, n, &finding);
  if (finding.n > 0 && finding.rCount >= p->pRules->a[eRule].rThreshold) {
    raiseVerdict(p, &finding, pErr);
  }
}

/* Asks the rules of calls for each call whose result has come, and the others
** once. */
static void judge(Watched *p, BxErr *pErr) {
  int i, eRule;
  assert(p->nDone >= 0 && p->nDone <= TRACK_STEPS);
  for (i = 0; i < p->nDone; i++) {
    for (eRule = 0; eRule <= RULE_REPEAT; eRule++) {
      askRule(p, (RuleKind)eRule, p->aDone[i], pErr);
    }
  }
  for (eRule = RULE_TOKENS; eRule < N_RULE; eRule++) {
    askRule(p, (RuleKind)eRule, p->pTrack->nStep, pErr);
  }
}

/*--------------------------------------------------------------- pushes ----*/

void bxRingWatchBegin(
    Ring *p, const RingPush *pPush, Watched *pOut, BxErr *pErr) {
  static const char zSql[] =
      "SELECT CASE on_loop WHEN 'off' THEN 0 WHEN 'record' THEN 1 "
      "WHEN 'kill_switch' THEN 2 ELSE ?2 END, stopped_at IS NOT NULL, starts, "
      "kill_switch_event_id IS NOT NULL FROM main.payload_agents "
      "WHERE agent_id = ?1";
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  memset(pOut, 0, offsetof(Watched, aDone));
  pOut->p = p;
  pOut->pPush = pPush;
  pOut->eMode = p->mWatch & RING_MODE;
  if (!(p->mWatch & RING_WATCH) || p->bWatching || pErr->rc != SQLITE_OK)
    return;
  pOut->pHome = rulesOf(p, pErr);
  if (pOut->pHome == 0) return;
  nameRing(p, pOut->zRing);
  if (p->mWatch & RING_AGENTS) {
    pStmt = bxStmt(pOut->pHome, zSql, &err);
    bxBind(pStmt, &err, "ti", pPush->zAgent, (i64)pOut->eMode);
    if (bxStep(pStmt, &err)) {
      pOut->eMode = sqlite3_column_int(pStmt, 0);
      pOut->bStopped = sqlite3_column_int(pStmt, 1);
      pOut->iStart = sqlite3_column_int64(pStmt, 2);
      if (pOut->bStopped && sqlite3_column_int(pStmt, 3) &&
          pOut->eMode == MODE_KILL) {
        pOut->eMode = MODE_RECORD;
      }
    }
    bxReset(pStmt, &err);
    passOver(pOut, &err, pErr);
  }
  if (pOut->eMode == MODE_OFF) pOut->pHome = 0;
}

void bxRingWatchRead(
    Watched *p, const RingAgent *pNext, const Shared *pShared) {
  const RingPush *pPush = p->pPush;
  Moment moment = {pNext->nGiven, pPush->iTime, p->iStart, *pShared};
  BxErr *pErr = &p->beside;
  if (p->pHome == 0) return;
  p->pRules = needRules(p->p, p->pHome, pErr);
  if (pErr->rc == SQLITE_OK) p->pTrack = bxTrackTake(p->p, pNext, pErr);
  if (pErr->rc != SQLITE_OK) return;
  p->nDone = bxTrackAdd(p->pTrack, p->pRules, &moment, pPush->pRequest,
      pPush->pResponse, p->aDone, pErr);
  if (pErr->rc == SQLITE_OK) {
    p->nSteps = bxTrackPack(p->pTrack, p->p->pWatch->aSteps);
  }
}

void bxRingBindSteps(const Watched *p, sqlite3_stmt *pStmt, int iParam) {
  if (p->nSteps == 0) return;
  sqlite3_bind_blob(
      pStmt, iParam, p->p->pWatch->aSteps, (int)p->nSteps, SQLITE_STATIC);
}

/* Asks the rules, and does what they say. */
static void look(Watched *p) {
  RingPuller rule = {0, 0, 0};
  BxErr *pBeside = &p->beside;
  if (pBeside->rc == SQLITE_OK) judge(p, pBeside);
  if (pBeside->rc == SQLITE_OK && p->zKill[0] == 0) return;
  p->pTrack->iNo = 0; /* it is read again */
  p->p->iKnown++;
  if (pBeside->rc != SQLITE_OK) return;
  rule.iVerdict = p->iVerdict;
  bxRingKillSwitch(p->p, p->pPush->zAgent, p->zKill, &rule, pBeside);
  p->p->iKnown++; /* also of what a trigger has pushed in it */
}

void bxRingAfterWrite(
    Ring *p, const RingPush *pPush, i64 iSlot, Watched *pWatched, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) {
    if (pWatched->pTrack != 0) pWatched->pTrack->iNo = 0;
    bxErrClear(&pWatched->beside);
    return;
  }
  if (pWatched->pTrack != 0) {
    /* what a trigger on payload_verdicts pushes is not looked at */
    p->bWatching = 1;
    look(pWatched);
    p->bWatching = 0;
  }
  passOver(pWatched, &pWatched->beside, pErr);
  if (pWatched->bStopped && !pPush->bLate) {
    bxRingWentOn(p, pPush->zAgent, iSlot, &err);
    passOver(pWatched, &err, pErr);
  }
  if (p->mWatch & RING_HOLDS) {
    bxRingNoteHeld(p, iSlot, &err);
    passOver(pWatched, &err, pErr);
  }
  if (p->bNoRoom) {
    bxRingLogSkipped(p, pPush,
        "the ring has more than max_bytes: a hold keeps what would go, or this "
        "exchange alone has more",
        pErr);
  }
  p->bNoRoom = 0;
  bxRingLooked(p);
}
