/*
** adopt.c: what the text of sql/payload.sql cannot do alone at an
** install: it takes over a table that another program made, and guards the columns
** and indexes that only this table has.
**
** Triggers are generated from the table itself if it needs them:
**   payload_made_replace, payload_made_update  for its unique indexes: they delete
**       what REPLACE would take, so that the guards see it
**   payload_made_changed  refuses it while a REPLACE takes a row
**   payload_made_columns  for its columns that blackbox does not know
**   payload_made_id  gives an id to a row without one
** They are compared with the triggers that the table needs, as the model
** compares the other triggers with the text.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*------------------------------------------------------------ adoption ----*/

/* 1 when event_payloads has the column. */
static int hasColumn(BxStmts *p, const char *zColumn, BxErr *pErr) {
  return (int)bxQueryIntOnce(p,
      "SELECT 1 FROM pragma_table_info('event_payloads', ?2) WHERE name = ?1 "
      "COLLATE NOCASE",
      pErr, "tt", zColumn, p->zDb);
}

#define TABLE "('event_payloads', ?1)"
/* The columns in the key of an index, and whether it is an index on id
** alone. */
#define KEY_OF(l) "pragma_index_xinfo(" l ".name, ?1) AS c WHERE c.key"
#define IS_ID(l)                                                               \
  "((SELECT count(*) FROM " KEY_OF(l) ") = 1 AND"                              \
                                      " EXISTS (SELECT 1 FROM " KEY_OF(        \
                                          l) " AND lower(c.name) = 'id'))"

/* The reason why the table cannot be guarded, and what to do. ?1: the
** schema. */
static const char zHindrances[] =
    "SELECT 'it is a WITHOUT ROWID table; create it as a rowid table'"
    "  FROM pragma_table_list WHERE schema = ?1 COLLATE NOCASE"
    "    AND name = 'event_payloads' COLLATE NOCASE AND wr "
    "UNION ALL SELECT 'it has a clause ON CONFLICT REPLACE, by which a plain"
    " INSERT could delete a pinned row; create it without the clause'"
    "  FROM main.sqlite_schema WHERE type = 'table'"
    "    AND name = 'event_payloads' COLLATE NOCASE"
    "    AND lower(sql) LIKE '%conflict%replace%' "
    "UNION ALL SELECT 'its column ' || name || ' hides the rowid; rename it'"
    "  FROM pragma_table_xinfo" TABLE
    "  WHERE lower(name) = 'rowid' AND NOT (pk = 1 AND lower(type) = 'integer'"
    "    AND (SELECT max(pk) FROM pragma_table_xinfo" TABLE ") = 1) "
    "UNION ALL SELECT 'its column id is declared as ' || coalesce(nullif(type,"
    "    ''), 'nothing') || '; it must be TEXT'"
    "  FROM pragma_table_xinfo" TABLE
    "  WHERE lower(name) = 'id' AND (upper(type) LIKE '%INT%' OR NOT"
    "    (upper(type) LIKE '%CHAR%' OR upper(type) LIKE '%CLOB%'"
    "     OR upper(type) LIKE '%TEXT%')) "
    "UNION ALL SELECT 'its column id is not unique; CREATE UNIQUE INDEX on it'"
    "  WHERE EXISTS (SELECT 1 FROM pragma_table_info" TABLE ")"
    "  AND NOT EXISTS (SELECT 1 FROM pragma_index_list" TABLE " AS l"
    "    WHERE l.\"unique\" AND NOT l.partial AND " IS_ID(
        "l") ") "
             "UNION ALL SELECT 'its unique index ' || l.name || ' is on an "
             "expression or"
             " has a WHERE clause, so REPLACE could delete a pinned row; drop "
             "it'"
             "  FROM pragma_index_list" TABLE
             " AS l WHERE l.\"unique\" AND (l.partial"
             "    OR EXISTS (SELECT 1 FROM " KEY_OF(
                 "l") " AND c.name IS NULL))";

static sqlite3_stmt *hindrances(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, zHindrances, pErr);
  bxBind(pStmt, pErr, "t", p->zDb);
  return pStmt;
}

/* Refuses a table that cannot be guarded. In a trigger, rowid -1 means none. */
static void refuse(BxStmts *p, BxErr *pErr) {
  BxErr why = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = hindrances(p, pErr);
  if (bxStep(pStmt, pErr)) {
    bxFail(&why, SQLITE_ERROR,
        "ValidationError: event_payloads in schema %s cannot be guarded: %s",
        p->zDb, bxColumnText(pStmt, 0, pErr));
  }
  sqlite3_finalize(pStmt);
  if (pErr->rc == SQLITE_OK) *pErr = why;
  if (bxQueryNumber(
          p, "SELECT 1 FROM main.event_payloads WHERE rowid = -1", pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: event_payloads in schema %s has a row with rowid -1, "
        "which cannot be guarded; UPDATE event_payloads SET rowid = (SELECT "
        "max(rowid) + 1 FROM event_payloads) WHERE rowid = -1",
        p->zDb);
  }
}

