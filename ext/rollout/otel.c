/*
** otel.c: the payload that a span or a log record of OpenTelemetry becomes (sql/
** rollout_formats.sql, rollout_attributes).
**
** A span has its attributes as a list of names and values, in one of several
** dialects. The payload is the span with one object of attributes, in one
** dialect, so that places find what it says: a.b.c is the member c of b of a.
** All its bytes are kept beside the payload, for the export.
**
** The attributes are sorted by their names, so that all of an object stand
** together. A name that is both a value and the beginning of others (a, a.b) is
** not divided.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define SPAN_DEPTH 40 /* the most parts of a name; the rest is one */
#define SPAN_NAME 999 /* bytes: no row is for what stands below a longer name */

/* An attribute under its name in the payload. */
typedef struct SpanEntry {
  char *zName;
  int iValue;         /* the node of its value */
  const char *zValue; /* this value instead, or NULL */
  int bJson;
  i64 iRank, i; /* of several with one name, the first of the lowest rank */
} SpanEntry;

typedef struct SpanItem {
  const RolloutRules *pRules;
  const char *zFormat;
  const BxTree *pTree;
  SpanEntry *a;
  i64 n, nAlloc;
  BxTree json; /* of a text that may be JSON */
  sqlite3_str *pOut;
  BxErr *pErr;
} SpanItem;

/*---------------------------------------------------------------- names ----*/

static int isPartDigit(char c) {
  return c >= '0' && c <= '9';
}

/* The end of the part of a name that begins at z. */
static const char *partEnd(const char *z) {
  return z + strcspn(z, ".");
}

static int isNumberPart(const char *z, const char *zEnd) {
  const char *zAt = z;
  while (zAt < zEnd && isPartDigit(*zAt)) zAt++;
  return z < zEnd && zAt == zEnd && zEnd - z < 10;
}

/* Compares the parts of names: numbers come first, by their value, and a name
** before those that go on after it. */
static int compareKeys(const char *z1, const char *z2) {
  assert(z1 != 0 && z2 != 0);
  for (;;) {
    const char *zEnd1 = partEnd(z1), *zEnd2 = partEnd(z2);
    i64 n1 = zEnd1 - z1, n2 = zEnd2 - z2;
    int b1 = isNumberPart(z1, zEnd1), b2 = isNumberPart(z2, zEnd2), c = b2 - b1;
    if (b1 && b2) c = (n1 > n2) - (n1 < n2);
    if (c == 0) c = memcmp(z1, z2, (size_t)(n1 < n2 ? n1 : n2));
    if (c == 0) c = (n1 > n2) - (n1 < n2);
    if (c == 0) c = (*zEnd1 == '.') - (*zEnd2 == '.');
    if (c != 0 || *zEnd1 == 0) return c;
    z1 = zEnd1 + 1;
    z2 = zEnd2 + 1;
  }
}

static int compareEntries(const void *pLeft, const void *pRight) {
  const SpanEntry *p1 = pLeft, *p2 = pRight;
  int c = compareKeys(p1->zName, p2->zName);
  if (c == 0) c = (p1->iRank > p2->iRank) - (p1->iRank < p2->iRank);
  return c != 0 ? c : (p1->i > p2->i) - (p1->i < p2->i);
}

/* Whether a name is that of a row, or goes on after it. Returns the rest of the
** name, or NULL. */
static const char *restAfter(const char *zRow, const char *zName) {
  while (*zRow != 0) {
    if (*zRow == '*' && isPartDigit(*zName)) {
      while (isPartDigit(*zName)) zName++;
      zRow++;
    } else if (*zRow++ != *zName++) {
      return 0;
    }
  }
  return *zName == 0 || *zName == '.' || zName[-1] == ':' ? zName : 0;
}

/* The name that a row gives: each * is the next number of the old name. */
static char *newName(const char *zNew, const char *zRow, const char *zName,
    const char *zRest, int iEvent, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  for (; *zNew != 0; zNew++) {
    if (*zNew == '+') {
      sqlite3_str_appendf(pOut, "%d", iEvent);
      continue;
    }
    if (*zNew != '*') {
      sqlite3_str_append(pOut, zNew, 1);
      continue;
    }
    while (*zRow != 0 && *zRow != '*') {
      zRow++;
      zName++;
    }
    if (*zRow != 0) zRow++;
    while (isPartDigit(*zName)) sqlite3_str_append(pOut, zName++, 1);
  }
  sqlite3_str_appendall(pOut, zRest);
  return bxStrFinish(pOut, pErr);
}

