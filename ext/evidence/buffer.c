/*
** buffer.c: the methods of the virtual table evidence_buffer.
**
**   CREATE VIRTUAL TABLE rec USING evidence_buffer(
**     max_size_bytes=73400320,     1000 to 1099511627776
**     prune_threshold=0.9,         0.1 to 1
**     retention_policy='keep-all', or 'keep-last-n', 'confidence-based'
**     max_screenshots=50,          0 to 1000000, with keep-last-n
**     overflow='',                 a schema, for a buffer in temp
**     resume='')                   owner of overflowed rows to take over
**
** Columns: id, timestamp, action, screenshot, size_bytes, pruned, pinned,
** storage. Hidden columns: one with the name of the table, and value, for
** commands: INSERT INTO rec(rec, value) VALUES('max_size_bytes', 20000000)
**           INSERT INTO rec(rec) VALUES('sweep'): what approval has left
**
** A read by id, by rowid or by a range of timestamp, also in order of
** timestamp, is a seek in an index. Action and screenshot are read only when
** their column is asked for.
*/
#include "evidence.h"
#include "../core/model.h"
#include "../core/table.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

enum {
  COL_ID,
  COL_TIMESTAMP,
  COL_ACTION,
  COL_SCREENSHOT,
  COL_SIZE,
  COL_PRUNED,
  COL_PINNED,
  COL_STORAGE,
  COL_COMMAND,
  COL_VALUE
};

typedef struct EvCursor {
  sqlite3_vtab_cursor base;
  sqlite3_stmt *pScan;       /* narrow rows */
  sqlite3_stmt *pAction;     /* prepared at the first use */
  sqlite3_stmt *pScreenshot; /* the same */
  sqlite3_stmt *pPinned;     /* the same: both of a pinned row in a file */
  int bEof;
} EvCursor;

/* What is erased must not be left to a later sweep. */
#define EV_SWEEP "INSERT INTO main.@(@) VALUES('sweep')"

const BxRecords bxEvBufferRecords[] = {
    {0, "main.@", "", "t.action, t.screenshot, t.id", "t.size_bytes",
        BX_HOLD_ON("buffer", "lower('@')"), "t.pinned <> 0",
        "UPDATE main.@ AS t SET pinned = 0", EV_SWEEP, EV_SWEEP, 0, 0, 0},
    {0},
};

/* (Nobody reads a screenshot.) */
const BxTexts bxEvBufferTexts = {.zFrom = "(SELECT 0 AS no, * FROM main.@)",
    .zKind = "buffer",
    .zKey = "'@'",
    .zRow = "t.id",
    .zColumns = "action"};

static void readParam(EvParam *p, const char *zArg, BxErr *pErr) {
  static const struct {
    const char *zName;
    int nMost; /* bytes */
  } aParam[] = {{"max_size_bytes", 39}, {"prune_threshold", 39},
      {"retention_policy", 39}, {"max_screenshots", 39}, {"overflow", 199},
      {"resume", 99}};
  char zKey[40], zVal[200];
  int i = 0;
  bxVtabArg(zArg, zKey, sizeof(zKey), zVal, sizeof(zVal), pErr);
  if (pErr->rc != SQLITE_OK) return;
  while (i < 6 && sqlite3_stricmp(zKey, aParam[i].zName) != 0) i++;
  if (i == 6) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: there is no parameter %s; the parameters are "
        "max_size_bytes, prune_threshold, retention_policy, max_screenshots, "
        "overflow and resume",
        zKey);
  } else if (p->az[i][0] != 0) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: parameter %s occurs twice; write it once", zKey);
  } else if (zVal[0] == 0 && i != PARAM_OVERFLOW) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: parameter %s has no value; omit it for its default",
        zKey);
  } else if ((int)strlen(zVal) > aParam[i].nMost) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: the value of parameter %s is longer than the limit "
        "of %d bytes; shorten it",
        zKey, aParam[i].nMost);
  } else {
    memcpy(p->az[i], zVal, strlen(zVal) + 1);
  }
}

