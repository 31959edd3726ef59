/*
** guard.c: virtual tables learn that a hold was placed or released. Evidence buffers
** have guards only while their file has holds, because they cost a write some time.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

/* Calls xEach for each virtual table of p's schema. */
static void eachGuarded(BxStmts *p, int bHold,
    void (*xEach)(BxVtab *, int bHold, BxErr *), BxErr *pErr) {
  const BxModule *pModule;
  for (pModule = p->bx->aModule; pModule->zName != 0; pModule++) {
    sqlite3_stmt *pStmt = bxVtabNames(p, pModule->zName, pErr);
    while (bxRow(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      BxVtab *pVtab =
          zName ? bxVtabIn(p->bx, pModule->zName, p->zDb, zName, pErr) : 0;
      if (pVtab != 0) xEach(pVtab, bHold, pErr);
    }
    sqlite3_finalize(pStmt);
  }
}

static void guardVtab(BxVtab *pVtab, int bHold, BxErr *pErr) {
  bxShadowGuard(pVtab, bHold || bxShadowIsHeld(pVtab, pErr), pErr);
}

void bxRetentionGuard(BxStmts *p, int bHold, BxErr *pErr) {
  sqlite3_stmt *pHold = bxHold(p->bx, pErr);
  eachGuarded(p, bHold, guardVtab, pErr);
  bxLetGo(p->bx, pHold, pErr);
}

static void noteVtab(BxVtab *pVtab, int bHold, BxErr *pErr) {
  (void)bHold;
  if (pVtab->pModule->xHeld != 0) pVtab->pModule->xHeld(pVtab, pErr);
}

void bxRetentionNoteHeld(BxStmts *p, BxErr *pErr) {
  eachGuarded(p, 0, noteVtab, pErr);
}
