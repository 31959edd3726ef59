/*
** watch.h: the steps of an agent, and the rules that look at them.
**
** A push with payload.on_loop takes this way:
**
**   exchange.c   reads calls, results and texts from the bodies
**   track.c      makes steps of what is new in them
**   steps.c      keeps the steps: with the exchange, and in memory
**   rules.c      asks each rule what it sees in the steps
**   ring_watch.c writes the verdict, and pulls the kill switch
**
** payload_loops() and payload_backtest() (loops.c) ask the same rules.
*/
#ifndef BX_WATCH_H
#define BX_WATCH_H

#include "exchange.h"
#include "payload.h"

#define TRACK_STEPS 128 /* of an agent that are kept; a power of 2 */
#define TOOL_BYTES 48   /* of the name of a tool, with a terminator */

/*
** A step of an agent: a tool call, with its result when that has come; or an
** exchange without a call. A hash is 0 for what is not there.
*/
typedef struct Step {
  i64 n; /* number of the step: 1, 2, ... */
  i64 iSeq, iTime;
  i64 iPut;       /* the exchange whose row has it as it is */
  i64 hCall;      /* id of the call */
  i64 hArguments; /* tool and arguments; 0 if there is no call */
  i64 hLoose;  /* the same without numbers and ids; the tool alone if its result
                  ** is long */
  i64 hResult; /* the result without times, durations and ids */
  i64 hSaid;   /* of a step without a call: what the model said, or RETRY */
  /* tokens, calls and cost (in millionths) ever, and before this turn */
  i64 nSpent, nSpentBefore, nCost, nCostBefore;
  int nMade, nMadeBefore;
  int iTurn, iStart; /* turn; and how often the agent was started again */
  int iTalk;         /* the conversation */
  int iBefore; /* of its first step: the one of which it may be the summary; or 0 */
  int iError; /* 1 an error, 0 none, -1 no result yet */
  char zTool[TOOL_BYTES];
} Step;
#define RETRY 1 /* the same request once more, without an answer */

typedef struct Track {
  i64 iNo;    /* the agent's number in the ring; 0 for none */
  i64 nStep;  /* number of the newest step */
  i64 iLow;   /* number of the oldest step that is there */
  i64 iSeq;   /* the exchange of the newest step */
  i64 nItem;  /* messages of the last request */
  i64 hFirst; /* hash of its first message */
  i64 hChain; /* of all that was written */
  i64 iDirty; /* no step before it came with the newest exchange */
  Head head;
  Step a[TRACK_STEPS]; /* those that are there; the others have any value */
} Track;
#define TRACK_STEP(p, n) (&(p)->a[(n) & (TRACK_STEPS - 1)])

typedef enum {
  RULE_NO_PROGRESS,
  RULE_SAME_ERROR,
  RULE_ERRORS,
  RULE_REPEAT,
  RULE_TOKENS,
  RULE_CALLS,
  RULE_COST,
  N_RULE
} RuleKind;

typedef struct Rule {
  int bEnabled, bStop;
  double rThreshold;
  i64 nSpan;
  i64 iPause; /* 0 for none */
} Rule;

/* What a ring has read of the tables of rules. */
typedef struct Rules {
  int bRead;
  Rule a[N_RULE];
  Formats formats;
  BxStmts *pHome; /* the schema that they are from, with the prices */
} Rules;

/* What a rule sees. */
typedef struct Finding {
  RuleKind eRule;
  double rCount;
  i64 hThing;    /* what repeats */
  int nDistinct; /* of no_progress: how many calls differ */
  int bVaried;   /* and whether numbers or ids of theirs do */
  i64 iNew;      /* the step before these that was new; 0: not known */
  int nAgain;    /* how many of these are not new: the first ones */
  int n;         /* steps that are part of it, the newest first */
  i64 aStep[TRACK_STEPS];
} Finding;

/* rules.c */
const char *bxRuleName(RuleKind eRule);
/* Reads the rules and formats of p's schema. Free *pOut in any case. */
void bxRulesRead(Rules *pOut, BxStmts *p, BxErr *pErr);
void bxRulesFree(Rules *p);
/* What a rule sees when step n is the newest one. */
void bxRuleLook(
    const Rules *p, RuleKind eRule, const Track *pTrack, i64 n, Finding *pOut);
