/*
** lines.c: blackbox_report_lines(kind, key[, options]): a table with the text of a
** report in rows of one line or several, without the end of the last. So a long
** report is never in memory as a whole.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define LINE_HIDDEN 1 /* number of the column kind */

typedef struct LinesVtab {
  sqlite3_vtab base;
  Bx *bx;
} LinesVtab;

typedef struct LinesCursor {
  sqlite3_vtab_cursor base;
  ReportRun *pReport;
  sqlite3_value *apArg[3];
  i64 iRow;
  int bEof;
} LinesCursor;

static int linesConnect(sqlite3 *db, void *pAux, int argc,
    const char *const *argv, sqlite3_vtab **ppVtab, char **pzErr) {
  int rc = bxTableNew(db,
      "CREATE TABLE x(line, kind HIDDEN, key HIDDEN, options HIDDEN)",
      sizeof(LinesVtab), ppVtab);
  (void)argc, (void)argv, (void)pzErr;
  if (rc == SQLITE_OK) ((LinesVtab *)*ppVtab)->bx = (Bx *)pAux;
  return rc;
}

/* Bit i of idxNum is set if argument i is in argv, in that order. */
static int linesBestIndex(sqlite3_vtab *pVtab, sqlite3_index_info *pInfo) {
  int aWhere[3] = {-1, -1, -1}, i, iArg, nArgv = 0;
  for (i = 0; i < pInfo->nConstraint; i++) {
    iArg = pInfo->aConstraint[i].iColumn - LINE_HIDDEN;
    if (iArg < 0 || pInfo->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ) {
      continue;
    }
    if (!pInfo->aConstraint[i].usable) return SQLITE_CONSTRAINT;
    aWhere[iArg] = i;
  }
  if (aWhere[0] < 0 || aWhere[1] < 0) {
    sqlite3_free(pVtab->zErrMsg);
    pVtab->zErrMsg = sqlite3_mprintf(
        "wrong number of arguments to function blackbox_report_lines()");
    return SQLITE_ERROR;
  }
  for (iArg = 0; iArg < 3; iArg++) {
    if (aWhere[iArg] < 0) continue;
    pInfo->aConstraintUsage[aWhere[iArg]].argvIndex = ++nArgv;
    pInfo->aConstraintUsage[aWhere[iArg]].omit = 1;
    pInfo->idxNum |= 1 << iArg;
  }
  pInfo->estimatedCost = 100000.0;
  pInfo->estimatedRows = 1000;
  return SQLITE_OK;
}

static int linesOpen(sqlite3_vtab *pVtab, sqlite3_vtab_cursor **ppCursor) {
  (void)pVtab;
  return bxCursorNew(sizeof(LinesCursor), ppCursor);
}

static void linesClear(LinesCursor *p) {
  int i;
  bxReportClose(p->pReport);
  p->pReport = 0;
  for (i = 0; i < 3; i++) {
    sqlite3_value_free(p->apArg[i]);
    p->apArg[i] = 0;
  }
}

static int linesClose(sqlite3_vtab_cursor *pCursor) {
  linesClear((LinesCursor *)pCursor);
  sqlite3_free(pCursor);
  return SQLITE_OK;
}

/* Goes on until there is something to return. */
static int linesNext(sqlite3_vtab_cursor *pCursor) {
  LinesCursor *p = (LinesCursor *)pCursor;
  sqlite3_str_reset(p->pReport->pOut);
  do {
    p->bEof = !bxReportNext(p->pReport);
  } while (!p->bEof && sqlite3_str_length(p->pReport->pOut) == 0);
  p->iRow++;
  return bxReportVtab(&p->pReport->err, pCursor->pVtab);
}

static int linesFilter(sqlite3_vtab_cursor *pCursor, int idxNum,
    const char *idxStr, int argc, sqlite3_value **argv) {
  LinesCursor *p = (LinesCursor *)pCursor;
  BxErr err = {SQLITE_OK, 0};
  int i, iArgv = 0;
  (void)idxStr, (void)argc;
  linesClear(p);
  p->iRow = 0;
  p->bEof = 1;
  for (i = 0; i < 3; i++) {
    if (!(idxNum & (1 << i))) continue;
    if (sqlite3_value_type(argv[iArgv]) != SQLITE_NULL) {
      p->apArg[i] = bxGot(sqlite3_value_dup(argv[iArgv]), &err);
    }
    iArgv++;
  }
  if (err.rc == SQLITE_OK) {
    p->pReport = bxReportOpen(((LinesVtab *)pCursor->pVtab)->bx, p->apArg[0],
        p->apArg[1], p->apArg[2], &err);
  }
  if (p->pReport != 0) return linesNext(pCursor);
  return bxReportVtab(&err, pCursor->pVtab);
}

static int linesEof(sqlite3_vtab_cursor *pCursor) {
  return ((LinesCursor *)pCursor)->bEof;
}

static int linesColumn(
    sqlite3_vtab_cursor *pCursor, sqlite3_context *pCtx, int i) {
  LinesCursor *p = (LinesCursor *)pCursor;
  if (i == 0) {
    const char *z = sqlite3_str_value(p->pReport->pOut);
    int n = sqlite3_str_length(p->pReport->pOut);
    if (n > 0 && z[n - 1] == '\n') n--;
    sqlite3_result_text(pCtx, z, n, SQLITE_TRANSIENT);
  } else if (p->apArg[i - LINE_HIDDEN] != 0) {
    sqlite3_result_value(pCtx, p->apArg[i - LINE_HIDDEN]);
  }
  return SQLITE_OK;
}

static int linesRowid(sqlite3_vtab_cursor *pCursor, sqlite3_int64 *piRowid) {
  *piRowid = ((LinesCursor *)pCursor)->iRow;
  return SQLITE_OK;
}

const sqlite3_module bxReportLines = {
    .xConnect = linesConnect,
    .xBestIndex = linesBestIndex,
    .xDisconnect = bxTableFree,
    .xDestroy = bxTableFree,
    .xOpen = linesOpen,
    .xClose = linesClose,
    .xFilter = linesFilter,
    .xNext = linesNext,
    .xEof = linesEof,
    .xColumn = linesColumn,
    .xRowid = linesRowid,
};
