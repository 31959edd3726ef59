/*
** payload.h: the payload domain: rings, the archive of exchanges and its queue,
** pinned evidence, and the kill switch.
*/
#ifndef BX_PAYLOAD_H
#define BX_PAYLOAD_H

#include "../core/core.h"

/* sql/payload.sql; sql/payload_ring.sql */
extern const char bxSqlPayload[], bxSqlPayloadRing[];

/* adopt.c: what blackbox_install() and blackbox_check() do beside the SQL */
void bxPayloadAdopt(BxStmts *p, BxErr *pErr);
void bxPayloadMend(BxStmts *p, BxErr *pErr);
int bxPayloadIsWhole(BxStmts *p, BxErr *pErr);
void bxPayloadCheck(BxStmts *p, BxProblems *pOut);
/* queue.c: fails if rows wait for the archive in p's schema. Called before the
** archive is removed. */
void bxPayloadLeave(BxStmts *p, BxErr *pErr);

/* pins.c */
/* The number of the newest row of the log. */
i64 bxPinsLast(BxStmts *p, BxErr *pErr);
/* Fails unless so many exchanges of a kill switch were pinned after row iLast of
** the log. */
void bxPinsExpect(
    BxStmts *p, i64 iLast, const char *zEvent, i64 nSaved, BxErr *pErr);
/* Whether a row is pinned. */
int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr);

/* archive_held.c: see BxDomain */
/* The row of the log since which a thing (<kind>:<key>) is held; 0: it is not. */
i64 bxHeldSince(BxStmts *p, const char *zThing, BxErr *pErr);
void bxPayloadNoteHeld(BxStmts *p, i64 nMost, BxErr *pErr);
void bxPayloadCheckHeld(BxStmts *p, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg, BxErr *pErr);

/* pack.c: bodies in the body store */
/* Whether bodies of the archive in p's schema are references. */
int bxPacks(BxStmts *p, BxErr *pErr);
/* With the setting payload.pack: packs a small number of rows. */
void bxPackSome(BxStmts *p, int bCleanup, BxErr *pErr);
/* Removes texts of rows that are gone. */
void bxPackSweep(BxStmts *p, i64 nLimit, BxErr *pErr);
/* Puts the texts of a row back. */
void bxUnpackRow(BxStmts *p, const char *zId, BxErr *pErr);
/* Unpacks the rows of the archive that may be among the exchanges of a query,
** which has their agent_id, event_id and size_bytes, and finalizes it:
** payload_evidence compares texts. */
void bxUnpackLike(BxStmts *p, sqlite3_stmt *pExchanges, BxErr *pErr);
void bxPayloadPack(BxCall *p);
void bxPayloadUnpack(BxCall *p);

/* archive.c: the table event_payloads */
void bxPayloadCleanup(BxCall *p);
void bxPayloadClearArchive(BxCall *p);
void bxPayloadSaveEvidence(BxCall *p);
void bxPayloadStats(BxCall *p);
void bxPayloadDbSize(BxCall *p);
void bxPayloadUnpin(BxCall *p);
/* queue.c: rows that wait for the archive */
int bxQueueRegister(Bx *bx);
void bxPayloadQueue(BxCall *p);
void bxPayloadFlush(BxCall *p);
sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxQueueRows(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxQueueWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr);
/* How many rows and bytes wait on this connection. */
void bxQueueSize(Bx *bx, i64 *pnRow, i64 *pnByte, BxErr *pErr);
/* Deletes what waits for pHome's schema, with a receipt. Returns the rows. */
i64 bxQueueClear(BxStmts *pHome, BxErr *pErr);

/* ring.c: the virtual table payload_ring (methods only) */
extern const sqlite3_module bxRingModule;