/*----------------------------------------------------------- attributes ----*/

/* Adds an attribute, whose name it frees. */
static SpanEntry *addEntry(SpanItem *p, char *zOwned, int iValue) {
  SpanEntry *a =
      zOwned == 0 ? 0
                  : bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), p->pErr);
  if (a == 0) {
    sqlite3_free(zOwned);
    return 0;
  }
  a->zName = zOwned;
  a->iValue = iValue;
  a->i = p->n - 1;
  return a;
}

/* The one member of a value {"stringValue": ...}, or -1. */
static int innerValue(const BxTree *p, int iValue) {
  assert(iValue < p->n);
  if (iValue < 0 || BX_TREE_KIND(p, iValue) != '{') return iValue;
  return p->a[iValue].iNext > iValue + 2 ? iValue + 2 : -1;
}

/* Adds an attribute under the names that the rows give it. Returns whether it
** has one: the row with the longest name gives it, and any row a value. */
static int addRenamed(SpanItem *p, const char *zName, int iValue, int iEvent) {
  const RolloutAttribute *a = p->pRules->aAttribute;
  int bNamed = 0, iInner = innerValue(p->pTree, iValue);
  i64 i;
  for (i = 0; i < p->pRules->nAttribute && p->pErr->rc == SQLITE_OK; i++) {
    const char *zRow = a[i].az[ROLLOUT_ATTRIBUTE_OLD], *zRest;
    const char *zValue = a[i].az[ROLLOUT_ATTRIBUTE_VALUE];
    const char *zOnly = a[i].az[ROLLOUT_ATTRIBUTE_ONLY];
    SpanEntry *pEntry;
    if (*zRow != *zName && *zRow != '*') continue;
    if (strcmp(a[i].az[ROLLOUT_ATTRIBUTE_FORMAT], p->zFormat) != 0 ||
        (zValue == 0 && bNamed)) {
      continue;
    }
    zRest = restAfter(zRow, zName);
    if (zRest == 0 || (zValue != 0 && *zRest != 0)) continue;
    if (*zOnly != 0 && (iInner < 0 || !bxTreeIs(p->pTree, iInner, zOnly,
                                          (int)strlen(zOnly)))) {
      continue;
    }
    pEntry = addEntry(p,
        newName(a[i].az[ROLLOUT_ATTRIBUTE_NAME], zRow, zName,
            zValue ? "" : zRest, iEvent, p->pErr),
        iValue);
    if (pEntry == 0) break;
    pEntry->zValue = zValue;
    pEntry->bJson = a[i].bJson && *zRest == 0;
    pEntry->iRank = strcmp(pEntry->zName, zName) == 0 ? 0 : a[i].iRank;
    if (zValue == 0) bNamed = 1;
  }
  return bNamed;
}

/* Adds the attributes of a list, of a span or of its event zEvent. Returns
** whether any of them is known. */
static int addAttributes(
    SpanItem *p, int iList, const char *zEvent, int iEvent) {
  const BxTree *pTree = p->pTree;
  int i, bKnown = 0;
  assert(iList < pTree->n && iEvent >= 0);
  if (iList < 0 || BX_TREE_KIND(pTree, iList) != '[') return 0;
  if (zEvent != 0 && strlen(zEvent) > SPAN_NAME) return 0;
  for (i = iList + 1; i < pTree->a[iList].iNext && p->pErr->rc == SQLITE_OK;
       i = pTree->a[i].iNext) {
    int iKey = bxTreeMember(pTree, i, "key", 3);
    int iValue = bxTreeMember(pTree, i, "value", 5);
    char *zKey, *zName;
    if (iKey < 0 || BX_TREE_KIND(pTree, iKey) != '"') continue;
    zKey = bxTreeString(pTree, iKey, p->pErr);
    zName = zEvent && zKey ? bxPrintf(p->pErr, "%s:%s", zEvent, zKey) : zKey;
    if (zName != 0 && addRenamed(p, zName, iValue, iEvent)) {
      bKnown = 1;
    } else if (zName != 0 && zEvent == 0) {
      addEntry(p, bxPrintf(p->pErr, "%s", zName), iValue);
    }
    if (zName != zKey) sqlite3_free(zName);
    sqlite3_free(zKey);
  }
  return bKnown;
}

