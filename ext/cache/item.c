/*
** item.c: cache_write(), cache_read(), cache_update(), cache_delete().
**
** The data are JSON text and are stored byte for byte as given. A write returns
** the metadata of the item, never its data. A read copies the stored bytes into
** its result unchanged.
**
** A write is one statement on cache_items. The triggers check it and keep the
** totals, so it is atomic without a savepoint of its own. It also removes two items that
** have expired. A read leaves a mark (access.c): it marks the session as in use, and
** counts a read. For a read or an update, an item that has expired does not exist.
**
** Limits: those of the settings (SELECT * FROM blackbox_settings).
*/
#include "cache.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <limits.h>
#include <string.h>

#define MAX_KEY_TRIES 8

/* Text of the data or the custom metadata. */
static const char *cacheText(BxCall *p, int i, const char *zWhat, int bNull) {
  return bxText(bxArg(p, i), zWhat, INT_MAX, bNull, &p->err);
}

/* Eight random characters of a-z and 0-9, all equally likely. */
static const char *cachePart(char zOut[9]) {
  static const char zLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  int n = 0;
  assert(zOut != 0);
  while (n < 8) {
    unsigned char c;
    sqlite3_randomness(1, &c);
    if (c < 252) zOut[n++] = zLetters[c % 36]; /* 252 is 7 times 36 */
  }
  zOut[8] = 0;
  return zOut;
}

/* A description ?4 over the limit is cut and ends in "...". */
#define DESCRIPTION                                                            \
  "(SELECT iif(length(?4) > max_description, substr(?4, 1, max_description "   \
  "- 3) || '...', ?4) FROM main.cache__limits)"

/* clang-format off */
/* ?8 is 1 if the key was made here. It must not be that of another item. */
static const char zCacheWrite[] =
    "INSERT INTO main.cache_items(session_id, task_id, turn_id, description,"
    " timestamp, custom_metadata, data, expires_at)"
    " VALUES(?1, ?2, ?3, " DESCRIPTION ", ?5, ?6, ?7, ?9)"
    " ON CONFLICT(storage_key) DO UPDATE SET"
    " description = excluded.description, timestamp = excluded.timestamp,"
    " data = excluded.data, custom_metadata = excluded.custom_metadata,"
    " expires_at = excluded.expires_at"
    " WHERE NOT ?8 RETURNING " CACHE_METADATA ", id";

/* An item that has expired does not exist. */
#define LIVING_AT(now) " AND coalesce(expires_at >= " now ", 1)"

static const char zCacheUpdate[] =
    "UPDATE main.cache_items SET data = ?2, description = " DESCRIPTION
    ", custom_metadata = coalesce(?5, custom_metadata), timestamp = ?6,"
    " expires_at = coalesce(?7, expires_at)"
    " WHERE storage_key = ?1 AND (?3 IS NULL OR session_id = ?3)"
    LIVING_AT("?6") " RETURNING " CACHE_METADATA ", id";

/* The time of the last mark of the session is needed only if none was written for the
** interval: ?4 is since when. */
static const char zCacheRead[] =
    "SELECT storage_key, data, description, session_id, task_id, turn_id,"
    " custom_metadata, timestamp, data_size, m.value,"
    " CASE WHEN ?4 NOT BETWEEN 0 AND m.value - 1 THEN (SELECT last_accessed_at"
    " FROM main.cache_sessions AS s WHERE s.session_id = i.session_id) END"
    " FROM main.cache_items AS i LEFT JOIN main.blackbox_settings AS m"
    " ON m.name = 'cache.mark_interval_ms'"
    " WHERE storage_key = ?1 AND (?2 IS NULL OR session_id = ?2)"
    LIVING_AT("?3");
/* clang-format on */

enum {
  ITEM_KEY,
  ITEM_DATA,
  ITEM_DESCRIPTION,
  ITEM_SESSION,
  ITEM_TASK,
  ITEM_TURN,
  ITEM_METADATA,
  ITEM_TIMESTAMP,
  ITEM_SIZE,
  ITEM_INTERVAL,
  ITEM_MARKED
};

