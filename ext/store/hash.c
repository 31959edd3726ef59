/*
** hash.c: the hashes of pieces and texts, and references.
**
** A reference is X'B1627801' (whose first byte no text in UTF-8 begins with), the
** hash of the text, and the number of the text in decimal digits, which SQL reads
** with CAST(substr(reference, 37) AS INTEGER).
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static const unsigned char aMagic[4] = {0xb1, 0x62, 0x78, 0x01};

void bxPieceHash(
    const unsigned char *z, i64 n, unsigned char aHash[STORE_HASH]) {
  SHA256_CTX sha;
  SHA256_Init(&sha);
  SHA256_Update(&sha, z, (size_t)n);
  SHA256_Final(aHash, &sha);
}

void bxTextHashBegin(SHA256_CTX *p, int eType) {
  unsigned char c = (unsigned char)eType;
  SHA256_Init(p);
  SHA256_Update(p, &c, 1);
}

void bxTextHashAdd(SHA256_CTX *p, const unsigned char aHash[STORE_HASH]) {
  SHA256_Update(p, aHash, STORE_HASH);
}

void bxTextHashEnd(SHA256_CTX *p, unsigned char aHash[STORE_HASH]) {
  SHA256_Final(aHash, p);
}

void bxTextHash(
    const unsigned char *z, i64 n, int eType, unsigned char aHash[STORE_HASH]) {
  Gear gear;
  SHA256_CTX sha;
  int bEnd;
  bxGearInit(&gear);
  bxTextHashBegin(&sha, eType);
  while (n > 0) {
    i64 nPiece = bxGearCut(&gear, z, n, &bEnd);
    unsigned char aPiece[STORE_HASH];
    bxPieceHash(z, nPiece, aPiece);
    bxTextHashAdd(&sha, aPiece);
    z += nPiece;
    n -= nPiece;
  }
  bxTextHashEnd(&sha, aHash);
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
  char zDigits[21];
  int n;
  assert(p->iText > 0);
  sqlite3_snprintf(sizeof(zDigits), zDigits, "%lld", p->iText);
  n = (int)strlen(zDigits);
  memcpy(aOut, aMagic, 4);
  memcpy(aOut + 4, p->aHash, STORE_HASH);
  memcpy(aOut + 4 + STORE_HASH, zDigits, (size_t)n);
  return 4 + STORE_HASH + n;
}

int bxRefRead(Ref *pOut, const unsigned char *z, i64 n) {
  i64 i;
  if (n <= 4 + STORE_HASH || n > 4 + STORE_HASH + 18) return 0;
  if (memcmp(z, aMagic, 4) != 0 || z[4 + STORE_HASH] == '0') return 0;
  pOut->iText = 0;
  for (i = 4 + STORE_HASH; i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return 0;
    pOut->iText = pOut->iText * 10 + (z[i] - '0');
  }
  memcpy(pOut->aHash, z + 4, STORE_HASH);
  return 1;
}

int bxRefOf(Ref *pOut, sqlite3_value *pVal) {
  const unsigned char *z;
  int n;
  if (pVal == 0 || sqlite3_value_type(pVal) != SQLITE_BLOB) return 0;
  n = sqlite3_value_bytes(pVal);
  z = n > 0 && n < STORE_REF_MAX ? sqlite3_value_blob(pVal) : 0;
  return z != 0 && bxRefRead(pOut, z, n);
}
