/*
** tree.h: a JSON text as the list of its values, for a reader that looks at many
** places of it.
*/
#ifndef BX_TREE_H
#define BX_TREE_H

#include "error.h"

/* A value. A member of an object is two of them: its key, and its value. */
typedef struct BxNode {
  int iAt;   /* where its text begins */
  int nByte; /* length of its text */
  int iNext; /* the node after all that are in this one */
} BxNode;

/* Zeroed at first; may be read into again. The text must stay as it is. */
typedef struct BxTree {
  const char *z; /* the text */
  BxNode *a;     /* node 0 is the whole value */
  i64 n, nAlloc;
} BxTree;

/*
** Reads the value at z, which a terminator ends somewhere. Returns the position
** after it; NULL if there is no JSON value, if it is nested too deeply, or has
** more than BX_TREE_MAX values. *pErr is for memory alone.
*/
const char *bxTreeRead(BxTree *p, const char *z, BxErr *pErr);
#define BX_TREE_MAX 8000000
/*
** Reads the rest of an array that is a member of the whole value, whose key is at
** z + iKey: what follows z + iAt, the end of an element. The tree then has the
** whole value with this one member, and these elements. NULL if they are no JSON;
** what is after the array is not looked at.
*/
const char *bxTreeResume(
    BxTree *p, const char *z, int iKey, int iAt, BxErr *pErr);
void bxTreeFree(BxTree *p);

/* The first byte of a node's text, which tells its kind. */
#define BX_TREE_KIND(p, i) ((p)->z[(p)->a[i].iAt])
/* The value of the first member with a key of n bytes, or -1. */
int bxTreeMember(const BxTree *p, int iNode, const char *zKey, int n);
/* Whether a node is a string that represents these n bytes. */
int bxTreeIs(const BxTree *p, int iNode, const char *z, int n);
/* Appends what a string represents. Half of a surrogate pair becomes U+FFFD. */
void bxTreeText(const BxTree *p, int iNode, sqlite3_str *pOut);
/* Appends a character, which is at most U+10FFFF. */
void bxAppendUtf8(sqlite3_str *pOut, int c);
/* Appends the value without white space, its escapes only where JSON needs
** them, and the members of each object in the order of their keys. */
void bxTreeCanon(const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr);

#endif
