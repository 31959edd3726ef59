/*
** import_changes.c: files whose lines are changes of one value, as Copilot in VS Code
** writes its sessions (kind 'changes' in rollout_formats).
**
**   {"kind":0,"v":{...}}              the value, which the first line has
**   {"kind":1,"k":[...],"v":...}      at this place is v now; without v nothing is there
**   {"kind":2,"k":[...],"v":[...],"i":2}  the array at this place is cut to i elements,
**                                     if there is an i, and then gets those of v
**   {"kind":3,"k":[...]}              nothing is at this place any more
**
** A place is a list of keys and of numbers of elements. The value that all changes make
** is read as a file that is one value (import_value.c); the export has the file's own
** bytes.
**
** A value is a text of the file until a change looks into it. Then it is opened: it
** becomes a list of its members, or elements, each of which is such a text. So a change
** takes time for what stands beside its place, and not for the whole value.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define CHANGE_DEPTH 100 /* the longest place */
#define CHANGE_WRONG "a change of what is not there; it is kept for the export"

typedef struct ChangeNode ChangeNode;
struct ChangeNode {
  RolloutSlice key; /* of a member, with its quotes */
  RolloutSlice
      text; /* the value as it is written; an opened one has its first byte */
  int bOpen;
  ChangeNode *a; /* what is in it, if it is opened */
  i64 n, nAlloc;
};

/*--------------------------------------------------------------- values ----*/

static void freeInside(ChangeNode *p) {
  i64 i;
  assert(p->bOpen || p->n == 0);
  for (i = 0; i < p->n; i++) freeInside(&p->a[i]);
  sqlite3_free(p->a);
  p->a = 0;
  p->n = p->nAlloc = p->bOpen = 0;
}

static ChangeNode *addInside(ChangeNode *p, BxErr *pErr) {
  assert(p->bOpen);
  return bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*p->a), pErr);
}

/* Makes an object or an array a list of what is in it. Returns whether it is one. Its
** text was read before. */
static int openValue(ChangeNode *p, BxErr *pErr) {
  const char *z = p->text.z, *zEnd = z + p->text.n;
  int bObject = *z == '{';
  if (p->bOpen) return 1;
  if (!bObject && *z != '[') return 0;
  p->bOpen = 1;
  z = bxJsonSkipSpace(z + 1);
  while (z != 0 && *z != '}' && *z != ']') {
    ChangeNode *pNew = addInside(p, pErr);
    if (pNew == 0) return 0;
    if (bObject) {
      pNew->key.z = z;
      z = bxJsonSkipString(z, zEnd);
      if (z == 0) return 0;
      pNew->key.n = z - pNew->key.z;
      z = bxJsonSkipSpace(bxJsonSkipSpace(z) + 1);
    }
    pNew->text.z = z;
    z = bxJsonSkipValue(z, zEnd);
    if (z == 0) return 0;
    pNew->text.n = z - pNew->text.z;
    z = bxJsonSkipSpace(z);
    if (*z == ',') z = bxJsonSkipSpace(z + 1);
  }
  return z != 0;
}

/* Writes the value to zOut, which may be NULL. Returns its length. */
static i64 writeValue(const ChangeNode *p, char *zOut) {
  i64 n = 0, i;
  if (!p->bOpen) {
    if (zOut != 0) memcpy(zOut, p->text.z, (size_t)p->text.n);
    return p->text.n;
  }
  if (zOut != 0) zOut[0] = *p->text.z;
  for (i = 0, n = 1; i < p->n; i++) {
    const ChangeNode *pIn = &p->a[i];
    if (i > 0 && zOut != 0) zOut[n] = ',';
    n += i > 0;
    if (pIn->key.n > 0) {
      if (zOut != 0) {
        memcpy(zOut + n, pIn->key.z, (size_t)pIn->key.n);
        zOut[n + pIn->key.n] = ':';
      }
      n += pIn->key.n + 1;
    }
    n += writeValue(pIn, zOut ? zOut + n : 0);
  }
  if (zOut != 0) zOut[n] = *p->text.z == '{' ? '}' : ']';
  return n + 1;
}

/*--------------------------------------------------------------- places ----*/

