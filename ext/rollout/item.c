/*
** item.c: finds the parts of an item in the text in which it was given.
**
** SQLite's JSON functions test whether a text is JSON, and return its values.
** They do not return where a value begins and ends, and a payload must be kept
** byte by byte. So this file walks over a text that is known to be JSON, token
** by token. It decodes nothing: an item with an escape in a relevant place is
** marked as odd, and SQLite reads it.
**
** core/json.c also walks over JSON, but cannot be used here. It checks the
** text, and gives up on some texts that json_valid() accepts, for example with
** more levels than it supports. An item must be found in every text that
** json_valid() accepts. Here nothing is checked, so that strchr() finds the end
** of a string, in a third of the time.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

static const char *passSpace(const char *z) {
  while (*z == ' ' || *z == '\t' || *z == '\n' || *z == '\r') z++;
  return z;
}

/* The position after the string whose opening quote is at z. It ends at the
** next quote that has an even number of backslashes before it. */
static const char *passString(const char *z) {
  const char *zEnd = z;
  assert(*z == '"');
  for (;;) {
    const char *zBack;
    zEnd = strchr(zEnd + 1, '"');
    if (zEnd == 0) return z + strlen(z);
    zBack = zEnd;
    while (zBack[-1] == '\\') zBack--;
    if ((zEnd - zBack) % 2 == 0) return zEnd + 1;
  }
}

/* The position after the value at z. */
static const char *passValue(const char *z) {
  i64 nDepth = 0;
  for (;;) {
    if (*z == '"') {
      z = passString(z);
    } else if (*z == '{' || *z == '[') {
      nDepth++;
      z++;
    } else if (*z == '}' || *z == ']') {
      nDepth--;
      z++;
    } else if (nDepth > 0) {
      if (*z == 0) return z;
      z++;
      continue;
    } else { /* a number, true, false or null */
      return z + strcspn(z, ",]} \t\n\r");
    }
    if (nDepth <= 0) return z;
  }
}

static int isKey(RolloutSpan key, const char *zName) {
  size_t n = strlen(zName);
  return (size_t)key.n == n + 2 && memcmp(key.z + 1, zName, n) == 0;
}

/* Whether the token is a string without escapes. */
static int isPlain(RolloutSpan token) {
  return token.n >= 2 && *token.z == '"' &&
         memchr(token.z, '\\', (size_t)token.n) == 0;
}

/* Reads the key at z. Returns where its value begins. */
static const char *readKey(const char *z, RolloutSpan *pKey, int *pbOdd) {
  pKey->z = z;
  z = passString(z);
  pKey->n = z - pKey->z;
  if (!isPlain(*pKey)) *pbOdd = 1;
  z = passSpace(z);
  return passSpace(*z == ':' ? z + 1 : z);
}

/* The position of the next key after the value that ends at z, if there is
** one. */
static const char *passComma(const char *z) {
  z = passSpace(z);
  return *z == ',' ? passSpace(z + 1) : z;
}

/* Of two members with the same name the first counts, as in SQLite. */
static void setSpan(RolloutSpan *p, const char *z, const char *zEnd) {
  assert(z <= zEnd);
  if (p->z != 0) return;
  p->z = z;
  p->n = zEnd - z;
}

/* Walks over the payload at z, an object. Returns its end. */
static const char *readPayload(const char *z, RolloutItem *p) {
  assert(*z == '{');
  z = passSpace(z + 1);
  while (*z == '"') {
    RolloutSpan key;
    const char *zValue = readKey(z, &key, &p->bOdd);
    z = passValue(zValue);
    if (isKey(key, "type")) setSpan(&p->payloadType, zValue, z);
    if (isKey(key, "role")) setSpan(&p->role, zValue, z);
    z = passComma(z);
  }
  return *z != 0 ? z + 1 : z;
}

#ifndef NDEBUG
/* Whether a span, if there is one, lies in another. */
static int liesWithin(RolloutSpan all, RolloutSpan part) {
  return part.z == 0 || (part.z >= all.z && part.z + part.n <= all.z + all.n);
}
#endif

const char *bxRolloutReadItem(const char *z, RolloutItem *p) {
  memset(p, 0, sizeof(*p));
  p->whole.z = z = passSpace(z);
  if (*z != '{') {
    z = passValue(z);
    p->whole.n = z - p->whole.z;
    return z;
  }
  z = passSpace(z + 1);
  while (*z == '"') {
    RolloutSpan key;
    const char *zValue = readKey(z, &key, &p->bOdd);
    int bPayload = isKey(key, "payload") && p->payload.z == 0;
    z = bPayload && *zValue == '{' ? readPayload(zValue, p) : passValue(zValue);
    if (bPayload) setSpan(&p->payload, zValue, z);
    if (isKey(key, "type")) setSpan(&p->type, zValue, z);
    if (isKey(key, "timestamp")) setSpan(&p->timestamp, zValue, z);
    z = passComma(z);
  }
  if (*z != 0) z++;
  p->whole.n = z - p->whole.z;
  assert(liesWithin(p->whole, p->payload));
  assert(liesWithin(p->payload, p->payloadType));
  return z;
}

const char *bxRolloutFirstItem(const char *z) {
  z = passSpace(z);
  if (*z != '[') return z;
  z = passSpace(z + 1);
  return *z == ']' ? 0 : z;
}

const char *bxRolloutNextItem(const char *z) {
  z = passSpace(z);
  return *z == ',' ? z + 1 : 0;
}

int bxRolloutName(RolloutSpan token, char zName[ROLLOUT_MAX_NAME + 1]) {
  if (!isPlain(token) || token.n > ROLLOUT_MAX_NAME + 2) return 0;
  memcpy(zName, token.z + 1, (size_t)token.n - 2);
  zName[token.n - 2] = 0;
  return (int)token.n - 2;
}
