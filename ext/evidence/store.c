/*
** store.c: writes and reads the rows of an evidence buffer, and its settings.
**
** A write checks everything that can be refused before it changes anything. (After
** that, an error undoes the statement: see core/transaction.c.) The second tier of a
** buffer in temp is in another schema, so that its part comes before (evidence is
** copied there, then deleted here) or after (evidence that was removed here is then
** removed there). A failure leaves an extra copy, never a loss.
**
** The default of id and timestamp is that of the action. A size is the bytes of
** the action, plus those of the screenshot, plus EV_ROW_BYTES.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define MAX_TEXT 1000000000

/* Rows move to the overflow above the first part, until the second is
** reached. */
#define OVERFLOW_HIGH 0.8
#define OVERFLOW_LOW 0.7

/* The values that CREATE and the command column accept, for messages. */
static const char zAllowed[] =
    "max_size_bytes (1000 to 1099511627776), prune_threshold (0.1 to 1), "
    "retention_policy ('keep-all', 'keep-last-n' or 'confidence-based'), "
    "max_screenshots (0 to 1000000), overflow (a schema, for buffers in temp)";

/* The settings that are one value, and the numbers that they may be. */
static const struct {
  const char *zName, *zSql;
  double rLow, rHigh;
  int bWhole;
} aSetting[] = {
    {"max_size_bytes",
        "UPDATE main.@_state SET max_size_bytes = CAST(?1 AS INTEGER)", 1000.0,
        1099511627776.0, 1},
    {"prune_threshold",
        "UPDATE main.@_state SET prune_threshold = CAST(?1 AS REAL)", 0.1, 1.0,
        0},
    {"retention_policy", "UPDATE main.@_state SET retention_policy = ?1", 0, 0,
        0},
    {"max_screenshots",
        "UPDATE main.@_state SET max_screenshots = CAST(?1 AS INTEGER)", 0.0,
        1000000.0, 1}};
enum { SET_MAX, SET_THRESHOLD, SET_POLICY, SET_SHOTS, SETTINGS };

/* overflow can change only while the old schema has no rows. */
static void setOverflow(EvBuffer *p, sqlite3_value *pVal, BxErr *pErr) {
  const char *zDb = (const char *)sqlite3_value_text(pVal);
  EvState state;
  assert(pVal != 0);
  bxEvLoadState(p, &state, pErr);
  if (pErr->rc == SQLITE_OK && state.nOverflow > 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: the overflow has %lld rows of %s, and cannot change "
        "until it is empty; call evidence_export(), and then evidence_clear()",
        state.nOverflow, p->pOn->zTable);
  }
  if (zDb != 0 && zDb[0] != 0) bxEvOverflowExpect(p, zDb, pErr);
  if (pErr->rc == SQLITE_OK && state.zOverflow != 0) {
    bxEvOverflowDrop(p, &state, pErr);
  }
  if (zDb == 0 || zDb[0] == 0) {
    bxStmtExec(p->pOn,
        "UPDATE main.@_state SET overflow = '', owner = '', claim = ''", pErr,
        "");
  } else {
    bxEvOverflowOpen(p, zDb, 0, pErr);
  }
  bxEvFreeState(&state);
}

/* What the settings demand of the rows that are there: what pins do not leave room
** for is refused. bCheck: only this, before anything changes. */
static void settleRows(EvBuffer *p, EvState *pState, int bCheck, BxErr *pErr) {
  double rLimit = (double)pState->nMax * pState->rThreshold;
  int bPrune = (double)pState->nBytes > rLimit;
  int bShots = pState->nKeep >= 0 && pState->nFree > pState->nKeep;
  assert(bCheck == 0 || bCheck == 1);
  if (pErr->rc != SQLITE_OK) return;
  if (bCheck && pState->nPinned > pState->nMax) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "BufferFullError: pinned evidence has %lld bytes, more than the new "
        "max_size_bytes of %lld; unpin rows first",
        pState->nPinned, pState->nMax);
  } else if (bCheck) {
    if (bPrune || bShots) bxEvRefuseHeld(p, pErr);
  } else {
    if (bPrune) bxEvRemovePruned(p, pState, "threshold", 0, 0, pErr);
    if (bShots) {
      bxEvRemoveShots(p, pState, "max_screenshots", pState->nKeep, 0, pErr);
    }
  }
}

