/*
** mask.c: replaces keys, passwords and addresses in texts.
**
** The rules are rows of report_masks (sql/report.sql). One pass over the text
** looks at each two bytes; where they begin an anchor, its rules are tried. A rule
** that has looked at a run of characters in vain does not look at it again, so
** the time is linear, whatever the text is. Texts are often JSON, or JSON inside
** a string of JSON. What is replaced never contains a quote or half an escape, so
** that JSON stays JSON.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define MASK_BEFORE 64 /* most characters before an anchor */

typedef struct MaskSet {
  unsigned char a[32];
} MaskSet;

struct MaskRule {
  char *zName, *zAnchor, *zHolds, *zEnds;
  int nAnchor, nEnds;
  int bMember, bKeeps, bBefore, bAfter, bWord;
  i64 nLeast;
  MaskSet before, after;
  i64 iDone;  /* what is before it was looked at in vain */
  i64 nCount; /* how often it has masked something */
  int iNext;  /* the next rule with the same first byte, or -1 */
};

/* The text that is masked, and what of it is already written. */
typedef struct MaskWork {
  Masks *p;
  const char *z;
  i64 n;
  i64 iFrom; /* what follows is not yet written */
  sqlite3_str *pOut;
} MaskWork;

static int inSet(const MaskSet *p, char c) {
  unsigned char i = (unsigned char)c;
  return p->a[i >> 3] >> (i & 7) & 1;
}

/* Reads a set as it stands in the brackets of GLOB. Returns whether it has
** anything. */
static int readMaskSet(MaskSet *p, const char *z) {
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

static int isWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_';
}

/* One row: name, kind, anchor, before, after, least, holds, ends, keeps. */
static void readMask(MaskRule *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  const char *zKind = bxColumnText(pStmt, 1, pErr);
  assert(sqlite3_column_count(pStmt) >= 9);
  p->bMember = zKind != 0 && strcmp(zKind, "member") == 0;
  p->zName = bxColumnCopy(pStmt, 0, pErr);
  p->zAnchor = bxColumnCopy(pStmt, 2, pErr);
  p->bBefore = readMaskSet(&p->before, bxColumnText(pStmt, 3, pErr));
  p->bAfter = readMaskSet(&p->after, bxColumnText(pStmt, 4, pErr));
  p->nLeast = sqlite3_column_int64(pStmt, 5);
  p->zHolds = bxColumnCopy(pStmt, 6, pErr);
  p->zEnds = bxColumnCopy(pStmt, 7, pErr);
  p->bKeeps = sqlite3_column_int(pStmt, 8);
  if (pErr->rc == SQLITE_OK && (p->zAnchor == 0 || p->zName == 0)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: a row of report_masks has no name or anchor; run "
        "blackbox_install()");
  }
  if (pErr->rc != SQLITE_OK) return;
  p->nAnchor = (int)strlen(p->zAnchor);
  p->nEnds = p->zEnds ? (int)strlen(p->zEnds) : 0;
  p->bWord = !p->bMember && !p->bBefore && isWord(p->zAnchor[0]);
}

/* Makes the tables by which anchors are found. Rules come in the order of the
** chain: the longest anchor first. */
static void indexRules(Masks *p) {
  int i, j, k;
  memset(p->aFirst, -1, sizeof(p->aFirst));
  memset(p->aPair, 0, sizeof(p->aPair));
  for (i = 0; i < p->n; i++) {
    MaskRule *pRule = &p->a[i];
    const char *z = pRule->zAnchor;
    unsigned char c = (unsigned char)z[0];
    if (pRule->bMember && c >= 'A' && c <= 'Z') c ^= 32;
    pRule->iNext = p->aFirst[c];
    p->aFirst[c] = i;
    for (j = 0; j < (pRule->bMember ? 4 : 1); j++) { /* both cases of letters */
      int c1 = (unsigned char)z[0], c2 = (unsigned char)z[1], iLast;
      if (j & 1 && isWord(z[0]) && c1 >= 'A' && c1 != '_') c1 ^= 32;
      if (j & 2 && isWord(z[1]) && c2 >= 'A' && c2 != '_') c2 ^= 32;
      iLast = c1 << 8 | (z[1] ? c2 : 255);
      for (k = c1 << 8 | c2; k <= iLast; k++) {
        p->aPair[k >> 3] |= (unsigned char)(1 << (k & 7));
      }
    }
  }
}

