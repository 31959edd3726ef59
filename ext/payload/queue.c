/*
** queue.c: exchanges on their way into the archive.
**
** payload_queue(event_id, agent_id, request, response[, timestamp]) and INSERT
** INTO payload_queue(...) take an exchange. payload.queue_mode says what they do:
**   durable  it is written at once, with one INSERT;
**   memory   it waits in temp.payload__waiting. All rows that wait are written with
**            one INSERT..SELECT when payload.flush_batch_size rows wait, when the
**            oldest has waited for payload.flush_interval_ms, or when the one before
**            came longer ago than that; inside BEGIN they wait for a later call.
**
** Rows that wait are rows of a table: a ROLLBACK takes back those that were queued
** since, and brings back those that were written or deleted since. All of them are
** for one schema. A flush that fails keeps all; payload_waiting has its error.
**
** When a connection closes, it can still be read, but perhaps not written. So rows
** that wait are copied to another connection, which writes them when the first one
** has closed. Rows of a database without a file are lost.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* total: the bytes of this row and of those before it, with those that have left.
** staged: when it came. home, file: the schema of the archive, and its file. */
static const char zWaiting[] =
    "CREATE TEMP TABLE payload__waiting(n INTEGER PRIMARY KEY, total, staged,"
    " ms, bytes, home, file, id NOT NULL, created_at, event_id, agent_id, "
    "request_body,"
    " response_body)";

/* A receipt for rows that leave the queue, and their DELETE. */
/* clang-format off */
#define LEAVE(rule, which)                                                     \
  "INSERT INTO main.retention_note(at, domain, rule, rows, bytes, oldest,"     \
  "  newest) SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS"       \
  "  INTEGER), 'payload', " rule ", * FROM (SELECT count(*) AS n, sum(bytes)," \
  "  min(ms), max(ms) FROM temp.payload__waiting AS q WHERE " which            \
  ") WHERE n > 0",                                                             \
  "DELETE FROM temp.payload__waiting AS q WHERE " which
#define IS_IN(table)                                                           \
  "EXISTS (SELECT 1 FROM main." table " AS r"                                  \
  " WHERE (r.kind = 'agent' AND r.\"key\" = q.agent_id)"                       \
  " OR (r.kind = 'event' AND r.\"key\" = q.event_id))"
/* clang-format on */

/* What was erased meanwhile stays out of the archive. Rows that are older than
** payload.retention_days are history that is being loaded. */
static const char *const azFlush[] = {
    LEAVE("'erased'", IS_IN("retention__refused")),
    "UPDATE main.blackbox_settings SET value = h.at FROM ("
    "  SELECT max(1, max(ms)) AS at FROM temp.payload__waiting WHERE ms <"
    "    (julianday('now') - 2440587.5 - (SELECT value FROM"
    "    main.blackbox_settings WHERE name = 'payload.retention_days'))"
    "    * 86400000.0) AS h"
    " WHERE name = 'payload.history_until' AND value < h.at",
    "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
    "  response_body, size_bytes, purpose, created_at)"
    " SELECT id, event_id, agent_id, request_body, response_body, bytes,"
    "  'archive', created_at FROM temp.payload__waiting"};
#define N_FLUSH ((int)(sizeof(azFlush) / sizeof(azFlush[0])))

typedef struct Queue {
  Bx *bx;
  /* the limits, as last read of pKnown, in the order of the query */
  i64 bEnabled, bIgnore, bMemory, nRetain, nBatch, nInterval, nMaxByte;
  i64 nArchive;
  BxStmts *pKnown;
  int bTable;      /* temp.payload__waiting was created */
  i64 iPut;        /* when the last row came */
  i64 iRetry;      /* no automatic flush before this time, */
  i64 iTend;       /* and no clean-up */
  int bPart;       /* the last flush has written rows, even if it failed */
  char *zFailed;   /* message of the last flush, if it failed */
  sqlite3 *pAfter; /* has the rows while the connection closes */
} Queue;

