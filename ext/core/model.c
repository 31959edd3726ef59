/*
** model.c: what a domain's schema should be.
**
** That is asked of SQLite itself: sql/<domain>.sql runs in an empty database
** in memory, the model, and the two schemas are compared. A view, a trigger or
** an index must have the model's text. A table may have been made by another
** program or have got more columns since: it must have the model's columns.
** The rows that the SQL puts into a table must be there, by their key; what
** else is in them may have been set by the user, but in the definitions of
** settings and retention rules, which nobody sets.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* One comparison, and what is asked of each object. */
typedef struct Comparison {
  BxStmts *p; /* the schema */
  sqlite3 *pModel;
  sqlite3_stmt *pThere;   /* of the schema: an object of that name */
  sqlite3_stmt *pColumns; /* of the model: a query of a table's columns */
  sqlite3_stmt *pQueries; /* of the model: queries of a table's rows */
  void (*xEach)(BxStmts *, void *, const BxDifference *);
  void *pArg;
} Comparison;

/* Opens a database in memory with core's schema and the domain's. Its
** temp table core names the objects that are core's own. */
static sqlite3 *openModel(Bx *bx, const BxDomain *pDomain, BxErr *pErr) {
  sqlite3 *db = 0;
  int rc;
  if (pErr->rc != SQLITE_OK) return 0;
  rc = sqlite3_open_v2(
      ":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 0);
  if (rc == SQLITE_OK && pDomain != bx->aDomain) {
    rc = sqlite3_exec(db, bx->aDomain[0].zSql, 0, 0, 0);
    if (rc == SQLITE_OK) {
      rc = sqlite3_exec(db,
          "CREATE TEMP TABLE core AS SELECT name FROM sqlite_schema;"
          "DELETE FROM blackbox_domains",
          0, 0, 0);
    }
  } else if (rc == SQLITE_OK) {
    rc = sqlite3_exec(db, "CREATE TEMP TABLE core(name)", 0, 0, 0);
  }
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, pDomain->zSql, 0, 0, 0);
  if (rc != SQLITE_OK) {
    if (db != 0) bxFailDb(pErr, db, rc);
    bxFail(pErr, rc, "out of memory");
    sqlite3_close(db);
    return 0;
  }
  return db;
}

/* A query on the model. */
static sqlite3_stmt *ask(sqlite3 *pModel, const char *zSql, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  bxFailDb(pErr, pModel, sqlite3_prepare_v2(pModel, zSql, -1, &pStmt, 0));
  return pStmt;
}

/* A query of all columns of table ?1, and the names of those that are
** generated, each between commas. */
static const char zColumns[] =
    "SELECT 'SELECT ' || group_concat('t.\"' || name || '\"') || "
    "' FROM main.\"' || ?1 || '\" AS t',"
    " ',' || group_concat(name) FILTER (WHERE hidden > 1) || ',',"
    " count(*) FILTER (WHERE hidden > 1) FROM pragma_table_xinfo(?1)";

/* How many of the columns in the list ?1 are generated in table ?2 of ?3. */
static const char zGenerated[] =
    "SELECT count(*) FROM pragma_table_xinfo(?2, ?3)"
    " WHERE hidden > 1 AND instr(?1, ',' || name || ',') > 0";

/* Whether columns that should be generated are. */
static int areGenerated(Comparison *pCmp, const char *zTable, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  int bSame;
  if (sqlite3_column_type(pCmp->pColumns, 1) == SQLITE_NULL) return 1;
  pStmt = bxPrepare(pCmp->p, zGenerated, pErr);
  bxBind(pStmt, pErr, "ttt", sqlite3_column_text(pCmp->pColumns, 1), zTable,
      pCmp->p->zDb);
  bSame = bxRow(pStmt, pErr) &&
          sqlite3_column_int(pStmt, 0) == sqlite3_column_int(pCmp->pColumns, 2);
  sqlite3_finalize(pStmt);
  return bSame;
}

