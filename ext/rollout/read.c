/*
** read.c: lists, pages, histories, ranges, and the export. Nothing here changes
** data. Conversations that have expired are not shown.
**
** The order of a list is "updated" and then id, newest first. A cursor is the
** pair of the last row seen, "<updated>|<id>", so that the next page begins
** after that row, whatever else has changed. The items of a conversation come
** from its segments in order, without a sort.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/*---------------------------------------------------------- arguments ----*/

static i64 readPageSize(sqlite3_value *pVal, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 n = bxInt(pVal, "page size", 1, ROLLOUT_PAGE_MAX, &err);
  if (pErr->rc == SQLITE_OK && err.rc != SQLITE_OK) {
    bxRefuse(pErr,
        "ValidationError: Invalid page size: %s, it must be an integer from 1 "
        "to 100",
        pVal);
  }
  bxErrClear(&err);
  return n;
}

/* Splits "<updated>|<id>". Without a cursor the list begins at the first
** row. */
static void readCursor(
    sqlite3_value *pVal, i64 *piUpdated, char zId[37], BxErr *pErr) {
  const char *z = 0;
  char *zEnd = 0;
  int n = 0, bGood = 0;
  *piUpdated = BX_MAX_TIME + 1;
  memset(zId, 0, 37);
  if (pVal == 0 || pErr->rc != SQLITE_OK) return;
  if (sqlite3_value_type(pVal) == SQLITE_TEXT) {
    z = (const char *)sqlite3_value_text(pVal);
    n = sqlite3_value_bytes(pVal);
    if (z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  if (z != 0 && z[0] >= '0' && z[0] <= '9' && strlen(z) == (size_t)n) {
    *piUpdated = strtoll(z, &zEnd, 10);
    bGood = zEnd - z <= 15 && *zEnd == '|' &&
            bxRolloutUuid(zEnd + 1, n - (int)(zEnd + 1 - z), zId);
  }
  if (!bGood) {
    bxRefuse(pErr,
        "ValidationError: Invalid cursor: %s, it must have the form "
        "<updated>|<id>; use a cursor that a page or a list returned",
        pVal);
  }
}

/*--------------------------------------------------------------- lists ----*/

#define LIST_FROM                                                              \
  "FROM main.rollout__heads AS h "                                             \
  "LEFT JOIN main.rollout__about AS a ON a.no = h.no "                         \
  "WHERE h.user_sequence IS NOT NULL AND (h.updated, h.id) < (?1, ?2) "
#define LIST_ORDER "ORDER BY h.updated DESC, h.id DESC LIMIT ?4"
/* What the session_meta says, if that is not derived yet, or was redacted. */
#define LIST_META(what)                                                        \
  "iif(a.format IS NULL, (SELECT d.payload ->> '" what "' FROM "               \
  "main.rollout__items AS d WHERE d.id = h.no << 32 "                          \
  "AND " BX_JSON_VALID("d.payload") "), a." what ")"
/* ?5 has what items say that are not derived yet: {id: [cwd, first message]}. A first
** message that was redacted is read again. */
#define LIST_CWD                                                               \
  "iif(h.behind IS NULL, a.cwd, coalesce(?5 ->> ('$.\"' || h.id || "           \
  "'\"[0]'), a.cwd, " LIST_META("cwd") "))"
#define LIST_FIRST                                                             \
  "iif(h.behind IS NULL, a.first_user_message, "                               \
  "coalesce(a.first_user_message, " ROLLOUT_PROMPT(                            \
      "a.prompt_id") ", "                                                      \
                     "substr(?5 ->> ('$.\"' || h.id || '\"[1]'), 1, 200)))"

static void addPendingText(sqlite3_str *pOut, const char *z) {
  if (z == 0) {
    sqlite3_str_appendall(pOut, "null");
  } else {
    bxJsonAppend(pOut, z, (int)strlen(z));
  }
}

/* ?5 for the conversations of a page, to sqlite3_free(). */
static char *pendingOf(BxStmts *p, i64 iUpdated, const char *zId, i64 iNow,
    i64 nRow, BxErr *pErr) {
  static const char zPending[] =
      "SELECT id FROM (SELECT h.id AS id, h.behind AS behind " LIST_FROM
      "AND (h.expires_at IS NULL OR h.expires_at >= ?3) " LIST_ORDER
      ") WHERE behind IS NOT NULL";
  sqlite3_str *pOut = sqlite3_str_new(0);
  sqlite3_stmt *pRow = bxStmt(p, zPending, pErr);
  const char *zBefore = "{";
  assert(nRow > 0 || pErr->rc != SQLITE_OK);
  bxBind(pRow, pErr, "itii", iUpdated, zId, iNow, nRow);
  for (; bxStep(pRow, pErr); zBefore = ",") {
    RolloutDerive told;
    RolloutHead head;
    memset(&told, 0, sizeof(told));
    if (bxRolloutFind(p, 0, bxColumnText(pRow, 0, pErr), &head, pErr)) {
      bxRolloutDerivePending(&told, p, &head, pErr);
    }
    sqlite3_str_appendf(
        pOut, "%s\"%s\":[", zBefore, sqlite3_column_text(pRow, 0));
    addPendingText(pOut, told.azNew[BX_KIND_CWD]);
    sqlite3_str_appendall(pOut, ",");
    addPendingText(pOut, told.zPrompt);
    sqlite3_str_appendall(pOut, "]");
    bxRolloutDeriveEnd(&told);
  }
  bxReset(pRow, pErr);
  sqlite3_str_appendall(pOut, *zBefore == '{' ? "{}" : "}");
  return bxStrFinish(pOut, pErr);
}

sqlite3_stmt *bxRolloutList(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  char zId[37];
  sqlite3_stmt *pStmt;
  BxStmts *p = bxRolloutSchema(bx, pErr);
  char *zPending;
  i64 nRow = readPageSize(apArg[0], pErr), iUpdated;
  i64 iNow = bxTime(apArg[2], "now", pErr);
  readCursor(apArg[1], &iUpdated, zId, pErr);
  pStmt = bxRolloutQuery(bx,
      "SELECT h.id, h.created, h.updated, h.last_sequence + 1, h.status, "
      "h.title, " LIST_META("source") ", " LIST_CWD ", " LIST_FIRST ", "
                                      "h.updated || '|' || h.id " LIST_FROM
                                      "AND (h.expires_at IS NULL OR "
                                      "h.expires_at >= ?3) " LIST_ORDER,
      pErr);
  zPending = p ? pendingOf(p, iUpdated, zId, iNow, nRow, pErr) : 0;
  bxBind(pStmt, pErr, "iciic", iUpdated, zId, iNow, nRow, zPending);
  sqlite3_free(zPending);
  return pStmt;
}

/* ?3 is now. One more row than a scan reads shows whether there are more. */
static const char zScan[] =
    "SELECT h.expires_at IS NULL OR h.expires_at >= ?3, "
    "h.updated || '|' || h.id, "
    "json_object('id', h.id, 'created', h.created, 'updated', h.updated, "
    "'item_count', h.last_sequence + 1, 'status', h.status, "
    "'title', h.title, 'source', " LIST_META(
        "source") ", "
                  "'cwd', " LIST_CWD ", 'first_user_message', " LIST_FIRST ", "
                  "'cursor', h.updated || '|' || h.id) " LIST_FROM LIST_ORDER;

void bxRolloutPage(BxCall *p) {
  char zId[37], zNext[64] = ""; /* zNext: the cursor of the last row examined */
  i64 nSize = readPageSize(p->aArg[0], &p->err), iUpdated, iNow;
  int nScanned = 0, nItem = 0, bMore = 0, bCap = 0;
  BxStmts *pHome;
  sqlite3_stmt *pStmt;
  sqlite3_str *pItems;
  char *zItems, *zPending;
  readCursor(bxArg(p, 1), &iUpdated, zId, &p->err);
  iNow = bxTime(bxArg(p, 2), "now", &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  pStmt = bxStmt(pHome, zScan, &p->err);
  zPending =
      pendingOf(pHome, iUpdated, zId, iNow, ROLLOUT_PAGE_MAX + 1, &p->err);
  bxBind(pStmt, &p->err, "itiit", iUpdated, zId, iNow,
      (i64)(ROLLOUT_PAGE_MAX + 1), zPending);
  pItems = sqlite3_str_new(p->bx->db);
  while (!bMore && bxStep(pStmt, &p->err)) {
    int bVisible = sqlite3_column_int(pStmt, 0);
    const char *zCursor = bxColumnText(pStmt, 1, &p->err);
    const char *zRow = bxColumnText(pStmt, 2, &p->err);
    if (p->err.rc != SQLITE_OK) break;
    bCap = nScanned == ROLLOUT_PAGE_MAX;
    bMore = bCap || (bVisible && nItem == nSize);
    if (bMore) break;
    assert(nScanned < ROLLOUT_PAGE_MAX && nItem < nSize + !bVisible);
    nScanned++;
    if (bVisible) {
      sqlite3_str_appendf(pItems, "%s%s", nItem ? "," : "", zRow);
      nItem++;
    }
    sqlite3_snprintf((int)sizeof(zNext), zNext, "%s", zCursor);
  }
  bxReset(pStmt, &p->err);
  sqlite3_free(zPending);
  zItems = bxStrFinish(pItems, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p, sqlite3_mprintf("{\"items\":[%s]%s%s%s,\"numScanned\":%d,"
                                    "\"reachedCap\":%s}",
                        zItems ? zItems : "", bMore ? ",\"nextCursor\":\"" : "",
                        bMore ? zNext : "", bMore ? "\"" : "", nScanned,
                        bCap ? "true" : "false"));
  }
  sqlite3_free(zItems);
}

/*------------------------------------------------------------- history ----*/

/* Head and items in one statement, so that they are consistent. A conversation
** without items has one row. */
static const char zHistory[] =
    "SELECT d.id & 4294967295, d.type, d.payload, h.last_sequence "
    "FROM main.rollout__heads AS h "
    "LEFT JOIN main.rollout__segments AS s ON s.rollout = h.no "
    "LEFT JOIN main.rollout__items AS d ON d.id BETWEEN (s.owner << 32) + "
    "s.first "
    "AND (s.owner << 32) + s.last "
    "WHERE h.id = ?1 AND (h.expires_at IS NULL OR h.expires_at >= ?2) "
    "ORDER BY h.no, s.first, d.id";

/* Appends the items of a history. Returns their number. */
static i64 appendItems(BxStmts *p, sqlite3_str *pOut, sqlite3_stmt *pStmt,
    const char *zId, BxErr *pErr) {
  i64 n = 0, iLast = -1;
  assert(pErr->rc != SQLITE_OK || sqlite3_column_count(pStmt) >= 4);
  while (bxStep(pStmt, pErr)) {
    const char *zType = bxColumnText(pStmt, 1, pErr);
    const char *zPayload = bxColumnText(pStmt, 2, pErr);
    int nPayload = sqlite3_column_bytes(pStmt, 2);
    iLast = sqlite3_column_int64(pStmt, 3);
    if (sqlite3_column_type(pStmt, 0) == SQLITE_NULL) continue;
    if (sqlite3_column_int64(pStmt, 0) != n) break;
    if (zPayload != 0 && !bxIsJson(p->bx, zPayload, nPayload, pErr)) {
      bxFail(pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedRolloutError: Corrupted rollout: the payload of item %lld "
          "of %s is not JSON; rollout_items shows all items as text",
          n, zId);
    }
    if (pErr->rc != SQLITE_OK) break;
    sqlite3_str_appendall(pOut, n++ == 0 ? "{\"type\":" : ",{\"type\":");
    bxJsonAppend(pOut, zType, sqlite3_column_bytes(pStmt, 1));
    if (zPayload != 0) {
      sqlite3_str_append(pOut, ",\"payload\":", 11);
      sqlite3_str_append(pOut, zPayload, nPayload);
    }
    sqlite3_str_append(pOut, "}", 1);
  }
  if (n <= iLast) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedRolloutError: Corrupted rollout: item %lld of %s is missing; "
        "rollout_items shows the other items",
        n, zId);
  }
  return n;
}

