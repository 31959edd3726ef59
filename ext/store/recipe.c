/*
** recipe.c: how lists of pieces and recipes of texts are written.
**
** All numbers are varints: seven bits a byte, the lowest first, with the high bit
** set in all bytes but the last.
**
** A list: for each piece its length and, unless that is 0 (the piece was removed), the
** number of its uses.
**
** A recipe: the type of the value (3 text, 4 blob), and for each range the pack as
** its distance from the pack of the range before (2d, or -2d - 1 if d is below 0),
** the first piece, and the number of pieces.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

int bxBytesRoom(Bytes *p, i64 n, BxErr *pErr) {
  i64 nNew = p->nAlloc * 2 + 64;
  unsigned char *a;
  if (pErr->rc != SQLITE_OK || n <= p->nAlloc) return pErr->rc == SQLITE_OK;
  if (nNew < n) nNew = n;
  a = bxGot(sqlite3_realloc64(p->a, (sqlite3_uint64)nNew), pErr);
  if (a == 0) return 0;
  p->a = a;
  p->nAlloc = nNew;
  return 1;
}

void bxBytesAdd(Bytes *p, const void *z, i64 n, BxErr *pErr) {
  if (n == 0 || !bxBytesRoom(p, p->n + n, pErr)) return;
  memcpy(p->a + p->n, z, (size_t)n);
  p->n += n;
}

i64 bxStoreSearch(const void *a, i64 n, size_t nOne, i64 iKey) {
  i64 iLow = 0, iHigh = n, iFound;
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

static void bytesVarint(Bytes *p, uint64_t u, BxErr *pErr) {
  unsigned char a[10];
  int n = 0;
  for (; u >= 0x80; u >>= 7) a[n++] = (unsigned char)(u | 0x80);
  a[n++] = (unsigned char)u;
  bxBytesAdd(p, a, n, pErr);
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
  while (pErr->rc == SQLITE_OK && z != 0 && z < zEnd) {
    uint64_t nByte = readVarint(&z, zEnd), nUse = 0;
    Piece *a;
    if (nByte != 0) nUse = readVarint(&z, zEnd);
    if (z == 0 || nByte > STORE_PIECE_MAX || nUse > UINT32_MAX ||
        p->n == 65536) {
      bxFail(pErr, SQLITE_CORRUPT_VTAB,
          "CorruptedDataError: the list of pack %lld in store__uses is "
          "damaged; blackbox_check names the rows concerned",
          p->iPack);
      return;
    }
    a = bxAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
    if (a == 0) return;
    a->nByte = (uint32_t)nByte;
    a->nUse = (uint32_t)nUse;
  }
}

void bxListEncode(const List *p, Bytes *pOut, BxErr *pErr) {
  i64 i;
  for (i = 0; i < p->n; i++) {
    bytesVarint(pOut, p->a[i].nByte, pErr);
    if (p->a[i].nByte != 0) bytesVarint(pOut, p->a[i].nUse, pErr);
  }
}

void bxListFree(List *p) {
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

void bxRecipeFree(Recipe *p) {
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

void bxRecipeDecode(Recipe *p, const unsigned char *z, i64 n, BxErr *pErr) {
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
    a = bxAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
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

void bxRecipeEncode(const Recipe *p, Bytes *pOut, BxErr *pErr) {
  unsigned char c = (unsigned char)p->eType;
  i64 i, iPack = 0;
  bxBytesAdd(pOut, &c, 1, pErr);
  for (i = 0; i < p->n; i++) {
    i64 d = p->a[i].iPack - iPack;
    uint64_t u = d < 0 ? (uint64_t)(-d - 1) << 1 | 1 : (uint64_t)d << 1;
    bytesVarint(pOut, u, pErr);
    bytesVarint(pOut, (uint64_t)p->a[i].iFirst, pErr);
    bytesVarint(pOut, (uint64_t)p->a[i].nPiece, pErr);
    iPack = p->a[i].iPack;
  }
}

void bxRecipeAdd(Recipe *p, i64 iPack, i64 iPiece, BxErr *pErr) {
  Range *a = p->n > 0 ? &p->a[p->n - 1] : 0;
  if (a != 0 && a->iPack == iPack && a->iFirst + a->nPiece == iPiece) {
    a->nPiece++;
    return;
  }
  a = bxAdd(&p->a, &p->n, &p->nAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->iPack = iPack;
  a->iFirst = iPiece;
  a->nPiece = 1;
}
