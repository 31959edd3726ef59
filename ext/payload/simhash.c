/*
** simhash.c: how AgentGazer compares texts: payload_simhash(), payload_hamming(),
** payload_similar() and payload_normalize().
**
** A SimHash is 64 bits. The text is made lower-case, its white space is
** collapsed, and each three UTF-16 units in a row give an FNV-1a hash. A bit is
** set if more of these set it than not. Texts that differ in little have hashes
** that differ in few bits.
**
** Letters outside of Latin (up to U+017F), Greek and Cyrillic keep their case.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*---------------------------------------------------------- characters ----*/

/* The character at *pz, which moves behind it. Bytes that are not UTF-8 are
** U+FFFD, each. */
static int nextChar(const unsigned char **pz, const unsigned char *zEnd) {
  static const int aLow[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *z = *pz;
  int c = *z++, n = 1, i;
  *pz = z;
  if (c < 0x80) return c;
  if (c >= 0xc0 && c < 0xf8) n = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
  if (n == 1 || zEnd - z < n - 1) return 0xfffd;
  c &= 0xff >> (n + 1);
  for (i = 1; i < n; i++, z++) {
    if ((*z & 0xc0) != 0x80) return 0xfffd;
    c = c << 6 | (*z & 0x3f);
  }
  if (c < aLow[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0xfffd;
  *pz = z;
  return c;
}

static int lowerLatin(int c) {
  /* in these two ranges the capital letters are odd */
  int bOdd = (c >= 0x139 && c <= 0x148) || (c >= 0x179 && c <= 0x17e);
  if (c <= 0xde) return c >= 0xc0 && c != 0xd7 ? c + 0x20 : c;
  if (c < 0x100 || c > 0x17f || c == 0x130 || c == 0x138 || c == 0x149)
    return c;
  if (c == 0x178) return 0xff;
  if (c == 0x17f) return c;
  return (c & 1) == bOdd ? c + 1 : c;
}

static int lowerChar(int c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 0x20 : c;
  if (c <= 0x17f) return lowerLatin(c);
  if (c >= 0x391 && c <= 0x3ab && c != 0x3a2) return c + 0x20;
  if (c == 0x386) return 0x3ac;
  if (c >= 0x388 && c <= 0x38a) return c + 0x25;
  if (c == 0x38c || c == 0x38e || c == 0x38f)
    return c == 0x38c ? 0x3cc : c + 0x3f;
  if (c >= 0x410 && c <= 0x42f) return c + 0x20;
  if (c >= 0x400 && c <= 0x40f) return c + 0x50;
  return c;
}

/* As in JavaScript. */
static int isWhite(int c) {
  return c == ' ' || (c >= 9 && c <= 13) || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000 || c == 0xfeff;
}

/* A text in lower case, with one space between its words. */
typedef struct Words {
  const unsigned char *z, *zEnd;
  int bBegun;
  int aNext[2]; /* characters to come */
  int nNext;
} Words;

/* The next character, -1 at the end. */
static int nextWordChar(Words *p) {
  int c, bSpace = 0;
  while (p->nNext == 0 && p->z < p->zEnd) {
    c = nextChar(&p->z, p->zEnd);
    if (isWhite(c)) {
      bSpace = p->bBegun;
      continue;
    }
    p->bBegun = 1;
    p->nNext = c == 0x130 ? 2 : 1; /* this letter becomes two characters */
    p->aNext[0] = c == 0x130 ? 'i' : lowerChar(c);
    p->aNext[1] = 0x307;
    if (bSpace) return ' ';
  }
  if (p->nNext == 0) return -1;
  p->nNext--;
  c = p->aNext[0];
  p->aNext[0] = p->aNext[1];
  return c;
}

/*------------------------------------------------------------- SimHash ----*/

#define FNV_BASIS 0xcbf29ce484222325u
#define FNV_PRIME 0x100000001b3u

typedef struct SimHash {
  int aUnit[3]; /* the last units */
  i64 nUnit;
  i64 nGram;
  i64 aCount[64]; /* grams that set the bit */
} SimHash;

static void addGram(SimHash *p, int n) {
  sqlite3_uint64 h = FNV_BASIS;
  int i;
  for (i = 3 - n; i < 3; i++) {
    h = (h ^ (sqlite3_uint64)p->aUnit[i]) * FNV_PRIME;
  }
  for (i = 0; i < 64; i++) p->aCount[i] += (i64)(h >> i & 1);
  p->nGram++;
}

static void addUnit(SimHash *p, int c) {
  p->aUnit[0] = p->aUnit[1];
  p->aUnit[1] = p->aUnit[2];
  p->aUnit[2] = c;
  if (++p->nUnit >= 3) addGram(p, 3);
}

i64 bxSimHash(const char *z, i64 n) {
  Words words = {
      (const unsigned char *)z, (const unsigned char *)z + n, 0, {0, 0}, 0};
  SimHash hash;
  sqlite3_uint64 h = 0;
  i64 iSigned;
  int c, i;
  memset(&hash, 0, sizeof(hash));
  while ((c = nextWordChar(&words)) >= 0) {
    if (c < 0x10000) {
      addUnit(&hash, c);
    } else {
      addUnit(&hash, 0xd7c0 + (c >> 10));
      addUnit(&hash, 0xdc00 + (c & 0x3ff));
    }
  }
  if (hash.nUnit < 3) addGram(&hash, (int)hash.nUnit);
  for (i = 0; i < 64; i++) {
    if (hash.aCount[i] * 2 > hash.nGram) h |= (sqlite3_uint64)1 << i;
  }
  memcpy(&iSigned, &h, sizeof(h));
  return iSigned;
}

int bxHamming(i64 iLeft, i64 iRight) {
  sqlite3_uint64 h = (sqlite3_uint64)(iLeft ^ iRight);
  int n = 0;
  for (; h != 0; h &= h - 1) n++;
  return n;
}

/*-------------------------------------------------------------- masking ----*/

/* Each matcher returns the length of what it finds at z, or 0. Behind zEnd is a
** terminator. zBegin is where the text begins. */
typedef int Matcher(const char *zBegin, const char *z, const char *zEnd);

static int isDigitOf(char c) {
  return c >= '0' && c <= '9';
}

static int isHexOf(char c) {
  return isDigitOf(c) || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

static int isLetterOf(char c) {
  return (c | 32) >= 'a' && (c | 32) <= 'z';
}

static int isWordOf(char c) {
  return isDigitOf(c) || isLetterOf(c) || c == '_';
}

/* Whether a word begins or ends at z. */
static int isEdge(const char *zBegin, const char *z) {
  return (z > zBegin && isWordOf(z[-1])) != isWordOf(*z);
}

/* Digits and signs as in zForm: h a hexadecimal digit, d a decimal one. */
static int hasForm(const char *z, const char *zForm) {
  int n = 0;
  for (; zForm[n] != 0; n++) {
    if (zForm[n] == 'h'   ? !isHexOf(z[n])
        : zForm[n] == 'd' ? !isDigitOf(z[n])
                          : z[n] != zForm[n]) {
      return 0;
    }
  }
  return n;
}

static int matchUuid(const char *zBegin, const char *z, const char *zEnd) {
  int n = hasForm(z, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh");
  (void)zEnd;
  return n > 0 && isEdge(zBegin, z) && isEdge(zBegin, z + n) ? n : 0;
}

/* The length of a zone: Z, +01:00, -0100. */
static int zoneLength(const char *z) {
  if (*z == 'Z') return 1;
  if (*z != '+' && *z != '-') return 0;
  if (hasForm(z + 1, "dd:dd")) return 6;
  return hasForm(z + 1, "dddd") ? 5 : 0;
}

static int matchTime(const char *zBegin, const char *z, const char *zEnd) {
  int n = hasForm(z, "dddd-dd-dd"), nTime;
  (void)zEnd;
  if (n == 0 || !isEdge(zBegin, z)) return 0;
  if ((z[n] != 'T' && z[n] != ' ') || !hasForm(z + n + 1, "dd:dd")) return n;
  n += 6;
  nTime = hasForm(z + n, ":dd");
  n += nTime;
  if (nTime > 0 && z[n] == '.' && isDigitOf(z[n + 1])) {
    n++;
    while (isDigitOf(z[n])) n++;
  }
  return n + zoneLength(z + n);
}

static int matchHex(const char *zBegin, const char *z, const char *zEnd) {
  int n = 0;
  if (!isEdge(zBegin, z)) return 0;
  while (z + n < zEnd && isHexOf(z[n])) n++;
  return n >= 16 && isEdge(zBegin, z + n) ? n : 0;
}

static int matchId(const char *zBegin, const char *z, const char *zEnd) {
  static const char *const azWord[] = {"id", "user", "order", "session",
      "request", "message", "msg", "chat", "thread"};
  int n = 0, i, nWord;
  if (!isEdge(zBegin, z)) return 0;
  while (z + n < zEnd && (isLetterOf(z[n]) || isDigitOf(z[n]))) n++;
  if (n == 0 || isWordOf(z[n])) return 0;
  for (i = 0; i < 9; i++) {
    nWord = (int)strlen(azWord[i]);
    if (n > nWord && sqlite3_strnicmp(azWord[i], z, nWord) == 0) return n;
  }
  return 0;
}

static int matchNumber(const char *zBegin, const char *z, const char *zEnd) {
  int n = 0;
  if (!isEdge(zBegin, z)) return 0;
  while (z + n < zEnd && isDigitOf(z[n])) n++;
  if (n == 0 || isWordOf(z[n])) return 0;
  if (z[n] == '.' && isDigitOf(z[n + 1])) {
    int nMore = 2;
    while (z + n + nMore < zEnd && isDigitOf(z[n + nMore])) nMore++;
    if (!isWordOf(z[n + nMore])) n += nMore;
  }
  return n;
}

/* Replaces everything that a matcher finds. Frees z. */
static char *replaceAll(
    char *z, i64 *pn, Matcher *xMatch, const char *zBy, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  const char *zEnd = z + *pn, *zAt = z, *zFrom = z;
  int rc;
  while (zAt < zEnd) {
    int n = isWordOf(*zAt) ? xMatch(z, zAt, zEnd) : 0;
    if (n == 0) {
      zAt++;
      continue;
    }
    sqlite3_str_append(pOut, zFrom, (int)(zAt - zFrom));
    sqlite3_str_appendall(pOut, zBy);
    zFrom = zAt += n;
  }
  sqlite3_str_append(pOut, zFrom, (int)(zEnd - zFrom));
  rc = sqlite3_str_errcode(pOut);
  *pn = sqlite3_str_length(pOut);
  sqlite3_free(z);
  z = sqlite3_str_finish(pOut);
  if (rc != SQLITE_OK) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return z == 0 ? bxNew(1, pErr) : z;
}

/* Lower case, white space collapsed. */
static char *plainWords(const char *z, i64 *pn, BxErr *pErr) {
  Words words = {
      (const unsigned char *)z, (const unsigned char *)z + *pn, 0, {0, 0}, 0};
  sqlite3_str *pOut = sqlite3_str_new(0);
  int c, rc;
  char *zOut;
  while ((c = nextWordChar(&words)) >= 0) bxAppendUtf8(pOut, c);
  rc = sqlite3_str_errcode(pOut);
  *pn = sqlite3_str_length(pOut);
  zOut = sqlite3_str_finish(pOut);
  if (rc != SQLITE_OK) bxFail(pErr, SQLITE_NOMEM, "out of memory");
  return zOut == 0 ? bxNew(1, pErr) : zOut;
}

char *bxNormalize(const char *z, i64 *pn, BxErr *pErr) {
  static const struct {
    Matcher *xMatch;
    const char *zBy;
  } aStep[] = {{matchUuid, "<id>"}, {matchTime, "<ts>"}, {matchHex, "<id>"},
      {matchId, "<id>"}, {matchNumber, "<num>"}};
  char *zOut = bxNew((size_t)*pn + 1, pErr), *zPlain;
  int i;
  if (zOut == 0) return 0;
  memcpy(zOut, z, (size_t)*pn);
  for (i = 0; i < 5 && zOut != 0; i++) {
    zOut = replaceAll(zOut, pn, aStep[i].xMatch, aStep[i].zBy, pErr);
  }
  zPlain = zOut != 0 ? plainWords(zOut, pn, pErr) : 0;
  sqlite3_free(zOut);
  return zPlain;
}

/*----------------------------------------------------------- functions ----*/

/* A text argument; NULL gives NULL, anything else is refused. */
static const char *textArg(BxCall *p, i64 *pn) {
  sqlite3_value *pVal = bxArg(p, 0);
  const char *z = 0;
  if (pVal == 0) return 0;
  if (sqlite3_value_type(pVal) != SQLITE_TEXT) {
    bxRefuse(
        &p->err, "ValidationError: the argument must be text, got %s", pVal);
    return 0;
  }
  z = (const char *)sqlite3_value_text(pVal);
  *pn = sqlite3_value_bytes(pVal);
  if (z == 0) bxFail(&p->err, SQLITE_NOMEM, "out of memory");
  return z;
}

void bxPayloadSimHash(BxCall *p) {
  i64 n;
  const char *z = textArg(p, &n);
  if (z != 0) bxReturnInt(p, bxSimHash(z, n));
}

void bxPayloadNormalize(BxCall *p) {
  i64 n;
  const char *z = textArg(p, &n);
  char *zOut = z != 0 ? bxNormalize(z, &n, &p->err) : 0;
  if (p->pCtx == 0 || p->err.rc != SQLITE_OK || zOut == 0) {
    sqlite3_free(zOut);
  } else {
    sqlite3_result_text64(
        p->pCtx, zOut, (sqlite3_uint64)n, sqlite3_free, SQLITE_UTF8);
  }
}

#define I64_MIN (-9223372036854775807LL - 1)
#define I64_MAX 9223372036854775807LL

/* The distance of two hashes, or -1 if one of them is NULL. */
static int distanceOf(BxCall *p) {
  i64 iLeft, iRight;
  if (bxArg(p, 0) == 0 || bxArg(p, 1) == 0) return -1;
  iLeft = bxInt(p->aArg[0], "hash", I64_MIN, I64_MAX, &p->err);
  iRight = bxInt(p->aArg[1], "hash", I64_MIN, I64_MAX, &p->err);
  return bxHamming(iLeft, iRight);
}

void bxPayloadHamming(BxCall *p) {
  int n = distanceOf(p);
  if (n >= 0 && p->err.rc == SQLITE_OK) bxReturnInt(p, n);
}

#define SIMILAR_BITS 3

void bxPayloadSimilar(BxCall *p) {
  int n = distanceOf(p);
  i64 nMost = SIMILAR_BITS;
  if (bxArg(p, 2) != 0) nMost = bxInt(p->aArg[2], "distance", 0, 64, &p->err);
  if (n >= 0 && p->err.rc == SQLITE_OK) bxReturnInt(p, n <= nMost);
}
