/*
** append.c: rollout_append(id, items[, now]).
**
** items is a JSON array of items, or one item: an object with type, payload and
** an optional timestamp (ISO 8601 text, or milliseconds). The policy is applied
** to each item. An item that it drops does not use a sequence, and is counted
** in rollout_drops. Either everything is written, or nothing.
**
** A payload is kept byte by byte as it was given.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct Append {
  BxStmts *pHome;
  RolloutWork work;
  const char *zItems; /* the argument */
  const char *zEnd;   /* its end; NULL once it is known to be JSON */
  int bArray;         /* it is an array, or else one item */
  i64 iNow;
  BxErr *pErr;
} Append;

/*--------------------------------------------------------------- items ----*/

/* JSON type, type if it is text, payload, payload's type, whether the type
** contains a NUL */
static const char zParts[] =
    "SELECT json_type(o), "
    "CASE json_type(o, '$.type') WHEN 'text' THEN o ->> 'type' END, "
    "o -> 'payload', o ->> '$.payload.type', " BX_JSON_HAS_NUL(
        "o -> 'type'") " FROM (SELECT ?1 AS o)";
static const char zTime[] =
    "SELECT CASE json_type(t) WHEN 'integer' THEN t ->> '$' "
    "WHEN 'text' THEN " BX_DATE_MS("t ->> '$'") " END FROM (SELECT ?1 AS t)";

static sqlite3_stmt *askSpan(Append *p, const char *zSql, RolloutSpan span) {
  sqlite3_stmt *pStmt = bxStmt(p->pHome, zSql, p->pErr);
  bxBind(pStmt, p->pErr, "b", span.z, span.n);
  return pStmt;
}

/* The time of an item, or that of the call if the item has none. */
static i64 readTime(Append *p, const RolloutItem *pItem) {
  sqlite3_stmt *pStmt;
  i64 iTime = -1;
  if (pItem->timestamp.z == 0) return p->iNow;
  if (pItem->timestamp.n == 26 && *pItem->timestamp.z == '"') {
    iTime = bxRolloutPlainTime(pItem->timestamp.z + 1);
    if (iTime >= 0) return iTime;
  }
  pStmt = askSpan(p, zTime, pItem->timestamp);
  if (bxRow(pStmt, p->pErr) &&
      sqlite3_column_type(pStmt, 0) == SQLITE_INTEGER) {
    iTime = sqlite3_column_int64(pStmt, 0);
  }
  bxDone(pStmt, p->pErr);
  return iTime < 0 || iTime > BX_MAX_TIME ? p->iNow : iTime;
}

static void badItem(Append *p, i64 i, const char *zFormat, const char *zWhat) {
  char *z = bxPrintf(p->pErr, zFormat, zWhat);
  bxFail(p->pErr, SQLITE_CONSTRAINT,
      "InvalidItemError: Invalid item format: item %lld %s; an item must be a "
      "JSON object with a type and a payload",
      i, z);
  sqlite3_free(z);
}

/* Keeps an item, or counts it as dropped, as the policy says. A payload without a
** type has NULL as zPayloadType, and no payload "". Frees zOwned. */
static void takeItem(Append *p, const RolloutItem *pItem, const char *zType,
    const char *zPayloadType, char *zOwned) {
  RolloutBatch *pBatch = p->work.pBatch;
  i64 iTime = readTime(p, pItem);
  if (!bxRolloutKeeps(p->pHome, zType, zPayloadType, p->pErr)) {
    bxRolloutBatchDrop(
        pBatch, zType, zPayloadType, 1, pItem->payload.n, p->pErr);
    sqlite3_free(zOwned);
    return;
  }
  bxRolloutTell(&p->work.tale,
      p->work.head.iLast + 1 + bxRolloutBatchCount(pBatch), zType, pItem, 0);
  bxRolloutBatchAdd(pBatch, iTime, zType, pItem->payload, zOwned, p->pErr);
}