/* ring_sql.c: the statements of a ring */
typedef struct Ring {
  BxVtab base;
  i64 nWindow;    /* as read in this transaction; 0: not read yet */
  int nSeen;      /* the count of changes by then */
  i64 nMaxByte;   /* limit of the whole ring, read with nWindow; 0: none */
  i64 nIdleDay;   /* days after which an idle agent is removed; 0: never */
  i64 nUsable;    /* bytes of a page that SQLite uses; 0: not read yet */
  int bNoRoom;    /* a push found less room than it needs */
  int bFiring;    /* its kill switch is running */
  int bWatching;  /* its rules are asked */
  BxStmts saving; /* statements on the archive, if the ring is in temp */
  /* ring_watch.c: whether to look for loops */
  int eRules;    /* what its schema has: RING_RULES, RING_CORE, -1 neither;
                 ** 0 unknown */
  int nPrepared; /* how often SQLite had prepared the query again by then */
  int mWatch;    /* what is on, read with nWindow; 0: nothing */
  int bHome;     /* the ring is in temp, and some schema has rules */
  /* when that was read: the counts of changes by this connection and by others,
  ** and the time, which a ring in temp uses */
  int nChange;
  unsigned int iData;
  i64 iLooked;
  int bSame;            /* nothing has changed since the last push but by it */
  struct Watch *pWatch; /* NULL before the first push that is looked at */
} Ring;

/* The parameters of CREATE VIRTUAL TABLE. */
typedef struct RingOptions {
  i64 nWindow, nMaxByte, nIdleDay;
} RingOptions;

#define RING_RULES 1 /* tables of rules and of holds */
#define RING_CORE 2  /* of holds alone */

/* Bits of mWatch. */
#define RING_MODE 3    /* what happens with loops: 0 nothing */
#define RING_REFUSE 4  /* agents that are stopped are refused */
#define RING_AGENTS 8  /* an agent has settings */
#define RING_WATCH 15  /* one of these */
#define RING_HOLDS 16  /* the file has holds */
#define RING_ERASED 32 /* it refuses keys that were erased */

/* An agent in a ring. iNo is 0 if the agent has never pushed. */
typedef struct RingAgent {
  i64 iNo;
  i64 nWindow;  /* number of slots that its rows are laid out for */
  i64 iHalf;    /* the half of its ids that they use, 0 or 1 */
  i64 bParked;  /* it may have rows beyond the window, which are or were held */
  i64 nRow;     /* rows that it has now */
  i64 nGiven;   /* all its pushes: the seq of the newest row */
  i64 nAllowed; /* the ring's window now, which may differ from nWindow */
  i64 bNew;     /* it has no row in the table yet */
} RingAgent;

/* What is added to the counters of an agent. */
typedef struct RingCount {
  i64 nRolled, nCleared, nSaved, nRow, nByte;
} RingCount;

typedef struct RingPush {
  const char *zAgent;
  sqlite3_value *pEvent, *pRequest, *pResponse, *pMeta;
  i64 iTime;
  i64 nByte; /* of both bodies */
} RingPush;

/* A slot, and what is in it. */
typedef struct RingSlot {
  i64 iId;
  i64 iSeq, nByte;
  i64 nPad; /* -1: the row has no zeros */
  int bThere;
  int bOther; /* it is of another agent */
} RingSlot;
/* The columns that bxRingReadSlot() reads. */
#define RING_SLOT(agent)                                                       \
  "ifnull(s.seq, 0 * s.id), s.size_bytes, length(s.pad), s.agent_id IS "       \
  "NOT " agent

typedef struct RingRoll RingRoll;