/*--------------------------------------------------------------- values ----*/

static void appendRaw(SpanItem *p, const BxTree *pTree, int i) {
  sqlite3_str_append(p->pOut, pTree->z + pTree->a[i].iAt, pTree->a[i].nByte);
}

/* An integer may be a string, which becomes a number if it is one in JSON. */
static void appendInteger(SpanItem *p, int i) {
  const BxTree *pTree = p->pTree;
  const char *z = pTree->z + pTree->a[i].iAt;
  int n = pTree->a[i].nByte, bText = *z == '"';
  const char *zDigit = z + bText, *zEnd = z + n - bText;
  assert(i > 0 && i < pTree->n);
  if (zDigit < zEnd && *zDigit == '-') zDigit++;
  if (bText && zEnd - zDigit < 20 &&
      strspn(zDigit, "0123456789") == (size_t)(zEnd - zDigit) &&
      zDigit < zEnd && (*zDigit != '0' || zEnd - zDigit == 1)) {
    sqlite3_str_append(p->pOut, z + 1, n - 2);
  } else {
    appendRaw(p, pTree, i);
  }
}

/* A text that is a JSON object or array becomes that; any other remains. */
static void appendText(SpanItem *p, int i, int bJson) {
  char *z = bJson ? bxTreeString(p->pTree, i, p->pErr) : 0;
  size_t n = z ? strlen(z) : 0;
  const char *zEnd = 0, *zAt = z ? bxJsonSkipSpace(z) : 0;
  if (zAt != 0 && (*zAt == '[' || *zAt == '{')) {
    zEnd = bxTreeRead(&p->json, zAt, (i64)(z + n - zAt), 0, 0, p->pErr);
  }
  if (zEnd != 0 && *bxJsonSkipSpace(zEnd) == 0) {
    sqlite3_str_append(p->pOut, zAt, (int)(zEnd - zAt));
  } else {
    appendRaw(p, p->pTree, i);
  }
  sqlite3_free(z);
}

static void appendValue(SpanItem *p, int iValue, int bJson);

/* The values of an array, or the members of a list of keys and values. */
static void appendInside(SpanItem *p, int iInner, int bKeys) {
  const BxTree *pTree = p->pTree;
  int iList = bxTreeMember(pTree, iInner, "values", 6), i, bAny = 0;
  assert(iInner > 0 && iInner < pTree->n);
  sqlite3_str_appendchar(p->pOut, 1, bKeys ? '{' : '[');
  if (iList >= 0 && BX_TREE_KIND(pTree, iList) == '[') {
    for (i = iList + 1; i < pTree->a[iList].iNext; i = pTree->a[i].iNext) {
      int iKey = bKeys ? bxTreeMember(pTree, i, "key", 3) : -1;
      if (bKeys && (iKey < 0 || BX_TREE_KIND(pTree, iKey) != '"')) continue;
      if (bAny) sqlite3_str_appendchar(p->pOut, 1, ',');
      bAny = 1;
      if (bKeys) {
        appendRaw(p, pTree, iKey);
        sqlite3_str_appendchar(p->pOut, 1, ':');
      }
      appendValue(p, bKeys ? bxTreeMember(pTree, i, "value", 5) : i, 0);
    }
  }
  sqlite3_str_appendchar(p->pOut, 1, bKeys ? '}' : ']');
}

static void appendValue(SpanItem *p, int iValue, int bJson) {
  const BxTree *pTree = p->pTree;
  int i = innerValue(pTree, iValue);
  if (i < 0) {
    sqlite3_str_appendall(p->pOut, "null");
  } else if (i == iValue) {
    appendRaw(p, pTree, i);
  } else if (bxTreeIs(pTree, i - 1, "arrayValue", 10)) {
    appendInside(p, i, 0);
  } else if (bxTreeIs(pTree, i - 1, "kvlistValue", 11)) {
    appendInside(p, i, 1);
  } else if (bxTreeIs(pTree, i - 1, "intValue", 8)) {
    appendInteger(p, i);
  } else if (BX_TREE_KIND(pTree, i) == '"') {
    appendText(p, i, bJson);
  } else {
    appendRaw(p, pTree, i);
  }
}

