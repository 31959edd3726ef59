/*
** schema.c: the shadow tables of an evidence buffer named rec, and the rules
** on them, which hold without this module.
**
** Tables  rec_state    one row: the settings and the exact counters
**         rec_rows     one narrow row for each piece of evidence
**         rec_actions  the action's JSON, kept apart so that no list, count or
**         rec_shots    prune reads it; the screenshot likewise
**         rec_gone     rows removed here that the overflow still holds
**         rec_log      receipts: what was removed, by which rule, when
** Views   rec_put      INSERT stores a row (mask 0) or changes one
**         rec_do       INSERT runs a command: prune, hold, clear, back
**
** No JSON function stands in the schema: SQLite before 3.41 refuses them there
** when trusted_schema is off. The module checks and rewrites JSON in the
** statements that it runs.
**
** A command is one INSERT (approval one UPDATE of rec_actions), so it happens
** whole or not at all, also inside a transaction, where SQLite gives a virtual
** table nothing to undo it with.
**
** Invariants: counters equal sums over rec_rows, kept by its triggers, which
** also write the receipts (rec_state.rule says which rule is at work). A
** pinned row is not removed or changed. No evidence is overwritten by REPLACE,
** nor are the settings and counters.
** Suffixes of tables have no underscore, or SQLite would not protect them where
** it may (see bxMayClaim()).
**
** A rename drops views and triggers and makes them again. An index cannot be
** dropped then and keeps its name, so that name ends in random letters, and
** another buffer may take the name that became free.
*/
#include "evidence.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SCHEMA_VERSION 1

/* Milliseconds since 1970, and the bytes a row counts for. */
#define NOW                                                                    \
  "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
#define SIZE(r) "(" r "action_bytes + " r "screenshot_bytes + 100)"

static const char *const azTable[] = {
    "state", "rows", "actions", "shots", "gone", "log"};
#define N_TABLE ((int)(sizeof(azTable) / sizeof(azTable[0])))

static const char zTables[] =
    "CREATE TABLE main.@_state("
    " one INTEGER PRIMARY KEY CHECK (one = 1),"
    " version INTEGER NOT NULL,"
    " max_size_bytes INTEGER NOT NULL"
    "  CHECK (typeof(max_size_bytes) = 'integer'"
    "  AND max_size_bytes BETWEEN 1000 AND 1099511627776),"
    " prune_threshold REAL NOT NULL"
    "  CHECK (typeof(prune_threshold) = 'real'"
    "  AND prune_threshold BETWEEN 0.1 AND 1),"
    " retention_policy TEXT NOT NULL CHECK (retention_policy IN"
    "  ('keep-all', 'keep-last-n', 'confidence-based')),"
    " max_screenshots INTEGER NOT NULL"
    "  CHECK (typeof(max_screenshots) = 'integer'"
    "  AND max_screenshots BETWEEN 0 AND 1000000),"
    " overflow TEXT NOT NULL DEFAULT '',"
    " owner TEXT NOT NULL DEFAULT '',"
    " claim TEXT NOT NULL DEFAULT '',"
    " rule TEXT NOT NULL DEFAULT 'manual',"
    " last INTEGER NOT NULL DEFAULT 0,"
    " removed INTEGER NOT NULL DEFAULT 0,"
    " actions INTEGER NOT NULL DEFAULT 0,"
    " bytes INTEGER NOT NULL DEFAULT 0,"
    " screenshots INTEGER NOT NULL DEFAULT 0,"
    " free_screenshots INTEGER NOT NULL DEFAULT 0,"
    " pinned_bytes INTEGER NOT NULL DEFAULT 0,"
    " memory_bytes INTEGER NOT NULL DEFAULT 0,"
    " overflowed INTEGER NOT NULL DEFAULT 0);"

    "CREATE TABLE main.@_gone(id TEXT PRIMARY KEY, whole INTEGER NOT NULL)"
    " WITHOUT ROWID;"

    "CREATE TABLE main.@_log("
    " id INTEGER PRIMARY KEY, at INTEGER NOT NULL, rule TEXT NOT NULL,"
    " rows INTEGER NOT NULL, screenshots INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL, oldest INTEGER, newest INTEGER,"
    " minute INTEGER NOT NULL, UNIQUE (rule, minute));"

    "CREATE TABLE main.@_rows("
    " rid INTEGER PRIMARY KEY CHECK (rid > 0),"
    " id TEXT NOT NULL UNIQUE,"
    " timestamp INTEGER NOT NULL CHECK (typeof(timestamp) = 'integer'),"
    " action_bytes INTEGER NOT NULL,"
    " screenshot_bytes INTEGER NOT NULL,"
    " pruned INTEGER NOT NULL CHECK (pruned IN (0, 1)),"
    " pinned INTEGER NOT NULL CHECK (pinned IN (0, 1)),"
    " confidence REAL NOT NULL,"
    " place INTEGER NOT NULL CHECK (place IN (0, 1, 2)));"

    "CREATE TABLE main.@_actions(rid INTEGER PRIMARY KEY,"
    " approved INTEGER NOT NULL DEFAULT 0, action TEXT NOT NULL);"

    "CREATE TABLE main.@_shots(rid INTEGER PRIMARY KEY,"
    " screenshot BLOB NOT NULL);";

