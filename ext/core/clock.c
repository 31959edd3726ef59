/*
** clock.c: the time for which rules are applied.
**
** The clock of the machine may be wrong. If it is far ahead, rules would remove
** what is not old. So a file remembers the newest time that it has seen
** (retention__clock in sql/core.sql), and a clock that is too far ahead of that
** time stops all rules until somebody confirms it, or a day has passed. A clock that is behind it
** removes nothing early, and the newest time seen stays. A time that is given as
** an argument is the decision of the caller: it is neither checked nor
** remembered.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#define ISO(ms) "strftime('%Y-%m-%dT%H:%M:%SZ', " ms " / 1000.0, 'unixepoch')"
/* clang-format off */
static const char zClockNow[] =
    "SELECT clock <= seen + 604800000, " ISO("clock") ", " ISO("seen") ","
    " (clock - seen) / 86400000, clock FROM main.retention__clock,"
    " (SELECT " BX_CLOCK " AS clock)";
/* clang-format on */

static const char zClockTick[] =
    "UPDATE main.retention__clock SET (seen, due, was) = ("
    "SELECT max(seen, unixepoch() * 1000), 3600000,"
    " iif(due > 691200000, seen, was)"
    " WHERE unixepoch() * 1000 - seen - due <= min(due * 23, 604800000)"
    " UNION ALL SELECT seen, unixepoch() * 1000 - seen + 86400000, was)"
    " WHERE one = 1"
    " AND unixepoch() * 1000 - seen NOT BETWEEN due - 86400000 AND due";
static const char zClockTrusted[] =
    "INSERT INTO main.blackbox__log(at, domain, kind, subject, oldest, newest)"
    " SELECT seen, 'core', 'clock', 'trusted', was, seen"
    " FROM main.retention__clock WHERE was";
static const char zClockTold[] =
    "UPDATE main.retention__clock SET was = NULL WHERE was";

static void failJump(BxErr *pErr, sqlite3_stmt *pStmt) {
  const char *zClock = bxColumnText(pStmt, 1, pErr);
  const char *zSeen = bxColumnText(pStmt, 2, pErr);
  bxFail(pErr, SQLITE_ERROR,
      "ClockError: the clock says %s, which is %lld days after %s, the newest "
      "time that this file has seen; a jump of more than 7 days stops all "
      "rules; "
      "if the clock is right, SELECT retention_confirm_clock()",
      zClock, sqlite3_column_int64(pStmt, 3), zSeen);
}

i64 bxRuleTime(BxStmts *p, sqlite3_value *pNow, int bWrite, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 iNow = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  if (pNow != 0 && sqlite3_value_type(pNow) != SQLITE_NULL) {
    return bxTime(pNow, "now", pErr);
  }
  if (bWrite) {
    bxDo(p, zClockTick, pErr, "");
    bxDo(p, zClockTrusted, pErr, "");
    bxDo(p, zClockTold, pErr, "");
  }
  pStmt = bxStmt(p, zClockNow, pErr);
  if (!bxRow(pStmt, pErr)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: the row of retention__clock is missing; run "
        "blackbox_install()");
  } else if (!sqlite3_column_int(pStmt, 0)) {
    failJump(pErr, pStmt);
  } else {
    iNow = sqlite3_column_int64(pStmt, 4);
  }
  bxDone(pStmt, pErr);
  return iNow;
}

i64 bxTrustedTime(BxStmts *p, int bWrite, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 iNow = pErr->rc == SQLITE_OK ? bxRuleTime(p, 0, bWrite, &err) : 0;
  if (bxIs(&err, "ClockError")) bxClear(&err);
  bxPass(pErr, &err);
  return iNow;
}

/* (LIKE is quicker than lower().) */
int bxOthersRefuse(
    BxStmts *p, const char *zRule, const char *zTable, BxErr *pErr) {
  static const char zSql[] =
      "SELECT EXISTS (SELECT 1 FROM (SELECT substr(?1, 1, instr(?1, '.') - 1)"
      "  || '%' AS d) CROSS JOIN main.sqlite_schema NOT INDEXED"
      " WHERE iif(type = 'trigger', (tbl_name LIKE d OR tbl_name LIKE ?2)"
      "  AND name NOT LIKE d AND sql LIKE '%delete%', type = 'table'"
      "  AND (sql LIKE '%references%' || d"
      "   OR sql LIKE '%references%' || ?2 || '%')))";
  return bxAsk(p, zSql, pErr, "tt", zRule, zTable) != 0;
}
