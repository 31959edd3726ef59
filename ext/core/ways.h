/*
** ways.h: the keys that a reader of JSON looks for. Everything else in a text can
** be passed over.
*/
#ifndef BX_WAYS_H
#define BX_WAYS_H

#include "error.h"

/* A key that is looked for in the value of another one. */
typedef struct BxWay {
  int iName;  /* number of the key; 0 for a root */
  int iFirst; /* the first way that goes on in its value; 0 for none */
  int iNext;  /* the next way that begins at the same value */
  int bWhole; /* all of its value is looked at */
  int iPlace; /* number of the first place that ends here, from 1 on; 0 for none */
  int bOn;    /* places end here, or behind */
  int bList; /* ... of more than the names of tools: messages, if an array */
} BxWay;

typedef struct BxName {
  const char *z; /* not owned */
  int n;
} BxName;

/* Zeroed at first. */
typedef struct BxWays {
  BxWay *a; /* a[0] stands for a value of which all is looked at */
  i64 n, nAlloc;
  BxName *aName; /* key number i is aName[i - 1] */
  i64 nName, nNameAlloc;
  int *aSlot; /* numbers of the keys by their hashes; 0 for none */
  i64 nSlot;  /* a power of 2 */
} BxWays;

void bxWaysFree(BxWays *p);
/* A new root: what is looked for in one kind of text. 0 on error. */
int bxWaysRoot(BxWays *p, BxErr *pErr);
/* The way of a key of n bytes in the value of iWay: made if it is not there. 0 if
** all of that value is looked at. The key must stay where it is. */
int bxWaysAdd(BxWays *p, int iWay, const char *zKey, int n, BxErr *pErr);
/* The number of a key, made if it is not there. 0 on error. */
int bxWaysName(BxWays *p, const char *zKey, int n, BxErr *pErr);
/* The number of a key; 0 if nobody looks for it anywhere. */
int bxWaysFind(const BxWays *p, const char *zKey, int n);
/* The way of key iName in the value of iWay, or -1. */
int bxWaysGo(const BxWays *p, int iWay, int iName);

#endif
