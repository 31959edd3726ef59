/*
** json_tree.c: a JSON text as the list of its values.
**
** One pass over the text writes a node for each value, in the order of the
** text. So a reader that looks at many places of one text walks over it once.
** Nothing is decoded before somebody asks for it.
*/
#include "core.h"
#include "digest.h"
#include "json_tree.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* As in json.c: SQLite before 3.45 has other limits. */
#define TREE_DEPTH 960
#define REPLACEMENT 0xfffd /* character */

typedef struct TreeReader {
  BxTree *pTree;
  BxErr *pErr;
  const char *zEnd;    /* of the text */
  const BxTrie *pTrie; /* NULL to keep everything */
  int iWay;            /* the way of the next value */
  int bLast;           /* treeKey() found no more members that are kept */
  int nDepth;
  int aOpen[TREE_DEPTH]; /* the nodes whose ends are not yet read */
  int aWay[TREE_DEPTH];  /* their ways */
  int aMany
      [TREE_DEPTH]; /* elements of arrays, and the nodes that the tree had ... */
  i64 aEnd[TREE_DEPTH]; /* ... at the bound on these; not without one */
} TreeReader;

/* Most values have no space before them. */
static inline const char *skipSpace(const char *z) {
  return (unsigned char)*z > ' ' ? z : bxJsonSkipSpace(z);
}

static int addNode(TreeReader *p, const char *z) {
  BxTree *pTree = p->pTree;
  BxNode *a = pTree->a;
  if (pTree->n == pTree->nAlloc) {
    if (pTree->n >= BX_TREE_MAX) return -1;
    a = bxArrayGrow(pTree->a, pTree->n, &pTree->nAlloc, sizeof(*a), p->pErr);
    if (a == 0) return -1;
    pTree->a = a;
  }
  a += pTree->n;
  a->iAt = (int)(z - pTree->z);
  a->nByte = 0;
  a->iNext = 0;
  a->iName = 0;
  return (int)pTree->n++;
}

static void closeNode(TreeReader *p, int iNode, const char *zEnd) {
  assert(iNode >= 0 && iNode < p->pTree->n);
  BxNode *pNode = &p->pTree->a[iNode];
  pNode->nByte = (int)(zEnd - p->pTree->z) - pNode->iAt;
  pNode->iNext = (int)p->pTree->n;
}

/* A node for a scalar or, with bFlat, for any value without what is in it. */
static const char *readFlat(TreeReader *p, const char *z, int bFlat) {
  int iNode = addNode(p, z);
  assert(bFlat == 0 || bFlat == 1);
  if (iNode < 0) return 0;
  z = bFlat ? bxJsonSkipValue(z, p->zEnd) : bxJsonSkipScalar(z, p->zEnd);
  if (z != 0) closeNode(p, iNode, z);
  return z;
}

/* The number of a key whose text is from z to zEnd. */
static int keyNumber(TreeReader *p, const char *z, const char *zEnd) {
  int n = (int)(zEnd - z) - 2, i = 0;
  char zKey[200];
  if (p->pTrie != 0) i = bxTrieFindKey(p->pTrie, z + 1, n);
  if (i != 0 || memchr(z, '\\', (size_t)n + 1) == 0) return i;
  p->pTree->bEscape = 1;
  if (p->pTrie == 0 || n > (int)sizeof(zKey)) return 0;
  i = (int)(bxTreeDecode(zKey, z + 1, n) - zKey);
  return bxTrieFindKey(p->pTrie, zKey, i);
}

/* The way of key iName in the value of iWay, or -1. */
static int trieStep(const BxTrie *p, int iWay, int iName) {
  int i;
  assert(iWay >= 0 && iWay < p->n);
  if (iWay == 0 || p->a[iWay].bWhole) return 0;
  if (iName == 0) return -1;
  i = p->a[iWay].iFirst;
  while (i != 0 && p->a[i].iName != iName) i = p->a[i].iNext;
  return i != 0 ? i : -1;
}

