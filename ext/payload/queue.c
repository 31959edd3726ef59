/*
** queue.c: exchanges that wait in memory and are written together.
**
** payload_queue(event_id, agent_id, request, response[, timestamp]) and
** INSERT INTO payload_queue(...) put a row at the end. All that waits is
** written at once, whole and in order, or not at all:
**   - when payload.flush_batch_size rows wait, or the oldest has waited longer
**     than payload.flush_interval_ms, at the next call;
**   - on payload_flush();
**   - when the connection closes, on a connection of its own, as the closing
**     one can no longer write. A database without a file has nowhere to go.
** Rows leave the queue when the batch is committed. Inside a transaction, or
** a statement that writes, nothing is flushed: its ROLLBACK would take rows
** that were already accepted. A flush that fails keeps every row; the call
** that happened to start it still succeeds, payload_waiting tells the error,
** and the next attempt waits for flush_interval_ms. payload_flush() fails.
**
** Limits: payload.queue_max_bytes; at it a row is refused with QueueFullError.
** What waits is lost when the process is killed.
*/
#include "queue.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The settings that a call needs. */
typedef struct Limits {
  i64 bEnabled, nBatch, nInterval, nMaxByte;
  i64 iRead;            /* when they were read, 0 for never */
  const BxStmts *pHome; /* from which schema */
  int nChanges;         /* sqlite3_total_changes() then */
} Limits;

#define LIMITS_MS 500 /* a change made on another connection is seen then */

struct Queue {
  Bx *bx;
  Waiting *pFirst, **ppLast;
  i64 nRow, nByte;
  Limits limits;
  i64 iRetry;    /* no automatic flush before this time */
  char *zFailed; /* message of the last flush, if it failed */
  char *zHome;   /* the schema that rows wait for */
  char *zFile;   /* where the archive lies, for the flush at close */
  char *zVfs;
  Waiting **ppMark; /* end of the queue when the statement began */
  i64 nMarkRow, nMarkByte;
  int bAlone;   /* the statement that puts rows is its own transaction */
  int bWritten; /* and it has written all that waits */
};

/*-------------------------------------------------------------- memory ----*/

static void freeWaiting(Waiting *p) {
  if (p == 0) return;
  sqlite3_value_free(p->pEvent);
  sqlite3_value_free(p->pAgent);
  sqlite3_value_free(p->pRequest);
  sqlite3_value_free(p->pResponse);
  sqlite3_free(p);
}

static void freeList(Waiting *p) {
  while (p != 0) {
    Waiting *pNext = p->pNext;
    freeWaiting(p);
    p = pNext;
  }
}

static void emptyQueue(Queue *p) {
  freeList(p->pFirst);
  p->pFirst = 0;
  p->ppLast = &p->pFirst;
  p->nRow = p->nByte = 0;
  p->ppMark = 0;
}

/* Takes off the rows behind an end that the queue had before. */
static void cutBack(Queue *p, Waiting **ppEnd, i64 nRow, i64 nByte) {
  freeList(*ppEnd);
  *ppEnd = 0;
  p->ppLast = ppEnd;
  p->nRow = nRow;
  p->nByte = nByte;
}

static sqlite3_value *copyValue(sqlite3_value *pVal, BxErr *pErr) {
  sqlite3_value *pCopy = pVal ? sqlite3_value_dup(pVal) : 0;
  if (pVal != 0 && pCopy == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return pCopy;
}

/* A checked copy of a row. aVal: event, agent, request, response, time. */
static Waiting *newWaiting(sqlite3_value **aVal, int nVal, BxErr *pErr) {
  Waiting *p;
  i64 iTime;
  bxText(aVal[0], "event_id", 1024, 0, pErr);
  bxText(aVal[1], "agent_id", 1024, 0, pErr);
  iTime = bxTime(nVal > 4 ? aVal[4] : 0, "timestamp", pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return 0;
  }
  memset(p, 0, sizeof(*p));
  p->pEvent = copyValue(aVal[0], pErr);
  p->pAgent = copyValue(aVal[1], pErr);
  p->pRequest = copyValue(aVal[2], pErr);
  p->pResponse = copyValue(aVal[3], pErr);
  p->iTime = iTime;
  p->iStaged = bxNow();
  p->nByte = bxBytes(p->pRequest) + bxBytes(p->pResponse);
  if (pErr->rc == SQLITE_OK) return p;
  freeWaiting(p);
  return 0;
}

/*--------------------------------------------------------------- flush ----*/

static const char zFlush[] =
    "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
    "  response_body, size_bytes, purpose, created_at) "
    "SELECT id, event_id, agent_id, request_body,"
    "  response_body, size_bytes, 'archive',"
    "  strftime('%Y-%m-%dT%H:%M:%fZ', timestamp / 1000.0, 'unixepoch') "
    "FROM payload_queue";

/* The schema that rows are queued for: that of those that wait, else the home
** of the domain. A file that is no longer attached under its name is an error.
*/
static BxStmts *target(Queue *p, BxErr *pErr) {
  const char *zFile;
  if (p->nRow == 0) return bxHome(p->bx, "payload", pErr);
  zFile = sqlite3_db_filename(p->bx->db, p->zHome);
  if (zFile == 0 || strcmp(zFile, p->zFile ? p->zFile : "") != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: %lld rows wait for %s, which is not attached as %s any "
        "more; ATTACH it again",
        p->nRow, p->zFile ? p->zFile : "a database in memory", p->zHome);
  }
  return bxSchema(p->bx, p->zHome, pErr);
}