static void refuseColumn(const char *zName, BxErr *pErr) {
  if (!bxIsColumn(zName, EV_COLUMNS)) return;
  bxFail(pErr, SQLITE_ERROR,
      "ValidationError: a buffer cannot have the name of one of its columns "
      "(%s); choose another name",
      zName);
}

/* xCreate and xConnect. pParam is NULL if the tables exist. */
static int openBuffer(sqlite3 *db, Bx *bx, const char *const *argv,
    const EvParam *pParam, sqlite3_vtab **ppVtab, char **pzErr, BxErr *pErr) {
  EvBuffer *p = 0;
  const char *zFile = sqlite3_db_filename(db, argv[1]);
  char *zSql;
  assert(argv[1] != 0 && argv[2] != 0);
  refuseColumn(argv[2], pErr);
  zSql = bxPrintf(pErr,
      "CREATE TABLE x(id TEXT, timestamp INTEGER, action TEXT, screenshot "
      "BLOB, size_bytes INTEGER, pruned INTEGER, pinned INTEGER, storage "
      "TEXT, \"%w\" HIDDEN, value HIDDEN)",
      argv[2]);
  if (zSql != 0) {
    int rc = sqlite3_declare_vtab(db, zSql);
    if (rc == SQLITE_OK) {
      rc = sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
    }
    bxFailDb(pErr, db, rc);
  }
  sqlite3_free(zSql);
  p = (EvBuffer *)bxVtabNew(
      sizeof(EvBuffer), bx, EV_MODULE, argv[1], argv[2], pErr);
  if (p != 0) {
    p->pOn = &p->base.stmts;
    p->bTemp = sqlite3_stricmp(argv[1], "temp") == 0;
    p->bDisk = !p->bTemp && zFile != 0 && zFile[0] != 0;
    if (pParam == 0) {
      bxEvExpectTables(p, pErr);
    } else {
      bxShadowCreate(&p->base, pErr);
      if (pParam->az[PARAM_OVERFLOW][0] == 0) {
        bxInstallMissing(bx, p->pOn->zDb, "evidence", pErr);
      }
      bxEvFirstState(p, pParam, pErr);
    }
  }
  if (pErr->rc == SQLITE_OK) {
    *ppVtab = &p->base.base;
    return SQLITE_OK;
  }
  if (p != 0) bxVtabFree(&p->base);
  *pzErr = pErr->zMsg;
  return pErr->rc;
}

static int bufferCreate(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  EvParam param;
  BxErr err = {SQLITE_OK, 0};
  int i;
  memset(&param, 0, sizeof(param));
  for (i = 3; i < argc && err.rc == SQLITE_OK; i++) {
    if (argv[i][0] != 0) readParam(&param, argv[i], &err);
  }
  return openBuffer(db, (Bx *)pAux, argv, &param, ppVtab, pzErr, &err);
}

static int bufferConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  BxErr err = {SQLITE_OK, 0};
  (void)argc;
  return openBuffer(db, (Bx *)pAux, argv, 0, ppVtab, pzErr, &err);
}

static int bufferDisconnect(sqlite3_vtab *pVtab) {
  bxVtabFree((BxVtab *)pVtab);
  return SQLITE_OK;
}

/* Ignores that a table is missing or damaged: then there is nothing to
** protect. */
static void forgetLost(BxErr *pErr) {
  int rc = pErr->rc & 0xff;
  if (rc == SQLITE_ERROR || rc == SQLITE_CORRUPT) bxErrClear(pErr);
}

