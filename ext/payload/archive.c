/*
** archive.c: the functions on event_payloads: clean-up, evidence from JSON, unpins and
** figures. The rules are in sql/payload.sql.
**
** A clean-up deletes row by row, so that a trigger or a foreign key of the user can
** refuse one row without stopping the others. All rows of one rule get one receipt:
** while payload__state.work is 'bulk', the triggers add up what goes (blackbox__open),
** and the receipt is written from these sums at the end.
*/
#include "payload.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SWEEP_LIMIT 10000 /* most rows of one payload_cleanup() */

/*------------------------------------------------------------ clean-up ----*/

/* What was removed; and what stays, as a trigger or a key of the user refuses it. */
typedef struct Removed {
  i64 nRow, nByte, nRefused;
  i64 nFile;  /* rows of nRow that went for the limit of the file */
  int bWhole; /* a refusal is an error */
} Removed;

/* Deletes the rows whose rowids the query has, one after the other. */
static void removeEach(
    BxStmts *p, const char *zRows, i64 i1, i64 i2, Removed *pOut, BxErr *pErr) {
  static const char zOne[] = "DELETE FROM main.event_payloads WHERE rowid = ?1";
  sqlite3_stmt *pStmt = bxPrepareMade(p,
      bxPrintf(pErr, "SELECT json_group_array(rowid) FROM (%s)", zRows), pErr);
  char *zAll = 0;
  assert(pErr->rc != SQLITE_OK || !pOut->bWhole);
  bxBind(pStmt, pErr, &"ii"[2 - sqlite3_bind_parameter_count(pStmt)], i1, i2);
  if (bxStep(pStmt, pErr)) zAll = bxColumnCopy(pStmt, 0, pErr);
  sqlite3_finalize(pStmt);
  if (zAll == 0) return;
  pStmt = bxJsonRows(p->bx, "SELECT value FROM json_each(?1)", zAll, pErr);
  while (bxStep(pStmt, pErr)) {
    BxErr err = {SQLITE_OK, 0};
    bxStmtExec(p, zOne, &err, "i", sqlite3_column_int64(pStmt, 0));
    if (bxErrMayIgnore(p, &err)) {
      pOut->nRefused++;
      bxErrClear(&err);
    }
    bxErrMove(pErr, &err);
  }
  sqlite3_finalize(pStmt);
}

/* Removes rows, with one receipt for all: zRows is the SQL of their rowids, in which
** ?1 and ?2 are two numbers. A trigger of the user may keep some. */
static void removeRows(BxStmts *p, const char *zRows, i64 i1, i64 i2,
    const char *zRule, const char *zActor, Removed *pOut, BxErr *pErr) {
#define PAYLOAD_BULK "domain = 'payload' AND rule = 'bulk' AND minute = 0"
  static const char zBegin[] =
      "UPDATE main.payload__state SET work = 'bulk' WHERE one = 1";
  static const char zReceipt[] =
      "INSERT INTO main.blackbox__log(at, domain, detail, actor, rows,"
      " bytes, oldest, newest, salt) SELECT at, iif(?1 GLOB 'payload.*', NULL,"
      " 'payload'), ?1, ?2, rows, bytes, at - oldest, newest - oldest, NULL"
      " FROM main.blackbox__open WHERE " PAYLOAD_BULK;
  static const char zRow[] =
      "SELECT rows FROM main.blackbox__open WHERE " PAYLOAD_BULK;
  static const char zByte[] =
      "SELECT bytes FROM main.blackbox__open WHERE " PAYLOAD_BULK;
  static const char zEnd[] =
      "DELETE FROM main.blackbox__open WHERE " PAYLOAD_BULK;
  static const char zOver[] =
      "UPDATE main.payload__state SET work = 0 WHERE one = 1";
  char *zSql = bxPrintf(
      pErr, "DELETE FROM main.event_payloads WHERE rowid IN (%s)", zRows);
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pStmt;
  assert(zRule != 0 && zActor != 0);
  bxStmtExec(p, zBegin, pErr, "");
  pStmt = bxPrepareMade(p, zSql, pErr);
  bxBind(pStmt, pErr, &"ii"[2 - sqlite3_bind_parameter_count(pStmt)], i1, i2);
  if (pErr->rc == SQLITE_OK) bxStep(pStmt, &err);
  sqlite3_finalize(pStmt);
  if (!pOut->bWhole && bxErrMayIgnore(p, &err)) {
    bxErrClear(&err);
    removeEach(p, zRows, i1, i2, pOut, pErr);
  }
  bxErrMove(pErr, &err);
  pOut->nRow += bxQueryInt(p, zRow, pErr, "");
  pOut->nByte += bxQueryInt(p, zByte, pErr, "");
  bxStmtExec(p, zReceipt, pErr, "tt", zRule, zActor);
  bxStmtExec(p, zEnd, pErr, "");
  bxStmtExec(p, zOver, pErr, "");
}

#define PAYLOAD_RULE                                                           \
  "UPDATE main.payload__state SET work = ifnull('payload.' || ?1, 0)"          \
  " WHERE one = 1"
