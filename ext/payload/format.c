/*
** format.c: the wire formats, which are rows (sql/payload_detection.sql), and what
** of them is in a body.
**
** The places of all formats become one tree of ways, so that a reader passes over
** everything else, and a body is walked over once. An array is no step of a way:
** what stands in one is reached only by places that have [] there. A condition is
** looked up from the element that the walk has reached after as many steps.
*/
#include "reader.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/*------------------------------------------------------------- compiling ----*/

typedef struct Compiler {
  Formats *p;
  int iRoot, iWay; /* where its places begin, and this one ends */
  BxErr *pErr;
} Compiler;

/* The way that a path goes from iWay on, up to a bar or its end. If it is that of
** a place, its ways are marked, and it is noted after which steps it has []. */
static int compileWay(Compiler *p, int iWay, const char *z, BxPlace *pPlace) {
  BxTrie *pTrie = &p->p->ways;
  int nStep = 0, n;
  assert(iWay >= 0 && iWay < pTrie->n);
  for (; p->pErr->rc == SQLITE_OK; z += n) {
    if (pPlace != 0) {
      pTrie->a[iWay].bOn = 1;
      if (pPlace->eKind != BX_KIND_OFFER && pPlace->eKind != BX_KIND_CHOICE) {
        pTrie->a[iWay].bList = 1;
      }
    }
    if (*z == 0 || *z == '|' || *z == '=') return iWay;
    if (*z == '[') {
      n = (int)strcspn(z, "]");
      n += z[n] == ']';
      if (pPlace != 0 && nStep < PLACE_STEPS) pPlace->mEach |= 1u << nStep;
    } else {
      z += *z == '.';
      n = (int)strcspn(z, ".[|=");
      iWay = bxTrieAdd(pTrie, iWay, z, n, p->pErr);
      nStep++;
    }
  }
  return 0;
}

/* All of what a path leads to is looked at. */
static void compileField(Compiler *p, const char *z) {
  for (; z != 0; z = strchr(z, '|')) {
    int i;
    if (*z == '|') z++;
    i = compileWay(p, *z == '$' ? p->iRoot : p->iWay, z + (*z == '$'), 0);
    if (i != 0) p->p->ways.a[i].bWhole = 1;
  }
}

/* A condition is looked up from the last element that its path names, which must
** be one of the place. */
static void compileCondition(
    Compiler *p, const BxPlace *pPlace, BxCondition *pTest) {
  const char *zPath = pTest->zPath, *z;
  if (zPath == 0) return;
  compileField(p, zPath);
  pTest->zRest = zPath + (*zPath == '$');
  for (z = zPath; (z = strstr(z, "[]")) != 0;) pTest->zRest = z += 2;
  z = pTest->zRest;
  if (z > zPath + 1 &&
      strncmp(pPlace->az[BX_PLACE_AT], zPath, (size_t)(z - zPath)) != 0) {
    pTest->nStep = -1;
  }
  for (; pTest->nStep >= 0 && zPath < z; zPath++) pTest->nStep += *zPath == '.';
  if (*z == '.' && z[1 + strcspn(z + 1, ".[")] == 0) {
    pTest->iKey = bxTrieAddKey(&p->p->ways, z + 1, (int)strlen(z + 1), p->pErr);
  }
}

static void compilePlace(Compiler *p, int iPlace) {
  BxPlace *pPlace = &p->p->places.a[iPlace];
  BxKind eKind = pPlace->eKind;
  BxTrieNode *pWay;
  int i;
  assert(iPlace >= 0 && iPlace < p->p->places.n);
  p->iRoot = p->p->aiRoot[pPlace->eSource];
  p->iWay = compileWay(p, p->iRoot, pPlace->az[BX_PLACE_AT] + 1, pPlace);
  if (p->iWay == 0) return;
  pWay = &p->p->ways.a[p->iWay];
  pPlace->iNext = pWay->iPlace;
  pWay->iPlace = iPlace + 1;
  if (eKind >= BX_KIND_MODEL && eKind <= BX_KIND_CHOICE) {
    pWay->bWhole = 1;
  } else if (eKind != BX_KIND_CALL && eKind != BX_KIND_RESULT &&
             eKind != BX_KIND_USAGE) {
    compileField(p, ".text");
  }
  for (i = BX_PLACE_OTHER; i < BX_PLACE_TEXTS; i++) {
    compileField(p, pPlace->az[i]);
  }
  for (i = 0; i < pPlace->test.n; i++) {
    compileCondition(p, pPlace, &p->p->places.aCondition[pPlace->test.i + i]);
  }
}

