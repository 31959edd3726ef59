/*
** check.c: what blackbox_check() examines in a buffer: its tables compared with
** each other, damaged JSON, the pinned evidence, and the rows in the overflow.
**
** A query gives the end of the name of a table, and what is wrong.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define EV_SIZE "action_bytes + screenshot_bytes + " EV_TEXT(EV_ROW_BYTES)
#define EV_KEY "iif(r.pruned, -r.rid, r.rid)"
#define EV_HERE "r.place <> 1 AND (r.place = 0 OR r.pinned = 0)"
/* (What approval has left to sweep is under rid.) */

/* clang-format off */
static const char zCountersDiffer[] =
    "SELECT 'state', 'counters differ from the rows' FROM (SELECT 1)"
    " LEFT JOIN main.@_state AS s WHERE (actions, bytes, screenshots,"
    "  free_screenshots, pinned_bytes, memory_bytes, overflowed, 1) IS NOT (SELECT count(*),"
    "  coalesce(sum(" EV_SIZE "), 0), coalesce(sum(screenshot_bytes > 0), 0),"
    "  coalesce(sum(screenshot_bytes > 0 AND pinned = 0), 0),"
    "  coalesce(sum((pinned <> 0) * (" EV_SIZE ")), 0),"
    "  coalesce(sum((place = 0) * (" EV_SIZE ")), 0),"
    "  coalesce(sum(place = 1), 0), coalesce(max(rid), 0) <= s.last FROM main.@_rows)";

static const char zDataMissing[] =
    "SELECT 'rows', 'no action for ' || quote(r.id) FROM main.@_rows AS r"
    " WHERE " EV_HERE " AND NOT EXISTS"
    " (SELECT 1 FROM main.@_actions AS a WHERE a.rid = " EV_KEY ")"
    " UNION ALL SELECT 'rows', 'no screenshot for ' || quote(r.id)"
    " FROM main.@_rows AS r WHERE " EV_HERE " AND r.screenshot_bytes > 0"
    " AND NOT EXISTS (SELECT 1 FROM main.@_shots AS s WHERE s.rid = r.rid)";

static const char zDataDiffers[] =
    "SELECT 'actions', CASE WHEN r.rid IS NULL"
    "  THEN 'action ' || a.rid || ' belongs to no row'"
    "  WHEN CASE WHEN json_valid(a.action)"
    "   THEN json_type(a.action) <> 'object' ELSE 1 END"
    "  THEN 'damaged JSON of ' || quote(r.id)"
    "  ELSE 'wrong size of ' || quote(r.id) END"
    " FROM main.@_actions AS a"
    " LEFT JOIN main.@_rows AS r ON r.rid = abs(a.rid) AND " EV_HERE
    " WHERE CASE WHEN r.rid IS NULL THEN 1"
    "  WHEN a.rid <> " EV_KEY " THEN (SELECT a.rid > 0 AND a.rid > swept"
    "   AND a.rid <= stale FROM main.@_state) IS NOT 1"
    "  WHEN r.action_bytes IS NOT length(CAST(a.action AS BLOB)) THEN 1"
    "  WHEN json_valid(a.action) THEN json_type(a.action) <> 'object'"
    "  ELSE 1 END"
    " UNION ALL SELECT 'shots', 'screenshot ' || s.rid"
    " || ' belongs to no row or has another size' FROM main.@_shots AS s"
    " LEFT JOIN main.@_rows AS r ON r.rid = s.rid AND " EV_HERE
    " WHERE CASE WHEN r.rid IS NULL THEN 1"
    "  WHEN r.screenshot_bytes = 0 THEN (SELECT s.rid > swept"
    "   AND s.rid <= stale FROM main.@_state) IS NOT 1"
    "  ELSE r.screenshot_bytes IS NOT length(s.screenshot) END";

