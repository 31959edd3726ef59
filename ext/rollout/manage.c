/*
** manage.c: whole conversations: create, resume, archive, delete, fork,
** rebuild, and the clean-up of those that have expired.
**
** Create, archive and delete are one inner statement each, and the triggers in
** sql/rollout.sql do the rest. A fork, a clean-up and a rebuild are made here.
*/
#include "rollout.h"
#include "../core/log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define PERMANENT (-1)

/* Whether the hold f keeps an item. */
#define SHOWN_BY(id)                                                           \
  "f.kind = 'rollout' AND f.\"key\" IN (SELECT h.id"                           \
  " FROM main.rollout__segments AS s JOIN main.rollout__heads AS h"            \
  " ON h.no = s.rollout WHERE s.owner = " id " >> 32"                          \
  " AND " id " & 4294967295 BETWEEN s.first AND s.last)"
const BxRecords bxRolloutRecords[] = {
    {"rollouts", "main.rollout__heads", "rollout=id,", 0, "t.bytes",
        BX_HOLD_ON("rollout", "t.id"), 0, 0, 0, 0, 0, 0, 0},
    {"rollouts", "main.rollout__heads", "", "t.title", "0",
        BX_HOLD_ON("rollout", "t.id"), 0, 0, 0, 0, 0,
        "title = replace(title, ?1, ?2)", 0},
    {"rollout_items", "main.rollout__data", "",
        ROLLOUT_TEXT("t.payload") ", t.type, t.before, t.after",
        "coalesce(length(CAST(" ROLLOUT_TEXT(
            "t.payload") " AS BLOB)), 0)"
                         " + coalesce(length(t.before), 0) + "
                         "coalesce(length(t.after), 0)",
        SHOWN_BY("t.id"), 0, 0, 0, 0, 0,
        "changed = iif(instr(" ROLLOUT_TEXT(
            "payload") ", ?1), 1, changed),"
                       " payload = replace(" ROLLOUT_TEXT(
                           "payload") ", ?1, ?2),"
                                      " before = CAST(replace(CAST(before AS "
                                      "TEXT), ?1, ?2) AS BLOB),"
                                      " after = CAST(replace(CAST(after AS "
                                      "TEXT), ?1, ?2) AS BLOB),"
                                      " type = substr(replace(type, ?1, ?2), "
                                      "1, 100)",
        0},
    {"rollouts", "main.rollout__about", "",
        "t.source, t.cwd, t.originator, t.cli_version, t.model_provider,"
        " t.first_user_message, t.source_id, t.agent, t.branch, t.model",
        "0",
        "f.kind = 'rollout' AND f.\"key\" = (SELECT id FROM main.rollout__heads"
        " WHERE no = t.no)",
        0, 0, 0, 0, 0,
        "(source, cwd, originator, cli_version, model_provider,"
        " first_user_message, source_id, agent, branch, model) ="
        " (replace(source, ?1, ?2), replace(cwd, ?1, ?2),"
        " replace(originator, ?1, ?2), replace(cli_version, ?1, ?2),"
        " replace(model_provider, ?1, ?2), replace(first_user_message, ?1, ?2),"
        " replace(source_id, ?1, ?2), replace(agent, ?1, ?2),"
        " replace(branch, ?1, ?2), replace(model, ?1, ?2))",
        0},
    {"rollout_tool_calls", "main.rollout__texts", "",
        "t.call, t.tool, t.file, t.place", "0", SHOWN_BY("t.id"), 0, 0, 0, 0, 0,
        "(call, tool, file, place) = (replace(call, ?1, ?2),"
        " replace(tool, ?1, ?2), replace(file, ?1, ?2), replace(place, ?1, "
        "?2))",
        0},
    {"rollout_drops", "main.rollout_drops", "", "t.item_type, t.payload_type",
        "t.bytes", 0, 0, 0, 0, 0, "t.no || t.item_type || t.payload_type", 0,
        0},
    {"rollout_sources", "main.rollout_sources", "rollout=id,",
        "t.path, t.error, t.cwd", "0", 0, 0, 0, 0, 0, "t.path", 0, 0},
    {"rollout_calls", "main.rollout_calls", "", "t.call, t.model", "0",
        SHOWN_BY("t.id"), 0, 0, 0, 0, 0,
        "(call, model) = (replace(call, ?1, ?2), replace(model, ?1, ?2))", 0},
    {0},
};

