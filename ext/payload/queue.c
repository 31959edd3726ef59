/*
** queue.c: exchanges on their way into the archive.
**
** payload_queue(event_id, agent_id, request, response[, timestamp]) and INSERT
** INTO payload_queue(...) take an exchange. What they do depends on
** payload.queue_mode:
**   durable  it is written at once, with one INSERT. When the call returns, it
**            is in the file; inside a transaction it is part of that.
**   memory   it waits in memory, at the end of the queue. All waiting rows are
**            written together and in order, or none of them:
**              - when payload.flush_batch_size rows wait, or the oldest has
**                waited longer than payload.flush_interval_ms, or the last was
**                queued longer ago than that, at the next call;
**              - on payload_flush();
**              - when the connection closes, with another connection, because
**                the closing one can no longer write. Without a file they are
**                lost.
** Rows leave the queue when the batch is committed. Inside a transaction, or in
** a statement that writes, nothing is flushed, because a ROLLBACK would remove
** rows that were already accepted. A flush that fails keeps every row. The call
** that caused the flush still succeeds, payload_waiting shows the error, and
** the next attempt is made after flush_interval_ms. payload_flush() itself
** fails.
**
** DELETE FROM payload_queue removes waiting rows, with a receipt in
** retention_log, when it is committed. Until then they are only marked.
**
** A row that is already older than payload.retention_days is history that is
** being loaded. It raises the setting payload.history_until. Inserts remove no
** rows up to that time (sql/payload_work.sql).
**
** Limits: payload.queue_max_bytes. A row that would exceed it is refused with
** QueueFullError. Waiting rows are lost when the process is killed.
*/
#include "queue.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* What is known of the schema of the archive, and when. */
typedef struct Shape {
  const BxStmts *pHome; /* NULL for nothing */
  uint64_t uFile;       /* its file */
  i64 iMain, iTemp;     /* the versions of it and of temp */
  int bOmits;           /* a flush of several rows at once could omit one */
} Shape;

struct Queue {
  Bx *bx;
  Waiting *pFirst, **ppLast;
  i64 nRow, nByte; /* of the rows that are not dropped */
  i64 iSerial;     /* of the last row */
  Limits limits;
  i64 iPut;      /* time of the last row */
  int bOverdue;  /* after a pause: write without delay */
  i64 iRetry;    /* no automatic flush before this time */
  char *zFailed; /* message of the last flush, if it failed */
  char *zHome;   /* the schema that rows wait for */
  char *zFile;   /* the file of the archive, for the flush at close */
  char *zVfs;
  Waiting **ppMark; /* end of the queue when the statement began */
  int bAlone;       /* the inserting statement is its own transaction */
  i64 iWritten;     /* and it has written the rows up to this number */
  int nSave;        /* savepoints that are open */
  int nReader;      /* cursors that are open */
  int bRead;        /* one was opened */
  int bFlushes;     /* the cursors are those of a flush */
  int bDropped;     /* a row was marked since marked rows were removed */
  Shape shape;
  Waiting *pGone; /* rows that they may still read */
};

/*-------------------------------------------------------------- memory ----*/

/* Frees a row that has left the queue, now or when no cursor can read it. */
static void letGo(Queue *p, Waiting *pRow) {
  if (p->nReader == 0) {
    bxQueueRowFree(pRow);
    return;
  }
  pRow->pGone = p->pGone;
  p->pGone = pRow;
}

static void letGoAll(Queue *p, Waiting *pRow) {
  while (pRow != 0) {
    Waiting *pNext = pRow->pNext;
    letGo(p, pRow);
    pRow = pNext;
  }
}

#ifndef NDEBUG
/* Whether the counters equal the rows. */
static int isCounted(const Queue *p) {
  const Waiting *pRow;
  Waiting *const *ppLast = &p->pFirst;
  i64 nRow = 0, nByte = 0;
  for (pRow = p->pFirst; pRow != 0; pRow = pRow->pNext) {
    ppLast = &pRow->pNext;
    nRow += !pRow->nDropped;
    nByte += pRow->nDropped ? 0 : pRow->nByte;
  }
  return ppLast == p->ppLast && nRow == p->nRow && nByte == p->nByte;
}
#endif

