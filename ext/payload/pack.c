/*
** pack.c: payload_pack() and payload_unpack() move bodies into the body store and
** back.
**
** payload uses the store by SQL names only: the function store_pack() replaces the
** bodies of the rows that it is given, with the statements of bxPayloadBodies, and
** store_text() is the text of a reference. Each reference is put into payload__packed
** first, and the guards of rows that are pinned or held admit what is there.
**
** Bodies of pinned rows are packed, too: their leaves in the log are of the texts.
**
** payload_tend() is the clean-up that each write of the module carries along: a small
** job, if one is due. It runs inside an INSERT that inserts nothing, for which SQLite
** makes a savepoint also where the module cannot: in xUpdate. So a job that fails has
** changed nothing, and what was recorded stays.
*/
#include "payload.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define PACK_ROWS 1000 /* the default limits */
#define UNPACK_ROWS 100
#define CLEANUP_ROWS 200    /* rows that a clean-up packs */
#define TEND_WHOLE ((i64)4) /* the size of a job; that of a push is 1 */
#define TEND_ROWS 2         /* rows that a write looks at, to pack them; or 3 */
#define TEND_LEAVES 6       /* leaves that it gives to rows of the log, */
#define TEND_MOST_LEAVES 10 /* where there are more that have none; with */
#define TEND_PACK_LEAVES 24 /* payload.pack, where each write does more */
#define TEND_QUIET 7        /* writes after one for which nothing was due */
#define TEND_FREE 128       /* free pages that a file keeps */

const BxBodies bxPayloadBodies = {
    .zTable = "event_payloads",
    .zRow = "SELECT request_body, response_body FROM main.event_payloads"
            " WHERE id = ?1",
    .zRefer = "INSERT INTO main.payload__packed(text, \"key\", ref,"
              " bytes) VALUES(?2, CAST(?1 AS TEXT), ?3, ?4)",
    .zCount = "UPDATE main.payload__state SET packed = packed + ?2"
              " WHERE one = 1 AND ?1 NOTNULL",
    /* "rowid = rowid" makes SQLite write the row in another place, so that the page
    ** does not stay half empty. */
    .zReplace = "UPDATE main.event_payloads SET rowid = rowid,"
                " request_body = ?2, response_body = ?3 WHERE id = ?1",
    .zInPlace = "UPDATE main.event_payloads SET"
                " request_body = ?2, response_body = ?3 WHERE id = ?1",
    .zStays = "DELETE FROM main.payload__packed WHERE text >= ?2 AND"
              " \"key\" = ?1 AND ref NOT IN (SELECT body FROM (SELECT "
              "request_body AS body"
              " FROM main.event_payloads WHERE id = ?1 UNION ALL SELECT"
              " response_body FROM main.event_payloads WHERE id = ?1) WHERE"
              " body NOTNULL)",
    .zNamed = "SELECT ref, \"key\" FROM main.payload__packed WHERE text = ?1",
    .zAll = "SELECT ref, \"key\" FROM main.payload__packed",
    .zOrdered = "(SELECT rowid AS row FROM main.event_payloads AS u ORDER BY"
                " max(" BX_NUMBER_IN("u.request_body") ", " BX_NUMBER_IN(
                    "u.response_body") "), rowid LIMIT -1) AS o CROSS JOIN ",
};

/* What the store takes for a byte. And up to which row it was looked for rows to pack;
** 0: as before. */
static void noteShare(BxStmts *p, i64 iLooked, BxErr *pErr) {
  static const char zShare[] =
      "UPDATE main.payload__state SET share = " BX_STORE_SHARE
      ", pack = iif(?1, ?1, pack) WHERE one = 1";
  if (bxHasStore(p)) bxStmtExec(p, zShare, pErr, "i", iLooked);
}

/*------------------------------------------------------------ packing ----*/

