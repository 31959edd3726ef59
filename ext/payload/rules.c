/*
** rules.c: what each rule of payload_rules sees in the steps of an agent.
**
** A rule looks at calls that have their result, within the user's turn and since
** the agent was started last; repeated_text looks at exchanges, across
** turns. It counts, and names the steps that it counted. Reading a rule changes
** nothing, so that pushes, payload_loops() and payload_replay() use the same.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static const char *const azRule[N_RULE] = {"no_progress", "masked", "cycle",
    "same_error", "errors", "repeat", "repeated_text", "budget_tokens",
    "budget_calls", "budget_cost"};

const char *bxRuleName(RuleKind eRule) {
  return azRule[eRule];
}

/*------------------------------------------------------- tables of rules ----*/

static void readRule(Rules *pOut, sqlite3_stmt *pStmt, BxErr *pErr) {
  const char *z = bxColumnText(pStmt, 0, pErr);
  int i = 0;
  while (z != 0 && i < N_RULE && strcmp(azRule[i], z) != 0) i++;
  if (z == 0 || i == N_RULE) return;
  pOut->a[i].bEnabled = sqlite3_column_int(pStmt, 1);
  pOut->a[i].bStop = sqlite3_column_int(pStmt, 2);
  pOut->a[i].rThreshold = sqlite3_column_double(pStmt, 3);
  pOut->a[i].nSpan = sqlite3_column_int64(pStmt, 4);
  pOut->a[i].iPause = sqlite3_column_int64(pStmt, 5);
}

void bxRulesRead(Rules *pOut, BxStmts *p, BxErr *pErr) {
  static const char zRules[] =
      "SELECT rule, enabled, level = 'stop', threshold, span, "
      "coalesce(pause_ms, 0) FROM main.payload_rules";
  sqlite3_stmt *pStmt;
  unsigned mKind = FORMATS_OF_CALLS;
  memset(pOut, 0, sizeof(*pOut));
  if (p == 0) return;
  pOut->bRead = 1;
  pStmt = bxStmt(p, zRules, pErr);
  while (bxRow(pStmt, pErr)) readRule(pOut, pStmt, pErr);
  bxDone(pStmt, pErr);
  pOut->pHome = p;
  if (pOut->a[RULE_COST].bEnabled) mKind |= 1u << BX_KIND_MODEL;
  bxFormatsRead(&pOut->formats, p, mKind, pErr);
}

void bxRulesFree(Rules *p) {
  bxFormatsFree(&p->formats);
  memset(p, 0, sizeof(*p));
}

/*-------------------------------------------------------------- windows ----*/

/* The calls that a rule looks at, the newest first. */
typedef struct Window {
  int n;
  const Step *ap[TRACK_STEPS];
} Window;

static void openWindow(
    Window *p, const Track *pTrack, i64 n, i64 nSpan, int bTurn) {
  const Step *pNew = TRACK_STEP(pTrack, n);
  p->n = 0;
  for (; n >= pTrack->iLow && n > 0 && p->n < nSpan; n--) {
    const Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->iStart != pNew->iStart) break;
    if (bTurn && pStep->iTurn != pNew->iTurn) break;
    if (pStep->hArguments != 0 && pStep->iError >= 0) p->ap[p->n++] = pStep;
  }
}

static void count(Finding *p, const Step *pStep) {
  p->rCount += 1;
  p->aStep[p->n++] = pStep->n;
}

/* Calls that are far apart are polls: they are not counted. */
static void forgetPolls(Finding *p, const Rule *pRule, const Track *pTrack) {
  i64 iLast, iFirst;
  if (pRule->iPause == 0 || p->n < 2) return;
  iLast = TRACK_STEP(pTrack, p->aStep[0])->iTime;
  iFirst = TRACK_STEP(pTrack, p->aStep[p->n - 1])->iTime;
  if ((iLast - iFirst) / (p->n - 1) >= pRule->iPause) {
    p->n = 0;
    p->rCount = 0;
  }
}