/* Whether the schema's table has the columns of the model's. */
static int hasColumns(Comparison *pCmp, const char *zTable, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  int bHas = 0;
  bxBind(pCmp->pColumns, pErr, "t", zTable);
  if (bxRow(pCmp->pColumns, pErr)) {
    const char *zSql = (const char *)sqlite3_column_text(pCmp->pColumns, 0);
    if (zSql == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    if (zSql != 0) sqlite3_finalize(bxPrepare(pCmp->p, zSql, &err));
    bHas = err.rc == SQLITE_OK && areGenerated(pCmp, zTable, pErr);
  }
  bxDone(pCmp->pColumns, pErr);
  if (err.rc != SQLITE_OK && err.rc != SQLITE_ERROR) {
    bxFail(pErr, err.rc, "%s", err.zMsg ? err.zMsg : "out of memory");
  }
  bxClear(&err);
  return bHas;
}

/* Two queries on table ?1: one for the model, that gives of each row its key as
** SQL, then what is compared, then the key; and one for the schema, that finds
** the row by its key and says whether the rest is the same. */
static const char zQueries[] =
    "WITH cols(name, is_key) AS ("
    "  SELECT name, pk > 0 FROM pragma_table_info(?1) WHERE pk > 0 OR"
    "    ?1 IN ('blackbox_setting_defs', 'retention_rules')"
    "  UNION ALL SELECT i.name, 1 FROM pragma_index_list(?1) AS l,"
    "    pragma_index_info(l.name) AS i WHERE l.origin = 'c' AND l.\"unique\") "
    "SELECT 'SELECT ' || group_concat('quote(\"' || name || '\")',"
    "    ' || '', '' || ') FILTER (WHERE is_key) ||"
    "  coalesce(group_concat(', \"' || name || '\"', '')"
    "    FILTER (WHERE NOT is_key), '') ||"
    "  group_concat(', \"' || name || '\"', '') FILTER (WHERE is_key) ||"
    "  ' FROM \"' || ?1 || '\"',"
    " 'SELECT ' || coalesce(group_concat("
    "    CASE name WHEN 'choices'" /* rollout's are the presets that there are */
    "      THEN '(\"choices\" IS ? OR name = ''rollout.policy'')'"
    "      ELSE '\"' || name || '\" IS ?' END,"
    "    ' AND ') FILTER (WHERE NOT is_key), '1') ||"
    "  ' FROM main.\"' || ?1 || '\" WHERE ' ||"
    "  group_concat('\"' || name || '\" IS ?', ' AND ')"
    "    FILTER (WHERE is_key) "
    "FROM cols GROUP BY NULL";

/* Whether the model's table has a row. */
static int hasRows(sqlite3 *pModel, const char *zTable, BxErr *pErr) {
  char *zSql = sqlite3_mprintf("SELECT 1 FROM \"%w\"", zTable);
  sqlite3_stmt *pStmt;
  int bRow;
  if (zSql == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  pStmt = ask(pModel, zSql, pErr);
  bRow = bxRow(pStmt, pErr);
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  return bRow;
}

/* Looks for the row of the model that pWanted stands on. */
static void compareRow(Comparison *pCmp, const char *zTable,
    sqlite3_stmt *pWanted, sqlite3_stmt *pFind, BxErr *pErr) {
  BxDifference row = {"row", zTable, 0, 0};
  int i, bSame;
  for (i = 1; i < sqlite3_column_count(pWanted) && pErr->rc == SQLITE_OK; i++) {
    bxFailDb(pErr, pCmp->p->bx->db,
        sqlite3_bind_value(pFind, i, sqlite3_column_value(pWanted, i)));
  }
  row.bThere = bxRow(pFind, pErr);
  bSame = row.bThere && sqlite3_column_int(pFind, 0);
  bxDone(pFind, pErr);
  row.zKey = (const char *)sqlite3_column_text(pWanted, 0);
  if (row.zKey == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  if (pErr->rc == SQLITE_OK && !bSame) pCmp->xEach(pCmp->p, pCmp->pArg, &row);
}

static void compareRows(Comparison *pCmp, const char *zTable, BxErr *pErr) {
  sqlite3_stmt *pWanted = 0, *pFind = 0;
  if (!hasRows(pCmp->pModel, zTable, pErr)) return;
  bxBind(pCmp->pQueries, pErr, "t", zTable);
  if (bxRow(pCmp->pQueries, pErr)) {
    const char *zModel = (const char *)sqlite3_column_text(pCmp->pQueries, 0);
    const char *zSchema = (const char *)sqlite3_column_text(pCmp->pQueries, 1);
    if (!zModel || !zSchema) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    pWanted = ask(pCmp->pModel, zModel, pErr);
    while (bxRow(pWanted, pErr)) {
      if (pFind == 0) pFind = bxPrepare(pCmp->p, zSchema, pErr);
      compareRow(pCmp, zTable, pWanted, pFind, pErr);
    }
  }
  bxDone(pCmp->pQueries, pErr);
  sqlite3_finalize(pFind);
  sqlite3_finalize(pWanted);
}

/* Looks for the object of the model that pWanted stands on. */
static void compareObject(
    Comparison *pCmp, sqlite3_stmt *pWanted, BxErr *pErr) {
  const char *zSql = (const char *)sqlite3_column_text(pWanted, 2);
  int bTable = sqlite3_column_int(pWanted, 3);
  int bCore = sqlite3_column_int(pWanted, 4), bSame;
  BxDifference object = {0, 0, "", 0};
  object.zType = (const char *)sqlite3_column_text(pWanted, 0);
  object.zName = (const char *)sqlite3_column_text(pWanted, 1);
  bxBind(pCmp->pThere, pErr, "ttt", object.zType, object.zName, zSql);
  object.bThere = bxRow(pCmp->pThere, pErr);
  bSame = object.bThere && sqlite3_column_int(pCmp->pThere, 0);
  bxDone(pCmp->pThere, pErr);
  if (bTable && bSame && !bCore) {
    bSame = hasColumns(pCmp, object.zName, pErr);
  }
  if (pErr->rc != SQLITE_OK) return;
  if (!bSame) {
    if (!bCore) pCmp->xEach(pCmp->p, pCmp->pArg, &object);
  } else if (bTable) {
    compareRows(pCmp, object.zName, pErr);
  }
}

/* Of core's objects only the rows that the domain has put into its tables. */
static const char zObjects[] =
    "SELECT type, name, sql, type = 'table', core FROM"
    "  (SELECT *, name IN (SELECT name FROM core) AS core FROM sqlite_schema) "
    "WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    "  AND (type = 'table' OR NOT core) "
    "ORDER BY type <> 'table'";

/* Triggers and unique indexes on the tables of the list ?1, but for those that
** the domain ?3 makes from what it finds. ?2 is the schema, ?4 a table whose
** indexes are the domain's own affair. */
static const char zOnGuarded[] =
    "SELECT 'trigger', name, tbl_name FROM main.sqlite_schema"
    "  WHERE type = 'trigger' AND name NOT GLOB ?3 || '_made_*'"
    "    AND instr(?1, ',' || lower(tbl_name) || ',') > 0 "
    "UNION ALL SELECT 'temp trigger', name, tbl_name FROM sqlite_temp_schema"
    "  WHERE type = 'trigger' AND instr(?1, ',' || lower(tbl_name) || ',') > 0"
    "    AND tbl_name COLLATE NOCASE NOT IN (SELECT name FROM"
    "      sqlite_temp_schema WHERE type IN ('table', 'view')) "
    "UNION ALL SELECT 'unique index', l.name, t.name"
    "  FROM main.sqlite_schema AS t, pragma_index_list(t.name, ?2) AS l"
    "  WHERE t.type = 'table' AND instr(?1, ',' || lower(t.name) || ',') > 0"
    "    AND l.\"unique\" AND l.origin = 'c'"
    "    AND t.name IS NOT ?4 COLLATE NOCASE";

void bxForeigners(BxStmts *p, const BxDomain *pDomain,
    void (*xEach)(void *pArg, const BxForeign *pForeign), void *pArg,
    BxErr *pErr) {
  sqlite3 *pModel;
  sqlite3_stmt *pStmt, *pOurs;
  if (pDomain->zGuarded == 0) return;
  pModel = openModel(p->bx, pDomain, pErr);
  if (pModel == 0) return;
  pOurs = ask(pModel, "SELECT 1 FROM sqlite_schema WHERE name = ?1", pErr);
  pStmt = bxPrepare(p, zOnGuarded, pErr);
  bxBind(pStmt, pErr, "tttt", pDomain->zGuarded, p->zDb, pDomain->zName,
      pDomain->zAdopted);
  while (bxRow(pStmt, pErr)) {
    BxForeign foreign;
    int bOurs;
    foreign.zType = (const char *)sqlite3_column_text(pStmt, 0);
    foreign.zName = (const char *)sqlite3_column_text(pStmt, 1);
    foreign.zTable = (const char *)sqlite3_column_text(pStmt, 2);
    bxBind(pOurs, pErr, "t", foreign.zName);
    bOurs = bxRow(pOurs, pErr) && strcmp(foreign.zType, "temp trigger") != 0;
    bxDone(pOurs, pErr);
    if (!bOurs && pErr->rc == SQLITE_OK) xEach(pArg, &foreign);
  }
  sqlite3_finalize(pStmt);
  sqlite3_finalize(pOurs);
  sqlite3_close(pModel);
}

void bxDifferences(BxStmts *p, const BxDomain *pDomain,
    void (*xEach)(BxStmts *, void *, const BxDifference *), void *pArg,
    BxErr *pErr) {
  sqlite3 *pModel = openModel(p->bx, pDomain, pErr);
  Comparison cmp = {p, pModel, 0, 0, 0, xEach, pArg};
  sqlite3_stmt *pWanted;
  if (pModel == 0) return;
  cmp.pThere = bxPrepare(p,
      "SELECT type = ?1 AND (type = 'table' OR sql = ?3) "
      "FROM main.sqlite_schema WHERE name = ?2 COLLATE NOCASE "
      "AND (type = ?1 OR (type <> 'trigger' AND ?1 <> 'trigger'))",
      pErr);
  cmp.pColumns = ask(pModel, zColumns, pErr);
  cmp.pQueries = ask(pModel, zQueries, pErr);
  pWanted = ask(pModel, zObjects, pErr);
  while (bxRow(pWanted, pErr)) compareObject(&cmp, pWanted, pErr);
  sqlite3_finalize(pWanted);
  sqlite3_finalize(cmp.pQueries);
  sqlite3_finalize(cmp.pColumns);
  sqlite3_finalize(cmp.pThere);
  sqlite3_close(pModel);
}

/*----------------------------------------------------------- objects ----*/

/* What the domain makes itself, first what the rest stands under. */
static const char zMade[] =
    "SELECT type, name, sql, type = 'table' FROM sqlite_schema "
    "WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    "  AND name NOT IN (SELECT name FROM core) "
    "ORDER BY type <> 'trigger', type = 'table', type = 'index'";

void bxObjects(BxStmts *p, const BxDomain *pDomain,
    void (*xEach)(BxStmts *, void *, const BxObject *), void *pArg,
    BxErr *pErr) {
  sqlite3 *pModel = openModel(p->bx, pDomain, pErr);
  sqlite3_stmt *pMade = 0, *pThere = 0;
  if (pModel == 0) return;
  pMade = ask(pModel, zMade, pErr);
  pThere = bxPrepare(p,
      "SELECT sql = ?3 FROM main.sqlite_schema "
      "WHERE type = ?1 AND name = ?2 COLLATE NOCASE",
      pErr);
  while (bxRow(pMade, pErr)) {
    BxObject object = {0, 0, 0, 0, 0};
    object.zType = (const char *)sqlite3_column_text(pMade, 0);
    object.zName = (const char *)sqlite3_column_text(pMade, 1);
    bxBind(pThere, pErr, "ttt", object.zType, object.zName,
        sqlite3_column_text(pMade, 2));
    object.bThere = bxRow(pThere, pErr);
    object.bSame = object.bThere && sqlite3_column_int(pThere, 0);
    bxDone(pThere, pErr); /* nothing is dropped while it reads */
    object.bRows =
        sqlite3_column_int(pMade, 3) && hasRows(pModel, object.zName, pErr);
    if (pErr->rc == SQLITE_OK) xEach(p, pArg, &object);
  }
  sqlite3_finalize(pThere);
  sqlite3_finalize(pMade);
  sqlite3_close(pModel);
}
