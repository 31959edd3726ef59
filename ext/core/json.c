/*
** json.c: a fast test whether a text is JSON.
**
** SQLite's json_valid() decides. But it copies the text and builds a tree of
** its values, and every payload of a history is checked when it is read. So
** bxIsStrictJson() is asked first. It returns 1 only for text that json_valid()
** of every SQLite since 3.38 accepts: RFC 8259, not nested deeply. If it
** returns 0, json_valid() must be asked. bxIsJsonCached() recognises texts that
** a connection reads again by their hashes. bxJsonCut() copies a text without
** some of its members, and checks it in the same way.
*/
#include "core.h"
#include "digest.h"
SQLITE_EXTENSION_INIT3

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The maximum number of levels in one value. The limit of SQLite is 1,000 since
** 3.45, and was 2,000 before. */
#define MAX_DEPTH 960

/* 1 for characters that need no escape: not '"', '\' and below 0x20. */
#define ONES 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
static const unsigned char aPlain[256] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0,                                        /* 0x00 */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 0x10 */
    1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, /* 0x20: '"' */
    ONES,                                           /* 0x30 */
    ONES,                                           /* 0x40 */
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, /* 0x50: '\' */
    ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES, ONES};

/* The bytes of an escape, by the character after its backslash; 0 for none. */
static const unsigned char aEscape[256] = {['"'] = 2,
    ['\\'] = 2,
    ['/'] = 2,
    ['b'] = 2,
    ['f'] = 2,
    ['n'] = 2,
    ['r'] = 2,
    ['t'] = 2,
    ['u'] = 6};

static int isDigit(const char *z) {
  return *z >= '0' && *z <= '9';
}

const char *bxJsonSkipSpace(const char *z) {
  while (*z == ' ' || *z == '\n' || *z == '\t' || *z == '\r') z++;
  return z;
}

/* Each of these functions returns the position after the token that it is named
** after, or NULL if z is not at such a token. The terminator of the text stops
** all of them. */

/* Whether four hexadecimal digits are at z. */
static int isHex(const char *z) {
  int i = 0;
  while (
      i < 4 && (isDigit(z + i) || ((z[i] | 32) >= 'a' && (z[i] | 32) <= 'f')))
    i++;
  return i == 4;
}

/* The next byte that needs attention in a string: a quote, a backslash, or a
** control character. Most escapes are passed, too. */
static const char *skipPlain(const char *z, const char *zEnd) {
  const unsigned char *zByte;
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
  const __m128i control = _mm_set1_epi8(0x1f);
  for (; zEnd - z >= 16; z += 16) {
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)z), odd;
    unsigned m;
    odd = _mm_or_si128(_mm_cmpeq_epi8(x, quote), _mm_cmpeq_epi8(x, slash));
    odd = _mm_or_si128(odd, _mm_cmpeq_epi8(_mm_min_epu8(x, control), x));
    for (m = (unsigned)_mm_movemask_epi8(odd); m != 0;) {
      int i = __builtin_ctz(m), n;
      if (z[i] != '\\' || i == 15) return z + i;
      n = aEscape[(unsigned char)z[i + 1]];
      if (n != 2 && (n != 6 || i > 10 || !isHex(z + i + 2))) return z + i;
      m &= ~(3u << i);
    }
  }
#else
  (void)zEnd;
#endif
  zByte = (const unsigned char *)z;
  while (aPlain[zByte[0]] && aPlain[zByte[1]] && aPlain[zByte[2]] &&
         aPlain[zByte[3]]) {
    zByte += 4;
  }
  while (aPlain[*zByte]) zByte++;
  return (const char *)zByte;
}

const char *bxJsonSkipString(const char *z, const char *zEnd) {
  int n;
  if (*z != '"') return 0;
  z++;
  for (;;) {
    /* The only call of skipPlain(): it becomes a part of the loop. */
    z = skipPlain(z, zEnd);
    if (*z == '"') return z + 1;
    if (*z != '\\') return 0;
    n = aEscape[(unsigned char)z[1]];
    if (n == 0 || (n == 6 && !isHex(z + 2))) return 0;
    z += n;
  }
}

static const char *skipDigits(const char *z) {
  if (!isDigit(z)) return 0;
  while (isDigit(z)) z++;
  return z;
}

