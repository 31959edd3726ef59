/*
** log_tree.c: the Merkle tree of the log, as it is stored.
**
**   blackbox__tree    one row: the name of the log, the number of leaves, and the
**                     hashes of the complete subtrees of which the root is made
**   blackbox__leaves  leaf >= 0       the hash of that leaf
**                     -size           proof_head() has returned a head of that size
**                     <= -(2^40)      a node: the hash of 256 complete leaves, of 256
**                                     such nodes, and so on (bxLogNodeKey())
**
** A subtree between two levels of nodes is hashed from the level below. Where receipts
** were folded, leaves may be gone. Then further nodes have what the other rows of such
** 256 leaves need, and the heads that end among them: the hashes beside the path from
** a leaf to the root.
**
** Leaves and nodes are written before the row of the tree, with which they count. If
** that row does not say what the leaves say, a writer goes on after the last leaf.
*/
#include "core.h"
#include "log.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define HASHED_AGAIN 32 /* leaves that a small step hashes again, at most */

/* Levels are in the bits from 48 on. Below are heights between them, and the leaves that
** a fold keeps. (They are less than 0, so that a new leaf is the last row.) */
i64 bxLogNodeKey(int nHeight, i64 iIndex) {
  assert(nHeight >= 0 && iIndex >= 0);
  if (nHeight < BX_LOG_LEVEL) return -((i64)(nHeight + 1) << 40) - iIndex;
  assert(nHeight % BX_LOG_LEVEL == 0);
  return -((i64)(nHeight / BX_LOG_LEVEL) << 48) - iIndex;
}

/* The xGet of a log: hashes the subtree from those of the level below it. */
static void getSubtree(
    Merkle *pTree, int nHeight, i64 iIndex, MerkleHash *pOut, BxErr *pErr) {
  static const char zLeaves[] =
      "SELECT hash FROM main.blackbox__leaves WHERE leaf BETWEEN ?1 AND ?2"
      " ORDER BY leaf";
  static const char zNodes[] =
      "SELECT hash FROM main.blackbox__leaves WHERE leaf BETWEEN ?2 AND ?1"
      " ORDER BY leaf DESC";
  BxStmts *p = ((BxLog *)pTree)->p;
  int nLevel = nHeight - nHeight % BX_LOG_LEVEL;
  i64 n = (i64)1 << (nHeight - nLevel), iFirst = iIndex * n;
  Frontier part = {0, 0, {{{0}}}};
  MerkleHash hash;
  sqlite3_stmt *pStmt = bxStmt(p, nLevel == 0 ? zLeaves : zNodes, pErr);
  memset(pOut, 0, sizeof(*pOut));
  if (nLevel > 0) iFirst = bxLogNodeKey(nLevel, iFirst);
  bxBind(
      pStmt, pErr, "ii", iFirst, nLevel == 0 ? iFirst + n - 1 : iFirst - n + 1);
  while (bxStep(pStmt, pErr) && bxLogReadHash(pStmt, 0, &hash)) {
    bxFrontierAdd(&part, &hash, 0, 0);
  }
  bxReset(pStmt, pErr);
  if (part.n != n && nLevel == 0) { /* folded: the node itself */
    iFirst = bxLogNodeKey(nHeight, iIndex);
    pStmt = bxStmt(p, zNodes, pErr);
    bxBind(pStmt, pErr, "ii", iFirst, iFirst);
    memset(&part, 0, sizeof(part));
    if (bxStep(pStmt, pErr) && bxLogReadHash(pStmt, 0, &hash)) {
      bxFrontierAdd(&part, &hash, 0, 0);
      n = 1;
    }
    bxReset(pStmt, pErr);
  }
  assert(part.n <= n);
  if (part.n == n) {
    *pOut = part.a[0];
  } else {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: a hash of leaves %lld to %lld of the log is "
        "missing or damaged; SELECT * FROM proof_verify() lists what is wrong",
        iIndex << nHeight, ((iIndex + 1) << nHeight) - 1);
  }
}