static void recount(Queue *p) {
  Waiting *pRow;
  p->ppLast = &p->pFirst;
  p->nRow = p->nByte = 0;
  for (pRow = p->pFirst; pRow != 0; pRow = pRow->pNext) {
    p->ppLast = &pRow->pNext;
    if (pRow->nDropped) continue;
    p->nRow++;
    p->nByte += pRow->nByte;
  }
}

/* Removes the rows up to a number. Later ones were queued meanwhile. */
static void emptyQueue(Queue *p, i64 iLast) {
  while (p->pFirst != 0 && p->pFirst->iSerial <= iLast) {
    Waiting *pRow = p->pFirst;
    p->pFirst = pRow->pNext;
    letGo(p, pRow);
  }
  p->ppMark = 0;
  p->bOverdue = 0;
  recount(p);
}

/* Removes the first n rows that are not dropped, with those between them. */
static void emptyFirst(Queue *p, i64 n) {
  const Waiting *pRow = p->pFirst;
  i64 iLast = 0;
  for (; pRow != 0 && n > 0; pRow = pRow->pNext) {
    iLast = pRow->iSerial;
    n -= !pRow->nDropped;
  }
  emptyQueue(p, iLast);
}

/* Removes the rows after a former end of the queue. */
static void cutBack(Queue *p, Waiting **ppEnd) {
  assert(ppEnd != 0);
  letGoAll(p, *ppEnd);
  *ppEnd = 0;
  recount(p);
}

/* Checks a row: event, agent, request, response, time. Returns its time. */
static i64 checkRow(sqlite3_value **aVal, int nVal, BxErr *pErr) {
  bxText(aVal[0], "event_id", 1024, 0, pErr);
  bxText(aVal[1], "agent_id", 1024, 0, pErr);
  return bxTime(nVal > 4 ? aVal[4] : 0, "timestamp", pErr);
}

/*--------------------------------------------------------------- flush ----*/

static const char zFlush[] =
    "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
    "  response_body, size_bytes, purpose, created_at) "
    "SELECT id, event_id, agent_id, request_body,"
    "  response_body, size_bytes, 'archive', created_at FROM payload_queue";
/* The same if some rows are history. */
static const char zFlushHistory[] =
    "INSERT INTO main.payload_history(id, event_id, agent_id, request_body,"
    "  response_body, created_at) "
    "SELECT id, event_id, agent_id, request_body, response_body, created_at "
    "FROM payload_queue";

/* The schema that rows are queued for: that of the waiting rows, otherwise the
** home of the domain. It is an error if its file is no longer attached under
** its name. */
static BxStmts *target(Queue *p, BxErr *pErr) {
  const char *zFile;
  if (p->pFirst == 0) return bxHome(p->bx, "payload", pErr);
  zFile = sqlite3_db_filename(p->bx->db, p->zHome);
  if (zFile == 0 || strcmp(zFile, p->zFile ? p->zFile : "") != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: %lld rows wait for %s, which is no longer attached as "
        "%s; ATTACH it again",
        p->nRow, p->zFile ? p->zFile : "a database in memory", p->zHome);
  }
  return bxSchema(p->bx, p->zHome, pErr);
}

/* Stores the file of the archive while the connection can still tell it. */
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

/* Whether a row is already older than the retention period. */
static int isHistory(const Queue *p, i64 iTime) {
  return iTime < bxNow() - p->limits.nRetain;
}

static const char *flushSql(const Queue *p) {
  const Waiting *pRow = p->pFirst;
  while (pRow != 0 && !isHistory(p, pRow->iTime)) pRow = pRow->pNext;
  return pRow == 0 ? zFlush : zFlushHistory;
}

static void noteFailure(Queue *p, const BxErr *pErr) {
  sqlite3_free(p->zFailed);
  p->zFailed = pErr->zMsg ? sqlite3_mprintf("%s", pErr->zMsg) : 0;
}

static void failKeptOut(BxErr *pErr) {
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: a trigger on event_payloads keeps a queued row out of "
      "the archive; nothing was written; drop the trigger");
}

