/*
** queue.c: exchanges on their way into the archive.
**
** payload_queue(event_id, agent_id, request, response[, timestamp]) and INSERT
** INTO payload_queue(...) take an exchange. What they do depends on
** payload.queue_mode:
**   durable  it is written at once, with one INSERT;
**   memory   it waits in temp.payload__waiting, and all rows that wait are written
**            together, with one INSERT, when payload.flush_batch_size rows wait,
**            when the oldest has waited for payload.flush_interval_ms, or when the
**            one before came longer ago than that. Inside BEGIN they wait for a
**            later call, so that a transaction of the host takes no lock by it.
**            payload_flush() writes them at any time.
**
** Rows that wait are rows of a table: a ROLLBACK takes back those that were queued
** since, and brings back those that were written or deleted since. An automatic
** flush that fails keeps all of them; payload_waiting has its error.
**
** When a connection closes, it can still be read, but perhaps not written. So
** rows that wait are copied to another connection then, which writes them when the
** first one has closed. Rows of a database without a file are lost.
**
** A row that is already older than payload.retention_days is history that is being
** loaded: it goes through the view payload_history (sql/payload_work.sql).
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* number and total: how many rows there are up to this one, and their bytes, with those
** that have left. home, file and vfs: where the archive is. */
static const char zWaiting[] =
    "CREATE TEMP TABLE payload__waiting(n INTEGER PRIMARY KEY, number INTEGER,"
    " total INTEGER, staged INTEGER, bytes INTEGER, ms INTEGER, home, file, "
    "vfs,"
    " id, created_at, event_id, agent_id, request_body, response_body)";
#define COLUMNS                                                                \
  "n, number, total, staged, bytes, ms, home, file, vfs, id, created_at, "     \
  "event_id, agent_id, request_body, response_body"
#define ERASED                                                                 \
  "EXISTS (SELECT 1 FROM main.retention__refused AS r"                         \
  " WHERE (r.kind = 'agent' AND r.\"key\" = q.agent_id)"                       \
  " OR (r.kind = 'event' AND r.\"key\" = q.event_id))"
#define HELD                                                                   \
  "EXISTS (SELECT 1 FROM main.retention__holds AS h"                           \
  " WHERE (h.kind = 'agent' AND h.\"key\" = q.agent_id)"                       \
  " OR (h.kind = 'event' AND h.\"key\" = q.event_id))"

/* The rows that wait become rows of the archive, but for those of what was erased
** meanwhile. The second form is for rows of which one is history. */
static const char *const azFlush[] = {
    "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
    "  response_body, size_bytes, purpose, created_at) "
    "SELECT id, event_id, agent_id, request_body, response_body, bytes,"
    "  'archive', created_at FROM temp.payload__waiting AS q"
    " WHERE NOT " ERASED,
    "INSERT INTO main.payload_history(id, event_id, agent_id, request_body,"
    "  response_body, created_at) "
    "SELECT id, event_id, agent_id, request_body, response_body, created_at"
    " FROM temp.payload__waiting AS q WHERE NOT " ERASED};
static const char zErased[] =
    "INSERT INTO main.blackbox__note(at, domain, rule, rows, bytes, oldest,"
    "  newest) SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS"
    "  INTEGER), 'payload', 'erased', 1, bytes, ms, ms"
    " FROM temp.payload__waiting AS q WHERE " ERASED;

typedef struct Limits {
  i64 bEnabled, bIgnore, bMemory;
  i64 nRetain; /* retention period in milliseconds */
  i64 nBatch, nInterval, nMaxByte;
  i64 nArchive; /* payload.max_bytes, 0 for no limit */
  i64 bPack;    /* payload.pack */
} Limits;

typedef struct Queue {
  Bx *bx;
  Limits limits;
  BxStmts *pKnown; /* the schema of the limits, NULL if none are known */
  int bTable;      /* temp.payload__waiting was created */
  i64 iPut;        /* when the last row came */
  int bPause;      /* the first row that waits came after a pause */
  i64 iRetry;      /* no automatic flush before this time */
  char *zFailed;   /* message of the last flush, if it failed */
  sqlite3 *pAfter; /* has the rows, while the connection closes */
} Queue;