#define OF_SESSION                                                             \
  "SELECT id FROM main.rollout__heads WHERE id = lower(?1) OR no IN (SELECT "  \
  "no FROM main.rollout__about WHERE source_id = ?1)"
const char bxRolloutSession[] = OF_SESSION;

/* An item is of the oldest conversation that shows it. */
#define OF_ITEMS(heads)                                                        \
  "t.no IN (SELECT d.id FROM main.rollout__heads AS h JOIN"                    \
  " main.rollout__segments AS s ON s.rollout = h.no JOIN main.rollout__data"   \
  " AS d ON d.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) +"      \
  " s.last WHERE h.id " heads "),"
#define ITEM_TEXTS                                                             \
  .zName = "rollout_items", .zKind = "rollout",                                \
  .zFrom = "(SELECT id AS no, " ROLLOUT_TEXT(                                  \
      "payload") " AS payload, before, after FROM"                             \
                 " main.rollout__data)",                                       \
  .zKey = "(SELECT h.id FROM main.rollout__segments AS s JOIN"                 \
          " main.rollout__heads AS h ON h.no = s.rollout WHERE s.owner ="      \
          " t.no >> 32 AND t.no & 4294967295 BETWEEN s.first AND s.last"       \
          " ORDER BY h.no LIMIT 1)",                                           \
  .zRow = "t.no & 4294967295", .zRowIs = "sequence",                           \
  .zKinds = "rollout=" OF_ITEMS("= lower(?1)") "session=" OF_ITEMS(            \
      "IN (" OF_SESSION ")"),                                                  \
  .zHolds = SHOWN_BY("t.no")
#define OF_HEADS "rollout=t.id = lower(?1),session=t.id IN (" OF_SESSION "),"
const BxTexts bxRolloutTexts[] = {
    {ITEM_TEXTS, .zColumns = "payload",
        .zMask = "UPDATE main.rollout__data SET payload = ?2, changed = 1"
                 " WHERE id = ?1"},
    {ITEM_TEXTS, .zColumns = "before,after",
        .zMask = "UPDATE main.rollout__data SET before = ?2, after = ?3"
                 " WHERE id = ?1"},
    {.zName = "rollouts",
        .zFrom = "(SELECT no, id, title FROM main.rollout__heads)",
        .zKind = "rollout",
        .zKey = "t.id",
        .zRow = "NULL",
        .zColumns = "title",
        .zKinds = OF_HEADS,
        .zHolds = BX_HOLD_ON("rollout", "t.id"),
        .zMask = "UPDATE main.rollout__heads SET title = ?2 WHERE no = ?1"},
    {.zName = "rollouts",
        .zFrom = "(SELECT a.*, h.id AS id FROM main.rollout__about AS a"
                 " JOIN main.rollout__heads AS h USING (no))",
        .zKind = "rollout",
        .zKey = "t.id",
        .zRow = "NULL",
        .zColumns = "source,cwd,originator,cli_version,model_provider,"
                    "first_user_message,source_id,agent,branch,model",
        .zKinds = OF_HEADS,
        .zHolds = BX_HOLD_ON("rollout", "t.id"),
        .zMask = "UPDATE main.rollout__about SET (source, cwd, originator,"
                 " cli_version, model_provider, first_user_message, source_id,"
                 " agent, branch, model) = (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9,"
                 " ?10, ?11) WHERE no = ?1"},
    {0},
};

