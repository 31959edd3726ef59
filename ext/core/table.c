/*
** table.c: table-valued functions.
**
** One eponymous module implements all of them. (One of them can also be written.)
** The hidden columns are the arguments. A NULL argument counts as not given. The
** rows are those of a query, or C makes them (BxRows). The cursor owns the
** prepared query or the state of C until it is closed.
*/
#include "core.h"
#include "vtable.h"
#include "table.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_TABLE_ARG 8

typedef struct TableAux {
  Bx *bx;
  const BxTable *pDef;
} TableAux;

typedef struct TableVtab {
  sqlite3_vtab base;
  TableAux def;
} TableVtab;

typedef struct TableCursor {
  sqlite3_vtab_cursor base;
  sqlite3_stmt *pStmt;
  void *pState; /* of BxRows */
  sqlite3_value *apArg[MAX_TABLE_ARG];
  i64 iRow;
  int bEof;
} TableCursor;

/* Whether the table is the one that hears of the end of the connection. */
static int isAnchor(const BxTable *pDef) {
  return pDef->pRows != 0 && pDef->pRows->xClosing != 0;
}

static int tableConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  const TableAux *pAuxDef = (const TableAux *)pAux;
  const BxTable *pDef = pAuxDef->pDef;
  char *zSql = sqlite3_mprintf("CREATE TABLE x(%s)", pDef->zColumns);
  TableVtab *p = sqlite3_malloc64(sizeof(*p));
  int rc = SQLITE_NOMEM;
  (void)argc, (void)argv, (void)pzErr;
  if (zSql != 0 && p != 0) rc = sqlite3_declare_vtab(db, zSql);
  sqlite3_free(zSql);
  if (rc != SQLITE_OK) {
    sqlite3_free(p);
    return rc;
  }
  memset(p, 0, sizeof(*p));
  p->def = *pAuxDef;
  *ppVtab = &p->base;
  if (pDef->xWrite != 0) {
    if (pDef->pRows == 0) { /* a queue: OR IGNORE */
      sqlite3_vtab_config(db, SQLITE_VTAB_CONSTRAINT_SUPPORT, 1);
    }
    /* not for triggers: whose trigger would it be? */
    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
  }
  if (isAnchor(pDef)) p->def.bx->bAnchored = 1;
  return SQLITE_OK;
}

static int tableDisconnect(sqlite3_vtab *pVtab) {
  const TableAux *p = &((TableVtab *)pVtab)->def;
  if (isAnchor(p->pDef)) {
    p->pDef->pRows->xClosing(p->bx);
    p->bx->bAnchored = 0;
  }
  sqlite3_free(pVtab);
  return SQLITE_OK;
}

/* Which argument a condition gives; less than 0: none. */
static int argOf(const BxTable *pDef, sqlite3_index_info *pInfo, int i) {
  int iColumn = pInfo->aConstraint[i].iColumn, op = pInfo->aConstraint[i].op;
  assert(i >= 0 && i < pInfo->nConstraint);
  if (iColumn > 0 && iColumn == BX_KEYED - pDef->nRequired &&
      (op == SQLITE_INDEX_CONSTRAINT_GT || op == SQLITE_INDEX_CONSTRAINT_GE)) {
    return pInfo->aConstraint[i].usable ? 1 : -1;
  }
  if (op != SQLITE_INDEX_CONSTRAINT_EQ) return -1;
  if (pDef->nRequired >= 0) return iColumn - pDef->nColumn;
  return iColumn == 0 && pInfo->aConstraint[i].usable &&
                 sqlite3_stricmp(sqlite3_vtab_collation(pInfo, i), "BINARY") ==
                     0
             ? 0
             : -1;
}

