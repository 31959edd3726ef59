/*
** digest.h: the SHA-256 of rows, by which it is found that one was changed.
*/
#ifndef BX_DIGEST_H
#define BX_DIGEST_H

#include "error.h"

/* SHA-256 is that of libcrypto, which uses the instructions that processors have
** for it. Of its two interfaces, the older one needs nothing else of libcrypto
** and no memory, so that a module with it in it stays small. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define BX_DIGEST 32 /* bytes */

/* The digest of nColumn columns, from iFirst on, of the row that pRow is on.
** digest.c says what is hashed. */
void bxDigestRow(sqlite3_stmt *pRow, int iFirst, int nColumn,
    unsigned char aOut[BX_DIGEST], BxErr *pErr);
/* Writes a number in 8 bytes, the highest first. */
void bxPutNumber(unsigned char a[8], sqlite3_uint64 n);
/* The bytes of a value, as they are hashed: a text or a blob; a number in a. */
const void *bxColumnBytes(
    sqlite3_stmt *pRow, int i, unsigned char a[8], size_t *pnByte, BxErr *pErr);
/* The SHA-256 of two parts, one after the other. */
void bxDigestTwo(const void *a, size_t na, const void *b, size_t nb,
    unsigned char aOut[BX_DIGEST]);
/* Writes n bytes as lower-case hexadecimal digits, with a terminator. */
void bxHex(const unsigned char *a, int n, char *zOut);
/* The same in base64. */
void bxBase64(const unsigned char *a, i64 n, char *zOut);
extern const char bxBase64Digits[];

/*------------------------------------------------------------ fast hash ----*/

/* Never 0. It finds repetitions and damage; it does not stop a forger. */
sqlite3_uint64 bxHashOf(const char *z, i64 n);
/* One hash made of two. */
sqlite3_uint64 bxHashMix(sqlite3_uint64 h, sqlite3_uint64 w);

#endif
