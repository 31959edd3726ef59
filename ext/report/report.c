/*
** report.c: blackbox_report(kind, key[, options]), and the steps of a report.
**
** The options are a JSON object:
**
**   redact   a profile of blackbox_secrets, or an array of them; 'none' masks nothing
**   bodies   'shared' (each part once), 'all' (each item whole) or 'none'
**   format   'html', 'md' or 'json'
**   items    most items; the newest stay
**   bytes    most bytes of bodies; those of the newest items stay
**
** kind     key
** agent, kill_switch, rollout, session: an id; evidence: the name of a buffer;
** database: a schema
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define REPORT_KEY 100000 /* most bytes of a key */

#define OPTION_ITEMS 10000
#define OPTION_BYTES 100000000

/* The number of a word in a list that ends with NULL. */
static int wordOf(ReportRun *p, const char *zOption, const char *const *azWord,
    sqlite3_value *pVal) {
  const char *z = bxText(pVal, zOption, 100, 0, &p->err);
  char *zRule;
  int i;
  for (i = 0; z != 0 && azWord[i] != 0; i++) {
    if (strcmp(azWord[i], z) == 0) return i;
  }
  if (z == 0) return 0;
  zRule = bxPrintf(&p->err, "%s, %s or %s", azWord[0], azWord[1], azWord[2]);
  bxRefuseArg(&p->err, zOption, zRule, pVal);
  sqlite3_free(zRule);
  return 0;
}

static void readProfile(ReportRun *p, const char *z) {
  if (z != 0 && strcmp(z, "none") != 0) {
    bxSecretsRead(&p->masks, p->pHome, z, &p->err);
  }
}

static void readReportOptions(ReportRun *p, sqlite3_value *pOptions) {
  static const char *const azBodies[] = {"shared", "all", "none", 0};
  static const char *const azFormat[] = {"html", "md", "json", 0};
  sqlite3_stmt *pStmt = 0;
  const char *z = 0;
  int bRedact = 0;
  p->opt.nItem = OPTION_ITEMS;
  p->opt.nByte = OPTION_BYTES;
  if (pOptions != 0) z = bxText(pOptions, "options", 100000, 0, &p->err);
  if (z != 0) {
    if (!bxIsJson(p->bx, z, sqlite3_value_bytes(pOptions), &p->err)) {
      bxRefuseArg(&p->err, "options", "a JSON object", pOptions);
    }
    /* its members; and whether the whole is an object */
    pStmt = bxPrepareSql(p->bx->db,
        "SELECT e.key, v.value, json_type(?1) = 'object' FROM (SELECT 1)"
        " LEFT JOIN json_each(?1) AS e LEFT JOIN json_each(iif(e.type ="
        " 'array', e.value, json_array(e.value))) AS v GROUP BY 1, 2",
        &p->err);
    bxBind(pStmt, &p->err, "c", z);
  }
  while (bxReportRow(p, pStmt)) {
    const char *zName = bxColumnText(pStmt, 0, &p->err);
    sqlite3_value *pVal = sqlite3_column_value(pStmt, 1);
    if (!sqlite3_column_int(pStmt, 2)) {
      bxRefuseArg(&p->err, "options", "a JSON object", pOptions);
    }
    if (zName == 0 || p->err.rc != SQLITE_OK) continue;
    if (strcmp(zName, "redact") == 0) {
      bRedact = 1;
      readProfile(p, bxText(pVal, "redact", 100, 0, &p->err));
    } else if (strcmp(zName, "bodies") == 0) {
      p->opt.eBodies = (ReportBodies)wordOf(p, zName, azBodies, pVal);
    } else if (strcmp(zName, "format") == 0) {
      p->opt.eFormat = (ReportFormat)wordOf(p, zName, azFormat, pVal);
    } else if (strcmp(zName, "items") == 0) {
      p->opt.nItem = bxInt(pVal, zName, 0, 1000000, &p->err);
    } else if (strcmp(zName, "bytes") == 0) {
      p->opt.nByte = bxInt(pVal, zName, 0, (i64)1 << 50, &p->err);
    } else {
      bxFail(&p->err, SQLITE_CONSTRAINT,
          "ValidationError: there is no option %Q; use redact, bodies, format, "
          "items or bytes",
          zName);
    }
  }
  sqlite3_finalize(pStmt);
  if (!bRedact) readProfile(p, "keys");
}

/* A session that the cache does not have is the conversation that its program names so. */
static void findConversation(ReportRun *p) {
  BxErr none = {SQLITE_OK, 0};
  BxStmts *pHome = bxDomainSchema(p->bx, "rollout", &none);
  char *zIds, *z;
  bxErrClear(&none);
  if (pHome == 0 || (bxSchemaHasDomain(p->bx, pHome->zDb, "cache", &p->err) &&
                        bxReportInt(p, pHome, "session.exists") != 0)) {
    return;
  }
  zIds = bxSessionConversations(pHome, p->zKey, &p->err);
  z = zIds ? bxQueryText(
                 pHome, "SELECT value FROM json_each(?1)", &p->err, "t", zIds)
           : 0;
  sqlite3_free(zIds);
  if (bxReportKeep(p, z) == 0) return;
  p->zKey = z;
  while (strcmp(p->pKind->zName, "rollout") != 0) p->pKind--;
}

