/*
** store.c: writes and reads the rows of an evidence buffer, and its settings.
**
** Every write is checked first, and is then one inner statement: an INSERT into
** the view rec_put, whose trigger does the rest (sql/evidence_buffer.sql). So
** an error leaves nothing half done, also inside a transaction. Only the second
** tier of a buffer in temp is in another schema. Its part comes before
** (evidence is copied there, then deleted here) or after (evidence that was
** removed here is then removed there), so that a failure leaves an extra copy,
** never a loss.
**
** The default of id and timestamp is that of the action. A size is the bytes of
** the action, plus those of the screenshot, plus EV_ROW_BYTES.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/* What an UPDATE changes, for the trigger on rec_put. */
#define HAS_TIMESTAMP 1
#define HAS_ACTION 2
#define HAS_SCREENSHOT 4
#define HAS_PINNED 8
#define HAS_DATA (HAS_TIMESTAMP | HAS_ACTION | HAS_SCREENSHOT)

#define MAX_TEXT 1000000000

/* Rows move to the overflow above the first part, until the second is
** reached. */
#define OVERFLOW_HIGH 0.8
#define OVERFLOW_LOW 0.7

/*------------------------------------------------------ settings ----*/

/* The values that CREATE and the command column accept, for messages. */
static const char zAllowed[] =
    "max_size_bytes (1000 to 1099511627776), prune_threshold (0.1 to 1), "
    "retention_policy ('keep-all', 'keep-last-n' or 'confidence-based'), "
    "max_screenshots (0 to 1000000), overflow (a schema, for buffers in temp)";

static const char *const azPolicy[] = {
    "keep-all", "keep-last-n", "confidence-based"};

static void failSetting(BxErr *pErr, const char *zName, sqlite3_value *pVal) {
  char *zShown = bxShow(pVal);
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: %s cannot be %s; allowed are %s", zName,
      zShown ? zShown : "that", zAllowed);
  sqlite3_free(zShown);
}

/* Whether a value is a number from rLow to rHigh, an integer if bWhole. */
static int inRange(sqlite3_value *pVal, int bWhole, double rLow, double rHigh) {
  int eType = sqlite3_value_numeric_type(pVal);
  double r = sqlite3_value_double(pVal);
  if (eType != SQLITE_INTEGER && eType != SQLITE_FLOAT) return 0;
  return r >= rLow && r <= rHigh && (!bWhole || r == (double)(i64)r);
}

static int isPolicy(sqlite3_value *pVal) {
  const char *z = (const char *)sqlite3_value_text(pVal);
  int i;
  for (i = 0; z != 0 && i < 3; i++) {
    if (strcmp(z, azPolicy[i]) == 0) return 1;
  }
  return 0;
}

static const char zSetShots[] =
    "UPDATE main.@_state SET max_screenshots = CAST(?1 AS INTEGER)";

/* The UPDATE of a setting, or NULL with an error if it is out of range. */
static const char *settingSql(
    const char *zName, sqlite3_value *pVal, BxErr *pErr) {
  static const char zMax[] =
      "UPDATE main.@_state SET max_size_bytes = CAST(?1 AS INTEGER)";
  static const char zThreshold[] =
      "UPDATE main.@_state SET prune_threshold = CAST(?1 AS REAL)";
  static const char zPolicy[] = "UPDATE main.@_state SET retention_policy = ?1";
  const char *zSql = 0;
  int bGood = 0;
  if (sqlite3_stricmp(zName, "max_size_bytes") == 0) {
    zSql = zMax;
    bGood = inRange(pVal, 1, 1000.0, 1099511627776.0);
  } else if (sqlite3_stricmp(zName, "prune_threshold") == 0) {
    zSql = zThreshold;
    bGood = inRange(pVal, 0, 0.1, 1.0);
  } else if (sqlite3_stricmp(zName, "retention_policy") == 0) {
    zSql = zPolicy;
    bGood = isPolicy(pVal);
  } else if (sqlite3_stricmp(zName, "max_screenshots") == 0) {
    zSql = zSetShots;
    bGood = inRange(pVal, 1, 0.0, 1000000.0);
  } else {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: there is no setting %Q; the settings are %s", zName,
        zAllowed);
    return 0;
  }
  if (!bGood) failSetting(pErr, zName, pVal);
  return bGood ? zSql : 0;
}