/* What waits. */
typedef struct Wait {
  i64 nRow, nByte, iOldest;
  int bOther; /* for another schema than the one that was asked about */
} Wait;

/*-------------------------------------------------------- what waits ----*/

static Wait waiting(Queue *p, const char *zDb, BxErr *pErr) {
  static const char zSql[] =
      "SELECT l.number - f.number + 1, l.total - f.total + f.bytes, f.staged,"
      "  f.home <> ?1 COLLATE NOCASE FROM (SELECT * FROM main.payload__waiting"
      "  ORDER BY n LIMIT 1) AS f, (SELECT * FROM main.payload__waiting"
      "  ORDER BY n DESC LIMIT 1) AS l";
  Wait wait = {0, 0, 0, 0};
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  if (!p->bTable || pErr->rc != SQLITE_OK) return wait;
  pStmt = bxStmt(bxSchema(p->bx, "temp", &err), zSql, &err);
  bxBind(pStmt, &err, "t", zDb);
  if (bxRow(pStmt, &err)) {
    wait.nRow = sqlite3_column_int64(pStmt, 0);
    wait.nByte = sqlite3_column_int64(pStmt, 1);
    wait.iOldest = sqlite3_column_int64(pStmt, 2);
    wait.bOther = sqlite3_column_int(pStmt, 3);
  }
  bxDone(pStmt, &err);
  if (bxSays(&err, "no such table")) { /* its creation was rolled back */
    bxClear(&err);
    p->bTable = 0;
  }
  bxPass(pErr, &err);
  return wait;
}

/* The schema for which rows wait. */
static BxStmts *target(Queue *p, BxErr *pErr) {
  static const char zHomeOf[] =
      "SELECT home FROM main.payload__waiting ORDER BY n LIMIT 1";
  char *zHome = bxAskText(bxSchema(p->bx, "temp", pErr), zHomeOf, pErr, "");
  BxStmts *pHome = zHome != 0 ? bxSchema(p->bx, zHome, pErr) : 0;
  sqlite3_free(zHome);
  return pHome;
}

/* The limits, of which those that are known stay if the file is locked. A write
** lock comes first if a row will be written, as SQLite waits for no other writer
** after a read. */
static void readLimits(Queue *p, BxStmts *pHome, BxErr *pErr) {
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"
  /* clang-format off */
  static const char zSql[] =
      "SELECT " SETTING("enabled") ", " SETTING("on_disabled") " = 'ignore', "
      SETTING("queue_mode") " = 'memory', " SETTING("retention_days") " * ("
      SETTING("history_until") " IS NOT NULL) * 86400000, "
      SETTING("flush_batch_size") ", " SETTING("flush_interval_ms") ", "
      SETTING("queue_max_bytes") ", " SETTING("max_bytes") ", "
      SETTING("pack");
  /* clang-format on */
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  i64 *aOut = &p->limits.bEnabled;
  int i, bKnown = p->pKnown == pHome;
  if (!bKnown || (p->limits.bEnabled && !p->limits.bMemory)) {
    bxLock(pHome, &err);
  }
  if ((err.rc & 0xff) == SQLITE_READONLY || /* it may be disabled */
      (!bKnown && (err.rc & 0xff) == SQLITE_BUSY)) {
    bxClear(&err);
  }
  pStmt = bxStmt(pHome, zSql, &err);
  if (bxRow(pStmt, &err)) {
    for (i = 0; i < 9; i++) aOut[i] = sqlite3_column_int64(pStmt, i);
    /* If a setting is missing, nothing may expire. */
    if (p->limits.nRetain <= 0) p->limits.nRetain = BX_MAX_TIME;
    p->pKnown = pHome;
  }
  bxDone(pStmt, &err);
  if (bKnown && p->limits.bMemory && (err.rc & 0xff) == SQLITE_BUSY) {
    bxClear(&err);
  }
  bxPass(pErr, &err);
}

/* Whether one of the rows that wait is older than the retention period. */
static int isHistory(const Queue *p, i64 iTime) {
  return iTime < bxNow() - p->limits.nRetain;
}

static const char *fileOf(Queue *p, const char *zDb) {
  const char *zFile = sqlite3_db_filename(p->bx->db, zDb);
  return zFile != 0 ? zFile : "";
}