const BxDue bxPayloadDue[] = {
    {"payload.age", "event_payloads", "id", "size_bytes", "created_ms",
        "purpose = 'archive' AND pinned IN (0, 1)",
        "pinned = 0 AND NOT " HELD_PAYLOAD("event_payloads"),
        "CASE WHEN pinned THEN 'pinned' WHEN " HELD_PAYLOAD(
            "event_payloads") " THEN 'held' END",
        PAYLOAD_RULE},
    {"payload.file_bytes", "event_payloads", "id", "size_bytes", "created_ms",
        "purpose = 'archive' AND pinned = 0",
        "NOT " HELD_PAYLOAD("event_payloads"),
        "CASE WHEN " HELD_PAYLOAD("event_payloads") " THEN 'held' END",
        PAYLOAD_RULE},
    {0, 0, 0, 0, 0, 0, 0, 0, 0},
};

/* A row takes its bodies, as the store keeps them, and about 400 bytes with its indexes. */
#define ROW_BYTES "400"
#define ROW_AT(order)                                                          \
  "(SELECT rowid FROM main.event_payloads INDEXED BY payload_by_age WHERE"     \
  " purpose = 'archive' AND pinned = 0 ORDER BY created_ms " order " LIMIT 1)"
#define ROW_TAKES                                                              \
  "size_bytes + " ROW_BYTES " - iif(typeof(request_body) = 'blob' OR"          \
  " typeof(response_body) = 'blob', CAST((1 - (SELECT share FROM"              \
  " main.payload__state)) * coalesce((SELECT sum(p.bytes) FROM" BX_PACKED_OF(  \
      "event_payloads") "), 0) AS INTEGER), 0)"
const BxFileLimit bxPayloadFileLimit = {.pDue = &bxPayloadDue[1],
    .zIndexed = "INDEXED BY payload_by_age",
    .zTakes = ROW_TAKES,
    .zHas = "SELECT CAST(max(bytes * share, bytes - packed * (1 - share)) AS"
            " INTEGER) + " ROW_BYTES " * max(1 + " ROW_AT("DESC") " - " ROW_AT(
                "") ", 0)"
                    " FROM main.payload__state",
    .zOldest = "SELECT rowid, " ROW_TAKES ", created_ms, " HELD_PAYLOAD(
        "event_payloads") " FROM main.event_payloads INDEXED BY payload_by_age"
                          " WHERE purpose = 'archive' AND pinned = 0 AND"
                          " created_ms >= ?1 ORDER BY created_ms LIMIT ?2 + 0",
    .zRemove = "DELETE FROM main.event_payloads WHERE rowid = ?1"};

/* The rows that may go, the oldest first. */
#define REMOVABLE_ROWS                                                         \
  " FROM main.event_payloads AS e INDEXED BY payload_by_age"                   \
  " WHERE purpose = 'archive' AND pinned = 0 AND NOT " HELD_PAYLOAD("e")
#define REMOVABLE "SELECT rowid" REMOVABLE_ROWS

/* Removes the oldest rows beyond payload.max_bytes. */
static void trimArchive(
    BxStmts *pHome, i64 nLimit, Removed *pOut, BxErr *pErr) {
  static const char zBeyond[] = "SELECT bytes - cap FROM main.payload__state";
  /* (A sum over a window: as many as needed, and no more.) */
  static const char zRows[] =
      "SELECT rowid FROM (SELECT rowid, sum(size_bytes) OVER (ORDER BY"
      " created_ms, size_bytes, rowid ROWS BETWEEN UNBOUNDED PRECEDING AND 1"
      " PRECEDING) AS freed" REMOVABLE_ROWS " AND created_ms > -9e15 ORDER BY"
      " created_ms, size_bytes, rowid LIMIT ?2) WHERE coalesce(freed, 0) < ?1";
  i64 nBeyond = nLimit > 0 ? bxQueryInt(pHome, zBeyond, pErr, "") : 0;
  assert(nLimit >= 0 || pErr->rc != SQLITE_OK);
  if (nBeyond <= 0) return;
  removeRows(pHome, zRows, nBeyond, nLimit, "payload.bytes", "", pOut, pErr);
}

/* The time that lies "days" before "now"; both may be given or not. What is given is
** checked before the clock is written. */
static i64 cutOff(BxCall *p, BxStmts *pHome) {
  sqlite3_value *pDays = bxArg(p, 0);
  double rDays;
  if (pDays == 0) {
    rDays = (double)bxSettingInt(pHome, "payload.retention_days", &p->err);
  } else {
    int eType = sqlite3_value_type(pDays);
    rDays = sqlite3_value_double(pDays);
    if ((eType != SQLITE_INTEGER && eType != SQLITE_FLOAT) || !(rDays >= 0)) {
      bxRefuse(&p->err,
          "ValidationError: days must be a number of 0 or more, got %s", pDays);
      return 0;
    }
  }
  if (rDays > 1e8) rDays = 1e8; /* before any date */
  return bxRuleTime(pHome, bxArg(p, 1), 1, &p->err) -
         (i64)(rDays * BX_MS_PER_DAY);
}