/* Refuses a limit that no policy uses. */
static void expectHeld(EvBuffer *p, const EvState *pState, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK || pState->nKeep >= 0) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: max_screenshots is used only with retention_policy "
      "'keep-last-n', and %s has another policy; set the policy too: "
      "retention_policy='keep-last-n' in CREATE VIRTUAL TABLE, or INSERT INTO "
      "\"%w\"(\"%w\", value) VALUES('retention_policy', 'keep-last-n') first",
      p->base.stmts.zTable, p->base.stmts.zTable, p->base.stmts.zTable);
}

/* overflow can change only while the old schema has no rows. */
static void setOverflow(EvBuffer *p, sqlite3_value *pVal, BxErr *pErr) {
  static const char zOff[] =
      "UPDATE main.@_state SET overflow = '', owner = '', claim = ''";
  const char *zDb = (const char *)sqlite3_value_text(pVal);
  EvState state;
  bxEvLoadState(p, &state, pErr);
  if (pErr->rc == SQLITE_OK && state.nOverflow > 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: the overflow has %lld rows of %s, and cannot change "
        "until it is empty; call evidence_export(), and then evidence_clear()",
        state.nOverflow, p->base.stmts.zTable);
  }
  if (zDb != 0 && zDb[0] != 0) bxEvOverflowExpect(p, zDb, pErr);
  if (pErr->rc == SQLITE_OK && state.zOverflow != 0) {
    bxEvOverflowDrop(p, &state, pErr);
  }
  if (zDb == 0 || zDb[0] == 0) {
    bxRun(bxStmt(&p->base.stmts, zOff, pErr), pErr);
  } else {
    bxEvOverflowOpen(p, zDb, 0, pErr);
  }
  bxEvFreeState(&state);
}

void bxEvSet(EvBuffer *p, const char *zName, sqlite3_value *pVal, BxErr *pErr) {
  /* clang-format off */
  static const char zRate[] =
      "UPDATE main.@_rows SET confidence = (SELECT CASE WHEN"
      " " BX_JSON_VALID("action") " THEN " EV_BEST("action") " ELSE -1 END"
      " FROM main.@_actions AS a WHERE a.rid = @_rows.rid) WHERE place <> 1";
  /* clang-format on */
  const char *zSql;
  EvState state;
  if (pErr->rc != SQLITE_OK) return;
  if (sqlite3_stricmp(zName, "overflow") == 0) {
    setOverflow(p, pVal, pErr);
    return;
  }
  zSql = settingSql(zName, pVal, pErr);
  if (zSql == 0) return;
  bxEvLoadState(p, &state, pErr);
  if (zSql == zSetShots) expectHeld(p, &state, pErr);
  bxEvOverflowOurs(p, &state, pErr);
  if (!state.bRated && sqlite3_stricmp(zName, "retention_policy") == 0) {
    bxRun(bxStmt(&p->base.stmts, zRate, pErr), pErr);
    bxEvOverflowRate(p, &state, pErr);
  }
  bxDo(&p->base.stmts, zSql, pErr, "v", pVal);
  bxEvOverflowSweep(p, &state, pErr);
  bxEvFreeState(&state);
}

/* Sets a parameter of CREATE. */
static void firstSetting(
    EvBuffer *p, const char *zName, const char *zVal, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  if (pErr->rc != SQLITE_OK || zVal[0] == 0) return;
  pStmt = bxPrepare(&p->base.stmts, "SELECT ?1", pErr);
  bxBind(pStmt, pErr, "t", zVal);
  if (bxRow(pStmt, pErr)) {
    bxEvSet(p, zName, sqlite3_column_value(pStmt, 0), pErr);
  }
  sqlite3_finalize(pStmt);
}

/* Rows that were taken over get the confidence that the policy needs, and are
** pruned to the limits of size and number. */
static void settleResumed(EvBuffer *p, BxErr *pErr) {
  EvState state = {0};
  if (pErr->rc == SQLITE_OK) bxEvLoadState(p, &state, pErr);
  if (state.bRated) bxEvOverflowRate(p, &state, pErr);
  bxExec(&p->base.stmts,
      "UPDATE main.@_state SET max_size_bytes = max_size_bytes", pErr);
  bxEvOverflowSweep(p, &state, pErr);
  bxEvFreeState(&state);
}

