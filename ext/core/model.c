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
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* One comparison, and the callback for each object. */
typedef struct Comparison {
  BxStmts *p; /* the schema */
  const char *zSql;
  sqlite3 *pModel;
  sqlite3_stmt *pThere;   /* of the schema: an object of that name */
  sqlite3_stmt *pColumns; /* of the model: a query of a table's columns */
  sqlite3_stmt *pQueries; /* of the model: queries of a table's rows */
  void (*xEach)(BxStmts *, void *, const BxObject *);
  void *pArg;
} Comparison;

/* Fills a model. Its temp table core has the names of the objects of core. Nothing
** is committed, which saves time. */
static int fillModel(BxStmts *p, sqlite3 *pModel, const char *zSql) {
  const char *zCore = p->bx->aDomain[0].zSql;
  char *zOwn = p->zTable ? bxExpand(zSql, "main", p->zTable) : 0;
  int rc = p->zTable && zOwn == 0 ? SQLITE_NOMEM : SQLITE_OK;
  int bDomain = p->zTable == 0 && strcmp(zSql, zCore) != 0;
  if (rc == SQLITE_OK) rc = sqlite3_exec(pModel, "BEGIN", 0, 0, 0);
  if (rc == SQLITE_OK && bDomain) rc = sqlite3_exec(pModel, zCore, 0, 0, 0);
  if (rc == SQLITE_OK) {
    rc = sqlite3_exec(pModel,
        "CREATE TEMP TABLE core AS SELECT name FROM main.sqlite_schema", 0, 0,
        0);
  }
  if (rc == SQLITE_OK && bDomain) {
    rc = sqlite3_exec(pModel, "DELETE FROM blackbox_domains", 0, 0, 0);
  }
  if (rc == SQLITE_OK) rc = sqlite3_exec(pModel, zOwn ? zOwn : zSql, 0, 0, 0);
  sqlite3_free(zOwn);
  return rc;
}