const BxRecords bxPayloadRecords[] = {
    {"event_payloads", "main.event_payloads",
        "agent=agent_id,event=event_id,kill_switch=kill_switch_event_id,"
        "evidence=id,",
        "store_text(t.request_body), store_text(t.response_body), t.event_id,"
        " t.agent_id, t.kill_switch_event_id, t.id, t.meta",
        "t.size_bytes",
        BX_HOLD_ON("agent", "t.agent_id") " OR " BX_HOLD_ON(
            "event", "t.event_id") " OR " BX_HOLD_ON("kill_switch",
            "t.kill_switch_event_id") " OR " BX_HOLD_ON("evidence", "t.id"),
        "t.id IN (SELECT id FROM main.payload__pins)",
        "INSERT INTO main.payload_unpins(payload_id, actor, reason) "
        "SELECT t.id, ?2, ?3 FROM main.event_payloads AS t",
        0, 0, 0, 0, 0},
    {"payload_queue", "payload_queue", "agent=agent_id,event=event_id,",
        "t.request_body, t.response_body, t.event_id, t.agent_id",
        "coalesce(length(CAST(t.request_body AS BLOB)), 0) + "
        "coalesce(length(CAST(t.response_body AS BLOB)), 0)",
        BX_HOLD_ON("agent", "t.agent_id") " OR " BX_HOLD_ON(
            "event", "t.event_id"),
        0, 0, 0, 0, 0, 0, 0},
    {"payload_verdicts", "main.payload_verdicts",
        "agent=agent_id,kill_switch=kill_switch_event_id,",
        "t.agent_id, t.tool, t.sentence, t.kill_switch_event_id",
        "length(t.sentence)", BX_HOLD_ON("agent", "t.agent_id"), 0, 0, 0, 0, 0,
        0, 0},
    {"payload_allows", "main.payload_allows", "agent=agent_id,",
        "t.agent_id, t.tool, t.actor, t.reason", "length(t.reason)",
        BX_HOLD_ON("agent", "t.agent_id"), 0, 0, 0, 0, 0, 0, 0},
    {"payload_agents", "main.payload_agents", "agent=agent_id,",
        "t.agent_id, t.stopped_by", "length(t.agent_id)",
        BX_HOLD_ON("agent", "t.agent_id"), 0,
        "INSERT INTO main.blackbox__log(domain, kind, subject, actor, reason, "
        "detail, agent_id) SELECT 'payload', 'start', agent_id, ?2, ?3, "
        "'{\"starts\":' || (starts + 1) || ',\"went_on\":' || went_on || '}', "
        "agent_id FROM (SELECT * FROM main.payload_agents WHERE stopped_at IS"
        " NOT NULL) AS t",
        0, 0, "t.agent_id", 0, 0},
    {"payload_agents", "main.payload_agents",
        "kill_switch=kill_switch_event_id,", "t.kill_switch_event_id",
        "length(t.kill_switch_event_id)", BX_HOLD_ON("agent", "t.agent_id"), 0,
        0, 0, 0, "t.agent_id", "kill_switch_event_id = NULL", 0},
    {0},
};

/* A row that is pinned is unpinned on record, and pinned again with the time and the
** reasons of its first pin. */
static i64 pinAnew(BxStmts *p, i64 iRow, i64 iPin, const char *zActor,
    const char *zReason, BxErr *pErr) {
  static const char zPin[] =
      "SELECT n FROM main.payload__pins WHERE id = (SELECT id FROM"
      " main.event_payloads WHERE rowid = ?1)";
  static const char zUnpin[] =
      "INSERT INTO main.payload_unpins(payload_id, actor, reason)"
      " SELECT id, ?2, ?3 FROM main.event_payloads WHERE rowid = ?1";
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, detail, event_id,"
      " agent_id, kill_switch_event_id) SELECT 'payload', 'pin', id,"
      " coalesce((SELECT detail FROM main.blackbox__log WHERE n = ?2),"
      "  '{\"pin\":' || ?2 || '}'), event_id, agent_id, kill_switch_event_id"
      " FROM main.event_payloads WHERE rowid = ?1";
  static const char zNew[] =
      "INSERT INTO main.payload__pins SELECT id, last_insert_rowid()"
      " FROM main.event_payloads WHERE rowid = ?1";
  static const char zMark[] =
      "UPDATE main.event_payloads SET pinned = 1 WHERE rowid = ?1";
  if (iPin > 0) {
    bxStmtExec(p, zLog, pErr, "ii", iRow, iPin);
    bxStmtExec(p, zNew, pErr, "i", iRow);
    bxStmtExec(p, zMark, pErr, "i", iRow);
  } else if ((iPin = bxQueryInt(p, zPin, pErr, "i", iRow)) > 0) {
    bxStmtExec(p, zUnpin, pErr, "itt", iRow, zActor, zReason);
  }
  return iPin;
}

