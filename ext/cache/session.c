/*
** session.c: whole sessions: cache_list(), cache_stats(), cache_quota_check(),
** cache_clear_session(), the two clean-ups and cache_use_preset().
**
** A clear is one DELETE on cache_sessions. A clean-up is one DELETE by each of two
** rules, as that of retention_sweep(). The triggers of sql/cache.sql write the receipts.
**
** Limits: for each quota, one write looks at 1,000 items at most, and so does
** cache_quota_check().
*/
#include "cache.h"
#include "../core/file_limit.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_EVICTED 1000           /* the same in sql/cache.sql */
#define MAX_BYTES 1125899906842624 /* the highest quota, see sql/cache.sql */

const BxRecords bxCacheRecords[] = {
    {"cache_sessions", "main.cache_sessions", "session=session_id,",
        "t.session_id", "t.total_size", BX_HOLD_ON("session", "t.session_id"),
        0, 0, "UPDATE main.cache_state SET rule = 'erase' WHERE one = 1",
        "UPDATE main.cache_state SET rule = NULL WHERE one = 1", "t.session_id",
        0, 0},
    {"cache_items", "main.cache_items", "",
        "t.data, t.description, t.custom_metadata, t.session_id, t.task_id, "
        "t.turn_id",
        "t.data_size", BX_HOLD_ON("session", "t.session_id"), 0, 0,
        "UPDATE main.cache_state SET rule = 'erase' WHERE one = 1",
        "UPDATE main.cache_state SET rule = NULL WHERE one = 1", 0, 0, 0},
    {0},
};

const BxTexts bxCacheTexts[] = {
    {.zName = "cache_items",
        .zFrom = "(SELECT id AS no, * FROM main.cache_items)",
        .zKind = "session",
        .zKey = "t.session_id",
        .zRow = "t.storage_key",
        .zRowIs = "item",
        .zColumns = "data,description,custom_metadata",
        .zKinds = "session=t.session_id = ?1,",
        .zHolds = BX_HOLD_ON("session", "t.session_id"),
        .zMask = "UPDATE main.cache_items SET (data, description,"
                 " custom_metadata) = (?2, ?3, ?4) WHERE id = ?1"},
    {0},
};

const char bxCacheSize[] =
    "SELECT coalesce(sum(item_count), 0) AS rows, coalesce(sum(total_size), 0)"
    " AS bytes FROM main.cache_sessions";

static const char *const azCacheNoArg[] = {0};

/*--------------------------------------------------------------- list ----*/

#define LIST_COLUMNS                                                           \
  "storage_key, description, timestamp, data_size, session_id, task_id, "      \
  "turn_id, " CACHE_METADATA

/* The index has the items of a session in two ordered ranges. Merged by
** timestamp (3) and id (9, not shown), they need no sort. */
#define LIST_ARM                                                               \
  "SELECT " LIST_COLUMNS ", id FROM main.cache_items WHERE session_id = ?1 "   \
  "AND protected = "
#define LISTED " coalesce(expires_at >= ?2, 1) "
static const char zCacheListSession[] =
    LIST_ARM "0 AND" LISTED "UNION ALL " LIST_ARM "1 AND" LISTED
             "ORDER BY 3 DESC, 9 DESC";

static const char zCacheListAll[] =
    "SELECT " LIST_COLUMNS " FROM main.cache_items WHERE" LISTED
    "ORDER BY timestamp DESC, id DESC";

sqlite3_stmt *bxCacheList(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *pHome = bxDomainSchema(bx, "cache", pErr);
  sqlite3_stmt *pStmt;
  if (pHome == 0) return 0;
  pStmt = bxPrepare(pHome, apArg[0] ? zCacheListSession : zCacheListAll, pErr);
  bxBind(pStmt, pErr, "vi", apArg[0], bxNow());
  return pStmt;
}

/*-------------------------------------------------------------- stats ----*/

/* The members of the result that describe a quota. Percentages are not rounded:
** 0 is empty, and 100 is full. The highest possible quota means no quota. */
#define QUOTA(quota, used, remaining)                                          \
  " 'quota', nullif(" quota ", " NO_QUOTA "),"                                 \
  " 'quotaUsed', 100.0 * " used " / nullif(" quota ", " NO_QUOTA "),"          \
  " 'quotaRemaining', " remaining ","                                          \
  " 'quotaState', CASE WHEN " quota " = " NO_QUOTA " THEN NULL"                \
  " WHEN " used " * 100 >= " quota " * 95 THEN 'critical'"                     \
  " WHEN " used " * 100 >= " quota " * 80 THEN 'warning' ELSE 'normal' END"