/*--------------------------------------------------------------- flush ----*/

static void failKeptOut(BxErr *pErr) {
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: a trigger on event_payloads keeps a queued row out of "
      "the archive; nothing was written; drop the trigger");
}

/* Writes all rows that wait, in the transaction of the caller. Returns how many. If
** *pbPart is set, some were written although it failed. */
static i64 flush(Queue *p, int *pbPart, BxErr *pErr) {
  static const char zGone[] =
      "SELECT file FROM main.payload__waiting WHERE file <> ?1 LIMIT 1";
  static const char zOldest[] = "SELECT min(ms) FROM main.payload__waiting";
  static const char zLeft[] =
      "SELECT count(*) FROM temp.payload__waiting AS q WHERE NOT EXISTS"
      " (SELECT 1 FROM main.event_payloads WHERE id = q.id) AND NOT " ERASED;
  static const char zEmpty[] = "DELETE FROM main.payload__waiting";
  BxStmts *pTemp = bxSchema(p->bx, "temp", pErr), *pHome;
  i64 nRow = waiting(p, 0, pErr).nRow;
  int nBefore = sqlite3_total_changes(p->bx->db), bOld;
  char *zFile;
  if (nRow == 0 || pErr->rc != SQLITE_OK) return 0;
  pHome = target(p, pErr);
  if (pHome == 0) return 0;
  zFile = bxAskText(pTemp, zGone, pErr, "t", fileOf(p, pHome->zDb));
  if (zFile != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "NotFoundError: %lld rows wait for %s, which is no longer attached as "
        "%s; ATTACH it again",
        nRow, zFile[0] ? zFile : "a database in memory", pHome->zDb);
  }
  sqlite3_free(zFile);
  if (pErr->rc == SQLITE_OK && p->pKnown != pHome) readLimits(p, pHome, pErr);
  bOld = isHistory(p, bxAsk(pTemp, zOldest, pErr, ""));
  if (pErr->rc == SQLITE_OK) bxRun(bxStmt(pHome, azFlush[bOld], pErr), pErr);
  *pbPart = sqlite3_total_changes(p->bx->db) != nBefore;
  if (pErr->rc == SQLITE_OK && (bOld || sqlite3_changes(p->bx->db) != nRow)) {
    if (bxAsk(pHome, zLeft, pErr, "") > 0) failKeptOut(pErr);
    bxDo(pHome, zErased, pErr, "");
  }
  bxDo(pTemp, zEmpty, pErr, "");
  if (pErr->rc != SQLITE_OK) return 0;
  p->bPause = 0;
  p->iRetry = 0;
  return nRow;
}

static void noteFailure(Queue *p, const BxErr *pErr) {
  sqlite3_free(p->zFailed);
  p->zFailed = pErr->zMsg ? sqlite3_mprintf("%s", pErr->zMsg) : 0;
}

/* An automatic flush, whose error is noted. In xUpdate, pLocked is a schema that it
** has locked: the error is passed on if a part of the rows was written, or the
** transaction has ended. In a function it is NULL. */
static void flushQuietly(Queue *p, BxStmts *pLocked, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bPart = 0, bPass;
  if (pErr->rc != SQLITE_OK || !sqlite3_get_autocommit(p->bx->db)) return;
  if (pLocked == 0) bxSavepoint(p->bx, "payload_flush", &err);
  if (err.rc == SQLITE_OK) {
    flush(p, &bPart, &err);
    if (pLocked == 0) bxRelease(p->bx, &err);
    noteFailure(p, &err);
    if (err.rc != SQLITE_OK) p->iRetry = bxNow() + p->limits.nInterval;
  }
  bPass = pLocked != 0 ? !bPart && bxMayPassOver(pLocked, &err)
                       : err.rc != SQLITE_NOMEM && err.rc != SQLITE_INTERRUPT;
  if (bPass) bxClear(&err);
  bxPass(pErr, &err);
}

/* With payload.pack: packs a few rows, in a transaction of its own. What has been
** written stays, whatever happens here; payload_waiting shows the error. */
static void packQuietly(Queue *p, BxStmts *pHome, const BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK || !p->limits.bPack) return;
  if (!sqlite3_get_autocommit(p->bx->db)) return;
  bxSavepoint(p->bx, "payload_pack", &err);
  if (err.rc == SQLITE_OK) {
    bxPackSome(pHome, 0, &err);
    bxRelease(p->bx, &err);
  }
  if (err.rc != SQLITE_OK) noteFailure(p, &err);
  bxClear(&err);
}

