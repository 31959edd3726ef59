/*
** errors.c: the messages of refused calls.
**
** The schema refuses with a literal text, "<ErrorName>: <column> must be
** <rule>; <next step>", because a trigger cannot put values into it. Every
** write is one statement that the schema checks. Only if it fails, this file
** adds the details: the value that was given goes before the semicolon, and an
** exceeded quota gets its numbers. So a write that succeeds does no extra work,
** and each rule is stated once.
**
** Codes: a refusal keeps SQLITE_CONSTRAINT, also that of a quota, because
** SQLITE_FULL would make SQLite roll back the whole transaction around it. Data
** over the limit is SQLITE_TOOBIG, damaged data is SQLITE_CORRUPT_VTAB. The
** code of a file error is never replaced.
*/
#include "cache.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

const char *bxCacheKey(
    sqlite3_value *pVal, const char *zWhat, int bNull, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  const char *z;
  if (pErr->rc != SQLITE_OK) return 0;
  z = bxText(pVal, zWhat, 1000, bNull, &err);
  if (bxErrIs(&err, "ValidationError")) {
    bxErrReword(&err, sqlite3_mprintf("InvalidKeyFormatError: %s; use a key or "
                                      "id from the cache or the host",
                          strchr(err.zMsg, ' ') + 1));
  }
  *pErr = err;
  return z;
}

/*------------------------------------------------ values in messages ----*/

/* The argument of a column, or NULL. */
static sqlite3_value *argumentOf(
    BxCall *p, const char *const *azArg, const char *zColumn) {
  int i;
  assert(zColumn != 0);
  for (i = 0; azArg[i] != 0; i++) {
    if (strcmp(azArg[i], zColumn) == 0) return bxArg(p, i);
  }
  return 0;
}

/* The key of a write, or NULL. Free it with sqlite3_free(). */
static char *givenKey(BxCall *p, const char *const *azArg) {
  sqlite3_value *apPart[3];
  sqlite3_value *pKey = argumentOf(p, azArg, "storage_key");
  if (pKey != 0) return sqlite3_mprintf("%s", sqlite3_value_text(pKey));
  apPart[0] = argumentOf(p, azArg, "session_id");
  apPart[1] = argumentOf(p, azArg, "task_id");
  apPart[2] = argumentOf(p, azArg, "turn_id");
  if (apPart[0] == 0 || apPart[1] == 0 || apPart[2] == 0) return 0;
  return sqlite3_mprintf("%s_%s_%s", sqlite3_value_text(apPart[0]),
      sqlite3_value_text(apPart[1]), sqlite3_value_text(apPart[2]));
}

/* The argument as shown in a message: the size of large data, else the
** value. */
static char *showArgument(const char *zColumn, sqlite3_value *pVal) {
  if (bxBytes(pVal) > 60 &&
      (strcmp(zColumn, "data") == 0 || strcmp(zColumn, "description") == 0)) {
    return sqlite3_mprintf("%lld bytes", bxBytes(pVal));
  }
  return bxShow(pVal);
}

/* Inserts ", got <value>" before the advice of a message. */
static void addValue(BxErr *pErr, char *zShown) {
  const char *zAdvice = strchr(pErr->zMsg, ';');
  assert(pErr->rc != SQLITE_OK && pErr->zMsg != 0);
  if (zAdvice != 0 && zShown != 0) {
    bxErrReword(
        pErr, sqlite3_mprintf("%.*s, got %s%s", (int)(zAdvice - pErr->zMsg),
                  pErr->zMsg, zShown, zAdvice));
  }
  sqlite3_free(zShown);
}

/* Finds the argument of the column that the message begins with. */
static void explainValue(BxCall *p, const char *const *azArg) {
  const char *z = strstr(p->err.zMsg, ": ");
  int i;
  assert(p->err.zMsg != 0);
  if (z == 0) return;
  z += 2;
  if (strncmp(z, "session_id, ", 12) == 0) { /* the parts of a key */
    char *zKey = givenKey(p, azArg);
    addValue(&p->err, zKey ? sqlite3_mprintf("%Q", zKey)
                           : bxShow(argumentOf(p, azArg, "session_id")));
    sqlite3_free(zKey);
    return;
  }
  for (i = 0; azArg[i] != 0; i++) {
    size_t n = strlen(azArg[i]);
    if (strncmp(z, azArg[i], n) != 0 || z[n] != ' ') continue;
    addValue(&p->err, showArgument(azArg[i], i < p->nArg ? p->aArg[i] : 0));
    return;
  }
}