/* Ends a long text, which is a blob if it is not UTF-8. A text that is too long
** has an error of its own, because it is not a lack of memory. */
static void returnLong(BxCall *p, sqlite3_str *pOut, const char *zInstead) {
  int rc = sqlite3_str_errcode(pOut);
  int n = sqlite3_str_length(pOut);
  char *z = sqlite3_str_finish(pOut);
  if (rc == SQLITE_TOOBIG) {
    bxFail(&p->err, SQLITE_TOOBIG,
        "RolloutTooLongError: Rollout too long: its text is longer than the "
        "limit of this connection; read it in rows, with %s",
        zInstead);
  }
  bxFail(&p->err, rc, "out of memory");
  if (p->err.rc != SQLITE_OK || p->pCtx == 0) {
    sqlite3_free(z);
  } else if (z != 0 && (strlen(z) < (size_t)n ||
                           !bxIsUtf8((const unsigned char *)z, n))) {
    sqlite3_result_blob64(p->pCtx, z, (sqlite3_uint64)n, sqlite3_free);
  } else {
    sqlite3_result_text64(p->pCtx, z ? z : "", (sqlite3_uint64)n,
        z ? sqlite3_free : SQLITE_STATIC, SQLITE_UTF8);
  }
}

void bxRolloutHistory(BxCall *p) {
  char zId[37];
  i64 iNow, n;
  BxStmts *pHome;
  sqlite3_stmt *pStmt;
  sqlite3_str *pOut;
  bxRolloutId(p->aArg[0], zId, &p->err);
  iNow = bxTime(bxArg(p, 1), "now", &p->err);
  pHome = bxRolloutSchema(p->bx, &p->err);
  if (pHome == 0) return;
  pStmt = bxStmt(pHome, zHistory, &p->err);
  bxBind(pStmt, &p->err, "ti", zId, iNow);
  pOut = sqlite3_str_new(p->bx->db);
  sqlite3_str_appendf(pOut,
      "{\"type\":\"resumed\",\"payload\":{\"conversationId\":\"%s\","
      "\"history\":[",
      zId);
  n = appendItems(pHome, pOut, pStmt, zId, &p->err);
  bxReset(pStmt, &p->err);
  if (n == 0) {
    sqlite3_str_reset(pOut);
    sqlite3_str_appendall(pOut, "{\"type\":\"new\"}");
  } else {
    sqlite3_str_appendf(pOut, "],\"rolloutId\":\"%s\"}}", zId);
  }
  returnLong(p, pOut, "rollout_range()");
  if (p->pCtx != 0 && p->err.rc == SQLITE_OK) {
    sqlite3_result_subtype(p->pCtx, 'J');
  }
}

