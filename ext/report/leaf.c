/*
** leaf.c: what a browser needs to verify an item: the proof of its leaf, and the
** columns of its row, from which the digest in the proof is computed again.
**
** The columns are given only if the page has all of them as they are stored. If
** something was masked, or the bodies are not in the page, it cannot compute the
** digest, and the state is "redacted".
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The proof of an item, to sqlite3_free(); NULL if it has no leaf. *pbAltered:
** the row is not what its leaf says. */
static char *proofOf(ReportRun *p, const ReportItem *pItem, int *pbAltered) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = p->apAsk[ASK_PROOF];
  char *z = 0;
  *pbAltered = 0;
  if (p->err.rc != SQLITE_OK) return 0;
  if (pStmt == 0) {
    pStmt = bxPlain(p->bx->db, "SELECT proof_of('evidence', ?1)", &p->err);
    p->apAsk[ASK_PROOF] = pStmt;
  }
  if (pStmt == 0) return 0;
  bxBind(pStmt, &err, "t", pItem->zKey);
  if (bxRow(pStmt, &err)) z = bxColumnCopy(pStmt, 0, &err);
  if (bxIs(&err, "CorruptedDataError")) *pbAltered = 1;
  if (*pbAltered || bxIs(&err, "NotFoundError")) bxClear(&err);
  sqlite3_reset(pStmt); /* its error was taken */
  bxPass(&p->err, &err);
  return z;
}

/* Whether a text may stand in the page as it is. */
static int isShowable(ReportRun *p, const char *z, i64 n) {
  char *zMasked;
  i64 nMasked;
  int bMasked = bxMask(&p->masks, z, n, 0, &zMasked, &nMasked, &p->err);
  sqlite3_free(zMasked);
  return !bMasked && bxIsUtf8((const unsigned char *)z, (int)n);
}

static void appendBytesOf(sqlite3_str *pOut, sqlite3_stmt *pRow, int i) {
  const unsigned char *a = sqlite3_column_blob(pRow, i);
  int n = sqlite3_column_bytes(pRow, i);
  for (; n > 0 && a != 0; a++, n--) sqlite3_str_appendf(pOut, "%02x", *a);
}

/* A column that is a body: it is a part of the item. */
static void appendBody(sqlite3_str *pOut, const ReportItem *pItem,
    const char *zRole, const ReportBodiesOf *pBodies) {
  int i;
  for (i = 0; i < pItem->nPart; i++) {
    if (strcmp(pItem->aPart[i].zRole, zRole) == 0) {
      sqlite3_str_appendf(pOut, "\"part\",%d,\"%s\"]", i,
          pBodies->aType[i] == SQLITE_BLOB ? "blob" : "text");
      return;
    }
  }
  sqlite3_str_appendall(pOut, "\"null\"]");
}

/* One column: its name, type, and value. Returns 0 if the page cannot have it. */
static int appendColumn(ReportRun *p, sqlite3_str *pOut, sqlite3_stmt *pRow,
    int i, const ReportItem *pItem, const ReportBodiesOf *pBodies) {
  const char *zName = sqlite3_column_name(pRow, i);
  const char *z;
  double r;
  sqlite3_uint64 n;
  sqlite3_str_appendall(pOut, i > 1 ? ",[" : "[");
  bxReportJson(pOut, zName ? zName : "", zName ? (i64)strlen(zName) : 0);
  sqlite3_str_appendall(pOut, ",");
  if (zName != 0 && strcmp(zName, "request_body") == 0) {
    appendBody(pOut, pItem, "request", pBodies);
    return 1;
  }
  if (zName != 0 && strcmp(zName, "response_body") == 0) {
    appendBody(pOut, pItem, "response", pBodies);
    return 1;
  }
  switch (sqlite3_column_type(pRow, i)) {
    case SQLITE_NULL: sqlite3_str_appendall(pOut, "\"null\"]"); return 1;
    case SQLITE_INTEGER:
      sqlite3_str_appendf(
          pOut, "\"integer\",\"%lld\"]", sqlite3_column_int64(pRow, i));
      return 1;
    case SQLITE_FLOAT:
      r = sqlite3_column_double(pRow, i);
      memcpy(&n, &r, sizeof(n));
      sqlite3_str_appendf(pOut, "\"real\",\"%016llx\"]", n);
      return 1;
    case SQLITE_BLOB:
      sqlite3_str_appendall(pOut, "\"blob\",\"");
      appendBytesOf(pOut, pRow, i);
      sqlite3_str_appendall(pOut, "\"]");
      return 1;
    default: break;
  }
  z = bxColumnText(pRow, i, &p->err);
  if (z == 0 || !isShowable(p, z, sqlite3_column_bytes(pRow, i))) return 0;
  sqlite3_str_appendall(pOut, "\"text\",");
  bxReportJson(pOut, z, sqlite3_column_bytes(pRow, i));
  sqlite3_str_appendall(pOut, "]");
  return 1;
}

