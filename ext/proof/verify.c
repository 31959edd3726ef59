/*
** verify.c: proof_verify([head]) and proof_pending; what blackbox_check() lists
** about the log.
**
** Every leaf is read once, in order. Its content is hashed again, and the tree is
** built again from the leaves and compared with what is stored. Then the tables
** are searched for things that have no leaf and should have one.
**
** With a head, the tree of the head must be the beginning of the log, and only
** the leaves after it are read.
**
** A leaf whose salt is gone must say why: evidence, because its pin has the leaf of
** an unpin; a receipt, because there are 10,000 newer ones; a verdict, because a
** receipt counts it.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct Verify {
  BxStmts *p;
  sqlite3_stmt *pHold; /* see holdSnapshot() */
  ProofLog log;
  Frontier tree;           /* built again */
  int bBroken;             /* the tree is known to differ */
  i64 iFrom;               /* the first leaf that is read */
  i64 aFirst[PROOF_KINDS]; /* the lowest number of each kind that was read */
  i64 nOpen;               /* leaves with a salt */
  i64 iReceipts;           /* receipts up to this one may be gone */
  i64 nVerdict;            /* verdicts that may be gone, by the receipts */
  sqlite3_str *pOut;       /* JSON: [leaf, kind, key, problem], ... */
  int nProblem;
  BxErr *pErr;
} Verify;

/*------------------------------------------------------------- problems ----*/

/* The key with which proof_of() finds a thing: evidence has the id of its row,
** if the ledger of pins is there. */
static void addKey(Verify *p, i64 iThing) {
  static const char zId[] = "SELECT json_quote(id) FROM main.payload_ledger"
                            " WHERE pin = ?1";
  BxErr err = {SQLITE_OK, 0};
  char *zKey = 0;
  if (PROOF_KIND(iThing) == PROOF_EVIDENCE) {
    zKey = bxAskText(p->p, zId, &err, "i", PROOF_NUMBER(iThing));
  }
  if (bxSays(&err, "no such table")) bxClear(&err);
  bxPass(p->pErr, &err);
  if (zKey != 0) {
    sqlite3_str_appendall(p->pOut, zKey);
  } else {
    sqlite3_str_appendf(p->pOut, "%lld", PROOF_NUMBER(iThing));
  }
  sqlite3_free(zKey);
}

/* iLeaf: -1 if there is none. iThing: 0 if it is about no thing. zOwned is
** freed. */
static void addProblem(Verify *p, i64 iLeaf, i64 iThing, char *zOwned) {
  if (zOwned != 0 && p->pErr->rc == SQLITE_OK &&
      p->nProblem < BX_MAX_PROBLEMS) {
    sqlite3_str_appendall(p->pOut, p->nProblem++ > 0 ? ",[" : "[[");
    if (iLeaf >= 0) {
      sqlite3_str_appendf(p->pOut, "%lld,", iLeaf);
    } else {
      sqlite3_str_appendall(p->pOut, "null,");
    }
    if (iThing != 0) {
      const char *zKind = bxProofKindName(PROOF_KIND(iThing));
      sqlite3_str_appendf(p->pOut, "\"%s\",", zKind);
      addKey(p, iThing);
    } else {
      sqlite3_str_appendall(p->pOut, "null,null");
    }
    sqlite3_str_appendchar(p->pOut, 1, ',');
    bxAppendJson(p->pOut, zOwned, (int)strlen(zOwned));
    sqlite3_str_appendchar(p->pOut, 1, ']');
  }
  sqlite3_free(zOwned);
}

static void leafProblem(Verify *p, i64 iLeaf, i64 iThing, const char *zWhat) {
  addProblem(p, iLeaf, iThing, bxPrintf(p->pErr, "%s", zWhat));
}

/*--------------------------------------------------------------- leaves ----*/

/* Compares a subtree with the one that is stored. */
static void compareNode(
    void *pArg, int nHeight, i64 iIndex, const MerkleHash *pHash) {
  static const char zSame[] = "SELECT hash IS ?2 FROM main.proof_nodes"
                              " WHERE node = ?1";
  Verify *p = (Verify *)pArg;
  if (nHeight % PROOF_LEVEL != 0 || p->bBroken ||
      bxAsk(p->p, zSame, p->pErr, "ix", bxProofNode(nHeight, iIndex), pHash->a,
          (i64)BX_DIGEST)) {
    return;
  }
  p->bBroken = 1;
  addProblem(p, iIndex << nHeight, 0,
      bxPrintf(p->pErr,
          "the leaves from this one to %lld do not have the hash that is "
          "stored for them: some were altered, or exchanged",
          ((iIndex + 1) << nHeight) - 1));
}