const BxTexts bxPayloadTexts[] = {
    {.zName = "event_payloads",
        .zFrom = "(SELECT rowid AS no, id, agent_id, event_id,"
                 " kill_switch_event_id, store_text(request_body) AS"
                 " request_body, store_text(response_body) AS response_body,"
                 " meta FROM main.event_payloads)",
        .zKind = "evidence",
        .zKey = "t.id",
        .zRow = "NULL",
        .zColumns = "request_body,response_body,meta",
        .zKinds = "agent=t.agent_id = ?1,event=t.event_id = ?1,"
                  "kill_switch=t.kill_switch_event_id = ?1,evidence=t.id = ?1,",
        .zHolds = BX_HOLD_ON("agent", "t.agent_id") " OR " BX_HOLD_ON(
            "event", "t.event_id") " OR " BX_HOLD_ON("kill_switch",
            "t.kill_switch_event_id") " OR " BX_HOLD_ON("evidence", "t.id"),
        .zMask = "UPDATE main.event_payloads SET request_body = ?2,"
                 " response_body = ?3, meta = ?4 WHERE rowid = ?1",
        .xPin = pinAnew},
    {0},
};

/* Whether all of a call can be rolled back. A row inside a transaction cannot; the
** store then waits for the next clean-up. */
static int isWhole(const BxCall *p) {
  return p->pCtx != 0 || sqlite3_get_autocommit(p->bx->db);
}

/* The pages of the file, and of these the free ones. */
typedef struct Pages {
  i64 nAll, nFree;
} Pages;

static Pages countPages(BxStmts *p, BxErr *pErr) {
  Pages pages = {bxQueryNumber(p, "PRAGMA main.page_count", pErr),
      bxQueryNumber(p, "PRAGMA main.freelist_count", pErr)};
  return pages;
}

/* What a clean-up has done, as JSON. There is more only if it has done something. */
static void returnCleanup(BxCall *p, BxStmts *pHome, const Removed *pGone,
    Pages was, i64 iBefore, i64 nLimit) {
#define DUE(is)                                                                \
  " FROM main.event_payloads AS e INDEXED BY payload_by_age WHERE purpose ="   \
  " 'archive' AND pinned = " is " AND created_ms < ?1 "
  static const char zPinned[] = "SELECT count(*)" DUE("1");
  static const char zDue[] = "SELECT count(*) FROM (SELECT 1" DUE("0") "LIMIT"
                                                                       " ?2)";
  static const char zHeld[] =
      "SELECT count(*) FROM (SELECT e.rowid AS rowid" DUE(
          "0") "LIMIT ?2) AS e"
               " WHERE " HELD_PAYLOAD("e");
  static const char zMore[] =
      "SELECT EXISTS (SELECT 1" DUE("0") "AND NOT " HELD_PAYLOAD(
          "e") ") OR (bytes > cap AND EXISTS (SELECT 1 " REMOVABLE_ROWS "))"
               " FROM main.payload__state";
  static const char zDropped[] =
      "SELECT EXISTS (SELECT 1 FROM main.store_dropped WHERE text > 0)";
  static const char zBeyond[] = "SELECT bytes > cap FROM main.payload__state";
  Pages is = countPages(pHome, &p->err);
  i64 nSize = bxQueryNumber(pHome, "PRAGMA main.page_size", &p->err);
  i64 nFreed = was.nAll - was.nFree - (is.nAll - is.nFree);
  i64 nBack = was.nAll - is.nAll, nRefused = pGone->nRefused;
  i64 nPinned = bxQueryIntOnce(pHome, zPinned, &p->err, "i", iBefore);
  i64 nHeld =
      bxQueryIntOnce(pHome, zHeld, &p->err, "ii", iBefore, (i64)SWEEP_LIMIT);
  int bMore = nBack > 0 && is.nFree > 0;
  i64 nKept = nHeld; /* and all that a limit would take */
  if (bxQueryNumber(pHome, zBeyond, &p->err) ||
      bxFileLimitExcess(pHome, &p->err) > 0) {
    nKept = bxQueryIntOnce(
        pHome, zHeld, &p->err, "ii", (i64)BX_MAX_TIME, (i64)SWEEP_LIMIT);
  }
  if (nFreed < 0) nFreed = 0;
  if (nBack < 0) nBack = 0;
  if (pGone->nRow >= nLimit) {
    bMore |= bxQueryIntOnce(pHome, zMore, &p->err, "i", iBefore) != 0;
  } else { /* (a trigger may keep rows without an error) */
    nRefused =
        bxQueryIntOnce(pHome, zDue, &p->err, "ii", iBefore, (i64)SWEEP_LIMIT);
    nRefused = nRefused > nHeld ? nRefused - nHeld : 0;
  }
  if (pGone->nRow + nFreed > 0 && bxQueryNumber(pHome, zDropped, &p->err))
    bMore = 1;
  if (pGone->nFile > 0 && bxFileLimitExcess(pHome, &p->err) > 0) bMore = 1;
  if (p->err.rc != SQLITE_OK) return;
  bxReturnJson(
      p, sqlite3_mprintf(
             "{\"rows\":%lld,\"bytes\":%lld,\"freed\":%lld,\"givenBack\":%lld,"
             "\"left\":{\"pinned\":%lld,\"held\":%lld,\"refused\":%lld},"
             "\"more\":%s}",
             pGone->nRow, pGone->nByte, nFreed * nSize, nBack * nSize, nPinned,
             nKept, nRefused, bMore ? "true" : "false"));
}

