/*
** pins.c: saves exchanges as evidence, and makes sure that each is pinned.
**
**   what is there                            what is written
**   no such row in the archive               an INSERT, which the guards pin
**   an archive row of the same exchange      its UPDATE to evidence, unless a hold
**                                            keeps the row as it is
**   evidence of the same kill switch         nothing
**
** The archive row is looked for among the 64 newest rows of the event. Among equal
** rows the nearest in time is used, and only once. All are found first, so that one
** statement writes: an INSERT that becomes an UPDATE where the id is there. A
** trigger of the user may keep a row from being saved: then the call fails.
**
** If nobody else has a trigger or a unique index on the table (bxPinsAlone), the rows
** of a ring are written one after the other, and pinned without triggers. For a
** statement that fires triggers SQLite would copy all bodies, and the triggers would
** write each row a second time.
** With payload.pack their bodies are packed before, and only the references are
** written, of some rows together. The leaf of a pin is made with the pin, from the
** values that are written.
*/
#include "payload.h"
#include "../core/log.h"
SQLITE_EXTENSION_INIT3

/* Rows of the archive that become evidence: by rowid. */
typedef struct Used {
  i64 *a, n, nAlloc;
} Used;

/* The id of an archived row with the exchange that pRow is on, whose columns from 1 on
** are event_id, agent_id, both bodies, and the time. NULL if there is none. To be read
** before *ppLike is reset. */
static const char *archivedRow(BxStmts *p, sqlite3_stmt *pRow, Used *pUsed,
    sqlite3_stmt **ppLike, BxErr *pErr) {
  static const char zLike[] =
      "SELECT e.rowid, e.id FROM (SELECT rowid AS rid FROM main.event_payloads"
      "  INDEXED BY idx_payloads_event_id WHERE event_id = ?1"
      "  ORDER BY rowid DESC LIMIT 64)"
      " CROSS JOIN main.event_payloads AS e ON e.rowid = rid"
      " WHERE purpose = 'archive' AND pinned = 0 AND id IS NOT NULL"
      " AND kill_switch_event_id IS NULL AND NOT " HELD_PAYLOAD(
          "e") ""
               " AND event_id IS ?1 COLLATE BINARY AND agent_id IS ?2 COLLATE "
               "BINARY"
               " AND size_bytes = ifnull(length(CAST(?3 AS BLOB)), 0)"
               "  + ifnull(length(CAST(?4 AS BLOB)), 0)"
               " AND store_text(request_body) IS ?3 AND "
               "store_text(response_body) IS ?4"
               " ORDER BY abs(created_ms - ?5)";
  sqlite3_stmt *pLike = *ppLike = bxStmt(p, zLike, pErr);
  assert(pUsed->n <= pUsed->nAlloc);
  bxBind(pLike, pErr, "vvvvv", sqlite3_column_value(pRow, 1),
      sqlite3_column_value(pRow, 2), sqlite3_column_value(pRow, 3),
      sqlite3_column_value(pRow, 4), sqlite3_column_value(pRow, 5));
  while (bxStep(pLike, pErr)) {
    i64 i = 0, iRow = sqlite3_column_int64(pLike, 0), *piUsed;
    const char *zId = bxColumnText(pLike, 1, pErr);
    while (i < pUsed->n && pUsed->a[i] != iRow) i++;
    if (i < pUsed->n || zId == 0) continue;
    piUsed =
        bxArrayAdd(&pUsed->a, &pUsed->n, &pUsed->nAlloc, sizeof(*piUsed), pErr);
    if (piUsed == 0) break;
    *piUsed = iRow;
    return zId;
  }
  return 0;
}

/* The ids of these rows, a JSON object by the first column of pRows (a number). */
static char *archivedRows(
    BxStmts *p, sqlite3_stmt *pRows, i64 *pnRow, BxErr *pErr) {
  sqlite3_str *pIds = sqlite3_str_new(p->bx->db);
  sqlite3_stmt *pLike;
  Used used = {0, 0, 0};
  assert(*pnRow == 0);
  while (bxStep(pRows, pErr)) {
    const char *zId = archivedRow(p, pRows, &used, &pLike, pErr);
    ++*pnRow;
    if (zId != 0) {
      sqlite3_str_appendf(pIds, "%c\"%lld\":", used.n > 1 ? ',' : '{',
          sqlite3_column_int64(pRows, 0));
      bxJsonAppend(pIds, zId, sqlite3_column_bytes(pLike, 1));
    }
    bxReset(pLike, pErr);
  }
  bxReset(pRows, pErr);
  sqlite3_free(used.a);
  sqlite3_str_appendall(pIds, used.n > 0 ? "}" : "{}");
  return bxStrFinish(pIds, pErr);
}

