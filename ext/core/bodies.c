/*
** bodies.c: what the domains share that keep texts in the body store.
**
** Such a domain describes its columns as BxBodies (domain.h). Here is whether a
** schema has the store, the call of store_pack(), and the JSON that a pack
** function returns.
*/
#include "core.h"
#include "vtable.h"
#include "log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

int bxHasStore(BxStmts *p) {
  return bxTableExists(p->bx, p->zDb, "store__state");
}

void bxNeedStore(BxStmts *p, BxErr *pErr) {
  if (pErr->rc == SQLITE_OK && !bxHasStore(p)) {
    bxFail(pErr, SQLITE_ERROR,
        "NotInstalledError: schema %s has no body store; run SELECT "
        "blackbox_install(%Q, 'store')",
        p->zDb, p->zDb);
  }
}

char *bxPackKeys(BxStmts *p, const char *zDomain, const char *zPack,
    const char *zKeys, BxErr *pErr) {
  char zRule[32];
  char *zSaid =
      bxQueryTextHow(p, zPack, BX_QUERY_INNER, pErr, "tt", zKeys, p->zDb);
  char *zWhy;
  assert(zKeys != 0 || pErr->rc != SQLITE_OK);
  if (zSaid != 0 && strstr(zSaid, "\"left\":0,") == 0) {
    sqlite3_snprintf((int)sizeof(zRule), zRule, "%s.pack", zDomain);
    zWhy = bxQueryText(p, "SELECT ?1 ->> 'why'", pErr, "t", zSaid);
    bxLogRefusal(p, zDomain, zRule, zWhy, pErr);
    sqlite3_free(zWhy);
  }
  return zSaid;
}

char *bxPackResult(BxStmts *p, const char *zSaid, int bMore, BxErr *pErr) {
  static const char zResult[] =
      "SELECT json_object('rows', ?1 -> '$.rows', 'rawBytes',"
      " ?1 -> '$.rawBytes', 'keptBytes', ?1 -> '$.keptBytes', 'left',"
      " json_object('refused', ?1 -> '$.left'), 'more',"
      " json(iif(?2, 'true', 'false')))";
  return bxQueryText(p, zResult, pErr, "ti", zSaid, (i64)bMore);
}