/* Adds the node of a key, if its value is kept. 0 if it is not, -1 on error. */
static int keepKey(TreeReader *p, const char *z, const char *zEnd) {
  int iNode, iName = keyNumber(p, z, zEnd);
  if (p->pTrie != 0) {
    p->iWay = trieStep(p->pTrie, p->aWay[p->nDepth - 1], iName);
    if (p->iWay < 0) return 0;
  }
  iNode = addNode(p, z);
  if (iNode < 0) return -1;
  closeNode(p, iNode, zEnd);
  p->pTree->a[iNode].iName = iName;
  return 1;
}

/* A key and its colon, after the members that are not kept. If none is, p->bLast
** is set, and z is where the object should end. */
static const char *treeKey(TreeReader *p, const char *z) {
  int bKept;
  assert(p->nDepth > 0);
  p->bLast = 0;
  do {
    const char *zKey = skipSpace(z);
    z = bxJsonSkipString(zKey, p->zEnd);
    bKept = z != 0 ? keepKey(p, zKey, z) : -1;
    if (bKept < 0) return 0;
    z = skipSpace(z);
    if (*z != ':') return 0;
    z = skipSpace(z + 1);
    if (bKept) return z;
    z = bxJsonSkipValue(z, p->zEnd);
    if (z != 0) z = skipSpace(z);
  } while (z != 0 && *z++ == ',');
  p->bLast = 1;
  return z != 0 ? z - 1 : 0;
}

static int openNode(TreeReader *p, int iNode, int iWay) {
  assert(p->nDepth >= 0 && p->nDepth <= TREE_DEPTH);
  if (iNode < 0 || p->nDepth == TREE_DEPTH) return 0;
  p->aOpen[p->nDepth] = iNode;
  p->aMany[p->nDepth] = 0;
  p->aWay[p->nDepth++] = iWay;
  return 1;
}

/* The beginning of an object or array: up to its first value. *pbDone: there is
** none. */
static const char *readOpening(TreeReader *p, const char *z, int *pbDone) {
  int iNode = addNode(p, z), bObject = *z == '{';
  *pbDone = 0;
  if (iNode < 0) return 0;
  z = skipSpace(z + 1);
  if (*z == (bObject ? '}' : ']')) {
    *pbDone = 1;
    closeNode(p, iNode, z + 1);
    return z + 1;
  }
  if (!openNode(p, iNode, p->iWay)) return 0;
  if (!bObject) return z;
  z = treeKey(p, z);
  *pbDone = p->bLast;
  return z;
}

/* From the end of a value to the next one, or to where nOpen values are open. */
static const char *readBetween(TreeReader *p, const char *z, int nOpen) {
  BxTree *pTree = p->pTree;
  assert(nOpen >= 0 && nOpen <= p->nDepth);
  while (z != 0 && p->nDepth > nOpen) {
    int iDeep = p->nDepth - 1;
    int bObject = BX_TREE_KIND(pTree, p->aOpen[iDeep]) == '{';
    if (!bObject && pTree->nMost > 0) { /* those above it leave no nodes */
      if (++p->aMany[iDeep] == pTree->nMost) p->aEnd[iDeep] = pTree->n;
      if (p->aMany[iDeep] > pTree->nMost) pTree->n = p->aEnd[iDeep];
    }
    z = skipSpace(z);
    if (*z == ',' && bObject) {
      z = treeKey(p, z + 1);
      if (!p->bLast || z == 0) return z;
    }
    if (*z == ',' && !bObject) {
      p->iWay = p->aWay[p->nDepth - 1];
      return skipSpace(z + 1);
    }
    if (*z != (bObject ? '}' : ']')) return 0;
    closeNode(p, p->aOpen[--p->nDepth], ++z);
  }
  return z;
}

/* One value, after what the tree has. */
static const char *readTree(TreeReader *p, const char *z, int iWay) {
  int bDone = 1;
  int nOpen = p->nDepth;
  p->iWay = iWay;
  do {
    if (*z == '{' || *z == '[') {
      z = readOpening(p, z, &bDone);
      if (!bDone) continue;
    } else {
      z = readFlat(p, z, 0);
    }
    if (z != 0) z = readBetween(p, z, nOpen);
  } while (z != 0 && p->nDepth > nOpen);
  return p->pErr->rc == SQLITE_OK ? z : 0;
}

