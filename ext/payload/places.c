/*
** places.c: looks for the places of the formats in a body.
**
** One walk follows the tree of their steps. Fields of an object, and the few
** places that have alternatives, are followed by themselves.
*/
#include "reader.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

typedef struct Path {
  const BxTree *pTree;
  int iItem; /* the element of the first array on the way */
  void (*xHit)(struct Path *p, int iNode);
  Reader *pReader;
  const Format *pFormat;
  int iFound; /* the first hit, -1 for none */
} Path;

static void follow(Path *p, int iNode, const char *z);

/* The node of dotted names from z to zEnd, or -1. */
static int memberAt(const BxTree *p, int iNode, const char *z, int n) {
  const char *zEnd = z + n;
  while (z < zEnd && iNode >= 0) {
    int nName = 0;
    while (z + nName < zEnd && z[nName] != '.') nName++;
    iNode = bxTreeMember(p, iNode, z, nName);
    z += nName + 1;
  }
  return iNode;
}

/* Whether an element fulfils the conditions a=b,c.d=e before the bracket. */
static int fulfils(const BxTree *p, int iNode, const char *z) {
  while (*z != 0 && *z != ']') {
    int n = (int)strcspn(z, ",]"), nName = (int)strcspn(z, "=,]");
    int i = memberAt(p, iNode, z, nName);
    if (i < 0) return 0;
    if (nName < n && !bxTreeIs(p, i, z + nName + 1, n - nName - 1)) return 0;
    z += n;
    if (*z == ',') z++;
  }
  return 1;
}

/* The elements in brackets at z. */
static void followEach(Path *p, int iNode, const char *z) {
  const BxTree *pTree = p->pTree;
  const char *zRest = z + strcspn(z, "]");
  int bArray = BX_TREE_KIND(pTree, iNode) == '[', bOuter = p->iItem < 0;
  int i = bArray ? iNode + 1 : iNode, iEnd = pTree->a[iNode].iNext;
  if (*zRest != 0) zRest++;
  while (i < iEnd) {
    if (bOuter && bArray) p->iItem = i;
    if (fulfils(pTree, i, z + 1)) follow(p, i, zRest);
    if (!bArray) break;
    i = pTree->a[i].iNext;
  }
  if (bOuter) p->iItem = -1;
}

/* Calls xHit for each node that the path at z leads to. */
static void follow(Path *p, int iNode, const char *z) {
  int n;
  if (*z == '.') z++;
  n = (int)strcspn(z, ".[|=");
  if (n > 0) iNode = bxTreeMember(p->pTree, iNode, z, n);
  if (iNode < 0) return;
  z += n;
  if (*z == '[') {
    followEach(p, iNode, z);
  } else if (*z == '.') {
    follow(p, iNode, z);
  } else {
    p->xHit(p, iNode);
  }
}

/* The alternatives of a path, until one leads somewhere. */
static void followAny(Path *p, int iNode, const char *z) {
  while (z != 0 && p->iFound < 0) {
    if (z[0] == '$' && z[1] == '.') {
      follow(p, p->pReader->iRoot, z + 2);
    } else {
      follow(p, iNode, z);
    }
    z = strchr(z, '|');
    if (z != 0) z++;
  }
}

static void noteFirst(Path *p, int iNode) {
  if (p->iFound < 0 && BX_TREE_KIND(p->pTree, iNode) != 'n') p->iFound = iNode;
}

int bxPlaceField(Reader *p, int iNode, const char *zPath) {
  Path path = {&p->tree, -1, noteFirst, p, 0, -1};
  if (zPath != 0) followAny(&path, iNode, zPath);
  return path.iFound;
}

static void addHit(Reader *p, const Format *pFormat, int iNode, int iItem) {
  Hit *a;
  if (BX_TREE_KIND(&p->tree, iNode) == 'n') return;
  a = bxGrow(p->aHit, p->nHit, &p->nHitAlloc, sizeof(*a), p->pErr);
  if (a == 0) return;
  p->aHit = a;
  a += p->nHit++;
  a->pFormat = pFormat;
  a->iNode = iNode;
  a->iItem = iItem >= 0 ? iItem : p->iRoot;
}

static void noteHit(Path *p, int iNode) {
  addHit(p->pReader, p->pFormat, iNode, p->iItem);
  if (BX_TREE_KIND(p->pTree, iNode) != 'n') p->iFound = iNode;
}