/*--------------------------------------------------------------- objects ----*/

/* The number of entries from i on, up to iEnd, whose names have the same part at
** nSkip. */
static i64 sameGroup(const SpanItem *p, i64 i, i64 iEnd, size_t nSkip) {
  const char *z = p->a[i].zName + nSkip;
  size_t n = (size_t)(partEnd(z) - z);
  i64 iNext = i + 1;
  assert(i < iEnd && iEnd <= p->n);
  while (iNext < iEnd && strncmp(p->a[iNext].zName + nSkip, z, n) == 0 &&
         (p->a[iNext].zName[nSkip + n] == '.' ||
             p->a[iNext].zName[nSkip + n] == 0)) {
    iNext++;
  }
  return iNext - i;
}

/* Whether the names at nSkip are numbers that are not both values and beginnings
** of others. */
static int isList(const SpanItem *p, i64 i, i64 iEnd, size_t nSkip) {
  while (i < iEnd) {
    const char *z = p->a[i].zName + nSkip;
    i64 n = sameGroup(p, i, iEnd, nSkip);
    if (!isNumberPart(z, partEnd(z)) || (*partEnd(z) == 0 && n > 1)) return 0;
    i += n;
  }
  return 1;
}

static void appendKey(SpanItem *p, const char *z, i64 n) {
  bxJsonAppend(p->pOut, z, (int)n);
  sqlite3_str_appendchar(p->pOut, 1, ':');
}

/* Appends the object, or the array, of the entries from i to iEnd, whose names
** are the same up to nSkip. */
static void appendObject(
    SpanItem *p, i64 i, i64 iEnd, size_t nSkip, int nDepth) {
  int bList = i < iEnd && isList(p, i, iEnd, nSkip), bAny = 0;
  assert(i <= iEnd && iEnd <= p->n && nDepth <= SPAN_DEPTH);
  sqlite3_str_appendchar(p->pOut, 1, bList ? '[' : '{');
  while (i < iEnd) {
    const char *z = p->a[i].zName + nSkip, *zEnd = partEnd(z);
    i64 n = sameGroup(p, i, iEnd, nSkip), iGroup = i + n;
    if (*zEnd == 0 || nDepth == SPAN_DEPTH) {
      /* a value; and those that go on after it, each by its whole name */
      for (; i < iGroup; i++) {
        z = p->a[i].zName + nSkip;
        if (bAny) sqlite3_str_appendchar(p->pOut, 1, ',');
        bAny = 1;
        if (!bList) appendKey(p, z, (i64)strlen(z));
        if (p->a[i].zValue != 0) {
          bxJsonAppend(p->pOut, p->a[i].zValue, (int)strlen(p->a[i].zValue));
        } else {
          appendValue(p, p->a[i].iValue, p->a[i].bJson);
        }
      }
      continue;
    }
    if (bAny) sqlite3_str_appendchar(p->pOut, 1, ',');
    bAny = 1;
    if (!bList) appendKey(p, z, zEnd - z);
    appendObject(p, i, iGroup, nSkip + (size_t)(zEnd - z) + 1, nDepth + 1);
    i = iGroup;
  }
  sqlite3_str_appendchar(p->pOut, 1, bList ? ']' : '}');
}

/* Appends all entries as one object, and removes them. */
static void appendAttributes(SpanItem *p) {
  i64 i, n = 0;
  if (p->n > 1) qsort(p->a, (size_t)p->n, sizeof(*p->a), compareEntries);
  for (i = 0; i < p->n; i++) {
    if (n > 0 && strcmp(p->a[n - 1].zName, p->a[i].zName) == 0) {
      sqlite3_free(p->a[i].zName);
    } else {
      p->a[n++] = p->a[i];
    }
  }
  p->n = n;
  appendObject(p, 0, n, 0, 0);
  for (i = 0; i < n; i++) sqlite3_free(p->a[i].zName);
  p->n = 0;
}

/*-------------------------------------------------------------- the span ----*/