/* Adds created_ms, as the text of the table has it, but not stored. */
static void addTime(BxStmts *p, BxErr *pErr) {
  const char *z = strstr(bxSqlPayload, "created_ms INTEGER AS");
  const char *zEnd = z ? strstr(z, "STORED") : 0;
  assert(zEnd != 0);
  if (bxQueryIntOnce(p,
          "SELECT 1 FROM pragma_table_xinfo('event_payloads', ?1) WHERE name = "
          "'created_ms' COLLATE NOCASE",
          pErr, "t", p->zDb)) {
    return;
  }
  bxExecMade(p,
      bxPrintf(
          pErr, "ALTER TABLE main.event_payloads ADD %.*s", (int)(zEnd - z), z),
      pErr);
}

/* Drops indexes that have the names of ours and other columns or another text. */
static void dropOthers(BxStmts *p, BxErr *pErr) {
  static const char *const aaIndex[][2] = {{"event_id", "event_id"},
      {"agent_id", "agent_id"}, {"purpose", "purpose"},
      {"created_at", "created_at"}, {"kill_switch", "kill_switch_event_id"}};
  size_t i;
  for (i = 0; i < sizeof(aaIndex) / sizeof(aaIndex[0]); i++) {
    if (bxQueryIntOnce(p,
            "SELECT 1 FROM main.sqlite_schema WHERE type = 'index' AND name = "
            "'idx_payloads_' || ?1 AND tbl_name = 'event_payloads' AND sql <> "
            "'CREATE INDEX ' || name || ' ON event_payloads(' || ?2 || ')'",
            pErr, "tt", aaIndex[i][0], aaIndex[i][1])) {
      bxExecMade(p,
          bxPrintf(pErr, "DROP INDEX main.idx_payloads_%s", aaIndex[i][0]),
          pErr);
    }
  }
}

static void addColumns(BxStmts *p, BxErr *pErr) {
  static const char *const azAdded[][2] = {
      {"request_body", "ALTER TABLE main.event_payloads ADD request_body TEXT"},
      {"response_body",
          "ALTER TABLE main.event_payloads ADD response_body TEXT"},
      {"size_bytes",
          "ALTER TABLE main.event_payloads ADD size_bytes INTEGER NOT NULL "
          "DEFAULT 0"},
      {"meta", "ALTER TABLE main.event_payloads ADD meta TEXT"},
      {"pinned", "ALTER TABLE main.event_payloads ADD pinned INTEGER NOT NULL "
                 "DEFAULT 0"},
      {"kill_switch_event_id",
          "ALTER TABLE main.event_payloads ADD kill_switch_event_id TEXT"},
  };
  size_t i;
  for (i = 0; i < sizeof(azAdded) / sizeof(azAdded[0]); i++) {
    if (pErr->rc != SQLITE_OK || hasColumn(p, azAdded[i][0], pErr)) continue;
    bxExec(p, azAdded[i][1], pErr);
  }
  addTime(p, pErr);
}

void bxPayloadAdopt(BxStmts *p, BxErr *pErr) {
  static const char *const azNeeded[] = {
      "id", "event_id", "agent_id", "purpose", "created_at"};
  sqlite3_stmt *pStmt;
  int bThere, bTable;
  size_t i;
  pStmt = bxPrepare(p,
      "SELECT type = 'table' AND rootpage > 0 FROM main.sqlite_schema WHERE "
      "name = 'event_payloads' COLLATE NOCASE AND type <> 'trigger'",
      pErr);
  bThere = bxStep(pStmt, pErr);
  bTable = bThere && sqlite3_column_int(pStmt, 0);
  sqlite3_finalize(pStmt);
  if (!bThere || pErr->rc != SQLITE_OK) return;
  for (i = 0; bTable && i < sizeof(azNeeded) / sizeof(azNeeded[0]); i++) {
    bTable = hasColumn(p, azNeeded[i], pErr);
  }
  if (!bTable) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: event_payloads in schema %s does not have the "
        "columns id, event_id, agent_id, purpose and created_at; rename it",
        p->zDb);
  }
  refuse(p, pErr);
  addColumns(p, pErr);
  dropOthers(p, pErr);
}

/*--------------------------------------------------------- made guards ----*/

/* A trigger that is generated from the table: the SQL that lists the indexes or
** columns, and its condition, from the schema in ?1; and its text, from the
** condition. */
typedef struct Made {
  const char *zName;
  const char *zWhat;
  const char *zCondition;
  const char *zText;
} Made;

