/*
** track.c: what an exchange adds to the steps of its agent.
**
** A call is in a response; it is again, with its result, in the next request. So
** a request says nothing new but what is behind the messages that were read
** before. A result finds its call by its id or, if the format has none, by its
** order and the name of the tool.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static i64 hashText(Text text) {
  return text.z == 0 ? 0 : (i64)bxHashOf(text.z, text.n);
}

/*---------------------------------------------------------------- masks ----*/

static int isWordByte(char c) {
  return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

/* Masks one word in place: a hexadecimal one with a digit becomes '#', as do the
** digits of any other. Returns the end of what was written. */
static char *maskWord(char *zOut, const char *z, const char *zEnd) {
  int nDigit = 0, nHex = 0;
  const char *zAt;
  for (zAt = z; zAt < zEnd; zAt++) {
    nDigit += *zAt <= '9';
    nHex += *zAt <= '9' || (*zAt | 32) <= 'f';
  }
  if (nDigit > 0 && nHex == zEnd - z) {
    *zOut++ = '#';
    return zOut;
  }
  for (zAt = z; zAt < zEnd; zAt++) {
    if (*zAt > '9') {
      *zOut++ = *zAt;
    } else if (zAt == z || zAt[-1] > '9') {
      *zOut++ = '#';
    }
  }
  return zOut;
}

/* The hash of a text without its numbers, ids and times. Changes the text. */
static i64 maskedHash(Text text) {
  char *z = text.z, *zOut = text.z, *zEnd = text.z + text.n;
  if (z == 0) return 0;
  while (z < zEnd) {
    char *zWord = z;
    while (z < zEnd && isWordByte(*z)) z++;
    if (z > zWord) {
      zOut = maskWord(zOut, zWord, z);
    } else {
      *zOut++ = *z++;
    }
  }
  return (i64)bxHashOf(text.z, zOut - text.z);
}

/*---------------------------------------------------------------- steps ----*/

typedef struct Adding {
  Track *p;
  const Moment *pMoment;
  Exchange exchange;
  i64 iFirst;  /* the first step of this exchange */
  i64 iTurn;   /* before it */
  i64 nSeen;   /* messages that were read before */
  int bGoesOn; /* the conversation is the same */
  i64 *aDone;
  int nDone;
} Adding;

static Step *newStep(Adding *p, i64 iTurn) {
  Track *pTrack = p->p;
  Step *pStep = TRACK_STEP(pTrack, ++pTrack->nStep);
  memset(pStep, 0, sizeof(*pStep));
  pStep->n = pTrack->nStep;
  pStep->iSeq = p->pMoment->iSeq;
  pStep->iTime = p->pMoment->iTime;
  pStep->iStart = p->pMoment->iStart;
  pStep->iTurn = iTurn;
  pStep->iError = -1;
  pStep->bDirty = 1;
  if (pTrack->nStep - pTrack->iLow >= TRACK_STEPS) pTrack->iLow++;
  return pStep;
}

static i64 argumentsHash(const Call *pCall) {
  return (i64)bxHashMix((sqlite3_uint64)hashText(pCall->tool),
             (sqlite3_uint64)hashText(pCall->arguments)) |
         1;
}

/* The step of a call that a request repeats, or NULL. While a conversation goes
** on, it waits for its result: some programs use an id twice. A response may have
** had no id. */
static Step *findCall(Adding *p, const Call *pCall) {
  i64 h = hashText(pCall->id), hArguments = argumentsHash(pCall), n;
  Step *pLike = 0;
  for (n = p->p->nStep; n >= p->p->iLow && n > 0; n--) {
    Step *pStep = TRACK_STEP(p->p, n);
    if (pStep->hArguments == 0) continue;
    if (p->bGoesOn && pStep->iError >= 0) continue;
    if (h != 0 && pStep->hCall == h) return pStep;
    if (pStep->hCall == 0 && pStep->iError < 0 &&
        pStep->hArguments == hArguments) {
      pLike = pStep;
    }
  }
  if (pLike != 0) pLike->hCall = h;
  return pLike;
}

/* The step whose result this is: without an id the oldest that waits for one
** from this tool. */
static Step *findPending(Adding *p, const Call *pResult) {
  i64 h = hashText(pResult->id), n;
  char zTool[TOOL_BYTES];
  Step *pFound = 0;
  sqlite3_snprintf(
      TOOL_BYTES, zTool, "%s", pResult->tool.z != 0 ? pResult->tool.z : "");
  for (n = p->p->nStep; n >= p->p->iLow && n > 0; n--) {
    Step *pStep = TRACK_STEP(p->p, n);
    if (pStep->hArguments == 0) continue;
    if (pStep->iError >= 0) continue;
    if (h != 0 && pStep->hCall == h) return pStep;
    if (h == 0 && pStep->hCall == 0 && strcmp(pStep->zTool, zTool) == 0) {
      pFound = pStep;
    }
  }
  return pFound;
}

static void addStep(Adding *p, const Call *pCall) {
  Step *pStep;
  if (!pCall->bResponse) {
    pStep = findCall(p, pCall);
    if (pStep != 0) {
      pStep->bDirty = 1;
      return;
    }
  }
  pStep = newStep(p, p->iTurn + (p->bGoesOn ? pCall->iTurn : 0));
  pStep->hCall = hashText(pCall->id);
  pStep->hArguments = argumentsHash(pCall);
  sqlite3_snprintf(
      TOOL_BYTES, pStep->zTool, "%s", pCall->tool.z != 0 ? pCall->tool.z : "");
}

static void addOutcome(Adding *p, const Call *pResult) {
  Step *pStep = findPending(p, pResult);
  if (pStep == 0) return;
  pStep->hResult = hashText(pResult->result) | 1;
  pStep->hMasked = maskedHash(pResult->result) | 1;
  pStep->iError = pResult->iError;
  pStep->iStart = p->pMoment->iStart;
  pStep->bDirty = 1;
  if (p->nDone < TRACK_STEPS) p->aDone[p->nDone++] = pStep->n;
}

/* A message that was read before says nothing new. In a conversation that begins
** anew, ids tell. */
static int isOld(const Adding *p, const Call *pCall) {
  if (pCall->bResponse) return 0;
  return p->bGoesOn ? pCall->iItem < p->nSeen
                    : pCall->id.z == 0 && !pCall->bResult;
}

static void addSteps(Adding *p) {
  i64 i;
  p->iFirst = p->p->nStep + 1;
  for (i = 0; i < p->exchange.n; i++) {
    const Call *pCall = &p->exchange.a[i];
    if (isOld(p, pCall)) continue;
    if (pCall->bResult) {
      addOutcome(p, pCall);
    } else {
      addStep(p, pCall);
    }
  }
  if (p->p->nStep < p->iFirst) newStep(p, p->iTurn + p->exchange.nTurn);
}

/*---------------------------------------------------------------- sums ----*/

static i64 positive(i64 n) {
  return n > 0 ? n : 0;
}

static i64 costOf(const Rules *pRules, const Exchange *p) {
  const Usage *pUsage = &p->usage;
  i64 i;
  for (i = 0; i < pRules->nPrice && p->model.z != 0; i++) {
    const Price *pPrice = &pRules->aPrice[i];
    if (strcmp(pPrice->zModel, p->model.z) != 0) continue;
    return (i64)((double)positive(pUsage->nInput) * pPrice->rInput +
                 (double)positive(pUsage->nCacheWrite) * pPrice->rCacheWrite +
                 (double)positive(pUsage->nCacheRead) * pPrice->rCacheRead +
                 (double)positive(pUsage->nOutput) * pPrice->rOutput);
  }
  return 0;
}

static i64 tokensOf(const Usage *p) {
  return positive(p->nInput) + positive(p->nCacheWrite) +
         positive(p->nCacheRead) + positive(p->nOutput);
}

/* Sets what all steps of the exchange have in common. pLast: the step before it,
** zeroed if there is none. */
static void addSums(Adding *p, const Rules *pRules, const Step *pLast) {
  Track *pTrack = p->p;
  i64 iTurn = TRACK_STEP(pTrack, pTrack->nStep)->iTurn, nMade = pLast->nMade;
  int bNew = iTurn != pLast->iTurn || pLast->iStart != p->pMoment->iStart;
  i64 n = p->iFirst > pTrack->iLow ? p->iFirst : pTrack->iLow;
  for (; n <= pTrack->nStep; n++) {
    Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->hArguments != 0) nMade++;
    pStep->nMade = nMade;
    pStep->nSpent = pLast->nSpent + tokensOf(&p->exchange.usage);
    pStep->nCost = pLast->nCost + costOf(pRules, &p->exchange);
    pStep->nSpentBefore = bNew ? pLast->nSpent : pLast->nSpentBefore;
    pStep->nMadeBefore = bNew ? pLast->nMade : pLast->nMadeBefore;
    pStep->nCostBefore = bNew ? pLast->nCost : pLast->nCostBefore;
  }
}

