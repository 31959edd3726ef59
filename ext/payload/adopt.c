/*
** adopt.c: what the text of sql/payload_tables.sql cannot do alone at an
** install: it takes over a table that another program made, and guards the columns
** and indexes that only this table has.
**
** Triggers are generated from the table itself if it needs them:
**   payload_made_insert, payload_made_update  for its unique indexes, because
**       REPLACE would delete a pinned row with the same values
**   payload_made_size, payload_made_resize  the same for payload__sizes: an entry
**       whose row may be replaced gets the id of the new row
**   payload_made_columns  for its columns that blackbox does not know
**   payload_made_held_*  for rows that a hold keeps. They exist only while the file has holds that
**       may keep rows, because they would cost every write some time
** They are compared with the triggers that the table needs, as the model
** compares the other triggers with the text.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*------------------------------------------------------------ adoption ----*/

/* 1 when event_payloads has the column. */
static int hasColumn(BxStmts *p, const char *zColumn, BxErr *pErr) {
  return (int)bxAskOnce(p,
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
  if (bxRow(pStmt, pErr)) {
    bxFail(&why, SQLITE_ERROR,
        "ValidationError: event_payloads in schema %s cannot be guarded: %s",
        p->zDb, bxColumnText(pStmt, 0, pErr));
  }
  sqlite3_finalize(pStmt);
  if (pErr->rc == SQLITE_OK) *pErr = why;
  if (bxNumber(p, "SELECT 1 FROM main.event_payloads WHERE rowid = -1", pErr)) {
    bxFail(pErr, SQLITE_ERROR,
        "ValidationError: event_payloads in schema %s has a row with rowid -1, "
        "which cannot be guarded; UPDATE event_payloads SET rowid = (SELECT "
        "max(rowid) + 1 FROM event_payloads) WHERE rowid = -1",
        p->zDb);
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
  bThere = bxRow(pStmt, pErr);
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
}

/*--------------------------------------------------------- made guards ----*/

#define PINNED                                                                 \
  "SELECT RAISE(ABORT, 'PinnedError: a pinned row %s; unpin it first with"     \
  " INSERT INTO payload_unpins(payload_id, actor, reason)')"

/* A trigger that is generated from the table: the SQL that lists the indexes or
** columns, and its condition, from the schema in ?1; and its text, from the
** condition. ?2 is a value of HoldGuard. */
typedef struct Made {
  const char *zName;
  const char *zWhat;
  const char *zCondition;
  const char *zText;
} Made;

/* When the guards of holds are wanted: while there are holds; or also before the
** first; or also after the last, if they are there. */
typedef enum HoldGuard { GUARD_EXACT, GUARD_EARLY, GUARD_LATE } HoldGuard;

/* For each unique index except that of the id: is there a row with the values of
** the new row? begin: the test, until its WHERE; more: a condition. */
/* clang-format off */
#define SAME_KEY(begin, more)                                                  \
  "SELECT group_concat(name, ', '), group_concat('" begin                      \
  " WHERE ' || condition || '" more ")', ' OR ') FROM"                         \
  "  (SELECT l.name AS name, (SELECT group_concat(printf("                     \
  "     '\"%w\" = NEW.\"%w\" COLLATE \"%w\"', c.name, c.name, c.coll),"        \
  "     ' AND ') FROM " KEY_OF("l") ") AS condition"                           \
  "   FROM pragma_index_list" TABLE " AS l"                                    \
  "   WHERE l.\"unique\" AND NOT l.partial AND NOT (" IS_ID("l")               \
  "     AND EXISTS (SELECT 1 FROM " KEY_OF("l") " AND c.coll = 'BINARY'))"     \
  "   ORDER BY l.name) WHERE condition IS NOT NULL"
/* clang-format on */

#define MADE_PROTECTED "EXISTS (SELECT 1 FROM payload__protected"
#define MADE_COUNTED "rid IN (SELECT rowid FROM event_payloads"

/* SQL of the guards of holds: the first hold, and a condition, from a table k with
** the columns (n, c). */
#define HELD_KINDS "kind IN ('agent', 'event', 'kill_switch', 'evidence')"
#define WHILE_HELD(keys, condition)                                            \
  "WITH k(n, c) AS (" keys ") SELECT coalesce((SELECT kind || ' ' || \"key\""  \
  " FROM main.retention__in_force WHERE " HELD_KINDS                           \
  "), 'to come'), " condition                                                  \
  " FROM k WHERE ?2 = 1 OR EXISTS (SELECT 1 FROM main.retention__in_force "    \
  "WHERE " HELD_KINDS                                                          \
  ") OR (?2 = 2 AND EXISTS (SELECT 1 FROM main.sqlite_schema"                  \
  " WHERE name GLOB 'payload_made_held_*'))"
#define HELD_ERROR(what)                                                       \
  "  SELECT RAISE(ABORT, 'HeldError: a hold keeps " what "; SELECT * FROM "    \
  "retention_holds lists the holds, and retention_release() ends one')"
#define OVERWRITTEN "a row with these values, which cannot be overwritten"

/* Whether the statement is a REPLACE: see blackbox__probe in core. The look at the
** holds takes much memory, which SQLite allocates for a whole trigger whenever it
** fires. So it is in a trigger on payload__looking, which takes the hit back. (The
** guards of UPDATE and DELETE only raise, so that no TEMP trigger can run while they
** do.) */
#define PROBE                                                                  \
  "  UPDATE blackbox__probe SET hit = 0 WHERE one = 1;\n"                      \
  "  INSERT OR IGNORE INTO blackbox__probe(one, hit) VALUES (1, 1);\n"
#define IF_PROBED "\n    FROM blackbox__probe WHERE hit;\nEND"

#define MADE_HELD "EXISTS (SELECT 1 FROM payload__held"
#define KEYS_HELD(more)                                                        \
  WHILE_HELD(SAME_KEY(MADE_HELD, more), "c") " AND c IS NOT NULL"

/* The columns that blackbox does not know, and whether one of them changes. */
#define OTHER_COLUMNS                                                          \
  "SELECT group_concat(name, ', '), group_concat(printf("                      \
  "  '(NEW.\"%w\" IS NOT OLD.\"%w\" COLLATE BINARY OR typeof(NEW.\"%w\")"      \
  " <> typeof(OLD.\"%w\"))', name, name, name, name), ' OR ')"                 \
  " FROM pragma_table_info" TABLE                                              \
  " WHERE lower(name) NOT IN ('id', 'event_id', 'agent_id',"                   \
  "  'request_body', 'response_body', 'size_bytes', 'purpose', 'pinned',"      \
  "  'kill_switch_event_id', 'created_at')"

static const Made aMade[] = {
    {"payload_made_insert", "unique index", SAME_KEY(MADE_PROTECTED, ""),
        "%s\nBEFORE INSERT ON event_payloads\nWHEN %s\nBEGIN\n"
        "  UPDATE blackbox__probe SET hit = 0 WHERE one = 1;\n"
        "  INSERT OR IGNORE INTO blackbox__probe(one, hit) VALUES (1, 1);\n"
        "  SELECT RAISE(ABORT, 'PinnedError: a pinned row has these values in "
        "a unique index and cannot be overwritten; unpin it first with "
        "INSERT INTO payload_unpins(payload_id, actor, reason)')\n"
        "    FROM blackbox__probe WHERE hit;\nEND"},
    {"payload_made_update", "unique index",
        SAME_KEY(MADE_PROTECTED, " AND payload_rowid <> OLD.rowid"),
        "%s\nBEFORE UPDATE ON event_payloads\nWHEN %s\nBEGIN\n"
        "  SELECT RAISE(ABORT, 'PinnedError: a pinned row has these values in "
        "a unique index and cannot be overwritten; unpin it first with "
        "INSERT INTO payload_unpins(payload_id, actor, reason)');\nEND"},
    {"payload_made_size", "unique index", SAME_KEY(MADE_COUNTED, ""),
        "%s\nBEFORE INSERT ON event_payloads\n"
        "WHEN EXISTS (SELECT 1 FROM payload_volume)\nBEGIN\n"
        "  UPDATE payload__sizes SET id = NEW.id WHERE %s;\nEND"},
    {"payload_made_resize", "unique index",
        SAME_KEY(MADE_COUNTED, " AND rowid <> OLD.rowid"),
        "%s\nBEFORE UPDATE ON event_payloads\n"
        "WHEN EXISTS (SELECT 1 FROM payload_volume)\nBEGIN\n"
        "  UPDATE payload__sizes SET id = NEW.id WHERE %s;\nEND"},
    {"payload_made_columns", "column", OTHER_COLUMNS,
        "%s\nBEFORE UPDATE ON event_payloads\nWHEN EXISTS (SELECT 1 FROM "
        "payload__protected WHERE payload_rowid = OLD.rowid)\n AND (%s)\n"
        "BEGIN\n  SELECT RAISE(ABORT, 'PinnedError: a pinned row cannot be "
        "changed; unpin it first with INSERT INTO payload_unpins("
        "payload_id, actor, reason)');\nEND"},
    {"payload_made_held_insert", "hold", WHILE_HELD("VALUES (0, '')", "c"),
        "%s\nBEFORE INSERT ON event_payloads\n"
        "WHEN EXISTS (SELECT 1 FROM event_payloads WHERE id = NEW.id)\n"
        "  OR NEW.rowid <> -1%s\nBEGIN\n" PROBE
        "  INSERT INTO payload__looking(id, rid) VALUES (NEW.id, "
        "NEW.rowid);\n" HELD_ERROR(OVERWRITTEN) IF_PROBED},
    /* A held row may be pinned and unpinned. If it is in the archive, it may also
    ** become evidence, which gives it a time and a kill switch. */
    {"payload_made_held_update", "hold",
        WHILE_HELD(OTHER_COLUMNS, "coalesce('\n  OR ' || c, '')"),
        "%s\nBEFORE UPDATE ON event_payloads\nWHEN NEW.rowid <> OLD.rowid\n"
        "  OR (NEW.id IS NOT OLD.id COLLATE BINARY AND OLD.id IS NOT NULL)\n"
        "  OR NEW.event_id IS NOT OLD.event_id COLLATE BINARY\n"
        "  OR NEW.agent_id IS NOT OLD.agent_id COLLATE BINARY\n"
        "  OR NEW.request_body IS NOT OLD.request_body COLLATE BINARY\n"
        "  OR NEW.response_body IS NOT OLD.response_body COLLATE BINARY\n"
        "  OR (NEW.purpose IS NOT OLD.purpose\n"
        "      AND NEW.purpose IS NOT 'evidence')\n"
        "  OR (NEW.created_at IS NOT OLD.created_at COLLATE BINARY\n"
        "      AND (OLD.purpose IS 'archive' AND NEW.purpose IS 'evidence')\n"
        "          IS NOT 1)\n"
        "  OR (NEW.kill_switch_event_id\n"
        "      IS NOT OLD.kill_switch_event_id COLLATE BINARY\n"
        "      AND OLD.kill_switch_event_id IS NOT NULL)%s\nBEGIN\n" HELD_ERROR(
            "this row, which cannot be changed") "\n   WHERE EXISTS (SELECT 1 "
                                                 "FROM payload__held"
                                                 " WHERE payload_rowid = "
                                                 "OLD.rowid);\nEND"},
    {"payload_made_held_take", "hold", WHILE_HELD("VALUES (0, '')", "c"),
        "%s\nBEFORE UPDATE ON event_payloads\n"
        "WHEN NEW.id IS NOT OLD.id COLLATE BINARY\n"
        "  OR NEW.rowid <> OLD.rowid%s\nBEGIN\n" HELD_ERROR(
            OVERWRITTEN) "\n   WHERE EXISTS (SELECT 1 FROM payload__held"
                         " WHERE (id = NEW.id AND NEW.id IS NOT OLD.id COLLATE "
                         "BINARY)\n"
                         "      OR (payload_rowid = NEW.rowid AND NEW.rowid <> "
                         "OLD.rowid));\nEND"},
    {"payload_made_held_keys", "hold", KEYS_HELD(""),
        "%s\nBEFORE INSERT ON event_payloads\nWHEN %s\nBEGIN\n" PROBE
            HELD_ERROR(OVERWRITTEN) IF_PROBED},
    {"payload_made_held_newkeys", "hold",
        KEYS_HELD(" AND payload_rowid <> OLD.rowid"),
        "%s\nBEFORE UPDATE ON event_payloads\nWHEN %s\nBEGIN\n" HELD_ERROR(
            OVERWRITTEN) ";\nEND"},
    {"payload_made_held_delete", "hold", WHILE_HELD("VALUES (0, '')", "c"),
        "%s\nBEFORE DELETE ON event_payloads\n"
        "WHEN EXISTS (SELECT 1 FROM payload__held "
        "WHERE payload_rowid = OLD.rowid)%s\nBEGIN\n" HELD_ERROR(
            "this row, which cannot be deleted") ";\nEND"},
};

/* A generated trigger that differs from the one that the table needs. */
typedef struct Gap {
  const Made *pMade;
  char *zWhat; /* the indexes or columns, or NULL for none */
  char *zText; /* the trigger from its name on, or NULL for none */
} Gap;

/* Computes the trigger that the table needs. */
static void readWanted(BxStmts *p, Gap *pOut, HoldGuard eGuard, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, pOut->pMade->zCondition, pErr);
  char *zCondition = 0;
  bxBind(pStmt, pErr, sqlite3_bind_parameter_count(pStmt) > 1 ? "ti" : "t",
      p->zDb, (i64)eGuard);
  if (bxRow(pStmt, pErr)) {
    pOut->zWhat = bxColumnCopy(pStmt, 0, pErr);
    zCondition = bxColumnCopy(pStmt, 1, pErr);
  }
  sqlite3_finalize(pStmt);
  if (zCondition == 0 || pErr->rc != SQLITE_OK) {
    sqlite3_free(zCondition);
    return;
  }
  pOut->zText =
      bxPrintf(pErr, pOut->pMade->zText, pOut->pMade->zName, zCondition);
  sqlite3_free(zCondition);
}

/* Whether the schema has exactly the wanted trigger, or correctly none. */
static int isMade(BxStmts *p, const Gap *pGap, BxErr *pErr) {
  return (int)bxAskOnce(p,
      "SELECT (SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' AND "
      "name = ?1) IS 'CREATE TRIGGER ' || ?2",
      pErr, "tt", pGap->pMade->zName, pGap->zText);
}

static void eachGap(BxStmts *p, HoldGuard eGuard,
    void (*xEach)(BxStmts *, const Gap *, void *), void *pArg, BxErr *pErr) {
  size_t i;
  for (i = 0; i < sizeof(aMade) / sizeof(aMade[0]); i++) {
    Gap gap = {&aMade[i], 0, 0};
    if (pErr->rc != SQLITE_OK) return;
    readWanted(p, &gap, eGuard, pErr);
    if (!isMade(p, &gap, pErr) && pErr->rc == SQLITE_OK) xEach(p, &gap, pArg);
    sqlite3_free(gap.zWhat);
    sqlite3_free(gap.zText);
  }
}

/* The texts contain names of the user, so they are not templates. */
static void makeOne(BxStmts *p, const Gap *pGap, void *pArg) {
  BxErr *pErr = (BxErr *)pArg;
  bxExecPlain(p->bx,
      bxPrintf(
          pErr, "DROP TRIGGER IF EXISTS \"%w\".%s", p->zDb, pGap->pMade->zName),
      pErr);
  if (pGap->zText == 0) return;
  bxExecPlain(p->bx,
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
  eachGap(p, GUARD_LATE, makeOne, pErr, pErr);
  bxPackMend(p, pErr);
}

void bxPayloadGuard(BxStmts *p, int bEarly, BxErr *pErr) {
  eachGap(p, bEarly ? GUARD_EARLY : GUARD_EXACT, makeOne, pErr, pErr);
}

int bxPayloadIsWhole(BxStmts *p, BxErr *pErr) {
  int nGap = 0;
  eachGap(p, GUARD_LATE, countGap, &nGap, pErr);
  return nGap == 0 && bxPackIsWhole(p, pErr) && pErr->rc == SQLITE_OK;
}

void bxPayloadCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt = hindrances(p, &err);
  while (bxRow(pStmt, &err)) {
    bxProblem(pOut, "event_payloads", "cannot be guarded: %s",
        bxColumnText(pStmt, 0, &err));
  }
  sqlite3_finalize(pStmt);
  eachGap(p, GUARD_LATE, tellOne, pOut, &err);
  if (!bxPackIsWhole(p, &err) && err.rc == SQLITE_OK) {
    bxProblem(pOut, "payload_rows",
        "view is missing or differs, or store_users does not name "
        "payload_bodies; run blackbox_install()");
  }
  bxUnchecked(pOut, "event_payloads", &err);
}