/* Whether a row has the values of the new row in a unique index other than that of
** the id; or, in an UPDATE, its rowid under the name of a column. */
/* clang-format off */
#define SAME_KEY                                                               \
  "SELECT group_concat(name, ', '), group_concat(condition, ' OR ') FROM"      \
  "  (SELECT l.name AS name, (SELECT '(' || group_concat(printf("              \
  "     '\"%w\" = NEW.\"%w\" COLLATE \"%w\"', c.name, c.name, c.coll),"        \
  "     ' AND ') || ')' FROM " KEY_OF("l") ") AS condition"                    \
  "   FROM pragma_index_list" TABLE " AS l"                                    \
  "   WHERE l.\"unique\" AND NOT l.partial AND NOT (" IS_ID("l")               \
  "     AND EXISTS (SELECT 1 FROM " KEY_OF("l") " AND c.coll = 'BINARY'))"     \
  "   UNION ALL SELECT name, 'rowid = NEW.rowid' FROM pragma_table_info" TABLE \
  "   WHERE ?2 AND pk = 1 AND lower(type) = 'integer' AND (SELECT max(pk)"     \
  "     FROM pragma_table_info" TABLE ") = 1"                                  \
  "   ORDER BY name) WHERE condition IS NOT NULL"

/* Deletes what REPLACE would take: see payload_replace. */
#define REPLACE(more)                                                          \
  "BEGIN\n"                                                                    \
  "  INSERT INTO payload__held(rid) SELECT rowid FROM event_payloads\n"        \
  "   WHERE (%s)" more ";\n"                                                   \
  "END"

/* The columns that blackbox does not know, and whether one of them changes. */
#define OTHER_COLUMNS                                                          \
  "SELECT group_concat(name, ', '), group_concat(printf("                      \
  "  '(NEW.\"%w\" IS NOT OLD.\"%w\" COLLATE BINARY OR typeof(NEW.\"%w\")"      \
  " <> typeof(OLD.\"%w\"))', name, name, name, name), ' OR ')"                 \
  " FROM pragma_table_info" TABLE                                              \
  " WHERE lower(name) NOT IN ('id', 'event_id', 'agent_id',"                   \
  "  'request_body', 'response_body', 'size_bytes', 'purpose', 'pinned',"      \
  "  'kill_switch_event_id', 'created_at', 'meta')"
/* clang-format on */

static const Made aMade[] = {
    {"payload_made_replace", "unique index", SAME_KEY,
        "%s\nBEFORE INSERT ON event_payloads\n"
        "WHEN EXISTS (SELECT 1 FROM event_payloads WHERE %s)\n" REPLACE("")},
    {"payload_made_update", "unique index", SAME_KEY,
        "%s\nBEFORE UPDATE ON event_payloads\n"
        "WHEN EXISTS (SELECT 1 FROM event_payloads WHERE (%s) AND rowid <> "
        "OLD.rowid)\n" REPLACE("\n     AND rowid <> OLD.rowid")},
    {"payload_made_changed", "unique index", SAME_KEY,
        "%s\nBEFORE UPDATE ON event_payloads\n"
        "WHEN (SELECT hit FROM blackbox__probe) = 1 AND "
        "EXISTS (SELECT 1 FROM event_payloads WHERE (%s) AND rowid <> "
        "OLD.rowid)\nBEGIN\n"
        "  SELECT RAISE(ABORT, 'MisuseError: while REPLACE takes a row, a "
        "trigger on event_payloads writes another; drop it');\n"
        "END"},
    {"payload_made_columns", "column", OTHER_COLUMNS,
        "%s\nBEFORE UPDATE ON event_payloads\nWHEN %s\nBEGIN\n"
        "  SELECT CASE WHEN EXISTS (SELECT 1 FROM payload__pins WHERE id = "
        "OLD.id) THEN RAISE(ABORT, 'PinnedError: a pinned row cannot be "
        "changed; see payload_unpins')\n"
        "    WHEN EXISTS "
        "(SELECT 1 FROM payload__held WHERE rid = OLD.rowid)\n"
        "    THEN RAISE(ABORT, 'HeldError: a hold keeps this row; see "
        "retention_holds') END;\n"
        "END"},
    {"payload_made_id", "column",
        "SELECT 'id', 'NEW.id IS NULL' FROM pragma_table_info" TABLE
        " WHERE lower(name) = 'id' AND NOT \"notnull\"",
        "%s\nAFTER INSERT ON event_payloads WHEN %s\nBEGIN\n"
        "  UPDATE event_payloads SET id = "
        "printf('%%08x-%%04x-4%%03x-%%04x-%%012x', "
        "random() & 4294967295, random() & 65535, random() & 4095, random() "
        "& 16383 | 32768, random() & 281474976710655)\n   WHERE rowid = "
        "NEW.rowid;\nEND"},
};

