/*
** ring_held.c: what blackbox_check() says of a ring; and the digests of its
** exchanges that a hold keeps.
**
** A hold, and each push under it, writes the digest of each exchange that is held
** into the log, as a row of kind 'held'. The check compares what is held now with
** the newest digest of it, and the tables of the ring with each other. Its time is
** linear in the rows.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The rows with an id from ?1 to ?2 that a hold keeps. */
#define HELD_ROWS                                                              \
  " FROM main.@_slots AS s WHERE id BETWEEN ?1 AND ?2 AND (" RING_HELD ")"
static const char zHeld[] =
    "SELECT agent_id, seq, event_id, timestamp, request_body, "
    "response_body, meta" HELD_ROWS;

/* What holds keep beyond the limits. */
static void checkKept(Ring *p, BxProblems *pOut, BxErr *pErr) {
  static const char zParked[] =
      "SELECT 1 FROM main.@_slots WHERE id & 268435456";
  static const char zSum[] =
      "SELECT iif(sum(size_bytes) > (SELECT value FROM main.@_config WHERE "
      "name = 'max_bytes'), sum(size_bytes), 0)" HELD_ROWS;
  i64 nByte = bxAskOnce(&p->base.stmts, zSum, pErr, "ii", (i64)0, (i64)1 << 62);
  if (nByte > 0) {
    bxProblem(pOut, p->base.stmts.zTable,
        "holds keep exchanges of %lld bytes, more than max_bytes", nByte);
  }
  if (bxAskOnce(&p->base.stmts, zParked, pErr, "")) {
    bxProblem(pOut, p->base.stmts.zTable,
        "holds keep exchanges beyond the window, or kept them until now");
  }
}

/* Writes the digests of the rows with an id from iFirst to iLast that a hold keeps,
** or compares them for the check. */
static void eachHeld(
    Ring *p, i64 iFirst, i64 iLast, BxProblems *pCheck, BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail, agent_id,"
      " event_id) SELECT 'payload', 'held', ?1, ?2, ?3, ?4"
      " WHERE ?2 IS NOT (SELECT detail FROM main.blackbox__log"
      "  WHERE subject = ?1 AND kind = 'held' AND agent_id = ?3"
      "  ORDER BY n DESC LIMIT 1)";
  static const char zSame[] =
      "SELECT coalesce((SELECT detail = ?2 FROM main.blackbox__log"
      " WHERE subject = ?1 AND kind = 'held' AND agent_id = ?3"
      " ORDER BY n DESC LIMIT 1), 1)";
  const char *zRing = p->base.stmts.zTable;
  BxStmts *pSchema = bxSchema(p->base.stmts.bx, p->base.stmts.zDb, pErr);
  sqlite3_stmt *pRow = bxStmt(&p->base.stmts, zHeld, pErr);
  int bWritten = 0;
  bxBind(pRow, pErr, "ii", iFirst, iLast);
  while (bxRow(pRow, pErr)) {
    unsigned char a[BX_DIGEST];
    char zHex[2 * BX_DIGEST + 1], *zSubject, *zDetail;
    i64 iSeq = sqlite3_column_int64(pRow, 1);
    bxDigestRow(pRow, 0, sqlite3_column_count(pRow), a, pErr);
    bxHex(a, BX_DIGEST, zHex);
    zSubject = bxPrintf(pErr, "%s/%lld", zRing, iSeq);
    zDetail = bxPrintf(pErr, "{\"digest\":\"%s\"}", zHex);
    if (zDetail != 0 && pCheck == 0) {
      bxDo(pSchema, zLog, pErr, "ttvv", zSubject, zDetail,
          sqlite3_column_value(pRow, 0), sqlite3_column_value(pRow, 2));
      bWritten |= sqlite3_changes(p->base.stmts.bx->db) > 0;
    } else if (zDetail != 0 && !bxAsk(pSchema, zSame, pErr, "ttv", zSubject,
                                   zDetail, sqlite3_column_value(pRow, 0))) {
      bxProblem(pCheck, zRing,
          "exchange %lld of agent %s is held and was changed: its digest is "
          "not that in the log",
          iSeq, bxColumnText(pRow, 0, pErr));
    }
    sqlite3_free(zSubject);
    sqlite3_free(zDetail);
  }
  bxDone(pRow, pErr);
  if (bWritten) bxLogFollow(p->base.stmts.bx, pErr);
}

