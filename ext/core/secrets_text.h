/*
** secrets_text.h: what secrets.c asks of a run of characters.
*/
#ifndef BX_SECRETS_TEXT_H
#define BX_SECRETS_TEXT_H

#include "statement.h"

#define SECRET_LONG 256 /* a longer run is looked at once */
#define SECRET_ARRAY 4096

typedef struct SecretSet {
  unsigned char a[32];
} SecretSet;

static inline int inSet(const SecretSet *p, char c) {
  unsigned char i = (unsigned char)c;
  return p->a[i >> 3] >> (i & 7) & 1;
}

static inline int isNumeral(char c) {
  return c >= '0' && c <= '9';
}
static inline int isUpper(char c) {
  return c >= 'A' && c <= 'Z';
}
static inline int isAlpha(char c) {
  return isUpper((char)(c & ~32)) && (c & 64);
}
static inline int isWord(char c) {
  return isAlpha(c) || isNumeral(c) || c == '_';
}

/* Reads a set as it stands in the brackets of GLOB. Returns whether it has anything. */
int bxSecretSet(SecretSet *p, const char *z);
/* Whether n bytes at z have nText bytes of a text. */
int bxSecretHas(const char *z, i64 n, const char *zText, i64 nText);
int bxSecretDigit(const char *z, i64 n);
int bxSecretAlpha(const char *z, i64 n);
/* Shannon's entropy of the first characters, for one, in 1/256 of a bit. */
i64 bxSecretEntropy(const char *z, i64 n);
/* What stands for a value, or is one of a program, and not a secret. */
int bxSecretPlaceholder(const char *z, i64 n);
/* A UUID is a name of something. */
int bxSecretUuid(const char *z, i64 n);

/* The characters of a text that were escapes: where each is now, and how many bytes all so
** far had more. */
typedef struct BxSecretEscape {
  i64 i, nMore;
} BxSecretEscape;
typedef struct BxSecretEscapes {
  BxSecretEscape *a; /* to sqlite3_free() */
  i64 n, nAlloc;
  i64 iNow; /* those before it are before the place that was asked for last */
} BxSecretEscapes;
/* The character of an escape \u00XX at z[i]; 0: there is none. Signs that programs escape
** in ordinary texts, such as <, are none here. */
int bxSecretEscape(const char *z, i64 n, i64 i);
/* The text with the characters of its escapes from z[iFrom] on, to sqlite3_free(); *pn: its
** length. A backslash before one is part of it: the text may be JSON in JSON. */
char *bxSecretPlain(
    const char *z, i64 iFrom, i64 *pn, BxSecretEscapes *p, BxErr *pErr);

#endif
