/*
** unzip.c: texts that a program keeps compressed with zstd.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

static int isZipped(const void *pData, int nData) {
  return nData > 4 && memcmp(pData, "\x28\xb5\x2f\xfd", 4) == 0;
}

/* A text with a NUL would be cut off there. */
static int isWholeText(const char *z, size_t n) {
  return memchr(z, 0, n) == 0 && bxIsUtf8((const unsigned char *)z, (int)n);
}

/* The text, or NULL if the data is damaged or too long. */
static char *unzipData(
    ZSTD_DCtx *pUnzip, const void *pData, size_t nData, BxErr *pErr) {
  const size_t nMost = 2 * (size_t)ROLLOUT_MAX_PAYLOAD;
  size_t nRoom, nDone;
  for (nRoom = 8 * nData;; nRoom *= 4) {
    char *z;
    if (nRoom > nMost) nRoom = nMost;
    z = bxGot(sqlite3_malloc64(nRoom + 1), pErr);
    if (z == 0) return 0;
    nDone = ZSTD_decompressDCtx(pUnzip, z, nRoom, pData, nData);
    if (!ZSTD_isError(nDone)) {
      z[nDone] = 0;
      if (isWholeText(z, nDone)) return z;
    }
    sqlite3_free(z);
    if (!ZSTD_isError(nDone)) return 0;
    if (ZSTD_getErrorCode(nDone) == ZSTD_error_memory_allocation) {
      bxGot(0, pErr);
    }
    if (ZSTD_getErrorCode(nDone) != ZSTD_error_dstSize_tooSmall ||
        nRoom == nMost) {
      return 0;
    }
  }
}

char *bxRolloutUnzip(const void *pData, int nData, BxErr *pErr) {
  ZSTD_DCtx *pUnzip;
  char *z;
  if (pData == 0 || pErr->rc != SQLITE_OK) return 0;
  if (!isZipped(pData, nData)) {
    if (!isWholeText(pData, (size_t)nData)) return 0;
    return bxPrintf(pErr, "%.*s", nData, (const char *)pData);
  }
  pUnzip = bxUnzipNew(pErr);
  if (pUnzip == 0) return 0;
  z = unzipData(pUnzip, pData, (size_t)nData, pErr);
  ZSTD_freeDCtx(pUnzip);
  return z;
}