/*------------------------------------------------------------- one row ----*/

/* event, agent, request, response, timestamp */
typedef struct Given {
  sqlite3_value **aVal;
  i64 iTime, nByte;
  char zId[37], zTime[25];
} Given;

/* Checks a row. Returns the schema of the archive that takes it, NULL if none. */
static BxStmts *accept(
    Queue *p, sqlite3_value **aVal, int nVal, Given *pOut, BxErr *pErr) {
  BxStmts *pHome = bxHome(p->bx, "payload", pErr);
  if (pHome == 0) return 0;
  pOut->aVal = aVal;
  bxText(aVal[0], "event_id", 1024, 0, pErr);
  bxText(aVal[1], "agent_id", 1024, 0, pErr);
  pOut->iTime = bxTime(nVal > 4 ? aVal[4] : 0, "timestamp", pErr);
  pOut->nByte = bxBytes(aVal[2]) + bxBytes(aVal[3]);
  if (pErr->rc == SQLITE_OK) readLimits(p, pHome, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  bxTimeUuid(pOut->iTime, pOut->zId);
  bxIso(pOut->iTime, pOut->zTime);
  if (!p->limits.bEnabled && !p->limits.bIgnore) {
    bxFail(pErr, SQLITE_ERROR,
        "ArchiveDisabledError: payload.enabled is 0 in schema %s, and nothing "
        "was stored; UPDATE \"%w\".blackbox_settings SET value = 1 WHERE name "
        "= 'payload.enabled' to enable the archive, or set "
        "'payload.on_disabled' to 'ignore' to make such calls return 0",
        pHome->zDb, pHome->zDb);
  } else if (p->limits.bEnabled && p->limits.nArchive > 0 &&
             pOut->nByte > p->limits.nArchive) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "QuotaExceededError: the bodies have %lld bytes, but "
        "payload.max_bytes, the limit of the whole archive, is %lld; store "
        "less, or set a higher limit",
        pOut->nByte, p->limits.nArchive);
  }
  return pErr->rc == SQLITE_OK && p->limits.bEnabled ? pHome : 0;
}

/* Mode durable: the row is written. */
static void store(Queue *p, BxStmts *pHome, const Given *pRow, BxErr *pErr) {
  static const char *const azSql[] = {
      "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
      "  response_body, created_at, size_bytes, purpose) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 'archive')",
      "INSERT INTO main.payload_history(id, event_id, agent_id, request_body,"
      "  response_body, created_at) VALUES(?1, ?2, ?3, ?4, ?5, ?6)"};
  int bOld = isHistory(p, pRow->iTime);
  sqlite3_stmt *pStmt;
  pStmt = bxStmt(pHome, azSql[bOld], pErr);
  bxBind(pStmt, pErr, "tsssst", pRow->zId, pRow->aVal[0], pRow->aVal[1],
      pRow->aVal[2], pRow->aVal[3], pRow->zTime);
  if (!bOld) bxBind(pStmt, pErr, "------i", pRow->nByte);
  bxRun(pStmt, pErr);
  bxWriteNote(p->bx, pErr);
  /* (An INSERT into a view does not count as a change.) */
  if (pErr->rc == SQLITE_OK && !bOld && sqlite3_changes(p->bx->db) == 0) {
    failKeptOut(pErr);
  }
}

