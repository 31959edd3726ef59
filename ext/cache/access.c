/*
** access.c: a read leaves a mark, and never waits to write it.
**
** A read of an item is noted in memory. All notes are written together, into the rows
** of their sessions, when one of these is true: the session that is read had no mark
** for cache.mark_interval_ms; the oldest note is older than that; there is no room for
** another note. Notes that cannot be written then are kept.
**
** Writing must not wait for a lock, and must not hold a lock that the host does
** not know about:
**   - If the host already has the write lock, the marks join its transaction.
**   - Inside any other transaction nothing is written, because the lock would
**     be held until the COMMIT.
**   - In WAL mode, and in a database without a file, the marks are written while
**     a read of this module is open. SQLite then tries once to get the write lock
**     and does not call the busy handler, which could not release what this
**     connection reads.
**   - With a rollback journal even a COMMIT may wait for readers. The marks are
**     written by a separate connection, which has no busy handler, and only while
**     the host does not read: a change by another connection would prevent an
**     open transaction of the host from writing.
** When the connection closes, the remaining notes are also written by a
** separate connection. In WAL mode that connection does not sync its commit. A mark that fails for another reason than a lock is
** dropped, because a mark must never make a read fail.
**
** Limits: MAX_MARKS sessions are noted at a time. Marks are lost when the process
** is killed, and while the file is read-only.
*/
#include "cache.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MAX_MARKS 64

typedef struct CacheMark {
  char *zSession;
  i64 nHit;
  i64 iAt; /* the newest read */
} CacheMark;

typedef struct CacheMarks {
  char *zDb;   /* their schema */
  char *zFile; /* its file, or NULL */
  char *zVfs;
  i64 iTried; /* time of the last write or attempt */
  i64 iFirst; /* time of the oldest note */
  CacheNextExpiry quiet;
  int nMark;
  CacheMark aMark[MAX_MARKS];
} CacheMarks;

static const char zCacheMark[] =
    "UPDATE main.cache_sessions SET hits = hits + ?3,"
    " last_accessed_at = max(last_accessed_at, ?2) WHERE session_id = ?1";

static void marksEmpty(CacheMarks *p) {
  while (p->nMark > 0) sqlite3_free(p->aMark[--p->nMark].zSession);
}

/*---------------------------------------------------------------- write ----*/

/* Writes every mark with a statement of the writing connection. */
static void marksPut(const CacheMarks *p, sqlite3_stmt *pMarked, BxErr *pErr) {
  int i;
  for (i = 0; i < p->nMark && pErr->rc == SQLITE_OK; i++) {
    const CacheMark *pMark = &p->aMark[i];
    bxBind(pMarked, pErr, "tii", pMark->zSession, pMark->iAt, pMark->nHit);
    bxStmtRun(pMarked, pErr);
  }
}

/* On the host's connection. The row that is being read makes SQLite try to get
** the lock once instead of waiting for it. */
static void marksPutHere(const CacheMarks *p, BxStmts *pHome, BxErr *pErr) {
  static const char zHold[] = "SELECT one FROM main.cache_state";
  BxErr none = {SQLITE_OK, 0};
  sqlite3_stmt *pHold = bxStmt(pHome, zHold, pErr);
  if (bxStep(pHold, pErr)) {
    marksPut(p, bxStmt(pHome, zCacheMark, pErr), pErr);
  }
  bxReset(pHold, &none);
  bxErrClear(&none);
}

/* In WAL mode the commit of marks need not be synced: a power failure may take
** the marks, and nothing that the host has committed. */
static int marksRelax(sqlite3 *db) {
  sqlite3_stmt *pStmt = 0;
  int bWal = 0;
  int rc = sqlite3_prepare_v2(db, "PRAGMA main.journal_mode", -1, &pStmt, 0);
  if (rc != SQLITE_OK) return rc;
  if (sqlite3_step(pStmt) == SQLITE_ROW) {
    const char *zMode = (const char *)sqlite3_column_text(pStmt, 0);
    bWal = zMode != 0 && sqlite3_stricmp(zMode, "wal") == 0;
  }
  rc = sqlite3_finalize(pStmt);
  if (!bWal) return rc;
  return sqlite3_exec(db, "PRAGMA main.synchronous = NORMAL", 0, 0, 0);
}