/* Pinned evidence, and a hold on the buffer, prevent DROP TABLE. (A hold on its
** evidence in the overflow does so there.) The rows are read for it, because anybody
** can change a counter. */
static int bufferDestroy(sqlite3_vtab *pVtab) {
  EvBuffer *p = (EvBuffer *)pVtab;
  EvState state;
  BxErr err = {SQLITE_OK, 0};
  char *zOwner = 0;
  i64 bPinned = 0;
  bxEvLoadState(p, &state, &err);
  if (state.nMax == 0) forgetLost(&err); /* the state table is missing */
  if (err.rc == SQLITE_OK) {
    bPinned = bxQueryNumber(p->pOn,
        "SELECT EXISTS (SELECT 1 FROM main.@_rows WHERE pinned <> 0)", &err);
    forgetLost(&err);
  }
  if (err.rc == SQLITE_OK && !p->bTemp && !bPinned) {
    bPinned = bxQueryNumber(p->pOn,
        "SELECT EXISTS (SELECT 1 FROM main.evidence__pinned"
        " WHERE buffer = '@' COLLATE NOCASE)",
        &err);
    forgetLost(&err);
  }
  if (bPinned) {
    bxFail(&err, SQLITE_CONSTRAINT,
        "PinnedError: %s holds pinned evidence; unpin it before DROP TABLE",
        p->pOn->zTable);
  } else if (err.rc == SQLITE_OK) {
    zOwner = bxShadowHolder(&p->base, &err);
  }
  if (zOwner != 0) {
    bxFail(&err, SQLITE_CONSTRAINT,
        "HeldError: %s is held by %s and cannot be dropped; end the hold with "
        "retention_release() first",
        p->pOn->zTable, zOwner);
  }
  if (bPinned || zOwner != 0) { /* SQLite itself says "constraint failed" */
    sqlite3_log(err.rc, "%s", err.zMsg ? err.zMsg : "pinned or held");
  }
  sqlite3_free(zOwner);
  bxEvOverflowDrop(p, &state, &err);
  bxEvFreeState(&state);
  bxShadowDrop(&p->base, &err);
  if (err.rc == SQLITE_OK) {
    bxVtabFree(&p->base);
    return SQLITE_OK;
  }
  return bxErrVtab(&err, pVtab);
}

/* The bits of idxNum. The values are passed in this order. */
#define BY_ROWID 1
#define BY_ID 2
#define TIME_EQ 4
#define TIME_LOW 8
#define TIME_ABOVE 16 /* low bound is exclusive */
#define TIME_HIGH 32
#define TIME_BELOW 64 /* high bound is exclusive */
#define ORDER_TIME 128
#define ORDER_DOWN 256

/* What each choice of bits adds: to the name of the plan, for EXPLAIN QUERY
** PLAN, and to its query. */
static const struct {
  int mask, bits;
  const char *zName, *zSql;
} aPart[] = {
    {BY_ROWID, BY_ROWID, "rowid=?", " AND rid = ?"},
    {BY_ID, BY_ID, "id=?", " AND id = ?"},
    {TIME_EQ, TIME_EQ, "timestamp=?", " AND timestamp = ?"},
    {TIME_LOW | TIME_ABOVE, TIME_LOW, "timestamp>=?", " AND timestamp >= ?"},
    {TIME_LOW | TIME_ABOVE, TIME_LOW | TIME_ABOVE, "timestamp>?",
        " AND timestamp > ?"},
    {TIME_HIGH | TIME_BELOW, TIME_HIGH, " timestamp<=?", " AND timestamp <= ?"},
    {TIME_HIGH | TIME_BELOW, TIME_HIGH | TIME_BELOW, " timestamp<?",
        " AND timestamp < ?"},
    {ORDER_TIME | ORDER_DOWN, ORDER_TIME, " ORDER BY timestamp",
        " ORDER BY timestamp, rid"},
    {ORDER_TIME | ORDER_DOWN, ORDER_TIME | ORDER_DOWN,
        " ORDER BY timestamp DESC", " ORDER BY timestamp DESC, rid DESC"},
};

/* The name of a plan or, with bSql, its query. */
static char *planText(int idxNum, int bSql) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  size_t i;
  if (bSql) {
    sqlite3_str_appendf(pOut,
        "SELECT rid, id, timestamp, action_bytes + screenshot_bytes + %d,"
        " pruned, pinned, place, screenshot_bytes FROM main.@_rows WHERE 1",
        EV_ROW_BYTES);
  }
  for (i = 0; i < sizeof(aPart) / sizeof(aPart[0]); i++) {
    if ((idxNum & aPart[i].mask) != aPart[i].bits) continue;
    sqlite3_str_appendall(pOut, bSql ? aPart[i].zSql : aPart[i].zName);
  }
  return sqlite3_str_finish(pOut);
}

