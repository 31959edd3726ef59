/*
** payload.h: the payload domain: rings, the archive of exchanges and its queue,
** pinned evidence, and the kill switch.
*/
#ifndef BX_PAYLOAD_H
#define BX_PAYLOAD_H

#include "../core/core.h"

/* sql/payload.sql; sql/payload_ring.sql */
extern const char bxSqlPayload[], bxSqlPayloadRing[], bxSqlPayloadRingHeld[];

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
  i64 nMaxByte;   /* limit of the whole ring, read with nWindow; 0: none */
  i64 nIdleDay;   /* days after which an idle agent is removed; 0: never */
  int bFiring;    /* its kill switch is running */
  BxStmts saving; /* statements on the archive, if the ring is in temp */
  /* ring_watch.c: whether to look for loops */
  int eRules;    /* whether its schema has rules: -1 no, 1 yes, 0 unknown */
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

/* An agent in a ring. iNo is 0 if the agent has never pushed. */
typedef struct RingAgent {
  i64 iNo;
  i64 nWindow;  /* number of slots that its rows are laid out for */
  i64 iHalf;    /* the half of its ids that they use, 0 or 1 */
  i64 nRow;     /* rows that it has now */
  i64 nGiven;   /* all its pushes: the seq of the newest row */
  i64 nAllowed; /* the ring's window now, which may differ from nWindow */
  int bHeld;    /* a hold may keep its rows */
} RingAgent;

typedef struct RingPush {
  const char *zAgent;
  sqlite3_value *pEvent, *pRequest, *pResponse;
  i64 iTime;
} RingPush;

void bxRingCreate(Ring *p, const RingOptions *pOptions, BxErr *pErr);
/* CorruptedDataError for the table of the ring that ends in zSuffix. */
void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix);
/* VersionError if a newer version of blackbox made the ring. */
void bxRingKnown(BxVtab *p, BxErr *pErr);
void bxRingWatchFree(Ring *p);
/* Forgets what was read of the rules, because a rollback may have undone it. */
void bxRingForget(Ring *p);
/* Adds a row. Sets *piRowid to its rowid. */
void bxRingPush(Ring *p, const RingPush *pPush, i64 *piRowid, BxErr *pErr);
void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr);
void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr);
/* Sets "max_bytes" or "idle_days". 0 removes the bound. */
void bxRingSetBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr);
/* Finds an agent. If the window has changed, its rows are trimmed and moved.
** Must be called inside a statement or savepoint that writes. */
void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr);
/* Reads the columns no, window, half, given, rows and why. If they are damaged, it
** fails with an error that names the table. */
void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr);
/* The ring's window, for a reader. */
i64 bxRingWindow(Ring *p, BxErr *pErr);
/* Queries for a cursor, which the caller finalizes. The agents in the order of
** agent_id, or the one whose agent_id is ?1; the slots with an id from ?1 to ?2
** and a seq above ?3. */
sqlite3_stmt *bxRingAgents(Ring *p, int bOne, BxErr *pErr);
sqlite3_stmt *bxRingSlots(Ring *p, int bBodies, int bNewest, BxErr *pErr);
/* A hold on a row of agent iNo (0: of any agent), as text to sqlite3_free(); NULL
** if there is none. */
char *bxRingHolder(Ring *p, i64 iNo, BxErr *pErr);
/* HeldError if there is one; then it returns 1. */
int bxRingRefuseHeld(Ring *p, i64 iNo, BxErr *pErr);
/* Removes all rows of an agent. They count as saved, or as cleared. */
void bxRingTakeOut(Ring *p, const char *zAgent, int bSaved, BxErr *pErr);
/* Takes the write lock on the ring's schema. */
void bxRingLock(Ring *p, BxErr *pErr);

/* ring_held.c: digests of held exchanges. iSlot: that of the exchange, 0: all. */
void bxRingLogHeld(Ring *p, i64 iSlot, BxErr *pErr);
void bxRingCheck(BxVtab *pVtab, BxProblems *pOut);

#define BX_RING_WINDOW 50 /* of a ring that is made without one */
#define BX_RING_MAX_WINDOW 10000

/* Ids of an agent's slots: the first one, that of its newest row, and the last
** one. The rows after that of the newest row are older than those before it. */
#define BX_RING_BASE(p) (((p)->iNo << 16) | ((p)->iHalf << 15))
#define BX_RING_SPLIT(p) (BX_RING_BASE(p) + (p)->nGiven % (p)->nWindow)
#define BX_RING_LAST(p) (BX_RING_BASE(p) + (p)->nWindow - 1)

/* ring_bound.c: the limits of a whole ring */
/* Fails if bodies of that size are larger than the whole ring may be. */
void bxRingRefuseLarge(Ring *p, i64 nByte, BxErr *pErr);
/* Writes a row and makes room for it, in one statement. */
void bxRingPushBound(Ring *p, const RingAgent *pSelf, const RingPush *pPush,
    i64 nByte, BxErr *pErr);
/* Removes what exceeds the limits, without a new row. */
void bxRingTrimBound(Ring *p, BxErr *pErr);

#define BX_RING_MAX_BYTES ((i64)1 << 46)
#define BX_RING_MAX_IDLE 36500

/* kill_switch.c: moves the rows of a ring to the archive, or into JSON */
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