/* A generated trigger that differs from the one that the table needs. */
typedef struct Gap {
  const Made *pMade;
  char *zWhat; /* the indexes or columns, or NULL for none */
  char *zText; /* the trigger from its name on, or NULL for none */
} Gap;

/* Computes the trigger that the table needs. */
static void readWanted(BxStmts *p, Gap *pOut, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, pOut->pMade->zCondition, pErr);
  char *zCondition = 0;
  assert(pOut->zWhat == 0 && pOut->zText == 0);
  bxBind(pStmt, pErr, sqlite3_bind_parameter_count(pStmt) > 1 ? "ti" : "t",
      p->zDb, (i64)(strstr(pOut->pMade->zText, "BEFORE UPDATE") != 0));
  if (bxStep(pStmt, pErr)) {
    pOut->zWhat = bxColumnCopy(pStmt, 0, pErr);
    zCondition = bxColumnCopy(pStmt, 1, pErr);
  }
  sqlite3_finalize(pStmt);
  if (zCondition == 0 || pErr->rc != SQLITE_OK) {
    sqlite3_free(zCondition);
    return;
  }
  pOut->zText = bxPrintf(
      pErr, pOut->pMade->zText, pOut->pMade->zName, zCondition, zCondition);
  sqlite3_free(zCondition);
}

/* Whether the schema has exactly the wanted trigger, or correctly none. */
static int isMade(BxStmts *p, const Gap *pGap, BxErr *pErr) {
  return (int)bxQueryIntOnce(p,
      "SELECT (SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND "
      "name = ?1) IS 'CREATE TRIGGER ' || ?2",
      pErr, "tt", pGap->pMade->zName, pGap->zText);
}

static void eachGap(BxStmts *p, void (*xEach)(BxStmts *, const Gap *, void *),
    void *pArg, BxErr *pErr) {
  size_t i;
  for (i = 0; i < sizeof(aMade) / sizeof(aMade[0]); i++) {
    Gap gap = {&aMade[i], 0, 0};
    if (pErr->rc != SQLITE_OK) return;
    readWanted(p, &gap, pErr);
    if (!isMade(p, &gap, pErr) && pErr->rc == SQLITE_OK) xEach(p, &gap, pArg);
    sqlite3_free(gap.zWhat);
    sqlite3_free(gap.zText);
  }
}

/* The texts contain names of the user, so they are not templates. */
static void makeOne(BxStmts *p, const Gap *pGap, void *pArg) {
  BxErr *pErr = (BxErr *)pArg;
  bxExecSql(p->bx,
      bxPrintf(
          pErr, "DROP TRIGGER IF EXISTS \"%w\".%s", p->zDb, pGap->pMade->zName),
      pErr);
  if (pGap->zText == 0) return;
  bxExecSql(p->bx,
      bxPrintf(pErr, "CREATE TRIGGER \"%w\".%s", p->zDb, pGap->zText), pErr);
}

static void countGap(BxStmts *p, const Gap *pGap, void *pArg) {
  (void)p;
  (void)pGap;
  ++*(int *)pArg;
}

static void tellOne(BxStmts *p, const Gap *pGap, void *pArg) {
  (void)p;
  bxProblem((BxProblems *)pArg, "event_payloads",
      pGap->zWhat ? "%s %s is not guarded by trigger %s; run blackbox_install()"
                  : "no %s%s needs trigger %s; run blackbox_install()",
      pGap->pMade->zWhat, pGap->zWhat ? pGap->zWhat : "", pGap->pMade->zName);
}

void bxPayloadMend(BxStmts *p, BxErr *pErr) {
  eachGap(p, makeOne, pErr, pErr);
}

/* Whether the sums of payload__state are those of the rows, which an install makes. */
static int isCounted(BxStmts *p, BxErr *pErr) {
  return bxQueryNumber(p,
             "SELECT bytes = (SELECT coalesce(sum(size_bytes), 0) FROM "
             "main.event_payloads INDEXED BY payload_by_age WHERE purpose = "
             "'archive' "
             "AND pinned = 0) FROM main.payload__state",
             pErr) != 0;
}

int bxPayloadIsWhole(BxStmts *p, BxErr *pErr) {
  int nGap = 0;
  eachGap(p, countGap, &nGap, pErr);
  return nGap == 0 && isCounted(p, pErr) && pErr->rc == SQLITE_OK;
}

void bxPayloadCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = hindrances(p, &err);
  while (bxStep(pStmt, &err)) {
    bxProblem(pOut, "event_payloads", "cannot be guarded: %s",
        bxColumnText(pStmt, 0, &err));
  }
  sqlite3_finalize(pStmt);
  eachGap(p, tellOne, pOut, &err);
  bxProblemError(pOut, "event_payloads", &err);
}