/*-------------------------------------------------------------- ranges ----*/

#define RANGE_SELECT                                                           \
  "SELECT d.id & 4294967295, d.timestamp, d.type, d.payload "                  \
  "FROM main.rollout__segments AS s CROSS JOIN main.rollout__items AS d "      \
  "ON d.id BETWEEN (s.owner << 32) + max(s.first, ?2) "                        \
  "AND (s.owner << 32) + min(s.last, ?3) "                                     \
  "WHERE s.rollout = ?1 AND s.first <= ?3 AND s.last >= ?2 "

sqlite3_stmt *bxRolloutRange(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zForward[] =
      RANGE_SELECT "ORDER BY s.rollout, s.first, d.id LIMIT ?4";
  static const char zBackward[] =
      RANGE_SELECT "ORDER BY s.rollout DESC, s.first DESC, d.id DESC LIMIT ?4";
  BxStmts *p;
  sqlite3_stmt *pStmt;
  RolloutHead head = bxRolloutLive(bx, apArg[0], bxNow(), pErr);
  i64 iFirst = 0, iLast = 4294967295, nRow = -1;
  const char *zWay = bxText(apArg[3], "direction", 20, 1, pErr);
  int bBack = zWay != 0 && strcmp(zWay, "backward") == 0;
  if (zWay != 0 && !bBack && strcmp(zWay, "forward") != 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: direction must be 'forward' or 'backward', got %Q; "
        "omit it for 'forward'",
        zWay);
  }
  if (apArg[1] != 0) {
    i64 iAfter = bxInt(apArg[1], "after", bBack ? 0 : -1, 4294967295, pErr);
    if (bBack) {
      iLast = iAfter - 1;
    } else {
      iFirst = iAfter + 1;
    }
  }
  if (apArg[2] != 0) nRow = bxInt(apArg[2], "limit", 0, 4294967295, pErr);
  p = bxRolloutSchema(bx, pErr);
  if (p == 0) return 0;
  pStmt = bxStmtTake(p, bBack ? zBackward : zForward, pErr);
  bxBind(pStmt, pErr, "iiii", head.no, iFirst, iLast, nRow);
  return pStmt;
}

