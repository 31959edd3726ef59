/*
** loops.c: payload_loops(), what each rule sees now; and payload_backtest(), what
** the rules would have found in exchanges of the archive.
**
** Both only read. They use the rules as they stand, whether on_loop is off or
** not.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* A row of JSON for each finding. */
typedef struct LoopReport {
  BxStmts *pHome;
  Rules rules;
  Track track;
  char *zLast; /* the request before */
  i64 nLast;
  sqlite3_str *pRows; /* an array without its end */
  const char *zAgent;
} LoopReport;

static void beginReport(LoopReport *p, BxStmts *pHome, BxErr *pErr) {
  memset(p, 0, sizeof(*p));
  p->pHome = pHome;
  p->pRows = sqlite3_str_new(0);
  sqlite3_str_appendchar(p->pRows, 1, '[');
  bxRulesRead(&p->rules, pHome, pErr);
}

/* The query of the rows; zSql has ?1 for their array. */
static sqlite3_stmt *endReport(
    LoopReport *p, Bx *bx, const char *zSql, BxErr *pErr) {
  char *zAll;
  sqlite3_stmt *pStmt = 0;
  sqlite3_str_appendchar(p->pRows, 1, ']');
  zAll = bxStrFinish(p->pRows, pErr);
  if (zAll != 0) pStmt = bxJsonRows(bx, zSql, zAll, pErr);
  bxRulesFree(&p->rules);
  sqlite3_free(p->zLast);
  return pStmt;
}

static void putJsonText(sqlite3_str *pOut, const char *zBefore, const char *z) {
  sqlite3_str_appendall(pOut, zBefore);
  if (z == 0) {
    sqlite3_str_appendall(pOut, "null");
  } else {
    bxJsonAppend(pOut, z, (int)strlen(z));
  }
}

/* A number as JSON; a whole one without a fraction. */
static void putJsonNumber(sqlite3_str *pOut, double r) {
  if (r == (double)(i64)r) {
    sqlite3_str_appendf(pOut, ",%lld", (i64)r);
  } else {
    sqlite3_str_appendf(pOut, ",%!.15g", r);
  }
}

/* [agent, rule, level, enabled, count, threshold, left, tool, seqs, tokens,
** sentence, at: what both tables have */
static void putFinding(LoopReport *p, const Finding *pFinding, BxErr *pErr) {
  const Rule *pRule = &p->rules.a[pFinding->eRule];
  const Step *pStep = TRACK_STEP(
      &p->track, pFinding->n > 0 ? pFinding->aStep[0] : p->track.nStep);
  int bSeen = pFinding->n > 0 && pFinding->rCount > 0;
  double rLeft = pRule->rThreshold - pFinding->rCount;
  char *zSeqs = bSeen ? bxRuleSeqs(pFinding, &p->track, pErr) : 0;
  char *zSay = bSeen ? bxRuleSentence(pFinding, &p->track, p->zAgent, pErr) : 0;
  assert(pFinding->eRule < N_RULE);
  if (sqlite3_str_length(p->pRows) > 1) sqlite3_str_appendall(p->pRows, ",");
  putJsonText(p->pRows, "[", p->zAgent);
  putJsonText(p->pRows, ",", bxRuleName(pFinding->eRule));
  putJsonText(p->pRows, ",", pRule->bStop ? "stop" : "alert");
  sqlite3_str_appendf(p->pRows, ",%d", pRule->bEnabled);
  putJsonNumber(p->pRows, pFinding->rCount);
  putJsonNumber(p->pRows, pRule->rThreshold);
  putJsonNumber(p->pRows, rLeft > 0 ? rLeft : 0.0);
  putJsonText(p->pRows, ",",
      bSeen && pFinding->eRule <= RULE_REPEAT && pStep->zTool[0] != 0
          ? pStep->zTool
          : 0);
  putJsonText(p->pRows, ",", zSeqs);
  sqlite3_str_appendf(
      p->pRows, ",%lld,", bSeen ? bxRuleTokens(pFinding, &p->track) : (i64)0);
  putJsonText(p->pRows, "", zSay);
  sqlite3_free(zSeqs);
  sqlite3_free(zSay);
}

/*-------------------------------------------------------- payload_loops ----*/

