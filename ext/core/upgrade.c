/*
** upgrade.c: upgrades core of version 2, in which retention_rules has no columns
** for the tables of users.
**
** The table is created again with the text of sql/core.sql, so that it equals
** that of a new file. Its rows stay. All this is done in the savepoint of
** blackbox_install().
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

static const char zIsOld[] = "SELECT count(*) > 0 AND sum(name = 'age_ms') = 0"
                             " FROM pragma_table_info('retention_rules', ?1)";

static const char zTakeOut[] = "CREATE TABLE main.retention_rules_moved AS"
                               " SELECT * FROM main.retention_rules;"
                               "DROP TABLE main.retention_rules;";

static const char zPutBack[] =
    "INSERT INTO main.retention_rules(rule, domain, \"view\", setting, unit_ms)"
    " SELECT rule, domain, \"view\", setting, unit_ms"
    " FROM main.retention_rules_moved;"
    "DROP TABLE main.retention_rules_moved";

void bxCoreUpgrade(BxStmts *p, BxErr *pErr) {
  char *zTable;
  if (!bxCarries(p->bx, p->zDb, "core", pErr)) return;
  if (!bxAskOnce(p, zIsOld, pErr, "t", p->zDb)) return;
  zTable = bxStatementOf(p->bx->aDomain[0].zSql,
      "CREATE TABLE IF NOT EXISTS main.retention_rules(", pErr);
  bxExec(p, zTakeOut, pErr);
  if (zTable != 0) bxExec(p, zTable, pErr);
  bxExec(p, zPutBack, pErr);
  sqlite3_free(zTable);
}