void bxLogOpen(BxLog *pLog, BxStmts *p, BxErr *pErr) {
  static const char zTree[] = "SELECT origin, size, frontier, fold"
                              " FROM main.blackbox__tree WHERE one = 1";
  sqlite3_stmt *pStmt;
  int nHash, bGood = 0;
  memset(pLog, 0, sizeof(*pLog));
  pLog->tree.xGet = getSubtree;
  pLog->p = p;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxStmt(p, zTree, pErr);
  if (bxStep(pStmt, pErr)) {
    const char *zOrigin = bxColumnText(pStmt, 0, pErr);
    const void *a = sqlite3_column_blob(pStmt, 2);
    int nByte = sqlite3_column_bytes(pStmt, 2);
    pLog->now.n = sqlite3_column_int64(pStmt, 1);
    pLog->iFold = sqlite3_column_int64(pStmt, 3);
    if (pLog->iFold > pLog->now.n + 1) pLog->iFold = 1;
    nHash = __builtin_popcountll((sqlite3_uint64)pLog->now.n);
    if (zOrigin != 0 && zOrigin[0] != 0 && strlen(zOrigin) <= BX_LOG_ORIGIN &&
        strchr(zOrigin, '\n') == 0) {
      sqlite3_snprintf(sizeof(pLog->zOrigin), pLog->zOrigin, "%s", zOrigin);
      bGood = pLog->now.n >= 0 && pLog->now.n < BX_LOG_MOST &&
              nByte == nHash * BX_DIGEST && (a != 0 || nByte == 0);
    }
    if (bGood) pLog->now.nHash = nHash;
    if (bGood && nByte > 0) memcpy(pLog->now.a, a, (size_t)nByte);
  }
  bxReset(pStmt, pErr);
  if (bGood) return;
  bxFail(pErr, SQLITE_CORRUPT_VTAB,
      "CorruptedDataError: the row of blackbox__tree is missing or damaged, so "
      "that there is no head of the log; use a copy of the file");
}

int bxLogOpenToWrite(BxLog *pLog, BxStmts *p, i64 *pnTold, BxErr *pErr) {
  assert(pnTold != 0);
  static const char zEnds[] = /* (a leaf that is folded may be gone) */
      "SELECT coalesce(max(leaf), -1) = ?1 - 1 OR max(leaf) IS NULL AND EXISTS"
      " (SELECT 1 FROM main.blackbox__folded WHERE ?1 - 1 BETWEEN first AND"
      "  last) FROM main.blackbox__leaves WHERE leaf BETWEEN ?1 - 1 AND ?1";
  static const char zLeaves[] =
      "SELECT max(max(leaf) + 1, 0) FROM main.blackbox__leaves";
  BxErr err = {SQLITE_OK, 0};
  i64 n;
  bxLogOpen(pLog, p, &err);
  *pnTold = pLog->now.n;
  if (err.rc == SQLITE_OK && bxQueryInt(p, zEnds, &err, "i", pLog->now.n)) {
    pLog->nKept = bxLogKept(p, pLog->now.n - 1, pErr);
    return 0;
  }
  if (err.rc == SQLITE_CORRUPT_VTAB && pLog->zOrigin[0] != 0) bxErrClear(&err);
  n = bxQueryInt(p, zLeaves, &err, "");
  if (n < 0 || n >= BX_LOG_MOST) {
    bxFail(&err, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: blackbox__leaves has a leaf %lld, which cannot "
        "be; use a copy of the file",
        n - 1);
  }
  if (err.rc == SQLITE_OK) {
    bxMerkleFrontier(&pLog->tree, 0, n, &pLog->now, &err);
  }
  pLog->nKept = bxLogKept(p, n - 1, &err);
  bxErrMove(pErr, &err);
  return 1;
}

