/*
** install.c: what blackbox_install() does in addition to the text of sql/: it
** upgrades a database of version 1, and rebuilds what was lost with a dropped
** table.
**
** Version 1 had no stamp in rollout_heads. It had a column look in
** rollout_data, which stays and is not used. Older databases detected a REPLACE
** by a table rollout_clash.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

void bxRolloutAdopt(BxStmts *p, BxErr *pErr) {
  bxExec(p, "DROP TABLE IF EXISTS main.rollout_clash", pErr);
  if (bxNumber(p,
          "SELECT count(*) FROM main.sqlite_schema AS t "
          "WHERE t.type = 'table' AND t.name = 'rollout_heads' AND "
          "instr(t.sql, 'looked') > 0 AND instr(t.sql, 'stamp') = 0",
          pErr) == 0) {
    return;
  }
  bxExec(p,
      "ALTER TABLE main.rollout_heads ADD COLUMN stamp INTEGER NOT NULL "
      "DEFAULT 0;"
      "DROP TRIGGER IF EXISTS main.rollout_data_once;"
      "DROP TRIGGER IF EXISTS main.rollout_imports_insert",
      pErr);
}

/* The conversations without a row of rollout_about, or without any turn. */
#define LOST                                                                   \
  "FROM main.rollout_heads AS h WHERE (h.last_sequence >= 0 AND NOT EXISTS "   \
  "(SELECT 1 FROM main.rollout_about AS a WHERE a.no = h.no)) OR (h.turns > 0" \
  " AND NOT EXISTS (SELECT 1 FROM main.rollout_segments AS s JOIN "            \
  "main.rollout_turns AS t ON t.owner = s.owner WHERE s.rollout = h.no))"

void bxRolloutMend(BxStmts *p, BxErr *pErr) {
  if (bxNumber(p, "SELECT EXISTS (SELECT 1 " LOST ")", pErr) == 0) return;
  bxExec(p,
      "INSERT INTO main.rollout_rebuilds(id) SELECT h.id " LOST
      " ORDER BY h.no",
      pErr);
  bxRolloutExplain(pErr, "WriteError: Write failed: ");
}