/* Before a row: writes those that wait for another schema, or since another mode was
** set, or that leave no room for it. */
static void makeRoom(Queue *p, BxStmts *pHome, const Given *pRow,
    BxStmts *pLocked, BxErr *pErr) {
  Wait wait = waiting(p, pHome->zDb, pErr);
  if (wait.nRow > 0 && (wait.bOther || !p->limits.bMemory ||
                           wait.nByte + pRow->nByte > p->limits.nMaxByte)) {
    flushQuietly(p, pLocked, pErr);
    wait = waiting(p, pHome->zDb, pErr);
  }
  if (!p->limits.bMemory) return;
  if (wait.bOther) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: %lld rows wait for another schema than %s; COMMIT, and "
        "SELECT payload_flush(), before you queue rows for it",
        wait.nRow, pHome->zDb);
  }
  if (wait.nByte + pRow->nByte > p->limits.nMaxByte) {
    bxFail(pErr, SQLITE_FULL,
        "QueueFullError: %lld bytes wait, and %lld more would exceed the limit "
        "of %lld (payload.queue_max_bytes); COMMIT, or read the error in "
        "payload_waiting%s%s",
        wait.nByte, pRow->nByte, p->limits.nMaxByte, p->zFailed ? ": " : "",
        p->zFailed ? p->zFailed : "");
  }
}

/* After a row: whether those that wait are to be written. */
static int isDue(Queue *p, BxErr *pErr) {
  Wait wait = waiting(p, 0, pErr);
  i64 iNow = bxNow();
  return wait.nRow > 0 && iNow >= p->iRetry &&
         (wait.nRow >= p->limits.nBatch || p->bPause || iNow < wait.iOldest ||
             iNow - wait.iOldest > p->limits.nInterval);
}

/* Mode memory: the row waits. */
static void stage(Queue *p, BxStmts *pHome, const Given *pRow, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.payload__waiting(" COLUMNS ") SELECT NULL,"
      "  coalesce(max(number), 0) + 1, coalesce(total, 0) + ?2, ?1, ?2, ?3, ?4,"
      "  ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12 FROM (SELECT number, total FROM"
      "  main.payload__waiting ORDER BY n DESC LIMIT 1)";
  BxStmts *pTemp = bxSchema(p->bx, "temp", pErr);
  i64 iNow = bxNow();
  sqlite3_vfs *pVfs = 0;
  sqlite3_stmt *pStmt;
  bxNeedKnown(p->bx, pErr); /* not after it, as the row may stay */
  if (!p->bTable && pErr->rc == SQLITE_OK) {
    bxExec(pTemp, zWaiting, pErr);
    p->bTable = pErr->rc == SQLITE_OK;
  }
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_file_control(p->bx->db, pHome->zDb, SQLITE_FCNTL_VFS_POINTER, &pVfs);
  pStmt = bxStmt(pTemp, zSql, pErr);
  bxBind(pStmt, pErr, "iiittttt", iNow, pRow->nByte, pRow->iTime, pHome->zDb,
      fileOf(p, pHome->zDb), pVfs != 0 ? pVfs->zName : 0, pRow->zId,
      pRow->zTime);
  bxBind(pStmt, pErr, "--------ssss", pRow->aVal[0], pRow->aVal[1],
      pRow->aVal[2], pRow->aVal[3]);
  bxRun(pStmt, pErr);
  if (iNow - p->iPut > p->limits.nInterval) p->bPause = 1;
  p->iPut = iNow;
}

/* Deletes row n or, if it is 0, the rows that no hold keeps, with a receipt.
** Returns how many. */
static i64 drop(BxStmts *pHome, i64 n, BxErr *pErr) {
#define DROPPED "FROM temp.payload__waiting AS q WHERE n = ?1"
#define CLEARED "FROM temp.payload__waiting AS q WHERE ?1 = 0 AND NOT " HELD
  static const char *const azSum[] = {
      "SELECT count(*), sum(bytes), min(ms), max(ms) " DROPPED,
      "SELECT count(*), sum(bytes), min(ms), max(ms) " CLEARED};
  static const char *const azDelete[] = {"DELETE " DROPPED, "DELETE " CLEARED};
  static const char zNote[] =
      "INSERT INTO main.blackbox__note(at, domain, rule, rows, bytes, oldest,"
      "  newest) VALUES(?1, 'payload', 'payload.queue', ?2, ?3, ?4, ?5)";
  /* not if the first row went */
  static const char zCount[] =
      "UPDATE temp.payload__waiting AS q SET number = s.number, total = s.total"
      " FROM (SELECT n, row_number() OVER (ORDER BY n) AS number, sum(bytes)"
      "  OVER (ORDER BY n) AS total FROM temp.payload__waiting) AS s"
      " WHERE q.n = s.n AND ?1 > (SELECT min(n) FROM temp.payload__waiting)";
  sqlite3_stmt *pStmt = bxStmt(pHome, azSum[n == 0], pErr);
  i64 a[4] = {0};
  int i;
  bxBind(pStmt, pErr, "i", n);
  if (bxRow(pStmt, pErr)) {
    for (i = 0; i < 4; i++) a[i] = sqlite3_column_int64(pStmt, i);
  }
  bxDone(pStmt, pErr);
  if (a[0] == 0) return 0;
  bxDo(pHome, zNote, pErr, "iiiii", bxNow(), a[0], a[1], a[2], a[3]);
  bxDo(pHome, azDelete[n == 0], pErr, "i", n);
  bxDo(pHome, zCount, pErr, "i", n != 0 ? n : BX_MAX_TIME);
  return a[0];
}

