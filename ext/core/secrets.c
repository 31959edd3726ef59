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
#include "secrets_text.h"
#include "value.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

#define SECRET_BEFORE 64  /* most characters before an anchor */
#define SECRET_LINE 200   /* so far a word of the line may be */
#define SECRET_MOST 30000 /* rules */
#define SECRET_BEYOND 500 /* a name, its signs and the like are shorter */
#define SECRET_HASH(three) ((three)*0x9e3779b1u)
#define SECRET_HEAD(hash) ((hash) >> 20)
#define SECRET_BIT(hash) (1 << ((hash) >> 17 & 7))

typedef enum { SECRET_PREFIX, SECRET_NAME, SECRET_ENTROPY, SECRET_NEVER } Kind;

struct BxSecret {
  char *zName, *zAnchor, *zHolds, *zEnds, *zLine;
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
  const char *zRaw; /* the text that was given, of nRaw bytes */
  i64 nRaw;
  BxSecretEscapes esc; /* of which z has the characters */
} SecretWork;

/* A value that a name has. */
typedef struct SecretValue {
  i64 i, iEnd;
  int bQuoted; /* it stands in quotes */
  int bLoose;  /* so does a name that is given a value, without doubt */
  int bList;   /* a comma is between them, which may be that of a list */
  int nSlash;  /* of the quotes that the replacement needs; -1: none */
} SecretValue;

/*-------------------------------------------------------------- rules ----*/

/* One row, and one of its anchors: name, kind, anchors, before, after, least, holds,
** ends, keeps, bits, line. */
static void readSecret(
    BxSecret *p, sqlite3_stmt *pStmt, const char *zAnchor, int n, BxErr *pErr) {
  static const char *const azSecretKind[] = {
      "prefix", "name", "entropy", "never"};
  const char *zKind = bxColumnText(pStmt, 1, pErr);
  assert(sqlite3_column_count(pStmt) >= 11);
  while (zKind && p->eKind < 3 && strcmp(zKind, azSecretKind[p->eKind]))
    p->eKind++;
  p->zName = bxColumnCopy(pStmt, 0, pErr);
  p->zAnchor = bxPrintf(pErr, "%.*s", n, zAnchor);
  p->bBefore = bxSecretSet(&p->before, bxColumnText(pStmt, 3, pErr));
  p->bAfter = bxSecretSet(&p->after, bxColumnText(pStmt, 4, pErr));
  p->nLeast = sqlite3_column_int64(pStmt, 5);
  p->zHolds = bxColumnCopy(pStmt, 6, pErr);
  p->zEnds = bxColumnCopy(pStmt, 7, pErr);
  p->bKeeps = sqlite3_column_int(pStmt, 8);
  p->nBits = (i64)(sqlite3_column_double(pStmt, 9) * 256);
  p->zLine = bxColumnCopy(pStmt, 10, pErr);
  if (pErr->rc == SQLITE_OK &&
      (p->zAnchor == 0 || p->zAnchor[0] == 0 || p->zName == 0)) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: a row of blackbox_secrets has no name or anchor; "
        "run blackbox_install()");
  }
  if (pErr->rc != SQLITE_OK) return;
  p->nAnchor = (int)strlen(p->zAnchor);
  p->nEnds = p->zEnds ? (int)strlen(p->zEnds) : 0;
  p->bWord = !p->bBefore && p->zLine == 0 && isWord(p->zAnchor[0]);
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

/* Five bits of each of three characters: those before, and the next one. */
static unsigned threeOf(unsigned h, char c) {
  return (h << 5 | (c & 31u)) & (SECRET_THREES - 1);
}

/* Something may begin with these characters. */
static unsigned indexAnchor(BxSecrets *p, const char *z) {
  unsigned h = hashOf(p, z);
  p->aMay[SECRET_HEAD(h)] |= (unsigned char)SECRET_BIT(h);
  if (p->nFirst == 3) {
    unsigned hThree = threeOf(threeOf(threeOf(0, z[0]), z[1]), z[2]);
    p->aThree[hThree >> 3] |= (unsigned char)(1 << (hThree & 7));
  }
  return h;
}