void bxEvSet(EvBuffer *p, const char *zName, sqlite3_value *pVal, BxErr *pErr) {
  EvState state;
  const char *z = 0;
  double r;
  int i = 0, eType, bGood, bRated;
  assert(pVal != 0 || pErr->rc != SQLITE_OK);
  if (pErr->rc != SQLITE_OK) return;
  if (sqlite3_stricmp(zName, "overflow") == 0) {
    setOverflow(p, pVal, pErr);
    return;
  }
  while (i < SETTINGS && sqlite3_stricmp(zName, aSetting[i].zName) != 0) i++;
  if (i == SETTINGS) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: there is no command or setting %Q; the command is "
        "'sweep', and the settings are %s",
        zName, zAllowed);
    return;
  }
  if (i == SET_POLICY) {
    z = (const char *)sqlite3_value_text(pVal);
    bGood = z != 0 &&
            (strcmp(z, "keep-all") == 0 || strcmp(z, "keep-last-n") == 0 ||
                strcmp(z, "confidence-based") == 0);
  } else {
    eType = sqlite3_value_numeric_type(pVal);
    r = sqlite3_value_double(pVal);
    bGood = (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) &&
            r >= aSetting[i].rLow && r <= aSetting[i].rHigh &&
            (!aSetting[i].bWhole || r == (double)(i64)r);
  }
  if (!bGood) {
    char *zRule =
        i == SET_POLICY
            ? bxPrintf(pErr, "'keep-all', 'keep-last-n' or 'confidence-based'")
            : bxPrintf(pErr, "a %s from %.15g to %.15g",
                  aSetting[i].bWhole ? "whole number" : "number",
                  aSetting[i].rLow, aSetting[i].rHigh);
    if (zRule != 0) bxRefuseArg(pErr, zName, zRule, pVal);
    sqlite3_free(zRule);
    return;
  }
  bxEvLoadState(p, &state, pErr);
  bRated = state.bRated;
  switch (i) { /* the state as it will be */
    case SET_MAX: state.nMax = sqlite3_value_int64(pVal); break;
    case SET_THRESHOLD: state.rThreshold = sqlite3_value_double(pVal); break;
    case SET_POLICY:
      state.bRated = strcmp(z, "confidence-based") == 0;
      state.nKeep = bxQueryInt(p->pOn,
          "SELECT CASE ?1 WHEN 'keep-last-n' THEN max_screenshots ELSE -1 END"
          " FROM main.@_state",
          pErr, "t", z);
      break;
    default:
      if (state.nKeep >= 0) state.nKeep = sqlite3_value_int64(pVal);
  }
  settleRows(p, &state, 1, pErr);
  bxEvOverflowOurs(p, &state, pErr);
  bxStmtExec(p->pOn, aSetting[i].zSql, pErr, "v", pVal);
  if (state.bRated != bRated) bxEvRate(p, state.bRated, pErr);
  settleRows(p, &state, 0, pErr);
  bxEvFinish(p, &state, pErr);
  bxEvFreeState(&state);
}

void bxEvFirstState(EvBuffer *p, const EvParam *pParam, BxErr *pErr) {
  const char *zResume = pParam->az[PARAM_RESUME];
  EvState state;
  int i;
  bxExec(p->pOn,
      "INSERT INTO main.@_state VALUES(1, 73400320, 0.9, 'keep-all', 50,"
      " '', '', '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
      pErr);
  for (i = 0; i < SETTINGS && pErr->rc == SQLITE_OK; i++) {
    sqlite3_stmt *pStmt;
    if (pParam->az[i][0] == 0) continue;
    pStmt = bxPrepare(p->pOn, "SELECT ?1", pErr);
    bxBind(pStmt, pErr, "t", pParam->az[i]);
    if (bxStep(pStmt, pErr)) {
      bxEvSet(p, aSetting[i].zName, sqlite3_column_value(pStmt, 0), pErr);
    }
    sqlite3_finalize(pStmt);
  }
  if (pErr->rc != SQLITE_OK) return;
  if (pParam->az[PARAM_OVERFLOW][0] != 0) {
    bxEvOverflowOpen(
        p, pParam->az[PARAM_OVERFLOW], *zResume ? zResume : 0, pErr);
    if (pErr->rc != SQLITE_OK) return;
    /* Rows that were taken over get the confidence that the policy needs, and are
    ** pruned to the limits of size and number. */
    bxEvLoadState(p, &state, pErr);
    bxEvCountRows(p, &state, pErr);
    bxEvRate(p, state.bRated, pErr);
    settleRows(p, &state, 0, pErr);
    bxEvFinish(p, &state, pErr);
    bxEvFreeState(&state);
  } else if (*zResume != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: resume needs overflow='<schema>', the schema with "
        "the rows to take over; add it");
  }
}

int bxEvIsObject(const char *z, int n) {
  int i = 0;
  assert(n >= 0);
  while (i < n && strchr(" \t\r\n", z[i]) != 0) i++;
  return i < n && z[i] == '{';
}

static void failAction(BxErr *pErr, sqlite3_value *pAction) {
  bxRefuse(pErr,
      "ValidationError: action must be a JSON object, as in '{\"id\": \"a1\", "
      "\"timestamp\": 1700000000000, ...}', got %s",
      pAction);
}

