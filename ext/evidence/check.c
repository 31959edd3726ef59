/*
** check.c: what blackbox_check() examines in a buffer in addition to the view
** @_check of sql/evidence_buffer.sql: damaged JSON, because no view may contain
** a JSON function, and the rows in the overflow.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Actions that the view does not report. */
#define DAMAGED                                                                \
  "SELECT 'actions', 'damaged JSON of ' || quote(r.id)"                        \
  " FROM main.@_actions AS a JOIN main.@_rows AS r ON r.rid = a.rid"           \
  " WHERE r.action_bytes = length(CAST(a.action AS BLOB))"                     \
  " AND CASE WHEN json_valid(a.action)"                                        \
  " THEN json_type(a.action) <> 'object' ELSE 1 END"

void bxEvKnown(BxVtab *pVtab, BxErr *pErr) {
  bxEvExpectKnown((EvBuffer *)pVtab, pErr);
}

void bxEvCheck(BxVtab *pVtab, BxProblems *pOut) {
  const char *zTable = pVtab->stmts.zTable;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = bxEvPrepareTiers((EvBuffer *)pVtab, DAMAGED,
      DAMAGED " UNION ALL SELECT 'rows', 'nothing in the overflow for ' "
              "|| quote(r.id) FROM main.@_rows AS r WHERE place = 1 "
              "AND NOT EXISTS (SELECT 1 FROM over.evidence__overflow AS o"
              " WHERE o.owner = ?2 AND o.id = r.id)"
              " UNION ALL SELECT 'rows', 'no screenshot in the overflow "
              "for ' || quote(r.id) FROM main.@_rows AS r,"
              " over.evidence__overflow AS o WHERE place = 1"
              " AND o.owner = ?2 AND o.id = r.id"
              " AND r.screenshot_bytes > o.screenshot_bytes"
              " UNION ALL SELECT 'rows', 'damaged JSON in the overflow "
              "of ' || quote(o.id) FROM over.evidence__overflow AS o,"
              " over.evidence__overflow_actions AS a WHERE a.rid = o.rid"
              " AND o.owner = ?2 AND NOT json_valid(a.action)",
      &err);
  while (bxRow(pStmt, &err)) {
    char *z = bxPrintf(&err, "%s_%s", zTable, sqlite3_column_text(pStmt, 0));
    bxProblem(pOut, z ? z : "", "%s", sqlite3_column_text(pStmt, 1));
    sqlite3_free(z);
  }
  sqlite3_finalize(pStmt);
  bxUnchecked(pOut, zTable, &err);
}
