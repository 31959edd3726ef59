/*
** model.c: compares a schema with the SQL that makes it.
**
** What a domain or a virtual table should have is computed by SQLite itself:
** the SQL runs in an empty database in memory, the model, and each object of
** the model is looked up in the schema. It must have the text of the model, except
** for white space: the files of sql/ have more than the module. A table of a domain may
** have been made by another program, or may have got more columns, so it must have the
** columns of the model. The indexes of a virtual table may have any name, because a
** rename of the virtual table does not change their names.
**
** The rows that a domain's SQL inserts must exist, by their keys. Their other
** columns may have been set by the user, except those of retention rules, and
** those of settings other than the value.
**
** The model tells its objects as JSON. One query on the schema looks all of them up,
** and another one the rows of each table. What was found is JSON again, on which callers
** ask (BX_FOUND): so nothing reads the schema when they change it.
*/
#include "core.h"
#include "model.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Whether the SQL is that of a domain other than core, which needs core. */
static int isDomain(BxStmts *p, const char *zSql) {
  assert(p->bx->aDomain[0].zSql != 0 && zSql != 0);
  return p->zTable == 0 && strcmp(zSql, p->bx->aDomain[0].zSql) != 0;
}

/* (Nothing is committed, which saves time.) */
sqlite3 *bxModel(BxStmts *p, const char *zSql, BxErr *pErr) {
  const char *zCore = p->bx->aDomain[0].zSql;
  int bDomain = isDomain(p, zSql);
  const char *azSql[] = {"BEGIN", bDomain ? zCore : "",
      "CREATE TEMP TABLE core AS SELECT name FROM main.sqlite_schema",
      bDomain ? "DELETE FROM blackbox_domains; SAVEPOINT own" : "", zSql};
  char *zOwn = p->zTable ? bxExpand(zSql, "main", p->zTable) : 0;
  sqlite3 *db = bDomain && pErr->rc == SQLITE_OK ? p->bx->pModel : 0;
  int i = db ? 4 : 0, rc; /* a model that was kept has the first four */
  if (p->zTable) azSql[4] = zOwn;
  rc = pErr->rc != SQLITE_OK    ? pErr->rc
       : p->zTable && zOwn == 0 ? SQLITE_NOMEM
       : db != 0                ? SQLITE_OK
                                : sqlite3_open_v2(":memory:", &db,
                                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 0);
  if (db == p->bx->pModel) p->bx->pModel = 0;
  for (; i < 5 && rc == SQLITE_OK; i++) {
    rc = sqlite3_exec(db, azSql[i], 0, 0, 0);
  }
  sqlite3_free(zOwn);
  if (rc == SQLITE_OK) return db;
  if (db != 0) bxFailDb(pErr, db, rc);
  bxFail(pErr, rc, "out of memory");
  sqlite3_close(db);
  return 0;
}

/* Ends the use of a model. During a check, that of a domain becomes that of core
** again, which is most of it, and is kept for the next domain. */
static void endModel(BxStmts *p, sqlite3 *pModel, int bDomain, BxErr *pErr) {
  Bx *bx = p->bx;
  if (bDomain && bx->nCheck > 0 && bx->pModel == 0 && pErr->rc == SQLITE_OK &&
      sqlite3_exec(pModel, "ROLLBACK TO own", 0, 0, 0) == SQLITE_OK) {
    bx->pModel = pModel;
  } else {
    sqlite3_close(pModel);
  }
}

/*----------------------------------------------------------------- rows ----*/

/* Two queries on table ?1, if it has a key. The one for the model tells of each row its
** key as SQL, and its columns that are compared. The one for the schema tells which of
** these (its ?1) are there. */
static const char zRowQueries[] =
    "WITH cols(name, is_key) AS ("
    "  SELECT name, pk > 0 FROM pragma_table_info(?1) WHERE pk > 0 OR"
    "    ?1 = 'retention_rules' OR (?1 = 'blackbox_settings' AND name <> "
    "'value')  UNION ALL SELECT i.name, 1 FROM pragma_index_list(?1) AS l,    "
    "pragma_index_info(l.name) AS i WHERE l.origin = 'c' AND l.\"unique\"), "
    "same(name, is_key, test) AS (SELECT name, is_key,  printf('t.\"%w\" IS "
    "j.value ->> ''$[1].%s''', name, name) FROM cols) SELECT printf('SELECT "
    "json_group_array(json_array(%s, json_object(%s))) FROM \"%w\"',"
    "  group_concat(printf('quote(\"%w\")', name), ' || '', '' || ') FILTER "
    "(WHERE is_key), group_concat(printf('%Q, \"%w\"', name, name)), ?1), "
    "printf('SELECT "
    "group_concat(json_array(''row'', %Q, j.value ->> 0, coalesce((SELECT "
    "iif(%s, 4, 2) FROM main.\"%w\" AS t WHERE %s), 0), 0, 0)) FROM "
    "json_each(?1) AS j', ?1, coalesce(group_concat(test, ' AND ')  FILTER "
    "(WHERE NOT is_key), '1'), ?1,  group_concat(test, ' AND ') FILTER (WHERE "
    "is_key)) FROM same GROUP BY ?1 HAVING max(is_key)";