/* Of a buffer in a file. */
static const char zPinsDiffer[] =
    "SELECT 'rows', 'pinned evidence ' || quote(r.id) || ' is not in"
    " evidence__pinned as it was pinned' FROM main.@_rows AS r"
    " LEFT JOIN main.evidence__pinned AS e ON e.no = r.pinned"
    " WHERE r.pinned <> 0 AND (e.id IS NOT r.id OR e.pinned IS NOT 1"
    "  OR e.timestamp IS NOT r.timestamp"
    "  OR length(CAST(e.action AS BLOB)) IS NOT r.action_bytes"
    "  OR coalesce(length(e.screenshot), 0) IS NOT r.screenshot_bytes)"
    " UNION ALL SELECT 'rows', 'evidence ' || quote(e.id) ||"
    " ' was pinned, and is in evidence__pinned only'"
    " FROM main.evidence__pinned AS e WHERE e.buffer = '@' COLLATE NOCASE"
    " AND NOT EXISTS (SELECT 1 FROM main.@_rows AS r"
    "  WHERE r.id = e.id AND r.pinned = e.no)";

static const char zNothing[] = "SELECT 1 WHERE 0";
static const char zOverDiffers[] =
    "SELECT 'rows', 'nothing in the overflow for ' || quote(r.id)"
    " FROM main.@_rows AS r WHERE place = 1"
    " AND NOT EXISTS (SELECT 1 FROM over.evidence__overflow AS o"
    "  WHERE o.owner = ?2 AND o.id = r.id)"
    " UNION ALL SELECT 'rows', 'no screenshot in the overflow for ' ||"
    " quote(r.id) FROM main.@_rows AS r, over.evidence__overflow AS o"
    " WHERE place = 1 AND o.owner = ?2 AND o.id = r.id"
    " AND r.screenshot_bytes > o.screenshot_bytes"
    " UNION ALL SELECT 'rows', 'pinned evidence ' || quote(r.id) ||"
    " ' was altered in the overflow' FROM main.@_rows AS r,"
    " over.evidence__overflow AS o WHERE place = 1 AND r.pinned <> 0"
    " AND o.owner = ?2 AND o.id = r.id AND (o.pinned IS NOT 1"
    "  OR o.timestamp IS NOT r.timestamp"
    "  OR length(CAST(o.action AS BLOB)) IS NOT r.action_bytes"
    "  OR coalesce(length(o.screenshot), 0) IS NOT r.screenshot_bytes)"
    " UNION ALL SELECT 'rows', 'damaged JSON in the overflow of ' ||"
    " quote(o.id) FROM over.evidence__overflow AS o"
    " WHERE o.owner = ?2 AND NOT json_valid(o.action)";
/* clang-format on */

void bxEvKnown(BxVtab *pVtab, BxErr *pErr) {
  bxEvExpectKnown((EvBuffer *)pVtab, pErr);
}

/* Pinned rows of a buffer that was lost. (Others keep the buffer itself.) */
void bxEvidenceLeave(BxStmts *p, BxErr *pErr) {
  static const char zLost[] =
      "SELECT count(*) FROM main.evidence__pinned AS e WHERE pinned IS NOT 0"
      " AND NOT EXISTS (SELECT 1 FROM main.sqlite_schema"
      "  WHERE type = 'table' AND name = e.buffer COLLATE NOCASE)";
  i64 n = bxQueryIntOnce(p, zLost, pErr, "");
  if (n == 0) return;
  bxFail(pErr, SQLITE_CONSTRAINT,
      "PinnedError: schema %s has %lld pinned rows of buffers that are gone, "
      "and nothing was removed; UPDATE evidence__pinned SET pinned = 0 unpins "
      "them",
      p->zDb, n);
}

void bxEvCheck(BxVtab *pVtab, BxProblems *pOut) {
  static const char *const azSql[] = {
      zCountersDiffer, zDataMissing, zDataDiffers, zPinsDiffer};
  EvBuffer *p = (EvBuffer *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  int i;
  for (i = 0; i < (p->bTemp ? 3 : 4); i++) {
    bxProblemRows(pOut, bxPrepare(&pVtab->stmts, azSql[i], &err),
        pVtab->stmts.zTable, 1, &err);
  }
  bxProblemRows(pOut, bxEvPrepareTiers(p, zNothing, zOverDiffers, &err),
      pVtab->stmts.zTable, 1, &err);
}
