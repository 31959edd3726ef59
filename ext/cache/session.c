/*
** session.c: whole sessions: cache_list(), cache_stats(), cache_quota_check(),
** cache_clear_session(), the two clean-ups and cache_use_preset().
**
** A clear is one DELETE on cache_sessions, a clean-up one DELETE on the view
** that lists what is due: what such a view shows, and not as blocked, is what
** goes. The receipts come from the triggers of sql/cache.sql.
**
** Limits: eviction takes at most 1,000 items in one write, which is also the
** most that cache_quota_check() looks at.
*/
#include "cache.h"
SQLITE_EXTENSION_INIT3

#define MAX_EVICTED 1000
#define MAX_BYTES 1125899906842624 /* of the quotas, see sql/cache.sql */
#define DAY_MS 86400000

static const char *const azNoArg[] = {0};

/*--------------------------------------------------------------- list ----*/

#define LIST_COLUMNS                                                           \
  "storage_key, description, timestamp, data_size, session_id, task_id, "      \
  "turn_id, json_object('storageKey', storage_key, 'description', "            \
  "description, 'timestamp', timestamp, 'dataSize', data_size, 'sessionId', "  \
  "session_id, 'taskId', task_id, 'turnId', turn_id)"

/* The index has the items of a session in two ordered ranges: merged by
** timestamp (3) and id (9, not shown), they need no sort. */
#define LIST_ARM                                                               \
  "SELECT " LIST_COLUMNS ", id FROM main.cache_items WHERE session_id = ?1 "   \
  "AND protected = "
static const char zListSession[] =
    LIST_ARM "0 UNION ALL " LIST_ARM "1 ORDER BY 3 DESC, 9 DESC";

static const char zListAll[] =
    "SELECT " LIST_COLUMNS
    " FROM main.cache_items ORDER BY timestamp DESC, id DESC";

sqlite3_stmt *bxCacheList(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *pHome = bxHome(bx, "cache", pErr);
  sqlite3_stmt *pStmt = 0;
  if (pHome == 0) return 0;
  pStmt = bxPrepare(pHome, apArg[0] ? zListSession : zListAll, pErr);
  if (apArg[0]) bxBind(pStmt, pErr, "v", apArg[0]);
  return pStmt;
}

/*-------------------------------------------------------------- stats ----*/

/* A session that is not there has zeros. */
static const char zStatsSession[] =
    "SELECT json_object('sessionId', ?1, 'totalSize', coalesce(s.total_size, "
    "0),"
    " 'itemCount', coalesce(s.item_count, 0), 'createdAt', s.created_at,"
    " 'lastAccessedAt', s.last_accessed_at, 'state',"
    " CASE WHEN s.session_id IS NULL THEN 'none'"
    " WHEN s.last_accessed_at < ?2 - i.value THEN 'orphaned'"
    " ELSE 'active' END,"
    " 'quota', l.session_quota, 'quotaUsed',"
    " round(100.0 * coalesce(s.total_size, 0) / l.session_quota, 2),"
    " 'quotaRemaining', max(0, min("
    "l.session_quota - coalesce(s.total_size, 0), l.total_quota - t.bytes)))"
    " FROM main.cache_limits AS l, main.cache_state AS t"
    " JOIN main.blackbox_limits AS i ON i.name = 'cache.idle_ms'"
    " LEFT JOIN main.cache_sessions AS s ON s.session_id = ?1";

static const char zStatsAll[] =
    "SELECT json_object('totalSize', s.size, 'totalItems', s.items,"
    " 'sessionCount', s.n, 'orphanedSessions', s.orphans,"
    " 'quota', l.total_quota, 'quotaUsed', round(100.0 * s.size /"
    " l.total_quota, 2), 'quotaRemaining', max(0, l.total_quota - s.size),"
    " 'oldestItemAge', ?2 - (SELECT min(timestamp) FROM main.cache_items))"
    " FROM main.cache_limits AS l, (SELECT coalesce(sum(total_size), 0) AS "
    "size,"
    " coalesce(sum(item_count), 0) AS items, count(*) AS n,"
    " coalesce(sum(last_accessed_at < ?2 - (SELECT value FROM"
    " main.blackbox_limits WHERE name = 'cache.idle_ms')), 0) AS orphans"
    " FROM main.cache_sessions) AS s";