/* The bit of a constraint, or 0. */
static int constraintBit(const struct sqlite3_index_constraint *p) {
  int bEq = p->op == SQLITE_INDEX_CONSTRAINT_EQ;
  assert(COL_TIMESTAMP == COL_ID + 1);
  if (!p->usable) return 0;
  if (p->iColumn < 0) return bEq ? BY_ROWID : 0;
  if (p->iColumn == COL_ID) return bEq ? BY_ID : 0;
  if (p->iColumn != COL_TIMESTAMP) return 0;
  switch (p->op) {
    case SQLITE_INDEX_CONSTRAINT_EQ: return TIME_EQ;
    case SQLITE_INDEX_CONSTRAINT_GE: return TIME_LOW;
    case SQLITE_INDEX_CONSTRAINT_GT: return TIME_LOW | TIME_ABOVE;
    case SQLITE_INDEX_CONSTRAINT_LE: return TIME_HIGH;
    case SQLITE_INDEX_CONSTRAINT_LT: return TIME_HIGH | TIME_BELOW;
    default: return 0;
  }
}

static int bufferBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  static const int aKey[] = {BY_ROWID, BY_ID, TIME_EQ, TIME_LOW, TIME_HIGH};
  int i, iKey, nArgv = 0, idxNum = 0;
  (void)pVtab;
  for (iKey = 0; iKey < 5; iKey++) {
    if (iKey > 0 && idxNum != 0 && (iKey < 4 || !(idxNum & TIME_LOW))) break;
    for (i = 0; i < pInfo->nConstraint; i++) {
      int bit = constraintBit(&pInfo->aConstraint[i]);
      if (!(bit & aKey[iKey])) continue;
      if (aKey[iKey] == BY_ID &&
          sqlite3_stricmp(sqlite3_vtab_collation(pInfo, i), "BINARY") != 0) {
        continue;
      }
      idxNum |= bit;
      pInfo->aConstraintUsage[i].argvIndex = ++nArgv;
      break;
    }
  }
  if (idxNum & (BY_ROWID | BY_ID)) {
    pInfo->estimatedCost = 10.0;
    pInfo->estimatedRows = 1;
    pInfo->idxFlags = SQLITE_INDEX_SCAN_UNIQUE;
  } else if (idxNum & (TIME_EQ | TIME_LOW | TIME_HIGH)) {
    pInfo->estimatedCost = 1000.0;
    pInfo->estimatedRows = 100;
  } else {
    pInfo->estimatedCost = 100000.0;
    pInfo->estimatedRows = 10000;
  }
  if (pInfo->nOrderBy == 1 && pInfo->aOrderBy[0].iColumn == COL_TIMESTAMP) {
    idxNum |= ORDER_TIME | (pInfo->aOrderBy[0].desc ? ORDER_DOWN : 0);
    pInfo->orderByConsumed = 1;
  }
  pInfo->idxNum = idxNum;
  pInfo->idxStr = planText(idxNum, 0);
  pInfo->needToFreeIdxStr = 1;
  return SQLITE_OK;
}

static int bufferOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  return bxCursorNew(sizeof(EvCursor), ppCursor);
}

static void endScan(EvCursor *p) {
  sqlite3_finalize(p->pScan);
  sqlite3_finalize(p->pAction);
  sqlite3_finalize(p->pScreenshot);
  sqlite3_finalize(p->pPinned);
  p->pScan = p->pAction = p->pScreenshot = p->pPinned = 0;
}

