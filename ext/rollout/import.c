/*
** import.c: rollout_import(jsonl[, rollout_id[, now]]): Codex JSON lines into a
** conversation.
**
** A line is {"timestamp": ..., "type": ..., "payload": ...}. The policy does
** not apply, because the program that wrote the file has already applied its
** own. A payload keeps every byte, also white space. A line that cannot be read
** is counted and reported, and the import continues with the next line.
**
** Without rollout_id, the id is that of the first session_meta, and must be
** new. With rollout_id, the lines continue that conversation, so that a large
** file can be imported in pieces, or line by line; memory holds one piece. If
** there is no such conversation, it begins with the first session_meta. If the
** lines have no session_meta, one is made.
**
** Returns {"rolloutId", "lines", "items", "bad", "errors": [{"line",
** "reason"}]}; errors has the first 100.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_LISTED 100 /* the most bad lines in the result */

typedef struct Import {
  BxStmts *pHome;
  char zId[37]; /* empty until the first session_meta names it */
  int bGiven;   /* zId came as an argument */
  int bOpen;    /* it exists, or has been started */
  int bBare;    /* there is no session_meta: any item starts it */
  RolloutHead head;
  i64 iNow;
  RolloutBatch *pBatch;
  i64 nLine, nEarly; /* lines; lines before the session_meta */
  i64 nBad, nBadByte;
  int nLineByte; /* length of the line that is read */
  sqlite3_str *pBad;
  BxErr *pErr;
} Import;

static void badLine(Import *p, const char *zReason) {
  if (p->pErr->rc != SQLITE_OK) return;
  p->nBad++;
  p->nBadByte += p->nLineByte;
  if (p->nBad <= MAX_LISTED) {
    sqlite3_str_appendf(p->pBad, "%s{\"line\":%lld,\"reason\":\"%s\"}",
        p->nBad > 1 ? "," : "", p->nLine, zReason);
  }
}

/*--------------------------------------------------------------- lines ----*/

/* type, payload, payload's type, time, type's JSON type, payload's JSON type,
** payload's id, members that would be lost if there is no payload, whether the
** type contains a NUL. zLineSql is run for a line, and returns its payload as
** JSON; item.c finds the bytes of the payload in the line. */
/* clang-format off */
static const char zLineSql[] =
    "SELECT o ->> 'type', o -> 'payload', o ->> '$.payload.type', "
    "CASE json_type(o, '$.timestamp') WHEN 'integer' THEN o ->> 'timestamp' "
    "WHEN 'text' THEN " BX_DATE_MS("o ->> 'timestamp'") " END, "
    "json_type(o, '$.type'), json_type(o, '$.payload'), o ->> '$.payload.id', "
    "CASE WHEN json_type(o, '$.payload') IS NULL THEN (SELECT count(*) "
    "FROM json_each(o) WHERE key NOT IN ('type', 'timestamp')) END, "
    BX_JSON_HAS_NUL("o -> 'type'") " FROM (SELECT ?1 AS o) "
    "WHERE CASE WHEN " BX_JSON_VALID("?1") " THEN json_type(?1) = 'object' END";
/* clang-format on */

/* Takes the first session_meta of a conversation that has none yet. Returns 0
** if the line cannot be one. */
static int beginWith(Import *p, sqlite3_stmt *pRow, const char *zType) {
  const char *zJson = bxColumnText(pRow, 5, p->pErr);
  if (p->pErr->rc != SQLITE_OK) return 0;
  if (sqlite3_stricmp(zType, "session_meta") != 0 &&
      sqlite3_stricmp(zType, "SessionMeta") != 0) {
    p->nEarly++;
    p->bOpen = p->bBare;
    if (!p->bBare) badLine(p, "comes before the session_meta");
    return p->bBare;
  }
  if (zJson == 0 || strcmp(zJson, "object") != 0) {
    badLine(p, "session_meta without an object as payload");
    return 0;
  }
  if (!p->bGiven) {
    BxErr err = {SQLITE_OK, 0};
    bxRolloutId(sqlite3_column_value(pRow, 6), p->zId, &err);
    if (err.rc != SQLITE_OK) {
      p->zId[0] = 0;
      if (err.rc == SQLITE_CONSTRAINT) {
        badLine(p, "session_meta whose id is not a UUID");
      }
      bxFail(p->pErr, err.rc == SQLITE_CONSTRAINT ? SQLITE_OK : err.rc,
          "out of memory");
      bxClear(&err);
      return 0;
    }
    if (bxRolloutFind(p->pHome, 0, p->zId, &p->head, p->pErr)) {
      bxFail(p->pErr, SQLITE_CONSTRAINT,
          "RolloutExistsError: %s already exists; pass an id as second "
          "argument: this id to continue it, or another id to start a new one",
          p->zId);
    }
  }
  p->bOpen = 1;
  return p->pErr->rc == SQLITE_OK;
}

