/*
** merkle.c: the Merkle tree of RFC 6962: its hashes, its root, the proof that a
** leaf is in it, and the proof that one tree begins with another.
**
** A leaf is hashed with the byte 0 before it, a node with the byte 1 before the
** hashes of its two parts. A tree of n leaves is divided at the largest power of
** two below n, so that the left part is complete and never changes again.
**
** A path has one hash for each level at most. It is found by going down from the
** root, so the code collects it from the top and turns it round.
*/
#include "merkle.h"
#include "digest.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

MerkleHash bxMerkleLeaf(const void *a, size_t n) {
  MerkleHash hash;
  bxDigestTwo("\0", 1, a, n, hash.a);
  return hash;
}

MerkleHash bxMerkleNode(const MerkleHash *pLeft, const MerkleHash *pRight) {
  MerkleHash aPair[2], hash;
  aPair[0] = *pLeft;
  aPair[1] = *pRight;
  bxDigestTwo("\1", 1, aPair, sizeof(aPair), hash.a);
  return hash;
}

/*------------------------------------------------------------- frontier ----*/

void bxFrontierAddTree(Frontier *p, int nHeight, const MerkleHash *pHash,
    FrontierNode xNode, void *pArg) {
  i64 nLeaf = (i64)1 << nHeight;
  i64 iIndex = p->n >> nHeight;
  assert(nHeight >= 0 && nHeight < 62);
  assert(p->nHash < 62 && p->n % nLeaf == 0);
  p->a[p->nHash++] = *pHash;
  for (; iIndex & 1; iIndex >>= 1) {
    MerkleHash *pPair = &p->a[p->nHash - 2];
    pPair[0] = bxMerkleNode(&pPair[0], &pPair[1]);
    p->nHash--;
    nHeight++;
    if (xNode != 0) xNode(pArg, nHeight, iIndex >> 1, pPair);
  }
  p->n += nLeaf;
}

MerkleHash bxFrontierRoot(const Frontier *p) {
  MerkleHash root;
  int i;
  assert(p->nHash >= 0 && p->nHash <= 63);
  if (p->nHash == 0) { /* the hash of nothing */
    bxDigestTwo("", 0, "", 0, root.a);
    return root;
  }
  root = p->a[p->nHash - 1];
  for (i = p->nHash - 2; i >= 0; i--) root = bxMerkleNode(&p->a[i], &root);
  return root;
}

/*---------------------------------------------------------- stored trees ----*/

/* Adds the complete subtrees that leaves iFirst to iFirst + n - 1 consist of.
** iFirst is a multiple of a power of two that is n or more. */
static void addSubtrees(
    Merkle *p, i64 iFirst, i64 n, Frontier *pOut, BxErr *pErr) {
  int nHeight;
  assert(n >= 0 && iFirst >= 0);
  for (nHeight = 62; nHeight >= 0; nHeight--) {
    if (!(n >> nHeight & 1)) continue;
    p->xGet(p, nHeight, iFirst >> nHeight, &pOut->a[pOut->nHash++], pErr);
    iFirst += (i64)1 << nHeight;
  }
}

void bxMerkleFrontier(
    Merkle *p, i64 iFirst, i64 n, Frontier *pOut, BxErr *pErr) {
  assert(n >= iFirst);
  pOut->n = n;
  pOut->nHash = 0;
  addSubtrees(p, iFirst, n - iFirst, pOut, pErr);
}

static MerkleHash rangeHash(Merkle *p, i64 iFirst, i64 iEnd, BxErr *pErr) {
  Frontier part = {0, 0, {{{0}}}};
  assert(iFirst < iEnd);
  addSubtrees(p, iFirst, iEnd - iFirst, &part, pErr);
  return bxFrontierRoot(&part);
}

/* The largest power of two below n. */
static i64 splitOf(i64 n) {
  i64 k = 1;
  assert(n > 1);
  while (k << 1 < n) k <<= 1;
  return k;
}

static void turnRound(MerklePath *p) {
  int i;
  assert(p->n <= (int)(sizeof(p->a) / sizeof(p->a[0])));
  for (i = 0; i < p->n / 2; i++) {
    MerkleHash hash = p->a[i];
    p->a[i] = p->a[p->n - 1 - i];
    p->a[p->n - 1 - i] = hash;
  }
}

void bxMerkleInclusion(
    Merkle *p, i64 iLeaf, i64 n, MerklePath *pOut, BxErr *pErr) {
  i64 iFirst = 0, iEnd = n;
  assert(iLeaf >= 0 && iLeaf < n);
  pOut->n = 0;
  while (iEnd - iFirst > 1 && pErr->rc == SQLITE_OK) {
    i64 iSplit = iFirst + splitOf(iEnd - iFirst);
    MerkleHash *pNext = &pOut->a[pOut->n++];
    if (iLeaf < iSplit) {
      *pNext = rangeHash(p, iSplit, iEnd, pErr);
      iEnd = iSplit;
    } else {
      *pNext = rangeHash(p, iFirst, iSplit, pErr);
      iFirst = iSplit;
    }
  }
  turnRound(pOut);
}

/* Goes down to the subtree that ends with leaf m. Its hash is needed as well,
** unless it is the old tree itself (bWhole). */
void bxMerkleConsistency(
    Merkle *p, i64 m, i64 n, MerklePath *pOut, BxErr *pErr) {
  i64 iFirst = 0, iEnd = n;
  int bWhole = 1;
  assert(m > 0 && m <= n);
  pOut->n = 0;
  while (iEnd > m && pErr->rc == SQLITE_OK) {
    i64 iSplit = iFirst + splitOf(iEnd - iFirst);
    MerkleHash *pNext = &pOut->a[pOut->n++];
    if (m <= iSplit) {
      *pNext = rangeHash(p, iSplit, iEnd, pErr);
      iEnd = iSplit;
    } else {
      *pNext = rangeHash(p, iFirst, iSplit, pErr);
      iFirst = iSplit;
      bWhole = 0;
    }
  }
  if (!bWhole) pOut->a[pOut->n++] = rangeHash(p, iFirst, iEnd, pErr);
  turnRound(pOut);
}
