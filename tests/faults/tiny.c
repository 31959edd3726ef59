/* tiny.c: a virtual table that writes as ext/core/transaction.c says: see writes.h. */
#include "writes.h"
#define SQLITE_CORE 1 /* linked, not loaded */
#include "../../ext/core/core.h"
#include "../../ext/core/vtable.h"

#include <stdlib.h>
#include <string.h>

typedef struct Tiny {
  sqlite3_vtab base;
  Bx bx;
  BxStmts here, there; /* of its own schema, and of the counter */
  int bRule;
} Tiny;

typedef struct TinyCursor {
  sqlite3_vtab_cursor base;
  sqlite3_stmt *pScan; /* id, n, body */
  int bEof;
} TinyCursor;

static int tinyDisconnect(sqlite3_vtab *pVtab) {
  Tiny *p = (Tiny *)pVtab;
  bxStmtsFree(&p->here);
  bxStmtsFree(&p->there);
  sqlite3_free(p);
  return SQLITE_OK;
}

static int tinyConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  BxErr err = {SQLITE_OK, 0};
  Tiny *p;
  int rc = sqlite3_declare_vtab(db, "CREATE TABLE x(n, body)");
  (void)pAux, (void)pzErr;
  if (rc != SQLITE_OK || argc != 5) return rc ? rc : SQLITE_ERROR;
  p = sqlite3_malloc64(sizeof(*p));
  if (p == 0) return SQLITE_NOMEM;
  memset(p, 0, sizeof(*p));
  *ppVtab = &p->base;
  p->bx.db = db;
  p->bRule = atoi(argv[4]);
  sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
  bxStmtsInit(&p->here, &p->bx, argv[1], argv[2], &err);
  bxStmtsInit(&p->there, &p->bx, argv[3], argv[2], &err);
  rc = err.rc;
  bxErrClear(&err);
  if (rc != SQLITE_OK) tinyDisconnect(*ppVtab);
  return rc;
}

/*----------------------------------------------------------------- reads --*/

static int tinyBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  (void)pVtab;
  pInfo->estimatedCost = 10;
  return SQLITE_OK;
}

static int tinyOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  return bxCursorNew(sizeof(TinyCursor), ppCursor);
}

static int tinyClose(sqlite3_vtab_cursor *pCursor) {
  sqlite3_finalize(((TinyCursor *)pCursor)->pScan);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static int tinyNext(sqlite3_vtab_cursor *pCursor) {
  TinyCursor *p = (TinyCursor *)pCursor;
  BxErr err = {SQLITE_OK, 0};
  p->bEof = !bxStep(p->pScan, &err);
  return bxErrVtab(&err, pCursor->pVtab);
}

static int tinyFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  TinyCursor *p = (TinyCursor *)pCursor;
  BxErr err = {SQLITE_OK, 0};
  (void)idxNum, (void)idxStr, (void)argc, (void)argv;
  sqlite3_finalize(p->pScan);
  p->pScan = bxPrepare(&((Tiny *)pCursor->pVtab)->here,
      "SELECT id, n, body FROM main.@_record", &err);
  if (err.rc != SQLITE_OK) return bxErrVtab(&err, pCursor->pVtab);
  return tinyNext(pCursor);
}

static int tinyEof(sqlite3_vtab_cursor *pCursor) {
  return ((TinyCursor *)pCursor)->bEof;
}

static int tinyColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  sqlite3_result_value(
      pCtx, sqlite3_column_value(((TinyCursor *)pCursor)->pScan, i + 1));
  return SQLITE_OK;
}

static int tinyRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  *piRowid = sqlite3_column_int64(((TinyCursor *)pCursor)->pScan, 0);
  return SQLITE_OK;
}

/*---------------------------------------------------------------- writes --*/

/* Runs a statement that must change a row: RAISE(IGNORE) is no error to SQLite. */
static void changeOne(BxWrite *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  bxStmtRun(pStmt, pErr);
  bxWriteNote(p->bx, pErr);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(p->bx->db) == 0) {
    bxFail(pErr, SQLITE_ERROR, "MisuseError: a trigger keeps the row out");
  }
}

/* What can fail beside the record. */
static void writeLog(Tiny *p, i64 nMore, BxErr *pErr) {
  static const char zLog[] = "INSERT INTO main.@_log(n, body) VALUES(?1, "
                             "zeroblob(9000))";
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  bxStmtExec(&p->here, zLog, &err, "i", nMore);
  if (!p->bRule || bxErrMayIgnore(&p->here, &err)) bxErrClear(&err);
  bxErrMove(pErr, &err);
}

/* The record: pRow is NULL for a DELETE, iRow 0 for an INSERT. */
static void writeRow(Tiny *p, BxWrite *pWrite, i64 iRow, sqlite3_value **aCol,
    i64 *piRowid, BxErr *pErr) {
  static const char zWas[] = "SELECT n FROM main.@_record WHERE id = ?1";
  static const char zInsert[] =
      "INSERT INTO main.@_record(id, n, body) VALUES(NULL, ?2, ?3)";
  static const char zUpdate[] =
      "UPDATE main.@_record SET n = ?2, body = ?3 WHERE id = ?1";
  static const char zDelete[] = "DELETE FROM main.@_record WHERE id = ?1";
  static const char zCount[] = "UPDATE main.@_counter SET total = total + ?1, "
                               "body = zeroblob(20000) WHERE k = 'sum'";
  const char *zSql = aCol == 0 ? zDelete : iRow == 0 ? zInsert : zUpdate;
  i64 nMore = aCol ? sqlite3_value_int64(aCol[0]) : 0;
  sqlite3_stmt *pRecord = bxStmt(&p->here, zSql, pErr);
  sqlite3_stmt *pCount = bxStmt(&p->there, zCount, pErr);
  if (iRow != 0) nMore -= bxQueryInt(&p->here, zWas, pErr, "i", iRow);
  bxBind(pCount, pErr, "i", nMore);
  if (aCol == 0 || iRow != 0) bxBind(pRecord, pErr, "i", iRow);
  if (aCol != 0) bxBind(pRecord, pErr, "-vv", aCol[0], aCol[1]);
  changeOne(pWrite, pRecord, pErr);
  if (piRowid != 0) *piRowid = sqlite3_last_insert_rowid(p->bx.db);
  changeOne(pWrite, pCount, pErr);
  writeLog(p, nMore, pErr);
}

static int tinyUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
    sqlite3_int64 *piRowid) {
  Tiny *p = (Tiny *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  BxWrite write;
  i64 iRow = sqlite3_value_int64(argv[0]);
  bxWriteBegin(&write, &p->bx);
  writeRow(
      p, &write, iRow, argc > 1 ? argv + 2 : 0, iRow == 0 ? piRowid : 0, &err);
  if (p->bRule) return bxWriteEnd(&write, &err, pVtab);
  bxCallEnd(&p->bx, write.iOuter);
  return bxErrVtab(&err, pVtab);
}

static const sqlite3_module tinyModule = {
    .xCreate = tinyConnect,
    .xConnect = tinyConnect,
    .xBestIndex = tinyBestIndex,
    .xDisconnect = tinyDisconnect,
    .xDestroy = tinyDisconnect,
    .xOpen = tinyOpen,
    .xClose = tinyClose,
    .xFilter = tinyFilter,
    .xNext = tinyNext,
    .xEof = tinyEof,
    .xColumn = tinyColumn,
    .xRowid = tinyRowid,
    .xUpdate = tinyUpdate,
};

void tinyRegister(sqlite3 *db) {
  if (sqlite3_create_module(db, "tiny", &tinyModule, 0) != SQLITE_OK) abort();
}