/*----------------------------------------------------------- functions ----*/

static Queue *queueOf(Bx *bx) {
  return (Queue *)bxSlot(bx, "payload")->p;
}

/* Takes a row. In xUpdate, pLocked is not NULL. Returns 0 if the archive is disabled,
** and that is to be ignored. */
static i64 put(
    Queue *p, sqlite3_value **aVal, int nVal, int bUpdate, BxErr *pErr) {
  static const char zLock[] =
      "UPDATE main.payload__waiting SET staged = staged WHERE 0";
  BxStmts *pTemp = bxSchema(p->bx, "temp", pErr), *pLocked = 0, *pHome;
  Given row;
  pHome = accept(p, aVal, nVal, &row, pErr);
  if (pHome == 0) return 0;
  if (bUpdate && waiting(p, 0, pErr).nRow > 0) {
    bxDo(pTemp, zLock, pErr, "");
    pLocked = pTemp;
  }
  makeRoom(p, pHome, &row, pLocked, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (p->limits.bMemory) {
    stage(p, pHome, &row, pErr);
    if (isDue(p, pErr)) flushQuietly(p, bUpdate ? pTemp : 0, pErr);
  } else {
    store(p, pHome, &row, pErr);
  }
  if (!bUpdate) packQuietly(p, pHome, pErr);
  return pErr->rc == SQLITE_OK;
}

void bxPayloadQueue(BxCall *p) {
  bxReturnInt(p, put(queueOf(p->bx), p->aArg, p->nArg, p->pCtx == 0, &p->err));
}

void bxPayloadFlush(BxCall *pCall) {
  Queue *p = queueOf(pCall->bx);
  BxErr *pErr = &pCall->err;
  int bPart;
  if (!sqlite3_get_autocommit(p->bx->db)) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: payload_flush() cannot run inside a transaction, because "
        "rows would be lost if it ended with the connection; COMMIT first, "
        "then SELECT payload_flush()");
    return;
  }
  if (pCall->pCtx != 0) bxSavepoint(p->bx, "payload_flush", pErr);
  if (pErr->rc == SQLITE_OK) {
    bxReturnInt(pCall, flush(p, &bPart, pErr));
    noteFailure(p, pErr);
    if (pCall->pCtx != 0) bxRelease(p->bx, pErr);
  }
  if (pCall->pCtx != 0 && p->pKnown != 0) packQuietly(p, p->pKnown, pErr);
  bxPrefix(pErr, "FlushError: Flush failed: ");
}

sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  Queue *p = queueOf(bx);
  Wait wait = waiting(p, 0, pErr);
  sqlite3_stmt *pStmt =
      bxPlain(bx->db, "SELECT ?1, ?2, ?3, ?4, 'this connection'", pErr);
  (void)apArg;
  bxBind(pStmt, pErr, "ii-c", wait.nRow, wait.nByte, p->zFailed);
  if (wait.nRow > 0) bxBind(pStmt, pErr, "--i", wait.iOldest);
  return pStmt;
}

void bxQueueSize(Bx *bx, i64 *pnRow, i64 *pnByte, BxErr *pErr) {
  Wait wait = waiting(queueOf(bx), 0, pErr);
  *pnRow = wait.nRow;
  *pnByte = wait.nByte;
}

/* How many rows wait for that schema. */
static i64 waitFor(BxStmts *pHome, BxErr *pErr) {
  Wait wait = waiting(queueOf(pHome->bx), pHome->zDb, pErr);
  return wait.bOther ? 0 : wait.nRow;
}

