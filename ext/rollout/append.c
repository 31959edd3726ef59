/*
** append.c: rollout_append(id, items[, now]).
**
** items is a JSON array of items, or one item: an object with type, payload
** and, if it likes, timestamp (ISO 8601 text, or milliseconds). Each goes
** through the policy; what it drops uses no sequence and is counted in
** rollout_drops. Either all is written, or nothing.
**
** SQLite's own JSON functions take the array apart. A payload is the text
** that was given, without white space between its tokens.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* What the policy says of a pair of types, asked once a call, and what came
** of them that it drops. */
typedef struct Pair {
  char *zType;
  char *zPayloadType; /* NULL: payload without a type; "": no payload */
  int bKeep;
  i64 nDropped, nByte;
} Pair;

typedef struct Append {
  BxStmts *pHome;
  RolloutHead head;
  i64 iNow;
  RolloutBatch *pBatch;
  int nPair, nPairAlloc;
  Pair *aPair;
  BxErr *pErr;
} Append;

/* Compares two names as the policy does: some_name is SomeName. */
static int isName(const char *z, const char *zName) {
  while (*z || *zName) {
    if (*z == '_') {
      z++;
    } else if (*zName == '_') {
      zName++;
    } else {
      char c = *z >= 'A' && *z <= 'Z' ? (char)(*z + 32) : *z;
      if (c != *zName) return 0;
      z++;
      zName++;
    }
  }
  return 1;
}

/* Whether a message may have the role "user", also with a letter of it
** written as \u0075, \u0073, \u0065 or \u0072. Payloads are looked at whole,
** but for those that begin as most do. */
static int mayHaveUser(const char *z) {
  static const char zMost[] = "{\"type\":\"message\",\"role\":\"assistant\"";
  if (strncmp(z, zMost, sizeof(zMost) - 1) == 0) return 0;
  return strstr(z, "\"user\"") != 0 || strstr(z, "\\u007") != 0 ||
         strstr(z, "\\u0065") != 0;
}

int bxRolloutMatters(
    const char *zType, const char *zPayload, const char *zPayloadType) {
  if (isName(zType, "response_item")) {
    return zPayloadType != 0 && isName(zPayloadType, "message") &&
           mayHaveUser(zPayload);
  }
  if (isName(zType, "event_msg")) {
    return zPayloadType != 0 && (isName(zPayloadType, "user_message") ||
                                    isName(zPayloadType, "thread_rolled_back"));
  }
  return isName(zType, "compacted") || isName(zType, "session_meta");
}

/*-------------------------------------------------------------- policy ----*/

/* As the trigger rollout_log_insert asks. ?2 is '' for an item without payload
** and NULL for a payload without type. */
static const char zKeep[] =
    "SELECT coalesce("
    "(SELECT keep FROM main.rollout_rules WHERE item_key = t AND "
    "payload_key = coalesce(p, '*')), "
    "(SELECT keep FROM main.rollout_rules WHERE item_key = t AND "
    "payload_key = '*' AND p IS NOT ''), "
    "(SELECT keep FROM main.rollout_rules WHERE item_key = '*' AND "
    "payload_key = coalesce(p, '*')), "
    "(SELECT keep FROM main.rollout_rules WHERE item_key = '*' AND "
    "payload_key = '*' AND p IS NOT ''), 0) "
    "FROM (SELECT lower(replace(?1, '_', '')) AS t, "
    "lower(replace(?2, '_', '')) AS p)";

static int askPolicy(Append *p, const char *zType, const char *zPayloadType) {
  sqlite3_stmt *pStmt = bxStmt(p->pHome, zKeep, p->pErr);
  int bKeep = 0;
  bxBind(pStmt, p->pErr, "tt", zType, zPayloadType);
  if (bxRow(pStmt, p->pErr)) bKeep = sqlite3_column_int(pStmt, 0);
  bxDone(pStmt, p->pErr);
  return bKeep;
}