#define NO_QUOTA "1125899906842624" /* see MAX_BYTES */

/* clang-format off */
/* A session that does not exist has zeros. */
static const char zCacheStatsSession[] =
    "SELECT json_object('sessionId', s.id, 'totalSize', s.size,"
    " 'itemCount', s.items, 'hits', s.hits,"
    " 'createdAt', s.created_at, 'lastAccessedAt', s.last_accessed_at,"
    " 'state', CASE WHEN s.created_at IS NULL THEN 'none'"
    " WHEN s.last_accessed_at < ?2 - i.value THEN 'orphaned'"
    " ELSE 'active' END," QUOTA("l.session_quota", "s.size",
    "CASE WHEN min(l.session_quota, l.total_quota) < " NO_QUOTA
    " THEN max(0, min(l.session_quota - s.size, l.total_quota - t.bytes)) END")
    ") FROM main.cache__limits AS l JOIN main.cache_state AS t"
    " JOIN main.blackbox_settings AS i ON i.name = 'cache.idle_ms'"
    " JOIN (SELECT ?1 AS id, coalesce(total_size, 0) AS size,"
    " coalesce(hits, 0) AS hits, coalesce(item_count, 0) AS items, created_at, last_accessed_at"
    " FROM (SELECT 1) LEFT JOIN main.cache_sessions ON session_id = ?1) AS s";

static const char zCacheStatsAll[] =
    "SELECT json_object('totalSize', s.size, 'totalItems', s.items,"
    " 'hits', s.hits,"
    " 'sessionCount', s.n, 'orphanedSessions', s.orphans,"
    QUOTA("l.total_quota", "s.size", "CASE WHEN l.total_quota < " NO_QUOTA
    " THEN max(0, l.total_quota - s.size) END")
    ", 'oldestItemAge', ?2 - (SELECT min(timestamp) FROM main.cache_items))"
    " FROM main.cache__limits AS l, (SELECT coalesce(sum(total_size), 0) AS size,"
    " coalesce(sum(hits), 0) AS hits,"
    " coalesce(sum(item_count), 0) AS items, count(*) AS n,"
    " coalesce(sum(last_accessed_at < ?2 - (SELECT value"
    " FROM main.blackbox_settings WHERE name = 'cache.idle_ms')), 0) AS orphans"
    " FROM main.cache_sessions) AS s";
/* clang-format on */

void bxCacheStats(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 0), "session_id", 1, &p->err);
  i64 iNow = bxTime(bxArg(p, 1), "now", &p->err);
  char *z = bxQueryText(pHome, zSession ? zCacheStatsSession : zCacheStatsAll,
      &p->err, "ti", zSession, iNow);
  if (z != 0) bxReturnJson(p, z);
  bxCacheExplain(p, azCacheNoArg);
}

/*-------------------------------------------------------- quota check ----*/

static const char zCacheRoom[] =
    "SELECT l.session_quota - coalesce(s.total_size, 0) + coalesce(o.size, 0)"
    " - ?3, l.total_quota - t.bytes + coalesce(o.size, 0) - ?3,"
    " l.max_item - ?3, ?3 > coalesce(o.size, 0), l.evict"
    " FROM main.cache__limits AS l JOIN main.cache_state AS t"
    " LEFT JOIN main.cache_sessions AS s ON s.session_id = ?1"
    " LEFT JOIN (SELECT data_size AS size FROM main.cache_items"
    " WHERE storage_key = ?2 AND session_id = ?1) AS o";

/* What eviction looks at, as the trigger cache_work: first in the session, then in
** all. What a hold keeps frees nothing. */
#define OLDEST                                                                 \
  "SELECT i.data_size * NOT EXISTS (SELECT 1 FROM main.retention__in_force"    \
  " WHERE kind = 'session' AND \"key\" = i.session_id AND (until"              \
  " > (SELECT seen FROM main.retention__clock)) IS NOT 0),"                    \
  " i.session_id = ?1, i.timestamp, i.id FROM main.cache_items AS i"           \
  " WHERE i.protected = 0 AND i.storage_key IS NOT ?2"