void bxCacheStats(BxCall *p) {
  BxStmts *pHome = bxHome(p->bx, "cache", &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 0), "session_id", 1, &p->err);
  i64 iNow = bxTime(bxArg(p, 1), "now", &p->err);
  sqlite3_stmt *pStmt =
      bxStmt(pHome, zSession ? zStatsSession : zStatsAll, &p->err);
  bxBind(pStmt, &p->err, "ti", zSession, iNow);
  if (bxRow(pStmt, &p->err)) {
    bxReturnJson(p, sqlite3_mprintf("%s", sqlite3_column_text(pStmt, 0)));
  }
  bxDone(pStmt, &p->err);
  bxCacheExplain(p, azNoArg);
}

/*-------------------------------------------------------- quota check ----*/

/* What a write would find. */
typedef struct Room {
  const char *zSession;
  const char *zKey;     /* the item that is overwritten, or NULL */
  i64 nLeft;            /* of the session's quota, after the write */
  i64 nTotalLeft;       /* of the quota over all sessions, after the write */
  i64 nItemLeft;        /* of the limit of one item */
  int bGrows;           /* a write that does not grow is never over a quota */
  int bEvict;           /* cache.on_quota is evict_oldest */
  int nEvicted;         /* rows that eviction takes */
  i64 iLastAt, iLastId; /* the newest of them in the session */
} Room;

static const char zRoom[] =
    "SELECT l.session_quota - coalesce(s.total_size, 0) + coalesce(o.size, 0)"
    " - ?3, l.total_quota - t.bytes + coalesce(o.size, 0) - ?3,"
    " l.max_item - ?3, ?3 > coalesce(o.size, 0), l.evict"
    " FROM main.cache_limits AS l, main.cache_state AS t"
    " LEFT JOIN main.cache_sessions AS s ON s.session_id = ?1"
    " LEFT JOIN (SELECT data_size AS size FROM main.cache_items"
    " WHERE storage_key = ?2 AND session_id = ?1) AS o";

/* What eviction takes, in its order: first of the session, then of all. */
static const char zOldest[] =
    "SELECT data_size, timestamp, id FROM main.cache_items"
    " WHERE session_id = ?1 AND protected = 0 AND storage_key IS NOT ?2"
    " ORDER BY timestamp, id LIMIT ?3";
static const char zOldestOfAll[] =
    "SELECT data_size, session_id = ?1 FROM main.cache_items"
    " WHERE protected = 0 AND storage_key IS NOT ?2"
    " AND NOT (session_id = ?1 AND (timestamp, id) <= (?4, ?5))"
    " ORDER BY timestamp, id LIMIT ?3";

static void readRoom(Room *pRoom, BxStmts *pHome, i64 nByte, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zRoom, pErr);
  bxBind(pStmt, pErr, "tti", pRoom->zSession, pRoom->zKey, nByte);
  if (bxRow(pStmt, pErr)) {
    pRoom->nLeft = sqlite3_column_int64(pStmt, 0);
    pRoom->nTotalLeft = sqlite3_column_int64(pStmt, 1);
    pRoom->nItemLeft = sqlite3_column_int64(pStmt, 2);
    pRoom->bGrows = sqlite3_column_int(pStmt, 3);
    pRoom->bEvict = sqlite3_column_int(pStmt, 4);
  } else {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: cache_limits or cache_state has lost its row; "
        "run blackbox_install()");
  }
  bxDone(pStmt, pErr);
}

static void evictFromSession(Room *pRoom, BxStmts *pHome, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  if (pRoom->nLeft >= 0) return;
  pStmt = bxStmt(pHome, zOldest, pErr);
  bxBind(pStmt, pErr, "tti", pRoom->zSession, pRoom->zKey, (i64)MAX_EVICTED);
  while (pRoom->nLeft < 0 && bxRow(pStmt, pErr)) {
    pRoom->nLeft += sqlite3_column_int64(pStmt, 0);
    pRoom->nTotalLeft += sqlite3_column_int64(pStmt, 0);
    pRoom->iLastAt = sqlite3_column_int64(pStmt, 1);
    pRoom->iLastId = sqlite3_column_int64(pStmt, 2);
    pRoom->nEvicted++;
  }
  bxDone(pStmt, pErr);
}