/* Checks the type and the first character; readAction() checks the rest. */
static void checkAction(sqlite3_value *pAction, BxErr *pErr) {
  const char *z = 0;
  int bText = pAction != 0 && sqlite3_value_type(pAction) == SQLITE_TEXT;
  if (bText) z = bxText(pAction, "action", MAX_TEXT, 0, pErr);
  if (!bText || (z != 0 && !bxEvIsObject(z, sqlite3_value_bytes(pAction)))) {
    failAction(pErr, pAction);
  }
}

static void checkScreenshot(sqlite3_value *pVal, BxErr *pErr) {
  int eType = pVal ? sqlite3_value_type(pVal) : SQLITE_NULL;
  if (eType == SQLITE_NULL || pErr->rc != SQLITE_OK) return;
  if (eType == SQLITE_BLOB && sqlite3_value_bytes(pVal) > 0) return;
  bxRefuse(pErr,
      "ValidationError: screenshot must be a blob that is not empty (the "
      "image file's bytes), or NULL; got %s",
      pVal);
}

/* pinned as 0 or 1; the default is 0. */
static i64 pinnedOf(sqlite3_value *pVal, BxErr *pErr) {
  assert(pErr != 0);
  if (pVal == 0 || sqlite3_value_type(pVal) == SQLITE_NULL) return 0;
  return bxInt(pVal, "pinned", 0, 1, pErr);
}

/* The text or number at a path of the action; NULL for anything else. */
#define SCALAR(path)                                                           \
  "CASE WHEN json_type(?1, '" path "') IN ('text', 'integer', 'real') "        \
  "THEN ?1 ->> '" path "' END"

/* The same for an id. SQLite would end the text at a NUL. Such an id counts as
** text, and is refused because of the NUL. */
#define ID_AT(path)                                                            \
  "CASE WHEN json_type(?1, '" path                                             \
  "') = 'text' AND instr(replace(?1 -> '" path                                 \
  "', '\\\\', ''), '\\u0000') > 0 THEN char(0) ELSE " SCALAR(path) " END"

/* Checks that the action is JSON, and reads from it the id or timestamp that is
** missing. The caller frees the copies in *apOwn. */
static void readAction(
    EvBuffer *p, EvRow *pRow, sqlite3_value **apOwn, BxErr *pErr) {
  /* clang-format off */
  static const char zValid[] = "SELECT 1 WHERE " BX_JSON_VALID("?1");
  static const char zSql[] =
      "SELECT coalesce(" ID_AT("$.id") ", " ID_AT("$.actionId") "), "
      "coalesce(" SCALAR("$.timestamp") ", "
      "nullif(?1 -> '$.timestamp', 'null')) WHERE " BX_JSON_VALID("?1");
  /* clang-format on */
  sqlite3_value **const app[] = {&pRow->pId, &pRow->pTimestamp};
  sqlite3_stmt *pStmt;
  int i, bNeed = 0;
  for (i = 0; i < 2 && apOwn != 0; i++) {
    if (*app[i] != 0 && sqlite3_value_type(*app[i]) == SQLITE_NULL) *app[i] = 0;
    bNeed |= *app[i] == 0;
  }
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxStmt(p->pOn, bNeed ? zSql : zValid, pErr);
  bxBind(pStmt, pErr, "s", pRow->pAction);
  if (bxStep(pStmt, pErr)) {
    for (i = 0; i < 2 && bNeed; i++) {
      if (*app[i] != 0) continue;
      apOwn[i] = sqlite3_value_dup(sqlite3_column_value(pStmt, i));
      *app[i] = bxCheckMem(apOwn[i], pErr);
    }
  } else if (pErr->rc == SQLITE_OK) {
    failAction(pErr, pRow->pAction);
  }
  bxReset(pStmt, pErr);
}

/* The confidence of an action, which was checked, if the policy needs it. */
static double rateAction(
    EvBuffer *p, int bRated, sqlite3_value *pAction, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  double r = -1;
  assert(bRated == 0 || bRated == 1);
  if (!bRated || pAction == 0) return r;
  pStmt = bxStmt(p->pOn, "SELECT " EV_BEST("?1"), pErr);
  bxBind(pStmt, pErr, "s", pAction);
  if (bxStep(pStmt, pErr)) r = sqlite3_column_double(pStmt, 0);
  bxReset(pStmt, pErr);
  return r;
}

void bxEvRate(EvBuffer *p, int bRated, BxErr *pErr) {
  char *zAll, *zSql;
  sqlite3_stmt *pStmt;
  assert(bRated == 0 || bRated == 1);
  if (pErr->rc != SQLITE_OK) return;
  bxStmtExec(p->pOn,
      "UPDATE main.@_rows SET confidence = -1 WHERE confidence <> -1", pErr,
      "");
  zAll = bRated ? bxEvActions(p, pErr) : 0;
  if (zAll == 0) return;
  zSql = bxPrintf(pErr,
      "UPDATE \"%w\".\"%w_rows\" AS n SET confidence = CASE "
      "WHEN " BX_JSON_VALID("o.action") " THEN " EV_BEST(
          "o.action") " ELSE -1 END"
                      " FROM %s AS o WHERE o.rid = n.rid",
      p->pOn->zDb, p->pOn->zTable, zAll);
  pStmt = bxEvPrepareActions(p, zSql, pErr);
  bxStep(pStmt, pErr);
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  sqlite3_free(zAll);
}

