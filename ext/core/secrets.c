/*
** secrets.c: finds keys, passwords and addresses in texts, and replaces them.
**
** The rules are rows of blackbox_secrets (sql/report.sql). One pass over the text
** looks at two or three bytes at a time, by tables that pass over most places: no
** anchor begins there. A rule that has looked at a run of characters in vain does not look at it again, so the
** time is linear, whatever the text is. What is replaced ends with the string of JSON
** that it is in, also if that is inside another, and never contains a quote or half an
** escape, so that JSON stays JSON.
*/
#include "secrets.h"
#include "value.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

#define SECRET_BEFORE 64 /* most characters before an anchor */
#define SECRET_LONG 256  /* a longer run is looked at once */
#define SECRET_ARRAY 4096
#define SECRET_MOST 30000 /* rules */
#define SECRET_BEYOND 500 /* a name, its signs and the like are shorter */
#define SECRET_HASH(three) ((three)*0x9e3779b1u)
#define SECRET_HEAD(hash) ((hash) >> 20)
#define SECRET_BIT(hash) (1 << ((hash) >> 17 & 7))

typedef struct SecretSet {
  unsigned char a[32];
} SecretSet;

typedef enum { SECRET_PREFIX, SECRET_NAME, SECRET_ENTROPY, SECRET_NEVER } Kind;

struct BxSecret {
  char *zName, *zAnchor, *zHolds, *zEnds;
  int nAnchor, nEnds;
  Kind eKind;
  int bKeeps, bBefore, bAfter, bWord;
  i64 nLeast, nBits; /* nBits: of a character, in 1/256 */
  SecretSet before, after;
  i64 iDone;  /* what is before it was looked at in vain */
  i64 nCount; /* how often it has found something */
  int iNext;  /* the next with the same hash, or -1 */
};

/* The text that is masked, and what of it is already written. */
typedef struct SecretWork {
  BxSecrets *p;
  const char *z;
  i64 n;
  i64 iFrom;   /* what follows is not yet written */
  i64 iVain;   /* long runs and arrays before it were looked at in vain */
  i64 iLooked; /* what follows was not looked at */
  sqlite3_str *pOut;
} SecretWork;

/* A value that a name has. */
typedef struct SecretValue {
  i64 i, iEnd;
  int bQuoted; /* it stands in quotes */
  int bLoose;  /* so does a name that is given a value, without doubt */
  int bList;   /* a comma is between them, which may be that of a list */
  int nSlash;  /* of the quotes that the replacement needs; -1: none */
} SecretValue;

static int inSet(const SecretSet *p, char c) {
  unsigned char i = (unsigned char)c;
  return p->a[i >> 3] >> (i & 7) & 1;
}

/* Reads a set as it stands in the brackets of GLOB. Returns whether it has
** anything. */
static int readSecretSet(SecretSet *p, const char *z) {
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

static int isNumeral(char c) {
  return c >= '0' && c <= '9';
}
static int isUpper(char c) {
  return c >= 'A' && c <= 'Z';
}
static int isAlpha(char c) {
  return isUpper((char)(c & ~32)) && (c & 64);
}
static int isWord(char c) {
  return isAlpha(c) || isNumeral(c) || c == '_';
}

/*-------------------------------------------------------------- rules ----*/

/* One row: name, kind, anchor, before, after, least, holds, ends, keeps, bits. */
static void readSecret(BxSecret *p, sqlite3_stmt *pStmt, BxErr *pErr) {
  static const char *const azSecretKind[] = {
      "prefix", "name", "entropy", "never"};
  const char *zKind = bxColumnText(pStmt, 1, pErr);
  assert(sqlite3_column_count(pStmt) >= 10);
  while (zKind && p->eKind < 3 && strcmp(zKind, azSecretKind[p->eKind]))
    p->eKind++;
  p->zName = bxColumnCopy(pStmt, 0, pErr);
  p->zAnchor = bxColumnCopy(pStmt, 2, pErr);
  p->bBefore = readSecretSet(&p->before, bxColumnText(pStmt, 3, pErr));
  p->bAfter = readSecretSet(&p->after, bxColumnText(pStmt, 4, pErr));
  p->nLeast = sqlite3_column_int64(pStmt, 5);
  p->zHolds = bxColumnCopy(pStmt, 6, pErr);
  p->zEnds = bxColumnCopy(pStmt, 7, pErr);
  p->bKeeps = sqlite3_column_int(pStmt, 8);
  p->nBits = (i64)(sqlite3_column_double(pStmt, 9) * 256);
  if (pErr->rc == SQLITE_OK &&
      (p->zAnchor == 0 || p->zAnchor[0] == 0 || p->zName == 0)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: a row of blackbox_secrets has no name or anchor; "
        "run blackbox_install()");
  }
  if (pErr->rc != SQLITE_OK) return;
  p->nAnchor = (int)strlen(p->zAnchor);
  p->nEnds = p->zEnds ? (int)strlen(p->zEnds) : 0;
  p->bWord = !p->bBefore && isWord(p->zAnchor[0]);
}