static int sameText(const char *z1, const char *z2) {
  return z1 == 0 || z2 == 0 ? z1 == z2 : strcmp(z1, z2) == 0;
}

/* The pair of these types, new or not. NULL on error. */
static Pair *findPair(Append *p, const char *zType, const char *zPayloadType) {
  Pair *pPair;
  int i;
  for (i = 0; i < p->nPair; i++) {
    pPair = &p->aPair[i];
    if (sameText(pPair->zType, zType) &&
        sameText(pPair->zPayloadType, zPayloadType)) {
      return pPair;
    }
  }
  if (p->nPair == p->nPairAlloc) {
    int nNew = p->nPairAlloc ? p->nPairAlloc * 2 : 16;
    pPair = sqlite3_realloc64(p->aPair, (sqlite3_uint64)nNew * sizeof(Pair));
    if (pPair == 0) {
      bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
      return 0;
    }
    p->aPair = pPair;
    p->nPairAlloc = nNew;
  }
  pPair = &p->aPair[p->nPair++];
  memset(pPair, 0, sizeof(*pPair));
  pPair->bKeep = askPolicy(p, zType, zPayloadType);
  pPair->zType = sqlite3_mprintf("%s", zType);
  pPair->zPayloadType = zPayloadType ? sqlite3_mprintf("%s", zPayloadType) : 0;
  if (pPair->zType == 0 || (zPayloadType != 0 && pPair->zPayloadType == 0)) {
    bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
  }
  return p->pErr->rc == SQLITE_OK ? pPair : 0;
}

static const char zDrop[] =
    "INSERT INTO main.rollout_drops(no, item_type, payload_type, items, bytes) "
    "VALUES (?1, substr(?2, 1, 100), substr(coalesce(?3, ''), 1, 100), ?4, ?5) "
    "ON CONFLICT (no, item_type, payload_type) DO UPDATE "
    "SET items = items + excluded.items, bytes = bytes + excluded.bytes";

void bxRolloutDrop(BxStmts *p, i64 no, const char *zType,
    const char *zPayloadType, i64 nItem, i64 nByte, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(p, zDrop, pErr);
  bxBind(pStmt, pErr, "ittii", no, zType, zPayloadType, nItem, nByte);
  bxRun(pStmt, pErr);
}

/* Writes what was dropped, and frees the pairs. */
static void closePairs(Append *p) {
  int i;
  for (i = 0; i < p->nPair; i++) {
    Pair *pPair = &p->aPair[i];
    if (pPair->nDropped > 0 && p->pErr->rc == SQLITE_OK) {
      bxRolloutDrop(p->pHome, p->head.no, pPair->zType, pPair->zPayloadType,
          pPair->nDropped, pPair->nByte, p->pErr);
    }
    sqlite3_free(pPair->zType);
    sqlite3_free(pPair->zPayloadType);
  }
  sqlite3_free(p->aPair);
}

/*--------------------------------------------------------------- items ----*/

/* Columns of both: index, JSON type, type, payload, payload's type, time.
** ?2: whether the word timestamp occurs at all. */
#define ITEM_COLUMNS                                                           \
  "o ->> 'type', o -> 'payload', o ->> '$.payload.type', CASE WHEN ?2 THEN "   \
  "CASE json_type(o, '$.timestamp') "                                          \
  "WHEN 'integer' THEN o ->> 'timestamp' WHEN 'text' THEN " ROLLOUT_MS(        \
      "o ->> 'timestamp'") " END END "
static const char zArray[] =
    "SELECT key, type, " ITEM_COLUMNS
    "FROM (SELECT key, type, CASE type WHEN 'object' THEN value END AS o "
    "FROM json_each(?1) LIMIT -1)";
static const char zSingle[] =
    "SELECT 0, json_type(?1), " ITEM_COLUMNS "FROM (SELECT ?1 AS o)";