/* Whether two keys, with their quotes, are the same. */
static int sameKey(RolloutSlice a, RolloutSlice b, BxErr *pErr) {
  char *z, *z1, *z2;
  int bSame;
  if (a.n == b.n && memcmp(a.z, b.z, (size_t)a.n) == 0) return 1;
  if (memchr(a.z, '\\', (size_t)a.n) == 0 &&
      memchr(b.z, '\\', (size_t)b.n) == 0) {
    return 0;
  }
  z = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)(a.n + b.n)), pErr);
  if (z == 0) return 0;
  z1 = bxTreeDecode(z, a.z + 1, (int)a.n - 2);
  z2 = bxTreeDecode(z1, b.z + 1, (int)b.n - 2);
  bSame = z1 - z == z2 - z1 && memcmp(z, z1, (size_t)(z1 - z)) == 0;
  sqlite3_free(z);
  return bSame;
}

/* The number of an element, or -1. */
static i64 elementNumber(RolloutSlice text) {
  i64 i, nValue = 0;
  if (text.n == 0 || text.n > 9) return -1;
  for (i = 0; i < text.n; i++) {
    if (text.z[i] < '0' || text.z[i] > '9') return -1;
    nValue = nValue * 10 + (text.z[i] - '0');
  }
  return nValue;
}

/* Where in an opened value a step of a place leads: to its number, or -1 if nothing is
** there. An array may grow by one. */
static i64 changeStep(const ChangeNode *p, RolloutSlice step, BxErr *pErr) {
  i64 i;
  assert(p->bOpen);
  if (*p->text.z == '[') {
    i = elementNumber(step);
    return i <= p->n ? i : -1;
  }
  for (i = 0; *step.z == '"' && i < p->n; i++) {
    if (sameKey(p->a[i].key, step, pErr)) return i;
  }
  return -1;
}

static const ChangeNode *memberNamed(const ChangeNode *p, const char *zKey) {
  RolloutSlice key = {zKey, (i64)strlen(zKey)};
  i64 i;
  for (i = 0; i < p->n; i++) {
    if (p->a[i].key.n == key.n &&
        memcmp(p->a[i].key.z, zKey, (size_t)key.n) == 0)
      return &p->a[i];
  }
  return 0;
}

/*-------------------------------------------------------------- changes ----*/

/* Takes away member i; an element becomes null, as an array has no gaps. */
static void takeAway(ChangeNode *p, i64 i) {
  static const RolloutSlice null = {"null", 4};
  freeInside(&p->a[i]);
  if (*p->text.z == '[') {
    p->a[i].text = null;
    return;
  }
  memmove(&p->a[i], &p->a[i + 1], (size_t)(--p->n - i) * sizeof(*p->a));
}

/* Cuts an array, and appends the elements of another one. Returns whether it could. */
static int pushInto(ChangeNode *p, const ChangeNode *pMore,
    const ChangeNode *pCut, BxErr *pErr) {
  ChangeNode more = {{0, 0}, {0, 0}, 0, 0, 0, 0}, *pNew;
  i64 i, nKept = pCut != 0 ? elementNumber(pCut->text) : -1;
  int bDone = 1;
  if (*p->text.z != '[' || !openValue(p, pErr) || nKept > p->n ||
      (pCut != 0 && nKept < 0)) {
    return 0;
  }
  while (pCut != 0 && p->n > nKept) freeInside(&p->a[--p->n]);
  if (pMore == 0) return 1;
  more.text = pMore->text;
  bDone = *more.text.z == '[' && openValue(&more, pErr);
  for (i = 0; bDone && i < more.n; i++) {
    pNew = addInside(p, pErr);
    if (pNew != 0) pNew->text = more.a[i].text;
  }
  freeInside(&more);
  return bDone;
}