/* What each rule sees at the newest call that has its result. */
static void putAgent(LoopReport *p, BxErr *pErr) {
  i64 nCall = p->track.nStep;
  int eRule;
  while (nCall >= p->track.iLow && nCall > 0 &&
         TRACK_STEP(&p->track, nCall)->iError < 0) {
    nCall--;
  }
  for (eRule = 0; eRule < N_RULE; eRule++) {
    Finding finding;
    bxRuleLook(&p->rules, (RuleKind)eRule, &p->track,
        eRule <= RULE_REPEAT ? nCall : p->track.nStep, &finding);
    putFinding(p, &finding, pErr);
    sqlite3_str_appendchar(p->pRows, 1, ']');
  }
}

/* The schema of the rules that a ring uses. */
static BxStmts *rulesFor(Ring *p, BxErr *pErr) {
  Bx *bx = p->base.stmts.bx;
  const char *zDb = p->base.stmts.zDb;
  if (sqlite3_stricmp(zDb, "temp") == 0)
    return bxDomainSchema(bx, "payload", pErr);
  if (bxSchemaHasDomain(bx, zDb, "payload", pErr))
    return bxSchema(bx, zDb, pErr);
  bxFail(pErr, SQLITE_ERROR,
      "NotInstalledError: schema %s of ring %s has no rules; run SELECT "
      "blackbox_install(%Q)",
      zDb, p->base.stmts.zTable, zDb);
  return 0;
}

sqlite3_stmt *bxPayloadLoops(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
#define LOOP_AGENTS                                                            \
  "SELECT no, window, kept, given, rows, agent_id FROM main.@_agents "
  static const char zAgents[] = LOOP_AGENTS "ORDER BY agent_id";
  static const char zOne[] = LOOP_AGENTS "WHERE agent_id = ?1";
  static const char zSql[] =
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, "
      "value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8, "
      "value ->> 10 FROM json_each(?1)";
  Ring *p = (Ring *)bxVtabFind(bx, "payload_ring", apArg[0], pErr);
  const char *zAgent =
      apArg[1] != 0 ? bxText(apArg[1], "agent_id", 1024, 0, pErr) : 0;
  BxStmts *pHome = pErr->rc == SQLITE_OK ? rulesFor(p, pErr) : 0;
  LoopReport *pReport = bxZalloc(sizeof(*pReport), pErr);
  sqlite3_stmt *pStmt = 0;
  if (pHome == 0 || pReport == 0) {
    sqlite3_free(pReport);
    return 0;
  }
  beginReport(pReport, pHome, pErr);
  pStmt = bxPrepare(&p->base.stmts, zAgent ? zOne : zAgents, pErr);
  if (zAgent != 0) bxBind(pStmt, pErr, "t", zAgent);
  while (bxStep(pStmt, pErr)) {
    RingAgent agent;
    bxRingReadAgent(p, pStmt, &agent, pErr);
    if (pErr->rc == SQLITE_OK) bxTrackRead(&pReport->track, p, &agent, pErr);
    pReport->zAgent = bxColumnText(pStmt, 5, pErr);
    if (pErr->rc == SQLITE_OK) putAgent(pReport, pErr);
  }
  sqlite3_finalize(pStmt);
  pStmt = endReport(pReport, bx, zSql, pErr);
  sqlite3_free(pReport);
  return pStmt;
}

/*------------------------------------------------------- payload_backtest ----*/

/* What was found before in this backtest. */
typedef struct Found {
  i64 *aThing;
  i64 n, nAlloc;
} Found;

static int isNew(
    Found *p, const Finding *pFinding, const Track *pTrack, BxErr *pErr) {
  i64 hThing = (i64)bxHashMix((sqlite3_uint64)bxRuleThing(pFinding, pTrack),
      (sqlite3_uint64)pFinding->eRule);
  i64 i, *a;
  assert(p->n <= p->nAlloc);
  for (i = 0; i < p->n; i++) {
    if (p->aThing[i] == hThing) return 0;
  }
  a = bxArrayGrow(p->aThing, p->n, &p->nAlloc, sizeof(*a), pErr);
  if (a == 0) return 0;
  p->aThing = a;
  a[p->n++] = hThing;
  return 1;
}

#define SHOWN_BYTES 100 /* of arguments, and of a result */