static void explainSize(
    BxCall *p, BxStmts *pHome, const char *const *azArg, BxErr *pErr) {
  i64 nMax =
      bxQueryNumber(pHome, "SELECT max_item FROM main.cache__limits", pErr);
  assert(p->err.rc != SQLITE_OK);
  p->err.rc = SQLITE_TOOBIG;
  if (nMax == 0) return;
  bxErrReword(&p->err,
      sqlite3_mprintf("DataTooLargeError: data must be at most %lld bytes "
                      "(cache.max_item_bytes), got %lld bytes; split it into "
                      "several items",
          nMax, bxBytes(argumentOf(p, azArg, "data"))));
}

/* The session is given by its id, or by the key of one of its items. */
static const char zCacheQuota[] =
    "SELECT coalesce(s.session_id, ?1), coalesce(s.total_size, 0),"
    " l.session_quota, t.bytes,"
    " l.total_quota, CASE WHEN l.evict THEN ' even after eviction "
    "(tool results stay)' ELSE '' END"
    " FROM main.cache_state AS t JOIN main.cache__limits AS l"
    " LEFT JOIN main.cache_sessions AS s ON s.session_id = coalesce(?1,"
    " (SELECT session_id FROM main.cache_items WHERE storage_key = ?2))";

/* The schema checks the quota of the session first. */
static int fitsSession(BxStmts *pHome, const char *zSession, const char *zKey,
    i64 nByte, BxErr *pErr) {
  CacheRoom room = {0};
  room.zSession = zSession;
  room.zKey = zKey;
  bxCacheFindRoom(&room, pHome, nByte, pErr);
  return room.nLeft >= 0;
}

static void explainQuota(
    BxCall *p, BxStmts *pHome, const char *const *azArg, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(pHome, zCacheQuota, pErr);
  char *zKey = givenKey(p, azArg);
  i64 nByte = bxBytes(argumentOf(p, azArg, "data"));
  assert((p->err.rc & 0xff) == SQLITE_CONSTRAINT);
  bxBind(pStmt, pErr, "vt", argumentOf(p, azArg, "session_id"), zKey);
  if (bxStep(pStmt, pErr)) {
    const char *zSession = bxColumnText(pStmt, 0, pErr);
    int bTotal = fitsSession(pHome, zSession, zKey, nByte, pErr);
    char *zWho = bTotal ? sqlite3_mprintf("all sessions together use")
                        : sqlite3_mprintf("session %Q uses", zSession);
    if (pErr->rc == SQLITE_OK) {
      bxErrReword(&p->err,
          sqlite3_mprintf("QuotaExceededError: %s %lld of %lld bytes "
                          "(cache.%s_quota_bytes), and %lld more bytes do not "
                          "fit%s; delete items with cache_delete() or write "
                          "less",
              zWho, sqlite3_column_int64(pStmt, bTotal ? 3 : 1),
              sqlite3_column_int64(pStmt, bTotal ? 4 : 2),
              bTotal ? "total" : "session", nByte,
              sqlite3_column_text(pStmt, 5)));
    }
    sqlite3_free(zWho);
  }
  sqlite3_finalize(pStmt);
  sqlite3_free(zKey);
}

/*----------------------------------------------------- a failing file ----*/

/* Whether the code says that the file cannot be used now. */
static int isStorage(const BxErr *pErr) {
  assert(pErr->rc != SQLITE_OK);
  switch (pErr->rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_READONLY:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL:
    case SQLITE_PERM:
    case SQLITE_NOTADB: return 1;
    case SQLITE_CORRUPT: return !bxErrIs(pErr, "CorruptedDataError");
    default: return bxErrContains(pErr, "no such table: ");
  }
}

