/*
** tree.h: a JSON text as the list of its values, for a reader that looks at many
** places of it.
*/
#ifndef BX_TREE_H
#define BX_TREE_H

#include "error.h"
#include "ways.h"

/* A value. A member of an object is two of them: its key, and its value. */
typedef struct BxNode {
  int iAt;   /* where its text begins */
  int nByte; /* length of its text */
  int iNext; /* the node after all that are in this one */
  int iName; /* number of a key that is looked for; 0 for anything else */
} BxNode;

/* Zeroed at first; may be read into again. The text must stay as it is. */
typedef struct BxTree {
  const char *z; /* the text */
  BxNode *a;     /* node 0 is the whole value */
  i64 n, nAlloc;
} BxTree;

/*
** Reads the value at z. A terminator is at z + n or behind. Returns the position
** after it; NULL if there is no JSON value, if it is nested too deeply, or has
** more than BX_TREE_MAX values. *pErr is for memory alone.
**
** pWays, iRoot: the keys that are looked for. The tree has no members with other
** keys. NULL: it has everything.
*/
const char *bxTreeRead(BxTree *p, const char *z, i64 n, const BxWays *pWays,
    int iRoot, BxErr *pErr);
#define BX_TREE_MAX 8000000
/*
** Reads the rest of an array that is a member of the whole value, whose key is at
** z + iKey: what follows z + iAt, the end of an element. The tree then has the
** whole value with this one member, and these elements, of which the first nOld
** are without what is in them. NULL if they are no JSON; what is after the array
** is not looked at.
*/
typedef struct BxTreeRest {
  int iKey, iAt, nOld;
  i64 nByte; /* of the text */
} BxTreeRest;
const char *bxTreeResume(BxTree *p, const char *z, const BxTreeRest *pRest,
    const BxWays *pWays, int iRoot, BxErr *pErr);
void bxTreeFree(BxTree *p);

/* The first byte of a node's text, which tells its kind. */
#define BX_TREE_KIND(p, i) ((p)->z[(p)->a[i].iAt])
/* The value of the first member with a key of n bytes, or -1. */
int bxTreeMember(const BxTree *p, int iNode, const char *zKey, int n);
/* Whether a node is a string that represents these n bytes. */
int bxTreeIs(const BxTree *p, int iNode, const char *z, int n);
/* The value of the first member with key iName, or -1. */
int bxTreeNamed(const BxTree *p, int iNode, int iName);
/* Writes what the n bytes between the quotes of a string represent to zOut, which
** has room for n bytes. Returns its end. Half of a surrogate pair becomes
** U+FFFD. */
char *bxTreeDecode(char *zOut, const char *z, int n);
/* Appends what a string represents. Half of a surrogate pair becomes U+FFFD. */
void bxTreeText(const BxTree *p, int iNode, sqlite3_str *pOut);
/* Appends a character, which is at most U+10FFFF. */
void bxAppendUtf8(sqlite3_str *pOut, int c);
/* Appends the value without white space, its escapes only where JSON needs
** them, and the members of each object in the order of their keys. */
void bxTreeCanon(const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr);
/* A hash of the value: the same for texts whose canonical form is the same. */
sqlite3_uint64 bxTreeHash(const BxTree *p, int iNode, BxErr *pErr);

#endif
