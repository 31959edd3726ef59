/*
** ring_check.c: what blackbox_check() says of a ring; and the digests of its
** exchanges that a hold keeps.
**
** A hold, and each push under it, writes the digest of each exchange that is held
** into the log, as a row of kind 'held', whose subject is <ring>/<seq>. As long as the
** hold stands without a gap (archive_held.c) the exchange must be there, with each
** digest of that time; before the newest one it may have got a response, and a meta if
** it had none. So a ring with such exchanges keeps its name.
*/
#include "watch.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The rows with an id from ?1 to ?2 that a hold keeps. */
#define HELD_ROWS                                                              \
  " FROM main.@_slots AS s WHERE id BETWEEN ?1 AND ?2 AND (" RING_HELD ")"
static const char zHeld[] =
    "SELECT agent_id, seq, event_id, timestamp, " RING_REQUEST
    ", " RING_RESPONSE ", meta" HELD_ROWS;
#define THINGS(agent, event, ring)                                             \
  "(f.kind = 'agent' AND f.\"key\" = " agent                                   \
  " OR f.kind = 'event' AND f.\"key\" = " event                                \
  " OR f.kind = 'buffer' AND f.\"key\" = lower(" ring "))"

/* What holds keep beyond the limits. */
static void checkKept(Ring *p, BxProblems *pOut, BxErr *pErr) {
  static const char zParked[] =
      "SELECT 1 FROM main.@_slots WHERE id & 268435456";
  static const char zSum[] = "SELECT iif(sum(size_bytes) > " RING_SETTING(
      RING_MAX_BYTES) ", sum(size_bytes), 0)" HELD_ROWS;
  i64 nByte =
      bxQueryIntOnce(&p->base.stmts, zSum, pErr, "ii", (i64)0, (i64)1 << 62);
  if (nByte > 0) {
    bxProblem(pOut, p->base.stmts.zTable,
        "holds keep exchanges of %lld bytes, more than max_bytes", nByte);
  }
  if (bxQueryIntOnce(&p->base.stmts, zParked, pErr, "")) {
    bxProblem(pOut, p->base.stmts.zTable,
        "holds keep exchanges beyond the window, or kept them until now");
  }
}

/* The detail of a row of the log for the row that pRow is on, to sqlite3_free(). */
static char *detailOf(sqlite3_stmt *pRow, BxErr *pErr) {
  unsigned char a[BX_DIGEST];
  char zHex[2 * BX_DIGEST + 1];
  assert(sqlite3_column_count(pRow) > 0);
  bxDigestRow(pRow, 0, sqlite3_column_count(pRow), a, pErr);
  bxHex(a, BX_DIGEST, zHex);
  return bxPrintf(pErr, "{\"digest\":\"%s\"}", zHex);
}

static void logHeld(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr) {
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail, agent_id,"
      " event_id) SELECT 'payload', 'held', ?5 || '/' || ?1, ?2, ?3, ?4"
      " WHERE ?2 IS NOT (SELECT detail FROM main.blackbox__log"
      "  WHERE subject = ?5 || '/' || ?1 AND kind = 'held' AND agent_id = ?3"
      "  AND n > (SELECT max(step) FROM main.retention__holds AS f"
      "   WHERE " THINGS("?3", "?4", "?5") ") ORDER BY n DESC LIMIT 1)";
  BxStmts *pSchema = bxSchema(p->base.stmts.bx, p->base.stmts.zDb, pErr);
  sqlite3_stmt *pRow = bxStmt(&p->base.stmts, zHeld, pErr);
  int bWritten = 0;
  assert(iFirst <= iLast);
  bxBodyUse(p, pRow, pErr);
  bxBind(pRow, pErr, "ii", iFirst, iLast);
  while (bxStep(pRow, pErr)) {
    char *zDetail = detailOf(pRow, pErr);
    bxStmtExec(pSchema, zLog, pErr, "itvvt", sqlite3_column_int64(pRow, 1),
        zDetail, sqlite3_column_value(pRow, 0), sqlite3_column_value(pRow, 2),
        p->base.stmts.zTable);
    bWritten |= sqlite3_changes(p->base.stmts.bx->db) > 0;
    sqlite3_free(zDetail);
  }
  bxReset(pRow, pErr);
  if (bWritten) bxLogProveAll(p->base.stmts.bx, pErr);
}

void bxRingNoteHeld(Ring *p, i64 iSlot, BxErr *pErr) {
  logHeld(p, iSlot, iSlot, pErr);
}

void bxRingHeld(BxVtab *pVtab, BxErr *pErr) {
  logHeld((Ring *)pVtab, 0, (i64)1 << 62, pErr);
}

/* The exchange of a row of the log: of agent ?1 with seq ?2, where its agent has it, or
** beyond its window. If ?3 also as it was without its meta (1), or without its response (2). */
static const char zExchange[] =
    "SELECT s.agent_id, seq, event_id, timestamp, " RING_REQUEST ","
    " iif(column1 & 2, NULL, " RING_RESPONSE "), iif(column1 & 1, NULL, meta)"
    " FROM (VALUES (0), (1), (2), (3)) CROSS JOIN main.@_agents AS a"
    " CROSS JOIN main.@_slots AS s"
    "  ON s.id = (a.no << 29) + (a.window << 14) + ?2 % a.window"
    "  OR s.id = (a.no << 29) + 268435456 + (?2 & 268435455)"
    " WHERE a.agent_id = ?1 AND s.seq = ?2 AND (column1 = 0 OR ?3)";

