/*
** take.c: gives leaves to what was recorded and has none.
**
** A call that records something takes in everything that waits, its own records
** last, in its own transaction. At most 20,000 leaves: those of a kill switch of
** the largest ring. proof_head() takes in all.
**
** The order of writes: leaves, salts and nodes; then the state, with which they
** count; then the marks. SQLite does not undo the first writes of a row that fails
** inside BEGIN. Then leaves stay beyond the size, which the next call removes, or
** marks that are too low, of which it skips what has a leaf.
**
** If the log is damaged, or a trigger of the user refuses, the records stay
** without leaves: a kill switch must work even then. proof_head() says what is
** wrong.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define TAKE_MOST 20000
#define RECEIPTS_KEPT 10000 /* the same in sql/core.sql */

typedef struct Take {
  BxStmts *p;
  ProofLog log;
  i64 nLeft; /* leaves that may still be added */
  i64 iNow;
  BxErr *pErr;
} Take;

/*--------------------------------------------------------------- leaves ----*/

/* Whether a thing has a leaf. */
static int hasLeaf(Take *p, i64 iThing) {
  static const char zHas[] = "SELECT 1 FROM main.proof_salts WHERE thing = ?1";
  return bxAsk(p->p, zHas, p->pErr, "i", iThing) != 0;
}

/* Stores the nodes of whole levels. */
static void storeNode(
    void *pArg, int nHeight, i64 iIndex, const MerkleHash *pHash) {
  static const char zNode[] =
      "INSERT INTO main.proof_nodes(node, hash) VALUES(?1, ?2)";
  Take *p = (Take *)pArg;
  if (nHeight % PROOF_LEVEL != 0 || p->pErr->rc != SQLITE_OK) return;
  bxDo(p->p, zNode, p->pErr, "ix", bxProofNode(nHeight, iIndex), pHash->a,
      (i64)BX_DIGEST);
}

/* Adds the leaf of a thing with that content. */
static void addLeaf(Take *p, i64 iThing, const unsigned char *aContent) {
  static const char zLeaf[] = "INSERT INTO main.proof_leaves(leaf, thing, at,"
                              " mark) VALUES(?1, ?2, ?3, ?4)";
  static const char zSalt[] =
      "INSERT INTO main.proof_salts(thing, leaf, salt) VALUES(?1, ?2, ?3)";
  unsigned char aSalt[BX_DIGEST];
  ProofLeaf leaf;
  MerkleHash hash;
  i64 iLeaf = p->log.now.n;
  if (p->pErr->rc != SQLITE_OK) return;
  sqlite3_randomness(sizeof(aSalt), aSalt);
  leaf.iThing = iThing;
  leaf.iAt = p->iNow;
  leaf.mark = bxProofMark(aSalt, aContent);
  bxDo(p->p, zLeaf, p->pErr, "iiix", iLeaf, iThing, leaf.iAt, leaf.mark.a,
      (i64)BX_DIGEST);
  bxDo(p->p, zSalt, p->pErr, "iix", iThing, iLeaf, aSalt, (i64)BX_DIGEST);
  hash = bxProofLeafHash(&leaf);
  bxFrontierAdd(&p->log.now, &hash, storeNode, p);
  p->nLeft--;
}

/* Removes the salt of a thing, whose leaf then says nothing of its content. It
** is overwritten first, whatever secure_delete is. */
static void closeLeaf(Take *p, i64 iThing) {
  static const char zZero[] =
      "UPDATE main.proof_salts SET salt = zeroblob(32) WHERE thing = ?1";
  static const char zDelete[] = "DELETE FROM main.proof_salts WHERE thing = ?1";
  bxDo(p->p, zZero, p->pErr, "i", iThing);
  bxDo(p->p, zDelete, p->pErr, "i", iThing);
}

/* Adds the leaf of a thing, unless it has one or is not there. */
static void takeThing(Take *p, i64 iThing) {
  unsigned char aContent[BX_DIGEST];
  if (hasLeaf(p, iThing)) return;
  if (bxProofContent(p->p, iThing, aContent, p->pErr)) {
    addLeaf(p, iThing, aContent);
  }
}

/*---------------------------------------------------------------- kinds ----*/

