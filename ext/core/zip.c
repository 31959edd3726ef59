/*
** zip.c: contexts of zstd whose memory comes from SQLite.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#define ZSTD_STATIC_LINKING_ONLY
#include <zstd.h>

static void *zipAlloc(void *pOpaque, size_t n) {
  (void)pOpaque;
  return sqlite3_malloc64(n);
}

static void zipRelease(void *pOpaque, void *p) {
  (void)pOpaque;
  sqlite3_free(p);
}

static const ZSTD_customMem zipMemory = {zipAlloc, zipRelease, 0};

void *bxZipNew(BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return 0;
  return bxGot(ZSTD_createCCtx_advanced(zipMemory), pErr);
}

void *bxUnzipNew(BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return 0;
  return bxGot(ZSTD_createDCtx_advanced(zipMemory), pErr);
}