/* Reads a number of days, or 'permanent'. Returns the time of the expiry. */
static i64 readTtl(sqlite3_value *pVal, i64 iNow, BxErr *pErr) {
  int eType = sqlite3_value_type(pVal);
  const char *z = "";
  assert(iNow >= 0 && iNow <= BX_MAX_TIME);
  if (pErr->rc != SQLITE_OK) return 0;
  if (eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) {
    double rDays = sqlite3_value_double(pVal);
    double rMost = (double)(BX_MAX_TIME - iNow) / BX_MS_PER_DAY;
    if (rDays >= 0.0 && rDays <= rMost) {
      return iNow + (i64)(rDays * BX_MS_PER_DAY);
    }
  } else if (eType == SQLITE_TEXT) {
    z = (const char *)sqlite3_value_text(pVal);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  if (z != 0 && strcmp(z, "permanent") == 0) return PERMANENT;
  bxRefuse(pErr,
      "ValidationError: Invalid TTL: %s, it must be a number of days from 0, "
      "or 'permanent'; omit it to use the setting rollout.ttl_days",
      pVal);
  return 0;
}

static const char zCreate[] =
    "INSERT INTO main.rollouts(id, created, expires_at, session_meta) "
    "VALUES (?1, ?2, ?3, ?4)";

static const char zMetaId[] =
    "SELECT CASE WHEN " BX_JSON_VALID("?1") " THEN ?1 ->> '$.id' END";

/* A session_meta with instructions, to sqlite3_free(): the one that is given, or a new
** one. The view refuses what is no object. */
static char *instruct(
    BxStmts *p, const char *zMeta, const char *zInstructions, BxErr *pErr) {
  static const char zSql[] =
      "SELECT CASE WHEN ?1 IS NULL THEN json_object('id', NULL, 'timestamp', "
      "NULL, 'cwd', '', 'originator', 'blackbox', 'cli_version', '1.0.0', "
      "'instructions', ?2) WHEN NOT " BX_JSON_VALID(
          "?1") " THEN ?1 "
                "WHEN ?1 ->> '$.instructions' IS NULL "
                "THEN json_set(?1, '$.instructions', ?2) "
                "WHEN ?1 ->> '$.instructions' = ?2 THEN ?1 END";
  char *z = bxQueryText(p, zSql, pErr, "tt", zMeta, zInstructions);
  if (z == 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "InvalidSessionMetaError: Invalid session meta: it has other "
        "instructions than the argument; give them once");
  }
  return z;
}

/* The id of a session_meta, or a new one. */
static void findId(BxStmts *p, const char *zMeta, char zId[37], BxErr *pErr) {
  sqlite3_stmt *pStmt;
  bxUuid(zId);
  if (zMeta == 0) return;
  pStmt = bxStmt(p, zMetaId, pErr);
  bxBind(pStmt, pErr, "t", zMeta);
  if (bxStep(pStmt, pErr) && sqlite3_column_type(pStmt, 0) != SQLITE_NULL) {
    bxRolloutId(sqlite3_column_value(pStmt, 0), zId, pErr);
  }
  bxReset(pStmt, pErr);
}