/* The digest of the row that a pin is on; 0 if the row is lost, or the pin has
** ended. A kill switch has hashed what it saved. A row that was pinned without
** the module gets its hash here, as pins.c of payload would do it. */
static int pinnedContent(Take *p, i64 iPin, unsigned char aOut[BX_DIGEST]) {
  static const char zHash[] =
      "SELECT hash FROM main.payload_ledger AS l WHERE pin = ?1 AND at IS NULL"
      " AND EXISTS (SELECT 1 FROM main.event_payloads AS e WHERE e.id = l.id)";
  static const char zSet[] = "UPDATE main.payload_ledger SET hash = ?2,"
                             " columns = ?3 WHERE pin = ?1";
  sqlite3_stmt *pStmt = bxStmt(p->p, zHash, p->pErr);
  char zHex[2 * BX_DIGEST + 1];
  int bThere, nColumn, bHash = 0;
  bxBind(pStmt, p->pErr, "i", iPin);
  bThere = bxRow(pStmt, p->pErr);
  if (bThere) bHash = bxUnhex(bxColumnText(pStmt, 0, p->pErr), aOut, BX_DIGEST);
  bxDone(pStmt, p->pErr);
  if (!bThere || bHash) return bThere;
  nColumn =
      bxProofContent(p->p, PROOF_THING(iPin, PROOF_EVIDENCE), aOut, p->pErr);
  bxHex(aOut, BX_DIGEST, zHex);
  bxDo(p->p, zSet, p->pErr, "iti", iPin, zHex, (i64)nColumn);
  return nColumn > 0;
}

/* A pin, and after it the row that it is on. */
static void takePin(Take *p, i64 iPin) {
  unsigned char aContent[BX_DIGEST];
  i64 iThing = PROOF_THING(iPin, PROOF_EVIDENCE);
  takeThing(p, PROOF_THING(iPin, PROOF_PIN));
  if (p->pErr->rc == SQLITE_OK && !hasLeaf(p, iThing) &&
      pinnedContent(p, iPin, aContent)) {
    addLeaf(p, iThing, aContent);
  }
}

/* The mark of receipts: one of a minute may be open while later ones are taken. */
static i64 receiptMark(Take *p) {
  static const char zMark[] =
      "SELECT coalesce((SELECT min(id) - 1 FROM main.retention_log"
      " WHERE id > ?1 AND NOT EXISTS (SELECT 1 FROM main.proof_salts"
      "  WHERE thing = id * 8 + 5)),"
      " max(?1, (SELECT max(id) FROM main.retention_log)), ?1)";
  return bxAsk(p->p, zMark, p->pErr, "i", p->log.aMark[PROOF_RECEIPT]);
}

/* Things with ascending numbers. */
static void takeKind(Take *p, ProofKind eKind) {
  sqlite3_stmt *pStmt = bxProofPendingOf(&p->log, eKind, p->nLeft, p->pErr);
  i64 *piMark = &p->log.aMark[eKind];
  if (pStmt == 0) return;
  while (p->nLeft > 0 && bxProofRow(pStmt, p->pErr)) {
    i64 iNumber = sqlite3_column_int64(pStmt, 0);
    if (iNumber >= PROOF_MOST) break; /* somebody has chosen it */
    if (eKind == PROOF_PIN) {
      takePin(p, iNumber);
    } else {
      takeThing(p, PROOF_THING(iNumber, eKind));
    }
    if (eKind != PROOF_RECEIPT) *piMark = iNumber;
  }
  bxDone(pStmt, p->pErr);
  if (eKind == PROOF_RECEIPT) *piMark = receiptMark(p);
}

/* Unpins: as many of the newest as payload_state counts more than have leaves.
** What was unpinned is no evidence any more. */
static void takeUnpins(Take *p) {
  sqlite3_stmt *pStmt = bxProofAsk(p->p, PROOF_UNPIN, PROOF_PENDING, p->pErr);
  i64 nNew = pStmt ? bxProofUnpinned(&p->log, p->pErr) : 0;
  while (nNew > 0 && p->nLeft > 0 && bxProofRow(pStmt, p->pErr)) {
    i64 iPin = sqlite3_column_int64(pStmt, 0);
    if (hasLeaf(p, PROOF_THING(iPin, PROOF_UNPIN))) continue;
    takeThing(p, PROOF_THING(iPin, PROOF_UNPIN));
    closeLeaf(p, PROOF_THING(iPin, PROOF_EVIDENCE));
    p->log.aMark[PROOF_UNPIN]++;
    nNew--;
  }
  bxDone(pStmt, p->pErr);
}

/*------------------------------------------------------ what has gone ----*/

/* The log of receipts keeps the newest of them. */
static void closeReceipts(Take *p, i64 iBefore) {
  i64 i = iBefore - RECEIPTS_KEPT;
  if (i < 0) i = 0;
  while (++i <= p->log.aMark[PROOF_RECEIPT] - RECEIPTS_KEPT) {
    closeLeaf(p, PROOF_THING(i, PROOF_RECEIPT));
  }
}