/* A text on one line, cut where a character ends. */
static void putShort(sqlite3_str *pOut, Text text) {
  i64 i, n = text.n < SHOWN_BYTES ? text.n : SHOWN_BYTES;
  assert(text.n >= 0);
  while (n > 0 && n < text.n && (text.z[n] & 0xc0) == 0x80) n--;
  for (i = 0; i < n; i++) {
    unsigned char c = (unsigned char)text.z[i];
    sqlite3_str_appendchar(pOut, 1, c < ' ' ? ' ' : (char)c);
  }
  if (n < text.n) sqlite3_str_appendall(pOut, "...");
}

/* The last nCall calls of an exchange and their results, a line each, so that a person
** sees what the agent did. */
static char *sayCalls(
    LoopReport *p, sqlite3_stmt *pStmt, int nCall, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  Exchange exchange;
  i64 i;
  assert(nCall >= 0);
  bxExchangeRead(&exchange, &p->rules.formats, sqlite3_column_value(pStmt, 2),
      sqlite3_column_value(pStmt, 3), pErr);
  for (i = exchange.n; i > 0 && nCall > 0; i--) {
    nCall -= !exchange.a[i - 1].bResult;
  }
  for (; i < exchange.n; i++) {
    const Call *pCall = &exchange.a[i];
    if (sqlite3_str_length(pOut) > 0) sqlite3_str_appendchar(pOut, 1, '\n');
    if (pCall->bResult) {
      sqlite3_str_appendall(pOut, pCall->iError == 1 ? "  error: " : "  = ");
      putShort(pOut, pCall->result);
    } else {
      putShort(pOut, pCall->tool);
      sqlite3_str_appendchar(pOut, 1, ' ');
      putShort(pOut, pCall->arguments);
    }
  }
  bxExchangeFree(&exchange);
  return bxStrFinish(pOut, pErr);
}

static void backtestRule(LoopReport *p, Found *pFound, RuleKind eRule, i64 n,
    sqlite3_stmt *pStmt, BxErr *pErr) {
  Finding finding;
  i64 iTime = sqlite3_column_int64(pStmt, 4);
  char *zEvidence, *zCalls;
  assert(eRule < N_RULE);
  if (!p->rules.a[eRule].bEnabled || pErr->rc != SQLITE_OK) return;
  bxRuleLook(&p->rules, eRule, &p->track, n, &finding);
  if (finding.n == 0 || finding.rCount < p->rules.a[eRule].rThreshold ||
      bxRuleAllowed(p->pHome, &finding, &p->track, p->zAgent, iTime, pErr) ||
      !isNew(pFound, &finding, &p->track, pErr)) {
    return;
  }
  putFinding(p, &finding, pErr);
  putJsonText(p->pRows, ",", bxColumnText(pStmt, 1, pErr));
  sqlite3_str_appendf(p->pRows, ",%lld", iTime);
  zEvidence = bxRuleEvidence(&finding, &p->track, pErr);
  putJsonText(p->pRows, ",", zEvidence);
  sqlite3_free(zEvidence);
  zCalls = sayCalls(p, pStmt, finding.n + 1, pErr);
  putJsonText(p->pRows, ",", zCalls);
  sqlite3_free(zCalls);
  sqlite3_str_appendchar(p->pRows, 1, ']');
}

/* How many bytes the request has in common with the one before, whose place it
** takes. */
static i64 shareLast(LoopReport *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  i64 i = 0, n = sqlite3_column_bytes(pStmt, 2);
  const char *z = sqlite3_column_blob(pStmt, 2);
  while (i < n && i < p->nLast && z[i] == p->zLast[i]) i++;
  sqlite3_free(p->zLast);
  p->zLast = n > 0 ? bxZalloc((size_t)n, pErr) : 0;
  p->nLast = p->zLast != 0 ? n : 0;
  if (p->nLast > 0) memcpy(p->zLast, z, (size_t)n);
  return i;
}

