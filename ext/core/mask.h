/*
** mask.h: what is written of texts with secrets, as payload.secrets and rollout.secrets say.
*/
#ifndef BX_MASK_H
#define BX_MASK_H

#include "secrets.h"

#define MASK_PAST 32     /* requests that are kept, of that many agents */
#define MASK_LONG 250000 /* a longer one is not */
typedef struct Masking {
  BxSecrets rules; /* none: each body is dropped */
  BxStmts *pFrom;  /* the schema that they are of; NULL: they must be read */
  int bKeep;       /* they were read outside BEGIN */
  int nChange;     /* total changes, */
  i64 iData;       /* and the version of the data, after they were used */
  BxSecretsPast
      *aPast; /* MASK_PAST: the last request of an agent; NULL before one */
  sqlite3_uint64 ahPast[MASK_PAST]; /* of whom; 0: of nobody */
  int iPast;                        /* the next one that makes room */
} Masking;
void bxMaskFree(Masking *p);
/* Puts what is written in the place of n values, at most 3, of pOn's schema; the first
** is a request. bSame: nothing has changed since the last use. That exists until
** bxMaskEnd() gets what is returned, which may be NULL. */
sqlite3_stmt *bxMask(Masking *p, BxStmts *pOn, int bDrop, int bSame,
    const char *zAgent, sqlite3_value **apVal, int n, BxErr *pErr);
void bxMaskEnd(BxStmts *pOn, sqlite3_stmt *pStmt);
/* A setting of p's schema. */
typedef enum { MASK_KEEP, MASK_MASK, MASK_DROP } MaskMode;
MaskMode bxMaskMode(BxStmts *p, const char *zSetting, BxErr *pErr);
/* By a setting: what stands in the place of n bytes, which a NUL follows, of *pnOut
** bytes, to sqlite3_free(); NULL: nothing was found. Without rules it is an error. */
char *bxMaskText(Masking *p, BxStmts *pOn, const char *zSetting, const char *z,
    i64 n, i64 *pnOut, BxErr *pErr);
/* After the write: what it has changed are no rules. */
void bxMaskLooked(Masking *p, BxStmts *pOn);

#endif