i64 bxQueueClear(BxStmts *pHome, BxErr *pErr) {
  if (waitFor(pHome, pErr) == 0) return 0;
  return drop(pHome, 0, pErr);
}

void bxPayloadLeave(BxStmts *pHome, BxErr *pErr) {
  i64 nRow = waitFor(pHome, pErr);
  if (nRow == 0) return;
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: %lld rows wait in payload_queue for schema %s; COMMIT, and "
      "SELECT payload_flush(), before the archive is removed",
      nRow, pHome->zDb);
}

/*--------------------------------------------------------------- table ----*/

enum { QUEUED_TIME = 4, QUEUED_SIZE, QUEUED_ID, QUEUED_CREATED };

typedef struct QueueVtab {
  sqlite3_vtab base;
  Queue *pQueue;
} QueueVtab;

typedef struct QueueCursor {
  sqlite3_vtab_cursor base;
  sqlite3_stmt *pStmt; /* NULL at the end */
} QueueCursor;

#define QUEUE(pVtab) (((QueueVtab *)(pVtab))->pQueue)
#define CURSOR(p) ((QueueCursor *)(p))

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
  /* not for triggers: whose trigger would it be? */
  sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
  QUEUE(*ppVtab) = (Queue *)pAux;
  return SQLITE_OK;
}

static int queueBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  (void)pVtab;
  pInfo->estimatedRows = 20;
  pInfo->estimatedCost = 20.0;
  return SQLITE_OK;
}

static int queueOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  return bxCursorNew(sizeof(QueueCursor), ppCursor);
}

static int queueNext(sqlite3_vtab_cursor *pCursor) {
  BxErr err = {SQLITE_OK, 0};
  if (!bxRow(CURSOR(pCursor)->pStmt, &err)) {
    sqlite3_finalize(CURSOR(pCursor)->pStmt);
    CURSOR(pCursor)->pStmt = 0;
  }
  return bxReportVtab(&err, pCursor->pVtab);
}

static int queueClose(sqlite3_vtab_cursor *pCursor) {
  sqlite3_finalize(CURSOR(pCursor)->pStmt);
  return bxCursorFree(pCursor);
}

static int queueFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  static const char zSql[] =
      "SELECT event_id, agent_id, request_body, response_body, ms, bytes, id,"
      "  created_at, n FROM temp.payload__waiting ORDER BY n";
  Queue *p = QUEUE(pCursor->pVtab);
  BxErr err = {SQLITE_OK, 0};
  (void)idxNum, (void)idxStr, (void)argc, (void)argv;
  sqlite3_finalize(CURSOR(pCursor)->pStmt);
  CURSOR(pCursor)->pStmt = 0;
  if (waiting(p, 0, &err).nRow > 0) {
    CURSOR(pCursor)->pStmt = bxPlain(p->bx->db, zSql, &err);
  }
  if (err.rc != SQLITE_OK) return bxReportVtab(&err, pCursor->pVtab);
  return CURSOR(pCursor)->pStmt != 0 ? queueNext(pCursor) : SQLITE_OK;
}

static int queueEof(sqlite3_vtab_cursor *pCursor) {
  return CURSOR(pCursor)->pStmt == 0;
}

static int queueColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  sqlite3_result_value(pCtx, sqlite3_column_value(CURSOR(pCursor)->pStmt, i));
  return SQLITE_OK;
}

static int queueRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  *piRowid = sqlite3_column_int64(CURSOR(pCursor)->pStmt, QUEUED_CREATED + 1);
  return SQLITE_OK;
}

static int queueUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
    sqlite3_int64 *piRowid) {
  Queue *p = QUEUE(pVtab);
  BxErr err = {SQLITE_OK, 0};
  BxWrite write;
  BxStmts *pHome;
  bxWriteBegin(&write, p->bx);
  if (argc == 1) {
    pHome = target(p, &err);
    if (pHome != 0) drop(pHome, sqlite3_value_int64(argv[0]), &err);
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
    put(p, argv + 2, 5, 1, &err);
    *piRowid = 0;
  }
  return bxWriteEnd(&write, &err, pVtab);
}

static const sqlite3_module queueModule = {
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
};