static void beginTree(TreeReader *p, BxTree *pTree, const char *z,
    const char *zEnd, const BxTrie *pTrie, BxErr *pErr) {
  p->zEnd = zEnd;
  p->pTree = pTree;
  p->pErr = pErr;
  p->pTrie = pTrie;
  p->bLast = 0;
  p->nDepth = 0;
  pTree->z = z;
  pTree->n = 0;
  pTree->bEscape = 0;
}

const char *bxTreeRead(BxTree *p, const char *z, i64 n, const BxTrie *pTrie,
    int iRoot, BxErr *pErr) {
  TreeReader reader;
  const char *zEnd = z + n;
  assert(n >= 0);
  if (pErr->rc != SQLITE_OK) return 0;
  z = skipSpace(z);
  beginTree(&reader, p, z, zEnd, pTrie, pErr);
  return readTree(&reader, z, iRoot);
}

/* Opens the whole value, and the array in it. Returns whether it could. */
static int reopen(TreeReader *p, const char *z, int iKey, int iRoot) {
  const char *zKey = z + iKey, *zList = bxJsonSkipString(zKey, p->zEnd);
  if (*z != '{' || zList == 0) return 0;
  zList = skipSpace(zList);
  if (*zList != ':' || !openNode(p, addNode(p, z), iRoot)) return 0;
  zList = skipSpace(zList + 1);
  return keepKey(p, zKey, bxJsonSkipString(zKey, p->zEnd)) > 0 &&
         openNode(p, addNode(p, zList), p->iWay);
}

const char *bxTreeResume(BxTree *p, const char *z, const BxTreeRest *pRest,
    const BxTrie *pTrie, int iRoot, BxErr *pErr) {
  TreeReader reader;
  int i;
  assert(pRest->iKey > 0 && pRest->iAt >= 0 && pRest->nOld >= 0);
  if (pErr->rc != SQLITE_OK) return 0;
  beginTree(&reader, p, z, z + pRest->nByte, pTrie, pErr);
  if (!reopen(&reader, z, pRest->iKey, iRoot)) return 0;
  z = skipSpace(z + pRest->iAt);
  for (i = 0; z != 0 && *z == ','; i++) {
    z = skipSpace(z + 1);
    z = i < pRest->nOld ? readFlat(&reader, z, 1)
                        : readTree(&reader, z, reader.aWay[1]);
    if (z != 0) z = skipSpace(z);
  }
  if (z == 0 || *z != ']' || pErr->rc != SQLITE_OK) return 0;
  closeNode(&reader, reader.aOpen[1], z + 1);
  closeNode(&reader, reader.aOpen[0], z + 1);
  return z + 1;
}

void bxTreeFree(BxTree *p) {
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

/*------------------------------------------------------------- strings ----*/

static int hexDigit(char c) {
  return c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
}

static int fourDigits(const char *z) {
  return hexDigit(z[0]) << 12 | hexDigit(z[1]) << 8 | hexDigit(z[2]) << 4 |
         hexDigit(z[3]);
}

static int isHalf(int c) {
  return c >= 0xd800 && c < 0xe000;
}

/* The character that the escape at *pz represents; *pz moves after it. */
static int readEscape(const char **pz) {
  const char *z = *pz;
  int c, iLow;
  *pz = z + 2;
  switch (z[1]) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'u': break;
    default: return z[1];
  }
  c = fourDigits(z + 2);
  *pz = z + 6;
  if (!isHalf(c) || c >= 0xdc00 || z[6] != '\\' || z[7] != 'u') return c;
  iLow = fourDigits(z + 8);
  if (iLow < 0xdc00 || iLow >= 0xe000) return c;
  *pz = z + 12;
  return 0x10000 + ((c - 0xd800) << 10) + (iLow - 0xdc00);
}

/* Writes a character, at most 4 bytes. Returns its end. */
static char *putUtf8(char *z, int c) {
  int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4, i;
  static const unsigned char aFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
  assert(c >= 0 && c <= 0x10ffff);
  for (i = n - 1; i > 0; i--, c >>= 6) z[i] = (char)(0x80 | (c & 0x3f));
  z[0] = (char)(aFirst[n] | c);
  return z + n;
}