/*---------------------------------------------------------------- rules ----*/

/* Results that are the same without a mask are counted by no_progress. */
static void lookSame(Finding *p, const Window *pWindow, int bMasked) {
  const Step *pNew = pWindow->n > 0 ? pWindow->ap[0] : 0;
  int i, bVaried = !bMasked;
  for (i = 0; i < pWindow->n; i++) {
    const Step *pStep = pWindow->ap[i];
    if (pStep->hArguments == pNew->hArguments &&
        (bMasked ? pStep->hMasked == pNew->hMasked
                 : pStep->hResult == pNew->hResult)) {
      count(p, pStep);
      if (pStep->hResult != pNew->hResult) bVaried = 1;
    }
  }
  if (pNew != 0) p->hThing = pNew->hArguments;
  if (!bVaried) p->n = 0;
}

static int sameCalls(const Step *p, const Step *q) {
  return p->hArguments == q->hArguments && p->hResult == q->hResult;
}

/* How often the newest nBlock calls were repeated; 0 if they are all the same
** call, which other rules count. */
static int countBlocks(const Window *p, int nBlock) {
  int i, nSame = 0, bVaried = 0;
  for (i = 1; i < nBlock && i < p->n; i++) {
    if (p->ap[0]->hArguments != p->ap[i]->hArguments) bVaried = 1;
  }
  if (!bVaried || p->n < nBlock) return 0;
  while (
      nSame + nBlock < p->n && sameCalls(p->ap[nSame], p->ap[nSame + nBlock])) {
    nSame++;
  }
  return nSame / nBlock;
}

/* The thing is the block, wherever it begins: so the sum of its calls. */
static void lookCycle(Finding *p, const Window *pWindow) {
  int nBlock, nBest = 0, nMost = 0, i;
  for (nBlock = 2; nBlock <= 8; nBlock++) {
    int nTimes = countBlocks(pWindow, nBlock);
    if (nTimes > nMost) {
      nMost = nTimes;
      nBest = nBlock;
    }
  }
  for (i = 0; i < nBest * (nMost + 1); i++)
    p->aStep[p->n++] = pWindow->ap[i]->n;
  p->rCount = nMost;
  for (i = 0; i < nBest; i++) {
    p->hThing = (i64)((sqlite3_uint64)p->hThing +
                      (sqlite3_uint64)pWindow->ap[i]->hArguments);
  }
}

static void lookSameError(Finding *p, const Window *pWindow) {
  const Step *pNew = pWindow->n > 0 ? pWindow->ap[0] : 0;
  int i;
  for (i = 0; i < pWindow->n; i++) {
    const Step *pStep = pWindow->ap[i];
    if (pStep->hArguments != pNew->hArguments) continue;
    if (pStep->iError != 1) break;
    count(p, pStep);
  }
  if (pNew != 0) p->hThing = pNew->hArguments;
}

static void lookErrors(Finding *p, const Window *pWindow) {
  int i;
  for (i = 0; i < pWindow->n; i++) {
    if (pWindow->ap[i]->iError == 1) count(p, pWindow->ap[i]);
  }
}

static void lookRepeat(Finding *p, const Window *pWindow) {
  int i;
  for (i = 0; i < pWindow->n; i++) {
    if (pWindow->ap[i]->hArguments != pWindow->ap[0]->hArguments) break;
    count(p, pWindow->ap[i]);
  }
  if (pWindow->n > 0) p->hThing = pWindow->ap[0]->hArguments;
}

static void lookText(
    Finding *p, const Track *pTrack, i64 n, const Rule *pRule) {
  i64 hSaid = 0, iStart = TRACK_STEP(pTrack, n)->iStart;
  for (; n >= pTrack->iLow && n > 0 && p->n < pRule->nSpan; n--) {
    const Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->iStart != iStart || pStep->hArguments != 0) break;
    if (pStep->hSaid == 0 || (hSaid != 0 && pStep->hSaid != hSaid)) break;
    hSaid = pStep->hSaid;
    count(p, pStep);
  }
  p->hThing = hSaid;
}