/* Sets what only the first step of the exchange has. */
static void addTexts(Adding *p, const Rules *pRules) {
  Step *pStep;
  const Exchange *pExchange = &p->exchange;
  if (p->iFirst < p->p->iLow) return;
  pStep = TRACK_STEP(p->p, p->iFirst);
  pStep->hSaid = pExchange->said.n > 0 ? hashText(pExchange->said) : 0;
  if (!pRules->a[RULE_SIMILAR].bEnabled) return;
  if (pExchange->prompt.z != 0) {
    pStep->hPrompt = bxSimHash(pExchange->prompt.z, pExchange->prompt.n);
  }
  if (pExchange->said.n > 0) {
    pStep->hAnswer = bxSimHash(pExchange->said.z, pExchange->said.n);
  }
  pStep->hTools = hashText(pExchange->tools);
}

/* Every change of the track changes the chain. */
static void addToChain(Track *p) {
  sqlite3_uint64 h = (sqlite3_uint64)p->hChain;
  i64 n;
  for (n = p->iLow; n <= p->nStep; n++) {
    const Step *pStep = TRACK_STEP(p, n);
    if (!pStep->bDirty) continue;
    h = bxHashMix(h, (sqlite3_uint64)(pStep->iSeq ^ pStep->iTime));
    h = bxHashMix(h, (sqlite3_uint64)(pStep->hArguments ^ pStep->hSaid));
    h = bxHashMix(h, (sqlite3_uint64)(pStep->hResult ^ pStep->nSpent));
    h = bxHashMix(h, (sqlite3_uint64)(pStep->hCall ^ pStep->iTurn));
  }
  p->hChain = (i64)bxHashMix(h, (sqlite3_uint64)p->head.hash);
}

