/*
** report.c: blackbox_report(kind, key[, options]), and the steps of a report.
**
** kind     key
** agent, kill_switch, rollout, session: an id; evidence: the name of a buffer;
** database: a schema
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define REPORT_KEY 100000 /* most bytes of a key */

static const ReportKind aKind[] = {
    {"kill_switch", "Kill switch", "Exchanges", bxReportKillSwitch},
    {"agent", "Agent", "Exchanges", bxReportAgent},
    {"rollout", "Conversation", "Items", bxReportRollout},
    {"evidence", "Recording", "Actions", bxReportEvidence},
    {"session", "Cache session", "Results", bxReportSession},
    {"database", "Database", 0, bxReportDatabase},
    {0, 0, 0, 0},
};

static void findKind(ReportRun *p, sqlite3_value *pKind) {
  const char *z = bxText(pKind, "kind", 100, 0, &p->err);
  if (z == 0) return;
  for (p->pKind = aKind; p->pKind->zName != 0; p->pKind++) {
    if (strcmp(p->pKind->zName, z) == 0) return;
  }
  bxRefuseArg(&p->err, "kind",
      "kill_switch, agent, rollout, evidence, session or database", pKind);
}

/* Finds everything but what is in the items. */
static void findAll(ReportRun *p) {
  if (p->err.rc != SQLITE_OK) return;
  p->iMade = bxNow();
  p->zProof = "none";
  p->zShown = bxReportClean(p, p->zKey, (i64)strlen(p->zKey));
  if (p->zShown != 0) {
    p->zTitle = bxPrintf(&p->err, "%s %s", p->pKind->zTitle, p->zShown);
    if (p->zTitle != 0) bxReportFirstLine(p->zTitle, REPORT_TITLE);
  }
  if (p->err.rc == SQLITE_OK) p->pKind->xFind(p);
  p->pKey = 0;
}

ReportRun *bxReportOpen(Bx *bx, sqlite3_value *pKind, sqlite3_value *pKey,
    sqlite3_value *pOptions, BxErr *pErr) {
  ReportRun *p = bxNew(sizeof(*p), pErr);
  const char *zKey;
  if (p == 0) return 0;
  p->bx = bx;
  p->pOut = sqlite3_str_new(bx->db);
  p->pHome = bxReportNeed(p, "report");
  findKind(p, pKind);
  p->pKey = pKey;
  zKey = bxText(pKey, "key", REPORT_KEY, 0, &p->err);
  if (zKey != 0) p->zKey = bxPrintf(&p->err, "%s", zKey);
  if (p->err.rc == SQLITE_OK) bxReportOptions(p, pOptions);
  findAll(p);
  bxReportRead(p);
  bxPass(pErr, &p->err);
  if (pErr->rc == SQLITE_OK) return p;
  bxReportClose(p);
  return 0;
}

int bxReportNext(ReportRun *p) {
  int bMore;
  if (p->err.rc != SQLITE_OK) return 0;
  switch (p->opt.eFormat) {
    case REPORT_JSON: bMore = bxReportJsonText(p); break;
    case REPORT_MD: bMore = bxReportMarkdown(p); break;
    default: bMore = bxReportHtml(p); break;
  }
  bxFail(&p->err, sqlite3_str_errcode(p->pOut),
      sqlite3_str_errcode(p->pOut) == SQLITE_TOOBIG
          ? "TooLargeError: the report is larger than a value may be; bound it "
            "with the options items or bytes, or read blackbox_report_lines()"
          : "out of memory");
  return p->err.rc == SQLITE_OK && bMore;
}

void bxReportClose(ReportRun *p) {
  if (p == 0) return;
  sqlite3_free(sqlite3_str_finish(p->pOut));
  bxReportFreeModel(p);
  bxMaskFree(&p->masks);
  sqlite3_free(p->zKey);
  sqlite3_free(p->zShown);
  sqlite3_free(p->zTitle);
  sqlite3_free(p->zHead);
  bxClear(&p->err);
  sqlite3_free(p);
}

void bxReportText(BxCall *p) {
  ReportRun *pReport = bxReportOpen(
      p->bx, p->aArg[0], p->aArg[1], p->nArg > 2 ? bxArg(p, 2) : 0, &p->err);
  char *z = 0;
  i64 n = 0;
  if (pReport == 0) return;
  while (bxReportNext(pReport)) {
  }
  bxPass(&p->err, &pReport->err);
  if (p->err.rc == SQLITE_OK) {
    n = sqlite3_str_length(pReport->pOut);
    z = bxFinish(pReport->pOut, &p->err);
    pReport->pOut = 0;
  }
  if (z != 0 && p->pCtx != 0) {
    if (n > 0 && z[n - 1] == '\n') n--; /* as the lines have it */
    sqlite3_result_text64(
        p->pCtx, z, (sqlite3_uint64)n, sqlite3_free, SQLITE_UTF8);
  } else {
    sqlite3_free(z);
  }
  bxReportClose(pReport);
}
