/*
** track.c: what an exchange adds to the steps of its agent.
**
** A call is in a response; it is again, with its result, in the next request. So
** a request says nothing new but what is behind the messages that were read
** before. A result finds its call by its id or, if the format has none, by its
** order and the name of the tool.
**
** The rules ask whether a call and its result are new. So a result is compared without
** what changes from run to run: times, durations, ids. Its other numbers are news. The
** arguments are compared as they are, and without their numbers.
*/
#include "watch.h"
#include "../core/prices.h"
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

#define EACH_BYTE(x) (0x0101010101010101u * (sqlite3_uint64)(x))

/* The next digit, or zEnd. Eight bytes at once: what differs from '0' by less than 10 is a
** digit. */
static const char *findDigit(const char *z, const char *zEnd) {
  assert(z <= zEnd);
  for (; zEnd - z >= 8; z += 8) {
    sqlite3_uint64 u;
    memcpy(&u, z, 8);
    u ^= EACH_BYTE('0');
    u |= (u & EACH_BYTE(0x7f)) + EACH_BYTE(0x80 - 10);
    if ((u & EACH_BYTE(0x80)) != EACH_BYTE(0x80)) break;
  }
  while (z < zEnd && MASK_OF(z) != MASK_DIGIT) z++;
  return z;
}

static const char *afterDigits(const char *z, const char *zEnd) {
  while (z < zEnd && MASK_OF(z) == MASK_DIGIT) z++;
  return z;
}

/* Whether a word that stands here is this one, in lower case. */
static int isLowerWord(const char *z, const char *zEnd, const char *zWord) {
  for (; *zWord != 0; z++, zWord++) {
    if (z >= zEnd || (*z != *zWord && (*z | 0x20) != *zWord)) return 0;
  }
  return z >= zEnd || MASK_OF(z) == 0;
}

/* Where a unit of time ends that stands here; NULL if none does. */
static const char *skipUnit(const char *z, const char *zEnd) {
  static const char *const azUnit[] = {"ms", "s", "sec", "secs", "second",
      "seconds", "us", "\xc2\xb5s", "ns", "m", "min", "mins", "minute",
      "minutes", "h", "hr", "hour", "hours"};
  const char *zUnit = z;
  size_t i;
  if (z < zEnd && *z == ' ') zUnit++;
  if (zUnit >= zEnd || strchr("msuhnMSUHN\xc2", *zUnit) == 0) return 0;
  for (i = 0; i < sizeof(azUnit) / sizeof(azUnit[0]); i++) {
    size_t n = strlen(azUnit[i]);
    /* "3 m" may be metres, and "2m3s" goes on with a digit */
    if (zUnit > z && (n == 1 && azUnit[i][0] != 's')) continue;
    if (isLowerWord(zUnit, zEnd, azUnit[i])) return zUnit + n;
    if (zUnit == z && n <= 2 && (size_t)(zEnd - z) > n &&
        memcmp(z, azUnit[i], n) == 0 && MASK_OF(z + n) == MASK_DIGIT) {
      return z + n;
    }
  }
  return 0;
}

/* Where a time of day ends that begins here: 12:34, 12:34:56.789; or NULL. */
static const char *skipClock(const char *z, const char *zEnd) {
  const char *zAt = afterDigits(z, zEnd);
  int n;
  for (n = 0; n < 2 && zAt - z <= 2 + 3 * n && zEnd - zAt >= 3 && *zAt == ':' &&
              afterDigits(zAt + 1, zEnd) == zAt + 3;
       n++) {
    zAt += 3;
  }
  if (n == 0) return 0;
  if (zEnd - zAt >= 2 && (*zAt == '.' || *zAt == ',')) {
    zAt = afterDigits(zAt + 1, zEnd);
  }
  return zAt;
}

/* Where a date ends that begins here: 2026-01-31, with a time behind a T; or NULL. */
static const char *skipDate(const char *z, const char *zEnd) {
  const char *zAt = z + 10, *zClock;
  assert(z <= zEnd);
  if (zEnd - z < 10 || afterDigits(z, zEnd) != z + 4 ||
      (z[4] != '-' && z[4] != '/') || z[7] != z[4] ||
      afterDigits(z + 5, zEnd) != z + 7 || afterDigits(z + 8, zEnd) != zAt) {
    return 0;
  }
  if (zAt < zEnd && (*zAt | 0x20) == 't') {
    zClock = skipClock(zAt + 1, zEnd);
    if (zClock != 0) zAt = zClock;
    if (zAt < zEnd && (*zAt | 0x20) == 'z') zAt++;
  }
  return zAt;
}

