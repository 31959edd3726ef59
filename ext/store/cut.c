/*
** cut.c: cuts a text into pieces where its content says so.
**
** A rolling hash, the gear hash of FastCDC, is computed over the bytes of a piece.
** The piece ends where the hash has enough zero bits. The place depends on the last
** 64 bytes before it only, so that after an insertion the same places are found
** again. Up to the usual length more bits must be zero, and after it fewer, which
** makes the lengths more even.
**
** A piece has at least STORE_PIECE_MIN bytes, except at the end of a text, and at
** most STORE_PIECE_MAX. The numbers here must not change: texts that were packed
** before would share nothing with later ones, and hashes of texts are made of the
** hashes of their pieces.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#define USUAL 2048
#define EARLY ((uint64_t)0xfff << 52) /* 12 bits until the usual length */
#define LATE ((uint64_t)0x3ff << 54)  /* 10 bits after it */

/* The numbers are those of splitmix64, from 1 on. */
void bxGearInit(Gear *p) {
  uint64_t u = 1;
  int i;
  for (i = 0; i < 256; i++) {
    uint64_t z = (u += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    p->a[i] = z ^ (z >> 31);
  }
}

i64 bxGearCut(const Gear *p, const unsigned char *z, i64 n, int *pbEnd) {
  i64 i = STORE_PIECE_MIN;
  i64 nUsual = n < USUAL ? n : USUAL;
  i64 nMost = n < STORE_PIECE_MAX ? n : STORE_PIECE_MAX;
  uint64_t h = 0;
  *pbEnd = 0;
  for (; i < nUsual; i++) {
    h = (h << 1) + p->a[z[i]];
    if ((h & EARLY) == 0) return i + 1;
  }
  for (; i < nMost; i++) {
    h = (h << 1) + p->a[z[i]];
    if ((h & LATE) == 0) return i + 1;
  }
  *pbEnd = n < STORE_PIECE_MAX;
  return nMost;
}
