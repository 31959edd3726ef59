/*
** install.c: what blackbox_install() does in addition to the text of sql/: it
** upgrades older databases, and rebuilds what was lost with a dropped table.
**
** Version 1 had no stamp in rollout_heads. It had a column look in
** rollout_data, which stays and is not used. Older databases detected a REPLACE
** by a table rollout_clash. Version 2 knew less about a conversation: the new
** columns of rollout_about are NULL until rollout_rebuild() fills them. Version 3
** knew fewer formats: of its rows, those that are different now are made anew, and
** all others stay, as they may be the user's. Up to version 4 the key of
** rollout_turns was (owner, number, sequence): the table is created again.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

/* Whether a table is there without a column that a later version has. */
static int lacksColumn(
    BxStmts *p, const char *zTable, const char *zColumn, BxErr *pErr) {
  return bxAskOnce(p,
             "SELECT count(*) FROM main.sqlite_schema AS t "
             "WHERE t.type = 'table' AND t.name = ?1 AND instr(t.sql, ?2) = 0",
             pErr, "tt", zTable, zColumn) > 0;
}

/* Adds the column of version 2. */
static void adoptHeads(BxStmts *p, BxErr *pErr) {
  if (lacksColumn(p, "rollout_heads", "looked", pErr) ||
      !lacksColumn(p, "rollout_heads", "stamp", pErr)) {
    return;
  }
  bxExec(p,
      "ALTER TABLE main.rollout_heads ADD COLUMN stamp INTEGER NOT NULL "
      "DEFAULT 0;"
      "DROP TRIGGER IF EXISTS main.rollout_data_once;"
      "DROP TRIGGER IF EXISTS main.rollout_imports_insert",
      pErr);
}

/* Adds the columns of version 3. */
static void adoptAbout(BxStmts *p, BxErr *pErr) {
  if (!lacksColumn(p, "rollout_about", "given_title", pErr)) return;
  bxExec(p,
      "ALTER TABLE main.rollout_about ADD COLUMN given_title TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN format TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN source_id TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN parent TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN agent TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN model TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN branch TEXT;"
      "ALTER TABLE main.rollout_about ADD COLUMN reviewed INTEGER;",
      pErr);
}

/* Adds the columns of version 4, and removes the rows that it has otherwise. */
static void adoptFormats(BxStmts *p, BxErr *pErr) {
  if (!lacksColumn(p, "rollout_formats", "newest", pErr)) return;
  bxExec(p,
      "ALTER TABLE main.rollout_formats ADD COLUMN newest TEXT;"
      "ALTER TABLE main.rollout_formats ADD COLUMN apart INTEGER NOT NULL "
      "DEFAULT 0 CHECK (apart IN (0, 1));"
      "DELETE FROM main.rollout_formats WHERE format IN ('codex-history', "
      "'gemini', 'cursor', 'cursor-store', 'otel');"
      "DELETE FROM main.rollout_readings WHERE fact = 'user' AND conditions IN "
      "('{\"$.store\":\"goose\",\"$.role\":\"user\"}', "
      "'{\"$.role\":\"user\",\"$.message\":null,\"$.content\":true}') "
      "AND format IN ('goose', 'goose-store')",
      pErr);
}

/* Creates rollout_turns of version 5, with the rows of an older version, and with
** the triggers that others have on it. */
static void adoptTurns(BxStmts *p, BxErr *pErr) {
  static const char zOthers[] =
      "SELECT group_concat(printf('CREATE TRIGGER \"%w\".%s', ?1, "
      "substr(sql, 16)), ';') FROM (SELECT sql FROM main.sqlite_schema "
      "WHERE type = 'trigger' AND tbl_name = 'rollout_turns' COLLATE NOCASE "
      "ORDER BY rowid)";
  char *zTable, *zTriggers;
  if (!bxAskOnce(p,
          "SELECT count(*) = 3 FROM pragma_table_info('rollout_turns', ?1) "
          "WHERE name IN ('owner', 'number', 'sequence')",
          pErr, "t", p->zDb)) {
    return;
  }
  zTable = bxStatementOf(
      bxSqlRollout, "CREATE TABLE IF NOT EXISTS main.rollout_turns(", pErr);
  zTriggers = bxAskText(p, zOthers, pErr, "t", p->zDb);
  bxExec(p,
      "CREATE TABLE main.rollout_turns_moved AS "
      "SELECT (owner << 32) + sequence AS id, number FROM main.rollout_turns;"
      "DROP TABLE main.rollout_turns",
      pErr);
  if (zTable != 0) bxExec(p, zTable, pErr);
  bxExec(p,
      "INSERT OR IGNORE INTO main.rollout_turns(id, number) "
      "SELECT id, number FROM main.rollout_turns_moved ORDER BY id;"
      "DROP TABLE main.rollout_turns_moved",
      pErr);
  if (zTriggers != 0) bxExecPlain(p->bx, zTriggers, pErr);
  sqlite3_free(zTable);
}

void bxRolloutAdopt(BxStmts *p, BxErr *pErr) {
  bxExec(p,
      "DROP TABLE IF EXISTS main.rollout_clash;"
      "DROP TRIGGER IF EXISTS main.rollout_data_insert",
      pErr);
  adoptHeads(p, pErr);
  adoptAbout(p, pErr);
  adoptFormats(p, pErr);
  adoptTurns(p, pErr);
}

/* The conversations without a row of rollout_about, with one of an older
** version, or without any turn. */
#define LOST                                                                   \
  "FROM main.rollout_heads AS h WHERE (h.last_sequence >= 0 AND NOT EXISTS "   \
  "(SELECT 1 FROM main.rollout_about AS a WHERE a.no = h.no "                  \
  "AND a.format IS NOT NULL)) OR (h.turns > 0 "                                \
  "AND NOT EXISTS (SELECT 1 FROM main.rollout_segments AS s JOIN "             \
  "main.rollout_turns AS t ON t.id BETWEEN (s.owner << 32) + s.first "         \
  "AND (s.owner << 32) + s.last WHERE s.rollout = h.no))"

void bxRolloutMend(BxStmts *p, BxErr *pErr) {
  if (bxNumber(p, "SELECT EXISTS (SELECT 1 " LOST ")", pErr) == 0) return;
  /* In older versions only a user could give a title that differs. */
  bxExec(p,
      "UPDATE main.rollout_about SET given_title = title WHERE format IS NULL "
      "AND title IS NOT (SELECT m.title FROM main.rollout_meta AS m "
      "WHERE m.no = rollout_about.no);"
      "INSERT INTO main.rollout_rebuilds(id) SELECT h.id " LOST
      " ORDER BY h.no",
      pErr);
  bxRolloutExplain(pErr, "WriteError: Write failed: ");
}