/* Where a number with a unit of time ends: 0.12s, 3 seconds, 1m20s; or NULL. */
static const char *skipDuration(const char *z, const char *zEnd) {
  const char *zAt = z, *zUnit = 0;
  do {
    const char *zNumber = afterDigits(zAt, zEnd);
    if (zNumber == zAt) break;
    if (zEnd - zNumber >= 2 && *zNumber == '.') {
      zNumber = afterDigits(zNumber + 1, zEnd);
    }
    zAt = skipUnit(zNumber, zEnd);
    if (zAt != 0) zUnit = zAt;
  } while (zAt != 0 && zAt < zEnd);
  return zUnit;
}

/* Whether a word of letters and digits looks like an id that was drawn: hexadecimal, or
** long with digits in several places. */
static int isId(const char *z, const char *zEnd) {
  int mAll = 0, nChange = 0, bBefore = 0, bDigit;
  const char *zAt;
  if (zEnd - z > 2 && *z == '0' && (z[1] | 0x20) == 'x') return 1;
  for (zAt = z; zAt < zEnd; zAt++, bBefore = bDigit) {
    bDigit = MASK_OF(zAt) == MASK_DIGIT;
    nChange += zAt > z && bDigit != bBefore;
    mAll |= MASK_OF(zAt);
  }
  if (mAll == MASK_DIGIT) return zEnd - z >= 10;
  if (!(mAll & MASK_LETTER)) return zEnd - z >= 7;
  return zEnd - z >= 8 && nChange >= 3;
}

/* Whether what stands before a number says that it is drawn anew each time. */
static int isNamed(const char *zBegin, const char *z) {
  static const char *const azName[] = {"pid", "port", "tid", "chunk id"};
  size_t i;
  assert(zBegin <= z);
  while (z > zBegin && MASK_OF(z - 1) == 0 && strchr(" :=#[(\"'", z[-1]) != 0) {
    z--;
  }
  if (z == zBegin || ((z[-1] | 0x20) != 'd' && (z[-1] | 0x20) != 't')) return 0;
  for (i = 0; i < sizeof(azName) / sizeof(azName[0]); i++) {
    i64 n = (i64)strlen(azName[i]);
    if (z - zBegin >= n && isLowerWord(z - n, z, azName[i]) &&
        (z - zBegin == n || MASK_OF(z - n - 1) == 0)) {
      return 1;
    }
  }
  return 0;
}

/* Where that ends which changes from run to run, if a word with a digit begins with
** it; NULL if there is nothing of that kind. zAfter: the end of the word. */
static const char *skipVolatile(
    const char *zBegin, const char *z, const char *zAfter, const char *zEnd) {
  const char *zOut = skipDate(z, zEnd);
  assert(zBegin <= z && z <= zAfter && zAfter <= zEnd);
  if (zOut != 0) return zOut;
  if (z > zBegin && z[-1] == ':') return 0; /* a line and a column */
  zOut = skipClock(z, zEnd);
  if (zOut == 0) zOut = skipDuration(z, zEnd);
  if (zOut != 0) return zOut;
  if (zAfter - z == 8 && zEnd - z >= 36 && z[8] == '-' && z[13] == '-' &&
      z[18] == '-' && z[23] == '-') {
    return z + 36;
  }
  return isId(z, zAfter) || isNamed(zBegin, z) ? zAfter : 0;
}

