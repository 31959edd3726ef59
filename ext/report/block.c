/*
** block.c: bytes as a block of the page: deflated (RFC 1951, without a header),
** in base64. A browser inflates them with DecompressionStream('deflate-raw').
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#include <zlib.h>

#define BLOCK_LEVEL 3    /* the next ones take longer, and save little */
#define BLOCK_ROOM 12288 /* a multiple of 3 */

void bxReportBase64(sqlite3_str *pOut, const unsigned char *a, i64 n) {
  static const char zDigit[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char zRoom[1024];
  int iRoom = 0;
  i64 i;
  for (i = 0; i < n; i += 3) {
    unsigned x = (unsigned)a[i] << 16;
    if (i + 1 < n) x |= (unsigned)a[i + 1] << 8;
    if (i + 2 < n) x |= a[i + 2];
    zRoom[iRoom++] = zDigit[x >> 18];
    zRoom[iRoom++] = zDigit[x >> 12 & 63];
    zRoom[iRoom++] = i + 1 < n ? zDigit[x >> 6 & 63] : '=';
    zRoom[iRoom++] = i + 2 < n ? zDigit[x & 63] : '=';
    if (iRoom == (int)sizeof(zRoom)) {
      sqlite3_str_append(pOut, zRoom, iRoom);
      iRoom = 0;
    }
  }
  sqlite3_str_append(pOut, zRoom, iRoom);
}

void bxReportSha256(sqlite3_str *pOut, const char *z, i64 n) {
  unsigned char aHash[BX_DIGEST];
  bxDigestTwo(z, (size_t)n, "", 0, aHash);
  sqlite3_str_appendall(pOut, "sha256-");
  bxReportBase64(pOut, aHash, BX_DIGEST);
}

static void *blockAlloc(void *pArg, unsigned n, unsigned nOne) {
  (void)pArg;
  return sqlite3_malloc64((sqlite3_uint64)n * nOne);
}

static void blockFree(void *pArg, void *p) {
  (void)pArg;
  sqlite3_free(p);
}

void bxReportDeflate(sqlite3_str *pOut, const char *z, i64 n, BxErr *pErr) {
  unsigned char *aRoom = bxNew(BLOCK_ROOM, pErr);
  z_stream stream;
  int rc;
  memset(&stream, 0, sizeof(stream));
  stream.zalloc = blockAlloc;
  stream.zfree = blockFree;
  stream.next_in = (unsigned char *)(sqlite3_uint64)z;
  stream.avail_in = (unsigned)n;
  if (aRoom == 0) return;
  rc = deflateInit2(
      &stream, BLOCK_LEVEL, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  if (rc != Z_OK) bxGot(0, pErr);
  while (rc == Z_OK) {
    stream.next_out = aRoom;
    stream.avail_out = BLOCK_ROOM;
    do {
      rc = deflate(&stream, Z_FINISH);
    } while (rc == Z_OK && stream.avail_out > 0);
    bxReportBase64(pOut, aRoom, BLOCK_ROOM - (i64)stream.avail_out);
  }
  deflateEnd(&stream);
  sqlite3_free(aRoom);
}
