/*
** import_line.c: an item as a line of a file or an append has it, read by a row of
** rollout_formats: its type, time, payload, and the conversation to which it belongs.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/*---------------------------------------------------------------- times ----*/

static int digits(const char *z, int n) {
  int i, iValue = 0;
  assert(n > 0 && n < 10); /* no overflow */
  for (i = 0; i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return -1;
    iValue = iValue * 10 + (z[i] - '0');
  }
  return iValue;
}

/* The time of 24 characters such as 2026-01-01T00:00:00.000Z, the form in which an
** export writes times; -1 for all others. */
static i64 plainTime(const char *z) {
  static const int aBefore[] = {
      0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365};
  int iYear = digits(z, 4), iMonth = digits(z + 5, 2), iDay = digits(z + 8, 2);
  int h = digits(z + 11, 2), m = digits(z + 14, 2), s = digits(z + 17, 2);
  int ms = digits(z + 20, 3);
  int bLeap = (iYear % 4 == 0 && iYear % 100 != 0) || iYear % 400 == 0;
  i64 y = iYear - 1, nDay; /* since 1970-01-01 */
  if (z[4] != '-' || z[7] != '-' || z[10] != 'T' || z[13] != ':' ||
      z[16] != ':' || z[19] != '.' || z[23] != 'Z' || iYear < 1970 ||
      iMonth < 1 || iMonth > 12 || iDay < 1 ||
      iDay > aBefore[iMonth] - aBefore[iMonth - 1] + (bLeap && iMonth == 2) ||
      h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 59 || ms < 0) {
    return -1;
  }
  nDay = y * 365 + y / 4 - y / 100 + y / 400 - 719162 + aBefore[iMonth - 1] +
         (bLeap && iMonth > 2) + iDay - 1;
  return ((nDay * 24 + h) * 60 + m) * 60000 + s * 1000 + ms;
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

/* The time at a node. *pbPlain: it is in the form of plainTime(). */
static i64 lineTime(BxStmts *p, const RolloutFormat *pFormat,
    const BxTree *pTree, int iNode, int *pbPlain, BxErr *pErr) {
  static const char zLineTime[] = "SELECT coalesce(" BX_DATE_MS("?1") ", -1)";
  const char *z = pTree->z + pTree->a[iNode].iAt;
  int n = pTree->a[iNode].nByte;
  i64 iTime = *z == '"' && n == 26 ? plainTime(z + 1) : -1;
  assert(iNode >= 0 && iNode < pTree->n);
  *pbPlain = iTime >= 0;
  if (*z == '"' && iTime < 0 && n > 2) {
    iTime = strspn(z + 1, "0123456789.") == (size_t)n - 2
                ? scaleTime(z + 1)
                : bxQueryInt(p, zLineTime, pErr, "b", z + 1, (i64)n - 2);
  } else if (*z >= '0' && *z <= '9') {
    iTime = pFormat == 0 || !pFormat->bGiven       ? scaleTime(z)
            : strspn(z, "0123456789") == (size_t)n ? strtoll(z, 0, 10)
                                                   : -1;
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
    z = bxTreeString(&p->tree, i, pErr);
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

int bxRolloutWord(
    const BxTree *p, int iNode, char zWord[ROLLOUT_MAX_NAME + 1]) {
  char zLong[6 * ROLLOUT_MAX_NAME];
  int n =
      iNode < 0 || BX_TREE_KIND(p, iNode) != '"' ? 0 : p->a[iNode].nByte - 2;
  assert(iNode < p->n);
  zWord[0] = 0;
  if (n <= 0 || n > (int)sizeof(zLong)) return 0;
  n = (int)(bxTreeDecode(zLong, p->z + p->a[iNode].iAt + 1, n) - zLong);
  if (n > ROLLOUT_MAX_NAME || memchr(zLong, 0, (size_t)n) != 0) return 0;
  memcpy(zWord, zLong, (size_t)n);
  zWord[n] = 0;
  if (strstr(zWord, "\xef\xbf\xbd") == 0) return n;
  zWord[0] = 0;
  return 0;
}

/* The type: a word, a constant, or 'unknown'. Returns whether there is one. */
static int readType(const RolloutJson *p, const char *zPaths,
    char zType[ROLLOUT_MAX_NAME + 1]) {
  int i = bxRolloutPlace(p, zPaths);
  const char *zLast = strrchr(zPaths, '|');
  size_t n;
  if (bxRolloutWord(&p->tree, i, zType) > 0) return 1;
  zLast = zLast ? zLast + 1 : zPaths;
  n = strlen(zLast);
  if (i < 0 && *zLast != '$' && n > 0 && n <= ROLLOUT_MAX_NAME) {
    memcpy(zType, zLast, n + 1);
    return 1;
  }
  memcpy(zType, "unknown", 8);
  return 0;
}

RolloutSlice bxRolloutSpanOf(const BxTree *p, int iNode) {
  RolloutSlice span = {p->z + p->a[iNode].iAt, p->a[iNode].nByte};
  assert(iNode >= 0 && iNode < p->n);
  return span;
}

/* Whether the bytes before a payload are those that an export writes, with a plain
** time at a node. */
static int isUsual(const RolloutLine *p, const BxTree *pTree, int iTime,
    const char *zBefore, i64 nBefore) {
  char z[13 + 26 + 8 + (ROLLOUT_MAX_NAME + 1) * BX_JSON_ROOM + 16];
  char *zEnd = z;
  assert(pTree->a[iTime].nByte == 26); /* as an export writes it */
  memcpy(zEnd, "{\"timestamp\":", 13);
  memcpy(zEnd + 13, pTree->z + pTree->a[iTime].iAt, 26);
  memcpy(zEnd + 39, ",\"type\":", 8);
  zEnd = bxJsonWrite(zEnd + 47, p->zType, (int)strlen(p->zType));
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
  const char *zWhole = pTree->z + pTree->a[pJson->iTop].iAt;
  int iTime, iPayload = -1, bPlain = 0;
  assert(pJson->iTop >= 0 && pJson->iTop < pTree->n);
  memset(p, 0, sizeof(*p));
  p->bTyped = readType(
      pJson, pFormat ? pFormat->az[ROLLOUT_FORMAT_TYPE] : "$.type", p->zType);
  iTime = bxRolloutPlace(
      pJson, pFormat ? pFormat->az[ROLLOUT_FORMAT_TIME] : "$.timestamp|$.time");
  p->iTime =
      iTime < 0 ? -1 : lineTime(pHome, pFormat, pTree, iTime, &bPlain, pErr);
  if (pFormat && p->bTyped) {
    iPayload = bxRolloutPlace(pJson, pFormat->az[ROLLOUT_FORMAT_PAYLOAD]);
  }
  p->bWhole = iPayload < 0;
  if (!p->bWhole) pJson->iTop = iPayload;
  p->payload = bxRolloutSpanOf(pTree, pJson->iTop);
  p->nUsual = p->payload.z - zWhole;
  p->bUsual = !p->bWhole && bPlain && !pFormat->bGiven &&
              isUsual(p, pTree, iTime, zWhole, p->nUsual);
}