/* Appends the rows of a table of the model to what was found, if it is asked for.
** Returns whether there are any. */
static int modelRows(BxStmts *p, sqlite3 *pModel, const char *zTable, int bRows,
    sqlite3_str *pFound, BxErr *pErr) {
  sqlite3_stmt *pRows = bxPrepareOwned(
      pModel, bxPrintf(pErr, "SELECT 1 FROM \"%w\"", zTable), pErr);
  sqlite3_stmt *pQueries = 0;
  int bAny = bxStep(pRows, pErr);
  sqlite3_finalize(pRows);
  if (!bAny || !bRows) return bAny;
  pQueries = bxPrepareSql(pModel, zRowQueries, pErr);
  bxBind(pQueries, pErr, "t", zTable);
  if (bxStep(pQueries, pErr)) {
    char *z = 0;
    pRows = bxPrepareSql(pModel, bxColumnText(pQueries, 0, pErr), pErr);
    if (bxStep(pRows, pErr)) {
      z = bxQueryText(p, bxColumnText(pQueries, 1, pErr), pErr, "t",
          bxColumnText(pRows, 0, pErr));
    }
    if (z != 0) sqlite3_str_appendf(pFound, "%s,", z);
    sqlite3_free(z);
    sqlite3_finalize(pRows);
  }
  sqlite3_finalize(pQueries);
  return bAny;
}

/*-------------------------------------------------------------- objects ----*/

/* The objects that the SQL makes, dependent ones first. Of the tables of core,
** a domain has only rows. Of a table also its columns, and which are generated. */
static const char zObjects[] =
    "SELECT json_group_array(json_array(type, name, sql, core, columns)) FROM"
    " (SELECT type, name, sql, core, iif(type = 'table',"
    "   (SELECT json_group_array(json_array(x.name, x.hidden > 1))"
    "    FROM pragma_table_xinfo(s.name) AS x), '[]') AS columns FROM (SELECT "
    "*,   name IN (SELECT name FROM core) AS core FROM main.sqlite_schema) AS "
    "s  WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'   AND "
    "(type = 'table' OR NOT core)  ORDER BY type <> 'trigger', type = 'table', "
    "type = 'index')";

/* A text without its white space. */
#define SQUEEZED(sql) "replace(replace(" sql ", ' ', ''), char(10), '')"
/* What comes after the name of an index. */
#define AFTER_NAME(sql, name)                                                  \
  "substr(" sql ", length(printf('CREATE INDEX \"%w\"', " name ")) + 1)"