static void badItem(Append *p, i64 i, const char *zFormat, const char *zWhat) {
  char *z = sqlite3_mprintf(zFormat, zWhat);
  if (z == 0) bxFail(p->pErr, SQLITE_NOMEM, "out of memory");
  bxFail(p->pErr, SQLITE_CONSTRAINT,
      "Invalid item format: item %lld %s; an item is a JSON object with a "
      "type and a payload",
      i, z);
  sqlite3_free(z);
}

/* One row of the query above: checked, then kept or counted. */
static void readItem(Append *p, sqlite3_stmt *pRow) {
  i64 i = sqlite3_column_int64(pRow, 0);
  const char *zJson = (const char *)sqlite3_column_text(pRow, 1);
  const char *zType = (const char *)sqlite3_column_text(pRow, 2);
  const char *zPayload = (const char *)sqlite3_column_text(pRow, 3);
  i64 nPayload = sqlite3_column_bytes(pRow, 3);
  const char *zPayloadType = 0;
  Pair *pPair;
  i64 iTime = p->iNow, iPayload = -1;
  if (sqlite3_column_type(pRow, 4) == SQLITE_TEXT) {
    zPayloadType = (const char *)sqlite3_column_text(pRow, 4);
  }
  if (zJson == 0 || strcmp(zJson, "object") != 0) {
    badItem(p, i, "is of JSON type %s", zJson);
  } else if (zType == 0 || sqlite3_column_type(pRow, 2) != SQLITE_TEXT ||
             strchr("[{", *zType) != 0) { /* empty, or an array or object */
    badItem(p, i, "has no type%s", "");
  } else if (sqlite3_column_bytes(pRow, 2) > 100) {
    badItem(p, i, "has a type of more than 100 bytes%s", "");
  } else if (nPayload > ROLLOUT_MAX_PAYLOAD) {
    bxFail(p->pErr, SQLITE_TOOBIG,
        "Invalid item format: item %lld has a payload of %lld bytes, the "
        "limit is %d; store large data apart and keep a reference",
        i, nPayload, ROLLOUT_MAX_PAYLOAD);
  }
  if (p->pErr->rc != SQLITE_OK) return;
  if (sqlite3_column_type(pRow, 5) == SQLITE_INTEGER) {
    iTime = sqlite3_column_int64(pRow, 5);
    if (iTime < 0 || iTime > BX_MAX_TIME) iTime = p->iNow;
  }
  pPair = findPair(p, zType, zPayload ? zPayloadType : "");
  if (pPair == 0) return;
  if (!pPair->bKeep) {
    pPair->nDropped++;
    pPair->nByte += nPayload;
    return;
  }
  if (zPayload != 0) {
    iPayload = bxRolloutBatchText(p->pBatch, zPayload, nPayload, p->pErr);
  }
  bxRolloutBatchAdd(p->pBatch, iTime, pPair->zType, iPayload, nPayload,
      zPayload != 0 && bxRolloutMatters(zType, zPayload, zPayloadType),
      p->pErr);
}

/* The text of the argument; *pbArray tells what it begins with. */
static const char *readItems(sqlite3_value *pVal, int *pbArray, BxErr *pErr) {
  int bFailed = pErr->rc != SQLITE_OK;
  const char *z = bxText(pVal, "items", ROLLOUT_MAX_TEXT, 0, pErr);
  if (z == 0) {
    if (!bFailed && pErr->rc == SQLITE_CONSTRAINT) {
      bxPrefix(pErr, "Invalid item format: ");
    }
    return 0;
  }
  *pbArray = (unsigned char)z[strspn(z, " \t\r\n")];
  if (*pbArray != '[' && *pbArray != '{') {
    char *zShown = bxShow(pVal);
    if (zShown == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    bxFail(pErr, SQLITE_CONSTRAINT,
        "Invalid item format: items must be a JSON array of objects, or one "
        "object, got %s",
        zShown);
    sqlite3_free(zShown);
  }
  *pbArray = *pbArray == '[';
  return z;
}

/* From SQLite 3.42 on, its functions also read JSON5. Only JSON is taken. */
static void checkJson(Append *p, const char *zItems) {
  static const char zValid[] = "SELECT json_valid(?1)";
  sqlite3_stmt *pStmt;
  if (sqlite3_libversion_number() < 3042000) return;
  pStmt = bxStmt(p->pHome, zValid, p->pErr);
  bxBind(pStmt, p->pErr, "t", zItems);
  if (bxRow(pStmt, p->pErr) && !sqlite3_column_int(pStmt, 0)) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "Invalid item format: malformed JSON (or nested deeper than SQLite "
        "reads); items must be a JSON array of objects, or one object");
  }
  bxDone(pStmt, p->pErr);
}

