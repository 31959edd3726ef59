/*
** proof.h: what others can verify of the log (core/log.h): heads, proofs, tiles.
*/
#ifndef BX_PROOF_H
#define BX_PROOF_H

#include "../core/core.h"
#include "../core/log.h"

/* head.c: the form of a head: origin, size, and root in base64, a line each */
#define BASE64 44 /* characters for 32 bytes, the last one is '=' */
typedef struct ProofHead {
  char zOrigin[BX_LOG_ORIGIN + 1];
  i64 n;
  char zRoot[BASE64 + 1];
} ProofHead;
char *bxProofHeadText(const ProofHead *pHead, BxErr *pErr);
/* Reads a head; signatures may follow it. */
void bxProofHeadRead(sqlite3_value *pVal, ProofHead *pOut, BxErr *pErr);
/* What is wrong about an older head, to sqlite3_free(); NULL if the log begins
** with the tree that it is of. */
char *bxProofHeadDiffers(BxLog *pLog, const ProofHead *pOld, BxErr *pErr);

/* verify.c */
sqlite3_stmt *bxProofVerify(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxProofCheck(BxStmts *p, BxProblems *pOut);

/* export.c: functions */
void bxProofHead(BxCall *p);
void bxProofOf(BxCall *p);
void bxProofTile(BxCall *p);
void bxProofBundleText(BxCall *p);
sqlite3_stmt *bxProofBundle(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxProofExport(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxProofPending(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

#endif