/* Removes what is due for the limit of the file, of all domains. */
static void trimFile(BxCall *p, BxStmts *pHome, i64 nLimit, Removed *pOut) {
  static const char zByte[] =
      "SELECT sum(bytes) FROM main.blackbox__open WHERE minute > 0";
  i64 nByte = bxQueryInt(pHome, zByte, &p->err, "");
  assert(pOut->nRow >= 0);
  pOut->nFile = bxFileLimitTrim(pHome, nLimit, p->pCtx == 0, &p->err);
  if (pOut->nFile == 0) return;
  pOut->nRow += pOut->nFile;
  pOut->nByte += bxQueryInt(pHome, zByte, &p->err, "") - nByte;
}

void bxPayloadCleanup(BxCall *p) {
  static const char zRows[] =
      REMOVABLE " AND created_ms < ?1 ORDER BY created_ms LIMIT ?2";
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  Removed gone = {0, 0, 0, 0, 0};
  i64 iBefore, nLimit;
  Pages was;
  if (pHome == 0) return;
  nLimit = bxLimit(p, 2, SWEEP_LIMIT);
  bxLock(pHome, &p->err); /* before the first read, so that it waits */
  was = countPages(pHome, &p->err);
  iBefore = cutOff(p, pHome);
  bxLogBegin(pHome, &p->err);
  removeRows(pHome, zRows, iBefore, nLimit, "payload.age", "", &gone, &p->err);
  trimArchive(pHome, nLimit - gone.nRow, &gone, &p->err);
  if (isWhole(p)) bxPackSome(pHome, &p->err);
  if (isWhole(p)) bxPackSweep(pHome, 2 * nLimit, &p->err);
  if (isWhole(p)) trimFile(p, pHome, nLimit - gone.nRow, &gone);
  if (bxQueryNumber(pHome, "PRAGMA main.auto_vacuum", &p->err) == 2) {
    bxExec(pHome, "PRAGMA main.incremental_vacuum(1000)", &p->err);
  }
  returnCleanup(p, pHome, &gone, was, iBefore, nLimit);
}

void bxPayloadClearArchive(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  Removed gone = {0, 0, 0, 0, 1};
  if (pHome == 0) return;
  bxQueueFlush(pHome, &p->err);
  removeRows(
      pHome, REMOVABLE, 0, 0, "clear", "payload_clear_archive", &gone, &p->err);
  if (isWhole(p)) bxPackSweep(pHome, 2 * SWEEP_LIMIT, &p->err);
  bxReturnInt(p, gone.nRow);
}

/*------------------------------------------------------------ evidence ----*/

/* One row for each element of the array ?2, with its fields in either spelling.
** If a field occurs twice, the first one counts. A value that is not a string
** is taken as its JSON text. */
/* clang-format off */
#define ELEMENTS                                                               \
  "WITH member AS (SELECT e.key AS i, lower(replace(m.key, '_', '')) AS name," \
  "    m.type AS type, m.id AS place,"                                         \
  "    CASE WHEN m.key = 'timestamp' THEN m.value"                             \
  "      WHEN m.type = 'text' THEN " BX_JSON_TEXT("(e.value -> m.fullkey)")    \
  "      ELSE e.value -> m.fullkey END AS text"                                \
  "  FROM json_each(?2) AS e, json_each(e.value) AS m WHERE e.type = 'object'" \
  "    AND name IN ('eventid', 'agentid', 'requestbody', 'responsebody',"      \
  "      'timestamp') AND m.type <> 'null'),"                                  \
  " given AS (SELECT i, name, type, text, min(place) FROM member"              \
  "  GROUP BY i, name),"                                                       \
  " field AS (SELECT e.key AS i, e.type AS type,"                              \
  "    max(g.type) FILTER (WHERE name = 'eventid') AS event_type,"             \
  "    max(text) FILTER (WHERE name = 'eventid') AS event_id,"                 \
  "    max(g.type) FILTER (WHERE name = 'agentid') AS agent_type,"             \
  "    max(text) FILTER (WHERE name = 'agentid') AS agent_id,"                 \
  "    max(text) FILTER (WHERE name = 'requestbody') AS request,"              \
  "    max(text) FILTER (WHERE name = 'responsebody') AS response,"            \
  "    max(g.type) FILTER (WHERE name = 'timestamp') AS time_type,"            \
  "    max(text) FILTER (WHERE name = 'timestamp') AS time"                    \
  "  FROM json_each(?2) AS e LEFT JOIN given AS g ON g.i = e.key"              \
  "  GROUP BY e.key) "
/* clang-format on */

/* The first element that cannot be saved, and the reason. A time may be a real
** without a fraction. */
static const char zBadElement[] = ELEMENTS
    "SELECT i, CASE"
    "  WHEN type <> 'object' THEN 'is not an object'"
    "  WHEN NOT coalesce(event_type IN ('text', 'integer', 'real')"
    "    AND event_id <> '' AND instr(event_id, char(0)) = 0, 0)"
    "    THEN 'has no eventId that is text or a number, not empty and without "
    "NUL'"
    "  WHEN NOT coalesce(agent_type IN ('text', 'integer', 'real')"
    "    AND agent_id <> '' AND instr(agent_id, char(0)) = 0, 0)"
    "    THEN 'has no agentId that is text or a number, not empty and without "
    "NUL'"
    "  WHEN time_type IS NOT NULL AND NOT (time_type IN ('integer', 'real')"
    "    AND time = CAST(time AS INTEGER)"
    "    AND time BETWEEN 0 AND 253402300799999)"
    "    THEN 'has a timestamp that is not an integer of milliseconds since "
    "1970 UTC (0 to 253402300799999)' END AS why "
    "FROM field WHERE why IS NOT NULL ORDER BY i LIMIT 1";