/* What depends on the tables: views, indexes, triggers. */
typedef struct Object {
  const char *zType, *zName, *zText; /* CREATE <type> main.@_<name> <text> */
} Object;

/*
** The rows to take, oldest first, until enough bytes are free: a walk along
** an index that stops as soon as it may. need: bytes to free, without which
** the walk does not start; key: SQL of the index' columns; next: SQL of the
** row behind w, found by a seek however many are alike.
*/
/* clang-format off */
#define FIRST(where, key)                                                      \
  "(SELECT n.rid FROM @_rows AS n WHERE " where                                \
  " AND n.rid <> NEW.rid ORDER BY " key " LIMIT 1)"
#define WALK(where, size, key, next, state)                                    \
  "(WITH RECURSIVE walk(rid, k, t, need) AS ("                                 \
  "SELECT r.rid, r.confidence, r.timestamp, s.need - (" size ") FROM "         \
  "(SELECT bytes + NEW.amount - max_size_bytes * (prune_threshold - 0.1) "     \
  "AS need FROM @_state" state ") AS s, @_rows AS r WHERE s.need > 0 "         \
  "AND r.rid = " FIRST(where, key) " "                                         \
  "UNION ALL SELECT r.rid, r.confidence, r.timestamp, w.need - (" size ") "    \
  "FROM walk AS w, @_rows AS r WHERE w.need > 0 AND r.rid = " next             \
  ") SELECT rid FROM walk)"

#define FREE "n.pinned = 0"
#define FREE_SHOT FREE " AND n.screenshot_bytes > 0"
#define BY_TIME "n.timestamp, n.rid"
#define BY_CONFIDENCE "n.confidence DESC, " BY_TIME
/* In steps: SQLite seeks by equal columns and one range. */
#define LATER(where)                                                           \
  "coalesce("                                                                  \
  FIRST(where " AND n.timestamp = w.t AND n.rid > w.rid", BY_TIME) ", "        \
  FIRST(where " AND n.timestamp > w.t", BY_TIME) ")"
#define LESS_SURE(where)                                                       \
  "coalesce(" LATER(where " AND n.confidence = w.k") ", "                      \
  FIRST(where " AND n.confidence < w.k", BY_CONFIDENCE) ")"
/* clang-format on */
#define RULE(sql) "UPDATE @_state SET rule = " sql "; "

