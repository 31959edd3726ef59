/*
** error.c: the error of a chain of calls.
**
** Only the first error is kept, because later ones are its consequences.
** Messages have the form "<ErrorName>: what was wrong, the value given, what is
** allowed, what to do next". A code from SQLite is passed on unchanged.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <string.h>

void bxFail(BxErr *pErr, int rc, const char *zFormat, ...) {
  va_list ap;
  if (pErr->rc != SQLITE_OK || rc == SQLITE_OK) return;
  assert(pErr->zMsg == 0);
  assert(rc != SQLITE_ROW && rc != SQLITE_DONE);
  pErr->rc = rc;
  va_start(ap, zFormat);
  pErr->zMsg = sqlite3_vmprintf(zFormat, ap);
  va_end(ap);
}

char *bxPrintf(BxErr *pErr, const char *zFormat, ...) {
  va_list ap;
  char *z;
  if (pErr->rc != SQLITE_OK) return 0;
  va_start(ap, zFormat);
  if (strcmp(zFormat, "%s") == 0) { /* it is faster */
    const char *zFrom = va_arg(ap, const char *);
    size_t n = zFrom ? strlen(zFrom) : 0;
    z = sqlite3_malloc64(n + 1);
    if (z != 0) memcpy(z, zFrom ? zFrom : "", n + 1);
  } else {
    z = sqlite3_vmprintf(zFormat, ap);
  }
  va_end(ap);
  return bxCheckMem(z, pErr);
}

