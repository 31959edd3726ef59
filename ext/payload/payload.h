/*
** payload.h: the payload domain: rings, the archive of exchanges, the queue
** before it, evidence and the kill switch.
*/
#ifndef BX_PAYLOAD_H
#define BX_PAYLOAD_H

#include "../core/core.h"

/* sql/payload.sql and sql/payload_tables.sql; sql/payload_ring.sql */
extern const char bxSqlPayload[], bxSqlPayloadRing[];

/* adopt.c: what an install does beside the SQL, and what it looks at */
void bxPayloadAdopt(BxStmts *p, BxErr *pErr);
void bxPayloadMend(BxStmts *p, BxErr *pErr);
int bxPayloadIsWhole(BxStmts *p, BxErr *pErr);
void bxPayloadCheck(BxStmts *p, BxProblems *pOut);
/* queue.c: refuses that p's schema loses the archive while rows wait for it. */
void bxPayloadLeave(BxStmts *p, BxErr *pErr);

/* pins.c: the hashes of pinned rows. A call that writes takes those of its own
** pins, and of some more that were set without the module. */
#define BX_PINS_ALL (-1)
/* The number of the newest pin. */
i64 bxPinsLast(BxStmts *p, BxErr *pErr);
/* After nSaved exchanges became evidence of a kill switch: as many pins came
** after iPin, and their hashes are taken, and some more. */
void bxPinsHashNew(
    BxStmts *p, i64 iPin, const char *zEvent, i64 nSaved, BxErr *pErr);
/* Takes the hashes of the newest nLimit pins that have none. */
void bxPinsHash(BxStmts *p, i64 nLimit, BxErr *pErr);
/* Takes the hash of the pin of one row, if it has none. */
void bxPinsHashOf(BxStmts *p, const char *zId, BxErr *pErr);
/* Whether a row is pinned. */
int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr);
/* Whether a pin has no hash. */
int bxPinsLack(BxStmts *p, BxErr *pErr);
void bxPinsCheck(BxStmts *p, BxProblems *pOut);

/* archive.c: the table event_payloads */
void bxPayloadCleanup(BxCall *p);
void bxPayloadClearArchive(BxCall *p);
void bxPayloadSaveEvidence(BxCall *p);
void bxPayloadStats(BxCall *p);
void bxPayloadDbSize(BxCall *p);
void bxPayloadUnpin(BxCall *p);
/* queue.c: rows on their way into the archive */
typedef struct Queue Queue;
int bxQueueRegister(Bx *bx);
void bxPayloadQueue(BxCall *p);
void bxPayloadFlush(BxCall *p);
sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* How many rows and bytes wait on this connection. */
void bxQueueSize(Bx *bx, i64 *pnRow, i64 *pnByte);
/* Deletes what waits for pHome's schema, with a receipt. Returns the rows. */
i64 bxQueueClear(BxStmts *pHome, BxErr *pErr);

/* ring.c: the virtual table payload_ring (methods only) */
extern const sqlite3_module bxRingModule;

/* ring_sql.c: what a ring does */
typedef struct Ring {
  BxVtab base;
  i64 nWindow;    /* as read in this transaction, 0 when not yet */
  i64 nMaxByte;   /* of the whole ring, 0 for no limit; read with it */
  i64 nIdleDay;   /* after which an agent goes, 0 for never */
  int bFiring;    /* its kill switch is at work */
  BxStmts saving; /* of a ring in temp: its statements on the archive */
  /* ring_watch.c: whether to look for loops */
  int eRules;    /* whether its schema has rules: -1 no, 1 yes, 0 unknown */
  int nPrepared; /* how often its query was prepared anew, when looked */
  int mWatch;    /* what is on; read with nWindow, 0 for nothing */
  int bHome;     /* of a ring in temp: some schema has rules */
  /* what it was read at: changes by this connection, and by others; of a ring in
  ** temp, the time */
  int nChange;
  unsigned int iData;
  i64 iLooked;
  struct Watch *pWatch; /* NULL before the first push that is looked at */
} Ring;

/* What a ring is made with. */
typedef struct RingOptions {
  i64 nWindow, nMaxByte, nIdleDay;
} RingOptions;