ReportRun *bxReportOpen(Bx *bx, sqlite3_value *pKind, sqlite3_value *pKey,
    sqlite3_value *pOptions, BxErr *pErr) {
  ReportRun *p = bxZalloc(sizeof(*p), pErr);
  const char *z;
  if (p == 0) return 0;
  p->bx = bx;
  p->pOut = sqlite3_str_new(bx->db);
  p->pHome = bxReportNeed(p, "report");
  z = bxText(pKind, "kind", 100, 0, &p->err);
  p->pKind = bxReportKinds;
  while (z != 0 && p->pKind->zName != 0 && strcmp(p->pKind->zName, z) != 0) {
    p->pKind++;
  }
  if (p->pKind->zName == 0) {
    bxRefuseArg(&p->err, "kind",
        "kill_switch, agent, rollout, evidence, session or database", pKind);
  }
  z = bxText(pKey, "key", REPORT_KEY, 0, &p->err);
  if (z != 0) p->zKey = bxReportPrintf(p, "%s", z);
  if (p->zKey != 0 && strcmp(p->pKind->zName, "session") == 0) {
    findConversation(p);
  }
  if (p->err.rc == SQLITE_OK) readReportOptions(p, pOptions);
  if (p->err.rc == SQLITE_OK) { /* everything but what is in the items */
    p->iMade = bxNow();
    p->zProof = "none";
    p->zShown = bxReportClean(p, p->zKey, (i64)strlen(p->zKey), 0);
    p->zTitle = bxReportPrintf(p, "%s %s", p->pKind->zTitle, p->zShown);
    if (p->zTitle != 0) bxReportFirstLine(p->zTitle, REPORT_TITLE);
    p->pKey = pKey;
    if (p->err.rc == SQLITE_OK) p->pKind->xFind(p);
    p->pKey = 0;
  }
  bxReportRead(p);
  bxReportSums(p);
  if (p->pKind == bxReportKinds && p->zShown != 0) { /* of a kill switch */
    p->zBundle =
        bxReportPrintf(p, "SELECT line FROM proof_bundle(%Q)", p->zShown);
  }
  bxErrMove(pErr, &p->err);
  if (pErr->rc == SQLITE_OK) return p;
  bxReportClose(p);
  return 0;
}

int bxReportNext(ReportRun *p) {
  int bMore;
  if (p->err.rc != SQLITE_OK) return 0;
  bMore = bxReportWrite(p);
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
  bxSecretsFree(&p->masks);
  bxErrClear(&p->err);
  sqlite3_free(p);
}

void bxReportText(BxCall *p) {
  ReportRun *pReport = bxReportOpen(
      p->bx, p->aArg[0], p->aArg[1], p->nArg > 2 ? bxArg(p, 2) : 0, &p->err);
  char *z;
  int n;
  if (pReport == 0) return;
  while (bxReportNext(pReport)) {
  }
  bxErrMove(&p->err, &pReport->err);
  n = sqlite3_str_length(pReport->pOut);
  z = sqlite3_str_finish(pReport->pOut);
  pReport->pOut = 0;
  if (z != 0 && n > 0 && z[n - 1] == '\n')
    z[n - 1] = 0; /* as the lines have it */
  bxReturnText(p, z);
  bxReportClose(pReport);
}

/* blackbox_mask(text[, profile]): a text as a report shows it. */
void bxReportMask(BxCall *p) {
  BxSecrets masks = {0};
  sqlite3_value *pVal = p->aArg[0];
  BxStmts *pHome = bxDomainSchema(p->bx, "report", &p->err);
  const char *zProfile = "keys", *z;
  char *zOut = 0;
  int eType = sqlite3_value_type(pVal);
  i64 nOut = 0;
  if (p->nArg > 1) zProfile = bxText(p->aArg[1], "profile", 100, 0, &p->err);
  if (eType == SQLITE_BLOB) {
    bxRefuseArg(&p->err, "text", "a text or NULL", pVal);
  }
  z = (const char *)sqlite3_value_text(pVal);
  if (z == 0 && eType != SQLITE_NULL) {
    bxFail(&p->err, SQLITE_NOMEM, "out of memory");
  } else if (z != 0) {
    bxSecretsRead(&masks, pHome, zProfile, &p->err);
    bxSecretsMask(
        &masks, z, sqlite3_value_bytes(pVal), 0, &zOut, &nOut, &p->err);
    bxSecretsFree(&masks);
  }
  if (zOut == 0 || p->pCtx == 0) {
    sqlite3_free(zOut);
    if (p->err.rc == SQLITE_OK) bxReturnValue(p, pVal);
  } else {
    sqlite3_result_text64(
        p->pCtx, zOut, (sqlite3_uint64)nOut, sqlite3_free, SQLITE_UTF8);
  }
}

/* blackbox_report_lines(kind, key[, options]): the text of a report in rows of one
** line or several, without the end of the last. So a long report is never in
** memory as a whole. */
static void *linesOpen(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  return bxReportOpen(bx, apArg[0], apArg[1], apArg[2], pErr);
}

/* Goes on until there is something to return. */
static int linesNext(void *pRows, BxErr *pErr) {
  ReportRun *p = (ReportRun *)pRows;
  int bMore;
  sqlite3_str_reset(p->pOut);
  do {
    bMore = bxReportNext(p);
  } while (bMore && sqlite3_str_length(p->pOut) == 0);
  bxErrMove(pErr, &p->err);
  return bMore;
}

static void linesColumn(void *pRows, sqlite3_context *pCtx, int i) {
  ReportRun *p = (ReportRun *)pRows;
  const char *z = sqlite3_str_value(p->pOut);
  int n = sqlite3_str_length(p->pOut);
  (void)i; /* there is one */
  if (n > 0 && z[n - 1] == '\n') n--;
  sqlite3_result_text(pCtx, z, n, SQLITE_TRANSIENT);
}

static void linesClose(void *pRows) {
  bxReportClose((ReportRun *)pRows);
}

const BxRows bxReportLines = {linesOpen, linesNext, linesColumn, linesClose, 0};