static const char zSame[] =
    "SELECT 1 FROM main.rollout_data WHERE id = ?1 AND timestamp = ?2 "
    "AND payload = ?3";

/* If the line is the session_meta with which the conversation begins, the file
** was imported before. (A session that was resumed has another one further
** on.) */
static void checkRepeat(Import *p, const RolloutItem *pItem, i64 iTime) {
  if (bxRolloutBatchCount(p->pBatch) > 0 ||
      !bxAsk(p->pHome, zSame, p->pErr, "iib", bxRolloutKey(p->head.no, 0),
          iTime, pItem->payload.z, pItem->payload.n)) {
    return;
  }
  bxFail(p->pErr, SQLITE_CONSTRAINT,
      "RolloutExistsError: %s already has this session_meta; pass another id "
      "as second argument to import the file again",
      p->zId);
}

/* Copies what must exist longer than the statement of the line: the type and,
** if *pPayload is not in the line itself, the payload after it. */
static char *copyItem(const char *zType, RolloutSpan *pPayload, int bPayload) {
  size_t nType = strlen(zType) + 1;
  size_t nMore = bPayload ? (size_t)pPayload->n : 0;
  char *z = sqlite3_malloc64(nType + nMore);
  if (z == 0) return 0;
  memcpy(z, zType, nType);
  if (bPayload) {
    memcpy(z + nType, pPayload->z, nMore);
    pPayload->z = z + nType;
  }
  return z;
}

/* Adds one item. The payload of pItem may be in the row. */
static void keepItem(Import *p, sqlite3_stmt *pRow, const char *zType,
    RolloutItem *pItem, i64 iTime) {
  const char *zPayloadType = 0;
  int bLook;
  char *zOwned;
  if (sqlite3_column_type(pRow, 2) == SQLITE_TEXT) {
    zPayloadType = bxColumnText(pRow, 2, p->pErr);
  }
  if (p->pErr->rc != SQLITE_OK) return;
  bLook = bxRolloutMatters(pItem, bxRolloutKind(zType, zPayloadType));
  zOwned =
      bxGot(copyItem(zType, &pItem->payload, pItem->bOdd && pItem->payload.z),
          p->pErr);
  bxRolloutBatchAdd(
      p->pBatch, iTime, zOwned, pItem->payload, zOwned, bLook, p->pErr);
}

static void importItem(Import *p, sqlite3_stmt *pRow, const char *zLine) {
  const char *zType = bxColumnText(pRow, 0, p->pErr);
  const char *zPayload = bxColumnText(pRow, 1, p->pErr);
  const char *zKind = bxColumnText(pRow, 4, p->pErr);
  RolloutItem item;
  i64 iTime = p->iNow;
  if (p->pErr->rc != SQLITE_OK) return;
  if (sqlite3_column_type(pRow, 3) == SQLITE_INTEGER) {
    iTime = sqlite3_column_int64(pRow, 3);
    if (iTime < 0 || iTime > BX_MAX_TIME) iTime = p->iNow;
  }
  if (zKind == 0 || strcmp(zKind, "text") != 0 || zType == 0 || *zType == 0 ||
      sqlite3_column_bytes(pRow, 0) > ROLLOUT_MAX_NAME ||
      sqlite3_column_int(pRow, 8) ||
      !bxIsUtf8((const unsigned char *)zType, sqlite3_column_bytes(pRow, 0))) {
    badLine(p, "no type of 1 to 100 bytes");
    return;
  }
  if (zPayload == 0 && sqlite3_column_int(pRow, 7) > 0) {
    badLine(p, "no payload");
    return;
  }
  bxRolloutReadItem(zLine, &item);
  if (item.bOdd) {
    item.payload.z = zPayload;
    item.payload.n = zPayload ? sqlite3_column_bytes(pRow, 1) : 0;
  }
  if (item.payload.n > ROLLOUT_MAX_PAYLOAD) {
    badLine(p, "payload of more than 67108864 bytes");
    return;
  }
  if (p->bOpen) {
    checkRepeat(p, &item, iTime);
  } else if (!beginWith(p, pRow, zType)) {
    return;
  }
  keepItem(p, pRow, zType, &item, iTime);
}