void bxRolloutCreate(BxCall *p) {
  char zId[37] = "";
  RolloutHead head;
  sqlite3_value *pTtl = bxArg(p, 2);
  const char *zInstructions, *zMeta;
  char *zOwned = 0, *zMasked;
  sqlite3_stmt *pStmt;
  BxStmts *pHome;
  i64 iNow, iExpire = 0, n;
  if (bxArg(p, 0)) bxRolloutId(p->aArg[0], zId, &p->err);
  iNow = bxTime(bxArg(p, 4), "now", &p->err);
  if (pTtl != 0) iExpire = readTtl(pTtl, iNow, &p->err);
  zInstructions =
      bxText(bxArg(p, 1), "instructions", ROLLOUT_MAX_PAYLOAD, 1, &p->err);
  zMeta = bxText(bxArg(p, 3), "session_meta", ROLLOUT_MAX_PAYLOAD, 1, &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  if (bxArg(p, 0) == 0) findId(pHome, zMeta, zId, &p->err);
  if (bxRolloutFind(pHome, 1, zId, &head, &p->err)) {
    bxRolloutExists(zId, &p->err);
  }
  if (zInstructions != 0) {
    zMeta = zOwned = instruct(pHome, zMeta, zInstructions, &p->err);
  }
  n = zMeta != 0 ? (i64)strlen(zMeta) : 0;
  zMasked = bxRolloutMask(pHome, &zMeta, &n, &p->err);
  pStmt = bxStmt(pHome, zCreate, &p->err);
  bxBind(pStmt, &p->err, "tint", zId, iNow, zMeta);
  if (iExpire == PERMANENT) {
    bxBind(pStmt, &p->err, "--t", "permanent");
  } else if (pTtl != 0) {
    bxBind(pStmt, &p->err, "--i", iExpire);
  }
  bxStmtRun(pStmt, &p->err);
  bxRolloutCatchUp(pHome, 0, &p->err);
  bxRolloutMaskEnd(pHome, zMasked);
  sqlite3_free(zOwned);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  if (p->err.rc == SQLITE_OK) bxReturnText(p, sqlite3_mprintf("%s", zId));
}

void bxRolloutResume(BxCall *p) {
  char zId[37];
  RolloutHead head;
  BxStmts *pHome;
  i64 iNow;
  bxRolloutId(p->aArg[0], zId, &p->err);
  iNow = bxTime(bxArg(p, 1), "now", &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  bxRolloutOpen(pHome, 0, zId, iNow, &head, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxRolloutSetClosed(pHome, zId, 0, &p->err);
  }
  bxReturnInt(p, head.iLast);
}

/* Runs a statement with the id as its parameter; returns rows changed. */
static void changeOne(BxCall *p, const char *zSql, char zId[37]) {
  BxStmts *pHome;
  bxRolloutId(p->aArg[0], zId, &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  bxStmtExec(pHome, zSql, &p->err, "t", zId);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  bxReturnInt(p, sqlite3_changes(p->bx->db));
}

void bxRolloutArchive(BxCall *p) {
  static const char zSql[] =
      "UPDATE main.rollout__heads SET status = 'archived' "
      "WHERE id = ?1 AND status <> 'archived'";
  char zId[37];
  changeOne(p, zSql, zId);
}

void bxRolloutDelete(BxCall *p) {
  static const char zSql[] = "DELETE FROM main.rollout__heads WHERE id = ?1";
  char zId[37];
  changeOne(p, zSql, zId);
  if (p->err.rc == SQLITE_OK) {
    bxRolloutSetClosed(bxRolloutSchema(p->bx, &p->err), zId, 0, &p->err);
  }
}

#define HELD_ROLLOUT                                                           \
  "EXISTS (SELECT 1 FROM main.retention__holds"                                \
  " WHERE kind = 'rollout' AND \"key\" = rollout__heads.id)"
static const char zNoteRule[] =
    "UPDATE main.rollout__act SET rule = 'rollout.' || ?1";
const BxDue bxRolloutDue[] = {
    {"rollout.expired", "rollout__heads", "id", "bytes", "expires_at", "1",
        "NOT " HELD_ROLLOUT, "CASE WHEN " HELD_ROLLOUT " THEN 'held' END",
        zNoteRule},
    {0, 0, 0, 0, 0, 0, 0, 0, 0},
};

/* Conversations that have expired, but not one that is being written. One that is packed,
** as one of its first items shows, takes about a fifth of its bytes. */
const BxFileLimit bxRolloutFileLimit = {.pDue = bxRolloutDue,
    .bDue = 1,
    .zOldest =
        "SELECT no, bytes / (1 + 4 * EXISTS (SELECT 1 FROM main.rollout__data"
        " WHERE id BETWEEN (no << 32) + 1 AND (no << 32) + 32 AND"
        " typeof(payload) = 'blob')), expires_at, " HELD_ROLLOUT
        " FROM (SELECT seen, " BX_CLOCK " AS now FROM main.retention__clock)"
        " CROSS JOIN main.rollout__heads WHERE now <= seen + 604800000"
        " AND expires_at >= ?1 AND expires_at < now AND updated < now - 60000"
        " ORDER BY expires_at LIMIT ?2 + 0",
    .zRemove = "DELETE FROM main.rollout__heads WHERE no = ?1"};

void bxRolloutCleanup(BxCall *p) {
  static const char zDelete[] =
      "DELETE FROM main.rollout__heads WHERE id IN (SELECT id FROM "
      "main.rollout__heads WHERE expires_at < ?1 AND NOT " HELD_ROLLOUT
      " ORDER BY expires_at, id LIMIT ?2)";
  static const char zHolds[] =
      "SELECT EXISTS (SELECT 1 FROM main.retention__in_force)";
  /* (The plan lists them, too, with what a sweep would remove.) */
  static const char zLeft[] =
      "SELECT n || ' expired conversations are held, and stay' FROM (SELECT"
      " count(*) AS n FROM main.rollout__heads WHERE expires_at < ?1 AND"
      " " HELD_ROLLOUT ") WHERE n > 0";
  BxStmts *pHome;
  char *zWhy = 0;
  i64 nGone, iNow;
  i64 nMax = bxLimit(p, 1, -1);
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  bxLock(pHome, &p->err);
  iNow = bxRuleTime(pHome, bxArg(p, 0), 1, &p->err);
  bxStmtExec(pHome, zNoteRule, &p->err, "t", "expired");
  bxStmtExec(pHome, zDelete, &p->err, "ii", iNow, nMax);
  nGone = sqlite3_changes(p->bx->db);
  bxStmtExec(pHome, zNoteRule, &p->err, "n");
  assert(nGone >= 0);
  if (bxQueryInt(pHome, zHolds, &p->err, "")) {
    zWhy = bxQueryText(pHome, zLeft, &p->err, "i", iNow);
  }
  if (zWhy != 0)
    bxLogRefusal(pHome, "rollout", "rollout.expired", zWhy, &p->err);
  sqlite3_free(zWhy);
  bxRolloutSearchCleanup(pHome, &p->err);
  /* (A row inside a transaction could not be rolled back.) */
  if (p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db)) {
    bxRolloutSweep(pHome, &p->err);
  }
  bxRolloutExplain(&p->err, "CleanupError: Cleanup failed: ");
  bxReturnInt(p, nGone);
}

/* clang-format off */
/* ?1 is the number of the parent, ?2 that of the fork, ?3 the turn before which it
** is cut, or NULL; ?4 the first item that it does not share, or NULL. */
static const char zForkHead[] =
    "INSERT INTO main.rollout__heads(id, created, expires_at)"
    " SELECT ?1, ?2, ?2 + 86400000 * value FROM main.blackbox_settings"
    " WHERE name = 'rollout.ttl_days'";
/* A session_meta that no file of its program has keeps the name that the lines have. */
#define FORK_OTHER(x)                                                          \
    "iif(d.payload ->> '$.blackbox.format' IS NULL, NULL, " x ")"
static const char zForkMeta[] =
    "INSERT INTO main.rollout__data(id, timestamp, type, payload, before,"
    "  after, quiet)"
    " SELECT f.no << 32, f.created, 'session_meta', json_set(d.payload,"
    "  '$.id', f.id, '$.timestamp', " ROLLOUT_ISO("f.created") ","
    "  '$.forked_from_id', h.id, " FORK_OTHER("'$.blackbox.id'") ","
    "  coalesce(d.payload ->> '$.blackbox.id', h.id)),"
    "  " FORK_OTHER("x''") ", " FORK_OTHER("x''") ", " FORK_OTHER("1") ""
    " FROM main.rollout__heads AS h"
    " JOIN main.rollout__items AS d ON d.id = h.no << 32"
    " JOIN main.rollout__heads AS f ON f.no = ?2 WHERE h.no = ?1";
static const char zForkCount[] =
    "UPDATE main.rollout__heads SET last_sequence = 0,"
    " (bytes, updated) = (SELECT length(CAST(payload AS BLOB)), timestamp"
    "  FROM main.rollout__data WHERE id = ?1 << 32) WHERE no = ?1";
/* The newest turn or rollback before an item says the number of the next turn. */
#define FORK_MARK(sequence)                                                    \
    " FROM main.rollout__segments AS s CROSS JOIN main.rollout__marks AS t"    \
    "  ON t.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32)"          \
    "   + min(s.last, " sequence ") AND t.kind IN ('turn', 'rollback')"        \
    " WHERE s.rollout = ?1 AND s.first <= " sequence                           \
    " ORDER BY s.first DESC, t.id DESC LIMIT 1"
static const char zForkTurn[] =
    "SELECT CASE kind WHEN 'turn' THEN number + 1 ELSE (SELECT t.number"
    FORK_MARK("k.number") ") END FROM (SELECT t.kind, t.number"
    FORK_MARK("?2 - 1") ") AS k";
/* "cut" is the first sequence that the fork does not share. */
static const char zForkCut[] =
    "UPDATE main.rollout__heads SET (title, named, last_sequence, turns,"
    "  user_sequence, whole) = (SELECT p.title, p.named, max(p.cut - 1, 0),"
    "   p.turn, CASE WHEN p.user_sequence < p.cut THEN p.user_sequence END,"
    "   p.whole"
    "  FROM (SELECT h.title, h.named, h.user_sequence, h.whole,"
    "    coalesce(?3, h.turns) AS turn,"
    "    coalesce(?4, (SELECT t.id & 4294967295"
    "     FROM main.rollout__segments AS s"
    "     CROSS JOIN main.rollout__marks AS t"
    "      ON t.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last"
    "      AND t.number = ?3 AND t.kind = 'turn'"
    "     WHERE s.rollout = h.no AND ?3 < h.turns"
    "     ORDER BY s.first DESC, t.id DESC LIMIT 1), h.last_sequence + 1) AS cut"
    "   FROM main.rollout__heads AS h WHERE h.no = ?1) AS p)"
    " WHERE no = ?2";
static const char zForkOwn[] =
    "UPDATE main.rollout__segments SET last = 0 WHERE rollout = ?1 AND first = 0";
static const char zForkShare[] =
    "INSERT INTO main.rollout__segments(rollout, first, owner, last)"
    " SELECT f.no, max(s.first, 1), s.owner, min(s.last, f.last_sequence)"
    " FROM main.rollout__heads AS f JOIN main.rollout__segments AS s"
    "  ON s.rollout = ?1 WHERE f.no = ?2"
    "  AND max(s.first, 1) <= min(s.last, f.last_sequence)";
static const char zForkRest[] =
    "INSERT INTO main.rollout__segments(rollout, first, owner, last)"
    " SELECT no, last_sequence + 1, no, 4294967295 FROM main.rollout__heads"
    " WHERE no = ?1";
static const char zForkAbout[] =
    "UPDATE main.rollout__about SET (cwd, model, branch,"
    "  prompt_id, first_user_message) ="
    " (SELECT a.cwd,"
    "   a.model, a.branch, CASE WHEN a.prompt_id & 4294967295 <= f.last_sequence"
    "    THEN a.prompt_id END, CASE WHEN a.prompt_id & 4294967295 <="
    "    f.last_sequence THEN a.first_user_message END"
    "  FROM main.rollout__about AS a, main.rollout__heads AS f"
    "  WHERE a.no = ?1 AND f.no = ?2) WHERE no = ?2";
/* clang-format on */

/* Makes a fork that was checked. iTurn is -1 for all turns, and iItem for all items. */
static void makeFork(BxStmts *p, i64 no, const char *zNew, i64 iTurn, i64 iItem,
    i64 iNow, BxErr *pErr) {
  RolloutHead head;
  assert(no > 0 && iTurn >= -1 && iItem >= -1);
  if (iItem >= 0) {
    iTurn = bxQueryInt(p, zForkTurn, pErr, "ii", no, iItem + 1);
  }
  bxStmtExec(p, zForkHead, pErr, "ti", zNew, iNow);
  bxRolloutFind(p, 0, zNew, &head, pErr);
  bxStmtExec(p, zForkMeta, pErr, "ii", no, head.no);
  bxStmtExec(p, zForkCount, pErr, "i", head.no);
  bxRolloutPutAbout(p, head.no, pErr);
  bxStmtExec(p, zForkCut, pErr,
      iTurn < 0   ? "ii"
      : iItem < 0 ? "iii"
                  : "iiii",
      no, head.no, iTurn, iItem + 1);
  bxStmtExec(p, zForkOwn, pErr, "i", head.no);
  bxStmtExec(p, zForkShare, pErr, "ii", no, head.no);
  bxStmtExec(p, zForkRest, pErr, "i", head.no);
  bxStmtExec(p, zForkAbout, pErr, "ii", no, head.no);
}

/* Checks what can be wrong with a fork. Returns the number of the parent, or 0 on
** error. */
static i64 checkFork(BxStmts *p, const char *zId, const char *zNew, i64 iTurn,
    i64 iItem, i64 iNow, BxErr *pErr) {
  /* clang-format off */
  static const char zSql[] =
      "SELECT " BX_JSON_VALID("d.payload")
      " FROM main.rollout__heads AS h"
      " JOIN main.rollout__items AS d ON d.id = h.no << 32 WHERE h.id = ?1";
  /* clang-format on */
  RolloutHead head, other;
  RolloutDerive told;
  sqlite3_stmt *pStmt;
  i64 nTurn;
  bxRolloutOpen(p, 1, zId, iNow, &head, pErr);
  memset(&told, 0, sizeof(told));
  bxRolloutDerivePending(&told, p, &head, pErr);
  nTurn = told.nTurn;
  bxRolloutDeriveEnd(&told);
  pStmt = bxStmt(p, zSql, pErr);
  bxBind(pStmt, pErr, "t", zId);
  if (bxStep(pStmt, pErr)) {
    if (iTurn > nTurn) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "InvalidTurnError: Invalid turn: %lld; %s has %lld turns; use 0 to "
          "%lld, or omit it to share everything",
          iTurn, zId, nTurn, nTurn);
    }
    if (iItem > head.iLast) {
      bxFail(pErr, SQLITE_CONSTRAINT,
          "SequenceError: Invalid sequence: %lld; the last item of %s is %lld; "
          "omit it to share everything",
          iItem, zId, head.iLast);
    }
    if (!sqlite3_column_int(pStmt, 0)) {
      bxFail(pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedRolloutError: Corrupted rollout: the payload of item 0 of "
          "%s is not JSON; UPDATE rollouts SET session_meta to repair it",
          zId);
    }
  } else if (pErr->rc == SQLITE_OK) {
    bxRolloutMissing(zId, pErr);
  }
  bxReset(pStmt, pErr);
  if (bxRolloutFind(p, 0, zNew, &other, pErr)) bxRolloutExists(zNew, pErr);
  bxRolloutCatchUp(p, &head, pErr);
  return pErr->rc == SQLITE_OK ? head.no : 0;
}