static const char zCacheOldest[] =
    OLDEST " AND i.session_id = ?1 ORDER BY i.timestamp, i.id LIMIT ?3 + 0";
static const char zCacheOldestOfAll[] =
    OLDEST " AND NOT (i.session_id = ?1 AND (i.timestamp, i.id) <= (?4, ?5))"
           " ORDER BY i.timestamp, i.id LIMIT ?3 + 0";

static void readRoom(CacheRoom *pRoom, BxStmts *pHome, i64 nByte, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zCacheRoom, pErr);
  assert(pRoom->zSession != 0 || pErr->rc != SQLITE_OK);
  bxBind(pStmt, pErr, "tti", pRoom->zSession, pRoom->zKey, nByte);
  if (bxStep(pStmt, pErr)) {
    pRoom->nLeft = sqlite3_column_int64(pStmt, 0);
    pRoom->nTotalLeft = sqlite3_column_int64(pStmt, 1);
    pRoom->nItemLeft = sqlite3_column_int64(pStmt, 2);
    pRoom->bGrows = sqlite3_column_int(pStmt, 3);
    pRoom->bEvict = sqlite3_column_int(pStmt, 4);
  } else {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: the row of cache_state is missing; run "
        "blackbox_install()");
  }
  bxReset(pStmt, pErr);
}

static void evictFrom(CacheRoom *pRoom, BxStmts *pHome, int bAll, BxErr *pErr) {
  i64 *pLeft = bAll ? &pRoom->nTotalLeft : &pRoom->nLeft;
  i64 iAt = pRoom->iLastAt, iId = pRoom->iLastId;
  sqlite3_stmt *pStmt;
  assert(pRoom->bEvict && pRoom->bGrows);
  if (*pLeft >= 0) return;
  pStmt = bxStmt(pHome, bAll ? zCacheOldestOfAll : zCacheOldest, pErr);
  bxBind(pStmt, pErr, bAll ? "ttiii" : "tti", pRoom->zSession, pRoom->zKey,
      (i64)MAX_EVICTED, iAt, iId);
  while (*pLeft < 0 && bxStep(pStmt, pErr)) {
    i64 nFreed = sqlite3_column_int64(pStmt, 0);
    pRoom->nTotalLeft += nFreed;
    if (sqlite3_column_int(pStmt, 1)) pRoom->nLeft += nFreed;
    pRoom->iLastAt = sqlite3_column_int64(pStmt, 2);
    pRoom->iLastId = sqlite3_column_int64(pStmt, 3);
  }
  bxReset(pStmt, pErr);
}

void bxCacheFindRoom(CacheRoom *pRoom, BxStmts *pHome, i64 nByte, BxErr *pErr) {
  assert(nByte >= 0);
  pRoom->iLastAt = -1;
  readRoom(pRoom, pHome, nByte, pErr);
  if (pErr->rc == SQLITE_OK && pRoom->bEvict && pRoom->bGrows) {
    evictFrom(pRoom, pHome, 0, pErr);
    evictFrom(pRoom, pHome, 1, pErr);
  }
}

void bxCacheQuotaCheck(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  CacheRoom room = {0};
  i64 nByte, nLeft;
  room.zSession = bxCacheKey(bxArg(p, 0), "session_id", 0, &p->err);
  nByte = bxInt(bxArg(p, 1), "bytes", 0, MAX_BYTES, &p->err);
  room.zKey = bxCacheKey(bxArg(p, 2), "storage_key", 1, &p->err);
  bxCacheFindRoom(&room, pHome, nByte, &p->err);
  nLeft = room.nLeft < room.nTotalLeft ? room.nLeft : room.nTotalLeft;
  if (!room.bGrows && nLeft < 0) nLeft = 0;
  if (room.nItemLeft < 0 && room.bGrows) {
    nLeft = room.nItemLeft < nLeft ? room.nItemLeft : nLeft;
  }
  bxReturnInt(p, nLeft);
  bxCacheExplain(p, azCacheNoArg);
}

/*-------------------------------------------------- clear and clean up ----*/