char *bxTreeDecode(char *zOut, const char *z, int n) {
  const char *zEnd = z + n, *zFirst = memchr(z, '\\', (size_t)n);
  size_t nPlain = zFirst != 0 ? (size_t)(zFirst - z) : (size_t)n;
  assert(n >= 0);
  memcpy(zOut, z, nPlain);
  zOut += nPlain;
  for (z += nPlain; z < zEnd;) {
    int c;
#ifdef __SSE2__ /* what is written is never longer than what was read */
    while (zEnd - z >= 16) {
      __m128i x = _mm_loadu_si128((const __m128i *)(const void *)z);
      int m = _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('\\')));
      int i = m != 0 ? __builtin_ctz((unsigned)m) : 16;
      _mm_storeu_si128((__m128i *)(void *)zOut, x);
      zOut += i;
      z += i;
      if (m != 0) break;
    }
#endif
    while (z < zEnd && *z != '\\') *zOut++ = *z++;
    if (z == zEnd) break;
    c = readEscape(&z);
    if (c < 0x80) {
      *zOut++ = (char)c;
    } else {
      zOut = putUtf8(zOut, isHalf(c) ? REPLACEMENT : c);
    }
  }
  return zOut;
}

/* The content of a string's text, in JSON or as what it represents. */
static void appendContent(
    sqlite3_str *pOut, const char *z, const char *zEnd, int bJson) {
  while (z < zEnd) {
    const char *zEscape = memchr(z, '\\', (size_t)(zEnd - z));
    int c;
    if (zEscape == 0) zEscape = zEnd;
    sqlite3_str_append(pOut, z, (int)(zEscape - z));
    z = zEscape;
    if (z == zEnd) return;
    c = readEscape(&z);
    if (bJson && isHalf(c)) {
      sqlite3_str_appendf(pOut, "\\u%04x", c);
    } else if (bJson && (c < 0x20 || c == '"' || c == '\\')) {
      char aJson[BX_JSON_ROOM + 2], cPlain = (char)c; /* without the quotes */
      int n = (int)(bxJsonWrite(aJson, &cPlain, 1) - aJson);
      sqlite3_str_append(pOut, aJson + 1, n - 2);
    } else {
      char aUtf8[4];
      char *zLast = putUtf8(aUtf8, isHalf(c) || c == 0 ? REPLACEMENT : c);
      sqlite3_str_append(pOut, aUtf8, (int)(zLast - aUtf8));
    }
  }
}

void bxTreeText(const BxTree *p, int iNode, sqlite3_str *pOut) {
  const char *z = p->z + p->a[iNode].iAt + 1;
  int n = p->a[iNode].nByte - 2;
  char zRoom[1000], *zText = zRoom;
  int bDone = 0;
  assert(iNode >= 0 && iNode < p->n);
  assert(z[-1] == '"');
  if (n > (int)sizeof(zRoom)) zText = sqlite3_malloc64((sqlite3_uint64)n);
  if (zText != 0) {
    n = (int)(bxTreeDecode(zText, z, n) - zText);
    bDone = memchr(zText, 0, (size_t)n) == 0;
    if (bDone) sqlite3_str_append(pOut, zText, n);
    if (zText != zRoom) sqlite3_free(zText);
  }
  if (!bDone) appendContent(pOut, z, z + p->a[iNode].nByte - 2, 0);
}

char *bxTreeString(const BxTree *p, int iNode, BxErr *pErr) {
  const char *z = p->z + p->a[iNode].iAt + 1;
  int n = p->a[iNode].nByte - 2;
  char *zOut = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)n + 1), pErr);
  sqlite3_str *pOut;
  assert(iNode >= 0 && iNode < p->n && n >= 0);
  if (zOut == 0) return 0;
  n = (int)(bxTreeDecode(zOut, z, n) - zOut);
  zOut[n] = 0;
  if (memchr(zOut, 0, (size_t)n) == 0) return zOut;
  sqlite3_free(zOut);
  pOut = sqlite3_str_new(0);
  bxTreeText(p, iNode, pOut);
  return bxStrFinish(pOut, pErr);
}

