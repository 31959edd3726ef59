/*
** queue.h: between queue.c, which keeps the rows that wait, and
** queue_vtab.c, which shows them as the table payload_queue.
*/
#ifndef BX_QUEUE_H
#define BX_QUEUE_H

#include "payload.h"

/* A row that waits. */
typedef struct Waiting {
  i64 iSerial; /* its number on this connection, from 1 */
  sqlite3_value *pEvent, *pAgent;
  sqlite3_value *pRequest, *pResponse; /* NULL pointers for NULL */
  i64 iTime;                           /* of the exchange */
  i64 iStaged;                         /* when it was put here */
  i64 nByte;                           /* of both bodies */
  int nDropped; /* 0, or how deep in savepoints it was deleted, from 1 */
  struct Waiting *pNext;
  struct Waiting *pGone; /* next of those that a reader may still look at */
} Waiting;

/* queue.c */
/* For a reader: the first row that waits, and the one behind. What is taken
** off the queue between opening and closing stays in memory. */
void bxQueueOpen(Queue *p);
void bxQueueClose(Queue *p);
const Waiting *bxQueueFirst(Queue *p);
const Waiting *bxQueueNext(const Waiting *pRow);
/* The highest number of a row so far. */
i64 bxQueueLast(Queue *p);
/*
** Puts a row into the archive, or, in mode memory, at the end of the queue.
** aVal: event_id, agent_id, request, response and, with nVal 5, the timestamp.
** bCall: from a function, which may write a batch that is due. Returns 1, or
** 0 when the archive is off and that is to be ignored, or on error.
*/
i64 bxQueuePut(
    Queue *p, sqlite3_value **aVal, int nVal, int bCall, BxErr *pErr);
/* Deletes a row that waits, with a receipt. */
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