/* Writes one row, whose bodies have nByte bytes. */
static void writeRow(Queue *p, BxStmts *pHome, const Given *aGiven, i64 nByte,
    i64 iTime, BxErr *pErr) {
  static const char zRow[] =
      "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
      "  response_body, created_at, size_bytes, purpose) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 'archive')";
  static const char zHistory[] =
      "INSERT INTO main.payload_history(id, event_id, agent_id, request_body,"
      "  response_body, created_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6)";
  int bHistory = isHistory(p, iTime);
  sqlite3_stmt *pStmt = bxStmt(pHome, bHistory ? zHistory : zRow, pErr);
  char zId[37], zTime[25];
  bxTimeUuid(iTime, zId);
  bxIso(iTime, zTime);
  bxBind(pStmt, pErr, "t----t", zId, zTime);
  bxQueueBind(pStmt, aGiven, pErr);
  if (!bHistory) bxBind(pStmt, pErr, "------i", nByte);
  bxRun(pStmt, pErr);
  bxWriteNote(p->bx, pErr);
  /* (An INSERT into a view does not count as a change.) */
  if (pErr->rc == SQLITE_OK && !bHistory && sqlite3_changes(p->bx->db) == 0) {
    failKeptOut(pErr);
  }
}

/* What was erased while the row waited does not come back with it, and must not
** keep the rows after it from being written. */
static void leaveOut(BxStmts *pHome, const Waiting *pRow, BxErr *pErr) {
  static const char zReceipt[] =
      "INSERT INTO main.blackbox__note(at, domain, rule, rows, bytes, oldest,"
      "  newest) VALUES(?1, 'payload', 'erased', 1, ?2, ?3, ?3)";
  bxClear(pErr);
  bxDo(pHome, zReceipt, pErr, "iii", bxNow(), pRow->nByte, pRow->iTime);
}

/* Writes the waiting rows one by one, in a savepoint. */
static void writeEach(Queue *p, BxStmts *pHome, i64 iLast, BxErr *pErr) {
  const Waiting *pRow;
  for (pRow = p->pFirst;
       pRow != 0 && pRow->iSerial <= iLast && pErr->rc == SQLITE_OK;
       pRow = pRow->pNext) {
    if (pRow->nDropped) continue;
    writeRow(p, pHome, pRow->aGiven, pRow->nByte, pRow->iTime, pErr);
    if (bxIs(pErr, "ErasedError")) leaveOut(pHome, pRow, pErr);
  }
}

/* Whether the table, or a trigger on it, could keep a row out without an error,
** which takes the word IGNORE, or could fail without taking back the rows before,
** which takes the word FAIL; or another table has the name payload_queue. It is
** asked again when the schema has changed. The settings must be known. */
static int mayOmit(Queue *p, BxStmts *pHome) {
  static const char zMain[] = "PRAGMA main.schema_version";
  static const char zTemp[] = "PRAGMA temp.schema_version";
  static const char zWords[] =
      "SELECT count(*) FROM (SELECT * FROM main.sqlite_schema "
      "UNION ALL SELECT * FROM temp.sqlite_schema) "
      "WHERE tbl_name = 'event_payloads' COLLATE NOCASE"
      "  AND name NOT IN ('payload_insert_replace', 'payload_made_replace',"
      "    'payload_update_replace', 'payload_made_update', "
      "'payload_delete_guard')"
      "  AND (instr(lower(sql), 'ignore') OR instr(lower(sql), 'fail'))";
  static const char zAny[] = "SELECT 1 FROM payload_queue LIMIT 1";
  BxErr err = {SQLITE_OK, 0};
  Shape now = {pHome, p->limits.uFile, 0, 0, 0};
  now.iMain = bxAsk(pHome, zMain, &err, "");
  now.iTemp = bxAsk(pHome, zTemp, &err, "");
  if (p->shape.pHome != pHome || p->shape.uFile != now.uFile ||
      p->shape.iMain != now.iMain || p->shape.iTemp != now.iTemp) {
    p->bRead = 0;
    bxAsk(pHome, zAny, &err, "");
    now.bOmits = bxAsk(pHome, zWords, &err, "") > 0 || !p->bRead;
    p->shape = now;
  }
  if (err.rc != SQLITE_OK) {
    p->shape.pHome = 0;
    p->shape.bOmits = 1;
  }
  bxClear(&err);
  return p->shape.bOmits;
}

