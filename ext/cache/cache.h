/*
** cache.h: the session cache. Its rules are in sql/cache.sql. The functions
** here use them.
*/
#ifndef BX_CACHE_H
#define BX_CACHE_H

#include "../core/core.h"

/* The metadata of an item, as the functions return them. */
#define CACHE_METADATA                                                         \
  "json_object('storageKey', storage_key, 'description', description, "        \
  "'timestamp', timestamp, 'dataSize', data_size, 'sessionId', session_id, "   \
  "'taskId', task_id, 'turnId', turn_id)"

/* item.c: one item */
void bxCacheWrite(BxCall *p);  /* cache_write() */
void bxCacheRead(BxCall *p);   /* cache_read() */
void bxCacheUpdate(BxCall *p); /* cache_update() */
void bxCacheDelete(BxCall *p); /* cache_delete() */

/* access.c: the marks of reads */
/*
** Notes that the session was read. iMarked is the time of its last mark; it does not
** matter if bxCacheSinceMarks() is from 0 to nInterval - 1. Returns whether the notes
** are to be written, once no statement reads: nInterval milliseconds have passed.
*/
int bxCacheAccess(
    BxStmts *pHome, const char *zSession, i64 iNow, i64 iMarked, i64 nInterval);
/* Since when this connection wrote no marks, or tried to. */
i64 bxCacheSinceMarks(Bx *bx, i64 iNow);
/* What this connection knows of items that expire: none before iUntil, as long as it
** has made nChange changes. */
typedef struct CacheNextExpiry {
  const BxStmts *pHome;
  i64 iUntil;
  int nChange;
} CacheNextExpiry;
/* NULL: out of memory. */
CacheNextExpiry *bxCacheNextExpiry(Bx *bx);
/* Writes the notes now. This neither waits nor fails, unless SQLite rolls back the
** host's transaction. */
void bxCacheWriteAccesses(BxStmts *pHome, BxErr *pErr);

/* session.c: sessions and their quotas */
/* What a write finds. */
typedef struct CacheRoom {
  const char *zSession;
  const char *zKey; /* the item that is overwritten, or NULL */
  i64 nLeft;        /* left of the session quota after the write */
  i64 nTotalLeft;   /* left of the total quota after the write */
  i64 nItemLeft;    /* left of the limit of one item */
  int bGrows;       /* a write that does not grow is always allowed */
  int bEvict;
  i64 iLastAt, iLastId; /* the newest that goes in the session */
} CacheRoom;
/* Computes the members after zKey for a write of nByte bytes, with the room
** that eviction can make. */
void bxCacheFindRoom(CacheRoom *pRoom, BxStmts *pHome, i64 nByte, BxErr *pErr);
sqlite3_stmt *bxCacheList(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxCacheStats(BxCall *p);           /* cache_stats() */
void bxCacheQuotaCheck(BxCall *p);      /* cache_quota_check() */
void bxCacheClear(BxCall *p);           /* cache_clear_session() */
void bxCacheCleanupOrphans(BxCall *p);  /* cache_cleanup_orphans() */
void bxCacheCleanupOutdated(BxCall *p); /* cache_cleanup_outdated() */
void bxCachePreset(BxCall *p);          /* cache_use_preset() */

/* errors.c: errors with the value, the limit and what to do */
/*
** The text of a key or of a part of one. Anything invalid is an
** InvalidKeyFormatError.
*/
const char *bxCacheKey(
    sqlite3_value *pVal, const char *zWhat, int bNull, BxErr *pErr);
/*
** Completes the error of a call: adds the value to a refusal of the schema, and
** the numbers to an exceeded quota, and names a file error
** StorageUnavailableError. azArg has the column name of each argument, in
** order, and ends with NULL.
*/
void bxCacheExplain(BxCall *p, const char *const *azArg);
/*
** The error for a key that was not found: InvalidKeyFormatError if no item can
** have such a key, otherwise ItemNotFoundError.
*/
void bxCacheNotFound(
    BxStmts *pHome, sqlite3_value *pKey, sqlite3_value *pSession, BxErr *pErr);
/* Refuses a key that no item can have. */
void bxCacheCheckKey(BxStmts *pHome, sqlite3_value *pKey, BxErr *pErr);

extern const BxRecords bxCacheRecords[]; /* session.c */
extern const BxTexts bxCacheTexts[];
extern const BxDue bxCacheDue[];           /* session.c */
extern const BxFileLimit bxCacheFileLimit; /* session.c */
extern const char bxCacheRule[];           /* session.c: notes the rule ?1 */
extern const char bxCacheSize[];           /* session.c */

#endif
