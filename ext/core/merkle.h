/*
** merkle.h: the Merkle tree of RFC 6962 (and RFC 9162), without its storage.
*/
#ifndef BX_MERKLE_H
#define BX_MERKLE_H

#include "digest.h"

/* One hash. */
typedef struct MerkleHash {
  unsigned char a[BX_DIGEST];
} MerkleHash;

/* The hash of a leaf of n bytes, and of a node. */
MerkleHash bxMerkleLeaf(const void *a, size_t n);
MerkleHash bxMerkleNode(const MerkleHash *pLeft, const MerkleHash *pRight);

/* A tree that grows, as the hashes of its complete subtrees, the largest one
** first. Begin with zeros. */
typedef struct Frontier {
  i64 n; /* leaves */
  int nHash;
  MerkleHash a[63];
} Frontier;
/* Adds the 1 << nHeight leaves of a subtree; so many divide the number of leaves. xNode is
** called for each subtree that it completes, of another height and with that index. */
typedef void (*FrontierNode)(
    void *pArg, int nHeight, i64 iIndex, const MerkleHash *pHash);
void bxFrontierAddTree(Frontier *p, int nHeight, const MerkleHash *pHash,
    FrontierNode xNode, void *pArg);
#define bxFrontierAdd(p, pLeaf, xNode, pArg)                                   \
  bxFrontierAddTree(p, 0, pLeaf, xNode, pArg)
/* The hash of the whole tree. */
MerkleHash bxFrontierRoot(const Frontier *p);

/* A tree that is stored. */
typedef struct Merkle Merkle;
struct Merkle {
  /* The hash of a complete subtree: height 0 is a leaf. */
  void (*xGet)(
      Merkle *p, int nHeight, i64 iIndex, MerkleHash *pOut, BxErr *pErr);
};
/* The root of the first n leaves, as the frontier of that tree; or the part of that which
** leaf iFirst begins. */
void bxMerkleFrontier(
    Merkle *p, i64 iFirst, i64 n, Frontier *pOut, BxErr *pErr);
/* The hashes of a proof, the lowest first. */
typedef struct MerklePath {
  int n;
  MerkleHash a[128];
} MerklePath;
/* That leaf iLeaf is among the first n. */
void bxMerkleInclusion(
    Merkle *p, i64 iLeaf, i64 n, MerklePath *pOut, BxErr *pErr);
/* That the first m leaves are those of the tree of the first n. */
void bxMerkleConsistency(
    Merkle *p, i64 m, i64 n, MerklePath *pOut, BxErr *pErr);

#endif
