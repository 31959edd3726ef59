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

/* Four sums, as each step waits for the one before. */
static void mixBlock(sqlite3_uint64 aSum[4], const char z[32]) {
  sqlite3_uint64 a[4];
  memcpy(a, z, sizeof(a));
  aSum[0] = bxHashMix(aSum[0], a[0]);
  aSum[1] = bxHashMix(aSum[1], a[1]);
  aSum[2] = bxHashMix(aSum[2], a[2]);
  aSum[3] = bxHashMix(aSum[3], a[3]);
}

void bxHashBegin(BxHash *p) {
  int i;
  for (i = 0; i < 4; i++) p->aSum[i] = (sqlite3_uint64)i + 1;
  p->n = 0;
}

sqlite3_uint64 bxHashUpTo(BxHash *p, const char *z, i64 n) {
  sqlite3_uint64 aSum[4], h = (sqlite3_uint64)n;
  char aLast[32] = {0};
  int i;
  assert(p->n <= n);
  memcpy(aSum, p->aSum, sizeof(aSum));
  for (; n - p->n >= 32; p->n += 32) mixBlock(aSum, z + p->n);
  memcpy(p->aSum, aSum, sizeof(aSum));
  memcpy(aLast, z + p->n, (size_t)(n - p->n));
  mixBlock(aSum, aLast);
  for (i = 0; i < 4; i++) h = bxHashMix(h, aSum[i]);
  return (h ^ h >> 32) | 1;
}

sqlite3_uint64 bxHashOf(const char *z, i64 n) {
  BxHash hash;
  bxHashBegin(&hash);
  return bxHashUpTo(&hash, z, n);
}
