/*
** secrets.h: keys, passwords and addresses in texts, found by the rows of
** blackbox_secrets.
*/
#ifndef BX_SECRETS_H
#define BX_SECRETS_H

#include "statement.h"

typedef struct BxSecret BxSecret;

typedef struct BxSecrets {
  BxSecret *a; /* the rules */
  i64 n, nAlloc;
  int nFirst;            /* characters of an anchor by which it is found */
  unsigned char *aShift; /* for two bytes, how far no anchor begins */
  int aHead[2048];       /* the rules whose anchors begin alike; or -1 */
} BxSecrets;

/* Adds the rules of a profile. */
void bxSecretsRead(
    BxSecrets *p, BxStmts *pHome, const char *zProfile, BxErr *pErr);
void bxSecretsFree(BxSecrets *p);
/* Masks n bytes, which a NUL follows. Returns 0 if nothing is found; otherwise the
** text, to sqlite3_free(), is in *pzOut, and its length in *pnOut. bCount: what was
** found is counted. */
int bxSecretsMask(BxSecrets *p, const char *z, i64 n, int bCount, char **pzOut,
    i64 *pnOut, BxErr *pErr);
/* How often something was found: number i of the rules. Returns its name; NULL if there
** are no more. */
const char *bxSecretsCount(const BxSecrets *p, i64 i, i64 *pnCount);
/* Counts from 0 again. */
void bxSecretsClear(BxSecrets *p);

#endif