/* The ids of the rows to pack, as a JSON array, the oldest ones first, and in each
** batch one agent after the other. ?1: rows before this time, NULL: all; ?2: at
** most so many. Rows up to that in payload__state were looked at. */
#define UNPACKED                                                               \
  "main.event_payloads AS u WHERE rowid > (SELECT pack FROM "                  \
  "main.payload__state) AND size_bytes >= 512 AND (?1 IS NULL OR created_ms "  \
  "< ?1) AND NOT EXISTS (SELECT 1 FROM" BX_PACKED_OF("u") ")"
static const char zUnpackedKeys[] =
    "SELECT json_group_array(id), max(rid) FROM (SELECT id, rid FROM (SELECT"
    " rowid AS rid, id, agent_id FROM " UNPACKED
    " ORDER BY rowid LIMIT ?2) ORDER BY agent_id, rid)";
static const char zMore[] = "SELECT EXISTS (SELECT 1 FROM " UNPACKED ")";

static void bindUntil(sqlite3_stmt *pStmt, const i64 *piUntil, BxErr *pErr) {
  if (piUntil != 0) bxBind(pStmt, pErr, "i", *piUntil);
}

static char *keysToPack(
    BxStmts *p, const i64 *piUntil, i64 nLimit, i64 *piLast, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, zUnpackedKeys, pErr);
  char *zAll = 0;
  assert(nLimit > 0);
  bindUntil(pStmt, piUntil, pErr);
  bxBind(pStmt, pErr, "-i", nLimit);
  if (bxStep(pStmt, pErr)) {
    zAll = bxColumnCopy(pStmt, 0, pErr);
    *piLast = sqlite3_column_int64(pStmt, 1);
  }
  sqlite3_finalize(pStmt);
  return zAll;
}

/* Packs rows that are older than *piUntil, or any if that is NULL. Returns what
** store_pack() says, to sqlite3_free(). */
static char *packRows(BxStmts *p, const i64 *piUntil, i64 nLimit, BxErr *pErr) {
  static const char zPack[] = "SELECT store_pack(?1, ?2)";
  char *zSome, *zSaid = 0;
  i64 iLast = 0;
  bxLock(p, pErr);
  bxNeedStore(p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  zSome = keysToPack(p, piUntil, nLimit, &iLast, pErr);
  if (zSome != 0) zSaid = bxPackKeys(p, "payload", zPack, zSome, pErr);
  noteShare(p, piUntil == 0 ? iLast : 0, pErr);
  sqlite3_free(zSome);
  return zSaid;
}

void bxPayloadPack(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  i64 nLimit, iUntil = 0;
  const i64 *piUntil = 0;
  char *zSaid, *zResultText = 0;
  bxRefuseInTransaction(p);
  nLimit = bxLimit(p, 0, PACK_ROWS);
  if (bxArg(p, 1)) {
    iUntil = bxTime(bxArg(p, 2), "now", &p->err) -
             bxInt(p->aArg[1], "older_than_ms", 0, BX_MAX_TIME, &p->err);
    piUntil = &iUntil;
  }
  if (p->err.rc != SQLITE_OK) return;
  zSaid = packRows(pHome, piUntil, nLimit, &p->err);
  if (zSaid != 0) {
    sqlite3_stmt *pStmt = bxPrepare(pHome, zMore, &p->err);
    int bMore = 0;
    bindUntil(pStmt, piUntil, &p->err);
    if (bxStep(pStmt, &p->err)) bMore = sqlite3_column_int(pStmt, 0);
    sqlite3_finalize(pStmt);
    if (strstr(zSaid, "\"rows\":0,") != 0) bMore = 0;
    zResultText = bxPackResult(pHome, zSaid, bMore, &p->err);
  }
  sqlite3_free(zSaid);
  if (zResultText != 0) bxReturnJson(p, zResultText);
}

void bxPackSome(BxStmts *p, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK || !bxSettingInt(p, "payload.pack", pErr)) return;
  sqlite3_free(packRows(p, 0, CLEANUP_ROWS, pErr));
}

int bxPackIsOn(BxStmts *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bPacks = pErr->rc == SQLITE_OK && bxHasStore(p) &&
               bxSettingInt(p, "payload.pack", &err) != 0;
  bxErrBeside(p, pErr, &err); /* a setting may be missing */
  return bPacks;
}