sqlite3 *bxModel(BxStmts *p, const char *zSql, BxErr *pErr) {
  sqlite3 *db = 0;
  int rc;
  if (pErr->rc != SQLITE_OK) return 0;
  rc = sqlite3_open_v2(
      ":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 0);
  if (rc == SQLITE_OK) rc = fillModel(p, db, zSql);
  if (rc == SQLITE_OK) return db;
  if (db != 0) bxFailDb(pErr, db, rc);
  bxFail(pErr, rc, "out of memory");
  sqlite3_close(db);
  return 0;
}

/*-------------------------------------------------------------- columns ----*/

/* A query of all columns of table ?1, and the names of its generated columns,
** each between commas. */
static const char zModelColumns[] =
    "SELECT 'SELECT ' || group_concat('t.\"' || name || '\"') || "
    "' FROM main.\"' || ?1 || '\" AS t',"
    " ',' || group_concat(name) FILTER (WHERE hidden > 1) || ',',"
    " count(*) FILTER (WHERE hidden > 1) FROM pragma_table_xinfo(?1)";

/* The number of columns in the list ?1 that are generated in table ?2 of ?3. */
static const char zGenerated[] =
    "SELECT count(*) FROM pragma_table_xinfo(?2, ?3)"
    " WHERE hidden > 1 AND instr(?1, ',' || name || ',') > 0";

/* Whether the columns that should be generated are generated. */
static int areGenerated(Comparison *pCmp, const char *zTable, BxErr *pErr) {
  if (sqlite3_column_type(pCmp->pColumns, 1) == SQLITE_NULL) return 1;
  return bxAskOnce(pCmp->p, zGenerated, pErr, "ttt",
             sqlite3_column_text(pCmp->pColumns, 1), zTable,
             pCmp->p->zDb) == sqlite3_column_int64(pCmp->pColumns, 2);
}

/* Whether the table of the schema has the columns of the model. */
static int hasColumns(Comparison *pCmp, const char *zTable, BxErr *pErr) {
  const BxStmts *p = pCmp->p;
  int bHas = 0;
  bxBind(pCmp->pColumns, pErr, "t", zTable);
  if (bxRow(pCmp->pColumns, pErr)) {
    const char *zSql = bxColumnText(pCmp->pColumns, 0, pErr);
    bHas = zSql != 0 &&
           bxCanPrepare(
               p->bx, bxGot(bxExpand(zSql, p->zDb, p->zTable), pErr), pErr) &&
           areGenerated(pCmp, zTable, pErr);
  }
  bxDone(pCmp->pColumns, pErr);
  return bHas;
}

/*----------------------------------------------------------------- rows ----*/

/* Two queries on table ?1. The one for the model returns for each row its key
** as SQL, the compared columns, and the key. The one for the schema finds the
** row by its key, and tells whether the compared columns are equal. */
static const char zQueries[] =
    "WITH cols(name, is_key) AS ("
    "  SELECT name, pk > 0 FROM pragma_table_info(?1) WHERE pk > 0 OR"
    "    ?1 = 'retention_rules' OR (?1 = 'blackbox_settings' AND name <> "
    "'value')"
    "  UNION ALL SELECT i.name, 1 FROM pragma_index_list(?1) AS l,"
    "    pragma_index_info(l.name) AS i WHERE l.origin = 'c' AND l.\"unique\") "
    "SELECT 'SELECT ' || group_concat('quote(\"' || name || '\")',"
    "    ' || '', '' || ') FILTER (WHERE is_key) ||"
    "  coalesce(group_concat(', \"' || name || '\"', '')"
    "    FILTER (WHERE NOT is_key), '') ||"
    "  group_concat(', \"' || name || '\"', '') FILTER (WHERE is_key) ||"
    "  ' FROM \"' || ?1 || '\"',"
    " 'SELECT ' || coalesce(group_concat('\"' || name || '\" IS ?', ' AND ')"
    "    FILTER (WHERE NOT is_key), '1') ||"
    "  ' FROM main.\"' || ?1 || '\" WHERE ' ||"
    "  group_concat('\"' || name || '\" IS ?', ' AND ')"
    "    FILTER (WHERE is_key) "
    "FROM cols GROUP BY NULL";

/* Whether the table of the model has a row. */
static int hasRows(sqlite3 *pModel, const char *zTable, BxErr *pErr) {
  char *zSql = bxPrintf(pErr, "SELECT 1 FROM \"%w\"", zTable);
  sqlite3_stmt *pStmt = bxPlain(pModel, zSql, pErr);
  int bRow = bxRow(pStmt, pErr);
  sqlite3_finalize(pStmt);
  sqlite3_free(zSql);
  return bRow;
}

/* Looks up the current row of pWanted. */
static void compareRow(Comparison *pCmp, const char *zTable,
    sqlite3_stmt *pWanted, sqlite3_stmt *pFind, BxErr *pErr) {
  BxObject row = {"row", zTable, 0, BX_MISSING, 0, 0};
  int i;
  for (i = 1; i < sqlite3_column_count(pWanted) && pErr->rc == SQLITE_OK; i++) {
    bxFailDb(pErr, pCmp->p->bx->db,
        sqlite3_bind_value(pFind, i, sqlite3_column_value(pWanted, i)));
  }
  if (bxRow(pFind, pErr)) {
    row.eState = sqlite3_column_int(pFind, 0) ? BX_SAME : BX_OTHER;
  }
  bxDone(pFind, pErr);
  row.zKey = bxColumnText(pWanted, 0, pErr);
  if (pErr->rc == SQLITE_OK) pCmp->xEach(pCmp->p, pCmp->pArg, &row);
}

static void compareRows(Comparison *pCmp, const char *zTable, BxErr *pErr) {
  sqlite3_stmt *pWanted = 0, *pFind = 0;
  bxBind(pCmp->pQueries, pErr, "t", zTable);
  if (bxRow(pCmp->pQueries, pErr)) {
    const char *zModel = bxColumnText(pCmp->pQueries, 0, pErr);
    const char *zSchema = bxColumnText(pCmp->pQueries, 1, pErr);
    pWanted = bxPlain(pCmp->pModel, zModel, pErr);
    while (bxRow(pWanted, pErr)) {
      if (pFind == 0) pFind = bxPrepare(pCmp->p, zSchema, pErr);
      compareRow(pCmp, zTable, pWanted, pFind, pErr);
    }
  }
  bxDone(pCmp->pQueries, pErr);
  sqlite3_finalize(pFind);
  sqlite3_finalize(pWanted);
}

/*-------------------------------------------------------------- objects ----*/

/* The objects that the SQL makes, dependent ones first. Of the tables of core,
** a domain has only rows. */
static const char zObjects[] =
    "SELECT type, name, sql, type = 'table', core FROM (SELECT *,"
    "  name IN (SELECT name FROM core) AS core FROM main.sqlite_schema) "
    "WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    "  AND (type = 'table' OR NOT core) "
    "ORDER BY type <> 'trigger', type = 'table', type = 'index'";

/* A text without its white space. */
#define SQUEEZED(sql) "replace(replace(" sql ", ' ', ''), char(10), '')"
/* What comes after the name of an index. */
#define AFTER_NAME(sql, name)                                                  \
  "substr(" sql ", length(printf('CREATE INDEX \"%w\"', " name ")) + 1)"

/* The state of the object ?1 ?2 with the text ?3 in the schema: a BxState, or
** no row. ?4: it belongs to a virtual table. */
static const char zThere[] =
    "SELECT CASE WHEN type <> ?1 THEN 1 WHEN sql = ?3 THEN 4"
    "  WHEN " SQUEEZED("sql") " = " SQUEEZED(
        "?3") " THEN 4"
              "  WHEN type = 'index' AND name <> ?2 COLLATE NOCASE THEN 4"
              "  ELSE 2 END AS how "
              "FROM main.sqlite_schema WHERE (name = ?2 COLLATE NOCASE"
              "  AND (type = ?1 OR (type <> 'trigger' AND ?1 <> 'trigger')))"
              "  OR (?4 AND type = ?1 AND type = 'index' AND " AFTER_NAME(
                  "sql", "name") " = " AFTER_NAME("?3",
                  "?2") ") "
                        "ORDER BY how DESC LIMIT 1";

/* See BxObject. */
static int isLost(Comparison *pCmp, const BxObject *pTable) {
  const char *zOwner = pCmp->p->zTable;
  if (zOwner == 0 || pTable->zName == 0 || pTable->eState == BX_SAME) return 0;
  return pTable->eState != BX_MISSING ||
         !bxModelRenews(pCmp->zSql, pTable->zName + strlen(zOwner) + 1);
}

/* Looks up the current object of pWanted. */
static void compareObject(
    Comparison *pCmp, sqlite3_stmt *pWanted, int bRows, BxErr *pErr) {
  int bTable = sqlite3_column_int(pWanted, 3);
  int bCore = sqlite3_column_int(pWanted, 4);
  BxObject object = {0, 0, "", BX_MISSING, 0, 0};
  object.zType = bxColumnText(pWanted, 0, pErr);
  object.zName = bxColumnText(pWanted, 1, pErr);
  bxBind(pCmp->pThere, pErr, "ttti", object.zType, object.zName,
      bxColumnText(pWanted, 2, pErr), (i64)(pCmp->p->zTable != 0));
  if (bxRow(pCmp->pThere, pErr)) {
    object.eState = (BxState)sqlite3_column_int(pCmp->pThere, 0);
  }
  /* nothing can be dropped while a statement reads */
  bxDone(pCmp->pThere, pErr);
  if (bTable) object.bFilled = hasRows(pCmp->pModel, object.zName, pErr);
  if (bTable && object.eState == BX_OTHER && pCmp->p->zTable == 0 &&
      hasColumns(pCmp, object.zName, pErr)) {
    object.eState = BX_FITS;
  }
  object.bLost = bTable && isLost(pCmp, &object);
  if (bRows && object.bFilled && object.eState >= BX_FITS) {
    compareRows(pCmp, object.zName, pErr);
  }
  if (pErr->rc == SQLITE_OK && !bCore) {
    pCmp->xEach(pCmp->p, pCmp->pArg, &object);
  }
}

void bxCompareModel(BxStmts *p, sqlite3 *pModel, const char *zSql, int bRows,
    void (*xEach)(BxStmts *, void *, const BxObject *), void *pArg,
    BxErr *pErr) {
  Comparison cmp = {p, zSql, pModel, 0, 0, 0, xEach, pArg};
  sqlite3_stmt *pWanted;
  if (pModel == 0) return;
  cmp.pThere = bxPrepare(p, zThere, pErr);
  cmp.pColumns = bxPlain(pModel, zModelColumns, pErr);
  cmp.pQueries = bxPlain(pModel, zQueries, pErr);
  pWanted = bxPlain(pModel, zObjects, pErr);
  while (bxRow(pWanted, pErr)) compareObject(&cmp, pWanted, bRows, pErr);
  sqlite3_finalize(pWanted);
  sqlite3_finalize(cmp.pQueries);
  sqlite3_finalize(cmp.pColumns);
  sqlite3_finalize(cmp.pThere);
}

void bxCompare(BxStmts *p, const char *zSql, int bRows,
    void (*xEach)(BxStmts *, void *, const BxObject *), void *pArg,
    BxErr *pErr) {
  sqlite3 *pModel = bxModel(p, zSql, pErr);
  bxCompareModel(p, pModel, zSql, bRows, xEach, pArg, pErr);
  sqlite3_close(pModel);
}

/*---------------------------------------------------------------- names ----*/

/* Whether the template has a line that begins with zBegin and the suffix of a
** table. */
static int createsTable(
    const char *zSql, const char *zBegin, const char *zSuffix) {
  const char *z = zSql;
  size_t n = strlen(zSuffix);
  while ((z = strstr(z, zBegin)) != 0) {
    z += strlen(zBegin);
    if (strcspn(z, "(") == n && sqlite3_strnicmp(z, zSuffix, (int)n) == 0) {
      return 1;
    }
  }
  return 0;
}

int bxModelRenews(const char *zSql, const char *zSuffix) {
  return createsTable(zSql, "CREATE TABLE IF NOT EXISTS main.@_", zSuffix);
}

int bxModelMakes(const char *zSql, const char *zSuffix) {
  return createsTable(zSql, "CREATE TABLE main.@_", zSuffix) ||
         createsTable(zSql, "CREATE TABLE IF NOT EXISTS main.", zSuffix) ||
         bxModelRenews(zSql, zSuffix);
}

/*----------------------------------------------------------- strangers ----*/

/* Triggers and unique indexes. ?1 is the schema. */
static const char zGuards[] =
    "SELECT type, name, tbl_name FROM main.sqlite_schema"
    "  WHERE type = 'trigger' "
    "UNION ALL SELECT 'temp trigger', name, tbl_name FROM sqlite_temp_schema"
    "  WHERE type = 'trigger' AND lower(?1) <> 'temp'"
    "    AND tbl_name COLLATE NOCASE NOT IN (SELECT name FROM"
    "      sqlite_temp_schema WHERE type IN ('table', 'view')) "
    "UNION ALL SELECT 'unique index', name, tbl_name"
    "  FROM main.sqlite_schema AS s WHERE type = 'index' AND EXISTS (SELECT 1"
    "    FROM pragma_index_list(s.tbl_name, ?1) AS l"
    "    WHERE l.name = s.name AND l.\"unique\""
    "    AND l.origin = 'c')";

/* Whether ?1 ?2 on the table or view ?3 belongs to somebody else, asked of the
** model. ?4: only on the tables in that list; ?5: the name of a domain, which
** creates some more itself; ?6: a table whose indexes are not checked here. */
static const char zStranger[] =
    "SELECT 1 FROM main.sqlite_schema WHERE type IN ('table', 'view')"
    "  AND name = ?3 COLLATE NOCASE"
    "  AND CASE WHEN ?4 IS NULL THEN name NOT IN (SELECT name FROM core)"
    "    ELSE instr(?4, ',' || lower(?3) || ',') > 0 END"
    "  AND NOT (?1 = 'trigger' AND ?2 GLOB ?5 || '_made_*') IS TRUE"
    "  AND NOT (?1 = 'unique index' AND ?3 = ?6 COLLATE NOCASE) IS TRUE"
    "  AND (?1 = 'temp trigger'"
    "    OR NOT EXISTS (SELECT 1 FROM main.sqlite_schema WHERE name = ?2))";

/* The model of another domain of the schema. */
typedef struct OtherModel {
  const BxDomain *pDomain;
  sqlite3 *pModel;
} OtherModel;

/* The domain of the schema with whose name the name begins, or NULL. */
static const BxDomain *domainOfName(
    BxStmts *p, const char *zName, BxErr *pErr) {
  int i;
  for (i = 0; i < p->bx->nDomain; i++) {
    const BxDomain *pDomain = &p->bx->aDomain[i];
    size_t n = strlen(pDomain->zName);
    if (strncmp(zName, pDomain->zName, n) == 0 && zName[n] == '_' &&
        bxCarries(p->bx, p->zDb, pDomain->zName, pErr)) {
      return pDomain;
    }
  }
  return 0;
}

/* Whether the trigger belongs to another domain of the schema, which compares it
** itself. */
static int isOfDomain(BxStmts *pTable, const BxStranger *pStranger,
    OtherModel *pOther, BxErr *pErr) {
  BxStmts *p = bxSchema(pTable->bx, pTable->zDb, pErr);
  const BxDomain *pDomain;
  sqlite3_stmt *pAsk;
  int bFound;
  if (p == 0 || strcmp(pStranger->zType, "trigger") != 0) return 0;
  pDomain = domainOfName(p, pStranger->zName, pErr);
  if (pDomain == 0) return 0;
  if (pDomain != pOther->pDomain) {
    sqlite3_close(pOther->pModel);
    pOther->pDomain = pDomain;
    pOther->pModel = bxModel(p, pDomain->zSql, pErr);
  }
  pAsk = bxPlain(
      pOther->pModel, "SELECT 1 FROM main.sqlite_schema WHERE name = ?1", pErr);
  bxBind(pAsk, pErr, "t", pStranger->zName);
  bFound = bxRow(pAsk, pErr);
  sqlite3_finalize(pAsk);
  return bFound;
}

void bxStrangers(BxStmts *p, sqlite3 *pModel, const BxDomain *pDomain,
    void (*xEach)(void *pArg, const BxStranger *pStranger), void *pArg,
    BxErr *pErr) {
  static const BxDomain none = {0};
  OtherModel other = {0, 0};
  sqlite3_stmt *pGuard, *pAsk;
  if (pModel == 0) return;
  if (pDomain == 0) pDomain = &none;
  pAsk = bxPlain(pModel, zStranger, pErr);
  pGuard = bxPrepare(p, zGuards, pErr);
  bxBind(pGuard, pErr, "t", p->zDb);
  while (bxRow(pGuard, pErr)) {
    BxStranger stranger;
    int bFound;
    stranger.zType = bxColumnText(pGuard, 0, pErr);
    stranger.zName = bxColumnText(pGuard, 1, pErr);
    stranger.zTable = bxColumnText(pGuard, 2, pErr);
    bxBind(pAsk, pErr, "tttttt", stranger.zType, stranger.zName,
        stranger.zTable, pDomain->zGuarded, pDomain->zName, pDomain->zAdopted);
    bFound = bxRow(pAsk, pErr);
    bxDone(pAsk, pErr);
    if (bFound && pErr->rc == SQLITE_OK &&
        !isOfDomain(p, &stranger, &other, pErr)) {
      xEach(pArg, &stranger);
    }
  }
  sqlite3_close(other.pModel);
  sqlite3_finalize(pGuard);
  sqlite3_finalize(pAsk);
}