void bxEvRefuseHeld(EvBuffer *p, BxErr *pErr) {
  char *zOwner;
  /* Whether the file has holds, at little cost. (The domain may be removed.) */
  if (pErr->rc != SQLITE_OK || p->bTemp ||
      !bxTableExists(p->pOn->bx, p->pOn->zDb, "retention__in_force") ||
      bxQueryInt(p->pOn, "SELECT 1 FROM main.retention__in_force LIMIT 1", pErr,
          "") == 0) {
    return;
  }
  zOwner = bxShadowHolder(&p->base, pErr);
  if (zOwner != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "HeldError: a hold keeps this buffer (by %s), in which nothing can be "
        "changed, pruned or deleted; increase max_size_bytes, or end the hold "
        "with retention_release()",
        zOwner);
  }
  sqlite3_free(zOwner);
}

void bxEvFinish(EvBuffer *p, EvState *pState, BxErr *pErr) {
  assert(pErr->rc != SQLITE_OK || pState->nAction >= 0);
  bxEvSaveState(p, pState, pErr);
  bxEvOverflowSweep(p, pState, pErr);
}

/* Checks that a row of nNew bytes, which has nOld bytes now, can fit. */
static void checkSize(EvBuffer *p, const EvState *pState, const char *zId,
    i64 nNew, i64 nPinned, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  assert(nNew >= EV_ROW_BYTES && nPinned >= 0);
  if (nNew > pState->nMax) {
    bxFail(pErr, SQLITE_TOOBIG,
        "DataTooLargeError: evidence %Q has %lld bytes, and max_size_bytes is "
        "%lld; increase it: INSERT INTO \"%w\"(\"%w\", value) "
        "VALUES('max_size_bytes', %lld)",
        zId, nNew, pState->nMax, p->pOn->zTable, p->pOn->zTable, nNew * 2);
  } else if (nPinned + nNew > pState->nMax) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "BufferFullError: pinned evidence holds %lld of %lld bytes and leaves "
        "no room for %lld; unpin rows (UPDATE \"%w\" SET pinned = 0 WHERE id = "
        "...) or increase max_size_bytes",
        nPinned, pState->nMax, nNew, p->pOn->zTable);
  }
}

/* Makes room in memory for nNew bytes if there is an overflow. */
static void makeMemory(EvBuffer *p, EvState *pState, i64 nNew, BxErr *pErr) {
  double rMax = (double)pState->nMax;
  i64 nGoal;
  assert(p->bTemp || pState->zOverflow == 0);
  assert(nNew >= EV_ROW_BYTES);
  if (pErr->rc != SQLITE_OK || pState->zOverflow == 0) return;
  if ((double)(pState->nMemory + nNew) <= rMax * OVERFLOW_HIGH) return;
  nGoal = (i64)(rMax * OVERFLOW_LOW) - nNew;
  bxEvOverflowMove(p, pState, nGoal > 0 ? nGoal : 0, pErr);
}

/* What a write makes of the rows that are there. */
typedef struct Growth {
  i64 nGrowth; /* bytes that are added */
  i64 nFree;   /* screenshots that are added and can be removed again */
  i64 iSpared; /* the row that must stay; 0: it is new */
} Growth;

static int mustPrune(const EvState *pState, const Growth *pGrowth) {
  assert(pGrowth->iSpared >= 0);
  return pGrowth->nGrowth > 0 && (double)(pState->nBytes + pGrowth->nGrowth) >
                                     (double)pState->nMax * pState->rThreshold;
}

/* If the buffer is to prune: checks, before anything changes, that no hold forbids
** it, and that the rows in the overflow still belong to this buffer. */
static void expectRoom(
    EvBuffer *p, EvState *pState, const Growth *pGrowth, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  if (mustPrune(pState, pGrowth) ||
      (pState->nKeep >= 0 && pState->nFree + pGrowth->nFree > pState->nKeep)) {
    bxEvRefuseHeld(p, pErr);
    bxEvPrepareRemoval(p, pErr);
    bxEvOverflowOurs(p, pState, pErr);
  }
}

/* Before the row is written. */
static void makeBufferRoom(
    EvBuffer *p, EvState *pState, const Growth *pGrowth, BxErr *pErr) {
  if (!mustPrune(pState, pGrowth) || pErr->rc != SQLITE_OK) return;
  bxEvRemovePruned(
      p, pState, "threshold", pGrowth->nGrowth, pGrowth->iSpared, pErr);
}