/* A deletion counts as an access of the session. */
static const char zCacheTouch[] =
    "UPDATE main.cache_sessions SET last_accessed_at = ?2"
    " WHERE session_id = ?1 AND last_accessed_at < ?2";

static const char zCacheDelete[] =
    "DELETE FROM main.cache_items"
    " WHERE storage_key = ?1 AND (?2 IS NULL OR session_id = ?2)"
    " RETURNING session_id";

/* Steps a statement that returns one row of JSON, and makes that the result.
** Returns whether there was a row. */
static int returnRow(BxCall *p, BxStmts *pHome, sqlite3_stmt *pStmt) {
  int bRow = bxStep(pStmt, &p->err);
  i64 id = bRow ? sqlite3_column_int64(pStmt, 1) : 0;
  assert(pStmt != 0 || p->err.rc != SQLITE_OK);
  if (bRow) bxReturnJson(p, bxColumnCopy(pStmt, 0, &p->err));
  if (bRow) bxFileLimitWrote(pHome, &bxCacheFileLimit, id, id);
  bxStmtRun(pStmt, &p->err);
  return bRow;
}

/*-------------------------------------------------------------- write ----*/

static void cacheWriteItem(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 0), "session_id", 0, &p->err);
  const char *zTask = bxCacheKey(bxArg(p, 1), "task_id", 1, &p->err);
  const char *zTurn = bxCacheKey(bxArg(p, 2), "turn_id", 1, &p->err);
  const char *zData = cacheText(p, 3, "data", 0);
  const char *zDescription = cacheText(p, 4, "description", 0);
  const char *zMetadata = cacheText(p, 5, "custom_metadata", 1);
  i64 iNow = bxTime(bxArg(p, 6), "now", &p->err);
  i64 iEnd = bxArg(p, 7) ? bxTime(p->aArg[7], "expires_at", &p->err) : 0;
  int bMade = zTask == 0 || zTurn == 0;
  int nTry = bMade ? MAX_KEY_TRIES : 1;
  char zTaskMade[9], zTurnMade[9];
  while (p->err.rc == SQLITE_OK && nTry-- > 0) {
    sqlite3_stmt *pStmt = bxStmt(pHome, zCacheWrite, &p->err);
    bxBind(pStmt, &p->err, bxArg(p, 7) ? "ttttittii" : "ttttittin", zSession,
        zTask ? zTask : cachePart(zTaskMade),
        zTurn ? zTurn : cachePart(zTurnMade), zDescription, iNow, zMetadata,
        zData, (i64)bMade, iEnd);
    if (returnRow(p, pHome, pStmt)) {
      /* the schema has found both to be JSON */
      bxJsonRemember(p->bx, zData, (i64)strlen(zData));
      if (zMetadata) bxJsonRemember(p->bx, zMetadata, (i64)strlen(zMetadata));
      return;
    }
  }
  bxFail(&p->err, SQLITE_CONSTRAINT,
      "InvalidKeyFormatError: no unused turn_id was found in task %Q; pass a "
      "turn_id",
      zTask ? zTask : "");
}

/* When the next item expires, or the file has not seen the time for an hour. */
static const char zCacheNext[] =
    "SELECT min(seen + 3600000, coalesce((SELECT expires_at FROM"
    " main.cache_items WHERE expires_at IS NOT NULL ORDER BY expires_at LIMIT"
    " 1), seen + 3600000)) FROM main.retention__clock";
static const char zCacheExpire[] =
    "DELETE FROM main.cache_items WHERE id IN (SELECT id FROM"
    " (SELECT id, session_id FROM main.cache_items WHERE expires_at < ?1"
    " ORDER BY expires_at LIMIT 100) AS d"
    " WHERE NOT EXISTS (SELECT 1 FROM main.retention__holds"
    " WHERE kind = 'session' AND \"key\" = d.session_id)"
    " LIMIT 2)";