static int bufferClose(sqlite3_vtab_cursor *pCursor) {
  assert(pCursor != 0);
  endScan((EvCursor *)pCursor);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static int bufferNext(sqlite3_vtab_cursor *pCursor) {
  EvCursor *p = (EvCursor *)pCursor;
  BxErr err = {SQLITE_OK, 0};
  p->bEof = !bxStep(p->pScan, &err);
  return bxErrVtab(&err, pCursor->pVtab);
}

static int bufferFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  EvCursor *p = (EvCursor *)pCursor;
  EvBuffer *pBuffer = (EvBuffer *)pCursor->pVtab;
  BxErr err = {SQLITE_OK, 0};
  int i;
  (void)idxStr;
  endScan(p);
  assert(!(idxNum & TIME_EQ) || !(idxNum & (TIME_LOW | TIME_HIGH)));
  bxEvExpectKnown(pBuffer, &err);
  p->pScan = bxPrepareMade(pBuffer->pOn, planText(idxNum, 1), &err);
  for (i = 0; i < argc && err.rc == SQLITE_OK; i++) {
    bxFailDb(&err, pBuffer->pOn->bx->db,
        sqlite3_bind_value(p->pScan, i + 1, argv[i]));
  }
  p->bEof = !bxStep(p->pScan, &err);
  return bxErrVtab(&err, pCursor->pVtab);
}

static int bufferEof(sqlite3_vtab_cursor *pCursor) {
  return ((EvCursor *)pCursor)->bEof;
}

/* The statement of the row's action or screenshot, at its row; NULL if there is none.
** Reset it after use. */
static sqlite3_stmt *fetch(EvCursor *p, sqlite3_stmt **ppStmt,
    sqlite3_stmt *(*xPrepare)(EvBuffer *, BxErr *), BxErr *pErr) {
  EvBuffer *pBuffer = (EvBuffer *)p->base.pVtab;
  i64 iKey = sqlite3_column_int64(p->pScan, 0);
  i64 iPinned = pBuffer->bTemp ? 0 : sqlite3_column_int64(p->pScan, 5);
  if (xPrepare == bxEvReadAction && sqlite3_column_int(p->pScan, 4)) {
    iKey = -iKey;
  }
  if (iPinned != 0) {
    ppStmt = &p->pPinned;
    xPrepare = bxEvReadPinned;
    iKey = iPinned;
  }
  if (*ppStmt == 0) *ppStmt = xPrepare(pBuffer, pErr);
  bxBind(*ppStmt, pErr, "i", iKey);
  if (bxStep(*ppStmt, pErr)) return *ppStmt;
  if (*ppStmt != 0) sqlite3_reset(*ppStmt);
  return 0;
}

static void failDamaged(
    EvCursor *p, const char *zWhat, const char *zHow, BxErr *pErr) {
  EvBuffer *pBuffer = (EvBuffer *)p->base.pVtab;
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: %s of evidence '%q' in %s %s; the other rows can be "
      "read; UPDATE or DELETE this row",
      zWhat, bxColumnText(p->pScan, 1, pErr), pBuffer->pOn->zTable, zHow);
}

static int bufferColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int iCol) {
  static const int aScan[] = {1, 2, 0, 0, 3, 4, 5};
  EvCursor *p = (EvCursor *)pCursor;
  EvBuffer *pBuffer = (EvBuffer *)pCursor->pVtab;
  sqlite3_stmt *pStmt = 0;
  const char *z;
  BxErr err = {SQLITE_OK, 0};
  assert(!p->bEof);
  if (sqlite3_vtab_nochange(pCtx)) return SQLITE_OK;
  if (iCol == COL_ACTION) {
    pStmt = fetch(p, &p->pAction, bxEvReadAction, &err);
    z = pStmt ? bxColumnText(pStmt, 0, &err) : 0;
    if (pStmt == 0) {
      failDamaged(p, "action", "is missing", &err);
    } else if (z == 0 || !sqlite3_column_int(pStmt, 1) ||
               !bxEvIsObject(z, sqlite3_column_bytes(pStmt, 0))) {
      failDamaged(p, "action", "is not a JSON object", &err);
    } else {
      sqlite3_result_value(pCtx, sqlite3_column_value(pStmt, 0));
    }
  } else if (iCol == COL_SCREENSHOT) {
    if (sqlite3_column_int64(p->pScan, 7) == 0) return SQLITE_OK;
    pStmt = fetch(p, &p->pScreenshot, bxEvReadScreenshot, &err);
    if (pStmt == 0) {
      failDamaged(p, "screenshot", "is missing", &err);
    } else {
      sqlite3_result_value(
          pCtx, sqlite3_column_value(pStmt, pStmt == p->pPinned ? 2 : 0));
    }
  } else if (iCol == COL_STORAGE) {
    int bMemory = sqlite3_column_int(p->pScan, 6) == EV_MEMORY ||
                  (!pBuffer->bTemp && !pBuffer->bDisk);
    sqlite3_result_text(pCtx, bMemory ? "memory" : "disk", -1, SQLITE_STATIC);
  } else if (iCol == COL_PINNED) {
    sqlite3_result_int(pCtx, sqlite3_column_int64(p->pScan, 5) != 0);
  } else if (iCol < COL_STORAGE) {
    sqlite3_result_value(pCtx, sqlite3_column_value(p->pScan, aScan[iCol]));
  }
  sqlite3_reset(pStmt);
  return bxErrVtab(&err, pCursor->pVtab);
}