/* Whether a thing may be gone by the rules. */
static int mayBeGone(Verify *p, i64 iThing) {
  switch (PROOF_KIND(iThing)) {
    case PROOF_EVIDENCE:
      return bxProofEnded(p->p, PROOF_NUMBER(iThing), p->pErr);
    case PROOF_RECEIPT: return PROOF_NUMBER(iThing) <= p->iReceipts;
    case PROOF_VERDICT: return p->nVerdict-- > 0;
    default: return 0;
  }
}

/* Whether the salt of a thing may be gone by the rules. */
static int mayBeClosed(Verify *p, i64 iThing) {
  static const char zUnpin[] =
      "SELECT 1 FROM main.proof_salts WHERE thing = ?1";
  if (PROOF_KIND(iThing) != PROOF_EVIDENCE) return mayBeGone(p, iThing);
  return bxAsk(p->p, zUnpin, p->pErr, "i",
             PROOF_THING(PROOF_NUMBER(iThing), PROOF_UNPIN)) != 0;
}

/* A leaf with its salt, which is in column iSalt of the row. */
static void verifyOpen(Verify *p, i64 iLeaf, const ProofLeaf *pLeaf,
    sqlite3_stmt *pRow, int iSalt) {
  unsigned char aContent[BX_DIGEST];
  MerkleHash salt, mark;
  p->nOpen++;
  if (!bxProofReadHash(pRow, iSalt, &salt)) {
    leafProblem(p, iLeaf, pLeaf->iThing, "its salt is damaged");
  } else if (!bxProofContent(p->p, pLeaf->iThing, aContent, p->pErr)) {
    if (p->pErr->rc == SQLITE_OK && !mayBeGone(p, pLeaf->iThing)) {
      leafProblem(p, iLeaf, pLeaf->iThing, "was removed outside the rules");
    }
  } else {
    mark = bxProofMark(salt.a, aContent);
    if (memcmp(mark.a, pLeaf->mark.a, BX_DIGEST) != 0) {
      leafProblem(p, iLeaf, pLeaf->iThing,
          "was altered: it is not what the leaf says, or the salt or the leaf "
          "is another");
    }
  }
}

/* A row: thing, at, mark, and of its salt: leaf, salt. */
static void verifyLeaf(Verify *p, i64 iLeaf, sqlite3_stmt *pRow) {
  ProofLeaf leaf;
  MerkleHash hash;
  i64 *piFirst;
  if (!bxProofReadLeaf(pRow, 1, &leaf)) {
    leafProblem(p, iLeaf, 0, "the leaf is damaged");
  } else if (sqlite3_column_type(pRow, 4) == SQLITE_NULL) {
    if (!mayBeClosed(p, leaf.iThing)) {
      leafProblem(p, iLeaf, leaf.iThing,
          "its salt was removed, and nothing in the log says why");
    }
  } else if (sqlite3_column_int64(pRow, 4) != iLeaf) {
    leafProblem(p, iLeaf, leaf.iThing, "its salt is that of another leaf");
  } else {
    verifyOpen(p, iLeaf, &leaf, pRow, 5);
  }
  piFirst = &p->aFirst[PROOF_KIND(leaf.iThing)];
  if (*piFirst == 0 || PROOF_NUMBER(leaf.iThing) < *piFirst) {
    *piFirst = PROOF_NUMBER(leaf.iThing);
  }
  hash = bxProofLeafHash(&leaf);
  bxFrontierAdd(&p->tree, &hash, compareNode, p);
}

static void verifyLeaves(Verify *p) {
  static const char zLeaves[] =
      "SELECT l.leaf, l.thing, l.at, l.mark, s.leaf, s.salt"
      " FROM main.proof_leaves AS l LEFT JOIN main.proof_salts AS s"
      "  ON s.thing = l.thing WHERE l.leaf >= ?1 AND l.leaf < ?2"
      " ORDER BY l.leaf";
  sqlite3_stmt *pStmt = bxPrepare(p->p, zLeaves, p->pErr);
  i64 iLeaf = p->iFrom;
  bxBind(pStmt, p->pErr, "ii", p->iFrom, p->log.now.n);
  while (bxRow(pStmt, p->pErr)) {
    i64 iFound = sqlite3_column_int64(pStmt, 0);
    for (; iLeaf < iFound && !p->bBroken; iLeaf++) {
      leafProblem(p, iLeaf, 0, "the leaf is missing");
      p->bBroken = 1;
    }
    verifyLeaf(p, iFound, pStmt);
    iLeaf = iFound + 1;
  }
  sqlite3_finalize(pStmt);
  if (iLeaf < p->log.now.n && !p->bBroken) {
    leafProblem(p, iLeaf, 0, "the leaf is missing, and all after it");
    p->bBroken = 1;
  }
  if (!p->bBroken && memcmp(p->tree.a, p->log.now.a,
                         (size_t)p->log.now.nHash * BX_DIGEST) != 0) {
    leafProblem(p, p->log.now.n & ~(i64)(PROOF_TILE - 1), 0,
        "the leaves from this one on do not have the root that is stored: some "
        "were altered, or exchanged");
  }
}

