/*
** guard.c: virtual tables learn that a hold was placed.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

void bxRetentionNoteHeld(BxStmts *p, BxErr *pErr) {
  const BxModule *pModule;
  for (pModule = p->bx->aModule; pModule->zName != 0; pModule++) {
    sqlite3_stmt *pStmt =
        pModule->xHeld ? bxVtabNames(p, pModule->zName, pErr) : 0;
    while (pStmt != 0 && bxRow(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      BxVtab *pVtab =
          zName ? bxVtabIn(p->bx, pModule->zName, p->zDb, zName, pErr) : 0;
      if (pVtab != 0) pModule->xHeld(pVtab, pErr);
    }
    sqlite3_finalize(pStmt);
  }
}
