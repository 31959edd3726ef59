/*
** report.c: what rollout_import() and rollout_import_from() return:
** {"rolloutId", "rolloutIds", "format", "lines", "items", "new", "bad",
** "errors": [{"line", "reason"}]}.
*/
#include "part.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_IDS 1000 /* the most ids in the result */

void bxReportBegin(RolloutReport *p) {
  memset(p, 0, sizeof(*p));
  p->pBad = sqlite3_str_new(0);
  p->pIds = sqlite3_str_new(0);
}

void bxReportId(RolloutReport *p, const char *zId) {
  if (p->nId++ >= MAX_IDS) return;
  sqlite3_str_appendf(p->pIds, "%s\"%s\"", p->nId > 1 ? "," : "", zId);
}

void bxReportReturn(RolloutReport *p, const char *zFormat, BxCall *pCall) {
  char *zBad = bxFinish(p->pBad, &pCall->err);
  char *zIds = bxFinish(p->pIds, &pCall->err);
  if (pCall->err.rc == SQLITE_OK) {
    bxReturnJson(pCall,
        sqlite3_mprintf("{\"rolloutId\":%.38s,\"rolloutIds\":[%s],"
                        "\"format\":\"%w\",\"lines\":%lld,\"items\":%lld,"
                        "\"new\":%lld,\"bad\":%lld,\"errors\":[%s]}",
            zIds ? zIds : "null", zIds ? zIds : "", zFormat, p->nLine, p->nItem,
            p->nNew, p->nBad, zBad ? zBad : ""));
  }
  sqlite3_free(zBad);
  sqlite3_free(zIds);
}