typedef struct Given {
  sqlite3_value **aVal; /* event, agent, request, response, timestamp */
  i64 iTime, nByte;
  char zId[37], zTime[25];
} Given;

/* What waits, and whether it is for another schema or file than that of the query. */
typedef struct Wait {
  i64 nRow, nByte, iOldest, nTotal, bOther;
} Wait;

/* From the first and the last row: too much if some between them were deleted. */
static const char zAbout[] =
    "SELECT z.n - a.n + 1, z.total - a.total + a.bytes, a.staged, z.total,"
    "  a.home <> ?1 COLLATE NOCASE OR a.file <> ?2"
    " FROM temp.payload__waiting AS a, temp.payload__waiting AS z"
    " WHERE a.n = (SELECT min(n) FROM temp.payload__waiting)"
    "   AND z.n = (SELECT max(n) FROM temp.payload__waiting)";
static const char zExactly[] = "SELECT count(*), sum(bytes), min(staged), "
                               "max(total), max(home <> ?1 COLLATE NOCASE"
                               "  OR file <> ?2) FROM temp.payload__waiting";

static Queue *queueOf(Bx *bx) {
  return (Queue *)bxSlot(bx, "payload")->p;
}

static const char *fileOf(Queue *p, const char *zDb) {
  const char *zFile = zDb != 0 ? sqlite3_db_filename(p->bx->db, zDb) : 0;
  return zFile != 0 ? zFile : "";
}

static Wait waiting(Queue *p, const char *zSql, const char *zDb, BxErr *pErr) {
  Wait wait = {0, 0, 0, 0, 0};
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  i64 *aOut = &wait.nRow;
  int i;
  if (!p->bTable || pErr->rc != SQLITE_OK) return wait;
  pStmt = bxStmt(bxSchema(p->bx, "temp", &err), zSql, &err);
  bxBind(pStmt, &err, "tt", zDb, fileOf(p, zDb));
  if (bxRow(pStmt, &err)) {
    for (i = 0; i < 5; i++) aOut[i] = sqlite3_column_int64(pStmt, i);
  }
  bxDone(pStmt, &err);
  if (bxSays(&err, "no such table")) { /* its creation was rolled back */
    bxClear(&err);
    p->bTable = 0;
  }
  bxPass(pErr, &err);
  return wait;
}

/* The schema for which rows wait, NULL if none do. */
static BxStmts *target(Queue *p, BxErr *pErr) {
  static const char zSql[] =
      "SELECT home, file, count(*) FROM temp.payload__waiting";
  BxStmts *pHome = 0;
  sqlite3_stmt *pStmt;
  if (waiting(p, zAbout, 0, pErr).nRow == 0) return 0;
  pStmt = bxStmt(bxSchema(p->bx, "temp", pErr), zSql, pErr);
  if (bxRow(pStmt, pErr)) {
    const char *zHome = bxColumnText(pStmt, 0, pErr);
    const char *zFile = bxColumnText(pStmt, 1, pErr);
    if (pErr->rc == SQLITE_OK && (sqlite3_db_readonly(p->bx->db, zHome) < 0 ||
                                     strcmp(zFile, fileOf(p, zHome)) != 0)) {
      bxFail(pErr, SQLITE_ERROR,
          "NotFoundError: %lld rows wait for %s, which is no longer attached "
          "as %s; ATTACH it again",
          sqlite3_column_int64(pStmt, 2),
          zFile[0] ? zFile : "a database in memory", zHome);
    }
    pHome = bxSchema(p->bx, zHome, pErr);
  }
  bxDone(pStmt, pErr);
  return pErr->rc == SQLITE_OK ? pHome : 0;
}

/*--------------------------------------------------------------- flush ----*/

static void failKeptOut(BxErr *pErr) {
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: a trigger on event_payloads keeps a queued row out of "
      "the archive; nothing was written; drop the trigger");
}