/* Bytes of what a row of rec_put brings. */
#define NEW_ACTION "length(CAST(NEW.action AS BLOB))"
#define NEW_SHOT "coalesce(length(NEW.screenshot), 0)"
#define GROWTH                                                                 \
  "CASE WHEN NEW.mask = 0 THEN " NEW_ACTION " + " NEW_SHOT " + 100 "           \
  "ELSE (SELECT CASE WHEN NEW.mask & 2 THEN " NEW_ACTION " - action_bytes "    \
  "ELSE 0 END + CASE WHEN NEW.mask & 4 THEN " NEW_SHOT                         \
  " - screenshot_bytes ELSE 0 END FROM @_rows WHERE rid = NEW.rid) END"

/* Room for a row: prunes above the threshold, and insists on the size. */
#define MAKE_ROOM                                                              \
  "INSERT INTO @_do(verb, rule, amount, rid) SELECT 'prune', 'threshold', "    \
  "g.n, NEW.rid FROM @_state, (SELECT " GROWTH " AS n) AS g WHERE g.n > 0 "    \
  "AND bytes + g.n > max_size_bytes * prune_threshold; "                       \
  "SELECT CASE WHEN 2 * (g.n + CASE NEW.mask WHEN 0 THEN 0 ELSE "              \
  "(SELECT " SIZE(                                                             \
      "") " FROM @_rows WHERE rid = NEW.rid) END) > max_size_bytes "           \
          "THEN RAISE(ABORT, 'DataTooLargeError: this evidence is larger "     \
          "than half "                                                         \
          "of the buffer; raise max_size_bytes') WHEN bytes + g.n > "          \
          "max_size_bytes "                                                    \
          "THEN RAISE(ABORT, 'BufferFullError: pinned evidence leaves no "     \
          "room; "                                                             \
          "unpin rows (UPDATE ... SET pinned = 0) or raise max_size_bytes') "  \
          "END FROM "                                                          \
          "@_state, (SELECT " GROWTH " AS n) AS g WHERE g.n > 0; "

#define KEEP_LAST                                                              \
  "INSERT INTO @_do(verb, rule, amount) SELECT 'hold', 'max_screenshots', "    \
  "max_screenshots FROM @_state WHERE retention_policy = 'keep-last-n' "       \
  "AND free_screenshots > max_screenshots; "

#define PINNED                                                                 \
  "SELECT RAISE(ABORT, 'PinnedError: pinned evidence is not changed or "       \
  "removed; UPDATE ... SET pinned = 0 first'); "
#define EXISTS_ALREADY                                                         \
  "SELECT RAISE(ABORT, 'DuplicateError: there is a row with this id; use "     \
  "INSERT OR REPLACE or UPDATE on the buffer'); "

#define KEY                                                                    \
  "SELECT RAISE(ABORT, 'ValidationError: the id of evidence cannot change; "   \
  "insert a new row'); "

/* Adds (sign +) or takes (sign -) a row in the counters. */
/* clang-format off */
#define COUNT(sign, r)                                                         \
  "actions = actions " sign " 1, "                                             \
  "bytes = bytes " sign " " SIZE(r) ", "                                       \
  "screenshots = screenshots " sign " (" r "screenshot_bytes > 0), "           \
  "free_screenshots = free_screenshots " sign                                  \
  " (" r "screenshot_bytes > 0 AND " r "pinned = 0), "                         \
  "pinned_bytes = pinned_bytes " sign " " r "pinned * " SIZE(r) ", "           \
  "memory_bytes = memory_bytes " sign " (" r "place = 0) * " SIZE(r) ", "      \
  "overflowed = overflowed " sign " (" r "place = 1)"
/* clang-format on */

#define RECEIPT(rule, rows, shots, bytes)                                      \
  "INSERT INTO @_log(at, rule, rows, screenshots, bytes, oldest, newest, "     \
  "minute) SELECT n.t, " rule ", " rows ", " shots ", " bytes                  \
  ", OLD.timestamp, OLD.timestamp, n.t / 60000 FROM @_state, (SELECT " NOW     \
  " AS t) AS n WHERE true ON CONFLICT (rule, minute) DO UPDATE SET "           \
  "rows = rows + excluded.rows, "                                              \
  "screenshots = screenshots + excluded.screenshots, "                         \
  "bytes = bytes + excluded.bytes, "                                           \
  "oldest = min(oldest, excluded.oldest), "                                    \
  "newest = max(newest, excluded.newest); "

