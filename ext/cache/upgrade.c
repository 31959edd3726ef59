/*
** upgrade.c: upgrades files of version 1, in which cache_items has CHECKs and a
** generated column with JSON functions.
**
** The CHECKs of a table can only be changed by creating the table again.
** Meanwhile the rows are in a table of their own. All this is done in the
** savepoint of blackbox_install(): it carries over every row with its id, and
** the columns, indexes and triggers that others have added, or it changes
** nothing. The tables that triggers keep are computed again from the rows.
**
** Limit: if foreign keys are enforced and another table refers to cache_items,
** the upgrade is refused, because DROP TABLE would delete rows there.
*/
#include "cache.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The columns that are copied; the others follow from them. */
#define MOVED                                                                  \
  "id, session_id, task_id, turn_id, timestamp, protected, description, "      \
  "custom_metadata, data"

static const char zCacheIsOld[] =
    "SELECT count(*) > 0 AND sum(name = 'expires_at') = 0"
    " FROM pragma_table_info('cache_items', ?1)";

static const char zCacheReferring[] =
    "SELECT m.name FROM pragma_foreign_keys AS p, main.sqlite_schema AS m,"
    " pragma_foreign_key_list(m.name, ?1) AS f"
    " WHERE p.foreign_keys AND m.type = 'table' AND lower(f.\"table\") ="
    " 'cache_items'";

/* SQL that creates again what others have added to the table. */
static const char zCacheOthers[] =
    "SELECT CASE WHEN sql LIKE 'CREATE UNIQUE INDEX %'"
    "  THEN 'CREATE UNIQUE INDEX main.' || substr(sql, 21)"
    "  ELSE 'CREATE ' || type || ' main.' || substr(sql, 9 + length(type)) END"
    " FROM main.sqlite_schema WHERE tbl_name = 'cache_items' COLLATE NOCASE"
    " AND type IN ('index', 'trigger') AND sql IS NOT NULL"
    " AND name NOT IN ('cache_items_session', 'cache_items_age',"
    "  'cache_items_before_insert', 'cache_items_before_update',"
    "  'cache_items_insert', 'cache_items_update', 'cache_items_delete')";

/* The columns of others: definition, quoted name, and whether it is plain. */
static const char zCacheColumns[] =
    "SELECT printf('\"%w\" %s%s%s', name, type,"
    "   iif(\"notnull\", ' NOT NULL', ''),"
    "   iif(dflt_value IS NULL, '', ' DEFAULT (' || dflt_value || ')')),"
    "  printf(', \"%w\"', name), hidden = 0"
    " FROM pragma_table_xinfo('cache_items', ?1)"
    " WHERE name NOT IN ('id', 'storage_key', 'session_id', 'task_id',"
    "  'turn_id', 'timestamp', 'data_size', 'protected', 'description',"
    "  'custom_metadata', 'data')";

/* Saves the rows, and drops the tables that are computed from others. */
static const char zCacheTakeOut[] =
    "CREATE TABLE main.cache_items_moved AS SELECT * FROM main.cache_items;"
    "DROP TABLE main.cache_items;"
    "DROP TABLE main.cache_sizes;"
    "DROP TABLE main.cache_limits;"
    "UPDATE OR IGNORE main.cache_presets SET preset ="
    "  CASE preset WHEN 'seed' THEN 'keep' ELSE 'recycle' END"
    " WHERE preset IN ('seed', 'later');"
    "DELETE FROM main.cache_presets WHERE preset IN ('seed', 'later')";

static void refuseReferring(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, zCacheReferring, pErr);
  bxBind(pStmt, pErr, "t", p->zDb);
  if (bxRow(pStmt, pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: table %Q refers to cache_items, which must be "
        "created again; set PRAGMA foreign_keys = OFF, and run "
        "blackbox_install() again",
        bxColumnText(pStmt, 0, pErr));
  }
  sqlite3_finalize(pStmt);
}

/* The statements that create again what others have added. */
static char *collectOthers(BxStmts *p, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  sqlite3_stmt *pStmt = bxPrepare(p, zCacheOthers, pErr);
  while (bxRow(pStmt, pErr)) {
    sqlite3_str_appendf(pOut, "%s;\n", bxColumnText(pStmt, 0, pErr));
  }
  sqlite3_finalize(pStmt);
  return bxFinish(pOut, pErr);
}

/* Adds the columns of others to the SQL that creates the table, and to the list
** of columns that are copied. */
static void collectColumns(
    BxStmts *p, sqlite3_str *pMake, sqlite3_str *pList, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, zCacheColumns, pErr);
  bxBind(pStmt, pErr, "t", p->zDb);
  while (bxRow(pStmt, pErr)) {
    const char *zColumn = bxColumnText(pStmt, 0, pErr);
    const char *zName = bxColumnText(pStmt, 1, pErr);
    if (pErr->rc != SQLITE_OK) break;
    if (!sqlite3_column_int(pStmt, 2)) {
      bxFail(pErr, SQLITE_ERROR,
          "ValidationError: cache_items has a generated column%s, which cannot "
          "be copied; drop it, and add it again after the upgrade",
          zName + 1);
    }
    sqlite3_str_appendf(
        pMake, "ALTER TABLE main.cache_items ADD COLUMN %s;\n", zColumn);
    sqlite3_str_appendall(pList, zName);
  }
  sqlite3_finalize(pStmt);
}

/* The statements to run after the rows are saved. */
static char *planReturn(BxStmts *p, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  sqlite3_str *pList = sqlite3_str_new(p->bx->db);
  char *zList, *zOthersSql = collectOthers(p, pErr);
  char *zTable = bxStatementOf(
      bxSqlCache, "CREATE TABLE IF NOT EXISTS main.cache_items(", pErr);
  sqlite3_str_appendf(pOut, "%s\n", zTable ? zTable : "");
  collectColumns(p, pOut, pList, pErr);
  zList = bxFinish(pList, pErr);
  sqlite3_str_appendf(pOut,
      "INSERT INTO main.cache_items(" MOVED "%s) SELECT " MOVED
      "%s FROM main.cache_items_moved;\n"
      "%s",
      zList ? zList : "", zList ? zList : "", zOthersSql ? zOthersSql : "");
  sqlite3_free(zTable);
  sqlite3_free(zList);
  sqlite3_free(zOthersSql);
  return bxFinish(pOut, pErr);
}

void bxCacheUpgrade(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pHold;
  char *zReturn;
  if (!bxCarries(p->bx, p->zDb, "cache", pErr)) return;
  if (!bxAskOnce(p, zCacheIsOld, pErr, "t", p->zDb)) return;
  refuseReferring(p, pErr);
  zReturn = planReturn(p, pErr);
  bxExec(p, zCacheTakeOut, pErr);
  pHold = bxHold(p->bx, pErr);
  bxExec(p, zReturn, pErr);
  bxLetGo(p->bx, pHold, pErr);
  bxExec(p, "DROP TABLE main.cache_items_moved", pErr);
  sqlite3_free(zReturn);
}