/* Rules come the shortest anchor first: so the longest is tried first. */
static void indexRules(BxSecrets *p) {
  int i;
  p->nFirst = p->n > 0 && p->a[0].nAnchor < 3 ? p->a[0].nAnchor : 3;
  for (i = 0; i < p->n; i++) {
    if (p->a[i].nAnchor < p->nFirst) p->nFirst = p->a[i].nAnchor;
  }
  memset(p->aMay, 0, sizeof(p->aMay));
  memset(p->aThree, 0, sizeof(p->aThree));
  for (i = 0; i < SECRET_HEADS; i++) p->aHead[i] = -1;
  for (i = 0; i < p->n; i++) {
    unsigned h = indexAnchor(p, p->a[i].zAnchor);
    p->a[i].iNext = p->aHead[SECRET_HEAD(h)];
    p->aHead[SECRET_HEAD(h)] = (short)i;
  }
  indexAnchor(p, "\\u0");
}

/* The shortest anchor first; of a name, what is none comes last. */
static int compareSecrets(const void *pLeft, const void *pRight) {
  const BxSecret *p = pLeft, *q = pRight;
  int i = p->nAnchor - q->nAnchor;
  if (i == 0) i = strcmp(p->zAnchor, q->zAnchor);
  if (i == 0) i = (p->eKind == SECRET_NEVER) - (q->eKind == SECRET_NEVER);
  return i != 0 ? i : (int)q->eKind - (int)p->eKind;
}

void bxSecretsRead(
    BxSecrets *p, BxStmts *pHome, const char *zProfile, BxErr *pErr) {
  sqlite3_stmt *pStmt;
  i64 nBefore = p->n;
  if (pErr->rc != SQLITE_OK) return;
  pStmt = bxPrepare(pHome,
      "SELECT name, kind, anchor, before, after, least, holds, ends, keeps, "
      "bits, line FROM main.blackbox_secrets WHERE profile = ?1 AND enabled",
      pErr);
  bxBind(pStmt, pErr, "t", zProfile);
  while (p->n < SECRET_MOST && bxStep(pStmt, pErr)) {
    const char *z = bxColumnText(pStmt, 2, pErr);
    do { /* anchors with | between them */
      int n = z ? (int)strcspn(z, "|") : 0;
      BxSecret *pRule =
          bxArrayAdd(&p->a, &p->n, &p->nAlloc, sizeof(*pRule), pErr);
      if (pRule == 0) break;
      readSecret(pRule, pStmt, z, n, pErr);
      if (z != 0) z += n + (z[n] != 0);
    } while (z != 0 && *z != 0 && p->n < SECRET_MOST);
  }
  sqlite3_finalize(pStmt);
  if (pErr->rc == SQLITE_OK && p->n == nBefore) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "NotFoundError: the profile %Q has no enabled rule in "
        "blackbox_secrets; SELECT DISTINCT profile FROM blackbox_secrets WHERE "
        "enabled lists the profiles that have one",
        zProfile);
  }
  if (pErr->rc != SQLITE_OK) return;
  qsort(p->a, (size_t)p->n, sizeof(*p->a), compareSecrets);
  indexRules(p);
}

void bxSecretsFree(BxSecrets *p) {
  i64 i;
  for (i = 0; i < p->n; i++) {
    sqlite3_free(p->a[i].zName);
    sqlite3_free(p->a[i].zAnchor);
    sqlite3_free(p->a[i].zHolds);
    sqlite3_free(p->a[i].zEnds);
    sqlite3_free(p->a[i].zLine);
  }
  sqlite3_free(p->a);
  memset(p, 0, sizeof(*p));
}

/*-------------------------------------------------------------- texts ----*/