/* clang-format off */
static const Object aObject[] = {
    {"VIEW", "put",
        "AS SELECT rid, id, timestamp, '' AS action, x'' AS screenshot,"
        " pinned, confidence, 0 AS mask, place FROM @_rows"},
    {"VIEW", "do",
        "AS SELECT '' AS verb, '' AS rule, 0 AS amount, 0 AS rid,"
        " '' AS action, x'' AS screenshot FROM @_state"},
    {"INDEX", "time", "ON @_rows(timestamp)"},
    {"INDEX", "oldest", "ON @_rows(timestamp) WHERE pinned = 0"},
    {"INDEX", "oldestshot",
        "ON @_rows(timestamp) WHERE pinned = 0 AND screenshot_bytes > 0"},
    {"INDEX", "surestshot",
        "ON @_rows(confidence DESC, timestamp)"
        " WHERE pinned = 0 AND screenshot_bytes > 0"},
    {"INDEX", "memory", "ON @_rows(timestamp) WHERE place = 0"},

    /*--------------------------------------------------- guards ----*/
    {"TRIGGER", "rowsinsert",
        "BEFORE INSERT ON @_rows WHEN EXISTS (SELECT 1 FROM @_rows"
        " WHERE rid = NEW.rid OR id = NEW.id) BEGIN " EXISTS_ALREADY "END"},
    {"TRIGGER", "rowskey",
        "BEFORE UPDATE OF rid, id ON @_rows"
        " WHEN NEW.rid <> OLD.rid OR NEW.id <> OLD.id BEGIN " KEY "END"},
    {"TRIGGER", "rowsplace",
        "BEFORE UPDATE OF place ON @_rows"
        " WHEN NEW.place <> OLD.place AND 2 IN (NEW.place, OLD.place) BEGIN"
        " SELECT RAISE(ABORT, 'ValidationError: only a buffer in temp moves"
        " its evidence'); END"},
    {"TRIGGER", "stateinsert",
        "BEFORE INSERT ON @_state WHEN EXISTS (SELECT 1 FROM @_state) BEGIN"
        " SELECT RAISE(ABORT, 'ReadOnlyError: this row is the buffer; its"
        " settings change by INSERT INTO the buffer'); END"},
    {"TRIGGER", "statedelete",
        "BEFORE DELETE ON @_state BEGIN SELECT RAISE(ABORT,"
        " 'ReadOnlyError: this row is the buffer; DROP TABLE it instead');"
        " END"},
    {"TRIGGER", "rowspinned",
        "BEFORE UPDATE ON @_rows WHEN OLD.pinned = 1 AND (OLD.timestamp,"
        " OLD.action_bytes, OLD.screenshot_bytes, OLD.pruned) <>"
        " (NEW.timestamp, NEW.action_bytes, NEW.screenshot_bytes, NEW.pruned)"
        " BEGIN " PINNED "END"},
    {"TRIGGER", "rowsdelete",
        "BEFORE DELETE ON @_rows WHEN OLD.pinned = 1 BEGIN " PINNED "END"},
    {"TRIGGER", "actionsinsert",
        "BEFORE INSERT ON @_actions WHEN EXISTS (SELECT 1 FROM @_actions"
        " WHERE rid = NEW.rid) BEGIN " EXISTS_ALREADY "END"},
    {"TRIGGER", "actionsupdate",
        "BEFORE UPDATE ON @_actions WHEN EXISTS (SELECT 1 FROM @_rows"
        " WHERE rid = OLD.rid AND pinned = 1) BEGIN " PINNED "END"},
    {"TRIGGER", "actionskey",
        "BEFORE UPDATE OF rid ON @_actions WHEN NEW.rid <> OLD.rid BEGIN " KEY "END"},
    {"TRIGGER", "actionsdelete",
        "BEFORE DELETE ON @_actions WHEN EXISTS (SELECT 1 FROM @_rows"
        " WHERE rid = OLD.rid AND pinned = 1 AND place <> 1)"
        " BEGIN " PINNED "END"},
    {"TRIGGER", "shotsinsert",
        "BEFORE INSERT ON @_shots WHEN EXISTS (SELECT 1 FROM @_shots"
        " WHERE rid = NEW.rid) BEGIN " EXISTS_ALREADY "END"},
    {"TRIGGER", "shotsupdate",
        "BEFORE UPDATE ON @_shots WHEN EXISTS (SELECT 1 FROM @_rows"
        " WHERE rid = OLD.rid AND pinned = 1) BEGIN " PINNED "END"},
    {"TRIGGER", "shotskey",
        "BEFORE UPDATE OF rid ON @_shots WHEN NEW.rid <> OLD.rid BEGIN " KEY "END"},
    {"TRIGGER", "shotsdelete",
        "BEFORE DELETE ON @_shots WHEN EXISTS (SELECT 1 FROM @_rows"
        " WHERE rid = OLD.rid AND pinned = 1 AND place <> 1)"
        " BEGIN " PINNED "END"},

    /*------------------------------------ counters, data, receipts ----*/
    {"TRIGGER", "rowsinserted",
        "AFTER INSERT ON @_rows BEGIN UPDATE @_state SET"
        " last = max(last, NEW.rid), " COUNT("+", "NEW.") "; END"},
    {"TRIGGER", "rowsupdated",
        "AFTER UPDATE OF action_bytes, screenshot_bytes, pinned, place"
        " ON @_rows BEGIN UPDATE @_state SET " COUNT("-", "OLD.") ";"
        " UPDATE @_state SET " COUNT("+", "NEW.") "; END"},
    {"TRIGGER", "rowsnoshot",
        "AFTER UPDATE OF screenshot_bytes ON @_rows"
        " WHEN NEW.screenshot_bytes = 0 AND OLD.screenshot_bytes > 0 BEGIN"
        " DELETE FROM @_shots WHERE rid = OLD.rid;"
        " INSERT INTO @_gone SELECT OLD.id, 0 WHERE OLD.place = 1"
        " ON CONFLICT (id) DO NOTHING; "
        RECEIPT("rule", "0", "1", "OLD.screenshot_bytes") "END"},
    {"TRIGGER", "rowscut",
        "AFTER UPDATE OF action_bytes ON @_rows WHEN NEW.action_bytes <"
        " OLD.action_bytes AND NEW.pruned = 1 BEGIN "
        RECEIPT("'approval'", "0", "0",
            "OLD.action_bytes - NEW.action_bytes") "END"},
    {"TRIGGER", "rowsmoved",
        "AFTER UPDATE OF place ON @_rows"
        " WHEN NEW.place = 1 AND OLD.place <> 1 BEGIN"
        " DELETE FROM @_actions WHERE rid = OLD.rid;"
        " DELETE FROM @_shots WHERE rid = OLD.rid;"
        " DELETE FROM @_gone WHERE id = OLD.id; END"},
    {"TRIGGER", "rowsdeleted",
        "AFTER DELETE ON @_rows BEGIN UPDATE @_state SET " COUNT("-", "OLD.")
        ", removed = removed + (rule NOT IN ('manual', 'clear')); DELETE FROM @_actions WHERE rid = OLD.rid;"
        " DELETE FROM @_shots WHERE rid = OLD.rid;"
        " INSERT INTO @_gone SELECT OLD.id, 1 WHERE OLD.place = 1"
        " ON CONFLICT (id) DO UPDATE SET whole = 1; "
        RECEIPT("rule", "1", "OLD.screenshot_bytes > 0", SIZE("OLD.")) "END"},
    {"TRIGGER", "actionsupdated",
        "AFTER UPDATE ON @_actions BEGIN UPDATE @_rows SET action_bytes ="
        " length(CAST(NEW.action AS BLOB)), pruned = NEW.approved AND "
        EV_OBJECT("NEW.action") " WHERE rid = NEW.rid; END"},
    {"TRIGGER", "logcap",
        "AFTER INSERT ON @_log BEGIN DELETE FROM @_log"
        " WHERE id <= NEW.id - 10000; END"},

    /*------------------------------------------------- commands ----*/
    {"TRIGGER", "store",
        "INSTEAD OF INSERT ON @_put WHEN NEW.mask = 0 BEGIN " MAKE_ROOM
        "INSERT INTO @_rows(rid, id, timestamp, action_bytes,"
        " screenshot_bytes, pruned, pinned, confidence, place) VALUES ("
        "NEW.rid, NEW.id, NEW.timestamp, " NEW_ACTION ", " NEW_SHOT
        ", 0, NEW.pinned, NEW.confidence, NEW.place);"
        " INSERT INTO @_actions(rid, action) VALUES (NEW.rid, NEW.action);"
        " INSERT INTO @_shots(rid, screenshot) SELECT NEW.rid, NEW.screenshot"
        " WHERE NEW.screenshot IS NOT NULL; " KEEP_LAST "END"},
    {"TRIGGER", "change",
        "INSTEAD OF INSERT ON @_put WHEN NEW.mask > 0 BEGIN " MAKE_ROOM
        "UPDATE @_rows SET timestamp = NEW.timestamp"
        " WHERE rid = NEW.rid AND NEW.mask & 1;"
        /* should it have been lost */
        " INSERT INTO @_actions(rid, action) SELECT NEW.rid, ''"
        " WHERE NEW.mask & 2 AND NOT EXISTS"
        " (SELECT 1 FROM @_actions WHERE rid = NEW.rid);"
        " UPDATE @_actions SET action = NEW.action, approved = 0"
        " WHERE rid = NEW.rid AND NEW.mask & 2;"
        " UPDATE @_rows SET confidence = NEW.confidence"
        " WHERE rid = NEW.rid AND NEW.mask & 2;"
        " UPDATE @_rows SET screenshot_bytes = " NEW_SHOT
        " WHERE rid = NEW.rid AND NEW.mask & 4;"
        " DELETE FROM @_shots WHERE rid = NEW.rid AND NEW.mask & 4;"
        " INSERT INTO @_shots(rid, screenshot) SELECT NEW.rid, NEW.screenshot"
        " WHERE NEW.mask & 4 AND NEW.screenshot IS NOT NULL;"
        " UPDATE @_rows SET pinned = NEW.pinned"
        " WHERE rid = NEW.rid AND NEW.mask & 8; " KEEP_LAST "END"},
    /* amount: bytes that are about to come; rid: a row to leave alone */
    {"TRIGGER", "prune",
        "INSTEAD OF INSERT ON @_do WHEN NEW.verb = 'prune' BEGIN "
        RULE("NEW.rule")
        "UPDATE @_rows SET screenshot_bytes = 0 WHERE rid IN "
        WALK(FREE_SHOT, "r.screenshot_bytes", BY_TIME,
            LATER(FREE_SHOT),
            " WHERE retention_policy <> 'confidence-based'")
        "; UPDATE @_rows SET screenshot_bytes = 0 WHERE rid IN "
        WALK(FREE_SHOT, "r.screenshot_bytes", BY_CONFIDENCE,
            LESS_SURE(FREE_SHOT), " WHERE retention_policy = 'confidence-based'")
        "; DELETE FROM @_rows WHERE rid IN "
        WALK(FREE, SIZE("r."), BY_TIME, LATER(FREE), "")
        "; " RULE("'manual'") "END"},
    /* amount: screenshots that may stay */
    {"TRIGGER", "hold",
        "INSTEAD OF INSERT ON @_do WHEN NEW.verb = 'hold' BEGIN "
        RULE("NEW.rule")
        "UPDATE @_rows SET screenshot_bytes = 0 WHERE rid IN (SELECT rid FROM"
        " @_rows WHERE pinned = 0 AND screenshot_bytes > 0 ORDER BY timestamp,"
        " rid LIMIT (SELECT max(free_screenshots - NEW.amount, 0)"
        " FROM @_state)); " RULE("'manual'") "END"},
    {"TRIGGER", "clear",
        "INSTEAD OF INSERT ON @_do WHEN NEW.verb = 'clear' BEGIN "
        RULE("'clear'")
        "DELETE FROM @_rows WHERE pinned = 0;"
        " UPDATE @_state SET removed = 0; " RULE("'manual'") "END"},
    /* an overflowed row comes back, with what it had there */
    {"TRIGGER", "back",
        "INSTEAD OF INSERT ON @_do WHEN NEW.verb = 'back' BEGIN"
        " INSERT INTO @_actions(rid, action) VALUES (NEW.rid, NEW.action);"
        " INSERT INTO @_shots(rid, screenshot) SELECT NEW.rid, NEW.screenshot"
        " WHERE NEW.screenshot IS NOT NULL;"
        " INSERT INTO @_gone SELECT id, 1 FROM @_rows WHERE rid = NEW.rid"
        " ON CONFLICT (id) DO UPDATE SET whole = 1;"
        " UPDATE @_rows SET place = 0 WHERE rid = NEW.rid; END"},
    /* a smaller buffer is pruned at once */
    {"TRIGGER", "setting",
        "AFTER UPDATE OF max_size_bytes, prune_threshold, retention_policy,"
        " max_screenshots ON @_state BEGIN"
        " INSERT INTO @_do(verb, rule, amount, rid) SELECT 'prune',"
        " 'threshold', 0, 0 FROM @_state"
        " WHERE bytes > max_size_bytes * prune_threshold;"
        " SELECT RAISE(ABORT, 'BufferFullError: pinned evidence is larger"
        " than the new max_size_bytes; unpin rows first') FROM @_state"
        " WHERE bytes > max_size_bytes; " KEEP_LAST "END"},
};
/* clang-format on */
#define N_OBJECT ((int)(sizeof(aObject) / sizeof(aObject[0])))