/*--------------------------------------------------------- plain items ----*/

/*
** Nearly every item is {"type":"...","payload":{"type":"...",...}} and no
** more. Written without white space, as json_each() gives it, such a text
** shows its parts at fixed places, and four JSON calls for each item can be
** saved. Whether what stands behind "payload": is one value, and not also a
** third member, is asked of SQLite for all items at once: only then is
** [payload,payload,...] an array of as many elements. If anything is
** otherwise, all items are read again in the general way.
*/

/* Copies the name at z, up to the quote. Returns its length, 0 for none. */
static int plainName(const char *z, char zName[101]) {
  int n = 0;
  while (n < 101 && ((z[n] >= 'a' && z[n] <= 'z') || z[n] == '_' ||
                        (z[n] >= 'A' && z[n] <= 'Z'))) {
    n++;
  }
  if (n == 101 || z[n] != '"') return 0;
  memcpy(zName, z, (size_t)n);
  zName[n] = 0;
  return n;
}

#define TYPE_IS "{\"type\":\""
#define PAYLOAD_IS "\",\"payload\":"

/* Takes one item into the batch. Returns 0 when it is not plain. */
static int plainItem(Append *p, const char *z, int n) {
  char zType[101], zPayloadType[101];
  const char *zEnd = z + n - 1; /* the closing brace */
  Pair *pPair;
  i64 iPayload;
  int nName;
  if (n < 30 || memcmp(z, TYPE_IS, strlen(TYPE_IS)) != 0) return 0;
  z += strlen(TYPE_IS);
  nName = plainName(z, zType);
  z += nName;
  if (nName == 0 || strncmp(z, PAYLOAD_IS, strlen(PAYLOAD_IS)) != 0) return 0;
  z += strlen(PAYLOAD_IS);
  if (strncmp(z, TYPE_IS, strlen(TYPE_IS)) != 0 ||
      plainName(z + strlen(TYPE_IS), zPayloadType) == 0 ||
      zEnd - z > ROLLOUT_MAX_PAYLOAD) {
    return 0;
  }
  iPayload = bxRolloutBatchText(p->pBatch, z, zEnd - z, p->pErr);
  pPair = findPair(p, zType, zPayloadType);
  if (pPair == 0) return 0;
  if (pPair->bKeep) {
    bxRolloutBatchAdd(p->pBatch, p->iNow, pPair->zType, iPayload, zEnd - z,
        bxRolloutMatters(zType, z, zPayloadType), p->pErr);
  } else {
    pPair->nDropped++;
    pPair->nByte += zEnd - z;
  }
  return p->pErr->rc == SQLITE_OK;
}

static const char zValues[] = "SELECT value FROM json_each(?1)";
static const char zCount[] = "SELECT json_array_length(?1)";

/* Whether the payloads copied are n values. */
static int areValues(Append *p, i64 n) {
  sqlite3_stmt *pStmt = bxStmt(p->pHome, zCount, p->pErr);
  BxErr err = {SQLITE_OK, 0}; /* malformed: that is, they are not */
  i64 nText;
  const char *z = bxRolloutBatchArray(p->pBatch, &nText);
  int bSo;
  if (pStmt == 0) return 0;
  bxFailDb(&err, p->pHome->bx->db,
      sqlite3_bind_text64(
          pStmt, 1, z, (sqlite3_uint64)nText, SQLITE_STATIC, SQLITE_UTF8));
  bSo = bxRow(pStmt, &err) && sqlite3_column_int64(pStmt, 0) == n;
  bxDone(pStmt, &err);
  bxClear(&err);
  return bSo;
}

