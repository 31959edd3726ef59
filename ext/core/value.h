/*
** value.h: arguments checked and named, the clock, and ids.
*/
#ifndef BX_VALUE_H
#define BX_VALUE_H

#include "error.h"

/* SQL: the milliseconds of a date that is text, NULL when it is none; the same
** number on every SQLite. sql/payload.sql says how, and has it in its indexes. */
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

/* Now, in milliseconds since 1970 UTC, as SQLite's own date functions see. */
i64 bxNow(void);
/* Writes a random UUID (version 4, lower case) and its terminator. */
void bxUuid(char zOut[37]);
/* What a message shows of a value: 'text', 12, NULL, a blob of 3 bytes. */
char *bxShow(sqlite3_value *pVal);
/* Whether n bytes are well-formed UTF-8 (RFC 3629). */
int bxIsUtf8(const unsigned char *z, int n);
/*
** Text of an argument. Refused: NULL (unless bNull, then NULL comes back),
** a blob, an embedded NUL, the empty string, more than nMax bytes, bytes that
** are no UTF-8.
*/
const char *bxText(
    sqlite3_value *pVal, const char *zWhat, int nMax, int bNull, BxErr *pErr);
/* A whole number from iLow to iHigh; a real that is whole passes. */
i64 bxInt(
    sqlite3_value *pVal, const char *zWhat, i64 iLow, i64 iHigh, BxErr *pErr);
/* A time in milliseconds since 1970 UTC; NULL or no value means now. */
i64 bxTime(sqlite3_value *pVal, const char *zWhat, BxErr *pErr);
/* Bytes of a text or blob as stored; 0 for NULL. */
i64 bxBytes(sqlite3_value *pVal);

#endif
