/*
** log.c: the log as it is stored, to be read as a tree.
**
** The bytes of a leaf are its kind (1), its number (8), its time (8) and its
** commitment (32), numbers big-endian. The commitment is the SHA-256 of the salt
** and the digest of the content, so that nobody learns the content from the leaf
** by trying: the salt has 32 random bytes, and goes with the content.
**
** Stored are the leaves and, of the subtrees, those of 256 leaves, of 65536, and
** so on. A subtree between them is hashed from up to 128 of the level below, so
** that a proof reads up to 256 rows for each level of the log.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static unsigned char *putNumber(unsigned char *a, i64 n) {
  int i;
  for (i = 7; i >= 0; i--, n >>= 8) a[i] = (unsigned char)(n & 0xff);
  return a + 8;
}

void bxProofEntry(const ProofLeaf *pLeaf, unsigned char aOut[PROOF_ENTRY]) {
  unsigned char *a = aOut;
  *a++ = (unsigned char)PROOF_KIND(pLeaf->iThing);
  a = putNumber(a, PROOF_NUMBER(pLeaf->iThing));
  a = putNumber(a, pLeaf->iAt);
  memcpy(a, pLeaf->mark.a, BX_DIGEST);
  assert(a + BX_DIGEST == aOut + PROOF_ENTRY);
}

MerkleHash bxProofLeafHash(const ProofLeaf *pLeaf) {
  unsigned char a[PROOF_ENTRY];
  bxProofEntry(pLeaf, a);
  return bxMerkleLeaf(a, sizeof(a));
}

MerkleHash bxProofMark(
    const unsigned char aSalt[BX_DIGEST], const unsigned char *aContent) {
  MerkleHash mark;
  SHA256_CTX sha;
  SHA256_Init(&sha);
  SHA256_Update(&sha, aSalt, BX_DIGEST);
  SHA256_Update(&sha, aContent, BX_DIGEST);
  SHA256_Final(mark.a, &sha);
  return mark;
}

/*-------------------------------------------------------------- reading ----*/

int bxProofReadHash(sqlite3_stmt *pRow, int i, MerkleHash *pOut) {
  const void *a = sqlite3_column_blob(pRow, i);
  if (sqlite3_column_type(pRow, i) != SQLITE_BLOB ||
      sqlite3_column_bytes(pRow, i) != BX_DIGEST || a == 0) {
    memset(pOut, 0, sizeof(*pOut));
    return 0;
  }
  memcpy(pOut->a, a, BX_DIGEST);
  return 1;
}

int bxProofReadLeaf(sqlite3_stmt *pRow, int iFirst, ProofLeaf *pOut) {
  pOut->iThing = sqlite3_column_int64(pRow, iFirst);
  pOut->iAt = sqlite3_column_int64(pRow, iFirst + 1);
  return bxProofReadHash(pRow, iFirst + 2, &pOut->mark) && pOut->iThing > 7 &&
         PROOF_KIND(pOut->iThing) != 0;
}

static void missing(BxErr *pErr, const char *zWhat, i64 i) {
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: %s %lld of the log is missing or damaged; SELECT * "
      "FROM proof_verify() lists what is wrong",
      zWhat, i);
}

void bxProofLeaf(ProofLog *pLog, i64 iLeaf, ProofLeaf *pOut, BxErr *pErr) {
  static const char zLeaf[] =
      "SELECT thing, at, mark FROM main.proof_leaves WHERE leaf = ?1";
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zLeaf, pErr);
  int bGood = 0;
  memset(pOut, 0, sizeof(*pOut));
  bxBind(pStmt, pErr, "i", iLeaf);
  if (bxRow(pStmt, pErr)) bGood = bxProofReadLeaf(pStmt, 0, pOut);
  if (!bGood) missing(pErr, "leaf", iLeaf);
  bxDone(pStmt, pErr);
}

i64 bxProofNode(int nHeight, i64 iIndex) {
  assert(nHeight > 0 && nHeight % PROOF_LEVEL == 0);
  return ((i64)(nHeight / PROOF_LEVEL) << 48) + iIndex;
}

static void getStored(
    ProofLog *pLog, int nHeight, i64 iIndex, MerkleHash *pOut, BxErr *pErr) {
  static const char zNode[] =
      "SELECT hash FROM main.proof_nodes WHERE node = ?1";
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zNode, pErr);
  int bGood = 0;
  bxBind(pStmt, pErr, "i", bxProofNode(nHeight, iIndex));
  if (bxRow(pStmt, pErr)) bGood = bxProofReadHash(pStmt, 0, pOut);
  if (!bGood) missing(pErr, "node", bxProofNode(nHeight, iIndex));
  bxDone(pStmt, pErr);
}

