/*
** json_path.c: finds what rows of blackbox_places name.
**
** Places are paths of SQLite's JSON functions. Bodies are read by the files of the
** payload domain, which follow all places in one walk; items of session files by
** those of rollout, which look up a few.
*/
#include "core.h"
#include "json_path.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/*---------------------------------------------------------------- paths ----*/

/* One step of a path, which ends at zEnd: a member (in quotes if its name has a
** full stop), or element [n], or the n-th from the end, [#-n]. */
static int stepInto(
    const BxTree *p, int iNode, const char *z, const char *zEnd) {
  int i, n = 0, bBack = z[0] == '[' && z[1] == '#' && z[2] == '-';
  assert(z <= zEnd);
  if (*z == '"') return bxTreeMember(p, iNode, z + 1, (int)(zEnd - z) - 2);
  if (*z != '[') return bxTreeMember(p, iNode, z, (int)(zEnd - z));
  if (BX_TREE_KIND(p, iNode) != '[') return -1;
  for (z += bBack ? 3 : 1; *z >= '0' && *z <= '9' && n < BX_TREE_MAX; z++) {
    n = n * 10 + (*z - '0');
  }
  for (i = iNode + 1; bBack && i < p->a[iNode].iNext; i = p->a[i].iNext) n--;
  if (bBack) n = -n;
  for (i = iNode + 1; i < p->a[iNode].iNext; i = p->a[i].iNext) {
    if (n-- == 0) return i;
  }
  return -1;
}

int bxPathFindAt(const BxTree *p, int iTop, int iHere, const char *zPaths,
    const char **pzAt) {
  const char *z = zPaths;
  int iNode = -1;
  assert(iTop < p->n && iHere < p->n);
  while (z != 0) {
    *pzAt = z;
    iNode = *z == '$' ? iTop : *z == '.' ? iHere : -1;
    z += *z == '$';
    while (*z != 0 && *z != '|' && *z != '=' && iNode >= 0) {
      const char *zEnd;
      if (*z == '.') z++;
      zEnd = z + strcspn(z, ".[|=");
      if (*z == '[') zEnd = z + strcspn(z, "]") + 1;
      if (*z == '"') zEnd = z + strcspn(z + 1, "\"") + 2;
      iNode = stepInto(p, iNode, z, zEnd);
      z = zEnd;
    }
    z = strchr(z, '|');
    if (iNode >= 0 && BX_TREE_KIND(p, iNode) != 'n') break;
    if (z != 0) z++;
  }
  return iNode;
}

int bxPathFind(const BxTree *p, int iTop, int iHere, const char *zPaths) {
  const char *zAt;
  return bxPathFindAt(p, iTop, iHere, zPaths, &zAt);
}

/*----------------------------------------------------------- conditions ----*/

void bxFoldName(char *z) {
  char *zOut = z;
  for (; *z != 0; z++) {
    if (*z != '_') *zOut++ = *z >= 'A' && *z <= 'Z' ? (char)(*z + 32) : *z;
  }
  *zOut = 0;
}

int bxNameEquals(const char *z, i64 n, const char *zName) {
  const char *zEnd = z + n;
  while (z < zEnd || *zName) {
    if (z < zEnd && *z == '_') {
      z++;
    } else if (*zName == '_') {
      zName++;
    } else {
      char c = z < zEnd ? *z : 0, cName = *zName;
      if (c >= 'A' && c <= 'Z') c = (char)(c + 32);
      if (cName >= 'A' && cName <= 'Z') cName = (char)(cName + 32);
      if (c != cName || c == 0) return 0;
      z++;
      zName++;
    }
  }
  return 1;
}

int bxSameText(const char *z1, const char *z2) {
  return z1 == 0 || z2 == 0 ? z1 == z2 : strcmp(z1, z2) == 0;
}

/* Whether the text of a node equals a name in either spelling. Text with escapes
** is compared as what it represents. */
static int nodeIs(const BxTree *p, int iNode, const char *zText, BxErr *pErr) {
  const char *z = p->z + p->a[iNode].iAt;
  i64 n = p->a[iNode].nByte;
  char *zOwned;
  int bSame;
  assert(iNode >= 0 && iNode < p->n);
  if (*z != '"') return bxNameEquals(z, n, zText);
  if (memchr(z, '\\', (size_t)n) == 0) return bxNameEquals(z + 1, n - 2, zText);
  zOwned = bxTreeString(p, iNode, pErr);
  if (zOwned == 0) return 0;
  bSame = bxNameEquals(zOwned, (i64)strlen(zOwned), zText);
  sqlite3_free(zOwned);
  return bSame;
}

int bxConditionHolds(
    const BxCondition *p, const BxTree *pTree, int iNode, BxErr *pErr) {
  char cKind = iNode < 0 ? 'n' : BX_TREE_KIND(pTree, iNode);
  assert(iNode < pTree->n);
  if (p->zText == 0) return p->bThere == (cKind != 'n' && cKind != 'f');
  return cKind == 'n' ? *p->zText == 0 : nodeIs(pTree, iNode, p->zText, pErr);
}

