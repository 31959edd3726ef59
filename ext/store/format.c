/*
** format.c: cuts a text into pieces where its content says so; the hashes of pieces and
** texts; references; and how lists of pieces and recipes of texts are written.
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
** with CAST(substr(reference, 37) AS INTEGER). A short one is X'B1627802', the first
** eight bytes of the hash, and the number.
**
** In lists and recipes all numbers are varints: seven bits a byte, the lowest first, with
** the high bit set in all bytes but the last.
**
** A list: for each piece its length and, unless that is 0 (the piece was removed), the
** number of its uses, and the first two bytes of its hash: so its row of store__pieces is
** found without its bytes.
**
** A recipe: the type of the value (3 text, 4 blob), and for each range the pack as
** its distance from the pack of the range before (2d, or -2d - 1 if d is below 0),
** the first piece, and the number of pieces.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*------------------------------------------ pieces, hashes, references ----*/

#define USUAL 2048
#define EARLY ((uint64_t)0xfff << 52) /* 12 bits until the usual length */
#define LATE ((uint64_t)0x3ff << 54)  /* 10 bits after it */

/* The numbers are those of splitmix64, from 1 on. */
void bxChunkerInit(Chunker *p) {
  uint64_t u = 1;
  int i;
  for (i = 0; i < 256; i++) {
    uint64_t z = (u += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    p->a[i] = z ^ (z >> 31);
  }
}

i64 bxChunkerCut(const Chunker *p, const unsigned char *z, i64 n, int *pbEnd) {
  i64 i = STORE_PIECE_MIN;
  i64 nUsual = n < USUAL ? n : USUAL;
  i64 nMost = n < STORE_PIECE_MAX ? n : STORE_PIECE_MAX;
  uint64_t h = 0;
  assert(n > 0);
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

static const unsigned char aMagic[3] = {0xb1, 0x62, 0x78};
#define REF_FULL 1
#define REF_SHORT 2

void bxTextHashBegin(SHA256_CTX *p, int eType) {
  unsigned char c = (unsigned char)eType;
  assert(eType == SQLITE_TEXT || eType == SQLITE_BLOB);
  SHA256_Init(p);
  SHA256_Update(p, &c, 1);
}

i64 bxChunkKey(const unsigned char aHash[8]) {
  uint64_t u = 0;
  int i;
  for (i = 0; i < 8; i++) u = u << 8 | aHash[i];
  return (i64)u;
}

i64 bxTextSum(const unsigned char *z, i64 n) {
  assert(n >= 0);
  return (i64)(bxHashOf((const char *)z, n) >> 32);
}

int bxRefWrite(const Ref *p, unsigned char aOut[STORE_REF_MAX]) {
  char *zDigits = (char *)aOut + 4 + p->nHash;
  assert(p->iText > 0 && (p->nHash == STORE_HASH || p->nHash == STORE_MARK));
  memcpy(aOut, aMagic, 3);
  aOut[3] = p->nHash == STORE_HASH ? REF_FULL : REF_SHORT;
  memcpy(aOut + 4, p->aHash, (size_t)p->nHash);
  sqlite3_snprintf(20, zDigits, "%lld", p->iText);
  return 4 + p->nHash + (int)strlen(zDigits);
}

int bxRefOf(Ref *pOut, sqlite3_value *pVal) {
  const unsigned char *z;
  int i, n;
  if (pVal == 0 || sqlite3_value_type(pVal) != SQLITE_BLOB) return 0;
  n = sqlite3_value_bytes(pVal);
  if (n <= 4 + STORE_MARK || n > STORE_REF_MAX) return 0;
  z = sqlite3_value_blob(pVal);
  if (z == 0 || memcmp(z, aMagic, 3) != 0) return 0;
  if (z[3] != REF_FULL && z[3] != REF_SHORT) return 0;
  pOut->nHash = z[3] == REF_FULL ? STORE_HASH : STORE_MARK;
  i = 4 + pOut->nHash;
  if (n <= i || n > i + 18 || z[i] == '0') return 0;
  for (pOut->iText = 0; i < n; i++) {
    if (z[i] < '0' || z[i] > '9') return 0;
    pOut->iText = pOut->iText * 10 + (z[i] - '0');
  }
  memcpy(pOut->aHash, z + 4, (size_t)pOut->nHash);
  return 1;
}

/*--------------------------------------------------- lists and recipes ----*/

int bxBytesRoom(Bytes *p, i64 n, BxErr *pErr) {
  i64 nNew = p->nAlloc * 2 + 64;
  unsigned char *a;
  assert(n >= 0 && p->n <= p->nAlloc);
  if (pErr->rc != SQLITE_OK || n <= p->nAlloc) return pErr->rc == SQLITE_OK;
  if (nNew < n) nNew = n;
  a = bxCheckMem(sqlite3_realloc64(p->a, (sqlite3_uint64)nNew), pErr);
  if (a == 0) return 0;
  p->a = a;
  p->nAlloc = nNew;
  return 1;
}

void bxBytesAdd(Bytes *p, const void *z, i64 n, BxErr *pErr) {
  assert(n >= 0 && p->n >= 0);
  if (n == 0 || !bxBytesRoom(p, p->n + n, pErr)) return;
  memcpy(p->a + p->n, z, (size_t)n);
  p->n += n;
}

i64 bxStoreSearch(const void *a, i64 n, size_t nOne, i64 iKey) {
  i64 iLow = 0, iHigh = n, iFound;
  assert(n >= 0 && nOne >= sizeof(i64));
  while (iLow < iHigh) {
    i64 iMid = (iLow + iHigh) / 2;
    memcpy(&iFound, (const char *)a + (size_t)iMid * nOne, sizeof(iFound));
    if (iFound < iKey) {
      iLow = iMid + 1;
    } else {
      iHigh = iMid;
    }
  }
  return iLow;
}

/* There must be room for ten bytes. */
static void bytesVarint(Bytes *p, uint64_t u) {
  for (; u >= 0x80; u >>= 7) p->a[p->n++] = (unsigned char)(u | 0x80);
  p->a[p->n++] = (unsigned char)u;
}

/* Reads a number at *pz, and moves it on. 0 with *pz NULL after the end. */
static uint64_t readVarint(
    const unsigned char **pz, const unsigned char *zEnd) {
  const unsigned char *z = *pz;
  uint64_t u = 0;
  int nShift;
  for (nShift = 0; z != 0 && z < zEnd && nShift < 64; nShift += 7) {
    u |= (uint64_t)(*z & 0x7f) << nShift;
    if (*z++ < 0x80) {
      *pz = z;
      return u;
    }
  }
  *pz = 0;
  return 0;
}

void bxListDecode(List *p, const unsigned char *z, i64 n, BxErr *pErr) {
  const unsigned char *zEnd = z != 0 ? z + n : 0;
  assert(p->n == 0);
  while (pErr->rc == SQLITE_OK && z != 0 && z < zEnd) {
    uint64_t nByte = readVarint(&z, zEnd), nUse = 0;
    uint16_t uKey = 0;
    Piece *a;
    if (nByte != 0) nUse = readVarint(&z, zEnd);
    if (nByte != 0 && z != 0) {
      uKey = zEnd - z < 2 ? 0 : (uint16_t)(z[0] << 8 | z[1]);
      z = zEnd - z < 2 ? 0 : z + 2;
    }
    if (z == 0 || nByte > STORE_PIECE_MAX || nUse > UINT32_MAX ||
        p->n == 65536) {
      bxFail(pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedDataError: the list of pack %lld in store__packs is "
          "damaged; blackbox_check names the rows concerned",
          p->iPack);
      return;
    }
    a = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
    if (a == 0) return;
    a->nByte = (uint32_t)nByte;
    a->nUse = (uint32_t)nUse;
    a->uKey = uKey;
  }
}

void bxListEncode(const List *p, Bytes *pOut, BxErr *pErr) {
  i64 i; /* a piece has 5 + 5 + 2 bytes at most */
  if (!bxBytesRoom(pOut, pOut->n + 12 * p->n, pErr)) return;
  for (i = 0; i < p->n; i++) {
    bytesVarint(pOut, p->a[i].nByte);
    if (p->a[i].nByte == 0) continue;
    bytesVarint(pOut, p->a[i].nUse);
    pOut->a[pOut->n++] = (unsigned char)(p->a[i].uKey >> 8);
    pOut->a[pOut->n++] = (unsigned char)p->a[i].uKey;
  }
}

void bxListFree(List *p) {
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

void bxManifestFree(Manifest *p) {
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

void bxManifestDecode(Manifest *p, const unsigned char *z, i64 n, BxErr *pErr) {
  const unsigned char *zEnd = z != 0 ? z + n : 0;
  i64 iPack = 0;
  p->eType = n > 0 ? *z++ : 0;
  if (p->eType != SQLITE_TEXT && p->eType != SQLITE_BLOB) z = 0;
  while (pErr->rc == SQLITE_OK && z != 0 && z < zEnd) {
    uint64_t uMove = readVarint(&z, zEnd), uFirst = readVarint(&z, zEnd);
    uint64_t uCount = readVarint(&z, zEnd);
    i64 iMove = (i64)(uMove >> 1);
    Range *a;
    if (z == 0 || uFirst >= 65536 || uCount == 0 || uCount > 65536) {
      z = 0;
      break;
    }
    iPack = (i64)((uint64_t)iPack + (uint64_t)(uMove & 1 ? -iMove - 1 : iMove));
    a = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
    if (a == 0) return;
    a->iPack = iPack;
    a->iFirst = (i64)uFirst;
    a->nPiece = (i64)uCount;
  }
  if (z == 0) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: a recipe in store__texts is damaged");
  }
}

void bxManifestEncode(const Manifest *p, Bytes *pOut, BxErr *pErr) {
  i64 i, iPack = 0;
  assert(p->eType == SQLITE_TEXT || p->eType == SQLITE_BLOB);
  if (!bxBytesRoom(pOut, pOut->n + 1 + 30 * p->n, pErr)) return;
  pOut->a[pOut->n++] = (unsigned char)p->eType;
  for (i = 0; i < p->n; i++) {
    i64 d = p->a[i].iPack - iPack;
    uint64_t u = d < 0 ? (uint64_t)(-d - 1) << 1 | 1 : (uint64_t)d << 1;
    bytesVarint(pOut, u);
    bytesVarint(pOut, (uint64_t)p->a[i].iFirst);
    bytesVarint(pOut, (uint64_t)p->a[i].nPiece);
    iPack = p->a[i].iPack;
  }
}

void bxManifestAdd(Manifest *p, i64 iPack, i64 iPiece, BxErr *pErr) {
  Range *a = p->n > 0 ? &p->a[p->n - 1] : 0;
  assert(iPack > 0 && iPiece >= 0);
  if (a != 0 && a->iPack == iPack && a->iFirst + a->nPiece == iPiece) {
    a->nPiece++;
    return;
  }
  a = bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->iPack = iPack;
  a->iFirst = iPiece;
  a->nPiece = 1;
}