static const char zCacheClear[] =
    "DELETE FROM main.cache_sessions WHERE session_id = ?1"
    " RETURNING item_count";

void bxCacheClear(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 0), "session_id", 0, &p->err);
  sqlite3_stmt *pStmt = bxStmt(pHome, zCacheClear, &p->err);
  i64 nItem = 0;
  bxBind(pStmt, &p->err, "t", zSession);
  if (bxStep(pStmt, &p->err)) nItem = sqlite3_column_int64(pStmt, 0);
  bxStmtRun(pStmt, &p->err);
  bxReturnInt(p, nItem);
  bxCacheExplain(p, azCacheNoArg);
}

/* The rules, by which a sweep and the clean-ups remove. */
#define HELD_SESSION(table)                                                    \
  "EXISTS (SELECT 1 FROM main.retention__holds"                                \
  " WHERE kind = 'session' AND \"key\" = " table ".session_id)"
#define HAS_RESULT                                                             \
  "EXISTS (SELECT 1 FROM main.cache_items AS i"                                \
  " WHERE i.session_id = cache_sessions.session_id AND i.protected = 1)"
#define HELD(table) "CASE WHEN " HELD_SESSION(table) " THEN 'held' END"
#define RESULT(is, table)                                                      \
  "CASE WHEN " is                                                              \
  " THEN 'tool_result' WHEN " HELD_SESSION(table) " THEN 'held' END"
#define DUE_SESSION                                                            \
  "cache_sessions", "session_id", "total_size", "last_accessed_at"
const char bxCacheRule[] =
    "UPDATE main.cache_state SET rule = ?1 WHERE one = 1";
const BxDue bxCacheDue[] = {
    {"cache.idle", DUE_SESSION, "1",
        "NOT " HAS_RESULT " AND NOT " HELD_SESSION("cache_sessions"),
        RESULT(HAS_RESULT, "cache_sessions"), bxCacheRule},
    {"cache.abandoned", DUE_SESSION, HAS_RESULT,
        "NOT " HELD_SESSION("cache_sessions"), HELD("cache_sessions"),
        bxCacheRule},
    {"cache.age", "cache_items", "storage_key", "data_size", "timestamp", "1",
        "protected = 0 AND NOT " HELD_SESSION("cache_items"),
        RESULT("protected = 1", "cache_items"), bxCacheRule},
    {"cache.expired", "cache_items", "storage_key", "data_size", "expires_at",
        "1", "NOT " HELD_SESSION("cache_items"), HELD("cache_items"),
        bxCacheRule},
    {"cache.file_bytes", "cache_items", "storage_key", "data_size", "timestamp",
        "protected = 0", "NOT " HELD_SESSION("cache_items"),
        HELD("cache_items"), bxCacheRule},
    {0, 0, 0, 0, 0, 0, 0, 0, 0},
};

/* An item takes its data and about 500 bytes with its indexes. */
const BxFileLimit bxCacheFileLimit = {.pDue = &bxCacheDue[4],
    .zIndexed = "",
    .zTakes = "data_size + 500",
    .zHas = "SELECT bytes + 500 * coalesce(1 + (SELECT max(id) FROM"
            " main.cache_items) - (SELECT min(id) FROM main.cache_items), 0)"
            " FROM main.cache_state",
    .zOldest = "SELECT id, data_size + 500, timestamp, " HELD_SESSION(
        "cache_items") " FROM main.cache_items WHERE protected = 0 AND"
                       " timestamp >= ?1 ORDER BY timestamp, id LIMIT ?2 + 0",
    .zRemove = "DELETE FROM main.cache_items WHERE id = ?1"};

/* The contents of the cache. */
typedef struct CacheCounts {
  i64 nItem, nByte, nSession;
} CacheCounts;

static CacheCounts cacheCount(BxStmts *pHome, BxErr *pErr) {
  static const char zCount[] =
      "SELECT coalesce(sum(item_count), 0), coalesce(sum(total_size), 0),"
      " count(*) FROM main.cache_sessions";
  CacheCounts counts = {0, 0, 0};
  sqlite3_stmt *pStmt = bxStmt(pHome, zCount, pErr);
  if (bxStep(pStmt, pErr)) {
    counts.nItem = sqlite3_column_int64(pStmt, 0);
    counts.nByte = sqlite3_column_int64(pStmt, 1);
    counts.nSession = sqlite3_column_int64(pStmt, 2);
  }
  bxReset(pStmt, pErr);
  return counts;
}