int bxPinsAlone(BxStmts *p, BxErr *pErr) {
  static const char zOurs[] =
      "SELECT max(type = 'table' AND sql LIKE '%)STORED)') AND"
      " sum(type = 'trigger') = 8 AND"
      " max(type = 'trigger' AND name NOT LIKE 'payload\\_%' ESCAPE '\\' OR"
      " type = 'index' AND sql LIKE '%unique%') = 0 FROM main.sqlite_schema"
      " WHERE tbl_name LIKE 'event\\_payloads' ESCAPE '\\'";
  static const char zNow[] = /* a row must not get the rowid -1 */
      "SELECT NOT EXISTS (SELECT 1 FROM temp.sqlite_schema WHERE tbl_name LIKE"
      " 'event\\_payloads' ESCAPE '\\') AND NOT EXISTS (SELECT 1 FROM"
      " main.retention__in_force) AND"
      " (SELECT max(rowid) FROM main.event_payloads) >= 0 IS NOT 0";
  Queue *pQueue = bxDomainData(p->bx, "payload")->p;
  i64 iSchema = bxSchemaVersion(p, pErr);
  if (pQueue->pAlone != p || pQueue->iAlone != iSchema) {
    pQueue->bAlone = bxQueryInt(p, zOurs, pErr, "") != 0;
    pQueue->pAlone = pErr->rc == SQLITE_OK ? p : 0;
    pQueue->iAlone = iSchema;
  }
  return pQueue->bAlone && bxQueryInt(p, zNow, pErr, "");
}

/* The columns of the rows of a ring. */
enum {
  MOVED_EVENT = 1,
  MOVED_AGENT,
  MOVED_REQUEST,
  MOVED_RESPONSE,
  MOVED_TIME,
  MOVED_META,
  MOVED_THERE
};

/* Makes the leaf of the pin that is the newest row of the log. (What the table would
** have as another type is read from there.) */
static void knowPin(BxStmts *p, const char *zId, const char *zEvent,
    const char *zTime, sqlite3_stmt *pRow, BxErr *pErr) {
  static const char zPinned[] = /* as zPayloadLogged */
      "SELECT 0, 0, ?1 AS \"row.agent_id\", ?2 AS \"row.created_at\","
      " ?3 AS \"row.event_id\", ?4 AS \"row.id\","
      " ?5 AS \"row.kill_switch_event_id\", ?6 AS \"row.meta\","
      " 'evidence' AS \"row.purpose\", ?7 AS \"row.request_body\","
      " ?8 AS \"row.response_body\"";
  sqlite3_stmt *pPinned;
  int i;
  for (i = MOVED_EVENT; i <= MOVED_META; i++) {
    int eType = sqlite3_column_type(pRow, i);
    if (i != MOVED_TIME && eType != SQLITE_TEXT && eType != SQLITE_NULL) return;
  }
  pPinned = bxStmt(p, zPinned, pErr);
  bxBind(pPinned, pErr, "ststtsss", sqlite3_column_value(pRow, MOVED_AGENT),
      zTime, sqlite3_column_value(pRow, MOVED_EVENT), zId, zEvent,
      sqlite3_column_value(pRow, MOVED_META),
      sqlite3_column_value(pRow, MOVED_REQUEST),
      sqlite3_column_value(pRow, MOVED_RESPONSE));
  if (bxStep(pPinned, pErr)) {
    bxLogKnow(p, sqlite3_last_insert_rowid(p->bx->db), pPinned, pErr);
  }
  bxReset(pPinned, pErr);
}

/* The guard of an INSERT trusts rows of this kill switch; NULL: none. */
static void trust(BxStmts *p, const char *zEvent, BxErr *pErr) {
  static const char zTrust[] =
      "UPDATE main.payload__state SET till = ifnull(CAST(?1 AS BLOB), 0)"
      " WHERE one = 1";
  bxStmtExec(p, zTrust, pErr, "t", zEvent);
}

/* Rows whose bodies are packed wait for each other, and a statement writes WAIT_ROWS of
** them: SQLite copies each page that a statement with triggers changes, and into a file
** once a statement of the transaction has changed many. */
#define WAIT_ROWS 5
#define WAIT_COLUMNS 9
#define INTO_EVIDENCE                                                          \
  "INSERT INTO main.event_payloads(id, kill_switch_event_id, created_at,"      \
  " meta, event_id, agent_id, request_body, response_body, size_bytes,"        \
  " purpose, pinned) "
