/*
** queue.h: the interface between queue.c, which keeps the waiting rows, and
** queue_vtab.c, which shows them as the table payload_queue.
*/
#ifndef BX_QUEUE_H
#define BX_QUEUE_H

#include "payload.h"

/* A value: a text in place, or any other value. */
typedef struct Given {
  const char *z; /* NULL if it is no text */
  int n;
  sqlite3_value *pVal; /* if it is no text */
} Given;

enum { GIVEN_EVENT, GIVEN_AGENT, GIVEN_REQUEST, GIVEN_RESPONSE, GIVEN_COUNT };

/* A waiting row. Its texts are behind it, in the same allocation. */
typedef struct Waiting {
  i64 iSerial; /* its number on this connection, from 1 */
  Given aGiven[GIVEN_COUNT];
  i64 iTime;    /* of the exchange */
  i64 iStaged;  /* when it was queued */
  i64 nByte;    /* of both bodies */
  int nDropped; /* 0, or the savepoint depth at which it was deleted, from 1 */
  struct Waiting *pNext;
  struct Waiting *pGone; /* next of the rows that a reader may still read */
} Waiting;

/* queue_row.c */
/* The values of a row: event, agent, request, response. They stay the caller's. */
void bxQueueGiven(sqlite3_value **aVal, Given *aOut, BxErr *pErr);
/* Binds them to ?2 to ?5, without a copy of texts and blobs. */
void bxQueueBind(sqlite3_stmt *pStmt, const Given *aGiven, BxErr *pErr);
/* A row with copies of the values. NULL on error. */
Waiting *bxQueueRowNew(sqlite3_value **aVal, i64 iTime, BxErr *pErr);
void bxQueueRowFree(Waiting *p);

/* queue_limits.c */
/* The settings that a call needs. */
typedef struct Limits {
  i64 bEnabled, bIgnore, bMemory;
  i64 nRetain; /* retention period in milliseconds */
  i64 nBatch, nInterval, nMaxByte;
  i64 nArchive;         /* payload.max_bytes, 0 for no limit */
  i64 bPack;            /* payload.pack */
  i64 iRead;            /* time when they were read, 0 for never */
  const BxStmts *pHome; /* the schema that they were read from */
  uint64_t uFile;       /* the hash of the name of its file */
  int nChanges;         /* sqlite3_total_changes() at that time */
} Limits;
/* Reads the settings of the schema, unless they are known. Returns p. */
const Limits *bxLimitsNow(Limits *p, BxStmts *pHome, i64 iNow, BxErr *pErr);
/* What was written until now has changed none of them, as the queue wrote it.
** nOwn: changes of the calling statement, which SQLite counts when it ends. */
void bxLimitsKept(Limits *p, const Bx *bx, int nOwn);
/* That statement was undone: they are read again. */
void bxLimitsDoubt(Limits *p);

/* queue.c */
/* For a reader: the first waiting row, and the row after a row. Rows that leave
** the queue between opening and closing stay in memory. */
void bxQueueOpen(Queue *p);
void bxQueueClose(Queue *p);
const Waiting *bxQueueFirst(Queue *p);
const Waiting *bxQueueNext(const Waiting *pRow);
Bx *bxQueueBx(const Queue *p);
/* The highest row number so far. */
i64 bxQueueLast(Queue *p);
/* Whether a statement of the queue writes the waiting rows. */
int bxQueueFlushes(const Queue *p);
/*
** Writes a row to the archive or, in mode memory, appends it to the queue.
** aVal: event_id, agent_id, request, response and, with nVal 5, the timestamp.
** bCall: called from a function, which may write a batch that is due. Returns
** 1. Returns 0 on error, or if the archive is disabled and that is to be
** ignored.
*/
i64 bxQueuePut(
    Queue *p, sqlite3_value **aVal, int nVal, int bCall, BxErr *pErr);
/* Deletes a waiting row, with a receipt. */
void bxQueueDrop(Queue *p, i64 iSerial, BxErr *pErr);
/* The transaction methods of the table. */
void bxQueueBegin(Queue *p);
void bxQueueSync(Queue *p, BxErr *pErr);
void bxQueueCommit(Queue *p);
void bxQueueRollback(Queue *p);
void bxQueueSavepoint(Queue *p, int iSavepoint);
void bxQueueRelease(Queue *p, int iSavepoint);
void bxQueueRollbackTo(Queue *p, int iSavepoint);

/* queue_vtab.c: registers the table on a connection. xFree may be NULL. */
int bxQueueModuleOn(sqlite3 *db, Queue *p, void (*xFree)(void *));

#endif