static int bufferRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  assert(!((EvCursor *)pCursor)->bEof);
  *piRowid = sqlite3_column_int64(((EvCursor *)pCursor)->pScan, 0);
  return SQLITE_OK;
}

static int isNullValue(sqlite3_value *pVal) {
  return sqlite3_value_type(pVal) == SQLITE_NULL;
}

/* Computed columns cannot be written. */
static void checkComputed(sqlite3_value **apCol, int bUpdate, BxErr *pErr) {
  static const struct {
    int iCol;
    const char *zName;
  } aComputed[] = {{COL_SIZE, "size_bytes"}, {COL_PRUNED, "pruned"},
      {COL_STORAGE, "storage"}};
  int i;
  assert(bUpdate == 0 || bUpdate == 1);
  for (i = 0; i < 3; i++) {
    sqlite3_value *pVal = apCol[aComputed[i].iCol];
    if (bUpdate ? sqlite3_value_nochange(pVal) : isNullValue(pVal)) continue;
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: %s is computed by the buffer; omit it",
        aComputed[i].zName);
  }
}

/* The hidden columns are only for commands. */
static void failHidden(EvBuffer *p, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: a setting is changed without other columns: INSERT "
      "INTO \"%w\"(\"%w\", value) VALUES('max_size_bytes', 20000000)",
      p->pOn->zTable, p->pOn->zTable);
}

/* The value of a column that an UPDATE changes; else NULL. */
static sqlite3_value *given(sqlite3_value *pVal) {
  return sqlite3_value_nochange(pVal) ? 0 : pVal;
}

