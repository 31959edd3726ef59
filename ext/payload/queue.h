/*
** queue.h: between queue.c, which keeps the rows that wait, and
** queue_vtab.c, which shows them as the table payload_queue.
*/
#ifndef BX_QUEUE_H
#define BX_QUEUE_H

#include "payload.h"

/* A row that waits. */
typedef struct Waiting {
  sqlite3_value *pEvent, *pAgent;
  sqlite3_value *pRequest, *pResponse; /* NULL pointers for NULL */
  i64 iTime;                           /* of the exchange */
  i64 iStaged;                         /* when it was put here */
  i64 nByte;                           /* of both bodies */
  struct Waiting *pNext;
} Waiting;

/* queue.c */
const Waiting *bxQueueFirst(Queue *p);
/*
** Puts a row at the end. aVal: event_id, agent_id, request, response and, with
** nVal 5, the timestamp. With bFlush, writes a batch that is due. Returns 1, or
** 0 when payload.enabled is 0 or on error.
*/
i64 bxQueuePut(
    Queue *p, sqlite3_value **aVal, int nVal, int bFlush, BxErr *pErr);
/* The transaction methods of the table. */
void bxQueueBegin(Queue *p);
void bxQueueSync(Queue *p, BxErr *pErr);
void bxQueueCommit(Queue *p);
void bxQueueRollback(Queue *p);

/* queue_vtab.c: registers the table on a connection. xFree may be NULL. */
int bxQueueModuleOn(sqlite3 *db, Queue *p, void (*xFree)(void *));

#endif