/*----------------------------------------------------- drops and export ----*/

sqlite3_stmt *bxRolloutDropped(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  char zId[37];
  RolloutHead head;
  BxStmts *p;
  sqlite3_stmt *pStmt;
  bxRolloutId(apArg[0], zId, pErr);
  p = bxRolloutSchema(bx, pErr);
  if (!bxRolloutFind(p, 0, zId, &head, pErr)) bxRolloutMissing(zId, pErr);
  pStmt = bxRolloutQuery(bx,
      "SELECT item_type, payload_type, items, bytes FROM main.rollout_drops "
      "WHERE no = ?1 ORDER BY item_type, payload_type",
      pErr);
  bxBind(pStmt, pErr, "i", head.no);
  return pStmt;
}

/* The bytes of an item and of what stands around it: as it was imported, or as a
** Codex line, which a newline between the tokens of a payload would end. */
/* clang-format off */
/* A file that is one value (import_value.c): its frame, with the items that the conversation
** shows, and what stands behind the last one. */
#define FRAME_FIRST(e) "iif(" e ".type = 'integer', " e ".value, " e ".value ->> 0)"
#define FRAME_LAST(e) "iif(" e ".type = 'integer', " e ".value, (" e ".value ->> 0) + (" e ".value ->> 1) - 1)"
#define FRAME_BYTES                                                            \
    "(SELECT group_concat(iif(e.type = 'text', e.value, "                      \
    "(SELECT group_concat(x.payload, iif(e.type = 'integer', '', e.value ->> 2)) "                   \
    "FROM main.rollout__segments AS t CROSS JOIN main.rollout__items AS x "     \
    "ON x.id BETWEEN (t.owner << 32) + max(t.first, " FRAME_FIRST("e") ") "    \
    "AND (t.owner << 32) + min(t.last, " FRAME_LAST("e") ", " FRAME_SHOWN ") " \
    "WHERE t.rollout = ?1)), '') FROM json_each(CAST(d.before AS TEXT)) AS e " \
    "WHERE e.key <= coalesce((SELECT min(iif(" FRAME_FIRST("m") " > " FRAME_SHOWN ", m.key - 2, m.key)) " \
    "FROM json_each(CAST(d.before AS TEXT)) AS m WHERE m.type <> 'text' "      \
    "AND " FRAME_LAST("m") " > " FRAME_SHOWN "), 1e18) "                       \
    "OR e.key = json_array_length(CAST(d.before AS TEXT)) - 1)"