/* Runs a statement that writes all waiting rows. A progress handler may stop it
** after its work is done. Then it has succeeded. Returns how many rows it has
** written: a RAISE(FAIL) in a trigger of the user leaves those before it. (An
** INSERT into a view counts none. If nothing at all was counted, the number is that
** of an earlier statement.) */
static i64 runFlush(Queue *p, BxStmts *pHome, const char *zSql, BxErr *pErr) {
  sqlite3 *db = p->bx->db;
  int nBefore = sqlite3_total_changes(db);
  i64 nRow = p->nRow, nWritten = 0;
  p->bFlushes = p->nReader == 0;
  bxRun(bxStmt(pHome, zSql, pErr), pErr);
  p->bFlushes = 0;
  if (sqlite3_total_changes(db) != nBefore) nWritten = sqlite3_changes(db);
  if (pErr->rc == SQLITE_INTERRUPT && nWritten == nRow) bxClear(pErr);
  return nWritten;
}

/* Writes all waiting rows with one statement, which is a transaction of its own.
** (In a savepoint SQLite would copy each page that it changes.) Returns 0 if
** nothing was written, because a row may have to be left out, or because some are
** history. Rows that a statement has written although it failed leave the queue. */
static int writeWhole(Queue *p, BxStmts *pHome, BxErr *pErr) {
  i64 nWritten;
  if (flushSql(p) != zFlush || mayOmit(p, pHome)) return 0;
  nWritten = runFlush(p, pHome, zFlush, pErr);
  if (pErr->rc != SQLITE_OK && nWritten > 0) emptyFirst(p, nWritten);
  if (!bxIs(pErr, "ErasedError")) return 1;
  bxClear(pErr);
  return 0;
}

/* Does not report an error to the caller, unless SQLite will fail the calling
** statement anyway. */
static void handOver(BxErr *pFrom, BxErr *pErr) {
  int rc = pFrom->rc & 0xff;
  if (rc == SQLITE_NOMEM || rc == SQLITE_INTERRUPT) {
    *pErr = *pFrom;
  } else {
    bxClear(pFrom);
  }
}

/* With payload.pack: packs a few rows, in a transaction of its own. What has been
** written stays, whatever happens here, and the call has succeeded; payload_waiting
** shows the error. */
static void packQuietly(Queue *p, BxStmts *pHome) {
  BxErr err = {SQLITE_OK, 0};
  if (!p->limits.bPack || !sqlite3_get_autocommit(p->bx->db)) return;
  bxSavepoint(p->bx, "payload_pack", &err);
  if (err.rc == SQLITE_OK) {
    bxPackSome(pHome, 0, &err);
    bxRelease(p->bx, &err);
  }
  if (err.rc != SQLITE_OK) noteFailure(p, &err);
  bxClear(&err);
}