/* Whether z[i] begins a word. What looks like a letter before it may be the end of an
** escape of JSON. */
static int beginsWord(const char *z, i64 i) {
  assert(i >= 0);
  if (i == 0 || !isWord(z[i - 1])) return 1;
  if (i > 1 && z[i - 2] == '\\' && strchr("nrtbf", z[i - 1]) != 0) return 1;
  return i > 5 && z[i - 6] == '\\' && z[i - 5] == 'u';
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

/*-------------------------------------------------------------- strings ----*/

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

/*------------------------------------------------------------ prefixes ----*/

static int hasHeld(const BxSecret *p, const char *z, i64 n) {
  return p->zHolds == 0 || bxSecretHas(z, n, p->zHolds, (i64)strlen(p->zHolds));
}

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
      (!pRule->bKeeps || pRule->zHolds != 0 || pRule->zLine != 0 ||
          bxSecretDigit(p->z + i, iEnd - i)) &&
      hasHeld(pRule, p->z + i, iEnd - i) &&
      (pRule->nBits == 0 ||
          bxSecretEntropy(p->z + i, iEnd - i) >= pRule->nBits) &&
      (pRule->nEnds == 0 ||
          (p->n - iEnd >= pRule->nEnds &&
              memcmp(p->z + iEnd, pRule->zEnds, (size_t)pRule->nEnds) == 0))) {
    return iEnd;
  }
  pRule->iDone = iEnd;
  return -1;
}

/* Whether one of the words of a rule stands in the line of its anchor at z[i]. A line whose
** end has a backslash before it goes on. */
static int lineHas(const SecretWork *p, const BxSecret *pRule, i64 i) {
  const char *z = p->z, *zWord = pRule->zLine;
  i64 iLow = i > SECRET_LINE ? i - SECRET_LINE : 0, j = i, k;
  for (; j > iLow; j--) {
    if (z[j - 1] == '\n' && (j < 2 || z[j - 2] != '\\')) break;
    for (k = j - 1; z[j - 1] == 'n' && k > iLow && z[k - 1] == '\\';) k--;
    if ((j - 1 - k) % 3 != 0)
      break; /* in JSON, a backslash and an end have 3 */
  }
  i += pRule->nAnchor;
  while (*zWord != 0) {
    i64 n = (i64)strcspn(zWord, "|");
    if (n > 0 && bxSecretHas(z + j, i - j, zWord, n)) return 1;
    zWord += n + (zWord[n] != 0);
  }
  return 0;
}

/* Whether a string in quotes at z[i] is a value. Quotes that end the string around them,
** and what follows these, are none. */
static int quotedWord(SecretWork *p, const BxSecret *pRule, SecretValue *pOut) {
  int nSlash = slashesAt(p, pOut->i);
  i64 i = pOut->i + nSlash + 1;
  char c = i <= p->n ? p->z[i - 1] : 0;
  if (c != '"' && (c != '\'' || nSlash > 0)) return 0;
  pOut->bQuoted = 1;
  pOut->i = i;
  pOut->iEnd = c == '"' ? stringEnd(p, nSlash, i) : lineEnd(p, c, i);
  if (pOut->iEnd - i > SECRET_LONG || pOut->iEnd - i < pRule->nLeast ||
      pOut->iEnd == p->n || strchr("),;}]: \n", p->z[i]) != 0 ||
      p->z[pOut->iEnd + nSlash] != c) {
    pOut->iEnd = i;
  }
  return 1;
}

/* Whether the rule masks what is at z[i], which is its anchor. */
static int matchPrefix(
    SecretWork *p, BxSecret *pRule, i64 i, SecretValue *pOut) {
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
  if (pRule->zLine != 0 && !lineHas(p, pRule, i)) return 0;
  pOut->i = i + pRule->nAnchor;
  if (pRule->zLine == 0 || !quotedWord(p, pRule, pOut)) {
    pOut->iEnd = findEnd(p, pRule, pOut->i);
  }
  if (!pRule->bKeeps) pOut->i = iStart;
  return pOut->iEnd > pOut->i &&
         (pRule->zLine == 0 ||
             !bxSecretPlaceholder(p->z + pOut->i, pOut->iEnd - pOut->i));
}

/*---------------------------------------------------------------- names ----*/

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

/* The bytes of an end of a line at z[i], which JSON may have written; 0: it is none. */
static int breakAt(SecretWork *p, i64 i) {
  int n = slashesAt(p, i);
  if (n == 0) return i < p->n && p->z[i] == '\n';
  return i + n < p->n && p->z[i + n] == 'n' ? n + 1 : 0;
}