/* Bit i of idxNum is set if argument i is in argv, in that order. */
static int tableBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  const BxTable *pDef = ((TableVtab *)pVtab)->def.pDef;
  int aWhere[MAX_TABLE_ARG];
  int i, iArg, nArgv = 0;
  memset(aWhere, -1, sizeof(aWhere));
  for (i = 0; i < pInfo->nConstraint; i++) {
    iArg = argOf(pDef, pInfo, i);
    if (iArg < 0) continue;
    assert(iArg < pDef->nArg);
    if (!pInfo->aConstraint[i].usable) return SQLITE_CONSTRAINT;
    aWhere[iArg] = i;
  }
  for (iArg = 0; iArg < pDef->nArg; iArg++) {
    if (aWhere[iArg] < 0) {
      if (iArg >= pDef->nRequired) continue;
      sqlite3_free(pVtab->zErrMsg);
      pVtab->zErrMsg = sqlite3_mprintf(
          "wrong number of arguments to function %s()", pDef->zName);
      return SQLITE_ERROR;
    }
    pInfo->aConstraintUsage[aWhere[iArg]].argvIndex = ++nArgv;
    pInfo->aConstraintUsage[aWhere[iArg]].omit = pDef->nRequired >= 0;
    pInfo->idxNum |= 1 << iArg;
  }
  pInfo->estimatedCost = 1000.0;
  pInfo->estimatedRows = 100;
  if (pDef->nRequired < 0 && aWhere[0] < 0) {
    pInfo->estimatedCost = nArgv > 0 ? 1e5 : 1e6;
  }
  return SQLITE_OK;
}

static int tableOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  return bxCursorNew(sizeof(TableCursor), ppCursor);
}

static const BxTable *tableOf(TableCursor *p) {
  return ((TableVtab *)p->base.pVtab)->def.pDef;
}

static void tableClear(TableCursor *p) {
  int i;
  if (p->pState != 0) tableOf(p)->pRows->xClose(p->pState);
  p->pState = 0;
  bxStmtDone(((TableVtab *)p->base.pVtab)->def.bx, p->pStmt);
  p->pStmt = 0;
  for (i = 0; i < MAX_TABLE_ARG; i++) {
    sqlite3_value_free(p->apArg[i]);
    p->apArg[i] = 0;
  }
}

static int tableClose(sqlite3_vtab_cursor *pCursor) {
  tableClear((TableCursor *)pCursor);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

static int tableNext(sqlite3_vtab_cursor *pCursor) {
  TableCursor *p = (TableCursor *)pCursor;
  BxErr err = {SQLITE_OK, 0};
  assert(p->pState != 0 || p->pStmt != 0);
  if (p->pState != 0) {
    p->bEof = !tableOf(p)->pRows->xNext(p->pState, &err);
  } else {
    p->bEof = !bxStep(p->pStmt, &err);
  }
  p->iRow++;
  return bxErrVtab(&err, pCursor->pVtab);
}

static int tableFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  TableCursor *p = (TableCursor *)pCursor;
  const TableAux *pDef = &((TableVtab *)pCursor->pVtab)->def;
  BxErr err = {SQLITE_OK, 0};
  i64 iOuter = bxCallBegin(pDef->bx);
  int i, iArgv = 0;
  (void)idxStr, (void)argc;
  tableClear(p);
  for (i = 0; i < pDef->pDef->nArg; i++) {
    if (!(idxNum & (1 << i))) continue;
    if (sqlite3_value_type(argv[iArgv]) != SQLITE_NULL) {
      p->apArg[i] = bxCheckMem(sqlite3_value_dup(argv[iArgv]), &err);
    }
    iArgv++;
  }
  assert(iArgv == argc);
  if (err.rc == SQLITE_OK && pDef->pDef->pRows != 0) {
    p->pState = pDef->pDef->pRows->xOpen(pDef->bx, p->apArg, &err);
  } else if (err.rc == SQLITE_OK) {
    p->pStmt = pDef->pDef->xOpen(pDef->bx, p->apArg, &err);
  }
  bxCallEnd(pDef->bx, iOuter);
  p->iRow = -1;
  p->bEof = 1;
  return err.rc ? bxErrVtab(&err, pCursor->pVtab) : tableNext(pCursor);
}

static int tableEof(sqlite3_vtab_cursor *pCursor) {
  return ((TableCursor *)pCursor)->bEof;
}