/* Writes all waiting rows in one transaction, where one can begin. Returns how
** many. */
static i64 flush(Queue *p, BxErr *pErr) {
  BxStmts *pHome = target(p, pErr);
  i64 nRow = p->nRow, iLast = p->iSerial;
  if (pHome == 0 || nRow == 0) return 0;
  bxLimitsNow(&p->limits, pHome, bxNow(), pErr);
  if (pErr->rc == SQLITE_OK && !writeWhole(p, pHome, pErr)) {
    bxSavepoint(p->bx, "payload_flush", pErr);
    if (pErr->rc == SQLITE_OK) {
      writeEach(p, pHome, iLast, pErr);
      bxRelease(p->bx, pErr);
    }
  }
  noteFailure(p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  emptyQueue(p, iLast);
  p->iRetry = 0;
  packQuietly(p, pHome);
  bxLimitsKept(&p->limits, p->bx, 0);
  return nRow;
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

/* An automatic flush: its error is stored, not returned. */
static void flushQuietly(Queue *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (!standsAlone(p->bx, pErr)) return;
  flush(p, &err);
  if (err.rc != SQLITE_OK) p->iRetry = bxNow() + p->limits.nInterval;
  handOver(&err, pErr);
}

static int isDue(const Queue *p) {
  i64 iNow = bxNow();
  assert(p->nRow == 0 || p->pFirst != 0);
  if (p->nRow == 0 || iNow < p->iRetry) return 0;
  return p->nRow >= p->limits.nBatch || p->bOverdue || !p->limits.bMemory ||
         iNow - p->pFirst->iStaged > p->limits.nInterval ||
         iNow < p->pFirst->iStaged; /* the clock was set back */
}

/* The rows but for those of what was erased meanwhile, if that is why a flush
** failed with rc. */
static int flushRest(const Queue *p, sqlite3 *db, int rc) {
  char *zSql;
  if (strncmp(sqlite3_errmsg(db), "ErasedError: ", 13) != 0) return rc;
  zSql = sqlite3_mprintf(
      "%s AS q WHERE NOT EXISTS (SELECT 1 FROM main.retention__refused AS r "
      "WHERE (r.kind = 'agent' AND r.\"key\" = q.agent_id) "
      "OR (r.kind = 'event' AND r.\"key\" = q.event_id))",
      flushSql(p));
  rc = zSql ? sqlite3_exec(db, zSql, 0, 0, 0) : SQLITE_NOMEM;
  sqlite3_free(zSql);
  return rc;
}

/* At the close: writes the waiting rows with another connection. */
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
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, flushSql(p), 0, 0, 0);
  if (rc != SQLITE_OK && db != 0) rc = flushRest(p, db, rc);
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
  emptyQueue(p, p->iSerial);
  sqlite3_free(p->zFailed);
  sqlite3_free(p->zHome);
  sqlite3_free(p->zFile);
  sqlite3_free(p->zVfs);
  sqlite3_free(p);
}

/*----------------------------------------------------------- functions ----*/

/* Appends a row if there is room. Takes ownership of pRow. */
static void append(Queue *p, Waiting *pRow, BxErr *pErr) {
  if (pErr->rc == SQLITE_OK && p->nByte + pRow->nByte > p->limits.nMaxByte) {
    bxFail(pErr, SQLITE_FULL,
        "QueueFullError: %lld bytes wait, and %lld more would exceed the limit "
        "of %lld (payload.queue_max_bytes); COMMIT, or read the error in "
        "payload_waiting%s%s",
        p->nByte, pRow->nByte, p->limits.nMaxByte, p->zFailed ? ": " : "",
        p->zFailed ? p->zFailed : "");
  }
  if (pErr->rc != SQLITE_OK) {
    bxQueueRowFree(pRow);
    return;
  }
  assert(*p->ppLast == 0 && pRow->pNext == 0);
  pRow->iSerial = ++p->iSerial;
  *p->ppLast = pRow;
  p->ppLast = &pRow->pNext;
  p->nRow++;
  p->nByte += pRow->nByte;
}

/* Rows can wait for one schema only: those for another are written first. */
static void changeTarget(
    Queue *p, const BxStmts *pHome, int bCall, BxErr *pErr) {
  if (p->pFirst == 0 || sqlite3_stricmp(p->zHome, pHome->zDb) == 0) return;
  if (bCall) flushQuietly(p, pErr);
  if (p->pFirst != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: %lld rows wait for schema %s; COMMIT, and SELECT "
        "payload_flush(), before you queue rows for %s",
        p->nRow, p->zHome, pHome->zDb);
  }
}