/* Makes a change of the value. Returns whether it could. */
static int makeChange(ChangeNode *p, const ChangeNode *pChange, BxErr *pErr) {
  static const RolloutSlice array = {"[]", 2};
  const ChangeNode *pKind = memberNamed(pChange, "\"kind\"");
  const ChangeNode *pPlace = memberNamed(pChange, "\"k\"");
  const ChangeNode *pValue = memberNamed(pChange, "\"v\"");
  ChangeNode place = {{0, 0}, {0, 0}, 0, 0, 0, 0};
  char cKind = pKind != 0 && pKind->text.n == 1 ? *pKind->text.z : 0;
  RolloutSlice step = {"", 0};
  int bDone = 0;
  i64 i, iAt = -1;
  if (cKind == '0' && pValue != 0 && *pValue->text.z == '{') {
    freeInside(p);
    p->text = pValue->text;
    return 1;
  }
  if (cKind < '1' || cKind > '3' || pPlace == 0 || *pPlace->text.z != '[') {
    return 0;
  }
  place.text = pPlace->text;
  if (openValue(&place, pErr) && place.n > 0 && place.n <= CHANGE_DEPTH) {
    for (i = 0; p != 0 && openValue(p, pErr); i++) {
      step = place.a[i].text;
      iAt = changeStep(p, step, pErr);
      if (i == place.n - 1) break;
      p = iAt >= 0 && iAt < p->n ? &p->a[iAt] : 0;
    }
    bDone = p != 0 && p->bOpen && i == place.n - 1 &&
            (iAt >= 0 || (*p->text.z == '{' && *step.z == '"'));
  }
  freeInside(&place);
  if (!bDone || pErr->rc != SQLITE_OK) return 0;
  if (cKind == '3' || (cKind == '1' && pValue == 0)) {
    if (iAt >= 0 && iAt < p->n) takeAway(p, iAt);
    return 1;
  }
  if (iAt < 0 || iAt == p->n) { /* it was not there before */
    ChangeNode *pNew = addInside(p, pErr);
    if (pNew == 0) return 0;
    if (*p->text.z == '{') pNew->key = step;
    pNew->text = array;
    iAt = p->n - 1;
  }
  p = &p->a[iAt];
  if (cKind == '2') {
    if (*p->text.z == 'n') p->text = array;
    return pushInto(p, pValue, memberNamed(pChange, "\"i\""), pErr);
  }
  freeInside(p);
  p->text = pValue->text;
  return 1;
}

/* Reads a line as a change, which is to be freed. Returns whether it is an object. */
static int readChange(
    ChangeNode *p, const char *z, const char *zEnd, BxErr *pErr) {
  const char *zNext;
  memset(p, 0, sizeof(*p));
  z = bxImportSkipBlank(z, zEnd);
  zNext = z < zEnd && *z == '{' ? bxJsonSkipValue(z, zEnd) : 0;
  if (zNext == 0 || zNext > zEnd || bxImportSkipBlank(zNext, zEnd) < zEnd) {
    return 0;
  }
  p->text.z = z;
  p->text.n = zNext - z;
  return openValue(p, pErr);
}

/* Makes the changes of all lines. */
static void makeChanges(Import *p, ChangeNode *pValue) {
  const char *z = p->z;
  while (z < p->zEnd && p->pErr->rc == SQLITE_OK) {
    const char *zEnd = bxImportLineEnd(p, z);
    ChangeNode change;
    p->pReport->nLine++;
    if (bxImportSkipBlank(z, zEnd) == zEnd) {
      change.n = 0;
    } else if (!readChange(&change, z, zEnd, p->pErr)) {
      bxImportBad(p, bxImportWhyBad(p, z, zEnd), zEnd - z);
      freeInside(&change);
    } else {
      if (!makeChange(pValue, &change, p->pErr)) {
        bxImportBad(p, CHANGE_WRONG, zEnd - z);
      }
      freeInside(&change);
    }
    z = zEnd + 1;
  }
}

void bxImportChanges(Import *p) {
  ChangeNode value = {{0, 0}, {0, 0}, 0, 0, 0, 0}, first;
  const char *z = bxJsonSkipSpace(bxImportSkipMark(p->z));
  RolloutSlice raw = p->raw;
  char *zState;
  i64 n;
  int bChanges = readChange(&first, z, bxImportLineEnd(p, z), p->pErr) &&
                 makeChange(&value, &first, p->pErr);
  freeInside(&first);
  if (!bChanges) return;
  p->zDocument = 0;
  if (raw.z == 0) {
    raw.z = p->z;
    raw.n = p->zEnd - p->z;
  }
  if (p->zValid == 0 && !bxIsUtf8((const unsigned char *)p->z, (int)raw.n)) {
    p->zValid = bxImportValid(p->z, raw.n, &n, p->pErr);
    if (p->zValid == 0) return;
    p->z = p->zValid;
    p->zEnd = p->z + n;
  }
  p->z = bxImportSkipMark(p->z);
  makeChanges(p, &value);
  n = writeValue(&value, 0);
  zState = p->pErr->rc == SQLITE_OK
               ? bxCheckMem(sqlite3_malloc64((sqlite3_uint64)n + 1), p->pErr)
               : 0;
  if (zState != 0) {
    writeValue(&value, zState);
    zState[n] = 0;
    sqlite3_free(p->zValid);
    p->raw = raw;
    p->z = p->zGap = p->zValid = zState;
    p->zEnd = p->zDocument = zState + n;
    p->pReport->nLine--; /* the value is a line */
  }
  freeInside(&value);
}
