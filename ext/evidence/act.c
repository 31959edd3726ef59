/*
** act.c: the functions that prune, approve, clear, flush and count.
**
** Each is one command of the buffer's view rec_do (sql/evidence_buffer.sql)
** and, for rows in the overflow, the same command there. The result of a prune
** is JSON: {"beforeSize", "afterSize", "actionsRemoved", "screenshotsRemoved",
** "duration"}, with sizes in bytes and the duration in milliseconds.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_ROWS 1000000000

EvBuffer *bxEvFind(BxCall *pCall) {
  return (EvBuffer *)bxVtabFind(
      pCall->bx, EV_MODULE, pCall->aArg[0], &pCall->err);
}

/* The first statement of a function writes, so that it waits for other writers
** instead of failing because its snapshot is too old. */
static void begin(EvBuffer *p, EvState *pBefore, BxErr *pErr) {
  static const char zSql[] = "UPDATE main.@_state SET format = format WHERE 0";
  bxRun(bxStmt(&p->base.stmts, zSql, pErr), pErr);
  bxEvLoadState(p, pBefore, pErr);
}

static char *pruneResult(const EvState *pBefore, const EvState *pAfter,
    i64 iStart, const char *zMore) {
  return sqlite3_mprintf(
      "{\"beforeSize\":%lld,\"afterSize\":%lld,\"actionsRemoved\":%lld,"
      "\"screenshotsRemoved\":%lld,\"duration\":%lld%s}",
      pBefore->nBytes, pAfter->nBytes, pBefore->nAction - pAfter->nAction,
      pBefore->nScreenshot - pAfter->nScreenshot, bxNow() - iStart, zMore);
}

/*-------------------------------------------------------- approval ----*/

/* One statement for all rows. The trigger on rec_actions copies the new sizes
** and "pruned" to rec_rows. %s: the approval, and a condition. */
static const char zApprove[] =
    "UPDATE main.@_actions SET approved = 1, action = %s WHERE rid IN (SELECT"
    " rid FROM main.@_rows WHERE pinned = 0 AND pruned = 0) AND %s";

static void approveHere(EvBuffer *p, const char *zCondition, BxErr *pErr) {
  char *zApproved = bxEvApproved(
      "(SELECT timestamp FROM main.@_rows AS t WHERE t.rid = @_actions.rid)",
      pErr);
  char *zSql = bxPrintf(pErr, zApprove, zApproved, zCondition);
  bxExec(&p->base.stmts, zSql, pErr);
  sqlite3_free(zSql);
  sqlite3_free(zApproved);
}

/* The rows of this schema. Damaged text makes the fast statement fail, which
** then has changed nothing. The slow statement checks each text first. */
static void approveRows(EvBuffer *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  approveHere(p, "true", &err);
  if (err.rc == SQLITE_ERROR) {
    bxClear(&err);
    approveHere(p, BX_JSON_VALID("action"), &err);
  }
  *pErr = err;
}

/*
** Returns the pages that approval freed to the file system, if the file was
** made with auto_vacuum = INCREMENTAL; otherwise it does nothing. It returns
** only that many pages, because the file may have any number of older free
** pages.
*/
static void returnPages(EvBuffer *p, const char *zDb, i64 nBytes, BxErr *pErr) {
  BxStmts *pThere = bxSchema(p->base.stmts.bx, zDb, pErr);
  i64 nPage = pThere ? bxNumber(pThere, "PRAGMA main.page_size", pErr) : 0;
  char *zSql;
  if (pErr->rc != SQLITE_OK || nPage == 0 || nBytes < nPage) return;
  zSql = bxPrintf(pErr, "PRAGMA main.incremental_vacuum(%lld)", nBytes / nPage);
  bxExec(pThere, zSql, pErr);
  sqlite3_free(zSql);
}

/* JSON array of what approval did not understand in these actions. */
static char *problems(EvBuffer *p, BxErr *pErr) {
  char *zFrom = bxEvActions(p, pErr);
  char *zSql = bxGot(zFrom ? bxEvProblemsSql(zFrom) : 0, pErr);
  sqlite3_stmt *pStmt = bxEvPrepareActions(p, zSql, pErr);
  char *zOut = bxRow(pStmt, pErr) ? bxColumnCopy(pStmt, 0, pErr) : 0;
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  sqlite3_free(zFrom);
  return zOut;
}