static int bufferUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
    sqlite3_int64 *piRowid) {
  EvBuffer *p = (EvBuffer *)pVtab;
  sqlite3_value **apCol = argc > 1 ? argv + 2 : 0;
  int eConflict = sqlite3_vtab_on_conflict(p->pOn->bx->db), i, bRow = 0;
  BxErr err = {SQLITE_OK, 0};
  BxWrite write;
  assert(argc == 1 || argc == COL_VALUE + 3);
  bxWriteBegin(&write, p->pOn->bx);
  if (argc == 1) {
    bxEvDelete(p, sqlite3_value_int64(argv[0]), &err);
  } else if (!isNullValue(argv[0])) {
    EvRow row = {given(apCol[COL_ID]), given(apCol[COL_TIMESTAMP]),
        given(apCol[COL_ACTION]), given(apCol[COL_SCREENSHOT]),
        given(apCol[COL_PINNED]), 0, given(apCol[COL_SCREENSHOT]) != 0};
    if (sqlite3_value_int64(argv[0]) != sqlite3_value_int64(argv[1])) {
      bxFail(&err, SQLITE_CONSTRAINT,
          "ValidationError: the rowid of evidence cannot change");
    }
    checkComputed(apCol, 1, &err);
    if (given(apCol[COL_COMMAND]) || given(apCol[COL_VALUE])) {
      failHidden(p, &err);
    }
    if (row.pTimestamp != 0 && isNullValue(row.pTimestamp)) {
      bxFail(&err, SQLITE_CONSTRAINT,
          "ValidationError: timestamp must be an integer of milliseconds since "
          "1970 UTC, got NULL");
    }
    bRow = 1;
    if (err.rc == SQLITE_OK) {
      bxEvChange(p, sqlite3_value_int64(argv[0]), &row, &err);
    }
  } else if (!isNullValue(apCol[COL_COMMAND])) {
    const char *zName = bxText(apCol[COL_COMMAND], "command", 100, 0, &err);
    for (i = 0; i < COL_COMMAND; i++) {
      if (!isNullValue(apCol[i])) failHidden(p, &err);
    }
    if (zName != 0 && sqlite3_stricmp(zName, "sweep") == 0) {
      EvState state;
      bxEvLoadState(p, &state, &err);
      bxEvSweep(p, &state, EV_SWEEP_ALL, &err);
      bxEvFreeState(&state);
    } else {
      bxEvSet(p, zName, apCol[COL_VALUE], &err);
    }
  } else if (!isNullValue(argv[1])) {
    bxFail(&err, SQLITE_CONSTRAINT,
        "ValidationError: the buffer assigns the rowid; omit it");
  } else {
    EvRow row = {apCol[COL_ID], apCol[COL_TIMESTAMP], apCol[COL_ACTION],
        apCol[COL_SCREENSHOT], apCol[COL_PINNED], eConflict == SQLITE_REPLACE,
        1};
    checkComputed(apCol, 0, &err);
    if (!isNullValue(apCol[COL_VALUE])) failHidden(p, &err);
    bRow = 1;
    if (err.rc == SQLITE_OK) *piRowid = bxEvStore(p, &row, &err);
  }
  /* OR IGNORE skips a row that a rule refuses, but never a row for which there is no
  ** room. */
  if (bRow && eConflict == SQLITE_IGNORE && bxErrIs(&err, "BufferFullError")) {
    err.rc = SQLITE_ERROR;
  }
  return bxWriteEnd(&write, &err, pVtab);
}

static int bufferRename(sqlite3_vtab *pVtab, const char *zNew) {
  static const char *const azSql[] = {
      "UPDATE main.evidence__pinned SET buffer = '@' WHERE buffer = ?1 COLLATE "
      "NOCASE",
      "UPDATE main.evidence__sweeps SET buffer = '@' WHERE buffer = ?1"};
  EvBuffer *p = (EvBuffer *)pVtab;
  BxErr err = {SQLITE_OK, 0}, lost = {SQLITE_OK, 0};
  char *zOld = bxPrintf(&err, "%s", p->pOn->zTable);
  int i;
  refuseColumn(zNew, &err);
  bxShadowRename(&p->base, zNew, &err);
  for (i = 0; i < 2 && err.rc == SQLITE_OK && !p->bTemp; i++) {
    bxQueryIntOnce(p->pOn, azSql[i], &lost, "t", zOld);
    forgetLost(&lost);
    bxErrMove(&err, &lost);
  }
  sqlite3_free(zOld);
  bxEvOverflowRename(p, &err);
  return bxErrVtab(&err, pVtab);
}

static int bufferShadowName(const char *zSuffix) {
  return bxModelMakes(bxSqlEvidenceBuffer, zSuffix);
}

static const sqlite3_module bufferModule = {
    .iVersion = 3, /* xShadowName */
    .xCreate = bufferCreate,
    .xConnect = bufferConnect,
    .xBestIndex = bufferBestIndex,
    .xDisconnect = bufferDisconnect,
    .xDestroy = bufferDestroy,
    .xOpen = bufferOpen,
    .xClose = bufferClose,
    .xFilter = bufferFilter,
    .xNext = bufferNext,
    .xEof = bufferEof,
    .xColumn = bufferColumn,
    .xRowid = bufferRowid,
    .xUpdate = bufferUpdate,
    .xRename = bufferRename,
    .xShadowName = bufferShadowName,
};

int bxEvRegister(Bx *bx) {
  return bxRegisterModule(bx, EV_MODULE, &bufferModule);
}
