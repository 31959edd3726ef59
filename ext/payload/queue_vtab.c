/*
** queue_vtab.c: the table payload_queue, which needs no CREATE.
**
** Columns: event_id, agent_id, request_body, response_body, timestamp
** (milliseconds since 1970 UTC), size_bytes. Hidden columns, for the row that is
** written: id, which is a new UUID whenever it is read (it begins with the time,
** so that rows which are written together, and later leave together, are near
** each other in the index of the ids), and created_at, the timestamp as text.
** INSERT archives an exchange, or appends it to the queue of this connection.
** SELECT shows the waiting rows, oldest first. DELETE removes them.
*/
#include "queue.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The columns. The first ones are those of Given. */
enum { QUEUED_TIME = GIVEN_COUNT, QUEUED_SIZE, QUEUED_ID, QUEUED_CREATED };

typedef struct QueueVtab {
  sqlite3_vtab base;
  Queue *pQueue;
} QueueVtab;

typedef struct QueueCursor {
  sqlite3_vtab_cursor base;
  const Waiting *pRow;
  i64 iLast; /* rows that are queued later are not shown */
} QueueCursor;

static Queue *queueOfTable(const sqlite3_vtab *pVtab) {
  return ((const QueueVtab *)pVtab)->pQueue;
}

static int queueConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  int rc = bxTableNew(db,
      "CREATE TABLE x(event_id TEXT, agent_id TEXT, request_body, "
      "response_body, timestamp INTEGER, size_bytes INTEGER, id HIDDEN, "
      "created_at HIDDEN)",
      sizeof(QueueVtab), ppVtab);
  (void)argc, (void)argv, (void)pzErr;
  if (rc != SQLITE_OK) return rc;
  sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1); /* OR IGNORE */
  sqlite3_vtab_config(
      db, SQLITE_VTAB_DIRECTONLY); /* whose trigger would it be? */
  ((QueueVtab *)*ppVtab)->pQueue = (Queue *)pAux;
  return SQLITE_OK;
}

static int queueBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  (void)pVtab;
  pInfo->estimatedRows = 20;
  pInfo->estimatedCost = 20.0;
  return SQLITE_OK;
}

static int queueOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  int rc = bxCursorNew(sizeof(QueueCursor), ppCursor);
  if (rc == SQLITE_OK) bxQueueOpen(queueOfTable(pVtab));
  return rc;
}

static int queueClose(sqlite3_vtab_cursor *pCursor) {
  bxQueueClose(queueOfTable(pCursor->pVtab));
  return bxCursorFree(pCursor);
}

static int queueFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  QueueCursor *p = (QueueCursor *)pCursor;
  (void)idxNum, (void)idxStr, (void)argc, (void)argv;
  p->pRow = bxQueueFirst(queueOfTable(pCursor->pVtab));
  p->iLast = bxQueueLast(queueOfTable(pCursor->pVtab));
  return SQLITE_OK;
}

static int queueNext(sqlite3_vtab_cursor *pCursor) {
  QueueCursor *p = (QueueCursor *)pCursor;
  assert(p->pRow != 0);
  p->pRow = bxQueueNext(p->pRow);
  return SQLITE_OK;
}

static int queueEof(sqlite3_vtab_cursor *pCursor) {
  const QueueCursor *p = (const QueueCursor *)pCursor;
  return p->pRow == 0 || p->pRow->iSerial > p->iLast;
}

/* The texts of a row stay until no cursor is open. So the flush, which ends before
** that, takes them without a copy. Other statements may keep a value for longer
** than the cursor that it came from. */
static void resultGiven(
    const Queue *p, sqlite3_context *pCtx, const Given *pGiven) {
  if (pGiven->z == 0) {
    sqlite3_result_value(pCtx, pGiven->pVal);
  } else {
    sqlite3_result_text(pCtx, pGiven->z, pGiven->n,
        bxQueueFlushes(p) ? SQLITE_STATIC : SQLITE_TRANSIENT);
  }
}