void bxEvFirstState(EvBuffer *p, const EvParam *pParam, BxErr *pErr) {
  bxExec(&p->base.stmts,
      "INSERT INTO main.@_state(one, format, max_size_bytes, prune_threshold,"
      " retention_policy, max_screenshots) VALUES"
      " (1, 1, 73400320, 0.9, 'keep-all', 50)",
      pErr);
  firstSetting(p, "max_size_bytes", pParam->zMax, pErr);
  firstSetting(p, "prune_threshold", pParam->zThreshold, pErr);
  firstSetting(p, "retention_policy", pParam->zPolicy, pErr);
  firstSetting(p, "max_screenshots", pParam->zShots, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (pParam->zOverflow[0] != 0) {
    bxEvOverflowOpen(
        p, pParam->zOverflow, pParam->zResume[0] ? pParam->zResume : 0, pErr);
    settleResumed(p, pErr);
  } else if (pParam->zResume[0] != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: resume needs overflow='<schema>', the schema with "
        "the rows to take over; add it");
  }
}

/*------------------------------------------------ checks on a row ----*/

int bxEvIsObject(const char *z, int n) {
  int i = 0;
  while (i < n && strchr(" \t\r\n", z[i]) != 0) i++;
  return i < n && z[i] == '{';
}

static void failAction(BxErr *pErr, sqlite3_value *pAction) {
  bxRefuse(pErr,
      "ValidationError: action must be a JSON object, as in '{\"id\": \"a1\", "
      "\"timestamp\": 1700000000000, ...}', got %s",
      pAction);
}

/* Checks the type and the first character; SQLite checks the rest at INSERT. */
static void checkAction(sqlite3_value *pAction, BxErr *pErr) {
  const char *z;
  if (pErr->rc != SQLITE_OK) return;
  if (pAction == 0 || sqlite3_value_type(pAction) != SQLITE_TEXT) {
    failAction(pErr, pAction);
    return;
  }
  z = bxText(pAction, "action", MAX_TEXT, 0, pErr);
  if (z != 0 && !bxEvIsObject(z, sqlite3_value_bytes(pAction))) {
    failAction(pErr, pAction);
  }
}

static void checkScreenshot(sqlite3_value *pVal, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK || pVal == 0) return;
  if (sqlite3_value_type(pVal) == SQLITE_NULL) return;
  if (sqlite3_value_type(pVal) != SQLITE_BLOB ||
      sqlite3_value_bytes(pVal) == 0) {
    bxRefuse(pErr,
        "ValidationError: screenshot must be a blob that is not empty (the "
        "image file's bytes), or NULL; got %s",
        pVal);
  }
}

/* pinned as 0 or 1; the default is 0. */
static i64 pinnedOf(sqlite3_value *pVal, BxErr *pErr) {
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

/* Reads a missing id or timestamp from the action. The caller frees the copies
** in *apOwn. */
static void readAction(
    EvBuffer *p, EvRow *pRow, sqlite3_value **apOwn, BxErr *pErr) {
  /* clang-format off */
  static const char zSql[] =
      "SELECT coalesce(" ID_AT("$.id") ", " ID_AT("$.actionId") "), "
      "coalesce(" SCALAR("$.timestamp") ", "
      "nullif(?1 -> '$.timestamp', 'null')) WHERE " BX_JSON_VALID("?1");
  /* clang-format on */
  sqlite3_value **app[2];
  sqlite3_stmt *pStmt;
  int i, bNeed = 0;
  app[0] = &pRow->pId;
  app[1] = &pRow->pTimestamp;
  for (i = 0; i < 2; i++) {
    if (*app[i] != 0 && sqlite3_value_type(*app[i]) == SQLITE_NULL) *app[i] = 0;
    bNeed |= *app[i] == 0;
  }
  if (pErr->rc != SQLITE_OK || !bNeed) return;
  pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  bxBind(pStmt, pErr, "v", pRow->pAction);
  if (bxRow(pStmt, pErr)) {
    for (i = 0; i < 2; i++) {
      if (*app[i] != 0) continue;
      apOwn[i] = sqlite3_value_dup(sqlite3_column_value(pStmt, i));
      *app[i] = bxGot(apOwn[i], pErr);
    }
  } else if (bxEvIsJson(p->base.stmts.bx, pRow->pAction, pErr)) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
  } else {
    failAction(pErr, pRow->pAction);
  }
  bxDone(pStmt, pErr);
}