static int isIndex(const Object *pObject) {
  return pObject->zType[0] == 'I';
}

/* Makes all objects, or (bAgain) those that a rename dropped. */
static void createObjects(EvBuffer *p, int bAgain, BxErr *pErr) {
  char zUuid[37];
  int i;
  bxUuid(zUuid);
  zUuid[8] = 0;
  for (i = 0; i < N_OBJECT && pErr->rc == SQLITE_OK; i++) {
    const Object *pObject = &aObject[i];
    char *zSql;
    if (bAgain && isIndex(pObject)) continue;
    zSql = sqlite3_mprintf("CREATE %s main.@_%s%s %s", pObject->zType,
        pObject->zName, isIndex(pObject) ? zUuid : "", pObject->zText);
    if (zSql == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    bxExec(&p->base.stmts, zSql, pErr);
    sqlite3_free(zSql);
  }
}

/* A table takes its indexes and triggers with it, but not the views. */
static void dropObjects(EvBuffer *p, const char *zOnly, BxErr *pErr) {
  int i;
  for (i = N_OBJECT - 1; i >= 0 && pErr->rc == SQLITE_OK; i--) {
    char *z;
    if (isIndex(&aObject[i])) continue;
    if (zOnly != 0 && strcmp(zOnly, aObject[i].zType) != 0) continue;
    z = sqlite3_mprintf(
        "DROP %s IF EXISTS main.@_%s", aObject[i].zType, aObject[i].zName);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    bxExec(&p->base.stmts, z, pErr);
    sqlite3_free(z);
  }
}

void evCreate(EvBuffer *p, BxErr *pErr) {
  bxNeedUtf8(&p->base.stmts, pErr);
  bxExec(&p->base.stmts, zTables, pErr);
  createObjects(p, 0, pErr);
}

void evDrop(EvBuffer *p, BxErr *pErr) {
  int i;
  bxStmtsFinalize(&p->base.stmts);
  dropObjects(p, "VIEW", pErr);
  for (i = 0; i < N_TABLE && pErr->rc == SQLITE_OK; i++) {
    char *z = sqlite3_mprintf("DROP TABLE IF EXISTS main.@_%s", azTable[i]);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    bxExec(&p->base.stmts, z, pErr);
    sqlite3_free(z);
  }
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

void evRename(EvBuffer *p, const char *zNew, BxErr *pErr) {
  int i;
  bxStmtsFinalize(&p->base.stmts);
  evExpectKnown(p, pErr);
  dropObjects(p, 0, pErr);
  for (i = 0; i < N_TABLE && pErr->rc == SQLITE_OK; i++) {
    const BxStmts *pOld = &p->base.stmts;
    char *z =
        sqlite3_mprintf("ALTER TABLE \"%w\".\"%w_%s\" RENAME TO \"%w_%s\"",
            pOld->zDb, pOld->zTable, azTable[i], zNew, azTable[i]);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    if (z != 0)
      bxFailDb(pErr, pOld->bx->db, sqlite3_exec(pOld->bx->db, z, 0, 0, 0));
    sqlite3_free(z);
  }
  takeName(p, zNew, pErr);
  createObjects(p, 1, pErr);
  evOverflowRename(p, pErr);
}

void evExpectTables(EvBuffer *p, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  if (pErr->rc != SQLITE_OK) return;
  sqlite3_finalize(
      bxPrepare(&p->base.stmts, "SELECT version FROM main.@_state", &err));
  if (err.rc == SQLITE_ERROR) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: table %s_state of buffer %s is missing; restore "
        "the file from a copy",
        p->base.stmts.zTable, p->base.stmts.zTable);
  } else if (err.rc != SQLITE_OK) {
    bxFail(pErr, err.rc, "%s", err.zMsg ? err.zMsg : "out of memory");
  }
  bxClear(&err);
}

