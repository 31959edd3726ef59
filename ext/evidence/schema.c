/*
** schema.c: the tables of a buffer made, renamed, dropped and checked.
**
** sql/evidence_buffer.sql says what they are. SQLite itself is asked for the
** list of objects: the template runs in an empty database in memory, the model,
** under the buffer's name.
**
** A rename drops views and triggers and makes them again. An index cannot be
** dropped then and keeps its name, so that name has random letters, and another
** buffer may take the name that became free.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

extern const char bxSqlEvidenceBuffer[];

/* The tables, as evidence_buffer.sql has them, for xShadowName. */
static const char *const azTable[] = {
    "state", "rows", "actions", "shots", "gone", "log"};
#define N_TABLE ((int)(sizeof(azTable) / sizeof(azTable[0])))

/*--------------------------------------------------------- the model ----*/

static sqlite3 *openTemplate(EvBuffer *p, BxErr *pErr) {
  sqlite3 *db = 0;
  char *zSql;
  int rc;
  if (pErr->rc != SQLITE_OK) return 0;
  zSql = bxExpand(bxSqlEvidenceBuffer, "main", p->base.stmts.zTable);
  rc = zSql == 0 ? SQLITE_NOMEM
                 : sqlite3_open_v2(":memory:", &db,
                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, 0);
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, zSql, 0, 0, 0);
  sqlite3_free(zSql);
  if (rc == SQLITE_OK) return db;
  if (db != 0) bxFailDb(pErr, db, rc);
  bxFail(pErr, rc, "out of memory");
  sqlite3_close(db);
  return 0;
}

static sqlite3_stmt *askModel(sqlite3 *pModel, const char *zSql, BxErr *pErr) {
  sqlite3_stmt *pStmt = 0;
  if (pErr->rc == SQLITE_OK) {
    bxFailDb(pErr, pModel, sqlite3_prepare_v2(pModel, zSql, -1, &pStmt, 0));
  }
  return pStmt;
}

/* Runs on the schema each statement that a query on the model gives; ?1 is the
** schema, ?2 the buffer's name, ?3 another. */
static void runModel(
    EvBuffer *p, const char *zQuery, const char *zOther, BxErr *pErr) {
  const BxStmts *pStmts = &p->base.stmts;
  sqlite3 *pModel = openTemplate(p, pErr);
  sqlite3_stmt *pStmt = askModel(pModel, zQuery, pErr);
  bxBind(pStmt, pErr, &"ttt"[3 - sqlite3_bind_parameter_count(pStmt)],
      pStmts -> zDb, pStmts -> zTable, zOther);
  while (bxRow(pStmt, pErr)) {
    const char *zSql = (const char *)sqlite3_column_text(pStmt, 0);
    if (zSql == 0) {
      bxFail(pErr, SQLITE_NOMEM, "out of memory");
    } else {
      bxFailDb(
          pErr, pStmts->bx->db, sqlite3_exec(pStmts->bx->db, zSql, 0, 0, 0));
    }
  }
  sqlite3_finalize(pStmt);
  sqlite3_close(pModel);
}

/*------------------------------------------- made, dropped, renamed ----*/

/* The template with eight random letters at the end of each index' name. */
static char *nameIndexes(void) {
  static const char zMark[] = "CREATE INDEX main.@_";
  sqlite3_str *pOut = sqlite3_str_new(0);
  const char *z = bxSqlEvidenceBuffer, *zNext;
  char zUuid[37];
  bxUuid(zUuid);
  while ((zNext = strstr(z, zMark)) != 0) {
    zNext += strcspn(zNext + strlen(zMark), " ") + strlen(zMark);
    sqlite3_str_append(pOut, z, (int)(zNext - z));
    sqlite3_str_append(pOut, zUuid, 8);
    z = zNext;
  }
  sqlite3_str_appendall(pOut, z);
  return sqlite3_str_finish(pOut);
}