/* Returns the schema of the cache. A clean-up takes the write lock first, before any
** setting is read, so that the rows that are counted are the rows that are removed. */
static BxStmts *beginCleanup(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  if (pHome != 0) bxLock(pHome, &p->err);
  return pHome;
}

/* Removes up to nLimit rows (-1: all) that are due before iCut. Returns whether
** there are more. */
static int applyRule(
    BxStmts *pHome, const BxDue *pDue, i64 iCut, i64 nLimit, BxErr *pErr) {
  static const char zDelete[] =
      "DELETE FROM main.%s WHERE %s IN (SELECT %s FROM main.%s"
      " WHERE %s < ?1 AND %s AND %s ORDER BY %s LIMIT ?2)";
  static const char zMore[] =
      "SELECT EXISTS (SELECT 1 FROM main.%s WHERE %s < ?1 AND %s AND %s)";
  const char *z = pDue->zTable;
  sqlite3_stmt *pStmt = bxPrepareMade(pHome,
      bxPrintf(pErr, zDelete, z, pDue->zKey, pDue->zKey, z, pDue->zAt,
          pDue->zWhere, pDue->zFree, pDue->zAt),
      pErr);
  assert(strncmp(pDue->zRule, "cache.", 6) == 0);
  assert(pDue->zNote == bxCacheRule);
  bxStmtExec(pHome, pDue->zNote, pErr, "t", strchr(pDue->zRule, '.') + 1);
  bxBind(pStmt, pErr, "ii", iCut, nLimit);
  bxStmtRun(pStmt, pErr);
  sqlite3_finalize(pStmt);
  bxStmtExec(pHome, pDue->zNote, pErr, "n");
  return (int)bxQueryIntMade(pHome,
      bxPrintf(pErr, zMore, z, pDue->zAt, pDue->zWhere, pDue->zFree), pErr, "i",
      iCut);
}

/* How many rows two rules of one table leave, as they are held. */
static i64 countHeld(
    BxStmts *pHome, const BxDue aRule[2], const i64 aCut[2], BxErr *pErr) {
  char *zSql = bxPrintf(pErr,
      "SELECT count(*) FROM main.%s WHERE EXISTS (SELECT 1 FROM"
      " main.retention__holds) AND ((%s < ?1 AND %s AND (%s) = 'held') OR"
      " (%s < ?2 AND %s AND (%s) = 'held'))",
      aRule->zTable, aRule[0].zAt, aRule[0].zWhere, aRule[0].zBlocked,
      aRule[1].zAt, aRule[1].zWhere, aRule[1].zBlocked);
  return bxQueryIntMade(pHome, zSql, pErr, "ii", aCut[0], aCut[1]);
}

/* Applies two rules, each with its own time. The limit (-1: none) counts
** sessions (bSessions) or items, of both rules together. */
static void cleanUp(BxCall *p, BxStmts *pHome, const BxDue aRule[2],
    const i64 aCut[2], i64 nLimit, int bSessions) {
  CacheCounts was, is;
  char zHeld[40];
  int i, bMore = 0;
  assert(nLimit == -1 || nLimit > 0 || p->err.rc != SQLITE_OK);
  bxCacheWriteAccesses(pHome, &p->err); /* what was read is not idle */
  is = was = cacheCount(pHome, &p->err);
  for (i = 0; i < 2; i++) {
    i64 nGone = bSessions ? was.nSession - is.nSession : was.nItem - is.nItem;
    bMore |= applyRule(
        pHome, &aRule[i], aCut[i], nLimit < 0 ? -1 : nLimit - nGone, &p->err);
    is = cacheCount(pHome, &p->err);
  }
  if (!bMore) {
    sqlite3_snprintf(sizeof zHeld, zHeld, "{\"held\":%lld}",
        countHeld(pHome, aRule, aCut, &p->err));
  }
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p, sqlite3_mprintf("{\"sessions\":%lld,\"items\":%lld,"
                                    "\"bytes\":%lld,\"left\":%s,\"more\":%s}",
                        was.nSession - is.nSession, was.nItem - is.nItem,
                        was.nByte - is.nByte, bMore ? "null" : zHeld,
                        bMore ? "true" : "false"));
  }
  bxCacheExplain(p, azCacheNoArg);
}