void bxRolloutFork(BxCall *p) {
  char zId[37], zNew[37];
  BxStmts *pHome;
  i64 iNow, iTurn = -1, iItem = -1, no;
  bxRolloutId(p->aArg[0], zId, &p->err);
  if (bxArg(p, 1)) iTurn = bxInt(p->aArg[1], "turn", 0, 4294967295, &p->err);
  if (bxArg(p, 2)) {
    bxRolloutId(p->aArg[2], zNew, &p->err);
  } else {
    bxUuid(zNew);
  }
  iNow = bxTime(bxArg(p, 3), "now", &p->err);
  if (bxArg(p, 4)) iItem = bxInt(p->aArg[4], "item", 0, 4294967295, &p->err);
  if (iTurn >= 0 && iItem >= 0) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: give a turn or an item, not both; a fork is cut at "
        "one place");
  }
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  no = checkFork(pHome, zId, zNew, iTurn, iItem, iNow, &p->err);
  if (no > 0) makeFork(pHome, no, zNew, iTurn, iItem, iNow, &p->err);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  if (p->err.rc == SQLITE_OK) bxReturnText(p, sqlite3_mprintf("%s", zNew));
}

/* clang-format off */
/* Of conversation ?1. A title that a user gave is not in the items. */
#define OWN_KEYS "WHERE id BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295"
static const char zNoMarks[] = "DELETE FROM main.rollout__marks " OWN_KEYS;
static const char zNoCalls[] = "DELETE FROM main.rollout_calls " OWN_KEYS;
static const char zNoSums[] = "DELETE FROM main.rollout__sums WHERE no = ?1";
static const char zKeepNumbers[] =
    "UPDATE main.rollout__act SET texts = max(texts, coalesce((SELECT max(n)"
    " FROM main.rollout__texts), 0))";
