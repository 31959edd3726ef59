/*
** hash.c: cuts a text into pieces where its content says so; the hashes of pieces
** and texts, and references.
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
**
** A reference is X'B1627801' (whose first byte no text in UTF-8 begins with), the
** hash of the text, and the number of the text in decimal digits, which SQL reads
** with CAST(substr(reference, 37) AS INTEGER).
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

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

static const unsigned char aMagic[4] = {0xb1, 0x62, 0x78, 0x01};

void bxTextHashBegin(SHA256_CTX *p, int eType) {
  unsigned char c = (unsigned char)eType;
  SHA256_Init(p);
  SHA256_Update(p, &c, 1);
}

i64 bxPieceKey(const unsigned char aHash[8]) {
  uint64_t u = 0;
  int i;
  for (i = 0; i < 8; i++) u = u << 8 | aHash[i];
  return (i64)u;
}

i64 bxTextSum(const unsigned char *z, i64 n) {
  return (i64)(bxHashOf((const char *)z, n) >> 32);
}

int bxRefWrite(const Ref *p, unsigned char aOut[STORE_REF_MAX]) {
  char *zDigits = (char *)aOut + 4 + STORE_HASH;
  assert(p->iText > 0);
  memcpy(aOut, aMagic, 4);
  memcpy(aOut + 4, p->aHash, STORE_HASH);
  sqlite3_snprintf(20, zDigits, "%lld", p->iText);
  return 4 + STORE_HASH + (int)strlen(zDigits);
}

int bxRefOf(Ref *pOut, sqlite3_value *pVal) {
  const unsigned char *z;
  int i = 4 + STORE_HASH, n;
  if (pVal == 0 || sqlite3_value_type(pVal) != SQLITE_BLOB) return 0;
  n = sqlite3_value_bytes(pVal);
  if (n <= i || n > i + 18) return 0;
  z = sqlite3_value_blob(pVal);
  if (z == 0 || memcmp(z, aMagic, 4) != 0 || z[i] == '0') return 0;
  for (pOut->iText = 0; i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return 0;
    pOut->iText = pOut->iText * 10 + (z[i] - '0');
  }
  memcpy(pOut->aHash, z + 4, STORE_HASH);
  return 1;
}