/*------------------------------------------------- what has no leaf ----*/

/* Things that have no leaf, though all up to the mark of their kind must. Of
** unpins so many may wait. */
static void verifyKind(Verify *p, ProofKind eKind) {
  i64 iLow = p->iFrom > 0 ? p->aFirst[eKind] : -((i64)1 << 62);
  i64 iMark = p->log.aMark[eKind == PROOF_EVIDENCE ? PROOF_PIN : eKind];
  i64 nSkip = 0;
  sqlite3_stmt *pStmt;
  if (p->iFrom > 0 && (iLow == 0 || eKind == PROOF_UNPIN)) return;
  pStmt = bxProofAsk(p->p, eKind, PROOF_LACKING, p->pErr);
  if (pStmt == 0) return;
  if (eKind == PROOF_UNPIN) {
    iMark = (i64)1 << 62;
    nSkip = bxProofUnpinned(&p->log, p->pErr);
  }
  bxBind(pStmt, p->pErr, "ii", iLow, iMark);
  while (bxProofRow(pStmt, p->pErr) && p->nProblem < BX_MAX_PROBLEMS) {
    i64 iThing = PROOF_THING(sqlite3_column_int64(pStmt, 0), eKind);
    if (nSkip-- > 0) continue;
    leafProblem(p, -1, iThing, "has no leaf: it was put in outside the rules");
  }
  bxDone(pStmt, p->pErr);
}

/* The pending things of a kind: how many, and the first of them. */
static i64 countPending(
    ProofLog *pLog, ProofKind eKind, int bReady, i64 *piFirst, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxProofPendingOf(pLog, eKind, -1, pErr);
  i64 n = 0;
  if (pStmt != 0 && eKind == PROOF_RECEIPT && !bReady) {
    bxBind(pStmt, pErr, "--i", (i64)1 << 62);
  }
  while (pStmt != 0 && bxProofRow(pStmt, pErr)) {
    if (n++ == 0) *piFirst = sqlite3_column_int64(pStmt, 0);
  }
  bxDone(pStmt, pErr);
  return n;
}

static const ProofKind aAscending[] = {
    PROOF_PIN, PROOF_HOLD, PROOF_RECEIPT, PROOF_VERDICT, PROOF_ERASURE};
#define ASCENDING (sizeof(aAscending) / sizeof(aAscending[0]))

/* What waits for its leaf. A receipt of the minute that is not over does not. */
static void verifyPending(Verify *p) {
  i64 nUnpin = bxProofUnpinned(&p->log, p->pErr);
  size_t i;
  for (i = 0; i < ASCENDING; i++) {
    i64 iFirst = 0;
    i64 n = countPending(&p->log, aAscending[i], 1, &iFirst, p->pErr);
    if (n == 0) continue;
    addProblem(p, -1, PROOF_THING(iFirst, aAscending[i]),
        bxPrintf(p->pErr,
            "has no leaf yet, nor have %lld after it: they were put in without "
            "the module; SELECT proof_head() takes them in",
            n - 1));
  }
  if (nUnpin > 0) {
    addProblem(p, -1, 0,
        bxPrintf(p->pErr,
            "%lld unpins have no leaf yet: they were put in without the "
            "module; "
            "SELECT proof_head() takes them in",
            nUnpin));
  }
}

/*---------------------------------------------------------------- calls ----*/

/* What may be gone: receipts with 10,000 newer ones, and as many verdicts as
** receipts count, if all of these are there. */
static void readAllowances(Verify *p) {
  static const char zNewest[] = "SELECT max(id) FROM main.blackbox__receipts";
  static const char zVerdicts[] =
      "SELECT CASE WHEN (SELECT min(id) FROM main.blackbox__receipts) > 1"
      " THEN 9e18 ELSE sum(rows) END FROM main.blackbox__receipts"
      " WHERE domain = 'payload' AND rule = 'payload.verdicts'";
  p->iReceipts = bxAsk(p->p, zNewest, p->pErr, "") - 10000;
  p->nVerdict = bxAsk(p->p, zVerdicts, p->pErr, "");
}

/* The salts of leaves that are there are the only ones. */
static void verifySalts(Verify *p) {
  static const char zSalts[] =
      "SELECT count(*) FROM main.proof_salts WHERE leaf < ?1";
  i64 n = bxAsk(p->p, zSalts, p->pErr, "i", p->log.now.n);
  if (p->nProblem == 0 && n != p->nOpen) {
    addProblem(p, -1, 0,
        bxPrintf(p->pErr, "there are %lld salts for %lld leaves that have one",
            n, p->nOpen));
  }
}