/* Whether an item may have expired. What this connection changes otherwise makes it look
** again at once, what others change after QUIET_MS. */
#define QUIET_MS 1000
static int mayHaveExpired(CacheNextExpiry *p, BxStmts *pHome, BxErr *pErr) {
  i64 iNow = bxNow(), iNext;
  assert(pHome != 0);
  if (p != 0 && p->pHome == pHome && p->iUntil >= iNow &&
      p->nChange == sqlite3_total_changes(pHome->bx->db)) {
    return 0;
  }
  /* in a transaction SQLite waits for no other writer after a read */
  if (!sqlite3_get_autocommit(pHome->bx->db)) bxLock(pHome, pErr);
  iNext = bxQueryInt(pHome, zCacheNext, pErr, "");
  if (p != 0) {
    p->pHome = pHome;
    p->iUntil = iNext < iNow + QUIET_MS ? iNext : iNow + QUIET_MS;
  }
  return iNext < iNow;
}

/* Removes two items that have expired, before the write, which may need the room. Never
** fails because of them: it removes none while something could refuse it, or the clock
** is in doubt. */
static void removeExpired(BxStmts *pHome, BxErr *pErr) {
  i64 iNow = bxTrustedTime(pHome, 1, pErr);
  assert(!bxIsWriting(pHome->bx));
  if (bxOthersRefuse(pHome, "cache.expired", 0, pErr)) return;
  bxStmtExec(pHome, bxCacheRule, pErr, "t", "expired");
  bxStmtExec(pHome, zCacheExpire, pErr, "i", iNow);
  bxStmtExec(pHome, bxCacheRule, pErr, "n");
}

void bxCacheWrite(BxCall *p) {
  static const char *const azArg[] = {"session_id", "task_id", "turn_id",
      "data", "description", "custom_metadata", "timestamp", "expires_at", 0};
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  CacheNextExpiry *pQuiet = bxCacheNextExpiry(p->bx);
  int bBegun = pHome != 0 && !bxIsWriting(p->bx) &&
               mayHaveExpired(pQuiet, pHome, &p->err);
  if (bBegun) bxSavepoint(p->bx, "cache_write", &p->err);
  bBegun &= p->err.rc == SQLITE_OK;
  if (bBegun) removeExpired(pHome, &p->err);
  cacheWriteItem(p);
  if (bBegun) bxRelease(p->bx, &p->err);
  bxFileLimitTend(pHome, 1, p->pCtx == 0, &p->err);
  if (pQuiet != 0) {
    i64 iEnd = bxArg(p, 7) ? sqlite3_value_int64(p->aArg[7]) : pQuiet->iUntil;
    if (iEnd < pQuiet->iUntil) pQuiet->iUntil = iEnd;
    pQuiet->nChange = sqlite3_total_changes(p->bx->db);
  }
  bxCacheExplain(p, azArg);
}

/*------------------------------------------------------------- update ----*/

void bxCacheUpdate(BxCall *p) {
  static const char *const azArg[] = {"storage_key", "data", "description",
      "custom_metadata", "session_id", "timestamp", "expires_at", 0};
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zKey = bxCacheKey(bxArg(p, 0), "storage_key", 0, &p->err);
  const char *zData = cacheText(p, 1, "data", 0);
  const char *zDescription = cacheText(p, 2, "description", 0);
  const char *zMetadata = cacheText(p, 3, "custom_metadata", 1);
  const char *zSession = bxCacheKey(bxArg(p, 4), "session_id", 1, &p->err);
  i64 iNow = bxTime(bxArg(p, 5), "now", &p->err);
  i64 iEnd = bxArg(p, 6) ? bxTime(p->aArg[6], "expires_at", &p->err) : 0;
  sqlite3_stmt *pStmt = bxStmt(pHome, zCacheUpdate, &p->err);
  bxBind(pStmt, &p->err, bxArg(p, 6) ? "tttttii" : "tttttin", zKey, zData,
      zSession, zDescription, zMetadata, iNow, iEnd);
  if (!returnRow(p, pHome, pStmt) && p->err.rc == SQLITE_OK) {
    bxCacheNotFound(pHome, p->aArg[0], bxArg(p, 4), &p->err);
  }
  bxFileLimitTend(pHome, 1, p->pCtx == 0, &p->err);
  bxCacheExplain(p, azArg);
}