void bxEvCreate(EvBuffer *p, BxErr *pErr) {
  char *zSql = nameIndexes();
  if (zSql == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  bxNeedUtf8(&p->base.stmts, pErr);
  bxExec(&p->base.stmts, zSql, pErr);
  sqlite3_free(zSql);
}

/* A table takes its indexes and triggers with it, but not the views. */
void bxEvDrop(EvBuffer *p, BxErr *pErr) {
  bxStmtsFinalize(&p->base.stmts);
  runModel(p,
      "SELECT printf('DROP %s IF EXISTS \"%w\".\"%w\"', type, ?1, name)"
      " FROM sqlite_schema WHERE type IN ('view', 'table')"
      " ORDER BY type = 'table'",
      0, pErr);
}

/* Puts a new table name into the buffer's statements. */
static void takeName(EvBuffer *p, const char *zNew, BxErr *pErr) {
  BxStmts fresh;
  BxStmts *pOld = &p->base.stmts;
  if (pErr->rc != SQLITE_OK) return;
  bxStmtsInit(&fresh, pOld->bx, pOld->zDb, zNew, pErr);
  if (pErr->rc != SQLITE_OK) {
    bxStmtsFree(&fresh);
    return;
  }
  bxStmtsFree(pOld);
  *pOld = fresh;
}

void bxEvRename(EvBuffer *p, const char *zNew, BxErr *pErr) {
  bxStmtsFinalize(&p->base.stmts);
  bxEvExpectKnown(p, pErr);
  runModel(p,
      "SELECT printf('DROP %s IF EXISTS \"%w\".\"%w\"', type, ?1, name)"
      " FROM sqlite_schema WHERE type IN ('view', 'trigger')",
      0, pErr);
  runModel(p,
      "SELECT printf('ALTER TABLE \"%w\".\"%w\" RENAME TO \"%w%w\"', ?1, name,"
      " ?3, substr(name, length(?2) + 1))"
      " FROM sqlite_schema WHERE type = 'table'",
      zNew, pErr);
  takeName(p, zNew, pErr);
  runModel(p,
      "SELECT printf('CREATE %s \"%w\".%s', type, ?1, substr(sql,"
      " length('CREATE ' || type || ' ') + 1))"
      " FROM sqlite_schema WHERE type IN ('view', 'trigger') ORDER BY rowid",
      0, pErr);
}

int bxEvIsShadow(const char *zSuffix) {
  int i;
  for (i = 0; i < N_TABLE; i++) {
    if (sqlite3_stricmp(zSuffix, azTable[i]) == 0) return 1;
  }
  return 0;
}

/*------------------------------------------------------- checking ----*/

/* Rows that contradict each other. */
#define CONTRADICTIONS                                                         \
  "SELECT 'state', 'counters differ from the rows' FROM main.@_state"          \
  " WHERE (actions, bytes, screenshots, free_screenshots, pinned_bytes,"       \
  " memory_bytes, overflowed) <> (SELECT count(*),"                            \
  " coalesce(sum(action_bytes + screenshot_bytes + 100), 0),"                  \
  " coalesce(sum(screenshot_bytes > 0), 0),"                                   \
  " coalesce(sum(screenshot_bytes > 0 AND pinned = 0), 0),"                    \
  " coalesce(sum(pinned * (action_bytes + screenshot_bytes + 100)), 0),"       \
  " coalesce(sum((place = 0) * (action_bytes + screenshot_bytes + 100)), 0),"  \
  " coalesce(sum(place = 1), 0) FROM main.@_rows)"                             \
  " UNION ALL SELECT 'rows', 'no action for ' || quote(r.id)"                  \
  " FROM main.@_rows AS r WHERE place <> 1"                                    \
  " AND NOT EXISTS (SELECT 1 FROM main.@_actions AS a WHERE a.rid = r.rid)"    \
  " UNION ALL SELECT 'rows', 'no screenshot for ' || quote(r.id)"              \
  " FROM main.@_rows AS r WHERE place <> 1 AND screenshot_bytes > 0"           \
  " AND NOT EXISTS (SELECT 1 FROM main.@_shots AS s WHERE s.rid = r.rid)"      \
  " UNION ALL SELECT 'actions', CASE WHEN r.rid IS NULL THEN"                  \
  " 'action ' || a.rid || ' belongs to no row' WHEN r.action_bytes <>"         \
  " length(CAST(a.action AS BLOB)) THEN 'wrong size of ' || quote(r.id)"       \
  " ELSE 'damaged JSON of ' || quote(r.id) END FROM main.@_actions AS a"       \
  " LEFT JOIN main.@_rows AS r ON r.rid = a.rid WHERE r.rid IS NULL OR"        \
  " r.action_bytes <> length(CAST(a.action AS BLOB))"                          \
  " OR CASE WHEN json_valid(a.action)"                                         \
  " THEN json_type(a.action) <> 'object' ELSE 1 END"                           \
  " UNION ALL SELECT 'shots', 'screenshot ' || s.rid ||"                       \
  " ' belongs to no row or has another size' FROM main.@_shots AS s"           \
  " LEFT JOIN main.@_rows AS r ON r.rid = s.rid WHERE r.rid IS NULL OR"        \
  " r.screenshot_bytes <> length(s.screenshot)"

/* Whether an object of the model stands in the schema. An index may have any
** name, and must have the same text after it. */
static void checkObject(
    EvBuffer *p, sqlite3_stmt *pObject, BxProblems *pOut, BxErr *pErr) {
  const char *zType = (const char *)sqlite3_column_text(pObject, 0);
  const char *zName = (const char *)sqlite3_column_text(pObject, 1);
  sqlite3_stmt *pStmt = bxPrepare(&p->base.stmts,
      "SELECT 1 FROM main.sqlite_schema WHERE type = ?1 AND CASE type"
      " WHEN 'index' THEN substr(sql, instr(sql, ' ON ')) ="
      " substr(?3, instr(?3, ' ON ')) ELSE name = ?2 AND sql = ?3 END",
      pErr);
  bxBind(pStmt, pErr, "ttt", zType, zName, sqlite3_column_text(pObject, 2));
  if (!bxRow(pStmt, pErr) && pErr->rc == SQLITE_OK) {
    bxProblem(
        pOut, zName, "%s is missing or not as the buffer makes it", zType);
  }
  sqlite3_finalize(pStmt);
}

/* A trigger or a unique index that is not the buffer's, on a table that is:
** with them rows go that no guard sees. */
static void checkStranger(
    sqlite3_stmt *pOurs, sqlite3_stmt *pObject, BxProblems *pOut, BxErr *pErr) {
  const char *zName = (const char *)sqlite3_column_text(pObject, 1);
  bxBind(pOurs, pErr, "ttt", sqlite3_column_text(pObject, 0), zName,
      sqlite3_column_text(pObject, 2));
  if (bxRow(pOurs, pErr)) {
    bxProblem(pOut, zName,
        "this %s is not the buffer's; it can pass over the rules of %s",
        sqlite3_column_text(pObject, 0), sqlite3_column_text(pObject, 2));
  }
  bxDone(pOurs, pErr);
}

static void checkObjects(EvBuffer *p, BxProblems *pOut, BxErr *pErr) {
  sqlite3 *pModel = openTemplate(p, pErr);
  sqlite3_stmt *pStmt = askModel(pModel,
      "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL", pErr);
  sqlite3_stmt *pOurs = askModel(pModel,
      "SELECT 1 FROM sqlite_schema WHERE name = ?3 COLLATE NOCASE"
      " AND NOT EXISTS (SELECT 1 FROM sqlite_schema"
      " WHERE type = ?1 AND name = ?2)",
      pErr);
  while (bxRow(pStmt, pErr)) checkObject(p, pStmt, pOut, pErr);
  sqlite3_finalize(pStmt);
  pStmt = bxPrepare(&p->base.stmts,
      "SELECT type, name, tbl_name FROM main.sqlite_schema"
      " WHERE type = 'trigger' OR sql GLOB 'CREATE UNIQUE INDEX*' UNION"
      " SELECT type, name, tbl_name FROM temp.sqlite_schema"
      " WHERE type = 'trigger'",
      pErr);
  while (bxRow(pStmt, pErr)) checkStranger(pOurs, pStmt, pOut, pErr);
  sqlite3_finalize(pStmt);
  sqlite3_finalize(pOurs);
  sqlite3_close(pModel);
}

void bxEvCheck(BxVtab *pVtab, BxProblems *pOut) {
  EvBuffer *p = (EvBuffer *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  bxEvExpectKnown(p, &err);
  checkObjects(p, pOut, &err);
  pStmt = bxEvPrepareTiers(p, CONTRADICTIONS,
      CONTRADICTIONS " UNION ALL SELECT 'rows', 'nothing in the overflow for ' "
                     "|| quote(r.id) FROM main.@_rows AS r WHERE place = 1 "
                     "AND NOT EXISTS (SELECT 1 FROM over.evidence_overflow AS o"
                     " WHERE o.owner = ?2 AND o.id = r.id)"
                     " UNION ALL SELECT 'rows', 'no screenshot in the overflow "
                     "for ' || quote(r.id) FROM main.@_rows AS r,"
                     " over.evidence_overflow AS o WHERE place = 1"
                     " AND o.owner = ?2 AND o.id = r.id"
                     " AND r.screenshot_bytes > o.screenshot_bytes"
                     " UNION ALL SELECT 'rows', 'damaged JSON in the overflow "
                     "of ' || quote(o.id) FROM over.evidence_overflow AS o,"
                     " over.evidence_overflow_actions AS a WHERE a.rid = o.rid"
                     " AND o.owner = ?2 AND NOT json_valid(a.action)",
      &err);
  while (bxRow(pStmt, &err)) {
    char *z = sqlite3_mprintf(
        "%s_%s", p->base.stmts.zTable, sqlite3_column_text(pStmt, 0));
    if (z != 0) bxProblem(pOut, z, "%s", sqlite3_column_text(pStmt, 1));
    sqlite3_free(z);
  }
  sqlite3_finalize(pStmt);
  if (err.rc != SQLITE_OK) {
    bxProblem(pOut, p->base.stmts.zTable, "cannot be checked: %s",
        err.zMsg ? err.zMsg : "out of memory");
  }
  bxClear(&err);
}