void bxRingCreate(Ring *p, const RingOptions *pOptions, BxErr *pErr);
/* CorruptedDataError for the table of the ring that ends in zSuffix. */
void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix);
/* VersionError if a newer version of blackbox made the ring. */
void bxRingKnown(BxVtab *p, BxErr *pErr);
void bxRingWatchFree(Ring *p);
/* Forgets what was read of the rules, because a rollback may have undone it. */
void bxRingForget(Ring *p);
/* Adds a row. Sets *piRowid to its rowid. */
void bxRingPush(Ring *p, RingPush *pPush, i64 *piRowid, BxErr *pErr);
void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr);
void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr);
/* Finds an agent. */
void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr);
/* Reads the columns no, window, half, given and rows. If they are damaged, it
** fails with an error that names the table. */
void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr);
/* Adds to the counters of an agent, and of the ring. */
void bxRingCount(Ring *p, i64 iNo, const RingCount *pCount, BxErr *pErr);
/* The ring's window, for a reader. */
i64 bxRingWindow(Ring *p, BxErr *pErr);
/* A query for a cursor, which the caller finalizes: the agents in the order of
** agent_id, or the one whose agent_id is ?1. */
sqlite3_stmt *bxRingAgents(Ring *p, int bOne, BxErr *pErr);
/* A hold on a row with an id from iFirst to iLast and a seq up to iSeq, as text to
** sqlite3_free(); NULL if there is none. */
char *bxRingHolder(Ring *p, i64 iFirst, i64 iLast, i64 iSeq, BxErr *pErr);
/* Whether there is one on a row. */
int bxRingIsHeld(Ring *p, i64 iSlot, BxErr *pErr);
/* HeldError if there is one on a row that is to be deleted. */
void bxRingRefuseHeld(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr);
/* Removes rows of an agent, which count as saved, or as cleared; and its steps.
** zWhich: a query of their number, their bytes, and how many have a seq up to ?2,
** which count as rolled. zDrop: a DELETE of them. ?1 is the first id of the agent.
** Returns how many. */
i64 bxRingTakeOut(Ring *p, BxStmts *pOn, const char *zWhich, const char *zDrop,
    const RingAgent *pAgent, int bSaved, BxErr *pErr);
void bxRingForgetSteps(Ring *p, i64 iNo, BxErr *pErr);
/* Takes the write lock on the ring's schema, and reads its settings. */
void bxRingLock(Ring *p, BxErr *pErr);

/* ring_complete.c: the response of an exchange that was pushed without one */
/* Of the newest such exchange of an event, in the ring or in the evidence. pDone has
** the agent, the event, the response and meta. */
void bxRingComplete(Ring *p, RingPush *pDone, BxErr *pErr);
/* Of the exchange in a slot; pDone has only the response and meta. Does nothing if
** a newer exchange of its event has none. */
void bxRingCompleteSlot(Ring *p, i64 iSlot, RingPush *pDone, BxErr *pErr);

/* ring_body.c: the table of slots */
/* Reads four columns from column i on. */
void bxRingReadSlot(sqlite3_stmt *pStmt, int i, RingSlot *pOut);
void bxRingFind(
    Ring *p, i64 iSlot, const char *zAgent, RingSlot *pOut, BxErr *pErr);
/* Writes the row of a push into a slot, with the statement of this template. */
const char *bxRingAppendSql(const RingSlot *pOld);
void bxRingAppend(Ring *p, sqlite3_stmt *pStmt, const RingAgent *pNext,
    const RingPush *pPush, const RingSlot *pOld, BxErr *pErr);
/* A query for a cursor, which the caller finalizes: the slots with an id from ?1
** to ?2 and a seq from ?3 to ?4, of event ?5 or any. */
sqlite3_stmt *bxRingSlots(Ring *p, int bBodies, int bNewest, BxErr *pErr);
void bxRingDrop(Ring *p, i64 iSlot, BxErr *pErr);
/* Moves the rows of an agent into the other half of its ids, as a window wants
** them; removes those that do not fit. */
void bxRingMove(Ring *p, const RingAgent *pAgent, i64 nWindow, BxErr *pErr);

/* ring_held.c */
/* After a push: a digest of the row, if a hold keeps it. That there is none never
** refuses a push. */
void bxRingNoteHeld(Ring *p, i64 iSlot, const RingPush *pPush, BxErr *pErr);
/* The part of bxPayloadCheckHeld() for the rings of a schema. */
void bxRingCheckHeld(BxStmts *p, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg, BxErr *pErr);
void bxRingCheck(BxVtab *pVtab, BxProblems *pOut);