/* After it. */
static void finishWrite(EvBuffer *p, EvState *pState, BxErr *pErr) {
  if (pState->nKeep >= 0) {
    bxEvRemoveShots(p, pState, "max_screenshots", pState->nKeep, 0, pErr);
  }
  bxEvFinish(p, pState, pErr);
  bxEvSweepStep(p, pState, pErr);
}

static void setPinned(
    EvBuffer *p, EvState *pState, EvRecord *pRow, i64 iNo, BxErr *pErr) {
  bxStmtExec(p->pOn, "UPDATE main.@_rows SET pinned = ?2 WHERE rid = ?1", pErr,
      "ii", pRow->iRow, iNo);
  bxEvCount(pState, pRow, -1);
  pRow->iPinned = iNo;
  bxEvCount(pState, pRow, 1);
}

/* Moves the action and the screenshot of a row behind the guards of the domain, or
** back. A buffer in temp, which only its connection has, needs no guards. */
static void pinRow(EvBuffer *p, EvState *pState, EvRecord *pRow, BxErr *pErr) {
  static const char zIn[] =
      "INSERT INTO main.evidence__pinned(no, buffer, id, timestamp, action,"
      " screenshot) SELECT ?2, '@', id, timestamp, (SELECT action"
      "  FROM main.@_actions AS a WHERE a.rid = iif(pruned, -r.rid, r.rid)),"
      " CASE WHEN screenshot_bytes > 0 THEN (SELECT screenshot"
      "  FROM main.@_shots AS s WHERE s.rid = r.rid) END"
      " FROM main.@_rows AS r WHERE rid = ?1";
  i64 iNo = 1;
  assert(pRow->iPinned == 0);
  if (!p->bTemp) {
    iNo = bxQueryInt(p->pOn,
        "SELECT coalesce(max(no), 0) + 1 FROM main.evidence__pinned", pErr, "");
    bxStmtExec(p->pOn, zIn, pErr, "ii", pRow->iRow, iNo);
    bxEvDropData(p, pRow->iRow, pErr);
  }
  setPinned(p, pState, pRow, iNo, pErr);
}

static void unpinRow(
    EvBuffer *p, EvState *pState, EvRecord *pRow, BxErr *pErr) {
  static const char *const azSql[] = {
      "INSERT OR REPLACE INTO main.@_actions(rid, action) SELECT iif(pruned,"
      " -rid, rid), e.action FROM main.@_rows, main.evidence__pinned AS e"
      " WHERE rid = ?1 AND no = ?2 AND e.action IS NOT NULL",
      "INSERT OR REPLACE INTO main.@_shots(rid, screenshot) SELECT ?1,"
      " screenshot FROM main.evidence__pinned"
      " WHERE no = ?2 AND screenshot IS NOT NULL",
      "UPDATE main.evidence__pinned SET pinned = 0 WHERE no = ?2",
      "DELETE FROM main.evidence__pinned WHERE no = ?2"};
  int i;
  assert(pRow->iPinned != 0);
  for (i = 0; i < 4 && !p->bTemp; i++) {
    bxStmtExec(p->pOn, azSql[i], pErr, "ii", pRow->iRow, pRow->iPinned);
  }
  setPinned(p, pState, pRow, 0, pErr);
}

/* With a file that has lost its domain, a pin is refused before anything changes. */
static void expectPins(EvBuffer *p, BxErr *pErr) {
  if (p->bTemp) return;
  bxQueryInt(p->pOn, "SELECT 1 FROM main.evidence__pinned LIMIT 1", pErr, "");
}

static const char zPutRow[] =
    "INSERT INTO main.@_rows(rid, id, timestamp, action_bytes,"
    " screenshot_bytes, pruned, pinned, confidence, place)"
    " VALUES(?1, ?2, ?3, ?4, ?5, 0, 0, ?6, ?7)";
static const char zPutAction[] =
    "INSERT OR REPLACE INTO main.@_actions(rid, action) VALUES(?1, ?2)";
static const char zPutShot[] =
    "INSERT OR REPLACE INTO main.@_shots(rid, screenshot) VALUES(?1, ?2)";

