/*
** digest.c: the SHA-256 of rows.
**
** What is hashed: of each column the storage class (1 integer, 2 real, 3 text, 4
** blob, 5 NULL) in one byte, then a number in eight bytes, or a length in eight
** bytes and the bytes themselves. Numbers are big-endian, a real is its IEEE 754
** bits. So two rows with the same digest have the same values of the same types.
*/
#include "core.h"
#include "digest.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BIG_ENDIAN_OF(word) __builtin_bswap32(word)
#else
#define BIG_ENDIAN_OF(word) (word)
#endif

void bxPutNumber(unsigned char a[8], sqlite3_uint64 n) {
  int i;
  for (i = 7; i >= 0; i--, n >>= 8) a[i] = (unsigned char)(n & 0xff);
}

const void *bxColumnBytes(sqlite3_stmt *pRow, int i, unsigned char a[8],
    size_t *pnByte, BxErr *pErr) {
  int eType = sqlite3_column_type(pRow, i);
  const void *pData;
  sqlite3_uint64 n;
  double r;
  *pnByte = 8;
  if (eType == SQLITE_INTEGER) {
    bxPutNumber(a, (sqlite3_uint64)sqlite3_column_int64(pRow, i));
    return a;
  }
  if (eType == SQLITE_FLOAT) {
    r = sqlite3_column_double(pRow, i);
    memcpy(&n, &r, sizeof(n));
    bxPutNumber(a, n);
    return a;
  }
  pData = sqlite3_column_blob(pRow, i);
  *pnByte = (size_t)sqlite3_column_bytes(pRow, i);
  if (pData == 0 && *pnByte > 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    *pnByte = 0;
  }
  return pData ? pData : a;
}

void bxDigestRow(sqlite3_stmt *pRow, int iFirst, int nColumn,
    unsigned char aOut[BX_DIGEST], BxErr *pErr) {
  SHA256_CTX sha;
  int i;
  assert(iFirst + nColumn <= sqlite3_data_count(pRow)); /* it is on a row */
  SHA256_Init(&sha);
  for (i = iFirst; i < iFirst + nColumn && pErr->rc == SQLITE_OK; i++) {
    unsigned char eType = (unsigned char)sqlite3_column_type(pRow, i);
    unsigned char aNumber[8], aLength[8];
    size_t nByte;
    const void *pData = bxColumnBytes(pRow, i, aNumber, &nByte, pErr);
    SHA256_Update(&sha, &eType, 1);
    if (eType == SQLITE_NULL) continue;
    if (eType == SQLITE_TEXT || eType == SQLITE_BLOB) {
      bxPutNumber(aLength, nByte);
      SHA256_Update(&sha, aLength, sizeof(aLength));
    }
    SHA256_Update(&sha, pData, nByte);
  }
  SHA256_Final(aOut, &sha);
}

/* (What is short is one block with its padding, and a leaf has some forty of them: so
** nothing is copied twice, and nothing overwritten with zeros.) */
void bxDigestTwo(const void *a, size_t na, const void *b, size_t nb,
    unsigned char aOut[BX_DIGEST]) {
  unsigned char aBlock[SHA256_CBLOCK] = {0};
  SHA256_CTX sha;
  int i;
  SHA256_Init(&sha);
  if (na > SHA256_CBLOCK - 9 || nb > SHA256_CBLOCK - 9 - na) {
    SHA256_Update(&sha, a, na);
    SHA256_Update(&sha, b, nb);
    SHA256_Final(aOut, &sha);
    return;
  }
  memcpy(aBlock, a, na);
  if (nb > 0) memcpy(aBlock + na, b, nb);
  aBlock[na + nb] = 0x80;
  aBlock[SHA256_CBLOCK - 2] = (unsigned char)((na + nb) >> 5);
  aBlock[SHA256_CBLOCK - 1] = (unsigned char)((na + nb) << 3);
  SHA256_Transform(&sha, aBlock);
  for (i = 0; i < 8; i++) sha.h[i] = BIG_ENDIAN_OF(sha.h[i]);
  memcpy(aOut, sha.h, BX_DIGEST);
}

static const char zHexDigit[] = "0123456789abcdef";

void bxHex(const unsigned char *a, int n, char *zOut) {
  int i;
  assert(n >= 0);
  for (i = 0; i < n; i++) {
    zOut[2 * i] = zHexDigit[a[i] >> 4];
    zOut[2 * i + 1] = zHexDigit[a[i] & 15];
  }
  zOut[2 * n] = 0;
}

const char bxBase64Digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void bxBase64(const unsigned char *a, i64 n, char *zOut) {
  assert(n >= 0);
  for (; n > 0; n -= 3, a += 3) {
    unsigned x = (unsigned)a[0] << 16;
    if (n > 1) x |= (unsigned)a[1] << 8;
    if (n > 2) x |= a[2];
    *zOut++ = bxBase64Digits[x >> 18];
    *zOut++ = bxBase64Digits[x >> 12 & 63];
    *zOut++ = n > 1 ? bxBase64Digits[x >> 6 & 63] : '=';
    *zOut++ = n > 2 ? bxBase64Digits[x & 63] : '=';
  }
  *zOut = 0;
}

/*------------------------------------------------------------ fast hash ----*/

/* Every step is reversible, so that a change in a single place changes the
** sum. */
sqlite3_uint64 bxHashMix(sqlite3_uint64 h, sqlite3_uint64 w) {
  h ^= w;
  h = h << 29 | h >> 35;
  return h * 0x9e3779b97f4a7c15u;
}

#define HASH_BLOCK 32 /* bytes */

/* Mixes blocks. Four sums, as each step waits for the one before. */
static void mixBlocks(sqlite3_uint64 aSum[4], const char *z, i64 nBlock) {
  sqlite3_uint64 h0 = aSum[0], h1 = aSum[1], h2 = aSum[2], h3 = aSum[3], a[4];
  for (; nBlock > 0; nBlock--, z += HASH_BLOCK) {
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

sqlite3_uint64 bxHashOf(const char *z, i64 n) {
  sqlite3_uint64 aSum[4] = {1, 2, 3, 4}, h = (sqlite3_uint64)n;
  char aLast[HASH_BLOCK] = {0};
  int i;
  assert(n >= 0);
  mixBlocks(aSum, z, n / HASH_BLOCK);
  memcpy(aLast, z + n - n % HASH_BLOCK, (size_t)(n % HASH_BLOCK));
  mixBlocks(aSum, aLast, 1);
  for (i = 0; i < 4; i++) h = bxHashMix(h, aSum[i]);
  return (h ^ h >> 32) | 1;
}
