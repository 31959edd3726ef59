/*
** commands.c: the functions that prune, approve, clear, flush and count.
**
** The result of a prune is JSON: {"beforeSize", "afterSize", "actionsRemoved", "screenshotsRemoved",
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
static void beginAct(EvBuffer *p, EvState *pBefore, BxErr *pErr) {
  bxStmtExec(
      p->pOn, "UPDATE main.@_state SET format = format WHERE 0", pErr, "");
  bxEvLoadState(p, pBefore, pErr);
}

static char *pruneResult(const EvState *pBefore, const EvState *pAfter,
    i64 iStart, const char *zMore) {
  assert(iStart > 0 && zMore != 0);
  return sqlite3_mprintf(
      "{\"beforeSize\":%lld,\"afterSize\":%lld,\"actionsRemoved\":%lld,"
      "\"screenshotsRemoved\":%lld,\"duration\":%lld%s}",
      pBefore->nBytes, pAfter->nBytes, pBefore->nAction - pAfter->nAction,
      pBefore->nScreenshot - pAfter->nScreenshot, bxNow() - iStart, zMore);
}

#define EV_APPROVED                                                            \
  " FROM main.@_rows AS r JOIN main.@_actions AS a ON a.rid = -r.rid"          \
  " WHERE r.pinned = 0 AND r.pruned = 0"
#define EV_KEPT "length(CAST(a.action AS BLOB))"

void bxEvNoteApproved(EvBuffer *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  EvReceipt receipt = {"approval", 0, 0, 0, 0, 0};
  if (bxStep(pStmt, pErr)) {
    receipt.nByte = sqlite3_column_int64(pStmt, 0);
    receipt.iOldest = sqlite3_column_int64(pStmt, 1);
    receipt.iNewest = sqlite3_column_int64(pStmt, 2);
  }
  bxReset(pStmt, pErr);
  bxEvNote(p, &receipt, pErr);
}

/* The rows of this schema: writes what is kept of each action, beside the action, and
** a receipt of what is not. Damaged text makes the fast statement fail, which then
** has changed nothing. The slow statement checks each text first. */
static void approveRows(EvBuffer *p, EvState *pState, BxErr *pErr) {
  static const char *const azCondition[] = {"true", BX_JSON_VALID("action")};
  char *zApproved = bxEvApproved("r.timestamp", pErr);
  BxErr err = {SQLITE_OK, 0};
  int i;
  for (i = 0; i < 2 && pErr->rc == SQLITE_OK; i++) {
    if (i > 0 && err.rc != SQLITE_ERROR) break;
    bxErrClear(&err);
    bxExecMade(p->pOn,
        bxPrintf(&err,
            "INSERT OR REPLACE INTO main.@_actions(rid, action) SELECT -r.rid, "
            "%s"
            " FROM main.@_rows AS r JOIN main.@_actions AS a ON a.rid = r.rid"
            " WHERE r.pinned = 0 AND r.pruned = 0 AND %s AND " EV_OBJECT(
                "action") " ORDER BY r.rid DESC",
            zApproved, azCondition[i]),
        &err);
  }
  sqlite3_free(zApproved);
  bxErrMove(pErr, &err);
  bxEvNoteApproved(p,
      bxStmt(p->pOn,
          "SELECT sum(r.action_bytes - " EV_KEPT "), min(r.timestamp),"
          " max(r.timestamp)" EV_APPROVED " AND r.action_bytes > " EV_KEPT,
          pErr),
      pErr);
  bxStmtExec(p->pOn,
      "UPDATE main.@_rows AS n SET pruned = 1, action_bytes = kept FROM"
      " (SELECT r.rid AS rid, " EV_KEPT " AS kept" EV_APPROVED ") AS k"
      " WHERE n.rid = k.rid",
      pErr, "");
  bxEvCountRows(p, pState, pErr);
}

/* The free pages of the file with the overflow. */
static i64 freeOver(EvBuffer *p, const EvState *pState, BxErr *pErr) {
  BxStmts *pOver;
  assert(p->bTemp || pState->nOverflow == 0);
  if (pState->nOverflow == 0) return 0;
  pOver = bxSchema(p->pOn->bx, pState->zOverflow, pErr);
  return pOver ? bxQueryNumber(pOver, "PRAGMA main.freelist_count", pErr) : 0;
}