void *bxCheckMem(void *p, BxErr *pErr) {
  if (p == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return p;
}

char *bxStrFinish(sqlite3_str *pOut, BxErr *pErr) {
  bxFail(pErr, sqlite3_str_errcode(pOut), "out of memory");
  return sqlite3_str_finish(pOut);
}

void *bxZalloc(size_t nByte, BxErr *pErr) {
  void *p = pErr->rc == SQLITE_OK ? sqlite3_malloc64(nByte) : 0;
  assert(nByte > 0);
  if (p != 0) memset(p, 0, nByte);
  return bxCheckMem(p, pErr);
}

#define LARGE 65536 /* elements */

void *bxArrayGrow(void *a, i64 n, i64 *pnAlloc, size_t nOne, BxErr *pErr) {
  /* a large one, which may have several times the bytes of the text it is made of,
  ** grows by half */
  i64 nNew = *pnAlloc == 0      ? 8
             : *pnAlloc < LARGE ? *pnAlloc * 2
                                : *pnAlloc + *pnAlloc / 2;
  if (pErr->rc != SQLITE_OK) return 0;
  assert(n >= 0 && n <= *pnAlloc);
  if (n < *pnAlloc) return a;
  a = bxCheckMem(sqlite3_realloc64(a, (sqlite3_uint64)nNew * nOne), pErr);
  if (a != 0) *pnAlloc = nNew;
  return a;
}

void *bxArrayAdd(
    void *pArray, i64 *pn, i64 *pnAlloc, size_t nOne, BxErr *pErr) {
  char *a;
  memcpy(&a, pArray, sizeof(a));
  a = bxArrayGrow(a, *pn, pnAlloc, nOne, pErr);
  if (a == 0) return 0;
  memcpy(pArray, &a, sizeof(a));
  return memset(a + (size_t)(*pn)++ * nOne, 0, nOne);
}

void bxFailDb(BxErr *pErr, sqlite3 *db, int rc) {
  assert(db != 0);
  if (rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE) return;
  if ((rc & 0xff) == SQLITE_NOMEM) {
    bxFail(pErr, rc, "out of memory");
  } else if ((sqlite3_errcode(db) & 0xff) == (rc & 0xff)) {
    bxFail(pErr, sqlite3_extended_errcode(db), "%s", sqlite3_errmsg(db));
  } else {
    bxFail(pErr, rc, "%s", sqlite3_errstr(rc));
  }
}

BxErr bxErrTake(BxErr *pErr) {
  static const BxErr none = {SQLITE_OK, 0};
  BxErr taken = *pErr;
  assert(taken.rc != SQLITE_OK || taken.zMsg == 0);
  *pErr = none;
  return taken;
}

void bxErrMove(BxErr *pErr, BxErr *pFrom) {
  assert(pErr != pFrom);
  if (pErr->rc == SQLITE_OK) *pErr = bxErrTake(pFrom);
  bxErrClear(pFrom);
}

int bxErrIs(const BxErr *pErr, const char *zName) {
  size_t n = strlen(zName);
  assert(strchr(zName, ':') == 0); /* a name alone */
  return pErr->rc != SQLITE_OK && pErr->zMsg != 0 &&
         strncmp(pErr->zMsg, zName, n) == 0 &&
         strncmp(pErr->zMsg + n, ": ", 2) == 0;
}

/* Whether the error has a name. Every error of blackbox has one, and no error
** of SQLite does. */
static int hasName(const BxErr *pErr) {
  size_t n;
  if (pErr->rc == SQLITE_OK || pErr->zMsg == 0) return 0;
  n = strspn(pErr->zMsg, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                         "abcdefghijklmnopqrstuvwxyz");
  return n > 5 && strncmp(pErr->zMsg + n - 5, "Error: ", 7) == 0;
}

int bxErrContains(const BxErr *pErr, const char *zWords) {
  return pErr->rc != SQLITE_OK && pErr->zMsg != 0 && !hasName(pErr) &&
         strstr(pErr->zMsg, zWords) != 0;
}

void bxErrMoveBut(BxErr *pErr, BxErr *pFrom, const char *zWords) {
  if (bxErrContains(pFrom, zWords)) bxErrClear(pFrom);
  bxErrMove(pErr, pFrom);
}

void bxErrReword(BxErr *pErr, char *zOwned) {
  if (zOwned == 0) return;
  sqlite3_free(pErr->zMsg);
  pErr->zMsg = zOwned;
}

void bxErrRename(BxErr *pErr, const char *zFrom, const char *zTo) {
  assert(strstr(zTo, "Error: ") != 0);
  if (!bxErrIs(pErr, zFrom)) return;
  bxErrReword(
      pErr, sqlite3_mprintf("%s%s", zTo, pErr->zMsg + strlen(zFrom) + 2));
}

void bxErrPrefix(BxErr *pErr, const char *zPrefix) {
  if (pErr->rc == SQLITE_OK || pErr->zMsg == 0 || hasName(pErr)) return;
  bxErrReword(pErr, sqlite3_mprintf("%s%s", zPrefix, pErr->zMsg));
}

void bxErrResult(BxErr *pErr, sqlite3_context *pCtx) {
  if (pErr->rc == SQLITE_OK) return;
  if ((pErr->rc & 0xff) == SQLITE_NOMEM || pErr->zMsg == 0) {
    sqlite3_result_error_nomem(pCtx);
  } else {
    sqlite3_result_error(pCtx, pErr->zMsg, -1);
    sqlite3_result_error_code(pCtx, pErr->rc);
  }
  bxErrClear(pErr);
}

int bxErrVtab(BxErr *pErr, sqlite3_vtab *pVtab) {
  int rc = pErr->rc;
  assert(rc != SQLITE_OK || pErr->zMsg == 0);
  if (rc == SQLITE_OK) return rc;
  if (pErr->zMsg == 0) rc = SQLITE_NOMEM; /* none for the message */
  sqlite3_free(pVtab->zErrMsg);
  pVtab->zErrMsg = bxErrTake(pErr).zMsg;
  return rc;
}

void bxErrClear(BxErr *pErr) {
  sqlite3_free(pErr->zMsg);
  pErr->zMsg = 0;
  pErr->rc = SQLITE_OK;
}