/* Reads an array of plain items. Returns 0, with nothing taken, when they are
** not all plain. */
static int readPlain(Append *p, const char *zItems) {
  sqlite3_stmt *pRow = bxStmt(p->pHome, zValues, p->pErr);
  BxErr err = {SQLITE_OK, 0};
  int i, bPlain = pRow != 0;
  i64 n = 0;
  bxBind(pRow, p->pErr, "t", zItems);
  while (bPlain && bxRow(pRow, &err)) {
    const char *z = (const char *)sqlite3_column_text(pRow, 0);
    bPlain = z && plainItem(p, z, sqlite3_column_bytes(pRow, 0));
    n++;
  }
  bxDone(pRow, &err);
  bPlain = bPlain && n > 0 && err.rc == SQLITE_OK && areValues(p, n);
  bxClear(&err);
  if (bPlain || p->pErr->rc != SQLITE_OK) return bPlain;
  bxRolloutBatchClear(p->pBatch);
  for (i = 0; i < p->nPair; i++) {
    p->aPair[i].nDropped = 0;
    p->aPair[i].nByte = 0;
  }
  return 0;
}

static void readAll(Append *p, const char *zItems, int bArray) {
  BxErr err = {SQLITE_OK, 0};
  sqlite3_stmt *pRow;
  if (bArray && readPlain(p, zItems)) return;
  pRow = bxStmt(p->pHome, bArray ? zArray : zSingle, p->pErr);
  bxBind(pRow, p->pErr, "ti", zItems, (i64)(strstr(zItems, "timestamp") != 0));
  if (p->pErr->rc != SQLITE_OK) return;
  while (p->pErr->rc == SQLITE_OK && bxRow(pRow, &err)) readItem(p, pRow);
  bxDone(pRow, &err);
  if (p->pErr->rc != SQLITE_OK) {
    bxClear(&err);
  } else if ((err.rc & 0xff) == SQLITE_ERROR) { /* "malformed JSON" */
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "Invalid item format: %s (or nested deeper than SQLite reads); items "
        "must be a JSON array of objects, or one object",
        err.zMsg);
    bxClear(&err);
  } else {
    *p->pErr = err;
  }
}

void bxRolloutAppend(BxCall *p) {
  Append append;
  char zId[37];
  const char *zItems;
  i64 nKept = 0;
  int bArray = 0;
  memset(&append, 0, sizeof(append));
  append.pErr = &p->err;
  bxRolloutId(p->aArg[0], zId, &p->err);
  zItems = readItems(p->aArg[1], &bArray, &p->err);
  append.iNow = bxTime(bxArg(p, 2), "now", &p->err);
  append.pHome = bxRolloutHome(p->bx, &p->err);
  if (p->err.rc == SQLITE_OK && bxRolloutIsShut(p->bx, zId)) {
    bxFail(&p->err, SQLITE_MISUSE,
        "Rollout is shut down: %s, on this connection; rollout_resume('%s') "
        "takes it up again",
        zId, zId);
  }
  bxRolloutOpen(append.pHome, 1, zId, append.iNow, &append.head, &p->err);
  append.pBatch = bxRolloutBatchNew(zItems ? (i64)strlen(zItems) : 0, &p->err);
  if (p->err.rc == SQLITE_OK) checkJson(&append, zItems);
  if (p->err.rc == SQLITE_OK) readAll(&append, zItems, bArray);
  if (p->err.rc == SQLITE_OK) {
    nKept = bxRolloutBatchPut(
        append.pBatch, append.pHome, &append.head, p->pCtx != 0, &p->err);
  }
  bxRolloutBatchFree(append.pBatch);
  closePairs(&append);
  bxRolloutExplain(&p->err, "Write failed: ", zId);
  bxReturnInt(p, nKept);
}
