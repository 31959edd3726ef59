/*
** connection.c: what blackbox knows of a connection.
**
** A Bx exists as long as a function or module of blackbox is registered, that
** is, until the connection is really closed. By then its files are closed and
** its locks released. After that the memory slots of the domains are freed.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

Bx *bxRef(Bx *bx) {
  bx->nRef++;
  return bx;
}

void bxForgetHomes(Bx *bx) {
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    sqlite3_free(bx->aSlot[i].zHome);
    bx->aSlot[i].zHome = 0;
  }
}

i64 bxEnter(Bx *bx) {
  i64 iOuter = bx->iCall;
  int nTotal = sqlite3_total_changes(bx->db);
  if (iOuter == 0) {
    if (nTotal != bx->nTotal && nTotal != bx->nTotal + bx->nOwed)
      bx->nForeign++;
    if (nTotal != bx->nTotal) bx->nOwed = 0;
    bx->nTotal = nTotal;
    bx->bClean = sqlite3_txn_state(bx->db, 0) != SQLITE_TXN_WRITE;
  }
  bx->iCall = ++bx->nCall;
  return iOuter;
}

void bxLeave(Bx *bx, i64 iOuter) {
  bx->iCall = iOuter;
  if (iOuter != 0) return;
  bx->nTotal = sqlite3_total_changes(bx->db);
  if (bx->pGone != 0) bx->xFreeGone(bx);
}

const BxDomain *bxDomainOf(const Bx *bx, const char *zDomain) {
  int i;
  for (i = 0; i < bx->nDomain; i++) {
    if (strcmp(bx->aDomain[i].zName, zDomain) == 0) return &bx->aDomain[i];
  }
  return 0;
}

BxSlot *bxSlot(Bx *bx, const char *zDomain) {
  const BxDomain *pDomain = bxDomainOf(bx, zDomain);
  assert(pDomain != 0);
  return &bx->aSlot[pDomain - bx->aDomain];
}

void bxUnref(void *p) {
  Bx *bx = (Bx *)p;
  int i;
  assert(bx->nRef > 0);
  if (--bx->nRef > 0) return;
  for (i = 0; i < bx->nDomain; i++) {
    BxSlot *pSlot = &bx->aSlot[i];
    if (pSlot->xFree != 0) pSlot->xFree(pSlot->p);
    if (pSlot->xFreeKept != 0) pSlot->xFreeKept(pSlot->pKept);
  }
  bxForgetHomes(bx);
  while (bx->pStmts != 0) { /* finalized when blackbox_call disconnects */
    BxStmts *pNext = bx->pStmts->pNext;
    bxStmtsFree(bx->pStmts);
    sqlite3_free(bx->pStmts);
    bx->pStmts = pNext;
  }
  sqlite3_free(bx->zUse);
  sqlite3_free(bx);
}