/*--------------------------------------------------------------- read ----*/

typedef struct CacheText {
  const char *z; /* NULL: the column is NULL */
  int n;
  int bJson; /* it is known to be JSON, and need not end with a NUL */
} CacheText;

/* Reads the texts of a row, the data as a blob: SQLite copies a long text to end it with
** a NUL. */
static void cacheItemTexts(
    Bx *bx, sqlite3_stmt *pItem, CacheText a[], BxErr *pErr) {
  int i;
  for (i = ITEM_KEY; i <= ITEM_METADATA && pErr->rc == SQLITE_OK; i++) {
    if (i == ITEM_DATA && sqlite3_column_type(pItem, i) == SQLITE_TEXT) {
      a[i].z = sqlite3_column_blob(pItem, i);
      a[i].n = sqlite3_column_bytes(pItem, i);
      a[i].bJson = a[i].z != 0 && bxJsonIsKnown(bx, a[i].z, a[i].n);
      if (a[i].bJson) continue;
    }
    a[i].z = (const char *)sqlite3_column_text(pItem, i);
    a[i].n = sqlite3_column_bytes(pItem, i);
    if (a[i].z == 0 && sqlite3_column_type(pItem, i) != SQLITE_NULL) {
      bxFail(pErr, SQLITE_NOMEM, "out of memory");
    }
  }
}

static int cacheIsDamaged(Bx *bx, const CacheText *p, BxErr *pErr) {
  return !p->bJson && !bxIsJsonCached(bx, p->z, p->n, pErr) &&
         pErr->rc == SQLITE_OK;
}

/* Refuses a row whose data or custom metadata is not JSON. */
static void cacheCheckItem(
    Bx *bx, const CacheText a[], const char *zKey, BxErr *pErr) {
  const CacheText *p = &a[ITEM_DATA];
  if (pErr->rc != SQLITE_OK) return;
  if (p->z != 0 && !cacheIsDamaged(bx, p, pErr)) {
    p = &a[ITEM_METADATA];
    if (p->z == 0 || !cacheIsDamaged(bx, p, pErr)) return;
  }
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: %s of item %Q is not JSON (%d bytes); the other "
      "items can be read; remove this item with cache_delete() and write it "
      "again",
      p == &a[ITEM_DATA] ? "data" : "custom_metadata", zKey, p->n);
}

/* The CachedItem of the row, or NULL. */
static char *cachedItem(
    sqlite3 *db, const CacheText a[], i64 iTimestamp, i64 nSize, BxErr *pErr) {
  static const char *const azName[] = {
      "{\"storageKey\":", ",\"data\":", ",\"description\":", ",\"sessionId\":",
      ",\"taskId\":", ",\"turnId\":", ",\"customMetadata\":"};
  char *zItem, *z;
  i64 n = 250; /* the names and the numbers */
  int i;
  if (pErr->rc != SQLITE_OK) return 0;
  for (i = ITEM_KEY; i <= ITEM_METADATA; i++) n += (i64)a[i].n * BX_JSON_ROOM;
  n -= (i64)a[ITEM_DATA].n * (BX_JSON_ROOM - 1); /* these stay as they are */
  z = zItem = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)n), pErr);
  if (z == 0) return 0;
  for (i = ITEM_KEY; i <= ITEM_METADATA; i++) {
    size_t nName = strlen(azName[i]), nText = (size_t)a[i].n;
    int bJson = i == ITEM_DATA || i == ITEM_METADATA;
    if (i == ITEM_METADATA && a[i].z == 0) break;
    z = (char *)memcpy(z, azName[i], nName) + nName;
    if (bJson) z = (char *)memcpy(z, a[i].z, nText) + nText;
    if (!bJson && a[i].z != 0) z = bxJsonWrite(z, a[i].z, a[i].n);
    if (i != ITEM_DESCRIPTION) continue;
    sqlite3_snprintf(
        80, z, ",\"timestamp\":%lld,\"dataSize\":%lld", iTimestamp, nSize);
    z += strlen(z);
  }
  memcpy(z, "}", 2);
  if (z - zItem >= sqlite3_limit(db, SQLITE_LIMIT_LENGTH, -1)) {
    bxFail(pErr, SQLITE_TOOBIG,
        "DataTooLargeError: item %Q is longer than the longest string of this "
        "connection; increase its SQLITE_LIMIT_LENGTH",
        a[ITEM_KEY].z);
  }
  return zItem;
}