char *bxEvApprove(EvBuffer *p, i64 nKeep, int bQuiet, BxErr *pErr) {
  EvState before, after;
  i64 iStart = bxNow(), nFree;
  char *zFrom = 0, *zSql = 0, *zMore = 0, *zOut = 0;
  sqlite3_stmt *pStmt;
  assert(nKeep >= 0);
  beginAct(p, &before, pErr);
  if (before.nAction > 0) bxEvRefuseHeld(p, pErr);
  bxEvOverflowClaim(p, &before, pErr);
  nFree = freeOver(p, &before, pErr);
  bxEvLoadState(p, &after, pErr);
  approveRows(p, &after, pErr);
  bxEvOverflowApprove(p, &after, pErr);
  bxEvRemoveShots(p, &after, "approval", nKeep, 1, pErr);
  bxEvSweepLater(p, &after, pErr);
  bxEvFinish(p, &after, pErr);
  bxEvSweep(p, &after, EV_SWEEP_CALL, pErr);
  /* What was freed in the overflow goes back to the file system, if its file was made
  ** with auto_vacuum = INCREMENTAL. */
  nFree = freeOver(p, &before, pErr) - nFree;
  if (nFree > 0 && pErr->rc == SQLITE_OK) {
    bxExecMade(bxSchema(p->pOn->bx, before.zOverflow, pErr),
        bxPrintf(pErr, "PRAGMA main.incremental_vacuum(%lld)", nFree), pErr);
  }
  if (!bQuiet) { /* what approval did not understand */
    zFrom = bxEvActions(p, pErr);
    zSql = bxCheckMem(zFrom ? bxEvProblemsSql(zFrom) : 0, pErr);
    pStmt = bxEvPrepareActions(p, zSql, pErr);
    if (bxStep(pStmt, pErr)) {
      zMore = sqlite3_mprintf(",\"problems\":%s", bxColumnText(pStmt, 0, pErr));
    }
    sqlite3_finalize(pStmt);
    if (zMore != 0 && pErr->rc == SQLITE_OK)
      zOut = pruneResult(&before, &after, iStart, zMore);
    bxCheckMem(zOut, pErr);
    sqlite3_free(zSql);
    sqlite3_free(zFrom);
    sqlite3_free(zMore);
  }
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

typedef enum Act { PRUNE, SHOTS, CLEAR } Act;

/* Removes what an act says, and tells the counters before and after it. */
static void act(
    BxCall *pCall, Act eAct, i64 nKeep, EvState *pBefore, EvState *pAfter) {
  EvBuffer *p = bxEvFind(pCall);
  BxErr *pErr = &pCall->err;
  assert(nKeep >= 0);
  memset(pBefore, 0, sizeof(*pBefore));
  memset(pAfter, 0, sizeof(*pAfter));
  if (p == 0 || pErr->rc != SQLITE_OK) return;
  beginAct(p, pBefore, pErr);
  bxEvOverflowOurs(p, pBefore, pErr);
  bxEvLoadState(p, pAfter, pErr);
  if (eAct == PRUNE && bxEvExcess(pAfter, 0) > 0) {
    bxEvRefuseHeld(p, pErr);
    bxEvRemovePruned(p, pAfter, "prune", 0, 0, pErr);
  } else if (eAct == SHOTS && pAfter->nFree > nKeep) {
    bxEvRefuseHeld(p, pErr);
    bxEvRemoveShots(p, pAfter, "hold", nKeep, 0, pErr);
  } else if (eAct == CLEAR) {
    if (pAfter->nAction > 0) bxEvRefuseHeld(p, pErr);
    bxEvRemoveAll(p, pAfter, pErr);
  }
  bxEvFinish(p, pAfter, pErr);
  bxEvSweep(p, pAfter, EV_SWEEP_ALL, pErr);
  bxEvFreeState(pBefore); /* frees the texts; the caller uses the numbers */
  bxEvFreeState(pAfter);
}

void bxEvPrune(BxCall *pCall) {
  EvState before, after;
  i64 iStart = bxNow();
  act(pCall, PRUNE, 0, &before, &after);
  if (pCall->err.rc != SQLITE_OK) return;
  bxReturnJson(pCall, pruneResult(&before, &after, iStart, ""));
}

void bxEvPruneScreenshots(BxCall *pCall) {
  EvState before, after;
  i64 n = bxInt(pCall->aArg[1], "n", 0, MAX_ROWS, &pCall->err);
  if (pCall->err.rc != SQLITE_OK) return;
  act(pCall, SHOTS, n, &before, &after);
  bxReturnInt(pCall, before.nScreenshot - after.nScreenshot);
}

void bxEvClear(BxCall *pCall) {
  EvState before, after;
  act(pCall, CLEAR, 0, &before, &after);
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
        p->pOn->zTable, p->pOn->zTable, p->pOn->zTable);
  } else if (p->bTemp) {
    nMoved = bxEvOverflowMove(p, &state, -1, &pCall->err);
    bxEvFinish(p, &state, &pCall->err);
  }
  bxEvFreeState(&state);
  bxReturnInt(pCall, nMoved);
}

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
  EvBuffer *p = bxEvFind(pCall);
  char *z;
  if (p == 0) return;
  bxEvExpectKnown(p, &pCall->err);
  z = bxQueryText(p->pOn,
      "SELECT json_object('totalSize', bytes, 'actionCount', actions,"
      " 'screenshotCount', screenshots,"
      " 'oldestTimestamp', (SELECT min(timestamp) FROM main.@_rows),"
      " 'newestTimestamp', (SELECT max(timestamp) FROM main.@_rows),"
      " 'capacityUsed', bytes * 1.0 / max_size_bytes,"
      " 'usingOverflow', json(CASE WHEN overflowed > 0 THEN 'true'"
      " ELSE 'false' END)) FROM main.@_state",
      &pCall->err, "");
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
  if (bxStep(pStmt, pErr)) {
    sqlite3_str_appendf(pOut, "%s%s", sqlite3_str_length(pOut) > 1 ? "," : "",
        bxColumnText(pStmt, 0, pErr));
  }
  sqlite3_finalize(pStmt);
}

