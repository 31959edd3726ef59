/*
** value.h: arguments, the clock, and ids.
*/
#ifndef BX_VALUE_H
#define BX_VALUE_H

#include "error.h"

/* SQL: the milliseconds of a date in text form, or NULL if it is not a date. It
** is the same number in every version of SQLite. sql/payload.sql explains it, and
** the indexes of sql/payload_tables.sql contain it. */
#define BX_DATE_MS(text)                                                       \
  "CASE WHEN substr(" text ", 24) = 'Z' AND substr(" text ", 20, 1) = '.' "    \
  "AND substr(" text ", 12, 2) < '24' THEN unixepoch(" text                    \
  ") * 1000 + substr(" text ", 21, 3) "                                        \
  "WHEN substr(" text ", 5, 1) <> '-' OR substr(" text                         \
  ", 12, 2) = '24' THEN NULL "                                                 \
  "WHEN substr(" text ", 14, 1) = ':' AND substr(" text                        \
  ", 20, 1) <> '.' THEN unixepoch(" text ") * 1000 "                           \
  "WHEN substr(" text ", 14, 1) = ':' THEN unixepoch(substr(" text             \
  ", 1, 21) || ltrim(substr(" text ", 22), "                                   \
  "'0123456789')) * 1000 + CAST(substr(" text                                  \
  ", 20, 4) * 1000 + 0.5 AS INTEGER) "                                         \
  "WHEN length(" text ") = 10 THEN unixepoch(" text " || ' 00:00') * 1000 END"

#define BX_MAX_TIME 253402300799999 /* 9999-12-31, in milliseconds */
#define BX_MS_PER_DAY 86400000

/* The current time in milliseconds since 1970 UTC, as SQLite's date functions
** return it. */
i64 bxNow(void);
/* Writes a random UUID (version 4, lower case) and its terminator. */
void bxUuid(char zOut[37]);
/* Writes a UUID of version 7: it begins with the time, so that ids of the same
** time are near each other in an index. Its random part comes from SQLite, as in
** the ids that a schema makes; that takes a tenth of the time of bxUuid(). */
void bxTimeUuid(i64 iTime, char zOut[37]);
/* Writes a time as 2026-01-31T12:00:00.000Z, as strftime() of SQLite does. */
void bxIso(i64 iTime, char zOut[25]);
/* How a message shows a value: 'text', 12, NULL, a blob of 3 bytes. */
char *bxShow(sqlite3_value *pVal);
/* Refuses a value, with SQLITE_CONSTRAINT: zFormat has one %s, which shows it. */
void bxRefuse(BxErr *pErr, const char *zFormat, sqlite3_value *pVal);
/* The same: "<zWhat> must be <zRule>, got <value>". */
void bxRefuseArg(
    BxErr *pErr, const char *zWhat, const char *zRule, sqlite3_value *pVal);
/* Whether n bytes are well-formed UTF-8 (RFC 3629). */
int bxIsUtf8(const unsigned char *z, int n);
/*
** The text of an argument. Refused are NULL (with bNull it returns NULL), a
** blob, an embedded NUL, the empty string, more than nMax bytes, and bytes that
** are not UTF-8.
*/
const char *bxText(
    sqlite3_value *pVal, const char *zWhat, int nMax, int bNull, BxErr *pErr);
/* An integer from iLow to iHigh, or a real without a fraction. */
i64 bxInt(
    sqlite3_value *pVal, const char *zWhat, i64 iLow, i64 iHigh, BxErr *pErr);
/* A time in milliseconds since 1970 UTC; NULL or no value means now. */
i64 bxTime(sqlite3_value *pVal, const char *zWhat, BxErr *pErr);
/* The number of bytes of a text or blob as stored; 0 for NULL. */
i64 bxBytes(sqlite3_value *pVal);

/*----------------------------------------------------------------- zstd ----*/

/* A ZSTD_CCtx, which compresses. NULL on error. Free it with ZSTD_freeCCtx(). */
void *bxZstdCompressor(BxErr *pErr);
/* A ZSTD_DCtx, which decompresses. NULL on error. Free it with
** ZSTD_freeDCtx(). */
void *bxZstdDecompressor(BxErr *pErr);

#endif