/* Adds the attributes that a body has, each under the names of the objects in
** which it is. Returns whether any of them is known. */
static int addBody(SpanItem *p, int iValue, const char *zPrefix) {
  const BxTree *pTree = p->pTree;
  int iInner = innerValue(pTree, iValue), iList, i, bKnown = 0;
  if (iInner <= iValue || !bxTreeIs(pTree, iInner - 1, "kvlistValue", 11) ||
      strlen(zPrefix) > SPAN_NAME) {
    return 0;
  }
  iList = bxTreeMember(pTree, iInner, "values", 6);
  if (iList < 0 || BX_TREE_KIND(pTree, iList) != '[') return 0;
  for (i = iList + 1; i < pTree->a[iList].iNext && p->pErr->rc == SQLITE_OK;
       i = pTree->a[i].iNext) {
    int iKey = bxTreeMember(pTree, i, "key", 3);
    int iMember = bxTreeMember(pTree, i, "value", 5);
    char *zKey, *zName, *zInside;
    if (iKey < 0 || BX_TREE_KIND(pTree, iKey) != '"') continue;
    zKey = bxTreeString(pTree, iKey, p->pErr);
    zName = zKey ? bxPrintf(p->pErr, "%s%s", zPrefix, zKey) : 0;
    zInside = zName ? bxPrintf(p->pErr, "%s.", zName) : 0;
    if (zInside != 0 &&
        (addBody(p, iMember, zInside) || addRenamed(p, zName, iMember, 0))) {
      bKnown = 1;
    }
    sqlite3_free(zInside);
    sqlite3_free(zName);
    sqlite3_free(zKey);
  }
  return bKnown;
}

/* The name of the event that a log record tells, to sqlite3_free(): its own, or that of
** an attribute. */
static char *eventName(SpanItem *p, int iRecord) {
  const BxTree *pTree = p->pTree;
  int iFound = bxTreeMember(pTree, iRecord, "eventName", 9), i;
  int iList = bxTreeMember(pTree, iRecord, "attributes", 10);
  if (iFound >= 0 && BX_TREE_KIND(pTree, iFound) == '"' &&
      pTree->a[iFound].nByte > 2) {
    return bxTreeString(pTree, iFound, p->pErr);
  }
  if (iList >= 0 && BX_TREE_KIND(pTree, iList) == '[') {
    for (i = iList + 1; i < pTree->a[iList].iNext; i = pTree->a[i].iNext) {
      int iName = bxTreeMember(pTree, i, "key", 3);
      int iText = innerValue(pTree, bxTreeMember(pTree, i, "value", 5));
      if (iName >= 0 && bxTreeIs(pTree, iName, "event.name", 10) &&
          iText >= 0 && BX_TREE_KIND(pTree, iText) == '"') {
        return bxTreeString(pTree, iText, p->pErr);
      }
    }
  }
  return bxPrintf(p->pErr, "log");
}

/* A log record is an event by itself: adds what it says, or appends its body. */
static void appendRecord(SpanItem *p, int iRecord) {
  const BxTree *pTree = p->pTree;
  int iBody = bxTreeMember(pTree, iRecord, "body", 4);
  int iList = bxTreeMember(pTree, iRecord, "attributes", 10);
  char *zName = eventName(p, iRecord);
  char *zAny = zName ? bxPrintf(p->pErr, "%s:", zName) : 0;
  if (zAny != 0) {
    sqlite3_str_appendall(p->pOut, ",\"event\":");
    bxJsonAppend(p->pOut, zName, (int)strlen(zName));
    addRenamed(p, zAny, -1, 0);
    addAttributes(p, iList, zName, 0);
    if (iBody >= 0 && !addBody(p, iBody, zAny)) {
      sqlite3_str_appendall(p->pOut, ",\"body\":");
      appendValue(p, iBody, 0);
    }
  }
  sqlite3_free(zAny);
  sqlite3_free(zName);
}