/* The objects in the JSON ?1, and their states in the schema ?2. ?3 is the name of a
** virtual table, or NULL, ?4 the template of its tables, and ?5 how those begin in it that
** are created if they do not exist: nothing is lost with them. */
static const char zStates[] =
    "WITH wanted AS MATERIALIZED (SELECT value ->> 0 AS type, value ->> 1 AS "
    "name,  value ->> 2 AS sql, value ->> 3 AS core, value ->> 4 AS columns  "
    "FROM json_each(?1)), seen AS MATERIALIZED (SELECT type, name, core, "
    "coalesce((SELECT "
    "CASE   WHEN s.type <> w.type THEN 1"
    "   WHEN s.sql = w.sql OR " SQUEEZED("s.sql") " = " SQUEEZED(
        "w.sql") "    OR (s.type = 'index' AND s.name <> w.name COLLATE "
                 "NOCASE) THEN 4   WHEN w.type = 'table' AND ?3 IS NULL AND "
                 "NOT EXISTS (SELECT 1     FROM json_each(w.columns) AS c "
                 "WHERE NOT EXISTS (SELECT 1      FROM "
                 "pragma_table_xinfo(w.name, ?2) AS x WHERE x.name = c.value "
                 "->> 0       COLLATE NOCASE AND x.hidden > 1 >= c.value ->> "
                 "1)) THEN 3   ELSE 2 END AS how FROM main.sqlite_schema AS "
                 "s   WHERE (s.name = w.name COLLATE NOCASE AND (s.type = "
                 "w.type     OR (s.type <> 'trigger' AND w.type <> "
                 "'trigger')))    OR (?3 IS NOT NULL AND s.type = 'index' AND "
                 "w.type = "
                 "'index' AND " AFTER_NAME("s.sql", "s.name") " = " AFTER_NAME(
                     "w.sql",
                     "w.name") ")"
                               "   ORDER BY how DESC LIMIT 1), 0) AS state "
                               "FROM wanted AS w) "
                               "SELECT type, name, core, state, type = 'table' "
                               "AND ?3 IS NOT NULL"
                               "  AND state <> 4 AND (state > 0 OR NOT "
                               "instr(?4,   ?5 || substr(name, length(?3) + "
                               "1)   || '(')) FROM seen";

sqlite3_stmt *bxFound(
    BxStmts *p, const char *zSql, int bRows, const char *zQuery, BxErr *pErr) {
  sqlite3 *pModel = bxModel(p, zSql, pErr);
  sqlite3_stmt *pObjects = bxPrepareSql(pModel, zObjects, pErr), *pStmt;
  sqlite3_str *pFound = sqlite3_str_new(p->bx->db);
  char *z;
  assert(strncmp(zQuery, BX_FOUND, sizeof(BX_FOUND) - 1) == 0);
  sqlite3_str_appendchar(pFound, 1, '[');
  if (bxStep(pObjects, pErr)) {
    pStmt = bxPrepare(p, zStates, pErr);
    bxBind(pStmt, pErr, "ttttt", bxColumnText(pObjects, 0, pErr), p->zDb,
        p->zTable, zSql, "CREATE TABLE IF NOT EXISTS main.@");
    while (bxStep(pStmt, pErr)) {
      const char *zType = bxColumnText(pStmt, 0, pErr);
      const char *zName = bxColumnText(pStmt, 1, pErr);
      int eState = sqlite3_column_int(pStmt, 3), bFilled = 0;
      assert(eState >= 0 && eState <= 4);
      if (pErr->rc == SQLITE_OK && strcmp(zType, "table") == 0) {
        bFilled =
            modelRows(p, pModel, zName, bRows && eState >= 3, pFound, pErr);
      }
      if (pErr->rc != SQLITE_OK || sqlite3_column_int(pStmt, 2)) continue;
      sqlite3_str_appendf(pFound, "[\"%s\",", zType);
      bxJsonAppend(pFound, zName, (int)strlen(zName));
      sqlite3_str_appendf(pFound, ",\"\",%d,%d,%d],", eState, bFilled,
          sqlite3_column_int(pStmt, 4));
    }
    sqlite3_finalize(pStmt);
  }
  sqlite3_finalize(pObjects);
  endModel(p, pModel, isDomain(p, zSql), pErr);
  sqlite3_str_appendall(pFound, "0]"); /* (after a comma) */
  z = bxStrFinish(pFound, pErr);
  pStmt = bxPrepare(p, zQuery, pErr);
  bxBind(pStmt, pErr, "c", z);
  sqlite3_free(z);
  return pStmt;
}

/*---------------------------------------------------------------- names ----*/

/* Whether the SQL has the words zBegin, then the name, and then what ends a name. */
static int isInSql(const char *zSql, const char *zBegin, const char *zName) {
  const char *z = zSql;
  size_t n = strlen(zName);
  while ((z = strstr(z, zBegin)) != 0) {
    z += strlen(zBegin);
    if (strcspn(z, "( \n") == n && sqlite3_strnicmp(z, zName, (int)n) == 0) {
      return 1;
    }
  }
  return 0;
}

int bxModelMakes(const char *zSql, const char *zName) {
  return isInSql(zSql, "CREATE TABLE main.@_", zName) ||
         isInSql(zSql, "CREATE TABLE IF NOT EXISTS main.@_", zName) ||
         isInSql(zSql, " IF NOT EXISTS main.", zName);
}