/* Writes what waits, in the transaction of the caller. A row that a trigger queues
** meanwhile stays. Returns how many. */
static i64 flush(Queue *p, BxErr *pErr) {
  static const char zLast[] = "SELECT max(n) FROM temp.payload__waiting";
  static const char zEmpty[] =
      "DELETE FROM temp.payload__waiting WHERE n <= ?1";
  BxStmts *pHome = target(p, pErr);
  i64 iLast;
  int i, nRow;
  if (pHome == 0) return 0;
  iLast = bxAsk(pHome, zLast, pErr, "");
  for (i = 0; i < N_FLUSH; i++) bxDo(pHome, azFlush[i], pErr, "");
  nRow = sqlite3_changes(p->bx->db);
  p->bPart =
      pErr->rc == SQLITE_OK || nRow > 0; /* RAISE(FAIL) keeps some rows */
  bxDo(pHome, zEmpty, pErr, "i", iLast);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->bx->db) != nRow) {
    failKeptOut(pErr);
  }
  return nRow;
}

/* payload_waiting shows the error; there is no other attempt for a while. */
static void noteFailure(Queue *p, const BxErr *pErr, i64 *piRetry) {
  sqlite3_free(p->zFailed);
  p->zFailed = pErr->zMsg ? sqlite3_mprintf("%s", pErr->zMsg) : 0;
  *piRetry = pErr->rc != SQLITE_OK ? bxNow() + p->nInterval : 0;
}

/* Flushes: in a savepoint or, for xUpdate, in the transaction of its statement. */
static i64 attempt(Queue *p, int bRow, BxErr *pErr) {
  i64 nRow = 0;
  if (!bRow) bxSavepoint(p->bx, "payload_flush", pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  nRow = flush(p, pErr);
  if (!bRow) bxRelease(p->bx, pErr);
  noteFailure(p, pErr, &p->iRetry);
  return nRow;
}

void bxQueueTend(BxStmts *pHome, i64 nRow, int bRow, BxErr *pErr) {
  Queue *p = pHome != 0 ? queueOf(pHome->bx) : 0;
  int bAlone = !bRow && p != 0 && sqlite3_get_autocommit(p->bx->db);
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK || p == 0 || bxNow() < p->iTend) return;
  while (nRow-- > 0 && err.rc == SQLITE_OK) bxTend(pHome, &err);
  if (err.rc == SQLITE_OK && p->iTend == 0) return;
  if ((err.rc & 0xff) != SQLITE_BUSY) noteFailure(p, &err, &p->iTend);
  if (bRow ? bxMayPassOver(pHome, &err)
           : bAlone ||
                 sqlite3_txn_state(p->bx->db, pHome->zDb) == SQLITE_TXN_WRITE) {
    bxClear(&err);
  }
  bxPass(pErr, &err);
}

/* The same, with success although it fails: but not in xUpdate if it has written
** something, or if its transaction has ended. */
static void attemptQuietly(Queue *p, int bRow, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 nRow;
  if (pErr->rc != SQLITE_OK || !sqlite3_get_autocommit(p->bx->db)) return;
  p->bPart = 0;
  nRow = attempt(p, bRow, &err);
  if (err.rc == SQLITE_OK) bxQueueTend(p->pKnown, nRow, bRow, &err);
  if (bRow ? !p->bPart && bxMayPassOver(bxSchema(p->bx, "main", pErr), &err)
           : (err.rc != SQLITE_NOMEM && err.rc != SQLITE_INTERRUPT)) {
    bxClear(&err);
  }
  bxPass(pErr, &err);
}

/*------------------------------------------------------------- one row ----*/