#define WAIT_VALUES "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
static const char zPinMany[] =
    INTO_EVIDENCE "SELECT *, 'evidence', 1 FROM (VALUES " WAIT_VALUES
                  ", " WAIT_VALUES ", " WAIT_VALUES ", " WAIT_VALUES
                  ", " WAIT_VALUES ") WHERE column1 NOTNULL";
static const char zPinOne[] =
    INTO_EVIDENCE "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'evidence', 1)";
typedef struct Waiting {
  const char *zSql; /* zPinMany; zPinOne if the host allows fewer parameters */
  sqlite3_stmt *pStmt; /* taken, as it has values of rows until it is run */
  int n;
} Waiting;

static void writeWaiting(BxStmts *p, Waiting *w, BxErr *pErr) {
  if (w->n == 0) return;
  bxStmtRun(w->pStmt, pErr);
  bxWriteNote(p->bx, pErr);
  assert(sqlite3_changes(p->bx->db) == w->n || pErr->rc != SQLITE_OK);
  w->n = 0;
}

/* Adds the exchange that pRow is on to those that wait. (The types begin with those
** of the rows before it, which stay as they are.) */
static void waitRow(BxStmts *p, Waiting *w, const char *zId, const char *zEvent,
    const char *zTime, sqlite3_stmt *pRow, const BxPackedText *aText,
    BxErr *pErr) {
  static const char zTypes[] = "------------------------------------ctcvvvvvi";
  sqlite3_value *pRequest = sqlite3_column_value(pRow, MOVED_REQUEST);
  sqlite3_value *pResponse = sqlite3_column_value(pRow, MOVED_RESPONSE);
  assert(sizeof(zTypes) == WAIT_COLUMNS * WAIT_ROWS + 1);
  if (w->pStmt == 0) w->pStmt = bxStmtTake(p, w->zSql, pErr);
  bxBind(w->pStmt, pErr, zTypes + WAIT_COLUMNS * (WAIT_ROWS - 1 - w->n), zId,
      zEvent, zTime, sqlite3_column_value(pRow, MOVED_META),
      sqlite3_column_value(pRow, MOVED_EVENT),
      sqlite3_column_value(pRow, MOVED_AGENT), aText[0].nRef ? 0 : pRequest,
      aText[1].nRef ? 0 : pResponse, bxBytes(pRequest) + bxBytes(pResponse));
  bxPackBind(p, zId, aText, w->pStmt, WAIT_COLUMNS * w->n + 7, pErr);
  if (++w->n == WAIT_ROWS || w->zSql == zPinOne) writeWaiting(p, w, pErr);
}

