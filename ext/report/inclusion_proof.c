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
static int appendField(ReportRun *p, sqlite3_str *pOut, sqlite3_stmt *pRow,
    int i, const ReportItem *pItem, const ReportBodiesOf *pBodies) {
  const char *zName = sqlite3_column_name(pRow, i), *z;
  const char *zRole = 0;
  char *zMasked;
  i64 n;
  int iPart = 0;
  assert(i >= 0 && i < sqlite3_column_count(pRow));
  if (zName == 0) return 0;
  sqlite3_str_appendf(pOut, "%s[\"%s\",", i > 0 ? "," : "", zName);
  if (strcmp(zName, "row.request_body") == 0) zRole = "request";
  if (strcmp(zName, "row.response_body") == 0) zRole = "response";
  while (zRole != 0 && iPart < pItem->nPart &&
         strcmp(pItem->aPart[iPart].zRole, zRole) != 0) {
    iPart++;
  }
  if (zRole != 0 && iPart < pItem->nPart) {
    if (pBodies->abMasked[iPart]) return 0;
    sqlite3_str_appendf(pOut, "\"part\",%d,\"%s\"", iPart,
        pBodies->aType[iPart] == SQLITE_BLOB ? "blob" : "text");
  } else if (zRole != 0 || sqlite3_column_type(pRow, i) == SQLITE_NULL) {
    sqlite3_str_appendall(pOut, "\"null\"");
  } else if (sqlite3_column_type(pRow, i) == SQLITE_INTEGER) {
    sqlite3_str_appendf(
        pOut, "\"integer\",\"%lld\"", sqlite3_column_int64(pRow, i));
  } else if (sqlite3_column_type(pRow, i) == SQLITE_TEXT) {
    z = bxColumnText(pRow, i, &p->err);
    n = sqlite3_column_bytes(pRow, i);
    if (z == 0 || !bxIsUtf8((const unsigned char *)z, (int)n)) return 0;
    if (bxSecretsMask(&p->masks, z, n, 0, &zMasked, &n, &p->err)) {
      sqlite3_free(zMasked);
      return 0;
    }
    sqlite3_str_appendall(pOut, "\"text\",");
    bxReportJson(pOut, z, n);
  } else {
    return 0;
  }
  sqlite3_str_appendchar(pOut, 1, ']');
  return 1;
}

/* The salt and all fields, as members of JSON, to sqlite3_free(). NULL if the page
** does not have all of them. */
static char *fieldsOf(
    ReportRun *p, const ReportItem *pItem, const ReportBodiesOf *pBodies) {
  static const char zRow[] =
      "SELECT l.actor, l.agent_id, l.at, l.bytes, l.detail, l.domain,"
      " l.event_id, l.kill_switch_event_id, l.kind, l.newest, l.oldest,"
      " l.reason, e.agent_id AS \"row.agent_id\","
      " e.created_at AS \"row.created_at\", e.event_id AS \"row.event_id\","
      " e.id AS \"row.id\","
      " e.kill_switch_event_id AS \"row.kill_switch_event_id\","
      " e.meta AS \"row.meta\", e.purpose AS \"row.purpose\","
      " e.request_body AS \"row.request_body\","
      " e.response_body AS \"row.response_body\", l.rows, l.subject,"
      " nullif(lower(hex(l.salt)), '')"
      " FROM main.payload__pins AS p JOIN main.blackbox__log AS l ON l.n = p.n"
      " JOIN main.payload_rows AS e ON e.id = p.id WHERE p.id = ?1";
  sqlite3_stmt *pRow;
  sqlite3_str *pOut;
  int i, n, bWhole;
  char *z;
  if (!pItem->bBodies || p->opt.eBodies == REPORT_NONE) return 0;
  if (p->pRow == 0) {
    p->pRow = bxPrepare(bxReportNeed(p, "payload"), zRow, &p->err);
  }
  pRow = p->pRow;
  if (p->err.rc != SQLITE_OK) return 0;
  pOut = sqlite3_str_new(0);
  bxBind(pRow, &p->err, "t", pItem->zKey);
  bWhole = bxReportRow(p, pRow);
  n = sqlite3_column_count(pRow) - 1;
  if (bWhole) {
    z = bxColumnCopy(pRow, n, &p->err);
    sqlite3_str_appendf(pOut, "\"salt\":\"%s\",\"fields\":[", z ? z : "");
    bWhole = z != 0;
    sqlite3_free(z);
  }
  for (i = 0; i < n && bWhole; i++) {
    bWhole = appendField(p, pOut, pRow, i, pItem, pBodies);
  }
  bxReset(pRow, &p->err);
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
    bxErrClear(&err); /* proof_of() fails */
  bxErrMove(&p->err, &err);
  return pLog != 0 && pLog == pHome;
}

void bxReportProof(
    ReportRun *p, ReportItem *pItem, const ReportBodiesOf *pBodies) {
  static const char zLeaf[] =
      "SELECT '\"n\":' || (?1 ->> '$.n') || ',\"kept\":' ||"
      " coalesce(?1 ->> '$.kept', 0) || ',\"path\":' || (?1 -> '$.path'),"
      " ?1 ->> '$.head',"
      " (SELECT json_group_array(json_array(value ->> 'name',"
      "    value ->> 'type', value ->> 'hash'))"
      "   FROM json_each(?1, '$.fields'))";
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  char *zProof = 0, *zFields;
  int bAltered;
  if (p->err.rc == SQLITE_OK && p->pProof == 0) {
    p->pProof =
        bxPrepareSql(p->bx->db, "SELECT proof_of('evidence', ?1)", &p->err);
  }
  if (p->err.rc != SQLITE_OK) return;
  pStmt = p->pProof;
  bxBind(pStmt, &err, "t", pItem->zKey);
  if (bxStep(pStmt, &err)) zProof = bxColumnCopy(pStmt, 0, &err);
  bAltered = bxErrIs(&err, "CorruptedDataError");
  if (bAltered || bxErrIs(&err, "NotFoundError")) bxErrClear(&err);
  sqlite3_reset(pStmt); /* its error was taken */
  bxErrMove(&p->err, &err);
  if (bAltered) {
    pItem->zLeaf = bxPrintf(&p->err, "{\"state\":\"altered\"}");
    return;
  }
  if (zProof == 0) return;
  p->zProof = "ok";
  zFields = fieldsOf(p, pItem, pBodies);
  pStmt = bxPrepareSql(p->bx->db, zLeaf, &p->err);
  bxBind(pStmt, &p->err, "t", zProof);
  if (bxReportRow(p, pStmt)) {
    const char *zPath = bxColumnText(pStmt, 0, &p->err);
    if (p->zHead == 0) p->zHead = bxColumnCopy(pStmt, 1, &p->err);
    pItem->zLeaf =
        zFields != 0
            ? bxPrintf(&p->err, "{\"state\":\"whole\",%s,%s}", zPath, zFields)
            : bxPrintf(&p->err, "{\"state\":\"redacted\",%s,\"fields\":%s}",
                  zPath, bxColumnText(pStmt, 2, &p->err));
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zFields);
  sqlite3_free(zProof);
}