/* Remembers where the archive lies while the connection can still tell. */
static void rememberFile(Queue *p, const char *zDb, BxErr *pErr) {
  const char *zFile = sqlite3_db_filename(p->bx->db, zDb);
  sqlite3_vfs *pVfs = 0;
  if (p->zHome == 0 || strcmp(p->zHome, zDb) != 0) {
    sqlite3_free(p->zHome);
    p->zHome = sqlite3_mprintf("%s", zDb);
    if (p->zHome == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  if (p->zFile != 0 && zFile != 0 && strcmp(p->zFile, zFile) == 0) return;
  sqlite3_free(p->zFile);
  sqlite3_free(p->zVfs);
  p->zFile = p->zVfs = 0;
  if (zFile == 0 || *zFile == 0) return;
  p->zFile = sqlite3_mprintf("%s", zFile);
  sqlite3_file_control(p->bx->db, zDb, SQLITE_FCNTL_VFS_POINTER, &pVfs);
  if (pVfs != 0) p->zVfs = sqlite3_mprintf("%s", pVfs->zName);
}

/* Rows that the clean-up carried by a flush removes at most. */
#define CARRIED_ROWS 40

/* Expiry work that a flush carries; its failure is nobody's error. Rows older
** than the limit in the batch itself (iOldest) are history being loaded: what
** was just asked for is not removed in the same breath. */
static void carryCleanup(BxStmts *pHome, i64 iOldest) {
  static const char zDue[] =
      "SELECT ?1 - 86400000 * (SELECT value FROM main.blackbox_limits"
      "  WHERE name = 'payload.retention_days') AS before"
      "  WHERE before <= ?2 AND EXISTS ("
      "    SELECT 1 FROM main.payload_archive WHERE at < before)";
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = bxStmt(pHome, zDue, &err);
  i64 iBefore = 0;
  bxBind(pStmt, &err, "ii", bxNow(), iOldest);
  if (bxRow(pStmt, &err)) iBefore = sqlite3_column_int64(pStmt, 0);
  bxDone(pStmt, &err);
  if (err.rc == SQLITE_OK && iBefore != 0) {
    bxPayloadSweep(pHome, iBefore, CARRIED_ROWS, "payload_queue", &err);
  }
  bxClear(&err);
}

static i64 oldestTime(const Queue *p) {
  const Waiting *pRow;
  i64 iOldest = BX_MAX_TIME;
  for (pRow = p->pFirst; pRow != 0; pRow = pRow->pNext) {
    if (pRow->iTime < iOldest) iOldest = pRow->iTime;
  }
  return iOldest;
}

static void noteFailure(Queue *p, const BxErr *pErr) {
  sqlite3_free(p->zFailed);
  p->zFailed = pErr->zMsg ? sqlite3_mprintf("%s", pErr->zMsg) : 0;
}

/* Writes all that waits, row by row: quicker than zFlush, but in need of a
** savepoint around it. */
static void writeRows(Queue *p, BxStmts *pHome, BxErr *pErr) {
  static const char zRow[] =
      "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
      "  response_body, size_bytes, purpose, created_at) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, 'archive',"
      "  strftime('%Y-%m-%dT%H:%M:%fZ', ?7 / 1000.0, 'unixepoch'))";
  sqlite3_stmt *pStmt = bxStmt(pHome, zRow, pErr);
  const Waiting *pRow;
  char zId[37];
  for (pRow = p->pFirst; pRow != 0 && pErr->rc == SQLITE_OK;
       pRow = pRow->pNext) {
    bxUuid(zId);
    bxBind(pStmt, pErr, "tssssii", zId, pRow->pEvent, pRow->pAgent,
        pRow->pRequest, pRow->pResponse, pRow->nByte, pRow->iTime);
    bxRun(pStmt, pErr);
    if (pErr->rc == SQLITE_OK && sqlite3_changes(p->bx->db) == 0) {
      bxFail(pErr, SQLITE_ERROR,
          "MisuseError: a trigger on event_payloads keeps a queued row out of "
          "the archive; nothing was written: drop it");
    }
  }
}

/* Writes all that waits, in one transaction. Returns the rows written. */
static i64 flush(Queue *p, BxErr *pErr) {
  BxStmts *pHome = target(p, pErr);
  i64 nRow = p->nRow, iOldest = oldestTime(p);
  if (pHome == 0 || nRow == 0) return 0;
  bxSavepoint(p->bx, "payload_flush", pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  writeRows(p, pHome, pErr);
  bxRelease(p->bx, pErr);
  noteFailure(p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  emptyQueue(p);
  p->iRetry = 0;
  carryCleanup(pHome, iOldest);
  return nRow;
}

/* Keeps an error from the caller, except where SQLite will fail the statement
** around us in any case. */
static void handOver(BxErr *pFrom, BxErr *pErr) {
  int rc = pFrom->rc & 0xff;
  if (rc == SQLITE_NOMEM || rc == SQLITE_INTERRUPT) {
    *pErr = *pFrom;
  } else {
    bxClear(pFrom);
  }
}

/* Whether a flush now would be a transaction of its own. */
static int standsAlone(Bx *bx, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bAlone;
  if (!sqlite3_get_autocommit(bx->db)) return 0;
  bxSavepoint(bx, "payload_flush", &err);
  bAlone = err.rc == SQLITE_OK;
  if (bAlone) bxRelease(bx, &err);
  handOver(&err, pErr);
  return bAlone && pErr->rc == SQLITE_OK;
}

/* A flush that nobody asked for: its error is kept, not returned. */
static void flushQuietly(Queue *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (!standsAlone(p->bx, pErr)) return;
  flush(p, &err);
  if (err.rc != SQLITE_OK) p->iRetry = bxNow() + p->limits.nInterval;
  handOver(&err, pErr);
}

static int isDue(const Queue *p) {
  i64 iNow = bxNow();
  if (p->nRow == 0 || iNow < p->iRetry) return 0;
  return p->nRow >= p->limits.nBatch ||
         iNow - p->pFirst->iStaged > p->limits.nInterval ||
         iNow < p->pFirst->iStaged; /* the clock was put back */
}

/* At the end: what waits goes to the file through a connection of its own. */
static void flushAtClose(Queue *p) {
  sqlite3 *db = 0;
  BxErr err = {SQLITE_OK, 0};
  int rc;
  if (p->nRow == 0) return;
  if (p->zFile == 0) {
    sqlite3_log(SQLITE_WARNING,
        "blackbox: %lld queued rows lost: their database has no file", p->nRow);
    return;
  }
  rc = sqlite3_open_v2(p->zFile, &db, SQLITE_OPEN_READWRITE, p->zVfs);
  if (rc == SQLITE_OK) {
    sqlite3_busy_timeout(db, 5000);
    rc = bxQueueModuleOn(db, p, 0);
  }
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, zFlush, 0, 0, 0);
  if (rc != SQLITE_OK) {
    if (db != 0) bxFailDb(&err, db, rc);
    sqlite3_log(rc, "blackbox: %lld queued rows lost at close: %s", p->nRow,
        err.zMsg ? err.zMsg : sqlite3_errstr(rc));
    bxClear(&err);
  }
  sqlite3_close(db);
}

static void queueFree(void *pArg) {
  Queue *p = (Queue *)pArg;
  flushAtClose(p);
  emptyQueue(p);
  sqlite3_free(p->zFailed);
  sqlite3_free(p->zHome);
  sqlite3_free(p->zFile);
  sqlite3_free(p->zVfs);
  sqlite3_free(p);
}

/*----------------------------------------------------------- functions ----*/

/* The settings, read again when this connection has changed anything since, or
** some time has passed: reading takes a lock on the file. */
static const Limits *limitsNow(
    Queue *p, BxStmts *pHome, i64 iNow, BxErr *pErr) {
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_limits WHERE name = 'payload." name "')"
  /* clang-format off */
  static const char zSql[] =
      "SELECT " SETTING("enabled") ", " SETTING("flush_batch_size") ", "
      SETTING("flush_interval_ms") ", " SETTING("queue_max_bytes");
  /* clang-format on */
  Limits *pOut = &p->limits;
  int nChanges = sqlite3_total_changes(p->bx->db);
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  if (pOut->pHome != pHome) pOut->iRead = 0;
  if (pOut->iRead != 0 && pOut->nChanges == nChanges && iNow >= pOut->iRead &&
      iNow - pOut->iRead < LIMITS_MS) {
    return pOut;
  }
  pStmt = bxStmt(pHome, zSql, &err);
  if (bxRow(pStmt, &err)) {
    pOut->bEnabled = sqlite3_column_int64(pStmt, 0);
    pOut->nBatch = sqlite3_column_int64(pStmt, 1);
    pOut->nInterval = sqlite3_column_int64(pStmt, 2);
    pOut->nMaxByte = sqlite3_column_int64(pStmt, 3);
    pOut->nChanges = nChanges;
  }
  bxDone(pStmt, &err);
  if (err.rc != SQLITE_OK &&
      ((err.rc & 0xff) != SQLITE_BUSY || pOut->iRead == 0)) {
    *pErr = err;
    return pOut;
  }
  pOut->iRead = iNow; /* of a locked file, those known still hold */
  pOut->pHome = pHome;
  bxClear(&err);
  return pOut;
}

/* Puts a row at the end, if there is room. Takes pRow over. */
static void append(Queue *p, Waiting *pRow, BxErr *pErr) {
  if (pErr->rc == SQLITE_OK && p->nByte + pRow->nByte > p->limits.nMaxByte) {
    bxFail(pErr, SQLITE_FULL,
        "QueueFullError: %lld bytes wait, %lld more would pass the limit of "
        "%lld (payload.queue_max_bytes); COMMIT, or see payload_waiting for "
        "why nothing is written%s%s",
        p->nByte, pRow->nByte, p->limits.nMaxByte, p->zFailed ? ": " : "",
        p->zFailed ? p->zFailed : "");
  }
  if (pErr->rc != SQLITE_OK) {
    freeWaiting(pRow);
    return;
  }
  *p->ppLast = pRow;
  p->ppLast = &pRow->pNext;
  p->nRow++;
  p->nByte += pRow->nByte;
}

/* Rows wait for one schema at a time: those for another are written first. */
static void changeTarget(
    Queue *p, const BxStmts *pHome, int bFlush, BxErr *pErr) {
  if (p->nRow == 0 || sqlite3_stricmp(p->zHome, pHome->zDb) == 0) return;
  if (bFlush) flushQuietly(p, pErr);
  if (p->nRow > 0) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: %lld rows wait for schema %s; COMMIT, and SELECT "
        "payload_flush(), before rows are queued for %s",
        p->nRow, p->zHome, pHome->zDb);
  }
}