/* The pattern of an error, and a part of it that is no pattern. */
static void compileError(BxPlace *p, BxErr *pErr) {
  const char *z = p->az[BX_PLACE_AT] + strspn(p->az[BX_PLACE_AT], "*");
  int n = (int)strcspn(z, "*?[");
  assert(p->eKind == BX_KIND_ERROR);
  sqlite3_free(p->az[BX_PLACE_OTHER]);
  p->az[BX_PLACE_OTHER] = 0;
  if (*p->az[BX_PLACE_AT] == '*' && n > 0) {
    p->az[BX_PLACE_OTHER] = bxPrintf(pErr, "%.*s", n, z);
  }
}

void bxFormatsRead(Formats *pOut, BxStmts *p, unsigned mKind, BxErr *pErr) {
  Compiler compiler = {pOut, 0, 0, pErr};
  int i;
  assert(mKind != 0);
  memset(pOut, 0, sizeof(*pOut));
  pOut->mKind = mKind;
  if (p == 0) return;
  bxPlacesRead(&pOut->places, p, 0, mKind, pErr);
  pOut->aiRoot[BX_SOURCE_REQUEST] = bxTrieRoot(&pOut->ways, pErr);
  pOut->aiRoot[BX_SOURCE_RESPONSE] = bxTrieRoot(&pOut->ways, pErr);
  /* a response may be an event, or an array of events */
  pOut->aiRoot[BX_SOURCE_STREAM] = pOut->aiRoot[BX_SOURCE_RESPONSE];
  for (i = 0; i < pOut->places.n && pErr->rc == SQLITE_OK; i++) {
    if (pOut->places.a[i].eKind == BX_KIND_ERROR) {
      compileError(&pOut->places.a[i], pErr);
    } else if (*pOut->places.a[i].az[BX_PLACE_AT] == '$') {
      compilePlace(&compiler, i);
    }
  }
  pOut->pRoom = bxScratchNew(pErr);
}

void bxFormatsFree(Formats *p) {
  bxPlacesFree(&p->places);
  bxTrieFree(&p->ways);
  bxScratchFree(p->pRoom);
  memset(p, 0, sizeof(*p));
}

/*--------------------------------------------------------------- walking ----*/

/* Whether the conditions of a place hold at what the walk has reached. */
static int holds(Reader *p, BxTest test) {
  const BxCondition *pTest = p->pFormats->places.aCondition + test.i;
  const BxCondition *pEnd = pTest + test.n;
  assert(test.i + test.n <= p->pFormats->places.nCondition);
  for (; pTest < pEnd; pTest++) {
    int iNode = pTest->nStep < 0 ? -1 : p->aAt[pTest->nStep];
    if (iNode < 0) return 0;
    iNode = pTest->iKey != 0 ? bxTreeNamed(&p->tree, iNode, pTest->iKey)
                             : bxPathFind(&p->tree, iNode, iNode, pTest->zRest);
    if (!bxConditionHolds(pTest, &p->tree, iNode, p->pErr)) return 0;
  }
  return 1;
}

/* Notes the places that end at a way, at a node that was reached after nStep steps
** through the arrays in mArray: those with [] at their end, or the others. */
static void note(Reader *p, int iNode, const BxTrieNode *pWay, int nStep,
    unsigned mArray, int bEach, int iItem) {
  const BxPlaces *pPlaces = &p->pFormats->places;
  Hit *a;
  int i;
  assert(nStep >= 0 && nStep < PLACE_STEPS);
  if (BX_TREE_KIND(&p->tree, iNode) == 'n') return;
  for (i = pWay->iPlace; i != 0; i = pPlaces->a[i - 1].iNext) {
    const BxPlace *pPlace = &pPlaces->a[i - 1];
    if (pPlace->eSource != p->eBody || (mArray & ~pPlace->mEach) != 0 ||
        (int)(pPlace->mEach >> nStep & 1) != bEach || !holds(p, pPlace->test)) {
      continue;
    }
    a = bxArrayGrow(p->aHit, p->nHit, &p->nHitAlloc, sizeof(*a), p->pErr);
    if (a == 0) return;
    p->aHit = a;
    a += p->nHit++;
    a->pPlace = pPlace;
    a->iNode = iNode;
    a->iItem = iItem >= 0 ? iItem : p->aAt[0];
  }
}

