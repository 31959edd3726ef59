/*
** hash.h: a fast hash of texts, to recognise what was seen before.
*/
#ifndef BX_HASH_H
#define BX_HASH_H

#include "base.h"

/* Never 0. It finds repetitions and damage; it does not stop a forger. */
sqlite3_uint64 bxHashOf(const char *z, i64 n);
/* One hash made of two. */
sqlite3_uint64 bxHashMix(sqlite3_uint64 h, sqlite3_uint64 w);

/* The hash of a text that grows. Begin with bxHashBegin(). */
typedef struct BxHash {
  sqlite3_uint64 aSum[4];
  i64 n; /* bytes that are in it: a multiple of 32 */
} BxHash;
void bxHashBegin(BxHash *p);
/* The hash of the first n bytes of a text, of which *p has the beginning. */
sqlite3_uint64 bxHashUpTo(BxHash *p, const char *z, i64 n);

#endif
