/*
** queue.c: exchanges on their way into the archive.
**
** payload_queue() and INSERT INTO payload_queue take an exchange. If payload.queue_mode
** is durable, it is written at once. If it is memory, it is a row of a TEMP table, and
** all that wait are written with one INSERT..SELECT: when flush_batch_size rows wait,
** the oldest has waited for flush_interval_ms, or the one before came longer ago than
** that, outside BEGIN; and when the connection closes. A ROLLBACK takes queued rows back,
** and brings those back that left. A flush that fails keeps them, also those it wrote.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

/* clang-format off */
#define FROM " FROM temp.payload__waiting WHERE "
#define SETTING(name) "(SELECT value FROM main.blackbox_settings WHERE name = 'payload." name "')"

/* home, file: the schema of the archive. staged: when the row came. */
#define QUEUED "created_at, id, size_bytes, event_id, agent_id, request_body, response_body"
static const char zQueueTable[] = "CREATE TEMP TABLE payload__waiting(n INTEGER PRIMARY KEY, "
    QUEUED ", home NOT NULL, file, staged, ms)";

/* A receipt for rows that leave the queue, and their DELETE. */
#define LEAVE(rule, which)                                                                     \
  "INSERT INTO main.retention_log(domain, rule, rows, bytes, oldest, newest) SELECT 'payload', " \
  rule ", * FROM (SELECT count(*) AS n, sum(size_bytes), min(ms), max(ms)" FROM which ")"       \
  " WHERE n > 0", "DELETE" FROM which

/* What waits for the schema of the first row, up to row ?1. What was erased meanwhile stays
** out of the archive. Rows that are older than payload.retention_days are history, which stays. */
#define FIRST "n <= ?1 AND home = (SELECT home FROM temp.payload__waiting LIMIT 1)"
static const char *const azFlush[] = {
    LEAVE("'erased'", FIRST " AND EXISTS (SELECT 1 FROM main.retention__holds AS r"
    "  WHERE (r.kind, r.\"key\") IN (VALUES ('erased agent', agent_id), ('erased event', event_id)))"),
    "UPDATE main.blackbox_settings SET value = h.at FROM (SELECT max(1, max(ms)) AS at" FROM
    FIRST " AND ms < (julianday('now') - 2440587.5 - " SETTING("retention_days") ") * 86400000.0)"
    " AS h WHERE name = 'payload.history_until' AND value < h.at",
    "INSERT INTO main.event_payloads(" QUEUED ", purpose) SELECT " QUEUED ", 'archive'"
    FROM FIRST " ON CONFLICT (id) DO NOTHING", "DELETE" FROM FIRST};

/* The settings that Queue has, in its order; and what writes a row, or lets it wait. */
static const char zQueueSettings[] = "SELECT " SETTING("enabled") ", " SETTING("on_disabled")
    " = 'ignore', " SETTING("queue_mode") " = 'memory', " SETTING("retention_days")
    " * 86400000, " SETTING("flush_batch_size") ", " SETTING("flush_interval_ms") ", "
    SETTING("max_bytes") ", CASE " SETTING("secrets") " WHEN 'mask' THEN 1 WHEN 'drop' THEN 2 ELSE 0 END, "
    SETTING("pack");
static const char zQueueStore[] = "INSERT INTO main.event_payloads(" QUEUED ", purpose)"
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, 'archive')";
static const char zQueueWait[] = "INSERT INTO temp.payload__waiting(" QUEUED ", home, file,"
    " staged, ms) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11";
static const char zQueueHistory[] = "UPDATE main.blackbox_settings SET value = max(1, ?1)"
    " WHERE name = 'payload.history_until' AND value < max(1, ?1)";
static const char zQueueState[] = "SELECT count(*), ifnull(sum(size_bytes), 0), min(staged), %Q,"
    " 'this connection' FROM %s";
static const char zDisabled[] = "ArchiveDisabledError: payload.enabled is 0 in schema %s, and"
    " nothing was stored; UPDATE \"%w\".blackbox_settings SET value = 1 WHERE name ="
    " 'payload.enabled' to enable the archive, or set 'payload.on_disabled' to 'ignore' to make"
    " such calls return 0";