/* Stores a row whose id is new. */
static i64 storeNew(EvBuffer *p, const EvRow *pRow, const char *zId, i64 iTime,
    i64 iPinned, BxErr *pErr) {
  static const char *const azSql[] = {
      zPutRow, zPutAction, zPutShot, bxEvSaveSql};
  sqlite3_stmt *apStmt[4];
  i64 nAction = bxBytes(pRow->pAction), nShot = bxBytes(pRow->pScreenshot);
  i64 nNew = nAction + nShot + EV_ROW_BYTES;
  Growth growth = {nNew, nShot > 0 && !iPinned, 0};
  EvRecord row = {0, iTime, nAction, nShot, 0, 0, 0};
  EvState state;
  double rRate;
  assert(zId != 0 && (iPinned == 0 || iPinned == 1));
  bxEvLoadState(p, &state, pErr);
  checkSize(p, &state, zId, nNew, state.nPinned, pErr);
  rRate = rateAction(p, state.bRated, pRow->pAction, pErr);
  if (iPinned) expectPins(p, pErr);
  bxStmtSet(p->pOn, azSql, 4, apStmt, pErr);
  expectRoom(p, &state, &growth, pErr);
  makeMemory(p, &state, nNew, pErr); /* which may find the file locked */
  makeBufferRoom(p, &state, &growth, pErr);
  row.iRow = ++state.iLast;
  row.ePlace = p->bTemp ? EV_MEMORY : EV_FILE;
  bxStmtExec(p->pOn, zPutRow, pErr, "itiiidi", row.iRow, zId, iTime, nAction,
      nShot, rRate, (i64)row.ePlace);
  bxStmtExec(p->pOn, zPutAction, pErr, "is", row.iRow, pRow->pAction);
  if (nShot > 0) {
    bxStmtExec(p->pOn, zPutShot, pErr, "is", row.iRow, pRow->pScreenshot);
  }
  bxEvCount(&state, &row, 1);
  if (iPinned) pinRow(p, &state, &row, pErr);
  finishWrite(p, &state, pErr);
  bxEvFreeState(&state);
  return row.iRow;
}

i64 bxEvStore(EvBuffer *p, EvRow *pRow, BxErr *pErr) {
  sqlite3_value *apOwn[2] = {0, 0};
  const char *zId;
  i64 iTime, iPinned, iRow;
  checkAction(pRow->pAction, pErr);
  checkScreenshot(pRow->pScreenshot, pErr);
  readAction(p, pRow, apOwn, pErr);
  zId = bxText(pRow->pId, "id (or the action's id)", 1000, 0, pErr);
  iTime = bxTime(pRow->pTimestamp, "timestamp", pErr);
  iPinned = pinnedOf(pRow->pPinned, pErr);
  iRow = bxQueryInt(
      p->pOn, "SELECT rid FROM main.@_rows WHERE id = ?1", pErr, "t", zId);
  if (pErr->rc != SQLITE_OK) {
    iRow = 0;
  } else if (iRow == 0) {
    iRow = storeNew(p, pRow, zId, iTime, iPinned, pErr);
  } else if (!pRow->bReplace) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "DuplicateError: %s already has evidence %Q; use INSERT OR REPLACE to "
        "overwrite it, INSERT OR IGNORE to keep it, or UPDATE (SQLite has no "
        "ON CONFLICT DO UPDATE for virtual tables)",
        p->pOn->zTable, zId);
  } else {
    pRow->bHasPicture = 1;
    bxEvChange(p, iRow, pRow, pErr);
  }
  sqlite3_value_free(apOwn[0]);
  sqlite3_value_free(apOwn[1]);
  return iRow;
}

/* The id of a row, to sqlite3_free(), and what it counts for. NULL: none. */
static char *readBefore(EvBuffer *p, i64 iRow, EvRecord *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(
      p->pOn, "SELECT id, " EV_RECORD " FROM main.@_rows WHERE rid = ?1", pErr);
  char *zId = 0;
  assert(pOut != 0);
  memset(pOut, 0, sizeof(*pOut));
  bxBind(pStmt, pErr, "i", iRow);
  if (bxStep(pStmt, pErr)) {
    zId = bxColumnCopy(pStmt, 0, pErr);
    bxEvReadRecord(pStmt, 1, pOut);
  }
  bxReset(pStmt, pErr);
  return zId;
}

static void failPinned(EvBuffer *p, const char *zId, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "PinnedError: evidence %Q is pinned and cannot be changed or deleted; "
      "unpin it first: UPDATE \"%w\" SET pinned = 0 WHERE id = %Q",
      zId, p->pOn->zTable, zId);
}

/* Moves the row from the overflow into memory, at first, or after room was made
** for it. */
static void fetchRow(
    EvBuffer *p, EvState *pState, EvRecord *pRow, i64 nNew, BxErr *pErr) {
  char *zId;
  if (pState->zOverflow == 0) return;
  makeMemory(p, pState, nNew, pErr);
  zId = readBefore(p, pRow->iRow, pRow, pErr);
  if (zId != 0 && pRow->ePlace == EV_OVERFLOW) {
    bxEvOverflowBack(p, pState, pRow, pErr);
  }
  sqlite3_free(zId);
}