/* Adds what the events say. Appends the others, as they are. */
static void appendEvents(SpanItem *p, int iList) {
  const BxTree *pTree = p->pTree;
  int i, nEvent = 0, bAny = 0;
  if (iList < 0 || BX_TREE_KIND(pTree, iList) != '[') return;
  for (i = iList + 1; i < pTree->a[iList].iNext && p->pErr->rc == SQLITE_OK;
       i = pTree->a[i].iNext) {
    int iName = bxTreeMember(pTree, i, "name", 4);
    int bName = iName >= 0 && BX_TREE_KIND(pTree, iName) == '"';
    char *zName = bName ? bxTreeString(pTree, iName, p->pErr) : 0;
    char *zAny = zName ? bxPrintf(p->pErr, "%s:", zName) : 0;
    i64 nBefore = p->n;
    if (zAny != 0) addRenamed(p, zAny, -1, nEvent);
    if (zAny != 0 &&
        !addAttributes(
            p, bxTreeMember(pTree, i, "attributes", 10), zName, nEvent) &&
        p->n == nBefore) {
      sqlite3_str_appendall(p->pOut, bAny ? "," : ",\"events\":[");
      bAny = 1;
      appendRaw(p, pTree, i);
    }
    nEvent++;
    sqlite3_free(zAny);
    sqlite3_free(zName);
  }
  if (bAny) sqlite3_str_appendchar(p->pOut, 1, ']');
}

/* Appends the other members of the span, and a brace before them. */
static void appendMembers(SpanItem *p, int iSpan) {
  const BxTree *pTree = p->pTree;
  int i, bAny = 0;
  sqlite3_str_appendchar(p->pOut, 1, '{');
  for (i = iSpan + 1; i < pTree->a[iSpan].iNext; i = pTree->a[i + 1].iNext) {
    if (bxTreeIs(pTree, i, "attributes", 10) ||
        bxTreeIs(pTree, i, "events", 6) || bxTreeIs(pTree, i, "resource", 8) ||
        bxTreeIs(pTree, i, "event", 5) || bxTreeIs(pTree, i, "newest", 6) ||
        bxTreeIs(pTree, i, "eventName", 9) || bxTreeIs(pTree, i, "body", 4)) {
      continue;
    }
    if (bAny) sqlite3_str_appendchar(p->pOut, 1, ',');
    bAny = 1;
    appendRaw(p, pTree, i);
    sqlite3_str_appendchar(p->pOut, 1, ':');
    appendRaw(p, pTree, i + 1);
  }
  if (!bAny) sqlite3_str_appendall(p->pOut, "\"span\":null");
}

char *bxRolloutSpan(const RolloutRules *pRules, const RolloutFormat *pFormat,
    const BxTree *pTree, int iSpan, int iResource, BxErr *pErr) {
  /* what only a log record has */
  static const char *const azRecord[] = {
      "body", "eventName", "observedTimeUnixNano", "severityNumber"};
  SpanItem span, *p = &span;
  i64 i;
  assert(iSpan >= 0 && iSpan < pTree->n);
  assert(iResource < pTree->n);
  if (BX_TREE_KIND(pTree, iSpan) != '{') {
    return bxPrintf(
        pErr, "%.*s", pTree->a[iSpan].nByte, pTree->z + pTree->a[iSpan].iAt);
  }
  memset(p, 0, sizeof(*p));
  p->pRules = pRules;
  p->zFormat = pFormat->az[ROLLOUT_FORMAT_NAME];
  p->pTree = pTree;
  p->pErr = pErr;
  p->pOut = sqlite3_str_new(0);
  appendMembers(p, iSpan);
  for (i = 0; i < 4; i++) {
    int n = (int)strlen(azRecord[i]);
    if (bxTreeMember(pTree, iSpan, azRecord[i], n) < 0) continue;
    appendRecord(p, iSpan);
    break;
  }
  appendEvents(p, bxTreeMember(pTree, iSpan, "events", 6));
  addAttributes(p, bxTreeMember(pTree, iSpan, "attributes", 10), 0, 0);
  sqlite3_str_appendall(p->pOut, ",\"attributes\":");
  appendAttributes(p);
  if (iResource >= 0) {
    addAttributes(p, bxTreeMember(pTree, iResource, "attributes", 10), 0, 0);
    sqlite3_str_appendall(p->pOut, ",\"resource\":");
    appendAttributes(p);
  }
  sqlite3_str_appendchar(p->pOut, 1, '}');
  for (i = 0; i < p->n; i++) sqlite3_free(p->a[i].zName);
  sqlite3_free(p->a);
  bxTreeFree(&p->json);
  return bxStrFinish(p->pOut, pErr);
}