/* A hash of the first bytes at z, in any case of letters: as many as the shortest anchor
** has, and three at most. */
static unsigned hashOf(const BxSecrets *p, const char *z) {
  unsigned h = 0;
  int i;
  assert(p->nFirst > 0 && p->nFirst <= 3);
  for (i = 0; i < p->nFirst; i++) h |= ((unsigned char)z[i] | 32u) << 8 * i;
  return SECRET_HASH(h);
}

/* Two characters in any case: a place in aSkip. */
static unsigned blockOf(char c, char cNext) {
  return ((c & 127u) | 32u) << 7 | (cNext & 127u) | 32u;
}

/* Rules come the shortest anchor first: so the longest is tried first. */
static void indexRules(BxSecrets *p) {
  int i;
  p->nFirst = p->n > 0 && p->a[0].nAnchor < 3 ? p->a[0].nAnchor : 3;
  for (i = 0; i < p->n; i++) {
    if (p->a[i].nAnchor < p->nFirst) p->nFirst = p->a[i].nAnchor;
  }
  memset(p->aMay, 0, sizeof(p->aMay));
  memset(p->aSkip, 2, sizeof(p->aSkip));
  for (i = 0; i < SECRET_HEADS; i++) p->aHead[i] = -1;
  for (i = 0; i < p->n; i++) {
    unsigned h = hashOf(p, p->a[i].zAnchor);
    p->aMay[SECRET_HEAD(h)] |= (unsigned char)SECRET_BIT(h);
    if (p->nFirst == 3) {
      const char *z = p->a[i].zAnchor;
      unsigned char *pSkip = &p->aSkip[blockOf(z[0], z[1])];
      if (*pSkip > 1) *pSkip = 1;
      p->aSkip[blockOf(z[1], z[2])] = 0;
    }
    p->a[i].iNext = p->aHead[SECRET_HEAD(h)];
    p->aHead[SECRET_HEAD(h)] = (short)i;
  }
}

void bxSecretsRead(
    BxSecrets *p, BxStmts *pHome, const char *zProfile, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 nBefore = p->n;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxPrepare(pHome,
      "SELECT name, kind, anchor, before, after, least, holds, ends, keeps, "
      "bits FROM main.blackbox_secrets WHERE profile = ?1 AND enabled "
      "ORDER BY length(anchor), anchor, kind = 'never', kind",
      pErr);
  bxBind(pStmt, pErr, "t", zProfile);
  while (p->n < SECRET_MOST && bxStep(pStmt, pErr)) {
    BxSecret *pRule =
        bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*pRule), pErr);
    if (pRule == 0) break;
    readSecret(pRule, pStmt, pErr);
  }
  sqlite3_finalize(pStmt);
  if (pErr->rc == SQLITE_OK && p->n == nBefore) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "NotFoundError: redact names the profile %Q, of which blackbox_secrets "
        "has no rows that are enabled; SELECT DISTINCT profile FROM "
        "blackbox_secrets lists them, and 'none' masks nothing",
        zProfile);
  }
  if (pErr->rc == SQLITE_OK) indexRules(p);
}