static void evictFromAll(Room *pRoom, BxStmts *pHome, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  if (pRoom->nTotalLeft >= 0) return;
  pStmt = bxStmt(pHome, zOldestOfAll, pErr);
  bxBind(pStmt, pErr, "ttiii", pRoom->zSession, pRoom->zKey,
      (i64)(MAX_EVICTED - pRoom->nEvicted), pRoom->iLastAt, pRoom->iLastId);
  while (pRoom->nTotalLeft < 0 && bxRow(pStmt, pErr)) {
    pRoom->nTotalLeft += sqlite3_column_int64(pStmt, 0);
    if (sqlite3_column_int(pStmt, 1)) {
      pRoom->nLeft += sqlite3_column_int64(pStmt, 0);
    }
  }
  bxDone(pStmt, pErr);
}

void bxCacheQuotaCheck(BxCall *p) {
  BxStmts *pHome = bxHome(p->bx, "cache", &p->err);
  Room room = {0};
  i64 nByte, nLeft;
  room.iLastAt = -1;
  room.zSession = bxCacheKey(bxArg(p, 0), "session_id", 0, &p->err);
  nByte = bxInt(bxArg(p, 1), "bytes", 0, MAX_BYTES, &p->err);
  room.zKey = bxCacheKey(bxArg(p, 2), "storage_key", 1, &p->err);
  readRoom(&room, pHome, nByte, &p->err);
  if (p->err.rc == SQLITE_OK && room.bEvict && room.bGrows) {
    evictFromSession(&room, pHome, &p->err);
    evictFromAll(&room, pHome, &p->err);
  }
  nLeft = room.nLeft < room.nTotalLeft ? room.nLeft : room.nTotalLeft;
  if (!room.bGrows && nLeft < 0) nLeft = 0;
  if (room.nItemLeft < 0 && room.bGrows) {
    nLeft = room.nItemLeft < nLeft ? room.nItemLeft : nLeft;
  }
  bxReturnInt(p, nLeft);
  bxCacheExplain(p, azNoArg);
}

/*-------------------------------------------------- clear and clean up ----*/

static const char zClear[] =
    "DELETE FROM main.cache_sessions WHERE session_id = ?1"
    " RETURNING item_count";

void bxCacheClear(BxCall *p) {
  BxStmts *pHome = bxHome(p->bx, "cache", &p->err);
  const char *zSession = bxCacheKey(bxArg(p, 0), "session_id", 0, &p->err);
  sqlite3_stmt *pStmt = bxStmt(pHome, zClear, &p->err);
  i64 nItem = 0;
  bxBind(pStmt, &p->err, "t", zSession);
  if (bxRow(pStmt, &p->err)) nItem = sqlite3_column_int64(pStmt, 0);
  bxRun(pStmt, &p->err);
  bxReturnInt(p, nItem);
  bxCacheExplain(p, azNoArg);
}

static const char zCount[] =
    "SELECT coalesce(sum(item_count), 0), coalesce(sum(total_size), 0),"
    " count(*) FROM main.cache_sessions";
/* Comes oldest first by the index it reads; ordering would sort all. */
static const char zItems[] =
    "DELETE FROM main.cache_due_items WHERE key IN (SELECT key FROM"
    " main.cache_due_items WHERE at < ?1 AND blocked_by IS NULL LIMIT ?2)";
static const char zSessions[] =
    "DELETE FROM main.cache_due_sessions WHERE key IN (SELECT key FROM"
    " main.cache_due_sessions WHERE at < ?1 AND blocked_by IS NULL"
    " ORDER BY at LIMIT ?2)";
static const char zItemsMore[] =
    "SELECT EXISTS(SELECT 1 FROM main.cache_due_items"
    " WHERE at < ?1 AND blocked_by IS NULL)";
static const char zSessionsMore[] =
    "SELECT EXISTS(SELECT 1 FROM main.cache_due_sessions"
    " WHERE at < ?1 AND blocked_by IS NULL)";

/* What the cache holds; counted a second time, by how much that has grown. */
typedef struct Counts {
  i64 nItem, nByte, nSession;
} Counts;

static void count(BxStmts *pHome, Counts *pCounts, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxStmt(pHome, zCount, pErr);
  if (bxRow(pStmt, pErr)) {
    pCounts->nItem = sqlite3_column_int64(pStmt, 0) - pCounts->nItem;
    pCounts->nByte = sqlite3_column_int64(pStmt, 1) - pCounts->nByte;
    pCounts->nSession = sqlite3_column_int64(pStmt, 2) - pCounts->nSession;
  }
  bxDone(pStmt, pErr);
}