static const char zElementTexts[] =
    ELEMENTS "SELECT i, event_id, agent_id, request, response FROM field";

/* clang-format off */
/* The elements that are not yet evidence of this kill switch. */
#define KEPT                                                                   \
  ", kept AS (SELECT *, strftime('%Y-%m-%dT%H:%M:%fZ',"                        \
  "  coalesce(CAST(time AS INTEGER), ?3) / 1000.0, 'unixepoch') AS created"    \
  "  FROM field) "
#define NEW_ELEMENTS                                                           \
  "FROM kept AS k "                                                            \
  "WHERE NOT EXISTS (SELECT 1 FROM main.event_payloads AS e"                   \
  "  WHERE +e.kill_switch_event_id = ?1 AND e.agent_id = k.agent_id"           \
  "    AND e.event_id = k.event_id"                                            \
  "    AND (k.time IS NULL OR e.created_at = k.created)"                       \
  "    AND store_text(e.request_body) IS k.request"                            \
  "    AND store_text(e.response_body) IS k.response)"
/* clang-format on */

static const char zFindElements[] =
    ELEMENTS KEPT "SELECT i, event_id, agent_id, request, response,"
                  " coalesce(CAST(time AS INTEGER), ?3) " NEW_ELEMENTS;

static const char zSaveElements[] = ELEMENTS KEPT
    "INSERT INTO main.event_payloads(id, purpose, kill_switch_event_id,"
    " event_id, agent_id, request_body, response_body, created_at) "
    "SELECT coalesce(?4 ->> ('$.' || i), " EVIDENCE_ID "), 'evidence', ?1,"
    " event_id, agent_id, request, response, created " NEW_ELEMENTS
    " ORDER BY i" EVIDENCE_THERE;

/* Checks that the JSON is an array. */
static void checkArray(BxStmts *pHome, sqlite3_value *pJson, BxErr *pErr) {
  static const char zSql[] =
      "SELECT CASE WHEN " BX_JSON_VALID("?1") " THEN json_type(?1) END";
  const char *zJson = bxText(pJson, "payloads", 0x7fffffff, 0, pErr);
  sqlite3_stmt *pStmt;
  const char *zType = 0;
  if (zJson == 0) return;
  pStmt = bxStmt(pHome, zSql, pErr);
  bxBind(pStmt, pErr, "v", pJson);
  if (bxStep(pStmt, pErr)) zType = bxColumnText(pStmt, 0, pErr);
  if (zType == 0 || strcmp(zType, "array") != 0) {
    char *zShown = bxShow(pJson);
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: payloads must be a JSON array of objects with "
        "eventId, agentId, requestBody, responseBody and timestamp, got %s",
        zType    ? zType
        : zShown ? zShown
                 : "?");
    sqlite3_free(zShown);
  }
  bxReset(pStmt, pErr);
}

static void failElement(BxErr *pErr, sqlite3_stmt *pStmt, const char *zWhy) {
  assert(zWhy != 0 || pErr->rc != SQLITE_OK);
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: element %d of payloads %s; nothing was saved",
      sqlite3_column_int(pStmt, 0), zWhy);
}

/* Half a surrogate pair cannot be written in UTF-8. */
static void checkTexts(BxStmts *pHome, sqlite3_value *pJson, BxErr *pErr) {
  const char *zJson = (const char *)sqlite3_value_text(pJson);
  sqlite3_stmt *pStmt;
  int i;
  if (zJson == 0 || (!strstr(zJson, "\\ud") && !strstr(zJson, "\\uD"))) return;
  pStmt = bxStmt(pHome, zElementTexts, pErr);
  bxBind(pStmt, pErr, "nv", pJson);
  while (bxStep(pStmt, pErr)) {
    for (i = 1; i < sqlite3_column_count(pStmt); i++) {
      const char *z = bxColumnText(pStmt, i, pErr);
      if (z == 0 ||
          bxIsUtf8((const unsigned char *)z, sqlite3_column_bytes(pStmt, i)))
        continue;
      failElement(pErr, pStmt,
          "has half a surrogate pair in a string, which UTF-8 cannot express");
    }
  }
  bxReset(pStmt, pErr);
}

static void checkElements(BxStmts *pHome, sqlite3_value *pJson, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zBadElement, pErr);
  bxBind(pStmt, pErr, "nv", pJson);
  if (bxStep(pStmt, pErr)) {
    failElement(pErr, pStmt, bxColumnText(pStmt, 1, pErr));
  }
  bxReset(pStmt, pErr);
  checkTexts(pHome, pJson, pErr);
}