/* Checks that a row of nNew bytes, which has nOld bytes now, can fit. */
static void checkSize(EvBuffer *p, const EvState *pState, const char *zId,
    i64 nNew, i64 nPinned, BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return;
  assert(nNew >= EV_ROW_BYTES && nPinned >= 0);
  if (nNew > pState->nMax / 2) {
    bxFail(pErr, SQLITE_TOOBIG,
        "DataTooLargeError: evidence %Q has %lld bytes, and one row may take "
        "at most half of max_size_bytes, %lld; increase it: INSERT INTO "
        "\"%w\"(\"%w\", value) VALUES('max_size_bytes', %lld)",
        zId, nNew, pState->nMax / 2, p->base.stmts.zTable, p->base.stmts.zTable,
        nNew * 4);
  } else if (nPinned + nNew > pState->nMax) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "BufferFullError: pinned evidence holds %lld of %lld bytes and leaves "
        "no room for %lld; unpin rows (UPDATE \"%w\" SET pinned = 0 WHERE id = "
        "...) or increase max_size_bytes",
        nPinned, pState->nMax, nNew, p->base.stmts.zTable);
  }
}

/*----------------------------------------------------- one statement ----*/

/* Text that is not JSON becomes NULL, which the tables refuse. */
#define PUT(confidence)                                                        \
  "(rid, id, timestamp, pinned, mask, place, action, screenshot, confidence)"  \
  " VALUES (?1, ?2, ?3, ?4, ?5, ?6, CASE WHEN " BX_JSON_VALID(                 \
      "?7") " THEN ?7 END, ?8,"                                                \
            " " confidence ")"

/* Runs INSERT INTO rec_put, and explains an action that is refused as JSON. The
** confidence of an action is computed if the policy needs it. */
static void putRow(EvBuffer *p, i64 iRow, const char *zId, const EvRow *pRow,
    i64 iTime, i64 iPinned, int mask, int bRated, BxErr *pErr) {
  static const char zPlain[] = "INSERT INTO main.@_put" PUT("-1");
  static const char zRated[] = "INSERT INTO main.@_put" PUT(
      "CASE WHEN " BX_JSON_VALID("?7") " THEN " EV_BEST("?7") " ELSE -1 END");
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, bRated ? zRated : zPlain, pErr);
  assert(pErr->rc != SQLITE_OK || (iRow > 0 && zId != 0));
  bxBind(pStmt, pErr, "itiiiiss", iRow, zId, iTime, iPinned, (i64)mask,
      (i64)(p->bTemp ? EV_MEMORY : EV_FILE), pRow->pAction, pRow->pScreenshot);
  bxRun(pStmt, pErr);
  if ((pErr->rc == SQLITE_ERROR || (pErr->rc & 0xff) == SQLITE_CONSTRAINT) &&
      pRow->pAction != 0) {
    BxErr err = {SQLITE_OK, 0};
    int bJson = bxEvIsJson(p->base.stmts.bx, pRow->pAction, &err);
    if (err.rc != SQLITE_OK || !bJson) bxClear(pErr);
    if (err.rc != SQLITE_OK) {
      *pErr = err;
    } else if (!bJson) {
      failAction(pErr, pRow->pAction);
    }
  }
}

void bxEvDo(EvBuffer *p, const char *zVerb, const char *zRule, i64 nAmount,
    i64 iRow, BxErr *pErr) {
  static const char zSql[] =
      "INSERT INTO main.@_do(verb, rule, amount, rid) VALUES (?1, ?2, ?3, ?4)";
  bxDo(&p->base.stmts, zSql, pErr, "ttii", zVerb, zRule, nAmount, iRow);
}