/* Those that are known stay if the file is locked. A write lock comes first if a row
** will be written, as SQLite waits for no other writer after a read. */
static void readLimits(Queue *p, BxStmts *pHome, BxErr *pErr) {
#define SETTING(name)                                                          \
  "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"
  /* clang-format off */
  static const char zSql[] =
      "SELECT " SETTING("enabled") ", " SETTING("on_disabled") " = 'ignore', "
      SETTING("queue_mode") " = 'memory', " SETTING("retention_days") " * ("
      SETTING("history_until") " IS NOT NULL) * 86400000, "
      SETTING("flush_batch_size") ", " SETTING("flush_interval_ms") ", "
      SETTING("queue_max_bytes") ", " SETTING("max_bytes");
  /* clang-format on */
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  i64 *aOut = &p->bEnabled;
  int i, bKnown = p->pKnown == pHome;
  if (!bKnown || (p->bEnabled && !p->bMemory)) bxLock(pHome, &err);
  if ((err.rc & 0xff) == SQLITE_READONLY || /* it may be disabled */
      (!bKnown && (err.rc & 0xff) == SQLITE_BUSY)) {
    bxClear(&err);
  }
  pStmt = bxStmt(pHome, zSql, &err);
  if (bxRow(pStmt, &err)) {
    for (i = 0; i < 8; i++) aOut[i] = sqlite3_column_int64(pStmt, i);
    /* If a setting is missing, nothing may expire. */
    if (p->nRetain <= 0) p->nRetain = BX_MAX_TIME;
    p->pKnown = pHome;
  }
  bxDone(pStmt, &err);
  if (bKnown && p->bMemory && (err.rc & 0xff) == SQLITE_BUSY) bxClear(&err);
  bxPass(pErr, &err);
}

/* Checks a row. Returns the schema of the archive that takes it, NULL if none. */
static BxStmts *accept(Queue *p, Given *pRow, int nVal, BxErr *pErr) {
  BxStmts *pHome = bxHome(p->bx, "payload", pErr);
  sqlite3_value **aVal = pRow->aVal;
  if (pHome == 0) return 0;
  bxText(aVal[0], "event_id", 1024, 0, pErr);
  bxText(aVal[1], "agent_id", 1024, 0, pErr);
  pRow->iTime = bxTime(nVal > 4 ? aVal[4] : 0, "timestamp", pErr);
  pRow->nByte = bxBytes(aVal[2]) + bxBytes(aVal[3]);
  if (pErr->rc == SQLITE_OK) readLimits(p, pHome, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  bxTimeUuid(pRow->iTime, pRow->zId);
  bxIso(pRow->iTime, pRow->zTime);
  if (!p->bEnabled && !p->bIgnore) {
    bxFail(pErr, SQLITE_ERROR,
        "ArchiveDisabledError: payload.enabled is 0 in schema %s, and nothing "
        "was stored; UPDATE \"%w\".blackbox_settings SET value = 1 WHERE name "
        "= 'payload.enabled' to enable the archive, or set "
        "'payload.on_disabled' to 'ignore' to make such calls return 0",
        pHome->zDb, pHome->zDb);
  } else if (p->bEnabled && p->nArchive > 0 && pRow->nByte > p->nArchive) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "QuotaExceededError: the bodies have %lld bytes, but "
        "payload.max_bytes, the limit of the whole archive, is %lld; store "
        "less, or set a higher limit",
        pRow->nByte, p->nArchive);
  }
  return pErr->rc == SQLITE_OK && p->bEnabled ? pHome : 0;
}

/* Mode durable: the row is written. If it is history, writes keep what is as old. */
static void store(
    Queue *p, BxStmts *pHome, const Given *pRow, int bRow, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.event_payloads(id, event_id, agent_id, request_body,"
      "  response_body, created_at, size_bytes, purpose) "
      "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 'archive')";
  static const char zHistory[] =
      "UPDATE main.blackbox_settings SET value = max(1, ?1)"
      " WHERE name = 'payload.history_until' AND value < max(1, ?1)";
  int bOld = pRow->iTime < bxNow() - p->nRetain, bBoth = bOld && !bRow;
  sqlite3_stmt *pStmt;
  if (bBoth) bxSavepoint(p->bx, "payload_queue", pErr);
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxStmt(pHome, zSql, pErr);
  bxBind(pStmt, pErr, "tssssti", pRow->zId, pRow->aVal[0], pRow->aVal[1],
      pRow->aVal[2], pRow->aVal[3], pRow->zTime, pRow->nByte);
  bxRun(pStmt, pErr);
  bxWriteNote(p->bx, pErr);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->bx->db) == 0) {
    failKeptOut(pErr);
  }
  if (bOld) bxDo(pHome, zHistory, pErr, "i", pRow->iTime);
  if (bBoth) bxRelease(p->bx, pErr);
}