/* Writes a word with a digit so that neither numbers nor ids tell it from others.
** Returns the end of what was written. */
static char *maskWord(char *zOut, const char *z, const char *zEnd) {
  int mAll = 0, bDigit, bBefore = 0;
  const char *zAt;
  assert(z <= zEnd);
  for (zAt = z; zAt < zEnd; zAt++) mAll |= MASK_OF(zAt);
  if (!(mAll & MASK_LETTER) || isId(z, zEnd)) {
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

/* Writes the text without times, durations and ids to zOut; and without numbers, if
** bNumbers. Returns the end. */
static char *maskText(
    char *zOut, const char *z, const char *zEnd, int bNumbers) {
  const char *zBegin = z;
  while (z < zEnd) {
    const char *zWord = findDigit(z, zEnd), *zAfter = zWord, *zNext;
    while (zWord > z && zWord < zEnd && MASK_OF(zWord - 1) != 0) zWord--;
    memcpy(zOut, z, (size_t)(zWord - z));
    zOut += zWord - z;
    while (zAfter < zEnd && MASK_OF(zAfter) != 0) zAfter++;
    z = zAfter;
    if (zAfter == zWord) continue;
    zNext = skipVolatile(zBegin, zWord, zAfter, zEnd);
    if (zNext != 0) {
      *zOut++ = '#';
      z = zNext;
    } else if (bNumbers) {
      zOut = maskWord(zOut, zWord, zAfter);
    } else {
      memcpy(zOut, zWord, (size_t)(zAfter - zWord));
      zOut += zAfter - zWord;
    }
  }
  return zOut;
}

/* The hash of a text without what maskText() leaves out; 0 for no text. */
static i64 maskedHash(Text text, int bNumbers, BxErr *pErr) {
  const char *zEnd = text.z + text.n;
  char *zOut;
  i64 h;
  if (text.z == 0) return 0;
  if (findDigit(text.z, zEnd) == zEnd) return hashText(text);
  zOut = sqlite3_malloc64((sqlite3_uint64)text.n);
  if (zOut == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return 0;
  }
  h = (i64)bxHashOf(zOut, maskText(zOut, text.z, zEnd, bNumbers) - zOut);
  sqlite3_free(zOut);
  return h;
}

/* The part of what a model said that is its act, where calls are written as text: from
** "Action:" on, or the elements of XML. */
static Text actOf(Text said) {
  const char *zEnd = said.z + said.n, *z, *zFirst = 0, *zLast = 0;
  for (z = said.z; (z = memchr(z, 'A', (size_t)(zEnd - z))) != 0; z++) {
    if (zEnd - z >= 7 && memcmp(z, "Action:", 7) == 0 &&
        (z == said.z || z[-1] == '\n')) {
      return (Text){z, zEnd - z, 0, 0};
    }
  }
  for (z = said.z; (z = memchr(z, '<', (size_t)(zEnd - z))) != 0; z++) {
    if (zEnd - z < 2) break;
    if (z[1] == '/') zLast = z;
    if (zFirst == 0 && MASK_OF(z + 1) >= MASK_HEX) zFirst = z;
  }
  if (zFirst == 0 || zLast < zFirst) return said;
  return (Text){zFirst, zLast - zFirst, 0, 0};
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
  int bGoesOn; /* the conversation is that of the exchange before */
  int iTalk;   /* the number of the conversation */
  int iBefore; /* the one that its first step may go on with */
  int bFirst;  /* it was not seen before */
  i64 *aDone;
  int nDone;
  BxErr *pErr;
} Adding;

/* The exchange has the step in its row. */
static void mark(Adding *p, Step *pStep) {
  pStep->iPut = p->pMoment->iSeq;
  if (pStep->n < p->p->iDirty) p->p->iDirty = pStep->n;
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
  pStep->iTalk = p->iTalk;
  pStep->iBefore = p->iBefore;
  p->iBefore = 0;
  pStep->iError = -1;
  mark(p, pStep);
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
  mark(p, pLike);
  return pLike;
}

/* The name of a tool, cut where a character ends. */
static void putTool(char zOut[TOOL_BYTES], Text tool) {
  size_t n = tool.n < TOOL_BYTES ? (size_t)tool.n : TOOL_BYTES - 1;
  assert(tool.n >= 0);
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

#define LOOSE_BYTES                                                            \
  4096 /* of arguments; longer ones are compared as they are */

static void addStep(Adding *p, Call *pCall) {
  i64 h = hashText(pCall->id);
  Step *pStep;
  assert(!pCall->bResult);
  if (!pCall->bResponse && findCall(p, pCall, h) != 0) return;
  pStep = newStep(p, p->iTurn + (p->bGoesOn ? pCall->iTurn : 0));
  pStep->hCall = h;
  pStep->hArguments = pStep->hLoose = argumentsHash(p, pCall);
  if (pCall->arguments.n <= LOOSE_BYTES) {
    pStep->hLoose = (i64)bxHashMix((sqlite3_uint64)hashText(pCall->tool),
        (sqlite3_uint64)maskedHash(pCall->arguments, 1, p->pErr));
  }
  putTool(pStep->zTool, pCall->tool);
}

/* What came back in step pStep, which was written before. */
static void putResult(Adding *p, Step *pStep, Text result, int iError) {
  assert(iError == 0 || iError == 1);
  pStep->hResult = maskedHash(result, 0, p->pErr) | 1;
  pStep->iError = iError;
  pStep->iStart = (int)p->pMoment->iStart;
  mark(p, pStep);
  if (p->nDone < TRACK_STEPS) p->aDone[p->nDone++] = pStep->n;
}

#define LONG_RESULT 400 /* bytes that say the same, whatever was asked */

static void addOutcome(Adding *p, const Call *pResult) {
  Step *pStep = findPending(p, pResult);
  assert(pResult->bResult);
  if (pStep == 0) return;
  if (pResult->result.n >= LONG_RESULT) {
    pStep->hLoose = (i64)bxHashOf(pStep->zTool, (i64)strlen(pStep->zTool));
  }
  putResult(p, pStep, pResult->result, pResult->iError);
}

/* What the user replied to a text of the model. */
static void addReply(Adding *p) {
  i64 n = p->p->nStep;
  Step *pStep;
  while (n >= p->p->iLow && n > 0 && TRACK_STEP(p->p, n)->iTalk != p->iTalk)
    n--;
  if (n < p->p->iLow || n <= 0) return;
  pStep = TRACK_STEP(p->p, n);
  if (pStep->hSaid == 0 || pStep->iError >= 0) return;
  putResult(p, pStep, p->exchange.reply, p->exchange.bRefused);
}

static void addSteps(Adding *p) {
  const Exchange *pExchange = &p->exchange;
  i64 i;
  assert(p->p->nStep >= 0);
  p->iFirst = p->p->nStep + 1;
  addReply(p);
  for (i = 0; i < pExchange->n; i++) {
    Call *pCall = &p->exchange.a[i];
    /* A message that was read before says nothing new. In a conversation that
    ** begins anew, ids tell. */
    if (!pCall->bResponse &&
        (p->bGoesOn ? pCall->iItem < p->nSeen
                    : pCall->id.z == 0 && !pCall->bResult)) {
      continue;
    }
    if (pCall->bResult) {
      addOutcome(p, pCall);
    } else {
      addStep(p, pCall);
    }
  }
}

/* An exchange without a call is a step, too: what the model said, to which the next
** request may have a reply; or, if it said nothing, and the request is the same as
** before, a retry. */
static void addTextStep(Adding *p, int bAgain) {
  const Exchange *pExchange = &p->exchange;
  Step *pStep;
  if (p->p->nStep >= p->iFirst) return;
  pStep = newStep(p, p->iTurn + pExchange->nTurn);
  if (pExchange->said.n > 0) {
    pStep->hSaid = maskedHash(actOf(pExchange->said), 1, p->pErr) | 2;
    pStep->hLoose = pStep->hSaid;
  } else if (bAgain && p->nDone == 0) {
    pStep->hSaid = RETRY;
    putResult(p, pStep, (Text){0, 0, 0, 0}, 1);
  }
}

/* Whether a request has only what the user said, and a text of the system. */
static int isBeginning(const Exchange *p) {
  i64 i;
  for (i = 0; i < p->n && p->a[i].bResponse; i++) {
  }
  return i == p->n && p->nItem - p->nUser <= 1;
}

/* The conversation of which a beginning may be the summary: that whose newest call waits
** for a result of a tool that gave some before, as a tool that ends a job does not. */
static int findSummed(const Adding *p, const Step *pLast) {
  const Track *pTrack = p->p;
  i64 n = pTrack->nStep;
  if (pLast->hArguments == 0 || pLast->iError >= 0) return 0;
  if (!isBeginning(&p->exchange)) return 0;
  for (; n >= pTrack->iLow && n > 0; n--) {
    const Step *pStep = TRACK_STEP(pTrack, n);
    if (pStep->iTalk == pLast->iTalk && pStep->iError >= 0 &&
        strcmp(pStep->zTool, pLast->zTool) == 0) {
      return pLast->iTalk;
    }
  }
  return 0;
}

/* The number of the conversation that a request goes on with: by the ids of its calls
** and results, as a program may leave out or sum up what was before; else by how it
** begins. */
static void findTalk(Adding *p, const Step *pLast) {
  const Exchange *pExchange = &p->exchange;
  Track *pTrack = p->p;
  i64 i, n;
  assert(pTrack->nStep >= 0);
  p->iTalk = pLast->iTalk;
  if (p->bGoesOn && pTrack->nStep > 0) return;
  for (i = pExchange->n - 1; i >= 0; i--) {
    i64 h = hashText(pExchange->a[i].id);
    if (pExchange->a[i].bResponse || h == 0) continue;
    for (n = pTrack->nStep; n >= pTrack->iLow && n > 0; n--) {
      if (TRACK_STEP(pTrack, n)->hCall != h) continue;
      p->iTalk = TRACK_STEP(pTrack, n)->iTalk;
      return;
    }
  }
  if (pExchange->hFirst != 0) p->iTalk = (int)(pExchange->hFirst & 0x7fffffff);
  for (n = pTrack->nStep; n >= pTrack->iLow && n > 0; n--) {
    if (TRACK_STEP(pTrack, n)->iTalk != p->iTalk) continue;
    /* it begins as one before did: a job that runs again, or a retry */
    if (!isBeginning(pExchange) ||
        (pLast->hArguments == 0 &&
            (pLast->hSaid == 0 || pLast->hSaid == RETRY))) {
      return;
    }
    p->iTalk = (int)(bxHashMix((sqlite3_uint64)pExchange->hFirst,
                         (sqlite3_uint64)p->pMoment->iSeq) &
                     0x7fffffff);
    break;
  }
  p->bFirst = 1;
  p->iBefore = findSummed(p, pLast);
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
  assert(pTrack->nStep >= 0);
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

int bxTrackAdd(Track *p, const Rules *pRules, const Moment *pMoment,
    sqlite3_value *pRequest, sqlite3_value *pResponse, i64 *aDone,
    BxErr *pErr) {
  Shared shared = pMoment->shared;
  Adding adding;
  Step last;
  int bLate = 0, bBegins;
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
    bLate = 1;
    p->nStep--; /* the step of a request whose response has come now */
    memset(&last, 0, sizeof(last));
    if (p->nStep >= p->iLow) last = *TRACK_STEP(p, p->nStep);
  }
  if (p->iSeq == pMoment->iSeq) {
    shared =
        (Shared){.iAt = p->head.iAt, .iFrom = p->head.iAt, .n = BX_MAX_TIME};
    /* it is the same */
  } else {
    p->iDirty = p->nStep + 1;
  }
  shared.nItem = (int)p->nItem;
  shared.hFirst = p->hFirst;
  /* The model may be anywhere. A request that is the same as before though a call was
  ** answered is a window without ids: its last result is new. */
  if (pRules->a[RULE_COST].bEnabled ||
      (last.hArguments != 0 && last.hCall == 0 && last.iError < 0 &&
          shared.n == bxBytes(pRequest))) {
    memset(&p->head, 0, sizeof(p->head));
  }
  bxExchangeReadOn(&adding.exchange, &pRules->formats, pRequest, pResponse,
      &shared, &p->head, pErr);
  bBegins = adding.exchange.hFirst != 0 && adding.exchange.hFirst == p->hFirst;
  /* as many messages as before: a retry, or a window that moves; ids tell */
  adding.bGoesOn = p->nStep == 0 || adding.exchange.bResumed ||
                   (bBegins && adding.exchange.nItem > p->nItem);
  findTalk(&adding, &last);
  if (!adding.bGoesOn) {
    adding.iTurn += adding.exchange.nUser > 0 && adding.bFirst;
    adding.exchange.nTurn = 0;
  }
  if (pErr->rc == SQLITE_OK) {
    addSteps(&adding);
    addTextStep(&adding, !bLate && (bBegins || adding.exchange.bResumed) &&
                             adding.exchange.nItem > 0 &&
                             adding.exchange.nItem == p->nItem);
    addSums(&adding, &last);
    if (adding.exchange.nItem > 0) p->nItem = adding.exchange.nItem;
    if (adding.exchange.hFirst != 0) p->hFirst = adding.exchange.hFirst;
    p->iSeq = pMoment->iSeq;
  }
  bxExchangeFree(&adding.exchange);
  return adding.nDone;
}