static const char zNoTexts[] = "DELETE FROM main.rollout__texts " OWN_KEYS;
static const char zRecount[] =
    "UPDATE main.rollout__heads SET behind = NULL, turns = ?2,"
    " user_sequence = nullif(?3, -1), last_sequence ="
    " coalesce((SELECT max(d.id & 4294967295) " ROLLOUT_FROM_ITEMS "), -1),"
    " (bytes, updated) = (SELECT coalesce(sum(length(CAST(payload AS BLOB))), 0),"
    "  coalesce(max(timestamp), 0) FROM main.rollout__items " OWN_KEYS ")"
    " WHERE no = ?1";
/* A fork keeps the cwd and the model of its parent, and a damaged session_meta cannot
** say a cwd again. */
static const char zNewAbout[] =
    "INSERT INTO main.rollout__about(no) SELECT no FROM main.rollout__heads"
    " WHERE no = ?1 AND last_sequence >= 0 ON CONFLICT (no) DO UPDATE"
    " SET prompt_id = NULL, first_user_message = NULL, format = NULL,"
    "  cwd = iif(forked_from IS NULL AND (SELECT json_valid(payload)"
    "   FROM main.rollout__items WHERE id = ?1 << 32), NULL, cwd),"
    "  model = iif(forked_from IS NULL, NULL, model)";