#define FRAME_SHOWN "(SELECT max(o.last) FROM main.rollout__segments AS o "    \
    "WHERE o.rollout = ?1 AND o.owner = d.id >> 32)"
/* A file that was kept as a whole is not that of a fork that has only its beginning: this
** one has its items as lines. */
#define FRAME_CUT "(SELECT max(x.id) FROM main.rollout__data AS x WHERE x.id " \
    "BETWEEN d.id AND d.id | 4294967295) & 4294967295 > " FRAME_SHOWN
#define FRAME_LINES                                                            \
    "(SELECT group_concat(x.payload, char(10)) || char(10) FROM main.rollout__items AS x " \
    "WHERE x.id BETWEEN d.id AND (d.id >> 32 << 32) + " FRAME_SHOWN ")"
/* A conversation that was forked, and into which a newer file was imported. */
#define FRAME_OLD                                                              \
    "(d.quiet > 1 AND d.id >> 32 <> ?1 AND EXISTS (SELECT 1 "                  \
    "FROM main.rollout__segments AS t CROSS JOIN main.rollout__items AS y "     \
    "ON y.id BETWEEN (t.owner << 32) + t.first AND (t.owner << 32) + t.last "  \
    "WHERE t.rollout = ?1 AND t.owner > d.id >> 32 AND y.quiet > 1 "           \
    "AND y.quiet & 1 = d.quiet & 1 AND (d.quiet & 1 = 0 "                      \
    "OR (y.type, y.payload ->> " ITEM_ID ") IS (d.type, d.payload ->> " ITEM_ID "))))"
#define ITEM_ID "(SELECT f.item_id FROM main.rollout__about AS a "             \
    "JOIN main.rollout_formats AS f ON f.format = a.format WHERE a.no = ?1)"