void evExpectVersion(EvBuffer *p, i64 iVersion, BxErr *pErr) {
  p->bKnown = iVersion >= 1 && iVersion <= SCHEMA_VERSION;
  if (p->bKnown) return;
  bxFail(pErr, SQLITE_ERROR,
      "VersionError: buffer %s has version %lld, this module knows up to %d; "
      "load a newer blackbox",
      p->base.stmts.zTable, iVersion, SCHEMA_VERSION);
}

int evIsShadow(const char *zSuffix) {
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

/* Whether an object stands in the schema as it was made: an index by what it
** says, anything else also by its name. */
static void checkObject(
    EvBuffer *p, const Object *pObject, BxProblems *pOut, BxErr *pErr) {
  const BxStmts *pStmts = &p->base.stmts;
  sqlite3_stmt *pStmt = bxPrepare(&p->base.stmts,
      "SELECT max(substr(sql, -length(?3)) = ?3) FROM main.sqlite_schema "
      "WHERE type = lower(?1) AND (?1 = 'INDEX' OR name = ?2)",
      pErr);
  char *zWant = bxExpand(pObject->zText, pStmts->zDb, pStmts->zTable);
  char *zName = sqlite3_mprintf("%s_%s", pStmts->zTable, pObject->zName);
  if (zWant == 0 || zName == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  bxBind(pStmt, pErr, "ttt", pObject->zType, zName, zWant);
  if (bxRow(pStmt, pErr) && !sqlite3_column_int(pStmt, 0)) {
    bxProblem(pOut, zName, "%s is missing or not as the buffer makes it",
        pObject->zType);
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zWant);
  sqlite3_free(zName);
}

void evCheck(BxVtab *pVtab, BxProblems *pOut) {
  EvBuffer *p = (EvBuffer *)pVtab;
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  int i;
  evExpectKnown(p, &err);
  for (i = 0; i < N_OBJECT && err.rc == SQLITE_OK; i++) {
    checkObject(p, &aObject[i], pOut, &err);
  }
  pStmt = evPrepareTiers(p, CONTRADICTIONS,
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