/* A verdict may be deleted, which leaves a receipt. */
static void closeVerdicts(Take *p, i64 iBefore) {
  static const char zAny[] =
      "SELECT 1 FROM main.retention_log WHERE id > ?1 AND domain = 'payload'"
      " AND rule = 'payload.verdicts'";
  static const char zGone[] =
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
      "  WHERE i < ?1)"
      " SELECT i FROM n WHERE NOT EXISTS (SELECT 1 FROM main.payload_verdicts"
      "  WHERE id = i) AND EXISTS (SELECT 1 FROM main.proof_salts"
      "  WHERE thing = i * 8 + 6)";
  sqlite3_stmt *pStmt;
  if (!bxAsk(p->p, zAny, p->pErr, "i", iBefore)) return;
  pStmt = bxStmt(p->p, zGone, p->pErr);
  bxBind(pStmt, p->pErr, "i", p->log.aMark[PROOF_VERDICT]);
  while (bxRow(pStmt, p->pErr)) {
    i64 i = sqlite3_column_int64(pStmt, 0);
    closeLeaf(p, PROOF_THING(i, PROOF_VERDICT));
  }
  bxDone(pStmt, p->pErr);
}

/* Removes what a call that failed has left. */
static void clean(Take *p) {
  static const char zLast[] =
      "SELECT 1 FROM main.proof_leaves WHERE leaf >= ?1";
  static const char zSalts[] =
      "DELETE FROM main.proof_salts WHERE leaf >= ?1 AND thing IN"
      " (SELECT thing FROM main.proof_leaves WHERE leaf >= ?1)";
  static const char zNodes[] =
      "DELETE FROM main.proof_nodes WHERE node >= ?1 AND node < ?2";
  static const char zLeaves[] =
      "DELETE FROM main.proof_leaves WHERE leaf >= ?1";
  i64 n = p->log.now.n;
  int nHeight;
  if (!bxAsk(p->p, zLast, p->pErr, "i", n)) return;
  bxDo(p->p, zSalts, p->pErr, "i", n);
  for (nHeight = PROOF_LEVEL; nHeight < 48; nHeight += PROOF_LEVEL) {
    bxDo(p->p, zNodes, p->pErr, "ii", bxProofNode(nHeight, n >> nHeight),
        bxProofNode(nHeight + PROOF_LEVEL, 0));
  }
  bxDo(p->p, zLeaves, p->pErr, "i", n);
}

/*---------------------------------------------------------------- calls ----*/

i64 bxProofTake(BxStmts *p, i64 nMost, int bWhole, BxErr *pErr) {
  Take take;
  i64 nBefore, iReceipt;
  memset(&take, 0, sizeof(take));
  take.p = p;
  take.pErr = pErr;
  take.iNow = bxNow();
  take.nLeft = nMost;
  bxProofOpen(&take.log, p, pErr);
  if (pErr->rc != SQLITE_OK) return 0;
  nBefore = take.log.now.n;
  iReceipt = take.log.aMark[PROOF_RECEIPT];
  clean(&take);
  takeKind(&take, PROOF_PIN);
  takeUnpins(&take);
  takeKind(&take, PROOF_HOLD);
  takeKind(&take, PROOF_VERDICT);
  takeKind(&take, PROOF_ERASURE);
  if (bWhole) takeKind(&take, PROOF_RECEIPT);
  if (take.log.now.n > nBefore || take.log.aMark[PROOF_RECEIPT] > iReceipt) {
    bxProofSave(&take.log, pErr);
    closeReceipts(&take, iReceipt);
    closeVerdicts(&take, iReceipt);
  }
  return take.log.now.n - nBefore;
}

void bxProofFollow(BxStmts *p, int bWhole, BxErr *pErr) {
  BxErr err = {SQLITE_OK, 0};
  bxProofTake(p, TAKE_MOST, bWhole, &err);
  if (bxMayPassOver(p, &err)) bxClear(&err);
  bxPass(pErr, &err);
}

int bxProofWaits(BxStmts *p, BxErr *pErr) {
  static const ProofKind aKind[] = {
      PROOF_PIN, PROOF_HOLD, PROOF_VERDICT, PROOF_ERASURE, PROOF_RECEIPT};
  ProofLog log;
  size_t i;
  int bWaits = 0;
  bxProofOpen(&log, p, pErr);
  for (i = 0; i < sizeof(aKind) / sizeof(aKind[0]) && !bWaits; i++) {
    sqlite3_stmt *pStmt = bxProofPendingOf(&log, aKind[i], 1, pErr);
    bWaits = pStmt != 0 && bxProofRow(pStmt, pErr);
    bxDone(pStmt, pErr);
  }
  return bWaits || bxProofUnpinned(&log, pErr) > 0;
}