int bxTestHolds(const BxPlaces *p, BxTest test, const BxTree *pTree, int iTop,
    BxErr *pErr) {
  const BxCondition *pTest = p->aCondition + test.i;
  const BxCondition *pEnd = pTest + test.n;
  assert(test.i + test.n <= p->nCondition);
  while (
      pTest < pEnd && bxConditionHolds(pTest, pTree,
                          bxPathFind(pTree, iTop, iTop, pTest->zPath), pErr)) {
    pTest++;
  }
  return pTest == pEnd;
}

/* A condition; without a tree one that never holds. Its key is node i. */
static void addCondition(BxPlaces *p, const BxTree *pTree, int i, BxErr *pErr) {
  char cKind = pTree != 0 ? BX_TREE_KIND(pTree, i + 1) : 'n';
  BxCondition *a = bxArrayAdd(
      &p->aCondition, &p->nCondition, &p->nConditionAlloc, sizeof(*a), pErr);
  assert(p->nCondition <= p->nConditionAlloc);
  if (a == 0) return;
  a->zPath = pTree != 0 ? bxTreeString(pTree, i, pErr) : bxPrintf(pErr, "$");
  if (cKind == '"') a->zText = bxTreeString(pTree, i + 1, pErr);
  if (a->zText != 0) bxFoldName(a->zText);
  a->bThere = cKind == 't';
  if (bxSameText(a->zPath, "$.type")) a->cPart = 't';
  if (bxSameText(a->zPath, "$.role")) a->cPart = 'r';
}

BxTest bxTestAdd(BxPlaces *p, const char *zJson, BxErr *pErr) {
  BxTree tree = {0};
  BxTest test = {p->nCondition, 0};
  int i;
  if (zJson == 0 || strcmp(zJson, "{}") == 0) return test;
  if (bxTreeRead(&tree, zJson, (i64)strlen(zJson), 0, 0, pErr) != 0 &&
      BX_TREE_KIND(&tree, 0) == '{') {
    for (i = 1; i < tree.a[0].iNext; i = tree.a[i + 1].iNext) {
      addCondition(p, &tree, i, pErr);
    }
  } else {
    addCondition(p, 0, 0, pErr);
  }
  bxTreeFree(&tree);
  test.n = p->nCondition - test.i;
  return test;
}

/*----------------------------------------------------------------- rows ----*/

static const char *const azKind[] = {"call", "result", "user", "assistant",
    "message", "prompt", "model", "offer", "choice", "error", "preamble",
    "line", "start", "goal", "review", "title", "cwd", "branch", "tool",
    "usage"};
static const char *const azSource[] = {
    "request", "response", "stream", "item", "event"};

/* Without an expression, and in the order of the rows: it is faster. */
static const char zPlaceRows[] =
    "SELECT kind, source, cache_in_input, reasoning_in_output, conditions, "
    "format, type, place, other, part, call_id, tool, arguments, result, "
    "is_error, call_2, model, cost, input, cache_write, cache_read, output, "
    "reasoning, cache_write_1h FROM main.blackbox_places NOT INDEXED "
    "WHERE source IN (?1, ?2, ?3)";
#define FIRST_TEXT 5 /* column of BX_PLACE_FORMAT */

/* The number of the name in a column; n if it is none of these. */
static int wordAt(sqlite3_stmt *pRow, int iColumn, const char *const *az, int n,
    BxErr *pErr) {
  const char *z = bxColumnText(pRow, iColumn, pErr);
  int i = 0;
  while (i < n && (z == 0 || strcmp(z, az[i]) != 0)) i++;
  return i;
}

/* By type, the numbers of tokens last; otherwise as the rows stand. */
static int comparePlaces(const void *pLeft, const void *pRight) {
  const BxPlace *p = pLeft, *q = pRight;
  int c = strcmp(p->az[BX_PLACE_TYPE], q->az[BX_PLACE_TYPE]);
  if (c == 0) {
    c = (p->eKind == BX_KIND_USAGE) - (q->eKind == BX_KIND_USAGE);
  }
  return c != 0 ? c : p->iNext - q->iNext;
}