/*--------------------------------------------------------------- close ----*/

/* The connection can still be read: the rows that wait are copied to another one, also
** those of a transaction that nobody has rolled back. */
static void queueClosing(void *pArg) {
  static const char zRead[] = "SELECT " COLUMNS " FROM temp.payload__waiting";
  static const char zCopy[] =
      "INSERT INTO temp.payload__waiting(" COLUMNS ") VALUES(?1, ?2, ?3, ?4, "
      "?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
  Queue *p = (Queue *)pArg;
  sqlite3 *db = p->bx->db;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pFrom, *pTo = 0;
  int i;
  sqlite3_close(p->pAfter);
  p->pAfter = 0;
  if (waiting(p, 0, &err).nRow == 0) return;
  pFrom = bxPlain(db, zRead, &err);
  while (bxRow(pFrom, &err)) {
    if (p->pAfter == 0) {
      bxFailDb(&err, db,
          sqlite3_open_v2(":memory:", &p->pAfter,
              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
              (const char *)sqlite3_column_text(pFrom, 8)));
      bxFailDb(&err, p->pAfter, sqlite3_exec(p->pAfter, zWaiting, 0, 0, 0));
      pTo = bxPlain(p->pAfter, zCopy, &err);
    }
    for (i = 0; i < 15 && err.rc == SQLITE_OK; i++) {
      bxFailDb(&err, p->pAfter,
          sqlite3_bind_value(pTo, i + 1, sqlite3_column_value(pFrom, i)));
    }
    bxRun(pTo, &err);
  }
  sqlite3_finalize(pTo);
  sqlite3_finalize(pFrom);
  if (err.rc != SQLITE_OK) {
    sqlite3_log(err.rc, "blackbox: queued rows lost at close: %s", err.zMsg);
  }
  bxClear(&err);
}

/* Runs a template on the archive, which is attached as "a". */
static void runAfter(sqlite3 *db, const char *zTemplate, BxErr *pErr) {
  char *zSql = bxGot(bxExpand(zTemplate, "a", 0), pErr);
  if (zSql != 0) bxFailDb(pErr, db, sqlite3_exec(db, zSql, 0, 0, 0));
  sqlite3_free(zSql);
}

/* The connection has closed: the other one writes the rows. */
static void queueFree(void *pArg) {
  static const char zAttach[] =
      "ATTACH (SELECT file FROM temp.payload__waiting LIMIT 1) AS a";
  static const char zOldest[] =
      "SELECT count(*), min(ms) FROM temp.payload__waiting";
  Queue *p = (Queue *)pArg;
  sqlite3 *db = p->pAfter;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = db != 0 ? bxPlain(db, zOldest, &err) : 0;
  i64 nRow = 0;
  int bOld = 0;
  if (bxRow(pStmt, &err)) {
    nRow = sqlite3_column_int64(pStmt, 0);
    bOld = isHistory(p, sqlite3_column_int64(pStmt, 1));
  }
  sqlite3_finalize(pStmt);
  if (nRow > 0) {
    sqlite3_busy_timeout(db, 5000);
    runAfter(db, zAttach, &err);
    runAfter(db, "BEGIN IMMEDIATE", &err);
    runAfter(db, azFlush[bOld], &err);
    runAfter(db, zErased, &err);
    runAfter(db, "COMMIT", &err);
  }
  if (err.rc != SQLITE_OK) {
    sqlite3_log(err.rc, "blackbox: %lld queued rows lost at close: %s", nRow,
        err.zMsg != 0 ? err.zMsg : sqlite3_errstr(err.rc));
  }
  bxClear(&err);
  sqlite3_close(db);
  sqlite3_free(p->zFailed);
  sqlite3_free(p);
}

static void moduleFree(void *p) {
  bxUnref(((Queue *)p)->bx);
}

int bxQueueRegister(Bx *bx) {
  BxSlot *pSlot = bxSlot(bx, "payload");
  Queue *p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  p->bx = bxRef(bx);
  p->iPut = bxNow();
  pSlot->p = p;
  pSlot->xFree = queueFree;
  pSlot->xClosing = queueClosing;
  return sqlite3_create_module_v2(
      bx->db, "payload_queue", &queueModule, p, moduleFree);
}
