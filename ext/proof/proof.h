/*
** proof.h: the proof domain: a log of what was recorded, as a Merkle tree.
*/
#ifndef BX_PROOF_H
#define BX_PROOF_H

#include "merkle.h"

/* sql/proof.sql */
extern const char bxSqlProof[];

/* record.c: the things that get leaves */
typedef enum {
  PROOF_PIN = 1,
  PROOF_EVIDENCE,
  PROOF_UNPIN,
  PROOF_HOLD,
  PROOF_RECEIPT,
  PROOF_VERDICT,
  PROOF_ERASURE
} ProofKind;
#define PROOF_KINDS 8
#define PROOF_THING(number, kind)                                              \
  ((i64)((sqlite3_uint64)(number)*8 + (sqlite3_uint64)(kind)))
#define PROOF_MOST ((i64)1 << 59) /* numbers from this one on get no leaf */
#define PROOF_KIND(thing) ((ProofKind)((thing)&7))
#define PROOF_NUMBER(thing) ((thing) >> 3)

const char *bxProofKindName(ProofKind eKind);
/* The kind of that name, 0 if there is none. */
ProofKind bxProofKindOf(const char *zName);
/* The kept statement of one of these templates of a kind; NULL if the table is
** not there, because its domain is not installed. */
typedef enum {
  PROOF_PENDING, /* numbers that may have no leaf, ascending: ?1 the mark, ?2 how
                 ** many, ?3 receipts of minutes before this one */
  PROOF_CONTENT, /* what is hashed of number ?1; a column before it says how much
                 ** (NULL: all) */
  PROOF_LACKING  /* a number from ?1 to ?2 that has no leaf */
} ProofAsk;
sqlite3_stmt *bxProofAsk(
    BxStmts *p, ProofKind eKind, ProofAsk eAsk, BxErr *pErr);
/* Steps it once. Returns 1 on a row; 0 at the end, on error, or if the table has
** gone since the statement was prepared. */
int bxProofRow(sqlite3_stmt *pStmt, BxErr *pErr);
/* The digest of the content of a thing. Returns the number of columns that are
** in it, 0 if the thing is not there. */
int bxProofContent(
    BxStmts *p, i64 iThing, unsigned char aOut[BX_DIGEST], BxErr *pErr);

/* log.c: what is stored */
#define PROOF_ENTRY 49 /* bytes of a leaf */
#define PROOF_LEVEL 8  /* heights between two levels of proof_nodes */
#define PROOF_TILE 256 /* 1 << PROOF_LEVEL */
#define PROOF_ORIGIN 200
typedef struct ProofLeaf {
  i64 iThing, iAt;
  MerkleHash mark;
} ProofLeaf;
/* The bytes of a leaf: kind, number, time and commitment. */
void bxProofEntry(const ProofLeaf *pLeaf, unsigned char aOut[PROOF_ENTRY]);
/* Its hash in the tree. */
MerkleHash bxProofLeafHash(const ProofLeaf *pLeaf);
/* The commitment to a content. */
MerkleHash bxProofMark(
    const unsigned char aSalt[BX_DIGEST], const unsigned char *aContent);
/* The log of a schema, to be read. */
typedef struct ProofLog {
  Merkle tree; /* must be first */
  BxStmts *p;
  char zOrigin[PROOF_ORIGIN + 1];
  Frontier now; /* the whole log */
  i64 aMark
      [PROOF_KINDS]; /* of each kind, up to which number all have leaves; of unpins,
                ** how many have */
} ProofLog;
/* The pending things of a kind with ascending numbers, at most nMost (-1: all);
** NULL if there can be none. bxDone() it. */
sqlite3_stmt *bxProofPendingOf(
    ProofLog *pLog, ProofKind eKind, i64 nMost, BxErr *pErr);
/* The number of pending unpins. */
i64 bxProofUnpinned(ProofLog *pLog, BxErr *pErr);
/* Whether a pin has ended. */
int bxProofEnded(BxStmts *p, i64 iPin, BxErr *pErr);
void bxProofOpen(ProofLog *pLog, BxStmts *p, BxErr *pErr);
/* Writes the state, with which new leaves count. */
void bxProofSave(ProofLog *pLog, BxErr *pErr);
/* Reads a leaf. A missing one is CorruptedDataError. */
void bxProofLeaf(ProofLog *pLog, i64 iLeaf, ProofLeaf *pOut, BxErr *pErr);
/* Reads columns of a leaf's row: thing, at, mark. Returns 0 for damage. */
int bxProofReadLeaf(sqlite3_stmt *pRow, int iFirst, ProofLeaf *pOut);
/* Copies a blob of 32 bytes. Returns 0 for anything else. */
int bxProofReadHash(sqlite3_stmt *pRow, int i, MerkleHash *pOut);
i64 bxProofNode(int nHeight, i64 iIndex);

/* head.c: the form of a head: origin, size, and root in base64, a line each */
typedef struct ProofHead {
  char zOrigin[PROOF_ORIGIN + 1];
  i64 n;
  MerkleHash root;
} ProofHead;
void bxProofHeadOf(ProofLog *pLog, ProofHead *pOut);
char *bxProofHeadText(const ProofHead *pHead, BxErr *pErr);
/* Reads a head; signatures may follow it. */
void bxProofHeadRead(sqlite3_value *pVal, ProofHead *pOut, BxErr *pErr);
/* What is wrong about an older head, to sqlite3_free(); NULL if the log begins
** with the tree that it is of. */
char *bxProofHeadDiffers(ProofLog *pLog, const ProofHead *pOld, BxErr *pErr);

/* take.c: gives leaves to what has none. Receipts are left out unless they are
** complete (bWhole). Returns how many leaves. */
#define PROOF_ALL (-1)
i64 bxProofTake(BxStmts *p, i64 nMost, int bWhole, BxErr *pErr);
void bxProofFollow(BxStmts *p, int bWhole, BxErr *pErr);
/* Whether something waits for its leaf. */
int bxProofWaits(BxStmts *p, BxErr *pErr);

/* verify.c */
sqlite3_stmt *bxProofVerify(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxProofCheck(BxStmts *p, BxProblems *pOut);
sqlite3_stmt *bxProofPending(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* show.c: functions */
void bxProofHead(BxCall *p);
void bxProofOf(BxCall *p);
void bxProofTile(BxCall *p);
sqlite3_stmt *bxProofExport(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