/* (A text with escapes equals only one of ASCII.) */
int bxTreeIs(const BxTree *p, int iNode, const char *z, int n) {
  const char *zNode = p->z + p->a[iNode].iAt, *zEnd, *zLast = z + n;
  int nNode = p->a[iNode].nByte;
  assert(iNode >= 0 && iNode < p->n && n >= 0);
  if (*zNode != '"' || nNode - 2 < n) return 0;
  if (nNode - 2 == n && memcmp(zNode + 1, z, (size_t)n) == 0) return 1;
  if (memchr(zNode, '\\', (size_t)nNode) == 0) return 0;
  zEnd = zNode + nNode - 1;
  for (zNode++; zNode < zEnd && z < zLast; z++) {
    if ((*zNode == '\\' ? readEscape(&zNode) : *zNode++) != *z) return 0;
  }
  return zNode == zEnd && z == zLast;
}

int bxTreeMember(const BxTree *p, int iNode, const char *zKey, int n) {
  int i, iEnd = p->a[iNode].iNext;
  assert(iNode >= 0 && iNode < p->n);
  if (BX_TREE_KIND(p, iNode) != '{') return -1;
  for (i = iNode + 1; i < iEnd; i = p->a[i + 1].iNext) {
    int nMore = p->a[i].nByte - 2 - n; /* an escape is longer than what it is */
    if (nMore == 0 && p->z[p->a[i].iAt + 1] == *zKey &&
        memcmp(p->z + p->a[i].iAt + 1, zKey, (size_t)n) == 0) {
      return i + 1;
    }
    if (nMore > 0 && p->bEscape && bxTreeIs(p, i, zKey, n)) return i + 1;
  }
  return -1;
}

int bxTreeNamed(const BxTree *p, int iNode, int iName) {
  int i, iEnd = p->a[iNode].iNext;
  assert(iNode >= 0 && iNode < p->n && iName > 0);
  if (BX_TREE_KIND(p, iNode) != '{') return -1;
  for (i = iNode + 1; i < iEnd; i = p->a[i + 1].iNext) {
    if (p->a[i].iName == iName) return i + 1;
  }
  return -1;
}

/*----------------------------------------------------------- canonical ----*/

typedef struct TreeMember {
  const char *zKey; /* as it is written; until all keys are, an offset */
  int nKey;
  int iNode; /* its value */
} TreeMember;

/* Equal keys stay in the order of the text. */
static int compareMembers(const void *pLeft, const void *pRight) {
  const TreeMember *p = pLeft, *q = pRight;
  int n = p->nKey < q->nKey ? p->nKey : q->nKey;
  int iOrder = memcmp(p->zKey, q->zKey, (size_t)n);
  if (iOrder == 0) iOrder = (p->nKey > q->nKey) - (p->nKey < q->nKey);
  return iOrder != 0 ? iOrder : (p->iNode > q->iNode) - (p->iNode < q->iNode);
}

static void appendString(const BxTree *p, int iNode, sqlite3_str *pOut) {
  const char *z = p->z + p->a[iNode].iAt;
  sqlite3_str_appendchar(pOut, 1, '"');
  appendContent(pOut, z + 1, z + p->a[iNode].nByte - 1, 1);
  sqlite3_str_appendchar(pOut, 1, '"');
}

/* The members of an object in the order of their keys, to sqlite3_free(). */
static TreeMember *sortMembers(const BxTree *p, int iNode, sqlite3_str *pKeys,
    int *pnMember, BxErr *pErr) {
  int i, n = 0, iEnd = p->a[iNode].iNext;
  TreeMember *a;
  const char *zKeys;
  assert(BX_TREE_KIND(p, iNode) == '{');
  for (i = iNode + 1; i < iEnd; i = p->a[i + 1].iNext) n++;
  *pnMember = n;
  a = bxZalloc(sizeof(*a) * (size_t)(n + 1), pErr);
  if (a == 0) return 0;
  for (i = iNode + 1, n = 0; i < iEnd; i = p->a[i + 1].iNext, n++) {
    a[n].nKey = sqlite3_str_length(pKeys);
    appendString(p, i, pKeys);
    a[n].nKey = sqlite3_str_length(pKeys) - a[n].nKey;
    a[n].iNode = i + 1;
  }
  if (sqlite3_str_errcode(pKeys) != SQLITE_OK) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    sqlite3_free(a);
    return 0;
  }
  zKeys = sqlite3_str_value(pKeys);
  for (i = 0; i < n; zKeys += a[i++].nKey) a[i].zKey = zKeys;
  if (n > 1) qsort(a, (size_t)n, sizeof(*a), compareMembers);
  return a;
}