char *bxEvApprove(EvBuffer *p, i64 nKeep, int bQuiet, BxErr *pErr) {
  EvState before, after;
  i64 iStart = bxNow();
  char *zProblems, *zMore = 0, *zOut = 0;
  begin(p, &before, pErr);
  bxEvOverflowClaim(p, &before, pErr);
  approveRows(p, pErr);
  bxEvOverflowApprove(p, &before, pErr);
  bxEvDo(p, "hold", "approval", nKeep, 0, pErr);
  bxEvOverflowSweep(p, &before, pErr);
  bxEvLoadState(p, &after, pErr);
  returnPages(p, p->base.stmts.zDb, before.nBytes - after.nBytes, pErr);
  if (before.nOverflow > 0) {
    returnPages(p, before.zOverflow, before.nBytes - after.nBytes, pErr);
  }
  zProblems = bQuiet || pErr->rc != SQLITE_OK ? 0 : problems(p, pErr);
  if (zProblems != 0) zMore = sqlite3_mprintf(",\"problems\":%s", zProblems);
  if (zMore != 0) zOut = pruneResult(&before, &after, iStart, zMore);
  if (!bQuiet) bxGot(zOut, pErr);
  sqlite3_free(zProblems);
  sqlite3_free(zMore);
  bxEvFreeState(&before);
  bxEvFreeState(&after);
  return zOut;
}

void bxEvPruneForApproval(BxCall *pCall) {
  EvBuffer *p = bxEvFind(pCall);
  i64 nKeep = 0;
  char *zResult;
  if (bxArg(pCall, 1)) {
    nKeep = bxInt(pCall->aArg[1], "keep_screenshots", 0, MAX_ROWS, &pCall->err);
  }
  if (pCall->err.rc != SQLITE_OK) return;
  zResult = bxEvApprove(p, nKeep, 0, &pCall->err);
  if (zResult != 0) bxReturnJson(pCall, zResult);
}

/*--------------------------------------------------------- pruning ----*/

/* Runs one command, and reads the counters before and after it. */
static void act(BxCall *pCall, const char *zVerb, i64 nAmount, EvState *pBefore,
    EvState *pAfter) {
  EvBuffer *p = bxEvFind(pCall);
  memset(pBefore, 0, sizeof(*pBefore));
  memset(pAfter, 0, sizeof(*pAfter));
  if (p == 0 || pCall->err.rc != SQLITE_OK) return;
  begin(p, pBefore, &pCall->err);
  bxEvOverflowOurs(p, pBefore, &pCall->err);
  bxEvDo(p, zVerb, zVerb, nAmount, 0, &pCall->err);
  bxEvOverflowSweep(p, pBefore, &pCall->err);
  bxEvLoadState(p, pAfter, &pCall->err);
  bxEvFreeState(pBefore); /* frees the texts; the caller uses the numbers */
  bxEvFreeState(pAfter);
}

void bxEvPrune(BxCall *pCall) {
  EvState before, after;
  i64 iStart = bxNow();
  act(pCall, "prune", 0, &before, &after);
  if (pCall->err.rc != SQLITE_OK) return;
  bxReturnJson(pCall, pruneResult(&before, &after, iStart, ""));
}

void bxEvPruneScreenshots(BxCall *pCall) {
  EvState before, after;
  i64 n = bxInt(pCall->aArg[1], "number of screenshots to keep", 0, MAX_ROWS,
      &pCall->err);
  if (pCall->err.rc != SQLITE_OK) return;
  act(pCall, "hold", n, &before, &after);
  bxReturnInt(pCall, before.nScreenshot - after.nScreenshot);
}

void bxEvClear(BxCall *pCall) {
  EvState before, after;
  act(pCall, "clear", 0, &before, &after);
  bxReturnInt(pCall, before.nAction - after.nAction);
}

void bxEvFlush(BxCall *pCall) {
  EvBuffer *p = bxEvFind(pCall);
  EvState state;
  i64 nMoved = 0;
  if (p == 0) return;
  bxEvLoadState(p, &state, &pCall->err);
  if (p->bTemp && state.zOverflow == 0) {
    bxFail(&pCall->err, SQLITE_ERROR,
        "MisuseError: %s is in memory and has no overflow; set one with INSERT "
        "INTO \"%w\"(\"%w\", value) VALUES('overflow', 'main')",
        p->base.stmts.zTable, p->base.stmts.zTable, p->base.stmts.zTable);
  } else if (p->bTemp) {
    nMoved = bxEvOverflowMove(p, &state, -1, &pCall->err);
    bxEvOverflowSweep(p, &state, &pCall->err);
  }
  bxEvFreeState(&state);
  bxReturnInt(pCall, nMoved);
}

/*-------------------------------------------------------- counting ----*/