/* Mode memory: the row waits. (An INSERT..SELECT into a table with NOT NULL, which may
** fail half-way, begins a savepoint in temp. Only then SQLite takes rows back there
** when the statement that called xUpdate fails.) */
static void stage(Queue *p, BxStmts *pHome, const Given *pRow,
    const Wait *pWait, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO temp.payload__waiting SELECT NULL, ?1, ?2, ?3, ?4, ?5, ?6,"
      "  ?7, ?8, ?9, ?10, ?11, ?12";
  sqlite3_stmt *pStmt;
  bxNeedKnown(p->bx, pErr); /* not after it, as the row may stay */
  if (!p->bTable && pErr->rc == SQLITE_OK) {
    /* or each commit writes the journal into a file once it was 64 KB */
    sqlite3_exec(p->bx->db, "PRAGMA temp.journal_mode=MEMORY", 0, 0, 0);
    bxExec(pHome, zWaiting, pErr);
    p->bTable = pErr->rc == SQLITE_OK;
  }
  pStmt = bxStmt(pHome, zSql, pErr);
  bxBind(pStmt, pErr, "iiiittttssss", pWait->nTotal + pRow->nByte, p->iPut,
      pRow->iTime, pRow->nByte, pHome->zDb, fileOf(p, pHome->zDb), pRow->zId,
      pRow->zTime, pRow->aVal[0], pRow->aVal[1], pRow->aVal[2], pRow->aVal[3]);
  bxRun(pStmt, pErr);
  bxWriteNote(p->bx, pErr);
}

/* Before a row: writes those that wait for another schema, or since another mode was
** set, or that leave no room for it. */
static Wait makeRoom(
    Queue *p, BxStmts *pHome, const Given *pRow, int bRow, BxErr *pErr) {
  i64 nMost = p->nMaxByte - pRow->nByte;
  Wait wait = waiting(p, zAbout, pHome->zDb, pErr);
  if (wait.nRow > 0 && (wait.bOther || !p->bMemory || wait.nByte > nMost)) {
    attemptQuietly(p, bRow, pErr);
    wait = waiting(p, zExactly, pHome->zDb, pErr);
  }
  if (!p->bMemory) return wait;
  if (wait.bOther) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: %lld rows wait for another schema than %s; COMMIT, and "
        "SELECT payload_flush(), before you queue rows for it",
        wait.nRow, pHome->zDb);
  } else if (wait.nByte > nMost) {
    bxFail(pErr, SQLITE_ERROR, /* FULL would roll back those that wait */
        "QueueFullError: %lld bytes wait, and %lld more would exceed the limit "
        "of %lld (payload.queue_max_bytes); COMMIT, or read the error in "
        "payload_waiting%s%s",
        wait.nByte, pRow->nByte, p->nMaxByte, p->zFailed ? ": " : "",
        p->zFailed ? p->zFailed : "");
  }
  return wait;
}

