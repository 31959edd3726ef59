/*
** inclusion_proof.c: what a browser needs to verify an item: its pin in the log, the values of
** the fields of that leaf, their salt, and the path to the head. See docs/report.md.
**
** If the page has not all values as they are stored, because something was masked
** or erased, or the bodies are not in the page, the leaf has hashes of the fields,
** and no salt, with which values could be guessed; its state is "redacted".
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Adds field i of the row: its type and its value, or the part of the item that has
** it. Returns 0 if the page does not have it as it is stored. */
static int appendField(
    ReportRun *p, sqlite3_str *pOut, int i, const ReportItem *pItem) {
  const char *zName = sqlite3_column_name(p->pRow, i);
  const char *z = bxColumnText(p->pRow, i, &p->err);
  int eType = sqlite3_column_type(p->pRow, i), k = 0;
  i64 n = sqlite3_column_bytes(p->pRow, i);
  char *zMasked = 0;
  if (zName == 0 || p->err.rc != SQLITE_OK) return 0;
  sqlite3_str_appendf(pOut, "%s[\"%s\",", i > 0 ? "," : "", zName);
  while (k < pItem->nPart && (strncmp(zName, "row.re", 6) != 0 ||
                                 strncmp(zName + 4, pItem->aPart[k].zRole,
                                     strlen(pItem->aPart[k].zRole)) != 0)) {
    k++;
  }
  if (k < pItem->nPart) { /* the query has no body */
    if (pItem->aPart[k].bMasked) return 0;
    sqlite3_str_appendf(pOut, "\"part\",%d,\"%s\"]", k,
        pItem->aPart[k].eType == SQLITE_BLOB ? "blob" : "text");
    return 1;
  }
  if (eType == SQLITE_NULL) sqlite3_str_appendall(pOut, "\"null\"]");
  if (eType == SQLITE_INTEGER) {
    sqlite3_str_appendf(pOut, "\"integer\",\"%s\"]", z);
  }
  if (eType != SQLITE_TEXT)
    return eType == SQLITE_NULL || eType == SQLITE_INTEGER;
  if (!bxIsUtf8((const unsigned char *)z, (int)n) ||
      bxSecretsMask(&p->masks, z, n, 0, &zMasked, &n, &p->err)) {
    sqlite3_free(zMasked);
    return 0;
  }
  sqlite3_str_appendall(pOut, "\"text\",");
  bxReportJson(pOut, z, n);
  sqlite3_str_appendchar(pOut, 1, ']');
  return 1;
}

/* The salt and all fields, as members of JSON, to sqlite3_free(). NULL if the page
** does not have all of them. */
static char *fieldsOf(ReportRun *p, const ReportItem *pItem) {
  sqlite3_str *pOut;
  int i, n, bWhole;
  char *z;
  if (!pItem->bBodies || p->opt.eBodies == REPORT_NONE) return 0;
  pOut = sqlite3_str_new(0);
  bxBind(p->pRow, &p->err, "t", pItem->zKey);
  bWhole = bxReportRow(p, p->pRow);
  n = sqlite3_column_count(p->pRow) - 1;
  if (bWhole) {
    z = bxColumnCopy(p->pRow, n, &p->err);
    sqlite3_str_appendf(pOut, "\"salt\":\"%s\",\"fields\":[", z ? z : "");
    bWhole = z != 0;
    sqlite3_free(z);
  }
  for (i = 0; i < n && bWhole; i++) {
    bWhole = appendField(p, pOut, i, pItem);
  }
  bxReset(p->pRow, &p->err);
  sqlite3_str_appendchar(pOut, 1, ']');
  z = bxStrFinish(pOut, &p->err);
  if (bWhole) return z;
  sqlite3_free(z);
  return 0;
}

int bxReportProves(ReportRun *p, BxStmts *pHome) {
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pLog = bxDomainSchema(p->bx, "core", &err);
  if (bxErrIs(&err, "AmbiguousSchemaError"))
    bxErrClear(&err); /* of proof_of() */
  bxErrMove(&p->err, &err);
  return pLog != 0 && pLog == pHome;
}

void bxReportProof(ReportRun *p, ReportItem *pItem) {
  BxErr err = {SQLITE_OK, 0};
  if (p->err.rc == SQLITE_OK && p->pProof == 0) {
    BxStmts *pHome = bxReportNeed(p, "payload");
    p->pProof = bxReportQuery(p, pHome, "proof.leaf");
    p->pRow = bxReportQuery(p, pHome, "proof.row");
  }
  if (p->err.rc != SQLITE_OK) return;
  bxBind(p->pProof, &err, "t", pItem->zKey);
  if (bxStep(p->pProof, &err)) {
    const char *zPath = bxColumnText(p->pProof, 0, &p->err);
    char *zFields = fieldsOf(p, pItem);
    p->zProof = "ok";
    if (p->zHead == 0) {
      p->zHead = bxReportKeep(p, bxColumnCopy(p->pProof, 1, &p->err));
    }
    pItem->zLeaf =
        zFields != 0
            ? bxReportPrintf(p, "{\"state\":\"whole\",%s,%s}", zPath, zFields)
            : bxReportPrintf(p, "{\"state\":\"redacted\",%s,\"fields\":%s}",
                  zPath, bxColumnText(p->pProof, 2, &p->err));
    sqlite3_free(zFields);
  }
  if (bxErrIs(&err, "CorruptedDataError")) {
    pItem->zLeaf = "{\"state\":\"altered\"}";
    bxErrClear(&err);
  }
  if (bxErrIs(&err, "NotFoundError")) bxErrClear(&err);
  sqlite3_reset(p->pProof); /* its error was taken */
  bxErrMove(&p->err, &err);
}