/* Whether a column is text that is not empty and is valid as a C string and as
** UTF-8. JSON can express more than that. */
static int isTypeName(sqlite3_stmt *pRow, int i) {
  const unsigned char *z = sqlite3_column_text(pRow, i);
  int n = sqlite3_column_bytes(pRow, i);
  return sqlite3_column_type(pRow, i) == SQLITE_TEXT && n > 0 &&
         memchr(z, 0, (size_t)n) == 0 && bxIsUtf8(z, n);
}

/* Reads item i with SQLite's functions, and explains what is wrong with it. */
static void readOddItem(Append *p, i64 i, const RolloutItem *pGiven) {
  sqlite3_stmt *pRow = askSpan(p, zParts, pGiven->whole);
  RolloutItem item = *pGiven;
  const char *zJson, *zType, *zJsonPayload, *zPayloadType = 0;
  char *zOwned = 0;
  if (!bxRow(pRow, p->pErr)) {
    bxDone(pRow, p->pErr);
    return;
  }
  zJson = bxColumnText(pRow, 0, p->pErr);
  zType = bxColumnText(pRow, 1, p->pErr);
  zJsonPayload = bxColumnText(pRow, 2, p->pErr);
  bxColumnText(pRow, 3, p->pErr); /* for isTypeName() */
  if (p->pErr->rc != SQLITE_OK) {
    bxDone(pRow, p->pErr);
    return;
  }
  if (zJson == 0 || strcmp(zJson, "object") != 0) {
    badItem(p, i, "is of JSON type %s", zJson);
  } else if (zType == 0 || *zType == 0) {
    badItem(p, i, "has no type%s", "");
  } else if (sqlite3_column_int(pRow, 4)) {
    badItem(p, i, "has a type with a NUL%s", "");
  } else if (!isTypeName(pRow, 1)) {
    badItem(p, i, "has a type with half a surrogate pair%s", "");
  } else if (sqlite3_column_bytes(pRow, 1) > ROLLOUT_MAX_NAME) {
    badItem(p, i, "has a type of more than 100 bytes%s", "");
  }
  if (pGiven->bOdd && zJsonPayload != 0) {
    item.payload.n = sqlite3_column_bytes(pRow, 2);
    item.payload.z = zOwned = bxPrintf(p->pErr, "%s", zJsonPayload);
  }
  if (item.payload.z == 0) {
    zPayloadType = "";
  } else if (isTypeName(pRow, 3)) {
    zPayloadType = (const char *)sqlite3_column_text(pRow, 3);
  }
  if (p->pErr->rc == SQLITE_OK) {
    takeItem(p, &item, zType, zPayloadType, zOwned);
  } else {
    sqlite3_free(zOwned);
  }
  bxDone(pRow, p->pErr);
}

/* Whether the argument is JSON. (From SQLite 3.42 on, its other functions also
** accept JSON5.) */
static void checkAll(Append *p) {
  if (!bxIsJson(p->pHome->bx, p->zItems, (i64)strlen(p->zItems), p->pErr)) {
    bxFail(p->pErr, SQLITE_CONSTRAINT,
        "InvalidItemError: Invalid item format: malformed JSON, or JSON nested "
        "deeper than SQLite allows; items must be a JSON array of objects, or "
        "one object");
  }
  p->zEnd = 0;
}

/* Finds the parts of the item at z. Returns its end, or NULL on error. The text
** is checked on the way, or SQLite checks all of it. */
static const char *walkItem(Append *p, const char *z, RolloutItem *pItem) {
  const char *zAfter = bxRolloutReadItem(z, p->zEnd, pItem);
  if (zAfter != 0) return zAfter;
  checkAll(p);
  return p->pErr->rc == SQLITE_OK ? bxRolloutReadItem(z, 0, pItem) : 0;
}

