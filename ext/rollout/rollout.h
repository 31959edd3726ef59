/*
** rollout.h: what the files of the rollout domain share. The rules live in
** sql/rollout.sql; this code checks arguments, writes by as few statements as
** it can, and puts values into the messages that SQL can only word.
*/
#ifndef BX_ROLLOUT_H
#define BX_ROLLOUT_H

#include "../core/core.h"

#define ROLLOUT_MAX_PAYLOAD 67108864 /* bytes; as in sql/rollout.sql */
#define ROLLOUT_PAGE_MAX 100         /* rows of a page, and of a scan */
#define ROLLOUT_MAX_TEXT 1000000000  /* bytes that an argument may have */

/* SQL: milliseconds of an ISO 8601 text, NULL when it is none. */
#define ROLLOUT_MS(text)                                                       \
  "CASE WHEN " text " GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*' "     \
  "THEN CAST(round((julianday(" text ") - 2440587.5) * 86400000.0) "           \
  "AS INTEGER) END"
/* SQL: milliseconds as ISO 8601 text. */
#define ROLLOUT_ISO(ms)                                                        \
  "strftime('%Y-%m-%dT%H:%M:%fZ', " ms " / 1000.0, 'unixepoch')"
/* SQL: the items of conversation number ?1, to be ordered by
** "s.rollout, s.first, d.id" (no sort is needed), or all three DESC. */
#define ROLLOUT_FROM_ITEMS                                                     \
  "FROM main.rollout_segments AS s CROSS JOIN main.rollout_data AS d "         \
  "ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "    \
  "WHERE s.rollout = ?1 "

/*---------------------------------------------------------- head.c ----*/

/* What the row of a conversation says. */
typedef struct RolloutHead {
  i64 no;
  i64 iLast;   /* last sequence; -1 when there is no item */
  i64 iExpire; /* milliseconds; BX_MAX_TIME + 1 for never */
} RolloutHead;

/*
** Reads an id into zId, in lower case. Error "Invalid conversation ID: ...".
*/
void bxRolloutId(sqlite3_value *pVal, char zId[37], BxErr *pErr);
/* The statements of the schema that carries the domain. */
BxStmts *bxRolloutHome(Bx *bx, BxErr *pErr);
/*
** Finds a conversation. bWrite makes that the first write of the transaction.
** Returns 0 when there is none.
*/
int bxRolloutFind(
    BxStmts *p, int bWrite, const char *zId, RolloutHead *pHead, BxErr *pErr);
/* Errors "Rollout not found: ..." and "Rollout expired: ...". */
void bxRolloutMissing(const char *zId, BxErr *pErr);
void bxRolloutExpired(const char *zId, i64 iExpire, BxErr *pErr);
/* bxRolloutFind(), and an error when it is missing or expired at iNow. */
void bxRolloutOpen(BxStmts *p, int bWrite, const char *zId, i64 iNow,
    RolloutHead *pHead, BxErr *pErr);
/*
** Gives an error its last form: what a trigger said about conversation zId
** gets the id, and an error from below SQLite's surface gets the prefix
** ("Write failed: ").
*/
void bxRolloutExplain(BxErr *pErr, const char *zPrefix, const char *zId);

typedef struct RolloutBatch RolloutBatch;

/* What the domain keeps for a connection. */
typedef struct RolloutSlot {
  int nShut, nShutAlloc; /* conversations that were shut down here */
  char (*azShut)[37];
  const RolloutBatch *pBatch; /* what rollout_batch shows just now, or NULL */
} RolloutSlot;

/* Makes it when it is not there yet. */
RolloutSlot *bxRolloutSlot(Bx *bx, BxErr *pErr);
int bxRolloutIsShut(Bx *bx, const char *zId);
void bxRolloutSetShut(Bx *bx, const char *zId, int bShut, BxErr *pErr);

/*--------------------------------------------------------- batch.c ----*/

extern const sqlite3_module bxRolloutBatchModule;

/* nHint: about how many bytes the payloads will have. */
RolloutBatch *bxRolloutBatchNew(i64 nHint, BxErr *pErr);
void bxRolloutBatchClear(RolloutBatch *p);
void bxRolloutBatchFree(RolloutBatch *p);
/* Copies a payload. Returns where it is. */
i64 bxRolloutBatchText(RolloutBatch *p, const char *z, i64 n, BxErr *pErr);
/* All payloads copied so far, as "[payload,payload,...]". */
const char *bxRolloutBatchArray(RolloutBatch *p, i64 *pn);
/* Takes an item in. zType must live until the batch is written; iPayload -1:
** it has no payload. bLook 0: nothing in the payload needs to be looked at
** (see rollout_data). */
void bxRolloutBatchAdd(RolloutBatch *p, i64 iTime, const char *zType,
    i64 iPayload, i64 nPayload, int bLook, BxErr *pErr);
/* Writes all behind pHead->iLast; without a savepoint in one statement.
** Returns how many. */
i64 bxRolloutBatchPut(RolloutBatch *p, BxStmts *pHome, const RolloutHead *pHead,
    int bSavepoint, BxErr *pErr);
/* Writes one item with this key. */
void bxRolloutPut(BxStmts *p, i64 id, i64 iTime, const char *zType,
    const char *zPayload, i64 nPayload, int bLook, BxErr *pErr);

/*------------------------------------------------------- functions ----*/

/* manage.c */
void bxRolloutCreate(BxCall *p);
void bxRolloutResume(BxCall *p);
void bxRolloutArchive(BxCall *p);
void bxRolloutDelete(BxCall *p);
void bxRolloutCleanup(BxCall *p);
void bxRolloutFork(BxCall *p);
/* flush.c */
void bxRolloutFlush(BxCall *p);
void bxRolloutShutdown(BxCall *p);
/* append.c */
void bxRolloutAppend(BxCall *p);
/* Whether the triggers must look into an item: see look in rollout_data. */
int bxRolloutMatters(
    const char *zType, const char *zPayload, const char *zPayloadType);
/* Counts items that were not kept. */
void bxRolloutDrop(BxStmts *p, i64 no, const char *zType,
    const char *zPayloadType, i64 nItem, i64 nByte, BxErr *pErr);
/* import.c */
void bxRolloutImport(BxCall *p);
/* read.c */
void bxRolloutHistory(BxCall *p);
void bxRolloutPage(BxCall *p);
void bxRolloutExport(BxCall *p);
sqlite3_stmt *bxRolloutList(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutRange(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutContext(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutDropped(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutLines(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* search.c */
void bxRolloutSearchInstall(BxCall *p);
void bxRolloutSearchRemove(BxCall *p);
sqlite3_stmt *bxRolloutSearch(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
