/*
** value.c: checks and names arguments, reads the clock, makes ids.
**
** Units: a time is milliseconds since 1970 UTC, a size is bytes. Some hosts
** have only floating point numbers, so a real without a fraction counts as an
** integer.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <uuid/uuid.h>

i64 bxNow(void) {
  sqlite3_vfs *pVfs = sqlite3_vfs_find(0);
  sqlite3_int64 iJulian = 0;
  if (pVfs == 0) return 0;
  if (pVfs->iVersion >= 2 && pVfs->xCurrentTimeInt64 != 0) {
    pVfs->xCurrentTimeInt64(pVfs, &iJulian);
  } else {
    double rDays = 0.0;
    pVfs->xCurrentTime(pVfs, &rDays);
    iJulian = (sqlite3_int64)(rDays * 86400000.0 + 0.5);
  }
  return iJulian - 210866760000000LL; /* the Julian day of 1970-01-01 */
}

void bxUuid(char zOut[37]) {
  uuid_t id;
  uuid_generate_random(id);
  uuid_unparse_lower(id, zOut);
  assert(zOut[36] == 0 && zOut[14] == '4');
}

void bxTimeUuid(i64 iTime, char zOut[37]) {
  uuid_t id;
  int i;
  assert(iTime >= 0 && iTime <= BX_MAX_TIME);
  sqlite3_randomness(sizeof(id), id);
  for (i = 0; i < 6; i++) id[i] = (unsigned char)(iTime >> (40 - 8 * i));
  id[6] = (unsigned char)(0x70 | (id[6] & 0x0f));
  id[8] = (unsigned char)(0x80 | (id[8] & 0x3f));
  uuid_unparse_lower(id, zOut);
}

/* (The date by the calendar of ISO 8601: a year begins in March, an era has 400.) */
void bxIso(i64 iTime, char zOut[25]) {
  i64 iOfDay = iTime % BX_MS_PER_DAY;
  i64 nDay = iTime / BX_MS_PER_DAY + 719468; /* since March 1 of the year 0 */
  i64 nEra = nDay / 146097, nYear, iDay, iMonth;
  assert(iTime >= 0 && iTime <= BX_MAX_TIME);
  nDay -= nEra * 146097;
  nYear = (nDay - nDay / 1460 + nDay / 36524 - nDay / 146096) / 365;
  iDay = nDay - (365 * nYear + nYear / 4 - nYear / 100);
  iMonth = (5 * iDay + 2) / 153;
  iDay -= (153 * iMonth + 2) / 5 - 1;
  iMonth += iMonth < 10 ? 3 : -9;
  sqlite3_snprintf(25, zOut,
      "%04lld-%02lld-%02lldT%02lld:%02lld:%02lld.%03lldZ",
      nYear + nEra * 400 + (iMonth <= 2), iMonth, iDay, iOfDay / 3600000,
      iOfDay / 60000 % 60, iOfDay / 1000 % 60, iOfDay % 1000);
}

i64 bxBytes(sqlite3_value *pVal) {
  return pVal == 0 ? 0 : sqlite3_value_bytes(pVal);
}

#define HIGH 0x8080808080808080u /* the bits that are 0 in ASCII */

/* The first byte of z[i..n) that may not be ASCII. It tests many bytes at a
** time, because most texts are long and ASCII. */
static int skipAscii(const unsigned char *z, int i, int n) {
  sqlite3_uint64 x;
  assert(i >= 0 && i <= n);
#ifdef __SSE2__
  for (; n - i >= 64; i += 64) {
    const __m128i *a = (const __m128i *)(const void *)(z + i);
    __m128i x1 = _mm_or_si128(_mm_loadu_si128(a), _mm_loadu_si128(a + 1));
    __m128i x2 = _mm_or_si128(_mm_loadu_si128(a + 2), _mm_loadu_si128(a + 3));
    if (_mm_movemask_epi8(_mm_or_si128(x1, x2)) != 0) break;
  }
#endif
  for (; n - i >= 8; i += 8) {
    memcpy(&x, z + i, 8);
    if (x & HIGH) break;
  }
  return i;
}

int bxIsUtf8(const unsigned char *z, int n) {
  int i = 0;
  assert(n >= 0);
  while (i < n) {
    unsigned c = z[i++];
    unsigned iLow = 0x80, iHigh = 0xbf; /* limits of the second byte */
    int nMore;
    if (c < 0x80) {
      i = skipAscii(z, i, n);
      continue;
    }
    if (c < 0xc2 || c > 0xf4) return 0;
    nMore = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    if (c == 0xe0) iLow = 0xa0;
    if (c == 0xed) iHigh = 0x9f;
    if (c == 0xf0) iLow = 0x90;
    if (c == 0xf4) iHigh = 0x8f;
    for (; nMore > 0; nMore--) {
      if (i >= n || z[i] < iLow || z[i] > iHigh) return 0;
      iLow = 0x80;
      iHigh = 0xbf;
      i++;
    }
  }
  return 1;
}

/* The first bytes in hexadecimal, because a message must be UTF-8 itself. */
static char *showBytes(const char *z, int n) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  int i;
  assert(n >= 0);
  sqlite3_str_appendall(pOut, "CAST(x'");
  for (i = 0; i < n && i < 30; i++) {
    sqlite3_str_appendf(pOut, "%02x", (unsigned char)z[i]);
  }
  sqlite3_str_appendall(pOut, i < n ? "...' AS TEXT)" : "' AS TEXT)");
  return sqlite3_str_finish(pOut);
}