i64 bxQueuePut(
    Queue *p, sqlite3_value **aVal, int nVal, int bFlush, BxErr *pErr) {
  BxStmts *pHome = bxHome(p->bx, "payload", pErr);
  const Limits *pLimits;
  Waiting *pRow, **ppEnd;
  i64 nByte;
  if (pHome == 0) return 0;
  pLimits = limitsNow(p, pHome, bxNow(), pErr);
  pRow = newWaiting(aVal, nVal, pErr);
  if (pErr->rc != SQLITE_OK || !pLimits->bEnabled) {
    freeWaiting(pRow);
    return 0;
  }
  changeTarget(p, pHome, bFlush, pErr);
  nByte = pRow->nByte;
  if (p->nRow == 0) rememberFile(p, pHome->zDb, pErr);
  if (p->nByte + pRow->nByte > pLimits->nMaxByte && bFlush) {
    flushQuietly(p, pErr);
  }
  ppEnd = p->ppLast;
  append(p, pRow, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (bFlush && isDue(p)) flushQuietly(p, pErr);
  if (pErr->rc != SQLITE_OK) cutBack(p, ppEnd, p->nRow - 1, p->nByte - nByte);
  return pErr->rc == SQLITE_OK;
}

static Queue *queueOf(Bx *bx) {
  return (Queue *)bxSlot(bx, "payload")->p;
}

void bxPayloadQueue(BxCall *p) {
  bxReturnInt(
      p, bxQueuePut(queueOf(p->bx), p->aArg, p->nArg, p->pCtx != 0, &p->err));
}

void bxPayloadFlush(BxCall *p) {
  if (!sqlite3_get_autocommit(p->bx->db) || p->pCtx == 0) {
    bxFail(&p->err, SQLITE_ERROR,
        "MisuseError: payload_flush() inside a transaction would be undone by "
        "its ROLLBACK, and the rows lost; COMMIT first, then SELECT "
        "payload_flush()");
    return;
  }
  bxReturnInt(p, flush(queueOf(p->bx), &p->err));
  bxPrefix(&p->err, "Flush failed: ");
}

sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  Queue *p = queueOf(bx);
  sqlite3_stmt *pStmt = 0;
  (void)apArg;
  bxFailDb(pErr, bx->db,
      sqlite3_prepare_v2(bx->db, "SELECT ?1, ?2, ?3, ?4", -1, &pStmt, 0));
  if (pErr->rc != SQLITE_OK) return 0;
  bxBind(pStmt, pErr, "iin", p->nRow, p->nByte);
  if (p->pFirst != 0) sqlite3_bind_int64(pStmt, 3, p->pFirst->iStaged);
  sqlite3_bind_text(pStmt, 4, p->zFailed, -1, SQLITE_TRANSIENT);
  return pStmt;
}