/* Writes the exchange that pRow is on, and pins it. (What a blob is, a reference of
** another row perhaps, is for the guard.) */
static void saveRow(BxStmts *p, const char *zEvent, sqlite3_stmt *pRow,
    const BxPackedText *aText, Waiting *pWait, Used *pUsed, BxErr *pErr) {
  static const char zBecomes[] =
      "UPDATE main.event_payloads SET purpose = 'evidence', pinned = 1,"
      " kill_switch_event_id = ?2, created_at = ?3, meta = ifnull(meta, ?4)"
      " WHERE id = ?1";
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(domain, kind, subject, event_id, "
      "agent_id, kill_switch_event_id) VALUES('payload', 'pin', ?1, ?2, ?3, "
      "?4)";
  static const char zPin[] =
      "INSERT INTO main.payload__pins VALUES(?1, last_insert_rowid())";
  sqlite3_value *pRequest = sqlite3_column_value(pRow, MOVED_REQUEST);
  sqlite3_value *pResponse = sqlite3_column_value(pRow, MOVED_RESPONSE);
  int bBlob = sqlite3_value_type(pRequest) == SQLITE_BLOB ||
              sqlite3_value_type(pResponse) == SQLITE_BLOB;
  sqlite3_stmt *pLike = 0, *pWrite;
  char zId[37], zTime[25];
  const char *zWas = 0;
  assert(sqlite3_data_count(pRow) == MOVED_THERE + 1 && zEvent[0] != 0);
  if (sqlite3_column_int(pRow, MOVED_THERE)) {
    zWas = archivedRow(p, pRow, pUsed, &pLike, pErr);
  }
  bxIso(sqlite3_column_int64(pRow, MOVED_TIME), zTime);
  if (zWas != 0) { /* the triggers pin it */
    bxStmtExec(p, zBecomes, pErr, "tttv", zWas, zEvent, zTime,
        sqlite3_column_value(pRow, MOVED_META));
    bxReset(pLike, pErr);
    return;
  }
  bxReset(pLike, pErr);
  bxTimeUuid(bxNow(), zId);
  if (aText != 0 && !bBlob) {
    waitRow(p, pWait, zId, zEvent, zTime, pRow, aText, pErr);
  } else {
    writeWaiting(p, pWait, pErr);
    if (bBlob) trust(p, 0, pErr);
    pWrite = bxStmt(p, zPinOne, pErr);
    bxBind(pWrite, pErr, "tttvvvssi", zId, zEvent, zTime,
        sqlite3_column_value(pRow, MOVED_META),
        sqlite3_column_value(pRow, MOVED_EVENT),
        sqlite3_column_value(pRow, MOVED_AGENT), pRequest, pResponse,
        bxBytes(pRequest) + bxBytes(pResponse));
    bxStmtRun(pWrite, pErr);
    bxWriteNote(p->bx, pErr);
    assert(sqlite3_changes(p->bx->db) == 1 || pErr->rc != SQLITE_OK);
    if (bBlob) trust(p, zEvent, pErr);
    if (bBlob) return; /* the triggers pin it */
  }
  bxStmtExec(p, zLog, pErr, "tvvt", zId,
      sqlite3_column_value(pRow, MOVED_EVENT),
      sqlite3_column_value(pRow, MOVED_AGENT), zEvent);
  bxStmtExec(p, zPin, pErr, "t", zId);
  knowPin(p, zId, zEvent, zTime, pRow, pErr);
}

i64 bxPinsMove(
    BxStmts *p, const char *zEvent, sqlite3_stmt *pRows, BxErr *pErr) {
  Used used = {0, 0, 0};
  BxPackRows pack = {
      .pRows = pRows, .iColumn = MOVED_REQUEST, .iSkip = MOVED_THERE};
  const BxPackedText *aText = 0;
  int nMost = sqlite3_limit(p->bx->db, SQLITE_LIMIT_VARIABLE_NUMBER, -1);
  Waiting wait = {nMost < WAIT_ROWS * WAIT_COLUMNS ? zPinOne : zPinMany, 0, 0};
  i64 nRow = 0;
  assert(zEvent != 0);
  if (p->bx->pKnown != 0) p->bx->pKnown->n = 0;
  if (bxPackIsOn(p, pErr)) bxPackNew(p, &pack, 1, pErr);
  trust(p, zEvent, pErr);
  for (; bxStep(pRows, pErr); nRow++) {
    aText = 2 * nRow < pack.nText ? &pack.aText[2 * nRow] : 0;
    saveRow(p, zEvent, pRows, aText, &wait, &used, pErr);
  }
  writeWaiting(p, &wait, pErr);
  bxStmtGive(p, wait.zSql, wait.pStmt);
  bxReset(pRows, pErr);
  trust(p, 0, pErr);
  bxPackNewDone(p, &pack, pErr);
  sqlite3_free(used.a);
  return nRow;
}

i64 bxPinsLast(BxStmts *p, BxErr *pErr) {
  static const char zLast[] = "SELECT max(n) FROM main.blackbox__log";
  return bxQueryInt(p, zLast, pErr, "");
}

i64 bxPinsSave(BxStmts *p, const char *zEvent, i64 iLast, sqlite3_stmt *pRows,
    sqlite3_stmt *pSave, BxErr *pErr) {
  static const char zNew[] =
      "SELECT count(*) FROM main.blackbox__log"
      " WHERE n > ?1 AND kind = 'pin' AND kill_switch_event_id IS ?2";
  i64 nRow = 0, nNew = 0;
  char *zIds = archivedRows(p, pRows, &nRow, pErr);
  int i;
  /* What a trigger keeps from becoming evidence is saved beside it. */
  for (i = 0; i < 2 && nNew < nRow && zIds != 0; i++) {
    bxBind(pSave, pErr, "---t", i == 0 ? zIds : "{}");
    if (i > 0) sqlite3_bind_int(pSave, 5, 1); /* of a ring: it has some now */
    bxStep(pSave, pErr);
    bxWriteNote(p->bx, pErr);
    sqlite3_reset(pSave);
    if (pErr->rc != SQLITE_OK) break;
    nNew = bxQueryInt(p, zNew, pErr, "it", iLast, zEvent);
  }
  bxReset(pSave, pErr);
  sqlite3_free(zIds);
  if (nNew < nRow) {
    bxFail(pErr, SQLITE_ERROR,
        "MisuseError: a trigger on event_payloads let only %lld of %lld "
        "exchanges become pinned evidence; drop it and save again",
        nNew, nRow);
  }
  return nRow;
}

int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr) {
  static const char zHolds[] = "SELECT 1 FROM main.payload__pins WHERE id = ?1";
  return bxQueryInt(p, zHolds, pErr, "t", zId) != 0;
}
