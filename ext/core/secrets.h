/*
** secrets.h: keys, passwords and addresses in texts, found by the rows of
** blackbox_secrets.
*/
#ifndef BX_SECRETS_H
#define BX_SECRETS_H

#include "statement.h"

typedef struct BxSecret BxSecret;
#define SECRET_HEADS 4096
#define SECRET_THREES 32768

typedef struct BxSecrets {
  BxSecret *a; /* the rules */
  i64 n, nAlloc;
  int nFirst;                /* characters of an anchor by which it is found */
  short aHead[SECRET_HEADS]; /* the rules whose anchors begin alike; or -1 */
  unsigned char aMay[SECRET_HEADS]; /* bits of the hashes that anchors have */
  unsigned char aThree[SECRET_THREES / 8]; /* see nextAnchor() */
} BxSecrets;

/* Adds the rules of a profile. */
void bxSecretsRead(
    BxSecrets *p, BxStmts *pHome, const char *zProfile, BxErr *pErr);
void bxSecretsFree(BxSecrets *p);
/* A text that was masked, and where the next one can go on that begins like it. */
#define BX_SECRETS_MARKS 64
typedef struct BxSecretsMark {
  i64 i, iFrom, nOut, iLooked;
} BxSecretsMark;
typedef struct BxSecretsPast {
  char *z, *zOut; /* the text, and what it became */
  i64 n, nAlloc, nOutAlloc;
  i64 nSame, nSameOut; /* the bytes that the text before had, too */
  i64 nMark;
  BxSecretsMark a[BX_SECRETS_MARKS];
} BxSecretsPast;
void bxSecretsForget(BxSecretsPast *p);
/* Masks n bytes, which a NUL follows. Returns 0 if nothing is found; otherwise the
** text, to sqlite3_free(), is in *pzOut, and its length in *pnOut. bCount: what was
** found is counted. */
int bxSecretsMask(BxSecrets *p, const char *z, i64 n, int bCount, char **pzOut,
    i64 *pnOut, BxErr *pErr);
/* The same, and what has the same bytes as the text before is not looked at again. The
** rules must be the same, too. */
int bxSecretsMaskOn(BxSecrets *p, const char *z, i64 n, BxSecretsPast *pPast,
    char **pzOut, i64 *pnOut, BxErr *pErr);
/* How often something was found: number i of the rules. Returns its name; NULL if there
** are no more. */
const char *bxSecretsCount(const BxSecrets *p, i64 i, i64 *pnCount);
/* Counts from 0 again. */
void bxSecretsClear(BxSecrets *p);

#endif
