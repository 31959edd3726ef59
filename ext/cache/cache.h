/*
** cache.h: the session cache. Its rules are in sql/cache.sql; here are the
** functions that stand on them.
*/
#ifndef BX_CACHE_H
#define BX_CACHE_H

#include "../core/core.h"

/* item.c: one item */
void bxCacheWrite(BxCall *p);  /* cache_write() */
void bxCacheRead(BxCall *p);   /* cache_read() */
void bxCacheUpdate(BxCall *p); /* cache_update() */
void bxCacheDelete(BxCall *p); /* cache_delete() */

/* mark.c: what reads leave behind */
/*
** Notes that the item was read, whose session was marked last at iMarked, and
** writes what is noted if nInterval milliseconds have passed. Nothing here
** waits, and nothing fails but where SQLite rolls back the host's transaction.
*/
void bxCacheMark(BxStmts *pHome, const char *zKey, i64 iNow, i64 iMarked,
    i64 nInterval, BxErr *pErr);
/* Writes what is noted now. */
void bxCacheWriteMarks(BxStmts *pHome, BxErr *pErr);

/* upgrade.c */
extern const char bxSqlCache[]; /* sql/cache.sql */
/* Makes cache_items of version 1 anew. */
void bxCacheUpgrade(BxStmts *p, BxErr *pErr);

/* session.c: sessions and their quotas */
/* What a write finds. */
typedef struct CacheRoom {
  const char *zSession;
  const char *zKey;     /* the item that is overwritten, or NULL */
  i64 nLeft;            /* of the session's quota, after the write */
  i64 nTotalLeft;       /* of the quota over all sessions, after the write */
  i64 nItemLeft;        /* of the limit of one item */
  int bGrows;           /* a write that does not grow is never over a quota */
  int eEvict;           /* 0 no, 1 the oldest, 2 the least recently used */
  int nEvicted;         /* rows that eviction takes */
  i64 iLastAt, iLastId; /* the newest of them in the session */
} CacheRoom;
/* Fills what comes after zKey in, for a write of nByte bytes, with the room that
** eviction can make. */
void bxCacheFindRoom(CacheRoom *pRoom, BxStmts *pHome, i64 nByte, BxErr *pErr);
sqlite3_stmt *bxCacheList(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxCacheStats(BxCall *p);           /* cache_stats() */
void bxCacheQuotaCheck(BxCall *p);      /* cache_quota_check() */
void bxCacheClear(BxCall *p);           /* cache_clear_session() */
void bxCacheCleanupOrphans(BxCall *p);  /* cache_cleanup_orphans() */
void bxCacheCleanupOutdated(BxCall *p); /* cache_cleanup_outdated() */
void bxCachePreset(BxCall *p);          /* cache_use_preset() */

/* refusal.c: errors that say which value, which limit and what to do */
/*
** Text of a key or a part of one. What is wrong with it is an
** InvalidKeyFormatError.
*/
const char *bxCacheKey(
    sqlite3_value *pVal, const char *zWhat, int bNull, BxErr *pErr);
/*
** Completes the error of a call: a refusal of the schema gets the value that
** was given, a quota its numbers, a failing file the name
** StorageUnavailableError. azArg names the arguments by their columns, in
** order, and ends with NULL.
*/
void bxCacheExplain(BxCall *p, const char *const *azArg);
/*
** For a key under which nothing was found: InvalidKeyFormatError when it can
** be none, else ItemNotFoundError.
*/
void bxCacheNotFound(
    BxStmts *pHome, sqlite3_value *pKey, sqlite3_value *pSession, BxErr *pErr);
/* Refuses a key that no item can have. */
void bxCacheCheckKey(BxStmts *pHome, sqlite3_value *pKey, BxErr *pErr);

#endif