static const char *skipNumber(const char *z) {
  if (*z == '-') z++;
  z = *z == '0' ? z + 1 : skipDigits(z);
  if (z != 0 && *z == '.') z = skipDigits(z + 1);
  if (z != 0 && (*z == 'e' || *z == 'E')) {
    z++;
    if (*z == '+' || *z == '-') z++;
    z = skipDigits(z);
  }
  return z;
}

const char *bxJsonSkipScalar(const char *z, const char *zEnd) {
  switch (*z) {
    case '"': return bxJsonSkipString(z, zEnd);
    case 't': return strncmp(z, "true", 4) == 0 ? z + 4 : 0;
    case 'f': return strncmp(z, "false", 5) == 0 ? z + 5 : 0;
    case 'n': return strncmp(z, "null", 4) == 0 ? z + 4 : 0;
    default: return skipNumber(z);
  }
}

/* A key and its colon. */
static const char *skipKey(const char *z, const char *zEnd) {
  z = bxJsonSkipString(bxJsonSkipSpace(z), zEnd);
  if (z != 0) z = bxJsonSkipSpace(z);
  return z != 0 && *z == ':' ? bxJsonSkipSpace(z + 1) : 0;
}

/* A value inside of nDepth others. */
static const char *skipValue(const char *z, const char *zEnd, int nDepth) {
  const char cEnd = *z == '{' ? '}' : ']';
  assert(nDepth >= 0 && nDepth <= MAX_DEPTH);
  if (*z != '{' && *z != '[') return bxJsonSkipScalar(z, zEnd);
  z = bxJsonSkipSpace(z + 1);
  if (*z == cEnd) return z + 1;
  if (nDepth == MAX_DEPTH) return 0;
  for (;;) {
    if (cEnd == '}') z = skipKey(z, zEnd);
    if (z != 0) z = skipValue(z, zEnd, nDepth + 1);
    if (z == 0) return 0;
    z = bxJsonSkipSpace(z);
    if (*z != ',') return *z == cEnd ? z + 1 : 0;
    z = bxJsonSkipSpace(z + 1);
  }
}

const char *bxJsonSkipValue(const char *z, const char *zEnd) {
  return skipValue(z, zEnd, 0);
}

int bxIsStrictJson(const char *z, i64 n) {
  const char *zEnd = z + n;
  assert(n >= 0 && *zEnd == 0);
  z = bxJsonSkipValue(bxJsonSkipSpace(z), zEnd);
  assert(z == 0 || z <= zEnd);
  return z != 0 && bxJsonSkipSpace(z) == zEnd;
}

static char *putEscape(char *zOut, unsigned char c) {
  static const char zShort[] = "\b\f\n\r\t\"\\", zLetter[] = "bfnrt\"\\";
  const char *z = c != 0 ? strchr(zShort, c) : 0;
  assert(aEscape['u'] == BX_JSON_ROOM);
  assert(!aPlain[c]);
  *zOut++ = '\\';
  if (z != 0) {
    *zOut++ = zLetter[z - zShort];
    return zOut;
  }
  zOut[0] = 'u';
  zOut[1] = zOut[2] = '0';
  zOut[3] = "0123456789abcdef"[c >> 4];
  zOut[4] = "0123456789abcdef"[c & 15];
  return zOut + 5;
}

char *bxJsonWrite(char *zOut, const char *z, int n) {
  const char *zEnd = z + n;
  assert(n >= 0);
  *zOut++ = '"';
  for (; z < zEnd; z++) {
    unsigned char c = (unsigned char)*z;
    if (aPlain[c]) {
      *zOut++ = *z;
    } else {
      zOut = putEscape(zOut, c);
    }
  }
  *zOut++ = '"';
  return zOut;
}

void bxJsonAppend(sqlite3_str *pOut, const char *z, int n) {
  const char *zEnd = z != 0 ? z + n : 0;
  assert(n >= 0);
  sqlite3_str_appendchar(pOut, 1, '"');
  while (z < zEnd) {
    char aOut[BX_JSON_ROOM];
    const char *zPlain = z;
    while (z < zEnd && aPlain[(unsigned char)*z]) z++;
    sqlite3_str_append(pOut, zPlain, (int)(z - zPlain));
    if (z == zEnd) break;
    sqlite3_str_append(
        pOut, aOut, (int)(putEscape(aOut, (unsigned char)*z++) - aOut));
  }
  sqlite3_str_appendchar(pOut, 1, '"');
}