/* On a separate connection. */
static void marksPutAside(const CacheMarks *p, BxErr *pErr) {
  sqlite3 *db = 0;
  sqlite3_stmt *pMarked = 0;
  int rc = sqlite3_open_v2(p->zFile, &db, SQLITE_OPEN_READWRITE, p->zVfs);
  if (rc == SQLITE_OK) rc = marksRelax(db);
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, "BEGIN IMMEDIATE", 0, 0, 0);
  if (rc == SQLITE_OK) {
    rc = sqlite3_prepare_v2(db, zCacheMark, -1, &pMarked, 0);
  }
  if (rc == SQLITE_OK) marksPut(p, pMarked, pErr);
  sqlite3_finalize(pMarked);
  if (rc == SQLITE_OK && pErr->rc == SQLITE_OK) {
    rc = sqlite3_exec(db, "COMMIT", 0, 0, 0);
  }
  if (rc != SQLITE_OK && db != 0) bxFailDb(pErr, db, rc);
  bxFail(pErr, rc, "out of memory");
  sqlite3_close(db);
}

/* Writes the notes if that is possible without waiting. */
static void marksWrite(CacheMarks *p, BxStmts *pHome, BxErr *pErr) {
  static const char zQueryOnly[] = "PRAGMA query_only";
  sqlite3 *db = pHome->bx->db;
  int eState = sqlite3_txn_state(db, pHome->zDb);
  int bAlone = sqlite3_get_autocommit(db);
  assert(p->nMark >= 0);
  if (bxIsReplayedRead(pHome->bx) || bxQueryInt(pHome, zQueryOnly, pErr, "")) {
    marksEmpty(p); /* the host forbids writing, or would lose it */
  } else if (eState == SQLITE_TXN_WRITE ||
             (bAlone && (p->zFile == 0 || bxIsWal(pHome, pErr)))) {
    marksPutHere(p, pHome, pErr);
  } else if (bAlone && eState == SQLITE_TXN_NONE) {
    marksPutAside(p, pErr);
  } else {
    return;
  }
  if ((pErr->rc & 0xff) != SQLITE_BUSY && (pErr->rc & 0xff) != SQLITE_LOCKED) {
    marksEmpty(p);
  }
}

void bxCacheWriteAccesses(BxStmts *pHome, BxErr *pErr) {
  CacheMarks *p;
  BxErr err = {SQLITE_OK, 0};
  int bAutocommit, eState;
  if (pErr->rc != SQLITE_OK) return;
  p = (CacheMarks *)bxDomainData(pHome->bx, "cache")->p;
  if (p == 0 || p->nMark == 0 || strcmp(p->zDb, pHome->zDb) != 0) return;
  bAutocommit = sqlite3_get_autocommit(pHome->bx->db);
  eState = sqlite3_txn_state(pHome->bx->db, pHome->zDb);
  marksWrite(p, pHome, &err);
  /* A failure is reported if it may have taken with it what was written before, or
  ** the host's transaction. */
  if (err.rc != SQLITE_OK &&
      (eState == SQLITE_TXN_WRITE
              ? !bxErrMayIgnore(pHome, &err)
              : bAutocommit != sqlite3_get_autocommit(pHome->bx->db))) {
    bxErrMove(pErr, &err);
  }
  bxErrClear(&err);
}

static void marksFree(void *pArg) {
  CacheMarks *p = (CacheMarks *)pArg;
  BxErr err = {SQLITE_OK, 0};
  if (p->nMark > 0 && p->zFile != 0) marksPutAside(p, &err);
  bxErrClear(&err);
  marksEmpty(p);
  sqlite3_free(p->zDb);
  sqlite3_free(p->zFile);
  sqlite3_free(p->zVfs);
  sqlite3_free(p);
}

/*----------------------------------------------------------------- note ----*/