void bxSecretsFree(BxSecrets *p) {
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

/*-------------------------------------------------------------- texts ----*/

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

/* Whether z[i] begins a word. What looks like a letter before it may be the end of an
** escape of JSON. */
static int beginsWord(const char *z, i64 i) {
  assert(i >= 0);
  if (i == 0 || !isWord(z[i - 1])) return 1;
  if (i > 1 && z[i - 2] == '\\' && strchr("nrtbf", z[i - 1]) != 0) return 1;
  return i > 5 && z[i - 6] == '\\' && z[i - 5] == 'u';
}

static int hasDigit(const char *z, i64 n) {
  while (n > 0 && !isNumeral(*z)) z++, n--;
  return n > 0;
}

static int hasAlpha(const char *z, i64 n) {
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

/* Shannon's entropy of the first characters, for one, in 1/256 of a bit. */
static i64 entropyOf(const char *z, i64 n) {
  i64 anCount[256] = {0}, nSum = 0, i;
  if (n > SECRET_LONG) n = SECRET_LONG;
  if (n <= 0) return 0;
  for (i = 0; i < n; i++) anCount[(unsigned char)z[i]]++;
  for (i = 0; i < 256; i++) {
    if (anCount[i] > 0) nSum += anCount[i] * log2Of(anCount[i]);
  }
  return log2Of(n) - nSum / n;
}

/* The end of the characters of a set. */
static i64 skipSet(const SecretSet *p, const char *z, i64 i, i64 n) {
  while (i < n) {
    i64 k = i;
    while (k < n && z[k] == '\\')
      k++; /* an escape, of a string in a string, too */
    if (k > i && (k == n || (z[k] != '/' && ((z[k] != 'n' && z[k] != 'r') ||
                                                !inSet(p, '\n'))))) {
      break;
    }
    if (k == i && !inSet(p, z[i])) break;
    if (k > i && z[k] == '/' && !inSet(p, '/')) break;
    i = k + 1;
  }
  return i;
}

/*------------------------------------------------------------ prefixes ----*/

/* Where the text ends that a rule without a set masks: its end, or that of the string
** it is in. */
static i64 findText(const SecretWork *p, const BxSecret *pRule, i64 i) {
  assert(i >= 0 && pRule->nEnds > 0);
  for (; i < p->n && p->z[i] != '"'; i++) {
    if (p->n - i >= pRule->nEnds &&
        memcmp(p->z + i, pRule->zEnds, (size_t)pRule->nEnds) == 0) {
      return i;
    }
  }
  while (i > 0 && i < p->n && p->z[i - 1] == '\\') i--;
  return i;
}

/* Where what follows the anchor ends; -1 if it is not as the rule says. */
static i64 findEnd(const SecretWork *p, BxSecret *pRule, i64 i) {
  i64 iEnd;
  assert(i >= 0 && i <= p->n);
  if (!pRule->bAfter) return findText(p, pRule, i);
  iEnd = skipSet(&pRule->after, p->z, i, p->n);
  if (iEnd - i >= pRule->nLeast &&
      (!pRule->bKeeps || pRule->zHolds != 0 || hasDigit(p->z + i, iEnd - i)) &&
      (pRule->zHolds == 0 || hasBytes(p->z + i, iEnd - i, pRule->zHolds)) &&
      (pRule->nBits == 0 || entropyOf(p->z + i, iEnd - i) >= pRule->nBits) &&
      (pRule->nEnds == 0 ||
          (p->n - iEnd >= pRule->nEnds &&
              memcmp(p->z + iEnd, pRule->zEnds, (size_t)pRule->nEnds) == 0))) {
    return iEnd;
  }
  pRule->iDone = iEnd;
  return -1;
}

/* Whether the rule masks what is at z[i], which is its anchor. */
static int matchPrefix(
    const SecretWork *p, BxSecret *pRule, i64 i, SecretValue *pOut) {
  i64 iStart = i;
  assert(i >= p->iFrom && i < p->n);
  if (p->n - i < pRule->nAnchor ||
      memcmp(p->z + i, pRule->zAnchor, (size_t)pRule->nAnchor) != 0 ||
      i < pRule->iDone || (pRule->bWord && !beginsWord(p->z, i))) {
    return 0;
  }
  if (pRule->bBefore) {
    i64 iLow = i - p->iFrom > SECRET_BEFORE ? i - SECRET_BEFORE : p->iFrom;
    while (iStart > iLow && inSet(&pRule->before, p->z[iStart - 1])) iStart--;
    if (iStart == i && !pRule->bKeeps) return 0;
    if (iStart > 0 && p->z[iStart - 1] == '\\') { /* an escape stays whole */
      iStart += p->z[iStart] == 'u' ? 5 : 1;
    }
    if (iStart >= i && !pRule->bKeeps) return 0;
  }
  pOut->iEnd = findEnd(p, pRule, i + pRule->nAnchor);
  pOut->i = pRule->bKeeps ? i + pRule->nAnchor : iStart;
  return pOut->iEnd > pOut->i;
}

/*---------------------------------------------------------------- names ----*/

/* How many backslashes are at z[i]. In a string inside a string, quotes have
** backslashes before them: none, 1, 3, 7 ... */
static int slashesAt(SecretWork *p, i64 i) {
  int n = 0;
  while (i + n < p->n && n < 1000 && p->z[i + n] == '\\') n++;
  if (i + n > p->iLooked) p->iLooked = i + n;
  return n;
}

/* The end of the content of a string that begins at z[i], after a quote with nSlash
** backslashes: a quote with a number of backslashes before it that ends a string, or the
** string around it. */
static i64 stringEnd(SecretWork *p, int nSlash, i64 i) {
  i64 j = i, nFound = 0, n;
  int iDepth, nDepth = 0;
  assert(i >= 0 && i <= p->n);
  while ((1 << (nDepth + 1)) - 1 <= nSlash) nDepth++;
  for (; j < p->n; j++) {
    const char *zQuote = memchr(p->z + j, '"', (size_t)(p->n - j));
    j = zQuote != 0 ? zQuote - p->z : p->n;
    if (zQuote == 0) break;
    for (nFound = 0; j - nFound > i && p->z[j - nFound - 1] == '\\';) nFound++;
    for (n = nFound, iDepth = 0; iDepth < nDepth && n % 2; iDepth++) {
      n = (n - 1) / 2;
    }
    if (n % 2 == 0) break;
  }
  if (j > p->iLooked) p->iLooked = j;
  return j < p->n ? j - (nFound < nSlash ? nFound : nSlash) : p->n;
}

/* The end of a string in quotes of another kind: it never goes beyond a line, or the
** string of JSON it is in. */
static i64 lineEnd(const SecretWork *p, char cQuote, i64 i) {
  assert(cQuote != '"');
  while (i < p->n && p->z[i] != cQuote && strchr("\"\\\n\r", p->z[i]) == 0) i++;
  return i;
}

/* The end of an array that begins at z[i], whose quotes have nSlash backslashes; -1 if
** none is near. */
static i64 arrayEnd(SecretWork *p, int nSlash, i64 i) {
  int nOpen = 0;
  i64 iMost = p->n - i > SECRET_ARRAY ? i + SECRET_ARRAY : p->n;
  assert(i >= 0 && i <= p->n);
  while (i < iMost) {
    int n = slashesAt(p, i);
    char c = p->z[i + n];
    if (c == '"' && n != nSlash) return -1; /* the string around it ends */
    i += n + 1;
    if (c == '"') i = stringEnd(p, nSlash, i) + nSlash + 1;
    if (c == '[' || c == '{') nOpen++;
    if ((c == ']' || c == '}') && --nOpen == 0) return i;
  }
  return -1;
}

static i64 skipBlank(const SecretWork *p, i64 i) {
  i64 iMost = i + 32 < p->n ? i + 32 : p->n;
  while (i < iMost && (p->z[i] == ' ' || p->z[i] == '\t')) i++;
  return i;
}

/* Whether a text is at z[i], in any case. */
static int isAt(const SecretWork *p, i64 i, const char *zText) {
  int n = (int)strlen(zText);
  return p->n - i >= n && sqlite3_strnicmp(p->z + i, zText, n) == 0;
}

/* The end of the name at z[i]; 0 if it is another one. From the fourth character on, _
** of the rule may be _, -, a dot or a blank, or nothing. */
static i64 nameEnd(const SecretWork *p, const BxSecret *pRule, i64 i) {
  const char *z = pRule->zAnchor;
  char cBefore = i > 0 ? p->z[i - 1] : ' ';
  int k, nDigit = 0;
  if (!beginsWord(p->z, i) && cBefore != '_' && pRule->nAnchor < 6 &&
      !(isUpper(p->z[i]) && !isUpper(cBefore))) {
    return 0;
  }
  for (k = 0; z[k] != 0; k++) {
    char c = i < p->n ? p->z[i] : 0;
    if (k > 2 && z[k] == '_') {
      if (c != 0 && strchr("_-. ", c) != 0) i++;
      continue;
    }
    if (c != z[k] && !(isAlpha(c) && (c ^ 32) == z[k])) return 0;
    i++;
  }
  while (i < p->n && isNumeral(p->z[i]) && nDigit++ < 3) i++;
  if (i < p->n && isWord(p->z[i])) return 0;
  if (i + 1 < p->n && p->z[i] == '-' && isWord(p->z[i + 1])) return 0;
  return i;
}

/* Where the value of a name begins, which ends at z[i], after a sign that gives it one.
** 0: none does. iName is where all of the name begins. */
static i64 afterSign(SecretWork *p, i64 iName, i64 i, SecretValue *pOut) {
  const char *z = p->z;
  char cBefore = iName > 0 ? z[iName - 1] : ' ';
  int nSlash = slashesAt(p, i), bQuoted = 0;
  i64 j = i + nSlash, k;
  if (j < p->n && (z[j] == '"' || z[j] == '\'' || z[j] == '`')) {
    bQuoted = 1;
    if (z[j] == '"') pOut->nSlash = nSlash;
    i = j + 1;
  }
  if (i < p->n && z[i] == '>' && cBefore == '<') return i + 1;
  /* {"name":"Cookie","value":"..."}; and in YAML and XML */
  for (j = i; j < p->n && j - i < 32 && strchr(", \t\r\n\\\"nr", z[j]); j++)
    continue;
  if (j > i && isAt(p, j, "value")) {
    j += 5;
    k = j + slashesAt(p, j);
    if (k < p->n && z[k] == '"') j = k + 1;
    j = skipBlank(p, j);
    return j < p->n && (z[j] == ':' || z[j] == '=') ? j + 1 : 0;
  }
  i += i < p->n && z[i] == ']';
  j = skipBlank(p, i);
  if (j + 1 >= p->n) return 0;
  pOut->bLoose = cBefore == '-' || cBefore == '&' || cBefore == '?' ||
                 (z[j] == '=' && isUpper(z[iName]) && isUpper(z[iName + 1]));
  if (z[j] == ':' && z[j + 1] != ':') return j + 1 + (z[j + 1] == '=');
  if (z[j] == '=' && z[j + 1] != '=' && z[j + 1] != '~') {
    return j + 1 + (z[j + 1] == '>');
  }
  if (z[j] == ',' && bQuoted) {
    pOut->bList = 1;
    return skipBlank(p, j + 1);
  }
  if (j > i && isAt(p, j, "is") && j + 2 < p->n && strchr(" :", z[j + 2])) {
    return j + 2 + (z[j + 2] == ':');
  }
  return j > i && cBefore == '-' && !bQuoted ? j : 0;
}

/* What stands for a value, or is one of a program, and not a secret. */
static int isPlaceholder(const char *z, i64 n) {
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
  return hasBytes(z, n < 512 ? n : 512, "${") ||
         hasBytes(z, n < 512 ? n : 512, "{{") ||
         hasBytes(z, n < 512 ? n : 512, "$(");
}

/* A UUID is a name of something. */
static int isUuid(const char *z, i64 n) {
  i64 i;
  for (i = 0; i < n && i < 36; i++) {
    int bDash = i == 8 || i == 13 || i == 18 || i == 23;
    if (bDash ? z[i] != '-' : !isNumeral(z[i]) && !isAlpha(z[i])) return 0;
  }
  return n == 36;
}

/* Whether the value of a name is a secret. */
static int isSecret(
    const SecretWork *p, const BxSecret *pRule, const SecretValue *pValue) {
  const char *z = p->z + pValue->i;
  i64 n = pValue->iEnd - pValue->i;
  i64 nBits = pValue->bList && pRule->nBits == 0 ? 3 << 8 : pRule->nBits;
  assert(pRule->eKind == SECRET_NAME || pRule->eKind == SECRET_ENTROPY);
  if (n < pRule->nLeast || n <= 0 || isPlaceholder(z, n)) return 0;
  if (pRule->zHolds != 0 && !hasBytes(z, n, pRule->zHolds)) return 0;
  if (!pValue->bQuoted && pValue->iEnd < p->n && p->z[pValue->iEnd] == '(') {
    return 0; /* a call */
  }
  if (nBits > 0) {
    return n >= 8 && hasDigit(z, n) && hasAlpha(z, n) && !isUuid(z, n) &&
           *z != '/' && *z != '.' && memchr(z, ' ', (size_t)n) == 0 &&
           entropyOf(z, n) >= nBits;
  }
  if (pValue->bQuoted) return 1;
  return n >= 4 &&
         (pRule->bAfter || hasDigit(z, n) || (pValue->bLoose && n > 5));
}

/* Where the name begins of which z[i] is a part. */
static i64 nameBegin(const SecretWork *p, i64 i) {
  i64 iLow = i > SECRET_BEFORE ? i - SECRET_BEFORE : 0;
  while (i > iLow &&
         (!beginsWord(p->z, i) ||
             (i > 1 && strchr("-_.", p->z[i - 1]) && isWord(p->z[i - 2])))) {
    i--;
  }
  return i;
}

/* Whether the rule masks the value of the name at z[i]; *piNext: where to go on if it
** does not. */
static int matchName(SecretWork *p, const BxSecret *pRule, i64 i,
    SecretValue *pOut, i64 *piNext) {
  static const char *const azScheme[] = {
      "Bearer ", "Basic ", "token ", "ApiKey ", "Digest ", 0};
  static const char zRun[] = "A-Za-z0-9_.!%*+/=?@^~:$#-";
  SecretSet run;
  i64 iEnd = nameEnd(p, pRule, i), j;
  int nSlash, k, nQuote;
  char c;
  if (iEnd == 0) return 0;
  *piNext = iEnd;
  if (pRule->eKind == SECRET_NEVER) return 0;
  j = afterSign(p, nameBegin(p, i), iEnd, pOut);
  nQuote = pOut->nSlash;
  pOut->nSlash = -1;
  if (j == 0) return 0;
  j = skipBlank(p, j);
  if (j + 1 < p->n && strchr("fbru", p->z[j]) && strchr("\"'", p->z[j + 1]))
    j++;
  nSlash = slashesAt(p, j);
  if (j + nSlash >= p->n) return 0;
  c = p->z[j + nSlash];
  pOut->bQuoted = c == '"' || c == '\'' || c == '`';
  pOut->i = j + (pOut->bQuoted ? nSlash + 1 : 0);
  for (k = 0; azScheme[k] != 0; k++) {
    if (isAt(p, pOut->i, azScheme[k])) pOut->i += (i64)strlen(azScheme[k]);
  }
  if (pOut->bQuoted) {
    pOut->iEnd =
        c == '"' ? stringEnd(p, nSlash, pOut->i) : lineEnd(p, c, pOut->i);
  } else if (c == '[' && nQuote >= 0 && pRule->eKind == SECRET_NAME) {
    pOut->iEnd = j < p->iVain ? -1 : arrayEnd(p, nQuote, j);
    if (pOut->iEnd < 0 && j >= p->iVain) p->iVain = j + SECRET_ARRAY;
    pOut->nSlash = nQuote;
    return pOut->iEnd > j + 2;
  } else {
    if (j < p->iVain) return 0;
    readSecretSet(&run, zRun);
    pOut->iEnd =
        skipSet(pRule->bAfter ? &pRule->after : &run, p->z, pOut->i, p->n);
    if (nQuote >= 0 && (isNumeral(c) || c == '-')) pOut->nSlash = nQuote;
  }
  if (isSecret(p, pRule, pOut)) return 1;
  if (!pOut->bQuoted && pOut->iEnd - j > SECRET_LONG) p->iVain = pOut->iEnd;
  return 0;
}

/*----------------------------------------------------------------- all ----*/

/* Writes what is before a value, and the name of the rule in its place. */
static void replace(SecretWork *p, BxSecret *pRule, const SecretValue *pValue) {
  int n = pValue->nSlash, bQuote;
  assert(pValue->i >= p->iFrom && pValue->iEnd <= p->n);
  if (p->pOut == 0) p->pOut = sqlite3_str_new(0);
  sqlite3_str_append(p->pOut, p->z + p->iFrom, (int)(pValue->i - p->iFrom));
  for (bQuote = n >= 0; bQuote >= 0 && n >= 0; bQuote--) {
    if (bQuote == 0) sqlite3_str_appendf(p->pOut, "[masked: %s]", pRule->zName);
    if (n > 0) sqlite3_str_appendchar(p->pOut, n, '\\');
    sqlite3_str_appendchar(p->pOut, 1, '"');
  }
  if (n < 0) sqlite3_str_appendf(p->pOut, "[masked: %s]", pRule->zName);
  p->iFrom = pValue->iEnd;
}

/* Counts what a rule has found for the first rule of its name. */
static void countRule(BxSecrets *p, const BxSecret *pRule) {
  BxSecret *pFirst = p->a;
  while (strcmp(pFirst->zName, pRule->zName) != 0) pFirst++;
  assert(pFirst <= pRule);
  pFirst->nCount++;
}

/* A rule has looked at what follows z[i]: so far, or to the end of a value. */
static void noteLooked(
    SecretWork *p, const BxSecret *pRule, i64 i, const SecretValue *pValue) {
  i64 iMost = pValue->iEnd > i ? pValue->iEnd : i;
  assert(i >= 0 && i < p->n);
  if (pRule->iDone > iMost) iMost = pRule->iDone;
  if (p->iVain > iMost) iMost = p->iVain;
  if (iMost + SECRET_BEYOND > p->iLooked) p->iLooked = iMost + SECRET_BEYOND;
}

/* Tries the rules whose anchor may be at z[i]. Returns where to go on. */
static i64 tryRules(SecretWork *p, i64 i, int bCount) {
  int iRule = p->p->aHead[SECRET_HEAD(hashOf(p->p, p->z + i))];
  assert(i >= p->iFrom && i < p->n);
  for (; iRule >= 0; iRule = p->p->a[iRule].iNext) {
    BxSecret *pRule = &p->p->a[iRule];
    SecretValue value = {.nSlash = -1};
    i64 iNext = 0;
    int bFound = pRule->eKind == SECRET_PREFIX
                     ? matchPrefix(p, pRule, i, &value)
                     : matchName(p, pRule, i, &value, &iNext);
    noteLooked(p, pRule, i, &value);
    if (bFound) {
      replace(p, pRule, &value);
      if (bCount) countRule(p->p, pRule);
      return value.iEnd;
    }
    if (iNext > 0) return iNext; /* it is this name, and no shorter one */
  }
  return i + 1;
}

/* Whether an anchor may begin at z[i], of which three characters are there. */
static int mayBegin(const BxSecrets *p, const char *z, i64 i) {
  unsigned h = hashOf(p, z + i);
  return p->aMay[SECRET_HEAD(h)] & SECRET_BIT(h);
}

/* The next place from i on at which an anchor may begin. The second and the third
** character tell how far the next place is at least, as in the algorithm of Wu and Manber:
** 0 if an anchor has them there, 1 if they begin one, else 2. */
static i64 nextAnchor(const BxSecrets *p, const char *z, i64 i, i64 n) {
  assert(i >= 0);
  if (p->nFirst < 3) {
    while (i + 3 <= n && !mayBegin(p, z, i)) i++;
    return i;
  }
  while (i + 3 <= n) {
    int nSkip = p->aSkip[blockOf(z[i + 1], z[i + 2])];
    if (nSkip == 0 && mayBegin(p, z, i)) break;
    i += nSkip > 0 ? nSkip : 1;
  }
  return i;
}

/*---------------------------------------------------- a text that grows ----*/

/* Where the two texts differ. */
static i64 sameBytes(const char *a, const char *b, i64 n) {
  i64 i = 0;
  while (i + 256 <= n && memcmp(a + i, b + i, 256) == 0) i += 256;
  while (i < n && a[i] == b[i]) i++;
  return i;
}

/* Goes on where the text before had the same bytes, as far as they were looked at. */
static i64 resumeMask(SecretWork *p, BxSecretsPast *pPast) {
  i64 nSame = sameBytes(p->z, pPast->z, p->n < pPast->n ? p->n : pPast->n);
  const BxSecretsMark *pMark;
  assert(pPast->nMark <= BX_SECRETS_MARKS);
  while (pPast->nMark > 0 && pPast->a[pPast->nMark - 1].iLooked > nSame) {
    pPast->nMark--;
  }
  pPast->nSame = nSame;
  pPast->nSameOut = 0;
  if (pPast->nMark == 0) return 0;
  pMark = &pPast->a[pPast->nMark - 1];
  p->iFrom = pMark->iFrom;
  pPast->nSameOut = pMark->nOut;
  p->iLooked = pMark->iLooked;
  if (pMark->nOut > 0) {
    p->pOut = sqlite3_str_new(0);
    sqlite3_str_append(p->pOut, pPast->zOut, (int)pMark->nOut);
  }
  return pMark->i;
}

/* Notes that all before z[i] is done, if no rule knows more than that. */
static void markPast(SecretWork *p, BxSecretsPast *pPast, i64 i) {
  BxSecretsMark *pMark;
  i64 k, n = pPast->nMark, iLast = n > 0 ? pPast->a[n - 1].i : 0;
  if (i - iLast < p->n / (BX_SECRETS_MARKS - 8) || i - iLast < 400) return;
  if (p->iVain > i) return;
  for (k = 0; k < p->p->n; k++) {
    if (p->p->a[k].iDone > i) return;
  }
  if (n == BX_SECRETS_MARKS) { /* every other one */
    for (n = 0; n < BX_SECRETS_MARKS / 2; n++) {
      pPast->a[n] = pPast->a[2 * n + 1];
    }
  }
  pMark = &pPast->a[n];
  pMark->i = i;
  pMark->iFrom = p->iFrom;
  pMark->iLooked = p->iLooked > i + 3 ? p->iLooked : i + 3;
  pMark->nOut = p->pOut != 0 ? sqlite3_str_length(p->pOut) : 0;
  pPast->nMark = n + 1;
}

/* Writes n bytes, of which the first nSame are there already. Returns 0 without memory. */
static int keepPastBytes(
    char **pz, i64 *pnAlloc, const char *z, i64 n, i64 nSame) {
  assert(nSame <= n);
  if (n > *pnAlloc) {
    char *zMore = sqlite3_realloc64(*pz, (sqlite3_uint64)(n + n / 2));
    if (zMore == 0) return 0;
    *pz = zMore;
    *pnAlloc = n + n / 2;
  }
  if (n > nSame) memcpy(*pz + nSame, z + nSame, (size_t)(n - nSame));
  return 1;
}

/* Keeps the text, and what it became. Without memory, nothing. */
static void keepPast(
    BxSecretsPast *p, const char *z, i64 n, const char *zOut, i64 nOut) {
  if (!keepPastBytes(&p->z, &p->nAlloc, z, n, p->nSame) ||
      !keepPastBytes(&p->zOut, &p->nOutAlloc, zOut, nOut,
          p->nSameOut < nOut ? p->nSameOut : nOut)) {
    bxSecretsForget(p);
    return;
  }
  p->n = n;
}

void bxSecretsForget(BxSecretsPast *p) {
  sqlite3_free(p->z);
  sqlite3_free(p->zOut);
  memset(p, 0, sizeof(*p));
}

/* pPast may be NULL. */
static int maskOn(BxSecrets *p, const char *z, i64 n, int bCount,
    BxSecretsPast *pPast, char **pzOut, i64 *pnOut, BxErr *pErr) {
  SecretWork work = {p, z, n, 0, 0, 0, 0};
  i64 i = 0;
  assert(n >= 0);
  *pzOut = 0;
  if (pErr->rc != SQLITE_OK || p->n == 0) return 0;
  for (i = 0; i < p->n; i++) p->a[i].iDone = 0;
  i = pPast != 0 ? resumeMask(&work, pPast) : 0;
  while ((i = nextAnchor(p, z, i, n)) + p->nFirst <= n) {
    if (pPast != 0) markPast(&work, pPast, i);
    i = tryRules(&work, i, bCount);
  }
  if (work.pOut != 0) {
    sqlite3_str_append(work.pOut, z + work.iFrom, (int)(n - work.iFrom));
    *pnOut = sqlite3_str_length(work.pOut);
    *pzOut = bxStrFinish(work.pOut, pErr);
  }
  if (pPast != 0) keepPast(pPast, z, n, *pzOut, *pzOut != 0 ? *pnOut : 0);
  return *pzOut != 0;
}

int bxSecretsMask(BxSecrets *p, const char *z, i64 n, int bCount, char **pzOut,
    i64 *pnOut, BxErr *pErr) {
  return maskOn(p, z, n, bCount, 0, pzOut, pnOut, pErr);
}

int bxSecretsMaskOn(BxSecrets *p, const char *z, i64 n, BxSecretsPast *pPast,
    char **pzOut, i64 *pnOut, BxErr *pErr) {
  return maskOn(p, z, n, 0, pPast, pzOut, pnOut, pErr);
}

const char *bxSecretsCount(const BxSecrets *p, i64 i, i64 *pnCount) {
  *pnCount = i < p->n ? p->a[i].nCount : 0;
  return i < p->n ? p->a[i].zName : 0;
}

void bxSecretsClear(BxSecrets *p) {
  i64 i;
  for (i = 0; i < p->n; i++) p->a[i].nCount = 0;
}