char *bxShow(sqlite3_value *pVal) {
  switch (pVal ? sqlite3_value_type(pVal) : SQLITE_NULL) {
    case SQLITE_NULL: return sqlite3_mprintf("NULL");
    case SQLITE_INTEGER:
      return sqlite3_mprintf("%lld", sqlite3_value_int64(pVal));
    case SQLITE_FLOAT:
      return sqlite3_mprintf("%!.15g", sqlite3_value_double(pVal));
    case SQLITE_BLOB:
      return sqlite3_mprintf("a blob of %d bytes", sqlite3_value_bytes(pVal));
    default: {
      const char *z = (const char *)sqlite3_value_text(pVal);
      int n = sqlite3_value_bytes(pVal);
      if (z == 0) return 0;
      if (!bxIsUtf8((const unsigned char *)z, n)) return showBytes(z, n);
      if (n <= 60) return sqlite3_mprintf("%Q", z);
      for (n = 60; n > 0 && (z[n] & 0xc0) == 0x80; n--) {
      } /* whole characters */
      return sqlite3_mprintf("'%.*q...'", n, z);
    }
  }
}

void bxRefuse(BxErr *pErr, const char *zFormat, sqlite3_value *pVal) {
  char *zShown = bxCheckMem(bxShow(pVal), pErr);
  if (zShown != 0) bxFail(pErr, SQLITE_CONSTRAINT, zFormat, zShown);
  sqlite3_free(zShown);
}

void bxRefuseArg(
    BxErr *pErr, const char *zWhat, const char *zRule, sqlite3_value *pVal) {
  char *zFormat =
      bxPrintf(pErr, "ValidationError: %s must be %s, got %%s", zWhat, zRule);
  if (zFormat != 0) bxRefuse(pErr, zFormat, pVal);
  sqlite3_free(zFormat);
}

const char *bxText(
    sqlite3_value *pVal, const char *zWhat, int nMax, int bNull, BxErr *pErr) {
  const unsigned char *z;
  int n, eType;
  assert(zWhat[0] != 0);
  assert(nMax > 0);
  if (pErr->rc != SQLITE_OK) return 0;
  eType = pVal ? sqlite3_value_type(pVal) : SQLITE_NULL;
  if (eType == SQLITE_NULL && bNull) return 0;
  if (eType == SQLITE_NULL || eType == SQLITE_BLOB) {
    bxRefuseArg(pErr, zWhat, "text", pVal);
    return 0;
  }
  z = sqlite3_value_text(pVal);
  n = sqlite3_value_bytes(pVal);
  if (z == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
  } else if (n == 0) {
    bxRefuseArg(pErr, zWhat, "text that is not empty", pVal);
  } else if (n > nMax) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "ValidationError: %s must be at most %d bytes of UTF-8, got %d bytes",
        zWhat, nMax, n);
  } else if (memchr(z, 0, (size_t)n) != 0) {
    bxRefuseArg(pErr, zWhat, "text without a NUL character in it", pVal);
  } else if (!bxIsUtf8(z, n)) {
    bxRefuseArg(pErr, zWhat, "well-formed UTF-8", pVal);
  }
  return pErr->rc == SQLITE_OK ? (const char *)z : 0;
}

/* The integer of a value; *pbOk is 0 if it is not one. */
static i64 wholeNumber(sqlite3_value *pVal, int *pbOk) {
  double r;
  assert(pVal != 0);
  *pbOk = 1;
  if (sqlite3_value_type(pVal) == SQLITE_INTEGER) {
    return sqlite3_value_int64(pVal);
  }
  if (sqlite3_value_type(pVal) == SQLITE_FLOAT) {
    r = sqlite3_value_double(pVal);
    if (r >= -9007199254740992.0 && r <= 9007199254740992.0 &&
        r == (double)(i64)r) {
      return (i64)r;
    }
  }
  *pbOk = 0;
  return 0;
}

i64 bxInt(
    sqlite3_value *pVal, const char *zWhat, i64 iLow, i64 iHigh, BxErr *pErr) {
  i64 iVal = 0;
  int bOk = 0;
  assert(iLow <= iHigh);
  if (pErr->rc != SQLITE_OK) return 0;
  if (pVal != 0) iVal = wholeNumber(pVal, &bOk);
  if (!bOk || iVal < iLow || iVal > iHigh) {
    char *zRule =
        bxPrintf(pErr, "a whole number from %lld to %lld", iLow, iHigh);
    bxRefuseArg(pErr, zWhat, zRule, pVal);
    sqlite3_free(zRule);
    return 0;
  }
  return iVal;
}

i64 bxTime(sqlite3_value *pVal, const char *zWhat, BxErr *pErr) {
  i64 iVal;
  int bOk;
  if (pErr->rc != SQLITE_OK) return 0;
  if (pVal == 0 || sqlite3_value_type(pVal) == SQLITE_NULL) return bxNow();
  iVal = wholeNumber(pVal, &bOk);
  if (!bOk || iVal < 0 || iVal > BX_MAX_TIME) {
    bxRefuseArg(pErr, zWhat,
        "a time in whole milliseconds since 1970 UTC (0 to 253402300799999)",
        pVal);
    return 0;
  }
  return iVal;
}

/*----------------------------------------------------------------- zstd ----*/

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

void *bxZstdCompressor(BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return 0;
  return bxCheckMem(ZSTD_createCCtx_advanced(zipMemory), pErr);
}

void *bxZstdDecompressor(BxErr *pErr) {
  if (pErr->rc != SQLITE_OK) return 0;
  return bxCheckMem(ZSTD_createDCtx_advanced(zipMemory), pErr);
}
