/*
** json_tree.h: a JSON text as the list of its values, for a reader that looks at many
** places of it.
*/
#ifndef BX_JSON_TREE_H
#define BX_JSON_TREE_H

#include "error.h"

/* A key that is looked for in the value of another one. */
typedef struct BxTrieNode {
  int iName;  /* number of the key; 0 for a root */
  int iFirst; /* the first way that goes on in its value; 0 for none */
  int iNext;  /* the next way that begins at the same value */
  int bWhole; /* all of its value is looked at */
  int iPlace; /* number of the first place that ends here, from 1 on; 0 for none */
  int bOn;    /* places end here, or behind */
  int bList; /* ... of more than the names of tools: messages, if an array */
} BxTrieNode;

typedef struct BxName {
  const char *z; /* not owned */
  int n;
} BxName;

/* Zeroed at first. */
typedef struct BxTrie {
  BxTrieNode *a; /* a[0] stands for a value of which all is looked at */
  i64 n, nAlloc;
  BxName *aName; /* key number i is aName[i - 1] */
  i64 nName, nNameAlloc;
  int *aSlot; /* numbers of the keys by their hashes; 0 for none */
  i64 nSlot;  /* a power of 2 */
} BxTrie;

void bxTrieFree(BxTrie *p);
/* A new root: what is looked for in one kind of text. 0 on error. */
int bxTrieRoot(BxTrie *p, BxErr *pErr);
/* The way of a key of n bytes in the value of iWay: made if it is not there. 0 if
** all of that value is looked at. The key must stay where it is. */
int bxTrieAdd(BxTrie *p, int iWay, const char *zKey, int n, BxErr *pErr);
/* The number of a key, made if it is not there. 0 on error. */
int bxTrieAddKey(BxTrie *p, const char *zKey, int n, BxErr *pErr);
/* The number of a key; 0 if nobody looks for it anywhere. */
int bxTrieFindKey(const BxTrie *p, const char *zKey, int n);

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
  int bEscape; /* a key has an escape */
  i64 nMost; /* an array has at most so many elements: others are read, and left
             ** out; 0: all */
} BxTree;

/*
** Reads the value at z. A terminator is at z + n or behind. Returns the position
** after it; NULL if there is no JSON value, if it is nested too deeply, or has
** more than BX_TREE_MAX values. *pErr is for memory alone.
**
** pTrie, iRoot: the keys that are looked for. The tree has no members with other
** keys. NULL: it has everything.
*/
const char *bxTreeRead(BxTree *p, const char *z, i64 n, const BxTrie *pTrie,
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
    const BxTrie *pTrie, int iRoot, BxErr *pErr);
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
/* Appends what a string represents. Half of a surrogate pair becomes U+FFFD, and so
** does a NUL, which would be its end. */
void bxTreeText(const BxTree *p, int iNode, sqlite3_str *pOut);
/* Appends the value without white space, its escapes only where JSON needs
** them, and the members of each object in the order of their keys. */
void bxTreeCanon(const BxTree *p, int iNode, sqlite3_str *pOut, BxErr *pErr);
/* A hash of the value: the same for texts whose canonical form is the same. */
sqlite3_uint64 bxTreeHash(const BxTree *p, int iNode, BxErr *pErr);

#endif
