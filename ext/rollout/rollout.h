/*
** rollout.h: what the files of the rollout domain share. The rules are in
** sql/rollout.sql. The C code checks arguments, writes with as few statements
** as possible, and adds values to the messages of the rules.
*/
#ifndef BX_ROLLOUT_H
#define BX_ROLLOUT_H

#include "../core/core.h"

#define ROLLOUT_MAX_PAYLOAD 67108864 /* bytes; as in sql/rollout.sql */
#define ROLLOUT_LAST 4294967295      /* the highest possible sequence */
#define ROLLOUT_PAGE_MAX 100         /* most rows of a page, and of a scan */
#define ROLLOUT_MAX_TEXT 1000000000  /* most bytes of an argument */

/* SQL: milliseconds as ISO 8601 text. */
#define ROLLOUT_ISO(ms)                                                        \
  "strftime('%Y-%m-%dT%H:%M:%fZ', " ms " / 1000.0, 'unixepoch')"
/* SQL: the items of conversation number ?1. Use it with ORDER BY s.rollout,
** s.first, d.id (which needs no sort), or with all three DESC. */
#define ROLLOUT_FROM_ITEMS                                                     \
  "FROM main.rollout_segments AS s CROSS JOIN main.rollout_data AS d "         \
  "ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "    \
  "WHERE s.rollout = ?1 "

/*---------------------------------------------------------- head.c ----*/

/* The row of a conversation. */
typedef struct RolloutHead {
  i64 no;
  i64 iLast;   /* last sequence; -1 if there are no items */
  i64 iExpire; /* milliseconds; BX_MAX_TIME + 1 for never */
} RolloutHead;

/*
** Reads an id into zId, in lower case. Error: "InvalidIdError: ...".
*/
void bxRolloutId(sqlite3_value *pVal, char zId[37], BxErr *pErr);
/* Whether n bytes have the form of a UUID; writes it in lower case. */
int bxRolloutUuid(const char *z, int n, char zId[37]);
/* The statements of the schema that has the domain. */
BxStmts *bxRolloutHome(Bx *bx, BxErr *pErr);
/*
** Finds a conversation. With bWrite this is the first write of the transaction.
** Returns 0 if there is none.
*/
int bxRolloutFind(
    BxStmts *p, int bWrite, const char *zId, RolloutHead *pHead, BxErr *pErr);
/* The key of an item. */
i64 bxRolloutKey(i64 no, i64 iSequence);
/* Set the errors RolloutNotFoundError, RolloutExistsError,
** RolloutExpiredError. */
void bxRolloutMissing(const char *zId, BxErr *pErr);
void bxRolloutExists(const char *zId, BxErr *pErr);
void bxRolloutExpired(const char *zId, i64 iExpire, BxErr *pErr);
/* Finds the conversation that argument 0 names. Returns its schema, or NULL
** with an error. */
BxStmts *bxRolloutNamed(BxCall *p, char zId[37], RolloutHead *pHead);
/* bxRolloutFind(), with an error if it does not exist or has expired at
** iNow. */
void bxRolloutOpen(BxStmts *p, int bWrite, const char *zId, i64 iNow,
    RolloutHead *pHead, BxErr *pErr);
/* A conversation that exists and has not expired; otherwise number 0, without
** items. */
RolloutHead bxRolloutLive(Bx *bx, sqlite3_value *pId, i64 iNow, BxErr *pErr);
/* Prepares a query of the caller on the schema of the domain. */
sqlite3_stmt *bxRolloutQuery(Bx *bx, const char *zSql, BxErr *pErr);
/* Completes an error: a message of SQLite gets the prefix, which begins with a
** name ("WriteError: Write failed: "). */
void bxRolloutExplain(BxErr *pErr, const char *zPrefix);

/* Whether it was shut down on this connection. */
int bxRolloutIsShut(BxStmts *pHome, const char *zId, i64 no);
/* Sets the error RolloutShutDownError if it was shut down. */
void bxRolloutNotShut(BxStmts *pHome, const char *zId, i64 no, BxErr *pErr);
void bxRolloutSetShut(
    BxStmts *pHome, const char *zId, i64 no, int bShut, BxErr *pErr);

/*---------------------------------------------------------- item.c ----*/

#define ROLLOUT_MAX_NAME 100 /* bytes of a type; as in sql/rollout.sql */

/* The position of a JSON value in its text; z is NULL if it is missing. */
typedef struct RolloutSpan {
  const char *z;
  i64 n;
} RolloutSpan;