/* The xGet of a log. */
static void getSubtree(
    Merkle *pTree, int nHeight, i64 iIndex, MerkleHash *pOut, BxErr *pErr) {
  ProofLog *pLog = (ProofLog *)pTree;
  memset(pOut, 0, sizeof(*pOut));
  if (pErr->rc != SQLITE_OK) return;
  if (nHeight == 0) {
    ProofLeaf leaf;
    bxProofLeaf(pLog, iIndex, &leaf, pErr);
    *pOut = bxProofLeafHash(&leaf);
  } else if (nHeight % PROOF_LEVEL == 0) {
    getStored(pLog, nHeight, iIndex, pOut, pErr);
  } else {
    MerkleHash aHalf[2];
    getSubtree(pTree, nHeight - 1, 2 * iIndex, &aHalf[0], pErr);
    getSubtree(pTree, nHeight - 1, 2 * iIndex + 1, &aHalf[1], pErr);
    *pOut = bxMerkleNode(&aHalf[0], &aHalf[1]);
  }
}

/* The kinds of the marks, in the order of the columns. */
#define PROOF_MARKS 6
static const ProofKind aMarked[PROOF_MARKS] = {PROOF_PIN, PROOF_UNPIN,
    PROOF_HOLD, PROOF_RECEIPT, PROOF_VERDICT, PROOF_ERASURE};

/* The number of bits of n that are 1. */
static int bitsOf(i64 n) {
  int nBit = 0;
  for (; n > 0; n &= n - 1) nBit++;
  return nBit;
}

/* Reads the state from a row: origin, size, frontier, marks. */
static int readState(sqlite3_stmt *pRow, ProofLog *pLog, BxErr *pErr) {
  const char *zOrigin = bxColumnText(pRow, 0, pErr);
  const void *a = sqlite3_column_blob(pRow, 2);
  size_t nByte = (size_t)sqlite3_column_bytes(pRow, 2);
  int i;
  pLog->now.n = sqlite3_column_int64(pRow, 1);
  for (i = 0; i < PROOF_MARKS; i++) {
    pLog->aMark[aMarked[i]] = sqlite3_column_int64(pRow, 3 + i);
  }
  if (zOrigin == 0 || strlen(zOrigin) > PROOF_ORIGIN ||
      strchr(zOrigin, '\n') != 0 || pLog->now.n < 0 ||
      pLog->now.n >= (i64)1 << 48 ||
      nByte != (size_t)bitsOf(pLog->now.n) * BX_DIGEST) {
    return 0;
  }
  sqlite3_snprintf(sizeof(pLog->zOrigin), pLog->zOrigin, "%s", zOrigin);
  pLog->now.nHash = bitsOf(pLog->now.n);
  if (a != 0) memcpy(pLog->now.a, a, nByte);
  return a != 0 || nByte == 0;
}

void bxProofOpen(ProofLog *pLog, BxStmts *p, BxErr *pErr) {
  static const char zState[] =
      "SELECT origin, size, frontier, pins, unpins, holds, receipts,"
      " verdicts, erasures FROM main.proof_state WHERE one = 1";
  sqlite3_stmt *pStmt;
  int bGood = 0;
  memset(pLog, 0, sizeof(*pLog));
  pLog->tree.xGet = getSubtree;
  pLog->p = p;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxStmt(p, zState, pErr);
  if (bxRow(pStmt, pErr)) bGood = readState(pStmt, pLog, pErr);
  if (!bGood) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: the row of proof_state is missing or damaged, so "
        "that the log cannot be read; use a copy of the file");
  }
  bxDone(pStmt, pErr);
}

void bxProofSave(ProofLog *pLog, BxErr *pErr) {
  static const char zStore[] =
      "UPDATE main.proof_state SET size = ?1, frontier = ?2, pins = ?3,"
      " unpins = ?4, holds = ?5, receipts = ?6, verdicts = ?7, erasures = ?8"
      " WHERE one = 1";
  const i64 *a = pLog->aMark;
  bxDo(pLog->p, zStore, pErr, "ixiiiiii", pLog->now.n, pLog->now.a,
      (i64)pLog->now.nHash * BX_DIGEST, a[PROOF_PIN], a[PROOF_UNPIN],
      a[PROOF_HOLD], a[PROOF_RECEIPT], a[PROOF_VERDICT], a[PROOF_ERASURE]);
}
