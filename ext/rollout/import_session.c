/*
** import_session.c: a conversation of an import: its id, what of it is stored already, and
** its new items.
**
** The id is the one that the file has, if that is a UUID. Otherwise it is made
** from the format and that id or, if the file has none, from the first item. So
** the same file has the same id whenever it is imported.
**
** Items are compared with those that are stored, by content. A file that begins
** as the conversation does is compared item by item, as long as they are equal;
** after that, an item is new unless it is among the stored ones that are left. A
** payload that was changed here after the import (redacted) is compared by its
** type and time alone. A line without a time has that of a line before it, which
** may have another one when the file is read again: so such a time does not count.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

/*------------------------------------------------------------------ ids ----*/

void bxImportSessionUuid(
    const char *z1, const char *z2, const char *z3, char zId[37]) {
  static const char zHex[] = "0123456789abcdef";
  sqlite3_uint64 h, a[2];
  int i, iOut = 0;
  h = bxHashMix(bxHashOf(z1, (i64)strlen(z1)), 1);
  h = bxHashMix(h, bxHashOf(z2 ? z2 : "", z2 ? (i64)strlen(z2) : 0));
  h = bxHashMix(h, bxHashOf(z3 ? z3 : "", z3 ? (i64)strlen(z3) : 0));
  a[0] = bxHashMix(h, 2);
  a[1] = bxHashMix(bxHashMix(h, 3), a[0]);
  a[0] = (a[0] & ~((sqlite3_uint64)0xf << 12)) | (sqlite3_uint64)8 << 12;
  a[1] = (a[1] & ~((sqlite3_uint64)3 << 62)) | (sqlite3_uint64)2 << 62;
  for (i = 0; i < 32; i++) {
    if (i == 8 || i == 12 || i == 16 || i == 20) zId[iOut++] = '-';
    zId[iOut++] = zHex[a[i / 16] >> (60 - i % 16 * 4) & 15];
  }
  zId[iOut] = 0;
}

void bxImportSessionId(const char *zFormat, int bApart, const char *zName,
    const char *zAgent, char zId[37]) {
  if (zAgent == 0 && !bApart && bxRolloutUuid(zName, (int)strlen(zName), zId) &&
      zId[14] >= '1' && zId[14] <= '8' && strchr("89ab", zId[19]) != 0) {
    return;
  }
  bxImportSessionUuid(zFormat, zName, zAgent, zId);
}

/*---------------------------------------------------------------- hashes ----*/

i64 *bxMapAt(RolloutMap *p, sqlite3_uint64 h, BxErr *pErr) {
  i64 i;
  h |= 1; /* 0 is a free place */
  if (2 * p->n >= p->nAlloc) {
    RolloutMap more = {0, 0, p->nAlloc ? 2 * p->nAlloc : 64};
    more.a = bxZalloc(sizeof(*more.a) * (size_t)more.nAlloc, pErr);
    if (more.a == 0) return 0;
    for (i = 0; i < p->nAlloc; i++) {
      if (p->a[i].h != 0) *bxMapAt(&more, p->a[i].h, pErr) = p->a[i].i;
    }
    sqlite3_free(p->a);
    *p = more;
  }
  assert((p->nAlloc & (p->nAlloc - 1)) == 0 && p->n < p->nAlloc);
  i = (i64)(h >> 8) & (p->nAlloc - 1);
  while (p->a[i].h != 0 && p->a[i].h != h) i = (i + 1) & (p->nAlloc - 1);
  if (p->a[i].h == 0) p->n++;
  p->a[i].h = h;
  return &p->a[i].i;
}

/*------------------------------------------------------ what is stored ----*/

/* The items of a conversation as an export has them, and as they are stored, which is
** another payload if a fork shares it; without a session_meta that was not in the file. */
/* (SQLite copies what it passes through an expression, so that only the items of a
** fork do.) ?9 is the first one. */
static const char zStored[] =
    "SELECT d.id, d.timestamp, d.type, iif(?2 = '' AND ?4 = '', "
    "NULL, " ROLLOUT_OWN_NAMED(
        "iif(d.before IS NULL, replace(d.payload, char(10), ' '), "
        "d.payload)") "), "
                      "coalesce(d.changed, 0), d.after, d.payload, "
                      "d.before IS NULL "
                      "FROM main.rollout__segments AS s "
                      "CROSS JOIN main.rollout__items AS d "
                      "ON d.id BETWEEN (s.owner << 32) + max(s.first, ?9) "
                      "AND (s.owner << 32) + s.last "
                      "WHERE s.rollout = ?1 "
                      "AND NOT (d.id & 4294967295 = 0 AND d.quiet IS 1) "
                      "ORDER BY s.rollout, s.first, d.id";