static void canonObject(
    const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr) {
  sqlite3_str *pKeys = sqlite3_str_new(0);
  int i, n;
  TreeMember *a = sortMembers(p, iNode, pKeys, &n, pErr);
  sqlite3_str_appendchar(pOut, 1, '{');
  for (i = 0; a != 0 && i < n; i++) {
    if (i > 0) sqlite3_str_appendchar(pOut, 1, ',');
    sqlite3_str_append(pOut, a[i].zKey, a[i].nKey);
    sqlite3_str_appendchar(pOut, 1, ':');
    bxTreeCanon(p, a[i].iNode, pOut, pErr);
  }
  sqlite3_str_appendchar(pOut, 1, '}');
  sqlite3_free(a);
  sqlite3_free(sqlite3_str_finish(pKeys));
}

void bxTreeCanon(const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr) {
  int i, iEnd = p->a[iNode].iNext;
  assert(iNode >= 0 && iNode < p->n);
  if (pErr->rc != SQLITE_OK) return;
  switch (BX_TREE_KIND(p, iNode)) {
    case '{': canonObject(p, iNode, pOut, pErr); break;
    case '[':
      sqlite3_str_appendchar(pOut, 1, '[');
      for (i = iNode + 1; i < iEnd; i = p->a[i].iNext) {
        if (i > iNode + 1) sqlite3_str_appendchar(pOut, 1, ',');
        bxTreeCanon(p, i, pOut, pErr);
      }
      sqlite3_str_appendchar(pOut, 1, ']');
      break;
    case '"': appendString(p, iNode, pOut); break;
    default:
      sqlite3_str_append(pOut, p->z + p->a[iNode].iAt, p->a[iNode].nByte);
  }
}

/*---------------------------------------------------------------- hash ----*/

static sqlite3_uint64 hashString(const BxTree *p, int iNode, BxErr *pErr) {
  const char *z = p->z + p->a[iNode].iAt + 1;
  int n = p->a[iNode].nByte - 2;
  char zRoom[200], *zOut = zRoom;
  sqlite3_uint64 h;
  assert(BX_TREE_KIND(p, iNode) == '"');
  if (memchr(z, '\\', (size_t)n) == 0) return bxHashOf(z, n);
  if (n > (int)sizeof(zRoom)) zOut = bxZalloc((size_t)n, pErr);
  if (zOut == 0) return 0;
  h = bxHashOf(zOut, bxTreeDecode(zOut, z, n) - zOut);
  if (zOut != zRoom) sqlite3_free(zOut);
  return h;
}

/* Halves of surrogate pairs count as U+FFFD, as in a text. The order of the
** members makes no difference. */
sqlite3_uint64 bxTreeHash(const BxTree *p, int iNode, BxErr *pErr) {
  const BxNode *pNode = &p->a[iNode];
  sqlite3_uint64 h = (sqlite3_uint64)(unsigned char)BX_TREE_KIND(p, iNode);
  int i = iNode + 1;
  if (h == '"') return bxHashMix(h, hashString(p, iNode, pErr));
  if (h != '{' && h != '[') return bxHashOf(p->z + pNode->iAt, pNode->nByte);
  while (i < pNode->iNext && pErr->rc == SQLITE_OK) {
    if (*(p->z + pNode->iAt) == '[') {
      h = bxHashMix(h, bxTreeHash(p, i, pErr));
      i = p->a[i].iNext;
    } else {
      h += bxHashMix(hashString(p, i, pErr), bxTreeHash(p, i + 1, pErr));
      i = p->a[i + 1].iNext;
    }
  }
  return h;
}