/* A statement that is not at its end, so that all that is read until it is
** finalized is of one moment. */
static sqlite3_stmt *holdSnapshot(BxStmts *p, BxErr *pErr) {
  sqlite3_stmt *pStmt = bxPrepare(p, "SELECT one FROM main.proof_state", pErr);
  bxRow(pStmt, pErr);
  return pStmt;
}

/* Verifies the log, from the leaf after pHead on if that is given. */
static void verify(Verify *p, const ProofHead *pHead) {
  int i;
  p->pHold = holdSnapshot(p->p, p->pErr);
  bxProofOpen(&p->log, p->p, p->pErr);
  if (pHead != 0 && p->pErr->rc == SQLITE_OK) {
    char *zDiffers = bxProofHeadDiffers(&p->log, pHead, p->pErr);
    if (zDiffers != 0) {
      addProblem(p, -1, 0, zDiffers);
      return; /* it is not known which leaves are new */
    }
    p->iFrom = pHead->n;
    bxMerkleFrontier(&p->log.tree, p->iFrom, &p->tree, p->pErr);
  }
  readAllowances(p);
  if (p->pErr->rc != SQLITE_OK) return;
  verifyLeaves(p);
  for (i = PROOF_PIN; i <= PROOF_ERASURE; i++) verifyKind(p, (ProofKind)i);
  if (p->iFrom == 0) verifySalts(p);
}

/* The problems as JSON, to sqlite3_free(). */
static char *problemsOf(Verify *p) {
  sqlite3_finalize(p->pHold);
  sqlite3_str_appendall(p->pOut, p->nProblem > 0 ? "]" : "[]");
  return bxFinish(p->pOut, p->pErr);
}

sqlite3_stmt *bxProofVerify(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  Verify run;
  ProofHead head;
  BxStmts *pHome = bxHome(bx, "proof", pErr);
  memset(&run, 0, sizeof(run));
  if (apArg[0] != 0) bxProofHeadRead(apArg[0], &head, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  run.p = pHome;
  run.pErr = pErr;
  run.pOut = sqlite3_str_new(bx->db);
  verify(&run, apArg[0] != 0 ? &head : 0);
  if (run.log.now.n > 0 || bxSettingInt(pHome, "proof.enabled", pErr)) {
    verifyPending(&run);
  }
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3"
      " FROM json_each(?1)",
      problemsOf(&run), pErr);
}

/* (A log that is on and has nothing has nothing to be checked.) */
void bxProofCheck(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  Verify run;
  sqlite3_stmt *pRows;
  memset(&run, 0, sizeof(run));
  run.p = p;
  run.pErr = &err;
  run.pOut = sqlite3_str_new(p->bx->db);
  verify(&run, 0);
  pRows = bxJsonRows(p->bx,
      "SELECT trim(coalesce('leaf ' || (value ->> 0), '') || ' ' ||"
      " coalesce((value ->> 1) || ' ' || (value ->> 2), '')) || ': ' ||"
      " (value ->> 3) FROM json_each(?1)",
      problemsOf(&run), &err);
  while (bxRow(pRows, &err)) {
    const char *zLine = bxColumnText(pRows, 0, &err);
    if (zLine != 0) bxProblem(pOut, "proof_leaves", "%s", zLine);
  }
  sqlite3_finalize(pRows);
  bxUnchecked(pOut, "proof_leaves", &err);
}

sqlite3_stmt *bxProofPending(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  BxStmts *pHome = bxHome(bx, "proof", pErr);
  ProofLog log;
  sqlite3_stmt *pHold;
  sqlite3_str *pOut;
  i64 nUnpin;
  size_t i;
  (void)apArg;
  if (pHome == 0) return 0;
  pHold = holdSnapshot(pHome, pErr);
  bxProofOpen(&log, pHome, pErr);
  pOut = sqlite3_str_new(bx->db);
  nUnpin = bxProofUnpinned(&log, pErr);
  sqlite3_str_appendf(pOut, "[[\"unpin\",%lld,null]", nUnpin);
  for (i = 0; i < ASCENDING; i++) {
    i64 iFirst = 0, n = countPending(&log, aAscending[i], 0, &iFirst, pErr);
    sqlite3_str_appendf(
        pOut, ",[\"%s\",%lld,%lld]", bxProofKindName(aAscending[i]), n, iFirst);
  }
  sqlite3_str_appendchar(pOut, 1, ']');
  sqlite3_finalize(pHold);
  return bxJsonRows(bx,
      "SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?1)"
      " WHERE value ->> 1 > 0",
      bxFinish(pOut, pErr), pErr);
}