/*-------------------------------------------------------- writing ----*/

/* The rid of the row with this id, or 0. */
static i64 findRow(EvBuffer *p, const char *zId, BxErr *pErr) {
  static const char zSql[] = "SELECT rid FROM main.@_rows WHERE id = ?1";
  return bxAsk(&p->base.stmts, zSql, pErr, "t", zId);
}

/* Makes room in memory for nNew bytes if there is an overflow. */
static void makeMemory(EvBuffer *p, EvState *pState, i64 nNew, BxErr *pErr) {
  double rMax = (double)pState->nMax;
  i64 nGoal;
  if (pErr->rc != SQLITE_OK || pState->zOverflow == 0) return;
  if ((double)(pState->nMemory + nNew) <= rMax * OVERFLOW_HIGH) return;
  nGoal = (i64)(rMax * OVERFLOW_LOW) - nNew;
  bxEvOverflowMove(p, pState, nGoal > 0 ? nGoal : 0, pErr);
}

/* If nGrowth more bytes, and a screenshot, make the buffer prune: checks,
** before anything changes, that the rows in the overflow still belong to this
** buffer. */
static void expectOurs(EvBuffer *p, EvState *pState, i64 nGrowth, BxErr *pErr) {
  double rSize = (double)(pState->nBytes + nGrowth);
  if (rSize > (double)pState->nMax * pState->rThreshold ||
      (pState->nKeep >= 0 && pState->nFree >= pState->nKeep)) {
    bxEvOverflowOurs(p, pState, pErr);
  }
}

static void failDuplicate(EvBuffer *p, const char *zId, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "DuplicateError: %s already has evidence %Q; use INSERT OR REPLACE to "
      "overwrite it, INSERT OR IGNORE to keep it, or UPDATE (SQLite has no ON "
      "CONFLICT DO UPDATE for virtual tables)",
      p->base.stmts.zTable, zId);
}

/* Stores a row whose id is new. */
static i64 storeNew(EvBuffer *p, const EvRow *pRow, const char *zId, i64 iTime,
    i64 iPinned, BxErr *pErr) {
  EvState state;
  i64 nNew = bxBytes(pRow->pAction) + bxBytes(pRow->pScreenshot) + EV_ROW_BYTES;
  i64 iRow;
  bxEvLoadState(p, &state, pErr);
  checkSize(p, &state, zId, nNew, state.nPinned, pErr);
  expectOurs(p, &state, nNew, pErr);
  makeMemory(p, &state, nNew, pErr);
  iRow = state.iLast + 1;
  putRow(p, iRow, zId, pRow, iTime, iPinned, 0, state.bRated, pErr);
  bxEvOverflowSweep(p, &state, pErr);
  bxEvFreeState(&state);
  return iRow;
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
  iRow = findRow(p, zId, pErr);
  if (pErr->rc != SQLITE_OK) {
    iRow = 0;
  } else if (iRow == 0) {
    iRow = storeNew(p, pRow, zId, iTime, iPinned, pErr);
  } else if (!pRow->bReplace) {
    failDuplicate(p, zId, pErr);
  } else {
    pRow->bHasPicture = 1;
    bxEvChange(p, iRow, pRow, pErr);
  }
  sqlite3_value_free(apOwn[0]);
  sqlite3_value_free(apOwn[1]);
  return iRow;
}

/* The state of a row before it changes. */
typedef struct Before {
  char *zId;
  i64 iTime, nAction, nShot, iPinned, iPlace;
} Before;

static int readBefore(EvBuffer *p, i64 iRow, Before *pOut, BxErr *pErr) {
  static const char zSql[] =
      "SELECT id, timestamp, action_bytes, screenshot_bytes, pinned, place"
      " FROM main.@_rows WHERE rid = ?1";
  sqlite3_stmt *pStmt = bxStmt(&p->base.stmts, zSql, pErr);
  memset(pOut, 0, sizeof(*pOut));
  bxBind(pStmt, pErr, "i", iRow);
  if (bxRow(pStmt, pErr)) {
    pOut->zId = bxColumnCopy(pStmt, 0, pErr);
    pOut->iTime = sqlite3_column_int64(pStmt, 1);
    pOut->nAction = bxEvSizeColumn(pStmt, 2);
    pOut->nShot = bxEvSizeColumn(pStmt, 3);
    pOut->iPinned = sqlite3_column_int64(pStmt, 4);
    pOut->iPlace = sqlite3_column_int64(pStmt, 5);
  }
  bxDone(pStmt, pErr);
  return pOut->zId != 0;
}

