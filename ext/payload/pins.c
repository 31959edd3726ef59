/*
** pins.c: whether what was to be pinned is pinned. The triggers of
** sql/payload_tables.sql pin rows, and the log has a row for each pin. A trigger of
** the user on event_payloads may keep a row from being saved.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

i64 bxPinsLast(BxStmts *p, BxErr *pErr) {
  static const char zLast[] = "SELECT max(n) FROM main.blackbox__log";
  return bxAsk(p, zLast, pErr, "");
}

void bxPinsExpect(
    BxStmts *p, i64 iLast, const char *zEvent, i64 nSaved, BxErr *pErr) {
  static const char zNew[] =
      "SELECT count(*) FROM main.blackbox__log"
      " WHERE n > ?1 AND kind = 'pin' AND kill_switch_event_id IS ?2";
  i64 nNew = bxAsk(p, zNew, pErr, "it", iLast, zEvent);
  if (nNew >= nSaved) return;
  bxFail(pErr, SQLITE_ERROR,
      "MisuseError: a trigger on event_payloads let only %lld of %lld "
      "exchanges become pinned evidence; drop it and save again",
      nNew, nSaved);
}

int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr) {
  static const char zHolds[] = "SELECT 1 FROM main.payload__pins WHERE id = ?1";
  return bxAsk(p, zHolds, pErr, "t", zId) != 0;
}