/* Writes action and screenshot of a row that is not pinned. */
static void writeData(EvBuffer *p, EvState *pState, const EvRow *pRow,
    EvRecord *pNow, i64 iTime, BxErr *pErr) {
  double rRate = rateAction(p, pState->bRated, pRow->pAction, pErr);
  i64 nShot = pRow->bHasPicture ? bxBytes(pRow->pScreenshot) : pNow->nShot;
  assert(pNow->iPinned == 0);
  if (pNow->nShot > 0 && nShot == 0) bxEvRemoveShot(p, pState, pNow, pErr);
  bxEvCount(pState, pNow, -1);
  pNow->iTime = iTime;
  if (pRow->pAction != 0) {
    bxStmtExec(p->pOn, zPutAction, pErr, "is", pNow->iRow, pRow->pAction);
    if (pNow->iPruned) {
      bxStmtExec(p->pOn, "DELETE FROM main.@_actions WHERE rid = -?1", pErr,
          "i", pNow->iRow);
    }
    bxStmtExec(p->pOn, "UPDATE main.@_rows SET confidence = ?2 WHERE rid = ?1",
        pErr, "id", pNow->iRow, rRate);
    pNow->nAction = bxBytes(pRow->pAction);
    pNow->iPruned = 0;
  }
  if (pRow->bHasPicture && nShot > 0) {
    bxStmtExec(p->pOn, zPutShot, pErr, "is", pNow->iRow, pRow->pScreenshot);
    pNow->nShot = nShot;
  }
  bxStmtExec(p->pOn,
      "UPDATE main.@_rows SET timestamp = ?2, action_bytes = ?3,"
      " screenshot_bytes = ?4, pruned = ?5 WHERE rid = ?1",
      pErr, "iiiii", pNow->iRow, pNow->iTime, pNow->nAction, pNow->nShot,
      pNow->iPruned);
  bxEvCount(pState, pNow, 1);
}

void bxEvChange(EvBuffer *p, i64 iRow, EvRow *pRow, BxErr *pErr) {
  EvRecord was, now;
  EvState state;
  Growth growth = {0, 0, iRow};
  i64 nNew, nOld, nAction, nShot, iTime, iPinned;
  int bAction = pRow->pAction != 0, bShot = pRow->bHasPicture;
  int bData = bAction || bShot || pRow->pTimestamp != 0;
  int bPin = pRow->pPinned != 0 || pRow->bReplace;
  const char *zSame;
  char *zId = readBefore(p, iRow, &was, pErr);
  assert(pRow->pScreenshot == 0 || pRow->bHasPicture);
  if (zId == 0) return;
  zSame = pRow->pId ? (const char *)sqlite3_value_text(pRow->pId) : zId;
  if (zSame == 0 || strcmp(zSame, zId) != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: the id of evidence cannot change; INSERT a new row "
        "and DELETE the old one");
  }
  if (bAction) checkAction(pRow->pAction, pErr);
  if (bAction && !pRow->bReplace) readAction(p, pRow, 0, pErr);
  checkScreenshot(pRow->pScreenshot, pErr);
  iTime = pRow->pTimestamp != 0 ? bxTime(pRow->pTimestamp, "timestamp", pErr)
                                : was.iTime;
  iPinned = pinnedOf(pRow->pPinned, pErr);
  if (was.iPinned && bData) failPinned(p, zId, pErr);
  if (bData) bxEvRefuseHeld(p, pErr);
  if (bPin) expectPins(p, pErr);
  bxEvLoadState(p, &state, pErr);
  nAction = bAction ? bxBytes(pRow->pAction) : was.nAction;
  nShot = bShot ? bxBytes(pRow->pScreenshot) : was.nShot;
  nOld = was.nAction + was.nShot + EV_ROW_BYTES;
  nNew = nAction + nShot + EV_ROW_BYTES;
  if (nNew > nOld) checkSize(p, &state, zId, nNew, state.nPinned, pErr);
  if ((bData || bPin) && pErr->rc == SQLITE_OK) {
    growth.nGrowth = nNew - nOld;
    growth.nFree = (nShot > 0 && !(bPin ? iPinned : was.iPinned)) -
                   (was.nShot > 0 && !was.iPinned);
    now = was;
    expectRoom(p, &state, &growth, pErr);
    fetchRow(p, &state, &now, nNew, pErr);
    makeBufferRoom(p, &state, &growth, pErr);
    if (bData) writeData(p, &state, pRow, &now, iTime, pErr);
    if (bPin && pErr->rc == SQLITE_OK && !now.iPinned != !iPinned) {
      (iPinned ? pinRow : unpinRow)(p, &state, &now, pErr);
    }
    finishWrite(p, &state, pErr);
  }
  bxEvFreeState(&state);
  sqlite3_free(zId);
}