/* The same in words, to sqlite3_free(). */
char *bxRuleSentence(
    const Finding *p, const Track *pTrack, const char *zAgent, BxErr *pErr);

/* Whether a human allowed it. */
int bxRuleAllowed(BxStmts *pHome, const Finding *p, const Track *pTrack,
    const char *zAgent, i64 iTime, BxErr *pErr);
i64 bxRuleThing(const Finding *p, const Track *pTrack);
char *bxRuleSeqs(const Finding *p, const Track *pTrack, BxErr *pErr);
/* The steps of a finding as a JSON array, the oldest first, with the last one before it that
** was new: {"seq", "tool", "result"}, where result is new, again or error. */
char *bxRuleEvidence(const Finding *p, const Track *pTrack, BxErr *pErr);
i64 bxRuleTokens(const Finding *p, const Track *pTrack);

/* track.c: an exchange becomes steps */
typedef struct Moment {
  i64 iSeq, iTime, iStart;
  Shared shared;
} Moment;
/* Adds an exchange. aDone gets the numbers of the steps whose result has come
** with it, at most TRACK_STEPS; the number of them is returned. */
int bxTrackAdd(Track *p, const Rules *pRules, const Moment *pMoment,
    sqlite3_value *pRequest, sqlite3_value *pResponse, i64 *aDone, BxErr *pErr);

/* steps.c: what a ring keeps of them. */
#define TRACKS_KEPT 128 /* agents whose steps are in memory */
#define TRACK_BYTES                                                            \
  (100 + TRACK_STEPS * (170 + TOOL_BYTES)) /* of an exchange */
typedef struct Watch {
  Rules rules;
  Track *apTrack[TRACKS_KEPT]; /* in the place of the agent's number */
  unsigned char aSteps[TRACK_BYTES];
} Watch;
/* Reads the steps of an agent from its slots. */
void bxTrackRead(Track *p, Ring *pRing, const RingAgent *pAgent, BxErr *pErr);
/* The steps of an agent whose newest push is pAgent->nGiven, or the one before. */
Track *bxTrackTake(Ring *p, const RingAgent *pAgent, BxErr *pErr);
/* They are to be read again. */
void bxTrackForget(Watch *p, i64 iNo);
/* What the slot of the newest exchange has of them. Returns how many bytes. */
i64 bxTrackPack(Track *p, unsigned char zOut[TRACK_BYTES]);

/* ring_watch.c: a ring looks for loops. */
#define RING_NAME 1010 /* bytes of "temp." and a name */
typedef struct Watched {
  Ring *p;
  const RingPush *pPush;
  BxStmts *pHome; /* the schema with the rules; NULL: not looked at */
  const Rules *pRules;
  int eMode;      /* what happens with loops */
  int bStopped;   /* the agent is stopped, and goes on */
  i64 iStart;     /* how often the agent was started again */
  Track *pTrack;  /* with the exchange; NULL if it is not looked at */
  i64 nSteps;     /* bytes of Watch.aSteps; 0 for none */
  BxErr beside;   /* what failed beside the record */
  char zKill[37]; /* id of the kill switch that is to be fired */
  i64 iVerdict;   /* the first verdict that fires it */
  int nDone;
  i64 aDone[TRACK_STEPS]; /* steps whose result has come with it */
  char zRing[RING_NAME];
} Watched;

/* Says in the log what was passed over beside a push; the same once a day. */
void bxRingLogSkipped(
    Ring *p, const RingPush *pPush, const char *zWhy, BxErr *pErr);
/* Before a push: what is looked at. */
void bxRingWatchBegin(
    Ring *p, const RingPush *pPush, Watched *pOut, BxErr *pErr);
/* Before the exchange of agent pNext is written: what it adds to the steps, of
** which column steps of its slot gets nSteps bytes. */
void bxRingWatchRead(Watched *p, const RingAgent *pNext, const Shared *pShared);
void bxRingBindSteps(const Watched *p, sqlite3_stmt *pStmt, int iParam);
/* After a push, or a completion of the newest exchange, in a slot:
** writes the verdicts, or fires the kill switch; the digest of what is held; and that
** there was no room. What of this fails is passed over, and the log says so. */
void bxRingAfterWrite(
    Ring *p, const RingPush *pPush, i64 iSlot, Watched *pWatched, BxErr *pErr);
#endif