/* The first statement of a clean-up, before any setting is read, takes the
** lock: what is counted is what is removed. Returns the cache's schema. */
static BxStmts *begin(BxCall *p) {
  static const char zSql[] = "UPDATE main.cache_state SET rule = NULL";
  BxStmts *pHome = bxHome(p->bx, "cache", &p->err);
  bxRun(bxStmt(pHome, zSql, &p->err), &p->err);
  return pHome;
}

/* Removes what lies before iCut, nLimit rows of the view at most. */
static void cleanUp(BxCall *p, BxStmts *pHome, i64 iCut, i64 nLimit,
    const char *zAct, const char *zMore) {
  Counts counts = {0, 0, 0};
  sqlite3_stmt *pStmt;
  int bMore = 0;
  count(pHome, &counts, &p->err);
  pStmt = bxStmt(pHome, zAct, &p->err);
  bxBind(pStmt, &p->err, "ii", iCut, nLimit);
  bxRun(pStmt, &p->err);
  count(pHome, &counts, &p->err);
  pStmt = bxStmt(pHome, zMore, &p->err);
  bxBind(pStmt, &p->err, "i", iCut);
  if (bxRow(pStmt, &p->err)) bMore = sqlite3_column_int(pStmt, 0);
  bxDone(pStmt, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnJson(p, sqlite3_mprintf("{\"sessions\":%lld,\"items\":%lld,"
                                    "\"bytes\":%lld,\"more\":%s}",
                        -counts.nSession, -counts.nItem, -counts.nByte,
                        bMore ? "true" : "false"));
  }
  bxCacheExplain(p, azNoArg);
}

/* Argument i, or the setting when it was not given. */
static i64 argumentOrSetting(BxCall *p, BxStmts *pHome, int i,
    const char *zWhat, i64 iMax, const char *zSetting) {
  if (bxArg(p, i)) return bxInt(p->aArg[i], zWhat, 0, iMax, &p->err);
  return p->err.rc == SQLITE_OK ? bxSettingInt(pHome, zSetting, &p->err) : 0;
}

/* -1, which is no limit to SQLite, when it was not given. */
static i64 limitArgument(BxCall *p, int i) {
  return bxArg(p, i) ? bxInt(p->aArg[i], "limit", 1, 1000000000, &p->err) : -1;
}

void bxCacheCleanupOrphans(BxCall *p) {
  BxStmts *pHome = begin(p);
  i64 nIdle =
      argumentOrSetting(p, pHome, 0, "idle_ms", BX_MAX_TIME, "cache.idle_ms");
  i64 iNow = bxTime(bxArg(p, 1), "now", &p->err);
  i64 nLimit = limitArgument(p, 2);
  cleanUp(p, pHome, iNow - nIdle, nLimit, zSessions, zSessionsMore);
}

void bxCacheCleanupOutdated(BxCall *p) {
  BxStmts *pHome = begin(p);
  i64 nDay = argumentOrSetting(
      p, pHome, 0, "days", BX_MAX_TIME / DAY_MS, "cache.max_age_days");
  i64 iNow = bxTime(bxArg(p, 1), "now", &p->err);
  i64 nLimit = limitArgument(p, 2);
  cleanUp(p, pHome, iNow - nDay * DAY_MS, nLimit, zItems, zItemsMore);
}

/*------------------------------------------------------------- preset ----*/

static const char zUse[] = "INSERT INTO main.cache_use(preset) VALUES(?1)";

void bxCachePreset(BxCall *p) {
  static const char *const azArg[] = {"preset", 0};
  BxStmts *pHome = bxHome(p->bx, "cache", &p->err);
  const char *zPreset = bxText(bxArg(p, 0), "preset", 100, 0, &p->err);
  sqlite3_stmt *pStmt = bxStmt(pHome, zUse, &p->err);
  bxBind(pStmt, &p->err, "t", zPreset);
  bxRun(pStmt, &p->err);
  bxReturnText(p, sqlite3_mprintf("%s", zPreset ? zPreset : ""));
  bxCacheExplain(p, azArg);
}
