/*
** many.c: writes many rows with one statement.
**
** While a savepoint is open, as in each function of the store, SQLite keeps a copy
** of every page that a statement changes, if the statement could fail. One
** statement for many rows keeps one copy. The statement always has room for the
** same number of rows; those whose first column is not bound are left out.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

void bxManyPrepare(Many *p, BxStmts *pStmts, const char *zInto, int nColumn,
    const char *zAfter, BxErr *pErr) {
  sqlite3_str *pSql = sqlite3_str_new(pStmts->bx->db);
  char *zSql;
  int i, j;
  memset(p, 0, sizeof(*p));
  p->pStmts = pStmts;
  p->nColumn = nColumn;
  p->nMost =
      sqlite3_limit(pStmts->bx->db, SQLITE_LIMIT_VARIABLE_NUMBER, -1) / nColumn;
  if (p->nMost > MANY_ROWS) p->nMost = MANY_ROWS;
  if (p->nMost < 1) p->nMost = 1; /* SQLite says that the limit is too low */
  sqlite3_str_appendf(pSql, "INSERT INTO \"%w\".\"%w\" SELECT * FROM (VALUES",
      pStmts->zDb, zInto);
  for (i = 0; i < p->nMost; i++) {
    for (j = 0; j < nColumn; j++) {
      sqlite3_str_appendall(pSql, j > 0 ? ",?" : i > 0 ? "),(?" : "(?");
    }
  }
  sqlite3_str_appendf(pSql, ")) WHERE column1 IS NOT NULL %s", zAfter);
  zSql = bxFinish(pSql, pErr);
  if (zSql != 0) p->pStmt = bxPlain(pStmts->bx->db, zSql, pErr);
  sqlite3_free(zSql);
}

int bxManyParam(const Many *p, int iColumn) {
  return p->nWait * p->nColumn + iColumn + 1;
}

void bxManyRun(Many *p, int bOwn, BxErr *pErr) {
  if (p->nWait == 0 || pErr->rc != SQLITE_OK) return;
  if (bOwn) {
    bxStoreRun(p->pStmts, p->pStmt, pErr);
  } else {
    bxRun(p->pStmt, pErr);
  }
  sqlite3_clear_bindings(p->pStmt);
  p->nWait = 0;
}

void bxManyFree(Many *p) {
  sqlite3_finalize(p->pStmt);
  memset(p, 0, sizeof(*p));
}