void bxMaskRead(Masks *p, BxStmts *pHome, const char *zProfile, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 nBefore = p->n;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxPrepare(pHome,
      "SELECT m.name, m.kind, iif(s.anchor IS NULL, m.anchor, rtrim(m.anchor,"
      " '=') || s.anchor), m.before, m.after, m.least, m.holds, m.ends, m.keeps"
      " FROM main.report_masks AS m LEFT JOIN main.report_masks AS s"
      "  ON s.profile = '=' AND m.keeps = 1 AND m.anchor GLOB '*='"
      " WHERE m.profile = ?1 ORDER BY length(m.anchor || coalesce(s.anchor, "
      "''))",
      pErr);
  bxBind(pStmt, pErr, "t", zProfile);
  while (bxStep(pStmt, pErr)) {
    MaskRule *pRule =
        bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*pRule), pErr);
    if (pRule == 0) break;
    readMask(pRule, pStmt, pErr);
  }
  sqlite3_finalize(pStmt);
  if (pErr->rc == SQLITE_OK && p->n == nBefore) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "NotFoundError: redact names the profile %Q, of which report_masks has "
        "no rows; SELECT DISTINCT profile FROM report_masks lists them, and "
        "'none' masks nothing",
        zProfile);
  }
  if (pErr->rc == SQLITE_OK) indexRules(p);
}