int bxTrackAdd(Track *p, const Rules *pRules, const Moment *pMoment,
    sqlite3_value *pRequest, sqlite3_value *pResponse, i64 *aDone,
    BxErr *pErr) {
  Adding adding;
  Step last;
  memset(&adding, 0, sizeof(adding));
  memset(&last, 0, sizeof(last));
  adding.p = p;
  adding.pMoment = pMoment;
  adding.nSeen = p->nItem;
  adding.aDone = aDone;
  if (p->nStep > 0) last = *TRACK_STEP(p, p->nStep);
  if (p->iLow == 0) p->iLow = 1;
  adding.iTurn = last.iTurn;
  /* the prompt and the model may be anywhere */
  if (pRules->a[RULE_SIMILAR].bEnabled || pRules->nPrice > 0) {
    memset(&p->head, 0, sizeof(p->head));
  }
  bxExchangeReadOn(&adding.exchange, &pRules->formats, pRequest, pResponse,
      &p->head, (int)p->nItem, pErr);
  adding.bGoesOn =
      p->nStep == 0 || adding.exchange.bResumed ||
      (adding.exchange.hFirst != 0 && adding.exchange.hFirst == p->hFirst &&
          adding.exchange.nItem >= p->nItem);
  if (!adding.bGoesOn) {
    adding.iTurn += adding.exchange.nUser > 0;
    adding.exchange.nTurn = 0;
  }
  if (pErr->rc == SQLITE_OK) {
    addSteps(&adding);
    addTexts(&adding, pRules);
    addSums(&adding, pRules, &last);
    if (adding.exchange.nItem > 0) p->nItem = adding.exchange.nItem;
    if (adding.exchange.hFirst != 0) p->hFirst = adding.exchange.hFirst;
    p->iSeq = pMoment->iSeq;
    addToChain(p);
  }
  bxExchangeFree(&adding.exchange);
  return adding.nDone;
}