typedef struct RolloutItem {
  RolloutSpan whole, type, payload, timestamp;
  RolloutSpan payloadType, role; /* members of the payload */
  int bOdd;                      /* a key has an escape: do not use the parts */
} RolloutItem;

/*
** The first item of the array z, or z itself if it is one item; and the item
** after the item that ends at z. NULL if there is none. z is text that
** json_valid() accepts.
*/
const char *bxRolloutFirstItem(const char *z);
const char *bxRolloutNextItem(const char *z);
/* Finds the parts of the item at z. Returns its end. */
const char *bxRolloutReadItem(const char *z, RolloutItem *p);
/* Copies a string without escapes and of at most ROLLOUT_MAX_NAME bytes.
** Returns its length, or 0 for an empty string or anything else. */
int bxRolloutName(RolloutSpan token, char zName[ROLLOUT_MAX_NAME + 1]);

/* Whether the triggers must read items of a pair of types (see looked in
** rollout_heads): never, always, or if the role may be "user". */
typedef enum { ROLLOUT_PASS, ROLLOUT_LOOK, ROLLOUT_MESSAGE } RolloutKind;

RolloutKind bxRolloutKind(const char *zType, const char *zPayloadType);
/* Whether they must read this one. */
int bxRolloutMatters(const RolloutItem *p, RolloutKind eKind);

/*--------------------------------------------------------- batch.c ----*/

typedef struct RolloutBatch RolloutBatch;

RolloutBatch *bxRolloutBatchNew(BxErr *pErr);
void bxRolloutBatchFree(RolloutBatch *p);
/*
** Adds an item. zType and payload must exist until the batch is written.
** Without a payload, payload.z is NULL. zOwned, if it is not NULL, is freed
** after that. If bLook is 0, the triggers need not read the payload.
*/
void bxRolloutBatchAdd(RolloutBatch *p, i64 iTime, const char *zType,
    RolloutSpan payload, char *zOwned, int bLook, BxErr *pErr);
/* Counts nItem items of these types, with nByte bytes together, as dropped.
** Both texts must exist until the batch is written. */
void bxRolloutBatchDrop(RolloutBatch *p, const char *zType,
    const char *zPayloadType, i64 nItem, i64 nByte, BxErr *pErr);
/* Writes the batch to conversation zId, after pHead->iLast. If the number of
** the head is 0, the first item starts the conversation. Without a savepoint
** this is one statement. */
void bxRolloutBatchPut(RolloutBatch *p, BxStmts *pHome, const char *zId,
    const RolloutHead *pHead, i64 iNow, int bSavepoint, BxErr *pErr);
/* The number of items. */
i64 bxRolloutBatchCount(const RolloutBatch *p);

/*------------------------------------------------------- functions ----*/

/* manage.c */
void bxRolloutCreate(BxCall *p);
void bxRolloutResume(BxCall *p);
void bxRolloutArchive(BxCall *p);
void bxRolloutDelete(BxCall *p);
void bxRolloutCleanup(BxCall *p);
void bxRolloutFork(BxCall *p);
void bxRolloutRebuild(BxCall *p);
/* install.c: upgrades a database of version 1. */
void bxRolloutAdopt(BxStmts *p, BxErr *pErr);
/* Rebuilds the conversations whose derived rows were lost with a table. */
void bxRolloutMend(BxStmts *p, BxErr *pErr);
/* flush.c */
void bxRolloutFlush(BxCall *p);
void bxRolloutShutdown(BxCall *p);
/* append.c */
void bxRolloutAppend(BxCall *p);
/* import.c */
void bxRolloutImport(BxCall *p);
/* read.c */
void bxRolloutHistory(BxCall *p);
void bxRolloutPage(BxCall *p);
void bxRolloutExport(BxCall *p);
sqlite3_stmt *bxRolloutList(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutRange(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutDropped(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxRolloutLines(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* context.c */
sqlite3_stmt *bxRolloutContext(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* search.c */
/* What rollout_search_install() makes, in the order in which it is dropped. */
#define BX_ROLLOUT_SEARCH                                                      \
  "rollout_fts_insert,rollout_fts_update,rollout_fts_delete,rollout_fts,"      \
  "rollout_spoken"
void bxRolloutSearchInstall(BxCall *p);
void bxRolloutSearchRemove(BxCall *p);
sqlite3_stmt *bxRolloutSearch(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