/* Reads one line without its newline. */
static void importLine(Import *p, const char *zLine, int nLine) {
  sqlite3_stmt *pRow;
  p->nLine++;
  p->nLineByte = nLine;
  while (nLine > 0 && strchr(" \t\r", zLine[nLine - 1]) != 0) nLine--;
  if (nLine == 0) return;
  if (memchr(zLine, 0, (size_t)nLine) != 0 ||
      !bxIsUtf8((const unsigned char *)zLine, nLine)) {
    badLine(p, "not UTF-8");
    return;
  }
  pRow = bxStmt(p->pHome, zLineSql, p->pErr);
  bxBind(pRow, p->pErr, "b", zLine, (i64)nLine);
  if (bxRow(pRow, p->pErr)) {
    importItem(p, pRow, zLine);
  } else {
    badLine(p, "not a JSON object");
  }
  bxDone(pRow, p->pErr);
}

static void importText(Import *p, const char *z, int n) {
  const char *zEnd = z + n;
  while (z < zEnd && p->pErr->rc == SQLITE_OK) {
    const char *zNext = memchr(z, '\n', (size_t)(zEnd - z));
    if (zNext == 0) zNext = zEnd;
    importLine(p, z, (int)(zNext - z));
    z = zNext + 1;
  }
}

/* Reads the text again if it has no session_meta for the id that was given:
** then any item starts the conversation. */
static void importBare(Import *p, const char *z, int n) {
  p->bBare = 1;
  p->nLine = p->nBad = p->nBadByte = 0;
  sqlite3_str_reset(p->pBad);
  importText(p, z, n);
}

/*------------------------------------------------------------- writing ----*/

static void returnReport(BxCall *p, Import *pImport) {
  char *zBad = bxFinish(pImport->pBad, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p,
        sqlite3_mprintf("{\"rolloutId\":\"%s\",\"lines\":%lld,\"items\":%lld,"
                        "\"bad\":%lld,\"errors\":[%s]}",
            pImport->zId, pImport->nLine, bxRolloutBatchCount(pImport->pBatch),
            pImport->nBad, zBad ? zBad : ""));
  }
  sqlite3_free(zBad);
}

/* The text or the bytes of a file. */
static const char *readLines(sqlite3_value *pVal, int *pn, BxErr *pErr) {
  const char *z = 0;
  int eType = sqlite3_value_type(pVal);
  if (pErr->rc != SQLITE_OK) return 0;
  if (eType == SQLITE_BLOB) z = sqlite3_value_blob(pVal);
  if (eType == SQLITE_TEXT) z = (const char *)sqlite3_value_text(pVal);
  *pn = sqlite3_value_bytes(pVal);
  if (z == 0 && (*pn > 0 || eType == SQLITE_TEXT)) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
  }
  if (z == 0 || *pn == 0) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: Invalid rollout file: the JSON lines must be text "
        "(or a blob, as "
        "from readfile()) that is not empty");
    return 0;
  }
  return z;
}

void bxRolloutImport(BxCall *p) {
  Import import;
  const char *z;
  int n = 0;
  memset(&import, 0, sizeof(import));
  import.pErr = &p->err;
  if (bxArg(p, 1)) bxRolloutId(p->aArg[1], import.zId, &p->err);
  import.bGiven = import.zId[0] != 0;
  import.iNow = bxTime(bxArg(p, 2), "now", &p->err);
  z = readLines(p->aArg[0], &n, &p->err);
  import.pHome = bxRolloutHome(p->bx, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  import.pBad = sqlite3_str_new(0);
  import.pBatch = bxRolloutBatchNew(&p->err);
  /* Without an id this only takes the write lock. */
  import.bOpen =
      bxRolloutFind(import.pHome, 1, import.zId, &import.head, &p->err);
  if (import.bOpen && import.head.iExpire < import.iNow) {
    bxRolloutExpired(import.zId, import.head.iExpire, &p->err);
  }
  if (import.bOpen) {
    bxRolloutNotShut(import.pHome, import.zId, import.head.no, &p->err);
  }
  importText(&import, z, n);
  if (!import.bOpen && import.bGiven && import.nEarly > 0) {
    importBare(&import, z, n);
  }
  if (!import.bOpen) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ValidationError: Invalid rollout file: none of its %lld lines is a "
        "session_meta with a UUID as id; pass the id of a conversation as "
        "second argument",
        import.nLine);
  }
  bxRolloutBatchDrop(
      import.pBatch, "damaged line", "", import.nBad, import.nBadByte, &p->err);
  bxRolloutBatchPut(import.pBatch, import.pHome, import.zId, &import.head,
      import.iNow, p->pCtx != 0, &p->err);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  returnReport(p, &import);
  bxRolloutBatchFree(import.pBatch);
}