/* The columns of the row as an array of JSON, to sqlite3_free(). NULL if the page
** cannot have all of them. */
static char *columnsOf(
    ReportRun *p, const ReportItem *pItem, const ReportBodiesOf *pBodies) {
  static const char zRow[] =
      "SELECT NULL, e.* FROM main.payload__pins AS l"
      " JOIN main.payload_rows AS e ON e.id = l.id"
      " WHERE l.id = ?1";
  sqlite3_stmt *pRow;
  sqlite3_str *pOut;
  int i, n, bWhole = 0;
  char *z;
  if (pItem->bMasked || !pItem->bBodies || p->opt.eBodies == REPORT_NONE) {
    return 0;
  }
  if (p->apAsk[ASK_ROW] == 0) {
    p->apAsk[ASK_ROW] = bxPrepare(bxReportNeed(p, "payload"), zRow, &p->err);
  }
  pRow = p->apAsk[ASK_ROW];
  if (p->err.rc != SQLITE_OK) return 0;
  pOut = sqlite3_str_new(0);
  bxBind(pRow, &p->err, "t", pItem->zKey);
  if (bxReportRow(p, pRow)) {
    n = sqlite3_column_count(pRow) - 2; /* without columns and created_ms */
    if (sqlite3_column_int(pRow, 0) > 0 && sqlite3_column_int(pRow, 0) < n) {
      n = sqlite3_column_int(pRow, 0);
    }
    for (i = 1, bWhole = 1; i <= n && bWhole; i++) {
      bWhole = appendColumn(p, pOut, pRow, i, pItem, pBodies);
    }
  }
  bxDone(pRow, &p->err);
  z = bxFinish(pOut, &p->err);
  if (bWhole) return z;
  sqlite3_free(z);
  return 0;
}

void bxReportLeaf(
    ReportRun *p, ReportItem *pItem, const ReportBodiesOf *pBodies) {
  int bAltered;
  char *zProof = proofOf(p, pItem, &bAltered), *zColumns;
  if (bAltered) {
    pItem->zLeaf = bxPrintf(&p->err, "{\"state\":\"altered\"}");
    return;
  }
  if (zProof == 0) return;
  p->zProof = "ok";
  if (p->zHead == 0) {
    sqlite3_stmt *pStmt = bxPlain(p->bx->db, "SELECT ?1 ->> '$.head'", &p->err);
    bxBind(pStmt, &p->err, "t", zProof);
    if (bxReportRow(p, pStmt)) p->zHead = bxColumnCopy(pStmt, 0, &p->err);
    sqlite3_finalize(pStmt);
  }
  zColumns = columnsOf(p, pItem, pBodies);
  if (zColumns != 0) {
    pItem->zLeaf =
        bxPrintf(&p->err, "{\"state\":\"whole\",\"proof\":%s,\"columns\":[%s]}",
            zProof, zColumns);
  } else {
    pItem->zLeaf =
        bxPrintf(&p->err, "{\"state\":\"redacted\",\"proof\":%s}", zProof);
  }
  sqlite3_free(zColumns);
  sqlite3_free(zProof);
}