/* The elements with what payload.secrets makes of their bodies, to sqlite3_free(); NULL:
** as they are. (If a field occurs twice, the first one counts.) */
static char *maskElements(BxStmts *pHome, sqlite3_value *pJson, BxErr *pErr) {
  static const char zEach[] =
      ELEMENTS "SELECT j.value, f.agent_id, f.request, f.response"
               " FROM json_each(?2) AS j JOIN field AS f ON f.i = j.key"
               " ORDER BY j.key";
  static const char *const azName[] = {"requestBody", "responseBody"};
  Masking *pMasking =
      &((Queue *)bxDomainData(pHome->bx, "payload")->p)->masking;
  MaskMode eMode = bxMaskMode(pHome, "payload.secrets", pErr);
  sqlite3_stmt *pRow;
  sqlite3_str *pOut;
  int i, nRow = 0;
  if (eMode == MASK_KEEP || pErr->rc != SQLITE_OK) return 0;
  pRow = bxStmt(pHome, zEach, pErr);
  pOut = sqlite3_str_new(pHome->bx->db);
  bxBind(pRow, pErr, "nv", pJson);
  while (bxStep(pRow, pErr)) {
    sqlite3_value *apWas[] = {
        sqlite3_column_value(pRow, 2), sqlite3_column_value(pRow, 3)};
    sqlite3_value *apVal[] = {apWas[0], apWas[1]};
    const char *z = bxColumnText(pRow, 0, pErr);
    sqlite3_stmt *pMasked = bxMask(pMasking, pHome, eMode == MASK_DROP,
        nRow > 0, bxColumnText(pRow, 1, pErr), apVal, 2, pErr);
    sqlite3_str_appendall(pOut, nRow++ > 0 ? ",{" : "[{");
    for (i = 0; i < 2 && pErr->rc == SQLITE_OK; i++) {
      if (apVal[i] == apWas[i]) continue;
      sqlite3_str_appendf(pOut, "\"%s\":", azName[i]);
      bxJsonAppend(pOut, (const char *)sqlite3_value_text(apVal[i]),
          sqlite3_value_bytes(apVal[i]));
      sqlite3_str_appendchar(pOut, 1, ',');
    }
    if (z != 0) sqlite3_str_appendall(pOut, z + 1);
    bxMaskEnd(pHome, pMasked);
  }
  bxReset(pRow, pErr);
  sqlite3_str_appendall(pOut, nRow > 0 ? "]" : "[]");
  return bxStrFinish(pOut, pErr);
}

void bxPayloadSaveEvidence(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  const char *zEvent =
      bxText(p->aArg[0], "kill_switch_event_id", 1024, 0, &p->err);
  sqlite3_stmt *pRows, *pSave;
  i64 iNow = bxNow(), nRow;
  char *zMasked;
  if (p->err.rc != SQLITE_OK) return;
  bxLogBegin(pHome, &p->err);
  checkArray(pHome, p->aArg[1], &p->err);
  checkElements(pHome, p->aArg[1], &p->err);
  zMasked = maskElements(pHome, p->aArg[1], &p->err);
  pRows = bxStmt(pHome, zFindElements, &p->err);
  pSave = bxStmt(pHome, zSaveElements, &p->err);
  bxBind(pRows, &p->err, "tvi", zEvent, p->aArg[1], iNow);
  bxBind(pSave, &p->err, "tvi", zEvent, p->aArg[1], iNow);
  if (zMasked != 0) {
    bxBind(pRows, &p->err, "-t", zMasked);
    bxBind(pSave, &p->err, "-t", zMasked);
  }
  nRow = bxPinsSave(
      pHome, zEvent, bxPinsLast(pHome, &p->err), pRows, pSave, &p->err);
  sqlite3_free(zMasked);
  bxReturnInt(p, nRow);
}