/*----------------------------------------------------------------- keys ----*/

/* The keys that a reader looks for, as a tree of numbers. */

static i64 nameHash(const char *z, int n) {
  const unsigned char *a = (const unsigned char *)z;
  unsigned int h = (unsigned int)n;
  if (n > 0) h += a[0] * 7u + a[n / 2] * 61u + a[n - 1] * 547u;
  return (i64)(h ^ h >> 7);
}

/* Puts the numbers of all names into slots. */
static void fillSlots(BxTrie *p, BxErr *pErr) {
  i64 i, h, nSlot = p->nSlot == 0 ? 64 : 2 * p->nSlot;
  int *a = bxZalloc((size_t)nSlot * sizeof(*a), pErr);
  assert((nSlot & (nSlot - 1)) == 0 && nSlot > p->nName);
  if (a == 0) return;
  sqlite3_free(p->aSlot);
  p->aSlot = a;
  p->nSlot = nSlot;
  for (i = 0; i < p->nName; i++) {
    h = nameHash(p->aName[i].z, p->aName[i].n);
    while (a[h & (nSlot - 1)] != 0) h++;
    a[h & (nSlot - 1)] = (int)i + 1;
  }
}

int bxTrieFindKey(const BxTrie *p, const char *zKey, int n) {
  i64 h;
  int iName;
  assert(p->nSlot == 0 || p->nName < p->nSlot);
  if (p->nSlot == 0) return 0;
  for (h = nameHash(zKey, n); (iName = p->aSlot[h & (p->nSlot - 1)]) != 0;
       h++) {
    const BxName *pName = &p->aName[iName - 1];
    if (pName->n == n && memcmp(pName->z, zKey, (size_t)n) == 0) return iName;
  }
  return 0;
}

int bxTrieAddKey(BxTrie *p, const char *zKey, int n, BxErr *pErr) {
  BxName *a;
  int iName = bxTrieFindKey(p, zKey, n);
  if (iName > 0 || pErr->rc != SQLITE_OK) return iName;
  a = bxArrayGrow(p->aName, p->nName, &p->nNameAlloc, sizeof(*a), pErr);
  if (a == 0) return 0;
  p->aName = a;
  a += p->nName++;
  a->z = zKey;
  a->n = n;
  if (2 * p->nName > p->nSlot) {
    fillSlots(p, pErr);
  } else {
    i64 h = nameHash(zKey, n);
    while (p->aSlot[h & (p->nSlot - 1)] != 0) h++;
    p->aSlot[h & (p->nSlot - 1)] = (int)p->nName;
  }
  return pErr->rc == SQLITE_OK ? (int)p->nName : 0;
}

static int newWay(BxTrie *p, int iName, int iNext, BxErr *pErr) {
  BxTrieNode *a = bxArrayGrow(p->a, p->n, &p->nAlloc, sizeof(*a), pErr);
  if (a == 0) return 0;
  p->a = a;
  a += p->n;
  memset(a, 0, sizeof(*a));
  a->iName = iName;
  a->iNext = iNext;
  return (int)p->n++;
}

int bxTrieRoot(BxTrie *p, BxErr *pErr) {
  assert(p->n <= p->nAlloc);
  if (p->n == 0) newWay(p, 0, 0, pErr);
  return newWay(p, 0, 0, pErr);
}

int bxTrieAdd(BxTrie *p, int iWay, const char *zKey, int n, BxErr *pErr) {
  int iName = bxTrieAddKey(p, zKey, n, pErr), i;
  assert(iWay >= 0 && iWay < p->n);
  if (pErr->rc != SQLITE_OK || iWay == 0) return 0;
  i = p->a[iWay].iFirst;
  while (i != 0 && p->a[i].iName != iName) i = p->a[i].iNext;
  if (i != 0) return i;
  i = newWay(p, iName, p->a[iWay].iFirst, pErr);
  if (i != 0) p->a[iWay].iFirst = i;
  return i;
}

void bxTrieFree(BxTrie *p) {
  sqlite3_free(p->a);
  sqlite3_free(p->aName);
  sqlite3_free(p->aSlot);
  memset(p, 0, sizeof(*p));
}
