/*
** rules.c: what each rule of payload_rules sees in the steps of an agent.
**
** A rule looks at the steps of one conversation that have their result, since the
** agent was started last. It counts, and names the steps that it counted. Reading a
** rule changes nothing, so that pushes, payload_loops() and payload_backtest() use the
** same.
**
** no_progress is what tells a loop from work: nothing new appears. A step is new if no
** earlier one had the same call and the same result:
**
**     read a   edit a   test    edit a   test    test    test    test
**     new      new      new     new      again   again   again   again
**                                        \______ the stretch ______/
**
** The stretch are the newest steps of which none is new. The loop is there when each
** distinct step of it came often enough, with the one that was new.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static const char *const azRule[N_RULE] = {"no_progress", "same_error",
    "errors", "repeat", "budget_tokens", "budget_calls", "budget_cost"};

const char *bxRuleName(RuleKind eRule) {
  assert(eRule < N_RULE);
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
  while (bxStep(pStmt, pErr)) readRule(pOut, pStmt, pErr);
  bxReset(pStmt, pErr);
  pOut->pHome = p;
  if (pOut->a[RULE_COST].bEnabled) mKind |= 1u << BX_KIND_MODEL;
  bxFormatsRead(&pOut->formats, p, mKind, pErr);
}

void bxRulesFree(Rules *p) {
  bxFormatsFree(&p->formats);
  memset(p, 0, sizeof(*p));
}

/*-------------------------------------------------------------- windows ----*/

/* The steps that a rule looks at, the newest first. */
typedef struct Window {
  int n;
  const Step *ap[TRACK_STEPS];
} Window;

/* bText: if the newest step has no call, others without one are looked at, too. A
** conversation goes on behind the summary with which it began, if the call before that
** never got its result. */
static void openWindow(
    Window *p, const Track *pTrack, i64 n, i64 nSpan, int bText) {
  const Step *pNew = TRACK_STEP(pTrack, n);
  int iTalk = pNew->iTalk, bBehind = 0;
  assert(n > 0 && n <= pTrack->nStep);
  p->n = 0;
  if (pNew->hArguments != 0)
    bText = 0; /* what is said between calls is no news */
  for (; n >= pTrack->iLow && n > 0 && p->n < nSpan; n--) {
    const Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->iTalk != iTalk) continue;
    if (bBehind && (pStep->hArguments == 0 || pStep->iError >= 0)) return;
    bBehind = pStep->iBefore != 0;
    if (bBehind) iTalk = pStep->iBefore;
    if (pStep->iError < 0 || pStep->iStart != pNew->iStart) continue;
    if (pStep->hArguments != 0 || (bText && pStep->hSaid != 0)) {
      p->ap[p->n++] = pStep;
    }
  }
}

static void count(Finding *p, const Step *pStep) {
  assert(p->n < TRACK_STEPS);
  p->rCount += 1;
  p->aStep[p->n++] = pStep->n;
}

/* The time between n steps, the newest first. */
static i64 meanPause(const Step *pLast, const Step *pFirst, int n) {
  return n > 1 ? (pLast->iTime - pFirst->iTime) / (n - 1) : 0;
}

/* Calls that are far apart are polls: they are not counted. */
static void forgetPolls(Finding *p, const Rule *pRule, const Track *pTrack) {
  if (pRule->iPause == 0 || p->n < 2 ||
      meanPause(TRACK_STEP(pTrack, p->aStep[0]),
          TRACK_STEP(pTrack, p->aStep[p->n - 1]), p->n) < pRule->iPause) {
    return;
  }
  p->n = 0;
  p->rCount = 0;
}

/*---------------------------------------------------------------- rules ----*/

static i64 madeOf(const Step *p) {
  return p->hArguments != 0 ? p->hArguments : p->hSaid;
}

/* Whether two steps say the same: the same call, or the same but for numbers and ids,
** with the same result; or the same call, which failed both times. */
static int saysSame(const Step *p, const Step *q) {
  if (madeOf(p) == madeOf(q)) {
    return p->hResult == q->hResult || (p->iError == 1 && q->iError == 1);
  }
  return p->hResult == q->hResult && p->hLoose == q->hLoose;
}

#define PATIENCE 4 /* times as many of slow calls, and of calls that vary */

/* Whether each class of the stretch has a step right before it: that which was new. */
static int countOwn(
    Finding *p, const Window *pWindow, int n, const int *aiClass) {
  int i, k, nFound = 0, nStep = p->n;
  assert(n >= 0 && n <= pWindow->n);
  for (k = n; k < pWindow->n && nFound < p->nDistinct; k++) {
    const Step *pStep = pWindow->ap[k];
    for (i = 0; i < n; i++) {
      if (aiClass[i] == i && saysSame(pWindow->ap[i], pStep)) break;
    }
    if (i == n) break;
    nFound++;
    p->aStep[p->n++] = pStep->n;
  }
  if (nFound == p->nDistinct) return 1;
  p->n = nStep;
  return 0;
}