/* An agent's place in a ring. no is 0 when the agent has never pushed. */
typedef struct RingAgent {
  i64 iNo;
  i64 nWindow;  /* slots that its layout has */
  i64 iHalf;    /* which half of its ids the layout uses, 0 or 1 */
  i64 nRow;     /* rows that are there */
  i64 nGiven;   /* pushes ever: the seq of the newest row */
  i64 nAllowed; /* the ring's window now */
} RingAgent;

typedef struct RingPush {
  const char *zAgent;
  sqlite3_value *pEvent, *pRequest, *pResponse;
  i64 iTime;
} RingPush;

void bxRingCreate(Ring *p, const RingOptions *pOptions, BxErr *pErr);
/* CorruptedDataError about a table of the ring, named by its suffix. */
void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix);
/* VersionError for a ring that a newer module made. */
void bxRingKnown(BxVtab *p, BxErr *pErr);
void bxRingWatchFree(Ring *p);
/* Forgets what it read of the rules: it was rolled back, perhaps. */
void bxRingForget(Ring *p);
/* Adds a row. *piRowid gets its rowid. */
void bxRingPush(Ring *p, const RingPush *pPush, i64 *piRowid, BxErr *pErr);
void bxRingDelete(Ring *p, i64 iRowid, BxErr *pErr);
void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr);
/* Sets "max_bytes" or "idle_days"; 0 takes the bound off. */
void bxRingSetBound(Ring *p, const char *zOption, i64 iVal, BxErr *pErr);
/* Finds an agent; trims and lays out its rows anew if the window changed.
** Only inside a statement or savepoint that writes. */
void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr);
/* From a row of no, window, half, given and rows. Damage is an error that
** names the table. */
void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr);
/* The ring's window, for a reader. */
i64 bxRingWindow(Ring *p, BxErr *pErr);
/* Queries for a cursor, to finalize: the agents by agent_id (or the one bound
** to ?1), and slots id ?1 to ?2 whose seq is above ?3. */
sqlite3_stmt *bxRingAgents(Ring *p, int bOne, BxErr *pErr);
sqlite3_stmt *bxRingSlots(Ring *p, int bBodies, int bNewest, BxErr *pErr);
/* Takes all rows of an agent out and counts them: saved as evidence, or
** cleared. */
void bxRingTakeOut(Ring *p, const char *zAgent, int bSaved, BxErr *pErr);
/* Takes the write lock on the ring's schema. */
void bxRingLock(Ring *p, BxErr *pErr);

#define BX_RING_MAX_WINDOW 10000

/* ids of the slots of an agent's layout, first the oldest part */
#define BX_RING_BASE(p) (((p)->iNo << 16) | ((p)->iHalf << 15))
#define BX_RING_SPLIT(p) (BX_RING_BASE(p) + (p)->nGiven % (p)->nWindow)
#define BX_RING_LAST(p) (BX_RING_BASE(p) + (p)->nWindow - 1)

/* ring_bound.c: the limits of a whole ring */
/* Puts a row and makes room for it: one statement. */
void bxRingPushBound(Ring *p, const RingAgent *pSelf, const RingPush *pPush,
    i64 nByte, BxErr *pErr);
/* Makes room without a row. */
void bxRingTrimBound(Ring *p, BxErr *pErr);

#define BX_RING_MAX_BYTES ((i64)1 << 46)
#define BX_RING_MAX_IDLE 36500

/* kill_switch.c: rows of a ring become evidence, or JSON */
void bxPayloadKillSwitch(BxCall *p);
void bxPayloadExtract(BxCall *p);
/* The same for a row put into the ring. Returns the rows saved. */
i64 bxRingKillSwitch(
    Ring *p, const char *zAgent, const char *zEvent, BxErr *pErr);

/* calls.c: what an exchange says */
extern const sqlite3_module bxCallsModule;
void bxPayloadPrompt(BxCall *p);
void bxPayloadTools(BxCall *p);
sqlite3_stmt *bxPayloadUsage(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* loops.c: the rules on what is there, and on what was archived */
sqlite3_stmt *bxPayloadLoops(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxPayloadReplay(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* simhash.c: texts compared as AgentGazer does */
i64 bxSimHash(const char *z, i64 n);
/* The bits in which two hashes differ. */
int bxHamming(i64 iLeft, i64 iRight);
void bxPayloadSimHash(BxCall *p);
void bxPayloadHamming(BxCall *p);
void bxPayloadSimilar(BxCall *p);
void bxPayloadNormalize(BxCall *p);

#endif