/* One exchange: number iSeq of its agent. */
static void backtestOne(
    LoopReport *p, Found *pFound, sqlite3_stmt *pStmt, i64 iSeq, BxErr *pErr) {
  Moment moment = {iSeq, sqlite3_column_int64(pStmt, 4), 0,
      {.iAt = iSeq, .iFrom = iSeq - 1, .n = shareLast(p, pStmt, pErr)}};
  i64 aDone[TRACK_STEPS];
  int nDone, i, eRule;
  nDone =
      bxTrackAdd(&p->track, &p->rules, &moment, sqlite3_column_value(pStmt, 2),
          sqlite3_column_value(pStmt, 3), aDone, pErr);
  for (i = 0; i < nDone; i++) {
    for (eRule = 0; eRule <= RULE_REPEAT; eRule++) {
      backtestRule(p, pFound, (RuleKind)eRule, aDone[i], pStmt, pErr);
    }
  }
  for (eRule = RULE_TOKENS; eRule < N_RULE; eRule++) {
    backtestRule(p, pFound, (RuleKind)eRule, p->track.nStep, pStmt, pErr);
  }
}

/* All exchanges of the query, which are in the order of their agents. */
static void backtestAll(LoopReport *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  Found found = {0, 0, 0};
  char *zAgent = 0;
  i64 iSeq = 0;
  while (bxStep(pStmt, pErr)) {
    const char *z = bxColumnText(pStmt, 0, pErr);
    if (z == 0) break;
    if (zAgent == 0 || strcmp(zAgent, z) != 0) {
      sqlite3_free(zAgent);
      p->zAgent = zAgent = bxPrintf(pErr, "%s", z);
      memset(&p->track, 0, sizeof(p->track));
      found.n = 0;
      iSeq = 0;
    }
    backtestOne(p, &found, pStmt, ++iSeq, pErr);
  }
  sqlite3_free(zAgent);
  sqlite3_free(found.aThing);
}

sqlite3_stmt *bxPayloadBacktest(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zKill[] =
      "SELECT r.agent_id, r.event_id, r.request_body, r.response_body, "
      "r.created_ms "
      "FROM main.payload_rows AS r JOIN main.event_payloads AS e ON e.id = "
      "r.id "
      "WHERE e.kill_switch_event_id = ?1 ORDER BY 1, 5, e.rowid";
  static const char zAgent[] =
      "SELECT r.agent_id, r.event_id, r.request_body, r.response_body, "
      "r.created_ms "
      "FROM main.payload_rows AS r JOIN main.event_payloads AS e ON e.id = "
      "r.id "
      "WHERE e.agent_id = ?1 AND r.created_ms BETWEEN ?2 AND ?3 "
      "ORDER BY 5, e.rowid";
  static const char zSql[] =
      "SELECT value ->> 0, value ->> 11, value ->> 12, value ->> 1, "
      "value ->> 2, value ->> 4, value ->> 5, value ->> 7, value ->> 8, "
      "value ->> 9, value ->> 10, value ->> 13, value ->> 14 FROM "
      "json_each(?1)";
  const char *zWhat =
      bxText(apArg[0], "kill_switch_event_id or agent_id", 1024, 0, pErr);
  i64 iFrom = apArg[1] != 0 ? bxTime(apArg[1], "from", pErr) : 0;
  i64 iTo = apArg[2] != 0 ? bxTime(apArg[2], "to", pErr) : BX_MAX_TIME;
  BxStmts *pHome = bxDomainSchema(bx, "payload", pErr);
  LoopReport *pReport = bxZalloc(sizeof(*pReport), pErr);
  sqlite3_stmt *pStmt = 0;
  int bKill;
  if (pReport == 0) return 0;
  bKill = apArg[1] == 0 && apArg[2] == 0 && pHome != 0 &&
          bxQueryIntOnce(pHome,
              "SELECT 1 FROM main.event_payloads "
              "WHERE kill_switch_event_id = ?1",
              pErr, "t", zWhat);
  beginReport(pReport, pHome, pErr);
  if (pHome != 0) pStmt = bxPrepare(pHome, bKill ? zKill : zAgent, pErr);
  bxBind(pStmt, pErr, "t", zWhat);
  if (!bKill) bxBind(pStmt, pErr, "-ii", iFrom, iTo);
  backtestAll(pReport, pStmt, pErr);
  sqlite3_finalize(pStmt);
  pStmt = endReport(pReport, bx, zSql, pErr);
  sqlite3_free(pReport);
  return pStmt;
}