static void walk(Reader *p, int iNode, const BxTrieNode *pWay, int nStep,
    unsigned mArray, int iItem);

static void walkElement(Reader *p, int iNode, const BxTrieNode *pWay, int nStep,
    unsigned mArray, int iItem) {
  const BxTrieNode *a = p->pFormats->ways.a;
  int i, iMember;
  assert(nStep >= 0 && nStep < PLACE_STEPS);
  p->aAt[nStep] = iNode;
  note(p, iNode, pWay, nStep, mArray, 1, iItem);
  if (BX_TREE_KIND(&p->tree, iNode) != '{') return;
  for (i = pWay->iFirst; i != 0; i = a[i].iNext) {
    if (!a[i].bOn) continue;
    iMember = bxTreeNamed(&p->tree, iNode, a[i].iName);
    if (iMember >= 0) walk(p, iMember, &a[i], nStep + 1, mArray, iItem);
  }
}

/* Notes each place that begins with the steps to pWay, which lead to iNode. What is
** no array is an array of one. The messages of a request are the array, directly
** in its body, that has messages, calls or results. */
static void walk(Reader *p, int iNode, const BxTrieNode *pWay, int nStep,
    unsigned mArray, int iItem) {
  const BxNode *a = p->tree.a;
  int i, nOld = 0;
  assert(iNode >= 0 && iNode < p->tree.n);
  if (nStep == PLACE_STEPS) return;
  p->aAt[nStep] = iNode;
  note(p, iNode, pWay, nStep, mArray, 0, iItem);
  if (BX_TREE_KIND(&p->tree, iNode) != '[') {
    walkElement(p, iNode, pWay, nStep, mArray, iItem);
    return;
  }
  if (nStep == 1 && pWay->bList && p->iList < 0 &&
      p->eBody == BX_SOURCE_REQUEST) {
    p->iList = iNode;
  }
  if (iNode == p->iList) nOld = p->nOld;
  for (i = iNode + 1; i < a[iNode].iNext; i = a[i].iNext) {
    if (nOld-- > 0) continue;
    walkElement(p, i, pWay, nStep, mArray | 1u << nStep, iItem < 0 ? i : iItem);
  }
}

static int compareHits(const void *pLeft, const void *pRight) {
  const Hit *p = pLeft, *q = pRight;
  if (p->iNode != q->iNode) return p->iNode < q->iNode ? -1 : 1;
  if (p->pPlace->eKind != q->pPlace->eKind) {
    return p->pPlace->eKind < q->pPlace->eKind ? -1 : 1;
  }
  return p->pPlace < q->pPlace ? -1 : p->pPlace > q->pPlace;
}

#define FEW_HITS 24 /* that are sorted without a call for each comparison */

static void sortHits(Reader *p) {
  Hit *a = p->aHit;
  i64 i, j;
  assert(p->nHit >= 0);
  if (p->nHit > FEW_HITS) {
    qsort(a, (size_t)p->nHit, sizeof(Hit), compareHits);
    return;
  }
  for (i = 1; i < p->nHit; i++) {
    Hit hit = a[i];
    for (j = i; j > 0 && compareHits(&hit, &a[j - 1]) < 0; j--) a[j] = a[j - 1];
    a[j] = hit;
  }
}

/* Two formats that have the same place find it once; but numbers of tokens have
** other names in each. */
static void dropDoubles(Reader *p) {
  Hit *a = p->aHit;
  i64 i, n = 0;
  assert(p->nHit >= 0 && p->nHit <= p->nHitAlloc);
  for (i = 1; i < p->nHit; i++) {
    if (a[i].iNode != a[n].iNode || a[i].pPlace->eKind != a[n].pPlace->eKind ||
        a[i].pPlace->eKind == BX_KIND_USAGE) {
      a[++n] = a[i];
    }
  }
  if (p->nHit > 0) p->nHit = n + 1;
}

void bxFormatsFind(Reader *p, BxSource eBody, int iRoot) {
  const Formats *pFormats = p->pFormats;
  assert(eBody <= BX_SOURCE_STREAM);
  p->nHit = 0;
  p->eBody = eBody;
  p->iList = -1;
  if (p->pErr->rc != SQLITE_OK) return;
  walk(p, iRoot, &pFormats->ways.a[pFormats->aiRoot[eBody]], 0, 0, -1);
  sortHits(p);
  dropDoubles(p);
}