/* Tokens, calls or cost of this turn. */
static void lookBudget(Finding *p, const Track *pTrack, i64 n) {
  const Step *pStep = TRACK_STEP(pTrack, n);
  p->aStep[p->n++] = n;
  if (p->eRule == RULE_TOKENS) {
    p->rCount = (double)(pStep->nSpent - pStep->nSpentBefore);
  } else if (p->eRule == RULE_CALLS) {
    p->rCount = (double)(pStep->nMade - pStep->nMadeBefore);
  } else {
    p->rCount = (double)(pStep->nCost - pStep->nCostBefore) / 1e6;
  }
}

int bxRuleLike(const Track *pTrack, i64 n) {
  const Step *pNew;
  int nLike = 0;
  if (n < pTrack->iLow || n > pTrack->nStep || n <= 0) return 0;
  pNew = TRACK_STEP(pTrack, n);
  for (; n >= pTrack->iLow && n > 0; n--) {
    const Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->iTurn != pNew->iTurn) break;
    nLike += pStep->hArguments == pNew->hArguments;
  }
  return nLike;
}

int bxRuleMay(const Rules *p, RuleKind eRule, int nLike) {
  if (eRule == RULE_ERRORS) return 1;
  return nLike - (eRule == RULE_CYCLE) >= p->a[eRule].rThreshold;
}

void bxRuleLook(
    const Rules *p, RuleKind eRule, const Track *pTrack, i64 n, Finding *pOut) {
  const Rule *pRule = &p->a[eRule];
  Window window;
  memset(pOut, 0, offsetof(Finding, aStep));
  pOut->eRule = eRule;
  if (n < pTrack->iLow || n > pTrack->nStep || n <= 0) return;
  if (eRule <= RULE_REPEAT) openWindow(&window, pTrack, n, pRule->nSpan, 1);
  switch (eRule) {
    case RULE_NO_PROGRESS: lookSame(pOut, &window, 0); break;
    case RULE_MASKED: lookSame(pOut, &window, 1); break;
    case RULE_CYCLE: lookCycle(pOut, &window); break;
    case RULE_SAME_ERROR: lookSameError(pOut, &window); break;
    case RULE_ERRORS: lookErrors(pOut, &window); break;
    case RULE_REPEAT: lookRepeat(pOut, &window); break;
    case RULE_TEXT: lookText(pOut, pTrack, n, pRule); break;
    default: lookBudget(pOut, pTrack, n);
  }
  forgetPolls(pOut, pRule, pTrack);
}

/*------------------------------------------------------------ sentences ----*/

/* In the order of RuleKind: agent, tool, count. */
static const char *const azSay[N_RULE] = {
    "%s called %s %s times with the same arguments and got the same result",
    "%s called %s %s times with the same arguments and got the same result but "
    "for numbers, ids and times",
    "%s repeated a block of calls that ends with %s %s times, with the same "
    "results",
    "%s called %s %s times with the same arguments, and it failed each time",
    "%s got errors (the last one from %s) from %s of its last calls",
    "%s called %s %s times in a row with the same arguments",
    "%s%.0s said the same thing %s times in a row, and called nothing",
    "%s%.0s used %s tokens since the user spoke",
    "%s%.0s made %s calls since the user spoke",
    "%s%.0s cost %s since the user spoke"};

char *bxRuleSay(
    const Finding *p, const Track *pTrack, const char *zAgent, BxErr *pErr) {
  const char *zTool = TRACK_STEP(pTrack, p->aStep[0])->zTool;
  char *zNumber = bxPrintf(pErr, "%!.15g", p->rCount), *z;
  if (zNumber == 0) return 0;
  if (strstr(zNumber, ".0") == zNumber + strlen(zNumber) - 2) {
    zNumber[strlen(zNumber) - 2] = 0;
  }
  z = bxPrintf(pErr, azSay[p->eRule], zAgent, zTool, zNumber);
  sqlite3_free(zNumber);
  return z;
}

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