void bxImportSessionOpen(
    ImportSession *p, BxStmts *pHome, i64 iNow, BxErr *pErr) {
  RolloutWork *pWork = &p->work;
  assert(p->work.zId[36] == 0);
  p->iTime = -1;
  if (bxRolloutFind(pHome, 0, pWork->zId, &pWork->head, pErr)) {
    if (pWork->head.iExpire < iNow) {
      bxRolloutExpired(pWork->zId, pWork->head.iExpire, pErr);
    }
    bxRolloutRequireOpen(pHome, pWork->zId, pErr);
    p->eMatch = PART_BEGIN;
  }
  bxRolloutWorkBegin(pWork, pHome, pErr);
}

int bxImportSessionResume(ImportSession *p, BxStmts *pHome, BxErr *pErr) {
  i64 iNext = p->eMatch == PART_IN_ORDER ? (p->iMatched & ROLLOUT_LAST) + 1 : 0;
  if (p->pStored != 0 || p->eMatch == PART_NEW || p->eMatch == PART_BAG) {
    return 0;
  }
  p->pStored = bxPrepare(pHome, zStored, pErr);
  bxRolloutOwnBind(pHome, p->work.head.no, p->pStored, pErr);
  bxBind(p->pStored, pErr, "--------i", iNext);
  return p->pStored != 0;
}

void bxImportSessionPause(ImportSession *p) {
  sqlite3_finalize(p->pStored);
  p->pStored = 0;
}

void bxImportSessionClose(ImportSession *p) {
  sqlite3_finalize(p->pStored);
  sqlite3_free(p->aBag);
  sqlite3_free(p->seen.a);
  sqlite3_free(p->zName);
  sqlite3_free(p->zAgent);
  sqlite3_free(p->zAfter);
  bxRolloutWorkEnd(&p->work);
}

int bxImportSessionSeen(ImportSession *p, RolloutSlice payload, BxErr *pErr) {
  i64 *pn = bxMapAt(&p->seen, bxHashOf(payload.z, payload.n), pErr);
  assert(payload.n >= 0);
  return pn != 0 && (*pn)++ > 0;
}

#define NO_TIME (-1)

sqlite3_uint64 bxImportHash(
    const char *zType, i64 iTime, const char *z, i64 n) {
  sqlite3_uint64 h = bxHashOf(zType, (i64)strlen(zType));
  h = bxHashMix(h, (sqlite3_uint64)iTime);
  return z == 0 ? h : bxHashMix(h, bxHashOf(z, n));
}

static void bagHash(ImportSession *p, sqlite3_uint64 h, i64 id, BxErr *pErr) {
  ImportStored *pNew =
      bxArrayAdd(&p->aBag, &p->nBag, &p->nBagAlloc, sizeof(*pNew), pErr);
  if (pNew != 0) *pNew = (ImportStored){h, id};
}

static int compareStored(const void *p1, const void *p2) {
  const ImportStored *a = p1, *b = p2;
  return a->h != b->h ? (a->h < b->h ? -1 : 1)
                      : (a->id > b->id) - (a->id < b->id);
}

/* The payload of the row of pStored as an export has it, to sqlite3_free(); NULL if that
** is the stored one. */
static char *asPrinted(ImportSession *p, i64 *pn, BxErr *pErr) {
  const char *z = bxColumnText(p->pStored, 6, pErr);
  char *zOut;
  i64 i;
  *pn = sqlite3_column_bytes(p->pStored, 6);
  if (sqlite3_column_type(p->pStored, 3) != SQLITE_NULL) {
    *pn = sqlite3_column_bytes(p->pStored, 3);
    return bxColumnCopy(p->pStored, 3, pErr);
  }
  if (z == 0 || !sqlite3_column_int(p->pStored, 7) ||
      memchr(z, '\n', (size_t)*pn) == 0) {
    return 0;
  }
  zOut = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)*pn + 1), pErr);
  for (i = 0; zOut != 0 && i < *pn; i++) zOut[i] = z[i] == '\n' ? ' ' : z[i];
  return zOut;
}

/* Puts the row of pStored, and all after it, into the bag. A changed one is there for a
** line with a time, and for one without; one of a fork, with either name. */
static void fillBag(ImportSession *p, BxErr *pErr) {
  assert(p->pStored != 0);
  p->eMatch = PART_BAG;
  do {
    i64 id = sqlite3_column_int64(p->pStored, 0);
    const char *zType = bxColumnText(p->pStored, 2, pErr);
    const char *zOld = bxColumnText(p->pStored, 6, pErr);
    i64 iTime = sqlite3_column_int64(p->pStored, 1);
    if (zType == 0) return;
    if (sqlite3_column_int(p->pStored, 4)) {
      bagHash(p, bxImportHash(zType, iTime, 0, 0), id, pErr);
      bagHash(p, bxImportHash(zType, NO_TIME, 0, 0), id, pErr);
    } else {
      i64 iHash = p->bWhole ? NO_TIME : iTime;
      i64 n, nOld = sqlite3_column_bytes(p->pStored, 6);
      char *z = asPrinted(p, &n, pErr);
      if (z != 0) bagHash(p, bxImportHash(zType, iHash, z, n), id, pErr);
      if (z == 0 || !bxSameText(z, zOld)) {
        bagHash(
            p, bxImportHash(zType, iHash, zOld ? zOld : "", nOld), id, pErr);
      }
      sqlite3_free(z);
    }
  } while (bxStep(p->pStored, pErr));
  qsort(p->aBag, (size_t)p->nBag, sizeof(*p->aBag), compareStored);
}