/* (If a hash is missing the root that is stored is the best that there is.) */
int bxLogRepairFrontier(BxLog *pLog, int bNewest, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  i64 n = pLog->now.n;
  Frontier now;
  bxMerkleFrontier(
      &pLog->tree, bNewest ? n - n % HASHED_AGAIN : 0, n, &now, &err);
  if (err.rc == SQLITE_OK && pErr->rc == SQLITE_OK &&
      memcmp(now.a, pLog->now.a + pLog->now.nHash - now.nHash,
          (size_t)now.nHash * BX_DIGEST) != 0) {
    if (bNewest) return bxLogRepairFrontier(pLog, 0, pErr);
    pLog->now = now;
    return 1;
  }
  if (err.rc == SQLITE_CORRUPT_VTAB) bxErrClear(&err);
  bxErrMove(pErr, &err);
  return 0;
}

typedef struct NodeTo {
  BxStmts *p;
  BxErr *pErr;
} NodeTo;

/* Stores the nodes of whole levels. */
static void storeNode(
    void *pArg, int nHeight, i64 iIndex, const MerkleHash *pHash) {
  static const char zNode[] =
      "INSERT OR REPLACE INTO main.blackbox__leaves(leaf, hash) VALUES(?1, ?2)";
  NodeTo *pTo = (NodeTo *)pArg;
  if (nHeight % BX_LOG_LEVEL != 0 || pTo->pErr->rc != SQLITE_OK) return;
  bxStmtExec(pTo->p, zNode, pTo->pErr, "ix", bxLogNodeKey(nHeight, iIndex),
      pHash->a, (i64)BX_DIGEST);
}

void bxLogAddLeaf(
    BxLog *pLog, const MerkleHash *pFields, int bKept, BxErr *pErr) {
  static const char zLeaf[] =
      "INSERT OR IGNORE INTO main.blackbox__leaves(leaf, hash, kept)"
      " VALUES(?1, ?2, ?3)";
  static const char zReplace[] =
      "REPLACE INTO main.blackbox__leaves(leaf, hash, kept)"
      " VALUES(?1, ?2, ?3)";
  NodeTo to = {pLog->p, pErr};
  i64 i = pLog->now.n;
  MerkleHash hash;
  if (pErr->rc != SQLITE_OK) return;
  assert(pLog->now.n < BX_LOG_MOST && (bKept & ~1) == 0);
  pLog->nKept += bKept;
  hash = bxLogLeafHash(i + 1, pLog->nKept, pFields);
  bxStmtExec(
      pLog->p, zLeaf, pErr, "ixi", i, hash.a, (i64)BX_DIGEST, pLog->nKept);
  if (pErr->rc == SQLITE_OK && sqlite3_changes(pLog->p->bx->db) == 0) {
    bxStmtExec(
        pLog->p, zReplace, pErr, "ixi", i, hash.a, (i64)BX_DIGEST, pLog->nKept);
    pLog->iReplaced = i;
  }
  if (pErr->rc == SQLITE_OK) {
    bxFrontierAdd(&pLog->now, &hash, storeNode, &to);
  }
}

void bxLogSave(BxLog *pLog, BxErr *pErr) {
  static const char zSave[] =
      "UPDATE main.blackbox__tree SET size = ?1, frontier = ?2, fold = ?3"
      " WHERE one = 1";
  assert(pErr->rc != SQLITE_OK || pLog->now.nHash <= 63);
  bxStmtExec(pLog->p, zSave, pErr, "ixi", pLog->now.n, pLog->now.a,
      (i64)pLog->now.nHash * BX_DIGEST, pLog->iFold);
}

void bxLogTruncate(BxLog *pLog, i64 n, BxErr *pErr) {
  static const char zNodes[] =
      "DELETE FROM main.blackbox__leaves WHERE leaf <= ?1 AND leaf > ?2";
  static const char zLeaves[] =
      "DELETE FROM main.blackbox__leaves WHERE leaf >= ?1 AND leaf < ?2";
  i64 iEnd = pLog->now.n;
  int nHeight;
  assert(n <= iEnd);
  for (nHeight = BX_LOG_LEVEL; nHeight < 40; nHeight += BX_LOG_LEVEL) {
    bxStmtExec(pLog->p, zNodes, pErr, "ii", bxLogNodeKey(nHeight, n >> nHeight),
        bxLogNodeKey(nHeight, iEnd >> nHeight));
  }
  bxStmtExec(pLog->p, zLeaves, pErr, "ii", n, iEnd);
}