void bxCacheExplain(BxCall *p, const char *const *azArg) {
  BxErr err = {SQLITE_OK, 0}; /* of this function itself; it is ignored */
  BxStmts *pHome;
  if (p->err.rc == SQLITE_OK || p->err.zMsg == 0) return;
  if (isStorage(&p->err)) {
    bxErrReword(&p->err, sqlite3_mprintf("StorageUnavailableError: %s; try "
                                         "again, or continue without the cache",
                             p->err.zMsg));
    return;
  }
  if ((p->err.rc & 0xff) != SQLITE_CONSTRAINT) return;
  if (p->err.rc == SQLITE_CONSTRAINT_CHECK) { /* SQLite puts words before it */
    const char *zOurs = strstr(p->err.zMsg, "failed: ");
    if (zOurs != 0) bxErrReword(&p->err, sqlite3_mprintf("%s", zOurs + 8));
  }
  pHome = bxDomainSchema(p->bx, "cache", &err);
  if (pHome != 0 && bxErrIs(&p->err, "QuotaExceededError")) {
    explainQuota(p, pHome, azArg, &err);
  } else if (pHome != 0 && bxErrIs(&p->err, "DataTooLargeError")) {
    explainSize(p, pHome, azArg, &err);
  } else if (pHome != 0 && p->err.rc != SQLITE_CONSTRAINT) {
    explainValue(p, azArg); /* the schema's; C has shown the value already */
  }
  bxErrClear(&err);
}

/*--------------------------------------------------------------- keys ----*/

/* The schema defines the format and checks every write. For a key that was not
** found, these functions tell whether the schema would accept it. */

/* Whether z up to zEnd is 1 to 128 printable characters. */
static int fitsPart(const char *z, const char *zEnd) {
  int n = 0;
  assert(z <= zEnd);
  for (; z < zEnd; z++) {
    unsigned char c = (unsigned char)*z;
    if (c < ' ' || c == 0x7f) return 0;
    if (c == 0xc2 && (unsigned char)z[1] < 0xa0) return 0; /* U+0080-U+009F */
    if ((c & 0xc0) != 0x80) n++;
  }
  return n >= 1 && n <= 128;
}

/* Parsed from the right: turn, task, and the rest is the session. */
static int fitsLoose(const char *z) {
  const char *zTurn = strrchr(z, '_'), *zTask = zTurn;
  if (zTurn == 0) return 0;
  while (zTask > z && zTask[-1] != '_') zTask--;
  return zTask > z && fitsPart(z, zTask - 1) && fitsPart(zTask, zTurn) &&
         fitsPart(zTurn + 1, zTurn + strlen(zTurn));
}

/* The same in sql/cache.sql. */
static const char zStrict[] =
    "SELECT ?1 GLOB replace('conv_xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
    "_xxxxxxxx_xxxxxxxx', 'x', '[a-z0-9]')";

void bxCacheCheckKey(BxStmts *pHome, sqlite3_value *pKey, BxErr *pErr) {
  const char *z = bxCacheKey(pKey, "storage key", 0, pErr);
  int bStrict = (int)bxSettingInt(pHome, "cache.strict_session_ids", pErr);
  int bFits = bStrict ? (int)bxQueryInt(pHome, zStrict, pErr, "t", z)
                      : z != 0 && fitsLoose(z);
  if (bFits || pErr->rc != SQLITE_OK) return;
  bxRefuse(pErr,
      bStrict ? "InvalidKeyFormatError: a storage key must be "
                "{sessionId}_{taskId}_{turnId} (conv_ with 8-4-4-4-12 "
                "characters, and twice 8, all of a-z and 0-9), got %s; use a "
                "key that cache_write() or cache_list() returned"
              : "InvalidKeyFormatError: a storage key must be "
                "{sessionId}_{taskId}_{turnId}, got %s; use a key that "
                "cache_write() or cache_list() returned",
      pKey);
}

void bxCacheNotFound(
    BxStmts *pHome, sqlite3_value *pKey, sqlite3_value *pSession, BxErr *pErr) {
  char *zSession = 0;
  bxCacheCheckKey(pHome, pKey, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (pSession != 0) {
    zSession = sqlite3_mprintf(" in session %Q", sqlite3_value_text(pSession));
  }
  bxFail(pErr, SQLITE_ERROR,
      "ItemNotFoundError: no item has the key %Q%s; SELECT storage_key FROM "
      "cache_list(<session>) lists the keys",
      sqlite3_value_text(pKey), zSession ? zSession : "");
  sqlite3_free(zSession);
}
