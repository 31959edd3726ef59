/*
** secrets_text.c: what a run of characters looks like: random, a placeholder, a UUID; and
** a text whose escapes \u00XX of JSON are the characters that they stand for.
*/
#include "secrets_text.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

int bxSecretSet(SecretSet *p, const char *z) {
  const unsigned char *a = (const unsigned char *)z;
  memset(p, 0, sizeof(*p));
  if (a == 0) return 0;
  while (*a) {
    unsigned i = *a, iLast = i;
    if (a[1] == '-' && a[2] != 0) {
      iLast = a[2];
      a += 2;
    }
    for (; i <= iLast; i++) p->a[i >> 3] |= (unsigned char)(1 << (i & 7));
    a++;
  }
  return 1;
}

int bxSecretHas(const char *z, i64 n, const char *zText, i64 nText) {
  assert(nText > 0);
  while (n >= nText) {
    const char *zAt = memchr(z, zText[0], (size_t)(n - nText + 1));
    if (zAt == 0) return 0;
    if (memcmp(zAt, zText, (size_t)nText) == 0) return 1;
    n -= zAt + 1 - z;
    z = zAt + 1;
  }
  return 0;
}

int bxSecretDigit(const char *z, i64 n) {
  while (n > 0 && !isNumeral(*z)) z++, n--;
  return n > 0;
}

int bxSecretAlpha(const char *z, i64 n) {
  while (n > 0 && !isAlpha(*z)) z++, n--;
  return n > 0;
}

/* The logarithm to the base 2, in 1/256. */
static i64 log2Of(i64 n) {
  i64 iOut = 0, x = n << 16, i;
  assert(n > 0 && n < (i64)1 << 40);
  for (; x >= 2 << 16; x >>= 1) iOut += 256;
  for (i = 128; i > 0; i >>= 1) {
    x = x * x >> 16;
    if (x >= 2 << 16) {
      iOut += i;
      x >>= 1;
    }
  }
  return iOut;
}

i64 bxSecretEntropy(const char *z, i64 n) {
  i64 anCount[256] = {0}, nSum = 0, i;
  if (n > SECRET_LONG) n = SECRET_LONG;
  if (n <= 0) return 0;
  for (i = 0; i < n; i++) anCount[(unsigned char)z[i]]++;
  for (i = 0; i < 256; i++) {
    if (anCount[i] > 0) nSum += anCount[i] * log2Of(anCount[i]);
  }
  return log2Of(n) - nSum / n;
}

int bxSecretPlaceholder(const char *z, i64 n) {
  static const char *const azWord[] = {"string", "text", "required", "null",
      "none", "true", "false", "integer", "password", "optional", "undefined",
      "object", "secret", "token", "redacted", 0};
  i64 i = 1, nBlank = 0;
  int k;
  assert(n > 0);
  if (*z == '<' || *z == '{' || *z == '%' || (*z == '$' && !isNumeral(z[1]))) {
    return 1;
  }
  if (n >= 4 && sqlite3_strnicmp(z, "your", 4) == 0) return 1;
  if (n >= 9 && memcmp(z, "[masked: ", 9) == 0) return 1;
  for (k = 0; azWord[k] != 0; k++) {
    if (n == (i64)strlen(azWord[k]) &&
        sqlite3_strnicmp(z, azWord[k], (int)n) == 0) {
      return 1;
    }
  }
  while (i < n && z[i] == z[0]) i++; /* ******** */
  if (i == n && n > 2 && !isNumeral(*z)) return 1;
  for (i = 0; i < n && i < SECRET_ARRAY; i++) nBlank += z[i] == ' ';
  if (nBlank >= 4 && memchr(z, '=', (size_t)n) == 0) return 1; /* a sentence */
  if (n > 512) n = 512;
  if (nBlank > 0 && strchr(".?!", z[n - 1]) && !bxSecretDigit(z, n)) return 1;
  return bxSecretHas(z, n, "${", 2) || bxSecretHas(z, n, "{{", 2) ||
         bxSecretHas(z, n, "$(", 2);
}

int bxSecretUuid(const char *z, i64 n) {
  i64 i;
  for (i = 0; i < n && i < 36; i++) {
    int bDash = i == 8 || i == 13 || i == 18 || i == 23;
    if (bDash ? z[i] != '-' : !isNumeral(z[i]) && !isAlpha(z[i])) return 0;
  }
  return n == 36;
}

int bxSecretEscape(const char *z, i64 n, i64 i) {
  static const char zHex[] = "0123456789abcdef";
  const char *zHigh, *zLow;
  int c;
  assert(i < n);
  if (n - i < 6 || memcmp(z + i, "\\u00", 4) != 0) return 0;
  zHigh = memchr(zHex + 2, z[i + 4], 6);
  zLow = memchr(zHex, isNumeral(z[i + 5]) ? z[i + 5] : z[i + 5] | 32, 16);
  if (zHigh == 0 || zLow == 0) return 0;
  c = (int)((zHigh - zHex) * 16 + (zLow - zHex));
  return c > ' ' && c < 127 && strchr("\"\\<>&'", c) == 0 ? c : 0;
}

char *bxSecretPlain(
    const char *z, i64 iFrom, i64 *pn, BxSecretEscapes *p, BxErr *pErr) {
  char *zOut = bxZalloc((size_t)*pn + 1, pErr);
  i64 i = iFrom, j, n = *pn, nMore = 0;
  if (zOut == 0) return 0;
  memcpy(zOut, z, (size_t)i);
  while (i < n) {
    int c = 0;
    for (j = i; j < n && z[j] == '\\';) j++;
    if (j > i) c = bxSecretEscape(z, n, j - 1);
    if (c != 0) {
      BxSecretEscape *pNew =
          bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*pNew), pErr);
      if (pNew == 0) break;
      pNew->i = i - nMore;
      zOut[pNew->i] = (char)c;
      nMore += j - i + 4;
      pNew->nMore = nMore;
      i = j + 5;
    } else {
      if (j < n) j++;
      memcpy(zOut + (i - nMore), z + i, (size_t)(j - i));
      i = j;
    }
  }
  *pn = n - nMore;
  return zOut;
}