/* Mode memory: the row waits. */
static void stage(
    Queue *p, BxStmts *pHome, Waiting *pRow, int bCall, BxErr *pErr) {
  Waiting **ppEnd;
  i64 iNow;
  if (pRow == 0) return;
  iNow = pRow->iStaged;
  /* Not after it, because a row that waits is not taken back. */
  bxNeedKnown(p->bx, pErr);
  if (pErr->rc != SQLITE_OK) {
    bxQueueRowFree(pRow);
    return;
  }
  changeTarget(p, pHome, bCall, pErr);
  if (p->pFirst == 0) rememberFile(p, pHome->zDb, pErr);
  if (p->nByte + pRow->nByte > p->limits.nMaxByte && bCall) {
    flushQuietly(p, pErr);
  }
  ppEnd = p->ppLast;
  append(p, pRow, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (iNow - p->iPut > p->limits.nInterval) p->bOverdue = 1;
  if (bCall && isDue(p)) flushQuietly(p, pErr);
  if (pErr->rc != SQLITE_OK) {
    cutBack(p, ppEnd);
    return;
  }
  p->iPut = iNow;
  if (!bCall) bxLimitsKept(&p->limits, p->bx, 1);
}

/* Mode durable: the row is written. Rows that wait since another mode was set
** are written first, if possible. */
static void store(Queue *p, BxStmts *pHome, sqlite3_value **aVal, i64 iTime,
    int bCall, BxErr *pErr) {
  i64 nByte = bxBytes(aVal[GIVEN_REQUEST]) + bxBytes(aVal[GIVEN_RESPONSE]);
  Given aGiven[GIVEN_COUNT];
  if (bCall && isDue(p)) flushQuietly(p, pErr);
  bxQueueGiven(aVal, aGiven, pErr);
  writeRow(p, pHome, aGiven, nByte, iTime, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (bCall) packQuietly(p, pHome);
  bxLimitsKept(&p->limits, p->bx, bCall ? 0 : 1);
}

static void failDisabled(const BxStmts *pHome, BxErr *pErr) {
  bxFail(pErr, SQLITE_ERROR,
      "ArchiveDisabledError: payload.enabled is 0 in schema %s, and nothing "
      "was stored; UPDATE \"%w\".blackbox_settings SET value = 1 WHERE name = "
      "'payload.enabled' to enable the archive, or set 'payload.on_disabled' "
      "to "
      "'ignore' to make such calls return 0",
      pHome->zDb, pHome->zDb);
}

/* A row that waits must not make the flush of all other rows fail. */
static void checkArchiveSize(
    const Limits *pLimits, sqlite3_value **aVal, BxErr *pErr) {
  i64 nByte = bxBytes(aVal[GIVEN_REQUEST]) + bxBytes(aVal[GIVEN_RESPONSE]);
  if (pLimits->nArchive == 0 || nByte <= pLimits->nArchive) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "QuotaExceededError: the bodies have %lld bytes, but payload.max_bytes, "
      "the limit of the whole archive, is %lld; store less, or set a higher "
      "limit",
      nByte, pLimits->nArchive);
}

i64 bxQueuePut(
    Queue *p, sqlite3_value **aVal, int nVal, int bCall, BxErr *pErr) {
  BxStmts *pHome = bxHome(p->bx, "payload", pErr);
  const Limits *pLimits;
  i64 iTime;
  if (pHome == 0) return 0;
  iTime = checkRow(aVal, nVal, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  pLimits = bxLimitsNow(&p->limits, pHome, bxNow(), pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (!pLimits->bEnabled) {
    if (!pLimits->bIgnore) failDisabled(pHome, pErr);
    return 0;
  }
  checkArchiveSize(pLimits, aVal, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (pLimits->bMemory) {
    stage(p, pHome, bxQueueRowNew(aVal, iTime, pErr), bCall, pErr);
  } else {
    store(p, pHome, aVal, iTime, bCall, pErr);
  }
  return pErr->rc == SQLITE_OK;
}

static Queue *queueOf(Bx *bx) {
  return (Queue *)bxSlot(bx, "payload")->p;
}

void bxPayloadQueue(BxCall *p) {
  Queue *pQueue = queueOf(p->bx);
  bxReturnInt(p, bxQueuePut(pQueue, p->aArg, p->nArg, p->pCtx != 0, &p->err));
}

void bxPayloadFlush(BxCall *p) {
  if (!sqlite3_get_autocommit(p->bx->db) || p->pCtx == 0) {
    bxFail(&p->err, SQLITE_ERROR,
        "MisuseError: payload_flush() cannot run inside a transaction, because "
        "a ROLLBACK would lose the rows; COMMIT first, then SELECT "
        "payload_flush()");
    return;
  }
  bxSavepoint(p->bx, "payload_flush", &p->err);
  if (p->err.rc == SQLITE_OK) bxRelease(p->bx, &p->err);
  if (p->err.rc == SQLITE_OK) bxReturnInt(p, flush(queueOf(p->bx), &p->err));
  bxPrefix(&p->err, "FlushError: Flush failed: ");
}

sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  Queue *p = queueOf(bx);
  sqlite3_stmt *pStmt =
      bxPlain(bx->db, "SELECT ?1, ?2, ?3, ?4, 'this connection'", pErr);
  (void)apArg;
  bxBind(pStmt, pErr, "ii-c", p->nRow, p->nByte, p->zFailed);
  if (p->pFirst != 0) bxBind(pStmt, pErr, "--i", p->pFirst->iStaged);
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

/*----------------------------------------------------------- deleting ----*/

static Waiting *findWaiting(Queue *p, i64 iSerial) {
  Waiting *pRow = p->pFirst;
  while (pRow != 0 && pRow->iSerial != iSerial) pRow = pRow->pNext;
  return pRow == 0 || pRow->nDropped ? 0 : pRow;
}

void bxQueueDrop(Queue *p, i64 iSerial, BxErr *pErr) {
  static const char zReceipt[] =
      "INSERT INTO main.blackbox__note(at, domain, rule, rows, bytes, oldest,"
      "  newest) VALUES(?1, 'payload', 'payload.queue', 1, ?2, ?3, ?3)";
  BxStmts *pHome = target(p, pErr);
  Waiting *pRow = findWaiting(p, iSerial);
  if (pHome == 0 || pRow == 0) return;
  bxDo(pHome, zReceipt, pErr, "iii", bxNow(), pRow->nByte, pRow->iTime);
  if (pErr->rc != SQLITE_OK) return;
  assert(p->nSave >= 0 && p->nRow > 0);
  pRow->nDropped = p->nSave + 1;
  p->bDropped = 1;
  p->nRow--;
  p->nByte -= pRow->nByte;
}

/* A hold keeps what waits as well. */
i64 bxQueueClear(BxStmts *pHome, BxErr *pErr) {
  static const char zSql[] =
      "DELETE FROM payload_queue AS q WHERE NOT EXISTS (SELECT 1 FROM "
      "main.retention__holds WHERE kind = 'agent' AND \"key\" = q.agent_id) "
      "AND NOT EXISTS (SELECT 1 FROM main.retention__holds "
      "WHERE kind = 'event' AND \"key\" = q.event_id)";
  Queue *p = queueOf(pHome->bx);
  i64 nRow = p->nRow;
  if (nRow == 0 || sqlite3_stricmp(p->zHome, pHome->zDb) != 0) return 0;
  bxRun(bxStmt(pHome, zSql, pErr), pErr);
  return nRow - p->nRow;
}

/* Clears the marks that were made at a savepoint depth above nDeep. */
static void undrop(Queue *p, int nDeep) {
  Waiting *pRow;
  for (pRow = p->pFirst; pRow != 0; pRow = pRow->pNext) {
    if (pRow->nDropped > nDeep) pRow->nDropped = 0;
  }
  recount(p);
}

/* Removes the marked rows. */
static void removeDropped(Queue *p) {
  Waiting **pp = &p->pFirst;
  if (!p->bDropped) return;
  p->bDropped = 0;
  while (*pp != 0) {
    Waiting *pRow = *pp;
    if (!pRow->nDropped) {
      pp = &pRow->pNext;
      continue;
    }
    *pp = pRow->pNext;
    letGo(p, pRow);
  }
  recount(p);
}

void bxQueueSavepoint(Queue *p, int iSavepoint) {
  p->nSave = iSavepoint + 1;
}

void bxQueueRelease(Queue *p, int iSavepoint) {
  Waiting *pRow;
  for (pRow = p->pFirst; pRow != 0; pRow = pRow->pNext) {
    if (pRow->nDropped > iSavepoint + 1) pRow->nDropped = iSavepoint + 1;
  }
  p->nSave = iSavepoint;
}

void bxQueueRollbackTo(Queue *p, int iSavepoint) {
  bxLimitsDoubt(&p->limits);
  undrop(p, iSavepoint + 1);
  p->nSave = iSavepoint + 1;
}

/*------------------------------------------------- the table's row path ----*/

void bxQueueBegin(Queue *p) {
  p->bAlone = sqlite3_get_autocommit(p->bx->db);
  p->iWritten = 0;
  p->ppMark = p->ppLast;
  p->nSave = 0;
}

/* Writes all waiting rows in the transaction of the caller. Returns 1 if the caller
** must fail, so that SQLite undoes all: a trigger of the user has kept out a row, or
** those from one on; or SQLite has rolled the transaction back already, as it does
** for a statement that is interrupted, and for RAISE(ROLLBACK). */
static int writeAll(Queue *p, BxStmts *pHome, BxErr *pErr) {
  const char *zSql = flushSql(p);
  int eState = sqlite3_txn_state(p->bx->db, 0);
  i64 nRow = p->nRow, nWritten = runFlush(p, pHome, zSql, pErr);
  if (pErr->rc != SQLITE_OK) {
    return nWritten > 0 || sqlite3_txn_state(p->bx->db, 0) < eState;
  }
  if (zSql != zFlush || nWritten == nRow) return 0;
  failKeptOut(pErr);
  return 1;
}

/* Before the commit of a statement that queued rows and is its own transaction:
** writes the batch with it if one is due. */
void bxQueueSync(Queue *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pHome;
  i64 iLast = p->iSerial;
  int rc, bPart = 0;
  if (!p->bAlone || !isDue(p)) return;
  pHome = target(p, &err);
  if (pHome != 0) {
    bPart = writeAll(p, pHome, &err);
    if (err.rc == SQLITE_OK) p->iWritten = iLast;
    noteFailure(p, &err);
    if (err.rc != SQLITE_OK) p->iRetry = bxNow() + p->limits.nInterval;
  }
  rc = err.rc & 0xff;
  if (bPart || rc == SQLITE_IOERR || rc == SQLITE_NOMEM ||
      rc == SQLITE_CORRUPT) {
    *pErr = err; /* SQLite may also have rolled the statement back */
  } else {
    bxClear(&err);
  }
}

void bxQueueCommit(Queue *p) {
  assert(isCounted(p));
  if (p->iWritten != 0) emptyQueue(p, p->iWritten);
  removeDropped(p);
  p->iWritten = 0;
  p->ppMark = 0;
}

/* A statement that is its own transaction failed: its rows are removed. Rows
** that a rolled-back transaction has queued stay, because the exchanges took
** place. Rows that either has deleted are restored. */
void bxQueueRollback(Queue *p) {
  assert(isCounted(p));
  bxLimitsDoubt(&p->limits);
  undrop(p, 0);
  if (p->bAlone && p->ppMark != 0) cutBack(p, p->ppMark);
  p->iWritten = 0;
  p->ppMark = 0;
}

/*------------------------------------------------------------- readers ----*/

static const Waiting *notDropped(const Waiting *pRow) {
  while (pRow != 0 && pRow->nDropped) pRow = pRow->pNext;
  return pRow;
}

const Waiting *bxQueueFirst(Queue *p) {
  return notDropped(p->pFirst);
}

const Waiting *bxQueueNext(const Waiting *pRow) {
  return notDropped(pRow->pNext);
}

Bx *bxQueueBx(const Queue *p) {
  return p->bx;
}

i64 bxQueueLast(Queue *p) {
  return p->iSerial;
}

int bxQueueFlushes(const Queue *p) {
  return p->bFlushes;
}

void bxQueueOpen(Queue *p) {
  p->bRead = 1;
  p->nReader++;
}

void bxQueueClose(Queue *p) {
  assert(p->nReader > 0);
  if (--p->nReader > 0) return;
  while (p->pGone != 0) {
    Waiting *pNext = p->pGone->pGone;
    bxQueueRowFree(p->pGone);
    p->pGone = pNext;
  }
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
  p->iPut = bxNow();
  pSlot->p = p;
  pSlot->xFree = queueFree;
  bxRef(bx);
  return bxQueueModuleOn(bx->db, p, moduleFree);
}