void bxPayloadLeave(BxStmts *p, BxErr *pErr) {
  const Queue *pQueue = queueOf(p->bx);
  if (pQueue->nRow == 0 || sqlite3_stricmp(pQueue->zHome, p->zDb) != 0) return;
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: %lld rows wait in payload_queue for schema %s; COMMIT, and "
      "SELECT payload_flush(), before the archive is removed",
      pQueue->nRow, p->zDb);
}

void bxQueueSize(Bx *bx, i64 *pnRow, i64 *pnByte) {
  *pnRow = queueOf(bx)->nRow;
  *pnByte = queueOf(bx)->nByte;
}

/*------------------------------------------------- the table's row path ----*/

void bxQueueBegin(Queue *p) {
  p->bAlone = sqlite3_get_autocommit(p->bx->db);
  p->bWritten = 0;
  p->ppMark = p->ppLast;
  p->nMarkRow = p->nRow;
  p->nMarkByte = p->nByte;
}

/* Before the commit of a statement that put rows and is a transaction of its
** own: writes the batch with it, if one is due. */
void bxQueueSync(Queue *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome;
  int rc;
  if (!p->bAlone || !isDue(p)) return;
  pHome = target(p, &err);
  if (pHome != 0) {
    bxRun(bxStmt(pHome, zFlush, &err), &err);
    p->bWritten = err.rc == SQLITE_OK;
    noteFailure(p, &err);
    if (err.rc != SQLITE_OK) p->iRetry = bxNow() + p->limits.nInterval;
  }
  rc = err.rc & 0xff;
  if (rc == SQLITE_IOERR || rc == SQLITE_NOMEM || rc == SQLITE_CORRUPT) {
    *pErr = err; /* SQLite may have rolled the statement back as well */
  } else {
    bxClear(&err);
  }
}

void bxQueueCommit(Queue *p) {
  if (p->bWritten) emptyQueue(p);
  p->bWritten = 0;
  p->ppMark = 0;
}

/* A statement of its own failed: its rows go. What a rolled-back transaction
** put stays: the exchanges took place. */
void bxQueueRollback(Queue *p) {
  if (p->bAlone && p->ppMark != 0) {
    cutBack(p, p->ppMark, p->nMarkRow, p->nMarkByte);
  }
  p->bWritten = 0;
  p->ppMark = 0;
}

const Waiting *bxQueueFirst(Queue *p) {
  return p->pFirst;
}

static void moduleFree(void *p) {
  bxUnref(((Queue *)p)->bx);
}

int bxQueueRegister(Bx *bx) {
  BxSlot *pSlot = bxSlot(bx, "payload");
  Queue *p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  p->bx = bx;
  p->ppLast = &p->pFirst;
  pSlot->p = p;
  pSlot->xFree = queueFree;
  bxRef(bx);
  return bxQueueModuleOn(bx->db, p, moduleFree);
}