#define ITEM_BYTES                                                             \
    "CAST(iif(" FRAME_OLD ", '', " ROLLOUT_OWN_NAMED("iif(" ROLLOUT_OWN_LINE   \
    ", replace(d.payload, char(10), ' ') || coalesce(CAST(d.after AS TEXT), char(10)), "            \
    "iif(d.quiet IN (2, 3), " FRAME_BYTES ", coalesce(iif(d.quiet = 4 AND " FRAME_CUT ", " FRAME_LINES ", CAST(d.before AS TEXT)), '{\"timestamp\":\"' || "            \
    ROLLOUT_ISO("d.timestamp") " || '\",\"type\":' || json_quote(d.type) || "  \
    "iif(d.payload IS NULL, '', ',\"payload\":'))) || "                        \
    "iif(d.quiet, '', coalesce(iif(d.before IS NULL, "                         \
    "replace(d.payload, char(10), ' '), d.payload), '')) || "                  \
    "coalesce(CAST(d.after AS TEXT), '}' || char(10)))") ") AS BLOB)"
/* clang-format on */
static const char zBytes[] =
    "SELECT " ITEM_BYTES ", d.before IS NULL " ROLLOUT_FROM_ITEMS
    "ORDER BY s.rollout, s.first, d.id";
/* Without the newline at the end of an item. */
static const char zLines[] =
    "SELECT CAST(iif(substr(x, -1) = x'0a', substr(x, 1, length(x) - 1), x) "
    "AS TEXT) FROM (SELECT " ITEM_BYTES " AS x " ROLLOUT_FROM_ITEMS
    "ORDER BY s.rollout, s.first, d.id) WHERE length(x) > 0";

/* The conversation to export, or an error. */
static RolloutHead findExport(
    Bx *bx, sqlite3_value *pId, char zId[37], BxErr *pErr) {
  RolloutHead head = {0, 0, 0, 0, 0, 0, -1, 0, 0};
  bxRolloutId(pId, zId, pErr);
  bxRolloutOpen(bxRolloutSchema(bx, pErr), 0, zId, 0, &head, pErr);
  return head;
}

sqlite3_stmt *bxRolloutLines(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  char zId[37];
  i64 no = findExport(bx, apArg[0], zId, pErr).no;
  sqlite3_stmt *pStmt = bxRolloutQuery(bx, zLines, pErr);
  if (pStmt != 0) bxRolloutOwnBind(bxRolloutSchema(bx, pErr), no, pStmt, pErr);
  return pStmt;
}

static int endsLine(sqlite3_str *p) {
  int n = sqlite3_str_length(p);
  return n == 0 || sqlite3_str_value(p)[n - 1] == '\n';
}

void bxRolloutExport(BxCall *p) {
  char zId[37];
  RolloutHead head = findExport(p->bx, p->aArg[0], zId, &p->err);
  BxStmts *pHome = bxRolloutSchema(p->bx, &p->err);
  sqlite3_stmt *pStmt;
  sqlite3_str *pOut = 0;
  int bAny = 0;
  if (pHome == 0) return;
  if (bxArg(p, 1)) pOut = bxRolloutExportAs(p, &head, zId);
  if (pOut != 0) {
    returnLong(p, pOut, "SELECT line FROM rollout_export(id)");
    return;
  }
  pStmt = bxStmt(pHome, zBytes, &p->err);
  bxRolloutOwnBind(pHome, head.no, pStmt, &p->err);
  pOut = sqlite3_str_new(p->bx->db);
  while (bxStep(pStmt, &p->err)) {
    const char *z = sqlite3_column_blob(pStmt, 0);
    int n = sqlite3_column_bytes(pStmt, 0);
    if (z == 0 && sqlite3_errcode(p->bx->db) == SQLITE_NOMEM) {
      bxFail(&p->err, SQLITE_NOMEM, "out of memory");
    }
    /* what was appended to a file without a last newline begins a line */
    if (n > 0 && sqlite3_column_int(pStmt, 1) && !endsLine(pOut)) {
      sqlite3_str_appendchar(pOut, 1, '\n');
    }
    if (n > 0) sqlite3_str_append(pOut, z, n);
    bAny = 1;
  }
  bxReset(pStmt, &p->err);
  if (!bAny) bxRolloutMissing(zId, &p->err); /* it was deleted meanwhile */
  returnLong(p, pOut, "SELECT line FROM rollout_export(id)");
}