static int queueColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  const Waiting *pRow = ((QueueCursor *)pCursor)->pRow;
  char z[37];
  if (i == QUEUED_ID) {
    bxTimeUuid(pRow->iTime, z);
    sqlite3_result_text(pCtx, z, 36, SQLITE_TRANSIENT);
  } else if (i == QUEUED_CREATED) {
    bxIso(pRow->iTime, z);
    sqlite3_result_text(pCtx, z, 24, SQLITE_TRANSIENT);
  } else if (i == QUEUED_TIME) {
    sqlite3_result_int64(pCtx, pRow->iTime);
  } else if (i == QUEUED_SIZE) {
    sqlite3_result_int64(pCtx, pRow->nByte);
  } else if (i < GIVEN_COUNT) {
    resultGiven(queueOfTable(pCursor->pVtab), pCtx, &pRow->aGiven[i]);
  }
  return SQLITE_OK;
}

static int queueRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  assert(((QueueCursor *)pCursor)->pRow != 0);
  *piRowid = ((QueueCursor *)pCursor)->pRow->iSerial;
  return SQLITE_OK;
}

static int queueUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
    sqlite3_int64 *piRowid) {
  Queue *p = queueOfTable(pVtab);
  BxErr err = {SQLITE_OK, 0};
  BxWrite write;
  bxWriteBegin(&write, bxQueueBx(p));
  if (argc == 1) {
    bxQueueDrop(p, sqlite3_value_int64(argv[0]), &err);
  } else if (sqlite3_value_type(argv[0]) != SQLITE_NULL) {
    bxFail(&err, SQLITE_READONLY,
        "ReadOnlyError: a queued row cannot be changed; DELETE it, and INSERT "
        "it again");
  } else if (sqlite3_value_type(argv[2 + QUEUED_SIZE]) != SQLITE_NULL ||
             sqlite3_value_type(argv[2 + QUEUED_ID]) != SQLITE_NULL ||
             sqlite3_value_type(argv[2 + QUEUED_CREATED]) != SQLITE_NULL) {
    bxFail(&err, SQLITE_CONSTRAINT,
        "ValidationError: size_bytes, id and created_at are computed by the "
        "queue; omit them");
  } else {
    bxQueuePut(p, argv + 2, 5, 0, &err);
    *piRowid = 0;
  }
  return bxWriteEnd(&write, &err, pVtab);
}

static int queueBegin(sqlite3_vtab *pVtab) {
  bxQueueBegin(queueOfTable(pVtab));
  return SQLITE_OK;
}

static int queueSync(sqlite3_vtab *pVtab) {
  BxErr err = {SQLITE_OK, 0};
  bxQueueSync(queueOfTable(pVtab), &err);
  return bxReportVtab(&err, pVtab);
}

static int queueCommit(sqlite3_vtab *pVtab) {
  bxQueueCommit(queueOfTable(pVtab));
  return SQLITE_OK;
}

static int queueRollback(sqlite3_vtab *pVtab) {
  bxQueueRollback(queueOfTable(pVtab));
  return SQLITE_OK;
}

static int queueSavepoint(sqlite3_vtab *pVtab, int iSavepoint) {
  bxQueueSavepoint(queueOfTable(pVtab), iSavepoint);
  return SQLITE_OK;
}

static int queueRelease(sqlite3_vtab *pVtab, int iSavepoint) {
  bxQueueRelease(queueOfTable(pVtab), iSavepoint);
  return SQLITE_OK;
}

static int queueRollbackTo(sqlite3_vtab *pVtab, int iSavepoint) {
  bxQueueRollbackTo(queueOfTable(pVtab), iSavepoint);
  return SQLITE_OK;
}

static const sqlite3_module queueModule = {
    .iVersion = 2, /* 2 has savepoints */
    .xConnect = queueConnect,
    .xBestIndex = queueBestIndex,
    .xDisconnect = bxTableFree,
    .xDestroy = bxTableFree,
    .xOpen = queueOpen,
    .xClose = queueClose,
    .xFilter = queueFilter,
    .xNext = queueNext,
    .xEof = queueEof,
    .xColumn = queueColumn,
    .xRowid = queueRowid,
    .xUpdate = queueUpdate,
    .xBegin = queueBegin,
    .xSync = queueSync,
    .xCommit = queueCommit,
    .xRollback = queueRollback,
    .xSavepoint = queueSavepoint,
    .xRelease = queueRelease,
    .xRollbackTo = queueRollbackTo,
};

int bxQueueModuleOn(sqlite3 *db, Queue *p, void (*xFree)(void *)) {
  return sqlite3_create_module_v2(db, "payload_queue", &queueModule, p, xFree);
}
