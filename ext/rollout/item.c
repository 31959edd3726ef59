/*
** item.c: finds the parts of an item in the text in which it was given.
**
** SQLite's JSON functions test whether a text is JSON, and return its values.
** They do not return where a value begins and ends, and a payload must be kept
** byte by byte. So this file walks over the text, token by token. It decodes
** nothing: an item with an escape in a relevant place is marked as odd, and
** SQLite reads it.
**
** There are two ways to walk. With core/json.c the text is checked in the same
** pass. But that gives up on some texts that json_valid() accepts, for example
** with more levels than it supports. An item must be found in every text that
** json_valid() accepts. So there is a second way, for text that is known to be
** JSON, on which nothing is checked.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The text ends at zEnd, and is checked; or it is known to be JSON, and zEnd is
** NULL. Only the first way can return NULL: the text may not be JSON. */
typedef struct ItemWalk {
  const char *zEnd;
  RolloutItem *pItem;
} ItemWalk;

/* Takes a member with its value at zValue. Returns the end of the value. */
typedef const char *(*TakeMember)(
    ItemWalk *, RolloutSpan key, const char *zValue);

/* The position after the string whose opening quote is at z, in text that is
** JSON. It ends at the next quote that has an even number of backslashes before
** it. */
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

/* The position after the value at z, in text that is JSON. */
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

static const char *walkValue(ItemWalk *p, const char *z) {
  return p->zEnd != 0 ? bxSkipNoting(z, p->zEnd, &p->pItem->first)
                      : passValue(z);
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
static const char *walkKey(ItemWalk *p, const char *z, RolloutSpan *pKey) {
  pKey->z = z;
  z = p->zEnd != 0 ? bxSkipString(z, p->zEnd) : passString(z);
  if (z == 0) return 0;
  pKey->n = z - pKey->z;
  if (!isPlain(*pKey)) p->pItem->bOdd = 1;
  z = bxSkipSpace(z);
  return *z == ':' ? bxSkipSpace(z + 1) : 0;
}

/* Walks over the members of the object at z. Returns its end. */
static const char *walkMembers(ItemWalk *p, const char *z, TakeMember xTake) {
  assert(*z == '{');
  z = bxSkipSpace(z + 1);
  if (*z == '}') return z + 1;
  while (*z == '"') {
    RolloutSpan key;
    const char *zValue = walkKey(p, z, &key);
    z = zValue != 0 ? xTake(p, key, zValue) : 0;
    if (z == 0) return 0;
    z = bxSkipSpace(z);
    if (*z == '}') return z + 1;
    if (*z != ',') return 0;
    z = bxSkipSpace(z + 1);
  }
  return 0;
}

/* Of two members with the same name the first counts, as in SQLite. */
static void setSpan(RolloutSpan *p, const char *z, const char *zEnd) {
  assert(z <= zEnd);
  if (p->z != 0) return;
  p->z = z;
  p->n = zEnd - z;
}

static const char *takeOfPayload(
    ItemWalk *p, RolloutSpan key, const char *zValue) {
  const char *z = walkValue(p, zValue);
  if (z == 0) return 0;
  if (isKey(key, "type")) setSpan(&p->pItem->payloadType, zValue, z);
  if (isKey(key, "role")) setSpan(&p->pItem->role, zValue, z);
  return z;
}

static const char *takeOfItem(
    ItemWalk *p, RolloutSpan key, const char *zValue) {
  RolloutItem *pItem = p->pItem;
  int bPayload = isKey(key, "payload") && pItem->payload.z == 0;
  const char *z = bPayload && *zValue == '{'
                      ? walkMembers(p, zValue, takeOfPayload)
                      : walkValue(p, zValue);
  if (z == 0) return 0;
  if (bPayload) setSpan(&pItem->payload, zValue, z);
  if (isKey(key, "type")) setSpan(&pItem->type, zValue, z);
  if (isKey(key, "timestamp")) setSpan(&pItem->timestamp, zValue, z);
  return z;
}

#ifndef NDEBUG
/* Whether a span, if there is one, lies in another. */
static int liesWithin(RolloutSpan all, RolloutSpan part) {
  return part.z == 0 || (part.z >= all.z && part.z + part.n <= all.z + all.n);
}
#endif

const char *bxRolloutReadItem(const char *z, const char *zEnd, RolloutItem *p) {
  ItemWalk walk = {zEnd, p};
  memset(p, 0, sizeof(*p));
  /* The second way does not know where texts are: they may begin with anything. */
  if (zEnd == 0) memset(&p->first, 0xff, sizeof(p->first));
  p->whole.z = z = bxSkipSpace(z);
  z = *z == '{' ? walkMembers(&walk, z, takeOfItem) : walkValue(&walk, z);
  assert(z != 0 || zEnd != 0);
  if (z == 0) return 0;
  p->whole.n = z - p->whole.z;
  assert(liesWithin(p->whole, p->payload));
  assert(liesWithin(p->payload, p->payloadType));
  return z;
}

int bxRolloutName(RolloutSpan token, char zName[ROLLOUT_MAX_NAME + 1]) {
  if (!isPlain(token) || token.n > ROLLOUT_MAX_NAME + 2) return 0;
  memcpy(zName, token.z + 1, (size_t)token.n - 2);
  zName[token.n - 2] = 0;
  return (int)token.n - 2;
}
