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

/* What a byte is in a word; 0 outside of words. */
#define MASK_DIGIT 1
#define MASK_HEX 2
#define MASK_LETTER 4
#define LETTERS                                                                \
  2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4
static const unsigned char aMask[256] = {
    ['0'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, ['A'] = LETTERS, ['a'] = LETTERS};
#define MASK_OF(z) (aMask[(unsigned char)*(z)])

/* The next digit, or zEnd. */
static const char *findDigit(const char *z, const char *zEnd) {
  while (zEnd - z >= 4 &&
         ((MASK_OF(z) | MASK_OF(z + 1) | MASK_OF(z + 2) | MASK_OF(z + 3)) &
             MASK_DIGIT) == 0) {
    z += 4;
  }
  while (z < zEnd && MASK_OF(z) != MASK_DIGIT) z++;
  return z;
}

/* Masks a word with a digit: a hexadecimal one becomes '#', as do the digits of
** any other. Returns the end of what was written. */
static char *maskWord(char *zOut, const char *z, const char *zEnd) {
  int mAll = 0, bDigit, bBefore = 0;
  const char *zAt;
  for (zAt = z; zAt < zEnd; zAt++) mAll |= MASK_OF(zAt);
  if (!(mAll & MASK_LETTER)) {
    *zOut++ = '#';
    return zOut;
  }
  for (zAt = z; zAt < zEnd; zAt++, bBefore = bDigit) {
    bDigit = MASK_OF(zAt) == MASK_DIGIT;
    if (!bDigit) {
      *zOut++ = *zAt;
    } else if (!bBefore) {
      *zOut++ = '#';
    }
  }
  return zOut;
}

/* Writes the text without its numbers, ids and times to zOut, which may be where
** it is. Returns the end. */
static char *maskText(char *zOut, const char *z, const char *zEnd) {
  while (z < zEnd) {
    const char *zWord = findDigit(z, zEnd), *zAfter = zWord;
    while (zWord > z && zWord < zEnd && MASK_OF(zWord - 1) != 0) zWord--;
    memmove(zOut, z, (size_t)(zWord - z));
    zOut += zWord - z;
    while (zAfter < zEnd && MASK_OF(zAfter) != 0) zAfter++;
    if (zAfter > zWord) zOut = maskWord(zOut, zWord, zAfter);
    z = zAfter;
  }
  return zOut;
}

/* The hash of a text without its numbers, ids and times. h: the hash of the text,
** which may be changed. */
static i64 maskedHash(Text text, i64 h, BxErr *pErr) {
  const char *zEnd = text.z + text.n;
  char *zOut = text.zOwn, *zNew = 0;
  if (text.z == 0 || findDigit(text.z, zEnd) == zEnd) return h;
  if (zOut == 0) {
    zOut = zNew = sqlite3_malloc64((sqlite3_uint64)text.n);
    if (zNew == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    if (zNew == 0) return h;
  }
  h = (i64)bxHashOf(zOut, maskText(zOut, text.z, zEnd) - zOut);
  sqlite3_free(zNew);
  return h;
}

/*---------------------------------------------------------------- steps ----*/

typedef struct Adding {
  Track *p;
  const Rules *pRules;
  const Moment *pMoment;
  Exchange exchange;
  i64 iFirst;  /* the first step of this exchange */
  i64 iTurn;   /* before it */
  i64 nSeen;   /* messages that were read before */
  int bGoesOn; /* the conversation is the same */
  i64 *aDone;
  int nDone;
  BxErr *pErr;
} Adding;

static void mark(Track *p, Step *pStep) {
  pStep->bDirty = 1;
  if (pStep->n < p->iDirty) p->iDirty = pStep->n;
}

static Step *newStep(Adding *p, i64 iTurn) {
  Track *pTrack = p->p;
  Step *pStep = TRACK_STEP(pTrack, ++pTrack->nStep);
  memset(pStep, 0, sizeof(*pStep));
  pStep->n = pTrack->nStep;
  pStep->iSeq = p->pMoment->iSeq;
  pStep->iTime = p->pMoment->iTime;
  pStep->iStart = (int)p->pMoment->iStart;
  pStep->iTurn = (int)iTurn;
  pStep->iError = -1;
  mark(pTrack, pStep);
  if (pTrack->nStep - pTrack->iLow >= TRACK_STEPS) pTrack->iLow++;
  return pStep;
}

static i64 argumentsHash(Adding *p, Call *pCall) {
  return (i64)bxHashMix((sqlite3_uint64)hashText(pCall->tool),
             (sqlite3_uint64)bxCallHash(pCall, &p->pRules->formats, p->pErr)) |
         1;
}

/* The step of a call that a request repeats, or NULL. While a conversation goes
** on, it waits for its result: some programs use an id twice. A response may have
** had no id. */
static Step *findCall(Adding *p, Call *pCall, i64 h) {
  i64 hArguments = 0, n;
  Step *pLike = 0;
  for (n = p->p->nStep; n >= p->p->iLow && n > 0; n--) {
    Step *pStep = TRACK_STEP(p->p, n);
    if (pStep->hArguments == 0) continue;
    if (p->bGoesOn && pStep->iError >= 0) continue;
    if (h != 0 && pStep->hCall == h) return pStep;
    if (pStep->hCall != 0 || pStep->iError >= 0) continue;
    if (hArguments == 0) hArguments = argumentsHash(p, pCall);
    if (pStep->hArguments == hArguments) pLike = pStep;
  }
  if (pLike == 0) return 0;
  pLike->hCall = h;
  mark(p->p, pLike);
  return pLike;
}

/* The name of a tool, cut where a character ends. */
static void putTool(char zOut[TOOL_BYTES], Text tool) {
  size_t n = tool.n < TOOL_BYTES ? (size_t)tool.n : TOOL_BYTES - 1;
  if (tool.z == 0) n = 0;
  while (n > 0 && (i64)n < tool.n && (tool.z[n] & 0xc0) == 0x80) n--;
  if (n > 0) memcpy(zOut, tool.z, n);
  memset(zOut + n, 0, TOOL_BYTES - n);
}

/* The step whose result this is: without an id the oldest that waits for one
** from this tool. */
static Step *findPending(Adding *p, const Call *pResult) {
  i64 h = hashText(pResult->id), n;
  char zTool[TOOL_BYTES];
  Step *pFound = 0;
  putTool(zTool, pResult->tool);
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

static void addStep(Adding *p, Call *pCall) {
  i64 h = hashText(pCall->id);
  Step *pStep;
  if (!pCall->bResponse && findCall(p, pCall, h) != 0) return;
  pStep = newStep(p, p->iTurn + (p->bGoesOn ? pCall->iTurn : 0));
  pStep->hCall = h;
  pStep->hArguments = argumentsHash(p, pCall);
  putTool(pStep->zTool, pCall->tool);
}

static void addOutcome(Adding *p, const Call *pResult) {
  Step *pStep = findPending(p, pResult);
  if (pStep == 0) return;
  pStep->hResult = hashText(pResult->result) | 1;
  pStep->hMasked = maskedHash(pResult->result, pStep->hResult, p->pErr) | 1;
  pStep->iError = pResult->iError;
  pStep->iStart = (int)p->pMoment->iStart;
  mark(p->p, pStep);
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
    Call *pCall = &p->exchange.a[i];
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

/* In millionths. The price is looked up only if the rule is on, as the model may be
** anywhere in the bodies. */
static i64 costOf(const Adding *p) {
  double r = 0;
  if (!p->pRules->a[RULE_COST].bEnabled) return 0;
  bxCost(p->pRules->pHome, p->exchange.model.z, p->exchange.model.n,
      p->pMoment->iTime, &p->exchange.usage, &r, p->pErr);
  return (i64)(r * 1e6 + 0.5);
}

static i64 tokensOf(const BxTokens *p) {
  return positive(p->nInput) + positive(p->nCacheWrite) +
         positive(p->nCacheRead) + positive(p->nOutput);
}

/* Sets what all steps of the exchange have in common. pLast: the step before it,
** zeroed if there is none. */
static void addSums(Adding *p, const Step *pLast) {
  Track *pTrack = p->p;
  i64 nCost = pLast->nCost + costOf(p);
  int iTurn = TRACK_STEP(pTrack, pTrack->nStep)->iTurn, nMade = pLast->nMade;
  int bNew = iTurn != pLast->iTurn || pLast->iStart != p->pMoment->iStart;
  i64 n = p->iFirst > pTrack->iLow ? p->iFirst : pTrack->iLow;
  for (; n <= pTrack->nStep; n++) {
    Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->hArguments != 0) nMade++;
    pStep->nMade = nMade;
    pStep->nSpent = pLast->nSpent + tokensOf(&p->exchange.usage);
    pStep->nCost = nCost;
    pStep->nSpentBefore = bNew ? pLast->nSpent : pLast->nSpentBefore;
    pStep->nMadeBefore = bNew ? pLast->nMade : pLast->nMadeBefore;
    pStep->nCostBefore = bNew ? pLast->nCost : pLast->nCostBefore;
  }
}

/* Sets what only the first step of the exchange has. */
static void addTexts(Adding *p) {
  const Exchange *pExchange = &p->exchange;
  Step *pStep;
  if (p->iFirst < p->p->iLow) return;
  pStep = TRACK_STEP(p->p, p->iFirst);
  pStep->hSaid = pExchange->said.n > 0 ? hashText(pExchange->said) : 0;
}

/* Every change of the track changes the chain. */
static void addToChain(Track *p) {
  sqlite3_uint64 h = (sqlite3_uint64)p->hChain;
  i64 n = p->iDirty > p->iLow ? p->iDirty : p->iLow;
  for (; n <= p->nStep; n++) {
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
  adding.pRules = pRules;
  adding.pMoment = pMoment;
  adding.nSeen = p->nItem;
  adding.aDone = aDone;
  adding.pErr = pErr;
  if (p->nStep > 0) last = *TRACK_STEP(p, p->nStep);
  if (p->iLow == 0) p->iLow = 1;
  adding.iTurn = last.iTurn;
  if (p->nStep > 0 && last.iSeq == pMoment->iSeq && last.hArguments == 0) {
    p->nStep--; /* the step of a request whose response has come now */
    memset(&last, 0, sizeof(last));
    if (p->nStep >= p->iLow) last = *TRACK_STEP(p, p->nStep);
  }
  p->iDirty = p->nStep + 1;
  /* the model may be anywhere */
  if (pRules->a[RULE_COST].bEnabled) memset(&p->head, 0, sizeof(p->head));
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
    addTexts(&adding);
    addSums(&adding, &last);
    if (adding.exchange.nItem > 0) p->nItem = adding.exchange.nItem;
    if (adding.exchange.hFirst != 0) p->hFirst = adding.exchange.hFirst;
    p->iSeq = pMoment->iSeq;
    addToChain(p);
  }
  bxExchangeFree(&adding.exchange);
  return adding.nDone;
}