static const char zTooLarge[] = "QuotaExceededError: the bodies have %lld bytes, but"
    " payload.max_bytes, the limit of the whole archive, is %lld; store less, or set a higher limit";
/* clang-format on */

#define queueOf(bx) ((Queue *)bxDomainData(bx, "payload")->p)
/* Whether there is the table, whose creation may have been rolled back. */
#define hasTable(bx) bxTableExists(bx, "temp", "payload__waiting")

/* The schema for which the first of some rows waits. NULL if there is none. */
static BxStmts *homeOf(Bx *bx, i64 iFirst, i64 iLast, BxErr *pErr) {
  static const char zSql[] = "SELECT home" FROM "n BETWEEN ?1 AND ?2 LIMIT 1";
  BxStmts *pTemp = hasTable(bx) ? bxSchema(bx, "temp", pErr) : 0;
  char *zHome = pTemp ? bxQueryText(pTemp, zSql, pErr, "ii", iFirst, iLast) : 0;
  BxStmts *pHome = zHome ? bxSchema(bx, zHome, pErr) : 0;
  assert(iFirst <= iLast);
  sqlite3_free(zHome);
  return pHome;
}

void bxQueueFailed(Queue *p, const BxErr *pErr, i64 *piRetry) {
  sqlite3_free(p->zFailed);
  p->zFailed = pErr->zMsg ? sqlite3_mprintf("%s", pErr->zMsg) : 0;
  *piRetry = pErr->rc != SQLITE_OK ? bxNow() + p->nInterval : 0;
}