/* clang-format on */

void bxRolloutRebuildOne(BxStmts *p, i64 no, BxErr *pErr) {
  static const RolloutHead none = {0, -1, 0, 0, -1, 0, -1, 0, 0};
  RolloutDerive tale;
  assert(no > 0);
  memset(&tale, 0, sizeof(tale));
  tale.bTexts = 1;
  bxRolloutDeriveBegin(&tale, p, &none, pErr);
  bxRolloutDeriveStored(&tale, no, 1, ROLLOUT_LAST, pErr);
  tale.no = no;
  bxStmtExec(p, zNoMarks, pErr, "i", no);
  bxStmtExec(p, zNoCalls, pErr, "i", no);
  bxStmtExec(p, zNoSums, pErr, "i", no);
  bxStmtExec(p, zKeepNumbers, pErr, "");
  bxStmtExec(p, zNoTexts, pErr, "i", no);
  bxStmtExec(p, zRecount, pErr, "iii", no, tale.nTurn, tale.iUser);
  bxStmtExec(p, zNewAbout, pErr, "i", no);
  bxRolloutPutAbout(p, no, pErr);
  bxRolloutDeriveItem(&tale, pErr);
  bxRolloutTextsPut(&tale, pErr);
  bxRolloutDeriveEnd(&tale);
}

void bxRolloutRebuild(BxCall *p) {
  char zId[37] = "";
  RolloutHead head;
  sqlite3_stmt *pHead;
  BxStmts *pHome;
  i64 nDone;
  if (bxArg(p, 0)) bxRolloutId(p->aArg[0], zId, &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  bxLock(pHome, &p->err);
  if (zId[0] && !bxRolloutFind(pHome, 0, zId, &head, &p->err)) {
    bxRolloutMissing(zId, &p->err);
  }
  pHead = bxPrepare(pHome,
      "SELECT no FROM main.rollout__heads WHERE ?1 IS NULL OR id = ?1 "
      "ORDER BY no",
      &p->err);
  bxBind(pHead, &p->err, "t", zId[0] ? zId : 0);
  for (nDone = 0; bxStep(pHead, &p->err); nDone++) {
    bxRolloutRebuildOne(pHome, sqlite3_column_int64(pHead, 0), &p->err);
  }
  sqlite3_finalize(pHead);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  bxReturnInt(p, nDone);
}