void bxRingNoteHeld(Ring *p, i64 iSlot, BxErr *pErr) {
  eachHeld(p, iSlot, iSlot, 0, pErr);
}

void bxRingHeld(BxVtab *pVtab, BxErr *pErr) {
  eachHeld((Ring *)pVtab, 0, (i64)1 << 62, 0, pErr);
}

/* Contradictions: the end of the name of a table, and what is wrong. */
#define BOUNDED                                                                \
  "EXISTS (SELECT 1 FROM main.@_config WHERE name IN ('max_bytes', "           \
  "'idle_days'))"
/* clang-format off */
static const char *const azCheck[] = {
    "SELECT 'agents', 'agent ' || agent_id || "
    "': given is not rows + rolled + cleared + saved' FROM main.@_agents "
    "WHERE given IS NULL OR given IS NOT rows + rolled + cleared + saved",
    "SELECT 'agents', 'agent ' || agent_id || "
    "': rows or bytes are not those of its slots' FROM main.@_agents AS a "
    "WHERE (SELECT count(*) || ' ' || coalesce(sum(size_bytes), 0) "
    "FROM main.@_slots WHERE id BETWEEN a.no << 29 AND (a.no << 29) + 536870911) "
    "IS NOT rows || ' ' || bytes",
    "SELECT 'agents', 'agent ' || agent_id || ': the layout is not one' "
    "FROM main.@_agents WHERE (typeof(no) = 'integer' AND no > 0 "
    "AND kept IN (0, 1) AND typeof(window) = 'integer' "
    "AND window BETWEEN 1 AND 10000) IS NOT TRUE",
    "SELECT 'slots', 'slot ' || s.id || ' is not where its agent has it' "
    "FROM main.@_slots AS s LEFT JOIN main.@_agents AS a ON a.no = s.id >> 29 "
    "WHERE a.no IS NULL OR a.agent_id IS NOT s.agent_id OR s.event_id IS NULL "
    "OR s.timestamp IS NULL OR s.seq > a.given OR s.id IS NOT (a.no << 29) + "
    "iif(s.id & 268435456 AND a.kept, 268435456 + (s.seq & 268435455), "
    "(a.window << 14) + s.seq % a.window)",
    "SELECT 'config', 'the window is not from 1 to 10000' WHERE NOT EXISTS "
    "(SELECT 1 FROM main.@_config WHERE name = 'window' "
    "AND typeof(value) = 'integer' AND value BETWEEN 1 AND 10000)",
    "SELECT 'config', name || ' is not a whole number above 0' "
    "FROM main.@_config WHERE name IN ('max_bytes', 'idle_days') "
    "AND (typeof(value) = 'integer' AND value > 0) IS NOT TRUE",
    "SELECT 'config', 'window_bytes is not the bytes of the slots; set "
    "max_bytes and idle_days to 0, then set them again' WHERE " BOUNDED
    " AND (SELECT value FROM main.@_config WHERE name = 'window_bytes') "
    "IS NOT (SELECT coalesce(sum(size_bytes), 0) FROM main.@_slots)",
    "SELECT 'turns', 'agent ' || a.agent_id || ' has no turn; set max_bytes "
    "and idle_days to 0, then set them again' FROM main.@_agents AS a "
    "LEFT JOIN main.@_turns AS t ON t.no = a.no WHERE " BOUNDED
    " AND (typeof(t.at) = 'integer' AND (t.at > 0 OR a.rows = 0)) "
    "IS NOT TRUE",
};
/* clang-format on */

void bxRingCheck(BxVtab *pVtab, BxProblems *pOut) {
  Ring *p = (Ring *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  size_t i;
  for (i = 0; i < sizeof(azCheck) / sizeof(azCheck[0]); i++) {
    bxProblemRows(pOut, bxPrepare(&pVtab->stmts, azCheck[i], &err),
        pVtab->stmts.zTable, 1, &err);
  }
  if (bxShadowIsHeld(pVtab, &err)) {
    eachHeld(p, 0, (i64)1 << 62, pOut, &err);
    checkKept(p, pOut, &err);
  }
  bxUnchecked(pOut, pVtab->stmts.zTable, &err);
}