/* The messages of a request are the array, directly in its body, that has
** messages, calls or results. */
static void noteList(Reader *p, int iNode) {
  const BxNode *a = p->tree.a;
  int i = 1;
  if (p->iList >= 0 || p->eBody != BODY_REQUEST) return;
  while (i + 1 < iNode) i = a[i + 1].iNext;
  if (i + 1 == iNode) p->iList = iNode;
}

static void walk(Reader *p, int iNode, const Spot *pSpot, int iItem);

/* The steps of one spot to an element mostly ask for the same member. */
static void walkElement(Reader *p, int iNode, const Spot *pSpot, int iItem) {
  const Spot *aSpot = p->pFormats->aSpot;
  int i, iIf = 0, iMember = -1;
  for (i = pSpot->iElement; i != 0; i = aSpot[i].iNext) {
    const Spot *pTo = &aSpot[i];
    if (pTo->iIf != 0 && pTo->iIf != iIf) {
      iIf = pTo->iIf;
      iMember = bxTreeNamed(&p->tree, iNode, iIf);
    }
    if (pTo->iIf == 0
            ? fulfils(&p->tree, iNode, pTo->zIf)
            : iMember >= 0 && bxTreeIs(&p->tree, iMember, pTo->zIs, pTo->nIs)) {
      walk(p, iNode, pTo, iItem);
    }
  }
}

/* What is no array is an array of one. */
static void walkElements(Reader *p, int iNode, const Spot *pSpot, int iItem) {
  const BxNode *a = p->tree.a;
  int i, bOuter = iItem < 0, nOld = 0;
  if (BX_TREE_KIND(&p->tree, iNode) != '[') {
    walkElement(p, iNode, pSpot, iItem);
    return;
  }
  if (bOuter && pSpot->bList) noteList(p, iNode);
  if (iNode == p->iList) nOld = p->nOld;
  for (i = iNode + 1; i < a[iNode].iNext; i = a[i].iNext) {
    if (nOld-- <= 0) walkElement(p, i, pSpot, bOuter ? i : iItem);
  }
}

/* Notes each place that begins with the steps to pSpot, which lead to iNode. */
static void walk(Reader *p, int iNode, const Spot *pSpot, int iItem) {
  const Formats *pFormats = p->pFormats;
  const Spot *aSpot = pFormats->aSpot;
  int i, iMember;
  for (i = pSpot->iFormat; i >= 0; i = pFormats->a[i].iNext) {
    addHit(p, &pFormats->a[i], iNode, iItem);
  }
  if (pSpot->iElement != 0) walkElements(p, iNode, pSpot, iItem);
  for (i = pSpot->iMember; i != 0; i = aSpot[i].iNext) {
    iMember = bxTreeNamed(&p->tree, iNode, aSpot[i].iName);
    if (iMember >= 0) walk(p, iMember, &aSpot[i], iItem);
  }
}

static int compareHits(const void *pLeft, const void *pRight) {
  const Hit *p = pLeft, *q = pRight;
  if (p->iNode != q->iNode) return p->iNode < q->iNode ? -1 : 1;
  if (p->pFormat->eKind != q->pFormat->eKind) {
    return p->pFormat->eKind < q->pFormat->eKind ? -1 : 1;
  }
  return p->pFormat < q->pFormat ? -1 : p->pFormat > q->pFormat;
}

#define FEW_HITS 24 /* that are sorted without a call for each comparison */

static void sortHits(Reader *p) {
  Hit *a = p->aHit;
  i64 i, j;
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
  for (i = 1; i < p->nHit; i++) {
    if (a[i].iNode != a[n].iNode ||
        a[i].pFormat->eKind != a[n].pFormat->eKind ||
        a[i].pFormat->eKind == FORMAT_USAGE) {
      a[++n] = a[i];
    }
  }
  if (p->nHit > 0) p->nHit = n + 1;
}

static void followEither(Reader *p) {
  const Formats *pFormats = p->pFormats;
  i64 i;
  for (i = 0; i < pFormats->n; i++) {
    Path path = {&p->tree, -1, noteHit, p, &pFormats->a[i], -1};
    if (pFormats->a[i].bEither && pFormats->a[i].eBody == p->eBody) {
      followAny(&path, p->iRoot, pFormats->a[i].azPath[PATH_PLACE]);
    }
  }
}

void bxPlacesFind(Reader *p, FormatBody eBody, int iRoot) {
  p->nHit = 0;
  p->eBody = eBody;
  p->iRoot = iRoot;
  p->iList = -1;
  walk(p, iRoot, &p->pFormats->aSpot[eBody], -1);
  if (p->pFormats->nEither > 0) followEither(p);
  sortHits(p);
  dropDoubles(p);
}