void bxEvNeedsPruning(BxCall *pCall) {
  EvBuffer *p = bxEvFind(pCall);
  EvState state;
  if (p == 0) return;
  bxEvLoadState(p, &state, &pCall->err);
  bxReturnInt(
      pCall, (double)state.nBytes >= (double)state.nMax * state.rThreshold);
  bxEvFreeState(&state);
}

void bxEvStats(BxCall *pCall) {
  static const char zSql[] =
      "SELECT json_object('totalSize', bytes, 'actionCount', actions,"
      " 'screenshotCount', screenshots,"
      " 'oldestTimestamp', (SELECT min(timestamp) FROM main.@_rows),"
      " 'newestTimestamp', (SELECT max(timestamp) FROM main.@_rows),"
      " 'capacityUsed', bytes * 1.0 / max_size_bytes,"
      " 'usingOverflow', json(CASE WHEN overflowed > 0 THEN 'true'"
      " ELSE 'false' END)) FROM main.@_state";
  EvBuffer *p = bxEvFind(pCall);
  char *z;
  if (p == 0) return;
  bxEvExpectKnown(p, &pCall->err);
  z = bxAskText(&p->base.stmts, zSql, &pCall->err, "");
  if (z != 0) bxReturnJson(pCall, z);
}

/* Appends the row of one buffer to a JSON array. */
static void addStats(BxVtab *p, sqlite3_str *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(&p->stmts,
      "SELECT json_array(?1, ?2, bytes, actions, screenshots,"
      " (SELECT min(timestamp) FROM main.@_rows),"
      " (SELECT max(timestamp) FROM main.@_rows),"
      " bytes * 1.0 / max_size_bytes, overflowed > 0, max_size_bytes,"
      " memory_bytes, pinned_bytes, bytes >= max_size_bytes * prune_threshold,"
      " nullif(owner, '')) FROM main.@_state",
      pErr);
  bxBind(pStmt, pErr, "tt", p->stmts.zDb, p->stmts.zTable);
  if (bxRow(pStmt, pErr)) {
    sqlite3_str_appendf(pOut, "%s%s", sqlite3_str_length(pOut) > 1 ? "," : "",
        bxColumnText(pStmt, 0, pErr));
  }
  sqlite3_finalize(pStmt);
}

/* Every buffer of a schema, by its name in the schema: the list of connected
** tables may have a buffer under a name that was rolled back. A buffer that
** cannot be read is skipped; blackbox_check() reports it. */
static void addSchemaStats(BxStmts *p, sqlite3_str *pOut, BxErr *pErr) {
  sqlite3_stmt *pNames = bxVtabNames(p, EV_MODULE, pErr);
  while (bxRow(pNames, pErr)) {
    const char *zName = bxColumnText(pNames, 0, pErr);
    BxErr err = {SQLITE_OK, 0};
    BxVtab *pVtab;
    if (zName == 0) break;
    pVtab = bxVtabIn(p->bx, EV_MODULE, p->zDb, zName, &err);
    if (pVtab != 0) bxEvExpectKnown((EvBuffer *)pVtab, &err);
    if (pVtab != 0 && err.rc == SQLITE_OK) addStats(pVtab, pOut, pErr);
    if (err.rc != SQLITE_ERROR) bxPass(pErr, &err); /* of a newer module */
    bxClear(&err);
  }
  sqlite3_finalize(pNames);
}

static void addAllStats(Bx *bx, sqlite3_str *pOut, BxErr *pErr) {
  sqlite3_stmt *pDbs =
      bxPlain(bx->db, "SELECT name FROM pragma_database_list", pErr);
  while (bxRow(pDbs, pErr)) {
    BxStmts *p = bxSchema(bx, bxColumnText(pDbs, 0, pErr), pErr);
    if (p != 0) addSchemaStats(p, pOut, pErr);
  }
  sqlite3_finalize(pDbs);
}

sqlite3_stmt *bxEvStatsTable(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(bx->db);
  sqlite3_str_appendchar(pOut, 1, '[');
  if (apArg[0] != 0) {
    BxVtab *p = bxVtabFind(bx, EV_MODULE, apArg[0], pErr);
    if (p != 0) bxEvExpectKnown((EvBuffer *)p, pErr);
    if (p != 0) addStats(p, pOut, pErr);
  } else {
    addAllStats(bx, pOut, pErr);
  }
  sqlite3_str_appendchar(pOut, 1, ']');
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3,"
      " value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,"
      " value ->> 9, value ->> 10, value ->> 11, value ->> 12,"
      " value ->> 13 FROM json_each(?1)",
      sqlite3_str_finish(pOut), pErr);
}