/* Whether a ring has the exchange of a row of the log, as it says. */
static int isAsNoted(
    Ring *p, sqlite3_stmt *pListed, int *pbThere, BxErr *pErr) {
  const char *zNoted = bxColumnText(pListed, 5, pErr);
  sqlite3_stmt *pRow = bxStmt(&p->base.stmts, zExchange, pErr);
  int bSame = 0;
  assert(pbThere != 0 && *pbThere == 0);
  bxBodyUse(p, pRow, pErr);
  bxBind(pRow, pErr, "vvi", sqlite3_column_value(pListed, 2),
      sqlite3_column_value(pListed, 4), sqlite3_column_int64(pListed, 6));
  while (!bSame && bxStep(pRow, pErr)) {
    char *zDetail = detailOf(pRow, pErr);
    bSame = zDetail != 0 && zNoted != 0 && strcmp(zDetail, zNoted) == 0;
    sqlite3_free(zDetail);
    *pbThere = 1;
  }
  bxReset(pRow, pErr);
  return bSame;
}

void bxRingCheckHeld(BxStmts *p, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg, BxErr *pErr) {
  static const char zListed[] =
      "SELECT l.n, l.name, l.agent_id, f.kind || ':' || f.\"key\", l.seq,"
      " l.detail, EXISTS (SELECT 1 FROM main.blackbox__log AS x"
      "  WHERE x.subject = l.subject AND x.kind = 'held'"
      "  AND x.agent_id = l.agent_id AND x.n > l.n)"
      " FROM (SELECT n, subject, agent_id, event_id, detail,"
      "  CAST(substr(subject, length(rtrim(subject, '0123456789')) + 1) AS"
      "   INTEGER) AS seq, substr(subject, 1, length(rtrim(subject,"
      "   '0123456789')) - 1) AS name FROM main.blackbox__log WHERE n > ?1"
      "  AND kind = 'held' AND domain = 'payload' AND agent_id IS NOT NULL"
      "  AND EXISTS (SELECT 1 FROM main.retention__holds)"
      "  ORDER BY n LIMIT -1) AS l"
      " CROSS JOIN main.retention__holds AS f WHERE " THINGS(
          "l.agent_id", "l.event_id", "l.name");
  sqlite3_stmt *pRow = bxPrepare(p, zListed, pErr);
  i64 iTold = 0;
  bxBind(pRow, pErr, "i", iFrom);
  while (bxStep(pRow, pErr)) {
    BxErr err = {SQLITE_OK, 0};
    i64 n = sqlite3_column_int64(pRow, 0);
    const char *zName = bxColumnText(pRow, 1, pErr);
    const char *zThing = bxColumnText(pRow, 3, pErr);
    i64 iSince = zThing != 0 ? bxHeldSince(p, zThing, pErr) : 0;
    Ring *pRing;
    int bThere = 0, bSame = 0;
    if (n == iTold || iSince == 0 || iSince > n || zName == 0) continue;
    pRing = (Ring *)bxVtabIn(p->bx, "payload_ring", p->zDb, zName, &err);
    if (pRing != 0) bSame = isAsNoted(pRing, pRow, &bThere, &err);
    if ((err.rc & 0xff) == SQLITE_ERROR || (err.rc & 0xff) == SQLITE_CORRUPT) {
      bxErrClear(&err); /* it has lost a table */
    }
    bxErrMove(pErr, &err);
    if (bSame) continue;
    iTold = n;
    xTell(pArg, n,
        bxPrintf(pErr,
            "exchange %lld of agent %s of ring %s %s, though a hold on %s "
            "keeps it: this row of the log has its digest",
            sqlite3_column_int64(pRow, 4), bxColumnText(pRow, 2, pErr), zName,
            bThere ? "was changed" : "was removed", zThing));
  }
  sqlite3_finalize(pRow);
}

/* Contradictions: the end of the name of a table, and what is wrong. */
#define BOUNDED                                                                \
  "EXISTS (SELECT 1 FROM main.@_texts WHERE id IN (" RING_MAX_BYTES            \
  ", " RING_IDLE_DAYS "))"
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
    "SELECT 'texts', 'the window is not from 1 to 10000' WHERE NOT EXISTS "
    "(SELECT 1 FROM main.@_texts WHERE id = " RING_WINDOW
    " AND typeof(body) = 'integer' AND body BETWEEN 1 AND 10000)",
    "SELECT 'texts', iif(id = " RING_MAX_BYTES ", 'max_bytes', 'idle_days') || "
    "' is not a whole number above 0' "
    "FROM main.@_texts WHERE id IN (" RING_MAX_BYTES ", " RING_IDLE_DAYS ") "
    "AND (typeof(body) = 'integer' AND body > 0) IS NOT TRUE",
    "SELECT 'texts', 'the sum is not the bytes of the slots; set "
    "max_bytes and idle_days to 0, then set them again' WHERE " BOUNDED
    " AND " RING_SETTING(RING_BYTES)
    " IS NOT (SELECT coalesce(sum(size_bytes), 0) FROM main.@_slots)",
    "SELECT 'agents', 'agent ' || agent_id || ' has no turn; set max_bytes "
    "and idle_days to 0, then set them again' FROM main.@_agents WHERE " BOUNDED
    " AND (typeof(at) = 'integer' AND (at > 0 OR rows = 0)) IS NOT TRUE",
    "SELECT 'texts', count(*) || ' texts are of no agent' FROM main.@_texts "
    "WHERE id > 0 AND id >> 32 NOT IN (SELECT no FROM main.@_agents WHERE page IS NOT "
    "NULL) GROUP BY NULL",
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
  bxBodyCheck(p, pOut, &err);
  if (bxShadowIsHeld(pVtab, &err)) {
    checkKept(p, pOut, &err);
  }
  bxProblemError(pOut, pVtab->stmts.zTable, &err);
}
