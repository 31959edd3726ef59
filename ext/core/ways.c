/*
** ways.c: the keys that a reader of JSON looks for, as a tree of numbers.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static i64 nameHash(const char *z, int n) {
  const unsigned char *a = (const unsigned char *)z;
  unsigned int h = (unsigned int)n;
  if (n > 0) h += a[0] * 7u + a[n / 2] * 61u + a[n - 1] * 547u;
  return (i64)(h ^ h >> 7);
}

/* Puts the numbers of all names into slots. */
static void fillSlots(BxWays *p, BxErr *pErr) {
  i64 i, h, nSlot = p->nSlot == 0 ? 64 : 2 * p->nSlot;
  int *a = bxNew((size_t)nSlot * sizeof(*a), pErr);
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

int bxWaysFind(const BxWays *p, const char *zKey, int n) {
  i64 h;
  int iName;
  if (p->nSlot == 0) return 0;
  for (h = nameHash(zKey, n); (iName = p->aSlot[h & (p->nSlot - 1)]) != 0;
       h++) {
    const BxName *pName = &p->aName[iName - 1];
    if (pName->n == n && memcmp(pName->z, zKey, (size_t)n) == 0) return iName;
  }
  return 0;
}

int bxWaysName(BxWays *p, const char *zKey, int n, BxErr *pErr) {
  BxName *a;
  int iName = bxWaysFind(p, zKey, n);
  if (iName > 0 || pErr->rc != SQLITE_OK) return iName;
  a = bxGrow(p->aName, p->nName, &p->nNameAlloc, sizeof(*a), pErr);
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

static int newWay(BxWays *p, int iName, int iNext, BxErr *pErr) {
  BxWay *a = bxGrow(p->a, p->n, &p->nAlloc, sizeof(*a), pErr);
  if (a == 0) return 0;
  p->a = a;
  a += p->n;
  memset(a, 0, sizeof(*a));
  a->iName = iName;
  a->iNext = iNext;
  return (int)p->n++;
}

int bxWaysRoot(BxWays *p, BxErr *pErr) {
  if (p->n == 0) newWay(p, 0, 0, pErr);
  return newWay(p, 0, 0, pErr);
}

int bxWaysAdd(BxWays *p, int iWay, const char *zKey, int n, BxErr *pErr) {
  int iName = bxWaysName(p, zKey, n, pErr), i;
  if (pErr->rc != SQLITE_OK || iWay == 0) return 0;
  i = p->a[iWay].iFirst;
  while (i != 0 && p->a[i].iName != iName) i = p->a[i].iNext;
  if (i != 0) return i;
  i = newWay(p, iName, p->a[iWay].iFirst, pErr);
  if (i != 0) p->a[iWay].iFirst = i;
  return i;
}

int bxWaysGo(const BxWays *p, int iWay, int iName) {
  int i;
  if (iWay == 0 || p->a[iWay].bWhole) return 0;
  i = iName != 0 ? p->a[iWay].iFirst : 0;
  while (i != 0 && p->a[i].iName != iName) i = p->a[i].iNext;
  return i != 0 ? i : -1;
}

void bxWaysFree(BxWays *p) {
  sqlite3_free(p->a);
  sqlite3_free(p->aName);
  sqlite3_free(p->aSlot);
  memset(p, 0, sizeof(*p));
}