static void failPinned(EvBuffer *p, const char *zId, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "PinnedError: evidence %Q is pinned and cannot be changed or deleted; "
      "unpin it first: UPDATE \"%w\" SET pinned = 0 WHERE id = %Q",
      zId, p->base.stmts.zTable, zId);
}

/* The bytes that row iRow will have. */
static i64 sizeAfter(const Before *pWas, const EvRow *pRow, int mask) {
  return EV_ROW_BYTES +
         (mask & HAS_ACTION ? bxBytes(pRow->pAction) : pWas->nAction) +
         (mask & HAS_SCREENSHOT ? bxBytes(pRow->pScreenshot) : pWas->nShot);
}

/* Moves the row from the overflow into memory, at first, or after room was made
** for it. */
static void fetchRow(
    EvBuffer *p, EvState *pState, i64 iRow, i64 nNew, BxErr *pErr) {
  Before now;
  if (pState->zOverflow == 0) return;
  makeMemory(p, pState, nNew, pErr);
  if (readBefore(p, iRow, &now, pErr) && now.iPlace == EV_OVERFLOW) {
    bxEvOverflowBack(p, pState, iRow, pErr);
  }
  sqlite3_free(now.zId);
}

static void checkSameId(sqlite3_value *pId, const char *zId, BxErr *pErr) {
  const char *z = pId ? (const char *)sqlite3_value_text(pId) : zId;
  if (z != 0 && strcmp(z, zId) == 0) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: the id of evidence cannot change; INSERT a new row and "
      "DELETE the old one");
}

void bxEvChange(EvBuffer *p, i64 iRow, EvRow *pRow, BxErr *pErr) {
  Before was;
  EvState state;
  i64 iTime, iPinned, nNew;
  int mask = 0;
  if (!readBefore(p, iRow, &was, pErr)) return;
  checkSameId(pRow->pId, was.zId, pErr);
  if (pRow->pTimestamp != 0) mask |= HAS_TIMESTAMP;
  if (pRow->pAction != 0) mask |= HAS_ACTION;
  if (pRow->bHasPicture) mask |= HAS_SCREENSHOT;
  if (pRow->pPinned != 0 || pRow->bReplace) mask |= HAS_PINNED;
  if (mask & HAS_ACTION) checkAction(pRow->pAction, pErr);
  checkScreenshot(pRow->pScreenshot, pErr);
  iTime = mask & HAS_TIMESTAMP ? bxTime(pRow->pTimestamp, "timestamp", pErr)
                               : was.iTime;
  iPinned = pinnedOf(pRow->pPinned, pErr);
  if (was.iPinned && (mask & HAS_DATA)) failPinned(p, was.zId, pErr);
  bxEvLoadState(p, &state, pErr);
  nNew = sizeAfter(&was, pRow, mask);
  if (nNew > was.nAction + was.nShot + EV_ROW_BYTES) {
    checkSize(p, &state, was.zId, nNew, state.nPinned, pErr);
  }
  if (mask & HAS_DATA) {
    expectOurs(p, &state, nNew - was.nAction - was.nShot - EV_ROW_BYTES, pErr);
  }
  if (mask != 0) {
    fetchRow(p, &state, iRow, nNew, pErr);
    putRow(p, iRow, was.zId, pRow, iTime, iPinned, mask, state.bRated, pErr);
    bxEvOverflowSweep(p, &state, pErr);
  }
  bxEvFreeState(&state);
  sqlite3_free(was.zId);
}