void bxPlacesRead(
    BxPlaces *p, BxStmts *pHome, int bItems, unsigned mKind, BxErr *pErr) {
  sqlite3_stmt *pRow = bxStmt(pHome, zPlaceRows, pErr);
  i64 i;
  assert(sizeof(azKind) / sizeof(azKind[0]) == BX_KINDS);
  assert(mKind != 0);
  bxBind(pRow, pErr, "ccc", azSource[bItems ? 3 : 0], azSource[bItems ? 4 : 1],
      azSource[bItems ? 3 : 2]);
  while (bxStep(pRow, pErr)) {
    int j, iKind = wordAt(pRow, 0, azKind, BX_KINDS, pErr);
    int bTyped = iKind == BX_KIND_LINE || iKind == BX_KIND_START;
    BxPlace *a;
    if (iKind == BX_KINDS || !(mKind >> iKind & 1)) continue;
    a = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
    if (a == 0) break;
    a->eKind = (BxKind)iKind;
    a->eSource = (BxSource)wordAt(pRow, 1, azSource, BX_SOURCE_EVENT, pErr);
    a->bCacheIn = sqlite3_column_int(pRow, 2);
    a->bReasoningIn = sqlite3_column_int(pRow, 3);
    a->test = bxTestAdd(p, bxColumnText(pRow, 4, pErr), pErr);
    a->iNext = (int)p->n;
    j = a->eSource < BX_SOURCE_ITEM ? BX_PLACE_AT : 0; /* bodies have no type */
    assert(pErr->rc != SQLITE_OK || bItems == (a->eSource >= BX_SOURCE_ITEM));
    for (; j < BX_PLACE_TEXTS; j++) {
      int iFrom = j == BX_PLACE_OTHER && bTyped ? BX_PLACE_TYPE : j;
      if (sqlite3_column_type(pRow, FIRST_TEXT + iFrom) != SQLITE_NULL) {
        a->az[j] = bxColumnCopy(pRow, FIRST_TEXT + iFrom, pErr);
      } else if (j <= BX_PLACE_AT) {
        a->az[j] = bxPrintf(pErr, ""); /* of a damaged row */
      }
    }
    if (a->az[BX_PLACE_TYPE] != 0) bxFoldName(a->az[BX_PLACE_TYPE]);
  }
  bxReset(pRow, pErr);
  if (pErr->rc != SQLITE_OK) return;
  if (bItems && p->n > 1)
    qsort(p->a, (size_t)p->n, sizeof(*p->a), comparePlaces);
  for (i = p->n - 1; i >= 0; i--) {
    BxPlace *a = &p->a[i];
    assert(a->iNext > 0);
    a->iNext = !bItems ? 0
               : i + 1 < p->n && strcmp(a[0].az[BX_PLACE_TYPE],
                                     a[1].az[BX_PLACE_TYPE]) == 0
                   ? a[1].iNext
                   : (int)i + 1;
  }
}

void bxPlacesFree(BxPlaces *p) {
  i64 i;
  int j;
  for (i = 0; i < p->n; i++) {
    for (j = 0; j < BX_PLACE_TEXTS; j++) sqlite3_free(p->a[i].az[j]);
  }
  for (i = 0; i < p->nCondition; i++) {
    sqlite3_free(p->aCondition[i].zPath);
    sqlite3_free(p->aCondition[i].zText);
  }
  sqlite3_free(p->a);
  sqlite3_free(p->aCondition);
  memset(p, 0, sizeof(*p));
}

/*--------------------------------------------------------------- tokens ----*/

#define MOST_TOKENS ((i64)1000000000000) /* sums of it stay far from the end */

/* A number at a path. A text is read as CAST reads it. */
static void readTokens(
    i64 *pn, const char *zPath, const BxTree *p, int iHere, BxErr *pErr) {
  int i = bxPathFind(p, 0, iHere, zPath);
  char cKind = i < 0 ? 'n' : BX_TREE_KIND(p, i);
  assert(iHere >= 0 && iHere < p->n);
  if (cKind == '"') {
    char *z = bxTreeString(p, i, pErr);
    *pn = z ? strtoll(z, 0, 10) : 0;
    sqlite3_free(z);
  } else if (cKind >= '0' && cKind <= '9') {
    const char *z = p->z + p->a[i].iAt;
    if (strspn(z, "0123456789") == (size_t)p->a[i].nByte) {
      *pn = strtoll(z, 0, 10);
    } else {
      double r = strtod(z, 0);
      *pn = r < (double)MOST_TOKENS ? (i64)r : MOST_TOKENS;
    }
  }
  if (*pn > MOST_TOKENS) *pn = MOST_TOKENS;
}

static i64 atLeast(i64 n, i64 nLow) {
  return n > nLow ? n : nLow;
}

void bxTokensRead(BxTokens *p, const BxPlace *pPlace, const BxTree *pTree,
    int iNode, BxErr *pErr) {
  char *const *az = pPlace->az;
  i64 nInput = -1, nOutput = -1;
  assert(pPlace->eKind == BX_KIND_USAGE);
  assert(iNode >= 0 && iNode < pTree->n);
  readTokens(&nInput, az[BX_PLACE_INPUT], pTree, iNode, pErr);
  readTokens(&nOutput, az[BX_PLACE_OUTPUT], pTree, iNode, pErr);
  readTokens(&p->nCacheWrite, az[BX_PLACE_CACHE_WRITE], pTree, iNode, pErr);
  readTokens(&p->nCacheRead, az[BX_PLACE_CACHE_READ], pTree, iNode, pErr);
  readTokens(&p->nReasoning, az[BX_PLACE_REASONING], pTree, iNode, pErr);
  readTokens(
      &p->nCacheWrite1h, az[BX_PLACE_CACHE_WRITE_1H], pTree, iNode, pErr);
  if (nInput >= 0) {
    i64 nCached = atLeast(p->nCacheRead, 0) + atLeast(p->nCacheWrite, 0);
    p->nInput = pPlace->bCacheIn ? atLeast(nInput - nCached, 0) : nInput;
  }
  if (nOutput >= 0) {
    p->nOutput =
        pPlace->bReasoningIn ? nOutput : nOutput + atLeast(p->nReasoning, 0);
  }
}