/* Writes what waits: all or nothing, or as a part of what runs. A row that a trigger
** queues meanwhile stays. Returns how many. */
static i64 flush(Queue *p, int bPart, BxErr *pErr) {
  BxStmts *pHome;
  i64 nRow = 0, iLast, i;
  if (!bPart) bxSavepoint(p->bx, "payload_flush", pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  pHome = homeOf(p->bx, 1, BX_MAX_TIME, pErr);
  iLast = pHome ? bxQueryInt(pHome, "SELECT max(n)" FROM "1", pErr, "") : 0;
  p->iRetry = BX_MAX_TIME;
  while (pHome != 0) {
    for (i = 0; i < 4; i++) bxStmtExec(pHome, azFlush[i], pErr, "i", iLast);
    nRow += sqlite3_changes(p->bx->db);
    bxStmtExec(pHome, azFlush[4], pErr, "i", iLast);
    pHome = homeOf(p->bx, 1, iLast, pErr);
  }
  if (!bPart) bxRelease(p->bx, pErr);
  bxQueueFailed(p, pErr, &p->iRetry);
  if (pErr->rc == SQLITE_OK) p->nRow = 0;
  return nRow;
}

/* The same outside BEGIN, with success although it fails, as the rows still wait. */
static void flushQuietly(Queue *p, int bRow, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 nRow;
  if (pErr->rc != SQLITE_OK || !sqlite3_get_autocommit(p->bx->db)) return;
  nRow = flush(p, bRow, &err);
  if (err.rc == SQLITE_OK) bxTend(p->pKnown, nRow, bRow, &err);
  if (bRow ? bxErrMayIgnore(bxSchema(p->bx, "main", pErr), &err)
           : err.rc != SQLITE_NOMEM && err.rc != SQLITE_INTERRUPT) {
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

/* Those that are known stay if the file is locked. A write lock comes first if a row
** will be written, as SQLite waits for no other writer after a read. */
static void readSettings(Queue *p, BxStmts *pHome, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  int i, bWaits = p->pKnown == pHome && p->bMemory;
  if (!bWaits && !sqlite3_get_autocommit(p->bx->db)) bxLock(pHome, &err);
  pStmt = bxStmt(pHome, zQueueSettings, &err);
  if (bxStep(pStmt, &err)) {
    for (i = 0; i < 9; i++) (&p->bEnabled)[i] = sqlite3_column_int64(pStmt, i);
    p->pKnown = pHome;
  }
  bxReset(pStmt, &err);
  if (bWaits && (err.rc & 0xff) == SQLITE_BUSY) bxErrClear(&err);
  bxErrMove(pErr, &err);
}

/* Whether the bodies of a row may be packed before it is written. (A blob is for the
** guard. What is short is not packed. After an error it waits as bxTend() does.) */
static int packsFirst(
    Queue *p, BxStmts *pHome, sqlite3_value **apBody, int bRow) {
  return !p->bMemory && p->bPack && bxHasStore(pHome) && bxNow() >= p->iTend &&
         sqlite3_value_type(apBody[0]) != SQLITE_BLOB &&
         sqlite3_value_type(apBody[1]) != SQLITE_BLOB &&
         bxBytes(apBody[0]) + bxBytes(apBody[1]) >= 512 &&
         (bRow || !bxIsWriting(p->bx));
}

/* Packs the bodies of a row, and runs the INSERT of it. The store's work comes first, so
** payload_insert, which would take it for a guard's, is told to stand aside, and what it
** does is done here. */
static void storePacked(Queue *p, BxStmts *pHome, sqlite3_stmt *pWrite,
    const char *zId, sqlite3_value **apBody, i64 iTime, BxErr *pErr) {
  static const char zAside[] =
      "UPDATE main.payload__state SET till = NULL WHERE one = 1";
  static const char zThere[] = /* and what bxPackNewDone() does */
      "UPDATE main.payload__state SET till = 0, bytes = bytes + ?1,"
      " wake = min(wake, ?2 + kept_ms), packed = packed + ?4,"
      " pack = iif(?4 AND pack >= ?3 - 1, ?3, min(pack, ?3 - 1)),"
      " share = " BX_STORE_SHARE " WHERE one = 1";
  static const char zDue[] =
      "UPDATE main.payload__state SET work = ?3, rid = ?2, ms = ?1"
      " WHERE one = 1 AND (wake <= ?3 OR bytes > cap)";
  BxPackRows pack = {.apVal = apBody};
  i64 iRow, nPacked;
  bxStmtExec(pHome, zAside, pErr, "");
  bxPackNew(pHome, &pack, 2, pErr);
  if (pack.nText == 0) p->anQuiet[0] = 1; /* the next write packs it */
  nPacked = bxPackedBytes(&pack);
  bxPackBind(pHome, zId, nPacked > 0 ? pack.aText : 0, pWrite, 6, pErr);
  bxStmtRun(pWrite, pErr);
  bxWriteNote(p->bx, pErr);
  iRow = sqlite3_last_insert_rowid(p->bx->db);
  bxStmtExec(pHome, zThere, pErr, "iiii",
      bxBytes(apBody[0]) + bxBytes(apBody[1]), iTime, iRow, nPacked);
  bxStmtExec(pHome, zDue, pErr, "iii", iTime, iRow, bxNow());
  sqlite3_free(pack.aText);
}

/* Writes a row, with what payload.secrets makes of the bodies, or lets it wait. (An
** INSERT..SELECT into a table with NOT NULL begins a savepoint in temp: SQLite takes rows
** back if the statement around xUpdate fails.) */
static void store(Queue *p, BxStmts *pHome, sqlite3_value **aVal, i64 iTime,
    int bRow, BxErr *pErr) {
  sqlite3_value *apVal[] = {aVal[0], aVal[1], aVal[2], aVal[3]};
  int bOld = !p->bMemory && iTime < bxNow() - p->nKept;
  int bPacks = packsFirst(p, pHome, aVal + 2, bRow);
  sqlite3_stmt *pStmt, *pMasked = 0;
  char zId[37], zTime[25];
  i64 nByte;
  assert(iTime >= 0 && iTime <= BX_MAX_TIME);
  bxTimeUuid(iTime, zId);
  bxIso(iTime, zTime);
  if (p->bMemory && !hasTable(p->bx)) {
    /* or each commit writes the journal into a file once it was 64 KB */
    sqlite3_exec(p->bx->db, "PRAGMA temp.journal_mode=MEMORY", 0, 0, 0);
    bxExec(pHome, zQueueTable, pErr);
  }
  if ((bOld || bPacks) && !bRow) bxSavepoint(p->bx, "payload_queue", pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (bPacks)
    bxLock(pHome, pErr); /* so that nobody makes a trigger meanwhile */
  if (p->eSecrets != 0) {
    pMasked = bxMask(&p->masking, pHome, p->eSecrets == 2, 0,
        (const char *)sqlite3_value_text(aVal[1]), apVal + 2, 2, pErr);
  }
  nByte = bxBytes(apVal[2]) + bxBytes(apVal[3]);
  bxRequireKnownFormat(p->bx, pErr); /* not after it, as the row may stay */
  pStmt = bxStmt(pHome, p->bMemory ? zQueueWait : zQueueStore, pErr);
  bxBind(pStmt, pErr, p->bMemory ? "ttissssttii" : "ttissss", zTime, zId, nByte,
      apVal[0], apVal[1], apVal[2], apVal[3], pHome->zDb,
      sqlite3_db_filename(p->bx->db, pHome->zDb), bxNow(), iTime);
  if (bPacks && (p->nArchive == 0 || nByte <= p->nArchive) &&
      bxPinsAlone(pHome, pErr)) { /* a mask may be longer than what it hides */
    storePacked(p, pHome, pStmt, zId, apVal + 2, iTime, pErr);
  } else {
    bxStmtRun(pStmt, pErr);
    bxWriteNote(p->bx, pErr);
    if (p->bPack) p->anQuiet[0] = 0;
  }
  bxMaskEnd(pHome, pMasked);
  bxMaskLooked(&p->masking, pHome);
  if (bOld) bxStmtExec(pHome, zQueueHistory, pErr, "i", iTime);
  if ((bOld || bPacks) && !bRow) bxRelease(p->bx, pErr);
}

/* Takes a row. Returns 0 if the archive is disabled, and that is to be ignored. */
static int put(Queue *p, sqlite3_value **aVal, int n, int bRow, BxErr *pErr) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", pErr);
  i64 iTime = bxTime(n > 4 ? aVal[4] : 0, "timestamp", pErr);
  i64 nByte = bxBytes(aVal[2]) + bxBytes(aVal[3]), iNow = bxNow();
  assert(n >= 4);
  bxText(aVal[0], "event_id", 1024, 0, pErr);
  bxText(aVal[1], "agent_id", 1024, 0, pErr);
  if (pErr->rc == SQLITE_OK) readSettings(p, pHome, pErr);
  if (pErr->rc != SQLITE_OK || (!p->bEnabled && p->bIgnore)) return 0;
  if (!p->bEnabled)
    bxFail(pErr, SQLITE_ERROR, zDisabled, pHome->zDb, pHome->zDb);
  else if (p->nArchive > 0 && nByte > p->nArchive)
    bxFail(pErr, SQLITE_CONSTRAINT, zTooLarge, nByte, p->nArchive);
  if (pErr->rc != SQLITE_OK) return 0;
  if (p->nRow > 0 && !p->bMemory) flushQuietly(p, bRow, pErr);
  store(p, pHome, aVal, iTime, bRow, pErr);
  if (!p->bMemory) {
    bxTend(pHome, 1, bRow, pErr);
  } else {
    i64 iSince = p->nRow > 0 ? p->iFirst : p->iLast;
    p->iLast = iNow;
    if (p->nRow++ == 0) p->iFirst = iNow;
    if (iNow >= p->iRetry && (p->nRow >= p->nBatch || iNow < iSince ||
                                 iNow - iSince > p->nInterval)) {
      flushQuietly(p, bRow, pErr);
    }
  }
  return pErr->rc == SQLITE_OK;
}

void bxPayloadQueue(BxCall *p) {
  bxReturnInt(p, put(queueOf(p->bx), p->aArg, p->nArg, p->pCtx == 0, &p->err));
}

void bxPayloadFlush(BxCall *p) {
  Queue *pQueue = queueOf(p->bx);
  i64 nRow = flush(pQueue, p->pCtx == 0, &p->err);
  bxReturnInt(p, nRow);
  bxErrPrefix(&p->err, "FlushError: Flush failed: ");
  bxTend(pQueue->pKnown, nRow, p->pCtx == 0, &p->err);
}

void bxQueueFlush(BxStmts *pHome, BxErr *pErr) {
  flush(queueOf(pHome->bx), 1, pErr);
}

sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  const char *zFrom = hasTable(bx) ? "temp.payload__waiting"
                                   : "(SELECT 0 size_bytes, 0 staged WHERE 0)";
  (void)apArg;
  return bxPrepareOwned(
      bx->db, sqlite3_mprintf(zQueueState, queueOf(bx)->zFailed, zFrom), pErr);
}

sqlite3_stmt *bxQueueRows(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zSql[] = /* sorted: it reads what waits when it begins */
      "SELECT event_id, agent_id, request_body, response_body, ms, size_bytes,"
      " id, created_at, n" FROM "1 ORDER BY +n";
  (void)apArg;
  return bxPrepareSql(bx->db, hasTable(bx) ? zSql : "SELECT 1 WHERE 0", pErr);
}

void bxQueueWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr) {
  static const char *const azDrop[] = {/* the first as in store() */
      "INSERT INTO temp.payload__waiting(home) SELECT 1 WHERE ?1 < 0",
      LEAVE("'payload.queue'", "n = ?1")};
  i64 n = sqlite3_value_int64(argv[0]);
  int i;
  if (argc == 1) {
    BxStmts *pHome = homeOf(bx, n, n, pErr);
    for (i = 0; i < 3 && pHome != 0; i++)
      bxStmtExec(pHome, azDrop[i], pErr, "i", n);
    return;
  }
  for (i = 0; i < 10; i = i == 0 ? 7 : i + 1) {
    if (sqlite3_value_type(argv[i]) == SQLITE_NULL) continue;
    bxFail(pErr, SQLITE_READONLY,
        "ReadOnlyError: a queued row cannot be changed, and its size_bytes, id "
        "and created_at are computed by the queue; DELETE it, or omit them");
  }
  if (pErr->rc == SQLITE_OK) put(queueOf(bx), argv + 2, 5, 1, pErr);
}

/* What waits is written before the connection closes, also into a file that was
** detached. (With a statement of the host it may stay open, and its transaction.)
** Hosts free the callbacks of a connection before they close it. */
static void queueClosing(void *pArg) {
  static const char zAttach[] =
      "ATTACH (SELECT file" FROM "1 LIMIT 1) AS (SELECT home" FROM "1 LIMIT 1)";
  Queue *p = (Queue *)pArg;
  sqlite3 *db = p->bx->db;
  BxErr err = {SQLITE_OK, 0};
  BxStmts *q;
  for (q = p->bx->pStmts; q != 0; q = q->pNext) bxStmtsFinalize(q);
  if (p->pKnown == 0) return;
  if (sqlite3_next_stmt(db, 0) == 0) {
    sqlite3_trace_v2(db, 0, 0, 0);
    sqlite3_progress_handler(db, 0, 0, 0);
    sqlite3_set_authorizer(db, 0, 0);
    sqlite3_commit_hook(db, 0, 0);
    sqlite3_rollback_hook(db, 0, 0);
    sqlite3_update_hook(db, 0, 0);
    sqlite3_exec(db, "ROLLBACK", 0, 0, 0);
    sqlite3_busy_timeout(db, 5000);
  }
  sqlite3_exec(db, zAttach, 0, 0, 0); /* fails if it is there */
  flush(p, 1, &err);
  if (err.rc) sqlite3_log(err.rc, "blackbox: queued rows lost: %s", err.zMsg);
  bxErrClear(&err);
}

static void queueFree(void *pArg) {
  sqlite3_free(((Queue *)pArg)->zFailed);
  bxMaskFree(&((Queue *)pArg)->masking);
  sqlite3_free(pArg);
}

int bxQueueRegister(Bx *bx) {
  BxDomainData *pSlot = bxDomainData(bx, "payload");
  Queue *p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) return SQLITE_NOMEM;
  *p = (Queue){.bx = bx, .iLast = bxNow()};
  pSlot->p = p;
  pSlot->xFree = queueFree;
  pSlot->xClosing = queueClosing;
  return SQLITE_OK;
}
