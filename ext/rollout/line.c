/*
** line.c: an item as a line of a file has it, read by a row of rollout_formats:
** its type, time, payload, and the conversation to which it belongs.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/*---------------------------------------------------------------- times ----*/

static int digits(const char *z, int n) {
  int i, iValue = 0;
  for (i = 0; i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return -1;
    iValue = iValue * 10 + (z[i] - '0');
  }
  return iValue;
}

/* The days from 1970-01-01 to a day of the years from 1970 to 9999, or -1. */
static i64 daysTo(int iYear, int iMonth, int iDay) {
  static const int aBefore[] = {
      0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
  int bLeap = (iYear % 4 == 0 && iYear % 100 != 0) || iYear % 400 == 0;
  i64 y = iYear - 1;
  if (iYear < 1970 || iMonth < 1 || iMonth > 12 || iDay < 1 ||
      iDay > aBefore[iMonth] - aBefore[iMonth - 1] +
                 (bLeap && iMonth == 2 ? 1 : 0)) {
    return -1;
  }
  return y * 365 + y / 4 - y / 100 + y / 400 - 719162 + aBefore[iMonth - 1] +
         (bLeap && iMonth > 2) + iDay - 1;
}

i64 bxRolloutPlainTime(const char *z) {
  int h = digits(z + 11, 2), m = digits(z + 14, 2), s = digits(z + 17, 2);
  int ms = digits(z + 20, 3);
  i64 nDay;
  if (z[4] != '-' || z[7] != '-' || z[10] != 'T' || z[13] != ':' ||
      z[16] != ':' || z[19] != '.' || z[23] != 'Z' || h < 0 || h > 23 ||
      m < 0 || m > 59 || s < 0 || s > 59 || ms < 0) {
    return -1;
  }
  nDay = daysTo(digits(z, 4), digits(z + 5, 2), digits(z + 8, 2));
  return nDay < 0 ? -1 : ((nDay * 24 + h) * 60 + m) * 60000 + s * 1000 + ms;
}

/* Seconds, milliseconds, microseconds or nanoseconds since 1970: the largest
** unit with which the time is before the year 5138. */
static i64 scaleTime(const char *z) {
  double r = strtod(z, 0);
  if (!(r >= 0 && r < 1e20)) return -1;
  if (r < 1e11) return (i64)(r * 1000 + 0.5);
  while (r >= 1e14) r /= 1000;
  return (i64)r;
}

static i64 lineTime(BxStmts *p, const BxTree *pTree, int iNode, BxErr *pErr) {
  static const char zLineTime[] = "SELECT coalesce(" BX_DATE_MS("?1") ", -1)";
  const char *z = pTree->z + pTree->a[iNode].iAt;
  int n = pTree->a[iNode].nByte;
  i64 iTime = -1;
  if (*z == '"' && n == 26) iTime = bxRolloutPlainTime(z + 1);
  if (*z == '"' && iTime < 0 && n > 2) {
    iTime = strspn(z + 1, "0123456789.") == (size_t)n - 2
                ? scaleTime(z + 1)
                : bxAsk(p, zLineTime, pErr, "b", z + 1, (i64)n - 2);
  } else if (*z != '"') {
    iTime = *z >= '0' && *z <= '9' ? scaleTime(z) : -1;
  }
  return iTime > BX_MAX_TIME ? -1 : iTime;
}

/*--------------------------------------------------------------- a line ----*/

/* The text or the number at a place, to sqlite3_free(); NULL if none. */
static char *nameAt(RolloutJson *p, const char *zPaths, BxErr *pErr) {
  int i = bxRolloutPlace(p, zPaths);
  char cKind = i < 0 ? 0 : BX_TREE_KIND(&p->tree, i);
  char *z = 0;
  if (cKind == '"') {
    z = bxPlaceText(&p->tree, i, pErr);
  } else if (cKind == '-' || (cKind >= '0' && cKind <= '9')) {
    z = bxPrintf(
        pErr, "%.*s", p->tree.a[i].nByte, p->tree.z + p->tree.a[i].iAt);
  }
  if (z != 0 && *z == 0) {
    sqlite3_free(z);
    z = 0;
  }
  return z;
}

/* Whether the text of a string has an escape for a NUL. */
static int hasNul(const BxTree *p, int iNode) {
  const char *z = p->z + p->a[iNode].iAt, *zEnd = z + p->a[iNode].nByte - 5;
  while (z < zEnd && memcmp(z, "\\u0000", 6) != 0) z += *z == '\\' ? 2 : 1;
  return z < zEnd;
}

/* The type: a string of 1 to 100 bytes without a NUL, a constant, or
** 'unknown'. Returns whether there is one. */
static int readType(
    RolloutJson *p, const char *zPaths, char *zType, BxErr *pErr) {
  int i = bxRolloutPlace(p, zPaths);
  const char *zLast = strrchr(zPaths, '|');
  char *z = 0;
  size_t n;
  if (i >= 0 && BX_TREE_KIND(&p->tree, i) == '"' && !hasNul(&p->tree, i)) {
    z = bxPlaceText(&p->tree, i, pErr);
  } else if (i < 0) {
    zLast = zLast ? zLast + 1 : zPaths;
    if (*zLast != '$') z = bxPrintf(pErr, "%s", zLast);
  }
  n = z ? strlen(z) : 0;
  if (n > 0 && n <= ROLLOUT_MAX_NAME && strstr(z, "\xef\xbf\xbd") == 0) {
    memcpy(zType, z, n + 1);
  } else {
    n = 0;
    memcpy(zType, "unknown", 8);
  }
  sqlite3_free(z);
  return n > 0;
}

static RolloutSpan spanOf(const BxTree *p, int iNode) {
  RolloutSpan span = {0, 0};
  if (iNode < 0) return span;
  span.z = p->z + p->a[iNode].iAt;
  span.n = p->a[iNode].nByte;
  return span;
}

/* Whether the bytes before a payload are those that an export writes. */
static int isUsual(const RolloutLine *p, const BxTree *pTree, int iTime,
    const char *zBefore, i64 nBefore) {
  char z[13 + 26 + 8 + (ROLLOUT_MAX_NAME + 1) * BX_JSON_ROOM + 16];
  char *zEnd = z;
  if (iTime < 0 || pTree->a[iTime].nByte != 26 || p->iTime < 0 ||
      bxRolloutPlainTime(pTree->z + pTree->a[iTime].iAt + 1) < 0) {
    return 0;
  }
  memcpy(zEnd, "{\"timestamp\":", 13);
  memcpy(zEnd + 13, pTree->z + pTree->a[iTime].iAt, 26);
  memcpy(zEnd + 39, ",\"type\":", 8);
  zEnd = bxPutJson(zEnd + 47, p->zType, (int)strlen(p->zType));
  memcpy(zEnd, ",\"payload\":", 11);
  zEnd += 11;
  return nBefore == zEnd - z && memcmp(z, zBefore, (size_t)nBefore) == 0;
}

int bxRolloutNames(const RolloutRules *pRules, const RolloutFormat *pFormat,
    RolloutJson *pJson, char **pzName, char **pzAgent, BxErr *pErr) {
  *pzName = *pzAgent = 0;
  if (pFormat->az[ROLLOUT_FORMAT_CONVERSATION] == 0 ||
      !bxRolloutFits(pRules, pFormat->names, pJson, pErr)) {
    return 0;
  }
  *pzName = nameAt(pJson, pFormat->az[ROLLOUT_FORMAT_CONVERSATION], pErr);
  if (*pzName == 0) return 0;
  *pzAgent = nameAt(pJson, pFormat->az[ROLLOUT_FORMAT_AGENT], pErr);
  return pErr->rc == SQLITE_OK;
}

char *bxRolloutNameAt(
    const RolloutFormat *pFormat, int eText, RolloutJson *pJson, BxErr *pErr) {
  return nameAt(pJson, pFormat->az[eText], pErr);
}

void bxRolloutReadLine(BxStmts *pHome, const RolloutFormat *pFormat,
    RolloutJson *pJson, RolloutLine *p, BxErr *pErr) {
  const BxTree *pTree = &pJson->tree;
  int iWhole = pJson->iTop, bType, iTime;
  memset(p, 0, sizeof(*p));
  bType = readType(pJson, pFormat ? pFormat->az[ROLLOUT_FORMAT_TYPE] : "$.type",
      p->zType, pErr);
  iTime = bxRolloutPlace(
      pJson, pFormat ? pFormat->az[ROLLOUT_FORMAT_TIME] : "$.timestamp|$.time");
  p->iTime = iTime < 0 ? -1 : lineTime(pHome, pTree, iTime, pErr);
  p->iPayload = pFormat && bType
                    ? bxRolloutPlace(pJson, pFormat->az[ROLLOUT_FORMAT_PAYLOAD])
                    : -1;
  p->bWhole = p->iPayload < 0;
  if (p->bWhole) p->iPayload = iWhole;
  p->item.payload = spanOf(pTree, p->iPayload);
  if (!p->bWhole) {
    const char *zWhole = pTree->z + pTree->a[iWhole].iAt;
    p->nUsual = p->item.payload.z - zWhole;
    p->bUsual = isUsual(p, pTree, iTime, zWhole, p->nUsual);
  }
  pJson->iTop = p->iPayload;
  p->item.payloadType = spanOf(pTree, bxRolloutPlace(pJson, "$.type"));
  p->item.role = spanOf(pTree, bxRolloutPlace(pJson, "$.role"));
}
