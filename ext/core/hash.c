/*
** hash.c: a fast hash of texts.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* Every step is reversible, so that a change in a single place changes the
** sum. */
sqlite3_uint64 bxHashMix(sqlite3_uint64 h, sqlite3_uint64 w) {
  h ^= w;
  h = h << 29 | h >> 35;
  return h * 0x9e3779b97f4a7c15u;
}

void bxHashBegin(BxHash *p) {
  int i;
  for (i = 0; i < 4; i++) p->aSum[i] = (sqlite3_uint64)i + 1;
  p->n = 0;
}

/* Mixes blocks of 32 bytes. Four sums, as each step waits for the one before. */
static void mixBlocks(sqlite3_uint64 aSum[4], const char *z, i64 nBlock) {
  sqlite3_uint64 h0 = aSum[0], h1 = aSum[1], h2 = aSum[2], h3 = aSum[3], a[4];
  for (; nBlock > 0; nBlock--, z += 32) {
    memcpy(a, z, sizeof(a));
    h0 = bxHashMix(h0, a[0]);
    h1 = bxHashMix(h1, a[1]);
    h2 = bxHashMix(h2, a[2]);
    h3 = bxHashMix(h3, a[3]);
  }
  aSum[0] = h0;
  aSum[1] = h1;
  aSum[2] = h2;
  aSum[3] = h3;
}

sqlite3_uint64 bxHashUpTo(BxHash *p, const char *z, i64 n) {
  sqlite3_uint64 aSum[4], h = (sqlite3_uint64)n;
  i64 nBlock = (n - p->n) / 32;
  char aLast[32] = {0};
  int i;
  assert(p->n <= n);
  mixBlocks(p->aSum, z + p->n, nBlock);
  p->n += 32 * nBlock;
  memcpy(aSum, p->aSum, sizeof(aSum));
  memcpy(aLast, z + p->n, (size_t)(n - p->n));
  mixBlocks(aSum, aLast, 1);
  for (i = 0; i < 4; i++) h = bxHashMix(h, aSum[i]);
  return (h ^ h >> 32) | 1;
}

sqlite3_uint64 bxHashOf(const char *z, i64 n) {
  BxHash hash;
  bxHashBegin(&hash);
  return bxHashUpTo(&hash, z, n);
}