void bxPayloadUnpin(BxCall *p) {
  static const char zSql[] =
      "INSERT INTO main.payload_unpins(payload_id, actor, reason) "
      "VALUES(?1, ?2, ?3)";
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  const char *zId = bxText(p->aArg[0], "payload_id", 1024, 0, &p->err);
  const char *zActor = bxText(p->aArg[1], "actor", 1024, 0, &p->err);
  const char *zReason = bxText(p->aArg[2], "reason", 65536, 0, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxLogBegin(pHome, &p->err);
  bxStmtExec(pHome, zSql, &p->err, "ttt", zId, zActor, zReason);
  if (bxErrIs(&p->err, "NotFoundError")) {
    bxErrReword(&p->err,
        sqlite3_mprintf("NotFoundError: no row with the id %Q is pinned; SELECT"
                        " id FROM payload_pins lists those that are",
            zId));
  }
  if (bxPinsHold(pHome, zId, &p->err)) {
    bxFail(&p->err, SQLITE_ERROR,
        "MisuseError: a trigger on payload_unpins prevents row %s from being "
        "unpinned; drop the trigger",
        zId);
  }
  bxReturnInt(p, 1);
}

/*------------------------------------------------------------- figures ----*/

/* clang-format off */
/* The bytes of archive rows without a pin are kept; their number is that of all rows, of
** which SQLite counts the entries of the smallest index, without the others. So only
** what is pinned is read row by row, and of the others the older or the newer part: if
** the row in the middle has expired, those that have not are counted. Each part is counted
** up to COUNTED: what has expired is then at least so many. */
#define COUNTED "10000"
#define COUNT_OF(part)                                                         \
  "(SELECT count(*) FROM (" part " LIMIT " COUNTED " + 1))"
#define ROWS_AT(when)                                                          \
  "SELECT 1 FROM main.event_payloads INDEXED BY payload_by_age, cut"           \
  " WHERE purpose = 'archive' AND pinned = 0 AND created_ms " when
static const char zStats[] =
    "WITH cut(at) AS (SELECT ?1 - 86400000 * value FROM main.blackbox_settings"
    "   WHERE name = 'payload.retention_days'),"
    " kept AS MATERIALIZED (SELECT coalesce(sum(n), 0) AS n,"
    "   coalesce(sum(n) FILTER (WHERE purpose = 'evidence'), 0) AS evidence,"
    "   coalesce(sum(n) FILTER (WHERE pinned), 0) AS pinned,"
    "   coalesce(sum(b) FILTER (WHERE purpose = 'archive'), 0) AS archive_bytes,"
    "   coalesce(sum(b) FILTER (WHERE purpose = 'evidence'), 0) AS bytes"
    "   FROM (SELECT purpose, pinned, count(*) AS n, sum(size_bytes) AS b"
    "     FROM main.event_payloads INDEXED BY payload_by_age WHERE (purpose ="
    "     'archive' AND pinned = 1) OR purpose = 'evidence' GROUP BY purpose, pinned)),"
    " total(n) AS MATERIALIZED (SELECT count(*) FROM main.event_payloads),"
    " middle(old) AS MATERIALIZED (SELECT coalesce((SELECT created_ms FROM"
    "   main.event_payloads WHERE rowid >= (SELECT max(rowid) / 2 FROM"
    "   main.event_payloads) LIMIT 1) < at, 0) FROM cut),"
    " part(old, n) AS MATERIALIZED (SELECT old, iif(old, " COUNT_OF(
      ROWS_AT("IS NULL") " UNION ALL " ROWS_AT(">= at")) ", "
      COUNT_OF(ROWS_AT("< at")) ") FROM middle),"
    " expired(n, known) AS MATERIALIZED (SELECT CASE WHEN NOT old THEN p.n"
    "   WHEN p.n <= " COUNTED " THEN t.n - k.n - p.n"
    "   ELSE " COUNT_OF(ROWS_AT("< at")) " END, old AND p.n <= " COUNTED
    "   FROM part AS p, total AS t, kept AS k) "
    "SELECT json_object("
    "  'enabled', json((SELECT CASE value WHEN 1 THEN 'true' ELSE 'false' END"
    "    FROM main.blackbox_settings WHERE name = 'payload.enabled')),"
    "  'archive', t.n - k.evidence, 'evidence', k.evidence, 'pinned', k.pinned,"
    "  'archiveBytes', (SELECT bytes FROM main.payload__state) + k.archive_bytes,"
    "  'evidenceBytes', k.bytes,"
    "  'expired', iif(known, e.n, min(e.n, " COUNTED ")),"
    "  'expiredMore', json(iif(known OR e.n <= " COUNTED ", 'false', 'true')),"
    "  'queueMode', (SELECT value FROM main.blackbox_settings"
    "    WHERE name = 'payload.queue_mode'),"
    "  'waiting', ?2, 'waitingBytes', ?3, 'waitingOf', 'this connection',"
    "  'totalSize', (SELECT page_count FROM pragma_page_count(?4)) *"
    "    (SELECT page_size FROM pragma_page_size(?4)))"
    "  FROM kept AS k, total AS t, expired AS e";
/* clang-format on */

void bxPayloadStats(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  sqlite3_stmt *pWaiting;
  char *z;
  i64 nRow = 0, nByte = 0;
  if (pHome == 0) return;
  pWaiting = bxPayloadWaiting(p->bx, 0, &p->err);
  if (bxStep(pWaiting, &p->err)) {
    nRow = sqlite3_column_int64(pWaiting, 0);
    nByte = sqlite3_column_int64(pWaiting, 1);
  }
  sqlite3_finalize(pWaiting);
  assert(nRow >= 0 && nByte >= 0);
  z = bxQueryText(
      pHome, zStats, &p->err, "iiit", bxNow(), nRow, nByte, pHome->zDb);
  if (z != 0) bxReturnJson(p, z);
}

void bxPayloadDbSize(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "payload", &p->err);
  i64 nPage, nByte, nFree, nWal, nBack;
  if (pHome == 0) return;
  nPage = bxQueryNumber(pHome, "PRAGMA main.page_size", &p->err);
  nByte = bxQueryNumber(pHome, "PRAGMA main.page_count", &p->err) * nPage;
  nFree = bxQueryNumber(pHome, "PRAGMA main.freelist_count", &p->err) * nPage;
  nBack =
      bxQueryNumber(pHome, "PRAGMA main.auto_vacuum", &p->err) == 2 ? nFree : 0;
  nWal = bxWalBytes(p->bx, pHome->zDb);
  bxReturnJson(
      p, sqlite3_mprintf(
             "{\"databaseBytes\":%lld,\"usedBytes\":%lld,\"freeBytes\":%lld,"
             "\"reclaimableBytes\":%lld,\"walBytes\":%lld,\"totalBytes\":%lld}",
             nByte, nByte - nFree, nFree, nBack, nWal, nByte + nWal));
}