int bxIsJson(Bx *bx, const char *z, i64 n, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  int bJson;
  assert(n >= 0 || z == 0);
  if (pErr->rc != SQLITE_OK || z == 0) return 0;
  if (bxIsStrictJson(z, n)) return 1;
  if (memchr(z, 0, (size_t)n) != 0) return 0;
  pStmt = bxPrepareSql(bx->db, "SELECT " BX_JSON_VALID("?1"), pErr);
  bxBind(pStmt, pErr, "b", z, n);
  bJson = bxStep(pStmt, pErr) && sqlite3_column_int(pStmt, 0);
  sqlite3_finalize(pStmt);
  return bJson;
}

/*---------------------------------------------------------------- seen ----*/

/* The first of the four places that the first bits of a hash name. */
static sqlite3_uint64 *placesOfHash(Bx *bx, sqlite3_uint64 h) {
  return &bx->aJson[(h >> 58) * 4];
}

static int isHashSeen(Bx *bx, sqlite3_uint64 h) {
  const sqlite3_uint64 *a = placesOfHash(bx, h);
  return a[0] == h || a[1] == h || a[2] == h || a[3] == h;
}

static void keepHash(Bx *bx, sqlite3_uint64 h) {
  sqlite3_uint64 *a = placesOfHash(bx, h);
  if (isHashSeen(bx, h)) return;
  memmove(&a[1], a, 3 * sizeof(*a)); /* the oldest goes */
  a[0] = h;
}

void bxJsonRemember(Bx *bx, const char *z, i64 n) {
  keepHash(bx, bxHashOf(z, n));
}

int bxJsonIsKnown(Bx *bx, const char *z, i64 n) {
  return isHashSeen(bx, bxHashOf(z, n));
}

int bxIsJsonCached(Bx *bx, const char *z, i64 n, BxErr *pErr) {
  sqlite3_uint64 h = bxHashOf(z, n);
  if (isHashSeen(bx, h)) return 1;
  if (!bxIsJson(bx, z, n, pErr)) return 0;
  keepHash(bx, h);
  return 1;
}

/*------------------------------------------------------------- cutting ----*/

typedef struct Cut {
  sqlite3_str *pOut;
  const char *zEnd; /* of the text */
  int bOdd;         /* see BX_CUT_ODD */
  int bStrange;     /* see BX_CUT_STRANGE */
} Cut;

static const char *cutValue(Cut *, const char *, const BxCut *);

static void cutAppend(Cut *p, const char *z, const char *zEnd) {
  assert(z <= zEnd);
  sqlite3_str_append(p->pOut, z, (int)(zEnd - z));
}

/* The entry with the key from z to zEnd, quotes included, or the last entry of
** the list. *pmSeen has a bit for each key that was found before. */
static const BxCut *findCut(Cut *p, const BxCut *aCut, const char *z,
    const char *zEnd, sqlite3_uint64 *pmSeen) {
  size_t n = (size_t)(zEnd - z) - 2;
  sqlite3_uint64 mThis = 1;
  assert(zEnd - z >= 2 && *z == '"' && zEnd[-1] == '"');
  if (memchr(z, '\\', n + 1) != 0) p->bOdd = 1;
  for (; aCut->zKey != 0; aCut++, mThis <<= 1) {
    assert(mThis != 0); /* at most 64 */
    if (strncmp(aCut->zKey, z + 1, n) == 0 && aCut->zKey[n] == 0) {
      if (*pmSeen & mThis) p->bOdd = 1;
      *pmSeen |= mThis;
      break;
    }
  }
  return aCut;
}

/* Copies the member at z, unless it is omitted. Returns its end. */
static const char *cutMember(Cut *p, const char *z, const BxCut *aCut,
    sqlite3_uint64 *pmSeen, int *pnKept) {
  const char *zValue = skipKey(z, p->zEnd);
  const BxCut *pCut;
  if (zValue == 0) return 0;
  pCut = findCut(p, aCut, z, bxJsonSkipString(z, p->zEnd), pmSeen);
  if (pCut->eHow == BX_CUT_ALL) return bxJsonSkipValue(zValue, p->zEnd);
  if ((*pnKept)++ > 0) sqlite3_str_appendchar(p->pOut, 1, ',');
  cutAppend(p, z, zValue);
  return cutValue(p, zValue, pCut);
}