void bxEvDelete(EvBuffer *p, i64 iRow, BxErr *pErr) {
  EvRecord row;
  EvState state;
  char *zId = readBefore(p, iRow, &row, pErr);
  if (zId == 0) return;
  if (row.iPinned) failPinned(p, zId, pErr);
  bxEvRefuseHeld(p, pErr);
  bxEvPrepareRemoval(p, pErr);
  bxEvLoadState(p, &state, pErr);
  if (row.ePlace == EV_OVERFLOW) bxEvOverflowOurs(p, &state, pErr);
  bxEvRemoveOne(p, &state, &row, pErr);
  bxEvFinish(p, &state, pErr);
  bxEvSweepStep(p, &state, pErr);
  bxEvFreeState(&state);
  sqlite3_free(zId);
}

sqlite3_stmt *bxEvPrepareTiers(
    EvBuffer *p, const char *zHere, const char *zBoth, BxErr *pErr) {
  EvState state = {0};
  sqlite3_stmt *pStmt;
  assert(zHere != 0 && zBoth != 0);
  if (p->bTemp) bxEvLoadState(p, &state, pErr);
  if (state.zOverflow != 0) {
    pStmt = bxEvPrepareOver(p, &state, zBoth, pErr);
    bxBind(pStmt, pErr, "-c", state.zOwner);
  } else {
    pStmt = bxPrepare(p->pOn, zHere, pErr);
  }
  bxEvFreeState(&state);
  return pStmt;
}

/* clang-format off */
#define ACTION_FROM "SELECT action, " BX_JSON_VALID("action") " FROM "
#define ACTION_HERE ACTION_FROM "main.@_actions WHERE rid = ?1"
#define SHOT_HERE "SELECT screenshot FROM main.@_shots WHERE rid = ?1"
#define IN_OVERFLOW "main.@_rows AS r, over.evidence__overflow AS o "          \
  "WHERE r.rid = abs(?1) AND r.place = 1 AND o.owner = ?2 AND o.id = r.id "

sqlite3_stmt *bxEvReadAction(EvBuffer *p, BxErr *pErr) {
  return bxEvPrepareTiers(p, ACTION_HERE,
      ACTION_HERE " UNION ALL " ACTION_FROM IN_OVERFLOW
      "AND action IS NOT NULL", pErr);
}

sqlite3_stmt *bxEvReadScreenshot(EvBuffer *p, BxErr *pErr) {
  return bxEvPrepareTiers(p, SHOT_HERE,
      SHOT_HERE " UNION ALL SELECT screenshot FROM " IN_OVERFLOW
      "AND r.screenshot_bytes > 0 AND screenshot IS NOT NULL", pErr);
}

sqlite3_stmt *bxEvReadPinned(EvBuffer *p, BxErr *pErr) {
  return bxPrepare(p->pOn,
      "SELECT action, " BX_JSON_VALID("action") ", screenshot"
      " FROM main.evidence__pinned WHERE no = ?1", pErr);
}
/* clang-format on */

char *bxEvActions(EvBuffer *p, BxErr *pErr) {
  static const char zFile[] =
      "SELECT r.rid AS rid, r.id AS id, r.timestamp AS timestamp,"
      " r.pinned <> 0 AS pinned, r.pruned AS pruned, r.place AS place,"
      " coalesce(e.action, a.action) AS action FROM main.@_rows AS r"
      " LEFT JOIN main.@_actions AS a ON a.rid = iif(r.pruned, -r.rid, r.rid)"
      " LEFT JOIN main.evidence__pinned AS e ON e.no = nullif(r.pinned, 0)";
  static const char zTemp[] =
      "SELECT r.rid AS rid, r.id AS id, r.timestamp AS timestamp,"
      " r.pinned AS pinned, r.pruned AS pruned, r.place AS place,"
      " a.action AS action FROM main.@_rows AS r"
      " LEFT JOIN main.@_actions AS a ON a.rid = iif(r.pruned, -r.rid, r.rid)"
      " WHERE r.place <> 1";
  EvState state = {0};
  char *z = 0, *zHere;
  const BxStmts *pStmts = p->pOn;
  bxEvExpectKnown(p, pErr);
  if (p->bTemp) bxEvLoadState(p, &state, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  zHere = bxExpand(p->bTemp ? zTemp : zFile, pStmts->zDb, pStmts->zTable);
  if (zHere != 0 && state.zOverflow != 0) {
    z = sqlite3_mprintf(
        "(%s UNION ALL SELECT r.rid, r.id, r.timestamp, r.pinned, r.pruned,"
        " r.place, o.action FROM \"%w\".\"%w_rows\" AS r"
        " LEFT JOIN \"%w\".evidence__overflow AS o"
        " ON o.owner = %Q AND o.id = r.id"
        " WHERE r.place = 1)",
        zHere, pStmts->zDb, pStmts->zTable, state.zOverflow, state.zOwner);
  } else if (zHere != 0) {
    z = sqlite3_mprintf("(%s)", zHere);
  }
  if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  sqlite3_free(zHere);
  bxEvFreeState(&state);
  return z;
}