/* The steps of the stretch become classes of the same; iClass is the newest of each. */
static void lookNoProgress(
    Finding *p, const Window *pWindow, const Rule *pRule) {
  int aiClass[TRACK_STEPS], anStep[TRACK_STEPS] = {0};
  int n = 0, i, k, nLeast = TRACK_STEPS, nOwn, bError = 1, nNeed;
  for (; n < pWindow->n; n++) {
    const Step *pStep = pWindow->ap[n];
    for (k = n + 1; k < pWindow->n && !saysSame(pStep, pWindow->ap[k]); k++) {
    }
    if (k == pWindow->n) break; /* it was new */
    for (i = 0; i < n && !saysSame(pWindow->ap[i], pStep); i++) {
    }
    aiClass[n] = i;
    anStep[i]++;
    if (madeOf(pStep) != madeOf(pWindow->ap[k])) p->bVaried = 1;
    if (pStep->iError != 1) bError = 0;
  }
  for (i = 0; i < n; i++) {
    count(p, pWindow->ap[i]);
    if (aiClass[i] != i) continue;
    p->nDistinct++;
    p->hThing = (i64)((sqlite3_uint64)p->hThing +
                      (sqlite3_uint64)pWindow->ap[i]->hLoose);
    if (anStep[i] < nLeast) nLeast = anStep[i];
  }
  if (n == 0) {
    if (pWindow->n > 0) count(p, pWindow->ap[0]);
    return;
  }
  /* one that comes seldom does not hide a long stretch */
  nNeed = (int)pRule->rThreshold - 1;
  if (n >= 2 * nNeed * p->nDistinct && nLeast < n / (2 * p->nDistinct)) {
    nLeast = n / (2 * p->nDistinct);
  }
  p->nAgain = p->n;
  if (n < pWindow->n) p->iNew = pWindow->ap[n]->n;
  /* what was new at its beginning counts as well */
  nOwn = countOwn(p, pWindow, n, aiClass);
  p->rCount = nLeast + nOwn;
  if (!bError) {
    i64 iPause = meanPause(pWindow->ap[0], pWindow->ap[n - 1], n);
    if (pRule->iPause > 0 && iPause >= pRule->iPause) {
      iPause /= 3 * pRule->iPause;
      nNeed *= PATIENCE * (iPause < 1 ? 1 : iPause < 10 ? (int)iPause : 10);
    } else if (p->bVaried) {
      nNeed *= PATIENCE;
    }
  }
  if (nLeast + nOwn <= nNeed && p->rCount >= pRule->rThreshold) {
    p->rCount = pRule->rThreshold - 1;
  }
}