/* Every buffer of a schema is found by its name in the schema: the list of connected
** tables may have a buffer under a name that was rolled back. A buffer that cannot be
** read is skipped; blackbox_check() reports it. */
sqlite3_stmt *bxEvStatsTable(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(bx->db);
  sqlite3_stmt *pDbs = 0, *pNames;
  BxVtab *pVtab;
  sqlite3_str_appendchar(pOut, 1, '[');
  if (apArg[0] != 0) {
    pVtab = bxVtabFind(bx, EV_MODULE, apArg[0], pErr);
    if (pVtab != 0) bxEvExpectKnown((EvBuffer *)pVtab, pErr);
    if (pVtab != 0) addStats(pVtab, pOut, pErr);
  } else {
    pDbs = bxPrepareSql(bx->db, "SELECT name FROM pragma_database_list", pErr);
  }
  while (pDbs != 0 && bxStep(pDbs, pErr)) {
    BxStmts *p = bxSchema(bx, bxColumnText(pDbs, 0, pErr), pErr);
    const char *zName;
    pNames = p != 0 ? bxVtabNames(p, EV_MODULE, pErr) : 0;
    while (
        bxStep(pNames, pErr) && (zName = bxColumnText(pNames, 0, pErr)) != 0) {
      BxErr err = {SQLITE_OK, 0};
      pVtab = bxVtabIn(bx, EV_MODULE, p->zDb, zName, &err);
      if (pVtab != 0) bxEvExpectKnown((EvBuffer *)pVtab, &err);
      if (pVtab != 0 && err.rc == SQLITE_OK) addStats(pVtab, pOut, pErr);
      if (err.rc != SQLITE_ERROR) bxErrMove(pErr, &err); /* of a newer module */
      bxErrClear(&err);
    }
    sqlite3_finalize(pNames);
  }
  sqlite3_finalize(pDbs);
  sqlite3_str_appendchar(pOut, 1, ']');
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3,"
      " value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8,"
      " value ->> 9, value ->> 10, value ->> 11, value ->> 12,"
      " value ->> 13 FROM json_each(?1)",
      sqlite3_str_finish(pOut), pErr);
}