#define BX_RING_WINDOW 50 /* of a ring that is made without one */
#define BX_RING_MAX_WINDOW 10000
#define BX_RING_MAX_META 65536 /* bytes */

/* Ids of an agent's slots: the first one, that of its newest row, and the last
** one. The rows after that of the newest row are older than those before it. */
#define BX_RING_BASE(p) (((p)->iNo << 16) | ((p)->iHalf << 15))
#define BX_RING_SPLIT(p) (BX_RING_BASE(p) + (p)->nGiven % (p)->nWindow)
#define BX_RING_LAST(p) (BX_RING_BASE(p) + (p)->nWindow - 1)

/* Ids of its rows beyond the window that a hold keeps, the oldest first. */
#define RING_PARK(p) (((p)->iNo << 16) + 10240)
#define RING_PARK_LAST(p) (((p)->iNo << 16) + 32767)
/* SQL: a row is in the window, which begins after seq ?2, or parked; or neither. */
#define RING_WITHIN "(seq > ?2 OR id & 32767 >= 10240)"
#define RING_BEYOND RING_WITHIN " IS NOT 1"

/* ring_bound.c: the limits of a whole ring */
/* Sets "max_bytes" or "idle_days". 0 removes the bound. */
void bxRingSetBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr);
/* After a push: says in the log that there was not enough room. */
void bxRingTellFull(Ring *p, const RingPush *pPush, BxErr *pErr);
/* What has to go before a push into slot iKeep that takes nMore bytes more; iKeep
** -1: what exceeds the limits without one. */
RingRoll *bxRingChoose(
    Ring *p, const RingAgent *pSelf, i64 nMore, i64 iKeep, BxErr *pErr);
/* Removes it, and frees it. Agent iSelf has pushed; 0: none. */
void bxRingRoll(Ring *p, RingRoll *pRoll, i64 iSelf, BxErr *pErr);
/* Agents without rows leave, with a receipt: that one, or all for NULL. */
void bxRingLeave(Ring *p, const char *zAgent, BxErr *pErr);

#define BX_RING_MAX_BYTES ((i64)1 << 46)
#define BX_RING_MAX_IDLE 36500

/* kill_switch.c: moves the rows of a ring to the archive, or into JSON */
/* The archive that a ring's evidence goes to. */
BxStmts *bxRingArchive(Ring *p, BxErr *pErr);
void bxPayloadKillSwitch(BxCall *p);
void bxPayloadExtract(BxCall *p);
/* Who pulls a kill switch, and why: a person, each NULL if it is not said, or the
** rule of a verdict. */
typedef struct RingPuller {
  const char *zActor, *zReason;
  i64 iVerdict; /* 0: no rule */
} RingPuller;
/* Reads both, of which either may be NULL. */
void bxRingPuller(sqlite3_value *pActor, sqlite3_value *pReason,
    RingPuller *pOut, BxErr *pErr);
/* Saves the exchanges of an agent. Returns how many. */
i64 bxRingKillSwitch(Ring *p, const char *zAgent, const char *zEvent,
    const RingPuller *pPuller, BxErr *pErr);

/* calls.c: the prompt, the tool calls and the usage of an exchange */
extern const sqlite3_module bxCallsModule;
void bxPayloadPrompt(BxCall *p);
void bxPayloadTools(BxCall *p);
sqlite3_stmt *bxPayloadUsage(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* loops.c: looks for loops in what a ring holds, and in what was archived */
sqlite3_stmt *bxPayloadLoops(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxPayloadReplay(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

extern const BxRecords bxPayloadRecords[]; /* archive.c */

extern const BxRecords bxRingRecords[]; /* ring.c */
void bxRingHeld(BxVtab *pVtab, BxErr *pErr);

#endif