void bxPackNew(BxStmts *p, BxPackRows *pRows, int eFew, BxErr *pErr) {
  static const char zPack[] = /* a savepoint, as for payload_tend() */
      "INSERT INTO main.blackbox__open(domain, rule, minute) SELECT '', '', 0"
      " WHERE store_pack(?1, ?2, ?3)"; /* it returns NULL */
  static const char zBehind[] = "SELECT EXISTS (SELECT 1 FROM"
                                " main.event_payloads WHERE rowid > (SELECT"
                                " pack FROM main.payload__state))";
  Queue *pQueue = bxDomainData(p->bx, "payload")->p;
  sqlite3_stmt *pStmt;
  BxErr err = {SQLITE_OK, 0};
  if (eFew == 1) pRows->bSkipped = bxQueryInt(p, zBehind, pErr, "") != 0;
  pStmt = bxStmt(p, zPack, pErr);
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_bind_pointer(pStmt, 1, pRows, BX_PACK_ROWS, 0);
  bxQueryIntInner(p, zPack, &err, "-ti", p->zDb, (i64)eFew);
  sqlite3_reset(pRows->pRows);
  if (err.rc != SQLITE_OK) pRows->nText = 0;
  if (bxErrMayIgnore(p, &err)) {
    if (eFew == 1) bxLogRefusal(p, "payload", "payload.pack", err.zMsg, pErr);
    if (eFew == 2) bxQueueFailed(pQueue, &err, &pQueue->iTend);
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
}

void bxPackBind(BxStmts *p, const char *zId, const BxPackedText *aText,
    sqlite3_stmt *pWrite, int iParam, BxErr *pErr) {
  int i;
  for (i = 0; i < 2 && aText != 0 && pErr->rc == SQLITE_OK; i++) {
    if (aText[i].nRef == 0) continue;
    bxStmtExec(p, bxPayloadBodies.zRefer, pErr, "tixi", zId, aText[i].iText,
        aText[i].aRef, (i64)aText[i].nRef, aText[i].nByte);
    bxFailDb(pErr, p->bx->db,
        sqlite3_bind_blob(
            pWrite, iParam + i, aText[i].aRef, aText[i].nRef, SQLITE_STATIC));
  }
}

i64 bxPackedBytes(const BxPackRows *pRows) {
  i64 i, nByte = 0;
  for (i = 0; i < pRows->nText; i++) {
    if (pRows->aText[i].nRef > 0) nByte += pRows->aText[i].nByte;
  }
  return nByte;
}

void bxPackNewDone(BxStmts *p, BxPackRows *pRows, BxErr *pErr) {
  static const char zNewest[] = "SELECT max(rowid) FROM main.event_payloads";
  i64 nByte = bxPackedBytes(pRows);
  sqlite3_free(pRows->aText);
  pRows->aText = 0;
  if (nByte == 0) return;
  bxStmtExec(p, bxPayloadBodies.zCount, pErr, "ii", (i64)1, nByte);
  noteShare(p, pRows->bSkipped ? 0 : bxQueryInt(p, zNewest, pErr, ""), pErr);
}

void bxPackSweep(BxStmts *p, i64 nLimit, BxErr *pErr) {
  static const char zSweep[] = "SELECT store_sweep(?1, ?2)";
  static const char zAny[] = "SELECT EXISTS (SELECT 1 FROM main.store_dropped)";
  if (!bxQueryIntOnce(p, zAny, pErr, "") || !bxHasStore(p)) return;
  if (nLimit > BX_LIMIT_MOST) nLimit = BX_LIMIT_MOST;
  sqlite3_free(bxQueryTextInner(p, zSweep, pErr, "it", nLimit, p->zDb));
  noteShare(p, 0, pErr);
}

/*------------------------------------------------- with each write ----*/

/* Looks at some rows, and packs those that are not packed. Returns whether it has. */
static int tendRows(BxStmts *p, BxErr *pErr) {
  static const char zLook[] =
      "SELECT json_group_array(id) FILTER (WHERE id NOTNULL), max(rid),"
      " count(id), max(rid) = (SELECT max(rowid) FROM main.event_payloads)"
      " FROM (SELECT rowid AS rid, iif(size_bytes >= 512 AND NOT EXISTS (SELECT"
      " 1 FROM" BX_PACKED_OF(
          "u") "), id, NULL) AS id FROM main.event_payloads"
               " AS u WHERE rowid > (SELECT pack FROM main.payload__state) "
               "ORDER BY"
               " rowid LIMIT ?1 + ((SELECT max(rowid) FROM "
               "main.event_payloads) >"
               " (SELECT pack + 4 FROM main.payload__state)))";
  static const char *const azPack[] = {
      "SELECT store_pack(?1, ?2, 1)", "SELECT store_pack(?1, ?2, 2)"};
  sqlite3_stmt *pStmt;
  char *zKeys = 0, *zSaid = 0;
  i64 iLast = 0, nRow = 0;
  int bNewest = 0;
  bxNeedStore(p, pErr);
  pStmt = bxStmt(p, zLook, pErr);
  bxBind(pStmt, pErr, "i", (i64)TEND_ROWS);
  if (bxStep(pStmt, pErr)) {
    zKeys = bxColumnCopy(pStmt, 0, pErr);
    iLast = sqlite3_column_int64(pStmt, 1);
    nRow = sqlite3_column_int64(pStmt, 2);
    bNewest = sqlite3_column_int(pStmt, 3);
  }
  bxReset(pStmt, pErr);
  if (nRow > 0) zSaid = bxPackKeys(p, "payload", azPack[bNewest], zKeys, pErr);
  if (nRow > 0 && zSaid == 0) iLast = 0; /* it has closed a pack instead */
  if (iLast > 0) noteShare(p, iLast, pErr);
  sqlite3_free(zKeys);
  sqlite3_free(zSaid);
  return nRow > 0;
}

/* The kinds of job: the numbers that zJob returns. */
enum { TEND_NOTHING, TEND_PACK, TEND_SWEEP, TEND_LOG, TEND_DUE, TEND_SHRINK };

/* What is due. ?1: what this write may do, in which order: 0 packs first, 1 last, and
** 2 does neither that nor writes a pack anew nor closes receipts, as it is a push, but
** removes rows that are due. (They go with each write of the archive itself.) */
static i64 tendJob(BxStmts *p, i64 eTurn, BxErr *pErr) {
  static const char zJob[] =
      "SELECT CASE WHEN packs AND ?1 = 0 THEN 1 WHEN ?1 < 2 AND EXISTS (SELECT"
      " 1 FROM main.blackbox__open LIMIT 1 OFFSET 15) THEN 3 WHEN EXISTS "
      "(SELECT 1 FROM"
      " main.store_dropped WHERE text > 0 LIMIT 1 OFFSET iif(?1 = 2, 1, 7))"
      " OR EXISTS (SELECT 1 FROM main.store_dropped WHERE text <"
      " (-1 - (?1 = 2)) << 48) THEN 2"
      " WHEN ?1 = 2 THEN iif(wake <= ?2 OR bytes > cap, 4, NULL)"
      " WHEN EXISTS (SELECT 1 FROM main.blackbox__open LIMIT 1 OFFSET 5)"
      " THEN 3 WHEN packs THEN 1 END FROM (SELECT *, (SELECT max(rowid) FROM"
      " main.event_payloads) > pack AND (SELECT value FROM"
      " main.blackbox_settings WHERE name = 'payload.pack') = 1 AS packs"
      " FROM main.payload__state)";
  static const char zFree[] = "PRAGMA main.freelist_count";
  static const char zShrinks[] = "PRAGMA main.auto_vacuum";
  i64 eJob = bxQueryInt(p, zJob, pErr, "ii", eTurn, bxNow());
  if (eJob == TEND_NOTHING && bxQueryInt(p, zFree, pErr, "") > TEND_FREE &&
      bxQueryInt(p, zShrinks, pErr, "") == 2) {
    eJob = TEND_SHRINK;
  }
  return eJob;
}

/* A row that is due goes with a push, or the clock is looked at. What is not as usual is
** done by the trigger of an insert (payload_work). If no row is due, nobody looks for an
** hour. */
static void tendDue(BxStmts *p, BxErr *pErr) {
  static const char zState[] =
      "SELECT ?1 NOT BETWEEN seen AND seen + 43200000,"
      " ?1 > seen + 604800000, bytes <= cap,"
      " NOT EXISTS (SELECT 1 FROM main.retention__in_force) AND"
      " min(?2 + kept_ms, seen + 604800000) >= ?1, (SELECT rowid FROM"
      " main.event_payloads INDEXED BY payload_by_age WHERE purpose = 'archive'"
      " AND pinned = 0 AND created_ms > since AND created_ms < ?1 - kept_ms"
      " ORDER BY created_ms, size_bytes LIMIT 1)"
      " FROM main.payload__state, main.retention__clock";
  static const char zWork[] = "UPDATE main.payload__state SET work = ?1,"
                              " rid = -1, ms = ?2 WHERE one = 1";
  static const char zNone[] =
      "UPDATE main.payload__state SET wake = ?1 + 3600000 WHERE one = 1";
  enum { TICKS, JUMPED, FITS, USUAL, ROWID };
  const Queue *pQueue = bxDomainData(p->bx, "payload")->p;
  i64 iNow = bxNow(), iRow = 0;
  int bTicks = 0, bJumped = 0, bFits = 0, bUsual = 0, bRow = 0;
  sqlite3_stmt *pState = bxStmt(p, zState, pErr);
  bxBind(pState, pErr, "ii", iNow, pQueue->iPush);
  if (bxStep(pState, pErr)) {
    bTicks = sqlite3_column_int(pState, TICKS);
    bJumped = sqlite3_column_int(pState, JUMPED);
    bFits = sqlite3_column_int(pState, FITS);
    bUsual = sqlite3_column_int(pState, USUAL);
    bRow = sqlite3_column_type(pState, ROWID) == SQLITE_INTEGER;
    iRow = sqlite3_column_int64(pState, ROWID);
  }
  bxReset(pState, pErr);
  if (bTicks) bxClockTick(p, pErr);
  if (bJumped || (bFits && !bRow && !bTicks)) {
    bxStmtExec(p, zNone, pErr, "i", iNow);
  } else if (bTicks) {
    return;
  } else if (bFits && bUsual &&
             !bxOthersRefuse(
                 p, bxPayloadDue[0].zRule, bxPayloadDue[0].zTable, pErr)) {
    bxStmtExec(p, bxPayloadDue[0].zNote, pErr, "t", "age");
    bxStmtExec(p, bxPayloadFileLimit.zRemove, pErr, "i", iRow);
    bxStmtExec(p, bxPayloadDue[0].zNote, pErr, "n");
  } else {
    bxStmtExec(p, zWork, pErr, "ii", iNow, pQueue->iPush);
  }
}

/* payload_tend(schema, job[, size]) */
void bxPayloadTend(BxCall *p) {
  static const char zSweep[] = "SELECT store_tend(?1, ?2)";
  static const char zShrink[] = "PRAGMA main.incremental_vacuum(8)"; /* pages */
  static const char
      zRows[] = /* without a leaf, and receipts that become rows */
      "SELECT max(?1, min(iif((SELECT value FROM main.blackbox_settings WHERE"
      " name = 'payload.pack') = 1, ?3, ?2), (SELECT max(n) FROM "
      "main.blackbox__log) - size +"
      " (SELECT count(*) FROM main.blackbox__open))) FROM main.blackbox__tree";
  const char *zDb = bxText(p->aArg[0], "schema", 1000, 0, &p->err);
  i64 eJob = sqlite3_value_int64(p->aArg[1]);
  i64 nSize = bxArg(p, 2) ? sqlite3_value_int64(p->aArg[2]) : TEND_WHOLE;
  BxStmts *pHome = zDb ? bxSchema(p->bx, zDb, &p->err) : 0;
  BxErr *pErr = &p->err;
  bxRefuseInTransaction(p);
  if (pHome == 0) return;
  if (eJob == TEND_PACK && !tendRows(pHome, pErr)) eJob = TEND_SWEEP;
  if (eJob == TEND_SWEEP && bxHasStore(pHome) &&
      bxQueryIntInner(pHome, zSweep, pErr, "ti", pHome->zDb, nSize)) {
    noteShare(pHome, 0, pErr);
  }
  if (eJob == TEND_LOG) {
    bxLogBegin(pHome, pErr);
    bxLogProve(pHome,
        bxQueryInt(pHome, zRows, pErr, "iii", (i64)TEND_LEAVES,
            (i64)TEND_MOST_LEAVES, (i64)TEND_PACK_LEAVES),
        pErr);
  }
  if (eJob == TEND_DUE) tendDue(pHome, pErr);
  if (eJob == TEND_SHRINK) bxStmtExec(pHome, zShrink, pErr, "");
  bxReturnInt(p, 0);
}

/* One job, if one is due. If it fails it has changed nothing. Returns whether there was
** one. */
static int tendOnce(BxStmts *p, i64 eTurn, BxErr *pErr) {
  static const char zTry[] =
      "INSERT INTO main.blackbox__open(domain, rule, minute) SELECT '', '', 0"
      " WHERE payload_tend(?1, ?2, ?3)";
  i64 eJob = tendJob(p, eTurn, pErr);
  if (eJob == TEND_NOTHING || pErr->rc != SQLITE_OK) return 0;
  bxQueryIntInner(
      p, zTry, pErr, "tii", p->zDb, eJob, eTurn == 2 ? (i64)1 : TEND_WHOLE);
  return 1;
}

void bxTendUndone(Bx *bx) {
  Queue *p = bxDomainData(bx, "payload")->p;
  BxStmts *pSchema;
  if (p != 0) p->anQuiet[0] = p->anQuiet[1] = 0;
  for (pSchema = bx->pStmts; pSchema != 0; pSchema = pSchema->pNext) {
    bxFileLimitUndone(pSchema);
  }
}

void bxTend(BxStmts *pHome, i64 nRow, int bRow, BxErr *pErr) {
  Queue *p = pHome != 0 ? bxDomainData(pHome->bx, "payload")->p : 0;
  int bAlone = !bRow && p != 0 && sqlite3_get_autocommit(p->bx->db);
  int bPush = nRow < 0, bAny;
  BxErr err = {SQLITE_OK, 0};
  if (p != 0 && nRow > 0) {
    i64 iLast = sqlite3_last_insert_rowid(p->bx->db);
    bxFileLimitWrote(pHome, &bxPayloadFileLimit, iLast - nRow + 1, iLast);
  }
  bxFileLimitTend(pHome, nRow, bRow, pErr);
  if (pErr->rc != SQLITE_OK || p == 0 || nRow == 0) return;
  if (nRow == 1 && pHome->room.bSwept) return;
  if (nRow <= 1 && p->anQuiet[bPush]-- > 0) return;
  if (bxNow() < p->iTend) return;
  p->iPush = -1 - nRow;
  do {
    bAny = tendOnce(pHome, bPush ? 2 : ++p->nTurn % 2, &err);
  } while (bAny && --nRow > 0);
  p->anQuiet[bPush] = bAny || err.rc ? bPush : TEND_QUIET;
  if (err.rc == SQLITE_OK && p->iTend == 0) return;
  if ((err.rc & 0xff) != SQLITE_BUSY) bxQueueFailed(p, &err, &p->iTend);
  if (bRow ? bxErrMayIgnore(pHome, &err)
           : bAlone ||
                 sqlite3_txn_state(p->bx->db, pHome->zDb) == SQLITE_TXN_WRITE) {
    bxErrClear(&err);
  }
  bxErrMove(pErr, &err);
  if (pErr->rc != SQLITE_OK) bxTendUndone(p->bx);
}

/*---------------------------------------------------------- unpacking ----*/

/* Unpacks the row that has a text. Both bodies are announced before, and the text that a body has is its own
** reference. Returns 0 if the row stays: it is damaged, or a trigger of somebody keeps it,
** or it has a blob that only looks like a reference. */
static int unpackRow(BxStmts *p, i64 iText, const char *zId, BxErr *pErr) {
  static const char zAnnounce[] =
      "INSERT INTO main.payload__packed SELECT -column1, id, text, "
      "length(CAST(text AS BLOB)) FROM"
      " (SELECT column1, id, iif(column1 = 1, request_body, response_body) AS"
      " body, store_text(iif(column1 = 1, request_body, response_body)) AS text"
      " FROM main.event_payloads, (VALUES(1), (2)) WHERE id = ?1)"
      " WHERE text IS NOT body";
  static const char zReplace[] =
      "UPDATE main.event_payloads SET rowid = rowid,"
      " request_body = coalesce((SELECT ref FROM main.payload__packed"
      "  WHERE text = -1), request_body),"
      " response_body = coalesce((SELECT ref FROM main.payload__packed"
      "  WHERE text = -2), response_body) WHERE id = ?1";
  static const char zForget[] =
      "DELETE FROM main.payload__packed WHERE text < 0";
  static const char zStays[] =
      "SELECT EXISTS (SELECT 1 FROM main.payload__packed WHERE text = ?1)";
  BxErr err = {SQLITE_OK, 0};
  assert(iText >= 0);
  bxStmtExec(p, zAnnounce, &err, "t", zId);
  if (err.rc == SQLITE_CORRUPT_VTAB) {
    bxErrClear(&err);
  } else if (err.rc == SQLITE_OK) {
    bxStmtExec(p, zReplace, &err, "t", zId);
    if (bxErrMayIgnore(p, &err)) {
      bxLogRefusal(p, "payload", "payload.pack", err.zMsg, pErr);
      bxErrClear(&err);
    }
    bxStmtExec(p, zForget, pErr, "");
  }
  bxErrMove(pErr, &err);
  return !bxQueryInt(p, zStays, pErr, "i", iText);
}

void bxPayloadUnpack(BxCall *p) {
  static const char zNext[] =
      "SELECT min(text) FROM main.payload__packed WHERE text > ?1";
  static const char zKey[] =
      "SELECT \"key\" FROM main.payload__packed WHERE text = ?1";
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  sqlite3_str *pLeft = sqlite3_str_new(p->bx->db); /* ids of rows that stay */
  i64 nLimit, nRow = 0, iText = 0;
  char *zId, *zLast = 0, *zLeft;
  bxRefuseInTransaction(p);
  nLimit = bxLimit(p, 0, UNPACK_ROWS);
  bxLock(pHome, &p->err);
  while ((iText = bxQueryInt(pHome, zNext, &p->err, "i", iText)) > 0 &&
         nRow < nLimit) {
    zId = bxQueryText(pHome, zKey, &p->err, "i", iText);
    if (zId != 0 && unpackRow(pHome, iText, zId, &p->err)) {
      nRow++;
    } else if (zId != 0 && (zLast == 0 || strcmp(zId, zLast) != 0)) {
      if (zLast != 0) sqlite3_str_appendchar(pLeft, 1, ',');
      bxJsonAppend(pLeft, zId, (int)strlen(zId));
      sqlite3_free(zLast);
      zLast = zId;
      continue;
    }
    sqlite3_free(zId);
  }
  if (nRow > 0) {
    bxExec(pHome, "UPDATE main.payload__state SET pack = 0", &p->err);
  }
  if (p->err.rc == SQLITE_OK) bxPackSweep(pHome, BX_LIMIT_MOST, &p->err);
  zLeft = bxStrFinish(pLeft, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(
        p, sqlite3_mprintf("{\"rows\":%lld,\"left\":[%s],\"more\":%s}", nRow,
               zLeft ? zLeft : "", iText > 0 ? "true" : "false"));
  }
  sqlite3_free(zLeft);
  sqlite3_free(zLast);
}