/* Reads item i, which begins at z. Returns its end. Nearly all items are plain:
** their names can be copied without decoding. */
static const char *readOne(Append *p, i64 i, const char *z) {
  char zType[ROLLOUT_MAX_NAME + 1], zPayloadType[ROLLOUT_MAX_NAME + 1];
  const char *zPayload = zPayloadType;
  RolloutItem item;
  int bPlain;
  z = walkItem(p, z, &item);
  if (z == 0) return 0;
  bPlain = !item.bOdd && bxRolloutName(item.type, zType) > 0;
  if (item.payloadType.z == 0) {
    zPayload = item.payload.z != 0 ? 0 : "";
  } else if (bxRolloutName(item.payloadType, zPayloadType) == 0) {
    bPlain = 0;
  }
  if (item.payload.n > ROLLOUT_MAX_PAYLOAD) {
    bxFail(p->pErr, SQLITE_TOOBIG,
        "InvalidItemError: Invalid item format: item %lld has a payload of "
        "%lld bytes, and the limit is %d; store large data elsewhere, and a "
        "reference here",
        i, item.payload.n, ROLLOUT_MAX_PAYLOAD);
  } else if (bPlain) {
    takeItem(p, &item, zType, zPayload, 0);
  } else {
    readOddItem(p, i, &item);
  }
  return z;
}

/* The text of the argument. */
static const char *readItems(sqlite3_value *pVal, BxErr *pErr) {
  const char *z;
  char cFirst;
  if (pErr->rc != SQLITE_OK) return 0;
  z = bxText(pVal, "items", ROLLOUT_MAX_TEXT, 0, pErr);
  bxRename(pErr, "ValidationError", "InvalidItemError: Invalid item format: ");
  cFirst = z != 0 ? z[strspn(z, " \t\r\n")] : '[';
  if (cFirst != '[' && cFirst != '{') {
    bxRefuse(pErr,
        "InvalidItemError: Invalid item format: items must be a JSON array of "
        "objects, or one object, got %s",
        pVal);
  }
  return z;
}

/* The item after the item, or after the empty array, that ends at z. NULL if
** there is none. */
static const char *nextItem(Append *p, const char *z) {
  int bClosed;
  z = bxSkipSpace(z);
  if (p->bArray && *z == ',') return z + 1;
  bClosed = !p->bArray || *z == ']';
  if (p->bArray && bClosed) z = bxSkipSpace(z + 1);
  if (p->zEnd != 0 && (!bClosed || z != p->zEnd)) checkAll(p);
  return 0;
}

static void readAll(Append *p) {
  const char *z = bxSkipSpace(p->zItems);
  i64 i;
  p->bArray = *z == '[';
  if (p->bArray) z = bxSkipSpace(z + 1);
  if (p->bArray && *z == ']') z = nextItem(p, z);
  for (i = 0; z != 0; i++) {
    z = readOne(p, i, z);
    z = p->pErr->rc == SQLITE_OK ? nextItem(p, z) : 0;
  }
}

void bxRolloutAppend(BxCall *p) {
  Append append;
  RolloutWork *pWork = &append.work;
  memset(&append, 0, sizeof(append));
  append.pErr = &p->err;
  bxRolloutId(p->aArg[0], pWork->zId, &p->err);
  append.zItems = readItems(p->aArg[1], &p->err);
  append.iNow = bxTime(bxArg(p, 2), "now", &p->err);
  append.pHome = bxRolloutHome(p->bx, &p->err);
  bxRolloutOpen(
      append.pHome, 1, pWork->zId, append.iNow, &pWork->head, &p->err);
  bxRolloutNotShut(append.pHome, pWork->zId, &p->err);
  bxRolloutWorkBegin(pWork, append.pHome, &p->err);
  if (p->err.rc == SQLITE_OK) {
    append.zEnd = append.zItems + sqlite3_value_bytes(p->aArg[1]);
    readAll(&append);
  }
  bxRolloutWorkPut(&pWork, 1, append.pHome, append.iNow, &p->err);
  if (pWork->head.bAnyBehind) bxRolloutCatchUp(append.pHome, 0, &p->err);
  if (p->err.rc == SQLITE_OK) {
    i64 n = bxRolloutBatchCount(pWork->pBatch);
    bxReturnInt(p, n);
    bxRoom(append.pHome, n, p->pCtx == 0, &p->err);
  }
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  bxRolloutWorkEnd(pWork);
}
