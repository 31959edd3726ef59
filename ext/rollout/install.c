/*
** install.c: what blackbox_install() does in addition to the text of sql/: it
** rebuilds what was lost with a dropped table.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

/* The conversations without a row of rollout__about, or without any turn. */
#define LOST                                                                   \
  "FROM main.rollout__heads AS h WHERE (h.last_sequence >= 0 AND NOT EXISTS "  \
  "(SELECT 1 FROM main.rollout__about AS a WHERE a.no = h.no)) "               \
  "OR (h.turns > 0 "                                                           \
  "AND NOT EXISTS (SELECT 1 FROM main.rollout__segments AS s JOIN "            \
  "main.rollout__marks AS t ON t.id BETWEEN (s.owner << 32) + s.first "        \
  "AND (s.owner << 32) + s.last AND t.kind = 'turn' "                          \
  "WHERE s.rollout = h.no))"

void bxRolloutMend(BxStmts *p, BxErr *pErr) {
  static const char zLost[] =
      "SELECT json_group_array(no) FROM (SELECT h.no " LOST " ORDER BY h.no)";
  /* all of them before the first is rebuilt: forks share turns with others */
  sqlite3_stmt *pHead = bxJsonRows(p->bx, "SELECT value FROM json_each(?1)",
      bxAskText(p, zLost, pErr, ""), pErr);
  while (bxRow(pHead, pErr)) {
    bxRolloutRebuildOne(p, sqlite3_column_int64(pHead, 0), pErr);
  }
  sqlite3_finalize(pHead);
  bxRolloutExplain(pErr, "WriteError: Write failed: ");
}
