/*
** ring_held.c: digests of the exchanges of a ring that a hold keeps.
**
** Nothing refuses a program that writes into the tables of a ring by incremental
** blob I/O. So a hold, and each push under it, writes the digest of each exchange
** that is held into the log, as a row of kind 'held'. blackbox_check() compares
** what is held now with the newest digest of it.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Held rows of a ring. In a file without holds the ring has no view @_held. */
static sqlite3_stmt *heldRows(Ring *p, i64 iSlot, BxErr *pErr) {
  static const char zHeld[] =
      "SELECT agent_id, seq, event_id, timestamp, request_body, response_body"
      " FROM main.@_slots WHERE id IN (SELECT id FROM main.@_held)"
      " AND (?1 = 0 OR id = ?1)";
  sqlite3_stmt *pStmt;
  if (!bxShadowIsGuarded(&p->base, pErr)) return 0;
  pStmt = bxPrepare(&p->base.stmts, zHeld, pErr);
  bxBind(pStmt, pErr, "i", iSlot);
  return pStmt;
}

/* What the log says of the row that pRow is on: subject and detail, each to
** sqlite3_free(). */
static void describe(const Ring *p, sqlite3_stmt *pRow, char **pzSubject,
    char **pzDetail, BxErr *pErr) {
  unsigned char a[BX_DIGEST];
  char zHex[2 * BX_DIGEST + 1];
  bxDigestRow(pRow, 0, sqlite3_column_count(pRow), a, pErr);
  bxHex(a, BX_DIGEST, zHex);
  *pzSubject = bxPrintf(
      pErr, "%s/%lld", p->base.stmts.zTable, sqlite3_column_int64(pRow, 1));
  *pzDetail = bxPrintf(pErr, "{\"digest\":\"%s\"}", zHex);
}

void bxRingLogHeld(Ring *p, i64 iSlot, BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail, agent_id,"
      " event_id) SELECT 'payload', 'held', ?1, ?2, ?3, ?4"
      " WHERE ?2 IS NOT (SELECT detail FROM main.blackbox__log"
      "  WHERE subject = ?1 AND kind = 'held' AND agent_id = ?3"
      "  ORDER BY n DESC LIMIT 1)";
  BxStmts *pSchema = bxSchema(p->base.stmts.bx, p->base.stmts.zDb, pErr);
  sqlite3_stmt *pRow = heldRows(p, iSlot, pErr);
  while (pRow != 0 && bxRow(pRow, pErr)) {
    char *zSubject, *zDetail;
    describe(p, pRow, &zSubject, &zDetail, pErr);
    if (zDetail != 0) {
      bxDo(pSchema, zLog, pErr, "ttvv", zSubject, zDetail,
          sqlite3_column_value(pRow, 0), sqlite3_column_value(pRow, 2));
    }
    sqlite3_free(zSubject);
    sqlite3_free(zDetail);
  }
  sqlite3_finalize(pRow);
}

void bxRingHeld(BxVtab *pVtab, BxErr *pErr) {
  bxRingLogHeld((Ring *)pVtab, 0, pErr);
}

void bxRingCheck(BxVtab *pVtab, BxProblems *pOut) {
  static const char zSame[] =
      "SELECT coalesce((SELECT detail = ?3 FROM main.blackbox__log"
      " WHERE subject = ?1 AND kind = 'held' AND agent_id = ?2"
      " ORDER BY n DESC LIMIT 1), 1)";
  Ring *p = (Ring *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  BxStmts *pSchema = bxSchema(pVtab->stmts.bx, pVtab->stmts.zDb, &err);
  sqlite3_stmt *pRow = heldRows(p, 0, &err);
  while (pRow != 0 && bxRow(pRow, &err)) {
    char *zSubject, *zDetail;
    describe(p, pRow, &zSubject, &zDetail, &err);
    if (zDetail != 0 && !bxAsk(pSchema, zSame, &err, "tvt", zSubject,
                            sqlite3_column_value(pRow, 0), zDetail)) {
      bxProblem(pOut, pVtab->stmts.zTable,
          "exchange %s of agent %s is held and was changed: its digest is not "
          "that in the log",
          strrchr(zSubject, '/') + 1, bxColumnText(pRow, 0, &err));
    }
    sqlite3_free(zSubject);
    sqlite3_free(zDetail);
  }
  sqlite3_finalize(pRow);
  bxUnchecked(pOut, pVtab->stmts.zTable, &err);
}
