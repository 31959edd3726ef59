/*
** install.c: what blackbox_install() does in addition to the text of sql/: it
** rebuilds what was lost with a dropped table.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

/* The conversations without a row of rollout_about, or without any turn. */
#define LOST                                                                   \
  "FROM main.rollout_heads AS h WHERE (h.last_sequence >= 0 AND NOT EXISTS "   \
  "(SELECT 1 FROM main.rollout_about AS a WHERE a.no = h.no)) "                \
  "OR (h.turns > 0 "                                                           \
  "AND NOT EXISTS (SELECT 1 FROM main.rollout_segments AS s JOIN "             \
  "main.rollout_turns AS t ON t.id BETWEEN (s.owner << 32) + s.first "         \
  "AND (s.owner << 32) + s.last WHERE s.rollout = h.no))"

void bxRolloutMend(BxStmts *p, BxErr *pErr) {
  if (bxNumber(p, "SELECT EXISTS (SELECT 1 " LOST ")", pErr) == 0) return;
  bxExec(p,
      "INSERT INTO main.rollout_rebuilds(id) SELECT h.id " LOST
      " ORDER BY h.no",
      pErr);
  bxRolloutExplain(pErr, "WriteError: Write failed: ");
}