/* Where a line of a file begins at z[i]: after the number that a tool wrote before it, or a
** sign of a diff. *pn: the blanks it has. */
static i64 skipIndent(SecretWork *p, i64 i, int *pn) {
  i64 j = i, k;
  int n;
  *pn = 0;
  while (j < p->n && p->z[j] == ' ') j++;
  for (k = j; k < p->n && k - j < 8 && isNumeral(p->z[k]);) k++;
  n = k > j ? slashesAt(p, k) : 0;
  if (k > j && isAt(p, k, "\xe2\x86\x92")) {
    i = k + 3;
  } else if (k > j && isAt(p, k, "\t")) {
    i = k + 1;
  } else if (n > 0 && isAt(p, k + n, "t")) {
    i = k + n + 1;
  } else if (n > 0 && isAt(p, k + n, "u2192")) {
    i = k + n + 5;
  } else if (i < p->n && (p->z[i] == '+' || p->z[i] == '-')) {
    i++;
  }
  for (; i < p->n && p->z[i] == ' '; i++) ++*pn;
  return i;
}

/* The value of a block of YAML whose | or > is at z[i]: lines with as many blanks before
** them as the first. Returns where the first ends; 0: it is no block. */
static i64 findBlock(SecretWork *p, i64 i, SecretValue *pOut) {
  i64 j = i + 1, iNext, iFirst = 0;
  int nBreak, nIndent, nBlank, nSlash, n; /* nBreak is 1 outside of JSON */
  while (j < p->n && p->z[j] != 0 && strchr("+-0123456789", p->z[j])) j++;
  nBreak = breakAt(p, j);
  pOut->i = skipIndent(p, j + nBreak, &nIndent);
  if (nBreak == 0 || nIndent == 0) return 0;
  for (j = pOut->i; j < p->n;) {
    nSlash = slashesAt(p, j);
    if (breakAt(p, j) == nBreak) {
      if (iFirst == 0) iFirst = j;
      iNext = skipIndent(p, j + nBreak, &nBlank);
      if (nBlank < nIndent && breakAt(p, iNext) != nBreak) break;
      j = iNext;
    } else if (p->z[j + nSlash] != '"' || nBreak == 1) {
      j += nSlash + 1;
    } else { /* it may be the end of the string the block is in */
      for (i = 1, n = nSlash; i < nBreak - 1 && n % 2; i *= 2) n = (n - 1) / 2;
      if (n % 2 == 0) break;
      j += nSlash + 1;
    }
  }
  pOut->iEnd = j < p->n ? j : p->n;
  pOut->bQuoted = 1;
  return iFirst > 0 ? iFirst : pOut->iEnd;
}

/* Where the value of the member "value" begins of the object at z[i]; 0: it has none. */
static i64 valueMember(SecretWork *p, i64 i) {
  i64 iMost = i + SECRET_LINE < p->n ? i + SECRET_LINE : p->n;
  for (i++; i < iMost && strchr("{}[]", p->z[i]) == 0; i++) {
    if (p->z[i] == '"' && isAt(p, i + 1, "value")) {
      i64 j = i + 6 + slashesAt(p, i + 6);
      if (j < p->n && p->z[j] == '"') j = skipBlank(p, j + 1);
      if (j < p->n && p->z[j] == ':') return j + 1;
    }
  }
  return 0;
}