/* Takes the first item with this hash out of the bag. The key of the first of all with
** the hash becomes minus the number of the next one, once it is taken. */
static int takeHash(ImportSession *p, sqlite3_uint64 h) {
  i64 iLow = 0, iHigh = p->nBag, i;
  while (iLow < iHigh) {
    i = (iLow + iHigh) / 2;
    if (p->aBag[i].h < h) {
      iLow = i + 1;
    } else {
      iHigh = i;
    }
  }
  if (iLow == p->nBag || p->aBag[iLow].h != h) return 0;
  i = p->aBag[iLow].id > 0 ? iLow : -p->aBag[iLow].id;
  if (i >= p->nBag || p->aBag[i].h != h) return 0;
  p->iMatched = p->aBag[i].id;
  p->aBag[iLow].id = -(i + 1);
  assert(p->iMatched > 0);
  return 1;
}

static int isSlice(const char *z, i64 n, const RolloutSlice *p) {
  return z != 0 && n == p->n && memcmp(z, p->z, (size_t)n) == 0;
}

/* Whether the row of pStored is this item, which is then the last stored one that the
** file has so far. */
static int isRow(
    ImportSession *p, const RolloutLine *pLine, i64 *piTime, BxErr *pErr) {
  sqlite3_stmt *pRow = p->pStored;
  const char *zType = bxColumnText(pRow, 2, pErr);
  const char *zOld = bxColumnText(pRow, 6, pErr);
  i64 n, nOld = sqlite3_column_bytes(pRow, 6);
  i64 iTime = sqlite3_column_int64(pRow, 1);
  int bChanged = sqlite3_column_int(pRow, 4);
  if (zType == 0 || strcmp(zType, pLine->zType) != 0 ||
      (pLine->iTime >= 0 && iTime != *piTime)) {
    return 0;
  }
  if (!bChanged && !isSlice(zOld, nOld, &pLine->payload)) {
    char *z = asPrinted(p, &n, pErr);
    int bSame = isSlice(z, n, &pLine->payload);
    sqlite3_free(z);
    if (!bSame) return 0;
  }
  p->iMatched = sqlite3_column_int64(pRow, 0);
  p->eMatch = PART_IN_ORDER;
  *piTime = iTime;
  sqlite3_free(p->zAfter);
  p->zAfter = 0;
  p->nAfter = -1;
  if (sqlite3_column_type(pRow, 5) != SQLITE_NULL) {
    p->nAfter = sqlite3_column_bytes(pRow, 5);
    p->zAfter =
        bxCheckMem(sqlite3_malloc64((sqlite3_uint64)p->nAfter + 1), pErr);
    if (p->zAfter != 0 && p->nAfter > 0) {
      memcpy(p->zAfter, sqlite3_column_blob(pRow, 5), (size_t)p->nAfter);
    }
  }
  return 1;
}

int bxImportSessionHas(
    ImportSession *p, const RolloutLine *pLine, i64 *piTime, BxErr *pErr) {
  i64 iTime = *piTime;
  assert(p->eMatch == PART_NEW || p->eMatch == PART_BAG || p->pStored != 0 ||
         pErr->rc != SQLITE_OK);
  if (pErr->rc != SQLITE_OK) return 0;
  if (p->eMatch == PART_BEGIN || p->eMatch == PART_IN_ORDER) {
    int bRow = bxStep(p->pStored, pErr);
    if (bRow && isRow(p, pLine, piTime, pErr)) return 1;
    /* a piece that is given an id goes on, whatever it has */
    if (!bRow || (p->eMatch == PART_BEGIN && p->bPiece)) {
      p->eMatch = PART_NEW;
      return 0;
    }
    fillBag(p, pErr);
  }
  return p->eMatch == PART_BAG &&
         (takeHash(p, bxImportHash(pLine->zType, p->bWhole ? NO_TIME : iTime,
                          pLine->payload.z, pLine->payload.n)) ||
             takeHash(p, bxImportHash(pLine->zType,
                             pLine->iTime < 0 ? NO_TIME : iTime, 0, 0)));
}