/* Returns n bytes of text, each run of bytes that are no UTF-8 as U+FFFD. */
static void resultUtf8(sqlite3_context *pCtx, const unsigned char *z, int n) {
  sqlite3_str *pOut;
  int i = 0, nOne, bBad = 0;
  if (z == 0 || bxIsUtf8(z, n)) {
    sqlite3_result_text(pCtx, (const char *)z, n, SQLITE_TRANSIENT);
    return;
  }
  pOut = sqlite3_str_new(0);
  for (; i < n; i += nOne) {
    for (nOne = 1; nOne < 4 && i + nOne < n && (z[i + nOne] & 0xc0) == 0x80;) {
      nOne++;
    }
    if (bxIsUtf8(z + i, nOne)) {
      sqlite3_str_append(pOut, (const char *)z + i, nOne);
    } else if (!bBad) {
      sqlite3_str_append(pOut, "\xef\xbf\xbd", 3);
    }
    bBad = !bxIsUtf8(z + i, nOne);
  }
  nOne = sqlite3_str_errcode(pOut);
  n = sqlite3_str_length(pOut);
  sqlite3_result_text(pCtx, sqlite3_str_finish(pOut), n, sqlite3_free);
  if (nOne != SQLITE_OK) sqlite3_result_error_code(pCtx, nOne);
}

static int tableColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  TableCursor *p = (TableCursor *)pCursor;
  int nColumn = tableOf(p)->nColumn;
  assert(!p->bEof && i < nColumn + MAX_TABLE_ARG);
  if (i < nColumn && p->pState != 0) {
    tableOf(p)->pRows->xColumn(p->pState, pCtx, i);
  } else if (i < nColumn && tableOf(p)->mText >> i & 1) {
    resultUtf8(pCtx, sqlite3_column_text(p->pStmt, i),
        sqlite3_column_bytes(p->pStmt, i));
  } else if (i < nColumn) {
    sqlite3_result_value(pCtx, sqlite3_column_value(p->pStmt, i));
  } else if (p->apArg[i - nColumn] != 0) {
    sqlite3_result_value(pCtx, p->apArg[i - nColumn]);
  }
  return SQLITE_OK;
}

static int tableRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  TableCursor *p = (TableCursor *)pCursor;
  const BxTable *pDef = tableOf(p);
  assert(!p->bEof);
  *piRowid = pDef->xWrite != 0 ? sqlite3_column_int64(p->pStmt, pDef->nColumn)
                               : p->iRow;
  return SQLITE_OK;
}

static int tableUpdate(sqlite3_vtab *pVtab, int argc, sqlite3_value **argv,
    sqlite3_int64 *piRowid) {
  const TableAux *p = &((TableVtab *)pVtab)->def;
  BxErr err = {SQLITE_OK, 0};
  BxWrite write;
  assert(p->pDef->xWrite != 0 && argc > 0);
  bxWriteBegin(&write, p->bx);
  p->pDef->xWrite(p->bx, argc, argv, &err);
  if (argc > 1) *piRowid = 0;
  return bxWriteEnd(&write, &err, pVtab);
}

/* Without xUpdate, and with it. */
#define METHODS                                                                \
  .xConnect = tableConnect, .xBestIndex = tableBestIndex,                      \
  .xDisconnect = tableDisconnect, .xDestroy = tableDisconnect,                 \
  .xOpen = tableOpen, .xClose = tableClose, .xFilter = tableFilter,            \
  .xNext = tableNext, .xEof = tableEof, .xColumn = tableColumn,                \
  .xRowid = tableRowid
static const sqlite3_module aTableModule[] = {
    {METHODS}, {METHODS, .xUpdate = tableUpdate}};

static void tableFree(void *p) {
  bxUnref(((TableAux *)p)->bx);
  sqlite3_free(p);
}

int bxRegisterTables(Bx *bx, const BxTable *aTable, int nTable) {
  int i, rc = SQLITE_OK;
  for (i = 0; i < nTable && rc == SQLITE_OK; i++) {
    TableAux *pAux = sqlite3_malloc64(sizeof(*pAux));
    if (pAux == 0) return SQLITE_NOMEM;
    pAux->bx = bxRef(bx);
    pAux->pDef = &aTable[i];
    assert(aTable[i].nRequired <= aTable[i].nArg);
    assert(aTable[i].nArg <= MAX_TABLE_ARG);
    rc = sqlite3_create_module_v2(bx->db, aTable[i].zName,
        &aTableModule[aTable[i].xWrite != 0], pAux, tableFree);
  }
  return rc;
}

int bxRegisterModule(Bx *bx, const char *zName, const sqlite3_module *pModule) {
  return sqlite3_create_module_v2(bx->db, zName, pModule, bxRef(bx), bxUnref);
}