/* Takes a row. Returns 0 if the archive is disabled, and that is to be ignored. */
static int put(
    Queue *p, sqlite3_value **aVal, int nVal, int bRow, BxErr *pErr) {
  Given row = {aVal, 0, 0, "", ""};
  BxStmts *pHome = accept(p, &row, nVal, pErr);
  i64 iNow = bxNow();
  Wait wait;
  if (pHome == 0) return 0;
  wait = makeRoom(p, pHome, &row, bRow, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  if (!p->bMemory) {
    store(p, pHome, &row, bRow, pErr);
    bxQueueTend(pHome, 1, bRow, pErr);
  } else {
    i64 iOldest = wait.nRow > 0 ? wait.iOldest : iNow;
    i64 iSince = iOldest < p->iPut ? iOldest : p->iPut;
    p->iPut = iNow;
    stage(p, pHome, &row, &wait, pErr);
    if (iNow >= p->iRetry && (wait.nRow + 1 >= p->nBatch || iNow < iOldest ||
                                 iNow - iSince > p->nInterval)) {
      attemptQuietly(p, bRow, pErr);
    }
  }
  return pErr->rc == SQLITE_OK;
}

/*----------------------------------------------------- functions, table ----*/

void bxPayloadQueue(BxCall *p) {
  bxReturnInt(p, put(queueOf(p->bx), p->aArg, p->nArg, p->pCtx == 0, &p->err));
}

void bxPayloadFlush(BxCall *pCall) {
  Queue *p = queueOf(pCall->bx);
  i64 nRow;
  if (!sqlite3_get_autocommit(p->bx->db)) {
    bxFail(&pCall->err, SQLITE_ERROR,
        "MisuseError: payload_flush() cannot run inside a transaction; COMMIT "
        "first, then SELECT payload_flush()");
    return;
  }
  nRow = attempt(p, pCall->pCtx == 0, &pCall->err);
  bxReturnInt(pCall, nRow);
  bxPrefix(&pCall->err, "FlushError: Flush failed: ");
  bxQueueTend(p->pKnown, nRow, pCall->pCtx == 0, &pCall->err);
}

sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  Queue *p = queueOf(bx);
  Wait wait = waiting(p, zExactly, 0, pErr);
  sqlite3_stmt *pStmt = bxPlain(
      bx->db, "SELECT ?1, ?2, nullif(?3, 0), ?4, 'this connection'", pErr);
  (void)apArg;
  bxBind(pStmt, pErr, "iiic", wait.nRow, wait.nByte, wait.iOldest, p->zFailed);
  return pStmt;
}

/* SELECT * FROM payload_queue: what waits when it begins, as it is sorted. */
sqlite3_stmt *bxQueueRows(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  int bAny = waiting(queueOf(bx), zAbout, 0, pErr).nRow > 0;
  (void)apArg;
  return bxPlain(bx->db,
      bAny ? "SELECT event_id, agent_id, request_body, response_body, ms,"
             "  bytes, id, created_at, n FROM temp.payload__waiting ORDER BY +n"
           : "SELECT 1 WHERE 0",
      pErr);
}

void bxQueueWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr) {
  static const char zSavepoint[] = /* as in stage() */
      "INSERT INTO temp.payload__waiting(id) SELECT 1 WHERE 0";
  static const char *const azDrop[] = {LEAVE("'payload.queue'", "n = ?1")};
  Queue *p = queueOf(bx);
  if (argc == 1) {
    BxStmts *pHome = target(p, pErr);
    i64 n = sqlite3_value_int64(argv[0]);
    if (pHome == 0) return;
    bxDo(pHome, zSavepoint, pErr, "");
    bxDo(pHome, azDrop[0], pErr, "i", n);
    bxDo(pHome, azDrop[1], pErr, "i", n);
  } else if (sqlite3_value_type(argv[0]) != SQLITE_NULL) {
    bxFail(pErr, SQLITE_READONLY,
        "ReadOnlyError: a queued row cannot be changed; DELETE it, and INSERT "
        "it again");
  } else if (sqlite3_value_type(argv[7]) != SQLITE_NULL ||
             sqlite3_value_type(argv[8]) != SQLITE_NULL ||
             sqlite3_value_type(argv[9]) != SQLITE_NULL) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: size_bytes, id and created_at are computed by the "
        "queue; omit them");
  } else {
    put(p, argv + 2, 5, 1, pErr);
  }
}

void bxQueueSize(Bx *bx, i64 *pnRow, i64 *pnByte, BxErr *pErr) {
  Wait wait = waiting(queueOf(bx), zExactly, 0, pErr);
  *pnRow = wait.nRow;
  *pnByte = wait.nByte;
}