/* The end of the name at z[i]; 0 if it is another one. From the fourth character on, _
** of the rule may be _, -, a dot or a blank, or nothing. */
static i64 nameEnd(const SecretWork *p, const BxSecret *pRule, i64 i) {
  const char *z = pRule->zAnchor;
  char cBefore = i > 0 ? p->z[i - 1] : ' ';
  int k, nDigit = 0;
  if (!beginsWord(p->z, i) && cBefore != '_' && *z != '_' &&
      pRule->nAnchor < 6 && !(isUpper(p->z[i]) && !isUpper(cBefore))) {
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

/* Whether the value of a name is a secret. */
static int isSecret(
    const SecretWork *p, const BxSecret *pRule, const SecretValue *pValue) {
  const char *z = p->z + pValue->i;
  i64 n = pValue->iEnd - pValue->i;
  i64 nBits = pValue->bList && pRule->nBits == 0 ? 3 << 8 : pRule->nBits, k;
  assert(pRule->eKind == SECRET_NAME || pRule->eKind == SECRET_ENTROPY);
  if (n < pRule->nLeast || n <= 0 || bxSecretPlaceholder(z, n)) return 0;
  if (!hasHeld(pRule, z, n)) return 0;
  if (!pValue->bQuoted && (z[n] == '(' || z[n] == '[')) {
    for (k = 0; k < n && (isWord(z[k]) || z[k] == '.');) k++;
    if (k == n || z[n] == '(') return 0; /* a call, or an element */
  }
  if (nBits > 0) {
    return n >= 8 && bxSecretDigit(z, n) && bxSecretAlpha(z, n) &&
           !bxSecretUuid(z, n) && *z != '/' && *z != '.' &&
           memchr(z, ' ', (size_t)n) == 0 && bxSecretEntropy(z, n) >= nBits;
  }
  if (pValue->bQuoted) return 1;
  return n >= 4 &&
         (pRule->bAfter || bxSecretDigit(z, n) || (pValue->bLoose && n > 5));
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

/* Where a value begins at z[i], after the type that a language has before it: of
** let key: String = "x". */
static i64 skipType(const SecretWork *p, i64 i) {
  i64 j = i;
  while (
      j < p->n && j - i < 24 && (isWord(p->z[j]) || strchr("<>[]?&.", p->z[j])))
    j++;
  if (j == i || p->z[j] != ' ' || !isAt(p, j, " = ")) return i;
  return skipBlank(p, j + 3);
}

/* Whether the rule masks the value of the name at z[i]; *piNext: where to go on if it
** does not. */
static int matchName(SecretWork *p, const BxSecret *pRule, i64 i,
    SecretValue *pOut, i64 *piNext) {
  static const char *const azScheme[] = {
      "Bearer ", "Basic ", "token ", "ApiKey ", "Digest ", 0};
  static const char zRun[] = "A-Za-z0-9_.!%*+/=?@^~:$#-";
  SecretSet run;
  i64 iEnd = nameEnd(p, pRule, i), j, iBlock = 0;
  int nSlash, k, nQuote;
  char c;
  if (iEnd == 0) return 0;
  *piNext = iEnd;
  if (pRule->eKind == SECRET_NEVER) return 0;
  j = afterSign(p, nameBegin(p, i), iEnd, pOut);
  nQuote = pOut->nSlash;
  pOut->nSlash = -1;
  if (j == 0) return 0;
  j = skipType(p, skipBlank(p, j));
  if (p->z[j] == '{') {
    j = valueMember(p, j);
    if (j == 0) return 0;
    j = skipBlank(p, j);
  }
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
  if (c == '|' || c == '>') iBlock = findBlock(p, j, pOut);
  if (iBlock > 0) {
    SecretValue line = *pOut;
    line.iEnd = iBlock; /* the first tells whether it is a secret */
    return isSecret(p, pRule, &line);
  }
  if (pOut->bQuoted) {
    if (nQuote < 0 && pOut->i < p->n &&
        (strchr("),;}] .", p->z[pOut->i]) || breakAt(p, pOut->i))) {
      return 0; /* the quote ends a string with the name in it */
    }
    pOut->iEnd =
        c == '"' ? stringEnd(p, nSlash, pOut->i) : lineEnd(p, c, pOut->i);
  } else if (c == '[' && nQuote >= 0 && pRule->eKind == SECRET_NAME) {
    pOut->iEnd = j < p->iVain ? -1 : arrayEnd(p, nQuote, j);
    if (pOut->iEnd < 0 && j >= p->iVain) p->iVain = j + SECRET_ARRAY;
    pOut->nSlash = nQuote;
    return pOut->iEnd > j + 2;
  } else {
    if (j < p->iVain) return 0;
    bxSecretSet(&run, zRun);
    pOut->iEnd =
        skipSet(pRule->bAfter ? &pRule->after : &run, p->z, pOut->i, p->n);
    if (nQuote >= 0 && (isNumeral(c) || c == '-')) pOut->nSlash = nQuote;
  }
  if (isSecret(p, pRule, pOut)) return 1;
  if (!pOut->bQuoted && pOut->iEnd - j > SECRET_LONG) p->iVain = pOut->iEnd;
  return 0;
}

/*----------------------------------------------------------------- all ----*/

/* Where z[i] is in the text that was given. Later ones are asked for later. */
static i64 rawOf(SecretWork *p, i64 i) {
  BxSecretEscapes *pEsc = &p->esc;
  while (pEsc->iNow < pEsc->n && pEsc->a[pEsc->iNow].i < i) pEsc->iNow++;
  return i + (pEsc->iNow > 0 ? pEsc->a[pEsc->iNow - 1].nMore : 0);
}

/* Goes on in a text without escapes: before the one at z[i], a name or anchor of which it
** is a part may have begun. The text is to be freed. Returns where to go on. */
static i64 plainText(SecretWork *p, i64 i, BxErr *pErr) {
  i64 k;
  i -= SECRET_BEFORE;
  if (i < p->iFrom) i = p->iFrom;
  p->z = bxSecretPlain(p->z, i, &p->n, &p->esc, pErr);
  for (k = 0; k < p->p->n; k++) p->p->a[k].iDone = 0;
  p->iVain = 0;
  if (p->z == 0) p->n = 0;
  return i;
}

/* Writes what is before a value, and the name of the rule in its place. */
static void replace(SecretWork *p, BxSecret *pRule, const SecretValue *pValue) {
  int n = pValue->nSlash, bQuote;
  i64 i = rawOf(p, p->iFrom);
  assert(pValue->i >= p->iFrom && pValue->iEnd <= p->n);
  if (p->pOut == 0) p->pOut = sqlite3_str_new(0);
  sqlite3_str_append(p->pOut, p->zRaw + i, (int)(rawOf(p, pValue->i) - i));
  for (bQuote = n >= 0; bQuote >= 0 && n >= 0; bQuote--) {
    if (bQuote == 0) sqlite3_str_appendf(p->pOut, "[masked: %s]", pRule->zName);
    if (n > 0) sqlite3_str_appendchar(p->pOut, n, '\\');
    sqlite3_str_appendchar(p->pOut, 1, '"');
  }
  if (n < 0) sqlite3_str_appendf(p->pOut, "[masked: %s]", pRule->zName);
  p->iFrom = pValue->iEnd;
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
      if (bCount) { /* for the first rule of its name */
        BxSecret *pFirst = p->p->a;
        while (strcmp(pFirst->zName, pRule->zName) != 0) pFirst++;
        assert(pFirst <= pRule);
        pFirst->nCount++;
      }
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

/* The next place from i on at which an anchor may begin. A bit for each three characters
** tells it for most, and does not wait for the place before. */
static i64 nextAnchor(const BxSecrets *p, const char *z, i64 i, i64 n) {
  unsigned h;
  assert(i >= 0);
  if (p->nFirst < 3) {
    while (i + 3 <= n && !mayBegin(p, z, i)) i++;
    return i;
  }
  if (i + 3 > n) return i;
  h = threeOf(threeOf(0, z[i]), z[i + 1]);
  for (; i + 3 <= n; i++) {
    h = threeOf(h, z[i + 2]);
    if (p->aThree[h >> 3] >> (h & 7) & 1 && mayBegin(p, z, i)) break;
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
  SecretWork work = {.p = p, .z = z, .n = n, .zRaw = z};
  i64 i = 0;
  assert(n >= 0);
  *pzOut = 0;
  if (pErr->rc != SQLITE_OK || p->n == 0) return 0;
  for (i = 0; i < p->n; i++) p->a[i].iDone = 0;
  i = pPast != 0 ? resumeMask(&work, pPast) : 0;
  while ((i = nextAnchor(p, work.z, i, work.n)) + p->nFirst <= work.n) {
    if (work.z == z && z[i] == '\\' && bxSecretEscape(z, n, i) != 0) {
      i = plainText(&work, i, pErr);
    } else {
      if (pPast != 0 && work.z == z) markPast(&work, pPast, i);
      i = tryRules(&work, i, bCount);
    }
  }
  if (work.pOut != 0) {
    i = rawOf(&work, work.iFrom);
    sqlite3_str_append(work.pOut, z + i, (int)(n - i));
    *pnOut = sqlite3_str_length(work.pOut);
    *pzOut = bxStrFinish(work.pOut, pErr);
  }
  if (work.z != z) sqlite3_free((void *)(sqlite3_uint64)work.z);
  sqlite3_free(work.esc.a);
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