void bxCacheRead(BxCall *p) {
  static const char *const azArg[] = {"storage_key", "session_id", "now", 0};
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zKey = bxCacheKey(bxArg(p, 0), "storage_key", 0, &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 1), "session_id", 1, &p->err);
  i64 iNow = bxTime(bxArg(p, 2), "now", &p->err);
  sqlite3_stmt *pStmt = bxStmt(pHome, zCacheRead, &p->err);
  i64 nSince = bxCacheSinceMarks(p->bx, iNow);
  CacheText a[ITEM_METADATA + 1] = {{0, 0, 0}};
  char *zItem = 0;
  int bFound, bMark = 0;
  bxBind(pStmt, &p->err, "ttii", zKey, zSession, iNow, nSince);
  bFound = bxStep(pStmt, &p->err);
  if (bFound) {
    cacheItemTexts(p->bx, pStmt, a, &p->err);
    cacheCheckItem(p->bx, a, zKey, &p->err);
    zItem =
        cachedItem(p->bx->db, a, sqlite3_column_int64(pStmt, ITEM_TIMESTAMP),
            sqlite3_column_int64(pStmt, ITEM_SIZE), &p->err);
    if (p->err.rc == SQLITE_OK) {
      bMark = bxCacheAccess(pHome, a[ITEM_SESSION].z, iNow,
          sqlite3_column_int64(pStmt, ITEM_MARKED),
          sqlite3_column_int64(pStmt, ITEM_INTERVAL));
    }
  }
  bxReset(pStmt, &p->err);
  if (!bFound && p->err.rc == SQLITE_OK) {
    bxCacheNotFound(pHome, p->aArg[0], bxArg(p, 1), &p->err);
  }
  if (bMark) bxCacheWriteAccesses(pHome, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p, zItem);
  } else {
    sqlite3_free(zItem);
  }
  bxCacheExplain(p, azArg);
}

/*------------------------------------------------------------- delete ----*/

void bxCacheDelete(BxCall *p) {
  static const char *const azArg[] = {"storage_key", "session_id", "now", 0};
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zKey = bxCacheKey(bxArg(p, 0), "storage_key", 0, &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 1), "session_id", 1, &p->err);
  i64 iNow = bxTime(bxArg(p, 2), "now", &p->err);
  sqlite3_stmt *pStmt = bxStmt(pHome, zCacheDelete, &p->err);
  char *zOwner = 0;
  int bGone;
  bxBind(pStmt, &p->err, "tt", zKey, zSession);
  bGone = bxStep(pStmt, &p->err);
  if (bGone) zOwner = bxColumnCopy(pStmt, 0, &p->err);
  bxStmtRun(pStmt, &p->err);
  if (!bGone) bxCacheCheckKey(pHome, p->aArg[0], &p->err);
  if (bGone) bxStmtExec(pHome, zCacheTouch, &p->err, "ti", zOwner, iNow);
  sqlite3_free(zOwner);
  bxReturnInt(p, bGone);
  bxCacheExplain(p, azArg);
}