i64 bxQueueClear(BxStmts *pHome, BxErr *pErr) {
  static const char *const azClear[] = {
      LEAVE("'payload.queue'", "NOT " IS_IN("retention__holds"))};
  Wait wait = waiting(queueOf(pHome->bx), zAbout, pHome->zDb, pErr);
  if (wait.nRow == 0 || wait.bOther) return 0;
  bxDo(pHome, azClear[0], pErr, "");
  bxDo(pHome, azClear[1], pErr, "");
  return pErr->rc == SQLITE_OK ? sqlite3_changes(pHome->bx->db) : 0;
}

void bxPayloadLeave(BxStmts *pHome, BxErr *pErr) {
  Wait wait = waiting(queueOf(pHome->bx), zExactly, pHome->zDb, pErr);
  if (wait.nRow == 0 || wait.bOther) return;
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: %lld rows wait in payload_queue for schema %s; COMMIT, and "
      "SELECT payload_flush(), before the archive is removed",
      wait.nRow, pHome->zDb);
}

/*--------------------------------------------------------------- close ----*/

/* The connection can still be read: the rows that wait are copied, also those of a
** transaction that nobody has rolled back. */
static void queueClosing(void *pArg) {
  static const char zRead[] = "SELECT * FROM temp.payload__waiting";
  static const char zCopy[] =
      "INSERT INTO temp.payload__waiting VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8,"
      " ?9, ?10, ?11, ?12, ?13)";
  Queue *p = (Queue *)pArg;
  sqlite3 *db = p->bx->db;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pFrom = 0, *pTo = 0;
  sqlite3_vfs *pVfs = 0;
  int i;
  sqlite3_close(p->pAfter);
  p->pAfter = 0;
  if (waiting(p, zAbout, 0, &err).nRow > 0) pFrom = bxPlain(db, zRead, &err);
  while (pFrom != 0 && bxRow(pFrom, &err)) {
    if (p->pAfter == 0) {
      sqlite3_file_control(db, (const char *)sqlite3_column_text(pFrom, 5),
          SQLITE_FCNTL_VFS_POINTER, &pVfs);
      bxFailDb(&err, db,
          sqlite3_open_v2(":memory:", &p->pAfter,
              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
              pVfs != 0 ? pVfs->zName : 0));
      bxFailDb(&err, p->pAfter, sqlite3_exec(p->pAfter, zWaiting, 0, 0, 0));
      pTo = bxPlain(p->pAfter, zCopy, &err);
    }
    for (i = 0; i < 13 && err.rc == SQLITE_OK; i++) {
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

/* The connection has closed: the other one writes the rows, into "a". */
static void queueFree(void *pArg) {
  static const char zBegin[] =
      "ATTACH (SELECT file FROM temp.payload__waiting LIMIT 1) AS a;"
      "BEGIN IMMEDIATE";
  Queue *p = (Queue *)pArg;
  BxErr err = {SQLITE_OK, 0};
  int i;
  if (p->pAfter != 0) sqlite3_busy_timeout(p->pAfter, 5000);
  for (i = -1; p->pAfter != 0 && i <= N_FLUSH; i++) {
    const char *zSql = i < 0 ? zBegin : i < N_FLUSH ? azFlush[i] : "COMMIT";
    char *z = bxGot(bxExpand(zSql, "a", 0), &err);
    if (err.rc == SQLITE_OK) {
      bxFailDb(&err, p->pAfter, sqlite3_exec(p->pAfter, z, 0, 0, 0));
    }
    sqlite3_free(z);
  }
  if (err.rc != SQLITE_OK) {
    sqlite3_log(err.rc, "blackbox: queued rows lost at close: %s",
        err.zMsg != 0 ? err.zMsg : sqlite3_errstr(err.rc));
  }
  bxClear(&err);
  sqlite3_close(p->pAfter);
  sqlite3_free(p->zFailed);
  sqlite3_free(p);
}

int bxQueueRegister(Bx *bx) {
  BxSlot *pSlot = bxSlot(bx, "payload");
  Queue *p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  p->bx = bx;
  p->iPut = bxNow();
  pSlot->p = p;
  pSlot->xFree = queueFree;
  pSlot->xClosing = queueClosing;
  return SQLITE_OK;
}