/* The notes of this connection, created at the first use. NULL: out of
** memory. */
static CacheMarks *marksOf(Bx *bx) {
  BxDomainData *pSlot = bxDomainData(bx, "cache");
  if (pSlot->p == 0) {
    CacheMarks *p = sqlite3_malloc64(sizeof(*p));
    if (p == 0) return 0;
    memset(p, 0, sizeof(*p));
    pSlot->p = p;
    pSlot->xFree = marksFree;
  }
  return (CacheMarks *)pSlot->p;
}

CacheNextExpiry *bxCacheNextExpiry(Bx *bx) {
  CacheMarks *p = marksOf(bx);
  return p != 0 ? &p->quiet : 0;
}

/* Stores the schema of the notes, and its file, because at the close it is too
** late to ask. Returns whether the notes may be written at all. */
static int marksBegin(CacheMarks *p, BxStmts *pHome) {
  sqlite3 *db = pHome->bx->db;
  const char *zFile = sqlite3_db_filename(db, pHome->zDb);
  BxErr err = {SQLITE_OK, 0};
  sqlite3_vfs *pVfs = 0;
  if (sqlite3_db_readonly(db, pHome->zDb) != 0) return 0;
  bxStmt(pHome, zCacheMark, &err); /* which an authorizer may refuse */
  sqlite3_free(p->zDb);
  sqlite3_free(p->zFile);
  sqlite3_free(p->zVfs);
  p->zFile = p->zVfs = 0;
  p->zDb = sqlite3_mprintf("%s", pHome->zDb);
  if (zFile != 0 && *zFile != 0) {
    p->zFile = sqlite3_mprintf("%s", zFile);
    sqlite3_file_control(db, pHome->zDb, SQLITE_FCNTL_VFS_POINTER, &pVfs);
    if (pVfs != 0) p->zVfs = sqlite3_mprintf("%s", pVfs->zName);
    if (p->zFile == 0 || p->zVfs == 0) {
      bxFail(&err, SQLITE_NOMEM, "out of memory");
    }
  }
  if (p->zDb != 0 && err.rc == SQLITE_OK) return 1;
  bxErrClear(&err);
  return 0;
}

/* Notes one read. If there is no room or memory, it is not noted. */
static void marksNote(CacheMarks *p, const char *zSession, i64 iNow) {
  CacheMark *pMark = p->aMark;
  assert(zSession != 0);
  while (
      pMark < &p->aMark[p->nMark] && strcmp(pMark->zSession, zSession) != 0) {
    pMark++;
  }
  if (pMark == &p->aMark[MAX_MARKS]) return;
  if (pMark == &p->aMark[p->nMark]) {
    pMark->zSession = sqlite3_mprintf("%s", zSession);
    if (pMark->zSession == 0) return;
    pMark->nHit = 0;
    pMark->iAt = iNow;
    if (p->nMark++ == 0 || iNow < p->iFirst) p->iFirst = iNow;
  }
  assert(p->nMark > 0 && p->nMark <= MAX_MARKS);
  pMark->nHit++;
  if (pMark->iAt < iNow) pMark->iAt = iNow;
}

/* Whether that time has passed, or the clock was set back. */
static int marksPassed(i64 iThen, i64 iNow, i64 nInterval) {
  assert(nInterval >= 0);
  return iNow - iThen >= nInterval || iNow < iThen;
}

i64 bxCacheSinceMarks(Bx *bx, i64 iNow) {
  const CacheMarks *p = marksOf(bx);
  return p != 0 ? iNow - p->iTried : 0;
}

int bxCacheAccess(BxStmts *pHome, const char *zSession, i64 iNow, i64 iMarked,
    i64 nInterval) {
  CacheMarks *p = marksOf(pHome->bx);
  if (p == 0 || zSession == 0) return 0;
  if (p->nMark > 0 && strcmp(p->zDb, pHome->zDb) != 0) marksEmpty(p);
  if (p->nMark == 0 && !marksBegin(p, pHome)) return 0;
  marksNote(p, zSession, iNow);
  if (!marksPassed(p->iTried, iNow, nInterval)) return 0;
  if (iNow - iMarked < nInterval && p->nMark < MAX_MARKS &&
      !marksPassed(p->iFirst, iNow, nInterval)) {
    return 0;
  }
  p->iTried = iNow;
  return 1;
}
