/*
** pins.c: exchanges are saved as evidence, and it is made sure that they are pinned.
** The triggers of sql/payload.sql pin rows, and the log has a row for each pin. A
** trigger of the user on event_payloads may keep a row from being saved.
**
** An exchange that is in the archive is not stored twice: its row becomes the
** evidence, with the time that is given, unless a hold keeps the row as it is. The row is
** looked for among the 64 newest rows of the event. Among equal rows the nearest in
** time is used, and only once. All are found first, so that one statement writes: an
** INSERT, which becomes an UPDATE where an id is there.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

/* The ids of these rows, a JSON object by the first column of pRows (a number); the
** others are event_id, agent_id, both bodies, and the time. */
static char *archivedRows(
    BxStmts *p, sqlite3_stmt *pRows, i64 *pnRow, BxErr *pErr) {
  static const char zLike[] =
      "SELECT e.rowid, e.id FROM (SELECT rowid AS rid FROM main.event_payloads"
      "  INDEXED BY idx_payloads_event_id WHERE event_id = ?1"
      "  ORDER BY rowid DESC LIMIT 64)"
      " CROSS JOIN main.event_payloads AS e ON e.rowid = rid"
      " WHERE purpose = 'archive' AND pinned = 0 AND id IS NOT NULL"
      " AND kill_switch_event_id IS NULL AND NOT " HELD_PAYLOAD(
          "e") ""
               " AND event_id IS ?1 COLLATE BINARY AND agent_id IS ?2 COLLATE "
               "BINARY"
               " AND size_bytes = ifnull(length(CAST(?3 AS BLOB)), 0)"
               "  + ifnull(length(CAST(?4 AS BLOB)), 0)"
               " AND store_text(request_body) IS ?3 AND "
               "store_text(response_body) IS ?4"
               " ORDER BY abs(created_ms - ?5)";
  sqlite3_stmt *pLike = bxStmt(p, zLike, pErr);
  sqlite3_str *pIds = sqlite3_str_new(p->bx->db);
  i64 *aUsed = 0, nUsed = 0, nAlloc = 0;
  assert(*pnRow == 0);
  while (bxStep(pRows, pErr)) {
    int bFound = 0;
    ++*pnRow;
    bxBind(pLike, pErr, "vvvvv", sqlite3_column_value(pRows, 1),
        sqlite3_column_value(pRows, 2), sqlite3_column_value(pRows, 3),
        sqlite3_column_value(pRows, 4), sqlite3_column_value(pRows, 5));
    while (!bFound && bxStep(pLike, pErr)) {
      i64 i = 0, iRow = sqlite3_column_int64(pLike, 0), *piUsed;
      const char *zId = bxColumnText(pLike, 1, pErr);
      while (i < nUsed && aUsed[i] != iRow) i++;
      if (i < nUsed || zId == 0) continue;
      bFound = 1;
      piUsed = bxArrayAdd(&aUsed, &nUsed, &nAlloc, sizeof(*piUsed), pErr);
      if (piUsed != 0) *piUsed = iRow;
      sqlite3_str_appendf(pIds, "%c\"%lld\":", nUsed > 1 ? ',' : '{',
          sqlite3_column_int64(pRows, 0));
      bxJsonAppend(pIds, zId, sqlite3_column_bytes(pLike, 1));
    }
    bxReset(pLike, pErr);
  }
  bxReset(pRows, pErr);
  sqlite3_free(aUsed);
  sqlite3_str_appendall(pIds, nUsed > 0 ? "}" : "{}");
  return bxStrFinish(pIds, pErr);
}

i64 bxPinsLast(BxStmts *p, BxErr *pErr) {
  static const char zLast[] = "SELECT max(n) FROM main.blackbox__log";
  return bxQueryInt(p, zLast, pErr, "");
}

i64 bxPinsSave(BxStmts *p, const char *zEvent, i64 iLast, sqlite3_stmt *pRows,
    sqlite3_stmt *pSave, BxErr *pErr) {
  static const char zNew[] =
      "SELECT count(*) FROM main.blackbox__log"
      " WHERE n > ?1 AND kind = 'pin' AND kill_switch_event_id IS ?2";
  i64 nRow = 0, nNew = 0;
  char *zIds = archivedRows(p, pRows, &nRow, pErr);
  int i;
  /* What a trigger keeps from becoming evidence is saved beside it. */
  for (i = 0; i < 2 && nNew < nRow && zIds != 0; i++) {
    bxBind(pSave, pErr, "---t", i == 0 ? zIds : "{}");
    if (i > 0) sqlite3_bind_int(pSave, 5, 1); /* of a ring: it has some now */
    bxStep(pSave, pErr);
    bxWriteNote(p->bx, pErr);
    sqlite3_reset(pSave);
    if (pErr->rc != SQLITE_OK) break;
    nNew = bxQueryInt(p, zNew, pErr, "it", iLast, zEvent);
  }
  bxReset(pSave, pErr);
  sqlite3_free(zIds);
  if (nNew < nRow) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: a trigger on event_payloads let only %lld of %lld "
        "exchanges become pinned evidence; drop it and save again",
        nNew, nRow);
  }
  return nRow;
}

int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr) {
  static const char zHolds[] = "SELECT 1 FROM main.payload__pins WHERE id = ?1";
  return bxQueryInt(p, zHolds, pErr, "t", zId) != 0;
}