void bxEvDelete(EvBuffer *p, i64 iRow, BxErr *pErr) {
  static const char zSql[] = "DELETE FROM main.@_rows WHERE rid = ?1";
  Before was;
  EvState state;
  if (!readBefore(p, iRow, &was, pErr)) return;
  if (was.iPinned) failPinned(p, was.zId, pErr);
  bxEvLoadState(p, &state, pErr);
  if (was.iPlace == EV_OVERFLOW) bxEvOverflowOurs(p, &state, pErr);
  bxDo(&p->base.stmts, zSql, pErr, "i", iRow);
  if (was.iPlace == EV_OVERFLOW) bxEvOverflowSweep(p, &state, pErr);
  bxEvFreeState(&state);
  sqlite3_free(was.zId);
}

/*-------------------------------------------------------- reading ----*/

sqlite3_stmt *bxEvPrepareTiers(
    EvBuffer *p, const char *zHere, const char *zBoth, BxErr *pErr) {
  EvState state = {0};
  sqlite3_stmt *pStmt;
  if (p->bTemp) bxEvLoadState(p, &state, pErr);
  if (state.zOverflow != 0) {
    pStmt = bxEvPrepareOver(p, &state, zBoth, pErr);
    bxBind(pStmt, pErr, "-c", state.zOwner);
  } else {
    pStmt = bxPrepare(&p->base.stmts, zHere, pErr);
  }
  bxEvFreeState(&state);
  return pStmt;
}

/* clang-format off */
#define ACTION_FROM "SELECT action, " BX_JSON_VALID("action") " FROM "
#define ACTION_HERE ACTION_FROM "main.@_actions WHERE rid = ?1"

sqlite3_stmt *bxEvReadAction(EvBuffer *p, BxErr *pErr) {
  return bxEvPrepareTiers(p, ACTION_HERE,
      ACTION_HERE " UNION ALL " ACTION_FROM "main.@_rows AS r, "
      "over.evidence__overflow AS o, over.evidence__overflow_actions AS a "
      "WHERE r.rid = ?1 AND r.place = 1 AND o.owner = ?2 AND o.id = r.id "
      "AND a.rid = o.rid",
      pErr);
}
/* clang-format on */

sqlite3_stmt *bxEvReadScreenshot(EvBuffer *p, BxErr *pErr) {
  return bxEvPrepareTiers(p,
      "SELECT screenshot FROM main.@_shots WHERE rid = ?1",
      "SELECT screenshot FROM main.@_shots WHERE rid = ?1 "
      "UNION ALL SELECT screenshot FROM main.@_rows AS r, "
      "over.evidence__overflow AS o, over.evidence__overflow_screenshots AS s "
      "WHERE r.rid = ?1 AND r.place = 1 AND r.screenshot_bytes > 0 "
      "AND o.owner = ?2 AND o.id = r.id AND s.rid = o.rid",
      pErr);
}

char *bxEvActions(EvBuffer *p, BxErr *pErr) {
  EvState state = {0};
  char *z = 0, *zHere;
  const BxStmts *pStmts = &p->base.stmts;
  bxEvExpectKnown(p, pErr);
  if (p->bTemp) bxEvLoadState(p, &state, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  zHere = bxExpand("SELECT r.rid AS rid, r.id AS id, r.timestamp AS timestamp,"
                   " r.pinned AS pinned, r.pruned AS pruned, r.place AS place,"
                   " a.action AS action FROM main.@_rows AS r"
                   " LEFT JOIN main.@_actions AS a ON a.rid = r.rid"
                   " WHERE r.place <> 1",
      pStmts->zDb, pStmts->zTable);
  if (zHere != 0 && state.zOverflow != 0) {
    z = sqlite3_mprintf(
        "(%s UNION ALL SELECT r.rid, r.id, r.timestamp, r.pinned, r.pruned,"
        " r.place, a.action FROM \"%w\".\"%w_rows\" AS r"
        " LEFT JOIN \"%w\".evidence__overflow AS o"
        " ON o.owner = %Q AND o.id = r.id"
        " LEFT JOIN \"%w\".evidence__overflow_actions AS a ON a.rid = o.rid"
        " WHERE r.place = 1)",
        zHere, pStmts->zDb, pStmts->zTable, state.zOverflow, state.zOwner,
        state.zOverflow);
  } else if (zHere != 0) {
    z = sqlite3_mprintf("(%s)", zHere);
  }
  if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  sqlite3_free(zHere);
  bxEvFreeState(&state);
  return z;
}