void bxMaskFree(Masks *p) {
  i64 i;
  for (i = 0; i < p->n; i++) {
    sqlite3_free(p->a[i].zName);
    sqlite3_free(p->a[i].zAnchor);
    sqlite3_free(p->a[i].zHolds);
    sqlite3_free(p->a[i].zEnds);
  }
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

/* Whether n bytes at z have the bytes of a text. */
static int hasBytes(const char *z, i64 n, const char *zText) {
  size_t nText = strlen(zText);
  assert(zText[0] != 0);
  while (n >= (i64)nText) {
    const char *zAt = memchr(z, zText[0], (size_t)(n - (i64)nText + 1));
    if (zAt == 0) return 0;
    if (memcmp(zAt, zText, nText) == 0) return 1;
    n -= zAt + 1 - z;
    z = zAt + 1;
  }
  return 0;
}

/* Whether a word can begin at z[i]. What looks like a letter before it may be the
** end of an escape of JSON. */
static int beginsWord(const char *z, i64 i) {
  assert(i >= 0);
  if (i == 0 || !isWord(z[i - 1])) return 1;
  if (i > 1 && z[i - 2] == '\\' && strchr("nrtbf", z[i - 1]) != 0) return 1;
  return i > 5 && z[i - 6] == '\\' && z[i - 5] == 'u';
}

/* Whether something in it is a digit: words have none. */
static int hasDigit(const char *z, i64 n) {
  while (n > 0 && (*z < '0' || *z > '9')) z++, n--;
  return n > 0;
}

/* The end of the characters of a set. */
static i64 skipSet(const MaskSet *p, const char *z, i64 i, i64 n) {
  while (i < n) {
    i64 k = i;
    while (k < n && z[k] == '\\')
      k++; /* an escape, of a string in a string, too */
    if (k > i &&
        (k == n || (z[k] != '/' && (z[k] != 'n' || !inSet(p, '\n'))))) {
      break;
    }
    if (k == i && !inSet(p, z[i])) break;
    if (k > i && z[k] == '/' && !inSet(p, '/')) break;
    i = k + 1;
  }
  return i;
}

/* Where what follows the anchor ends; -1 if it is not as the rule says. */
static i64 findEnd(const MaskWork *p, MaskRule *pRule, i64 i) {
  i64 iEnd;
  assert(i >= 0 && i <= p->n);
  if (!pRule->bAfter) {
    const char *z = p->z + i;
    while (p->z + p->n - z >= pRule->nEnds) {
      z = memchr(
          z, pRule->zEnds[0], (size_t)(p->z + p->n - z - pRule->nEnds + 1));
      if (z == 0) break;
      if (memcmp(z, pRule->zEnds, (size_t)pRule->nEnds) == 0) return z - p->z;
      z++;
    }
    return p->n;
  }
  iEnd = skipSet(&pRule->after, p->z, i, p->n);
  if (iEnd - i >= pRule->nLeast &&
      (!pRule->bKeeps || pRule->zHolds != 0 || hasDigit(p->z + i, iEnd - i)) &&
      (pRule->zHolds == 0 || hasBytes(p->z + i, iEnd - i, pRule->zHolds)) &&
      (pRule->nEnds == 0 ||
          (p->n - iEnd >= pRule->nEnds &&
              memcmp(p->z + iEnd, pRule->zEnds, (size_t)pRule->nEnds) == 0))) {
    return iEnd;
  }
  pRule->iDone = iEnd;
  return -1;
}

/* Whether the rule masks what is at z[i], which is its anchor: from *piStart to
** *piEnd. */
static int matchText(
    const MaskWork *p, MaskRule *pRule, i64 i, i64 *piStart, i64 *piEnd) {
  i64 iStart = i;
  assert(i >= p->iFrom && i < p->n);
  if (i < pRule->iDone || (pRule->bWord && !beginsWord(p->z, i))) return 0;
  if (pRule->bBefore) {
    i64 iLow = i - p->iFrom > MASK_BEFORE ? i - MASK_BEFORE : p->iFrom;
    while (iStart > iLow && inSet(&pRule->before, p->z[iStart - 1])) iStart--;
    if (iStart == i && !pRule->bKeeps) return 0;
    if (iStart > 0 && p->z[iStart - 1] == '\\') { /* an escape stays whole */
      iStart += p->z[iStart] == 'u' ? 5 : 1;
    }
    if (iStart >= i && !pRule->bKeeps) return 0;
  }
  *piEnd = findEnd(p, pRule, i + pRule->nAnchor);
  *piStart = pRule->bKeeps ? i + pRule->nAnchor : iStart;
  return *piEnd > *piStart;
}

/* In a string inside a string, quotes have backslashes before them: none, 1, 3,
** 7 ... */
typedef struct Quotes {
  int nSlash;
  int nDepth;
} Quotes;

/* The end of the content of a string that begins at z[i]: a quote with a number of
** backslashes before it that ends a string, or the string around it. */
static i64 stringEnd(const MaskWork *p, const Quotes *pQuotes, i64 i) {
  i64 j = i, nSlash, n;
  int iDepth;
  assert(i >= 0 && i <= p->n);
  for (; j < p->n; j++) {
    const char *zQuote = memchr(p->z + j, '"', (size_t)(p->n - j));
    if (zQuote == 0) break;
    j = zQuote - p->z;
    for (nSlash = 0; j - nSlash > i && p->z[j - nSlash - 1] == '\\';) nSlash++;
    for (n = nSlash, iDepth = 0; iDepth < pQuotes->nDepth && n % 2; iDepth++) {
      n = (n - 1) / 2;
    }
    if (n % 2 == 0) {
      return j - (nSlash < pQuotes->nSlash ? nSlash : pQuotes->nSlash);
    }
  }
  return p->n;
}

/* Whether a quote of this depth is at z[i]. */
static int isQuote(const MaskWork *p, const Quotes *pQuotes, i64 i) {
  int j;
  assert(i >= 0 && pQuotes->nSlash >= 0);
  if (i + pQuotes->nSlash >= p->n) return 0;
  for (j = 0; j < pQuotes->nSlash; j++) {
    if (p->z[i + j] != '\\') return 0;
  }
  return p->z[i + j] == '"';
}

/* The end of an array that begins at z[i]. */
static i64 arrayEnd(const MaskWork *p, const Quotes *pQuotes, i64 i) {
  int nOpen = 0;
  assert(i >= 0 && i <= p->n);
  while (i < p->n) {
    char c = p->z[i];
    if (isQuote(p, pQuotes, i)) {
      i = stringEnd(p, pQuotes, i + pQuotes->nSlash + 1) + pQuotes->nSlash + 1;
      continue;
    }
    if (c == '"') return i; /* the string around it ends */
    if (c == '[' || c == '{') nOpen++;
    if ((c == ']' || c == '}') && --nOpen == 0) return i + 1;
    i++;
  }
  return p->n;
}

static i64 skipBlank(const MaskWork *p, i64 i) {
  while (i < p->n && strchr(" \t\r\n", p->z[i]) != 0 && p->z[i] != 0) i++;
  return i;
}

/* As matchText(). *pQuotes: the quotes that a value which is no string needs; of
** a string, its nSlash is -1. */
static int matchMember(const MaskWork *p, const MaskRule *pRule, i64 i,
    i64 *piStart, i64 *piEnd, Quotes *pQuotes) {
  i64 j = i + pRule->nAnchor;
  char c;
  pQuotes->nSlash = pQuotes->nDepth = 0;
  assert(i > 0 && p->z[i - 1] == '"');
  while (i - 2 - pQuotes->nSlash >= 0 && pQuotes->nSlash < 1000 &&
         p->z[i - 2 - pQuotes->nSlash] == '\\') {
    pQuotes->nSlash++;
  }
  while ((1 << (pQuotes->nDepth + 1)) - 1 <= pQuotes->nSlash) pQuotes->nDepth++;
  if (!isQuote(p, pQuotes, j)) return 0;
  j = skipBlank(p, j + pQuotes->nSlash + 1);
  if (j >= p->n || p->z[j] != ':') return 0;
  j = skipBlank(p, j + 1);
  if (j >= p->n) return 0;
  c = p->z[j];
  *piStart = j;
  if (isQuote(p, pQuotes, j)) {
    *piStart = j += pQuotes->nSlash + 1;
    *piEnd = stringEnd(p, pQuotes, j);
    pQuotes->nSlash = -1;
    /* unless it is empty, or masked already */
    if (pRule->nLeast > 1 &&
        (*piEnd - j < pRule->nLeast || !hasDigit(p->z + j, *piEnd - j))) {
      return 0;
    }
    return *piEnd > j &&
           (*piEnd - j <= 9 || memcmp(p->z + j, "[masked: ", 9) != 0);
  }
  if (c == '[') {
    *piEnd = arrayEnd(p, pQuotes, j);
  } else {
    while (j < p->n && strchr("+-.0123456789eE", p->z[j]) && p->z[j]) j++;
    *piEnd = j;
  }
  return *piEnd > *piStart && c != 'e' && c != 'E';
}

/* Tries the rules of a chain on what is at z[i]: writes what is before a match, and
** the name in its place. Returns where to go on, 0 if none masks it. */
static i64 tryChain(MaskWork *p, int iRule, i64 i, int bCount) {
  assert(i >= p->iFrom && i < p->n);
  for (; iRule >= 0; iRule = p->p->a[iRule].iNext) {
    MaskRule *pRule = &p->p->a[iRule];
    Quotes quotes = {-1, 0};
    i64 iStart, iEnd;
    if (p->n - i < pRule->nAnchor) continue;
    if (pRule->bMember) { /* few texts have a quote there */
      if (i == 0 || p->z[i - 1] != '"' ||
          sqlite3_strnicmp(p->z + i, pRule->zAnchor, pRule->nAnchor) != 0 ||
          !matchMember(p, pRule, i, &iStart, &iEnd, &quotes)) {
        continue;
      }
    } else if ((pRule->nAnchor > 2 && (p->z[i + 1] != pRule->zAnchor[1] ||
                                          p->z[i + 2] != pRule->zAnchor[2])) ||
               memcmp(p->z + i, pRule->zAnchor, (size_t)pRule->nAnchor) != 0 ||
               !matchText(p, pRule, i, &iStart, &iEnd)) {
      continue;
    }
    if (p->pOut == 0) p->pOut = sqlite3_str_new(0);
    sqlite3_str_append(p->pOut, p->z + p->iFrom, (int)(iStart - p->iFrom));
    if (quotes.nSlash > 0) sqlite3_str_appendchar(p->pOut, quotes.nSlash, '\\');
    sqlite3_str_appendf(p->pOut,
        quotes.nSlash < 0 ? "[masked: %s]" : "\"[masked: %s]", pRule->zName);
    if (quotes.nSlash > 0) sqlite3_str_appendchar(p->pOut, quotes.nSlash, '\\');
    if (quotes.nSlash >= 0) sqlite3_str_appendchar(p->pOut, 1, '"');
    p->iFrom = iEnd;
    for (iRule = 0; strcmp(p->p->a[iRule].zName, pRule->zName) != 0;) iRule++;
    p->p->a[iRule].nCount += bCount; /* the first of this name counts */
    return iEnd;
  }
  return 0;
}

int bxMask(Masks *p, const char *z, i64 n, int bCount, char **pzOut, i64 *pnOut,
    BxErr *pErr) {
  MaskWork work = {p, z, n, 0, 0};
  i64 i;
  assert(n >= 0);
  *pzOut = 0;
  if (pErr->rc != SQLITE_OK || p->n == 0) return 0;
  for (i = 0; i < p->n; i++) p->a[i].iDone = 0;
  for (i = 0; i < n - 1;) {
    unsigned char c = (unsigned char)z[i];
    int iPair = c << 8 | (unsigned char)z[i + 1];
    i64 iNext = 0;
    if (p->aPair[iPair >> 3] >> (iPair & 7) & 1) {
      /* members are found under small letters */
      iNext = tryChain(&work, p->aFirst[c], i, bCount);
      if (iNext == 0 && c >= 'A' && c <= 'Z') {
        iNext = tryChain(&work, p->aFirst[c ^ 32], i, bCount);
      }
    }
    i = iNext > i ? iNext : i + 1;
  }
  if (work.pOut == 0) return 0;
  sqlite3_str_append(work.pOut, z + work.iFrom, (int)(n - work.iFrom));
  *pnOut = sqlite3_str_length(work.pOut);
  *pzOut = bxStrFinish(work.pOut, pErr);
  return *pzOut != 0;
}

const char *bxMaskCount(const Masks *p, int i, i64 *pnCount) {
  *pnCount = i < p->n ? p->a[i].nCount : 0;
  return i < p->n ? p->a[i].zName : 0;
}
