/*
** head.c: the head of a log: how many leaves it has, and its root. A head that is
** written down somewhere else is what makes a rewritten log detectable.
**
** The text is that of a checkpoint as transparency logs use it (C2SP
** tlog-checkpoint): the origin, the size, the root in base64, each with a line
** feed. What comes after an empty line is a signature, which is not read here.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

char *bxProofHeadText(const ProofHead *pHead, BxErr *pErr) {
  assert(pHead->n >= 0 && pHead->zOrigin[0] != 0);
  assert(strchr(pHead->zOrigin, '\n') == 0);
  return bxPrintf(
      pErr, "%s\n%lld\n%s\n", pHead->zOrigin, pHead->n, pHead->zRoot);
}

/* The size has no leading zero. There is one text for each root: its last digit stands
** for four bits. */
static int readHead(const char *z, ProofHead *pOut) {
  size_t nOrigin = strcspn(z, "\n"), nSize;
  const char *zSize = z + nOrigin + 1;
  assert(sizeof(pOut->zOrigin) > BX_LOG_ORIGIN && sizeof(pOut->zRoot) > BASE64);
  if (nOrigin == 0 || nOrigin > BX_LOG_ORIGIN || z[nOrigin] != '\n') return 0;
  memcpy(pOut->zOrigin, z, nOrigin);
  pOut->zOrigin[nOrigin] = 0;
  nSize = strspn(zSize, "0123456789");
  z = zSize + nSize + 1;
  if (nSize == 0 || nSize > 16 || (*zSize == '0' && nSize > 1) ||
      zSize[nSize] != '\n' || strspn(z, bxBase64Digits) != BASE64 - 1 ||
      strchr("AEIMQUYcgkosw048", z[BASE64 - 2]) == 0 || z[BASE64 - 1] != '=') {
    return 0;
  }
  pOut->n = strtoll(zSize, 0, 10);
  memcpy(pOut->zRoot, z, BASE64);
  pOut->zRoot[BASE64] = 0;
  return z[BASE64] == 0 || z[BASE64] == '\n';
}

void bxProofHeadRead(sqlite3_value *pVal, ProofHead *pOut, BxErr *pErr) {
  const char *z = bxText(pVal, "head", 100000, 0, pErr);
  if (z == 0 || readHead(z, pOut)) return;
  bxRefuse(pErr,
      "ValidationError: head must be a text as proof_head() returns it: "
      "origin, size and root, a line each; got %s",
      pVal);
}

char *bxProofHeadDiffers(BxLog *pLog, const ProofHead *pOld, BxErr *pErr) {
  /* whether the leaf before it is gone, because its row was folded */
  static const char zFolded[] =
      "SELECT 1 FROM main.blackbox__folded WHERE ?1 - 1 BETWEEN first AND last"
      " AND NOT EXISTS (SELECT 1 FROM main.blackbox__leaves"
      "  WHERE leaf = ?1 - 1)";
  Frontier before = {0, 0, {{{0}}}};
  BxErr err = {SQLITE_OK, 0};
  MerkleHash root;
  char zRoot[BASE64 + 1];
  assert(pOld->n >= 0 && strlen(pOld->zRoot) == BASE64);
  if (strcmp(pOld->zOrigin, pLog->zOrigin) != 0) {
    return bxPrintf(pErr, "the head is of the log %s, and this is the log %s",
        pOld->zOrigin, pLog->zOrigin);
  }
  if (pOld->n > pLog->now.n) {
    return bxPrintf(pErr,
        "the head has %lld leaves and the log only %lld: its end was cut off",
        pOld->n, pLog->now.n);
  }
  bxMerkleFrontier(&pLog->tree, 0, pOld->n, &before, &err);
  if (err.rc == SQLITE_CORRUPT_VTAB &&
      bxQueryInt(pLog->p, zFolded, pErr, "i", pOld->n)) {
    bxErrClear(&err);
    return bxPrintf(pErr,
        "the head ends at leaf %lld, among receipts that were folded since, "
        "and proof_head() did not make it: it cannot be compared",
        pOld->n);
  }
  bxErrMove(pErr, &err);
  if (pErr->rc != SQLITE_OK) return 0;
  root = bxFrontierRoot(&before);
  bxBase64(root.a, BX_DIGEST, zRoot);
  if (strcmp(zRoot, pOld->zRoot) == 0) return 0;
  return bxPrintf(pErr,
      "the first %lld leaves are not those of the head: the log was rewritten",
      pOld->n);
}