static const char *cutObject(Cut *p, const char *z, const BxCut *aCut) {
  sqlite3_uint64 mSeen = 0;
  int nKept = 0;
  assert(*z == '{');
  sqlite3_str_appendchar(p->pOut, 1, '{');
  z = bxJsonSkipSpace(z + 1);
  while (*z != '}') {
    z = cutMember(p, z, aCut, &mSeen, &nKept);
    if (z == 0) return 0;
    z = bxJsonSkipSpace(z);
    if (*z != ',') break;
    z = bxJsonSkipSpace(z + 1);
    if (*z != '"') return 0;
  }
  sqlite3_str_appendchar(p->pOut, 1, '}');
  return *z == '}' ? z + 1 : 0;
}

static const char *cutArray(Cut *p, const char *z, const BxCut *aCut) {
  assert(*z == '[');
  sqlite3_str_appendchar(p->pOut, 1, '[');
  z = bxJsonSkipSpace(z + 1);
  while (*z != ']') {
    if (*z != '{') p->bStrange = 1;
    z = *z == '{' ? cutObject(p, z, aCut) : cutValue(p, z, 0);
    if (z == 0) return 0;
    z = bxJsonSkipSpace(z);
    if (*z != ',') break;
    sqlite3_str_appendchar(p->pOut, 1, ',');
    z = bxJsonSkipSpace(z + 1);
    if (*z == ']') return 0;
  }
  sqlite3_str_appendchar(p->pOut, 1, ']');
  return *z == ']' ? z + 1 : 0;
}

/* The next character of a string: an escape, two escapes for one character, or
** the bytes of one character. */
static const char *skipCharacter(const char *z) {
  if (*z == '\\') {
    int bHigh =
        z[1] == 'u' && (z[2] | 32) == 'd' && strchr("89abAB", z[3]) != 0;
    z += z[1] == 'u' ? 6 : 2;
    if (bHigh && z[0] == '\\' && z[1] == 'u' && (z[2] | 32) == 'd' &&
        strchr("cdefCDEF", z[3]) != 0) {
      z += 6;
    }
    return z;
  }
  do z++;
  while (((unsigned char)*z & 0xc0) == 0x80);
  return z;
}

/* Copies the first BX_CUT_CHARS characters of a string, as they are written. */
static const char *cutText(Cut *p, const char *z) {
  const char *zEnd = bxJsonSkipString(z, p->zEnd), *zLast = z + 1;
  int n;
  assert(*z == '"'); /* its first character is looked at before */
  if (zEnd == 0) return 0;
  for (n = 0; n < BX_CUT_CHARS && *zLast != '"'; n++) {
    zLast = skipCharacter(zLast);
  }
  assert(zLast < zEnd);
  cutAppend(p, z, zLast);
  sqlite3_str_appendchar(p->pOut, 1, '"');
  return zEnd;
}

/* Copies the value at z, cut as p says. Returns its end. */
static const char *cutValue(Cut *p, const char *z, const BxCut *pCut) {
  BxCutAction eHow = pCut != 0 ? pCut->eHow : BX_CUT_NOTHING;
  const char *zEnd;
  if (pCut != 0 && pCut->zKind != 0 && strchr(pCut->zKind, *z) == 0) {
    p->bStrange = 1;
  }
  if (eHow == BX_CUT_MEMBERS && *z == '{') {
    return cutObject(p, z, pCut->aInside);
  }
  if (eHow == BX_CUT_ELEMENTS && *z == '[') {
    return cutArray(p, z, pCut->aInside);
  }
  if (eHow == BX_CUT_TEXT && *z == '"') return cutText(p, z);
  zEnd = bxJsonSkipValue(z, p->zEnd);
  if (zEnd != 0) cutAppend(p, z, zEnd);
  return zEnd;
}

BxCutResult bxJsonCut(
    const char *z, i64 n, const BxCut *pCut, sqlite3_str *pOut) {
  const char *zEnd = z + n;
  Cut cut = {pOut, zEnd, 0, 0};
  assert(pCut != 0 && pOut != 0);
  assert(n >= 0 && *zEnd == 0);
  z = cutValue(&cut, bxJsonSkipSpace(z), pCut);
  assert(z == 0 || z <= zEnd);
  if (z == 0 || bxJsonSkipSpace(z) != zEnd) return BX_CUT_UNSURE;
  if (cut.bOdd) return BX_CUT_ODD;
  return cut.bStrange ? BX_CUT_STRANGE : BX_CUT_DONE;
}