/* Milliseconds of a number of days, which may be a fraction. */
static i64 daysIn(sqlite3_value *pVal, const char *zWhat, BxErr *pErr) {
  int eType = sqlite3_value_type(pVal);
  double rDay = sqlite3_value_double(pVal);
  assert(pVal != 0);
  if (pErr->rc != SQLITE_OK) return 0;
  if ((eType == SQLITE_INTEGER || eType == SQLITE_FLOAT) && rDay >= 0 &&
      rDay <= 2932896) { /* to the year 9999 */
    return (i64)(rDay * BX_MS_PER_DAY);
  }
  bxRefuseArg(pErr, zWhat, "a number from 0 to 2932896", pVal);
  return 0;
}

/* Milliseconds of a setting that is in days. */
static i64 daysSet(BxStmts *pHome, const char *zName, BxErr *pErr) {
  return (i64)(bxSettingReal(pHome, zName, pErr) * BX_MS_PER_DAY);
}

void bxCacheCleanupOrphans(BxCall *p) {
  BxStmts *pHome = beginCleanup(p);
  i64 nIdle = bxArg(p, 0)
                  ? bxInt(p->aArg[0], "idle_ms", 0, BX_MAX_TIME, &p->err)
                  : bxSettingInt(pHome, "cache.idle_ms", &p->err);
  i64 nMaxIdle = daysSet(pHome, "cache.max_idle_days", &p->err);
  i64 nLimit = bxLimit(p, 2, -1); /* before anything is written */
  i64 iNow = bxRuleTime(pHome, bxArg(p, 1), 1, &p->err);
  i64 aCut[2];
  aCut[0] = iNow - nIdle;
  aCut[1] = iNow - (nIdle > nMaxIdle ? nIdle : nMaxIdle);
  cleanUp(p, pHome, &bxCacheDue[0], aCut, nLimit, 1);
}

void bxCacheCleanupOutdated(BxCall *p) {
  BxStmts *pHome = beginCleanup(p);
  i64 nAge = bxArg(p, 0) ? daysIn(p->aArg[0], "days", &p->err)
                         : daysSet(pHome, "cache.max_age_days", &p->err);
  i64 nLimit = bxLimit(p, 2, -1); /* before anything is written */
  i64 iNow = bxRuleTime(pHome, bxArg(p, 1), 1, &p->err);
  i64 aCut[2];
  aCut[0] = iNow - nAge;
  aCut[1] = iNow;
  cleanUp(p, pHome, &bxCacheDue[2], aCut, nLimit, 0);
}

/*------------------------------------------------------------- preset ----*/

/* "keep" is the defaults. Each preset sets all of them, so that it replaces the other
** completely. */
static const char zCachePreset[] =
    "UPDATE main.blackbox_settings SET value = CASE ?1 || name"
    " WHEN 'recyclecache.max_description' THEN 500"
    " WHEN 'recyclecache.session_quota_bytes' THEN 209715200"
    " WHEN 'recyclecache.total_quota_bytes' THEN 5368709120"
    " WHEN 'recyclecache.on_quota' THEN 'evict_oldest'"
    " WHEN 'recyclecache.max_age_days' THEN 30 ELSE \"default\" END"
    " WHERE name IN ('cache.max_item_bytes', 'cache.max_description',"
    " 'cache.session_quota_bytes', 'cache.total_quota_bytes', 'cache.on_quota',"
    " 'cache.idle_ms', 'cache.max_age_days')";

void bxCachePreset(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "cache", &p->err);
  const char *zPreset = bxText(bxArg(p, 0), "preset", 100, 0, &p->err);
  if (zPreset != 0 && strcmp(zPreset, "keep") != 0 &&
      strcmp(zPreset, "recycle") != 0) {
    bxRefuseArg(&p->err, "preset", "keep or recycle", bxArg(p, 0));
  }
  bxStmtExec(pHome, zCachePreset, &p->err, "t", zPreset);
  bxReturnText(p, sqlite3_mprintf("%s", zPreset ? zPreset : ""));
  bxCacheExplain(p, azCacheNoArg);
}