/* The same failure in a row, whatever was called. */
static void lookSameError(Finding *p, const Window *pWindow) {
  int i;
  for (i = 0; i < pWindow->n; i++) {
    const Step *pStep = pWindow->ap[i];
    p->iNew = pStep->n;
    if (pStep->iError != 1) return;
    if (pStep->hResult != pWindow->ap[0]->hResult) return;
    count(p, pStep);
    p->hThing = pStep->hResult;
  }
  p->iNew = 0;
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

/* Tokens, calls or cost of this turn. */
static void lookBudget(Finding *p, const Track *pTrack, i64 n) {
  const Step *pStep = TRACK_STEP(pTrack, n);
  assert(p->eRule >= RULE_TOKENS && p->n == 0);
  p->aStep[p->n++] = n;
  if (p->eRule == RULE_TOKENS) {
    p->rCount = (double)(pStep->nSpent - pStep->nSpentBefore);
  } else if (p->eRule == RULE_CALLS) {
    p->rCount = (double)(pStep->nMade - pStep->nMadeBefore);
  } else {
    p->rCount = (double)(pStep->nCost - pStep->nCostBefore) / 1e6;
  }
}

void bxRuleLook(
    const Rules *p, RuleKind eRule, const Track *pTrack, i64 n, Finding *pOut) {
  const Rule *pRule = &p->a[eRule];
  int bText = eRule == RULE_NO_PROGRESS || eRule == RULE_SAME_ERROR;
  Window window;
  assert(eRule < N_RULE);
  memset(pOut, 0, offsetof(Finding, aStep));
  pOut->eRule = eRule;
  if (n < pTrack->iLow || n > pTrack->nStep || n <= 0) return;
  if (eRule <= RULE_REPEAT) {
    openWindow(&window, pTrack, n,
        eRule == RULE_NO_PROGRESS ? TRACK_STEPS : pRule->nSpan, bText);
  }
  switch (eRule) {
    case RULE_NO_PROGRESS: lookNoProgress(pOut, &window, pRule); return;
    case RULE_SAME_ERROR: lookSameError(pOut, &window); break;
    case RULE_ERRORS: lookErrors(pOut, &window); break;
    case RULE_REPEAT: lookRepeat(pOut, &window); break;
    default: lookBudget(pOut, pTrack, n);
  }
  forgetPolls(pOut, pRule, pTrack);
}

/*------------------------------------------------------------ sentences ----*/

/* In the order of RuleKind: agent, tool, count. */
static const char *const azSay[N_RULE] = {
    "%s called %s %s times with the same arguments and got the same result",
    "%s got the same error (the last time from %s) %s times in a row",
    "%s got errors (the last one from %s) from %s of its last calls",
    "%s called %s %s times in a row with the same arguments",
    "%s%.0s used %s tokens since the user spoke",
    "%s%.0s made %s calls since the user spoke",
    "%s%.0s cost %s since the user spoke"};

/* Of no_progress in other cases. */
static const char *sayNoProgress(const Finding *p, const char *zTool) {
  if (p->nDistinct > 1) {
    return zTool[0] != 0
               ? "%s repeated a block of calls that ends with %s %s times, and "
                 "nothing new came back"
               : "%s%.0s repeated a block of answers %s times, and nothing new "
                 "came back";
  }
  if (zTool[0] == 0) {
    return "%s%.0s said the same thing %s times, and nothing new came back";
  }
  return p->bVaried ? "%s called %s %s times with the same arguments but for "
                      "numbers and ids, and nothing new came back"
                    : azSay[RULE_NO_PROGRESS];
}

char *bxRuleSentence(
    const Finding *p, const Track *pTrack, const char *zAgent, BxErr *pErr) {
  const char *zTool = TRACK_STEP(pTrack, p->aStep[0])->zTool;
  const char *zSay = azSay[p->eRule];
  char *zNumber = bxPrintf(pErr, "%!.15g", p->rCount), *z;
  assert(p->n > 0);
  if (zNumber == 0) return 0;
  if (strstr(zNumber, ".0") == zNumber + strlen(zNumber) - 2) {
    zNumber[strlen(zNumber) - 2] = 0;
  }
  if (p->eRule == RULE_NO_PROGRESS) zSay = sayNoProgress(p, zTool);
  if (p->eRule == RULE_SAME_ERROR && zTool[0] == 0) {
    zSay = "%s%.0s got the same error %s times in a row";
  }
  z = bxPrintf(pErr, zSay, zAgent, zTool, zNumber);
  sqlite3_free(zNumber);
  return z;
}

int bxRuleAllowed(BxStmts *pHome, const Finding *p, const Track *pTrack,
    const char *zAgent, i64 iTime, BxErr *pErr) {
  static const char zSql[] =
      "SELECT 1 FROM main.payload_allows "
      "WHERE coalesce(agent_id = ?1, 1) AND coalesce(rule = ?2, 1) "
      "AND coalesce(tool = ?3, 1) AND coalesce(until > ?4, 1)";
  return (int)bxQueryInt(pHome, zSql, pErr, "ttti", zAgent,
      bxRuleName(p->eRule), TRACK_STEP(pTrack, p->aStep[0])->zTool, iTime);
}

/* What repeats, in this turn, since the last start. */
i64 bxRuleThing(const Finding *p, const Track *pTrack) {
  const Step *pStep = TRACK_STEP(pTrack, p->aStep[0]);
  assert(p->n > 0);
  return (i64)bxHashMix((sqlite3_uint64)p->hThing,
      bxHashMix((sqlite3_uint64)pStep->iTurn, (sqlite3_uint64)pStep->iStart));
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
  return bxStrFinish(pStr, pErr);
}

static void putStep(sqlite3_str *p, const Step *pStep, const char *zResult) {
  sqlite3_str_appendf(p,
      "%s{\"seq\":%lld,\"tool\":", sqlite3_str_length(p) > 1 ? "," : "",
      pStep->iSeq);
  if (pStep->zTool[0] != 0) {
    bxJsonAppend(p, pStep->zTool, (int)strlen(pStep->zTool));
  } else {
    sqlite3_str_appendall(p, "null");
  }
  sqlite3_str_appendf(
      p, ",\"result\":\"%s\"}", pStep->iError == 1 ? "error" : zResult);
}

char *bxRuleEvidence(const Finding *p, const Track *pTrack, BxErr *pErr) {
  sqlite3_str *pStr = sqlite3_str_new(0);
  int i, bAgain = p->eRule <= RULE_SAME_ERROR;
  sqlite3_str_appendchar(pStr, 1, '[');
  if (p->iNew != 0 && (p->n == 0 || p->iNew < p->aStep[p->n - 1])) {
    putStep(pStr, TRACK_STEP(pTrack, p->iNew), "new");
  }
  for (i = p->n - 1; i >= 0 && p->eRule <= RULE_REPEAT; i--) {
    putStep(pStr, TRACK_STEP(pTrack, p->aStep[i]),
        bAgain && i < p->nAgain ? "again" : "new");
  }
  sqlite3_str_appendchar(pStr, 1, ']');
  return bxStrFinish(pStr, pErr);
}

i64 bxRuleTokens(const Finding *p, const Track *pTrack) {
  const Step *pNew = TRACK_STEP(pTrack, pTrack->nStep);
  if (p->eRule >= RULE_TOKENS && p->eRule <= RULE_COST) {
    return pNew->nSpent - pNew->nSpentBefore;
  }
  return pNew->nSpent - TRACK_STEP(pTrack, p->aStep[p->n - 1])->nSpent;
}
